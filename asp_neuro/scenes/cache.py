"""The chunks of a whole data set, computed once and kept on disk.

The cache is found by a hash of the points and the settings (its key), and holds a digest of key and content: a file
that is cut short, altered, of another kind or of other clouds is built again, never trusted. `$ASP_NEURO_CACHE` moves
it; an unwritable folder costs time, nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from asp_neuro import files
from asp_neuro.errors import InputError
from asp_neuro.report import progress
from asp_neuro.scenes.cloud import Chunking, Chunks, cut

VERSION = 2  # raise it when `cloud.cut` gives other results
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
    key = _key(points, how)
    path = cache_folder() / f"chunks-{key}.npz"
    found = _read(path, key, how)
    if found is None:
        found = _cut_all(points, how, names)
        _write(path, key, found)
    return found


def _cut_all(points: np.ndarray, how: Chunking, names: Sequence[str] | None) -> Chunks:
    """Small batches: their arrays stay in the processor's cache."""
    if len(points) == 0:
        raise InputError("no clouds to cut into chunks")
    if len(points) <= BATCH:
        return cut(points, how, names)
    parts = []
    for start in progress(range(0, len(points), BATCH), label="grouping"):
        stop = start + BATCH
        parts.append(cut(points[start:stop], how, None if names is None else names[start:stop]))
    return joined(parts)


def joined(parts: Sequence[Chunks]) -> Chunks:
    """One after the other."""
    arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _FIELDS}
    return Chunks(**arrays, n_chunks=parts[0].n_chunks)


def _key(points: np.ndarray, how: Chunking) -> str:
    digest = hashlib.sha256(f"{VERSION} {how} {points.dtype} {points.shape}".encode())
    digest.update(np.ascontiguousarray(points).data)
    return digest.hexdigest()[:32]


def _digest(key: str, chunks: Chunks) -> str:
    digest = hashlib.sha256(key.encode())
    for name in _FIELDS:
        array = getattr(chunks, name)
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _read(path: Path, key: str, how: Chunking) -> Chunks | None:
    try:
        with np.load(path, allow_pickle=False) as stored:
            found = Chunks(**{name: stored[name] for name in _FIELDS}, n_chunks=how.n_chunks)
            return found if str(stored["digest"]) == _digest(key, found) else None
    except Exception:  # a damaged zip file can fail in any way: encrypted, unknown compression, bad header, ...
        return None


def _write(path: Path, key: str, chunks: Chunks) -> None:
    """A cache that cannot be written costs time, nothing else."""
    with contextlib.suppress(InputError):
        files.make_folder(path.parent)
        with files.writing(path) as file:
            np.savez(file, **{name: getattr(chunks, name) for name in _FIELDS}, digest=_digest(key, chunks))
