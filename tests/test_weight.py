"""Mandatory dependencies are stated, and missing extras are requested by name."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner
from places import ROOT

import inference_lab as il
from inference_lab import reporting
from inference_lab.cli import main
from inference_lab.data.images import read_image, write_image
from inference_lab.plotting.plots import plot_graph, plot_marginals, plot_trace
from inference_lab.specs.extras import MissingExtra

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

#: Distributions whose packages have other names.
PACKAGES = {"scikit-learn": "sklearn", "pillow": "PIL"}


def name_of(requirement: str) -> str:
    return re.split(r"[<>=\[]", requirement)[0]


def imported() -> set[str]:
    """Return the top-level packages that our modules import anywhere."""
    packages = set()
    for folder in ("inference_lab", "solvers", "problems"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    packages |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    packages.add(node.module.partition(".")[0])
    return packages


def test_mandatory_dependencies_are_imported_and_documented() -> None:
    """README has a line on each package that every installation brings."""
    names = {name_of(requirement) for requirement in PROJECT["dependencies"]}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme.partition("## Dependencies")[2].partition("\n## ")[0]
    mandatory, _, extras = table.partition("| extra |")
    assert names == set(re.findall(r"^\| `([\w-]+)` \|", mandatory, flags=re.MULTILINE))
    assert set(PROJECT["optional-dependencies"]) == set(
        re.findall(r"`([a-z0-9]+)`(?=[ ,].*\|.*\|$)", extras, flags=re.M)
    )
    assert {PACKAGES.get(name, name) for name in names} <= imported()


def test_all_extras_are_in_all() -> None:
    extras = set(PROJECT["optional-dependencies"]) - {"all"}
    (everything,) = PROJECT["optional-dependencies"]["all"]
    assert set(everything.partition("[")[2].rstrip("]").split(",")) == extras


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide the packages of the extras, for modules not imported before."""
    for package in (
        "altair",
        "vl_convert",
        "matplotlib",
        "jinja2",
        "markupsafe",
        "PIL",
    ):
        monkeypatch.setitem(sys.modules, package, None)
    before = _forgotten_reporting()
    yield
    # Modules imported meanwhile are copies, whose classes other modules do not know.
    _forgotten_reporting()
    for name, module in before.items():
        sys.modules[name] = module
        setattr(reporting, name.rpartition(".")[2], module)


def _forgotten_reporting() -> dict[str, ModuleType]:
    """Forget the modules that make reports; return them by name."""
    prefix = f"{reporting.__name__}."
    modules = {name: module for name, module in sys.modules.items() if name.startswith(prefix)}
    for name in modules:
        del sys.modules[name]
        delattr(reporting, name.rpartition(".")[2])
    return modules


def test_without_the_extras_each_feature_names_its_own(
    bare: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    graph = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    comparison = il.compare(graph, ["icm"], isolate=False)
    solution = il.solve(graph, "junction-tree", temperature=1.0)
    plots = (
        lambda: plot_graph(graph),
        lambda: plot_trace(solution),
        lambda: plot_marginals(solution),
    )
    for draw in (*plots, lambda: comparison.report(tmp_path / "report")):
        package = "matplotlib" if draw in plots else "altair"
        report = re.escape(f'{package} is not installed: pip install -e ".[report]"')
        with pytest.raises(MissingExtra, match=report):
            draw()
    images = re.escape('PIL is not installed: pip install -e ".[images]"')
    for use in (lambda: read_image("a.png"), lambda: write_image("a.png", None)):  # type: ignore
        with pytest.raises(MissingExtra, match=images):
            use()
    comparison.save(tmp_path / "saved")  # as `compare` does
    for command, message in (
        ("report saved", report),
        ("reproduce estep-regimes --quick", report),
    ):
        result = CliRunner().invoke(main, command.split())
        assert result.exit_code == 2 and re.search(message, result.stderr), result.output
        assert "Traceback" not in result.output


def test_pgmpy_is_imported_when_its_methods_run() -> None:
    """Listing, making and querying its solvers do not load it, nor do other solvers."""
    code = """
import sys
import inference_lab as il
from inference_lab.registry.registry import as_solver
il.available_solvers()
g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
assert as_solver("pgmpy-junction-tree").unsupported_reason(g, 0.0) is None
il.solve(g, "brute-force")
print([name for name in ("pgmpy", "altair", "matplotlib", "jinja2", "PIL") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
