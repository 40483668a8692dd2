"""Sets of rows that belong together, or of which no two do, as pairs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations, pairwise
from typing import Any

from inference_lab.formatting import counted, warn

#: Largest set of which all pairs are must-links; larger ones are chains of must-links. A set of 20
#: has 190 pairs. All pairs outweigh a wrong member, but their number grows with the square.
FULL_SIZE = 20
SET_COLUMNS = frozenset({"set", "row", "kind"})


def pairs_in_set(members: Sequence[Hashable], together: bool) -> Iterable[tuple[Any, Any]]:
    """Return the pairs of a set: all of them, or a chain through a large set of must-links."""
    if together and len(members) > FULL_SIZE:
        return pairwise(members)
    return combinations(members, 2)


def pairs_of_sets(frame: Any) -> Any:
    """Return a table with a row for each pair, from one with a row for each member of a set.

    Other tables are returned unchanged.
    """
    import pandas as pd

    if not hasattr(frame, "columns") or not SET_COLUMNS <= set(frame.columns):
        return frame
    if {"i", "j"} & set(frame.columns):
        raise ValueError("pairs has the columns of pairs, i and j, beside set and row, of sets")
    further = [name for name in frame.columns if name not in ("set", "row")]
    entries: list[tuple[Any, ...]] = []
    index: list[Any] = []
    single = 0
    for name, members in frame.groupby("set", sort=False, dropna=False):
        different = [column for column in further if members[column].nunique(dropna=False) > 1]
        if different:
            raise ValueError(
                f"the set {name!r} of pairs has several values of {different[0]}; all rows of a "
                "set have one"
            )
        rows = members["row"].tolist()
        if len(set(rows)) < len(rows):
            twice = next(row for row in rows if rows.count(row) > 1)
            raise ValueError(f"the set {name!r} of pairs has the row {twice!r} twice")
        single += len(rows) == 1
        shared = tuple(members[further].iloc[0])
        together = members["kind"].iloc[0] != "cannot-link"
        pairs = list(pairs_in_set(rows, together))
        entries += [(i, j, *shared) for i, j in pairs]
        index += [members.index[0]] * len(pairs)
    watch_single(single)
    pairs_frame = pd.DataFrame(entries, columns=["i", "j", *further], dtype=object)
    pairs_frame.index = pd.Index(index, dtype=object)
    for column in further:
        pairs_frame[column] = pairs_frame[column].astype(frame[column].dtype)
    return pairs_frame


def watch_single(count: int) -> None:
    """Warn of sets of one row, from which no pair follows."""
    if count:
        warn(f"{counted(count, 'set')} of pairs with a single row: no pair follows")
