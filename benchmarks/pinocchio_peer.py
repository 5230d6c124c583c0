"""Pinocchio as a contestant: from Python, and in C++ built with g++ and with clang."""

import ctypes
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import native
from benchmarks.cases import Case
from benchmarks.contest import Contestant, clocked, one_by_one
from qddot import conventions

# Boost's lists must hold all of Pinocchio's joint types.
_BOOST = (
    "-DBOOST_MPL_CFG_NO_PREPROCESSED_HEADERS",
    "-DBOOST_MPL_LIMIT_LIST_SIZE=30",
    "-DBOOST_MPL_LIMIT_VECTOR_SIZE=30",
    "-DBOOST_FUSION_INVOKE_MAX_ARITY=12",
)
_OWN = "pinocchio_bench.cpp"
_ALLOCATION = ("-Wl,--wrap=malloc", "-Wl,--wrap=free")  # for tensors that nobody uses, as the file says
COMPILERS = {"Pinocchio C++ g++": "g++", "Pinocchio C++ clang": "clang++"}

# (function, variant) in the order of the numbers in pinocchio_bench.cpp.
FUNCTIONS = (
    ("rnea", ""),
    ("crba", "LOCAL"),
    ("crba", "WORLD"),
    ("aba", "LOCAL"),
    ("aba", "WORLD"),
    ("minverse", ""),
    ("fk", ""),
    ("jacobian", ""),
    ("drnea", ""),
    ("daba", ""),
)

_BY_COLUMNS = ("crba", "fk", "jacobian")  # matrices that Eigen keeps column by column
STORED = ", stored"
_MAX_NV = 300  # from Python: four tensors of nv³ numbers are 0.9 GB, and 32 GB for 1000


def build(compiler: str, build_dir: Path, source: str = _OWN) -> native.Library:
    """Takes minutes the first time."""
    try:
        import pinocchio
    except ImportError as missing:
        raise native.Unavailable("the package pin is not installed") from missing
    folders = [p / "include" for p in Path(pinocchio.__file__).parents if p.name == "cmeel.prefix"]
    if not folders or not (folders[0] / "eigen3").is_dir():
        raise native.Unavailable("Pinocchio's headers need those of the package cmeel-eigen beside them")
    include = folders[0]
    flags = ("-std=c++17", "-w", f"-isystem{include}", f"-isystem{include / 'eigen3'}", *_BOOST)
    return native.build(source, compiler, flags, build_dir, _ALLOCATION if source == _OWN else ())


def describe(case: Case) -> str:
    """The model as text, one joint a line: parent, type, axis, rotation, position, mass, centre of mass, inertia."""
    model = case.pinocchio
    lines = [f"{model.njoints - 1} {_tip(case)} {_numbers(model.gravity.linear)}"]
    for k in range(1, model.njoints):
        kind, T, G = model.joints[k].shortname(), model.jointPlacements[k], model.inertias[k]
        axis = model.joints[k].extract().axis if kind.endswith("Unaligned") else np.zeros(3)
        numbers = _numbers(axis, T.rotation, T.translation, [G.mass], G.lever, G.inertia)
        lines.append(f"{model.parents[k]} {kind} {numbers}")
    return "\n".join(lines)


def _numbers(*arrays: Any) -> str:
    return " ".join(repr(float(x)) for array in arrays for x in np.ravel(array))


def _tip(case: Case) -> int:
    return int(case.pinocchio.getJointId(case.robot.model.joint_names[case.tip]))


class States:
    """The states in Pinocchio's conventions, and its results brought back to qddot's."""

    def __init__(self, case: Case) -> None:
        self.case, self.layout = case, (case.robot.model, case.pinocchio)
        self.q = np.ascontiguousarray(conventions.to_pinocchio_q(*self.layout, case.q))
        self.v = np.ascontiguousarray(conventions.to_pinocchio_v(*self.layout, case.q, case.v))
        self.a = np.ascontiguousarray(conventions.to_pinocchio_v(*self.layout, case.q, case.a))
        self.tau = np.ascontiguousarray(conventions.to_pinocchio_tau(*self.layout, case.q, case.tau))

    def shape(self, function: str) -> tuple[int, ...]:
        n, links = self.case.pinocchio.nv, self.case.pinocchio.njoints - 1
        vectors = {"rnea": (n,), "aba": (n,), "fk": (links, 4, 4), "jacobian": (6, n)}
        return {**vectors, "drnea": (3, n, n), "daba": (3, n, n)}.get(function, (n, n))

    def back(self, function: str, x: np.ndarray) -> np.ndarray:
        model, theirs = self.layout
        q = self.case.q[: len(x)]
        E = np.swapaxes(conventions.to_pinocchio_v(model, theirs, q[:, None], np.eye(model.nv)), -1, -2)
        match function:
            case "rnea":
                return conventions.from_pinocchio_tau(model, theirs, q, x)
            case "aba":
                return conventions.from_pinocchio_v(model, theirs, q, x)
            case "crba" | "minverse":  # E permutes: it is its own inverse transposed, so both go one way
                upper = np.triu(x)
                return np.swapaxes(E, -1, -2) @ (upper + np.swapaxes(np.triu(x, 1), -1, -2)) @ E
            case "drnea" | "daba":  # the third is symmetric, and one triangle of it is there: M by columns, M⁻¹ by rows
                own = np.tril(x[:, 2]) if function == "drnea" else np.swapaxes(np.triu(x[:, 2]), -1, -2)
                x[:, 2] = own + np.swapaxes(np.tril(own, -1), -1, -2)
                return np.swapaxes(E, -1, -2)[:, None] @ x @ E[:, None]
            case "fk":
                return x[:, self._joints()]
            case _:
                return np.roll(x, 3, axis=-2) @ E

    def _joints(self) -> list[int]:
        """Where Pinocchio has the joint of each of qddot's links; a floating base goes by another name."""
        model, theirs = self.layout
        names = [model.joint_names[i] for i, _ in model.outward()]
        return [theirs.getJointId(name) - 1 if theirs.existJointName(name) else 0 for name in names]


class FromPython:
    """One call a state from Python, which is how `pin` is mostly used."""

    def __init__(self, states: States) -> None:
        self.states, self.model = states, states.case.pinocchio
        if self.model.nv > _MAX_NV:
            raise native.Unavailable(f"its workspace of nv³ numbers is made for {_MAX_NV} degrees of freedom at most")
        self.data = self.model.createData()

    def close(self) -> None:
        """Nothing is held."""

    def contestants(self, function: str) -> Iterator[Contestant]:
        for (name, variant), (call, arguments) in self._calls().items():
            if name == function:
                # all arguments are laid out beforehand: a row cut out of an array costs a tenth of a call
                rows = [(self.model, self.data, *row) for row in zip(*arguments, strict=False)]
                yield Contestant(
                    "Pinocchio from Python",
                    lambda count, call=call, rows=rows: self._results(function, lambda k: call(*rows[k]), count),
                    clocked(lambda call=call, rows=rows: one_by_one(call, rows)),
                    len(rows),
                    variant,
                )

    def _calls(self) -> dict[tuple[str, str], tuple[Callable[..., Any], tuple[Iterable[Any], ...]]]:
        """What is called with which arguments after the model and the workspace."""
        import pinocchio as pin

        q, v, a, tau = (list(x) for x in (self.states.q, self.states.v, self.states.a, self.states.tau))
        local, world, tip = repeat(pin.Convention.LOCAL), repeat(pin.Convention.WORLD), repeat(_tip(self.states.case))
        return {
            ("rnea", ""): (pin.rnea, (q, v, a)),
            ("crba", "LOCAL"): (pin.crba, (q, local)),
            ("crba", "WORLD"): (pin.crba, (q, world)),
            ("aba", "LOCAL"): (pin.aba, (q, v, tau, local)),
            ("aba", "WORLD"): (pin.aba, (q, v, tau, world)),
            ("minverse", ""): (pin.computeMinverse, (q,)),
            ("fk", ""): (pin.forwardKinematics, (q,)),
            ("jacobian", ""): (pin.computeJointJacobian, (q, tip)),
            ("drnea", ""): (pin.computeRNEADerivatives, (q, v, a)),
            ("daba", ""): (pin.computeABADerivatives, (q, v, tau)),
        }

    def _results(self, function: str, call: Callable[[int], Any], count: int) -> np.ndarray:
        out = np.empty((count, *self.states.shape(function)))
        for k in range(count):
            x = call(k)
            if function == "fk":
                x = [T.homogeneous for T in list(self.data.oMi)[1:]]
            elif function in ("drnea", "daba"):
                x = [*x[:2], x[2].T if function == "drnea" else x[2]]  # as the C++ build stores them
            out[k] = x
        return self.states.back(function, out)


class InCpp:
    """One robot in one build of pinocchio_bench.cpp."""

    def __init__(self, name: str, library: native.Library, states: States) -> None:
        self.name, self.states, self._library = name, states, library.load()
        self._library.bench_open.restype = ctypes.c_void_p
        self._library.bench_time.restype = ctypes.c_double
        error = ctypes.create_string_buffer(500)
        arrays = [native.doubles(x) for x in (states.q, states.v, states.a, states.tau)]
        text = describe(states.case).encode()
        handle = self._library.bench_open(text, len(states.q), *arrays, error, ctypes.c_size_t(len(error)))
        if not handle:
            raise native.Unavailable(f"{name}: {error.value.decode()}")
        self._handle = ctypes.c_void_p(handle)

    def close(self) -> None:
        self._library.bench_close(self._handle)

    def contestants(self, function: str) -> Iterator[Contestant]:
        """Twice: results left in Pinocchio's workspace, and stored for the whole batch as qddot does it."""
        out = np.empty((len(self.states.q), *self._stored_shape(function)))
        for number, (name, variant) in enumerate(FUNCTIONS):
            for label, address in ((self.name, None), (self.name + STORED, native.doubles(out))):
                if name == function:
                    yield Contestant(
                        label,
                        lambda count, number=number: self._results(function, number, count),
                        lambda number=number, address=address, out=out: self._time(number, address),
                        len(self.states.q),
                        variant,
                    )

    def _time(self, number: int, address: ctypes.c_void_p | None) -> float:
        return float(self._library.bench_time(self._handle, number, address))

    def _results(self, function: str, number: int, count: int) -> np.ndarray:
        out = np.empty((count, *self._stored_shape(function)))
        self._library.bench_run(self._handle, number, ctypes.c_size_t(count), native.doubles(out))
        return self.states.back(function, np.swapaxes(out, -1, -2) if function in _BY_COLUMNS else out)

    def _stored_shape(self, function: str) -> tuple[int, ...]:
        shape = self.states.shape(function)
        return (*shape[:-2], shape[-1], shape[-2]) if function in _BY_COLUMNS else shape
