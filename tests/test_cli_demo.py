"""demo: it runs what exists, in an empty folder, and says what it did."""

from __future__ import annotations

import pytest


@pytest.mark.slow
def test_the_demo_runs_in_an_empty_folder(shell):
    said = shell("demo", "--json")
    assert said.code == 0, said.err
    assert [set(step) for step in said.json["steps"]] == [{"name", "seconds", "summary"}] * len(said.json["steps"])
    assert said.json["steps"][0]["summary"].startswith("600 clouds of 1024 points, 8 classes")
    assert f"[1/{len(said.json['steps'])}]" in said.err


def test_a_step_that_fails_ends_the_demo_with_its_error(cli, monkeypatch):
    from asp_neuro import demo
    from asp_neuro.errors import CheckFailed

    def fail(story):
        raise CheckFailed("engines disagree at step 3")

    monkeypatch.setattr(demo, "STEPS", (("look", lambda story: "fine"), ("verify", fail), ("never", None)))
    said = cli("demo", "--json")
    assert (said.code, said.json["error"]["message"]) == (1, "engines disagree at step 3")
    assert "[2/3] verify" in said.err
    assert "[3/3]" not in said.err
