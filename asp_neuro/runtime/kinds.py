"""What a file is that was taken for something else, and what to do with it: told by bytes, no library opens it."""

from __future__ import annotations

import shlex
from pathlib import Path

from asp_neuro.bundle.write import MAGIC

MOST = 64 << 20  # bytes that are looked at
HDF5, ZIP = b"\x89HDF\r\n\x1a\n", b"PK\x03\x04"


def kind(path: str | Path) -> str | None:
    """`bundle`, `nir` (a NIR graph) or `checkpoint`; None for anything else."""
    try:
        with open(path, "rb") as file:
            data = file.read(MOST)
    except OSError:
        return None
    if data.startswith(MAGIC):
        return "bundle"
    if data.startswith(HDF5) and b"NIRGraph" in data:
        return "nir"
    return "checkpoint" if data.startswith(ZIP) and b"data.pkl" in data else None


def hint(path: str | Path, wanted: str) -> str:
    """A clause for an error's end: what the file is instead of `wanted`, and what to type; nothing where unknown."""
    found, name = kind(path), shlex.quote(str(path))
    told = {
        "bundle": f"; it is a bundle already: asp-neuro run {name}",
        "nir": "; it is a NIR graph, which other tools read: give the bundle that was exported with it (model.net)",
        "checkpoint": f"; it is a checkpoint: asp-neuro export {name}",
    }
    return told[found] if found is not None and found != wanted else ""
