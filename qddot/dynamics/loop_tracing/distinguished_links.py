"""Links that an algorithm is told of by name or number: each is a kind of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qddot.mechanism.model import Frame, Model

# Scalars that belong to a link; gravity belongs to none, all others to a degree of freedom.
_OF_LINKS = ("inertia", "placement", "f_ext")


class Singled:
    """What a function needs besides arrays: the frame's link, the DoF that are prescribed, the scalar `by`."""

    def __init__(self, model: Model, needs: Mapping[str, Any]) -> None:
        self.model, self.needs = model, needs
        self.frame: Frame | None = model.frame(needs["frame"]) if "frame" in needs else None
        self.carriers = {*model.ancestors(self.frame.link)} if self.frame else set()
        self.prescribed, self.by = {*needs.get("prescribed", ())}, needs.get("by")
        self.link_of_by = 0 if self.by is None else self._link_of(self.by)

    def _link_of(self, by: tuple[Any, ...]) -> int:
        """The link that the scalar belongs to, 0 for none."""
        if by[0] == "gravity":
            return 0
        if by[0] in _OF_LINKS:
            return int(by[1])
        return next(i for i, s in enumerate(self.model.slots) if s.v.start <= by[1] < s.v.stop)

    def class_key(self, i: int) -> Any:
        """What is asked of link i alone: links of one kind are alike in it."""
        of_frame = self.frame is not None and i == self.frame.link
        return self._prescribed(i), i in self.carriers, of_frame, i == self.link_of_by, self.model.mimic[i] is None

    def _prescribed(self, i: int) -> tuple[int, ...]:
        slot = self.model.slots[i].v
        return tuple(k - slot.start for k in range(slot.start, slot.stop) if k in self.prescribed)

    def needs_on(self, small: Model) -> dict[str, Any]:
        """The same needs, said of the model of one link of each kind."""
        needs = dict(self.needs)
        if "prescribed" in needs:
            each = [
                (slot.v.start, self.model.joint_index(x))
                for slot, x in zip(small.slots, small.joint_names, strict=True)
                if x
            ]
            needs["prescribed"] = tuple(start + k for start, i in each for k in self._prescribed(i))
        if self.by is not None and self.link_of_by:
            kind, place, *rest = self.by
            k = small.joint_names.index(self.model.joint_names[self.link_of_by])
            start, other = self.model.slots[self.link_of_by].v.start, small.slots[k].v.start
            needs["by"] = (kind, k if kind in _OF_LINKS else place - start + other, *rest)
        return needs
