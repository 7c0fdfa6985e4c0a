"""The bundle (`model.net`): all that a deployed model needs in one file, in NetX's HDF5 layout, hashed, safe to read.

    bytes 0..511   user block: magic, format version, length and SHA-256 of the rest, so that damage is found before
                   the HDF5 library sees a byte
    layer/0..      NetX: type 'dense', shape, weight, bias, neuron/type 'ASP_SOFT', neuron/... (integers)
    asp/...        what NetX has no word for: timing, chunking, host, scales, record, golden vectors, recipe, hashes

`contents` is the layout: one flat table from path to array. Writing stores it in sorted order without times: the same
bundle gives the same bytes. Hashing runs over it. Reading ends by comparing it with what the file held: a bundle that
was read is the one that would be written. `docs/bundle.md` describes the format for other programs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import stat
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5f, h5g, h5p, h5s, h5t

from asp_neuro import files
from asp_neuro.bundle import plain_hdf5
from asp_neuro.errors import AspError, ConfigError, InputError, MissingError, nearest
from asp_neuro.heads.soft.membrane import STATE_MAX, STATE_MIN
from asp_neuro.heads.spec import DRIVE_MAX, HeadSpec, LayerSpec, check_synaptic_sums, run_reference
from asp_neuro.model.episode import host_drives
from asp_neuro.model.host import PARTS, Host, HostSpec
from asp_neuro.report import table
from asp_neuro.scenes.cloud import Chunking, cut

MAGIC = b"asp-neuro bundle"  # 16 bytes
FORMAT = "asp-neuro bundle"
VERSION = 2  # 1 had no golden clouds; its host clipped what the mixer reads
USER_BLOCK = 512
HEADER = struct.Struct("<16sIIQ32s")  # magic, version, 0, length of the rest, SHA-256 of the rest
NEURON_TYPE = "ASP_SOFT"  # stock NetX knows no such neuron, and fails instead of running it with a hard reset

MAX_FILE = 64 * 2**20  # bytes
MAX_ELEMENTS = 16 * 2**20  # of one array, and characters of one string
MAX_LAYERS = 8
MAX_WHOLE = 2**53  # whole numbers in JSON

DEFAULT = "model.net"
SUFFIX = ".net"

JSON_PARTS = {  # name: place; no group has more than 8 entries, which HDF5 would store in another way
    "chunking": "asp/model/chunking",
    "classes": "asp/model/classes",
    "policy": "asp/model/policy",
    "licence": "asp/about/licence",
    "recipe": "asp/about/recipe",
    "record": "asp/about/record",
    "versions": "asp/about/versions",
    "plan": "asp/exit/plan",
    "certificate": "asp/exit/certificate",
}
OPTIONAL = ("plan", "certificate")  # outside `model_sha256`
HASH = "asp/model_sha256"
STRING = "string"
LAYER_LEAVES: dict[str, tuple[str, int]] = {  # path: type, number of dimensions
    "type": (STRING, 0),
    "shape": ("<i8", 1),
    "inFeatures": ("<i8", 0),
    "outFeatures": ("<i8", 0),
    "weight": ("<i2", 2),
    "bias": ("<i4", 1),
    "neuron/type": (STRING, 0),
    "neuron/lambda": ("<i2", 1),
    "neuron/theta": ("<i4", 1),
    "neuron/theta_fire": ("<i4", 1),
    "neuron/state_bits": ("<i8", 0),
}
ASP_LEAVES: dict[str, tuple[str, int]] = {
    "asp/format": (STRING, 0),
    "asp/version": ("<i8", 0),
    HASH: (STRING, 0),
    "asp/model/timing": (STRING, 0),
    "asp/model/factor": ("<f8", 2),
    "asp/golden/drives_int": ("<i4", 3),
    "asp/golden/membranes": ("<i4", 4),
    "asp/golden/spikes": ("|u1", 4),
    "asp/golden/points": ("<i2", 3),
    "asp/golden/host_drives_int": ("<i4", 3),
    **dict.fromkeys(JSON_PARTS.values(), (STRING, 0)),
}
WHOLE = ("n_points", "n_groups", "group_size", "n_chunks")
CHUNKING_TYPES: dict[str, Any] = {**dict.fromkeys(WHOLE, int), "overlap": float, "radius": (float, type(None))}
HOST_PLACES = {  # edge_in_weight: asp/host/edge/in_weight
    f.name: f"asp/host/{f.name.replace('_', '/', 1)}"
    for f in dataclasses.fields(HostSpec)
    if f.name not in ("scorer", "mask")
}
HOST_LEAVES = {
    place: ("<f4", 2 if place.endswith(("weight", "policy/belief", "policy/descriptor")) else 1)
    for place in HOST_PLACES.values()
}
HOST_PARTS = [{HOST_PLACES[name] for name in names} for names in PARTS.values()]  # a model has a part or not


@dataclass(frozen=True, eq=False)
class Golden:
    """Recorded runs of the reference: what every machine must reproduce, bit for bit."""

    drives_int: np.ndarray  # [T, b, n] int32
    membranes: np.ndarray  # [T, L, b, H] int32
    spikes: np.ndarray  # [T, L, b, H] uint8
    points: np.ndarray  # [c, P, 3] int16, clouds in any unit, y up
    host_drives_int: np.ndarray  # [M, c, n] int32, what the host makes of them, chunk 0 first


@dataclass(frozen=True, eq=False)
class Bundle:
    """A deployed model. The dictionaries are plain data (JSON); `plan` and `certificate` are `to_dict` of theirs."""

    head: HeadSpec
    host: HostSpec
    chunking: Chunking
    classes: tuple[str, ...]
    recipe: dict[str, Any]
    golden: Golden
    record: dict[str, Any] = field(default_factory=dict)  # of the discretisation and the training
    versions: dict[str, str] = field(default_factory=dict)
    licence: str = ""
    plan: dict[str, Any] | None = None
    certificate: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        for name in ("recipe", "record", "versions", "plan", "certificate"):
            value = getattr(self, name)
            if value is None and name in ("plan", "certificate"):
                continue
            if not isinstance(value, dict):
                raise ConfigError(f"{name} is a {type(value).__name__}, expected a table")
            object.__setattr__(self, name, _plain(name, value))
        object.__setattr__(self, "classes", tuple(self.classes))
        _check_words(self)
        _check_fit(self)
        _check_golden(self)
        _check_promises(self)


def make_golden(head: HeadSpec, drives_int: np.ndarray, host: HostSpec, how: Chunking, points: np.ndarray) -> Golden:
    """Golden vectors of drives [T, b, n] through the head, and of clouds [c, P, 3] (int16) through the host.

    Drives that overflow are no good example and refused.
    """
    if drives_int.ndim != 3 or drives_int.size == 0 or drives_int.shape[2] != head.n_inputs:
        raise ConfigError(f"golden: drives of shape {list(drives_int.shape)}, expected [T, batch, {head.n_inputs}]")
    membranes, spikes, overflows = run_reference(head, drives_int)
    if overflows:
        raise ConfigError(f"golden: the 24-bit state overflows {overflows} times on these drives")
    seen = host_drives(Host(host), cut(points, how)).astype(np.int32)
    return Golden(drives_int.astype(np.int32), membranes.astype(np.int32), spikes.astype(np.uint8), points, seen)


def host_drives_now(bundle: Bundle) -> np.ndarray:
    """[M, c, n] what the host makes of the golden clouds here and now."""
    return host_drives(Host(bundle.host), cut(bundle.golden.points, bundle.chunking))


def golden_mismatches(bundle: Bundle) -> int:
    """Spikes, membranes and drives in which reference and host, run now, differ from the golden vectors."""
    membranes, spikes, _ = run_reference(bundle.head, bundle.golden.drives_int.astype(np.int64))
    wrong = (membranes != bundle.golden.membranes).sum() + (spikes != bundle.golden.spikes).sum()
    return int(wrong + (host_drives_now(bundle) != bundle.golden.host_drives_int).sum())


def library_versions() -> dict[str, str]:
    """What a bundle was made with."""
    found = {"python": platform.python_version(), "hdf5": h5py.version.hdf5_version}
    for name in ("asp-neuro", "numpy", "h5py", "torch", "lava-nc", "lava-dl"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


# What a bundle must be


def _check_words(bundle: Bundle) -> None:
    for name, word in [("licence", bundle.licence), *(("class", word) for word in bundle.classes)]:
        if not isinstance(word, str) or not all(letter.isprintable() or letter == "\n" for letter in word):
            raise ConfigError(f"{name} {word!r:.60} is not printable text")
    if len(set(bundle.classes)) != len(bundle.classes):
        raise ConfigError(f"{len(bundle.classes)} classes, of which {len(set(bundle.classes))} are distinct")
    for name, version in bundle.versions.items():
        if not isinstance(version, str):
            raise ConfigError(f"versions: {name} is {version!r:.60}, expected text")


def _check_fit(bundle: Bundle) -> None:
    """Head, host and classes belong together, and the host can be built."""
    head, host = bundle.head, bundle.host
    if len(head.layers) > MAX_LAYERS:
        raise ConfigError(f"{len(head.layers)} layers, at most {MAX_LAYERS} are stored")
    pairs = (
        ("the host's drive", host.width, "inputs of layer 1", head.n_inputs),
        ("the host's belief", len(host.belief_gain), "neurons of the last layer", head.layers[-1].n_neurons),
        ("the read-out", host.n_classes, "classes", len(bundle.classes)),
    )
    for left, found, right, expected in pairs:
        if found != expected:
            raise ConfigError(f"{left} has width {found}, but there are {expected} {right}")
    Host(host)  # its sums must be exact
    check_synaptic_sums(head, host.drive_bound())


def _check_golden(bundle: Bundle) -> None:
    golden, layers = bundle.golden, bundle.head.layers
    if golden.drives_int.ndim != 3 or golden.drives_int.shape[2] != bundle.head.n_inputs:
        raise ConfigError(f"golden: drives have shape {list(golden.drives_int.shape)}")
    if golden.points.ndim != 3:
        raise ConfigError(f"golden: points have shape {list(golden.points.shape)}")
    steps, batch = golden.drives_int.shape[:2]
    clouds, cut_into = len(golden.points), bundle.chunking
    expected = (steps, len(layers), batch, layers[0].n_neurons)
    limits = (
        ("drives_int", golden.drives_int.shape, -DRIVE_MAX, DRIVE_MAX, np.int32),
        ("membranes", expected, STATE_MIN, STATE_MAX, np.int32),
        ("spikes", expected, 0, 1, np.uint8),
        ("points", (clouds, cut_into.n_points, 3), -(2**15), 2**15 - 1, np.int16),
        ("host_drives_int", (cut_into.n_chunks, clouds, bundle.head.n_inputs), -DRIVE_MAX, DRIVE_MAX, np.int32),
    )
    for name, shape, low, high, dtype in limits:
        values = getattr(golden, name)
        if values.dtype != dtype or values.shape != shape or values.size == 0:
            found = f"{values.dtype} {list(values.shape)}"
            raise ConfigError(f"golden: {name} is {found}, expected {np.dtype(dtype)} {list(shape)}, not empty")
        if values.min() < low or values.max() > high:
            raise ConfigError(f"golden: {name} {values.min()}..{values.max()} is outside {low}..{high}")


def _check_promises(bundle: Bundle) -> None:
    """Plan and certificate are whole: keys, types, own hashes. Whether they hold for the model is asked at use."""
    if bundle.plan is None and bundle.certificate is None:
        return
    from asp_neuro.certify import Certificate, Plan  # scipy

    if bundle.plan is None:
        raise ConfigError("a certificate without its plan")
    Plan.from_dict(bundle.plan)
    if bundle.certificate is not None:
        Certificate.from_dict(bundle.certificate)


# JSON, canonical: one text for one value


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _plain(name: str, value: Any) -> Any:
    """The value as JSON gives it back (tuples become lists); what JSON cannot say is refused."""
    try:
        return _parse(_text(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{name} is not plain data ({_line(error)})") from None


def _parse(text: str) -> Any:
    value = json.loads(text, parse_int=_whole, parse_constant=_no_number)
    json.dumps(value, ensure_ascii=False).encode()  # refuses half a surrogate pair, which no terminal can print
    return value


def _whole(digits: str) -> int:
    if len(digits) > 17 or abs(int(digits)) > MAX_WHOLE:
        raise ValueError(f"whole number {digits[:20]} exceeds 2^53")
    return int(digits)


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is not a number")


# The layout


def contents(bundle: Bundle) -> dict[str, np.ndarray]:
    """Path -> array: all that a file holds."""
    found = _model_contents(bundle)
    found[HASH] = _string(_digest(found))
    for name in OPTIONAL:
        value = getattr(bundle, name)
        if value is not None:
            found[JSON_PARTS[name]] = _string(_text(value))
    return found


def model_sha256(bundle: Bundle) -> str:
    """Identity of a model: over everything except plan, certificate and itself."""
    return _digest(_model_contents(bundle))


def _model_contents(bundle: Bundle) -> dict[str, np.ndarray]:
    host = bundle.host
    parts = {
        "chunking": _chunking(bundle.chunking),
        "classes": list(bundle.classes),
        "licence": bundle.licence,
        "policy": {"scorer": host.scorer, "mask": bool(host.mask)},
        "recipe": bundle.recipe,
        "record": bundle.record,
        "versions": bundle.versions,
    }
    found = {JSON_PARTS[name]: _string(_text(value)) for name, value in parts.items()}
    found |= {HOST_PLACES[name]: array for name, array in host.arrays().items()}
    found |= {f"asp/golden/{f.name}": getattr(bundle.golden, f.name) for f in dataclasses.fields(Golden)}
    found["asp/format"] = _string(FORMAT)
    found["asp/version"] = np.array(VERSION)
    found["asp/model/timing"] = _string(bundle.head.timing)
    found["asp/model/factor"] = np.stack([layer.factor for layer in bundle.head.layers])
    for number, layer in enumerate(bundle.head.layers):
        found |= {f"layer/{number}/{name}": array for name, array in _layer_contents(layer).items()}
    return {path: _stored(path, array) for path, array in sorted(found.items())}


def _chunking(how: Chunking) -> dict[str, Any]:
    whole = {name: int(getattr(how, name)) for name in WHOLE}
    return {**whole, "overlap": float(how.overlap), "radius": None if how.radius is None else float(how.radius)}


def _layer_contents(layer: LayerSpec) -> dict[str, np.ndarray]:
    n_neurons, n_inputs = layer.weight_int.shape
    return {
        "type": _string("dense"),
        "shape": np.array([n_neurons]),
        "inFeatures": np.array(n_inputs),
        "outFeatures": np.array(n_neurons),
        "weight": layer.weight_int,
        "bias": layer.bias_int,
        "neuron/type": _string(NEURON_TYPE),
        "neuron/lambda": layer.lambda_int,
        "neuron/theta": layer.theta_int,
        "neuron/theta_fire": layer.theta_fire_int,
        "neuron/state_bits": np.array(layer.state_bits),
    }


def _kind(path: str) -> tuple[str, int] | None:
    """Type and number of dimensions of what is stored at a path; None: nothing is."""
    match = re.fullmatch(r"layer/([0-7])/(.*)", path)
    if match:
        return LAYER_LEAVES.get(match[2])
    return ASP_LEAVES.get(path) or HOST_LEAVES.get(path)


def _string(text: str) -> np.ndarray:
    return np.array(text.encode())


def _stored(path: str, array: np.ndarray) -> np.ndarray:
    """The array in the type that its place in the file has."""
    kind = _kind(path)
    assert kind is not None, path
    return np.asarray(array, order="C") if kind[0] == STRING else np.asarray(array, dtype=kind[0], order="C")


def _digest(found: dict[str, np.ndarray]) -> str:
    """SHA-256 over path, type, shape and bytes of every array, in sorted order."""
    total = hashlib.sha256()
    for path, array in sorted(found.items()):
        shape = ",".join(map(str, array.shape))
        total.update(f"{path} {array.dtype.str} [{shape}]\n".encode())
        total.update(array.tobytes())
    return total.hexdigest()


# Writing


def to_bytes(bundle: Bundle) -> bytes:
    """The whole file, the same bytes for the same bundle."""
    image = _image(contents(bundle))
    header = HEADER.pack(MAGIC, VERSION, 0, len(image), hashlib.sha256(image).digest())
    data = header.ljust(USER_BLOCK, b"\0") + image
    if len(data) > MAX_FILE:
        raise ConfigError(f"the bundle takes {len(data)} bytes, at most {MAX_FILE} are stored")
    return data


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


def with_certificate(bundle: Bundle, plan: dict[str, Any] | None, certificate: dict[str, Any] | None) -> Bundle:
    """The same model with a plan, and a certificate or none; both must be made for this model."""
    model = model_sha256(bundle)
    for name, value in (("plan", plan), ("certificate", certificate)):
        if value is not None and value.get("model_sha256") != model:
            raise InputError(f"the {name} is for model {str(value.get('model_sha256'))[:12]}, this one is {model[:12]}")
    return dataclasses.replace(bundle, plan=plan, certificate=certificate)


# Reading


def read(path: str | Path) -> Bundle:
    """A bundle from a file that may be damaged or hostile: refused in one line that names the file and the reason."""
    try:
        return from_bytes(_file_bytes(path))
    except MissingError:
        raise
    except AspError as error:
        raise InputError(f"'{path}': {_line(error)}") from None
    except Exception as error:  # a broken file can fail anywhere in the HDF5 library or in a conversion
        raise InputError(f"'{path}': cannot be read as a bundle ({_line(error)})") from None


def from_bytes(data: bytes) -> Bundle:
    """A bundle from the bytes of its file; `read` turns what goes wrong into one line."""
    _check_header(data)
    found = _arrays(data)
    if found["asp/format"].tobytes() != FORMAT.encode():
        raise InputError(f"asp/format is not '{FORMAT}'")
    if int(found["asp/version"]) != VERSION:
        raise InputError(_other_version(int(found["asp/version"])))
    bundle = _assemble(found)
    _compare(found, contents(bundle))
    return bundle


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


def _check_header(data: bytes) -> None:
    """The user block: whose file, which version, and whether the rest is what was written."""
    if len(data) < USER_BLOCK or data[: len(MAGIC)] != MAGIC:
        kind = "a plain HDF5 file" if data[:8] == b"\x89HDF\r\n\x1a\n" else "it does not begin with 'asp-neuro bundle'"
        raise InputError(f"not an asp-neuro bundle ({kind if data else 'empty'})")
    _, version, zero, length, digest = HEADER.unpack_from(data)
    if version != VERSION:
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


def _other_version(version: int) -> str:
    hint = "; export its checkpoint again: asp-neuro export model.pt" if 0 < version < VERSION else ""
    return f"format version {version}, this program reads {VERSION}{hint}"


def _arrays(data: bytes) -> dict[str, np.ndarray]:
    """All arrays of the HDF5 part; every one is looked at before any is read."""
    stored = plain_hdf5.arrays(data, USER_BLOCK)
    for path in stored:
        if _kind(path) is None:
            raise InputError(f"{path}: unknown, a bundle of version {VERSION} has no such entry")
    _check_paths(set(stored))
    for path, about in stored.items():
        _check_array(path, about)
    found = {path: plain_hdf5.values(data, about) for path, about in stored.items()}
    for path, array in found.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise InputError(f"{path}: holds values that are not finite")
    return found


def _check_paths(paths: set[str]) -> None:
    layers = sorted({int(path.split("/")[1]) for path in paths if path.startswith("layer/")})
    if not layers or layers != list(range(len(layers))):
        raise InputError(f"layers {layers}: expected 0, 1, ...")
    needed = {f"layer/{number}/{leaf}" for number in layers for leaf in LAYER_LEAVES}
    needed |= set(ASP_LEAVES) - {JSON_PARTS[name] for name in OPTIONAL}
    needed |= set(HOST_LEAVES).difference(*(part for part in HOST_PARTS if not paths & part))
    missing = sorted(needed - paths)
    if missing:
        raise InputError(f"{missing[0]} is missing")


def _check_array(path: str, stored: plain_hdf5.Stored) -> None:
    """Type, dimensions and size, before anything is read."""
    kind = _kind(path)
    assert kind is not None, path
    is_expected = stored.dtype.kind == "S" if kind[0] == STRING else stored.dtype == np.dtype(kind[0])
    if not is_expected:
        raise InputError(f"{path}: is {stored.dtype}, expected {kind[0]}")
    if len(stored.shape) != kind[1]:
        raise InputError(f"{path}: {len(stored.shape)} dimensions, expected {kind[1]}")
    if not 1 <= stored.n_elements <= MAX_ELEMENTS:
        raise InputError(f"{path}: shape {list(stored.shape)}, expected 1 to {MAX_ELEMENTS} elements")


def _assemble(found: dict[str, np.ndarray]) -> Bundle:
    """Arrays of known types and dimensions -> Bundle; the classes check the values."""
    parts = {name: _read_json(place, found) for name, place in JSON_PARTS.items() if place in found}
    n_layers = sum(path.endswith("/neuron/type") for path in found)
    factor = found["asp/model/factor"]
    if len(factor) != n_layers:
        raise InputError(f"asp/model/factor: {len(factor)} rows for {n_layers} layers")
    layers = tuple(_layer(found, number, factor[number]) for number in range(n_layers))
    policy = _section("policy", parts["policy"], {"scorer": str, "mask": bool})
    host: dict[str, Any] = {name: found[place] for name, place in HOST_PLACES.items() if place in found}
    if not isinstance(parts["classes"], list) or not isinstance(parts["licence"], str):
        raise InputError("the classes are not a list, or the licence is not a text")
    return Bundle(
        head=HeadSpec(layers, timing=found["asp/model/timing"].tobytes().decode("ascii")),
        host=HostSpec(**host, **policy),
        chunking=Chunking(**_section("chunking", parts["chunking"], CHUNKING_TYPES)),
        classes=tuple(parts["classes"]),
        recipe=parts["recipe"],
        golden=Golden(**{f.name: found[f"asp/golden/{f.name}"] for f in dataclasses.fields(Golden)}),
        record=parts["record"],
        versions=parts["versions"],
        licence=parts["licence"],
        plan=parts.get("plan"),
        certificate=parts.get("certificate"),
    )


def _layer(found: dict[str, np.ndarray], number: int, factor: np.ndarray) -> LayerSpec:
    def whole(leaf: str) -> np.ndarray:
        return found[f"layer/{number}/{leaf}"].astype(np.int64)

    return LayerSpec(
        weight_int=whole("weight"),
        bias_int=whole("bias"),
        lambda_int=whole("neuron/lambda"),
        theta_int=whole("neuron/theta"),
        theta_fire_int=whole("neuron/theta_fire"),
        factor=factor.copy(),
        state_bits=int(whole("neuron/state_bits")),
    )


def _read_json(place: str, found: dict[str, np.ndarray]) -> Any:
    try:
        return _parse(found[place].tobytes().decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: not the JSON that is written here ({_line(error)})") from None


def _section(name: str, values: Any, types: dict[str, Any]) -> dict[str, Any]:
    """A JSON object with exactly these keys and types."""
    if not isinstance(values, dict):
        raise InputError(f"{JSON_PARTS[name]}: not a table")
    for key in values:
        if key not in types:
            raise InputError(f"{JSON_PARTS[name]}: unknown key '{key:.40}'{nearest(key[:40], types)}")
    for key, kind in types.items():
        if key not in values:
            raise InputError(f"{JSON_PARTS[name]}: {key} is missing")
        if not isinstance(values[key], kind) or (kind is int and isinstance(values[key], bool)):
            raise InputError(f"{JSON_PARTS[name]}: {key} is {values[key]!r:.40}, which is not its type")
    return values


def _compare(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """What was read is what would be written, hash included."""
    for path, array in expected.items():
        other = found[path]
        if path == HASH and other.tobytes() != array.tobytes():
            mine, theirs = (value.tobytes().decode("latin-1")[:12] for value in (array, other))
            raise InputError(f"edited: the model's SHA-256 is {mine}, the file says {theirs}")
        if other.dtype != array.dtype or other.shape != array.shape or other.tobytes() != array.tobytes():
            raise InputError(f"{path}: does not fit the rest of the bundle")


def _line(error: BaseException) -> str:
    """An error as one short line that a terminal can print."""
    return _printable(" ".join(str(error).split()) or type(error).__name__)[:300]


def _printable(text: str, also: str = "") -> str:
    return "".join(letter if letter.isprintable() or letter in also else "?" for letter in text)


# For people


def shipped() -> dict[str, Path]:
    """Bundles that come with the package: name -> file."""
    folder = Path(__file__).parents[1] / "models"
    return {path.name.removesuffix(SUFFIX): path for path in sorted(folder.glob(f"*{SUFFIX}"))}


def find(name: str | Path | None = None) -> Path:
    """FILE or NAME -> the bundle's path; none given: `./model.net`."""
    known = shipped()
    if name is None:
        if Path(DEFAULT).exists():
            return Path(DEFAULT)
        raise MissingError(f"no bundle given and no ./{DEFAULT} here; {_what_exists(known)}")
    if str(name) in known:
        return known[str(name)]
    path = Path(name)
    if path.exists():
        return path
    raise MissingError(f"'{name}' is neither a file nor a shipped bundle; {_what_exists(known)}")


def _what_exists(known: dict[str, Path]) -> str:
    here = sorted(path.name for path in Path().glob(f"*{SUFFIX}"))
    shipped_names = f"shipped: {', '.join(known)}" if known else "none is shipped with this version"
    return shipped_names + (f"; in this folder: {', '.join(here[:8])}" if here else "; none in this folder")


def describe(bundle: Bundle) -> str:
    """What is inside, for `asp-neuro show`."""
    cut, host = bundle.chunking, bundle.host
    n_host = sum(array.size for array in host.arrays().values())
    golden = bundle.golden.drives_int.shape
    radius = "" if cut.radius is None else f", ball radius {cut.radius:g}"
    lines = [
        f"model      {model_sha256(bundle)}",
        f"classes    {len(bundle.classes)}: {', '.join(bundle.classes)}",
        f"chunks     {cut.n_points} points, {cut.n_groups} groups of {cut.group_size}, {cut.n_chunks} chunks,"
        f" overlap {cut.overlap:g}{radius}",
        f"host       width {host.width}, {n_host} float32 parameters, scorer {host.scorer}"
        + ("" if host.mask else ", visited chunks may be chosen again"),
        f"golden     {golden[1]} runs of {golden[0]} observations",
        f"versions   {', '.join(f'{name} {version}' for name, version in bundle.versions.items())}",
        "",
        f"head, {bundle.head.timing} (golden: measured on the golden vectors)",
        _layer_table(bundle),
        "",
        _promise(bundle),
        *(["", f"licence    {bundle.licence}"] if bundle.licence else []),
        *_section_lines("recipe", bundle.recipe),
        *_section_lines("record", bundle.record),
    ]
    return _printable("\n".join(lines), also="\n")


def _layer_table(bundle: Bundle) -> str:
    headers = ("layer", "inputs", "neurons", "weights", "range", "state scale", "factor", "golden firing", "headroom")
    rows = []
    for number, layer in enumerate(bundle.head.layers):
        peak = int(np.abs(bundle.golden.membranes[:, number]).max())
        rows.append(
            (
                number + 1,
                layer.weight_int.shape[1],
                layer.n_neurons,
                layer.weight_int.size,
                f"{layer.weight_int.min()}..{layer.weight_int.max()}",
                f"2^{layer.state_bits}",
                f"{layer.factor.min():.3g}..{layer.factor.max():.3g}",
                f"{100 * bundle.golden.spikes[:, number].mean():.1f}%",
                f"{STATE_MAX / peak:.1f}x" if peak else "-",
            )
        )
    return table(rows, headers)


def _promise(bundle: Bundle) -> str:
    if bundle.certificate is None:
        return "certificate: none" + (" (a plan is stored)" if bundle.plan is not None else "")
    from asp_neuro.certify import Certificate, Plan, promise, why_void

    certificate = Certificate.from_dict(bundle.certificate)
    void = why_void(certificate, Plan.from_dict(bundle.plan), model_sha256(bundle))
    return f"certificate: void, {void}" if void else f"certificate: {promise(certificate)}"


def _section_lines(title: str, values: dict[str, Any]) -> list[str]:
    """A nested table as `key = value` lines, values in JSON (so that nothing unprintable is printed)."""
    lines = [f"  {key} = {json.dumps(value)}" for key, value in values.items() if not isinstance(value, dict)]
    for key, value in values.items():
        if isinstance(value, dict):
            inner = ", ".join(f"{json.dumps(k)[1:-1]} = {json.dumps(v)}" for k, v in value.items())
            lines.append(f"  {json.dumps(key)[1:-1]}: {inner}")
    return ["", title, *lines] if lines else []
