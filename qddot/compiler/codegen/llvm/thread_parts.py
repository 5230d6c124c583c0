"""A program in parts, each of which a thread of its own computes: stretches of the result with what they need."""

from __future__ import annotations

from itertools import pairwise

from qddot.compiler.ir.ops import LEAVES
from qddot.compiler.ir.program import Program, straight_line


def parts(program: Program, count: int, quantum: int) -> list[tuple[int, Program]]:
    """The results in so many stretches of like cost, each with the operations that it needs; the first result of each.

    Stretches begin at multiples of `quantum`, so that no tile belongs to two threads.
    """
    if count == 1:
        return [(0, program)]
    own = Layers(program, quantum).stretches(count)
    order = {n: k for k, n in enumerate(program.body)}
    made = []
    for begin, end in own:
        part = straight_line(program.graph, program.outputs[begin:end], program.n_inputs)
        made.append((begin, Program(part.graph, part.n_inputs, part.outputs, sorted(part.body, key=order.__getitem__))))
    return made


class Layers:
    """How the results of a program may be shared by several threads."""

    def __init__(self, program: Program, quantum: int) -> None:
        """Stretches begin at multiples of `quantum`."""
        n = len(program.outputs)
        self._starts = [*range(0, n, quantum), n]
        self._needs = [_needed(program, program.outputs[a:b]) for a, b in pairwise(self._starts)]
        self._size = len(program.body)

    def stretches(self, count: int) -> list[tuple[int, int]]:
        """Where to cut: by the number of operations that each tile of results adds to those before it in its stretch."""
        return [(self._starts[a], self._starts[b]) for a, b in pairwise(self._cuts(count))]

    def sizes(self, count: int) -> list[int]:
        """The operations of each of so many threads, or of fewer."""
        return [len(set().union(*self._needs[a:b])) for a, b in pairwise(self._cuts(count))]

    def _cuts(self, count: int) -> list[int]:
        """The first tile of each stretch, and the end."""
        low, high = max(map(len, self._needs)), self._size
        while low < high:  # the least bound on a stretch's operations for which `count` stretches suffice
            middle = (low + high) // 2
            low, high = (low, middle) if len(_filled(self._needs, middle)) <= count else (middle + 1, high)
        return [*_filled(self._needs, low), len(self._needs)]


def _filled(needs: list[set[int]], most: int) -> list[int]:
    """The first tile of each stretch where none has more than so many operations."""
    first, own = [0], set[int](needs[0])
    for k in range(1, len(needs)):
        if len(own | needs[k]) > most:
            first.append(k)
            own = set(needs[k])
        else:
            own |= needs[k]
    return first


def _needed(program: Program, outputs: list[int]) -> set[int]:
    graph, found, stack = program.graph, set[int](), list(outputs)
    while stack:
        n = stack.pop()
        if n not in found and graph.ops[n] not in LEAVES:
            found.add(n)
            stack += graph.args[n]
    return found
