"""Functions that write a report into a folder: pages, tables and figures."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from inference_lab.reporting.charts import Drawing, drawing
from inference_lab.reporting.csv_text import csv_table
from inference_lab.reporting.document import Document, Picture
from inference_lab.reporting.latex import latex_table
from inference_lab.reporting.markdown import render_markdown
from inference_lab.results.atomic_files import write_whole
from inference_lab.specs.extras import require

#: Manifest of the files of the last rendering, so that the next one removes no others.
_MANIFEST = ".report-files.json"

#: Names of all files that a rendering writes; other names in a manifest are ignored.
_OURS = re.compile(
    r"README\.md|index\.html|tables/[a-z0-9-]+\.(csv|tex)|figures/[a-z0-9-]+\.(svg|pdf)"
)


def _draw(picture: Picture) -> Drawing:
    return drawing(picture.draw())


def _listed(folder: Path) -> set[str]:
    """Return the files of an earlier rendering, according to its manifest."""
    try:
        read = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        names = read["files"]
        return {name for name in names if isinstance(name, str) and _OURS.fullmatch(name)}
    except (OSError, ValueError, KeyError, TypeError):
        return set()  # no manifest, or not ours, so nothing is removed


def _list(folder: Path, names: set[str]) -> None:
    text = json.dumps({"files": sorted(names)}, indent=1) + "\n"
    write_whole(folder / _MANIFEST, text.encode())


def check_folder(folder: Path | str) -> None:
    """Refuse a folder in which a report would overwrite a page that no report wrote."""
    require("report", "altair", "vl_convert", "jinja2")
    folder = Path(folder)
    before = _listed(folder)
    for name in ("README.md", "index.html"):
        # Only pages are checked, because files of other origin may have these common names.
        if name not in before and os.path.lexists(folder / name):
            raise FileExistsError(
                f"{folder / name} was not written by a report (it is not listed in {_MANIFEST} "
                "beside it): choose another folder, or remove it"
            )


def write_document(document: Document, folder: Path | str) -> list[Path]:
    """Write a document into a folder.

    The same document gives the same bytes, except for the order of fonts in a PDF. Everything is
    rendered before the first file is written, and each file is moved into place whole. Names of
    tables and pictures cannot lead to another folder. Files of an earlier rendering that this one
    lacks are removed if that rendering listed them, and no others. A page that no rendering
    listed is not replaced.
    """
    folder = Path(folder)
    before = _listed(folder)
    check_folder(folder)
    from inference_lab.reporting.page import render_page

    document = document.numbered()
    forms: dict[str, str] = {}
    for table in document.tables():
        forms[f"{table.stem}.csv"] = csv_table(table)
        forms[f"{table.stem}.tex"] = latex_table(table)
    drawings = {picture.stem: _draw(picture) for picture in document.pictures()}

    files = {f"tables/{name}": text.encode() for name, text in forms.items()}
    for stem, drawn in drawings.items():
        files[f"figures/{stem}.svg"] = drawn.svg.encode()
        files[f"figures/{stem}.pdf"] = drawn.pdf
    files["README.md"] = render_markdown(document).encode()
    files["index.html"] = render_page(document, drawings, forms).encode()

    folder.mkdir(parents=True, exist_ok=True)
    # Both are listed until the end, so that the next rendering knows the files of an interrupted
    # one.
    _list(folder, before | files.keys())
    for name, content in files.items():
        write_whole(folder / name, content)
    for name in before - files.keys():
        (folder / name).unlink(missing_ok=True)
    _list(folder, set(files))
    return [folder / name for name in files]
