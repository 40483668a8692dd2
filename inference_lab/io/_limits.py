"""Size limits of the readers of model files.

Time and memory of every reader are linear in the length of the content, and in the size of the
arrays that it declares without listing their entries one by one. What can be declared in a few
bytes is bounded here; everything else is paid for by the bytes of the file.
"""

from __future__ import annotations

#: Bytes of content, plain or unpacked: token places and numbers take some twenty times as much.
MAX_BYTES = 2 << 30
#: Bytes that any compressed file may unpack into, however small it is.
MAX_UNPACKED = 32 << 20
#: Beyond that, how many times its own size; ordinary models are packed to a tenth or a fiftieth.
MAX_RATIO = 100
#: Entries of tables beyond as many as the file has numbers (128 MiB of doubles). A table of three
#: and more variables that is shared counts as often as it is used, because a graph copies it.
MAX_ENTRIES = 1 << 24
#: Labels that variables of no factor may have in all. The others are paid for by their tables.
MAX_FREE_LABELS = 1_000_000
#: Size of a finite cost.
MAX_COST = 1e100
