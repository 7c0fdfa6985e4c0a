"""The bet against the promise: three steps by hand, the state across runs, false alarms and alarms."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asp_neuro.certify import monitor
from asp_neuro.certify.monitor import (
    OPENING,
    Bet,
    MonitorState,
    alarm,
    bet,
    check_belongs,
    feed,
    message,
    shuffled,
    start,
    update,
    update_all,
)
from asp_neuro.errors import InputError, UsageError

SHA = "ab" * 32


def alarm_times(risk, paths=2000, labels=3000, alpha=0.05, level=0.05, step=bet, seed=0):
    """[paths] the label that raised the alarm, 0 for none; all streams at once."""
    rng = np.random.default_rng(seed)
    state = Bet(*(np.full(paths, value) for value in OPENING))
    when = np.zeros(paths, dtype=int)
    for label in range(1, labels + 1):
        state = step(state, rng.random(paths) < risk, alpha)
        when[(when == 0) & (state.log_wealth >= -math.log(level))] = label
    return when


def test_three_steps_by_hand():
    # alpha = 1/4, c = 2 / (2 - 1.0986123) = 2.2188010; labels wrong, right, wrong
    one = update(start(SHA, 0.25), True)
    # g = 0.75, factor 1, y = -0.75, A = 1.5625, eta = 2.2188010 * 0.75 / 1.5625
    assert (one.log_wealth, one.curvature) == (0.0, 1.5625)
    assert one.eta == pytest.approx(1.0650245, abs=1e-7)
    two = update(one, False)
    # g = -0.25, factor 1 - 0.26625613 = 0.73374387, y = 0.34071835, A = 1.67858899, eta = 1.0650245 - 0.4503701
    assert two.log_wealth == pytest.approx(math.log(0.73374387), abs=1e-7)
    assert two.curvature == pytest.approx(1.6785890, abs=1e-7)
    assert two.eta == pytest.approx(0.6146544, abs=1e-7)
    three = update(two, True)
    # g = 0.75, factor 1.46099083, y = -0.51335024, A = 1.94211746, eta = 0.6146544 + 0.5864846
    assert three.log_wealth == pytest.approx(math.log(0.73374387 * 1.46099083), abs=1e-7)
    assert three.curvature == pytest.approx(1.9421175, abs=1e-7)
    assert three.eta == pytest.approx(1.2011391, abs=1e-7)
    assert (three.n, three.n_wrong, three.alarm_at) == (3, 2, None)


def test_a_right_answer_first_costs_nothing_and_bets_nothing():
    state = update_all(start(SHA, 0.05), [False] * 10)
    assert (state.eta, state.log_wealth) == (0.0, 0.0)


@given(st.lists(st.booleans(), max_size=60), st.sampled_from([0.01, 0.05, 0.3, 0.9]), st.integers(0, 60))
def test_two_halves_with_a_file_between_equal_one_run(labels, alpha, cut):
    whole = update_all(start(SHA, alpha), labels)
    first = update_all(start(SHA, alpha), labels[:cut])
    again = MonitorState.from_dict(json.loads(json.dumps(first.to_dict())))
    assert again == first
    assert update_all(again, labels[cut:]) == whole


@given(st.lists(st.booleans(), max_size=80), st.sampled_from([0.01, 0.05, 0.3, 0.9]))
def test_every_bet_is_fair_or_worse_under_the_null(labels, alpha):
    # E[factor] = 1 + eta (risk - alpha) <= 1 needs eta >= 0; a positive wealth needs eta < 1/alpha.
    state = start(SHA, alpha)
    for wrong in labels:
        assert 0 <= state.eta <= 1 / (2 * alpha)
        gain, loss = (1 + state.eta * (z - alpha) for z in (1, 0))
        assert alpha * gain + (1 - alpha) * loss == pytest.approx(1.0)
        state = update(state, wrong)


def test_the_alarm_stays_raised_however_good_the_answers_become():
    state = update_all(start(SHA, 0.05), [True] * 6)
    assert alarm(state)
    later = update_all(state, [False] * 500)
    assert later.log_wealth < -math.log(later.level)
    assert alarm(later)
    assert later.alarm_at == state.alarm_at
    assert "ALARM" in message(later)
    assert "506" in message(later)


def test_no_alarm_is_not_sold_as_a_proof():
    assert "does not prove" in message(update_all(start(SHA, 0.05), [False] * 100))


def adverse(n: int, risk: float) -> list[bool]:
    """A stream whose risk is as promised and whose order is the worst: everything that is wrong comes together."""
    n_wrong = int(risk * n)
    return [False] * (n // 2) + [True] * n_wrong + [False] * (n - n // 2 - n_wrong)


def test_an_alarm_from_an_adverse_order_does_not_say_that_the_promise_is_broken():
    state = update_all(start(SHA, 0.05), adverse(900, 40 / 900))
    assert alarm(state)
    said = message(state)
    assert "Of all 900 so far 40 were wrong (4.4 %), no more than the promised 5 %" in said
    assert "more than the promised 5 %: what comes" not in said
    assert "sorted by class" in said
    # the stretch begins where the wealth was lowest: after the right answers, at the first wrong one
    assert state.low_at == 450
    assert f"raised at label {state.alarm_at}: of labels 451 to {state.alarm_at}, " in said
    length = state.alarm_at - 450
    assert f"{length} of {length} were wrong (100.0 %)" in said


def test_an_alarm_at_a_risk_that_is_too_high_says_so():
    state = update_all(start(SHA, 0.05), ([True] + [False] * 4) * 100)
    said = message(state)
    assert "Of all 500 so far 100 were wrong (20.0 %), more than the promised 5 %" in said
    assert "calibrate again" in said


def test_a_shuffled_adverse_stream_raises_no_more_false_alarms_than_its_level():
    wrong, alarms = np.array(adverse(600, 0.05)), 0
    names = [str(i) for i in range(600)]
    for seed in range(60):
        alarms += alarm(update_all(start(SHA, 0.05), wrong[shuffled(names, seed)]))
    assert alarm(update_all(start(SHA, 0.05), wrong))
    assert alarms <= 6  # 5 % of 60, and two standard errors


@given(st.lists(st.text("ab", max_size=3), max_size=30), st.integers(0, 3))
def test_a_shuffle_is_a_permutation_that_follows_from_the_content(names, seed):
    order = shuffled(names, seed)
    assert sorted(order) == list(range(len(names)))
    backward = shuffled(names[::-1], seed)
    assert [names[i] for i in order] == [names[::-1][i] for i in backward]


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=60), st.integers(0, 60))
def test_a_cloud_counts_once_however_often_it_is_fed(pairs, cut):
    names, wrong = [str(name) for name, _ in pairs], [value for _, value in pairs]
    state = feed(feed(start(SHA, 0.05), names[:cut], wrong[:cut]), names[cut:], wrong[cut:])
    first = dict(reversed(list(zip(names, wrong))))
    alone = update_all(start(SHA, 0.05), [first[name] for name in dict.fromkeys(names)])
    assert (state.n, state.n_wrong, state.log_wealth) == (alone.n, alone.n_wrong, alone.log_wealth)
    assert state.repeats == len(pairs) - state.n
    assert MonitorState.from_dict(json.loads(json.dumps(state.to_dict()))) == state


def test_the_memory_is_bounded_and_the_oldest_clouds_are_forgotten(monkeypatch):
    monkeypatch.setattr(monitor, "REMEMBERED", 4)
    state = feed(start(SHA, 0.05), list("abcdef"), [False] * 6)
    assert len(state.seen) == 44  # 4 times 8 bytes, in base64
    assert feed(state, ["c", "f"], [True, True]).n == 6
    assert feed(state, ["a", "b"], [True, True]).n == 8


def test_what_is_watched_is_told_in_its_own_words():
    state = start(SHA, 0.02, what="unfamiliar")
    assert "up to 2 % are expected" in message(update(state, False))
    said = message(update_all(state, [True] * 5))
    assert "ALARM, raised at cloud" in said
    assert "not like the known clouds" in said
    with pytest.raises(InputError, match="watches 'hue'"):
        start(SHA, 0.05, what="hue")


def test_many_streams_at_once_equal_one_at_a_time():
    # numpy's log differs from array to scalar in the last bit at most
    rng = np.random.default_rng(5)
    labels = rng.random((200, 3)) < 0.1
    together = Bet(*(np.full(3, value) for value in OPENING))
    for row in labels:
        together = bet(together, row, 0.05)
    alone = [update_all(start(SHA, 0.05), column).log_wealth for column in labels.T]
    np.testing.assert_allclose(together.log_wealth, alone, rtol=1e-12)


@pytest.mark.slow
def test_false_alarms_stay_below_their_level_at_risk_exactly_alpha():
    when = alarm_times(0.05, labels=6000)
    assert (when > 0).mean() <= 0.05
    assert (alarm_times(0.02) > 0).mean() == 0.0


def test_a_bet_that_peeks_at_the_label_is_caught():
    def peeking(before, wrong, alpha):
        return bet(before._replace(eta=np.where(wrong, 2.0, 0.0)), wrong, alpha)

    assert (alarm_times(0.05, labels=500, step=peeking) > 0).mean() > 0.9


def test_restarting_after_every_look_is_caught():
    # the wealth is set back to 1 whenever it is below: the level is lost
    def restarting(before, wrong, alpha):
        after = bet(before, wrong, alpha)
        return after._replace(log_wealth=np.maximum(after.log_wealth, 0.0))

    assert (alarm_times(0.05, step=restarting) > 0).mean() > 0.1


def test_twice_the_risk_is_found_within_a_few_hundred_labels():
    when = alarm_times(0.10, labels=2000)
    assert (when > 0).all()
    assert np.median(when) < 200


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"n_wrong": 9}, "9 wrong of 3"),
        ({"eta": -0.1}, "-0.1"),
        ({"eta": 11.0}, "outside \\[0, 10.0\\]"),
        ({"curvature": 0.5}, "0.5"),
        ({"log_wealth": 4.0}, "not raised"),
        ({"alarm_at": 4}, "label 4 of 3"),
        ({"alpha": 1.5}, "1.5"),
        ({"low_at": 5}, "lowest at label 5"),
        ({"low_wrong": 2, "low_at": 2}, "do not fit"),
        ({"alarm_wrong": 1}, "alarm"),
        ({"low": 0.5}, "at most 0"),
        ({"repeats": -1}, "-1 repeats"),
        ({"seen": "AAAA"}, "3 bytes of remembered clouds"),
        ({"seen": "?"}, "base64"),
    ],
)
def test_an_impossible_state_is_refused(change, said):
    state = update_all(start(SHA, 0.05), [False, False, True])
    with pytest.raises((InputError, UsageError), match=said):
        replace(state, **change)
    with pytest.raises(InputError):
        MonitorState.from_dict({**state.to_dict(), **change})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"n_wrong": 2}, "edited"),
        ({"n": 3.0}, "must be a whole number"),
        ({"eta": float("nan")}, "finite number"),
        ({"eta": None}, "finite number"),
        ({"labels": 3}, "unknown key 'labels'"),
        ({"sha256": None}, "edited"),
    ],
)
def test_an_edited_file_is_refused(change, said):
    state = update_all(start(SHA, 0.05), [False, False, True])
    with pytest.raises(InputError, match=said):
        MonitorState.from_dict({**state.to_dict(), **change})


def test_a_state_that_is_no_object_or_lacks_a_key_is_refused():
    data = start(SHA, 0.05).to_dict()
    del data["eta"]
    with pytest.raises(InputError, match="eta is missing"):
        MonitorState.from_dict(data)
    with pytest.raises(InputError, match="expected a table"):
        MonitorState.from_dict([1, 2])


def test_the_state_belongs_to_one_model_and_one_promise():
    state = start(SHA, 0.05)
    check_belongs(state, SHA, 0.05)
    with pytest.raises(InputError, match="feedback of model abababababab"):
        check_belongs(state, "cd" * 32, 0.05)
    with pytest.raises(InputError, match="5 %, this one is 10 %"):
        check_belongs(state, SHA, 0.10)


@pytest.mark.parametrize("bad", [0.0, 1.0, -1.0, float("nan")])
def test_levels_outside_the_unit_interval_are_refused(bad):
    with pytest.raises(UsageError, match=f"alpha {bad}"):
        start(SHA, bad)
    with pytest.raises(UsageError, match=f"level {bad}"):
        start(SHA, 0.05, bad)


def test_the_step_is_the_constant_of_the_online_newton_step():
    assert pytest.approx(2.2188010, abs=1e-7) == monitor.STEP


def test_losses_between_0_and_1_are_bet_against_too():
    quiet = monitor.update_all(monitor.start("m", 0.1, what=monitor.LOSSES), [0.05, 0.2, 0.0] * 200)
    assert quiet.alarm_at is None
    assert quiet.total == pytest.approx(50.0)
    assert "8.3 % of the accepted points were wrong on average" in monitor.message(quiet)
    loud = monitor.update_all(monitor.start("m", 0.1, what=monitor.LOSSES), [0.3, 0.1, 0.25] * 200)
    assert loud.alarm_at is not None
    assert monitor.MonitorState.from_dict(loud.to_dict()) == loud
    with pytest.raises(UsageError, match="outside"):
        monitor.update(quiet, 1.5)
    with pytest.raises(UsageError, match="neither wrong nor right"):
        monitor.update(monitor.start("m", 0.1), 0.5)
