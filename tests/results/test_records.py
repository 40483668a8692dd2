"""Records round-trip through the disk; a store survives crashes and reports errors."""

from __future__ import annotations

import errno
import json
import lzma
import math
import os
import re
import threading
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pytest
from hostile_values import NESTED, WIDE, Evil
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from inference_lab.contract import TracePoint
from inference_lab.results.clustering_records import StudyRecord
from inference_lab.results.json_lines import RecordError, clean_text, jsonable
from inference_lab.results.line_store import RecordWarning
from inference_lab.results.records import (
    SCHEMA,
    TRACE_LIMIT,
    Record,
    RecordStore,
    environment,
    thin_trace,
)


def make(**changes):
    record = Record(
        problem="estep(data=iris)",
        problem_hash="ab12",
        n_variables=3,
        n_edges=2,
        n_factors=0,
        n_labels=2,
        solver="icm",
        solver_name="icm",
        status="converged",
        seed=0,
        energy=1.5,
        gap=math.inf,
        trace=(TracePoint(0.1, 2.0, 2.0, -math.inf), TracePoint(0.2, 1.5, 1.5, 0.25)),
    )
    return replace(record, **changes)


@pytest.fixture
def path(tmp_path):
    """Return the path of a store."""
    return tmp_path / "deep" / "runs.jsonl"


def fill(path, text):
    """Write lines as by hand, and return the bytes of the file."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path.read_bytes()


def no_constants(token):
    raise AssertionError(f"{token} is not strict JSON")


numbers = st.floats(allow_nan=False) | st.sampled_from([math.inf, -math.inf, 0.1, 1e300])
free_form = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(
    energy=numbers.filter(lambda energy: energy > -math.inf),
    bound=numbers,
    claim=st.none() | numbers,
    seed=st.none() | st.integers(0, 2**63 - 1),
    message=st.text().map(clean_text),
    points=st.lists(st.tuples(numbers, numbers, numbers, numbers), max_size=5),
    diagnostics=st.dictionaries(st.text(), free_form, max_size=4),
)
def test_a_record_equals_its_copy_from_strict_json(
    energy, bound, claim, seed, message, points, diagnostics
):
    record = make(
        energy=energy,
        lower_bound=bound,
        claimed_energy=claim,
        seed=seed,
        message=message,
        trace=tuple(TracePoint(*p) for p in points),
        diagnostics=diagnostics,
    )
    line = record.to_json()
    assert "\n" not in line and line.isascii()
    json.loads(line, parse_constant=no_constants)
    copy = record.checked()
    assert Record.from_json(line) == copy == Record.from_json(copy.to_json())
    assert replace(copy, diagnostics={}) == replace(record, diagnostics={})


def test_numbers_that_are_not_finite_are_null_and_come_back():
    """Null is no energy and no bound; others are named beside the numbers."""
    record = make(lower_bound=-math.inf, energy=math.inf, trace=(TracePoint(0.1, *[math.inf] * 3),))
    data = json.loads(record.to_json())
    assert (data["energy"], data["lower_bound"], data["gap"]) == (None, None, None)
    assert data["trace"] == [[0.1, None, None, None]]
    assert data["not_finite"] == {"trace.0.3": "inf"}
    assert Record.from_json(record.to_json()) == record
    record = make(status="infeasible", energy=math.inf, lower_bound=math.inf, accuracy=math.nan)
    data = json.loads(record.to_json())
    assert (data["energy"], data["lower_bound"], data["accuracy"]) == (None, None, None)
    assert data["not_finite"] == {"lower_bound": "inf", "accuracy": "nan"}
    copy = Record.from_json(record.to_json())
    assert copy.lower_bound == math.inf and math.isnan(copy.accuracy)
    assert "not_finite" not in json.loads(make().to_json())


def test_settings_keep_infinities_as_words():
    """None is another setting; in scores and diagnostics null is no number."""
    record = make(
        settings={"weight": math.inf, "limit": None},
        problem_info={"weight": math.inf},
        scores={"a": math.inf, "b": math.nan, "c.d": -math.inf},
        diagnostics={"plan": [{"lower_bound": -math.inf}]},
    )
    data = json.loads(record.to_json())
    assert data["settings"] == {"weight": "inf", "limit": None}
    assert data["problem_info"] == {"weight": "inf"}
    assert data["scores"] == {"a": None, "b": None, "c.d": None}
    assert data["diagnostics"] == {"plan": [{"lower_bound": None}]}
    copy = Record.from_json(record.to_json())
    assert copy.scores == {"a": math.inf, "b": None, "c.d": -math.inf}


def test_lines_of_earlier_versions_have_words_in_the_place_of_numbers():
    text = {"energy": "inf", "lower_bound": "-inf", "gap": "inf", "accuracy": "nan"}
    trace = [[0.1, "inf", "inf", "-inf"]]
    line = json.dumps({**make().as_dict(), **text, "trace": trace, "schema": 7})
    read = Record.from_json(line)
    assert (read.energy, read.lower_bound, read.gap) == (math.inf, -math.inf, math.inf)
    assert math.isnan(read.accuracy)
    assert read.trace == (TracePoint(0.1, math.inf, math.inf, -math.inf),)
    assert Record.from_json(read.to_json()).trace == read.trace
    scores = {"a": "inf", "b": "0.5", "c": 0.5}
    read = Record.from_json(json.dumps({**make().as_dict(), "scores": scores, "schema": 7}))
    assert read.scores == {"a": math.inf, "b": "0.5", "c": 0.5}
    fit = json.dumps(
        {
            **{"schema": 2, "study": "s", "data": "d", "method": "m", "method_key": "k"},
            **{"estimator": "e", "constraints": 2.0, "run": 0, "train": 1.0, "scored": "all"},
            **{"noise": 0.0, "unit": "pairs", "status": "ok", "objective": "nan"},
            **{"weight": "inf", "violated": "inf", "e_steps": {"mean_gap": "inf"}},
            **{"settings": {"weight": "inf"}},
        }
    )
    old = StudyRecord.from_json(fit)
    assert (old.weight, old.violated, old.e_steps["mean_gap"]) == (math.inf,) * 3
    assert math.isnan(old.objective)
    data = json.loads(old.to_json())
    assert data["settings"] == {"weight": "inf"} and data["e_steps"] == {"mean_gap": None}
    assert [data[name] for name in ("objective", "weight", "violated", "seconds")] == [None] * 4
    new = StudyRecord.from_json(old.to_json())
    assert (new.weight, new.violated, new.e_steps["mean_gap"]) == (math.inf,) * 3
    assert math.isnan(new.objective) and new.identity == old.identity


@pytest.mark.parametrize(
    "others",
    [
        [],
        {"energy": "inf"},
        {"nothing": "inf"},
        {"claimed_energy": "5"},
        {"claimed_energy": []},
        {"claimed_energy.a": "inf"},
        {"trace.7.3": "inf"},
        {"trace.x": "inf"},
        {"trace.0.0": "inf"},
    ],
)
def test_places_that_hold_no_null_are_refused(others):
    with pytest.raises(RecordError, match="not_finite"):
        Record.from_json(json.dumps({**make().as_dict(), "not_finite": others}))


def test_other_programs_read_columns_of_numbers(path):
    """Without answers and bounds, pandas still reads floats, also where all are missing."""
    store = RecordStore(path)
    for energy, bound in ((math.inf, math.inf), (1.5, -math.inf), (2.5, 2.0)):
        store.append(make(energy=energy, lower_bound=bound, gap=energy - 2.0))
    for line in path.read_text().splitlines():
        json.loads(line, parse_constant=no_constants)
    frame = pd.read_json(path, lines=True)
    for name in ("energy", "lower_bound", "gap"):
        assert frame[name].dtype == np.float64, name
    assert frame["energy"].tolist()[1:] == [1.5, 2.5]
    points = [value for trace in frame["trace"] for point in trace for value in point]
    assert {type(value) for value in points} <= {float, int, type(None)}


def test_diagnostics_of_any_kind_become_json():
    loop: dict[str, object] = {}
    loop["self"] = loop
    converted = jsonable(
        {
            "array": np.arange(3),
            "matrix": np.eye(2),
            "large": np.zeros((100, 100)),
            "number": np.float32(0.5),
            "flag": np.bool_(True),
            "nothing": np.float64("nan"),
            "set": {2, 1},
            "object": object,
            "loop": loop,
            "nested": NESTED,
            "power": 2**20000,
            "evil": Evil(),
            "keys": {1: 1, (2, 3): 4, None: 5, Evil: 6},
            "half": "\ud83d\ude00",
            "objects": np.array([Evil(), None, 10**5000], dtype=object),
            "generator": (n for n in range(3)),
            "long": "x" * 10**7,
            "odd set": {2**20000, "a", None},
        }
    )
    assert len(json.dumps(converted, allow_nan=False)) < 300_000
    assert converted["power"] == "an integer of 20001 bits"
    assert converted["evil"] == "Evil that cannot be shown: RuntimeError"
    assert converted["half"] == "\\ud83d\\ude00" and converted["keys"]["(2, 3)"] == 4
    assert jsonable(WIDE) == "list of more than 1000000 characters"
    assert converted["array"] == [0, 1, 2] and converted["matrix"] == [[1.0, 0.0], [0.0, 1.0]]
    assert converted["large"] == {"shape": [100, 100], "dtype": "float64"}
    assert converted["number"] == 0.5 and converted["flag"] is True and converted["nothing"] is None
    assert jsonable({"weight": -math.inf}, text=True) == {"weight": "-inf"}
    assert converted["set"] == [1, 2] and converted["object"] == "<class 'object'>"


def test_a_long_trace_keeps_its_ends_and_its_improvements():
    trace = []
    for t in range(5000):
        best = 100.0 - t // 500
        trace.append(TracePoint(float(t), 200.0, best, 0.0 if t < 2345 else 1.0))
    thin = thin_trace(trace)
    assert len(thin) <= TRACE_LIMIT
    assert thin[0] == trace[0] and thin[-1] == trace[-1]
    assert {p.best_energy for p in thin} == {p.best_energy for p in trace}
    assert trace[2345] in thin and trace[500] in thin
    steady = [TracePoint(float(t), -float(t), -float(t), -math.inf) for t in range(5000)]
    even = thin_trace(steady)
    assert len(even) == TRACE_LIMIT and even[0] == steady[0] and even[-1] == steady[-1]
    steps = np.diff([p.seconds for p in even])
    assert steps.max() - steps.min() <= 1


def test_the_environment_names_versions_and_the_machine():
    facts = environment()
    assert {"python", "numpy", "numba", "scipy", "platform", "cpu_count"} <= set(facts)
    assert facts["numpy"] == np.__version__
    assert re.fullmatch("[0-9a-f]{8}", facts["id"]) and facts["memory"] > 1 << 28
    assert make().environment == facts


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("status", "<b>done</b>"),
        ("seconds", -5.0),
        ("seconds", "nan"),
        ("seconds", "inf"),
        ("setup_seconds", "inf"),
        ("energy", "nan"),
        ("energy", "-inf"),
        ("lower_bound", "nan"),
        ("time_limit", -1.0),
        ("time_limit", "inf"),
        ("iterations", 10**40),
        ("seed", 10**400),
        ("schema", True),
    ],
)
def test_impossible_field_values_are_refused(tmp_path, field, value):
    path = tmp_path / "runs.jsonl"
    line = {**json.loads(make().to_json()), field: value}
    path.write_text(make().to_json() + "\n" + json.dumps(line) + "\n")
    with pytest.raises(RecordError, match=field):
        Record.from_json(json.dumps(line))
    with pytest.warns(RecordWarning, match=rf"runs\.jsonl:2: .*{field}"):
        assert len(RecordStore(path).read()) == 1


def test_records_come_back_in_order(path):
    written = [make(seed=s) for s in range(5)]
    store = RecordStore(path)
    for record in written:
        store.append(record)
    assert RecordStore(path).read() == written
    # Any program that reads JSON lines reads them in this way.
    frame = pd.read_json(path, lines=True)
    assert list(frame["seed"]) == [0, 1, 2, 3, 4]


def test_a_record_is_synced_before_append_returns(path, monkeypatch):
    synced = []
    real = os.fsync

    def fsync(handle):
        real(handle)
        synced.append(path.read_bytes())

    monkeypatch.setattr(os, "fsync", fsync)
    record = make()
    RecordStore(path).append(record)
    assert synced == [record.to_json().encode() + b"\n"]


@pytest.mark.parametrize("zeros", [0, 100])
@pytest.mark.parametrize("share", [0.0, 0.001, 0.02, 0.5, 0.999])
def test_a_half_written_last_line_is_left_out_and_then_replaced(path, share, zeros):
    """After a crash the rest of the line may be missing, or be zeros."""
    store = RecordStore(path)
    first, second, third = (make(seed=s) for s in range(3))
    store.append(first)
    whole = path.read_bytes()
    store.append(second)
    line = len(path.read_bytes()) - len(whole)
    length = max(1 - zeros, int(share * (line - 1)))
    path.write_bytes(path.read_bytes()[: len(whole) + max(0, length)] + b"\0" * zeros)
    with pytest.warns(RecordWarning, match=r"runs.jsonl:2.*cut off"):
        assert store.read() == [first]
    with pytest.warns(RecordWarning, match="removed"):
        store.append(third)
    assert store.read() == [first, third]


def test_a_whole_last_line_without_its_end_is_kept(path):
    store = RecordStore(path)
    first, second = make(seed=0), make(seed=1)
    fill(path, first.to_json())
    assert store.read() == [first]
    store.append(second)
    assert store.read() == [first, second]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("garbage", "not a line of JSON"),
        ("[1, 2]", "not a record"),
        ('{"a": 1}', "not a record"),
        (json.dumps({**make().as_dict(), "schema": SCHEMA + 1}), f"schema {SCHEMA + 1}"),
        (json.dumps({**make().as_dict(), "extra": 1}), "unknown field `extra`"),
        (
            json.dumps({k: v for k, v in make().as_dict().items() if k != "seed"}),
            "missing required field `seed`",
        ),
        (
            json.dumps({**make().as_dict(), "energy": "low"}),
            "Expected `float`, got `str` - at `$.energy`",
        ),
        (
            json.dumps({**make().as_dict(), "energy": True}),
            "Expected `float`, got `bool` - at `$.energy`",
        ),
        (json.dumps({**make().as_dict(), "seed": 1.5}), "`$.seed`"),
        (
            json.dumps({**make().as_dict(), "status": None}),
            "Expected `str`, got `null` - at `$.status`",
        ),
        (json.dumps({**make().as_dict(), "trace": [[1, 2]]}), "`$.trace[0]`"),
        (json.dumps({**make().as_dict(), "problem": "\ud800"}), "not a line of JSON"),
        (make().to_json().replace('"energy": 1.5', '"energy": NaN'), "not a line of JSON"),
        ('{"schema": 1, "id": "cut of', "not a line of JSON"),
        ("", "not a line of JSON"),
        ("[" * 100_000, "not a line of JSON"),
        ('{"a":' * 100_000, "not a line of JSON"),
        ("\x80\x04cposix\nsystem\n.".replace("\n", " "), "not a line of JSON"),
        ("null", "not a record"),
    ],
)
def test_invalid_line_is_left_out_and_reported_with_its_number(path, line, expected):
    good = make()
    fill(path, f"{good.to_json()}\n{line}\n{good.to_json()}\n")
    store = RecordStore(path)
    with pytest.warns(RecordWarning) as caught:
        assert store.read() == [good, good]
    assert store.remarks == [str(warning.message) for warning in caught]
    assert f"1 line that is not a record was left out: {path}:2: " in store.remarks[0]
    assert expected in store.remarks[0]


@pytest.mark.parametrize("text", [b"my notes\n", b"my notes", b"\xff\xfe\n"])
def test_a_file_that_is_something_else_is_refused_and_left_alone(tmp_path, text):
    path = tmp_path / "notes.txt"
    before = fill(path, text)
    with pytest.raises(RecordError):
        RecordStore(path).prepare()
    if not text.endswith(b"\n"):
        with pytest.raises(RecordError, match=r"notes\.txt:1"):
            RecordStore(path).append(make())
    assert path.read_bytes() == before


def test_prepare_makes_the_file_or_raises(tmp_path):
    RecordStore(tmp_path / "a" / "runs.jsonl").prepare()
    assert RecordStore(tmp_path / "a" / "runs.jsonl").read() == []
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        RecordStore(tmp_path / "file" / "runs.jsonl").prepare()


def test_a_full_disk_leaves_the_file_as_it_was(path, monkeypatch):
    store = RecordStore(path)
    store.append(make(seed=0))
    before = path.read_bytes()
    real = os.write
    calls = []

    def write(handle, data):
        calls.append(len(data))
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(handle, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OSError, match="No space left") as caught:
        store.append(make(seed=1))
    assert caught.value.filename == str(path)
    assert len(calls) == 2
    assert path.read_bytes() == before


def test_ctrl_c_while_waiting_for_the_disk_keeps_the_record(path, monkeypatch):
    def fsync(handle):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", fsync)
    record = make()
    with pytest.raises(KeyboardInterrupt):
        RecordStore(path).append(record)
    assert RecordStore(path).read() == [record]


def test_a_disk_that_fails_to_sync_leaves_the_file_as_it_was(path, monkeypatch):
    def fsync(handle):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="Input/output"):
        RecordStore(path).append(make())
    assert path.read_bytes() == b""


def test_several_writers_do_not_mix_their_lines(path, monkeypatch):
    real = os.write

    def in_pieces(handle, data):
        return real(handle, data[:100])

    monkeypatch.setattr(os, "write", in_pieces)

    def write(worker):
        store = RecordStore(path)
        for s in range(20):
            store.append(make(seed=100 * worker + s))

    threads = [threading.Thread(target=write, args=(w,)) for w in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        seeds = [record.seed for record in RecordStore(path)]
    assert sorted(seeds) == [100 * w + s for w in range(4) for s in range(20)]
    for w in range(4):
        assert [s for s in seeds if s // 100 == w] == [100 * w + s for s in range(20)]


# ---------------------------------------------------------------------- archives


def test_an_archive_is_read_before_the_records_that_came_later(path):
    RecordStore(path).extend(make(seed=s) for s in range(3))
    archive = path.with_name("runs.jsonl.xz")
    before = fill(archive, lzma.compress(path.read_bytes()))
    path.unlink()
    for name in (path, archive):
        assert [r.seed for r in RecordStore(name)] == [0, 1, 2]
    store = RecordStore(archive)
    assert len(store.prepare()) == 3
    store.append(make(seed=3))
    assert [r.seed for r in RecordStore(path).prepare()] == [0, 1, 2, 3]
    assert len(path.read_bytes().splitlines()) == 1 and archive.read_bytes() == before
    assert list(pd.read_json(archive, lines=True)["seed"]) == [0, 1, 2]


def test_damaged_line_of_an_archive_is_reported_and_kept(path):
    archive = path.with_name("runs.jsonl.xz")
    before = fill(archive, lzma.compress(f"{make().to_json()}\ngarbage\n".encode()))
    with pytest.warns(RecordWarning, match=r"runs\.jsonl\.xz:2: not a line of JSON"):
        assert len(RecordStore(path).prepare()) == 1
    assert archive.read_bytes() == before


@pytest.mark.parametrize("use", ["prepare", "read"])
def test_a_damaged_archive_is_refused_and_left_alone(path, use):
    whole = lzma.compress(make().to_json().encode() + b"\n")
    archive = path.with_name("runs.jsonl.xz")
    for damaged in (whole[:-9], whole[:40] + bytes([whole[40] ^ 0xFF]) + whole[41:], b"notes"):
        fill(archive, damaged)
        with pytest.raises(RecordError, match=r"runs\.jsonl\.xz: damaged xz data"):
            getattr(RecordStore(path), use)()
        assert archive.read_bytes() == damaged


def test_a_bomb_is_refused_before_it_is_unpacked(path):
    fill(path.with_name("runs.jsonl.xz"), lzma.compress(b" " * (40 << 20)) * 3)
    tracemalloc.start()
    with pytest.raises(RecordError, match="more than 33,554,432 bytes of content"):
        RecordStore(path).prepare()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 80 << 20
