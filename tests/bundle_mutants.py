"""Damaged and hostile bundles, by number: `python bundle_mutants.py GOOD.net FIRST END` reads them one by one.

Kinds, by number modulo 4: 0 and 2 raw damage (bytes changed, cut, inserted); 1 structural edits through h5py with all
hashes made to fit again; 3 damage to the HDF5 part with the hash of the user block made to fit again, half of it within
the metadata of HDF5 with their checksums made to fit again too (which the HDF5 library itself does not survive).

Every mutant must be refused in one line or be a valid bundle. Anything else ends this process with a traceback, a hang
with SIGALRM, a large allocation with MemoryError; the number of the mutant under way is on the last line of stdout.
"""

from __future__ import annotations

import hashlib
import json
import re
import resource
import signal
import struct
import sys
from collections import Counter
from pathlib import Path

import h5py
import numpy as np

from asp_neuro import bundle
from asp_neuro.bundle.layout import EXIT, HASH, digest
from asp_neuro.bundle.write import HEADER, MAGIC, USER_BLOCK
from asp_neuro.errors import InputError

SECONDS = 10  # for one mutant
ROOM = 2**30  # bytes beyond what is in use at the start
SIGNATURES = (b"OHDR", b"OCHK", b"BTHD", b"BTLF", b"BTIN", b"FRHP", b"FHDB", b"FHIB", b"FSHD", b"FSSE")


def mutant(good: bytes, seals: list[tuple[int, int]], number: int, path: Path) -> str:
    """Write mutant `number` to `path`; returns its kind."""
    rng = np.random.default_rng(number)
    if number % 4 == 1:
        path.write_bytes(good)
        return structural(path, rng)
    if number % 4 == 3:
        inside = sealed_metadata(good, seals, rng) if rng.random() < 0.5 else damaged(good, rng, USER_BLOCK)
        path.write_bytes(sealed(inside))
        return "resealed"
    path.write_bytes(damaged(good, rng, 0))
    return "raw"


# Damage to bytes


def damaged(good: bytes, rng: np.random.Generator, low: int) -> bytes:
    """One of six kinds of damage to the bytes from `low` on."""
    data, at = bytearray(good), int(rng.integers(low, len(good)))
    size = int(rng.integers(1, 64))
    kind = int(rng.integers(6))
    if kind <= 1:  # the most likely one in the field, and the one that reaches farthest
        for place in rng.integers(low, len(data), size=int(rng.integers(1, 9))):
            data[place] ^= 1 << int(rng.integers(8))
    elif kind == 2:
        del data[at:]
    elif kind == 3:
        data[at:at] = rng.bytes(size)
    elif kind == 4:
        del data[at : at + size]
    else:
        data[at : at + size] = bytes(len(data[at : at + size]))
    return bytes(data)


def sealed(data: bytes) -> bytes:
    """The user block's length and hash made to fit."""
    rest = data[USER_BLOCK:]
    (version,) = struct.unpack_from("<I", data, len(MAGIC))
    header = HEADER.pack(MAGIC, version, 0, len(rest), hashlib.sha256(rest).digest())
    return header.ljust(USER_BLOCK, b"\0") + rest


def lookup3(data: bytes) -> int:
    """Bob Jenkins' hash, with which HDF5 seals its metadata."""

    def rot(x: int, k: int) -> int:
        return ((x << k) | (x >> (32 - k))) & 0xFFFFFFFF

    mask = 0xFFFFFFFF
    a = b = c = (0xDEADBEEF + len(data)) & mask
    n_full = max(0, (len(data) - 1) // 12)
    for x, y, z in struct.iter_unpack("<III", data[: 12 * n_full]):
        a, b, c = (a + x) & mask, (b + y) & mask, (c + z) & mask
        a = (a - c) & mask ^ rot(c, 4)
        c = (c + b) & mask
        b = (b - a) & mask ^ rot(a, 6)
        a = (a + c) & mask
        c = (c - b) & mask ^ rot(b, 8)
        b = (b + a) & mask
        a = (a - c) & mask ^ rot(c, 16)
        c = (c + b) & mask
        b = (b - a) & mask ^ rot(a, 19)
        a = (a + c) & mask
        c = (c - b) & mask ^ rot(b, 4)
        b = (b + a) & mask
    if not data:
        return c
    x, y, z = struct.unpack("<III", data[12 * n_full :].ljust(12, b"\0"))
    a, b, c = (a + x) & mask, (b + y) & mask, (c + z) & mask
    c = (c ^ b) - rot(b, 14) & mask
    a = (a ^ c) - rot(c, 11) & mask
    b = (b ^ a) - rot(a, 25) & mask
    c = (c ^ b) - rot(b, 16) & mask
    a = (a ^ c) - rot(c, 4) & mask
    b = (b ^ a) - rot(a, 14) & mask
    return (c ^ b) - rot(b, 24) & mask


def find_seals(data: bytes) -> list[tuple[int, int]]:
    """Where HDF5's metadata blocks begin, and where the checksum of each stands: found by trying lengths."""
    found = []
    starts = {USER_BLOCK}
    for signature in SIGNATURES:
        at = data.find(signature, USER_BLOCK)
        while at >= 0:
            starts.add(at)
            at = data.find(signature, at + 4)
    for start in sorted(starts):
        for end in range(start + 8, min(start + 700, len(data) - 4)):
            (stored,) = struct.unpack_from("<I", data, end)
            if stored and lookup3(data[start:end]) == stored:
                found.append((start, end))
                break
    return found


def sealed_metadata(good: bytes, seals: list[tuple[int, int]], rng: np.random.Generator) -> bytes:
    """Bytes of one metadata block changed, its checksum made to fit."""
    data = bytearray(good)
    for _ in range(int(rng.integers(1, 3))):
        start, end = seals[int(rng.integers(len(seals)))]
        for place in rng.integers(start + 4, end, size=int(rng.integers(1, 4))):
            flipped = data[place] ^ 1 << int(rng.integers(8))
            data[place] = int(rng.choice([0, 1, 0x7F, 0xFF, int(rng.integers(256)), flipped]))
        struct.pack_into("<I", data, end, lookup3(bytes(data[start:end])))
    return bytes(data)


# Edits through h5py


def leaves(file: h5py.File) -> list[str]:
    found: list[str] = []
    file.visititems(lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) else None)
    return found


def structural(path: Path, rng: np.random.Generator) -> str:
    edit = EDITS[int(rng.integers(len(EDITS)))]
    with h5py.File(path, "r+", libver=("v108", "latest")) as file:
        edit(file, str(rng.choice(leaves(file))), rng)
        reseal_model(file)
    path.write_bytes(sealed(path.read_bytes()))
    return edit.__name__


def reseal_model(file: h5py.File) -> None:
    """`model_sha256` made to fit what is there now, as far as it can be read."""
    try:
        skipped = (*EXIT.values(), HASH)
        arrays = {name: np.asarray(file[name][()]) for name in leaves(file) if name not in skipped}
        text = digest(arrays).encode()
        if HASH in file:
            replace(file, HASH, np.bytes_(text))
    except Exception:  # an edit that h5py itself cannot read keeps the old hash
        return


def replace(file: h5py.File, name: str, data: object, **how: object) -> None:
    del file[name]
    file.create_dataset(name, data=data, **how)


def other_type(file: h5py.File, name: str, rng: np.random.Generator) -> None:
    kind = str(rng.choice(["i1", "u2", "<i4", ">i4", "<i8", "f2", "<f4", "<f8", "c8", "?", ">f4"]))
    old = file[name][()]
    with np.errstate(all="ignore"):  # whole numbers may be too large for half precision
        new = np.zeros(np.shape(old), kind) if isinstance(old, bytes) else np.asarray(old).astype(kind)
    replace(file, name, new)


def other_shape(file: h5py.File, name: str, rng: np.random.Generator) -> None:
    old = np.asarray(file[name][()])
    shapes = [old[None], old.ravel(), old[..., None], np.repeat(old[None], 2, 0)]
    if old.ndim:
        shapes += [old[:-1], np.concatenate([old, old[:1]]), old.T, old[..., :-1], old[:0]]
    replace(file, name, shapes[int(rng.integers(len(shapes)))])


def other_values(file: h5py.File, name: str, rng: np.random.Generator) -> None:
    old = np.asarray(file[name][()])
    if old.dtype.kind == "S":
        return bad_text(file, name, rng)
    new = np.atleast_1d(old).copy()
    info = np.finfo(new.dtype) if new.dtype.kind == "f" else np.iinfo(new.dtype)
    choices = [info.min, info.max, 0, 1, -1 if info.min else 1, 3]
    new.flat[int(rng.integers(new.size))] = choices[int(rng.integers(len(choices)))]
    replace(file, name, new.reshape(old.shape))
    return None


def not_finite(file: h5py.File, name: str, rng: np.random.Generator) -> None:
    name = str(rng.choice([n for n in leaves(file) if file[n].dtype.kind == "f"]))
    new = file[name][()]
    new.flat[int(rng.integers(new.size))] = rng.choice([np.nan, np.inf, -np.inf])
    replace(file, name, new)


BAD_TEXTS = (
    b"\xff\xfe",
    b"",
    b"{",
    b"NaN",
    b'{"a":NaN}',
    b'{"a":1e999}',
    b"[" * 100_000,
    b"[" * 400 + b"]" * 400,
    b"9" * 100_000,
    b'{"a":1,"a":2}',
    b'"\\ud800"',
    b'"\\u0000\\u001b[2J"',
    b"null",
    b"{}",
    b"[]",
    b'["a","a","a","a"]',
    b"true",
    b"1e400",
    b" {}",
    b'{"scorer":"bilinear","mask":1}',
    b'{"n_points":1e3}',
    b'{"group_size":0,"n_chunks":-1,"n_groups":1,"n_points":99999,"overlap":0.5,"radius":null}',
    "{'ä': 1}".encode(),
    b"x" * 1_000_000,
    b"dense\0dense",
    b"CUBA",
    b"free",
    b"parts",
    b"cloud",
    b"soft",
    b"x" * 64,
    b'{"chunking":{"group_size":8,"n_chunks":6,"n_groups":16,"n_points":96,"overlap":1e999,"radius":null}}',
    b'{"chunking":{"group_size":8,"n_chunks":6,"n_groups":16,"n_points":96,"overlap":1,"radius":null}}',
    b'{"mask":true,"scorer":["bilinear"]}',
    b'{"classes":"abcd"}',
    b'{"classes":["a","b","c",4]}',
)


def bad_text(file: h5py.File, name: str, rng: np.random.Generator) -> None:
    texts = [n for n in leaves(file) if file[n].dtype.kind == "S"]
    text = BAD_TEXTS[int(rng.integers(len(BAD_TEXTS)))]
    replace(file, str(rng.choice(texts)), np.array(text, dtype=f"S{max(1, len(text))}"))


def edited_text(file: h5py.File, name: str, rng: np.random.Generator) -> None:
    texts = [n for n in leaves(file) if file[n].dtype.kind == "S"]
    name = str(rng.choice(texts))
    text = bytearray(file[name][()])
    text[int(rng.integers(len(text)))] = int(rng.integers(1, 256))
    replace(file, name, np.bytes_(bytes(text)))


def odd_kind(file: h5py.File, name: str, rng: np.random.Generator) -> None:
    kinds = [
        lambda: file.create_dataset(name, data=np.zeros(3, [("a", "i4"), ("b", "f8")])),
        lambda: file.create_dataset(name, data="text of any length", dtype=h5py.string_dtype()),
        lambda: file.create_dataset(name, (3,), dtype=h5py.vlen_dtype(np.int32)),
        lambda: file.create_dataset(name, (3,), dtype=h5py.enum_dtype({"a": 1, "b": 2})),
        lambda: file.create_dataset(name, (3,), dtype=h5py.ref_dtype),
        lambda: file.create_dataset(name, (3,), dtype=h5py.regionref_dtype),
        lambda: file.create_dataset(name, data=np.zeros(2, "V5")),
        lambda: file.create_dataset(name, data=np.zeros((2,), dtype=("<i4", (3,)))),
        lambda: file.create_dataset(name, data=h5py.Empty("<i4")),
    ]
    del file[name]
    kinds[int(rng.integers(len(kinds)))]()


def missing(file: h5py.File, name: str, rng: np.random.Generator) -> None:
    parts = name.split("/")
    del file["/".join(parts[: int(rng.integers(1, len(parts) + 1))])]


def extra(file: h5py.File, name: str, rng: np.random.Generator) -> None:
    words = ["extra", "a/b/c/d/e/f", "x" * 1000, "\u00e4", "\x1b[2J", "layer/9/weight", "layer/00/type", "asp/host/new"]
    words += ["asp/model/scene/chunk/weight", "asp/model/timing", "asp/golden/points", "asp/model/first/score"]
    words += ["layer/\u0663/type", "layer/-1/type", f"layer/{'9' * 300}/type"]
    word = words[int(rng.integers(len(words)))]
    if rng.random() < 0.5:
        word = f"{name.rpartition('/')[0]}/{word}"
    if word not in file:
        file.create_dataset(word, data=np.zeros(3)) if rng.random() < 0.7 else file.create_group(word)


def linked(file: h5py.File, name: str, rng: np.random.Generator) -> None:
    places = [name, name.rpartition("/")[0], "link"]
    place = places[int(rng.integers(3))]
    targets = [
        h5py.SoftLink("/asp/format"),
        h5py.SoftLink(f"/{place}"),
        h5py.ExternalLink("/etc/hostname", "/x"),
        h5py.ExternalLink("other.net", f"/{name}"),
        file["asp"],
        file["asp/format"],
        file["/"],
    ]
    target = targets[int(rng.integers(len(targets)))]
    if place in file:
        del file[place]
    file[place] = target


def odd_storage(file: h5py.File, name: str, rng: np.random.Generator) -> None:
    name = str(rng.choice([n for n in leaves(file) if file[n].ndim]))
    old = file[name][()]
    kinds = [
        {"compression": "gzip"},
        {"chunks": True},
        {"shuffle": True},
        {"fletcher32": True},
        {"maxshape": (None,) * old.ndim},
        {"external": [("/etc/hostname", 0, old.nbytes)]},
        {"scaleoffset": 4},
        {"compression": "lzf"},
    ]
    how = kinds[int(rng.integers(len(kinds)))]
    del file[name]
    if "external" in how:
        file.create_dataset(name, old.shape, old.dtype, **how)
    else:
        file.create_dataset(name, data=old, **how)


def virtual(file: h5py.File, name: str, rng: np.random.Generator) -> None:
    name = str(rng.choice([n for n in leaves(file) if file[n].ndim]))
    shape, dtype = file[name].shape, file[name].dtype
    layout = h5py.VirtualLayout(shape, dtype)
    layout[...] = h5py.VirtualSource("/etc/hostname", "x", shape, dtype)
    del file[name]
    file.create_virtual_dataset(name, layout)


def huge(file: h5py.File, name: str, rng: np.random.Generator) -> None:
    """Declared, never written: gigabytes that an incautious reader would allocate."""
    name = str(rng.choice([n for n in leaves(file) if file[n].ndim]))
    ndim, dtype = file[name].ndim, file[name].dtype
    side = int(rng.choice([2**12, 2**20, 2**31, 2**40])) if ndim == 1 else int(2 ** (rng.choice([24, 40]) // ndim))
    del file[name]
    file.create_dataset(name, (side,) * ndim, dtype)


def huge_text(file: h5py.File, name: str, rng: np.random.Generator) -> None:
    name = str(rng.choice([n for n in leaves(file) if file[n].dtype.kind == "S"]))
    del file[name]
    file.create_dataset(name, (), dtype=f"S{int(rng.choice([2**20, 2**26, 2**30]))}")


def annotated(file: h5py.File, name: str, rng: np.random.Generator) -> None:
    place = [name, name.rpartition("/")[0], "/"][int(rng.integers(3))]
    file[place].attrs["note"] = [1, "text", np.zeros(3)][int(rng.integers(3))]


def named_type(file: h5py.File, name: str, rng: np.random.Generator) -> None:
    if rng.random() < 0.5:
        del file[name]
        file[name] = np.dtype("<i4")
    else:
        file["kind"] = np.dtype("<i4")


def swapped(file: h5py.File, name: str, rng: np.random.Generator) -> None:
    other = str(rng.choice(leaves(file)))
    mine, theirs = file[name][()], file[other][()]
    replace(file, name, theirs)
    if other != name:
        replace(file, other, mine)


def another_layer(file: h5py.File, name: str, rng: np.random.Generator) -> None:
    n_layers = len(file["layer"])
    if rng.random() < 0.5:
        file.copy("layer/0", f"layer/{n_layers + int(rng.integers(2))}")
    else:
        file.move("layer/0", f"layer/{int(rng.integers(0, 70)) + n_layers}")


def untouched(file: h5py.File, name: str, rng: np.random.Generator) -> None:
    """Written again by another program: still the same bundle."""


def promised(file: h5py.File, name: str, rng: np.random.Generator) -> None:
    text = BAD_TEXTS[int(rng.integers(len(BAD_TEXTS)))]
    for part in ("plan", "certificate")[: int(rng.integers(1, 3))]:
        if f"asp/exit/{part}" in file:
            del file[f"asp/exit/{part}"]
        file.create_dataset(f"asp/exit/{part}", data=np.array(text, dtype=f"S{max(1, len(text))}"))


EDITS = (
    *(other_type, other_shape, other_values, not_finite, bad_text, edited_text, odd_kind, missing, extra, linked),
    *(odd_storage, virtual, huge, huge_text, annotated, named_type, swapped, another_layer, untouched, promised),
)


# One process


def attempt(path: Path) -> str | None:
    """Why the file is refused, which must be one line that names the file; None: it is a bundle."""
    try:
        found = bundle.read(path)
    except InputError as error:
        text = str(error)
        assert text.startswith(f"'{path}': "), text
        assert len(text.splitlines()) == 1, text
        assert text.isprintable(), text
        assert len(text) < 600, text
        return text.removeprefix(f"'{path}': ")
    bundle.describe(found).encode()
    assert bundle.contents(bundle.from_bytes(bundle.to_bytes(found))).keys() == bundle.contents(found).keys()
    return None


def main(good_path: str, first: int, end: int) -> None:
    good = Path(good_path).read_bytes()
    path = Path(good_path).with_name(f"mutant-{first}.net")
    seals = find_seals(good)
    assert len(seals) > 50, len(seals)
    attempt(Path(good_path))
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + ROOM, in_use + ROOM))
    counts: dict[str, list[int]] = {}
    reasons: Counter[str] = Counter()
    for number in range(first, end):
        print(number, flush=True)
        kind = mutant(good, seals, number, path)
        signal.alarm(SECONDS)
        reason = attempt(path)
        assert reason or kind != "raw" or path.read_bytes() == good, "damaged, and taken for whole"
        counts.setdefault(kind, [0, 0])[reason is None] += 1
        reasons[re.sub(r"[0-9a-f]{12}|[0-9]+", "N", reason or "valid")] += 1
        signal.alarm(0)
    print(json.dumps({"counts": counts, "reasons": reasons.most_common(), "seals": len(seals)}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
