"""The embedded robots against published numbers and closed forms; the generators against what they promise."""

import importlib
import math
import pickle

import numpy as np
import pytest

from qddot import robots
from qddot.algorithms.composite_body import mass_matrix
from qddot.algorithms.energy import potential_energy
from qddot.algorithms.kinematics import link_poses
from qddot.algorithms.newton_euler import bias_force, gravity_force
from qddot.errors import InputError, UnknownNameError
from qddot.joints import KINDS, Free
from qddot.robots.generators import OWN_JOINTS, chain, random_tree

PI = math.pi
RNG = np.random.default_rng(1999)


def model_of(name):
    return robots.build(name).model()


def neutral(model):
    pairs = zip(model.joint, model.mimic, strict=True)
    return np.array([x for joint, mimic in pairs if mimic is None for x in joint.neutral()])


# name: degrees of freedom of the tree, those that loops take away, loops, mass
PUBLISHED = {
    "pendulum": (1, 0, 0, 1.0),
    "double_pendulum": (2, 0, 0, 2.0),
    "planar3": (3, 0, 0, 1.2),
    "scara": (4, 0, 0, 31.0),
    "stanford": (6, 0, 0, 9.29 + 5.01 + 4.25 + 1.08 + 0.63 + 0.51),
    "puma560": (6, 0, 0, 17.4 + 4.8 + 0.82 + 0.34 + 0.09),
    "fourbar": (3, 2, 1, 9.5),
    "fivebar": (4, 2, 1, 1.6),
    "delta": (21, 18, 6, 3 * 2.0 + 6 * 0.2 + 1.5),
    "stewart": (24, 18, 6, None),
    "quadruped": (18, 0, 0, 3.3 + 4 * (0.54 + 0.634 + 0.064 + 3 * 0.055)),
}


@pytest.mark.parametrize("name", robots.NAMES)
def test_robot(name):
    nv, _, loops, mass = PUBLISHED[name]
    model = model_of(name)
    assert (model.name, model.nv, len(model.loops)) == (name, nv, loops)
    if mass is not None:
        assert model.mass == pytest.approx(mass, rel=1e-14)  # a sum of a few masses
    q = neutral(model)
    assert np.linalg.eigvalsh(mass_matrix(model, q)).min() > 0.0
    assert pickle.loads(pickle.dumps(model)) == model
    assert model_of(name) == model
    assert importlib.import_module(f"qddot.robots.{name}").__doc__


def test_the_only_findings_are_published_inertias():
    """PUMA's link 3 and the quadruped's thigh miss the triangle inequality in their sources; all else is clean."""
    found = {name: {f.element for f in model_of(name).findings} for name in robots.NAMES}
    legs = ("front_right", "front_left", "rear_right", "rear_left")
    expected = {"puma560": {"link 'link3'"}, "quadruped": {f"link '{leg}_thigh'" for leg in legs}}
    assert {name: elements for name, elements in found.items() if elements} == expected


@pytest.mark.parametrize("name", [n for n in robots.NAMES if PUBLISHED[n][2]])
def test_loops_are_closed_at_neutral_and_leave_the_degrees_of_freedom_they_should(name):
    model = model_of(name)
    q = neutral(model)

    def gaps(q):
        """The relative position of each loop's frames, and the relative turn off the axis for hinges."""
        poses = link_poses(model, q)
        out = []
        for loop in model.loops:
            A, B = poses[loop.link_a] @ loop.placement_a, poses[loop.link_b] @ loop.placement_b
            out += (np.array(B.p) - A.p).tolist()
            if loop.joint.kind == "revolute":
                out += np.cross(A.R @ loop.joint.axis, B.R @ loop.joint.axis).tolist()
        return np.array(out)

    assert abs(gaps(q)).max() < 1e-15 * 4  # a few roundings of lengths up to 4 m
    for loop in model.loops:  # also turned alike, so that loop joints start at their own neutral
        poses = link_poses(model, q)
        A, B = poses[loop.link_a] @ loop.placement_a, poses[loop.link_b] @ loop.placement_b
        np.testing.assert_allclose(np.array(A.R.rows), np.array(B.R.rows), atol=1e-15)
    step = 1e-6
    columns = []
    for k in range(model.nv):
        v = np.zeros(model.nv)
        v[k] = step
        columns.append((gaps(_moved(model, q, v)) - gaps(_moved(model, q, -v))) / (2 * step))
    # central differences are good to 1e-10 here; true singular values are larger than 1e-3
    assert np.linalg.matrix_rank(np.array(columns).T, tol=1e-6) == PUBLISHED[name][1]
    driven = sum(j.nv for j, on in zip(model.joint, model.actuated, strict=True) if on)
    assert driven == model.nv - PUBLISHED[name][1]


def _moved(model, q, v):
    x, u = model.coordinates(q), model.velocities(v)
    return np.array([c for i, _ in model.outward() for c in model.joint[i].integrate(x[i], u[i])])


# ---- closed forms ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [0.0, 0.7, PI / 2, -2.0])
def test_pendulum(q):
    model = model_of("pendulum")
    assert mass_matrix(model, [q]) == pytest.approx(1.0)
    assert gravity_force(model, [q])[0] == pytest.approx(9.81 * math.sin(q), abs=1e-14)  # rounding of one sine


def test_double_pendulum():
    """Two point masses: textbook M, Coriolis and gravity in relative angles."""
    model = model_of("double_pendulum")
    q, v = RNG.uniform(-3, 3, 2), RNG.uniform(-3, 3, 2)
    c, s = math.cos(q[1]), math.sin(q[1])
    M = np.array([[3 + 2 * c, 1 + c], [1 + c, 1]])
    g = 9.81 * np.array([2 * math.sin(q[0]) + math.sin(q.sum()), math.sin(q.sum())])
    coriolis = s * np.array([-v[1] * (2 * v[0] + v[1]), v[0] ** 2])
    np.testing.assert_allclose(mass_matrix(model, q), M, atol=1e-14)  # some ten roundings of numbers up to 5
    np.testing.assert_allclose(bias_force(model, q, v), coriolis + g, atol=1e-12)


def test_planar3():
    """Bars in absolute angles: M_jk = l_j l_k cos(φ_j - φ_k) (…), moved to relative angles by φ = A q."""
    model = model_of("planar3")
    l, m = np.array([0.3, 0.25, 0.22]), np.array([0.5, 0.4, 0.3])
    q = RNG.uniform(-3, 3, 3)
    phi = np.cumsum(q)
    M, V = np.zeros((3, 3)), 0.0
    for k in range(3):
        for j in range(3):
            outer = max(j, k)
            both = m[outer + 1 :].sum() + (m[outer] * (1 / 3 if j == k else 1 / 2))
            M[j, k] = both * l[j] * l[k] * math.cos(phi[j] - phi[k])
        V += 9.81 * l[k] * math.sin(phi[k]) * (m[k] / 2 + m[k + 1 :].sum())
    A = np.tril(np.ones((3, 3)))
    np.testing.assert_allclose(mass_matrix(model, q), A.T @ M @ A, atol=1e-15)
    assert potential_energy(model, q) == pytest.approx(V, abs=1e-14)


def test_scara():
    model = model_of("scara")
    q = RNG.uniform(-1, 1, 4)
    (l1, l2), (m1, m2, m3, m4) = (0.425, 0.375), (15.0, 12.0, 3.0, 1.0)
    tip, c = m3 + m4, math.cos(q[1])
    I3, I4 = m3 * 0.02**2 / 2, m4 * 0.05**2 / 2
    M22 = m2 * l2**2 / 3 + tip * l2**2 + I3 + I4
    M12 = M22 + (m2 / 2 + tip) * l1 * l2 * c
    M11 = M12 + m1 * l1**2 / 3 + (m2 + tip) * l1**2 + (m2 / 2 + tip) * l1 * l2 * c
    M = np.array([[M11, M12, 0, I4], [M12, M22, 0, I4], [0, 0, tip, 0], [I4, I4, 0, I4]])
    np.testing.assert_allclose(mass_matrix(model, q), M, atol=1e-14)
    np.testing.assert_allclose(gravity_force(model, q), [0, 0, -9.81 * tip, 0], atol=1e-13)


# P. I. Corke, "Robotics, Vision and Control" (2011), chapter 9: gravity load and inertia at the nominal pose, and the
# same for (1, …, 6) as others have printed them from his toolbox; four decimals.
NOMINAL = (
    [0, PI / 4, PI, 0, PI / 4, 0],
    [0, 31.6399, 6.0351, 0, 0.0283, 0],
    [
        [3.6594, -0.4044, 0.1006, -0.0025, 0, 0],
        [-0.4044, 4.4137, 0.3509, 0, 0.0024, 0],
        [0.1006, 0.3509, 0.9378, 0, 0.0015, 0],
        [-0.0025, 0, 0, 0.1925, 0, 0],
        [0, 0.0024, 0.0015, 0, 0.1713, 0],
        [0, 0, 0, 0, 0, 0.1941],
    ],
)
COUNTED = (
    [1, 2, 3, 4, 5, 6],
    [0, -7.9683, 8.4581, -0.0197, 0.0027, 0],
    [
        [2.6152, -0.6550, -0.0363, 0.0001, 0.0010, 0],
        [-0.6550, 4.3038, 0.2953, -0.0008, -0.0017, 0],
        [-0.0363, 0.2953, 0.9366, -0.0009, -0.0006, 0],
        [0.0001, -0.0008, -0.0009, 0.1926, 0, 0],
        [0.0010, -0.0017, -0.0006, 0, 0.1713, 0],
        [0, 0, 0, 0, 0, 0.1941],
    ],
)


@pytest.mark.parametrize(("q", "gravity", "inertia"), [NOMINAL, COUNTED], ids=["nominal", "counted"])
def test_puma_as_published(q, gravity, inertia):
    model = model_of("puma560")
    np.testing.assert_allclose(gravity_force(model, q), gravity, atol=5.1e-5)  # half a digit of the print
    np.testing.assert_allclose(mass_matrix(model, q), inertia, atol=5.1e-5)


def test_stanford_boom():
    """The boom's own row: what slides is its mass, the wrist's and the motor's, and gravity pulls along it."""
    model = model_of("stanford")
    q = RNG.uniform(-1, 1, 6)
    slides = 4.25 + 1.08 + 0.63 + 0.51
    assert mass_matrix(model, q)[2, 2] == pytest.approx(slides + 0.782, rel=1e-14)
    assert gravity_force(model, q)[2] == pytest.approx(slides * 9.81 * math.cos(q[1]), rel=1e-13)
    frame = model.frame("link6")
    T = link_poses(model, np.zeros(6))[frame.link] @ frame.placement
    np.testing.assert_allclose(T.p, (0.0, 0.154, 0.412 + 0.263), atol=1e-15)


def test_stewart_steel():
    """Volumes times density, by hand: plate π·0.05, six legs of tube and rod."""
    model = model_of("stewart")
    foot = 3 * np.array([math.cos(math.radians(2.5)), math.sin(math.radians(2.5)), 0])
    top = np.array([math.cos(math.radians(50)), math.sin(math.radians(50)), 2])
    half = 0.75 * np.linalg.norm(top - foot)
    volume = PI * 0.05 + 6 * PI * half * (0.05**2 - 0.03**2 + 0.03**2)
    assert model.mass == pytest.approx(volume * 76e3 / 9.81, rel=1e-14)
    assert gravity_force(model, neutral(model))[5] == pytest.approx(PI * 0.05 * 76e3, rel=1e-14)


def test_quadruped_stands_on_four_mirrored_legs():
    model = model_of("quadruped")
    q = neutral(model)
    poses = link_poses(model, q)
    feet = {}
    for leg in ("front_right", "front_left", "rear_right", "rear_left"):
        frame = model.frame(f"{leg}_foot")
        feet[leg] = np.array((poses[frame.link] @ frame.placement).p)
    np.testing.assert_allclose(feet["front_left"], (0.19, 0.049 + 0.062 + 0.004, -0.209 - 0.195), atol=1e-15)
    for leg, signs in (("front_right", (1, -1, 1)), ("rear_left", (-1, 1, 1)), ("rear_right", (-1, -1, 1))):
        np.testing.assert_allclose(feet[leg], signs * feet["front_left"], atol=1e-15)
    # at rest the body's share of gravity is all there is: no moment about x, by the mirror
    forces = gravity_force(model, q)
    assert forces[5] == pytest.approx(9.81 * model.mass, rel=1e-14)
    assert abs(forces[0]) < 1e-14
    assert model.armature[model.joint_index("rear_left_knee")] == pytest.approx((63e-6 * 9.33**2,))


def test_quadruped_is_its_own_mirror_image():
    """Left and right exchanged, y and with it turns about x and z reversed: M at q = 0 does not change."""
    model = model_of("quadruped")
    mirror = np.zeros((18, 18))
    mirror[:6, :6] = np.diag([-1, 1, -1, 1, -1, 1])
    for i in range(2, 14):
        twin = model.joint_names[i].replace("right", "LEFT").replace("left", "right").replace("LEFT", "left")
        sign = -1 if "abduction" in twin else 1
        mirror[model.slots[i].v.start, model.slots[model.joint_index(twin)].v.start] = sign
    M = mass_matrix(model, neutral(model))
    np.testing.assert_allclose(mirror @ M @ mirror.T, M, atol=1e-15)  # entries of 1e-5 to 10, rounding of the largest 1e-15


def test_unknown_robots_list_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'puma560'"):
        robots.build("puma")
    with pytest.raises(UnknownNameError):
        robots.build("generators")


# ---- generators ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("joint", [kind for kind in KINDS if kind != "fixed"])
@pytest.mark.parametrize("rng", [None, 3])
def test_chains(joint, rng):
    model = chain(4, rng, joint).model()
    assert model.parent == (-1, 0, 1, 2, 3)
    assert {j.kind for j in model.joint[1:]} == {joint}
    assert chain(4, rng, joint).model() == model
    assert not model.findings


def test_regular_chain_is_a_row_of_bars():
    """A vertical chain turned as a whole about its first axis: the inertia of a rod of n bars about its end."""
    model = chain(10).model()
    expected = 10 * 0.1 * (10 * 0.1) ** 2 / 3
    assert mass_matrix(model, np.zeros(10))[0, 0] == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("order", ["depth", "breadth", "random"])
@pytest.mark.parametrize("mimic", [False, True])
def test_trees(order, mimic):
    models = [random_tree(12, seed, mimic=mimic, order=order).model() for seed in range(25)]
    assert all(m.n_links == 12 for m in models)
    assert not any(m.findings for m in models)  # every body is possible
    assert {j.kind for m in models for j in m.joint[1:]} == set(KINDS) - {"fixed"}
    assert any(m.parent.count(0) > 1 for m in models)
    assert any(len({m.parent.count(i) for i in range(13)}) > 2 for m in models)
    assert any(m.frames for m in models)
    assert any(m.is_coupled for m in models) == mimic
    assert random_tree(12, 5, mimic=mimic, order=order).model() == models[5]
    assert random_tree(12, np.random.default_rng(5), mimic=mimic, order=order).model() == models[5]
    for m in models[:5]:
        assert pickle.loads(pickle.dumps(m)) == m


def test_orders_number_the_same_tree_differently():
    def depth_first(m):
        """Whether every link's subtree is a run of numbers."""
        return all(i - 1 in {m.parent[i], *_below(m, m.parent[i])} for i in range(1, 13))

    def _below(m, p):
        return {i for i in range(1, 13) if p == 0 or p in m.ancestors(i)}

    trees = {o: [random_tree(12, s, order=o).model() for s in range(10)] for o in ("depth", "breadth", "random")}
    assert all(depth_first(m) for m in trees["depth"])
    assert all(list(m.parent) == sorted(m.parent) for m in trees["breadth"])
    assert not all(depth_first(m) for m in trees["random"])
    assert not all(list(m.parent) == sorted(m.parent) for m in trees["random"])


def test_mimic_chains_occur():
    """Some follower follows a follower."""
    builder = random_tree(30, 0, kinds=["revolute", "prismatic", "helical"], mimic=True)
    rows = builder._joints
    assert any(j.mimic and rows[j.mimic[0]].mimic for j in rows.values())
    assert builder.model().nv < 30


def test_tree_of_chosen_kinds():
    model = random_tree(6, 0, kinds=["free"]).model()
    assert all(isinstance(j, Free) for j in model.joint[1:])
    assert (model.nq, model.nv) == (42, 36)


def test_generators_refuse_nonsense():
    with pytest.raises(InputError, match="n is 0"):
        chain(0)
    with pytest.raises(InputError, match=r"n is 2\.5"):
        random_tree(2.5)
    with pytest.raises(InputError, match="kinds is empty"):
        random_tree(3, kinds=[])
    with pytest.raises(UnknownNameError, match="did you mean 'revolute'"):
        chain(3, joint="revolut")
    with pytest.raises(UnknownNameError, match="did you mean 'breadth'"):
        random_tree(3, order="bredth")


@pytest.mark.parametrize("name", OWN_JOINTS)
def test_example_joints_move_rigidly(name):
    T = OWN_JOINTS[name]([0.7, -0.4])
    R = np.array(T.R.rows)
    np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-15)
    assert np.linalg.det(R) == pytest.approx(1.0)
