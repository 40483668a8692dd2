"""Large objects are sent to a process once, and put back into the calls that share them."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from functools import partial

import pytest

from inference_lab.processes import shared_objects
from inference_lab.processes.shared_objects import Lack, Sender, Shared, load

#: Characters of a text that is not sent with each call.
LARGE = 40_000


class Text(Shared):
    """A text, whose length is derived."""

    def __init__(self, text):
        self.text = text
        self.length = len(text)

    def __getstate__(self):
        return {"text": self.text}

    def restore(self):
        assert not hasattr(self, "length"), "an object is restored once"
        self.length = len(self.text)


def sizes(*texts):
    return [text.length for text in texts]


@pytest.fixture(autouse=True)
def empty(monkeypatch):
    """Begin without received objects."""
    monkeypatch.setattr(shared_objects, "_received", OrderedDict())


def test_small_objects_go_with_each_call():
    sender, text = Sender(), Text("abc")
    parcel = sender.parcel(partial(sizes, text, text))
    contents = sender.contents(parcel.names, large=False)
    assert set(contents) == set(parcel.names)
    assert load(parcel, contents)() == [3, 3]
    # Received again, it is neither unpickled nor restored again.
    assert load(parcel, contents)() == [3, 3]


def test_large_objects_are_sent_only_where_they_are_missing():
    sender, texts = Sender(), [Text("a" * LARGE), Text("b" * 2 * LARGE)]
    parcel = sender.parcel(partial(sizes, *texts))
    assert len(parcel.call) < 500 and len(set(parcel.names)) == 2
    assert sender.contents(parcel.names, large=False) == {}
    lack = load(parcel, {})
    assert lack == Lack(parcel.names)
    first = sender.contents(lack.names[:1], large=True)
    assert load(parcel, first) == Lack(parcel.names[1:])
    assert load(parcel, sender.contents(lack.names, large=True))() == [LARGE, 2 * LARGE]
    assert load(sender.parcel(partial(sizes, texts[1])), {})() == [2 * LARGE]


def test_equal_objects_have_one_name():
    sender = Sender()
    one, two = Text("abc"), Text("abc")
    names = sender.parcel(partial(sizes, one, two)).names
    assert len(names) == 2 and len(set(names)) == 1
    assert Sender().parcel(partial(sizes, Text("abc"))).names == names[:1]
    assert sender.parcel(partial(sizes, Text("abd"))).names != names[:1]


def test_least_recently_used_objects_are_dropped(monkeypatch):
    sender, texts = Sender(), [Text(letter * LARGE) for letter in "abc"]
    parcels = [sender.parcel(partial(sizes, text)) for text in texts]
    monkeypatch.setattr(shared_objects, "_CAPACITY", 2 * len(pickle.dumps(texts[0])))

    def held(number, **how):
        return load(parcels[number], sender.contents(parcels[number].names, **how))

    for number in (0, 1):
        assert held(number, large=True)() == [LARGE]
    assert held(0, large=False)() == [LARGE]
    assert held(2, large=True)() == [LARGE]
    assert held(0, large=False)() == held(2, large=False)() == [LARGE]
    assert isinstance(held(1, large=False), Lack)
    # A call needs all its objects at once, even where they exceed the capacity.
    everything = sender.parcel(partial(sizes, *texts))
    assert load(everything, sender.contents(everything.names, large=True))() == [LARGE] * 3
