"""What passes between the two sides of a Lava session: the job as an .npz file, answers as JSON lines. No pickle."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import json
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np

from asp_neuro import scenes
from asp_neuro.bundle import layout
from asp_neuro.grid.sections import build, leaves, settings
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.spec import ModelSpec

FIXED, FLOATING = "fixed_pt", "floating_pt"
SCENES = "scenes/"  # before the paths of a batch of scenes
PLAIN = ("n_steps", "tag", "idle", "idle_seed")
ARRAYS = ("order", "drives_int", "drive_bound", "net_config")


@dataclass(frozen=True)
class Job:
    """One session's work: a head, and either scenes to answer (`model`, `scenes`) or drives to play (`drives_int`)."""

    head: HeadSpec
    n_steps: int  # most observations of an episode: sets the guard band
    model: ModelSpec | None = None
    scenes: Any = None
    exit_rule: ExitRule = field(default_factory=ExitRule)
    order: np.ndarray | None = None  # [n, M]
    drives_int: np.ndarray | None = None  # [T, n, D]
    drive_bound: np.ndarray | None = None  # [D]
    net_config: np.ndarray | None = None  # uint8, a bundle's file, for stock NetX
    tag: str = FIXED
    idle: int = 0  # steps between observations; with a seed, 0..idle at random
    idle_seed: int | None = None

    @property
    def n_clouds(self) -> int:
        return len(self.scenes) if self.scenes is not None else int(self.drives_int.shape[1])  # type: ignore[union-attr]


def write_job(file: BinaryIO, job: Job) -> None:
    """Arrays by path, as in a bundle; all else as one JSON text among them."""
    arrays = {**{name: getattr(job, name) for name in ARRAYS}, **layout.head_arrays(job.head)}
    plain: dict[str, Any] = {name: getattr(job, name) for name in PLAIN}
    plain["exit_rule"] = dataclasses.asdict(job.exit_rule)
    plain["names"] = {"form": job.head.form}
    if job.model is not None:
        arrays |= layout.section_arrays(job.model)
        arrays |= {f"{SCENES}{path}": array for path, array in leaves(job.scenes).items()}
        plain |= {"names": layout.names_of(job.model), "scenes": settings(job.scenes)}
    text = np.frombuffer(json.dumps(plain).encode(), dtype=np.uint8)
    np.savez(file, text=text, **{name: array for name, array in arrays.items() if array is not None})


def read_job(file: BinaryIO) -> Job:
    """The job that `write_job` wrote."""
    with np.load(file, allow_pickle=False) as archive:
        arrays = dict(archive)
    plain = json.loads(arrays.pop("text").tobytes())
    names = plain["names"]
    head = layout.read_head(arrays, names["form"])
    model = batch = None
    if "scenes" in plain:
        model = layout.read_model(arrays, names)
        batch = build(scenes.KINDS[names["scene"]].batch, layout.below(arrays, SCENES), plain["scenes"])
    return Job(
        head=head,
        model=model,
        scenes=batch,
        exit_rule=ExitRule(**plain["exit_rule"]),
        **{name: arrays.get(name) for name in ARRAYS},
        **{name: plain[name] for name in PLAIN},
    )


def to_line(value: object) -> bytes:
    """A record of ours as one JSON line; floats keep every bit, arrays their type, tuples and enums what they are."""
    return (json.dumps(_encode(value)) + "\n").encode()


def from_line(line: bytes) -> Any:
    """The value that `to_line` wrote."""
    return _decode(json.loads(line))


def _encode(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return {"array": value.tolist(), "dtype": value.dtype.str}
    if isinstance(value, enum.Enum):
        return {"kind": _kind(value), "value": value.value}
    if dataclasses.is_dataclass(value):
        return {
            "kind": _kind(value),
            "fields": {f.name: _encode(getattr(value, f.name)) for f in dataclasses.fields(value)},
        }
    if isinstance(value, tuple):
        return {"tuple": [_encode(item) for item in value]}
    if isinstance(value, list):
        return [_encode(item) for item in value]
    if isinstance(value, dict):
        return {"items": {key: _encode(item) for key, item in value.items()}}
    return value.item() if isinstance(value, np.generic) else value


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return np.array(value["array"], dtype=value["dtype"])
    if "tuple" in value:
        return tuple(_decode(item) for item in value["tuple"])
    if "items" in value:
        return {key: _decode(item) for key, item in value["items"].items()}
    module, name = value["kind"].split(":")
    kind = getattr(importlib.import_module(f"asp_neuro.{module}"), name)
    if "fields" in value:
        return kind(**{key: _decode(item) for key, item in value["fields"].items()})
    return kind(value["value"])


def _kind(value: object) -> str:
    """`episode:Answer`: only our own modules can be named."""
    package, _, module = type(value).__module__.partition(".")
    if package != "asp_neuro":
        raise TypeError(f"no line form for {type(value).__name__}")
    return f"{module}:{type(value).__name__}"
