"""The cost function network format ``.cfn`` of toulbar2: JSON, loosely, with decimal costs.

``E(x) = sum_f cost_f(x_f)``, or minus that sum if the file requests a maximum. A file has three
parts in this order, each with an optional tag:

* ``problem``: its ``name``, and ``mustbe``, which is ``<`` or ``>`` with a bound: the sum must be
  minimised and less than the bound, or maximised and greater;
* ``variables``: for each, with or without a name, its number of labels or the list of their names;
* ``functions``: for each, with or without a name, the ``scope`` (names or numbers of variables), a
  ``defaultcost`` if not all costs are listed, and ``costs``: a full table, the last variable
  of the scope varying fastest; or a list of tuples, each its labels (names or numbers) and a cost.
  A cost ``inf`` forbids. Or a function has, after its scope, a ``type`` and ``params``: it is a
  global cost function.

Quotes, commas and colons are optional, and brackets of both kinds are equivalent.

Reading
    An entry becomes ``+inf`` if it reaches the bound while every other function is at its minimum
    or at 0, whichever is smaller: no labelling with it is allowed. If all costs are >= 0, these
    are the costs of at least the bound, as in ``.wcsp`` files. An energy of factors cannot express
    that a *sum* may not reach the bound; other labellings keep their energy. If a tuple is listed
    twice, its last cost counts. Costs keep all their digits, although toulbar2 rounds them to the
    digits of the bound. toulbar2 itself gives several functions the same name, so these need not
    be unique.

    Hard linear constraints, all-different and cardinality constraints are read as tables
    (`inference_lab.io._global_functions`); their labels are positions in the domains. Functions of
    any other ``type`` are refused, and so are functions that share the costs of another by its
    name. toulbar2 1.4 cannot write some of its own constraints: it leaves the words "Unknown
    constraint!" in the file, which is refused, too.

This format is read only; write UAI files instead, which toulbar2 reads, too.

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
from typing import NamedTuple

import numpy as np

import inference_lab.io._limits as _limits
from inference_lab.formatting import shortened
from inference_lab.graph.arrays import FloatArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.io._assembly import Scopes, Tables, assemble, shown_scope
from inference_lab.io._files import FormatError
from inference_lab.io._global_functions import constraint_tables
from inference_lab.io._text import Words, plain_text

#: A bracket, a string or a word; everything else is a separator.
_TOKEN = re.compile(
    r"""(?P<open>[\[{])|(?P<close>[\]}])"""
    r"""|"(?P<quoted>(?:[^"\\\r\n]|\\.)*)"|(?P<bare>[^\s,:\[\]{}"]+)|(?P<unclosed>")"""
)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INFINITE = re.compile(r"\+?inf(?:inity)?", re.IGNORECASE)
_COST = re.compile(f"{_NUMBER.pattern}|{_INFINITE.pattern}", re.IGNORECASE)

_VIOLATION = {"metric": "one", "cost": "one"}
#: The parameters of the global cost functions that are read, in the order of the ``.wcsp`` format,
#: and how they are listed there: "one", a "list" after its length, its "items" alone, or "sets".
_PARAMETERS = {
    "knapsack": {"capacity": "one", "weights": "items"},
    "knapsackv": {"capacity": "one", "weightedvalues": "list"},
    "clique": {"rhs": "one", "values": "sets"},
    "alldiff": {"exceptedvalues": "list", "deltacosts": "list"},
    "salldiff": _VIOLATION,
    "salldiffdp": _VIOLATION,
    "salldiffkp": _VIOLATION,
    "gcc": {"bounds": "list", "deltacosts": "list"},
    "sgcc": _VIOLATION | {"bounds": "list"},
    "sgccdp": _VIOLATION | {"bounds": "list"},
    "sgcckp": _VIOLATION | {"bounds": "list"},
    "samong": _VIOLATION | {"min": "one", "max": "one", "values": "list"},
    "samongdp": _VIOLATION | {"min": "one", "max": "one", "values": "list"},
}


class _Node(NamedTuple):
    """A word, or the nodes between two brackets, and its offset in the file."""

    place: int
    text: str = ""
    items: list[_Node] | None = None

    @property
    def shown(self) -> str:
        """The word as quoted in messages."""
        return "a bracket" if self.items is not None else _cut(self.text)


class _Function(NamedTuple):
    """A cost function, with its name and scope as shown in messages."""

    node: _Node
    shown: str
    scope: list[int]
    table: FloatArray


class _Domain(NamedTuple):
    """The number of labels of a variable, and the index of each named label."""

    size: int
    names: dict[str, int]


def _cut(text: str) -> str:
    """Quote a text for a message, and shorten it if it is long."""
    return repr(shortened(text, 40))


def parse(data: bytes, path: str) -> FactorGraph:
    """Parse the content of a cost function network file."""
    return _Reader(data, path).graph()


def _parameters(layout: dict[str, str], nodes: list[_Node]) -> list[_Node | int]:
    """Return the parameters in the order of the ``.wcsp`` format, with the lengths of lists."""
    if nodes and nodes[0].text == "params":
        nodes = nodes[1:]
    items = [item for node in nodes for item in node.items or ()]
    listed: list[_Node | int] = []
    for name, how in layout.items():
        if items and items[0].text.lower() == name:
            items = items[1:]
        head, items = items[:1], items[1:]
        inner = [item for node in head for item in node.items or ()]
        if how == "list":
            listed.append(len(inner))
        if how == "one":
            listed += head
        for item in inner:
            if how == "sets":
                listed.append(len(item.items or ()))
            listed += [item] if item.items is None else item.items
    return listed


class _Reader:
    """The file as text, and the functions that read its parts."""

    def __init__(self, data: bytes, path: str) -> None:
        self.path = path
        data = plain_text(data, path, Words.QUOTED)
        try:
            self.text = data.decode("utf-8")
        except UnicodeDecodeError as problem:
            line = data.count(b"\n", 0, problem.start) + 1
            raise FormatError(
                f"{path}, line {line}: byte {problem.start} is 0x{data[problem.start]:02x}; "
                "expected UTF-8 text"
            ) from None
        #: Entries that tables filled by a default cost may still have.
        self.room = _limits.MAX_ENTRIES
        #: The cost of a violation from which a constraint is hard; in a maximum only ``inf`` is.
        self.top = math.inf

    def error(self, node: _Node, message: str) -> FormatError:
        """Make the error for a fault at a node."""
        line = self.text.count("\n", 0, node.place) + 1
        where = "end of file" if node.place >= len(self.text) else f"line {line}"
        return FormatError(f"{self.path}, {where}: {message}")

    def graph(self) -> FactorGraph:
        """Return the energy."""
        problem, variables, functions = self._parts()
        sign, bound = self._bound(problem)
        if sign > 0:
            self.top = bound
        names, domains = self._variables(variables)
        cost_functions = self._functions(functions, names, domains)

        def fail(f: int, why: str) -> FormatError:
            return self.error(cost_functions[f].node, f"{cost_functions[f].shown}: {why}")

        sizes = np.array([function.table.size for function in cost_functions], dtype=np.int64)
        starts = np.cumsum(sizes) - sizes
        energies = np.concatenate([np.empty(0), *(function.table for function in cost_functions)])
        # An infinite cost forbids whether the sum is minimised or maximised.
        energies[np.isfinite(energies)] *= sign
        # An entry must stay below the bound while all other functions are at their minimum, or at
        # 0. Clipped, because `assemble` refuses costs out of this range below.
        lowest = np.minimum.reduceat(energies, starts) if sizes.size else np.empty(0)
        lowest = np.clip(lowest, -_limits.MAX_COST, 0.0)
        limits = sign * bound - (math.fsum(lowest.tolist()) - lowest)
        energies[energies >= np.repeat(limits, sizes)] = math.inf

        cardinalities = np.array([domain.size for domain in domains], dtype=np.int64)
        scopes = Scopes.of_lists([function.scope for function in cost_functions])
        scopes.check_free(cardinalities, lambda i, why: FormatError(f"{self.path}: {why}"))
        return assemble(self.path, fail, Tables(cardinalities, scopes, sizes, starts, energies))

    def _parts(self) -> list[_Node]:
        """Return the three parts of the file, without their tags."""
        whole = self._tree()
        if len(whole) != 1 or whole[0].items is None:
            end = whole[1] if len(whole) > 1 else _Node(len(self.text))
            raise self.error(end, "expected one pair of brackets around the problem")
        parts = [node for node in whole[0].items if node.items is not None]
        if len(parts) != 3:
            raise self.error(
                whole[0], f"expected the parts problem, variables and functions, got {len(parts)}"
            )
        return parts

    def _tree(self) -> list[_Node]:
        """Return the nodes outside of all brackets."""
        top: list[_Node] = []
        opened: list[_Node] = []
        for token in _TOKEN.finditer(self.text):
            node = _Node(token.start(), token[token.lastgroup or 0])
            inside = top if not opened else opened[-1].items
            assert inside is not None
            match token.lastgroup:
                case "open":
                    opened.append(_Node(node.place, items=[]))
                    inside.append(opened[-1])
                case "close" if opened:
                    opened.pop()
                case "close":
                    raise self.error(node, "the bracket closes nothing")
                case "unclosed":
                    raise self.error(node, "quotation mark is not closed")
                case "quoted" if "\\" in node.text:
                    try:
                        inside.append(node._replace(text=str(json.loads(f'"{node.text}"'))))
                    except ValueError:
                        raise self.error(node, "unknown escape sequence in a string") from None
                case _:
                    inside.append(node)
        if opened:
            raise self.error(_Node(len(self.text)), "a closing bracket is missing")
        return top

    def _bound(self, problem: _Node) -> tuple[float, float]:
        """Return the sign of the objective, 1 to minimise and -1 to maximise, and the bound."""
        words = [node for node in problem.items or () if node.text not in ("name", "mustbe")]
        # The name may be missing here, because a problem may be called "name".
        bound = words[-1] if 1 <= len(words) <= 2 else problem
        if bound.text[:1] not in ("<", ">") or not _NUMBER.fullmatch(bound.text[1:]):
            raise self.error(
                bound, f"expected '<' or '>' and a number, like '<10.00', got {bound.shown}"
            )
        return (1.0 if bound.text[0] == "<" else -1.0), float(bound.text[1:])

    def _named(self, part: _Node, what: str, *, unique: bool) -> Iterator[tuple[str | None, _Node]]:
        """Yield the name and the node of each element; names are optional."""
        seen: set[str] = set()
        name: str | None = None
        for node in part.items or ():
            if node.items is None and name is None and not _NUMBER.fullmatch(node.text):
                name = node.text
                if unique and name in seen:
                    raise self.error(node, f"two {what}s are called {_cut(name)}")
                seen.add(name)
            else:
                yield name, node
                name = None
        if name is not None:
            raise self.error(part, f"{what} {_cut(name)} has no content")

    def _variables(self, part: _Node) -> tuple[dict[str, int], list[_Domain]]:
        names: dict[str, int] = {}
        domains: list[_Domain] = []
        for name, node in self._named(part, "variable", unique=True):
            if name is not None:
                names[name] = len(domains)
            shown = f"variable {len(domains) if name is None else _cut(name)}"
            domains.append(self._domain(node, shown))
        return names, domains

    def _domain(self, node: _Node, shown: str) -> _Domain:
        if node.items is None:
            size = abs(self._number(node, f"the number of labels of {shown}, or their names"))
            if not (1 <= size < 2**31 and size.is_integer()):
                raise self.error(node, f"{shown}: {node.shown} is not a number of labels")
            return _Domain(int(size), {})
        labels: dict[str, int] = {}
        for label in node.items:
            if label.items is not None or _NUMBER.fullmatch(label.text):
                raise self.error(label, f"{shown}: {label.shown} cannot name a label")
            if label.text in labels:
                raise self.error(label, f"{shown}: two labels are called {label.shown}")
            labels[label.text] = len(labels)
        if not labels:
            raise self.error(node, f"{shown} has no labels")
        return _Domain(len(labels), labels)

    def _number(self, node: _Node, what: str) -> float:
        """Return the finite number of a node."""
        if node.items is None and _NUMBER.fullmatch(node.text):
            value = float(node.text)
            if math.isfinite(value):
                return value
        raise self.error(node, f"expected {what}, got {node.shown}")

    def cost(self, node: _Node, what: str) -> float:
        """Return the cost of a node, ``+inf`` for ``inf``."""
        if node.items is None and _INFINITE.fullmatch(node.text):
            return math.inf
        return self._number(node, f"{what}, a number or inf")

    def index(self, node: _Node, names: dict[str, int], size: int, what: str) -> int:
        """Return the index given by a name or a number."""
        if node.items is None:
            if node.text in names:
                return names[node.text]
            digits = node.text.lstrip("0") or "0"
            # The length is checked first, because Python refuses integers of thousands of digits.
            if len(digits) < 20 and digits.isascii() and digits.isdecimal() and int(digits) < size:
                return int(digits)
        raise self.error(node, f"expected {what}, a name or 0 to {size - 1}, got {node.shown}")

    def _functions(
        self, part: _Node, names: dict[str, int], domains: list[_Domain]
    ) -> list[_Function]:
        functions: list[_Function] = []
        number = 0
        for name, node in self._named(part, "function", unique=False):
            shown = f"function {number if name is None else _cut(name)}"
            if node.text.startswith("Unknown"):
                raise self.error(
                    node,
                    "toulbar2 wrote 'Unknown constraint!' in place of a function that it cannot "
                    "write; give the constraint in another encoding, or write a .wcsp file",
                )
            if node.items is None:
                raise self.error(node, f"expected the brackets of {shown}, got {node.shown}")
            functions += self._function(node, shown, names, domains)
            number += 1
        return functions

    def _function(
        self, node: _Node, shown: str, names: dict[str, int], domains: list[_Domain]
    ) -> list[_Function]:
        items = iter(node.items or ())

        def following(*tags: str) -> _Node:
            """Return the next node that is not one of these tags."""
            part = next(items, None)
            if part is not None and part.text in tags:
                part = next(items, None)
            if part is None:
                raise self.error(node, f"{shown} ends where its {tags[0]} is expected")
            return part

        named = following("scope")
        if named.items is None:
            raise self.error(named, f"expected the scope of {shown}, got {named.shown}")
        # A dict, because it keeps the order and its look-ups are fast.
        variables: dict[int, None] = {}
        for item in named.items:
            what = f"a variable of the scope of {shown}"
            variable = self.index(item, names, len(domains), what)
            if variable in variables:
                raise self.error(item, f"{shown} names variable {item.shown} twice in its scope")
            variables[variable] = None
        scope = [*variables]
        shape = [domains[v].size for v in variables]
        over = f"{shown} over {shown_scope(tuple(variables))}"
        costs = following("defaultcost", "costs")
        default = None
        if costs.items is None and costs.text == "type":
            kind = following("type")
            listed = _parameters(_PARAMETERS.get(kind.text, {}), [*items])
            parameters = _NodeParameters(self, node, listed, scope, domains, names)
            tables = constraint_tables(
                kind.text, parameters, shown, scope, shape, top=self.top, room=self.room
            )
            self.room -= sum(table.costs.size for table in tables)
            return [
                _Function(node, over, [scope[p] for p in table.positions], table.costs)
                for table in tables
            ]
        if costs.items is None and (
            _NUMBER.fullmatch(costs.text) or _INFINITE.fullmatch(costs.text)
        ):
            default = self.cost(costs, f"the default cost of {shown}")
            costs = following("costs")
        if (rest := next(items, None)) is not None:
            raise self.error(rest, f"expected nothing after the costs of {shown}")
        if costs.items is None:
            raise self.error(costs, f"expected the list of costs of {shown}, got {costs.shown}")
        if default is not None:
            table = self._sparse(node, over, scope, default, costs.items, domains)
            return [_Function(node, over, scope, table)]
        what = f"a cost of {shown}"
        size = math.prod(shape)
        if len(costs.items) != size:
            sizes = shortened(" x ".join(map(str, shape)) or "1", 40)
            raise self.error(node, f"{over} needs {sizes} costs, got {len(costs.items)}")
        table = np.array([self.cost(item, what) for item in costs.items])
        return [_Function(node, over, scope, table)]

    def _sparse(
        self,
        node: _Node,
        over: str,
        scope: list[int],
        default: float,
        listed: list[_Node],
        domains: list[_Domain],
    ) -> FloatArray:
        """Return the table of a function that lists tuples of labels with their costs."""
        arity, size = len(scope), math.prod(domains[v].size for v in scope)
        if size > self.room:
            raise self.error(
                node,
                f"{over} has too many entries; at most {_limits.MAX_ENTRIES} of all functions with "
                "a default cost are read",
            )
        self.room -= size
        if len(listed) % (arity + 1):
            raise self.error(node, f"expected {arity} labels and a cost a tuple of {over}")
        table = np.full(size, default)
        for at in range(0, len(listed), arity + 1):
            place = 0
            for v, label in zip(scope, listed[at : at + arity], strict=True):
                what = f"a label of variable {v} in {over}"
                place = place * domains[v].size + self.index(
                    label, domains[v].names, domains[v].size, what
                )
            table[place] = self.cost(listed[at + arity], f"the cost of a tuple of {over}")
        return table


class _NodeParameters:
    """The parameters of a global cost function, in the order of the ``.wcsp`` format."""

    def __init__(
        self,
        reader: _Reader,
        function: _Node,
        listed: list[_Node | int],
        scope: list[int],
        domains: list[_Domain],
        names: dict[str, int],
    ) -> None:
        self._reader = reader
        self._function = function
        self._listed = iter(listed)
        self._scope = scope
        self._domains = domains
        self._names = names

    def number(self, what: str) -> float:
        """Return the next parameter, a number or an infinite cost."""
        node = self._next(what)
        if isinstance(node, int):
            return float(node)
        return self._reader.cost(node, f"the {what} of the function")

    def word(self, what: str) -> str:
        """Return the next parameter, a word."""
        node = self._next(what)
        return node.text if isinstance(node, _Node) else str(node)

    def label(self, variable: int | None, what: str) -> int:
        """Return the next parameter, a label of a variable, or of all in the scope.

        A name must be at the same position in all domains that have it.
        """
        node = self._next(what)
        scope = self._scope if variable is None else [self._scope[variable]]
        size = max((self._domains[v].size for v in scope), default=0)
        labels: dict[str, int] = {}
        for v in scope:
            for name, label in self._domains[v].names.items():
                if labels.setdefault(name, label) != label and name == getattr(node, "text", None):
                    raise self.error(f"the label {_cut(name)} has another position in variable {v}")
        if isinstance(node, int):
            return node
        return self._reader.index(node, labels, size, f"the {what} of the function")

    def variable(self, what: str) -> int:
        """Return the position in the scope of the next parameter, a variable."""
        node = self._next(what)
        if isinstance(node, int):
            return node
        variable = self._reader.index(
            node, self._names, len(self._domains), f"the {what} of the function"
        )
        if variable not in self._scope:
            raise self.error(f"variable {node.shown} of the parameters is not in the scope")
        return self._scope.index(variable)

    def error(self, message: str) -> FormatError:
        """Make the error for a fault of the function."""
        return self._reader.error(self._function, message)

    def _next(self, what: str) -> _Node | int:
        node = next(self._listed, None)
        if node is None:
            raise self.error(f"the parameters of the function end where the {what} is expected")
        return node
