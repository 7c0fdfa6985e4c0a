"""Models that fail on purpose: tests show with them that a session ends well whatever happens.

`ASP_NEURO_FAULT="PySoftLIFFixed:before send:3"` (model, place, time step) is read by the Lava side of a session and
by nothing else. Places: `constructor`, `before receive`, `before send`, `after send` raise; `kill` ends the model's
process by a signal, `hang` stops it for ever.
"""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Callable
from typing import Any

VARIABLE = "ASP_NEURO_FAULT"


def plant_fault(builder_class: Any) -> None:
    """Plant the fault that the environment asks for into the models that Lava's builder makes; usually none."""
    if VARIABLE not in os.environ:
        return
    name, place, step = os.environ[VARIABLE].split(":")
    build = builder_class.build

    @functools.wraps(build)
    def build_to_fail(builder: Any) -> Any:
        model = build(builder)
        if type(model).__name__ == name:
            if place == "constructor":
                raise RuntimeError("planted: constructor")
            _spoil(model, place, int(step))
        return model

    builder_class.build = build_to_fail


def _spoil(model: Any, place: str, step: int) -> None:
    """Replace ports and step of one model so that it fails at a place in a time step."""
    original_step, received = model.run_spk, [False]

    def run_and_fail() -> None:
        received[0] = False
        original_step()
        if model.time_step == step and place == "after send":
            _fail(place)

    def spoil_port(port: Any, method: str, fails: Callable[[], bool]) -> None:
        original = getattr(port, method)

        def call(*data: object) -> Any:
            if model.time_step == step and fails():
                _fail(place)
            received[0] |= method == "recv"
            return original(*data)

        setattr(port, method, call)

    model.run_spk = run_and_fail
    for port in model.py_ports:
        if hasattr(port, "recv"):
            spoil_port(port, "recv", lambda: place in ("before receive", "kill", "hang"))
        elif hasattr(port, "send"):
            spoil_port(port, "send", lambda: place == "before send" and received[0])


def _fail(place: str) -> None:
    if place == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if place == "hang":
        time.sleep(1e6)
    raise RuntimeError(f"planted: {place}")
