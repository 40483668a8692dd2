"""Problems: an energy, with the known facts about its best labelling."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from inference_lab.graph.arrays import IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.specs.settings import Settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Problem", "ProblemFamily"]


def __dir__() -> list[str]:
    """List the public names."""
    return __all__


@dataclass(frozen=True)
class Problem:
    """A factor graph together with its name and ground truth.

    Attributes
    ----------
    name : str
        Spec string of the problem, or any other name.
    graph : FactorGraph
    truth : (n,) int64 array, or None
        Ground-truth labels, compared with a labelling by `score`.
    scored : (s,) int64 array, or None
        The variables that count in `score`; None for all.
    optimum : float or None
        The minimum energy, where it is proved elsewhere.
    optimum_source : str
        The source of `optimum`.
    info : mapping
        Further facts for the record, JSON-able. A problem built from a spec includes the settings
        of its family. ``remarks``, a list of texts, are shown with the problem.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> il.Problem("pair", g, truth=[0, 1], optimum=0.5).score([0, 1])["accuracy"]
    1.0
    """

    name: str
    graph: FactorGraph
    truth: IntArray | None = field(default=None, repr=False)
    scored: IntArray | None = field(default=None, repr=False)
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

        Parameters
        ----------
        labels : (n,) array of int

        Returns
        -------
        dict
            ``pairwise_f``, ``nmi``, ``ari`` and ``accuracy`` (after matching of labels) as in
            `inference_lab.results.scoring.score`; empty without ground truth.

        Raises
        ------
        ValueError
            If the labels do not fit the graph.

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> il.Problem("pair", g, truth=[0, 1]).score([1, 0])["accuracy"]  # labels are names only
        1.0
        """
        if self.truth is None:
            return {}
        from inference_lab.results.scoring import score

        return score(self.truth, self.graph.check_labels(labels), self.scored)

    def picture(self, labels: npt.ArrayLike) -> npt.NDArray[np.uint8] | None:
        """Return a labelling as an image.

        Parameters
        ----------
        labels : (n,) array of int

        Returns
        -------
        (height, width) or (height, width, 3) uint8 array, or None
            Grey values or colours; None if the variables are not pixels.

        Examples
        --------
        >>> from inference_lab.registry.sources import as_problem
        >>> problem = as_problem("image-denoising(image=shapes)")
        >>> problem.picture(problem.truth).dtype
        dtype('uint8')
        """
        return None

    def plot(self, labels: npt.ArrayLike, *, axes: Axes | None = None) -> Axes:
        """Draw a labelling: as an image where variables are pixels, else on the graph.

        Parameters
        ----------
        labels : (n,) array of int
        axes : matplotlib.axes.Axes, optional
            Axes to draw on; a new figure by default.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ValueError
            If the labels do not fit the graph, or it is neither an image nor a small graph.
        MissingExtra
            If matplotlib is not installed.

        Examples
        --------
        >>> from inference_lab.registry.sources import as_problem
        >>> problem = as_problem("image-denoising(image=shapes)")
        >>> axes = problem.plot(problem.truth)
        """
        from inference_lab.plotting.plots import draw_image, plot_graph

        image = self.picture(labels)
        if image is None:
            return plot_graph(self.graph, labels, axes)
        return draw_image(image, axes)


@dataclass(frozen=True)
class ProblemFamily(Settings, ABC):
    """Base of problem families: a frozen dataclass of settings that builds a `Problem`.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy as np, inference_lab as il
    >>> @dataclass(frozen=True)
    ... class Chain(il.ProblemFamily):
    ...     length: int = 10
    ...
    ...     def build(self, data_dir=None):
    ...         edges = [(i, i + 1) for i in range(self.length - 1)]
    ...         unary = np.eye(self.length, 2)
    ...         return il.Problem(self.spec, il.FactorGraph.potts(unary, edges, 0.5))
    >>> problem = Chain(length=3).build()
    >>> problem.name, problem.graph.n_edges
    ('Chain(length=3)', 2)
    """

    @abstractmethod
    def build(self, data_dir: Path | None = None) -> Problem:
        """Build the problem; `data_dir` holds real data that is not part of the package.

        Parameters
        ----------
        data_dir : path, optional

        Returns
        -------
        Problem

        Examples
        --------
        >>> from inference_lab.problems.ising import Ising
        >>> Ising(size=3).build().graph.n_variables
        9
        """
