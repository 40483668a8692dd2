"""Slim pictures: they look as before, to a tenth of a point, and keep what is seen."""

from __future__ import annotations

import io
import re
from xml.etree import ElementTree

import pytest
from matplotlib import rc_context
from matplotlib.figure import Figure

from inference_lab.reporting.style import RC
from inference_lab.reporting.vectors import slim_svg


@pytest.fixture(scope="module")
def pictures() -> tuple[str, str]:
    """Return a figure with curves, bands, pixels and text as it is saved, and slim."""
    out = io.StringIO()
    with rc_context(dict(RC)):
        figure = Figure()
        axes = figure.subplots()
        axes.plot([0, 1, 2], [3, 1, 200], marker="s", label="twenty 200s")
        axes.fill_between([0, 1, 2], [2, 0, 1], [4, 2, 30], alpha=0.2)
        axes.imshow([[0, 1], [1, 0]], extent=(0, 1, 0, 50), aspect="auto")
        axes.axvspan(0, 1, alpha=0.0)
        axes.legend()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue(), slim_svg(out.getvalue())


def _paths(svg: str) -> list[list[float]]:
    """Return the numbers of all paths in the picture's own units, in their order."""
    found = []
    for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}path"):
        unit = float(re.sub(r"[^\d.]", "", element.get("transform", "1")))
        numbers = re.findall(r"-?\d*\.?\d+", element.get("d", ""))
        if "opacity: 0;" not in element.get("style", "") + ";":
            found.append([unit * float(number) for number in numbers])
    return found


def _letters(svg: str) -> list[float]:
    """Return how far right each letter of a text stands in it."""
    return [
        float(re.sub(r"translate\((\S+) 0\)", r"\1", use.get("transform", use.get("x", "0"))))
        for use in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}use")
        if "style" not in use.attrib and use.get("y") is None
    ]


def test_all_that_is_seen_is_where_it_was(pictures: tuple[str, str]) -> None:
    """Paths and letters are moved by less than anybody sees, and none is lost."""
    before, after = map(_paths, pictures)
    assert len(after) == len(before) > 25
    for old, new in zip(before, after, strict=True):
        assert new == pytest.approx(old, abs=0.0801)
    old, new = map(_letters, pictures)
    assert len(new) == len(old) > 20 and max(new) > 100
    assert new == pytest.approx(old, abs=0.501)
    assert pictures[0].count("<image") == pictures[1].count("<image") == 1


def test_names_lead_where_they_led(pictures: tuple[str, str]) -> None:
    """Each name is there once and is used, and every use has one."""
    before, after = pictures
    names = re.findall(r' id="([^"]*)"', after)
    used = re.findall(r'(?:href="|url\()#([^")]*)', after)
    assert len(set(names)) == len(names) and set(names) == set(used)
    # All but that of what is invisible.
    assert len(used) == len(re.findall(r'(?:href="|url\()#([^")]*)', before)) - 1


def test_half_of_the_bytes_are_gone(pictures: tuple[str, str]) -> None:
    """Nothing about the program that drew it is left."""
    before, after = pictures
    assert len(after) < 0.6 * len(before)
    assert "metadata" in before and "metadata" not in after and "\n" not in after.strip()
