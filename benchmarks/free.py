"""What it costs that a robot's inertias are inputs: `python -m benchmarks.free`.

Inverse dynamics with every inertia free against the folded kernel, on the same states, one thread, contestants interleaved;
the ratio is formed within each round. Before the clock runs, results are compared with the folded kernel's. "As the file
has it" is the folded kernel without regrouping, which free inertias do without as well. "Only reading" is a kernel that
adds up the parameters of a state and does nothing else.
"""

import statistics
import time

import numpy as np

import qddot
from benchmarks.cases import case
from qddot.compiler.codegen.abi import gufunc
from qddot.compiler.ir.expr import trace
from qddot.compiler.ir.fuse import fused
from qddot.compiler.ir.program import straight_line
from qddot.compiler.runtime import llvm_compile
from qddot.compiler.runtime.gufunc import kernel as kernel_from_code
from qddot.compiler.runtime.kernel import Info
from qddot.compiler.targets.host import host

CASES = ("ur5", "panda7", "g1-fixed", "talos-floating")
STATES, ROUNDS = 4096, 101


def reader(shape):
    """A kernel that adds up an array of this shape."""
    graph, nodes, _ = trace(lambda x: np.array([sum(x)], dtype=object), [int(np.prod(shape))])
    program = fused(straight_line(graph, nodes, int(np.prod(shape))))
    lanes = host().lanes("float64")
    text = gufunc.render(program, [shape], [(1,)], lanes, "float64", host())
    info = Info("reading", "", "unrolled", "float64", lanes, program.count(), len(program.body), 0, 0.0, False)
    return kernel_from_code(
        llvm_compile.Code(llvm_compile.compile_object(text)), ["parameters"], [shape], (1,), info, lambda: ""
    )


def main() -> None:
    qddot.set_num_threads(1)
    print(f"{STATES} states, {ROUNDS} rounds, one thread, float64: median and (quartiles) of the ratios within a round\n")
    print("| robot | parameters | operations | ns a state | times folded |\n|---|---|---|---|---|")
    for name in CASES:
        c = case(name, 64)
        q, v, a = (np.resize(x, (STATES, x.shape[1])) for x in (c.q, c.v, c.a))
        folded, free = c.robot.kernel("inverse_dynamics"), c.robot.kernel("inverse_dynamics", free=("inertia",))
        one = c.robot.parameters("inertia")
        many = one * np.random.default_rng(0).uniform(0.9, 1.1, (STATES, *one.shape))
        expected = folded(q, v, a)
        assert np.max(np.abs(free(q, v, a, one) - expected)) < 1e-11 * np.max(np.abs(expected))
        out, sums = np.empty_like(expected), np.empty((STATES, 1))
        contestants = {
            "folded": (folded, (q, v, a)),
            "one robot": (free, (q, v, a, one)),
            f"{STATES} robots": (free, (q, v, a, many)),
            "as the file has it": (c.robot.kernel("inverse_dynamics", regroup=False), (q, v, a)),
            "only reading": (reader(one.shape), (many,)),
        }
        times = {n: [] for n in contestants}
        for _ in range(ROUNDS):
            for n, (kernel, inputs) in contestants.items():
                begin = time.perf_counter()
                kernel(*inputs, out=sums if n == "only reading" else out)
                times[n].append((time.perf_counter() - begin) / STATES * 1e9)
        for n, own in times.items():
            ratios = [x / y for x, y in zip(own, times["folded"], strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            ops = sum(contestants[n][0].info.ops.values())
            spread = "1" if n == "folded" else f"{middle:.2f} ({low:.2f}–{high:.2f})"
            print(f"| {name} | {n} | {ops} | {statistics.median(own):.0f} | {spread} |")


if __name__ == "__main__":
    main()
