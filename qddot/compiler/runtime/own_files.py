"""Files that this user alone can write: how they are opened, judged, made and removed; and the key of the cache.

The key, with which compiled code is authenticated, is 32 random bytes in such a file. It is not in the cache: whoever gets
at the cache alone (a folder that was copied, restored, mounted or shared) must not get the key with it. It is among the
user's state, not among the configuration, which people publish. It is read only if nobody else can read it.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
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


SIZE = 32  # bytes, those of an SHA-256
VARIABLE = "QDDOT_CACHE_KEY"

_known: dict[Path, bytes] = {}


class KeyUnusableError(Exception):
    """There is no key that may be used: says which file, and why."""


def default_file() -> Path | None:
    """The file named in QDDOT_CACHE_KEY, else one in the platform's place for state; None: this user has no home."""
    try:
        if named := os.environ.get(VARIABLE):
            return Path(named).expanduser().absolute()
        if sys.platform == "win32":
            local = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
            return Path(local) / "qddot" / "cache.key"
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Application Support" / "qddot" / "cache.key"
        state = Path(os.environ.get("XDG_STATE_HOME", ""))
        return (state if state.is_absolute() else Path.home() / ".local" / "state") / "qddot" / "cache.key"
    except (OSError, RuntimeError):  # no current directory, no home
        return None


def secret(path: Path | None, *, create: bool) -> bytes | None:
    """The key in this file; made at random if there is none and `create`. Raises KeyUnusableError."""
    if path is None:
        raise KeyUnusableError("this user has no home folder for the key of the cache")
    if path not in _known:
        try:
            found = _read(path)
            if found is None and create:
                _make(path)
                found = _read(path)
        except UnfitError as unfit:
            raise KeyUnusableError(f"its key file {path} {unfit}") from None
        except OSError as error:
            raise KeyUnusableError(f"its key file {path} cannot be opened: {error.strerror}") from None
        if found is None:
            return None
        _known[path] = found
    return _known[path]


def _read(path: Path) -> bytes | None:
    try:
        with opened(path, secret=True) as (descriptor, status):
            key = os.read(descriptor, SIZE)
    except FileNotFoundError:
        return None
    if len(key) != SIZE or status.st_size != SIZE:
        raise UnfitError(f"has {status.st_size} bytes instead of {SIZE}: remove it, and a new one is made")
    return key


def _make(path: Path) -> None:
    """Puts a new key in its place at once, unless another process was faster: then that one's is the key."""
    make_folder(path.parent)
    prefix = f".{path.name}-"
    temporary = path.with_name(f"{prefix}{os.getpid()}-{os.urandom(8).hex()}.tmp")
    try:
        with open(os.open(temporary, CREATE, 0o600), "wb") as file:
            file.write(os.urandom(SIZE))
            file.flush()
            os.fsync(file.fileno())  # a key that a power failure tears would make all of the cache useless
        try:
            os.link(temporary, path)  # unlike a renaming, this never replaces a file
        except (FileExistsError, FileNotFoundError):  # another process was faster, and swept our file away
            pass
        except OSError:  # a file system without links: of two processes at once, the later one's key stays
            with suppress(FileNotFoundError):
                os.rename(temporary, path)
    finally:
        with suppress(OSError):
            for name in os.listdir(path.parent):  # ours, and what killed processes left
                if name.startswith(prefix) and name.endswith(".tmp"):
                    remove(path.parent / name)
