"""The code in README.md, CONTRIBUTING.md and the pages of the site runs as it stands.

Fences marked ``python`` are scripts, run in order in one empty folder; fences of a page of the site
are parts of one script. A first line ``# name.py`` saves the script there under that name, for the
fences that follow. Lines of ``console`` fences that begin with ``inference-lab`` are run as
commands in the same folder, and then the commands within the text, except forms with a NAME to fill
in. Scripts and commands run within this process, commands once and with short limits; tests of the
command line check that they are installed. Scripts that start processes and tests have their own
process.
"""

from __future__ import annotations

import functools
import os
import pkgutil
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner
from places import ROOT

from inference_lab import conformance
from inference_lab.cli import main
from inference_lab.clustering import cluster_cv
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.io import FormatError, supported_suffixes, write

#: Pages of the site with code in Python.
PAGES = (
    "clustering",
    "first-run",
    "large-data",
    "many-machines",
    "own-data",
    "own-problem",
    "own-solver",
    "paper",
)

DOCUMENTS = [
    "CONTRIBUTING.md",
    "README.md",
    "docs/tutorial.md",
    *(f"docs/howto/{page}.md" for page in PAGES),
    "docs/maintainers/debug-a-kernel.md",
]

#: Pages for maintainers: names of the package in them are checked.
MAINTAINERS = sorted(f"docs/maintainers/{p.name}" for p in (ROOT / "docs/maintainers").glob("*.md"))

#: Seconds a run may take here; the documents show commands with the limits that users want.
TIME_LIMIT = "0.5"


class Fence(NamedTuple):
    """A fenced block: its language, the first line of its content, and the content."""

    language: str
    line: int
    text: str


def fences(text: str) -> list[Fence]:
    """Return the fenced blocks of a Markdown document."""
    blocks = []
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
        line = text.count("\n", 0, match.start(2)) + 1
        blocks.append(Fence(match[1], line, match[2]))
    return blocks


def run(command: list[str], folder: Path, where: str) -> str:
    """Run a command of this environment in a folder and return its output."""
    program = Path(sys.executable).with_name(command[0])
    done = subprocess.run(
        [str(program), *command[1:]],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{where} fails:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_line(line: str, where: str) -> None:
    """Run a line of a console, with limits on the time of comparisons and proofs."""
    command = shlex.split(line.removeprefix("$ "), comments=True)[1:]
    if command[0] == "compare":
        with main.commands["compare"].make_context("compare", command[1:]) as context:
            # A comparison without problems runs the problems of `make demo`, for a minute.
            if not context.params["problems"]:
                return
        command += ["--time-limit", TIME_LIMIT, "--quiet"]
    if command[0] == "cluster":
        command += ["--certify", "0"]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, f"{where}: {line} fails:\n{done.output}\n{done.exception!r}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Enter an empty folder; modules imported from it are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    # Solvers are examined on few graphs, and few estimators are compared, because other tests
    # check that the checks find every fault, and compare all candidates.
    few = functools.partial(conformance.run_checks, graphs_per_family=1, isolate=False)
    monkeypatch.setattr(conformance, "run_checks", few)
    monkeypatch.setattr(conformance.checks, "TIME_LIMIT", 0.05)
    candidates = cluster_cv.default_candidates()[1:3]
    monkeypatch.setattr(cluster_cv, "default_candidates", lambda: candidates)
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def saved_name(fence: Fence) -> str | None:
    """Return the file name that a block's first line gives."""
    match = re.match(r"# (\w+\.py)\n", fence.text)
    return match[1] if match else None


def prose(text: str) -> str:
    """Return a document without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def in_one_script(blocks: list[Fence]) -> list[Fence]:
    """Return the blocks with all unnamed scripts as one, before the first command."""
    parts = [fence for fence in blocks if fence.language == "python" and not saved_name(fence)]
    whole = (
        Fence("python", parts[0].line, "\n".join(part.text for part in parts)) if parts else None
    )
    named = [fence for fence in blocks if saved_name(fence)]
    rest = [fence for fence in blocks if fence not in parts and fence not in named]
    return [*named, *([whole] if whole else []), *rest]


@pytest.mark.parametrize(
    # They share nothing and are slow, so any worker takes the next.
    "name",
    [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in DOCUMENTS],
)
def test_code_runs(name: str, folder: Path, undrawn: None, unforked: None) -> None:
    """Every script and command of the document ends with exit code 0."""
    text = (ROOT / name).read_text(encoding="utf-8")
    blocks = fences(text)
    site = name.startswith("docs/")
    assert {"python", "console"} & {fence.language for fence in blocks}
    commands = set()
    if site:
        blocks = in_one_script(blocks)

    def run_once(line: str, where: str) -> None:
        if line.startswith("inference-lab ") and line not in commands:
            commands.add(line)
            run_line(line, where)

    for fence in blocks:
        where = f"{name}:{fence.line}"
        if fence.language == "python":
            script = saved_name(fence) or f"line_{fence.line}.py"
            (folder / script).write_text(fence.text, encoding="utf-8")
            if script.startswith("test_"):
                run(["pytest", script], folder, where)
            elif "__main__" in fence.text:
                run(["python", script], folder, where)
            else:
                runpy.run_path(script, run_name="__main__")
        elif fence.language == "console":
            for line in fence.text.splitlines():
                run_once(line, where)
    for line in re.findall(r"`(inference-lab [^`]+)`", prose(text)):
        if "NAME" not in line:
            run_once(line, name)


def test_example_solver(tmp_path: Path) -> None:
    """The examples follow the rules of the repository, and have a name in ``solvers/``."""
    saved: dict[str | None, Fence] = {}
    for page in ("own-solver", "own-problem"):
        text = (ROOT / f"docs/howto/{page}.md").read_text(encoding="utf-8")
        saved |= {saved_name(fence): fence for fence in fences(text) if saved_name(fence)}
    for name in ("kicked_descent.py", "noisy_ring.py"):
        fence = saved[name]
        path = tmp_path / name
        # A file in a repository does not begin with its own name.
        path.write_text(fence.text.split("\n", 1)[1], encoding="utf-8")
        configuration = ["--config", str(ROOT / "pyproject.toml")]
        run(["ruff", "check", *configuration, path.name], tmp_path, path.name)
        run(["ruff", "format", "--check", *configuration, path.name], tmp_path, path.name)
    run(
        ["python", "-m", "doctest", "kicked_descent.py"],
        tmp_path,
        "the example of kicked_descent.py",
    )
    script = (
        "import inference_lab as il, inference_lab.solvers as home\n"
        "home.__path__.append('.')\n"
        "print(il.available_solvers()['kicked-descent'])\n"
        "g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])\n"
        "print(il.solve(g, 'kicked-descent(kicks=1)').solver)\n"
    )
    assert run(["python", "-c", script], tmp_path, "the registry").splitlines() == [
        "Descend, change some labels of the best labelling at random, and descend again",
        "kicked-descent(kicks=1)",
    ]


@pytest.mark.parametrize(
    "name",
    [*dict.fromkeys([*DOCUMENTS, *MAINTAINERS]), "CHANGELOG.md", "benchmarks/README.md"],
)
def test_paths_exist(name: str) -> None:
    """Files and folders of the repository named in a document exist; its links lead there."""
    text = prose((ROOT / name).read_text(encoding="utf-8"))
    folders = "|".join(re.escape(path.name) for path in ROOT.iterdir() if path.is_dir())
    named = {ROOT / path for path in re.findall(rf"`((?:{folders})/[\w./]*|[A-Z]+\.md)`", text)}
    named |= {(ROOT / name).parent / path for path in re.findall(r"\]\(([^)#:]+)\)", text)}
    made_by_commands = (ROOT / "runs", ROOT / "build", ROOT / "docs/gallery")
    named = {path for path in named if not any(map(path.is_relative_to, made_by_commands))}
    assert [path for path in sorted(named) if not path.exists()] == []


def names_in(text: str) -> set[str]:
    """Return the dotted names of the package that a page quotes, such as `graph.terms.freeze`."""
    rooms = "|".join(["solvers", "problems", *(p.stem for p in (ROOT / "inference_lab").iterdir())])
    return set(re.findall(rf"`((?:{rooms})(?:\.\w+)+)(?:\([^`]*\))?`", prose(text)))


@pytest.mark.parametrize("name", MAINTAINERS)
def test_quoted_tests_exist(name: str) -> None:
    """Tests named on a page for maintainers exist."""
    defined = {
        test
        for path in (ROOT / "tests").rglob("test_*.py")
        for test in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))
    }
    quoted = re.findall(r"`(test_\w+)`|\b(test_\w+)\(", (ROOT / name).read_text(encoding="utf-8"))
    assert {one or other for one, other in quoted} - defined == set()


@pytest.mark.parametrize("name", MAINTAINERS)
def test_names_exist(name: str) -> None:
    """Modules, functions, classes and members named on a page for maintainers exist."""
    missing = []
    for named in sorted(names_in((ROOT / name).read_text(encoding="utf-8"))):
        try:
            pkgutil.resolve_name(f"inference_lab.{named}")
        except (ImportError, AttributeError):
            missing.append(named)
    assert missing == []


def test_a_name_that_is_gone_is_found() -> None:
    """Names with arguments count, other code does not."""
    text = "`solving.solve(graph)`, `contract.Run.offer`, `graph.gone`, `np.zeros(3)`, `x.y`"
    assert names_in(text) == {"solving.solve", "contract.Run.offer", "graph.gone"}


def consequence(record: str) -> str:
    """Return the last paragraph of a record of a decision, on one line."""
    return " ".join(record.strip().rpartition("\n\n")[2].split())


def test_decisions_end_with_the_consequence_for_users() -> None:
    """The last paragraph of each record is one sentence that begins with "Users"."""
    form = re.compile(r"Users (?:[^.]|\.(?=\S))+\.")
    ends = {
        path.name: consequence(path.read_text(encoding="utf-8"))
        for path in (ROOT / "docs/decisions").glob("[0-9]*.md")
    }
    assert {name: end for name, end in ends.items() if not form.fullmatch(end)} == {}
    assert form.fullmatch(consequence("Costs.\n\nUsers wait 0.5 s\nlonger.\n"))
    for other in ("Costs are the same.", "Users wait. Others do not.", "Users wait"):
        assert not form.fullmatch(consequence(f"Costs.\n\n{other}\n")), other


def test_newcomers_read_how_to_reach_the_command() -> None:
    """The first mention of `make demo`, and the end, explain how the command gets on the PATH."""
    demo = ["make", "--dry-run", "demo", f"PYTHON={sys.executable}"]
    shown = subprocess.run(demo, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "source .venv/bin/activate" in shown.splitlines()[-1]
    for name in ("README.md", "docs/index.md", "docs/tutorial.md", "docs/howto/shell.md"):
        assert "source .venv/bin/activate" in (ROOT / name).read_text(encoding="utf-8"), name


def test_extras_are_installed_from_the_clone() -> None:
    """No page and no message installs the project from an index, which does not have it."""
    folders = ("docs", "inference_lab", "solvers", "problems", "examples")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.*")]
    files = [path for path in files if path.suffix in (".md", ".py", ".html")]
    asked = re.compile(r"pip install [\"']?inference-lab")
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *files):
        assert not asked.search(path.read_text(encoding="utf-8")), path


def test_the_table_of_model_files_is_that_of_the_library(tmp_path: Path) -> None:
    """Each suffix is known, none is missing, and the listed ones can be written."""
    text = (ROOT / "docs/howto/own-data.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\.\w+)`.*? \| .*? \| yes \|(.*) ?\|$", text, re.M)
    assert [suffix + packed for suffix, _ in rows for packed in ("", ".gz", ".xz")] == list(
        supported_suffixes()
    )
    graph = FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    for suffix, written in rows:
        with nullcontext() if written.strip() else pytest.raises(FormatError, match="read only"):
            write(graph, tmp_path / f"model{suffix}")
