"""How long the first call of a function takes: nothing in the cache, LLVM not loaded yet.

    python -m benchmarks.first_calls
    python -m benchmarks.first_calls --robots g1-floating,tiago_dual --functions forward_dynamics --rounds 5
    python -m benchmarks.first_calls --checkout ../before      # the package of another checkout

Each call runs in a process of its own with an empty cache, one after another; the robot is read before the clock starts.
Seconds are medians of the rounds: wall time, LLVM's part of it, and what other work on the machine changes less, the
processor time of the calling thread (about the wall time of an idle machine) and of all threads together. Where a function
is refused, the time is until the error.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import warnings
from pathlib import Path

FOLDER = Path(sysconfig.get_paths()["purelib"]) / "cmeel.prefix/share/example-robot-data/robots"
ROBOTS = {
    "g1-fixed": ("g1_description/urdf/g1_29dof_rev_1_0.urdf", False),
    "g1-floating": ("g1_description/urdf/g1_29dof_rev_1_0.urdf", True),
    "human": ("human_description/robots/human.urdf", False),
    "romeo-floating": ("romeo_description/urdf/romeo_small.urdf", True),
    "talos-floating": ("talos_data/robots/talos_reduced.urdf", True),
    "centauro": ("centauro_description/urdf/centauro.urdf", False),
    "tiago": ("tiago_description/robots/tiago.urdf", False),
    "g1-hands-floating": ("g1_description/urdf/g1_29dof_with_hand_rev_1_0.urdf", True),
    "tiago_dual": ("tiago_description/robots/tiago_dual.urdf", False),
}
FUNCTIONS = {
    "inverse_dynamics": 3,
    "forward_dynamics": 3,
    "mass_matrix": 1,
    "inverse_dynamics_derivatives": 3,
    "forward_dynamics_derivatives": 3,
}


def first_call(robot_name: str, function: str) -> dict:
    """One first call, in this process."""
    import numpy as np

    import qddot

    warnings.simplefilter("ignore", qddot.QddotWarning)
    file, floating = ROBOTS[robot_name]
    robot = qddot.load(FOLDER / file, floating_base=floating, passive_forces=False)
    rng = np.random.default_rng(0)
    state = (*robot.random_state(rng), rng.standard_normal(robot.nv))[: FUNCTIONS[function]]
    clocks = {"wall": time.perf_counter, "thread": time.thread_time, "process": time.process_time}
    begin = {name: clock() for name, clock in clocks.items()}
    facts: dict = {"dof": robot.nv}
    try:
        kernel = robot.kernel(function)
        kernel(*state)
        facts["what"] = f"{kernel.info.method}, {kernel.info.form}, {kernel.info.instructions} operations"
    except qddot.QddotError as error:
        facts["what"] = type(error).__name__
    return {**facts, **{name: clock() - begin[name] for name, clock in clocks.items()}}


def in_new_process(checkout: Path, robot: str, function: str) -> dict:
    """The same in a process of its own, with LLVM's part of the time."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "PYTHONPATH": str(checkout.resolve()),
            "QDDOT_CACHE_DIR": folder,
            "QDDOT_DEBUG": "time",
        }
        command = [sys.executable, str(Path(__file__).resolve()), "--one", robot, function]
        done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    in_llvm = sum(float(x) for x in re.findall(r"qddot: compiled .*: ([\d.]+) s", done.stderr))
    return {**json.loads(done.stdout), "llvm": in_llvm}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_calls", description=__doc__.splitlines()[0])
    parser.add_argument("--robots", default=",".join(ROBOTS))
    parser.add_argument("--functions", default=",".join(FUNCTIONS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--checkout", type=Path, default=Path(__file__).parents[1])
    options = parser.parse_args()
    print("| robot (DoF) | function | wall | LLVM | thread | process | what |\n|---|---|---|---|---|---|---|")
    for robot in options.robots.split(","):
        for function in options.functions.split(","):
            found = [in_new_process(options.checkout, robot, function) for _ in range(options.rounds)]
            seconds = [statistics.median(x[key] for x in found) for key in ("wall", "llvm", "thread", "process")]
            cells = " | ".join(f"{x:.2f}" for x in seconds)
            print(f"| {robot} ({found[0]['dof']}) | {function} | {cells} | {found[0]['what']} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        sys.path.insert(0, os.getcwd())
        print(json.dumps(first_call(*sys.argv[2:])))
    else:
        main()
