"""Is the promise still kept? A bet against it over labelled certified answers (paper Prop. S20, put right).

    null: P(Z_s = 1 | past) <= alpha for every labelled certified answer s     (Z = 1: wrong)
    W_t = prod_s (1 + eta_s (Z_s - alpha)),   W_0 = 1,   alarm once W_t >= 1 / level

Every eta_s in [0, 1/alpha) is chosen before Z_s is seen, so W is a nonnegative supermartingale under the null, and by
Ville's inequality it ever reaches 1/level with probability at most level. The bets follow the Online Newton Step:

    g = Z - alpha;  log W += log(1 + eta g);  y = -g / (1 + eta g);  A += y^2
    eta <- clip(eta - c y / A, 0, 1/(2 alpha));    eta = 0, A = 1 at the start;    c = 2 / (2 - ln 3)

S20 runs over the looks of one sample; there the null is false on hard inputs and the label is not seen. Labels must be
asked for without regard to correctness. The state is carried on for ever: starting afresh after a look voids the level.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from asp_neuro import plain
from asp_neuro.certify.bounds import percent
from asp_neuro.errors import InputError, UsageError

STEP = 2 / (2 - math.log(3))


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
    n_wrong: int
    eta: float
    curvature: float
    log_wealth: float
    alarm_at: int | None  # the label that raised the alarm; it stays raised

    def __post_init__(self) -> None:
        for name in ("alpha", "level"):
            value = getattr(self, name)
            if not 0.0 < value < 1.0:
                raise UsageError(f"monitor: {name} {value} must lie strictly between 0 and 1")
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

    def to_dict(self) -> dict[str, Any]:
        return plain.sealed("monitor", self)

    @classmethod
    def from_dict(cls, data: Any) -> MonitorState:
        """Refuses what is damaged, edited or impossible."""
        return plain.unsealed("monitor", cls, data)


def start(model_sha256: str, alpha: float, level: float = 0.05) -> MonitorState:
    """Before the first label. Called once in the life of a model and alpha."""
    return MonitorState(model_sha256, float(alpha), float(level), 0, 0, *OPENING, alarm_at=None)


def update(state: MonitorState, wrong: bool) -> MonitorState:
    """One more labelled certified answer."""
    after = bet(Bet(state.eta, state.curvature, state.log_wealth), bool(wrong), state.alpha)
    n = state.n + 1
    rung = state.alarm_at is None and float(after.log_wealth) >= -math.log(state.level)
    return replace(
        state,
        n=n,
        n_wrong=state.n_wrong + bool(wrong),
        eta=float(after.eta),
        curvature=float(after.curvature),
        log_wealth=float(after.log_wealth),
        alarm_at=n if rung else state.alarm_at,
    )


def update_all(state: MonitorState, wrong: Iterable[bool]) -> MonitorState:
    """A run's labels in the order in which they came."""
    for one in wrong:
        state = update(state, one)
    return state


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
    """The state in one sentence."""
    seen = f"{state.n_wrong} of {state.n} labelled certified answers were wrong"
    if state.alarm_at is None:
        return f"No alarm: {seen}; that does not prove that the promise of {percent(state.alpha)} is kept."
    return (
        f"ALARM: {seen}, more than a promise of {percent(state.alpha)} allows (raised at label {state.alarm_at}; a"
        f" false alarm has a chance of at most {percent(state.level)}): calibrate again on data like those seen now."
    )
