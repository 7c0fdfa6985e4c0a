"""`--backend NAME` -> the machine; Lava is imported only for its own."""

from __future__ import annotations

from asp_neuro.cli.verbs.base import BACKENDS
from asp_neuro.errors import UsageError, nearest
from asp_neuro.runtime.machine import FAST, Machine


def machine(name: str) -> Machine:
    """The machine of a backend."""
    if name == "fast":
        return FAST
    if name not in BACKENDS:
        raise UsageError(f"unknown backend '{name}'{nearest(name, BACKENDS)}")
    from asp_neuro.chip import machines

    return {"sim": machines.SIMULATOR, "loihi2": machines.LOIHI2}[name]
