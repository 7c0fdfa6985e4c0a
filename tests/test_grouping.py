"""The cache of chunks: a hit equals a fresh cut, and no damaged or foreign file is ever trusted."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from asp_neuro.errors import InputError
from asp_neuro.scenes import cache as grouping
from asp_neuro.scenes.cache import BATCH, cache_folder, chunks_of
from asp_neuro.scenes.cloud import Chunking, Chunks, cut

HOW = Chunking(n_points=32, n_groups=8, group_size=4, n_chunks=3)
FIELDS = ("points", "members", "first", "second")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASP_NEURO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def clouds(seed: int = 0, n: int = 2 * BATCH + 3) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 32, 3)).astype(np.float32)


def same(a: Chunks, b: Chunks) -> bool:
    alike = all(np.array_equal(getattr(a, name), getattr(b, name)) for name in FIELDS)
    types = all(getattr(a, name).dtype == getattr(b, name).dtype for name in FIELDS)
    return alike and types and a.n_chunks == b.n_chunks


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def no_more_cutting(*_: object) -> None:
    raise AssertionError("the cache was not used")


def test_a_hit_equals_a_fresh_cut_and_cuts_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = chunks_of(clouds(), HOW)
    assert same(fresh, cut(clouds(), HOW))
    assert only_file(folder).name.endswith(".npz")
    monkeypatch.setattr(grouping, "cut", no_more_cutting)
    assert same(chunks_of(clouds(), HOW), fresh)


def test_without_the_cache_nothing_is_written(folder: Path) -> None:
    assert same(chunks_of(clouds(), HOW, cache=False), cut(clouds(), HOW))
    assert not folder.exists()


@pytest.mark.parametrize("kept", [0.0, 0.01, 0.5, 0.9, 0.999])
def test_a_file_cut_short_is_built_again(folder: Path, kept: float) -> None:
    fresh = chunks_of(clouds(), HOW)
    path = only_file(folder)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole))])
    assert same(chunks_of(clouds(), HOW), fresh)
    assert path.read_bytes() == whole


def test_no_flipped_bit_gets_through(folder: Path) -> None:
    """A flip may hit padding and do nothing; it must never raise, and never change the result."""
    points = clouds(n=3)
    fresh = chunks_of(points, HOW)
    path = only_file(folder)
    whole = path.read_bytes()
    rng = np.random.default_rng(1)
    headers = [i for i in range(len(whole) - 4) if whole[i : i + 2] == b"PK"]  # where the zip format itself is told
    places = [i + k for i in headers for k in range(30)] + list(rng.integers(len(whole), size=300))
    for place in places:
        if place < len(whole):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << int(rng.integers(8))
            path.write_bytes(damaged)
            assert same(chunks_of(points, HOW), fresh), place


def test_a_sound_cache_of_other_clouds_under_this_name_is_not_trusted(folder: Path) -> None:
    chunks_of(clouds(1), HOW)
    other = only_file(folder).read_bytes()
    only_file(folder).unlink()
    fresh = chunks_of(clouds(0), HOW)
    only_file(folder).write_bytes(other)
    assert same(chunks_of(clouds(0), HOW), fresh)


@pytest.mark.parametrize("kind", ["text", "npy", "pickle", "empty zip", "folder"])
def test_a_file_of_another_kind_is_built_again(folder: Path, kind: str) -> None:
    fresh = chunks_of(clouds(), HOW)
    path = only_file(folder)
    path.unlink()
    if kind == "text":
        path.write_text("hello")
    elif kind == "folder":
        path.mkdir()
    elif kind == "empty zip":
        with zipfile.ZipFile(path, "w"):
            pass
    else:
        with open(path, "wb") as file:
            np.save(file, np.zeros(3) if kind == "npy" else np.array([{}], dtype=object))
    assert same(chunks_of(clouds(), HOW), fresh)


def test_an_unwritable_folder_costs_time_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("ASP_NEURO_CACHE", str(tmp_path / "file" / "cache"))
    assert same(chunks_of(clouds(), HOW), cut(clouds(), HOW))


def test_a_full_disk_leaves_no_half_written_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert same(chunks_of(clouds(), HOW), cut(clouds(), HOW))
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "other",
    [
        {"n_groups": 9},
        {"group_size": 5},
        {"n_chunks": 2},
        {"overlap": 1.2},
        {"radius": 0.5},
    ],
)
def test_other_settings_or_points_make_another_file(folder: Path, other: dict) -> None:
    settings = {"n_points": 32, "n_groups": 8, "group_size": 4, "n_chunks": 3}
    changed = Chunking(**{**settings, **other})
    chunks_of(clouds(), HOW)
    assert same(chunks_of(clouds(), changed), cut(clouds(), changed))
    assert len(os.listdir(folder)) == 2
    nudged = clouds()
    nudged[0, 0, 0] = np.nextafter(nudged[0, 0, 0], np.float32(9))
    chunks_of(nudged, HOW)
    chunks_of(clouds()[:-1], HOW)
    assert len(os.listdir(folder)) == 4


def test_the_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASP_NEURO_CACHE", "/one")
    assert cache_folder() == Path("/one")
    monkeypatch.delenv("ASP_NEURO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/two")
    assert cache_folder() == Path("/two/asp-neuro")


def test_a_bad_cloud_is_named_also_beyond_the_first_batch(folder: Path) -> None:
    bad = clouds()
    bad[BATCH + 2, 0, 0] = np.nan
    names = [f"chair_{i}" for i in range(len(bad))]
    with pytest.raises(InputError, match=f"'chair_{BATCH + 2}'"):
        chunks_of(bad, HOW, names)
    assert not folder.exists()


def test_no_clouds_at_all_is_an_error_with_a_reason(folder: Path) -> None:
    with pytest.raises(InputError, match="no clouds"):
        chunks_of(clouds()[:0], HOW)
