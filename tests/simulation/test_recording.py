"""Recorded runs survive: kill -9, a full disk, a folder that cannot be written, a damaged file."""

import contextlib
import json
import math
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import qddot
from qddot.errors import RecordingError
from qddot.simulation import controls, recorded
from qddot.simulation.recorded import record_simulation
from qddot.simulation.run_folder import Recording, record
from tests.support.paths import ROOT
from tests.support.rollouts import arm, rollout, step

CHUNKS, STEPS = 12, 10
ROBOT = "double_pendulum"


def pendulum(robot, pause=0.0):
    """A chunk function: ten steps of a double pendulum."""

    def chunk(state):
        time.sleep(pause)
        q, v, k = state["q"], state["v"], int(state["step"])
        rows = {"t": [], "q": [], "v": []}
        for i in range(STEPS):
            for name, x in (("t", (k + i) * 1e-3), ("q", q), ("v", v)):
                rows[name].append(x)
            q, v = step(robot, q, v, np.zeros(2), 1e-3)
        return {"q": q, "v": v, "step": k + STEPS}, {name: np.array(x) for name, x in rows.items()}

    return chunk


def run(folder, chunks=CHUNKS, pause=0.0, **options):
    robot = qddot.load(ROBOT)
    state = {"q": np.array([1.0, 0.5]), "v": np.zeros(2), "step": 0}
    return record(pendulum(robot, pause), state, chunks, folder, robot=robot, info={"dt": 1e-3}, **options)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    return run(tmp_path_factory.mktemp("unbroken") / "run")


def same_files(a: Recording, b: Recording) -> bool:
    names = sorted(p.name for p in a.directory.iterdir())
    return names == sorted(p.name for p in b.directory.iterdir()) and all(
        (a.directory / n).read_bytes() == (b.directory / n).read_bytes() for n in names
    )


def test_a_run(unbroken):
    found = qddot.load_trajectory(unbroken.directory)
    robot = qddot.load(ROBOT)
    expected = rollout(robot, [1.0, 0.5], np.zeros(2), steps=CHUNKS * STEPS - 1)
    np.testing.assert_array_equal(found.q, expected.q)
    np.testing.assert_array_equal(found.v, expected.v)
    assert found.robot == robot
    assert found.info == {"dt": 1e-3}
    assert len(unbroken.chunks) == CHUNKS


def test_killed_in_the_middle(tmp_path, unbroken):
    """A real process, killed with no chance to clean up, at several moments; each time the next one goes on."""
    folder = tmp_path / "run"
    code = "import sys; sys.path[:0] = sys.argv[2:]; import test_recording as t; t.run(sys.argv[1], pause=0.05)"
    command = [sys.executable, "-c", code, str(folder), str(Path(__file__).parent), str(ROOT)]
    done = [0]
    for wanted in (2, 5, 9):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and process.poll() is None:
                with contextlib.suppress(RecordingError):
                    if len(Recording(folder).chunks) >= wanted:
                        break
                time.sleep(0.003)
            time.sleep(0.013 * wanted % 0.05)  # at another moment of a chunk each time
            assert process.poll() is None, "it ended before it could be killed"
        finally:
            process.send_signal(signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
        left = Recording(folder)
        assert wanted <= len(left.chunks) < CHUNKS
        done.append(len(left.chunks))
        part, whole = left.arrays(), unbroken.arrays()
        for name in ("t", "q", "v"):
            np.testing.assert_array_equal(part[name], whole[name][: STEPS * done[-1]])
    assert sorted(set(done)) == done, "every process went on from where the one before had come"
    finished = run(folder)
    assert same_files(finished, unbroken)


def test_interrupted(tmp_path, unbroken, capsys):
    robot, calls = qddot.load(ROBOT), []

    def until_ctrl_c(state):
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return pendulum(robot)(state)

    state = {"q": np.array([1.0, 0.5]), "v": np.zeros(2), "step": 0}
    with pytest.raises(KeyboardInterrupt):
        record(until_ctrl_c, state, CHUNKS, tmp_path / "run", robot=robot, info={"dt": 1e-3})
    assert f"4 of {CHUNKS} chunks are in {tmp_path / 'run'}" in capsys.readouterr().err
    assert len(qddot.load_trajectory(tmp_path / "run")) == 4 * STEPS  # what is there can be used already
    assert same_files(run(tmp_path / "run", progress=True), unbroken)
    assert len(run(tmp_path / "run", CHUNKS + 1).chunks) == CHUNKS + 1  # and a complete run can be made longer


@contextlib.contextmanager
def small_disk(path, size):
    """A file system of its own, where this machine lets us make one."""
    path.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], capture_output=True)
    if made.returncode:
        pytest.skip(f"cannot mount a small file system: {made.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", path], check=True)


def test_disk_full(tmp_path, unbroken):
    with small_disk(tmp_path / "disk", "48k"):
        folder = tmp_path / "disk" / "run"
        with pytest.raises(
            RecordingError, match=r"the disk is full; \d+ chunks .* intact; free some space and make the same"
        ):
            run(folder)
        left = Recording(folder)
        assert 0 < len(left.chunks) < CHUNKS
        np.testing.assert_array_equal(left.arrays()["q"], unbroken.arrays()["q"][: STEPS * len(left.chunks)])
        assert not [p for p in folder.iterdir() if "unfinished" in p.name]
        subprocess.run(["mount", "-o", "remount,size=1m", tmp_path / "disk"], check=True)
        assert same_files(run(folder), unbroken)


def test_read_only(tmp_path, unbroken):
    with small_disk(tmp_path / "disk", "1m"):
        folder = tmp_path / "disk" / "run"
        run(folder, 3)
        subprocess.run(["mount", "-o", "remount,ro", tmp_path / "disk"], check=True)
        with pytest.raises(RecordingError, match="read-only file system; 3 chunks of the run are there and intact"):
            run(folder)
        with pytest.raises(RecordingError, match="read-only"):
            run(tmp_path / "disk" / "other")
        with pytest.raises(RecordingError, match="cannot be written: Read-only"):
            arm(steps=1).save(tmp_path / "disk" / "arm.csv")
        np.testing.assert_array_equal(Recording(folder).arrays()["q"], unbroken.arrays()["q"][: 3 * STEPS])


def test_a_write_that_the_system_refuses(tmp_path, unbroken):
    """The limit on file sizes stops a write in its middle, with no special file system."""
    run(tmp_path / "run", 3)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(RecordingError, match="larger than allowed; 3 chunks"):
            run(tmp_path / "run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert same_files(run(tmp_path / "run"), unbroken)


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_folder_of_somebody_else(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o555)
    with pytest.raises(RecordingError, match="you may not write there; 0 chunks"):
        run(tmp_path / "closed" / "run")


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(RecordingError, match="file"):
            run(path)
    assert (tmp_path / "file").read_text() == "mine"


def test_damage_is_found(tmp_path, unbroken):
    folder = tmp_path / "run"
    run(folder, 6)
    last = folder / "chunk-000005.npz"
    data = bytearray(last.read_bytes())
    data[len(data) // 2] ^= 1
    last.write_bytes(data)
    with pytest.raises(RecordingError, match=r"chunk-000005\.npz: its content has changed"):
        qddot.load_trajectory(folder)
    with pytest.warns(qddot.QddotWarning, match="computed again"):
        finished = run(folder)
    assert same_files(finished, unbroken)
    (folder / "chunk-000002.npz").unlink()
    with pytest.raises(RecordingError, match=r"chunk-000002\.npz: it cannot be read: No such file"):
        qddot.load_trajectory(folder)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"format": "other", "chunks": []}', '{"format": 1, "chunks": 3}']
)
def test_strange_manifests(tmp_path, content):
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(RecordingError, match=r"manifest\.json: it cannot be read"):
        qddot.load_trajectory(tmp_path)


def test_folders_that_hold_no_run_or_another(tmp_path):
    with pytest.raises(RecordingError, match="no recorded run"):
        qddot.load_trajectory(tmp_path)
    run(tmp_path / "run", 1)
    robot = qddot.load(ROBOT)
    state = {"q": np.array([1.0, 0.5]), "v": np.zeros(2), "step": 0}
    for change, text in (
        ({"state0": state | {"step": 7}}, "another state0"),
        ({"info": {"dt": 2e-3}}, "another info"),
        ({"robot": qddot.load("pendulum")}, "another robot"),
    ):
        given = {"state0": state, "robot": robot, "info": {"dt": 1e-3}} | change
        with pytest.raises(qddot.InputError, match=text):
            record(pendulum(robot), given.pop("state0"), 2, tmp_path / "run", **given)
    assert len(Recording(tmp_path / "run").chunks) == 1
    content = json.loads((tmp_path / "run" / "manifest.json").read_text())
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(content | {"version": 99}))
    with pytest.raises(RecordingError, match="version 99"):
        qddot.load_trajectory(tmp_path / "run")


def test_numbers_that_are_none_are_the_same_again(tmp_path):
    """NaN in what a run is said to be does not make it another run."""
    for _ in range(2):
        record(lambda state: (state, {"x": np.zeros(2)}), {"x": np.nan}, 1, tmp_path / "run", info={"gain": math.nan})


def test_two_writers(tmp_path):
    robot = qddot.load(ROBOT)

    def meets_itself(state):
        with pytest.raises(RecordingError, match="another process is recording"):
            run(tmp_path / "run")
        return pendulum(robot)(state)

    state = {"q": np.array([1.0, 0.5]), "v": np.zeros(2), "step": 0}
    assert len(record(meets_itself, state, 1, tmp_path / "run", robot=robot, info={"dt": 1e-3}).chunks) == 1


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ({"t": np.zeros(3), "q": np.zeros((2, 2))}, "one length in time"),
        ({"q": np.float64(1.0)}, "one length in time"),
        ({}, "one length in time"),
        ({"q": np.array([None])}, "array of numbers"),
    ],
)
def test_chunks_that_do_not_fit(tmp_path, rows, text):
    with pytest.raises(qddot.InputError, match=text):
        record(lambda state: (state, rows), {"x": 0.0}, 1, tmp_path / "run")
    assert not list((tmp_path / "run").glob("chunk*"))


def test_chunks_that_change(tmp_path):
    rows = iter([{"file": np.zeros(2), "q": np.zeros(2)}, {"file": np.zeros(2)}])
    with pytest.raises(qddot.InputError, match=r"has the arrays \['file'\], and those before it \['file', 'q'\]"):
        record(lambda state: (state, next(rows)), {"x": 0.0}, 2, tmp_path / "run")
    assert set(Recording(tmp_path / "run").arrays()) == {"file", "q"}


def test_saved_trajectories(tmp_path, monkeypatch):
    monkeypatch.setattr(recorded, "_ROWS", 40)
    x = arm(steps=100, channels={"work": np.arange(101) / 3})
    assert x.save(tmp_path / "arm") == tmp_path / "arm"
    y = qddot.load_trajectory(tmp_path / "arm")
    for name in ("t", "q", "v", "tau", "work"):
        np.testing.assert_array_equal(y[name], x[name])
    assert (y.a, y.info, y.robot) == (None, x.info, x.robot)
    assert len(Recording(tmp_path / "arm").chunks) == 3
    x.save(tmp_path / "arm")  # the same once more is no harm
    with pytest.raises(qddot.InputError, match="holds another run, of another state0"):
        arm(steps=100).save(tmp_path / "arm")
    arm(steps=7).save(tmp_path / "arm", overwrite=True)
    assert len(qddot.load_trajectory(tmp_path / "arm")) == 8
    assert [p.name for p in tmp_path.iterdir()] == ["arm"]
    with pytest.raises(qddot.InputError, match="holds everything"):
        x.save(tmp_path / "other", "q")
    quadruped = qddot.load("quadruped")
    batch = rollout(quadruped, np.stack([quadruped.neutral()] * 3), np.zeros((3, 18)), steps=50)
    batch.save(tmp_path / "batch")
    np.testing.assert_array_equal(qddot.load_trajectory(tmp_path / "batch").q, batch.q)


def test_a_robot_with_functions_of_its_own(tmp_path):
    tree = qddot.load("double_pendulum")
    robot = tree.with_constraint("tied", position=lambda q: [q[0] - q[1]])
    x = rollout(robot, [0.2, 0.2], np.zeros(2), steps=5)
    x.save(tmp_path / "tied")
    with pytest.raises(RecordingError, match="give robot="):
        qddot.load_trajectory(tmp_path / "tied")
    np.testing.assert_array_equal(qddot.load_trajectory(tmp_path / "tied", robot).q, x.q)
    with pytest.raises(qddot.InputError, match="another robot"):
        qddot.load_trajectory(tmp_path / "tied", tree)


@pytest.mark.parametrize("integrator", ["rk4", "ab4"])
def test_recorded_simulations(tmp_path, integrator):
    """In chunks, interrupted and gone on with, they have the bits of `robot.simulate`."""
    robot = qddot.load("puma560")
    law = controls.pd(robot, np.zeros(6), 50.0, 5.0)
    q = np.stack([np.zeros(6), np.ones(6)])
    options = {"dt": 1e-3, "steps": 96, "integrator": integrator}
    whole = robot.simulate(q, np.zeros(6), law, record=4, **options)
    calls = []

    def until_ctrl_c(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*arguments)

    real = Recording.append
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Recording, "append", until_ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            record_simulation(robot, tmp_path / "run", q, np.zeros(6), law, every=4, chunk=10, **options)
    assert len(Recording(tmp_path / "run").chunks) == 2
    found = record_simulation(robot, tmp_path / "run", q, np.zeros(6), law, every=4, chunk=10, **options)
    for name in ("t", "q", "v", "tau"):
        np.testing.assert_array_equal(found[name], whole[name])
    np.testing.assert_array_equal(qddot.load_trajectory(tmp_path / "run").q, whole.q)
    with pytest.raises(qddot.InputError, match="another state0"):
        record_simulation(robot, tmp_path / "run", q + 1e-9, np.zeros(6), law, every=4, chunk=10, **options)
    with pytest.raises(qddot.InputError, match="does not divide"):
        record_simulation(robot, tmp_path / "other", q, np.zeros(6), law, every=7, **options)


def test_a_recorded_simulation_of_a_loop(tmp_path):
    robot = qddot.load("fivebar")
    q, _ = robot.close_loops(robot.neutral())
    u = np.zeros((50, 4))
    u[:, 0] = 0.1
    whole = robot.simulate(q, np.zeros(4), u, dt=1e-3, steps=50)
    found = record_simulation(robot, tmp_path / "run", q, np.zeros(4), u, dt=1e-3, steps=50, chunk=7)
    np.testing.assert_array_equal(found.q, whole.q)
    np.testing.assert_array_equal(found["drift"], whole["drift"])
    with pytest.raises(qddot.InputError, match="another state0"):  # other controls
        record_simulation(robot, tmp_path / "run", q, np.zeros(4), 2 * u, dt=1e-3, steps=50, chunk=7)
