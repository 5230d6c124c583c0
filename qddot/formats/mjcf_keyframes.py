"""Keyframes of MJCF are named configurations."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from qddot.errors import InputError
from qddot.formats.mjcf_compile import Compiled
from qddot.formats.mjcf_values import scalar_last
from qddot.formats.writer import Losses, element, numbers
from qddot.mechanism import configurations
from qddot.mechanism.model import Model
from qddot.mechanism.named_configurations import Groups, NamedConfiguration

_MAX_NUMBERS = 1_000_000  # of all keyframes together


def with_keyframes(model: Model, compiled: Compiled) -> Model:
    """The model with the keyframes that have names; joints stand in the order of MuJoCo's own."""
    m, mujoco = compiled.model, compiled.mujoco
    found: list[NamedConfiguration] = []
    for k in range(min(m.nkey, _MAX_NUMBERS // max(1, m.nq))):
        name = mujoco.mj_id2name(m, mujoco.mjtObj.mjOBJ_KEY, k)
        if not name:
            continue
        qpos, at, rows = m.key_qpos[k].tolist(), 0, []
        for i, _ in model.outward():
            nq = model.joint[i].nq
            q, at = scalar_last(qpos[at : at + nq]), at + nq
            if model.mimic[i] is None:
                rows.append((model.joint_names[i], _valid(q) if model.joint[i].has_unit_quaternion else tuple(q)))
        if all(math.isfinite(x) for _, q in rows for x in q):
            found.append(NamedConfiguration(name, "", tuple(rows)))
    return dataclasses.replace(model, groups=Groups((), tuple(found))) if found else model


def _valid(q: list[float]) -> tuple[float, ...]:
    """With a unit quaternion at the end; MuJoCo takes any."""
    length = math.hypot(*q[-4:])
    return (*q[:-4], *(x / length for x in q[-4:])) if length > 0.0 else (*q[:-4], 0.0, 0.0, 0.0, 1.0)


def keyframes(model: Model, order: Sequence[int], losses: Losses) -> list[str]:
    """The lines of <keyframe> for the named configurations of a model whose joints are written in this order of links."""
    lines = []
    for name in dict.fromkeys(c.name for c in model.groups.configurations):
        owner = f"configuration {name!r}"
        try:
            own = model.coordinates(configurations.named(model, name))
        except InputError:
            losses.note(owner, "its groups have different values of a joint", "it is left out")
            continue
        qpos: list[float] = []
        for i in order:
            q = list(own[i])
            qpos += [*q[:-4], q[-1], *q[-4:-1]] if model.joint[i].has_unit_quaternion else q
        lines.append(element("key", {"name": losses.name(name, owner), "qpos": numbers(qpos)}))
    return lines
