"""Takes: labelled scenes at full budget, as they are and under conditions, for plans, familiarity and certificates."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from asp_neuro.certify import Condition, Recording, at_exit, familiarity, thresholds
from asp_neuro.errors import InputError, UsageError
from asp_neuro.model.familiarity import Familiarity, with_statistics
from asp_neuro.model.look import Answer
from asp_neuro.model.spec import ModelSpec
from asp_neuro.report import say
from asp_neuro.scenes import conditions
from asp_neuro.scenes.base import KnownScene
from asp_neuro.scenes.cloud_encoder import CloudSpec
from asp_neuro.scenes.cloud_statistics import n_distinct

COVER_SEED = 18  # of the copies under conditions
DRAWS = {"train": 0, "validation": 1, "calibration": 2}  # so that copies of different splits are drawn independently
N_REFERENCE = 10_000  # known clouds, at most
N_COPIES = 4000  # of these under each condition, at most
CLEAN = Condition("clean", conditions.CLEAN.kind, 0.0, 0)  # clouds as they are
N_TRIED = 160  # known clouds, at most, that show whether a condition misleads the model
MISLED = 0.15  # it does where a larger share of them is answered wrongly
N_ODD, N_HARMLESS = 2000, 400  # copies, at most, under a condition that misleads, and under one that does not
TRIED = tuple(conditions.KINDS)


@dataclass(frozen=True, eq=False)
class Take:
    """What was answered at full budget, and what kind of scenes these are."""

    recording: Recording
    labels: np.ndarray  # [T, n] answered after each look; zeros for a task of many targets
    statistics: np.ndarray | None  # [n, S]
    points: int | None  # fewest distinct points of a cloud

    def subset(self, index: np.ndarray) -> Take:
        statistics = None if self.statistics is None else self.statistics[index]
        return dataclasses.replace(
            self, recording=self.recording.subset(index), labels=self.labels[:, index], statistics=statistics
        )

    @property
    def seen(self) -> familiarity.Seen:
        assert self.statistics is not None
        return familiarity.Seen(self.statistics, self.labels, self.recording.margins)

    def judged(self, known: Familiarity | None, n_classes: int, exit_threshold: float | None = None) -> Recording:
        """The recording, with the score of familiarity, cut at an exit that is fixed beforehand (J.1)."""
        found = self.recording
        if known is not None:
            found = dataclasses.replace(found, strange=familiarity.strangeness(known.reference, self.seen, n_classes))
        return found if exit_threshold is None else at_exit(found, exit_threshold)


Takes = Mapping[Condition, Take]


def take(answers: Sequence[Answer], right: np.ndarray, scenes: Any, spec: ModelSpec) -> Take:
    """From answers at full budget, and which were right after each look [T, n]."""
    margins = np.array([answer.margins for answer in answers]).T
    labels = np.zeros(margins.shape, dtype=np.int64)
    if np.ndim(answers[0].label) == 0:
        labels = np.array([answer.labels for answer in answers]).T
    scene = with_statistics(spec.scene)
    return Take(
        Recording(margins, right),
        labels,
        None if scene is None else scene.statistics(scenes),
        int(n_distinct(scenes.points).min()) if isinstance(spec.scene, CloudSpec) else None,
    )


def condition(text: str, spec: ModelSpec) -> Condition:
    """What a user named, for clouds of this model."""
    if not isinstance(spec.scene, CloudSpec):
        raise UsageError(f"conditions are for clouds; this model looks at scenes of kind '{spec.scene.kind}'")
    found = conditions.named(text, spec.scene.chunking.n_points)
    return Condition(found.name, found.kind, float(found.amount), COVER_SEED)


def copies(samples: Any, what: Condition, split: str) -> Any:
    """The same clouds under a condition, drawn for this split."""
    if what == CLEAN:
        return samples
    how = conditions.Condition(what.name, what.kind, what.amount)
    points = conditions.changed(samples.points, how, what.seed, DRAWS[split])
    return dataclasses.replace(samples, points=points)


def known_scenes(
    spec: ModelSpec,
    train: Any,
    planning: Takes,
    level: float,
    taken: Callable[[Any], Take],
    exit_threshold: float | None = None,
    **hashes: str,
) -> Familiarity | None:
    """The familiarity of clouds like those that plan, under their conditions; None, with a word, where it cannot be.

    `taken` answers clouds.
    """
    n = planning[CLEAN].recording.n
    scene = with_statistics(spec.scene)
    if scene is None:
        say(f"no familiarity: scenes of kind '{spec.scene.kind}' have no statistics")
        return None
    if n < familiarity.needed(level):
        say(
            f"no familiarity: {n} clouds plan, {familiarity.needed(level)} are needed to call at most {level:g} of "
            "clouds like them unfamiliar"
        )
        return None
    first = planning[CLEAN].recording
    harmless, odd = _tried(spec, train, [what for what in planning if what != CLEAN], taken)
    return familiarity.make(
        [_known(scene, train, what) for what in planning],
        [one.seen for one in planning.values()],
        thresholds(first).tolist() if exit_threshold is None else [exit_threshold],
        n_classes=len(spec.classes),
        statistics=tuple(scene.words),
        known=[what.name for what in planning],
        n_apart=getattr(scene, "n_apart", None),
        harmless=[_known(scene, train, what, N_HARMLESS)[0] for what in harmless],
        odd=[familiarity.Odd(what.name, _known(scene, train, what, N_ODD)[0]) for what in odd],
        level=level,
        **hashes,
    )


def _tried(
    spec: ModelSpec, train: Any, covered: Sequence[Condition], taken: Callable[[Any], Take]
) -> tuple[list[Condition], list[Condition]]:
    """Conditions under which the model still knows its training clouds, and conditions that mislead it."""
    if not isinstance(spec.scene, CloudSpec) or np.ndim(train.labels) != 1:
        return [], []
    harmless: list[Condition] = []
    odd: list[Condition] = []
    some = train.subset(_sample(train, N_TRIED))
    for what in (condition(kind, spec) for kind in TRIED):
        if what.kind in {one.kind for one in covered}:
            continue
        try:
            wrong = 1.0 - float(taken(copies(some, what, "train")).recording.correct[-1].mean())
        except InputError:  # too few points are left of them to be cut
            continue
        (odd if wrong > MISLED else harmless).append(what)
        if wrong > MISLED:
            say(
                f"familiarity: {what.name} misleads the model ({100.0 * wrong:.0f} % of training clouds), it is watched"
            )
    return harmless, odd


def _sample(train: Any, most: int) -> np.ndarray:
    """A fixed sample of the training clouds."""
    return np.sort(np.random.default_rng(COVER_SEED).permutation(len(train.names))[:most])


def _known(scene: KnownScene, train: Any, what: Condition, most: int = N_COPIES) -> tuple[np.ndarray, np.ndarray]:
    """Statistics and classes of training clouds, a fixed sample of them, under a condition."""
    some = copies(train.subset(_sample(train, N_REFERENCE if what == CLEAN else most)), what, "train")
    classes = np.asarray(some.labels)
    found = scene.statistics(scene.scenes(some.inputs, some.names))
    return found, classes if classes.ndim == 1 else np.zeros(len(classes), dtype=np.int64)
