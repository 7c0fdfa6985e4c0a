"""Points that stand alone are left out, and of points to spare an even sample is taken."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_data import real_modelnet

import asp_neuro
from asp_neuro.data import Sampling, load_clouds, locate, sampling_of, take
from asp_neuro.errors import ConfigError
from asp_neuro.scenes.cloud import Chunking, cut, to_grid
from asp_neuro.scenes.strays import FARTHEST, lattice, strays

HOW = Chunking(strays=2.5)


def sphere(n: int, seed: int = 0) -> np.ndarray:
    points = np.random.default_rng(seed).standard_normal((n, 3))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def test_on_a_lattice_of_one_step_only_the_lonely_points_are_strays() -> None:
    grid = np.stack(np.meshgrid(range(6), range(6), [0]), axis=-1).reshape(-1, 3).astype(float)
    lonely = np.array([[2.0, 2.0, 3.0], [20.0, 0.0, 0.0]])  # 3 and 14 steps from the sheet, whose points are 1 apart
    found = strays(np.concatenate([grid, lonely]), 2.5)
    assert found.tolist() == [False] * 36 + [True, True]


def test_a_corner_of_a_sheet_is_no_stray_and_the_factor_decides() -> None:
    grid = np.stack(np.meshgrid(range(6), range(6), [0]), axis=-1).reshape(-1, 3).astype(float)
    near = np.array([[2.0, 2.0, 2.0]])  # its 3rd neighbour is sqrt(5) away, the usual one 1
    assert not strays(np.concatenate([grid, near]), 2.5).any()
    assert strays(np.concatenate([grid, near]), 2.2).tolist() == [False] * 36 + [True]


def test_three_strays_together_are_found_and_four_are_an_object() -> None:
    clump = np.array([[3.0, 0.0, 0.0], [3.0, 0.01, 0.0], [3.0, 0.0, 0.01], [3.0, 0.01, 0.01]])
    assert strays(np.concatenate([sphere(500), clump[:3]]), 2.5)[500:].all()
    assert not strays(np.concatenate([sphere(500), clump]), 2.5)[500:].any()


def plainly(points: np.ndarray, factor: float) -> np.ndarray:
    """All distances, without a tree and without Morton's order but for the sample that says what is usual."""
    from asp_neuro.scenes.strays import SAMPLE, _morton

    steps = lattice(points)
    _, first, back = np.unique(_morton(steps), return_index=True, return_inverse=True)
    each = steps[first]
    square = np.square(each[:, None] - each[None]).sum(axis=2)
    third = np.sqrt(np.sort(square, axis=1)[:, 3])
    return (third > factor * np.median(third[:: -(-len(each) // SAMPLE)]))[back]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(30, 400), factor=st.sampled_from([1.3, 2.0, 2.5, 4.0]))
def test_the_quick_way_finds_what_all_distances_find(seed: int, n: int, factor: float) -> None:
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((n, 3)) * rng.uniform(0.1, 3.0, size=3)
    points[: n // 10] = rng.uniform(-5.0, 5.0, size=(n // 10, 3))
    points[n // 2 : n // 2 + 5] = points[0]
    np.testing.assert_array_equal(strays(points, factor), plainly(points, factor))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_neither_order_nor_place_nor_unit_matters(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = np.round(rng.standard_normal((300, 3)) * 256.0) / 256.0
    found, order = strays(points, 2.0), rng.permutation(300)
    np.testing.assert_array_equal(strays(points[order], 2.0), found[order])
    np.testing.assert_array_equal(strays(points * 1024.0 + 2.0**20, 2.0), found)


def test_a_point_a_thousand_times_as_far_away_makes_the_lattice_no_coarser() -> None:
    points = np.concatenate([sphere(500), [[5000.0, 0.0, 0.0]]])
    assert strays(points, 2.5).tolist() == [False] * 500 + [True]
    assert len(np.unique(lattice(points), axis=0)) == 501
    assert np.abs(lattice(points)).max() == FARTHEST


def test_few_points_and_equal_points_have_no_strays() -> None:
    assert not strays(np.eye(3) * 100.0, 2.5).any()
    assert not strays(np.zeros((100, 3)), 2.5).any()


def test_the_cut_leaves_strays_out_before_it_scales() -> None:
    object_, dust = sphere(1000), np.array([[4.0, 0.0, 0.0], [0.0, -6.0, 0.0]])
    dusty = np.concatenate([object_, dust, object_[:22]])[None]
    cleaned, n = to_grid(dusty, factor=2.5)
    alone, _ = to_grid(object_[None])
    assert n[0] == 1000
    np.testing.assert_array_equal(cleaned[0, :1000], alone[0])
    assert to_grid(dusty)[1][0] == 1002
    kept = cut(dusty, HOW)
    assert (kept.members < 1000).all()


def test_too_few_points_left_are_named_as_ever() -> None:
    with pytest.raises(ConfigError, match=r"strays = 0.5 must be above 1"):
        Chunking(strays=0.5)


def test_clean_modelnet_clouds_lose_at_most_one_point_in_a_thousand() -> None:
    clouds = load_clouds(locate("modelnet40", real_modelnet()), "validation", splits="by number").points[:200]
    assert np.mean([strays(cloud, 2.5).mean() for cloud in clouds]) < 0.001


def test_an_answer_says_how_many_points_were_left_out() -> None:
    model = asp_neuro.load("compact")
    scene = replace(model.spec.scene, chunking=replace(model.spec.scene.chunking, strays=2.5))
    cleaning = asp_neuro.model.perceiver.Perceiver(replace(model.spec, scene=scene), model.exit_rule)
    at = np.arange(1024) + 0.5  # a sphere, evenly
    height, angle = 1.0 - at / 512.0, at * np.pi * (1.0 + 5.0**0.5)
    cloud = np.stack(
        [np.cos(angle) * np.sqrt(1.0 - height**2), height, np.sin(angle) * np.sqrt(1.0 - height**2)], axis=1
    )
    dusty = cloud.copy()
    dusty[:5] = sphere(5, 1) * 7.0
    plain_, answer = cleaning(cloud), cleaning(dusty)
    assert (plain_.removed, answer.removed, answer.points) == (0, 5, 1019)
    assert "Left out: 5 of the points, which look like strays." in answer.notes
    assert not any("fewer than" in note for note in answer.notes)  # a few strays are no shortage
    dusty[:200] = np.random.default_rng(2).uniform(-8.0, 8.0, size=(200, 3))
    assert any("fewer than" in note for note in cleaning(dusty).notes)


def test_of_points_to_spare_an_even_sample_is_taken() -> None:
    rng = np.random.default_rng(3)
    uneven = sphere(6000)
    uneven = uneven[(uneven[:, 0] > 0) | (rng.random(6000) < 0.2)]  # one half five times as dense

    def halves(points: np.ndarray) -> float:
        return float((points[:, 0] > 0).mean())

    drawn, even = (take(uneven, Sampling(512, even=wanted)).points for wanted in (False, True))
    assert halves(drawn) > 0.78
    assert 0.4 < halves(even) < 0.66  # a sparse half has few to choose from
    again = take(rng.permutation(uneven), Sampling(512, even=True)).points
    assert set(map(tuple, again)) == set(map(tuple, even))


def test_strays_go_before_an_even_sample_which_would_keep_them_all() -> None:
    dusty = np.concatenate([sphere(3000), 4.0 * sphere(30, 1)])
    taken = take(dusty, Sampling(512, strays=2.5, even=True))
    assert taken.removed == 30
    assert np.linalg.norm(taken.points, axis=1).max() < 1.01
    assert np.linalg.norm(take(dusty, Sampling(512, even=True)).points, axis=1).max() > 3.9


def test_a_model_says_how_its_clouds_are_sampled() -> None:
    how = Chunking(n_points=512, n_groups=32, strays=3.0, even=True)
    assert sampling_of(how) == Sampling(512, 32, 3.0, True)
