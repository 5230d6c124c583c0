"""Groups of joints and configurations that have names: what an SRDF file says about a robot beside its mechanism."""

from __future__ import annotations

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


NO_GROUPS = Groups()
