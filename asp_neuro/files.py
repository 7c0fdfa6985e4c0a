"""Files that are always whole: what stands at a path is the old content or the new one, never a part of it.

The new content is complete in memory before a byte is written; it is written beside the file, brought to the disk and
renamed over it. What goes wrong is one InputError that names the path and the reason; what can be known before the
work is told before it (`demand_place`), and one work at a time holds a place (`held`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import json
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from asp_neuro.errors import InputError, UsageError

UNTOUCHED = "; what was there before is untouched"
BLOCK = bytes(4096)  # what a place is tried with: an empty file fits on a full disk, a block does not
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # from file systems that have none


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[io.BytesIO]:
    """A buffer for a library to write into; it becomes the file when the block ends, unless the block fails."""
    buffer = io.BytesIO()
    with _told(path):
        yield buffer
    write(path, buffer.getvalue())  # a view of the buffer that outlives an error crashes Python 3.12.1


def write(path: str | Path, data: bytes | memoryview) -> None:
    """Bytes -> the file at `path`: written beside, brought to the disk, renamed."""
    with _told(path):
        target = Path(os.path.realpath(path))  # a link stays a link
        before = _regular(target)
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            with open(part, "wb") as file:
                if before is not None:
                    os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, target)
        finally:
            with contextlib.suppress(OSError):
                part.unlink()


def write_text(path: str | Path, text: str) -> None:
    """Text in UTF-8, lines as they are."""
    write(path, text.encode())


def demand_place(path: str | Path) -> Path:
    """Refuse before the work what could not be written after it: a folder, a missing one, a full disk."""
    with _told(path, ""):
        target = Path(os.path.realpath(path))
        if _regular(target) is not None and not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        tried = target.with_name(f".{target.name}.{os.getpid()}.tried")
        try:
            tried.write_bytes(BLOCK)
        finally:
            with contextlib.suppress(OSError):
                tried.unlink()
    return Path(path)


def make_folder(path: str | Path) -> Path:
    """The folder, with those above it, made where it is not there yet, and tried."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise InputError(f"cannot make the folder '{path}': a file of that name is there") from None
    except OSError as error:
        raise InputError(f"cannot make the folder '{path}': {error.strerror or error}") from None
    demand_place(Path(path) / "results")
    return Path(path)


def _regular(path: Path) -> os.stat_result | None:
    """What is there, None for nothing. A folder or a device is refused: a rename would put a file in its place."""
    if path.parent.exists() and not path.parent.is_dir():
        raise OSError(f"'{path.parent}' is a file and no folder")
    if not path.parent.is_dir():
        raise OSError(f"the folder '{path.parent}' does not exist; make it first")
    if not path.exists():
        return None
    found = path.stat()
    if stat.S_ISDIR(found.st_mode):
        raise OSError("it is a folder; name a file in it")
    if not stat.S_ISREG(found.st_mode):
        raise OSError("it is not a regular file")
    return found


@contextlib.contextmanager
def _told(path: str | Path, rest: str = UNTOUCHED) -> Iterator[None]:
    """What the system refuses, in one line."""
    try:
        yield
    except BrokenPipeError:  # the reader has seen enough: main's business
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"cannot write '{path}': {reason}{rest}") from None


@contextlib.contextmanager
def lines(path: str | Path) -> Iterator[Callable[[str], None]]:
    """A writer of lines: each is in the file when it returns, and one that does not fit leaves none of itself."""
    with _told(path, ""):
        file = open(path, "wb", buffering=0)  # noqa: SIM115
    with file:

        def write(line: str) -> None:
            data, start = (line + "\n").encode(), file.tell() if file.seekable() else 0
            try:
                with _told(path, "; the lines before are kept"):
                    while data:
                        data = data[file.write(data) :]
            except InputError:
                with contextlib.suppress(OSError):  # a pipe or a device keeps what it got
                    file.truncate(start)
                raise

        yield write


@contextlib.contextmanager
def held(path: str | Path, work: str) -> Iterator[None]:
    """Nobody else works on `path` meanwhile: a lock on the file PATH.lock, which says who holds it.

    The system takes the lock from a process that dies, so that what it leaves behind stops nobody.
    """
    lock = Path(path).with_name(Path(path).name + ".lock")
    with _told(lock, ""):
        file = _locked(lock, work)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            lock.unlink()
        os.close(file)


def _locked(lock: Path, work: str) -> int:
    """A descriptor of the lock file, locked. Who had it may have removed it meanwhile: then again."""
    while True:
        file = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if isinstance(error, BlockingIOError):
                owner = _owner(file)
                os.close(file)
                raise UsageError(f"{owner} ({lock}); wait for it, or name another file") from None
            if error.errno not in NO_LOCKS:
                os.close(file)
                raise
        if lock.exists() and os.path.samestat(os.fstat(file), lock.stat()):
            break
        os.close(file)
    about = {"work": work, "pid": os.getpid(), "host": socket.gethostname()}
    os.ftruncate(file, 0)
    os.pwrite(file, (json.dumps(about) + "\n").encode(), 0)
    return file


def _owner(file: int) -> str:
    try:
        about = json.loads(os.pread(file, 4096, 0))
        return f"{about['work']}, process {about['pid']} on {about['host']}, is at work on it"
    except (ValueError, KeyError, TypeError):  # it has locked, and not written yet
        return "another process is at work on it"
