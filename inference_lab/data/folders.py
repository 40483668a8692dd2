"""Search for files that a spec names, in the working directory and the data folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

from inference_lab.formatting import nearest

__all__ = ["DATA_VARIABLE", "DataNotFoundError", "data_folder", "find_file", "places"]

#: Environment variable that names the folder with real data.
DATA_VARIABLE = "INFERENCE_LAB_DATA"


class DataNotFoundError(FileNotFoundError):
    """A data file is missing; the message names it and its source."""


_PathLike: TypeAlias = "str | os.PathLike[str]"


def data_folder(data_dir: _PathLike | None = None) -> Path | None:
    """Return the folder of real data: the given one, or ``INFERENCE_LAB_DATA``, or None."""
    chosen = data_dir if data_dir is not None else os.environ.get(DATA_VARIABLE) or None
    return None if chosen is None else Path(chosen).expanduser()


def places(name: str, data_dir: _PathLike | None, *folders: str) -> list[Path]:
    """Return the paths at which to look for a file, in order; `folders` are below the data folder.

    A relative path is looked up in the working directory, the data folder, and `folders`.
    """
    root, given = data_folder(data_dir), Path(name).expanduser()
    if root is None or given.is_absolute():
        return [given]
    return [given, root / given, *(root / folder / given for folder in folders)]


def find_file(name: str, data_dir: Path | None, folder: str = "image", *, source: str = "") -> Path:
    """Return the file of a name: in the working directory, the data folder, or a folder in it."""
    looked_at = places(name, data_dir, *filter(None, [folder]))
    said = []
    for place in looked_at:
        if place.is_file():
            return place
        if place.exists():
            said.append(f"{place} is not a file")
        elif not place.parent.is_dir():
            said.append(f"{place.parent} is not a folder")
        else:
            there = (entry.name for entry in place.parent.iterdir() if entry.is_file())
            said.append(f"{place} does not exist{nearest(place.name, there)}")
    if source:
        said.append(f"it was published at {source}")
    if folder and len(looked_at) == 1 and not looked_at[0].is_absolute():
        said.append(f"a data folder can be given with --data-dir or ${DATA_VARIABLE}")
    raise DataNotFoundError("; ".join(said))
