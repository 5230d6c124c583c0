"""MuJoCo as a contestant: its C functions, called in a loop in C, in the library that its Python module brings."""

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import native
from benchmarks.cases import Case
from benchmarks.contest import Contestant
from qddot import conventions
from qddot.joints import Free, Prismatic, Revolute

# In the order of the numbers in mujoco_bench.c.
FUNCTIONS = ("rnea", "crba", "aba", "minverse", "fk", "jacobian")


def build(build_dir: Path) -> native.Library:
    try:
        import mujoco
    except ImportError as missing:
        raise native.Unavailable("the package mujoco is not installed") from missing
    folder = Path(mujoco.__file__).parent
    libraries = sorted(folder.glob("libmujoco.so.*"))
    if not libraries:
        raise native.Unavailable("the package mujoco has no shared library for this system")
    flags = ("-std=c11", "-D_GNU_SOURCE", f"-isystem{folder / 'include'}")
    return native.build("mujoco_bench.c", "gcc", flags, build_dir, (str(libraries[0]), f"-Wl,-rpath,{folder}"))


def to_mujoco(model: Any) -> Any:
    """An `mjModel` from qddot's numbers; bodies in the same order."""
    import mujoco

    spec = mujoco.MjSpec()
    spec.option.gravity = model.gravity
    bodies = [spec.worldbody]
    for i, p in model.outward():
        if p not in (0, *model.ancestors(i - 1)):
            raise native.Unavailable("MuJoCo numbers bodies depth first, and this robot does not")
        joint, T, (m, h, I) = model.joint[i], model.placement[i], model.inertia[i]
        c = np.array(h) / m
        I_c = np.array(I) + m * (np.outer(c, c) - c @ c * np.eye(3))
        quaternion = np.empty(4)
        mujoco.mju_mat2Quat(quaternion, np.array(T.R.rows, dtype=float).ravel())
        body = bodies[p].add_body(name=f"body{i}", pos=T.p, quat=quaternion, mass=m, ipos=c)
        body.fullinertia = [I_c[0, 0], I_c[1, 1], I_c[2, 2], I_c[0, 1], I_c[0, 2], I_c[1, 2]]
        body.explicitinertial = True
        if isinstance(joint, Free):
            body.add_freejoint()
        elif isinstance(joint, Revolute | Prismatic):
            kind = mujoco.mjtJoint.mjJNT_HINGE if isinstance(joint, Revolute) else mujoco.mjtJoint.mjJNT_SLIDE
            body.add_joint(type=kind, axis=joint.axis, armature=model.armature[i][0])
        else:
            raise native.Unavailable(f"joint {model.joint_names[i]!r} is {joint.kind}, which is not brought to MuJoCo")
        bodies.append(body)
    try:
        return spec.compile()
    except ValueError as refusal:
        raise native.Unavailable(f"MuJoCo refuses the model: {refusal}") from None


class InC:
    """One robot in MuJoCo."""

    def __init__(self, library: native.Library, case: Case) -> None:
        model, q = case.robot.model, case.q
        self.case, self.model, self._library = case, to_mujoco(model), library.load()
        self._library.bench_open.restype = ctypes.c_void_p
        self._library.bench_time.restype = ctypes.c_double
        self._arrays = [  # MuJoCo reads them where they are
            np.ascontiguousarray(x)
            for x in (
                conventions.to_mujoco_q(model, q),
                conventions.to_mujoco_v(model, q, case.v),
                conventions.to_mujoco_a(model, q, case.v, case.a),
                conventions.to_mujoco_tau(model, q, case.tau),
            )
        ]
        address = ctypes.c_void_p(self.model._address)
        handle = self._library.bench_open(address, case.tip, len(q), *(native.doubles(x) for x in self._arrays))
        self._handle = ctypes.c_void_p(handle)

    def close(self) -> None:
        self._library.bench_close(self._handle)

    def contestants(self, function: str) -> Iterator[Contestant]:
        if function not in FUNCTIONS:
            return
        number = FUNCTIONS.index(function)
        yield Contestant(
            "MuJoCo C",
            lambda count: self._results(function, number, count),
            lambda: self._library.bench_time(self._handle, number),
            len(self.case.q),
        )

    def _results(self, function: str, number: int, count: int) -> np.ndarray:
        model, n, links = self.case.robot.model, self.model.nv, self.model.nbody - 1
        shape = {"rnea": (n,), "aba": (n,), "fk": (links, 12), "jacobian": (6, n)}.get(function, (n, n))
        x = np.empty((count, *shape))
        self._library.bench_run(self._handle, number, ctypes.c_size_t(count), native.doubles(x))
        q, v = self.case.q[:count], self.case.v[:count]
        E = np.swapaxes(conventions.to_mujoco_v(model, q[:, None], np.eye(n)), -1, -2)
        match function:
            case "rnea":
                return conventions.from_mujoco_tau(model, q, x)
            case "aba":
                return conventions.from_mujoco_a(model, q, v, x)
            case "crba" | "minverse":  # E only turns and permutes: it is its own inverse transposed
                return np.swapaxes(E, -1, -2) @ x @ E
            case "fk":
                T = np.broadcast_to(np.eye(4), (count, links, 4, 4)).copy()
                T[..., :3, :3], T[..., :3, 3] = x[..., :9].reshape(count, links, 3, 3), x[..., 9:]
                return T
            case _:  # MuJoCo's is in the world's axes, at the body's origin
                R = self.case.reference("fk")[:count, self.case.tip - 1, :3, :3]
                turned = np.concatenate([np.swapaxes(R, 1, 2) @ x[:, :3], np.swapaxes(R, 1, 2) @ x[:, 3:]], axis=1)
                return turned @ E
