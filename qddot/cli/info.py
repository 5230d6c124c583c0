"""The command `qddot info`: the tree, the masses, the joints and the findings of a robot."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from qddot.cli.robot_file import finding_lines, load_robot, massless_lines, robot_arguments
from qddot.errors import printable
from qddot.robot import Robot

HELP = "Shows the tree, the masses, the joints and the findings of a robot."


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    robot_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the table or the JSON."""
    robot = load_robot(options)
    if options.json:
        print(json.dumps(_description(robot), indent=1))
        return 0
    print("\n".join(map(printable, _summary(robot))))
    return 0


def _description(robot: Robot) -> dict[str, Any]:
    model = robot.model
    return {
        "name": robot.name,
        "nq": robot.nq,
        "nv": robot.nv,
        "mass": robot.mass,
        "gravity": list(model.gravity),
        "links": [
            {
                "name": model.link_names[i],
                "parent": model.link_names[p],
                "joint": model.joint_names[i],
                "kind": model.joint[i].kind,
                "mass": model.inertia[i].m,
                "mimics": None if (m := model.mimic[i]) is None else model.joint_names[m.link],
                "actuated": model.actuated[i],
            }
            for i, p in model.outward()
        ],
        "frames": [{"name": f.name, "link": model.link_names[f.link]} for f in model.frames],
        "loops": [
            {"name": x.name, "kind": x.joint.kind, "links": [model.link_names[x.link_a], model.link_names[x.link_b]]}
            for x in model.loops
        ],
        "groups": {name: list(joints) for name, joints in robot.groups.items()},
        "configurations": {name: _values(robot, name) for name in robot.configuration_names},
        "massless_joints": list(robot.massless_joints),
        "findings": [vars(f) for f in robot.findings],
    }


def _values(robot: Robot, name: str) -> list[dict[str, Any]]:
    named = (c for c in robot.model.groups.configurations if c.name == name)
    return [{"group": c.group, "coordinates": {joint: list(q) for joint, q in c.coordinates}} for c in named]


def _summary(robot: Robot) -> Iterator[str]:
    model = robot.model
    loops = f", {len(model.loops)} loops" if model.loops else ""
    yield f"{robot.name}: {model.n_links} moving links, nq = {robot.nq}, nv = {robot.nv}{loops}"
    yield f"moving mass {robot.mass:.6g} kg, gravity ({', '.join(f'{g:g}' for g in model.gravity)}) m/s²"
    yield ""
    names = _tree_names(robot)
    width = max(map(len, names), default=4)
    joint_width = max(map(len, robot.joint_names), default=5)
    yield f"  {'link':<{width}}  {'joint':<{joint_width}}  {'kind':<22} {'mass, kg':>10}  limits"
    for name, (i, _) in zip(names, model.outward(), strict=True):
        kind = model.joint[i].kind
        if (m := model.mimic[i]) is not None:
            kind = f"{kind} = {m.factor:g}·{model.joint_names[m.link]}{m.offset:+g}"
        row = f"  {name:<{width}}  {model.joint_names[i]:<{joint_width}}  {kind:<22} {model.inertia[i].m:>10.4g}"
        yield f"{row}  {_limits(robot, i)}".rstrip()
    for loop in model.loops:
        a, b = model.link_names[loop.link_a], model.link_names[loop.link_b]
        yield f"  loop {loop.name}: {loop.joint.kind} between {a} and {b}"
    if model.frames:
        shown = ", ".join(f"{f.name} (on {model.link_names[f.link]})" for f in model.frames[:12])
        yield f"  frames: {shown}" + (f", and {len(model.frames) - 12} more" if len(model.frames) > 12 else "")
    if robot.groups:
        yield "  groups: " + ", ".join(f"{name} ({len(joints)} joints)" for name, joints in robot.groups.items())
    if robot.configuration_names:
        yield f"  configurations: {', '.join(robot.configuration_names)}"
    yield from massless_lines(robot)
    yield from finding_lines(robot.findings)


def _tree_names(robot: Robot) -> list[str]:
    depth = [0] * (robot.model.n_links + 1)
    for i, p in robot.model.outward():
        depth[i] = depth[p] + 1
    return ["  " * (depth[i] - 1) + robot.model.link_names[i] for i, _ in robot.model.outward()]


def _limits(robot: Robot, i: int) -> str:
    lower, upper = robot.model.limits[i].lower, robot.model.limits[i].upper
    if len(lower) != 1 or not (np.isfinite(lower[0]) or np.isfinite(upper[0])):
        return ""
    unit = "rad" if robot.model.joint[i].is_angle[0] else "m"
    return f"[{lower[0]:g}, {upper[0]:g}] {unit}"
