"""MJCF's equalities between joints and between fixed tendons: joints that follow others, and couplings.

MuJoCo asks for y - y₀ = a₀ + a₁(x - x₀) + … + a₄(x - x₀)⁴, y and x the positions of two joints or the lengths of two
tendons, with index 0 those at qpos0; without a second one x is x₀. A fixed tendon's length is a sum of joint positions. So
a linear equality between two joints makes one follow the other; what is not linear, or concerns more joints, or holds a
single one, stays a constraint of one row. MuJoCo's equalities are springs (solref, solimp); here they hold exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

_NOTHING = 1e-12  # of the largest factor: a joint whose factors cancel up to this takes no part
_AGREES = 1e-9  # rad or m: equalities that contradict each other by less say the same


class Equality(NamedTuple):
    """Σ left = p(Σ right - reference), by joint numbers; `number` is its own in the file."""

    number: int
    left: dict[int, float]
    right: dict[int, float]
    reference: float
    polynomial: tuple[float, ...]


class Follower(NamedTuple):
    """q = factor · q[leader] + offset."""

    leader: int
    factor: float
    offset: float


class Reduced(NamedTuple):
    """What a file's equalities come to."""

    followers: dict[int, Follower]
    rows: list[Equality]
    redundant: list[int]
    contradictory: list[tuple[int, float]]

    def leader(self, joint: int) -> int:
        return self.followers[joint].leader if joint in self.followers else joint


def equality(mujoco: Any, m: Any, index: int) -> Equality | None:
    """One of them, if it is between joints or fixed tendons."""
    kind, data = int(m.eq_type[index]), m.eq_data[index].tolist()
    if kind not in (int(mujoco.mjtEq.mjEQ_JOINT), int(mujoco.mjtEq.mjEQ_TENDON)):
        return None
    is_tendon, second = kind == int(mujoco.mjtEq.mjEQ_TENDON), int(m.eq_obj2id[index])
    y = _position(mujoco, m, is_tendon, int(m.eq_obj1id[index]))
    x = ({}, 0.0) if second < 0 else _position(mujoco, m, is_tendon, second)
    if y is None or x is None:
        return None
    a = data[:5] if second >= 0 else data[:1]
    degree = max((k for k, c in enumerate(a) if c != 0.0), default=0)
    return Equality(index, y[0], x[0], x[1], (y[1] + a[0], *a[1 : degree + 1]))


def _position(mujoco: Any, m: Any, is_tendon: bool, i: int) -> tuple[dict[int, float], float] | None:
    """A joint's position, or a tendon's length, as factors of joint positions, and what it is at qpos0."""
    if not is_tendon:
        return {i: 1.0}, float(m.qpos0[m.jnt_qposadr[i]])
    factors = _fixed_tendon(mujoco, m, i)
    return None if factors is None else (factors, float(m.tendon_length0[i]))


def _fixed_tendon(mujoco: Any, m: Any, tendon: int) -> dict[int, float] | None:
    first = int(m.tendon_adr[tendon])
    wraps = range(first, first + int(m.tendon_num[tendon]))
    if any(m.wrap_type[w] != int(mujoco.mjtWrap.mjWRAP_JOINT) for w in wraps):
        return None
    factors: dict[int, float] = {}
    for w in wraps:
        joint = int(m.wrap_objid[w])
        factors[joint] = factors.get(joint, 0.0) + float(m.wrap_prm[w])
    return factors


def reduced(equalities: Iterable[Equality]) -> Reduced:
    """Lets joints follow others wherever a linear equality is between two of those that are left."""
    out = Reduced({}, [], [], [])
    waiting, is_new = list(equalities), True
    while is_new:
        is_new, later = False, []
        for e in waiting:
            found = _linear(e, out.followers)
            if found is None or len(found[0]) not in (0, 2):
                later.append(e)
                continue
            factors, constant = found
            if not factors:
                if abs(constant) <= _AGREES:
                    out.redundant.append(e.number)
                else:
                    out.contradictory.append((e.number, abs(constant)))
                continue
            one, other = _follower_first(e, factors, out)
            _follow(out.followers, one, Follower(other, -factors[other] / factors[one], -constant / factors[one]))
            is_new = True
        waiting = later
    out.rows.extend(waiting)
    return out


def _linear(e: Equality, followers: dict[int, Follower]) -> tuple[dict[int, float], float] | None:
    """Σ factors · q + constant = 0 over the joints that follow no other, if the equality is linear."""
    if len(e.polynomial) > 2:
        return None
    slope = e.polynomial[1] if len(e.polynomial) == 2 else 0.0
    factors: dict[int, float] = {}
    constant, largest = slope * e.reference - e.polynomial[0], 0.0
    for k, terms in ((1.0, e.left), (-slope, e.right)):
        for joint, factor in terms.items():
            f = followers.get(joint, Follower(joint, 1.0, 0.0))
            factors[f.leader] = factors.get(f.leader, 0.0) + k * factor * f.factor
            constant += k * factor * f.offset
            largest = max(largest, abs(k * factor * f.factor))
    return {j: x for j, x in factors.items() if abs(x) > _NOTHING * largest}, constant


def _follower_first(e: Equality, factors: dict[int, float], out: Reduced) -> tuple[int, int]:
    """What MuJoCo names first follows the other: a joint itself, or else the one that it follows."""
    one, other = factors
    for first in (set(e.left), {out.leader(joint) for joint in e.left}):
        if (one in first) != (other in first):
            return (one, other) if one in first else (other, one)
    return one, other


def _follow(followers: dict[int, Follower], joint: int, new: Follower) -> None:
    """Lets a joint follow another, and with it those that follow it."""
    for other, f in followers.items():
        if f.leader == joint:
            followers[other] = Follower(new.leader, f.factor * new.factor, f.factor * new.offset + f.offset)
    followers[joint] = new
