"""An audit: play a model's scenes in every way that the claims ask for, then read the rows off the records."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from asp_neuro.errors import InputError, UsageError
from asp_neuro.heads.membrane import ONE
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.model import prefix
from asp_neuro.model.episode import Batch
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.model.points import PointRule
from asp_neuro.model.rules import fps_orders, random_orders
from asp_neuro.report import progress, say
from asp_neuro.runtime import deployment, neurobench, parts
from asp_neuro.runtime.part_samples import PartSamples, labelled_parts
from asp_neuro.scenes.cloud import Chunks
from asp_neuro.studies.audits import choice, classes, exactness, host, information, points, selective, stopping
from asp_neuro.studies.audits.record import BATCH, Exits, Record, early, exits, record
from asp_neuro.studies.audits.row import FAILS, HOLDS, UNCLEAR, Row, text
from asp_neuro.studies.deployed import oracle_orders
from asp_neuro.studies.subjects import Origin, clouds_of, demand_alike
from asp_neuro.tasks.parts import PartsSpec

PAPERS_THRESHOLD = 0.30  # J.1's operating point, where a model has no exit of its own


@dataclass(frozen=True)
class Audited:
    """A model, and the exit that its rows are read at."""

    name: str
    perceiver: Perceiver
    origin: Origin
    sha256: str | None
    tau: float
    alpha: float
    delta: float
    exit: str  # a sentence
    others: tuple[Perceiver, ...] = ()  # trainings of the same recipe with other seeds
    deployed: deployment.Deployed | None = None  # None: a checkpoint
    patience: int | None = None  # of the exit

    @property
    def rule(self) -> ExitRule:
        return ExitRule(tau=self.tau, patience=self.patience)

    def stops(self, margins: np.ndarray) -> Exits:
        """Where the exit stops each scene, from margins [T, n]."""
        return exits(margins, self.tau, self.patience)


def with_others(audited: Audited, names: Sequence[str | Path]) -> Audited:
    """The same, beside trainings of the same recipe with other seeds."""
    found = [opened(name) for name in names]
    known = [audited, *found]
    demand_alike([(one.name, one.origin, one.perceiver.classes) for one in known])
    return dataclasses.replace(audited, others=tuple(one.perceiver for one in found))


def opened(name: str | Path | None, threshold: float | None = None) -> Audited:
    """A bundle, or a checkpoint as it would be exported: the same network, by invariant."""
    if name is not None and Path(name).suffix == ".pt":
        return _trained(name, threshold)
    deployed = deployment.open_bundle(name)
    origin = Origin(deployed.bundle.recipe, deployed.settings, deployed.origin.own)
    rule, sentence = deployment.exit_rule(deployed, threshold=threshold, uncertified=True)
    found = deployed.certificate
    levels = (0.05, 0.05) if found is None else (found.alpha, found.delta)
    tau, sentence = _threshold(rule.tau, sentence)
    return Audited(
        deployed.name, deployed.perceiver, origin, deployed.sha256, tau, *levels, sentence, (), deployed, rule.patience
    )


def _trained(name: str | Path, threshold: float | None) -> Audited:
    from asp_neuro.studies.trained import deployed_form

    perceiver, origin = deployed_form(name)
    rule = ExitRule(tau=threshold)
    sentence = "a checkpoint has no certificate" if threshold is None else f"exit at margin {threshold:g}, as asked"
    tau, sentence = _threshold(rule.tau, sentence)
    return Audited(str(name), perceiver, origin, None, tau, 0.05, 0.05, sentence)


def _threshold(tau: float | None, sentence: str) -> tuple[float, str]:
    if tau is not None:
        return tau, sentence
    return PAPERS_THRESHOLD, f"{sentence}; rows at the exit are read at margin {PAPERS_THRESHOLD:g}, as in J.1"


def run(
    name: str | Path | None = None, *, data: str | None = None, up: str | None = None, split: str = "test",
    limit: int | None = None, threshold: float | None = None, seed: int = 0, others: Sequence[str | Path] = (),
) -> dict[str, Any]:  # fmt: skip
    """All rows of a bundle or checkpoint on a split of its data."""
    began = time.process_time()
    audited = with_others(opened(name, threshold), others)
    say(audited.exit)
    clouds = samples_of(audited, data, up, split, limit)
    if len(clouds) < 4:
        raise UsageError(f"{len(clouds)} clouds: an audit needs at least 4; give a larger --limit")
    scenes = audited.perceiver.scenes(clouds.inputs, clouds.names, cache=True)
    rows = rows_of(audited, scenes, clouds.labels, seed) + points_of(audited, clouds)
    verdicts = [row.verdict for row in rows]
    batches = (scenes[start : start + BATCH] for start in range(0, len(clouds), BATCH))
    return {
        "model": audited.name,
        "sha256": audited.sha256,
        "split": split,
        "source": clouds.source,
        "n": len(clouds),
        "threshold": audited.tau,
        "exit": audited.exit,
        "seed": seed,
        "rows": [dataclasses.asdict(row) for row in rows],
        "left_out": left_out(audited.perceiver, rows, audited.deployed),
        **{verdict: verdicts.count(verdict) for verdict in (HOLDS, FAILS, UNCLEAR)},
        "neurobench": neurobench.metrics(audited.perceiver, batches, audited.rule),
        "cpu_seconds": time.process_time() - began,
    }


def samples_of(audited: Audited, data: str | None, up: str | None, split: str, limit: int | None) -> Any:
    """Labelled scenes; of parts the category is asked, not told, and is the class of every row but those of points."""
    spec, origin = audited.perceiver.spec, audited.origin
    if isinstance(spec.task, PartsSpec):
        say(f"this reads the {split} split; rows are about the category, which the model is not told")
        return labelled_parts(spec, origin.recipe["data"], data, split, up, limit, told=False)
    return clouds_of(origin, data, up, split, limit).relabelled(audited.perceiver.classes)


def points_of(audited: Audited, clouds: Any) -> list[Row]:
    """The promises for points, where a bundle has them: its exit, and the category told, as they were made."""
    deployed = audited.deployed
    promise = parts.promise_of(deployed) if deployed is not None and isinstance(clouds, PartSamples) else None
    if deployed is None or promise is None:
        return []
    asked = dataclasses.replace(clouds, given=clouds.labels)
    _, answers = parts.run(deployed, asked, ExitRule(tau=promise.exit), PointRule())
    return points.rows(parts.recording(asked, answers), promise)


def told(report: dict[str, Any]) -> str:
    """For people."""
    rows = [Row(**row) for row in report["rows"]]
    head = f"{report['model']}: {report['n']} clouds, {report['split']} split of {report['source']}; {report['exit']}"
    end = f"{report[HOLDS]} hold, {report[FAILS]} fail, {report[UNCLEAR]} cannot be told from so many clouds"
    missing = "".join(f"\nleft out: {words}" for words in report["left_out"])
    return f"{head}\n\n{text(rows)}\n{missing}\n{end}; what each row means: docs/audits.md"


def left_out(
    perceiver: Perceiver, rows: Sequence[Row], deployed: deployment.Deployed | None = None
) -> list[str]:  # fmt: skip
    """Which rows a model's kind cannot have, and why."""
    said, head = [], perceiver.head
    if isinstance(perceiver.spec.task, PartsSpec) and not any(row.theorem == points.OF for row in rows):
        how = "a checkpoint has none" if deployed is None else f"make them: asp-neuro certify {deployed.name}"
        said.append(f"{points.OF} (promises for points): {how}")
    if head.neurons.exact(head) is None or head.neurons.drift(head, 1) is None:
        said.append(f"S17, S18 (drift, proven spikes): neurons of form '{head.form}' have no exact engine or no bound")
    if not perceiver.spec.policy.mask:
        said.append("S11 (masking): this policy has no mask to switch off")
    if not any(row.theorem == "S2" for row in rows):
        said.append(
            "S2, S4, S9, S10, S19, S22, S23, J.7, J.9 (information, promises, calibration, classes): "
            f"a scene of task '{perceiver.spec.task.kind}' has many targets, these rows ask for one class"
        )
    return said


def rows_of(audited: Audited, scenes: Any, truth: np.ndarray, seed: int = 0) -> list[Row]:
    """Every row; what a model's kind cannot tell is left out (`left_out`)."""
    perceiver = audited.perceiver
    if len(perceiver.classes) < 2:
        raise InputError("audit: one class only, there is nothing to tell apart")
    learned = record(perceiver, scenes, truth, label="learned order")
    rows = [exactness.streaming(_both_forms(perceiver, scenes))]
    found = exactness.rounding(perceiver.head, learned)
    if found is not None:
        rows += [exactness.drift(found), exactness.preservation(found)]
    rows += _stopping(learned, audited, seed)
    one_class = learned.logits is not None
    if one_class:
        rows += _promises(learned, audited, seed)
    rows += _choices(audited, scenes, learned, seed)
    rivals = _rivals(perceiver, scenes, learned, seed)
    rows.append(choice.ahead(learned.score, rivals["random"].score))
    rows.append(_agreement(audited, scenes, learned))
    if one_class:
        rows += _information(audited, scenes, learned, rivals, seed)
    rows += _host(perceiver, scenes, learned, seed)
    if one_class:
        stop = audited.stops(learned.margins)
        rows.append(classes.difficulty(learned.right, truth, stop, learned.n_classes, seed))
        rows.append(classes.separation(learned.belief, truth, seed))
    return rows


def _both_forms(perceiver: Perceiver, scenes: Any) -> Iterator[tuple[prefix.Trace, prefix.Trace]]:
    for start in progress(range(0, len(scenes), BATCH), label="computing prefixes again"):
        part = scenes[start : start + BATCH]
        yield prefix.streaming(perceiver, part, ExitRule()), prefix.recomputing(perceiver, part, ExitRule())


def _stopping(learned: Record, audited: Audited, seed: int) -> list[Row]:
    margins, solvable = learned.margins, learned.score[-1] >= 1.0 - audited.alpha  # one target: right
    stop = audited.stops(margins)
    return [
        stopping.drift(margins, solvable, stop),
        stopping.law(margins, solvable, stop, seed),
        stopping.censored(solvable, stop),
        stopping.two_modes(stop, learned.n_steps, seed),
        stopping.mean_exit(stop, learned.n_steps),
        stopping.capacity(learned.score, stop, seed),
    ]


def _promises(learned: Record, audited: Audited, seed: int) -> list[Row]:
    recording, levels = learned.recording(), (audited.alpha, audited.delta)
    return [
        selective.risk(recording, selective.ours, "planned walk (ours)", *levels, seed=seed),
        selective.risk(recording, selective.papers, "the paper's rule", *levels, seed=seed),
        *selective.calibration(learned.probabilities, learned.truth, audited.stops(learned.margins), seed),
    ]


def _choices(audited: Audited, scenes: Any, learned: Record, seed: int) -> list[Row]:
    spec, rows = audited.perceiver.spec, []
    if spec.policy.mask:
        unmasked = Perceiver(dataclasses.replace(spec, policy=dataclasses.replace(spec.policy, mask=False)))
        free = record(unmasked, scenes, learned.truth, label="without the mask")
        stops = audited.stops(learned.margins), audited.stops(free.margins)
        rows += [choice.masked(learned.place), choice.unmasked(free.place, spec.scene.n_places)]
        rows += choice.dissociation((learned.score, free.score), stops)
    if learned.scores is not None and learned.free is not None:
        rows.append(choice.gumbel(learned.scores, learned.free, learned.place, seed))
    return rows


def _rivals(perceiver: Perceiver, scenes: Any, learned: Record, seed: int) -> dict[str, Record]:
    """The same scenes in other orders."""
    n_places, budget = perceiver.spec.scene.n_places, perceiver.budget
    orders = {
        "random": random_orders(learned.n, n_places, seed)[:, :budget],
        "farthest-point": fps_orders(learned.n, n_places)[:, :budget],
    }
    return {name: record(perceiver, scenes, learned.truth, order, f"{name} order") for name, order in orders.items()}


def _agreement(audited: Audited, scenes: Any, learned: Record) -> Row:
    """What the others would choose where this one was, and this one where they were."""
    own, theirs, free = [], [], []
    for other in audited.others:
        walked = record(other, scenes, learned.truth, label="another training")
        for guide, place in ((audited.perceiver, walked.place), (other, learned.place)):
            own.append(place)
            theirs.append(choices_along(guide, scenes, place))
            free.append(n_free(place, guide.spec.scene.n_places, guide.spec.policy.mask))
    return choice.agreement(own, theirs, free)


def n_free(place: np.ndarray, n_places: int, mask: bool = True) -> np.ndarray:
    """Places [T, n] taken one after the other -> [T, n] how many there were to choose from."""
    left = n_places - np.arange(len(place))[:, None] if mask else np.full((len(place), 1), n_places)
    return np.broadcast_to(left, place.shape)


def choices_along(perceiver: Perceiver, scenes: Any, place: np.ndarray) -> np.ndarray:
    """[T, n] what a policy would choose at every step of an order [T, n] that somebody else took."""
    model, parts = perceiver.model, []
    for start in range(0, place.shape[1], BATCH):
        part, order = scenes[start : start + BATCH], place[:, start : start + BATCH].T
        looks = perceiver.played(part, ExitRule(), order).looks
        batch, chosen = Batch(model, part), []
        for t, look in enumerate(looks, start=1):
            chosen.append(model.policy.choose(batch.belief, batch.outlook, batch.visited, t).place)
            batch.visited[np.arange(len(order)), look.place] = True
            batch.belief = look.belief
        parts.append(np.stack(chosen))
    return np.concatenate(parts, axis=1)


def _information(
    audited: Audited, scenes: Any, learned: Record, rivals: dict[str, Record], seed: int
) -> list[Row]:  # fmt: skip
    perceiver, truth = audited.perceiver, learned.truth
    starts = progress(range(0, learned.n, BATCH), label="greedy order")
    best = [oracle_orders(perceiver, scenes[i : i + BATCH], truth[i : i + BATCH]) for i in starts]
    greedy = record(perceiver, scenes, truth, np.concatenate(best), "greedy order")
    return [
        information.sufficiency(learned, seed),
        information.returns(learned, seed),
        information.amortisation({"learned": learned, **rivals}, greedy, seed),
        information.bayes(learned, seed),
        information.leak(learned, leaks(perceiver.head), seed),
    ]


def leaks(head: HeadSpec) -> np.ndarray:
    """[H] of the last layer, from one observation to the next."""
    layer = head.layers[-1]
    return np.asarray(np.broadcast_to(layer.lambda_int / ONE, layer.n_neurons) ** head.steps)


def _host(perceiver: Perceiver, scenes: Any, learned: Record, seed: int) -> list[Row]:
    n_places = perceiver.spec.scene.n_places
    embeddings = _embeddings(perceiver, scenes, n_places)
    order = random_orders(learned.n, n_places, seed)[:, : perceiver.budget]
    rows = [host.lazy(embeddings, order, learned.place.T)]
    pair, how = misdescribed(scenes)
    fresh = record(perceiver, pair.seen, learned.truth, label="own descriptors")
    stale = record(with_descriptors_of(perceiver), pair, learned.truth, label="stale descriptors")
    k = early(learned.n_steps)
    return [*rows, host.descriptors(fresh.score[k - 1], stale.score[k - 1], k, how)]


def misdescribed(scenes: Any) -> tuple[Pair, str]:
    """Scenes of the same classes with descriptors that are not theirs, and how that came about."""
    if isinstance(scenes, Chunks):
        return Pair(quarter_turn(scenes), scenes), "a quarter turn about the up axis"
    return Pair(scenes, scenes[np.roll(np.arange(len(scenes)), 1)]), "descriptors of another scene"


def _embeddings(perceiver: Perceiver, scenes: Any, n_places: int) -> np.ndarray:
    """[n, M, w] of every place."""
    parts = []
    for start in progress(range(0, len(scenes), BATCH), label="all places"):
        view = Batch(perceiver.model, scenes[start : start + BATCH]).view
        rows = np.arange(len(scenes[start : start + BATCH]))
        parts.append(np.stack([view.embed(rows, np.full(len(rows), m)) for m in range(n_places)], axis=1))
    return np.concatenate(parts)


def quarter_turn(chunks: Chunks) -> Chunks:
    """The same chunks, turned about the up axis by 90 degrees: x, y, z -> z, y, -x, exact on the grid."""
    points = np.stack([chunks.points[..., 2], chunks.points[..., 1], -chunks.points[..., 0]], axis=-1)
    return dataclasses.replace(chunks, points=points)


@dataclass(frozen=True, eq=False)
class Pair:
    """Scenes, and the ones whose descriptors they are given."""

    seen: Any
    described: Any

    def __len__(self) -> int:
        return len(self.seen)

    def __getitem__(self, index: Any) -> Pair:
        return Pair(self.seen[index], self.described[index])


class _Redescribed:
    """An encoder of pairs: embeddings of the one, descriptors of the other."""

    def __init__(self, encoder: Any) -> None:
        self.encoder = encoder

    def view(self, pair: Pair) -> Any:
        view = self.encoder.view(pair.seen)
        view.descriptors = self.encoder.view(pair.described).descriptors
        return view


def with_descriptors_of(perceiver: Perceiver) -> Perceiver:
    """The same model, fed with pairs."""
    other = Perceiver(perceiver.spec)
    other.model.encoder = _Redescribed(other.model.encoder)
    return other
