"""Where the files lie that a spec names: the working directory and the data folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

__all__ = ["DATA_VARIABLE", "data_folder", "places"]

#: Environment variable that names the folder with real data.
DATA_VARIABLE = "INFERENCE_LAB_DATA"

_PathLike: TypeAlias = "str | os.PathLike[str]"


def data_folder(data_dir: _PathLike | None = None) -> Path | None:
    """Return the folder of real data: the one given, or that of ``INFERENCE_LAB_DATA``, or None."""
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
