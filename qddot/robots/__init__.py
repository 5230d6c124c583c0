"""Robots that come with qddot, each built from published numbers in a module of its own, and generators of more."""

from __future__ import annotations

import importlib

from qddot.errors import unknown
from qddot.mechanism.builder import Builder

NAMES = (
    "pendulum",
    "double_pendulum",
    "planar3",
    "scara",
    "stanford",
    "puma560",
    "fourbar",
    "fivebar",
    "delta",
    "stewart",
    "quadruped",
)


def build(name: str) -> Builder:
    """The Builder of an embedded robot. Those with loops are closed at their neutral configuration."""
    if name not in NAMES:
        raise unknown("embedded robot", name, NAMES, "qddot")
    builder: Builder = importlib.import_module(f"qddot.robots.{name}").builder()
    return builder
