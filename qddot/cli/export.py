"""The command `qddot export`: a function of a robot as source code, or functions as a library for C programs."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qddot.cli.robot_file import load_robot, robot_arguments
from qddot.compiler.codegen.languages import LANGUAGES
from qddot.dynamics.catalogue import FUNCTIONS
from qddot.dynamics.export import Source, write
from qddot.errors import InputError

if TYPE_CHECKING:
    from qddot.dynamics.export_library import Library

HELP = "Writes a function of a robot as readable C99, or functions as a library for C programs."

# options that libraries do not have, and their defaults
_OF_SOURCE = {"output": None, "language": "c99", "sincos": "own", "fma": True, "inline": False, "cc": None, "cflags": ""}


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    robot_arguments(parser)
    add = parser.add_argument
    names = ", ".join(FUNCTIONS)
    add("--function", required=True, action="append", metavar="NAME", help=f"repeat it for a library; one of: {names}")
    add("-o", "--output", metavar="OUT.c", help="the C file; OUT.h is written beside it (default: print)")
    add("--library", metavar="OUT.so", help="a shared library (.so, for Linux) or an object file (.o); OUT.h is beside it")
    add("--target", help="what a library is for: aarch64-linux-gnu, x86-64-v3, cortex-m4, ... (default: this processor)")
    add("--language", help=f"one of: {', '.join(LANGUAGES)} (default: c99)")
    add("--method", default="auto", help="a formulation (default: that with fewest operations)")
    add("--frame", help="the link or frame, for functions of one")
    add("--dtype", default="float64", help="float64 or float32")
    add("--sincos", help="own (the bits of the kernel) or libm")
    add("--no-fma", dest="fma", action="store_false", help="round products and sums apart")
    add("--inline", action="store_true", help="a header with a static inline function")
    add("--name", help="the function's name in C")
    add("--cc", help="the C compiler that says how much stack and code it takes; '' for none")
    add("--cflags", help='its flags besides -std=c99 -O2, as in --cflags="-mfma"')
    parser.set_defaults(**_OF_SOURCE)


def run(options: argparse.Namespace) -> int:
    """Writes a library, or writes or prints a file of source code."""
    return _library(options) if options.library is not None else _source(options)


def _source(options: argparse.Namespace) -> int:
    if len(options.function) > 1:
        raise InputError("a file of source code has one --function; --library takes several")
    if options.target is not None:
        raise InputError("--target is for --library; source code is for any processor")
    exported = load_robot(options).export_source(
        options.function[0],
        language=options.language,
        method=options.method,
        dtype=options.dtype,
        frame=options.frame,
        sincos=options.sincos,
        fma=options.fma,
        inline=options.inline,
        name=options.name,
        cc=options.cc,
        cflags=options.cflags,
    )
    files = [] if options.output is None else write(exported, options.output)
    if options.json:
        report = {**exported._asdict(), "files": [str(f) for f in files]}
        print(json.dumps(report, indent=1))
    elif files:
        print(_summary(exported, files), file=sys.stderr)
    else:
        print(exported.source, end="")
    return 0


def _summary(exported: Source, files: list[Path]) -> str:
    counts = ", ".join(f"{n} {kind}" for kind, n in exported.operations.items() if n)
    stack = "stack not measured" if exported.stack_bytes is None else f"{exported.stack_bytes} bytes of stack"
    code = "" if exported.code_bytes is None else f", {exported.code_bytes} bytes of code"
    return f"{exported.name} by {exported.method}: {counts}; {stack}{code}; written to {', '.join(map(str, files))}"


def _library(options: argparse.Namespace) -> int:
    for name, default in _OF_SOURCE.items():
        if getattr(options, name) != default:
            flag = {"fma": "no-fma"}.get(name, name)
            raise InputError(f"--{flag} is for source code; --library has no such choice")
    if options.name is not None and len(options.function) > 1:
        raise InputError("--name is the name of one function; with several --function each has its own")
    robot = load_robot(options)
    functions = [(name, _function_options(name, options)) for name in options.function]
    made = robot.export_library(options.library, functions, target=options.target or "cpu", dtype=options.dtype)
    if options.json:
        print(json.dumps(_report(made), indent=1))
    else:
        for f in made.functions:
            print(f"{f.name} by {f.method}: {f.scratch_bytes} bytes of scratch memory", file=sys.stderr)
        files = ", ".join(map(str, made.files))
        print(f"for {made.triple}, processor {made.processor}; written to {files}", file=sys.stderr)
    return 0


def _function_options(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The options of one of the functions: a frame is for those that need one."""
    needs = FUNCTIONS[name].needs if name in FUNCTIONS else ()
    own = {"method": options.method, "name": options.name}
    return {**own, "frame": options.frame} if "frame" in needs or len(options.function) == 1 else own


def _report(made: Library) -> dict[str, Any]:
    functions = [f._asdict() for f in made.functions]
    return {**made._asdict(), "functions": functions, "files": [str(f) for f in made.files]}
