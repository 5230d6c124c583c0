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
    own = _stretches(program, count, quantum)
    order = {n: k for k, n in enumerate(program.body)}
    made = []
    for begin, end in own:
        part = straight_line(program.graph, program.outputs[begin:end], program.n_inputs)
        made.append((begin, Program(part.graph, part.n_inputs, part.outputs, sorted(part.body, key=order.__getitem__))))
    return made


def _stretches(program: Program, count: int, quantum: int) -> list[tuple[int, int]]:
    """Where to cut: by the number of operations that each tile of results adds to those before it in its stretch."""
    n = len(program.outputs)
    starts = list(range(0, n, quantum))
    needs = [_needed(program, program.outputs[s : s + quantum]) for s in starts]
    low, high = max(map(len, needs)), len(program.body)
    while low < high:  # the least bound on a stretch's operations for which `count` stretches suffice
        middle = (low + high) // 2
        low, high = (low, middle) if len(_filled(needs, middle)) <= count else (middle + 1, high)
    edges = [*(starts[k] for k in _filled(needs, low)), n]
    return list(pairwise(edges))


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
