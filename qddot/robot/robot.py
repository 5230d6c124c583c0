"""The facade: a model with the algorithms as methods.

Every method takes one state, `(nq,)` and `(nv,)`, or any leading batch axes, which broadcast. Methods run compiled
kernels, made at their first use; the mathematics they are made of is in `qddot.algorithms`, for anybody to call directly.
"""

from __future__ import annotations

import dataclasses
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qddot.algorithms import composite_body
from qddot.algorithms.operational_space import operational_space
from qddot.compiler.runtime.kernel import Kernel
from qddot.dynamics import base_parameters as identification
from qddot.dynamics import catalogue, pipeline, pivots, singularity
from qddot.dynamics.base_parameters import BaseParameters
from qddot.errors import (
    Finding,
    InputError,
    KernelTooLargeError,
    NumericalOverflowError,
    QddotWarning,
    SingularMassMatrixError,
)
from qddot.mechanism import derivative_variable as scalar
from qddot.mechanism import parameters
from qddot.mechanism.model import Model
from qddot.robot.constraints import ConstraintMethods
from qddot.robot.derivatives import DerivativeMethods
from qddot.scalars import stack

if TYPE_CHECKING:
    from qddot.dynamics.export import CSource
    from qddot.simulation.trajectory import Trajectory

Array = NDArray[Any]

_FORWARD_CHOICES = {"method": "auto", "gains": None, "tau_loops": None}
_MOTION = ("inverse_dynamics", "forward_dynamics", "hybrid_dynamics")  # what loops change
_OF_CONSTRAINTS = ("constraint_", "constrained_", "loop_joint_forces")
_AXES = {"f_ext": 2, "df_ext_dp": 2}  # of one state's input; the others have one
_LONG = 300  # freedoms above which a mass matrix takes too long just to look at it
_BY_PAIRS = ("mass_matrix_inverse", "dynamics_derivatives")  # results that have an entry for each two freedoms last


class Robot(DerivativeMethods, ConstraintMethods):
    """A mechanism and what can be computed of it. With `compiled=False` its methods run the readable algorithms."""

    def __init__(self, model: Model, compiled: bool = True) -> None:
        self.model, self.compiled = model, compiled

    # ---- what it is

    @property
    def name(self) -> str:
        """The robot's name."""
        return self.model.name

    @property
    def nq(self) -> int:
        """How many coordinates a configuration has."""
        return self.model.nq

    @property
    def nv(self) -> int:
        """How many freedoms the robot has; of its spanning tree, if there are loops: `mobility` is what they leave."""
        return self.model.nv

    @property
    def link_names(self) -> tuple[str, ...]:
        """The moving links, in order; link k is moved by joint k."""
        return self.model.link_names[1:]

    @property
    def joint_names(self) -> tuple[str, ...]:
        """The joints, in order."""
        return self.model.joint_names[1:]

    @property
    def frame_names(self) -> tuple[str, ...]:
        """Everything that has a pose: the world, links, bodies merged into them, frames."""
        return self.model.frame_names

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found doubtful when the model was read."""
        return self.model.findings

    @property
    def loop_findings(self) -> tuple[Finding, ...]:
        """By how much rounding in its file keeps loops open. They are closed to find out, which takes a while at first."""
        found = self._closure.finding if self.model.loops else None
        return () if found is None else (found,)

    @cached_property
    def q_index(self) -> Mapping[str, int | slice]:
        """Where a joint's coordinates stand in q, by its name: an index, or a slice if there are several."""
        return _Index(self.model, "q")

    @cached_property
    def v_index(self) -> Mapping[str, int | slice]:
        """Where a joint's freedoms stand in v, a and tau, by its name."""
        return _Index(self.model, "v")

    def __repr__(self) -> str:
        loops = f", {len(self.model.loops)} loops" if self.model.loops else ""
        return f"<Robot {self.name!r}: {self.model.n_links} links, nq={self.nq}, nv={self.nv}{loops}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Robot) and self.model == other.model

    def __hash__(self) -> int:
        return hash(self.model)

    def __reduce__(self) -> Any:
        return (Robot, (self.model, self.compiled))  # kernels belong to a process

    def spanning_tree(self) -> Robot:
        """The same robot with its loops cut open and without other constraints."""
        return self._tree

    @cached_property
    def _tree(self) -> Robot:
        return Robot(dataclasses.replace(self.model, loops=(), constraints=()), self.compiled)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes qddot's own file, from which `load` gives an equal robot."""
        from qddot.formats import native

        native.write(self.model, Path(path))

    # ---- configurations

    def neutral(self) -> Array:
        """All coordinates zero, quaternions at rest."""
        return self._gather(lambda i: self.model.joint[i].neutral())

    def random_state(self, rng: np.random.Generator | int | None = None) -> tuple[Array, Array]:
        """A configuration, within the limits where a joint has them, and a velocity."""
        rng = np.random.default_rng(rng)

        def coordinates(i: int) -> Sequence[float]:
            limits, joint = self.model.limits[i], self.model.joint[i]
            if joint.nq == 1 and math.isfinite(limits.lower[0]) and math.isfinite(limits.upper[0]):
                return (float(rng.uniform(limits.lower[0], limits.upper[0])),)
            return joint.random(rng)

        return self._gather(coordinates), rng.standard_normal(self.nv)

    def integrate(self, q: ArrayLike, v: ArrayLike, dt: float = 1.0) -> Array:
        """The configuration reached from q with the constant velocity v after a time dt."""
        inputs = self._q(q), self._v(v, "v") * dt
        x, u = self.model.coordinates(inputs[0]), self.model.velocities(inputs[1])
        return _batched(1, self._gather(lambda i: self.model.joint[i].integrate(x[i], u[i])), *inputs)

    def difference(self, q0: ArrayLike, q1: ArrayLike) -> Array:
        """The velocity that leads from q0 to q1 in a unit of time."""
        inputs = self._q(q0, "q0"), self._q(q1, "q1")
        x, y = (self.model.coordinates(q) for q in inputs)
        return _batched(1, self._gather(lambda i: self.model.joint[i].difference(x[i], y[i])), *inputs)

    def normalize(self, q: ArrayLike) -> Array:
        """The nearest valid configuration: quaternions made unit."""
        x = self.model.coordinates(self._shaped(q, self.nq, "q", "nq"))
        return self._gather(lambda i: self.model.joint[i].normalize(x[i]))

    # ---- dynamics

    def inverse_dynamics(
        self, q: ArrayLike, v: ArrayLike, a: ArrayLike, f_ext: ArrayLike | None = None, **choices: Any
    ) -> Array:
        """The joint forces that give the accelerations a. `f_ext`: (..., n_links, 6) in body frames.

        With loops they are those of the actuated joints; `constrained_inverse_dynamics` has the choices that there are.
        """
        if self.model.is_constrained:
            return self.constrained_inverse_dynamics(q, v, a, f_ext, **choices)[0]
        self._no_choices(choices)
        if f_ext is None:
            return self._run("inverse_dynamics", q, v, a)
        return self._run("inverse_dynamics_with_forces", q, v, a, f_ext)

    def forward_dynamics(
        self, q: ArrayLike, v: ArrayLike, tau: ArrayLike, f_ext: ArrayLike | None = None, **choices: Any
    ) -> Array:
        """The accelerations that the joint forces tau give. `f_ext`: (..., n_links, 6) in body frames.

        With loops they stay closed; `constrained_forward_dynamics` has the choices that there are, and the loops' forces.
        """
        if self.model.is_constrained:
            return self._closure.forward(q, v, tau, f_ext, **{**_FORWARD_CHOICES, **choices})[0]
        self._no_choices(choices)
        if f_ext is None:
            return self._solve(1, "forward_dynamics", q, v, tau)
        return self._solve(1, "forward_dynamics_with_forces", q, v, tau, f_ext)

    def hybrid_dynamics(
        self,
        q: ArrayLike,
        v: ArrayLike,
        a: ArrayLike,
        tau: ArrayLike,
        f_ext: ArrayLike | None = None,
        *,
        prescribed: Iterable[str | int | tuple[str, int]],
    ) -> tuple[Array, Array]:
        """Accelerations and forces, both complete, where some freedoms have a given acceleration, the rest a given force.

        `prescribed` says which: joints by name, single freedoms of them as (joint, k), or indices into v. Of `a` only
        those are read, of `tau` only the others.
        """
        if self.model.is_constrained:
            return self.constrained_hybrid_dynamics(q, v, a, tau, f_ext, prescribed=prescribed)[:2]
        chosen = self._yielding_has_mass(prescribed)
        forces = () if f_ext is None else (f_ext,)
        name = "hybrid_dynamics_with_forces" if forces else "hybrid_dynamics"
        both = self._solve(2, name, q, v, a, tau, *forces, prescribed=chosen)
        return both[..., 0, :], both[..., 1, :]

    def mass_matrix(self, q: ArrayLike) -> Array:
        """M(q), (..., nv, nv); of the spanning tree if there are loops."""
        return self._run("mass_matrix", q)

    def mass_matrix_inverse(self, q: ArrayLike) -> Array:
        """M(q)⁻¹, (..., nv, nv); of the spanning tree if there are loops."""
        return self._solve(2, "mass_matrix_inverse", q)

    def bias_force(self, q: ArrayLike, v: ArrayLike) -> Array:
        """Coriolis, centrifugal and gravity forces."""
        return self._run("bias_force", q, v)

    def gravity_force(self, q: ArrayLike) -> Array:
        """The joint forces that balance gravity."""
        return self._run("gravity_force", q)

    def coriolis_matrix(self, q: ArrayLike, v: ArrayLike) -> Array:
        """C(q, v) with C v + gravity = bias and Ṁ - 2C skew."""
        return self._run("coriolis_matrix", q, v)

    def passive_force(self, q: ArrayLike, v: ArrayLike) -> Array:
        """What joint damping, friction and springs exert."""
        return self._run("passive_force", q, v)

    def operational_space(
        self, q: ArrayLike, v: ArrayLike, frame: str, rows: Sequence[int] = range(6)
    ) -> tuple[Array, Array]:
        """Λ and μ with Λ V̇ + μ = F for the chosen rows of the frame's twist, in its own coordinates (Khatib)."""
        (x, u), rows = self._checked("operational_space", ("q", "v"), (q, v)), list(rows)
        self._needs_independent(q, frame, rows)
        Lambda, mu = operational_space(self._guarded, x, u, self.model.frame(frame), rows)
        if np.isnan(Lambda).any():
            Lambda, mu = np.array(Lambda), np.array(mu)
            self._explain_lost(2, "operational_space_inverse_inertia", (x,), Lambda, stacklevel=3)
        return _batched(2, Lambda, x, u), _batched(1, mu, x, u)

    def operational_space_inverse_inertia(self, q: ArrayLike, frame: str) -> Array:
        """Λ⁻¹ = J M⁻¹ Jᵀ of a frame, in its own coordinates: (..., 6, 6). It exists for every robot and configuration."""
        return self._solve(2, "operational_space_inverse_inertia", q, frame=frame)

    def operational_space_inertia(self, q: ArrayLike, frame: str, rows: Sequence[int] = range(6)) -> Array:
        """Λ of the chosen rows of the frame's twist (Khatib): the inertia that a force on the frame feels."""
        rows = list(rows)
        self._needs_independent(q, frame, rows)
        return np.linalg.inv(self.operational_space_inverse_inertia(q, frame)[..., rows, :][..., rows])

    def _needs_independent(self, q: ArrayLike, frame: str, rows: Sequence[int]) -> None:
        """Λ is the inverse of something only where the rows of the Jacobian are independent."""
        J = self.jacobian(q, frame)[..., rows, :]
        rank = int(np.min(np.linalg.matrix_rank(J))) if J.size else 0
        if rank < len(rows):
            raise InputError(
                f"the motion of {frame!r} has only {rank} independent rows of the {len(rows)} asked for; "
                f"choose fewer rows, or a configuration that is not singular"
            )
        if self.massless_joints:
            raise self._no_mass()

    # ---- kinematics

    def forward_kinematics(self, q: ArrayLike) -> Array:
        """The poses of all moving links in the world: (..., n_links, 4, 4)."""
        return self._run("forward_kinematics", q)

    def pose(self, q: ArrayLike, frame: str) -> Array:
        """The pose of a link or frame in the world: (..., 4, 4)."""
        return self._run("pose", q, frame=frame)

    def velocity(self, q: ArrayLike, v: ArrayLike, frame: str) -> Array:
        """The twist of a frame in its own coordinates, angular first: (..., 6)."""
        return self._run("velocity", q, v, frame=frame)

    def acceleration(self, q: ArrayLike, v: ArrayLike, a: ArrayLike, frame: str) -> Array:
        """The componentwise derivative of the frame's twist: (..., 6). Gravity is not in it."""
        return self._run("acceleration", q, v, a, frame=frame)

    def jacobian(self, q: ArrayLike, frame: str, reference: str = "body") -> Array:
        """J with twist = J v: (..., 6, nv), angular first.

        `reference` says in whose coordinates: "body" the frame's own, "world" the world's axes and origin, "aligned"
        the world's axes at the frame's origin.
        """
        J = self._run("jacobian", q, frame=frame)
        if reference == "body":
            return J
        if reference not in ("world", "aligned"):
            raise InputError(f"reference={reference!r} is not known; take 'body', 'world' or 'aligned'")
        T = self.pose(q, frame)
        R, p = T[..., :3, :3], T[..., :3, 3]
        w, u = R @ J[..., :3, :], R @ J[..., 3:, :]
        if reference == "world":
            u = u + np.cross(p[..., None, :], np.swapaxes(w, -1, -2)).swapaxes(-1, -2)
        return np.concatenate([w, u], axis=-2)

    def jacobian_derivative(self, q: ArrayLike, v: ArrayLike, frame: str) -> Array:
        """J̇ of the body Jacobian, so that acceleration = J a + J̇ v: (..., 6, nv)."""
        return self._run("jacobian_derivative", q, v, frame=frame)

    # ---- energy and momentum

    def kinetic_energy(self, q: ArrayLike, v: ArrayLike) -> Array:
        """Kinetic energy, rotors included."""
        return self._run("kinetic_energy", q, v)

    def potential_energy(self, q: ArrayLike) -> Array:
        """Potential energy of gravity and springs; zero where the links' masses lie in the world's origin."""
        return self._run("potential_energy", q)

    def center_of_mass(self, q: ArrayLike) -> Array:
        """Of the moving links, in the world: (..., 3)."""
        self._needs_some_mass()
        return self._run("center_of_mass", q)

    def momentum(self, q: ArrayLike, v: ArrayLike) -> Array:
        """Angular momentum about the centre of mass and linear momentum, in the world's axes: (..., 6)."""
        self._needs_some_mass()
        return self._run("momentum", q, v)

    def centroidal_momentum_matrix(self, q: ArrayLike) -> Array:
        """A_G with momentum = A_G v: (..., 6, nv)."""
        self._needs_some_mass()
        return self._run("centroidal_momentum_matrix", q)

    @property
    def mass(self) -> float:
        """The mass of the moving links."""
        return float(self.model.mass)

    # ---- simulation

    def simulate(
        self,
        q0: ArrayLike,
        v0: ArrayLike,
        controls: ArrayLike | Callable[..., Any] | None = None,
        *,
        dt: float,
        steps: int,
        integrator: str = "rk4",
        record: int | str = 1,
        **options: Any,
    ) -> Trajectory:
        """The motion from (q0, v0) through `steps` steps of `dt`, any leading batch axes, compiled as a whole.

        `controls` are joint forces: None, an array (..., steps, nv), or a function of (t, q, v). `record` says every how
        many steps the state is kept, "end" only the last. Options (docs/simulation.md): `inputs`, `forces`, `prescribed`,
        `free`, `t0`, `constraints`, `gains`; for the integrators of SciPy `rtol`, `atol`, `events`.
        """
        from qddot.simulation import simulate

        chosen = {"dt": dt, "steps": steps, "integrator": integrator, "record": record, **options}
        return simulate(self, q0, v0, controls, **chosen)

    # ---- parameters

    def parameters(self, name: str) -> Array:
        """The present values of a parameter, such as "inertia" or "link3.mass", as kernels with `free` take them."""
        return parameters.current(self.model, name)

    def with_parameters(self, values: Mapping[str, ArrayLike]) -> Robot:
        """The same robot with other numbers, by the names that `parameters` takes. What cannot be is an error."""
        return Robot(parameters.with_values(self.model, values), self.compiled)

    def base_parameters(self, tolerance: float = 1e-9) -> BaseParameters:
        """Which combinations of the links' inertias joint forces depend on, and their values (docs/parameters.md).

        What the forces at random states tell apart by less than `tolerance` is taken for the same.
        """
        if self.model.is_constrained:
            raise self._has_loops("identification")
        return identification.base_parameters(self.model, tolerance)

    # ---- kernels

    def kernel(
        self,
        function: str,
        *,
        method: str = "auto",
        dtype: str = "float64",
        lanes: int | None = None,
        form: str = "auto",
        frame: str | None = None,
        prescribed: Iterable[str | int | tuple[str, int]] | None = None,
        by: Any = None,
        free: Sequence[str] = (),
        regroup: bool = True,
        packed: bool = False,
    ) -> Kernel:
        """The compiled kernel of a function: call it with arrays, look at its `info`.

        `function` is the name of one of this robot's methods; those that take a frame need `frame`, hybrid dynamics needs
        `prescribed`, derivatives by one scalar need `by`. Of a robot with loops the dynamics have names that begin with
        "constrained"; `spanning_tree()` has the others. `method` names a formulation, `dtype` is float64 or float32,
        `lanes` how many states one instruction works on (None: as many as the processor can). `form` is "unrolled",
        straight-line code for this one robot, or "rolled", code that keeps its loops over the links and does not grow with
        their number; "auto" rolls what is long. `free` names parameters (docs/parameters.md) that the kernel takes as
        inputs after the others, each with batch axes of its own. `packed=True` gives each number of the result that varies
        once, in the order in which they are computed: `unpack` of the kernel makes the full array, its `layout` says what
        is where. `regroup=False` leaves inertias and frames as the file has them, for comparison. A kernel is compiled
        once and kept, in this process and on disk.
        """
        free = (free,) if isinstance(free, str) else tuple(free)
        chosen = None if prescribed is None else self.model.freedoms(prescribed)
        p = None if by is None else scalar.resolve(self.model, by)
        key = (function, method, dtype, lanes, form, frame, chosen, p, regroup, free, packed)
        found = self._kernels.get(key)
        if found is None:
            found = self._kernels[key] = self._compiled(*key)
        return found

    def _compiled(
        self,
        function: str,
        method: str,
        dtype: str,
        lanes: int | None,
        form: str,
        frame: str | None,
        prescribed: Sequence[int] | None,
        by: scalar.By | None,
        regroup: bool,
        free: Sequence[str],
        packed: bool,
    ) -> Kernel:
        if form not in ("auto", "unrolled", "rolled"):
            raise InputError(f"form={form!r} is not known; take 'auto', 'unrolled' or 'rolled'")
        extra = self._needs(function, method, dtype, frame=frame, prescribed=prescribed, by=by)
        if lanes is not None and lanes not in (1, 2, 4, 8, 16):
            raise InputError(f"lanes={lanes!r} is not known; take 1, 2, 4, 8, 16 or None")
        extra |= {"form": form, "regroup": regroup, "free": free, "packed": packed}
        return pipeline.build(self.model, function, method, dtype, lanes, **extra)

    def export_c(
        self,
        function: str,
        path: str | os.PathLike[str] | None = None,
        *,
        method: str = "auto",
        dtype: str = "float64",
        frame: str | None = None,
        prescribed: Iterable[str | int | tuple[str, int]] | None = None,
        by: Any = None,
        **options: Any,
    ) -> CSource:
        """A function as readable C99 in `path`, with a header beside it. Options: `qddot.dynamics.export.c_source`."""
        from qddot.dynamics import export

        extra = self._needs(function, method, dtype, frame=frame, prescribed=prescribed, by=by)
        if function.startswith(("forward_dynamics", "mass_matrix_inverse")) and self.massless_joints:
            raise self._no_mass()
        found = export.c_source(self.model, function, method=method, dtype=dtype, **options, **extra)
        if path is not None:
            export.write(found, path)
        return found

    def _needs(self, function: str, method: str, dtype: str, **given: Any) -> dict[str, Any]:
        """What else a function is to be given, if all that is asked for is there."""
        if dtype not in ("float64", "float32"):
            raise InputError(f"dtype={dtype!r} is not known; take 'float64' or 'float32'")
        needs = catalogue.lookup(function, method)[0].needs
        for name, value in given.items():
            if (name in needs) != (value is not None):
                raise InputError(f"function {function!r} {'needs' if name in needs else 'takes no'} {name}=")
        if self.model.is_constrained and function.startswith(_MOTION):
            raise self._has_loops(function)
        if self.nv == 0:
            raise InputError(f"robot {self.name!r} has no freedoms, so there is nothing to compile")
        if function.startswith(_OF_CONSTRAINTS):
            _ = self._closure  # an error where there are none
        exact: dict[str, Callable[[], Any]] = {
            "frame": lambda: self.model.frame(given["frame"]).name,
            "prescribed": lambda: self.model.freedoms(given["prescribed"]),
            "by": lambda: scalar.resolve(self.model, given["by"]),
            "rows": lambda: self._closure.rows,
        }
        return {name: exact[name]() for name in needs}

    @cached_property
    def _kernels(self) -> dict[Any, Kernel]:
        return {}

    @cached_property
    def _quick(self) -> dict[Any, Callable[..., Any]]:
        """The functions for one state of kernels that have been used; they answer None for anything else."""
        return {}

    def _run(self, function: str, *inputs: Any, **needs: Any) -> Array:
        """The kernel's result; the eager algorithm's where inputs are no real numbers or there is nothing to compile."""
        key = (function, *needs.values()) if needs else function
        quick = self._quick.get(key)
        if quick is not None and (result := quick(*inputs)) is not None:
            return result
        kernel = self._kernels.get(key)
        if kernel is None:
            if self.nv == 0 or not self.compiled:
                return self._eager(function, inputs, needs)
            try:
                kernel = self._kernels[key] = self.kernel(function, **needs)
            except KernelTooLargeError as error:
                warnings.warn(f"{error}; it is not compiled, and slow", QddotWarning, stacklevel=3)
                return self._eager(function, inputs, needs)
            if kernel.one_state is not None:
                self._quick[key] = kernel.one_state
        try:
            result = kernel(*inputs)
        except ValueError:  # InputError, or NumPy's of lists that are no arrays
            return self._eager(function, inputs, needs)  # which takes other kinds of numbers, and explains what is wrong
        if self._has_quaternions and np.ndim(inputs[0]) == 1 and not np.isfinite(result).all():
            self._checked(function, kernel.names, inputs)
        return result

    def _solve(self, axes: int, function: str, *inputs: Any, **needs: Any) -> Array:
        """As `_run`, for what divides by the mass matrix; `axes` are those of one state's result."""
        quick = self._quick.get((function, *needs.values()) if needs else function)
        if quick is not None and (result := quick(*inputs)) is not None and not self._has_lost(axes, function, result):
            return result
        held = needs.get("prescribed", ())
        if motions := self._massless(tuple(k for k in range(self.nv) if k not in held)):
            raise self._no_mass(motions)
        result = self._run(function, *inputs, **needs)
        if self._has_lost(axes, function, result) or (result.ndim == axes and not np.isfinite(result).all()):
            self._explain_lost(axes, function, inputs, result)
        return result

    def _has_lost(self, axes: int, function: str, result: Array) -> bool:
        """Whether a pivot of M was rounding in some state: then its freedom's acceleration, or its slope by its force, is
        NaN. Reading a vector once more takes a nanosecond a state; of matrices only single entries are read.
        """
        if not self._watched or not result.size or result.dtype.kind != "f":
            return False
        if result.ndim == axes == 1:
            total = sum(result.tolist())
            return bool(total != total)
        if axes == 1 or not function.endswith(_BY_PAIRS):
            return bool(np.isnan(np.maximum.reduce(result.reshape(-1))))
        return any(np.isnan(np.maximum.reduce(result[..., k, k], axis=None)) for k in self._watched)

    def _explain_lost(self, axes: int, function: str, inputs: Sequence[Any], result: Array, stacklevel: int = 4) -> None:
        """An error if it is one state, a warning if it is some of many: where, and which motion has no mass there."""
        q, batch = np.asarray(inputs[0]), result.shape[: result.ndim - axes]
        if q.dtype.kind not in "fiub" or (not batch and not _all_finite(inputs)):
            return
        if not batch:
            raise self._lost_at(q)
        lost = np.isnan(result).any(axis=tuple(range(-axes, 0)))
        for name, x in zip(catalogue.lookup(function, "auto")[0].inputs, inputs, strict=True):
            lost &= np.isfinite(np.asarray(x, dtype=float)).all(axis=tuple(range(-_AXES.get(name, 1), 0)))
        if lost.any():
            result[lost] = np.nan
            first = np.unravel_index(int(np.argmax(lost)), batch)
            warnings.warn(
                f"{function}: {np.count_nonzero(lost)} of {lost.size} samples are NaN; in sample "
                f"{', '.join(map(str, first))} {self._lost_at(np.broadcast_to(q, (*batch, self.nq))[first])}",
                QddotWarning,
                stacklevel=stacklevel,
            )

    def _lost_at(self, q: Array) -> SingularMassMatrixError | NumericalOverflowError:
        with np.errstate(all="ignore"):
            M = np.asarray(composite_body.mass_matrix(self.model, np.asarray(q, dtype=float)), dtype=float)
        return singularity.in_this_configuration(self.model, M)

    def _near_singular(self, q: Array) -> str:
        """What is to be said of a configuration after which a simulation has lost its numbers, if M explains it."""
        if not self._watched:
            return ""
        M = np.asarray(composite_body.mass_matrix(self.model, q), dtype=float)
        motions = singularity.null_motions(M, singularity.NEAR)
        return (
            f"near a singular configuration, where {singularity.said(self.model, motions)} moves no mass" if motions else ""
        )

    @cached_property
    def _guarded(self) -> Model:
        """The model whose pivots of M are watched where they can vanish."""
        return pivots.guarded(self.model)

    @cached_property
    def _watched(self) -> list[int]:
        """The freedoms with such pivots."""
        return [k for k, floor in enumerate(self._guarded.floors) if floor != 0.0]

    def _eager(self, function: str, inputs: Sequence[Any], needs: Mapping[str, Any]) -> Array:
        needs = dict(needs)
        found, _, algorithm = catalogue.lookup(function, needs.pop("method", "auto"))
        if "rows" in found.needs:
            needs["rows"] = self._closure.rows
        arrays = self._checked(function, found.inputs, inputs)
        try:
            with np.errstate(all="ignore"):
                result = algorithm(self._guarded, *arrays, **needs)
        except ZeroDivisionError:
            result = np.full(found.output(self.model), np.nan)
        return _batched(len(found.output(self.model)), result, *arrays, axes=[_AXES.get(x, 1) for x in found.inputs])

    # ---- checks

    def _gather(self, values: Callable[[int], Sequence[Any]]) -> Array:
        own = [i for i, _ in self.model.outward() if self.model.mimic[i] is None]
        return stack([x for i in own for x in values(i)])

    def _numbers(self, x: ArrayLike, what: str) -> Array:
        try:
            array = np.asarray(x)
        except ValueError:
            raise InputError(f"{what} is a ragged list: its rows have different lengths; give an array") from None
        if array.dtype.kind in "iub" or array.dtype == np.float32:
            array = array.astype(float)
        of_other = array.dtype == object and not all(hasattr(x, "__sub__") for x in array.flat)
        if array.dtype.kind not in "fcO" or of_other:
            raise InputError(f"{what} must hold numbers, not {array.dtype}")
        return array

    def _shaped(self, x: ArrayLike, n: int, what: str, size: str) -> Array:
        array = self._numbers(x, what)
        if array.ndim == 0 or array.shape[-1] != n:
            raise InputError(
                f"{what} has shape {array.shape}, but its last axis must have {n} entries: "
                f"robot {self.name!r} has {size} = {n}"
            )
        return array

    def _q(self, q: ArrayLike, what: str = "q") -> Array:
        array = self._shaped(q, self.nq, what, "nq")
        for i in self._has_quaternions if array.dtype != object else ():
            quaternion = array[..., self.model.slots[i].q][..., -4:]
            off = np.max(np.abs(np.sum(quaternion * quaternion, axis=-1).real - 1.0), initial=0.0)
            if off > catalogue.UNIT_QUATERNION_TOLERANCE:
                raise InputError(
                    f"the quaternion of joint {self.model.joint_names[i]!r} in {what} is not of unit length "
                    f"(its square is off by {off:.3g}); use robot.normalize(q)"
                )
        return array

    @cached_property
    def _has_quaternions(self) -> tuple[int, ...]:
        return tuple(i for i, _ in self.model.outward() if self.model.joint[i].has_unit_quaternion)

    def _v(self, v: ArrayLike, what: str) -> Array:
        return self._shaped(v, self.nv, what, "nv")

    def _forces(self, f_ext: ArrayLike, what: str) -> Array:
        array = self._numbers(f_ext, what)
        if array.shape[-2:] != (self.model.n_links, 6):
            raise InputError(
                f"{what} has shape {array.shape}, but must be (..., {self.model.n_links}, 6): "
                f"a force (moment, force) in its own frame for each of robot {self.name!r}'s moving links"
            )
        return array

    def _checked(self, function: str, names: Sequence[str], inputs: Sequence[Any]) -> list[Array]:
        """The inputs as arrays, or an error that says which one is wrong and how."""
        if len(inputs) != len(names):
            raise InputError(f"{function} takes {', '.join(names)}; {len(inputs)} arrays were given")
        checks: dict[str, Callable[[Any, str], Array]] = {
            "q": self._q,
            "f_ext": self._forces,
            "df_ext_dp": self._forces,
            "gains": lambda x, what: self._shaped(x, 2, what, "gains (k_p, k_d), so it"),
            "tau_loops": lambda x, what: self._shaped(x, self._n_closing, what, "freedoms of closing joints"),
        }
        arrays = [checks.get(name, self._v)(x, name) for name, x in zip(names, inputs, strict=True)]
        batches = [a.shape[: a.ndim - _AXES.get(n, 1)] for n, a in zip(names, arrays, strict=True)]
        try:
            np.broadcast_shapes(*batches)
        except ValueError:
            shapes = ", ".join(f"{n} {a.shape}" for n, a in zip(names, arrays, strict=True))
            raise InputError(f"the batch axes of {shapes} do not fit together") from None
        return arrays

    def _has_loops(self, function: str) -> InputError:
        own = [*(loop.name for loop in self.model.loops), *(c.name for c in self.model.constraints)]
        keeps = f"constrained_{function}"
        known = f"{keeps} keeps them, and " if keeps in catalogue.LOOP_FUNCTIONS else ""
        return InputError(
            f"robot {self.name!r} has loops or constraints ({', '.join(own[:4])}), which {function} would ignore; "
            f"{known}robot.spanning_tree() gives the robot with its loops cut open"
        )

    @property
    def _n_closing(self) -> int:
        return sum(loop.joint.nv for loop in self.model.loops)

    def _needs_some_mass(self) -> None:
        if self.model.mass == 0.0:
            raise InputError(f"robot {self.name!r} has no mass, so it has no centre of mass")

    def _no_mass(self, motions: singularity.Motions | None = None) -> SingularMassMatrixError:
        return singularity.nothing_moved(self.model, motions or self._massless(tuple(range(self.nv))))

    @property
    def massless_joints(self) -> tuple[str, ...]:
        """The joints that can move, alone or together, without moving mass or inertia, in every configuration."""
        return singularity.joints_of(self.model, self._massless(tuple(range(self.nv))))

    def _massless(self, among: tuple[int, ...]) -> singularity.Motions:
        """The motions of these freedoms, the others held, by which the mass matrix is singular in every configuration."""
        if self.nv > _LONG:
            return {k: unit for k, unit in self._weightless().items() if k in among}
        if among not in self._singular:
            rng = np.random.default_rng(0)
            states = np.stack([self.random_state(rng)[0] for _ in range(3)])
            with np.errstate(all="ignore"):
                M = _batched(2, composite_body.mass_matrix(self.model, states), states)
            if not np.isfinite(M).all():
                raise singularity.overflow(self.model, M[0])
            found = singularity.always_null(list(M[:, among, :][:, :, among]))
            own = np.eye(self.nv)[list(among)]
            self._singular[among] = {among[k]: motion @ own for k, motion in found.items()}
        return self._singular[among]

    def _weightless(self) -> dict[int, Array]:
        """The joints without a rotor that carry no inertia at all: what can be said of a long robot without its M."""
        model = self.model
        carries = [any((I.m, *I.h, *(x for row in I.I for x in row))) for I in model.inertia]
        for i, p in model.inward():
            carries[p] = carries[p] or carries[i]
        own = [i for i, _ in model.outward() if not carries[i] and not all(model.armature[i]) and model.mimic[i] is None]
        freedoms = [k for i in own for k in range(model.slots[i].v.start, model.slots[i].v.stop)]
        return {k: np.arange(self.nv) == k for k in freedoms}

    @cached_property
    def _singular(self) -> dict[tuple[int, ...], singularity.Motions]:
        return {}


def _all_finite(arrays: Sequence[Any]) -> bool:
    return all(bool(np.isfinite(np.asarray(x)).all()) for x in arrays)


def _batched(core: int, result: Any, *inputs: Array, axes: Sequence[int] | None = None) -> Array:
    """The result with the batch axes of the inputs, which it lacks where it does not depend on them.

    `axes` are those of one state's inputs, one each if nothing is said.
    """
    batches = [x.shape[: x.ndim - n] for x, n in zip(inputs, axes or [1] * len(inputs), strict=True)]
    out = np.asarray(result)
    shape = (*np.broadcast_shapes(*batches), *out.shape[out.ndim - core :])
    return out if out.shape == shape else np.broadcast_to(out, shape).copy()


class _Index(Mapping[str, int | slice]):
    """Joint name -> place in q or v."""

    def __init__(self, model: Model, which: str) -> None:
        self._model, self._which = model, which

    def __getitem__(self, name: str) -> int | slice:
        i = self._model.joint_index(name)
        mimic = self._model.mimic[i]
        if mimic is not None:
            master = self._model.joint_names[mimic.link]
            raise InputError(
                f"joint {name!r} has no coordinate of its own: it follows {master!r} by "
                f"q = {mimic.factor:g} q + {mimic.offset:g}; ask for {master!r}"
            )
        where: slice = getattr(self._model.slots[i], self._which)
        return where.start if where.stop - where.start == 1 else where

    def __iter__(self) -> Iterator[str]:
        return (n for i, n in enumerate(self._model.joint_names) if i and self._model.mimic[i] is None)

    def __len__(self) -> int:
        return sum(1 for _ in self)
