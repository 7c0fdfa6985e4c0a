"""One file, one cloud: what is read, how it is turned and resampled, and what is refused."""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asp_neuro.data import files as files_module
from asp_neuro.data import read_cloud
from asp_neuro.data.axes import to_y_up
from asp_neuro.errors import InputError, UsageError

FOUR = np.array([[0.0, 0, 0], [1, 0, 0], [0, 2, 0], [0, 0, 4]])
TETRAHEDRON = "4 4 6\n0 0 0\n1 0 0\n0 2 0\n0 0 4\n3 0 2 1\n3 0 1 3\n3 0 3 2\n3 1 2 3\n"
PCD_HEADER = (
    "# .PCD v0.7\nVERSION 0.7\nFIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nCOUNT 1 1 1\nWIDTH {n}\nHEIGHT 1\n"
    "VIEWPOINT 0 0 0 1 0 0 0\nPOINTS {n}\nDATA {kind}\n"
)
PLY_FACES = "element face {n}\nproperty list uchar int vertex_indices\n"
PLY_HEADER = "ply\nformat {kind} 1.0\nelement vertex {n}\nproperty float x\nproperty float y\nproperty float z\n"


def rows(points: np.ndarray, separator: str = " ") -> str:
    return "".join(separator.join(f"{v:.9g}" for v in p) + "\n" for p in points)


def write_four(folder: Path, kind: str) -> Path:
    """The points of FOUR in one of the formats."""
    path = folder / f"four.{kind.split('-')[0]}"
    raw = FOUR.astype("<f4").tobytes()
    if kind == "npy":
        np.save(path, FOUR)
    elif kind == "npz":
        np.savez_compressed(path, points=FOUR, extra=np.arange(3))
    else:
        content = {
            "txt": rows(FOUR, ",").encode(),
            "xyz": b"# x y z\n" + rows(FOUR).encode(),
            "pcd-ascii": (PCD_HEADER.format(n=4, kind="ascii") + rows(FOUR)).encode(),
            "pcd-binary": PCD_HEADER.format(n=4, kind="binary").encode() + raw,
            "ply-ascii": (PLY_HEADER.format(n=4, kind="ascii") + "end_header\n" + rows(FOUR)).encode(),
            "ply-binary": (PLY_HEADER.format(n=4, kind="binary_little_endian") + "end_header\n").encode() + raw,
        }[kind]
        path.write_bytes(content)
    return path


@pytest.mark.parametrize("kind", ["npy", "npz", "txt", "xyz", "pcd-ascii", "pcd-binary", "ply-ascii", "ply-binary"])
def test_every_format_gives_the_same_four_points(tmp_path: Path, kind: str) -> None:
    cloud = read_cloud(write_four(tmp_path, kind), n_points=4)
    assert cloud.dtype == np.float32
    np.testing.assert_array_equal(cloud, FOUR)


def test_a_compressed_pcd_of_another_program_is_read(tmp_path: Path) -> None:
    pypcd4 = pytest.importorskip("pypcd4")
    pypcd4.PointCloud.from_xyz_points(FOUR.astype(np.float32)).save(tmp_path / "c.pcd")
    np.testing.assert_array_equal(read_cloud(tmp_path / "c.pcd", n_points=4), FOUR)


def test_the_normals_of_a_six_column_file_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(rows(np.hstack([FOUR, FOUR + 7]), ","))
    np.testing.assert_array_equal(read_cloud(path, n_points=4), FOUR)


@pytest.mark.parametrize("header", ["OFF\n", "OFF", "OFF ", "# by hand\nOFF\n# sizes\n"])
def test_an_off_mesh_is_read_with_every_header_seen_in_the_wild(tmp_path: Path, header: str) -> None:
    (tmp_path / "a.off").write_text(header + TETRAHEDRON)
    (tmp_path / "b.off").write_text("OFF\n" + TETRAHEDRON)
    one, two = (read_cloud(tmp_path / name, n_points=50) for name in ("a.off", "b.off"))
    np.testing.assert_array_equal(one, two)


QUAD = {  # the unit square in the plane y = 0, as other programs write it
    "polygon.off": "COFF\n4 1 0\n0 0 0 9 0 0 9\n1 0 0 9 0 0 9\n1 0 1 9 0 0 9\n0 0 1 9 0 0 9\n4 0 1 2 3\n",
    "windows.off": "OFF\r\n4 2 0\r\n0 0 0\r\n1 0 0\r\n1 0 1\r\n0 0 1\r\n3 0 1 2\r\n3 0 2 3\r\n",
    "one_line_less.off": "OFF\n4 1 0\n0 0 0\n1 0 0\n1 0 1\n0 0 1\n4 0 1 2 3",
    "materials.obj": "mtllib none.mtl\no one\nv 0 0 0\nv 1 0 0\nv 1 0 1\nv 0 0 1\nvt 0 0\nvn 0 1 0\nusemtl red\n"
    "f 1/1/1 2/1/1 3/1/1\no two\nusemtl blue\nf 1//1 3//1 4//1\n",
    "faces.ply": PLY_HEADER.format(n=4, kind="ascii") + "property uchar red\nelement face 1\n"
    "property list uchar int vertex_indices\nend_header\n0 0 0 9\n1 0 0 9\n1 0 1 9\n0 0 1 9\n4 0 1 2 3\n",
}


@pytest.mark.parametrize("name", QUAD)
def test_meshes_of_other_programs_are_covered_evenly(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(QUAD[name].encode())
    cloud = read_cloud(tmp_path / name, n_points=4000)
    assert (cloud[:, 1] == 0).all()
    for quarter in ((cloud[:, 0] < 0.5) == left for left in (True, False)):
        assert 0.22 < (quarter & (cloud[:, 2] < 0.5)).mean() < 0.28


def test_a_ply_with_an_empty_list_of_faces_is_a_cloud(tmp_path: Path) -> None:
    header = PLY_HEADER.format(n=4, kind="ascii") + "property float nx\nelement face 0\n"
    header += "property list uchar int vertex_indices\nend_header\n"
    (tmp_path / "a.ply").write_text(header + rows(np.hstack([FOUR, FOUR[:, :1]])))
    np.testing.assert_array_equal(read_cloud(tmp_path / "a.ply", n_points=4), FOUR)


def test_fields_of_a_pcd_may_have_any_order_and_type(tmp_path: Path) -> None:
    header = PCD_HEADER.format(n=2, kind="ascii").replace("x y z", "z x y").replace("F F F", "I F F")
    (tmp_path / "a.pcd").write_text(header + "3 1.5 2.5\n6 4.5 5.5\n")
    np.testing.assert_array_equal(read_cloud(tmp_path / "a.pcd", n_points=2), [[1.5, 2.5, 3], [4.5, 5.5, 6]])


VALID = {
    "a.off": b"OFF\n" + TETRAHEDRON.encode(),
    "a.ply": (PLY_HEADER.format(n=4, kind="binary_little_endian") + "end_header\n").encode()
    + FOUR.astype("<f4").tobytes(),
    "a.pcd": PCD_HEADER.format(n=4, kind="binary").encode() + FOUR.astype("<f4").tobytes(),
    "a.txt": rows(FOUR).encode(),
}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(VALID)), st.integers(0, 300), st.integers(0, 40), st.binary(max_size=6))
def test_a_damaged_file_is_read_or_refused_and_nothing_else(
    tmp_path: Path, name: str, at: int, cut: int, junk: bytes
) -> None:
    content = VALID[name]
    (tmp_path / name).write_bytes(content[:at] + junk + content[at + cut :])
    with contextlib.suppress(InputError):
        cloud = read_cloud(tmp_path / name, n_points=8)
        assert cloud.shape == (8, 3)
        assert np.isfinite(cloud).all()


def test_points_of_a_mesh_lie_on_it_in_proportion_to_area(tmp_path: Path) -> None:
    # two flat squares at heights 0 and 1, of areas 1 and 9
    corners = [(0, 0, 0), (1, 0, 0), (1, 0, 1), (0, 0, 1), (0, 1, 0), (3, 1, 0), (3, 1, 3), (0, 1, 3)]
    path = tmp_path / "squares.obj"
    path.write_text("".join(f"v {x} {y} {z}\n" for x, y, z in corners) + "f 1 2 3 4\nf 5 6 7 8\n")
    cloud = read_cloud(path, n_points=4000)
    assert set(np.unique(cloud[:, 1])) == {0.0, 1.0}
    assert 0.08 < (cloud[:, 1] == 0).mean() < 0.12
    assert cloud[cloud[:, 1] == 0].max() <= 1


def test_a_mesh_gives_the_same_points_again_and_others_for_another_seed(tmp_path: Path) -> None:
    for name in ("a.off", "other_name.off"):
        (tmp_path / name).write_text("OFF\n" + TETRAHEDRON)
    first = read_cloud(tmp_path / "a.off")
    np.testing.assert_array_equal(first, read_cloud(tmp_path / "a.off"))
    np.testing.assert_array_equal(first, read_cloud(tmp_path / "other_name.off"))
    assert (first != read_cloud(tmp_path / "a.off", seed=1)).any()


@pytest.mark.parametrize(
    ("up", "expected"), [("y", [[1, 2, 3]]), ("z", [[1, 3, -2]]), ("x", [[-2, 1, 3]])], ids=["y", "z", "x"]
)
def test_the_up_axis_becomes_y(up: str, expected: list[list[float]]) -> None:
    np.testing.assert_array_equal(to_y_up(np.array([[1.0, 2.0, 3.0]]), up), expected)


@pytest.mark.parametrize("up", ["x", "y", "z"])
def test_turning_is_a_proper_rotation_that_lifts_the_up_axis(up: str) -> None:
    turn = to_y_up(np.eye(3), up)
    assert np.linalg.det(turn) == 1
    np.testing.assert_array_equal(turn["xyz".index(up)], [0, 1, 0])
    assert not np.signbit(turn[turn == 0]).any()


@pytest.mark.parametrize("kind", ["off", "npy"])
@pytest.mark.parametrize("n_points", [5, 64, 300])
def test_a_shape_in_both_conventions_gives_identical_points(tmp_path: Path, kind: str, n_points: int) -> None:
    y_up = np.random.default_rng(0).normal(size=(64, 3))
    z_up = np.stack([y_up[:, 0], -y_up[:, 2], y_up[:, 1]], axis=1)
    faces = "".join(f"3 {i} {i + 1} {i + 2}\n" for i in range(62))
    for name, points in (("standing", y_up), ("lying", z_up)):
        if kind == "npy":
            np.save(tmp_path / f"{name}.npy", points)
        else:
            (tmp_path / f"{name}.off").write_text(
                f"OFF\n64 62 0\n{''.join(f'{x!r} {y!r} {z!r}' + chr(10) for x, y, z in points.tolist())}{faces}"
            )
    one = read_cloud(tmp_path / f"standing.{kind}", up="y", n_points=n_points)
    two = read_cloud(tmp_path / f"lying.{kind}", up="z", n_points=n_points)
    assert one.tobytes() == two.tobytes()


def npy_bytes(shape: tuple[int, ...], dtype: str = "<f8", body: bytes = b"") -> bytes:
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape!r}, }}".encode()
    header += b" " * ((-len(header) - 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body


def saved(array: np.ndarray, folder: Path, name: str = "array.npy") -> bytes:
    np.save(folder / name, array, allow_pickle=True)
    raw = (folder / name).read_bytes()
    (folder / name).unlink()
    return raw


SHORT_FACES = (
    PLY_HEADER.format(n=3, kind="ascii") + PLY_FACES.format(n=2) + "end_header\n0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n"
)
BINARY_PLY = (PLY_HEADER.format(n=4, kind="binary_little_endian") + "end_header\n").encode()
JUNK = bytes(np.random.default_rng(0).integers(0, 256, 4000, dtype=np.uint8))
BROKEN = {  # name of the file: content, words of the reason
    "empty.txt": (b"", "empty"),
    "blank.txt": (b"\n\n# nothing\n", "no points"),
    "nan.txt": (b"0 0 0\n1 nan 0\n", "point 1 is not finite"),
    "inf.xyz": (b"0 0 inf\n1 0 0\n", "point 0 is not finite"),
    "two_columns.txt": (b"0 0\n1 1\n", "2 columns"),
    "ragged.txt": (b"0 0 0\n1 1\n", "not a table"),
    "words.txt": (b"this is not a cloud\n", "not a table"),
    "junk.txt": (JUNK, "binary"),
    "zeros.txt": (bytes(300), "binary"),
    "one_point.txt": (b"1 2 3\n" * 50, "one distinct point"),
    "huge_number.txt": (b"0 0 0\n1e300 0 0\n", "a coordinate of 1e+300"),
    "cloud.stl": (b"solid\n", "unknown kind of file '.stl'"),
    "no_suffix": (b"0 0 0\n", "unknown kind"),
    "junk.npy": (JUNK, "not a numpy array"),
    "short.npy": (npy_bytes((4, 3), body=bytes(20)), "truncated"),
    "absurd.npy": (npy_bytes((10**12, 3)), "the limit is"),
    "negative.npy": (npy_bytes((-4, 3), body=bytes(96)), "negative"),
    "flat.npy": (npy_bytes((12,), body=bytes(96)), "shape (12,)"),
    "text.npy": (npy_bytes((4, 3), "<U2", bytes(96)), "expected numbers"),
    "complex.npy": (npy_bytes((2, 3), "<c16", bytes(96)), "expected numbers"),
    "no_rows.npy": (npy_bytes((0, 3)), "no points"),
    "junk.npz": (JUNK, "not an npz"),
    "junk.ply": (JUNK, "no PLY header"),
    "cut_header.ply": (b"ply\nformat ascii 1.0\nelement vertex 4\n", "no PLY header"),
    "no_vertices.ply": ((PLY_HEADER.format(n=0, kind="ascii") + "end_header\n").encode(), "no vertices"),
    "short.ply": (BINARY_PLY + bytes(24), "short.ply"),
    "short_ascii.ply": ((PLY_HEADER.format(n=4, kind="ascii") + "end_header\n0 0 0\n1 1 1\n").encode(), "short_ascii"),
    "short_faces.ply": (SHORT_FACES.encode(), "1 faces, the header promises 2"),
    "absurd.ply": ((PLY_HEADER.format(n=10**10, kind="ascii") + "end_header\n").encode(), "the limit is"),
    "words.off": (b"hello\n", "no OFF header"),
    "short.off": (b"OFF\n4 4 0\n0 0 0\n1 0 0\n0 1 0\n", "truncated"),
    "absurd.off": (b"OFF\n4 99999999999 0\n0 0 0\n", "the limit is"),
    "no_faces.off": (b"OFF\n3 0 0\n0 0 0\n1 0 0\n0 1 0\n", "no faces"),
    "no_vertices.off": (b"OFF\n0 0 0\n", "no vertices"),
    "no_area.off": (b"OFF\n3 1 0\n0 0 0\n1 0 0\n2 0 0\n3 0 1 2\n", "no area"),
    "bad_face.off": (b"OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 7\n", "face"),
    "nan.off": (b"OFF\n3 1 0\n0 0 0\nnan 0 0\n0 1 0\n3 0 1 2\n", "not finite"),
    "words_inside.off": (b"OFF\n3 1 0\n0 0 0\na b c\n0 1 0\n3 0 1 2\n", "not a readable off"),
    "no_faces.obj": (b"v 0 0 0\nv 1 0 0\nv 0 1 0\n", "no faces"),
    "words.obj": (b"hello\n", "no vertices"),
    "junk.obj": (JUNK, "binary"),
    "junk.pcd": (JUNK, "no PCD header"),
    "short.pcd": (PCD_HEADER.format(n=4, kind="binary").encode() + bytes(20), "short.pcd"),
    "short_ascii.pcd": ((PCD_HEADER.format(n=4, kind="ascii") + "0 0 0\n1 1 1\n").encode(), "short_ascii.pcd"),
    "absurd.pcd": (PCD_HEADER.format(n=10**11, kind="binary").encode(), "the limit is"),
    "no_z.pcd": ((PCD_HEADER.format(n=2, kind="ascii").replace("x y z", "x y w") + rows(FOUR[:2])).encode(), "field z"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_refused_with_its_name_and_the_reason(tmp_path: Path, name: str) -> None:
    content, why = BROKEN[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_cloud(path)
    message = str(caught.value)
    assert str(path) in message
    assert why in message
    assert len(message.splitlines()) <= 2
    assert list(tmp_path.iterdir()) == [path]


def test_pickles_are_never_opened(tmp_path: Path) -> None:
    objects = np.array([{"a": 1}, None], dtype=object)
    (tmp_path / "objects.npy").write_bytes(saved(objects, tmp_path))
    np.savez(tmp_path / "objects.npz", points=objects)
    (tmp_path / "pickle.npy").write_bytes(pickle.dumps([1, 2, 3]))
    for name, why in (("objects.npy", "pickle"), ("objects.npz", "pickle"), ("pickle.npy", "not a numpy array")):
        with pytest.raises(InputError, match=f"{name}.*{why}"):
            read_cloud(tmp_path / name)


def test_a_truncated_or_damaged_npz_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, points=np.random.default_rng(0).normal(size=(500, 3)))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"a\.npz.*truncated"):
        read_cloud(path)
    path.write_bytes(whole[:3000] + bytes(200) + whole[3200:])
    with pytest.raises(InputError, match=r"a\.npz.*damaged"):
        read_cloud(path)


def test_an_npz_whose_header_promises_more_than_it_holds_is_refused_before_allocation(tmp_path: Path) -> None:
    for name, raw, why in (
        ("bomb.npz", npy_bytes((10**9, 3)), "the limit is"),
        ("short.npz", npy_bytes((1000, 3)), "truncated"),
    ):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("points.npy", raw)
        with pytest.raises(InputError, match=f"{name}.*{why}"):
            read_cloud(tmp_path / name)


def test_an_npz_without_points_lists_what_it_has(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", left=FOUR, right=FOUR)
    with pytest.raises(InputError, match=r"a\.npz.*'points'.*left, right"):
        read_cloud(tmp_path / "a.npz")


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.ply: no such file"):
        read_cloud(tmp_path / "gone.ply")
    (tmp_path / "folder.ply").mkdir()
    with pytest.raises(InputError, match=r"folder\.ply: is a folder"):
        read_cloud(tmp_path / "folder.ply")


def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_four(tmp_path, "txt")
    path.chmod(0)
    if os.access(path, os.R_OK):  # root reads everything: let the system say no in its place

        def no(self: Path) -> bytes:
            raise PermissionError(13, "Permission denied", str(self))

        monkeypatch.setattr(Path, "read_bytes", no)
    with pytest.raises(InputError, match=r"four\.txt: cannot be read: Permission denied"):
        read_cloud(path)


def test_a_file_or_a_cloud_beyond_the_limits_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "sparse.txt").open("wb") as stream:
        stream.truncate(files_module.MAX_BYTES + 1)  # takes no room on the disk
    with pytest.raises(InputError, match=r"sparse\.txt: 1000000001 bytes, the limit is"):
        read_cloud(tmp_path / "sparse.txt")
    monkeypatch.setattr(files_module, "MAX_POINTS", 3)
    for kind in ("txt", "npy", "pcd-binary", "ply-binary"):
        with pytest.raises(InputError, match="the limit is 3"):
            read_cloud(write_four(tmp_path, kind))


def test_a_wrong_axis_or_number_of_points_is_a_usage_error(tmp_path: Path) -> None:
    path = write_four(tmp_path, "npy")
    with pytest.raises(UsageError, match="unknown up axis 'w'"):
        read_cloud(path, up="w")
    with pytest.raises(UsageError, match="n_points is 0"):
        read_cloud(path, n_points=0)
