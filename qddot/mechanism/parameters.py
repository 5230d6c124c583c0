"""The numbers of a model that can be set from outside: their names, their shapes, and a model with others in their place.

A name stands for all links or joints at once, "inertia", or for one, "link3.mass", "joint3.damping". The values may be any
scalars: floats give a robot of its own, traced values a kernel that has them as inputs. Where a value is traced nothing is
concluded from what it is at present: a placement that is free has no zeros.

| name               | of     | shape         | meaning                                                                    |
|--------------------|--------|---------------|----------------------------------------------------------------------------|
| `inertia`          | links  | 10            | m, h_x, h_y, h_z, Ixx, Ixy, Iyy, Ixz, Iyz, Izz about the origin: Kim (20)  |
| `mass`, `com`      | links  | none, 3       | the inertia about the centre of mass stays as it is                        |
| `placement`        | links  | 4, 4          | where the link's joint sits in its parent: Kim (3)                         |
| `position`         | links  | 3             | its position alone                                                         |
| `armature`, `damping`, `friction`, `stiffness` | joints | nv | one a degree of freedom                                   |
| `spring_reference` | joints | nq            | the coordinates at which the spring is at rest                             |
| `gravity`          | world  | 3             |                                                                            |
| `payload`          | frames | 10            | what the frame carries besides, as `inertia`, in its axes; zero at first   |
| `payload_mass`, `payload_com`, `payload_inertia` | frames | none, 3, 6 | the same in parts                               |

Frames are links, bodies fixed to them and named frames: "tool0.payload". Payloads of several frames add. The inertia of a
`payload_inertia` is about its centre of mass: Ixx, Ixy, Ixz, Iyy, Iyz, Izz, as `Builder.link` takes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot.errors import Finding, InputError, ModelError, UnknownNameError, message, one_name, shown, unknown
from qddot.mechanism.model import Model
from qddot.mechanism.validation import Find, check_inertia, check_mass, check_springs, numbers, rigid
from qddot.scalars import Scalar, less, mark, where
from qddot.spatial import Inertia, Transform, transform_inertia
from qddot.spatial.joint_blocks import Vector
from qddot.spatial.rotation import Mat, Rotation, Vec, cross, dot, mat_add, mat_sub, scale, sub

Shape = tuple[int, ...]

# What each name sets. Two names that set the same thing of the same link cannot stand together.
_LINK = {
    "inertia": ("mass", "com", "rotary"),
    "mass": ("mass",),
    "com": ("com",),
    "placement": ("rotation", "position"),
    "position": ("position",),
}
_JOINT = {x: (x,) for x in ("armature", "damping", "friction", "stiffness", "spring_reference")}
_WORLD = {"gravity": ("gravity",)}
_FRAME = {
    "payload": ("mass", "com", "rotary"),
    "payload_mass": ("mass",),
    "payload_com": ("com",),
    "payload_inertia": ("rotary",),
}
_SETS = _LINK | _JOINT | _WORLD | _FRAME
KINDS = tuple(_SETS)
_LINK_SHAPES: dict[str, Shape] = {"inertia": (10,), "mass": (), "com": (3,), "placement": (4, 4), "position": (3,)}
_FRAME_SHAPES: dict[str, Shape] = {"payload": (10,), "payload_mass": (), "payload_com": (3,), "payload_inertia": (6,)}
DESCRIPTIONS = {  # for people who read exported code
    "inertia": "m, h_x, h_y, h_z, Ixx, Ixy, Iyy, Ixz, Iyz, Izz about the link's origin",
    "mass": "kg; the inertia about the centre of mass stays",
    "com": "the centre of mass in the link's frame, m",
    "placement": "where the joint sits in its parent, 4 x 4 row by row",
    "position": "the position of the joint in its parent, m",
    "armature": "rotor inertia, kg m^2 or kg",
    "damping": "N m s/rad or N s/m",
    "friction": "N m or N",
    "stiffness": "N m/rad or N/m",
    "spring_reference": "where the spring is at rest",
    "gravity": "m/s^2, in the world",
    "payload": "m, h_x, h_y, h_z, Ixx, Ixy, Iyy, Ixz, Iyz, Izz about the frame's origin, of what it carries besides",
    "payload_mass": "kg, of what the frame carries besides",
    "payload_com": "the centre of mass of what the frame carries, in the frame, m",
    "payload_inertia": "Ixx, Ixy, Ixz, Iyy, Iyz, Izz of what the frame carries, about its centre of mass",
}

ROTATION_TOLERANCE = 2e-6  # as for quaternions: looser than rounding of float32, tighter than any real mistake


class Parameter(NamedTuple):
    """A name understood: what it sets, of which links (or of the joints that move them), and the shape of its values."""

    name: str
    kind: str
    links: tuple[int, ...]
    shape: Shape

    @property
    def of_links(self) -> bool:
        """Whether it is a link's inertia or placement, or part of one."""
        return self.kind in _LINK or self.is_payload

    @property
    def is_payload(self) -> bool:
        """Whether it is something that a frame carries besides."""
        return self.kind in _FRAME

    @property
    def owner(self) -> str:
        """The frame, link or joint that its name begins with; empty where it is of all."""
        return self.name.rpartition(".")[0]

    @property
    def parts(self) -> tuple[str, ...]:
        """What it sets of each of its links."""
        of = f" of the payload at {self.owner!r}" if self.is_payload else ""
        return tuple(part + of for part in _SETS[self.kind])


def kinds_that_set(*parts: str) -> set[str]:
    """The kinds of parameters that set "mass", "com", "rotary", "rotation" or "position" of links."""
    return {kind for kind, sets in _SETS.items() if set(sets) & set(parts)}


# ---- names and shapes ------------------------------------------------------------------------------------------------


def parameters(model: Model, names: Iterable[str]) -> tuple[Parameter, ...]:
    """The parameters of these names, in order; no two of them may set the same number."""
    found = tuple(_parameter(model, name) for name in names)
    owner: dict[tuple[str, int], str] = {}
    for p in found:
        for key in ((part, i) for i in p.links for part in p.parts):
            if key in owner:
                what = f"of link {model.link_names[key[1]]!r} " if key[1] else ""
                raise InputError(
                    f"{owner[key]!r} and {p.name!r} both set the {key[0]} {what}of robot {model.name!r}; take one"
                )
            owner[key] = p.name
    return found


def _parameter(model: Model, name: str) -> Parameter:
    if one_name(name, "parameter") in _WORLD:
        return Parameter(name, name, (0,), (3,))
    links = tuple(i for i, _ in model.outward())
    if name in _LINK:
        return Parameter(name, name, links, (len(links), *_LINK_SHAPES[name]))
    if name in _JOINT:  # mimic joints have no place of their own in v; by its name each can be set all the same
        return Parameter(name, name, tuple(i for i in links if model.mimic[i] is None), (_width(model, name),))
    owner, _, kind = str(name).rpartition(".")
    if kind in _FRAME and owner in model.frame_names:
        return Parameter(name, kind, (_carrier(model, name, owner),), _FRAME_SHAPES[kind])
    i = _owner(model, str(name), owner, kind)
    count = _width(model, kind, i) if kind in _JOINT else 1
    return Parameter(name, kind, (i,), _LINK_SHAPES.get(kind, () if count == 1 else (count,)))


def _width(model: Model, kind: str, i: int | None = None) -> int:
    """How many numbers a joint has of this kind, or all independent joints together."""
    if kind == "spring_reference":
        return model.nq if i is None else model.joint[i].nq
    return model.nv if i is None else model.joint[i].nv


def _carrier(model: Model, name: str, frame: str) -> int:
    i = model.frame(frame).link
    if i == 0:
        raise UnknownNameError(f"robot {model.name!r} has no parameter {name!r}: {frame!r} is fixed to the world")
    return i


def _owner(model: Model, name: str, owner: str, kind: str) -> int:
    """The link that `owner` names, itself or by its joint, as the kind demands."""
    known = model.link_names if kind in _LINK else model.joint_names
    if kind in _LINK | _JOINT and owner in known[1:]:
        return known.index(owner)
    where_it_is = f"robot {model.name!r} has no parameter {name!r}: "
    if kind in _LINK and owner in model.joint_names[1:]:
        link = model.link_names[model.joint_index(owner)]
        raise UnknownNameError(f"{where_it_is}{owner!r} is a joint; take that of the link it moves, '{link}.{kind}'")
    if kind in _JOINT and owner in model.link_names[1:]:
        joint = model.joint_names[model.link_names.index(owner)]
        raise UnknownNameError(f"{where_it_is}{owner!r} is a link; take that of the joint that moves it, '{joint}.{kind}'")
    if kind in _LINK and owner in model.frame_names:
        i = model.frame(owner).link
        if i == 0:
            raise UnknownNameError(f"{where_it_is}{owner!r} is fixed to the world and does not move")
        link = model.link_names[i]
        raise UnknownNameError(f"{where_it_is}{owner!r} is fixed to link {link!r} and part of it; take '{link}.{kind}'")
    known = model.frame_names if kind in _FRAME else known
    own = [f"{x}.{kind}" for x in known[1:]] if kind in _LINK | _JOINT | _FRAME else []
    every = own or [*_SETS, *(f"{x}.{k}" for x in model.link_names[1:] for k in _LINK)]
    raise unknown("parameter", name, every, f"robot {model.name!r}")


# ---- values ----------------------------------------------------------------------------------------------------------


def current(model: Model, name: str) -> NDArray[Any]:
    """What a parameter is in the model."""
    (p,) = parameters(model, (name,))
    if p.is_payload:
        return np.zeros(p.shape)  # what is there already is the link's
    return np.array([x for i in p.links for x in _numbers(model, p.kind, i)], dtype=float).reshape(p.shape)


def _numbers(model: Model, kind: str, i: int) -> Sequence[Scalar]:
    """The numbers of one link, joint or the world."""
    if kind == "gravity":
        return model.gravity
    if kind in _JOINT:
        table: tuple[Vector, ...] = getattr(model, kind)
        return table[i]
    T = model.placement[i]
    match kind:
        case "inertia":
            return numbers_of(model.inertia[i])
        case "mass":
            return (model.inertia[i].m,)
        case "com":
            return _center(model.inertia[i])
        case "position":
            return T.p
    return [x for row, p in zip(T.R.rows, T.p, strict=True) for x in (*row, p)] + [0.0, 0.0, 0.0, 1.0]


def numbers_of(G: Inertia) -> tuple[Scalar, ...]:
    """The ten numbers of an inertia."""
    (xx, xy, xz), (_, yy, yz), (_, _, zz) = G.I
    return (G.m, *G.h, xx, xy, yy, xz, yz, zz)


def inertia_of(ten: Sequence[Scalar]) -> Inertia:
    """The inertia that these ten numbers are."""
    m, x, y, z, xx, xy, yy, xz, yz, zz = ten
    return Inertia(m, (x, y, z), ((xx, xy, xz), (xy, yy, yz), (xz, yz, zz)))


def substitute(model: Model, chosen: Sequence[Parameter], values: Sequence[Any]) -> Model:
    """The model with these values, which may be any scalars. Nothing is checked but that rotations are some."""
    if not chosen:
        return model
    new: dict[str, dict[int, tuple[Scalar, ...]]] = {}
    loads: dict[str, dict[str, tuple[Scalar, ...]]] = {}
    for p, value in zip(chosen, values, strict=True):
        flat, first = np.asarray(value).reshape(-1).tolist(), 0
        if p.is_payload:
            loads.setdefault(p.owner, {})[p.kind] = tuple(flat)
            continue
        for i in p.links:
            size = _width(model, p.kind, i) if p.kind in _JOINT else prod(_LINK_SHAPES.get(p.kind, (3,)))
            new.setdefault(p.kind, {})[i] = tuple(flat[first : first + size])
            first += size
    fields: dict[str, Any] = {}
    for kind in _JOINT.keys() & new.keys():
        table = list(getattr(model, kind))
        for i, x in new[kind].items():
            table[i] = Vector(x)
        fields[kind] = tuple(table)
    if "gravity" in new:
        fields["gravity"] = new["gravity"][0]
    inertia, placement = list(model.inertia), list(model.placement)
    for i, _ in model.outward():
        own = {kind: x[i] for kind, x in new.items() if kind in _LINK and i in x}
        inertia[i] = _inertia(model.inertia[i], own)
        for frame in (model.frame(name) for name in loads):
            if frame.link == i:
                inertia[i] = inertia[i] + transform_inertia(frame.placement, _load(loads[frame.name]))
        mark(tuple(inertia[i]), "inertia", i)
        placement[i] = _placement(model.placement[i], own)
        mark((placement[i].R.rows, placement[i].p), "placement", i)
    return replace(model, inertia=tuple(inertia), placement=tuple(placement), **fields)


def _inertia(G: Inertia, own: Mapping[str, tuple[Scalar, ...]]) -> Inertia:
    if "inertia" in own:
        return inertia_of(own["inertia"])
    if not own.keys() & {"mass", "com"}:
        return G
    c = _center(G)
    I_c = mat_sub(G.I, _offset(G.m, c))
    ((m,), (x, y, z)) = own.get("mass", (G.m,)), own.get("com", c)
    return Inertia(m, scale(m, (x, y, z)), mat_add(I_c, _offset(m, (x, y, z))))


def _load(own: Mapping[str, tuple[Scalar, ...]]) -> Inertia:
    """What a frame carries besides; a part that is not given is zero."""
    if "payload" in own:
        return inertia_of(own["payload"])
    nothing = (0.0, 0.0, 0.0)
    ((m,), (x, y, z)) = own.get("payload_mass", (0.0,)), own.get("payload_com", nothing)
    xx, xy, xz, yy, yz, zz = own.get("payload_inertia", (*nothing, *nothing))
    I_c = ((xx, xy, xz), (xy, yy, yz), (xz, yz, zz))
    return Inertia(m, scale(m, (x, y, z)), mat_add(I_c, _offset(m, (x, y, z))))


def _center(G: Inertia) -> Vec:
    """The centre of mass; the origin where there is no mass."""
    return scale(1.0 / G.m, G.h) if G.m != 0.0 else (0.0, 0.0, 0.0)


def _offset(m: Scalar, c: Vec) -> Mat:
    """m (c·c 1 - c cᵀ): what the distance of the centre of mass adds to the second moment, Kim (22)."""
    (x, y, z), (xy, xz, yz) = c, (-m * (c[0] * c[1]), -m * (c[0] * c[2]), -m * (c[1] * c[2]))
    return ((m * (y * y + z * z), xy, xz), (xy, m * (x * x + z * z), yz), (xz, yz, m * (x * x + y * y)))


def _placement(T: Transform, own: Mapping[str, tuple[Scalar, ...]]) -> Transform:
    if "placement" in own:
        a, b, c, x, d, e, f, y, g, h, i, z, *_ = own["placement"]
        return Transform(_checked_rotation((a, b, c), (d, e, f), (g, h, i)), (x, y, z))
    return Transform(T.R, own["position"]) if "position" in own else T


def _checked_rotation(x: Vec, y: Vec, z: Vec) -> Rotation:
    """The rotation with these rows; what is no rotation gives NaN, not a wrong number."""
    off = sub(cross(x, y), z)
    xx, xy, yy = dot(x, x) - 1.0, dot(x, y), dot(y, y) - 1.0
    ok = less(dot(off, off) + (xx * xx + xy * xy + yy * yy), ROTATION_TOLERANCE**2)
    return Rotation((x, y, (where(ok, z[0], math.nan), where(ok, z[1], math.nan), where(ok, z[2], math.nan))))


# ---- a model of its own ----------------------------------------------------------------------------------------------


def with_values(model: Model, values: Mapping[str, Any], allow_unphysical: bool = False) -> Model:
    """The model with these numbers, checked as `Builder` does. Inertias that stay as they were are not judged again."""
    if not isinstance(values, Mapping):
        raise InputError(f"parameters are given as {shown(values)}; give names and values, such as {{'link3.mass': 1.2}}")
    chosen = parameters(model, values)
    arrays = [_checked(model, p, values[p.name]) for p in chosen]
    made = substitute(model, chosen, arrays)
    kinds = {i: {p.kind for p in chosen if i in p.links} for i in range(len(model.parent))}
    placement, findings = list(made.placement), list(model.findings)

    def find(*facts: str) -> None:
        findings.append(Finding(*facts))

    for i, _ in model.outward():
        link, joint = f"link {model.link_names[i]!r}", f"joint {model.joint_names[i]!r}"
        if kinds[i] & {"placement", "position"}:
            placement[i] = rigid(made.placement[i], link, "")
        if kinds[i] & ({"inertia", "mass", "com"} | _FRAME.keys()):
            kept = not kinds[i] & ({"inertia"} | _FRAME.keys()) or made.inertia[i] == model.inertia[i]
            check_body(made.inertia[i], link, "", find, allow_unphysical=allow_unphysical, mass_only=kept)
        for kind in sorted(kinds[i] & _JOINT.keys() - {"spring_reference"}):
            given = list(getattr(made, kind)[i])
            if min(given) < 0.0:
                raise ModelError(message("", joint, f"{kind} is {given}", "give finite numbers of zero or more"))
        if "stiffness" in kinds[i]:
            check_springs(model.joint[i], made.stiffness[i], joint, "")
    return replace(made, placement=tuple(placement), findings=tuple(findings))


def _checked(model: Model, p: Parameter, value: Any) -> NDArray[Any]:
    """Finite floats of the parameter's shape."""
    flat = numbers(value, None, p.name)
    if np.shape(value) != p.shape:
        raise InputError(f"{p.name} has shape {np.shape(value)}; it must be {p.shape}")
    array = np.array(flat).reshape(p.shape)
    if p.kind == "placement":
        for i, T in zip(p.links, array.reshape(-1, 4, 4).tolist(), strict=True):
            element = f"link {model.link_names[i]!r}"
            rows, shift = tuple(tuple(row[:3]) for row in T[:3]), tuple(row[3] for row in T[:3])
            rigid(Transform(Rotation(rows), shift), element, "")  # type: ignore[arg-type]
            if T[3] != [0.0, 0.0, 0.0, 1.0]:
                raise ModelError(message("", element, f"the last row of its placement is {T[3]}", "give 0, 0, 0, 1"))
    return array


def check_body(
    G: Inertia, element: str, where: str, find: Find, *, allow_unphysical: bool, mass_only: bool = False
) -> None:
    """Judges an inertia about a link's origin as `Builder.link` does one about the centre of mass."""
    moved = _offset(G.m, _center(G))
    I_c = mat_sub(G.I, moved)
    check_mass(G.m, I_c, element, where, find)
    if G.m == 0.0 and any(G.h):
        raise ModelError(message(where, element, f"its first moment is {list(G.h)} and its mass zero", "give it a mass"))
    if not mass_only and np.isfinite(I_c).all():
        rounding = 1e-12 * (moved[0][0] + moved[1][1] + moved[2][2])
        check_inertia(I_c, element, where, find, allow_unphysical=allow_unphysical, rounding=rounding)
