"""The stores of results folders, and merging."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from inference_lab.harness.campaign import InputError
from inference_lab.results.clustering_records import FitStore, environments, note_environments
from inference_lab.results.line_store import LineStore
from inference_lab.results.records import RecordStore

#: Store class of each record file in a folder, by file name.
_FILES: Mapping[str, type[RecordStore] | type[FitStore]] = {
    "runs.jsonl": RecordStore,
    "records.jsonl": FitStore,
}


def find_store(place: str | os.PathLike[str]) -> RecordStore | FitStore:
    """Return the store in a folder, or of a record file."""
    path = Path(place)
    if path.is_dir():
        for name, kind in _FILES.items():
            if (store := kind(path / name)).exists():
                return store
        raise InputError(f"{path} holds no records: there is no {' or '.join(_FILES)} in it")
    file_store = _FILES.get(path.name.removesuffix(".xz"), RecordStore)(path)
    if not file_store.exists():
        raise InputError(f"{path} does not exist")
    return file_store


def store_in(place: Path, like: RecordStore | FitStore) -> RecordStore | FitStore:
    """Return the store in a folder, or of an archive, with the record type of another store."""
    ((name, kind),) = ((n, k) for n, k in _FILES.items() if isinstance(like, k))
    return kind(place if place.suffix == ".xz" else place / name)


def merge(
    sources: Sequence[RecordStore | FitStore], target: RecordStore | FitStore
) -> tuple[int, int]:
    """Append missing records of other stores; count new and old records."""
    records: dict[str, Any] = {}
    total = 0
    for source in sources:
        if source.kind is not target.kind:
            raise InputError(f"{source.path} holds something else than {target.path} does")
        for record in source:
            records.setdefault(record.identity, record)
            total += 1
    into: LineStore[Any] = target
    stored_identities = {record.identity for record in into.prepare()}
    new = [record for name, record in records.items() if name not in stored_identities]
    into.extend(new)
    if isinstance(target, FitStore):
        for source in sources:
            note_environments(target.path.parent, environments(source.path.parent))
    return len(new), total - len(new)
