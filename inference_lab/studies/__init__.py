"""Studies: a definition in a file, records of its runs, and a report made from records alone.

A study is a folder with ``study.toml``. A clustering study compares methods by the number of
constraints over many random draws (`Study`); a solver study runs solvers on problems
(`SolverStudy`).
"""

from inference_lab.results.clustering_records import StudyRecord
from inference_lab.studies.clustering_report import render_study
from inference_lab.studies.clustering_study import Method, Protocol, Study
from inference_lab.studies.definition import StudyError
from inference_lab.studies.discovery import find_study, load_study
from inference_lab.studies.fit_campaign import run_study
from inference_lab.studies.solver_study import SolverStudy, render_comparison, run_comparison

__all__ = [
    "Method",
    "Protocol",
    "SolverStudy",
    "Study",
    "StudyError",
    "StudyRecord",
    "find_study",
    "load_study",
    "render_comparison",
    "render_study",
    "run_comparison",
    "run_study",
]


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
