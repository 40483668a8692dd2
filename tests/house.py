"""The house measured: lines of code by room and ring, import circles, largest files and functions.

``make house`` prints the report. ``test_house.py`` checks the rules with the same functions.
"""

from __future__ import annotations

import ast
import functools
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).resolve().parents[1]

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
    "plotting",
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
    "reporting",
    "selection",
    "harness",
    "conformance",
    "distortions",
    "certificates",
    "clustering",
    "reports",
    "studies",
    "cli",
    "__main__",
)

PACKAGE = "inference_lab"

#: Modules and packages of the library that a module names in a string, with the reason why it does
#: not import them. No other may be named.
BY_NAME = {
    ("conformance.generators", "algorithms.elimination.order"): "its frames are recognised",
    ("conformance.generators", "solving"): "its frames are recognised",
    ("harness.running", "results.scoring"): "loaded before processes are forked, for their sake",
    ("harness.running", "solving"): "loaded before processes are forked, for their sake",
    ("problems.instances", "problems"): "data files of the package",
    ("registry.registry", "registry.user_code"): "only specs of users' files need it",
    ("registry.registry", "solvers"): "its files are the solvers, each imported when it is named",
    ("registry.sources", "problems"): "its files are the families, each imported when it is named",
    ("reporting.page", "reporting"): "data files of the package",
    ("solving", "registry.sources"): "a graph is solved without problem families, files and data",
    ("specs.settings", "problems"): "names of its modules are names of families",
    ("specs.settings", "solvers"): "names of its modules are names of solvers",
    ("studies.discovery", "reports"): "studies that come with the library are found by name",
}

#: The solvers of the core, with all their imports.
CLASSICAL = ("icm", "loopy_bp", "mean_field", "lp_relaxation", "brute_force")
#: Rooms of other rings, from the inside; those of no ring are the `collection`.
RINGS = {
    "core": (),
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
    "collection": (),
    "studies": ("studies", "reports"),
}

#: Tokens that are not code.
LAYOUT = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)

#: Numbers of files and of functions that the report lists.
LARGEST = 10


@functools.cache
def modules() -> dict[str, ast.Module]:
    """Return the trees of all modules by their dotted names inside the package."""
    trees = {}
    for folder in (PACKAGE, "solvers", "problems", "reports"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[1:] if folder == PACKAGE else parts).removesuffix("__init__")
            trees[name.rstrip(".")] = ast.parse(path.read_text(encoding="utf-8"))
    return trees


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


def named(module: str, tree: ast.Module) -> Iterator[str]:
    """Yield all modules and packages of the library whose whole names are strings in a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            inner = node.value.removeprefix(f"{PACKAGE}.")
            if inner != node.value and inner in modules() and inner != module:
                yield inner


@functools.cache
def arrows_by_name() -> frozenset[tuple[str, str]]:
    """Return an arrow from each module to each module that it names in a string."""
    trees = modules().items()
    return frozenset(
        (name, other) for name, tree in trees if name for other in named(name, tree) if other
    )


@functools.cache
def arrows() -> tuple[tuple[str, str], ...]:
    """Return an arrow from each module to each module that it imports.

    The package itself only lists public names, which it loads on first use.
    """
    trees = modules().items()
    return tuple((name, other) for name, tree in trees if name for other in imported(name, tree))


def circles(imports: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Return the groups of modules that import each other."""
    graph = nx.DiGraph(list(imports))
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    return [sorted(c) for c in nx.strongly_connected_components(graph) if len(c) > 1]


def room(module: str) -> str:
    """Return the room of a module."""
    return module.partition(".")[0]


@functools.cache
def core() -> frozenset[str]:
    """Return the modules of `solve` with the classical solvers, and all their imports."""
    graph = nx.DiGraph(list(arrows()))
    entries = ["solving", *(f"solvers.{name}" for name in CLASSICAL)]
    return frozenset(entries).union(*(nx.descendants(graph, name) for name in entries))


def ring(module: str) -> str:
    """Return the ring of a module."""
    if module in core():
        return "core"
    return next((name for name, rooms in RINGS.items() if room(module) in rooms), "collection")


def path_of(module: str) -> Path:
    """Return the file of a module."""
    inside = room(module) not in ("solvers", "problems", "reports")
    stem = (ROOT / PACKAGE if inside else ROOT).joinpath(*module.split("."))
    return stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")


def code_lines(text: str) -> tuple[set[int], set[int]]:
    """Return the numbers of the lines of code, and of docstrings.

    Comments, docstrings and blank lines are no code.
    """
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
    return code - documented, documented


def lines_of(text: str) -> tuple[int, int]:
    """Return the number of lines of code, and of docstrings."""
    code, documented = code_lines(text)
    return len(code), len(documented)


@functools.cache
def sizes() -> dict[str, tuple[int, int]]:
    """Return the lines of code and of docstrings of each module of the package."""
    texts = {name: path_of(name).read_text(encoding="utf-8") for name in modules() if name}
    return {name: lines_of(text) for name, text in texts.items()}


def core_size() -> tuple[int, int]:
    """Return the lines of code and the number of modules of the core."""
    return sum(sizes()[name][0] for name in core()), len(core())


def functions() -> Iterator[tuple[int, str]]:
    """Yield the lines of code of each function and method, and its dotted name."""
    for module, tree in modules().items():
        if module:
            code, _ = code_lines(path_of(module).read_text(encoding="utf-8"))
            yield from functions_of(tree, module, code)


def functions_of(node: ast.AST, name: str, code: set[int]) -> Iterator[tuple[int, str]]:
    """Yield the functions inside a node; `code` has the numbers of the lines of code."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{name}.{child.name}"
            if not isinstance(child, ast.ClassDef):
                lines = range(child.lineno, (child.end_lineno or 0) + 1)
                yield len(code.intersection(lines)), inner
            yield from functions_of(child, inner, code)
        else:
            yield from functions_of(child, name, code)


def report() -> Iterator[str]:
    """Yield the lines of the report."""
    measured = [(ring(name), room(name), *size) for name, size in sizes().items()]
    yield f"{'ring or room':<20}{'modules':>8}{'code':>8}{'docstrings':>12}"
    for name in RINGS:
        yield _row(name, [row for row in measured if row[0] == name])
        inside = Counter(row[1] for row in measured if row[0] == name)
        for inner in sorted(inside, key=ROOMS.index):
            yield _row(f"  {inner}", [row for row in measured if row[:2] == (name, inner)])
    yield _row("package", measured)
    tests = [lines_of(path.read_text(encoding="utf-8")) for path in (ROOT / "tests").rglob("*.py")]
    yield _row("tests", [("", "", *size) for size in tests])

    yield ""
    yield "Import circles"
    yield from ["  " + ", ".join(circle) for circle in circles(arrows())] or ["  none"]
    yield ""
    yield "Largest files, in lines of code"
    files = sorted(((code, name) for name, (code, _) in sizes().items()), reverse=True)
    for lines, name in files[:LARGEST]:
        yield f"{lines:>7,}  {path_of(name).relative_to(ROOT)}"
    yield ""
    yield "Largest functions, in lines of code"
    for lines, name in sorted(functions(), reverse=True)[:LARGEST]:
        yield f"{lines:>7,}  {name}"


def _row(name: str, measured: list[tuple[str, str, int, int]]) -> str:
    code, documented = sum(row[2] for row in measured), sum(row[3] for row in measured)
    return f"{name:<20}{len(measured):>8,}{code:>8,}{documented:>12,}"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in report())
