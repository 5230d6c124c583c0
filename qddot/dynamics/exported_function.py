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
from qddot.dynamics.function import Function as FunctionRow
from qddot.errors import InputError
from qddot.mechanism import parameters
from qddot.mechanism.model import Model


class About(NamedTuple):
    """What a function's result is called in C, what it is, and the equation that defines it."""

    output: str
    meaning: str
    equation: str


_MOTION = "M(q) a + bias(q, v) = tau + passive(q, v)"
_TWIST = "angular then linear, in the frame's own coordinates"
_TASK = "Lambda Vdot + mu = F, Lambda = (J M(q)^-1 J^T)^-1"
_OF_TASK = f"the chosen rows {_TWIST}; NaN where these depend on each other"
_HYBRID = "accelerations, then joint forces, both complete"
_CLOSED = "M(q) a + bias(q, v) = tau + passive(q, v) + A^T lambda, A(q) a + dA/dt v = 0"
_MULTIPLIERS = (
    "constraint forces lambda (0 for rows that are not kept), how nearly the kept rows depend on each other, and the sums "
    "of squares of phi(q) and of A v, which are 0 on closed loops"
)
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
    "hybrid_dynamics": About("both", _HYBRID, _MOTION),
    "hybrid_dynamics_with_forces": About("both", _HYBRID, f"{_MOTION} + J^T f_ext"),
    "operational_space_inertia": About("Lambda", f"the inertia that a force on the frame feels, {_OF_TASK}", _TASK),
    "operational_space_bias_force": About("mu", f"the force that holds the frame's Vdot at 0, {_OF_TASK}", _TASK),
    "dynamically_consistent_inverse": About(
        "J_bar", f"the dynamically consistent inverse of J, {_OF_TASK}", "J_bar = M(q)^-1 J^T Lambda"
    ),
    "null_space_projector": About(
        "N", f"the projector on what does not move the frame, {_OF_TASK}", "N = 1 - J_bar J, J N = 0"
    ),
    "external_force_jacobian": About("J_T", "the joint forces of a unit force on each link", "tau = J^T f_ext"),
    "constraint_residual": About(
        "phi", "what each row of the constraints is off by, m or rad", "phi(q) = 0 on closed loops"
    ),
    "constraint_jacobian": About("A", "the Jacobian of the constraints", "A(q) v = 0 on closed loops"),
    "constraint_bias": About("c", "what the velocity adds to A a", "A(q) a + c(q, v) = 0"),
    "loop_joint_forces": About("tau", "the joint forces of forces in the joints that close the loops", ""),
    "constrained_forward_dynamics": About("a_lambda", f"accelerations, {_MULTIPLIERS}", _CLOSED),
    "constrained_forward_dynamics_with_forces": About(
        "a_lambda", f"accelerations, {_MULTIPLIERS}", _CLOSED.replace("= 0", "= -k_d A v - k_p phi(q)")
    ),
    "constrained_hybrid_dynamics": About("both", f"{_HYBRID}, {_MULTIPLIERS}", _CLOSED),
    "constrained_hybrid_dynamics_with_forces": About("both", f"{_HYBRID}, {_MULTIPLIERS}", _CLOSED),
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
    free: tuple[str, ...] = ()
    dependence_limit: float | None = None  # up to which the kept rows of constraints are taken to be independent

    @property
    def about(self) -> About:
        """What is known of its result."""
        return ABOUT.get(self.function, About("out", "the result", ""))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of its result."""
        return self._known.shape(self.model, self.static)

    @property
    def outputs(self) -> list[Array]:
        """The argument that takes the result."""
        return [(self.about.output, prod(self.shape))]

    @property
    def input_names(self) -> tuple[str, ...]:
        """As Python knows them, the free parameters last."""
        return (*self._known.inputs, *self.free)

    @property
    def inputs(self) -> list[Array]:
        """The other arguments."""
        names = [*self._known.inputs, *map(parameter_argument, self.free)]
        return [(x, prod(s)) for x, s in zip(names, self.input_shapes, strict=True)]

    @property
    def input_shapes(self) -> list[tuple[int, ...]]:
        """Of one state, and of the free parameters."""
        return catalogue.input_shapes(self.model, self._known, self.free)

    @property
    def _known(self) -> FunctionRow:
        return catalogue.lookup(self.function, self.method)[0]

    @property
    def title(self) -> str:
        """The function, what it is for, and how it is computed."""
        chosen = [_chosen(self.model, option, self.static) for option in self.static]
        return " ".join([self.function, *filter(None, chosen), f"by {self.method}"])

    @property
    def result(self) -> str:
        """What its head says of the result."""
        limit = self.dependence_limit
        only = "" if limit is None else f"; use it only if its third number from the end is from 0 to {limit:.2g}"
        return f"{self.about.meaning}{_rows(self.shape)}{only}"

    def facts(self, overlap: str) -> Iterator[tuple[str, str]]:
        """What its head says; `overlap` is what the result may overlap."""
        ((output, size),) = self.outputs
        yield "robot", robot_text(self.model)
        yield "function", f"{self.title}, {precision(self.dtype)}"
        yield "equation", self.about.equation
        yield from argument_facts(self.model, self.inputs, self.free)
        yield f"{output}[{size}]", f"{self.result}; {overlap}"


def robot_text(model: Model) -> str:
    """The robot and its size."""
    return f"{model.name}: {model.n_links} moving links, nq = {model.nq}, nv = {model.nv}"


def precision(dtype: str) -> str:
    """The type of numbers in words."""
    return "double precision" if dtype == "float64" else "single precision"


def _chosen(model: Model, option: str, static: Mapping[str, Any]) -> str:
    """What a function was exported for."""
    value = static[option]
    if option == "prescribed":
        own = [i for i, _ in model.outward() if model.mimic[i] is None]
        names = {k: model.joint_names[i] for i in own for k in range(model.nv)[model.slots[i].v]}
        return f"with prescribed accelerations of {', '.join(dict.fromkeys(names[k] for k in value))}"
    if option == "rows" and "frame" in static:
        return "" if [*value] == [*range(6)] else f"rows {', '.join(map(str, value))}"
    if option == "rows":
        return f"that keeps the rows {', '.join(map(str, value))} of the constraints"
    return f"of {value!r}"


def table(facts: Iterable[tuple[str, str]], language: Language) -> list[str]:
    """Facts as lines of a comment, in two columns."""
    known = [(key, text) for key, text in facts if text]
    width, lines = max(len(key) for key, _ in known) + 2, list[str]()
    for key, text in known:
        parts = textwrap.wrap(language.escaped(text), WIDTH - 4 - width, break_on_hyphens=False)
        lines += [f"{key if k == 0 else '':<{width}}{part}" for k, part in enumerate(parts)]
    return lines


def argument_facts(model: Model, inputs: Sequence[Array], free: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """What the inputs are; free parameters are the last of them."""
    own = [i for i, _ in model.outward() if model.mimic[i] is None and model.joint[i].nq]
    compound = any(model.joint[i].velocity_text for i in own)

    def listed(which: int) -> str:
        return ", ".join(f"{model.joint_names[i]} ({_units(model, i)[which]})" for i in own)

    for name, n in inputs[: len(inputs) - len(free)]:
        text = {
            "q": listed(0),
            "v": listed(1) if compound else "velocities, in the order of q",
            "a": "accelerations, in the order of v",
            "tau": "joint forces, N m or N, in the order of v",
            "df_ext_dp": "the slope of f_ext by the scalar p",
            "f_ext": "what acts on each link in its own frame, moment N m then force N: " + ", ".join(model.link_names[1:]),
            "gains": "k_p and k_d of Baumgarte's stabilisation; 0, 0 for none",
            "tau_loops": "forces in the joints that close the loops: " + ", ".join(loop.name for loop in model.loops),
        }.get(name, "")
        yield f"{name}[{n}]", text
    for (name, n), parameter in zip(inputs[len(inputs) - len(free) :], parameters.parameters(model, free), strict=True):
        yield f"{name}[{n}]", f"free parameter {parameter.name}: {parameters.DESCRIPTIONS[parameter.kind]}"


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


def parameter_argument(name: str) -> str:
    """The argument of a free parameter: `link3_mass` of link3.mass."""
    owner, _, kind = name.rpartition(".")
    if not owner:
        return "gravity_vector" if kind == "gravity" else kind  # `gravity` is a result
    mangled = _mangled(owner)
    return f"n{mangled}_{kind}" if mangled.startswith(("sin_", "cos_")) else f"{mangled}_{kind}"


def checked_name(name: str, language: Language) -> str:
    """A name that the user chose, if a function can have it."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) or language.reserved.fullmatch(name):
        raise InputError(
            f"name={name!r} cannot be the name of a {language.name} function; take letters, digits and _, and no word of "
            f"{language.name}"
        )
    return name
