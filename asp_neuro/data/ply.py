"""The points of a ply file without faces, as sensors write them: read here, for `import trimesh` takes longer than the
whole answer. Meshes, and whatever is unusual, are left to trimesh (`files.py`).
"""

from __future__ import annotations

import numpy as np

END = b"end_header"
TYPES = {  # ply's names -> numpy's
    "char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4", "float": "f4",
    "double": "f8", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4",
    "float32": "f4", "float64": "f8",
}  # fmt: skip
ORDERS = {"binary_little_endian": "<", "binary_big_endian": ">", "ascii": ""}


def plain_points(raw: bytes) -> np.ndarray | None:
    """[n, 3] float64, fewer than promised where the file ends early; None: not a plain cloud, or not one that is whole.

    Plain is a first element `vertex` without lists, and no other element that has members.
    """
    header = _header(raw)
    if header is None:
        return None
    layout, n, fields, start = header
    body = memoryview(raw)[start:]
    if layout == "ascii":
        return _from_text(bytes(body), n, [name for name, _ in fields])
    record = np.dtype([(name, ORDERS[layout] + TYPES[kind]) for name, kind in fields])
    found = np.frombuffer(body, record, count=min(n, len(body) // record.itemsize))
    return np.stack([found[axis].astype(np.float64) for axis in "xyz"], axis=-1)


def _header(raw: bytes) -> tuple[str, int, list[tuple[str, str]], int] | None:
    """Layout, number of points, (name, type) of every column, and where the body begins."""
    end = raw.find(END)
    stop = raw.find(b"\n", end)
    if end < 0 or stop < 0 or not raw[:end].isascii():
        return None
    layout, sizes, fields = "", [], []
    for line in raw[:end].decode().splitlines():
        match line.split():
            case ["format", name, "1.0"] if name in ORDERS:
                layout = name
            case ["element", name, n] if n.isdecimal():
                sizes.append((name, int(n)))
            case ["property", kind, name] if kind in TYPES and len(sizes) == 1:
                fields.append((name, kind))
            case ["property", *_] if len(sizes) > 1:
                pass  # of an element that must be empty
            case ["ply"] | ["comment", *_] | ["obj_info", *_] | []:
                pass
            case _:
                return None
    names = [name for name, _ in fields]
    plain = bool(layout and sizes) and sizes[0][0] == "vertex" and not any(n for _, n in sizes[1:])
    if not plain or len(set(names)) < len(names) or not set("xyz") <= set(names):
        return None
    return layout, sizes[0][1], fields, stop + 1


def _from_text(body: bytes, n: int, names: list[str]) -> np.ndarray | None:
    words = body.split()[: n * len(names)]
    try:
        values = np.array(words, dtype="S").astype(np.float64)
    except ValueError:
        return None
    table = values[: len(values) // len(names) * len(names)].reshape(-1, len(names))
    return table[:, [names.index(axis) for axis in "xyz"]]
