"""Decision stability: bounds by hand, and that no membrane within the box is found that breaks one."""

from __future__ import annotations

import numpy as np
import pytest
import specs

from asp_neuro.grid.arithmetic import EPSILON, MARGIN_BITS, on_grid
from asp_neuro.grid.softmax import margin
from asp_neuro.heads.soft.guard import drift
from asp_neuro.model import belief as belief_module
from asp_neuro.model import stability as stability_module
from asp_neuro.model.episode import Played
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.look import Look
from asp_neuro.model.quick import Quick
from asp_neuro.model.spec import Model
from asp_neuro.model.stability import PRESERVED, Box, Stability, change, lead_margin, leads, make_box, margin_range

N_CHUNKS = 6


def setting(seed: int, scorer: str = "bilinear") -> tuple[Model, Stability, np.random.Generator]:
    rng = np.random.default_rng(seed)
    model = Model(specs.random_model(rng, n_neurons=12, n_layers=1, n_classes=4, scorer=scorer))
    return model, Stability(model), rng


def believed(model: Model, membrane: np.ndarray) -> np.ndarray:
    """Membranes in float units -> beliefs, as the host computes them."""
    return model.belief(membrane * model.belief.units)


def ideal(model: Model, membrane: np.ndarray) -> np.ndarray:
    """The same without any rounding."""
    centred = membrane - membrane.mean(axis=1, keepdims=True)
    deviation = np.sqrt((centred * centred).mean(axis=1, keepdims=True) + EPSILON)
    return centred / deviation * model.belief.gain + model.belief.bias


def logits_of(model: Model, belief: np.ndarray) -> np.ndarray:
    """[b, C]"""
    return model.task.logits(belief, None, None)[:, 0]


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


def score_gaps(model: Model, geometry: np.ndarray, best: np.ndarray):
    """Membranes -> exact (not rounded) score(best) - score(m), [b, M]."""

    def f(membrane: np.ndarray) -> np.ndarray:
        pull = ideal(model, membrane) @ model.policy.from_belief.weight.T
        raw = np.tanh(pull[:, None] + geometry) @ model.policy.score.weight[0]
        return raw[np.arange(len(raw)), best][:, None] - raw

    return f


def logit_gaps(model: Model, best: np.ndarray):
    def f(membrane: np.ndarray) -> np.ndarray:
        logits = ideal(model, membrane) @ model.task.weight.T + model.task.bias
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
    model, stability, rng = setting(seed)
    membrane, reach = boxes(rng)
    box = make_box(membrane, reach)
    best = logits_of(model, believed(model, membrane)).argmax(axis=1)
    f = logit_gaps(model, best)
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
    model, stability, rng = setting(100 + seed)
    membrane, reach = boxes(rng)
    geometry = rng.normal(size=(len(membrane), N_CHUNKS, len(stability.score)))
    belief = ideal(model, membrane)
    box = make_box(membrane, reach)
    best = model.policy.scores(believed(model, membrane), geometry).argmax(axis=1)
    f = score_gaps(model, geometry, best)
    row, rival = (grid.ravel() for grid in np.meshgrid(np.arange(len(membrane)), np.arange(N_CHUNKS), indexing="ij"))
    turn = box.turn @ stability.policy_bound.T
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


def overturned(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Decisions [3, b] (place, exit, label) that are proven, and that some membrane within the box overturns."""
    model, stability, rng = setting(200 + seed)
    membrane, reach = boxes(rng, b=60)
    geometry = 0.3 * rng.normal(size=(len(membrane), N_CHUNKS, len(stability.score)))
    rivals = rng.random((len(membrane), N_CHUNKS)) < 0.7
    rivals[:, 0] = True
    belief = believed(model, membrane)
    rounded = model.belief.steps(membrane * model.belief.units) * model.belief.step
    box, logits = make_box(rounded, reach + stability.model.belief.step), logits_of(model, belief)
    scores = model.policy.scores(belief, geometry)
    best, chosen = logits.argmax(axis=1), np.where(rivals, scores, -1e9).argmax(axis=1)
    tau = float(np.median(margin(logits)))
    place = stability.choice_proven(box, belief, geometry, scores, rivals)
    stop = stability.exit_proven(box, logits[:, None], tau)
    label = stability.label_proven(box, logits[:, None])
    flipped = np.zeros((3, len(membrane)), dtype=bool)
    ways = uphill(logit_gaps(model, best), membrane, reach) + uphill(
        score_gaps(model, geometry, chosen), membrane, reach
    )
    for other in tried(rng, membrane, reach, ways):
        there = believed(model, other)
        flipped[0] |= np.where(rivals, model.policy.scores(there, geometry), -1e9).argmax(axis=1) != chosen
        flipped[1] |= (margin(logits_of(model, there)) > tau) != (margin(logits) > tau)
        flipped[2] |= logits_of(model, there).argmax(axis=1) != best
    return np.stack([place, stop, label]), flipped


@pytest.mark.parametrize("seed", range(25))
def test_a_proven_decision_is_never_overturned(seed):
    for proven, turned in zip(*overturned(seed), strict=True):
        assert not (proven & turned).any()
        assert proven.mean() > 0.3
        assert turned.any()


# Every rounding enters the bounds: with coarse grids they still hold, and without their share they break


def coarse_beliefs(patch: pytest.MonkeyPatch, counted: bool) -> None:
    """Beliefs of 2^-5 instead of 2^-24."""
    patch.setattr(belief_module, "BELIEF_BITS", 5)
    patch.setattr(stability_module, "BELIEF_STEP", 2.0**-5 * (1.0 + 2.0**-10) if counted else 0.0)


def coarse_membranes(patch: pytest.MonkeyPatch, counted: bool) -> None:
    """Membranes of 2^-9."""
    patch.setattr(belief_module, "membrane_bits", lambda largest, n: 9)
    if not counted:
        patch.setattr(stability_module, "make_box", make_box)
        real = make_box
        patch.setitem(globals(), "make_box", lambda u, reach: real(u, np.maximum(reach - 2.0**-9, 0.0)))


def coarse_margins(patch: pytest.MonkeyPatch, counted: bool) -> None:
    """Margins of 2^-6."""
    from asp_neuro.grid import softmax

    patch.setattr("asp_neuro.compiled.kernels", None)  # whose steps are their own
    patch.setattr(softmax, "MARGIN_BITS", 6)
    patch.setattr(stability_module, "MARGIN_SLACK", 2.0**-6 if counted else 0.0)


@pytest.mark.parametrize("coarse", [coarse_beliefs, coarse_membranes, coarse_margins])
def test_a_rounding_that_is_counted_breaks_no_proof_and_one_that_is_left_out_does(monkeypatch, coarse):
    for counted in (True, False):
        with monkeypatch.context() as patch:
            coarse(patch, counted)
            broken = sum(int((proven & turned).sum()) for proven, turned in map(overturned, range(12)))
            assert (broken == 0) == counted, (coarse.__name__, counted, broken)


# The exit test, by hand


def test_the_lead_margin_is_the_top_two_margin():
    logits = np.random.default_rng(3).normal(size=(50, 5)) * 4
    assert lead_margin(leads(logits)) == pytest.approx(margin(logits), abs=2.0**-MARGIN_BITS)


def same_side(gap: np.ndarray, reach: np.ndarray, tau: float) -> np.ndarray:
    least, largest = margin_range(gap, reach)
    return (least > tau) | (largest <= tau)


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
    assert not stability.label_proven(box, np.array([[[1.0, 1.0, 0.0, 0.0]]]))[0]
    assert stability.label_proven(box, np.array([[[1.0, 0.9, 0.0, 0.0]]]))[0]


def test_a_scene_with_many_targets_is_proven_only_if_every_target_is():
    _, stability, _ = setting(0)
    box = make_box(np.ones((1, 12)) * np.arange(12), np.full((1, 12), 1e-9))
    sure, tied = [1.0, 0.9, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]
    assert stability.label_proven(box, np.array([[sure, sure]]))[0]
    assert not stability.label_proven(box, np.array([[sure, tied]]))[0]


def test_a_membrane_that_may_be_anywhere_proves_nothing():
    _, stability, rng = setting(0)
    membrane, _ = boxes(rng, b=2)
    box = make_box(membrane, np.full_like(membrane, 100.0))
    assert (box.turn > stability_module.HOPELESS).any()
    assert not stability.label_proven(box, np.array([[[90.0, 0.0, 0.0, 0.0]]] * 2)).any()


def test_targets_with_the_same_best_class_share_their_fine_bounds():
    _, stability, rng = setting(1)
    box = make_box(*boxes(rng, b=5))
    best = rng.integers(0, 4, (5, 9))
    alone = [[stability._fine(box[[i]], best[i : i + 1, r : r + 1])[0, 0] for r in range(9)] for i in range(5)]
    np.testing.assert_array_equal(stability._fine(box, best), alone)


@pytest.mark.parametrize("seed", range(3))
def test_points_whose_margin_is_enough_would_be_proven_by_their_leads_too(seed):
    _, stability, rng = setting(seed)
    membrane, reach = boxes(rng)
    logits = rng.normal(size=(400, 4)) * 10.0 ** rng.uniform(-5.0, 1.0, (400, 1))
    quick = proven = 0
    for i in range(len(membrane)):
        box = make_box(membrane[i : i + 1], reach[i : i + 1])
        found = stability.points_proven(box, logits, margin(logits))
        np.testing.assert_array_equal(found, stability.points_proven(box, logits, np.zeros(400)))  # asks all leads
        some = stability.points_proven(box, np.zeros((400, 4)), margin(logits))  # the margins alone
        assert (found | ~some).all()
        quick, proven = quick + some.sum(), proven + found.sum()
    assert 0.5 * proven < quick < proven


def test_some_logits_of_looks_are_those_of_all_looks_joined():
    rng = np.random.default_rng(0)
    empty = np.zeros(0)
    looks = [
        Look(t, np.arange(n), *[empty] * 7, rng.normal(size=(n, 2, 3)), *[empty] * 4)
        for t, n in enumerate((5, 3, 2, 0, 1), start=1)
    ]
    whole = stability_module.joined(looks, "logits")
    for at in ([], [0], [3, 4], [10], [0, 2, 5, 8, 9, 10], range(11)):
        rows = np.array(at, dtype=np.intp)
        np.testing.assert_array_equal(stability_module.logits_of(looks, rows), whole[rows])


# The choice of chunk


@pytest.mark.parametrize("scorer", ["geometry", "belief", "additive"])
def test_a_choice_that_does_not_depend_on_the_belief_is_always_stable(scorer):
    model, stability, rng = setting(1, scorer)
    membrane, _ = boxes(rng)
    box = make_box(membrane, np.full_like(membrane, 100.0))
    tied = np.zeros((len(membrane), N_CHUNKS))
    geometry = np.zeros((len(membrane), N_CHUNKS, len(stability.score)))
    rivals = np.ones_like(tied, dtype=bool)
    assert stability.choice_proven(box, believed(model, membrane), geometry, tied, rivals).all()


def test_a_choice_among_one_is_stable_and_a_tie_is_not():
    model, stability, rng = setting(2)
    membrane, _ = boxes(rng, b=2)
    box = make_box(membrane, np.full_like(membrane, 1e-12))
    geometry = np.zeros((2, N_CHUNKS, len(stability.score)))
    rivals = np.zeros((2, N_CHUNKS), dtype=bool)
    rivals[0, 3] = rivals[1, 2] = rivals[1, 5] = True
    proven = stability.choice_proven(box, believed(model, membrane), geometry, np.zeros((2, N_CHUNKS)), rivals)
    assert proven.tolist() == [True, False]


def test_the_rounding_of_scores_counts():
    model, stability, rng = setting(3)
    membrane, _ = boxes(rng, b=1)
    box = make_box(membrane, np.zeros_like(membrane))
    geometry = np.zeros((1, 2, len(stability.score)))
    rivals = np.ones((1, 2), dtype=bool)
    for gap, expected in [(0.5, False), (1.0, False), (1.01, True)]:  # in what the rounding can move
        scores = np.array([[gap * stability.score_rounding, 0.0]])
        assert stability.choice_proven(box, believed(model, membrane), geometry, scores, rivals).tolist() == [expected]


# The verdict is the first doubt


def look(
    model: Model, t: int, rows: list[int], hit: list[int] | None, done: bool = False, scores: np.ndarray | None = None
) -> Look:
    n = len(rows)
    membrane = np.random.default_rng(0).normal(size=(n, 12)) * model.belief.units
    belief = model.belief(membrane)
    logits = model.task.logits(belief, None, None)
    words = None if hit is None else np.array(hit)
    return Look(
        t=t,
        rows=np.array(rows),
        place=np.zeros(n, dtype=int),
        scores=scores,
        rivals=None if scores is None else np.ones_like(scores, dtype=bool),
        drive_int=np.zeros((n, 16)),
        membrane=membrane,
        hit=words,
        belief=belief,
        logits=logits,
        margin=margin(logits)[:, 0],
        label=model.task.label(logits),
        crossed=np.zeros(n, dtype=bool),
        done=np.full(n, done),
    )


def verdicts(stability: Stability, looks: list[Look], rule: ExitRule = ExitRule()):
    geometry = np.zeros((len(looks[0].rows), N_CHUNKS, len(stability.score)))
    return stability.verdicts(Played(looks, geometry, 0), rule)


def test_the_first_doubt_stays():
    model, stability, _ = setting(4)
    looks = [
        look(model, 1, [0, 1, 2], [0, 0, 0]),
        look(model, 2, [0, 2], [0, 4096 + 7 + 1]),
        look(model, 3, [0, 2], [0, 1], done=True),
    ]
    first, _, third = verdicts(stability, looks)
    assert first is PRESERVED
    assert (third.preserved, third.step, third.layer, third.neuron, third.decision) == (False, 2, 2, 7, None)
    assert third.sentence.startswith("At observation 2 neuron 7 of layer 2")


def test_spikes_come_before_decisions_of_the_same_observation_and_after_those_of_an_earlier_one():
    model, stability, _ = setting(4)
    tied = np.zeros((1, N_CHUNKS))
    for hits, expected in [([1, 0], None), ([0, 1], "chunk")]:
        looks = [look(model, 1, [0], hits[:1]), look(model, 2, [0], hits[1:], done=True, scores=tied)]
        (verdict,) = verdicts(stability, looks)
        assert (verdict.preserved, verdict.step, verdict.decision) == (False, 1, expected)


def test_a_backend_that_reports_no_hits_proves_nothing():
    model, stability, _ = setting(5)
    assert verdicts(stability, [look(model, 1, [0], None, done=True)]) == [None]


def test_the_acceptance_threshold_is_looked_at_when_an_episode_stops():
    model, stability, _ = setting(6)
    value = float(look(model, 4, [0], [0], done=True).margin[0])
    for kappa, done, expected in [(value, True, "exit"), (value / 2, True, None), (value, False, None)]:
        looks = [look(model, 4, [0], [0], done=done)]
        assert verdicts(stability, looks, ExitRule(kappa=kappa))[0].decision == expected


# What the deviation of a membrane settles alone


def some_looks(model: Model, rng: np.random.Generator, n: int = 40) -> list[Look]:
    """Three looks at n scenes, membranes of all sizes, scores that nearly tie; half of the scenes stop early."""
    looks, rows = [], np.arange(n)
    for t in (1, 2, 9):
        membrane = np.rint(boxes(rng, b=len(rows))[0] * 10.0 ** rng.uniform(-1, 2) * model.belief.units)
        belief = model.belief(membrane)
        logits = model.task.logits(belief, None, None)
        scores = rng.normal(size=(len(rows), N_CHUNKS)) * 10.0 ** rng.uniform(-6, 0, (len(rows), 1))
        rivals = rng.random(scores.shape) < 0.6
        rivals[:, 2] = True
        done = (rows % 2 == 1) if t == 2 else np.full(len(rows), t == 9)
        none = np.zeros(len(rows), dtype=int)
        looks.append(
            Look(t, rows, none, scores, rivals if t > 1 else None, none[:, None], membrane, none, belief, logits,
                 margin(logits)[:, 0], model.task.label(logits), none > 0, done)
        )  # fmt: skip
        rows = rows[~done]
    return looks


def quick_settles_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Quick, "sigma", lambda quick, deviation, t: np.full(len(t), np.nan))


def quick_believes_too_much(patch: pytest.MonkeyPatch) -> None:
    sigma = Quick.sigma
    patch.setattr(Quick, "sigma", lambda quick, deviation, t: 1e3 * sigma(quick, deviation, t))


def different_verdicts(patch: pytest.MonkeyPatch, other) -> tuple[int, int]:
    """Verdicts that a change of `Quick` makes different, and looks that it settles as it is."""
    apart = settled = 0
    for seed in range(12):
        model, stability, rng = setting(seed)
        looks = some_looks(model, rng)
        rule = ExitRule(tau=float(np.median(looks[1].margin)), kappa=float(np.quantile(looks[1].margin, 0.3)))
        geometry = on_grid(rng.normal(size=(40, N_CHUNKS, len(stability.score))), 16)
        quick = stability.verdicts(Played(looks, geometry, 0), rule)
        with patch.context() as changed:
            other(changed)
            apart += sum(
                a != b for a, b in zip(quick, stability.verdicts(Played(looks, geometry, 0), rule), strict=True)
            )
        settled += sum(verdict is PRESERVED for verdict in quick)
    return apart, settled


def test_what_the_deviation_settles_is_settled_the_same_without_it(monkeypatch):
    apart, settled = different_verdicts(monkeypatch, quick_settles_nothing)
    assert apart == 0
    assert settled > 20


def test_a_deviation_that_is_believed_too_much_is_found(monkeypatch):
    assert different_verdicts(monkeypatch, quick_believes_too_much)[0] > 0


def test_boxes_are_drawn_for_decisions_in_doubt_only(monkeypatch):
    model, stability, _ = setting(4)
    drawn = []
    monkeypatch.setattr(stability_module, "make_box", lambda u, reach: drawn.append(len(u)) or make_box(u, reach))
    clear = np.linspace(0.0, 50.0, N_CHUNKS)[None]
    verdicts(stability, [look(model, 1, [0], [0]), look(model, 2, [0], [0], done=True, scores=clear)])
    assert drawn == []
    verdicts(stability, [look(model, 1, [0], [0]), look(model, 2, [0], [0], done=True, scores=0.0 * clear)])
    assert drawn == [1]


def test_the_box_of_every_observation_is_its_own():
    model, stability, rng = setting(7)
    membrane = boxes(rng, b=3)[0] * model.belief.units
    together = stability.box(membrane, np.array([1, 5, 3]))
    for row, t in enumerate((1, 5, 3)):
        assert (stability.box(membrane[row : row + 1], t).turn == together.turn[row]).all()
    widths = drift(stability.last.lambda_int, 5) / stability.last.units + model.belief.step
    assert together.reach[1] == pytest.approx(widths, rel=1e-6)
    assert (together.reach[0] == 0.0).all()  # nothing is rounded before the first leak


def test_a_box_is_indexed_by_rows():
    box = make_box(*boxes(np.random.default_rng(8), b=5))
    part = box[np.array([3, 1])]
    assert isinstance(part, Box)
    assert (part.turn == box.turn[[3, 1]]).all()
