"""Files that this user alone can write: how they are opened, judged, made and removed."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)

# Without O_NONBLOCK, a FIFO in the place of a file keeps its reader waiting for ever.
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_IS_LINK = (errno.ELOOP, errno.EMLINK)  # how O_NOFOLLOW says that it met a symbolic link (EMLINK: FreeBSD)


class UnfitError(Exception):
    """A file that must not be used. Says why where the user should know, else nothing."""


@contextmanager
def opened(path: Path, *, secret: bool = False) -> Iterator[tuple[int, os.stat_result]]:
    """The descriptor and status of a file of this user. All is asked of the open file, which nobody can exchange."""
    try:
        descriptor = os.open(path, _READ)
    except OSError as error:
        if error.errno in _IS_LINK:
            raise UnfitError("is a symbolic link") from None
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UnfitError("is not a file")
        if reason := distrust(status, secret=secret):
            raise UnfitError(reason)
        yield descriptor, status
    finally:
        os.close(descriptor)


def distrust(status: os.stat_result, *, secret: bool = False) -> str | None:
    """Why others may have written what has this status, or may read a secret; None if they cannot.

    Windows keeps the user's folders by itself.
    """
    if not hasattr(os, "geteuid"):
        return None
    if status.st_uid != os.geteuid():
        return "belongs to another user"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "can be written by other users"
    if secret and status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return "can be read by other users"
    return None


def make_folder(folder: Path) -> None:
    """Makes a folder and the missing ones above it, for this user alone."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        with suppress(FileExistsError):  # another process was faster
            os.mkdir(path, 0o700)


def remove(path: Path) -> bool:
    """Whether the file is gone; somebody else may have removed it, and Windows keeps a file that is being read."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
