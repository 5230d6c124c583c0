"""Studies under attack: whatever is killed, filled or damaged, the results are those of an undisturbed serial run."""

import json
import os
import random
import resource
import subprocess
import sys

import numpy as np
import pytest

import qddot
from qddot.errors import StudyError
from qddot.study.merge import merge
from tests.support.study_faults import (
    ONCE_OR_OFTEN,
    REPEATS,
    content,
    driver,
    finished,
    killed,
    killing,
    needs_proc,
    poisoned,
    sweep,
    worker_processes,
)

pytestmark = pytest.mark.process


# ---- samples that are bad


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
        with killing(lambda: worker_processes(os.getpid()), chance, (0.4, 1.2)):
            study = sweep(tmp_path / str(k)).run(workers=2, chunk=16)
        assert content(study) == expected


@needs_proc
@pytest.mark.parametrize("repeats", ONCE_OR_OFTEN)
def test_drivers_killed_at_random(repeats, expected, tmp_path):
    chance = random.Random(1)
    for k in range(repeats):
        for _ in range(3):
            killed(driver(tmp_path / str(k)), chance.uniform(1.0, 2.5), leave=10.0)
        assert not finished(driver(tmp_path / str(k)))
        assert content(sweep(tmp_path / str(k))) == expected


# ---- disks that are full, and files that are damaged


@pytest.mark.parametrize("limit", [100, 2000, 6000])
def test_a_disk_that_is_full(limit, expected, tmp_path):
    """A limit on the size of files stands for it: writes fail in the same way, in the middle of a file."""
    script = f"""
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, resource.RLIM_INFINITY))
from tests.support.study_faults import sweep
sweep({str(tmp_path / "s")!r}).run("serial", chunk=8)
"""
    assert hasattr(resource, "RLIMIT_FSIZE")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert "RecordingError" in done.stderr
    assert "a file would be larger than allowed" in done.stderr
    assert "make the same call to go on" in done.stderr
    assert content(sweep(tmp_path / "s").run("serial")) == expected


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
