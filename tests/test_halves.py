"""Calibrations on random halves: the sums over clouds are the certificates that they stand for."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from asp_neuro.certify import Recording, certify, make_plan, paper_rule, tally_at
from asp_neuro.certify.plan import Condition
from asp_neuro.errors import InputError, UsageError
from asp_neuro.runtime import deployment
from asp_neuro.studies import halves
from asp_neuro.studies.halves import OURS, PAPERS, SHIPPED, Counted

N, T = 400, 3


def recorded(risk: float, seed: int, n: int = N) -> Recording:
    """Margins that rise, and answers that are wrong with this probability, more often where the margin is small."""
    rng = np.random.default_rng(seed)
    margins = np.sort(rng.random((T, n)), axis=0)
    return Recording(margins, rng.random((T, n)) >= 2.0 * risk * (1.0 - margins**2))


@pytest.fixture(scope="module")
def case():
    """A plan from clouds of their own, recorded clouds, ten halves of them."""
    made = make_plan(recorded(0.04, 1), n_calibration=N // 2)
    seen = recorded(0.04, 2)
    return made, seen, halves.outcomes([seen], made.grid, None), halves.random_halves(N, 10, 0)


def test_halves_are_halves_and_follow_from_the_seed():
    drawn = halves.random_halves(7, 50, 3)
    assert drawn.shape == (50, 7)
    assert set(drawn.sum(axis=1)) == {3}
    assert len({tuple(one) for one in drawn.tolist()}) > 20
    assert np.array_equal(drawn, halves.random_halves(7, 50, 3))
    assert not np.array_equal(drawn, halves.random_halves(7, 50, 4))


def test_each_half_is_certified_as_a_certificate_would(case):
    """Threshold and counts of all halves at once, against `certify` and `tally_at` half by half: bit-exact."""
    made, seen, found, drawn = case
    told = halves.recalibrated(found, made, drawn, OURS)
    for at, half in enumerate(drawn):
        expected = certify(seen.subset(np.flatnonzero(half)), made)
        index = told.chosen[at]
        assert expected.threshold == (made.grid[index] if index >= 0 else None)
        if index >= 0:
            other = tally_at(seen.subset(np.flatnonzero(~half)), made.grid[index])
            assert (told.accepted[0, at], told.wrong[0, at]) == (other.accepted, other.errors)
            assert told.observations[at] == pytest.approx(other.mean_observations, abs=1e-12)
    assert (told.chosen >= 0).any()


def test_the_papers_rule_is_that_of_the_paper(case):
    made, seen, found, drawn = case
    told = halves.recalibrated(found, made, drawn, PAPERS)
    for index, half in zip(told.chosen, drawn, strict=True):
        expected = paper_rule(seen.subset(np.flatnonzero(half)), made.grid, made.alpha, made.delta)
        assert expected == (made.grid[index] if index >= 0 else None)


def test_unfamiliar_clouds_are_not_accepted(case):
    made, seen, _, drawn = case
    strange = np.zeros((T + 1, N))
    strange[:, ::2] = 9.0
    odd = dataclasses.replace(seen, strange=strange)
    found = halves.outcomes([odd], made.grid, [1.0] * len(made.grid))
    assert not found.accepted[0, :, ::2].any()
    index = halves.recalibrated(found, made, drawn, SHIPPED, made.grid[-1])
    other = tally_at(odd.subset(np.flatnonzero(~drawn[0])), made.grid[-1], 1.0)
    assert (index.accepted[0, 0], index.wrong[0, 0]) == (other.accepted, other.errors)


def test_under_conditions_each_must_pass(case):
    """A condition under which every answer is wrong leaves nothing to certify."""
    made, seen, _, drawn = case
    broken = Recording(seen.margins, np.zeros((T, N), dtype=bool))
    hard = dataclasses.replace(made, cover=(Condition("fog", "drop", 0.5, 0),))
    found = halves.outcomes([seen, broken], hard.grid, None)
    told = halves.recalibrated(found, hard, drawn, OURS)
    assert set(told.chosen) == {-1}
    assert not told.accepted.any()
    assert set(told.observations) == {float(T)}
    summed = halves.row(OURS, told, 0.05, N // 2)
    assert (summed["certified"], summed["held"], summed["wrong_mean"]) == (0, 1.0, None)


def test_a_row_by_hand():
    """100 accepted in each of four halves, one without a certificate: 5 of 100 keep 5 %, 6 do not; 12 are no chance."""
    told = Counted(np.array([0, 0, 0, -1]), np.array([[100, 100, 100, 0]]), np.array([[5, 6, 12, 0]]), np.full(4, 2.0))
    found = halves.row(OURS, told, 0.05, 200)
    assert (found["certified"], found["held"], found["beyond_chance"]) == (3, 0.5, 0.25)
    assert (found["wrong_mean"], found["wrong_most"]) == (pytest.approx(0.23 / 3), 0.12)
    assert found["certified_answers"] == 0.375


def test_a_promise_that_does_not_hold_is_caught(case):
    """The loosest threshold whatever is counted, on clouds of which a fifth is answered wrongly."""
    made = case[0]
    found = halves.outcomes([recorded(0.2, 5)], made.grid, None)
    drawn = halves.random_halves(N, 40, 1)
    bold = halves.row(SHIPPED, halves.recalibrated(found, made, drawn, SHIPPED, made.grid[-1]), 0.05, N // 2)
    assert (bold["held"], bold["beyond_chance"]) == (0.0, 1.0)
    ours = halves.row(OURS, halves.recalibrated(found, made, drawn, OURS), 0.05, N // 2)
    assert ours["held"] >= 0.9


def test_the_command_writes_table_picture_and_report(cli, tmp_path):
    said = cli("study", "halves", "compact", "--split", "validation", "--limit", "160", "--repeats", "20", "--out",
               str(tmp_path), "--json")  # fmt: skip
    assert said.code == 0
    assert [row["rule"] for row in said.json["rows"]] == [OURS, PAPERS, SHIPPED]
    assert {path.name for path in tmp_path.iterdir()} == {"halves.csv", "halves_each.csv", "halves.png", "halves.json"}
    assert len(said.json["halves"]) == 60
    again = cli("study", "halves", "compact", "--split", "validation", "--limit", "160", "--repeats", "20", "--out",
                str(tmp_path))  # fmt: skip
    assert "of 20 " in again.out


def test_a_certificate_that_is_missing_or_void_is_told_with_what_to_type():
    deployed = deployment.open_bundle("compact")
    with pytest.raises(InputError, match=r"is void: .*made for model .*; certify again: asp-neuro certify compact"):
        halves.promised(dataclasses.replace(deployed, sha256="0" * 64))
    bare = dataclasses.replace(deployed, bundle=dataclasses.replace(deployed.bundle, certificate=None))
    with pytest.raises(InputError, match=r"no certificate to repeat: asp-neuro certify .*compact\.net"):
        halves.promised(bare)


def test_what_labels_points_has_no_certificate_of_a_class():
    with pytest.raises(UsageError, match="labels points"):
        halves.promised(deployment.open_bundle("shapenetpart"))
