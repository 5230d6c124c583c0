"""Where a joint's coordinates stand in q, and its degrees of freedom in v."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from qddot.errors import InputError
from qddot.mechanism.model import Model


class JointIndex(Mapping[str, int | slice]):
    """Joint name -> place in q or v."""

    def __init__(self, model: Model, which: str) -> None:
        self._model, self._which = model, which

    def __getitem__(self, name: str) -> int | slice:
        i = self._model.joint_index(name)
        mimic = self._model.mimic[i]
        if mimic is not None:
            master = self._model.joint_names[mimic.link]
            raise InputError(
                f"joint {name!r} has no coordinate of its own: it follows {master!r} by "
                f"q = {mimic.factor:g} q + {mimic.offset:g}; ask for {master!r}"
            )
        where: slice = getattr(self._model.slots[i], self._which)
        return where.start if where.stop - where.start == 1 else where

    def __iter__(self) -> Iterator[str]:
        return (n for i, n in enumerate(self._model.joint_names) if i and self._model.mimic[i] is None)

    def __len__(self) -> int:
        return sum(1 for _ in self)
