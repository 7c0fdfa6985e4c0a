"""Plain ply clouds are read as trimesh reads them, bit for bit; whatever else a ply file holds is left to trimesh."""

from __future__ import annotations

import io

import numpy as np
import pytest
import trimesh
from hypothesis import given
from hypothesis import strategies as st

from asp_neuro.data.ply import ORDERS, plain_points

FORMATS = ("ascii", "binary_little_endian", "binary_big_endian")


def cloud(layout: str, kind: str, extra: str, values: np.ndarray, tail: str = "") -> bytes:
    """A ply file of points [n, 3], with a column of another type between y and z."""
    header = f"ply\nformat {layout} 1.0\ncomment made by a test\nelement vertex {len(values)}\n"
    header += f"property {kind} x\nproperty {kind} y\nproperty {extra} intensity\nproperty {kind} z\n{tail}end_header\n"
    number = {"float": "f4", "double": "f8"}
    other = {"uchar": "u1", "int": "i4", "float": "f4"}
    order = ORDERS[layout]
    record = np.dtype([(n, order + (other[extra] if n == "i" else number[kind])) for n in "xyiz"])
    table = np.zeros(len(values), record)
    for axis, column in zip("xyz", values.T):
        table[axis] = column
    if layout == "ascii":
        return header.encode() + "".join(" ".join(repr(v.item()) for v in row) + "\n" for row in table).encode()
    return header.encode() + table.tobytes()


@given(
    st.sampled_from(FORMATS),
    st.sampled_from(("float", "double")),
    st.sampled_from(("uchar", "int", "float")),
    st.lists(st.tuples(*[st.floats(-1e6, 1e6, width=32)] * 3), min_size=1, max_size=20),
)
def test_a_plain_cloud_is_what_trimesh_reads(layout, kind, extra, rows):  # bit-exact
    raw = cloud(layout, kind, extra, np.array(rows))
    theirs = trimesh.load(io.BytesIO(raw), file_type="ply", process=False).vertices
    np.testing.assert_array_equal(plain_points(raw), np.asarray(theirs, np.float64))


POINTS = np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
FACES = "element face {n}\nproperty list uchar int vertex_indices\n"


def test_faces_that_are_announced_and_not_there_leave_a_cloud():
    np.testing.assert_array_equal(plain_points(cloud("ascii", "float", "int", POINTS, FACES.format(n=0))), POINTS)


@pytest.mark.parametrize("layout", FORMATS)
def test_a_file_that_ends_early_gives_fewer_points(layout):
    assert len(plain_points(cloud(layout, "double", "int", POINTS)[:-6])) == 1


@pytest.mark.parametrize(
    "raw",
    [
        cloud("ascii", "float", "int", POINTS, FACES.format(n=1)),
        cloud("ascii", "float", "int", POINTS).replace(b"property int", b"property list uchar int"),
        cloud("ascii", "float", "int", POINTS).replace(b"element vertex", b"element point"),
        cloud("ascii", "float", "int", POINTS).replace(b"property float z", b"property float y"),
        cloud("ascii", "float", "int", POINTS).replace(b"ascii 1.0", b"ascii 2.0"),
        cloud("ascii", "float", "int", POINTS).replace(b"5.0", b"five"),
        cloud("ascii", "float", "int", POINTS).replace(b"end_header", b"end"),
    ],
    ids=["faces", "list", "no vertices", "no z", "version", "words", "no end"],
)
def test_whatever_is_not_a_plain_cloud_is_left_to_trimesh(raw):
    assert plain_points(raw) is None
