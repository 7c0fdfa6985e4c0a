"""A cloud turned to the principal axes of its plan: the same from every azimuth, and exact."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial import cKDTree

from asp_neuro.scenes.augment import turn_about_up
from asp_neuro.scenes.cloud import Chunking, azimuth, cut, to_grid

SMALL = Chunking(n_points=512, n_groups=32, group_size=16, n_chunks=8)


def wedge(n: int, seed: int = 0) -> np.ndarray:
    """Long in x, heavier towards x = 0: its tail points ahead."""
    rng = np.random.default_rng(seed)
    x = rng.random(n) ** 3
    return np.stack([3.0 * x, rng.random(n), (rng.random(n) - 0.5) * (1.0 - x)], axis=1)


def on_axes(cloud: np.ndarray) -> np.ndarray:
    return to_grid(cloud[None], axes=True)[0][0].astype(np.float64)


def test_four_points_by_hand() -> None:
    along_x = np.array([[-2, 0, 0], [2, 0, 0], [0, 0, 1], [0, 0, -1]])
    assert azimuth(along_x) == (1.0, 0.0)
    along_z = along_x[:, [2, 1, 0]]
    assert azimuth(along_z) == (0.0, 1.0)
    heavy_behind = np.array(
        [[-3, 0, 0], [1, 0, 0], [1, 0, 0], [1, 0, 0]]
    )  # the tail points back: turned by half a turn
    assert azimuth(heavy_behind) == (-1.0, -0.0)
    diagonal = np.array([[5, 0, 5], [-5, 0, -5]])
    assert azimuth(diagonal) == pytest.approx((0.5**0.5, 0.5**0.5), abs=1e-15)


def test_a_plan_without_a_longer_axis_stays() -> None:
    assert azimuth(np.array([[1, 0, 0], [-1, 0, 0], [0, 5, 1], [0, 0, -1]])) == (1.0, 0.0)
    assert azimuth(np.array([[0, 1, 0], [0, 2, 0]])) == (1.0, 0.0)


@pytest.mark.parametrize("angle", [0.3, 1.2, 2.0, 3.0, -2.5, -0.7])
def test_from_every_azimuth_the_same_cloud_up_to_rounding(angle: float) -> None:
    cloud = wedge(400)
    turned = turn_about_up(cloud[None], np.array([angle]))[0]
    one, two = on_axes(cloud), on_axes(turned)
    assert cKDTree(one).query(two)[0].max() < 4.0  # steps of 2^-14
    assert cKDTree(to_grid(cloud[None])[0][0]).query(to_grid(turned[None])[0][0])[0].max() > 500.0


def test_the_longer_axis_lies_along_x_and_its_tail_ahead() -> None:
    x, _, z = on_axes(turn_about_up(wedge(400)[None], np.array([1.9]))[0]).T
    x, z = x - x.mean(), z - z.mean()
    assert abs((x * z).mean()) < 1e-4 * (x * x).mean()
    assert (x * x).mean() > (z * z).mean()
    assert (x**3).mean() > 0.0


def test_up_stays_and_nothing_leaves_the_unit_sphere() -> None:
    cloud = wedge(400)
    plain, turned = to_grid(cloud[None])[0][0], on_axes(cloud)
    assert np.array_equal(np.sort(plain[:, 1]), np.sort(turned[:, 1]))
    assert np.linalg.norm(turned, axis=1).max() <= 2.0**14 + 1.0


def test_neither_the_order_of_the_points_nor_the_batch_matters() -> None:
    rng, how = np.random.default_rng(1), Chunking(**{**vars(SMALL), "axes": True})
    clouds = np.stack([wedge(512, seed).astype(np.float32) for seed in range(4)])
    whole = cut(clouds, how)
    for i, cloud in enumerate(clouds):
        alone = cut(rng.permutation(cloud)[None], how)
        assert np.array_equal(alone.points[0], whole.points[i])
        assert np.array_equal(alone.members[0], whole.members[i])


def test_without_the_setting_nothing_is_turned() -> None:
    cloud = wedge(512).astype(np.float32)[None]
    assert np.array_equal(cut(cloud, SMALL).points, to_grid(cloud)[0])
