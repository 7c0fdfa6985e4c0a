"""Places are tried before the work, lines are whole, and a lock is held by one living process."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from asp_neuro import files
from asp_neuro.errors import InputError, UsageError


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_place_that_can_be_written_is_left_as_it_was(tmp_path):
    (tmp_path / "old").write_text("old")
    assert files.demand_place(tmp_path / "old") == tmp_path / "old"
    files.demand_place(str(tmp_path / "new"))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"old": "old"}


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (".", "cannot write '.': it is a folder; name a file in it"),
        ("no/model.pt", "the folder '.*no' does not exist; make it first"),
        ("file/model.pt", "'.*file' is a file and no folder"),
        ("/dev/null", "not a regular file"),
    ],
)
def test_a_place_that_holds_no_file_is_refused(tmp_path, monkeypatch, place, message):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    with pytest.raises(InputError, match=message):
        files.demand_place(place)


def test_a_disk_that_is_full_is_found_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match=r"cannot write '.*model\.pt': No space left on device"):
        files.demand_place(tmp_path / "model.pt")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_takes_no_file_is_refused(tmp_path):
    files.make_folder(tmp_path / "a")
    assert list((tmp_path / "a").iterdir()) == []
    with pytest.raises(InputError, match="cannot write '/proc/results'"):
        files.make_folder("/proc")


def test_a_line_that_does_not_fit_leaves_the_lines_before_it_whole(tmp_path):
    """A real limit of the system on the size of a file, in a process of its own."""
    script = """
import resource, sys
from asp_neuro import files
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
with files.lines(sys.argv[1]) as write:
    for _ in range(4):
        write("x" * 39)
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "out")], capture_output=True, text=True)
    assert "cannot write" in done.stderr
    assert "the lines before are kept" in done.stderr
    assert (tmp_path / "out").read_text() == 2 * ("x" * 39 + "\n")


def test_lines_go_into_a_pipe_too(tmp_path):
    read, sent = os.pipe()
    with files.lines(f"/dev/fd/{sent}") as write:
        write("hello")
    assert os.read(read, 100) == b"hello\n"
    os.close(read)
    os.close(sent)


# Locks


HOLD = """
import sys
from asp_neuro import files
with files.held(sys.argv[1], "a training of 'x'"):
    print("taken", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds `model.pt` until its stdin is closed."""
    words = [sys.executable, "-c", HOLD, str(tmp_path / "model.pt")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "taken\n"
        yield child


def test_a_second_one_is_refused_and_told_who_is_at_work(tmp_path, holder):
    with pytest.raises(UsageError, match=rf"a training of 'x', process {holder.pid} on .* is at work on it .*wait"):
        files.held(tmp_path / "model.pt", "me").__enter__()
    with files.held(tmp_path / "other.pt", "me"):
        pass
    holder.communicate()
    with files.held(tmp_path / "model.pt", "me"):
        about = json.loads((tmp_path / "model.pt.lock").read_text())
        assert (about["work"], about["pid"]) == ("me", os.getpid())
    assert list(tmp_path.iterdir()) == []


def test_the_lock_of_a_dead_process_is_taken_over(tmp_path, holder):
    holder.kill()
    holder.wait()
    assert (tmp_path / "model.pt.lock").exists()
    with files.held(tmp_path / "model.pt", "me"):
        pass
    assert not (tmp_path / "model.pt.lock").exists()


def test_a_lock_file_without_words_is_no_riddle(tmp_path):
    with files.held(tmp_path / "a", "me"):
        (tmp_path / "a.lock").write_text("")
        with pytest.raises(UsageError, match="another process is at work on it"):
            files.held(tmp_path / "a", "me too").__enter__()
