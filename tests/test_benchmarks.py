"""The benchmarks run, and nothing in their table is typed by hand."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import presentation
import pytest
import run_all
import timing

ROOT = Path(__file__).parents[1]
SHARED = {"machine", "timing", "rivals", "presentation", "run_all", "stock_trials"}  # no measurements of their own


@pytest.fixture(scope="module")
def stored():
    return json.loads((ROOT / "benchmarks" / "results.json").read_text())


def between_markers(text):
    return text.partition(presentation.BEGIN + "\n")[2].partition("\n" + presentation.END)[0]


def test_the_table_on_their_page_is_what_results_json_renders_to(stored):
    assert between_markers((ROOT / "benchmarks/README.md").read_text()) == presentation.markdown(stored)


def test_another_number_in_results_json_would_be_seen(stored):
    table = presentation.markdown(stored)
    part = next(part for part in stored["scripts"].values() if any(row["ratio"] for row in part["rows"]))
    row = next(row for row in part["rows"] if row["ratio"])
    other = json.loads(json.dumps(stored).replace(json.dumps(row["ratio"]), '{"median": 7.77, "low": 7, "high": 8}', 1))
    assert presentation.markdown(other) != table


def test_results_json_describes_the_machine_and_names_neither_paths_nor_hosts(stored):
    told = {"cpu", "cores", "memory_gb", "python", "torch", "lava-nc", "lava-dl", "date", "load"}
    assert told <= set(stored["machine"])
    assert set(stored["scripts"]) == set(run_all.BUDGETS)
    for text in re.findall(r'"((?:[^"\\]|\\.)*)"', json.dumps(stored)):
        assert not re.search(r"(^|\s)(/\w|\w+\.py)", text), text


def test_every_script_is_run_by_the_runner():
    assert {path.stem for path in (ROOT / "benchmarks").glob("*.py")} - SHARED == set(run_all.BUDGETS)


@pytest.mark.rivals
def test_a_quick_run_of_one_script_writes_its_results_and_leaves_the_page_alone(tmp_path):
    before = (ROOT / "benchmarks/README.md").read_text()
    command = [sys.executable, ROOT / "benchmarks" / "run_all.py", "--quick", "--only", "grouping", "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    rows = {row["what"]: row for row in results["scripts"]["grouping"]["rows"]}
    ratio = rows["fpsample, plain"]["ratio"]
    assert 0.0 < ratio["low"] <= ratio["median"] <= ratio["high"]
    assert results["quick"]
    assert "quick run" in done.stdout
    assert (tmp_path / "results.png").stat().st_size > 5000
    assert (ROOT / "benchmarks/README.md").read_text() == before


def test_a_training_step_is_measured_part_by_part():
    """It reaches into the model, so a change there can break it unseen."""
    part = run_all.measured("training_step", quick=True, budget=300.0)
    assert "missing" not in part
    assert "head loop, float" in {row["what"] for row in part["rows"]}


def test_a_script_that_takes_too_long_is_ended_and_listed():
    part = run_all.measured("certify", quick=True, budget=0.3)
    assert part == {"missing": "not done after 0 s"}
    found = {"machine": {"load": 0.0}, "quick": False, "scripts": {"certify": part}}
    assert presentation.warnings(found) == ["Not measured: certify (not done after 0 s)."]


def test_a_busy_machine_is_told():
    found = {"machine": {"load": 1.7}, "quick": False, "scripts": {}}
    assert presentation.warnings(found) == ["The machine was busy with other work: load average 1.70 at the start."]


def test_ratios_are_taken_turn_by_turn():
    # the ratio of the medians would be 4 / 3
    found = {"base": np.array([1.0, 3.0, 4.0]), "rival": np.array([4.0, 6.0, 4.0])}
    base, rival = timing.compared(found, "base", wanted={"rival": "at most 3"})
    assert base["ratio"] is None
    assert rival["ratio"] == {"median": 2.0, "low": 1.5, "high": 3.0}
    assert timing.cells(rival) == ("rival", "4 (4 to 5) s", "2 (1.5 to 3)", "base", "at most 3", "met")


@pytest.mark.parametrize(
    ("wanted", "seconds", "ratio", "said"),
    [
        ("at most 15 ms", 0.015, 20.0, "met"),  # a limit with a unit is about the value
        ("at most 15 ms", 0.0151, 1.0, "missed"),
        ("at most 1.3", 9.0, 1.3, "met"),  # one without is about the ratio
        ("at most 1.3", 0.1, 1.31, "missed"),
        ("at least 0.33", 0.0, 0.34, "met"),
        ("at least 0.33", 9.0, 0.32, "missed"),
        ("at most 1.1", 1.2, None, "missed"),  # no rival: the value, with or without a unit
        ("under 2,048 MB", 2048.0, None, "missed"),
        ("under 2,048 MB", 2047.0, None, "met"),
        ("65 to 85 %", 85.0, None, "met"),
        ("65 to 85 %", 85.1, None, "missed"),
        ("(t + 1) / 2 = 8.5", 1.0, 3.0, ""),  # an expectation, no limit
        ("", 1.0, 3.0, ""),
    ],
)
def test_a_limit_is_met_or_missed_by_the_median(wanted, seconds, ratio, said):
    assert timing.verdict(timing.row("x", seconds, "s", ratio, wanted=wanted)) == said


def test_a_limit_that_cannot_be_checked_is_an_error():
    with pytest.raises(ValueError, match="x: no limit that can be checked: 'rather fast'"):
        timing.verdict(timing.row("x", 1.0, "s", wanted="rather fast"))


def test_rivals_alternate_and_short_ones_are_repeated(monkeypatch):
    calls = []
    monkeypatch.setattr(timing, "_repeats", lambda trial: 2)
    clock = iter(range(100))
    found = timing.alternate({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 2, lambda: next(clock))
    assert calls == ["a", "a", "b", "b"] * 2
    assert found["a"].tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.5, "2.5 s/cloud"), (0.0025, "2.5 ms/cloud"), (2.5e-6, "2.5 us/cloud"), (0.25e-6, "0.25 us/cloud")],
)
def test_times_are_shown_in_a_unit_that_reads_well(seconds, text):
    assert timing.cells(timing.row("x", seconds, "s/cloud"))[1] == text
