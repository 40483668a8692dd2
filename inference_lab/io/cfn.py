"""The cost function network format ``.cfn`` of toulbar2: JSON, loosely, with decimal costs.

``E(x) = sum_f cost_f(x_f)``, or minus that sum if the file requests a maximum. A file has three
parts in this order, each with an optional tag:

* ``problem``: its ``name``, and ``mustbe``, which is ``<`` or ``>`` with a bound: the sum must be
  minimised and less than the bound, or maximised and greater;
* ``variables``: for each, with or without a name, its number of labels or the list of their names;
* ``functions``: for each, with or without a name, the ``scope`` (names or numbers of variables), a
  ``defaultcost`` if not all costs are listed, and ``costs``: a full table, the last variable
  of the scope varying fastest; or a list of tuples, each its labels (names or numbers) and a cost;
  or the name of another function, whose costs it shares.

Quotes, commas and colons are optional, brackets of both kinds are equivalent, and a line that
starts with ``#`` is a comment.

Reading
    An entry becomes ``+inf`` if it reaches the bound while every other function is at its minimum
    or at 0, whichever is smaller: no labelling with it is allowed. If all costs are >= 0, these
    are the costs of at least the bound, as in ``.wcsp`` files. An energy of factors cannot express
    that a *sum* may not reach the bound; other labellings keep their energy. If a tuple is listed
    twice, its last cost counts. Costs keep all their digits, although toulbar2 rounds them to the
    digits of the bound. Functions with a ``type`` (global constraints, formulas) are refused.

This format is read only; write ``.wcsp`` files instead.

References
----------
toulbar2 reference manual, "CFN format (.cfn suffix)",
https://toulbar2.github.io/toulbar2/formats/cfnformat.html
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np

import inference_lab.io._limits as _limits
from inference_lab.formatting import shortened
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.io._assembly import Scopes, Tables, assemble, check_entries, shown_scope
from inference_lab.io._files import FormatError

_TOKEN = re.compile(
    r"""(?P<open>[\[{])|(?P<close>[\]}])"""
    r"""|"(?P<quoted>(?:[^"\\\r\n]|\\.)*)"|(?P<bare>[^\s,:\[\]{}"]+)"""
)
_SEPARATORS = re.compile(r"[\s,:]*")
_COMMENT = re.compile(r"^#[^\r\n]*", re.MULTILINE)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

_DIGITS = re.compile(r"[0-9]+")

#: Tags of the fields of a function.
_TAGS = ("scope", "defaultcost", "costs", "type", "params")


class _Token(NamedTuple):
    """A token: ``open``, ``close`` or ``word``, its text, and its offset in the file."""

    kind: str
    text: str
    place: int


class _Reader:
    """A tokeniser with one token of lookahead."""

    def __init__(self, data: bytes, path: str) -> None:
        self.path = path
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as problem:
            line = data.count(b"\n", 0, problem.start) + 1
            raise FormatError(
                f"{path}, line {line}: byte {problem.start} is 0x{data[problem.start]:02x}; "
                "expected UTF-8 text"
            ) from None
        self._text = _COMMENT.sub(lambda found: " " * len(found.group()), text)
        self._tokens = self._scan()
        self.next = next(self._tokens)

    def _scan(self) -> Iterator[_Token]:
        at = 0
        text = self._text
        while True:
            found = _SEPARATORS.match(text, at)
            at = found.end() if found else at
            if at == len(text):
                break
            token = _TOKEN.match(text, at)
            if token is None:
                raise self.error(_Token("word", text[at], at), "quotation mark is not closed")
            kind = str(token.lastgroup)
            value = token.group(kind)
            if kind == "quoted" and "\\" in value:
                try:
                    value = str(json.loads(f'"{value}"'))
                except ValueError:
                    raise self.error(
                        _Token("word", value, at), "unknown escape sequence in a string"
                    ) from None
            yield _Token("word" if kind in ("quoted", "bare") else kind, value, at)
            at = token.end()
        while True:
            yield _Token("end", "", at)

    def error(self, token: _Token, message: str) -> FormatError:
        """Make the error for a fault at a token."""
        line = self._text.count("\n", 0, token.place) + 1
        where = "end of file" if token.kind == "end" else f"line {line}"
        return FormatError(f"{self.path}, {where}: {message}")

    def wrong(self, expected: str) -> FormatError:
        """Make the error for an unexpected next token."""
        got = "the file ends" if self.next.kind == "end" else f"got {_cut(self.next.text)}"
        return self.error(self.next, f"expected {expected}, {got}")

    def take(self) -> _Token:
        """Consume the next token and return it."""
        token = self.next
        if token.kind != "end":
            self.next = next(self._tokens)
        return token

    def open(self, what: str) -> None:
        """Consume an opening bracket."""
        if self.next.kind != "open":
            raise self.wrong(f"an opening bracket of {what}")
        self.take()

    def close(self, what: str) -> None:
        """Consume a closing bracket."""
        if self.next.kind != "close":
            raise self.wrong(f"the closing bracket of {what}")
        self.take()

    def skip_tag(self, *tags: str) -> str | None:
        """Consume the next token if it is one of these tags, and return the tag."""
        if self.next.kind == "word" and self.next.text in tags:
            return self.take().text
        return None

    def word(self, what: str) -> _Token:
        """Consume a word or number and return it."""
        if self.next.kind != "word":
            raise self.wrong(what)
        return self.take()

    def number(self, what: str) -> float:
        """Consume a finite number and return it."""
        if self.next.kind == "word" and _NUMBER.fullmatch(self.next.text):
            value = float(self.next.text)
            if math.isfinite(value):
                self.take()
                return value
        raise self.wrong(what)


@dataclass
class _Function:
    """A cost function: its own table, or the name of the function whose table it shares."""

    start: _Token
    scope: tuple[int, ...]
    shape: tuple[int, ...]
    name: str | None = None
    table: FloatArray = field(default_factory=lambda: np.empty(0))
    shares: str | None = None

    @property
    def size(self) -> float:
        """Number of entries of the table; infinite if it overflows."""
        with np.errstate(over="ignore"):
            return float(np.prod(np.array(self.shape, dtype=np.float64)))

    def shown(self, f: int) -> str:
        """Format the name of the function, or its number `f`, for messages."""
        return f"function {f if self.name is None else _cut(self.name)}"


def _cut(text: str) -> str:
    """Quote a text for a message, and shorten it if it is long."""
    return repr(shortened(text, 40))


def parse(data: bytes, path: str) -> FactorGraph:
    """Parse the content of a cost function network file."""
    reader = _Reader(data, path)
    reader.open("the problem")
    sign, bound = _problem(reader)
    names, values = _variables(reader)
    functions = _functions(reader, names, values)
    reader.close("the problem")
    if reader.next.kind != "end":
        raise reader.wrong("nothing after the closing bracket of the problem")
    owners = _owners(reader, functions)

    cardinalities = np.array([v.size for v in values], dtype=np.int64)
    arities = np.array([len(f.scope) for f in functions], dtype=np.int64)
    scopes = Scopes(arities, np.array([v for f in functions for v in f.scope], dtype=np.int64))
    scopes.check_free(cardinalities, lambda i, why: FormatError(f"{path}: {why}"))

    def fail(f: int, why: str) -> FormatError:
        shown = f"{functions[f].shown(f)} over {shown_scope(functions[f].scope)}"
        return reader.error(functions[f].start, f"{shown}: {why}")

    # Tables shared between pairwise terms are not copied; all other shared tables are.
    copied = (owners != np.arange(owners.size)) & (arities != 2)
    sizes = np.array([functions[f].table.size for f in owners.tolist()], dtype=np.int64)
    check_entries(np.where(copied, sizes, 0.0), 0, fail)
    own = np.flatnonzero(owners == np.arange(owners.size))
    starts = np.zeros(owners.size, dtype=np.int64)
    starts[own] = np.cumsum(sizes[own]) - sizes[own]
    starts = starts[owners]
    energies = np.concatenate([np.empty(0), *(functions[f].table for f in own.tolist())])
    if sign < 0:
        np.negative(energies, out=energies)
    # An entry must stay below the bound while all other functions are at their minimum. Functions
    # that share a table have the same limit, because they have the same minimum.
    lowest = np.zeros(owners.size)
    if own.size:
        lowest[own] = np.minimum.reduceat(energies, starts[own])
    # Clipped, because `assemble` refuses costs out of this range below.
    lowest = np.clip(lowest[owners], -_limits.MAX_COST, 0.0)
    limits = sign * bound - (math.fsum(lowest.tolist()) - lowest)
    energies[energies >= np.repeat(limits[own], sizes[own])] = math.inf

    return assemble(path, fail, Tables(cardinalities, scopes, sizes, starts, energies))


def _problem(reader: _Reader) -> tuple[float, float]:
    """Return the sign of the objective, 1 to minimise and -1 to maximise, and the bound."""
    reader.skip_tag("problem")
    reader.open("the properties of the problem")
    # The tag "name" is optional, and a problem may itself be called "name".
    first = reader.word("the name of the problem")
    if first.text == "name" and not reader.next.text.startswith(("mustbe", "<", ">")):
        reader.word("the name of the problem")
    reader.skip_tag("mustbe")
    bound = reader.word("'mustbe' with '<' or '>' and a bound")
    if bound.text[:1] not in ("<", ">") or not _NUMBER.fullmatch(bound.text[1:]):
        raise reader.error(
            bound, f"expected '<' or '>' and a number, like '<10.00', got {_cut(bound.text)}"
        )
    reader.close("the properties of the problem")
    value = float(bound.text[1:])
    return (1.0 if bound.text[0] == "<" else -1.0), value


class _Domain(NamedTuple):
    """The number of labels of a variable, and the index of each named label."""

    size: int
    names: dict[str, int]


def _variables(reader: _Reader) -> tuple[dict[str, int], list[_Domain]]:
    reader.skip_tag("variables")
    reader.open("the variables")
    names: dict[str, int] = {}
    domains: list[_Domain] = []
    while reader.next.kind != "close":
        what = f"the name or the labels of variable {len(domains)}"
        if reader.next.kind == "word" and not _NUMBER.fullmatch(reader.next.text):
            name = reader.take()
            if name.text in names:
                raise reader.error(name, f"two variables are called {_cut(name.text)}")
            names[name.text] = len(domains)
            what = f"the labels of variable {_cut(name.text)}"
        domains.append(_domain(reader, what))
    reader.close("the variables")
    return names, domains


def _domain(reader: _Reader, what: str) -> _Domain:
    if reader.next.kind != "open":
        start = reader.next
        size = abs(reader.number(f"{what}: their number, or a list of names"))
        if not (1 <= size < 2**31 and size.is_integer()):
            raise reader.error(start, f"{what}: {_cut(start.text)} is not a number of labels")
        return _Domain(int(size), {})
    reader.take()
    labels: dict[str, int] = {}
    while reader.next.kind != "close":
        label = reader.word(f"the name of a label in {what}")
        if _NUMBER.fullmatch(label.text):
            raise reader.error(
                label, f"{what}: {_cut(label.text)} is a number, which cannot name a label"
            )
        if label.text in labels:
            raise reader.error(label, f"{what}: two labels are called {_cut(label.text)}")
        labels[label.text] = len(labels)
    if not labels:
        raise reader.error(reader.next, f"{what}: there are none")
    reader.take()
    return _Domain(len(labels), labels)


def _index(reader: _Reader, names: dict[str, int], size: int, what: str) -> int:
    """Return the index given by a name or a number."""
    token = reader.word(what)
    found = names.get(token.text)
    if found is not None:
        return found
    digits = token.text.lstrip("0") or "0"
    # The length is checked first, because Python refuses to parse integers of thousands of digits.
    if len(digits) < 20 and _DIGITS.fullmatch(token.text) and int(digits) < size:
        return int(digits)
    most = ", ".join([*map(_cut, islice(names, 8)), *(["..."] if len(names) > 8 else [])])
    raise reader.error(
        token,
        f"expected {what}, "
        + (f"one of {most}, or " if names else "")
        + (f"0 to {size - 1}" if size else "but there is none")
        + f", got {_cut(token.text)}",
    )


def _functions(reader: _Reader, names: dict[str, int], domains: list[_Domain]) -> list[_Function]:
    reader.skip_tag("functions")
    reader.open("the functions")
    functions: list[_Function] = []
    known: set[str] = set()
    room = _limits.MAX_ENTRIES
    while reader.next.kind != "close":
        name = None
        if reader.next.kind == "word":
            token = reader.take()
            name = token.text
            if name in known:
                raise reader.error(token, f"two functions are called {_cut(name)}")
            known.add(name)
        shown = f"function {len(functions) if name is None else _cut(name)}"
        function = _scope(reader, names, domains, shown)
        function.name = name
        room -= _costs(reader, function, domains, shown, room)
        reader.close(shown)
        functions.append(function)
    reader.close("the functions")
    return functions


def _scope(reader: _Reader, names: dict[str, int], domains: list[_Domain], shown: str) -> _Function:
    start = reader.next
    reader.open(shown)
    reader.skip_tag("scope")
    reader.open(f"the scope of {shown}")
    # A dict, because it keeps the order and its look-ups are fast.
    scope: dict[int, None] = {}
    while reader.next.kind != "close":
        token = reader.next
        variable = _index(reader, names, len(domains), f"a variable of the scope of {shown}")
        if variable in scope:
            raise reader.error(
                token, f"{shown} names variable {_cut(token.text)} twice in its scope"
            )
        scope[variable] = None
    reader.close(f"the scope of {shown}")
    return _Function(start, tuple(scope), tuple(domains[v].size for v in scope))


def _costs(
    reader: _Reader, function: _Function, domains: list[_Domain], shown: str, room: int
) -> int:
    """Read the costs of a function; return the size of a table filled by its default cost."""
    if reader.next.kind == "word" and reader.next.text in ("type", "params"):
        tag = reader.take()
        kind = reader.word("the type").text if tag.text == "type" else "parameters"
        raise reader.error(
            tag, f"{shown} is given by {kind!r}; functions that are not tables are not read"
        )
    default = None
    if reader.skip_tag("defaultcost") or (
        reader.next.kind == "word" and _NUMBER.fullmatch(reader.next.text)
    ):
        default = reader.number(f"the default cost of {shown}")
    reader.skip_tag("costs")
    if reader.next.kind == "word":
        function.shares = reader.take().text
        if default is not None:
            raise reader.error(
                function.start, f"{shown} has a default cost, and costs shared with another"
            )
        return 0
    reader.open(f"the costs of {shown}")
    size = function.size
    declared = 0
    if default is None:
        listed: list[float] = []
        while reader.next.kind != "close":
            listed.append(reader.number(f"a cost of {shown}"))
        if len(listed) != size:
            shape = " x ".join(map(str, function.shape[:8])) or "1"
            shape += " x ..." if len(function.shape) > 8 else ""
            raise reader.error(
                function.start,
                f"{shown} over {shown_scope(function.scope)} needs {shape} = {size:.0f} costs, "
                f"got {len(listed)}",
            )
        function.table = np.array(listed)
    else:
        if size > room:
            raise reader.error(
                function.start,
                f"{shown} over {shown_scope(function.scope)} has {size:.0f} entries; at most "
                f"{_limits.MAX_ENTRIES} of all functions with a default cost are read, "
                f"{_limits.MAX_ENTRIES - room} before this one",
            )
        declared = int(size)
        function.table = np.full(declared, default)
        while reader.next.kind != "close":
            place = 0
            for variable in function.scope:
                domain = domains[variable]
                label = _index(
                    reader, domain.names, domain.size, f"a label of variable {variable} in {shown}"
                )
                place = place * domain.size + label
            function.table[place] = reader.number(f"the cost of a tuple of {shown}")
    reader.close(f"the costs of {shown}")
    return declared


def _owners(reader: _Reader, functions: list[_Function]) -> IntArray:
    """Return the function that owns each function's table: itself, or the one that it names."""
    by_name = {function.name: f for f, function in enumerate(functions)}
    owners = np.arange(len(functions), dtype=np.int64)
    for f, function in enumerate(functions):
        if function.shares is None:
            continue
        shared = f"{function.shown(f)} has the costs of {_cut(function.shares)}"
        g = by_name.get(function.shares)
        if g is None or functions[g].shares is not None:
            lacks = "does not exist" if g is None else "has no costs of its own"
            raise reader.error(function.start, f"{shared}, which {lacks}")
        owner = functions[g]
        if owner.shape != function.shape:
            raise reader.error(
                function.start,
                f"{shared}, but has variables of {shown_scope(function.shape)} labels where that "
                f"has variables of {shown_scope(owner.shape)} labels",
            )
        owners[f] = g
    return owners
