"""The demo: the whole job, as commands, in one go."""

from __future__ import annotations

import pytest


@pytest.mark.slow
@pytest.mark.lava
def test_the_demo_runs_every_step_and_every_engine_agrees(shell):
    done = shell("demo", "--epochs", "1", "--limit", "2", "--json", timeout=900)
    assert done.code == 0, done.err
    steps = done.json["steps"]
    assert [step["command"].split()[0] for step in steps] == ["train", "export", "run", "run", "verify"]
    assert steps[3]["report"]["backend"] == "sim"
    verified = steps[-1]["report"]
    assert verified["mismatches"] == 0
    assert {"reference", "fast", "lava", "torch"} <= set(verified["engines"])
    assert min(verified["compared"].values()) > 0
