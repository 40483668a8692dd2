"""HTML page of a report: data create no elements, and it works in a browser."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given
from markup import Markup
from sample_document import ANY_TEXT, SCRIPT, SOLVERS, first_curve, sample_document, table_of

from inference_lab.reporting import page
from inference_lab.reporting.charts import Drawing
from inference_lab.reporting.document import (
    Block,
    Cell,
    Code,
    Column,
    Document,
    Items,
    Picture,
    Section,
    Table,
    Text,
)
from inference_lab.reporting.page import render_page
from inference_lab.reporting.printable import printable, printable_lines
from inference_lab.reporting.writing import write_document

#: An empty chart.
BLANK = Drawing({}, "<svg/>", b"")


def _elements(page: str) -> Markup:
    """Read a page; break opportunities within names are not part of the content."""
    return Markup(re.sub(r'<wbr>|<span class="word">([^<]*)</span>', r"\1", page))


def _page_of(document: Document) -> str:
    document = document.numbered()
    drawings = {picture.stem: BLANK for picture in document.pictures()}
    files = {f"{table.stem}.csv": "a" for table in document.tables()}
    with mock.patch.object(page, "javascript", lambda: "let vegaEmbed;"):
        return render_page(document, drawings, files)


def _page_with(block: Block) -> str:
    return _page_of(Document("t", sections=(Section("s", (block,)),)))


@given(ANY_TEXT)
@example("</code></pre><script>alert(1)</script>")
@example("  two\n\n\tlines & <b>")
def test_code_keeps_its_lines(text: str) -> None:
    """Code is one element with unchanged text."""
    page = _page_with(Code(text))
    elements = _elements(page)
    assert [elements.tags.count(tag) for tag in ("pre", "code", "script")] == [1, 1, 1]
    inside = re.search(r"<pre tabindex=\"0\"><code>(.*)</code></pre>", page, re.DOTALL)
    assert inside is not None
    assert html.unescape(inside[1]) == printable_lines(text)


def _full_of(text: str) -> Document:
    """Return a document with a text in every possible place."""
    cells = (
        Cell(text, mark="best", title=text),
        Cell(text, 1.0, "failed", text),
        Cell(text, title=text),
    )
    columns = (Column(text, right=False, help=text), Column(text, help=text), Column(text))
    blocks = (
        table_of(text, text, columns, (cells,), note=text),
        Picture(text, text, text, dict),
        Text((text,)),
        Items((text,)),
    )
    inner = (Section(text, blocks, folded=True),)
    return Document(
        text, ((text, text),), (text,) * 7, (text,), (Section(text, blocks, sections=inner),)
    )


# ---------------------------------------------------------------------- escaping


@given(ANY_TEXT)
@example(SCRIPT)
@example('"><img src=x onerror=alert(1)>')
@example("' onclick='alert(1)")
@example("</script></style></title><!--")
@example("-->]]>&lt;&#60;")
@example("{{ 7 * 7 }}{% for x in y %}")
def test_no_element_comes_from_data(text: str) -> None:
    """A text anywhere in a document yields the same elements and attributes as a plain word."""
    text = f"x{text}"  # content in every place
    elements, plain = _elements(_page_of(_full_of(text))), _elements(_page_of(_full_of("word")))
    assert elements.elements == plain.elements
    shown = printable(text)
    assert Counter(elements.texts)[shown] == Counter(plain.texts)["word"]
    assert Counter(elements.of("title"))[shown] == Counter(plain.of("title"))["word"] > 0
    assert Counter(elements.of("aria-label"))[shown] == Counter(plain.of("aria-label"))["word"] > 0


def test_the_page_is_alone() -> None:
    """Attributes name only parts and files of the report, and requests are forbidden."""
    page = _page_of(sample_document())
    elements = _elements(page)
    ids = elements.of("id")
    assert len(set(ids)) == len(ids)
    for tag, name, value in elements.attributes:
        if name in ("href", "src", "action", "data", "srcset", "poster"):
            # Files of the report itself, of which the page has a copy.
            assert re.match(r"#|tables/[a-z0-9-]+\.(csv|tex)$|figures/[a-z0-9-]+\.svg$", value), (
                tag,
                name,
                value,
            )
            if value.startswith("#"):
                assert value[1:] in ids
        assert not name.startswith("on")
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)
    policy = next(value for _, name, value in elements.attributes if name == "content")
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digests = [hashlib.sha256(script.encode()).digest() for script in scripts]
    allowed = [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
    assert policy.startswith("default-src 'none'; ") and len(scripts) == 2
    assert f"script-src {' '.join(allowed)};" in policy


def _levels(document: Document) -> list[int]:
    """Return the levels of the headings of a page."""
    tags = _elements(_page_of(document)).tags
    return [int(tag[1]) for tag in tags if re.fullmatch("h[1-6]", tag)]


def test_headings_leave_no_level_out() -> None:
    """One heading of the first level, and none deeper than one below the one before."""
    levels = _levels(sample_document())
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))


def test_deep_sections() -> None:
    """Sections deeper than the heading levels of HTML get the last level."""
    section = Section("7")
    for title in "65432":
        section = Section(title, sections=(section,))
    assert _levels(Document("1", sections=(section,))) == [1, 2, 3, 4, 5, 6, 6]


def test_values_are_for_sorting() -> None:
    """Cells carry numbers readable by JavaScript if their text is not the number."""
    values = (1.5, -0.25, float("inf"), float("-inf"), float("nan"), None, 7, 1e-300)
    columns = tuple(Column(str(at)) for at in range(len(values)))
    cells = (Cell("1,500.0", 1500.0), Cell("1.50", 1.5004), Cell("7", None))
    for row, shown in (
        ([Cell("x", value) for value in values], "1.5 -0.25 Infinity -Infinity 7 1e-300"),
        (cells, "1.5004 "),
    ):
        page = _page_with(table_of("t", "", columns[: len(row)], (row,)))
        assert _elements(page).of("data-value") == shown.split(" ")


def _unpacked(page: str) -> list[str]:
    """Return the texts that are packed into templates, in their order."""
    packed = re.findall(r"<template[^>]*>([^<]*)</template>", page)
    return [zlib.decompress(base64.b64decode(text)).decode() for text in packed]


def test_downloads_hold_the_files(sample_files: tuple[Path, list[Path]]) -> None:
    """Files saved from the page equal the files in the folder."""
    folder, _ = sample_files
    page = (folder / "index.html").read_text(encoding="utf-8")
    *inside, files = _unpacked(page)
    elements = _elements(page + "".join(text for text in inside if text.lstrip().startswith("<")))
    names = elements.of("download")
    links = [address for address in elements.of("href") if address.startswith("tables/")]
    assert links == [f"tables/{name}" for name in names]
    assert len(names) == 2 * len(sample_document().tables())
    contents = json.loads(files)
    assert set(contents) == set(names)
    for name, content in contents.items():
        assert content.encode() == (folder / "tables" / name).read_bytes()


def test_names_are_parted_between_their_settings() -> None:
    """Long names may be broken after commas, brackets and slashes, others not at all."""

    def head(name: str) -> str:
        page = _page_with(Table("t", "", (Column("solver", [Cell(name)], right=False),)))
        match = re.search(r'<th scope="row">(.*)</th>', page)
        assert match is not None
        return match[1]

    assert head("trw-s(tighten=cycles)") == "trw-s(tighten=cycles)"
    long = "loopy-bp(damping=0.5, schedule=synchronous, max_iterations=2000)"
    assert head(long).split("<wbr>") == [
        "loopy-bp(damping=0.5, ",
        "schedule=synchronous, ",
        "max_iterations=2000)",
    ]
    pieces = head("x" * 300).split("<wbr>")
    assert "".join(pieces) == "x" * 300
    assert max(map(len, pieces)) <= 34


def test_size_of_ten_thousand_records(tmp_path: Path) -> None:
    """A page of 500 problems and 20 solvers with distinct numbers is below 1.5 MB."""
    rng = np.random.default_rng(0)
    numbers = ("energy", "primal gap %", "gap %", "bound", "seconds")
    columns = (
        Column("solver", right=False),
        *map(Column, numbers),
        Column("runs"),
        Column("status", right=False),
    )
    sections = []
    for problem in range(500):
        rows = tuple(
            (
                Cell(f"solver-{n}(setting={n})"),
                *(Cell(f"{v:.3f}", v) for v in rng.normal(size=5).tolist()),
                Cell("1", 1),
                Cell("converged"),
            )
            for n in range(20)
        )
        table = table_of(f"problem-{problem}", "One of many.", columns, rows)
        sections.append(Section(f"problem {problem}", (table,), folded=True))
    section = Section("Problem by problem", folded=True, sections=tuple(sections))
    write_document(Document("t", sections=(section,)), tmp_path)
    assert (tmp_path / "index.html").stat().st_size < 1.5e6


# ---------------------------------------------------------------------- in a browser


@pytest.fixture
def address(sample_files: tuple[Path, list[Path]]) -> str:
    """Return the address of the page of the sample report."""
    return (sample_files[0] / "index.html").as_uri()


@pytest.fixture
def visit(browser: Any, address: str) -> Iterator[Callable[..., Any]]:
    """Open the page in windows of a given size; at the end no error may have occurred in them."""
    contexts, troubles = [], []

    def opened(width: int = 1280, height: int = 900, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda m: troubles.append(m.text) if m.type != "log" else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: troubles.append(dialog.message))
        page.on(
            "request",
            lambda r: (
                troubles.append(r.url)
                if r.url.split("#")[0] != address and not r.url.startswith("data:")
                else None
            ),
        )
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert troubles == []


def _column(page: Any, title: str) -> list[str]:
    """Return the texts of a column of the summary, for the visible rows, from the top."""
    texts: list[str] = page.evaluate(
        """title => {
          const table = document.querySelector("#table-summary table");
          const at = [...table.tHead.rows[0].cells].findIndex(h => h.textContent === title);
          return [...table.tBodies[0].rows].filter(r => r.checkVisibility())
            .map(r => r.cells[at].textContent);
        }""",
        title,
    )
    return texts


def _head(page: Any, title: str) -> Any:
    return page.locator("#table-summary thead th").filter(
        has_text=re.compile(f"^{re.escape(title)}$")
    )


def _wait_for_charts(page: Any) -> None:
    page.wait_for_function("() => document.querySelectorAll('.plot > svg').length === 4")


def _gaps(*, descending: bool) -> list[str]:
    """Return the expected column of gaps, from the document alone."""
    cells = [row[1] for row in sample_document().tables()[0].rows]
    numbers = [cell for cell in cells if cell.value is not None]
    numbers.sort(key=lambda cell: cell.value or 0.0, reverse=descending)
    return [cell.text for cell in numbers] + [cell.text for cell in cells if cell.value is None]


def test_sorting_by_click_and_by_keyboard(visit: Callable[..., Any]) -> None:
    """A header sorts by number up, down, and back to the original order; gaps come last."""
    page = visit()
    before = _column(page, "mean gap %")
    head = _head(page, "mean gap %")
    assert head.get_attribute("aria-sort") == "none"
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert _column(page, "mean gap %") == _gaps(descending=False)
    page.keyboard.press("Space")
    assert head.get_attribute("aria-sort") == "descending"
    assert _column(page, "mean gap %") == _gaps(descending=True)
    assert _column(page, "mean gap %")[-1] == "-"
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "none"
    assert _column(page, "mean gap %") == before
    # Headers take the focus one after the other.
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    names = _column(page, "solver")
    assert names.index("subgraph-search(rounds=2)") == names.index("subgraph-search(rounds=1)") + 1
    assert names.index("alpha-expansion") < names.index("block-icm") < names.index("trw-s")


def test_filter(visit: Callable[..., Any]) -> None:
    """The box of a long table keeps the rows with all words; short tables have none."""
    page = visit()
    box = page.locator("#table-summary input[type=search]")
    box.fill("SUBGRAPH rounds=3")
    assert _column(page, "solver") == ["subgraph-search(rounds=3)"]
    assert page.locator("#table-summary .tools [role=status]").inner_text() == "1 of 25 rows"
    box.fill("simulated")
    _head(page, "mean gap %").get_by_role("button").click()
    assert len(_column(page, "solver")) == 3
    box.fill("")
    assert _column(page, "mean gap %") == _gaps(descending=False)
    assert page.locator("input").count() == 1


def test_folded_sections(visit: Callable[..., Any]) -> None:
    """A folded section opens by its title, and by its address."""
    page = visit()
    last = page.locator("details.section").last
    inside = last.get_by_text("One run at a time.")
    assert not inside.is_visible()
    last.locator("summary").click()
    assert inside.is_visible()
    target = page.locator("details.section", has_text="grid-35x35-potts-03").first
    assert target.get_attribute("open") is None
    page.evaluate("anchor => { location.hash = anchor; }", target.get_attribute("id"))
    page.wait_for_function("element => element.open", arg=target.element_handle())
    assert target.locator("table").is_visible()


def test_print_shows_all(visit: Callable[..., Any]) -> None:
    """In print all sections are open without controls; afterwards they are as before."""
    page = visit()
    folded = page.locator("details:not([open])")
    count = folded.count()
    assert count > 50
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert folded.count() == 0
    assert not page.locator("nav").is_visible()
    assert not page.locator("input").is_visible()
    page.set_viewport_size({"width": 700, "height": 900})  # A4 without its margins
    table = page.locator("#table-summary table").bounding_box()
    assert table["x"] + table["width"] <= 700
    page.set_viewport_size({"width": 1280, "height": 900})
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert folded.count() == count


def test_hints(visit: Callable[..., Any]) -> None:
    """Tapping a cell with a hint shows the hint below the table."""
    page = visit()
    page.locator("#table-summary td.hint").first.click()
    seen = page.locator("#table-summary .detail").inner_text()
    assert seen == "trw-s: MemoryError: 4 GiB were not enough"


@pytest.mark.parametrize("width", [390, 820, 1600])
def test_layout(visit: Callable[..., Any], width: int) -> None:
    """At any width the page does not overflow, pictures are visible, and alarms come first."""
    page = visit(width, 844)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    alarm = page.locator(".alarms").bounding_box()
    assert alarm["y"] >= 0
    assert alarm["y"] + alarm["height"] < 844
    assert page.locator(".warnings").bounding_box()["y"] > alarm["y"]
    _wait_for_charts(page)
    for figure in page.locator("figure .plot > svg").all():
        box = figure.bounding_box()
        assert box["width"] > 200
        assert box["height"] > 100
    page.evaluate("document.querySelectorAll('main details').forEach(d => { d.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    table = page.locator("#table-summary .scroll")
    table.evaluate("element => { element.scrollLeft = 9999; element.scrollTop = 200; }")
    frame = table.bounding_box()
    head = _head(page, "solver").bounding_box()
    name = page.locator("#table-summary tbody th").last.bounding_box()
    assert abs(head["x"] - frame["x"]) < 2, "the first head does not stay"
    assert abs(name["x"] - frame["x"]) < 2, "the first column does not stay"
    assert head["y"] <= frame["y"] + 60, "the head does not stay"


def test_narrow_pages_wrap_titles(visit: Callable[..., Any]) -> None:
    """Column titles take less room than on one line."""
    page = visit(500, 844)
    gap = _head(page, "mean gap %").bounding_box()["width"]
    page.set_viewport_size({"width": 1600, "height": 900})
    assert gap < _head(page, "mean gap %").bounding_box()["width"] - 10


def _luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_contrast(visit: Callable[..., Any]) -> None:
    """Text has the contrast to its background that WCAG 2.1 requires (1.4.3: 4.5 to 1)."""
    page = visit()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        pairs = page.evaluate(
            """() => ["body", ".alarms", ".warnings", ".note", "td strong", "td em",
                      ".files a", "nav a", "caption", ".lead dt", "tbody th"].map(selector => {
              const element = document.querySelector(selector);
              let ground = element;
              const of = e => getComputedStyle(e).backgroundColor;
              while (of(ground) === "rgba(0, 0, 0, 0)") ground = ground.parentElement;
              return [selector, getComputedStyle(element).color, of(ground)];
            })"""
        )
        assert len(pairs) == 11
        for selector, text, ground in pairs:
            low, high = sorted((_luminance(text), _luminance(ground)))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (scheme, selector, text, ground)
        assert (_luminance(pairs[0][2]) < 0.1) is (scheme == "dark")


def _plot(page: Any, name: str = "profile") -> Any:
    """Return a chart in the middle of the window, when all are drawn."""
    _wait_for_charts(page)
    plot = page.locator(f"#figure-{name} .plot > svg")
    plot.evaluate("svg => svg.scrollIntoView({ block: 'center' })")
    return plot


def _lines(plot: Any) -> Any:
    return plot.locator(".mark-line path")


def test_charts_have_accessible_labels(visit: Callable[..., Any]) -> None:
    """Screen readers get a description of each chart; no identifier is duplicated."""
    page = visit()
    _wait_for_charts(page)
    names = page.locator("figure .plot").evaluate_all(
        "all => all.map(e => e.getAttribute('aria-label'))"
    )
    assert names == ["Curves of six solvers", 'Three panels "of" curves', SCRIPT, "Grey cells"]
    assert page.evaluate(
        """() => {
          const ids = [...document.querySelectorAll("[id]")].map(e => e.id);
          return ids.length === new Set(ids).size;
        }"""
    )


def test_tooltip_of_a_line_has_its_name_and_value(visit: Callable[..., Any]) -> None:
    """Near a point of a curve the tooltip has its name and its values."""
    page = visit()
    plot = _plot(page)
    end = _lines(plot).first.evaluate(
        """path => {
          const p = path.getPointAtLength(path.getTotalLength() - 0.5);
          const at = new DOMPoint(p.x, p.y).matrixTransform(path.getScreenCTM());
          return [at.x, at.y];
        }"""
    )
    page.mouse.move(end[0] - 5, end[1])
    page.mouse.move(end[0], end[1])
    tip = page.locator("#vg-tooltip-element.visible")
    tip.wait_for()
    seen = tip.inner_text()
    assert SOLVERS[0][:20] in seen
    match = re.search(r"time / best time:?\s*([\d.]+)\s*share of problems:?\s*([\d.]+)", seen)
    assert match is not None
    assert float(match[1]) == pytest.approx(first_curve()[-1], rel=1e-3) and float(match[2]) == 1.0
    page.mouse.move(0, 0)
    tip.wait_for(state="hidden")


def test_the_legend_chooses_lines(visit: Callable[..., Any]) -> None:
    """Clicking a name fades all other lines; clicking outside restores them."""
    page = visit()
    plot = _plot(page)

    def clear() -> list[bool]:
        shown = _lines(plot).evaluate_all("all => all.map(p => p.getAttribute('opacity'))")
        return [opacity in (None, "1") for opacity in shown]

    assert clear() == [True] * 6
    plot.locator(".role-legend-label text").nth(2).click()
    page.wait_for_function(
        "() => document.querySelector('#figure-profile .mark-line path[opacity=\"0.12\"]')"
    )
    assert clear() == [False, False, True, False, False, False]


def test_axes_switch_between_linear_and_logarithmic(visit: Callable[..., Any]) -> None:
    """The curve has the same values on a linear axis, and back."""
    page = visit()
    before = _lines(_plot(page)).first.get_attribute("d")
    axis = page.locator("#figure-profile").get_by_role("button", name="Horizontal axis")
    assert axis.inner_text() == "Horizontal axis: logarithmic"
    axis.click()
    assert axis.inner_text() == "Horizontal axis: linear"
    changed = "d => document.querySelector('#figure-profile .mark-line path').getAttribute('d') "
    page.wait_for_function(f"{changed} !== d", arg=before)
    drawn = _lines(_plot(page)).first.get_attribute("d")
    # The direction of the curve follows from its data.
    across = [float(h) for h in re.findall(r"[ML]([\d.]+),", drawn)]
    places = list(dict.fromkeys(across))
    times = first_curve()
    slope, offset = np.polyfit(times, places, 1)
    assert places == pytest.approx((slope * times + offset).tolist(), abs=0.5)
    axis.click()
    page.wait_for_function(f"{changed} === d", arg=before)


def test_charts_fit_their_window(visit: Callable[..., Any]) -> None:
    """In a narrow window a chart is redrawn with texts as large as before."""
    page = visit(390, 844)
    # At once, because a chart may be redrawn at any time.
    sizes = """() => {
      const svg = document.querySelector("#figure-profile .plot > svg");
      const text = svg?.querySelector("text")?.getBoundingClientRect().height;
      return text ? [svg.clientWidth, text] : null;
    }"""
    width, small = page.wait_for_function(sizes).json_value()
    assert width < 390
    page.set_viewport_size({"width": 1280, "height": 900})
    wide = f"() => {{ const found = ({sizes})(); return found?.[0] > 600 && found; }}"
    _, large = page.wait_for_function(wide).json_value()
    assert large == pytest.approx(small, rel=0.05)


def test_clipped_table_shows_a_scroll_cue(visit: Callable[..., Any]) -> None:
    """If columns are outside the frame, a line notes it, and the edge fades until the end."""
    page = visit(390, 844)
    box = page.locator("#table-summary")
    assert box.locator(".cue").is_visible()
    assert box.locator(".scroll.more").count() == 1
    box.locator(".scroll").evaluate("element => { element.scrollLeft = 9999; }")
    page.wait_for_function("() => !document.querySelector('#table-summary .more')")
    page.set_viewport_size({"width": 2400, "height": 900})
    page.wait_for_function("() => document.querySelector('#table-summary .cue').hidden")


def test_names_are_whole_words(visit: Callable[..., Any]) -> None:
    """No solver name is broken at a hyphen, neither in a table nor in a sentence."""
    page = visit(390, 844)
    broken = """() => [...document.querySelectorAll("#table-summary tbody th, p .word")]
          .filter(e => e.checkVisibility()).map(e => {
            const range = document.createRange();
            const bad = [];
            const text = document.createTreeWalker(e, NodeFilter.SHOW_TEXT);
            while (text.nextNode()) {
              range.selectNodeContents(text.currentNode);
              const tops = new Set([...range.getClientRects()].map(r => Math.round(r.top)));
              if (tops.size > 1) bad.push(text.currentNode.data);
            }
            return bad;
          }).flat()"""
    assert page.evaluate(broken) == []
    page.set_viewport_size({"width": 1280, "height": 844})
    assert page.evaluate(broken) == []


def test_a_link_saves_the_table(
    visit: Callable[..., Any], sample_files: tuple[Path, list[Path]]
) -> None:
    """The browser saves the file of the folder, although the page requests no file."""
    page = visit()
    with page.expect_download() as saving:
        page.locator("#table-summary .files a").first.click()
    assert saving.value.suggested_filename == "summary.csv"
    saved = Path(saving.value.path()).read_bytes()
    assert saved == (sample_files[0] / "tables" / "summary.csv").read_bytes()


def test_without_javascript(visit: Callable[..., Any]) -> None:
    """Without scripts, all content is there and folded sections open; only controls are missing."""
    page = visit(390, 844, java_script_enabled=False)
    assert page.locator("#table-summary tbody tr").count() == 25
    assert page.locator("#table-summary table").is_visible()
    assert page.locator("thead button").count() == 0
    assert page.locator("input").count() == 0
    assert page.get_by_role("link", name="Curves of six solvers").is_visible()
    page.locator("details.section > summary").last.click()
    assert page.get_by_text("One run at a time.").is_visible()
