"""Does a head fit a chip? Design rules over an estimated layout; limits and prices are data in `hw_configs/*.toml`.

A layer that does not fit one core is split over several by neurons; every part keeps all inputs, and cores are not
shared between layers. Memory for synapses follows the cost model

    words = active inputs x ceil(neurons x weight bits / word bits),        a share of the core is kept free

A layer past the second takes the spikes of every earlier layer, each through axons and synapses of its own.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from asp_neuro import plain
from asp_neuro.errors import ConfigError, MissingError, nearest
from asp_neuro.heads.bits import DRIVE_MAX
from asp_neuro.heads.spec import STOCK, HeadSpec, synaptic_reach
from asp_neuro.model.mixer import MixerSpec
from asp_neuro.report import table

PRICES = "prices"  # the one file in hw_configs that describes no chip
PROBE_STEPS, PROBE_CLOUDS = 16, 32


@dataclass(frozen=True)
class Limits:
    """What a chip can hold; units are in the names, sources in `Hardware.sources`."""

    neurons_per_core: int
    input_axons_per_core: int
    neuron_groups_per_core: int
    groups_per_layer: int
    synapse_words_per_core: int
    synapse_headroom: float  # share of the words that is kept free
    word_bits: int
    cores_per_chip: int
    weight_bits: int
    weight_min: int
    weight_max: int
    weight_step: int
    leak_bits: int
    state_bits: int
    state_headroom: float  # how many times the largest membrane seen must fit
    accumulator_bits: int
    drive_bits: int

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if name not in ("weight_min", "synapse_headroom") and not value > 0:
                raise ConfigError(f"limits.{name} = {value} must be above 0")
        if not 0.0 <= self.synapse_headroom < 1.0:
            raise ConfigError(f"limits.synapse_headroom = {self.synapse_headroom} must be at least 0 and below 1")

    @property
    def usable_words(self) -> int:
        return math.floor(self.synapse_words_per_core * (1.0 - self.synapse_headroom) + 1e-9)

    @property
    def state_max(self) -> int:
        return (1 << (self.state_bits - 1)) - 1


@dataclass(frozen=True)
class Hardware:
    """A chip: its limits, and where each number comes from."""

    name: str
    title: str
    note: str
    limits: Limits
    sources: dict[str, str]


# Reading descriptions


def names() -> list[str]:
    """The chips that are described."""
    folder = resources.files("asp_neuro.hw_configs")
    found = (entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))
    return sorted(name for name in found if name != PRICES)


@dataclass(frozen=True)
class Stated:
    """A number of a description, and where it comes from."""

    value: Any
    source: str

    def __post_init__(self) -> None:
        if not self.source.strip():
            raise ConfigError(f"the source must say where {self.value} comes from")


@dataclass(frozen=True)
class Description:
    """The file of a chip."""

    name: str
    title: str
    note: str
    limits: dict[str, Stated]


def chip(name: str | Path = "loihi2") -> Hardware:
    """A chip by name, or from a TOML file."""
    source, tables = _toml(str(name), names(), "hardware")
    found = plain.read(Description, tables, source, ConfigError)
    values, sources = _parted(found.limits)
    limits = plain.read(Limits, values, source, ConfigError, within="limits")
    return Hardware(found.name, found.title, found.note, limits, sources)


@dataclass(frozen=True)
class Cmos:
    mac_pj: float
    ac_pj: float


@dataclass(frozen=True)
class CmosIntegers:
    mac8_pj: float
    mac16_pj: float
    mac32_pj: float
    ac_pj: float
    float64_pj: float


@dataclass(frozen=True)
class Loihi1:
    synaptic_operation_pj: float
    neuron_update_active_pj: float
    neuron_update_inactive_pj: float


@dataclass(frozen=True)
class Loihi2:
    static_watt: float


@dataclass(frozen=True)
class PriceList:
    """The file of prices, without the sources."""

    cmos_45nm: Cmos
    cmos_45nm_integers: CmosIntegers
    loihi1: Loihi1
    loihi2: Loihi2

    def __post_init__(self) -> None:
        for group, prices in plain.of(self).items():
            for name, value in prices.items():
                if value < 0.0:
                    raise ConfigError(f"{group}.{name} = {value} must not be negative")


@dataclass(frozen=True)
class Prices:
    """What operations cost: group -> name -> value, and the same for the sources."""

    values: dict[str, dict[str, float]]
    sources: dict[str, dict[str, str]]


def prices(name: str | Path = PRICES) -> Prices:
    """Energy prices, from the shipped table or from a TOML file like it."""
    source, tables = _toml(str(name), [PRICES], "price table")
    stated = plain.value(dict[str, dict[str, Stated]], tables, source, ConfigError)
    parted = {group: _parted(table) for group, table in stated.items()}
    found = plain.read(PriceList, {group: values for group, (values, _) in parted.items()}, source, ConfigError)
    return Prices(plain.of(found), {group: sources for group, (_, sources) in parted.items()})


def _parted(table: dict[str, Stated]) -> tuple[dict[str, Any], dict[str, str]]:
    """Numbers, and sources."""
    return {key: one.value for key, one in table.items()}, {key: one.source for key, one in table.items()}


def _toml(name: str, known: list[str], what: str) -> tuple[str, dict[str, Any]]:
    """A shipped name or a file -> what to call it in errors, and its content."""
    if name in known:
        source, data = f"{name}.toml", (resources.files("asp_neuro.hw_configs") / f"{name}.toml").read_bytes()
    elif name.endswith(".toml") or Path(name).is_file():
        source = name
        try:
            data = Path(name).read_bytes()
        except OSError as error:
            raise MissingError(f"{what} file '{name}' cannot be read: {error.strerror}") from None
    else:
        raise ConfigError(f"unknown {what} '{name}'{nearest(name, known)}")
    return source, plain.toml(data, source)


# Where a head goes


@dataclass(frozen=True)
class CoreUse:
    """One core: a part of one layer, and what it takes."""

    core: int
    layer: int  # from 1
    first: int  # neurons first..last of the layer, from 0
    last: int
    axons: int
    words: int
    groups: int

    @property
    def neurons(self) -> int:
        return self.last - self.first + 1

    def shares(self, limits: Limits) -> dict[str, float]:
        """Of what the core has, 0..1; above 1 - synapse_headroom the words count as too many."""
        return {
            "neurons": self.neurons / limits.neurons_per_core,
            "axons": self.axons / limits.input_axons_per_core,
            "words": self.words / limits.synapse_words_per_core,
            "groups": self.groups / limits.neuron_groups_per_core,
        }


def words_needed(active: int, neurons: int, limits: Limits) -> int:
    """Synapse words of a dense block: every active input holds a row of weights, in whole words."""
    return active * -(-neurons * limits.weight_bits // limits.word_bits)


def lay_out(head: HeadSpec, limits: Limits) -> tuple[CoreUse, ...]:
    """Each layer over as few cores as its neurons and synapse words need, in equal parts."""
    cores: list[CoreUse] = []
    for number, layer in enumerate(head.layers, start=1):
        n_sources = max(number - 1, 1) if head.neurons.residual else 1  # layer 1: the drive; others: layers before
        own = layer.n_neurons if head.form == STOCK else 0  # synapses onto the layer itself, counted as if dense
        fit = _neurons_that_fit(n_sources * _active(layer.weight_int) + own, layer.n_neurons, limits)
        edges = np.linspace(0, layer.n_neurons, -(-layer.n_neurons // fit) + 1).round().astype(int)
        for first, end in itertools.pairwise(edges.tolist()):
            active = n_sources * _active(layer.weight_int[first:end]) + own
            words = words_needed(active, end - first, limits)
            place = (len(cores), number, first, end - 1)
            cores.append(CoreUse(*place, axons=active, words=words, groups=limits.groups_per_layer))
    return tuple(cores)


def _active(weight_int: np.ndarray) -> int:
    """Inputs with at least one weight that is not 0."""
    return int((weight_int != 0).any(axis=0).sum())


def _neurons_that_fit(active: int, n_neurons: int, limits: Limits) -> int:
    """On one core, at least 1 (the rules tell when even that is too much)."""
    row_words = limits.usable_words // active if active else n_neurons
    by_words = row_words * limits.word_bits // limits.weight_bits if active else n_neurons
    return max(1, min(n_neurons, limits.neurons_per_core, by_words))


# Design rules


@dataclass(frozen=True)
class HeadStatistics:
    """What was seen on example drives, per layer."""

    peak: tuple[int, ...]  # largest |membrane|
    rate: tuple[float, ...]  # spikes per neuron and observation


@dataclass(frozen=True)
class Design:
    """All that a rule may look at."""

    head: HeadSpec
    mixer: MixerSpec
    limits: Limits
    cores: tuple[CoreUse, ...]
    statistics: HeadStatistics


@dataclass(frozen=True)
class Violation:
    """A broken rule. `layer` counts from 1; None: the whole head."""

    rule: str
    layer: int | None
    value: float
    limit: float
    advice: str

    def __str__(self) -> str:
        place = "head" if self.layer is None else f"layer {self.layer}"
        return f"{place}: {self.rule}: {self.value:g}, limit {self.limit:g}; {self.advice}"


Rule = Callable[[Design], list[Violation]]


def weight_range(design: Design) -> list[Violation]:
    limits, found = design.limits, []
    for number, layer in enumerate(design.head.layers, start=1):
        low, high = int(layer.weight_int.min()), int(layer.weight_int.max())
        advice = "choose smaller row factors and train on that grid"
        if high > limits.weight_max:
            found.append(Violation("weight_range", number, high, limits.weight_max, advice))
        if low < limits.weight_min:
            found.append(Violation("weight_range", number, low, limits.weight_min, advice))
    return found


def weight_step(design: Design) -> list[Violation]:
    """Weights are multiples of the step: on Loihi even, when signs are mixed."""
    step = design.limits.weight_step
    return [
        Violation("weight_step", number, int(odd[0]), step, f"weights must be multiples of {step}")
        for number, layer in enumerate(design.head.layers, start=1)
        if (odd := layer.weight_int[layer.weight_int % step != 0]).size
    ]


def leak_bits(design: Design) -> list[Violation]:
    limit = (1 << design.limits.leak_bits) - 1
    return _too_large(
        "leak_bits", [int(np.max(layer.lambda_int)) for layer in design.head.layers], limit, "leak faster"
    )


def state_constants(design: Design) -> list[Violation]:
    """Bias and thresholds are states too."""
    largest = [max(int(np.abs(values).max()) for values in layer.constants) for layer in design.head.layers]
    advice = "a bias or threshold does not fit the state; choose a smaller state scale"
    return _too_large("state_constants", largest, design.limits.state_max, advice)


def state_headroom(design: Design) -> list[Violation]:
    """The largest membrane seen must fit several times."""
    limits = design.limits
    limit = math.floor(limits.state_max / limits.state_headroom)
    advice = f"{limits.state_headroom:g} times the largest membrane must fit; train with more headroom (train.headroom)"
    return _too_large("state_headroom", list(design.statistics.peak), limit, advice)


def synaptic_sum(design: Design) -> list[Violation]:
    """No input may wrap the accumulator."""
    limit = (1 << (design.limits.accumulator_bits - 1)) - 1
    advice = "fewer inputs, or a smaller gain of the drive"
    reach = synaptic_reach(design.head, design.mixer.drive_bound())
    return _too_large("synaptic_sum", list(reach), limit, advice)


def drive_bits(design: Design) -> list[Violation]:
    """The proven largest drive fits its message; the host clips at 16 bits, and a clipped drive is wrong too."""
    limit = (1 << (design.limits.drive_bits - 1)) - 1
    largest = int(design.mixer.drive_bound().max())
    if largest <= limit and largest < DRIVE_MAX:
        return []
    return [Violation("drive_bits", 1, largest, limit, "the drive can be clipped; use a smaller gain of the drive")]


def neurons_per_core(design: Design) -> list[Violation]:
    limit = design.limits.neurons_per_core
    return _per_layer("neurons_per_core", design, lambda core: core.neurons, limit, "split the layer over more cores")


def input_axons(design: Design) -> list[Violation]:
    """Splitting by neurons leaves every part all inputs."""
    advice = "fewer neurons in the layers before, or fewer layers that feed this one"
    return _per_layer("input_axons", design, lambda core: core.axons, design.limits.input_axons_per_core, advice)


def neuron_groups(design: Design) -> list[Violation]:
    advice = "a layer needs this many groups of neurons on its core"
    return _per_layer("neuron_groups", design, lambda core: core.groups, design.limits.neuron_groups_per_core, advice)


def synapse_words(design: Design) -> list[Violation]:
    """With the share that is kept free; broken when not even one neuron's inputs fit a core."""
    advice = "too many inputs for one core, however the neurons are split; prune inputs to zero"
    return _per_layer("synapse_words", design, lambda core: core.words, design.limits.usable_words, advice)


def cores_per_chip(design: Design) -> list[Violation]:
    n_cores, limit = len(design.cores), design.limits.cores_per_chip
    advice = "fewer neurons or layers, or a board with several chips"
    return [Violation("cores_per_chip", None, n_cores, limit, advice)] if n_cores > limit else []


def dead_layer(design: Design) -> list[Violation]:
    """A layer that never fires says nothing to those after it."""
    return [
        Violation("dead_layer", number, 0.0, 0.0, "no neuron fired on the example drives; train with a rate penalty")
        for number, rate in enumerate(design.statistics.rate, start=1)
        if rate == 0.0
    ]


RULES: tuple[Rule, ...] = (
    weight_range,
    weight_step,
    leak_bits,
    state_constants,
    state_headroom,
    synaptic_sum,
    drive_bits,
    neurons_per_core,
    input_axons,
    neuron_groups,
    synapse_words,
    cores_per_chip,
    dead_layer,
)


def _too_large(rule: str, values: list[int], limit: int, advice: str) -> list[Violation]:
    """One violation for each layer whose value exceeds the limit."""
    return [Violation(rule, n, value, limit, advice) for n, value in enumerate(values, start=1) if value > limit]


def _per_layer(rule: str, design: Design, use: Callable[[CoreUse], int], limit: int, advice: str) -> list[Violation]:
    """One violation for each layer: its worst core."""
    worst: dict[int, int] = {}
    for core in design.cores:
        worst[core.layer] = max(worst.get(core.layer, 0), use(core))
    return [Violation(rule, layer, value, limit, advice) for layer, value in worst.items() if value > limit]


# What the user calls


@dataclass(frozen=True)
class FitReport:
    """Whether a head fits, what it takes, and what to change. An estimate."""

    hardware: Hardware
    cores_used: tuple[CoreUse, ...]
    violations: tuple[Violation, ...]

    @property
    def fits(self) -> bool:
        return not self.violations

    @property
    def cores(self) -> int:
        return len(self.cores_used)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for `--json`."""
        limits = self.hardware.limits
        return {
            "fits": self.fits,
            "cores": self.cores,
            "violations": [dataclasses.asdict(violation) for violation in self.violations],
            "hardware": self.hardware.name,
            "estimate": True,
            "table": [
                {**dataclasses.asdict(core), "neurons": core.neurons, "shares": core.shares(limits)}
                for core in self.cores_used
            ],
        }

    def text(self) -> str:
        """For people: the table of the cores, the broken rules and what to do."""
        limits, title = self.hardware.limits, self.hardware.title
        lines = [f"{title}: {self.hardware.note}", "", _core_table(self), ""]
        fullest = max(core.words for core in self.cores_used)
        lines.append(f"Used: {self.cores} cores; {fullest} synapse words on the fullest of them (estimate).")
        words = f"{limits.usable_words} synapse words of a core, with {100 * limits.synapse_headroom:g} % of its"
        lines.append(
            f"Limit: {limits.cores_per_chip} cores of a chip; {words} {limits.synapse_words_per_core} kept free."
        )
        if self.fits:
            lines.append(f"The head fits {title} by this estimate: {len(RULES)} rules hold.")
        else:
            broken = len({violation.rule for violation in self.violations})
            lines.append(f"The head does not fit {title} by this estimate; {broken} of {len(RULES)} rules are broken:")
            lines += [f"  {violation}" for violation in self.violations]
        return "\n".join(lines)


def _core_table(report: FitReport) -> str:
    headers = ["core", "layer"]
    for name in ("neurons", "axons", "synapse words", "groups"):
        headers += [name, "of the core"]
    rows = []
    for core in report.cores_used:
        shares = core.shares(report.hardware.limits)
        cells: list[object] = [core.core, core.layer]
        for name, value in zip(shares, (core.neurons, core.axons, core.words, core.groups)):
            cells += [value, f"{100 * shares[name]:.1f}%"]
        rows.append(cells)
    return table(rows, headers)


def check(
    head: HeadSpec,
    mixer: MixerSpec,
    hardware: Hardware,
    membranes: np.ndarray | None = None,
    spikes: np.ndarray | None = None,
) -> FitReport:
    """All design rules. `membranes` and `spikes` [T, L, b, H] are a recorded run (a bundle's golden vectors);
    without them the head is probed with random drives of the host's mean and spread."""
    if membranes is None or spikes is None:
        membranes, spikes, _ = head.reference(probe_drives(mixer))
    peak = np.abs(membranes.astype(np.int64)).max(axis=(0, 2, 3))
    statistics = HeadStatistics(tuple(peak.tolist()), tuple(spikes.mean(axis=(0, 2, 3)).tolist()))
    design = Design(head, mixer, hardware.limits, lay_out(head, hardware.limits), statistics)
    found = tuple(violation for rule in RULES for violation in rule(design))
    return FitReport(hardware, design.cores, found)


def probe_drives(mixer: MixerSpec, seed: int = 0) -> np.ndarray:
    """[T, b, n] int64: LayerNorm gives a drive the mean and the spread that its bias and gain say."""
    rng = np.random.default_rng(seed)
    gain, bias = mixer.drive.values
    drive = rng.normal(size=(PROBE_STEPS, PROBE_CLOUDS, mixer.width)) * gain + bias
    return np.clip(np.rint(drive), -DRIVE_MAX, DRIVE_MAX).astype(np.int64)
