"""Clouds as a sensor would give them (paper J.5, J.8, and the field), changed before they are cut into chunks.

    partial     the half of the points that faces a viewpoint: what lies behind is not seen
    strewn      a share of the points lies anywhere in the unit ball
    noise       Gaussian noise on every coordinate, in units of the cloud's radius, clipped at five deviations
    turned      about the up axis by any angle
    rotated     by any rotation at all (uniform on SO(3))
    thin        the first of a farthest-point sample from a random start: fewer points, evenly spread
    dropped     a share of the points is gone, at random: holes and clumps
    uneven      the same surface sampled anew, denser on one side: points between a point and a neighbour of it

Each is a pure function of one cloud [P, 3], centred and of radius 1, and of what is drawn for it. `changed` draws, by
seed, draw and the cloud's place, and applies one of them to whole sets. A changed cloud is normalised and cut like any
other, so groups, chunks and descriptors are those of what is left (Prop. S15). Points that are gone stay gone: the cut
takes any number of points from `Chunking.n_distinct` on and sees through repeated ones, so filling up would change
nothing; the deployed system treats a small cloud the same way.

`study robustness`, training (`learn`) and `certify --cover` share these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from asp_neuro.errors import UsageError, nearest
from asp_neuro.scenes.augment import turn_about_up
from asp_neuro.scenes.cloud import farthest_points, normalise

CLIP = 5.0  # standard deviations of noise
N_NEAR = 4  # neighbours that `uneven` moves towards


@dataclass(frozen=True)
class Condition:
    """What happens to a cloud; `amount` is a share, a number of points kept, a standard deviation or a ratio."""

    name: str  # for people
    kind: str  # "none", or one of `KINDS`
    amount: float = 0.0


CLEAN = Condition("clean", "none")


def partial(points: np.ndarray, direction: np.ndarray, share: float = 0.5) -> np.ndarray:
    """The share of the points that lies farthest along `direction`, in their own order; ties to the later ones."""
    gone = round((1.0 - share) * len(points))
    return points[np.sort(np.argsort(points @ direction, kind="stable")[gone:])]


def strewn(points: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """A share of the points, at least one, moved to places that are uniform in the unit ball."""
    count = max(1, round(share * len(points)))
    out = points.astype(np.float64)
    out[rng.permutation(len(points))[:count]] = in_ball(count, rng)
    return out


def in_ball(count: int, rng: np.random.Generator) -> np.ndarray:
    """[count, 3] uniform in the unit ball."""
    aim = rng.standard_normal((count, 3))
    return np.asarray(aim / np.linalg.norm(aim, axis=1, keepdims=True) * rng.random((count, 1)) ** (1.0 / 3.0))


def noise(points: np.ndarray, deviation: float, rng: np.random.Generator) -> np.ndarray:
    """Every coordinate by itself."""
    return np.asarray(points + deviation * np.clip(rng.standard_normal(points.shape), -CLIP, CLIP))


def turned(points: np.ndarray, angle: float) -> np.ndarray:
    """About the up axis, in radians."""
    return turn_about_up(points[None], np.array([angle]))[0]


def rotated(points: np.ndarray, quaternion: np.ndarray) -> np.ndarray:
    """By a quaternion of any length."""
    from scipy.spatial.transform import Rotation  # here: most commands need no scipy

    return np.asarray(points @ Rotation.from_quat(quaternion).as_matrix().T)


def thin(points: np.ndarray, count: int, start: int) -> np.ndarray:
    """`count` points (all, if there are fewer), each the farthest from those before it, from the point `start`."""
    return points[farthest_points(points[None], min(count, len(points)), np.array([start]))[0]]


def dropped(points: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Without a share of the points, the others in their own order."""
    kept = len(points) - round(share * len(points))
    return points[np.sort(rng.permutation(len(points))[:kept])]


def uneven(points: np.ndarray, direction: np.ndarray, ratio: float, rng: np.random.Generator) -> np.ndarray:
    """As many points drawn anew, `ratio` times as densely at the end that lies along `direction` as at the other.

    Each lies at random between a point and the middle of it and one of its nearest neighbours: on the surface as far
    as the points tell where that is.
    """
    from scipy.spatial import cKDTree

    along = points @ direction
    reach = along.max() - along.min()
    weight = ratio ** ((along - along.min()) / reach if reach > 0.0 else np.zeros(len(points)))
    first = rng.choice(len(points), size=len(points), p=weight / weight.sum())
    near = cKDTree(points).query(points[first], k=min(N_NEAR + 1, len(points)))[1]
    other = near[np.arange(len(points)), rng.integers(1, near.shape[1], size=len(points))]
    way = rng.uniform(0.0, 0.5, size=(len(points), 1))
    return np.asarray(points[first] + way * (points[other] - points[first]))


def sideways(rng: np.random.Generator) -> np.ndarray:
    """A horizontal direction (y is up), any as likely."""
    angle = rng.uniform(-np.pi, np.pi)
    return np.array([np.cos(angle), 0.0, np.sin(angle)])


KINDS: dict[str, Callable[[np.ndarray, float, np.random.Generator], np.ndarray]] = {
    "partial": lambda points, amount, rng: partial(points, sideways(rng), amount),
    "strewn": lambda points, amount, rng: strewn(points, amount, rng),
    "noise": lambda points, amount, rng: noise(points, amount, rng),
    "turned": lambda points, amount, rng: turned(points, rng.uniform(-np.pi, np.pi)),
    "rotated": lambda points, amount, rng: rotated(points, rng.standard_normal(4)),  # its direction is uniform
    "thin": lambda points, amount, rng: thin(points, int(amount), int(rng.integers(len(points)))),
    "dropped": lambda points, amount, rng: dropped(points, amount, rng),
    "uneven": lambda points, amount, rng: uneven(points, sideways(rng), amount, rng),
}


def change(points: np.ndarray, what: Condition, rng: np.random.Generator) -> np.ndarray:
    """One cloud [P, 3], centred and of radius 1 -> changed [Q, 3]."""
    if what.kind not in KINDS:
        raise UsageError(f"no condition is of kind '{what.kind}'; there are: {', '.join(KINDS)}")
    return KINDS[what.kind](points, what.amount, rng)


def changed(points: np.ndarray, what: Condition, seed: int, draw: int = 0) -> np.ndarray:
    """Clouds [n, P, 3] -> changed [n, Q, 3] float32; each follows from itself, its place, seed and draw alone.

    A point that is there twice counts once; where clouds have different numbers of points, the shorter repeat theirs.
    """
    if what.kind == CLEAN.kind:
        return points
    sources = (np.random.default_rng([seed, draw, place]) for place in range(len(points)))
    found = [change(cloud[:n], what, rng).astype(np.float32) for cloud, n, rng in zip(*normalise(points), sources)]
    most = max(len(cloud) for cloud in found)
    return np.stack([cloud[np.arange(most) % len(cloud)] for cloud in found])


AMOUNTS: dict[str, Callable[[int], float]] = {  # unless another is given, by the number of points
    "partial": lambda n_points: 0.5,
    "strewn": lambda n_points: 0.05,
    "noise": lambda n_points: 0.02,
    "thin": lambda n_points: n_points // 2,
    "dropped": lambda n_points: 0.5,
    "uneven": lambda n_points: 4.0,
}
WORDS: dict[str, Callable[[float], str]] = {
    "partial": lambda amount: f"partial view ({100 * amount:g} % of the points)",
    "strewn": lambda amount: f"{100 * amount:g} % strewn points",
    "noise": lambda amount: f"noise {amount:g}",
    "turned": lambda amount: "turned about up",
    "rotated": lambda amount: "turned in SO(3)",
    "thin": lambda amount: f"{amount:g} points",
    "dropped": lambda amount: f"{100 * amount:g} % dropped",
    "uneven": lambda amount: f"uneven sampling ({amount:g} to 1)",
}


def named(text: str, n_points: int) -> Condition:
    """A condition by what a user types: a kind, or a kind and an amount ("strewn:0.01"), for clouds of n_points."""
    kind, _, amount = text.strip().partition(":")
    if kind not in KINDS:
        raise UsageError(f"there is no condition '{kind}'{nearest(kind, KINDS)}; known: {', '.join(KINDS)}")
    if amount and kind not in AMOUNTS:
        raise UsageError(f"the condition '{kind}' takes no amount, here '{amount}'")
    try:
        value = float(amount) if amount else AMOUNTS[kind](n_points) if kind in AMOUNTS else 0.0
    except ValueError:
        raise UsageError(f"the amount '{amount}' of '{kind}' is not a number") from None
    low, high = LIMITS.get(kind, (0.0, 1.0)) if kind != "thin" else (1, n_points)
    if kind in AMOUNTS and not low <= value <= high:
        raise UsageError(f"the amount {value:g} of '{kind}' is outside {low:g} .. {high:g}")
    return Condition(WORDS[kind](value), kind, value)


LIMITS = {"partial": (0.05, 1.0), "noise": (0.0, 1.0), "uneven": (1.0, 1000.0), "dropped": (0.0, 0.95)}  # else 0 .. 1


def conditions(n_points: int) -> tuple[Condition, ...]:
    """The cells of the study, the clean one first; a half and a quarter of the points are 512 and 256 of 1,024."""
    half, quarter = n_points // 2, n_points // 4
    return (
        CLEAN,
        Condition("partial view", "partial", 0.5),
        Condition("1 % strewn", "strewn", 0.01),
        Condition("5 % strewn", "strewn", 0.05),
        Condition("uneven", "uneven", 4.0),
        Condition("25 % dropped", "dropped", 0.25),
        Condition("50 % dropped", "dropped", 0.50),
        Condition(f"{half} points", "thin", half),
        Condition(f"{quarter} points", "thin", quarter),
        Condition("turned about up", "turned"),
        Condition("turned in SO(3)", "rotated"),
        Condition("jitter 0.01", "noise", 0.01),
        Condition("jitter 0.02", "noise", 0.02),
    )
