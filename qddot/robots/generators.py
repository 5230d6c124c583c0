"""Mechanisms by the dozen: chains of any length, and random trees over every kind of joint.

Random bodies are clouds of point masses, so that each could be built. `rng` is a seed or a NumPy Generator; with the
same seed the same robot comes out.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from qddot.errors import InputError, unknown
from qddot.joints import KINDS, Fixed, Joint, Own
from qddot.mechanism.builder import WORLD, Builder
from qddot.mechanism.validation import pose
from qddot.robots.bodies import rod
from qddot.scalars import Scalar, cos, sin, total
from qddot.spatial import Transform
from qddot.spatial.rotation import AxisRotation, dot

Rng = int | np.random.Generator | None

LENGTH, MASS, THICKNESS = 0.1, 0.1, 0.01  # of a bar of the regular chain
_MOVING = tuple(kind for kind in KINDS if kind != Fixed.kind)
_ORDERS = ("depth", "breadth", "random")


def cam(q: Sequence[Scalar]) -> Transform:
    """One degree of freedom: a turn about z while the centre runs along an ellipse. An example of a user's own joint."""
    c, s = cos(q[0]), sin(q[0])
    return Transform(AxisRotation(2, c, s), (0.1 * c, 0.05 * s, 0.02 * q[0]))


def swash(q: Sequence[Scalar]) -> Transform:
    """Two degrees of freedom: a turn about x, and a travel along y that tilts the body. A user's own joint."""
    tilt = 0.3 * sin(q[1])
    turned = Transform(AxisRotation(0, cos(q[0]), sin(q[0])))
    return turned @ Transform(AxisRotation(1, cos(tilt), sin(tilt)), (0.0, 0.1 * q[1], 0.05 * q[0] * q[1]))


OWN_JOINTS: dict[str, Callable[..., Any]] = {"cam": cam, "swash": swash}
_OWN_FREEDOMS = {"cam": 1, "swash": 2}


# ---- chains --------------------------------------------------------------------------------------------------------


def chain(n: int, rng: Rng = None, joint: str = "revolute") -> Builder:
    """n links in a row on joints of one kind.

    Without `rng`, equal bars that hang down, their joint axes along y and x in turn; with it, random axes, placements
    and bodies.
    """
    count = _count(n)
    kind = _known_kind(joint)
    b = Builder(f"chain{count}")
    parent = WORLD
    random = None if rng is None else np.random.default_rng(rng)
    for k in range(1, count + 1):
        link = f"link{k}"
        if random is None:
            b.link(link, MASS, (0.0, 0.0, -LENGTH / 2), _upright(rod(MASS, LENGTH, THICKNESS)))
            placement = pose((0.0, 0.0, 0.0 if k == 1 else -LENGTH))
            made = _regular_joint(kind, k)
        else:
            _random_link(b, link, random)
            placement, made = _random_pose(random), _random_joint(kind, random)
        b.joint(f"joint{k}", parent, link, made, placement)
        parent = link
    return b


def _upright(bar: tuple[float, ...]) -> tuple[float, ...]:
    """The inertia of a bar along x, turned to lie along z."""
    about, across = bar[0], bar[5]
    return (across, 0.0, 0.0, across, 0.0, about)


def _regular_joint(kind: str, k: int) -> Joint:
    if kind == Own.kind:
        return Own(cam, 1, "cam")
    cls: Any = KINDS[kind]
    axis = (0.0, 1.0, 0.0) if k % 2 else (1.0, 0.0, 0.0)
    joint: Joint = cls(axis=axis) if "axis" in cls.axis_names else cls()
    return joint


# ---- trees ---------------------------------------------------------------------------------------------------------


def random_tree(
    n: int,
    rng: Rng = None,
    kinds: Iterable[str] | None = None,
    mimic: bool = False,
    order: str = "depth",
) -> Builder:
    """n moving links, branching at random from one or more roots, on joints of the given kinds, or of all kinds.

    With `mimic`, about half of the joints with one degree of freedom follow another one, also through others. `order` says
    how links are declared, and with that how they are numbered: along the branches, level by level, or at random.
    """
    count = _count(n)
    random = np.random.default_rng(rng)
    pool = _MOVING if kinds is None else tuple(_known_kind(kind) for kind in kinds)
    if not pool:
        raise InputError("random_tree: kinds is empty; name at least one kind of joint")
    if order not in _ORDERS:
        raise unknown("order", order, _ORDERS, "random_tree")
    parents = [0, *(_random_parent(k, random) for k in range(1, count + 1))]
    joints = [Fixed(), *(_random_joint(_pick(pool, random), random) for _ in range(count))]
    follows = _random_mimics(joints, random) if mimic else {}
    names = [WORLD, *(f"link{k}" for k in range(1, count + 1))]
    b = Builder(f"tree{count}", gravity=random.uniform(-10.0, 10.0, 3).tolist())
    for k in _declaration(parents, order, random):
        _random_link(b, names[k], random)
        b.joint(
            *(f"joint{k}", names[parents[k]], names[k], joints[k], _random_pose(random)),
            **_random_forces(joints[k], random),
            mimic=follows.get(k),
        )
        if random.random() < 0.3:
            b.frame(f"frame{k}", names[k], _random_pose(random))
    return b


def _random_parent(k: int, random: np.random.Generator) -> int:
    """The world now and then, else one of the links before: often the last, so that branches grow long."""
    if k == 1 or random.random() < 0.1:
        return 0
    return k - 1 if random.random() < 0.5 else int(random.integers(1, k))


def _declaration(parents: list[int], order: str, random: np.random.Generator) -> list[int]:
    links = list(range(1, len(parents)))
    if order == "random":
        return [int(k) for k in random.permutation(links)]
    children: list[list[int]] = [[] for _ in parents]
    for k in links:
        children[parents[k]].append(k)
    out: list[int] = []
    waiting = children[0][:]
    while waiting:
        k = waiting.pop(0)
        out.append(k)
        waiting = [*children[k], *waiting] if order == "depth" else [*waiting, *children[k]]
    return out


def _random_mimics(joints: list[Joint], random: np.random.Generator) -> dict[int, tuple[str, float, float]]:
    """Followers name a joint before them in a shuffled row, so that chains occur and rings do not."""
    single = [k for k, joint in enumerate(joints) if joint.nq == joint.nv == 1]
    row = [int(k) for k in random.permutation(single)]
    follows = {}
    for place, k in enumerate(row):
        if place > 0 and random.random() < 0.5:
            leader = row[int(random.integers(0, place))]
            follows[k] = (f"joint{leader}", float(random.uniform(-2.0, 2.0)), float(random.uniform(-1.0, 1.0)))
    return follows


# ---- random parts --------------------------------------------------------------------------------------------------


def _random_link(b: Builder, name: str, random: np.random.Generator) -> None:
    """A cloud of six point masses."""
    masses = random.uniform(0.05, 0.5, 6)
    points = random.uniform(-0.3, 0.3, (6, 3))
    mass = total(masses.tolist())
    com = total(m * r for m, r in zip(masses, points, strict=True)) / mass
    inertia = total(m * (dot(r, r) * np.eye(3) - np.outer(r, r)) for m, r in zip(masses, points - com, strict=True))
    b.link(name, mass, com.tolist(), inertia)


def _random_pose(random: np.random.Generator) -> Transform:
    return pose(random.uniform(-0.5, 0.5, 3).tolist(), random.uniform(-np.pi, np.pi, 3).tolist())


def _random_joint(kind: str, random: np.random.Generator) -> Joint:
    if kind == Own.kind:
        name = _pick(tuple(OWN_JOINTS), random)
        return Own(OWN_JOINTS[name], _OWN_FREEDOMS[name], name)
    return KINDS[kind].sample(random)


def _random_forces(joint: Joint, random: np.random.Generator) -> dict[str, Any]:
    """Rotor inertia, damping, friction and a spring, each on about half of the joints, and limits now and then."""

    def some(high: float) -> list[float]:
        return (random.uniform(0.0, high, joint.nv) * (random.random() < 0.5)).tolist()

    stiffness = some(5.0)
    if joint.spring_groups:  # one number for directions that turn into each other
        stiffness = [stiffness[0]] * joint.nv
    forces: dict[str, Any] = {
        "armature": some(0.1),
        "damping": some(1.0),
        "friction": some(0.5),
        "stiffness": stiffness,
    }
    if random.random() < 0.5:
        forces["spring_reference"] = joint.random(random)
    if joint.nv == 1 and random.random() < 0.5:
        forces |= {"lower": -2.0, "upper": 2.0, "velocity_limit": 3.0, "effort_limit": 10.0}
    return forces


_T = TypeVar("_T")


def _pick(items: Sequence[_T], random: np.random.Generator) -> _T:
    return items[int(random.integers(len(items)))]


def _count(n: int) -> int:
    try:
        count = operator.index(n)
    except TypeError:
        count = 0
    if count < 1:
        raise InputError(f"n is {n!r}; give a whole number of links, one or more")
    return count


def _known_kind(kind: str) -> str:
    if kind not in _MOVING:
        raise unknown("kind of moving joint", kind, _MOVING, "qddot")
    return kind
