"""Style beyond the linter: unfinished work, paths of one machine, mixed spelling."""

from __future__ import annotations

import ast
import io
import re
import shutil
import subprocess
import tokenize
from collections import Counter
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

#: Words that say how a value came about and not what it is, and how often names may be one.
PARTICIPLES = frozenset("found given own known kept left chosen held most least each some".split())
MOST_PER_1000_NAMES = 8.0

#: Forms that stand for a missing noun, and how often they may occur.
MOST_PER_1000_WORDS = {
    r"\bwhat\b": 1.0,
    r"\b(tells?|told|says?|said|hears?|heeds?)\b": 0.6,
    r"\b(whoever|nobody|somebody|those of|that of)\b": 0.3,
    r"\b(is|are) no\b(?! longer| more| less)": 0.3,
}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)


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
    matches = [
        f"{name}:{number}: {line.strip()}"
        for name, text in _texts().items()
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(UNWANTED[what], line)
    ]
    assert matches == []


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


def _prose() -> str:
    """Return the docstrings and comments of the package, and the pages of the site."""
    words = []
    for name, text in _texts().items():
        if name.endswith(".py") and name.startswith(("inference_lab/", "solvers/", "problems/")):
            nodes = [n for n in ast.walk(ast.parse(text)) if isinstance(n, DOCUMENTED)]
            words += [ast.get_docstring(node) or "" for node in nodes]
            tokens = tokenize.generate_tokens(io.StringIO(text).readline)
            words += [token.string for token in tokens if token.type == tokenize.COMMENT]
        elif name.endswith(".md") and name.startswith(("docs/", "README", "CONTRIBUTING")):
            words.append(text)
    return "\n".join(words)


def test_nouns_are_named_and_machines_do_not_speak() -> None:
    """Each form is rare in docstrings, comments and pages."""
    prose = _prose()
    for form, limit in MOST_PER_1000_WORDS.items():
        count = len(re.findall(form, prose, re.IGNORECASE))
        assert count <= limit * len(prose.split()) / 1000, form


def test_names_are_nouns() -> None:
    """Variables, arguments and attributes hold labels, costs or rows, not what was found."""
    names: list[str] = []
    for name, text in _texts().items():
        if not name.endswith(".py"):
            continue
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Name(id=word, ctx=ast.Store()) | ast.Attribute(attr=word, ctx=ast.Store()):
                    names.append(word)
                case ast.arg(arg=word):
                    names.append(word)
    riddles = [word for word in names if word.strip("_") in PARTICIPLES]
    assert len(riddles) <= MOST_PER_1000_NAMES * len(names) / 1000, Counter(riddles)


def test_literals_are_not_packed_with_stars() -> None:
    """Unpacked tuples of constants only save lines: ``f(*(a, b))`` is ``f(a, b)``."""
    packed = [
        f"{name}:{node.lineno}"
        for name, text in _texts().items()
        if name.endswith(".py")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Starred) and isinstance(node.value, ast.Tuple)
    ]
    assert packed == []


def test_numbers_have_their_leading_zero() -> None:
    """In pages: 0.05, not .05. Code is left out."""
    bare = [
        f"{name}: {match.group()}"
        for name, text in _texts().items()
        if name.endswith(".md")
        for match in re.finditer(
            r"(?<![\w.\])}/\\`])\.\d+",
            re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", "", text, flags=re.S),
        )
    ]
    assert bare == []


@pytest.mark.parametrize(
    ("subject", "accepted"),
    [("Cut an import", True), ("Cuts an import", False), ("Cutting", False), ("x" * 80, False)],
)
def test_hook_checks_subjects_of_commits(tmp_path: Path, subject: str, accepted: bool) -> None:
    """The hook accepts an imperative of at most 71 characters."""
    (tmp_path / "message").write_text(f"{subject}\n\nA body.\n", encoding="utf-8")
    done = subprocess.run([ROOT / ".githooks" / "commit-msg", tmp_path / "message"], check=False)
    assert (done.returncode == 0) == accepted
