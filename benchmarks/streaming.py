"""A carried state against the prefix form: `python benchmarks/streaming.py [--json] [--quick]`, one thread.

The first t observations of 32 built-in shapes on the shipped bundles, with the carried state and with everything seen
so far computed again at each observation (`asp_neuro/model/prefix.py`). Were all chunks of one size, none of their
groups shared and the rest free, the prefix form would cost (t + 1) / 2 times as much. The exponent is that of a power
law fitted to the seconds. Wanted: at most 1.1 for streaming. Both forms are compared bit for bit first; a difference
ends the script.
"""

from __future__ import annotations

import numpy as np
from episodes import SHIPPED, shapes
from timing import Row, alternate, arguments, compared, one_thread, row, tell

from asp_neuro.model import prefix
from asp_neuro.model.exit import ExitRule
from asp_neuro.runtime.deployment import load_perceiver

CLOUDS = 32
LENGTHS = (2, 4, 8, 16)
FORMS = {"streaming": prefix.streaming, "prefix form": prefix.recomputing}


class AtMost(ExitRule):
    """Ends every episode after t observations, whatever the margin."""

    def __init__(self, t: int) -> None:
        super().__init__(tau=0.0)
        object.__setattr__(self, "left", [t])

    def crossed(self, margins: np.ndarray) -> np.ndarray:
        self.left[0] -= 1  # type: ignore[attr-defined]
        return np.full(np.shape(margins), self.left[0] <= 0)  # type: ignore[attr-defined]


def measure(name: str, lengths: tuple[int, ...], rounds: int) -> list[Row]:
    perceiver = load_perceiver(name)
    chunks = shapes(perceiver, CLOUDS)
    cost = prefix.compare(perceiver, [chunks], ExitRule())
    trials = {
        (form, t): lambda play=play, t=t: play(perceiver, chunks, AtMost(t))
        for t in lengths
        for form, play in FORMS.items()
    }
    found = alternate(trials, rounds)
    t = lengths[-1]
    each = {form: found[form, t] / CLOUDS for form in FORMS}
    expected = f"(t + 1) / 2 = {(t + 1) / 2:g}"
    rows = compared(each, "streaming", "s/cloud", f", {t} observations, {name}", {"prefix form": expected})
    for form in FORMS:
        seconds = np.stack([found[form, t] for t in lengths])  # [lengths, rounds]
        slopes = np.polyfit(np.log(lengths), np.log(seconds), 1)[0]
        wanted = "at most 1.1" if form == "streaming" else ""
        rows.append(row(f"{form}, exponent, {name}", slopes, "", wanted=wanted))
    macs = {form: sum(cost[form]["macs"].values()) for form in ("streaming", "prefix")}
    ratio, millions = macs["prefix"] / macs["streaming"], macs["prefix"] / CLOUDS / 1e6
    return [*rows, row(f"prefix form, products, {name}", millions, "million/cloud", ratio, "streaming", expected)]


def main() -> None:
    asked = arguments(__doc__).parse_args()
    one_thread()
    lengths, rounds = ((4, 16), 2) if asked.quick else (LENGTHS, 7)
    names = SHIPPED[:1] if asked.quick else SHIPPED
    tell("Streaming against prefix", [line for name in names for line in measure(name, lengths, rounds)], asked)


if __name__ == "__main__":
    main()
