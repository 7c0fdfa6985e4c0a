"""Is the promise still kept? A bet against it over labelled certified answers (paper Prop. S20, put right).

    null: P(Z_s = 1 | past) <= alpha for every labelled certified answer s     (Z = 1: wrong)
    W_t = prod_s (1 + eta_s (Z_s - alpha)),   W_0 = 1,   alarm once W_t >= 1 / level

Every eta_s in [0, 1/alpha) is chosen before Z_s is seen, so W is a nonnegative supermartingale under the null, and by
Ville's inequality it ever reaches 1/level with probability at most level. The bets follow the Online Newton Step:

    g = Z - alpha;  log W += log(1 + eta g);  y = -g / (1 + eta g);  A += y^2
    eta <- clip(eta - c y / A, 0, 1/(2 alpha));    eta = 0, A = 1 at the start;    c = 2 / (2 - ln 3)

S20 runs over the looks of one sample; there the null is false on hard inputs and the label is not seen. Labels must be
asked for without regard to correctness. The state is carried on for ever: starting afresh after a look voids the level.

The null speaks of every answer given the past, so the order matters: clouds sorted by class break it although their
risk as a whole is as promised. Data sets are therefore fed in a shuffled order (`shuffled`), and an alarm says over
which stretch the wealth was made. A cloud counts once: a second label of the same points is no news (`feed`).

The same bet, with Z = 1 for a cloud that is not familiar and alpha the largest share of such clouds, needs no labels.
For points Z is a loss in [0, 1], the share of wrong points among a shape's accepted ones: nothing in the proof asks it
to be 0 or 1. `n_wrong` then counts the losses above alpha.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from asp_neuro import plain
from asp_neuro.certify.bounds import percent
from asp_neuro.errors import InputError, UsageError

STEP = 2 / (2 - math.log(3))
WRONG, UNFAMILIAR, LOSSES = WATCHED = ("wrong", "unfamiliar", "losses")  # what Z = 1 says, or that Z is a loss
UNFAMILIAR_SHARE = 0.02  # twice the 1 % that familiarity allows: its threshold comes from a draw of its own
REMEMBERED = 65_536  # clouds that are known again; the oldest are forgotten first
MARK = 8  # bytes of a remembered cloud's hash


class Bet(NamedTuple):
    """The three numbers of the bettor: scalars, or arrays [paths] for many streams at once."""

    eta: Any
    curvature: Any  # A
    log_wealth: Any  # log W


OPENING = Bet(0.0, 1.0, 0.0)


def bet(before: Bet, wrong: Any, alpha: float) -> Bet:
    """One label: settle the bet eta, then choose the next one."""
    g = np.asarray(wrong, dtype=np.float64) - alpha
    factor = 1 + before.eta * g  # at least 1/2, since eta <= 1/(2 alpha)
    y = -g / factor
    curvature = before.curvature + y * y
    eta = np.clip(before.eta - STEP * y / curvature, 0.0, 1 / (2 * alpha))
    return Bet(eta, curvature, before.log_wealth + np.log(factor))


@dataclass(frozen=True)
class MonitorState:
    """All that is carried from label to label and from run to run."""

    model_sha256: str
    alpha: float
    level: float  # of false alarms, ever
    n: int  # labels so far
    n_wrong: int  # of these, how many had Z = 1
    eta: float
    curvature: float
    log_wealth: float
    alarm_at: int | None  # the label that raised the alarm; it stays raised
    what: str = plain.later(WRONG)  # of WATCHED
    low: float = plain.later(0.0)  # the lowest log W up to the alarm: what raised it came after that
    low_at: int = plain.later(0)  # labels up to there
    low_wrong: int = plain.later(0)
    alarm_wrong: int | None = plain.later(None)  # up to the alarm; None too where an earlier version raised it
    repeats: int = plain.later(0)  # clouds that were not counted, because they had been
    total: float = plain.later(0.0)  # of all losses, where Z is a loss
    seen: str = plain.later("")  # the last REMEMBERED clouds, MARK bytes of a hash each, in base64

    def __post_init__(self) -> None:
        for name in ("alpha", "level"):
            value = getattr(self, name)
            if not 0.0 < value < 1.0:
                raise UsageError(f"monitor: {name} {value} must lie strictly between 0 and 1")
        if self.what not in WATCHED:
            raise InputError(f"monitor: watches '{self.what}', known: {', '.join(WATCHED)}")
        if not 0 <= self.n_wrong <= self.n:
            raise InputError(f"monitor: {self.n_wrong} wrong of {self.n} labels")
        if not 0 <= self.eta <= 1 / (2 * self.alpha):
            raise InputError(f"monitor: bet {self.eta} is outside [0, {1 / (2 * self.alpha)}]")
        if not self.curvature >= 1 or not math.isfinite(self.log_wealth):
            raise InputError(f"monitor: curvature {self.curvature} (at least 1), log wealth {self.log_wealth} (finite)")
        if self.alarm_at is None and self.log_wealth >= -math.log(self.level):
            raise InputError(f"monitor: log wealth {self.log_wealth} is past the alarm, which is not raised")
        if self.alarm_at is not None and not 1 <= self.alarm_at <= self.n:
            raise InputError(f"monitor: alarm at label {self.alarm_at} of {self.n}")
        _check_stretch(self)
        _marks(self.seen)

    def to_dict(self) -> dict[str, Any]:
        return plain.sealed("monitor", self)

    @classmethod
    def from_dict(cls, data: Any) -> MonitorState:
        """Refuses what is damaged, edited or impossible."""
        return plain.unsealed("monitor", cls, data)


def _check_stretch(state: MonitorState) -> None:
    end = state.n if state.alarm_at is None else state.alarm_at
    wrong = state.n_wrong if state.alarm_wrong is None else state.alarm_wrong
    if not 0 <= state.low_wrong <= state.low_at <= end or not state.low_wrong <= wrong <= state.n_wrong:
        raise InputError(
            f"monitor: lowest at label {state.low_at} ({state.low_wrong} wrong), alarm at {state.alarm_at} "
            f"({state.alarm_wrong} wrong), {state.n} in all ({state.n_wrong} wrong) do not fit"
        )
    if state.alarm_wrong is not None and state.alarm_at is None:
        raise InputError(f"monitor: {state.alarm_wrong} wrong up to an alarm that is not raised")
    if not state.low <= 0.0 or state.repeats < 0:
        raise InputError(f"monitor: lowest log wealth {state.low} (at most 0), {state.repeats} repeats (at least 0)")


def _marks(seen: str) -> list[bytes]:
    """The remembered clouds, the oldest first."""
    try:
        raw = base64.b64decode(seen, validate=True)
    except ValueError:
        raise InputError("monitor: the remembered clouds are not in base64") from None
    if len(raw) % MARK or len(raw) > MARK * REMEMBERED:
        raise InputError(f"monitor: {len(raw)} bytes of remembered clouds, expected {MARK} each, at most {REMEMBERED}")
    return [raw[i : i + MARK] for i in range(0, len(raw), MARK)]


def start(model_sha256: str, alpha: float, level: float = 0.05, what: str = WRONG) -> MonitorState:
    """Before the first label. Called once in the life of a model and alpha."""
    return MonitorState(model_sha256, float(alpha), float(level), 0, 0, *OPENING, alarm_at=None, what=what)


def update(state: MonitorState, wrong: float) -> MonitorState:
    """One more labelled certified answer: wrong or not, or a loss in [0, 1] where losses are watched."""
    loss = float(wrong)
    if state.what == LOSSES:
        if not 0.0 <= loss <= 1.0:
            raise UsageError(f"monitor: a loss of {loss} is outside [0, 1]")
        wrong = loss > state.alpha
    elif loss not in (0.0, 1.0):
        raise UsageError(
            f"monitor: {loss} is neither wrong nor right; a monitor of losses is started with what='losses'"
        )
    after = bet(Bet(state.eta, state.curvature, state.log_wealth), loss, state.alpha)
    n, n_wrong, log_wealth = state.n + 1, state.n_wrong + bool(wrong), float(after.log_wealth)
    quiet = state.alarm_at is None
    rung = quiet and log_wealth >= -math.log(state.level)
    fell = quiet and not wrong and log_wealth <= state.low
    return replace(
        state,
        n=n,
        n_wrong=n_wrong,
        total=state.total + loss if state.what == LOSSES else state.total,
        eta=float(after.eta),
        curvature=float(after.curvature),
        log_wealth=log_wealth,
        alarm_at=n if rung else state.alarm_at,
        alarm_wrong=n_wrong if rung else state.alarm_wrong,
        low=log_wealth if fell else state.low,
        low_at=n if fell else state.low_at,
        low_wrong=n_wrong if fell else state.low_wrong,
    )


def update_all(state: MonitorState, wrong: Iterable[float]) -> MonitorState:
    """Labels in the order in which they came."""
    for one in wrong:
        state = update(state, one)
    return state


def feed(state: MonitorState, hashes: Sequence[str], wrong: Sequence[float]) -> MonitorState:
    """The same for clouds that have a hash: one that was counted before is passed over."""
    before, seen = state, state.seen
    marks = dict.fromkeys(_marks(seen))  # in the order in which they came
    for name, one in zip(hashes, wrong, strict=True):
        mark = hashlib.sha256(name.encode()).digest()[:MARK]
        if mark not in marks:
            marks[mark] = None
            state = update(state, one)
    if state.n > before.n:
        seen = base64.b64encode(b"".join(list(marks)[-REMEMBERED:])).decode("ascii")
    return replace(state, seen=seen, repeats=before.repeats + len(hashes) - (state.n - before.n))


def shuffled(hashes: Sequence[str], seed: int = 0) -> list[int]:
    """The places of clouds in an order that follows from their content and the seed, not from how they are stored."""

    def key(place: int) -> tuple[bytes, int]:
        return hashlib.sha256(f"order {seed} {hashes[place]}".encode()).digest(), place

    return sorted(range(len(hashes)), key=key)


def alarm(state: MonitorState) -> bool:
    """Whether the wealth ever reached 1/level: the risk exceeded alpha at some time. No alarm proves nothing."""
    return state.alarm_at is not None


def check_belongs(state: MonitorState, model_sha256: str, alpha: float) -> None:
    """Refuse to carry on the state of another model or another promise."""
    if state.model_sha256 != model_sha256:
        raise InputError(f"monitor: feedback of model {state.model_sha256[:12]}, this one is {model_sha256[:12]}")
    if state.alpha != alpha:
        raise InputError(f"monitor: feedback on a promise of {percent(state.alpha)}, this one is {percent(alpha)}")


def message(state: MonitorState) -> str:
    """What was found, when and over which stretch, and what it means."""
    told = _quiet(state) if state.alarm_at is None else _alarm(state)
    if not state.repeats:
        return told
    return f"{told} Not counted: {state.repeats} that had been counted before."


def _share(part: int, whole: int) -> str:
    return f"{100.0 * part / whole:.1f} %" if whole else "-"


def _quiet(state: MonitorState) -> str:
    share = _share(state.n_wrong, state.n)
    if state.what == UNFAMILIAR:
        return (
            f"No alarm: {state.n_wrong} of {state.n} clouds were unfamiliar ({share}); "
            f"up to {percent(state.alpha)} are expected of clouds like the known ones."
        )
    if state.what == LOSSES:
        mean = f"{100.0 * state.total / state.n:.1f} %" if state.n else "-"
        return (
            f"No alarm: of {state.n} labelled shapes {mean} of the accepted points were wrong on average; "
            f"that does not prove that the promise of {percent(state.alpha)} is kept."
        )
    return (
        f"No alarm: {state.n_wrong} of {state.n} labelled certified answers were wrong ({share}); "
        f"that does not prove that the promise of {percent(state.alpha)} is kept."
    )


def _alarm(state: MonitorState) -> str:
    """The stretch, what it says, all labels so far, and what to do."""
    words = {UNFAMILIAR: ("cloud", "unfamiliar"), LOSSES: ("shape", f"above {percent(state.alpha)}")}
    unit, called = words.get(state.what, ("label", "wrong"))
    when = f"ALARM, raised at {unit} {state.alarm_at}"
    if state.alarm_wrong is not None and state.alarm_at is not None:
        length, wrong = state.alarm_at - state.low_at, state.alarm_wrong - state.low_wrong
        share = _share(wrong, length)
        when += f": of {unit}s {state.low_at + 1} to {state.alarm_at}, {wrong} of {length} were {called} ({share})"
    limit = percent(state.alpha)
    if state.what == LOSSES:
        return (
            f"{when}; where the mean loss is at most {limit} at any time, an alarm ever comes with a chance of at most "
            f"{percent(state.level)}. Over all {state.n} shapes the mean loss is "
            f"{100.0 * state.total / state.n:.1f} %: calibrate again on shapes like those seen now."
        )
    meant = (
        f"where at most {limit} are {called} at any time, an alarm ever comes with a chance of at most "
        f"{percent(state.level)}. "
        f"Of all {state.n} so far {state.n_wrong} were {called} ({_share(state.n_wrong, state.n)})"
    )
    return f"{when}; {meant}, {_advice(state)}"


def _advice(state: MonitorState) -> str:
    if state.what == UNFAMILIAR:
        return (
            "so what comes is not like the known clouds (another sensor, place or kind of object), and the promise "
            "speaks of few of them: see what changed, then calibrate on such clouds."
        )
    if state.n_wrong > state.alpha * state.n:
        return (
            f"more than the promised {percent(state.alpha)}: what comes is not like the calibration clouds; "
            "calibrate again on clouds like those seen now."
        )
    return (
        f"no more than the promised {percent(state.alpha)}: over all of them the promise is not refuted, but it was "
        "not kept evenly; the clouds of that stretch were harder (sorted by class? another sensor for a while?). If "
        "such clouds are to come, calibrate on clouds like them."
    )
