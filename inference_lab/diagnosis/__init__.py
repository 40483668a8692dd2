"""Graph features that predict difficulty, with the evidence of a study."""

from __future__ import annotations

from inference_lab.diagnosis.diagnosing import Diagnosis, diagnose
from inference_lab.hardness.measures import Measures

__all__ = ["Diagnosis", "Measures", "diagnose"]
