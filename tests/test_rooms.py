"""Rooms: the built-in ones, S3DIS on folders made by hand, crops and blocks of them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asp_neuro.data.built_rooms import N_POINTS, SIZES, built_rooms
from asp_neuro.data.rooms import CLASSES, RARE, Room, anchors, blocks, crop, draw_anchor, features
from asp_neuro.data.s3dis import read_room, read_s3dis, room_folders
from asp_neuro.errors import InputError, MissingError, UsageError

CEILING, BEAM, COLUMN = CLASSES.index("ceiling"), CLASSES.index("beam"), CLASSES.index("column")


def room(points: np.ndarray, labels: np.ndarray | None = None, name: str = "made") -> Room:
    n = len(points)
    given = np.zeros(n, np.int64) if labels is None else labels
    return Room(points.astype(np.float32), np.full((n, 3), 51, np.uint8), given, name)


# Built in


def test_the_built_in_rooms_have_every_class_but_the_sofa() -> None:
    counts = [own.counts() for own in built_rooms("train", 12)]
    total = {kind: sum(own[kind] for own in counts) for kind in CLASSES}
    assert [kind for kind, n in total.items() if n == 0] == ["sofa"]
    for own in counts:
        assert min(own[kind] for kind in ("ceiling", "floor", "wall", "beam", "column", "table", "chair")) > 0


def test_a_beam_hangs_below_the_ceiling_and_a_column_stands_on_the_floor() -> None:
    for own in built_rooms("validation", 5):
        height = own.points[:, 1]
        ceiling, beam, column = (height[own.labels == k] for k in (CEILING, BEAM, COLUMN))
        assert beam.max() < ceiling.max() + 0.03
        assert 0.1 < ceiling.max() - beam.min() < 0.55
        assert column.min() < 0.2
        assert len(own) == N_POINTS


def test_no_height_tells_a_beam_from_a_ceiling() -> None:
    rooms = built_rooms("train", 15)
    beams = [float(own.points[own.labels == BEAM][:, 1].min()) for own in rooms]
    ceilings = [float(np.median(own.points[own.labels == CEILING][:, 1])) for own in rooms]
    assert min(ceilings) < np.median(beams) < max(ceilings)


def test_rooms_are_a_function_of_seed_split_and_number() -> None:
    def digest(rooms: list[Room]) -> str:
        content = [own.points.tobytes() + own.labels.tobytes() + own.colours.tobytes() for own in rooms]
        return hashlib.sha256(b"".join(content)).hexdigest()[:16]

    once = built_rooms("test", 2)
    assert digest(once) == digest(built_rooms("test", 2)) == PINNED
    assert len({digest(built_rooms(split, 1)) for split in SIZES}) == 4
    assert digest(built_rooms("test", 2, seed=1)) != digest(once)
    with pytest.raises(UsageError, match="33 rooms: the test split has 1 to 32"):
        built_rooms("test", 33)


PINNED = "194dcdf636411bb7"


# Crops


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.5, 3.0), st.floats(0.3, 1.0))
def test_blocks_leave_no_point_out_and_stay_within_their_size(seed: int, size: float, share: float) -> None:
    rng = np.random.default_rng(seed)
    own = room(rng.uniform(0, rng.uniform(0.5, 6.0, size=3), size=(300, 3)))
    found = blocks(own, size, share * size)
    assert set(np.concatenate(found).tolist()) == set(range(300))
    for index in found:
        assert (np.ptp(own.points[index][:, [0, 2]], axis=0) <= size + 1e-5).all()
    apart = np.concatenate(blocks(own, size))
    assert len(apart) == len(set(apart.tolist())) == 300  # side by side: each point once


def test_a_crop_holds_the_points_of_its_square() -> None:
    points = np.stack(np.meshgrid(np.arange(5.0), [0.0, 1.0], np.arange(5.0), indexing="ij"), axis=-1).reshape(-1, 3)
    own = room(points)
    found = own.points[crop(own, (2.0, 2.0), 2.0, 18)]
    assert sorted(map(tuple, found.tolist())) == [(x, y, z) for x in (1, 2, 3) for y in (0, 1) for z in (1, 2, 3)]
    few = crop(own, (0.0, 0.0), 1.0, 5)
    assert len(few) == 5
    assert len(set(few.tolist())) == 2
    assert len(crop(own, (99.0, 99.0), 1.0, 5)) == 0
    with pytest.raises(UsageError, match="larger than nothing"):
        crop(own, (0.0, 0.0), 0.0, 5)
    with pytest.raises(UsageError, match=r"stride 3\.0 m"):
        blocks(own, 2.0, 3.0)


def test_features_are_place_colour_and_height() -> None:
    own = room(np.array([[1.0, 2.0, 3.0], [3.0, 2.5, 5.0], [9.0, 1.0, 9.0]]))
    found = features(own, np.array([0, 1]))
    expected = [[-1.0, 1.0, -1.0, 0.2, 0.2, 0.2, 1.0], [1.0, 1.5, 1.0, 0.2, 0.2, 0.2, 1.5]]
    assert found == pytest.approx(np.array(expected), abs=1e-6)


def test_rare_anchors_are_drawn_by_class_first() -> None:
    labels = np.array([BEAM] * 90 + [COLUMN] * 10 + [0] * 900)
    rng = np.random.default_rng(0)
    rooms = [room(rng.uniform(0, 5, size=(1000, 3)), labels)]
    rare = anchors(rooms)
    assert {kind: len(own) for kind, own in rare.items()} == {"beam": 90, "column": 10}
    place = {tuple(p): int(k) for p, k in zip(rooms[0].points[:, [0, 2]].tolist(), labels)}
    drawn = [place[tuple(draw_anchor(rooms, rare, rng, share=1.0)[1].tolist())] for _ in range(1000)]
    assert 400 < drawn.count(COLUMN) < 600
    assert drawn.count(COLUMN) + drawn.count(BEAM) == 1000
    usual = [place[tuple(draw_anchor(rooms, rare, rng, share=0.0)[1].tolist())] for _ in range(1000)]
    assert usual.count(COLUMN) < 40
    assert anchors([room(np.zeros((3, 3)))], RARE) == {}


# S3DIS


def made(root: Path) -> Path:
    rng = np.random.default_rng(0)
    for area in (1, 2, 5):
        for number in range(1, 9 if area == 1 else 3):
            folder = root / f"Area_{area}" / f"office_{number}" / "Annotations"
            folder.mkdir(parents=True)
            for kind in ("chair_1", "chair_2", "beam_1", "stairs_1"):
                rows = np.concatenate([rng.uniform(0, 3, (5, 3)), rng.integers(0, 256, (5, 3))], axis=1)
                lines = [" ".join([f"{v:.3f}" for v in row[:3]] + [f"{int(v)}" for v in row[3:]]) for row in rows]
                (folder / f"{kind}.txt").write_text("\n".join(lines) + "\n")
        (root / f"Area_{area}" / ".DS_Store").write_text("x")
    return root


def test_the_splits_of_s3dis_are_by_area_and_room(tmp_path: Path) -> None:
    made(tmp_path)
    names = {
        split: [own.relative_to(tmp_path).as_posix() for own in room_folders(tmp_path, split)]
        for split in ("train", "validation", "calibration", "test")
    }
    assert names["test"] == ["Area_5/office_1", "Area_5/office_2"]
    rest = [name for split in ("train", "validation", "calibration") for name in names[split]]
    assert len(rest) == len(set(rest)) == 10
    assert not any("Area_5" in name for name in rest)
    assert [len(names[split]) for split in ("validation", "calibration")] == [1, 2]


def test_a_room_of_s3dis_is_turned_to_y_up_with_its_labels(tmp_path: Path) -> None:
    folder = made(tmp_path) / "Area_5" / "office_1"
    (folder / "Annotations" / "chair_1.txt").write_text("1 2 3 10 20 30\n")
    own = read_room(folder)
    at = np.flatnonzero((own.points == [1.0, 3.0, -2.0]).all(axis=1))
    assert len(at) == 1
    assert own.colours[at[0]].tolist() == [10, 20, 30]
    assert CLASSES[own.labels[at[0]]] == "chair"
    assert own.counts()["clutter"] == 5  # the stairs
    assert own.name == "Area_5/office_1"
    assert len(read_s3dis(tmp_path, "test", limit=1)) == 1


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("chair_1.txt", "1 2 3 4 5 6\n1 2 3 185\x10187 5 6\n", r"chair_1.txt: line 2: '1 2 3 185.*mend the line"),
        ("chair_1.txt", "1 2 3 4 5\n", "5 columns, expected 6"),
        ("chair_1.txt", "1 2 3 4 5 6\n1 2 3 4 5\n", "line 2: '1 2 3 4 5' is not x y z r g b"),
        ("chair_1.txt", "1 2 nan 4 5 6\n", "point 1: not finite"),
        ("chair_1.txt", "1 2 3 4 5 256\n", "point 1: .*a colour outside 0 to 255"),
        ("chair_1.txt", "", "the file is empty"),
        ("boat_1.txt", "1 2 3 4 5 6\n", "'boat' is none of the classes ceiling"),
    ],
)
def test_a_bad_file_of_s3dis_is_named_with_the_reason(name: str, content: str, words: str, tmp_path: Path) -> None:
    folder = made(tmp_path) / "Area_5" / "office_1"
    (folder / "Annotations" / name).write_text(content)
    with pytest.raises(InputError, match=words):
        read_room(folder)


def test_what_is_no_s3dis_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="no S3DIS there"):
        room_folders(tmp_path, "test")
    (tmp_path / "Area_1" / "office_1").mkdir(parents=True)
    with pytest.raises(MissingError, match="no room of the split 'test'"):
        room_folders(tmp_path, "test")
    with pytest.raises(InputError, match="Annotations"):
        read_room(tmp_path / "Area_1" / "office_1")


def test_a_room_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="no points"):
        room(np.zeros((0, 3)))
    with pytest.raises(InputError, match="a label outside the 13 classes"):
        room(np.zeros((1, 3)), np.array([13]))
    with pytest.raises(InputError, match="do not fit"):
        Room(np.zeros((2, 3), np.float32), np.zeros((1, 3), np.uint8), np.zeros(2, np.int64), "x")
