"""Parts in audits and report: the prefix form knows what was seen, the category is the class, points have labels."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import specs

from asp_neuro.certify.points import SHAPES, PointCertificate, PointRecording, ShapePromise
from asp_neuro.model import prefix
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.runtime import parts
from asp_neuro.runtime.part_samples import samples_of
from asp_neuro.studies.audits import points
from asp_neuro.studies.audits import run as audits
from asp_neuro.studies.audits.record import record
from asp_neuro.studies.audits.run import Audited, left_out, rows_of
from asp_neuro.studies.page import contents

DATA = Path(os.environ.get("ASP_NEURO_DATA", "data"))


def setting(n: int = 12):
    rng = np.random.default_rng(4)
    perceiver = Perceiver(specs.random_part_model(rng))
    return perceiver, perceiver.scenes(rng.normal(size=(n, 96, 3)).astype(np.float32)), np.arange(n) % 2


def test_computing_the_prefix_again_gives_the_same_bits_of_parts():
    perceiver, scenes, _ = setting()
    forms = (form(perceiver, scenes, ExitRule(0.3)) for form in (prefix.streaming, prefix.recomputing))
    assert prefix.first_difference(*forms) is None


def test_an_audit_of_parts_is_about_their_category():
    perceiver, scenes, truth = setting()
    seen = record(perceiver, scenes, truth)
    looks = perceiver.played(scenes, ExitRule()).looks
    assert np.array_equal(seen.right, np.stack([look.label for look in looks]) == truth)
    assert np.array_equal(seen.margins, np.stack([look.margin for look in looks]))
    audited = Audited("parts", perceiver, None, None, 0.3, 0.05, 0.05, "as asked")
    rows = rows_of(audited, scenes, truth)
    assert (len(rows), rows[0].verdict) == (30, "holds")
    assert left_out(perceiver, rows) == ["J.1, points (promises for points): a checkpoint has none"]


def promised(alpha: float = 0.05) -> tuple[PointCertificate, ShapePromise]:
    """Points are accepted above a margin of 0.5, by both promises."""
    mean = PointCertificate(True, alpha, 0.05, SHAPES, 0.5, 9, 0.01, 1.0, 0.0, (), "", "", "", None)
    return mean, ShapePromise(alpha=2 * alpha, most=0.05, threshold=0.5, n=9, accepted=1.0)


def shapes(n_wrong: np.ndarray, n_points: int = 100) -> PointRecording:
    """[n] shapes: so many sure points of each are wrong; of 20 unsure ones all are, and of 10 that are not there."""
    margins = np.full((len(n_wrong), n_points + 30), 0.9)
    margins[:, n_points : n_points + 20] = 0.2
    wrong = np.ones(margins.shape, dtype=bool)
    wrong[:, :n_points] = np.arange(n_points) < n_wrong[:, None]
    there = np.ones(margins.shape, dtype=bool)
    there[:, n_points + 20 :] = False
    return PointRecording(margins, wrong, there)


def test_promises_for_points_hold_fail_and_are_unclear():
    mean, each = promised()
    good = shapes(np.repeat([0, 5], 100))  # 5 of 100 is not more than 5 %
    assert [row.verdict for row in (points.mean(good, mean), points.each(good, each))] == ["holds", "holds"]
    assert points.mean(good, mean).measured == 0.025
    assert points.each(good, each).measured == 0.0
    bad = shapes(np.repeat([0, 30], [130, 70]))
    assert [row.verdict for row in (points.mean(bad, mean), points.each(bad, each))] == ["fails", "fails"]
    assert points.each(bad, each).measured == 0.35
    few = shapes(np.array([0, 0, 6, 0]))
    assert [row.verdict for row in (points.mean(few, mean), points.each(few, each))] == ["holds", "unclear"]


def test_what_promises_nothing_is_unclear():
    mean, each = promised()
    some = shapes(np.zeros(9))
    assert points.mean(some, replace(mean, certified=False, threshold=None)).verdict == "unclear"
    assert points.mean(some, replace(mean, threshold=0.95)).verdict == "unclear"  # no point is that sure
    assert points.each(some, replace(each, threshold=1.0)).verdict == "unclear"


@pytest.mark.skipif(not (DATA / "shapenetpart_val.npz").is_file(), reason="needs ShapeNetPart, which is not shipped")
def test_the_audit_of_a_shipped_bundle_of_parts_counts_what_run_counts():
    audited = audits.opened("shapenetpart")
    clouds = audits.samples_of(audited, None, None, "validation", 12)
    mean, each = audits.points_of(audited, clouds)
    rule, accepted, _ = parts.rules_of(audited.deployed)
    ran, _ = parts.run(audited.deployed, samples_of(audited.deployed, None, "validation", None, 12), rule, accepted)
    assert mean.measured == pytest.approx(ran["wrong_among_accepted"], abs=1e-12)
    assert each.measured == sum(share > 0.05 for share in ran["wrong_shares_each"]) / 12


def test_points_have_a_label_after_each_look_that_the_whole_budget_confirms():
    perceiver, scenes, truth = setting(3)
    names = tuple("abc")
    (one, *_) = contents.shown(perceiver, scenes, names, truth, [(0, "right"), (1, "wrong")], ExitRule())
    labels = np.array(one["picture"]["labels"])
    assert labels.shape == (perceiver.budget, len(one["picture"]["seen"]))
    assert labels.max() < len(contents.bar_names(perceiver)) == len(one["shares"][0])
    assert one["shares"][-1] == np.round(np.bincount(labels[-1], minlength=5) / labels.shape[1], 4).tolist()
