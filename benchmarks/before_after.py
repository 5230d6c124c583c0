"""The same kernels of two checkouts, interleaved: is this commit slower than that one, and are its results the same bits?

    git worktree add ../before COMMIT
    python -m benchmarks.before_after ../before . --robots ur5,panda7,solo12-floating,g1-fixed --rounds 7 --pairs 5

Each checkout runs in a process of its own, one thread; the two run interleaved, and the ratio is formed within a turn.
Where a process's results lie in memory moves its times by 10 % and more, so the pair of processes is started anew several
times. Give the same checkout twice to see the noise of the host.
"""

import argparse
import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

FUNCTIONS = {  # those of `benchmarks.peers`, and how many inputs they have
    "inverse_dynamics": 3,
    "mass_matrix": 1,
    "forward_dynamics": 3,
    "mass_matrix_inverse": 1,
    "forward_kinematics": 1,
    "jacobian": 1,
    "inverse_dynamics_derivatives": 3,
    "forward_dynamics_derivatives": 3,
}
ROBOTS = "ur5,panda7,solo12-floating,g1-fixed"


class Side:
    """One checkout, in a process that times what it is told to."""

    def __init__(self, checkout: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(checkout.resolve())}
        command = [sys.executable, str(Path(__file__).resolve()), "--serve"]
        self._process = subprocess.Popen(
            command, cwd=checkout, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def end(self) -> None:
        self._process.communicate()

    def ask(self, **question: object) -> dict:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def serve() -> None:
    """Answers questions until there are no more."""
    sys.path.insert(0, os.getcwd())
    import numpy as np

    import qddot
    from benchmarks.cases import case as load_case

    qddot.set_num_threads(1)
    kernels: dict[tuple[str, str], tuple] = {}
    for line in sys.stdin:
        question = json.loads(line)
        key = question["robot"], question["function"]
        if key not in kernels:
            case = load_case(key[0], question["states"])
            tip = {"frame": case.robot.model.link_names[case.tip]} if key[1] == "jacobian" else {}
            kernel = case.robot.kernel(key[1], **tip)
            arguments = (case.q, case.v, case.a)[: FUNCTIONS[key[1]]]
            kernels[key] = kernel, arguments, kernel(*arguments)
        kernel, arguments, out = kernels[key]
        begin, passes = time.perf_counter(), 0
        while time.perf_counter() - begin < question["seconds"]:
            kernel(*arguments, out=out)
            passes += 1
        spent = (time.perf_counter() - begin) / passes / len(out)
        digest = hashlib.sha256(np.ascontiguousarray(out).tobytes()).hexdigest()[:12]
        print(json.dumps({"seconds": spent, "digest": digest, "instructions": kernel.info.instructions}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.before_after", description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--robots", default=ROBOTS)
    parser.add_argument("--functions", default=",".join(FUNCTIONS))
    parser.add_argument("--states", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=7, help="with each pair of processes")
    parser.add_argument("--pairs", type=int, default=5, help="of processes, one after another")
    parser.add_argument("--seconds", type=float, default=0.05, help="of a turn")
    options = parser.parse_args()
    cases = [(robot, function) for robot in options.robots.split(",") for function in options.functions.split(",")]
    ratios: dict[tuple[str, str], list[float]] = {case: [] for case in cases}
    remarks: dict[tuple[str, str], str] = {}
    for _ in range(options.pairs):
        sides = Side(options.before), Side(options.after)
        for case in cases:
            question = {"robot": case[0], "function": case[1], "states": options.states, "seconds": options.seconds}
            answers = [side.ask(**question) for side in sides]
            same = "same bits" if answers[0]["digest"] == answers[1]["digest"] else "other bits"
            remarks[case] = f"{same}, {' → '.join(str(a['instructions']) for a in answers)} operations"
            for k in range(options.rounds):
                turn = (0, 1) if k % 2 else (1, 0)
                times = {i: sides[i].ask(**question)["seconds"] for i in turn}
                ratios[case].append(times[0] / times[1])
        for side in sides:
            side.end()
    print(
        f"{platform.machine()}, {options.states} states, {options.pairs} × {options.rounds} rounds, ratio = before / after"
    )
    for case in cases:
        of = ratios[case]
        spread = f"{statistics.median(of):.3f} ({min(of):.2f}–{max(of):.2f})"
        print(f"{case[0]:18} {case[1]:30} {spread}  {remarks[case]}")


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["--serve"] else main()
