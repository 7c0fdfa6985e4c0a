"""Parts in audits and report: the prefix form knows what was seen, the category is the class, points have labels."""

from __future__ import annotations

import numpy as np
import specs

from asp_neuro.model import prefix
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.studies.audits.record import record
from asp_neuro.studies.audits.run import Audited, left_out, rows_of
from asp_neuro.studies.page import contents


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
    assert (len(rows), rows[0].verdict, left_out(perceiver, rows)) == (30, "holds", [])


def test_points_have_a_label_after_each_look_that_the_whole_budget_confirms():
    perceiver, scenes, truth = setting(3)
    names = tuple("abc")
    (one, *_) = contents.shown(perceiver, scenes, names, truth, [(0, "right"), (1, "wrong")], ExitRule())
    labels = np.array(one["picture"]["labels"])
    assert labels.shape == (perceiver.budget, len(one["picture"]["seen"]))
    assert labels.max() < len(contents.bar_names(perceiver)) == len(one["shares"][0])
    assert one["shares"][-1] == np.round(np.bincount(labels[-1], minlength=5) / labels.shape[1], 4).tolist()
