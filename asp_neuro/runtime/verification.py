"""Is the deployed network the trained one? Golden vectors, random heads and real clouds through every engine.

Each comparison is an equality: spikes and membranes of every layer at every observation, and answers (class, chunk
order, number of observations, exit, last membrane, margins, probabilities).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from asp_neuro.bundle import Bundle, host_drives_now
from asp_neuro.heads.membrane import LEAK_MAX
from asp_neuro.heads.soft.layer import LayerSpec
from asp_neuro.heads.soft.membrane import align_shift
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.look import Answer, Look
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.runtime.machine import FAST, Machine, RunHead

N_RANDOM = 3
COMPARED = ("drives", "spikes", "membranes", "answers", "orders", "exits")
LOOKED = ("scores", "drive_int", "membrane", "place", "belief", "logits", "margin", "label")
ANSWERED = ("order", "observations", "exit", "label", "labels", "membrane", "margins", "probability", "probabilities")
WORDS = {"membrane": "last membrane", "margins": "margin"}


@dataclass
class Findings:
    """What was compared and what differed."""

    compared: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COMPARED, 0))
    mismatches: int = 0
    engines: list[str] = field(default_factory=list)
    first: dict[str, Any] | None = None

    def note(self, n_wrong: int, where: dict[str, Any]) -> None:
        self.mismatches += n_wrong
        if self.first is None:
            self.first = where

    def took(self, engine: str) -> None:
        if engine not in self.engines:
            self.engines.append(engine)


def compare_heads(
    findings: Findings,
    place: str,
    spec: HeadSpec,
    drives_int: np.ndarray,
    expected: tuple[np.ndarray, np.ndarray],
    engines: Mapping[str, RunHead],
) -> None:
    """Run drives through engines and hold every membrane and spike [T, L, b, H] against the expected ones."""
    for name, engine in engines.items():
        findings.took(name)
        for kind, wanted, found in zip(("membranes", "spikes"), expected, engine(spec, drives_int), strict=True):
            findings.compared[kind] += wanted.size
            wrong = np.argwhere(wanted != found)
            if len(wrong):
                step, layer, cloud, neuron = (int(i) for i in wrong[0])
                where = {
                    "engine": name,
                    "where": place,
                    "what": kind,
                    "cloud": cloud,
                    "step": step + 1,
                    "layer": layer + 1,
                    "neuron": neuron,
                    "expected": int(wanted[step, layer, cloud, neuron]),
                    "found": int(found[step, layer, cloud, neuron]),
                }
                findings.note(len(wrong), where)


def compare_host(findings: Findings, bundle: Bundle) -> None:
    """The host on this machine against the drives that were recorded at export."""
    findings.took("host")
    expected, found = bundle.golden.host_drives_int, host_drives_now(bundle)
    findings.compared["drives"] += expected.size
    wrong = np.argwhere(expected != found)
    if len(wrong):
        step, cloud, channel = (int(i) for i in wrong[0])
        values = {"expected": int(expected[step, cloud, channel]), "found": int(found[step, cloud, channel])}
        place = {"engine": "host", "where": "golden clouds", "what": "drives", "cloud": cloud, "step": step + 1}
        findings.note(len(wrong), {**place, "channel": channel, **values})


def compare_looks(findings: Findings, name: str, ids: list[str], expected: list[Look], found: list[Look]) -> None:
    """The whole episodes of a machine with a host of its own, look by look: drives, membranes, places, beliefs, ..."""
    findings.took(name)
    for ours, theirs in zip(expected, found, strict=True):
        findings.compared["drives"] += ours.drive_int.size
        findings.compared["membranes"] += ours.membrane.size
        for what in LOOKED:
            one, other = getattr(ours, what), getattr(theirs, what)
            if one is None or other is None:  # not told
                continue
            wrong = np.argwhere(one != other)
            if len(wrong):
                at = tuple(int(i) for i in wrong[0])
                here = {"engine": name, "where": "clouds", "what": what, "cloud": ids[at[0]], "step": ours.t}
                findings.note(len(wrong), {**here, "expected": one[at].item(), "found": other[at].item()})


def compare_answers(findings: Findings, name: str, ids: list[str], expected: list[Answer], found: list[Answer]) -> None:
    """Answers of one engine against those of another, scene by scene: every printed number, bit for bit."""
    findings.took(name)
    for scene, ours, theirs in zip(ids, expected, found, strict=True):
        findings.compared["answers"] += 1
        findings.compared["orders"] += 1
        findings.compared["exits"] += 1
        for what in ANSWERED:
            one, other = getattr(ours, what), getattr(theirs, what)
            if not np.array_equal(np.asarray(one), np.asarray(other)):
                here = {"engine": name, "where": "clouds", "what": WORDS.get(what, what), "cloud": scene}
                findings.note(1, {**here, **_first_apart(one, other, ours.observations)})
                break


def _first_apart(one: Any, other: Any, step: int) -> dict[str, Any]:
    """Where two values of an answer differ first."""
    mine, theirs = np.asarray(one), np.asarray(other)
    if mine.dtype.kind not in "iuf" or mine.shape != theirs.shape or mine.ndim != 1:
        return {"expected": str(one), "found": str(other)}
    at = int(np.flatnonzero(mine != theirs)[0])
    return {"step": step, "place": at, "expected": mine[at].item(), "found": theirs[at].item()}


def random_heads(seed: int, n: int) -> list[tuple[HeadSpec, np.ndarray]]:
    """Small heads of one to three layers with drives that make them fire, some near their thresholds."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(n):
        n_inputs, n_neurons, n_layers = int(rng.integers(3, 12)), int(rng.integers(3, 12)), 1 + number % 3
        layers = [_random_layer(rng, n_neurons if i else n_inputs, n_neurons, i == 0) for i in range(n_layers)]
        made.append((HeadSpec(tuple(layers)), rng.integers(-300, 301, (12, 2, n_inputs))))
    return made


def _random_layer(rng: np.random.Generator, n_inputs: int, n_neurons: int, first: bool) -> LayerSpec:
    weight = 2 * rng.integers(-128, 128, (n_neurons, n_inputs))
    bits = int(rng.integers(12, 15))
    spread = np.sqrt(n_inputs) * 74.0 * (150.0 if first else 0.5) * 2.0 ** align_shift(bits, first_layer=first)
    theta = np.rint(rng.uniform(0.3, 1.2, n_neurons) * spread).astype(np.int64)
    return LayerSpec(
        weight_int=weight,
        bias_int=np.rint(rng.normal(0.0, 0.1, n_neurons) * spread).astype(np.int64),
        lambda_int=rng.integers(0, LEAK_MAX + 1, n_neurons),
        theta_int=theta,
        theta_fire_int=np.floor(theta * rng.uniform(0.7, 1.3, n_neurons)).astype(np.int64),
        factor=np.ones(n_neurons),
        state_bits=bits,
    )


def verify(
    bundle: Bundle,
    scenes: Any | None,
    ids: list[str],
    rule: ExitRule,
    machines: Mapping[str, Machine] = MappingProxyType({"fast": FAST}),
    seed: int = 0,
) -> Findings:
    """Everything `asp-neuro verify` compares; `machines` are held against the reference by the names given."""
    findings = Findings(engines=["reference"])
    heads = {name: machine.run_head for name, machine in machines.items() if machine.run_head is not None}
    anyones = {name: heads[name] for name, machine in machines.items() if name in heads and machine.any_head}
    golden = bundle.golden
    drives = golden.drives_int.astype(np.int64)
    expected = (golden.membranes.astype(np.int64), golden.spikes.astype(np.int64))
    again = {"reference": lambda spec, d: spec.reference(d)[:2]}
    compare_host(findings, bundle)
    compare_heads(findings, "golden vectors", bundle.head, drives, expected, {**again, **heads})
    for number, (spec, random_drives) in enumerate(random_heads(seed, N_RANDOM), start=1):
        wanted = spec.reference(random_drives)[:2]
        compare_heads(findings, f"random head {number}", spec, random_drives, wanted, anyones)
    if scenes is not None and len(scenes):
        _verify_scenes(findings, bundle, scenes, ids, rule, machines, heads)
    return findings


def _verify_scenes(
    findings: Findings,
    bundle: Bundle,
    scenes: Any,
    ids: list[str],
    rule: ExitRule,
    machines: Mapping[str, Machine],
    heads: Mapping[str, RunHead],
) -> None:
    perceiver = Perceiver(bundle.model, rule)
    drives = perceiver.drives(scenes)
    expected = bundle.head.reference(drives)[:2]
    compare_heads(findings, "clouds", bundle.head, drives, expected, heads)
    whole = perceiver.answers(scenes)
    singly = [perceiver.answers(scenes[i : i + 1])[0] for i in range(len(scenes))]
    compare_answers(findings, "fast (one by one)", ids, whole, singly)
    for name, machine in machines.items():
        some, names = scenes[: machine.at_most], ids[: machine.at_most]
        if machine.looks is not None:
            looks = perceiver.played(some, ExitRule()).looks
            compare_looks(findings, name, names, looks, machine.looks(perceiver, some))
        if machine.answers is not None and machine is not FAST:
            answers = machine.answers(perceiver, some, rule, len(some), lambda index, answer: None)
            compare_answers(findings, name, names, whole[: machine.at_most], answers)


def text(findings: Findings) -> str:
    """For people."""
    counts = ", ".join(f"{n:,} {what}" for what, n in findings.compared.items())
    engines = ", ".join(findings.engines)
    if not findings.mismatches:
        return f"no difference in {counts}\nengines: {engines}"
    where = ", ".join(f"{key} {value}" for key, value in (findings.first or {}).items() if value is not None)
    return f"{findings.mismatches} differences in {counts}\nengines: {engines}\nfirst: {where}"
