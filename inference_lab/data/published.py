"""Published data sets: files with checksums, found in the data folder and fetched into it.

``published.toml`` lists them. The package redistributes none: files come from the addresses there,
or from a mirror with the layout of a data folder.
"""

from __future__ import annotations

import importlib.resources
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from inference_lab.data.folders import DATA_VARIABLE, DataNotFoundError, data_folder
from inference_lab.formatting import listed, nearest
from inference_lab.specs.grammar import SpecError

#: Environment variable that names a folder or an address with the layout of a data folder.
MIRROR_VARIABLE = "INFERENCE_LAB_MIRROR"

_PathLike: TypeAlias = "str | os.PathLike[str]"


class FetchError(OSError):
    """Files could not be fetched; the message names each with the reason."""


class PublishedFile(NamedTuple):
    """A file: its path in the data folder, its bytes, its SHA-256 and its address.

    Without an address it has to be downloaded by hand. After a ``#`` in the address stands a member
    of a zip archive, to which size and checksum belong.
    """

    path: str
    size: int
    sha256: str
    url: str


@dataclass(frozen=True)
class PublishedSet:
    """A data set: its group, its licence, whom to cite, its page, and its files."""

    group: str
    licence: str
    citation: str
    source: str
    files: tuple[PublishedFile, ...]

    @property
    def by_hand(self) -> bool:
        """Whether a file has no address."""
        return not all(file.url for file in self.files)


@cache
def published() -> dict[str, PublishedSet]:
    """Return all published sets by name."""
    text = (importlib.resources.files(__package__) / "published.toml").read_text("utf-8")
    return msgspec.toml.decode(text, type=dict[str, PublishedSet])


def choose(names: Sequence[str]) -> list[str]:
    """Return the sets of some names, of which ``all`` and groups mean every set with addresses."""
    sets = {name: [name] for name in published()}
    for name, one in published().items():
        for group in () if one.by_hand else ("all", one.group):
            sets.setdefault(group, []).append(name)
    for name in names:
        if name not in sets:
            raise SpecError(
                f"unknown data set {name!r}{nearest(name, sets)}; valid names: {', '.join(sets)}"
            )
    return list(dict.fromkeys(member for name in names for member in sets[name]))


def stored(place: Path) -> Path | None:
    """Return a file, plain or compressed, or None if it does not exist."""
    plain = place.with_suffix("") if place.suffix in (".gz", ".xz") else place
    names = (place, plain, *(plain.with_name(plain.name + end) for end in (".gz", ".xz")))
    return next((path for path in names if path.is_file()), None)


def find_published(path: str, data_dir: _PathLike | None = None) -> Path:
    """Return a published file, plain or compressed, in the data folder or its subfolder."""
    root = data_folder(data_dir)
    top, _, below = path.partition("/")
    file = stored(root / path) or stored(root / below)
    if file is not None:
        return file
    name, one = _holder(path)
    how = f"download it by hand from {one.source} to {root / path}"
    if not one.by_hand:
        how = f"inference-lab data fetch {name} downloads it (published at {one.source})"
    raise DataNotFoundError(
        f"{path} is missing, {root} {'does not hold it' if root.is_dir() else 'is not a folder'}: "
        f"{how}; or give the folder that holds {top}/ with --data-dir or ${DATA_VARIABLE}"
    )


def _holder(path: str) -> tuple[str, PublishedSet]:
    """Return the name of the set with a file, whose path may lack a suffix of compression."""
    return next(
        (name, one)
        for name, one in published().items()
        if any(path in (file.path, os.path.splitext(file.path)[0]) for file in one.files)
    )


def source_of(path: str) -> str:
    """Return the page of the set with a file."""
    return _holder(path)[1].source


def fetch(
    names: Sequence[str],
    data_dir: _PathLike | None = None,
    *,
    mirror: str | None = None,
    progress: Callable[[Sequence[PublishedFile]], Iterable[PublishedFile]] = iter,
) -> tuple[int, int]:
    """Fetch sets into the data folder and return the numbers of new and of old files.

    `names` are sets, groups, or ``all``. Each file is checked before it gets its name; files that
    are there already are kept. `mirror`, a folder or an address, replaces the published addresses,
    by default by ``INFERENCE_LAB_MIRROR``. `progress` receives the files and yields them. Raises
    `FetchError` if files could not be fetched, or differ from their checksums; others are kept.
    """
    import requests

    root = data_folder(data_dir)
    mirror = mirror or os.environ.get(MIRROR_VARIABLE)
    files = [file for name in choose(names) for file in published()[name].files]
    new = 0
    failed = []
    for file in progress(files):
        try:
            new += _fetch(file, root, mirror)
        except requests.ConnectionError as problem:
            raise FetchError(
                f"cannot connect to {mirror or file.url}; files fetched so far are kept. Without "
                "a network, copy the data folder of a machine that has fetched the files, and name "
                f"the copy, or an address of it, with --mirror or ${MIRROR_VARIABLE}"
            ) from problem
        except (OSError, ValueError) as problem:
            failed.append(f"{file.path}: {problem}")
    if failed:
        raise FetchError(f"{len(failed)} of {len(files)} files not fetched: {listed(failed)}")
    return new, len(files) - new


def _fetch(file: PublishedFile, root: Path, mirror: str | None) -> bool:
    """Fetch a file and return True, or return False if it is there, plain or compressed."""
    import pooch

    target = root / file.path
    old_file = stored(target)
    if old_file == target and file.sha256 and (has := pooch.file_hash(str(target))) != file.sha256:
        raise FileExistsError(
            f"{target} has the SHA-256 {has}, not {file.sha256}: remove it to fetch it again"
        )
    if old_file is not None:
        return False
    if not file.url:
        raise FetchError(f"download it by hand from {source_of(file.path)} to {target}")
    url, _, member = file.url.partition("#")
    if mirror:
        url = f"{mirror.rstrip('/')}/{file.path}"
        member = ""
    pooch.get_logger().setLevel("ERROR")  # attempts that fail are repeated
    pooch.create(
        root,
        base_url="",
        registry={file.path: f"sha256:{file.sha256}"},
        urls={file.path: url},
        retry_if_failed=2,
    ).fetch(file.path, downloader=partial(_download, member=member, size=file.size))
    return True


def _download(url: str, target: str, caller: Any, *, member: str, size: int) -> None:
    """Write a file of a folder or at an address, or a member of an archive there, to `target`."""
    import pooch

    if "://" not in url:
        shutil.copyfile(Path(url).expanduser(), target)
    else:
        pooch.HTTPDownloader()(url, target, caller)
    if member:
        # Nothing is extracted by the names in the archive: one member is read, up to its size.
        try:
            with zipfile.ZipFile(target) as archive, archive.open(member) as stream:
                content = stream.read(size)
        except (zipfile.BadZipFile, zlib.error, KeyError) as problem:
            raise ValueError(f"{url} is no zip archive with {member}: {problem}") from problem
        Path(target).write_bytes(content)
