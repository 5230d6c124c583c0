"""Steps a second of the classical Runge-Kutta method against MuJoCo and Pinocchio: python -m benchmarks.rollouts

Panda without gripper joints, free fall from random states, the same step for all. qddot runs the batch in lanes on one
thread; MuJoCo is its `mj_step` with its RK4 on the same model without contact, in C; Pinocchio is a C++ loop around its
ABA. All run interleaved in one process, and end where the others end, or the run stops. The peers do fewer samples, one
after another: they gain nothing from more.
"""

import argparse
import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import qddot
from benchmarks import cases, mujoco_peer, native, pinocchio_peer
from benchmarks.contest import Contestant, check, clocked, fastest, race, ratio
from qddot.simulation import Rollout

SAMPLES, STEPS, DT = 1024, 200, 1e-3
FEW = 16  # samples of the peers
TOLERANCE = 1e-9  # of the states after 0.2 s: rounding, with room for what a falling arm makes of it
OURS, RECORDED, ONE = "qddot lanes", "qddot lanes, every step recorded", "qddot one sample"
MUJOCO = "MuJoCo C mj_step"


def ours(case: cases.Case) -> Iterator[Contestant]:
    """The loop over time, and the same with every step written out."""
    robot = case.robot
    rollout = Rollout(robot, dt=DT)
    start, single = rollout.start(case.q, case.v), rollout.start(case.q[:1], case.v[:1])

    def ends(count: int) -> np.ndarray:
        return np.stack([rollout.run(rollout.start(q, v), STEPS, STEPS)[0].state for q, v in _states(case, count)])

    def lanes(count: int) -> np.ndarray:
        return rollout.run(start, STEPS, STEPS)[0].state[:count]

    yield Contestant(OURS, lanes, clocked(lambda: rollout.run(start, STEPS, STEPS)), SAMPLES * STEPS)
    yield Contestant(RECORDED, lanes, clocked(lambda: rollout.run(start, STEPS, 1)), SAMPLES * STEPS)
    yield Contestant(ONE, ends, clocked(lambda: rollout.run(single, STEPS, STEPS)), STEPS)


def _states(case: cases.Case, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return list(zip(case.q[:count], case.v[:count], strict=True))


def mujoco(case: cases.Case, build_dir: Path) -> Iterator[Contestant]:
    try:
        import mujoco as engine
    except ImportError as missing:
        raise native.Unavailable("the package mujoco is not installed") from missing
    folder = Path(engine.__file__).parent
    flags = ("-std=c11", "-D_GNU_SOURCE", f"-isystem{folder / 'include'}")
    libraries = (str(next(folder.glob("libmujoco.so.*"))), f"-Wl,-rpath,{folder}")
    library = native.build("rollouts_mujoco.c", "gcc", flags, build_dir, libraries).load()
    library.run.restype = ctypes.c_double
    model = mujoco_peer.to_mujoco(case.robot.model)
    model.opt.timestep, model.opt.integrator = DT, engine.mjtIntegrator.mjINT_RK4
    model.opt.disableflags |= engine.mjtDisableBit.mjDSBL_CONTACT
    q, v = (np.ascontiguousarray(x[:FEW]) for x in (case.q, case.v))
    out = np.empty((FEW, 2 * case.robot.nv))

    def run(count: int = FEW) -> float:
        address = ctypes.c_void_p(model._address)
        return float(library.run(address, count, STEPS, *map(native.doubles, (q, v, out))))

    yield Contestant(MUJOCO, lambda count: (run(count), out[:count].copy())[1], run, FEW * STEPS)


def pinocchio(case: cases.Case, build_dir: Path, compiler: str) -> Iterator[Contestant]:
    library = pinocchio_peer.build(compiler, build_dir, "rollouts_bench.cpp").load()
    library.make.restype, library.run.restype = ctypes.c_void_p, ctypes.c_double
    bench = ctypes.c_void_p(library.make(pinocchio_peer.describe(case).encode()))
    q, v = (np.ascontiguousarray(x[:FEW]) for x in (case.q, case.v))
    out = np.empty((FEW, 2 * case.robot.nv))

    def run(world: int, count: int = FEW) -> float:
        arrays = map(native.doubles, (q, v, out))
        return float(library.run(bench, world, count, STEPS, ctypes.c_double(DT), *arrays))

    for world, variant in enumerate(("LOCAL", "WORLD")):
        yield Contestant(
            f"Pinocchio C++ {compiler}",
            lambda count, world=world: (run(world, count), out[:count].copy())[1],
            lambda world=world: run(world),
            FEW * STEPS,
            variant,
        )


def contestants(case: cases.Case, build_dir: Path) -> list[Contestant]:
    found = list(ours(case))
    for peer in (
        lambda: mujoco(case, build_dir),
        lambda: pinocchio(case, build_dir, "g++"),
        lambda: pinocchio(case, build_dir, "clang++"),
    ):
        try:
            found += peer()
        except native.Unavailable as why:
            print(f"left out: {why}")
    return found


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--turn", type=float, default=0.3, help="seconds of a contestant's turn")
    parser.add_argument("--build-dir", type=Path, default=native.default_build_dir())
    options = parser.parse_args(arguments)
    threads = qddot.get_num_threads()
    qddot.set_num_threads(1)
    try:
        case = cases.case("panda7", SAMPLES)
        case.v *= 0.5
        found = contestants(case, options.build_dir)
        reference = found[0].results(8)
        for c in found:
            check(c, reference, TOLERANCE)
        race(found, options.rounds, options.turn)
    finally:
        qddot.set_num_threads(threads)
    print(f"{native.cpu().get('model name', '')}; panda7, {STEPS} steps of {DT:g} s, {SAMPLES} samples, one thread")
    for c in found:
        print(
            f"{c.name:34} {c.variant:6} {1e9 * c.median:9.1f} ns a step  {1.0 / c.median / 1e6:8.3f} million steps a second"
        )
    ratios = {}
    for name, peer in (
        ("MuJoCo", fastest(found, MUJOCO)),
        ("Pinocchio", fastest(found, "Pinocchio C++ g++", "Pinocchio C++ clang++")),
    ):
        for mine in (OURS, RECORDED, ONE):
            r = ratios[name, mine] = ratio(fastest(found, mine), peer)
            if r is not None:
                print(f"{mine} is {r} as fast as {name}")
    return {"contestants": found, "ratios": ratios}


if __name__ == "__main__":
    main()
