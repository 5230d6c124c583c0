"""The MJCF reader against MuJoCo itself: every model of gymnasium, brax and mujoco_warp, and small ones of our own."""

import dataclasses
import importlib.util
import pickle
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from qddot import conventions
from qddot.algorithms import loop_constraints
from qddot.algorithms.articulated_body import forward_dynamics
from qddot.algorithms.composite_body import mass_matrix
from qddot.algorithms.kinematics import link_poses
from qddot.algorithms.newton_euler import rigid_body_forces
from qddot.algorithms.passive_forces import passive_forces
from qddot.errors import FileError
from qddot.formats import mjcf
from qddot.joints import Fixed, Spherical
from qddot.robot import Robot
from qddot.spatial.rotation import rotation_quaternion
from tests.support.peers import HOW, MISSING, peer

mujoco = peer("mujoco")

FOLDERS = {
    "gymnasium": "envs/mujoco/assets",
    "brax": "test_data",
    "brax_envs": "envs/assets",
    "mujoco_warp": "test_data",
}
# Files that MuJoCo itself refuses, and what it says.
REFUSED = {
    "brax/world_body_transform.xml": "free joint can only be used on top level",
    "mujoco_warp/collision_sdf/torus.xml": r"Error opening file 'torus\.obj'",
}
# The rule: a file consists of what qddot supports if the reader has no warning about it. These have one, and why. They
# are compared, too, after what is named has been taken out of MuJoCo's model.
LEFT_OUT = {
    "gymnasium/swimmer.xml": {"fluid"},
    "brax_envs/swimmer.xml": {"fluid"},
    "brax/fluid_box.xml": {"fluid"},
    "brax/fluid_box_offset_com.xml": {"fluid"},
    "brax/fluid_ellipsoid.xml": {"fluid"},
    "brax/fluid_sphere.xml": {"fluid"},
    "brax/fluid_two_spheres.xml": {"fluid"},
    "brax/fluid_wind.xml": {"fluid"},
    "mujoco_warp/constraints.xml": {"tendon"},
    "mujoco_warp/flex/floppy.xml": {"flex"},
    "mujoco_warp/flex/moving_base_strain.xml": {"flex", "flexstrain equality"},
    "mujoco_warp/flex/multiflex.xml": {"flex", "flex equality"},
    "mujoco_warp/flex/rope.xml": {"flex", "flex equality"},
    "mujoco_warp/pendula.xml": {"gravcomp", "tendon"},
    "mujoco_warp/tendon/armature.xml": {"tendon"},
    "mujoco_warp/tendon/damping.xml": {"tendon"},
}
TOO_LARGE = {"mujoco_warp/flex/multiflex.xml", "mujoco_warp/flex/floppy.xml"}  # thousands of freedoms: dense matrices


def _files():
    """The files of the packages that are installed, by name."""
    found = {}
    for key, folder in FOLDERS.items():
        package = key.removesuffix("_envs")
        spec = None if package in MISSING else importlib.util.find_spec(package)  # its own dependencies are not needed
        if spec is not None:
            root = Path(spec.origin).parent / folder
            found |= {f"{key}/{path.relative_to(root).as_posix()}": path for path in sorted(root.rglob("*.xml"))}
    return found


def needs(name):
    """A file by its name, skipped where its package is missing."""
    package = name.split("/")[0].removesuffix("_envs")
    return pytest.param(name, marks=pytest.mark.skipif(name not in FILES, reason=f"needs {package}: {HOW[package]}"))


FILES = _files()
ABSENT = [f"{key}/all" for key in FOLDERS if not any(name.startswith(f"{key}/") for name in FILES)]
LOADED = list(map(needs, sorted([*set(FILES) - set(REFUSED), *ABSENT])))
SMALL = list(map(needs, sorted([*set(FILES) - set(REFUSED) - TOO_LARGE, *ABSENT])))


def compiled(source):
    """MuJoCo's own model, without contacts and actuation, and without its remarks."""
    mujoco.set_mju_user_warning(lambda text: None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spec = mujoco.MjSpec.from_file(str(source)) if isinstance(source, Path) else mujoco.MjSpec.from_string(source)
        m = spec.compile()
    mujoco.set_mju_user_warning(None)
    m.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT) | int(mujoco.mjtDisableBit.mjDSBL_ACTUATION)
    return m


def read_text(text):
    return mjcf.read("model.xml", text=text)


def states(m, count, model):
    """Random states about qpos0 in which joints follow those that they follow; forces applied, everything evaluated."""
    rng = np.random.default_rng(7)
    for _ in range(count):
        d = mujoco.MjData(m)
        mujoco.mj_integratePos(m, d.qpos, rng.normal(size=m.nv), 1.0)
        d.qvel[:], d.qfrc_applied[:] = rng.normal(size=m.nv), rng.normal(size=m.nv)
        if model.is_coupled:
            q = conventions.from_mujoco_q(model, d.qpos)
            d.qpos[:] = conventions.to_mujoco_q(model, q)
            d.qvel[:] = conventions.to_mujoco_v(model, q, conventions.from_mujoco_v(model, q, d.qvel))
        mujoco.mj_forward(m, d)
        yield d


def warned(builder):
    """Why the reader warned, in the words of LEFT_OUT."""
    reasons = set()
    for finding in builder.findings:
        if finding.severity == "warning":
            text = str(finding)
            known = ("fluid", "flex '", "gravcomp", "tendon '")
            names = ("fluid", "flex", "gravcomp", "tendon")
            if finding.element.startswith("equality"):
                reasons.add(finding.message.removeprefix("a ").removesuffix(" is left out"))
            else:
                reasons |= {name for word, name in zip(known, names, strict=True) if word in text}
    return reasons


def without(m, model, reasons):
    """Both models without what LEFT_OUT names."""
    if "fluid" in reasons:
        m.opt.density = m.opt.viscosity = 0.0
    if "gravcomp" in reasons:
        m.body_gravcomp[:] = 0.0
    if "tendon" in reasons:
        m.tendon_stiffness[:] = m.tendon_damping[:] = m.tendon_armature[:] = 0.0
    # frictionloss is a constraint in MuJoCo and no part of qacc_smooth
    return dataclasses.replace(model, friction=tuple(0.0 * f for f in model.friction))


def near(ours, theirs, relative=1e-8, floor=0.0):
    assert np.max(np.abs(ours - theirs), initial=0.0) <= relative * np.max(np.abs(theirs), initial=0.0) + floor


@pytest.mark.parametrize("name", [*map(needs, sorted(REFUSED))])
def test_what_mujoco_refuses_is_refused_with_its_reason(name):
    with pytest.raises(FileError, match=REFUSED[name]):
        mjcf.read(FILES[name])


@pytest.mark.parametrize("name", LOADED)
def test_what_is_left_out_is_reported_and_nothing_else(name):
    assert warned(mjcf.read(FILES[name])) == LEFT_OUT.get(name, set())


@pytest.mark.parametrize("name", SMALL)
def test_dynamics_agree_with_mujoco(name):
    m, model = compiled(FILES[name]), mjcf.read(FILES[name]).model()
    followers = sum(f is not None for f in model.mimic)
    assert (model.nq, model.nv) == (m.nq - followers, m.nv - followers)
    model = without(m, model, LEFT_OUT.get(name, set()))
    compare_dynamics(m, model, 1 if m.nv > 100 else 3)


def compare_dynamics(m, model, count):
    """M, bias, passive forces, accelerations and joint forces; where joints follow others, MuJoCo's are reduced."""
    M_full, rne = np.zeros((m.nv, m.nv)), np.zeros(m.nv)
    g = np.linalg.norm(m.opt.gravity)
    for d in states(m, count, model) if m.nv else ():
        q = conventions.from_mujoco_q(model, d.qpos)
        v = conventions.from_mujoco_v(model, q, d.qvel)

        def reduced(force, q=q):
            return conventions.from_mujoco_tau(model, q, force)

        mujoco.mj_fullM(m, d, M_full)
        M = mass_matrix(model, q)
        near(M, conventions.from_mujoco_matrix(model, q, M_full))
        # where the bias cancels to zero, what remains is rounding of terms of this size
        floor = 1e-12 * np.abs(M_full).max() * (g + d.qvel @ d.qvel)
        rest = conventions.from_mujoco_a(model, q, v, np.zeros(m.nv))
        bias = rigid_body_forces(model, q, v, rest)
        near(bias, reduced(d.qfrc_bias), floor=floor)
        near(passive_forces(model, q, v), reduced(d.qfrc_passive), floor=floor)
        a = forward_dynamics(model, q, v, reduced(d.qfrc_applied))
        if model.is_coupled:
            near(a, rest + np.linalg.solve(M, reduced(d.qfrc_applied + d.qfrc_passive) - bias), floor=floor)
        else:
            near(conventions.to_mujoco_a(model, q, v, a), d.qacc_smooth)
        u = np.random.default_rng(8).normal(size=model.nv)
        d.qacc[:] = conventions.to_mujoco_a(model, q, v, u)
        mujoco.mj_rne(m, d, 1, rne)
        rotors = m.dof_armature * d.qacc + motors(m) * d.qacc  # mj_rne has no armature
        near(rigid_body_forces(model, q, v, u), reduced(rne + rotors), floor=floor)


def motors(m):
    """What actuators add to the armature of each DoF; MuJoCo before 4 has none."""
    out = np.zeros(m.nv)
    for j in range(m.njnt if hasattr(m, "jnt_actuatorid") else 0):
        if m.jnt_actuatorid[j] >= 0:
            gear = m.actuator_gear[m.actuator_outadr[m.jnt_actuatorid[j]], 0]
            out[m.jnt_dofadr[j]] += gear**2 * m.actuator_armature[m.jnt_actuatorid[j]]
    return out


@pytest.mark.parametrize("name", SMALL)
def test_frames_of_bodies_and_sites_agree_with_mujoco(name):
    m, model = compiled(FILES[name]), mjcf.read(FILES[name]).model()
    for d in states(m, 2, model):
        mujoco.mj_kinematics(m, d)
        T_W = link_poses(model, conventions.from_mujoco_q(model, d.qpos))
        for i in range(1, m.nbody):
            frame = model.frame(m.body(i).name or f"body{i}")
            T = T_W[frame.link] @ frame.placement
            near(np.array(T.p), d.xpos[i], 1e-12, 1e-12)  # rounding of some tens of products of metres
            near(np.array(T.R.rows), d.xmat[i].reshape(3, 3), 1e-12)
        for i in range(m.nsite):
            if m.site(i).name and m.site(i).name not in [m.body(k).name for k in range(m.nbody)]:
                frame = model.frame(m.site(i).name)
                near(np.array((T_W[frame.link] @ frame.placement).p), d.site_xpos[i], 1e-12, 1e-12)


# ---- joints ----------------------------------------------------------------------------------------------------------

BODY = '<inertial pos=".1 -.2 .3" mass="2" diaginertia=".3 .4 .5" euler="10 20 30"/>'


def one_body(joints, pose='pos="1 2 3" euler="40 50 60"', rest=""):
    return (
        f'<mujoco><worldbody><body name="base" pos="0 0 1" euler="0 30 0"><body name="b" {pose}>{joints}{BODY}'
        f'<body name="tip" pos="0 .5 0"><joint name="last"/>{BODY}</body></body></body></worldbody>{rest}</mujoco>'
    )


JOINTS = {
    "anchor": '<joint name="j" pos=".3 .2 .1" axis="1 2 3"/>',
    "hinge with reference": '<joint name="j" axis="0 -1 0" ref="35" pos=".1 0 0"/>',
    "slide with reference": '<joint name="j" type="slide" axis="1 1 0" ref=".4" pos="1 1 1"/>',
    "several anchors": '<joint name="j" pos=".3 0 0"/><joint name="s" type="slide" axis="1 0 0" ref="2"/>'
    '<joint name="k" pos="0 .4 0" axis="1 0 0" ref="-20"/>',
    "slides and a ball": '<joint name="x" type="slide" axis="1 0 0"/><joint name="y" type="slide" axis="0 1 0"/>'
    '<joint name="j" type="ball" pos=".1 .2 .3"/>',
    "springs": '<joint name="j" stiffness="3" springref="20" ref="10" damping=".4" armature=".7"/>'
    '<joint name="s" type="slide" axis="1 0 0" stiffness="5" springref=".3"/>',
    "ball with a spring": '<joint name="j" type="ball" stiffness="3" damping=".5" armature=".2"/>',
}


@pytest.mark.parametrize("name", JOINTS)
def test_joints_of_every_kind_agree_with_mujoco(name):
    text = one_body(JOINTS[name])
    model = read_text(text).model()
    compare_dynamics(compiled(text), model, 5)
    m = compiled(text)
    for d in states(m, 3, model):
        T_W = link_poses(model, conventions.from_mujoco_q(model, d.qpos))
        for body in ("b", "tip"):
            frame = model.frame(body)
            near(np.array((T_W[frame.link] @ frame.placement).p), d.body(body).xpos, 1e-13, 1e-13)


@pytest.mark.parametrize("armature", ["", 'armature=".7"'])
def test_a_free_joint_with_spring_damping_and_armature_agrees_with_mujoco(armature):
    """MuJoCo's armature resists accelerations in world axes: the body twist of a free joint has others."""
    text = (
        '<mujoco><worldbody><body name="b" pos="1 2 3" euler="40 50 60">'
        f'<joint name="j" type="free" stiffness="3" damping=".5" {armature}/>{BODY}'
        f'<body name="tip" pos="0 .5 0"><joint name="last"/>{BODY}</body></body></worldbody></mujoco>'
    )
    compare_dynamics(compiled(text), read_text(text).model(), 5)


def test_an_actuator_adds_its_armature_and_damping_through_the_gear():
    if not hasattr(mujoco.MjModel, "jnt_actuatorid"):
        pytest.skip("actuators have no armature in this MuJoCo")
    rest = '<actuator><motor joint="j" gear="4" armature="2" damping="3"/></actuator>'
    text = one_body('<joint name="j" armature=".5" damping=".1"/>', rest=rest)
    compare_dynamics(compiled(text), read_text(text).model(), 3)


def test_names_of_links_joints_and_frames():
    model = read_text(one_body(JOINTS["several anchors"])).model()
    assert model.link_names == ("world", "b/j", "b/s", "b/k", "tip")
    assert model.joint_names == ("", "j", "s", "k", "last")
    assert {"base", "b"} <= set(model.frame_names)
    nameless = "<mujoco><worldbody><body><joint/><geom size='.1'/><body name='body2'><joint/><geom size='.1'/></body>"
    nameless += "<body><geom size='.1'/><site/></body></body></worldbody></mujoco>"
    model = read_text(nameless).model()
    assert model.link_names == ("world", "body1", "body2")
    assert model.joint_names == ("", "joint0", "joint1")
    assert {"body3", "site0"} <= set(model.frame_names)


def test_names_that_would_clash_stay_apart():
    text = "<mujoco><worldbody><body name='body2'><joint name='a' pos='1 0 0'/><geom size='.1'/><site name='body2'/>"
    text += "<body><joint/><geom size='.1'/></body></body></worldbody></mujoco>"
    model = read_text(text).model()
    assert model.link_names == ("world", "body2/a", "body2_")
    assert {"body2", "body2__"} <= set(model.frame_names)


def test_limits_and_actuation():
    joints = '<joint name="j" range="-30 60"/><joint name="s" type="slide" axis="1 0 0" range="-1 2"/>'
    model = read_text(one_body(joints, rest='<actuator><motor joint="s"/></actuator>')).model()
    limits = [(*limit.lower, *limit.upper) for limit in model.limits[1:]]
    np.testing.assert_allclose(limits[:2], [np.radians([-30, 60]), [-1, 2]], rtol=1e-15)
    assert limits[2] == (-np.inf, np.inf)
    assert model.actuated[1:] == (False, True, False)
    assert read_text(one_body(joints)).model().actuated[1:] == (True, True, True)
    assert model.frame("base").link == 0


@pytest.mark.parametrize(("flag", "field"), [("spring", "stiffness"), ("damper", "damping"), ("frictionloss", "friction")])
def test_what_the_file_disables_is_left_out_with_a_note(flag, field):
    joints = '<joint name="j" stiffness="3" damping="2" frictionloss="1"/>'
    option = f'<option><flag {flag}="disable"/></option>'
    builder = read_text(one_body(joints, rest=option))
    assert getattr(builder.model(), field)[1] == (0.0,)
    assert any(flag in str(f) and f.severity == "note" for f in builder.findings)
    assert getattr(read_text(one_body(joints)).model(), field)[1] != (0.0,)


def test_gravity_comes_from_the_file():
    text = one_body("<joint/>", rest='<option gravity="1 2 3"/>')
    assert read_text(text).model().gravity == (1.0, 2.0, 3.0)
    off = one_body("<joint/>", rest='<option><flag gravity="disable"/></option>')
    assert read_text(off).model().gravity == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("joint", "said"),
    [
        ('stiffness="1 2 3"', "its spring is not linear"),
        ('damping="1 2"', "its damping is not linear"),
    ],
)
def test_nonlinear_springs_and_dampers_are_warned_of(joint, said):
    if not hasattr(mujoco.MjModel, "jnt_stiffnesspoly"):
        pytest.skip("springs and dampers are linear in this MuJoCo")
    findings = read_text(one_body(f'<joint name="j" {joint}/>')).findings
    assert [f.severity for f in findings if said in f.message and f.element == "joint 'j'"] == ["warning"]


def test_notes_name_mocap_bodies_inactive_equalities_and_ball_limits():
    text = (
        '<mujoco><worldbody><body name="target" mocap="true"/><body name="b"><joint name="j" type="ball" range="0 40"/>'
        f'{BODY}</body></worldbody><equality><weld name="e" body1="b" active="false"/></equality></mujoco>'
    )
    builder = read_text(text)
    notes = [str(f) for f in builder.findings if f.severity == "note"]
    for element in ("body 'target'", "equality 'e'", "joint 'j'"):
        assert any(element in note for note in notes)
    assert builder.model().loops == ()


def test_snap_straightens_rotations_and_reports_it():
    text = one_body("<joint/>", pose='pos="1 2 3" euler="90.0001 0 0"')
    model = mjcf.read("model.xml", text=text, snap=1e-5).model()
    crooked = read_text(text).model()
    base = np.array([[np.cos(np.pi / 6), 0, 0.5], [0, 1, 0], [-0.5, 0, np.cos(np.pi / 6)]])
    turn = base.T @ np.array(model.placement[1].R.rows)
    np.testing.assert_allclose(turn, [[1, 0, 0], [0, 0, -1], [0, 1, 0]], atol=1e-15)  # rounding of one product
    assert abs(base.T @ np.array(crooked.placement[1].R.rows) - turn).max() > 1e-6
    assert any("snapped" in str(f) for f in model.findings)


# ---- loops -----------------------------------------------------------------------------------------------------------

LOOPS = {
    "connect": ('<connect name="e" body1="b" body2="c" anchor=".1 .2 .3"/>', Spherical, True),
    "connect to the world": ('<connect name="e" body1="b" anchor=".1 .2 .3"/>', Spherical, True),
    "connect sites": ('<connect name="e" site1="s" site2="t"/>', Spherical, False),
    "weld": ('<weld name="e" body1="b" body2="c" anchor=".3 .2 .1"/>', Fixed, True),
    "weld to the world": ('<weld name="e" body1="b"/>', Fixed, True),
    "weld with a pose": ('<weld name="e" body1="b" body2="c" relpose="1 2 3 .5 .5 -.5 .5"/>', Fixed, False),
    "weld sites": ('<weld name="e" site1="s" site2="t"/>', Fixed, False),
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_have_mujocos_residual(name):
    equality, kind, closed_at_start = LOOPS[name]
    text = (
        f'<mujoco><worldbody><body name="b" pos="1 0 0" euler="10 20 30"><joint pos=".1 .2 0" ref="15"/>'
        f'<joint type="ball"/>{BODY}<site name="s" pos=".1 .1 0" euler="40 0 20"/></body>'
        f'<body name="c" pos="0 1 0" euler="0 0 70"><freejoint/>{BODY}<site name="t" pos="0 .2 0" euler="0 50 0"/>'
        f"</body></worldbody><equality>{equality}</equality></mujoco>"
    )
    m, model = compiled(text), read_text(text).model()
    (loop,) = model.loops
    assert isinstance(loop.joint, kind)
    start = mujoco.MjData(m)
    mujoco.mj_forward(m, start)
    for d in (start, *states(m, 4, model)):
        T_W = link_poses(model, conventions.from_mujoco_q(model, d.qpos))
        T_a, T_b = T_W[loop.link_a] @ loop.placement_a, T_W[loop.link_b] @ loop.placement_b
        residual = np.subtract(T_a.p, T_b.p)
        if kind is Fixed:
            *vector, _ = rotation_quaternion((T_b.inverse() @ T_a).R)
            theirs = d.efc_pos[3:6]
            sign = np.sign(np.dot(vector, theirs)) or 1.0  # a quaternion and its negative are the same rotation
            residual = np.concatenate([residual, sign * np.array(vector)])
        near(residual, d.efc_pos[: residual.size], 1e-12, 1e-12)  # rounding of lengths of some metres
        if d is start and closed_at_start:
            assert np.abs(residual).max() < 1e-14


# ---- equalities between joints and tendons ---------------------------------------------------------------------------

FINGERS = (
    '<mujoco><compiler angle="radian"/><worldbody><body name="palm"><joint name="wrist" axis="1 2 0" ref=".1"/>{B}'
    '<body pos=".1 0 0"><joint name="a" axis="0 1 0" ref=".2" damping=".3" armature=".05" stiffness="2" springref=".4"/>{B}'
    '<body pos=".1 0 0"><joint name="b" axis="0 1 1" ref="-.3" damping=".1" armature=".02"/>{B}</body></body>'
    '<body pos="0 .1 0"><joint name="c" type="slide" axis="1 0 1" ref=".5" damping=".2" stiffness="7"/>{B}'
    '<body pos="0 0 .2"><joint name="d" armature=".1"/>{B}</body></body></body></worldbody>'
    '<tendon><fixed name="ab"><joint joint="a" coef="2"/><joint joint="b" coef="-.5"/></fixed>'
    '<fixed name="cd"><joint joint="c" coef="1.5"/><joint joint="d" coef=".7"/></fixed>'
    '<fixed name="w"><joint joint="wrist" coef="3"/></fixed></tendon><equality>{E}</equality></mujoco>'
)
# what is in the file, which joints follow which, and how many rows are left
EQUALITIES = {
    "linear": ('<joint joint1="b" joint2="a" polycoef=".1 -.7 0 0 0"/>', {"b": "a"}, 0),
    "a slide follows a hinge": ('<joint joint1="c" joint2="wrist" polycoef="0 .4 0 0 0"/>', {"c": "wrist"}, 0),
    "a parent follows its child": ('<joint joint1="wrist" joint2="d" polycoef="0 -2 0 0 0"/>', {"wrist": "d"}, 0),
    "a chain": (
        '<joint joint1="d" joint2="b" polycoef=".3 2 0 0 0"/><joint joint1="b" joint2="a" polycoef=".1 -.7 0 0 0"/>',
        {"d": "a", "b": "a"},
        0,
    ),
    "two of one": (
        '<joint joint1="a" joint2="b" polycoef=".3 2 0 0 0"/><joint joint1="a" joint2="d" polycoef=".1 -.7 0 0 0"/>',
        {"a": "d", "b": "d"},
        0,
    ),
    "polynomial": ('<joint joint1="b" joint2="a" polycoef=".1 -.7 .3 .2 -.1"/>', {}, 1),
    "polynomial of a follower": (
        '<joint joint1="b" joint2="a" polycoef=".1 -.7 .3 0 0"/><joint joint1="a" joint2="d" polycoef=".2 .5 0 0 0"/>',
        {"a": "d"},
        1,
    ),
    "held": ('<joint joint1="b" polycoef=".25 9 9 9 9"/>', {}, 1),
    "no slope": ('<joint joint1="b" joint2="a" polycoef=".25 0 0 0 0"/>', {}, 1),
    "a tendon of two joints held": ('<tendon tendon1="ab" polycoef=".2 0 0 0 0"/>', {"a": "b"}, 0),
    "two tendons": ('<tendon tendon1="ab" tendon2="cd" polycoef=".2 .3 0 0 0"/>', {}, 1),
    "two tendons, not linear": ('<tendon tendon1="ab" tendon2="cd" polycoef=".2 .3 .1 0 .05"/>', {}, 1),
    "a tendon follows a joint's": (
        '<tendon tendon1="ab" tendon2="w" polycoef=".2 .3 0 0 0"/><joint joint1="a" joint2="wrist"/>',
        {"a": "wrist", "b": "wrist"},
        0,
    ),
    "not active": ('<joint joint1="b" joint2="a" active="false"/>', {}, 0),
    "twice the same": ('<joint joint1="b" joint2="a"/><joint joint1="a" joint2="b"/>', {"b": "a"}, 0),
}


def fingers(name):
    text = FINGERS.format(B=BODY, E=EQUALITIES[name][0])
    return compiled(text), read_text(text)


@pytest.mark.parametrize("name", EQUALITIES)
def test_equalities_of_joints_and_fixed_tendons_hold_where_mujocos_do(name):
    """Followers exactly; rows have MuJoCo's residual and Jacobian; dynamics are MuJoCo's with its equations solved."""
    _, followers, rows = EQUALITIES[name]
    (m, builder), n = fingers(name), 5
    model = builder.model()
    names = model.joint_names
    assert {names[i]: names[f.link] for i, f in enumerate(model.mimic) if f is not None} == followers
    assert loop_constraints.count(model) == rows
    assert not [f for f in builder.findings if f.severity == "warning"]
    compare_dynamics(m, model, 3)
    for d in states(m, 3, model):
        q = conventions.from_mujoco_q(model, d.qpos)
        E = np.stack([conventions.to_mujoco_v(model, q, unit) for unit in np.eye(model.nv)], axis=-1)
        equal = d.efc_type == int(mujoco.mjtConstraint.mjCNSTR_EQUALITY)
        J = d.efc_J.reshape(-1, n)[equal] @ E
        is_row = np.abs(J).max(axis=-1, initial=0.0) > 1e-12  # the others are what followers keep
        near(d.efc_pos[equal][~is_row], np.zeros(np.sum(~is_row)), floor=1e-12)
        near(loop_constraints.residual(model, q), d.efc_pos[equal][is_row], 1e-12, 1e-12)
        near(loop_constraints.jacobian(model, q), J[is_row], 1e-12, 1e-12)


@pytest.mark.parametrize("name", ["polynomial of a follower", "two tendons, not linear", "held"])
def test_dynamics_with_coupled_joints_are_mujocos_with_the_row_added(name):
    (m, builder), M = fingers(name), np.zeros((5, 5))
    robot = Robot(builder.model())
    rng = np.random.default_rng(3)
    q, _ = robot.close_loops(rng.normal(size=robot.nq) / 3)
    v = robot.project_velocity(q, rng.normal(size=robot.nv))
    d = mujoco.MjData(m)
    d.qpos[:], d.qvel[:] = conventions.to_mujoco_q(robot.model, q), conventions.to_mujoco_v(robot.model, q, v)
    d.qfrc_applied[:] = rng.normal(size=5)
    mujoco.mj_forward(m, d)
    mujoco.mj_fullM(m, d, M)
    equal = d.efc_type == int(mujoco.mjtConstraint.mjCNSTR_EQUALITY)
    J, step = d.efc_J.reshape(-1, 5)[equal], 1e-6

    def rate(sign):
        e = mujoco.MjData(m)
        e.qpos[:], e.qvel[:] = d.qpos + sign * step * d.qvel, d.qvel
        mujoco.mj_forward(m, e)
        return (e.efc_J.reshape(-1, 5)[equal] @ d.qvel) / (2 * step)

    drift = rate(1.0) - rate(-1.0)  # a difference: 1e-9 of its size is left
    k = len(J)
    whole = np.block([[M, J.T], [J, np.zeros((k, k))]])
    force = d.qfrc_applied + d.qfrc_passive - d.qfrc_bias
    theirs = np.linalg.solve(whole, np.concatenate([force, -drift]))[:5]
    a = robot.forward_dynamics(q, v, conventions.from_mujoco_tau(robot.model, q, d.qfrc_applied))
    near(conventions.to_mujoco_a(robot.model, q, v, a), theirs, 1e-8)
    again = pickle.loads(pickle.dumps(robot))
    assert again == robot
    near(again.forward_dynamics(q, v, np.zeros(robot.nv)), robot.forward_dynamics(q, v, np.zeros(robot.nv)), 1e-15)


def test_contradicting_and_spatial_equalities_are_warned_of():
    both = '<joint joint1="b" joint2="a"/><joint joint1="a" joint2="b" polycoef=".5 1 0 0 0"/>'
    builder = read_text(FINGERS.format(B=BODY, E=both))
    (finding,) = (f for f in builder.findings if f.severity == "warning")
    assert "contradicts the ones before it by 0.5" in str(finding)
    assert builder.model().constraints == ()
    text = (
        '<mujoco><worldbody><site name="o"/><body pos="1 0 0"><joint name="j"/><geom size=".1"/><site name="s"/></body>'
        '</worldbody><tendon><spatial name="t"><site site="o"/><site site="s"/></spatial></tendon>'
        '<equality><tendon tendon1="t"/></equality></mujoco>'
    )
    (finding,) = (f for f in read_text(text).findings if f.severity == "warning")
    assert "a spatial tendon equality is left out" in str(finding)


def test_an_actuator_on_a_follower_drives_its_leader():
    text = FINGERS.format(B=BODY, E=EQUALITIES["linear"][0])
    for driven in ("a", "b"):
        model = read_text(text.replace("</mujoco>", f'<actuator><motor joint="{driven}"/></actuator></mujoco>')).model()
        assert model.actuated[model.joint_index("a")]
        assert not model.actuated[model.joint_index("wrist")]


FILES_WITH_LOOPS = ("constraints.xml", "jdotv/connect_2d.xml", "jdotv/connect_3d.xml", "jdotv/weld_3d.xml")


@pytest.mark.parametrize("name", [needs(f"mujoco_warp/{name}") for name in FILES_WITH_LOOPS])
def test_loops_of_real_files_are_closed_at_the_start(name):
    path = FILES[name]
    m, model = compiled(path), mjcf.read(path).model()
    supported = (int(mujoco.mjtEq.mjEQ_CONNECT), int(mujoco.mjtEq.mjEQ_WELD))
    kept = np.flatnonzero(np.isin(m.eq_type, supported))
    assert kept.size > 0
    T_W = link_poses(model, conventions.from_mujoco_q(model, m.qpos0))
    d = mujoco.MjData(m)
    mujoco.mj_forward(m, d)
    for loop, equality in zip(model.loops, kept, strict=True):
        gap = np.subtract((T_W[loop.link_a] @ loop.placement_a).p, (T_W[loop.link_b] @ loop.placement_b).p)
        row = np.flatnonzero((d.efc_type == int(mujoco.mjtConstraint.mjCNSTR_EQUALITY)) & (d.efc_id == equality))[:3]
        near(gap, d.efc_pos[row], 1e-12, 1e-12)


def test_an_equality_within_one_body_is_left_out():
    text = '<mujoco><worldbody><body name="a"/><body name="c"/></worldbody><equality><weld body1="a" body2="c"/>'
    builder = read_text(text + "</equality></mujoco>")
    assert builder.model().loops == ()
    assert any("do not move against each other" in str(f) for f in builder.findings)


# ---- how it behaves --------------------------------------------------------------------------------------------------


REMARKED = ("gymnasium/half_cheetah.xml", "mujoco_warp/humanoid/n_humanoid.xml")  # by two different ways


@pytest.mark.parametrize("name", [*map(needs, REMARKED)])
def test_mujoco_prints_nothing_and_writes_no_log(name, capfd, tmp_path, monkeypatch):
    path = FILES[name]
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        findings = mjcf.read(path).findings
    assert {f.element for f in findings} == {"MuJoCo"}
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_lines_are_named_and_included_files_are_read(tmp_path):
    part = '<mujoco>\n<worldbody>\n\n<body name="x" gravcomp="1">\n<joint/><geom size=".1"/></body></worldbody></mujoco>'
    (tmp_path / "part.xml").write_text(part)
    main = tmp_path / "main.xml"
    main.write_text('<mujoco><include file="part.xml"/></mujoco>')
    builder = mjcf.read(main)
    assert builder.model().link_names == ("world", "x")
    assert [f.where for f in builder.findings] == [f"{main} or a file it includes"]
    assert [f.where for f in mjcf.read(tmp_path / "part.xml").findings] == [f"{tmp_path / 'part.xml'}:4"]


def test_without_mujoco_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(FileError, match=r'pip install "qddot\[mjcf\]"'):
        read_text("<mujoco/>")
