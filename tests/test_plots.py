"""Pictures: what they show is what happened, and a place that cannot hold one is refused before the work."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot

from asp_neuro.certify import Recording, certify, make_plan
from asp_neuro.cli.main import main
from asp_neuro.data import load_clouds
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.runtime import deployment
from asp_neuro.scenes.cloud import Chunking, cut
from asp_neuro.studies import plots
from asp_neuro.studies.plots import first_visits

HOW = Chunking(n_points=64, n_groups=12, group_size=5, n_chunks=4)


def test_a_point_has_the_colour_of_the_first_chunk_that_showed_it():
    chunks = cut(load_clouds("shapes", "test", n_points=64).points[:1], HOW)
    inside = chunks.mask()[0]
    seen = first_visits(chunks, (2, 0))
    for point in range(inside.shape[1]):
        expected = 1 if inside[2, point] else 2 if inside[0, point] else 0
        assert seen[point] == expected
    assert set(np.unique(seen)) == {0, 1, 2}


@pytest.fixture
def figures(monkeypatch):
    """The figures that were drawn, laid out as they were saved."""
    drawn = []

    def keep(figure, path):
        figure.canvas.draw()
        drawn.append(figure)

    monkeypatch.setattr(plots, "saved", keep)
    yield drawn
    for figure in drawn:
        pyplot.close(figure)


def legends_stand_outside(figure) -> bool:
    """No legend lies on the frame of the axis that it explains."""
    told = [axis for axis in figure.axes if axis.get_legend() is not None]
    assert told
    return not any(axis.get_legend().get_window_extent().overlaps(axis.get_window_extent()) for axis in told)


def levels(axis) -> list[float]:
    """Heights of the lines that go straight across."""
    found = [np.asarray(line.get_ydata(), dtype=float) for line in axis.get_lines() if line.get_linestyle() != "None"]
    return [float(y[0]) for y in found if len(y) == 2 and y[0] == y[1]]


def drawn_visits(figures, rule: ExitRule, n: int):
    """A cloud of the shipped compact model, drawn after its episode under a rule."""
    perceiver = Perceiver(deployment.open_bundle("compact").bundle.model)
    clouds = load_clouds("shapes", "test", n_points=1024).points[:n]
    chunks = perceiver.spec.scene.scenes(clouds, tuple(map(str, range(n))))
    answers = perceiver.answers(chunks, rule)
    place = min(range(n), key=lambda i: -len(set(answers[i].labels)))  # the one with most changes of mind
    plots.visits(Path("x.png"), chunks[place : place + 1], answers[place], perceiver.classes, rule=rule)
    return figures[0], answers[place], perceiver.classes


def test_the_margins_are_drawn_with_the_threshold_and_the_classes_that_led(figures):
    figure, answer, classes = drawn_visits(figures, ExitRule(0.62, certified=True), 40)
    axis = next(axis for axis in figure.axes if axis.get_xlabel() == "observation")
    assert levels(axis) == [0.62]
    assert legends_stand_outside(figure)
    told = [text.get_text() for text in axis.get_legend().get_texts()]
    assert told == [*(f"{classes[i]} leads" for i in dict.fromkeys(answer.labels)), "certified exit above 0.620"]
    points = {tuple(p) for line in axis.get_lines() if line.get_marker() == "o" for p in line.get_xydata()}
    assert points == {(t, m) for t, m in enumerate(answer.margins, start=1)}


def test_one_observation_needs_no_colour_bar_and_several_have_one_step_each(figures):
    figure, answer, _ = drawn_visits(figures, ExitRule(0.0), 1)
    assert answer.observations == 1
    assert not [axis for axis in figure.axes if axis.get_ylabel() == "first seen at observation"]
    assert legends_stand_outside(figure)
    figures.clear()
    figure, answer, _ = drawn_visits(figures, ExitRule(0.5), 1)
    (bar,) = [axis for axis in figure.axes if axis.get_ylabel() == "first seen at observation"]
    assert [int(tick) for tick in bar.get_yticks()] == list(range(1, answer.observations + 1))


def test_the_legend_of_the_curve_hides_no_line(figures):
    rng = np.random.default_rng(0)
    margins = np.sort(rng.random((4, 600)), axis=0)
    recording = Recording(margins, rng.random((4, 600)) < 0.9 + 0.1 * margins)
    made = make_plan(recording, 0.1, 0.05, 600, model_sha256="ab" * 32, data_sha256="cd" * 32)
    found = certify(recording, made, model_sha256="ab" * 32, data_sha256="ef" * 32)
    plots.certificate_curve(Path("x.png"), recording, found)
    (figure,) = figures
    assert legends_stand_outside(figure)
    risk = next(axis for axis in figure.axes if axis.get_ylabel() == "risk in %")
    assert 10.0 in levels(risk)


@pytest.mark.parametrize("name", ["order.png", "order.svg"])
def test_run_draws_the_first_cloud(tmp_path, capsys, name):
    assert main(["run", "compact", "--limit", "1", "--picture", str(tmp_path / name)]) == 0
    assert (tmp_path / name).stat().st_size > 5000
    assert f"picture: {tmp_path / name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "message"), [("order.txt", "does not end in .png"), ("no/order.png", "make it first")]
)
def test_a_place_that_holds_no_picture_is_refused_at_once(tmp_path, capsys, name, message):
    assert main(["run", "compact", "--picture", str(tmp_path / name)]) == 2
    assert message in capsys.readouterr().err
