"""Threads and fork(): a child forked at any moment can compile, and threads do not spoil each other's kernels."""

import ctypes.util
import functools
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import qddot
from qddot.compiler.runtime import forks, llvm_compile
from qddot.compiler.runtime import threads as pool
from qddot.dynamics import pipeline

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

HEAD = """
import functools, os, sys, threading, time, warnings
import numpy as np
os.environ["QDDOT_CACHE_DIR"] = ""
import qddot

def finish(child, seconds=60):
    end = time.time() + seconds
    while time.time() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return "hangs"

def in_child(work):
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    return finish(child)
"""


def run(code: str, **environment: str) -> str:
    """What a process of its own prints; it has to be done in time."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", HEAD + code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


COMPILE = """
def compiled(n):
    kernel = qddot.chain(n, rng=n).kernel("gravity_force", lanes=1)
    assert np.isfinite(kernel(np.linspace(0.1, 0.9, n))).all()

stop, done = threading.Event(), []
def busy(first):
    n = first
    while not stop.is_set():
        compiled(2 + n % 5)
        done.append(n)
        n += 1
"""


def test_a_child_forked_while_threads_compile_compiles():
    out = run(
        COMPILE
        + """
threads = [threading.Thread(target=busy, args=(k,)) for k in range(2)]
for thread in threads: thread.start()  # they begin by loading LLVM
results = []
for k in range(16):
    time.sleep(0.004 * k)
    results.append(in_child(lambda: compiled(2)))
stop.set()
for thread in threads: thread.join()
print(results.count(0), len(done) > 3, [r for r in results if r])
"""
    )
    assert out == "16 True []\n"


def test_a_child_forked_while_threads_simulate_simulates():
    """Kernels of laws, the loops of time, threads, and properties that are computed once."""
    out = run("""
def simulated(gain):
    robot = qddot.load("double_pendulum")
    run = robot.simulate(np.ones((8, 2)), np.zeros((8, 2)), lambda t, q, v: -gain * v, dt=1e-3, steps=3)
    assert np.isfinite(run.q).all() and np.isfinite(run["tau"]).all()

stop = threading.Event()
def busy(k):
    gain = k
    while not stop.is_set():
        simulated(gain + 0.125)
        gain += 1

threads = [threading.Thread(target=busy, args=(100 * k,)) for k in range(2)]
for thread in threads: thread.start()
results = []
for k in range(6):
    time.sleep(0.02 * k)
    results.append(in_child(lambda: simulated(k + 0.5)))
stop.set()
for thread in threads: thread.join()
print(results.count(0), [r for r in results if r])
""")
    assert out == "6 []\n"


def test_a_child_forked_while_threads_divide_batches_divides_them():
    out = run("""
qddot.set_num_threads(4)
kernel = qddot.load("puma560").kernel("inverse_dynamics")
kernel._batches.operations, kernel._batches.one_thread = 10**6, 1
q = np.random.default_rng(0).standard_normal((40, 6))
expected, stop = kernel.ufunc(q, q, q), threading.Event()
def batches(times):
    for _ in range(times):
        assert np.array_equal(kernel(q, q, q), expected)
def busy():
    while not stop.is_set():
        batches(10)
threads = [threading.Thread(target=busy) for _ in range(3)]
for thread in threads: thread.start()
results = []
for k in range(30):
    time.sleep(0.002)
    results.append(in_child(lambda: batches(5)))
stop.set()
for thread in threads: thread.join()
print(results.count(0), [r for r in results if r])
""")
    assert out == "30 []\n"


def test_a_fork_by_the_thread_that_compiles():
    """As a signal handler may: the lock is this thread's own, so there is nobody to wait for."""
    out = run(
        COMPILE
        + """
from qddot.compiler.runtime import llvm_compile as machine
with machine.llvm_lock:
    print(in_child(lambda: compiled(3)))
compiled(2)
"""
    )
    assert out == "0\n"


@pytest.mark.parametrize("module", ["qddot.dynamics.loop_tracing", "llvmlite.binding", "numpy.random"])
def test_a_child_forked_while_a_module_is_imported_imports_it(module):
    """Much is imported when it is first used, parts of NumPy too; a thread may be at it."""
    out = run(f"""
import importlib.abc
importing, go_on = threading.Event(), threading.Event()
class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "{module}":
            importing.set()
            go_on.wait(20)
        return None
sys.meta_path.insert(0, Slow())
assert "{module}" not in sys.modules
thread = threading.Thread(target=lambda: __import__("{module}"))
thread.start()
assert importing.wait(20)
threading.Timer(0.3, go_on.set).start()
print(in_child(lambda: __import__("{module}")))
thread.join()
""")
    assert out == "0\n"


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="cached properties have no lock any more")
def test_a_child_forked_while_a_cached_property_is_computed_computes_it():
    out = run("""
from qddot.mechanism.model import Model
name = next(n for n, x in vars(Model).items() if isinstance(x, functools.cached_property))
taken, go_on = threading.Event(), threading.Event()
def hold():
    with vars(Model)[name].lock:  # as the property does while it computes
        taken.set()
        go_on.wait(60)
threading.Thread(target=hold).start()
assert taken.wait(20)
model = qddot.load("scara").model
print(in_child(lambda: getattr(model, name)))
go_on.set()
""")
    assert out == "0\n"


def test_forks_leave_all_locks_free():
    for _ in range(3):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    assert forks._held == []
    free = []

    def look():
        for lock in forks._guarded:
            free.append(lock.acquire(blocking=False))
            if free[-1]:
                lock.release()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert free == [True] * len(forks._guarded)


def test_every_lock_is_guarded():
    """The locks that modules have, found by looking."""
    kind = type(threading.RLock()), type(threading.Lock())
    for name, module in list(sys.modules.items()):
        if name.startswith("qddot."):
            for variable, x in vars(module).items():
                if isinstance(x, kind) and (name, variable) != (
                    "qddot.compiler.runtime.cache",
                    "_said",
                ):  # it is never waited for
                    assert any(x is lock for lock in forks._guarded), f"{name}.{variable} is not in forks._guarded"
    assert {id(llvm_compile.llvm_lock), id(llvm_compile._system_lock), id(pool._executor_lock)} <= set(
        map(id, forks._guarded)
    )


# ---- threads -----------------------------------------------------------------------------------------------------------


def test_threads_share_the_newest_code(monkeypatch):
    """Many threads look up and keep code of which only one piece fits: what they get is what they kept."""
    monkeypatch.setattr(pipeline, "MAX_KEPT", 1)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    kept, wrong = pipeline._Newest(), []

    def work(k):
        try:
            for n in range(5000):
                key = str((k + n) % 3)
                if kept.keep(key, key) != key or kept.get(key) not in (None, key):
                    wrong.append(key)
        except Exception as error:
            wrong.append(repr(error))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert wrong == []
    assert len(kept) == 1


def test_laws_in_threads_with_little_room(monkeypatch):
    """Simulations of laws that push each other's code out."""
    monkeypatch.setattr(pipeline, "MAX_KEPT", 1)
    monkeypatch.setattr(pipeline, "_loops", pipeline._Newest())
    monkeypatch.setattr(pipeline, "_kernels", pipeline._Newest())
    robot, wrong = qddot.load("double_pendulum"), []

    def law(gain, t, q, v):
        return -gain * v

    def simulated(gain):
        run = robot.simulate(np.ones(2), np.ones(2), functools.partial(law, gain), dt=1e-3, steps=5)
        return np.concatenate([run.q[-1], run["tau"][-1]])

    expected = [simulated(float(k)) for k in range(3)]

    def work(k):
        try:
            for n in range(8):
                if not np.array_equal(simulated(float((k + n) % 3)), expected[(k + n) % 3]):
                    wrong.append((k, n))
        except Exception as error:
            wrong.append(repr(error))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_first_kernels_of_two_threads_have_one_environment(monkeypatch):
    """Kernels have its address, so that a second one, which nobody keeps, would leave them with a dangling one."""
    real = ctypes.util.find_library

    def slow(name):
        time.sleep(0.05)
        return real(name)

    monkeypatch.setattr(ctypes.util, "find_library", slow)
    monkeypatch.setattr(llvm_compile, "_library", None)
    found = []
    threads = [threading.Thread(target=lambda: found.append(llvm_compile.library_functions())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 1
