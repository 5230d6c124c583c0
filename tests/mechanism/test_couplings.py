"""Couplings: constraints of one row that are numbers, so that they are written, compared and compiled as the rest is."""

import json

import numpy as np
import pytest

import qddot
from qddot.algorithms import constrained_dynamics
from qddot.joints import Prismatic, Revolute, Universal
from qddot.mechanism.couplings import Coupling

BODY = np.diag([0.1, 0.12, 0.14])


def hand(**mimic):
    """A chain of four joints, of which the last may follow another."""
    b = qddot.Builder("hand")
    for k, joint in enumerate((Revolute((0, 1, 0)), Revolute((1, 0, 0)), Prismatic((0, 0, 1)), Revolute((0, 1, 1)))):
        parent = f"l{k - 1}" if k else "world"
        b.link(f"l{k}", 1.0 + k, (0.1, 0.2, 0), BODY)
        b.joint(f"j{k}", parent, f"l{k}", joint, qddot.pose((0.3, 0, 0)), **(mimic if k == 3 else {}))
    return b


def test_a_coupling_is_its_equation():
    """Also of a joint that follows another: its own coordinate is a factor and an offset of that."""
    b = hand(mimic=("j0", 2.0, 0.5)).coupling("c", {"j1": 1.5, "j3": 1.0}, (0.1, -0.2, 0.3), {"j2": 2.0, "j3": -1.0}, 0.4)
    robot, q = b.robot(), np.array([0.3, -0.7, 1.1])
    follower = 2.0 * q[0] + 0.5
    x = 2.0 * q[2] - follower - 0.4
    assert robot.constraint_residual(q) == pytest.approx([1.5 * q[1] + follower - (0.1 - 0.2 * x + 0.3 * x * x)])
    slope = -0.2 + 0.6 * x
    assert robot.constraint_jacobian(q) == pytest.approx(np.array([[2.0 + slope * 2.0, 1.5, -slope * 2.0]]))
    v = np.array([0.5, 0.6, 0.7])
    assert robot.constraint_bias(q, v) == pytest.approx([-0.6 * (2.0 * v[2] - 2.0 * v[0]) ** 2])


def test_a_linear_coupling_of_two_joints_moves_as_one_that_follows():
    """With the follower's own damping, spring, friction and rotor."""
    own = {"damping": 0.3, "stiffness": 4.0, "spring_reference": 0.2, "friction": 0.1, "armature": 0.05}
    follows = hand(mimic=("j0", -1.5, 0.4), **own).robot()
    coupled = hand(**own).coupling("c", {"j3": 1.0}, (0.4, -1.5), {"j0": 1.0}).robot()
    rng = np.random.default_rng(0)
    q, v, tau = rng.standard_normal((3, 5, 3))

    def whole(x, offset):
        return np.concatenate([x, -1.5 * x[:, :1] + offset], axis=-1)

    a = follows.forward_dynamics(q, v, tau)
    forces = np.concatenate([tau, np.zeros((5, 1))], axis=-1)
    for method in ("auto", "direct", "multipliers", "null_space"):
        b = coupled.forward_dynamics(whole(q, 0.4), whole(v, 0.0), forces, method=method)
        assert np.allclose(b, whole(a, 0.0), rtol=1e-10, atol=1e-10)
    d, e = follows.forward_dynamics_derivatives(q, v, tau), coupled.forward_dynamics_derivatives
    G = np.concatenate([np.eye(3), [[-1.5, 0, 0]]])
    slopes = e(whole(q, 0.4), whole(v, 0.0), forces)
    for of_one, of_other in ((d.dq, slopes.dq), (d.dv, slopes.dv)):
        assert np.allclose(of_other @ G, G @ of_one, rtol=1e-9, atol=1e-9 * np.abs(of_one).max())
    run, other = (
        robot.simulate(x, y, dt=1e-3, steps=200)
        for robot, x, y in ((follows, q, v), (coupled, whole(q, 0.4), whole(v, 0.0)))
    )
    assert np.allclose(other.q[..., :3], run.q, rtol=0, atol=1e-8)


def test_couplings_are_saved_compared_and_exported(tmp_path):
    b = hand().coupling("c", {"j1": 1.0}, (0.1, -0.2, 0.3), {"j2": 2.0})
    robot = b.robot()
    robot.save(tmp_path / "hand.json")
    again = qddot.load(tmp_path / "hand.json")
    assert again == robot
    assert again.model.constraints == robot.model.constraints
    assert isinstance(again.model.constraints[0].position, Coupling)
    others = [
        hand().coupling("c", {"j1": 1.0}, (0.1, -0.2, 0.30000000000000004), {"j2": 2.0}).robot(),
        hand().coupling("c", {"j1": 1.0}, (0.1, -0.2, 0.3), {"j0": 2.0}).robot(),
        hand().robot(),
    ]
    assert len({robot.model.digest, *(r.model.digest for r in others)}) == 4
    q, _ = robot.close_loops(np.array([0.1, 0.2, 0.3, 0.4]))
    v, tau = robot.project_velocity(q, np.ones(4)), np.ones(4)
    eager = constrained_dynamics.direct(robot.model, q, v, tau, rows=(0,))[:4]
    assert np.allclose(again.forward_dynamics(q, v, tau), eager, rtol=1e-12)
    run = robot.simulate(q, v, dt=1e-2, steps=5)
    run.save(tmp_path / "run")
    assert np.array_equal(qddot.load_trajectory(tmp_path / "run").q, run.q)
    assert "constrained_forward_dynamics" in str(robot.export_c("constrained_forward_dynamics").source)


WRONG = {
    "an unknown joint": (
        lambda b: b.coupling("c", {"j9": 1.0}),
        r"coupling 'c': 'j9' is no joint of one degree of freedom \(near: ",
    ),
    "a joint of two degrees of freedom": (
        lambda b: b.link("x", 1.0).joint("u", "l3", "x", Universal()).coupling("c", {"u": 1.0}),
        r"'u' is no joint of one degree of freedom",
    ),
    "no joints": (lambda b: b.coupling("c", {}), "it has no joints or no polynomial"),
    "no polynomial": (lambda b: b.coupling("c", {"j1": 1.0}, ()), "it has no joints or no polynomial"),
    "not finite": (lambda b: b.coupling("c", {"j1": float("nan")}), "its factors is .*give finite numbers"),
    "twice": (lambda b: b.coupling("c", {"j1": 1.0}).coupling("c", {"j1": 1.0}), "the name is used twice"),
    "a loop's name": (
        lambda b: b.coupling("c", {"j1": 1.0}).loop("c", "world", "l3", Revolute()),
        "a loop has this name, too",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_couplings_are_refused(name):
    declare, said = WRONG[name]
    with pytest.raises(qddot.ModelError, match=said):
        declare(hand()).model()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c["coupling"].update(left=[[7, 1.0]]), r"constraints\[0\]\.coupling\.left\[0\]\[0\]: it is 7"),
        (lambda c: c["coupling"].update(left=[[1]]), "write a place in q and a factor"),
        (lambda c: c["coupling"].update(polynomial=["x"]), "write a finite number"),
        (lambda c: c.update(rows=2), "write a whole number from 1 to 1"),
        (lambda c: c.update(code="x"), "unknown key 'code'"),
        (lambda c: c["coupling"].pop("reference"), "'reference' is missing"),
    ],
)
def test_wrong_couplings_in_files_are_refused(tmp_path, change, said):
    path = tmp_path / "hand.json"
    hand().coupling("c", {"j1": 1.0}, (0.1, -0.2, 0.3), {"j2": 2.0}).robot().save(path)
    content = json.loads(path.read_text())
    change(content["constraints"][0])
    path.write_text(json.dumps(content))
    with pytest.raises(qddot.FileError, match=said):
        qddot.load(path)
