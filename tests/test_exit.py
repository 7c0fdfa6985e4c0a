"""The margin, the stop test and the reasons: by hand, at the edges, and one form against the other."""

from __future__ import annotations

import re
from decimal import Decimal, localcontext
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from asp_neuro.errors import InputError, UsageError
from asp_neuro.grid.softmax import margin, probabilities
from asp_neuro.model import exit
from asp_neuro.model.exit import ExitReason, ExitRule, first_crossing, n_crossed, stops

LOGITS = arrays(np.float64, st.integers(2, 9), elements=st.floats(-1e3, 1e3))
# few distinct values, so that margins meet thresholds exactly
EIGHTHS = st.integers(0, 8).map(lambda k: k / 8)


@pytest.mark.parametrize(
    ("logits", "expected"),
    [
        ([0.0, 0.0], 0.0),
        ([np.log(3), 0.0], 0.5),  # 3/4 - 1/4
        ([0.0, np.log(6), np.log(3)], 0.3),  # 1, 6, 3 of 10
        ([7.0, 7.0, -50.0], 0.0),
        ([800.0, 0.0], 1.0),  # exp(800) overflows
        ([-1e6, -1e6 - np.log(3)], 0.5),
    ],
)
def test_margins_by_hand(logits, expected):
    assert margin(np.array(logits)) == pytest.approx(expected, abs=1e-9)


STEP = 2.0**-30


@pytest.mark.parametrize(
    ("gap", "steps"), [(2.0**-28, 2), (2.0**-27, 4), (2.0**-29, 1), (2.0**-32, 0), (1e-12, 0), (0.0, 0)]
)
def test_a_tiny_gap_is_told_in_whole_steps(gap, steps):
    """tanh(gap / 2) in steps of 2^-30, by hand; below half a step it is none, which crosses no threshold."""
    found = margin(np.array([gap, 0.0]))
    assert found == steps * STEP
    assert stops(found, 0.0) == (steps > 0)


def exact_margin(logits: np.ndarray) -> float:
    """To 25 digits."""
    with localcontext() as context:
        context.prec, context.Emin = 60, -(10**6)
        weights = sorted(Decimal(float(z)).exp() for z in logits)
        return float((weights[-1] - weights[-2]) / sum(weights))


@given(LOGITS)
def test_the_margin_is_the_gap_of_the_two_best_probabilities(logits):
    """Within 2^-29, the bound that the verdicts count on; both are whole steps."""
    p, found = np.sort(probabilities(logits)), margin(logits)
    assert p.sum() == pytest.approx(1.0, abs=len(p) * STEP)
    assert 0.0 <= found <= 1.0
    assert abs(found - exact_margin(logits)) < 2.0 * STEP
    assert abs(found - (p[-1] - p[-2])) <= 2.0 * STEP
    for values in (found, p):
        assert (values / STEP % 1.0 == 0.0).all()


@given(
    arrays(
        np.float32, array_shapes(min_dims=3, max_dims=3, min_side=2, max_side=5), elements=st.floats(-8, 8, width=32)
    )
)
def test_a_row_has_the_same_bits_alone_and_in_a_batch(logits):
    together = margin(logits)
    transposed = margin(np.asfortranarray(logits))
    for place in np.ndindex(logits.shape[:2]):
        assert together[place] == margin(logits[place]) == transposed[place]


def test_float32_logits_are_computed_in_float64():
    assert margin(np.array([1.0, 0.5], dtype=np.float32)).dtype == np.float64
    assert probabilities(np.array([1.0, 0.5], dtype=np.float32)).dtype == np.float64


@pytest.mark.parametrize(
    ("logits", "said"), [([1.0], "2 classes"), ([1.0, np.nan], "1 of 2"), ([np.inf, 1.0], "1 of 2")]
)
def test_logits_without_a_margin_are_refused(logits, said):
    with pytest.raises(InputError, match=said):
        margin(np.array(logits))


def test_first_crossings_by_hand():
    margins = np.array([[0.1, 0.5, 0.5, 0.9], [0.6, 0.2, 0.5, 0.0], [0.9, 0.7, 0.5, 0.0]])  # [T, n]
    assert first_crossing(margins, 0.5).tolist() == [1, 2, -1, 0]  # 0.5 does not cross 0.5
    assert first_crossing(margins, 0.9).tolist() == [-1, -1, -1, -1]
    assert first_crossing(margins, 0.0).tolist() == [0, 0, 0, 0]


@given(arrays(np.float64, (5, 4), elements=EIGHTHS), EIGHTHS)
def test_the_running_maximum_crosses_first_where_the_margins_do(margins, tau):
    running = np.maximum.accumulate(margins, axis=0)
    assert first_crossing(running, tau).tolist() == first_crossing(margins, tau).tolist()


@given(arrays(np.float64, 6, elements=EIGHTHS), st.sets(EIGHTHS))
def test_bisection_counts_what_the_stop_test_says(margins, taus):
    ascending = np.array(sorted(taus))
    assert n_crossed(margins, ascending).tolist() == [int(stops(m, ascending).sum()) for m in margins]


def test_the_stop_test_stands_on_one_line():
    code = re.sub(r'(?s:""".*?""")|#.*', "", Path(exit.__file__).read_text()).replace("->", "")
    assert [line.strip() for line in code.splitlines() if ">" in line] == ["return np.asarray(margins > tau)"]


OPEN, CERTIFIED, THRESHOLD = ExitRule(), ExitRule(0.5, certified=True), ExitRule(0.5)
ACCEPT = ExitRule(0.5, certified=True, kappa=0.6)
ACCEPT_LOW = ExitRule(0.5, certified=True, kappa=0.3)


@pytest.mark.parametrize(
    ("value", "last", "rule", "reason"),
    [
        (0.9, False, OPEN, None),
        (0.9, True, OPEN, ExitReason.BUDGET),
        (0.5, False, CERTIFIED, None),
        (0.51, False, CERTIFIED, ExitReason.CERTIFIED),
        (0.51, True, CERTIFIED, ExitReason.CERTIFIED),
        (0.5, True, CERTIFIED, ExitReason.BUDGET),
        (0.51, False, THRESHOLD, ExitReason.THRESHOLD),
        (0.5, True, THRESHOLD, ExitReason.BUDGET),
        (0.55, False, ACCEPT, ExitReason.THRESHOLD),  # stopped, not accepted
        (0.65, False, ACCEPT, ExitReason.CERTIFIED),
        (0.4, False, ACCEPT_LOW, None),
        (0.4, True, ACCEPT_LOW, ExitReason.CERTIFIED),  # sure enough at the end of the budget
        (0.2, True, ACCEPT_LOW, ExitReason.BUDGET),
    ],
)
def test_each_look_ends_as_by_hand(value, last, rule, reason):
    (crossed,) = rule.crossed(np.array([value]))
    ended = rule.reason(value, bool(crossed)) if crossed or last else None
    assert ended is reason


def test_reasons_are_the_words_of_the_records_and_say_one_sentence():
    assert [reason.value for reason in ExitReason] == ["certified", "threshold", "budget", "unfamiliar"]
    assert ExitReason("budget") is ExitReason.BUDGET
    for reason in ExitReason:
        assert reason.sentence.endswith(".")
        assert reason.sentence.count(".") == 1
    assert all("no promise" in reason.sentence for reason in (ExitReason.THRESHOLD, ExitReason.BUDGET))


@pytest.mark.parametrize("bad", [1.0, -0.1, float("nan")])
def test_a_threshold_outside_the_range_of_a_margin_is_refused(bad):
    with pytest.raises(UsageError, match=str(bad)):
        ExitRule(bad)
    with pytest.raises(UsageError, match="kappa"):
        ExitRule(0.5, kappa=bad)
