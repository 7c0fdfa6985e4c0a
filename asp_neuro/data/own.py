"""Data of one's own, as a model remembers them: where they lie, which way is up, what was trained on.

A folder has no name by which it could be found again, and a wrong up axis is not seen but in the answers. So both stand
in checkpoint and bundle, beside the model and not in its hash, and are what every command takes unless told otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from asp_neuro.data.axes import check_up
from asp_neuro.data.clouds import CloudSet
from asp_neuro.data.fingerprints import recalled, remember
from asp_neuro.data.pictures import ImageSet
from asp_neuro.data.places import NAMES, Place
from asp_neuro.errors import InputError, MissingError
from asp_neuro.plain import later
from asp_neuro.report import say


@dataclass(frozen=True)
class OwnData:
    path: str  # of the folder, where the model was trained
    up: str
    n_train: int  # clouds
    shapes: str = ""  # what they look like (`fingerprints`)
    kind: str = later("cloud")  # or "image", which has no up axis to remember

    def __post_init__(self) -> None:
        check_up(self.up)
        if self.n_train < 0 or not self.path.isprintable():
            raise InputError(f"own data: {self.n_train} {self.kind}s in {self.path!r:.60}")
        recalled(self.shapes)

    @property
    def text(self) -> str:
        return f"{self.path}, {self.up} up" if self.kind == "cloud" else self.path


def own_data(place: Place, up: str | None, train: CloudSet | ImageSet) -> OwnData | None:
    """What to remember of the data that a model is trained on; None: they have a name by which they are found."""
    if place.name != "folder" or place.path is None:
        return None
    shapes = "" if isinstance(train, ImageSet) else remember(train.points, train.names)
    kind = "image" if isinstance(train, ImageSet) else "cloud"
    return OwnData(str(place.path.resolve()), up or "y", len(train), shapes, kind)


def recall(own: OwnData | None, data: str | Path | None, up: str | None) -> tuple[str | Path | None, str | None]:
    """Data and up axis as asked for, or else as the model was trained; what is taken from there is said."""
    if own is None or str(data) in NAMES:
        return data, up
    if data is None:
        if not Path(own.path).is_dir():
            raise MissingError(
                f"the model was trained on {own.text}, and that folder is not here;\nsay where such "
                f"{own.kind}s are with --data FOLDER."
            )
        if own.kind != "cloud":
            say(f"data: {own.path} (as the model was trained)")
            return own.path, up
        say(f"data: {own.path}, {up or own.up} up{', as asked' if up else ''} (as the model was trained)")
        return own.path, up or own.up
    return data, up_axis(own, up)


def up_axis(own: OwnData | None, up: str | None) -> str | None:
    """The up axis of other clouds than those of the training: the same, unless told."""
    if own is None or up is not None:
        return up
    if own.up != "y":
        say(f"{own.up} is up, as in the clouds that the model was trained on (otherwise: --up)")
    return own.up
