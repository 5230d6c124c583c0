"""The key that authenticates cached code: made once, this user's alone, and without it nothing in the cache is believed."""

import hashlib
import hmac
import os
import stat
import struct
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import qddot
from qddot.cli import cache as cache_command
from qddot.cli.main import main
from qddot.compiler.runtime import cache as cache_module
from qddot.compiler.runtime import own_files as cache_key
from qddot.compiler.runtime import stored
from qddot.compiler.runtime.cache import Cache
from qddot.errors import QddotWarning

posix = pytest.mark.skipif(os.name != "posix", reason="owners and modes are POSIX")
KEY, DATA = "a" * 64, b"machine code"


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.setattr(cache_module, "_said", threading.Lock())
    monkeypatch.setattr(cache_key, "_known", {})


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "cache", key_file=tmp_path / "home" / "cache.key")


def as_new_process(cache: Cache) -> Cache:
    cache_key._known.clear()
    return Cache(cache.folder, key_file=cache.key_file)


def warned(calls) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        calls()
    assert [w.category for w in caught] == [QddotWarning], [str(w.message) for w in caught]
    return str(caught[0].message)


def refused(cache: Cache, says: str) -> None:
    """Nothing is read or stored, and one warning names the file and the reason."""

    def calls():
        new = as_new_process(cache)
        assert new.get(KEY) is None
        assert new.put(KEY, DATA) is False

    text = warned(calls)
    assert says in text
    assert str(cache.key_file) in text
    assert "QDDOT_CACHE_KEY" in text


# ---- what is authenticated -------------------------------------------------------------------------------------------


def test_an_entry_with_a_plain_digest_is_not_believed(cache):
    """What an attacker can do who knows the format and may write in the cache, but does not have the key."""
    cache.put(KEY, DATA)
    name = (cache.folder / f"{KEY}.obj").read_bytes()[84:92]
    evil = b"other code"
    prefix = struct.pack(">8sI64sQ", b"qddotobj", 2, KEY.encode(), len(evil))
    for tag in (
        hashlib.sha256(prefix + evil).digest(),
        hmac.digest(b"", prefix + evil, "sha256"),
        hmac.digest(b"\0" * 32, prefix + evil, "sha256"),
        bytes(32),
    ):
        (cache.folder / f"{KEY}.obj").write_bytes(prefix + name + tag + evil)
        assert cache.get(KEY) is None
        assert not (cache.folder / f"{KEY}.obj").exists()
    key = cache.key_file.read_bytes()  # whoever can read it is this user
    tag = hmac.digest(key, prefix + evil, "sha256")
    (cache.folder / f"{KEY}.obj").write_bytes(prefix + name + tag + evil)
    assert cache.get(KEY) == evil


def test_entries_of_the_format_before_are_absent(cache):
    cache.put("b" * 64, DATA)
    prefix = struct.pack(">8sI64sQ", b"qddotobj", 1, KEY.encode(), len(DATA))
    (cache.folder / f"{KEY}.obj").write_bytes(prefix + hashlib.sha256(prefix + DATA).digest() + DATA)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.get(KEY) is None


def test_an_entry_of_another_key(cache, tmp_path):
    cache.put(KEY, DATA)
    other = Cache(cache.folder, key_file=tmp_path / "other.key")
    assert "stored with another key" in warned(lambda: other.get(KEY))
    assert other.put(KEY, DATA)
    assert other.get(KEY) == DATA


def test_the_key_is_not_in_the_cache(cache):
    cache.put(KEY, DATA)
    key = cache.key_file.read_bytes()
    assert len(key) == 32
    assert all(key not in path.read_bytes() for path in cache.folder.rglob("*") if path.is_file())
    assert not cache.key_file.is_relative_to(cache.folder)


def test_reading_makes_no_key(cache):
    assert cache.get(KEY) is None
    assert not cache.key_file.exists()


# ---- the file ----------------------------------------------------------------------------------------------------------


@posix
def test_only_the_user_may_read_it(cache):
    before = os.umask(0)
    try:
        cache.put(KEY, DATA)
    finally:
        os.umask(before)
    assert stat.S_IMODE(cache.key_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(cache.key_file.parent.stat().st_mode) == 0o700
    assert os.listdir(cache.key_file.parent) == ["cache.key"]


@posix
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o666, 0o610, 0o601])
def test_a_key_that_others_can_read_or_write(cache, mode):
    cache.put(KEY, DATA)
    cache.key_file.chmod(mode)
    refused(cache, "by other users")


@posix
def test_a_key_of_somebody_else(cache, monkeypatch):
    cache.put(KEY, DATA)
    real = os.fstat

    def of_somebody_else(descriptor):
        fields = list(real(descriptor))
        if fields[stat.ST_SIZE] == 32:
            fields[stat.ST_UID] += 1
        return os.stat_result(fields)

    monkeypatch.setattr(os, "fstat", of_somebody_else)
    refused(cache, "belongs to another user")


@posix
@pytest.mark.parametrize("kind", ["link", "dangling", "folder", "fifo"])
def test_what_is_not_a_key_file(cache, tmp_path, kind):
    cache.put(KEY, DATA)
    cache.key_file.rename(tmp_path / "elsewhere")
    if kind == "link":
        cache.key_file.symlink_to(tmp_path / "elsewhere")
    elif kind == "dangling":
        cache.key_file.symlink_to(tmp_path / "nothing")
    elif kind == "folder":
        cache.key_file.mkdir()
    else:
        os.mkfifo(cache.key_file)
    refused(cache, "symbolic link" if kind in ("link", "dangling") else "is not a file")
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("size", [0, 31, 33, 10**6])
def test_a_key_of_another_size(cache, size):
    cache.put(KEY, DATA)
    cache.key_file.write_bytes(bytes(size))
    refused(cache, f"has {size} bytes instead of 32: remove it")


@posix
def test_a_home_that_cannot_be_written(tmp_path):
    """Root may write everywhere, so root becomes nobody first."""
    code = """
import os, sys, warnings
from pathlib import Path
from qddot.compiler.runtime.cache import Cache
root = Path(sys.argv[1])
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
os.mkdir(root / "home")
os.chmod(root / "home", 0o500)
os.environ["HOME"] = str(root / "home")
del os.environ["QDDOT_CACHE_KEY"]
cache = Cache(root / "cache")
assert str(cache.key_file).startswith(str(root / "home"))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert cache.put("a" * 64, b"data") is False and cache.get("a" * 64) is None
    assert cache.put("a" * 64, b"data") is False
assert len(caught) == 1 and "Permission denied" in str(caught[0].message), caught
os.environ["QDDOT_CACHE_KEY"] = str(root / "cache.key")
cache = Cache(root / "cache")
assert cache.put("a" * 64, b"data") and cache.get("a" * 64) == b"data"
"""
    tmp_path.chmod(0o777)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.geteuid() and len(parent.parts) > 2:
            parent.chmod(parent.stat().st_mode | 0o011)
    environment = {**os.environ, "XDG_STATE_HOME": ""}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, env=environment)


def test_no_home(tmp_path, monkeypatch):
    def unknown():
        raise RuntimeError

    for name in ("QDDOT_CACHE_KEY", "XDG_STATE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", unknown)
    cache = Cache(tmp_path / "cache")
    assert cache.key_file is None
    assert "no home folder for the key" in warned(lambda: cache.put(KEY, DATA))
    assert cache.get(KEY) is None


PLACES = {
    "linux": ("linux", {"HOME": "/h"}, "/h/.local/state/qddot/cache.key"),
    "xdg": ("linux", {"HOME": "/h", "XDG_STATE_HOME": "/x"}, "/x/qddot/cache.key"),
    "xdg relative": ("linux", {"HOME": "/h", "XDG_STATE_HOME": "x"}, "/h/.local/state/qddot/cache.key"),
    "mac": ("darwin", {"HOME": "/h"}, "/h/Library/Application Support/qddot/cache.key"),
    "windows": ("win32", {"HOME": "/h", "LOCALAPPDATA": "/l"}, "/l/qddot/cache.key"),
    "named": ("linux", {"HOME": "/h", "QDDOT_CACHE_KEY": "/c/key"}, "/c/key"),
    "named from home": ("linux", {"HOME": "/h", "QDDOT_CACHE_KEY": "~/key"}, "/h/key"),
    "named empty": ("linux", {"HOME": "/h", "QDDOT_CACHE_KEY": ""}, "/h/.local/state/qddot/cache.key"),
    "cache elsewhere": ("linux", {"HOME": "/h", "QDDOT_CACHE_DIR": "/c"}, "/h/.local/state/qddot/cache.key"),
}


@posix
@pytest.mark.parametrize(("platform", "environment", "place"), PLACES.values(), ids=PLACES)
def test_the_default_place(monkeypatch, platform, environment, place):
    for name in ("HOME", "XDG_STATE_HOME", "LOCALAPPDATA", "QDDOT_CACHE_KEY", "QDDOT_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setattr(sys, "platform", platform)
    assert cache_key.default_file() == Path(place)


# ---- many at once, and killed ------------------------------------------------------------------------------------------


def in_forks(code: str, folder: Path) -> None:
    """Runs code in a process that has nothing but it, and may fork: `folder` and `file` are there for it."""
    head = """
import os, signal, sys, time
from pathlib import Path
from qddot.compiler.runtime import own_files as cache_key
folder = Path(sys.argv[1])
file = folder / "a" / "b" / "cache.key"
"""
    subprocess.run([sys.executable, "-c", head + code, str(folder)], check=True, timeout=120)


@posix
def test_sixteen_processes_make_one_key(tmp_path):
    code = """
(ready, go), children = os.pipe(), []
for n in range(16):
    if (child := os.fork()) == 0:
        os.close(go)
        os.read(ready, 1)  # returns for all of them when the parent closes the other end
        (folder / str(n)).write_bytes(cache_key.secret(file, create=True))
        os._exit(0)
    children.append(child)
os.close(go)
assert all(os.waitpid(child, 0)[1] == 0 for child in children)
assert {(folder / str(n)).read_bytes() for n in range(16)} == {file.read_bytes()}
assert os.listdir(file.parent) == ["cache.key"], os.listdir(file.parent)
"""
    in_forks(code, tmp_path)


@posix
def test_a_process_killed_while_it_makes_the_key(tmp_path):
    """Whatever it has not done, the next process finds a whole key or makes one, and sweeps what is left."""
    code = """
def stuck(*_):
    os.write(out, b"x")
    time.sleep(600)
def later(n):  # the first random number is in the temporary file's name
    os.urandom = stuck
    return bytes(n)
for call, does in {"urandom": later, "fsync": stuck, "link": stuck, "unlink": stuck}.items():
    ready, out = os.pipe()
    if (child := os.fork()) == 0:
        setattr(os, call, does)
        cache_key.secret(file, create=True)
    assert os.read(ready, 1) == b"x"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert any(name.endswith(".tmp") for name in os.listdir(file.parent)), call
    assert file.exists() == (call == "unlink"), call
    key = cache_key.secret(file, create=True)
    assert len(key) == 32 and key == file.read_bytes()
    if call != "unlink":  # then the key was there, and nobody makes another
        assert os.listdir(file.parent) == ["cache.key"], os.listdir(file.parent)
    file.unlink()
    cache_key._known.clear()
"""
    in_forks(code, tmp_path)


@posix
def test_a_process_killed_at_any_time(tmp_path):
    code = """
for n in range(60):
    if (child := os.fork()) == 0:
        cache_key.secret(file, create=True)
        os._exit(0)
    time.sleep(n * 2e-5)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert not file.exists() or file.stat().st_size == 32
    assert len(cache_key.secret(file, create=True)) == 32
    file.unlink()
    cache_key._known.clear()
"""
    in_forks(code, tmp_path)


def test_a_file_system_without_links(tmp_path, monkeypatch):
    def no_links(*_):
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    key = cache_key.secret(tmp_path / "cache.key", create=True)
    assert key == (tmp_path / "cache.key").read_bytes()
    assert os.listdir(tmp_path) == ["cache.key"]


def test_every_key_is_another(tmp_path):
    keys = {cache_key.secret(tmp_path / f"{n}.key", create=True) for n in range(20)}
    assert len(keys) == 20
    assert {len(key) for key in keys} == {32}


# ---- what is inside of an entry ----------------------------------------------------------------------------------------


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("QDDOT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("QDDOT_CACHE_KEY", str(tmp_path / "cache.key"))
    return cache_module.default_cache()


BROKEN = {
    "no JSON": lambda head, data: (b"{", data),
    "not a table": lambda head, data: (b"[]", data),
    "empty": lambda head, data: (b"", b""),
    "nested": lambda head, data: (b"[" * 100_000, data),
    "no fact": lambda head, data: (b"{}", data),
    "a fact less": lambda head, data: (head.replace(b'"lanes"', b'"lamps"'), data),
    "a wrong type": lambda head, data: (head.replace(b'"lanes": ', b'"lanes": -'), data),
    "no text": lambda head, data: (b"\xff" + head, data),
    "no object": lambda head, data: (head, b""),
    "half an object": lambda head, data: (head, data[: len(data) // 2]),
    "no loop": lambda head, data: (head, data.replace(b"\0loop\0", b"\0lump\0")),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_an_authentic_entry_that_cannot_be_loaded_is_compiled_anew(own_cache, broken):
    """Only a fault of our own could make one, or somebody who has the key: never a crash."""
    kernel = qddot.load("scara").kernel("gravity_force")
    (entry,) = own_cache.entries()
    head, _, data = own_cache.get(entry.key).partition(b"\n")
    own_cache.put(entry.key, b"\n".join(broken(head, data)))
    made = []
    text = warned(lambda: made.append(qddot.load("scara").kernel("gravity_force")))
    assert "cannot be loaded" in text
    assert entry.key in text
    assert not made[0].info.cached
    assert np.array_equal(made[0](np.ones(4)), kernel(np.ones(4)))
    assert qddot.load("scara").kernel("gravity_force").info.cached  # what was compiled anew is stored


def test_a_packed_entry_with_places_beyond_its_numbers(own_cache):
    qddot.load("scara").kernel("mass_matrix", packed=True)
    (entry,) = own_cache.entries()
    head, _, data = own_cache.get(entry.key).partition(b"\n")
    own_cache.put(entry.key, head.replace(b"[[4, 4], [0", b"[[4, 4], [99") + b"\n" + data)
    made = []
    assert "places beyond" in warned(lambda: made.append(qddot.load("scara").kernel("mass_matrix", packed=True)))
    assert not made[0].info.cached


def test_facts_are_what_they_should_be():
    assert stored.text("x") == "x"
    assert stored.count(3) == 3
    assert stored.counts({"add": 1}) == {"add": 1}
    assert stored.flag(True) is True
    for read, wrong in ((stored.text, 1), (stored.count, "1"), (stored.count, True), (stored.count, -1), (stored.flag, 1)):
        with pytest.raises((TypeError, ValueError)):
            read(wrong)
    for wrong in ([], {"add": "x"}):
        with pytest.raises((TypeError, ValueError)):
            stored.counts(wrong)


# ---- the command, and the time -------------------------------------------------------------------------------------------


def test_the_command_says_what_is_wrong_with_the_key(own_cache, capsys):
    own_cache.put(KEY, DATA)
    own_cache.key_file.write_bytes(b"")
    cache_key._known.clear()
    assert main(["cache"]) == 1
    text = capsys.readouterr().out
    assert "0 bytes instead of 32" in text
    assert cache_command.ADVICE in text


def test_authentication_is_cheap(cache):
    cache.put(KEY, os.urandom(100_000))
    seconds = []
    for _ in range(30):
        new = as_new_process(cache)
        begin = time.perf_counter()
        assert new.get(KEY) is not None
        seconds.append(time.perf_counter() - begin)
    # With reading the key. The least of many, since the machine is shared; a cached kernel has 10 ms for all of it.
    assert min(seconds) < 2e-3
