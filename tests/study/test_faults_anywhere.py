"""Faults on every engine that runs on this machine: whatever happens, the bytes are those of an undisturbed serial run."""

import random
import subprocess
import sys
import time

import numpy as np
import pytest

from qddot.errors import RecordingError
from tests.support.study_faults import (
    ONCE_OR_OFTEN,
    N,
    content,
    damage,
    driver,
    filled_up,
    finished,
    killed,
    killing,
    needs_proc,
    no_matter,
    poison,
    poisoned,
    ray_workers,
    small_disk,
    sweep,
)

pytestmark = pytest.mark.process
ENGINES = pytest.mark.parametrize("engine", ["local", "ray"], indirect=True)
OFTEN = pytest.mark.parametrize("repeats", ONCE_OR_OFTEN)
LOCAL_OR_OFTEN = pytest.mark.parametrize(  # on Ray it takes long, and differs in nothing but where pieces are computed
    ("engine", "repeats"),
    [
        ("local", 1),
        pytest.param("local", 20, marks=pytest.mark.slow),
        pytest.param("ray", 20, marks=pytest.mark.slow),
    ],
    indirect=["engine"],
)
POISONED = 5000  # samples


def address(engine):
    """Where another process finds the Ray of this one."""
    if engine != "ray":
        return {}
    import ray

    return {"address": ray.get_runtime_context().gcs_address}


def refusal(run):
    """What a run says that cannot write; nothing if it could."""
    try:
        run()
    except RecordingError as error:
        return str(error)
    return ""


@LOCAL_OR_OFTEN
def test_a_disk_that_fills_up_at_random(engine, repeats, expected, tmp_path):
    chance, refused = random.Random(5), 0
    for k in range(repeats):
        with small_disk(tmp_path / str(k), 256) as disk:
            for after in (0.0, chance.uniform(0.0, 3.0), chance.uniform(0.0, 3.0)):
                with filled_up(disk, after):
                    said = refusal(lambda where=disk / "s": sweep(where).run(engine, chunk=8))
                assert not said or ("the disk is full" in said and "make the same call to go on" in said)
                refused += bool(said)
            assert content(sweep(disk / "s").run(engine)) == expected
    assert refused >= repeats


@OFTEN
@ENGINES
def test_one_sample_in_a_thousand_raises(engine, repeats, tmp_path):
    for k in range(repeats):
        x, bad = poison(k, POISONED, [-1.0])
        serial = poisoned(tmp_path / f"{k} serial", x).run("serial")
        study = poisoned(tmp_path / f"{k} {engine}", x).run(engine, chunk=128)
        assert content(study) == content(serial)
        assert [(f.row, f.kind) for f in study.failures] == [(row, "raised") for row in bad]


@pytest.mark.slow
@pytest.mark.parametrize("repeats", [20])
@ENGINES
def test_one_sample_in_a_thousand_ends_its_process_or_hangs(engine, repeats, tmp_path):
    kinds = {-1.0: "raised", -2.0: "died", -3.0: "timeout"}
    for k in range(repeats):
        x, bad = poison(k, POISONED, list(kinds))
        serial = poisoned(tmp_path / f"{k} serial", np.where(x < 0.0, -1.0, x)).run("serial")
        study = poisoned(tmp_path / f"{k} {engine}", x, retries=0, batch=64).run(engine, chunk=64, timeout=2.0)
        assert [(f.row, f.kind) for f in study.failures] == [(row, kinds[x[row]]) for row in bad]
        assert study.results["root"].tobytes() == serial.results["root"].tobytes()


@LOCAL_OR_OFTEN
def test_damaged_pieces_are_computed_again(engine, repeats, expected, tmp_path):
    sweep(tmp_path / "s").run(engine, chunk=8)
    chance = random.Random(2)
    for _ in range(repeats):
        for name in ("twice.npy", "journal.jsonl"):
            damage(tmp_path / "s" / name, chance)
            with no_matter():
                study = sweep(tmp_path / "s").run(engine)
            assert content(study) == expected


@LOCAL_OR_OFTEN
def test_two_drivers_of_one_folder(engine, repeats, expected, tmp_path):
    """One of them computes; the other is refused, or comes when all is done."""
    chance, refused = random.Random(6), 0
    for k in range(repeats):
        first = driver(tmp_path / str(k), engine=engine, **address(engine))
        time.sleep(chance.uniform(0.0, 1.0 if k else 0.0))
        second = driver(tmp_path / str(k), engine=engine, **address(engine))
        assert len(sweep(tmp_path / str(k)).results) == N  # reading is allowed
        said = [finished(first), finished(second)]
        assert "" in said
        assert all(not text or "another process is recording" in text for text in said), said
        refused += sum(map(bool, said))
        assert content(sweep(tmp_path / str(k))) == expected
    assert refused >= repeats // 2


@needs_proc
@OFTEN
def test_workers_of_ray_killed_at_random(ray, repeats, expected, tmp_path):
    chance = random.Random(3)
    for k in range(repeats):
        with killing(ray_workers, chance, (0.3, 0.8)) as kills:
            study = sweep(tmp_path / str(k)).run("ray", chunk=16)
        assert content(study) == expected
    assert kills


@needs_proc
@pytest.mark.slow  # a minute each
@pytest.mark.parametrize("repeats", [20])
def test_drivers_on_ray_killed_at_random(repeats, expected, tmp_path):
    """Each starts a cluster of its own, which ends with it: Ray's agents may first ask for a minute for its dead server."""
    pytest.importorskip("ray", reason="needs Ray: pip install 'qddot[ray]'")
    chance, kills = random.Random(1), 0
    for k in range(repeats):
        process = driver(tmp_path / str(k), engine="ray", chunk=8)
        kills += killed(process, chance.uniform(1.0, 6.0), leave=120.0)
        assert not finished(driver(tmp_path / str(k), engine="ray"))
        assert content(sweep(tmp_path / str(k))) == expected
    assert kills >= repeats // 2


RAYLET = """
import os, signal, sys, threading, time
import ray
from tests.support.study_faults import children, command_line, sweep
ray.init(include_dashboard=False, _node_ip_address="127.0.0.1", num_cpus=2, log_to_driver=False, configure_logging=False)
def kill():
    time.sleep(float(sys.argv[2]))
    for pid in children(os.getpid()):
        if b"raylet" in command_line(pid)[0]:
            print(pid, flush=True)
            os.kill(pid, signal.SIGKILL)
threading.Thread(target=kill, daemon=True).start()
sweep(sys.argv[1]).run("ray", chunk=8)
"""


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("repeats", [20])
def test_a_raylet_killed_ends_the_driver_and_nothing_is_lost(repeats, expected, tmp_path):
    pytest.importorskip("ray", reason="needs Ray: pip install 'qddot[ray]'")
    chance, kills = random.Random(4), 0
    for k in range(repeats):
        command = [sys.executable, "-c", RAYLET, str(tmp_path / str(k)), f"{chance.uniform(0.3, 3.0):.2f}"]
        kills += bool(subprocess.run(command, capture_output=True, timeout=180).stdout)
        engine = "ray" if k % 2 else "serial"
        assert not finished(driver(tmp_path / str(k), engine=engine, workers=None))
        assert content(sweep(tmp_path / str(k))) == expected
    assert kills >= repeats // 2
