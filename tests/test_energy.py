"""Energy: the paper's table from its inputs, counts against products that were made, and the verb."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import specs
from hypothesis import given
from hypothesis import strategies as st

from asp_neuro import bundle as bundles
from asp_neuro.bundle import model_sha256
from asp_neuro.data import load_clouds
from asp_neuro.errors import ConfigError, InputError, MissingError
from asp_neuro.grid import arithmetic
from asp_neuro.grid.operations import Operations
from asp_neuro.grid.softmax import margin_operations
from asp_neuro.model import prefix
from asp_neuro.model.exit import ExitRule
from asp_neuro.runtime import deployment, energy, hardware
from asp_neuro.runtime.energy import (
    Activity,
    Component,
    Estimate,
    IntegerPrice,
    Price,
    components,
    measure,
    phase_boundary,
)

PRICES = hardware.prices()
PAPER = Price(**PRICES.values["cmos_45nm"])
INTEGERS = IntegerPrice(**PRICES.values["cmos_45nm_integers"])

# Table S2: operations of one cloud. The head's accumulates are r T per operation, r = 24.45 %, T = 4.
TABLE_S2 = (
    Component("encoder", 5.25e9),
    Component("mixer", 4.54e9),
    Component("policy", 0.28e9),
    Component("head", 0.0, 6.53e9, 6.53e9 * 0.2445 * 4),
    Component("read-out", 1.28e9),
    Component("context", 0.05e9),
)
MJ = 1e-9  # of a picojoule


# The paper's numbers, hand-computed


def test_table_s2_follows_from_its_inputs():
    cells = [component.energy(PAPER) * MJ for component in TABLE_S2]
    assert cells == pytest.approx([24.15, 20.88, 1.29, 5.75, 5.89, 0.23], abs=0.005)
    assert sum(cells) == pytest.approx(58.19, abs=0.005)
    dense = sum(component.dense_energy(PAPER) for component in TABLE_S2) * MJ
    assert dense == pytest.approx(82.48, abs=0.005)
    assert dense / sum(cells) == pytest.approx(1.42, abs=0.005)
    head = TABLE_S2[3]
    assert head.dense_energy(PAPER) / head.energy(PAPER) == pytest.approx(5.22, abs=0.01)  # 5.226 before rounding


def test_without_four_time_steps_in_the_head_table_s2_does_not_follow():
    head = Component("head", 0.0, 6.53e9, 6.53e9 * 0.2445)
    assert head.energy(PAPER) * MJ == pytest.approx(1.44, abs=0.005)


@pytest.mark.parametrize(("fixations", "mj"), [(1, 1.87), (3, 3.00)])
def test_the_foveated_table_follows_from_its_inputs(fixations, mj):
    stem, fixation = Component("stem", 0.284e9, once=True), Component("fixation", 0.123e9)
    assert (stem.energy(PAPER) + fixations * fixation.energy(PAPER)) * MJ == pytest.approx(mj, abs=0.01)


def test_the_papers_prefix_boundary_follows():
    a, r = 52.44 / 5.75, 1.29 / 5.75
    assert round(phase_boundary(a, 0.2445, 0.2445, r, 2.5), 2) == 0.40


def test_the_papers_streaming_boundary_does_not_follow():
    a, r = 52.44 / 5.75, 1.29 / 5.75
    assert phase_boundary(a, 0.2445, 0.2445, r, 1.0) == pytest.approx(0.977, abs=0.0005)  # printed: 0.995
    assert phase_boundary(a, 0.2445, 0.2445, 0.0, 1.0) == 1.0


def test_the_papers_curve_misses_its_own_point():
    at_exit = 45.03 * 3.84 / 4 + 7.41 + 5.75 * 3.84 / 3.84
    assert at_exit == pytest.approx(56.4, abs=0.05)  # printed: 58.19, which is E(4)
    assert pytest.approx(58.19, abs=0.005) == 45.03 + 7.41 + 5.75


# The formula

POSITIVE = st.floats(0.01, 100.0)


@given(POSITIVE, st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 10.0), st.floats(1.0, 10.0))
def test_the_boundary_is_where_both_energies_are_equal(a, rate, fixed_rate, overhead, kappa):
    phi = phase_boundary(a, rate, fixed_rate, overhead, kappa)
    active, fixed = phi * (overhead + rate + kappa * a), fixed_rate + a  # in units of F_s E_AC, per chunk of the budget
    assert active == pytest.approx(fixed)


def test_the_three_regimes_of_the_paper():
    assert phase_boundary(5.0, 0.2, 0.3, 0.0, 1.0) >= 1.0
    assert phase_boundary(1e9, 0.2, 0.3, 0.5, 2.5) == pytest.approx(1 / 2.5)
    assert phase_boundary(0.0, 0.2, 0.3, 0.5, 2.5) == pytest.approx(0.3 / 0.7)


# Counts


def test_counts_by_hand():
    rng = np.random.default_rng(0)
    model = specs.random_model(rng, width=16, n_neurons=16, n_layers=3, n_classes=4)
    found = components(model, Activity(2.0, 3.0, (0.25, 0.5, 0.1)))
    rows = {c.name: (c.macs, c.synapses, c.accumulates, c.once) for c in found}
    assert rows == {
        "encoder": (3 * (8 * (6 * 8 + 8 * 12) + 15 * 16 + 16 * 16), 0, 0, False),
        "mixer": (5 * 16 * 16 + 2 * 16, 0, 0, False),
        "head layer 1": (16 * 16 + 16, 0, 0, False),
        "head layer 2": (16, 256, 256 * 0.25, False),
        "head layer 3": (16, 256, 256 * 0.75, False),
        "belief, read-out": (4 * 16, 0, 0, False),
        "policy": (8 * 16 + 6 * 8, 0, 0, False),
        "policy, descriptors": (6 * 8 * 8, 0, 0, True),
    }


def test_kinds_by_hand():
    """Inputs of 8 bits: edge_out, token_in, token_out, gates; of two bytes: coordinates and the drive."""
    rng = np.random.default_rng(0)
    model = specs.random_model(rng, width=16, n_neurons=16, n_layers=2, n_classes=4)
    found = components(model, Activity(2.0, 3.0, (0.25, 0.5)))
    norm, tanh, exp = 8 * 16 + 5, 31, 25
    assert (tanh, exp) == (arithmetic.TANH_OPERATIONS, arithmetic.EXP_OPERATIONS)
    assert {c.name: c.operations for c in found} == {
        "encoder": Operations(mac8=3 * (8 * 8 * 12 + 12 * 16 + 16 * 16), mac16=3 * (8 * 6 * 8 + 3 * 16)),
        "mixer": Operations(mac8=5 * 16 * 16, mac32=2 * 16, float64=2 * norm + 7 * 16),
        "head layer 1": Operations(mac16=16 * 16, mac32=16),
        "head layer 2": Operations(mac32=16),
        "belief, read-out": Operations(mac32=4 * 16, float64=norm + 4 * 16 + (exp + 4) * 4 + 4),
        "policy": Operations(mac32=8 * 16 + 6 * 8, float64=6 * 8 * (tanh + 1)),
        "policy, descriptors": Operations(mac32=6 * 8 * 8),
    }
    assert all(c.macs == c.operations.macs for c in found)


def test_a_kind_has_its_price_by_hand():
    part = Component("x", 111.0, 1000.0, 200.0, operations=Operations(mac8=100.0, mac16=10.0, mac32=1.0, float64=5.0))
    graded = 100 * 0.3 + 10 * 0.6 + 3.3 + 5 * 16.6
    assert part.energy(INTEGERS) == pytest.approx(graded + 200 * 0.1)
    assert part.dense_energy(INTEGERS) == pytest.approx(graded + 1000 * 0.3)  # 8 bits in place of a spike
    assert part.energy(PAPER) == pytest.approx(111 * 4.6 + 200 * 0.9)  # float64 is not counted
    assert part.dense_energy(PAPER) == pytest.approx(1111 * 4.6)


class Counted(np.ndarray):
    """Counts the + - * / and square roots that are made with it, element by element."""

    n = 0

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **more):
        plain = [x.view(np.ndarray) if isinstance(x, Counted) else x for x in inputs]
        if out is not None:
            more["out"] = tuple(x.view(np.ndarray) if isinstance(x, Counted) else x for x in out)
        result = getattr(ufunc, method)(*plain, **more)
        if ufunc in (np.add, np.subtract, np.multiply, np.divide, np.sqrt):
            Counted.n += np.size(plain[0] if method == "reduce" else result)
        return out[0] if out is not None else np.asarray(result).view(Counted)


def counted(function, *arrays) -> int:
    Counted.n = 0
    function(*(array.view(Counted) for array in arrays))
    return Counted.n


def test_operations_element_by_element_are_those_that_are_made(monkeypatch):
    monkeypatch.setattr("asp_neuro.compiled.kernels", None)  # what numpy is asked for can be counted
    rng = np.random.default_rng(0)
    assert counted(arithmetic.exp, -rng.random(10)) == 10 * arithmetic.EXP_OPERATIONS
    rows = np.rint(rng.normal(0.0, 50.0, (3, 16)))
    made = counted(lambda x: arithmetic.normalise_int(x, np.ones(16), np.zeros(16), 0), rows)
    assert made == 3 * arithmetic.norm_operations(16)


def test_a_margin_takes_an_exponential_a_class():
    assert margin_operations(4) == 4 * (1 + 25 + 2 + 1) + 1 + 1 + 2  # difference, exp, rounding, sum; quotient


def test_a_chunk_layer_is_paid_once_an_observation():
    model = specs.random_model(np.random.default_rng(0), token_width=20)
    encoder, mixer, *_ = components(model, Activity(1.0, 3.0, (0.1, 0.1)))
    assert encoder.macs == 3 * (8 * (6 * 8 + 8 * 12) + 15 * 20 + 20 * 20) + 20 * 16
    assert mixer.macs == 5 * 16 * 16 + 2 * 16


def test_moments_cost_six_products_a_point_and_wider_tokens():
    model = specs.random_model(np.random.default_rng(0), moments=True)
    encoder, *_ = components(model, Activity(1.0, 3.0, (0.1, 0.1)))
    assert encoder.macs == 3 * (8 * (6 * 8 + 8 * 12 + 6) + 45 * 16 + 16 * 16)
    assert encoder.operations.mac16 == 3 * (8 * 6 * 8 + 33 * 16)
    assert encoder.operations.mac32 == 3 * 8 * 6
    assert encoder.operations.float64 == 3 * (9 * (2 + 4 + 8) + 3 * 42)


def test_a_first_look_is_paid_once_and_the_outline_once_for_all_chunks():
    model = specs.random_model(np.random.default_rng(0), first_look=5)
    *_, descriptors = components(model, Activity(1.0, 1.0, (0.1, 0.1)))
    assert descriptors.macs == 6 * (8 * 8 + 8 * 5 + 5) + 16 * 5
    assert descriptors.operations.float64 == 6 * 5 * 32


def test_a_first_look_takes_the_place_of_the_first_scores():
    step = 8 * 16 + 6 * 8
    for units, left in ((0, step), (5, 0.75 * step)):
        model = specs.random_model(np.random.default_rng(0), first_look=units)
        *_, policy, _ = components(model, Activity(4.0, 1.0, (0.1, 0.1), first=0.25))
        assert policy.macs == left


@pytest.mark.parametrize(("scorer", "step", "once"), [("geometry", 48, 384), ("additive", 48, 384), ("belief", 176, 0)])
def test_a_policy_pays_for_what_it_looks_at(scorer, step, once):
    model = specs.random_model(np.random.default_rng(0), scorer=scorer)
    *_, policy, descriptors = components(model, Activity(1.0, 1.0, (0.1, 0.1)))
    assert (policy.macs, descriptors.macs) == (step, once)


def test_both_conventions_of_one_use_side_by_side():
    rng = np.random.default_rng(1)
    perceiver = specs.random_perceiver(rng, first_look=5, moments=True)
    chunks = perceiver.scenes(specs.random_clouds(rng, 5))
    paper = estimate(perceiver, measure(perceiver, [chunks], ExitRule(0.3), "a test"))
    for found in (paper, paper.deployed):
        phase = found.phase
        assert found.at_exit / found.fixed_order == pytest.approx(phase.fraction / phase.boundary(), rel=1e-9)
        assert (np.diff(found.curve) > 0.0).all()
        assert (found.curve < found.dense_curve).all()
    told = paper.as_dict()
    assert set(told["deployed"]) < set(told)
    assert told["float64_at_exit"] == 0.0 < told["deployed"]["float64_at_exit"] < told["deployed"]["energy_at_exit"]
    assert told["ratios"]["system_products"] == told["system_ratio"] != told["deployed"]["system_ratio"]
    assert 1.0 < told["deployed"]["head_ratio"] < told["head_ratio"]  # an 8-bit product costs 3 accumulates, not 5
    assert "Horowitz" in told["deployed"]["prices"]["sources"]["mac8_pj"]
    for words in ("Estimate", "no chip was measured", "paper", "deployed", "8-bit MACs", "head ratio", "system ratio"):
        assert words in paper.text()


def test_whole_numbers_alone_cost_less_than_floats_by_their_prices():
    """Where nothing is done element by element, each kind lies between its cheapest and its dearest price."""
    model = specs.random_model(np.random.default_rng(0))
    for part in components(model, Activity(1.0, 3.0, (0.5, 0.5))):
        products = dataclasses.replace(part, operations=dataclasses.replace(part.operations, float64=0.0))
        assert 0.3 * part.macs <= products.energy(INTEGERS) - 0.1 * part.accumulates <= 3.3 * part.macs
        assert products.energy(INTEGERS) < part.energy(PAPER)


@pytest.fixture(scope="module")
def compact():
    return deployment.open_bundle("compact")


@pytest.fixture(scope="module")
def some(compact):
    clouds = load_clouds("shapes", "test").subset(np.arange(24))
    return compact.perceiver, compact.scenes(clouds)


def estimate(perceiver, usage) -> Estimate:
    return Estimate(perceiver.spec, usage, PRICES)


@pytest.mark.parametrize("tau", [None, 0.6])
def test_counts_are_those_of_the_products_that_are_made(some, tau):
    perceiver, chunks = some
    rule = ExitRule(tau)
    trace = prefix.streaming(perceiver, chunks, rule)
    found = estimate(perceiver, measure(perceiver, [chunks[:10], chunks[10:]], rule, "a test"))
    n = sum(len(end.order) for end in trace.ends)
    assert found.usage.taken.observations * len(chunks) == pytest.approx(n)
    macs = {c.name: c.macs * n for c in found.parts}
    assert macs["encoder"] == pytest.approx(trace.macs["encoder"], rel=1e-12)
    assert macs["mixer"] == trace.macs["mixer"]
    fired = sum(o.spikes[0].sum() for o in trace.states)  # each spike of layer 1 reaches every neuron of layer 2
    layer = perceiver.head.layers[1]
    (second,) = [c for c in found.parts if c.name == "head layer 2"]
    assert second.accumulates * n == pytest.approx(fired * layer.n_neurons, rel=1e-12)


def test_the_prefix_factor_is_that_of_the_products_that_are_made(some):
    perceiver, chunks = some
    rule = ExitRule(0.6)
    ratio = prefix.compare(perceiver, [chunks], rule)["ratio"]["mixer"]
    assert measure(perceiver, [chunks], rule, "a test").repeats == pytest.approx(ratio)


@pytest.mark.parametrize("tau", [None, 0.2, 0.6])
def test_the_phase_boundary_says_what_the_energies_say(some, tau):
    perceiver, chunks = some
    found = estimate(perceiver, measure(perceiver, [chunks], ExitRule(tau), "a test"))
    phase = found.phase
    assert found.at_exit / found.fixed_order == pytest.approx(phase.fraction / phase.boundary(), rel=1e-9)
    assert phase.wins == (found.at_exit < found.fixed_order) == (tau is not None)


def test_the_exit_lies_on_the_curve_where_all_stop_alike(some):
    perceiver, chunks = some
    found = estimate(perceiver, measure(perceiver, [chunks], ExitRule(), "a test"))
    assert found.at_exit == pytest.approx(found.curve[-1])
    assert found.dense_at_exit == pytest.approx(found.dense_curve[-1])
    assert (np.diff(found.curve) > 0.0).all()
    assert (found.curve < found.dense_curve).all()


def test_a_budget_below_the_number_of_places_ends_the_curve():
    rng = np.random.default_rng(1)
    perceiver = specs.random_perceiver(rng, budget=4)
    chunks = perceiver.scenes(specs.random_clouds(rng, 5))
    found = estimate(perceiver, measure(perceiver, [chunks], ExitRule(), "a test"))
    assert len(found.curve) == found.usage.taken.observations == found.usage.fixed.observations == 4
    assert found.phase.fraction == 1.0
    *_, policy, descriptors = found.parts
    assert (policy.macs, descriptors.macs) == (8 * 16 + 6 * 8, 6 * 8 * 8)  # all six places are looked over


def test_a_head_of_one_layer_has_a_boundary_too():
    rng = np.random.default_rng(1)
    perceiver = specs.random_perceiver(rng, n_layers=1)
    chunks = perceiver.scenes(specs.random_clouds(rng, 5))
    found = estimate(perceiver, measure(perceiver, [chunks], ExitRule(0.3), "a test"))
    assert found.ratios["head"] == found.ratios["spiking_layers"] == 1.0
    assert found.at_exit / found.fixed_order == pytest.approx(found.phase.fraction / found.phase.boundary())


@pytest.mark.parametrize("price", [(0.0, 0.9), (4.6, 0.0), (float("nan"), 0.9), (4.6, -1.0)])
def test_a_price_must_be_above_zero(price):
    with pytest.raises(ConfigError, match="must be a finite number above 0"):
        Price(*price)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((0.0, 1.0, (0.5,)), "0.0 observations"),
        ((1.0, float("nan"), (0.5,)), "nan groups"),
        ((1.0, 1.0, (0.5, 1.5)), "layer 2: firing rate 1.5 is outside 0..1"),
    ],
)
def test_an_impossible_activity_is_refused(values, said):
    with pytest.raises(InputError, match=said):
        Activity(*values)


def test_rates_of_another_head_and_no_clouds_are_refused(some):
    perceiver, _ = some
    with pytest.raises(InputError, match="1 firing rates for 2 layers"):
        components(perceiver.spec, Activity(1.0, 1.0, (0.5,)))
    with pytest.raises(InputError, match="no clouds"):
        measure(perceiver, [], ExitRule(), "a test")


# The verb


def test_energy_prints_what_it_promises(shell):
    said = shell("energy", "compact", "--limit", "30", "--json")
    assert said.code == 0, said.err
    found = said.json
    assert found["estimate"] is True
    assert found["n"] == 30
    assert list(found["energy_at"]) == [str(k) for k in range(1, 17)]
    assert found["mean_observations"] < 16
    assert found["system_ratio"] > found["ratios"]["same_observations"] > 1.0
    assert found["head_ratio"] > 1.0
    assert {"a", "lambda", "lambda0", "r", "kappa", "phi", "boundary", "wins"} == set(found["phase"])
    assert "Horowitz" in found["prices"]["sources"]["mac_pj"]


def test_a_person_reads_that_it_is_an_estimate(shell):
    said = shell("energy", "compact", "--limit", "10", "--no-exit")
    assert said.code == 0, said.err
    for words in ("Estimate", "no chip was measured", "nobody has published a price", "16.00 of 16", "does not save"):
        assert words in said.out


@pytest.mark.parametrize(("kind", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_a_picture_in_three_forms(cli, tmp_path, kind, magic):
    path = tmp_path / f"energy.{kind}"
    said = cli("energy", "compact", "--limit", "5", "--plot", str(path), "--json")
    assert said.code == 0, said.err
    assert path.read_bytes().startswith(magic)


def stored_only(path, **changes):
    """The compact bundle, as if its data were files that are not there."""
    made = bundles.read(bundles.shipped()["compact"])
    recipe = {**made.recipe, "data": {"name": "modelnet10", "classes": []}}
    made = dataclasses.replace(made, recipe=recipe, plan=None, certificate=None, **changes)
    bundles.write(path, made)
    return made


def test_without_data_the_stored_rates_are_used_and_that_is_said(shell, tmp_path):
    made = stored_only(tmp_path / "model.net")
    said = shell("energy", "--json", env={"ASP_NEURO_DATA": ""})
    assert said.code == 0, said.err
    assert "nothing is run" in said.err
    assert "record" in said.json["measured_on"]
    assert said.json["n"] == 0
    assert said.json["firing_rate"] == made.record["deployment"]["firing_rate"]
    assert said.json["prefix_phase"] is None
    assert said.json["sha256"] == model_sha256(made)
    for words in (("--threshold", "0.5"), ("--data", "nowhere")):  # where it stops, and what is there, nobody knows
        assert shell("energy", "--json", *words, env={"ASP_NEURO_DATA": ""}).json["error"]["kind"] == "missing"


def test_a_group_in_two_chunks_is_encoded_once():
    looked_at = np.array([[[1, 1, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 1, 1]]], dtype=bool)
    assert energy.new_groups(looked_at).tolist() == [[2, 1, 0, 1]]
    usage = energy.assumed_usage("a test", 2.5, (2.0, 1.0, 0.0, 1.0), (0.1,))
    assert [step.groups for step in usage.steps] == [2.0, 1.0, 0.0, 1.0]
    assert usage.taken.groups == pytest.approx(3.0 / 2.5)
    assert usage.fixed.groups == 1.0


def test_stored_rates_give_the_energy_of_a_run_within_a_tenth(compact):
    rule, _ = deployment.exit_rule(compact)
    stored = deployment.recorded_usage(compact, rule, MissingError("x"))
    ran = deployment.usage(compact, load_clouds("shapes", "test").subset(np.arange(200)), rule)
    one, other = (estimate(compact.perceiver, usage).curve[-1] for usage in (stored, ran))
    assert one == pytest.approx(other, rel=0.1)


@pytest.mark.parametrize("record", [{}, {"deployment": 3}, {"deployment": {"firing_rate": ["a", "b"]}}])
def test_without_data_and_without_stored_rates_the_missing_data_are_told(shell, tmp_path, record):
    stored_only(tmp_path / "model.net", record=record)
    said = shell("energy", "--json", env={"ASP_NEURO_DATA": ""})
    assert (said.code, said.json["error"]["kind"]) == (2, "missing")
    assert "modelnet10" in said.json["error"]["message"]


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("--plot", "energy.gif"), "usage"),
        (("--plot", "nowhere/energy.png"), "usage"),
        (("--bundle", "compact"), "usage"),
        (("--threshold", "1.5"), "usage"),
        (("--prices", "none.toml"), "missing"),
        (("--prices", "cheap"), "config"),
        (("--limit", "0"), "usage"),
    ],
)
def test_bad_input_is_told_by_its_kind(cli, tmp_path, monkeypatch, words, kind):
    monkeypatch.chdir(tmp_path)
    said = cli("energy", "compact", *words, "--json")
    assert (said.code, said.json["error"]["kind"]) == (2, kind)


def test_prices_from_a_file_change_the_estimate(cli, tmp_path):
    from importlib import resources

    text = (resources.files("asp_neuro.hw_configs") / "prices.toml").read_text()
    path = tmp_path / "own.toml"
    path.write_text(text.replace("value = 4.6", "value = 9.2", 1).replace("value = 0.9", "value = 1.8", 1))
    few = ("energy", "compact", "--limit", "5", "--json")
    one, two = cli(*few).json, cli(*few, "--prices", str(path)).json
    assert two["energy_at_exit"] == pytest.approx(2.0 * one["energy_at_exit"])
    path.write_text(text.replace("value = 0.9", "value = 0.0", 1))
    said = cli(*few, "--prices", str(path))
    assert (said.code, said.json["error"]["kind"]) == (2, "config")


def test_the_head_ratio_pays_for_a_graded_first_layer(compact):
    found = estimate(compact.perceiver, energy.assumed_usage("a test", 3.0, (5.5,) * 16, (0.3, 0.2)))
    layer = 64 * 64 + 64
    spiking = 64 * 4.6 + 0.3 * 64 * 64 * 0.9
    assert found.ratios["head"] == pytest.approx(2 * layer * 4.6 / (layer * 4.6 + spiking))
    assert found.ratios["spiking_layers"] == pytest.approx(layer * 4.6 / spiking)
