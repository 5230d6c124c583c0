"""What LLVM's model of a processor says of a kernel's arithmetic: `python -m benchmarks.throughput` (needs llvm-mca).

Cycles for one block of lanes, of the straight-line functions alone: no sines and cosines of inputs, no rows that become
columns and back, no memory but the L1 cache. By the model a kernel cannot be faster, whatever surrounds its arithmetic.
"""

import argparse
import re
import shutil
import subprocess
import sys

from benchmarks.cases import ROBOTS, case

VECTORS = ("inverse_dynamics", "forward_dynamics")
MATRICES = ("mass_matrix", "inverse_dynamics_derivatives", "forward_dynamics_derivatives")  # packed
_FUNCTION = re.compile(r"\n(chunk\d+_\d+):.*?\n(.*?)\n\.Lfunc_end", re.DOTALL)
_TIMES = 10  # that a function is repeated, so that its calls overlap
_NO_INSTRUCTION = re.compile(r"\s*(\.(cfi|p2align|set)|(call|ret|j\w+)\b)")


def bound(assembly, lanes, model, mca):
    """Instructions and cycles of the functions for a block of so many lanes."""
    count = cycles = 0
    for name, body in _FUNCTION.findall(assembly):
        if not name.startswith(f"chunk{lanes}_"):
            continue
        lines = [line.split("#")[0] for line in body.splitlines() if not _NO_INSTRUCTION.match(line)]
        command = [mca, f"-mcpu={model}", f"-iterations={_TIMES}"]
        said = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=True).stdout
        found = {key: int(re.search(rf"{key}:\s+(\d+)", said)[1]) for key in ("Instructions", "Total Cycles")}
        count, cycles = count + found["Instructions"] // _TIMES, cycles + found["Total Cycles"] / _TIMES
    return count, cycles


def main(words=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput", description=__doc__.splitlines()[0])
    parser.add_argument("--robots", default="ur5,panda7,solo12-floating,g1-fixed,talos-floating", help=", ".join(ROBOTS))
    parser.add_argument("--functions", default=",".join(VECTORS + MATRICES))
    parser.add_argument("--target", default="cpu:x86-64-v3")
    parser.add_argument("--model", default="znver3", help="of the processor, by LLVM's name")
    options = parser.parse_args(words)
    mca = shutil.which("llvm-mca")
    if mca is None:
        print("llvm-mca is not installed: it comes with LLVM's tools", file=sys.stderr)
        return 2
    print(f"| robot | function | instructions | cycles a block ({options.model}) |\n|---|---|---|---|")
    for name in options.robots.split(","):
        robot = case(name, 8).robot
        for function in options.functions.split(","):
            kernel = robot.kernel(function, target=options.target, packed=function in MATRICES)
            count, cycles = bound(kernel.assembly, kernel.info.lanes, options.model, mca)
            print(f"| {name} | {function} | {count} | {cycles:.0f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
