"""Statistics of clouds: by hand on clouds that a child can draw, and the same bits for a cloud however it comes."""

from __future__ import annotations

import numpy as np
import pytest

from asp_neuro.data import load_clouds
from asp_neuro.scenes.cloud import Chunking, cut
from asp_neuro.scenes.cloud_statistics import STATISTICS, statistics
from asp_neuro.scenes.conditions import Condition, changed

HOW = Chunking(n_points=128, n_groups=16, group_size=8, n_chunks=4)
POINTS = load_clouds("shapes", "validation", n_points=128).points[:24]
NAMES = [one.name for one in STATISTICS]


def told(points: np.ndarray, how: Chunking = HOW) -> dict[str, float]:
    return dict(zip(NAMES, statistics(cut(points[None], how))[0]))


def test_every_statistic_has_a_name_of_its_own_and_fits_its_record():
    found = statistics(cut(POINTS, HOW))
    assert found.shape == (24, len(NAMES))
    assert len(set(NAMES)) == len(NAMES)
    assert np.isfinite(found).all()
    assert np.abs(found).max() < 4.0


def test_the_corners_of_a_box_by_hand():
    corners = np.stack(np.meshgrid([-2.0, 2.0], [-1.0, 1.0], [-2.0, 2.0]), axis=-1).reshape(-1, 3)
    found = told(corners, Chunking(n_points=8, n_groups=4, group_size=2, n_chunks=2))
    third = 1.0 / 3.0  # the radius is 3
    assert found["y lowest"] == pytest.approx(-third, abs=1e-4)
    assert found["x highest"] == pytest.approx(2 * third, abs=1e-4)
    assert found["radius middle"] == pytest.approx(1.0, abs=1e-4)
    assert found["axis middle"] == pytest.approx(8**0.5 * third, abs=1e-4)
    assert (found["moment xx"], found["moment yy"]) == pytest.approx((4 / 9, 1 / 9), abs=1e-4)
    assert (found["moment xy"], found["tilt"]) == pytest.approx((0.0, 0.0), abs=1e-4)
    assert found["breadth"] == pytest.approx(2 * third, abs=1e-4)
    assert [found[f"storey {i} share"] for i in range(1, 7)] == [0.5, 0.0, 0.0, 0.0, 0.0, 0.5]
    assert found["storey 6 width"] == pytest.approx(8**0.5 * third, abs=1e-4)
    assert (found["empty directions"], found["fullest direction"]) == (pytest.approx(16 / 24), 1 / 8)
    assert found["reach middle"] == pytest.approx(2 * third, abs=1e-4)  # up or down is the nearest
    assert found["edge middle"] == pytest.approx(0.5, abs=1e-4)  # of two points the middle lies between


def test_what_lies_in_a_plane_fills_nothing():
    plane = np.random.default_rng(0).uniform(-1.0, 1.0, size=(128, 3)) * [1.0, 0.0, 1.0]
    ball = changed(plane[None], Condition("all strewn", "strewn", 1.0), 0)[0]
    assert told(plane)["filling"] == 0.0
    assert told(ball)["filling"] > 0.9
    assert told(plane)["empty directions"] > told(ball)["empty directions"]


def test_a_tilted_plane_leans_and_loses_its_layer():
    plane = np.random.default_rng(0).uniform(-1.0, 1.0, size=(128, 3)) * [1.0, 0.0, 1.0]
    tilted = plane @ np.array([[1.0, 1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 2**0.5]]) / 2**0.5  # by 45 degrees
    level, wall, leaning = told(plane), told(plane[:, [0, 2, 1]]), told(tilted)
    assert level["lean 90 %"] == 0.0
    assert wall["lean middle"] < leaning["lean middle"]  # a wall leans only where its groups are long and slanting
    assert leaning["lean middle"] == pytest.approx(0.25, abs=0.1)  # half of the spread goes up, half across
    assert level["fullest thin layer"] == level["lowest thin layer"] == level["highest thin layer"] == 1.0
    assert leaning["fullest thin layer"] < 0.2
    assert leaning["fullest thin layer"] <= leaning["fullest thicker layer"]
    assert wall["fullest z layer"] == 1.0


def test_a_turn_about_up_changes_what_knows_the_front_and_nothing_else():
    turned = changed(POINTS, Condition("turned", "turned"), 0)
    before, after = statistics(cut(POINTS, HOW)), statistics(cut(turned, HOW))
    for name in ("y middle", "radius middle", "axis 90 %", "breadth", "length 90 %", "filling", "storey 2 share"):
        at = NAMES.index(name)
        np.testing.assert_allclose(after[:, at], before[:, at], atol=0.01, err_msg=name)
    at = NAMES.index("x highest")
    assert np.abs(after[:, at] - before[:, at]).max() > 0.05


def test_the_same_bits_in_any_batch_order_and_with_repeated_points():
    chunks = cut(POINTS, HOW)
    whole = statistics(chunks)
    assert (np.concatenate([statistics(chunks[i : i + 1]) for i in range(24)]) == whole).all()
    assert (statistics(chunks[np.arange(24)[::-1]])[::-1] == whole).all()
    order = np.random.default_rng(1).permutation(128)
    assert (statistics(cut(POINTS[:, order], HOW)) == whole).all()
    twice = cut(np.concatenate([POINTS[:, 40:], POINTS[:, 40:]], axis=1), HOW)
    assert (statistics(twice) == statistics(cut(POINTS[:, 40:], HOW))).all()
    mixed = statistics(cut(np.concatenate([POINTS[:1, :], np.repeat(POINTS[1:2, :64], 2, axis=1)]), HOW))
    assert (mixed[0] == whole[0]).all()  # beside a cloud with fewer distinct points
