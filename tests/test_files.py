"""Atomic writes: what stands at a path is the old content or the new one, and what is refused says why."""

from __future__ import annotations

import contextlib
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from asp_neuro import files
from asp_neuro.errors import InputError

NO_SPACE = OSError(28, "No space left on device")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    return path


@contextlib.contextmanager
def full_disk():
    """No file of this process may grow beyond 1 kB: what a full disk looks like to a writer."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def is_untouched(path: Path) -> bool:
    return path.read_bytes() == b"old" and os.listdir(path.parent) == [path.name]


def test_bytes_text_and_a_buffer_arrive_and_leave_nothing_beside(path: Path) -> None:
    files.write(path, b"new")
    assert path.read_bytes() == b"new"
    files.write_text(path, "ä\r\nb\n")
    assert path.read_bytes() == b"\xc3\xa4\r\nb\n"
    with files.writing(path) as file:
        np.savez(file, x=np.arange(3))
    assert np.load(path)["x"].tolist() == [0, 1, 2]
    assert os.listdir(path.parent) == ["a.bin"]


def test_a_full_disk_keeps_the_old_file_and_says_so(path: Path) -> None:
    said = rf"^cannot write '{path}': File too large; what was there before is untouched$"
    with full_disk(), pytest.raises(InputError, match=said):
        files.write(path, bytes(5000))
    assert is_untouched(path)


@pytest.mark.parametrize("place", ["fsync", "replace", "fchmod"])
@pytest.mark.parametrize("error", [NO_SPACE, KeyboardInterrupt()])
def test_an_interruption_at_any_place_keeps_the_old_file(path, monkeypatch, place, error) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, place, fail)
    with pytest.raises((InputError, KeyboardInterrupt)):
        files.write(path, b"new")
    assert is_untouched(path)


@pytest.mark.parametrize("error", [NO_SPACE, KeyboardInterrupt(), ValueError("of the library")])
def test_a_library_that_fails_half_way_changes_nothing(path: Path, error: BaseException) -> None:
    def half() -> None:
        with files.writing(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises((InputError, KeyboardInterrupt, ValueError)):
        half()
    assert is_untouched(path)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no/a.bin", "the folder '.*no' does not exist; make it first"),
        (".", "it is a folder; name a file in it"),
        ("", "it is a folder"),
        ("..", "it is a folder"),
        ("/", "it is a folder"),
        ("a.bin/b", "'.*a.bin' is a file and no folder"),
        ("pipe", "it is not a regular file"),
        ("x" * 300, "File name too long"),
    ],
)
def test_a_place_that_takes_no_file_is_refused_with_the_reason(path, monkeypatch, name, said) -> None:
    monkeypatch.chdir(path.parent)
    os.mkfifo("pipe")
    with pytest.raises(InputError, match=f"^cannot write '{name}': {said}.*; what was there before is untouched$"):
        files.write(name, b"new")
    assert sorted(os.listdir()) == ["a.bin", "pipe"]
    assert stat.S_ISFIFO(os.stat("pipe").st_mode)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_told(path: Path) -> None:
    path.parent.chmod(0o500)
    try:
        with pytest.raises(InputError, match="Permission denied; what was there before is untouched"):
            files.write(path, b"new")
    finally:
        path.parent.chmod(0o700)
    assert is_untouched(path)


def test_a_link_stays_a_link_and_a_private_file_private(path: Path) -> None:
    path.chmod(0o600)
    link = path.with_name("link")
    link.symlink_to(path)
    files.write(link, b"new")
    assert link.is_symlink()
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_reader_never_sees_a_part(tmp_path: Path) -> None:
    """Planted: a writer in another process that is killed again and again; the file is one of its two contents."""
    path = tmp_path / "a.bin"
    program = (
        "import sys; from asp_neuro import files\n"
        "while True:\n    for letter in b'ab': files.write(sys.argv[1], bytes([letter]) * 3_000_000)"
    )
    for _ in range(3):
        writer = subprocess.Popen([sys.executable, "-c", program, path])
        while not path.exists():
            pass
        seen = {path.read_bytes() for _ in range(20)}
        writer.kill()
        writer.wait()
        assert {*seen, path.read_bytes()} <= {b"a" * 3_000_000, b"b" * 3_000_000}


def test_folders_are_made_or_told(tmp_path: Path) -> None:
    assert files.make_folder(tmp_path / "a" / "b").is_dir()
    assert files.make_folder(str(tmp_path / "a" / "b")).is_dir()
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match=r"cannot make the folder '.*file': a file of that name is there"):
        files.make_folder(tmp_path / "file")
    with pytest.raises(InputError, match=r"cannot make the folder '.*file/b': Not a directory"):
        files.make_folder(tmp_path / "file" / "b")
