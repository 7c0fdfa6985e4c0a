"""What is installed: bundles and cards are in the wheel, checkpoints and tests are not, and it stays small."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest

from asp_neuro.plain import tomllib

ROOT = Path(__file__).parents[1]
SETUP = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
LARGEST = 7_000_000  # bytes; eleven bundles take 5.2 MB


def shipped_data() -> dict[str, int]:
    """The data files that package-data names, with their sizes."""
    found = {}
    for package, patterns in SETUP["package-data"].items():
        folder = ROOT / SETUP["package-dir"].get(package, package.replace(".", "/"))
        for pattern in patterns:
            found |= {
                f"{package.replace('.', '/')}/{p.relative_to(folder)}": p.stat().st_size for p in folder.glob(pattern)
            }
    return found


def test_bundles_with_their_cards_and_recipes_are_data_of_the_package():
    names = set(shipped_data())
    for bundle in (ROOT / "asp_neuro/models").glob("*.net"):
        assert {f"asp_neuro/models/{bundle.name}", f"asp_neuro/models/{bundle.stem}.md"} <= names
    assert {"asp_neuro/hw_configs/loihi2.toml", "asp_neuro/recipes/compact.toml"} <= names
    assert not [name for name in names if name.endswith(".pt")]


def test_no_checkpoint_lies_where_the_wheel_could_take_it():
    assert not list((ROOT / "asp_neuro").rglob("*.pt"))
    assert list((ROOT / "train/checkpoints").glob("*.pt"))


def test_the_data_stay_small():
    assert 0 < sum(shipped_data().values()) < LARGEST


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_its_data_and_nothing_else(tmp_path):
    """An actual build, of a copy: setuptools leaves things behind, and would ship what an older build left."""
    program = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    tree, useless = tmp_path / "tree", shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so")
    for folder in ("asp_neuro", "hw_configs", "train/recipes"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=useless)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    subprocess.run([sys.executable, "-c", program, tmp_path], cwd=tree, capture_output=True, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    code = {name for name in inside if name.endswith(".py")}
    compiled = {name for name in inside if name.endswith(".so")}  # none where there is no compiler
    assert len(compiled) <= 1
    assert all(name.startswith("asp_neuro/compiled/_kernels.") for name in compiled)
    assert inside - code - compiled == set(shipped_data())
    assert all(fnmatch(name, "asp_neuro/*") for name in inside)
    assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "asp_neuro").rglob("*.py")} <= code
    assert wheel.stat().st_size < LARGEST
