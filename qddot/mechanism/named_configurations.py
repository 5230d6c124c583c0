"""Groups of joints and configurations that have names: what an SRDF file says about a robot beside its mechanism."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple


class NamedConfiguration(NamedTuple):
    """Coordinates of some joints, by their names, for a group of joints."""

    name: str
    group: str
    coordinates: tuple[tuple[str, tuple[float, ...]], ...]


class Groups(NamedTuple):
    """Groups as names of joints in the model's order, and named configurations. No part of a model's identity."""

    joints: tuple[tuple[str, tuple[str, ...]], ...] = ()
    configurations: tuple[NamedConfiguration, ...] = ()

    def among(self, joints: Collection[str], nq: Mapping[str, int]) -> Groups:
        """What is left of them in a robot of these joints, those that follow no other with so many coordinates."""
        left = ((name, tuple(j for j in members if j in joints)) for name, members in self.joints)
        found = (
            c._replace(coordinates=tuple((j, q) for j, q in c.coordinates if nq.get(j) == len(q)))
            for c in self.configurations
        )
        return Groups(tuple(g for g in left if g[1]), tuple(c for c in found if c.coordinates))

    def renamed(self, names: Mapping[str, str]) -> Groups:
        """With other names of joints."""
        joints = tuple((name, tuple(names[j] for j in members)) for name, members in self.joints)
        return Groups(joints, self._with(lambda joint, q: (names[joint], q)))

    def scaled(self, factors: Mapping[str, Sequence[float]]) -> Groups:
        """With coordinates times the factors of their joints."""
        return Groups(
            self.joints,
            self._with(lambda joint, q: (joint, tuple(k * x for k, x in zip(factors[joint], q, strict=True)))),
        )

    def _with(
        self, change: Callable[[str, tuple[float, ...]], tuple[str, tuple[float, ...]]]
    ) -> tuple[NamedConfiguration, ...]:
        return tuple(
            c._replace(coordinates=tuple(change(joint, q) for joint, q in c.coordinates)) for c in self.configurations
        )


NO_GROUPS = Groups()
