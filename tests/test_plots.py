"""Pictures: what they show is what happened, and a place that cannot hold one is refused before the work."""

from __future__ import annotations

import numpy as np
import pytest

from asp_neuro.cli.main import main
from asp_neuro.data import load
from asp_neuro.scenes.cloud import Chunking, cut
from asp_neuro.studies.plots import changes, first_visits

HOW = Chunking(n_points=64, n_groups=12, group_size=5, n_chunks=4)


def test_a_point_has_the_colour_of_the_first_chunk_that_showed_it():
    chunks = cut(load("shapes", "test", n_points=64).points[:1], HOW)
    inside = chunks.mask()[0]
    seen = first_visits(chunks, (2, 0))
    for point in range(inside.shape[1]):
        expected = 1 if inside[2, point] else 2 if inside[0, point] else 0
        assert seen[point] == expected
    assert set(np.unique(seen)) == {0, 1, 2}


def test_a_class_is_named_where_it_takes_the_lead():
    assert changes((3, 3, 1, 1, 3)) == [0, 2, 4]


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
