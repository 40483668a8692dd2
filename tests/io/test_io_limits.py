"""Small files that would be expensive, and numbers of any size."""

from __future__ import annotations

import gzip
import lzma
import re
import struct
import time
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

import inference_lab as il
from inference_lab.io import FormatError, _limits

#: Bytes of memory and CPU seconds that no small file needs.
MEMORY, SECONDS = 200_000_000, 20.0


def measured(
    read: Callable[[], il.FactorGraph], memory: int = MEMORY
) -> il.FactorGraph | FormatError:
    """Return the content or the refusal of a file, in bounded time and memory."""
    begin = time.process_time()
    tracemalloc.start()
    try:
        content: il.FactorGraph | FormatError = read()
    except FormatError as problem:
        content = problem
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < memory, peak
    assert time.process_time() - begin < SECONDS
    return content


@pytest.mark.parametrize(
    ("suffix", "text", "message"),
    [
        (".fg", "1 1 9999999 2 2 0 1 1 1", r"line 1, token 3: factor 0: expected a variable"),
        (".fg", "1 1 999999 2 2 0 1 1 1", None),
        (".dd", "p 9999999 1 0 0", r"line 1: expected the number of left nodes, 0 to 1000000"),
        (".dd", "p 999999 1 0 0", None),
        (".wcsp", "t 2 9 1 9 4000 5000 2 0 1 0 0", r"at most 16777227 are read"),
        (".uai", "MARKOV 2 9999999 1 1 1 1 1 1", r"variable 0 has 9999999 labels and no factor"),
        (".cfn", "{{t <9} [4000 5000] [{[0 1] 0 []}]}", r"has too many entries; at most 16777216"),
        (
            ".cfn",
            f"{{{{t <9}} [{'1 ' * 4000}] [{{[{' '.join(map(str, range(4000)))}] [3]}}]}}",
            None,
        ),
        (".cfn", f"{{{{t <9}} [2] [{{[0] 0 [{'1' * 100_000}x 5]}}]}}", r"0 to 1, got '1111"),
        (".uai", f"MARKOV 1 2 1 1 0 2 1 {'1' * 100_000}x", r"expected a number, got '1111"),
    ],
)
def test_small_files_cost_little(
    tmp_path: Path, suffix: str, text: str, message: str | None
) -> None:
    """They are refused, or read in linear time, for any declared sizes."""
    path = tmp_path / f"m{suffix}"
    path.write_text(text)
    content = measured(lambda: il.read(path))
    if message is None:
        assert isinstance(content, il.FactorGraph), content
    else:
        assert re.search(rf"{re.escape(str(path))}, .*{message}", str(content)), content


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("m.cfn", "{{t <9} [2] [{[0] 0 [" + "0" * 25 + "3 5]}]}", r"0 to 1, got '00000000"),
        ("m.cfn", "{{t <9} [2] [{[0] 0 [" + "7" * 5000 + " 5]}]}", r"0 to 1, got '7777"),
        ("m.cfn", "{{t <9} [2] [{[0] 0 [²  5]}]}", r"0 to 1, got '²'"),
        ("m.cfn", "{{t <1e308} [2] [{[0] [-1e308 0]} {[0] [-1e308 0]}]}", r"finite ones are at"),
        ("m.cfn", "{{t <1e308} [2] [{[] [-1e308]} {[] [-1e308]}]}", r"finite ones are at"),
        ("m.wcsp", f"t 1 2 1 {10**300} 2 1 0 {10**200} 0", r"a cost is 1e\+200"),
        ("m.uai", "MARKOV 1 2 1 1 0 2 1 1e" + "9" * 100, r"exponent that is out of range"),
        ("m.dd", "p 1 1 1 0\na 0 0 0 1e308", r"line 2: expected a cost, .* got '1e308'"),
        ("m.max-cut", "2 2 1 2 1e308 1 2 1e308", r"entry 0: expected its weight, .* got '1e308'"),
        ("m.qubo", "2 1 1 2 1e308", r"entry 0: expected its weight, .* got '1e308'"),
    ],
)
def test_numbers_of_any_size(tmp_path: Path, name: str, text: str, message: str) -> None:
    """Numbers outside the range of energies are refused with their position."""
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(FormatError, match=rf"{re.escape(str(path))}, .*{message}"):
        il.read(path, format=path.suffix[1:])


def test_leading_zeros_are_the_same_number(tmp_path: Path) -> None:
    """Any number of zeros is allowed."""
    path = tmp_path / "m.cfn"
    path.write_text("{{t <9} [2] [{[" + "0" * 30 + "] 0 [" + "0" * 5000 + "1 5]}]}")
    assert il.read(path).unary.tolist() == [[0.0, 5.0]]


def test_refusal_by_the_graph_is_a_format_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has the name of the file in every format."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise ValueError("more than anyone wants")

    monkeypatch.setattr(il.FactorGraph, "from_terms", refuse)
    for suffix, text in [
        ("uai", "MARKOV 0 0"),
        ("fg", "0"),
        ("wcsp", "t 0 0 0 9"),
        ("cfn", "{{t <9} [] []}"),
        ("dd", "p 0 0 0 0"),
        ("max-cut", "0 0"),
        ("qubo", "0 0"),
    ]:
        path = tmp_path / f"m.{suffix}"
        path.write_text(text)
        with pytest.raises(FormatError, match=rf"m\.{suffix}: more than anyone wants"):
            il.read(path, format=suffix)


# ---------------------------------------------------------------------- packed files


@pytest.mark.parametrize(
    ("suffix", "limit", "message"),
    [
        ("", "MAX_BYTES", "more than 3,000,000 bytes"),
        *((s, "MAX_BYTES", "more than 3,000,000 bytes") for s in (".gz", ".xz")),
        *(
            (s, "MAX_UNPACKED", "more than 3,000,000 bytes of content, .* of a file of [0-9,]+")
            for s in (".gz", ".xz")
        ),
    ],
)
def test_large_files_are_refused_before_they_are_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, limit: str, message: str
) -> None:
    """The limits are on the size of their content, and on its ratio to the size of the file."""
    monkeypatch.setattr(_limits, limit, 3_000_000)
    pack = {"": bytes, ".gz": gzip.compress, ".xz": lambda data: lzma.compress(data, preset=0)}
    path = tmp_path / f"bomb.uai{suffix}"
    path.write_bytes(pack[suffix](b"MARKOV 0 0" + b" " * 30_000_000))
    # The content unpacked before it stopped; the bomb would be 30 million.
    assert re.search(message, str(measured(lambda: il.read(path), memory=20_000_000)))


def test_a_file_that_is_packed_twice_has_no_known_suffix(tmp_path: Path) -> None:
    """Only one layer is unpacked, by the last suffix."""
    path = tmp_path / "m.uai.gz.xz"
    path.write_bytes(lzma.compress(gzip.compress(b"MARKOV 0 0")))
    with pytest.raises(FormatError, match="unknown kind of model file"):
        il.read(path)
    with pytest.raises(FormatError, match="expected MARKOV or BAYES"):
        il.read(path, format="uai")


def test_an_xz_file_that_asks_for_too_much_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its header declares a window of 4 GiB: read if the system grants that, or refused."""
    data = bytearray(lzma.compress(b"MARKOV 0 0"))
    size = (data[12] + 1) * 4
    data[data.index(b"\x21\x01", 12) + 2] = 40
    data[8 + size : 12 + size] = struct.pack("<I", zlib.crc32(bytes(data[12 : 8 + size])))
    path = tmp_path / "m.uai.xz"
    path.write_bytes(data)
    assert il.read(path).n_variables == 0

    def fails(*args: object, **kwargs: object) -> None:
        raise MemoryError

    monkeypatch.setattr(lzma.LZMAFile, "read", fails)
    with pytest.raises(FormatError, match="more memory than there is"):
        il.read(path)
