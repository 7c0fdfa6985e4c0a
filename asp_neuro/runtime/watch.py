"""Is the promise still kept? Answers of a deployed model, fed to the monitor; its state lies in a file between runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asp_neuro import files
from asp_neuro.certify import monitor
from asp_neuro.certify.monitor import MonitorState
from asp_neuro.errors import InputError, UsageError
from asp_neuro.model.exit import ExitReason
from asp_neuro.model.look import Answer
from asp_neuro.model.points import PartAnswer
from asp_neuro.report import to_json
from asp_neuro.runtime import parts
from asp_neuro.runtime.deployment import Deployed, Samples, losses
from asp_neuro.runtime.part_samples import PartSamples

UNFAMILIAR = "unfamiliar"  # the exit reason, and the key of the second bet in the file


@dataclass(frozen=True)
class Watch:
    """What is watched: the share of wrong answers among certified ones, and the share of unfamiliar clouds."""

    risk: MonitorState
    unfamiliar: MonitorState | None = None  # None: the model knows no familiarity, or no cloud was fed yet

    @property
    def alarm(self) -> bool:
        return any(monitor.alarm(state) for state in self.states)

    @property
    def states(self) -> list[MonitorState]:
        return [self.risk] if self.unfamiliar is None else [self.risk, self.unfamiliar]

    @property
    def message(self) -> str:
        return "\n".join(monitor.message(state) for state in self.states)

    def to_dict(self) -> dict[str, Any]:
        """As in the file: each bet with its own hash, that on the risk at the top, as files of before have it."""
        second = {} if self.unfamiliar is None else {UNFAMILIAR: self.unfamiliar.to_dict()}
        return {**self.risk.to_dict(), **second}

    def report(self) -> dict[str, Any]:
        """The same for people's programs: without the remembered clouds, with the alarm."""
        told = [{name: value for name, value in state.to_dict().items() if name != "seen"} for state in self.states]
        return {"alarm": self.alarm, **told[0], UNFAMILIAR: told[1] if len(told) > 1 else None}


def feedback(
    path: Path, deployed: Deployed, samples: Samples, answers: list[Answer], seed: int = 0, in_order: bool = False
) -> Watch:
    """Tell the monitor which certified answers were right, and which clouds were unfamiliar; labels are for the first.

    The clouds of a data set are fed in a shuffled order, by their content and `seed`; `in_order`: as they came, for a
    stream. The state is saved before anything is said about it.
    """
    found = deployed.certificate
    if found is None or not found.certified:
        raise UsageError("--feedback watches certified answers, and this bundle has no certificate")
    familiar = knows_familiarity(deployed)
    labelled = not (samples.labels < 0).any()
    if not labelled and not familiar:
        raise InputError(f"{samples.source}: --feedback needs the true class of every cloud")
    watch = _read(path, deployed.sha256, found.alpha)
    hashes = samples.hashes()
    order = list(range(len(hashes))) if in_order else monitor.shuffled(hashes, seed)
    risk, strange = watch.risk, watch.unfamiliar
    if labelled:
        loss = losses(deployed.perceiver.model.task, [a.label for a in answers], samples.labels)
        counted = [i for i in order if answers[i].exit is ExitReason.CERTIFIED]
        risk = monitor.feed(risk, [hashes[i] for i in counted], [bool(loss[i] > 0) for i in counted])
    if familiar:
        strange = strange or monitor.start(deployed.sha256, monitor.UNFAMILIAR_SHARE, what=monitor.UNFAMILIAR)
        told = [answers[i].exit.value == UNFAMILIAR for i in order]
        strange = monitor.feed(strange, [hashes[i] for i in order], told)
    watch = Watch(risk, strange)
    files.write_text(path, to_json(watch.to_dict()) + "\n")
    return watch


def knows_familiarity(deployed: Deployed) -> bool:
    """Whether the model tells unfamiliar clouds from others."""
    return getattr(deployed.bundle, "familiarity", None) is not None


def point_feedback(
    path: Path, deployed: Deployed, samples: PartSamples, answers: Sequence[PartAnswer], seed: int = 0
) -> Watch:
    """Tell the monitor which share of each shape's accepted points was wrong: is promise A still kept?

    A shape without an accepted point is no news, as in the promise. Shapes are fed in a shuffled order.
    """
    found = parts.promise_of(deployed)
    if found is None or not found.mean.certified:
        raise UsageError("--feedback watches accepted points, and this bundle promises nothing of them")
    if samples.parts is None:
        raise InputError(f"{samples.source}: --feedback needs the true part of every point")
    hashes = samples.hashes()
    lost = [parts.wrong_share(a.labels != own, a.accepted) for a, own in zip(answers, samples.parts, strict=True)]
    told = [(hashes[i], loss) for i in monitor.shuffled(hashes, seed) if (loss := lost[i]) is not None]
    risk = _read(path, deployed.sha256, found.mean.alpha, monitor.LOSSES).risk
    watch = Watch(monitor.feed(risk, [name for name, _ in told], [loss for _, loss in told]))
    files.write_text(path, to_json(watch.to_dict()) + "\n")
    return watch


def _read(path: Path, model_sha256: str, alpha: float, what: str = monitor.WRONG) -> Watch:
    if not path.exists():
        return Watch(monitor.start(model_sha256, alpha, what=what))
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        second = stored.pop(UNFAMILIAR, None) if isinstance(stored, dict) else None
        risk = MonitorState.from_dict(stored)
        strange = None if second is None else MonitorState.from_dict(second)
    except (OSError, ValueError) as error:
        raise InputError(f"'{path}' is no monitor state ({error}); move it away to start a new one") from None
    monitor.check_belongs(risk, model_sha256, alpha)
    if strange is not None:
        monitor.check_belongs(strange, model_sha256, monitor.UNFAMILIAR_SHARE)
    if risk.what != what or (strange is not None and strange.what != monitor.UNFAMILIAR):
        raise InputError(f"'{path}': the bets of this monitor state stand in each other's place")
    return Watch(risk, strange)
