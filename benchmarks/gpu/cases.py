"""What is measured: robots, functions, types and batches, and the states that batches are made of.

States are the same few hundred random ones again and again. They are numbers of single precision, so that one result in
double precision is what kernels of both types are compared with.
"""

import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np

import qddot
from benchmarks import cases

ROBOTS = ("panda7", "talos-fixed", "g1-floating", "solo12-floating")
EMBEDDED = ("puma560", "quadruped")  # where there are neither saved robots nor example-robot-data


class Function(NamedTuple):
    """A function of the benchmark: how it is called in tables, and whether results are packed."""

    title: str
    packed: bool


FUNCTIONS = {
    "inverse_dynamics": Function("inverse dynamics", False),
    "forward_dynamics": Function("forward dynamics", False),
    "mass_matrix": Function("M packed", True),
    "inverse_dynamics_derivatives": Function("∂inverse packed", True),
    "forward_dynamics_derivatives": Function("∂forward packed", True),
}
DTYPES = ("float32", "float64")
LAYOUTS = ("row", "column")  # numbers of a state, or the same number of all states, are contiguous
BATCHES = (256, 4096, 65_536, 1 << 20)
LARGE_RESULT, LARGE_BATCH = 400, 1 << 18  # results with more numbers are computed for fewer states

STATES = 512  # different ones


class Case(NamedTuple):
    """One kernel."""

    robot: str
    function: str
    dtype: str

    @property
    def packed(self) -> bool:
        return FUNCTIONS[self.function].packed

    @property
    def key(self) -> str:
        """Its name in names of files."""
        return ".".join(self)

    @property
    def weight(self) -> int:
        """A rank of how long it takes to compile: what comes first is measured first."""
        humanoid = 3 * (self.robot.startswith(("talos", "g1"))) + (self.robot.startswith(("solo12", "quadruped")))
        return humanoid + 2 * list(FUNCTIONS).index(self.function) + (self.dtype == "float64")


def all_cases(robots: list[str], functions: list[str], dtypes: list[str]) -> list[Case]:
    """The cases, those that compile fastest first."""
    found = [Case(r, f, d) for r in robots for f in functions for d in dtypes]
    return sorted(found, key=lambda case: case.weight)


def batches(wanted: tuple[int, ...], numbers: int) -> list[int]:
    """The batches for results of so many numbers."""
    most = LARGE_BATCH if numbers > LARGE_RESULT else max(wanted)
    return sorted({min(n, most) for n in wanted})


# ---- robots


def available(names: list[str], folder: Path | None) -> list[str]:
    """Those that there are files of; the embedded ones if there are none at all."""
    known = [n for n in names if n in EMBEDDED or _saved(n, folder) or _source(n)]
    return known or list(EMBEDDED)


def load(name: str, folder: Path | None) -> qddot.Robot:
    """A robot by its name here: saved by `save_robots`, of example-robot-data, or embedded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", qddot.QddotWarning)  # the files are known
        if path := _saved(name, folder):
            return qddot.load(path)
        return qddot.load(name) if name in EMBEDDED else cases.case(name, 1).robot


def save_robots(folder: Path, names: list[str], source: Path | None = None) -> list[Path]:
    """Writes robots as qddot's own files, from which another machine reads the same numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name in names:
        robot, path = load(name, source), folder / f"{name}.json"
        robot.save(path)
        made.append(path)
    return made


def save_thirty(folder: Path) -> list[Path]:
    """Writes the real robots that the precision of single is known of on the CPU (`benchmarks.accuracy`)."""
    from benchmarks.accuracy import real_robots

    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, robot in real_robots().items():
        made.append(folder / f"{Path(name).stem}.json")
        robot.save(made[-1])
    return made


def saved(folder: Path) -> list[str]:
    """The names of the robots that were saved there."""
    return sorted(path.stem for path in folder.glob("*.json"))


def _saved(name: str, folder: Path | None) -> Path | None:
    path = folder / f"{name}.json" if folder else None
    return path if path and path.is_file() else None


def _source(name: str) -> bool:
    return name in cases.ROBOTS and (cases.FILES / cases.ROBOTS[name].file).is_file()


# ---- states


def states(robot: qddot.Robot, function: str, count: int = STATES) -> list[np.ndarray]:
    """The arguments of a function for random states, as doubles that single precision holds."""
    rng = np.random.default_rng(0)
    q, v = robot.random_state(rng, count)
    made = [q, v, rng.standard_normal((count, robot.nv))]
    used = made[:1] if function == "mass_matrix" else made
    return [np.asarray(x, np.float32).astype(np.float64) for x in used]
