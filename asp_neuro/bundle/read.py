"""Reading a bundle that may be damaged or hostile: refused in one line that names the file and the reason.

Reading ends by comparing what the file held with what would be written: a bundle that was read is the one that would
be written. The HDF5 library never sees the file (`plain_hdf5.py`).
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np

from asp_neuro.bundle import plain_hdf5
from asp_neuro.bundle.layout import HASH, NAME, Table, assemble, contents, read_names, table
from asp_neuro.bundle.netx import STRING
from asp_neuro.bundle.records import FORMAT, Bundle, one_line
from asp_neuro.bundle.write import HEADER, MAGIC, MAX_FILE, USER_BLOCK
from asp_neuro.errors import AspError, InputError, MissingError

MAX_ELEMENTS = 16 * 2**20  # of one array, and characters of one string
INPUTS = "asp/golden/inputs"  # may have any number of dimensions
MAX_WORD = 64  # characters of the name of a kind


def read(path: str | Path) -> Bundle:
    """A bundle from a file that may be damaged or hostile: refused in one line that names the file and the reason."""
    try:
        return from_bytes(_file_bytes(path))
    except MissingError:
        raise
    except AspError as error:
        raise InputError(f"'{path}': {one_line(error)}") from None
    except Exception as error:  # a broken file can fail anywhere in the HDF5 library or in a conversion
        raise InputError(f"'{path}': cannot be read as a bundle ({one_line(error)})") from None


def from_bytes(data: bytes) -> Bundle:
    """A bundle from the bytes of its file; `read` turns what goes wrong into one line."""
    version = _check_header(data)
    stored = plain_hdf5.arrays(data, USER_BLOCK)
    names = read_names(lambda path: _word(data, stored, path))
    held = _arrays(data, stored, table(names))
    if held["asp/format"].tobytes() != NAME.encode():
        raise InputError(f"asp/format is not '{NAME}'")
    if int(held["asp/version"]) != version:
        raise InputError(f"asp/version is {int(held['asp/version'])}, the user block says {version}")
    bundle = assemble(held, names)
    _compare(held, contents(bundle))
    return bundle


def _word(data: bytes, stored: Any, path: str) -> str:
    """A short text, read before the rest is looked at."""
    if path not in stored:
        raise InputError(f"{path} is missing")
    about = stored[path]
    if about.dtype.kind != "S" or about.shape or about.dtype.itemsize > MAX_WORD:
        raise InputError(f"{path}: is {about.dtype} {list(about.shape)}, expected a short text")
    return plain_hdf5.values(data, about).tobytes().decode("ascii", errors="replace")


def _file_bytes(path: str | Path) -> bytes:
    try:
        with open(path, "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise InputError("not a regular file")
            if about.st_size > MAX_FILE:
                raise InputError(f"{about.st_size} bytes, a bundle has at most {MAX_FILE}")
            return file.read(MAX_FILE + 1)
    except FileNotFoundError:
        raise MissingError(f"'{path}' does not exist") from None
    except OSError as error:
        raise InputError(error.strerror or str(error)) from None


def _check_header(data: bytes) -> int:
    """The user block: whose file, whether the rest is what was written; returns the format version."""
    if len(data) < USER_BLOCK or data[: len(MAGIC)] != MAGIC:
        kind = "a plain HDF5 file" if data[:8] == b"\x89HDF\r\n\x1a\n" else "it does not begin with 'asp-neuro bundle'"
        raise InputError(f"not an asp-neuro bundle ({kind if data else 'empty'})")
    _, version, zero, length, digest = HEADER.unpack_from(data)
    if version != FORMAT:
        raise InputError(_other_version(version))
    if length != len(data) - USER_BLOCK:
        raise InputError(f"damaged: {len(data) - USER_BLOCK} bytes follow the user block, it says {length}")
    rest = hashlib.sha256(memoryview(data)[USER_BLOCK:]).digest()
    if rest != digest:
        raise InputError(
            f"damaged: SHA-256 of the content is {rest.hex()[:12]}, the user block says {digest.hex()[:12]}"
        )
    if zero or any(data[HEADER.size : USER_BLOCK]):
        raise InputError("damaged: the user block holds more than its fields")
    return int(version)


def _other_version(version: int) -> str:
    hint = ": its host is in floating point; make it anew: asp-neuro export model.pt" if 0 < version < FORMAT else ""
    return f"format version {version}, this program reads {FORMAT}{hint}"


def _arrays(data: bytes, stored: Any, known: Table) -> dict[str, np.ndarray]:
    """All arrays of the HDF5 part; every one is looked at before any is read."""
    for path in stored:
        if known.kind(path) is None:
            raise InputError(f"{path}: unknown, a bundle of version {FORMAT} has no such entry")
    check_paths(set(stored), known)
    for path, about in stored.items():
        _check_array(path, about, known)
    held = {path: plain_hdf5.values(data, about) for path, about in stored.items()}
    for path, array in held.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise InputError(f"{path}: holds values that are not finite")
    return held


def check_paths(paths: set[str], known: Table) -> None:
    """Layers without a gap, and nothing missing but optional parts as a whole."""
    layers = sorted({int(path.split("/")[1]) for path in paths if path.startswith("layer/")})
    if not layers or layers != list(range(len(layers))):
        raise InputError(f"layers {layers}: expected 0, 1, ...")
    needed = {f"layer/{number}/{leaf}" for number in layers for leaf in known.layer} | set(known.kinds)
    needed = needed.difference(*(part for part in known.optional if not paths & part))
    missing = sorted(needed - paths)
    if missing:
        raise InputError(f"{missing[0]} is missing")


def _check_array(path: str, stored: plain_hdf5.Stored, known: Table) -> None:
    """Type, dimensions and size, before anything is read."""
    kind = known.kind(path)
    assert kind is not None, path
    is_expected = stored.dtype.kind == "S" if kind[0] == STRING else stored.dtype == np.dtype(kind[0])
    if not is_expected:
        raise InputError(f"{path}: is {stored.dtype}, expected {kind[0]}")
    if len(stored.shape) != kind[1] and path != INPUTS:
        raise InputError(f"{path}: {len(stored.shape)} dimensions, expected {kind[1]}")
    if not 1 <= stored.n_elements <= MAX_ELEMENTS:
        raise InputError(f"{path}: shape {list(stored.shape)}, expected 1 to {MAX_ELEMENTS} elements")


def _compare(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """What was read is what would be written, hash included."""
    for path, array in expected.items():
        other = found[path]
        if path == HASH and other.tobytes() != array.tobytes():
            mine, theirs = (value.tobytes().decode("latin-1")[:12] for value in (array, other))
            raise InputError(f"edited: the model's SHA-256 is {mine}, the file says {theirs}")
        if other.dtype != array.dtype or other.shape != array.shape or other.tobytes() != array.tobytes():
            raise InputError(f"{path}: does not fit the rest of the bundle")
