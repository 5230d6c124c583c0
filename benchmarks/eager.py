"""What the readable reference costs, before anything is compiled: `python -m benchmarks.eager`.

Prints the time of one state and of a state in a batch of 1000, and what the same rotation and cross products cost as
tuples of scalars (what `qddot.spatial.rotation` does) and as small NumPy arrays, interleaved.
"""

import platform
import statistics
import time

import numpy as np

import qddot
from qddot.algorithms import articulated_body, composite_body, newton_euler
from qddot.spatial.rotation import AxisRotation, Rotation, cross

ROUNDS = 7


def seconds(function, repeat: int) -> float:
    begin = time.perf_counter()
    for _ in range(repeat):
        function()
    return (time.perf_counter() - begin) / repeat


def median(function, repeat: int) -> float:
    return statistics.median(seconds(function, repeat) for _ in range(ROUNDS))


def choice() -> None:
    rng = np.random.default_rng(0)
    rows, x, y = rng.standard_normal((3, 3)), rng.standard_normal(3), rng.standard_normal(3)
    R, a, b = Rotation(tuple(map(tuple, rows.tolist()))), tuple(x.tolist()), tuple(y.tolist())
    Z = AxisRotation(2, 0.6, 0.8)
    pairs = {
        "R x": (lambda: R @ a, lambda: rows @ x),
        "one-axis R x": (lambda: Z @ a, lambda: rows @ x),
        "x × y": (lambda: cross(a, b), lambda: np.cross(x, y)),
    }
    print("| operation | tuple of floats, µs | NumPy array, µs | ratio |\n|---|---|---|---|")
    for name, (tuples, arrays) in pairs.items():
        rounds = [(seconds(tuples, 5000), seconds(arrays, 5000)) for _ in range(ROUNDS)]
        ratio = statistics.median(n / t for t, n in rounds)
        t, n = (statistics.median(column) for column in zip(*rounds, strict=True))
        print(f"| {name} | {1e6 * t:.2f} | {1e6 * n:.2f} | {ratio:.1f} |")


def robots() -> None:
    print("\n| robot | function | one state, µs | a state in a batch of 1000, µs |\n|---|---|---|---|")
    for name in ("puma560", "quadruped"):
        robot = qddot.load(name)
        rng = np.random.default_rng(0)
        states = [robot.random_state(rng) for _ in range(1000)]
        q, v = (np.stack(s) for s in zip(*states, strict=True))
        a = rng.standard_normal(v.shape)
        model = robot.model
        for label, function in (
            ("inverse dynamics", lambda i, m=model, q=q, v=v, a=a: newton_euler.inverse_dynamics(m, q[i], v[i], a[i])),
            ("mass matrix", lambda i, m=model, q=q: composite_body.mass_matrix(m, q[i])),
            (
                "forward dynamics",
                lambda i, m=model, q=q, v=v, a=a: articulated_body.forward_dynamics(m, q[i], v[i], a[i]),
            ),
        ):
            one, many = median(lambda f=function: f(0), 10), median(lambda f=function: f(slice(None)), 1) / 1000
            print(f"| {name} | {label} | {1e6 * one:.0f} | {1e6 * many:.1f} |")


if __name__ == "__main__":
    print(f"Python {platform.python_version()}, NumPy {np.__version__}, {platform.machine()}\n")
    choice()
    robots()
