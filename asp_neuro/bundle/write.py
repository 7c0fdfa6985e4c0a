"""Writing a bundle: the same bytes for the same bundle, whole or not at all.

bytes 0..511   user block: magic, format version, length and SHA-256 of the rest, so that damage is found before
               the HDF5 library sees a byte
the rest       HDF5, the arrays of `layout.contents` in sorted order, without times
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import platform
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5f, h5g, h5p, h5s, h5t

from asp_neuro import files
from asp_neuro.bundle.layout import contents, model_sha256
from asp_neuro.bundle.records import FORMAT, Bundle
from asp_neuro.errors import ConfigError, InputError

MAGIC = b"asp-neuro bundle"  # 16 bytes
USER_BLOCK = 512
HEADER = struct.Struct("<16sIIQ32s")  # magic, version, 0, length of the rest, SHA-256 of the rest
MAX_FILE = 64 * 2**20  # bytes
MAX_ENTRIES = 8  # of a group


def to_bytes(bundle: Bundle) -> bytes:
    """The whole file, the same bytes for the same bundle."""
    found = contents(bundle)
    check_groups(found)
    image = _image(found)
    header = HEADER.pack(MAGIC, FORMAT, 0, len(image), hashlib.sha256(image).digest())
    data = header.ljust(USER_BLOCK, b"\0") + image
    if len(data) > MAX_FILE:
        raise ConfigError(f"the bundle takes {len(data)} bytes, at most {MAX_FILE} are stored")
    return data


def check_groups(paths: Iterable[str]) -> None:
    """Refuse a group of so many entries that HDF5 would store them in a way that is not read here."""
    below: dict[str, set[str]] = {}
    for path in paths:
        parts = path.split("/")
        for depth in range(len(parts)):
            below.setdefault("/".join(parts[:depth]), set()).add(parts[depth])
    for group, names in below.items():
        if len(names) > MAX_ENTRIES:
            raise ConfigError(f"{group}: {len(names)} entries, at most {MAX_ENTRIES} are stored; group them in parts")


def _image(found: dict[str, np.ndarray]) -> bytes:
    """An HDF5 file in memory: format 1.8 (checksums in all metadata), no times, contiguous arrays, sorted."""
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_fapl_core(2**16, False)
    access.set_libver_bounds(h5f.LIBVER_V18, h5f.LIBVER_V18)
    creation = h5p.create(h5p.FILE_CREATE)
    creation.set_userblock(USER_BLOCK)
    creation.set_obj_track_times(False)
    group_creation = h5p.create(h5p.GROUP_CREATE)
    group_creation.set_obj_track_times(False)
    dataset_creation = h5p.create(h5p.DATASET_CREATE)
    dataset_creation.set_obj_track_times(False)
    dataset_creation.set_fill_time(h5d.FILL_TIME_NEVER)
    file = h5f.create(b"bundle", h5f.ACC_TRUNC, creation, access)
    try:
        groups = {"": h5g.open(file, b"/")}
        for path, array in sorted(found.items()):
            where, _, name = path.rpartition("/")
            parents = where.split("/")
            for depth in range(1, len(parents) + 1):
                group = "/".join(parents[:depth])
                if group not in groups:
                    above, _, leaf = group.rpartition("/")
                    groups[group] = h5g.create(groups[above], leaf.encode(), gcpl=group_creation)
            space = h5s.create_simple(array.shape) if array.ndim else h5s.create(h5s.SCALAR)
            kind = h5t.py_create(array.dtype)
            dataset = h5d.create(groups[where], name.encode(), kind, space, dcpl=dataset_creation)
            dataset.write(h5s.ALL, h5s.ALL, np.ascontiguousarray(array).reshape(array.shape))
        h5f.flush(file)
        return bytes(file.get_file_image())
    finally:
        file.close()


def write(path: str | Path, bundle: Bundle) -> None:
    """The file at `path` is always whole, the old one or the new one."""
    files.write(path, to_bytes(bundle))


def with_certificate(
    bundle: Bundle,
    plan: dict[str, Any] | None,
    certificate: dict[str, Any] | None,
    familiarity: dict[str, Any] | None = None,
) -> Bundle:
    """The same model with a familiarity or none, a plan, and a certificate or none; all must be made for this model."""
    model = model_sha256(bundle)
    for name, value in (("familiarity", familiarity), ("plan", plan), ("certificate", certificate)):
        if value is not None and value.get("model_sha256") != model:
            raise InputError(f"the {name} is for model {str(value.get('model_sha256'))[:12]}, this one is {model[:12]}")
    return dataclasses.replace(bundle, plan=plan, certificate=certificate, familiarity=familiarity)


def library_versions() -> dict[str, str]:
    """What a bundle was made with."""
    found = {"python": platform.python_version(), "hdf5": h5py.version.hdf5_version}
    for name in ("asp-neuro", "numpy", "h5py", "torch", "lava-nc", "lava-dl"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
