"""Prefetching for passes that go down through memory, see `docs/decisions`, 007."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, config, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from inference_lab._numba import inlined
from inference_lab.graph.arrays import FloatArray


def _prefetch(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Emit the prefetch instruction of the processor."""
    array = make_array(signature.args[0])(context, builder, arguments[0])
    byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    place = builder.bitcast(builder.gep(array.data, [arguments[1]]), byte)
    # Read access, highest locality, data cache.
    builder.call(function, [place, number(0), number(3), number(1)])
    return context.get_dummy_value()


if config.DISABLE_JIT:

    def prefetch(array: Any, index: Any) -> None:
        """Do nothing."""

else:

    @intrinsic  # type: ignore[untyped-decorator]  # numba ships no types
    def prefetch(typing_context: Any, array: Any, index: Any) -> Any:
        """Prefetch memory that will be read soon: ``prefetch(array, index)``.

        Processors do so by themselves if an array is read upwards. An index need not be inside
        the array.
        """
        return types.void(array, index), _prefetch


@inlined
def fetch_row(k: int, values: FloatArray, start: np.uint64) -> None:
    """Prefetch `k` values, cache line by cache line."""
    # Each row is still read upwards, which misleads the prefetcher of the processor: a pass down
    # over 60 labels took twice as long as one upwards.
    for i in range(0, k, 8):
        prefetch(values, start + np.uint64(i))
