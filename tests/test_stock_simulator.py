"""Stock heads on the Lava simulator: stock processes and our host only, bit for bit the fast engine."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import specs
from stock_specs import random_stock_drives, random_stock_head

from asp_neuro.chip import session
from asp_neuro.chip.session import SessionError
from asp_neuro.chip.wire import Job, write_job
from asp_neuro.data import load_clouds
from asp_neuro.errors import UsageError
from asp_neuro.model.exit import ExitReason, ExitRule
from asp_neuro.runtime.deployment import exit_rule, open_bundle
from asp_neuro.runtime.verification import Findings, compare_answers


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
def test_the_shipped_network_answers_on_lava_as_on_the_fast_engine_exits_and_resets_included():
    """Every sixth of the test shapes; all of them: `asp-neuro run compact_stock --jsonl FILE`, with --backend=sim."""
    deployed = open_bundle("compact_stock")
    perceiver, clouds = deployed.perceiver, load_clouds("shapes", "test")
    clouds = clouds.subset(range(0, len(clouds), 6))
    scenes, rule = perceiver.scenes(clouds.points, clouds.names), exit_rule(deployed)[0]
    want, findings = perceiver.answers(scenes, rule), Findings()
    compare_answers(findings, "lava", list(clouds.names), want, session.simulate(perceiver, scenes, rule))
    assert findings.mismatches == 0, findings.first
    assert findings.compared["answers"] == 100
    assert len({answer.observations for answer in want}) > 3


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
def test_no_process_of_ours_but_the_host_is_in_the_graph(tmp_path):
    """In an interpreter of its own: Lava sets the way processes start, which any library may have set before it."""
    rng = np.random.default_rng(0)
    head = random_stock_head(rng, 6, 8, 2)
    with open(tmp_path / "job.npz", "wb") as file:
        write_job(file, Job(head, 3, drives_int=random_stock_drives(rng, 3, 2, 6)))
    program = """
import json, os, sys
from lava.magma.core.run_configs import Loihi2SimCfg
from asp_neuro.chip import simulator
with open(sys.argv[1], "rb") as file:
    host = simulator.network(simulator.read_job(file), os.open(os.devnull, os.O_WRONLY), [])
executable = host.compile(Loihi2SimCfg(select_tag="fixed_pt", select_sub_proc_model=True))
name = lambda kind: f"{kind.__module__}.{kind.__name__}"
print(json.dumps([[name(type(process)), name(process.model_class)] for process in executable.process_list]))
"""
    command = [sys.executable, "-c", program, str(tmp_path / "job.npz")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert sorted(process for process, _ in found) == [
        "asp_neuro.chip.processes.stock_host.StockHost",
        *["lava.proc.dense.process.Dense"] * 4,
        *["lava.proc.lif.process.LIF"] * 2,
    ]
    models = {model for process, model in found if not process.startswith("asp_neuro")}
    assert models == {"lava.proc.dense.models.PyDenseModelBitAcc", "lava.proc.lif.models.PyLifModelBitAcc"}


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
