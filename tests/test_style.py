"""Style beyond the linter: unfinished work, paths of one machine, mixed spelling."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from places import ROOT

#: Patterns that no text file of the repository may hold, by name.
UNWANTED = {
    "unfinished work": r"\b(TODO|FIXME|XXX|HACK)\b",
    "a path of one machine": r"(?<![\w.])/(home|Users|root|work|mnt|tmp)/\w",
    # Words in names of other libraries are permitted: color, initializer, maximize, normalized;
    # "marginalize" in quotes is an operation of pgmpy, sklearn.neighbors a module.
    "American spelling": (
        r"(?i)\b(behavior|(?<!sklearn\.)neighbor|label(ed|ing)\b|model(ed|ing)\b|analyz|favor|"
        r"((?!marginalize\")marginal|organ|recogn|serial|summar|vector|discret)iz)"
    ),
}


def _texts() -> dict[str, str]:
    """Return the text files of the repository, except this one."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a git repository: nothing says which files belong to the project")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    texts = {}
    for name in listed.stdout.split("\0"):
        path = ROOT / name
        if path.is_file() and path != Path(__file__):
            try:
                texts[name] = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue  # a picture or an archive
    return texts


@pytest.mark.parametrize("what", UNWANTED)
def test_text_files(what: str) -> None:
    """No tracked text file holds the pattern."""
    found = [
        f"{name}:{number}: {line.strip()}"
        for name, text in _texts().items()
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(UNWANTED[what], line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("unfinished work", "# TODO: the rest"),
        ("a path of one machine", "data in /home/me/data"),
        ("American spelling", "the neighboring label"),
        ("American spelling", "Vectorized over draws"),
    ],
)
def test_patterns_match_their_examples(what: str, line: str) -> None:
    """Each pattern matches an example of it."""
    assert re.search(UNWANTED[what], line)
