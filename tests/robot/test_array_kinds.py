"""What is given comes back: every public method of `Robot` on arrays of NumPy, torch and JAX, in both precisions."""

import dataclasses
import inspect
import os
import subprocess
import sys

import numpy as np
import pytest

import qddot
from qddot import tasks
from qddot.compiler.runtime import array_kinds
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
    "step_derivatives": [lambda r, s: tuple(r.step_derivatives(s.q, s.v, s.tau, dt=1e-3))],
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
    "simulate": lambda r, s: r.simulate(s.q, s.v, s.tau[:, None], dt=1e-3, steps=1, limits="ignore"),
    "simulator": lambda r, s: stepped(r.simulator(dt=1e-3), s),
    "trace": lambda r, s: r.trace("inverse_dynamics", s.q[0], s.v[0], s.a[0]),
    "with_gravity": lambda r, s: r.with_gravity(s.tau[0, :3]),
    "with_parameters": lambda r, s: r.with_parameters({f"{s.frame}.mass": s.point[0, 2] * 0 + 1.5}),
    "with_payload": lambda r, s: r.with_payload(s.frame, 1.0, com=s.point[0]),
}
# Methods without numbers of a state.
WORDS = """base_parameters check configuration control_functions export_c export_library export_project export_source
kernel neutral parameters random_state renamed save scaled show spanning_tree subtree with_base with_constraint
with_loop_tolerance torch jax rollout differentiable_rollout"""
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


@pytest.mark.parametrize("kind", ["numpy float32", "torch float64", "jax float32"])
@pytest.mark.parametrize("method", OTHERS)
def test_a_method_of_other_results_takes_arrays_of_every_kind(arm, method, kind):
    make = KINDS[kind]()
    state = State(arm, make)
    run = with_x64 if kind.startswith("jax") else lambda on, run: run()
    assert run(False, lambda: OTHERS[method](arm, state)) is not None


# ---- kernels


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_kernels_give_the_package_of_their_inputs(arm, dtype):
    """The type is the kernel's own, as it was asked of it."""
    torch = pytest.importorskip("torch")
    kernel, (q, v) = arm.kernel("forward_dynamics", dtype=dtype), arm.random_state(0, 5)
    wanted = kernel(q, v, v)
    for make in (torch.from_numpy, lambda x: torch.from_numpy(x.astype(np.float32))):
        result = kernel(make(q), make(v), make(v))
        assert isinstance(result, torch.Tensor)
        assert str(result.dtype) == f"torch.{dtype}"
        np.testing.assert_allclose(result.numpy(), wanted, rtol=1e-2, atol=1e-3)  # a state rounded to seven digits
    out = torch.empty((5, arm.nv), dtype=getattr(torch, dtype))
    assert kernel(torch.from_numpy(q), v, v, out=out) is out
    np.testing.assert_array_equal(out.numpy(), wanted)
    with pytest.raises(qddot.InputError, match="1 arrays were given"):
        kernel(torch.from_numpy(q))
    with pytest.raises(qddot.InputError, match="q keeps gradients"):
        kernel(torch.from_numpy(q).requires_grad_(), v, v)


# ---- types


def test_single_precision_is_computed_by_kernels_in_single_precision(arm):
    q, v = (x.astype(np.float32) for x in arm.random_state(0, 20))
    single = arm.kernel("forward_dynamics", dtype="float32")
    np.testing.assert_array_equal(arm.forward_dynamics(q, v, v), single(q, v, v))
    np.testing.assert_array_equal(arm.forward_dynamics(q[3], v[3], v[3]), single(q[3], v[3], v[3]))


MIXED = [
    ((np.float32, np.float32, np.float64), np.float64),
    ((np.float64, np.float32, np.float32), np.float64),
    ((np.float32, np.int64, np.float32), np.float64),
    ((np.float32, list, np.float32), np.float64),
    ((list, list, list), np.float64),
    ((np.int32, np.int64, bool), np.float64),
    ((np.float32, np.float32, np.float32), np.float32),
]


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(("types", "wanted"), MIXED)
def test_types_are_promoted_as_numpy_does(arm, types, wanted, compiled):
    robot = qddot.Robot(arm.model, compiled)
    q, v = np.round(4 * np.array(arm.random_state(0, 3)))
    given = [x.tolist() if t is list else x.astype(t) for x, t in zip((q, v, v), types, strict=True)]
    assert robot.inverse_dynamics(*given).dtype == wanted
    assert robot.forward_dynamics(*given).dtype == wanted
    assert robot.integrate(*given[:2]).dtype == np.result_type(*(float if t is list else t for t in types[:2]), np.float32)


def test_half_precision_is_refused(arm):
    q, v = arm.random_state(0)
    for method in (arm.mass_matrix, arm.normalize):
        with pytest.raises(qddot.InputError, match=r"q holds float16.*q\.astype\('float32'\)"):
            method(q.astype(np.float16))
    torch = pytest.importorskip("torch")
    for name in ("float16", "bfloat16"):
        with pytest.raises(qddot.InputError, match=rf"q holds {name}.*q\.to\(torch\.float32\)"):
            arm.bias_force(torch.from_numpy(q).to(getattr(torch, name)), v)


def test_nan_and_views_and_empty_batches(arm):
    torch = pytest.importorskip("torch")
    q, v = arm.random_state(0, 7)
    q[2, 1] = np.nan
    tq, tv = torch.from_numpy(q), torch.from_numpy(v)
    a = arm.forward_dynamics(tq, tv, tv)
    assert torch.isnan(a).any(-1).tolist() == [k == 2 for k in range(7)]
    columns = torch.from_numpy(np.asfortranarray(q)), tv.flip(0), tv[::2].repeat(2, 1)[:7]
    np.testing.assert_array_equal(
        arm.forward_dynamics(*columns).numpy(), arm.forward_dynamics(*(x.numpy() for x in columns))
    )
    assert tuple(arm.forward_dynamics(tq[:0], tv[:0], tv[:0]).shape) == (0, arm.nv)
    assert arm.forward_dynamics(tq[:0].float(), tv[:0].float(), tv[:0].float()).dtype == torch.float32
    with pytest.raises(qddot.InputError, match=r"q has shape \(7, 3\)"):
        arm.forward_dynamics(tq[:, :3], tv, tv)


# ---- what is not dropped in silence


def test_gradients_are_not_dropped(arm):
    torch = pytest.importorskip("torch")
    q, v = map(torch.from_numpy, arm.random_state(0, 3))
    leaf = v.clone().requires_grad_()
    bare = qddot.Robot(arm.model)
    bare.torch = lambda: None
    calls = {
        "forward_dynamics": lambda v: bare.forward_dynamics(q, v, q),
        "integrate": lambda v: bare.integrate(q, v),
        "hybrid_dynamics": lambda v: bare.hybrid_dynamics(q, v, q, q, prescribed=[]),
        "inverse_dynamics_derivatives": lambda v: bare.inverse_dynamics_derivatives(q, v, q),
        "simulate": lambda v: bare.simulate(q, v, dt=1e-3, steps=1),
    }
    for name, call in calls.items():
        with pytest.raises(qddot.InputError, match=rf"v0? keeps gradients.*Robot\.{name} has none; robot\.torch\(\)"):
            call(leaf)
        with pytest.raises(qddot.InputError, match=r"v0? keeps gradients"), torch.autograd.forward_ad.dual_level():
            call(torch.autograd.forward_ad.make_dual(v, v))
        with torch.no_grad():
            call(leaf)
    for transform in (torch.func.grad, torch.func.vmap, torch.func.jacrev, torch.func.jacfwd):
        with pytest.raises(qddot.InputError, match="v keeps gradients"):
            transform(lambda x: bare.forward_dynamics(q, x, q).sum())(v)
    with pytest.raises(qddot.InputError, match="f_ext keeps gradients"):
        bare.forward_dynamics(q, v, q, {bare.link_names[0]: torch.ones(6, requires_grad=True)})
    with pytest.raises(qddot.InputError, match="q keeps gradients"):
        bare.forward_dynamics(q.clone().requires_grad_(), v, q, {bare.link_names[0]: np.ones(6)}, expressed_in="world")


def test_tensors_with_gradients_go_to_the_differentiable_function(arm):
    """To the method of the same name of `robot.torch()`."""
    torch = pytest.importorskip("torch")
    robot, called = qddot.Robot(arm.model), []

    class Dynamics:
        def forward_dynamics(self, q, v, tau, f_ext=None):
            called.append("forward_dynamics")
            return v * 2 if f_ext is None else v * 3

        def pose(self, q, frame):
            called.append(f"pose of {frame}")
            return q * 5

        def integrate(self, q, v, dt=1.0):
            called.append("integrate")
            return v * dt

    robot.torch = lambda: Dynamics()
    x = torch.ones(arm.nv, dtype=torch.float64, requires_grad=True)
    for result, slope in (
        (robot.forward_dynamics(x, x, x), 2),
        (robot.forward_dynamics(x, x, x, np.ones((arm.model.n_links, 6))), 3),
        (robot.pose(x, "tool"), 5),
        (robot.integrate(x, x, dt=7.0), 7),
    ):
        (found,) = torch.autograd.grad(result.sum(), x)
        assert found.tolist() == [slope] * arm.nv
    assert called == ["forward_dynamics", "forward_dynamics", "pose of tool", "integrate"]


def test_traced_arrays_of_jax_are_refused(arm):
    jax = pytest.importorskip("jax")
    q = arm.neutral()
    for method in (arm.mass_matrix, arm.normalize, arm.kernel("mass_matrix"), lambda q: arm.jacobian(q, "tool", "world")):
        for transform in (jax.jit, jax.vmap, lambda f: jax.grad(lambda x, f=f: f(x).sum())):
            with pytest.raises(qddot.InputError, match=r"q is being traced by JAX.*robot\.jax\(\).*qddot\.jax\.Dynamics"):
                transform(method)(q[None] if transform is jax.vmap else q)


def test_arrays_that_have_no_numbers_here_are_refused(arm):
    torch = pytest.importorskip("torch")
    jax = pytest.importorskip("jax")
    q = torch.from_numpy(arm.neutral())
    with pytest.raises(qddot.InputError, match=r"q lies on 'meta'.*q\.cpu\(\)"):
        arm.mass_matrix(q.to("meta"))
    with pytest.raises(qddot.InputError, match=r"q\.to_dense\(\)"):
        arm.mass_matrix(q.to_sparse())
    with pytest.raises(qddot.InputError, match="belong to torch and jax"):
        arm.bias_force(q, jax.numpy.zeros(arm.nv))
    with torch._subclasses.fake_tensor.FakeTensorMode() as mode, pytest.raises(qddot.InputError, match=r"robot\.torch"):
        arm.mass_matrix(mode.from_tensor(q))


def test_results_stay_on_the_device_of_jax():
    """Of several devices of the host, in a process of its own."""
    pytest.importorskip("jax")
    code = """
import jax, numpy as np, qddot
robot = qddot.load("double_pendulum")
first, second = jax.devices()
for device in (first, second):
    q = jax.device_put(np.ones((4, 2), np.float32), device)
    for x in (robot.mass_matrix(q), robot.integrate(q, q)):
        assert x.devices() == {device} and x.committed, x.devices()
assert not robot.mass_matrix(jax.numpy.ones(2)).committed
mesh = jax.sharding.Mesh(np.array(jax.devices()), "x")
split = jax.device_put(np.ones((4, 2)), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x")))
try:
    robot.mass_matrix(split)
except qddot.InputError as error:
    print(error)
"""
    env = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert "q lies on 2 devices" in done.stdout


def test_no_numbers_are_copied(arm):
    """Neither of inputs nor of results."""
    torch = pytest.importorskip("torch")
    x = torch.zeros((4, arm.nq), dtype=torch.float64)
    host = array_kinds.on_host(x, "q")
    assert host.__array_interface__["data"][0] == x.data_ptr()
    found = array_kinds.given({"q": x})
    result = np.ones((4, 3))
    assert array_kinds.handed_back(found, result).data_ptr() == result.__array_interface__["data"][0]
