"""A function of a robot in other people's programs: its name there, its arguments and their units, what it computes.

Exports in source code and in machine code say the same of a function.
"""

from __future__ import annotations

import hashlib
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from qddot.compiler.codegen.printer import WIDTH, Array, Language
from qddot.dynamics import catalogue
from qddot.errors import InputError
from qddot.mechanism.model import Model


class About(NamedTuple):
    """What a function's result is called in C, what it is, and the equation that defines it."""

    output: str
    meaning: str
    equation: str


_MOTION = "M(q) a + bias(q, v) = tau + passive(q, v)"
_TWIST = "angular then linear, in the frame's own coordinates"
ABOUT: dict[str, About] = {
    "inverse_dynamics": About("tau", "joint forces, N m or N, in the order of v", _MOTION),
    "inverse_dynamics_with_forces": About("tau", "joint forces, N m or N, in the order of v", f"{_MOTION} + J^T f_ext"),
    "forward_dynamics": About("a", "accelerations, in the order of v", _MOTION),
    "forward_dynamics_with_forces": About("a", "accelerations, in the order of v", f"{_MOTION} + J^T f_ext"),
    "mass_matrix": About("M", "M(q), rotor inertias included", _MOTION),
    "mass_matrix_inverse": About("M_inv", "the inverse of M(q)", _MOTION),
    "bias_force": About("bias", "Coriolis, centrifugal and gravity forces", _MOTION),
    "gravity_force": About("gravity", "the joint forces that balance gravity", "gravity(q) = bias(q, 0)"),
    "passive_force": About("passive", "what joint damping, friction and springs exert", _MOTION),
    "coriolis_matrix": About("C", "the matrix of Coriolis forces", "C(q, v) v + gravity(q) = bias(q, v), dM/dt - 2 C skew"),
    "forward_kinematics": About("T", "the pose of every moving link in the world", "x_world = T x_link"),
    "pose": About("T", "the pose of the frame in the world", "x_world = T x_frame"),
    "velocity": About("V", f"the twist of the frame, {_TWIST}", "V = J v"),
    "acceleration": About(
        "Vdot", f"the derivative of the frame's twist, {_TWIST}; gravity is not in it", "Vdot = d(J v)/dt"
    ),
    "jacobian": About("J", f"the body Jacobian of the frame, rows {_TWIST}", "V = J v"),
    "jacobian_derivative": About("Jdot", "the derivative of the body Jacobian", "Vdot = J a + Jdot v"),
    "kinetic_energy": About("energy", "kinetic energy, J", "energy = v^T M(q) v / 2"),
    "potential_energy": About("energy", "potential energy of gravity and springs, J", ""),
    "center_of_mass": About("center", "the centre of mass in the world, m", ""),
    "momentum": About("h", "angular momentum about the centre of mass, linear momentum, in the world's axes", "h = A v"),
    "centroidal_momentum_matrix": About("A", "the centroidal momentum matrix", "momentum = A v"),
    "external_force_jacobian": About("J_T", "the joint forces of a unit force on each link", "tau = J^T f_ext"),
}


@dataclass(frozen=True)
class ExportedFunction:
    """One function of one robot under a name of its own."""

    model: Model
    function: str
    method: str
    static: Mapping[str, Any]
    name: str
    dtype: str

    @property
    def about(self) -> About:
        """What is known of its result."""
        return ABOUT.get(self.function, About("out", "the result", ""))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of its result."""
        return self._known.output(self.model)

    @property
    def output(self) -> Array:
        """The argument that takes the result."""
        return self.about.output, prod(self.shape)

    @property
    def inputs(self) -> list[Array]:
        """The other arguments."""
        return [(x, prod(s)) for x, s in zip(self._known.inputs, self.input_shapes, strict=True)]

    @property
    def input_shapes(self) -> list[tuple[int, ...]]:
        """Of one state."""
        return catalogue.input_shapes(self.model, self._known)

    @property
    def _known(self) -> catalogue.Function:
        return catalogue.lookup(self.function, self.method)[0]

    def facts(self, overlap: str) -> Iterator[tuple[str, str]]:
        """What its head says; `overlap` is what the result may overlap."""
        model, output = self.model, self.output
        of = (f"of {x!r}" for x in self.static.values())
        precision = "double precision" if self.dtype == "float64" else "single precision"
        yield "robot", f"{model.name}: {model.n_links} moving links, nq = {model.nq}, nv = {model.nv}"
        yield "function", " ".join([self.function, *of, f"by {self.method}, {precision}"])
        yield "equation", self.about.equation
        yield from _arguments(model, self.inputs)
        yield f"{output[0]}[{output[1]}]", f"{self.about.meaning}{_rows(self.shape)}; {overlap}"


def table(facts: Iterable[tuple[str, str]], language: Language) -> list[str]:
    """Facts as lines of a comment, in two columns."""
    known = [(key, text) for key, text in facts if text]
    width, lines = max(len(key) for key, _ in known) + 2, list[str]()
    for key, text in known:
        parts = textwrap.wrap(language.escaped(text), WIDTH - 4 - width, break_on_hyphens=False)
        lines += [f"{key if k == 0 else '':<{width}}{part}" for k, part in enumerate(parts)]
    return lines


def _arguments(model: Model, inputs: Sequence[Array]) -> Iterator[tuple[str, str]]:
    own = [i for i, _ in model.outward() if model.mimic[i] is None and model.joint[i].nq]
    compound = any(model.joint[i].velocity_text for i in own)

    def listed(which: int) -> str:
        return ", ".join(f"{model.joint_names[i]} ({_units(model, i)[which]})" for i in own)

    for name, n in inputs:
        text = {
            "q": listed(0),
            "v": listed(1) if compound else "velocities, in the order of q",
            "a": "accelerations, in the order of v",
            "tau": "joint forces, N m or N, in the order of v",
            "df_ext_dp": "the slope of f_ext by the scalar p",
            "f_ext": "what acts on each link in its own frame, moment N m then force N: " + ", ".join(model.link_names[1:]),
        }.get(name, "")
        yield f"{name}[{n}]", text


def _units(model: Model, i: int) -> tuple[str, str]:
    joint = model.joint[i]
    unit = joint.coordinate_units[0]
    return joint.coordinate_text or unit, joint.velocity_text or f"{unit}/s"


def _rows(shape: tuple[int, ...]) -> str:
    return f", {' x '.join(map(str, shape))} row by row" if len(shape) > 1 else ""


# ---- names ---------------------------------------------------------------------------------------------------------


def identifier(*parts: str) -> str:
    """An identifier of several names. A part that has to be changed for it carries a digest of what it was."""
    return "_".join(map(_mangled, parts))


def _mangled(name: str) -> str:
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) and "__" not in name:
        return name
    plain = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")
    plain = plain if plain[:1].isalpha() else f"n{plain}"
    return f"{plain}_{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def checked_name(name: str, language: Language) -> str:
    """A name that the user chose, if a function can have it."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) or language.reserved.fullmatch(name):
        raise InputError(
            f"name={name!r} cannot be the name of a {language.name} function; take letters, digits and _, and no word of "
            f"{language.name}"
        )
    return name
