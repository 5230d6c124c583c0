"""The tree that declared links and joints make: who carries whom, in which order, and which joints follow others."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qddot.errors import ModelError, message, near
from qddot.mechanism.declared_joint import DeclaredJoint
from qddot.mechanism.model import Mimic
from qddot.mechanism.validation import constant, numbers
from qddot.spatial import Inertia, Transform

WORLD = "world"
DECLARE = "declare the link or correct the name"
Carrier = tuple[str, Transform]


@dataclass
class DeclaredLink:
    """A body and its inertia about the origin of its frame."""

    name: str
    inertia: Inertia
    where: str


def joints_above(links: Mapping[str, DeclaredLink], joints: Mapping[str, DeclaredJoint]) -> dict[str, DeclaredJoint]:
    """The joint that carries each link."""
    above: dict[str, DeclaredJoint] = {}
    for j in joints.values():
        element = f"joint {j.name!r}"
        for role, name in (("parent", j.parent), ("child", j.child)):
            if name not in links and not (name == WORLD and role == "parent"):
                problem = f"its {role} link {name!r} does not exist{near(name, links)}"
                raise ModelError(message(j.where, element, problem, DECLARE))
        if j.child in above:
            problem = f"link {j.child!r} is already the child of joint {above[j.child].name!r}"
            fix = "a link moves by one joint; close loops with a loop, not with a second parent"
            raise ModelError(message(j.where, element, problem, fix))
        above[j.child] = j
    for link in links.values():
        if link.name not in above:
            fix = f"add a joint that carries it, from {WORLD!r} if it is a root"
            raise ModelError(message(link.where, f"link {link.name!r}", "no joint carries it", fix))
    return above


def parents_first(links: Mapping[str, DeclaredLink], above: Mapping[str, DeclaredJoint]) -> list[str]:
    """Parents before children, otherwise as declared."""
    rank = {name: k for k, name in enumerate(links)}
    children: dict[str, list[str]] = {}
    for name, j in above.items():
        children.setdefault(j.parent, []).append(name)
    heap = [(rank[c], c) for c in children.get(WORLD, [])]
    heapq.heapify(heap)
    order: list[str] = []
    while heap:
        _, name = heapq.heappop(heap)
        order.append(name)
        for c in children.get(name, []):
            heapq.heappush(heap, (rank[c], c))
    if len(order) < len(links):
        done = set(order)
        stuck = next(name for name in links if name not in done)
        trail = {stuck: None}
        while (up := above[stuck].parent) not in trail:
            trail[up] = None
            stuck = up
        ring = list(trail)[list(trail).index(up) :]
        j = above[ring[0]]
        shown = [*ring, ring[0]] if len(ring) < 8 else [*ring[:6], "…", ring[0]]
        problem = "its links form a cycle: " + " <- ".join(shown)
        raise ModelError(message(j.where, f"joint {j.name!r}", problem, "cut one of the joints and close it as a loop"))
    return order


def carriers(above: Mapping[str, DeclaredJoint], order: Sequence[str]) -> dict[str, Carrier]:
    """For each link the moving link (or the world) that it is fixed to, and its place there."""
    carrier = {WORLD: (WORLD, Transform())}
    for name in order:
        j = above[name]
        holder, T = carrier[j.parent]
        fixed = j.joint.nv == 0
        carrier[name] = (holder, constant(T @ j.placement)) if fixed else (name, Transform())
    return carrier


def mimics(
    rows: Sequence[DeclaredJoint], joints: Mapping[str, DeclaredJoint], index: Mapping[str, int]
) -> list[Mimic | None]:
    """Which joint each of the rows follows, at the end of a chain of mimics."""
    done: dict[str, Mimic] = {}
    for j in rows:
        trail: dict[str, DeclaredJoint] = {}
        at = j
        while at.mimic is not None and at.name not in done:
            trail[at.name] = at
            at = _followed(at, joints)
            if at.name in trail:
                names = [*trail, at.name]
                problem = "it mimics itself: " + " -> ".join(names if len(names) < 8 else [*names[:6], "…", at.name])
                fix = "let one joint of the ring be independent"
                raise ModelError(message(j.where, f"joint {j.name!r}", problem, fix))
        end = done.get(at.name, Mimic(index[at.child], 1.0, 0.0))
        for follower in reversed(trail.values()):
            _, k, o = follower.mimic  # type: ignore[misc]
            end = Mimic(end.link, k * end.factor, k * end.offset + o)
            numbers(end[1:], 2, "the product of mimic factors", follower.where, f"joint {follower.name!r}")
            done[follower.name] = end
    return [done.get(j.name) for j in rows]


def _followed(j: DeclaredJoint, joints: Mapping[str, DeclaredJoint]) -> DeclaredJoint:
    """The joint that j names in its mimic."""
    other = j.mimic[0] if j.mimic else ""
    element = f"joint {j.name!r}"
    if other not in joints:
        problem = f"it mimics {other!r}, which is no joint{near(other, joints)}"
        raise ModelError(message(j.where, element, problem, "name an existing joint"))
    followed = joints[other]
    if any(x.joint.nv != 1 or x.joint.nq != 1 for x in (j, followed)):
        problem = f"it mimics {other!r}, and one of the two has not just one degree of freedom"
        raise ModelError(message(j.where, element, problem, "mimic works between joints of one degree of freedom"))
    return followed
