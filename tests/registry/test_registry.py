"""Solvers and problem families are found by file, by entry point, or in a user's file."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from places import ROOT

import inference_lab as il
from inference_lab.contract import Solver
from inference_lab.registry import registry, user_code
from inference_lab.registry.descriptions import available
from inference_lab.registry.registry import Registry, as_solver, solver_registry
from inference_lab.registry.sources import as_problem, as_problems, problem_registry
from inference_lab.registry.user_code import call, user_code_refused
from inference_lab.specs.grammar import SpecError, parse_spec

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
    ("kind", "folder"), [(solver_registry, "solvers"), (problem_registry, "problems")]
)
def test_a_file_is_a_name(kind, folder):
    files = {
        path.stem.replace("_", "-")
        for path in (ROOT / folder).glob("*.py")
        if not path.stem.startswith("_")
    }
    assert set(kind.names()) >= files and files


@pytest.mark.parametrize(
    ("kind", "name"),
    [(r, name) for r in (solver_registry, problem_registry) for name in r.names()],
)
def test_every_name_can_be_loaded_and_named_back(kind, name):
    cls = kind.load(name)
    assert issubclass(cls, kind.base)
    assert cls.name() == name
    line = available(kind)[name]
    assert line and not line.endswith(".") and "\n" not in line
    if kind is solver_registry:
        solver = kind.make(name)
        assert solver.spec == name and kind.make(solver.spec) == solver
        assert set(solver.settings()) == set(vars(solver))


def test_a_module_that_is_executed_again_gives_its_new_class(monkeypatch):
    from inference_lab.solvers import icm

    old = solver_registry.load("icm")
    assert old is icm.ICM
    new = type("ICM", (Solver,), {"__module__": icm.__name__, "run": old.run})
    monkeypatch.setattr(icm, "ICM", new)
    assert solver_registry.load("icm") is new
    monkeypatch.undo()
    assert solver_registry.load("icm") is old


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
    for other in (3, type(solver)):
        with pytest.raises(TypeError, match="a solver is a spec string or a Solver object, got"):
            as_solver(other)


def test_code_of_ones_own_is_refused_within_a_setting(write):
    path = write("zeros.py", SOLVER.format(name="Zeros"))
    within = f'persistency(then="{path}")'
    assert as_solver(within).spec == within.replace('"', "")
    with user_code_refused(), pytest.raises(SpecError):
        as_solver(within)


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
    """Two files with equal names in different folders are two solvers."""
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
        ("x = 1", "defines no solver"),
        ("from inference_lab.solvers.icm import ICM", "defines no solver"),
        ("import does_not_exist_anywhere", "fails to import: ModuleNotFoundError"),
        ("def broken(:", "fails to import: SyntaxError"),
        ("1 / 0", "fails to import: ZeroDivisionError: division by zero"),
    ],
)
def test_files_that_cannot_be_used(write, text, message):
    path = write("bad.py", text)
    for _ in range(2):  # a failed import must not be cached as a success
        with pytest.raises(SpecError, match=message):
            solver_registry.load(str(path))


def test_a_file_that_does_not_exist(tmp_path):
    with pytest.raises(SpecError, match=re.escape(f"{tmp_path / 'no.py'} does not exist")):
        solver_registry.make(str(tmp_path / "no.py"))
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(SpecError, match="is not a Python file"):
        solver_registry.make(str(tmp_path / "folder.py"))


# ---------------------------------------------------------------------- objects by name

OBJECTS = (
    SOLVER.format(name="Zeros")
    + '''
import functools
import numpy as np
import inference_lab as il
from inference_lab.solvers.icm import ICM

ones = Zeros(value=1)
restarted = ICM(restarts=3)
number = 3

def make(value: int = 0, loud=False):
    return Zeros(value=int(value) + (1 if loud else 0))

def needs(value: int):
    return Zeros(value=value)

def anything(**settings):
    return Zeros(value=settings["value"])

def nothing():
    return None

def fails():
    raise RuntimeError("out of luck")

def hidden():
    @dataclass(frozen=True)
    class Local(Zeros):
        pass
    return Local()

class Outer:
    @dataclass(frozen=True)
    class Inner(Zeros):
        pass

def chain(n: int = 2, name="chain"):
    return il.Problem(name, il.FactorGraph.potts(np.eye(n), [(0, 1)], [0.5]), truth=[0] * n)

def graph():
    return il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])

def several(count: int = 3):
    for n in range(2, 2 + count):
        yield chain(n, name=f"chain {n}")

mixed = [graph(), "ising(size=2)", chain()]
odd = [3]

@dataclass(frozen=True)
class Grid(il.ProblemFamily):
    """A family for tests."""
    n: int = 2
    def build(self, data_dir=None):
        return chain(self.n, name=self.spec)
'''
)


@pytest.fixture
def module(write, monkeypatch, request):
    """Write a module with its own name into the working directory; return the name."""
    name = "objects_" + hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:12]
    path = write(f"{name}.py", OBJECTS)
    monkeypatch.chdir(path.parent)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(path.parent))])
    yield name
    sys.modules.pop(name, None)


@pytest.fixture(params=["module", "file"])
def place(request, module):
    """Name the same objects by module and by file."""
    return module if request.param == "module" else f"{module}.py"


@pytest.mark.parametrize(
    ("named", "value", "back"),
    [
        ("Zeros", 0, "Zeros"),
        ("Zeros(value=1)", 1, "Zeros(value=1)"),
        ("ones", 1, "Zeros(value=1)"),
        ("make", 0, "Zeros"),
        ("make(value=1)", 1, "Zeros(value=1)"),
        ("make(loud=true)", 1, "Zeros(value=1)"),
        ("needs(value=1)", 1, "Zeros(value=1)"),
        ("anything(value=1)", 1, "Zeros(value=1)"),
        ("Outer.Inner(value=1)", 1, "Outer.Inner(value=1)"),
    ],
)
def test_solvers_by_object(place, named, value, back, graph):
    """Classes, objects and functions; the solver's own spec makes it again."""
    solver = as_solver(f"{place}:{named}")
    assert il.solve(graph, solver).labels.tolist() == [value, value]
    assert solver.spec == f"{place}:{back}"
    assert as_solver(solver.spec) == solver


def test_an_object_of_a_registered_class_keeps_its_name(place):
    assert as_solver(f"{place}:restarted").spec == "icm(restarts=3)"


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (
            "Zeroes",
            r"unknown solver in PLACE 'Zeroes'; did you mean 'Zeros'\?; valid: Zeros, .*make.*ones",
        ),
        ("make(valu=1)", "unknown setting of PLACE:make 'valu'; did you mean 'value'"),
        ("make(value=x)", r"PLACE:make\(value=...\): 'x' is not an integer"),
        ("needs", r"PLACE:needs needs the setting 'value': PLACE:needs\(value=...\)"),
        ("ones(value=1)", "PLACE:ones is an object and takes no settings, got 'value'"),
        ("nothing", "PLACE:nothing gives None, not a solver"),
        ("number", "PLACE:number gives 3, not a solver"),
        ("fails", "PLACE:fails fails: RuntimeError: out of luck"),
        ("Grid", "PLACE:Grid is not a solver"),
        ("Solver", "PLACE:Solver is an abstract class: it lacks run"),
        ("hidden", "of the class hidden.<locals>.Local, which cannot be named: define it at the"),
        ("ones[0]", "PLACE:ones is not a list, so it has no item 0"),
        ("mixed[3]", "PLACE:mixed has 3 items, so none of number 3"),
    ],
)
def test_objects_that_cannot_be_used(place, named, expected):
    with pytest.raises(SpecError, match=expected.replace("PLACE", re.escape(place))):
        as_solver(f"{place}:{named}")


@pytest.mark.parametrize(
    ("text", "spec", "expected"),
    [
        (None, "no_such_module:Mine", "there is no module 'no_such_module' in "),
        (None, "MODULE.part:Mine", "there is no module 'MODULE.part'"),
        ("import does_not_exist", "odd_module:Mine", "to import: No module named 'does_not_exist'"),
        ("1 / 0", "odd_module:Mine", "'odd_module' fails to import: ZeroDivisionError"),
        ("", "odd_module:Mine", r"odd_module \(.*\) has no 'Mine', and nothing that"),
        (None, "sys:Mine", r"sys \(built in\) has no 'Mine'"),
    ],
)
def test_modules_that_cannot_be_used(write, module, text, spec, expected):
    if text is not None:
        write("odd_module.py", text)
    with pytest.raises(SpecError, match=expected.replace("MODULE", module)):
        as_solver(spec.replace("MODULE", module))
    sys.modules.pop("odd_module", None)


def test_problems_by_object(place):
    problem = as_problem(f"{place}:chain(n=4)")
    assert (problem.name, problem.graph.n_variables) == ("chain", 4)
    assert problem.info["spec"] == f"{place}:chain(n=4)"
    assert problem.truth == [0] * 4
    assert as_problem(problem.info["spec"]).graph.content_hash == problem.graph.content_hash
    # A graph has no name of its own.
    graph = as_problem(f"{place}:graph")
    assert graph.name == f"{place}:graph"
    assert as_problem(graph.name).graph.content_hash == graph.graph.content_hash
    family = problem_registry.make(f"{place}:Grid(n=3)")
    assert family.build().name == f"{place}:Grid(n=3)"
    assert problem_registry.make(family.spec) == family
    assert as_problem(family.spec).graph.n_variables == 3


def test_problems_that_are_not_there_are_named(place, write):
    with pytest.raises(SpecError, match=r"did you mean 'chain'\?; valid: Grid, anything, chain"):
        as_problem(f"{place}:chian")
    write("ready_made.py", "import inference_lab as il\nready = il.FactorGraph.potts([[0]], [], 1)")
    with pytest.raises(SpecError, match=r"defines no problem \(.*\); name one as .*:ready$"):
        as_problem("ready_made.py")


def test_several_problems_of_one_object(place):
    problems = as_problems(f"{place}:several(count=2)")
    assert [p.name for p in problems] == ["chain 2", "chain 3"]
    assert [p.info["spec"] for p in problems] == [
        f"{place}:several[0](count=2)",
        f"{place}:several[1](count=2)",
    ]
    again = as_problem(problems[1].info["spec"])
    assert again.graph.content_hash == problems[1].graph.content_hash
    mixed = as_problems(f"{place}:mixed")
    assert [p.name for p in mixed] == [f"{place}:mixed[0]", "ising(size=2)", "chain"]
    assert as_problem(mixed[0].name).graph.content_hash == mixed[0].graph.content_hash
    with pytest.raises(SpecError, match=r"gives 3 problems, and one is needed; .*object\[0\]"):
        as_problem(f"{place}:several")
    with pytest.raises(SpecError, match=rf"got 3 from {re.escape(place)}:odd\[0\]"):
        as_problems(f"{place}:odd")
    with pytest.raises(TypeError, match=r"a problem is a spec, a path, .* got 3"):
        as_problems([3])


def test_problems_of_a_mixed_list(place, graph):
    problem = il.Problem("mine", graph)
    problems = as_problems([problem, graph, f"{place}:several(count=1)", "ising(size=2)"])
    assert [p.name for p in problems] == [
        "mine",
        f"graph-{graph.content_hash[:8]}",
        "chain 2",
        "ising(size=2)",
    ]
    assert problems[0] is problem


def test_specs_do_for_processes_that_are_started_afresh(place, module, tmp_path):
    """A worker receives only the spec, and finds the working directory by itself."""
    solver = as_solver(f"{place}:make(value=1)")
    code = (
        "import sys; from inference_lab.registry.registry import as_solver\n"
        "solver = as_solver(sys.argv[1]); print(type(solver).__name__, solver.value, solver.spec)"
    )
    # The folder of a script elsewhere is not the working directory.
    (tmp_path / "elsewhere").mkdir()
    script = tmp_path / "elsewhere" / "script.py"
    script.write_text(code)
    out = subprocess.run(
        [sys.executable, str(script), solver.spec], capture_output=True, text=True, cwd=tmp_path
    )
    assert out.stdout.strip() == f"Zeros 1 {solver.spec}", out.stderr


def test_a_package_is_a_place_too(write, monkeypatch, tmp_path, graph):
    write("package_of_tests/__init__.py", "from package_of_tests.inner import Zeros, ones")
    write("package_of_tests/inner.py", SOLVER.format(name="Zeros") + "ones = Zeros(value=1)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    assert as_solver("package_of_tests.inner:Zeros").spec == "package_of_tests.inner:Zeros"
    ones = as_solver("package_of_tests:ones")
    assert as_solver(ones.spec) == ones
    for name in ("package_of_tests", "package_of_tests.inner"):
        del sys.modules[name]


@pytest.mark.parametrize(
    ("settings", "values"),
    [
        ("a=3, b=3, c=3, d=3", (3, "3", Path("3"), 3.0)),
        ("a=x, b=true, c=x/y, d=none", ("x", "true", Path("x/y"), None)),
        ("a=true, d=-1e3", (True, "", Path(), -1000.0)),
        ("a=none", (None, "", Path(), None)),
        ("a='none'", ("none", "", Path(), None)),
    ],
)
def test_arguments_are_converted_by_annotation_or_by_their_look(settings, values):
    def function(a, b: str = "", c: Path = Path(), d: float | None = None):
        return a, b, c, d

    arguments = call(function, "function", parse_spec(f"function({settings})").settings)
    assert arguments == values
    assert [type(value) for value in arguments] == [type(value) for value in values]


def test_arguments_of_other_types_are_refused():
    def function(names: list[str]):
        return names

    with pytest.raises(SpecError, match=r"function\(names=...\): a value of type list\[str\] can"):
        call(function, "function", {"names": "a"})


# ---------------------------------------------------------------------- entry points


@pytest.fixture
def with_entry_points(monkeypatch):
    """Make a fresh registry with the given entry points."""

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
    solvers = with_entry_points(theirs="their_package:Theirs")
    assert "theirs" in solvers.names() and "icm" in solvers.names()
    assert available(solvers)["theirs"] == "Offers zeros"
    solution = il.solve(graph, solvers.make("theirs(value=1)"))
    assert solution.labels.tolist() == [1, 1]


def test_our_own_names_cannot_be_taken(write, monkeypatch, with_entry_points):
    path = write("thief_package.py", SOLVER.format(name="Thief"))
    monkeypatch.syspath_prepend(str(path.parent))
    solvers = with_entry_points(icm="thief_package:Thief")
    assert solvers.load("icm") is solver_registry.load("icm")


def test_a_broken_package_breaks_only_itself(with_entry_points):
    """It is listed as broken, and using it raises an error with the reason."""
    solvers = with_entry_points(
        missing="no_such_package_anywhere:X", wrong="math:pi", attribute="math:Nothing"
    )
    lines = available(solvers)
    assert lines["icm"] == available(solver_registry)["icm"]
    for name in ("missing", "attribute"):
        assert "cannot be loaded" in lines[name]
        with pytest.raises(SpecError, match=f"solver '{name}' cannot be loaded: "):
            solvers.make(name)
    with pytest.raises(SpecError, match=r"entry point 'wrong' is not a solver .*: 3\.14"):
        solvers.make("wrong")
    assert "is not a solver" in lines["wrong"]


def test_file_is_loaded_without_bytecode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytecode cache is ignored, even for a text of equal length from the same second."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "mine.py"
    for value in (1, 2):
        path.write_text(f"VALUE = {value}\n")
        os.utime(path, (1e9, 1e9))
        module = user_code.load_file(path)
        monkeypatch.delitem(sys.modules, module.__name__)
        assert module.VALUE == value
