"""Studies of clustering: methods against the number of constraints, over many random draws.

A study is a folder with a definition, ``study.toml``; running it adds records to
``records.jsonl`` there, and the report, tables and figures are made from those alone.
"""

from inference_lab.studies.definition import Method, Protocol, Study, StudyError, load_study
from inference_lab.studies.report import render_study
from inference_lab.studies.running import StudyRecord, run_study

__all__ = [
    "Method",
    "Protocol",
    "Study",
    "StudyError",
    "StudyRecord",
    "load_study",
    "render_study",
    "run_study",
]
