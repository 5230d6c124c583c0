"""The facade: a model with the algorithms as methods.

Every method takes one state, `(nq,)` and `(nv,)`, or any leading batch axes, which broadcast. Methods run compiled
kernels, made at their first use; the mathematics is in `qddot.algorithms`, for anybody to call directly.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import ArrayLike

from qddot.algorithms.operational_space import operational_space
from qddot.compiler.runtime.kernel import Kernel
from qddot.dynamics import request
from qddot.dynamics.base_parameters import BaseParameters, base_parameters
from qddot.dynamics.constrained_solver import solver_of
from qddot.errors import Finding, InputError, one_name, unexpected
from qddot.mechanism import configurations, parameters
from qddot.mechanism.configurations import batched
from qddot.robot.base import Array
from qddot.robot.constraints import ConstraintMethods
from qddot.robot.derivatives import DerivativeMethods
from qddot.robot.files import FileMethods
from qddot.robot.kinematics import KinematicMethods

if TYPE_CHECKING:
    from qddot.dynamics.export import Source
    from qddot.dynamics.export_library import Library, Wanted
    from qddot.simulation.trajectory import Trajectory

_INVERSE_CHOICES = ("actuated", "tau_passive", "choice", "weights")
_FORWARD_CHOICES = {"method": "auto", "gains": None, "tau_loops": None}


class Robot(DerivativeMethods, ConstraintMethods, KinematicMethods, FileMethods):
    """A mechanism and what can be computed of it. With `compiled=False` its methods run the readable algorithms."""

    # ---- what it is

    @property
    def loop_findings(self) -> tuple[Finding, ...]:
        """By how much rounding in its file keeps loops open. They are closed to find out, which takes a while at first."""
        found = solver_of(self.engine).finding if self.model.loops else None
        return () if found is None else (found,)

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
        tree = Robot.__new__(Robot)
        tree._stand_on(self.engine.tree)  # whose kernels the constrained solver has too
        return tree

    # ---- configurations

    def neutral(self) -> Array:
        """All coordinates zero, quaternions at rest."""
        return configurations.neutral(self.model)

    def random_state(self, rng: np.random.Generator | int | None = None) -> tuple[Array, Array]:
        """A configuration, within the limits where a joint has them, and a velocity."""
        return configurations.random_state(self.model, np.random.default_rng(rng))

    def integrate(self, q: ArrayLike, v: ArrayLike, dt: float = 1.0) -> Array:
        """The configuration reached from q with the constant velocity v after a time dt."""
        checks = self.engine.checks
        return configurations.integrate(self.model, checks.q(q), checks.v(v, "v") * dt)

    def difference(self, q0: ArrayLike, q1: ArrayLike) -> Array:
        """The velocity that leads from q0 to q1 in a unit of time."""
        checks = self.engine.checks
        return configurations.difference(self.model, checks.q(q0, "q0"), checks.q(q1, "q1"))

    def normalize(self, q: ArrayLike) -> Array:
        """The nearest valid configuration: quaternions made unit."""
        return configurations.normalize(self.model, self.engine.checks.shaped(q, self.nq, "q", "nq"))

    # ---- dynamics

    def inverse_dynamics(
        self, q: ArrayLike, v: ArrayLike, a: ArrayLike, f_ext: ArrayLike | None = None, **choices: Any
    ) -> Array:
        """The joint forces that give the accelerations a. `f_ext`: (..., n_links, 6) in body frames.

        tau = M a + bias - passive - Jᵀ f_ext: what overcomes the model's joint damping, friction and springs is included.
        `load(…, passive_forces=False)` leaves those out. With loops they are those of the actuated joints;
        `constrained_inverse_dynamics` has the choices that there are.
        """
        self._check_choices("inverse_dynamics", choices, _INVERSE_CHOICES)
        if self.model.is_constrained:
            if not choices.keys() & {"actuated", "choice", "weights"}:
                self._note_spread()
            return self.constrained_inverse_dynamics(q, v, a, f_ext, **choices)[0]
        if f_ext is None:
            return self._evaluate("inverse_dynamics", q, v, a)
        return self._evaluate("inverse_dynamics_with_forces", q, v, a, f_ext)

    def forward_dynamics(
        self, q: ArrayLike, v: ArrayLike, tau: ArrayLike, f_ext: ArrayLike | None = None, **choices: Any
    ) -> Array:
        """The accelerations that the joint forces tau give. `f_ext`: (..., n_links, 6) in body frames.

        Joint damping, friction and springs of the model act beside tau. Loops stay closed;
        `constrained_forward_dynamics` has the choices that there are, and the loops' forces.
        """
        self._check_choices("forward_dynamics", choices, _FORWARD_CHOICES)
        if self.model.is_constrained:
            return solver_of(self.engine).forward(q, v, tau, f_ext, **{**_FORWARD_CHOICES, **choices})[0]
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
        """Accelerations and forces, both complete, where some joints have a given acceleration, the rest a given force.

        `prescribed` says which: joints by name, single degrees of freedom of them as (joint, k), or indices into v. Of `a`
        only the prescribed entries are read, of `tau` only the others.
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
        return self._evaluate("mass_matrix", q)

    def mass_matrix_inverse(self, q: ArrayLike) -> Array:
        """M(q)⁻¹, (..., nv, nv); of the spanning tree if there are loops."""
        return self._solve(2, "mass_matrix_inverse", q)

    def bias_force(self, q: ArrayLike, v: ArrayLike) -> Array:
        """Coriolis, centrifugal and gravity forces."""
        return self._evaluate("bias_force", q, v)

    def gravity_force(self, q: ArrayLike) -> Array:
        """The joint forces that balance gravity."""
        return self._evaluate("gravity_force", q)

    def coriolis_matrix(self, q: ArrayLike, v: ArrayLike) -> Array:
        """C(q, v) with C v + gravity = bias and Ṁ - 2C skew."""
        return self._evaluate("coriolis_matrix", q, v)

    def passive_force(self, q: ArrayLike, v: ArrayLike) -> Array:
        """What joint damping, friction and springs exert."""
        return self._evaluate("passive_force", q, v)

    def operational_space(
        self, q: ArrayLike, v: ArrayLike, frame: str, rows: Sequence[int] = range(6)
    ) -> tuple[Array, Array]:
        """Λ and μ with Λ V̇ + μ = F for the chosen rows of the frame's twist, in its own coordinates (Khatib)."""
        (x, u), rows = self.engine.checks.all("operational_space", ("q", "v"), (q, v)), list(rows)
        self._require_independent(q, frame, rows)
        solvability = self.engine.solvability
        Lambda, mu = operational_space(solvability.guarded, x, u, self.model.frame(frame), rows)
        if np.isnan(Lambda).any():
            Lambda, mu = np.array(Lambda), np.array(mu)
            solvability.explain_lost(2, "operational_space_inverse_inertia", (x,), Lambda, stacklevel=3)
        return batched(2, Lambda, x, u), batched(1, mu, x, u)

    def operational_space_inverse_inertia(self, q: ArrayLike, frame: str) -> Array:
        """Λ⁻¹ = J M⁻¹ Jᵀ of a frame, in its own coordinates: (..., 6, 6). It exists for every robot and configuration."""
        return self._solve(2, "operational_space_inverse_inertia", q, frame=frame)

    def operational_space_inertia(self, q: ArrayLike, frame: str, rows: Sequence[int] = range(6)) -> Array:
        """Λ of the chosen rows of the frame's twist (Khatib): the inertia that a force on the frame feels."""
        rows = list(rows)
        self._require_independent(q, frame, rows)
        return np.linalg.inv(self.operational_space_inverse_inertia(q, frame)[..., rows, :][..., rows])

    def _require_independent(self, q: ArrayLike, frame: str, rows: Sequence[int]) -> None:
        """Λ is the inverse of something only where the rows of the Jacobian are independent."""
        J = self.jacobian(q, frame)[..., rows, :]
        rank = int(np.min(np.linalg.matrix_rank(J))) if J.size else 0
        if rank < len(rows):
            raise InputError(
                f"the motion of {frame!r} has only {rank} independent rows of the {len(rows)} requested; "
                f"choose fewer rows, or a configuration that is not singular"
            )
        self.engine.solvability.require_mass()

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
        `free`, `t0`, `constraints`, `gains`, `dtype`; for the integrators of SciPy `rtol`, `atol`, `events`.
        """
        from qddot.simulation.simulate import simulate

        chosen = {"dt": dt, "steps": steps, "integrator": integrator, "record": record, **options}
        return simulate(self, q0, v0, controls, **chosen)

    # ---- parameters

    def parameters(self, name: str) -> Array:
        """The present values of a parameter, such as "inertia" or "link3.mass", as kernels with `free` take them."""
        return parameters.current(self.model, name)

    def with_parameters(self, values: Mapping[str, ArrayLike], *, allow_unphysical: bool = False) -> Robot:
        """The same robot with other numbers, by the names that `parameters` takes. What cannot be is an error.

        `allow_unphysical` keeps inertias that no body has, as least squares may find them; `findings` names them.
        """
        return Robot(parameters.with_values(self.model, values, allow_unphysical), self.compiled)

    def base_parameters(self, tolerance: float = 1e-9) -> BaseParameters:
        """Which combinations of the links' inertias joint forces depend on, and their values (docs/parameters.md).

        What the forces at random states tell apart by less than `tolerance` is taken for the same.
        """
        if self.model.is_constrained:
            raise request.ignores_loops(self.model, "identification")
        return base_parameters(self.model, tolerance)

    # ---- kernels

    def kernel(self, function: str, **options: Unpack[request.KernelOptions]) -> Kernel:
        """The compiled kernel of a function: call it with arrays, look at its `info`.

        `function` is the name of one of this robot's methods; those that take a frame need `frame=`, hybrid dynamics needs
        `prescribed=`, derivatives with respect to one scalar need `by=`. Of a robot with loops the dynamics have names that
        begin with "constrained"; `spanning_tree()` has the others. The other options:

        - `method="auto"`: a formulation; `auto` takes the cheapest.
        - `dtype="float64"`: or "float32", or NumPy's types of these names.
        - `lanes=None`: states that one instruction works on: 1, 2, 4, 8 or 16; None: as many as the processor can.
        - `form="auto"`: "unrolled", straight-line code for this one robot, or "rolled", code that keeps its loops over the
          links and does not grow with their number; "auto" rolls what is long.
        - `free=()`: names of parameters (docs/parameters.md) that the kernel takes as inputs after the others, each with
          batch axes of its own.
        - `packed=False`: True gives the unique non-constant entries of the result, in the order in which they are computed:
          `unpack` of the kernel makes the full array, its `layout` says what is where.
        - `regroup=True`: False leaves inertias and frames as the file has them, for comparison.
        - `target="cpu"`: this processor, or another one by LLVM's name, such as "cpu:x86-64-v3".

        A kernel is compiled once and kept, in this process and on disk.
        """
        return self.engine.kernel(request.checked(self.model, function, options, self._rows_for(function)))

    def export_source(
        self,
        function: str,
        path: str | os.PathLike[str] | None = None,
        *,
        language: str = "c99",
        frame: str | None = None,
        prescribed: Iterable[str | int | tuple[str, int]] | None = None,
        by: Any = None,
        **options: Any,
    ) -> Source:
        """A function as readable source code in `path`; options: `qddot.dynamics.export.SourceOptions` (docs/export.md)."""
        from qddot.dynamics import export

        called = options.pop("called", "export_source")
        for name in options:
            if name not in export.SourceOptions.__annotations__:
                raise unexpected(called, name, export.SourceOptions.__annotations__)
        options["dtype"] = request.dtype_name(options.get("dtype", "float64"))
        chosen = {"frame": frame, "prescribed": prescribed, "by": by}
        wanted = request.Request(function, options.get("method", "auto"), options["dtype"])
        static = request.static_arguments(self.model, wanted, chosen, self._rows_for(function))
        self._require_mass_for(function)
        found = export.source_of(self.model, function, language, **options, **static)
        if path is not None:
            export.write(found, path)
        return found

    def export_c(self, function: str, path: str | os.PathLike[str] | None = None, **options: Any) -> Source:
        """A function as readable C99 in `path`, with a header beside it. Options as for `export_source`."""
        return self.export_source(function, path, language="c99", called="export_c", **options)

    def export_library(
        self, path: str | os.PathLike[str], functions: Iterable[Wanted], *, target: str = "cpu", dtype: str = "float64"
    ) -> Library:
        """Functions as machine code for C programs, with a header beside it (docs/export.md).

        - `path` ends in `.so`, a shared library for Linux, or in `.o`, an object file.
        - `functions` are names, or names with options, such as `("jacobian", {"frame": "tool0"})`. Options are `name`, the
          function's in C (otherwise ROBOT_FUNCTION), and kernels' `method`, `dtype`, `form`, `frame`, `prescribed`, `by`.
        - `target="cpu"`: this processor, a system such as "aarch64-linux-gnu", or a processor such as "x86-64-v3".
        """
        from qddot.dynamics import export_library

        chosen = []
        for name, options in export_library.named(functions):
            wanted = {"dtype": dtype, **options}
            chosen.append(export_library.requested(self.model, name, wanted, self._rows_for(name)))
            self._require_mass_for(name)
        return export_library.export(self.model, path, chosen, target)

    def _require_mass_for(self, function: str) -> None:
        """Nothing is exported that divides by a mass matrix which is singular everywhere."""
        if function.startswith(("forward_dynamics", "mass_matrix_inverse")):
            self.engine.solvability.require_mass()

    def _rows_for(self, function: str) -> Sequence[int] | None:
        """The independent rows of the constraints, for functions that are compiled for them."""
        needs_rows = self.model.is_constrained and one_name(function, "function").startswith("constrained_")
        return solver_of(self.engine).rows if needs_rows else None

    @property
    def massless_joints(self) -> tuple[str, ...]:
        """The joints that can move, alone or together, without moving mass or inertia, in every configuration."""
        return self.engine.solvability.massless_joints

    def _check_choices(self, function: str, given: Mapping[str, Any], known: Iterable[str]) -> None:
        for name in given:
            if name not in known:
                raise unexpected(function, name, ("f_ext", *known))
            if not self.model.is_constrained:
                raise InputError(f"{name}= is for robots with loops, and robot {self.name!r} has none")
