"""UAI files: every real instance, every kind of damage, and lossless round trips."""

from __future__ import annotations

import gzip
import lzma
import math
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import damage
import numpy as np
import pytest
from damage import SlowModel, check_damaged, check_refused, damaged
from hypothesis import assume, example, given
from places import DATA, published
from slow_words import Refused, Words, is_numeral, uncommented
from strategies import labellings

import inference_lab as il
from inference_lab.io import FormatError, supported_suffixes, uai
from inference_lab.io._evidence import parse_evidence

INSTANCES = sorted(
    path for suffix in ("uai", "uai.gz", "uai.xz") for path in DATA.glob(f"map/*/*.{suffix}")
)
needs_data = pytest.mark.skipif(
    not INSTANCES,
    reason=f"no UAI files under {DATA}; set $INFERENCE_LAB_DATA to the folder that holds map/",
)

SMALL = damage.SMALL["uai"]
BAYES = damage.SMALL["bayes"]


def parse(data: bytes) -> il.FactorGraph:
    return uai.parse(data, "here.uai")


def assert_same_energies(expected: il.FactorGraph, actual: il.FactorGraph) -> None:
    assert actual.cardinalities.tolist() == expected.cardinalities.tolist()
    x = labellings(expected)
    a, b = expected.energy(x), actual.energy(x)
    np.testing.assert_array_equal(np.isinf(a), np.isinf(b))
    finite = np.isfinite(a)
    scale = 1.0 + abs(expected.constant)
    scale += sum(float(np.abs(t[np.isfinite(t)]).max(initial=0)) for _, t in expected.factors())
    np.testing.assert_allclose(b[finite], a[finite], rtol=0, atol=1e-12 * scale)


# ------------------------------------------------------------------ a second, slow reader


def slow_read(
    text: str, energy: Callable[[str], float]
) -> tuple[list[int], list[tuple[tuple[int, ...], list[float]]]]:
    """Read token by token as the format is described, independently of the real reader."""
    words = Words(text)
    size = len(words)
    if words.word().upper() not in ("MARKOV", "BAYES"):
        raise Refused
    n = words.integer(0, size)
    cardinalities = [words.integer(1, 2**31 - 1) for _ in range(n)]
    scopes = []
    for _ in range(words.integer(0, size)):
        scope = tuple(words.integer(0, n - 1) for _ in range(words.integer(0, size)))
        if len(set(scope)) < len(scope):
            raise Refused
        scopes.append(scope)
    factors = []
    for scope in scopes:
        entries = math.prod(cardinalities[v] for v in scope)
        if words.integer(1) != entries:
            raise Refused
        table = [energy(words.word()) for _ in range(entries)]
        if all(e == math.inf for e in table):
            raise Refused
        factors.append((scope, table))
    for v in range(n):
        if cardinalities[v] > 10_000_000 and not any(v in scope for scope in scopes):
            raise Refused
    if words:
        raise Refused
    return cardinalities, factors


def slow_energy(
    cardinalities: list[int], factors: list[tuple[tuple[int, ...], list[float]]], x: Any
) -> float:
    total = 0.0
    for scope, table in factors:
        index = 0
        for v in scope:
            index = index * cardinalities[v] + int(x[v])
        total += table[index]
    return total


def by_float(token: str) -> float:
    value = float(token)
    return math.inf if value == 0 else -math.log(value)


def by_decimal(token: str) -> float:
    if not is_numeral(token):
        raise Refused
    value = Decimal(token)
    if value < 0:
        raise Refused
    return math.inf if value == 0 else -float(value.ln())


# ------------------------------------------------------------------ real instances


def reference(path: Path) -> dict[str, str]:
    ((_, row),) = published(path.parent.name, file=path.name)
    return row


def content(path: Path) -> bytes:
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes())
    return path.read_bytes()


@needs_data
@pytest.mark.parametrize(
    "path",
    [p for p in INSTANCES if p.name != "gm_000.uai.xz"],
    ids=lambda p: f"{p.parent.name}/{p.name}",
)
def test_instance_has_reference_sizes_and_energies_of_a_slow_reader(path: Path) -> None:
    graph = il.read(path)
    row = reference(path)
    text = content(path).decode()
    if path.name == "bn.uai":  # content after the tables is tested separately
        text = text[: text.rindex("0 \r\n12 0 1")]
    cardinalities, factors = slow_read(text, by_float)

    assert graph.n_variables == int(row["vars"])
    assert graph.cardinalities.tolist() == cardinalities
    assert max(cardinalities) == int(row["max_card"])
    assert len(factors) == int(row["factors"])
    assert max(len(scope) for scope, _ in graph.factors()) == int(row["max_arity"])
    assert sum(e == math.inf for _, t in factors for e in t) == int(row["zero_entries"])

    rng = np.random.default_rng(0)
    batch = rng.integers(graph.cardinalities, size=(4, graph.n_variables))
    expected = [slow_energy(cardinalities, factors, x) for x in batch]
    np.testing.assert_allclose(graph.energy(batch), expected, rtol=1e-11, atol=1e-9)


@needs_data
def test_a_file_of_costs_is_refused_because_zero_costs_would_forbid() -> None:
    with pytest.raises(FormatError, match=r"factor 4 over \(4,\).*costs"):
        il.read(DATA / "map" / "stereo_qap" / "gm_000.uai.xz")


# ------------------------------------------------------------------ the format


def test_structure_of_tables_is_found_table_by_table() -> None:
    # One shape, three structures: messages of the first two cost O(k).
    graph = parse(
        b"MARKOV 4 2 2 2 2 3 2 0 1 2 1 2 2 2 3 4 1 0.5 0.5 1 4 1 0.5 0.5 2 4 1 0.5 0.25 1"
    )
    kinds = {tuple(e): int(k) for e, k in zip(graph.edges.tolist(), graph.edge_kinds, strict=True)}
    assert kinds == {(0, 1): 0, (1, 2): 1, (2, 3): 2}


def test_potential_of_one_is_energy_zero_and_not_minus_zero() -> None:
    graph = parse(b"MARKOV 1 2 2 1 0 0 2 1 2 1 1")
    assert not np.signbit(graph.unary_of(0)[0])
    assert not np.signbit(graph.constant)


def test_no_variables() -> None:
    assert parse(b"MARKOV 0 0").n_variables == 0
    assert parse(b"MARKOV 0 1 0 1 0.5").energy([]) == pytest.approx(math.log(2))


def test_more_than_64_variables_in_a_factor_that_has_few_entries() -> None:
    cards = [1] * 70
    cards[3] = cards[68] = 2
    head = f"MARKOV 70 {' '.join(map(str, cards))} 1 70 {' '.join(map(str, range(70)))}"
    graph = parse(f"{head} 4 1 2 3 4".encode())
    x = np.zeros(70, dtype=int)
    x[68] = 1
    assert graph.energy(x) == pytest.approx(-math.log(2))


@pytest.mark.parametrize(
    ("token", "energy"),
    [
        ("1e-400", 400 * math.log(10)),
        ("1e400", -400 * math.log(10)),
        ("2.5e-5000", 5000 * math.log(10) - math.log(2.5)),
        ("0." + "0" * 400 + "1", 401 * math.log(10)),
        ("1" + "0" * 400, -400 * math.log(10)),
        ("3e-323", 323 * math.log(10) - math.log(3)),  # a subnormal double: one digit left
        ("1e-100000000000000000", 1e17 * math.log(10)),
        ("0.000000", math.inf),
        ("0e-400", math.inf),
        ("-0.0", math.inf),
        ("1e-300", 300 * math.log(10)),
    ],
)
def test_numbers_out_of_the_range_of_doubles_keep_their_energy(token: str, energy: float) -> None:
    graph = parse(f"MARKOV 1 2 1 1 0 2 1 {token}".encode())
    assert graph.unary_of(0)[1] == pytest.approx(energy, rel=1e-14)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"the file is empty; expected MARKOV or BAYES"),
        (" \n\t " * 200, r"the file is empty"),
        ("\n\nLIMID 1", r"line 3, token 1: expected MARKOV or BAYES, got 'LIMID'"),
        ("MARKOV", r"end of file after 1 tokens: .*ends where the number of variables"),
        ("MARKOV x", r"line 1, token 2: expected a number, got 'x'"),
        ("MARKOV 1 2 1 1 0 2 0.5 0,5", r"token 9: expected a number, got '0,5'"),
        ("MARKOV 1 2 1 1 0 2 0.5 1_0", r"expected a number, got '1_0'"),
        ("MARKOV 1 2 1 1 0 2 0.5 0.5-1", r"expected a number, got '0.5-1'"),
        ("MARKOV 1 2 1 1 0 2 0x1 1", r"expected a number, got '0x1'"),
        ("MARKOV 2.5 2", r"the number of variables, an integer >= 0, got '2.5'"),
        ("MARKOV 1000000000000 2", r"variables is '1000000000000', but at most 1 fit"),
        ("MARKOV 1 0 0", r"variable 0: expected its number of labels, .* got '0'"),
        ("MARKOV 1 2", r"ends where the number of factors is expected"),
        ("MARKOV 1 2 1e15", r"the number of factors is '1e15', but at most 0 fit"),
        ("MARKOV 1 2 1 7 0 2 1 1", r"variables of factor 0 is '7', but at most 4 fit"),
        ("MARKOV 1 2 2 1 0", r"ends where the number of variables of factor 1 is expected"),
        ("MARKOV 2 2 2 1 1 2 2 1 1", r"factor 0: expected a variable of its scope, 0 to 1.*'2'"),
        ("MARKOV 2 2 2 2 1 0 1 -1 2 1 1 2 1 1", r"token 9: factor 1: .*0 to 1, got '-1'"),
        ("MARKOV 0 1 1 0 1 1", r"but there are none, got '0'"),
        ("MARKOV 2 2 2 1 2 1 1 4 1 1 1 1", r"factor 0 names variable 1 twice"),
        ("MARKOV 2 2 3 1 2 0 1 5 1 1 1 1 1", r"over \(0, 1\) needs a table of 2 x 3 = 6 .*'5'"),
        ("MARKOV 1 2 1 1 0", r"ends where the table of factor 0 is expected"),
        ("MARKOV 1 2 1 1 0 2 1", r"inside the table of factor 0: 2 entries expected, 1 found"),
        ("MARKOV 1 2 1 1 0 2 1 1 1", r"token 10: 1 surplus tokens after .*from '1'"),
        ("MARKOV 1 2 1 1 0 2 1 -0.5", r"factor 0 over \(0,\), entry 1: .*'-0.5' is negative"),
        ("MARKOV 1 2 1 1 0 2 nan 1", r"entry 0: the potential 'nan' is not a number"),
        ("MARKOV 1 2 1 1 0 2 1 inf", r"entry 1: the potential 'inf' is not a finite number"),
        ("MARKOV 1 2 1 1 0 2 1 1e-" + "9" * 200, r"exponent that is out of range"),
        ("MARKOV 1 2 1 1 0 2 0 0.0", r"factor 0 over \(0,\) has no table but zeros"),
        ("MARKOV 1 2 1 0 1 0", r"factor 0 over \(\) is a constant of zero"),
        ("MARKOV 1 2 1 1 0 2 1 é", r"byte 21 is 0xc3; expected plain ASCII"),
        ("MARKOV 1 2 1 1 0 2 1 1\x00", r"byte 22 is 0x00"),
        ("MARKOV 1 2000000000 0", r"variable 0 has 2000000000 labels and no factor"),
        (
            "MARKOV 40 " + "2147483647 " * 40 + "1 40 " + " ".join(map(str, range(40))) + " 8 1",
            r"factor 0 over \(0, 1, .* 40 variables\) needs a table of",
        ),
        (
            "MARKOV 2 1000000 1000000 1 2 0 1 1000000000000 1 1 1",
            r"1000000000000 entries expected, 3 found",
        ),
    ],
)
def test_errors_name_fault_and_position(text: str, message: str) -> None:
    check_refused(parse, text, message, "here.uai")


def test_no_evidence_and_lists_after_the_tables_are_ignored() -> None:
    graph = parse(BAYES)
    assert parse(BAYES + b"0\n2 0 1\n").content_hash == graph.content_hash
    for tail in (b"1\n0 1\n", b"0\n2 0\n", b"0 2 0.5 1\n", b"0\n-1\n"):
        with pytest.raises(FormatError, match="surplus"):
            parse(BAYES + tail)
    with pytest.raises(FormatError, match="surplus"):
        parse(BAYES.rstrip() + b" 0\n")


# ------------------------------------------------------------------ evidence


def observe(text: str, cardinalities: tuple[int, ...] = (2, 3, 2)) -> dict[int, int]:
    return parse_evidence(text.encode(), "here.evid", np.array(cardinalities))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", {}),
        ("1 0", {}),
        ("1 1 2", {1: 2}),
        ("1\n 1 1 2\n", {1: 2}),
        ("1 1 0 0", {0: 0}),
        ("2 1 2 0 1", {1: 2, 0: 1}),
        ("1 2 1 2 0 1", {1: 2, 0: 1}),
        ("3 0 0 1 0 2 1", {0: 0, 1: 0, 2: 1}),
        ("2 0 1 0 1", {0: 1}),  # an identical repetition is no contradiction
    ],
)
def test_both_dialects_of_evidence(text: str, expected: dict[int, int]) -> None:
    assert observe(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"here.evid, end of file after 0 tokens: expected evidence"),
        ("2 1 0 0 1 1 0", r"the count 2 does not fit the 7 numbers"),
        ("3 0 1", r"the count 3 does not fit the 3 numbers"),
        ("1 0 1 1", r"the count 1 does not fit the 4 numbers"),
        ("0 1 1", r"the count 0 does not fit the 3 numbers"),
        ("1 7 0", r"line 1, token 2: variable 7 does not exist; there are 3"),
        ("1 1 3", r"token 3: variable 1 has no label 3; it has 0 to 2"),
        ("2 1 0\n1 2", r"line 2, token 5: variable 1 is given label 0 and 2"),
        ("1 1 0.5", r"expected an integer >= 0, got '0.5'"),
        ("1 1 a", r"token 3: expected a number, got 'a'"),
        ("1e300 1 1", r"expected an integer >= 0, got '1e300'"),
    ],
)
def test_evidence_that_is_refused(text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        observe(text)


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_evidence_is_applied_from_any_compression(tmp_path: Path, suffix: str) -> None:
    pack = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[suffix]
    (tmp_path / "m.uai").write_bytes(BAYES)
    (tmp_path / f"m.evid{suffix}").write_bytes(pack(b"1 1 1 0"))
    graph = il.read(tmp_path / "m.uai", evidence=tmp_path / f"m.evid{suffix}")
    assert graph.energy([1, 1]) == math.inf
    assert graph.energy([1, 0]) == pytest.approx(-math.log(0.7), abs=1e-15)


# ------------------------------------------------------------------ files


def test_suffixes(tmp_path: Path) -> None:
    assert supported_suffixes()[:3] == (".uai", ".uai.gz", ".uai.xz")
    for name in ("model.txt", "model", "model.gz", "uai"):
        with pytest.raises(FormatError, match=r"supported: \.uai, \.uai\.gz, \.uai\.xz"):
            il.read(tmp_path / name)
        with pytest.raises(FormatError, match="supported"):
            il.write(parse(BAYES), tmp_path / name)
    assert not list(tmp_path.iterdir())
    (tmp_path / "SHOUT.UAI").write_bytes(BAYES)
    assert il.read(str(tmp_path / "SHOUT.UAI")).n_variables == 2
    with pytest.raises(FileNotFoundError):
        il.read(tmp_path / "missing.uai")


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("m.uai.gz", lambda: gzip.compress(SMALL)[:-12]),
        ("m.uai.gz", lambda: SMALL),
        ("m.uai.gz", lambda: gzip.compress(b"")[:10] + b"\xff" * 9),
        ("m.uai.xz", lambda: lzma.compress(SMALL)[:-10]),
        ("m.uai.xz", lambda: SMALL),
    ],
)
def test_damaged_compression(tmp_path: Path, name: str, damage: Callable[[], bytes]) -> None:
    path = tmp_path / name
    path.write_bytes(damage())
    with pytest.raises(FormatError, match=rf"{re.escape(str(path))}: damaged {name[-2:]} data"):
        il.read(path)


# ------------------------------------------------------------------ damage at random


@given(damaged(SMALL, BAYES))
@example(SMALL)
@example(BAYES)
def test_damaged_text_is_refused_exactly_when_the_slow_reader_refuses(data: bytes) -> None:
    # On one line, so that no text after the tables is an annotation.
    data = b" ".join(data.split())
    # Python splits at a few control characters more than the format does.
    assume(not re.search(rb"[\x1c-\x1f]", data))

    def read_slowly() -> SlowModel:
        text = uncommented(data)
        if not text.isascii():
            raise Refused
        cardinalities, factors = slow_read(text.decode(), by_decimal)
        return cardinalities, lambda x: slow_energy(cardinalities, factors, x)

    check_damaged(lambda: parse(data), read_slowly)


# ------------------------------------------------------------------ round trips


@pytest.mark.parametrize("constant", [5000.0, -12345.678, 500_000.25])
def test_constants_are_in_the_range_of_doubles_for_other_tools(constant: float) -> None:
    text = "".join(uai.serialise(il.FactorGraph.potts([[0.0, 1.0]], [], [], constant=constant)))
    _, factors = slow_read(text, by_float)
    assert all(math.isfinite(e) for _, table in factors for e in table)
    assert math.fsum(t[0] for scope, t in factors if not scope) == pytest.approx(constant)


def test_ordinary_potentials_are_written_as_they_are() -> None:
    graph = parse(BAYES)
    text = "".join(uai.serialise(graph))
    _, factors = slow_read(text, by_decimal)
    np.testing.assert_allclose(np.exp(-np.array(factors[0][1])), [0.3, 0.7], rtol=1e-15)
    assert [scope for scope, _ in factors] == [(0,), (0, 1)]
    assert text.startswith("MARKOV\n2\n2 2\n2\n1 0\n2 0 1\n\n2\n")


def test_huge_costs_alone_leave_the_range_of_doubles() -> None:
    graph = il.FactorGraph.pairwise([[0.0, 0.0]] * 2, [(0, 1)], [[[4000.0, 4001.0], [4001.5, 9e3]]])
    text = "".join(uai.serialise(graph))
    tiny = [t for t in text.split()[1:] if float(t) == 0 and t != "0"]
    assert len(tiny) == 1  # 9000 is 5000 above the minimum; the three others are near it
    assert_same_energies(graph, parse(text.encode()))


def test_costs_too_large_to_be_potentials_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.uai"
    with pytest.raises(ValueError, match=r"factor over \(0,\) has a cost of size 2e\+18"):
        il.write(il.FactorGraph.potts([[0.0, 2e18]], [], []), path)
    with pytest.raises(ValueError, match=r"factor over \(0,\) forbids every labelling"):
        il.write(il.FactorGraph.potts([[math.inf, math.inf]], [], []), path)
    with pytest.raises(ValueError, match=r"constant is 2e\+18"):
        il.write(il.FactorGraph.potts([[0.0, 1.0]], [], [], constant=2e18), path)
    assert not path.exists()


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_files_are_the_same_every_time(tmp_path: Path, suffix: str) -> None:
    graph = parse(SMALL)
    first, second = tmp_path / f"a.uai{suffix}", tmp_path / f"b.uai{suffix}"
    il.write(graph, first)
    il.write(graph, second)
    assert first.read_bytes() == second.read_bytes()
    if suffix == ".gz":
        assert first.read_bytes()[3:8] == bytes(5)  # no file name, no time
    assert_same_energies(graph, il.read(first))


def test_energy_agrees_with_a_published_partition_function(data_dir: Path) -> None:
    """The model has nearly all its mass on one labelling, with energy ``-ln Z``."""
    path = data_dir / "map" / "uai2014_mar" / "DBN_14.uai"
    if not path.is_file():
        pytest.skip(f"no file {path}")
    graph = il.read(path)
    numbers = (path.parent / "DBN_14.uai.MAR").read_text().split()[2:]
    # Each variable has its number of labels, and a probability of each.
    rows = np.array(numbers, dtype=float).reshape(graph.n_variables, -1)[:, 1:]
    log_10 = float((path.parent / "DBN_14.uai.PR").read_text().split()[-1])
    log_z = -graph.energy(rows.argmax(axis=1))
    assert log_z == pytest.approx(log_10 * math.log(10), abs=2e-3)
