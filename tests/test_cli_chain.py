"""The chain that a user types, in an empty folder, and its verbs on the trained compact bundle."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from asp_neuro.data import load_clouds, locate
from asp_neuro.errors import MissingError


@pytest.mark.slow
@pytest.mark.lava
def test_train_export_and_run_on_the_simulator_work_without_an_argument(shell, tmp_path):
    assert shell("train", "--epochs", "1", timeout=600).code == 0  # one epoch: the chain, not the accuracy
    exported = shell("export", timeout=600)
    assert exported.code == 0, exported.err
    done = shell("run", "--backend=sim", "--limit", "2", timeout=600)
    assert done.code == 0, done.err
    assert "sim" in done.out
    assert {path.name for path in tmp_path.iterdir()} >= {"model.pt", "model.net", "model.log.jsonl"}


def test_run_prints_the_promised_keys(shell, tmp_path):
    said = shell("run", "compact", "--limit", "20", "--jsonl", "out.jsonl", "--json")
    assert said.code == 0, said.err
    keys = "backend n accuracy mean_observations budget certified_share preserved_share seconds sha256"
    assert set(keys.split()) <= set(said.json)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(lines) == said.json["n"] == 20


@pytest.mark.lava
def test_the_simulator_gives_the_answers_of_the_fast_engine(shell, tmp_path):
    lines = {}
    for backend in ("fast", "sim"):
        said = shell("run", "compact", f"--backend={backend}", "--limit", "12", "--jsonl", f"{backend}.jsonl", "--json")
        assert said.code == 0, said.err
        assert said.json["backend"] == backend
        lines[backend] = [json.loads(line) for line in (tmp_path / f"{backend}.jsonl").read_text().splitlines()]
    for ours, theirs in zip(lines["fast"], lines["sim"], strict=True):
        for key in ("id", "label", "order", "observations", "exit", "preserved"):
            assert ours[key] == theirs[key]
        assert ours["margin"] == pytest.approx(theirs["margin"], abs=1e-9)


def rows_of(path) -> list[dict]:
    """The JSON lines of a run, with what may differ in its last bits rounded to 1e-9."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{**row, "margin": round(row["margin"], 9), "probability": round(row["probability"], 9)} for row in rows]


@pytest.mark.slow
@pytest.mark.lava
@pytest.mark.parametrize(("name", "n"), [("compact", 600), ("modelnet10", 200)])
def test_the_simulator_equals_the_fast_engine_over_a_test_set(shell, tmp_path, name, n):
    if name.startswith("modelnet"):
        try:
            locate(name)
        except MissingError:
            pytest.skip("the ModelNet npz files are not at hand ($ASP_NEURO_DATA)")
    for backend in ("fast", "sim"):
        words = ("run", name, f"--backend={backend}", "--limit", str(n), "--jsonl", f"{backend}.jsonl", "--json")
        said = shell(*words, timeout=600)
        assert said.code == 0, said.err
    fast, sim = (rows_of(tmp_path / f"{backend}.jsonl") for backend in ("fast", "sim"))
    assert len(fast) == n
    assert fast == sim


def test_answers_do_not_depend_on_the_number_of_threads(shell, tmp_path):
    for threads in ("1", "2"):
        said = shell("run", "compact", "--limit", "64", "--threads", threads, "--jsonl", f"{threads}.jsonl", "--json")
        assert said.code == 0, said.err
    assert rows_of(tmp_path / "1.jsonl") == rows_of(tmp_path / "2.jsonl")


def test_data_of_other_classes_are_refused_before_anything_starts(shell, tmp_path):
    for name in ("apple", "pear"):
        (tmp_path / "fruit" / name).mkdir(parents=True)
        np.save(tmp_path / "fruit" / name / "a.npy", load_clouds("shapes", "test").points[0].astype(np.float64))
    said = shell("run", "compact", "--data", "fruit", "--split", "train", "--backend=sim", "--json")
    assert (said.code, said.json["error"]["kind"]) == (2, "input")
    assert "apple" in said.json["error"]["message"]


def unused(bundle):
    """As if no calibration cloud had been used for it."""
    return dataclasses.replace(bundle, origin=None, plan=None, certificate=None, familiarity=None)


def test_acceptance_can_be_certified_at_a_fixed_exit(shell, tmp_path):
    from asp_neuro import bundle as bundles

    bundles.write(tmp_path / "model.net", unused(bundles.read(bundles.shipped()["compact"])))
    said = shell("certify", "--exit-threshold", "0.5", "--json", timeout=300)
    assert said.code == 0, said.err
    stored = bundles.read(tmp_path / "model.net").certificate
    assert stored["exit_threshold"] == 0.5
    run = shell("run", "--limit", "40", "--json").json
    assert run["exits"]["certified"] > 0
    assert sum(run["exits"].values()) == 40


def test_one_cloud_from_a_file(shell, tmp_path):
    np.save(tmp_path / "cloud.npy", load_clouds("shapes", "test").points[0].astype(np.float64))
    said = shell("run", "compact", "--input", "cloud.npy", "--up", "y")
    assert said.code == 0, said.err
    assert "chunks looked at" in said.out
    assert shell("run", "compact", "--input", "cloud.npy", "--json").json["accuracy"] is None


def test_a_bundle_given_twice_is_a_usage_error(shell):
    said = shell("run", "compact", "--bundle", "compact", "--json")
    assert (said.code, said.json["error"]["kind"]) == (2, "usage")


def test_no_bundle_here_says_what_exists(shell):
    said = shell("run")
    assert said.code == 2
    assert "compact" in said.err


def test_check_says_whether_it_fits(shell):
    said = shell("check", "compact", "--json")
    assert said.code == 0
    assert said.json["fits"] is True
    assert said.json["cores"] >= 1
    assert said.json["violations"] == []


def test_show_and_models_tell_what_is_there(shell):
    assert "compact" in shell("models").out
    shown = shell("show", "compact")
    assert shown.code == 0
    assert "layer" in shown.out


def test_models_has_numbers_for_machines_and_words_for_people(cli):
    found = {model["name"]: model for model in cli("models", "--json").json["models"]}
    assert 0.9 < found["compact"]["validation_accuracy"] < 1.0
    assert (found["compact"]["trained_on_validation"], found["compact"]["licence"]) == (False, None)
    assert not found["modelnet10"]["trained_on_validation"]
    assert 0.9 < found["modelnet10"]["validation_accuracy"] < 1.0
    shown = cli("models").out
    assert f"{100 * found['compact']['validation_accuracy']:.1f} %" in shown
    assert "trained on" in shown


def test_certify_refuses_levels_outside_zero_and_one(shell, tmp_path):
    for words in (("--alpha", "0"), ("--delta", "1.5")):
        said = shell("certify", "compact", *words, "--json")
        assert said.code == 2
        assert words[1].rstrip("0").rstrip(".") in said.json["error"]["message"]


def test_certify_stores_the_certificate_and_draws(shell, tmp_path):
    from asp_neuro import bundle as bundles

    bundles.write(tmp_path / "model.net", unused(bundles.read(bundles.shipped()["compact"])))
    said = shell("certify", "--alpha", "0.1", "--curve", "curve.png", "--json", timeout=300)
    assert said.code == 0, said.err
    keys = "alpha delta n threshold risk bound coverage mean_observations monotone certified"
    assert set(keys.split()) <= set(said.json)
    assert (tmp_path / "curve.png").stat().st_size > 10_000
    assert bundles.read(tmp_path / "model.net").certificate["alpha"] == 0.1


def test_a_model_that_is_mostly_wrong_is_not_certified_and_stays_usable(shell, tmp_path):
    from asp_neuro import bundle as bundles
    from asp_neuro.grid.sections import Affine

    good = bundles.with_certificate(bundles.read(bundles.shipped()["compact"]), None, None)
    task = good.model.task
    rolled = Affine(*(np.roll(array, 1, axis=0) for array in vars(task.readout).values()))
    model = dataclasses.replace(good.model, task=dataclasses.replace(task, readout=rolled))
    bundles.write(tmp_path / "model.net", dataclasses.replace(good, model=model))
    said = shell("certify", "--json", timeout=300)
    assert (said.code, said.json.get("certified"), said.json.get("threshold")) == (1, False, None)
    run = shell("run", "--limit", "3", "--json")
    assert run.code == 0
    assert run.json["mean_observations"] == run.json["budget"]


def test_more_samples_than_there_are_is_refused_with_the_number(shell, tmp_path):
    from asp_neuro import bundle as bundles

    bundles.write(tmp_path / "model.net", unused(bundles.read(bundles.shipped()["compact"])))
    said = shell("certify", "--alpha", "0.001", "--json", timeout=300)
    assert (said.code, said.json["error"]["kind"]) == (2, "input")
    assert "800" in said.json["error"]["message"]


def test_an_alarm_of_the_monitor_ends_with_exit_code_one(shell, tmp_path):
    from asp_neuro.certify import monitor
    from asp_neuro.runtime.deployment import open_bundle

    deployed = open_bundle("compact")
    state = monitor.start(deployed.sha256, deployed.certificate.alpha)
    state = monitor.update_all(state, [True] * 60)
    (tmp_path / "watch.json").write_text(json.dumps(state.to_dict()))
    said = shell("run", "compact", "--limit", "5", "--feedback", "watch.json", "--json")
    assert said.code == 1
    assert said.json["monitor"]["alarm"] is True
