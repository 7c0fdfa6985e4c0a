"""Ways to look, compared: hand-computed stops, spreads, paired errors and headroom."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asp_neuro.certify import Recording
from asp_neuro.errors import InputError
from asp_neuro.studies.comparison import THRESHOLDS, Stop, answers, budgets, difference, headroom, measure

# Three steps, four clouds. At margin 0.3 they stop at step 1, 2, 3 (0.3 itself is no crossing) and never.
MARGINS = np.array([[0.4, 0.1, 0.3, 0.0], [0.1, 0.5, 0.2, 0.1], [0.9, 0.9, 0.35, 0.2]])
RIGHT = np.array([[1, 0, 0, 0], [0, 0, 1, 0], [1, 1, 1, 1]], dtype=bool)
ONE = Recording(MARGINS, RIGHT)
OTHER = Recording(MARGINS, ~RIGHT)


def test_a_threshold_stops_each_cloud_at_its_own_step():
    right, seen = answers(ONE, Stop(tau=0.30))
    assert seen.tolist() == [1, 2, 3, 3]
    assert right.tolist() == [True, False, True, True]


def test_a_budget_reads_every_cloud_at_the_same_step():
    right, seen = answers(ONE, Stop(2))
    assert (right.tolist(), seen.tolist()) == ([False, False, True, False], [2, 2, 2, 2])


@pytest.mark.parametrize("k", [0, 4, -1])
def test_a_budget_that_the_run_does_not_have_is_refused(k):
    with pytest.raises(InputError, match=f"after {k} observations: the run has 1 to 3"):
        answers(ONE, Stop(k))


def test_mean_and_spread_over_models_by_hand():
    found = measure([ONE, OTHER], Stop(tau=0.30))  # 3/4 and 1/4 right; both after (1 + 2 + 3 + 3)/4
    assert found.accuracy == 0.5
    assert found.spread == pytest.approx(0.5 / math.sqrt(2.0))  # sqrt((1/4^2 + 1/4^2)/(2 - 1))
    assert (found.observations, found.observations_spread) == (2.25, 0.0)
    assert math.isnan(measure([ONE], Stop(1)).spread)


def test_the_paired_error_by_hand():
    # k=1 is right in (1 0 0 0), the rival in (0 1 1 1): differences 1, -1, -1, -1: mean -1/2, variance 3/3
    found = difference([ONE], [OTHER], Stop(1))
    assert (found.difference, found.standard_error) == (-0.5, 0.5)
    # Over two models the difference of a cloud is averaged first: every cloud cancels, and so does the error.
    both = difference([ONE, OTHER], [OTHER, ONE], Stop(1))
    assert (both.difference, both.standard_error) == (0.0, 0.0)


def test_observations_are_paired_too():
    patient = Recording(np.zeros((3, 4)), RIGHT)  # never crosses: 3 observations each
    found = difference([ONE], [patient], Stop(tau=0.30))  # -2, -1, 0, 0: mean -3/4, sum of squares 5 - 4 * 9/16
    assert found.observations == -0.75
    assert found.observations_error == pytest.approx(math.sqrt((5 - 2.25) / 3) / 2)


def test_runs_over_other_clouds_or_models_cannot_be_paired():
    fewer = Recording(MARGINS[:, :3], RIGHT[:, :3])
    for theirs in ([fewer], [ONE, ONE]):
        with pytest.raises(InputError, match="cannot be paired"):
            difference([ONE], theirs, Stop(1))


def test_the_papers_headroom_follows_from_its_table():
    # At the calibrated exit 90.54, 90.21 and 91.69: "captures 22 %". At k=1 (56.08, 52.41, 61.27) it would be 41 %.
    assert headroom(90.54, 90.21, 91.69) == pytest.approx(0.33 / 1.48)
    assert headroom(learned=56.08, random=52.41, oracle=61.27) == pytest.approx(3.67 / 8.86)
    assert headroom(0.5, 0.6, 0.6) is None


def test_the_budgets_of_the_table_end_with_the_whole_one():
    assert budgets(16) == (1, 2, 3, 4, 8, 16)
    assert budgets(4) == (1, 2, 3, 4)
    assert budgets(6) == (1, 2, 3, 4, 6)
    assert budgets(1) == (1,)


@given(st.integers(1, 6), st.integers(1, 20), st.integers(0, 10**6))
def test_a_stricter_threshold_never_sees_less_and_no_threshold_sees_more_than_the_budget(n_steps, n, seed):
    rng = np.random.default_rng(seed)
    run = Recording(rng.random((n_steps, n)), rng.random((n_steps, n)) < 0.5)
    seen = [measure([run], Stop(tau=tau)).observations for tau in THRESHOLDS]
    assert seen == sorted(seen)
    assert 1.0 <= seen[0] <= seen[-1] <= n_steps
    whole = measure([run], Stop(tau=0.9999999)), measure([run], Stop(n_steps))
    if (run.margins[:-1] <= 0.9999999).all():
        assert whole[0].accuracy == whole[1].accuracy
