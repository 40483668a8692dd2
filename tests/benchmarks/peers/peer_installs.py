"""The packages of other projects, in an environment of their own."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from peer_rows import Peer


def interpreters(peers: Path) -> dict[str, Path]:
    """Return the interpreter of each side; where the peers have none of their own, it is ours."""
    own = peers / "bin" / "python"
    here = Path(sys.executable)
    return {"ours": here, "peer": own if own.exists() else here}


def prepare(folder: Path) -> None:
    """Make an environment that sees what this one has."""
    if (folder / "bin" / "python").exists():
        return
    venv.create(folder, with_pip=True)
    (site,) = folder.glob("lib/python*/site-packages")
    ours = sysconfig.get_path("purelib")
    # Editable installations are found by files of that folder, which a plain path would not read.
    (site / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n", encoding="utf-8")


def lacking(python: Path, peer: Peer, install: bool) -> str:
    """Return why a package cannot be had; nothing where it can."""
    asked = [python, "-c", f"import {peer.module}"]
    if subprocess.run(asked, capture_output=True).returncode == 0:
        return ""
    if not install:
        return f"{peer.distribution} is not installed"
    done = None
    for requirements in steps(peer.requirements):
        command = [python, "-m", "pip", "install", "--quiet", *requirements]
        done = subprocess.run(command, capture_output=True, text=True)
    if subprocess.run(asked, capture_output=True).returncode == 0:
        return ""
    said = [line.strip() for line in done.stderr.splitlines() if "error:" in line.lower()]
    # What a compiler says comes first, pip's own summaries of it do not tell why.
    said.sort(key=lambda line: "fatal error:" not in line)
    return f"pip cannot install {peer.distribution} ({said[0] if said else 'no reason given'})"


def steps(requirements: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return what is installed one after the other: what a build needs comes first."""
    if "--no-build-isolation" not in requirements:
        return [requirements]
    at = requirements.index("--no-build-isolation")
    return [requirements[:at], requirements[at:]]
