"""model.pt: a trained model, or a training that can go on. Read with `weights_only=True`: no code in it is ever run."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import torch

from asp_neuro import files
from asp_neuro.errors import InputError, MissingError
from asp_neuro.runtime.kinds import hint

FORMAT = "asp-neuro checkpoint"
VERSION = 1
FOLDER = "ASP_NEURO_CHECKPOINTS"  # an environment variable: a further folder of checkpoints
WHERE = f"they lie in train/checkpoints of the source repository; set {FOLDER} to a copy of that folder"


def save(path: str | Path, content: dict[str, Any]) -> None:
    """The file at `path` is always whole, the old one or the new one."""
    with files.writing(path) as file:
        torch.save({"format": FORMAT, "version": VERSION, **content}, file)


def folders() -> list[Path]:
    """Where checkpoints are looked for by name: they lie beside the recipes in the repository, not in the wheel."""
    given = os.environ.get(FOLDER)
    return [
        *([Path(given)] if given else []),
        Path(__file__).parents[2] / "train/checkpoints",
        Path("train/checkpoints"),
    ]


def known() -> dict[str, Path]:
    """Checkpoints that have a name: name -> file, the first folder that has one wins."""
    return {path.stem: path for folder in reversed(folders()) for path in sorted(folder.glob("*.pt"))}


def find(name: str | Path) -> Path:
    """FILE or NAME -> the checkpoint's path; a known name wins over a file that happens to be called so."""
    named = known()
    if str(name) in named:
        return named[str(name)]
    if not Path(name).exists():
        here = f"known by name: {', '.join(named)}" if named else f"none are here: {WHERE}"
        raise MissingError(f"'{name}' is neither a checkpoint file nor a known name; {here}")
    return Path(name)


def read(path: str | Path, needs: tuple[str, ...] = ("recipe", "classes", "model")) -> dict[str, Any]:
    """Read a checkpoint; anything else than one of ours is refused with a reason."""
    path = Path(path)
    if not path.exists():
        raise MissingError(f"'{path}' does not exist; `asp-neuro train --out {path}` makes it")
    try:
        with zipfile.ZipFile(path) as parts:  # torch itself does not look at the checksums
            if (damaged := parts.testzip()) is not None:
                raise InputError(f"'{path}' is damaged (wrong checksum of its part '{damaged}')")
        content = torch.load(path, map_location="cpu", weights_only=True)
    except InputError:
        raise
    except Exception as error:  # a broken pickle can fail in any way: IndexError, struct.error, AssertionError, ...
        reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        told = hint(path, "checkpoint")
        raise InputError(f"'{path}' is not a checkpoint that can be read safely ({reason}){told}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"'{path}' is a torch file, but not an asp-neuro checkpoint")
    if content.get("version") != VERSION:
        raise InputError(f"'{path}' has checkpoint version {content.get('version')}, this program reads {VERSION}")
    missing = [key for key in needs if key not in content]
    if missing:
        raise InputError(f"'{path}': incomplete checkpoint, without {', '.join(missing)}")
    for key, kind in (("recipe", dict), ("classes", list), ("model", dict)):
        if key in needs and not isinstance(content[key], kind):
            raise InputError(f"'{path}': {key} is a {type(content[key]).__name__}, expected a {kind.__name__}")
    return content
