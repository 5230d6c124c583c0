"""The joints: one small class a kind.

A joint of nv freedoms and nq coordinates has the motion T(q) of its child frame in its parent frame, the map S(q) from
joint velocity to relative twist in the child's frame, S v = T⁻¹Ṫ (Kim (37)), and the bias Ṡ v. Velocities are the
rates of the coordinates except for the quaternion spherical, the free and the planar joint, whose velocity is a body
twist and whose S is constant. `integrate(q, v)` moves along v for a unit of time; `difference` is its inverse. A spring
pulls along `displacement`, the gradient of half its own square.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot.errors import NotTraceableError
from qddot.scalars import Scalar, arctan2, cos, sin, sqrt
from qddot.spatial import Inertia, Motion, Product, Slide, Transform, exp, log, zero_inertia, zero_motion
from qddot.spatial.dual import Dual
from qddot.spatial.joint_blocks import Motions, Vector
from qddot.spatial.rotation import (
    EYE,
    IDENTITY,
    ZERO,
    AxisRotation,
    Mat,
    Quaternion,
    Rotation,
    Vec,
    add,
    axis_angle,
    cross,
    dot,
    exp_coefficients,
    exp_derivatives,
    exp_rotation,
    log_quaternion,
    mat_sub,
    mat_vec,
    outer,
    quaternion_conjugate,
    quaternion_exp,
    quaternion_product,
    quaternion_rotation,
    quaternion_unit,
    scale,
    scaled_eye,
    sub,
    transpose,
)
from qddot.spatial.tape import Tape, record

X, Y, Z = EYE
_NOTHING = (ZERO, ZERO, ZERO)


class Joint:
    """What every joint answers; the defaults are those of plain coordinates with a constant S."""

    kind: ClassVar[str]
    nq: ClassVar[int]
    nv: ClassVar[int]

    def transform(self, q: Sequence[Scalar]) -> Transform:
        """T(q): child coordinates into parent coordinates."""
        raise NotImplementedError

    def S(self, q: Sequence[Scalar]) -> Motions:
        """The columns T⁻¹ ∂T/∂q^k, in the child's frame. Kim, symbol list of Table 2."""
        raise NotImplementedError

    def bias(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> Motion:
        """Ṡ v, componentwise."""
        return zero_motion()

    def S_dot(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> Motions:
        """The columns of Ṡ when the joint moves with v."""
        return Motions(zero_motion() for _ in range(self.nv))

    def rate(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> Vector:
        """How the coordinates change when the joint moves with v."""
        return Vector(v)

    def S_slope(self, q: Sequence[Scalar], k: int) -> Motions:
        """The columns ∂S/∂q^k."""
        return Motions(zero_motion() for _ in range(self.nv))

    def bias_slope(self, q: Sequence[Scalar], v: Sequence[Scalar], k: int) -> Motion:
        """∂(Ṡ v)/∂q^k."""
        return zero_motion()

    def integrate(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> Vector:
        return Vector(q) + v

    def along(self, q: Sequence[Scalar], k: int) -> Vector:
        """How the coordinates change along freedom k: the derivative of `integrate(q, v)` by v^k at v = 0."""
        return Vector(1.0 if j == k else 0.0 for j in range(self.nq))

    def difference(self, q0: Sequence[Scalar], q1: Sequence[Scalar]) -> Vector:
        """The v with integrate(q0, v) = q1. Where that is a rotation it is the shorter way; turns are not counted."""
        return Vector(q1) - q0

    def displacement(self, q0: Sequence[Scalar], q: Sequence[Scalar]) -> Vector:
        """How far a spring at rest at q0 is stretched at q."""
        return self.difference(q0, q)

    def displacement_slope(self, q0: Sequence[Scalar], q: Sequence[Scalar], k: int) -> Vector:
        """How the displacement changes along freedom k."""
        moving = [Dual(x, rate) for x, rate in zip(q, self.along(q, k), strict=True)]
        return Vector(_slope(tuple(self.displacement(q0, moving))))

    def transferable_inertia(self, G: Inertia) -> Inertia:
        """A part K of the child's inertia that the parent may carry instead: K S = 0, and T(q) does not change it."""
        return zero_inertia()

    def neutral(self) -> tuple[float, ...]:
        return (0.0,) * self.nq

    def random(self, rng: np.random.Generator) -> tuple[float, ...]:
        return tuple(rng.uniform(-1.0, 1.0, self.nq).tolist())

    def normalize(self, q: Sequence[Scalar]) -> Vector:
        """The nearest valid coordinates: unit quaternions, and everything else as it is."""
        return Vector(q)

    @property
    def is_angle(self) -> tuple[bool, ...]:
        """Which velocity components are in radians a second."""
        return (False,) * self.nv


@dataclass(frozen=True)
class Fixed(Joint):
    """No freedom: a weld."""

    kind = "fixed"
    nq = nv = 0

    def transform(self, q: Sequence[Scalar]) -> Transform:
        return Transform()

    def S(self, q: Sequence[Scalar]) -> Motions:
        return Motions()

    def transferable_inertia(self, G: Inertia) -> Inertia:
        return G


@dataclass(frozen=True)
class Revolute(Joint):
    """Rotation about a unit axis."""

    axis: Vec = Z
    kind = "revolute"
    nq = nv = 1
    is_angle = (True,)

    def transform(self, q: Sequence[Scalar]) -> Transform:
        return Transform(axis_angle(self.axis, q[0]))

    def S(self, q: Sequence[Scalar]) -> Motions:
        return Motions((Motion(self.axis, ZERO),))

    def transferable_inertia(self, G: Inertia) -> Inertia:
        return Inertia(G.m, scale(dot(self.axis, G.h), self.axis), _across(self.axis, G.I))

    def random(self, rng: np.random.Generator) -> tuple[float, ...]:
        return (float(rng.uniform(-math.pi, math.pi)),)


@dataclass(frozen=True)
class Prismatic(Joint):
    """Translation along a unit axis."""

    axis: Vec = Z
    kind = "prismatic"
    nq = nv = 1

    def transform(self, q: Sequence[Scalar]) -> Transform:
        return Slide(scale(q[0], self.axis))

    def S(self, q: Sequence[Scalar]) -> Motions:
        return Motions((Motion(ZERO, self.axis),))

    def transferable_inertia(self, G: Inertia) -> Inertia:
        return Inertia(0.0, ZERO, G.I)


@dataclass(frozen=True)
class Helical(Joint):
    """A screw: rotation about a unit axis with `pitch` metres of travel a radian."""

    axis: Vec = Z
    pitch: float = 0.0
    kind = "helical"
    nq = nv = 1
    is_angle = (True,)

    def transform(self, q: Sequence[Scalar]) -> Transform:
        return Transform(axis_angle(self.axis, q[0]), scale(self.pitch * q[0], self.axis))

    def S(self, q: Sequence[Scalar]) -> Motions:
        return Motions((Motion(self.axis, scale(self.pitch, self.axis)),))

    def transferable_inertia(self, G: Inertia) -> Inertia:
        return (
            Revolute(self.axis).transferable_inertia(G)
            if self.pitch == 0.0
            else Inertia(0.0, ZERO, _across(self.axis, G.I))
        )


@dataclass(frozen=True)
class Cylindrical(Joint):
    """Rotation about and translation along one unit axis: q = (angle, travel)."""

    axis: Vec = Z
    kind = "cylindrical"
    nq = nv = 2
    is_angle = (True, False)

    def transform(self, q: Sequence[Scalar]) -> Transform:
        return Transform(axis_angle(self.axis, q[0]), scale(q[1], self.axis))

    def S(self, q: Sequence[Scalar]) -> Motions:
        return Motions((Motion(self.axis, ZERO), Motion(ZERO, self.axis)))

    def transferable_inertia(self, G: Inertia) -> Inertia:
        return Inertia(0.0, ZERO, _across(self.axis, G.I))


class _Varying(Joint):
    """A joint of plain coordinates whose S depends on them: Ṡ is S differentiated along q̇ = v, exactly."""

    def S_dot(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> Motions:
        moving = self.S([Dual(x, rate) for x, rate in zip(q, v, strict=True)])
        return Motions(Motion(_slope(column.w), _slope(column.v)) for column in moving)

    def bias(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> Motion:
        return self.S_dot(q, v) @ v

    def S_slope(self, q: Sequence[Scalar], k: int) -> Motions:
        return self.S_dot(q, [1.0 if j == k else 0.0 for j in range(self.nv)])

    def bias_slope(self, q: Sequence[Scalar], v: Sequence[Scalar], k: int) -> Motion:
        moving = self.bias([Dual(x, 1.0 if j == k else 0.0) for j, x in enumerate(q)], v)
        return Motion(_slope(moving.w), _slope(moving.v))


class _RotationSequence(_Varying):
    """Rotations about fixed axes, one after the other: R = R(a_1, q_1) R(a_2, q_2) …"""

    @property
    def axes(self) -> tuple[Vec, ...]:
        raise NotImplementedError

    def transform(self, q: Sequence[Scalar]) -> Transform:
        T = Transform()
        for a, angle in zip(self.axes, q, strict=True):
            T = T @ Transform(axis_angle(a, angle))
        return T

    def S(self, q: Sequence[Scalar]) -> Motions:
        columns: list[Vec] = []
        for a, angle in zip(self.axes, q, strict=True):
            back = axis_angle(a, angle).T
            columns = [*(back @ c for c in columns), a]
        return Motions(Motion(c, ZERO) for c in columns)

    def transferable_inertia(self, G: Inertia) -> Inertia:
        return Inertia(G.m, ZERO, _NOTHING)

    def bias(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> Motion:
        w, b = ZERO, ZERO
        for a, angle, rate in zip(self.axes, q, v, strict=True):
            back = axis_angle(a, angle).T
            turned, own = back @ w, scale(rate, a)
            b = add(back @ b, cross(turned, own))
            w = add(turned, own)
        return Motion(b, ZERO)


@dataclass(frozen=True)
class Universal(_RotationSequence):
    """A Hooke joint: about `first`, fixed in the parent, then about `second`, fixed in the child."""

    first: Vec = X
    second: Vec = Y
    kind = "universal"
    nq = nv = 2
    is_angle = (True, True)

    @property
    def axes(self) -> tuple[Vec, ...]:
        return (self.first, self.second)


@dataclass(frozen=True)
class SphericalEuler(_RotationSequence):
    """A ball joint in three angles about moving axes, such as "xyz" or "zyx". Singular where the outer axes align."""

    sequence: str = "xyz"
    kind = "spherical_euler"
    nq = nv = 3
    is_angle = (True, True, True)

    @property
    def axes(self) -> tuple[Vec, ...]:
        return tuple(EYE["xyz".index(letter)] for letter in self.sequence)


@dataclass(frozen=True)
class SphericalExponential(_Varying):
    """A ball joint in the rotation vector r: T = exp([r]). Singular at |r| = 2π."""

    kind = "spherical_exponential"
    nq = nv = 3
    is_angle = (True, True, True)

    def transform(self, q: Sequence[Scalar]) -> Transform:
        return Transform(exp_rotation(_vec(q)))

    def S(self, q: Sequence[Scalar]) -> Motions:
        r = _vec(q)
        _, b, c = exp_coefficients(dot(r, r))
        columns = []
        for e in EYE:
            turned = cross(r, e)
            columns.append(Motion(add(sub(e, scale(b, turned)), scale(c, cross(r, turned))), ZERO))
        return Motions(columns)

    def transferable_inertia(self, G: Inertia) -> Inertia:
        return Inertia(G.m, ZERO, _NOTHING)

    def bias(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> Motion:
        r, u = _vec(q), _vec(v)
        _, _, c = exp_coefficients(dot(r, r))
        db, dc = exp_derivatives(dot(r, r))
        rate, turned = 2.0 * dot(r, u), cross(r, u)
        grows = sub(scale(rate * dc, cross(r, turned)), scale(rate * db, turned))
        return Motion(add(grows, scale(c, cross(u, turned))), ZERO)


@dataclass(frozen=True)
class Spherical(Joint):
    """A ball joint by a unit quaternion (x, y, z, w); its velocity is the angular velocity in the child's frame."""

    kind = "spherical"
    nq, nv = 4, 3
    is_angle = (True, True, True)

    def transform(self, q: Sequence[Scalar]) -> Transform:
        return Transform(quaternion_rotation(*q))

    def S(self, q: Sequence[Scalar]) -> Motions:
        return Motions(Motion(e, ZERO) for e in EYE)

    def transferable_inertia(self, G: Inertia) -> Inertia:
        return Inertia(G.m, ZERO, _NOTHING)

    def rate(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> Vector:
        return 0.5 * Vector(quaternion_product(_quaternion(q), (v[0], v[1], v[2], 0.0)))

    def integrate(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> Vector:
        return Vector(quaternion_unit(quaternion_product(_quaternion(q), quaternion_exp(_vec(v)))))

    def along(self, q: Sequence[Scalar], k: int) -> Vector:
        x, y, z = EYE[k]
        return Vector(quaternion_product(_quaternion(q), (0.5 * x, 0.5 * y, 0.5 * z, 0.0)))

    def difference(self, q0: Sequence[Scalar], q1: Sequence[Scalar]) -> Vector:
        return Vector(log_quaternion(*quaternion_product(quaternion_conjugate(_quaternion(q0)), _quaternion(q1))))

    def neutral(self) -> tuple[float, ...]:
        return (0.0, 0.0, 0.0, 1.0)

    def random(self, rng: np.random.Generator) -> tuple[float, ...]:
        q = rng.standard_normal(4)
        return tuple((q / np.linalg.norm(q)).tolist())

    def normalize(self, q: Sequence[Scalar]) -> Vector:
        return Vector(quaternion_unit(_quaternion(q)))


@dataclass(frozen=True)
class Translational(Joint):
    """Three translations."""

    kind = "translational"
    nq = nv = 3

    def transform(self, q: Sequence[Scalar]) -> Transform:
        return Slide(_vec(q))

    def S(self, q: Sequence[Scalar]) -> Motions:
        return Motions(Motion(ZERO, e) for e in EYE)

    def transferable_inertia(self, G: Inertia) -> Inertia:
        return Inertia(0.0, ZERO, G.I)


@dataclass(frozen=True)
class Planar(Joint):
    """Motion in the plane normal to an axis: q = (x, y, angle), v = (v_x, v_y, ω) in the child's axes."""

    axis: Vec = Z
    kind = "planar"
    nq = nv = 3
    is_angle = (False, False, True)

    @property
    def basis(self) -> tuple[Vec, Vec]:
        """The plane's x and y: for the normals x, y and z the coordinate axes that follow in turn."""
        n = self.axis
        k = max(range(3), key=lambda j: abs(n[j]))
        other = EYE[(k + 1) % 3]
        x = sub(other, scale(dot(other, n), n))
        x = scale(1.0 / sqrt(dot(x, x)), x)
        return x, cross(n, x)

    def _shift(self, x: Scalar, y: Scalar) -> Vec:
        e, f = self.basis
        return add(scale(x, e), scale(y, f))

    def transform(self, q: Sequence[Scalar]) -> Transform:
        return Transform(axis_angle(self.axis, q[2]), self._shift(q[0], q[1]))

    def S(self, q: Sequence[Scalar]) -> Motions:
        e, f = self.basis
        return Motions((Motion(ZERO, e), Motion(ZERO, f), Motion(self.axis, ZERO)))

    def transferable_inertia(self, G: Inertia) -> Inertia:
        return Inertia(0.0, ZERO, _across(self.axis, G.I))

    def rate(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> Vector:
        x, y, _ = AxisRotation(2, cos(q[2]), sin(q[2])) @ (v[0], v[1], 0.0)
        return Vector((x, y, v[2]))

    def integrate(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> Vector:
        step = exp(Motion((0.0, 0.0, v[2]), (v[0], v[1], 0.0)))
        x, y, _ = AxisRotation(2, cos(q[2]), sin(q[2])) @ step.p
        return Vector((q[0] + x, q[1] + y, q[2] + v[2]))

    def along(self, q: Sequence[Scalar], k: int) -> Vector:
        x, y, _ = AxisRotation(2, cos(q[2]), sin(q[2])) @ (EYE[k] if k < 2 else ZERO)
        return Vector((x, y, 0.0 if k < 2 else 1.0))

    def difference(self, q0: Sequence[Scalar], q1: Sequence[Scalar]) -> Vector:
        angle = q1[2] - q0[2]
        turn = AxisRotation(2, cos(angle), sin(angle))
        body = AxisRotation(2, cos(q0[2]), -sin(q0[2])) @ (q1[0] - q0[0], q1[1] - q0[1], 0.0)
        _, (x, y, _) = log(Transform(turn, body))
        return Vector((x, y, arctan2(sin(angle), cos(angle))))

    def displacement(self, q0: Sequence[Scalar], q: Sequence[Scalar]) -> Vector:
        x, y, _ = AxisRotation(2, cos(q[2]), -sin(q[2])) @ (q[0] - q0[0], q[1] - q0[1], 0.0)
        return Vector((x, y, q[2] - q0[2]))


@dataclass(frozen=True)
class Free(Joint):
    """Six freedoms: q = (x, y, z, qx, qy, qz, qw); the velocity is the body twist, angular first."""

    kind = "free"
    nq, nv = 7, 6
    is_angle = (True, True, True, False, False, False)

    def transform(self, q: Sequence[Scalar]) -> Transform:
        return Transform(quaternion_rotation(*q[3:7]), _vec(q[:3]))

    def S(self, q: Sequence[Scalar]) -> Motions:
        return Motions((*(Motion(e, ZERO) for e in EYE), *(Motion(ZERO, e) for e in EYE)))

    def rate(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> Vector:
        return Vector((*(quaternion_rotation(*q[3:7]) @ _vec(v[3:])), *Spherical().rate(q[3:7], v[:3])))

    def integrate(self, q: Sequence[Scalar], v: Sequence[Scalar]) -> Vector:
        step = exp(Motion(_vec(v[:3]), _vec(v[3:])))
        p = add(_vec(q[:3]), quaternion_rotation(*q[3:7]) @ step.p)
        return Vector((*p, *Spherical().integrate(q[3:7], v[:3])))

    def along(self, q: Sequence[Scalar], k: int) -> Vector:
        if k < 3:
            return Vector((*ZERO, *Spherical().along(q[3:7], k)))
        return Vector((*(quaternion_rotation(*q[3:7]) @ EYE[k - 3]), 0.0, 0.0, 0.0, 0.0))

    def difference(self, q0: Sequence[Scalar], q1: Sequence[Scalar]) -> Vector:
        return Vector(log(self.transform(q0).inverse() @ self.transform(q1)).components)

    def displacement(self, q0: Sequence[Scalar], q: Sequence[Scalar]) -> Vector:
        shift = quaternion_rotation(*q[3:7]).T @ sub(_vec(q[:3]), _vec(q0[:3]))
        return Vector((*Spherical().difference(q0[3:7], q[3:7]), *shift))

    def neutral(self) -> tuple[float, ...]:
        return (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)

    def random(self, rng: np.random.Generator) -> tuple[float, ...]:
        return (*rng.uniform(-1.0, 1.0, 3).tolist(), *Spherical().random(rng))

    def normalize(self, q: Sequence[Scalar]) -> Vector:
        return Vector((*q[:3], *quaternion_unit(_quaternion(q[3:7]))))


@dataclass(frozen=True)
class Own(_Varying):
    """A user's own joint: `function(q)` gives the child's `Transform`, or its rotation (3×3) and position (3).

    S and Ṡ follow by differentiating the function exactly, so it must be written with arithmetic and with the functions
    of `qddot.scalars` or NumPy. It is recorded when the joint is first used (at the latest when a robot is built with it);
    what it depends on is read then, and changes afterwards are not seen. To be pickled it must be importable, not a lambda.
    """

    function: Callable[[Sequence[Scalar]], Any]
    freedoms: int
    name: str = ""
    kind = "own"

    @property
    def nq(self) -> int:  # type: ignore[override]
        return self.freedoms

    @property
    def nv(self) -> int:  # type: ignore[override]
        return self.freedoms

    @cached_property
    def recorded(self) -> RecordedTransform:
        """The operations of the function: what is computed, and what the joint is known by."""
        name = self.name or getattr(self.function, "__name__", type(self.function).__name__)
        what, forms = f"the function {name!r} of a joint", []

        def numbers(q: NDArray[Any]) -> list[Scalar]:
            form, out = _taken_apart(_as_transform(self.function(q.tolist()), what))
            forms.append(form)
            return out

        tape = record(what, numbers, (self.freedoms,))
        if len(set(forms)) > 1:
            raise NotTraceableError(f"{what} does not do the same when it is run again: its Transform has another form")
        return RecordedTransform(tape, forms[0])

    def transform(self, q: Sequence[Scalar]) -> Transform:
        return self.recorded(q)

    def S(self, q: Sequence[Scalar]) -> Motions:
        columns = []
        for k in range(self.nv):
            T = self.transform([Dual(x, 1.0 if j == k else 0.0) for j, x in enumerate(q)])
            R, dR = _value(T.R.rows), _slope(T.R.rows)
            turned = [Rotation(transpose(R)) @ c for c in transpose(dR)]  # the columns of Rᵀ dR = [w]
            columns.append(Motion((turned[1][2], turned[2][0], turned[0][1]), Rotation(transpose(R)) @ _slope(T.p)))
        return Motions(columns)


Form = tuple[bool, tuple[tuple[bool, int | None, bool], ...]]  # a product? and of each part: a Slide? its turn, any shift?
_NO_TURN, _DENSE = -1, None


class RecordedTransform(NamedTuple):
    """A function q -> T: its tape gives the numbers of T, and its form where they stand."""

    tape: Tape
    form: Form

    def __call__(self, q: Sequence[Scalar]) -> Transform:
        return _put_together(self.form, self.tape(q))

    @property
    def digest(self) -> str:
        return hashlib.sha256(repr((self.tape.digest, self.form)).encode()).hexdigest()


def _as_transform(T: Any, what: str) -> Transform:
    if isinstance(T, Transform):
        return T
    try:
        rows, p = T
        (a, b, c), (d, e, f), (g, h, i) = rows
        x, y, z = p
    except (TypeError, ValueError):
        raise NotTraceableError(
            f"{what} gives {T!r}; it must give a Transform, or a rotation (3×3) and a position (3)"
        ) from None
    return Transform(Rotation(((a, b, c), (d, e, f), (g, h, i))), (x, y, z))


def _taken_apart(T: Transform) -> tuple[Form, list[Scalar]]:
    """Where the numbers of a transform stand, and the numbers. Zeros and ones that it knows of are no numbers."""
    parts, numbers = [], []
    for part in T.parts:
        turn = _NO_TURN if part.R is IDENTITY else part.R.axis if isinstance(part.R, AxisRotation) else _DENSE
        parts.append((isinstance(part, Slide), turn, part.p is not ZERO))
        if isinstance(part.R, AxisRotation):
            numbers += [part.R.c, part.R.s]
        elif turn is _DENSE:
            numbers += [x for row in part.R.rows for x in row]
        numbers += part.p if part.p is not ZERO else ()
    return (isinstance(T, Product), tuple(parts)), numbers


def _put_together(form: Form, numbers: Sequence[Scalar]) -> Transform:
    left, parts = iter(numbers), []
    for is_slide, turn, is_shifted in form[1]:
        R = IDENTITY
        if turn is _DENSE:
            R = Rotation((_three(left), _three(left), _three(left)))
        elif turn != _NO_TURN:
            R = AxisRotation(turn, next(left), next(left))
        p = _three(left) if is_shifted else ZERO
        parts.append(Slide(p) if is_slide else Transform(R, p))
    return Product(*parts) if form[0] else parts[0]


def _three(numbers: Iterator[Scalar]) -> Vec:
    return (next(numbers), next(numbers), next(numbers))


def _across(n: Vec, I: Mat) -> Mat:
    """J (1 - n nᵀ), which does not change under a rotation about n: with J = ∫ (r·n)² dm nothing is left of that."""
    J = 0.5 * (I[0][0] + I[1][1] + I[2][2]) - dot(n, mat_vec(I, n))
    return mat_sub(scaled_eye(J), outer(scale(J, n), n))


def _value(x: Any) -> Any:
    return tuple(_value(y) for y in x) if isinstance(x, tuple) else (x.value if isinstance(x, Dual) else x)


def _slope(x: Any) -> Any:
    return tuple(_slope(y) for y in x) if isinstance(x, tuple) else (x.slope if isinstance(x, Dual) else 0.0)


def _vec(x: Sequence[Scalar]) -> Vec:
    return (x[0], x[1], x[2])


def _quaternion(x: Sequence[Scalar]) -> Quaternion:
    return (x[0], x[1], x[2], x[3])


KINDS: dict[str, type[Joint]] = {
    cls.kind: cls
    for cls in (
        Fixed,
        Revolute,
        Prismatic,
        Helical,
        Cylindrical,
        Universal,
        Planar,
        Translational,
        Spherical,
        SphericalEuler,
        SphericalExponential,
        Free,
        Own,
    )
}
