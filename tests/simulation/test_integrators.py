"""Integrators: their order, also where bodies turn, against exact solutions, and what they conserve."""

import importlib.util
import math

import mpmath
import numpy as np
import pytest

import qddot
from qddot.joints import Free, Planar, Revolute, Spherical, Universal
from qddot.simulation.integrators import INTEGRATORS

SECOND = 1.0
needs_scipy = pytest.mark.skipif(
    not importlib.util.find_spec("scipy"), reason="SciPy, of the extra [sim], is not installed"
)


def two_bodies(joint):
    """A body on the joint, an arm with a hinge on it: nothing is symmetric."""
    b = qddot.Builder(f"two bodies, {joint.kind}")
    b.link("body", mass=2.0, com=(0.1, -0.2, 0.3), inertia=(1.0, 0.1, 0.05, 2.0, -0.1, 2.5))
    b.link("arm", mass=1.0, com=(0.0, 0.1, 0.3), inertia=(0.1, 0.0, 0.0, 0.2, 0.0, 0.25))
    b.joint("first", "world", "body", joint)
    b.joint("second", "body", "arm", Revolute((0.0, 1.0, 0.0)), qddot.pose((0.3, 0.1, 0.2)))
    return b.robot()


JOINTS = {"revolute": Revolute((1.0, 0.0, 0.0)), "universal": Universal(), "planar": Planar(), "spherical": Spherical()}
ROBOTS = {name: two_bodies(joint) for name, joint in JOINTS.items()} | {"free": two_bodies(Free())}


def start(robot):
    q, v = robot.random_state(5)
    return q, 2.0 * v


def off(robot, one, other):
    """How far two ends of a motion are apart, in coordinates and velocities."""
    dq, dv = robot.difference(one.q[-1], other.q[-1]), one.v[-1] - other.v[-1]
    return float(np.max(np.abs(np.concatenate([dq, dv]))))


@pytest.mark.parametrize("joint", ROBOTS)
def test_order(joint):
    """Halving the step divides the error by two to the power of the order. The reference has steps at which nothing but
    rounding is left, some 1e-13; the errors compared are a multiple of that.
    """
    robot = ROBOTS[joint]
    q, v = start(robot)
    exact = robot.simulate(q, v, dt=SECOND / 16384, steps=16384, integrator="rkmk4", record="end")
    for name, integrator in INTEGRATORS.items():
        errors = []
        for n in (512, 1024) if name == "ab4" else (256, 512):  # whose error has larger terms of higher order
            errors.append(off(robot, robot.simulate(q, v, dt=SECOND / n, steps=n, integrator=name, record="end"), exact))
        assert errors[-1] > 2e-12
        assert abs(np.log2(errors[0] / errors[1]) - integrator.order) < 0.1, (name, errors)


def test_order_with_time_in_the_controls():
    """A law that changes with time, sampled where the stages are."""
    robot = ROBOTS["revolute"]
    q, v = start(robot)

    def law(t, q, v):
        return [qddot.scalars.sin(3.0 * t) - 0.1 * v[0], qddot.scalars.cos(2.0 * t) * q[1]]

    exact = robot.simulate(q, v, law, dt=SECOND / 4096, steps=4096, record="end")
    for name, integrator in INTEGRATORS.items():
        errors = []
        for n in (128, 256):
            run = robot.simulate(q, v, law, dt=SECOND / n, steps=n, integrator=name, record="end")
            errors.append(off(robot, run, exact))
        assert abs(np.log2(errors[0] / errors[1]) - integrator.order) < 0.1, (name, errors)


# ---- exact solutions ---------------------------------------------------------------------------------------------------


@needs_scipy
def test_double_pendulum():
    """Against a Taylor series of many digits for the equations of a textbook, the second angle absolute."""
    g = mpmath.mpf("9.81")

    def flow(t, y):
        a, b, u, w = y
        c, s = mpmath.cos(a - b), mpmath.sin(a - b)
        f, h = -2 * g * mpmath.sin(a) - w * w * s, -g * mpmath.sin(b) + u * u * s  # masses and lengths are one
        den = 2 - c * c
        return [u, w, (f - c * h) / den, (2 * h - c * f) / den]

    with mpmath.workdps(20):
        end = mpmath.odefun(flow, 0, [mpmath.mpf("0.5"), mpmath.mpf("1.25"), 0, 0], tol=mpmath.mpf("1e-16"))(1)
    a, b, u, w = map(float, end)
    robot = qddot.load("double_pendulum")
    for name, dt, tolerance in (("rk4", 2e-4, 1e-12), ("rkmk4", 2e-4, 1e-12), ("ab4", 2e-4, 1e-11), ("DOP853", 0.1, 1e-11)):
        more = {"rtol": 1e-13, "atol": 1e-13} if name == "DOP853" else {}
        run = robot.simulate([0.5, 0.75], [0.0, 0.0], dt=dt, steps=round(1 / dt), integrator=name, record="end", **more)
        assert np.max(np.abs(run.q[-1] - [a, b - a])) < tolerance, name
        assert np.max(np.abs(run.v[-1] - [u, w - u])) < 5 * tolerance, name


I1, I2, I3 = 1.0, 2.0, 2.5


def spinning(t, w0):
    """Euler's top with I1 < I2 < I3 and 2 T I2 < L²: body rates by Jacobi's functions, and the turn about L by quadrature.

    With w0 = (w1, 0, w3). Landau & Lifshitz, Mechanics, §37, with the axes in our order.
    """
    w1, w3 = map(mpmath.mpf, (w0[0], w0[2]))
    L2, T2 = (I1 * w1) ** 2 + (I3 * w3) ** 2, I1 * w1**2 + I3 * w3**2
    assert L2 > T2 * I2
    rate = mpmath.sqrt((I3 - I2) * (L2 - T2 * I1) / (I1 * I2 * I3))
    m = (I2 - I1) * (T2 * I3 - L2) / ((I3 - I2) * (L2 - T2 * I1))
    w2 = mpmath.sqrt((T2 * I3 - L2) / (I2 * (I3 - I2)))

    def rates(t):
        f = [mpmath.ellipfun(kind, rate * t, m=m) for kind in ("cn", "sn", "dn")]
        return w1 * f[0], w2 * f[1], w3 * f[2]

    def turning(t):
        a, b, _ = rates(t)
        return mpmath.sqrt(L2) * (I1 * a * a + I2 * b * b) / ((I1 * a) ** 2 + (I2 * b) ** 2)

    return [float(x) for x in rates(t)], float(mpmath.quad(turning, mpmath.linspace(0, t, 9)))


def test_free_rigid_body():
    """Rates and attitude of a body that nothing pushes."""
    b = qddot.Builder("top")
    b.link("top", mass=1.0, inertia=(I1, 0.0, 0.0, I2, 0.0, I3))
    b.joint("ball", "world", "top", Spherical())
    robot, w0, seconds = b.robot(), (0.8, 0.0, 1.3), 2.0
    rates, phi = spinning(seconds, w0)
    L0 = np.array([I1 * w0[0], 0.0, I3 * w0[2]])  # of the body at the start, which is where the world's axes are
    L = np.array([I1, I2, I3]) * rates

    def frame(l):
        """The attitude at which L is along z and the body's third axis in the plane of x and z."""
        z = l / np.linalg.norm(l)
        x = np.array([0.0, 0.0, 1.0]) - z[2] * z
        x /= np.linalg.norm(x)
        return np.stack([x, np.cross(z, x), z])

    c, s = math.cos(phi), math.sin(phi)
    wanted = frame(L0).T @ np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]]) @ frame(L)
    for name, dt in (("rk4", 1e-3), ("rkmk4", 1e-3), ("ab4", 1e-3)):
        run = robot.simulate(robot.neutral(), w0, dt=dt, steps=round(seconds / dt), integrator=name, record="end")
        assert np.max(np.abs(run.v[-1] - rates)) < 1e-11, name
        assert np.max(np.abs(robot.pose(run.q[-1], "top")[:3, :3] - wanted)) < 1e-11, name
    run = robot.simulate(robot.neutral(), w0, dt=1e-3, steps=2000, integrator="variational", record="end")
    assert np.max(np.abs(robot.pose(run.q[-1], "top")[:3, :3] - wanted)) < 1e-5  # order 2


# ---- what is conserved -------------------------------------------------------------------------------------------------


def energy(robot, run):
    return robot.kinetic_energy(run.q, run.v) + robot.potential_energy(run.q)


@pytest.mark.parametrize("joint", ["revolute", "spherical"])
def test_energy_over_a_million_steps(joint):
    """The variational integrator's energy oscillates and does not drift: late in the run it is no further off than early.

    Steps of 0.04 s are long enough for RK4, of the higher order, to lose some percent. A fifth more is allowed late, for
    extremes of a motion that is not periodic.
    """
    robot = ROBOTS[joint]
    q, v = start(robot)
    given = {"dt": 0.04, "steps": 1_000_000, "record": 50}
    run, other = (robot.simulate(q, 0.4 * v, integrator=name, **given) for name in ("variational", "rk4"))
    E = energy(robot, run) / np.ptp(robot.kinetic_energy(run.q, run.v))
    error, fifth = np.abs(E - E[0]), len(E) // 5
    early, late = np.max(error[:fifth]), np.max(error[-fifth:])
    assert early < 2e-3
    assert late < 1.2 * early
    assert abs(np.mean(E[:fifth]) - np.mean(E[-fifth:])) < 0.05 * early
    drifted = energy(robot, other) / np.ptp(robot.kinetic_energy(run.q, run.v))
    assert abs(drifted[-1] - drifted[0]) > 5.0 * late


@pytest.mark.parametrize("integrator", ["rkmk4", "rk4", "variational"])
def test_momentum_of_a_floating_tree(integrator):
    """Nothing pushes a tree in space: its momentum about the origin of the world stays, and its centre goes straight.

    The variational integrator keeps the momentum at any step; its centre of mass is as exact as its order.
    """
    tree = ROBOTS["free"] if integrator == "variational" else qddot.load("quadruped", passive_forces=False)
    robot = tree.with_parameters({"gravity": [0.0, 0.0, 0.0]})
    q, v = robot.random_state(1)
    dt = 1e-2 if integrator == "variational" else 5e-4
    run = robot.simulate(q, v, dt=dt, steps=1000, integrator=integrator, record=50)
    h, c = robot.momentum(run.q, run.v), robot.center_of_mass(run.q)
    angular = h[:, :3] + np.cross(c, h[:, 3:])
    assert np.max(np.abs(angular - angular[0])) < 1e-10 * max(1.0, np.max(np.abs(angular)))
    assert np.max(np.abs(h - h[0])[:, 3:]) < 1e-10
    line = c[0] + run.t[:, None] * h[0, 3:] / robot.mass
    assert np.max(np.abs(c - line)) < (1e-10 if integrator != "variational" else 1e-2)


@needs_scipy
def test_stiff_damper_and_spring():
    """A joint whose velocity settles within ten microseconds, at steps of a millisecond. It starts settled."""
    b = qddot.Builder("stiff")
    b.link("a", mass=1.0, com=(0.0, 0.0, -1.0))
    b.link("b", mass=0.5, com=(0.0, 0.0, -0.5))
    b.joint("one", "world", "a", Revolute((0.0, 1.0, 0.0)), stiffness=1e6, damping=1e5)
    b.joint("two", "a", "b", Revolute((0.0, 1.0, 0.0)), qddot.pose((0.0, 0.0, -1.0)), damping=0.1)
    robot = b.robot()
    q, v = [0.1, 0.5], [-1.0, 0.0]
    wanted = robot.simulate(q, v, dt=0.1, steps=10, integrator="Radau", rtol=1e-10, atol=1e-12)
    run = robot.simulate(q, v, dt=1e-3, steps=1000, integrator="rosenbrock", record=100)
    assert np.max(np.abs(run.q - wanted.q)) < 1e-5
    with pytest.warns(qddot.QddotWarning, match="not finite any more"):
        explicit = robot.simulate(q, v, dt=1e-3, steps=1000, record="end")
    assert not np.isfinite(explicit.q[-1]).any()


@needs_scipy
def test_stiff_controls_are_differentiated():
    """The same stiffness in the law of control: its slopes are in the implicit step."""
    robot = qddot.load("double_pendulum")

    def law(t, q, v):
        return [-1e6 * (q[0] - 0.1) - 1e5 * v[0], -0.1 * v[1]]

    q, v = [0.1, 0.5], [0.0, 0.0]
    wanted = robot.simulate(q, v, law, dt=0.1, steps=5, integrator="Radau", rtol=1e-10, atol=1e-12)
    run = robot.simulate(q, v, law, dt=1e-3, steps=500, integrator="rosenbrock", record=100)
    assert np.max(np.abs(run.q - wanted.q)) < 1e-5
