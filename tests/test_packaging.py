"""Packaging: installed files and names, and modules loaded by an import."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest
from places import ROOT

import inference_lab

#: Installed locations of the repository's folders.
INSTALLED = {
    "inference_lab": "inference_lab",
    "solvers": "inference_lab/solvers",
    "problems": "inference_lab/problems",
}

#: Packages that are loaded on first use only.
HEAVY = (
    "cvxpy",
    "matplotlib",
    "networkx",
    "numba",
    "pandas",
    "pgmpy",
    "pulp",
    "scipy",
    "sklearn",
    "PIL",
    "rich",
    "torch",
)


def run(*command: str | Path, cwd: Path, path: Path | None = None) -> str:
    """Run a command and return its output; `path` precedes the installed packages."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
        # Kernels of a package that is gone after the test do not stay in the user's cache.
        environment["XDG_CACHE_HOME"] = str(path.parent / f"{path.name}-cache")
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{command} fails:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def python(code: str, cwd: Path, path: Path | None = None) -> str:
    """Run Python code in a separate process and return its output."""
    return run(sys.executable, "-c", code, cwd=cwd, path=path)


@pytest.fixture(scope="module")
def tracked() -> list[str]:
    """List the files of the repository, including those about to be added."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a git repository: nothing says which files belong to the project")
    listed = run("git", "ls-files", "-z", "-co", "--exclude-standard", cwd=ROOT)
    return sorted(name for name in listed.split("\0") if name and (ROOT / name).exists())


@pytest.fixture(scope="module")
def wheel(tracked: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel from the tracked files only."""
    source = tmp_path_factory.mktemp("source")
    for name in tracked:
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target, follow_symlinks=False)
    built = tmp_path_factory.mktemp("wheel")
    log = built.with_suffix(".log")
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--wheel-dir",
        built,
        "--log",
        log,
        ".",
        cwd=source,
    )
    assert "Warning: " not in log.read_text(), "setuptools warns of what is declared"
    (path,) = built.iterdir()
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into a folder."""
    target = tmp_path_factory.mktemp("installed")
    run(
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-index",
        "--target",
        target,
        wheel,
        cwd=target,
    )
    return target


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """Make a working directory with folders of the same names."""
    for name in ("solvers", "problems"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("MINE = True\n")
        (tmp_path / name / "icm.py").write_text("MINE = True\n")
    return tmp_path


def test_wheel_holds_the_package_and_nothing_else(wheel: Path, tracked: list[str]) -> None:
    """Every file of the three folders is in the wheel under its installed name, and no other."""
    information = f"inference_lab-{inference_lab.__version__}.dist-info"
    expected = {
        f"{information}/{name}"
        for name in (
            "METADATA",
            "RECORD",
            "WHEEL",
            "entry_points.txt",
            "top_level.txt",
            "licenses/LICENSE",
        )
    }
    for name in tracked:
        folder, _, rest = name.partition("/")
        if folder in INSTALLED:
            expected.add(f"{INSTALLED[folder]}/{rest}")
        # Reports contribute the definitions of studies, but not their results.
        if folder == "reports" and rest.endswith(("/study.toml", ".py")):
            expected.add(f"inference_lab/reports/{rest}")
    with zipfile.ZipFile(wheel) as archive:
        assert set(archive.namelist()) == expected
        metadata = archive.read(f"{information}/METADATA").decode()
        assert archive.read(f"{information}/top_level.txt").decode().split() == ["inference_lab"]
    assert "inference_lab/py.typed" in expected
    assert re.search(r"^License-Expression: BSD-3-Clause$", metadata, flags=re.MULTILINE)
    assert f"\nVersion: {inference_lab.__version__}\n" in metadata
    assert "\nDescription-Content-Type: text/markdown\n" in metadata  # the README was found


def test_wheel_works_beside_folders_of_the_same_names(installed: Path, elsewhere: Path) -> None:
    """A user's own ``solvers`` and ``problems`` neither break the library nor are broken by it."""
    code = (
        "import solvers, problems, solvers.icm\n"
        "assert solvers.MINE and problems.MINE and solvers.icm.MINE\n"
        "import inference_lab as il, inference_lab.solvers.icm as icm\n"
        "g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])\n"
        "print(il.__file__, icm.__file__, il.solve(g, 'icm').energy, sep='\\n')\n"
        "print(*il.available_solvers(), *il.available_problems())\n"
    )
    package, module, energy, names = python(code, elsewhere, installed).splitlines()
    assert Path(package).parent == installed / "inference_lab"
    assert Path(module) == installed / "inference_lab" / "solvers" / "icm.py"
    assert float(energy) == 0.5
    code = (
        "from inference_lab.studies.discovery import available_studies, find_study\n"
        "print(find_study('estep-regimes').folder, *available_studies())\n"
    )
    folder, *studies = python(code, elsewhere, installed).split()
    assert Path(folder) == installed / "inference_lab" / "reports" / "estep-regimes"
    assert studies == sorted(path.parent.name for path in (ROOT / "reports").glob("*/study.toml"))
    for folder in ("solvers", "problems"):
        for path in (ROOT / folder).glob("[!_]*.py"):
            assert path.stem.replace("_", "-") in names.split()


def test_command_of_the_wheel(installed: Path, elsewhere: Path) -> None:
    """The command is installed, and prints the version of the package."""
    command = installed / "bin" / "inference-lab"
    assert run(command, "--version", cwd=elsewhere, path=installed).split() == [
        "inference-lab,",
        "version",
        inference_lab.__version__,
    ]
    (point,) = entry_points(group="console_scripts", name="inference-lab")
    assert point.value == "inference_lab.cli:main"


#: What a new user does first: from the clone to a table.
FIRST_USE = (
    "import inference_lab as il\n"
    "g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])\n"
    "print(il.__file__, il.solve(g, 'icm').energy)\n"
)


def unprivileged(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a user without a home; root gives up its power over files for it."""
    environment = {"PATH": os.environ["PATH"], "HOME": os.devnull, **variables}
    prefix: list[str] = []
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("setpriv is missing, and root may write everywhere")
        prefix = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"]
    return subprocess.run(
        [*prefix, *map(str, command)],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel offline into an environment that borrows the packages it depends on."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    site = Path(python_in(folder, "import site; print(site.getsitepackages()[0])").strip())
    borrowed = Path(pytest.__file__).parents[1]
    (site / "borrowed.pth").write_text(f"{borrowed}\n")
    pip_in(folder, "install", "--no-deps", "--no-index", str(wheel))
    return folder


def python_in(folder: Path, code: str) -> str:
    return run(folder / "bin" / "python", "-c", code, cwd=folder)


def pip_in(folder: Path, *arguments: str) -> None:
    pip = (sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "--quiet")
    run(*pip, *arguments, "--disable-pip-version-check", cwd=folder)


def files_of(package: Path) -> set[str]:
    return {str(path.relative_to(package)) for path in package.rglob("*") if path.is_file()}


@pytest.mark.skipif(sys.platform == "win32", reason="modes and setpriv are those of Unix")
def test_a_user_who_may_write_to_temporary_folders_only(environment: Path, tmp_path: Path) -> None:
    """Kernels are compiled, kept in a folder of the user, and one line says so."""
    interpreter = environment / "bin" / "python"
    (package,) = environment.glob("lib/python*/site-packages/inference_lab")
    before = files_of(package)
    folders = [path for path in (package, *package.rglob("*")) if path.is_dir()]
    for folder in folders:
        folder.chmod(0o555)
    try:
        lines = []
        for _ in range(2):
            done = unprivileged(interpreter, "-c", FIRST_USE, TMPDIR=str(tmp_path))
            assert done.returncode == 0, done.stderr
            assert done.stdout.split() == [str(package / "__init__.py"), "0.5"]
            lines.append([line for line in done.stderr.splitlines() if "compiling" not in line])
        (folder,) = tmp_path.iterdir()
        assert list(folder.rglob("*.nbi")) and folder.stat().st_mode & 0o777 == 0o700
        for (line,) in lines:
            assert str(folder) in line and "NUMBA_CACHE_DIR" in line
        # Nor is there a folder for temporary files: slower, and nothing else.
        code = "import tempfile; tempfile.tempdir = '/dev/null'\n" + FIRST_USE
        done = unprivileged(interpreter, "-c", code)
        assert done.returncode == 0 and done.stdout.endswith(" 0.5\n"), done.stderr
        assert "not kept" in done.stderr
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert files_of(package) == before


def test_nothing_of_the_package_stays_when_it_is_replaced(
    environment: Path, wheel: Path, tmp_path: Path
) -> None:
    """A folder that stays would shadow the editable installation that comes next."""
    (package,) = environment.glob("lib/python*/site-packages/inference_lab")
    code = f"import os; os.environ['XDG_CACHE_HOME'] = {str(tmp_path)!r}\n" + FIRST_USE
    assert python_in(environment, code).endswith(" 0.5\n")
    assert list(tmp_path.rglob("*.nbi"))
    assert all(path.endswith(".pyc") for path in files_of(package) if "__pycache__" in path)
    pip_in(environment, "uninstall", "--yes", "inference-lab")
    assert not package.exists()
    pip_in(environment, "install", "--no-deps", "--no-index", str(wheel))
    version = run(environment / "bin" / "inference-lab", "--version", cwd=tmp_path)
    assert inference_lab.__version__ in version


def test_installation_without_studies(installed: Path, tmp_path: Path) -> None:
    """Solving, comparing and clustering need none; ``reproduce`` says how to get them."""
    small = tmp_path / "small"
    shutil.copytree(installed / "inference_lab", small / "inference_lab")
    for name in ("studies", "reports"):
        shutil.rmtree(small / "inference_lab" / name)
    code = (
        "import importlib, pkgutil, sys; sys.path.insert(0, sys.argv[1])\n"
        "sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in repr(f).lower()]\n"
        "import inference_lab as il\n"
        "for module in pkgutil.walk_packages(il.__path__, 'inference_lab.'):\n"
        "    if not module.name.endswith('__main__'):\n"
        "        importlib.import_module(module.name)\n"
        "assert il.__file__.startswith(sys.argv[1])\n"
        "from inference_lab.harness.executors import code_digest\n"
        "assert code_digest()\n"
        "graph = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])\n"
        "print(il.solve(graph, 'ilp').status)\n"
        "from inference_lab.cli import main\n"
        "main(['reproduce', 'estep-regimes'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, small],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "optimal\n", done.stderr
    assert done.returncode == 2
    assert "has no studies and no reports; install the whole package" in done.stderr


def test_declared_pythons_are_tested_on_every_system() -> None:
    """The file for a public home has them all, and README states how each is tested."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    last_words = [text.rpartition(" ")[2] for text in project["classifiers"]]
    declared = [word for word in last_words if re.fullmatch(r"3\.\d+", word)]
    workflow = (ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8")
    (listed,) = re.findall(r"python: \[(.*)\]", workflow)
    assert listed == ", ".join(f'"{version}"' for version in declared)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme.partition("## What is supported")[2].partition("##")[0]
    assert set(re.findall(r"\b3\.\d+", table)) == set(declared)
    for system in ("linux", "macos", "windows"):
        assert system in table.lower()
        assert system.replace("linux", "ubuntu") in workflow


def test_versions_agree() -> None:
    """Package, metadata and changelog have the same version."""
    assert version("inference-lab") == inference_lab.__version__
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert inference_lab.__version__ in changelog


@pytest.mark.parametrize("name", ["solvers", "problems"])
def test_generic_names_are_refused(name: str) -> None:
    """In the repository, ``import solvers`` raises an error with the installed name."""
    code = f"try:\n    import {name}\nexcept ImportError as problem:\n    print(problem)"
    assert f"'inference_lab.{name}', not '{name}'" in python(code, ROOT)


@pytest.mark.parametrize("name", ["solvers", "problems", "reports"])
def test_links_for_type_checkers(name: str) -> None:
    """Type checkers find the installed layout: links that lead to the folders."""
    link = ROOT / "typings" / "inference_lab" / name
    assert link.is_symlink()
    assert link.readlink() == Path("..", "..", name)
    assert link.resolve() == ROOT / name


def _entrances() -> list[str]:
    """Return the rooms, the modules beside them, solvers and problems: not all inner modules.

    Import cycles within are checked by ``test_house.py``.
    """
    names = {"inference_lab"}
    for package in ("inference_lab", "inference_lab.solvers", "inference_lab.problems"):
        path = importlib.import_module(package).__path__
        names |= {module.name for module in pkgutil.iter_modules(path, f"{package}.")}
    return sorted(names)


@pytest.mark.parametrize("name", _entrances())
def test_module_imports_by_itself(name: str) -> None:
    """No module needs an earlier import of another one."""
    # In a separate process numba alone takes half a second; here, only modules that the package
    # itself has loaded are forgotten.
    modules = {n: m for n, m in sys.modules.items() if n.split(".")[0] == "inference_lab"}
    for loaded in modules:
        del sys.modules[loaded]
    try:
        assert importlib.import_module(name).__name__ == name
    finally:
        for loaded in [n for n in sys.modules if n.split(".")[0] == "inference_lab"]:
            del sys.modules[loaded]
        sys.modules.update(modules)


@pytest.mark.parametrize(
    "code",
    [
        "import inference_lab",
        "import inference_lab.cli",
        "import inference_lab as il; il.FactorGraph.potts([[0.0, 1.0]] * 2, [(0, 1)], 0.5)",
        "import inference_lab as il; il.available_solvers(), il.available_problems()",
        "from inference_lab.cli import main; main(['--help'], standalone_mode=False)",
        "from inference_lab.cli import main; main(['compare', '--help'], standalone_mode=False)",
        "from inference_lab.cli import main; main(['list', 'solvers'], standalone_mode=False)",
    ],
    ids=["import", "command", "graph", "listing", "help", "compare-help", "list-solvers"],
)
def test_nothing_heavy_is_loaded(code: str, tmp_path: Path) -> None:
    """Listing does not load libraries that it does not use."""
    tail = "; import sys; print(); print('loaded:', *{m.split('.')[0] for m in sys.modules})"
    loaded = python(code + tail, tmp_path).splitlines()[-1].split()[1:]
    assert "inference_lab" in loaded
    heavy = {*HEAVY, "numpy"} if code == "import inference_lab.cli" else {*HEAVY}
    assert sorted(heavy & set(loaded)) == []


def test_public_names() -> None:
    """Every public name can be loaded and is listed; others raise AttributeError."""
    for name in inference_lab.__all__:
        assert getattr(inference_lab, name) is not None
        assert name in dir(inference_lab)
    with pytest.raises(AttributeError, match="no attribute 'slove'"):
        _ = inference_lab.slove


@pytest.mark.parametrize(
    "name",
    [
        "clustering",
        "conformance",
        "constraints",
        "contract",
        "convert",
        "io",
        "problem",
        "specs.settings",
        "studies",
    ],
)
def test_public_modules_list_public_names_only(name: str) -> None:
    """``dir`` and completion show the public names only."""
    module = importlib.import_module(f"inference_lab.{name}")
    assert dir(module) == sorted(module.__all__)
    assert all(getattr(module, public) is not None for public in module.__all__)
