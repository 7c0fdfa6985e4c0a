"""Stands for the embedded I/O of the extension."""

from lava.proc.embedded_io import spike, state

__all__ = ["spike", "state"]
