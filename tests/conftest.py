"""What every test can use: the command line in this process (`cli`) and in a fresh one (`shell`)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from loihi2_place import place  # noqa: F401  a fixture for all

from asp_neuro.libraries import is_there

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job ignores it, and so would its children
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("MPLBACKEND", "Agg")

# Other work on the machine must not fail a property: no deadline. Every run tries the same examples.
settings.register_profile("asp", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("asp")


# What not every environment has. A test says with a marker that it needs it; where it is missing, tests are skipped
# here and nowhere else, so such libraries are imported within the tests.
NEEDED_BY_MARKER = {"lava": "lava.magma", "rivals": "fpsample"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for marker, module in NEEDED_BY_MARKER.items():
        if not is_there(module):
            skip = pytest.mark.skip(reason=f"{marker}: {module} is not installed")
            for item in items:
                if item.get_closest_marker(marker) is not None:
                    item.add_marker(skip)


@dataclass(frozen=True)
class Said:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """stdout, which must be one JSON object and nothing else."""
        assert self.out.endswith("\n"), self
        assert self.out.count("\n") == 1, self
        return json.loads(self.out)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Chunks are cached in a folder of this test run, shared by its workers, and never in the user's home."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASP_NEURO_CACHE", str(folder))
        yield


@pytest.fixture
def cli(capsys):
    """`cli("doctor", "--json")`: the command line within this process; `verbs=` replaces its table."""

    def call(*words: str, **keywords: Any) -> Said:
        from asp_neuro.cli.main import main

        capsys.readouterr()
        try:
            code = main(list(words), **keywords)
        except SystemExit as end:  # argparse's --help and --version
            code = end.code
        return Said(code, *capsys.readouterr())

    return call


@pytest.fixture
def shell(tmp_path):
    """`shell("doctor")`: the command line in a fresh interpreter and an empty folder."""

    def call(*words: str, env: dict[str, str] | None = None, timeout: float = 120.0) -> Said:
        done = subprocess.run(
            [sys.executable, "-m", "asp_neuro", *words],
            cwd=tmp_path,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        return Said(done.returncode, done.stdout, done.stderr)

    return call
