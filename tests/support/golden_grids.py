"""Every function of the embedded robots as a kernel for a grid of GPU threads: how it is launched, and its results.

    python -m tests.support.golden_grids --write        writes tests/golden/grids.json anew, for all robots

The file has for each kernel the parameters of its entry point and the facts of its launch, for each type.
"""

import argparse
import json
import re
import warnings

import numpy as np

import qddot
from qddot.compiler.targets import nvptx
from qddot.dynamics import pipeline
from qddot.dynamics.catalogue import ALL, input_shapes, lookup
from qddot.robots import NAMES
from tests.support.golden_bits import DTYPES, given, kernel_of, names_of
from tests.support.grid_emulation import Emulated
from tests.support.paths import GOLDEN

FILE = GOLDEN / "grids.json"
MAX_OPS = 12_000  # of a kernel in the file: more take long to compile


def header(kernel):
    """The parameters of the entry point `rows`, shortened, and the facts of the launch, as text."""
    entry = re.search(r"\.visible \.entry rows\((.*?)\)", kernel.assembly, re.DOTALL)
    kinds = re.findall(r"\.param \.(\w+)", entry[1])
    facts = [x for x in kernel.code.grid.as_json().items() if x not in (("kept_numbers", 0), ("modules", ()))]
    return f"{len(kinds)} × {'/'.join(sorted(set(kinds)))}, {', '.join(f'{k} {v}' for k, v in facts)}"


def kernels_of(name, dtype):
    """Name and kernel of every function of a robot, but for the largest."""
    robot = qddot.load(name)
    for function in names_of(robot):
        kernel = kernel_of(robot, function, dtype=dtype, target="cuda")
        if kernel.info.instructions <= MAX_OPS:
            yield function, kernel


def headers(name):
    """Of all kernels of a robot, by function, one a type."""
    found = {}
    for dtype in DTYPES:
        for function, kernel in kernels_of(name, dtype):
            found.setdefault(function, []).append(header(kernel))
    return found


def emulated(kernel):
    """A kernel for a grid, on emulated threads."""
    _, (model, request) = kernel.__reduce__()
    function = lookup(request.function, request.method)[0]
    whole = kernel.output if kernel.layout is None else kernel.layout.places.shape
    _, program = pipeline.program_for(model, request, whole)
    if request.packed:
        program, _ = pipeline.packed(program, whole)
    inputs = input_shapes(model, function, request.free)
    return Emulated(program, inputs, kernel.output, request.dtype, nvptx.named(""))


def differing(name, dtype):
    """The functions of a robot whose bits on emulated threads are not those of this processor's kernels."""
    robot = qddot.load(name)
    known = given(robot)
    for function, kernel in kernels_of(name, dtype):
        if kernel.info.ops.get("arctan2"):
            continue  # of qddot's own there, of the C library here
        arrays = [np.ascontiguousarray(known[x], dtype) for x in ALL[function].inputs]
        wanted = kernel_of(robot, function, dtype=dtype)(*arrays)
        out = np.full_like(wanted, np.nan)
        emulated(kernel)("rows", *arrays, out=out)
        if not np.array_equal(out, wanted, equal_nan=True):
            yield function


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.support.golden_grids", description=__doc__)
    parser.add_argument("robots", nargs="*", default=NAMES)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", qddot.QddotWarning)
        made = {name: headers(name) for name in options.robots}
    text = json.dumps(made, indent=1, ensure_ascii=False) + "\n"
    if options.write:
        FILE.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
