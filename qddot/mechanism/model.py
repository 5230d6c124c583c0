"""The mechanism as frozen tables. World is link 0; link i moves by joint i; the parent of i has a smaller number.

A Model is made by `build.Builder`, which checks it. It holds numbers only, no workspace, so that it can be hashed by
content, compared, pickled and shared between threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot.errors import Finding, InputError, one_name, unknown
from qddot.joints import Joint
from qddot.mechanism import identity
from qddot.mechanism.couplings import Coupling
from qddot.mechanism.joint_arrays import (
    Coordinates,
    JointColumns,
    JointMatrix,
    JointVector,
    PerLink,
    Slot,
    Total,
    Velocities,
)
from qddot.mechanism.named_configurations import NO_GROUPS, Groups
from qddot.scalars import mark, total
from qddot.spatial import Force, Inertia, Motion, Product, Transform, force, zero_force
from qddot.spatial.joint_blocks import Motions, Vector
from qddot.spatial.rotation import ZERO, Vec
from qddot.spatial.tape import Tape, record


class Mimic(NamedTuple):
    """q = factor · q[link] + offset; the link followed is never a mimic itself."""

    link: int
    factor: float
    offset: float


class Limits(NamedTuple):
    """Bounds on one joint, a number a degree of freedom; infinite where the file gives none."""

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    velocity: tuple[float, ...]
    effort: tuple[float, ...]


class Frame(NamedTuple):
    """A named frame fixed to a link: a body that was merged into it, a tool, a sensor."""

    name: str
    link: int
    placement: Transform


class Loop(NamedTuple):
    """A joint outside the spanning tree. It lets frame b (on link_b) move in frame a (on link_a) as its kind allows."""

    name: str
    joint: Joint
    link_a: int
    placement_a: Transform
    link_b: int
    placement_b: Transform


@dataclass(frozen=True)
class Constraint:
    """A coupling of joints or a user's own: φ(q) = 0 by `position`, or linear in the velocity, A(q) q̇ = 0, by
    `velocity`(q, v).

    Either gives a sequence of numbers. They are differentiated exactly, so they must be written with arithmetic and the
    functions of `qddot.scalars` or NumPy; q is the whole configuration, coordinate by coordinate. A model holds their
    tapes: a function is recorded when the constraint is added, and what it depends on is read then.
    """

    name: str
    rows: int
    position: Callable[[Any], Any] | None = None
    velocity: Callable[[Any, Any], Any] | None = None

    def recorded(self, nq: int, nv: int) -> Constraint:
        """The same with tapes in the place of functions, and as many rows as they have results."""
        if isinstance(self.position, Coupling):  # numbers alone
            return self
        position, velocity = self._tape(self.position, nq), self._tape(self.velocity, nq, nv)
        rows = {len(tape.outputs) for tape in (position, velocity) if tape is not None}
        if len(rows) != 1 or self.rows not in (0, *rows):
            raise InputError(f"constraint {self.name!r} of {self.rows} rows: its functions give {sorted(rows)} numbers")
        return Constraint(self.name, rows.pop(), position, velocity)

    def _tape(self, function: Callable[..., Any] | None, *sizes: int) -> Tape | None:
        if function is None or isinstance(function, Tape):
            return function
        what = f"the function of constraint {self.name!r}"
        return record(what, lambda *vectors: function(*(x.tolist() for x in vectors)), sizes)

    def describe(self) -> dict[str, Any]:
        """A coupling by its numbers, a user's own functions by what their tapes compute."""
        if isinstance(self.position, Coupling):
            return {"coupling": self.position.describe()}
        tapes = {"position": self.position, "velocity": self.velocity}
        return {which: tape.digest for which, tape in tapes.items() if isinstance(tape, Tape)}


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """All there is to know of a mechanism. Tables run over the links, the world first."""

    name: str
    link_names: tuple[str, ...]
    joint_names: tuple[str, ...]
    parent: tuple[int, ...]
    joint: tuple[Joint, ...]
    placement: tuple[Transform, ...]
    inertia: tuple[Inertia, ...]
    armature: tuple[Vector, ...]
    damping: tuple[Vector, ...]
    friction: tuple[Vector, ...]
    stiffness: tuple[Vector, ...]
    spring_reference: tuple[Vector, ...]
    limits: tuple[Limits, ...]
    actuated: tuple[bool, ...]
    mimic: tuple[Mimic | None, ...]
    frames: tuple[Frame, ...] = ()
    loops: tuple[Loop, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    gravity: Vec = (0.0, 0.0, -9.81)
    friction_velocity: float = 1e-3
    loop_tolerance: float | None = None  # m or rad up to which loops count as closed; None: as accurate as the model is
    findings: tuple[Finding, ...] = ()
    pivot_floor: tuple[Vector, ...] = ()  # by `conditioning.guarded`: what pivots of M must be above, to be no rounding
    source: str = ""  # the file it was read from, where its shapes are; no part of what it is
    package_dirs: tuple[str, ...] = ()
    trusted: bool = False  # whether that file may lead to shapes anywhere
    groups: Groups = NO_GROUPS  # names of joints and configurations; no part of what it is

    def __post_init__(self) -> None:
        if self.constraints:
            object.__setattr__(self, "constraints", tuple(c.recorded(self.nq, self.nv) for c in self.constraints))

    def __repr__(self) -> str:
        return f"<Model {self.name!r}: {self.n_links} links, nq={self.nq}, nv={self.nv}>"

    # ---- shape

    @property
    def n_links(self) -> int:
        """The number of moving links."""
        return len(self.parent) - 1

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """Where the coordinates of each link's joint stand in q and v."""
        slots: list[Slot] = []
        nq = nv = 0
        for joint, mimic in zip(self.joint, self.mimic, strict=True):
            if mimic is None:
                slots.append(Slot(slice(nq, nq + joint.nq), slice(nv, nv + joint.nv)))
                nq, nv = nq + joint.nq, nv + joint.nv
            else:
                slots.append(Slot(slice(0, 0), slice(0, 0)))
        for i, mimic in enumerate(self.mimic):
            if mimic is not None:
                slots[i] = Slot(slots[mimic.link].q, slots[mimic.link].v, mimic.factor, mimic.offset)
        return tuple(slots)

    @cached_property
    def nq(self) -> int:
        return sum(j.nq for j, m in zip(self.joint, self.mimic, strict=True) if m is None)

    @cached_property
    def nv(self) -> int:
        return sum(j.nv for j, m in zip(self.joint, self.mimic, strict=True) if m is None)

    @cached_property
    def is_coupled(self) -> bool:
        """Whether some joints share a coordinate."""
        return any(m is not None for m in self.mimic)

    @property
    def is_constrained(self) -> bool:
        """Whether there are loops or a user's own constraints."""
        return bool(self.loops or self.constraints)

    def outward(self) -> Iterator[tuple[int, int]]:
        """(i, p) over the moving links and their parents, parents before children."""
        return ((i, self.parent[i]) for i in range(1, len(self.parent)))

    def inward(self) -> Iterator[tuple[int, int]]:
        """(i, p) over the moving links and their parents, children before parents."""
        return ((i, self.parent[i]) for i in range(len(self.parent) - 1, 0, -1))

    def ancestors(self, i: int) -> Iterator[int]:
        """i, its parent, and so on, without the world: the links whose joints move link i."""
        while i > 0:
            yield i
            i = self.parent[i]

    def path_to_base(self, i: int) -> Iterator[tuple[int, int]]:
        """(j, p) over link i and the links that carry it, with their parents, from i to the base."""
        return ((j, self.parent[j]) for j in self.ancestors(i))

    def columns(self, a_link: int | None = None) -> Iterator[tuple[int, int, int]]:
        """(i, p, k) over the degrees of freedom k of all joints i, or over `a_link` columns a link, leaves first."""
        return ((i, p, k) for i, p in self.inward() for k in range(self.joint[i].nv if a_link is None else a_link))

    @property
    def mass(self) -> Any:
        """The mass of the moving links."""
        return total(I.m for I in self.inertia[1:])

    # ---- what algorithms read and write

    def is_free_without_rotor(self, i: int) -> bool:
        """Whether joint i has all six degrees of freedom and no rotor: then only its own force passes through it, and
        nothing of the inertia behind it, which the general formula would find by subtracting equal numbers (errata,
        section 7). A rotor that is not known yet counts as one.
        """
        return self.joint[i].nv == 6 and all(isinstance(x, float) and x == 0.0 for x in self.armature[i])

    def floor(self, i: int) -> Vector:
        """What the pivots of joint i must be above; zero where they cannot vanish."""
        known = self.pivot_floor[i] if self.pivot_floor else None
        return known or Vector((0.0,) * self.joint[i].nv)

    @property
    def is_guarded(self) -> bool:
        """Whether there are pivots that can vanish, so far as is known."""
        return any(not (isinstance(x, float) and x == 0.0) for row in self.pivot_floor for x in row)

    @property
    def floors(self) -> list[Any]:
        """The same for each degree of freedom."""
        return [x for i, _ in self.outward() if self.mimic[i] is None for x in self.floor(i)]

    def coordinates(self, q: Any) -> Coordinates:
        return Coordinates(self.slots, q)

    def velocities(self, v: Any) -> Velocities:
        return Velocities(self.slots, v)

    def joint_vector(self, symbol: str) -> JointVector:
        return JointVector(self.slots, self.nv, symbol)

    def joint_matrix(self, symbol: str, a_link: int | None = None) -> JointMatrix:
        """Rows are degrees of freedom; columns too, or so many a link."""
        return JointMatrix(self.slots, self.nv, symbol, a_link)

    def joint_columns(self, symbol: str) -> JointColumns:
        return JointColumns(self.slots, self.nv, symbol)

    def by_columns(self, function: Callable[[NDArray[Any]], NDArray[Any]], a_link: int | None = None) -> NDArray[Any]:
        """The matrix, or matrices, of a linear function of a vector over the degrees of freedom, or of `a_link` numbers a
        link: its columns by unit vectors.
        """
        columns = [function(unit) for unit in np.eye(self.nv if a_link is None else a_link * self.n_links)]
        return np.stack(np.broadcast_arrays(*columns), axis=-1) if columns else np.zeros((0, 0))

    def per_link(self, *symbols: str) -> tuple[PerLink, ...]:
        """A place for each of the named quantities, a link each, the world's included."""
        return tuple(PerLink(len(self.parent), symbol) for symbol in symbols)

    def named(self, symbol: str, i: int, value: Any) -> Any:
        """The value as it is; a model that reports what an algorithm computes keeps it as this symbol of link i."""
        return value

    def total(self, count: int = 1) -> Total:
        """So many numbers, each a sum over all links."""
        return Total(count)

    def external(self, f_ext: Any) -> list[Force]:
        """External forces, one a link in its own frame; none where f_ext is None."""
        if f_ext is None:
            return [zero_force()] * len(self.parent)
        f = np.asarray(f_ext)
        rows = (f[..., i, :] for i in range(self.n_links))
        return [zero_force(), *(force(r.tolist() if r.ndim == 1 else [r[..., k] for k in range(6)]) for r in rows)]

    @property
    def base_acceleration(self) -> Motion:
        """Gravity as an acceleration of the base, (0, -g). Kim footnote 6 (errata K5), Featherstone & Orin 3.1."""
        g = self.gravity
        return Motion(ZERO, (-g[0], -g[1], -g[2]))

    def transforms(self, q: Any) -> list[Transform]:
        """T_{λ(i),i}: the placement and the joint's own motion, kept apart."""
        q, (T,) = self.coordinates(q), self.per_link("T")
        T[0] = Transform()
        for i, _ in self.outward():
            motion = self.joint[i].transform(q[i])
            T[i] = Product(self.placement[i], motion)
            mark((motion.R.rows, motion.p), "T", i)
        return T

    def axes(self, q: Any) -> list[Motions]:
        """S_i of each joint."""
        q = self.coordinates(q)
        return [Motions(), *(self.joint[i].S(q[i]) for i, _ in self.outward())]

    def joints_at(self, q: Any, v: Any) -> tuple[list[Transform], list[Motions], list[Motion]]:
        """T_{λ(i),i}, S_i and Ṡ_i q̇_i of each joint."""
        x, u = self.coordinates(q), self.velocities(v)
        biases = [Motion(ZERO, ZERO), *(self.joint[i].bias(x[i], u[i]) for i, _ in self.outward())]
        return self.transforms(q), self.axes(q), biases

    # ---- names

    def frame(self, name: str) -> Frame:
        """A link's own frame, or a frame fixed to one, by name."""
        found = self._frames.get(one_name(name, "frame"))
        if found is None:
            raise unknown("link or frame", name, self._frames, f"robot {self.name!r}")
        return found

    @cached_property
    def _frames(self) -> dict[str, Frame]:
        own = {name: Frame(name, i, Transform()) for i, name in enumerate(self.link_names)}
        return own | {f.name: f for f in self.frames}

    @property
    def frame_names(self) -> tuple[str, ...]:
        return tuple(self._frames)

    def joint_index(self, name: str) -> int:
        """The link that a joint moves."""
        if one_name(name, "joint") not in self._joints:
            raise unknown("joint", name, self._joints, f"robot {self.name!r}")
        return self._joints[name]

    @cached_property
    def _joints(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.joint_names) if i > 0}

    def dof_indices(self, chosen: Iterable[str | int | tuple[str, int]]) -> tuple[int, ...]:
        """The places in v of joints by name, of one of their degrees of freedom as (joint, k), and of indices into v."""
        found: set[int] = set()
        if not isinstance(chosen, Iterable):
            raise InputError(f"degrees of freedom are {chosen!r}; give a list of joints, (joint, k) or indices into v")
        for x in (chosen,) if isinstance(chosen, str) else chosen:
            name, k = (x, None) if isinstance(x, str) else x if isinstance(x, tuple) else (None, x)
            places = range(self.nv) if name is None else self._own_dof(name)
            if k is not None and not (isinstance(k, int | np.integer) and 0 <= k < len(places)):
                owner = f"robot {self.name!r}" if name is None else f"joint {name!r}"
                raise InputError(f"{owner} has no degree of freedom {k!r}: it has {len(places)}, counted from 0")
            found.update(places if k is None else [places[k]])
        return tuple(sorted(found))

    def _own_dof(self, joint: str) -> range:
        i = self.joint_index(joint)
        if (mimic := self.mimic[i]) is not None:
            master = self.joint_names[mimic.link]
            raise InputError(
                f"joint {joint!r} has no degree of freedom of its own: it follows {master!r}; choose {master!r}"
            )
        return range(self.slots[i].v.start, self.slots[i].v.stop)

    # ---- variants

    def without_passive_forces(self) -> Model:
        """The same mechanism without joint damping, friction and springs."""
        none = tuple(Vector((0.0,) * len(d)) for d in self.damping)
        return replace(self, damping=none, friction=none, stiffness=none)

    # ---- identity

    def describe(self) -> dict[str, Any]:
        """The model as plain lists, numbers and names: what its file holds and what its hash is taken of."""
        return identity.describe(self)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content."""
        return identity.digest(self)

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, Model):
            return self is other
        return self.digest == other.digest or (hash(self) == hash(other) and identity.same(self, other))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:  # of numbers: zeros are equal whatever their sign
        places = tuple((T.p, T.R.rows) for T in self.placement)
        return hash((self.name, self.link_names, self.joint_names, self.gravity, self.inertia, self.damping, places))
