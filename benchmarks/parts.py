"""How fast points get their labels: `python benchmarks/parts.py [--json] [--quick]`, one thread.

Shapes of 1,024 points through the shipped bundle `shapenetpart` at full budget, in batches of 32, every point answered:
with the compiled twins and on numpy alone. Wanted: at most 8 ms a shape. Built-in shapes do: the time does not depend
on what a cloud shows. Both forms are compared bit for bit first; a difference ends the script.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from timing import Row, alternate, arguments, compared, one_thread, row, tell

from asp_neuro import compiled
from asp_neuro.data import load_clouds
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.points import PartAnswer, PointRule, answer_points, steps_in
from asp_neuro.runtime.deployment import load_perceiver

BATCH, POINTS = 32, 1024
COMPILED, NUMPY = "compiled twins", "numpy alone"


def on_numpy(trial: Callable[[], list[PartAnswer]]) -> list[PartAnswer]:
    """The same without the compiled part."""
    kept = compiled.kernels
    compiled.kernels = None
    try:
        return trial()
    finally:
        compiled.kernels = kept


def measure(rounds: int) -> list[Row]:
    perceiver = load_perceiver("shapenetpart")
    clouds = load_clouds("shapes", "test", n_points=POINTS).points[:BATCH]
    scenes = perceiver.scenes(clouds).asking(np.zeros(BATCH, dtype=np.int64))
    asked = [steps_in(cloud, cloud, perceiver.spec.scene.chunking) for cloud in clouds]

    def labelled() -> list[PartAnswer]:
        answers = perceiver.answers(scenes, ExitRule())
        return answer_points(perceiver.model, perceiver.stability, scenes, answers, asked, PointRule())

    if compiled.kernels is None:
        return [row(NUMPY, alternate({NUMPY: labelled}, rounds)[NUMPY] / BATCH, "s/shape", wanted="at most 8 ms")]
    for ours, theirs in zip(labelled(), on_numpy(labelled), strict=True):
        same = [np.array_equal(getattr(ours, name), getattr(theirs, name)) for name in ("labels", "point_margins")]
        if not all(same):
            sys.exit("the compiled form and numpy give different labels")
    found = alternate({COMPILED: labelled, NUMPY: lambda: on_numpy(labelled)}, rounds)
    each = {name: seconds / BATCH for name, seconds in found.items()}
    return compared(each, COMPILED, "s/shape", f", {POINTS} points, full budget", {COMPILED: "at most 8 ms"})


def main() -> None:
    asked = arguments(__doc__).parse_args()
    one_thread()
    tell("Points of a shape", measure(2 if asked.quick else 7), asked)


if __name__ == "__main__":
    main()
