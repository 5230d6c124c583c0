"""How much rounding matters when a robot's mass matrix is solved with: the measure by which formulations are chosen."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from qddot.algorithms.composite_body import mass_matrix
from qddot.model import Model

_MANY = 60  # freedoms: above them articulated bodies are cheaper than a factored mass matrix
_ILL = 1e5  # a condition number: what costs five digits of sixteen
_STATES = 3


@lru_cache(maxsize=16)
def is_ill_conditioned(model: Model) -> bool:
    """Whether solving with M loses digits that the articulated-body algorithm keeps (docs/accuracy.md).

    That is decided by the condition number of M scaled to a unit diagonal, at a few random configurations: links that
    differ much in size and mass do no harm by themselves.
    """
    if not 0 < model.nv <= _MANY:
        return False
    rng = np.random.default_rng(0)
    own = [model.joint[i] for i, _ in model.outward() if model.mimic[i] is None]
    q = np.array([[x for joint in own for x in joint.random(rng)] for _ in range(_STATES)])
    M = np.broadcast_to(mass_matrix(model, q), (_STATES, model.nv, model.nv))
    with np.errstate(all="ignore"):
        size = np.sqrt(np.einsum("...kk->...k", M))
        scaled = M / (size[..., :, None] * size[..., None, :])
    return not np.isfinite(scaled).all() or bool(np.max(np.linalg.cond(scaled)) > _ILL)
