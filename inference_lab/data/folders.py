"""Search for files that a spec names, in the working directory and the data folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

from inference_lab.formatting import nearest

#: Environment variable that names the folder with real data.
DATA_VARIABLE = "INFERENCE_LAB_DATA"


class DataNotFoundError(FileNotFoundError):
    """A data file is missing; the message names it and its source."""


_PathLike: TypeAlias = "str | os.PathLike[str]"


def data_folder(data_dir: _PathLike | None = None) -> Path:
    """Return the folder of real data: the given one, ``INFERENCE_LAB_DATA``, or the cache."""
    folder = data_dir if data_dir is not None else os.environ.get(DATA_VARIABLE)
    if folder:
        return Path(folder).expanduser()
    import pooch  # imported here, because folders are mostly given

    return Path(pooch.os_cache("inference-lab")) / "data"


def find_file(name: str, data_dir: Path | None, folder: str = "image") -> Path:
    """Return the file of a name: in the working directory, the data folder, or a folder in it."""
    path = Path(name).expanduser()
    if path.is_file():
        return path
    looked_at = [path]
    if not path.is_absolute():
        root = data_folder(data_dir)
        looked_at += [root / part / path for part in dict.fromkeys(("", folder))]
    failures = []
    for place in looked_at:
        if place.is_file():
            return place
        if place.exists():
            failures.append(f"{place} is not a file")
        elif not place.parent.is_dir():
            failures.append(f"{place.parent} is not a folder")
        else:
            there = (entry.name for entry in place.parent.iterdir() if entry.is_file())
            failures.append(f"{place} does not exist{nearest(place.name, there)}")
    if folder and not path.is_absolute():
        failures.append(
            f"a data folder can be given with --data-dir or ${DATA_VARIABLE}, and "
            "inference-lab data fetches published files"
        )
    raise DataNotFoundError("; ".join(failures))
