"""Compiled object code kept on disk, so that a second process does not compile again.

A key is the hex SHA-256 of everything that the code depends on (content, CPU features, versions) and is made by the
caller; a value is bytes. What is read from here is run as machine code, so only files that this user alone can write
are believed, and every entry is authenticated: an HMAC-SHA256 with the user's secret key (`cache_key`) proves that this
user stored it, whole, under this key. Trouble with the disk is never an error: the entry is absent, the caller compiles,
and one warning per process says why.
"""

from __future__ import annotations

import hashlib
import hmac
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

from qddot.compiler.runtime import own_files as cache_key
from qddot.compiler.runtime.own_files import CREATE, KeyUnusableError, UnfitError, distrust, make_folder, opened, remove
from qddot.errors import InputError, QddotWarning, message

DEFAULT_LIMIT = 512 * 2**20
ADVICE = (
    "check owner, permissions and space, or name another folder in QDDOT_CACHE_DIR (empty: no caching) "
    f"or another key file in {cache_key.VARIABLE}"
)

_FOLDER = "v1"  # old entries of another _VERSION are in it until newer ones need their room
_VERSION = 2
_MAGIC = b"qddotobj"
_PREFIX = struct.Struct(">8sI64sQ")  # magic, version, key, length of the data; then the secret's name, the HMAC, the data
_NAME_SIZE, _TAG_SIZE = 8, 32
_HEADER_SIZE = _PREFIX.size + _NAME_SIZE + _TAG_SIZE
_KEY = re.compile("[0-9a-f]{64}")
_ENTRY_NAME = re.compile(r"([0-9a-f]{64})\.obj")
_TEMPORARY_NAME = re.compile(r"[0-9a-f]{64}-\d+-[0-9a-f]{16}\.tmp")
_HOUR = 3600.0
_EVICT_TO = 0.8  # of the limit: to stay just below it, every put would have to evict
_LOOK_AFTER = 1 / 16  # of the limit: what this process writes before it looks what others have written

_said = threading.Lock()  # taken by the one warning of this process and never given back


class Entry(NamedTuple):
    """One stored value: its key, its bytes on disk, and when it was last used (seconds since 1970, to the hour)."""

    key: str
    size: int
    last_used: float


class Cache:
    """A folder of entries. There is no lock: processes, threads and forks may share it as they like."""

    def __init__(self, folder: Path | None = None, limit_bytes: int = DEFAULT_LIMIT, key_file: Path | None = None) -> None:
        """The entries in this folder, or in the default one; created at the first put, and so is the key file."""
        self.folder = default_folder() if folder is None else Path(folder)
        self.key_file = cache_key.default_file() if key_file is None else Path(key_file)
        self.limit_bytes = limit_bytes
        self._room = 0  # bytes that may be written before the folder is looked through again, which takes a while

    def get(self, key: str) -> bytes | None:
        """The value stored under this key; None when there is none that can be believed."""
        name = _file_name(key)
        if self.folder is None or self._refuses():
            return None
        path = self.folder / name
        try:
            data, last_used = self._read(path, key)
        except FileNotFoundError:
            return None
        except UnfitError as unfit:
            self.reject(key, str(unfit))
            return None
        except KeyUnusableError as error:
            self._warn(str(error))
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
            make_folder(self.folder)
            if self._refuses():
                return False
            secret = cache_key.secret(self.key_file, create=True)
            assert secret is not None  # it was created
            _write(self.folder / name, key, data, secret)
        except KeyUnusableError as error:
            self._warn(str(error))
            return False
        except OSError as error:
            if self.get(key) == data:
                return True  # Windows does not replace a file while it is read; the reader has what we wanted to store
            self._warn(f"{name} cannot be written: {error.strerror}")
            return False
        self._room -= _HEADER_SIZE + len(data)
        if self._room < 0:
            self._evict(keep=key)
        return True

    def reject(self, key: str, reason: str = "") -> None:
        """Removes an entry that must not be used, and says why where there is something that the user should know."""
        if self.folder is not None:
            # If a good entry took its place this very moment, that one goes: it is compiled once more, no harm.
            remove(self.folder / _file_name(key))
            if reason:
                self._warn(f"{_file_name(key)} {reason}")

    def entries(self) -> list[Entry]:
        """What is stored, the least recently used first. Damaged entries count until they are read."""
        return self._scan()[0]

    def size(self) -> int:
        """Bytes on disk of all entries together."""
        return sum(entry.size for entry in self.entries())

    def clear(self) -> int:
        """Removes all entries and what interrupted writers left; returns the number of entries removed."""
        entries, leftovers = self._scan()
        for path in leftovers:
            remove(path)
        return sum(remove(self._path(entry)) for entry in entries)

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
        return distrust(status)

    def key_trouble(self) -> str | None:
        """Why there is no key that may be used. None when there is, or when it is yet to be made."""
        try:
            cache_key.secret(self.key_file, create=False)
        except KeyUnusableError as error:
            return str(error)
        return None

    def _read(self, path: Path, key: str) -> tuple[bytes, float]:
        """The data of an entry and when it was last used."""
        with opened(path) as (descriptor, status):
            length = status.st_size - _HEADER_SIZE
            if length < 0:
                raise UnfitError
            prefix = _PREFIX.pack(_MAGIC, _VERSION, key.encode(), length)
            with open(descriptor, "rb", closefd=False) as file:
                if file.read(_PREFIX.size) != prefix:
                    raise UnfitError  # before the rest is read: junk may be large
                name, tag = file.read(_NAME_SIZE), file.read(_TAG_SIZE)
                secret = cache_key.secret(self.key_file, create=False)
                if secret is None or name != _name(secret):
                    raise UnfitError(f"was stored with another key than the one in {self.key_file}")
                data = file.read()
            if not hmac.compare_digest(tag, _tag(secret, prefix, data)):
                raise UnfitError
            return data, status.st_mtime

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
            remove(path)
        total = sum(entry.size for entry in entries)
        if total > self.limit_bytes:
            for entry in entries:
                if total <= _EVICT_TO * self.limit_bytes:
                    break
                if entry.key != keep and remove(self._path(entry)):
                    total -= entry.size
        self._room = min(self.limit_bytes - total, int(_LOOK_AFTER * self.limit_bytes))


_caches: dict[tuple[Path | None, Path | None], Cache] = {}


def default_cache() -> Cache:
    """The cache in the default folder: the same object as long as the environment names the same folder and key file."""
    place = default_folder(), cache_key.default_file()
    return _caches.setdefault(place, Cache(place[0], key_file=place[1]))


def default_folder() -> Path | None:
    """Where compiled code is kept: QDDOT_CACHE_DIR, else the platform's place for caches; None: caching is off."""
    named = os.environ.get("QDDOT_CACHE_DIR")
    if named == "":
        return None
    try:
        if named is not None:
            return Path(named).expanduser().absolute() / _FOLDER
        if sys.platform == "win32":
            local = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
            return Path(local) / "qddot" / "Cache" / _FOLDER
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "qddot" / _FOLDER
        caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
        # The convention asks to ignore a relative path, which would be another folder after each change of directory.
        return (caches if caches.is_absolute() else Path.home() / ".cache") / "qddot" / _FOLDER
    except (OSError, RuntimeError):  # no current directory, no home
        return None


def _file_name(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise InputError(f"cache key {key!r}: expected the 64 lower-case hex digits of a SHA-256")
    return f"{key}.obj"


def _name(secret: bytes) -> bytes:
    """Tells which secret an entry was stored with. Nothing is believed because of it: it is there for the warning."""
    return hashlib.sha256(b"qddot cache key " + secret).digest()[:_NAME_SIZE]


def _tag(secret: bytes, prefix: bytes, data: bytes) -> bytes:
    tag = hmac.new(secret, prefix, "sha256")
    tag.update(data)
    return tag.digest()


def _write(path: Path, key: str, data: bytes, secret: bytes) -> None:
    """Puts a whole entry in its place at once.

    There is no fsync: after a power failure the entry may be torn, which its tag tells.
    """
    prefix = _PREFIX.pack(_MAGIC, _VERSION, key.encode(), len(data))
    temporary = path.with_name(f"{key}-{os.getpid()}-{os.urandom(8).hex()}.tmp")
    descriptor = os.open(temporary, CREATE, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(prefix + _name(secret) + _tag(secret, prefix, data))
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        remove(temporary)
        raise
