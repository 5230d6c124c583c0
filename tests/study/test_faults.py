"""Studies under attack: whatever is killed, filled or damaged, the results are those of an undisturbed serial run."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import qddot
from qddot.errors import QddotWarning, RecordingError, StudyError
from qddot.study import Uniform
from qddot.study.merge import merge
from tests.support import study_functions as functions

pytestmark = pytest.mark.process
N = 400
REPEATS = [pytest.param(2), pytest.param(20, marks=pytest.mark.slow)]


def sweep(directory, **options):
    space = {"x": Uniform(0.0, 1.0)}
    return qddot.Study(None, space, functions.slow, samples=N, batch=8, directory=directory, **options)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return content(sweep(tmp_path_factory.mktemp("serial") / "s").run("serial"))


def content(study):
    """The bytes of what a finished study has left."""
    assert study.results.done.all()
    return {p.name: p.read_bytes() for p in study.directory.iterdir() if p.suffix == ".npy" or p.name == "failures.json"}


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


def worker_processes(pid):
    found = []
    for child in children(pid):
        try:
            with open(f"/proc/{child}/cmdline", "rb") as file:
                if b"qddot.study.worker" in file.read():
                    found.append(child)
        except OSError:
            continue
    return found


needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="finds processes in /proc")


# ---- samples that are bad


def poisoned(directory, values, **options):
    return qddot.Study(None, {"x": values}, functions.poisoned, directory=directory, **{"batch": 16, **options})


@pytest.mark.parametrize("engine", ["serial", "local"])
def test_samples_that_raise_are_listed_and_the_others_have_results(engine, tmp_path):
    x = np.random.default_rng(0).uniform(size=3000)
    bad = [5, 1000, 2001, 2999]
    x[bad] = -1.0
    study = poisoned(tmp_path / "s", x).run(engine)
    assert [f.row for f in study.failures] == bad
    assert {(f.kind, f.reason) for f in study.failures} == {("raised", "ValueError: 1 of them must not be -1")}
    fine = np.delete(np.arange(3000), bad)
    assert np.array_equal(study.results["root"][fine], np.sqrt(x[fine]))
    assert np.isnan(study.results["root"][bad]).all()
    listed = json.loads((tmp_path / "s" / "failures.json").read_text())
    assert [f["row"] for f in listed] == bad


def test_samples_that_die_hang_or_take_all_memory(tmp_path):
    x = np.random.default_rng(0).uniform(size=40)
    x[[3, 17, 30, 31]] = [-2.0, -3.0, -4.0, -1.0]
    kept = poisoned(tmp_path / "s", x, retries=1, batch=4).run(workers=2, timeout=1.0)
    found = {f.row: (f.kind, f.reason) for f in kept.failures}
    assert found == {
        3: ("died", "its worker died (exit code 3)"),
        17: ("timeout", "it takes longer than 1 s"),
        30: ("raised", found[30][1]),
        31: ("raised", "ValueError: 1 of them must not be -1"),
    }
    assert "MemoryError" in found[30][1]
    fine = np.delete(np.arange(40), list(found))
    assert np.array_equal(kept.results["root"][fine], np.sqrt(x[fine]))


def test_rollouts_that_diverge_or_cannot_begin(tmp_path):
    arm = qddot.chain(2, rng=0)
    v0 = np.zeros((50, 2))
    v0[[7, 20]] = 1e160  # squares overflow
    q0 = np.zeros((50, 2))
    q0[30] = np.nan
    study = qddot.Study(arm, {"q0": q0, "v0": v0}, {"e": "max:energy"}, dt=1e-3, steps=10, directory=tmp_path / "s")
    study.run("serial")
    assert {f.row: f.kind for f in study.failures} == {7: "diverged", 20: "diverged", 30: "diverged"}
    assert "t = " in study.failures[0].reason
    assert np.isfinite(np.delete(study.results["e"], [7, 20, 30])).all()


def test_a_study_in_which_everything_fails_is_stopped(tmp_path):
    study = poisoned(tmp_path / "s", np.full(1000, -1.0))
    with pytest.raises(StudyError, match="must not be -1"):
        study.run("serial")
    assert not study.results.done.any()  # nothing is held against the samples
    few = poisoned(tmp_path / "few", np.full(3, -1.0)).run("serial")
    assert len(few.failures) == 3
    assert len(few.results) == 3


def test_failed_samples_once_more(tmp_path, monkeypatch):
    x = np.array([1.0, -1.0, 4.0])
    study = poisoned(tmp_path / "s", x).run("serial")
    assert [f.row for f in study.failures] == [1]
    work = study.plan.work
    monkeypatch.setattr(work, "function", lambda robot, values: {"root": abs(values["x"])})
    monkeypatch.setattr(type(study), "identity", json.loads((tmp_path / "s" / "study.json").read_text())["identity"])
    study.run("serial")
    assert len(study.failures) == 1
    study.run("serial", retry_failed=True)
    assert study.failures == []
    assert study.results["root"].tolist() == [1.0, 1.0, 2.0]


# ---- processes that are killed


@needs_proc
@pytest.mark.parametrize("repeats", REPEATS)
def test_workers_killed_at_random(repeats, expected, tmp_path):
    chance = random.Random(0)
    for k in range(repeats):
        over = threading.Event()

        def kill(over=over):
            while not over.wait(chance.uniform(0.4, 1.2)):
                found = worker_processes(os.getpid())
                if found:
                    os.kill(chance.choice(found), signal.SIGKILL)

        thread = threading.Thread(target=kill)
        thread.start()
        try:
            study = sweep(tmp_path / str(k)).run(workers=2, chunk=16)
        finally:
            over.set()
            thread.join()
        assert content(study) == expected


DRIVER = """
import sys
from tests.study.test_faults import sweep
sweep(sys.argv[1]).run(workers=2, chunk=int(sys.argv[2]))
"""


def driver(directory, chunk=16, **options):
    command = [sys.executable, "-c", DRIVER, str(directory), str(chunk)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)


@needs_proc
@pytest.mark.parametrize("repeats", [1, *REPEATS[1:]])
def test_drivers_killed_at_random(repeats, expected, tmp_path):
    chance = random.Random(1)
    for k in range(repeats):
        kills = 0
        while True:
            process = driver(tmp_path / str(k))
            try:
                process.wait(chance.uniform(1.0, 2.5) if kills < 3 else 120.0)
            except subprocess.TimeoutExpired:
                workers = worker_processes(process.pid)
                process.kill()
                process.wait()
                kills += 1
                begin = time.monotonic()
                while any(os.path.isdir(f"/proc/{w}") and not is_zombie(w) for w in workers):
                    assert time.monotonic() - begin < 10.0, "a worker outlives its driver"
                    time.sleep(0.05)
                continue
            finally:
                process.stderr.close()
            break
        assert process.returncode == 0
        assert content(sweep(tmp_path / str(k))) == expected


def is_zombie(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_second_driver_is_refused(expected, tmp_path):
    first = driver(tmp_path / "s")
    begin = time.monotonic()
    while not (tmp_path / "s" / "journal.jsonl").exists():
        assert time.monotonic() - begin < 60.0
        time.sleep(0.05)
    with pytest.raises(RecordingError, match="another process"):
        sweep(tmp_path / "s").run("serial")
    assert len(sweep(tmp_path / "s").results) == N  # reading is allowed
    _, errors = first.communicate(timeout=120)
    assert first.returncode == 0, errors
    assert content(sweep(tmp_path / "s")) == expected


# ---- disks that are full, and files that are damaged


@pytest.mark.parametrize("limit", [100, 2000, 6000])
def test_a_disk_that_is_full(limit, expected, tmp_path):
    """A limit on the size of files stands for it: writes fail in the same way, in the middle of a file."""
    script = f"""
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, resource.RLIM_INFINITY))
from tests.study.test_faults import sweep
sweep({str(tmp_path / "s")!r}).run("serial", chunk=8)
"""
    assert hasattr(resource, "RLIMIT_FSIZE")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert "RecordingError" in done.stderr
    assert "a file would be larger than allowed" in done.stderr
    assert "make the same call to go on" in done.stderr
    assert content(sweep(tmp_path / "s").run("serial")) == expected


@pytest.mark.parametrize("repeats", REPEATS)
def test_damaged_files_are_noticed_and_computed_again(repeats, expected, tmp_path):
    sweep(tmp_path / "s").run("serial", chunk=8)
    chance = random.Random(2)
    for _ in range(repeats):
        for name in ("twice.npy", "journal.jsonl"):
            path = tmp_path / "s" / name
            data = bytearray(path.read_bytes())
            data[chance.randrange(200, len(data))] ^= 1 << chance.randrange(8)
            path.write_bytes(data)
            study = sweep(tmp_path / "s")
            with pytest.warns(QddotWarning) if name == "twice.npy" else no_matter():
                study.run("serial")
            assert content(study) == expected


class no_matter:
    """A flipped bit of the journal may make a line unreadable, or a receipt that does not fit: no warning is certain."""

    def __enter__(self):
        import warnings

        self._caught = warnings.catch_warnings()
        self._caught.__enter__()
        warnings.simplefilter("ignore", QddotWarning)

    def __exit__(self, *error):
        self._caught.__exit__(*error)


def test_a_torn_journal_goes_on(expected, tmp_path):
    sweep(tmp_path / "s").run("serial", chunk=8)
    path = tmp_path / "s" / "journal.jsonl"
    path.write_bytes(path.read_bytes()[:-70])
    assert content(sweep(tmp_path / "s").run("serial")) == expected
    path.write_bytes(path.read_bytes() + b'{"first": 0, "cou')
    path_of_results = sweep(tmp_path / "s")
    assert content(path_of_results.run("serial")) == expected
    path.unlink()
    assert content(sweep(tmp_path / "s").run("serial")) == expected


def test_parts_with_damage_and_of_another_study(expected, tmp_path):
    for k in (1, 2):
        sweep(tmp_path / "s").run("serial", part=(k, 2), chunk=8)
    path = tmp_path / "s" / "part-00001-of-00002" / "twice.npy"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    merge(tmp_path / "s")
    study = sweep(tmp_path / "s")
    assert np.count_nonzero(~study.results.done) == 8
    assert content(study.run("serial")) == expected
    head = tmp_path / "s" / "part-00002-of-00002" / "study.json"
    head.write_text(head.read_text().replace('"seed": 0', '"seed": 1'))
    with pytest.raises(StudyError, match="different studies"):
        merge(tmp_path / "s")
    with pytest.raises(StudyError, match="no parts"):
        merge(tmp_path / "nowhere")
