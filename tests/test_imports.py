"""What is imported when, and that the lists in pyproject.toml keep up with the tree."""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import importlib.resources
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

from asp_neuro.plain import tomllib

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
HEAVY = ("torch", "lava", "numpy", "scipy", "h5py", "matplotlib", "trimesh")

# Run the command line, then look at the clock of this process and at what was loaded.
PROBE = """
import sys, time
from asp_neuro.cli.main import main
try:
    code = main(sys.argv[1:])
except SystemExit as end:
    code = end.code or 0
seconds = time.process_time()
files = {name for name, module in sys.modules.items() if getattr(module, "__file__", None)}  # not empty namespaces
heavy = sorted({name.split(".")[0] for name in files} & set(HEAVY))
print(code, seconds, *heavy, file=sys.stderr)
"""


def probe(*words: str, before: str = "") -> tuple[int, float, list[str]]:
    """Exit code, CPU seconds since the start, and heavy libraries loaded, of one call in a fresh interpreter."""
    program = f"HEAVY = {HEAVY!r}\n{before}\n{PROBE}"
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, cwd=ROOT)
    code, seconds, *heavy = done.stderr.splitlines()[-1].split()
    return int(code), float(seconds), heavy


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["demo", "--help"], ["doctor", "--help"], ["dcotor"]])
def test_a_light_command_imports_nothing_heavy(words):
    _, _, heavy = probe(*words)
    assert heavy == []


def test_the_doctor_waits_for_neither_torch_nor_lava():
    assert not {"torch", "lava"} & set(probe("doctor")[2])


def test_the_probe_sees_a_heavy_import():
    assert probe("--help", before="import numpy")[2] == ["numpy"]


def test_help_takes_less_than_a_third_of_a_second_of_cpu():
    code, seconds, _ = min(probe("--help") for _ in range(3))
    assert code == 0
    assert seconds < 0.3


def test_the_clock_of_the_probe_runs():
    assert probe("--help", before="import time\nwhile time.process_time() < 0.35: pass")[1] > 0.3


@pytest.fixture
def ply(tmp_path) -> str:
    """A cloud as a sensor would write it."""
    points = np.random.default_rng(0).normal(size=(1024, 3)).astype("<f4")
    header = "ply\nformat binary_little_endian 1.0\nelement vertex 1024\n"
    header += "".join(f"property float {axis}\n" for axis in "xyz") + "end_header\n"
    (tmp_path / "x.ply").write_bytes(header.encode() + points.tobytes())
    return str(tmp_path / "x.ply")


def test_an_answer_for_a_cloud_waits_for_no_library_that_it_does_not_need(ply):
    # Half a second of CPU on one core of 2026; trimesh alone would add as much again.
    code, seconds, heavy = min(probe("run", "compact", "--no-exit", "--input", ply) for _ in range(2))
    assert code == 0
    assert set(heavy) <= {"numpy", "h5py", "scipy"}
    assert seconds < 2.0


def test_a_core_install_takes_at_most_300_megabytes():
    def size(name: str) -> int:
        places = [file.locate() for file in importlib.metadata.files(name) or []]
        return sum(Path(place).stat().st_size for place in places if Path(place).is_file())

    sizes = {name: size(name) for name in asked(python=f"{sys.version_info[0]}.{sys.version_info[1]}")}
    assert sizes["numpy"] > 10_000_000  # it does measure
    assert sum(sizes.values()) < 300_000_000


def test_the_package_itself_is_light():
    program = "import sys, asp_neuro; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not set(HEAVY) & {name.split(".")[0] for name in loaded}


def test_every_room_outside_torch_and_lava_is_type_checked():
    mypy = PROJECT["tool"]["mypy"]
    assert mypy["files"] == ["asp_neuro"]
    left_out = [path for path in (ROOT / "asp_neuro").rglob("*.py") if is_excluded(path, mypy["exclude"])]
    assert {path.relative_to(ROOT / "asp_neuro").parts[0] for path in left_out} <= {"learn", "chip", "studies"}


def is_excluded(path: Path, patterns: list[str]) -> bool:
    return any(re.search(pattern, path.relative_to(ROOT).as_posix()) for pattern in patterns)


def lint_planted_tree(folder: Path, planted: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Check our contracts on an empty copy of the package that holds nothing but the planted modules."""
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    (layers,) = (c["layers"] for c in contracts if c["type"] == "layers")
    rooms = [f"asp_neuro.{room.strip()}" for layer in layers for room in layer.split("|")]
    apart = [module for c in contracts if c["type"] == "independence" for module in c["modules"]]
    sources = dict.fromkeys(rooms + apart, "") | planted
    for module, source in sources.items():
        is_package = any(other.startswith(f"{module}.") for other in sources)
        path = folder.joinpath(*module.split("."), *["__init__"] * is_package).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    for package in {path.parent for path in folder.rglob("*.py")}:
        (package / "__init__.py").touch()
    command = [
        Path(sys.executable).with_name("lint-imports"),
        "--config",
        ROOT / "pyproject.toml",
        "--no-cache",
        "--no-logo",
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("planted", "broken"),
    [
        ({}, None),
        ({"asp_neuro.learn.mixer": "import torch"}, None),
        ({"asp_neuro.chip.simulator": "import lava.magma", "asp_neuro.chip.processes.host": "import lava.magma"}, None),
        ({"asp_neuro.scenes.cloud": "import torch"}, "torch only"),
        ({"asp_neuro.learn.training": "import lava.magma"}, "Lava only"),
        ({"asp_neuro.model.other": "def f():\n    import lava.magma"}, "Lava only"),
        ({"asp_neuro.model.episode": "import asp_neuro.cli"}, "Rooms"),
        ({"asp_neuro.runtime.deployment": "def f():\n    import asp_neuro.chip.session"}, "Rooms"),
        ({"asp_neuro.heads.stock": "import asp_neuro.heads.checks", "asp_neuro.heads.checks": ""}, None),
        ({"asp_neuro.heads.stock.layer": "import asp_neuro.heads.soft"}, "Forms of neuron"),
        ({"asp_neuro.attic": ""}, "Rooms"),  # a room that nobody listed
        ({"asp_neuro.loose": "import numpy"}, "Rooms"),
    ],
)
def test_the_import_contracts_break_when_they_should(tmp_path, planted, broken):
    done = lint_planted_tree(tmp_path, planted)
    verdicts = [line for line in done.stdout.splitlines() if line.endswith("BROKEN")]
    assert (done.returncode != 0) == (broken is not None), done.stdout + done.stderr
    assert "kept" in done.stdout
    assert len(verdicts) == (broken is not None)
    assert all(broken in verdict for verdict in verdicts), done.stdout


def test_every_package_in_the_tree_is_shipped():
    in_tree = {
        p.parent.relative_to(ROOT).as_posix().replace("/", ".") for p in (ROOT / "asp_neuro").rglob("__init__.py")
    }
    assert in_tree | {"asp_neuro.hw_configs", "asp_neuro.recipes"} == set(PROJECT["tool"]["setuptools"]["packages"])


@pytest.mark.parametrize(
    ("package", "folder"), [("asp_neuro.recipes", "train/recipes"), ("asp_neuro.hw_configs", "hw_configs")]
)
def test_data_folders_are_found_through_the_installed_package(package, folder):
    found = {entry.name for entry in importlib.resources.files(package).iterdir() if entry.is_file()}
    assert found == {path.name for path in (ROOT / folder).iterdir() if path.is_file()}


@pytest.mark.parametrize("folder", ["train/recipes", "hw_configs"])
def test_data_folders_hold_no_code(folder):
    (only,) = (ROOT / folder).rglob("*.py")
    (statement,) = ast.parse(only.read_text()).body
    assert isinstance(statement, ast.Expr), f"{only} holds more than a docstring"


STANDARD = {*sys.stdlib_module_names, "tomllib"}  # tomllib: from 3.11 on


def undeclared(source: str, declared: set[str]) -> set[str]:
    """Top-level modules that `source` imports, at any depth, and that no declared distribution brings."""
    nodes = list(ast.walk(ast.parse(source)))
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level}
    tops = {name.split(".")[0] for name in imported} - STANDARD - {"asp_neuro"}
    return tops - set().union(*map(brought_by, declared))


@functools.cache
def brought_by(distribution: str) -> frozenset[str]:
    """The top-level modules that an installed distribution holds; none if it is not installed."""
    try:
        files = importlib.metadata.files(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return frozenset()
    return frozenset(file.parts[0].split(".")[0] for file in files if file.suffix in (".py", ".so"))


EXTRAS = PROJECT["project"]["optional-dependencies"]


def asked(*extras: str, python: str | None = None) -> set[str]:
    """Names of what the core and some extras ask for, with the extras they name; on one Python, or on any."""
    found = set()
    for line in [*PROJECT["project"]["dependencies"], *(line for extra in extras for line in EXTRAS[extra])]:
        requirement = Requirement(line)
        if requirement.name == "asp-neuro":
            found |= asked(*requirement.extras, python=python)
        elif python is None or requirement.marker is None or requirement.marker.evaluate({"python_version": python}):
            found.add(requirement.name)
    return found


CORE, EVERYTHING = asked(), asked("dev")
OWN_IMPORTS = {
    **{"torch": "train", "lava": "lava", "matplotlib": "plots", "nir": "nir"},
    **{"pypcd4": "files", "laspy": "files", "lazrs": "files", "PIL": "files", "pye57": "e57"},
}
NEWER = ("train", "plots", "files", "e57", "nir", "test")  # what .ci/setup installs elsewhere than on 3.10


def modules_of_the_core() -> list[Path]:
    """All but the rooms of torch and Lava, and the studies that train."""
    with_torch = [ROOT / "asp_neuro/studies" / name for name in ("trained.py", "card.py")]
    rooms = (ROOT / "asp_neuro/learn", ROOT / "asp_neuro/chip")
    found = sorted((ROOT / "asp_neuro").rglob("*.py"))
    return [path for path in found if path not in with_torch and not any(room in path.parents for room in rooms)]


@pytest.mark.parametrize("path", modules_of_the_core(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_of_the_core_imports_what_the_core_brings_and_demands_the_rest(path):
    # A library that happens to lie in somebody's .venv is missing in a clean clone.
    source = path.read_text()
    extra = undeclared(source, CORE) - {"tomli"}  # on 3.10, where it is asked for
    assert extra <= set(OWN_IMPORTS)
    assert all(f'demand("{name}' in source for name in extra), f"{path} imports {extra} and demands not all of it"


@pytest.mark.lava
@pytest.mark.rivals  # modules are told by what is installed
def test_the_package_imports_nothing_that_the_extras_do_not_bring():
    for path in sorted((ROOT / "asp_neuro").rglob("*.py")):
        assert not undeclared(path.read_text(), asked("all")), path


@pytest.mark.lava
@pytest.mark.rivals  # modules are told by what is installed
@pytest.mark.parametrize("folder", ["tests", "benchmarks", "train", "deploy"])
def test_the_workshop_imports_nothing_that_set_up_does_not_bring(folder):
    helpers = {path.stem for place in (folder, "tests", "benchmarks") for path in (ROOT / place).rglob("*.py")}
    for path in sorted((ROOT / folder).rglob("*.py")):
        assert not undeclared(path.read_text(), EVERYTHING) - helpers, path


def test_an_import_that_nobody_brings_is_seen():
    assert undeclared("def f():\n    import pandas.io\n    from requests import get", CORE) == {"pandas", "requests"}
    assert undeclared("import numpy.linalg, sklearn, os\nfrom lava.lib.dl import slayer", CORE) == {"sklearn", "lava"}


def test_extras_name_the_extras_that_they_hold():
    assert {"numpy", "scipy", "h5py", "trimesh", "tqdm", "packaging", "tomli"} == CORE
    lava, files = {"lava-nc", "lava-dl", "setuptools"}, {"pypcd4", "laspy", "lazrs", "pillow", "pye57"}
    assert asked("all") - CORE == {"torch", "matplotlib", "nir"} | lava | files
    assert {"pytest", "ruff", "lava-nc"} <= EVERYTHING
    assert "lava-nc" not in asked("all", python="3.12")


CONSTRAINTS = {"constraints.txt": (("dev",), "3.10"), "constraints-3.12.txt": (NEWER, "3.12")}


def pins(name: str) -> list[str]:
    return [line for line in (ROOT / name).read_text().splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_constraints_are_names_and_exact_versions_only(name):
    assert len(pins(name)) > 50
    assert [line for line in pins(name) if not re.fullmatch(r"[a-z0-9.-]+==[0-9a-z.]+", line)] == []


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_constraints_pin_everything_we_ask_for(name):
    extras, python = CONSTRAINTS[name]
    pinned = dict(line.split("==") for line in pins(name))
    wanted = asked(*extras, python=python)
    assert wanted - set(pinned) == set()
    for line in [*PROJECT["project"]["dependencies"], *(line for extra in extras for line in EXTRAS[extra])]:
        requirement = Requirement(line)
        assert requirement.name not in wanted or pinned[requirement.name] in requirement.specifier, line


def test_setup_installs_the_extras_that_are_pinned():
    script = (ROOT / ".ci/setup").read_text()
    assert f"extras={','.join(NEWER)} constraints=(--constraint constraints-3.12.txt)" in script
    assert "extras=dev constraints=(--constraint constraints.txt)" in script
