"""Corrupted clouds: exactly what the name says, seeded cloud by cloud, cut like any other cloud."""

from __future__ import annotations

import numpy as np
import pytest

from asp_neuro.data import load_clouds
from asp_neuro.scenes.cloud import Chunking, cut, describe, normalise
from asp_neuro.studies.corruption import Corruption, corrupt, corruptions

POINTS = load_clouds("shapes", "validation", n_points=128).points[:12]
CLEAN, DROPPED, DROPPED_MORE, HALF, QUARTER, TURNED, ROTATED, JITTER, JITTER_MORE = corruptions(128)
CHANGES = (DROPPED, DROPPED_MORE, HALF, QUARTER, TURNED, ROTATED, JITTER, JITTER_MORE)


def rows(cloud: np.ndarray) -> set[tuple[float, ...]]:
    return {tuple(point) for point in cloud.astype(np.float32).tolist()}


def distances(cloud: np.ndarray) -> np.ndarray:
    return np.linalg.norm(cloud[:, None] - cloud[None], axis=2)


def test_the_cells_are_those_of_the_paper():
    names = [what.name for what in corruptions(1024)]
    assert {"clean", "25 % dropped", "50 % dropped", "512 points", "256 points"} <= set(names)
    assert names[0] == "clean"
    assert len(set(names)) == 9


def test_a_clean_cloud_is_left_alone():
    assert corrupt(POINTS, CLEAN, 0) is POINTS


@pytest.mark.parametrize(("what", "kept"), [(DROPPED, 96), (DROPPED_MORE, 64), (HALF, 64), (QUARTER, 32)])
def test_what_is_left_are_points_of_the_cloud_and_the_right_number_of_them(what, kept):
    left = corrupt(POINTS, what, 0)
    assert left.shape == (12, kept, 3)
    for whole, part in zip(normalise(POINTS)[0], left):
        assert len(rows(part)) == kept
        assert rows(part) <= rows(whole)


def test_thinned_clouds_are_spread_more_evenly_than_dropped_ones():
    def gap(clouds: np.ndarray) -> float:
        return float(np.mean([(distances(c) + 9.0 * np.eye(len(c))).min(axis=1).mean() for c in clouds]))

    assert gap(corrupt(POINTS, HALF, 0)) > 1.2 * gap(corrupt(POINTS, DROPPED_MORE, 0))


def test_turning_about_up_keeps_heights_and_distances():
    before, after = normalise(POINTS)[0], corrupt(POINTS, TURNED, 0)
    np.testing.assert_allclose(after[..., 1], before[..., 1], atol=1e-6)
    np.testing.assert_allclose(distances(after[0]), distances(before[0]), atol=1e-5)
    assert np.abs(after - before).max() > 0.1


def test_a_rotation_is_proper_and_any_direction_is_as_likely():
    axes = np.broadcast_to(np.vstack([np.eye(3), -np.eye(3)]), (4000, 6, 3))  # centred, of radius 1: normalised already
    before, turned = normalise(axes)[0], corrupt(axes, ROTATED, 0).astype(np.float64)
    np.testing.assert_allclose(np.linalg.norm(turned, axis=2), 1.0, atol=1e-6)
    np.testing.assert_allclose(np.linalg.det(turned[:, :3]), np.linalg.det(before[:, :3]), atol=1e-6)  # no mirror
    assert np.abs(turned[:, 0].mean(axis=0)).max() < 0.04  # a mean of 4000, deviation 0.009
    np.testing.assert_allclose((turned[:, 0] ** 2).mean(axis=0), 1 / 3, atol=0.02)


def test_jitter_has_the_promised_deviation_and_is_clipped():
    many = np.repeat(POINTS, 40, axis=0)
    noise = corrupt(many, JITTER_MORE, 0) - normalise(many)[0]
    assert noise.std() == pytest.approx(0.02, rel=0.01)
    assert np.abs(noise.mean()) < 2e-4
    wild = corrupt(many, Corruption("wild", "jittered", 10.0), 0) - normalise(many)[0]
    assert np.abs(wild).max() < 50.01


@pytest.mark.parametrize("what", CHANGES, ids=lambda what: what.name)
def test_a_cloud_follows_from_its_place_seed_and_draw_alone(what):
    whole = corrupt(POINTS, what, 3, draw=1)
    assert (corrupt(POINTS[:5], what, 3, draw=1) == whole[:5]).all()
    assert (corrupt(POINTS, what, 4, draw=1) != whole).any()
    assert (corrupt(POINTS, what, 3, draw=2) != whole).any()


def test_filling_a_thinned_cloud_up_with_repeats_would_change_nothing():
    how = Chunking(n_points=128, n_groups=16, group_size=8, n_chunks=4)
    thin = corrupt(POINTS, QUARTER, 0)
    full = np.concatenate([thin, thin, thin[:, ::-1], thin], axis=1)
    one, two = cut(thin, how), cut(full, how)
    for name in ("members", "first", "second"):
        assert (getattr(one, name) == getattr(two, name)).all()
    descriptors = [describe(c.coordinates(), c.mask()) for c in (one, two)]
    np.testing.assert_allclose(*descriptors, atol=1e-12)


def test_an_unknown_kind_is_a_fault_of_ours():
    with pytest.raises(ValueError, match="unknown corruption 'melted'"):
        corrupt(POINTS, Corruption("x", "melted"), 0)
