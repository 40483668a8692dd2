"""Compare inference methods for discrete energies on one energy, under one clock.

>>> import inference_lab as il
>>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
>>> il.solve(g, "ilp").energy
0.5

Names are loaded on first use, so that importing the package stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inference_lab.algorithms.iteration import IterativeSolver as IterativeSolver
    from inference_lab.algorithms.iteration import Progress as Progress
    from inference_lab.clustering import HMRFKMeans as HMRFKMeans
    from inference_lab.constraints import Constraints as Constraints
    from inference_lab.contract import Outcome as Outcome
    from inference_lab.contract import Run as Run
    from inference_lab.contract import Solution as Solution
    from inference_lab.contract import Solver as Solver
    from inference_lab.contract import Status as Status
    from inference_lab.contract import UnsolvedError as UnsolvedError
    from inference_lab.contract import UnsolvedWarning as UnsolvedWarning
    from inference_lab.graph.factor_graph import FactorGraph as FactorGraph
    from inference_lab.graph.terms import DiagonalTerms as DiagonalTerms
    from inference_lab.graph.terms import OwnTables as OwnTables
    from inference_lab.graph.terms import SharedTable as SharedTable
    from inference_lab.harness.comparing import compare as compare
    from inference_lab.io import read as read
    from inference_lab.io import write as write
    from inference_lab.problem import Problem as Problem
    from inference_lab.problem import ProblemFamily as ProblemFamily
    from inference_lab.registry.descriptions import available_problems as available_problems
    from inference_lab.registry.descriptions import available_solvers as available_solvers
    from inference_lab.reporting.comparison import Comparison as Comparison
    from inference_lab.selection import Diagnosis as Diagnosis
    from inference_lab.selection import diagnose as diagnose
    from inference_lab.solving import solve as solve
    from inference_lab.specs.grammar import SpecError as SpecError

__version__ = "0.1.0"

_HOME = {
    "HMRFKMeans": "clustering",
    "Comparison": "reporting.comparison",
    "compare": "harness.comparing",
    "Constraints": "constraints",
    "Outcome": "contract",
    "Run": "contract",
    "Solution": "contract",
    "Solver": "contract",
    "Status": "contract",
    "UnsolvedError": "contract",
    "UnsolvedWarning": "contract",
    "Diagnosis": "selection",
    "diagnose": "selection",
    "DiagonalTerms": "graph.terms",
    "FactorGraph": "graph.factor_graph",
    "OwnTables": "graph.terms",
    "SharedTable": "graph.terms",
    "read": "io",
    "write": "io",
    "IterativeSolver": "algorithms.iteration",
    "Progress": "algorithms.iteration",
    "Problem": "problem",
    "ProblemFamily": "problem",
    "available_problems": "registry.descriptions",
    "available_solvers": "registry.descriptions",
    "solve": "solving",
    "SpecError": "specs.grammar",
}

__all__ = ["__version__", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    """Load a public name from its module."""
    if name not in _HOME:
        from inference_lab.formatting import nearest

        hint = "" if name.startswith("_") else nearest(name, _HOME)
        raise AttributeError(f"module 'inference_lab' has no attribute {name!r}{hint}")
    value = getattr(importlib.import_module(f"inference_lab.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return __all__
