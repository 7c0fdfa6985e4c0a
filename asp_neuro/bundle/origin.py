"""Where a model comes from, as far as it concerns its owner: own data, and calibration clouds that have been used.

It stands outside the model's hash: the same network trained in another folder is the same network.
"""

from __future__ import annotations

from dataclasses import dataclass

from asp_neuro import plain
from asp_neuro.certify.used import Used
from asp_neuro.data.own import OwnData
from asp_neuro.errors import ConfigError


@dataclass(frozen=True)
class Origin:
    own: OwnData | None = plain.later(None)
    used: tuple[Used, ...] = plain.later(())


def read_origin(stored: object) -> Origin:
    """From a bundle's JSON; nothing stored: nothing known."""
    return Origin() if stored is None else plain.read(Origin, stored, "origin", ConfigError)
