"""Studies of points: exits against fixed numbers of looks, promises made again on halves, and the monitor of losses."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from asp_neuro.certify import monitor
from asp_neuro.certify.points import NOTHING, PointRecording, plan_points
from asp_neuro.errors import InputError, UsageError
from asp_neuro.runtime import parts, watch
from asp_neuro.studies import part_exits, part_halves
from asp_neuro.studies.halves import random_halves

# Exits


def test_an_exit_is_compared_with_a_mixture_of_fixed_looks_of_the_same_mean():
    margins = np.array([[0.9, 0.1, 0.1], [0.9, 0.8, 0.1], [0.9, 0.9, 0.9]])
    ious = np.array([[0.9, 0.2, 0.1], [0.9, 0.7, 0.2], [0.9, 0.8, 0.6]])
    assert part_exits.stops(margins, 0.5).tolist() == [0, 1, 2]
    found = part_exits.row(margins, ious, 0.5)
    assert found["looks"] == 2.0
    assert found["miou"] == pytest.approx((0.9 + 0.7 + 0.6) / 3)
    assert found["fixed_miou"] == pytest.approx((0.9 + 0.7 + 0.2) / 3)
    assert found["ahead"] == pytest.approx(0.4 / 3)
    mixed = part_exits.row(margins, ious, 0.85)  # stops after 1, 3, 3
    assert mixed["looks"] == pytest.approx(7 / 3)
    assert mixed["fixed_miou"] == pytest.approx((2 / 3) * ious[1].mean() + (1 / 3) * ious[2].mean())


def test_a_share_of_the_budget_is_not_exceeded_by_its_exit():
    rng = np.random.default_rng(0)
    margins = np.maximum.accumulate(rng.random((10, 300)), axis=0)
    ious = np.sort(rng.random((10, 300)), axis=0)
    found = part_exits.at_share(margins, ious, 0.4)
    assert found["looks"] == 4.0
    assert 3.5 < found["exit"]["looks"] <= 4.0
    assert found["fixed_miou"] == pytest.approx(ious[3].mean())


def test_margins_that_know_nothing_lose_and_those_that_know_gain():
    rng = np.random.default_rng(1)
    ious = np.minimum(1.0, rng.random(4000) + np.arange(8)[:, None] / 8.0)
    blind = part_exits.row(rng.random((8, 4000)), ious, 0.8)
    knows = part_exits.row(ious + 0.01 * rng.random(ious.shape), ious, 0.8)
    assert blind["ahead"] < -4 * blind["standard_error"]  # the curve bends: stopping at random costs
    assert knows["ahead"] > 4 * knows["standard_error"]


# Halves


def shapes(n: int, wrong: float, seed: int = 0, n_points: int = 40) -> PointRecording:
    """Wrong points have lower margins, and shapes differ."""
    rng = np.random.default_rng(seed)
    bad = rng.random((n, n_points)) < rng.beta(1.0, 1.0 / wrong - 1.0, (n, 1))
    margins = np.where(bad, rng.beta(1.5, 2.0, bad.shape), rng.beta(3.0, 1.0, bad.shape))
    return PointRecording(margins, bad, np.ones(bad.shape, dtype=bool))


def test_both_promises_hold_on_halves_of_shapes_like_those_that_planned():
    made = plan_points(shapes(600, 0.08), 0.05, 0.05, 600)
    told = shapes(1200, 0.08, seed=1)
    halves = random_halves(told.n, 60, 0)
    mean = part_halves.row("A", part_halves.mean_halves(told, made, halves), 0.05)
    each = part_halves.row("B", part_halves.each_halves(told, 0.1, 0.05, halves), 0.1)
    assert mean["promised"] == each["promised"] == 60
    assert mean["held"] > 0.9
    assert mean["accepted"] > 0.3
    assert each["beyond_chance"] < 0.2
    assert abs(each["risk_mean"] - 0.1) < 0.02  # split conformal wastes nothing


def test_an_acceptance_that_is_too_loose_is_caught():
    told = shapes(1200, 0.08, seed=1)
    halves = random_halves(told.n, 20, 0)
    loose = part_halves.each_halves(told, 0.3, 0.05, halves)
    assert part_halves.row("B", loose, 0.1)["beyond_chance"] == 1.0


def test_where_nothing_can_be_promised_nothing_is_accepted():
    made = plan_points(shapes(100, 0.08), 0.05, 0.05, 100)
    bad = shapes(60, 0.9, seed=3)
    found = part_halves.mean_halves(bad, made, random_halves(bad.n, 8, 0))
    assert (found.threshold == NOTHING).all()
    line = part_halves.row("A", found, 0.05)
    assert (line["promised"], line["risk_mean"], line["accepted"]) == (0, None, 0.0)


# The monitor


def watched(tmp_path, monkeypatch, wrong: float, n: int, certified: bool = True, known: bool = True):
    rng = np.random.default_rng(n)
    truth = rng.integers(0, 3, (n, 50))
    flips = rng.random(truth.shape) < wrong
    answers = [
        SimpleNamespace(labels=np.where(bad, own + 1, own), accepted=np.arange(50) < (0 if i == 0 else 40))
        for i, (own, bad) in enumerate(zip(truth, flips, strict=True))
    ]
    promise = SimpleNamespace(mean=SimpleNamespace(certified=certified, alpha=0.05))
    monkeypatch.setattr(parts, "promise_of", lambda deployed: promise)
    names = [f"{n} {i}" for i in range(n)]
    samples = SimpleNamespace(parts=truth if known else None, hashes=lambda: names, source="made")
    return watch.point_feedback(tmp_path / "f.json", SimpleNamespace(sha256="m"), samples, answers)


def test_losses_of_shapes_are_fed_once_and_shapes_without_accepted_points_are_no_news(tmp_path, monkeypatch):
    first = watched(tmp_path, monkeypatch, 0.03, 200)
    assert first.risk.what == monitor.LOSSES
    assert first.risk.n == 199
    assert not first.alarm
    assert "on average" in first.message
    again = watched(tmp_path, monkeypatch, 0.03, 200)
    assert (again.risk.n, again.risk.repeats) == (199, 199)


def test_shapes_that_are_worse_than_promised_raise_the_alarm(tmp_path, monkeypatch):
    assert watched(tmp_path, monkeypatch, 0.15, 300).alarm


def test_what_cannot_be_watched_is_said(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="promises nothing"):
        watched(tmp_path, monkeypatch, 0.1, 3, certified=False)
    with pytest.raises(InputError, match="true part of every point"):
        watched(tmp_path, monkeypatch, 0.1, 3, known=False)
