"""What passes between the two sides of a Lava session: the job as an .npz file, answers as JSON lines. No pickle."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import json
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np

from asp_neuro.heads.spec import HeadSpec, LayerSpec
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.host import HostSpec
from asp_neuro.scenes.cloud import Chunks

FIXED, FLOATING = "fixed_pt", "floating_pt"
LAYER_ARRAYS = ("weight_int", "bias_int", "lambda_int", "theta_int", "theta_fire_int", "factor")
CHUNK_ARRAYS = ("points", "members", "first", "second")


@dataclass(frozen=True)
class Job:
    """One session's work: a head, and either clouds to answer (`host`, `chunks`) or drives to play (`drives_int`)."""

    head: HeadSpec
    n_steps: int  # most observations of an episode: sets the guard band
    host: HostSpec | None = None
    chunks: Chunks | None = None
    exit_rule: ExitRule = field(default_factory=ExitRule)
    order: np.ndarray | None = None  # [n, M]
    drives_int: np.ndarray | None = None  # [T, n, D]
    drive_bound: np.ndarray | None = None  # [D]
    tag: str = FIXED
    idle: int = 0  # steps between observations; with a seed, 0..idle at random
    idle_seed: int | None = None

    @property
    def n_clouds(self) -> int:
        return len(self.chunks) if self.chunks is not None else int(self.drives_int.shape[1])  # type: ignore[union-attr]


def write_job(file: BinaryIO, job: Job) -> None:
    """Arrays by name, all else as one JSON text among them."""
    arrays = {"order": job.order, "drives_int": job.drives_int, "drive_bound": job.drive_bound}
    plain: dict[str, Any] = {name: getattr(job, name) for name in ("n_steps", "tag", "idle", "idle_seed")}
    plain["exit_rule"] = dataclasses.asdict(job.exit_rule)
    plain["state_bits"] = [layer.state_bits for layer in job.head.layers]
    for index, layer in enumerate(job.head.layers):
        arrays |= {f"head.{index}.{name}": getattr(layer, name) for name in LAYER_ARRAYS}
    if job.host is not None:
        arrays |= {f"host.{name}": array for name, array in job.host.arrays().items()}
        plain |= {"scorer": job.host.scorer, "mask": job.host.mask}
    if job.chunks is not None:
        arrays |= {f"chunks.{name}": getattr(job.chunks, name) for name in CHUNK_ARRAYS}
        plain["n_chunks"] = job.chunks.n_chunks
    text = np.frombuffer(json.dumps(plain).encode(), dtype=np.uint8)
    np.savez(file, text=text, **{name: array for name, array in arrays.items() if array is not None})


def read_job(file: BinaryIO) -> Job:
    """The job that `write_job` wrote."""
    with np.load(file, allow_pickle=False) as archive:
        arrays = dict(archive)
    plain = json.loads(arrays.pop("text").tobytes())
    layers = [
        LayerSpec(**{name: arrays[f"head.{index}.{name}"] for name in LAYER_ARRAYS}, state_bits=bits)
        for index, bits in enumerate(plain["state_bits"])
    ]
    host = chunks = None
    if "scorer" in plain:
        weights = {name[5:]: array for name, array in arrays.items() if name.startswith("host.")}
        host = HostSpec(**weights, scorer=plain["scorer"], mask=plain["mask"])
    if "n_chunks" in plain:
        chunks = Chunks(**{name: arrays[f"chunks.{name}"] for name in CHUNK_ARRAYS}, n_chunks=plain["n_chunks"])
    return Job(
        head=HeadSpec(tuple(layers)),
        host=host,
        chunks=chunks,
        exit_rule=ExitRule(**plain["exit_rule"]),
        **{name: arrays.get(name) for name in ("order", "drives_int", "drive_bound")},
        **{name: plain[name] for name in ("n_steps", "tag", "idle", "idle_seed")},
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
