"""What the shell offers after a tab."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import CompletionItem, ShellComplete

from inference_lab.cli import main


def offered(line: str) -> list[CompletionItem]:
    *words, incomplete = line.split(" ")
    return ShellComplete(main, {}, "inference-lab", "_UNUSED").get_completions(words, incomplete)


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("solve x.uai --solver loop", ["loopy-bp"]),
        ("solve x.uai --solver=trw", ["trw-bp", "trw-s"]),
        ("compare ising --solver icm --solver mean", ["mean-field"]),
        ("compare ising pot", ["potts-grid"]),
        ("solve st", ["stereo"]),
        ("check ic", ["icm"]),
        ("warm-up icm mp", ["mplp"]),
        ("warm-up --problem max", ["max-cut"]),
        ("list solvers bru", ["brute-force"]),
        ("list problems e", ["estep"]),
        ("list p", ["problems"]),
        ("reproduce estep", ["estep-regimes", "estep-scaling"]),
        ("repo", ["report"]),
    ],
)
def test_names_go_on(line: str, names: list[str]) -> None:
    assert [item.value for item in offered(line) if item.type == "plain"] == names


def test_names_come_with_what_they_are_and_with_files() -> None:
    name, files = offered("solve x.uai --solver icm")
    assert name.help.startswith("Iterated conditional modes") and files.type == "file"
    assert [item.type for item in offered("reproduce estep-r")] == ["plain", "dir"]


def test_bash_gets_them() -> None:
    command = Path(sys.executable).with_name("inference-lab")
    words = {"COMP_WORDS": "inference-lab check swen", "COMP_CWORD": "2"}
    done = subprocess.run(
        [command],
        env={**os.environ, **words, "_INFERENCE_LAB_COMPLETE": "bash_complete"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "plain,swendsen-wang" in done.stdout and done.stderr == ""
