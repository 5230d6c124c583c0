"""Free parameters: kernels that take a model's numbers as inputs agree with robots that have these numbers."""

import pickle
import re

import numpy as np
import pytest

import qddot
from benchmarks import cases, free
from qddot.compiler.codegen.abi import gufunc
from qddot.compiler.codegen.llvm import memory_plan
from qddot.compiler.codegen.llvm import memory_plan as lazy_inputs
from qddot.compiler.ir import interpreter
from qddot.compiler.ir.expr import trace
from qddot.compiler.ir.fuse import fused
from qddot.compiler.ir.program import straight_line
from qddot.compiler.runtime import llvm_compile
from qddot.compiler.runtime.gufunc import kernel as kernel_from_code
from qddot.compiler.runtime.kernel import Info
from qddot.compiler.targets.host import host
from qddot.dynamics import catalogue, pipeline
from qddot.dynamics import trace as tracing
from qddot.dynamics.catalogue import FUNCTIONS
from qddot.dynamics.request import Request
from qddot.joints import Free, Prismatic, Revolute, Spherical
from qddot.mechanism import parameters
from qddot.robots.generators import random_tree
from qddot.scalars import less, where
from qddot.spatial import Transform, inertia_from
from tests.support.mechanisms import MOVING, built, needs_of
from tests.support.paths import ROOT
from tests.support.peers import peer
from tests.support.real_robots import GOOD, URDFS, WHY, or_skipped

# As in test_kernels: other orders of the same sums, and what passes through M⁻¹ in proportion to its condition.
OTHER_ORDER = 1e-12
SINGLE = 2e-5  # some hundred roundings of 6e-8

LINKS = ("inertia", "mass", "com", "placement", "position")
JOINTS = ("armature", "damping", "friction", "stiffness", "spring_reference")
EVERYTHING = ("inertia", "placement", "gravity", *JOINTS)  # as much as can be free at once
THE_REST = ("com", "position", "mass")


def close(x, y, tolerance):
    y = np.asarray(y)
    scale = np.maximum(1.0, np.max(np.abs(y), initial=0.0))
    assert np.max(np.abs(x - y), initial=0.0) <= tolerance * scale


def random_pose(rng):
    return parameters._numbers(random_tree(1, rng=rng).model(), "placement", 1)


def other_values(robot, name, rng):
    """Values that a mechanism could have, in the shape of the present ones."""
    now, (p,) = robot.parameters(name), parameters.parameters(robot.model, (name,))
    if p.kind == "placement":
        return np.reshape([random_pose(rng) for _ in p.links], p.shape)
    if p.kind == "spring_reference":
        return np.reshape([x for i in p.links for x in robot.model.joint[i].random(rng)], p.shape)
    if p.kind == "stiffness":
        return now * 1.7 + 0.3  # springs of one joint stay alike
    if p.kind in ("com", "position", "gravity"):
        return now + rng.uniform(-0.2, 0.2, now.shape)
    return now * rng.uniform(0.9, 1.1, now.shape) + (0.1 if p.kind in JOINTS else 0.0)


def state_of(robot, rng, count=None):
    pairs = [robot.random_state(rng) for _ in range(count or 1)]
    q, v = (np.stack(x) for x in zip(*pairs, strict=True))
    known = {"q": q, "v": v, "a": v[::-1], "tau": v[::-1], "f_ext": rng.standard_normal((len(q), robot.model.n_links, 6))}
    return known if count else {name: x[0] for name, x in known.items()}


def eager(robot, name, arrays, **extra):
    return np.asarray(catalogue.lookup(name, "auto")[2](robot.model, *arrays, **extra), dtype=float)


# ---- the same numbers as a robot that has them


SOME = ("inverse_dynamics", "forward_dynamics", "mass_matrix", "forward_kinematics", "potential_energy")
CHOICES = [*((name, EVERYTHING) for name in FUNCTIONS), *((name, THE_REST) for name in SOME)]


# every other pair; all of them where time does not matter
PAIRS = [
    pytest.param(*choice, kind, marks=pytest.mark.slow) if (j + k) % 2 else (*choice, kind)
    for j, choice in enumerate(CHOICES)
    for k, kind in enumerate(MOVING)
]


@pytest.mark.parametrize(("name", "names", "kind"), PAIRS, ids=lambda x: x if isinstance(x, str) else x[0])
def test_every_function_on_every_kind_of_joint(name, names, kind):
    rng = np.random.default_rng(3)
    robot = qddot.Robot(random_tree(3, rng=5, kinds=(kind, "revolute"), mimic=kind == "revolute").model())
    values = {n: other_values(robot, n, rng) for n in names}
    known, extra = state_of(robot, rng), needs_of(name, robot)
    arrays = [known[x] for x in FUNCTIONS[name].inputs]
    program = fused(tracing.traced(robot.model, name, "auto", free=names, **extra))
    inputs = np.concatenate([np.ravel(x) for x in (*arrays, *values.values())])
    other = robot.with_parameters(values, allow_unphysical=True)
    solves = name.startswith(("forward_dynamics", "hybrid_dynamics", "mass_matrix_inverse"))
    worse = np.linalg.cond(eager(other, "mass_matrix", [known["q"]])) if solves else 1.0
    close(interpreter.run(program, inputs), eager(other, name, arrays, **extra).ravel(), OTHER_ORDER * worse)


@pytest.fixture(scope="module")
def tree():
    """Branches, joints of several degrees of freedom, a joint that follows another, dots in names."""
    b = qddot.Builder("tree", gravity=(1.0, -2.0, -9.0))
    one = np.diag([0.1, 0.2, 0.25])
    b.link("base", 3.0, (0.1, 0.2, 0.0), one).joint("root", "world", "base", Free(), qddot.pose((0.1, 0.0, 0.2)))
    b.link("arm", 2.0, (0.0, 0.1, 0.3), one).joint("hip", "base", "arm", Revolute((1.0, 0.0, 0.0)), damping=0.3)
    b.link("arm.mass", 1.0, (0.2, 0.0, 0.0), one)
    b.joint("hip.slide", "arm", "arm.mass", Prismatic(), qddot.pose((0.0, 0.0, 0.5), (0.3, 0.0, 0.1)), friction=0.2)
    b.link("ball", 1.5, (0.0, 0.0, 0.1), one).joint("wrist", "base", "ball", Spherical(), armature=0.1, stiffness=2.0)
    b.link("finger", 0.5, (0.1, 0.0, 0.0), one)
    b.joint("follower", "ball", "finger", Revolute(), qddot.pose((0.3, 0.0, 0.0)), damping=0.4, mimic=("hip", -2.0, 0.1))
    b.link("tool", 0.7, (0.0, 0.1, 0.0), one).joint("weld", "arm", "tool", qddot.joints.Fixed())
    b.link("table", 9.0).joint("floor", "world", "table", qddot.joints.Fixed())
    b.frame("tip", "arm", qddot.pose((0.0, 0.0, 0.6)))
    return b.robot()


SINGLES = [
    *(f"{link}.{kind}" for link in ("base", "arm", "arm.mass", "finger") for kind in LINKS),
    *(f"{joint}.{kind}" for joint in ("root", "hip", "hip.slide", "wrist", "follower") for kind in JOINTS),
]


@pytest.mark.parametrize("name", [*LINKS, *JOINTS, "gravity", *SINGLES])
def test_every_name(tree, name):
    rng = np.random.default_rng(0)
    known, value = state_of(tree, rng), other_values(tree, name, rng)
    for function in ("inverse_dynamics", "mass_matrix", "potential_energy"):
        arrays = [known[x] for x in FUNCTIONS[function].inputs]
        program = fused(tracing.traced(tree.model, function, "auto", free=(name,)))
        for given in (value, tree.parameters(name)):
            inputs = np.concatenate([np.ravel(x) for x in (*arrays, given)])
            other = tree.with_parameters({name: given}, allow_unphysical=True)
            close(interpreter.run(program, inputs), eager(other, function, arrays).ravel(), OTHER_ORDER)


def test_shapes(tree):
    expected = {
        "inertia": (5, 10),
        "mass": (5,),
        "com": (5, 3),
        "placement": (5, 4, 4),
        "position": (5, 3),
        "gravity": (3,),
        "damping": (tree.nv,),  # the follower has no DoF of its own
        "spring_reference": (tree.nq,),
        "arm.mass": (),
        "arm.mass.mass": (),
        "arm.mass.com": (3,),
        "arm.inertia": (10,),
        "arm.placement": (4, 4),
        "hip.damping": (),
        "hip.slide.friction": (),
        "root.damping": (6,),
        "root.spring_reference": (7,),
        "wrist.stiffness": (3,),
        "follower.damping": (),
    }
    for name, shape in expected.items():
        assert tree.parameters(name).shape == shape, name
    assert tree.parameters("arm.mass") == pytest.approx(2.7)  # with the tool that is welded to it
    assert tree.parameters("arm.mass.mass") == 1.0
    assert tree.parameters("follower.damping") == 0.4
    assert np.array_equal(tree.parameters("damping")[tree.v_index["hip"]], 0.3)
    assert np.array_equal(tree.parameters("gravity"), [1.0, -2.0, -9.0])
    assert np.array_equal(tree.parameters("base.placement")[:3, 3], [0.1, 0.0, 0.2])
    k = tree.kernel("inverse_dynamics", free=("arm.mass", "wrist.stiffness"))
    assert k.names == ("q", "v", "a", "arm.mass", "wrist.stiffness")
    assert k.inputs[3:] == ((), (3,))


def test_mass_and_centre_keep_the_inertia_about_the_centre():
    """Against robots built one by one: what a user of Builder would change."""
    rng = np.random.default_rng(0)

    def built(mass, com):
        b = qddot.Builder("pair")
        b.link("upper", 2.0, (0.1, 0.0, 0.2), np.diag([0.3, 0.2, 0.15])).joint("a", "world", "upper", Revolute((0, 1, 0)))
        b.link("lower", mass, com, [0.2, 0.01, 0.02, 0.25, 0.03, 0.3])
        b.joint("b", "upper", "lower", Revolute((1, 0, 0)), qddot.pose((0.0, 0.1, 0.5)))
        return b.robot()

    robot = built(1.0, (0.1, 0.2, 0.3))
    k = robot.kernel("forward_dynamics", free=("lower.com", "lower.mass"))
    states = state_of(robot, rng, 20)
    coms, masses = rng.uniform(-0.3, 0.3, (20, 3)), rng.uniform(0.5, 2.0, 20)
    a = k(states["q"], states["v"], states["tau"], coms, masses)
    for j in range(20):
        one = built(masses[j], coms[j])
        close(a[j], eager(one, "forward_dynamics", [states[x][j] for x in ("q", "v", "tau")]), 1e-11)
        close(robot.with_parameters({"lower.com": coms[j], "lower.mass": masses[j]}).parameters("inertia"),
              one.parameters("inertia"), 1e-14)  # fmt: skip


def robots_of_a_batch(count):
    """The kernel's results for so many different arms, and those of as many separate models."""
    case = cases.case("panda7" if URDFS else "chain10", 64)
    rng = np.random.default_rng(1)
    robot, now = case.robot, case.robot.parameters("inertia")
    values = now * rng.uniform(0.8, 1.2, (count, *now.shape))
    q, v, a = (np.resize(x, (count, robot.nv)) for x in (case.q, case.v, case.a))
    tau = robot.kernel("inverse_dynamics", free=("inertia",))(q, v, a, values)
    for k in range(count):
        one = robot.with_parameters({"inertia": values[k]}, allow_unphysical=True)
        close(tau[k], eager(one, "inverse_dynamics", (q[k], v[k], a[k])), OTHER_ORDER)


def test_a_batch_of_64_robots():
    robots_of_a_batch(64)


@pytest.mark.slow
def test_a_batch_of_4096_robots():
    robots_of_a_batch(4096)


def test_some_compiled_one_by_one(tree):
    rng = np.random.default_rng(0)
    states, names = state_of(tree, rng, 3), ("inertia", "placement", "armature", "gravity")
    values = [np.stack([other_values(tree, n, rng) for _ in range(3)]) for n in names]
    k = tree.kernel("forward_dynamics", free=names)
    result = k(*(states[x] for x in ("q", "v", "tau")), *values)
    for j in range(3):
        one = tree.with_parameters({n: x[j] for n, x in zip(names, values, strict=True)}, allow_unphysical=True)
        M = one.mass_matrix(states["q"][j])
        close(result[j], one.forward_dynamics(*(states[x][j] for x in ("q", "v", "tau"))), OTHER_ORDER * np.linalg.cond(M))


# ---- the ten parameters


PINOCCHIO = [p for p in GOOD if p.stat().st_size < 40_000][:4]


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore::qddot.QddotWarning")
@pytest.mark.parametrize("path", or_skipped(PINOCCHIO), ids=lambda p: p.stem)
def test_their_order_is_pinocchios(path):
    pin = peer("pinocchio")
    robot, theirs = qddot.load(path), pin.buildModelFromUrdf(str(path))
    ours = robot.parameters("inertia")
    for name, row in zip(robot.joint_names, ours, strict=True):
        close(row, theirs.inertias[theirs.getJointId(name)].toDynamicParameters(), 1e-12)


@pytest.mark.oracle
@pytest.mark.skipif(not URDFS, reason=WHY)
def test_the_regressor_is_pinocchios():
    """tau = Y(q, v, a) times the parameters: a column of Y is the kernel's result for a unit parameter."""
    pin = peer("pinocchio")
    case = cases.case("panda7", 4)
    units = np.eye(70).reshape(70, 7, 10)
    k, data = case.robot.kernel("inverse_dynamics", free=("inertia",)), case.pinocchio.createData()
    for q, v, a in zip(case.q, case.v, case.a, strict=True):
        Y = pin.computeJointTorqueRegressor(case.pinocchio, data, q, v, a)
        close(k(q, v, a, units).T, Y, OTHER_ORDER)


# ---- batches


@pytest.fixture(scope="module")
def arm():
    return qddot.chain(6, rng=0)


@pytest.fixture(scope="module")
def batch(arm):
    rng = np.random.default_rng(0)
    q, v, a = (rng.standard_normal((100, 6)) for _ in range(3))
    now = arm.parameters("inertia")
    return q, v, a, now + rng.uniform(0.0, 0.1, (100, *now.shape))


def test_batch_axes_broadcast(arm, batch):
    k = arm.kernel("inverse_dynamics", free=("inertia",))
    q, v, a, x = batch
    flat = k(q, v, a, x)
    assert np.array_equal(k(q[7], v[7], a[7], x[7]), flat[7])
    assert np.array_equal(k(q[7], v[7], a[7], x)[7], flat[7])  # one state of a hundred robots
    assert np.array_equal(k(q[:, None], v[:, None], a[:, None], x)[3, 3], flat[3])  # every state of every robot
    assert np.array_equal(k(q[:, None], v[:, None], a[:, None], x)[3, 8], k(q[3], v[3], a[3], x[8]))
    assert np.array_equal(k(*(y.reshape(5, 20, *y.shape[1:]) for y in batch)).reshape(100, 6), flat)
    shared = k(q, v, a, x[2])
    assert np.array_equal(shared, k(q, v, a, np.tile(x[2], (100, 1, 1))))
    assert np.array_equal(shared[2], flat[2])
    wide = np.zeros((100, 6, 20))
    wide[..., ::2] = x
    assert np.array_equal(k(q, v, a, wide[..., ::2]), flat)
    assert np.array_equal(k(q[::-1], v[::-1], a[::-1], x[::-1]), flat[::-1])
    out = np.empty((100, 6))
    assert k(q, v, a, x, out=out) is out
    assert np.array_equal(out, flat)
    two = arm.kernel("inverse_dynamics", free=("link6.mass", "gravity"))
    assert two(q, v, a, np.linspace(1.0, 2.0, 100), [0.0, 0.0, -1.6]).shape == (100, 6)
    assert two(q[0], v[0], a[0], np.linspace(1.0, 2.0, 100), np.zeros((3, 1, 3))).shape == (3, 100, 6)
    close(k(q, v, a, arm.parameters("inertia")), arm.inverse_dynamics(q, v, a), OTHER_ORDER)


def test_shared_parameters_of_a_large_kernel():
    """Several blocks in turn through each of many functions: shared columns are kept for all of them."""
    robot = qddot.chain(40, rng=0)
    k = robot.kernel("forward_dynamics", free=("inertia",))
    rng = np.random.default_rng(0)
    q, v, tau = rng.standard_normal((3, 90, 40))
    x = robot.parameters("inertia")
    many = np.tile(x, (90, 1, 1))
    assert np.array_equal(k(q, v, tau, x), k(q, v, tau, many))
    many[50] *= 1.01
    assert np.array_equal(np.delete(k(q, v, tau, many), 50, axis=0), np.delete(k(q, v, tau, x), 50, axis=0))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("names", [("inertia",), ("com", "position"), EVERYTHING], ids=lambda x: "+".join(x[:2]))
@pytest.mark.parametrize("name", ["inverse_dynamics", "mass_matrix", "forward_dynamics_derivatives", "forward_kinematics"])
def test_robots_that_do_or_do_not_follow_each_other(name, names, packed):
    """Parameters of each state are taken from their rows if these have no gaps; with gaps they become columns first.

    A tree of seven links or three: 21 or 9 numbers of centres do not fill tiles of four, and poses are results as they are.
    """
    rng = np.random.default_rng(1)
    robot = qddot.Robot(random_tree(3 if name.endswith("derivatives") else 7, rng=rng).model())
    k = robot.kernel(name, free=names, packed=packed)
    states = state_of(robot, rng, 43)
    own = [states[x] for x in k.names[: len(k.names) - len(names)]]
    values = [np.stack([other_values(robot, x, rng) for _ in range(43)]) for x in names]
    expected = k(*own, *values)
    apart = [np.repeat(x, 2, axis=0)[::2] for x in values]
    assert np.array_equal(k(*own, *apart), expected)
    assert np.array_equal(k(*own, values[0], *apart[1:]), expected)
    one_by_one = [k(*(x[i] for x in own), *(x[i] for x in values)) for i in range(43)]
    assert np.array_equal(one_by_one, expected)


def test_wide_parameters_in_rows(monkeypatch):
    """Those of more than sixteen numbers, unless they are angles; four columns at a time, where they are used first.

    Functions of two operations: one column serves several of them, one is a result, one is compared far from where it is.
    """

    def f(x):
        far = less(x[9], x[10])
        y = x[0] * x[3] + x[24]
        for k in range(4, 8):
            y = y * x[k] + x[4]
        return np.array([y, where(far, y, x[1]), np.sin(x[25]), x[12]], dtype=object)

    graph, nodes, _ = trace(f, [3 + 22 + 20])
    program, shapes = straight_line(graph, nodes, 45), [(3,), (2, 11), (20,)]
    assert lazy_inputs.wide_parameters(program, shapes, 2) == {1: range(3, 25)}
    assert lazy_inputs.wide_parameters(program, shapes, 1) == {}
    code = [n for n in program.body if graph.ops[n] in ("mul", "add", "select")]
    tiles = lazy_inputs.input_tiles(program, {1: range(3, 25)}, [code[:1], code[1:]])
    later = {t.start: tuple(graph.args[n][0] for n in t.later) for t in tiles.values()}
    found = {(t.start, t.function, tuple(sorted(t.nodes)), later[t.start]) for t in tiles.values()}
    assert found == {(0, 0, (0, 1, 2, 3), (4, 5, 6)), (4, 1, (0, 2, 3), ()), (8, 1, (1,), ()), (18, 1, (3,), ())}

    monkeypatch.setattr(memory_plan, "FUNCTION_MAX_OPS", 2)
    text = gufunc.render(program, shapes, [(4,)], 8, "float64", host(), 2)
    assert host().avx512 == ("core8r" in text)
    info = Info("toy", "", "unrolled", "float64", 8, program.count(), len(code), 0, 0.0, False)
    k = kernel_from_code(
        llvm_compile.Code(llvm_compile.compile_object(text)), ["x", "y", "z"], shapes, (4,), info, lambda: ""
    )
    x, y, z = (np.random.default_rng(0).standard_normal((24, *shape)) for shape in shapes)
    expected = [interpreter.run(program, np.concatenate([a, b.ravel(), c])) for a, b, c in zip(x, y, z, strict=True)]
    close(k(x, y, z), expected, OTHER_ORDER)
    assert np.array_equal(k(x, np.repeat(y, 2, axis=0)[::2], z), k(x, y, z))


@pytest.mark.parametrize("threads", [1, 3])
def test_threads(arm, batch, threads):
    k = arm.kernel("inverse_dynamics", free=("inertia",))
    q, v, a, x = (np.tile(y, (60,) + (1,) * (y.ndim - 1)) for y in batch)
    expected = k(*batch)
    try:
        qddot.set_num_threads(threads)
        assert np.array_equal(k(q, v, a, x)[:100], expected)
        assert np.array_equal(k(q, v, a, x[4])[4], expected[4])
    finally:
        qddot.set_num_threads(None)


@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16])
def test_every_number_of_lanes_gives_the_same_bits(arm, batch, lanes):
    k = arm.kernel("inverse_dynamics", free=("inertia",), lanes=lanes)
    assert np.array_equal(k(*batch), arm.kernel("inverse_dynamics", free=("inertia",))(*batch))
    q, v, a, x = batch
    assert np.array_equal(k(q, v, a, x[1])[1], k(*batch)[1])


def test_single_precision(arm, batch):
    names = ("inertia", "link3.placement")
    k = arm.kernel("inverse_dynamics", free=names, dtype="float32")
    result = k(*batch, arm.parameters("link3.placement"))
    assert result.dtype == np.float32
    close(result, arm.kernel("inverse_dynamics", free=("inertia",))(*batch), SINGLE)


def test_what_is_not_finite_stays_in_its_sample(arm, batch):
    k = arm.kernel("inverse_dynamics", free=("inertia",))
    q, v, a, x = batch
    bad = x.copy()
    bad[17, 3, 4], bad[40, 5, 0] = np.nan, np.inf
    result = k(q, v, a, bad)
    spoilt = ~k.finite(q, v, a, bad)
    assert np.flatnonzero(spoilt).tolist() == [17, 40]
    assert np.array_equal(result[~spoilt], k(q, v, a, x)[~spoilt])
    assert (~np.isfinite(result[spoilt])).any(axis=-1).all()


def test_what_is_no_rotation_gives_nan_in_its_sample(arm):
    k = arm.kernel("forward_kinematics", free=("link3.placement",))
    T = np.tile(arm.parameters("link3.placement"), (20, 1, 1))
    T[3, 0, 0] += 1e-3  # not orthogonal
    T[9, :3, 0] *= -1.0  # left-handed
    T[15, :3, :3] *= 1.001  # not of unit length
    poses = k(np.zeros((20, 6)), T)
    wrong = np.isnan(poses).any(axis=(1, 2, 3))
    assert np.flatnonzero(wrong).tolist() == [3, 9, 15]


# ---- kernels


def test_kernels_with_other_free_parameters_are_others(arm, batch):
    q, v, a, _ = batch
    plain, names = arm.kernel("inverse_dynamics"), ("link4.mass", "link5.mass")
    one, two = (arm.kernel("inverse_dynamics", free=(n,)) for n in names)
    assert arm.kernel("inverse_dynamics", free="link4.mass") is one
    assert plain.info.free == ()
    assert (one.info.free, two.info.free) == (("link4.mass",), ("link5.mass",))
    assert "free link4.mass" in repr(one)
    assert not np.array_equal(one(q, v, a, 3.0), two(q, v, a, 3.0))
    both, turned = (arm.kernel("inverse_dynamics", free=f) for f in (names, names[::-1]))
    assert np.array_equal(both(q, v, a, 2.0, 3.0), turned(q, v, a, 3.0, 2.0))
    keys = {
        pipeline._digest(arm.model.digest, Request("inverse_dynamics", free=f), "processor")
        for f in ((), names[:1], names[1:], names, names[::-1])
    }
    assert len(keys) == 5


def test_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("QDDOT_CACHE_DIR", str(tmp_path))
    model = random_tree(3, rng=9, kinds=("revolute",)).model()
    first = built(model, "gravity_force", free=("mass",))
    again = built(model, "gravity_force", free=("mass",))
    assert (first.info.cached, again.info.cached) == (False, True)
    assert again.info.free == ("mass",)
    q = np.ones(3)
    assert np.array_equal(first(q, [1.0, 2.0, 3.0]), again(q, [1.0, 2.0, 3.0]))
    assert not built(model, "gravity_force", free=("link1.mass",)).info.cached


def test_explain(arm):
    k = arm.kernel("inverse_dynamics", free=("mass", "link3.placement"))
    text = k.explain()
    assert re.search(r"link3  placement", text)
    assert re.search(r"link3  inertia", text)
    assert text.splitlines()[-1].split()[1:3] == [str(k.info.ops[c]) for c in ("mul", "add")]


@pytest.mark.skipif(not URDFS, reason=WHY)
def test_the_rest_still_folds():
    """Panda's inertias are dense, so that freeing them adds few operations; a damper is a product and a difference."""
    robot = cases.case("panda7", 1).robot
    folded, every, one = (
        sum(tracing.traced(robot.model, "inverse_dynamics", "newton_euler_classical", free=f).count().values())
        for f in ((), ("inertia",), ("panda_link7.mass",))
    )
    assert every <= 1.3 * folded
    assert one <= 1.3 * folded
    still = tracing.traced(robot.model, "inverse_dynamics", "newton_euler_classical", free=("damping",)).count()
    assert sum(still.values()) == folded + 2 * 7


def test_a_rotor_that_may_be_zero_is_not_taken_for_none(tree):
    """Six DoF without a rotor have a formula of their own; with one that is free the general one must be used."""
    rng = np.random.default_rng(0)
    known = state_of(tree, rng)
    arrays = [known[x] for x in ("q", "v", "tau")]
    k = tree.kernel("forward_dynamics", method="articulated_body", free=("root.armature",))
    for value in (np.zeros(6), np.full(6, 0.5)):
        expected = eager(tree.with_parameters({"root.armature": value}), "forward_dynamics", arrays)
        close(k(*arrays, value), expected, 1e-11)


# ---- robots with other numbers


def test_a_robot_with_its_own_numbers_is_the_same(tree):
    for name in ("inertia", "placement", "position", "gravity", *JOINTS, "arm.mass.inertia", "follower.damping"):
        assert tree.with_parameters({name: tree.parameters(name)}) == tree, name
    assert tree.with_parameters({}) == tree
    other = tree.with_parameters({"arm.mass": 5.0, "gravity": (0.0, 0.0, -1.0)})
    assert other != tree
    assert other.parameters("arm.mass") == 5.0
    assert pickle.loads(pickle.dumps(other.model)) == other.model
    assert not tree.with_parameters({"arm.mass": 5.0}).findings


def test_a_placement_set_to_numbers_knows_its_zeros(tree):
    turned = tree.with_parameters({"arm.placement": np.eye(4)})
    assert turned.model.placement[2].R is Transform().R
    shifted = tree.with_parameters({"arm.position": np.zeros(3)})
    assert shifted.model.placement[2].p is Transform().p


def test_values_that_cannot_be(tree):
    flipped = np.diag([1.0, 1.0, -1.0, 1.0])
    for values, text in (
        ({"arm.mass": -1.0}, "link 'arm': mass is -1; give a mass of zero or more"),
        ({"mass": [1.0, 1.0, 1.0, -2.0, 1.0]}, r"link 'ball': mass is -2"),
        ({"arm.inertia": [0.0, 0.1, 0, 0, 0, 0, 0, 0, 0, 0]}, "link 'arm': its first moment .* and its mass zero"),
        ({"arm.mass": np.nan}, "arm.mass is .*nan.*; give finite numbers"),
        ({"arm.com": "here"}, "give numbers"),
        ({"hip.damping": -0.1}, "joint 'hip': damping is"),
        ({"armature": -np.ones(11)}, "joint 'root': armature is"),
        ({"wrist.stiffness": [1.0, 2.0, 3.0]}, "joint 'wrist': its stiffness"),
        ({"arm.placement": flipped}, "link 'arm': the rotation of its placement is not orthogonal"),
        ({"arm.placement": 2.0 * np.eye(4) - np.diag([1.0, 1.0, 1.0, 0.0])}, "the last row of its placement is"),
    ):
        with pytest.raises(qddot.ModelError, match=text):
            tree.with_parameters(values)
    with pytest.raises(qddot.InputError, match=r"arm.com has shape \(2,\); it must be \(3,\)"):
        tree.with_parameters({"arm.com": [1.0, 2.0]})


def test_inertias_that_no_body_has(tree):
    """An error with the moments; those that stay as they were are not judged again."""
    negative = {"arm.inertia": [1.0, 0, 0, 0, -1.0, 0, 1.0, 0, 0, 1.0]}
    with pytest.raises(qddot.ModelError, match=r"'arm': its inertia is not positive: principal moments -1, 1, 1; .*allow"):
        tree.with_parameters(negative)
    with pytest.raises(qddot.ModelError, match=r"link 'arm': its inertia violates the triangle .* moments 1, 1, 3"):
        tree.with_parameters({"arm.inertia": [1.0, 0, 0, 0, 1.0, 0, 1.0, 0, 0, 3.0]})
    with pytest.raises(qddot.ModelError, match="link 'arm': its inertia is not positive: principal moments -3, "):
        tree.with_parameters({"arm.inertia": [1.0, 2.0, 0, 0, 1.0, 0, 1.0, 0, 0, 1.0]})  # not about the centre of mass
    found = tree.with_parameters(negative, allow_unphysical=True)
    assert "link 'arm': its inertia is not positive" in str(found.findings[-1])
    kept = found.with_parameters({"arm.mass": 2.0, "ball.inertia": found.parameters("ball.inertia")})
    assert kept.findings == found.findings
    assert found.with_parameters({"inertia": found.parameters("inertia")}) == found


def test_a_body_far_from_its_joint_is_not_refused_for_rounding(tree):
    c = np.array([1e4 / 3, 1e4 / 7, -1e4 / 9])  # m
    I = 2.0 * (c @ c * np.eye(3) - np.outer(c, c)) + 1e-9 * np.eye(3)  # kg m²: the ball itself is lost in rounding
    ten = [2.0, *(2.0 * c), I[0, 0], I[0, 1], I[1, 1], I[0, 2], I[1, 2], I[2, 2]]
    tree.with_parameters({"arm.inertia": ten})


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("inertia", "arm.mass"), "'inertia' and 'arm.mass' both set the mass of link 'arm'"),
        (("arm.com", "arm.com"), "'arm.com' and 'arm.com' both set the com"),
        (("arm.position", "placement"), "'arm.position' and 'placement' both set the position of link 'arm'"),
        (("wrist.damping", "damping"), "'wrist.damping' and 'damping' both set the damping"),
        (("gravity", "gravity"), "both set the gravity of robot 'tree'"),
    ],
)
def test_names_that_do_not_go_together(tree, names, text):
    with pytest.raises(qddot.InputError, match=re.escape(text)):
        tree.kernel("inverse_dynamics", free=names)


def test_names_that_go_together(tree):
    parameters.parameters(tree.model, ("mass", "com", "position", *JOINTS, "follower.damping", "gravity"))
    parameters.parameters(tree.model, ("arm.inertia", "ball.mass", "ball.com"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("inertias", "did you mean 'inertia'"),
        ("arn.mass", "did you mean 'arm.mass'"),
        ("wirst.damping", "did you mean 'wrist.damping'"),
        ("arm.mas", "did you mean 'arm.mass'"),
        ("tool.mass", "'tool' is fixed to link 'arm' and part of it; take 'arm.mass'"),
        ("tip.position", "'tip' is fixed to link 'arm'"),
        ("table.mass", "'table' is fixed to the world and does not move"),
        ("world.mass", "'world' is fixed to the world"),
        ("hip.mass", "'hip' is a joint; take that of the link it moves, 'arm.mass'"),
        ("arm.damping", "'arm' is a link; take that of the joint that moves it, 'hip.damping'"),
        ("weld.damping", "has no parameter 'weld.damping'"),
        ("", "has no parameter ''"),
    ],
)
def test_names_that_nobody_has(tree, name, text):
    for call in (
        lambda: tree.kernel("inverse_dynamics", free=(name,)),
        lambda: tree.parameters(name),
        lambda: tree.with_parameters({name: 1.0}),
    ):
        with pytest.raises(qddot.UnknownNameError, match=re.escape(text)):
            call()


def test_calls_with_wrong_arrays(arm, batch):
    k = arm.kernel("inverse_dynamics", free=("inertia",))
    q, v, a, x = batch
    for arguments, text in (
        ((q, v, a), "takes q, v, a, inertia; 3 arrays were given"),
        ((q, v, a, x[:, :5]), r"inertia has shape \(100, 5, 10\); its last axes must be \(6, 10\)"),
        ((q, v, a, x[:7]), "batch axes of .*inertia.* do not fit together"),
    ):
        with pytest.raises(qddot.InputError, match=text):
            k(*arguments)


# ---- payloads


PAYLOAD = {
    "payload_mass": 1.3,
    "payload_com": np.array([0.1, -0.2, 0.3]),
    "payload_inertia": np.array([0.02, 0.001, 0.0, 0.03, 0.002, 0.04]),
}
IN_ONE = parameters.numbers_of(
    inertia_from(1.3, (0.1, -0.2, 0.3), ((0.02, 0.001, 0.0), (0.001, 0.03, 0.002), (0.0, 0.002, 0.04)))
)


@pytest.mark.parametrize("frame", ["arm", "tool", "tip", "arm.mass", "finger"])
@pytest.mark.parametrize("function", ["inverse_dynamics", "forward_dynamics", "mass_matrix", "potential_energy"])
def test_a_payload_is_a_body_on_its_frame(tree, frame, function):
    """On links, on bodies that are welded to them and on frames: as `with_payload`, by parts or in ten numbers."""
    known = state_of(tree, np.random.default_rng(1))
    arrays = [known[x] for x in FUNCTIONS[function].inputs]
    carried = tree.with_payload(frame, *PAYLOAD.values(), name="load")
    expected = eager(carried, function, arrays).ravel()
    for values in ({f"{frame}.{kind}": x for kind, x in PAYLOAD.items()}, {f"{frame}.payload": np.array(IN_ONE)}):
        program = fused(tracing.traced(tree.model, function, "auto", free=tuple(values)))
        found = interpreter.run(program, np.concatenate([np.ravel(x) for x in (*arrays, *values.values())]))
        close(found, expected, 1e-10)
        close(eager(tree.with_parameters(values), function, arrays).ravel(), expected, 1e-10)
        none = np.concatenate([np.ravel(x) for x in (*arrays, *(np.zeros(np.shape(x)) for x in values.values()))])
        close(interpreter.run(program, none), eager(tree, function, arrays).ravel(), 1e-10)


def test_payloads_of_several_frames_add(tree):
    values = {"tool.payload_mass": 0.5, "tip.payload_mass": 0.25, "tip.payload_com": [0.0, 0.1, 0.0], "arm.mass": 3.0}
    by_hand = (
        tree.with_parameters({"arm.mass": 3.0})
        .with_payload("tool", 0.5)
        .with_payload("tip", 0.25, (0.0, 0.1, 0.0), name="b")
    )
    close(tree.with_parameters(values).parameters("inertia"), by_hand.parameters("inertia"), 1e-14)
    assert not np.any(tree.parameters("tip.payload"))
    assert [tree.parameters(f"tip.{kind}").shape for kind in ("payload", *PAYLOAD)] == [(10,), (), (3,), (6,)]


def test_payloads_in_a_batch_and_in_simulations():
    arm, rng = qddot.chain(2, rng=0), np.random.default_rng(0)
    frame = arm.link_names[-1]
    q, v = arm.random_state(rng, 37)
    masses, com = rng.uniform(0.0, 3.0, 37), np.array([0.0, 0.02, 0.1])
    names = (f"{frame}.payload_mass", f"{frame}.payload_com")
    tau = arm.kernel("inverse_dynamics", free=names)(q, v, v, masses, com)
    run = arm.simulate(q, 0.1 * v, dt=1e-4, steps=20, free=dict(zip(names, (masses, com), strict=True)), limits="ignore")
    for k in (0, 36):
        one = arm.with_payload(frame, masses[k], com)
        close(tau[k], one.inverse_dynamics(q[k], v[k], v[k]), OTHER_ORDER)
        close(run.q[k], one.simulate(q[k], 0.1 * v[k], dt=1e-4, steps=20, limits="ignore").q, 1e-10)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("tip.payload", "tip.payload_mass"), "both set the mass of the payload at 'tip' of link 'arm'"),
        (("table.payload",), "no parameter 'table.payload': 'table' is fixed to the world"),
        (("world.payload_mass",), "is fixed to the world"),
        (("tipp.payload",), r"did you mean 'tip\.payload'"),
        (("payload",), "has no parameter 'payload'"),
    ],
)
def test_payloads_that_cannot_be(tree, names, text):
    with pytest.raises(qddot.QddotError, match=text):
        tree.kernel("inverse_dynamics", free=names)


def test_payloads_are_judged(tree):
    with pytest.raises(qddot.ModelError, match=r"link 'arm': mass is -"):
        tree.with_parameters({"tip.payload_mass": -50.0})
    with pytest.raises(qddot.ModelError, match=r"triangle inequality|is not positive"):
        tree.with_parameters({"tip.payload_inertia": [0.0, 0.0, 0.0, 0.0, 0.0, 9.0]})


# ---- what is printed


def test_the_page_runs():
    page = (ROOT / "docs" / "parameters.md").read_text()
    namespace: dict = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, namespace)
    assert namespace["payload"] == pytest.approx(1.2, abs=0.02)
    assert namespace["found"] == pytest.approx(namespace["true"], abs=1e-6)


def test_the_page_lists_every_name():
    page = (ROOT / "docs" / "parameters.md").read_text()
    for name in (*LINKS, *JOINTS, "gravity", "payload", *PAYLOAD):
        assert f"`{name}`" in page, name


@pytest.mark.skipif(not URDFS, reason=WHY)
def test_the_benchmark_runs(monkeypatch, capsys):
    for name, value in (("CASES", ("panda7",)), ("STATES", 16), ("ROUNDS", 3)):
        monkeypatch.setattr(free, name, value)
    try:
        free.main()
    finally:
        qddot.set_num_threads(None)
    rows = ["folded", "one robot", "16 robots", "as the file has it", "only reading"]
    assert re.findall(r"\| panda7 \| (.*?) \|", capsys.readouterr().out) == rows
