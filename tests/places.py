"""Where tests find what does not travel with the package."""

from __future__ import annotations

import os
from pathlib import Path

#: The checkout.
ROOT = Path(__file__).resolve().parents[1]

#: The folder of real data.
DATA = Path(os.environ.get("INFERENCE_LAB_DATA") or ROOT.parent / "shared" / "data")
