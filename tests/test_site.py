"""The site: it documents all public names, its links are valid, and its examples run.

The pages are built without the gallery, for the builder's warnings. Tests of the built site are
skipped if it is missing; ``make docs`` builds it and runs these tests.
"""

from __future__ import annotations

import importlib
import inspect
import lzma
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from places import ROOT

import inference_lab as il

DOCS = ROOT / "docs"
SITE = ROOT / "build" / "docs"
EXAMPLES = sorted((ROOT / "examples").glob("plot_*.py"))

#: Modules that users import from, with the offered names; None: its ``__all__``.
PUBLIC = {
    "inference_lab": None,
    "inference_lab.clustering": None,
    "inference_lab.constraints": None,
    "inference_lab.convert": None,
    "inference_lab.io": None,
    "inference_lab.conformance": ("run_checks", "solver_checks", "NotApplicable"),
}


def documented(folder: Path) -> dict[str, Any]:
    """Return the objects documented by directives of the pages in a folder, by name."""
    objects = {}
    for path in sorted(folder.glob("*.md")):
        module = ""
        directive = r"\.\. (auto\w+|currentmodule):: (\S+)\n((?:   :.*\n)*)"
        for kind, name, options in re.findall(directive, path.read_text(encoding="utf-8")):
            if kind == "currentmodule":
                module = name
            elif kind == "automodule":
                home = importlib.import_module(name)
                members = re.search(r":members: *(.*)", options)
                assert members is not None, f"{path.name}: {name} shows none of its members"
                listed = members[1].split(", ") if members[1] else home.__all__
                objects |= {f"{name}.{member}": getattr(home, member) for member in listed}
            else:
                full = f"{module}.{name}" if module and "." not in name else name
                place, _, attribute = full.rpartition(".")
                objects[full] = getattr(importlib.import_module(place), attribute)
    return objects


def test_every_method_has_its_page() -> None:
    """Each solver of the registry is on a page of the methods."""
    shown = {value.__module__.rpartition(".")[2] for value in documented(DOCS / "methods").values()}
    assert sorted(set(il.available_solvers()) - {name.replace("_", "-") for name in shown}) == []


def test_every_family_has_its_page() -> None:
    """Each family of problems is in the reference."""
    shown = {value.__module__.rpartition(".")[2] for value in documented(DOCS / "api").values()}
    assert sorted(set(il.available_problems()) - {name.replace("_", "-") for name in shown}) == []


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_in_the_reference(module: str) -> None:
    """Every public name has an entry, with a docstring."""
    shown = documented(DOCS / "api")
    home = importlib.import_module(module)
    # Names of types are explained at the arguments that use them.
    named = PUBLIC[module] or home.__all__
    values = [(name, getattr(home, name)) for name in named]
    names = [name for name, v in values if inspect.isclass(v) or inspect.isroutine(v)]
    missing = [
        name
        for name in names
        if f"{module}.{name}" not in shown
        and getattr(home, name) not in [v for k, v in shown.items() if k.endswith(f".{name}")]
    ]
    assert missing == []
    assert [name for name in names if not inspect.getdoc(getattr(home, name))] == []


# ---------------------------------------------------------------------- the builder


@pytest.mark.xdist_group("site-build")
def test_pages_build_without_warnings(tmp_path: Path) -> None:
    """All pages but the gallery's pictures build without warnings of headings and links."""
    pages = shutil.ignore_patterns("gallery", "_build")
    shutil.copytree(DOCS, tmp_path / "docs", ignore=pages)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    study, ours = tmp_path / "reports" / "estep-regimes", ROOT / "reports" / "estep-regimes"
    study.mkdir(parents=True)
    (study / "figures").symlink_to(ours / "figures")
    for name in ("estimators", "estimators-by-size"):
        (tmp_path / "reports" / name).symlink_to(ROOT / "reports" / name)
    # The records of one data set suffice for the decision table; all of them take much longer.
    with lzma.open(ours / "runs.jsonl.xz", "rt", encoding="utf-8") as records:
        lines = [line for line in records if "estep(data=iris," in line]
    (study / "runs.jsonl").write_text("".join(lines), encoding="utf-8")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"]
    command += ["-D", "sphinx_gallery_conf.plot_gallery=False", "--builder", "dummy"]
    done = subprocess.run(
        [*command, "docs", "build"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")


# ---------------------------------------------------------------------- examples

#: Smaller constants and time limits than on the site, so that an example takes a second.
SMALL = {
    "plot_denoising": {"height=48, width=64, levels=12": "height=12, width=16, levels=6"},
    "plot_em_animated": {"STEPS = 8": "STEPS = 1"},
    "plot_flipped_constraints": {"DRAWS = 4": "DRAWS = 1", "[0.0, 0.1, 0.2, 0.3]": "[0.0, 0.2]"},
    "plot_ldpc": {"WORDS = 4": "WORDS = 1", "[0.02, 0.04, 0.06, 0.08]": "[0.02]"},
    "plot_marginals": {"[0.25, 0.5, 1.0, 2.0]": "[0.5]", "size=8": "size=4"},
    "plot_side_chains": {"residues=40": "residues=12"},
    "plot_stereo": {"height=70, width=90": "height=20, width=30"},
    "plot_table_for_a_paper": {"height=16, width=16": "height=5, width=5"},
    "plot_wrong_solver": {
        "solver_checks(Hopeful())": "solver_checks(Hopeful(), graphs_per_family=1)"
    },
}


@pytest.mark.usefixtures("unforked")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each script of the gallery runs to its end and draws, with smaller inputs than shown."""
    import matplotlib.pyplot as plt

    text = path.read_text(encoding="utf-8")
    assert text.startswith('"""\n')
    for message, smaller in SMALL[path.stem].items():
        assert message in text, f"{path.name} does not say {message!r} any more"
        text = text.replace(message, smaller)
    text = re.sub(r"time_limit=[\d.]+", "time_limit=0.2", text)
    script = tmp_path / path.name
    script.write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    plt.switch_backend("agg")
    drawn = []

    def show() -> None:
        for number in plt.get_fignums():
            plt.figure(number).canvas.draw()
            drawn.append(number)

    monkeypatch.setattr(plt, "show", show)
    try:
        runpy.run_path(str(script))
    finally:
        plt.close("all")
    assert drawn


# ---------------------------------------------------------------------- the built site


class _Page(HTMLParser):
    """The anchors, link targets and loaded files of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.anchors.add(value or "")
            if name in ("href", "src") and value:
                self.links.append(value)
                if name == "src" or tag == "link":
                    self.loaded.append(value)


@pytest.fixture(scope="module")
def site() -> Path:
    """Return the folder of the built site."""
    if not (SITE / "index.html").is_file():
        if os.environ.get("INFERENCE_LAB_SITE") == "required":
            pytest.fail(f"there is no site in {SITE}")
        pytest.skip("the site is not built: make docs")
    return SITE


def test_links_of_the_built_site(site: Path) -> None:
    """Every internal link leads to an existing file and anchor."""
    pages = {path: _Page(path) for path in site.rglob("*.html") if "_modules" not in path.parts}
    assert len(pages) > 20
    # A page is complete without a network.
    elsewhere = {v for page in pages.values() for v in page.loaded if urlsplit(v).netloc}
    assert elsewhere == set()
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            target_page = pages.get(target)
            if not target.is_file() or (
                anchor and target_page and anchor not in target_page.anchors
            ):
                broken.append((path.relative_to(site).as_posix(), link))
    assert broken == []


def test_formulas_are_set(site: Path) -> None:
    """No formula is left as raw commands."""
    for path in (site / "methods").glob("*.html"):
        formulas = re.findall(r"<math.*?</math>", path.read_text(encoding="utf-8"), flags=re.S)
        assert not re.findall(r"\\\w+|&#x0005C;\w+", " ".join(formulas)), path.name


@pytest.fixture
def opened(browser: Any, site: Path) -> Iterator[Any]:
    """Open pages that must neither raise errors nor access the network."""
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page, troubles = context.new_page(), []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    context.route(re.compile("^(?!file:|data:)"), lambda route: troubles.append(route.request.url))
    yield page
    context.close()
    assert troubles == []


def test_pages_in_a_browser(opened: Any, site: Path) -> None:
    """Advice fits on one screen, tables have their intervals, and no content overflows."""
    opened.set_viewport_size({"width": 1280, "height": 800})
    for name in ("which-solver", "which-estimator"):
        opened.goto((site / f"{name}.html").as_uri())
        article = opened.locator("article").bounding_box()
        assert article["y"] + article["height"] <= 800, name
    opened.set_viewport_size({"width": 390, "height": 844})
    opened.goto((site / "studies.html").as_uri())
    table = opened.locator("table.which")
    assert table.locator("tbody tr").count() >= 8
    assert re.search(r"\d\.\d\d \[\d+\.\d\d, \d+\.\d\d\]", table.inner_text())
    assert opened.locator("table").count() == 6
    assert opened.evaluate("document.documentElement.scrollWidth") <= 390
    opened.goto((site / "api" / "clustering.html").as_uri())
    assert opened.locator("table.estimators tbody tr").count() == 24
    assert opened.evaluate("document.documentElement.scrollWidth") <= 390
    opened.goto((site / "methods" / "messages.html").as_uri())
    formula = opened.locator("div.math math").first
    assert formula.bounding_box()["height"] > 15
    assert opened.evaluate("document.documentElement.scrollWidth") <= 390
