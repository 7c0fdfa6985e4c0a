"""Changed clouds: exactly what the condition's name says, seeded cloud by cloud, cut like any other cloud."""

from __future__ import annotations

import numpy as np
import pytest

from asp_neuro.data import load_clouds
from asp_neuro.errors import UsageError
from asp_neuro.scenes import conditions as named
from asp_neuro.scenes.cloud import Chunking, cut, describe, normalise
from asp_neuro.scenes.conditions import CLEAN, Condition, changed, conditions

POINTS = load_clouds("shapes", "validation", n_points=128).points[:12]
CHANGES = conditions(128)[1:]
BY_NAME = {what.name: what for what in CHANGES}
PARTIAL, STREWN, UNEVEN = BY_NAME["partial view"], BY_NAME["5 % strewn"], BY_NAME["uneven"]
DROPPED, DROPPED_MORE, HALF, QUARTER = (
    BY_NAME[name] for name in ("25 % dropped", "50 % dropped", "64 points", "32 points")
)
TURNED, ROTATED, JITTER_MORE = (BY_NAME[name] for name in ("turned about up", "turned in SO(3)", "jitter 0.02"))


def rows(cloud: np.ndarray) -> set[tuple[float, ...]]:
    return {tuple(point) for point in cloud.astype(np.float32).tolist()}


def distances(cloud: np.ndarray) -> np.ndarray:
    return np.linalg.norm(cloud[:, None] - cloud[None], axis=2)


def test_the_cells_are_those_of_the_paper_and_of_the_field():
    names = [what.name for what in conditions(1024)]
    assert {"clean", "25 % dropped", "50 % dropped", "512 points", "256 points"} <= set(names)
    assert names[0] == "clean"
    assert len(set(names)) == 13


def test_a_clean_cloud_is_left_alone():
    assert changed(POINTS, CLEAN, 0) is POINTS


@pytest.mark.parametrize(
    ("what", "kept"), [(DROPPED, 96), (DROPPED_MORE, 64), (HALF, 64), (QUARTER, 32), (PARTIAL, 64)]
)
def test_what_is_left_are_points_of_the_cloud_and_the_right_number_of_them(what, kept):
    left = changed(POINTS, what, 0)
    assert left.shape == (12, kept, 3)
    for whole, part in zip(normalise(POINTS)[0], left):
        assert len(rows(part)) == kept
        assert rows(part) <= rows(whole)


def test_thinned_clouds_are_spread_more_evenly_than_dropped_ones():
    def gap(clouds: np.ndarray) -> float:
        return float(np.mean([(distances(c) + 9.0 * np.eye(len(c))).min(axis=1).mean() for c in clouds]))

    assert gap(changed(POINTS, HALF, 0)) > 1.2 * gap(changed(POINTS, DROPPED_MORE, 0))


def test_turning_about_up_keeps_heights_and_distances():
    before, after = normalise(POINTS)[0], changed(POINTS, TURNED, 0)
    np.testing.assert_allclose(after[..., 1], before[..., 1], atol=1e-6)
    np.testing.assert_allclose(distances(after[0]), distances(before[0]), atol=1e-5)
    assert np.abs(after - before).max() > 0.1


def test_a_rotation_is_proper_and_any_direction_is_as_likely():
    axes = np.broadcast_to(np.vstack([np.eye(3), -np.eye(3)]), (4000, 6, 3))  # centred, of radius 1: normalised already
    before, turned = normalise(axes)[0], changed(axes, ROTATED, 0).astype(np.float64)
    np.testing.assert_allclose(np.linalg.norm(turned, axis=2), 1.0, atol=1e-6)
    np.testing.assert_allclose(np.linalg.det(turned[:, :3]), np.linalg.det(before[:, :3]), atol=1e-6)  # no mirror
    assert np.abs(turned[:, 0].mean(axis=0)).max() < 0.04  # a mean of 4000, deviation 0.009
    np.testing.assert_allclose((turned[:, 0] ** 2).mean(axis=0), 1 / 3, atol=0.02)


def test_jitter_has_the_promised_deviation_and_is_clipped():
    many = np.repeat(POINTS, 40, axis=0)
    noise = changed(many, JITTER_MORE, 0) - normalise(many)[0]
    assert noise.std() == pytest.approx(0.02, rel=0.01)
    assert np.abs(noise.mean()) < 2e-4
    wild = changed(many, Condition("wild", "noise", 10.0), 0) - normalise(many)[0]
    assert np.abs(wild).max() < 50.01


@pytest.mark.parametrize("what", CHANGES, ids=lambda what: what.name)
def test_a_cloud_follows_from_its_place_seed_and_draw_alone(what):
    whole = changed(POINTS, what, 3, draw=1)
    assert (changed(POINTS[:5], what, 3, draw=1) == whole[:5]).all()
    assert (changed(POINTS, what, 4, draw=1) != whole).any()
    assert (changed(POINTS, what, 3, draw=2) != whole).any()


def test_filling_a_thinned_cloud_up_with_repeats_would_change_nothing():
    how = Chunking(n_points=128, n_groups=16, group_size=8, n_chunks=4)
    thin = changed(POINTS, QUARTER, 0)
    full = np.concatenate([thin, thin, thin[:, ::-1], thin], axis=1)
    one, two = cut(thin, how), cut(full, how)
    for name in ("members", "first", "second"):
        assert (getattr(one, name) == getattr(two, name)).all()
    descriptors = [describe(c.coordinates(), c.mask()) for c in (one, two)]
    np.testing.assert_allclose(*descriptors, atol=1e-12)


def test_a_partial_view_keeps_what_lies_ahead_and_nothing_else():
    for place, (whole, seen) in enumerate(zip(normalise(POINTS)[0], changed(POINTS, PARTIAL, 0))):
        aim = named.sideways(np.random.default_rng([0, 0, place]))
        assert aim[1] == 0.0
        hidden = np.array(sorted(rows(whole) - rows(seen)))
        assert (seen @ aim).min() >= (hidden @ aim).max() - 1e-6


def test_a_cloud_of_three_points_seen_by_hand():
    cloud = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.5], [0.2, 0.0, 0.0]])
    np.testing.assert_array_equal(named.partial(cloud, np.array([1.0, 0.0, 0.0])), cloud[[0, 3]])
    np.testing.assert_array_equal(named.partial(cloud, np.array([0.0, 0.0, 1.0]), 0.25), cloud[[2]])
    np.testing.assert_allclose(named.turned(cloud, np.pi / 2)[0], [0.0, 0.0, -1.0], atol=1e-12)


def test_strewn_points_replace_as_many_and_fill_the_ball():
    before, after = normalise(POINTS)[0], changed(POINTS, STREWN, 0)
    for whole, part in zip(before, after):
        assert len(part) == len(whole)
        assert len(rows(part) - rows(whole)) == 6  # 5 % of 128
    ball = named.in_ball(20000, np.random.default_rng(0))
    radius = np.linalg.norm(ball, axis=1)
    assert radius.max() <= 1.0
    np.testing.assert_allclose(np.mean(radius**3), 0.5, atol=0.01)  # uniform in volume
    assert np.abs(ball.mean(axis=0)).max() < 0.02
    one = named.strewn(before[0], 0.001, np.random.default_rng(0))
    assert (one != before[0]).any(axis=1).sum() == 1  # less than one point is one


def test_an_uneven_cloud_is_denser_where_it_should_be_and_stays_on_the_surface():
    plate = np.stack(np.meshgrid(np.linspace(-1, 1, 32), [0.0], np.linspace(-1, 1, 32)), axis=-1).reshape(-1, 3)
    aim = np.array([1.0, 0.0, 0.0])
    dense = named.uneven(plate, aim, 16.0, np.random.default_rng(0))
    assert dense.shape == plate.shape
    assert (dense[:, 1] == 0.0).all()
    share = (dense[:, 0] > 0).mean()
    assert share == pytest.approx(0.8, abs=0.04)  # 16^0.5 = 4 times as many on that half
    even = named.uneven(plate, aim, 1.0, np.random.default_rng(0))
    assert (even[:, 0] > 0).mean() == pytest.approx(0.5, abs=0.05)
    assert len(rows(even) & rows(plate)) < 100  # points of its own


def test_an_unknown_kind_is_refused_with_those_that_there_are():
    with pytest.raises(UsageError, match="no condition is of kind 'melted'; there are: partial, strewn"):
        changed(POINTS, Condition("x", "melted"), 0)


@pytest.mark.parametrize("what", CHANGES, ids=lambda what: what.name)
def test_points_that_are_there_twice_count_once(what):
    """A cloud that was filled up with repeats (own data with few points) is changed as the cloud that it is."""
    twice = np.concatenate([POINTS, POINTS[:, :1].repeat(128, axis=1)], axis=1)
    once, again = changed(POINTS, what, 5), changed(twice, what, 5)
    assert [rows(cloud) for cloud in once] == [rows(cloud) for cloud in again]


def test_clouds_of_different_numbers_of_points_are_filled_up_each_by_its_own():
    mixed = POINTS[:2].copy()
    mixed[1, 40:] = mixed[1, 0]
    one, other = changed(mixed, PARTIAL, 0)
    assert len(rows(one)) == 64
    assert len(rows(other)) == 20
