"""The command `qddot export`: functions of a robot as source code, as a C project, or as a library for C programs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qddot.cli.robot_file import load_robot, robot_arguments
from qddot.compiler.codegen.languages import LANGUAGES
from qddot.dynamics.catalogue import ALL, FUNCTIONS, LOOP_FUNCTIONS
from qddot.dynamics.export import Source, write
from qddot.dynamics.task_functions import TASK_FUNCTIONS
from qddot.errors import InputError
from qddot.robot import Robot

if TYPE_CHECKING:
    from qddot.dynamics.export_file import FileFunction, SourceFile, Wanted
    from qddot.dynamics.export_library import Library

HELP = "Writes functions of a robot as readable C99, as a C project, or as a library for C programs."
LAYOUTS = ("cmake", "arduino", "platformio", "plain")

# options that libraries do not have, and their defaults
_OF_SOURCE = {
    "output": None,
    "language": "c99",
    "sincos": "own",
    "fma": True,
    "inline": False,
    "cc": None,
    "cflags": "",
    "layout": None,
    "combined": None,
    "all": None,
}
# options of a single function, and their defaults
_OF_ONE = {"language": "c99", "inline": False, "method": "auto"}
# options of functions that inverse kinematics does not have, and their defaults
_NOT_OF_ITERATIONS = {
    **_OF_ONE,
    **dict.fromkeys(("all", "layout", "combined", "library", "target", "frame", "rows", "prescribed")),
    "function": [],
    "free": [],
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    robot_arguments(parser)
    add = parser.add_argument
    names = ", ".join(FUNCTIONS | TASK_FUNCTIONS | LOOP_FUNCTIONS)
    add(
        "--function",
        action="append",
        default=[],
        metavar="NAME",
        help=f"repeat it for several in one file; one of: {names}",
    )
    add("--all", choices=["control"], help="the functions that controllers call (docs/export.md)")
    add("--inverse-kinematics", metavar="FRAME", help="inverse kinematics for poses of the frame, in a C file of its own")
    add("--no-limits", dest="limits", action="store_false", help="inverse kinematics does not keep joint limits")
    add("--combined", metavar="NAME", help="one more function, which gives the results of all --function together")
    add(
        "-o",
        "--output",
        metavar="OUT",
        help="the C file, OUT.h is written beside it; the folder of a project (default: print)",
    )
    add("--layout", choices=LAYOUTS, help="write a project into the folder OUT")
    add("--library", metavar="OUT.so", help="a shared library (.so, for Linux) or an object file (.o); OUT.h is beside it")
    add("--target", help="what a library is for: aarch64-linux-gnu, x86-64-v3, cortex-m4, ... (default: this processor)")
    add("--language", help=f"one of: {', '.join(LANGUAGES)} (default: c99)")
    add("--method", default="auto", help="a formulation (default: that with fewest operations)")
    add("--frame", action="append", help="the link or frame, for functions of one; repeat it for several")
    add(
        "--rows",
        type=int,
        nargs="+",
        metavar="ROW",
        help="rows of the frame's twist: 0 1 2 angular, 3 4 5 linear (all)",
    )
    add(
        "--prescribed",
        action="append",
        metavar="JOINT",
        help="a joint of given acceleration, for hybrid dynamics; repeat it",
    )
    add(
        "--free",
        action="append",
        default=[],
        metavar="PARAMETER",
        help="an argument of the functions: link3.mass; repeat it",
    )
    add("--dtype", default="float64", help="float64 or float32")
    add("--sincos", help="own (the bits of the kernel) or libm")
    add("--no-fma", dest="fma", action="store_false", help="round products and sums apart")
    add("--inline", action="store_true", help="a header with a static inline function")
    add("--name", help="the function's name in C; of several functions what their names begin with")
    add("--cc", help="the C compiler that says how much stack and code it takes; '' for none")
    add("--cflags", help='its flags besides -std=c99 -O2, as in --cflags="-mfma"')
    parser.set_defaults(**_OF_SOURCE)


def run(options: argparse.Namespace) -> int:
    """Writes a library or a project, or writes or prints a file of source code."""
    if options.inverse_kinematics is not None:
        return _inverse_kinematics(options)
    if not options.limits:
        raise InputError("--no-limits is for --inverse-kinematics")
    if not options.function and options.all is None:
        raise InputError("there is nothing to export; give --function NAME, or --all control")
    if options.library is not None:
        return _library(options)
    if options.target is not None:
        raise InputError("--target is for --library; source code is for any processor")
    if options.layout is not None and options.output is None:
        raise InputError("--layout needs the folder that the project is to be written into: -o FOLDER")
    several = options.all or options.layout or options.combined or len(options.function) > 1
    return _several(options) if several or len(options.frame or ()) > 1 else _source(options)


# ---- one function ------------------------------------------------------------------------------------------------------


def _source(options: argparse.Namespace) -> int:
    exported = load_robot(options).export_source(
        options.function[0],
        language=options.language,
        method=options.method,
        dtype=options.dtype,
        frame=options.frame[0] if options.frame else None,
        prescribed=options.prescribed,
        rows=options.rows,
        free=options.free,
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


def _summary(exported: Source, files: Sequence[Path]) -> str:
    code = "" if exported.code_bytes is None else f", {exported.code_bytes} bytes of code"
    facts = f"{_counts(exported.operations)}; {_stack(exported.stack_bytes)}{code}"
    return f"{exported.name} by {exported.method}: {facts}; written to {', '.join(map(str, files))}"


def _counts(operations: dict[str, int]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in operations.items() if n) or "no operations"


def _stack(size: int | None) -> str:
    return "stack not measured" if size is None else f"{size} bytes of stack"


# ---- inverse kinematics ------------------------------------------------------------------------------------------------


def _inverse_kinematics(options: argparse.Namespace) -> int:
    for name, default in _NOT_OF_ITERATIONS.items():
        if getattr(options, name) != default:
            raise InputError(f"--inverse-kinematics is written alone; leave out --{name}")
    shared = ("limits", "dtype", "sincos", "fma", "name", "cc", "cflags")
    pose = {options.inverse_kinematics: (np.zeros(3), np.eye(3))}
    made = load_robot(options).export_inverse_kinematics(pose, **{x: getattr(options, x) for x in shared})
    files = [] if options.output is None else write(made, options.output)
    if options.json:
        print(json.dumps({**made._asdict(), "target": made.target.tolist(), "files": [str(f) for f in files]}, indent=1))
    elif files:
        facts = f"{_counts(made.operations)} an iteration; {_stack(made.stack_bytes)}"
        print(f"{made.name}: {facts}; written to {', '.join(map(str, files))}", file=sys.stderr)
    else:
        print(made.source, end="")
    return 0


# ---- several functions -------------------------------------------------------------------------------------------------


def _several(options: argparse.Namespace) -> int:
    for name, default in _OF_ONE.items():
        if getattr(options, name) != default:
            raise InputError(f"--{name} is for one function; a file of several has no such choice")
    robot = load_robot(options)
    functions = _wanted(robot, options)
    shared = ("dtype", "sincos", "fma", "name", "frame", "rows", "prescribed", "free", "cc", "cflags")
    others = {x: getattr(options, x) for x in shared}
    if options.layout is not None:
        project = robot.export_project(options.output, functions, layout=options.layout, **others)
        code, files = project.code, list(project.files)
    else:
        code = robot.export_c(functions, **others)
        files = [] if options.output is None else write(code, options.output)
    if options.json:
        print(json.dumps(_file_report(code, files), indent=1))
    elif files:
        for f in code.functions:
            print(f"{f.name} by {f.method}: {_counts(f.operations)}{_apart(f)}; {_stack(f.stack_bytes)}", file=sys.stderr)
        print(f"written to {', '.join(map(str, files))}", file=sys.stderr)
    else:
        print(code.source, end="")
    return 0


def _wanted(robot: Robot, options: argparse.Namespace) -> list[Wanted]:
    """The functions, each once, and what combines them."""
    functions: list[Wanted] = list(options.function)
    if options.all is not None:
        own = robot.control_functions(options.frame, options.prescribed)
        names = {x if isinstance(x, str) else x[0] for x in own}
        if not options.frame and "pose" not in names:
            print(f"{robot.name} ends in several links: give --frame for functions of one", file=sys.stderr)
        functions = [*own, *(x for x in options.function if x not in names)]
    if options.combined is not None:
        if not options.function:
            raise InputError("--combined combines what --function names; --all control has control_terms")
        functions.append((options.combined, list(options.function)))
    return functions


def _apart(function: FileFunction) -> str:
    if not function.apart:
        return ""
    now, before = (sum(x.values()) for x in (function.operations, function.apart))
    return f" ({now} operations instead of {before})"


def _file_report(code: SourceFile, files: Sequence[Path]) -> dict[str, Any]:
    functions = [f._asdict() for f in code.functions]
    return {**code._asdict(), "functions": functions, "files": [str(f) for f in files]}


# ---- libraries ---------------------------------------------------------------------------------------------------------


def _library(options: argparse.Namespace) -> int:
    for name, default in _OF_SOURCE.items():
        if getattr(options, name) != default:
            flag = {"fma": "no-fma"}.get(name, name)
            raise InputError(f"--{flag} is for source code; --library has no such choice")
    if options.name is not None and len(options.function) > 1:
        raise InputError("--name is the name of one function; with several --function each has its own")
    robot = load_robot(options)
    functions = [x for name in options.function for x in _library_functions(name, options)]
    made = robot.export_library(options.library, functions, target=options.target or "cpu", dtype=options.dtype)
    if options.json:
        print(json.dumps(_report(made), indent=1))
    else:
        for f in made.functions:
            print(f"{f.name} by {f.method}: {f.scratch_bytes} bytes of scratch memory", file=sys.stderr)
        files = ", ".join(map(str, made.files))
        print(f"for {made.triple}, processor {made.processor}; written to {files}", file=sys.stderr)
    return 0


def _library_functions(name: str, options: argparse.Namespace) -> list[tuple[str, dict[str, Any]]]:
    """One of the functions with its options, once for each frame: a frame is for those that need one."""
    needs, is_only = ALL[name].needs if name in ALL else (), len(options.function) == 1
    own = {"method": options.method, "name": options.name, "free": options.free}
    if options.prescribed and ("prescribed" in needs or is_only):
        own["prescribed"] = options.prescribed
    if options.rows and (name in TASK_FUNCTIONS or is_only):
        own["rows"] = options.rows
    frames = options.frame or [None]
    return [(name, {**own, "frame": x}) for x in frames] if "frame" in needs or is_only else [(name, own)]


def _report(made: Library) -> dict[str, Any]:
    functions = [f._asdict() for f in made.functions]
    return {**made._asdict(), "functions": functions, "files": [str(f) for f in made.files]}
