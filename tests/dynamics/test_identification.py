"""Base parameters: as many as the literature has, enough to give every joint force, and not one too many."""

import re
import warnings

import numpy as np
import pytest
from hypothesis import assume, given

import qddot
from qddot.algorithms import newton_euler
from qddot.algorithms.regressor import torque_regressor
from qddot.dynamics.adapters import units
from qddot.dynamics.base_parameters import TEN, base_parameters
from qddot.joints import KINDS, Cylindrical, Free, Prismatic, Revolute, Spherical, Translational
from tests.support.mechanisms import trees
from tests.support.paths import ROOT
from tests.support.peers import peer
from tests.support.profiles import examples
from tests.support.real_robots import GOOD, or_skipped

UP, ALONG, ACROSS = (0.0, 0.0, 1.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0)


def some_body(rng):
    A = rng.standard_normal((3, 3))
    S = 0.1 * (A @ A.T) + 0.1 * np.eye(3)  # second moments of mass
    return rng.uniform(0.5, 2.0), rng.uniform(-0.3, 0.3, 3), np.trace(S) * np.eye(3) - S


def serial(*joints, gravity=(0.0, 0.0, -9.81), turned=False, seed=0):
    """A chain of these joints with arbitrary bodies and shifts; `turned` placements, or axes as they are given."""
    rng = np.random.default_rng(seed)
    b, parent = qddot.Builder("serial", gravity=gravity), "world"
    for k, joint in enumerate(joints, 1):
        b.link(f"link{k}", *some_body(rng))
        at = qddot.pose(rng.uniform(-0.5, 0.5, 3), rng.uniform(-1.0, 1.0, 3) if turned and k > 1 else (0.0, 0.0, 0.0))
        b.joint(f"joint{k}", parent, f"link{k}", joint, at)
        parent = f"link{k}"
    return b.robot()


def states(robot, count, seed=1):
    rng = np.random.default_rng(seed)
    pairs = [robot.random_state(rng) for _ in range(count)]
    q, v = (np.stack(x) for x in zip(*pairs, strict=True))
    return q, v, rng.standard_normal((count, robot.nv))


# ---- how many there are


def test_the_puma_has_36():
    """Mayeda, Yoshida & Osuka 1990; Gautier & Khalil 1990; both without rotors."""
    base = qddot.load("puma560").base_parameters()
    assert len(base) == 36
    links = [name.split(".")[0] for name in base.names]
    assert [links.count(f"link{k}_at_joint") for k in range(1, 7)] == [1, 7, 7, 7, 7, 7]
    assert base.names[0].endswith(".Izz")
    assert [n.split(".")[1] for n in base.names[1:8]] == ["hx", "hy", "Ixx", "Ixy", "Ixz", "Iyz", "Izz"]


@pytest.mark.parametrize("upright", [True, False])
@pytest.mark.parametrize(("n", "parallel"), [(1, 1), (2, 1), (2, 2), (3, 2), (6, 1), (6, 2), (6, 3), (6, 6), (9, 1)])
def test_revolute_arms(n, parallel, upright):
    """Mayeda et al.: 7n - 4β for β parallel axes at the base, two less where they are parallel to gravity."""
    rows, rng = [], np.random.default_rng(n)
    for k in range(n):
        mass, com, inertia = some_body(rng)
        alpha = rng.uniform(0.3, 1.2) if k >= parallel or (k == 0 and not upright) else 0.0
        rows.append({"alpha": alpha, "a": 0.3, "d": 0.1, "mass": mass, "com": com, "inertia": inertia})
    base = qddot.from_dh(rows, convention="modified").base_parameters()
    assert len(base) == 7 * n - 4 * parallel - 2 * upright


@pytest.mark.parametrize(
    ("joints", "count"),
    [
        ([Free()], 10),
        ([Free(), *[Revolute(ALONG), Revolute(ACROSS)] * 2], 10 + 7 * 4),
        ([Free(), *[Revolute(UP)] * 3], 10 + 7 * 3),  # parallel or not: the base turns about everything
        ([Free(), Prismatic(ALONG), Prismatic(UP)], 10 + 4 * 2),
        ([Free(), Spherical(), Spherical()], 10 + 9 * 2),
        ([Free(), Translational()], 10 + 4),
        ([Free(), Cylindrical(UP)], 10 + 9),
        ([Prismatic(UP), Prismatic(ALONG), Prismatic(ACROSS)], 3),  # nothing turns: the masses
        ([Translational()], 1),
        ([Spherical()], 9),  # a top: all but the mass, which rests on the point
        ([Revolute(ACROSS), Revolute(ACROSS)], 6),  # a planar arm in the vertical plane: I_yy, h_x, h_z of each
        ([Revolute(ACROSS), Revolute(ACROSS), Revolute(ACROSS)], 9),
        ([Revolute(UP), Revolute(UP)], 4),  # the same on a table: the first link by its moment of inertia alone
        ([Revolute(UP), Prismatic(UP)], 2),  # m of the slide, and I_zz of both together
        ([Revolute(UP), Prismatic(ALONG)], 4),  # I_zz of both, m, and h across and along the slide
    ],
    ids=lambda x: "-".join(j.kind for j in x) if isinstance(x, list) else str(x),
)
def test_known_mechanisms(joints, count):
    assert len(serial(*joints).base_parameters()) == count


def test_gravity_along_the_first_axis_hides_the_first_moments():
    joints = [Revolute(ALONG), Revolute(ACROSS)]
    down, along, none = (serial(*joints, gravity=g).base_parameters() for g in ((0, 0, -9.8), (-9.8, 0, 0), (0, 0, 0)))
    assert (len(down), len(along), len(none)) == (10, 8, 8)
    assert set(down.names) - set(along.names) == {"link1.hy", "link1.hz"}
    assert along.names == none.names
    assert {"link1.m", "link1.hx", "link1.hy", "link1.hz", "link1.Iyz"} <= set(along.without_effect)


FILES = [
    pytest.param(p, id=p.stem, marks=pytest.mark.slow if p.stem == "tiago" else ())
    for p in GOOD
    if p.stem in ("ur5_robot", "kinova", "solo12", "tiago", "iris", "z1")
]


@pytest.mark.oracle
@pytest.mark.parametrize("floating", [False, True])
@pytest.mark.parametrize("path", or_skipped(FILES))
def test_pinocchios_regressor_has_the_same_rank(path, floating):
    pin = peer("pinocchio")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", qddot.QddotWarning)
        base = qddot.load(path, floating_base=floating).base_parameters()
    model = pin.buildModelFromUrdf(str(path), *((pin.JointModelFreeFlyer(),) if floating else ()))
    data, rng = model.createData(), np.random.default_rng(0)
    rows = []
    for _ in range(100):
        q = pin.randomConfiguration(model, -np.ones(model.nq), np.ones(model.nq))
        rows.append(pin.computeJointTorqueRegressor(model, data, q, *rng.standard_normal((2, model.nv))))
    Y = np.concatenate(rows)
    seen = Y[:, np.linalg.norm(Y, axis=0) > 1e-9 * np.max(np.abs(Y))]
    assert np.linalg.matrix_rank(seen / np.linalg.norm(seen, axis=0), tol=1e-9) == len(base)


# ---- what they say


def predicts_and_is_minimal(robot, seed=0):
    """Inertias with the same base parameters give the same forces, and no fewer parameters would do."""
    base, rng = base_parameters(robot.model), np.random.default_rng(seed)
    assert base.margin[0] > 1e3 * base.margin[1]  # or the rank would be a matter of taste
    K, columns = base.matrix, list(base.columns)
    assert K.shape == (len(base), 10 * robot.model.n_links)
    assert np.array_equal(K[:, columns], np.eye(len(base)))
    assert base.names == tuple(base.all_names[k] for k in columns)
    q, v, a = states(robot, 20)
    Y = torque_regressor(robot.model, q, v, a, units())
    pi = rng.standard_normal(K.shape[1])
    size = np.max(np.abs(Y), initial=0.0) * np.max(np.abs(K), initial=1.0) * np.sqrt(K.shape[1])
    assert np.max(np.abs(Y @ pi - Y @ base.inertia(K @ pi).reshape(-1)), initial=0.0) <= 1e-12 * size
    many = torque_regressor(robot.model, *states(robot, 40 + 40 * robot.model.n_links), units())[..., columns]
    many = many.reshape(-1, len(base))
    assert np.linalg.matrix_rank(many / np.linalg.norm(many, axis=0), tol=1e-9) == len(base)


@examples(40)
@given(trees(max_links=5))
def test_any_tree(robot):
    clear, unclear = base_parameters(robot.model).margin
    # with one DoF for many links effects become a matter of taste: 1e-7 and 1e-9 of the largest
    assume(clear > max(1e-5, 1e3 * unclear))
    predicts_and_is_minimal(robot)


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in ("fixed", "own")])
def test_every_kind_of_joint_between_others(kind):
    axis = {"axis": (0.6, 0.0, 0.8)} if kind in ("revolute", "prismatic", "helical", "cylindrical", "planar") else {}
    extra = {"pitch": 0.2} if kind == "helical" else {}
    joint = KINDS[kind](**axis, **extra)
    predicts_and_is_minimal(serial(joint, Revolute(ALONG), joint, turned=True))


@pytest.mark.filterwarnings("ignore::qddot.QddotWarning")
@pytest.mark.parametrize("name", ["puma560", "stanford", "scara", "quadruped"])
def test_embedded_robots(name):
    predicts_and_is_minimal(qddot.load(name))


@pytest.mark.filterwarnings("ignore::qddot.QddotWarning")
def test_two_robots_with_the_same_base_parameters_move_alike():
    """As a user sees it: through compiled kernels with free inertias, to 1e-12."""
    robot = qddot.load("puma560")
    base, rng = robot.base_parameters(), np.random.default_rng(0)
    k = robot.kernel("inverse_dynamics", free=("inertia",))
    pi = robot.parameters("inertia")
    null = np.eye(pi.size) - np.linalg.pinv(base.matrix) @ base.matrix
    other = pi + (null @ rng.standard_normal(pi.size)).reshape(pi.shape)
    assert np.max(np.abs(other - pi)) > 0.1
    q, v, a = states(robot, 50)
    expected = k(q, v, a, pi)
    for x in (other, base.inertia()):
        assert np.max(np.abs(k(q, v, a, x) - expected)) <= 1e-12 * np.max(np.abs(expected))
    assert base.matrix @ other.reshape(-1) == pytest.approx(base.values, abs=1e-12)


def test_the_regressor_is_inverse_dynamics():
    robot = serial(Revolute(UP), Spherical(), Prismatic(ALONG), turned=True)
    q, v, a = states(robot, 5)
    Y = torque_regressor(robot.model, q, v, a, units())
    assert Y.shape == (5, robot.nv, 30)
    tau = newton_euler.rigid_body_forces(robot.model, q, v, a)
    assert Y @ robot.parameters("inertia").reshape(-1) == pytest.approx(tau, abs=1e-12)
    assert torque_regressor(robot.model, q[0], v[0], a[0], units()) == pytest.approx(Y[0], abs=1e-13)


def test_the_states_do_not_matter():
    model = serial(Revolute(UP), Prismatic(ALONG), Revolute((0.6, 0.0, 0.8)), turned=True).model
    one, two = (base_parameters(model, seed=k) for k in (0, 7))
    assert one.names == two.names
    assert one.matrix == pytest.approx(two.matrix, abs=1e-12)


def test_joints_that_share_a_coordinate():
    """Two wheels that always turn alike on one axis have one moment of inertia."""
    b = qddot.Builder("wheels")
    for name, mimic in (("left", None), ("right", ("left_joint", 2.0, 0.0))):
        b.link(name, 1.0, (0.0, 0.0, 0.0), np.diag([0.1, 0.1, 0.2]))
        b.joint(f"{name}_joint", "world", name, Revolute(UP), qddot.pose((0.0, float(name == "left"), 0.0)), mimic=mimic)
    base = b.robot().base_parameters()
    assert base.names == ("left.Izz",)
    assert base.values == pytest.approx([0.2 + 4.0 * 0.2])
    assert base.explain() == "left.Izz            1 = left.Izz + 4 right.Izz"


# ---- what is printed and refused


def test_explain():
    base = serial(Revolute(UP), Revolute(UP)).base_parameters()
    assert base.names == ("link1.Izz", "link2.hx", "link2.hy", "link2.Izz")
    first = base.explain().splitlines()[0]
    assert re.fullmatch(r"link1\.Izz +[\d.]+ = link1\.Izz \+ 0\.\d+ link2\.m", first)
    assert "link2.Izz" not in first
    assert {f"link1.{x}" for x in TEN} - set(base.without_effect) == {"link1.Izz"}


def test_what_cannot_be():
    with pytest.raises(qddot.InputError, match="has loops"):
        qddot.load("fourbar").base_parameters()
    assert len(qddot.load("fourbar").spanning_tree().base_parameters()) > 0
    robot = serial(Revolute(UP), Revolute(ALONG))
    for tolerance in (0.0, 1.0, -1e-9, np.nan):
        with pytest.raises(qddot.InputError, match="tolerance"):
            robot.base_parameters(tolerance)
    base = robot.base_parameters()
    with pytest.raises(qddot.InputError, match=f"must have {len(base)} entries"):
        base.inertia(np.zeros(3))
    assert base.inertia(np.zeros((4, 5, len(base)))).shape == (4, 5, 2, 10)
    b = qddot.Builder("rock")
    b.link("rock", 1.0).joint("floor", "world", "rock", qddot.joints.Fixed())
    assert len(b.robot().base_parameters()) == 0


def test_the_page_identifies_an_arm():
    page = (ROOT / "docs" / "parameters.md").read_text()
    namespace: dict = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, namespace)
    base = namespace["base"]
    assert len(base) == 38  # as the page says
    assert namespace["beta"] == pytest.approx(base.values, abs=1e-9)
    assert np.max(np.abs(namespace["again"] - namespace["measured"])) < 1e-9
