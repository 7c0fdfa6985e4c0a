"""Training: killed and resumed equals left alone, two processes equal one, and what goes wrong is told with a cause."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import platform
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from old_recipes import in_old_names
from torch import Tensor

from asp_neuro.data import CloudSet, Place, load_clouds
from asp_neuro.errors import ConfigError, InputError, MissingError, UsageError
from asp_neuro.heads.soft.reference import run_reference
from asp_neuro.learn import checkpoint, losses, soup, training, workshop
from asp_neuro.learn.evaluation import evaluate
from asp_neuro.learn.examples import Examples, examples_of
from asp_neuro.learn.model import Batch, Episode, Sight
from asp_neuro.learn.recipe import DataRecipe, ModelRecipe, Recipe, TrainRecipe
from asp_neuro.learn.training import DivergedError, Progress, batch_loss, learning_rate, load_model, temperature, train
from asp_neuro.scenes.augment import Augmentation
from asp_neuro.scenes.cloud import Chunking

TINY = Recipe(
    name="tiny",
    seed=5,
    scene=Chunking(n_points=64, n_groups=8, group_size=4, n_chunks=4),
    model=ModelRecipe(width=8, neurons=8, layers=2, edge_widths=(6, 8), policy_width=5),
    augment=Augmentation(turn=30.0, drop=0.1, mirror=True, cuts=1),
    train=TrainRecipe(
        epochs=4,
        qat_epochs=2,
        batch_size=16,
        imitation=0.5,
        tet=0.1,
        firing_rate_penalty=0.1,
        firing_rate_target=0.0,
        class_weight_power=0.5,
        step_weight_power=0.5,
        mixup=0.4,
        ema_decay=0.9,
    ),
)


def data(split: str, n: int) -> Examples:
    change = TINY.augment if split == "train" else None
    return examples_of(load_clouds("shapes", split, n_points=64).subset(range(n)), TINY.chunking, change=change)


@pytest.fixture(scope="module")
def examples() -> Examples:
    return data("train", 64)


@pytest.fixture(scope="module")
def validation() -> Examples:
    return data("validation", 24)


CLASSES = load_clouds("shapes", "train", n_points=64).classes


@pytest.fixture(scope="module")
def finished(examples: Examples, validation: Examples, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same training, left alone."""
    out = tmp_path_factory.mktemp("finished") / "model.pt"
    train(TINY, CLASSES, examples, validation, out)
    return out


def assert_same_weights(one: Path, two: Path) -> None:
    a, b = (checkpoint.read(path)["model"] for path in (one, two))
    assert a.keys() == b.keys()
    for key in a:
        assert torch.equal(a[key], b[key]), key


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {folder!r})
import test_training as t
def kill(epoch, done, total, loss):
    if (epoch, done) == ({epoch}, {step}):
        os.kill(os.getpid(), signal.SIGKILL)
t.train(t.TINY, t.CLASSES, t.data("train", 64), t.data("validation", 24), Path({out!r}), show=t.Progress(step=kill))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("epoch", "step"), [(1, 3), (3, 1)], ids=["in the float part", "on the integer grid"])
def test_a_training_killed_and_resumed_ends_with_the_same_weights_bit_for_bit(
    finished: Path, examples: Examples, validation: Examples, tmp_path: Path, epoch: int, step: int
) -> None:
    out = tmp_path / "model.pt"
    script = KILLED.format(folder=str(Path(__file__).parent), epoch=epoch, step=step, out=str(out))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not out.exists()
    assert checkpoint.read(tmp_path / "model.pt.resume")["epoch"] == epoch
    shown = []
    train(TINY, CLASSES, examples, validation, out, resume=True, show=Progress(epoch=shown.append))
    assert [row["epoch"] for row in shown] == list(range(epoch + 1, 5))
    assert_same_weights(out, finished)
    assert not (tmp_path / "model.pt.resume").exists()


def test_the_same_seed_trains_the_same_weights_and_another_seed_others(
    finished: Path, examples: Examples, validation: Examples, tmp_path: Path
) -> None:
    train(TINY, CLASSES, examples, validation, tmp_path / "same.pt")
    assert_same_weights(tmp_path / "same.pt", finished)
    train(replace(TINY, seed=6), CLASSES, examples, validation, tmp_path / "other.pt")
    with pytest.raises(AssertionError):
        assert_same_weights(tmp_path / "other.pt", finished)


def test_what_comes_out_runs_on_the_integer_grid(finished: Path, validation: Examples) -> None:
    model, recipe, classes, stored = load_model(finished)
    assert (recipe, classes) == (TINY, CLASSES)
    assert model.head.deploy
    assert model.head.has_scales
    assert not model.training
    spec = model.head.spec()  # validates itself
    assert [layer.n_neurons for layer in spec.layers] == [8, 8]
    drives = torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        membranes, fired, _ = model.head.run(drives, model.head.start(6), model.head.fold())
    expected, spikes, _ = run_reference(spec, torch.round(drives.double() * 64).to(torch.int64).numpy())
    assert np.array_equal(torch.stack(membranes, dim=1).numpy(), expected)
    assert np.array_equal(torch.stack(fired, dim=1).numpy(), spikes)
    report = stored["report"]
    assert report["deploy_accuracy"] == evaluate(model, validation).accuracy()[-1]
    assert report["before_deploy"] is not None
    assert report["parameters"] == sum(p.numel() for p in model.parameters())


def test_the_log_has_one_line_an_epoch(finished: Path) -> None:
    rows = [json.loads(line) for line in (finished.parent / "model.log.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4]
    assert [row["deploy"] for row in rows] == [False, False, True, True]
    assert all(math.isfinite(row["loss"]) for row in rows)
    assert sorted(os.listdir(finished.parent)) == ["model.log.jsonl", "model.pt"]


def half_done(examples: Examples, validation: Examples, out: Path) -> None:
    """Leave a `.resume` file behind, as a kill does."""

    def stop(row: dict) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(TINY, CLASSES, examples, validation, out, show=Progress(epoch=stop))


@pytest.mark.parametrize("change", ["seed", "recipe", "classes", "data"])
def test_resuming_refuses_what_does_not_belong_to_it(
    examples: Examples, validation: Examples, tmp_path: Path, change: str
) -> None:
    out = tmp_path / "model.pt"
    half_done(examples, validation, out)
    before = (tmp_path / "model.pt.resume").read_bytes()
    recipe, classes = TINY, CLASSES
    if change == "seed":
        recipe = replace(TINY, seed=6)
    elif change == "recipe":
        recipe = TINY.changed(train={"learning_rate": 1e-3})
    elif change == "classes":
        classes = tuple(reversed(CLASSES))
    else:
        examples = data("train", 60)
    with pytest.raises(ConfigError, match=r"model\.pt\.resume' .*start anew with --force"):
        train(recipe, classes, examples, validation, out, resume=True)
    assert (tmp_path / "model.pt.resume").read_bytes() == before


def test_a_training_that_was_begun_under_the_old_names_of_a_recipe_goes_on(
    examples: Examples, validation: Examples, finished: Path, tmp_path: Path
) -> None:
    out, part = tmp_path / "model.pt", tmp_path / "model.pt.resume"
    half_done(examples, validation, out)
    stored = {key: value for key, value in checkpoint.read(part).items() if key not in ("format", "version")}
    old = in_old_names(TINY)
    assert {"chunking", "deploy_epochs"} <= {*old, *old["train"]}
    checkpoint.save(part, {**stored, "recipe": old})
    train(TINY, CLASSES, examples, validation, out, resume=True)
    assert_same_weights(out, finished)


def test_a_broken_resume_file_is_refused_and_kept(examples: Examples, validation: Examples, tmp_path: Path) -> None:
    (tmp_path / "model.pt.resume").write_bytes(b"PK broken")
    with pytest.raises(InputError, match=r"model\.pt\.resume'"):
        train(TINY, CLASSES, examples, validation, tmp_path / "model.pt", resume=True)
    assert (tmp_path / "model.pt.resume").read_bytes() == b"PK broken"


def test_a_loss_that_is_no_number_stops_with_step_cause_and_last_good_state(
    examples: Examples, validation: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    real = batch_loss

    def sick(*args: object) -> tuple[Tensor, Tensor]:
        nonlocal calls
        calls += 1
        loss, fired = real(*args)
        return (loss * math.nan if calls == 7 else loss), fired  # four steps an epoch: the third of the second

    monkeypatch.setattr(training, "batch_loss", sick)
    with pytest.raises(
        DivergedError,
        match=r"loss is nan in epoch 2, step 3; the likely cause is a learning rate.*resume' holds epoch 1",
    ):
        train(TINY, CLASSES, examples, validation, tmp_path / "model.pt")
    stored = checkpoint.read(tmp_path / "model.pt.resume")
    assert stored["epoch"] == 1
    assert all(torch.isfinite(v).all() for v in stored["model"].values())


@pytest.mark.parametrize("first_look", [0, 6])
@pytest.mark.parametrize("deploy", [False, True])
def test_all_steps_at_once_have_the_loss_and_gradients_of_one_step_after_the_other(
    examples: Examples, monkeypatch: pytest.MonkeyPatch, deploy: bool, first_look: int
) -> None:
    """With `detach_belief` episodes are computed again over all steps; without it step by step, here detached too."""
    model = {"first_look": first_look, "chunk_layer": True, "moments": True}
    scores, found = Episode.scores, []
    for at_once in (True, False):
        recipe = TINY.changed(train={"detach_belief": at_once}, model=model)
        run = training.start(recipe, CLASSES, examples)
        with torch.no_grad():
            run.model.policy.weight.mul_(5.0)
        batch = examples.batch(np.arange(16), TINY.augment, np.random.default_rng(0))
        if deploy:
            run.model.fix_host_scales([examples.batch(np.arange(64))])
            run.model.head.fix_scales(np.full((2, 8), 8.0))
            run.model.deploy = True
        else:
            run.model.double()
            batch = Batch(*(x.double() if x.is_floating_point() else x for x in batch))
        source = torch.Generator().manual_seed(3)
        noise, random, draw = (torch.rand(size, generator=source) for size in ((4, 16, 4), (16, 5), (16, 6)))
        if not at_once:
            monkeypatch.setattr(Episode, "scores", lambda self, policy, _: scores(self, policy, True))
        kind = torch.float32 if deploy else torch.float64
        mix = training.draw_mixup(draw.to(kind), 0.4)
        run.class_weight = run.class_weight.to(kind)
        loss, fired = batch_loss(run, batch, None, 0.5, noise.to(kind), random.to(kind), 16, mix)
        loss.backward()
        found.append([loss.detach(), fired, *(p.grad for p in run.model.parameters())])
    assert found[0][0] > 0.0
    names = ["loss", "fired", *(name for name, _ in run.model.named_parameters())]
    for name, ours, plain in zip(names, *found, strict=True):
        rtol, atol = (1e-4, 1e-6) if deploy else (1e-9, 1e-12)
        torch.testing.assert_close(ours, plain, rtol=rtol, atol=atol, msg=lambda text, name=name: f"{name}: {text}")


def test_lookahead_teaches_the_policy_the_place_that_is_best_on_average() -> None:
    """Imitation of places that are each best for some clouds would settle between them."""
    told = torch.tensor([[0.9, 0.0, 0.6], [0.0, 0.9, 0.6]]).clamp_min(1e-3).log()
    chosen = {}
    for name in ("lookahead", "imitation"):
        scores = torch.zeros(3, requires_grad=True)
        for _ in range(300):
            both = scores.expand(2, 3)
            loss = losses.imitation(both, told, 0.3, 2)
            if name == "lookahead":
                loss = losses.lookahead(both, told, 2)
            (slope,) = torch.autograd.grad(loss, scores)
            scores = (scores - slope).detach().requires_grad_()
        chosen[name] = torch.softmax(scores, 0)
    assert chosen["lookahead"].argmax() == 2
    assert chosen["lookahead"][2] > 0.9
    assert chosen["imitation"][2] < 0.5


def test_lookahead_alone_moves_nothing_but_the_policy_when_the_belief_is_detached(examples: Examples) -> None:
    gradients = []
    for weight in (0.0, 2.0):
        how = {"detach_belief": True, "imitation": 0.0, "lookahead": weight, "mixup": 0.0, "random_share": 1.0}
        run = training.start(TINY.changed(train=how), CLASSES, examples)
        batch = examples.batch(np.arange(16))
        source = torch.Generator().manual_seed(0)
        noise, random = (torch.rand(size, generator=source).clamp(1e-9, 0.999) for size in ((4, 16, 4), (16, 5)))
        batch_loss(run, batch, None, 0.5, noise, random, 16)[0].backward()
        gradients.append({name: p.grad for name, p in run.model.named_parameters()})
    without, with_it = gradients
    for name, slope in with_it.items():
        if name.startswith("policy."):
            assert without[name] is None or not without[name].any()
            assert slope.any(), name
        else:
            torch.testing.assert_close(slope, without[name])


@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_a_gradient_that_is_no_number_stops_before_it_reaches_a_weight(
    examples: Examples, validation: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clip: float
) -> None:
    """In the last step of an epoch: the checkpoint written after it must not hold the damage."""
    calls = 0
    real = batch_loss

    def steep(run: training.Run, *args: object) -> tuple[Tensor, Tensor]:
        nonlocal calls
        calls += 1
        loss, fired = real(run, *args)
        if calls == 4:
            zero = (run.model.readout.bias * 0.0).sum()
            loss = loss + torch.sqrt(zero) * 0.0  # finite, but its derivative is not
        return loss, fired

    monkeypatch.setattr(training, "batch_loss", steep)
    recipe = TINY.changed(train={"gradient_clip": clip})
    with pytest.raises(DivergedError, match=r"gradient is nan in epoch 1, step 4.*no epoch was finished"):
        train(recipe, CLASSES, examples, validation, tmp_path / "model.pt")
    assert not (tmp_path / "model.pt.resume").exists()


def test_a_full_disk_leaves_the_previous_model_alone(
    examples: Examples, validation: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "model.pt"
    out.write_bytes(b"the previous model")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(InputError, match="No space left on device"):
        train(TINY, CLASSES, examples, validation, out)
    assert out.read_bytes() == b"the previous model"
    assert os.listdir(tmp_path) == ["model.pt"]


def test_one_cloud_is_not_enough(examples: Examples, validation: Examples, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="1 clouds to train on"):
        train(TINY, CLASSES, data("train", 1), validation, tmp_path / "model.pt")


@pytest.mark.parametrize(
    ("share", "rate"),
    [
        (0.0, 0.05 * 2e-3),
        (0.05, (0.05 + 0.95 / 2) * 2e-3),
        (0.1, 2e-3),
        (0.1 + 0.9 / 3, 0.75 * 2e-3),  # (1 + cos 60 degrees) / 2
        (0.55, 1e-3),
        (1.0, 0.0),
    ],
)
def test_the_learning_rate_follows_the_table(share: float, rate: float) -> None:
    assert learning_rate(Recipe("x"), share) == pytest.approx(rate, abs=1e-12)


def test_without_a_warm_up_the_rate_starts_at_its_full_height() -> None:
    assert learning_rate(Recipe("x", train=TrainRecipe(warmup=0.0)), 0.0) == 2e-3


@pytest.mark.parametrize(("share", "heat"), [(0.0, 1.0), (0.5, 10**-0.5), (1.0, 0.1)])
def test_the_temperature_falls_geometrically(share: float, heat: float) -> None:
    assert temperature(Recipe("x"), share) == pytest.approx(heat)


def test_losses_by_hand() -> None:
    zero = torch.zeros(3, 2, 4)
    labels = torch.tensor([1, 3])
    assert losses.cross_entropy(zero, labels, 0.0, 2).item() == pytest.approx(math.log(4))
    assert losses.cross_entropy(zero, labels, 0.0, 4).item() == pytest.approx(math.log(4) / 2)  # half of a batch of 4
    sure = torch.zeros(1, 1, 2)
    sure[0, 0, 0] = math.log(3)  # probabilities 3/4, 1/4; smoothed target 0.95, 0.05
    smoothed = -0.95 * math.log(0.75) - 0.05 * math.log(0.25)
    assert losses.cross_entropy(sure, torch.tensor([0]), 0.1, 1).item() == pytest.approx(smoothed)
    steps = torch.tensor([0.0, 1.0, 3.0]).view(3, 1, 1)
    counted = losses.cross_entropy(zero, labels, 0.0, 2, weight=torch.tensor([9.0, 0.5, 9.0, 2.5]))
    assert counted.item() == pytest.approx(math.log(4) * (0.5 + 2.5) / 2)
    growing = torch.zeros(2, 1, 2)
    growing[1, 0, 0] = math.log(3)  # log 2, then log 4/3; with late = 1 they count 1/3 and 2/3
    late = losses.cross_entropy(growing, torch.tensor([0]), 0.0, 1, step_weight_power=1.0)
    assert late.item() == pytest.approx(math.log(2) / 3 + math.log(4 / 3) * 2 / 3)
    both = (torch.tensor([1]), torch.tensor([[0.0], [0.25]]))  # the second answer is 3/4 of class 0, 1/4 of class 1
    mixed = losses.cross_entropy(growing, torch.tensor([0]), 0.0, 1, mixed=both)
    assert mixed.item() == pytest.approx((math.log(2) + 0.75 * math.log(4 / 3) + 0.25 * math.log(4)) / 2)
    assert losses.tet(steps, 1).item() == pytest.approx((9 + 4) / 2)
    assert losses.tet(steps[:1], 1).item() == 0
    assert losses.firing_rate_penalty(torch.tensor([0.5, 0.1]), 0.3).item() == pytest.approx(0.04)
    scores = torch.tensor([[0.0, 0.0, -1e9]])
    assert losses.imitation(scores, torch.tensor([[5.0, 5.0, -1e9]]), 1.0, 1).item() == pytest.approx(math.log(2))
    told = torch.tensor([[math.log(0.5), math.log(0.25), -1e9]])
    assert losses.lookahead(scores, told, 1).item() == pytest.approx(1.0 - (0.5 + 0.25) / 2)
    assert losses.distillation(zero, torch.zeros(2, 4), 2.0, 2).item() == pytest.approx(4 * math.log(4))


def test_partners_exchange_chunks_and_the_answer_follows_what_was_seen() -> None:
    draw = torch.tensor([
        [0.1, 0.6, 0.4, 0.5, 0.1],  # half of the chunks at most: those below 0.5
        [0.1, 0.1, 0.1, 0.9, 0.9],  # not mixed
        [0.9, 0.9, 0.0, 0.5, 0.0],  # the odd one out, its own partner
    ])  # fmt: skip
    mix = training.draw_mixup(draw, 0.4)
    assert mix.partner.tolist() == [1, 0, 2]
    assert mix.mixed.tolist() == [True, False, True]
    assert mix.foreign.tolist() == [[1, 0, 1], [0, 0, 0], [0, 0, 1]]
    gates = torch.arange(9.0).view(3, 3, 1)
    sight = training.mixed_sight(Sight(gates, -gates), mix)
    assert sight.gates.squeeze(2).tolist() == [[3, 1, 5], [3, 4, 5], [6, 7, 8]]
    assert torch.equal(sight.geometry, -sight.gates)
    assert sight.first is None
    seen = training.mixed_sight(Sight(gates, -gates, gates.squeeze(2)), mix)
    assert torch.equal(seen.first, sight.gates.squeeze(2))
    order = torch.nn.functional.one_hot(torch.tensor([[1, 0], [0, 1], [2, 2]]), 3).float()  # [T, b, M]
    share = training.foreign_share(order, mix.foreign[:2])
    torch.testing.assert_close(share, torch.tensor([[0.0, 0.0], [1 / 2, 0.0], [2 / 3, 0.0]]))


def test_a_mixed_cloud_takes_a_random_order_and_teaches_the_policy_nothing(examples: Examples) -> None:
    noise = torch.rand(4, 16, 4, generator=torch.Generator().manual_seed(0)).clamp(1e-9, 1 - 1e-7)
    random = torch.rand(16, 5, generator=torch.Generator().manual_seed(1))
    draw = torch.rand(16, 6, generator=torch.Generator().manual_seed(2))
    reached = []
    for share in (1.0, 0.0):
        run = training.start(TINY.changed(train={"random_share": 0.0}), CLASSES, examples)
        run.model.train()
        mix = training.draw_mixup(draw, share)
        batch_loss(run, examples.batch(np.arange(16)), None, 0.0, noise, random, 16, mix)[0].backward()
        reached.append(float(run.model.policy.from_belief.weight.grad.abs().max()))
    assert reached[0] == 0.0
    assert reached[1] > 0.0


@pytest.mark.parametrize(("n", "ranks"), [(31, 2), (32, 2), (32, 3), (7, 3), (6, 3)])
def test_shares_of_a_batch_keep_partners_together(n: int, ranks: int) -> None:
    starts = [training.share_start(n, rank, ranks, True) for rank in range(ranks + 1)]
    assert starts[0] == 0
    assert starts[-1] == n
    assert all(start % 2 == 0 for start in starts[:-1])
    assert all(a < b for a, b in itertools.pairwise(starts))


def test_a_cloud_is_drawn_in_all_its_cuts_and_evaluated_in_its_own(examples: Examples) -> None:
    index = np.arange(40)
    plain = examples.batch(index)
    assert len(examples) == 64
    assert len(examples.chunks) == 128
    still = Augmentation(scale=1.0, shift=0.0, jitter=0.0, cuts=1)
    drawn = examples.batch(index, still, np.random.default_rng(0))
    own = [torch.equal(drawn.points[i], plain.points[i]) for i in index]
    assert 5 < sum(own) < 35
    other = examples.chunks[index + 64]
    for i in index:
        if not own[i]:
            assert np.array_equal(drawn.members[i], other.members[i])
    assert torch.equal(drawn.labels, plain.labels)


def test_rare_classes_count_more_and_the_mean_cloud_counts_one() -> None:
    labels = np.array([0, 0, 0, 1])
    # 1/3 and 1 (a class without clouds is taken as one cloud), over the mean of 1/3, 1/3, 1/3, 1
    np.testing.assert_allclose(training.class_weight(labels, 3, 1.0), [2 / 3, 2.0, 2.0], rtol=1e-6)
    np.testing.assert_allclose(training.class_weight(labels, 2, 0.0), [1.0, 1.0])


def test_logit_adjustment_takes_class_frequencies_out_of_the_finished_answers(
    examples: Examples, validation: Examples, tmp_path: Path
) -> None:
    labels = np.array([0, 0, 0, 1])
    model = training.build(TINY, ("a", "b", "c"))
    before = model.readout.bias.clone()
    training.adjust_logits(model, labels, 0.5)
    gained = (model.readout.bias - before).tolist()  # of 3, 1 and, for a class without clouds, 1 among five
    np.testing.assert_allclose(gained, [-0.5 * math.log(3 / 5), 0.5 * math.log(5), 0.5 * math.log(5)], rtol=1e-5)
    plain, fair = tmp_path / "plain.pt", tmp_path / "fair.pt"
    for out, share in ((plain, 0.0), (fair, 1.0)):
        how = TINY.changed(train={"logit_adjustment": share, "epochs": 1, "qat_epochs": 0})
        train(how, CLASSES, examples, validation, out)
    one, other = (checkpoint.read(path)["model"] for path in (plain, fair))
    count = np.maximum(np.bincount(examples.labels, minlength=len(CLASSES)), 1)
    np.testing.assert_allclose(other["readout.bias"] - one["readout.bias"], -np.log(count / count.sum()), rtol=1e-4)
    assert all(torch.equal(one[key], other[key]) for key in one if key != "readout.bias")


def test_the_agreement_does_not_pull_on_the_last_answer() -> None:
    logits = torch.randn(4, 2, 3, requires_grad=True)
    losses.tet(logits, 2).backward()
    assert logits.grad[-1].abs().max() == 0
    assert logits.grad[:-1].abs().min() > 0


def test_the_random_share_decides_who_follows_the_policy(examples: Examples) -> None:
    """With a share of one no gradient reaches the policy through the choices; with none it does."""
    noise = torch.rand(4, 16, 4, generator=torch.Generator().manual_seed(0)).clamp(1e-9, 1 - 1e-7)
    random = torch.rand(16, 5, generator=torch.Generator().manual_seed(1))
    reached = []
    for share in (1.0, 0.0):
        recipe = TINY.changed(train={"random_share": share, "imitation": 0.0})
        run = training.start(recipe, CLASSES, examples)
        run.model.train()
        loss, _ = batch_loss(run, examples.batch(np.arange(16)), None, 0.0, noise, random, 16)
        loss.backward()
        reached.append(float(run.model.policy.from_belief.weight.grad.abs().max()))
    assert reached[0] == 0
    assert reached[1] > 0


PROCESSES = """
import sys, torch
import torch.distributed as dist
sys.path.insert(0, {folder!r})
torch.set_num_threads(1)
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + {meeting!r}, rank=rank, world_size=2)
import test_training as t
examples = t.data("train", 64)
torch.save([t.first_steps(examples, deploy) for deploy in (False, True)], {out!r} + str(rank))
dist.barrier()
dist.destroy_process_group()
"""


def first_steps(examples: Examples, deploy: bool) -> dict[str, Tensor]:
    """Gradients and statistics of one step, then the weights after two; in one process or in several."""
    recipe = TINY.changed(train={"batch_size": 31})  # odd: the two shares differ in size
    run = training.start(recipe, CLASSES, examples)
    if deploy:
        training.enter_deploy(run.model, examples, recipe)
    found: dict[str, Tensor] = {}
    real = run.optimiser.step

    def step() -> None:
        if not found:
            found.update({f"gradient {k}": p.grad.clone() for k, p in run.model.named_parameters()})
            found.update({f"buffer {k}": b.clone() for k, b in run.model.named_buffers()})
        real()

    run.optimiser.step = step
    training.train_epoch(run, examples, Progress())
    found.update({f"after {k}": v.clone() for k, v in run.model.state_dict().items()})
    return found


@pytest.mark.slow
def test_two_processes_make_the_step_of_one(examples: Examples, tmp_path: Path) -> None:
    """All gradients and statistics together within 1e-5; between the two processes everything is bit-exact."""
    script = PROCESSES.format(
        folder=str(Path(__file__).parent), meeting=str(tmp_path / "meeting"), out=str(tmp_path / "found")
    )
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen([sys.executable, "-c", script, str(rank)], env=env, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    try:
        for process in ranks:
            _, err = process.communicate(timeout=300)
            assert process.returncode == 0, err
    finally:
        for process in ranks:
            process.kill()
    first, second = (torch.load(tmp_path / f"found{rank}", weights_only=True) for rank in range(2))
    for deploy in (False, True):
        alone = first_steps(examples, deploy)
        assert first[deploy].keys() == second[deploy].keys() == alone.keys()
        for key in alone:
            assert torch.equal(first[deploy][key], second[deploy][key]), (deploy, key)
        for kind in ("gradient", "buffer"):  # not what Adam makes of it: it blows up the last bits of small gradients
            keys = [key for key in alone if key.startswith(kind)]
            one, two = (torch.cat([found[k].double().flatten() for k in keys]) for found in (alone, first[deploy]))
            assert float((one - two).norm() / one.norm()) < 1e-5, (deploy, kind)
            for key in keys:
                difference = (first[deploy][key].double() - alone[key].double()).norm()
                assert float(difference) <= 1e-4 * float(alone[key].double().norm()) + 1e-8, (deploy, key)


def test_more_processes_than_clouds_in_a_batch_are_refused(
    examples: Examples, validation: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "world", lambda: (0, 17))
    with pytest.raises(ConfigError, match="17 processes cannot share batches of 16 clouds"):
        train(TINY.changed(train={"mixup": 0.0}), CLASSES, examples, validation, tmp_path / "model.pt")
    monkeypatch.setattr(training, "world", lambda: (0, 9))
    with pytest.raises(ConfigError, match=r"9 processes cannot share batches of 16 clouds, which train\.mixup pairs"):
        train(TINY, CLASSES, examples, validation, tmp_path / "model.pt")


def test_a_share_of_a_batch_has_its_share_of_the_loss(examples: Examples) -> None:
    """The parts of the loss that are sums over clouds: two halves add up to the whole, in inference mode."""
    recipe = TINY.changed(train={"firing_rate_penalty": 0.0})
    run = training.start(recipe, CLASSES, examples)
    run.model.eval()  # so that the halves do not see their own batch statistics
    noise = torch.rand(4, 16, 4, generator=torch.Generator().manual_seed(0)).clamp(1e-9, 1 - 1e-7)
    random = torch.rand(16, 5, generator=torch.Generator().manual_seed(1))
    batch = examples.batch(np.arange(16))

    def loss(part: slice) -> float:
        piece = Batch(*(x[part] for x in batch))
        return float(batch_loss(run, piece, None, 0.3, noise[:, part], random[part], 16)[0])

    assert loss(slice(0, 5)) + loss(slice(5, 16)) == pytest.approx(loss(slice(0, 16)), rel=1e-5)


# A stage that starts from an earlier one


def test_a_stage_starts_from_the_weights_of_another(finished: Path, examples: Examples) -> None:
    start = replace(TINY, seed=9, train=replace(TINY.train, start=str(finished)))
    stored, run = checkpoint.read(finished)["model"], training.start(start, CLASSES, examples)
    own = run.model.state_dict()
    for key, value in own.items():
        if not training.is_scale(key):
            assert torch.equal(value, stored[key]), key
    assert not run.model.deploy
    assert all(torch.equal(run.average[k], own[k]) for k in run.average)


def test_a_stage_takes_the_read_out_class_by_class(finished: Path, examples: Examples) -> None:
    recipe = replace(TINY, train=replace(TINY.train, start=str(finished)))
    classes = (CLASSES[3], "other", CLASSES[0])
    fresh = training.start(TINY, classes, examples).model.state_dict()
    own = training.start(recipe, classes, examples).model.state_dict()
    stored = checkpoint.read(finished)["model"]
    for key in ("readout.weight", "readout.bias"):
        assert torch.equal(own[key][0], stored[key][3])
        assert torch.equal(own[key][1], fresh[key][1])
        assert torch.equal(own[key][2], stored[key][0])
    assert torch.equal(own["mixer.project.weight"], stored["mixer.project.weight"])


def test_a_soup_is_the_mean_of_its_trainings_and_can_be_started_from(
    finished: Path, examples: Examples, validation: Examples, tmp_path: Path
) -> None:
    stored = checkpoint.read(finished)
    other = {**stored, "model": {k: v + 1.0 if v.is_floating_point() else v for k, v in stored["model"].items()}}
    checkpoint.save(tmp_path / "other.pt", other)
    found = soup.averaged([finished, tmp_path / "other.pt"])
    for key, value in found["model"].items():
        assert not training.is_scale(key)
        torch.testing.assert_close(value, stored["model"][key] + 0.5)
    checkpoint.save(tmp_path / "soup.pt", {**found, "model": _weights(stored["model"])})
    recipe = TINY.changed(train={"start": str(tmp_path / "soup.pt"), "epochs": 1, "qat_epochs": 1})
    report = train(recipe, CLASSES, examples, validation, tmp_path / "model.pt")
    assert report["deploy_accuracy"] is not None  # it found scales of its own


def _weights(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key: value for key, value in state.items() if not training.is_scale(key)}


def test_a_soup_of_what_does_not_belong_together_is_refused(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least two"):
        soup.averaged([finished])
    stored = checkpoint.read(finished)
    told = stored["recipe"]
    others = {
        "other classes": {**stored, "classes": stored["classes"][::-1]},
        r"another \[model\]": {**stored, "recipe": {**told, "model": {**told["model"], "width": 9}}},
        "did not start": {**stored, "recipe": {**told, "train": {**told["train"], "start": "elsewhere"}}},
    }
    for message, content in others.items():
        checkpoint.save(tmp_path / "other.pt", content)
        with pytest.raises(ConfigError, match=message):
            soup.averaged([finished, tmp_path / "other.pt"])


@pytest.mark.parametrize(("change", "anew"), [({"policy_width": 6}, "policy."), ({"first_look": 6}, "policy.first.")])
def test_a_policy_of_another_size_starts_afresh_and_the_rest_does_not(
    change: dict[str, int], anew: str, finished: Path, examples: Examples
) -> None:
    other = replace(TINY, model=replace(TINY.model, **change))
    fresh = training.start(other, CLASSES, examples).model.state_dict()
    recipe = replace(other, train=replace(TINY.train, start=str(finished)))
    own, stored = training.start(recipe, CLASSES, examples).model.state_dict(), checkpoint.read(finished)["model"]
    for key, value in own.items():
        if not training.is_scale(key):
            assert torch.equal(value, fresh[key] if key.startswith(anew) else stored[key]), key


def test_a_policy_can_learn_alone_on_a_finished_model(
    finished: Path, examples: Examples, validation: Examples, tmp_path: Path
) -> None:
    how = {"start": str(finished), "policy_only": True, "imitation": 1.0, "epochs": 2, "qat_epochs": 2}
    recipe = replace(TINY, model=replace(TINY.model, first_look=6)).changed(train=how)
    train(recipe, CLASSES, examples, validation, tmp_path / "model.pt")
    before, after = load_model(finished), load_model(tmp_path / "model.pt")
    assert before[0].head.deploy
    assert after[0].head.deploy
    stored, own = before[0].state_dict(), after[0].state_dict()
    for key, value in own.items():
        if not key.startswith("policy."):
            assert torch.equal(value, stored[key]), key  # integer scales and statistics included
    fresh = training.start(recipe, CLASSES, examples).model.policy
    assert not torch.equal(after[0].policy.from_descriptor.weight, fresh.from_descriptor.weight)
    assert not torch.equal(after[0].policy.first.weight, fresh.first.weight)
    answers = [evaluate(model, validation, "fps_order").logits for model in (before[0], after[0])]
    assert np.array_equal(*answers)


def test_a_policy_cannot_learn_alone_on_nothing(finished: Path, examples: Examples) -> None:
    with pytest.raises(ConfigError, match=r"needs train\.start"):
        TINY.changed(train={"policy_only": True})
    with pytest.raises(ConfigError, match=r"train\.logit_adjustment"):
        TINY.changed(train={"policy_only": True, "start": str(finished), "logit_adjustment": 0.5})
    recipe = TINY.changed(train={"policy_only": True, "start": str(finished)})
    with pytest.raises(ConfigError, match="classes are not those"):
        training.start(recipe, CLASSES[:-1], examples)


def test_the_policy_learns_at_its_own_pace(examples: Examples) -> None:
    def first_move(rate: float) -> tuple[float, float]:
        run = training.start(TINY.changed(train={"policy_learning_rate_factor": rate}), CLASSES, examples)
        before = {name: p.detach().clone() for name, p in run.model.named_parameters()}
        training._update(run, sum(p.sum() for p in run.model.parameters()), 0.5, 0)
        moved = {name: float((p - before[name]).abs().max()) for name, p in run.model.named_parameters()}
        return moved["policy.weight"], moved["readout.bias"]

    policy, other = first_move(1.0)
    faster, same = first_move(5.0)
    assert faster == pytest.approx(5.0 * policy, rel=1e-3)
    assert same == other


def test_a_stage_refuses_weights_of_another_size(finished: Path, examples: Examples, tmp_path: Path) -> None:
    wider = replace(TINY, model=replace(TINY.model, width=9), train=replace(TINY.train, start=str(finished)))
    with pytest.raises(ConfigError, match="does not fit this recipe's"):
        training.start(wider, CLASSES, examples)
    nowhere = replace(TINY, train=replace(TINY.train, start=str(tmp_path / "none.pt")))
    with pytest.raises(MissingError, match=r"none\.pt"):
        training.start(nowhere, CLASSES, examples)


def carved(monkeypatch: pytest.MonkeyPatch) -> CloudSet:
    """Ten clouds: of 'shapes' six train, two validate, two calibrate; 'modelnet10' judges with three of them."""
    clouds = load_clouds("shapes", "train", n_points=64).subset(range(10))
    parts = {
        ("shapes", "train"): [0, 1, 2, 3, 4, 5],
        ("shapes", "validation"): [6, 7],
        ("shapes", "calibration"): [8, 9],
        ("modelnet10", "validation"): [1, 6],
        ("modelnet10", "calibration"): [4],
    }
    monkeypatch.setattr("asp_neuro.data.samples.locate", lambda name, data: Place(data or name))
    found = "asp_neuro.data.samples.load_clouds"
    monkeypatch.setattr(found, lambda place, split, **_: clouds.subset(parts[place.name, split]))
    return clouds


@pytest.mark.parametrize(
    ("data", "kept"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"without": ("modelnet10",)}, [0, 2, 3, 5]),
        ({"without": ("modelnet10/calibration",)}, [0, 1, 2, 3, 5]),
        ({"also": ("validation",)}, [0, 1, 2, 3, 4, 5, 6, 7]),
        ({"also": ("validation", "calibration"), "without": ("modelnet10",)}, [0, 2, 3, 5, 7, 8, 9]),
    ],
)
def test_which_clouds_a_recipe_trains_on(
    data: dict[str, tuple[str, ...]], kept: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    clouds = carved(monkeypatch)
    recipe = replace(TINY, data=DataRecipe("shapes", **data))
    found = workshop.training_clouds(recipe)
    assert found.names == workshop.training_clouds(recipe, "shapes").names == clouds.subset(kept).names
    assert np.array_equal(found.points, clouds.points[kept])
    assert np.array_equal(found.labels, clouds.labels[kept])


@pytest.mark.parametrize(
    ("stage", "own", "split"),
    [
        (DataRecipe("shapes"), DataRecipe("shapes"), None),
        (DataRecipe("shapes", also=("validation",)), DataRecipe("shapes"), "validation"),
        (DataRecipe("shapes", also=("validation",)), DataRecipe("shapes", also=("validation",)), None),
        (DataRecipe("shapes"), DataRecipe("modelnet10"), "validation"),
        (DataRecipe("shapes", without=("modelnet10/validation",)), DataRecipe("modelnet10"), "calibration"),
        (DataRecipe("shapes", without=("modelnet10",)), DataRecipe("modelnet10"), None),
    ],
)
def test_a_stage_that_saw_clouds_that_are_held_out_is_refused(
    stage: DataRecipe, own: DataRecipe, split: str | None, finished: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    carved(monkeypatch)
    stored = checkpoint.read(finished)
    first, second = tmp_path / "first.pt", tmp_path / "second.pt"
    clean = DataRecipe("shapes", without=("modelnet10",))
    for path, data, before in ((first, stage, ""), (second, clean, str(first))):  # two stages later it still counts
        recipe = replace(TINY, data=data, train=replace(TINY.train, start=before))
        checkpoint.save(path, {**stored, "recipe": recipe.as_dict()})
        asked = replace(TINY, data=own, train=replace(TINY.train, start=str(path)))
        with pytest.raises(ConfigError, match=f" {split} clouds") if split else contextlib.nullcontext():
            workshop._check_start(asked, None, None)


def test_a_cloud_is_known_again_with_fewer_points(finished: Path, tmp_path: Path) -> None:
    stage = replace(TINY, data=DataRecipe("shapes", also=("validation",)))
    checkpoint.save(tmp_path / "stage.pt", {**checkpoint.read(finished), "recipe": stage.as_dict()})
    fewer = replace(TINY.chunking, n_points=48)
    own = replace(TINY, scene=fewer, train=replace(TINY.train, start=str(tmp_path / "stage.pt")))
    with pytest.raises(ConfigError, match="was trained on 400 of the 400 validation clouds"):
        workshop._check_start(own, None, None)


def test_weights_from_modelnet_may_start_a_training_on_clouds_of_ones_own(finished: Path, tmp_path: Path) -> None:
    stage = replace(TINY, data=DataRecipe("modelnet40", also=("validation",)))
    checkpoint.save(tmp_path / "stage.pt", {**checkpoint.read(finished), "recipe": stage.as_dict()})
    folder = tmp_path / "clouds"
    for number, points in enumerate(load_clouds("shapes", "train", n_points=64).points[:12]):
        (folder / "abc"[number % 3]).mkdir(parents=True, exist_ok=True)
        np.savetxt(folder / "abc"[number % 3] / f"{number}.xyz", points)
    own = replace(TINY, train=replace(TINY.train, start=str(tmp_path / "stage.pt")))
    workshop._check_start(own, str(folder), None)  # whose validation clouds are none of ModelNet's


FAULTS = """
import resource, sys
import torch
from asp_neuro.learn.workshop import keep_memory
torch.set_num_threads(1)
if sys.argv[1] == "keep":
    keep_memory()
torch.ones(16_000_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    torch.ones(16_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's; elsewhere keep_memory does nothing")
def test_freed_memory_is_kept_for_the_next_step() -> None:
    def faults(how: str) -> int:
        return int(subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, check=True).stdout)

    assert faults("keep") * 5 < faults("leave")
