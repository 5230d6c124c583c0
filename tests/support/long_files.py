"""Chains of n links in every format that qddot reads, and other files whose reading could take the square of their size."""

from __future__ import annotations

import json
from pathlib import Path

INERTIAL = '<inertial><mass value="1"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>'


def urdf(n: int, inside: str = "") -> str:
    """`inside` stands in every joint but the first; {} in it is the number of the joint before."""
    links = "".join(f'<link name="l{k}">{INERTIAL}</link>' for k in range(n + 1))
    joints = "".join(
        f'<joint name="j{k}" type="continuous"><origin xyz="0 0 1"/><axis xyz="0 1 0"/>'
        f'<parent link="l{k}"/><child link="l{k + 1}"/>{inside.format(k - 1) if k else ""}</joint>'
        for k in range(n)
    )
    return f'<robot name="chain">{links}{joints}</robot>'


def urdf_fixed(n: int) -> str:
    """All links fixed to one another: frames of one body."""
    return urdf(n).replace("continuous", "fixed", n - 1).replace("fixed", "continuous", 1)


def urdf_mimic(n: int) -> str:
    """Each joint follows the one before."""
    return urdf(n, '<mimic joint="j{}"/>')


def sdf(n: int) -> str:
    """Each link posed relative to the one before, as SDF 1.7 allows."""
    inertial = "<inertial><mass>1</mass><inertia><ixx>1</ixx><iyy>1</iyy><izz>1</izz></inertia></inertial>"
    links = f'<link name="l0">{inertial}</link>' + "".join(
        f'<link name="l{k}"><pose relative_to="l{k - 1}">0 0 1 0 0 0</pose>{inertial}</link>' for k in range(1, n + 1)
    )
    joints = "".join(
        f'<joint name="j{k}" type="revolute"><parent>l{k}</parent><child>l{k + 1}</child>'
        "<axis><xyz>0 1 0</xyz></axis></joint>"
        for k in range(n)
    )
    return f'<sdf version="1.7"><model name="chain">{links}{joints}</model></sdf>'


def sdf_backward(n: int) -> str:
    """The same with the links in the opposite order: the first leads through all others."""
    head, rest = sdf(n).split("<link ", 1)
    links, joints = rest.split("<joint ", 1)
    return head + "".join(f"<link {x}" for x in reversed(links.split("<link "))) + "<joint " + joints


def mjcf(n: int) -> str:
    """A comb: XML of limited depth, many bodies."""
    body = '<body><joint axis="0 1 0"/><inertial mass="1" pos="0 0 0" diaginertia="1 1 1"/></body>'
    return f"<mujoco><worldbody>{body * n}</worldbody></mujoco>"


def mjcf_same_names(n: int) -> str:
    """Sites whose names are taken by bodies: each is given another one."""
    bodies = "".join(f'<body name="b{"_" * k}"/><site name="b{"_" * k}"/>' for k in range(min(n, 2000)))
    return f"<mujoco><worldbody>{bodies}</worldbody></mujoco>"


def mjcf_loops(n: int) -> str:
    body = '<body name="b{}"><joint/><inertial mass="1" pos="0 0 0" diaginertia="1 1 1"/></body>'
    bodies = "".join(body.format(k) for k in range(n))
    ties = "".join(f'<connect body1="b{k}" body2="b{k + 1}" anchor="0 0 0"/>' for k in range(n - 1))
    return f"<mujoco><worldbody>{bodies}</worldbody><equality>{ties}</equality></mujoco>"


def dh(n: int) -> str:
    return "alpha,a,theta,d,mass\n" + "0,1,0,0,1\n" * n


def dh_toml(n: int) -> str:
    return "[robot]\nname = 'chain'\n" + "[[link]]\na = 1.0\nmass = 1.0\n" * n


def native(n: int, folder: Path) -> str:
    """A saved robot, its links' rows repeated."""
    import qddot

    file = folder / "three.json"
    qddot.chain(3).save(file)
    content = json.loads(file.read_text())
    world, first, *_ = content["links"]
    links = [world]
    for k in range(1, n + 1):
        links.append({**first, "name": f"l{k}", "parent": k - 1, "joint": {**first["joint"], "name": f"j{k}"}})
    return json.dumps({**content, "links": links, "frames": [], "loops": []})


FILES = {
    "urdf": (urdf, "r.urdf"),
    "urdf_fixed": (urdf_fixed, "r.urdf"),
    "urdf_mimic": (urdf_mimic, "r.urdf"),
    "sdf": (sdf, "r.sdf"),
    "sdf_backward": (sdf_backward, "r.sdf"),
    "mjcf": (mjcf, "r.mjcf"),
    "mjcf_same_names": (mjcf_same_names, "r.xml"),
    "mjcf_loops": (mjcf_loops, "r.xml"),
    "dh": (dh, "r.csv"),
    "dh_toml": (dh_toml, "r.toml"),
}
