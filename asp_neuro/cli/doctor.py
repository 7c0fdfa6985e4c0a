"""What a machine has and lacks for asp-neuro. Looks at metadata, folders and programs, never imports torch or Lava.

The self-test of the simulator runs in a process of its own, as every Lava session does.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from asp_neuro import compiled
from asp_neuro.chip import preflight
from asp_neuro.errors import AspError
from asp_neuro.libraries import install, is_there

if TYPE_CHECKING:
    import numpy as np
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    from asp_neuro.heads.spec import HeadSpec

PYTHON = (3, 10)  # the oldest
REPAIR = "make setup in a clone, pip install --upgrade asp-neuro elsewhere"
EXTRAS = {  # extra -> what it is for
    "train": "train, export, demo, studies of checkpoints",
    "lava": "run --backend=sim, Lava in verify, the way to Loihi 2",
    "plots": "pictures: --picture, --curve, --plot, studies",
    "files": "pcd, las and laz files",
    "e57": "e57 files",
    "nir": "export --nir",
}
SHARED_MEMORY = Path("/dev/shm")
SELF_TEST_SECONDS = 60.0
BOARD_VARIABLES = {
    "PARTITION": "a Slurm partition with Loihi 2, as oheogulch",
    "BOARD": "a node of `sinfo -N`; several with commas, the first that is up is taken",
    "NXSDKHOST": "the address of a board on the network",
}


@dataclass(frozen=True)
class Item:
    name: str
    status: str  # ok, missing or broken
    hint: str  # what was found, or the next step
    needed: bool = True  # False: asp-neuro works without it


def examine(quick: bool = False) -> list[Item]:
    """Everything; `quick` leaves out the self-test of the simulator, which takes seconds."""
    lava = [shared_memory(), *([] if quick else [simulator()])] if is_there("lava.magma") else []
    return [python(), *libraries(), *extras(), threads(), kernels(), *lava, *loihi2(), *data(), *models()]


def python() -> Item:
    found = platform.python_version()
    if sys.version_info[:2] >= PYTHON:
        return Item("Python", "ok", found)
    return Item("Python", "broken", f"{found} runs, 3.10 or later is needed")


def requirements(extra: str = "") -> list[Requirement]:
    """What pyproject.toml asks for on this Python: of everyone, or further for an extra."""
    from packaging.requirements import Requirement

    found = map(Requirement, importlib.metadata.requires("asp-neuro") or [])
    return [one for one in found if _asked(one, extra) and not (extra and _asked(one, ""))]


def _asked(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def libraries() -> Iterator[Item]:
    """Every library of the core, against the version that is installed."""
    try:
        wanted = requirements()
    except importlib.metadata.PackageNotFoundError:
        yield Item("asp-neuro", "missing", f"not installed, only lying there: {REPAIR}")
        return
    for requirement in wanted:
        yield library(requirement.name, requirement.specifier)


def library(name: str, specifier: SpecifierSet) -> Item:
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Item(name, "missing", REPAIR)
    if found not in specifier:
        return Item(name, "broken", f"{found} is installed, {specifier} is needed: {REPAIR}")
    return Item(name, "ok", found)


def extras() -> Iterator[Item]:
    """What is there beyond the core, a row per extra; nobody needs one, but one that is there must be whole."""
    for name in EXTRAS:
        try:
            yield extra(name)
        except importlib.metadata.PackageNotFoundError:
            return


def extra(name: str) -> Item:
    row, about = f"extra: {name}", EXTRAS[name]
    found = [library(one.name, one.specifier) for one in requirements(name)]
    absent = [item.name for item in found if item.status == "missing"]
    if not found or found[0].status == "missing":  # the first library is what the extra is about
        adds = f"adds {', '.join(absent)} " if absent else ""
        return Item(row, "missing", f"{adds}for {about}: {install(name)}", needed=False)
    wrong = [f"{item.name}: {item.hint.removesuffix(f': {REPAIR}')}" for item in found if item.status == "broken"]
    wrong += [f"{one} is missing" for one in absent]
    if wrong:
        return Item(row, "broken", f"{'; '.join(wrong)}: {install(name)}")
    return Item(row, "ok", ", ".join(f"{item.name} {item.hint}" for item in found))


def threads() -> Item:
    """What a verb takes; the command line sets the variable where nobody did (`main.bind_threads`)."""
    n_cores = len(os.sched_getaffinity(0))
    limit = os.environ.get("OMP_NUM_THREADS", "1")
    if not (limit.isdecimal() and int(limit) > 0):
        return Item("cores", "broken", f"OMP_NUM_THREADS is '{limit}', expected a whole number above 0: unset it")
    many = f"; more threads than cores, try OMP_NUM_THREADS={n_cores}" if int(limit) > n_cores else ""
    return Item("cores", "ok", f"{n_cores} usable, threads taken: {limit} (OMP_NUM_THREADS){many}")


def kernels() -> Item:
    """The compiled part, which makes one cloud alone about twice as quick and changes no answer."""
    hint = compiled.state
    if compiled.kernels is None and os.environ.get(compiled.SWITCH) != "0":
        hint = f"{hint}; with a C compiler (gcc) and Python's headers there, install again: {REPAIR}"
    return Item("compiled part", "missing" if compiled.kernels is None else "ok", hint, needed=False)


def shared_memory() -> Item:
    """Lava's processes talk through POSIX shared memory."""
    name = f"shared memory ({SHARED_MEMORY})"
    if not SHARED_MEMORY.is_dir():
        return Item(name, "missing", f"mount a tmpfs at {SHARED_MEMORY}; the Lava simulator needs it")
    if not os.access(SHARED_MEMORY, os.W_OK):
        return Item(name, "broken", "not writable; the Lava simulator needs it")
    free = shutil.disk_usage(SHARED_MEMORY).free
    return Item(name, "ok", f"{free / 2**20:.0f} MiB free")


def simulator() -> Item:
    """Ten observations of a small head on Lava, against the reference in numpy."""
    name = "Lava simulator"
    try:
        import numpy as np

        from asp_neuro.chip.session import run_head
        from asp_neuro.heads.soft.reference import run_reference

        head, drives_int = ten_steps()
        began = time.monotonic()
        found = run_head(head, drives_int, deadline=SELF_TEST_SECONDS)
        seconds = time.monotonic() - began
        membranes, spikes, _ = run_reference(head, drives_int)
    except ImportError as error:
        return Item(name, "broken", f"cannot be tested: {error}; {REPAIR}")
    except AspError as error:
        return Item(name, "broken", f"{_one_line(error)}; `asp-neuro run --backend=fast` does not need Lava")
    wrong = int(np.count_nonzero(found.membranes != membranes) + np.count_nonzero(found.spikes != spikes))
    if wrong:
        return Item(name, "broken", f"{wrong} numbers differ from the reference: {REPAIR}, then asp-neuro verify")
    return Item(name, "ok", f"{len(drives_int)} observations as in the reference, {seconds:.1f} s")


def ten_steps() -> tuple[HeadSpec, np.ndarray]:
    """A head of two layers of 4 neurons, and drives [10, 1, 4] that make both fire."""
    import numpy as np

    from asp_neuro.heads.bits import DRIVE_BITS
    from asp_neuro.heads.soft.layer import LayerSpec
    from asp_neuro.heads.spec import HeadSpec

    rng = np.random.default_rng(0)

    def layer(theta: int) -> LayerSpec:
        same = np.full(4, theta)
        weight_int, bias_int = 2 * rng.integers(-60, 61, (4, 4)), rng.integers(0, 1000, 4)
        return LayerSpec(weight_int, bias_int, np.full(4, 3686), same, same, np.ones(4), state_bits=12)

    head = HeadSpec((layer(6000), layer(3000)))
    return head, np.rint(rng.normal(0.0, 2.0**DRIVE_BITS, (10, 1, 4))).astype(np.int64)


def loihi2() -> Iterator[Item]:
    """The pieces of `--backend=loihi2` one by one; nobody needs them who has no chip."""
    if not is_there("lava.magma"):
        yield Item("Loihi 2", "missing", f"needs Lava first: {install('lava')}", needed=False)
        return
    try:
        missing = preflight.missing_modules()
    except AspError as error:
        yield Item("Loihi 2: extension", "broken", _one_line(error), needed=False)
    else:
        for module in preflight.EXTENSION:
            hint = "from Intel's Lava extension for Loihi, which INRC members get (docs/loihi2.md)"
            found = ("missing", hint) if module in missing else ("ok", "found")
            yield Item(f"Loihi 2: {module}", *found, needed=False)
    sinfo = shutil.which("sinfo")
    hint = "not on PATH; Slurm brings it, a board on the network (NXSDKHOST) needs none"
    yield Item("Loihi 2: sinfo", "ok" if sinfo else "missing", sinfo or hint, needed=False)
    for name, hint in BOARD_VARIABLES.items():
        value = os.environ.get(name)
        yield Item(f"Loihi 2: {name}", "ok" if value else "missing", value or f"not set; {hint}", needed=False)
    yield board()
    yield neuron_model()
    yield ready()


def board() -> Item:
    try:
        chosen = preflight.choose_board(os.environ)
    except AspError as error:
        return Item("Loihi 2: board", "missing", str(error).splitlines()[0], needed=False)
    return Item("Loihi 2: board", "ok", chosen.text, needed=False)


def neuron_model() -> Item:
    name = f"Loihi 2: entry point {preflight.MODELS}"
    try:
        found = preflight.demand_neuron_model()
    except AspError as error:
        status = "broken" if preflight.neuron_models() else "missing"
        hint = f"{str(error).splitlines()[0]} (docs/loihi2.md); bundles of the stock form need none"
        return Item(name, status, hint, needed=False)
    return Item(name, "ok", found.value, needed=False)


def ready() -> Item:
    """The list that `run --backend=loihi2` would give, for any model: how many pieces are missing, and which."""
    name, found = "Loihi 2: ready", preflight.blockers()
    if not found:
        return Item(name, "ok", "nothing stands in the way but the model's own fit: asp-neuro check", needed=False)
    kinds = ", ".join(error.kind.removeprefix("loihi2 ") for error in found)
    return Item(name, "missing", f"not before these are there: {kinds}", needed=False)


def models() -> Iterator[Item]:
    """The bundles that come with the package; each is read as a run would read it."""
    try:
        from asp_neuro import bundle
    except ImportError as error:
        yield Item("models", "broken", f"cannot look for models: {error}; {REPAIR}")
        return
    shipped = bundle.shipped()
    if not shipped:
        yield Item("models", "missing", "none is shipped; make one: asp-neuro train, asp-neuro export", needed=False)
    for name, path in shipped.items():
        try:
            classes = bundle.read(path).classes
        except AspError as error:
            yield Item(f"model: {name}", "broken", f"{_one_line(error)}: {REPAIR}")
        else:
            yield Item(f"model: {name}", "ok", f"{len(classes)} classes, {path}")


def _one_line(error: AspError) -> str:
    return " ".join(str(error).split())


def data() -> Iterator[Item]:
    """Every data set by name, looked for where a run would look; what is not built in is not needed either."""
    try:
        from asp_neuro.data import NAMES, locate
    except ImportError as error:
        yield Item("data", "broken", f"cannot look for data: {error}; {REPAIR}")
        return
    for name in NAMES:
        try:
            place = locate(name)
        except AspError as error:
            yield Item(f"data: {name}", "missing", _one_line(error), needed=False)
        else:
            yield Item(f"data: {name}", "ok", str(place.path or "built in"), needed=place.path is None)
