"""A bundle at work: which exit it may use, and that its answers depend on nothing but the cloud."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from asp_neuro import bundle as bundles
from asp_neuro.chip.machines import SIMULATOR
from asp_neuro.data import load_clouds
from asp_neuro.errors import CheckFailed, InputError
from asp_neuro.model.exit import ExitReason, ExitRule
from asp_neuro.model.perceiver import Perceiver, really_equal
from asp_neuro.runtime import deployment
from asp_neuro.runtime.machine import fast_answers


@pytest.fixture(scope="module")
def compact() -> deployment.Deployed:
    return deployment.open_bundle("compact")


@pytest.fixture(scope="module")
def clouds():
    return load_clouds("shapes", "validation").subset(np.arange(40))


def same(ours, theirs) -> bool:
    """Bit for bit."""
    told = ("label", "labels", "order", "observations", "exit", "margins", "probability", "membrane", "probabilities")
    return all(np.array_equal(getattr(ours, f), getattr(theirs, f)) for f in told)


@pytest.mark.parametrize("batch", [1, 7, 256])
def test_answers_do_not_depend_on_the_batch(compact, clouds, batch):
    rule, _ = deployment.exit_rule(compact)
    _, whole = deployment.run(compact, clouds, rule, batch=40)
    _, parts = deployment.run(compact, clouds, rule, batch=batch)
    assert all(same(a, b) for a, b in zip(whole, parts, strict=True))
    assert len({a.observations for a in whole}) > 2  # clouds did leave the batch at different times


def test_answers_do_not_depend_on_the_order_of_the_clouds(compact, clouds):
    rule, _ = deployment.exit_rule(compact)
    _, forward = deployment.run(compact, clouds, rule)
    _, backward = deployment.run(compact, clouds.subset(np.arange(40)[::-1]), rule)
    assert all(same(a, b) for a, b in zip(forward, backward[::-1], strict=True))


def test_an_early_exit_is_the_prefix_of_the_full_run(compact, clouds):
    rule, _ = deployment.exit_rule(compact)
    _, early = deployment.run(compact, clouds, rule)
    _, full = deployment.run(compact, clouds, ExitRule())
    for a, b in zip(early, full, strict=True):
        assert b.observations == 16
        assert b.order[: a.observations] == a.order
        assert b.margins[: a.observations] == a.margins
        crossed = [t for t, value in enumerate(b.margins, start=1) if value > rule.tau]
        assert a.observations == (crossed[0] if crossed else 16)


def test_the_learned_order_visits_every_chunk_once(compact, clouds):
    _, full = deployment.run(compact, clouds, ExitRule())
    assert all(sorted(a.order) == list(range(16)) for a in full)


def test_precedence_is_no_exit_then_threshold_then_certificate(compact):
    assert deployment.exit_rule(compact, no_exit=True, threshold=0.3)[0] == ExitRule()
    assert deployment.exit_rule(compact, threshold=0.3)[0] == ExitRule(tau=0.3)
    certified = deployment.exit_rule(compact)[0]
    assert certified.certified
    assert certified.tau == compact.certificate.threshold


def test_without_a_certificate_the_whole_budget_is_read_and_said(compact):
    bare = dataclasses.replace(compact, bundle=bundles.with_certificate(compact.bundle, None, None))
    rule, sentence = deployment.exit_rule(bare)
    assert rule == ExitRule()
    assert "whole budget" in sentence


def test_a_certificate_of_another_model_is_refused_unless_told(compact):
    other = dataclasses.replace(compact, sha256="0" * 64)
    with pytest.raises(InputError, match="void"):
        deployment.exit_rule(other)
    rule, _ = deployment.exit_rule(other, uncertified=True)
    assert rule.tau == compact.certificate.threshold
    assert not rule.certified


def test_a_certificate_of_another_arithmetic_is_refused_with_what_to_type(compact, tmp_path):
    """As the bundles of 0.1.0 have it: the records note no arithmetic."""
    made = dataclasses.replace(compact.plan, arithmetic=None)
    found = dataclasses.replace(compact.certificate, arithmetic=None, plan_sha256=made.sha256)
    old = bundles.with_certificate(compact.bundle, made.to_dict(), found.to_dict(), compact.bundle.familiarity)
    bundles.write(tmp_path / "old.net", old)
    for path, name in ((tmp_path / "old.net", tmp_path / "old.net"), (compact.path, "compact")):
        deployed = dataclasses.replace(compact, path=path, bundle=bundles.read(tmp_path / "old.net"))
        with pytest.raises(InputError, match=rf"earlier arithmetic, .*: asp-neuro certify {name}; or run with --unc"):
            deployment.exit_rule(deployed)
    assert "certificate: void, the certificate was made under an earlier arithmetic" in bundles.describe(old)


@pytest.mark.slow
def test_the_command_in_that_refusal_mends_it(shell, compact, tmp_path):
    made = dataclasses.replace(compact.plan, arithmetic=None)
    found = dataclasses.replace(compact.certificate, arithmetic=None, plan_sha256=made.sha256)
    bundles.write(
        tmp_path / "old.net",
        bundles.with_certificate(compact.bundle, made.to_dict(), found.to_dict(), compact.bundle.familiarity),
    )
    refused = shell("run", "old.net", "--limit", "3")
    assert refused.code == 2
    command = refused.err.split("certify again: asp-neuro ")[1].split(";")[0]
    assert shell(*command.split(), timeout=300).code == 0
    assert shell("run", "old.net", "--limit", "3").code == 0


def test_every_answer_is_marked(compact, clouds):
    rule, _ = deployment.exit_rule(compact)
    report, answers = deployment.run(compact, clouds, rule)
    for answer in answers:
        crossed = answer.margin > rule.tau
        told = ExitReason.CERTIFIED if crossed else ExitReason.BUDGET
        assert answer.exit is (told if answer.unfamiliar is None else ExitReason.UNFAMILIAR)
    assert sum(report["exits"][reason] for reason in ("certified", "budget", "unfamiliar")) == len(clouds)
    assert report["exits"]["certified"] > len(clouds) // 2
    _, uncertified = deployment.run(compact, clouds, ExitRule(tau=0.5))
    assert ExitReason.CERTIFIED not in {a.exit for a in uncertified}


def test_the_line_of_a_cloud_has_every_key(compact, clouds):
    lines = []
    deployment.run(compact, clouds, ExitRule(tau=0.5), on_line=lines.append)
    keys = {"id", "label", "class", "truth", "probability", "margin", "observations", "order", "exit", "preserved"}
    assert len(lines) == len(clouds)
    assert all(keys <= set(line) for line in lines)
    assert [line["id"] for line in lines] == list(clouds.names)
    assert {line["exit"] for line in lines} <= {"threshold", "budget", "unfamiliar"}


def test_a_turned_up_axis_gives_the_same_answer(tmp_path, compact, clouds):
    cloud = clouds.points[3].astype(np.float64)
    np.save(tmp_path / "y.npy", cloud)
    np.save(tmp_path / "z.npy", np.stack([cloud[:, 0], -cloud[:, 2], cloud[:, 1]], axis=1))
    rule = ExitRule()
    answers = [
        deployment.run(compact, deployment.one_cloud(compact, tmp_path / f"{up}.npy", up), rule)[1][0] for up in "yz"
    ]
    assert same(*answers)
    turned = deployment.run(compact, deployment.one_cloud(compact, tmp_path / "z.npy", "y"), rule)[1][0]
    assert not same(answers[0], turned)  # the axis does matter


def test_recomputing_leaves_proven_answers_alone_and_replaces_the_others(compact, clouds):
    perceiver = compact.perceiver
    scenes = compact.scenes(clouds)
    _, plain = deployment.run(compact, clouds, ExitRule())
    report, mended = deployment.run(compact, clouds, ExitRule(), recompute=True, exact=True)
    unproven = [i for i, a in enumerate(plain) if not a.verdict.preserved]
    assert report["recomputed"] == len(unproven)
    assert report["equal_share"] >= report["preserved_share"]
    for i, (a, b) in enumerate(zip(plain, mended, strict=True)):
        expected = perceiver.replay(scenes[i : i + 1], ExitRule())[0] if i in unproven else a
        assert same(expected, b)


def test_three_lines_of_python_answer_for_a_cloud(clouds):
    import asp_neuro

    model = asp_neuro.load("compact")
    answer = model(clouds.points[0])
    assert isinstance(model, Perceiver)
    assert model.classes[answer.label] in clouds.classes
    observations = list(model.episode(clouds.points[0]))
    assert [step.chunk for step in observations] == list(answer.order)
    assert [step.label for step in observations] == list(answer.labels)
    assert observations[-1].stops
    assert not any(step.stops for step in observations[:-1])


@pytest.mark.slow
def test_preserved_answers_are_those_of_exact_arithmetic_over_the_whole_test_set(compact):
    clouds = load_clouds("shapes", "test")
    chunks = compact.scenes(clouds)
    perceiver = compact.perceiver
    for rule in (ExitRule(), deployment.exit_rule(compact)[0]):
        answers = fast_answers(perceiver, chunks, rule)
        exact = perceiver.replay(chunks, rule)
        proven = [a.verdict.preserved for a in answers]
        equal = [really_equal(a, b) for a, b in zip(answers, exact, strict=True)]
        assert not any(p and not e for p, e in zip(proven, equal, strict=True))
        assert np.mean(proven) >= 0.95


def test_a_head_that_breaks_a_design_rule_is_refused_before_a_simulation(compact, clouds, monkeypatch):
    from asp_neuro.runtime import hardware

    small = hardware.chip("loihi2")
    tight = dataclasses.replace(small, limits=dataclasses.replace(small.limits, cores_per_chip=1))
    monkeypatch.setattr(hardware, "chip", lambda name: tight)
    monkeypatch.setattr(
        "asp_neuro.chip.session.simulate", lambda *args, **keys: pytest.fail("a simulation was started")
    )
    with pytest.raises(CheckFailed, match="cores"):
        deployment.run(compact, clouds, ExitRule(), SIMULATOR)


def trained_also_on(deployed: deployment.Deployed, *splits: str) -> deployment.Deployed:
    recipe = dict(deployed.bundle.recipe, data={**deployed.bundle.recipe["data"], "also": list(splits)})
    return dataclasses.replace(deployed, bundle=dataclasses.replace(deployed.bundle, recipe=recipe))


def test_a_model_that_was_trained_on_validation_is_planned_for_on_calibration_clouds(compact):
    n = len(load_clouds("shapes", "calibration"))
    usual, other = deployment.certify(compact), deployment.certify(trained_also_on(compact, "validation"))
    assert (usual.plan.source, usual.certificate.n, usual.calibration.n) == ("validation", n, n)
    assert (other.plan.source, other.plan.n_validation) == ("pilot", n // 4)
    assert other.certificate.n == other.calibration.n == n - n // 4  # none of them has planned
    assert other.plan.grid != usual.plan.grid
    assert other.certificate.certified


def test_a_model_that_was_trained_on_its_calibration_clouds_gets_no_certificate(compact):
    with pytest.raises(InputError, match="never saw"):
        deployment.certify(trained_also_on(compact, "validation", "calibration"))
