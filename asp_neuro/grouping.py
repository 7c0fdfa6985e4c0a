"""The chunks of a whole data set, computed once and kept on disk.

The cache is found by a hash of the points and the settings, and holds a digest of its own content: a file that is cut
short, altered or of another kind is built again, never trusted. `$ASP_NEURO_CACHE` moves it; an unwritable folder
costs time, nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from asp_neuro.cloud import Chunking, Chunks, cut
from asp_neuro.report import progress

VERSION = 1  # raise it when `cloud.cut` gives other results
BATCH = 16
_FIELDS = ("points", "members", "first", "second")


def cache_folder() -> Path:
    base = os.environ.get("ASP_NEURO_CACHE")
    if base:
        return Path(base)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "asp-neuro"


def chunks_of(points: np.ndarray, how: Chunking, names: Sequence[str] | None = None, cache: bool = True) -> Chunks:
    """Raw clouds [n, P, 3] -> Chunks, from the cache where it holds them."""
    if not cache:
        return _cut_all(points, how, names)
    path = cache_folder() / f"chunks-{_key(points, how)}.npz"
    found = _read(path, len(points), how)
    if found is None:
        found = _cut_all(points, how, names)
        _write(path, found)
    return found


def _cut_all(points: np.ndarray, how: Chunking, names: Sequence[str] | None) -> Chunks:
    """Small batches: their arrays stay in the processor's cache."""
    parts = []
    for start in progress(range(0, len(points), BATCH), label="grouping"):
        stop = start + BATCH
        parts.append(cut(points[start:stop], how, None if names is None else names[start:stop]))
    return Chunks(*(np.concatenate([getattr(part, name) for part in parts]) for name in _FIELDS), how.n_chunks)


def _key(points: np.ndarray, how: Chunking) -> str:
    digest = hashlib.sha256(f"{VERSION} {how} {points.dtype} {points.shape}".encode())
    digest.update(np.ascontiguousarray(points).data)
    return digest.hexdigest()[:32]


def _digest(chunks: Chunks) -> str:
    digest = hashlib.sha256()
    for name in _FIELDS:
        array = getattr(chunks, name)
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _read(path: Path, n: int, how: Chunking) -> Chunks | None:
    try:
        with np.load(path, allow_pickle=False) as stored:
            found = Chunks(*(stored[name] for name in _FIELDS), how.n_chunks)
            good = str(stored["digest"]) == _digest(found)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, MemoryError):
        return None
    fits = found.members.shape == (n, how.n_groups, how.group_size)
    return found if good and fits else None


def _write(path: Path, chunks: Chunks) -> None:
    part = path.with_name(f"{path.name}.{os.getpid()}.part.npz")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(part, **{name: getattr(chunks, name) for name in _FIELDS}, digest=_digest(chunks))
        os.replace(part, path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()
