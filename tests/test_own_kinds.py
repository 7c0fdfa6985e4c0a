"""A scene, a task and nothing else of one's own: brought through episode, bundle, run, certificate and verify.

The package is not changed: a kind is a class and an entry in one public dictionary. The scene is a line of numbers in
cells, the task says of both halves of the line whether its mean is positive (two targets).
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import specs

from asp_neuro import bundle as bundles
from asp_neuro import scenes, tasks
from asp_neuro.bundle import Bundle, make_golden
from asp_neuro.errors import InputError
from asp_neuro.grid.arithmetic import BELIEF_BITS, BIAS_BITS, SIGNED_MAX, Linear, Product, on_grid, to_range
from asp_neuro.grid.operations import Operations
from asp_neuro.grid.sections import Affine, Array, Matrix, Norm, check, leaf, part, random
from asp_neuro.grid.softmax import margin_operations, probabilities
from asp_neuro.model.exit import ExitReason, ExitRule
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.model.policy import PolicySpec
from asp_neuro.model.prefix import compare
from asp_neuro.model.spec import ModelSpec
from asp_neuro.runtime import deployment
from asp_neuro.runtime.machine import FAST, Machine
from asp_neuro.runtime.verification import verify

N_CELLS, PER_CELL = 9, 4
WIDTH = 12


@dataclass(frozen=True)
class Lines:
    """A batch of lines, cut into cells."""

    cells: Array = leaf("i2", "n", "M", "k")

    def __len__(self) -> int:
        return len(self.cells)

    def __getitem__(self, index) -> Lines:
        return Lines(self.cells[index])


@dataclass(frozen=True)
class LineSpec:
    """A cell's numbers through one layer."""

    kind: ClassVar[str] = "line"
    batch: ClassVar[type] = Lines

    cell: Affine = part("w", "k")
    n_places: int = N_CELLS

    def __post_init__(self) -> None:
        check(self, "scene")

    @property
    def width(self) -> int:
        return self.cell.n_outputs

    @property
    def descriptor_bound(self) -> np.ndarray:
        return np.array([1.0, 1.0, 1.0])

    def scenes(self, inputs, names=None, cache=False) -> Lines:
        values = np.asarray(inputs)
        if values.ndim != 3 or values.shape[1:] != (N_CELLS, PER_CELL):
            raise InputError(f"lines of shape {list(values.shape)}, expected [n, {N_CELLS}, {PER_CELL}]")
        return Lines(np.clip(np.rint(values), -999, 999).astype(np.int16))

    def encoder(self) -> LineEncoder:
        return LineEncoder(self)

    def parts_of(self, batch: Lines) -> np.ndarray:
        return np.tile(np.eye(N_CELLS, dtype=bool), (len(batch), 1, 1))

    def operations(self, parts: float) -> Operations:
        return Operations(mac16=parts * self.cell.weight.size)


class LineEncoder:
    def __init__(self, spec: LineSpec) -> None:
        self.layer = Linear("scene: cell", spec.cell, 999.0)

    def view(self, batch: Lines) -> LineView:
        return LineView(self, batch)


class LineView:
    def __init__(self, encoder: LineEncoder, batch: Lines) -> None:
        self.encoder, self.cells, self.macs = encoder, batch.cells.astype(np.float32), 0
        place = np.broadcast_to(np.linspace(-1, 1, N_CELLS), self.cells.shape[:2])
        spread = np.ptp(self.cells, axis=2) / 2048.0
        self.descriptors = on_grid(np.stack([place, spread, self.cells[..., 0] / 1024.0], axis=2), 16)

    def embed(self, rows: np.ndarray, place: np.ndarray) -> np.ndarray:
        self.macs += len(rows) * self.encoder.layer.weight.size
        return to_range(self.encoder.layer(self.cells[rows, place]) + self.encoder.layer.bias, -SIGNED_MAX, SIGNED_MAX)


@dataclass(frozen=True)
class SignsSpec:
    """Two targets (left half, right half), two labels; only the target enters the offset."""

    kind: ClassVar[str] = "signs"

    weight: Matrix = part(2, "H")
    offset: Array = leaf("i4", 2, 2)  # [target, label], in units of 2^-BIAS_BITS
    classes: tuple[str, ...] = ("negative", "positive")

    def __post_init__(self) -> None:
        check(self, "task")

    @property
    def n_inputs(self) -> int:
        return self.weight.weight.shape[1]

    def task(self, belief_bound: np.ndarray) -> Signs:
        return Signs(self, belief_bound)

    def operations(self) -> Operations:
        return Operations(mac32=self.weight.weight.size, float64=2 * margin_operations(2))


class Signs:
    def __init__(self, spec: SignsSpec, belief_bound: np.ndarray) -> None:
        self.product = Product("task: weight", spec.weight, belief_bound, BELIEF_BITS)
        self.weight = self.product.weight
        self.offset = spec.offset * 2.0**-BIAS_BITS

    def logits(self, belief, view, rows) -> np.ndarray:
        return self.product(belief)[:, None, :] + self.offset

    def pool(self, margins) -> np.ndarray:
        return margins.min(axis=1)

    def label(self, logits) -> np.ndarray:
        return logits.argmax(axis=2)

    def shares(self, logits) -> np.ndarray:
        return probabilities(logits)

    def loss(self, label, truth) -> np.ndarray:
        return (np.asarray(label) != truth).mean(axis=1)


@dataclass(frozen=True)
class LineSet:
    """Labelled lines: what `run` and `certify` are fed with."""

    inputs: np.ndarray
    labels: np.ndarray
    names: tuple[str, ...]
    classes: tuple[str, ...]
    source: str = "lines"

    def __len__(self) -> int:
        return len(self.names)

    def hashes(self) -> list[str]:
        return [hashlib.sha256(line.tobytes()).hexdigest() for line in self.inputs]

    def sha256(self) -> str:
        return hashlib.sha256("".join(self.hashes()).encode()).hexdigest()


def lines(seed: int, n: int) -> np.ndarray:
    return np.rint(np.random.default_rng(seed).normal(0.0, 300.0, (n, N_CELLS, PER_CELL))).clip(-999, 999)


@pytest.fixture
def own_kinds(monkeypatch):
    monkeypatch.setitem(scenes.KINDS, LineSpec.kind, LineSpec)
    monkeypatch.setitem(tasks.KINDS, SignsSpec.kind, SignsSpec)


def model(task: str = "signs", budget: int = 5) -> ModelSpec:
    rng = np.random.default_rng(1)
    draw = specs.random_draw(rng)
    neurons = 16
    asked = (
        random(SignsSpec, {"H": neurons}, signs_draw(rng)) if task == "signs" else specs.random_task(rng, neurons, 3)
    )
    if task != "signs":
        asked = dataclasses.replace(asked, classes=("flat", "steep", "odd"))
    return ModelSpec(
        scene=random(LineSpec, {"w": WIDTH, "k": PER_CELL}, draw),
        mixer=specs.random_mixer(rng, WIDTH),
        head=specs.random_head(rng, WIDTH, neurons),
        belief=random(Norm, {"n": neurons}, draw),
        policy=random(PolicySpec, {"d": 6, "H": neurons, "g": 3}, draw, absent=("first",)),
        task=asked,
        budget=budget,
    )


def signs_draw(rng):
    def draw(path, shape):
        if path == "weight/shift":
            return np.full(shape, 6)
        spread, most = (45.0, 127) if path == "weight/weight" else (2.0**BIAS_BITS, 2**14)
        return np.rint(rng.normal(0.0, spread, shape)).clip(-most, most)

    return draw


def stored(spec: ModelSpec, path) -> deployment.Deployed:
    """Through the file and back."""
    golden = make_golden(spec, Perceiver(spec).drives(spec.scene.scenes(lines(0, 3))), lines(5, 2).astype(np.int16))
    bundles.write(path, Bundle(spec, {"name": "own", "data": {"name": "lines"}}, golden))
    return deployment.open_bundle(path)


def test_an_episode_over_five_of_nine_places(own_kinds):
    perceiver = Perceiver(model())
    batch = perceiver.scenes(lines(2, 20))
    answers = perceiver.answers(batch, ExitRule(0.95))
    assert {len(set(a.order)) for a in answers} <= {1, 2, 3, 4, 5}
    assert {a.observations for a in answers} > {5}
    assert all(a.label.shape == (2,) and a.probabilities.shape == (2, 2) for a in answers)
    assert all(a.verdict is not None for a in answers)
    exact = perceiver.replay(batch, ExitRule(0.95))
    for answer, sure in zip(answers, exact, strict=True):
        assert not answer.verdict.preserved or (answer.order == sure.order and (answer.label == sure.label).all())
    alone = [perceiver.answers(batch[i : i + 1], ExitRule(0.95))[0] for i in range(20)]
    assert [a.margins for a in alone] == [a.margins for a in answers]


def test_streaming_equals_prefix_for_it(own_kinds):
    perceiver = Perceiver(model("classify"))
    assert compare(perceiver, [perceiver.scenes(lines(3, 12))], ExitRule(0.2))["equal"]


def test_a_bundle_holds_it(own_kinds, tmp_path):
    spec = model()
    deployed = stored(spec, tmp_path / "own.net")
    assert isinstance(deployed.bundle.model.scene, LineSpec)
    assert isinstance(deployed.bundle.model.task, SignsSpec)
    assert deployed.bundle.model.budget == 5
    assert bundles.golden_mismatches(deployed.bundle) == 0
    batch = spec.scene.scenes(lines(4, 6))
    mine, theirs = Perceiver(spec).answers(batch), deployed.perceiver.answers(batch)
    assert [(a.order, a.margins) for a in mine] == [(a.order, a.margins) for a in theirs]
    assert "line" in bundles.describe(deployed.bundle)


def test_without_the_entry_the_file_is_refused_by_name(own_kinds, tmp_path, monkeypatch):
    stored(model(), tmp_path / "own.net")
    monkeypatch.delitem(scenes.KINDS, LineSpec.kind)
    with pytest.raises(InputError, match="scene 'line' is not known; known: cloud"):
        bundles.read(tmp_path / "own.net")


def labelled(deployed: deployment.Deployed, seed: int, n: int) -> LineSet:
    """Labels are what the model itself says at margin 0.5, one in forty another one: there it is right in 97.5 %."""
    raw = lines(seed, n)
    perceiver, classes = deployed.perceiver, deployed.bundle.classes
    label = np.array([a.label for a in perceiver.answers(perceiver.scenes(raw), ExitRule(0.5))])
    targets = label.reshape(n, -1)
    targets[::40, 0] = (targets[::40, 0] + 1) % len(classes)  # of two targets the first alone
    return LineSet(raw, label, tuple(f"line {i}" for i in range(n)), classes)


def certified(task: str, path) -> tuple[deployment.Deployed, deployment.Certification]:
    deployed = stored(model(task), path)
    splits = {
        name: labelled(deployed, seed, n)
        for name, seed, n in (("train", 10, 5), ("validation", 11, 400), ("calibration", 12, 900))
    }
    found = deployment.certify_on(deployed, splits, alpha=0.1)
    deployment.store(deployed, found)
    return deployment.open_bundle(path), found


@pytest.mark.parametrize("task", ["signs", "classify"])
def test_run_certificate_and_certified_exit(own_kinds, tmp_path, task):
    again, found = certified(task, tmp_path / "own.net")
    assert again.certificate == found.certificate
    assert again.certificate.certified
    rule, promise = deployment.exit_rule(again)
    assert "at most 10 %" in promise
    report, answers = deployment.run(again, labelled(again, 13, 300), rule)
    assert report["n"] == 300
    assert report["budget"] == 5
    assert report["certified_share"] > 0.2
    assert 0 < report["certified_risk"] < 0.2
    assert {a.exit for a in answers} <= {ExitReason.CERTIFIED, ExitReason.BUDGET}
    assert report["mean_observations"] < 5


def test_an_answer_with_one_wrong_target_of_two_is_wrong_and_half_accurate(own_kinds, tmp_path):
    deployed = stored(model(), tmp_path / "own.net")
    raw, written = lines(14, 8), []
    truth = np.array([a.label for a in deployed.perceiver.answers(deployed.perceiver.scenes(raw))])
    truth[3, 0] = 1 - truth[3, 0]
    samples = LineSet(raw, truth, tuple("abcdefgh"), deployed.bundle.classes)
    report, answers = deployment.run(deployed, samples, ExitRule(0.0, certified=True), on_line=written.append)
    assert {a.observations for a in answers} == {1}
    recorded = deployment.record(deployed, samples)
    np.testing.assert_array_equal(recorded.correct[-1], np.arange(8) != 3)
    first = np.array([a.label for a in answers]) != truth
    np.testing.assert_array_equal(recorded.correct[0], ~first.any(axis=1))
    assert report["accuracy"] == 1.0 - first.mean()
    assert report["certified_risk"] == first.any(axis=1).mean()
    names = np.array(deployed.bundle.classes)
    assert written[3]["truth"] == names[truth[3]].tolist()
    assert written[3]["class"] == names[answers[3].label].tolist()


def test_unknown_labels_give_no_accuracy_and_no_certificate(own_kinds, tmp_path):
    deployed = stored(model(), tmp_path / "own.net")
    truth = np.zeros((4, 2), dtype=np.int64)
    truth[2, 1] = -1
    samples = LineSet(lines(15, 4), truth, tuple("abcd"), deployed.bundle.classes)
    assert deployment.run(deployed, samples, ExitRule())[0]["accuracy"] is None
    with pytest.raises(InputError, match=r"1 of 4 samples have no label \(the first is sample 2\)"):
        deployment.record(deployed, samples)
    flat = dataclasses.replace(samples, labels=np.zeros(4, dtype=np.int64))
    with pytest.raises(InputError, match=r"labels of shape \(4, 2\), the true ones have shape \(4,\)"):
        deployment.run(deployed, flat, ExitRule())


@pytest.mark.parametrize("task", ["signs", "classify"])
def test_verify_compares_it_and_finds_a_planted_fault(own_kinds, tmp_path, task):
    deployed = stored(model(task), tmp_path / "own.net")
    batch = deployed.bundle.model.scene.scenes(lines(6, 8))
    ids = [f"line {i}" for i in range(8)]
    found = verify(deployed.bundle, batch, ids, ExitRule(0.2))
    assert found.mismatches == 0
    assert found.compared["answers"] == found.compared["orders"] == 8

    def faulty(spec, drives_int):
        membranes, spikes = FAST.run_head(spec, drives_int)
        membranes[2, 0, 1, 3] += 1
        return membranes, spikes

    assert verify(deployed.bundle, batch, ids, ExitRule(), {"faulty": Machine("faulty", faulty)}).mismatches > 0


@pytest.mark.slow
@pytest.mark.lava
def test_its_head_runs_on_lava(own_kinds, tmp_path):
    from asp_neuro.chip.machines import SIMULATOR

    deployed = stored(model("classify"), tmp_path / "own.net")
    drives = deployed.perceiver.drives(deployed.bundle.model.scene.scenes(lines(6, 2)))
    membranes, spikes = SIMULATOR.run_head(deployed.bundle.head, drives)
    expected = deployed.bundle.head.reference(drives)
    np.testing.assert_array_equal(membranes, expected.membranes)
    np.testing.assert_array_equal(spikes, expected.spikes)


def test_an_audit_of_many_targets_leaves_out_what_asks_for_one_class_and_says_so(own_kinds):
    from asp_neuro.studies.audits.run import Audited, left_out, rows_of

    perceiver = Perceiver(model())
    truth = np.random.default_rng(3).integers(0, 2, (30, 2))
    audited = Audited("own", perceiver, None, None, 0.3, 0.05, 0.05, "as asked")
    rows = rows_of(audited, perceiver.scenes(lines(2, 30)), truth)
    assert {row.theorem for row in rows} == {
        "S16", "S17", "S18", "S6", "S7", "J.6", "G.5", "S11a", "S11b", "S12", "Table S3", "J.2", "S14", "S15",
    }  # fmt: skip
    assert rows[0].verdict == "holds"
    (words,) = left_out(perceiver, rows)
    assert "S2" in words
    assert "'signs' has many targets" in words


def test_an_audit_of_a_scene_of_ones_own_with_a_class_has_every_row(own_kinds):
    from asp_neuro.studies.audits.run import Audited, left_out, rows_of

    perceiver = Perceiver(model("classify"))
    truth = np.arange(30) % 3
    audited = Audited("own", perceiver, None, None, 0.3, 0.05, 0.05, "as asked")
    rows = rows_of(audited, perceiver.scenes(lines(2, 30)), truth)
    assert len(rows) == 30
    assert left_out(perceiver, rows) == []
