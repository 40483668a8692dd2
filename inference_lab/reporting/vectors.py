"""SVG as matplotlib writes it, without what nobody sees: half of its bytes."""

from __future__ import annotations

import re
from xml.etree import ElementTree

__all__ = ["slim_svg"]

_SVG = "http://www.w3.org/2000/svg"
_HREF = "{http://www.w3.org/1999/xlink}href"
_NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
_WITHIN = re.compile(r"url\(#([^)]*)\)")

#: Outlines of letters come in units of a 64th of a hundredth of the size of the text, all whole.
_OUTLINE, _COARSER = "scale(0.015625)", "scale(0.15625)"


def slim_svg(svg: str) -> str:
    """Return a picture that looks the same in fewer bytes; the same text gives the same bytes.

    Left out are metadata, elements that are invisible or empty, names that nothing refers to, and
    what is below a tenth of a point; of outlines of letters, below a 640th of their size.

    Parameters
    ----------
    svg : str
        Well-formed, as matplotlib writes it.

    Returns
    -------
    str

    Examples
    --------
    >>> print(slim_svg(
    ...     '<svg xmlns="http://www.w3.org/2000/svg"><metadata>today</metadata><g id="axes">'
    ...     '<path d="M 0.123456 2 L 3.98 -1 z" style="fill: none"/></g></svg>'
    ... ))
    <svg xmlns="http://www.w3.org/2000/svg"><path d="M.1 2L4-1z" style="fill:none"/></svg>
    """
    root = ElementTree.fromstring(svg)
    _drop_unseen(root)
    _rename(root)
    for element in root.iter():
        _shorten(element)
    _flatten(root)
    for element in root.iter():
        element.tag = element.tag.removeprefix(f"{{{_SVG}}}")
    root.set("xmlns", _SVG)
    return ElementTree.tostring(root, encoding="unicode").replace(" />", "/>")


def _drop_unseen(parent: ElementTree.Element) -> None:
    for child in list(parent):
        _drop_unseen(child)
        empty = child.tag == f"{{{_SVG}}}g" and not len(child)
        hidden = re.search(r"(^|[ ;])opacity: 0(;|$)", child.get("style", ""))
        if empty or hidden or child.tag == f"{{{_SVG}}}metadata":
            parent.remove(child)


def _rename(root: ElementTree.Element) -> None:
    """Give short names to what is referred to, in order, and none to the rest."""
    used = set()
    for element in root.iter():
        if element.get(_HREF, "").startswith("#"):
            used.add(element.attrib[_HREF][1:])
        used.update(name for value in element.attrib.values() for name in _WITHIN.findall(value))
    short: dict[str, str] = {}
    for element in root.iter():
        name = element.attrib.pop("id", None)
        if name in used:
            element.set("id", short.setdefault(name, f"i{len(short)}"))
    for element in root.iter():
        target = element.attrib.pop(_HREF, None)
        if target is not None:
            element.set("href", f"#{short[target[1:]]}" if target.startswith("#") else target)
        for key, value in element.attrib.items():
            element.set(key, _WITHIN.sub(lambda found: f"url(#{short[found[1]]})", value))


def _rounded(text: str, digits: int) -> str:
    """Return a text with its fractions rounded."""

    def shown(found: re.Match[str]) -> str:
        number = f"{round(float(found[0]), digits):g}"
        return "0" if number == "-0" else re.sub(r"^(-?)0\.", r"\1.", number)

    return _NUMBER.sub(shown, text)


def _shorten(element: ElementTree.Element) -> None:
    """Shorten the numbers and the style of an element, and drop the space around it."""
    element.tail = None
    if not (element.text or "").strip():
        element.text = None
    found = element.attrib
    outline = found.get("transform") == _OUTLINE
    if outline:
        found["transform"] = _COARSER
    if "d" in found:
        path = found["d"]
        if outline:
            path = re.sub(r"-?\d+(?:\.\d+)?", lambda each: f"{float(each[0]) / 10:.0f}", path)
        path = " ".join(_rounded(path, 1).split())
        found["d"] = re.sub(r" ?([A-Za-z]) ?", r"\1", path).replace(" -", "-")
    for key in ("x", "y", "width", "height"):
        if key in found and element.tag != f"{{{_SVG}}}svg":
            found[key] = _rounded(found[key], 1)
    place = re.fullmatch(r"translate\((\S+) 0\)", found.get("transform", ""))
    if place and element.tag == f"{{{_SVG}}}use":
        # A letter of a line of text.
        del found["transform"]
        found["x"] = _rounded(place[1], 0)
    elif "transform" in found:
        found["transform"] = re.sub(
            r"translate\([^)]*\)", lambda each: _rounded(each[0], 1), found["transform"]
        )
    if "style" in found:
        style = re.sub(r"([:;]) ", r"\1", found["style"])
        found["style"] = re.sub(r"#(\w)\1(\w)\2(\w)\3\b", r"#\1\2\3", style)


def _flatten(parent: ElementTree.Element) -> None:
    """Take groups that say nothing apart, and say once what all elements of a group look like."""
    children = []
    for child in list(parent):
        _flatten(child)
        bare = child.tag == f"{{{_SVG}}}g" and not child.attrib
        children += list(child) if bare else [child]
        parent.remove(child)
    parent.extend(children)
    looks = {child.get("style") for child in parent}
    if len(looks) == 1 and parent.tag == f"{{{_SVG}}}g" and "style" not in parent.attrib:
        (look,) = looks
        # That of a group is of all of it at once.
        if look is not None and not re.search(r"(^|;)opacity:", look) and len(parent) > 1:
            parent.set("style", look)
            for child in parent:
                del child.attrib["style"]
