"""Functions of a robot as machine code for other people's programs: an object file or a shared library, and a C header.

The code is that of kernels for one state, compiled for this or another processor, and called like a function of C.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from qddot.compiler.codegen import c99
from qddot.compiler.codegen.abi import c_function
from qddot.compiler.runtime import llvm_compile, shared_library
from qddot.compiler.runtime.llvm_compile import ObjectFile
from qddot.compiler.targets import registry as targets
from qddot.compiler.targets.target import Target
from qddot.dynamics import pipeline
from qddot.dynamics.export import write_files
from qddot.dynamics.exported_function import ExportedFunction, checked_name, identifier, robot_text, table
from qddot.dynamics.request import Request, checked
from qddot.errors import InputError, KernelTooLargeError
from qddot.mechanism.model import Model

SCRATCH_MAX_BYTES = 1 << 20  # of a function, on the stack of whoever calls it
OBJECTS, SHARED, LINKED = (".o", ".obj"), (".so",), (".dylib", ".dll")
OPTIONS = ("method", "dtype", "form", "frame", "prescribed", "by", "rows", "free", "name")

Wanted = str | tuple[str, Mapping[str, Any]]  # a function, or a function and its options


class LibraryFunction(NamedTuple):
    """A function of a library: its name in C, and what is known of it."""

    name: str
    function: str
    method: str
    operations: dict[str, int]
    scratch_bytes: int  # on the stack


class Library(NamedTuple):
    """The files of a library, the system and the processor that it is for, its functions, and its header."""

    files: tuple[Path, ...]
    triple: str
    processor: str
    functions: tuple[LibraryFunction, ...]
    header: str


class _Compiled(NamedTuple):
    """One function, as the header describes it and as LLVM's text."""

    exported: ExportedFunction
    facts: dict[str, Any]
    code: c_function.CFunction


def named(functions: str | Iterable[Wanted]) -> list[tuple[str, dict[str, Any]]]:
    """Names of functions, each with its options."""
    found = list[tuple[str, dict[str, Any]]]()
    for wanted in [functions] if isinstance(functions, str) else functions:
        match wanted:
            case str(name):
                found.append((name, {}))
            case (str(name), Mapping() as options):
                found.append((name, dict(options)))
            case _:
                raise InputError(f"{wanted!r} is no function; give a name, or a name and its options: (name, {{...}})")
    return found


def requested(model: Model, function: str, options: Mapping[str, Any], rows: Sequence[int] | None) -> tuple[Request, str]:
    """A function with its options, checked, and its name in C; `rows` are the independent ones of the constraints."""
    for option in options:
        if option not in OPTIONS:
            raise InputError(f"{function!r} takes no option {option!r} in a library; it takes {', '.join(OPTIONS)}")
    given: Any = {name: x for name, x in options.items() if name != "name"}
    frame, name = options.get("frame"), options.get("name")
    own = identifier(model.name, function, *([] if frame is None else [frame]))
    return checked(model, function, given, rows), own if name is None else checked_name(name, c99.C99)


def export(model: Model, path: str | os.PathLike[str], wanted: Sequence[tuple[Request, str]], target: str) -> Library:
    """Compiles functions for a target and writes the library and its header."""
    file, known = Path(path), targets.exported(target)
    _check(file, [name for _, name in wanted])
    compiled = [_compiled(model, request, name, known.target) for request, name in wanted]
    made = llvm_compile.object_file([x.code.text for x in compiled], known.target, known.triple)
    content = made.data if file.suffix in OBJECTS else _shared(made, file)
    header = _header(model, file, compiled, made, known.target)
    files = write_files({file: content, file.with_suffix(".h"): header.encode("ascii")})
    functions = [
        LibraryFunction(x.exported.name, x.exported.function, x.exported.method, x.facts["ops"], x.code.scratch_bytes)
        for x in compiled
    ]
    return Library(tuple(files), made.triple, made.cpu, tuple(functions), header)


def _check(file: Path, names: Sequence[str]) -> None:
    """That a library of these functions can be written to such a file."""
    if file.suffix in LINKED:
        raise InputError(_needs_linker(file, f"qddot does not link {file.suffix} files"))
    if file.suffix not in (*OBJECTS, *SHARED):
        raise InputError(f"{str(file)!r}: a library is a file that ends in .so, and an object file one that ends in .o")
    if not names:
        raise InputError("a library needs functions; give the name of at least one")
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two functions of the library are called {name!r}; give one of them another name=")


def _needs_linker(file: Path, why: str) -> str:
    made = file.with_suffix(".o")
    command = shlex.join(["cc", "-shared", "-o", file.name, made.name, "-lm"])
    return f"{str(file)!r}: {why}; export {made.name!r} and link it: {command}"


def _compiled(model: Model, request: Request, name: str, target: Target) -> _Compiled:
    static, free = dict(request.static), request.free
    exported = ExportedFunction(model, request.function, request.method, static, name, request.dtype, free)
    facts, program = pipeline.program_for(model, request, exported.shape, target.registers)
    code = c_function.render(program, name, exported.input_shapes, exported.shape, request.dtype, target)
    if code.scratch_bytes > SCRATCH_MAX_BYTES:
        raise KernelTooLargeError(
            f"{request.function} of {model.name!r} needs {code.scratch_bytes:,} bytes of scratch memory; a C function may "
            f"take {SCRATCH_MAX_BYTES:,} of its stack; use the kernel"
        )
    return _Compiled(replace(exported, method=facts["method"]), facts, code)


def _shared(made: ObjectFile, file: Path) -> bytes:
    if "-none-" in made.triple:
        raise InputError(f"{str(file)!r}: {made.cpu} has no shared libraries; export {file.with_suffix('.o').name!r}")
    if "linux" not in made.triple:
        raise InputError(_needs_linker(file, f"qddot links for Linux only, and this is for {made.triple}"))
    return shared_library.linked(made.data, file.name)


# ---- the header ------------------------------------------------------------------------------------------------------


def _header(model: Model, file: Path, compiled: Sequence[_Compiled], made: ObjectFile, target: Target) -> str:
    from qddot.version import __version__

    about = [
        c99.escaped(f"{file.with_suffix('.h').name}: functions of {file.name}"),
        "",
        *table(_facts(model, file, compiled, made, target), c99.C99),
        "",
        f"Written by qddot {__version__}. SI units. No allocation, no state: threads and interrupts may call it.",
        "Arrays are contiguous, matrices row by row.",
    ]
    guard = f"QDDOT_{identifier(file.stem)}_H"
    return c99.header(guard, c99.comment(about), [_declared(x) for x in compiled])


def _facts(
    model: Model, file: Path, compiled: Sequence[_Compiled], made: ObjectFile, target: Target
) -> Iterator[tuple[str, str]]:
    used = [x for x in c_function.LIBRARY.values() if any(x in c.code.library for c in compiled)]
    yield "robot", robot_text(model)
    yield "target", f"{made.triple}, processor {made.cpu}"
    if all(target.fuses(c.exported.dtype) for c in compiled):
        yield "arithmetic", "products and sums are fused, as in kernels"
    else:
        yield "arithmetic", "products and sums are rounded separately: the processor has no fused multiply-add"
    if "sin" in used:
        yield "sincos", "polynomials of its own, libm's beyond 1e5 rad"
    if file.suffix in OBJECTS and (used or not target.doubles):
        own = "" if target.doubles else ", and the compiler's own library for arithmetic on doubles"
        yield "link with", f"libm: {', '.join(used)}{own}"


def _declared(compiled: _Compiled) -> str:
    """The declaration of a function under what is to be known about it."""
    exported, facts, code = compiled
    start = c99.declaration(exported.name, exported.inputs, exported.outputs, exported.dtype)
    _, *rows = exported.facts("may overlap the inputs")
    rows.append(("operations", ", ".join(f"{n} {kind}" for kind, n in facts["ops"].items())))
    rows.append(("scratch", f"{code.scratch_bytes} bytes of the stack; saved registers and spilled values come on top"))
    return f"{c99.comment([exported.name, '', *table(rows, c99.C99)])}\n{start};"
