"""The analog foveated transformer and its control: what they differ by, what they cost, how they look."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from asp_neuro.learn import fovea  # noqa: E402

SMALL = fovea.Shape(size=40, channels=1, stem=(4, 6, 8), width=12, blocks=2, heads=2, budget=4)


def images(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, SMALL.size, SMALL.size)).astype(np.uint8)


def test_the_control_has_fewer_parameters_by_exactly_the_scale_embedding():
    for how in (SMALL, fovea.Shape(), fovea.Shape(128, 3, (16, 32, 64, 96))):
        mean, dense, gru = (fovea.n_parameters(fovea.build(kind, how, 10, 0)) for kind in ("mean", "dense", "gru"))
        assert mean - dense == len(fovea.RINGS) * how.width
        assert gru - mean == 6 * how.width * how.width + 6 * how.width


@pytest.mark.parametrize("kind", ["mean", "gru", "dense"])
def test_macs_that_hooks_count_are_those_by_hand_and_linear_in_fixations(kind):
    for how in (SMALL, dataclasses.replace(fovea.Shape(), budget=3)):
        once, each = fovea.macs_by_hand(how, 10, kind)
        assert fovea.hooked(fovea.build(kind, how, 10, 0)) == once + each * how.budget
    model = fovea.build(kind, SMALL, 10, 0)
    model.blocks[0].inner = torch.nn.Linear(12, 25)
    model.blocks[0].outer = torch.nn.Linear(25, 12)
    once, each = fovea.macs_by_hand(SMALL, 10, kind)
    assert fovea.hooked(model) != once + each * SMALL.budget


def test_tokens_about_the_middle_by_hand():
    pool, middle, beside = fovea.lattice(5)
    centre = 12
    assert pool.shape == (25, 17, 25)
    fine = pool[centre, :9].argmax(dim=1).tolist()
    assert fine == [6, 7, 8, 11, 12, 13, 16, 17, 18]
    left = [region[:2] for region in fovea.REGIONS].index((1, -3))  # the first of the second ring: up and to the left
    assert pool[centre, left].nonzero().flatten().tolist() == [0]  # rows and columns -2 .. 0: one cell is in the grid
    assert middle[centre, left] == 0
    assert beside[centre].nonzero().flatten().tolist() == fine
    assert torch.allclose(pool.sum(dim=2)[pool.sum(dim=2) > 0], torch.tensor(1.0))
    corner = pool[0, :9].sum(dim=1)
    assert corner.tolist() == [0, 0, 0, 0, 1, 1, 0, 1, 1]  # beyond the border there is no token


@pytest.mark.parametrize("rule", fovea.RULES)
def test_no_gaze_returns_to_where_it_was_or_beside_it(rule):
    how = dataclasses.replace(SMALL, size=72)  # 9 x 9 cells
    model = fovea.build("mean", how, 3, 1).eval()
    pixels = np.random.default_rng(0).integers(0, 256, (6, 72, 72)).astype(np.uint8)
    labels = np.zeros(6, np.int64)
    gazes = []
    seen = model.look
    model.look = lambda now, gaze: (gazes.append((now.step, gaze)), seen(now, gaze))[1]
    logits = fovea.read(model, pixels, labels, rule)
    assert logits.shape == (4, 6, 3)
    taken = torch.stack([gaze for _, gaze in gazes]) if rule != "oracle" else None
    if taken is None:
        return
    y, x = taken // 9, taken % 9
    apart = torch.maximum((y[:, None] - y[None]).abs(), (x[:, None] - x[None]).abs())
    assert (apart[~torch.eye(4, dtype=torch.bool)] > 1).all()
    if rule != "random":
        assert (taken[0] == 40).all()


def test_the_mean_accumulator_averages_logits_and_the_gru_does_not():
    for kind, same in (("mean", True), ("gru", False)):
        model = fovea.build(kind, SMALL, 3, 0).eval()
        with torch.no_grad():
            now = model.begin(fovea.planes(images(2)))
            first, second = (model.look(now, torch.tensor([cell, cell])) for cell in (0, 12))
            alone = model.begin(fovea.planes(images(2)))
            other = model.look(alone, torch.tensor([12, 12]))
        assert torch.allclose(second, (first + other) / 2, atol=1e-5) == same


def test_a_training_is_kept_and_one_of_another_kind_is_not_taken_for_it(tmp_path):
    lessons = fovea.Lessons(steps=30, batch_size=16, learning_rate=5e-3)

    def draw(step):
        rng = np.random.default_rng(step)
        labels = rng.integers(0, 2, 16)
        pixels = rng.integers(0, 60, (16, 40, 40)).astype(np.uint8)
        pixels[labels == 1, 15:25, 15:25] += 150
        return pixels, labels.astype(np.int64)

    path, losses = tmp_path / "mean-0.pt", []
    model = fovea.trained("mean", SMALL, 2, 0, lessons, draw, path, lambda step, loss: losses.append(loss))
    pixels, labels = draw(99)
    assert (fovea.read(model, pixels, labels)[-1].argmax(axis=1) == labels).mean() > 0.9
    assert losses[-1] < 0.6 * losses[0]
    again = fovea.trained("mean", SMALL, 2, 0, lessons, None, path, None)
    np.testing.assert_array_equal(fovea.read(again, pixels, labels), fovea.read(model, pixels, labels))
    with pytest.raises(fovea.InputError, match="another way"):
        fovea.trained("gru", SMALL, 2, 0, lessons, draw, path, lambda *_: None)
