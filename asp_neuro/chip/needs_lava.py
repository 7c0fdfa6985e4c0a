"""Imported first by modules that need Lava to be imported at all: says what to install where it is missing."""

from asp_neuro.libraries import demand

demand("lava.magma", "the Lava side of a session (asp_neuro.chip)")
