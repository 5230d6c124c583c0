"""The line that says how far something is: on terminals, in notebooks, with the time left, and off by a switch."""

import io
import sys
import threading
import time
import types

import numpy as np
import pytest

import qddot
from qddot import progress, tasks
from qddot.errors import InputError
from qddot.progress import Loop, Progress
from qddot.simulation.recorded import record_simulation


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """Standard error is a terminal, and everything takes long."""
    monkeypatch.setattr(progress, "NOTICE_SECONDS", 0.02)
    monkeypatch.delenv("QDDOT_PROGRESS", raising=False)
    shown = Terminal()
    monkeypatch.setattr(progress, "sys", types.SimpleNamespace(stderr=shown))  # pytest takes sys.stderr back
    yield shown
    assert progress._active == []
    assert not [t for t in threading.enumerate() if t.name == "qddot-progress"]


@pytest.fixture
def notebook(monkeypatch):
    """A kernel of IPython, as far as we use it: what is displayed, in its order."""
    outputs, monkeys = [], types.ModuleType("IPython.display")

    class Handle:
        def __init__(self, content):
            outputs.append(content)

        def update(self, content):
            outputs.append(content)

    monkeys.HTML = str
    monkeys.display = lambda content, display_id: Handle(content)
    shell = types.ModuleType("IPython")
    shell.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    shell.display = monkeys
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", monkeys)
    monkeypatch.setattr(progress, "NOTICE_SECONDS", 0.02)
    return outputs


@pytest.fixture(autouse=True)
def as_at_first():
    yield
    qddot.set_progress(None)


def lines(shown):
    return [x.strip() for x in shown.getvalue().split("\r") if x.strip()]


# ---- what it says


def test_the_time_left(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    line = Progress("simulating")
    assert line.text == "qddot: simulating, 0 s …"
    line.done, clock[0] = 0.0, 10.0
    assert line.text == "qddot: simulating, 0 %, 10 s …"
    line.done = 0.25
    assert line.text == "qddot: simulating, 25 %, 10 s, 30 s left …"
    clock[0] = 1000.0
    assert line.text.endswith("25 %, 1000 s, 50 min left …")
    clock[0] = 20_000.0
    assert line.text.endswith("16.7 h left …")
    resumed = Progress("recording")
    resumed.done, clock[0] = 0.5, clock[0] + 10.0
    resumed.done = 0.75  # a quarter in ten seconds; the first half was done before
    assert resumed.text == "qddot: recording, 75 %, 10 s, 10 s left …"


def test_names_of_files_move_no_cursor():
    assert "\\x1b[2J" in Progress("simulating \x1b[2J").text


def test_the_innermost_is_shown(terminal):
    with Progress("outer"):
        time.sleep(0.1)
        with Progress("inner"):
            begin = len(terminal.getvalue())
            time.sleep(0.1)
            during = terminal.getvalue()[begin:]
    assert "outer" in terminal.getvalue()
    assert "inner" in during
    assert "outer" not in during.partition("inner")[2]


def test_the_line_is_gone_after_an_error(terminal):
    def fail():
        with Progress("doing"):
            time.sleep(0.1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert terminal.getvalue().split("\r")[-2].strip() == ""


# ---- loops in pieces


def test_pieces_are_the_whole(terminal):
    with Loop("stepping", 100_000) as loop:
        sizes = [n for part in (30_000, 0, 70_000) for n in loop.pieces(part)]
        assert sum(sizes) == 100_000
        assert sizes[0] == 20_000
        assert len(sizes) == 3
        assert loop.done == 1.0


def test_one_piece_where_nobody_looks():
    with Loop("stepping", 100_000) as loop:
        assert list(loop.pieces(100_000)) == [100_000]
        assert list(loop.pieces(0)) == []


def test_one_piece_within_a_loop_that_says_how_far_it_is(terminal):
    with Progress("recording") as outer:
        outer.done = 0.5
        with Loop("stepping", 100_000) as loop:
            assert list(loop.pieces(100_000)) == [100_000]


@pytest.mark.parametrize("integrator", ["rk4", "ab4"])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_simulation_says_how_far_it_is_and_has_the_same_bits(terminal, monkeypatch, integrator, compiled):
    robot = qddot.Robot(qddot.load("double_pendulum").model, compiled=compiled)
    q0, steps = np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]), 4000 if compiled else 30
    given = {"dt": 1e-3, "steps": steps, "record": 5, "integrator": integrator}
    controls = np.random.default_rng(0).standard_normal((steps, 2))
    qddot.set_progress(False)
    quiet = robot.simulate(q0, 0 * q0, controls, **given)
    assert terminal.getvalue() == ""
    qddot.set_progress(None)
    monkeypatch.setattr(progress, "_FIRST_PIECE", 21)
    monkeypatch.setattr(progress, "NOTICE_SECONDS", 0.0)
    monkeypatch.setattr(progress, "PIECE_SECONDS", 0.0)
    told = robot.simulate(q0, 0 * q0, controls, **given)
    assert np.array_equal(told.q, quiet.q)
    assert np.array_equal(told.v, quiet.v)
    assert any("qddot: simulating 3 of 'double_pendulum', " in x and "left" in x for x in lines(terminal))


def test_scipy_says_how_far_it_is(terminal):
    pytest.importorskip("scipy")
    robot = qddot.Robot(qddot.load("double_pendulum").model, compiled=False)
    robot.simulate([0.1, 0.2], [0.0, 0.0], dt=1e-2, steps=100, integrator="DOP853")
    assert any("simulating 1 of 1 of 'double_pendulum' by DOP853, " in x and "left" in x for x in lines(terminal))


@pytest.fixture
def in_pieces(terminal, monkeypatch):
    """Pieces are short, and what they are is written after each."""
    monkeypatch.setattr(progress, "_FIRST_PIECE", 7)
    monkeypatch.setattr(progress, "NOTICE_SECONDS", 0.0)
    monkeypatch.setattr(progress, "PIECE_SECONDS", 0.0)
    return terminal


def test_inverse_kinematics_says_how_far_it_is_and_has_the_same_bits(in_pieces):
    qddot.set_progress(False)
    robot = qddot.load("planar3")
    frame = robot.link_names[-1]
    targets = {frame: robot.pose(robot.random_state(0, (5, 6))[0], frame)}
    quiet = robot.inverse_kinematics(targets)
    assert in_pieces.getvalue() == ""
    qddot.set_progress(None)
    told = robot.inverse_kinematics(targets)
    assert np.array_equal(told.q, quiet.q)
    assert np.array_equal(told.restart, quiet.restart)
    assert any("inverse kinematics of 30 of 'planar3', " in x and "left" in x for x in lines(in_pieces))
    assert robot.inverse_kinematics({frame: targets[frame][:0]}).q.shape == (0, 6, 3)


def test_inverse_dynamics_with_contacts_says_how_far_it_is(in_pieces):
    pytest.importorskip("daqp")
    robot = qddot.load("quadruped")
    contacts = [tasks.Contact(frame) for frame in robot.frame_names if frame.endswith("foot")]
    q, wanted = np.tile(robot.neutral(), (2, 3, 1)), tasks.JointAcceleration(np.zeros(18))
    told = robot.contact_inverse_dynamics(q, np.zeros(18), wanted, contacts)
    assert any("contacts of 6 of 'quadruped', " in x and "left" in x for x in lines(in_pieces))
    qddot.set_progress(False)
    assert np.array_equal(told.tau, robot.contact_inverse_dynamics(q, np.zeros(18), wanted, contacts).tau)


def test_a_loop_that_says_nothing_does_not_hide_the_line_around_it(terminal):
    with Progress("recording") as line:
        line.done = 0.5
        with Loop("simulating", 10_000_000) as loop:
            assert next(loop.pieces(10_000_000)) == 10_000_000, "it says nothing, and runs in one piece"
            time.sleep(0.2)
            assert "recording, 50 %" in terminal.getvalue()
    assert "simulating" not in terminal.getvalue()


def test_a_recording_says_how_far_it_is(terminal, tmp_path):
    robot = qddot.Robot(qddot.load("pendulum").model, compiled=False)
    record_simulation(robot, tmp_path / "run", [0.1], [0.0], dt=1e-3, steps=150, chunk=50)
    assert any("recording, " in x and "of 3 chunks" in x for x in lines(terminal))
    before = terminal.getvalue()
    record_simulation(robot, tmp_path / "other", [0.1], [0.0], dt=1e-3, steps=150, chunk=50, progress=False)
    assert "recording" not in terminal.getvalue()[len(before) :]


# ---- the switch


def test_off_by_the_environment(terminal, monkeypatch):
    monkeypatch.setenv("QDDOT_PROGRESS", "0")
    with Progress("doing"):
        time.sleep(0.1)
    assert terminal.getvalue() == ""
    qddot.set_progress(True)  # what the program says counts
    with Progress("doing"):
        time.sleep(0.1)
    assert "doing" in terminal.getvalue()


def test_on_and_off_in_python(monkeypatch, capsys):
    monkeypatch.setattr(progress, "NOTICE_SECONDS", 0.02)
    qddot.set_progress(True)
    assert qddot.get_progress() is True
    with Progress("doing"):
        time.sleep(0.1)
    assert "qddot: doing" in capsys.readouterr().err
    qddot.set_progress(False)
    with Progress("doing"):
        time.sleep(0.1)
    assert capsys.readouterr().err == ""
    with pytest.raises(InputError, match="enabled is 'off'; give True, False or None"):
        qddot.set_progress("off")


def test_no_standard_error_at_all(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with Progress("doing"):
        pass


# ---- notebooks


def test_a_line_below_the_cell(notebook, capsys):
    with Progress("compiling <b>'arm'</b>"):
        time.sleep(0.15)
    assert len(notebook) > 2
    assert "qddot: compiling &lt;b&gt;&#x27;arm&#x27;&lt;/b&gt;, 0 s …" in notebook[0]
    assert notebook[-1] == ""  # gone
    assert capsys.readouterr().err == ""


def test_a_quick_thing_leaves_no_output(notebook):
    with Progress("compiling"):
        pass
    assert notebook == []


def test_a_terminal_with_ipython_is_no_notebook(notebook, monkeypatch, terminal):
    sys.modules["IPython"].get_ipython = lambda: types.SimpleNamespace()
    with Progress("doing"):
        time.sleep(0.1)
    assert notebook == []
    assert "doing" in terminal.getvalue()
