"""Graph features that predict difficulty, with the evidence of a study."""

from __future__ import annotations

from inference_lab.selection.algorithm_selection import Diagnosis, diagnose
from inference_lab.selection.instance_features import Measures

__all__ = ["Diagnosis", "Measures", "diagnose"]
