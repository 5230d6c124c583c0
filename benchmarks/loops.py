"""Constrained forward dynamics against Pinocchio's C++: python -m benchmarks.loops

A five-bar, and two PUMA arms that hold one object (six rows). One thread; qddot in lanes over a batch. Pinocchio is given
what suits it: hinges of a plane as points, a proximal parameter as small as independent rows allow, and as many iterations
as its result needs to be right.
"""

import ctypes
import time

import numpy as np

import qddot
from benchmarks import native, pinocchio_peer
from qddot.dynamics.constrained_solver import solver_of
from qddot.joints import Fixed
from qddot.spatial import constant_transform

STATES, ROUNDS = 4096, 15


def two_arms() -> tuple[qddot.Robot, np.ndarray]:
    """Two PUMA 560 without rotors, 1 m apart, and where they start; the first carries a box that the second holds too."""
    arm = qddot.load("puma560").model
    b = qddot.Builder("two_arms", allow_unphysical=True)  # inertias as published
    for side, x in (("left", -0.5), ("right", 0.5)):
        for i, p in arm.outward():
            m, h, I = arm.inertia[i]
            c = np.array(h) / m if m else np.zeros(3)
            about = np.array(I) - m * (c @ c * np.eye(3) - np.outer(c, c))
            name = f"{side}_{arm.link_names[i]}"
            b.link(name, m, c.tolist(), about.tolist())
            parent = "world" if p == 0 else f"{side}_{arm.link_names[p]}"
            placement = arm.placement[i]
            if p == 0:
                T = qddot.pose((x, 0.0, 0.0), (0.0, 0.0, 0.0 if x < 0 else np.pi)) @ placement
                placement = constant_transform(T.R.rows, T.p)
            b.joint(f"{side}_{arm.joint_names[i]}", parent, name, arm.joint[i], placement)
    b.link("box", 2.0, (0.0, 0.0, 0.1), np.diag([0.02, 0.02, 0.01]))
    b.joint("grip", f"left_{arm.link_names[-1]}", "box", Fixed(), qddot.pose((0.0, 0.0, 0.1)))
    tree = qddot.Robot(b.model())
    q = np.array([0.2, -0.6, 2.2, 0.3, -0.5, 0.4] * 2)
    A, B = (tree.pose(q, f"{side}_{arm.link_names[-1]}") for side in ("left", "right"))
    held = np.linalg.inv(B) @ A  # where the second hand finds the first
    at = constant_transform(tuple(map(tuple, held[:3, :3].tolist())), tuple(held[:3, 3].tolist()))
    hands = [f"{side}_{arm.link_names[-1]}" for side in ("left", "right")]
    b.loop("hold", *hands, Fixed(), constant_transform(), at)
    return b.robot(), q


def describe(model: qddot.mechanism.model.Model) -> tuple[str, list[int]]:
    """The model as `loops_bench.cpp` reads it, depth first, and the order of our degrees of freedom in it."""

    def pose(T) -> list[float]:
        return [*np.ravel(T.R.rows).tolist(), *T.p]

    lines, ids, order = [], {0: 0}, []

    def add(i: int) -> None:
        m, h, I = model.inertia[i]
        c = np.array(h) / m if m else np.zeros(3)
        about = np.array(I) - m * (c @ c * np.eye(3) - np.outer(c, c))
        ids[i] = len(ids)
        order.append(model.slots[i].v.start)
        numbers = [ids[model.parent[i]], *model.joint[i].axis, *pose(model.placement[i]), m, *c, *about.ravel()]
        lines.append(" ".join(repr(float(x)) if k else str(x) for k, x in enumerate(numbers)))
        for k in (k for k, p in model.outward() if p == i):
            add(k)

    for i in (i for i, p in model.outward() if p == 0):
        add(i)
    for loop in model.loops:
        rows = 6 if loop.joint.nv == 0 else 3
        a, b = (" ".join(map(repr, map(float, pose(T)))) for T in (loop.placement_a, loop.placement_b))
        lines.append(f"{rows} {ids[loop.link_a]} {a} {ids[loop.link_b]} {b}")
    return f"{model.n_links} {len(model.loops)} {' '.join(map(repr, model.gravity))}\n" + "\n".join(lines), order


def compare(robot: qddot.Robot, around: np.ndarray, spread: float, mu: float, iterations: int, library) -> None:
    robot = qddot.Robot(robot.model.without_passive_forces())
    rng = np.random.default_rng(0)
    q, _ = robot.close_loops(around + spread * rng.standard_normal((64, robot.nv)))
    q = np.resize(q, (STATES, robot.nv))
    v = robot.project_velocity(q, rng.standard_normal((STATES, robot.nv)))
    tau = rng.standard_normal((STATES, robot.nv))
    kernel = robot.kernel("constrained_forward_dynamics")
    out = kernel(q, v, tau)
    text, order = describe(robot.model)
    lib = library.load()
    lib.make.restype, lib.run.restype = ctypes.c_void_p, ctypes.c_double
    lib.make.argtypes = [ctypes.c_char_p, ctypes.c_double, ctypes.c_int]
    bench = ctypes.c_void_p(lib.make(text.encode(), mu, iterations))
    arrays = [np.ascontiguousarray(x[:, order]) for x in (q, v, tau)]
    theirs = np.zeros_like(arrays[0])
    ours, other = [], []
    qddot.set_num_threads(1)
    for _ in range(ROUNDS):
        other.append(lib.run(bench, STATES, *map(native.doubles, arrays), native.doubles(theirs)) / STATES)
        begin = time.perf_counter()
        kernel(q, v, tau, out=out)
        ours.append((time.perf_counter() - begin) / STATES)
    a = out[:, : robot.nv][:, order]
    error = np.max(np.abs(a - theirs)) / np.max(np.abs(a))
    one, two = 1e9 * min(ours), 1e9 * min(other)
    info = kernel.info
    print(
        f"{robot.name:10} {robot.model.nv:3} DoF, {len(solver_of(robot.engine).rows)} rows: qddot {one:7.1f} ns "
        f"({info.method}, {info.instructions} operations, {info.lanes} lanes), Pinocchio {two:8.1f} ns, "
        f"ratio {two / one:.1f}, difference {error:.1e}"
    )


def main() -> None:
    """Prints a line a mechanism and compiler."""
    for compiler in ("g++", "clang++"):
        try:
            library = pinocchio_peer.build(compiler, native.default_build_dir(), "loops_bench.cpp")
        except native.Unavailable as error:
            print(error)
            continue
        print(library.command.split()[0], native.version_of(compiler))
        fivebar = qddot.load("fivebar")
        compare(fivebar, fivebar.neutral(), 0.2, 1e-8, 3, library)
        arms, q = two_arms()
        compare(arms, q, 0.2, 0.0, 1, library)
        compare(arms, q, 0.2, 1e-8, 2, library)


if __name__ == "__main__":
    main()
