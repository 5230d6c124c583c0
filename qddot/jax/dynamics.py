"""`Dynamics`: the methods of `Robot` as operations of JAX."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from qddot.dynamics.catalogue import ALL, lookup
from qddot.dynamics.constrained_solver import solver_of
from qddot.dynamics.derivative_results import ConstrainedDerivatives
from qddot.dynamics.engine import Engine, HasEngine
from qddot.dynamics.request import checked, ignores_loops, twist_rows
from qddot.errors import InputError, one_name, unexpected
from qddot.jax import configurations, constrained, rollouts
from qddot.jax.arrays import alike, zeros
from qddot.jax.forces import link_forces
from qddot.jax.functions import TABLE, Row
from qddot.jax.operation import Operation
from qddot.jax.primitive import call
from qddot.mechanism import parameters
from qddot.mechanism.model import Model

Prescribed = Iterable[str | int | tuple[str, int]]
Free = Mapping[str, Any]


class Dynamics:
    """The functions of a robot on JAX arrays, with `jit`, `vmap` and derivatives of the first and second order.

    Methods have the names, the order of arguments and the shapes of `Robot`'s, and any leading batch axes. `free` names
    parameters (docs/parameters.md) that methods take as keyword arguments, each with batch axes of its own; those not given
    keep the robot's numbers. Gradients of q have its shape and are orthogonal to unit quaternions (docs/jax.md).
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Any]: ...

    def __init__(self, robot: HasEngine, free: str | Iterable[str] = ()) -> None:
        self._stand_on(robot.engine, (free,) if isinstance(free, str) else free)

    def _stand_on(self, engine: Engine, free: Iterable[str]) -> None:
        self.engine, self.model = engine, engine.model
        self.free = tuple(one_name(x, "a parameter in free=") for x in free)
        parameters.parameters(self.model, self.free)
        if self.model.nv == 0:
            raise InputError(
                f"robot {self.model.name!r} has no degrees of freedom, so there is nothing to compute with JAX"
            )
        self._programs: dict[Any, Callable[..., Any]] = {}

    def __reduce__(self) -> Any:
        return _remade, (self.engine.model, self.free)

    def __repr__(self) -> str:
        return f"<qddot.jax.Dynamics {self.model.name!r}: nq={self.model.nq}, nv={self.model.nv}>"

    @property
    def nq(self) -> int:
        """How many coordinates a configuration has."""
        return self.model.nq

    @property
    def nv(self) -> int:
        """How many degrees of freedom the robot has."""
        return self.model.nv

    # ---- dynamics

    def inverse_dynamics(
        self, q: Any, v: Any, a: Any, f_ext: Any = None, *, expressed_in: str = "frame", **free: Any
    ) -> Any:
        """The joint forces that give the accelerations a; `f_ext` as in `Robot.inverse_dynamics`."""
        if self.model.is_constrained:
            return self.constrained_inverse_dynamics(q, v, a, f_ext, expressed_in=expressed_in, **free)[0]
        return self._run("inverse_dynamics", (q, v, a), f_ext, expressed_in, free)

    def forward_dynamics(
        self, q: Any, v: Any, tau: Any, f_ext: Any = None, *, expressed_in: str = "frame", **free: Any
    ) -> Any:
        """The accelerations that the joint forces tau give, loops closed; `f_ext` as in `Robot.inverse_dynamics`.

        States whose loops are open, or whose constraints depend on each other, are NaN.
        """
        if self.model.is_constrained:
            return self.constrained_forward_dynamics(q, v, tau, f_ext, expressed_in=expressed_in, **free)[0]
        self._require_mass(free)
        return self._run("forward_dynamics", (q, v, tau), f_ext, expressed_in, free)

    def constrained_forward_dynamics(
        self,
        q: Any,
        v: Any,
        tau: Any,
        f_ext: Any = None,
        *,
        gains: Any = None,
        tau_loops: Any = None,
        expressed_in: str = "frame",
        **free: Any,
    ) -> tuple[Any, Any]:
        """Accelerations and the constraints' forces λ; `gains` and `tau_loops` as in `Robot`."""
        solver = constrained.usable(solver_of(self.engine))
        self._require_mass(free)
        if tau_loops is not None:
            tau = tau + self._run("loop_joint_forces", (q, tau_loops), None, "frame", free)
        name, inputs = "constrained_forward_dynamics", (q, v, tau)
        nothing = functools.partial(zeros, function=name, names=("q", "v", "tau"), arrays=inputs)
        if gains is not None:
            f_ext = nothing((self.model.n_links, 6)) if f_ext is None else f_ext
            gains = gains if hasattr(gains, "dtype") else jnp.asarray(gains, nothing(()).dtype)
        after = functools.partial(constrained.forward_result, solver, gains is not None)
        more = () if f_ext is None else (nothing((2,)) if gains is None else gains,)
        a, lam = self._run(name, inputs, f_ext, expressed_in, free, after=after, more=more)
        return a, self._least(q, lam, free)

    def constrained_forward_dynamics_derivatives(self, q: Any, v: Any, tau: Any, **free: Any) -> ConstrainedDerivatives:
        """`Robot.constrained_forward_dynamics_derivatives`, of constraints without redundant rows."""
        constrained.check_independent(solver_of(self.engine))
        return self._derivatives(q, v, tau, free)

    def _derivatives(self, q: Any, v: Any, tau: Any, free: Free) -> ConstrainedDerivatives:
        solver = constrained.usable(solver_of(self.engine))
        self._require_mass(free)
        after = functools.partial(constrained.derivatives_result, solver)
        return self._run("constrained_forward_dynamics_derivatives", (q, v, tau), None, "frame", free, after=after)

    def constrained_inverse_dynamics(
        self,
        q: Any,
        v: Any,
        a: Any,
        f_ext: Any = None,
        *,
        actuated: Prescribed | None = None,
        tau_passive: Any = 0.0,
        expressed_in: str = "frame",
        **options: Any,
    ) -> tuple[Any, Any]:
        """Joint forces and the constraints' forces λ, with the choices of `Robot.constrained_inverse_dynamics`.

        Options are `choice`, `weights` and free parameters.
        Whether the motion keeps the loops closed, and whether the driven joints suffice, is not looked at.
        """
        constrained.usable(solver_of(self.engine))
        free = dict(options)
        choice, weights = free.pop("choice", None) or "torque", free.pop("weights", 1.0)
        if choice not in ("torque", "constraint_force"):
            raise InputError(f"choice={choice!r} is not known; take 'torque' or 'constraint_force'")
        driven = [self.model.joint_names[i] for i, _ in self.model.outward() if self._is_driven(i)]
        mask = np.isin(np.arange(self.nv), self.model.dof_indices(driven if actuated is None else actuated))
        forces = self._tree._run("inverse_dynamics", (q, v, a), f_ext, expressed_in, free)
        A = self.constraint_jacobian(q, **free)
        passive, weight = (jnp.broadcast_to(jnp.asarray(x, forces.dtype), (self.nv,)) for x in (tau_passive, weights))
        return constrained.inverse_result(forces, A, mask, passive, choice, weight)

    def constrained_hybrid_dynamics(
        self,
        q: Any,
        v: Any,
        a: Any,
        tau: Any,
        f_ext: Any = None,
        *,
        prescribed: Prescribed,
        expressed_in: str = "frame",
        **free: Any,
    ) -> tuple[Any, Any, Any]:
        """As `hybrid_dynamics`, and the constraints' forces λ, by the method "multipliers" of `Robot`'s."""
        solver, chosen = constrained.usable(solver_of(self.engine)), self.model.dof_indices(prescribed)
        self._require_mass(free, chosen)
        after = functools.partial(constrained.hybrid_result, solver)
        name, inputs = "constrained_hybrid_dynamics", (q, v, a, tau)
        found = self._run(name, inputs, f_ext, expressed_in, free, after=after, prescribed=chosen)
        return found[0], found[1], self._least(q, found[2], free)

    def hybrid_dynamics(
        self,
        q: Any,
        v: Any,
        a: Any,
        tau: Any,
        f_ext: Any = None,
        *,
        prescribed: Prescribed,
        expressed_in: str = "frame",
        **free: Any,
    ) -> tuple[Any, Any]:
        """Accelerations and forces, both complete, some joints being `prescribed` an acceleration."""
        if self.model.is_constrained:
            given: Any = {"prescribed": prescribed, "expressed_in": expressed_in, **free}
            return self.constrained_hybrid_dynamics(q, v, a, tau, f_ext, **given)[:2]
        chosen = self.model.dof_indices(prescribed)
        self._require_mass(free, chosen)
        both = self._run("hybrid_dynamics", (q, v, a, tau), f_ext, expressed_in, free, prescribed=chosen)
        return both[..., 0, :], both[..., 1, :]

    def jacobian(self, q: Any, frame: str, reference: str = "body", **free: Any) -> Any:
        """J with twist = J v: (..., 6, nv), angular first; `reference` as in `Robot.jacobian`."""
        J = self._run("jacobian", (q,), None, "frame", free, frame=frame)
        if reference == "body":
            return J
        if reference not in ("world", "aligned"):
            raise InputError(f"reference={reference!r} is not known; take 'body', 'world' or 'aligned'")
        T = self._run("pose", (q,), None, "frame", free, frame=frame)
        R, p = T[..., :3, :3], T[..., :3, 3]
        w, u = R @ J[..., :3, :], R @ J[..., 3:, :]
        if reference == "world":
            u = u + jnp.swapaxes(jnp.cross(p[..., None, :], jnp.swapaxes(w, -1, -2)), -1, -2)
        return jnp.concatenate([w, u], axis=-2)

    def operational_space(self, q: Any, v: Any, frame: str, rows: Iterable[int] = range(6), **free: Any) -> tuple[Any, Any]:
        """Λ and μ with Λ V̇ + μ = F for the chosen rows of the frame's twist, in its own coordinates."""
        chosen = twist_rows(rows)
        inertia = self.operational_space_inertia(q, frame, chosen, **free)
        return inertia, self.operational_space_bias_force(q, v, frame, chosen, **free)

    def link_forces(self, q: Any, f_ext: Any, expressed_in: str = "frame", **free: Any) -> Any:
        """The forces on all links in their own frames, (..., n_links, 6), as `Robot.link_forces`."""
        return link_forces(self, q, f_ext, expressed_in, free)

    # ---- configurations

    def integrate(self, q: Any, v: Any, dt: Any = 1.0) -> Any:
        """The configuration reached from q with the constant velocity v after a time dt."""
        x, u, t = alike("integrate", ("q", "v", "dt"), (q, v, dt))
        return self._moved["integrate"](x, u * t)

    def difference(self, q0: Any, q1: Any) -> Any:
        """The velocity that leads from q0 to q1 in a unit of time."""
        return self._moved["difference"](*alike("difference", ("q0", "q1"), (q0, q1)))

    def normalize(self, q: Any) -> Any:
        """The configuration with its quaternions made unit."""
        return self._moved["normalize"](*alike("normalize", ("q",), (q,)))

    def tangent_gradient(self, q: Any, g: Any) -> Any:
        """The gradient along the degrees of freedom, (..., nv), of a gradient g along the coordinates, (..., nq)."""
        return self._moved["tangent_gradient"](*alike("tangent_gradient", ("q", "g"), (q, g)))

    @functools.cached_property
    def _moved(self) -> dict[str, Callable[..., Any]]:
        return {name: jax.jit(functools.partial(f, self.model)) for name, f in configurations.FUNCTIONS.items()}

    # ---- calls of kernels

    def _run(
        self,
        function: str,
        inputs: tuple[Any, ...],
        f_ext: Any,
        expressed_in: str,
        free: Free,
        *,
        after: Callable[[Any], Any] | None = None,
        more: tuple[Any, ...] = (),
        **static: Any,
    ) -> Any:
        """The result of a function, with external forces where there are some."""
        for name in free:
            if name not in self.free:
                raise unexpected(function, name, self.free)
        if f_ext is not None:
            inputs = (*inputs, link_forces(self, inputs[0], f_ext, expressed_in, free), *more)
            function = f"{function}_with_forces"
        key = (function, *static.values())
        try:
            program = self._programs.get(key)
        except TypeError:  # something that is no name
            raise InputError(f"{function} takes names and numbers as {', '.join(static)}, not {static}") from None
        if program is None:
            program = self._programs[key] = jax.jit(functools.partial(self._traced, function, static))
        try:
            result = program(inputs, dict(free))
        except TypeError:  # of what JAX takes for no array; the error that names it
            alike(function, (*lookup(function, "auto")[0].inputs, *free), (*inputs, *free.values()))
            raise
        return result if after is None else after(result)

    def _traced(self, function: str, static: Mapping[str, Any], inputs: tuple[Any, ...], free: Free) -> Any:
        names = tuple(sorted(free))
        known = (*lookup(function, "auto")[0].inputs, *names)
        arrays = alike(function, known, (*inputs, *(free[name] for name in names)))
        op = self._operation(function, static, names, str(arrays[0].dtype))
        op.check([x.shape for x in arrays])
        return call(op, arrays)

    def _operation(self, function: str, static: Mapping[str, Any], free: tuple[str, ...], dtype: str) -> Operation:
        options: Any = {**static, "free": free, "dtype": dtype}
        needs_rows = self.model.is_constrained and function.startswith("constrained_")
        rows = solver_of(self.engine).rows if needs_rows else None
        return Operation(self.engine, self.model.digest, checked(self.model, function, options, rows))

    @functools.cached_property
    def _tree(self) -> Dynamics:
        """Of the spanning tree."""
        made = Dynamics.__new__(Dynamics)
        made._stand_on(self.engine.tree, self.free)
        return made

    def _is_driven(self, i: int) -> bool:
        return self.model.actuated[i] and self.model.mimic[i] is None

    def _least(self, q: Any, lam: Any, free: Free) -> Any:
        solver = solver_of(self.engine)
        if len(solver.rows) == len(solver.names):
            return lam
        return constrained.least(solver, self.constraint_jacobian(q, **free), lam)

    def _require_mass(self, free: Free, held: tuple[int, ...] = ()) -> None:
        """An error if what is not held can move without moving mass, unless free parameters may bring the mass."""
        if not free:
            self.engine.solvability.require_mass(held)

    def _check(self, function: str, row: Row, free: Free) -> None:
        """Errors that need no state: what the robot has not, and what would ignore its loops."""
        if row.of_trees and self.model.is_constrained:
            raise ignores_loops(self.model, function)
        if row.needs_mass and self.model.mass == 0.0 and not free:
            raise InputError(f"robot {self.model.name!r} has no mass, so it has no centre of mass")


class _Holder(NamedTuple):
    """An engine where a robot is expected."""

    engine: Engine


def _remade(model: Model, free: tuple[str, ...]) -> Dynamics:
    return Dynamics(_Holder(Engine(model)), free)


_RESOLVED: dict[str, Callable[[Model, Any], Any]] = {
    "frame": lambda model, x: model.frame(x).name,
    "prescribed": lambda model, x: model.dof_indices(x),
    "rows": lambda _, x: twist_rows(x),
    "by": lambda _, x: _frozen(x),
}


def _frozen(x: Any) -> Any:
    """A sequence, and those in it, as tuples: programs are found by it."""
    x = x.tolist() if hasattr(x, "tolist") else x
    return tuple(map(_frozen, x)) if isinstance(x, list | tuple) else x


def _method(name: str, row: Row) -> Callable[..., Any]:
    """A method of `Dynamics` for a function of the catalogue."""
    found = ALL[name]
    inputs = found.inputs
    needs = tuple(x for x in found.needs if found.is_task or x != "rows")
    takes = (*inputs, *(["f_ext"] if row.takes_forces else []), *(x for x in needs if x not in ("prescribed", "by")))

    def method(self: Dynamics, *args: Any, **given: Any) -> Any:
        free = {x: given.pop(x) for x in self.free if x in given}
        named = dict(zip(takes, args, strict=False)) | given
        expressed_in = named.pop("expressed_in", "frame") if row.takes_forces else "frame"
        if len(args) > len(takes) or named.keys() & set(takes[: len(args)]) & given.keys():
            raise InputError(f"{name} takes {', '.join(takes)}; {len(args)} arguments were given")
        for x in named:
            if x not in takes and x not in needs:
                raise unexpected(name, x, (*takes, *needs, *self.free))
        if missing := [x for x in (*inputs, *needs) if x not in named and x != "rows"]:
            raise InputError(f"{name} needs {', '.join(missing)}")
        if name == "forward_dynamics_derivatives" and self.model.is_constrained and named.get("f_ext") is None:
            q, v, tau = (named[x] for x in inputs)
            return self._derivatives(q, v, tau, free).a
        static = {x: _RESOLVED[x](self.model, named.get(x)) for x in needs}
        self._check(name, row, free)
        if expressed_in == "world" and named.get("f_ext") is not None:
            raise InputError(
                f"{name}: forces in the world's axes change with q in the links' frames; take jax.jacfwd of dynamics, or "
                f"link_forces(q, f_ext, 'world') as f_ext, which stays as it is in the links' frames"
            )
        if row.divides:
            self._require_mass(free, static.get("prescribed", ()))
        result = self._run(name, tuple(named[x] for x in inputs), named.get("f_ext"), expressed_in, free, **static)
        return result if row.result is None else row.result(self.model, result)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"`Robot.{name}`: {', '.join(takes)}."
    return method


for _name, _row in TABLE.items():
    setattr(Dynamics, _name, _method(_name, _row))
for _name, _function in rollouts.METHODS.items():
    setattr(Dynamics, _name, _function)
