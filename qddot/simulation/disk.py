"""Files that survive a crash: written whole and flushed, in folders with one writer, with errors in plain words."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from qddot.errors import RecordingError
from qddot.formats.atomic import replacing

UNFINISHED = ".unfinished"  # the ending of a file that is being written


def write(path: Path, data: bytes) -> None:
    """A reader, or a crash, sees the old file or the new one, never a part."""
    with replacing(path, UNFINISHED) as unfinished, open(unfinished, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    if os.name == "posix":  # elsewhere a folder cannot be opened
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # Windows: two writers of the same run write the same bytes
        yield
        return
    with open(folder / ".lock", "wb") as file:
        _lock(fcntl, file, folder)
        yield


def _lock(fcntl: Any, file: BinaryIO, folder: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RecordingError(
            f"{folder}: another process is recording into it; wait for it or give another folder"
        ) from None
    except OSError:  # a file system without locks
        return


_REASONS = {
    errno.ENOSPC: ("the disk is full", "free some space"),
    errno.EDQUOT: ("your quota is used up", "free some space"),
    errno.EFBIG: ("a file would be larger than allowed", "raise the limit"),
    errno.EROFS: ("it is on a read-only file system", "give a folder elsewhere"),
    errno.EACCES: ("you may not write there", "give a folder of your own"),
    errno.EPERM: ("you may not write there", "give a folder of your own"),
    errno.ENOTDIR: ("a part of the path is a file", "give another path"),
    errno.EEXIST: ("there is a file of this name", "give another path"),
}


def explained(error: OSError) -> tuple[str, str]:
    """What the system says about a write, in words, and what to do."""
    return _REASONS.get(error.errno or 0, (error.strerror or str(error), "look into the cause"))
