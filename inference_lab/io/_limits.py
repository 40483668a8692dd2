"""Size limits of the readers of model files.

Time and memory of every reader are linear in the length of the content, and in the size of the
arrays that it declares without listing their entries one by one. The sizes of such arrays are
bounded here; all other sizes are bounded by the length of the file.
"""

from __future__ import annotations

#: Bytes of content, plain or unpacked; token places and numbers take about twenty times as much.
MAX_BYTES = 2 << 30
#: Bytes into which any compressed file may unpack, regardless of its size.
MAX_UNPACKED = 32 << 20
#: Ratio of unpacked to packed size beyond that; ordinary models have ratios of 10 to 50.
MAX_RATIO = 100
#: Table entries in excess of the numbers in the file (128 MiB of doubles). A shared table of three
#: or more variables counts once per use, because a graph copies it.
MAX_ENTRIES = 1 << 24
#: Total number of labels of variables without factors. Tables bound the labels of the others.
MAX_FREE_LABELS = 1_000_000
#: Largest size of a finite cost.
MAX_COST = 1e100
