"""House rules: permitted imports between rooms, and no import cycles."""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import pytest
from places import ROOT

#: From the ground floor up: a room imports from itself and from rooms below, never from above.
#: The table of rooms in docs/maintainers/index.md has the same order.
ROOMS = (
    "formatting",
    "specs",
    "compile_timer",
    "processes",
    "_numba",
    "graph",
    "convert",
    "contract",
    "kernels",
    "algorithms",
    "io",
    "constraints",
    "results",
    "problem",
    "data",
    "registry",
    "solving",
    "solvers",
    "problems",
    "plotting",
    "reporting",
    "selection",
    "harness",
    "conformance",
    "clustering",
    "reports",
    "studies",
    "cli",
    "__main__",
)

PACKAGE = "inference_lab"

#: The solvers of the core, with all their imports.
CLASSICAL = ("icm", "loopy_bp", "mean_field", "lp_relaxation", "brute_force")
#: Rooms of other rings (budgeted parts); the rest is `collection`.
RINGS = {
    "bench": (
        "problem",
        "harness",
        "results",
        "reporting",
        "conformance",
        "io",
        "cli",
        "processes",
    ),
    "studies": ("studies",),
}
#: Budgets. A change that needs more must save elsewhere first.
MOST_CORE_MODULES = 30
MOST_CODE_LINES = {"core": 5500, "bench": 9369, "collection": 25101, "studies": 1910}
MOST_DOCSTRING_LINES = 12000
MOST_TEST_LINES = 41417

#: Tokens that are not code.
LAYOUT = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


@functools.cache
def modules() -> dict[str, ast.Module]:
    """Return the trees of all modules by their dotted names inside the package."""
    found = {}
    for folder in (PACKAGE, "solvers", "problems", "reports"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[1:] if folder == PACKAGE else parts).removesuffix("__init__")
            found[name.rstrip(".")] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imported(module: str, tree: ast.Module) -> Iterator[str]:
    """Yield all imports of a module, including type-only imports and imports in functions.

    A module that imports a name from its own package, even a sibling module, depends on the
    package, and the package depends on the module.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            if f"{PACKAGE}.{module}".startswith(f"{node.module}."):
                names.append(str(node.module))
        else:
            continue
        for name in names:
            if not name.startswith(f"{PACKAGE}."):
                continue
            inner = name.removeprefix(f"{PACKAGE}.")
            yield inner if inner in modules() else inner.rpartition(".")[0]


@functools.cache
def arrows() -> tuple[tuple[str, str], ...]:
    """Return an arrow from each module to each module that it imports.

    The package itself only lists public names, which it loads on first use.
    """
    found = modules().items()
    return tuple((name, other) for name, tree in found if name for other in imported(name, tree))


def room(module: str) -> str:
    """Return the room of a module."""
    return module.partition(".")[0]


def test_every_module_is_in_a_room():
    assert {room(name) for name in modules() if name} == set(ROOMS)


def test_no_import_goes_up():
    """No room knows the rooms above: no algorithm a solver, no kernel the registry."""
    order = {name: number for number, name in enumerate(ROOMS)}
    wrong = [f"{a} imports {b}" for a, b in arrows() if order[room(a)] < order[room(b)]]
    assert wrong == []


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
    graph = nx.DiGraph(list(arrows()))
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    assert [sorted(c) for c in nx.strongly_connected_components(graph) if len(c) > 1] == []


@functools.cache
def core() -> frozenset[str]:
    """Return the modules of `solve` with the classical solvers, and all their imports."""
    graph = nx.DiGraph(list(arrows()))
    entries = ["solving", *(f"solvers.{name}" for name in CLASSICAL)]
    return frozenset(entries).union(*(nx.descendants(graph, name) for name in entries))


def path_of(module: str) -> Path:
    """Return the file of a module."""
    inside = module.partition(".")[0] not in ("solvers", "problems", "reports")
    stem = (ROOT / PACKAGE if inside else ROOT).joinpath(*module.split("."))
    return stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")


def lines_of(text: str) -> tuple[int, int]:
    """Return the lines of code, without comments, docstrings and blanks, and of docstrings."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case (
                ast.Module(body=[ast.Expr(ast.Constant(str())) as first, *_])
                | ast.ClassDef(body=[ast.Expr(ast.Constant(str())) as first, *_])
                | ast.FunctionDef(body=[ast.Expr(ast.Constant(str())) as first, *_])
                | ast.AsyncFunctionDef(body=[ast.Expr(ast.Constant(str())) as first, *_])
            ):
                documented.update(range(first.lineno, (first.end_lineno or 0) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - documented), len(documented)


@functools.cache
def sizes() -> dict[str, tuple[int, int]]:
    """Return the lines of code and of docstrings of each module of the package."""
    texts = {name: path_of(name).read_text(encoding="utf-8") for name in modules() if name}
    return {name: lines_of(text) for name, text in texts.items() if room(name) != "reports"}


def ring(module: str) -> str:
    """Return the ring of a module."""
    if module in core():
        return "core"
    return next((name for name, rooms in RINGS.items() if room(module) in rooms), "collection")


def test_core_keeps_to_its_number_of_modules():
    assert len(core()) <= MOST_CORE_MODULES, sorted(core())


@pytest.mark.parametrize("name", list(MOST_CODE_LINES))
def test_a_ring_keeps_to_its_budget(name):
    """Lines of code added in one place are removed in another."""
    found = {module: code for module, (code, _) in sizes().items() if ring(module) == name}
    assert sum(found.values()) <= MOST_CODE_LINES[name], found


def test_docstrings_and_tests_keep_to_their_budgets():
    assert sum(doc for _, doc in sizes().values()) <= MOST_DOCSTRING_LINES
    tests = (ROOT / "tests").rglob("*.py")
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in tests)
    assert lines <= MOST_TEST_LINES


def test_lines_are_counted_as_a_reader_counts_them():
    text = '"""One.\n\nTwo.\n"""\n\n# A comment.\nx = [\n    1,  # one\n]\n\n\n'
    assert lines_of(text) == (3, 4)
    assert lines_of('def f():\n    """Say."""\n') == (1, 1)


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
