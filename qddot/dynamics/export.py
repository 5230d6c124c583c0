"""A function of a robot as source code for other people's compilers: its choices, its head, and the files.

The code itself is written by a printer of the compiler's; here are the robot's words around it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Protocol, TypedDict, Unpack

from qddot.compiler.codegen.languages import language as language_named
from qddot.compiler.codegen.printer import Array, Function, Language
from qddot.compiler.ir.fuse import fused
from qddot.compiler.ir.program import Program
from qddot.compiler.runtime.c_compiler import Measured, find, measure
from qddot.dynamics.choose import Choice, cheapest
from qddot.dynamics.exported_function import ExportedFunction, checked_name, identifier, table
from qddot.errors import FileError, InputError, KernelTooLargeError, message
from qddot.formats.atomic import replacing
from qddot.mechanism.model import Model

SINCOS = "polynomials of its own, libm's beyond 1e5 rad"
MOST_OPERATIONS = 30_000  # GCC 12 takes 18 s for a function of 18,700, 50 s for one of 28,500


class Source(NamedTuple):
    """A file with its header, which is empty for the inline form and where a language has none, and what is known of it."""

    name: str
    source: str
    header: str
    method: str
    operations: dict[str, int]
    stack_bytes: int | None
    code_bytes: int | None
    compiler: str


class Prepared(NamedTuple):
    """A function that is to be printed, and what is known of it."""

    exported: ExportedFunction
    choice: Choice
    code: Function


class SourceOptions(TypedDict, total=False):
    """The options of `source_of`.

    `method` and `dtype` as for kernels, and so are `frame`, `prescribed`, `rows` and `by`, resolved. `free` names
    parameters that are arguments, after the others. `dependence_limit` is what the head says about `rows` of constraints.
    `sincos` is "own", for the bits of the kernel, or "libm". Without `fma` products and sums are rounded apart. `inline`
    gives a header with a `static inline` function. `name` is the function's. `cc` and `cflags` name the C compiler that
    measures stack and code size; None takes the one of the machine, an empty string none.
    """

    method: str
    dtype: str
    frame: str | None
    prescribed: Sequence[int] | None
    rows: Sequence[int] | None
    dependence_limit: float | None
    by: Sequence[object] | None
    free: Sequence[str]
    sincos: str
    fma: bool
    inline: bool
    name: str | None
    cc: str | None
    cflags: str


def source_of(model: Model, function: str, language: str = "c99", **options: Unpack[SourceOptions]) -> Source:
    """A function of a model in a language of `languages.LANGUAGES`."""
    if unknown := options.keys() - SourceOptions.__annotations__.keys():
        raise TypeError(f"export got an unexpected keyword argument {min(unknown)!r}")
    written = language_named(language)
    exported, choice, code = prepared(model, function, written, options)
    facts, measured = [*function_facts(exported, choice.program, code)], None
    if written.is_c:
        alone = written.file(replace(code, inline=False), "")
        measured, why = measure_size(alone, options.get("cc"), options.get("cflags", ""))
        facts += _sizes(measured, why)
    source = written.file(code, written.comment(_head(code, table(facts, written), written)))
    stack = None if measured is None else measured.stack_bytes
    compiler = "" if measured is None else f"{measured.compiler}; {measured.flags}"
    size, operations = measured.code if measured else None, choice.program.count()
    return Source(code.name, source, written.header(code), choice.method, operations, stack, size, compiler)


def prepared(model: Model, function: str, language: Language, options: SourceOptions) -> Prepared:
    """The function, the program that computes it, and what is to be printed."""
    frame, name, free = options.get("frame"), options.get("name"), tuple(options.get("free", ()))
    known = [("frame", frame), ("prescribed", options.get("prescribed")), ("rows", options.get("rows"))]
    static = {k: x for k, x in (*known, ("by", options.get("by"))) if x is not None}
    dtype = options.get("dtype", "float64")
    others = {"free": free} if free else {}
    choice = cheapest(model, function, options.get("method", "auto"), dtype=dtype, **static, **others)
    check_size(f"{function} of {model.name!r}", choice.program)
    own = identifier(model.name, function, *([] if frame is None else [frame]))
    called = own if name is None else checked_name(name, language)
    limit = options.get("dependence_limit")
    exported = ExportedFunction(model, function, choice.method, static, called, dtype, free, limit)
    check_arguments(exported.inputs)
    code = Function(choice.program, called, exported.inputs, exported.outputs, dtype)
    return Prepared(exported, choice, with_options(code, model, language, options))


def check_size(what: str, program: Program) -> None:
    """That C compilers can take the function."""
    count = len(program.body)
    if count > MOST_OPERATIONS:
        raise KernelTooLargeError(
            f"{what} has {count:,} operations; C compilers take too long for a function of more than "
            f"{MOST_OPERATIONS:,}; export a part of the robot, or use the kernel"
        )


def check_arguments(inputs: Sequence[Array]) -> None:
    """That no two arguments have one name, as those of links with strange names could."""
    names = [name for name, _ in inputs]
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"two arguments would be called {name!r} in C; rename a link or joint, or leave one out of free="
            )


def with_options(code: Function, model: Model, language: Language, options: SourceOptions) -> Function:
    """What is to be printed, by the options of its user; its program is fused if they say so."""
    sincos, fma, links = options.get("sincos", "own"), options.get("fma", True), model.link_names
    if sincos not in ("own", "libm"):
        raise InputError(f"sincos={sincos!r} is not known; take 'own' or 'libm'")

    def label(symbol: str, link: int) -> str:
        return "results" if symbol == "rest" else language.escaped(f"{links[link]}: {symbol}")

    return replace(
        code,
        program=fused(code.program) if fma else code.program,
        own_sincos=sincos == "own",
        fma=fma,
        inline=options.get("inline", False),
        label=label,
    )


# ---- the head ------------------------------------------------------------------------------------------------------


def _head(code: Function, facts: Sequence[str], language: Language) -> list[str]:
    from qddot.version import __version__

    written = f"Written by qddot {__version__}. SI units. No allocation, no state: threads and interrupts may call it."
    return [code.name, "", *facts, "", written, *language.notes(code)]


class Described(Protocol):
    """What has a head."""

    def facts(self, overlap: str) -> Iterator[tuple[str, str]]:
        """What the head says; `overlap` is what the result may overlap."""
        ...


def function_facts(exported: Described, program: Program, code: Function) -> Iterator[tuple[str, str]]:
    """What the head of a function says; `program` is the one whose operations are counted."""
    yield from exported.facts("must not overlap an input" if code.stores_early else "may be one of the inputs")
    yield "operations", operations_text(program.count())
    yield "sincos", SINCOS if code.own_sincos else "libm's"


def operations_text(count: Mapping[str, int]) -> str:
    """Operations by kind."""
    return ", ".join(f"{n} {kind}" for kind, n in count.items())


def _sizes(measured: Measured | None, why: str) -> Iterator[tuple[str, str]]:
    if measured is None:
        yield "stack", f"not measured: {why}"
    else:
        yield "stack", f"{_stack(measured)} ({measured.compiler}; {measured.flags})"
    has_size = measured is not None and measured.code is not None
    yield "code", f"{measured.code} bytes with constants" if measured and has_size else "not measured"


def _stack(measured: Measured) -> str:
    *helpers, own = measured.stack.values()
    what = "sine and cosine" if all(name.endswith("_sincos") for name in list(measured.stack)[:-1]) else "own functions"
    parts = f" = {own} + {sum(helpers)} in its {what}" if helpers else ""
    return f"{measured.stack_bytes} bytes{parts}, without libm's"


def measure_size(source: str, compiler: str | None, flags: str) -> tuple[Measured | None, str]:
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


class CFile(Protocol):
    """What `write` takes."""

    @property
    def source(self) -> str: ...
    @property
    def header(self) -> str: ...


def write(exported: CFile, path: str | os.PathLike[str]) -> list[Path]:
    """Writes the file and, beside it, its header; each in one step. Returns the files."""
    file = Path(path)
    files = {file: exported.source.encode("ascii")}
    if exported.header:
        header = file.with_suffix(".h")
        if header == file:
            raise InputError(f"{str(file)!r} is the name that the header gets; give the C file one that ends in .c")
        files[header] = exported.header.encode("ascii")
    return write_files(files)


def write_files(files: Mapping[Path, bytes]) -> list[Path]:
    """Writes files, each in one step."""
    for target, content in files.items():
        try:
            with replacing(target) as unfinished:
                unfinished.write_bytes(content)
        except OSError as error:
            problem = f"it cannot be written: {error.strerror or error}"
            raise FileError(message(str(target), "file", problem, "check the folder and its permissions")) from None
    return list(files)
