"""Ray and Dask: the same bits as here, failures listed alike, and everything that was started is stopped."""

import os
import random
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from qddot.errors import MissingExtraError
from tests.study.test_faults import REPEATS, children, content, expected, needs_proc, poisoned, sweep

__all__ = ["expected"]  # a fixture
pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def ray():
    module = pytest.importorskip("ray", reason="needs Ray: pip install 'qddot[ray]'")
    if module.is_initialized():
        pytest.skip("somebody else's Ray is running in this process")
    options = {"include_dashboard": False, "_node_ip_address": "127.0.0.1", "num_cpus": 2, "log_to_driver": False}
    module.init(configure_logging=False, **options)
    yield module
    module.shutdown()


@pytest.mark.parametrize("name", ["ray", "dask"])
def test_an_engine_that_is_not_there_names_its_extra(name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, {"ray": "ray", "dask": "distributed"}[name], None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'qddot\[{name}\]'"):
        sweep(tmp_path / "s").run(name)
    assert not sweep(tmp_path / "s").results.done.any()


def test_ray_gives_the_same_bits(ray, expected, tmp_path):
    assert content(sweep(tmp_path / "s").run("ray")) == expected
    assert ray.is_initialized()  # it was there before


def test_ray_lists_failures_alike(ray, tmp_path):
    x = np.random.default_rng(0).uniform(size=12)
    x[[3, 7, 11]] = [-2.0, -3.0, -1.0]
    study = poisoned(tmp_path / "s", x, retries=0, batch=1).run("ray", timeout=1.0, chunk=2)
    found = {f.row: (f.kind, f.reason) for f in study.failures}
    assert found == {
        3: ("died", "its worker died"),
        7: ("timeout", "it takes longer than 1 s"),
        11: ("raised", "ValueError: 1 of them must not be -1"),
    }
    fine = np.delete(np.arange(12), list(found))
    assert np.array_equal(study.results["root"][fine], np.sqrt(x[fine]))


def ray_workers():
    """Processes of Ray that compute, anywhere below this one."""
    found, waiting = [], [os.getpid()]
    while waiting:
        for child in children(waiting.pop()):
            waiting.append(child)
            try:
                with open(f"/proc/{child}/cmdline", "rb") as file:
                    if b"ray::_Worker" in file.read():
                        found.append(child)
            except OSError:
                continue
    return found


@needs_proc
@pytest.mark.parametrize("repeats", [1, *REPEATS[1:]])
def test_workers_of_ray_killed_at_random(ray, repeats, expected, tmp_path):
    chance, kills = random.Random(3), []
    for k in range(repeats):
        over = threading.Event()

        def kill(over=over):
            while not over.wait(chance.uniform(0.3, 0.8)):
                for pid in ray_workers()[:1]:
                    os.kill(pid, signal.SIGKILL)
                    kills.append(pid)

        thread = threading.Thread(target=kill)
        thread.start()
        try:
            study = sweep(tmp_path / str(k)).run("ray", chunk=16)
        finally:
            over.set()
            thread.join()
        assert content(study) == expected
    assert kills


RAYLET = """
import os, random, signal, subprocess, sys, threading, time
import ray
from tests.study.test_faults import children, sweep
ray.init(include_dashboard=False, _node_ip_address="127.0.0.1", num_cpus=2, log_to_driver=False, configure_logging=False)
def kill():
    time.sleep(float(sys.argv[2]))
    for pid in children(os.getpid()):
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            if b"raylet" in file.read().split(b"\\0")[0]:
                os.kill(pid, signal.SIGKILL)
threading.Thread(target=kill, daemon=True).start()
sweep(sys.argv[1]).run("ray", chunk=8)
"""


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("repeats", [20])
def test_a_raylet_killed_ends_the_driver_and_nothing_is_lost(repeats, expected, tmp_path):
    pytest.importorskip("ray", reason="needs Ray: pip install 'qddot[ray]'")
    chance = random.Random(4)
    for k in range(repeats):
        command = [sys.executable, "-c", RAYLET, str(tmp_path / str(k)), f"{chance.uniform(0.5, 4.0):.2f}"]
        subprocess.run(command, capture_output=True, timeout=180)
        assert content(sweep(tmp_path / str(k)).run("serial")) == expected


def test_dask_gives_the_same_bits(expected, tmp_path):
    pytest.importorskip("distributed", reason="needs Dask: pip install 'qddot[dask]'")
    assert content(sweep(tmp_path / "s").run("dask", workers=2)) == expected


@pytest.mark.slow
def test_dask_lists_failures_alike(tmp_path):
    pytest.importorskip("distributed", reason="needs Dask: pip install 'qddot[dask]'")
    x = np.random.default_rng(0).uniform(size=40)
    x[[3, 31]] = [-2.0, -1.0]
    study = poisoned(tmp_path / "s", x, retries=0, batch=4).run("dask", workers=2)
    assert {f.row: f.kind for f in study.failures} == {3: "died", 31: "raised"}
