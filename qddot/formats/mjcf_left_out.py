"""What an MJCF file has and qddot does not compute: fluids, gravity compensation, plugins, tendons, flexes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol


class Translation(Protocol):
    """What is asked of the translation of a compiled model."""

    m: Any
    bodies: list[str]

    def names(self, kind: str, count: int) -> list[str]:
        """The names of a table's rows."""
        ...

    def find(self, severity: str, kind: str, i: int, element: str, problem: str, fix: str) -> None:
        """Reports a finding."""
        ...


def find_left_out(t: Translation) -> None:
    """A finding for each thing that is left out."""
    m = t.m

    def warn(element: str, problem: str, fix: str) -> None:
        t.find("warning", "file", 0, element, problem, fix)

    if m.opt.density or m.opt.viscosity:
        problem = f"density {m.opt.density:g}, viscosity {m.opt.viscosity:g}: the forces of the fluid are left out"
        warn("<option>", problem, "set both to zero, or add the forces as f_ext")
    for body, name in enumerate(t.bodies):
        if m.body_gravcomp[body]:
            problem = f"gravcomp {m.body_gravcomp[body]:g} is left out: gravity acts on it in full"
            t.find("warning", "body", body, f"body {name!r}", problem, "remove it, or add the force as f_ext")
        if m.body_plugin[body] >= 0:
            problem = "the forces of its plugin are left out"
            t.find("warning", "body", body, f"body {name!r}", problem, "remove it, or add the forces as f_ext")
    for tendon, name in enumerate(t.names("tendon", m.ntendon)):
        has = [f"{what} {value}" for what, value in _tendon_forces(m, tendon)]
        if has:
            warn(f"tendon {name!r}", f"{', '.join(has)}: left out", "remove the tendon, or add its force to tau")
        if m.tendon_limited[tendon]:
            problem = f"its limits {m.tendon_range[tendon].tolist()} are left out"
            t.find("note", "file", 0, f"tendon {name!r}", problem, "an <equality> couples joints exactly")
    for name in t.names("flex", m.nflex):
        warn(f"flex {name!r}", "its elastic forces are left out", "remove it, or add the forces as f_ext")


def _tendon_forces(m: Any, tendon: int) -> Iterator[tuple[str, Any]]:
    for what in ("stiffness", "damping", "armature", "frictionloss", "stiffnesspoly", "dampingpoly"):
        values = getattr(m, f"tendon_{what}", None)
        if values is not None and values[tendon].any():
            yield what, values[tendon].tolist()
    actuator = int(m.tendon_actuatorid[tendon]) if hasattr(m, "tendon_actuatorid") else -1
    for what in ("damping", "armature"):
        if actuator >= 0 and getattr(m, f"actuator_{what}")[actuator]:
            yield f"its actuator's {what}", float(getattr(m, f"actuator_{what}")[actuator])
