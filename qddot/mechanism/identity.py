"""What a model is known by: its content as plain data, and the hash of that."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from qddot.spatial import Transform

if TYPE_CHECKING:
    from qddot.mechanism.model import Model


def digest(model: Model) -> str:
    """SHA-256 of the content."""
    text = json.dumps(describe(model), sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def same(a: Model, b: Model) -> bool:
    """Whether two models are the same mechanism: equal numbers, and frames by name, in whatever order."""
    first, second = describe(a), describe(b)
    for content in (first, second):
        content["frames"].sort(key=lambda frame: frame["name"])
    return first == second


def describe(model: Model) -> dict[str, Any]:
    """The model as plain lists, numbers and names: what its file holds and what its hash is taken of."""
    links = [
        {
            "name": model.link_names[i],
            "parent": model.parent[i],
            "joint": {"name": model.joint_names[i], **model.joint[i].describe()},
            "placement": describe_transform(model.placement[i]),
            "mass": model.inertia[i].m,
            "first_moment": list(model.inertia[i].h),
            "second_moment": [list(row) for row in model.inertia[i].I],
            "armature": list(model.armature[i]),
            "damping": list(model.damping[i]),
            "friction": list(model.friction[i]),
            "stiffness": list(model.stiffness[i]),
            "spring_reference": list(model.spring_reference[i]),
            "limits": {k: [_number(x) for x in v] for k, v in model.limits[i]._asdict().items()},
            "actuated": model.actuated[i],
            "mimic": None if (m := model.mimic[i]) is None else m._asdict(),
        }
        for i in range(len(model.parent))
    ]
    frames = [{"name": f.name, "link": f.link, "placement": describe_transform(f.placement)} for f in model.frames]
    loops = [
        {
            "name": loop.name,
            "joint": loop.joint.describe(),
            "link_a": loop.link_a,
            "placement_a": describe_transform(loop.placement_a),
            "link_b": loop.link_b,
            "placement_b": describe_transform(loop.placement_b),
        }
        for loop in model.loops
    ]
    own = [{"name": c.name, "rows": c.rows, **c.describe()} for c in model.constraints]
    return {
        **({"constraints": own} if own else {}),
        "name": model.name,
        "gravity": list(model.gravity),
        "friction_velocity": model.friction_velocity,
        **({} if model.loop_tolerance is None else {"loop_tolerance": model.loop_tolerance}),
        "links": links,
        "frames": frames,
        "loops": loops,
    }


def _number(x: float) -> float | str:
    """Limits may be infinite, and JSON has no infinity."""
    return x if np.isfinite(x) else ("inf" if x > 0 else "-inf")


def describe_transform(T: Transform) -> dict[str, Any]:
    """A transform as plain lists."""
    return {"rotation": [list(row) for row in T.R.rows], "position": list(T.p)}
