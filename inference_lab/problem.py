"""Problems: an energy, with whatever is known about its best labelling."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from inference_lab.graph.factor_graph import FactorGraph, IntArray
from inference_lab.specs.grammar import MAX_LENGTH, SpecError, format_spec, shortened
from inference_lab.specs.grammar import build as build_spec
from inference_lab.specs.trust import is_trusted, untrusted


@dataclass(frozen=True)
class Problem:
    """A factor graph together with its name and ground truth.

    Attributes
    ----------
    name : str
        Spec string of the problem, or any name its maker gives it.
    graph : FactorGraph
    truth : (n,) int64 array, or None
        Ground-truth labels, compared with a labelling by `score`.
    scored : (s,) int64 array, or None
        The variables that count in `score`; None for all.
    optimum : float or None
        The minimum energy, where it is proved elsewhere.
    optimum_source : str
        Where `optimum` comes from.
    info : mapping
        Further facts for the record, JSON-able. One that was made of a spec has the settings of
        its family there, too.
    """

    name: str
    graph: FactorGraph
    truth: IntArray | None = None
    scored: IntArray | None = None
    optimum: float | None = None
    optimum_source: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that the parts fit each other."""
        n = self.graph.n_variables
        if self.truth is not None and np.shape(self.truth) != (n,):
            raise ValueError(f"truth must have shape ({n},), got {np.shape(self.truth)}")

    def score(self, labels: npt.ArrayLike) -> dict[str, float]:
        """Compare a labelling with the ground truth.

        Returns
        -------
        dict
            ``pairwise_f``, ``nmi``, ``ari`` and ``accuracy`` (after matching of labels) as in
            `inference_lab.results.scoring.score`; empty without ground truth.
        """
        if self.truth is None:
            return {}
        from inference_lab.results.scoring import score

        return score(self.truth, self.graph.check_labels(labels), self.scored)

    def picture(self, labels: npt.ArrayLike) -> npt.NDArray[np.uint8] | None:
        """Show a labelling as an image.

        Returns
        -------
        (height, width) or (height, width, 3) uint8 array, or None
            Grey values or colours; None where the variables are no pixels.
        """
        return None


@dataclass(frozen=True)
class ProblemFamily(ABC):
    """Base of problem families: a frozen dataclass of settings that builds a `Problem`."""

    #: The name in spec strings of a class from an entry point or a user's file, set when loaded.
    registered_as: ClassVar[str | None] = None

    @classmethod
    def name(cls) -> str:
        """Return the name under which the family is registered: its module's, with hyphens."""
        if "registered_as" in cls.__dict__:
            return str(cls.__dict__["registered_as"])
        module = cls.__module__.rsplit(".", 1)
        if module[0] == "inference_lab.problems":
            return module[-1].replace("_", "-")
        return cls.__name__

    @property
    def spec(self) -> str:
        """The spec string that makes an equal family: name, and settings that are not default."""
        return format_spec(self.name(), self)

    @abstractmethod
    def build(self, data_dir: Path | None = None) -> Problem:
        """Build the problem; `data_dir` is where real data that does not travel is found."""


ProblemSource: TypeAlias = "str | Path | Problem | ProblemFamily | FactorGraph"


def as_problem(
    source: ProblemSource,
    data_dir: Path | None = None,
    *,
    trusted: bool = True,
    base: Path | None = None,
) -> Problem:
    """Make a `Problem` of a spec string, a model file, a family, a graph, or a problem.

    Parameters
    ----------
    source : str, path, Problem, ProblemFamily or FactorGraph
        A string is a spec, ``module:object`` or ``path/to/file.py:object`` (see
        `inference_lab.registry.registry`), or the path of a model file.
    data_dir : path, optional
        The data folder; default: the environment variable ``INFERENCE_LAB_DATA``.
    trusted : bool
        Whether code from outside the package may be run, and files be read anywhere. If not, files
        must lie inside the data folder or `base`, with all links followed.
    base : path, optional
        A folder besides the data folder in which specs that are not trusted may name files.

    Raises
    ------
    SpecError
        If a spec string cannot be used, or names what it may not.
    OSError, ValueError
        If data or a model file cannot be read.
    """
    found = as_problems(source, data_dir, trusted=trusted, base=base)
    if len(found) != 1:
        raise SpecError(
            f"{source} gives {len(found)} problems, and one is needed; give the number of one in "
            "brackets, as in module:object[0]"
        )
    return found[0]


def as_problems(
    source: ProblemSource | Iterable[ProblemSource],
    data_dir: Path | None = None,
    *,
    trusted: bool = True,
    base: Path | None = None,
) -> list[Problem]:
    """Make problems of all that a source stands for.

    A spec such as ``my_module:problems`` may name several at once: an iterable, or a function that
    returns one, of anything that can be used here. Those without a name of their own get that of
    the spec, ``my_module:problems[3]``; in any case ``info["spec"]`` holds the spec that makes
    the problem again.

    Parameters
    ----------
    source
        As in `as_problem`, or an iterable of such.
    data_dir, trusted, base
        As in `as_problem`.

    Raises
    ------
    SpecError, OSError, ValueError
        As in `as_problem`.
    TypeError
        If the source is none of these.

    Examples
    --------
    >>> [p.graph.n_variables for p in as_problems(["ising(size=2)", "ising(size=3)"])]
    [4, 9]
    """
    with untrusted(base, trusted=trusted):
        return list(_problems(source, data_dir, ""))


def _problems(source: Any, data_dir: Path | None, spec: str) -> Iterator[Problem]:
    """Yield the problems of a source, which is what the spec stands for unless that is empty."""
    from inference_lab.registry.registry import item_spec, problem_registry

    if isinstance(source, Problem):
        yield _with_info(source, {**source.info, "spec": spec}) if spec else source
    elif isinstance(source, FactorGraph):
        name = spec or f"graph-{source.content_hash[:8]}"
        yield Problem(name, source, info={"spec": spec} if spec else {})
    elif isinstance(source, ProblemFamily):
        problem = source.build(data_dir)
        settings = {f.name: getattr(source, f.name) for f in fields(source) if f.init}
        yield _with_info(problem, {**settings, **problem.info})
    elif isinstance(source, Path) or (isinstance(source, str) and _is_path(source)):
        family = build_spec(problem_registry.load("file"), "file", {"path": str(source)})
        yield from _problems(family, data_dir, spec)
    elif isinstance(source, str):
        made = problem_registry.obtain(source)
        yield from _problems(made, data_dir, source)
    elif isinstance(source, Iterable) and not isinstance(source, Mapping | bytes):
        for number, one in enumerate(source):
            yield from _problems(one, data_dir, item_spec(spec, number) if spec else "")
    else:
        raise (SpecError if spec else TypeError)(
            f"a problem is a spec, a path, a Problem, a ProblemFamily or a FactorGraph, got "
            f"{shortened(repr(source))}{f' from {shortened(spec)}' if spec else ''}"
        )


def _with_info(problem: Problem, info: Mapping[str, Any]) -> Problem:
    """Return a copy of a problem, of the same class, with other facts about it."""
    twin = copy.copy(problem)
    object.__setattr__(twin, "info", info)
    return twin


def _is_path(text: str) -> bool:
    """Whether a string is meant as the path of a model file."""
    from inference_lab.registry.registry import names_code

    if len(text) > MAX_LENGTH:
        return False
    path = Path(text)
    try:
        if is_trusted() and path.is_file() and path.suffix != ".py":
            return True
    except OSError:  # a spec may be longer than names of files
        pass
    # No spec looks like this, and whoever looks for the file says what is there instead.
    return (path.suffix != "" or len(path.parts) > 1) and "(" not in text and not names_code(text)
