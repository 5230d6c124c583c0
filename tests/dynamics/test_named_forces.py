"""External forces by name: where they act, in whose axes, in every function that takes forces, and their derivatives.

The joint forces of a wrench are Jᵀ times it, with the Jacobian of its frame in the axes that it is given in: an independent
way, by other kernels. Derivatives are compared with complex steps through `integrate`; Pinocchio judges both.
"""

import pickle
import re
import warnings

import numpy as np
import pytest

import qddot
from qddot import conventions
from qddot.dynamics import named_forces
from qddot.joints import Prismatic, Revolute, Spherical
from qddot.simulation import forces
from tests.support.peers import peer
from tests.support.pinocchio_case import Case
from tests.support.real_robots import URDFS, or_skipped
from tests.support.tolerances import COMPLEX_STEP

STEP = 1e-20
AXES = {"frame": "body", "world": "aligned", "link": "body"}
FEW_AXES = ["world", *(pytest.param(x, marks=pytest.mark.slow) for x in ("frame", "link"))]  # of tests that compile much


def crane():
    """A body on a rail with a ball joint, a hinge, and a tool that stands askew on the last link."""
    b = qddot.Builder("crane").link("body", 3.0, (0.1, 0, 0.2), np.diag([0.1, 0.2, 0.15]))
    b.link("arm", 1.0, (0.0, 0.3, 0.1), np.diag([0.02, 0.03, 0.04])).link(
        "hand", 0.5, (0.1, 0, 0), np.diag([1e-3, 2e-3, 2e-3])
    )
    b.joint("rail", "world", "body", Prismatic((0, 0, 1)), qddot.pose((0.0, 0.0, 0.0), (0.2, 0.1, 0.4)))
    b.joint("ball", "body", "arm", Spherical(), qddot.pose((0.1, 0.2, 0.3), (0.3, 0.1, 0.2)))
    b.joint("hinge", "arm", "hand", Revolute((0, 1, 0)), qddot.pose((0.0, 0.5, 0.0), (0.0, 0.4, 1.1)), damping=0.1)
    b.frame("tool", "hand", qddot.pose((0.2, -0.1, 0.05), (0.5, -0.7, 0.2)))
    return b.robot()


@pytest.fixture(scope="module")
def robot():
    return crane()


@pytest.fixture(scope="module")
def eager(robot):
    return qddot.Robot(robot.model, compiled=False)


class Pushed:
    """States, one or a batch, and two wrenches by name."""

    def __init__(self, robot, batch=(), seed=0):
        rng = np.random.default_rng(seed)
        states = [robot.random_state(rng) for _ in range(int(np.prod(batch)))]
        self.q, self.v = (np.stack(x).reshape(*batch, -1) for x in zip(*states, strict=True))
        self.a, self.tau = rng.standard_normal((2, *batch, robot.nv))
        self.wrenches = {"tool": rng.standard_normal((*batch, 6)), robot.link_names[0]: rng.standard_normal(6)}

    def inputs(self, function):
        if function.startswith("hybrid"):
            return self.q, self.v, self.a, self.tau
        return self.q, self.v, self.a if function.startswith("inverse") else self.tau


def close(x, y, tolerance=COMPLEX_STEP):
    assert np.shape(x) == np.shape(y)
    assert np.max(np.abs(np.asarray(x) - y), initial=0.0) <= tolerance * max(1.0, np.max(np.abs(y), initial=0.0))


@pytest.mark.parametrize("expressed_in", AXES)
@pytest.mark.parametrize("batch", [(), (3, 2), (0,)])
def test_a_wrench_acts_through_the_jacobian_of_its_frame(robot, expressed_in, batch):
    s = Pushed(robot, batch) if batch != (0,) else Pushed(robot, (4,))
    if batch == (0,):
        s.q, s.v, s.a = s.q[:0], s.v[:0], s.a[:0]
        s.wrenches["tool"] = s.wrenches["tool"][:0]
    pulled = robot.inverse_dynamics(s.q, s.v, s.a) - robot.inverse_dynamics(
        s.q, s.v, s.a, s.wrenches, expressed_in=expressed_in
    )
    expected = 0.0
    for name, wrench in s.wrenches.items():
        J = robot.jacobian(s.q, "hand" if expressed_in == "link" and name == "tool" else name, AXES[expressed_in])
        expected = expected + (np.swapaxes(J, -1, -2) @ wrench[..., None])[..., 0]
    close(pulled, expected, 1e-12)
    # an array of all links is the same by their names
    rows = np.random.default_rng(1).standard_normal((3, 6))
    named = dict(zip(robot.link_names, rows, strict=True))
    close(robot.link_forces(s.q, rows, expressed_in), robot.link_forces(s.q, named, expressed_in) + 0.0 * rows, 1e-14)


def test_wrenches_on_one_link_add_up_and_batches_broadcast(robot):
    s = Pushed(robot, (5,))
    both = {"tool": np.ones((2, 1, 6)), "hand": np.arange(6.0)}
    one = [robot.link_forces(s.q, {name: w}, "world") for name, w in both.items()]
    found = robot.link_forces(s.q, both, "world")
    assert found.shape == (2, 5, 3, 6)
    close(found, one[0] + one[1], 1e-14)
    assert robot.forward_dynamics(s.q, s.v, s.tau, both, expressed_in="world").shape == (2, 5, robot.nv)
    assert not robot.link_forces(s.q[0], {}).any()


def test_a_sample_that_is_not_finite_is_alone(robot):
    s = Pushed(robot, (3,))
    good = robot.forward_dynamics_derivatives(s.q, s.v, s.tau, s.wrenches, expressed_in="world").dq
    s.wrenches["tool"][1, 4] = np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = robot.forward_dynamics_derivatives(s.q, s.v, s.tau, s.wrenches, expressed_in="world").dq
    assert np.array_equal(found[[0, 2]], good[[0, 2]])
    assert not np.isfinite(found[1]).all()


FUNCTIONS = [
    "inverse_dynamics",
    "forward_dynamics",
    "hybrid_dynamics",
    "forward_dynamics_inertia_derivatives",
    "inverse_dynamics_second_derivatives",
    "forward_dynamics_second_derivatives",
    "inverse_dynamics_derivatives",
    "forward_dynamics_derivatives",
    "hybrid_dynamics_derivatives",
    "inverse_dynamics_derivative",
    "forward_dynamics_derivative",
    "hybrid_dynamics_derivative",
]


def flat(x):
    return np.concatenate([flat(y) for y in x]) if isinstance(x, tuple) else np.ravel(x)


@pytest.mark.parametrize("expressed_in", AXES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_function_takes_names(eager, function, expressed_in):
    """By name it is what the array of forces on the links gives, with the slope that the axes of the world have."""
    s = Pushed(eager)
    more = {"prescribed": ["hinge"]} if function.startswith("hybrid") else {}
    if function.endswith("_derivative"):
        more["by"] = ("q", 2)
    if expressed_in == "world" and "second" in function:
        with pytest.raises(qddot.InputError, match=r"second derivatives are of forces that stay .* 'world'\) as f_ext"):
            getattr(eager, function)(*s.inputs(function), s.wrenches, expressed_in=expressed_in)
        return
    found = getattr(eager, function)(*s.inputs(function), s.wrenches, expressed_in=expressed_in, **more)
    array, slope = eager.link_forces(s.q, s.wrenches, expressed_in), slopes(eager, s, expressed_in)
    if function.endswith("_derivative"):
        more["df_ext_dp"] = slope[..., 2]
    elif function in ("inverse_dynamics_derivatives", "forward_dynamics_derivatives", "hybrid_dynamics_derivatives"):
        more["df_ext_dq"] = slope
    close(flat(found), flat(getattr(eager, function)(*s.inputs(function), array, **more)))


def slopes(eager, s, expressed_in):
    """Of the forces on the links with respect to q, by complex steps."""
    steps = 1j * STEP * np.eye(eager.nv)
    moved = [eager.link_forces(eager.integrate(s.q, e), s.wrenches, expressed_in) for e in steps]
    return np.stack([x.imag / STEP for x in moved], axis=-1)


def test_slopes_in_the_axes_of_the_world(robot, eager):
    s = Pushed(robot)
    assert named_forces.slopes(robot.engine, s.q, s.wrenches, "frame") is None
    close(named_forces.slopes(robot.engine, s.q, s.wrenches, "world"), slopes(eager, s, "world"))


@pytest.mark.parametrize("expressed_in", FEW_AXES)
def test_derivatives_of_the_whole_by_complex_steps(robot, eager, expressed_in):
    """Nothing of the chain rule is shared: accelerations and forces themselves are differentiated."""
    s, given = Pushed(robot), {"expressed_in": expressed_in}
    steps = 1j * STEP * np.eye(robot.nv)
    for function, third in (("inverse_dynamics", s.a), ("forward_dynamics", s.tau)):
        run = getattr(eager, function)
        by_q = [run(eager.integrate(s.q, e), s.v, third, s.wrenches, **given).imag / STEP for e in steps]
        d = getattr(robot, f"{function}_derivatives")(s.q, s.v, third, s.wrenches, **given)
        close(d.dq, np.stack(by_q, axis=-1), 1e-10)
        by_v = [run(s.q, s.v + e, third, s.wrenches, **given).imag / STEP for e in steps]
        close(d.dv, np.stack(by_v, axis=-1), 1e-10)
        one = getattr(robot, f"{function}_derivative")(s.q, s.v, third, s.wrenches, by=("q", 3), **given)
        close(one, d.dq[:, 3], 1e-10)
        pickle.loads(pickle.dumps(d))
    many = Pushed(robot, (3,))
    d = robot.forward_dynamics_derivatives(many.q, many.v, many.tau, many.wrenches, **given)
    for k in range(3):
        own = {name: w if w.ndim == 1 else w[k] for name, w in many.wrenches.items()}
        alone = robot.forward_dynamics_derivatives(many.q[k], many.v[k], many.tau[k], own, **given)
        close(d.dq[k], alone.dq, 1e-12)


@pytest.mark.parametrize("expressed_in", FEW_AXES)
def test_loops_take_names(expressed_in):
    robot = qddot.load("fivebar")
    q, _ = robot.close_loops(robot.neutral() + 0.1)
    v = robot.project_velocity(q, [1.0, 0.3, 0.0, 0.0])
    a, tau, wrenches = robot.forward_dynamics(q, v, np.ones(4)), np.ones(4), {robot.link_names[1]: np.arange(6.0)}
    array, named = robot.link_forces(q, wrenches, expressed_in), {"f_ext": wrenches, "expressed_in": expressed_in}
    calls = [
        ("inverse_dynamics", (q, v, a), {"choice": "torque"}),
        ("forward_dynamics", (q, v, tau), {}),
        ("hybrid_dynamics", (q, v, a, tau), {"prescribed": ["left_shoulder"]}),
        ("constrained_forward_dynamics", (q, v, tau), {}),
        ("constrained_inverse_dynamics", (q, v, a), {"choice": "torque"}),
        ("constrained_hybrid_dynamics", (q, v, a, tau), {"prescribed": ["left_shoulder"]}),
    ]
    for function, inputs, more in calls:
        run = getattr(robot, function)
        close(flat(run(*inputs, **named, **more)), flat(run(*inputs, array, **more)), 1e-14)
        assert np.max(np.abs(flat(run(*inputs, **named, **more)) - flat(run(*inputs, **more)))) > 0.1  # it does something
    by_q = named_forces.slopes(robot.engine, q, wrenches, expressed_in)
    found = robot.constrained_forward_dynamics_derivatives(q, v, tau, **named)
    expected = robot.constrained_forward_dynamics_derivatives(q, v, tau, array, df_ext_dq=by_q)
    close(found.a.dq, expected.a.dq, 1e-14)
    close(found.lam.dq, expected.lam.dq, 1e-14)
    close(robot.forward_dynamics_derivatives(q, v, tau, **named).dq, expected.a.dq, 1e-14)


@pytest.mark.parametrize("path", or_skipped([p for p in URDFS if p.name == "panda.urdf"][:1]), ids=lambda p: p.stem)
@pytest.mark.parametrize("floating", [False, True])
def test_pinocchio(path, floating):
    pin = peer("pinocchio")
    c = Case(path, floating)
    frame = "panda_hand"
    number = c.pin.getFrameId(frame)
    given = np.random.default_rng(0).standard_normal(6)  # moment, force
    for k in range(3):
        pin.forwardKinematics(c.pin, c.data, c.pq[k])
        pin.updateFramePlacements(c.pin, c.data)
        placed = c.pin.frames[number].placement
        aligned = pin.SE3(c.data.oMf[number].rotation, np.zeros(3))
        theirs = pin.Force(np.r_[given[3:], given[:3]])
        for expressed_in, wrench in (("frame", theirs), ("world", aligned.actInv(theirs))):
            f_ext = pin.StdVec_Force()
            for joint in range(c.pin.njoints):
                f_ext.append(placed.act(wrench) if joint == c.pin.frames[number].parentJoint else pin.Force.Zero())
            inverse = pin.rnea(c.pin, c.data, c.pq[k], c.pv[k], c.pa[k], f_ext)
            ours = c.robot.inverse_dynamics(c.q[k], c.v[k], c.a[k], {frame: given}, expressed_in=expressed_in)
            close(ours, conventions.from_pinocchio_tau(*c.layout, c.q[k], inverse.copy()), 1e-10)


WRONG = {
    "a name": ({"tol": np.zeros(6)}, "world", qddot.UnknownNameError, "did you mean 'tool'"),
    "no name": ({3: np.zeros(6)}, "world", qddot.InputError, "give one name"),
    "what does not move": ({"world": np.zeros(6)}, "frame", qddot.InputError, "'world' does not move"),
    "three numbers": ({"tool": np.zeros(3)}, "frame", qddot.InputError, r"'tool' has shape \(3,\), but must be \(..., 6\)"),
    "no numbers": ({"tool": "up"}, "frame", qddot.InputError, "must hold numbers"),
    "axes": ({"tool": np.zeros(6)}, "body", qddot.InputError, "expressed_in='body' is not known; take 'frame', 'link'"),
    "no axes": ({"tool": np.zeros(6)}, ["world"], qddot.InputError, "expressed_in"),
    "batches": ({"tool": np.zeros((2, 6)), "hand": np.zeros((3, 6))}, "frame", qddot.InputError, "do not fit together"),
    "batches and q": (
        {"tool": np.zeros((2, 6))},
        "world",
        qddot.InputError,
        r"'tool', \(2,\), do not fit those of q, \(3,\)",
    ),
    "an array": (np.zeros((4, 6)), "world", qddot.InputError, r"must be \(..., 3, 6\)"),
}


@pytest.mark.parametrize("what", WRONG)
def test_errors(robot, what):
    given, expressed_in, kind, message = WRONG[what]
    s = Pushed(robot, (3,))
    for run in (
        lambda: robot.link_forces(s.q, given, expressed_in),
        lambda: robot.forward_dynamics(s.q, s.v, s.tau, given, expressed_in=expressed_in),
        lambda: robot.inverse_dynamics_derivatives(s.q, s.v, s.a, given, expressed_in=expressed_in),
        lambda: robot.inverse_dynamics_derivative(s.q, s.v, s.a, given, by=("q", 0), expressed_in=expressed_in),
    ):
        with pytest.raises(kind, match=message):
            run()


def test_slopes_that_would_be_wrong_are_refused(robot):
    s, slope = Pushed(robot), np.zeros((3, 6, robot.nv))
    world = {"expressed_in": "world"}
    for name in ("df_ext_dq", "df_ext_dv"):
        with pytest.raises(qddot.InputError, match=f"{name}= is a slope of forces in the links' frames"):
            robot.forward_dynamics_derivatives(s.q, s.v, s.tau, s.wrenches, **world, **{name: slope})
        with pytest.raises(qddot.InputError, match=f"{name}= is a slope of f_ext, which is not given"):
            robot.forward_dynamics_derivatives(s.q, s.v, s.tau, **{name: slope})
    for by in (("placement", "hand", np.ones(6)), ("f_ext", "hand", 3)):
        with pytest.raises(qddot.InputError, match=f"no derivative with respect to '{by[0]}'"):
            robot.forward_dynamics_derivative(s.q, s.v, s.tau, s.wrenches, by=by, **world)
        robot.forward_dynamics_derivative(s.q, s.v, s.tau, s.wrenches, by=by, expressed_in="frame")
    with pytest.raises(qddot.InputError, match="df_ext_dp= is a slope of forces in the links' frames"):
        robot.forward_dynamics_derivative(s.q, s.v, s.tau, s.wrenches, by=("q", 0), df_ext_dp=slope[..., 0], **world)
    for function in ("forward_dynamics_derivatives", "constrained_inverse_dynamics"):
        owner = robot if function.startswith("forward") else qddot.load("fivebar")
        with pytest.raises(TypeError, match=re.escape(f"{function}() got an unexpected keyword argument 'expresed_in'")):
            getattr(owner, function)(owner.neutral(), np.zeros(owner.nv), np.zeros(owner.nv), expresed_in="world")


# ---- the forces of simulations at given states ---------------------------------------------------------------------------


def laws(robot):
    return {
        "ground": forces.ground(robot, ["hand", ("tool", (0.0, 0.1, 0.0))], height=0.3, stiffness=1e3),
        "spring": forces.spring(robot, "world", "tool", 50.0, length=0.1, damping=2.0),
        "wind": forces.wind(robot, (3.0, 0.0, 1.0), {"arm": 0.1, "hand": 0.2}),
        **{f"wrench {x}": forces.wrench(robot, {"tool": np.arange(6.0), "arm": np.ones(6)}, x) for x in AXES},
    }


MORE_LAWS = [pytest.param(x, marks=pytest.mark.slow) for x in ("spring", "wind", "wrench frame", "wrench link")]


@pytest.mark.parametrize("name", ["ground", "wrench world", *MORE_LAWS])
def test_forces_of_one_state(robot, eager, name):
    """What a simulation is given acts the same at a state, and so do its slopes, by differences."""
    law, s = laws(robot)[name], Pushed(robot, (2, 3))
    s.q[..., 0] = -0.1  # of the rail, so that some points are in the ground
    found = law.forces(robot, s.q, s.v)
    assert found.shape == (2, 3, 3, 6)
    close(found, law.forces(eager, s.q, s.v), 1e-13)
    close(found[1, 2], law(0.0, s.q[1, 2], s.v[1, 2]), 1e-13)
    assert np.abs(found).max() > 1.0
    by_q, by_v = law.slopes(robot, s.q, s.v)
    assert by_q.shape == by_v.shape == (2, 3, 3, 6, robot.nv)
    h = 1e-6  # differences of 1e4 N/m keep six digits
    for k, e in enumerate(h * np.eye(robot.nv)):
        ahead, back = (law.forces(robot, robot.integrate(s.q, d), s.v) for d in (e, -e))
        close(by_q[..., k], (ahead - back) / (2 * h), 1e-6)
        close(by_v[..., k], (law.forces(robot, s.q, s.v + e) - law.forces(robot, s.q, s.v - e)) / (2 * h), 1e-6)
    if name.startswith("wrench"):
        named = robot.link_forces(s.q, {"tool": np.arange(6.0), "arm": np.ones(6)}, name.split()[1])
        close(np.broadcast_to(named, found.shape), found, 1e-13)


def test_a_simulation_accelerates_by_the_forces_of_its_state(robot):
    law, s, h = laws(robot)["ground"], Pushed(robot), 1e-4
    s.q[0] = -0.1
    run = robot.simulate(s.q, s.v, s.tau[None], forces=law, dt=h, steps=1, integrator="semi_implicit_euler")
    a = robot.forward_dynamics(s.q, s.v, s.tau, law.forces(robot, s.q, s.v))
    close((run.v[1] - s.v) / h, a, 1e-9)


def test_forces_are_of_their_robot(robot):
    law, other = laws(robot)["ground"], robot.with_parameters({"hand.mass": 0.9})
    q, v = Pushed(robot).q, Pushed(robot).v
    close(law.forces(other, q, v), law.forces(robot, q, v), 1e-14)
    arm = qddot.load("puma560")
    with pytest.raises(qddot.InputError, match="'crane', whose links and joints are not those of 'puma560'"):
        law.forces(arm, arm.neutral(), np.zeros(6))
    with pytest.raises(qddot.InputError, match="last axis must have 6"):
        law.forces(robot, q[:3], v)
    with pytest.raises(qddot.InputError, match="give six finite numbers"):
        forces.wrench(robot, {"tool": [0, 0, 0, 0, 0, np.nan]})
    with pytest.raises(qddot.InputError, match=r"forces.wrench\(robot"):
        robot.simulate(q, v, forces={"tool": np.zeros(6)}, dt=1e-3, steps=1)
