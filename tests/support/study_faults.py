"""A study that takes a second, what is left of it, and the processes that work at it: for tests that attack them."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest

import qddot
from qddot.errors import QddotWarning
from qddot.study import Uniform
from tests.support import study_functions as functions

N = 400
REPEATS = [pytest.param(2), pytest.param(20, marks=pytest.mark.slow)]
ONCE_OR_OFTEN = [pytest.param(1), pytest.param(20, marks=pytest.mark.slow)]
needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="finds processes in /proc")


def sweep(directory, **options):
    """50 blocks of 20 ms."""
    space = {"x": Uniform(0.0, 1.0)}
    return qddot.Study(None, space, functions.slow, samples=N, directory=directory, **{"batch": 8, **options})


def poisoned(directory, values, **options):
    """A study of which some samples raise (-1), end their process (-2), take for ever (-3) or all memory (-4)."""
    return qddot.Study(None, {"x": values}, functions.poisoned, directory=directory, **{"batch": 16, **options})


def content(study):
    """The bytes of what a finished study has left."""
    assert study.results.done.all()
    return {p.name: p.read_bytes() for p in study.directory.iterdir() if p.suffix == ".npy" or p.name == "failures.json"}


# ---- processes


def children(pid):
    """The processes that a process has started."""
    out = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as file:
                    if int(file.read().rpartition(")")[2].split()[1]) == pid:
                        out.append(int(name))
            except (OSError, ValueError):
                continue
    return out


def descendants(pid):
    """Those, and what they have started."""
    found, waiting = [], [pid]
    while waiting:
        for child in children(waiting.pop()):
            waiting.append(child)
            found.append(child)
    return found


def command_line(pid):
    """The words of a process's command; none if it is gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def worker_processes(pid):
    """The workers that a driver on this machine has started."""
    return [p for p in children(pid) if b"qddot.study.worker" in command_line(p)]


def ray_workers():
    """The processes of Ray below this one that compute."""
    return [p for p in descendants(os.getpid()) if any(b"ray::_Worker" in word for word in command_line(p))]


def is_gone(pid):
    """Whether a process has ended, waited for or not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def listening(pid):
    """Where a process listens: addresses of IPv4, or of IPv6 that stand for them, and ports."""
    inodes, places = set(), set()
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                inodes.add(os.readlink(f"/proc/{pid}/fd/{name}").removeprefix("socket:[").removesuffix("]"))
    for table in ("tcp", "tcp6"):
        with open(f"/proc/net/{table}", encoding="ascii") as file:
            for words in map(str.split, list(file)[1:]):
                host, _, port = words[1].partition(":")
                if words[3] == "0A" and words[9] in inodes:  # it listens
                    part = bytes.fromhex(host[-8:])[::-1]
                    places.add((".".join(map(str, part)), int(port, 16)))
    return places


DRIVER = """
import json, sys
from tests.support.study_faults import sweep
study, options = json.loads(sys.argv[2]), json.loads(sys.argv[3])
sweep(sys.argv[1], **study).run(**options)
"""


def driver(directory, prefix=(), study=None, environment=None, **options):
    """The study in a process of its own."""
    words = [json.dumps(study or {}), json.dumps({"workers": 2, "chunk": 16, **options})]
    command = [*prefix, sys.executable, "-c", DRIVER, str(directory), *words]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)


def killed(process, seconds, leave=30.0):
    """Waits, and kills the process if it still runs; whether it did. What it has started ends within `leave` seconds."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        below = descendants(process.pid)
        process.kill()
        process.wait()
        begin = time.monotonic()
        while left := [p for p in below if not is_gone(p)]:
            assert time.monotonic() - begin < leave, f"outlives its driver: {[command_line(p)[:3] for p in left]}"
            time.sleep(0.05)
        return True
    finally:
        process.stderr.close()
    return False


def finished(process):
    """Waits until a driver has ended; what it says if it has failed."""
    _, errors = process.communicate(timeout=300)
    return "" if process.returncode == 0 else errors or "failed"


@contextlib.contextmanager
def killing(find, chance, between):
    """Kills one of the processes that `find` gives again and again, after random times; gives the list of the killed."""
    over, kills = threading.Event(), []

    def kill():
        while not over.wait(chance.uniform(*between)):
            if found := find():
                victim = chance.choice(found)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                    kills.append(victim)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield kills
    finally:
        over.set()
        thread.join()


# ---- disks


@contextlib.contextmanager
def small_disk(folder, kilobytes):
    """A file system of so many kB, mounted there; the test is skipped where that cannot be done."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("a small file system is mounted by root only")
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "qddot-test", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a file system cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@contextlib.contextmanager
def filled_up(disk, after):
    """Fills a disk to the last byte from a moment on, and frees it at the end."""
    over = threading.Event()

    def fill():
        if over.wait(after):
            return
        with open(disk / "filler", "wb", buffering=0) as file:
            while not over.wait(0.005):  # what the study frees meanwhile is taken as well
                with contextlib.suppress(OSError):
                    while not over.is_set():
                        file.write(bytes(1024))

    thread = threading.Thread(target=fill)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        (disk / "filler").unlink(missing_ok=True)


def damage(path, chance):
    """Flips a bit of a file, behind what is its head."""
    data = bytearray(path.read_bytes())
    data[chance.randrange(200, len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


@contextlib.contextmanager
def no_matter():
    """A flipped bit of the journal may make a line unreadable, or a receipt that does not fit: no warning is certain."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", QddotWarning)
        yield


def poison(seed, count, kinds):
    """Values of so many samples, one in a thousand of them bad, and which those are."""
    rng, chance = np.random.default_rng(seed), random.Random(seed)
    x = rng.uniform(size=count)
    bad = sorted(chance.sample(range(count), count // 1000))
    x[bad] = [kinds[k % len(kinds)] for k in range(len(bad))]
    return x, bad
