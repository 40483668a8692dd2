"""Solvers and problem families are found by file, by entry point, or in a user's file."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import inference_lab as il
from inference_lab import registry
from inference_lab.contract import Solver
from inference_lab.problem import ProblemFamily
from inference_lab.registry import Registry, as_solver, problem_registry, solver_registry
from inference_lab.spec import SpecError

REPOSITORY = Path(__file__).resolve().parents[1]

SOLVER = '''
"""A solver for tests."""
from dataclasses import dataclass
from inference_lab.contract import Outcome, Solver

@dataclass(frozen=True)
class {name}(Solver):
    """Offers zeros."""
    value: int = 0

    def run(self, graph, run):
        run.offer([self.value] * graph.n_variables)
        return Outcome(converged=True)
'''


@pytest.fixture
def graph() -> il.FactorGraph:
    return il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])


@pytest.fixture
def write(tmp_path):
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


# ---------------------------------------------------------------------- files of the package


@pytest.mark.parametrize(
    ("found", "folder"), [(solver_registry, "solvers"), (problem_registry, "problems")]
)
def test_a_file_is_a_name(found, folder):
    files = {
        path.stem.replace("_", "-")
        for path in (REPOSITORY / folder).glob("*.py")
        if not path.stem.startswith("_")
    }
    assert set(found.names()) >= files and files


@pytest.mark.parametrize(
    ("found", "name"),
    [(r, name) for r in (solver_registry, problem_registry) for name in r.names()],
)
def test_every_name_can_be_loaded_and_named_back(found, name):
    cls = found.load(name)
    assert issubclass(cls, found.base)
    assert cls.name() == name
    line = found.available()[name]
    assert line and not line.endswith(".") and "\n" not in line


def test_default_solvers_write_their_own_spec():
    for name in solver_registry.names():
        solver = solver_registry.make(name)
        assert solver.spec == name
        assert solver_registry.make(solver.spec) == solver
        assert set(solver.settings()) == set(vars(solver))


def test_listing_imports_no_solver():
    """And no numba: a listing has to be quick."""
    code = (
        "import sys, inference_lab as il; il.available_solvers(); il.available_problems();"
        "print([m for m in sys.modules if m == 'numba' or m == 'scipy'"
        " or m.startswith(('inference_lab.solvers.', 'inference_lab.problems.'))])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_unknown_names_are_refused_with_the_nearest():
    with pytest.raises(SpecError) as caught:
        solver_registry.make("loopybb(damping=0.5)")
    message = str(caught.value)
    assert message.startswith("unknown solver 'loopybb'; did you mean 'loopy-bp'?; valid: ")
    for name in solver_registry.names():
        assert name in message
    with pytest.raises(SpecError, match="unknown problem 'estepp'; did you mean 'estep'"):
        problem_registry.make("estepp")
    with pytest.raises(SpecError, match="unknown setting of loopy-bp 'dampng'; did you mean 'damp"):
        solver_registry.make("loopy-bp(dampng=0.5)")


def test_as_solver():
    solver = as_solver("icm(restarts=2)")
    assert solver.settings()["restarts"] == 2
    assert as_solver(solver) is solver
    with pytest.raises(TypeError, match="a solver is a spec string or a Solver object, got 3"):
        as_solver(3)
    with pytest.raises(TypeError, match="a solver is a spec string or a Solver object"):
        as_solver(type(solver))


# ---------------------------------------------------------------------- a user's file


def test_a_solver_in_a_file(write, graph):
    path = write("zeros.py", SOLVER.format(name="Zeros"))
    solution = il.solve(graph, str(path))
    assert solution.labels.tolist() == [0, 0] and solution.status == "converged"
    assert il.solve(graph, f"{path}(value=1)").labels.tolist() == [1, 1]
    assert il.solve(graph, f"{path}:Zeros(value=1)").labels.tolist() == [1, 1]
    assert solver_registry.load(str(path)) is solver_registry.load(f"{path}:Zeros")


@pytest.mark.parametrize("folder", [".pyenv/versions", "my.python", "x.py"])
def test_a_folder_may_have_py_in_its_name(write, graph, folder):
    path = write(f"{folder}/zeros.py", SOLVER.format(name="Zeros"))
    assert il.solve(graph, f"{path}").labels.tolist() == [0, 0]
    assert il.solve(graph, f"{path}:Zeros").labels.tolist() == [0, 0]


def test_files_of_one_name_do_not_mix(write, graph):
    """Two files called alike, in different folders, are two solvers."""
    one = write("a/zeros.py", SOLVER.format(name="Zeros"))
    two = write(
        "b/zeros.py", SOLVER.format(name="Zeros").replace("value: int = 0", "value: int = 1")
    )
    assert il.solve(graph, str(one)).labels.tolist() == [0, 0]
    assert il.solve(graph, str(two)).labels.tolist() == [1, 1]


def test_a_file_with_two_solvers_needs_a_name(write):
    path = write("two.py", SOLVER.format(name="First") + SOLVER.format(name="Second"))
    assert solver_registry.load(f"{path}:Second").__name__ == "Second"
    with pytest.raises(SpecError, match=re.escape(f"{path} defines several: name one as {path}:")):
        solver_registry.load(str(path))
    with pytest.raises(
        SpecError, match=r"unknown solver in .*two\.py 'Secnd'; did you mean 'Second'"
    ):
        solver_registry.load(f"{path}:Secnd")


def test_helpers_bases_and_imports_of_a_file_are_not_solvers(write):
    text = SOLVER.format(name="Wanted") + (
        "from inference_lab.solvers.icm import ICM\n"
        "class _Hidden(Wanted):\n    pass\n"
        "class Base(Solver):\n    pass\n"
        "wanted = Wanted\n"
    )
    assert solver_registry.load(str(write("mixed.py", text))).__name__ == "Wanted"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "defines no Solver"),
        ("from inference_lab.solvers.icm import ICM", "defines no Solver"),
        ("import does_not_exist_anywhere", "fails to import: ModuleNotFoundError"),
        ("def broken(:", "fails to import: SyntaxError"),
        ("1 / 0", "fails to import: ZeroDivisionError: division by zero"),
    ],
)
def test_files_that_cannot_be_used(write, text, message):
    path = write("bad.py", text)
    for _ in range(2):  # a failed import must not be remembered as a success
        with pytest.raises(SpecError, match=message):
            solver_registry.load(str(path))


def test_a_file_that_does_not_exist(tmp_path):
    with pytest.raises(SpecError, match=re.escape(f"{tmp_path / 'no.py'} is not a Python file")):
        solver_registry.make(str(tmp_path / "no.py"))
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(SpecError, match="is not a Python file"):
        solver_registry.make(str(tmp_path / "folder.py"))


def test_a_problem_in_a_file(write):
    path = write(
        "mine.py",
        "from dataclasses import dataclass\n"
        "import inference_lab as il\n"
        "@dataclass(frozen=True)\n"
        "class Mine(il.ProblemFamily):\n"
        "    n: int = 2\n"
        "    def build(self, data_dir=None):\n"
        "        return il.Problem(self.spec, il.FactorGraph.from_factors([2] * self.n, []))\n",
    )
    family = problem_registry.make(f"{path}(n=3)")
    assert isinstance(family, ProblemFamily)
    assert family.build().graph.n_variables == 3
    assert family.build().name == f"{path}:Mine(n=3)"
    assert problem_registry.make(family.build().name) == family


# ---------------------------------------------------------------------- entry points


@pytest.fixture
def with_entry_points(monkeypatch):
    """Make a fresh registry that sees the given entry points."""

    def make(**points: str) -> Registry[Solver]:
        def listed(group: str) -> list[EntryPoint]:
            assert group == "inference_lab.solvers"
            return [EntryPoint(name, value, group) for name, value in points.items()]

        monkeypatch.setattr(registry, "entry_points", listed)
        return Registry("solver", Solver, "inference_lab.solvers")

    return make


def test_a_solver_of_another_package(write, monkeypatch, with_entry_points, graph):
    path = write("their_package.py", SOLVER.format(name="Theirs"))
    monkeypatch.syspath_prepend(str(path.parent))
    found = with_entry_points(theirs="their_package:Theirs")
    assert "theirs" in found.names() and "icm" in found.names()
    assert found.available()["theirs"] == "Offers zeros"
    solution = il.solve(graph, found.make("theirs(value=1)"))
    assert solution.labels.tolist() == [1, 1]


def test_our_own_names_cannot_be_taken(write, monkeypatch, with_entry_points):
    path = write("thief_package.py", SOLVER.format(name="Thief"))
    monkeypatch.syspath_prepend(str(path.parent))
    found = with_entry_points(icm="thief_package:Thief")
    assert found.load("icm") is solver_registry.load("icm")


def test_a_broken_package_breaks_only_itself(with_entry_points):
    """It is listed as broken, and using it is an error with the reason."""
    found = with_entry_points(
        missing="no_such_package_anywhere:X", wrong="math:pi", attribute="math:Nothing"
    )
    lines = found.available()
    assert lines["icm"] == solver_registry.available()["icm"]
    for name in ("missing", "attribute"):
        assert "cannot be loaded" in lines[name]
        with pytest.raises(SpecError, match=f"solver '{name}' cannot be loaded: "):
            found.make(name)
    with pytest.raises(SpecError, match=r"entry point 'wrong' is not a Solver: 3\.14"):
        found.make("wrong")
    assert "is not a Solver" in lines["wrong"]
