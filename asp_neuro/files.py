"""Files that are always whole: what stands at a path is the old content or the new one, never a part of it.

The new content is complete in memory before a byte is written; it is written beside the file, brought to the disk and
renamed over it. What goes wrong is one InputError that names the path and the reason.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from asp_neuro.errors import InputError


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[io.BytesIO]:
    """A buffer for a library to write into; it becomes the file when the block ends, unless the block fails."""
    buffer = io.BytesIO()
    with _told(path):
        yield buffer
    write(path, buffer.getbuffer())


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


def make_folder(path: str | Path) -> Path:
    """The folder, with those above it, made where it is not there yet."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise InputError(f"cannot make the folder '{path}': a file of that name is there") from None
    except OSError as error:
        raise InputError(f"cannot make the folder '{path}': {error.strerror or error}") from None
    return Path(path)


def _regular(path: Path) -> os.stat_result | None:
    """What is there, None for nothing. A folder or a device is refused: a rename would put a file in its place."""
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
def _told(path: str | Path) -> Iterator[None]:
    """What the system refuses, in one line."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"cannot write '{path}': {reason}; what was there before is untouched") from None
