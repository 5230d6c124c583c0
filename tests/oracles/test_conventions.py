"""Conversions to MuJoCo's and Pinocchio's orders: there and back, power, and dynamics computed on both sides.

The conversions to MuJoCo are also what `test_mjcf` compares every model through.
"""

import tracemalloc

import numpy as np
import pytest

import qddot
from qddot import conventions, joints
from qddot.algorithms.composite_body import mass_matrix
from qddot.algorithms.kinematics import link_poses
from qddot.algorithms.newton_euler import rigid_body_forces
from qddot.errors import InputError
from qddot.formats import mjcf
from qddot.mechanism.builder import Builder
from qddot.spatial import Transform
from tests.support.peers import HOW, peer

try:
    import pinocchio as pin
except ImportError:
    pin = None

mujoco = peer("mujoco")
needs_pinocchio = pytest.mark.skipif(pin is None, reason=f"needs pinocchio: {HOW['pinocchio']}")

ROUNDING = 1e-12  # relative: some hundred products of numbers of size 1

TREE = """<mujoco><default><geom size=".1 .2 .3" type="box"/></default><worldbody>
<body name="base" pos="1 2 3"><freejoint name="root"/><geom/>
  <body pos=".1 .2 .3"><joint name="ball" type="ball"/><geom pos=".1 0 0"/>
    <body pos="0 .1 .2" euler="10 20 30"><joint name="hinge" axis="1 2 3"/><joint name="slide" type="slide"/><geom/>
    </body>
  </body></body></worldbody></mujoco>"""


def near(ours, theirs):
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=ROUNDING * np.abs(theirs).max())


def batch(model, rng, shape):
    """Random states of a batch, each joint's by its own rule."""
    q = np.zeros((*shape, model.nq))
    for index in np.ndindex(*shape):
        for i, _ in model.outward():
            if model.mimic[i] is None:
                q[index][model.slots[i].q] = model.joint[i].random(rng)
    return q, *(rng.normal(size=(*shape, model.nv)) for _ in range(3))


# ---- MuJoCo ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
def test_mujoco_there_and_back(shape):
    model = mjcf.read("tree.xml", text=TREE).model()
    q, v, a, tau = batch(model, np.random.default_rng(1), shape)
    qpos, qvel = conventions.to_mujoco_q(model, q), conventions.to_mujoco_v(model, q, v)
    qacc, qfrc = conventions.to_mujoco_a(model, q, v, a), conventions.to_mujoco_tau(model, q, tau)
    near(conventions.from_mujoco_q(model, qpos), q)
    near(conventions.from_mujoco_v(model, q, qvel), v)
    near(conventions.from_mujoco_a(model, q, v, qacc), a)
    near(conventions.from_mujoco_tau(model, q, qfrc), tau)
    near((qfrc * qvel).sum(-1), (tau * v).sum(-1))  # power does not depend on the order
    M = np.eye(model.nv) + tau[..., :, None] * tau[..., None, :]
    near(conventions.from_mujoco_matrix(model, q, conventions.to_mujoco_matrix(model, q, M)), M)
    assert qvel.shape == (*shape, model.nv)


def test_mujoco_velocity_is_the_rate_of_its_coordinates():
    m = mujoco.MjModel.from_xml_string(TREE)
    model = mjcf.read("tree.xml", text=TREE).model()
    q, v, a, _ = batch(model, np.random.default_rng(2), ())
    h, rates = 1e-6, []
    for sign in (1.0, -1.0):
        moved = [joint.integrate(q[s.q], sign * h * v[s.v]) for joint, s in zip(model.joint, model.slots, strict=True)]
        rates.append(conventions.to_mujoco_q(model, np.concatenate(moved)))
    qvel = np.zeros(m.nv)
    mujoco.mj_differentiatePos(m, qvel, 2 * h, rates[1], rates[0])
    # central differences: h² of truncation and 1e-16 / h of rounding
    np.testing.assert_allclose(conventions.to_mujoco_v(model, q, v), qvel, atol=1e-8)
    # and qacc is the rate of qvel along the same motion
    ahead, behind = (
        conventions.to_mujoco_v(model, conventions.from_mujoco_q(model, qpos), v + sign * h * a)
        for sign, qpos in zip((1.0, -1.0), rates, strict=True)
    )
    np.testing.assert_allclose(conventions.to_mujoco_a(model, q, v, a), (ahead - behind) / (2 * h), atol=1e-8)


def test_joints_that_mujoco_does_not_have_are_named():
    b = Builder("r").link("a", 1.0, inertia=np.eye(3)).joint("turntable", "world", "a", joints.Planar())
    with pytest.raises(InputError, match="'turntable' is planar; MuJoCo has hinges"):
        conventions.to_mujoco_q(b.model(), np.zeros(3))


def test_wrong_shapes_are_named():
    model = mjcf.read("tree.xml", text=TREE).model()
    with pytest.raises(InputError, match=r"q has shape \(3,\); give \(..., 13\)"):
        conventions.to_mujoco_q(model, np.zeros(3))
    with pytest.raises(InputError, match=r"M has shape \(11,\); give \(..., 11, 11\)"):
        conventions.to_mujoco_matrix(model, np.zeros(13), np.zeros(11))


# ---- Pinocchio -------------------------------------------------------------------------------------------------------

AXIS = (0.6, 0.0, 0.8)
KINDS = {
    "free": (joints.Free(), lambda: pin.JointModelFreeFlyer()),
    "spherical": (joints.Spherical(), lambda: pin.JointModelSpherical()),
    "revolute": (joints.Revolute((1.0, 0.0, 0.0)), lambda: pin.JointModelRX()),
    "tilted": (joints.Revolute(AXIS), lambda: pin.JointModelRevoluteUnaligned(*AXIS)),
    "continuous": (joints.Revolute((0.0, 0.0, 1.0)), lambda: pin.JointModelRUBZ()),
    "prismatic": (joints.Prismatic((0.0, 1.0, 0.0)), lambda: pin.JointModelPY()),
    "planar": (joints.Planar(), lambda: pin.JointModelPlanar()),
    "translational": (joints.Translational(), lambda: pin.JointModelTranslation()),
    "euler": (joints.SphericalEuler("zyx"), lambda: pin.JointModelSphericalZYX()),
}


def both(parents):
    """One tree in both engines; Pinocchio gets the children of a link in the opposite order."""
    rng = np.random.default_rng(3)
    # Pinocchio draws any positive matrix for an inertia, so the triangle inequality may not hold
    builder, other, ids = Builder("both", allow_unphysical=True), pin.Model(), {"world": 0}
    rows = {}
    for name, parent in parents.items():
        place, inertia = pin.SE3.Random(), pin.Inertia.Random()
        rows[name] = (parent, place, inertia)
        rotation = tuple(map(tuple, place.rotation.tolist()))
        T = Transform(type(Transform().R)(rotation), tuple(place.translation.tolist()))
        builder.link(name, inertia.mass, inertia.lever.tolist(), inertia.inertia)
        builder.joint(f"joint_{name}", parent, name, KINDS[name][0], T, armature=float(rng.uniform(0, 1)))
    waiting = [name for name, row in rows.items() if row[0] == "world"]
    while waiting:  # depth first, as Pinocchio's mass matrix needs it
        name = waiting.pop()
        parent, place, inertia = rows[name]
        ids[name] = other.addJoint(ids[parent], KINDS[name][1](), place, f"joint_{name}")
        other.appendBodyToJoint(ids[name], inertia, pin.SE3.Identity())
        waiting += [child for child, row in rows.items() if row[0] == name]
    model = builder.model()
    other.armature = conventions.to_pinocchio_tau(model, other, _neutral(model), np.concatenate(model.armature))
    return model, other


def _neutral(model):
    return np.concatenate([joint.neutral() for joint in model.joint])


TREES = {
    "a chain of all kinds": dict(zip(KINDS, ["world", *KINDS], strict=False)),
    "a star": dict.fromkeys(KINDS, "world"),
    "two branches": dict(zip(KINDS, ["world", "free", "free", "spherical", "revolute"] + ["free"] * 4, strict=True)),
}


@pytest.mark.parametrize("tree", TREES)
@needs_pinocchio
def test_dynamics_agree_with_pinocchio(tree):
    pin.seed(5)
    model, other = both(TREES[tree])
    data = other.createData()
    q, v, a, tau = batch(model, np.random.default_rng(6), (3,))
    there_q = conventions.to_pinocchio_q(model, other, q)
    there_v, there_a = (conventions.to_pinocchio_v(model, other, q, x) for x in (v, a))
    for k in range(3):
        pin.forwardKinematics(other, data, there_q[k])
        T_W = link_poses(model, q[k])
        for name in TREES[tree]:
            T = T_W[model.frame(name).link]
            near(np.array(T.p), data.oMi[other.getJointId(f"joint_{name}")].translation)
        pin.crba(other, data, there_q[k], pin.Convention.WORLD)
        near(conventions.to_pinocchio_matrix(model, other, q[k], mass_matrix(model, q[k])), data.M)
        near(mass_matrix(model, q[k]), conventions.from_pinocchio_matrix(model, other, q[k], data.M))
        theirs = pin.rnea(other, data, there_q[k], there_v[k], there_a[k])
        near(rigid_body_forces(model, q[k], v[k], a[k]), conventions.from_pinocchio_tau(model, other, q[k], theirs))
    near(conventions.from_pinocchio_v(model, other, q, there_v), v)
    near(conventions.from_pinocchio_tau(model, other, q, conventions.to_pinocchio_tau(model, other, q, tau)), tau)
    back = conventions.from_pinocchio_q(model, other, there_q)  # angles within ±π, as the random ones are
    near(back, q)


@needs_pinocchio
def test_a_floating_base_is_matched_under_another_name():
    model, _ = both({"free": "world", "revolute": "free"})
    other = pin.Model()
    root = other.addJoint(0, pin.JointModelFreeFlyer(), pin.SE3.Identity(), "root_joint")
    other.addJoint(root, pin.JointModelRX(), pin.SE3.Identity(), "joint_revolute")
    v = np.arange(7.0)
    expected = [3.0, 4.0, 5.0, 0.0, 1.0, 2.0, 6.0]
    assert conventions.to_pinocchio_v(model, other, _neutral(model), v).tolist() == expected


@needs_pinocchio
def test_different_joints_are_named():
    model, _ = both({"free": "world", "revolute": "free"})
    other = pin.Model()
    other.addJoint(0, pin.JointModelRX(), pin.SE3.Identity(), "elbow")
    with pytest.raises(InputError, match=r"\['joint_free', 'joint_revolute'\] only here, \['elbow'\] only there"):
        conventions.to_pinocchio_q(model, other, _neutral(model))


@needs_pinocchio
def test_joints_of_different_kinds_are_named():
    model, _ = both({"spherical": "world"})
    other = pin.Model()
    other.addJoint(0, pin.JointModelSphericalZYX(), pin.SE3.Identity(), "joint_spherical")
    with pytest.raises(InputError, match="'joint_spherical' is spherical with 4 coordinates, and has 3"):
        conventions.to_pinocchio_q(model, other, _neutral(model))


# ---- mimic joints ----------------------------------------------------------------------------------------------------


def finger(mimic):
    b = Builder("finger")
    for k, parent in enumerate(["world", "l0", "l1"]):
        b.link(f"l{k}", 1.0 + k, (0.3, 0.1 * k, 0.0), np.diag([0.1, 0.2, 0.25]))
        follow = ("j0", -2.0, 0.3) if mimic and k == 1 else None
        T = Transform(p=(0.5, 0.0, 0.2))
        b.joint(f"j{k}", parent, f"l{k}", joints.Revolute(AXIS if k else (0.0, 1.0, 0.0)), T, mimic=follow)
    return b.model()


@pytest.mark.parametrize("engine", ["mujoco", pytest.param("pinocchio", marks=needs_pinocchio)])
def test_mimic_joints_are_expanded_and_forces_and_matrices_reduced(engine):
    model, tree = finger(mimic=True), finger(mimic=False)
    other = ()
    if engine == "pinocchio":
        unreduced = pin.Model()
        for k in range(3):
            unreduced.addJoint(k, pin.JointModelRX(), pin.SE3.Identity(), f"j{k}")
        other = (unreduced,)
    names = {
        f"{way}_{what}": getattr(conventions, f"{way}_{engine}_{what}")
        for way in ("to", "from")
        for what in ("q", "v", "tau", "matrix")
    }
    q, v, a, tau = batch(model, np.random.default_rng(9), ())
    q3, v3, a3 = names["to_q"](model, *other, q), names["to_v"](model, *other, q, v), names["to_v"](model, *other, q, a)
    np.testing.assert_allclose(q3, [q[0], -2.0 * q[0] + 0.3, q[1]], rtol=1e-15)
    np.testing.assert_allclose(v3, [v[0], -2.0 * v[0], v[1]], rtol=1e-15)
    near(names["from_q"](model, *other, q3), q)
    near(names["from_v"](model, *other, q, v3), v)
    near(names["from_tau"](model, *other, q, names["to_tau"](model, *other, q, tau)), tau)
    near(names["from_matrix"](model, *other, q, mass_matrix(tree, q3)), mass_matrix(model, q))
    forces = rigid_body_forces(tree, q3, v3, a3)
    near(names["from_tau"](model, *other, q, forces), rigid_body_forces(model, q, v, a))
    with pytest.raises(InputError, match="mimic joints share a degree of freedom"):
        names["to_matrix"](model, *other, q, np.eye(2))


@needs_pinocchio
def test_a_mimic_joint_that_pinocchio_reduces_too_has_no_place_of_its_own():
    model, other = finger(mimic=True), pin.Model()
    for k in range(3):
        other.addJoint(k, pin.JointModelRX(), pin.SE3.Identity(), f"j{k}")
    reduced = pin.transformJointIntoMimic(other, 1, 2, -2.0, 0.3)
    q, v, _, _ = batch(model, np.random.default_rng(9), ())
    near(conventions.to_pinocchio_q(model, reduced, q), q)
    near(conventions.to_pinocchio_v(model, reduced, q, v), v)


def test_a_batch_takes_no_matrix_for_each_state():
    """A thousand states of 200 degrees of freedom are 1.6 MB, a thousand matrices 320 MB."""
    model = qddot.chain(200, rng=0).model
    q = np.random.default_rng(0).standard_normal((1000, model.nq))
    tracemalloc.start()
    try:
        assert np.array_equal(conventions.from_mujoco_tau(model, q, conventions.to_mujoco_v(model, q, q)), q)
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()
