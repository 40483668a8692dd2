"""Solver settings that are out of range are refused, by name and with the range."""

from __future__ import annotations

import pytest

from inference_lab.registry.registry import solver_registry

#: The least value of settings that have one, solver by solver.
LEAST = {
    "alpha-expansion": {"max_cycles": 1},
    "gibbs": {"sweeps": 4, "burn_in": 0, "chains": 1},
    "icm": {"restarts": 0, "max_sweeps": 1},
    "kernighan-lin": {"chain": 1, "branches": 1, "kicks": 0, "ball": 1},
    "loopy-bp": {"tolerance": 0, "max_sweeps": 1},
    "lp-relaxation": {"draws": 1},
    "mean-field": {"tolerance": 0, "max_sweeps": 1},
    "mplp": {
        "tolerance": 0,
        "max_memory": 0,
        "clusters_per_round": 1,
        "max_rounds": 1,
        "patience": 1,
        "max_sweeps": 1,
    },
    "ortools-cpsat": {"workers": 1},
    "pgmpy-junction-tree": {"max_entries": 1},
    "semidefinite": {
        "tolerance": 0,
        "progress": 0,
        "patience": 1,
        "iterations": 1,
        "max_bytes": 1,
    },
    "simulated-annealing": {
        "sweeps": 1,
        "reheats": 0,
        "restarts": 0,
        "reheat_sweeps": 1,
        "region": 1,
    },
    "subgraph-search": {"table": 4, "descent_table": 4, "rounds": 0},
    "toulbar2": {"vac": 0},
    "trw-bp": {"trees": 1, "tree_updates": 0, "tolerance": 0, "max_sweeps": 1},
    "trw-s": {"tolerance": 0, "patience": 1, "decode_every": 1, "max_sweeps": 1},
    "weighted-mini-buckets": {"max_entries": 2, "tolerance": 0, "max_sweeps": 1},
}

#: Specs with another fault, and the message.
REFUSED = {
    "auto(seconds=0)": "seconds must be finite and above 0",
    "icm(init=best)": "'best' is not one of unary, random",
    "junction-tree(max_bytes=10)": r"max_bytes must be at least 1048576, got 10",
    "loopy-bp(damping=1)": r"damping must be at least 0 and below 1, got 1\.0",
    "loopy-bp(damping=-0.1)": r"damping must be at least 0 and below 1, got -0\.1",
    "loopy-bp(tolerance=nan)": "tolerance must be at least 0, got nan",
    "simulated-annealing(start_temperature=0)": "start_temperature must be finite and above 0",
    "simulated-annealing(end_ratio=0)": "end_ratio must be above 0 and at most 1",
    "simulated-annealing(end_ratio=1.5)": "end_ratio must be above 0 and at most 1",
    "simulated-annealing(reheat_ratio=2)": "reheat_ratio must be above 0 and at most 1",
    "trw-bp(damping=1)": r"damping must be at least 0 and below 1, got 1\.0",
    "trw-s(tighten=cycle)": "'cycle' is not one of cycles or none",
}

BELOW = {
    f"{solver}({name}={least - 1})": f"{name} must be at least {least}, got {least - 1}"
    for solver, settings in LEAST.items()
    for name, least in settings.items()
}


@pytest.mark.parametrize("spec", [*BELOW, *REFUSED])
def test_settings_out_of_range_are_refused(spec: str) -> None:
    with pytest.raises(ValueError, match={**BELOW, **REFUSED}[spec]):
        solver_registry.make(spec)
