"""Robots with loops and other constraints: what is made of their kernels' results.

What `Robot` answers with an error for one state is NaN here, since a program has no other way to say it: loops that are
open, and rows of the constraints that depend on each other.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from qddot.algorithms.constrained_dynamics import RANK
from qddot.dynamics.constrained_solver import Constrained
from qddot.dynamics.derivative_results import ConstrainedDerivatives, ForwardDynamicsDerivatives
from qddot.dynamics.loop_assembly import GENERIC_RANK
from qddot.errors import InputError

_OPEN_SINGLE = 1e-5  # m or rad: what rounding of float32 leaves open of loops of some metres
_MAX_DEPENDENCE = 1e10  # as `constrained_solver` has it for hybrid dynamics


def usable(solver: Constrained) -> Constrained:
    """The solver of a robot whose independent constraints are the same in all configurations."""
    if solver.has_other_ranks:
        raise InputError(
            f"robot {solver.model.name!r} has configurations with more independent constraints than others, "
            f"and programs of JAX are made for one choice of them; take Robot's methods on NumPy arrays"
        )
    return solver


def check_independent(solver: Constrained) -> None:
    """An error where λ is not that of the kernel's rows alone, so that it has other derivatives."""
    if redundant := len(solver.names) - len(solver.rows):
        raise InputError(
            f"robot {solver.model.name!r} has {redundant} redundant constraints, so that λ has other derivatives than its "
            f"kernel's; take forward_dynamics_derivatives for those of the accelerations, or jax.jacfwd"
        )


def forward_result(solver: Constrained, is_stabilised: bool, out: Any) -> tuple[Any, Any]:
    """Accelerations and multipliers, NaN where they cannot be had."""
    nv, near = solver.model.nv, out[..., -3]
    good = (near >= 0.0) & (near < solver.dependence_limit)
    if not is_stabilised:
        good &= _is_closed(solver, out)
    sound = jnp.where(good, 1.0, jnp.nan).astype(out.dtype)[..., None]
    return out[..., :nv] * sound, out[..., nv:-3] * sound


def hybrid_result(solver: Constrained, out: Any) -> tuple[Any, Any, Any]:
    """Accelerations, forces and multipliers, NaN where they cannot be had."""
    nv, near = solver.model.nv, out[..., -3]
    good = (near >= 0.0) & (near < _MAX_DEPENDENCE) & _is_closed(solver, out)
    sound = jnp.where(good, 1.0, jnp.nan).astype(out.dtype)[..., None]
    return out[..., :nv] * sound, out[..., nv : 2 * nv] * sound, out[..., 2 * nv : -3] * sound


def derivatives_result(solver: Constrained, out: Any) -> ConstrainedDerivatives:
    """Those of the accelerations and of the multipliers, NaN where loops are open."""
    nv = solver.model.nv
    flat = jnp.where(_is_closed(solver, out)[..., None], out[..., :-3], jnp.nan)
    parts = flat.reshape(*flat.shape[:-1], 3, -1, nv)
    of_a, of_lam = parts[..., :nv, :], parts[..., nv:, :]
    both = (ForwardDynamicsDerivatives(*(x[..., k, :, :] for k in range(3))) for x in (of_a, of_lam))
    return ConstrainedDerivatives(*both)


def _is_closed(solver: Constrained, out: Any) -> Any:
    limit = solver.open_limit if out.dtype == jnp.float64 else max(solver.open_limit, _OPEN_SINGLE)
    return (out[..., -2] <= limit**2) & (out[..., -1] <= limit**2)


def least(solver: Constrained, A: Any, lam: Any) -> Any:
    """The least multipliers that give the same joint forces: those of dependent rows are not unique."""
    if len(solver.rows) == len(solver.names):
        return lam
    X = _T(A)
    return _on(_pseudoinverse(X, GENERIC_RANK, jnp.linalg.norm(X, axis=(-2, -1))), _on(X, lam))


def inverse_result(
    forces: Any, A: Any, active: np.ndarray[Any, Any], tau_passive: Any, choice: str, weights: Any
) -> tuple[Any, Any]:
    """Joint forces and multipliers, as `constrained_dynamics.multipliers_of_inverse` has them.   Kim (56)-(66)."""
    size, rows = jnp.linalg.norm(A, axis=(-2, -1)), A.shape[-2]
    A_pT, A_aT = (_T(A[..., x]) for x in (np.flatnonzero(~active), np.flatnonzero(active)))
    lacking = (forces - tau_passive)[..., np.flatnonzero(~active)]
    if active.all():
        lam, N = jnp.zeros((*forces.shape[:-1], rows), forces.dtype), jnp.eye(rows, dtype=forces.dtype)
    else:
        inverse = _pseudoinverse(A_pT, RANK, size)
        lam, N = _on(inverse, lacking), jnp.eye(rows, dtype=forces.dtype) - inverse @ A_pT
    if choice == "torque":
        root = jnp.sqrt(weights[..., np.flatnonzero(active)])
        across = root[..., :, None] * (A_aT @ N)
        lacks = forces[..., np.flatnonzero(active)] - _on(A_aT, lam)
        lam = lam + _on(N, _on(_pseudoinverse(across, RANK, size * jnp.max(root)), root * lacks))
    return jnp.where(active, forces - _on(_T(A), lam), tau_passive), lam


def _pseudoinverse(X: Any, share: float, size: Any) -> Any:
    """X⁺; singular values below a share of `size` are nothing: X may be rounding alone."""
    share = share if X.dtype == jnp.float64 else max(share, 1e-5)
    return _truncated(X, share * jax.lax.stop_gradient(size))


@jax.custom_jvp
def _truncated(X: Any, limit: Any) -> Any:
    """X⁺ without the singular values up to a limit. (JAX's own takes no limit that is traced.)"""
    U, s, Vt = jnp.linalg.svd(X, full_matrices=False)
    kept = s > limit[..., None]
    reciprocal = jnp.where(kept, 1.0 / jnp.where(kept, s, 1.0), 0.0)
    return (_T(Vt) * reciprocal[..., None, :]) @ _T(U)


@_truncated.defjvp
def _truncated_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    """Golub & Pereyra 1973, (4.12), where the rank stays as it is."""
    (X, limit), dX = primals, tangents[0]
    P = _truncated(X, limit)
    rows, columns = (jnp.eye(n, dtype=X.dtype) for n in X.shape[-2:])
    return P, -P @ dX @ P + P @ _T(P) @ _T(dX) @ (rows - X @ P) + (columns - P @ X) @ _T(dX) @ _T(P) @ P


def _T(A: Any) -> Any:
    return jnp.swapaxes(A, -1, -2)


def _on(A: Any, x: Any) -> Any:
    return (A @ x[..., None])[..., 0]
