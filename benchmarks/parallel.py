"""Divide and conquer against articulated bodies, one state of long chains: `python -m benchmarks.parallel`.

Random revolute chains, float64. First, what grows how: the time for one state by every formulation of forward dynamics that
is O(n), run by Python as it is written (eager) or compiled with loops over links (rolled), the exponent of growth over the
range, and the most memory of an eager call. Second, from which length on O(log n) steps win, and what they would have to
cost to win against compiled code: the join of two assemblies, compiled, in lanes. Contestants run
interleaved; times are the least.
"""

import argparse
import math
import time
import tracemalloc

import numpy as np

import qddot
from qddot.algorithms import articulated_body
from qddot.algorithms.papers import augmented, divide_and_conquer, operators
from qddot.algorithms.papers.tree_contraction import schedule
from qddot.compiler.codegen.abi import gufunc
from qddot.compiler.ir.expr import trace
from qddot.compiler.ir.fuse import fused
from qddot.compiler.ir.program import straight_line
from qddot.compiler.runtime import llvm_compile
from qddot.compiler.runtime.gufunc import kernel as kernel_from_code
from qddot.compiler.runtime.kernel import Info
from qddot.compiler.targets.host import host
from qddot.dynamics import pipeline
from qddot.dynamics.request import Request
from qddot.errors import NotRollableError

LENGTHS = (10, 30, 100, 300, 1000, 3000, 10_000)
LEAST_SECONDS, MOST_ROUNDS, LEAST_ROUNDS = 0.3, 300, 3
EAGER = {
    "articulated_body": articulated_body.forward_dynamics,
    "operators": operators.forward_dynamics,
    "augmented": augmented.forward_dynamics,
    "constraint_forces": augmented.forward_dynamics_constraint_forces,
    "divide_and_conquer": divide_and_conquer.forward_dynamics,
}
ROLLED = ("articulated_body_classical", "operators", "augmented")


def race(contestants):
    """The least time of a call of each, interleaved."""
    times = {name: [] for name in contestants}
    for call in contestants.values():
        call()
    for _ in range(MOST_ROUNDS):
        for name, call in contestants.items():
            if len(times[name]) >= LEAST_ROUNDS and sum(times[name]) > LEAST_SECONDS:
                continue
            begin = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - begin)
    return {name: min(x) for name, x in times.items()}


def contestants(n):
    robot = qddot.chain(n, rng=0)
    q, v = robot.random_state(0)
    tau = np.random.default_rng(1).standard_normal(n)
    out = {f"{name}, eager": lambda f=f: f(robot.model, q, v, tau) for name, f in EAGER.items()}
    for name in ROLLED:
        try:
            kernel = pipeline.build(robot.model, Request("forward_dynamics", name, form="rolled"))
        except NotRollableError as error:
            print(f"{name} of {n} links cannot be compiled with loops over links: {error}")
            continue
        out[f"{name}, rolled"] = lambda k=kernel: k(q, v, tau)
    return out


def memory(call):
    tracemalloc.start()
    call()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def compiled_join(lanes):
    """`behind` and `joined` for joints of one DoF, all their numbers inputs: a kernel over many joints."""
    shapes = [(6, 6), (6, 1), (6,), (1,), (1,), *2 * [(6, 6), (6, 6), (6, 6), (6,), (6,)]]

    def join(*vectors):
        x = [vector.reshape(1, *shape) for vector, shape in zip(vectors, shapes, strict=True)]
        links, inner, outer = (
            divide_and_conquer.Links(*x[:5]),
            divide_and_conquer.Element(*x[5:10]),
            divide_and_conquer.Element(*x[10:]),
        )
        felt, _ = divide_and_conquer.behind(links, slice(None), outer, np.array([False]))
        whole, _ = divide_and_conquer.joined(inner, felt)
        return np.concatenate([np.ravel(y) for y in whole])

    sizes = [math.prod(s) for s in shapes]
    graph, nodes, _ = trace(join, sizes)
    program = fused(straight_line(graph, nodes, sum(sizes)))
    width = host().lanes("float64") if lanes is None else lanes
    inputs, output = [(n,) for n in sizes], (len(nodes),)
    rendered = gufunc.render(program, inputs, [output], width, "float64", host())
    code, count = llvm_compile.Code(llvm_compile.compile_object(rendered)), len(program.body)
    info = Info("join", "divide_and_conquer", "unrolled", "float64", width, program.count(), count, 0, 0.0, False)
    return kernel_from_code(code, [f"x{k}" for k in range(len(sizes))], inputs, output, info, lambda: "")


def growth(lengths, times):
    """The exponent between the first length of 100 or more and the last."""
    first = next(k for k, n in enumerate(lengths) if n >= 100 or k == len(lengths) - 2)
    return math.log(times[-1] / times[first]) / math.log(lengths[-1] / lengths[first])


def main(words=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parallel", description=__doc__)
    parser.add_argument("--lengths", type=lambda text: [int(x) for x in text.split(",")], default=list(LENGTHS))
    lengths = parser.parse_args(words).lengths
    found = []
    for n in lengths:
        found.append(race(contestants(n)))
        print(f"{n} links measured", flush=True)
    print(f"\n| formulation | {' | '.join(f'{n} links' for n in lengths)} | exponent | MB at {lengths[-1]}, at a tenth |")
    print("|---|" + "---|" * (len(lengths) + 2))
    calls, fewer = contestants(lengths[-1]), contestants(max(1, lengths[-1] // 10))
    for name in found[-1]:
        times = [x[name] for x in found]
        used = [memory(c[name]) / 1e6 for c in (calls, fewer)] if "eager" in name else []
        cells = " | ".join(f"{1e3 * t:.3g} ms" for t in times)
        print(f"| {name} | {cells} | {growth(lengths, times):.2f} | {', '.join(f'{m:.2f}' for m in used)} |")
    _crossover(lengths, found)


def _crossover(lengths, found):
    split = [x["divide_and_conquer, eager"] for x in found]
    for rival in ("articulated_body, eager", "articulated_body_classical, rolled"):
        wins = [n for n, t, x in zip(lengths, split, found, strict=True) if t < x[rival]]
        said = f"wins from {min(wins)} links on" if wins and wins == lengths[-len(wins) :] else "does not win"
        print(f"\ndivide and conquer against {rival}: {said} ({split[-1] / found[-1][rival]:.3g} of its time at the end)")
    plan = [schedule((-1, *range(n)), (True,) * (n + 1)) for n in lengths]
    print("\n| links | steps one after another | joins |\n|---|---|---|")
    for n, p in zip(lengths, plan, strict=True):
        print(f"| {n} | {p.depth} | {p.joins} |")
    _bound(found[-1]["articulated_body_classical, rolled"] / lengths[-1])


def _bound(aba):
    """What compiled joins cost, against a link of rolled ABA."""
    rng = np.random.default_rng(0)
    print(f"\nrolled ABA: {1e9 * aba:.0f} ns a link. The join of two assemblies, compiled:")
    print("\n| lanes | threads | instructions | ns a join | times ABA's link |\n|---|---|---|---|---|")
    most = qddot.get_num_threads()
    for lanes, threads in ((1, 1), (None, 1), (None, most)):
        qddot.set_num_threads(threads)
        kernel = compiled_join(lanes)
        arrays = [rng.standard_normal((5000, *shape)) for shape in kernel.inputs]
        t = race({"join": lambda k=kernel, x=arrays: k(*x)})["join"] / 5000
        print(f"| {kernel.info.lanes} | {threads} | {kernel.info.instructions} | {1e9 * t:.0f} | {t / aba:.1f} |")
    qddot.set_num_threads(most)


if __name__ == "__main__":
    main()
