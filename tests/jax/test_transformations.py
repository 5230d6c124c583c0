"""`jit`, `vmap`, derivatives, devices and programs that outlive their process."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

import qddot
from qddot.errors import InputError
from tests.support.linkages import closed_states
from tests.support.peers import peer
from tests.support.torch_cases import pair

jax = peer("jax")
jnp = jax.numpy

from jax.test_util import check_grads  # noqa: E402  needs JAX

from qddot.dynamics.catalogue import ALL  # noqa: E402
from qddot.jax.functions import TABLE  # noqa: E402
from tests.jax.test_functions import case, inputs_of, needs_of  # noqa: E402
from tests.support.mechanisms import MOVING  # noqa: E402

# Central differences with steps of 1e-4: 1e-8 times a third derivative, some 1e-12 / 1e-4 of rounding, and the same once
# more for the second order.
DIFFERENCES = {"eps": 1e-4, "rtol": 2e-5, "atol": 2e-5}


def check(function, *args, order=2):
    check_grads(jax.jit(function), args, order=order, modes=("fwd", "rev"), **DIFFERENCES)


@pytest.fixture(scope="module")
def arm():
    robot = qddot.load("double_pendulum")
    rng = np.random.default_rng(0)
    q, v = robot.random_state(rng, (3,))
    return robot, robot.jax(), q, v, rng.normal(size=(3, 2))


# ---- derivatives


def test_forward_dynamics_of_an_arm(arm):
    _, dynamics, q, v, tau = arm
    check(dynamics.forward_dynamics, q, v, tau)


def test_inputs_that_all_states_share(arm):
    _, dynamics, q, v, tau = arm
    check(lambda q, tau: dynamics.forward_dynamics(q, v[0], tau[:1]), q[0], tau)


def test_free_parameters_and_gravity(arm):
    robot, _, q, v, tau = arm
    dynamics = robot.jax(free=("inertia", "gravity"))
    given = robot.parameters("inertia"), np.array([[0.3, 0.1, -9.0]])
    check(lambda q, pi, g: dynamics.forward_dynamics(q, v, tau, inertia=pi, gravity=g), q, *given)


def test_external_forces(arm):
    robot, dynamics, q, v, tau = arm
    f_ext = np.random.default_rng(1).normal(size=(3, robot.model.n_links, 6))
    check(lambda q, f: dynamics.forward_dynamics(q, v, tau, f), q, f_ext)
    wrench = {robot.link_names[-1]: f_ext[:, 0]}
    check(lambda q, f: dynamics.inverse_dynamics(q, v, tau, f, expressed_in="world"), q, wrench, order=1)


def test_quaternions():
    robot = qddot.random_tree(2, rng=5, kinds=("spherical", "helical"))
    dynamics = robot.jax()
    q, v, a = inputs_of(robot, ("q", "v", "a"), (2,))
    check(lambda q, v: dynamics.inverse_dynamics(dynamics.normalize(q), v, a), q, v)
    g = jax.grad(lambda q: dynamics.kinetic_energy(q, v[0]))(q[0])
    assert np.abs(g).max() > 0.0
    quaternions = [slot.q for i, slot in enumerate(robot.model.slots) if robot.model.joint[i].has_unit_quaternion]
    assert quaternions
    assert all(abs(g[k] @ q[0][k]) < 1e-13 * np.abs(g).max() for k in quaternions)
    along = dynamics.tangent_gradient(q[0], g)
    moved = jax.grad(lambda u: dynamics.kinetic_energy(dynamics.integrate(q[0], u), v[0]))(jnp.zeros(robot.nv))
    np.testing.assert_allclose(along, moved, atol=1e-12 * np.abs(g).max())


def test_mimic_joints():
    robot, dynamics = case("mimic")
    q, v, tau = inputs_of(robot, ("q", "v", "tau"), (2,))
    check(dynamics.forward_dynamics, q, v, tau)


def test_loops():
    robot, dynamics = case("fourbar")
    q, v, tau = closed_states(robot, 2)
    check(dynamics.forward_dynamics, q, v, tau)


def test_inverse_dynamics_with_loops():
    robot, dynamics = case("fourbar")
    q, v, tau = closed_states(robot, 1)
    check(dynamics.inverse_dynamics, q[0], v[0], tau[0], order=1)


@pytest.mark.parametrize("name", [x for x in TABLE if not x.startswith("constraint") and "second" not in x])
def test_every_function(name, arm):
    robot, dynamics, *_ = arm
    arrays, needs = inputs_of(robot, ALL[name].inputs, ()), needs_of(robot, name)
    check(lambda *x: jax.tree.leaves(getattr(dynamics, name)(*x, **needs)), *arrays, order=1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", MOVING)
@pytest.mark.parametrize("name", ["inverse_dynamics", "forward_dynamics", "pose", "mass_matrix", "momentum"])
def test_every_kind_of_joint(name, kind):
    robot = qddot.random_tree(2, rng=2, kinds=(kind,))
    dynamics = robot.jax()
    names = {"inverse_dynamics": ("q", "v", "a"), "forward_dynamics": ("q", "v", "tau")}.get(name) or ALL[name].inputs
    q, *others = inputs_of(robot, names, ())
    needs = {"frame": "link2"} if name == "pose" else {}
    check(lambda q, *x: getattr(dynamics, name)(dynamics.normalize(q), *x, **needs), q, *others)


@pytest.mark.slow
@pytest.mark.parametrize("kind", MOVING)
def test_every_function_of_every_kind_of_joint(kind):
    """All functions in one: their derivatives are kernels of their own anyway."""
    robot = pair(kind)
    dynamics, inputs = robot.jax(), ("q", "v", "a", "tau")
    names = [x for x in TABLE if not x.startswith("constraint") and "derivative" not in x]
    needs = {name: needs_of(robot, name) for name in names}

    def run(q, *others):
        given = dict(zip(inputs, (dynamics.normalize(q), *others), strict=True))
        return [getattr(dynamics, x)(*(given[y] for y in ALL[x].inputs), **needs[x]) for x in names]

    check(run, *inputs_of(robot, inputs, ()))


@pytest.mark.slow
@pytest.mark.parametrize("robot_name", ["tree", "mimic"])
@pytest.mark.parametrize("name", [x for x in TABLE if not x.startswith("constraint") and "derivative" not in x])
def test_every_function_twice(name, robot_name):
    robot, dynamics = case(robot_name)
    q, *others = inputs_of(robot, ALL[name].inputs, ())
    needs = needs_of(robot, name)
    check(lambda q, *x: getattr(dynamics, name)(dynamics.normalize(q), *x, **needs), q, *others)


def test_derivatives_are_those_of_the_derivative_kernels(arm):
    robot, dynamics, q, v, tau = arm
    expected = robot.forward_dynamics_derivatives(q, v, tau)
    for transform in (jax.jacfwd, jax.jacrev):
        found = jax.jit(jax.vmap(transform(dynamics.forward_dynamics, (0, 1, 2))))(q, v, tau)
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, y, atol=1e-12 * np.abs(y).max())
    second = robot.forward_dynamics_second_derivatives(q, v, tau)
    found = jax.jit(jax.vmap(jax.hessian(dynamics.forward_dynamics)))(q, v, tau)
    np.testing.assert_allclose(found, second.dqq, atol=1e-11 * np.abs(second.dqq).max())


def test_gradients_of_batches_under_jit(arm):
    _, dynamics, q, v, tau = arm

    def loss(q, v, tau):
        return jnp.sum(dynamics.forward_dynamics(q, v, tau) ** 2)

    each = jax.jit(jax.vmap(jax.grad(loss, (0, 1, 2))))(q, v, tau)
    whole = jax.grad(loss, (0, 1, 2))(q, v, tau)
    for x, y in zip(each, whole, strict=True):
        np.testing.assert_array_equal(x, y)


def test_third_derivatives_are_an_error(arm):
    _, dynamics, q, v, _ = arm
    with pytest.raises(NotImplementedError, match="up to the second order"):
        jax.grad(jax.grad(jax.grad(lambda x: dynamics.kinetic_energy(x * q[0], v[0]))))(1.0)


def test_a_scan_of_steps_has_a_gradient(arm):
    """The loss of a rollout of five steps against central differences of it."""
    _, dynamics, q, v, tau = arm

    def loss(tau):
        def step(state, _):
            q, v = state
            v = v + 0.01 * dynamics.forward_dynamics(q, v, tau)
            return (q + 0.01 * v, v), None

        (end, _), _ = jax.lax.scan(step, (q, v), None, length=5)
        return jnp.sum(end**2)

    check(loss, tau)


# ---- vmap


def test_vmap_of_vmap_is_one_call(arm):
    robot, dynamics, q, v, tau = arm
    many = np.stack([q, q + 0.1, q - 0.2])
    both = jax.vmap(jax.vmap(dynamics.forward_dynamics, (0, 0, None)), (1, None, 0))
    np.testing.assert_array_equal(both(many, v, tau), robot.forward_dynamics(many.swapaxes(0, 1), v[None], tau[:, None]))
    text = str(jax.make_jaxpr(both)(many, v, tau))
    assert text.count("qddot[") == 1
    assert "scan" not in text
    assert "while" not in text


def test_vmap_over_parameters(arm):
    robot, _, q, v, tau = arm
    dynamics, masses = robot.jax(free=("inertia",)), np.linspace(0.5, 2.0, 4)
    inertia = masses[:, None, None] * robot.parameters("inertia")
    found = jax.vmap(lambda pi: dynamics.forward_dynamics(q, v, tau, inertia=pi))(inertia)
    kernel = robot.kernel("forward_dynamics", free=("inertia",))
    np.testing.assert_array_equal(found, kernel(q, v, tau, inertia[:, None]))


# ---- programs


def test_donated_memory(arm):
    robot, dynamics, q, v, tau = arm
    given = jnp.asarray(tau)
    found = jax.jit(dynamics.forward_dynamics, donate_argnums=2)(q, v, given)
    assert given.is_deleted()
    np.testing.assert_array_equal(found, robot.forward_dynamics(q, v, tau))


def test_exported_programs(arm):
    """A program may be handed on as long as this process has its kernels."""
    robot, dynamics, q, v, tau = arm
    from jax import export

    allowed = [export.DisabledSafetyCheck.custom_call("qddot_kernel")]
    program = export.export(jax.jit(dynamics.forward_dynamics), disabled_checks=allowed)(q, v, tau)
    np.testing.assert_array_equal(jax.jit(program.call)(q, v, tau), robot.forward_dynamics(q, v, tau))
    any_batch = jax.ShapeDtypeStruct(export.symbolic_shape("b, 2"), np.float64)
    with pytest.raises(InputError, match="q has the symbolic shape"):
        export.export(jax.jit(dynamics.gravity_force), disabled_checks=allowed)(any_batch)


def run(code, **environment):
    import os

    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu", **environment},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split()


def test_devices_share_a_batch():
    code = """
        import jax, numpy as np, qddot
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

        jax.config.update("jax_enable_x64", True)
        robot = qddot.load("double_pendulum")
        dynamics = robot.jax()
        rng = np.random.default_rng(0)
        q, v = robot.random_state(rng, (64,))
        tau = rng.normal(size=(64, 2))
        mesh = Mesh(np.array(jax.devices()), ("x",))
        split = jax.shard_map(dynamics.forward_dynamics, mesh=mesh, in_specs=(P("x"), P("x"), P()), out_specs=P("x"))
        found = jax.jit(split)(q, v, tau[0])
        print(len(found.sharding.device_set), np.array_equal(found, robot.forward_dynamics(q, v, tau[0])))

        def loss(q, v):
            return jax.lax.psum((dynamics.forward_dynamics(q, v, tau[0]) ** 2).sum(), "x")

        split = jax.shard_map(loss, mesh=mesh, in_specs=(P("x"), P("x")), out_specs=P())
        whole = jax.grad(lambda q: (dynamics.forward_dynamics(q, v, tau[0]) ** 2).sum())(q)
        print(np.allclose(jax.jit(jax.grad(split))(q, v), whole, rtol=1e-13))
        placed = [jax.device_put(x, NamedSharding(mesh, P("x"))) for x in (q, v, tau)]
        print(np.array_equal(jax.jit(dynamics.forward_dynamics)(*placed), robot.forward_dynamics(q, v, tau)))
    """
    assert run(code, XLA_FLAGS="--xla_force_host_platform_device_count=2") == ["2", "True", "True", "True"]


def test_a_program_kept_by_another_process(tmp_path):
    """JAX's cache of programs: the process that finds one there makes its own kernels, in another place."""
    code = """
        import os, jax, numpy as np, qddot

        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_compilation_cache_dir", os.environ["KEPT"])
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        robot = qddot.load("double_pendulum")
        q = np.ones((9, 2))
        print(np.array_equal(jax.jit(robot.jax().forward_dynamics)(q, q, q), robot.forward_dynamics(q, q, q)))
    """
    for _ in range(2):
        assert run(code, KEPT=str(tmp_path)) == ["True"]
    assert any(tmp_path.iterdir())


def test_qddot_does_not_import_jax():
    code = "import sys, qddot; r = qddot.load('pendulum'); r.mass_matrix([0.0]); print('jax' in sys.modules)"
    assert run(code) == ["False"]


def test_without_jax_the_error_names_the_extra():
    code = """
        import sys
        sys.modules["jax"] = None
        import qddot
        for use in (lambda: qddot.jax, lambda: qddot.load("pendulum").jax()):
            try:
                use()
            except ImportError as error:
                print("pip install 'qddot[jax]'" in str(error))
    """
    assert run(code) == ["True", "True"]


def test_two_robots_of_the_same_model_share_a_program(arm):
    """An operation is known by what it computes, not by the object that made it."""
    _, dynamics, q, v, tau = arm
    other = qddot.load("double_pendulum").jax()
    texts = [jax.jit(x.forward_dynamics).lower(q, v, tau).as_text() for x in (dynamics, other)]
    assert texts[0] == texts[1]


def test_a_handler_that_jax_refuses_is_an_error(monkeypatch, arm):
    from qddot.jax import primitive

    def refuse(*_, **__):
        raise ValueError("API version mismatch")

    monkeypatch.setattr(jax.ffi, "register_ffi_target", refuse)
    with pytest.raises(InputError, match=r"does not take qddot's handler \(API version mismatch\)"):
        primitive.register.__wrapped__("cpu")
