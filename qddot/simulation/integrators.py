"""One step in time, each way on one screen: over floats it steps, over traced scalars it becomes a kernel.

A system (`system.System`) gives v̇ = derivative(t, q, v), the rates q̇ of coordinates, and for steps on the group the
motion q ⊕ ξ along a joint's own exponential and its Lie bracket. y stacks (q, v); after a step along rates quaternions are
made unit again, which costs no order. h is the step. `past` are derivatives of earlier steps, for methods that remember.

| name                  | order | evaluations | for                                                                   |
|-----------------------|-------|-------------|-----------------------------------------------------------------------|
| `semi_implicit_euler` | 1     | 1           | cheap steps, games                                                    |
| `rk4`                 | 4     | 4           | everything that is not stiff                                          |
| `rkmk4`               | 4     | 4           | the same, with rotations moved on their group                         |
| `ab4`                 | 4     | 1           | smooth motion: four times fewer evaluations than `rk4`                |
| `variational`         | 2     | implicit    | conservative systems for a long time                                  |
| `rosenbrock`          | 2     | 2 and ∂     | stiff springs and dampers: L-stable                                   |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

from qddot.scalars import Scalar, split, stack
from qddot.spatial.joint_blocks import Inverse, Matrix, Vector

if TYPE_CHECKING:
    from qddot.simulation.system import System

Array = NDArray[Any]


class State(NamedTuple):
    """Where a sample is: coordinates, velocities, and derivatives of steps before."""

    q: Array
    v: Array
    past: tuple[Array, ...] = ()


def semi_implicit_euler(system: System, t: Scalar, s: State, h: Scalar) -> State:
    """The new velocity moves the coordinates (symplectic for separable systems; Hairer, Lubich & Wanner 2006, I.1.2)."""
    v = s.v + h * system.derivative(t, s.q, s.v)
    return State(system.move(s.q, h * v), v)


def rk4(system: System, t: Scalar, s: State, h: Scalar) -> State:
    """The classical method of Kutta 1901, along the rates of the coordinates."""
    return State(*system.apart(_rk4(system, t, system.together(s.q, s.v), h)[0]))


def _rk4(system: System, t: Scalar, y: Array, h: Scalar) -> tuple[Array, Array]:
    k1 = system.flow(t, y)
    k2 = system.flow(t + 0.5 * h, y + 0.5 * h * k1)
    k3 = system.flow(t + 0.5 * h, y + 0.5 * h * k2)
    k4 = system.flow(t + h, y + h * k3)
    return y + h / 6.0 * (k1 + 2.0 * (k2 + k3) + k4), k1


def rkmk4(system: System, t: Scalar, s: State, h: Scalar) -> State:
    """Runge, Kutta and Munthe-Kaas of order 4 with two brackets (Munthe-Kaas & Owren 1999), for q̇ = q·v on the left."""
    q, v = s.q, s.v
    v1, a1 = v, system.derivative(t, q, v)
    v2 = v + 0.5 * h * a1
    a2 = system.derivative(t + 0.5 * h, system.move(q, 0.5 * h * v1), v2)
    v3 = v + 0.5 * h * a2
    a3 = system.derivative(t + 0.5 * h, system.move(q, 0.5 * h * v2 + 0.125 * h * h * system.bracket(v1, v2)), v3)
    v4 = v + h * a3
    a4 = system.derivative(t + h, system.move(q, h * v3), v4)
    moved = h / 6.0 * (v1 + 2.0 * (v2 + v3) + v4 + 0.5 * h * system.bracket(v1, v4))
    return State(system.move(q, moved), v + h / 6.0 * (a1 + 2.0 * (a2 + a3) + a4))


def ab4(system: System, t: Scalar, s: State, h: Scalar) -> State:
    """Adams and Bashforth's fourth order method, which Lin 1991 recommends for simulation in its conclusion."""
    k = system.flow(t, system.together(s.q, s.v))
    p1, p2, p3 = s.past
    y = system.together(s.q, s.v) + h / 24.0 * (55.0 * k - 59.0 * p1 + 37.0 * p2 - 9.0 * p3)
    return State(*system.apart(y), (k, p1, p2))


def ab4_start(system: System, t: Scalar, s: State, h: Scalar) -> State:
    """The first three steps of `ab4` are those of `rk4`."""
    y, k = _rk4(system, t, system.together(s.q, s.v), h)
    return State(*system.apart(y), (k, *s.past[:2]))


def rosenbrock(system: System, t: Scalar, s: State, h: Scalar) -> State:
    """ROS2 of Verwer, Spee, Blom & Hundsdorfer 1999, with γ = 1 - 1/√2: linearly implicit, L-stable.

    With R(q, v, a) the residual of the equation of motion, the stages (ξ, k) of coordinates and velocity solve

        (M + γh R_v + γ²h² R_q) k = M r_v - γh R_q r_q,   ξ = r_q + γh k,

    by exact derivatives at the start of the step. It has order 2 with any matrix in their place.
    """
    g = (1.0 - 0.5**0.5) * h
    a = system.derivative(t, s.q, s.v)
    M, R_q, R_v = system.linearized(t, s.q, s.v, a)
    solve = _Factored(M + g * R_v + g * g * R_q)

    def stage(r_q: Array, r_v: Array) -> tuple[Array, Array]:
        k = solve(M @ r_v - g * (R_q @ r_q))
        return r_q + g * k, k

    x1, k1 = stage(s.v, a)
    q, v = system.move(s.q, h * x1), s.v + h * k1
    x2, k2 = stage(v - 2.0 * x1, system.derivative(t + h, q, v) - 2.0 * k1)
    return State(system.move(s.q, h * (1.5 * x1 + 0.5 * x2)), s.v + h * (1.5 * k1 + 0.5 * k2))


class _Factored:
    """A = L U without pivoting: for matrices near to symmetric positive definite ones. Branches on nothing."""

    def __init__(self, A: Array) -> None:
        self.rows = [split(row) for row in A]
        for k, pivot in enumerate(self.rows):
            for row in self.rows[k + 1 :]:
                row[k] = row[k] / pivot[k]
                for c in range(k + 1, len(row)):
                    row[c] = row[c] - row[k] * pivot[c]

    def __call__(self, b: Array) -> Array:
        x = split(b)
        for k, row in enumerate(self.rows):
            for c in range(k):
                x[k] = x[k] - row[c] * x[c]
        for k in reversed(range(len(x))):
            for c in range(k + 1, len(x)):
                x[k] = x[k] - self.rows[k][c] * x[c]
            x[k] = x[k] / self.rows[k][k]
        return stack(x)


# ---- variational -------------------------------------------------------------------------------------------------------

ITERATIONS = 8  # of the implicit equation: each gains a factor of about h times the system's rate
_INVERSE_SERIES = (1.0, -1.0 / 2.0, 1.0 / 12.0, 0.0, -1.0 / 720.0, 0.0, 1.0 / 30240.0, 0.0, -1.0 / 1209600.0)  # B_k/k!
_SERIES = (1.0, 1.0 / 2.0, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0, 1.0 / 5040.0, 1.0 / 40320.0, 1.0 / 362880.0)


def variational(system: System, t: Scalar, s: State, h: Scalar) -> State:
    """The midpoint rule in Hamilton's principle (Marsden & West 2001, 2.3; on groups Kobilarov & Marsden 2011).

    L_d = h L(q_m, w) with q_m = q ⊕ hw/2 and q' = q ⊕ hw. Its slopes by w and by q are the momenta at both ends,

        dexp(-hw)ᵀ p  = M w - h/2 dexp(-hw/2)ᵀ f,      dexp(hw)ᵀ p' = M w + h/2 dexp(hw/2)ᵀ f,

    where f = ∂L/∂q and all forces at the midpoint, and dexp is trivialized on the left. The first is solved for w by a
    fixed number of iterations. Where q̇ = v, dexp is one, and this is the implicit midpoint rule for (q, p).
    """
    (p,) = s.past
    w = s.v
    for _ in range(ITERATIONS):
        w = system.call(_nearer, t, h, s.q, p, w)
    middle = system.move(s.q, 0.5 * h * w)
    M, f = system.momentum_balance(t + 0.5 * h, middle, w)
    p = _dexp_inverse_T(system, h * w, M @ w + 0.5 * h * _dexp_T(system, 0.5 * h * w, f))
    q = system.move(s.q, h * w)
    return State(q, _solved(system, system.mass_matrix(q), p), (p,))


def _nearer(system: System, t: Scalar, h: Scalar, q: Array, p: Array, w: Array) -> Array:
    """The first equation solved for the w of M w, with the w that is known in all the rest of it."""
    M, f = system.momentum_balance(t + 0.5 * h, system.move(q, 0.5 * h * w), w)
    return _solved(system, M, _dexp_T(system, -h * w, p) + 0.5 * h * _dexp_T(system, -0.5 * h * w, f))


def variational_start(system: System, t: Scalar, s: State, h: Scalar) -> State:
    """The momentum of the first step is that of its velocity."""
    return variational(system, t, s._replace(past=(system.mass_matrix(s.q) @ s.v,)), h)


def _solved(system: System, M: Array, b: Array) -> Array:
    inverse = Inverse(Matrix(Vector(split(row)) for row in M), system.dynamics.floors)
    return stack(inverse @ split(b))


def _dexp_T(system: System, x: Array, p: Array) -> Array:
    """The transpose of exp(-ξ) d exp(ξ) = Σ (-ad_ξ)ᵏ/(k + 1)!, to the rounding of |ξ| ≤ 0.1."""
    return _series(system, -1.0 * x, p, _SERIES)


def _dexp_inverse_T(system: System, x: Array, p: Array) -> Array:
    return _series(system, -1.0 * x, p, _INVERSE_SERIES)


def _series(system: System, x: Array, p: Array, numbers: tuple[float, ...]) -> Array:
    """Σ c_k (ad_xᵀ)ᵏ p."""
    if not system.has_brackets:
        return p
    total, term = p, p
    for c in numbers[1:]:
        term = system.dual_bracket(x, term)
        total = total + c * term if c else total
    return total


# ---- by name -----------------------------------------------------------------------------------------------------------

Step = Callable[["System", Scalar, State, Scalar], State]


class Integrator(NamedTuple):
    """A step, its order, evaluations of the dynamics; how many first steps are made by which other one, and what that
    evaluates; the sizes of `past`; whether it solves equations.
    """

    step: Step
    order: int
    evaluations: int
    start: Step | None = None
    start_steps: int = 0
    start_evaluations: int = 0
    past: Callable[[int, int], tuple[int, ...]] = lambda nq, nv: ()
    implicit: bool = False


_IMPLICIT = 3 * (ITERATIONS + 1)  # M, Ṁ and the rest of it cost about three times the accelerations

INTEGRATORS: dict[str, Integrator] = {
    "semi_implicit_euler": Integrator(semi_implicit_euler, 1, 1),
    "rk4": Integrator(rk4, 4, 4),
    "rkmk4": Integrator(rkmk4, 4, 4),
    "ab4": Integrator(ab4, 4, 1, ab4_start, 3, 4, lambda nq, nv: (nq + nv,) * 3),
    "variational": Integrator(
        variational, 2, _IMPLICIT, variational_start, 1, _IMPLICIT, lambda nq, nv: (nv,), implicit=True
    ),
    "rosenbrock": Integrator(rosenbrock, 2, 2, implicit=True),
}
