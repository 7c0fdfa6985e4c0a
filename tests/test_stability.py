"""Decision stability: bounds by hand, and that no membrane within the box is found that breaks one."""

from __future__ import annotations

import numpy as np
import pytest
import specs
from asp_neuro.model.host import EPSILON, Host

from asp_neuro.grid.softmax import margin
from asp_neuro.heads.soft.guard import drift
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.stability import (
    PRESERVED,
    Box,
    Look,
    Stability,
    Watch,
    change,
    lead_margin,
    leads,
    make_box,
    same_side,
)

N_CHUNKS = 6


def setting(seed: int, scorer: str = "bilinear") -> tuple[Host, Stability, np.random.Generator]:
    rng = np.random.default_rng(seed)
    spec = specs.random_host(rng, n_neurons=12, n_classes=4, scorer=scorer)
    last = specs.random_head(rng, 16, 12, 1).layers[-1]
    return Host(spec), Stability(spec, last), rng


def boxes(rng: np.random.Generator, b: int = 30, n: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Membranes and reaches: from rounding of no account to boxes as large as the membranes, and nearly dead layers."""
    membrane = rng.normal(size=(b, n)) * 10.0 ** rng.uniform(-3, 0.5, (b, 1)) + rng.normal(size=(b, 1))
    spread = membrane.std(axis=1, keepdims=True)
    return membrane, spread * 10.0 ** rng.uniform(-5, 0.2, (b, 1)) * rng.uniform(0.0, 1.0, (b, n))


def tried(rng: np.random.Generator, membrane: np.ndarray, reach: np.ndarray, signs: list[np.ndarray]) -> np.ndarray:
    """[K, b, H] membranes within the box: random ones, random corners, and the corners of given directions."""
    inside = rng.uniform(-1.0, 1.0, (40, *membrane.shape))
    corner = np.sign(rng.normal(size=(40, *membrane.shape)))
    steps = [*inside, *corner, *(np.sign(s) for s in signs), *(-np.sign(s) for s in signs)]
    return membrane + reach * np.array(steps)


def uphill(f, membrane: np.ndarray, reach: np.ndarray) -> list[np.ndarray]:
    """Directions in which the columns of f (membranes [b, H] -> [b, n]) rise at the centre and at two corners."""
    found = []
    for column in range(f(membrane).shape[1]):
        at = membrane
        for _ in range(3):
            slope = np.stack([_slope(f, at, reach, column, k) for k in range(membrane.shape[1])], axis=1)
            found.append(slope)
            at = membrane + reach * np.sign(slope)
    return found


def _slope(f, at: np.ndarray, reach: np.ndarray, column: int, k: int) -> np.ndarray:
    step = np.zeros_like(at)
    step[:, k] = 1e-6 * (1e-6 + reach[:, k])
    return (f(at + step) - f(at - step))[:, column]


def score_gaps(host: Host, geometry: np.ndarray, best: np.ndarray):
    """Membranes -> exact (not rounded) score(best) - score(m), [b, M]."""

    def f(membrane: np.ndarray) -> np.ndarray:
        pull = host.belief(membrane) @ host.wide["policy_belief"].T
        raw = np.tanh(pull[:, None] + geometry) @ host.wide["policy_score"]
        return raw[np.arange(len(raw)), best][:, None] - raw

    return f


def logit_gaps(host: Host, best: np.ndarray):
    def f(membrane: np.ndarray) -> np.ndarray:
        logits = host.logits(host.belief(membrane))
        return logits[np.arange(len(logits)), best][:, None] - logits

    return f


def test_the_box_of_two_neurons_by_hand():
    box = make_box(np.array([[1.0, 3.0]]), np.array([[0.1, 0.2]]))
    assert box.radius[0, 0] == pytest.approx(np.sqrt(0.025))
    assert box.sigma[0, 0] == pytest.approx(np.sqrt(1.0 + EPSILON))
    assert box.least_sigma[0, 0] == pytest.approx(np.sqrt((1.0 - np.sqrt(0.025)) ** 2 + EPSILON))
    # |du_1 - mean du| <= (0.1 + 0.2) / 2 for both
    moved = 0.15 + np.abs(box.normal[0]) * box.radius[0, 0]
    assert box.turn[0] == pytest.approx(moved / box.least_sigma[0, 0])


def test_a_dead_layer_has_a_finite_but_huge_box():
    box = make_box(np.full((1, 4), 2.0), np.full((1, 4), 1.0))
    assert box.least_sigma[0, 0] == pytest.approx(np.sqrt(EPSILON))
    assert np.isfinite(box.turn).all()
    assert box.turn.min() > 100


@pytest.mark.parametrize("seed", range(20))
def test_no_search_leaves_the_bound_on_normalised_membranes_and_leads(seed):
    host, stability, rng = setting(seed)
    membrane, reach = boxes(rng)
    box = make_box(membrane, reach)
    best = host.logits(host.belief(membrane)).argmax(axis=1)
    f = logit_gaps(host, best)
    bound = np.stack(
        [change(box, stability.readout[best] - stability.readout[c], 0.0) for c in range(4)], axis=1
    )  # [b, C]
    plain = (membrane - membrane.mean(axis=1, keepdims=True)) / box.sigma
    worst = np.zeros_like(bound)
    for other in tried(rng, membrane, reach, uphill(f, membrane, reach)):
        centred = other - other.mean(axis=1, keepdims=True)
        normal = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + EPSILON)
        assert (np.abs(normal - plain) <= box.turn * (1 + 1e-9) + 1e-9).all()
        worst = np.maximum(worst, np.abs(f(other) - f(membrane)))
    assert (worst <= bound + 1e-9).all()
    small = reach.max(axis=1) < 1e-2 * membrane.std(axis=1)
    assert (worst[small] / np.maximum(bound[small], 1e-300)).max() > 0.8  # a bound of four fifths would be broken


@pytest.mark.parametrize("seed", range(20))
def test_no_search_leaves_the_bound_on_score_gaps(seed):
    host, stability, rng = setting(100 + seed)
    membrane, reach = boxes(rng)
    geometry = rng.normal(size=(len(membrane), N_CHUNKS, len(stability.score)))
    belief = host.belief(membrane)
    box = make_box(membrane, reach)
    best = host.scores(belief, geometry).argmax(axis=1)
    f = score_gaps(host, geometry, best)
    row, rival = (grid.ravel() for grid in np.meshgrid(np.arange(len(membrane)), np.arange(N_CHUNKS), indexing="ij"))
    turn = box.turn @ np.abs(stability.policy).T
    pull = belief[row] @ stability.belief.T
    slope, bend = stability.score_slope(pull + geometry[row, best[row]], pull + geometry[row, rival], turn[row])
    bound = change(box[row], slope, bend).reshape(len(membrane), N_CHUNKS)
    worst = np.zeros_like(bound)
    for other in tried(rng, membrane, reach, uphill(f, membrane, reach)):
        worst = np.maximum(worst, np.abs(f(other) - f(membrane)))
    assert (worst <= bound + 1e-9).all()
    assert (worst <= (2.0 * (turn @ np.abs(stability.score)))[:, None] + 1e-9).all()  # the coarse bound holds too
    small = reach.max(axis=1) < 1e-3 * membrane.std(axis=1)
    assert (worst[small] / np.maximum(bound[small], 1e-300)).max() > 0.8


@pytest.mark.parametrize("seed", range(25))
def test_a_proven_decision_is_never_overturned(seed):
    host, stability, rng = setting(200 + seed)
    membrane, reach = boxes(rng, b=60)
    geometry = 0.3 * rng.normal(size=(len(membrane), N_CHUNKS, len(stability.score)))
    rivals = rng.random((len(membrane), N_CHUNKS)) < 0.7
    rivals[:, 0] = True
    belief = host.belief(membrane)
    box, logits = make_box(membrane, reach), host.logits(belief)
    scores = host.scores(belief, geometry)
    best, chosen = logits.argmax(axis=1), np.where(rivals, scores, -1e9).argmax(axis=1)
    tau = float(np.median(margin(logits)))
    chunk = stability.chunk_proven(box, belief, geometry, scores, rivals)
    stop = stability.exit_proven(box, logits, tau)
    label = stability.class_proven(box, logits)
    flipped = np.zeros((3, len(membrane)), dtype=bool)
    ways = uphill(logit_gaps(host, best), membrane, reach) + uphill(score_gaps(host, geometry, chosen), membrane, reach)
    for other in tried(rng, membrane, reach, ways):
        there = host.belief(other)
        flipped[0] |= np.where(rivals, host.scores(there, geometry), -1e9).argmax(axis=1) != chosen
        flipped[1] |= (margin(host.logits(there)) > tau) != (margin(logits) > tau)
        flipped[2] |= host.logits(there).argmax(axis=1) != best
    for proven, turned in zip((chunk, stop, label), flipped, strict=True):
        assert not (proven & turned).any()
        assert proven.mean() > 0.3
        assert turned.any()


# The exit test, by hand


def test_the_lead_margin_is_the_top_two_margin():
    logits = np.random.default_rng(3).normal(size=(50, 5)) * 4
    assert lead_margin(leads(logits)) == pytest.approx(margin(logits), abs=1e-12)


def test_an_exit_test_by_hand():
    gap = np.array([[np.inf, 2.0]])  # two classes: margin tanh(1) = 0.762
    for reach, tau, expected in [(0.2, 0.5, True), (0.2, 0.75, False), (0.2, 0.85, True), (1.2, 0.5, False)]:
        assert same_side(gap, np.array([[0.0, reach]]), tau).tolist() == [expected]
    assert same_side(gap, np.array([[0.0, 0.0]]), float(np.tanh(1.0))).tolist() == [False]  # within the slack


def test_a_class_that_overtakes_can_make_a_larger_margin_than_the_best_class_can():
    gap, reach = np.array([[np.inf, 0.0, 1.0]]), np.array([[0.0, 1.0, 0.0]])
    stays = float(lead_margin(gap + reach)[0])  # the best class moves away from the second
    logits = np.array([[0.0, 1.0, -1.0]])  # the second overtakes by as much
    tau = stays + 1e-3
    assert margin(logits)[0] > tau
    assert not same_side(gap, reach, tau)[0]


def test_a_tie_of_classes_is_not_proven():
    _, stability, _ = setting(0)
    box = make_box(np.ones((1, 12)) * np.arange(12), np.full((1, 12), 1e-9))
    assert not stability.class_proven(box, np.array([[1.0, 1.0, 0.0, 0.0]]))[0]
    assert stability.class_proven(box, np.array([[1.0, 0.9, 0.0, 0.0]]))[0]


# The choice of chunk


@pytest.mark.parametrize("scorer", ["geometry", "belief", "additive"])
def test_a_choice_that_does_not_depend_on_the_belief_is_always_stable(scorer):
    host, stability, rng = setting(1, scorer)
    membrane, _ = boxes(rng)
    box = make_box(membrane, np.full_like(membrane, 100.0))
    tied = np.zeros((len(membrane), N_CHUNKS))
    geometry = np.zeros((len(membrane), N_CHUNKS, len(stability.score)))
    rivals = np.ones_like(tied, dtype=bool)
    assert stability.chunk_proven(box, host.belief(membrane), geometry, tied, rivals).all()


def test_a_choice_among_one_is_stable_and_a_tie_is_not():
    host, stability, rng = setting(2)
    membrane, _ = boxes(rng, b=2)
    box = make_box(membrane, np.full_like(membrane, 1e-12))
    geometry = np.zeros((2, N_CHUNKS, len(stability.score)))
    rivals = np.zeros((2, N_CHUNKS), dtype=bool)
    rivals[0, 3] = rivals[1, 2] = rivals[1, 5] = True
    proven = stability.chunk_proven(box, host.belief(membrane), geometry, np.zeros((2, N_CHUNKS)), rivals)
    assert proven.tolist() == [True, False]


def test_the_rounding_of_scores_counts():
    host, stability, rng = setting(3)
    membrane, _ = boxes(rng, b=1)
    box = make_box(membrane, np.zeros_like(membrane))
    geometry = np.zeros((1, 2, len(stability.score)))
    rivals = np.ones((1, 2), dtype=bool)
    for gap, expected in [(1.0, False), (2.0, False), (1000.0, True)]:  # in steps of 2^-30
        scores = np.array([[gap * 2.0**-30, 0.0]])
        assert stability.chunk_proven(box, host.belief(membrane), geometry, scores, rivals).tolist() == [expected]


# The watch keeps the first doubt


def look(host: Host, t: int, rows: list[int], hit: list[int] | None, done: bool = False, seed: int = 0) -> Look:
    membrane = np.random.default_rng(seed).normal(size=(len(rows), 12))
    belief = host.belief(membrane)
    stops = np.full(len(rows), done)
    words = None if hit is None else np.array(hit)
    return Look(t, np.array(rows), membrane, belief, host.logits(belief), stops, words)


def watch_of(stability: Stability, n_clouds: int, rule: ExitRule = ExitRule()) -> Watch:
    return Watch(stability, np.zeros((n_clouds, N_CHUNKS, len(stability.score))), rule)


def test_the_first_doubt_stays():
    host, stability, _ = setting(4)
    watch = watch_of(stability, 3)
    watch.observed(look(host, 1, [0, 1, 2], [0, 0, 0]))
    watch.observed(look(host, 2, [0, 2], [0, 4096 + 7 + 1]))
    watch.observed(look(host, 3, [0, 2], [0, 1], done=True))
    first, _, third = watch.verdicts()
    assert first is PRESERVED
    assert (third.preserved, third.step, third.layer, third.neuron, third.decision) == (False, 2, 2, 7, None)
    assert third.sentence.startswith("At observation 2 neuron 7 of layer 2")


def test_spikes_come_before_decisions_of_the_same_observation_and_after_those_of_an_earlier_one():
    host, stability, _ = setting(4)
    tied = np.zeros((1, N_CHUNKS)), np.ones((1, N_CHUNKS), dtype=bool)
    for hits, expected in [([1, 0], None), ([0, 1], "chunk")]:
        watch = watch_of(stability, 1)
        watch.observed(look(host, 1, [0], hits[:1]))
        watch.chose(*tied)
        watch.observed(look(host, 2, [0], hits[1:], done=True))
        (verdict,) = watch.verdicts()
        assert (verdict.preserved, verdict.step, verdict.decision) == (False, 1, expected)


def test_a_backend_that_reports_no_hits_proves_nothing():
    host, stability, _ = setting(5)
    watch = watch_of(stability, 1)
    watch.observed(look(host, 1, [0], None, done=True))
    assert watch.verdicts() == [None]


def test_the_acceptance_threshold_is_looked_at_when_an_episode_stops():
    host, stability, _ = setting(6)
    seen = look(host, 4, [0], [0], done=True)
    value = float(margin(seen.logits)[0])
    for kappa, done, expected in [(value, True, "exit"), (value / 2, True, None), (value, False, None)]:
        watch = watch_of(stability, 1, ExitRule(kappa=kappa))
        watch.observed(look(host, 4, [0], [0], done=done))
        assert watch.verdicts()[0].decision == expected


def test_the_box_of_every_observation_is_its_own():
    _, stability, rng = setting(7)
    membrane, _ = boxes(rng, b=3)
    together = stability.box(membrane, np.array([1, 5, 3]))
    for row, t in enumerate((1, 5, 3)):
        assert (stability.box(membrane[row : row + 1], t).turn == together.turn[row]).all()
    widths = drift(stability.last.lambda_int, 5) / stability.last.units
    assert together.reach[1] == pytest.approx(widths, rel=1e-6)


def test_a_box_is_indexed_by_rows():
    box = make_box(*boxes(np.random.default_rng(8), b=5))
    part = box[np.array([3, 1])]
    assert isinstance(part, Box)
    assert (part.turn == box.turn[[3, 1]]).all()
