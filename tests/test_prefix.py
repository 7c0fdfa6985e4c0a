"""Streaming is exact: carrying the state equals running the whole prefix again, bit for bit (Thm. S16)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import specs

from asp_neuro import bundle as bundles
from asp_neuro.bundle import Bundle
from asp_neuro.data import load_clouds
from asp_neuro.errors import CheckFailed
from asp_neuro.heads.soft.fast import FastHead
from asp_neuro.model import prefix
from asp_neuro.model.episode import Batch
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.model.prefix import compare, first_difference, recomputing, streaming
from asp_neuro.model.spec import Model
from asp_neuro.runtime.deployment import open_bundle
from asp_neuro.scenes.cloud import Chunking, Chunks

COMPACT = Chunking()  # G=64, K=16, M=16
MODELS_FOLDER = Path(prefix.__file__).parents[1] / "models"
RULES = (ExitRule(), ExitRule(0.7, certified=True))


def untrained(**parts: Any) -> Perceiver:
    rng = np.random.default_rng(0)
    model = specs.random_model(rng, 64, 64, n_classes=8, chunking=COMPACT, **parts)
    task = replace(model.task, classes=load_clouds("shapes", "test", n_points=64).classes)
    return Perceiver(replace(model, task=task))


def trained() -> Perceiver:
    return open_bundle("compact").perceiver


MODELS = {
    "untrained": untrained,
    "with a chunk layer": lambda: untrained(token_width=80),
    "with moments": lambda: untrained(moments=True),
    "with a first look": lambda: untrained(first_look=12),
    "with a small budget": lambda: untrained(budget=7),
    "trained": trained,
}


def shapes(perceiver: Perceiver, n: int | None = None) -> Chunks:
    """Test clouds of the built-in shapes."""
    clouds = load_clouds("shapes", "test", n_points=perceiver.spec.scene.chunking.n_points)
    clouds = clouds if n is None else clouds.subset(range(0, len(clouds), len(clouds) // n))
    return perceiver.scenes(clouds.points, clouds.names, cache=True)


@pytest.fixture(scope="module")
def some() -> tuple[Perceiver, Chunks]:
    perceiver = untrained()
    return perceiver, shapes(perceiver, 24)


@pytest.mark.parametrize("rule", RULES, ids=("budget", "exit"))
@pytest.mark.parametrize("model", MODELS)
def test_streaming_equals_the_prefix_form_bit_for_bit(model: str, rule: ExitRule) -> None:
    perceiver = MODELS[model]()
    chunks = shapes(perceiver, 24)
    report = compare(perceiver, [chunks[:15], chunks[15:]], rule)
    assert report["equal"]
    assert report["n"] == len(chunks) >= 24
    full = len(chunks) * perceiver.budget
    assert report["observations"] == full if rule.tau is None else report["observations"] < full


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=("budget", "exit"))
@pytest.mark.parametrize("model", MODELS)
def test_streaming_equals_the_prefix_form_over_the_whole_test_split(model: str, rule: ExitRule) -> None:
    perceiver = MODELS[model]()
    chunks = shapes(perceiver)
    report = compare(perceiver, [chunks[at : at + 128] for at in range(0, len(chunks), 128)], rule)
    assert report["equal"]
    assert report["n"] == 600


@pytest.mark.parametrize(("scorer", "mask"), [("geometry", True), ("belief", True), ("bilinear", False)])
def test_the_forms_agree_for_every_way_to_choose(some, scorer: str, mask: bool) -> None:
    assert compare(untrained(scorer=scorer, mask=mask), [some[1][:6]], ExitRule(0.4))["equal"]


def test_the_record_is_that_of_the_answers(some) -> None:
    perceiver, chunks = some
    for rule in RULES:
        answers, ends = perceiver.answers(chunks, rule), recomputing(perceiver, chunks, rule).ends
        told = [(a.order, a.labels, a.margins, a.exit) for a in answers]
        assert told == [(e.order, e.labels, e.margins, e.exit) for e in ends]


# Costs


def n_encoded(chunks: Chunks, orders: list[tuple[int, ...]]) -> tuple[int, int]:
    """Groups that the streaming form and the prefix form encode for these orders, from the record alone.

    Streaming: a group in two chunks once. Prefix: the same, but at every observation anew.
    """
    once = again = 0
    for belongs, order in zip(chunks.belongs(), orders, strict=True):
        seen = [int(belongs[list(order[:t])].any(axis=0).sum()) for t in range(1, len(order) + 1)]
        once += seen[-1]
        again += sum(seen)
    return once, again


@pytest.mark.parametrize("rule", RULES, ids=("budget", "exit"))
@pytest.mark.parametrize("model", ["untrained", "with a chunk layer"])
def test_the_prefix_form_costs_what_its_observations_do_again(model: str, rule: ExitRule) -> None:
    perceiver = MODELS[model]()
    chunks = shapes(perceiver, 24)
    report = compare(perceiver, [chunks[:10], chunks[10:]], rule)
    orders = [end.order for end in streaming(perceiver, chunks, rule).ends]
    taken = np.array([len(order) for order in orders])
    repeats = (taken * (taken + 1)).sum() / 2 / taken.sum()
    assert report["ratio"]["mixer"] == report["ratio"]["head"] == repeats
    once, again = n_encoded(chunks, orders)
    scene = perceiver.spec.scene
    per_chunk = scene.operations(0).macs
    per_group = scene.operations(1).macs - per_chunk
    assert (per_chunk > 0) == (model == "with a chunk layer")
    expected = {
        "streaming": once * per_group + taken.sum() * per_chunk,
        "prefix": again * per_group + (taken * (taken + 1)).sum() // 2 * per_chunk,
    }
    assert {form: report[form]["macs"]["encoder"] for form in expected} == expected
    assert report["ratio"]["encoder"] == expected["prefix"] / expected["streaming"]
    assert chunks.belongs().sum() > 1.2 * chunks.belongs().any(axis=1).sum()  # shared groups are many
    assert min(report[form]["seconds"] for form in expected) > 0.0  # which is quicker: benchmarks/streaming.py


def test_at_full_budget_the_prefix_form_costs_half_of_m_plus_one_times_as_much(some) -> None:
    perceiver, chunks = some
    ratio = compare(perceiver, [chunks], ExitRule())["ratio"]
    assert ratio["mixer"] == ratio["head"] == (perceiver.budget + 1) / 2 == 8.5


def test_macs_by_hand() -> None:
    rng = np.random.default_rng(1)
    perceiver = specs.random_perceiver(rng)  # D = H = 16, L = 2, edges 8 and 12, K = 8, M = 6
    chunks = perceiver.scenes(specs.random_clouds(rng, 3))
    macs = streaming(perceiver, chunks, ExitRule()).macs
    n_groups = int(chunks.belongs().any(axis=1).sum())  # every group is encoded once
    assert n_groups == 3 * 16 < chunks.belongs().sum()
    assert macs["encoder"] == n_groups * (8 * (6 * 8 + 8 * 12) + 15 * 16 + 16 * 16)
    assert macs["mixer"] == 3 * 6 * (16 * 80 + 2 * 16)
    assert macs["head"] == 3 * 6 * 2 * 16 * 16


# Planted faults: each makes the streaming form wrong, and the comparison must say so


def carry_through(patch: pytest.MonkeyPatch, given: Callable[[list[np.ndarray]], np.ndarray]) -> None:
    """The streaming form is given this, of all carries so far, wherever it takes up its carry."""

    def keep(batch: Batch, carry: np.ndarray) -> None:
        vars(batch).setdefault("carries", []).append(carry)

    patch.setattr(Batch, "carry", property(lambda batch: given(batch.carries), keep), raising=False)


def stale_carry(patch: pytest.MonkeyPatch) -> None:
    """The carry is not taken up: every step starts from the one it was given first."""
    carry_through(patch, lambda carries: carries[0][: len(carries[-1])])


def carry_of_another_cloud(patch: pytest.MonkeyPatch) -> None:
    carry_through(patch, lambda carries: np.roll(carries[-1], 1, axis=0))


def tokens_that_were_never_encoded(patch: pytest.MonkeyPatch) -> None:
    """A shared group is taken as known before anything was seen of it."""
    begin = Batch.__init__

    def wrong(batch: Batch, model: Model, chunks: Chunks) -> None:
        begin(batch, model, chunks)
        batch.view.tokens[:] = 0.0
        batch.view.known.reshape(len(batch.rows), -1)[:, -8:] = True

    patch.setattr(Batch, "__init__", wrong)


def membranes_of_another_cloud(patch: pytest.MonkeyPatch) -> None:
    keep = FastHead.keep

    def wrong(head: FastHead, rows: np.ndarray) -> None:
        keep(head, rows)
        head.membranes[0] = np.roll(head.membranes[0], 1, axis=0)

    patch.setattr(FastHead, "keep", wrong)


def spikes_forgotten(patch: pytest.MonkeyPatch) -> None:
    keep = FastHead.keep

    def wrong(head: FastHead, rows: np.ndarray) -> None:
        keep(head, rows)
        head.spikes = [np.zeros_like(s) for s in head.spikes]

    patch.setattr(FastHead, "keep", wrong)


@pytest.mark.parametrize("rule", RULES, ids=("budget", "exit"))
@pytest.mark.parametrize(
    "plant",
    [stale_carry, carry_of_another_cloud, tokens_that_were_never_encoded, membranes_of_another_cloud, spikes_forgotten],
    ids=lambda f: f.__name__,
)
def test_a_wrong_carry_is_caught(some, plant, rule: ExitRule) -> None:
    perceiver, chunks = some
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        with pytest.raises(CheckFailed, match=r"differ, in the batch from cloud 0: observation [1-4]"):
            compare(perceiver, [chunks], rule)


def test_a_single_bit_is_caught(some) -> None:
    perceiver, chunks = some
    one, other = streaming(perceiver, chunks, ExitRule()), recomputing(perceiver, chunks, ExitRule())
    assert first_difference(one, other) is None
    belief = other.states[6].belief
    belief[3, 5] = np.nextafter(belief[3, 5], np.inf)
    assert first_difference(one, other) == "observation 7, cloud 3: belief differs in 1 places of the batch"


# The flag


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    model = untrained().spec
    golden = specs.golden(model, specs.random_drives(np.random.default_rng(2), 4, 2, 64))
    bundles.write(tmp_path / "model.net", Bundle(model, {"name": "random", "data": {"name": "shapes"}}, golden))
    return tmp_path / "model.net"


def test_run_prefix_reports_both_costs(cli, shipped: Path) -> None:
    words = ("run", str(shipped), "--limit", "5", "--batch", "2", "--no-exit", "--prefix")
    report = cli(*words, "--json").json["prefix"]
    assert report["equal"] is True
    assert (report["n"], report["observations"]) == (5, 80)
    assert report["ratio"]["head"] == report["prefix"]["macs"]["head"] / report["streaming"]["macs"]["head"] == 8.5
    assert "the same bits in all 80 observations" in cli(*words).out


def test_run_prefix_ends_with_code_1_when_a_carry_is_wrong(cli, shipped: Path, monkeypatch) -> None:
    stale_carry(monkeypatch)
    said = cli("run", str(shipped), "--limit", "2", "--no-exit", "--prefix")
    assert said.code == 1
    assert "streaming and prefix form differ" in said.err
