"""Recipe: everything that decides a training, as frozen data read from TOML (`train/recipes/*.toml`)."""

from __future__ import annotations

import dataclasses
import math
import os
import types
import typing
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import tomli

from asp_neuro.errors import ConfigError, MissingError, nearest
from asp_neuro.scenes.augment import Augmentation
from asp_neuro.scenes.cloud import Chunking

SEEDS = 2**32
HELD_OUT = ("validation", "calibration")  # carved from the training data: to choose by, and to certify with
SCORERS = ("bilinear", "geometry", "belief", "additive")


@dataclass(frozen=True)
class DataRecipe:
    name: str = "shapes"  # a built-in name, or the kind of data that `--data` must hold
    classes: tuple[str, ...] = ()  # classes that the data must have; none: whatever is there
    also: tuple[str, ...] = ()  # splits trained on besides "train": a last training, when nothing is left to choose
    without: tuple[str, ...] = ()  # sets whose validation and calibration clouds are not trained on, or SET/SPLIT

    def __post_init__(self) -> None:
        for split in self.also:
            if split not in HELD_OUT:
                raise ConfigError(f"data.also = '{split}'{nearest(split, HELD_OUT)}")
        for entry in self.without:
            split = entry.partition("/")[2]
            if "/" in entry and split not in HELD_OUT:
                raise ConfigError(f"data.without = '{entry}': no split '{split}'{nearest(split, HELD_OUT)}")


@dataclass(frozen=True)
class ModelRecipe:
    width: int = 64  # D, of embedding, carry and drive
    neurons: int = 64  # H, per layer of the head
    layers: int = 2  # L
    edge_widths: tuple[int, int] = (32, 64)
    token_width: int = 0  # of a group's token; 0: as `width`
    chunk_layer: bool = False  # one more map on the pooled tokens of a chunk
    moments: bool = False  # a group's token also sees mean and covariance of its points
    policy_width: int = 32
    first_look: int = 0  # units of a scorer for the first chunk alone, which sees the cloud's outline; 0: none
    scorer: str = "bilinear"
    mask: bool = True  # visited chunks are not chosen again

    def __post_init__(self) -> None:
        for name in ("width", "neurons", "layers", "policy_width"):
            _at_least(f"model.{name}", getattr(self, name), 1)
        _at_least("model.first_look", self.first_look, 0)
        if len(self.edge_widths) != 2 or min(self.edge_widths) < 1:
            raise ConfigError(f"model.edge_widths = {list(self.edge_widths)}: expected two widths of at least 1")
        if self.scorer not in SCORERS:
            raise ConfigError(f"model.scorer = '{self.scorer}'{nearest(self.scorer, SCORERS)}")
        if self.scorer == "belief" and self.first_look:
            raise ConfigError(
                f"model.first_look = {self.first_look} sees geometry, which model.scorer = 'belief' rules out"
            )


@dataclass(frozen=True)
class TrainRecipe:
    epochs: int = 30  # in all
    deploy_epochs: int = 8  # the last of them, on the integer grid
    start: str = ""  # a checkpoint, or the name of a shipped one, whose weights this training starts from
    batch: int = 32
    learning_rate: float = 2e-3
    weight_decay: float = 1e-2
    warmup: float = 0.1  # share of the run
    clip: float = 1.0  # largest gradient norm; 0 is off
    smoothing: float = 0.1  # of the labels
    balance: float = 0.0  # a cloud counts by (number of its class)^-balance; 1 gives every class the same weight
    forget: float = 0.0  # share of the classes' frequencies taken out of the finished answers; 1: as if all alike
    late: float = 0.0  # step t counts t^late; 0 is the paper's mean over steps
    tet: float = 0.0  # weight of the agreement with the last logits (Eq. 4)
    temperature_start: float = 1.0  # of the Gumbel-softmax
    temperature_end: float = 0.1
    random_share: float = 0.4  # clouds that take a random order instead of the sampled one
    mix: float = 0.0  # clouds that get chunks of another cloud, and the answer mixed alike; in a random order
    imitation: float = 0.0  # weight of imitating the oracle's one-step ranking
    imitation_steps: int = 8
    imitation_temperature: float = 0.3
    policy_alone: bool = False  # the belief is shaped by the answers only, the policy learns on top of it
    policy_rate: float = 1.0  # times the learning rate, for the policy
    policy_only: bool = False  # nothing else learns; all other parts stay as `start` left them, on the grid if it was
    rate_penalty: float = 0.0
    rate_target: float = 0.3
    ema: float = 0.0  # decay per step of the averaged weights; 0 is off
    distil: float = 0.0  # weight of a teacher's soft targets
    distil_temperature: float = 2.0
    headroom: float = 2.0  # of the integer state over the largest membrane seen

    def __post_init__(self) -> None:
        _at_least("train.epochs", self.epochs, 1)
        _at_least("train.batch", self.batch, 2)
        if not 0 <= self.deploy_epochs <= self.epochs:
            raise ConfigError(
                f"train.deploy_epochs = {self.deploy_epochs} must be between 0 and epochs = {self.epochs}"
            )
        for name in ("smoothing", "random_share", "mix", "ema", "warmup"):
            value = getattr(self, name)
            if not 0.0 <= value < 1.0 and not (name == "random_share" and value == 1.0):
                raise ConfigError(f"train.{name} = {value} must be at least 0 and below 1")
        positive = (
            "learning_rate",
            "policy_rate",
            "temperature_start",
            "temperature_end",
            "imitation_temperature",
            "distil_temperature",
        )
        for name in positive:
            if not getattr(self, name) > 0.0:
                raise ConfigError(f"train.{name} = {getattr(self, name)} must be above 0")
        if self.policy_only and not self.start:
            raise ConfigError("train.policy_only = true needs train.start, the model whose policy is to learn")
        if self.policy_only and self.forget > 0.0:
            raise ConfigError(f"train.forget = {self.forget} would change answers that train.policy_only leaves alone")
        if not self.headroom >= 1.0:
            raise ConfigError(f"train.headroom = {self.headroom} must be at least 1")
        for name in (
            "weight_decay",
            "balance",
            "forget",
            "late",
            "clip",
            "tet",
            "imitation",
            "imitation_steps",
            "rate_penalty",
            "rate_target",
            "distil",
        ):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"train.{name} = {getattr(self, name)} must be at least 0")


@dataclass(frozen=True)
class Recipe:
    name: str
    seed: int = 0
    data: DataRecipe = field(default_factory=DataRecipe)
    chunking: Chunking = field(default_factory=Chunking)
    model: ModelRecipe = field(default_factory=ModelRecipe)
    augment: Augmentation = field(default_factory=Augmentation)
    train: TrainRecipe = field(default_factory=TrainRecipe)

    def __post_init__(self) -> None:
        if not 0 <= self.seed < SEEDS:
            raise ConfigError(f"seed = {self.seed} must be at least 0 and below {SEEDS}")

    def changed(self, **sections: dict[str, Any]) -> Recipe:
        """A copy with some keys of some sections replaced."""
        new = {name: dataclasses.replace(getattr(self, name), **keys) for name, keys in sections.items()}
        return dataclasses.replace(self, **new)

    def as_dict(self) -> dict[str, Any]:
        """Plain nested data, as TOML would hold it (no entry for what is not set)."""
        plain = dataclasses.asdict(self)
        for section, values in plain.items():
            if isinstance(values, dict):
                kept = {k: list(v) if isinstance(v, tuple) else v for k, v in values.items() if v is not None}
                plain[section] = kept
        return plain


def from_dict(source: str, values: dict[str, Any]) -> Recipe:
    """Nested data -> Recipe; `source` names the file in errors. Unknown keys are errors."""
    fields = {f.name: f for f in dataclasses.fields(Recipe)}
    kinds = typing.get_type_hints(Recipe)
    found: dict[str, Any] = {}
    for key, value in values.items():
        if key not in fields:
            raise ConfigError(f"{source}: unknown key '{key}'{nearest(key, fields)}")
        if dataclasses.is_dataclass(kinds[key]):
            found[key] = _section(source, key, kinds[key], value)
        else:
            found[key] = _typed(source, key, kinds[key], value)
    found.setdefault("name", Path(source).stem)
    try:
        return Recipe(**found)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def _section(source: str, name: str, kind: Any, values: Any) -> Any:
    if not isinstance(values, dict):
        raise ConfigError(f"{source}: [{name}] must be a table")
    kinds = typing.get_type_hints(kind)
    typed = {}
    for key, value in values.items():
        if key not in kinds:
            raise ConfigError(f"{source}: unknown key '{name}.{key}'{nearest(key, kinds)}")
        typed[key] = _typed(source, f"{name}.{key}", kinds[key], value)
    try:
        return kind(**typed)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def _typed(source: str, key: str, kind: Any, value: Any) -> Any:
    if isinstance(kind, types.UnionType):  # `float | None`
        kind = next(option for option in typing.get_args(kind) if option is not type(None))
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{source}: {key} = {value!r} must be a list")
        return tuple(_typed(source, key, item, v) for v in value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ConfigError(f"{source}: {key} = {value!r} must be of type {kind.__name__}")
    if kind is float and not math.isfinite(value):
        raise ConfigError(f"{source}: {key} = {value!r} must be a finite number")
    return value


def names() -> list[str]:
    """The recipes that come with the package."""
    folder = resources.files("asp_neuro.recipes")
    return sorted(entry.name[: -len(".toml")] for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load(name: str | Path) -> Recipe:
    """A recipe by name, or from a TOML file. A shipped name wins over a file or folder that happens to be called so."""
    text = str(name)
    if text not in names():
        if os.path.isfile(text):
            return _parse(text, _bytes(text))
        if text.endswith(".toml"):
            raise MissingError(f"recipe file '{text}' does not exist; shipped recipes: {', '.join(names())}")
        raise ConfigError(f"unknown recipe '{text}'{nearest(text, names())}")
    return _parse(f"{text}.toml", (resources.files("asp_neuro.recipes") / f"{text}.toml").read_bytes())


def _bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise MissingError(f"recipe file '{path}' cannot be read: {error.strerror}") from None


def _parse(source: str, data: bytes) -> Recipe:
    try:
        values = tomli.loads(data.decode())
    except (tomli.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{source}: not a TOML file ({error})") from None
    return from_dict(source, values)


def _at_least(key: str, value: int, limit: int) -> None:
    if value < limit:
        raise ConfigError(f"{key} = {value} must be at least {limit}")
