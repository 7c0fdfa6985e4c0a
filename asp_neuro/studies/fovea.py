"""The paper's own experiment on images (F.3 to F.5), repeated at a small scale beside the spiking model.

The analog foveated transformer, with the mean and with a GRU as accumulator, and its dense control (`learn/fovea.py`)
are trained alike, on the data of a shipped spiking model; all are read on the same images.

    operating points    accuracy, fixations, MACs and energy at thresholds of the margin, image by image
    anytime             accuracy after 1, 2, ... fixations, by the own rule and by rivals, at equal budget
    exits               how many images stop after 1, 2, ... fixations

Energy is the paper's, 4.6 pJ a multiply-accumulate and 0.9 pJ an accumulate, with the spiking model's measured firing.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from asp_neuro import files
from asp_neuro.certify import Recording
from asp_neuro.data.pictures import ImageSet
from asp_neuro.data.samples import load_samples, locate_samples
from asp_neuro.errors import UsageError
from asp_neuro.grid.softmax import margin
from asp_neuro.model.exit import ExitRule
from asp_neuro.report import say, table
from asp_neuro.runtime import energy, hardware
from asp_neuro.scenes.augment import Augmentation
from asp_neuro.scenes.image import Gaze
from asp_neuro.studies import plots
from asp_neuro.studies.comparison import Stop, answers, difference, measure
from asp_neuro.studies.deployed import DeployedSubject
from asp_neuro.studies.results import number, share, written
from asp_neuro.studies.subjects import Examples, clouds_of, cut

KINDS = ("mean", "gru", "dense")
NAMES = {"mean": "foveated, mean", "gru": "foveated, GRU", "dense": "dense control", "spiking": "spiking"}
THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
USUAL = 0.7  # the paper's threshold
BUDGET = 5  # fixations
PJ_TO_MJ = 1e-9
STEMS = {60: (16, 32, 64), 128: (16, 32, 64, 96)}  # 8 x 8 cells
SHOWN = 500  # images that the firing of the spiking model is measured on
ORACLE = 300  # images that oracles are asked about: one looks everywhere before each look


@dataclass(frozen=True)
class Asked:
    """What is trained, and how long."""

    seeds: tuple[int, ...] = (0, 1, 2)
    steps: int = 4000  # batches of 64 images


QUICK = Asked((0,), 40)


def run(
    model: str | Path = "clutter",
    asked: Asked = Asked(),
    *,
    data: str | None = None,
    split: str = "test",
    limit: int | None = None,
    out: Path = Path("study-fovea"),
) -> dict[str, Any]:
    """Train what is not yet trained, read everything, write into `out`."""
    from asp_neuro.learn import fovea

    spiking = DeployedSubject.open(model)
    gaze = spiking.origin.scene
    if not isinstance(gaze, Gaze):
        raise UsageError(f"'{model}' looks at clouds; study fovea is of images: asp-neuro study fovea clutter")
    files.make_folder(out)
    shape = fovea.Shape(gaze.size, gaze.channels, STEMS.get(gaze.size, STEMS[128]), budget=BUDGET)
    place = locate_samples(gaze, spiking.origin.data, data)
    lessons = fovea.Lessons(steps=asked.steps)
    pictures: ImageSet = clouds_of(spiking.origin, data, None, split, limit).relabelled(spiking.classes)
    lazy = functools.cache(lambda: load_samples(gaze, place, "train").relabelled(spiking.classes))
    found: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    for seed in asked.seeds:
        draw = _draws(lazy, lessons.batch_size, seed)
        for kind, models in found.items():
            told = _progress(kind, seed, asked.steps)
            path = out / f"{kind}-{seed}.pt"
            models.append(fovea.trained(kind, shape, len(spiking.classes), seed, lessons, draw, path, told))
    read: dict[tuple[str, str], list[Recording]] = {}
    few = pictures.subset(np.arange(min(ORACLE, len(pictures))))
    for kind, models in found.items():
        for rule in fovea.RULES if kind == "mean" else ("learned",):
            seen = few if rule == "oracle" else pictures
            say(f"{NAMES[kind]}, {rule}")
            read[kind, rule] = [
                _recording(fovea.read(one, seen.pixels, seen.labels, rule, seed), seen.labels)
                for one, seed in zip(models, asked.seeds)
            ]
    examples, some = cut(pictures, gaze), cut(few, gaze)
    for rule in fovea.RULES:
        read["spiking", rule] = [_within(spiking.read(some if rule == "oracle" else examples, rule))]
    costs = {kind: cost(shape, len(spiking.classes), kind) for kind in KINDS}
    report: dict[str, Any] = {
        "model": str(model),
        "data": pictures.source,
        "split": split,
        "n": len(pictures),
        "seeds": list(asked.seeds),
        "steps": asked.steps,
        "images_drawn": asked.steps * lessons.batch_size,
        "budget": BUDGET,
        "parameters": {kind: fovea.n_parameters(models[0]) for kind, models in found.items()}
        | {"spiking": _n_parameters(spiking)},
        "scale_embedding": int(found["mean"][0].scale.numel()),
        "macs": {kind: {"once": once, "fixation": each} for kind, (once, each) in costs.items()},
        "macs_by_hooks": {kind: fovea.hooked(models[0]) for kind, models in found.items()},
        "points": _points(read, costs, _spiking_energy(spiking, examples)),
        "anytime": _anytime(read),
        "exits": _exits(read),
        "n_oracle": len(few),
    }
    tables = {"": report["points"], "-anytime": report["anytime"], "-exits": report["exits"]}
    return written(out, "fovea", report, tables, plots.fovea_study)


def cost(shape: Any, n_classes: int, kind: str) -> tuple[int, int]:
    """Multiply-accumulates once for an image, and of each fixation, by hand."""
    from asp_neuro.learn import fovea

    return fovea.macs_by_hand(shape, n_classes, kind)


def _n_parameters(spiking: DeployedSubject) -> int:
    spec = spiking.perceiver.spec
    return int(spec.n_host_parameters + sum(layer.weight_int.size for layer in spec.head.layers))


def _draws(lazy: Any, batch_size: int, seed: int) -> Any:
    """Step -> images and labels: drawn anew where they can be, else cropped and mirrored. Every kind sees the same."""

    def draw(step: int) -> tuple[np.ndarray, np.ndarray]:
        from asp_neuro.learn.image_examples import changed

        data: ImageSet = lazy()
        rng = np.random.default_rng([seed, step])
        index = rng.integers(0, len(data), batch_size)
        if data.redraw is not None:
            return data.redraw(index, rng), data.labels[index]
        return changed(data.pixels[index], Augmentation(crop=0.35, mirror=True), rng), data.labels[index]

    return draw


def _progress(kind: str, seed: int, steps: int) -> Any:
    def show(step: int, loss: float) -> None:
        if step % max(1, steps // 10) == 0:
            say(f"{NAMES[kind]}, seed {seed}: step {step} of {steps}, loss {loss:.3f}")

    return show


def _recording(logits: np.ndarray, labels: np.ndarray) -> Recording:
    return Recording.from_predictions(margin(logits), logits.argmax(axis=2), labels)


def _within(recording: Recording) -> Recording:
    """The first fixations, as many as the analog models have."""
    return Recording(recording.margins[:BUDGET], recording.correct[:BUDGET])


def _spiking_energy(spiking: DeployedSubject, examples: Examples) -> tuple[float, float, float]:
    """MACs of a fixation, its energy in mJ by the paper's prices, and the same of 8-bit integers as they are run."""
    perceiver, scenes = spiking.perceiver, examples.chunks[: min(SHOWN, len(examples.labels))]
    usage = energy.measure(perceiver, [scenes], ExitRule(), "study fovea")
    found = energy.Estimate(perceiver.spec, usage, hardware.prices())
    each = [part for part in found.parts if not part.once]
    macs = sum(part.macs for part in each)
    paper, deployed = (sum(part.energy(one.price) for part in each) * PJ_TO_MJ for one in (found, found.deployed))
    return macs, paper, deployed


def _points(
    read: dict[tuple[str, str], list[Recording]],
    costs: dict[str, tuple[int, int]],
    spiking: tuple[float, float, float],
) -> list[dict[str, Any]]:
    """F.3: every model at every threshold, per-image exits; the control at its one point."""
    rows = []
    price = hardware.prices().values[energy.PAPER.group]["mac_pj"] * PJ_TO_MJ
    dense = costs["dense"][0] * price
    for kind in (*KINDS, "spiking"):
        stops = [Stop(1)] if kind == "dense" else [*(Stop(tau=tau) for tau in THRESHOLDS), Stop(BUDGET)]
        for stop in stops:
            got = measure(read[kind, "learned"], stop)
            if kind == "spiking":
                macs, mj = spiking[0] * got.observations, spiking[1] * got.observations
            else:
                once, each = costs[kind]
                macs = once + each * (0 if kind == "dense" else got.observations)
                mj = macs * price
            rows.append(
                {
                    "model": kind,
                    "threshold": stop.tau,
                    "accuracy": got.accuracy,
                    "spread": number(got.spread),
                    "fixations": got.observations,
                    "macs": macs,
                    "mj": mj,
                    "mj_integers": spiking[2] * got.observations if kind == "spiking" else None,
                    "times_less_than_dense": dense / mj,
                }
            )
    return rows


def _anytime(read: dict[tuple[str, str], list[Recording]]) -> list[dict[str, Any]]:
    """Accuracy after k fixations; of rivals also how far the own rule is ahead, image by image."""
    rows = []
    for (kind, rule), records in read.items():
        if kind == "dense":
            continue
        n = records[0].n
        own = [one.subset(np.arange(n)) for one in read[kind, "learned"]]
        for k in range(1, BUDGET + 1):
            got, ahead = measure(records, Stop(k)), difference(own, records, Stop(k))
            rows.append(
                {
                    "model": kind,
                    "rule": rule,
                    "k": k,
                    "n": n,
                    "accuracy": got.accuracy,
                    "spread": number(got.spread),
                    "own_ahead": ahead.difference,
                    "standard_error": number(ahead.standard_error),
                }
            )
    return rows


def _exits(read: dict[tuple[str, str], list[Recording]]) -> list[dict[str, Any]]:
    """At the paper's threshold: the share of images that stop after k fixations."""
    rows = []
    for kind in ("mean", "gru", "spiking"):
        taken = np.concatenate([answers(one, Stop(tau=USUAL))[1] for one in read[kind, "learned"]])
        for k in range(1, BUDGET + 1):
            rows.append({"model": kind, "k": k, "share": float((taken == k).mean())})
    return rows


def text(report: dict[str, Any]) -> str:
    """F.3 to F.5 for people."""
    n_seeds, own = len(report["seeds"]), report["parameters"]
    lines = [
        f"{report['n']} images of {report['data']}, {n_seeds} seed(s), {report['images_drawn']:,} images drawn each; "
        f"per-image exits at a margin",
        f"parameters: foveated {own['mean']:,}, its dense control {own['dense']:,} (fewer by the scale embedding, "
        f"{report['scale_embedding']:,}), with GRU {own['gru']:,}, spiking {own['spiking']:,}",
        "",
    ]
    body = [
        [
            NAMES[row["model"]],
            "-" if row["threshold"] is None else f"{row['threshold']:.2f}",
            share(row["accuracy"], row["spread"]),
            f"{row['fixations']:.2f}",
            f"{row['macs'] / 1e6:.2f}",
            f"{row['mj'] * 1e3:.1f}",
            f"{row['times_less_than_dense']:.2f}",
        ]
        for row in report["points"]
    ]
    heads = ("model", "threshold", "% right", "fixations", "M MACs", "uJ", "times less than dense")
    lines += [table(body, heads), "", "% right after k fixations (oracles: the first images only)"]
    by: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in report["anytime"]:
        by.setdefault((row["model"], row["rule"]), []).append(row)
    body = [[NAMES[kind], rule, *(share(row["accuracy"]) for row in rows)] for (kind, rule), rows in by.items()]
    lines.append(table(body, ("model", "fixations by", *(f"k={k}" for k in range(1, report["budget"] + 1)))))
    lines += ["", f"share of images in % that stop after k fixations, threshold {USUAL}"]
    body = [
        [NAMES[kind], *(share(row["share"]) for row in report["exits"] if row["model"] == kind)]
        for kind in ("mean", "gru", "spiking")
    ]
    lines.append(table(body, ("model", *(f"k={k}" for k in range(1, report["budget"] + 1)))))
    return "\n".join([*lines, "", f"written: {', '.join(report['files'])}"])


def check_models(models: Sequence[str]) -> str:
    """One bundle of images."""
    if len(models) > 1:
        raise UsageError("study fovea takes one bundle: its data are what the analog models are trained on")
    return models[0] if models else "clutter"
