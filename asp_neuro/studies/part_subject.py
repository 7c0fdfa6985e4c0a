"""The one bundle of parts that a study reads, and the clouds that it is asked about."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from asp_neuro import files
from asp_neuro.errors import UsageError
from asp_neuro.report import say
from asp_neuro.runtime import deployment
from asp_neuro.runtime.part_samples import PartSamples, samples_of


def opened(
    models: Sequence[str | Path], data: str | None, up: str | None, split: str, limit: int | None, out: Path
) -> tuple[deployment.Deployed, PartSamples]:
    """Both of them; makes the folder `out`, and says so where the test split is read."""
    if len(models) != 1:
        raise UsageError("a study of parts reads one bundle")
    deployed = deployment.open_bundle(models[0])
    samples = samples_of(deployed, data, split, up, limit)
    if split == "test":
        say(f"this reads the test split ({len(samples)} clouds of {samples.source}); log it, with what for")
    files.make_folder(out)
    return deployed, samples
