"""The sweeps of ``reference.c``, compiled where there is a C compiler."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

import inference_lab as il

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_DOUBLES = ctypes.POINTER(ctypes.c_double)
_LONGS = ctypes.POINTER(ctypes.c_long)
FLAGS = ("-O3", "-march=native")


def compile_reference(folder: Path) -> ctypes.CDLL:
    """Compile and load the sweeps in a folder; skip the test if this fails."""
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to compare with; set CC")
    if ctypes.sizeof(ctypes.c_long) != 8:
        pytest.skip("the reference takes labels as C longs of 8 bytes")
    library = folder / "reference.so"
    source = Path(__file__).with_name("reference.c")
    subprocess.run(
        [compiler, *FLAGS, "-shared", "-fPIC", "-o", str(library), str(source), "-lm"], check=True
    )
    loaded = ctypes.CDLL(str(library))
    loaded.icm_pass.restype = ctypes.c_long
    loaded.trws_pass.restype = ctypes.c_double
    return loaded


class _Grid(ctypes.Structure):
    _fields_ = (
        ("height", ctypes.c_int),
        ("width", ctypes.c_int),
        ("k", ctypes.c_int),
        ("unary", _DOUBLES),
        ("right", _DOUBLES),
        ("down", _DOUBLES),
        ("cap", ctypes.c_double),
    )


class Image(NamedTuple):
    """Grid graph made by `grid_edges`, and the cap of its distances (0: Potts terms)."""

    graph: il.FactorGraph
    height: int
    width: int
    cap: float


class Reference:
    """Messages and labels of the C code for one image."""

    def __init__(self, library: ctypes.CDLL, image: Image) -> None:
        graph, height, width, cap = image
        n, k = graph.unary.shape
        # The edges to the right come first, row by row, then those downwards.
        split = height * (width - 1)
        weights = graph.edge_weights
        self._arrays = (
            np.array(graph.unary),
            np.array(weights[:split]),
            np.array(weights[split:]),
        )
        self._library = library
        self._grid = ctypes.byref(_Grid(height, width, k, *map(_doubles, self._arrays), cap))
        self._messages = np.zeros((4, n, k))
        self._pointers = (_DOUBLES * 4)(*(_doubles(m) for m in self._messages))
        self.labels: IntArray = np.zeros(n, dtype=np.int64)

    def loopy_bp(self) -> None:
        """Pass min-sum messages there and back."""
        for forward in (1, 0):
            self._library.bp_pass(self._grid, forward, self._pointers, self._labels)

    def soft_bp(self) -> None:
        """Pass sum-product messages at T = 1 there and back."""
        for forward in (1, 0):
            self._library.soft_pass(
                self._grid, ctypes.c_double(1.0), forward, self._pointers, self._labels
            )

    def trw_s(self) -> float:
        """Make a forward and a backward pass; return the bound of the latter."""
        right, down = self._pointers[0], self._pointers[1]
        self._library.trws_pass(self._grid, 1, right, down)
        return float(self._library.trws_pass(self._grid, 0, right, down))

    def icm(self) -> int:
        """Move each pixel to its best label; return the number of changes."""
        return int(self._library.icm_pass(self._grid, self._labels))

    @property
    def _labels(self) -> ctypes._Pointer[ctypes.c_long]:
        return self.labels.ctypes.data_as(_LONGS)


def _doubles(array: FloatArray) -> ctypes._Pointer[ctypes.c_double]:
    return array.ctypes.data_as(_DOUBLES)
