"""Stock heads on the Lava simulator: stock processes and our host only, bit for bit the fast engine."""

from __future__ import annotations

import os

import numpy as np
import pytest
import specs
from stock_specs import random_stock_drives, random_stock_head

from asp_neuro.chip import session
from asp_neuro.chip.session import SessionError
from asp_neuro.errors import UsageError
from asp_neuro.model.exit import ExitReason, ExitRule


@pytest.mark.lava
@pytest.mark.slow
@pytest.mark.parametrize("n_layers", [1, 2, 3])
def test_every_layer_gives_the_reference_bit_for_bit_through_resets(n_layers):
    rng = np.random.default_rng(n_layers)
    head = random_stock_head(rng, 10, 12, n_layers, steps=7, read_after=3)
    drives = random_stock_drives(rng, 5, 6, 10)
    found, want = session.run_head(head, drives, deadline=120.0), head.reference(drives)
    np.testing.assert_array_equal(found.membranes, want.membranes)
    np.testing.assert_array_equal(found.spikes, want.spikes)
    assert 0.02 < want.spikes.mean() < 0.7


@pytest.mark.lava
@pytest.mark.slow
def test_the_weight_exponent_means_the_same_on_lava():
    from dataclasses import replace

    rng = np.random.default_rng(9)
    head = random_stock_head(rng, 10, 12, 2, steps=6, read_after=2)
    last = head.layers[1]
    head = replace(head, layers=(head.layers[0], replace(last, weight_exp=2, threshold_int=4 * last.threshold_int)))
    drives = random_stock_drives(rng, 4, 2, 10)
    found, want = session.run_head(head, drives, deadline=120.0), head.reference(drives)
    np.testing.assert_array_equal(found.membranes, want.membranes)


@pytest.mark.lava
@pytest.mark.slow
def test_a_closed_loop_with_early_exits_gives_every_printed_number_of_the_fast_engine():
    rng = np.random.default_rng(31)
    perceiver = specs.random_perceiver(rng, head=random_stock_head(rng, 16, 16, 2, 9, 3))
    scenes = perceiver.scenes(specs.random_clouds(rng, 6))
    full = perceiver.answers(scenes, ExitRule())
    rule = ExitRule(tau=float(np.sort([max(answer.margins) for answer in full])[2:4].mean()))
    want = perceiver.answers(scenes, rule)
    assert {answer.exit for answer in want} == {ExitReason.THRESHOLD, ExitReason.BUDGET}
    record: list[session.CloudRun] = []
    got = session.simulate(perceiver, scenes, rule, deadline=180.0, record=record)
    for ours, theirs, seen in zip(got, want, record, strict=True):
        np.testing.assert_array_equal(ours.membrane, theirs.membrane)
        assert (ours.order, ours.exit, ours.labels, ours.margins) == (
            theirs.order, theirs.exit, theirs.labels, theirs.margins)  # fmt: skip
        assert ours.verdict == theirs.verdict
        assert len(seen.membranes) == ours.observations
        np.testing.assert_array_equal(seen.membranes[-1, -1], ours.membrane)


@pytest.mark.lava
def test_no_process_of_ours_but_the_host_is_in_the_graph():
    from lava.magma.core.run_configs import Loihi2SimCfg
    from lava.proc.dense.models import PyDenseModelBitAcc
    from lava.proc.lif.models import PyLifModelBitAcc

    from asp_neuro.chip.simulator import network
    from asp_neuro.chip.wire import Job

    rng = np.random.default_rng(0)
    head = random_stock_head(rng, 6, 8, 2)
    job = Job(head, 3, drives_int=random_stock_drives(rng, 3, 2, 6))
    host = network(job, os.open(os.devnull, os.O_WRONLY), [])
    executable = host.compile(Loihi2SimCfg(select_tag="fixed_pt", select_sub_proc_model=True))
    classes = [type(process) for process in executable.process_list]
    ours = {one.__name__ for one in classes if one.__module__.startswith("asp_neuro")}
    assert ours == {"StockHost"}
    assert sorted(one.__name__ for one in classes) == ["Dense"] * 4 + ["LIF"] * 2 + ["StockHost"]
    models = {process.model_class for process in executable.process_list if type(process).__name__ != "StockHost"}
    assert models == {PyDenseModelBitAcc, PyLifModelBitAcc}  # Lava's own, in fixed point


@pytest.mark.lava
@pytest.mark.slow
def test_a_neuron_that_fails_ends_the_session_with_its_name(monkeypatch):
    rng = np.random.default_rng(0)
    head = random_stock_head(rng, 6, 8, 2)
    monkeypatch.setenv("ASP_NEURO_FAULT", "PyLifModelBitAcc:before send:9")
    with pytest.raises(SessionError, match=r"layer [12] neurons .PyLifModelBitAcc. failed .* planted: before send"):
        session.run_head(head, random_stock_drives(rng, 3, 2, 6), deadline=60.0)


def test_idle_steps_and_floating_point_are_refused():
    rng = np.random.default_rng(0)
    head = random_stock_head(rng, 6, 8, 2)
    for options in ({"idle": 3}, {"tag": "floating_pt"}):
        with pytest.raises(UsageError, match="stock form runs freely"):
            session.run_head(head, random_stock_drives(rng, 3, 2, 6), **options)
