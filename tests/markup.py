"""A reader of HTML for tests: elements, their attributes, and their texts."""

from __future__ import annotations

from html.parser import HTMLParser

#: Elements without an end tag.
VOID = {"meta", "img", "br", "hr", "input", "link"}


class Markup(HTMLParser):
    """The elements of a page, each of which is closed, without comments."""

    def __init__(self, html: str) -> None:
        super().__init__()
        #: Tags in their order, each with the names of its attributes.
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        #: Tag, name and value of each attribute.
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        #: The whole text of each element, by its tag.
        self.inside: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    @property
    def tags(self) -> list[str]:
        """The tags in their order."""
        return [tag for tag, _ in self.elements]

    def of(self, *names: str) -> list[str]:
        """Return the values of attributes with one of these names."""
        return [value for _, name, value in self.attributes if name in names]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        assert len(dict(attrs)) == len(attrs)
        self.elements.append((tag, tuple(name for name, _ in attrs)))
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)
            self.inside.setdefault(tag, []).append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element that is closed in its tag."""
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close the innermost element."""
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Add text to the elements that are open."""
        self.texts.append(data)
        for tag in set(self._open):
            self.inside[tag][-1] += data

    def handle_comment(self, data: str) -> None:
        """Refuse a comment."""
        raise AssertionError(f"a comment: {data}")
