"""The best known energies and bounds of problems, and the solvers that found or proved them."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import msgspec

from inference_lab.contract import proves
from inference_lab.results.atomic_files import write_whole
from inference_lab.results.json_lines import RecordError, jsonable
from inference_lab.results.line_store import unpacked
from inference_lab.results.records import Record
from inference_lab.results.summaries import grouped

__all__ = ["FILE", "Known", "KnownBest", "known_best", "merged", "read_known", "write_known"]

#: An energy or a bound, and the specs of its solvers.
_By = tuple[float, tuple[str, ...]]

#: Name of the file beside the records.
FILE = "best-known.jsonl.gz"


@dataclass(frozen=True)
class KnownBest:
    """The best known energy of one problem."""

    problem: str
    problem_hash: str
    #: The lowest energy that a run found, or the known optimum; ``inf`` if there is none.
    energy: float = math.inf
    #: Specs of all solvers that found it, sorted.
    found_by: tuple[str, ...] = ()
    #: The largest lower bound.
    bound: float = -math.inf
    #: Specs of all solvers that gave it, sorted; they proved the energy if the bound equals it.
    bound_by: tuple[str, ...] = ()
    #: As in `inference_lab.results.records.Record`.
    small_energy: float = 1.0

    @property
    def open(self) -> bool:
        """Whether neither the energy nor infeasibility is proved."""
        return not self.alike(self.energy, self.bound) or self.bound == -math.inf

    def alike(self, one: float, other: float) -> bool:
        """Whether two energies or bounds of the problem are equal up to rounding."""
        return one == other or proves(one, other, self.small_energy)

    def with_(self, other: KnownBest) -> KnownBest:
        """Merge two entries of the same problem."""
        return _of_all(
            self,
            [(k.energy, k.found_by) for k in (self, other)],
            [(k.bound, k.bound_by) for k in (self, other)],
        )


def _of_all(blank: KnownBest, found: Sequence[_By], bounds: Sequence[_By]) -> KnownBest:
    """Return the best energy and bound of a problem with all their solvers."""
    energy, bound = min(e for e, _ in found), max(b for b, _ in bounds)
    by = (
        {name for value, names in part if blank.alike(value, best) for name in names}
        for part, best in ((found, energy), (bounds, bound))
    )
    found_by, bound_by = (tuple(sorted(names)) for names in by)
    return replace(
        blank,
        energy=energy,
        found_by=found_by if energy < math.inf else (),
        bound=bound,
        bound_by=bound_by if bound > -math.inf else (),
    )


#: Entries of problems, by name and hash of the content.
Known = Mapping[tuple[str, str], KnownBest]


def known_best(records: Iterable[Record]) -> dict[tuple[str, str], KnownBest]:
    """Return the best energy and bound of each problem, in the order of the records."""
    return {
        key: _of_one(runs)
        for key, runs in grouped(list(records), lambda r: (r.problem, r.problem_hash)).items()
    }


def _of_one(runs: list[Record]) -> KnownBest:
    first = runs[0]
    found: list[_By] = [(r.energy, (r.solver,)) for r in runs]
    bounds: list[_By] = [(r.lower_bound, (r.solver,)) for r in runs]
    if first.optimum is not None:
        source = (first.optimum_source or "known optimum",)
        found.append((first.optimum, source))
        bounds.append((first.optimum, source))
    blank = KnownBest(first.problem, first.problem_hash, small_energy=first.small_energy)
    return _of_all(blank, found, bounds)


def merged(*parts: Known) -> dict[tuple[str, str], KnownBest]:
    """Merge several collections, in any order."""
    result: dict[tuple[str, str], KnownBest] = {}
    for part in parts:
        for key, known in part.items():
            result[key] = result[key].with_(known) if key in result else known
    return result


def read_known(path: Path) -> dict[tuple[str, str], KnownBest]:
    """Read a file of `write_known`; return no entries if it does not exist."""
    if not path.exists():
        return {}
    known = {}
    for number, line in enumerate(unpacked(path).splitlines(), start=1):
        try:
            # Not strict, because numbers that are not finite are stored as strings.
            best = msgspec.json.decode(line, type=KnownBest, strict=False)
        except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
            raise RecordError(f"{path}:{number}: no entry of best energies: {problem}") from None
        known[best.problem, best.problem_hash] = best
    return known


def write_known(path: Path, known: Known) -> None:
    """Write the entries, sorted by problem: the same content gives the same bytes."""
    lines = [json.dumps(jsonable(asdict(known[key])), sort_keys=True) for key in sorted(known)]
    content = gzip.compress("".join(f"{line}\n" for line in lines).encode(), 9, mtime=0)
    if not path.exists() or path.read_bytes() != content:
        write_whole(path, content)
