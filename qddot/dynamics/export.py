"""A function of a robot as C99 for other people's compilers: its name, what its head says, and the files.

The code itself is the compiler's; here are the robot's words around it.
"""

from __future__ import annotations

import hashlib
import os
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, Unpack

from qddot.compiler.codegen import c99
from qddot.compiler.ir.fuse import fused
from qddot.compiler.runtime.c_compiler import Measured, find, measure
from qddot.dynamics import catalogue
from qddot.dynamics.choose import Choice, cheapest
from qddot.errors import FileError, InputError, KernelTooLargeError, message
from qddot.formats.atomic import replacing
from qddot.mechanism.model import Model

MOST_OPERATIONS = 30_000  # GCC 12 takes 18 s for a function of 18,700, 50 s for one of 28,500


class CSource(NamedTuple):
    """A C file with its header, which is empty for the inline form, and what is known of it."""

    name: str
    source: str
    header: str
    method: str
    operations: dict[str, int]
    stack_bytes: int | None
    code_bytes: int | None
    compiler: str


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


class COptions(TypedDict, total=False):
    """The options of `c_source`.

    `method` and `dtype` as for kernels, and so are `frame`, `prescribed`, `rows` and `by`, resolved. `sincos` is "own",
    for the bits of the kernel, or "libm". Without `fma` products and sums are rounded apart. `inline` gives a header with
    a `static inline` function. `name` is the C function's. `cc` and `cflags` name the compiler that measures stack and code
    size; None takes the one of the machine, an empty string none.
    """

    method: str
    dtype: str
    frame: str | None
    prescribed: Sequence[int] | None
    rows: Sequence[int] | None
    by: Sequence[object] | None
    sincos: str
    fma: bool
    inline: bool
    name: str | None
    cc: str | None
    cflags: str


@dataclass(frozen=True)
class _Code:
    """One function of one robot, to be written in C."""

    model: Model
    function: str
    choice: Choice
    static: dict[str, Any]
    name: str
    dtype: str
    own_sincos: bool
    fma: bool

    @property
    def about(self) -> About:
        return ABOUT.get(self.function, About("out", "the result", ""))

    @property
    def shape(self) -> tuple[int, ...]:
        return catalogue.lookup(self.function, self.choice.method)[0].output(self.model)

    @property
    def output(self) -> c99.Array:
        return self.about.output, prod(self.shape)

    @property
    def inputs(self) -> list[c99.Array]:
        known = catalogue.lookup(self.function, self.choice.method)[0]
        return [(x, prod(s)) for x, s in zip(known.inputs, catalogue.input_shapes(self.model, known), strict=True)]

    def text(self, inline: bool) -> str:
        """The C function itself."""
        plain = self.choice.program

        def label(symbol: str, link: int) -> str:
            return "results" if symbol == "rest" else _comment(f"{self.model.link_names[link]}: {symbol}")

        return c99.render(
            fused(plain) if self.fma else plain,
            self.name,
            self.inputs,
            self.output,
            dtype=self.dtype,
            own_sincos=self.own_sincos,
            fma=self.fma,
            inline=inline,
            label=label,
        )

    def facts(self, measured: Measured | None, why: str) -> Iterator[tuple[str, str]]:
        """The lines of the comment above it."""
        model, method, output = self.model, self.choice.method, self.output
        of = (f"of {x!r}" for x in self.static.values())
        yield "robot", f"{model.name}: {model.n_links} moving links, nq = {model.nq}, nv = {model.nv}"
        yield "function", " ".join([self.function, *of, f"by {method}, {_precision(self.dtype)}"])
        yield "equation", self.about.equation
        yield from _arguments(model, self.inputs)
        overlap = _overlap(self.inputs, output)
        yield f"{output[0]}[{output[1]}]", f"{self.about.meaning}{_rows(self.shape)}; {overlap}"
        yield "operations", ", ".join(f"{n} {kind}" for kind, n in self.choice.program.count().items())
        yield "sincos", "polynomials of its own, libm's beyond 1e5 rad" if self.own_sincos else "libm's"
        stack = f"{_stack(measured)} ({measured.compiler}; {measured.flags})" if measured else f"not measured: {why}"
        yield "stack", stack
        has_size = measured is not None and measured.code is not None
        yield "code", f"{measured.code} bytes with constants" if measured and has_size else "not measured"


def c_source(model: Model, function: str, **options: Unpack[COptions]) -> CSource:
    """The C99 source of a function of a model."""
    if unknown := options.keys() - COptions.__annotations__.keys():
        raise TypeError(f"export got an unexpected keyword argument {min(unknown)!r}")
    code = _code(model, function, options)
    measured, why = _measured(code.text(inline=False), options.get("cc"), options.get("cflags", ""))
    head = "\n".join(_head(code.name, [f for f in code.facts(measured, why) if f[1]], code.fma))
    guard = f"QDDOT_{code.name}_H"
    if options.get("inline", False):
        source, header = f"{head}\n#ifndef {guard}\n#define {guard}\n\n{code.text(inline=True)}\n#endif\n", ""
    else:
        header = _prototype(guard, code.name, code.inputs, code.output, code.dtype)
        source = f"{head}\n{code.text(inline=False)}"
    stack = None if measured is None else measured.stack_bytes
    compiler = "" if measured is None else f"{measured.compiler}; {measured.flags}"
    size, operations = measured.code if measured else None, code.choice.program.count()
    return CSource(code.name, source, header, code.choice.method, operations, stack, size, compiler)


def _code(model: Model, function: str, options: COptions) -> _Code:
    sincos = options.get("sincos", "own")
    if sincos not in ("own", "libm"):
        raise InputError(f"sincos={sincos!r} is not known; take 'own' or 'libm'")
    frame, name = options.get("frame"), options.get("name")
    known = [("frame", frame), ("prescribed", options.get("prescribed")), ("rows", options.get("rows"))]
    static = {k: x for k, x in (*known, ("by", options.get("by"))) if x is not None}
    dtype, fma = options.get("dtype", "float64"), options.get("fma", True)
    choice = cheapest(model, function, options.get("method", "auto"), dtype=dtype, **static)
    count = len(choice.program.body)
    if count > MOST_OPERATIONS:
        raise KernelTooLargeError(
            f"{function} of {model.name!r} has {count:,} operations; C compilers take too long for a function of more than "
            f"{MOST_OPERATIONS:,}; export a part of the robot, or use the kernel"
        )
    called = _checked_name(name) if name is not None else c_name(model.name, function, *([] if frame is None else [frame]))
    return _Code(model, function, choice, static, called, dtype, sincos == "own", fma)


# ---- names ---------------------------------------------------------------------------------------------------------


def c_name(*parts: str) -> str:
    """A C identifier of several names. A part that has to be changed for it carries a digest of what it was."""
    return "_".join(map(_mangled, parts))


def _mangled(name: str) -> str:
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) and "__" not in name:
        return name
    plain = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")
    plain = plain if plain[:1].isalpha() else f"n{plain}"
    return f"{plain}_{hashlib.sha256(name.encode()).hexdigest()[:6]}"


_TAKEN = re.compile(
    "auto|break|case|char|const|continue|default|do|double|else|enum|extern|float|for|goto|if|inline|int|long|register|"
    "restrict|return|short|signed|sizeof|static|struct|switch|typedef|union|unsigned|void|volatile|while|main|"
    "(fma|sin|cos|sqrt|atan2|fabs)[fl]?|NAN|INFINITY|FLT_EVAL_METHOD"
)


def _checked_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) or _TAKEN.fullmatch(name):
        raise InputError(f"name={name!r} cannot be the name of a C function; take letters, digits and _, and no word of C")
    return name


# ---- the head ------------------------------------------------------------------------------------------------------


def _head(name: str, facts: Sequence[tuple[str, str]], fma: bool) -> Iterator[str]:
    from qddot.version import __version__

    width = max(len(key) for key, _ in facts) + 2
    yield f"/* {name}"
    yield " *"
    for key, text in facts:
        lines = textwrap.wrap(_comment(text), c99.WIDTH - 4 - width, break_on_hyphens=False)
        for k, line in enumerate(lines):
            yield f" * {key if k == 0 else '':<{width}}{line}"
    yield " *"
    yield f" * Written by qddot {__version__}. SI units. No allocation, no state: threads and interrupts may call it."
    yield " * A compiler must not contract or reassociate: -std=c99 or -ffp-contract=off, and never -ffast-math."
    if fma:
        yield " * Without an instruction for fma (-mfma on x86) it is a slow call of libm; export with --no-fma then."
    yield " */"


def _arguments(model: Model, inputs: Sequence[c99.Array]) -> Iterator[tuple[str, str]]:
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


def _overlap(inputs: Sequence[c99.Array], output: c99.Array) -> str:
    return "must not overlap an input" if c99.stores_early(inputs, output) else "may be one of the inputs"


def _precision(dtype: str) -> str:
    return "double precision" if dtype == "float64" else "single precision"


def _stack(measured: Measured) -> str:
    *helpers, own = measured.stack.values()
    parts = f" = {own} + {sum(helpers)} in its sine and cosine" if helpers else ""
    return f"{measured.stack_bytes} bytes{parts}, without libm's"


def _comment(text: str) -> str:
    """Text that neither ends a comment nor begins one, on one line, in ASCII."""
    text = " ".join(text.split()).encode("ascii", "backslashreplace").decode()
    text = re.sub(r"[\x00-\x1f\x7f]", " ", text)
    return re.sub(r"(?<=\*)(?=/)|(?<=/)(?=\*)", " ", text)


def _prototype(guard: str, name: str, inputs: Sequence[c99.Array], output: c99.Array, dtype: str) -> str:
    return (
        f"/* {name}: what it computes stands in its C file */\n#ifndef {guard}\n#define {guard}\n\n"
        f'#ifdef __cplusplus\nextern "C" {{\n#endif\n\n{c99.declaration(name, inputs, output, dtype)};\n\n'
        f"#ifdef __cplusplus\n}}\n#endif\n\n#endif\n"
    )


def _measured(source: str, compiler: str | None, flags: str) -> tuple[Measured | None, str]:
    """What the compiler says, or why it was not asked. A compiler that the caller chose must work."""
    command = find() if compiler is None else compiler
    if not command:
        return None, "no C compiler was found" if compiler is None else "no C compiler was asked"
    try:
        return measure(source, command, flags), ""
    except InputError as error:
        if compiler is not None or flags:
            raise
        return None, str(error)


# ---- files ---------------------------------------------------------------------------------------------------------


def write(exported: CSource, path: str | os.PathLike[str]) -> list[Path]:
    """Writes the C file and, beside it, its header; each in one step. Returns the files."""
    file = Path(path)
    files = {file: exported.source}
    if exported.header:
        header = file.with_suffix(".h")
        if header == file:
            raise InputError(f"{str(file)!r} is the name that the header gets; give the C file one that ends in .c")
        files[header] = exported.header
    for target, text in files.items():
        try:
            with replacing(target) as unfinished:
                unfinished.write_text(text, encoding="ascii")
        except OSError as error:
            problem = f"it cannot be written: {error.strerror or error}"
            raise FileError(message(str(target), "file", problem, "check the folder and its permissions")) from None
    return list(files)
