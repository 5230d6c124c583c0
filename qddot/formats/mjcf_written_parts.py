"""Parts of a model in the form that MJCF has for them: inertias, axes of joints, couplings, loops."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from qddot.formats.writer import Losses, element, free_name, numbers
from qddot.joints import Cylindrical, Fixed, Free, Joint, Prismatic, Revolute, Spherical, Translational
from qddot.joints.rotational import SphericalEuler, Universal
from qddot.mechanism.couplings import Coupling, Terms
from qddot.mechanism.model import Frame, Loop, Model
from qddot.spatial import Transform
from qddot.spatial.rotation import EYE, Mat, Rotation, Vec, rotation_quaternion

_MIN_VALUE = 1e-15  # of masses and moments of moving bodies: MuJoCo's mjMINVAL
_ROUNDING = 1e-12  # of the largest moment: by as much principal moments may miss the triangle inequality
_MAX_DEGREE = 4  # of a polynomial between joints


def inertial(mass: float, centre: Vec, moments: Mat) -> dict[str, str] | str:
    """The attributes of <inertial>, or why MuJoCo would not take them of a moving body."""
    I = np.array(moments, dtype=float)
    if mass <= _MIN_VALUE:
        return f"its mass is {mass:g}"
    found = {"pos": numbers(centre), "mass": numbers([mass])}
    principal, axes = np.diagonal(I).copy(), np.eye(3)
    if np.any(I - np.diag(principal)):
        principal, axes = np.linalg.eigh(I)
        axes = axes * np.sign(np.linalg.det(axes))
        rows = Rotation(tuple(tuple(row) for row in axes.tolist()))  # type: ignore[arg-type]
        x, y, z, w = rotation_quaternion(rows)
        found["quat"] = numbers((w, x, y, z))
    if principal.min() <= _MIN_VALUE:
        return f"its principal moments are {', '.join(f'{x:.4g}' for x in sorted(principal))}"
    most = int(np.argmax(principal))
    others = principal[(most + 1) % 3] + principal[(most + 2) % 3]
    if others < principal[most] * (1.0 - _ROUNDING):
        shown = ", ".join(f"{x:.4g}" for x in sorted(principal))
        return f"its principal moments {shown} violate the triangle inequality"
    principal[most] = min(principal[most], others)
    return {**found, "diaginertia": numbers(principal)}


# ---- joints --------------------------------------------------------------------------------------------------------


class Axis(NamedTuple):
    """A joint of MJCF: its name, its type, and its direction where it has one."""

    name: str
    kind: str
    direction: Vec | None = None


def axes_of(joint: Joint, name: str) -> list[Axis]:
    """The joints of MJCF, outermost first, that move as this one does with the same q and v; none where there are none."""
    if isinstance(joint, Revolute):
        return [Axis(name, "hinge", joint.axis)]
    if isinstance(joint, Prismatic):
        return [Axis(name, "slide", joint.axis)]
    if isinstance(joint, Spherical):
        return [Axis(name, "ball")]
    if isinstance(joint, Free):
        return [Axis(name, "free")]
    if isinstance(joint, Cylindrical):
        return [Axis(f"{name}/turn", "hinge", joint.axis), Axis(f"{name}/travel", "slide", joint.axis)]
    if isinstance(joint, Translational):
        return [Axis(f"{name}/{k}", "slide", e) for k, e in zip("xyz", EYE, strict=True)]
    if isinstance(joint, Universal | SphericalEuler):
        return [Axis(f"{name}/{k}", "hinge", a) for k, a in enumerate(joint.axes, 1)]
    return []


# ---- couplings -----------------------------------------------------------------------------------------------------


def couplings(model: Model, losses: Losses) -> tuple[list[str], list[str]]:
    """Fixed tendons, and equalities between joints or between tendons, for the constraints of a model."""
    names = {slot.q.start: name for name, slot in zip(model.joint_names, model.slots, strict=True) if slot.factor is None}
    tendons: list[str] = []
    equalities: list[str] = []
    for constraint in model.constraints:
        coupling, owner = constraint.position, f"constraint {constraint.name!r}"
        if not isinstance(coupling, Coupling):
            losses.lose(owner, "it is a function of its user's own")
            continue
        if len(coupling.polynomial) > _MAX_DEGREE + 1:
            losses.lose(owner, f"its polynomial has the degree {len(coupling.polynomial) - 1}")
            continue
        name = losses.name(constraint.name, owner)
        if len(coupling.left) == 1 and len(coupling.right) <= 1:
            equalities.append(_between_joints(name, coupling, names))
            continue
        sides = {"tendon1": (f"{name}/left", coupling.left), "tendon2": (f"{name}/right", coupling.right)}
        ends = {}
        for key, (tendon, terms) in sides.items():
            if terms:
                ends[key] = tendon
                tendons += _tendon(tendon, terms, names)
        coefficients = _expanded(coupling, 1.0, 1.0)
        equalities.append(element("tendon", {"name": name, **ends, "polycoef": numbers(coefficients)}))
    return tendons, equalities


def _between_joints(name: str, coupling: Coupling, names: dict[int, str]) -> str:
    (y, k), right = coupling.left[0], coupling.right
    ends = {"joint1": names[y], **({"joint2": names[right[0][0]]} if right else {})}
    factor = right[0][1] if right else 0.0
    return element("joint", {"name": name, **ends, "polycoef": numbers(_expanded(coupling, k, factor))})


def _tendon(name: str, terms: Terms, names: dict[int, str]) -> list[str]:
    inside = (f"  {element('joint', {'joint': names[at], 'coef': numbers([k])})}" for at, k in terms)
    return [element("fixed", {"name": name}, is_open=True), *inside, "</fixed>"]


def _expanded(coupling: Coupling, k: float, factor: float) -> list[float]:
    """The coefficients of p(factor x - reference) / k in powers of x."""
    out = [0.0] * (_MAX_DEGREE + 1)
    for n, c in enumerate(coupling.polynomial):
        for j in range(n + 1):
            out[j] += c * math.comb(n, j) * factor**j * (-coupling.reference) ** (n - j) / k
    return out


# ---- loops ---------------------------------------------------------------------------------------------------------


class Loops:
    """The loops that MJCF has, between sites: frames of the model where they stand at the right place, or added ones."""

    def __init__(self, model: Model, losses: Losses) -> None:
        self.added: dict[int, list[Frame]] = {}
        self._lines: list[str] = []
        self._model, self._taken = model, set(model.frame_names)
        self._names = {loop.name for loop in model.loops} | {c.name for c in model.constraints}
        for loop in model.loops:
            owner = f"loop {loop.name!r}"
            if not isinstance(loop.joint, Spherical | Fixed | Revolute):
                losses.lose(owner, f"it is closed by a {loop.joint.kind} joint")
                continue
            before = len(self._taken)
            self._hold(losses.name(loop.name, owner), loop, "weld" if isinstance(loop.joint, Fixed) else "connect")
            if isinstance(loop.joint, Revolute):
                along = Transform(p=loop.joint.axis)
                a, b = loop.placement_a @ along, loop.placement_b @ along
                self._hold(
                    free_name(f"{loop.name}/axis", self._names), loop._replace(placement_a=a, placement_b=b), "connect"
                )
                losses.note(owner, "MJCF closes no loops by a revolute joint", "two points on its axis are held")
            if len(self._taken) > before:
                losses.note(owner, "MJCF closes loops between sites", "sites were added, which are read as frames")

    def _hold(self, name: str, loop: Loop, tag: str) -> None:
        a = self._site(f"{name}/a", loop.link_a, loop.placement_a)
        b = self._site(f"{name}/b", loop.link_b, loop.placement_b)
        self._lines.append(element(tag, {"name": name, "site1": a, "site2": b}))

    def equalities(self) -> list[str]:
        """The lines of <equality>."""
        return self._lines

    def _site(self, wanted: str, link: int, T: Transform) -> str:
        for f in self._model.frames:
            if f.link == link and f.placement.R.rows == T.R.rows and f.placement.p == T.p:
                return f.name
        site = Frame(free_name(wanted, self._taken), link, T)
        self.added.setdefault(link, []).append(site)
        return site.name
