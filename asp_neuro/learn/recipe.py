"""Recipe: everything that decides a training, as frozen data read from TOML (`train/recipes/*.toml`).

    name, seed
    [data]      which data set, which of its splits
    [scene]     kind = "cloud": how a cloud is cut into chunks; "image": how an image is looked at
    [task]      kind = "classify": what is asked about a scene
    [model]     widths and options of the network
    [head]      form of neuron
    [augment]   how training clouds are changed
    [train]     optimisation, losses, quantisation-aware training

A recipe of before 0.2.0 reads to the same Recipe: `OLD_SECTIONS` and `OLD_KEYS` have the names that changed.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import typing
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from asp_neuro import plain
from asp_neuro.data import CARVES, PART_CARVES, PART_NAMES, RANDOM
from asp_neuro.data.room_crops import ROOM_NAMES, Crops
from asp_neuro.errors import ConfigError, MissingError, nearest
from asp_neuro.heads.spec import FORMS, SOFT
from asp_neuro.heads.stock.layer import EXP_MAX
from asp_neuro.scenes.augment import Augmentation
from asp_neuro.scenes.cloud import DESCRIPTORS, Chunking
from asp_neuro.scenes.image import Gaze

SEEDS = 2**32
HELD_OUT = ("validation", "calibration")  # carved from the training data: to choose by, and to certify with
SCORERS = ("bilinear", "geometry", "belief", "additive")
ORDERS = ("random", "fps_order")

# What recipes were called before 0.2.0. Files, checkpoints and bundles of that time hold these names: they are read for
# good, and never rewritten, because a bundle's hash covers the recipe as it was stored.
OLD_SECTIONS = {"chunking": "scene"}
OLD_KEYS = {
    "train": {
        "deploy_epochs": "qat_epochs",
        "batch": "batch_size",
        "clip": "gradient_clip",
        "smoothing": "label_smoothing",
        "balance": "class_weight_power",
        "forget": "logit_adjustment",
        "late": "step_weight_power",
        "mix": "mixup",
        "policy_alone": "detach_belief",
        "policy_rate": "policy_learning_rate_factor",
        "rate_penalty": "firing_rate_penalty",
        "rate_target": "firing_rate_target",
        "ema": "ema_decay",
        "distil": "distillation",
        "distil_temperature": "distillation_temperature",
    }
}

# Limits of the numbers in [train].
SHARES = (
    "label_smoothing",
    "random_share",
    "mixup",
    "ema_decay",
    "warmup",
    "guided",
    "whole_first",
)  # below 1, or 1 for those of WHOLE
WHOLE = ("random_share", "whole_first")
ABOVE_ZERO = (
    "learning_rate",
    "policy_learning_rate_factor",
    "temperature_start",
    "temperature_end",
    "imitation_temperature",
    "distillation_temperature",
)
AT_LEAST_ZERO = (
    "weight_decay",
    "class_weight_power",
    "logit_adjustment",
    "step_weight_power",
    "gradient_clip",
    "tet",
    "imitation",
    "imitation_steps",
    "firing_rate_penalty",
    "firing_rate_target",
    "distillation",
    "policy_gradient",
    "entropy",
    "whole",
    "lookahead",
    "epoch_steps",
    "own_steps",
)


@dataclass(frozen=True)
class DataRecipe:
    name: str = "shapes"  # a built-in name, or the kind of data that `--data` must hold
    classes: tuple[str, ...] = ()  # classes that the data must have; none: whatever is there
    also: tuple[str, ...] = ()  # splits trained on besides "train": a last training, when nothing is left to choose
    without: tuple[str, ...] = ()  # sets whose validation and calibration clouds are not trained on, or SET/SPLIT
    splits: str = plain.later(RANDOM)  # how ModelNet's train split is carved: a rule of `asp_neuro.data.splits`
    crop: float = plain.later(2.0)  # m, side of a crop, of rooms
    crops: int = plain.later(1000)  # to train on, of rooms
    rare_share: float = plain.later(0.0)  # of them, centred on a point of a rare class (H.4)

    def __post_init__(self) -> None:
        carves = PART_CARVES if self.name in PART_NAMES else CARVES
        if self.splits not in carves:
            raise ConfigError(f"data.splits = '{self.splits}'{nearest(self.splits, carves)}")
        for split in self.also:
            if split not in HELD_OUT:
                raise ConfigError(f"data.also = '{split}'{nearest(split, HELD_OUT)}")
        for entry in self.without:
            split = entry.partition("/")[2]
            if "/" in entry and split not in HELD_OUT:
                raise ConfigError(f"data.without = '{entry}': no split '{split}'{nearest(split, HELD_OUT)}")
        Crops(self.crop, self.crops, self.rare_share)

    @property
    def room_crops(self) -> Crops | None:
        """How rooms are cropped; None: the data are no rooms."""
        return Crops(self.crop, self.crops, self.rare_share) if self.name in ROOM_NAMES else None


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
    conv_widths: tuple[int, ...] = plain.later((8, 16, 32))  # of a glimpse's convolutions, for images: three, or four
    at_once: bool = plain.later(False)  # images: whole maps are encoded, for all places; else glimpse by glimpse
    hidden: tuple[str, ...] = plain.later(())  # descriptors that the policy does not see (`DESCRIPTORS`, J.11)

    def __post_init__(self) -> None:
        for name in ("width", "neurons", "layers", "policy_width"):
            _at_least(f"model.{name}", getattr(self, name), 1)
        _at_least("model.first_look", self.first_look, 0)
        if len(self.edge_widths) != 2 or min(self.edge_widths) < 1:
            raise ConfigError(f"model.edge_widths = {list(self.edge_widths)}: expected two widths of at least 1")
        if len(self.conv_widths) not in (3, 4) or min(self.conv_widths) < 1:
            raise ConfigError(f"model.conv_widths = {list(self.conv_widths)}: expected 3 or 4 widths of at least 1")
        if self.scorer not in SCORERS:
            raise ConfigError(f"model.scorer = '{self.scorer}'{nearest(self.scorer, SCORERS)}")
        for name in self.hidden:
            if name not in DESCRIPTORS:
                raise ConfigError(f"model.hidden = '{name}'{nearest(name, DESCRIPTORS)}")
        if self.scorer == "belief" and self.first_look:
            raise ConfigError(
                f"model.first_look = {self.first_look} sees geometry, which model.scorer = 'belief' rules out"
            )


@dataclass(frozen=True)
class HeadRecipe:
    form: str = SOFT  # of neuron: "soft" (ticked, exact), "stock" (free-running, of stock Lava processes)
    steps: int = 12  # N, time steps an observation, of the stock form; export may choose another
    read_after: int = 3  # p, time steps from a pulse to the reading, of the stock form
    weight_exp: tuple[int, ...] = ()  # of each layer of the stock form; above 0 more is proven, but not for stock NetX

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise ConfigError(f"head.form = '{self.form}'{nearest(self.form, FORMS)}")
        if not 1 <= self.read_after <= self.steps - 2:
            raise ConfigError(f"head.read_after = {self.read_after} must be between 1 and steps - 2 = {self.steps - 2}")
        for value in self.weight_exp:
            if not 0 <= value <= EXP_MAX:
                raise ConfigError(f"head.weight_exp = {list(self.weight_exp)}: expected numbers from 0 to {EXP_MAX}")


@dataclass(frozen=True)
class TrainRecipe:
    epochs: int = 30  # in all
    qat_epochs: int = 8  # the last of them: quantisation-aware training, on the integer grid
    start: str = ""  # a checkpoint, or the name of a shipped one, whose weights this training starts from
    batch_size: int = 32
    learning_rate: float = 2e-3
    weight_decay: float = 1e-2
    warmup: float = 0.1  # share of the run
    gradient_clip: float = 1.0  # largest gradient norm; 0 is off
    label_smoothing: float = 0.1
    class_weight_power: float = 0.0  # a cloud counts by (number of its class)^-power; 1: every class weighs the same
    logit_adjustment: float = 0.0  # share of the log class frequencies taken off the finished logits; 1: all of them
    step_weight_power: float = 0.0  # step t counts t^power; 0 is the paper's mean over steps
    tet: float = 0.0  # weight of temporal efficient training: agreement with the last logits (Eq. 4)
    temperature_start: float = 1.0  # of the Gumbel-softmax
    temperature_end: float = 0.1
    random_share: float = 0.4  # clouds that take a random order instead of the sampled one
    mixup: float = 0.0  # clouds that get chunks of another cloud, and its label in proportion; in a random order
    imitation: float = 0.0  # weight of imitating the oracle's one-step ranking
    imitation_steps: int = 8
    imitation_temperature: float = 0.3
    detach_belief: bool = False  # no gradient of the policy reaches the belief, which then learns from labels alone
    policy_learning_rate_factor: float = 1.0  # times the learning rate, for the policy
    policy_only: bool = False  # all other parts are frozen as `start` left them, on the integer grid if it was
    firing_rate_penalty: float = 0.0
    firing_rate_target: float = 0.3  # what the penalty leaves free
    ema_decay: float = 0.0  # per step, of the exponential moving average of the weights; 0 is off
    distillation: float = 0.0  # weight of a teacher's soft targets
    distillation_temperature: float = 2.0
    headroom: float = 2.0  # of the integer state over the largest membrane seen
    policy_gradient: float = plain.later(0.0)  # weight of the score-function gradient, for images; 0: Gumbel-softmax
    entropy: float = plain.later(0.0)  # weight of the policy's entropy beside it, falling to nothing
    guided: float = plain.later(0.0)  # share of the run in which images are read brightest place first, with noise
    whole: float = plain.later(0.0)  # weight of naming the class from whole maps (`model.at_once`): the dense control
    whole_first: float = plain.later(0.0)  # share of the run in which nothing else is learned; 1: a stage
    epoch_steps: int = plain.later(0)  # batches an epoch, of images that are drawn anew; 0: all images once
    given_order: str = plain.later("random")  # what `random_share` takes; "fps_order" with a share of 1: no loop (J.4)
    lookahead: float = plain.later(0.0)  # weight of what the policy leaves of the true class by its next look
    bfloat16: bool = plain.later(False)  # images: convolutions learn in half the digits, up to the integer grid
    own_steps: int = plain.later(1400)  # at least, on a folder of one's own clouds: epochs follow; 0: `epochs` as it is

    def __post_init__(self) -> None:
        _at_least("train.epochs", self.epochs, 1)
        _at_least("train.batch_size", self.batch_size, 2)
        if not 0 <= self.qat_epochs <= self.epochs:
            raise ConfigError(f"train.qat_epochs = {self.qat_epochs} must be between 0 and epochs = {self.epochs}")
        for name in SHARES:
            value = getattr(self, name)
            if not 0.0 <= value < 1.0 and not (name in WHOLE and value == 1.0):
                raise ConfigError(f"train.{name} = {value} must be at least 0 and below 1")
        for name in ABOVE_ZERO:
            if not getattr(self, name) > 0.0:
                raise ConfigError(f"train.{name} = {getattr(self, name)} must be above 0")
        if self.whole_first > 0.0 and not self.whole > 0.0:
            raise ConfigError(f"train.whole_first = {self.whole_first} needs train.whole, the weight of that lesson")
        if self.given_order not in ORDERS:
            raise ConfigError(f"train.given_order = '{self.given_order}'{nearest(self.given_order, ORDERS)}")
        if self.policy_only and not self.start:
            raise ConfigError("train.policy_only = true needs train.start, the model whose policy is to learn")
        if self.policy_only and self.logit_adjustment > 0.0:
            value = self.logit_adjustment
            raise ConfigError(f"train.logit_adjustment = {value} would change answers that train.policy_only freezes")
        if not self.headroom >= 1.0:
            raise ConfigError(f"train.headroom = {self.headroom} must be at least 1")
        for name in AT_LEAST_ZERO:
            if not getattr(self, name) >= 0:
                raise ConfigError(f"train.{name} = {getattr(self, name)} must be at least 0")


@dataclass(frozen=True)
class ClassifyRecipe:
    """One class per scene. Nothing to set: the classes are those of the data."""


@dataclass(frozen=True)
class PartsRecipe:
    """A part for every point of a cloud, of those that its category has."""

    parts: tuple[int, ...] = ()  # how many each category has, in the order of the data's categories
    hidden: int = 128  # units of contexts and of points
    near: int = 8  # neighbours that a group hears, itself among them
    queries: int = 128  # points of a cloud that a step of training asks for
    jaccard: float = 0.5  # weight of the soft Jaccard loss beside the cross-entropy
    category_loss: float = 0.3  # weight of the category's cross-entropy
    unknown_share: float = 0.2  # clouds whose category is not given, at training
    asked: int = 64  # points that the exit is decided on
    quantile: float = 0.1  # of their margins: the margin of the cloud
    lovasz: float = plain.later(0.0)  # weight of the Lovász-Softmax loss (H.4)
    part_weight_power: float = plain.later(0.0)  # a point counts by (share of its part)^-power
    anneal_start: float = plain.later(1.0)  # share of the run at which both begin to fall
    anneal_end: float = plain.later(1.0)  # and at which they stop
    anneal_floor: float = plain.later(1.0)  # what is left of them then
    exempt: tuple[int, ...] = plain.later(())  # parts for which they never fall

    def __post_init__(self) -> None:
        if not self.parts or min(self.parts) < 1:
            raise ConfigError(f"task.parts = {list(self.parts)}: expected how many parts each category has")
        for name in ("hidden", "near", "queries", "asked"):
            _at_least(f"task.{name}", getattr(self, name), 1)
        for name in ("jaccard", "category_loss", "lovasz", "part_weight_power"):
            if not getattr(self, name) >= 0.0:
                raise ConfigError(f"task.{name} = {getattr(self, name)} must be at least 0")
        for name in ("unknown_share", "quantile"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ConfigError(f"task.{name} = {getattr(self, name)} must be at least 0 and below 1")
        if not 0.0 <= self.anneal_start <= self.anneal_end <= 1.0 or not 0.0 <= self.anneal_floor <= 1.0:
            raise ConfigError(
                f"task.anneal_start = {self.anneal_start}, anneal_end = {self.anneal_end}, anneal_floor = "
                f"{self.anneal_floor}: shares of 1, the start not after the end"
            )
        for part in self.exempt:
            if not 0 <= part < sum(self.parts):
                raise ConfigError(f"task.exempt = {part}: the parts are 0 to {sum(self.parts) - 1}")


SCENES: dict[str, type] = {"cloud": Chunking, "image": Gaze}  # kind in [scene] -> its settings
TASKS: dict[str, type] = {"classify": ClassifyRecipe, "parts": PartsRecipe}  # kind in [task] -> its settings
KINDS = {"scene": SCENES, "task": TASKS}


@dataclass(frozen=True)
class Recipe:
    name: str
    seed: int = 0
    data: DataRecipe = field(default_factory=DataRecipe)
    scene: Chunking | Gaze = field(default_factory=Chunking)
    task: ClassifyRecipe | PartsRecipe = field(default_factory=ClassifyRecipe)
    model: ModelRecipe = field(default_factory=ModelRecipe)
    augment: Augmentation = field(default_factory=Augmentation)
    train: TrainRecipe = field(default_factory=TrainRecipe)
    head: HeadRecipe = plain.later(HeadRecipe())

    def __post_init__(self) -> None:
        if not 0 <= self.seed < SEEDS:
            raise ConfigError(f"seed = {self.seed} must be at least 0 and below {SEEDS}")

    @property
    def chunking(self) -> Chunking:
        """How a cloud is cut: the settings of [scene] with kind = "cloud"."""
        if not isinstance(self.scene, Chunking):
            raise ConfigError(f"recipe '{self.name}' is not about clouds: scene.kind = '{self.scene_kind}'")
        return self.scene

    @property
    def scene_kind(self) -> str:
        return _kind_of(self.scene, SCENES)

    def changed(self, **sections: dict[str, Any]) -> Recipe:
        """A copy with some keys of some sections replaced; old names do as well."""
        parts = translated("changed", sections)
        new = {name: dataclasses.replace(getattr(self, name), **keys) for name, keys in parts.items()}
        return dataclasses.replace(self, **new)

    def as_dict(self) -> dict[str, Any]:
        """Plain nested data, as TOML would hold it (no entry for what is not set)."""
        tables = plain.of(self, unset=False)
        for name, known in KINDS.items():
            tables[name] = {"kind": _kind_of(getattr(self, name), known), **tables[name]}
        return tables


def _kind_of(settings: Any, known: dict[str, type]) -> str:
    return next(kind for kind, own in known.items() if type(settings) is own)


def translated(source: str, values: dict[str, Any]) -> dict[str, Any]:
    """A copy in which sections and keys have their names of today (`OLD_SECTIONS`, `OLD_KEYS`); values stay."""
    sections = _renamed(source, "", values, OLD_SECTIONS)
    for section, keys in OLD_KEYS.items():
        if isinstance(sections.get(section), dict):
            sections[section] = _renamed(source, f"{section}.", sections[section], keys)
    return sections


def _renamed(source: str, prefix: str, values: dict[str, Any], new_names: dict[str, str]) -> dict[str, Any]:
    for old, new in new_names.items():
        if old in values and new in values:
            raise ConfigError(f"{source}: '{prefix}{old}' is the old name of '{prefix}{new}'; give one of them")
    return {new_names.get(key, key): value for key, value in values.items()}


def from_dict(source: str, values: dict[str, Any]) -> Recipe:
    """Nested data, in names of today or old ones -> Recipe; `source` names the file in errors."""
    tables = translated(source, values)
    _check_names(source, "", tables, _names(Recipe), OLD_SECTIONS)
    for section, old in OLD_KEYS.items():
        known = _names(typing.get_type_hints(Recipe)[section])
        _check_names(source, f"{section}.", tables.get(section), known, old)
    kinds = {name: _of_kind(source, name, tables.pop(name)) for name in KINDS if name in tables}
    recipe = plain.read(Recipe, {"name": Path(source).stem, **tables}, source, ConfigError)
    return dataclasses.replace(recipe, **kinds)


def _names(cls: type) -> list[str]:
    return [f.name for f in dataclasses.fields(cls)]


def _check_names(source: str, prefix: str, table: Any, known: list[str], old: dict[str, str]) -> None:
    """An unknown key is answered with the nearest one; if that is an old name, with the name of today."""
    for key in table if isinstance(table, dict) else ():
        if key not in known:
            close = difflib.get_close_matches(str(key), [*known, *old], n=1)
            today = f"; did you mean '{old[close[0]]}'?" if close and close[0] in old else nearest(str(key), known)
            raise ConfigError(f"{source}: unknown key '{prefix}{key}'{today}")


def _of_kind(source: str, name: str, table: Any) -> Any:
    """The settings of a section that has several kinds; without a `kind` those of the first one."""
    known = KINDS[name]
    settings = dict(table) if isinstance(table, dict) else {}
    kind = settings.pop("kind", next(iter(known)))
    if not isinstance(kind, str) or kind not in known:
        raise ConfigError(f"{source}: {name}.kind = {kind!r}{nearest(str(kind), known)}")
    _check_names(source, f"{name}.", settings, ["kind", *_names(known[kind])], {})
    return plain.read(known[kind], settings if isinstance(table, dict) else table, source, ConfigError, within=name)


def names() -> list[str]:
    """The recipes that come with the package."""
    folder = resources.files("asp_neuro.recipes")
    return sorted(entry.name[: -len(".toml")] for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load(name: str | Path) -> Recipe:
    """A recipe by name, or from a TOML file. A shipped name wins over a file or folder that happens to be called so."""
    text = str(name)
    if text not in names():
        if os.path.isfile(text):
            return from_dict(text, plain.toml(_bytes(text), text))
        if text.endswith(".toml"):
            raise MissingError(f"recipe file '{text}' does not exist; shipped recipes: {', '.join(names())}")
        raise ConfigError(f"unknown recipe '{text}'{nearest(text, names())}")
    file = resources.files("asp_neuro.recipes") / f"{text}.toml"
    return from_dict(file.name, plain.toml(file.read_bytes(), file.name))


def _bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise MissingError(f"recipe file '{path}' cannot be read: {error.strerror}") from None


def _at_least(key: str, value: int, limit: int) -> None:
    if value < limit:
        raise ConfigError(f"{key} = {value} must be at least {limit}")
