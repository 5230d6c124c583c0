"""How long the functions should be that unrolled code is cut into: `python -m benchmarks.chunks`.

Prints compile time and time a state of the lanes kernel for several lengths, contestants interleaved.
"""

import statistics
import time

import numpy as np

import qddot
from benchmarks.cases import case
from qddot.compiler.codegen.abi import gufunc
from qddot.compiler.codegen.llvm import memory_plan
from qddot.compiler.ir.fuse import fused
from qddot.compiler.runtime import llvm_compile
from qddot.compiler.runtime.gufunc import kernel as kernel_from_code
from qddot.compiler.runtime.kernel import Info
from qddot.compiler.targets.host import host
from qddot.dynamics import trace

LENGTHS = (250, 400, 1000, 10**9)
CASES = (("panda7", "inverse_dynamics"), ("talos-fixed", "inverse_dynamics"), ("talos-floating", "forward_dynamics"))
STATES, ROUNDS = 4096, 11


def kernel(program, names, inputs, output, length):
    memory_plan.FUNCTION_MAX_OPS = length
    begin = time.perf_counter()
    data = llvm_compile.compile_object(gufunc.render(program, inputs, [output], host().lanes("float64"), "float64", host()))
    info = Info(
        "chunks", "", "unrolled", "float64", 8, {}, len(program.body), len(data), time.perf_counter() - begin, False
    )
    return kernel_from_code(llvm_compile.Code(data), names, inputs, output, info, lambda: "")


def main() -> None:
    qddot.set_num_threads(1)
    print("| robot, function | operations | length | compile, s | ns a state |\n|---|---|---|---|---|")
    for name, function in CASES:
        robot = case(name, 8).robot
        model, rng = robot.model, np.random.default_rng(0)
        states = [robot.random_state(rng) for _ in range(64)]
        q, v = (np.resize(np.stack(x), (STATES, x[0].size)) for x in zip(*states, strict=True))
        method = robot.kernel(function).info.method
        program = fused(trace.traced(model, function, method))
        shapes = [(model.nq,), (model.nv,), (model.nv,)]
        kernels = {n: kernel(program, ("q", "v", "x"), shapes, (model.nv,), n) for n in LENGTHS}
        out, times = np.empty((STATES, model.nv)), {n: [] for n in LENGTHS}
        for _ in range(ROUNDS):
            for n, k in kernels.items():
                begin = time.perf_counter()
                k(q, v, v, out=out)
                times[n].append((time.perf_counter() - begin) / STATES * 1e9)
        for n, k in kernels.items():
            length = "one function" if n == 10**9 else n
            median = statistics.median(times[n])
            print(f"| {name} {function} | {k.info.instructions} | {length} | {k.info.compile_seconds:.2f} | {median:.0f} |")


if __name__ == "__main__":
    main()
