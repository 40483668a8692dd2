"""House rules: permitted imports between rooms, no import cycles, and a core that stays small."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter

import pytest
from house import (
    BY_NAME,
    PACKAGE,
    RINGS,
    ROOMS,
    ROOT,
    arrows,
    arrows_by_name,
    circles,
    code_lines,
    core,
    core_size,
    functions,
    functions_of,
    imported,
    lines_of,
    modules,
    path_of,
    report,
    room,
)

#: The core is read in an afternoon: 5,500 lines of code in 32 modules, with a head-room of 15 %.
#: It grows only by what every solver needs. Sizes of other rooms are a report, `make house`.
MOST_CORE_LINES, MOST_CORE_MODULES = 6325, 36

#: Private constants that tests replace, and why neither data nor a setting takes their place.
REPLACED = {
    "_BLOCK _BLOCK_WORK _CHUNK _FIRST_PARTS _ROOT_PARTS _STEPS _STRETCH _WORK": (
        "work between two looks at the clock: results are compared for parts of any size"
    ),
    "_CAPACITY _MOST_PAIRS _POOL _SMALL_RUN _TRAIL": (
        "capacities that only minutes of work or gigabytes reach"
    ),
    "_FOREIGN_WARM_UP_LIMIT _GRACE _LOADING_LIMIT _SCHEDULER_PATIENCE _SETUP_SECONDS "
    "_WALL_CONSTANT": "seconds that a test would wait for",
    "_COARSE_FROM _MANY _MARGIN_AFTER _MARGIN_WITHIN _SETTLED": (
        "two ways to one result are compared on the same data"
    ),
    "_FOLDER _PROCESS _SPLIT": "another cache, another process, another release of scikit-learn",
}


def test_every_module_is_in_a_room():
    assert {room(name) for name in modules() if name} == set(ROOMS)


def test_no_import_goes_up():
    """No room knows the rooms above: no algorithm a solver, no kernel the registry."""
    order = {name: number for number, name in enumerate(ROOMS)}
    wrong = [f"{a} imports {b}" for a, b in arrows() if order[room(a)] < order[room(b)]]
    assert wrong == []


def test_modules_named_in_strings_are_declared():
    """Imports by name hide from the other tests, so each has a reason in `house.BY_NAME`."""
    assert arrows_by_name() == set(BY_NAME)


def test_imports_by_name_go_down_and_not_round():
    """A package that is searched for files is above the module that searches it."""
    searched = {"solvers", "problems", "reports"}
    hidden = [(a, b) for a, b in BY_NAME if b not in searched]
    order = {name: number for number, name in enumerate(ROOMS)}
    assert [f"{a} names {b}" for a, b in hidden if order[room(a)] < order[room(b)]] == []
    assert circles([*arrows(), *hidden]) == []


def test_a_file_name_has_one_meaning():
    """Class names are unique as well, so a search finds one definition."""
    stems = Counter(path_of(name).stem for name in modules() if name and room(name) != "reports")
    del stems["__init__"]
    classes = Counter(
        node.name
        for tree in modules().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )
    assert sorted(name for name, count in (stems | classes).items() if count > 1) == []


def test_no_import_goes_round():
    assert circles(arrows()) == []


def test_core_keeps_to_its_head_room():
    lines, count = core_size()
    assert lines <= MOST_CORE_LINES, f"{lines} lines of code in {sorted(core())}"
    assert count <= MOST_CORE_MODULES, sorted(core())


def test_each_fit_is_a_page():
    """Its steps are named in one place, and the bases that estimators share are small."""
    fits = {name: lines for lines, name in functions() if re.match(r"clustering\..*\.fit$", name)}
    assert len(fits) > 15
    assert {name: lines for name, lines in fits.items() if lines > 35} == {}
    bases = [
        node for node in modules()["clustering.prediction"].body if isinstance(node, ast.ClassDef)
    ]
    for base in bases:
        assert sum(isinstance(node, ast.FunctionDef) for node in base.body) <= 12, base.name


def test_no_warning_counts_its_callers():
    """`formatting.warn` finds the line of the user, at any depth."""
    with_levels = [
        name
        for name, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg == "stacklevel"
    ]
    assert with_levels == ["formatting"]


def test_names_outside_the_code_still_exist():
    """Constants that the mutants leave alone, and files with rules of their own for the linter."""
    mutants = (ROOT / "benchmarks/mutants.py").read_text(encoding="utf-8")
    (constants,) = re.findall(r"SPEED = frozenset\((.*?)\.split", mutants, re.DOTALL)
    assigned = {
        node.id
        for tree in modules().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    assert [name for name in re.findall(r"_\w+", constants) if name not in assigned] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["ruff"]["lint"]["per-file-ignores"]
    assert [pattern for pattern in patterns if not any(ROOT.glob(pattern))] == []


def private_constants() -> set[str]:
    """Return the private constants of all modules."""
    return {
        node.id
        for tree in modules().values()
        for statement in tree.body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        if re.fullmatch(r"_[A-Z][A-Z0-9_]*", node.id)
    }


def replaced(tree: ast.Module) -> set[str]:
    """Return the last parts of names that a test replaces: in calls, or as whole dotted paths."""
    names = []
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if re.fullmatch(r"\w+(\.\w+)+", text):
                names.append(text)
            case ast.Call() if re.search(r"setattr|setitem|patch", ast.unparse(node.func)):
                names += [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
                names += [keyword.arg for keyword in node.keywords]
    return {name.rpartition(".")[2] for name in names if isinstance(name, str)}


def test_tests_replace_no_private_constant_without_a_reason():
    """Data that reach the behaviour come first, then a setting."""
    names = {
        name
        for folder in ("tests", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
        for name in replaced(ast.parse(path.read_text(encoding="utf-8")))
    }
    listed = set(" ".join(REPLACED).split())
    replacements = names & private_constants()
    assert replacements - listed == set(), "no reason in REPLACED of this file"
    assert listed - replacements == set(), "listed in REPLACED, and replaced by no test"
    for text in (
        "monkeypatch.setattr(icm, '_STRETCH', 2)",
        "patch.setattr('inference_lab.solvers.icm._STRETCH', 2)",
        "PARTS = {'icm': ('solvers.icm._STRETCH', 2)}",
        "mock.patch.multiple(icm, _STRETCH=2)",
    ):
        assert "_STRETCH" in replaced(ast.parse(text)) & private_constants(), text


def test_lines_are_counted_as_a_reader_counts_them():
    text = '"""One.\n\nTwo.\n"""\n\n# A comment.\nx = [\n    1,  # one\n]\n\n\n'
    assert lines_of(text) == (3, 4)
    assert lines_of('def f():\n    """Say."""\n') == (1, 1)


def test_lines_of_functions_include_those_of_inner_functions():
    text = 'class A:\n    def f(self):\n        """Say."""\n\n        def g():\n            pass\n'
    assert list(functions_of(ast.parse(text), "m", code_lines(text)[0])) == [
        (3, "m.A.f"),
        (2, "m.A.f.g"),
    ]


def test_report_has_every_room_and_the_sum_of_its_rings():
    lines = list(report())
    rows = [line.rsplit(maxsplit=3) for line in lines[1 : lines.index("")]]
    numbers = {name: [int(n.replace(",", "")) for n in row] for name, *row in rows}
    rings = zip(*(numbers[name] for name in RINGS), strict=True)
    assert [sum(column) for column in rings] == numbers["package"]
    assert numbers["core"][:2] == list(core_size()[::-1])
    assert {name.strip() for name in numbers} >= set(ROOMS)
    assert "  none" in lines


def test_the_tests_of_a_file_stay_together(request):
    """pytest-xdist marks groups by suffixes of names, and loses them silently."""
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("tests are not shared out in groups")
    assert request.node.nodeid.endswith("@test_house")


def test_modules_beside_the_packages_are_few():
    assert len([path for path in (ROOT / PACKAGE).glob("*.py") if path.stem != "__init__"]) <= 8


def test_guide_lists_the_rooms_in_order():
    """The page for maintainers shows each room once, in this order."""
    text = (ROOT / "docs/maintainers/index.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)/?` \|", text, flags=re.MULTILINE)
    assert [name for name in rows if name in ROOMS] == [r for r in ROOMS if r != "__main__"]


@pytest.mark.parametrize("arrow", [("graph.arrays", "cli.common")])
def test_checks_detect_violations(arrow, monkeypatch):
    """An arrow upwards, with its reverse, violates both checks."""
    seen = (*arrows(), arrow, arrow[::-1])
    monkeypatch.setattr(f"{__name__}.arrows", lambda: seen)
    with pytest.raises(AssertionError):
        test_no_import_goes_up()
    with pytest.raises(AssertionError):
        test_no_import_goes_round()


def test_import_from_the_own_package_is_a_cycle():
    """Own names and sibling modules count; an import from outside the package is no cycle."""
    for names in ("read", "uai"):
        tree = ast.parse(f"from {PACKAGE}.io import {names}")
        assert "io" in imported("io.fg", tree)
    assert list(imported("io.fg", ast.parse(f"from {PACKAGE}.io.uai import parse"))) == ["io.uai"]
    assert list(imported("cli.common", tree)) == ["io.uai"]
