"""Libraries that an install may lack. `demand` stands before their import and says what installs them.

The core (numpy, scipy, h5py, trimesh, tqdm) is always there; what else is used belongs to an extra of pyproject.toml.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

from asp_neuro.errors import MissingError

__all__ = ["EXTRA_OF", "LAVA_PYTHON", "MissingLibrary", "broken", "demand", "install", "is_there"]

EXTRA_OF = {  # module -> the extra that brings it
    "torch": "train",
    "lava.magma": "lava",
    "lava.lib.dl": "lava",
    "matplotlib": "plots",
    "pypcd4": "files",
    "laspy": "files",
    "lazrs": "files",
    "PIL": "files",
    "pye57": "e57",
    "nir": "nir",
}
LAVA_PYTHON = (3, 10)  # lava-dl 0.6.0, the last one, wants this very version
LAVA_ELSEWHERE = "Lava runs on Python 3.10 only, and this is {}.{}; in an environment with 3.10: "


class MissingLibrary(MissingError, ImportError):
    """A library is not installed; for programs that only look whether an import works, an ImportError too."""


def install(extra: str) -> str:
    """What to do to have an extra, as words that end in a command."""
    command = f"pip install 'asp-neuro[{extra}]'"
    elsewhere = extra == "lava" and sys.version_info[:2] != LAVA_PYTHON
    return (LAVA_ELSEWHERE.format(*sys.version_info[:2]) if elsewhere else "") + command


def is_there(module: str) -> bool:
    """Whether a module could be imported. It is not; only packages around it are (Lava's are empty namespaces)."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # a package around it is missing, or forbidden; a module without a spec
        return False


def demand(module: str, what: str) -> None:
    """Raise unless a module of `EXTRA_OF` is installed; `what` wants it: "`train` needs torch, ..."."""
    if not is_there(module):
        name = module.split(".")[0]
        raise MissingLibrary(f"{what} needs {name}, which is not installed: {install(EXTRA_OF[module])}", name=name)


def broken(error: ImportError) -> str:
    """A sentence on an import that failed though nobody demanded anything: an install that is not whole."""
    what: Any = error.name or "a library"
    return f"{what} cannot be imported ({str(error).splitlines()[0]}); see: asp-neuro doctor"
