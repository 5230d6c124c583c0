"""Compiled object code kept on disk, so that a second process does not compile again.

A key is the hex SHA-256 of everything that the code depends on (content, CPU features, versions) and is made by the
caller; a value is bytes. What is read from here is run as machine code, so only files that this user alone can write
are believed, and every entry proves that it is whole and belongs to its key. Trouble with the disk is never an error:
the entry is absent, the caller compiles, and one warning per process says why.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import struct
import sys
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from qddot.errors import InputError, QddotWarning, message

DEFAULT_LIMIT = 512 * 2**20
ADVICE = "check the folder's owner, permissions and space, or name another in QDDOT_CACHE_DIR (empty: no caching)"

_VERSION = 1
_MAGIC = b"qddotobj"
_PREFIX = struct.Struct(">8sI64sQ")  # magic, version, key, length of the data; the digest follows, then the data
_HEADER_SIZE = _PREFIX.size + hashlib.sha256().digest_size
_KEY = re.compile("[0-9a-f]{64}")
_ENTRY_NAME = re.compile(r"([0-9a-f]{64})\.obj")
_TEMPORARY_NAME = re.compile(r"[0-9a-f]{64}-\d+-[0-9a-f]{16}\.tmp")
_HOUR = 3600.0
_EVICT_TO = 0.8  # of the limit: to stay just below it, every put would have to evict
_LOOK_AFTER = 1 / 16  # of the limit: what this process writes before it looks what others have written

# Without O_NONBLOCK, a FIFO in the place of an entry keeps its reader waiting for ever.
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_IS_LINK = (errno.ELOOP, errno.EMLINK)  # how O_NOFOLLOW says that it met a symbolic link (EMLINK: FreeBSD)

_said = threading.Lock()  # taken by the one warning of this process and never given back


class Entry(NamedTuple):
    """One stored value: its key, its bytes on disk, and when it was last used (seconds since 1970, to the hour)."""

    key: str
    size: int
    last_used: float


class _UnfitError(Exception):
    """A file in the place of an entry that must not be used. Says why where the user should know, else nothing."""


class Cache:
    """A folder of entries. There is no lock: processes, threads and forks may share it as they like."""

    def __init__(self, folder: Path | None = None, limit_bytes: int = DEFAULT_LIMIT) -> None:
        """The entries in this folder, or in the default one; created at the first put."""
        self.folder = default_folder() if folder is None else Path(folder)
        self.limit_bytes = limit_bytes
        self._room = 0  # bytes that may be written before the folder is looked through again, which takes a while

    def get(self, key: str) -> bytes | None:
        """The value stored under this key; None when there is none that can be believed."""
        name = _file_name(key)
        if self.folder is None or self._refuses():
            return None
        path = self.folder / name
        try:
            data, last_used = _read(path, key)
        except FileNotFoundError:
            return None
        except _UnfitError as unfit:
            # If a good entry took its place this very moment, that one goes: it is compiled once more, no harm.
            _remove(path)
            if reason := str(unfit):
                self._warn(f"{name} {reason}")
            return None
        except OSError as error:
            self._warn(f"{name} cannot be read: {error.strerror}")
            return None
        now = time.time()
        if abs(now - last_used) > _HOUR:  # both ways: a time in the future would keep an entry for ever
            with suppress(OSError):
                os.utime(path, (now, now))
        return data

    def put(self, key: str, data: bytes) -> bool:
        """Stores a value and tells whether it did; the least recently used ones make room for it.

        Processes that write at the same time may together pass the limit by a sixteenth each.
        """
        name = _file_name(key)
        if self.folder is None:
            return False
        if _HEADER_SIZE + len(data) > self.limit_bytes:
            self._warn(f"a value of {len(data)} bytes is over the limit of {self.limit_bytes} for all together")
            return False
        try:
            _make(self.folder)
            if self._refuses():
                return False
            _write(self.folder / name, key, data)
        except OSError as error:
            if self.get(key) == data:
                return True  # Windows does not replace a file while it is read; the reader has what we wanted to store
            self._warn(f"{name} cannot be written: {error.strerror}")
            return False
        self._room -= _HEADER_SIZE + len(data)
        if self._room < 0:
            self._evict(keep=key)
        return True

    def entries(self) -> list[Entry]:
        """What is stored, the least recently used first. Damaged entries count until somebody asks for them."""
        return self._scan()[0]

    def size(self) -> int:
        """Bytes on disk of all entries together."""
        return sum(entry.size for entry in self.entries())

    def clear(self) -> int:
        """Removes all entries and what interrupted writers left; returns the number of entries removed."""
        entries, leftovers = self._scan()
        for path in leftovers:
            _remove(path)
        return sum(_remove(self._path(entry)) for entry in entries)

    def trouble(self) -> str | None:
        """Why the folder must not be used. None when it may, or when it is yet to be made.

        Its parents are not looked at: whoever can rename there can take the folder away, but a file that is
        believed still has to be this user's own, and is checked after it is opened.
        """
        if self.folder is None:
            return None
        try:
            status = os.lstat(self.folder)
        except FileNotFoundError:
            return None
        except OSError as error:
            return f"cannot be opened: {error.strerror}"
        if stat.S_ISLNK(status.st_mode):
            return "is a symbolic link"
        if not stat.S_ISDIR(status.st_mode):
            return "is not a folder"
        return _distrust(status)

    def _refuses(self) -> bool:
        trouble = self.trouble()
        if trouble:
            self._warn(f"the folder {trouble}")
        return trouble is not None

    def _warn(self, problem: str) -> None:
        if not _said.acquire(blocking=False):
            return
        problem = f"{problem}, so code is compiled again in each process"
        text = message(str(self.folder), "cache of compiled code", problem, ADVICE)
        warnings.warn(text, QddotWarning, stacklevel=3)

    def _path(self, entry: Entry) -> Path:
        assert self.folder is not None  # without a folder there are no entries
        return self.folder / _file_name(entry.key)

    def _scan(self) -> tuple[list[Entry], list[Path]]:
        """The entries, oldest use first, and the temporary files of writers that must be dead by now."""
        entries: list[Entry] = []
        leftovers: list[Path] = []
        if self.folder is None or self._refuses():
            return entries, leftovers
        try:
            found = list(os.scandir(self.folder))
        except OSError:  # not made yet, or not readable: nothing that we could show or remove
            return entries, leftovers
        for file in found:
            try:
                status = file.stat(follow_symlinks=False)
            except OSError:  # removed by somebody meanwhile
                continue
            if not stat.S_ISREG(status.st_mode):
                continue
            if entry := _ENTRY_NAME.fullmatch(file.name):
                entries.append(Entry(entry[1], status.st_size, status.st_mtime))
            elif _TEMPORARY_NAME.fullmatch(file.name) and time.time() - status.st_mtime > _HOUR:
                leftovers.append(Path(file.path))
        entries.sort(key=lambda entry: entry.last_used)
        return entries, leftovers

    def _evict(self, keep: str) -> None:
        entries, leftovers = self._scan()
        for path in leftovers:
            _remove(path)
        total = sum(entry.size for entry in entries)
        if total > self.limit_bytes:
            for entry in entries:
                if total <= _EVICT_TO * self.limit_bytes:
                    break
                if entry.key != keep and _remove(self._path(entry)):
                    total -= entry.size
        self._room = min(self.limit_bytes - total, int(_LOOK_AFTER * self.limit_bytes))


_caches: dict[Path | None, Cache] = {}


def default_cache() -> Cache:
    """The cache in the default folder: the same object as long as the environment names the same folder."""
    folder = default_folder()
    return _caches.setdefault(folder, Cache(folder))


def default_folder() -> Path | None:
    """Where compiled code is kept: QDDOT_CACHE_DIR, else the platform's place for caches; None: caching is off."""
    version = f"v{_VERSION}"
    named = os.environ.get("QDDOT_CACHE_DIR")
    if named == "":
        return None
    try:
        if named is not None:
            return Path(named).expanduser().absolute() / version
        if sys.platform == "win32":
            local = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
            return Path(local) / "qddot" / "Cache" / version
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "qddot" / version
        caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
        # The convention asks to ignore a relative path, which would be another folder after each change of directory.
        return (caches if caches.is_absolute() else Path.home() / ".cache") / "qddot" / version
    except (OSError, RuntimeError):  # no current directory, no home
        return None


def _file_name(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise InputError(f"cache key {key!r}: expected the 64 lower-case hex digits of a SHA-256")
    return f"{key}.obj"


def _distrust(status: os.stat_result) -> str | None:
    """Why what has this status may hold somebody else's code, or None; Windows keeps the user's folders by itself."""
    if not hasattr(os, "geteuid"):
        return None
    if status.st_uid != os.geteuid():
        return "belongs to another user"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "can be written by other users"
    return None


def _digest(prefix: bytes, data: bytes) -> bytes:
    digest = hashlib.sha256(prefix)
    digest.update(data)
    return digest.digest()


def _read(path: Path, key: str) -> tuple[bytes, float]:
    """The data of an entry and when it was last used. All is asked of the open file, which nobody can exchange."""
    try:
        descriptor = os.open(path, _READ)
    except OSError as error:
        if error.errno in _IS_LINK:
            raise _UnfitError("is a symbolic link") from None
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _UnfitError("is not a file")
        if reason := _distrust(status):
            raise _UnfitError(reason)
        length = status.st_size - _HEADER_SIZE
        if length < 0:
            raise _UnfitError
        prefix = _PREFIX.pack(_MAGIC, _VERSION, key.encode(), length)
        with open(descriptor, "rb", closefd=False) as file:
            header = file.read(_HEADER_SIZE)
            if header[: _PREFIX.size] != prefix:
                raise _UnfitError  # before the rest is read: junk may be large
            data = file.read()
        if header[_PREFIX.size :] != _digest(prefix, data):
            raise _UnfitError
        return data, status.st_mtime
    finally:
        os.close(descriptor)


def _write(path: Path, key: str, data: bytes) -> None:
    """Puts a whole entry in its place at once.

    There is no fsync: after a power failure the entry may be torn, which its digest tells.
    """
    prefix = _PREFIX.pack(_MAGIC, _VERSION, key.encode(), len(data))
    temporary = path.with_name(f"{key}-{os.getpid()}-{os.urandom(8).hex()}.tmp")
    descriptor = os.open(temporary, _CREATE, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(prefix + _digest(prefix, data))
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        _remove(temporary)
        raise


def _make(folder: Path) -> None:
    """Makes a folder and the missing ones above it, for this user alone."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        with suppress(FileExistsError):  # another process was faster
            os.mkdir(path, 0o700)


def _remove(path: Path) -> bool:
    """Whether the file is gone; somebody else may have removed it, and Windows keeps a file that is being read."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
