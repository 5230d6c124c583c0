"""What is given comes back: every public method of `Robot` on arrays of NumPy, torch and JAX, in both precisions."""

import dataclasses
import inspect
import sys

import numpy as np
import pytest

import qddot
from qddot import tasks
from qddot.robot.array_arguments import DIRECT

BATCH = 3


@pytest.fixture(scope="module")
def arm():
    return qddot.load("scara")


@pytest.fixture(scope="module")
def fivebar():
    return qddot.load("fivebar")


@dataclasses.dataclass
class State:
    """What methods are given: arrays of the kind that a test is about."""

    robot: qddot.Robot
    make: object

    def __post_init__(self):
        robot, make = self.robot, self.make
        q, v = robot.random_state(0, BATCH)
        if robot.model.is_constrained:
            q = robot.close_loops(np.broadcast_to(robot.neutral(), q.shape))[0]
            v = robot.project_velocity(q, 0.1 * v)
        self.a = make(0.3 * v if not robot.model.is_constrained else robot.forward_dynamics(q, v, 0.0 * v))
        self.q, self.v, self.tau = make(q), make(v), make(0.1 * v)
        self.f_ext = make(np.ones((robot.model.n_links, 6)))
        self.wrench = {robot.link_names[-1]: make(np.ones((BATCH, 6)))}
        self.frame = robot.link_names[-1]
        self.pose, self.rows = make(robot.pose(q, self.frame)), [3, 4, 5]
        self.point, self.hold = make(robot.pose(q, self.frame)[..., :3, 3]), [robot.joint_names[0]]
        self.slopes = make(np.ones((robot.model.n_links, 6, robot.nv)))
        self.slope = make(np.ones((robot.model.n_links, 6)))


# Calls of each method that takes numbers, or gives numbers of the robot's state. The first argument is the state above.
TREE = {
    "acceleration": [lambda r, s: r.acceleration(s.q, s.v, s.a, s.frame)],
    "acceleration_by_force": [lambda r, s: r.acceleration_by_force(s.q, s.frame)],
    "bias_force": [lambda r, s: r.bias_force(s.q, s.v)],
    "center_of_mass": [lambda r, s: r.center_of_mass(s.q)],
    "center_of_mass_jacobian": [lambda r, s: r.center_of_mass_jacobian(s.q)],
    "center_of_mass_jacobian_derivative": [lambda r, s: r.center_of_mass_jacobian_derivative(s.q, s.v)],
    "centroidal_momentum_matrix": [lambda r, s: r.centroidal_momentum_matrix(s.q)],
    "centroidal_momentum_matrix_derivative": [lambda r, s: r.centroidal_momentum_matrix_derivative(s.q, s.v)],
    "clip_configuration": [lambda r, s: r.clip_configuration(s.q)],
    "contact_inverse_dynamics": [
        lambda r, s: [
            getattr(r.contact_inverse_dynamics(s.q, s.v, wanted, [tasks.Contact(s.frame)], limits=False), name)
            for wanted in ([tasks.JointAcceleration(s.a)], [tasks.FrameAcceleration(s.frame, linear=s.point)])
            for name in ("a", "tau", "forces")
        ]
    ],
    "coriolis_matrix": [lambda r, s: r.coriolis_matrix(s.q, s.v)],
    "difference": [lambda r, s: r.difference(s.q, s.q)],
    "dynamically_consistent_inverse": [lambda r, s: r.dynamically_consistent_inverse(s.q, s.frame, s.rows)],
    "external_force_jacobian": [lambda r, s: r.external_force_jacobian(s.q)],
    "forward_dynamics": [
        lambda r, s: r.forward_dynamics(s.q, s.v, s.tau),
        lambda r, s: r.forward_dynamics(s.q[0], s.v[0], s.tau[0]),
        lambda r, s: r.forward_dynamics(s.q, s.v, s.tau, s.f_ext),
        lambda r, s: r.forward_dynamics(s.q, s.v, s.tau, f_ext=s.wrench),
        lambda r, s: r.forward_dynamics(s.q, s.v, tau=s.tau, f_ext=s.wrench, expressed_in="world"),
    ],
    "forward_dynamics_derivative": [
        lambda r, s: r.forward_dynamics_derivative(s.q, s.v, s.tau, by=("q", r.joint_names[1])),
        lambda r, s: r.forward_dynamics_derivative(s.q, s.v, s.tau, s.f_ext, by=("q", r.joint_names[1]), df_ext_dp=s.slope),
    ],
    "forward_dynamics_derivatives": [
        lambda r, s: r.forward_dynamics_derivatives(s.q, s.v, s.tau),
        lambda r, s: derivatives(r.forward_dynamics_derivatives(s.q, s.v, s.tau, s.f_ext, df_ext_dq=s.slopes)),
        lambda r, s: derivatives(r.forward_dynamics_derivatives(s.q, s.v, s.tau, s.wrench, expressed_in="world")),
    ],
    "forward_dynamics_inertia_derivatives": [
        lambda r, s: r.forward_dynamics_inertia_derivatives(s.q, s.v, s.tau),
        lambda r, s: r.forward_dynamics_inertia_derivatives(s.q, s.v, s.tau, s.wrench),
    ],
    "forward_dynamics_second_derivatives": [lambda r, s: r.forward_dynamics_second_derivatives(s.q, s.v, s.tau)],
    "forward_kinematics": [lambda r, s: r.forward_kinematics(s.q)],
    "gravity_force": [lambda r, s: r.gravity_force(s.q)],
    "hybrid_dynamics": [
        lambda r, s: r.hybrid_dynamics(s.q, s.v, s.a, s.tau, prescribed=s.hold),
        lambda r, s: r.hybrid_dynamics(s.q, s.v, s.a, s.tau, s.wrench, prescribed=s.hold),
    ],
    "hybrid_dynamics_derivative": [
        lambda r, s: r.hybrid_dynamics_derivative(s.q, s.v, s.a, s.tau, prescribed=s.hold, by=("q", r.joint_names[1]))
    ],
    "hybrid_dynamics_derivatives": [
        lambda r, s: r.hybrid_dynamics_derivatives(s.q, s.v, s.a, s.tau, prescribed=s.hold),
        lambda r, s: derivatives(r.hybrid_dynamics_derivatives(s.q, s.v, s.a, s.tau, s.f_ext, prescribed=s.hold).tau),
    ],
    "integrate": [lambda r, s: r.integrate(s.q, s.v), lambda r, s: r.integrate(s.q[0], s.v, 0.1)],
    "inverse_dynamics": [
        lambda r, s: r.inverse_dynamics(s.q, s.v, s.a),
        lambda r, s: r.inverse_dynamics(s.q[0], s.v[0], s.a[0]),
        lambda r, s: r.inverse_dynamics(s.q, s.v[0], s.a[1]),
        lambda r, s: r.inverse_dynamics(s.q, s.v, s.a, s.f_ext),
        lambda r, s: r.inverse_dynamics(s.q, s.v, s.a, s.wrench, expressed_in="world"),
    ],
    "inverse_dynamics_derivative": [
        lambda r, s: r.inverse_dynamics_derivative(s.q, s.v, s.a, by=("inertia", s.frame, list(range(10))))
    ],
    "inverse_dynamics_derivatives": [
        lambda r, s: r.inverse_dynamics_derivatives(s.q, s.v, s.a),
        lambda r, s: derivatives(r.inverse_dynamics_derivatives(s.q, s.v, s.a, s.f_ext, df_ext_dv=s.slopes)),
    ],
    "inverse_dynamics_second_derivatives": [
        lambda r, s: r.inverse_dynamics_second_derivatives(s.q, s.v, s.a),
        lambda r, s: r.inverse_dynamics_second_derivatives(s.q, s.v, s.a, s.f_ext),
    ],
    "inverse_kinematics": [
        lambda r, s: r.inverse_kinematics({s.frame: s.pose}, s.q).q,
        lambda r, s: r.inverse_kinematics({s.frame: s.pose}).q,
        lambda r, s: r.inverse_kinematics(tasks.Position(s.frame, s.point), s.q).q,
        lambda r, s: r.inverse_kinematics([tasks.Position(s.frame, s.point), tasks.Posture(s.q, 0.1)]).q,
    ],
    "jacobian": [lambda r, s, x=x: r.jacobian(s.q, s.frame, x) for x in ("body", "world", "aligned")],
    "jacobian_derivative": [lambda r, s: r.jacobian_derivative(s.q, s.v, s.frame)],
    "kinetic_energy": [lambda r, s: r.kinetic_energy(s.q, s.v), lambda r, s: r.kinetic_energy(s.q[0], s.v[0])],
    "link_forces": [lambda r, s, x=x: r.link_forces(s.q, s.wrench, x) for x in ("frame", "link", "world")],
    "mass_matrix": [lambda r, s: r.mass_matrix(s.q), lambda r, s: r.mass_matrix(s.q[0])],
    "mass_matrix_inverse": [lambda r, s: r.mass_matrix_inverse(s.q)],
    "momentum": [lambda r, s: r.momentum(s.q, s.v)],
    "normalize": [lambda r, s: r.normalize(s.q)],
    "null_space_projector": [lambda r, s: r.null_space_projector(s.q, s.frame, s.rows)],
    "operational_space": [lambda r, s: r.operational_space(s.q, s.v, s.frame, s.rows)],
    "operational_space_bias_force": [lambda r, s: r.operational_space_bias_force(s.q, s.v, s.frame, s.rows)],
    "operational_space_inertia": [lambda r, s: r.operational_space_inertia(s.q, s.frame, s.rows)],
    "operational_space_inverse_inertia": [lambda r, s: r.operational_space_inverse_inertia(s.q, s.frame)],
    "passive_force": [lambda r, s: r.passive_force(s.q, s.v)],
    "pose": [lambda r, s: r.pose(s.q, s.frame)],
    "potential_energy": [lambda r, s: r.potential_energy(s.q)],
    "regressor": [lambda r, s: r.regressor(s.q, s.v, s.a)],
    "velocity": [lambda r, s: r.velocity(s.q, s.v, s.frame)],
}
LOOPS = {
    "close_loops": [lambda r, s: r.close_loops(s.q), lambda r, s: r.close_loops(s.q, hold=s.hold)],
    "constrained_forward_dynamics": [lambda r, s: r.constrained_forward_dynamics(s.q, s.v, s.tau)],
    "constrained_forward_dynamics_derivatives": [
        lambda r, s: r.constrained_forward_dynamics_derivatives(s.q, s.v, s.tau),
        lambda r, s: derivatives(r.constrained_forward_dynamics_derivatives(s.q, s.v, s.tau, s.f_ext).a),
    ],
    "constrained_hybrid_dynamics": [
        lambda r, s: r.constrained_hybrid_dynamics(s.q, s.v, s.a, s.tau, prescribed=r.actuated_joints)
    ],
    "constrained_inverse_dynamics": [lambda r, s: r.constrained_inverse_dynamics(s.q, s.v, s.a)],
    "constraint_bias": [lambda r, s: r.constraint_bias(s.q, s.v)],
    "constraint_jacobian": [lambda r, s: r.constraint_jacobian(s.q)],
    "constraint_jacobian_derivatives": [lambda r, s: r.constraint_jacobian_derivatives(s.q)],
    "constraint_residual": [lambda r, s: r.constraint_residual(s.q)],
    "forward_dynamics": [lambda r, s: r.forward_dynamics(s.q, s.v, s.tau, s.f_ext)],
    "forward_dynamics_derivatives": [lambda r, s: r.forward_dynamics_derivatives(s.q, s.v, s.tau)],
    "hybrid_dynamics": [lambda r, s: r.hybrid_dynamics(s.q, s.v, s.a, s.tau, prescribed=r.actuated_joints)],
    "inverse_dynamics": [lambda r, s: r.inverse_dynamics(s.q, s.v, s.a)],
    "project_velocity": [lambda r, s: r.project_velocity(s.q, s.v)],
}
# Methods that give something else than arrays of a state's kind: they take arrays of every kind, NumPy's come out.
OTHERS = {
    "attach": lambda r, s: r.attach(qddot.load("pendulum"), s.frame, np.eye(4)),
    "export_inverse_kinematics": lambda r, s: r.export_inverse_kinematics({s.frame: s.pose[0]}, cc=""),
    "locked": lambda r, s: r.locked({r.joint_names[0]: s.q[0, 0]}),
    "simulate": lambda r, s: r.simulate(s.q, s.v, s.tau[:, None], dt=1e-3, steps=2, limits="ignore"),
    "simulator": lambda r, s: stepped(r.simulator(dt=1e-3), s),
    "trace": lambda r, s: r.trace("inverse_dynamics", s.q[0], s.v[0], s.a[0]),
    "with_gravity": lambda r, s: r.with_gravity(s.tau[0, :3]),
    "with_parameters": lambda r, s: r.with_parameters({f"{s.frame}.mass": s.point[0, 2] * 0 + 1.5}),
    "with_payload": lambda r, s: r.with_payload(s.frame, 1.0, com=s.point[0]),
}
# Methods without numbers of a state.
WORDS = """base_parameters check configuration control_functions export_c export_library export_project export_source
kernel neutral parameters random_state renamed save scaled show spanning_tree subtree with_base with_constraint
with_loop_tolerance torch jax rollout"""
NONE = set(WORDS.split())


def derivatives(d):
    return *d, d.df_ext


def stepped(simulator, s):
    simulator.reset(s.q, s.v)
    return simulator.step(s.tau)


def torch_of(dtype):
    torch = pytest.importorskip("torch")
    return lambda x: torch.from_numpy(np.array(x, dtype))


def jax_of(x64, dtype=np.float64):
    jax = pytest.importorskip("jax")
    with jax.enable_x64(x64):
        return lambda x: with_x64(x64, lambda: jax.numpy.asarray(np.asarray(x, dtype)))


def with_x64(on, run):
    jax = sys.modules["jax"]
    with jax.enable_x64(on):
        return run()


KINDS = {
    "numpy float64": lambda: lambda x: np.array(x, float),
    "numpy float32": lambda: lambda x: np.array(x, np.float32),
    "torch float64": lambda: torch_of(np.float64),
    "torch float32": lambda: torch_of(np.float32),
    "jax float64": lambda: jax_of(True),
    "jax float32": lambda: jax_of(False),
    "jax float32 with x64": lambda: jax_of(True, np.float32),
}


def leaves(x):
    """Arrays in a result."""
    if isinstance(x, (tuple, list)):
        return [y for part in x for y in leaves(part)]
    return [x]


def public_methods():
    return {
        name
        for name in dir(qddot.Robot)
        if not name.startswith("_") and inspect.isfunction(inspect.getattr_static(qddot.Robot, name))
    }


def test_every_method_has_an_example():
    assert public_methods() == (TREE.keys() | LOOPS.keys() | OTHERS.keys() | NONE) & public_methods()
    assert not (TREE.keys() | LOOPS.keys() | OTHERS.keys()) - public_methods()
    assert not public_methods() & DIRECT - (TREE.keys() | LOOPS.keys())


def check(robot, calls, kind):
    make = KINDS[kind]()
    state, plain = State(robot, make), State(robot, lambda x: np.array(x, float))
    single = "float32" in kind
    for call in calls:
        x64 = with_x64 if kind.startswith("jax") else lambda on, run: run()
        found = leaves(x64(kind != "jax float32", lambda call=call: call(robot, state)))
        wanted = leaves(call(robot, plain))
        assert len(found) == len(wanted) > 0
        for x, y in zip(found, wanted, strict=True):
            like = state.q
            assert isinstance(x, (type(like), np.generic) if isinstance(like, np.ndarray) else type(like))
            assert str(x.dtype).rpartition(".")[2] == ("float32" if single else "float64")
            assert getattr(x, "device", None) == getattr(like, "device", None)
            assert tuple(x.shape) == y.shape
            if single:  # a few thousand roundings of 6e-8, magnified by the condition of M
                np.testing.assert_allclose(np.asarray(x), y, atol=3e-3 * np.max(np.abs(y), initial=1.0), rtol=0)
            else:
                np.testing.assert_array_equal(np.asarray(x), y)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", TREE)
def test_a_method_gives_back_what_it_is_given(arm, method, kind):
    if method == "contact_inverse_dynamics":
        pytest.importorskip("daqp")
    check(arm, TREE[method], kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", LOOPS)
def test_a_method_of_loops_gives_back_what_it_is_given(fivebar, method, kind):
    check(fivebar, LOOPS[method], kind)
