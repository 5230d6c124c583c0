"""Robots as environments of Gymnasium, thousands at a time (docs/tutorials/vector_env.md); extra `[gym]`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qddot.errors import extra
from qddot.gym.functions import traced

if TYPE_CHECKING:
    from qddot.gym.vector_env import VectorEnv as VectorEnv

__all__ = ["VectorEnv", "traced"]


def __getattr__(name: str) -> Any:
    if name != "VectorEnv":
        raise AttributeError(f"module 'qddot.gym' has no attribute {name!r}")
    extra("gymnasium", "gym", "qddot.gym.VectorEnv")
    from qddot.gym.vector_env import VectorEnv

    return VectorEnv
