"""Files as sensors and surveyors leave them: las, laz, e57, text with headers, map coordinates, zeros for no return."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from asp_neuro.data import load_clouds, read_cloud
from asp_neuro.data.columns import read_columns
from asp_neuro.data.files import take_file
from asp_neuro.data.intake import NO_RETURN, Sampling, rounded, take
from asp_neuro.errors import InputError

UTM = np.array([593_000.0, 5_763_000.0, 50.0])
HOW = Sampling(1024)


@pytest.fixture(scope="module")
def cloud() -> np.ndarray:
    """A built-in shape in millimetres' steps, so that every kind of file can hold it."""
    return np.rint(load_clouds("shapes", "test").points[0].astype(np.float64) * 1000) / 1000


def centred(points: np.ndarray) -> np.ndarray:
    points = points.astype(np.float64)
    return points - (points.min(axis=0) + points.max(axis=0)) / 2


def write_las(path: Path, points: np.ndarray, offsets: np.ndarray, scale: float = 0.001) -> Path:
    import laspy

    header = laspy.LasHeader(point_format=3, version="1.2")
    header.offsets, header.scales = offsets, np.full(3, scale)
    made = laspy.LasData(header)
    made.x, made.y, made.z = points.T
    made.write(path)
    return path


def write_e57(path: Path, *scans: np.ndarray, **pose: np.ndarray) -> Path:
    import pye57

    with pye57.E57(str(path), mode="w") as file:
        for points in scans:
            file.write_scan_raw({f"cartesian{axis}": points[:, i].copy() for i, axis in enumerate("XYZ")}, **pose)
    return path


@pytest.mark.parametrize("kind", ["las", "laz"])
def test_a_survey_on_the_map_keeps_every_millimetre(tmp_path, cloud, kind):
    near = write_las(tmp_path / f"near.{kind}", cloud, np.zeros(3))
    far = write_las(tmp_path / f"far.{kind}", cloud + UTM, UTM)
    np.testing.assert_allclose(centred(read_cloud(near)), centred(cloud), atol=1e-6)
    np.testing.assert_array_equal(read_cloud(near), read_cloud(far))
    assert take_file(far, HOW).notes == ()
    given = take_file(far, HOW, every=True).given
    np.testing.assert_allclose(given, np.round(cloud, 3) + UTM, atol=2e-9)  # labels go back to the map


def test_a_las_file_is_known_by_its_first_bytes(tmp_path, cloud, monkeypatch):
    import io
    import sys

    raw = write_las(tmp_path / "a.laz", cloud, np.zeros(3)).read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
    np.testing.assert_array_equal(take_file("-", HOW).points, read_cloud(tmp_path / "a.laz"))


@pytest.mark.parametrize("kind", ["las", "laz", "e57"])
@pytest.mark.parametrize("keep", [0.0, 0.1, 0.5, 0.9])
def test_a_damaged_survey_is_refused_with_its_name(tmp_path, cloud, kind, keep):
    path = tmp_path / f"a.{kind}"
    write_e57(path, cloud) if kind == "e57" else write_las(path, cloud, np.zeros(3))
    raw = path.read_bytes()
    path.write_bytes(raw[: int(keep * len(raw))] + b"?")
    with pytest.raises(InputError, match=rf"a\.{kind}: (not a readable|truncated)"):
        read_cloud(path)


def test_a_survey_without_points_or_with_too_many_is_refused(tmp_path, cloud, monkeypatch):
    with pytest.raises(InputError, match=r"a\.las: no points"):
        read_cloud(write_las(tmp_path / "a.las", np.empty((0, 3)), np.zeros(3)))
    monkeypatch.setattr("asp_neuro.data.files.MAX_POINTS", 1000)
    with pytest.raises(InputError, match=r"b\.laz: 1024 points, the limit is 1000"):
        read_cloud(write_las(tmp_path / "b.laz", cloud, np.zeros(3)))
    with pytest.raises(InputError, match=r"c\.e57: 1024 points, the limit is 1000"):
        read_cloud(write_e57(tmp_path / "c.e57", cloud))


def test_scans_of_an_e57_file_are_joined_in_its_frame(tmp_path, cloud):
    turn = np.array([np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5)])  # a quarter about z
    turned = np.stack([cloud[:, 1], -cloud[:, 0], cloud[:, 2]], axis=1)  # what the turn brings back
    path = write_e57(tmp_path / "a.e57", turned[:500], turned[500:], rotation=turn, translation=UTM)
    found = take_file(path, HOW)
    assert "2 scans were joined." in found.notes
    np.testing.assert_allclose(centred(found.points), centred(cloud), atol=2e-6)


def test_points_that_an_e57_file_marks_as_invalid_are_left_out(tmp_path, cloud):
    import pye57

    data = {f"cartesian{axis}": cloud[:, i].copy() for i, axis in enumerate("XYZ")}
    with pye57.E57(str(tmp_path / "a.e57"), mode="w") as file:
        file.write_scan_raw({**data, "cartesianInvalidState": (np.arange(1024) < 24).astype(np.int8)})
    found = take_file(tmp_path / "a.e57", HOW)
    assert "Left out: 24 of the points, which the file marks as invalid." in found.notes


# Text


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("x y z intensity\n1 2 3 9\n4 5 6 9\n", "x y z intensity"),
        ("//X Y Z R\n2\n1 2 3 9\n4 5 6 9\n", "//X Y Z R"),
        ("X,Y,Z,I\n1,2,3,9\n4,5,6,9\n", "X,Y,Z,I"),
        ("X;Y;Z;I\n1;2;3;9\n4;5;6;9\n", "X;Y;Z;I"),
        ("# comment\n\nx\ty\tz\ti\n1\t2\t3\t9\n4\t5\t6\t9\n", "x\ty\tz\ti"),
    ],
)
def test_a_header_is_passed_over_and_told(text, header):
    table, notes = read_columns(text)
    np.testing.assert_array_equal(table, [[1, 2, 3, 9], [4, 5, 6, 9]])
    assert notes[0] == f"Taken for a header: '{header}'."


def test_names_in_a_header_say_which_columns_are_meant():
    table, notes = read_columns("t,Z,X,Y\n0,3,1,2\n0,6,4,5\n")
    np.testing.assert_array_equal(table[:, :3], [[1, 2, 3], [4, 5, 6]])
    assert notes[1] == "Columns 3, 4, 2 are x, y and z, by that header."


def test_further_columns_are_left_out_and_told(tmp_path):
    np.savetxt(tmp_path / "a.xyz", np.random.default_rng(0).random((1024, 7)))
    assert take_file(tmp_path / "a.xyz", HOW).notes == ("7 columns: the first three are taken as x, y and z.",)


@pytest.mark.parametrize("text", ["once upon a time\n", "a b c\n1 2 x\n", "a\nb\nc\nd\n1 2 3\n", "1 2 3\nx y z\n"])
def test_a_text_that_is_no_table_is_refused(tmp_path, text):
    (tmp_path / "a.xyz").write_text(text)
    with pytest.raises(InputError, match=r"a\.xyz: not a table of numbers"):
        read_cloud(tmp_path / "a.xyz")


# Units, offsets, digits


@pytest.mark.parametrize("offset", [0.0, 3.0, 60.0, 1e3])
@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_units_and_offsets_do_not_change_an_answer(cloud, scale, offset):
    import asp_neuro

    model = asp_neuro.load("compact")
    answers = [model(points) for points in (cloud, cloud * scale + offset, cloud * scale + UTM)]
    assert len({(a.label, a.order, a.margin) for a in answers}) == 1


def test_a_cloud_on_the_map_loses_nothing_on_the_way_to_float32(cloud):
    moved = rounded(cloud + UTM)
    np.testing.assert_allclose(centred(moved), centred(cloud), atol=1e-6)


@pytest.mark.parametrize(
    "lost",
    [
        lambda cloud: (cloud + UTM).astype(np.float32),
        lambda cloud: (cloud + UTM).astype(np.float32) - UTM.astype(np.float32),  # too late
        lambda cloud: (cloud + UTM).round(1),
    ],
)
def test_digits_that_were_lost_before_are_noticed(cloud, lost):
    (note,) = (note for note in take(lost(cloud), HOW).notes if "lattice" in note)
    assert "digits were lost before they came here" in note


def test_no_built_in_shape_seems_to_have_lost_digits():
    for points in load_clouds("shapes", "validation").points[:100]:
        assert take(points, HOW).notes == ()
        assert take(points.astype(np.float64) + UTM, HOW).notes == ()


def test_parallel_planes_near_the_origin_are_no_lattice():
    shelf = np.random.default_rng(0).random((1024, 3))
    shelf[:, 1] = np.arange(1024) % 4
    assert take(shelf, HOW).notes == ()


# Nothing came back


def test_rows_of_zeros_are_left_out_and_counted(cloud):
    holes = cloud + 3.0
    holes[:200] = 0.0
    found = take(holes, HOW)
    assert (found.dropped, found.removed) == (200, 0)
    assert "Left out: 200 of the points, which are 0 0 0, as sensors write where nothing came back." in found.notes
    np.testing.assert_array_equal(found.points, take(holes[200:], HOW).points)


def test_a_single_point_at_the_origin_is_a_point_and_zeros_alone_are_no_cloud(cloud):
    few = cloud + 3.0
    few[: NO_RETURN - 1] = 0.0
    assert take(few, HOW).dropped == 0
    with pytest.raises(InputError, match="all points are the same"):
        take(np.zeros((1024, 3)), HOW)


def test_what_was_left_out_of_a_data_set_is_said_once(tmp_path, cloud, capsys):
    for i in range(4):
        holes = np.hstack([cloud + 3.0 + i, np.ones((1024, 1))])
        holes[: 10 * i, :3] = 0.0
        (tmp_path / "box" / "test").mkdir(parents=True, exist_ok=True)
        np.savetxt(tmp_path / "box" / "test" / f"{i}.xyz", holes)
    load_clouds(tmp_path, "test")
    said = capsys.readouterr().err
    assert "4 of 4 clouds, for one box/test/0.xyz: 4 columns" in said
    assert "3 of 4 clouds, for one box/test/1.xyz: Left out: 10 of the points, which are 0 0 0" in said
    assert said.count("0 0 0") == 1
