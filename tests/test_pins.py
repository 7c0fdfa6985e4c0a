"""Answers, orders, membranes, margins and verdicts of the shipped bundles, pinned: a change of structure changes none.

`python tests/test_pins.py` writes the pins anew, after a change that is meant to change them (raise `grid.ARITHMETIC`).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from asp_neuro.bundle import shipped
from asp_neuro.data import load_clouds
from asp_neuro.data.image_places import load_images
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.look import Answer
from asp_neuro.runtime.deployment import exit_rule, open_bundle
from asp_neuro.scenes.image import Gaze

PINS = Path(__file__).with_name("pins.json")
EVERY = 8  # built-in test shape or image: models of all data sets look at them, whatever they take them for


def told(name: str, certified: bool) -> list[Answer]:
    deployed = open_bundle(name)
    perceiver = deployed.perceiver
    if isinstance(deployed.settings, Gaze):
        some = load_images("strokes", "test", replace(deployed.settings, channels=1))
        if deployed.settings.channels == 3:
            some = replace(some, pixels=np.repeat(some.pixels[..., None], 3, axis=3), redraw=None)
    else:
        some = load_clouds("shapes", "test", n_points=deployed.chunking.n_points)
    some = some.subset(range(0, len(some), EVERY))
    rule = exit_rule(deployed)[0] if certified else ExitRule()
    return perceiver.answers(perceiver.scenes(some.inputs, some.names), rule)


def digests(answers: list[Answer]) -> dict[str, str]:
    parts = {
        "labels": [a.labels for a in answers],
        "orders": [a.order for a in answers],
        "membranes": [a.membrane.tolist() for a in answers],
        "margins": [[m.hex() for m in a.margins] for a in answers],
        "probabilities": [[p.hex() for p in a.probabilities.tolist()] for a in answers],
        "exits": [a.exit.value for a in answers],
        "verdicts": [[a.verdict.preserved, a.verdict.step, a.verdict.decision] for a in answers],
    }
    return {what: hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16] for what, value in parts.items()}


def pins_now() -> dict[str, dict[str, dict[str, str]]]:
    return {
        name: {"budget": digests(told(name, False)), "exit": digests(told(name, True))} for name in sorted(shipped())
    }


@pytest.mark.parametrize("where", ["budget", "exit"])
@pytest.mark.parametrize("name", sorted(shipped()))
def test_a_shipped_bundle_answers_as_it_was_pinned(name, where):
    pinned = json.loads(PINS.read_text())
    assert digests(told(name, where == "exit")) == pinned[name][where]


def test_every_shipped_bundle_is_pinned():
    assert set(json.loads(PINS.read_text())) == set(shipped())


def test_a_pin_sees_one_bit():
    (answer,) = told("compact", False)[:1]
    other = replace(answer, margins=(*answer.margins[:-1], float(np.nextafter(answer.margins[-1], 1.0))))
    apart = [what for what, pin in digests([answer]).items() if digests([other])[what] != pin]
    assert apart == ["margins"]


if __name__ == "__main__":
    PINS.write_text(json.dumps(pins_now(), indent=1) + "\n")
