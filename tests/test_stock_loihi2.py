"""`--backend=loihi2` for heads of stock processes, on the stand-in: what a chip does wrong is noticed and named."""

from __future__ import annotations

import json

import numpy as np
import pytest
import specs
from loihi2_place import FIRST_DOWN
from stock_specs import random_stock_drives, random_stock_head

from asp_neuro.chip import preflight
from asp_neuro.chip.machines import LOIHI2
from asp_neuro.chip.preflight import NotExpressible, OnHost, typed
from asp_neuro.chip.session import SessionError
from asp_neuro.chip.stock_shadow import Differs, Golden, Shadow, TooLate, beats, lag, stream
from asp_neuro.heads.stock.reference import run_stream
from asp_neuro.model.exit import ExitReason, ExitRule
from asp_neuro.runtime.deployment import answered

STEPS = 12


@pytest.fixture(scope="module")
def perceiver():
    rng = np.random.default_rng(21)
    return specs.random_perceiver(rng, head=random_stock_head(rng, 16, 16, 2, STEPS, 3))


@pytest.fixture(scope="module")
def scenes(perceiver):
    return perceiver.scenes(specs.random_clouds(np.random.default_rng(12), 3))


def answer(perceiver, scenes, rule=None):
    return answered(LOIHI2, perceiver, scenes, rule or ExitRule(), len(scenes), lambda index, answer: None)


# Before the session


def test_no_entry_point_is_needed(place, perceiver):
    place.sinfo(*FIRST_DOWN)
    place.offers()
    assert preflight.blockers(perceiver) == []
    ticked = specs.random_perceiver(np.random.default_rng(11))
    assert [type(error) for error in preflight.blockers(ticked)] == [NotExpressible]


# On the stand-in


@pytest.mark.lava
@pytest.mark.slow
@pytest.mark.parametrize(
    ("ways", "read"), [("0,0", "1"), ("1,0", "1"), ("2,1", "1"), ("3,1", "2"), ("4,1", "3"), ("5,1", "3")]
)
def test_every_latency_that_fits_gives_the_answers_of_the_fast_engine(
    place, monkeypatch, tmp_path, perceiver, scenes, ways, read
):
    place.sinfo(*FIRST_DOWN)
    place.offers()
    monkeypatch.setenv("STAND_IN_DELAYS", ways)
    monkeypatch.setenv("STAND_IN_READ", read)
    monkeypatch.setenv("ASP_NEURO_PULSE", str(tmp_path / "pulse.json"))
    full = perceiver.answers(scenes, ExitRule())
    rule = ExitRule(tau=float(np.sort([max(found.margins) for found in full])[:2].mean()))
    want = perceiver.answers(scenes, rule)
    assert {found.exit for found in want} == {ExitReason.THRESHOLD, ExitReason.BUDGET}
    for ours, theirs in zip(answer(perceiver, scenes, rule), want, strict=True):
        np.testing.assert_array_equal(ours.membrane, theirs.membrane)
        assert (ours.order, ours.exit, ours.labels) == (theirs.order, theirs.exit, theirs.labels)
        assert ours.verdict == theirs.verdict
    pulse = json.loads((tmp_path / "pulse.json").read_text())
    assert pulse["latency"] == int(ways.split(",")[0]) + 1 + int(read)
    assert pulse["reset"] == "write"


@pytest.mark.lava
@pytest.mark.slow
@pytest.mark.parametrize("way", ["set,silence", "silence"])
def test_other_ways_to_reset_give_the_same_answers(place, monkeypatch, tmp_path, perceiver, scenes, way):
    place.sinfo(*FIRST_DOWN)
    monkeypatch.setenv("ASP_NEURO_RESET", way)
    monkeypatch.setenv("ASP_NEURO_PULSE", str(tmp_path / "pulse.json"))
    for ours, theirs in zip(answer(perceiver, scenes), perceiver.answers(scenes, ExitRule()), strict=True):
        np.testing.assert_array_equal(ours.membrane, theirs.membrane)
    assert json.loads((tmp_path / "pulse.json").read_text())["reset"] == way.split(",")[0]


@pytest.mark.lava
@pytest.mark.slow
def test_a_chip_that_cannot_be_written_to_is_put_to_rest_by_silence(place, monkeypatch, tmp_path, perceiver, scenes):
    place.sinfo(*FIRST_DOWN)
    monkeypatch.setenv("STAND_IN_FAULT", "deaf")
    monkeypatch.setenv("ASP_NEURO_PULSE", str(tmp_path / "pulse.json"))
    for ours, theirs in zip(answer(perceiver, scenes), perceiver.answers(scenes, ExitRule()), strict=True):
        np.testing.assert_array_equal(ours.membrane, theirs.membrane)
    assert json.loads((tmp_path / "pulse.json").read_text())["reset"] == "silence"


@pytest.mark.lava
@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("leak", r"golden pulse: .*: every layer leaks by 1 of 4096 more"),
        ("hard reset", r"golden pulse: .*: a spike puts u back to 0: the neurons reset hard"),
        ("read sign", r"golden pulse: .*: the sign of what is read is lost or turned"),
        ("drive sign", r"golden pulse: .*: the sign of the drive is turned"),
        ("reset 3", r"scene 2, observation 1: .*; it looks as if the reset before this scene was missed"),
        ("drop 4", r"scene 1, observation 2: .*; it looks as if the drive did not arrive"),
    ],
)
def test_what_the_chip_does_wrong_is_noticed_and_named(place, monkeypatch, perceiver, scenes, fault, said):
    place.sinfo(*FIRST_DOWN)
    monkeypatch.setenv("STAND_IN_FAULT", fault)
    with pytest.raises(Differs, match=said) as caught:
        answer(perceiver, scenes)
    assert caught.value.exit_code == 1
    if "golden" in said:
        assert "expected of neuron" in str(caught.value)
        assert "read:" in str(caught.value)


@pytest.mark.lava
@pytest.mark.slow
def test_a_latency_that_does_not_fit_names_the_steps_that_would(place, monkeypatch, perceiver, scenes):
    place.sinfo(*FIRST_DOWN)
    monkeypatch.setenv("STAND_IN_DELAYS", "7,1")
    monkeypatch.setenv("STAND_IN_READ", "3")
    with pytest.raises(
        TooLate, match=r"takes 11 time steps: an observation needs 14, this bundle has 12; .* --steps 14"
    ):
        answer(perceiver, scenes)


@pytest.mark.lava
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "words"), [("lif", "neurons .PyLif"), ("dense", "synapses .PyDense")])
def test_neurons_and_synapses_without_a_neuro_core_are_refused(place, perceiver, scenes, kind, words):
    place.sinfo(*FIRST_DOWN)
    place.without(f"lava/proc/{kind}/ncmodels.py")
    with pytest.raises(OnHost, match=words):
        answer(perceiver, scenes)


# Without Lava


def test_errors_of_the_running_host_keep_their_kind():
    told = SessionError(
        "Lava session: host (PyStockChipHostModel) failed in phase spiking at time step 9: Differs: x: y"
    )
    assert isinstance(typed(told), Differs)
    assert str(typed(told)) == "x: y"
    late = SessionError("Lava session: host (PyStockChipHostModel) failed in phase spiking at time step 9: TooLate: z")
    assert isinstance(typed(late), TooLate)
    assert str(typed(late)) == "z"


def test_the_shadows_stream_is_the_reference():
    rng = np.random.default_rng(4)
    head = random_stock_head(rng, 6, 8, 3)
    drives = random_stock_drives(rng, 4, 1, 6)
    told = stream(head, beats(head, [drive[0] for drive in drives]))
    assert np.array_equal(told, run_stream(head, drives).membranes[:, -1, 0])


@pytest.mark.parametrize("late", [0, 1, 5])
def test_the_golden_pulse_finds_every_lag_and_no_wrong_stream(late):
    head = random_stock_head(np.random.default_rng(4), 6, 8, 2, 12, 3)
    golden = Golden(head, None, 24)
    found = np.concatenate([np.zeros((late, 8), dtype=np.int64), golden.expected])
    assert golden.latency(found) == late
    assert golden.fits(found, late)
    off = found.copy()
    off[late + 7, 2] += 1
    assert lag(golden.expected, off) is None
    with pytest.raises(Differs, match="golden pulse"):
        golden.latency(off)
    with pytest.raises(Differs, match="nothing arrives, every membrane stays 0"):
        golden.latency(0 * found)


def test_the_golden_pulse_makes_every_layer_fire():
    for seed in range(5):
        head = random_stock_head(np.random.default_rng(seed), 16, 16, 2, 12, 3)
        golden = Golden(head, None, 24)
        assert (golden.expected > head.layers[-1].threshold_int).any()


def test_the_shadow_accepts_the_engines_reading_and_no_other():
    rng = np.random.default_rng(2)
    head = random_stock_head(rng, 6, 8, 2)
    drives = random_stock_drives(rng, 3, 1, 6)[:, 0]
    want = run_stream(head, drives[:, None]).membranes[head.read_after :: head.steps, -1, 0]
    shadow = Shadow(head, 3, None)
    shadow.start()
    for t, drive in enumerate(drives):
        shadow.observe(drive)
        shadow.compare(want[t])
        with pytest.raises(Differs, match=f"scene 1, observation {t + 1}: 1 of 8 membranes"):
            shadow.compare(want[t] + np.eye(8, dtype=np.int64)[3])
