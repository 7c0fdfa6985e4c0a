"""What an install may lack: the core works without it, and what needs it says so, with the command that brings it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from asp_neuro import bundle, libraries
from asp_neuro.errors import MissingError
from asp_neuro.libraries import EXTRA_OF, MissingLibrary, demand, install, is_there
from asp_neuro.plain import tomllib

ROOT = Path(__file__).parents[1]
OPTIONAL = ("torch", "lava", "matplotlib", "nir", "pypcd4", "laspy", "lazrs", "PIL", "pye57")  # all of the extras

# Makes libraries absent, as far as an import can tell.
ABSENT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in GIVEN:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

sys.meta_path.insert(0, Absent())
"""
VERB = "from asp_neuro.cli.main import main\nsys.exit(main(sys.argv[1:]))"


@pytest.fixture
def without(tmp_path):
    """`without(("torch",), "train")`: the command line, or another `program`, where these libraries are absent."""

    def call(absent: tuple[str, ...], *words: str, program: str = VERB) -> subprocess.CompletedProcess[str]:
        source = f"GIVEN = {absent!r}\n{ABSENT}\n{program}"
        return subprocess.run([sys.executable, "-c", source, *words], cwd=tmp_path, capture_output=True, text=True)

    return call


@pytest.fixture
def files(tmp_path) -> Path:
    """A folder with x.xyz, 1,024 points, and mine.net, the compact model without a certificate."""
    np.savetxt(tmp_path / "x.xyz", np.random.default_rng(0).uniform(-1.0, 1.0, (1024, 3)))
    shipped = bundle.read(bundle.shipped()["compact"])
    bundle.write(tmp_path / "mine.net", replace(shipped, plan=None, certificate=None))
    return tmp_path


@pytest.mark.parametrize(
    ("absent", "words", "extra"),
    [
        ("torch", ("train",), "train"),
        ("torch", ("export", "model.pt"), "train"),
        ("torch", ("demo",), "train"),
        ("torch", ("study", "order"), "train"),
        ("torch", ("study", "order", "model.pt"), "train"),
        ("torch", ("study", "order", "compact", "--float"), "train"),
        ("torch", ("verify", "compact", "--checkpoint", "model.pt", "--no-lava"), "train"),
        ("lava", ("run", "mine.net", "--backend=sim", "--limit", "1"), "lava"),
        ("lava", ("run", "mine.net", "--backend=loihi2", "--limit", "1"), "lava"),
        ("matplotlib", ("run", "mine.net", "--limit", "1", "--picture", "a.png"), "plots"),
        ("matplotlib", ("certify", "mine.net", "--curve", "a.png"), "plots"),
        ("matplotlib", ("energy", "mine.net", "--limit", "1", "--plot", "a.png"), "plots"),
        ("nir", ("export", "model.pt", "--nir", "a.nir"), "nir"),
        ("pypcd4", ("run", "mine.net", "--input", "x.pcd"), "files"),
        ("laspy", ("run", "mine.net", "--input", "x.las"), "files"),
        ("pye57", ("run", "mine.net", "--input", "x.e57"), "e57"),
    ],
)
def test_what_is_missing_is_named_with_the_command_that_brings_it(without, files, absent, words, extra):
    for name in ("x.las", "x.e57"):
        (files / name).write_text("anything")
    (files / "x.pcd").write_text("VERSION .7\nFIELDS x y z\nPOINTS 1\nDATA ascii\n0 0 0\n")
    done = without((absent,), *words, "--json")
    assert done.returncode == 2, done.stderr
    error = json.loads(done.stdout)["error"]
    assert error["kind"] == "missing"
    assert f"needs {absent}, which is not installed" in error["message"]
    assert f"pip install 'asp-neuro[{extra}]'" in error["message"]
    assert not list(files.glob("a.*"))


@pytest.mark.parametrize(
    "words",
    [
        ("run", "mine.net", "--input", "x.xyz"),
        ("run", "mine.net", "--limit", "5", "--exact", "--prefix"),
        ("certify", "mine.net"),
        ("verify", "compact", "--limit", "2"),
        ("check", "compact"),
        ("energy", "mine.net", "--limit", "5"),
        ("show", "compact"),
        ("models",),
        ("study", "order", "compact", "--limit", "20", "--split", "validation"),
        ("study", "robustness", "compact", "--limit", "10", "--draws", "1", "--split", "validation"),
        ("doctor",),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_the_core_needs_none_of_them(without, files, words):
    done = without(OPTIONAL, *words, "--json")
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)


def test_verify_says_that_lava_is_left_out_and_goes_on(without):
    done = without(("lava",), "verify", "compact", "--limit", "1", "--json")
    assert done.returncode == 0
    assert "the Lava simulator is left out: it is not installed" in done.stderr
    report = json.loads(done.stdout)
    assert "asp-neuro[lava]" in report["without_lava"]
    assert "lava" not in report["engines"]


def test_the_lava_side_of_a_session_says_what_it_needs(without):
    done = without(("lava",), program="import asp_neuro.chip.simulator")
    assert done.returncode == 1
    assert "MissingLibrary: the Lava side of a session (asp_neuro.chip) needs lava" in done.stderr
    assert install("lava") in done.stderr


def test_a_study_without_matplotlib_has_its_tables_and_no_picture(without, tmp_path):
    words = ("study", "order", "compact", "--limit", "5", "--split", "validation", "--out", "out")
    done = without(("matplotlib",), *words)
    assert done.returncode == 0
    assert "no picture: matplotlib is not installed" in done.stderr
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"order.csv", "order_differences.csv", "order.json"}


PYTHON_API = """
import numpy, asp_neuro
answer = asp_neuro.load("mine.net")(numpy.loadtxt("x.xyz"))
print(answer.observations, answer.exit.value)
try:
    import asp_neuro.learn.training
except ImportError as error:  # as other programs ask for it
    print(error.name)
"""


def test_the_python_interface_needs_none_of_them(without, files):
    done = without(OPTIONAL, program=PYTHON_API)
    assert done.stdout.split() == ["16", "unfamiliar", "torch"], done.stderr


def test_without_blocking_the_same_programs_find_what_they_want(without, files):  # the blocker is what makes it absent
    done = without((), "energy", "mine.net", "--limit", "1", "--plot", "a.png")
    assert done.returncode == 0, done.stderr


def test_a_broken_install_is_told_without_a_traceback(without, files):
    done = without(("h5py",), "run", "mine.net", "--input", "x.xyz")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("asp-neuro: error: h5py cannot be imported")
    assert "asp-neuro doctor" in done.stderr


def test_demand_asks_for_a_module_of_an_extra(monkeypatch):
    demand("matplotlib", "a test")
    monkeypatch.setitem(sys.modules, "pypcd4", None)  # how Python itself notes what must not be imported
    assert not is_there("pypcd4")
    with pytest.raises(MissingLibrary, match=r"a test needs pypcd4, .*: pip install 'asp-neuro\[files\]'") as caught:
        demand("pypcd4", "a test")
    assert isinstance(caught.value, MissingError)
    assert not is_there("no_such_package.part")


@pytest.mark.parametrize(("running", "elsewhere"), [((3, 10), False), ((3, 12), True), ((3, 13), True)])
def test_lava_elsewhere_than_on_310_needs_another_python_first(monkeypatch, running, elsewhere):
    monkeypatch.setattr(libraries.sys, "version_info", running)
    assert install("lava").endswith("pip install 'asp-neuro[lava]'")
    assert ("runs on Python 3.10 only" in install("lava")) == elsewhere
    assert install("train") == "pip install 'asp-neuro[train]'"


def test_every_extra_of_a_library_stands_in_pyproject():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(EXTRA_OF.values()) <= set(extras)
    assert {module.split(".")[0] for module in EXTRA_OF} == set(OPTIONAL)


THREADS = """
import os
from asp_neuro.cli.main import main
main(sys.argv[1:])
if "torch" in sys.modules:
    import torch
    assert torch.get_num_threads() == int(os.environ["OMP_NUM_THREADS"])
print(len(os.listdir("/proc/self/task")), file=sys.stderr)
"""


def threads(without, *words: str) -> int:
    return int(without((), *words, "--json", program=THREADS).stderr.split()[-1])


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
@pytest.mark.parametrize(
    "words",
    [
        ("models",),
        ("run", "mine.net", "--limit", "2"),
        ("study", "order", "compact", "--limit", "2"),
        ("doctor", "--quick"),
        ("train", "--epochs", "1", "--out", "mine.pt", "--recipe", "tiny.toml"),
    ],
    ids=lambda words: words[0],
)
def test_a_verb_takes_one_thread_unless_told(without, monkeypatch, files, words):
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    (files / "tiny.toml").write_text(
        "[chunking]\nn_points = 64\nn_groups = 8\ngroup_size = 4\nn_chunks = 4\n"
        "[model]\nwidth = 8\nneurons = 8\nedge_widths = [6, 8]\npolicy_width = 5\n[train]\nbatch = 256\n"
    )
    assert threads(without, *words) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_a_verb_takes_as_many_threads_as_it_is_told(without, monkeypatch, files):
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    assert threads(without, "run", "mine.net", "--limit", "2", "--threads", "2") > 1
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert threads(without, "run", "mine.net", "--limit", "2") > 1
