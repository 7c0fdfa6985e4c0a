"""Bent copies (asp_neuro/scenes/bend.py): parts move, nothing tears, and a copy that is not asked for is not bent."""

from __future__ import annotations

import numpy as np
import pytest

from asp_neuro.errors import ConfigError
from asp_neuro.scenes.augment import Augmentation
from asp_neuro.scenes.bend import bent
from asp_neuro.scenes.copies import copies


def sphere(n: int = 400) -> np.ndarray:
    raw = np.random.default_rng(0).normal(size=(n, 3))
    return raw / np.sqrt(np.square(raw).sum(axis=1, keepdims=True))


def test_points_move_each_by_another_way_and_neighbours_stay_neighbours():
    points = sphere()
    moved = bent(points, np.random.default_rng(1))
    way = moved - points
    assert np.abs(way).max() > 0.05
    assert way.std(axis=0).max() > 0.02  # not the whole cloud at once
    near = np.square(points[:, None] - points).sum(axis=2)
    np.fill_diagonal(near, np.inf)
    nearest = near.argmin(axis=1)
    apart = np.sqrt(np.square(moved - moved[nearest]).sum(axis=1))
    assert (apart < 4.0 * np.sqrt(near.min(axis=1)) + 1e-9).all()


def test_the_same_seed_bends_in_the_same_way_and_another_in_another():
    points = sphere()
    one, again, other = (bent(points, np.random.default_rng(seed)) for seed in (2, 2, 3))
    assert (one == again).all()
    assert (one != other).any()


def test_no_more_copies_are_bent_than_were_asked_for():
    points = np.stack([sphere()] * 60).astype(np.float32)
    plain, some = (copies(points, Augmentation(scale=1.0, cuts=1, bend=share), 0) for share in (0.0, 0.5))
    changed = (plain != some).any(axis=(1, 2))
    assert 15 < changed.sum() < 45
    assert (copies(points, Augmentation(scale=1.0, cuts=1, bend=1.0), 0) != plain).any(axis=(1, 2)).all()


def test_bending_copies_without_copies_is_refused():
    with pytest.raises(ConfigError, match="cuts = 0"):
        Augmentation(bend=0.5)
