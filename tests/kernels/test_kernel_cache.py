"""Where compiled kernels are kept, and what the person who waits for them is told."""

from __future__ import annotations

import gc
import logging
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from inference_lab import _numba
from inference_lab._numba import kernel
from inference_lab.compile_timer import CompileNotice

#: Solves a small graph by a solver whose kernels take more than two seconds to compile.
SOLVE = (
    "import inference_lab as il\n"
    "g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])\n"
    "print(il.solve(g, 'icm').energy)\n"
)


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give this process a cache of its own, a folder for temporary files, and no variable."""
    for name in ("cache", "temporary"):
        (tmp_path / name).mkdir(mode=0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(_numba.config, "CACHE_DIR", "")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "inference_lab"]


def test_kernels_lie_in_the_cache_of_the_user(
    places: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = _numba._cache_root()
    assert root == places / "cache" / "inference-lab" / "kernels"
    assert root.stat().st_mode & 0o777 == 0o700
    assert lines(caplog) == []


def test_kernels_never_lie_in_the_package() -> None:
    package = Path(_numba.__file__).parent
    assert _numba._FOLDER is None or package not in Path(_numba._FOLDER).parents


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_can_write_is_not_used(
    places: Path, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    """Numba's index is a pickle, so whoever writes it runs code."""
    shared = places / "cache" / "inference-lab" / "kernels"
    shared.mkdir(parents=True)
    shared.chmod(mode)
    root = _numba._cache_root()
    assert root is not None and root.parent == places / "temporary"
    (line,) = lines(caplog)
    assert str(root) in line and "NUMBA_CACHE_DIR" in line
    root.chmod(mode)
    assert _numba._cache_root() is None


def test_private_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "own"
    folder.mkdir(mode=0o700)
    assert _numba.is_private(folder)
    link = tmp_path / "link"
    link.symlink_to(folder)
    file = tmp_path / "file"
    file.touch(mode=0o600)
    assert not any(map(_numba.is_private, (link, file, tmp_path / "missing")))
    # Whoever can rename a folder can replace it, unless the folder above is sticky.
    tmp_path.chmod(0o777)
    assert not _numba.is_private(folder)
    tmp_path.chmod(0o1777)
    assert _numba.is_private(folder)
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    assert not _numba.is_private(folder)


def test_a_folder_named_by_the_user_comes_first(
    places: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_numba.config, "CACHE_DIR", str(places / "named" / "below"))
    assert _numba._cache_root() == places / "named" / "below"
    assert lines(caplog) == []
    # One that cannot be made is named in the line.
    (places / "file").touch()
    monkeypatch.setattr(_numba.config, "CACHE_DIR", str(places / "file" / "below"))
    root = _numba._cache_root()
    assert root is not None and root.parent == places / "temporary"
    assert f"NUMBA_CACHE_DIR={places / 'file' / 'below'}" in lines(caplog)[0]


def test_without_any_place_kernels_are_compiled_and_not_kept(
    places: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (places / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(places / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(places / "file"))
    assert _numba._cache_folder() is None
    assert len(lines(caplog)) == 1 and "not kept" in lines(caplog)[0]
    monkeypatch.setattr(_numba, "_FOLDER", None)

    @kernel
    def twice(value):
        return 2 * value

    assert twice(2.0) == 4.0 and twice.stats.cache_path is None


def test_unused_folders_are_removed_by_the_next_release(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = _numba._cache_root()
    assert root is not None
    old, used = root / "0.0.1-abc" / "gone-123", root / "0.0.2-abc" / "used-123"
    long_ago = time.time() - 40 * 86400
    for folder in (old, used):
        (folder / "below").mkdir(parents=True)
        (folder / "below" / "kernel.nbi").touch()
        os.utime(folder, (long_ago, long_ago))
    # A process that loads kernels of a module notes it.
    monkeypatch.setattr(_numba, "_module_digest", lambda function: "123")
    monkeypatch.setattr(kernel, "__module__", "used")
    assert _numba._module_folder(kernel, str(used.parent)) == used
    for folder in (old.parent, used.parent):
        os.utime(folder, (long_ago, long_ago))
    assert Path(_numba._cache_folder() or "").parent == root
    assert not old.exists() and (used / "below" / "kernel.nbi").exists()
    os.utime(old.parent, (long_ago, long_ago))
    _numba._prune(root)
    assert not old.parent.exists() and used.exists()


# ---------------------------------------------------------------------- the notice


@pytest.fixture
def impatient() -> CompileNotice:
    """Return a notice that reports at once."""
    notice = CompileNotice()
    notice.patience = 0.0
    return notice


def wait(notice: CompileNotice, module: str) -> None:
    notice.begin(module)
    notice.begin(module)  # a kernel that the first one calls
    time.sleep(0.05)
    notice.end()
    notice.end()


def test_a_compilation_is_reported_once_for_each_solver(
    impatient: CompileNotice, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        with impatient.about("auto"):
            wait(impatient, "inference_lab.kernels.descent")
            with impatient.about("trw-s"):
                wait(impatient, "somebody.else")
    wait(impatient, "inference_lab.certificates.hartigan")
    # Kernels of other packages, outside of a run.
    wait(impatient, "somebody.else")
    assert [line.removeprefix("inference-lab: compiling ") for line in lines(caplog)] == [
        "auto, once per machine",
        "trw-s, once per machine",
        "kernels of certificates.hartigan, once per machine",
    ]


def test_a_short_compilation_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    notice = CompileNotice()
    with notice.about("icm"):
        wait(notice, "inference_lab.kernels.descent")
    assert lines(caplog) == []


def test_worker_processes_and_silenced_loggers_report_nothing(
    impatient: CompileNotice, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, logger="inference_lab"), impatient.about("icm"):
        wait(impatient, "inference_lab.kernels.descent")
    impatient.silent = True
    with impatient.about("trw-s"):
        wait(impatient, "inference_lab.kernels.descent")
    assert lines(caplog) == []


def test_garbage_is_collected_again_after_a_compilation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_numba, "_FOLDER", str(tmp_path))
    during: list[bool] = []
    monkeypatch.setattr(_numba.notice, "begin", lambda module: during.append(gc.isenabled()))
    monkeypatch.setattr(_numba.notice, "end", lambda: None)

    @kernel
    def thrice(value):
        return 3 * value

    assert thrice(2.0) == 6.0
    assert during and not any(during) and gc.isenabled()


def test_the_first_call_of_a_script_reports_to_stderr(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    texts = []
    for patience in ("0.0", "0.0", "1e9"):
        code = f"from inference_lab import compile_timer as c; c._PATIENCE = {patience}\n" + SOLVE
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0 and float(done.stdout) == 0.5, done.stderr
        texts.append(done.stderr)
    assert texts[0] == "inference-lab: compiling icm, once per machine\n"
    # Loading is not compiling.
    assert texts[1:] == ["", ""]


# ---------------------------------------------------------------------- what is compiled


def test_steps_are_compiled_for_no_literal_constant() -> None:
    """Numba compiles a version for each literal that a loop begins with, and never calls it."""
    import inference_lab as il
    from inference_lab.kernels import ejection_chains, heap, treewidth_moves

    rng = np.random.default_rng(0)
    pairs = np.stack(np.triu_indices(12, 1), axis=1)
    graph = il.FactorGraph.potts(rng.random((12, 3)), pairs, rng.choice([-1.0, 1.0], len(pairs)))
    il.solve(graph, "memetic", max_iterations=3)
    il.solve(graph, "kernighan-lin", max_iterations=3)
    for module in (ejection_chains, heap, treewidth_moves):
        for name, signature in _numba_signatures(module):
            assert not re.search(r"Literal\[int\]", str(signature)), (name, signature)


def _numba_signatures(module: object) -> list[tuple[str, object]]:
    return [
        (name, signature)
        for name, value in vars(module).items()
        # Steps of other modules are imported.
        if getattr(value, "__module__", None) == getattr(module, "__name__", "")
        for signature in getattr(value, "signatures", ())
    ]
