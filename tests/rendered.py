"""Reports of the repository, each rendered from its records once for all tests of a worker."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from unittest import mock

from places import ROOT

from inference_lab.reporting import writing
from inference_lab.reporting.comparison import Comparison
from inference_lab.reporting.document import Document
from inference_lab.studies import (
    SolverStudy,
    load_study,
    render_study,
    run_comparison,
    run_study,
)

REPORTS = ROOT / "reports"


@cache
def rendered(name: str) -> tuple[Document, dict[str, bytes]]:
    """Return the report of a study of clustering, and its files; no fit may be missing.

    Callers decide by the fixture `undrawn` whether its pictures are drawn.
    """
    study = load_study(REPORTS / name)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for pattern in ("records.jsonl.?z", "environments.json"):
            (file,) = (REPORTS / name).glob(pattern)
            (folder / file.name).write_bytes(file.read_bytes())
        records = run_study(study, folder, jobs=0)
        with mock.patch.object(writing, "write_document", wraps=writing.write_document) as written:
            render_study(study, records, folder)
        files = {
            str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }
    return written.call_args.args[0], files


@cache
def recorded(name: str) -> tuple[SolverStudy, Comparison]:
    """Return a study of solvers, and its comparison."""
    study = load_study(REPORTS / name)
    assert isinstance(study, SolverStudy)
    return study, run_comparison(study, REPORTS / name, jobs=0)
