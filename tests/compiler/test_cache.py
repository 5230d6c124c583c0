"""The cache of compiled code: what comes back is what was stored, or nothing, whatever happens to the disk."""

import argparse
import errno
import hashlib
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from qddot.cli import cache as cache_command
from qddot.compiler.runtime import cache as module
from qddot.compiler.runtime.cache import Cache, Entry, default_cache, default_folder
from qddot.errors import InputError, QddotWarning
from tests.support.profiles import examples

NAME = 8 + 4 + 64 + 8  # magic, version, key and length are before the name of the secret key
HEADER = NAME + 8 + 32  # and the HMAC
HOUR = 3600
posix = pytest.mark.skipif(os.name != "posix", reason="owners and modes are POSIX")
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux makes a socket without opening it")


def key(name) -> str:
    return hashlib.sha256(str(name).encode()).hexdigest()


def value(name, size: int = 1000) -> bytes:
    return (key(name).encode() * (size // 64 + 1))[:size]


KEY, DATA = key("one"), value("one")


@pytest.fixture(autouse=True)
def _warning_not_yet_said(monkeypatch):
    monkeypatch.setattr(module, "_said", threading.Lock())


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "cache")


def file_of(cache: Cache, name: str = KEY) -> Path:
    return cache.folder / f"{name}.obj"


def names(cache: Cache) -> set[str]:
    return set(os.listdir(cache.folder))


def warned(calls) -> str:
    """The text of the one QddotWarning that these calls give."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        calls()
    assert [w.category for w in caught] == [QddotWarning], [str(w.message) for w in caught]
    return str(caught[0].message)


@pytest.fixture
def silent():
    """Fails on any warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


# ---- storing and finding -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"\0", DATA, os.urandom(3 * 2**20)], ids=["empty", "one", "small", "large"])
def test_what_was_stored_comes_back(cache, data, silent):
    assert cache.get(KEY) is None
    assert cache.put(KEY, b"older")
    assert cache.put(KEY, data)
    assert Cache(cache.folder).get(KEY) == data
    assert cache.get(key("another")) is None
    assert cache.size() == HEADER + len(data)
    assert names(cache) == {f"{KEY}.obj"}


@pytest.mark.parametrize("bad", ["", "a" * 63, "a" * 65, "A" * 64, "g" * 64, "../" + "a" * 61, "a" * 63 + "\n"])
def test_only_digests_are_keys(cache, bad):
    for call in (lambda: cache.get(bad), lambda: cache.put(bad, b"")):
        with pytest.raises(InputError, match="64 lower-case hex digits"):
            call()


@posix
def test_only_the_user_may_read_or_write(tmp_path):
    before = os.umask(0)
    try:
        cache = Cache(tmp_path / "a" / "b" / "c")
        assert cache.put(KEY, DATA)
    finally:
        os.umask(before)
    for folder in (cache.folder, cache.folder.parent, cache.folder.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(file_of(cache).stat().st_mode) == 0o600


def test_entries_and_clear(cache, silent):
    assert (cache.entries(), cache.size(), cache.clear()) == ([], 0, 0)  # no folder yet
    for n, used in enumerate((300, 100, 200)):
        cache.put(key(n), value(n, 10 * n))
        os.utime(file_of(cache, key(n)), (used, used))
    assert cache.entries() == [Entry(key(n), HEADER + 10 * n, used) for n, used in ((1, 100), (2, 200), (0, 300))]
    assert cache.size() == 3 * HEADER + 30
    assert cache.clear() == 3
    assert (cache.entries(), cache.get(key(0))) == ([], None)


def test_get_does_not_look_through_the_folder(cache, monkeypatch):
    """However many entries there are: a second process has 50 ms for all it does."""
    content = os.urandom(100_000)
    cache.put(KEY, content)

    def refuse(*_):
        raise AssertionError("the folder is read")

    for name in ("listdir", "scandir"):
        monkeypatch.setattr(os, name, refuse)
    assert cache.get(KEY) == content


def test_importing_is_cheap():
    heavy = ["llvmlite", "multiprocessing", "tempfile", "subprocess", "sqlite3", "fcntl", "secrets"]
    code = """
import sys, qddot
before = set(sys.modules)
import qddot.compiler.runtime.cache
print(*(set(sys.modules) - before) & set(sys.argv[1:]))"""
    done = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_without_what_only_posix_has(tmp_path):
    code = """
import os, sys
import qddot
for name in ("O_NOFOLLOW", "O_NONBLOCK", "geteuid", "getuid", "fork"):
    delattr(os, name) if hasattr(os, name) else None
sys.modules["fcntl"] = None
from pathlib import Path
from qddot.compiler.runtime.cache import Cache
cache = Cache(Path(sys.argv[1]))
os.mkdir(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
assert cache.put("a" * 64, b"data") and cache.get("a" * 64) == b"data" and cache.clear() == 1"""
    subprocess.run([sys.executable, "-W", "error", "-c", code, str(tmp_path / "cache")], check=True)


def test_a_file_that_windows_holds_because_it_is_read(cache, monkeypatch, silent):
    cache.put(KEY, DATA)

    def held(*_):
        raise PermissionError(errno.EACCES, "in use")

    monkeypatch.setattr(os, "replace", held)
    assert cache.put(KEY, DATA)
    assert names(cache) == {f"{KEY}.obj"}


# ---- damage --------------------------------------------------------------------------------------------------------


def damaged(cache: Cache, content: bytes) -> None:
    file_of(cache).write_bytes(content)
    file_of(cache).chmod(0o600)
    assert cache.get(KEY) is None
    assert not file_of(cache).exists()


def test_every_byte_counts(cache, silent):
    data = os.urandom(20)
    cache.put(KEY, data)
    good = file_of(cache).read_bytes()
    assert len(good) == HEADER + 20
    for position in range(len(good)):
        for bit in (1, 128):
            if NAME <= position < NAME + 8:
                warnings.simplefilter("ignore", QddotWarning)  # it says that the entry was stored with another key
            damaged(cache, good[:position] + bytes([good[position] ^ bit]) + good[position + 1 :])
            warnings.simplefilter("error")
        damaged(cache, good[:position])
    assert cache.put(KEY, data)
    assert cache.get(KEY) == data


@examples(100, suppress=[HealthCheck.function_scoped_fixture])
@given(
    data=st.binary(max_size=200),
    start=st.integers(0, HEADER + 200),
    removed=st.integers(0, 50),
    inserted=st.binary(max_size=50),
)
@example(data=b"", start=HEADER, removed=0, inserted=b"\0")
@example(data=b"abc", start=0, removed=50, inserted=b"")
def test_any_edit_makes_it_absent(cache, data, start, removed, inserted):
    cache.put(KEY, data)
    good = file_of(cache).read_bytes()
    edited = good[:start] + inserted + good[start + removed :]
    if edited == good:
        assert cache.get(KEY) == data
    else:
        damaged(cache, edited)


@pytest.mark.parametrize("junk", [b"", b"\0" * 5000, os.urandom(5000), b"\x7fELF" + b"\0" * 500, b"{}"])
def test_junk_in_the_place_of_an_entry(cache, junk, silent):
    cache.put(KEY, DATA)
    damaged(cache, junk)


def test_an_entry_under_another_key(cache, silent):
    cache.put(KEY, DATA)
    os.replace(file_of(cache), file_of(cache, key("two")))
    assert cache.get(key("two")) is None
    assert names(cache) == set()


def test_a_tag_of_another_entry_is_not_enough(cache, silent):
    """Renaming and editing the key in the header does not make an entry of another key either."""
    cache.put(KEY, DATA)
    content = file_of(cache).read_bytes().replace(KEY.encode(), key("two").encode(), 1)
    file_of(cache, key("two")).write_bytes(content)
    file_of(cache, key("two")).chmod(0o600)
    assert cache.get(key("two")) is None


def test_a_folder_full_of_junk(cache, silent):
    cache.put(KEY, DATA)
    for n in range(200):
        (cache.folder / f"junk{n}").write_bytes(os.urandom(n))
    for name in ("a.obj", f"{key(1)}.OBJ", f"{key(1)}.obj.bak", ".tmp", "old.tmp", f"{key(1)[:-1]}.obj", "\udcff.obj"):
        (cache.folder / name).write_bytes(b"junk")
        os.utime(cache.folder / name, (0, 0))
    (cache.folder / f"{key(2)}.obj").mkdir()
    (cache.folder / "folder").mkdir()
    junk = names(cache) - {f"{KEY}.obj"}
    assert [entry.key for entry in cache.entries()] == [KEY]
    assert cache.get(KEY) == DATA
    assert cache.put(key(3), DATA)
    assert cache.clear() == 2
    assert names(cache) == junk  # what is not ours stays


@pytest.mark.parametrize("kind", ["folder", pytest.param("socket", marks=linux), pytest.param("device", marks=posix)])
def test_what_is_not_a_file(cache, kind):
    cache.put(KEY, DATA)
    file_of(cache).unlink()
    if kind == "folder":
        file_of(cache).mkdir()
    elif kind == "device":
        file_of(cache).symlink_to("/dev/zero")
    else:
        os.mknod(file_of(cache), 0o600 | stat.S_IFSOCK)
    assert KEY in warned(lambda: cache.get(KEY) is None or pytest.fail("something came back"))
    assert cache.put(KEY, DATA) == (kind != "folder")  # which a file does not replace
    assert [name for name in names(cache) if name.endswith(".tmp")] == []


@posix
def test_a_fifo_keeps_nobody_waiting(cache):
    cache.put(KEY, DATA)
    file_of(cache).unlink()
    os.mkfifo(file_of(cache))
    code = f"""
import sys
from pathlib import Path
from qddot.compiler.runtime.cache import Cache
assert Cache(Path(sys.argv[1])).get("{KEY}") is None"""
    arguments = [sys.executable, "-c", code, str(cache.folder)]
    done = subprocess.run(arguments, check=True, timeout=30, capture_output=True, text=True)
    assert "is not a file" in done.stderr
    assert not file_of(cache).exists()


# ---- strangers -----------------------------------------------------------------------------------------------------


def useless(cache: Cache, says: str) -> None:
    """Nothing is read or written, all calls return, and one warning says why."""

    def calls():
        for _ in range(2):
            assert cache.get(KEY) is None
            assert cache.put(KEY, DATA) is False
            assert (cache.entries(), cache.size(), cache.clear()) == ([], 0, 0)

    text = warned(calls)
    assert says in text
    assert str(cache.folder) in text
    assert "QDDOT_CACHE_DIR" in text


@posix
@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777, 0o1777])
def test_a_folder_that_others_can_write(cache, mode):
    cache.put(KEY, DATA)
    cache.folder.chmod(mode)
    useless(cache, "can be written by other users")
    assert names(cache) == {f"{KEY}.obj"}


@posix
def test_a_folder_of_somebody_else(cache, monkeypatch):
    cache.put(KEY, DATA)
    somebody = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: somebody)
    useless(cache, "belongs to another user")
    assert names(cache) == {f"{KEY}.obj"}


@posix
def test_a_file_of_somebody_else(cache, monkeypatch):
    cache.put(KEY, DATA)
    real = os.fstat

    def of_somebody_else(descriptor):
        fields = list(real(descriptor))
        fields[stat.ST_UID] += 1
        return os.stat_result(fields)

    monkeypatch.setattr(os, "fstat", of_somebody_else)
    assert "belongs to another user" in warned(lambda: cache.get(KEY))
    monkeypatch.undo()
    assert cache.get(KEY) is None  # and it is gone


@posix
@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write(cache, mode):
    cache.put(KEY, DATA)
    file_of(cache).chmod(mode)
    assert "can be written by other users" in warned(lambda: cache.get(KEY))
    assert cache.get(KEY) is None
    assert cache.put(KEY, DATA)
    assert cache.get(KEY) == DATA


@posix
def test_a_link_in_the_place_of_the_folder(tmp_path):
    other = Cache(tmp_path / "other")
    other.put(KEY, DATA)
    (tmp_path / "cache").symlink_to(other.folder)
    useless(Cache(tmp_path / "cache"), "symbolic link")
    assert other.get(KEY) == DATA


@posix
def test_links_above_the_folder_are_fine(tmp_path, silent):
    (tmp_path / "disk").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "disk")
    cache = Cache(tmp_path / "home" / "cache")
    assert cache.put(KEY, DATA)
    assert cache.get(KEY) == DATA
    assert (tmp_path / "disk" / "cache").is_dir()


@posix
@pytest.mark.parametrize("target", ["good entry", "dangling", "itself"])
def test_a_link_in_the_place_of_an_entry(cache, tmp_path, target):
    cache.put(KEY, DATA)
    outside = tmp_path / f"{KEY}.obj"
    os.replace(file_of(cache), outside)
    before = outside.read_bytes()
    aim = {"good entry": outside, "dangling": tmp_path / "nothing", "itself": file_of(cache)}[target]
    file_of(cache).symlink_to(aim)
    assert cache.entries() == []
    assert "symbolic link" in warned(lambda: cache.get(KEY) is None or pytest.fail("the link was followed"))
    assert not file_of(cache).is_symlink()
    file_of(cache).symlink_to(aim)
    assert cache.put(KEY, value("new"))  # replaces the link, not what it points to
    assert cache.get(KEY) == value("new")
    assert outside.read_bytes() == before
    assert not (tmp_path / "nothing").exists()


# ---- disks that do not take it -------------------------------------------------------------------------------------


@pytest.mark.parametrize("below", ["", "a", "a/b"], ids=["itself", "parent", "grandparent"])
def test_a_file_in_the_place_of_the_folder(tmp_path, below):
    (tmp_path / "file").write_text("mine")
    useless(Cache(tmp_path / "file" / below), "is not a folder" if below == "" else os.strerror(errno.ENOTDIR))
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.EMFILE])
@pytest.mark.parametrize("call", ["mkdir", "open", "replace"])
def test_a_disk_that_does_not_take_it(cache, monkeypatch, call, code):
    if call != "mkdir":
        cache.put(key("before"), DATA)

    def fails(*_, **__):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fails)

        def calls():
            for n in range(3):
                assert cache.put(key(n), DATA) is False
                assert cache.get(key(n)) is None

        assert os.strerror(code) in warned(calls)
    if call != "mkdir":
        assert names(cache) == {f"{key('before')}.obj"}
        assert cache.get(key("before")) == DATA


@posix
def test_a_disk_that_is_full_in_the_middle(cache):
    """A real write that stops half-way: the system refuses files above a size."""
    code = """
import os, resource, sys, warnings
from pathlib import Path
from qddot.compiler.runtime.cache import Cache
cache = Cache(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert cache.put("a" * 64, bytes(100_000)) is False
    assert cache.put("b" * 64, bytes(100_000)) is False
assert len(caught) == 1 and "cannot be written" in str(caught[0].message), caught
assert cache.put("c" * 64, bytes(1000))
assert os.listdir(cache.folder) == ["c" * 64 + ".obj"]"""
    subprocess.run([sys.executable, "-c", code, str(cache.folder)], check=True)


@posix
def test_a_folder_that_is_really_read_only_or_really_foreign():
    """Root may do everything, so root becomes nobody first."""
    code = """
import os, sys, warnings
from pathlib import Path
from qddot.compiler.runtime.cache import Cache
root = Path(sys.argv[1])
mine, foreign = root / "mine", root / "foreign"
if os.geteuid() == 0:
    assert Cache(foreign).put("a" * 64, b"foreign")
    os.chmod(foreign, 0o755)
    os.chmod(foreign / ("a" * 64 + ".obj"), 0o644)
    os.setgid(65534)
    os.setuid(65534)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert Cache(foreign).get("a" * 64) is None
    assert "belongs to another user" in str(caught[0].message), caught
cache = Cache(mine)
assert cache.put("b" * 64, b"mine")
os.chmod(mine, 0o500)
os.utime(mine / ("b" * 64 + ".obj"), (0, 0))
with warnings.catch_warnings(record=True):
    warnings.simplefilter("always")
    assert cache.put("c" * 64, b"more") is False
    assert cache.get("b" * 64) == b"mine"  # reading goes on
    assert cache.clear() == 0
os.chmod(mine, 0o700)
assert cache.clear() == 1"""
    with tempfile.TemporaryDirectory() as root:
        os.chmod(root, 0o777)
        subprocess.run([sys.executable, "-c", code, root], check=True)


def test_a_file_that_cannot_be_read(cache, monkeypatch):
    cache.put(KEY, DATA)

    def fails(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", fails)
        assert os.strerror(errno.EIO) in warned(lambda: cache.get(KEY))
    assert cache.get(KEY) == DATA  # the disk recovered: a file that could not be looked at is not thrown away


def test_descriptors_do_not_leak(cache):
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("counts descriptors in /proc")
    before = len(os.listdir("/proc/self/fd"))
    cache.put(KEY, DATA)
    for content in (b"", b"junk", bytes(500)):
        damaged(cache, content)
    file_of(cache).mkdir()
    warned(lambda: cache.get(KEY))
    cache.entries()
    assert len(os.listdir("/proc/self/fd")) == before


# ---- size ----------------------------------------------------------------------------------------------------------


def age(cache: Cache, name: str, hours: float) -> None:
    then = time.time() - hours * HOUR
    os.utime(file_of(cache, name), (then, then))


def test_the_least_recently_used_go_first(tmp_path, silent):
    size = 1000
    cache = Cache(tmp_path / "cache", limit_bytes=10 * (HEADER + size))
    for n in range(10):
        assert cache.put(key(n), value(n, size))
        age(cache, key(n), 24 - n)
    assert len(cache.entries()) == 10  # exactly the limit
    assert cache.get(key(0)) == value(0, size)  # the oldest is now the newest
    assert cache.put(key(10), value(10, size))
    # To 80 %: 8 of 11 stay, and those that go were used least recently: 1, 2, 3.
    assert {entry.key for entry in cache.entries()} == {key(n) for n in (0, 4, 5, 6, 7, 8, 9, 10)}


def test_what_others_write_is_seen_in_time(tmp_path, silent):
    size = 1000
    limit = 32 * (HEADER + size)
    mine, other = Cache(tmp_path / "cache", limit), Cache(tmp_path / "cache", 10 * limit)
    assert mine.put(key("first"), value("first", size))
    for n in range(40):
        assert other.put(key(n), value(n, size))
    for n in range(3):  # a sixteenth of the limit is two of these
        assert mine.put(key(f"mine {n}"), value(n, size))
    assert mine.size() <= 0.8 * limit


def test_use_is_noted_once_an_hour(cache):
    cache.put(KEY, DATA)
    for hours, noted in ((0.5, False), (1.1, True), (24, True), (-0.5, False), (-24, True)):
        age(cache, KEY, hours)
        before = cache.entries()[0].last_used
        cache.get(KEY)
        after = cache.entries()[0].last_used
        assert (after != before) == noted
        if noted:
            assert abs(after - time.time()) < 60  # seconds that a busy machine may take between two lines


def test_a_value_over_the_limit_is_not_stored(tmp_path):
    cache = Cache(tmp_path / "cache", limit_bytes=HEADER + 1000)
    assert cache.put(KEY, value(KEY, 1000))
    assert "limit" in warned(lambda: cache.put(key(2), value(2, 1001)))
    assert [entry.key for entry in cache.entries()] == [KEY]


def test_the_newest_stays_even_if_it_fills_the_cache(tmp_path, silent):
    cache = Cache(tmp_path / "cache", limit_bytes=2000)
    cache.put(key(1), value(1, 500))
    age(cache, key(1), -100)  # a clock that was wrong
    assert cache.put(key(2), value(2, 1800))
    assert [entry.key for entry in cache.entries()] == [key(2)]


def test_what_dead_writers_left_is_swept(cache):
    cache.put(KEY, DATA)
    old, new = (cache.folder / f"{KEY}-1-{n:016x}.tmp" for n in range(2))
    for path, hours in ((old, 1.1), (new, 0.9)):
        path.write_bytes(b"half")
        os.utime(path, (time.time() - hours * HOUR,) * 2)
    Cache(cache.folder).put(KEY, DATA)  # as a new process does
    assert names(cache) == {f"{KEY}.obj", new.name}
    os.utime(new, (0, 0))
    assert cache.clear() == 1
    assert names(cache) == set()


# ---- many at once --------------------------------------------------------------------------------------------------

WORKER = """
import hashlib, sys, warnings
from pathlib import Path
from qddot.compiler.runtime.cache import Cache
warnings.simplefilter("error")
folder, worker, limit, rounds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
cache = Cache(folder, limit)
def key(name): return hashlib.sha256(str(name).encode()).hexdigest()
def value(name): return key(name).encode() * 300
hits = 0
print("ready", flush=True)
sys.stdin.readline()
for n in range(rounds):
    for name in (n % 7, f"{worker}/{n}"):
        found = cache.get(key(name))
        assert found in (None, value(name)), "a wrong value"
        hits += found is not None
        assert cache.put(key(name), value(name)), "not stored"
    found = cache.get(key((n + 3) % 7))
    assert found in (None, value((n + 3) % 7)), "a wrong value"
    if limit < 10**6 and n % 20 == 10:
        cache.clear()
print(hits)
"""


def work(folder: Path, limit: int, rounds: int) -> None:
    """Eight processes at once, started together."""
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(folder), str(n), str(limit), str(rounds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(8)
    ]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        worker.stdin.write("go\n")
        worker.stdin.flush()
    outcomes = [(worker.communicate()[0], worker.returncode) for worker in workers]
    assert all(code == 0 for _, code in outcomes), outcomes


def test_eight_processes(tmp_path):
    folder, rounds = tmp_path / "a" / "cache", 40
    work(folder, 10**9, rounds)
    cache = Cache(folder)
    for name in (*range(7), *(f"{w}/{n}" for w in range(8) for n in range(rounds))):
        assert cache.get(key(name)) == key(name).encode() * 300
    assert len(names(cache)) == 7 + 8 * rounds  # and no temporary file


def test_eight_processes_that_evict_and_clear(tmp_path):
    limit = 20 * (HEADER + 64 * 300)  # room for 20 of the 47 values that are written, of each worker
    work(tmp_path / "cache", limit, 40)
    assert Cache(tmp_path / "cache").size() <= limit * (1 + 8 / 16)  # each may write a sixteenth unseen by the others
    assert all(name.endswith(".obj") for name in names(Cache(tmp_path / "cache")))


def test_another_process_makes_the_folder_first(tmp_path, monkeypatch, silent):
    real = os.mkdir

    def late(path, mode):
        real(path, mode)  # the other process
        real(path, mode)

    monkeypatch.setattr(os, "mkdir", late)
    assert Cache(tmp_path / "a" / "b").put(KEY, DATA)


def test_sixteen_threads(cache, silent):
    start = threading.Barrier(16)

    def worker(w: int) -> int:
        start.wait()
        for n in range(25):
            for name in (n % 5, f"{w}/{n}"):
                assert cache.get(key(name)) in (None, value(name))
                assert cache.put(key(name), value(name))
                assert cache.get(key(name)) == value(name)
        return w

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(worker, range(16))) == 120
    assert len(cache.entries()) == 5 + 16 * 25
    assert len(names(cache)) == 5 + 16 * 25


def test_sixteen_threads_give_one_warning(tmp_path):
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file")
    start = threading.Barrier(16)

    def worker(n: int) -> None:
        start.wait()
        cache.put(key(n), DATA)

    def calls():
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(worker, range(16)))

    assert "is not a folder" in warned(calls)


def test_an_entry_that_goes_while_it_is_read(cache, monkeypatch, silent):
    cache.put(KEY, DATA)
    real = os.fstat

    def removes(descriptor):
        file_of(cache).unlink(missing_ok=True)
        return real(descriptor)

    monkeypatch.setattr(os, "fstat", removes)
    assert cache.get(KEY) in (None, DATA)
    monkeypatch.undo()
    assert cache.get(KEY) is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_goes_on(cache):
    """A child forked while other threads of its parent are busy with the cache is not stuck."""
    code = """
import os, sys, threading
from pathlib import Path
from qddot.compiler.runtime.cache import Cache
cache, stop = Cache(Path(sys.argv[1])), threading.Event()
def busy():
    while not stop.is_set():
        assert cache.put("a" * 64, b"data") and cache.get("a" * 64) == b"data"
threads = [threading.Thread(target=busy) for _ in range(4)]
for thread in threads: thread.start()
for n in range(20):
    child = os.fork()
    if child == 0:
        stored = cache.put("b" * 64, b"child") and cache.get("b" * 64) == b"child" and cache.get("a" * 64)
        os._exit(0 if stored else 1)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
for thread in threads: thread.join()"""
    subprocess.run([sys.executable, "-c", code, str(cache.folder)], check=True, timeout=60)


@posix
def test_a_writer_killed_before_the_last_step(cache):
    code = """
import os, sys, time
from pathlib import Path
from qddot.compiler.runtime.cache import Cache
def stuck(*_):
    print("stuck", flush=True)
    time.sleep(600)
os.replace = stuck
Cache(Path(sys.argv[1])).put("a" * 64, b"data")"""
    writer = subprocess.Popen([sys.executable, "-c", code, str(cache.folder)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout.readline() == "stuck\n"
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    (left,) = names(cache)
    assert left.endswith(".tmp")
    assert cache.get("a" * 64) is None
    assert cache.entries() == []
    os.utime(cache.folder / left, (0, 0))
    assert cache.put("a" * 64, b"data")
    assert names(cache) == {"a" * 64 + ".obj"}


@posix
@pytest.mark.parametrize("milliseconds", [0, 3, 11])
def test_a_writer_killed_anywhere(cache, milliseconds):
    code = """
import sys
from pathlib import Path
from qddot.compiler.runtime.cache import Cache
cache = Cache(Path(sys.argv[1]))
print("writing", flush=True)
while True:
    for n in range(4):
        cache.put(f"{n:064x}", bytes([n]) * 2_000_000)"""
    writer = subprocess.Popen([sys.executable, "-c", code, str(cache.folder)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout.readline() == "writing\n"
    time.sleep(milliseconds / 1000)
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    stored = [entry.key for entry in cache.entries()]
    for name in stored:
        assert cache.get(name) == bytes([int(name, 16)]) * 2_000_000
    assert not cache.folder.exists() or len(names(cache)) <= len(stored) + 1


# ---- where it is ---------------------------------------------------------------------------------------------------

PLACES = {
    "linux": ("linux", {"HOME": "/h"}, "/h/.cache/qddot/v1"),
    "xdg": ("linux", {"HOME": "/h", "XDG_CACHE_HOME": "/x"}, "/x/qddot/v1"),
    "xdg empty": ("linux", {"HOME": "/h", "XDG_CACHE_HOME": ""}, "/h/.cache/qddot/v1"),
    "xdg relative": ("linux", {"HOME": "/h", "XDG_CACHE_HOME": "x"}, "/h/.cache/qddot/v1"),
    "bsd": ("freebsd14", {"HOME": "/h"}, "/h/.cache/qddot/v1"),
    "mac": ("darwin", {"HOME": "/h", "XDG_CACHE_HOME": "/x"}, "/h/Library/Caches/qddot/v1"),
    "windows": ("win32", {"HOME": "/h", "LOCALAPPDATA": "/l"}, "/l/qddot/Cache/v1"),
    "windows bare": ("win32", {"HOME": "/h"}, "/h/AppData/Local/qddot/Cache/v1"),
    "named": ("linux", {"HOME": "/h", "XDG_CACHE_HOME": "/x", "QDDOT_CACHE_DIR": "/c"}, "/c/v1"),
    "named on windows": ("win32", {"LOCALAPPDATA": "/l", "QDDOT_CACHE_DIR": "/c"}, "/c/v1"),
    "named from home": ("linux", {"HOME": "/h", "QDDOT_CACHE_DIR": "~/c"}, "/h/c/v1"),
    "off": ("linux", {"HOME": "/h", "QDDOT_CACHE_DIR": ""}, None),
}


@posix
@pytest.mark.parametrize(("platform", "environment", "place"), PLACES.values(), ids=PLACES)
def test_the_default_folder(monkeypatch, platform, environment, place):
    for name in ("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA", "QDDOT_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setattr(sys, "platform", platform)
    assert default_folder() == (place and Path(place))
    assert Cache().folder == default_folder()


def test_a_relative_name_keeps_its_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QDDOT_CACHE_DIR", "here")
    assert default_folder() == tmp_path / "here" / "v1"


def test_no_home(monkeypatch):
    def unknown():
        raise RuntimeError

    monkeypatch.delenv("QDDOT_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    monkeypatch.setattr(Path, "home", unknown)
    assert default_folder() is None


def test_caching_off(monkeypatch, tmp_path, silent):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QDDOT_CACHE_DIR", "")
    cache = Cache()
    assert cache.put(KEY, DATA) is False
    assert (cache.get(KEY), cache.entries(), cache.size(), cache.clear()) == (None, [], 0, 0)
    assert os.listdir(tmp_path) == []


def test_one_default_cache_for_a_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("QDDOT_CACHE_DIR", str(tmp_path / "a"))
    first = default_cache()
    assert default_cache() is first
    assert first.limit_bytes == 512 * 2**20
    monkeypatch.setenv("QDDOT_CACHE_DIR", str(tmp_path / "b"))
    assert default_cache().folder == tmp_path / "b" / "v1"
    monkeypatch.setenv("QDDOT_CACHE_DIR", str(tmp_path / "a"))
    assert default_cache() is first


# ---- the command ---------------------------------------------------------------------------------------------------


@pytest.fixture
def command(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("QDDOT_CACHE_DIR", str(tmp_path / "cache"))
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    cache_command.arguments(parser)

    def run(*arguments):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", QddotWarning)  # as the command line does
            code = cache_command.run(parser.parse_args(arguments))
        return code, capsys.readouterr().out

    return run


def test_the_command_shows_and_clears(command, tmp_path):
    folder = str(tmp_path / "cache" / "v1")
    lines = f"folder   {folder}\nentries  0\nsize     0.0 KiB of 512.0 MiB\nkey      {os.environ['QDDOT_CACHE_KEY']}\n"
    assert command() == (0, lines)
    cache = default_cache()
    for n, size in enumerate((2 * 2**20, 2**19)):
        cache.put(key(n), value(n, size))
        os.utime(file_of(cache, key(n)), (10**9 + n, 10**9 + n))
    code, text = command()
    assert code == 0
    assert "entries  2\nsize     2.5 MiB of 512.0 MiB\n" in text
    assert text.index("2001-09-09") < text.index("(oldest)") < text.index("(newest)")
    code, text = command("--clear")
    assert code == 0
    assert "removed  2\nentries  0\n" in text
    assert cache.entries() == []


def test_the_command_as_json(command, tmp_path):
    cache = default_cache()
    cache.put(KEY, DATA)
    code, text = command("--json")
    report = json.loads(text)
    assert code == 0
    assert (report["folder"], report["entries"]) == (str(tmp_path / "cache" / "v1"), 1)
    assert (report["bytes"], report["limit_bytes"]) == (HEADER + len(DATA), 512 * 2**20)
    assert report["oldest_use"] == report["newest_use"] is not None
    assert report["trouble"] is None
    assert "removed" not in report
    code, text = command("--json", "--clear")
    report = json.loads(text)
    assert (code, report["removed"], report["entries"], report["oldest_use"]) == (0, 1, 0, None)


def test_the_command_says_what_is_wrong(command, tmp_path, monkeypatch):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "v1").write_text("")
    code, text = command("--clear")
    assert code == 1
    assert "is not a folder, so it is not used" in text
    assert "QDDOT_CACHE_DIR" in text
    assert json.loads(command("--json")[1])["trouble"] == "is not a folder"
    monkeypatch.setenv("QDDOT_CACHE_DIR", "")
    code, text = command()
    assert code == 0
    assert "caching is off" in text
    assert json.loads(command("--json")[1])["folder"] is None
