"""What a machine has and lacks for asp-neuro. Looks at metadata and folders only, imports no heavy library."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PYTHON = (3, 10)
SHARED_MEMORY = Path("/dev/shm")
DATA_NAMES = ("modelnet40", "modelnet10")


@dataclass(frozen=True)
class Item:
    name: str
    status: str  # ok, missing or broken
    hint: str  # what was found, or the next step
    needed: bool = True  # False: asp-neuro works without it


def examine() -> list[Item]:
    return [python(), *libraries(), threads(), shared_memory(), *data()]


def python() -> Item:
    found = platform.python_version()
    if sys.version_info[:2] == PYTHON:
        return Item("Python", "ok", found)
    return Item("Python", "broken", f"{found} runs, 3.10 is needed: make setup")


def libraries() -> Iterator[Item]:
    """Every library that pyproject.toml asks of a user, against the version that is installed."""
    from packaging.requirements import Requirement

    try:
        wanted = importlib.metadata.requires("asp-neuro") or []
    except importlib.metadata.PackageNotFoundError:
        yield Item("asp-neuro", "missing", "not installed, only lying there: make setup")
        return
    for requirement in map(Requirement, wanted):
        if requirement.marker is None:  # those with a marker belong to an extra
            yield library(requirement.name, requirement.specifier)


def library(name: str, specifier: object) -> Item:
    """`specifier` is a packaging SpecifierSet: `"1.0" in specifier` and its text are all that is used."""
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Item(name, "missing", "make setup")
    if found not in specifier:  # type: ignore[operator]
        return Item(name, "broken", f"{found} is installed, {specifier} is needed: make setup")
    return Item(name, "ok", found)


def threads() -> Item:
    n_cores = len(os.sched_getaffinity(0))
    limit = os.environ.get("OMP_NUM_THREADS")
    return Item("cores", "ok", f"{n_cores} usable, OMP_NUM_THREADS {limit or 'not set'}")


def shared_memory() -> Item:
    """Lava's processes talk through POSIX shared memory."""
    name = f"shared memory ({SHARED_MEMORY})"
    if not SHARED_MEMORY.is_dir():
        return Item(name, "missing", f"mount a tmpfs at {SHARED_MEMORY}; the Lava simulator needs it")
    if not os.access(SHARED_MEMORY, os.W_OK):
        return Item(name, "broken", "not writable; the Lava simulator needs it")
    free = shutil.disk_usage(SHARED_MEMORY).free
    return Item(name, "ok", f"{free / 2**20:.0f} MiB free")


def data() -> Iterator[Item]:
    yield Item("data: shapes", "ok", "built in")
    for name in DATA_NAMES:
        yield _data_set(name)


def _data_set(name: str) -> Item:
    places = data_places()
    stems = (name, "modelnet40")  # ModelNet10 is a part of ModelNet40: the files of the latter serve both
    for place in places:
        if any(path.name.lower().startswith(stems) for path in place.glob("*")):
            return Item(f"data: {name}", "ok", str(place), needed=False)
    looked = ", ".join(map(str, places))
    hint = f"not in {looked}; set ASP_NEURO_DATA to its folder (the built-in shapes need none)"
    return Item(f"data: {name}", "missing", hint, needed=False)


def data_places() -> list[Path]:
    """Where data sets are looked for, in this order."""
    named = os.environ.get("ASP_NEURO_DATA")
    return [Path(place) for place in (named, "data") if place]
