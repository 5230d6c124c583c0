"""Threads without Python: the same bits, busy or not, without threads, without memory; idle, at exit, with signals."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import qddot
from qddot.compiler.runtime import llvm_compile, thread_pool

pytestmark = pytest.mark.skipif(not thread_pool.available(), reason="this system has no POSIX threads")

LARGE = 40_000  # states, many times what one thread gets


@pytest.fixture
def four_threads():
    before = qddot.get_num_threads()
    qddot.set_num_threads(4)
    yield
    qddot.set_num_threads(before)


@pytest.fixture
def jobs(monkeypatch):
    """Counts the jobs of the pool: that a test is about it."""
    done, run = [], thread_pool._Pool.run
    monkeypatch.setattr(thread_pool._Pool, "run", lambda *args: done.append(1) or run(*args))
    return done


def states(robot, count):
    rng = np.random.default_rng(0)
    return [rng.standard_normal((count, robot.nv)) for _ in range(3)]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["inverse_dynamics", "mass_matrix"])
def test_any_number_of_threads_gives_the_same_bits(four_threads, jobs, name, dtype):
    robot = qddot.load("puma560")
    kernel = robot.kernel(name, dtype=dtype)
    for count in (LARGE, LARGE + 1, LARGE + 13):
        x = [a.astype(dtype) for a in states(robot, count)][: len(kernel.inputs)]
        shared = [x[0], *(a[0] for a in x[1:])]  # all states share the other inputs
        for given in (x, shared, [a[::2] for a in x], [a[::-1] for a in x]):
            before = len(jobs)
            assert np.array_equal(kernel(*given), kernel.ufunc(*given))
            assert len(jobs) == before + 1


def test_long_results_are_streamed_by_chunks_of_any_alignment(four_threads, jobs):
    robot = qddot.load("quadruped")
    kernel = robot.kernel("mass_matrix")
    q = np.stack([robot.random_state(k)[0] for k in range(50)])[np.arange(9001) % 50]
    expected = kernel.ufunc(q)
    environment = llvm_compile.library_functions()
    before, environment[9] = environment[9], 0
    try:
        for first in range(8):
            memory = np.full(expected.size + 20, 7.0)
            out = memory[first : first + expected.size].reshape(expected.shape)
            kernel(q, out=out)
            assert np.array_equal(out, expected)
            assert (memory[:first] == 7.0).all()
            assert (memory[first + expected.size :] == 7.0).all()
    finally:
        environment[9] = before
    assert len(jobs) == 8


def test_arrays_that_are_not_as_kernels_take_them_are_computed_all_the_same(four_threads, jobs):
    robot = qddot.load("puma560")
    kernel, (q, v, a) = robot.kernel("inverse_dynamics"), states(robot, LARGE)
    expected = kernel.ufunc(q, v, a)
    unaligned = np.frombuffer(b"x" + q.tobytes(), np.uint8)[1:].view(np.float64).reshape(q.shape)
    for other in (q.tolist(), q.astype(">f8"), unaligned):
        assert np.array_equal(kernel(other, v, a), expected)
    both = np.stack([q, q])
    assert np.array_equal(kernel(both, v, a), np.stack([expected, expected]))
    assert not jobs
    out = np.empty((LARGE + 5, 6))
    q2 = out[5:]
    q2[...] = q
    assert np.array_equal(kernel(q2, v, a, out=out[:-5]), expected)  # where each row overlaps another state's input
    assert not jobs


def test_a_system_that_gives_no_threads(four_threads, monkeypatch):
    monkeypatch.setattr(thread_pool, "_pool", None)
    monkeypatch.setattr(thread_pool._Pool, "_start", lambda self: False)
    robot = qddot.load("puma560")
    kernel, x = robot.kernel("inverse_dynamics"), states(robot, LARGE)
    assert np.array_equal(kernel(*x), kernel.ufunc(*x))


def test_several_callers_at_once(four_threads):
    robot = qddot.load("puma560")
    kernel, x = robot.kernel("forward_dynamics"), states(robot, LARGE)
    expected, wrong = kernel.ufunc(*x), []

    def work():
        wrong.extend(1 for _ in range(20) if not np.array_equal(kernel(*x), expected))

    callers = [threading.Thread(target=work) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_idle_threads_use_no_processor(four_threads):
    robot = qddot.load("puma560")
    robot.kernel("inverse_dynamics")(*states(robot, LARGE))
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.1


def run(code, **options):
    command = [sys.executable, "-c", textwrap.dedent(code)]
    path = os.pathsep.join(sys.path)
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}, **options)


BATCHES = """
    import numpy as np, qddot, sys, time
    qddot.set_num_threads(4)
    robot = qddot.load("puma560")
    kernel, x = robot.kernel("inverse_dynamics"), np.zeros((40_000, 6))
    kernel(x, x, x)
    print("ready", flush=True)
"""


def test_the_process_ends_with_its_threads():
    process = run(BATCHES)
    assert process.communicate(timeout=60) == ("ready\n", None)
    assert process.returncode == 0


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_interruptions_reach_the_caller():
    code = "    try:\n        while True:\n            kernel(x, x, x)\n"
    code += "    except KeyboardInterrupt:\n        print('stopped')\n"
    process = run(BATCHES + code)
    assert process.stdout.readline() == "ready\n"
    for _ in range(20):  # Python ignores one that comes in the middle of a `__del__`, as that of results is
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=3)
            break
    assert process.communicate(timeout=60) == ("stopped\n", None)
    assert process.returncode == 0
