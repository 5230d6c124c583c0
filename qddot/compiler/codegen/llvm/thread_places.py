"""Places in a block's shared memory for what warps that compute the same states have to tell each other.

A place holds one number of each of 32 states. A piece of a row of results has a stretch of places, in which numbers are a
little further apart than a place is long: a warp reads it across, without two threads in the same bank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qddot.compiler.codegen.llvm.thread_phases import PIECE, PIECE_PLACES, Phases, Work
from qddot.compiler.codegen.llvm.thread_registers import Loads
from qddot.compiler.ir.program import Program


@dataclass(frozen=True)
class Places:
    """Where values are that cross from one warp to another, where pieces are, and who writes them."""

    of: dict[int, int]  # of values, by nodes
    local: dict[int, int]  # slots in which the warp that computed them finds values that it has no place for
    pieces: list[int]  # the first place of each
    writes: list[list[list[int]]]  # of each phase and warp: pieces
    leaves: dict[tuple[int, int], list[int]]  # of a phase and a warp: results that nobody computes, which it stores
    count: int
    slots: int  # of a thread

    def busiest(self) -> int:
        """The most pieces that a warp writes in one phase."""
        return max(len(own) for phase in self.writes for own in phase)


def places(program: Program, work: Work, made: Phases, loaded: Sequence[Loads], most: int, has_pieces: bool) -> Places:
    """A place is free again in the phase after it was read last.

    Pieces and values for other warps have one. A warp finds its own values there, too, if there is room among `most`, the
    shortest first, and else in a slot of local memory.
    """
    busy = list[int]()  # the phases of each place, as bits
    starts, leaves = list[int](), dict[tuple[int, int], list[int]]()
    writes = [[list[int]() for _ in range(made.warps)] for _ in range(made.count)]
    computed = set(work.nodes)
    for p, own in enumerate(work.pieces if has_pieces else ()):
        when = [made.phase[k] for k in own] or [0]
        starts.append(_fit(busy, _bits(min(when), max(when) + 1), PIECE_PLACES))
        row = writes[max(when) + 1]
        row[min(range(made.warps), key=lambda w: (len(row[w]), (w - p) % made.warps))].append(p)
        w = made.warp[own[when.index(min(when))]] if own else p % made.warps
        for j, n in enumerate(program.outputs[p * PIECE : (p + 1) * PIECE]):
            if n not in computed:
                leaves.setdefault((min(when), w), []).append(p * PIECE + j)
    of = dict[int, int]()
    home = {n: (p, w) for n, p, w in zip(work.nodes, made.phase, made.warp, strict=True)}
    again, others = _last_loads(home, loaded)
    slots: list[list[int]] = [[] for _ in range(made.warps)]
    local = dict[int, int]()
    for n in sorted(others, key=lambda n: (home[n][0] - others[n], n)):
        of[n] = _fit(busy, _bits(home[n][0], others[n]), 1)
    for n in sorted(again, key=lambda n: (again[n] - home[n][0], n)):
        bits = _bits(home[n][0], again[n])
        if n in others:
            longer = bits & ~_bits(home[n][0], others[n])
            if busy[of[n]] & longer:
                local[n] = _fit(slots[home[n][1]], bits, 1)
            busy[of[n]] |= 0 if n in local else longer
        elif _first_free(busy, bits, 1) < most:
            of[n] = _fit(busy, bits, 1)
        else:
            local[n] = _fit(slots[home[n][1]], bits, 1)
    return Places(of, local, starts, writes, leaves, len(busy), max(map(len, slots)))


def _last_loads(home: Mapping[int, tuple[int, int]], loaded: Sequence[Loads]) -> tuple[dict[int, int], dict[int, int]]:
    """The last phase in which its own warp loads a value, and that in which another one does."""
    own, others = dict[int, int](), dict[int, int]()
    for w, loads in enumerate(loaded):
        for n, values in loads.items():
            for x in values:
                if x in home:
                    last = own if home[x][1] == w else others
                    last[x] = max(last.get(x, 0), home[n][0])
    return own, others


def _bits(first: int, last: int) -> int:
    return (1 << (last + 1)) - (1 << first)


def _first_free(busy: Sequence[int], when: int, size: int) -> int:
    """Where the first stretch of places begins that is free all the time."""
    free, k = 0, 0
    while free < size and k < len(busy):
        free = 0 if busy[k] & when else free + 1
        k += 1
    return k - free


def _fit(busy: list[int], when: int, size: int) -> int:
    """Takes it."""
    first = _first_free(busy, when, size)
    busy += [0] * (first + size - len(busy))
    for j in range(first, first + size):
        busy[j] |= when
    return first
