"""One file, one cloud. Each format has one reader; what is wrong becomes an InputError with the file and the reason.

A reader gets the file's bytes and a path that errors name, so that standard input is a file like any other. What it
gives, as it was stored, goes through `intake.take`.

Meshes (off, obj, ply with faces) go through trimesh and are sampled evenly over their area; pcd goes through pypcd4,
las and laz through laspy, e57 through pye57; text (`columns`), npy and npz through numpy, without pickle.
Sizes are read from the headers before anything is allocated.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from asp_neuro.data.axes import check_up, seed_of, to_y_up
from asp_neuro.data.clouds import check_numbers
from asp_neuro.data.columns import read_columns
from asp_neuro.data.intake import SPARE, Intake, Sampling, check_coordinates, take
from asp_neuro.data.ply import plain_points
from asp_neuro.errors import AspError, InputError
from asp_neuro.libraries import demand

MAX_POINTS = 5_000_000  # of one cloud, or vertices and faces of one mesh
MAX_BYTES = 1_000_000_000  # of one file
NPY_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
OFF_HEADER = re.compile(
    r"(?:\s*#.*\n)*\s*C?OFF\s*(?:#.*\n\s*)*(\d+)\s+(\d+)"
)  # ModelNet: 'OFF123 456 0', no line break
STDIN = Path("-")
SIGNS = (
    (b"\x93NUMPY", ".npy"), (b"PK", ".npz"), (b"ply", ".ply"), (b"# .PCD", ".pcd"), (b"OFF", ".off"),
    (b"LASF", ".las"), (b"ASTM-E57", ".e57"),
)  # fmt: skip


@dataclass(frozen=True)
class Mesh:
    vertices: np.ndarray  # [V, 3] float64
    faces: np.ndarray  # [F, 3] int64


@dataclass(frozen=True)
class Stored:
    """A cloud as it was stored, and sentences about how it was read."""

    points: np.ndarray
    notes: tuple[str, ...] = ()
    corner: np.ndarray | None = None  # [3] what was taken off the points, so that no digit is lost


def read_cloud(
    path: str | Path, *, n_points: int = 1024, up: str = "y", seed: int = 0, drop_invalid: bool = False
) -> np.ndarray:
    """The cloud in one file, y up, [n_points, 3] float32."""
    return take_file(path, Sampling(n_points), up=up, seed=seed, drop_invalid=drop_invalid).points


def take_file(
    path: str | Path, how: Sampling, *, up: str = "y", seed: int = 0, drop_invalid: bool = False, every: bool = False
) -> Intake:
    """The cloud in one file ('-': standard input), and what became of it on the way in; `every`: with all its rows."""
    path = Path(path)
    check_up(up)
    check_numbers(how.n_points, seed)
    content = _read(path)
    if isinstance(content, Mesh):
        n = how.n_points * (SPARE if how.even else 1)
        points = _sample(path, Mesh(to_y_up(content.vertices, up), content.faces), n, seed)
        return take(points, replace(how, strays=None), where=str(path), every=every)  # on a surface nothing strays
    taken = take(content.points, how, up=up, drop_invalid=drop_invalid, seed=seed, where=str(path), every=every)
    given = taken.given if taken.given is None or content.corner is None else taken.given + content.corner
    return replace(taken, notes=(*content.notes, *taken.notes), given=given)


def _read(path: Path) -> Stored | Mesh:
    """What the file holds: points as they were stored, or a mesh, checked."""
    raw, kind = _stdin() if path == STDIN else (None, path.suffix.lower())
    reader = READERS.get(kind)
    if raw is None:
        check_file(path)
    if reader is None:
        raise InputError(f"{path}: unknown kind of file '{path.suffix}'; known: {' '.join(READERS)}")
    try:
        content = reader(path, path.read_bytes() if raw is None else raw)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {reason(error)}") from error
    except MemoryError as error:
        raise InputError(f"{path}: too large for the memory of this machine") from error
    if isinstance(content, Mesh):
        check_coordinates(content.vertices, str(path), "mend the mesh")
    return Stored(content) if isinstance(content, np.ndarray) else content


def _stdin() -> tuple[bytes, str]:
    """What stands on standard input, and its kind by its first bytes; text if they say nothing."""
    raw = sys.stdin.buffer.read(MAX_BYTES + 1)
    if not raw:
        raise InputError("-: nothing came from standard input")
    if len(raw) > MAX_BYTES:
        raise InputError(f"-: more than {MAX_BYTES} bytes from standard input")
    return raw, next((kind for sign, kind in SIGNS if raw.startswith(sign)), ".xyz")


def check_file(path: Path, most: int = MAX_BYTES) -> None:
    """Exists, is a file, is not empty, is not absurdly large."""
    try:
        if path.is_dir():
            raise InputError(f"{path}: is a folder, expected a file")
        if not path.is_file():
            raise InputError(f"{path}: no such file")
        size = path.stat().st_size
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {reason(error)}") from error
    if size == 0:
        raise InputError(f"{path}: the file is empty")
    if size > most:
        raise InputError(f"{path}: {size} bytes, the limit is {most}")


def reason(error: BaseException) -> str:
    """The first line of an error of another library, kept short."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:120]


def check_count(path: Path, n: int, what: str = "points") -> None:
    if n > MAX_POINTS:
        raise InputError(f"{path}: {n} {what}, the limit is {MAX_POINTS}")


def _text(path: Path, raw: bytes) -> Stored:
    check_count(path, raw.count(b"\n"), "lines")
    text = _decode(path, raw)
    try:
        return Stored(*read_columns(text))
    except ValueError as error:
        raise InputError(f"{path}: not a table of numbers: {reason(error)}") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _decode(path: Path, raw: bytes) -> str:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: binary content, expected text") from error
    if "\0" in text:
        raise InputError(f"{path}: binary content, expected text")
    return text


def _npy(path: Path, raw: bytes) -> np.ndarray:
    array = read_array(path, io.BytesIO(raw), len(raw))
    check_count(path, array.size // 3)
    return array


def _npz(path: Path, raw: bytes) -> np.ndarray:
    with Npz(path, raw) as archive:
        keys = archive.keys()
        if "points" not in keys and len(keys) != 1:
            raise InputError(f"{path}: expected an array 'points', found {', '.join(sorted(keys)) or 'nothing'}")
        array = archive["points" if "points" in keys else next(iter(keys))]
    check_count(path, array.size // 3)
    return array


def read_array(path: Path, stream: Any, size: int, most: int = MAX_BYTES) -> np.ndarray:
    """One array in npy format; its header must agree with the `size` in bytes before anything is allocated."""
    try:
        version = np.lib.format.read_magic(stream)
        if version not in NPY_HEADERS:
            raise ValueError(f"format version {version} is not known")
        shape, fortran, dtype = NPY_HEADERS[version](stream)
    except Exception as error:  # numpy lets its tokenizer's errors through
        raise InputError(f"{path}: not a numpy array: {reason(error)}") from error
    if dtype.hasobject:
        raise InputError(f"{path}: holds Python objects (a pickle), which are never loaded")
    expected = dtype.itemsize * int(np.prod([int(s) for s in shape], dtype=object)) if shape else dtype.itemsize
    if expected > most or size > most:
        raise InputError(f"{path}: an array of shape {shape} needs {expected} bytes, the limit is {most}")
    if expected > size:
        raise InputError(f"{path}: truncated: {size} bytes, the header promises {expected}")
    try:
        raw = stream.read(expected)
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path}: damaged: {reason(error)}") from error
    if len(raw) != expected:
        raise InputError(f"{path}: truncated: {len(raw)} bytes, the header promises {expected}")
    return np.frombuffer(raw, dtype).reshape(shape, order="F" if fortran else "C")


class Npz:
    """The arrays of an npz file, each read when asked for: `with Npz(path) as archive: archive["points"]`."""

    def __init__(self, path: Path, raw: bytes | None = None) -> None:
        self.path = path
        if raw is None:
            check_file(path)
        try:
            self.zip = zipfile.ZipFile(path if raw is None else io.BytesIO(raw))
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {reason(error)}") from error
        except Exception as error:  # zipfile raises half a dozen types on damaged archives
            raise InputError(f"{path}: not an npz file, or a truncated one: {reason(error)}") from error

    def __enter__(self) -> Npz:
        return self

    def __exit__(self, *_: object) -> None:
        self.zip.close()

    def __contains__(self, key: str) -> bool:
        return key in self.keys()

    def keys(self) -> set[str]:
        return {name[:-4] for name in self.zip.namelist() if name.endswith(".npy")}

    def __getitem__(self, key: str) -> np.ndarray:
        try:
            info = self.zip.getinfo(f"{key}.npy")
            with self.zip.open(info) as stream:
                return read_array(self.path, stream, info.file_size)
        except KeyError as error:
            found = ", ".join(sorted(self.keys())) or "nothing"
            raise InputError(f"{self.path}: no array '{key}'; found {found}") from error
        except InputError:
            raise
        except Exception as error:  # as above
            raise InputError(f"{self.path}: array '{key}' is damaged: {reason(error)}") from error


def _off(path: Path, raw: bytes) -> Mesh:
    text = _decode(path, raw)
    header = OFF_HEADER.match(text)
    if header is None:
        raise InputError(f"{path}: no OFF header with the numbers of vertices and faces")
    n_vertices, n_faces = int(header[1]), int(header[2])
    check_count(path, n_vertices, "vertices")
    check_count(path, n_faces, "faces")
    if text.count("\n", header.end()) < n_vertices + n_faces - 1:
        raise InputError(f"{path}: truncated: fewer lines than {n_vertices} vertices and {n_faces} faces")
    return _mesh(path, _trimesh(path, raw, "off"))


def _obj(path: Path, raw: bytes) -> Mesh:
    _decode(path, raw)
    check_count(path, raw.count(b"\n"), "lines")
    return _mesh(path, _trimesh(path, raw, "obj"))


def _ply(path: Path, raw: bytes) -> np.ndarray | Mesh:
    end = raw.find(b"end_header")
    if not raw.startswith(b"ply") or end < 0:
        raise InputError(f"{path}: no PLY header, or a truncated one")
    sizes = {name.decode(): int(n) for name, n in re.findall(rb"element\s+(\w+)\s+(\d+)", raw[:end])}
    for name, n in sizes.items():
        check_count(path, n, f"elements '{name}'")
    if not sizes.get("vertex"):
        raise InputError(f"{path}: no vertices")
    points = plain_points(raw)
    loaded = _trimesh(path, raw, "ply") if points is None else None
    if points is None:
        points = np.asarray(getattr(loaded, "vertices", ()), np.float64)
    if len(points) != sizes["vertex"]:
        raise InputError(f"{path}: truncated: {len(points)} vertices, the header promises {sizes['vertex']}")
    if not sizes.get("face"):
        return points
    mesh = _mesh(path, loaded)
    if len(mesh.faces) < sizes["face"]:  # polygons become several triangles, so more is right
        raise InputError(f"{path}: truncated: {len(mesh.faces)} faces, the header promises {sizes['face']}")
    return mesh


def _trimesh(path: Path, raw: bytes, kind: str) -> Any:
    import trimesh

    options: dict[str, Any] = {"skip_materials": True} if kind == "obj" else {}
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return trimesh.load(io.BytesIO(raw), file_type=kind, process=False, **options)
    except Exception as error:  # a parser of foreign files may raise anything; none of it is the user's business
        raise InputError(f"{path}: not a readable {kind} file: {reason(error)}") from error


def _mesh(path: Path, loaded: Any) -> Mesh:
    """One mesh of whatever trimesh returned; several parts are joined."""
    if hasattr(loaded, "geometry"):
        if not loaded.geometry:
            raise InputError(f"{path}: no vertices")
        loaded = loaded.to_mesh()
    vertices, faces = np.asarray(getattr(loaded, "vertices", ())), np.asarray(getattr(loaded, "faces", ()))
    if len(vertices) == 0:
        raise InputError(f"{path}: no vertices")
    if len(faces) == 0:
        raise InputError(f"{path}: the mesh has no faces; store a cloud without faces as ply, xyz, npy or pcd")
    if vertices.shape[1:] != (3,) or faces.shape[1:] != (3,):
        raise InputError(f"{path}: {vertices.shape} vertices and {faces.shape} faces, expected 3 columns each")
    if faces.min() < 0 or faces.max() >= len(vertices):
        raise InputError(f"{path}: a face names a vertex that does not exist")
    return Mesh(vertices.astype(np.float64), faces.astype(np.int64))


def _sample(path: Path, mesh: Mesh, n_points: int, seed: int) -> np.ndarray:
    """n_points spread evenly over the area, from a seed that depends on the mesh and `seed` alone."""
    import trimesh

    solid = trimesh.Trimesh(mesh.vertices, mesh.faces, process=False)
    if not 0 < solid.area_faces.sum() < np.inf:
        raise InputError(f"{path}: the mesh has no area")
    start = seed_of(mesh.vertices, mesh.faces, seed)
    return np.asarray(trimesh.sample.sample_surface(solid, n_points, seed=start)[0])


def _pcd(path: Path, raw: bytes) -> np.ndarray:
    header = re.search(rb"^POINTS\s+(\d+)\s*$", raw[:4096], re.MULTILINE)
    if header is None:
        raise InputError(f"{path}: no PCD header with the number of points")
    n = int(header[1])
    check_count(path, n)
    if n == 0:
        raise InputError(f"{path}: no points")
    table = np.atleast_1d(_pypcd(path, raw).pc_data)  # one record a point
    fields = table.dtype.names or ()
    if missing := [axis for axis in "xyz" if axis not in fields]:
        raise InputError(f"{path}: no field {', '.join(missing)}; found {', '.join(fields)}")
    points = np.stack([table[axis].astype(np.float64) for axis in "xyz"], axis=-1)
    if points.shape != (n, 3):
        raise InputError(f"{path}: truncated: {len(points)} points, the header promises {n}")
    return points


def _pypcd(path: Path, raw: bytes) -> Any:
    demand("pypcd4", f"{path}: a pcd file")
    from pypcd4 import PointCloud

    try:
        return PointCloud.from_fileobj(io.BytesIO(raw))  # type: ignore[arg-type]
    except Exception as error:  # as for trimesh
        raise InputError(f"{path}: not a readable pcd file: {reason(error)}") from error


def _las(path: Path, raw: bytes) -> Stored:
    """x, y, z of a LAS or LAZ file; which of the two, its header says."""
    demand("laspy", f"{path}: a las file")
    import laspy

    try:
        with laspy.open(io.BytesIO(raw), closefd=False) as reader:
            header = reader.header
            check_count(path, header.point_count)
            if header.are_points_compressed:
                demand("lazrs", f"{path}: a laz file")
            found = reader.read()
            whole = np.stack([np.asarray(axis, np.int64) for axis in (found.X, found.Y, found.Z)], axis=-1)
    except AspError:
        raise
    except Exception as error:  # as for trimesh
        raise InputError(f"{path}: not a readable las file: {reason(error)}") from error
    if len(whole) != header.point_count:
        raise InputError(f"{path}: truncated: {len(whole)} points, the header promises {header.point_count}")
    if not len(whole):
        raise InputError(f"{path}: no points")
    least, scale = whole.min(axis=0), np.asarray(header.scales, np.float64)
    return Stored((whole - least) * scale, corner=least * scale + np.asarray(header.offsets, np.float64))


def _e57(path: Path, raw: bytes) -> Stored:
    """All scans of an E57 file in the file's frame; points that are marked invalid are left out."""
    demand("pye57", f"{path}: an e57 file")
    import pye57

    try:
        with tempfile.NamedTemporaryFile(suffix=".e57") as file:  # the library reads from a place, not from bytes
            file.write(raw)
            file.flush()
            with pye57.E57(file.name) as scans:
                n_scans = scans.scan_count
                counts = [scans.get_header(i).point_count for i in range(n_scans)]
                check_count(path, sum(counts))
                parts = [_scan(scans.read_scan(i, ignore_missing_fields=True)) for i in range(n_scans)]
    except AspError:
        raise
    except Exception as error:  # as for trimesh
        raise InputError(f"{path}: not a readable e57 file: {reason(error)}") from error
    points = np.concatenate(parts) if parts else np.empty((0, 3))
    if not len(points):
        raise InputError(f"{path}: no points")
    invalid = sum(counts) - len(points)
    notes = [f"{n_scans} scans were joined."] if n_scans > 1 else []
    notes += [f"Left out: {invalid} of the points, which the file marks as invalid."] if invalid else []
    return Stored(points, tuple(notes))


def _scan(found: dict[str, np.ndarray]) -> np.ndarray:
    return np.stack([np.asarray(found[f"cartesian{axis}"], np.float64) for axis in "XYZ"], axis=-1)


READERS: dict[str, Callable[[Path, bytes], np.ndarray | Stored | Mesh]] = {
    ".ply": _ply,
    ".off": _off,
    ".obj": _obj,
    ".xyz": _text,
    ".txt": _text,
    ".npy": _npy,
    ".npz": _npz,
    ".pcd": _pcd,
    ".las": _las,
    ".laz": _las,
    ".e57": _e57,
}
