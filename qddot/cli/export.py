"""The command `qddot export`: a function of a robot as source code."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from qddot.cli.robot_file import load_robot, robot_arguments
from qddot.compiler.codegen.languages import LANGUAGES
from qddot.dynamics.catalogue import FUNCTIONS
from qddot.dynamics.export import Source, write

HELP = "Writes a function of a robot as readable C99."


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    robot_arguments(parser)
    parser.add_argument("--function", required=True, metavar="NAME", help=f"one of: {', '.join(FUNCTIONS)}")
    parser.add_argument("-o", "--output", metavar="OUT.c", help="the C file; OUT.h is written beside it (default: print)")
    parser.add_argument("--language", default="c99", help=f"one of: {', '.join(LANGUAGES)} (default: c99)")
    parser.add_argument("--method", default="auto", help="a formulation (default: that with fewest operations)")
    parser.add_argument("--frame", help="the link or frame, for functions of one")
    parser.add_argument("--dtype", default="float64", help="float64 or float32")
    parser.add_argument("--sincos", default="own", help="own (the bits of the kernel) or libm")
    parser.add_argument("--no-fma", dest="fma", action="store_false", help="round products and sums apart")
    parser.add_argument("--inline", action="store_true", help="a header with a static inline function")
    parser.add_argument("--name", help="the function's name in C")
    parser.add_argument("--cc", help="the C compiler that says how much stack and code it takes; '' for none")
    parser.add_argument("--cflags", default="", help='its flags besides -std=c99 -O2, as in --cflags="-mfma"')


def run(options: argparse.Namespace) -> int:
    """Writes or prints the file."""
    exported = load_robot(options).export_source(
        options.function,
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
