"""What a machine has and lacks for asp-neuro. Looks at metadata and folders, never imports torch or Lava."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from asp_neuro.errors import AspError

PYTHON = (3, 10)
SHARED_MEMORY = Path("/dev/shm")


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
    """Every data set by name, looked for where a run would look; what is not built in is not needed either."""
    try:
        from asp_neuro.data import NAMES, locate
    except ImportError as error:
        yield Item("data", "broken", f"cannot look for data: {error}; make setup")
        return
    for name in NAMES:
        try:
            place = locate(name)
        except AspError as error:
            yield Item(f"data: {name}", "missing", " ".join(str(error).split("\n")), needed=False)
        else:
            yield Item(f"data: {name}", "ok", str(place.path or "built in"), needed=place.path is None)
