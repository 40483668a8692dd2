"""Analysis of records: gaps to the best known bound, proofs, contradictions, aggregates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import fields, replace

from inference_lab.formatting import counted, listed, nearest
from inference_lab.results.consistency_checks import (
    contradictions,
    repetitions,
    unfairness,
)
from inference_lab.results.json_lines import jsonable
from inference_lab.results.label_codec import KEPT_BELOW, decode_labels
from inference_lab.results.records import Record, RecordStore
from inference_lab.results.summaries import (
    ProblemSummary,
    Row,
    grouped,
    proof,
    summarise_problem,
    summarise_runs,
)

if TYPE_CHECKING:
    import pandas as pd

    from inference_lab.graph.arrays import IntArray


#: The columns of `Findings.frame` that come first.
_FIRST = {
    name: at
    for at, name in enumerate(
        ("problem", "solver", "seed", "energy", "gap", "lower_bound", "status", "seconds")
    )
}


def latest(records: Iterable[Record]) -> list[Record]:
    """Return the last record of each `Record.key`, in the order in which the keys first appear."""
    return list({record.key: record for record in records}.values())


def _code(record: Record) -> tuple[int, str]:
    """Return the version of the solver of a run, and the digest of its file."""
    return record.solver_version, record.solver_source


def newest_codes(records: Sequence[Record]) -> dict[str, tuple[int, str]]:
    """Return the newest code of each solver: of the highest version, that of the last start."""
    newest: dict[str, tuple[int, str, int]] = {}
    for number, record in enumerate(records):
        # Starts are rounded to seconds, so ties go to the later record.
        mark = (record.solver_version, record.started, number)
        newest[record.solver] = max(newest.get(record.solver, mark), mark)
    return {solver: _code(records[number]) for solver, (_, _, number) in newest.items()}


def _with_code(record: Record) -> Record:
    """Return a record whose solver is named with its code, for a row of its own."""
    version, source = _code(record)
    file = f", file {source[:8]}" if source else ""
    return replace(record, solver=f"{record.solver} [version {version}{file}]")


def _older_runs(older: Sequence[Record]) -> list[str]:
    """Return a sentence on the runs of earlier codes, if there are any."""
    if not older:
        return []
    counts = Counter(record.solver for record in older)
    named = [f"{solver} ({count})" for solver, count in counts.items()]
    return [
        f"{counted(len(older), 'run')} of earlier code of {listed(named)} "
        f"{'is' if len(older) == 1 else 'are'} left out; report --older, and "
        "Comparison.of_store(..., older=True), show them in rows of their own"
    ]


class Findings:
    """Records of runs and their analysis; `Comparison` adds tables, figures and reports.

    Superseded records belong to runs that were repeated; only the check that runs with the same
    seed agree reads them. Remarks are added to `warnings`; labels are names of solvers by spec.
    Solvers of a stage were run, by design, on some of the problems only, or with limits of their
    own: `warnings` compares solvers within a stage, and solvers without a stage with each other.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> c = il.compare([il.Problem("pair", g, optimum=0.5)], ["icm"])
    >>> (row,) = c.rows
    >>> row.energy, row.gap_percent, row.proved_by
    (0.5, 0.0, 'by known optimum')
    """

    def __init__(
        self,
        records: Iterable[Record],
        superseded: Iterable[Record] = (),
        remarks: Iterable[str] = (),
        labels: Mapping[str, str] = MappingProxyType({}),
        stages: Iterable[Collection[str]] = (),
    ) -> None:
        self.records = list(records)
        self.superseded = list(superseded)
        self.remarks = list(remarks)
        self.stages = [frozenset(stage) for stage in stages]
        specs = self._solver_specs
        self.solver_labels = {spec: str(labels[spec]) for spec in specs if spec in labels}
        for name, count in Counter(self.solver_labels.get(spec, spec) for spec in specs).items():
            if count > 1 or not name.strip():
                raise ValueError(f"labels must be distinct names of solvers, got {name!r}")

    @classmethod
    def of_store(cls, records: Iterable[Record], *, older: bool = False) -> Self:
        """Return the findings of the last record of each key; the others are superseded.

        Runs of earlier code of a solver, that is of a lower version or of its file before an edit,
        are left out, and a remark has their number. If an edit was taken back, the newest code is
        that of the last run. The remarks of a `RecordStore`, on damaged lines, are kept.

        Parameters
        ----------
        records : RecordStore, or iterable of Record
        older : bool
            Keep the runs of earlier code, as those of other solvers: their specs end with the
            version and the digest of the file.

        Returns
        -------
        Self

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> c = il.compare(il.Problem("pair", g, optimum=0.5), ["icm", "ilp"])
        >>> from inference_lab.results.records import RecordStore
        >>> _ = c.save("pair")
        >>> il.Comparison.of_store(RecordStore("pair/runs.jsonl"))
        Comparison(1 problem x 2 solvers, 2 runs)
        """
        every = list(records)
        remarks = records.remarks if isinstance(records, RecordStore) else []
        newest = newest_codes(every)
        current = [record for record in every if _code(record) == newest[record.solver]]
        others = [record for record in every if _code(record) != newest[record.solver]]
        if older:
            current += map(_with_code, others)
        else:
            remarks = remarks + _older_runs(others)
        last = latest(current)
        counting = {id(record) for record in last}
        superseded = [record for record in current if id(record) not in counting]
        return cls(last, superseded, remarks)

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self.records)

    def __repr__(self) -> str:
        """Return one line with the sizes."""
        return (
            f"{type(self).__name__}({counted(len(self.by_problem), 'problem')} x "
            f"{counted(len(self._solver_specs), 'solver')}, {counted(len(self.records), 'run')})"
        )

    @cached_property
    def by_problem(self) -> dict[tuple[str, str], list[Record]]:
        """The records of each problem, by its name and content hash."""
        return grouped(self.records, lambda r: (r.problem, r.problem_hash))

    @cached_property
    def _solver_specs(self) -> list[str]:
        return list(dict.fromkeys(r.solver for r in self.records))

    @cached_property
    def _names(self) -> dict[str, str]:
        """The name of each solver, or its whole spec if several solvers share the name."""
        names = [spec.partition("(")[0] for spec in self._solver_specs]
        counts = Counter(names)
        return {
            spec: self.solver_labels.get(spec, name if counts[name] == 1 else spec)
            for spec, name in zip(self._solver_specs, names, strict=True)
        }

    def short_name(self, solver: str) -> str:
        """Return the label of a solver, else its name, or its whole spec if the name is shared.

        Parameters
        ----------
        solver : str
            Its spec.

        Returns
        -------
        str

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> c = il.compare(il.Problem("pair", g), ["icm", "loopy-bp(damping=0.5)"])
        >>> c.short_name("loopy-bp(damping=0.5)")
        'loopy-bp'
        """
        return self._names[solver]

    def labelled(self, labels: Mapping[str, str]) -> Self:
        r"""Return the same findings with other display names of solvers.

        Tables, LaTeX and reports show the labels; `frame`, `rows` and records keep the specs.

        Parameters
        ----------
        labels : mapping of str to str
            Names by spec, added to the existing labels. Text, not LaTeX.

        Returns
        -------
        Self

        Raises
        ------
        ValueError
            If a solver has no runs, or two solvers would have the same name.

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> c = il.compare(il.Problem("pair", g), ["ilp"]).labelled({"ilp": "Exact"})
        >>> print(c.to_latex(["gap %"]).splitlines()[-3])
        Exact & 0 \\
        """
        for spec in labels:
            if spec not in self._names:
                there = ", ".join(self._names)
                raise ValueError(
                    f"there is no solver {spec!r}{nearest(spec, self._names)}; {there}"
                )
        labels = {**self.solver_labels, **labels}
        return type(self)(self.records, self.superseded, self.remarks, labels, self.stages)

    @cached_property
    def shown(self) -> Self:
        """The same findings with the labels in place of the specs, for display."""
        if all(spec == name for spec, name in self.solver_labels.items()):
            return self
        records, superseded = (
            [replace(r, solver=self.solver_labels.get(r.solver, r.solver)) for r in part]
            for part in (self.records, self.superseded)
        )
        names = {name: name for name in self.solver_labels.values()}
        stages = [{self.solver_labels.get(spec, spec) for spec in stage} for stage in self.stages]
        return type(self)(records, superseded, self.remarks, names, stages)

    @cached_property
    def problems(self) -> list[ProblemSummary]:
        """Summaries of each problem over all runs, in the order of the runs."""
        names = Counter(name for name, _ in self.by_problem)
        return [
            summarise_problem(
                name if names[name] == 1 else f"{name} [{digest[:8]}]", records, self._names
            )
            for (name, digest), records in self.by_problem.items()
        ]

    @cached_property
    def rows(self) -> list[Row]:
        """One row for each problem and solver, aggregated over seeds."""
        return [
            summarise_runs(summary, group)
            for summary, records in zip(self.problems, self.by_problem.values(), strict=True)
            for group in grouped(records, lambda r: r.solver).values()
        ]

    @cached_property
    def alarms(self) -> list[str]:
        """Contradictions between the runs, each a sentence; empty if there are none."""
        alarms = []
        for problem, records in zip(self.problems, self.by_problem.values(), strict=True):
            alarms += contradictions(problem, records)
        names = dict(zip(self.by_problem, (p.name for p in self.problems), strict=True))
        return alarms + repetitions((*self.superseded, *self.records), names)

    @cached_property
    def warnings(self) -> list[str]:
        """Reasons why the comparison is unfair or incomplete, each a sentence."""
        return self.remarks + unfairness(self.records, self.stages)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """All runs as a pandas DataFrame, one row for each run.

        The columns are the scalar fields of `Record`, the most important first, and values from the
        comparison: ``best_bound`` of the problem, ``gap_percent`` to it, ``over_best_percent``
        (distance of the energy to the lowest energy found), and ``proved`` (``"yes"``,
        ``"by NAME"``, ``"no"``).
        """
        import pandas as pd

        summary = dict(zip(self.by_problem, self.problems, strict=True))
        excluded = {"settings", "scores", "problem_info", "diagnostics", "environment", "trace"}
        # Tolerances, which the column `proved` applies.
        excluded |= {"energy_scale", "resolution", "tolerance"}
        excluded |= {"labels"}  # a compressed string, for `labels`
        record_fields = [f for f in fields(Record) if f.name not in excluded]
        names = sorted(
            (f.name for f in record_fields), key=lambda name: _FIRST.get(name, len(_FIRST))
        )
        lines = []
        for record in self.records:
            problem = summary[record.problem, record.problem_hash]
            line = {name: getattr(record, name) for name in names}
            line["best_bound"] = problem.best_bound
            line["gap_percent"] = problem.gap_to_best(record.energy)
            line["over_best_percent"] = problem.over_best(record.energy)
            line["proved"] = proof(record, problem)
            lines.append(line)
        added = ["best_bound", "gap_percent", "over_best_percent"]
        frame = pd.DataFrame(lines, columns=[*names, *added, "proved"])
        numbers = [f.name for f in record_fields if "float" in str(f.type)]
        kinds = dict.fromkeys([*numbers, *added], "float64")
        return frame.astype(kinds)

    def labels(self, record_id: str) -> IntArray:
        """Return the labelling that a run found.

        Parameters
        ----------
        record_id : str
            ``id`` of a record of the comparison, as in `frame`, or a prefix of it.

        Returns
        -------
        (n,) array of int

        Raises
        ------
        ValueError
            If no record, or several, match the id, or the record keeps no labelling.

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> c = il.compare(il.Problem("pair", g), "ilp")
        >>> c.labels(c.records[0].id)
        array([0, 1])
        """
        matches = [
            record
            for record in (*self.records, *self.superseded)
            if record_id and record.id.startswith(record_id)
        ]
        if len(matches) != 1:
            number = "no record has" if not matches else f"{len(matches)} records have"
            raise ValueError(
                f"{number} an id that begins with {record_id!r}; the column id of runs.csv or of "
                "comparison.frame lists the ids"
            )
        (record,) = matches
        if not record.labels:
            reason = (
                f"records keep labellings of fewer than {KEPT_BELOW:,} variables, and those of "
                "earlier versions keep none; run the solver again with il.solve"
                if record.labels_hash
                else f"the run found none ({record.status})"
            )
            raise ValueError(f"record {record.id} holds no labelling: {reason}")
        return decode_labels(record.labels)

    def as_dict(self) -> dict[str, Any]:
        """Return alarms, summaries, rows and records as a dictionary for strict JSON.

        Returns
        -------
        dict

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> c = il.compare(il.Problem("pair", g, optimum=0.5), ["icm", "ilp"])
        >>> sorted(c.as_dict())
        ['alarms', 'problems', 'records', 'rows', 'warnings']
        """
        return {
            "alarms": list(self.alarms),
            "warnings": list(self.warnings),
            "problems": [jsonable(vars(p)) for p in self.problems],
            "rows": [jsonable(vars(row)) for row in self.rows],
            "records": [record.as_dict() for record in self.records],
        }
