"""Long results of a warp's 32 states, on their way from shared memory to the caller's rows: tiles of 128 bytes of each row.

A tile has a place in shared memory from its first number to its last, if there is one left. Numbers whose tile has none,
and constants, are stored when it is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

TILE_BYTES = 128  # of a row: a cache line
WIDE_BYTES = 16  # that a thread loads or stores at a time, where rows are aligned to it


def wide_count(row: int, size: int) -> int:
    """Numbers of so many bytes that are moved at a time: 1 where rows are not whole multiples of more."""
    return WIDE_BYTES // size if row * size % WIDE_BYTES == 0 else 1


def tile_pitch(row: int, size: int) -> int:
    """Numbers from one row of a tile to the next: threads that store together, in their own rows, use all banks."""
    return TILE_BYTES // size + wide_count(row, size)


@dataclass
class TilePlan:
    """Which results are stored where: in a tile's buffer when they are computed, or, until it is written, in a slot."""

    width: int  # numbers of a row in one tile
    buffers: int
    starts: list[int] = field(default_factory=list)  # the first result of each tile
    buffer: dict[int, int] = field(default_factory=dict)  # of each tile
    stores: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # after an operation: (tile, place in it)
    late: dict[int, list[tuple[int, int]]] = field(
        default_factory=dict
    )  # of a tile: (node, place) stored when it is written
    written: dict[int, list[int]] = field(default_factory=dict)  # after an operation, or -1 at the end: tiles

    @property
    def needs_spare(self) -> bool:
        """Whether a tile finds no buffer when it is written: there is one more then, for no other."""
        return len(self.buffer) < len(self.starts)

    def size(self, t: int, n_outputs: int) -> int:
        """Numbers of a row in a tile."""
        return min(self.width, n_outputs - self.starts[t])


def tile_plan(outputs: list[int], body: list[int], width: int, buffers: int) -> TilePlan:
    """The tiles of results that are computed in this order."""
    when = {n: k for k, n in enumerate(body)}
    made = TilePlan(width, buffers, list(range(0, len(outputs), width)))
    places: dict[int, list[tuple[int, int]]] = {}
    missing = [0] * len(made.starts)
    for k, n in enumerate(outputs):
        t = k // width
        if n in when:
            places.setdefault(n, []).append((t, k - made.starts[t]))
            missing[t] += 1
        else:
            made.late.setdefault(t, []).append((n, k - made.starts[t]))
    free = list(range(buffers))
    for n in body:
        done: list[int] = []  # buffers of tiles that end here: free only when all places of this number are stored
        for t, place in places.get(n, ()):
            if t not in made.buffer and free:
                made.buffer[t] = free.pop()
            if t in made.buffer:
                made.stores.setdefault(n, []).append((t, place))
            else:
                made.late.setdefault(t, []).append((n, place))
            missing[t] -= 1
            if missing[t] == 0:
                made.written.setdefault(n, []).append(t)
                if t not in made.buffer and free:
                    made.buffer[t] = free.pop()
                if t in made.buffer:
                    done.append(made.buffer[t])
        free += done
    made.written[-1] = [t for t in range(len(made.starts)) if all(m not in when for m in outputs[made.starts[t] :][:width])]
    if free:
        made.buffer |= dict.fromkeys(made.written[-1], free[0])  # one after another
    return made


def together(tiles: TilePlan, outputs: list[int], home: Mapping[int, int], count: int) -> dict[int, list[tuple[int, int]]]:
    """Results that are stored in one store of `count`: after an operation, (tile, first place).

    They are stored when the last one is computed, if all of them have their tile's buffer and are computed in one function.
    """
    direct = {x for own in tiles.stores.values() for x in own}
    when = {n: k for k, n in enumerate(home)}
    made: dict[int, list[tuple[int, int]]] = {}
    for t, start in enumerate(tiles.starts if count > 1 else ()):
        for place in range(0, tiles.size(t, len(outputs)) - count + 1, count):
            own = outputs[start + place : start + place + count]
            if all((t, place + j) in direct for j in range(count)) and len({home[n] for n in own}) == 1:
                made.setdefault(max(own, key=when.__getitem__), []).append((t, place))
    return made
