"""Predictors of how hard an energy is, and what they predict, with the evidence."""

from __future__ import annotations

from inference_lab.diagnosis.diagnosing import Diagnosis, diagnose
from inference_lab.hardness.measures import Measures

__all__ = ["Diagnosis", "Measures", "diagnose"]
