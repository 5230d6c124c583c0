"""Several functions of a robot in one C file with one header.

Functions share what computes sine and cosine. Functions that are combined share subexpressions too: they are one C function
with several results, computed by one program.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple, TypedDict

from qddot.compiler.codegen import c99
from qddot.compiler.codegen.printer import Array, Function
from qddot.compiler.ir.program import Program
from qddot.compiler.runtime.c_compiler import Measured
from qddot.dynamics import export
from qddot.dynamics.catalogue import OF_PATH_TO_BASE, lookup
from qddot.dynamics.combined import combined
from qddot.dynamics.exported_function import (
    ExportedFunction,
    argument_facts,
    checked_name,
    identifier,
    parameter_argument,
    precision,
    robot_text,
    table,
)
from qddot.errors import InputError
from qddot.mechanism.model import Model
from qddot.mechanism.parameters import kinds_that_set

# a function, a function and its options, or the name of a function that combines others
Wanted = str | tuple[str, Mapping[str, Any]] | tuple[str, "Sequence[Wanted]"]
OF_FUNCTION = ("method", "frame", "prescribed", "by", "rows", "free", "name")  # options that a function of a file has
_PLACES, _BODIES = kinds_that_set("rotation", "position"), kinds_that_set("mass", "com", "rotary")
_KINEMATIC = (*OF_PATH_TO_BASE, "forward_kinematics", "constraint_residual", "constraint_jacobian", "constraint_bias")
# kinds of free parameters that a function depends on; functions that are not here may depend on all
DEPENDS_ON: dict[str, set[str]] = {
    **dict.fromkeys(_KINEMATIC, _PLACES),
    **dict.fromkeys(("mass_matrix", "mass_matrix_inverse"), _PLACES | _BODIES | {"armature"}),
    "coriolis_matrix": _PLACES | _BODIES,
    **dict.fromkeys(("bias_force", "gravity_force"), _PLACES | _BODIES | {"gravity"}),
    "passive_force": {"damping", "friction", "stiffness", "spring_reference"},
}


class FileOptions(TypedDict, total=False):
    """What all functions of a file have in common: `name` stands before their names; the others as in `SourceOptions`."""

    name: str | None
    dtype: str
    sincos: str
    fma: bool
    cc: str | None
    cflags: str


class One(NamedTuple):
    """A function and its options, resolved as `export.source_of` takes them."""

    function: str
    options: dict[str, Any]


class Several(NamedTuple):
    """Functions that one C function computes."""

    name: str
    parts: tuple[One, ...]


class FileFunction(NamedTuple):
    """A function of a file. `apart` are the operations of what it combines, each function computed on its own."""

    name: str
    function: str
    method: str
    operations: dict[str, int]
    apart: dict[str, int]
    stack_bytes: int | None


class SourceFile(NamedTuple):
    """A C file and its header, and what is known of them. `name` is what the names of its functions begin with."""

    name: str
    source: str
    header: str
    functions: tuple[FileFunction, ...]
    code_bytes: int | None
    compiler: str


@dataclass(frozen=True)
class CombinedFunction:
    """Several functions of one robot under one name, with the inputs of all and the result of each."""

    name: str
    parts: tuple[ExportedFunction, ...]
    input_names: tuple[str, ...]  # as Python knows them, the free parameters last
    inputs: tuple[Array, ...]
    free: tuple[str, ...]
    apart: Mapping[str, int]

    @property
    def outputs(self) -> list[Array]:
        """The arguments that take the results."""
        taken, short = {name for name, _ in self.inputs}, [part.about.output for part in self.parts]
        found = list[Array]()
        for part, name in zip(self.parts, short, strict=True):
            called = f"{name}_out" if name in taken else name
            if short.count(name) > 1:
                called = identifier(name, str(part.static.get("frame", part.function)))
            found.append((called, prod(part.shape)))
        names = [name for name, _ in found]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"{self.name!r} would have two results {name!r}; leave one of them out")
        return found

    def facts(self, overlap: str) -> Iterator[tuple[str, str]]:
        """What its head says; `overlap` is what results may overlap."""
        model, dtype = self.parts[0].model, self.parts[0].dtype
        yield "robot", robot_text(model)
        yield "function", f"{'; '.join(part.title for part in self.parts)}; together, {precision(dtype)}"
        yield from (("equation", x) for x in dict.fromkeys(part.about.equation for part in self.parts))
        yield from argument_facts(model, self.inputs, self.free)
        for part, (name, n) in zip(self.parts, self.outputs, strict=True):
            yield f"{name}[{n}]", f"{part.result}; {overlap}"
        yield "apart", f"{export.operations_text(self.apart)} in functions of their own"


class Printed(NamedTuple):
    """A function of a file, the program whose operations are counted, and what is printed."""

    exported: ExportedFunction | CombinedFunction
    program: Program
    code: Function


# ---- what is wanted --------------------------------------------------------------------------------------------------


def control(model: Model, frames: Sequence[str], prescribed: Any = None, has_mass: bool = True) -> list[Wanted]:
    """The functions that controllers call: dynamics, kinematics of frames, and `control_terms`, which combines most."""
    with_loops = "constrained_" if model.is_constrained else ""
    motion: list[Wanted] = [] if model.is_constrained else ["inverse_dynamics"]
    motion += [f"{with_loops}forward_dynamics"] if has_mass else []
    motion += [(f"{with_loops}hybrid_dynamics", {"prescribed": prescribed})] if prescribed else []
    terms: list[Wanted] = ["mass_matrix", "bias_force", "passive_force"]
    terms += ["constraint_residual", "constraint_jacobian", "constraint_bias"] if model.is_constrained else []
    terms += [(name, {"frame": x}) for x in frames for name in ("pose", "jacobian", "jacobian_derivative")]
    return [*motion, "gravity_force", *terms, ("control_terms", terms)]


def end_frames(model: Model) -> tuple[str, ...]:
    """The last frame at the end of a robot that has one end; of others none."""
    ends = set(range(1, model.n_links + 1)) - set(model.parent)
    if len(ends) != 1:
        return ()
    (end,) = ends
    return ([model.link_names[end], *(f.name for f in model.frames if f.link == end)][-1],)


def listed(functions: Iterable[Wanted], common: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Functions as (name, options) or (name, such functions). What is `common` goes to those that take it.

    A function of a frame is there once for each of the common `frames`.
    """
    found = list[tuple[str, Any]]()
    for wanted in functions:
        match wanted:
            case str(name):
                found += _with_common(name, {}, common)
            case (str(name), Mapping() as options):
                found += _with_common(name, options, common)
            case (str(name), [*parts]):
                found.append((name, listed(parts, common)))
            case _:
                raise InputError(
                    f"{wanted!r} is no function; give a name, a name and its options: (name, {{...}}), or a name and the "
                    f"functions that it combines: (name, [...])"
                )
    return found


def _with_common(name: str, options: Mapping[str, Any], common: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for option in options:
        if option not in OF_FUNCTION:
            raise InputError(f"{name!r} takes no option {option!r} in a file of several; it takes {', '.join(OF_FUNCTION)}")
    function, own = lookup(name, "auto")[0], dict(options)
    needs = function.needs
    if common.get("rows") is not None and function.is_task:
        own.setdefault("rows", common["rows"])
    if common.get("prescribed") is not None and "prescribed" in needs:
        own.setdefault("prescribed", common["prescribed"])
    kinds = DEPENDS_ON.get(name)
    if free := [x for x in common.get("free", ()) if kinds is None or x.rpartition(".")[2] in kinds]:
        own.setdefault("free", free)
    frames = common.get("frames", ()) if "frame" in needs and "frame" not in own else ()
    yield from ((name, {**own, "frame": x}) for x in frames)
    if not frames:
        yield name, own


# ---- the file --------------------------------------------------------------------------------------------------------


def file_of(model: Model, wanted: Sequence[One | Several], options: FileOptions) -> tuple[SourceFile, list[Printed]]:
    """Functions of a model in one C file, and what was printed."""
    name = options.get("name")
    prefix = identifier(model.name) if name is None else checked_name(name, c99.C99)
    if not wanted:
        raise InputError("a C file needs functions; give the name of at least one")
    common: Any = {k: x for k, x in options.items() if k in ("dtype", "sincos", "fma")}
    printed = [
        _combined(model, x, prefix, common) if isinstance(x, Several) else _single(model, x, prefix, common) for x in wanted
    ]
    _check_names([x.code.name for x in printed], prefix)
    code = c99.render([x.code for x in printed])
    measured, why = export.measure_size(code, options.get("cc"), options.get("cflags", ""))
    functions = tuple(_function(x, measured) for x in printed)
    about = c99.comment(_head(model, prefix, printed, functions, measured, why))
    header = c99.header(f"QDDOT_{prefix}_H", about, [_declared(x, f) for x, f in zip(printed, functions, strict=True)])
    compiler = "" if measured is None else f"{measured.compiler}; {measured.flags}"
    size = None if measured is None else measured.code
    return SourceFile(prefix, f"{about}\n{code}", header, functions, size, compiler), printed


def _single(model: Model, wanted: One, prefix: str, common: Any) -> Printed:
    frame, called = wanted.options.get("frame"), wanted.options.get("name")
    if called is None:
        called = f"{prefix}_{wanted.function}" + ("" if frame is None else f"_{identifier(frame)}")
    options: Any = {**wanted.options, **common, "name": called}
    one = export.prepared(model, wanted.function, c99.C99, options)
    return Printed(one.exported, one.choice.program, replace(one.code, prefix=prefix))


def _combined(model: Model, wanted: Several, prefix: str, common: Any) -> Printed:
    if not wanted.parts:
        raise InputError(f"{wanted.name!r} combines no functions; give the name of at least one")
    called, dtype = checked_name(f"{prefix}_{wanted.name}", c99.C99), common.get("dtype", "float64")
    options: list[Any] = [{**x.options, **common, "name": None} for x in wanted.parts]
    apart = [export.prepared(model, x.function, c99.C99, y) for x, y in zip(wanted.parts, options, strict=True)]
    methods = [x.options.get("method", "auto") for x in wanted.parts]
    functions = [(p.exported.function, m, p.exported.static) for p, m in zip(apart, methods, strict=True)]
    free = tuple(dict.fromkeys(name for p in apart for name in p.exported.free))
    together = combined(model, functions, free, dtype)
    export.check_size(f"{wanted.name} of {model.name!r}", together.program)
    parts = [
        ExportedFunction(model, p.exported.function, method, p.exported.static, called, dtype, free)
        for p, method in zip(apart, together.methods, strict=True)
    ]
    inputs = tuple((parameter_argument(x) if x in free else x, prod(s)) for x, s in together.inputs.items())
    export.check_arguments(inputs)
    count = dict[str, int]()
    for p in apart:
        for kind, n in p.choice.program.count().items():
            count[kind] = count.get(kind, 0) + n
    exported = CombinedFunction(called, tuple(parts), tuple(together.inputs), inputs, free, count)
    code = Function(together.program, called, inputs, exported.outputs, dtype, prefix=prefix)
    return Printed(exported, together.program, export.with_options(code, model, c99.C99, common))


def _check_names(names: Sequence[str], prefix: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two functions of the file are called {name!r}; give one of them another name=")
        if name == f"{prefix}_sincos":
            raise InputError(f"name={name!r} is a name of the file's own; take another one")


def _function(printed: Printed, measured: Measured | None) -> FileFunction:
    exported, program, code = printed
    if isinstance(exported, CombinedFunction):
        functions, methods = (" + ".join(getattr(p, x) for p in exported.parts) for x in ("function", "method"))
        apart = dict(exported.apart)
    else:
        functions, methods, apart = exported.function, exported.method, {}
    return FileFunction(code.name, functions, methods, program.count(), apart, _stack(printed, measured))


def _stack(printed: Printed, measured: Measured | None) -> int | None:
    """Of a function, and of its sine and cosine; compilers may have split those in parts."""
    if measured is None or printed.code.name not in measured.stack:
        return None
    helpers = [n for name, n in measured.stack.items() if name.startswith(f"{printed.code.prefix}_sincos")]
    return measured.stack[printed.code.name] + (sum(helpers) if printed.program.count()["sincos"] else 0)


# ---- the header ------------------------------------------------------------------------------------------------------


def _head(
    model: Model,
    prefix: str,
    printed: Sequence[Printed],
    functions: Sequence[FileFunction],
    measured: Measured | None,
    why: str,
) -> list[str]:
    from qddot.version import __version__

    code = printed[0].code
    facts = [("robot", robot_text(model)), ("functions", ", ".join(f.name for f in functions))]
    facts.append(("sincos", f"{export.SINCOS}; functions share them" if code.own_sincos else "libm's"))
    if measured is None:
        facts.append(("stack", f"not measured: {why}"))
    else:
        size = "not measured" if measured.code is None else f"{measured.code} bytes with constants, all functions together"
        facts += [("code", size), ("measured by", f"{measured.compiler}; {measured.flags}")]
    return [
        f"{prefix}: functions of a robot",
        "",
        *table(facts, c99.C99),
        "",
        f"Written by qddot {__version__}. SI units. No allocation, no state: threads and interrupts may call it.",
        "Arrays are contiguous, matrices row by row.",
        *c99.C99.notes(code),
    ]


def _declared(printed: Printed, function: FileFunction) -> str:
    """The declaration of a function under what is to be known about it."""
    exported, program, code = printed
    start = c99.declaration(code.name, code.inputs, code.outputs, code.dtype)
    _, *rows = export.function_facts(exported, program, code)
    rows = [row for row in rows if row[0] != "sincos"]
    if function.stack_bytes is not None:
        rows.append(("stack", f"{function.stack_bytes} bytes, without libm's"))
    return f"{c99.comment([code.name, '', *table(rows, c99.C99)])}\n{start};"
