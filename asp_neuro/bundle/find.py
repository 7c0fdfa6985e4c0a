"""FILE or NAME -> a bundle's path: those in the current folder, and those that come with the package."""

from __future__ import annotations

from pathlib import Path

from asp_neuro.errors import MissingError

DEFAULT = "model.net"
SUFFIX = ".net"


def shipped() -> dict[str, Path]:
    """Bundles that come with the package: name -> file."""
    folder = Path(__file__).parents[1] / "models"
    return {path.name.removesuffix(SUFFIX): path for path in sorted(folder.glob(f"*{SUFFIX}"))}


def find(name: str | Path | None = None) -> Path:
    """FILE or NAME -> the bundle's path; none given: `./model.net`."""
    known = shipped()
    if name is None:
        if Path(DEFAULT).exists():
            return Path(DEFAULT)
        raise MissingError(f"no bundle given and no ./{DEFAULT} here; {_what_exists(known)}")
    if str(name) in known:
        return known[str(name)]
    path = Path(name)
    if path.exists():
        return path
    raise MissingError(f"'{name}' is neither a file nor a shipped bundle; {_what_exists(known)}")


def _what_exists(known: dict[str, Path]) -> str:
    here = sorted(path.name for path in Path().glob(f"*{SUFFIX}"))
    shipped_names = f"shipped: {', '.join(known)}" if known else "none is shipped with this version"
    return shipped_names + (f"; in this folder: {', '.join(here[:8])}" if here else "; none in this folder")
