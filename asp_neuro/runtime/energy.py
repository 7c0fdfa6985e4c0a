"""What an answer costs, by counting operations (paper Tables S2 and 6, sections D.1, E and G.6). Always an estimate.

A product with a graded input is a multiply-accumulate; with a binary input it is an accumulate, and only when the input
spikes. Counts come from the sizes of the weights, firing rates and groups to encode from a run:

    component     E = macs E_MAC + accumulates E_AC,       accumulates = synapses x firing rate of their inputs
    as an ANN     E = (macs + synapses) E_MAC              the same network, all analog
    cloud         E(k) = E_once + sum_{t <= k} E_t         k observations; E_once: the policy's view of the chunks

Phase boundary (Prop. S25), against the same spiking model that reads its whole budget M in a fixed order, no policy:

    E_active / E_fixed = phi / phi*,     phi* = (lambda0 + a) / ((r + lambda) + kappa a)
    phi    mean observations / M                      lambda, lambda0  firing rate of the spiking path, in each
    a      F_a E_MAC / (F_s E_AC), fixed order        kappa            analog work an observation, active / fixed
    r      E_policy / (F_s E_AC)                      F_a, F_s         analog and spiking operations an observation

Two conventions, side by side. The paper's has one price for every MAC and one for every accumulate, those of float32
(`PAPER`). The deployed one (`DEPLOYED`) prices what runs, by kind (`grid/operations.py`):

    component     E = sum_kind n_kind E_kind + accumulates E_int32         kinds: mac8, mac16, mac32, float64
    as an ANN     E = sum_kind n_kind E_kind + synapses E_mac8             activations of 8 bits in place of spikes

A carried state has kappa = 1, but for chosen chunks larger or smaller than the mean; computing the prefix again
multiplies it by sum k (k + 1) / 2 over sum k. Bias, reset, comparison, maximum, memory and the cutting of a cloud into
chunks are counted in neither, LayerNorm, moments, tanh and softmax in the deployed one only; the leak is, one product a
neuron.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from asp_neuro.errors import ConfigError, InputError
from asp_neuro.grid.operations import Operations
from asp_neuro.model import belief
from asp_neuro.model.episode import Watched, episodes, play
from asp_neuro.model.exit import NEVER, ExitRule, first_crossing
from asp_neuro.model.look import Look
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.model.spec import ModelSpec
from asp_neuro.report import table
from asp_neuro.runtime import hardware
from asp_neuro.runtime.hardware import Prices

# What is counted


@dataclass(frozen=True)
class Price(hardware.Cmos):
    """Picojoules of an operation, by the paper's convention."""

    def __post_init__(self) -> None:
        _check_above_zero(self)

    @property
    def float64_pj(self) -> float:
        """Not counted."""
        return 0.0

    @property
    def dense_pj(self) -> float:
        """Of a product with a binary input, were the input graded."""
        return self.mac_pj

    def graded(self, part: Component) -> float:
        """Picojoules of all but the accumulates."""
        return part.macs * self.mac_pj

    def __str__(self) -> str:
        return f"{self.mac_pj:g} pJ a multiply-accumulate, {self.ac_pj:g} pJ an accumulate"


@dataclass(frozen=True)
class IntegerPrice(hardware.CmosIntegers):
    """Picojoules of an operation of the deployed network."""

    def __post_init__(self) -> None:
        _check_above_zero(self)

    @property
    def dense_pj(self) -> float:
        return self.mac8_pj

    def graded(self, part: Component) -> float:
        n = part.operations
        whole = n.mac8 * self.mac8_pj + n.mac16 * self.mac16_pj + n.mac32 * self.mac32_pj
        return whole + n.float64 * self.float64_pj

    def __str__(self) -> str:
        macs = f"{self.mac8_pj:g}, {self.mac16_pj:g}, {self.mac32_pj:g} pJ a MAC of 8, 16, 32 bits"
        return f"{macs}, {self.ac_pj:g} pJ an accumulate, {self.float64_pj:g} pJ a float64 operation"


def _check_above_zero(price: Any) -> None:
    for name, value in dataclasses.asdict(price).items():
        if not (math.isfinite(value) and value > 0.0):
            raise ConfigError(f"price: {name} = {value} must be a finite number above 0")


@dataclass(frozen=True)
class Convention:
    """What an operation is taken to cost."""

    name: str
    group: str  # of the price list
    price: type[Price] | type[IntegerPrice]


PAPER = Convention("paper", "cmos_45nm", Price)
DEPLOYED = Convention("deployed", "cmos_45nm_integers", IntegerPrice)


@dataclass(frozen=True)
class Component:
    """A part of the model and its operations, per observation or once per cloud."""

    name: str
    macs: float  # products with a graded input
    synapses: float = 0.0  # products with a binary input: at most that many accumulates
    accumulates: float = 0.0  # those whose input spikes
    once: bool = False  # per cloud
    operations: Operations = Operations()  # the MACs by kind, and what the paper does not count

    def energy(self, price: Price | IntegerPrice) -> float:
        """Picojoules."""
        return price.graded(self) + self.accumulates * price.ac_pj

    def dense_energy(self, price: Price | IntegerPrice) -> float:
        """Picojoules of the all-analog version of itself."""
        return price.graded(self) + self.synapses * price.dense_pj


@dataclass(frozen=True)
class Activity:
    """Observations as they were on average."""

    observations: float  # of a cloud
    groups: float  # encoded for it: those of the chunk that no chunk before had
    rates: tuple[float, ...]  # spikes per neuron and time step, of each layer
    first: float = 0.0  # share of the observations that are a cloud's first

    def __post_init__(self) -> None:
        if not (math.isfinite(self.observations) and self.observations > 0.0):
            raise InputError(f"energy: {self.observations} observations a cloud, expected a number above 0")
        if not (math.isfinite(self.groups) and self.groups >= 0.0):
            raise InputError(f"energy: {self.groups} groups an observation, expected a number from 0 up")
        for number, rate in enumerate(self.rates, start=1):
            if not 0.0 <= rate <= 1.0:
                raise InputError(f"energy: layer {number}: firing rate {rate} is outside 0..1")


def components(model: ModelSpec, activity: Activity) -> tuple[Component, ...]:
    """Operations of one observation (and once per cloud), from the sizes of the weights."""
    layers = model.head.layers
    if len(activity.rates) != len(layers):
        raise InputError(f"energy: {len(activity.rates)} firing rates for {len(layers)} layers")
    parts = [_graded("encoder", model.scene.operations(activity.groups)), _graded("mixer", model.mixer.operations())]
    for index, layer in enumerate(layers):
        synapses, leak = layer.weight_int.size, Operations(mac32=layer.n_neurons * model.head.steps)
        if index == 0:  # the drive is graded
            parts.append(_graded("head layer 1", Operations(mac16=synapses) + leak))
        else:  # the spikes of every layer before, or of the last one
            heard = activity.rates[:index] if model.head.neurons.residual else activity.rates[index - 1 : index]
            events = synapses * sum(heard) * model.head.steps
            parts.append(_graded(f"head layer {index + 1}", leak, synapses=synapses, accumulates=events))
    n_places, n_neurons = model.scene.n_places, model.head.n_neurons
    parts.append(_graded("belief, read-out", belief.operations(n_neurons) + model.task.operations()))
    scored = 1.0 if model.policy.first is None else 1.0 - activity.first  # a first look has scores of its own
    parts.append(_graded("policy", model.policy.operations(n_places) * scored))
    return (*parts, _graded("policy, descriptors", model.policy.operations_once(n_places), once=True))


def _graded(name: str, operations: Operations, **more: Any) -> Component:
    return Component(name, operations.macs, operations=operations, **more)


Cost = Callable[[Component], float]  # picojoules


def phase_boundary(a: Any, rate: float, fixed_rate: float, overhead: float, kappa: float) -> Any:
    """phi* of the paper; `a` may be an array."""
    return (fixed_rate + a) / ((overhead + rate) + kappa * a)


# What is measured


@dataclass(frozen=True)
class Usage:
    """A run: every observation at full budget, those that were taken before the exit, and the fixed order."""

    source: str
    n: int  # clouds; 0: nothing was run
    steps: tuple[Activity, ...]  # observation 1, 2, .. M of the learned order
    taken: Activity
    fixed: Activity  # the whole budget in a fixed order
    repeats: float | None  # how often a chunk would be computed without carried state; None: unknown


def firing(engine: Any) -> np.ndarray:
    """[L, b] the share of the neurons that fired at the last observation."""
    return np.stack([fired.mean(axis=(0, 2), dtype=np.float64) for fired in engine.fired])


def _fired(perceiver: Perceiver, scenes: Any, order: np.ndarray | None) -> tuple[list[Look], list[np.ndarray]]:
    """The looks of a batch at full budget, and what fired at each of them."""
    rates: list[np.ndarray] = []
    engine = Watched(perceiver.new_head(), lambda e: rates.append(firing(e)))
    return play(episodes(perceiver.model, scenes, ExitRule(), order), engine).looks, rates


def new_groups(looked_at: np.ndarray) -> np.ndarray:
    """Groups of the chunks in the order of looking [b, T, G] bool -> how many each look must encode [b, T]: a group in
    two chunks is encoded once (`CloudView.embed`).
    """
    known = np.logical_or.accumulate(looked_at, axis=1)
    known = np.concatenate([np.zeros_like(known[:, :1]), known[:, :-1]], axis=1)
    return (looked_at & ~known).sum(axis=2)


def measure(perceiver: Perceiver, parts: Iterable[Any], rule: ExitRule, source: str) -> Usage:
    """Run scenes at full budget, in the learned and in the fixed order; the margins tell where the rule stops."""
    learned: list[np.ndarray] = []
    fixed: list[np.ndarray] = []
    margins: list[np.ndarray] = []
    for scenes in parts:
        belongs = perceiver.spec.scene.parts_of(scenes)  # [b, M, G]
        in_order = np.tile(np.arange(perceiver.budget), (len(scenes), 1))
        for order, seen in ((None, learned), (in_order, fixed)):
            looks, rates = _fired(perceiver, scenes, order)
            chosen = np.stack([look.place for look in looks], axis=1)  # [b, T]
            groups = new_groups(np.take_along_axis(belongs, chosen[..., None], axis=1))
            seen.append(np.concatenate([groups.T[:, None], np.stack(rates)], axis=1))  # [T, 1 + L, b]
            if order is None:
                margins.append(np.stack([look.margin for look in looks]))  # [T, b]
    if not learned:
        raise InputError("energy: no clouds to run")
    work, work_fixed, margin = (np.concatenate(found, axis=-1) for found in (learned, fixed, margins))
    n_steps, n_clouds = margin.shape
    most = rule.most(n_steps)
    crossing = np.full(n_clouds, NEVER) if rule.tau is None else first_crossing(margin[:most], rule.tau)
    stops = np.where(crossing == NEVER, most, crossing + 1)  # [n]
    taken = np.arange(n_steps)[:, None] < stops  # [T, n]
    return Usage(
        source=source,
        n=n_clouds,
        steps=tuple(_activity(1.0, step.mean(axis=1), first=t == 0) for t, step in enumerate(work)),
        taken=_activity(float(stops.mean()), (work * taken[:, None]).sum(axis=(0, 2)) / taken.sum()),
        fixed=_activity(n_steps, work_fixed.mean(axis=(0, 2))),
        repeats=float((stops * (stops + 1)).sum() / (2 * stops.sum())),
    )


def _activity(observations: float, means: np.ndarray, first: bool | None = None) -> Activity:
    """Of whole clouds, or (`first`) of a single observation of theirs."""
    groups, *rates = means.tolist()
    return Activity(float(observations), groups, tuple(rates), 1.0 / observations if first is None else float(first))


def assumed_usage(source: str, observations: float, groups: Sequence[float], rates: Sequence[float]) -> Usage:
    """Where nothing can be run: the groups that each observation of the budget encodes, the rates always the same."""
    budget = len(groups)
    total = np.interp(observations, np.arange(budget + 1), np.concatenate([[0.0], np.cumsum(groups)]))
    steps = tuple(_activity(1.0, np.array([n, *rates]), first=t == 0) for t, n in enumerate(groups))
    taken = _activity(observations, np.array([total / observations, *rates]))
    return Usage(source, 0, steps, taken, _activity(budget, np.array([np.mean(groups), *rates])), None)


# What follows


@dataclass(frozen=True)
class Phase:
    """A model's point (a, fraction) and the boundary of its own sparsity and overhead."""

    a: float
    rate: float  # lambda
    fixed_rate: float  # lambda0
    overhead: float  # r
    kappa: float
    fraction: float  # phi

    def boundary(self, a: Any = None) -> Any:
        """phi* at the model's own `a`, or elsewhere."""
        return phase_boundary(self.a if a is None else a, self.rate, self.fixed_rate, self.overhead, self.kappa)

    @property
    def wins(self) -> bool:
        return bool(self.fraction < self.boundary())

    def as_dict(self) -> dict[str, Any]:
        return {
            "a": self.a,
            "lambda": self.rate,
            "lambda0": self.fixed_rate,
            "r": self.overhead,
            "kappa": self.kappa,
            "phi": self.fraction,
            "boundary": self.boundary(),
            "wins": self.wins,
        }


@dataclass(frozen=True)
class Estimate:
    """The energy of a model in a use of it, by one convention. Energies are picojoules."""

    model: ModelSpec
    usage: Usage
    prices: Prices
    convention: Convention = PAPER

    @cached_property
    def price(self) -> Price | IntegerPrice:
        return self.convention.price(**self.prices.values[self.convention.group])

    @cached_property
    def deployed(self) -> Estimate:
        """The same use, by what really runs."""
        return dataclasses.replace(self, convention=DEPLOYED)

    def _components(self, activity: Activity) -> tuple[Component, ...]:
        return components(self.model, activity)

    @cached_property
    def parts(self) -> tuple[Component, ...]:
        """At the observations that were taken."""
        return self._components(self.usage.taken)

    def _curve(self, cost: Cost) -> np.ndarray:
        """[M] of 1 .. M observations."""
        steps = [sum(cost(c) for c in self._components(s) if not c.once) for s in self.usage.steps]
        return np.cumsum(steps) + sum(cost(c) for c in self.parts if c.once)

    def _at_exit(self, cost: Cost) -> float:
        """The mean over clouds, each at its own stop."""
        return sum(cost(c) * (1.0 if c.once else self.usage.taken.observations) for c in self.parts)

    def _energy(self, part: Component) -> float:
        return part.energy(self.price)

    def _dense_energy(self, part: Component) -> float:
        return part.dense_energy(self.price)

    def _float64_energy(self, part: Component) -> float:
        """The share of what is done element by element; the paper does not count it."""
        return part.operations.float64 * self.price.float64_pj

    @cached_property
    def curve(self) -> np.ndarray:
        """[M] E(1) .. E(M)."""
        return self._curve(self._energy)

    @cached_property
    def dense_curve(self) -> np.ndarray:
        """[M] the same of the all-analog version."""
        return self._curve(self._dense_energy)

    @cached_property
    def float64_curve(self) -> np.ndarray:
        """[M] what of it goes into float64."""
        return self._curve(self._float64_energy)

    @cached_property
    def at_exit(self) -> float:
        return self._at_exit(self._energy)

    @cached_property
    def dense_at_exit(self) -> float:
        return self._at_exit(self._dense_energy)

    @cached_property
    def float64_at_exit(self) -> float:
        return self._at_exit(self._float64_energy)

    @property
    def fixed_order(self) -> float:
        """The whole budget in a fixed order, on the same spiking model, without policy."""
        own = (c.energy(self.price) for c in self._components(self.usage.fixed) if not c.name.startswith("policy"))
        return self.usage.fixed.observations * sum(own)

    @property
    def ratios(self) -> dict[str, float]:
        """How many times more the all-analog version takes: the head, the system at as many observations, at budget,
        and at budget without float64."""
        products = self.dense_curve[-1] - self.float64_curve[-1]
        heads = [c for c in self.parts if c.name.startswith("head")]
        spiking = [c for c in heads if c.synapses]
        return {
            "head": _ratio(heads, self.price),
            "spiking_layers": _ratio(spiking, self.price) if spiking else 1.0,
            "same_observations": self.dense_at_exit / self.at_exit,
            "system": float(self.dense_curve[-1]) / self.at_exit,
            "system_products": float(products) / (self.at_exit - self.float64_at_exit),
        }

    @property
    def phase(self) -> Phase:
        usage, price = self.usage, self.price
        now, then = self.parts, self._components(usage.fixed)
        spiking = max(sum(c.synapses for c in now), 1.0)  # a head of one layer has none: the unit is one accumulate
        analog, analog_fixed = (
            sum(price.graded(c) for c in parts if not c.name.startswith("policy")) for parts in (now, then)
        )
        policy = sum(
            c.energy(price) / (usage.taken.observations if c.once else 1.0) for c in now if c.name.startswith("policy")
        )
        return Phase(
            a=analog_fixed / (spiking * price.ac_pj),
            rate=sum(c.accumulates for c in now) / spiking,
            fixed_rate=sum(c.accumulates for c in then) / spiking,
            overhead=policy / (spiking * price.ac_pj),
            kappa=analog / analog_fixed,
            fraction=usage.taken.observations / self.model.budget,
        )

    @property
    def prefix_phase(self) -> Phase | None:
        """The same point without carried state: the analog work is done again for every chunk of the prefix."""
        own, repeats = self.phase, self.usage.repeats
        return None if repeats is None else dataclasses.replace(own, kappa=own.kappa * repeats)

    @property
    def on_loihi1(self) -> float:
        """The head's part of one observation at Loihi 1's prices; every input of layer 1 counts as an event."""
        price = self.prices.values["loihi1"]
        events = self.model.head.layers[0].weight_int.size + sum(c.accumulates for c in self.parts)
        neurons = sum(layer.n_neurons for layer in self.model.head.layers) * self.model.head.steps
        return events * price["synaptic_operation_pj"] + neurons * price["neuron_update_active_pj"]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for `--json`: nanojoules. The paper's convention, and under `deployed` the other."""
        usage = self.usage
        return {
            "estimate": True,
            "measured_on": usage.source,
            "n": usage.n,
            "budget": self.model.budget,
            "mean_observations": usage.taken.observations,
            "firing_rate": usage.taken.rates,
            "groups": usage.taken.groups,
            **self._costs(),
            "loihi1_head_nj": self.on_loihi1 / 1e3,
            "deployed": self.deployed._costs(),
        }

    def _costs(self) -> dict[str, Any]:
        group = self.convention.group
        return {
            "convention": self.convention.name,
            "prices": {**self.prices.values[group], "sources": self.prices.sources[group]},
            "components": [
                {
                    **dataclasses.asdict(c),
                    "nj": c.energy(self.price) / 1e3,
                    "dense_nj": c.dense_energy(self.price) / 1e3,
                }
                for c in self.parts
            ],
            "energy_at": {str(k): value / 1e3 for k, value in enumerate(self.curve.tolist(), start=1)},
            "energy_at_exit": self.at_exit / 1e3,
            "float64_at_exit": self.float64_at_exit / 1e3,
            "dense_at_exit": self.dense_at_exit / 1e3,
            "dense_at_budget": float(self.dense_curve[-1]) / 1e3,
            "fixed_order_at_budget": self.fixed_order / 1e3,
            "head_ratio": self.ratios["head"],
            "system_ratio": self.ratios["system"],
            "ratios": self.ratios,
            "phase": self.phase.as_dict(),
            "prefix_phase": None if self.prefix_phase is None else self.prefix_phase.as_dict(),
        }

    def text(self) -> str:
        """For people: both conventions."""
        note = "Estimate from operation counts at 45 nm prices; no chip was measured. Two conventions:\n"
        note += f"  paper     products only, all in float32: {self.price}\n"
        note += f"  deployed  what runs: {self.deployed.price}"
        paragraphs = (note, f"From {self.usage.source}.", self._table(), self._kinds_table(), self._curve_text())
        return "\n\n".join((*paragraphs, self._summary(), self._chip_note()))

    def _table(self) -> str:
        rows = [self._row(c, (c.macs, c.synapses, c.accumulates)) for c in self.parts]
        return table(rows, ("component, paper", "per", "MACs", "on spikes", "accumulates", "nJ", "nJ as ANN", "share"))

    def _kinds_table(self) -> str:
        rows = [
            self.deployed._row(c, (*dataclasses.astuple(c.operations)[:3], c.accumulates, c.operations.float64))
            for c in self.parts
        ]
        kinds = ("8-bit MACs", "16-bit", "32-bit", "accumulates", "float64")
        return table(rows, ("component, deployed", "per", *kinds, "nJ", "nJ as ANN", "share"))

    def _row(self, part: Component, counts: Sequence[float]) -> tuple[str, ...]:
        """Name, counts, costs and share of a component."""
        energy, n = part.energy(self.price), 1.0 if part.once else self.usage.taken.observations
        costs = [f"{value / 1e3:.2f}" for value in (energy, part.dense_energy(self.price))]
        share = f"{100 * energy * n / self.at_exit:.1f}%"
        return (part.name, "cloud" if part.once else "observation", *(f"{n:.0f}" for n in counts), *costs, share)

    def _curve_text(self) -> str:
        curves = (self.curve, self.dense_curve, self.deployed.curve, self.deployed.dense_curve)
        rows = [(k, *(f"{pj / 1e6:.3f}" for pj in at)) for k, at in enumerate(zip(*curves, strict=True), start=1)]
        return table(rows, ("observations", "uJ, paper", "as ANN", "uJ, deployed", "as ANN"))

    def _summary(self) -> str:
        taken, other = self.usage.taken, self.deployed._headlines()
        rates = ", ".join(f"{100.0 * rate:.1f} %" for rate in taken.rates)
        said = f"{taken.observations:.2f} of {self.model.budget} observations are taken on average; "
        said += f"firing rate, by layer: {rates}; lambda {self.phase.rate:.3f}, lambda0 {self.phase.fixed_rate:.3f}."
        rows = [(name, value, other[name]) for name, value in self._headlines().items()]
        return f"{said}\n\n{table(rows, ('estimate', 'paper', 'deployed'))}"

    def _headlines(self) -> dict[str, str]:
        phase, prefix, ratios = self.phase, self.prefix_phase, self.ratios
        whole = self.at_exit - self.float64_at_exit
        rows = {
            "energy at the exit": f"{self.at_exit / 1e6:.3f} uJ a cloud",
            "  of it products + float64 by elements": f"{whole / 1e6:.3f} + {self.float64_at_exit / 1e6:.3f} uJ",
            "whole budget": f"{self.curve[-1] / 1e6:.3f} uJ a cloud",
            "whole budget, fixed order without policy": f"{self.fixed_order / 1e6:.3f} uJ a cloud",
            "head ratio (ANN / spiking)": f"{ratios['head']:.2f}x",
            "  its layers on spikes": f"{ratios['spiking_layers']:.1f}x",
            "system ratio (ANN at budget / this at its exit)": f"{ratios['system']:.2f}x",
            "  of products alone": f"{ratios['system_products']:.2f}x",
            "  of which by spikes (as many observations)": f"{ratios['same_observations']:.3f}x",
            "phase: a, r": f"{phase.a:.1f}, {phase.overhead:.2f}",
            "phase: phi, phi*": _verdict(phase),
        }
        return rows if prefix is None else {**rows, "  without carried state": _verdict(prefix)}

    def _chip_note(self) -> str:
        watt = self.prices.values["loihi2"]["static_watt"]
        return (
            "On a chip (estimate): nobody has published a price per operation for Loihi 2. At the pre-silicon figures\n"
            f"of Loihi 1 the head takes {self.on_loihi1 / 1e3:.0f} nJ an observation; the static power of one Loihi 2\n"
            f"chip, {watt:g} W, is as much in {self.on_loihi1 * 1e-6 / watt:.2f} us, and dominates a small head."
        )


def _ratio(parts: Sequence[Component], price: Price | IntegerPrice) -> float:
    return sum(c.dense_energy(price) for c in parts) / sum(c.energy(price) for c in parts)


def _verdict(phase: Phase) -> str:
    saves = "saves" if phase.wins else "does not save"
    return f"{phase.fraction:.3f}, {phase.boundary():.3f}: {saves} energy (kappa {phase.kappa:.2f})"
