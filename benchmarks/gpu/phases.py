"""How programs fall apart into phases for several warps a state: `python -m benchmarks.gpu.phases [--robots …]`.

For each number of warps: the sum over phases of what the busiest warp does, loads and stores among it, and an even share of
the operations; phases, values that cross, loads of values and inputs, shared memory; and, where NVIDIA's assembler is
installed, registers, local memory, spills and its time.
"""

import argparse
import shutil
import tempfile
from pathlib import Path

from benchmarks.gpu import cases, prepare, report
from benchmarks.gpu.ptxas import assembled
from qddot.compiler.codegen.abi import grid
from qddot.compiler.codegen.llvm.thread_arguments import angles_of
from qddot.compiler.codegen.llvm.thread_phases import phases, work_of
from qddot.compiler.codegen.llvm.thread_registers import loads
from qddot.compiler.codegen.llvm.thread_warps import known_before
from qddot.compiler.runtime import ptx
from qddot.compiler.targets import nvptx

WARPS = (2, 4, 8, 16)
_FUNCTIONS = ("inverse_dynamics_derivatives", "forward_dynamics_derivatives")
_COLUMNS = ("warps", "longest", "even share", "phases", "crossing", "loads", "shared B")
_ASSEMBLED = ("registers", "stack B", "spilled B", "ptxas s")


def rows(folder: Path, case: cases.Case, warps: list[int], capability: str) -> list[tuple[str, ...]]:
    """One for each number of warps."""
    program, inputs, output = prepare.traced(folder, case)
    found, target = [], nvptx.named("")
    for count in warps:
        options = grid.GridOptions(strided=False, warps_per_state=count)
        work = work_of(program, known_before(program, angles_of(program, inputs[0][0])))
        made = phases(work, count, options.most_places)
        loaded = loads(program, work, made, 3 * min(255, 2048 // count) // 4)
        crossing = {x for k, own in enumerate(work.operands) for x in own if made.warp[x] != made.warp[k]}
        text, facts = grid.render(program, inputs, output, case.dtype, target, options)
        row = [count, sum(made.longest), sum(work.cost) // count, made.count, len(crossing)]
        row += [sum(len(x) for own in loaded for x in own.values()), facts.shared_bytes]
        more = _assembled(ptx.compile_ptx(text, target).decode(), capability) if shutil.which("ptxas") else ()
        found.append(tuple(f"{x:,}" for x in row) + more)
    return found


def _assembled(code: str, capability: str) -> tuple[str, ...]:
    try:
        found = assembled(code, capability)
    except ValueError as error:
        return "–", "–", "–", str(error).splitlines()[-1]
    return f"{found.registers}", f"{found.stack_bytes:,}", f"{found.spilled_bytes:,}", f"{found.seconds:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.phases", description=__doc__)
    parser.add_argument("--robots", default=",".join(cases.ROBOTS))
    parser.add_argument("--functions", default=",".join(_FUNCTIONS))
    parser.add_argument("--warps", default=",".join(map(str, WARPS)))
    parser.add_argument("--dtype", default="float32", choices=cases.DTYPES)
    parser.add_argument("--arch", default="sm_90", help="what ptxas assembles for")
    parser.add_argument("--folder", type=Path, help="where traced programs and saved robots are")
    given = parser.parse_args()
    columns = (*_COLUMNS, *(_ASSEMBLED if shutil.which("ptxas") else ()))
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        for robot in cases.available(given.robots.split(","), folder / "robots"):
            for function in given.functions.split(","):
                case = cases.Case(robot, function, given.dtype)
                made = rows(folder, case, [int(x) for x in given.warps.split(",")], given.arch)
                program = prepare.traced(folder, case)[0]
                print(f"\n{robot} {cases.FUNCTIONS[function].title} {given.dtype}: {len(program.body):,} operations\n")
                print(report.markdown(columns, made), flush=True)


if __name__ == "__main__":
    main()
