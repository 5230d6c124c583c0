"""Forward dynamics in O(log n) steps: divide and conquer, all links of a step at once.

Featherstone & Orin 2000, section 3.5 and [12] there: subassemblies are joined two by two, as parallel computers would do
it. The equations of an assembly are written for the acceleration of its innermost body and the force on its outermost,
so that a single link needs no inverse of its inertia:

    a_out = A a_in + C f + b          f: force on the outermost body
    f_in  = J a_in - Aᵀ f + e         f_in: force that the innermost body needs

A link by itself has A = 1, C = 0, b = 0, J = I, e = v × I v - f_x.

| code      | meaning                                                                                      |
|-----------|----------------------------------------------------------------------------------------------|
| Element   | A, C, J, b, e of many assemblies, one below the other                                        |
| X, h, c   | ⁱX_λ(i), axes, ḣq̇ of the joint by which an assembly hangs on its parent                      |
| D         | hᵀJh with the rotor: what the joint has to move                                              |
| behind    | an assembly as its parent feels it, its own joint free to yield                              |
| joined    | an assembly and the one behind its outermost body                                            |
| E         | (1 + C J)⁻¹                                                                                  |

`contraction` says who is joined when. Going back, accelerations are found in the same steps. Work is O(n). The arrays of a
step are arrays over links: of floats, or of any other scalars one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot.algorithms import mimic_multipliers
from qddot.algorithms.papers.tree_contraction import Plan, schedule
from qddot.algorithms.passive_forces import passive_forces
from qddot.algorithms.sparse_factors import where_regular
from qddot.mechanism.link_classes import group_links
from qddot.mechanism.model import Model
from qddot.scalars import less, where
from qddot.spatial import Ad_inv, Product, ad, ad_T, force, motion

Array = NDArray[Any]


class Element(NamedTuple):
    """Assemblies: an array each, its first axis over the links by which they begin."""

    A: Array
    C: Array
    J: Array
    b: Array
    e: Array

    def at(self, i: Any) -> Element:
        return Element(*(x[i] for x in self))

    def put(self, i: Any, other: Element) -> None:
        for x, y in zip(self, other, strict=True):
            x[i] = y


# ---- the mechanism as arrays over its links ---------------------------------------------------------------------------


class Links(NamedTuple):
    """X, h, c, R, τ of all joints, the world's place first; joints of fewer degrees of freedom have columns of zeros."""

    X: Array
    h: Array
    c: Array
    R: Array
    tau: Array


def forward_dynamics(model: Model, q: Any, v: Any, tau: Any, f_ext: Any = None) -> Array:
    """q̈ by divide and conquer, one state; a batch is a loop over its states."""
    if is_batch(q, v, tau, f_ext):
        return each_state(forward_dynamics, model, q, v, tau, f_ext)
    fixed = fixed_of(model, q, v, tau)
    tau = tau + passive_forces(model, q, v) if fixed.is_passive else tau
    if model.is_coupled:
        return mimic_multipliers.forward_dynamics(model, q, v, tau, f_ext, forward_dynamics)
    links, element = prepared(model, fixed, q, v, tau, f_ext)
    base = np.array(model.base_acceleration.components)
    try:
        a = accelerations(fixed.plan, links, element, base, fixed.loose)[fixed.dof]
    except np.linalg.LinAlgError:
        return np.full(model.nv, np.nan)
    return where_regular(model, q, a)


def is_batch(q: Any, v: Any, tau: Any, f_ext: Any) -> bool:
    return max(np.ndim(x) for x in (q, v, tau)) > 1 or np.ndim(f_ext) > 2


def each_state(forward: Callable[..., Array], model: Model, q: Any, v: Any, tau: Any, f_ext: Any) -> Array:
    """A batch, state by state."""
    kind, forces = np.result_type(float, *(np.asarray(x) for x in (q, v, tau))), () if f_ext is None else (f_ext,)
    signature = "(q),(v),(v),(n,s)->(v)" if forces else "(q),(v),(v)->(v)"
    each = np.vectorize(lambda *state: forward(model, *state), otypes=[kind], signature=signature)
    return np.asarray(each(q, v, tau, *forces))


class Fixed(NamedTuple):
    """What does not depend on the state."""

    plan: Plan
    groups: list[tuple[Any, Any, Any]]  # links, their joint and their placement
    inertia: Array
    rotors: Array
    loose: Array
    columns: Array  # where a joint's degrees of freedom stand in v; of those that it has not, anywhere
    dof: tuple[Array, ...]  # and the other way round
    starts: Array  # in q
    is_passive: bool  # whether joints exert forces by themselves

    @classmethod
    def of(cls, model: Model, alone: bool) -> Fixed:
        """With links of a kind together, or every link by itself."""
        kind = object if alone else float
        width, n = max((j.nv for j in model.joint), default=0), len(model.parent)
        inertia, rotors = np.zeros((n, 6, 6), kind), np.zeros((n, width), kind)
        columns, has = np.zeros((n, width), int), np.zeros((n, width), bool)
        for i, _ in model.outward():
            inertia[i] = np.array([(model.inertia[i] @ e).components for e in _UNITS], kind).T
            d, first = model.joint[i].nv, model.slots[i].v.start
            rotors[i, :d], columns[i, :d], has[i, :d] = model.armature[i], range(first, first + d), True
        rotors[~has] = 1.0  # a degree of freedom that is not there has something to move and nothing that moves it
        each = [(i, model.joint[i], model.placement[i]) for i, _ in model.outward()]
        groups = each if alone else [(np.array(i), *row) for i, row in group_links(model, "joint", "placement")]
        loose = np.array([i > 0 and model.is_free_without_rotor(i) for i in range(n)])
        starts = np.array([slot.q.start for slot in model.slots])
        plan, is_passive = schedule(model.parent, _heavy(model)), _has_passive_forces(model)
        return cls(plan, groups, inertia, rotors, loose, columns, np.nonzero(has), starts, is_passive)


_UNITS = tuple(motion(row) for row in np.eye(6).tolist())


def fixed_of(model: Model, *inputs: Any) -> Fixed:
    """Links of a kind together where the inputs are floats, else every link by itself."""
    of_floats = all(np.asarray(x).dtype != object for x in inputs)
    return _of_floats(model) if of_floats else Fixed.of(model, alone=True)


@lru_cache(maxsize=8)
def _of_floats(model: Model) -> Fixed:
    return Fixed.of(model, alone=False)


def _has_passive_forces(model: Model) -> bool:
    tables = (model.damping, model.friction, model.stiffness)
    return any(not isinstance(x, float) or x != 0.0 for table in tables for row in table for x in row)


def _heavy(model: Model) -> tuple[bool, ...]:
    """Which links have inertia, or a rotor, in every direction that their joint lets them go."""
    heavy = [True]
    for i, _ in model.outward():
        joint, rows = model.joint[i], [(model.inertia[i] @ e).components for e in _UNITS]
        if not all(isinstance(x, float | int) for row in (*rows, model.armature[i]) for x in row):
            heavy.append(True)  # not known yet
            continue
        axes = np.array([s.components for s in joint.S(joint.random(np.random.default_rng(0)))]).reshape(-1, 6)
        own = axes @ np.array(rows) @ axes.T + np.diag(model.armature[i])
        heavy.append(bool(np.linalg.eigvalsh(own)[0] > 1e-12 * np.trace(own)) if len(own) else True)
    return tuple(heavy)


def prepared(model: Model, fixed: Fixed, q: Any, v: Any, tau: Any, f_ext: Any) -> tuple[Links, Element]:
    """Every link as an assembly by itself, and the joints."""
    q, v, tau = (np.asarray(x) for x in (q, v, tau))
    n, width = fixed.columns.shape
    kind = np.result_type(fixed.inertia, q, v, tau)
    X, h, rate = np.zeros((n, 6, 6), kind), np.zeros((n, 6, width), kind), np.zeros((n, 6), kind)
    for i, joint, placement in fixed.groups:
        own, rates = [q[fixed.starts[i] + k] for k in range(joint.nq)], [v[fixed.columns[i, k]] for k in range(joint.nv)]
        T = Product(placement, joint.transform(own))
        for k, e in enumerate(_UNITS):
            fill(X, i, k, Ad_inv(T, e))
        for k, s in enumerate(joint.S(own)):
            fill(h, i, k, s)
        fill(rate[:, :, None], i, 0, joint.bias(own, rates))
    qd, pushes = np.zeros((n, width), kind), np.zeros((n, width), kind)
    qd[fixed.dof], pushes[fixed.dof] = v, tau
    step = times(h, qd)
    V = velocities(fixed.plan, X, step)
    moving, momentum = motion(list(V.T)), force(list(times(fixed.inertia, V).T))
    c = rate + _stacked(ad(moving, motion(list(step.T))))
    push = -_stacked(ad_T(moving, momentum))
    if f_ext is not None:
        push[1:] = push[1:] - np.asarray(f_ext)
    one = np.zeros((n, 6, 6), kind) + np.eye(6)
    element = Element(one, np.zeros_like(one), fixed.inertia.astype(kind), np.zeros_like(push), push)
    return Links(X, h, c, fixed.rotors, pushes), element


def _stacked(x: Any) -> Array:
    return np.stack(x.components, axis=-1)


def fill(out: Array, i: Any, k: int, V: Any) -> None:
    """Column k of the matrices of links i: six numbers, or six arrays over those links."""
    for r, x in enumerate(V.components):
        out[i, r, k] = x


# ---- inward and outward over the steps ---------------------------------------------------------------------------------


def velocities(plan: Plan, X: Array, step: Array) -> Array:
    """V_i = X V_λ(i) + h q̇: along an assembly V_out = Y V + w, V being that of the link which carries it."""
    Y, w, V, before = X.copy(), step.copy(), np.zeros_like(step), np.zeros_like(step)
    kept = []
    for i, outer, _, is_rake in plan.steps:
        kept.append((Y[i], w[i]))
        if not is_rake:
            Y[i], w[i] = Y[outer] @ Y[i], times(Y[outer], w[i]) + w[outer]
    for (i, outer, owner, _), (Y_i, w_i) in zip(reversed(plan.steps), reversed(kept), strict=True):
        before[outer] = (times(Y_i, before[i]) + w_i)[owner]
    V[1:] = (times(X, before) + step)[1:]
    return V


def behind(links: Links, i: Any, own: Element, loose: Array) -> tuple[Element, Array]:
    """Assemblies as the links feel them that carry them, and D⁻¹: Π = J - J h D⁻¹ hᵀJ and what goes with it."""
    X, h, c, R, tau = (x[i] for x in links)
    U = own.J @ h
    D_inv = _inverse(transposed(h) @ U + _diagonal(R))
    yielding = h @ D_inv  # h D⁻¹
    kept = np.eye(6) - yielding @ transposed(U)
    kept[loose[i]] = 0.0  # all six degrees of freedom: nothing but the joint's force passes
    given = times(yielding, tau - times(transposed(h), times(own.J, c) + own.e))
    a = c + given  # of the innermost body, if what carries it does not accelerate
    A_h = own.A @ h
    through = times(own.J, a) + own.e
    through[loose[i]] = times(U @ D_inv, tau)[loose[i]]
    return Element(
        own.A @ kept @ X,
        own.C + A_h @ D_inv @ transposed(A_h),
        transposed(X) @ own.J @ kept @ X,
        own.b + times(own.A, a),
        times(transposed(X), through),
    ), D_inv


def raked(felt: Element, owner: Array, count: int) -> Element:
    """What hangs on one body, summed: an assembly of no extent, A = 1."""
    J, e = np.zeros((count, 6, 6), felt.J.dtype), np.zeros((count, 6), felt.e.dtype)
    np.add.at(J, owner, felt.J)
    np.add.at(e, owner, felt.e)
    return Element(np.zeros_like(J) + np.eye(6), np.zeros_like(J), J, np.zeros_like(e), e)


def joined(inner: Element, outer: Element) -> tuple[Element, tuple[Array, Array, Array]]:
    """Both as one, and how the body between them moves: (1 + C J) a = A a_in + C Aᵀ f + b - C e, as its three terms."""
    free = inner.b - times(inner.C, outer.e)
    right = np.concatenate([inner.A, inner.C @ transposed(outer.A), free[..., None]], axis=-1)
    E = _solve(np.eye(6) + inner.C @ outer.J, right)
    E_A, E_CAt, E_b = E[..., :6], E[..., 6:12], E[..., 12]
    At_J = transposed(inner.A) @ outer.J
    whole = Element(
        outer.A @ E_A,
        outer.C + outer.A @ E_CAt,
        inner.J + At_J @ E_A,
        outer.b + times(outer.A, E_b),
        inner.e + times(At_J, E_b) + times(transposed(inner.A), outer.e),
    )
    return whole, (E_A, E_CAt, E_b)


def accelerations(plan: Plan, links: Links, element: Element, base: Array, loose: Array) -> Array:
    """q̈ of all joints: assemblies inward, then accelerations and forces outward."""
    n, width = links.tau.shape
    D_inv = np.zeros((n, width, width), links.h.dtype)
    kept = []
    for i, outer, owner, is_rake in plan.steps:
        felt, D_inv[outer] = behind(links, outer, element.at(outer), loose)
        felt = raked(felt, owner, len(i)) if is_rake else felt
        whole, between = joined(element.at(i), felt)
        element.put(i, whole)
        kept.append((felt, between))
    _, D_inv[plan.roots] = behind(links, plan.roots, element.at(plan.roots), loose)
    a, f = np.zeros((2, n, 6), links.h.dtype)  # of innermost bodies, on outermost ones
    qdd = np.zeros((n, width), links.h.dtype)

    def move(i: Array, carrying: Array) -> None:
        carried, (own, h) = times(links.X[i], carrying) + links.c[i], (element.at(i), links.h[i])
        pushed = times(own.J, carried) + own.e - times(transposed(own.A), f[i])
        qdd[i] = times(D_inv[i], links.tau[i] - times(transposed(h), pushed))
        a[i] = carried + times(h, qdd[i])

    move(plan.roots, np.broadcast_to(base, (len(plan.roots), 6)))
    for (i, outer, owner, is_rake), (felt, (E_A, E_CAt, E_b)) in zip(reversed(plan.steps), reversed(kept), strict=True):
        middle = times(E_A, a[i]) + times(E_CAt, f[i]) + E_b
        f[outer] = 0.0 if is_rake else f[i]
        f[i] = times(transposed(felt.A), f[i]) - times(felt.J, middle) - felt.e
        move(outer, middle[owner])
    return qdd


def times(A: Array, x: Array) -> Array:
    return (A @ x[..., None])[..., 0]


def transposed(A: Array) -> Array:
    return np.swapaxes(A, -1, -2)


def _diagonal(d: Array) -> Array:
    return d[..., None] * np.eye(d.shape[-1])


def _inverse(A: Array) -> Array:
    return 1.0 / A if A.shape[-1] == 1 else _solve(A, np.zeros_like(A) + np.eye(A.shape[-1]))


def _solve(A: Array, B: Array) -> Array:
    """A⁻¹B, with the largest pivot of a column, found without a branch where scalars are not floats."""
    if A.dtype != object:
        return np.linalg.solve(A, B)
    out = np.empty_like(B)
    for m in range(len(A)):
        rows, n = [[*a, *b] for a, b in zip(A[m].tolist(), B[m].tolist(), strict=True)], A.shape[-1]
        for k in range(n):
            for r in range(k + 1, n):
                better = less(rows[k][k] * rows[k][k], rows[r][k] * rows[r][k])
                both = list(zip(rows[k], rows[r], strict=True))
                rows[k], rows[r] = [where(better, y, x) for x, y in both], [where(better, x, y) for x, y in both]
            rows[k] = [x / rows[k][k] for x in rows[k]]
            for r in range(n):
                if r != k:
                    rows[r] = [x - rows[r][k] * y for x, y in zip(rows[r], rows[k], strict=True)]
        out[m] = [row[n:] for row in rows]
    return out
