"""What watching pivots costs a batch: `python -m benchmarks.pivots`.

Kernels with floors under the pivots that can vanish (`qddot.dynamics.conditioning`) against the same kernels without, and
the look at the count of invalid calls that `Robot` takes around each call: one thread, contestants interleaved, the ratio
formed within each round. Robots whose links all have mass have no floors, and their kernels are the same. Close other
programs before.
"""

import argparse
import statistics
import time

import numpy as np

import qddot
from qddot.compiler.runtime import stored
from qddot.compiler.runtime.llvm_compile import invalid_calls
from qddot.dynamics import catalogue, choose, conditioning, pipeline
from qddot.dynamics.request import Request
from qddot.joints import Revolute, SphericalEuler, SphericalExponential

STATES, ROUNDS = 4096, 101
FUNCTIONS = ("forward_dynamics", "mass_matrix_inverse")


def arm(joint, hinges):
    """A body on a ball joint and hinges on it in a row."""
    b = qddot.Builder(f"{joint.kind} and {hinges} hinges").link("body", 2.0, (0.1, 0.2, 0.3), np.diag([0.3, 0.4, 0.5]))
    b.joint("ball", "world", "body", joint)
    for k in range(hinges):
        axis = ((0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (1.0, 0.0, 0.0))[k % 3]
        b.link(f"l{k}", 1.0, (0.1, 0.05, 0.1), np.diag([0.03, 0.04, 0.05]))
        b.joint(
            f"j{k}", f"l{k - 1}" if k else "body", f"l{k}", Revolute(axis), qddot.pose((0.3, 0.1, 0.0), (0.3, 0.2, 0.1))
        )
    return b.robot()


def wrist():
    """Six hinges, the last three at one point with no mass between them."""
    b, parent = qddot.Builder("massless wrist"), "world"
    for k, axis in enumerate("zyyzyz"):
        body = () if k in (3, 4) else (2.0, (0.1, 0.0, 0.05), np.diag([0.02, 0.03, 0.04]))
        at = qddot.pose((0.0, 0.0, 0.0) if k > 3 else (0.3, 0.0, 0.1))
        b.link(f"l{k}", *body).joint(f"j{k}", parent, f"l{k}", Revolute(tuple(float(axis == x) for x in "xyz")), at)
        parent = f"l{k}"
    return b.robot()


ROBOTS = (
    lambda: arm(SphericalEuler("xyz"), 0),
    lambda: arm(SphericalEuler("xyz"), 6),
    lambda: arm(SphericalExponential(), 6),
    lambda: arm(SphericalEuler("xyz"), 24),
    wrist,
    lambda: qddot.load("puma560"),
)


def without_floors(model, name):
    """The kernel as it would be if nothing was watched; of a model that is not the cached one."""
    watch, conditioning.guarded = conditioning.guarded, lambda model, numbers=None, dtype="float64": model
    cache, stored.default_cache = stored.default_cache, _NoCache
    try:
        return pipeline.build(model, Request(name, choose.cheapest(model, name, "auto").method))
    finally:
        conditioning.guarded, stored.default_cache = watch, cache


class _NoCache:
    def get(self, key):
        return None

    def put(self, key, value):
        pass


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pivots", description=__doc__.splitlines()[0])
    parser.add_argument("--states", type=int, default=STATES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args(arguments)
    qddot.set_num_threads(1)
    count = invalid_calls()
    print(f"{options.states} states, {options.rounds} rounds, one thread, float64: median and (quartiles) within a round\n")
    print("| robot | function | instructions: without, with | with / without | with and looked at / without |")
    print("|---|---|---|---|---|")
    for make in ROBOTS:
        robot = make()
        rng = np.random.default_rng(0)
        q, v = (np.stack(x) for x in zip(*(robot.random_state(rng) for _ in range(options.states)), strict=True))
        known = {"q": q, "v": v, "tau": v[::-1].copy()}
        for name in FUNCTIONS:
            inputs = [known[x] for x in catalogue.FUNCTIONS[name].inputs]
            watched = robot.kernel(name)
            plain = without_floors(robot.model, name)
            out = watched(*inputs)
            assert np.allclose(out, plain(*inputs), rtol=1e-9, atol=1e-9 * np.max(np.abs(out)))

            def looked_at(watched=watched, inputs=inputs, out=out, robot=robot, name=name):
                before = count.value
                watched(*inputs, out=out)
                if count.value != before:
                    robot.engine.solvability.has_lost(len(out.shape) - 1, name, out)

            ways = (
                lambda plain=plain, inputs=inputs, out=out: plain(*inputs, out=out),
                lambda watched=watched, inputs=inputs, out=out: watched(*inputs, out=out),
                looked_at,
            )
            times = [[] for _ in ways]
            for r in range(options.rounds):
                for k in range(3) if r % 2 else (2, 1, 0):
                    begin = time.perf_counter()
                    ways[k]()
                    times[k].append(time.perf_counter() - begin)
            cells = [statistics.quantiles((x / y for x, y in zip(t, times[0], strict=True)), n=4) for t in times[1:]]
            ratios = " | ".join(f"{m:.3f} ({a:.3f}–{b:.3f})" for a, m, b in cells)
            print(
                f"| {robot.name} | {name} | {plain.info.instructions}, {watched.info.instructions} | {ratios} |", flush=True
            )


if __name__ == "__main__":
    main()
