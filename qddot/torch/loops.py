"""Robots with loops on tensors: what `qddot.dynamics.constrained_solver` is for NumPy's arrays, differentiable.

A sample whose loops are open, or whose constraints depend on each other, is NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from qddot.algorithms.constrained_dynamics import RANK
from qddot.dynamics.constrained_solver import FITS, UNBALANCED, solver_of
from qddot.dynamics.engine import Engine
from qddot.dynamics.loop_assembly import GENERIC_RANK
from qddot.errors import InputError, unexpected
from qddot.torch.call import engine_of
from qddot.torch.methods import ForwardDynamicsDerivatives, Method

if TYPE_CHECKING:
    from qddot.torch.dynamics import Dynamics

_FORWARD = ("q", "v", "tau")
_SPREAD: dict[str, Any] = {"actuated": None, "tau_passive": None, "choice": None, "weights": None}
CHOICES: dict[str, tuple[str, ...]] = {  # of dynamics with loops, by `Robot`'s names
    "forward_dynamics": ("gains", "tau_loops"),
    "inverse_dynamics": tuple(_SPREAD),
    "hybrid_dynamics": (),
}


class ConstrainedDerivatives(NamedTuple):
    """Of the accelerations, and of the constraints' forces λ."""

    a: ForwardDynamicsDerivatives
    lam: ForwardDynamicsDerivatives


# ---- the constants that a robot's solver finds; graphs have them as numbers -------------------------------


class _Facts(NamedTuple):
    """What tensors are compared with."""

    names: int  # rows of the constraints
    rows: tuple[int, ...]  # those that are kept as independent
    open_limit: float


@torch.compiler.assume_constant_result
def _known(digest: str) -> tuple[Any, ...]:
    solver = solver_of(engine_of(digest))
    return len(solver.names), solver.rows, solver.open_limit


def _facts(self: Dynamics) -> _Facts:
    return _Facts(*_known(self.digest))


@torch.compiler.assume_constant_result
def _driven(digest: str, actuated: tuple[Any, ...] | None, what: str) -> tuple[int, ...]:
    """The degrees of freedom whose force is sought; an error for loops whose rows contradict each other."""
    model, solver = engine_of(digest).model, solver_of(engine_of(digest))
    if not solver.is_exact:
        raise InputError(
            f"the loops of robot {model.name!r} close to {solver.miss:.1e} m or rad, as its numbers are rounded, "
            f"and {what} of tensors needs loops that close exactly; robot.{what} computes it for NumPy's arrays"
        )
    own = [model.joint_names[i] for i, _ in model.outward() if model.actuated[i] and model.mimic[i] is None]
    return model.dof_indices(own if actuated is None else actuated)


class Holder(NamedTuple):
    """An engine where a robot is expected."""

    engine: Engine


# ---- methods ---------------------------------------------------------------------------------------------------------


def constrained_forward_dynamics(
    self: Dynamics,
    q: Any,
    v: Any,
    tau: Any,
    f_ext: Any = None,
    *,
    gains: Any = None,
    tau_loops: Any = None,
    expressed_in: str = "frame",
    **free: Any,
) -> tuple[Tensor, Tensor]:
    """`Robot.constrained_forward_dynamics` on tensors: accelerations, and the constraints' forces λ."""
    a, lam = _forward(self, (q, v, tau, f_ext), {"gains": gains, "tau_loops": tau_loops}, expressed_in, free)
    facts = _facts(self)
    if len(facts.rows) == facts.names:
        return a, lam
    A_T = _jacobian(self, q, free).mT
    return a, _on(torch.linalg.pinv(A_T, rtol=GENERIC_RANK), _on(A_T, lam))


def _forward(
    self: Dynamics, inputs: tuple[Any, ...], choices: Mapping[str, Any], expressed_in: str, free: Mapping[str, Any]
) -> tuple[Tensor, Tensor]:
    """Accelerations, and the forces of the kept rows."""
    q, v, tau, f_ext = inputs
    gains, tau_loops = choices.get("gains"), choices.get("tau_loops")
    if tau_loops is not None:
        tau = tau + self.evaluate("loop_joint_forces", {"q": q, "tau_loops": tau_loops}, (), free)
    given, name = {"q": q, "v": v, "tau": tau}, "constrained_forward_dynamics"
    if f_ext is not None or gains is not None:
        like = next((x for x in inputs if isinstance(x, Tensor)), torch.zeros((), dtype=self.dtype, device=self.device))
        no_force = like.new_zeros((len(self.links), 6))
        given["f_ext"] = no_force if f_ext is None else self.link_forces(q, f_ext, expressed_in, **free)
        given["gains"] = like.new_zeros(2) if gains is None else gains
        name += "_with_forces"
    out = self.evaluate(name, given, (), free)
    return out[..., : self.model.nv], out[..., self.model.nv : -3]


def constrained_hybrid_dynamics(
    self: Dynamics,
    q: Any,
    v: Any,
    a: Any,
    tau: Any,
    f_ext: Any = None,
    *,
    prescribed: Any,
    expressed_in: str = "frame",
    **free: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """`Robot.constrained_hybrid_dynamics` with method="multipliers" on tensors: accelerations, forces, and λ."""
    given, name = {"q": q, "v": v, "a": a, "tau": tau}, "constrained_hybrid_dynamics"
    if f_ext is not None:
        given["f_ext"], name = self.link_forces(q, f_ext, expressed_in, **free), f"{name}_with_forces"
    out = self.evaluate(name, given, (("prescribed", tuple(prescribed)),), free)
    n, facts = self.model.nv, _facts(self)
    found, force, lam = out[..., :n], out[..., n : 2 * n], out[..., 2 * n : -3]
    if len(facts.rows) != facts.names:
        A_T = _jacobian(self, q, free).mT
        lam = _on(torch.linalg.pinv(A_T, rtol=GENERIC_RANK), _on(A_T, lam))
    return found, force, lam


def constrained_inverse_dynamics(
    self: Dynamics, q: Any, v: Any, a: Any, f_ext: Any = None, *, expressed_in: str = "frame", **choices: Any
) -> tuple[Tensor, Tensor]:
    """`Robot.constrained_inverse_dynamics` on tensors: joint forces, and the constraints' forces λ.   Kim (56)-(66).

    Takes `actuated`, `tau_passive`, `choice`, `weights`, and free parameters by their names.
    """
    for name in choices:
        if name not in _SPREAD and name not in self.free:
            raise unexpected("constrained_inverse_dynamics", name, ("f_ext", "expressed_in", *_SPREAD, *self.free))
    free = {name: choices[name] for name in self.free if name in choices}
    own = {**_SPREAD, **{name: x for name, x in choices.items() if name in _SPREAD}}
    actuated = None if own["actuated"] is None else tuple(own["actuated"])
    own["actuated"] = _driven(self.digest, actuated, "constrained_inverse_dynamics")
    forces = None if f_ext is None else self.link_forces(q, f_ext, expressed_in, **free)
    tau_r = self.tree.inverse_dynamics(q, v, a, forces, **free)
    A, drift = _jacobian(self, q, free), self.constraint_bias(q, v, **free)
    tau, lam, left = _least(self, tau_r, A, own)
    v, a = (x if isinstance(x, Tensor) else tau_r.new_tensor(x) for x in (v, a))
    limit = _facts(self).open_limit
    size = a.abs().amax(-1, keepdim=True).clamp(min=1.0)
    good = (_largest(self.constraint_residual(q, **free)) <= limit) & (_largest(_on(A, v)) <= limit)
    good = good & (_largest(_on(A, a) + drift) <= FITS * size)
    good = good & (_largest(left) <= UNBALANCED * tau_r.abs().amax(-1, keepdim=True).clamp(min=1.0))
    return torch.where(good, tau, torch.nan), torch.where(good, lam, torch.nan)


def _least(self: Dynamics, tau_r: Tensor, A: Tensor, own: Mapping[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """τ, λ and what is left unbalanced, as `constrained_dynamics.multipliers_of_inverse`, in its letters."""
    choice = own["choice"] or "torque"
    if choice not in ("torque", "constraint_force"):
        raise InputError(f"choice={choice!r} is not known; take 'torque' or 'constraint_force'")
    nv, active = self.model.nv, list(own["actuated"])
    passive = [k for k in range(nv) if k not in active]
    tau_p = tau_r.new_zeros(nv) if own["tau_passive"] is None else torch.as_tensor(own["tau_passive"]).to(tau_r)
    size = torch.linalg.matrix_norm(A).detach()
    A_pT, A_aT = A[..., passive].mT, A[..., active].mT
    lacking = (tau_r - tau_p)[..., passive]  # (56)
    inverse = _pseudoinverse(A_pT, size)
    lam = _on(inverse, lacking)  # (57) (59)
    if choice == "torque" and active:
        w = tau_r.new_ones(nv) if own["weights"] is None else torch.as_tensor(own["weights"]).to(tau_r)
        root = w[..., active].sqrt()
        N = torch.eye(A.shape[-2], dtype=A.dtype, device=A.device) - inverse @ A_pT
        across = _pseudoinverse(root[..., :, None] * (A_aT @ N), size * root.amax(-1))
        lam = lam + _on(N, _on(across, root * (tau_r[..., active] - _on(A_aT, lam))))  # (63) (64) (66)
    is_active = torch.zeros(nv, dtype=torch.bool, device=A.device)
    is_active[active] = True
    tau = torch.where(is_active, tau_r - _on(A.mT, lam), tau_p)  # (58) (60) (61) (62) (65)
    return tau, lam, lacking - _on(A_pT, lam)


def constrained_forward_dynamics_derivatives(
    self: Dynamics, q: Any, v: Any, tau: Any, **free: Any
) -> ConstrainedDerivatives:
    """`Robot.constrained_forward_dynamics_derivatives` on tensors, for constraints without redundant rows."""
    facts = _facts(self)
    if len(facts.rows) != facts.names:
        raise InputError(
            f"robot {self.model.name!r} has {facts.names - len(facts.rows)} redundant constraints, so that λ has other "
            f"derivatives than its kernel's; take forward_dynamics_derivatives for those of the accelerations"
        )
    of_a, of_lam = _derivatives(self, (q, v, tau), free)
    return ConstrainedDerivatives(of_a, of_lam)


def _derivatives(
    self: Dynamics, inputs: tuple[Any, ...], free: Mapping[str, Any]
) -> tuple[ForwardDynamicsDerivatives, ForwardDynamicsDerivatives]:
    name, n = "constrained_forward_dynamics_derivatives", self.model.nv
    out = self.evaluate(name, dict(zip(_FORWARD, inputs, strict=True)), (), free)
    good = (out[..., -2:] <= _facts(self).open_limit ** 2).all(-1, keepdim=True)
    flat = torch.where(good, out[..., :-3], torch.nan)
    parts = flat.unflatten(-1, (3, -1, n)).unbind(-3)
    return ForwardDynamicsDerivatives(*(x[..., :n, :] for x in parts)), ForwardDynamicsDerivatives(
        *(x[..., n:, :] for x in parts)
    )


def spanning_tree(self: Dynamics) -> Dynamics:
    """The same robot with its loops cut open and without other constraints."""
    return self.tree if self.is_constrained else self


METHODS = {
    f.__name__: f
    for f in (
        constrained_forward_dynamics,
        constrained_inverse_dynamics,
        constrained_hybrid_dynamics,
        constrained_forward_dynamics_derivatives,
        spanning_tree,
    )
}


def of_motion(self: Dynamics, method: Method, values: Mapping[str, Any], free: Mapping[str, Any]) -> Any:
    """Inverse, forward and hybrid dynamics with the loops closed."""
    name = method.function
    if name == "forward_dynamics_derivatives":
        if values["f_ext"] is not None:
            raise InputError(f"{name} of tensors takes no f_ext where there are loops")
        return _derivatives(self, tuple(values[x] for x in _FORWARD), free)[0]
    inputs = tuple(values[x] for x in method.inputs)
    named: dict[str, Any] = {"expressed_in": values["expressed_in"], "f_ext": values["f_ext"], **free}
    choices = {x: values[x] for x in CHOICES[name] if x in values}
    if name == "forward_dynamics":
        return _forward(self, (*inputs, values["f_ext"]), choices, values["expressed_in"], free)[0]
    q, v, a, *tau = inputs
    if name == "inverse_dynamics":
        return constrained_inverse_dynamics(self, q, v, a, **named, **choices)[0]
    return constrained_hybrid_dynamics(self, q, v, a, *tau, prescribed=values["prescribed"], **named)[:2]


def _jacobian(self: Dynamics, q: Any, free: Mapping[str, Any]) -> Tensor:
    found: Tensor = self.constraint_jacobian(q, **free)
    return found


def _pseudoinverse(X: Tensor, size: Tensor) -> Tensor:
    """X⁺; what is below RANK of `size` is nothing."""
    if 0 in X.shape[-2:]:
        return X.mT
    found: Tensor = torch.linalg.pinv(X, atol=RANK * size, rtol=torch.zeros_like(size))
    return found


def _largest(x: Tensor) -> Tensor:
    """Of the entries of a vector, 0 where there are none."""
    return x.detach().abs().amax(-1, keepdim=True) if x.shape[-1] else x.new_zeros((*x.shape[:-1], 1))


def _on(A: Tensor, x: Tensor) -> Tensor:
    return (A @ x[..., None])[..., 0]
