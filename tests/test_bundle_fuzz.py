"""Thousands of damaged and forged bundles, read in child processes: each is refused in one line, or is a bundle."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from test_bundle import make, model_sha256, promises, with_certificate, write

SCRIPT = Path(__file__).with_name("bundle_mutants.py")
SECONDS = 300  # for a child on a busy machine; one that hangs is ended by its own alarm


def read_mutants(folder: Path, first: int, end: int) -> dict:
    """What became of mutants first..end-1; a crash, a hang or a traceback fails the test and names the mutant."""
    plain = make()
    good = folder / f"good-{first}.net"
    write(good, with_certificate(plain, *promises(model_sha256(plain))))
    done = subprocess.run(
        [sys.executable, SCRIPT, good, str(first), str(end)], capture_output=True, text=True, timeout=SECONDS
    )
    last = done.stdout.splitlines()[-1:]
    assert done.returncode == 0, f"mutant {last}: exit {done.returncode}\n{done.stderr[-2000:]}"
    assert done.stderr == ""
    return json.loads(last[0])


def tally(found: list[dict]) -> dict[str, tuple[int, int]]:
    """Kind -> refused, valid."""
    total: dict[str, tuple[int, int]] = {}
    for part in found:
        for kind, (refused, valid) in part["counts"].items():
            before = total.get(kind, (0, 0))
            total[kind] = (before[0] + refused, before[1] + valid)
    return total


def test_two_hundred_mutants(tmp_path):
    counts = tally([read_mutants(tmp_path, 0, 200)])
    assert sum(map(sum, counts.values())) == 200
    assert sum(counts["raw"]) == 100
    assert sum(refused for refused, _ in counts.values()) > 150


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(4))
def test_two_thousand_mutants_in_batches(tmp_path, batch):
    counts = tally([read_mutants(tmp_path, 1000 * (batch + 1), 1000 * (batch + 1) + 500)])
    assert sum(map(sum, counts.values())) == 500
    assert sum(counts["raw"]) == 250  # the other half has hashes that fit: the parser itself is reached
    assert len(counts) > 15  # kinds


@pytest.mark.soak
@pytest.mark.parametrize("batch", range(40))
def test_forty_thousand_mutants(tmp_path, batch):
    read_mutants(tmp_path, 1_000_000 + 1000 * batch, 1_000_000 + 1000 * (batch + 1))


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        ("raise KeyError('planted')", "KeyError: 'planted'"),
        ("import os; os.abort()", "exit -6"),
        ("import signal; signal.alarm(1); exec('while True: pass')", "exit -14"),
        ("bytearray(4 * 2**30)", "MemoryError"),
    ],
)
def test_the_harness_sees_tracebacks_crashes_hangs_and_large_allocations(tmp_path, monkeypatch, planted, said):
    child = tmp_path / "planted.py"
    text = SCRIPT.read_text().replace("        found = bundle.read(path)\n", f"        {planted}\n", 1)
    unplanted = text.replace("    attempt(Path(good_path))\n", "", 1)
    child.write_text(unplanted)
    monkeypatch.setattr(sys.modules[__name__], "SCRIPT", child)
    with pytest.raises(AssertionError, match=said):
        read_mutants(tmp_path, 0, 4)
