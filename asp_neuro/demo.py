"""The demo: the main job on the built-in shapes, one step after the other, as far as it is built.

A step is a function `(Story) -> str`: it reads what earlier steps left in the story, adds its own part, and returns
one line for the summary. To add one, write it and put it into `STEPS` at its place in the data flow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from asp_neuro.report import say

if TYPE_CHECKING:
    from asp_neuro.cloud import Chunks
    from asp_neuro.data import CloudSet


@dataclass
class Story:
    """What the steps hand on to each other."""

    seed: int
    clouds: CloudSet | None = None
    chunks: Chunks | None = None


@dataclass(frozen=True)
class Step:
    name: str
    seconds: float
    summary: str


def run_steps(seed: int = 0) -> list[Step]:
    story = Story(seed)
    done = []
    for number, (name, act) in enumerate(STEPS, start=1):
        say(f"[{number}/{len(STEPS)}] {name} ...")
        start = time.perf_counter()
        summary = act(story)
        done.append(Step(name, time.perf_counter() - start, summary))
    return done


def make_clouds(story: Story) -> str:
    from asp_neuro.data import load

    story.clouds = load("shapes", "test", seed=story.seed)
    n, n_points, _ = story.clouds.points.shape
    return f"{n} clouds of {n_points} points, {len(story.clouds.classes)} classes: {', '.join(story.clouds.classes)}"


def cut_into_chunks(story: Story) -> str:
    from asp_neuro.cloud import Chunking
    from asp_neuro.grouping import chunks_of

    assert story.clouds is not None
    how = Chunking(n_groups=64, group_size=16, n_chunks=16)  # the compact model's
    story.chunks = chunks_of(story.clouds.points, how, story.clouds.names)
    sizes = story.chunks.mask().sum(axis=2)  # [n, M] points
    return f"{how.n_chunks} chunks a cloud, of {sizes.min()} to {sizes.max()} points, {sizes.mean():.0f} on average"


STEPS: Sequence[tuple[str, Callable[[Story], str]]] = (
    ("generate the built-in shapes", make_clouds),
    ("cut them into chunks", cut_into_chunks),
)
