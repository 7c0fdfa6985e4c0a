"""Patience: an answer that has not crossed after so many looks ends there, on every engine and in its certificate."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from asp_neuro import certify as certificates
from asp_neuro.certify.used import Level
from asp_neuro.data import load_clouds
from asp_neuro.errors import InputError, UsageError
from asp_neuro.model import prefix
from asp_neuro.model.exit import ExitReason, ExitRule
from asp_neuro.runtime import deployment, energy, integers
from asp_neuro.studies import halves
from asp_neuro.studies.audits.record import exits

PATIENCE = 3
STRICT = ExitRule(0.8, patience=PATIENCE)  # some cross within three looks, some do not


@pytest.fixture(scope="module")
def case():
    """The compact model and 40 clouds."""
    perceiver = deployment.open_bundle("compact").perceiver
    clouds = load_clouds("shapes", "validation", n_points=perceiver.spec.scene.chunking.n_points)
    clouds = clouds.subset(range(0, 400, 10))
    return perceiver, perceiver.scenes(clouds.points, clouds.names)


@pytest.fixture(scope="module")
def certified(tmp_path_factory):
    """The compact model with a certificate of its own under patience."""
    deployed = deployment.open_bundle("compact")
    fresh = dataclasses.replace(deployed.bundle, origin={**deployed.bundle.origin, "used": []}, certificate=None)
    deployed = dataclasses.replace(deployed, bundle=fresh)
    found = deployment.certify(deployed, patience=PATIENCE)
    return deployment.store(deployed, found, tmp_path_factory.mktemp("patience") / "patient.net"), found


def test_an_episode_is_the_beginning_of_the_whole_one(case):
    perceiver, scenes = case
    whole, patient = perceiver.answers(scenes, ExitRule(0.8)), perceiver.answers(scenes, STRICT)
    spent = 0
    for long, short in zip(whole, patient, strict=True):
        n = min(len(long.order), PATIENCE)
        assert (short.order, short.margins, short.labels) == (long.order[:n], long.margins[:n], long.labels[:n])
        assert short.exit is (long.exit if len(long.order) <= PATIENCE else ExitReason.BUDGET)
        spent += len(long.order) > PATIENCE
    assert 0 < spent < len(whole)


def test_a_patience_beyond_the_budget_changes_nothing(case):
    perceiver, scenes = case
    whole, patient = (perceiver.answers(scenes, rule) for rule in (ExitRule(0.8), ExitRule(0.8, patience=99)))
    assert [a.to_dict() for a in patient] == [a.to_dict() for a in whole]


def test_streaming_equals_the_prefix_form(case):
    perceiver, scenes = case
    for rule in (STRICT, ExitRule(patience=PATIENCE)):
        told = prefix.compare(perceiver, [scenes], rule)
        assert told["equal"]
        assert told["observations"] == sum(a.observations for a in perceiver.answers(scenes, rule))


def test_the_plain_reference_ends_there_too(case):
    perceiver, scenes = case
    some = scenes[:6]
    told, expected = integers.integer_answers(perceiver, some, STRICT), perceiver.answers(some, STRICT)
    assert [(a.order, a.margins, a.exit) for a in told] == [(a.order, a.margins, a.exit) for a in expected]


def test_energy_and_tables_count_the_looks_that_are_taken(case):
    perceiver, scenes = case
    mean = np.mean([a.observations for a in perceiver.answers(scenes, STRICT)])
    assert energy.measure(perceiver, [scenes], STRICT, "test").taken.observations == pytest.approx(mean)
    margins = np.array([a.margins for a in perceiver.answers(scenes, ExitRule())]).T
    assert exits(margins, 0.8, PATIENCE).observations.mean() == pytest.approx(mean)


def test_the_certificate_counts_what_will_run(certified):
    deployed, made = certified
    found = made.certificate
    assert found.certified
    assert found.patience == made.plan.patience == PATIENCE
    rule = certificates.exit_rule(found)
    assert (rule.tau, rule.patience) == (found.threshold, PATIENCE)
    assert found.mean_observations <= PATIENCE
    assert f"after {PATIENCE} looks" in certificates.promise(found)
    clouds = deployment.clouds_of(deployed, None, "calibration", None, None)
    report, answers = deployment.run(deployed, clouds, rule)
    accepted = [a.exit is ExitReason.CERTIFIED for a in answers]
    assert sum(accepted) == found.n_accepted
    assert report["mean_observations"] == pytest.approx(found.mean_observations)
    wrong = [bool(a.label != truth) for a, truth in zip(answers, clouds.labels, strict=True)]
    assert sum(np.array(wrong) & np.array(accepted)) == found.n_errors


def test_a_certificate_under_another_patience_is_void(certified):
    deployed, made = certified
    for other in (dataclasses.replace(made.certificate, patience=looks) for looks in (None, 5)):
        void = certificates.why_void(other, made.plan, deployed.sha256, known=made.familiarity)
        assert "patience" in str(void)


def test_another_patience_on_the_same_clouds_is_another_try(certified):
    deployed, _ = certified
    assert deployed.origin.used[-1].levels == (Level(0.05, 0.05, None, PATIENCE),)
    with pytest.raises(InputError, match="patience 3; asked for: alpha 5 % with delta 5 %\\)"):
        deployment.certify(deployed)


def test_halves_are_certified_under_the_same_patience(certified, tmp_path):
    report = halves.run(certified[0].path, split="calibration", repeats=10, out=tmp_path)
    looks = [row["observations"] for row in report["rows"] if row["certified"] == 10]
    assert looks
    assert max(looks) <= PATIENCE


def test_what_is_not_certified_ends_there_all_the_same(certified):
    deployed, made = certified
    none = dataclasses.replace(made.certificate, certified=False, threshold=None, n_accepted=0, n_errors=0)
    assert certificates.exit_rule(none) == ExitRule(patience=PATIENCE)
    bare = dataclasses.replace(deployed.bundle, certificate=none.to_dict())
    rule, said = deployment.exit_rule(dataclasses.replace(deployed, bundle=bare))
    assert rule == ExitRule(patience=PATIENCE)
    assert said == "no certificate in the bundle: 3 looks are read"


@pytest.mark.parametrize("bad", [0, -1, 17])
def test_a_patience_without_meaning_is_refused(bad):
    with pytest.raises(UsageError, match="patience"):
        deployment.certify(deployment.open_bundle("compact"), patience=bad)


def test_words_are_refused_before_anything_is_written(cli, tmp_path):
    place, folder = tmp_path / "out.net", Path(__file__).parents[1] / "train" / "checkpoints"
    said = cli("export", str(folder / "compact.pt"), "--patience", "99", "--out", str(place))
    assert (said.code, place.exists()) == (2, False)
    assert "--patience 99: this model takes 1 to 16 looks" in said.err
    said = cli("certify", "shapenetpart", "--patience", "3", "--out", str(place))
    assert (said.code, place.exists()) == (2, False)
    assert "--patience: for models that answer with a class" in said.err


@pytest.mark.lava
def test_lava_ends_there_too(certified, cli, tmp_path):
    told = []
    for backend in ("fast", "sim"):
        place = tmp_path / f"{backend}.jsonl"
        words = ("--limit", "8", "--jsonl", str(place))
        assert cli("run", str(certified[0].path), f"--backend={backend}", *words).code == 0
        told.append([json.loads(line) for line in place.read_text().splitlines()])
    assert told[0] == told[1]
    assert max(one["observations"] for one in told[0]) <= PATIENCE
