"""Trajectories: channels by name, what follows from the states, tables, figures."""

import csv
import json
import re
import sys

import numpy as np
import pytest

import qddot
from qddot.errors import MissingExtraError
from qddot.simulation.trajectory import Trajectory
from tests.support.paths import ROOT
from tests.support.rollouts import arm, rollout


@pytest.fixture(scope="module")
def fivebar():
    robot = qddot.load("fivebar")
    q, _ = robot.close_loops(robot.neutral())
    return rollout(robot, q, np.zeros(4), tau=[0.1, 0.0, 0.0, 0.0], dt=1e-3, steps=200)


@pytest.fixture(scope="module")
def batch():
    robot = qddot.load("quadruped", passive_forces=False)
    q = np.stack([robot.random_state(k)[0] for k in range(3)])
    return rollout(robot, q, np.zeros((3, robot.nv)), dt=1e-3, steps=20)


def test_channels_by_name():
    x = arm()
    own = Trajectory(x.robot, x.t, x.q, x.v, channels={"work": np.arange(101.0), "goal": np.zeros((101, 2))})
    assert own.names[:3] == ("t", "q", "v")
    assert {"work", "goal", "energy", "momentum", "center_of_mass"} <= set(own.names)
    assert "constraint_drift" not in own.names
    joint = x.robot.joint_names[2]
    np.testing.assert_array_equal(x[f"{joint}.v"], x.v[:, 2])
    np.testing.assert_array_equal(own["work"], np.arange(101.0))
    assert [c.unit for c in x.columns("tau")] == ["N m"] * 6
    with pytest.raises(qddot.UnknownNameError, match="did you mean 'energy'"):
        x["enrgy"]
    with pytest.raises(qddot.UnknownNameError, match="did you mean"):
        x[f"{joint}.vv"]
    with pytest.raises(TypeError, match=r"trajectory\.names"):
        list(x)
    assert "101 times from 0 to 0.1 s" in repr(x)


def test_columns_of_every_kind_of_joint():
    """Every coordinate and DoF has a name of its own, and a unit that its joint says."""
    robot = qddot.random_tree(40, rng=3)
    x = Trajectory(robot, [0.0], robot.neutral()[None], np.zeros((1, robot.nv)))
    kinds = {j.kind for j in robot.model.joint[1:]}
    assert {"free", "spherical", "planar", "prismatic", "revolute", "cylindrical"} <= kinds
    for quantity, count in (("q", robot.nq), ("v", robot.nv)):
        names = [c.name for c in x.columns(quantity)]
        assert len(set(names)) == len(names) == count
    for joint in robot.joint_names:
        kind = robot.model.joint[robot.model.joint_index(joint)].kind
        if kind == "prismatic":
            assert x.columns("q")[robot.q_index[joint]].unit == "m"
            assert x.columns("v")[robot.v_index[joint]].unit == "m/s"
        if kind == "free":
            assert [c.unit for c in x.columns("q")[robot.q_index[joint]]] == ["m"] * 3 + [""] * 4
            assert [c.unit for c in x.columns("v")[robot.v_index[joint]]] == ["rad/s"] * 3 + ["m/s"] * 3


def test_energy_and_momentum_are_the_robots(batch):
    robot = batch.robot
    for k in range(3):
        one = batch.sample(k)
        i = 7
        assert one.energy[i] == robot.kinetic_energy(one.q[i], one.v[i]) + robot.potential_energy(one.q[i])
        np.testing.assert_array_equal(one.momentum[i], robot.momentum(one.q[i], one.v[i]))
        np.testing.assert_array_equal(batch.energy[k], one.energy)
    # falling: the momentum grows by weight times time, the centre of mass falls by g t²/2
    t = batch.t
    np.testing.assert_allclose(batch.momentum[..., 5], np.broadcast_to(-9.81 * robot.mass * t, (3, len(t))), atol=1e-9)
    fall = batch.center_of_mass[..., 2] - batch.center_of_mass[..., :1, 2]
    np.testing.assert_allclose(fall, np.broadcast_to(-4.905 * t * t, fall.shape), atol=1e-12)
    assert batch.energy_drift.shape == (3,)
    assert np.all(batch.energy_drift < 1e-8)  # Runge & Kutta's error in 20 steps


def test_drift_of_loops(fivebar):
    drift = fivebar.constraint_drift
    assert drift.shape == (201,)
    np.testing.assert_array_equal(drift[-1], np.max(np.abs(fivebar.robot.constraint_residual(fivebar.q[-1]))))
    assert 0.0 < drift[-1] < 1e-7
    with pytest.raises(qddot.InputError, match="no loops"):
        arm(steps=1).constraint_drift  # noqa: B018


def test_samples_and_other_times(batch):
    np.testing.assert_array_equal(batch.sample(2).q, batch.q[2])
    with pytest.raises(qddot.InputError, match="outside"):
        batch.sample(3)
    with pytest.raises(qddot.InputError, match="1 axes"):
        batch.sample()
    same = batch.resampled(batch.t)
    np.testing.assert_allclose(same.q, batch.q, atol=1e-15)
    between = batch.resampled((batch.t[1:] + batch.t[:-1]) / 2)
    np.testing.assert_allclose(np.linalg.norm(between.q[..., 3:7], axis=-1), 1.0, atol=1e-15)
    np.testing.assert_allclose(between.v, (batch.v[:, 1:] + batch.v[:, :-1]) / 2, atol=1e-15)
    way = batch.robot.difference(batch.q[:, :-1], batch.q[:, 1:])
    np.testing.assert_allclose(batch.robot.difference(batch.q[:, :-1], between.q), way / 2, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"t": np.zeros((2, 2))}, "t has shape"),
        ({"t": [0.0, 1.0, 0.5]}, "goes backwards"),
        ({"q": np.zeros((3, 5))}, r"q has shape \(3, 5\)"),
        ({"v": np.zeros((2, 6))}, r"v has shape \(2, 6\)"),
        ({"tau": np.zeros(6)}, r"tau has shape"),
        ({"channels": {"x": np.zeros(2)}}, "channel 'x' has shape"),
        ({"channels": {"x": ["a", "b", "c"]}}, "real numbers"),
        ({"channels": {"q": np.zeros(3)}}, "give it as q="),
    ],
)
def test_arrays_that_do_not_fit(change, text):
    robot = qddot.load("puma560")
    good = {"t": [0.0, 1.0, 2.0], "q": np.zeros((3, 6)), "v": np.zeros((3, 6))}
    with pytest.raises(qddot.InputError, match=text):
        Trajectory(robot, **(good | change))


def test_csv(tmp_path, fivebar):
    x = arm(steps=10, channels={"note, odd": np.arange(11) / 3})
    x.save(tmp_path / "arm.csv")
    with open(tmp_path / "arm.csv", encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    joint = x.robot.joint_names[0]
    assert head[0] == "t [s]"
    assert f"{joint}.q [rad]" in head
    assert "momentum.px [kg m/s]" in head
    assert "note, odd" in head
    table = np.array(rows, dtype=float)
    np.testing.assert_array_equal(table[:, head.index(f"{joint}.q [rad]")], x.q[:, 0])  # to the last bit
    np.testing.assert_array_equal(table[:, head.index("energy [J]")], x.energy)
    np.testing.assert_array_equal(table[:, head.index("note, odd")], np.arange(11) / 3)
    fivebar.save(tmp_path / "few.csv", "q", "constraint_drift")
    assert (tmp_path / "few.csv").read_text().splitlines()[0].endswith("constraint_drift [m or rad]")


def test_csv_that_cannot_be_written(tmp_path, batch):
    with pytest.raises(qddot.QddotError, match="cannot be written: No such file"):
        arm(steps=1).save(tmp_path / "nowhere" / "arm.csv")
    with pytest.raises(qddot.InputError, match=r"trajectory\.sample"):
        batch.save(tmp_path / "batch.csv")
    with pytest.raises(qddot.UnknownNameError):
        arm(steps=1).save(tmp_path / "arm.csv", "enrgy")
    assert not list(tmp_path.iterdir())


def test_parquet(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow: pip install 'qddot[data]'")
    x = arm(steps=10)
    x.save(tmp_path / "arm.parquet")
    table = parquet.read_table(tmp_path / "arm.parquet")
    joint = x.robot.joint_names[5]
    np.testing.assert_array_equal(table[f"{joint}.tau"].to_numpy(), x.tau[:, 5])
    assert table.schema.field(f"{joint}.tau").metadata[b"unit"] == b"N m"
    assert json.loads(table.schema.metadata[b"info"])["integrator"] == "rk4"


def test_mcap(tmp_path):
    reader = pytest.importorskip("mcap.reader", reason="needs mcap: pip install 'qddot[data]'")
    x = arm(steps=10)
    x.save(tmp_path / "arm.mcap")
    with open(tmp_path / "arm.mcap", "rb") as file:
        messages = [(c.topic, m.log_time, json.loads(m.data)) for _, c, m in reader.make_reader(file).iter_messages()]
    states = [body for topic, _, body in messages if topic == "/joint_states"]
    np.testing.assert_array_equal([s["position"] for s in states], x.q)
    np.testing.assert_array_equal([s["velocity"] for s in states], x.v)
    assert [b["value"] for topic, _, b in messages if topic == "/energy"] == x.energy.tolist()
    assert [time for topic, time, _ in messages if topic == "/energy"] == [10**6 * k for k in range(11)]
    last = [body for topic, _, body in messages if topic == "/tf"][-1]["transforms"][-1]
    T = x.robot.forward_kinematics(x.q[-1])[-1]
    assert list(last["translation"].values()) == T[:3, 3].tolist()
    assert last["child_frame_id"] == x.robot.link_names[-1]


def test_xarray(batch, fivebar):
    pytest.importorskip("xarray", reason="needs xarray: pip install 'qddot[data]'")
    data = batch.to_xarray()
    assert data.q.dims == ("batch_0", "time", "coordinate")
    assert data.q.sel(coordinate="base.qw").shape == (3, 21)
    np.testing.assert_array_equal(data.v.sel(freedom="front_left_hip"), batch["front_left_hip.v"])
    assert data.energy.attrs["units"] == "J"
    assert data.attrs["integrator"] == "rk4"
    assert fivebar.to_xarray("q", "constraint_drift").constraint_drift.dims == ("time",)


def test_plot(tmp_path, fivebar, batch):
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'qddot[view]'")
    figure = fivebar.plot(path=tmp_path / "fivebar.png")
    assert {a.get_ylabel() for a in figure.axes if a.get_visible()} == {
        "position\n[rad]",
        "velocity\n[rad/s]",
        "torque\n[N m]",
        "energy\n[J]",
        "how far loops are open\n[m or rad]",
    }
    assert (tmp_path / "fivebar.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    np.testing.assert_array_equal(figure.axes[0].get_lines()[1].get_ydata(), fivebar.q[:, 1])
    assert "rk4" in figure.get_suptitle()
    mixed = batch.sample(0).plot("q")  # metres, and numbers without unit, and radians: a panel each
    assert [a.get_ylabel() for a in mixed.axes] == ["position\n[m]", "position", "position\n[rad]"]
    one = fivebar.plot("left_shoulder.q")
    assert one.axes[0].get_ylabel() == "left_shoulder.q\n[rad]"
    with pytest.raises(qddot.InputError, match=r"trajectory\.sample"):
        batch.plot()
    with pytest.raises(qddot.UnknownNameError):
        fivebar.plot("enrgy")


@pytest.mark.parametrize(
    ("module", "use"),
    [
        ("matplotlib", lambda x, path: x.plot()),
        ("xarray", lambda x, path: x.to_xarray()),
        ("pyarrow", lambda x, path: x.save(path / "x.parquet")),
        ("mcap", lambda x, path: x.save(path / "x.mcap")),
        ("viser", lambda x, path: x.show()),
    ],
)
def test_a_package_that_is_not_there_is_named(monkeypatch, tmp_path, module, use):
    for name in [n for n in sys.modules if n.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"needs {module}.*pip install 'qddot\[(view|data)\]'"):
        use(arm(steps=2), tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_page(tmp_path, monkeypatch):
    """docs/results.md runs as it is printed."""
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'qddot[view]'")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "results.md").read_text()
    namespace: dict = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, namespace)
    np.testing.assert_array_equal(namespace["same"].q, qddot.load_trajectory("run").q)
    assert len(namespace["run"]) == 2001
    assert {p.name for p in tmp_path.iterdir()} == {"run", "run.png", "run.csv", "few.csv", "long"}
