"""Robots made of others: equal to those built by hand, saved and read again, and refused where it cannot be done."""

import dataclasses
import math
import pickle

import numpy as np
import pytest

import qddot
from qddot.joints import Fixed, Free, Helical, Own, Planar, Prismatic, Revolute, Spherical, Universal
from qddot.robots.generators import random_tree
from qddot.spatial import Transform
from tests.support.linkages import slider_crank
from tests.support.mechanisms import MOVING
from tests.support.real_robots import GOOD, or_skipped, short
from tests.support.real_robots import load as read
from tests.support.tolerances import ROUNDING

BODY = np.array([[0.2, 0.01, 0.0], [0.01, 0.25, 0.02], [0.0, 0.02, 0.3]])
LOAD = (0.7, (0.02, 0.01, 0.1), np.diag([0.001, 0.002, 0.0025]))
AT_TIP = qddot.pose((0.0, 0.05, 0.2), (0.1, 0.2, 0.3))
ELBOW = qddot.pose((0.0, 0.1, 0.5), (0.3, 0.0, math.pi / 2))


def robot(s=1.0, m=1.0, name="arm", elbow=None, **options):
    """A small arm with a body on the ground, rotors, dampers, springs, limits, a mimic joint, a frame and a coupling.

    Lengths are s times as long, masses m times as large.
    """
    b = qddot.Builder(name, **options)

    def link(name, mass, com, inertia=BODY):
        b.link(name, m * mass, [s * x for x in com], m * s * s * inertia)

    def pose(xyz, rpy=(0.0, 0.0, 0.0)):
        return qddot.pose([s * x for x in xyz], rpy)

    link("pedestal", 5.0, (0.0, 0.0, 0.1))
    link("upper", 3.0, (0.1, 0.0, 0.2))
    link("fore", 2.0, (0.0, 0.2, 0.1))
    link("rail", 1.0, (0.1, 0.1, 0.1))
    link("tool", 0.5, (0.0, 0.0, 0.05))
    link("left", 0.25, (0.0, 0.125, 0.0))
    link("right", 0.25, (0.0, -0.125, 0.0))
    b.joint("feet", "world", "pedestal", Fixed())
    turns = {"armature": m * s * s * 0.25, "damping": 0.5, "lower": -2.0, "upper": 2.0}
    b.joint("shoulder", "pedestal", "upper", Revolute(), pose((0.0, 0.0, 0.5)), **turns, effort_limit=50.0)
    at_elbow = elbow or (Revolute((0.0, 1.0, 0.0)), pose((0.0, 0.1, 0.5), (0.3, 0.0, math.pi / 2)))
    b.joint("elbow", "upper", "fore", *at_elbow, **({} if elbow else {"friction": 0.25}))
    slides = {"armature": m * 0.5, "stiffness": 20.0, "spring_reference": s * 0.125, "lower": s * -0.5, "upper": s * 0.5}
    b.joint("slide", "fore", "rail", Prismatic((1.0, 0.0, 0.0)), pose((0.0, 0.0, 0.25)), velocity_limit=2.0, **slides)
    b.joint("weld", "rail", "tool", Fixed(), pose((0.0, 0.0, 0.25), (0.0, 0.5, 0.0)))
    b.joint("grip", "tool", "left", Prismatic((0.0, 1.0, 0.0)), lower=0.0, upper=s * 0.0625)
    b.joint("follow", "tool", "right", Prismatic((0.0, 1.0, 0.0)), mimic=("grip", -1.0, s * 0.125))
    b.frame("tip", "tool", pose((0.0, 0.05, 0.2), (0.1, 0.2, 0.3)))
    b.coupling("cam", {"slide": 1.0 / s}, (0.5, 0.25), {"shoulder": 2.0}, reference=0.125)
    return b


@pytest.fixture(scope="module")
def arm():
    return robot().robot()


def round_trip(x, folder):
    x.save(folder / "robot.json")
    assert qddot.load(folder / "robot.json") == x
    assert pickle.loads(pickle.dumps(x)) == x
    return x


def close(x, y, tolerance=ROUNDING):
    assert np.max(np.abs(x - y), initial=0.0) <= tolerance * max(1.0, np.max(np.abs(y), initial=0.0))


# ---- as if built by hand


def test_payload(arm, tmp_path):
    by_hand = robot().link("payload", *LOAD).joint("grasp", "tool", "payload", Fixed(), AT_TIP).robot()
    loaded = round_trip(arm.with_payload("tip", *LOAD), tmp_path)
    assert loaded == by_hand != arm
    assert loaded.mass == pytest.approx(arm.mass + 0.7)
    q = arm.random_state(0)[0]
    assert np.array_equal(loaded.pose(q, "payload"), arm.pose(q, "tip"))
    twice = loaded.with_payload("payload", 0.1, name="more")
    assert twice.frame_names[-1] == "more"
    assert arm.with_payload("upper", *LOAD).model.inertia[2] == arm.model.inertia[2]


def test_locked(arm, tmp_path):
    at = ELBOW @ Revolute((0.0, 1.0, 0.0)).transform([0.4])
    by_hand = robot(elbow=(Fixed(), at)).robot()
    assert round_trip(arm.locked({"elbow": 0.4}), tmp_path) == by_hand
    assert by_hand.joint_names == ("shoulder", "slide", "grip", "follow")
    assert "fore" in by_hand.frame_names


def test_a_right_angle_has_exact_zeros():
    b = qddot.Builder("x").link("a", 1.0, (0.1, 0.0, 0.0), BODY).joint("i", "world", "a", Revolute())
    b.link("b", 1.0, (0.2, 0.0, 0.0), BODY).joint("j", "a", "b", Revolute((1.0, 0.0, 0.0)), qddot.pose((1.0, 0.0, 0.0)))
    welded = qddot.Builder("x").link("a", 1.0, (0.1, 0.0, 0.0), BODY).joint("i", "world", "a", Revolute())
    welded.link("b", 1.0, (0.2, 0.0, 0.0), BODY)
    welded.joint("j", "a", "b", Fixed(), qddot.pose((1.0, 0.0, 0.0), (math.pi / 2, 0.0, 0.0)))
    assert b.robot().locked({"j": math.pi / 2}) == welded.robot()


def test_attached(arm, tmp_path):
    gripper = qddot.Builder("gripper", gravity=(0.0, 0.0, 0.0)).link("palm", 0.4, (0.0, 0.0, 0.02), 0.01 * BODY)
    gripper.joint("mount", "world", "palm", Fixed()).link("claw", 0.1, (0.0, 0.02, 0.0), 0.01 * BODY)
    gripper.joint("close", "palm", "claw", Revolute(), qddot.pose((0.0, 0.1, 0.0)), lower=-1.0, upper=1.0, damping=0.1)
    gripper.frame("claw_tip", "claw", qddot.pose((0.1, 0.0, 0.0)))
    pose = qddot.pose((0.0, 0.0, 0.1), (0.0, 0.4, 0.2))
    b = robot().link("g_palm", 0.4, (0.0, 0.0, 0.02), 0.01 * BODY).link("g_claw", 0.1, (0.0, 0.02, 0.0), 0.01 * BODY)
    b.joint("g_mount", "tool", "g_palm", Fixed(), pose)
    b.joint("g_close", "g_palm", "g_claw", Revolute(), qddot.pose((0.0, 0.1, 0.0)), lower=-1.0, upper=1.0, damping=0.1)
    b.frame("g_claw_tip", "g_claw", qddot.pose((0.1, 0.0, 0.0)))
    whole = round_trip(arm.attach(gripper.robot(), "tool", pose, prefix="g_"), tmp_path)
    assert whole == b.robot()
    assert whole.joint_names[-1] == "g_close"
    assert whole.lower[-1] == -1.0


def test_renamed(arm, tmp_path):
    b = qddot.Builder("b").link("a", 1.0, inertia=BODY).joint("j", "world", "a", Revolute())
    b.link("c", 1.0, inertia=BODY).joint("k", "a", "c", Revolute(), mimic=("j", 2.0, 0.0)).frame("f", "c")
    by_hand = qddot.Builder("z").link("x", 1.0, inertia=BODY).joint("y", "world", "x", Revolute())
    by_hand.link("l_c", 1.0, inertia=BODY).joint("l_k", "x", "l_c", Revolute(), mimic=("y", 2.0, 0.0)).frame("l_f", "l_c")
    new = b.robot().renamed("z", links={"a": "x"}, joints={"j": "y"}, prefix="l_")
    assert round_trip(new, tmp_path) == by_hand.robot()
    assert arm.renamed("other").renamed("arm") == arm
    swapped = arm.renamed(joints={"elbow": "slide", "slide": "elbow"})
    assert swapped.joint_names[1:3] == ("slide", "elbow")


def test_gravity(arm, tmp_path):
    moon = round_trip(arm.with_gravity((0.0, 0.0, -1.62)), tmp_path)
    assert moon == robot(gravity=(0.0, 0.0, -1.62)).robot()


@pytest.mark.parametrize(("base", "joint"), [("floating", Free()), ("planar", Planar())])
def test_base(arm, base, joint, tmp_path):
    moved = round_trip(arm.with_base(base), tmp_path)
    assert moved.with_base("fixed") == arm
    assert moved.with_base(base) == moved
    assert moved.with_base("floating").with_base("planar") == arm.with_base("planar")
    b = (
        qddot.Builder("x")
        .link("body", 2.0, (0.1, 0.0, 0.0), BODY)
        .joint("root_joint", "world", "body", joint, actuated=False)
    )
    b.link("arm", 1.0, (0.0, 0.1, 0.0), BODY).joint("j", "body", "arm", Revolute(), qddot.pose((0.0, 0.0, 0.5)))
    c = qddot.Builder("x").link("body", 2.0, (0.1, 0.0, 0.0), BODY).joint("feet", "world", "body", Fixed())
    c.link("arm", 1.0, (0.0, 0.1, 0.0), BODY).joint("j", "body", "arm", Revolute(), qddot.pose((0.0, 0.0, 0.5)))
    assert c.robot().with_base(base) == b.robot()
    assert b.robot().with_base("fixed") == c.robot()


@pytest.mark.parametrize("path", or_skipped(GOOD[::9]), ids=short)
def test_base_is_the_readers(path):
    """The robot of a file put on a floating base is what the reader makes of it with floating_base=True."""
    fixed, floating = read(path), read(path, floating_base=True)
    if "root" not in floating.link_names:  # a root called "world" is the ground, and no body
        assert fixed.with_base("floating") == floating
        assert floating.with_base("fixed") == fixed


def test_scaled(tmp_path):
    """Powers of two are exact."""
    arm = robot().robot()
    assert round_trip(arm.scaled(2.0), tmp_path) == robot(s=2.0, m=8.0).robot()
    assert arm.scaled(0.5, 4.0) == robot(s=0.5, m=4.0).robot()


def test_subtree(arm, tmp_path):
    b = qddot.Builder("arm").link("rail", 1.0, (0.1, 0.1, 0.1), BODY).joint("feet", "world", "rail", Fixed())
    b.link("tool", 0.5, (0.0, 0.0, 0.05), BODY).link("left", 0.25, (0.0, 0.125, 0.0), BODY)
    b.link("right", 0.25, (0.0, -0.125, 0.0), BODY)
    b.joint("weld", "rail", "tool", Fixed(), qddot.pose((0.0, 0.0, 0.25), (0.0, 0.5, 0.0)))
    b.joint("grip", "tool", "left", Prismatic((0.0, 1.0, 0.0)), lower=0.0, upper=0.0625)
    b.joint("follow", "tool", "right", Prismatic((0.0, 1.0, 0.0)), mimic=("grip", -1.0, 0.125))
    b.frame("tip", "tool", AT_TIP)
    assert round_trip(arm.subtree("rail"), tmp_path) == b.robot()
    assert arm.subtree("rail").with_base("floating").mass == pytest.approx(2.0)


def test_frames_are_known_by_name():
    """The order in which frames are declared is no part of what a robot is; their places are."""
    b = [qddot.Builder("x").link("a", 1.0, inertia=BODY).joint("j", "world", "a", Revolute()) for _ in range(3)]
    b[0].frame("f", "a").frame("g", "a", AT_TIP)
    b[1].frame("g", "a", AT_TIP).frame("f", "a")
    b[2].frame("f", "a", AT_TIP).frame("g", "a")
    first, same, other = (x.robot() for x in b)
    assert first == same != other
    assert first.frame_names != same.frame_names


# ---- the same mechanics


@pytest.mark.parametrize("kind", MOVING)
def test_locked_is_the_robot_at_rest_there(kind):
    """M and the bias force of a reduced robot are the rows of the whole one, for every kind of joint."""
    rng = np.random.default_rng(7)
    model = random_tree(6, rng=11, kinds=(kind, "revolute", "prismatic"), mimic=kind == "revolute").model()
    whole = qddot.Robot(model, compiled=False)
    q, v = whole.random_state(rng)
    own = [n for n in whole.joint_names if model.mimic[model.joint_index(n)] is None]
    names = own[::2]
    reduced = whole.locked({n: q[whole.q_index[n]] for n in names})
    v[list(model.dof_indices(names))] = 0.0
    left = [k for n in own if n not in names for k in np.atleast_1d(np.arange(whole.nv)[whole.v_index[n]])]
    places = [k for n in own if n not in names for k in np.atleast_1d(np.arange(whole.nq)[whole.q_index[n]])]
    assert reduced.nv == len(left) < whole.nv
    close(reduced.mass_matrix(q[places]), whole.mass_matrix(q)[np.ix_(left, left)])
    close(reduced.bias_force(q[places], v[left]), whole.bias_force(q, v)[left])
    close(reduced.passive_force(q[places], v[left]), whole.passive_force(q, v)[left])
    for name in whole.link_names:
        close(reduced.pose(q[places], name), whole.pose(q, name))


@pytest.mark.parametrize("kind", MOVING)
def test_subtree_is_what_hangs_on_a_link_at_rest(kind):
    model = random_tree(7, rng=5, kinds=(kind, "revolute")).model()
    whole = qddot.Robot(model, compiled=False)
    link = next(
        model.link_names[i] for i, _ in model.outward() if sum(i in model.ancestors(j) for j, _ in model.outward()) > 2
    )
    part = whole.subtree(link)
    q, v = whole.random_state(3)
    a = np.random.default_rng(1).standard_normal(whole.nv)
    kept = [k for n in part.joint_names for k in np.atleast_1d(np.arange(whole.nv)[whole.v_index[n]])]
    places = [k for n in part.joint_names for k in np.atleast_1d(np.arange(whole.nq)[whole.q_index[n]])]
    rest = np.setdiff1d(np.arange(whole.nv), kept)
    v[rest] = a[rest] = 0.0
    g = whole.pose(q, link)[:3, :3].T @ model.gravity
    close(part.with_gravity(g).inverse_dynamics(q[places], v[kept], a[kept]), whole.inverse_dynamics(q, v, a)[kept])


@pytest.mark.parametrize("kind", [k for k in MOVING if k != "own"])
def test_scaling_law(kind):
    """M is m D M D with the length in D where a coordinate is an angle: forces of inertia scale as the units say."""
    whole = qddot.Robot(random_tree(5, rng=8, kinds=(kind, "prismatic", "revolute")).model(), compiled=False)
    s, m = 1.7, 2.3
    big = whole.scaled(s, m).with_gravity(s * np.array(whole.model.gravity))
    q, v = whole.random_state(2)
    angles = np.concatenate([np.array(j.is_angle) for j in whole.model.joint[1:]])
    units = [u for j in whole.model.joint[1:] for u in j.coordinate_units]
    stretched = q * np.where([u == "m" for u in units], s, 1.0)
    faster, D = v * np.where(angles, 1.0, s), np.where(angles, s, 1.0)
    close(big.mass_matrix(stretched), m * D[:, None] * whole.mass_matrix(q) * D)
    close(big.bias_force(stretched, faster), m * s * D * whole.bias_force(q, v))


def test_a_coupling_of_a_locked_joint(arm):
    """What is left of cam: slide = 0.5 + 0.25 (2 shoulder - 0.125)."""
    fixed = arm.locked({"shoulder": 0.3})
    q = fixed.neutral()
    q[fixed.q_index["slide"]] = 0.5 + 0.25 * (0.6 - 0.125)
    close(fixed.constraint_residual(q), 0.0)
    other = arm.locked({"slide": 0.4})
    q = other.neutral()
    q[other.q_index["shoulder"]] = ((0.4 - 0.5) / 0.25 + 0.125) / 2.0
    close(other.constraint_residual(q), 0.0)
    assert not arm.locked({"shoulder": 0.5, "slide": 0.5 + 0.25 * 0.875}).model.constraints
    with pytest.raises(qddot.ModelError, match=r"coupling 'cam': the values of the locked joints miss it by 0\.1"):
        arm.locked({"shoulder": 0.5, "slide": 0.6 + 0.25 * 0.875})


def test_followers_stand_still_too(arm):
    still = arm.locked({"grip": 0.05})
    assert "follow" not in still.joint_names
    q = arm.random_state(1)[0]
    q[arm.q_index["grip"]] = 0.05
    close(still.pose(np.delete(q, arm.q_index["grip"]), "right"), arm.pose(q, "right"))


# ---- loops


def test_robots_with_loops(tmp_path):
    crank = qddot.Robot(slider_crank().model(), compiled=False)
    heavy = round_trip(crank.with_payload("block", 1.0), tmp_path)
    assert heavy.mobility == 1
    by_hand = slider_crank().link("payload", 1.0).joint("on", "block", "payload", Fixed()).robot()
    assert heavy == by_hand
    assert crank.with_base("floating").mobility == 7
    assert crank.scaled(2.0).mobility == 1
    assert crank.renamed(prefix="a_").model.loops[0].name == "a_pin"
    pair = crank.attach(crank, "world", qddot.pose((0.0, 0.0, 1.0)), prefix="b_")
    assert (pair.mobility, len(pair.model.loops)) == (2, 2)
    q = crank.close_loops(crank.neutral())[0]
    once = crank.forward_dynamics(q, np.zeros(3), np.zeros(3))
    close(pair.forward_dynamics(np.r_[q, q], np.zeros(6), np.zeros(6)), np.r_[once, once])
    held = crank.locked({"wrist": 0.0})
    assert held.mobility == 0


def test_a_loop_whose_links_become_one():
    crank = slider_crank().robot()
    with pytest.raises(qddot.ModelError, match=r"loop 'pin': locking .* makes one body of its links 'rod' and 'block'"):
        crank.locked(dict.fromkeys(("drive", "wrist", "rail"), 0.0))
    with pytest.raises(qddot.ModelError, match=r"loop 'pin': it connects 'rod' and 'block', .*'crank'; take a larger"):
        crank.subtree("crank")


# ---- refused


def spun(q):
    return Revolute().transform(q)


REFUSED = {
    "payload on the ground": (lambda r: r.with_payload("pedestal", 1.0), "payload 'payload': frame 'pedestal' is fixed"),
    "payload without frame": (lambda r: r.with_payload("tipp", 1.0), "no link or frame 'tipp': did you mean 'tip'"),
    "payload of a taken name": (lambda r: r.with_payload("tip", 1.0, name="rail"), "of this name exists; give it another"),
    "payload without name": (lambda r: r.with_payload("tip", 1.0, name=""), "it has no name"),
    "negative payload": (lambda r: r.with_payload("tip", -1.0), "payload 'payload': mass is -1"),
    "NaN": (lambda r: r.with_payload("tip", math.nan), "mass is .nan.; give finite numbers"),
    "payload that no body has": (lambda r: r.with_payload("tip", 1.0, inertia=np.diag([1.0, 1.0, 9.0])), "triangle"),
    "two centres": (lambda r: r.with_payload("tip", 1.0, (1.0, 2.0)), "com has 2 numbers where 3 are needed"),
    "the same names": (lambda r: r.attach(r, "tip"), "both robots have a link or frame 'fore'; .*prefix"),
    "a pose of nine numbers": (lambda r: r.attach(r, "tip", np.eye(3), prefix="x"), "its placement has shape .*qddot.pose"),
    "a floating hand": (lambda r: r.attach(r.with_base("floating"), "tip", prefix="x"), r"with_base\(.fixed.\)"),
    "no such joint": (lambda r: r.locked({"elbo": 0.0}), "did you mean 'elbow'"),
    "a follower": (lambda r: r.locked({"follow": 0.0}), "joint 'follow': it follows 'grip'; lock 'grip'"),
    "two numbers": (lambda r: r.locked({"elbow": (0.0, 1.0)}), "its value has 2 numbers where 1 are needed"),
    "a list": (lambda r: r.locked(["elbow"]), "give joints and values"),
    "infinity": (lambda r: r.locked({"elbow": math.inf}), "give finite numbers"),
    "no link": (lambda r: r.subtree("nothing"), "no link or frame 'nothing'"),
    "a merged body": (lambda r: r.subtree("tool"), "'tool' is no moving link; take 'rail'"),
    "the ground": (lambda r: r.subtree("pedestal"), "take the robot itself"),
    "half of a coupling": (lambda r: r.subtree("upper"), "coupling 'cam': it is of shoulder, slide"),
    "a base": (lambda r: r.with_base("flying"), "qddot has no base 'flying'"),
    "no base": (lambda r: r.with_base(None), "qddot has no base"),
    "gravity of two": (lambda r: r.with_gravity((0.0, 1.0)), "gravity has shape"),
    "no length": (lambda r: r.scaled(0.0), "length: its factor is 0; give a number greater than zero"),
    "negative masses": (lambda r: r.scaled(1.0, -2.0), "mass: its factor is -2"),
    "a name twice": (lambda r: r.renamed(links={"left": "right"}), "its new name 'right' is that of|of 'left', too"),
    "world": (lambda r: r.renamed(links={"left": "world"}), "its new name 'world' is the ground's own name"),
    "empty": (lambda r: r.renamed(joints={"elbow": ""}), "it has no name"),
    "an unknown name": (lambda r: r.renamed(joints={"knee": "x"}), "no joint, loop or constraint 'knee'"),
    "a list of names": (lambda r: r.renamed(links=["left"]), "names are .*give names such as"),
    "a number as prefix": (lambda r: r.renamed(prefix=3), "the prefix is 3; .*a text as prefix"),
    "attached text": (lambda r: r.attach("hand", "tip"), "what is attached is 'hand'; give a robot"),
    "a robot without name": (lambda r: r.renamed(""), "robot: it has no name"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(arm, name):
    change, text = REFUSED[name]
    with pytest.raises(qddot.QddotError, match=text):
        change(arm)


def test_refused_for_what_a_robot_is():
    b = qddot.Builder("own").link("a", 1.0, inertia=BODY).joint("j", "world", "a", Own(spun, 1, "spun"))
    b.link("b", 1.0, inertia=BODY).joint("k", "a", "b", Spherical())
    own = b.robot()
    with pytest.raises(qddot.ModelError, match="joint 'j': its motion is a user's function"):
        own.scaled(2.0)
    with pytest.raises(qddot.ModelError, match=r"joint 'k': the square of its quaternion is 4; .*unit length"):
        own.locked({"k": (0.0, 0.0, 0.0, 2.0)})
    assert own.locked({"j": 0.3}).nv == 3
    tied = own.with_constraint("tied", position=lambda q: [q[0] - q[1]])
    for change in (lambda: tied.locked({"k": (0, 0, 0, 1)}), lambda: tied.with_base("floating"), lambda: tied.scaled(2.0)):
        with pytest.raises(qddot.ModelError, match=r"constraint 'tied': it is a function of the whole .*with_constraint"):
            change()
    assert tied.with_payload("b", 1.0).mobility == tied.renamed(joints={"tied": "x"}).mobility == 3
    half = qddot.Builder("half", friction_velocity=0.1).link("c", 1.0, inertia=BODY)
    half.joint("l", "world", "c", Revolute(), friction=1.0)
    with pytest.raises(qddot.ModelError, match=r"its friction_velocity is 0\.1, that of 'arm' 0\.001"):
        robot().robot().attach(half.robot(), "tip")


def test_findings_and_shapes_are_kept(arm):
    unphysical = arm.with_payload("tip", 1.0, inertia=np.diag([1.0, 1.0, 9.0]), allow_unphysical=True)
    assert "payload" in str(unphysical.findings[-1])
    assert unphysical.locked({"elbow": 0.1}).findings == unphysical.findings
    drawn = qddot.Robot(dataclasses.replace(arm.model, source="arm.urdf", package_dirs=("meshes",)))
    kept = (drawn.with_payload("tip", 1.0), drawn.locked({"elbow": 0.0}), drawn.with_base("planar"), drawn.renamed("x"))
    assert {x.model.source for x in kept} == {"arm.urdf"}
    gone = (drawn.scaled(2.0), drawn.renamed(links={"tool": "hand"}))  # shapes are of one size, and found by names
    assert {x.model.source for x in gone} == {""}


def test_not_compiled_stays_so(arm):
    eager = qddot.Robot(arm.model, compiled=False)
    for x in (
        eager.with_payload("tip", 1.0),
        eager.locked({"elbow": 0.0}),
        eager.with_gravity((0, 0, 0)),
        eager.scaled(2.0),
    ):
        assert not x.compiled


def test_helical_and_universal_scale():
    b = qddot.Builder("x").link("a", 1.0, inertia=BODY).joint("j", "world", "a", Helical((0.0, 0.0, 1.0), 0.25))
    b.link("b", 1.0, inertia=BODY).joint("k", "a", "b", Universal(), Transform())
    assert b.robot().scaled(2.0).model.joint[1] == Helical((0.0, 0.0, 1.0), 0.5)
