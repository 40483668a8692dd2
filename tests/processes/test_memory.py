"""Memory of the machine and its batch jobs, and refusals of runs that do not fit into it."""

from __future__ import annotations

import tracemalloc
from functools import partial

import numpy as np
import pytest

import inference_lab as il
from inference_lab import solving
from inference_lab.graph.grids import grid_edges
from inference_lab.processes import memory
from inference_lab.processes.isolation import ExitReason, isolated
from inference_lab.processes.memory import available_memory, physical_memory
from inference_lab.solvers.icm import ICM
from inference_lab.solvers.loopy_bp import LoopyBP

GRID = il.FactorGraph.potts(np.zeros((1_000_000, 2)), grid_edges(1000, 1000), 1.0)


@pytest.mark.parametrize(
    ("listing", "folder", "name"),
    [
        ("0::/slurm/job_7/step_0\n", "", "memory.max"),
        ("9:cpu:/x\n4:memory:/slurm/job_7/step_0\n", "memory", "memory.limit_in_bytes"),
    ],
)
def test_memory_of_a_batch_job(listing, folder, name, tmp_path, monkeypatch):
    """Its limit is set by a group around its own, in both versions of control groups."""
    (tmp_path / "listing").write_text(listing)
    job = tmp_path / folder / "slurm" / "job_7"
    (job / "step_0").mkdir(parents=True)
    (job / "step_0" / name).write_text("max\n")
    whole = physical_memory()
    groups = partial(memory.control_groups, tmp_path / "listing", tmp_path)
    monkeypatch.setattr(memory, "control_groups", lambda listing: groups())
    assert physical_memory() >= whole
    (job / name).write_text("1000000\n")
    assert physical_memory() == 1_000_000
    # What the job uses is not available, but for the cache of files.
    usage = {"memory.max": "memory.current"}.get(name, "memory.usage_in_bytes")
    cache = {"memory.max": "inactive_file"}.get(name, "total_inactive_file")
    (job / usage).write_text("700000\n")
    assert available_memory() == 300_000
    (job / "memory.stat").write_text(f"anon 600000\n{cache} 100000\n")
    assert available_memory() == 400_000
    (job / usage).write_text("2000000\n")
    assert available_memory() == 0


def test_a_limit_of_the_process_counts():
    """A run in a process of its own has a limit on its address space."""
    ended = isolated(available_memory, memory_limit=1 << 30)
    assert 1 << 29 < ended.value <= 1 << 30


def test_a_run_that_needs_too_much_is_refused_before_it_allocates(monkeypatch):
    needed = LoopyBP().peak_bytes(GRID, 0.0)
    monkeypatch.setattr(memory, "available_memory", lambda: needed - 1)
    GRID.resolution  # noqa: B018  # cached
    tracemalloc.start()
    message = (
        r"loopy-bp needs about 0\.\d GB beside this graph of 1,000,000 variables and "
        r"1,998,000 pairwise terms; 0\.\d GB are available"
    )
    with pytest.raises(MemoryError, match=message):
        il.solve(GRID, "loopy-bp")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < needed / 4
    monkeypatch.setattr(memory, "available_memory", lambda: needed)
    assert il.solve(GRID, "loopy-bp", max_iterations=1).energy == 0.0


def test_the_refusal_is_the_status_of_a_record():
    ended = isolated(partial(il.solve, GRID, "loopy-bp"), memory_limit=300 << 20)
    assert ended.end == ExitReason.MEMORY and "loopy-bp needs about" in ended.message
    (record,) = il.compare(il.Problem("grid", GRID), "loopy-bp", memory_limit=300 << 20).records
    assert record.status == "memory" and "GB are available" in record.message


def test_a_portfolio_leaves_out_what_does_not_fit(monkeypatch):
    """`auto` answers with the methods that need less."""
    rng = np.random.default_rng(0)
    edges = grid_edges(60, 60)
    graph = il.FactorGraph.potts(rng.random((3600, 20)), edges, rng.uniform(-0.5, 0.5, len(edges)))
    stages = {"loopy-bp", "trw-s"}

    def begun() -> set[str]:
        plan = il.solve(graph, "auto", time_limit=2.0).diagnostics["plan"]
        return {stage["solver"].partition("(")[0] for stage in plan}

    assert begun() & stages
    monkeypatch.setattr(solving, "_SMALL_RUN", 0)
    monkeypatch.setattr(memory, "available_memory", lambda: ICM().peak_bytes(graph, 0.0))
    with pytest.raises(MemoryError):
        il.solve(graph, "trw-s")
    assert not begun() & stages
