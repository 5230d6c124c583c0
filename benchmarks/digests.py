"""Digests of every kernel's results, to show that a change of the code changes no bit of them.

    python -m benchmarks.digests before.json --robots FOLDER      # in the checkout before
    python -m benchmarks.digests after.json --robots FOLDER       # in the checkout after
    python -m benchmarks.digests --compare before.json after.json

Robots are the embedded ones and the URDF files of a folder (where none is given, 30 files of example-robot-data). Each
function is compiled in float64 and float32, for the processor's lanes and for one lane, and called with a batch and with
one state. A kernel that cannot be made has its error as its result. Run both on the same kind of processor.
"""

import argparse
import concurrent.futures
import hashlib
import json
import sys
import sysconfig
import warnings
from pathlib import Path

import numpy as np

import qddot

EMBEDDED = (
    *("pendulum", "double_pendulum", "planar3", "scara", "stanford", "puma560", "quadruped"),
    *("fourbar", "fivebar", "delta", "stewart"),
)
FRAME, PRESCRIBED = {"frame"}, {"prescribed"}
FUNCTIONS: dict[str, tuple[str, set[str]]] = {
    "inverse_dynamics": ("q v a", set()),
    "inverse_dynamics_with_forces": ("q v a f", set()),
    "forward_dynamics": ("q v a", set()),
    "forward_dynamics_with_forces": ("q v a f", set()),
    "bias_force": ("q v", set()),
    "gravity_force": ("q", set()),
    "passive_force": ("q v", set()),
    "forward_kinematics": ("q", set()),
    "hybrid_dynamics": ("q v a a", PRESCRIBED),
    "hybrid_dynamics_with_forces": ("q v a a f", PRESCRIBED),
    "pose": ("q", FRAME),
    "velocity": ("q v", FRAME),
    "acceleration": ("q v a", FRAME),
    "jacobian": ("q", FRAME),
    "jacobian_derivative": ("q v", FRAME),
    "operational_space_inverse_inertia": ("q", FRAME),
    "kinetic_energy": ("q v", set()),
    "potential_energy": ("q", set()),
    "center_of_mass": ("q", set()),
    "momentum": ("q v", set()),
    "centroidal_momentum_matrix": ("q", set()),
    "mass_matrix": ("q", set()),
    "mass_matrix_inverse": ("q", set()),
    "coriolis_matrix": ("q v", set()),
    "convective_inertia_matrix": ("q v", set()),
    "inverse_dynamics_derivatives": ("q v a", set()),
    "forward_dynamics_derivatives": ("q v a", set()),
    "hybrid_dynamics_derivatives": ("q v a a", PRESCRIBED),
    "regressor": ("q v a", set()),
    "forward_dynamics_inertia_derivatives": ("q v a", set()),
    "external_force_jacobian": ("q", set()),
}
MAX_DOF = {"forward_dynamics_derivatives": 30, "hybrid_dynamics_derivatives": 20}  # longer kernels take minutes
MAX_DOF |= {"forward_dynamics_inertia_derivatives": 14, "regressor": 30, "mass_matrix_inverse": 40}


def files(folder: Path | None) -> list[Path]:
    if folder is not None:
        return sorted(folder.glob("*.urdf"))
    root = Path(sysconfig.get_paths()["purelib"]) / "cmeel.prefix"
    found = sorted((root / "share/example-robot-data/robots").rglob("*.urdf"))
    return [p for p in found if p.stat().st_size < 80_000][::2][:30]


def loaded(name: str) -> qddot.Robot:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not name.endswith(".urdf"):
            return qddot.load(name)
        return qddot.load(name, floating_base=len(Path(name).name) % 2 == 0)


def digests_of(task: tuple[str, str]) -> dict[str, str]:
    """The digests of the kernels of one function of a robot, by type and lanes."""
    name, function = task
    try:
        robot = loaded(name)
    except qddot.QddotError as error:
        return {Path(name).stem: type(error).__name__}
    return {f"{Path(name).stem} {key}": value for key, value in _of_function(robot, function)}


def _of_function(robot: qddot.Robot, function: str):
    if robot.model.is_constrained:
        robot = robot.spanning_tree()
    inputs, needs = FUNCTIONS[function]
    if robot.nv > MAX_DOF.get(function, 100):
        return
    rng = np.random.default_rng(0)
    q, v = (np.stack(x) for x in zip(*(robot.random_state(rng) for _ in range(37)), strict=True))
    a, f = rng.standard_normal(v.shape), rng.standard_normal((len(q), robot.model.n_links, 6))
    arrays = {"q": q, "v": v, "a": a, "f": f}
    choices = {"frame": robot.link_names[-1]} if needs == FRAME else {}
    choices |= {"prescribed": tuple(range(0, robot.nv, 3))} if needs == PRESCRIBED else {}
    for dtype in ("float64", "float32"):
        given = [arrays[x].astype(dtype) for x in inputs.split()]
        for lanes in (None, 1):
            yield f"{function} {dtype} {lanes or 'lanes'}", _digest(robot, function, dtype, lanes, choices, given)


def _digest(robot, function, dtype, lanes, choices, given) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            kernel = robot.kernel(function, dtype=dtype, lanes=lanes, **choices)
            results = kernel(*given), kernel(*(x[3] for x in given))
        except qddot.QddotError as error:
            return type(error).__name__
    text = b"".join(np.ascontiguousarray(x).tobytes() for x in results)
    return hashlib.sha256(text).hexdigest()[:16]


def compare(before: Path, after: Path) -> int:
    old, new = json.loads(before.read_text()), json.loads(after.read_text())
    different = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    print(f"{len(old)} and {len(new)} digests, {len(different)} differ")
    for key in different:
        print(f"  {key}: {old.get(key, 'missing')} → {new.get(key, 'missing')}")
    return bool(different)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.digests", description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path, nargs="?")
    parser.add_argument("--robots", type=Path, help="folder of URDF files")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("BEFORE", "AFTER"))
    options = parser.parse_args()
    if options.compare:
        sys.exit(compare(*options.compare))
    names = [*map(str, files(options.robots)), *EMBEDDED]
    tasks = [(name, function) for function in reversed(FUNCTIONS) for name in names]  # the longest first
    found: dict[str, str] = {}
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        for part in pool.map(digests_of, tasks):
            found |= part
    options.output.write_text(json.dumps(found, indent=0, sort_keys=True))
    print(f"{len(found)} digests")


if __name__ == "__main__":
    main()
