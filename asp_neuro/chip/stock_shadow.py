"""A shadow of a free-running head on the host: it runs on the same drives, brings the guard, and compares each reading.

A machine that computes something else is noticed at the first wrong membrane, and `Differs` names what it looks like:
each explanation is the same network with one thing done wrong, run again on the same drives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from asp_neuro.errors import AspError
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.heads.stock.membrane import CONSTANT, TOP, step_int

LEAKS_OFF = (1, -1, 2, -2, 4, -4, 8, -8, 16, -16, 64, -64)  # leaks that are tried where a stream differs
SHOWN = 4  # numbers of a stream in an error's text


class Differs(AspError):
    """A machine's membranes are not those of the engines."""

    kind = "loihi2 arithmetic"
    exit_code = 1


class TooLate(AspError):
    """The way to the chip and back takes longer than an observation has time steps."""

    kind = "loihi2 latency"
    exit_code = 4

    def __init__(self, latency: int | str, head: HeadSpec | None = None) -> None:
        if head is None:  # the text itself, as it came from another process
            super().__init__(str(latency))
            return
        needed = int(latency) + head.read_after
        super().__init__(
            f"the way to the chip and back takes {latency} time steps: an observation needs {needed}, this bundle has "
            f"{head.steps}; export it again with --steps {needed} or more"
        )


Beats = list[np.ndarray | None]  # what reaches layer 1 in each time step: a message [n + 1], or None


def message(drive: np.ndarray) -> np.ndarray:
    """A drive [n] with the constant behind it."""
    return np.append(drive, CONSTANT).astype(np.int64)


def beats(head: HeadSpec, drives: list[np.ndarray]) -> Beats:
    """A pulse for each drive, and the silence behind it."""
    return [beat for drive in drives for beat in (message(drive), *[None] * (head.steps - 1))]


def stream(head: HeadSpec, heard: Beats, hard_reset: bool = False, no_reset: bool = False) -> np.ndarray:
    """The last layer's membranes in every time step, [len(heard), H], from rest; on wish done wrong."""
    width = head.layers[0].n_neurons
    held = [np.zeros(width, dtype=np.int64) for _ in head.layers]
    fired = list(held)
    told = []
    silence = np.zeros(head.n_inputs + 1, dtype=np.int64)
    for beat in heard:
        before = list(fired)
        for index, layer in enumerate(head.layers):
            z = before[index - 1] if index else silence if beat is None else beat
            taken = np.zeros_like(before[index]) if no_reset else before[index]
            held[index], fired[index], _ = step_int(
                held[index], taken, z @ layer.weight_int.T, layer.lambda_int, layer.rho_int, layer.threshold_int,
                layer.weight_exp,
            )  # fmt: skip
            if hard_reset:
                held[index] = np.where(fired[index], 0, held[index])
        told.append(held[-1])
    return np.array(told)


def other_heads(head: HeadSpec) -> Iterator[tuple[str, HeadSpec]]:
    """The same network with another leak, in all layers or in one."""
    for off in LEAKS_OFF:
        leaks = [layer.lambda_int + off for layer in head.layers]
        if all(0 <= leak < 4096 for leak in leaks):
            layers = tuple(replace(layer, lambda_int=leak) for layer, leak in zip(head.layers, leaks, strict=True))
            yield (
                f"every layer leaks by {abs(off)} of 4096 {'less' if off > 0 else 'more'}",
                replace(head, layers=layers),
            )
    for number, layer in enumerate(head.layers, start=1):
        for off in LEAKS_OFF:
            leak = layer.lambda_int + off
            if 0 <= leak < 4096:
                layers = (*head.layers[: number - 1], replace(layer, lambda_int=leak), *head.layers[number:])
                text = f"layer {number} leaks by {leak} instead of {layer.lambda_int} of 4096"
                yield text, replace(head, layers=layers)


def explain_stream(head: HeadSpec, heard: Beats, found: np.ndarray) -> str:
    """What the stream [K, H] after a golden pulse looks like; '' if nothing known explains it."""
    turned = [None if beat is None else -beat for beat in heard]
    wrong: list[tuple[str, Callable[[], np.ndarray]]] = [
        ("the sign of what is read is lost or turned", lambda: -stream(head, heard)),
        ("the sign of the drive is turned", lambda: stream(head, turned)),
        ("a spike puts u back to 0: the neurons reset hard", lambda: stream(head, heard, hard_reset=True)),
        ("a spike takes nothing: the self-synapse does not work", lambda: stream(head, heard, no_reset=True)),
        *((text, partial(stream, other, heard)) for text, other in other_heads(head)),
    ]
    if not found.any():
        return "nothing arrives, every membrane stays 0"
    return next((text for text, make in wrong if lag(make(), found) is not None), "")


def lag(expected: np.ndarray, found: np.ndarray) -> int | None:
    """By how many time steps `found` [K, H] lags behind `expected` [T, H], if it is the same from its start on."""
    moved = found.any(axis=1).nonzero()[0]
    first = expected.any(axis=1).nonzero()[0]
    if not moved.size or not first.size:
        return None
    shift = int(moved[0] - first[0])
    n_common = min(len(expected), len(found) - shift)
    if shift < 0 or n_common <= first[0] + 1:
        return None
    return shift if np.array_equal(found[shift : shift + n_common], expected[:n_common]) else None


class Golden:
    """The golden pulse: a known drive from rest, whose stream tells latency and arithmetic."""

    def __init__(self, head: HeadSpec, drive_bound: np.ndarray | None, longest: int, seed: int = 0) -> None:
        self.head = head
        self.drive = golden_drive(head, drive_bound, seed)
        self.heard: Beats = [message(self.drive), *[None] * (head.steps + longest)]
        self.expected = stream(head, self.heard)
        self.length = len(self.expected)  # of a recording

    def latency(self, found: np.ndarray) -> int:
        """Time steps from sending to layer 1's first membrane, as they are read; refuses a stream that never fits."""
        shift = lag(self.expected, found)
        if shift is None:
            raise Differs(self._told(found))
        return shift

    def fits(self, found: np.ndarray, latency: int) -> bool:
        """Whether a recording shows the pulse from rest, at a latency that is known."""
        n_common = min(len(self.expected), len(found) - latency)
        return np.array_equal(found[latency : latency + n_common], self.expected[:n_common])

    def _told(self, found: np.ndarray) -> str:
        why = explain_stream(self.head, self.heard, found)
        start = int(np.argmax(self.expected.any(axis=1)))
        came = found.any(axis=1).nonzero()[0]
        begin = int(came[0]) if came.size else 0
        neuron = int(np.argmax(np.abs(self.expected[start : start + self.head.steps]).max(axis=0)))
        lines = [
            f"golden pulse: the chip computes something else{f': {why}' if why else ''}. Nothing was answered",
            f"expected of neuron {neuron}: {_numbers(self.expected[start:, neuron])}",
            f"read:                  {_numbers(found[begin:, neuron])} (from step {begin} after the pulse)",
        ]
        return "\n".join(lines)


def _numbers(values: np.ndarray) -> str:
    return " ".join(str(int(value)) for value in values[: 4 * SHOWN])


def golden_drive(head: HeadSpec, drive_bound: np.ndarray | None, seed: int = 0) -> np.ndarray:
    """[n] int64: of some random drives the one that makes most neurons of the last layer fire."""
    rng = np.random.default_rng(seed)
    bound = np.full(head.n_inputs, 32.0) if drive_bound is None else np.asarray(drive_bound)
    tried = []
    for size in (0.15, 0.3, 0.6, 1.0):
        drive = np.rint(rng.uniform(-size, size, (8, head.n_inputs)) * bound).astype(np.int64)
        tried += list(drive)
    return max(tried, key=lambda drive: _liveliness(head, drive))


def _liveliness(head: HeadSpec, drive: np.ndarray) -> tuple[bool, int]:
    told = stream(head, beats(head, [drive, np.zeros_like(drive)]))
    last = head.layers[-1]
    return bool(np.abs(told).max() < TOP), int((told > last.threshold_int).any(axis=0).sum())


class Shadow:
    """Runs beside a machine: `start` for a new scene, `observe` before a drive goes out, `compare` when it is read."""

    def __init__(self, head: HeadSpec, n_steps: int, drive_bound: np.ndarray | None) -> None:
        self.head = head
        self.engine: Any = head.engine(drive_bound, n_steps)
        self.n_scenes = 0
        self.drives: list[np.ndarray] = []
        self.drives_before: list[np.ndarray] = []

    def start(self) -> None:
        self.engine.start(1)
        self.n_scenes += 1
        self.drives_before, self.drives = self.drives, []

    def observe(self, drive_int: np.ndarray) -> None:
        """A drive [n] that is about to be sent."""
        self.drives.append(np.asarray(drive_int).astype(np.int64))
        self.expected = self.engine.observe(np.asarray(drive_int, dtype=np.float64)[None])[0]

    @property
    def hit(self) -> np.ndarray:
        return np.asarray(self.engine.hit)

    def compare(self, found: np.ndarray) -> None:
        """Refuse a reading [H] that is not the engine's."""
        wrong = np.flatnonzero(found != self.expected)
        if not wrong.size:
            return
        first = int(wrong[0])
        expected, read = int(self.expected[first]), int(found[first])
        raise Differs(
            f"scene {self.n_scenes}, observation {len(self.drives)}: {wrong.size} of {found.size} membranes are not "
            f"those of the shadow engine, first neuron {first}: expected {expected}, read {read}{self._why(found)}"
        )

    def _why(self, found: np.ndarray) -> str:
        head, train = self.head, beats(self.head, self.drives)
        read = (len(self.drives) - 1) * head.steps + head.read_after
        at = (len(self.drives) - 1) * head.steps
        lost, turned = list(train), list(train)
        lost[at], turned[at] = None, -message(self.drives[-1])
        wrong: list[tuple[str, Callable[[], np.ndarray]]] = [
            ("the sign of what is read is lost or turned", lambda: -self.expected),
            ("the drive did not arrive", lambda: stream(head, lost)[read]),
            ("the sign of the drive is turned", lambda: stream(head, turned)[read]),
            ("the neurons reset hard", lambda: stream(head, train, hard_reset=True)[read]),
            *((text, partial(_last, other, train, read)) for text, other in other_heads(head)),
        ]
        said = next((text for text, make in wrong if np.array_equal(make(), found)), "")
        if not said and self._looks_unreset(found, read):
            said = "the reset before this scene was missed"
        return f"; it looks as if {said}" if said else ""

    def _looks_unreset(self, found: np.ndarray, read: int) -> bool:
        """Whether the reading is that of a head that ran on from the scene before, some time steps between them."""
        before, train = beats(self.head, self.drives_before), beats(self.head, self.drives)
        pauses = range(2 * self.head.steps if before else 0)
        told = (stream(self.head, [*before, *[None] * n, *train])[len(before) + n + read] for n in pauses)
        return any(np.array_equal(one, found) for one in told)


def _last(head: HeadSpec, heard: Beats, read: int) -> np.ndarray:
    return np.asarray(stream(head, heard)[read])
