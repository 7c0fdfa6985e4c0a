"""Small random networks for tests: valid, and lively (heads fire 10 to 60 % of the time on `random_drives`)."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from asp_neuro.bundle import Golden, make_golden
from asp_neuro.grid.arithmetic import BIAS_BITS
from asp_neuro.grid.sections import NORM_BITS, Norm, random
from asp_neuro.heads.bits import DRIVE_BITS
from asp_neuro.heads.soft.layer import LayerSpec
from asp_neuro.heads.soft.membrane import align_shift
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.model.mixer import MixerSpec
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.model.policy import PolicySpec
from asp_neuro.model.spec import ModelSpec
from asp_neuro.scenes.cloud import N_DESCRIPTOR, N_MOMENTS, N_OUTLINE, Chunking
from asp_neuro.scenes.cloud_encoder import CloudSpec
from asp_neuro.scenes.image import Gaze
from asp_neuro.scenes.image_encoder import ImageSpec
from asp_neuro.tasks.classify import ClassifySpec
from asp_neuro.tasks.parts import PartsSpec

SMALL = Chunking(n_points=96, n_groups=16, group_size=8, n_chunks=6)


def random_layer(rng: np.random.Generator, n_inputs: int, n_neurons: int, first: bool) -> LayerSpec:
    """Rows of mean about 0, thresholds at about the spread of the synaptic sum, so that neurons fire now and then."""
    raw = rng.normal(0.0, 50.0, (n_neurons, n_inputs))
    if n_inputs > 1 and not first:
        raw -= raw.mean(axis=1, keepdims=True)
    weight = np.clip(2 * np.rint(raw / 2), -256, 254).astype(np.int64)
    state_bits = int(rng.integers(12, 15))
    spread = np.sqrt(n_inputs) * 50.0 * (64.0 if first else 0.5) * 2.0 ** align_shift(state_bits, first_layer=first)
    theta = spread * rng.uniform(0.6, 1.4, n_neurons)
    return LayerSpec(
        weight_int=weight,
        bias_int=np.rint(spread * rng.uniform(-0.2, 0.4, n_neurons)).astype(np.int64),
        lambda_int=rng.integers(3000, 4096, n_neurons),
        theta_int=np.rint(theta).astype(np.int64),
        theta_fire_int=np.floor(theta * rng.uniform(0.8, 1.2, n_neurons)).astype(np.int64),
        factor=rng.uniform(0.5, 2.0, n_neurons),
        state_bits=state_bits,
    )


def random_head(rng: np.random.Generator, n_inputs: int = 16, n_neurons: int = 16, n_layers: int = 2) -> HeadSpec:
    layers = [random_layer(rng, n_inputs if i == 0 else n_neurons, n_neurons, i == 0) for i in range(n_layers)]
    return HeadSpec(tuple(layers))


def random_drives(rng: np.random.Generator, n_steps: int, batch: int, n_inputs: int) -> np.ndarray:
    """[T, b, n] int64, spread like a LayerNormed drive: 2^6 steps a unit."""
    return np.rint(rng.normal(0.0, 64.0, (n_steps, batch, n_inputs))).astype(np.int64)


def random_draw(rng: np.random.Generator):
    """Arrays for `sections.random`, of sizes at which a model is lively: activations fill their 8 bits, not more."""

    def draw(path: str, shape: tuple[int, ...]) -> np.ndarray:
        place, _, name = path.rpartition("/")
        if name == "gain":
            return np.rint(rng.uniform(0.7, 1.3, shape) * GAIN.get(place, 1.0) * 2.0**NORM_BITS)
        if name == "exponents":
            return rng.integers(-1, 4, shape)
        if name == "shift":
            return shifts(place, shape[0])
        if name == "bias":
            if place in ("", "embedding", "drive"):
                return np.rint(rng.normal(0.0, 0.1, shape) * GAIN.get(place, 1.0) * 2.0**NORM_BITS)
            finer = 2.0**BIAS_BITS if place in BEHIND else 200.0
            return np.rint(rng.normal(0.0, 0.1, shape) * 2.0 ** shifts(place, shape[0]) * finer)
        return np.clip(np.rint(rng.normal(0.0, 45.0, shape)), -127, 127)

    return draw


GAIN = {"embedding": 40.0, "drive": 64.0}  # output steps per unit
SHIFT = {"edge_in": 11, "geometry": 4, "readout": 6, "from_belief": 7, "from_descriptor": 5, "score": 5}
SHIFT |= {"first/outline": 6, "first/score": 5}
BEHIND = ("readout", "from_descriptor", "first/outline")


def shifts(place: str, n: int) -> np.ndarray:
    """[n]: those of the gates a and b, which have a step of 2^-4, are larger than those of v, c and skip."""
    if place == "gates":
        return np.repeat([8, 8, 4, 4, 4], n // 5)
    return np.full(n, SHIFT.get(place, 7))


def random_scene(
    rng: np.random.Generator,
    width: int = 16,
    edge_widths: tuple[int, int] = (8, 12),
    token_width: int | None = None,
    moments: bool = False,
    chunking: Chunking = SMALL,
) -> CloudSpec:
    """Clouds with embeddings of width D; a token width of its own makes a chunk layer."""
    first, second = edge_widths
    sizes = {"e1": first, "e2": second, "t": 3 + (N_MOMENTS if moments else 0), "D": width}
    sizes["w"] = token_width or width
    absent = () if token_width else ("chunk",)
    return random(CloudSpec, sizes, random_draw(rng), {"chunking": chunking}, absent)


def random_mixer(rng: np.random.Generator, width: int = 16, drive_bits: int = DRIVE_BITS) -> MixerSpec:
    sizes = {"w": width, "5 D": 5 * width, "D": width}
    made = random(MixerSpec, sizes, random_draw(rng), {"skip_shift": 10})
    drive = Norm(*(array >> (DRIVE_BITS - drive_bits) for array in (made.drive.gain, made.drive.bias)))
    return dataclasses.replace(made, drive=drive)


def random_policy(
    rng: np.random.Generator,
    n_neurons: int = 16,
    policy_width: int = 8,
    first_look: int = 0,
    scorer: str = "bilinear",
    mask: bool = True,
) -> PolicySpec:
    """Units make a first look."""
    sizes = {"d": policy_width, "H": n_neurons, "g": N_DESCRIPTOR, "f": first_look, "3 g": N_OUTLINE}
    absent = () if first_look else ("first",)
    return random(PolicySpec, sizes, random_draw(rng), {"scorer": scorer, "mask": mask}, absent)


def random_task(rng: np.random.Generator, n_neurons: int = 16, n_classes: int = 4) -> ClassifySpec:
    classes = tuple(f"class {i}" for i in range(n_classes))
    return random(ClassifySpec, {"C": n_classes, "H": n_neurons}, random_draw(rng), {"classes": classes})


def random_model(
    rng: np.random.Generator,
    width: int = 16,
    n_neurons: int = 16,
    n_layers: int = 2,
    n_classes: int = 4,
    chunking: Chunking = SMALL,
    budget: int | None = None,
    head: HeadSpec | None = None,
    policy_width: int = 8,
    first_look: int = 0,
    scorer: str = "bilinear",
    mask: bool = True,
    **scene: Any,
) -> ModelSpec:
    """A whole model of classified clouds; `scene` goes to `random_scene`."""
    head = head or random_head(rng, width, n_neurons, n_layers)
    return ModelSpec(
        head=head,
        scene=random_scene(rng, width, chunking=chunking, **scene),
        mixer=random_mixer(rng, width, head.neurons.drive_bits),
        belief=random(Norm, {"n": n_neurons}, random_draw(rng)),
        policy=random_policy(rng, n_neurons, policy_width, first_look, scorer, mask),
        task=random_task(rng, n_neurons, n_classes),
        budget=budget or chunking.n_chunks,
    )


SMALL_GAZE = Gaze(size=36, side=3, pitch=8, grid=12, scales=(1, 2), near=12, wide=28, budget=4)


DEEP_GAZE = Gaze(size=40, channels=3, side=3, pitch=8, grid=26, scales=(1, 2), near=8, wide=24, budget=4)


def random_image_scene(
    rng: np.random.Generator, gaze: Gaze = SMALL_GAZE, width: int = 16, deep: bool = False
) -> ImageSpec:
    """Images with small convolutions, three or four."""
    k, c = len(gaze.scales), gaze.channels
    sizes = {"c1": 4, "c2": 5, "c3": 6, "c4": 7, "9 c": 9 * c, "9 c1": 36, "9 c2": 45, "third in": 63 if deep else 45}
    sizes |= {"k": k, "k c3 + 2": 6 * k + 2, "w": width}
    usual = random_draw(rng)

    def draw(path: str, shape: tuple[int, ...]) -> np.ndarray:
        if path == "embedding/bias":
            return rng.integers(-3000, 3000, shape)
        return rng.integers(-2000, 2000, shape) if path == "scale" else usual(path, shape)

    return random(ImageSpec, sizes, draw, {"gaze": gaze}, absent=() if deep else ("between",))


def random_image_model(rng: np.random.Generator, gaze: Gaze = SMALL_GAZE, first_look: int = 5) -> ModelSpec:
    """A whole model of classified images; four convolutions for DEEP_GAZE."""
    scene = random_image_scene(rng, gaze, deep=gaze == DEEP_GAZE)
    return dataclasses.replace(random_model(rng, first_look=first_look), scene=scene, budget=gaze.budget)


def random_images(rng: np.random.Generator, n: int, gaze: Gaze = SMALL_GAZE) -> np.ndarray:
    """Blots of light: dark images with bright rectangles."""
    out = np.zeros((n, *gaze.shape), dtype=np.uint8)
    for image in out:
        for _ in range(6):
            y, x = rng.integers(0, gaze.size - 4, 2)
            h, w = rng.integers(3, 12, 2)
            image[y : y + h, x : x + w] = rng.integers(40, 256, image.shape[2:])
    return out


def random_perceiver(rng: np.random.Generator, **parts: Any) -> Perceiver:
    """`parts` go to `random_model`."""
    return Perceiver(random_model(rng, **parts))


def random_clouds(rng: np.random.Generator, n: int, n_points: int = SMALL.n_points) -> np.ndarray:
    """[n, P, 3] float64: squeezed, turned balls with a dent, all different."""
    points = rng.normal(size=(n, n_points, 3)) * rng.uniform(0.3, 1.5, (n, 1, 3))
    return points + np.abs(points[..., ::-1]) * rng.uniform(-0.7, 0.7, (n, 1, 3))


def golden(model: ModelSpec, drives_int: np.ndarray) -> Golden:
    """Golden vectors of given drives and of two random clouds."""
    points = random_clouds(np.random.default_rng(7), 2, model.scene.chunking.n_points)
    return make_golden(model, drives_int, np.rint(points * 2000.0).astype(np.int16))


def random_parts(
    rng: np.random.Generator, n_neurons: int = 16, inputs: int = 64, hidden: int = 12, count: tuple[int, ...] = (2, 3)
) -> PartsSpec:
    """Parts of two categories, asked of few points."""
    names = tuple(f"kind {i}" for i in range(len(count)))
    sizes = {"h": hidden, "i": inputs, "k": len(count) + 1, "n": sum(count), "H": n_neurons, "C": len(count)}
    values = {"classes": names, "count": count, "n_near": 4, "asked": 8, "quantile": 0.25}
    return random(PartsSpec, sizes, random_draw(rng), values)


def random_part_model(rng: np.random.Generator, **how: Any) -> ModelSpec:
    """A whole model of parts; widths of 16."""
    made = random_model(rng, token_width=16, **how)
    return dataclasses.replace(made, task=random_parts(rng, made.head.n_neurons))
