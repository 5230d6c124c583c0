"""The facade: a model with the algorithms as methods.

Every method takes one state, `(nq,)` and `(nv,)`, or any leading batch axes, which broadcast. Methods run compiled
kernels, made at their first use; the mathematics is in `qddot.algorithms`, for anybody to call directly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Unpack

from numpy.typing import ArrayLike

from qddot.compiler.runtime.kernel import Kernel
from qddot.dynamics import request
from qddot.dynamics.base_parameters import BaseParameters, base_parameters
from qddot.dynamics.constrained_solver import solver_of
from qddot.dynamics.named_forces import Forces, link_forces
from qddot.errors import Finding, InputError, unexpected
from qddot.mechanism import configurations, parameters
from qddot.robot.array_arguments import of_any_package, taking_any_arrays
from qddot.robot.base import Array
from qddot.robot.constraints import ConstraintMethods
from qddot.robot.derivatives import DerivativeMethods
from qddot.robot.export import ExportMethods
from qddot.robot.files import FileMethods
from qddot.robot.forces import ForceMethods
from qddot.robot.frameworks import FrameworkMethods
from qddot.robot.limits import LimitMethods
from qddot.robot.operational_space import OperationalSpaceMethods
from qddot.robot.pictures import PictureMethods
from qddot.robot.simulating import SimulationMethods
from qddot.robot.tasks import TaskMethods
from qddot.robot.trace import TraceMethods
from qddot.robot.variants import VariantMethods

_INVERSE_CHOICES = ("actuated", "tau_passive", "choice", "weights")
_FORWARD_CHOICES = {"method": "auto", "gains": None, "tau_loops": None}


@of_any_package
class Robot(
    DerivativeMethods,
    ConstraintMethods,
    OperationalSpaceMethods,
    TaskMethods,
    ForceMethods,
    SimulationMethods,
    LimitMethods,
    VariantMethods,
    TraceMethods,
    PictureMethods,
    FileMethods,
    ExportMethods,
    FrameworkMethods,
):
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
        self,
        q: ArrayLike,
        v: ArrayLike,
        a: ArrayLike,
        f_ext: Forces | None = None,
        *,
        expressed_in: str = "frame",
        **choices: Any,
    ) -> Array:
        """The joint forces that give the accelerations a.

        `f_ext`: (..., n_links, 6) in body frames, or {name of a frame or link: (..., 6)}, moment and force, in the axes
        that `expressed_in` says, "frame", "link" or "world" (`link_forces`).

        tau = M a + bias - passive - Jᵀ f_ext: what overcomes the model's joint damping, friction and springs is included.
        `load(…, passive_forces=False)` leaves those out. With loops they are those of the actuated joints;
        `constrained_inverse_dynamics` has the choices that there are.
        """
        if choices:
            self._check_choices("inverse_dynamics", choices, _INVERSE_CHOICES)
        if self.model.is_constrained:
            if not choices.keys() & {"actuated", "choice", "weights"}:
                self._note_spread()
            return self.constrained_inverse_dynamics(q, v, a, f_ext, expressed_in=expressed_in, **choices)[0]
        if f_ext is None:
            return self._evaluate("inverse_dynamics", q, v, a)
        forces = link_forces(self.engine, q, f_ext, expressed_in)
        return self._evaluate("inverse_dynamics_with_forces", q, v, a, forces)

    def forward_dynamics(
        self,
        q: ArrayLike,
        v: ArrayLike,
        tau: ArrayLike,
        f_ext: Forces | None = None,
        *,
        expressed_in: str = "frame",
        **choices: Any,
    ) -> Array:
        """The accelerations that the joint forces tau give. `f_ext` as in `inverse_dynamics`.

        Joint damping, friction and springs of the model act beside tau. Loops stay closed;
        `constrained_forward_dynamics` has the choices that there are, and the loops' forces.
        """
        if choices:
            self._check_choices("forward_dynamics", choices, _FORWARD_CHOICES)
        if self.model.is_constrained:
            return self._forward_with_loops(q, v, tau, f_ext, expressed_in=expressed_in, **choices)
        if f_ext is None:
            return self._solve(1, "forward_dynamics", q, v, tau)
        forces = link_forces(self.engine, q, f_ext, expressed_in)
        return self._solve(1, "forward_dynamics_with_forces", q, v, tau, forces)

    def _loops_forward(self, q: Any, v: Any, tau: Any, f_ext: Any, *, expressed_in: str, **choices: Any) -> Array:
        forces = None if f_ext is None else link_forces(self.engine, q, f_ext, expressed_in)
        return solver_of(self.engine).forward(q, v, tau, forces, **{**_FORWARD_CHOICES, **choices})[0]

    _forward_with_loops = taking_any_arrays(_loops_forward, "forward_dynamics")

    def hybrid_dynamics(
        self,
        q: ArrayLike,
        v: ArrayLike,
        a: ArrayLike,
        tau: ArrayLike,
        f_ext: Forces | None = None,
        *,
        prescribed: Iterable[str | int | tuple[str, int]],
        expressed_in: str = "frame",
    ) -> tuple[Array, Array]:
        """Accelerations and forces, both complete, where some joints have a given acceleration, the rest a given force.

        `prescribed` says which: joints by name, single degrees of freedom of them as (joint, k), or indices into v. Of `a`
        only the prescribed entries are read, of `tau` only the others. `f_ext` as in `inverse_dynamics`.
        """
        forces = () if f_ext is None else (link_forces(self.engine, q, f_ext, expressed_in),)
        if self.model.is_constrained:
            return self.constrained_hybrid_dynamics(q, v, a, tau, *forces, prescribed=prescribed)[:2]
        chosen = self._yielding_has_mass(prescribed)
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

        `function` is the name of one of this robot's methods; those that take a frame need `frame=`, and of those that take
        rows of its twist `rows=` chooses some; hybrid dynamics needs `prescribed=`, derivatives with respect to one scalar
        need `by=`. Of a robot with loops the dynamics have names that begin with "constrained"; `spanning_tree()` has the
        others. The other options:

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
        - `vjp=False`: True gives a cotangent times the Jacobian, a row of gradients that `parts` of the kernel takes apart;
          `jvp=False`: True gives the Jacobian times tangents; 2 is the second order of either, both together are the JVP of
          the VJP. `wrt=` names the inputs, and `coordinates="ambient"` has gradients of all coordinates of q instead of
          those along the degrees of freedom (docs/derivatives.md). `known_result=True` has the accelerations of forward
          dynamics as an input, which saves a third.

        A kernel is compiled once and kept, in this process and on disk.
        """
        return self.engine.kernel(request.checked(self.model, function, options, self._rows_for(function)))

    @property
    def massless_joints(self) -> tuple[str, ...]:
        """The joints that can move, alone or together, without moving mass or inertia, in every configuration."""
        return self.engine.solvability.massless_joints

    def _check_choices(self, function: str, given: Mapping[str, Any], known: Iterable[str]) -> None:
        for name in given:
            if name not in known:
                raise unexpected(function, name, ("f_ext", "expressed_in", *known))
            if not self.model.is_constrained:
                raise InputError(f"{name}= is for robots with loops, and robot {self.name!r} has none")
