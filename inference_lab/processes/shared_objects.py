"""Pickled calls that name the large objects in them, so that a process receives each object once.

A graph of a hundred thousand terms takes megabytes, and hundreds of runs of a comparison share it.
`Sender` pickles calls with names in the place of such objects, and `load` puts the objects back, or
returns a `Lack` with the names of objects that this process has not received.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

#: Largest pickle of an object in bytes that is sent with each call, because a second message takes
#: longer.
_SMALL = 1 << 15

#: Bytes of pickles whose objects a process keeps, beside the objects of its current call.
_CAPACITY = 1 << 28


class Shared:
    """Base class of objects that many calls have in common; they must not be changed."""

    def restore(self) -> None:
        """Compute what the pickle of the object leaves out, once in each process."""


class Parcel(NamedTuple):
    """A pickled call, and the names of the shared objects in it."""

    call: bytes
    names: tuple[str, ...]


class Lack(NamedTuple):
    """The names of the objects that a process needs for a call and has not received."""

    names: tuple[str, ...]


class _Pickler(pickle.Pickler):
    """Pickler that writes names in the place of shared objects."""

    def __init__(self, stream: io.BytesIO, name: Callable[[Shared], str]) -> None:
        super().__init__(stream, pickle.HIGHEST_PROTOCOL)
        self.name = name
        self.names: list[str] = []

    def persistent_id(self, thing: Any) -> str | None:
        """Return the name of a shared object, and None for any other."""
        if not isinstance(thing, Shared):
            return None
        self.names.append(self.name(thing))
        return self.names[-1]


class Sender:
    """Calls and shared objects in the form in which they are sent to other processes."""

    def __init__(self) -> None:
        # Objects are found by their address, so they are held here. A large pickle is made again
        # for each process that lacks it, because a copy of each problem would double the memory.
        self._names: dict[int, str] = {}
        self._objects: dict[str, Shared] = {}
        self._small: dict[str, bytes] = {}

    def parcel(self, call: Callable[[], Any]) -> Parcel:
        """Return a call with names in the place of shared objects."""
        stream = io.BytesIO()
        pickler = _Pickler(stream, self._name)
        pickler.dump(call)
        return Parcel(stream.getvalue(), tuple(pickler.names))

    def contents(self, names: Iterable[str], *, large: bool) -> dict[str, bytes]:
        """Return the pickles of named objects; without `large`, only of small ones."""
        return {
            name: self._small.get(name) or pickle.dumps(self._objects[name])
            for name in names
            if large or name in self._small
        }

    def _name(self, thing: Shared) -> str:
        """Return a digest of the content, so that equal objects of two comparisons share it."""
        if id(thing) not in self._names:
            content = pickle.dumps(thing)
            name = hashlib.sha256(content).hexdigest()
            self._names[id(thing)] = name
            # Objects with equal content must stay alive as well, because their address is known.
            self._objects[f"{name} at {id(thing)}"] = self._objects[name] = thing
            if len(content) <= _SMALL:
                self._small[name] = content
        return self._names[id(thing)]


#: The shared objects of this process and the sizes of their pickles, least recently used first.
_received: OrderedDict[str, tuple[Shared, int]] = OrderedDict()


class _Unpickler(pickle.Unpickler):
    """Unpickler that puts received objects in the place of their names."""

    def persistent_load(self, name: str) -> Shared:
        """Return the object with a name."""
        return _received[name][0]


def load(parcel: Parcel, contents: Mapping[str, bytes]) -> Callable[[], Any] | Lack:
    """Return a call, after keeping the objects sent with it, or the names of missing objects."""
    for name in parcel.names:
        if name in contents and name not in _received:
            thing = pickle.loads(contents[name])
            thing.restore()
            _received[name] = (thing, len(contents[name]))
    missing = tuple(name for name in parcel.names if name not in _received)
    if missing:
        return Lack(missing)
    for name in parcel.names:
        _received.move_to_end(name)
    while sum(size for _, size in _received.values()) > _CAPACITY:
        if next(iter(_received)) in parcel.names:
            break
        _received.popitem(last=False)
    call: Callable[[], Any] = _Unpickler(io.BytesIO(parcel.call)).load()
    return call


def call_parcel(parcel: Parcel, contents: Mapping[str, bytes]) -> Any:
    """Make a call in this process, or return a `Lack`; see `load`."""
    call = load(parcel, contents)
    return call if isinstance(call, Lack) else call()
