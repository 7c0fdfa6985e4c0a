"""The fit check: every rule can fail, layers are split over cores as worked out by hand, every number has a source."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import numpy as np
import pytest
import specs

from asp_neuro.errors import ConfigError, MissingError
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.model.mixer import MixerSpec
from asp_neuro.report import to_json
from asp_neuro.runtime import hardware
from asp_neuro.runtime.hardware import RULES, CoreUse, Design, HeadStatistics, check, chip, lay_out, words_needed

LOIHI2 = chip("loihi2")
LIMITS = LOIHI2.limits


def small(seed: int = 0, **sizes: int) -> tuple[HeadSpec, MixerSpec]:
    rng = np.random.default_rng(seed)
    shape = {"width": 8, "n_neurons": 8, "n_layers": 2, **sizes}
    head = specs.random_head(rng, shape["width"], shape["n_neurons"], shape["n_layers"])
    return head, specs.random_mixer(rng, shape["width"])


def seen(peak: int = 1000, rate: float = 0.3) -> HeadStatistics:
    """Of two layers; the second may stand out."""
    return HeadStatistics((1000, peak), (0.3, rate))


def design(**changes: object) -> Design:
    head, mixer = small()
    plain = Design(head, mixer, LIMITS, lay_out(head, LIMITS), seen())
    return dataclasses.replace(plain, **changes)


def limits(**changes: float) -> hardware.Limits:
    return dataclasses.replace(LIMITS, **changes)


def core(**changes: int) -> tuple[CoreUse, ...]:
    plain = CoreUse(core=0, layer=2, first=0, last=7, axons=8, words=16, groups=2)
    return (dataclasses.replace(plain, **changes),)


def loud_mixer() -> MixerSpec:
    _, mixer = small()
    return dataclasses.replace(
        mixer, drive=dataclasses.replace(mixer.drive, gain=np.full(8, 3 * 10**4 * 2**16, np.int32))
    )


# rule -> a design that breaks it, and the layer, value and limit that must be told
BROKEN: dict[str, tuple[Callable[[], Design], int | None, float | None, float]] = {
    "weight_range": (lambda: design(limits=limits(weight_max=50)), 1, None, 50),
    "weight_step": (lambda: design(limits=limits(weight_step=512)), 1, None, 512),
    "leak_bits": (lambda: design(limits=limits(leak_bits=8)), 1, None, 255),
    "state_constants": (lambda: design(limits=limits(state_bits=8)), 1, None, 127),
    "state_headroom": (
        lambda: design(statistics=HeadStatistics((1000, 7_000_000), (0.3, 0.3))),
        2,
        7_000_000,
        6_710_885,
    ),
    "synaptic_sum": (lambda: design(limits=limits(accumulator_bits=16)), 1, None, 32767),
    "drive_bits": (lambda: design(mixer=loud_mixer()), 1, 32767, 32767),
    "neurons_per_core": (lambda: design(cores=core(last=4095)), 2, 4096, 4095),
    "input_axons": (lambda: design(cores=core(axons=16001)), 2, 16001, 16000),
    "neuron_groups": (lambda: design(cores=core(groups=9)), 2, 9, 8),
    "synapse_words": (lambda: design(cores=core(words=7201)), 2, 7201, 7200),
    "cores_per_chip": (lambda: design(cores=core() * 121), None, 121, 120),
    "dead_layer": (lambda: design(statistics=seen(rate=0.0)), 2, 0, 0),
}


def test_every_rule_has_a_design_that_breaks_it():
    assert [rule.__name__ for rule in RULES] == list(BROKEN)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_rule_holds_on_a_plain_head_and_can_break(rule):
    assert rule(design()) == []
    broken, layer, value, limit = BROKEN[rule.__name__]
    found = rule(broken())
    assert found
    first = found[0]
    assert (first.rule, first.layer, first.limit) == (rule.__name__, layer, limit)
    assert value is None or first.value == value
    assert first.advice
    assert ("head" if layer is None else f"layer {layer}") in str(first)


def test_a_weight_below_the_range_is_told_too():
    found = hardware.weight_range(design(limits=limits(weight_min=-50)))
    assert [v.limit for v in found] == [-50, -50]
    assert all(v.value < -50 for v in found)


def test_limits_themselves_are_allowed():
    assert hardware.neurons_per_core(design(cores=core(last=4094))) == []
    assert hardware.input_axons(design(cores=core(axons=16000))) == []
    assert hardware.synapse_words(design(cores=core(words=7200))) == []
    assert hardware.cores_per_chip(design(cores=core() * 120)) == []
    assert hardware.state_headroom(design(statistics=HeadStatistics((6_710_885,), (0.3,)))) == []


@pytest.mark.parametrize(
    ("active", "neurons", "words"), [(64, 10, 192), (126, 64, 2016), (100, 50, 1300), (50, 10, 150), (10, 1, 10)]
)
def test_the_cost_model_gives_the_public_rows_it_was_inferred_from(active, neurons, words):
    assert words_needed(active, neurons, LIMITS) == words


def test_a_layer_of_256_by_256_goes_over_three_cores_by_hand():
    # 7,200 usable words / 256 inputs = 28 words = 112 neurons a core, so 3 cores of 85, 86, 85: 256 * 22 words each
    head, _ = small(width=256, n_neurons=256, n_layers=1)
    cores = lay_out(head, LIMITS)
    assert [(c.first, c.last, c.axons, c.words) for c in cores] == [
        (0, 84, 256, 5632),
        (85, 170, 256, 5632),
        (171, 255, 256, 5632),
    ]


def test_the_third_layer_takes_two_layers_of_axons():
    head, _ = small(n_layers=3)
    assert [c.axons for c in lay_out(head, LIMITS)] == [8, 8, 16]


def test_inputs_without_a_weight_cost_nothing():
    head, _ = small(n_layers=1)
    weight = head.layers[0].weight_int.copy()
    weight[:, 3:] = 0
    pruned = HeadSpec((dataclasses.replace(head.layers[0], weight_int=weight),))
    (only,) = lay_out(pruned, LIMITS)
    assert (only.axons, only.words) == (3, 6)
    (empty,) = lay_out(HeadSpec((dataclasses.replace(head.layers[0], weight_int=weight * 0),)), LIMITS)
    assert (empty.axons, empty.words, empty.neurons) == (0, 0, 8)


@pytest.mark.parametrize("n_neurons", [1, 7, 100, 113, 257])
def test_the_parts_cover_every_neuron_once_and_keep_the_limits(n_neurons):
    head, _ = small(width=200, n_neurons=n_neurons, n_layers=2)
    tight = limits(neurons_per_core=30, synapse_words_per_core=3000)
    cores = lay_out(head, tight)
    for number in (1, 2):
        covered = [n for c in cores if c.layer == number for n in range(c.first, c.last + 1)]
        assert covered == list(range(n_neurons))
    assert all(c.neurons <= 30 and c.words <= tight.usable_words for c in cores)
    assert [c.core for c in cores] == list(range(len(cores)))


def test_too_many_inputs_for_any_split_is_a_broken_rule_not_an_endless_split():
    head, mixer = small(width=64, n_neurons=4, n_layers=1)
    tiny = dataclasses.replace(LOIHI2, limits=limits(synapse_words_per_core=50))
    report = check(head, mixer, tiny)
    assert not report.fits
    assert {v.rule for v in report.violations} == {"synapse_words"}
    assert report.cores == 4


def test_a_small_head_fits_and_the_report_says_estimate():
    report = check(*small(), LOIHI2)
    assert report.fits
    assert report.cores == 2
    assert "estimate" in report.text()
    plain = json.loads(to_json(report.as_dict()))
    assert plain["fits"] is True
    assert plain["violations"] == []
    assert plain["table"][0]["shares"]["groups"] == 0.25


def test_a_limit_reads_as_a_limit_and_use_as_use():
    report = check(*small(), dataclasses.replace(LOIHI2, limits=limits(synapse_words_per_core=1000, cores_per_chip=7)))
    (used,) = [line for line in report.text().splitlines() if line.startswith("Used:")]
    (limit,) = [line for line in report.text().splitlines() if line.startswith("Limit:")]
    fullest = max(core.words for core in report.cores_used)
    assert used == f"Used: 2 cores; {fullest} synapse words on the fullest of them (estimate)."
    assert limit == "Limit: 7 cores of a chip; 600 synapse words of a core, with 40 % of its 1000 kept free."
    assert "of the core" in report.text()


def test_a_report_of_a_head_that_does_not_fit_names_rule_layer_value_limit_and_advice():
    report = check(*small(), dataclasses.replace(LOIHI2, limits=limits(cores_per_chip=1)))
    assert not report.fits
    (violation,) = report.as_dict()["violations"]
    assert {"rule", "layer", "value", "limit"} <= set(violation)
    assert "does not fit" in report.text()
    assert "head: cores_per_chip: 2, limit 1; fewer neurons or layers" in report.text()


def test_recorded_runs_are_used_where_they_are_given():
    head, mixer = small()
    quiet = np.zeros((4, 2, 3, 8), np.int32)
    report = check(head, mixer, LOIHI2, membranes=quiet, spikes=quiet.astype(np.uint8))
    assert [(v.rule, v.layer) for v in report.violations] == [("dead_layer", 1), ("dead_layer", 2)]


# Descriptions


def test_every_number_has_a_source():
    assert set(LOIHI2.sources) == {f.name for f in dataclasses.fields(hardware.Limits)}
    assert all(len(source) > 20 for source in LOIHI2.sources.values())
    table = hardware.prices()
    assert all(table.sources[group][name] for group in table.values for name in table.values[group])


def test_prices_are_those_of_the_publications():
    values = hardware.prices().values
    assert values["cmos_45nm"] == {"mac_pj": 4.6, "ac_pj": 0.9}
    assert values["cmos_45nm_integers"] == {
        "mac8_pj": pytest.approx(0.2 + 0.1),  # int8 multiply, int32 add
        "mac16_pj": pytest.approx(2 * (0.2 + 0.1)),
        "mac32_pj": pytest.approx(3.1 + 2 * 0.1),  # int32 multiply, 64-bit add
        "ac_pj": 0.1,
        "float64_pj": pytest.approx(4.6 * 27 / 7.5, abs=0.05),
    }
    assert values["loihi1"] == {
        "synaptic_operation_pj": 23.6,
        "neuron_update_active_pj": 81.0,
        "neuron_update_inactive_pj": 52.0,
    }
    assert values["loihi2"] == {"static_watt": 0.232}


def test_chips_are_listed_and_the_price_table_is_not_one():
    assert hardware.names() == ["loihi2"]


def description(**changes: object) -> str:
    """A TOML text like loihi2.toml; a change of None leaves the limit out."""
    entries = {f.name: getattr(LIMITS, f.name) for f in dataclasses.fields(hardware.Limits)} | changes
    lines = ['name = "x"', 'title = "X"', 'note = "n"']
    for key, value in entries.items():
        if value is not None:
            lines += [f"[limits.{key}]", f"value = {value}", 'source = "a test"']
    return "\n".join(lines)


def test_a_description_from_a_file(tmp_path):
    (tmp_path / "own.toml").write_text(description(cores_per_chip=7))
    assert chip(tmp_path / "own.toml").limits.cores_per_chip == 7


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (description(core_per_chip=7), "unknown key 'limits.core_per_chip'; did you mean 'cores_per_chip'"),
        (description(cores_per_chip=None), "limits.cores_per_chip is missing"),
        (description(cores_per_chip=0), "limits.cores_per_chip = 0 must be above 0"),
        (description(cores_per_chip=1.5), "limits.cores_per_chip = 1.5 must be a whole number"),
        (description(cores_per_chip="true"), "limits.cores_per_chip = True must be a whole number"),
        (description(synapse_headroom=1.0), "synapse_headroom = 1.0 must be at least 0 and below 1"),
        (description(state_headroom="nan"), "must be a finite number"),
        ('naem = "x"', "unknown key 'naem'; did you mean 'name'"),
        ('name = "x"\ntitle = "X"', "own.toml: note is missing"),
        ('name = "x"\ntitle = "X"\nnote = "n"', "own.toml: limits is missing"),
        ('name = "x"\ntitle = "X"\nnote = 3\nlimits = 4', "note = 3 must be a text"),
        ('name = "x"\ntitle = "X"\nnote = "n"\nlimits = 4', "limits = 4 must be a table"),
        ('name = "x"\ntitle = "X"\nnote = "n"\n[limits]\nword_bits = 4', "limits.word_bits = 4 must be a table"),
        ("= 3", "not a TOML file"),
        (description().replace('source = "a test"', "", 1), "limits.neurons_per_core.source is missing"),
        (description().replace('source = "a test"', 'source = " "', 1), "the source must say where"),
        (
            description().replace('source = "a test"', 'source = "a"\nunit = "b"', 1),
            "_core.unit'; known: source, value",
        ),
    ],
)
def test_a_wrong_description_is_refused_by_file_key_and_reason(tmp_path, text, said):
    (tmp_path / "own.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        chip(tmp_path / "own.toml")
    assert said in str(caught.value)
    assert "own.toml" in str(caught.value)


def test_unknown_names_and_missing_files_are_told():
    with pytest.raises(ConfigError, match="unknown hardware 'loihi3'; did you mean 'loihi2'"):
        chip("loihi3")
    with pytest.raises(MissingError, match="cannot be read"):
        chip("nothing.toml")


def test_a_negative_price_and_an_unknown_one_are_refused(tmp_path):
    from importlib import resources

    text = (resources.files("asp_neuro.hw_configs") / "prices.toml").read_text()
    (tmp_path / "p.toml").write_text(text.replace("4.6", "-4.6", 1))
    with pytest.raises(ConfigError, match=r"cmos_45nm.mac_pj = -4.6 must not be negative"):
        hardware.prices(tmp_path / "p.toml")
    (tmp_path / "p.toml").write_text(text.replace("loihi1", "loihi3"))
    with pytest.raises(ConfigError, match="unknown key 'loihi3'; did you mean 'loihi"):
        hardware.prices(tmp_path / "p.toml")
    (tmp_path / "p.toml").write_text(text.replace("mac_pj", "mac_jp"))
    with pytest.raises(ConfigError, match=r"unknown key 'cmos_45nm\.mac_jp'; did you mean 'mac_pj'"):
        hardware.prices(tmp_path / "p.toml")
