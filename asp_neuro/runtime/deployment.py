"""A bundle at work: which exit it may use, its answers on a backend, its certificate."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from asp_neuro import bundle as bundles
from asp_neuro import certify as certificates
from asp_neuro import files, plain
from asp_neuro.bundle import Bundle
from asp_neuro.bundle.origin import Origin, read_origin
from asp_neuro.certify import Certificate, Condition, Plan, Recording, familiarity
from asp_neuro.certify import cover as covering
from asp_neuro.certify.recording import check_known
from asp_neuro.certify.used import Level, again, refuse_again, with_use
from asp_neuro.data import RANDOM, CloudSet, Intake, load_clouds, sampling_of
from asp_neuro.data.clouds import first_repeat
from asp_neuro.data.files import take_file
from asp_neuro.data.fingerprints import alike
from asp_neuro.data.image_places import STROKES, load_images
from asp_neuro.data.intake import stacked
from asp_neuro.data.own import recall, up_axis
from asp_neuro.data.photos import read_photos
from asp_neuro.data.pictures import ImageSet
from asp_neuro.data.samples import SampleSet, Settings, load_samples, locate_samples
from asp_neuro.errors import CheckFailed, InputError, MissingError, UsageError
from asp_neuro.model.exit import ExitReason, ExitRule
from asp_neuro.model.familiarity import Familiarity, told
from asp_neuro.model.look import Answer
from asp_neuro.model.perceiver import Perceiver, really_equal
from asp_neuro.model.points import is_dense
from asp_neuro.model.promise import Shortness
from asp_neuro.report import about, progress, say
from asp_neuro.runtime import energy, hardware, kinds, takes
from asp_neuro.runtime.machine import BATCH, FAST, Machine, OnAnswer, fast_answers
from asp_neuro.runtime.takes import Take
from asp_neuro.scenes.cloud import Chunking
from asp_neuro.scenes.cloud_encoder import CloudSpec
from asp_neuro.scenes.image import Gaze
from asp_neuro.scenes.image_encoder import ImageSpec
from asp_neuro.tasks.base import Task

SHAPES = 64  # built-in clouds that stand in where only the size of chunks matters
PILOT_SEED = 0  # which calibration clouds plan where the validation clouds were trained on


class Samples(Protocol):
    """Labelled raw inputs: `CloudSet`, or what another kind of scene is fed with."""

    @property
    def inputs(self) -> Any:
        """Of n scenes."""

    @property
    def labels(self) -> np.ndarray:
        """[n], or [n, R] for a task with R targets; negative where nobody told."""

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def classes(self) -> tuple[str, ...]: ...

    @property
    def source(self) -> str: ...

    def hashes(self) -> list[str]:
        """One for each scene."""

    def sha256(self) -> str: ...


@dataclass(frozen=True)
class Deployed:
    """An opened bundle."""

    path: Path
    bundle: Bundle
    sha256: str

    @property
    def name(self) -> str:
        """What to type for it: the name of a shipped bundle, or the file."""
        return next((name for name, path in bundles.shipped().items() if path == self.path), str(self.path))

    @property
    def perceiver(self) -> Perceiver:
        return Perceiver(self.bundle.model)

    @property
    def chunking(self) -> Chunking:
        """How clouds are cut, for a model that looks at clouds."""
        scene = self.bundle.model.scene
        if not isinstance(scene, CloudSpec):
            raise UsageError(f"'{self.path}' looks at scenes of kind '{scene.kind}', not at clouds")
        return scene.chunking

    @property
    def settings(self) -> Settings:
        """How what it looks at is taken: clouds are cut, images are looked at."""
        scene = self.bundle.model.scene
        return scene.gaze if isinstance(scene, ImageSpec) else self.chunking

    def scenes(self, samples: Samples, keep: bool = True) -> Any:
        """Raw inputs -> a batch of scenes; of many they are kept on disk."""
        made = self.bundle.model.scene.scenes(samples.inputs, samples.names, keep and len(samples.names) > 1)
        given = getattr(samples, "given", None)  # categories that the model is told
        return made if given is None else made.asking(given)

    @property
    def origin(self) -> Origin:
        return read_origin(self.bundle.origin)

    @property
    def certificate(self) -> Certificate | None:
        stored = self.bundle.certificate
        return None if stored is None else Certificate.from_dict(stored)

    @cached_property
    def familiarity(self) -> Familiarity | None:
        stored = self.bundle.familiarity
        return None if stored is None else Familiarity.from_dict(stored)

    @property
    def plan(self) -> Plan | None:
        stored = self.bundle.plan
        return None if stored is None else Plan.from_dict(stored)


def open_bundle(name: str | Path | None) -> Deployed:
    """A bundle by file or by the name of a shipped one; none: `./model.net`."""
    path = bundles.find(name)
    try:
        bundle = bundles.read(path)
    except InputError as error:
        raise InputError(f"{error}{kinds.hint(path, 'bundle')}") from None
    return Deployed(path, bundle, bundles.model_sha256(bundle))


def load_perceiver(name: str | Path) -> Perceiver:
    """The Python way in: a bundle that answers, exiting at its certified threshold where it has a valid one."""
    deployed = open_bundle(name)
    if is_dense(deployed.bundle.model):
        from asp_neuro.runtime.parts import rules_of  # which stands on this module

        rule, accept, _ = rules_of(deployed)
        return Perceiver(deployed.bundle.model, rule, deployed.familiarity, accept)
    return Perceiver(deployed.bundle.model, exit_rule(deployed)[0], deployed.familiarity)


def exit_rule(
    deployed: Deployed, no_exit: bool = False, threshold: float | None = None, uncertified: bool = False
) -> tuple[ExitRule, str]:
    """When to stop, and a sentence about it. Precedence: no exit, a given threshold, the certificate."""
    if is_dense(deployed.bundle.model):
        from asp_neuro.runtime.parts import rules_of  # which stands on this module

        rule, _, sentence = rules_of(deployed, no_exit, threshold, uncertified)
        return rule, sentence
    if no_exit:
        return ExitRule(), "the whole budget is read, as asked"
    if threshold is not None:
        return ExitRule(tau=threshold), f"exit at margin {threshold:g}, as asked; no promise stands behind it"
    found, plan = deployed.certificate, deployed.plan
    if found is None or plan is None or not found.certified:
        patience = None if found is None else found.patience
        looks = "the whole budget is" if patience is None else f"{patience} looks are"
        return ExitRule(patience=patience), f"no certificate in the bundle: {looks} read"
    void = certificates.why_void(found, plan, deployed.sha256, deployed.name, deployed.familiarity)
    rule = certificates.exit_rule(found)
    if void is None:
        return rule, about(deployed.bundle.model.scene.kind, certificates.promise(found))
    if uncertified:
        bare = ExitRule(tau=rule.tau, patience=rule.patience)
        return bare, f"the certificate is void ({void}); its threshold is used without a promise"
    raise InputError(f"the certificate is void: {void}; or run with --uncertified, --threshold or --no-exit")


def clouds_of(
    deployed: Deployed, data: str | Path | None, split: str, up: str | None, limit: int | None, seed: int = 0
) -> Any:
    """The labelled clouds or images of the recipe, of its own data, or of `data`; of parts with all their points."""
    if is_dense(deployed.bundle.model):
        from asp_neuro.runtime.part_samples import samples_of  # likewise

        return samples_of(deployed, data, split, up, limit, seed)
    data, up = recall(deployed.origin.own, data, up)
    trained, how = deployed.bundle.recipe["data"], deployed.settings
    place, rule = locate_samples(how, trained["name"], data), trained.get("splits", RANDOM)
    classes = deployed.bundle.classes
    found = load_samples(how, place, split, up=up, seed=seed, classes=classes, splits=rule)
    return found if limit is None else found.subset(np.arange(min(limit, len(found))))


def one_cloud(deployed: Deployed, path: str | Path, up: str | None, seed: int = 0) -> SampleSet:
    """A single cloud (or picture) from a file, its class unknown."""
    return clouds_in_files(deployed, [path], up, seed)[0]


def clouds_in_files(
    deployed: Deployed, paths: Sequence[str | Path], up: str | None, seed: int = 0, drop_invalid: bool = False
) -> tuple[SampleSet, list[Intake]]:
    """A cloud (or a picture) from each file ('-': standard input), its class unknown; all are read before anything is
    answered."""
    names = [str(path) for path in paths]
    if len(set(names)) < len(names):
        raise UsageError(f"--input names '{first_repeat(names)}' twice")
    if isinstance(deployed.settings, Gaze):
        if up is not None or drop_invalid:
            raise UsageError("--up and --drop-invalid are for clouds; this model looks at images")
        return _pictures(deployed, names, deployed.settings)
    up = up_axis(deployed.origin.own, up)
    how, taken, broken = sampling_of(deployed.chunking), [], []
    for path in names:
        try:
            found = take_file(path, how, up=up or "y", seed=seed, drop_invalid=drop_invalid)
            taken.append(found)
        except InputError as error:
            broken.append(str(error))
    if broken:
        raise InputError(broken[0] if len(names) == 1 else _broken_files(broken, len(names)))
    labels = np.full(len(names), -1, dtype=np.int64)
    return CloudSet(stacked(taken), labels, tuple(names), deployed.bundle.classes, ", ".join(names)), taken


def _pictures(deployed: Deployed, names: list[str], how: Gaze) -> tuple[ImageSet, list[Intake]]:
    photos = read_photos(names, how)
    pixels = np.stack([photo.pixels for photo in photos])
    labels = np.full(len(names), -1, dtype=np.int64)
    taken = [Intake(photo.pixels, notes=photo.notes) for photo in photos]
    return ImageSet(pixels, labels, tuple(names), deployed.bundle.classes, ", ".join(names)), taken


def _broken_files(broken: list[str], n: int) -> str:
    return f"{len(broken)} of {n} inputs cannot be used, so none was answered:\n" + "\n".join(broken)


def line(name: str, answer: Answer, truth: Any, classes: tuple[str, ...]) -> dict[str, Any]:
    """What is written about one cloud (`--jsonl`)."""
    return {**answer.to_dict(name), "class": called(answer.label, classes), "truth": called(truth, classes)}


def called(label: Any, classes: tuple[str, ...]) -> Any:
    """What a label is called, or each of several; None where nobody told."""
    if np.ndim(label) > 0:
        return [called(one, classes) for one in label]
    return classes[label] if label >= 0 else None


def losses(task: Task, label: Any, truth: np.ndarray) -> np.ndarray:
    """The task's loss of labels against true ones, [n] in [0, 1]; an answer is right where it is 0."""
    label = np.asarray(label)
    if label.shape != truth.shape:
        raise InputError(f"the task gives labels of shape {label.shape}, the true ones have shape {truth.shape}")
    return task.loss(label, truth)


def run(
    deployed: Deployed,
    samples: Samples,
    rule: ExitRule,
    machine: Machine = FAST,
    batch: int = BATCH,
    on_line: Callable[[dict[str, Any]], None] | None = None,
    recompute: bool = False,
    exact: bool = False,
    taken: Sequence[Intake] | None = None,
) -> tuple[dict[str, Any], list[Answer]]:
    """Run a bundle over clouds: the report of `asp-neuro run`, and the answers.

    `recompute` answers what is not proven again in exact arithmetic; `exact` asks of all answers whether it would.
    `taken` is how each cloud came in, for clouds from files.
    """
    if machine is not FAST:
        demand_fit(deployed)
    perceiver = deployed.perceiver
    scenes = deployed.scenes(samples, keep=taken is None)
    short = Shortness(samples.inputs, scenes, deployed.bundle.model, rule)
    known, again = deployed.familiarity, 0

    def heard(index: int, found: Answer) -> None:
        nonlocal again
        if recompute and not (found.verdict is not None and found.verdict.preserved):
            found = perceiver.replay(scenes[index : index + 1], rule)[0]
            again += 1
        found = short.told(index, found, None if taken is None else taken[index])
        answers[index] = found = told([found], scenes[index : index + 1], deployed.bundle.model, rule, known)[0]
        if on_line is not None:
            on_line(line(samples.names[index], found, samples.labels[index], samples.classes))

    answers: dict[int, Answer] = {}
    began = time.perf_counter()
    first = answered(machine, perceiver, scenes, rule, batch, heard)
    seconds = time.perf_counter() - began
    final = [answers[index] for index in range(len(first))]
    report = {
        **_report(deployed, samples, final, machine.name),
        "seconds": seconds,
        "recomputed": again if recompute else None,
        "short_share": short.share(),
    }
    report["preserved_share"] = _preserved_share(first)
    report["equal_share"] = really_equal_share(perceiver, scenes, rule, first) if exact else None
    return report, final


def compare_forms(deployed: Deployed, samples: Samples, rule: ExitRule, batch: int = BATCH) -> dict[str, Any]:
    """Streaming and prefix form of the same episodes: equal bit for bit, or CheckFailed, and what each costs."""
    from asp_neuro.model import prefix

    scenes = deployed.scenes(samples)
    starts = progress(range(0, len(scenes), batch), label="both forms")
    return prefix.compare(deployed.perceiver, (scenes[start : start + batch] for start in starts), rule)


def answered(
    machine: Machine, perceiver: Perceiver, scenes: Any, rule: ExitRule, batch: int, on_answer: OnAnswer
) -> list[Answer]:
    """The answers of all clouds on a machine."""
    if machine.answers is None:
        raise UsageError(f"'{machine.name}' runs heads, it does not answer")
    return machine.answers(perceiver, scenes, rule, batch, on_answer)


def usage(deployed: Deployed, samples: Samples, rule: ExitRule, batch: int = BATCH) -> energy.Usage:
    """Firing rates, chunk sizes and stops of a bundle on clouds: what its energy follows from."""
    scenes = deployed.scenes(samples)
    starts = progress(range(0, len(scenes), batch), label="counting spikes")
    source = f"a run on {len(samples.names)} clouds of {samples.source}"
    return energy.measure(deployed.perceiver, (scenes[start : start + batch] for start in starts), rule, source)


def batches(deployed: Deployed, samples: Samples, batch: int = BATCH) -> list[Any]:
    """The scenes of labelled inputs, batch after batch."""
    scenes = deployed.scenes(samples)
    return [scenes[start : start + batch] for start in range(0, len(scenes), batch)]


def recorded_usage(deployed: Deployed, rule: ExitRule, missing: MissingError) -> energy.Usage:
    """The same from what the bundle stores, where its data are not at hand; without a record `missing` is raised."""
    b, found = deployed.bundle, deployed.certificate
    stored: Any = b.record.get("deployment")
    rates: Any = stored.get("firing_rate") if isinstance(stored, dict) else None
    known = isinstance(rates, list) and all(isinstance(rate, float) for rate in rates)
    if not known or (rule.tau is not None and not rule.certified):
        raise missing
    observations, where = float(b.model.budget), "the whole budget"
    if rule.certified and found is not None:
        observations, where = found.mean_observations, "calibration split"
    some = _stand_ins(deployed.settings)
    belongs = b.model.scene.parts_of(b.model.scene.scenes(some.inputs, some.names))
    source = (
        f"the bundle's record, nothing was run (firing rates: {stored.get('split')} split at full budget; "
        f"observations: {where}; chunk sizes: built-in shapes)"
    )
    return energy.assumed_usage(source, observations, energy.new_groups(belongs).mean(axis=0).tolist(), rates)


def _stand_ins(how: Settings) -> SampleSet:
    """Built-in scenes where only the size of places matters."""
    if isinstance(how, Gaze):
        drawn = load_images(STROKES, "test", replace(how, channels=1)).subset(np.arange(SHAPES))
        return replace(drawn, pixels=np.repeat(drawn.pixels[..., None], 3, axis=3)) if how.channels == 3 else drawn
    return load_clouds("shapes", "test", n_points=how.n_points).subset(np.arange(SHAPES))


def demand_fit(deployed: Deployed, name: str = "loihi2") -> None:
    """Refuse a head that breaks a design rule before anything is started for it."""
    golden = deployed.bundle.golden
    fit = hardware.check(
        deployed.bundle.head, deployed.bundle.model.mixer, hardware.chip(name), golden.membranes, golden.spikes
    )
    if not fit.fits:
        raise CheckFailed(
            f"'{deployed.path}' breaks a design rule of {name}: {fit.violations[0]}; see: asp-neuro check"
        )


def _preserved_share(answers: list[Answer]) -> float:
    return float(np.mean([a.verdict is not None and a.verdict.preserved for a in answers]))


def really_equal_share(perceiver: Perceiver, scenes: Any, rule: ExitRule, answers: list[Answer]) -> float:
    """The share of the answers that exact arithmetic gives too: spikes, chunks, exit and class."""
    exact = [found for i in range(0, len(scenes), BATCH) for found in perceiver.replay(scenes[i : i + BATCH], rule)]
    return float(np.mean([really_equal(ours, theirs) for ours, theirs in zip(answers, exact, strict=True)]))


def _report(deployed: Deployed, samples: Samples, answers: list[Answer], backend: str) -> dict[str, Any]:
    certified = np.array([a.exit is ExitReason.CERTIFIED for a in answers])
    known = bool((samples.labels >= 0).all())
    task, labels = deployed.perceiver.model.task, [a.label for a in answers]
    loss = losses(task, labels, samples.labels) if known else np.empty(len(answers))
    promised = deployed.certificate.alpha if certified.any() and deployed.certificate is not None else None
    reasons = [a.exit.value for a in answers]
    wrong = float(1.0 - (loss[certified] == 0).mean()) if known and certified.any() else None
    return {
        "backend": backend,
        "n": len(answers),
        "accuracy": float((1.0 - loss).mean()) if known else None,
        "mean_observations": float(np.mean([a.observations for a in answers])),
        "budget": deployed.bundle.model.budget,
        "certified_share": float(certified.mean()),
        "certified_risk": wrong,
        "wrong_among_certified": wrong,
        "promised_risk": promised,
        "unfamiliar_share": None if deployed.familiarity is None else reasons.count("unfamiliar") / len(reasons),
        "preserved_share": _preserved_share(answers),
        "exits": {reason.value: reasons.count(reason.value) for reason in ExitReason},
        "sha256": deployed.sha256,
    }


def record(deployed: Deployed, samples: Samples) -> Recording:
    """One full-budget pass of the deployed system over labelled scenes; right is where the task has no loss."""
    return take(deployed, samples).recording


def take(deployed: Deployed, samples: Samples, keep: bool = True, patience: int | None = None) -> Take:
    """The same, with what familiarity asks for; `keep`: the cut scenes on disk; `patience`: so many looks at most."""
    check_known(samples.labels)
    perceiver, scenes = deployed.perceiver, deployed.scenes(samples, keep)
    answers = fast_answers(perceiver, scenes, ExitRule(patience=patience))
    steps = zip(*(a.labels for a in answers), strict=True)  # after each observation, a label of every scene
    right = np.stack([losses(perceiver.model.task, step, samples.labels) == 0 for step in steps])
    return takes.take(answers, right, scenes, deployed.bundle.model)


@dataclass(frozen=True)
class Certification:
    """A plan, the certificate that followed, the recording that it was tested on, and the familiarity inside."""

    plan: Plan
    certificate: Certificate
    calibration: Recording
    familiarity: Familiarity | None = None
    clouds: tuple[str, ...] = ()  # hashes of the calibration clouds
    alike: str | None = None  # a sentence, where many of them look like training clouds


def certify(
    deployed: Deployed,
    data: str | None = None,
    up: str | None = None,
    alpha: float = 0.05,
    delta: float = 0.05,
    exit_threshold: float | None = None,
    unfamiliar: float | None = familiarity.LEVEL,
    cover: Sequence[str] = (),
    patience: int | None = None,
) -> Certification:
    """The same at one level."""
    return certify_all(deployed, data, up, (alpha,), delta, exit_threshold, unfamiliar, cover, patience)[0]


def certify_all(
    deployed: Deployed,
    data: str | Path | None = None,
    up: str | None = None,
    alphas: Sequence[float] = (0.05,),
    delta: float = 0.05,
    exit_threshold: float | None = None,
    unfamiliar: float | None = familiarity.LEVEL,
    cover: Sequence[str] = (),
    patience: int | None = None,
    compare: bool = False,
) -> list[Certification]:
    """Plan on validation, test on calibration, once, at several levels that share delta. Nothing is stored here.

    Calibration clouds that were used at other levels are refused (`certify/used.py`), unless it is to `compare`.

    A model that was trained on the validation clouds too (`data.also`) is planned for on a quarter of the calibration
    clouds, and tested on the others. With `exit_threshold` the exit stays there and what is certified is the acceptance
    of J.1: the margin at the stop. `unfamiliar` is the share of clouds like these that may be called so (None: no cloud
    is), `cover` names conditions that the promise shall cover too. With `patience` an answer that has not crossed after
    so many looks ends there.
    """
    for alpha in alphas:
        certificates.check_levels(alpha, delta)
    check_patience(patience, deployed.bundle.model.budget)
    trained = deployed.bundle.recipe.get("data", {}).get("also", [])
    if "calibration" in trained:
        raise InputError(
            "this model was trained on its calibration clouds; a certificate needs clouds that it never saw"
        )
    data, up = recall(deployed.origin.own, data, up)
    splits = {name: clouds_of(deployed, data, name, up, None) for name in ("train", "validation", "calibration")}
    each = delta / len(alphas)
    if not compare:
        asked = [Level(alpha, each, exit_threshold, patience) for alpha in alphas]
        _refuse_again(deployed, splits["calibration"], asked)
    known = _trained_alike(deployed, splits["calibration"])
    if known is not None:
        say(f"warning: {known}")
    pilot = "validation" in trained
    how: tuple[Any, ...] = (each, exit_threshold, pilot, unfamiliar, cover, patience)
    return [replace(certify_on(deployed, splits, alpha, *how), alike=known) for alpha in alphas]


def check_patience(patience: int | None, budget: int) -> None:
    if patience is not None and not 1 <= patience <= budget:
        raise UsageError(f"--patience {patience}: this model takes 1 to {budget} looks")


def _refuse_again(deployed: Deployed, calibration: Samples, levels: list[Level]) -> None:
    """Refuse calibration clouds that were used for this model at other levels; a certificate tells of its own."""
    used, found = deployed.origin.used, deployed.certificate
    refuse_again(used, calibration.hashes(), levels)
    own = found is not None and found.model_sha256 == deployed.sha256
    if not used and found is not None and own and found.data_sha256 == calibration.sha256():
        before = Level(found.alpha, found.delta, found.exit_threshold, found.patience)
        if set(levels) - {before}:
            raise InputError(again(len(calibration.names), len(calibration.names), [before], levels))


def _trained_alike(deployed: Deployed, calibration: SampleSet) -> str | None:
    own = deployed.origin.own
    if own is None or isinstance(calibration, ImageSet):
        return None
    found = alike(own.shapes, own.n_train, calibration.points, calibration.names)
    return None if found is None else found.text


def certify_on(
    deployed: Deployed,
    splits: Mapping[str, Samples],
    alpha: float = 0.05,
    delta: float = 0.05,
    exit_threshold: float | None = None,
    pilot: bool = False,
    unfamiliar: float | None = familiarity.LEVEL,
    cover: Sequence[str] = (),
    patience: int | None = None,
) -> Certification:
    """The same on given splits: train, validation, calibration. `pilot`: a quarter of the calibration split plans.

    Familiarity and plan are frozen before a cloud that tests is looked at.
    """
    certificates.check_levels(alpha, delta)
    hashes = {name: samples.hashes() for name, samples in splits.items()}
    certificates.check_disjoint(hashes["calibration"], hashes["train"], "training")
    certificates.check_disjoint(hashes["calibration"], hashes["validation"], "validation")
    spec = deployed.bundle.model
    wanted = [takes.condition(word, spec) for word in cover]
    if len(set(wanted)) < len(wanted):
        raise UsageError(f"--cover names '{first_repeat([what.name for what in wanted])}' twice")

    def taken(split: str, which: Sequence[Condition]) -> dict[Condition, Take]:
        found: dict[Condition, Take] = {}
        for what in (takes.CLEAN, *which):
            if what != takes.CLEAN:
                say(f"{split}: {what.name}")
            copies = takes.copies(splits[split], what, split)
            found[what] = take(deployed, copies, keep=what == takes.CLEAN, patience=patience)
        return found

    n, source, testing = len(splits["calibration"].names), "calibration" if pilot else "validation", None
    planning = taken(source, wanted)
    if pilot:
        first, rest = certificates.pilot_index(n, PILOT_SEED)
        testing = {what: one.subset(rest) for what, one in planning.items()}
        planning = {what: one.subset(first) for what, one in planning.items()}
        n = len(rest)
    made, known = _planned(deployed, splits, planning, alpha, delta, n, exit_threshold, unfamiliar, source, patience)
    testing = testing or taken("calibration", made.cover)
    judged = {
        what: testing[what].judged(known, len(spec.classes), exit_threshold) for what in (takes.CLEAN, *made.cover)
    }
    calibration = judged.pop(takes.CLEAN)
    found = certificates.certify(
        calibration,
        made,
        model_sha256=deployed.sha256,
        data_sha256=splits["calibration"].sha256(),
        split="calibration",
        seed=PILOT_SEED if pilot else None,
        backend="fast",
        known=known,
        cover=judged,
        points={what: testing[what].points or 0 for what in made.cover},
        fewest=testing[takes.CLEAN].points,
    )
    return Certification(made, found, calibration, known, tuple(hashes["calibration"]))


def _planned(
    deployed: Deployed,
    splits: Mapping[str, Samples],
    planning: takes.Takes,
    alpha: float,
    delta: float,
    n: int,
    exit_threshold: float | None,
    unfamiliar: float | None,
    source: str,
    patience: int | None,
) -> tuple[Plan, Familiarity | None]:
    """What is frozen before the clouds that test are looked at: conditions, familiarity, plan; n clouds will test."""
    spec = deployed.bundle.model
    about: dict[str, Any] = {"model_sha256": deployed.sha256, "data_sha256": splits[source].sha256()}
    pilot = source == "calibration"
    plain = {what: one.judged(None, 0, exit_threshold) for what, one in planning.items()}
    clean = plain.pop(takes.CLEAN)
    kept, dropped = covering.choose(clean, plain, alpha, delta, n)
    for sentence in dropped:
        say(f"not covered: {sentence}")
    planning = {what: planning[what] for what in (takes.CLEAN, *kept)}
    known = None
    if unfamiliar:
        train = splits["train"].sha256()
        known = takes.known_scenes(
            spec,
            splits["train"],
            planning,
            unfamiliar,
            lambda some: take(deployed, some, keep=False),
            exit_threshold,
            reference_sha256=train,
            **about,
        )
    judged = {what: one.judged(known, len(spec.classes), exit_threshold) for what, one in planning.items()}
    made = certificates.make_plan(
        judged.pop(takes.CLEAN),
        alpha,
        delta,
        n,
        source="pilot" if pilot else "validation",
        seed=PILOT_SEED if pilot else None,
        known=known,
        cover=judged,
        dropped=dropped,
        patience=patience,
        **about,
    )
    return made, known


def in_package(path: Path) -> bool:
    """Whether a file lies among the shipped bundles, where nothing is written for a user."""
    return path.resolve().parent in {shipped.resolve().parent for shipped in bundles.shipped().values()}


def own_place(deployed: Deployed, suffix: str) -> Path:
    """Where a file about a bundle goes: beside it, or into the current folder for one that is shipped."""
    beside = deployed.path.with_suffix(suffix)
    return Path(beside.name) if in_package(deployed.path) else beside


def certified_place(deployed: Deployed, out: Path | None) -> Path:
    """Where the bundle goes when it has its certificate: its own file, or a copy; no other file is overwritten."""
    place = out or own_place(deployed, deployed.path.suffix)
    if in_package(place):
        raise UsageError(f"'{place}' lies in the installed package, which is left alone; name another file: --out FILE")
    if place.is_file() and not place.samefile(deployed.path):
        raise UsageError(
            f"'{place}' is there already and is not overwritten; "
            f"certify that one (asp-neuro certify {shlex.quote(str(place))}), or name another file: --out FILE"
        )
    return files.demand_place(place)


def store(
    deployed: Deployed, found: Certification, place: Path | None = None, tried: Sequence[Certification] = ()
) -> Deployed:
    """Write familiarity, plan and certificate into the bundle's file, or into a copy, and which clouds were used.

    `tried` are all certifications of the call, of which `found` is the one that is stored.
    """
    made = [one.certificate for one in tried or (found,)]
    levels = [Level(one.alpha, one.delta, one.exit_threshold, one.patience) for one in made]
    origin = replace(deployed.origin, used=with_use(deployed.origin.used, found.clouds, levels))
    noted = replace(deployed.bundle, origin=plain.of(origin))
    known = None if found.familiarity is None else found.familiarity.to_dict()
    changed = bundles.with_certificate(noted, found.plan.to_dict(), found.certificate.to_dict(), known)
    place = place or deployed.path
    bundles.write(place, changed)
    return Deployed(place, changed, deployed.sha256)
