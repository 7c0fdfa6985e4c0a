"""A machine with a stand-in for Intel's extension (tests/stand_in), for tests of `--backend=loihi2`."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

STAND_IN = Path(__file__).parent / "stand_in"
VARIABLES = ("PARTITION", "BOARD", "NXSDKHOST", "NOSLURM", "SLURM", "LOIHI_GEN", "HOST_BINARY")
HEADER = "NODELIST   NODES PARTITION STATE"
FIRST_DOWN = ("ncl-og-01 1 oheogulch* down", "ncl-og-02 1 oheogulch* idle", "ncl-kp-01 1 kp alloc")


@pytest.fixture
def place(monkeypatch, tmp_path):
    """A machine with nothing but the stand-in: `place.sinfo(rows)` adds Slurm, `place.without(name)` takes a file."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    programs, extension = tmp_path / "bin", tmp_path / "extension"
    programs.mkdir()
    shutil.copytree(STAND_IN, extension)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.syspath_prepend(extension)
    return Place(programs, extension)


@dataclasses.dataclass
class Place:
    programs: Path
    extension: Path

    def program(self, name: str, script: str) -> None:
        (self.programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.programs / name).chmod(0o755)

    def sinfo(self, *rows: str, end: str = "\n") -> None:
        """A sinfo that prints these rows, whatever it is asked."""
        self.program("sinfo", "/bin/cat <<'EOF'\n" + "\n".join([HEADER, *rows]) + end + "EOF")

    def without(self, *names: str) -> None:
        for name in names:
            target = self.extension / name
            shutil.rmtree(target) if target.is_dir() else target.unlink()

    def offers(self, *models: str) -> None:
        """Packages that offer these models; the stand-in's own offer is withdrawn."""
        for old in self.extension.glob("*.dist-info"):
            shutil.rmtree(old)
        for number, model in enumerate(models):
            info = self.extension / f"offer_{number}-0.1.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: offer-{number}\nVersion: 0.1\n")
            (info / "entry_points.txt").write_text(f"[asp_neuro.loihi2_models]\nSoftLIF = {model}\n")
