"""DH tables against the homogeneous matrices of their definitions, and the same table from Python, CSV and TOML."""

import math

import numpy as np
import pytest

from qddot.algorithms.composite_body import mass_matrix
from qddot.algorithms.energy import potential_energy
from qddot.algorithms.kinematics import link_poses
from qddot.formats import dh
from qddot.joints import Prismatic, Revolute
from qddot.spatial import constant_transform


def rot(axis, angle):
    c, s = math.cos(angle), math.sin(angle)
    T = np.eye(4)
    a, b = [(1, 2), (2, 0), (0, 1)][axis]
    T[a, a], T[a, b], T[b, a], T[b, b] = c, -s, s, c
    return T


def shift(axis, d):
    T = np.eye(4)
    T[axis, 3] = d
    return T


def definition(row, q, convention):
    theta = row["theta"] + (q if row["kind"] == "revolute" else 0.0)
    d = row["d"] + (0.0 if row["kind"] == "revolute" else q)
    twist, turn = rot(0, row["alpha"]) @ shift(0, row["a"]), rot(2, theta) @ shift(2, d)
    return twist @ turn if convention == "modified" else turn @ twist


def random_rows(rng, n):
    rows = []
    for _ in range(n):
        A = rng.normal(size=(3, 3))
        second = A @ A.T + np.eye(3)  # Σ m x xᵀ of a body: any that is positive
        numbers = dict(zip(("alpha", "theta", "a", "d", "mass"), rng.uniform(-2, 2, 5), strict=True))
        numbers["mass"] = abs(numbers["mass"])
        kind = "revolute" if rng.random() < 0.7 else "prismatic"
        rows.append({**numbers, "kind": kind, "com": rng.normal(size=3), "inertia": np.trace(second) * np.eye(3) - second})
    return rows


def homogeneous(T):
    out = np.eye(4)
    out[:3, :3], out[:3, 3] = T.R.rows, T.p
    return out


@pytest.mark.parametrize("convention", dh.CONVENTIONS)
@pytest.mark.parametrize("seed", range(8))
def test_frames_and_bodies_are_those_of_the_table(convention, seed):
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, 6)
    model = dh.from_rows(rows, convention=convention).model()
    q = rng.uniform(-2, 2, 6)
    poses = link_poses(model, q)
    kinetic, potential, T = np.zeros((6, 6)), 0.0, np.eye(4)
    moved = [(np.eye(4), [])]
    for k, row in enumerate(rows):
        T = T @ definition(row, q[k], convention)
        frame = model.frame(f"link{k + 1}")
        # six products of rotations: rounding only
        np.testing.assert_allclose(homogeneous(poses[frame.link] @ frame.placement), T, atol=1e-13)
        c = T[:3, :3] @ row["com"] + T[:3, 3]
        potential += 9.81 * row["mass"] * c[2]
        moved.append((T, row))
    # M = Σ m JᵀJ + JᵀIJ with Jacobians of each centre of mass by the definition's own axes
    for k, (T, row) in enumerate(moved[1:]):
        J_v, J_w = np.zeros((3, 6)), np.zeros((3, 6))
        c = T[:3, :3] @ row["com"] + T[:3, 3]
        for j in range(k + 1):
            own = moved[j + 1][0] if convention == "modified" else moved[j][0]  # the frame whose z is axis j
            z, o = own[:3, 2], own[:3, 3]
            if rows[j]["kind"] == "revolute":
                J_w[:, j], J_v[:, j] = z, np.cross(z, c - o)
            else:
                J_v[:, j] = z
        I = T[:3, :3] @ row["inertia"] @ T[:3, :3].T
        kinetic += row["mass"] * J_v.T @ J_v + J_w.T @ I @ J_w
    # sums of some hundred products of numbers up to 1e2
    np.testing.assert_allclose(mass_matrix(model, q), kinetic, atol=1e-10)
    assert potential_energy(model, q) == pytest.approx(potential, abs=1e-10)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("pi", math.pi),
        ("-pi/2", -math.pi / 2),
        ("+pi/4", math.pi / 4),
        ("3*pi/4", 0.75 * math.pi),
        ("0.5pi", math.pi / 2),
        ("90deg", math.pi / 2),
        ("-45 deg", -math.pi / 4),
        ("180°", math.pi),
        ("1e-3", 1e-3),
        (" .5 ", 0.5),
        (2, 2.0),
        (np.float32(0.5), 0.5),
    ],
)
def test_angles(text, value):
    builder = dh.from_rows([{"theta": text, "lower": -9, "upper": text, "mass": 1}])
    model = builder.model()
    expected = homogeneous(constant_transform(tuple(map(tuple, rot(2, value)[:3, :3].tolist()))))
    np.testing.assert_allclose(homogeneous(model.placement[1]), expected, atol=1e-15)  # one sine and cosine
    assert model.limits[1].upper == (value,)


@pytest.mark.parametrize("right", ["90deg", "pi/2", "-pi/2", "180deg", "-270deg"])
def test_right_angles_are_exact(right):
    rows = dh.from_rows([{"alpha": right, "mass": 1}]).model().placement[1].R.rows
    assert {x for row in rows for x in row} <= {0.0, 1.0, -1.0}


def test_snap_sets_and_reports():
    rows = [{"alpha": 1.5708, "mass": 1}]
    loose, snapped = dh.from_rows(rows).model(), dh.from_rows(rows, snap=1e-4).model()
    assert loose.placement[1].R.rows[1][1] != 0.0
    assert snapped.placement[1].R.rows[1][1] == 0.0
    assert not loose.findings
    assert "1.5708" in str(snapped.findings[0])


CSV = """\
# a comment
# name: arm
# convention: standard
# gravity: 0, -9.81, 0

alpha,a,theta,d,kind,mass, com_x,com_z, ixx,izz,iyy, name, armature,damping,friction, lower,upper,effort_limit
-pi/2, 0, 0, 0.4,, 2, 0.1, 0.2, .1, .2, .15, base, 0.01, 0.1, 0.2, -170deg, 170deg, 50
# between rows
90deg, 0.5, pi, 0, prismatic, 1, , , , , , , , , , -0.1, 0.3,
"""
TOML = """\
[robot]
name = "arm"
convention = "standard"
gravity = [0, -9.81, 0]

[[link]]
alpha = "-pi/2"
d = 0.4
mass = 2
com = [0.1, 0, 0.2]
inertia = [[0.1, 0, 0], [0, 0.15, 0], [0, 0, 0.2]]
name = "base"
armature = 0.01
damping = 0.1
friction = 0.2
lower = "-170deg"
upper = "170deg"
effort_limit = 50

[[link]]
alpha = "90deg"
a = 0.5
theta = "pi"
kind = "prismatic"
mass = 1
lower = -0.1
upper = 0.3
"""


def test_files_say_the_same_as_rows(tmp_path):
    right = math.pi / 2
    base = {"alpha": -right, "d": 0.4, "mass": 2, "com": [0.1, 0, 0.2], "inertia": [0.1, 0, 0, 0.15, 0, 0.2]}
    base |= {"name": "base", "armature": 0.01, "damping": 0.1, "friction": 0.2, "effort_limit": 50}
    base |= {"lower": -17 / 9 * right, "upper": 17 / 9 * right}
    slide = {"alpha": right, "a": 0.5, "theta": 2 * right, "kind": "prismatic", "mass": 1, "lower": -0.1, "upper": 0.3}
    model = dh.from_rows([base, slide], convention="standard", name="arm", gravity=(0, -9.81, 0)).model()
    for name, text in (("arm.csv", CSV), ("arm.toml", TOML)):
        (tmp_path / name).write_text(text, encoding="utf-8-sig")
        assert dh.read(tmp_path / name).model() == model
    assert model.gravity == (0.0, -9.81, 0.0)
    assert isinstance(model.joint[1], Revolute)
    assert isinstance(model.joint[2], Prismatic)
    assert model.frame_names == ("world", "base_at_joint", "link2_at_joint", "base", "link2")


def test_plain_csv_is_modified_and_named_by_its_file(tmp_path):
    file = tmp_path / "two.csv"
    file.write_text("alpha,a,theta,d,mass\r\n0,0,0,0,1\r\npi/2,1,0,0,1\r\n")
    model = dh.read(file).model()
    rows = [{"mass": 1}, {"alpha": math.pi / 2, "a": 1, "mass": 1}]
    assert model == dh.from_rows(rows, convention="modified", name="two").model()
