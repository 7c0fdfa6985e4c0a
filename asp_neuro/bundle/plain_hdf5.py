"""A reader for the plainest HDF5 files, in pure Python: groups with few links, contiguous arrays of numbers and text.

The HDF5 library is written for speed on files that one trusts: HDF5 2.0.0 under h5py crashed within 80 mutants of a
good file with one large group, when the checksums of the forged metadata fitted. So bundles of unknown origin are not
shown to it. What is read here is the HDF5 file format 3.0 as the library writes it with bounds V18, and only this:

    superblock 2 -> object headers 2 (with continuations) -> hard links -> dataspace, datatype, contiguous layout

All else (attributes, filters, chunks, virtual or external storage, soft or external links, dense groups, shared
messages, other types) is refused by name. Nothing is allocated beyond the list of arrays; offsets are checked.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from asp_neuro.errors import InputError

SIGNATURE = b"\x89HDF\r\n\x1a\n"
NOWHERE = 2**64 - 1
MAX_OBJECTS = 1024
MAX_DEPTH = 6
MAX_NAME = 64

# Datatype messages, by the type they stand for (class and version, bit field, size, properties).
NUMBERS = {
    bytes.fromhex("10000000 01000000 00000800"): "|u1",
    bytes.fromhex("10080000 01000000 00000800"): "|i1",
    bytes.fromhex("10000000 02000000 00001000"): "<u2",
    bytes.fromhex("10080000 02000000 00001000"): "<i2",
    bytes.fromhex("10080000 04000000 00002000"): "<i4",
    bytes.fromhex("10080000 08000000 00004000"): "<i8",
    bytes.fromhex("11201f00 04000000 00002000 17080017 7f000000"): "<f4",
    bytes.fromhex("11203f00 08000000 00004000 340b0034 ff030000"): "<f8",
}
TEXT = bytes.fromhex("13010000")  # null-padded ASCII, then the length

DATASPACE, LINK_INFO, DATATYPE, FILL, LINK, LAYOUT, GROUP_INFO, CONTINUATION = 1, 2, 3, 5, 6, 8, 10, 16
REFUSED = {
    4: "an old fill value",
    7: "external storage",
    9: "an unknown message",
    11: "filters",
    12: "attributes",
    13: "a comment",
    15: "a shared message table",
    17: "an old group",
    18: "a time",
    19: "B-tree settings",
    20: "driver information",
    21: "attributes",
    22: "a reference count",
}


class Stored(NamedTuple):
    """Where an array lies and what it is; nothing of it has been read."""

    dtype: np.dtype
    shape: tuple[int, ...]
    offset: int  # in the file

    @property
    def n_elements(self) -> int:
        total = 1
        for n in self.shape:
            total *= n
        return total

    @property
    def n_bytes(self) -> int:
        return self.n_elements * self.dtype.itemsize


class _Message(NamedTuple):
    kind: int
    data: bytes


def arrays(data: bytes, base: int) -> dict[str, Stored]:
    """Path -> array of the HDF5 file that begins at byte `base` of `data`."""
    return _Walk(data, base).arrays()


def values(data: bytes, stored: Stored) -> np.ndarray:
    """The array itself, a copy."""
    flat = np.frombuffer(data, stored.dtype, stored.n_elements, stored.offset)
    return flat.reshape(stored.shape).copy()


class _Walk:
    """One pass over a file; every object and every piece of a header is visited once."""

    def __init__(self, data: bytes, base: int) -> None:
        self.data, self.base = data, base
        self.visited: set[int] = set()

    def arrays(self) -> dict[str, Stored]:
        head = self._piece(self.base, 48, "superblock")
        if head[:12] != SIGNATURE + bytes([2, 8, 8, 0]):
            raise InputError("HDF5: the superblock is not of version 2 with 8-byte addresses")
        base, extension, end, root = struct.unpack_from("<4Q", head, 12)
        if base != self.base or extension != NOWHERE or end not in (len(self.data), len(self.data) - base):
            raise InputError("HDF5: the superblock does not fit the file")
        return dict(self._below(root, "", 0))

    def _below(self, address: int, place: str, depth: int) -> Iterator[tuple[str, Stored]]:
        messages = self._messages(address, place or "/")
        kinds = {message.kind for message in messages}
        if LINK_INFO in kinds and not kinds & {DATASPACE, DATATYPE, LAYOUT}:
            if depth >= MAX_DEPTH:
                raise InputError(f"{place}: too deep")
            for name, target in _links(messages, place):
                yield from self._below(target, f"{place}/{name}" if place else name, depth + 1)
        elif kinds >= {DATASPACE, DATATYPE, LAYOUT} and not kinds & {LINK, LINK_INFO, GROUP_INFO}:
            yield place, self._dataset(messages, place)
        else:
            raise InputError(f"{place or '/'}: neither a group nor a dataset")

    def _piece(self, offset: int, size: int, place: str) -> bytes:
        if not self.base <= offset <= offset + size <= len(self.data):
            raise InputError(f"{place}: HDF5 points outside the file")
        return self.data[offset : offset + size]

    def _visit(self, address: int, place: str) -> int:
        """File offset of an address that is seen for the first time."""
        if address in self.visited or len(self.visited) >= MAX_OBJECTS:
            raise InputError(f"{place}: linked from two places, or too many objects")
        self.visited.add(address)
        return self.base + address

    def _messages(self, address: int, place: str) -> list[_Message]:
        """All messages of an object header, continuations included."""
        offset = self._visit(address, place)
        prefix = self._piece(offset, 6, place)
        flags = prefix[5]
        if prefix[:5] != b"OHDR\x02" or flags & 0b11011100:  # creation orders, phase changes: never written here
            raise InputError(f"{place}: not an object header of version 2")
        start = offset + 6 + (16 if flags & 0x20 else 0)  # times
        width = 1 << (flags & 3)
        size = int.from_bytes(self._piece(start, width, place), "little")
        found = _split(self._piece(start + width, size, place), place)
        pending = [message for message in found if message.kind == CONTINUATION]
        while pending:
            block = pending.pop()
            if len(block.data) != 16:
                raise InputError(f"{place}: an object header that goes on nowhere")
            at, size = struct.unpack("<2Q", block.data)
            piece = self._piece(self._visit(at, place), size, place)
            if piece[:4] != b"OCHK" or size < 8:
                raise InputError(f"{place}: an object header that goes on nowhere")
            more = _split(piece[4:-4], place)
            pending += [message for message in more if message.kind == CONTINUATION]
            found += more
        return found

    def _dataset(self, messages: list[_Message], place: str) -> Stored:
        one: dict[int, bytes] = {}
        for kind, data in messages:
            if kind in one and kind != CONTINUATION:
                raise InputError(f"{place}: two messages of kind {kind}")
            one[kind] = data
        dtype, shape = _dtype(one[DATATYPE], place), _shape(one[DATASPACE], place)
        layout = one[LAYOUT]
        if len(layout) != 18 or layout[:2] != b"\x03\x01":
            raise InputError(f"{place}: chunked, compact, virtual or external storage; only plain arrays are read")
        address, size = struct.unpack_from("<2Q", layout, 2)
        stored = Stored(dtype, shape, self.base + address)
        if size != stored.n_bytes:
            raise InputError(f"{place}: {stored.n_bytes} bytes are declared, {size} are stored")
        if address == NOWHERE or stored.offset + size > len(self.data):
            raise InputError(f"{place}: {size} bytes are declared, but not stored")
        return stored


def _split(block: bytes, place: str) -> list[_Message]:
    """The messages of one piece of an object header; fewer than 4 bytes may be left over."""
    found, at = [], 0
    while at + 4 <= len(block):
        kind, size, flags = struct.unpack_from("<BHB", block, at)
        data = block[at + 4 : at + 4 + size]
        if len(data) != size:
            raise InputError(f"{place}: an object header that is cut short")
        if kind in REFUSED or kind > 22 or flags & 2 or kind == 14:
            what = "a shared message" if flags & 2 else REFUSED.get(kind, "an unknown message")
            raise InputError(f"{place}: {what}; only plain groups and arrays are read")
        if kind:
            found.append(_Message(kind, data))
        at += 4 + size
    return found


def _links(messages: list[_Message], place: str) -> Iterator[tuple[str, int]]:
    """Names and addresses of a group: hard links, kept in the object header."""
    seen = set()
    for kind, data in messages:
        if kind == LINK_INFO and (len(data) != 18 or data[:2] != b"\0\0" or data[2:] != b"\xff" * 16):
            raise InputError(f"{place or '/'}: a group with more links than an object header holds")
        if kind != LINK:
            continue
        name, address = _link(data, place)
        if name in seen:
            raise InputError(f"{place}/{name}: two links of this name")
        seen.add(name)
        yield name, address


def _link(data: bytes, place: str) -> tuple[str, int]:
    if len(data) < 3 or data[0] != 1 or data[1] & 0b11100111:  # lengths above 255 and creation orders are not written
        raise InputError(f"{place or '/'}: a link of another version")
    at = 2
    for bit, what in ((0x08, "a soft or external link"), (0x10, "a name that is not ASCII")):
        if data[1] & bit:
            if data[at] != 0:
                raise InputError(f"{place or '/'}: {what}; only plain groups and arrays are read")
            at += 1
    size = data[at] if at < len(data) else 0
    name, rest = data[at + 1 : at + 1 + size], data[at + 1 + size :]
    if not 1 <= size <= MAX_NAME or len(rest) != 8 or not all(0x20 < c < 0x7F and c != 0x2F for c in name):
        raise InputError(f"{place or '/'}: a link whose name is not plain text, or that leads nowhere")
    return name.decode("ascii"), int.from_bytes(rest, "little")


def _dtype(data: bytes, place: str) -> np.dtype:
    if data[:4] == TEXT and len(data) == 8:
        size = int.from_bytes(data[4:], "little")
        if 1 <= size < 2**31:
            return np.dtype(f"S{size}")
    if data not in NUMBERS:
        raise InputError(f"{place}: of a type that is not read here")
    return np.dtype(NUMBERS[data])


def _shape(data: bytes, place: str) -> tuple[int, ...]:
    """A scalar is (); the largest size, where it is given, must be the size."""
    if len(data) < 4 or data[0] != 2 or data[2] > 1 or data[3] != (1 if data[1] else 0) or data[1] > 32:
        raise InputError(f"{place}: a dataspace that is not read here")
    rank = data[1]
    if len(data) != 4 + 8 * rank * (1 + data[2]):
        raise InputError(f"{place}: a dataspace that is cut short")
    sizes = struct.unpack_from(f"<{rank * (1 + data[2])}Q", data, 4)
    if data[2] and sizes[:rank] != sizes[rank:]:
        raise InputError(f"{place}: an array that can grow")
    return sizes[:rank]
