"""The monitor at work: answers of a deployed model, its state between runs, the order of a data set."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest

from asp_neuro import bundle as bundles
from asp_neuro.certify import monitor
from asp_neuro.data import load_clouds
from asp_neuro.errors import InputError, UsageError
from asp_neuro.model.exit import ExitReason
from asp_neuro.runtime import deployment, watch


@pytest.fixture(scope="module")
def compact() -> deployment.Deployed:
    return deployment.open_bundle("compact")


@pytest.fixture(scope="module")
def clouds():
    return load_clouds("shapes", "validation").subset(np.arange(60))


@pytest.fixture(scope="module")
def answers(compact, clouds):
    return deployment.run(compact, clouds, deployment.exit_rule(compact)[0])[1]


def mislabelled(clouds):
    return dataclasses.replace(clouds, labels=(clouds.labels + 1) % len(clouds.classes))


def test_the_monitor_keeps_its_state_and_raises_the_alarm(tmp_path, compact, clouds, answers):
    path = tmp_path / "model.feedback.json"
    first = watch.feedback(path, compact, clouds.subset(np.arange(30)), answers[:30])
    second = watch.feedback(path, compact, clouds, answers)
    assert second.risk.n == sum(a.exit is ExitReason.CERTIFIED for a in answers)
    assert json.loads(path.read_text())["n"] == second.risk.n > first.risk.n
    assert not second.alarm
    fresh = watch.feedback(tmp_path / "other.json", compact, mislabelled(clouds), answers)
    assert fresh.alarm
    assert "ALARM" in fresh.message


def test_the_same_clouds_are_not_counted_twice(tmp_path, compact, clouds, answers):
    path = tmp_path / "watch.json"
    first = watch.feedback(path, compact, clouds, answers).risk
    again = watch.feedback(path, compact, mislabelled(clouds), answers).risk  # even with other labels
    assert (again.n, again.n_wrong, again.log_wealth) == (first.n, first.n_wrong, first.log_wealth)
    assert again.repeats == first.n
    assert f"Not counted: {first.n} that had been counted before" in monitor.message(again)


def test_the_order_of_a_data_set_does_not_matter(tmp_path, compact, clouds, answers):
    by_class = np.argsort(clouds.labels, kind="stable")
    sorted_answers = [answers[i] for i in by_class]
    found = [
        watch.feedback(tmp_path / "a.json", compact, clouds, answers).risk,
        watch.feedback(tmp_path / "b.json", compact, clouds.subset(by_class), sorted_answers).risk,
    ]
    assert found[0] == found[1]


def test_another_seed_is_another_order_and_a_stream_keeps_its_own(tmp_path, compact, clouds, answers):
    odd = dataclasses.replace(clouds, labels=np.where(np.arange(60) < 6, (clouds.labels + 1) % 8, clouds.labels))
    wealth = {
        watch.feedback(tmp_path / f"{seed}.json", compact, odd, answers, seed).risk.log_wealth for seed in range(3)
    }
    assert len(wealth) == 3
    stream = watch.feedback(tmp_path / "stream.json", compact, odd, answers, in_order=True).risk
    assert stream.alarm_at is not None  # the six wrong ones come first
    assert stream.log_wealth not in wealth


def test_a_state_of_an_earlier_version_is_carried_on(tmp_path, compact, clouds, answers):
    path = tmp_path / "old.json"
    old = {
        "model_sha256": compact.sha256, "alpha": 0.05, "level": 0.05, "n": 3, "n_wrong": 0, "eta": 0.0,
        "curvature": 1.0075, "log_wealth": 0.0, "alarm_at": None,
    }  # fmt: skip
    from asp_neuro import plain

    path.write_text(json.dumps({**old, "sha256": plain.digest("monitor", old)}))
    after = watch.feedback(path, compact, clouds, answers).risk
    assert after.n == 3 + sum(a.exit is ExitReason.CERTIFIED for a in answers)


def test_feedback_needs_labels_a_certificate_and_its_own_file(tmp_path, compact, clouds, answers):
    unknown = dataclasses.replace(clouds, labels=np.full(len(clouds), -1, dtype=np.int64))
    blind = dataclasses.replace(compact, bundle=SimpleNamespace(**{**vars(compact.bundle), "familiarity": None}))
    with pytest.raises(InputError, match="true class"):
        watch.feedback(tmp_path / "a.json", blind, unknown, answers)
    bare = dataclasses.replace(compact, bundle=bundles.with_certificate(compact.bundle, None, None))
    with pytest.raises(UsageError, match="certificate"):
        watch.feedback(tmp_path / "a.json", bare, clouds, answers)
    (tmp_path / "b.json").write_text("not a state")
    with pytest.raises(InputError, match=r"b\.json"):
        watch.feedback(tmp_path / "b.json", compact, clouds, answers)
    assert not (tmp_path / "a.json").exists()


def test_a_report_has_both_bets_and_not_the_remembered_clouds(tmp_path, compact, clouds, answers):
    report = watch.feedback(tmp_path / "a.json", compact, clouds, answers).report()
    assert report["alarm"] is False
    assert "unfamiliar" in report
    assert "seen" not in report


def test_unfamiliar_clouds_are_watched_without_labels(tmp_path, compact, clouds, answers):
    knows = dataclasses.replace(compact, bundle=SimpleNamespace(**{**vars(compact.bundle), "familiarity": {}}))
    unknown = dataclasses.replace(clouds, labels=np.full(len(clouds), -1, dtype=np.int64))
    strange = SimpleNamespace(exit=SimpleNamespace(value="unfamiliar"))
    path = tmp_path / "a.json"
    answers = [answer if answer.unfamiliar is None else answers[1] for answer in answers]
    assert answers[1].unfamiliar is None
    calm = watch.feedback(path, knows, unknown.subset(np.arange(30)), answers[:30], in_order=True)
    assert (calm.risk.n, calm.unfamiliar.n, calm.unfamiliar.n_wrong) == (0, 30, 0)
    assert "0 of 30 clouds were unfamiliar" in calm.message
    late = watch.feedback(path, knows, unknown, [*answers[:30], *[strange] * 30], in_order=True)
    assert late.alarm
    assert not monitor.alarm(late.risk)
    assert (late.unfamiliar.n, late.unfamiliar.n_wrong, late.unfamiliar.repeats) == (60, 30, 30)
    assert "ALARM, raised at cloud 3" in late.message
    stored = json.loads(path.read_text())
    path.write_text(json.dumps({**stored["unfamiliar"], "unfamiliar": None}))
    with pytest.raises(InputError, match="promise of 2 %"):
        watch.feedback(path, knows, unknown, answers)
