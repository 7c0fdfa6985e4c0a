"""Intake: the one way in which a raw cloud becomes the points that a model is cut for.

    what is given -> rows of x y z -> valid ones -> y up -> cleaned -> thinned -> float32

`model(points)`, `read_cloud`, `run --input` and the readers of data sets all end in `take`, so the same points give the
same answer whatever way they came. Nothing here depends on the order of the points. A cloud that has just as many as
the model is cut for stays as it is; of more, a fixed draw is kept; of fewer, all are repeated, which adds nothing.

Why a draw: a random part of a larger sample has the law of a smaller sample of the same object, so clouds of 50,000
points look to the model as those that it was trained and certified on. A model whose own clouds are evenly spaced
(`scene.even`) gets an even sample instead, once strays are gone: farthest points would keep every one of them
(docs/data.md has the numbers). A cloud that is not thinned keeps its strays here; the cut leaves them out.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from asp_neuro.data.axes import check_up, to_y_up
from asp_neuro.errors import InputError
from asp_neuro.scenes.cloud import GRID, Chunking, Chunks, farthest_points
from asp_neuro.scenes.strays import lattice, strays

LARGEST = 1e18  # of a coordinate: its square is still a 32-bit float
FAR = 2.0  # times its size: a cloud farther from the origin would lose digits as float32, and is moved first
NO_RETURN = 3  # points at exactly 0 0 0 from which on they are taken for what sensors write where nothing came back
COARSE = 256  # steps of a lattice in the extent of a cloud, below which digits were lost
COINCIDE = 64
AXES = ("x", "y", "z")
BATCH = " of a batch of shape"
CUT_FOR = "that the model is cut for."
LEAVE_OUT = "leave such points out with drop_invalid=True (--drop-invalid)"


SPARE = 4  # an even sample is taken of a draw of so many times the points that are wanted


@dataclass(frozen=True)
class Sampling:
    """Which points of a raw cloud a model is given."""

    n_points: int = 1024
    least: int = 2  # of them must be distinct
    strays: float | None = None  # as `Chunking.strays`
    even: bool = False  # as `Chunking.even`


def sampling_of(how: Chunking) -> Sampling:
    """What the scenes of a model ask of a cloud."""
    return Sampling(how.n_points, how.n_distinct, how.strays, how.even)


@dataclass(frozen=True)
class Intake:
    """One cloud, taken in."""

    points: np.ndarray  # [n_points, 3] float32, y up
    dropped: int = 0  # points that were NaN or inf, or zeros for no return
    removed: int = 0  # points that cleaning took for strays
    notes: tuple[str, ...] = ()  # sentences: what was not taken as it came
    every: np.ndarray | None = None  # [P, 3] float64, if asked for: every row that was given, where `points` lie
    given: np.ndarray | None = None  # [P, 3] float64, likewise: as they came


def take(
    given: Any, how: Sampling, *, up: str = "y", drop_invalid: bool = False, seed: int = 0, where: str = "the cloud",
    every: bool = False,
) -> Intake:  # fmt: skip
    """One cloud -> n_points points, y up.

    given         [P, 3], with further columns, [h, w, 3] (with drop_invalid), or a structured array with x, y, z
    drop_invalid  leave out points that are NaN or inf, which is how a sensor says that nothing came back
    seed          of the draw, where there are more points than n_points
    where         what an error calls the cloud
    every         keep all rows too, in the same frame (NaN where they were)
    """
    check_up(up)
    rows, notes = _rows(given, where, drop_invalid)
    valid = _valid(rows, where, drop_invalid)
    there = _returned(valid)
    kept = clean(to_y_up(there, up), how)
    thinned = thin(kept, how, seed)
    cloud = rounded(thinned)
    _check_distinct(cloud, how.least, where)
    dropped, zeros, removed = len(rows) - len(valid), len(valid) - len(there), len(there) - len(kept)
    notes += [*_told(dropped, zeros, removed, len(kept), how.n_points), *_lattice(thinned)]
    taken = Intake(cloud, dropped + zeros, removed, tuple(notes))
    if not every:
        return taken
    as_they_came = rows.astype(np.float64)
    return replace(taken, every=to_y_up(as_they_came, up) - _middle(thinned), given=as_they_came)


def take_all(
    given: Any, how: Chunking, *, up: str = "y", drop_invalid: bool = False, every: bool = False
) -> tuple[list[Intake], bool]:
    """What a user passes to a model: one cloud or several (a list, or [n, P, 3]); and whether it was one."""
    clouds, where = several(given, drop_invalid)
    if clouds is None:
        return [take(given, sampling_of(how), up=up, drop_invalid=drop_invalid, every=every)], True
    taken = [
        take(cloud, sampling_of(how), up=up, drop_invalid=drop_invalid, where=f"cloud {i}{where}", every=every)
        for i, cloud in enumerate(clouds)
    ]
    return taken, False


def several(given: Any, drop_invalid: bool) -> tuple[list[Any] | None, str]:
    """The clouds of a list or a batch [n, P, 3], and words for errors; None: it is one cloud.

    Three axes are a batch, or with drop_invalid one organised cloud [h, w, 3].
    """
    if isinstance(given, np.ndarray) and given.dtype == object and given.ndim == 1:
        given = given.tolist()
    if isinstance(given, list | tuple):
        if not given:
            raise InputError("an empty list, expected a cloud or a list of clouds")
        return (list(given), "") if _is_cloud(given[0]) else (None, "")
    if getattr(given, "ndim", 0) == 3 and not drop_invalid:
        array = np.asanyarray(given)
        if len(array) == 0:
            raise InputError(f"no clouds: the batch has shape {array.shape}")
        return list(array), f"{BATCH} {array.shape}"
    return None, ""


def _is_cloud(item: Any) -> bool:
    """Whether an item of a list is a cloud and not a point."""
    if isinstance(item, list | tuple):
        return bool(item) and hasattr(item[0], "__len__") and not isinstance(item[0], str)
    structured = getattr(getattr(item, "dtype", None), "names", None) is not None
    return getattr(item, "ndim", 0) >= (1 if structured else 2)


def _rows(given: Any, where: str, drop_invalid: bool) -> tuple[np.ndarray, list[str]]:
    """What was given as rows [P, 3] float64, and a note where there is more than x, y and z."""
    array = _array(given, where)
    passed = array.shape
    if array.dtype.names is not None:
        array = _fields(array, where)
    if array.dtype.kind not in "fiu":
        raise InputError(f"{where}: type {array.dtype}, expected numbers in the shape (points, 3)")
    _check_shape(array.shape, passed, where, drop_invalid)
    columns = array.shape[-1]
    notes = [f"{columns} columns: the first three are taken as x, y and z."] if columns > 3 else []
    return array[..., :3].reshape(-1, 3).astype(np.float64), notes


def _array(given: Any, where: str) -> np.ndarray:
    if isinstance(given, str | os.PathLike):
        raise InputError(f"{where}: '{given}' is no array; a file is read with asp_neuro.data.read_cloud")
    try:
        if isinstance(given, np.ma.MaskedArray):
            return np.asarray(np.ma.filled(given.astype(np.float64), np.nan))
        return np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:  # torch raises the last, for a tensor with a gradient
        raise InputError(f"{where}: no array of numbers ({str(error)[:80]}); expected (points, 3)") from None


def _fields(array: np.ndarray, where: str) -> np.ndarray:
    """A structured array, as PCL and ROS hand it over -> [..., 3]."""
    names = array.dtype.names or ()
    if missing := [axis for axis in AXES if axis not in names]:
        raise InputError(f"{where}: no field {', '.join(missing)}; found {', '.join(names)}")
    for axis in AXES:
        if array[axis].dtype.kind not in "fiu" or array[axis].ndim != array.ndim:
            raise InputError(f"{where}: field {axis} has type {array.dtype[axis]}, expected one number")
    return np.stack([array[axis].astype(np.float64) for axis in AXES], axis=-1)


def _check_shape(shape: tuple[int, ...], passed: tuple[int, ...], where: str, drop_invalid: bool) -> None:
    """Rows of x y z, or rows of them; `passed` is the shape that a user knows: records have no axis for x, y and z."""
    if 0 in shape:
        raise InputError(f"{where}: no points: shape {passed}")
    if len(shape) == 3 and shape[2] >= 3 and not drop_invalid:
        raise InputError(
            f"{where}: shape {passed} is an organised cloud; take it with drop_invalid=True (--drop-invalid), "
            "which leaves out the pixels without a return"
        )
    if len(shape) not in (2, 3):
        raise InputError(f"{where}: shape {passed}, expected (points, 3)")
    if len(shape) == 2 and shape[0] == 3 and shape[1] > 6:
        raise InputError(f"{where}: shape {shape}, expected (points, 3): transpose it")
    if shape[-1] < 3:
        raise InputError(f"{where}: {shape[-1]} columns, expected 3 (x y z); the shape is {shape}")


def _valid(points: np.ndarray, where: str, drop_invalid: bool) -> np.ndarray:
    if drop_invalid:
        finite = np.isfinite(points).all(axis=1)
        points = points[finite]
        if not len(points):
            raise InputError(f"{where}: no point is left: all {len(finite)} are NaN or inf")
    check_coordinates(points, where, LEAVE_OUT)
    return points


def _returned(points: np.ndarray) -> np.ndarray:
    """Without rows of zeros, where there are several: a sensor's word for no return. One alone is a point."""
    if np.count_nonzero(points[:, 0]) > len(points) - NO_RETURN:  # as nearly always: there cannot be enough of them
        return points
    there = points.any(axis=1)
    n_zeros = len(there) - int(np.count_nonzero(there))
    return points[there] if NO_RETURN <= n_zeros < len(there) else points


def _lattice(points: np.ndarray) -> list[str]:
    """A note where coordinates [P, 3] lie on a coarse lattice: float32 on a map, or too few decimals.

    Far from the origin one axis is enough. Near it, where somebody may have taken the offset off afterwards, two are
    asked for: a shape may well consist of a few parallel planes.
    """
    ordered = np.array(points.T, order="C")
    ordered.sort(axis=1)
    if (np.count_nonzero(ordered[:, 1:] != ordered[:, :-1], axis=1) > COARSE).all():
        return []  # among so many gaps is one too small for a coarse lattice, as nearly always
    low, high = ordered[:, 0], ordered[:, -1]
    far = max(-low.min(), high.max()) > FAR * (high - low).max()
    found = [known for column in ordered if (known := _step(column)) is not None]
    if len(found) < (1 if far else 2):
        return []
    step, extent = max(found)
    return [
        f"The coordinates lie on a coarse lattice, {step:.3g} in an extent of {extent:.3g}: digits were lost before "
        "they came here, as 32-bit floats lose them on maps; store them in 64 bits, or take an offset off first."
    ]


def _step(ordered: np.ndarray) -> tuple[float, float] | None:
    """The step and the extent of ascending values [P] that lie on a coarse lattice; None: they do not."""
    gaps = np.diff(ordered)
    gaps = gaps[gaps > 0.0]
    extent = float(ordered[-1] - ordered[0])
    if len(gaps) < 2 or gaps.min() * COARSE <= extent:
        return None
    step = float(gaps.min())
    steps = gaps / step
    return (step, extent) if np.abs(steps - np.rint(steps)).max() < 1e-3 else None


def check_coordinates(points: np.ndarray, where: str, advice: str = "mend them") -> None:
    """Finite and not absurdly large [P, 3]."""
    if np.abs(points).max() <= LARGEST:  # no NaN either
        return
    bad = ~np.isfinite(points).all(axis=1)
    if bad.any():
        raise InputError(
            f"{where}: point {int(bad.argmax())} is not finite (NaN or inf), {int(bad.sum())} of {len(bad)} in all; "
            f"{advice}"
        )
    raise InputError(f"{where}: a coordinate of {np.abs(points).max():.3g}, the limit is {LARGEST:g}")


def clean(points: np.ndarray, how: Sampling) -> np.ndarray:
    """Points [P, 3] without strays, if some are to be chosen: the cut cleans what is taken whole."""
    if how.strays is None or len(points) <= how.n_points:
        return points
    return points[~strays(points, how.strays)]


def thin(points: np.ndarray, how: Sampling, seed: int = 0) -> np.ndarray:
    """[P, 3] -> [n_points, 3]; whatever the order of the points, unless P == n_points already.

    More: a draw of the distinct ones, or an even sample. Fewer: all of them, again and again, in lexicographic order.
    """
    n = how.n_points
    if len(points) == n:
        return points
    points = _distinct(points)
    if len(points) <= n:
        return points[np.arange(n) % len(points)]
    if not how.even:
        return points[draw(len(points), n, seed)]
    return evened(points[draw(len(points), min(SPARE * n, len(points)), seed)], n)


def evened(points: np.ndarray, n: int) -> np.ndarray:
    """Distinct points [P, 3] in lexicographic order -> n farthest points, from the outermost."""
    steps = lattice(points)
    start = np.square(steps).sum(axis=1).argmax(keepdims=True)
    return points[farthest_points(steps[None] / GRID, n, start)[0]]


def _distinct(points: np.ndarray) -> np.ndarray:
    """In lexicographic order, each once."""
    points = points[_lexicographic(points)]
    new = np.ones(len(points), dtype=bool)
    new[1:] = (points[1:] != points[:-1]).any(axis=1)
    return points[new]


def _lexicographic(points: np.ndarray) -> np.ndarray:
    """The order of the rows by x, then y, then z; quick for large clouds, where x alone decides nearly always."""
    order = np.argsort(points[:, 0])
    x = points[order, 0]
    same = x[1:] == x[:-1]
    tied = np.append(same, False) | np.append(False, same)
    rest = order[tied]
    order[tied] = rest[np.lexsort(points[rest].T[::-1])]
    return order


def draw(n: int, k: int, seed: int = 0) -> np.ndarray:
    """k of the ranks 0..n-1, ascending: those whose scrambled number is least.

    The scrambling is that of SplitMix64, a bijection of 64-bit numbers: no ties, and the same ranks on every machine
    and under every version of numpy, whose own streams may change.
    """
    with np.errstate(over="ignore"):
        x = (np.arange(1, n + 1, dtype=np.uint64) + np.uint64((seed % 2**32) << 32)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return np.sort(np.argpartition(x, k - 1)[:k])


def rounded(points: np.ndarray) -> np.ndarray:
    """[..., P, 3] -> float32; a cloud far from the origin (map coordinates) is first moved there, in float64."""
    wide = np.asarray(points, dtype=np.float64)
    return (wide - _middle(wide)).astype(np.float32)


def _middle(points: np.ndarray) -> np.ndarray:
    """[..., P, 3] -> [..., 1, 3]: by how much a cloud is moved, 0 where it lies near the origin."""
    planes = np.ascontiguousarray(points.swapaxes(-1, -2), dtype=np.float64)  # along which minima are quick
    low, high = planes.min(axis=-1)[..., None, :], planes.max(axis=-1)[..., None, :]
    size = (high - low).max(axis=-1, keepdims=True)
    far = np.maximum(-low, high).max(axis=-1, keepdims=True) > FAR * size
    return np.where(far, (low + high) / 2, 0.0)


def _check_distinct(cloud: np.ndarray, least: int, where: str) -> None:
    some = cloud[: least + 16]  # which tell enough of most clouds, without sorting; of many x alone does
    if len(set(some[:, 0].tolist())) >= max(2, least) or len(set(map(tuple, some.tolist()))) >= max(2, least):
        return
    if len(cloud) > 1 and (cloud == cloud[0]).all():
        raise InputError(f"{where}: all points are the same: only one distinct point, there is nothing to see")
    n = len(_distinct(cloud)) if least > 2 else len(cloud)
    if n < min(least, len(cloud)):
        raise InputError(f"{where}: {n} distinct points, at least {least} are needed; {_remedy(where)}")


def _remedy(where: str) -> str:
    """What to do about too few points; three axes may have been meant as one organised cloud."""
    if BATCH in where:
        return "one organised cloud [h, w, 3] is taken with drop_invalid=True, else give denser clouds"
    return "a denser cloud will do"


def _told(dropped: int, zeros: int, removed: int, kept: int, n_points: int) -> list[str]:
    notes = []
    if dropped:
        notes.append(f"Left out: {dropped} of the points, which are NaN or inf.")
    if zeros:
        notes.append(f"Left out: {zeros} of the points, which are 0 0 0, as sensors write where nothing came back.")
    if removed:
        notes.append(left_out(removed))
    if kept > n_points:
        notes.append(f"{kept} points were thinned to the {n_points} {CUT_FOR}")
    return notes


def left_out(removed: int) -> str:
    return f"Left out: {removed} of the points, which look like strays."


def n_strays(points: np.ndarray, chunks: Chunks, factor: float | None) -> list[int]:
    """Points of each cloud [n, P, 3] that the cut has left out as strays; where none is missing, none was."""
    if factor is None:
        return [0] * len(points)
    missing = n_seen(chunks) < chunks.points.shape[1]
    return [int(strays(cloud, factor).sum()) if less else 0 for cloud, less in zip(points, missing)]


def n_seen(chunks: Chunks) -> np.ndarray:
    """[n] distinct points on the model's grid: the spare rows of a cloud repeat its first."""
    grid = chunks.points
    seen = np.full(len(grid), grid.shape[1])
    for i in (grid[:, -1] == grid[:, 0]).all(axis=1).nonzero()[0]:  # else no row is spare
        seen[i] -= (grid[i, 1:] == grid[i, 0]).all(axis=1).sum()
    return seen


def n_used(points: np.ndarray, chunks: Chunks, left_out: Sequence[int] | None = None) -> list[int]:
    """Distinct points of each cloud [n, P, 3] that the model sees once it is cut, and so many strays left out of it.

    One in COINCIDE may fall on another one on the model's grid and still counts: a file may be coarse. Where more do,
    a point far away has made the rest of the cloud small, and they are counted as they are seen.
    """
    used = n_seen(chunks)
    for i in np.flatnonzero(used < chunks.points.shape[1]):
        n = len(_distinct(points[i])) - (left_out[i] if left_out is not None else 0)
        used[i] = n if used[i] >= n - n // COINCIDE else used[i]
    return [int(n) for n in used]


def stacked(taken: Sequence[Intake]) -> np.ndarray:
    """[n, n_points, 3] float32."""
    return np.stack([intake.points for intake in taken])
