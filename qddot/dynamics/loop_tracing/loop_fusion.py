"""Which loops of an algorithm can be done in one go over the links."""

from __future__ import annotations

from dataclasses import dataclass

from qddot.dynamics.loop_tracing.recorder import Recorder


@dataclass
class Turn:
    """Loops that can be one, because they go the same way and what one leaves the next does not miss."""

    backward: bool
    loops: list[int]
    own_set: set[int]
    own_read: set[int]
    parent_set: set[int]
    parent_read: set[int]
    climbs: bool = False
    group: int = 0

    def takes(self, other: Turn) -> bool:
        if self.climbs or other.climbs or self.group != other.group:
            return False
        if self.own_set & other.own_read or not (self.backward == other.backward or self.is_local or other.is_local):
            return False
        if other.backward if self.is_local else self.backward:
            late = self.own_set & other.parent_read  # a parent has its turn after its children
            return not late and not other.parent_set & (self.own_read | self.parent_read | self.parent_set)
        return not (self.parent_set or other.parent_set or self.parent_read & other.own_set)

    @property
    def is_local(self) -> bool:
        """Whether it has to do with no parents, so that it can go either way."""
        return not (self.parent_set or self.parent_read)

    def add(self, other: Turn) -> None:
        self.backward = other.backward if self.is_local else self.backward
        self.loops += other.loops
        for mine, others in zip(self.sets, other.sets, strict=True):
            mine |= others

    @property
    def sets(self) -> tuple[set[int], ...]:
        return self.own_set, self.own_read, self.parent_set, self.parent_read


def turns_of(recorder: Recorder) -> list[Turn]:
    """The loops of an algorithm, those put together that can be one."""
    turns: list[Turn] = []
    for k, loop in enumerate(recorder.loops):
        turn = Turn(loop.backward, [k], set(), set(), set(), set(), loop.climbs, loop.group)
        for stores in loop.stores.values():
            for where, index in stores:
                (turn.own_set if where == "own" else turn.parent_set).add(index)
        for begin, end in loop.span.values():
            for node in range(begin, end):
                if recorder.graph.ops[node] == "cell":
                    where, index, _ = recorder.graph.args[node]
                    (turn.own_read if where == "own" else turn.parent_read).add(index)
        if turns and k not in recorder.breaks and turns[-1].takes(turn):
            turns[-1].add(turn)
        else:
            turns.append(turn)
    return turns
