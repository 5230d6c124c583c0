"""What derivatives as products cost: `python -m benchmarks.products [--robots ur5,panda7] [--rounds 31]`.

For inverse and forward dynamics: instructions of the function, of its VJP and of its JVP with respect to all inputs, and
the processor time of each over that of the function, 4096 states, one thread, contestants interleaved, the ratio formed
within each round. A gradient of a loss through the function takes the function and one VJP. Before the clock runs, VJP and
JVP are compared with each other. `--formula` adds the instructions of another way to the VJP of forward dynamics, by the
multiplier, from q, v and tau alone and where the accelerations are given besides (decision 45).
"""

import argparse
import statistics
import time
from dataclasses import replace

import numpy as np

import qddot
from benchmarks.cases import case
from qddot.compiler.ir.differentiate import vjp
from qddot.compiler.ir.expr import Graph
from qddot.compiler.ir.fuse import fused
from qddot.compiler.ir.program import straight_line
from qddot.dynamics import catalogue, trace
from qddot.dynamics.catalogue import lookup
from qddot.spatial.joint_blocks import Vector

CASES = "ur5,panda7,solo12-floating,g1-floating"
STATES = 4096
FUNCTIONS = ("inverse_dynamics", "forward_dynamics")


def by_multiplier(model, method):
    """Instructions of (-VJP of inverse dynamics at a)(M⁻¹ w), and of a and M⁻¹ w by a formulation."""
    graph, nv = Graph(), model.nv
    q, v, tau, w = graph.vectors([model.nq, nv, nv, nv])
    trace.guard_quaternions(model, q)
    row = lookup("forward_dynamics", method)
    model = trace.with_traced_inertias(trace.filling(model, row[0], method, ())(()), graph)
    none = tuple(Vector((0.0,) * len(x)) for x in model.damping)
    at_rest = replace(model, damping=none, friction=none, stiffness=none, gravity=(0.0, 0.0, 0.0))
    a, multiplier = row[2](model, q, v, tau), row[2](at_rest, q, np.zeros(nv), w)
    forces = lookup("inverse_dynamics", "newton_euler_classical")[2](model, q, v, a)
    inputs = graph.nodes_of(np.concatenate([q, v]))
    found = vjp(graph, graph.nodes_of(forces), inputs, graph.nodes_of(-multiplier))
    return len(fused(straight_line(graph, [*found, *graph.nodes_of(multiplier)], model.nq + 3 * nv)).body)


def ratios(contestants, rounds):
    """Processor time of each over the first one's, round by round: what others do on the machine counts less then."""
    times = []
    for _ in range(rounds):
        row = []
        for kernel, arrays in contestants:
            begin = time.process_time()
            kernel(*arrays)
            row.append(time.process_time() - begin)
        times.append([x / row[0] for x in row])
    return [statistics.median(column) for column in zip(*times, strict=True)][1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--robots", default=CASES)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--formula", action="store_true")
    options = parser.parse_args()
    qddot.set_num_threads(1)
    print("| robot | function | instructions | VJP | JVP | time of VJP | of JVP |\n|---|---|---|---|---|---|---|")
    for name in options.robots.split(","):
        c, rng = case(name, STATES), np.random.default_rng(0)
        for function in FUNCTIONS:
            kernels = [c.robot.kernel(function, **x) for x in ({}, {"vjp": True}, {"jvp": True})]
            w, *tangents = rng.standard_normal((4, *c.v.shape))
            arrays = [(c.q, c.v, c.tau), (c.q, c.v, c.tau, w), (c.q, c.v, c.tau, *tangents)]
            row, rates = (k(*x) for k, x in zip(kernels[1:], arrays[1:], strict=True))
            gap = np.abs(np.sum(row * np.concatenate(tangents, axis=-1), axis=-1) - np.sum(w * rates, axis=-1))
            assert np.max(gap / np.linalg.norm(row, axis=-1)) < 1e-9
            costs = [k.info.instructions for k in kernels]
            times = ratios(list(zip(kernels, arrays, strict=True)), options.rounds)
            shown = [costs[0], *(f"{n} ({n / costs[0]:.2f}×)" for n in costs[1:]), *(f"{t:.2f}×" for t in times)]
            print(f"| {name} | {function} | " + " | ".join(map(str, shown)) + " |", flush=True)
        if options.formula:
            methods = catalogue.FUNCTIONS["forward_dynamics"].auto
            alone = min(by_multiplier(c.robot.model, m) for m in methods)
            beside = c.robot.kernel("forward_dynamics", vjp=True, known_result=True).info.instructions
            print(f"| {name} | by the multiplier | | {alone}; {beside} where a is given | | | |")


if __name__ == "__main__":
    main()
