"""A long program in passes, each a program of its own: what the later ones need of the earlier ones is kept in memory.

Where passes begin is up to the algorithm (`scalars.cut`). What takes few operations from the inputs and from what is kept
is computed again rather than kept: it costs less than the way to memory and back.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

from qddot.compiler.ir.ops import LEAVES
from qddot.compiler.ir.program import Program, straight_line

AGAIN_MAX_OPS = 150  # of a number that is computed again; by times on an H200 (docs/decisions/0051)


class Pass(NamedTuple):
    """A program whose input `n_inputs + k` is the k-th number that is kept; it keeps numbers from `first` on."""

    program: Program
    first: int


class Passes(NamedTuple):
    """All passes; the last one computes the results."""

    kept: int  # numbers of a state
    parts: tuple[Pass, ...]


def passes(program: Program, most_again: int = AGAIN_MAX_OPS) -> Passes | None:
    """The program in as many passes as its graph has cuts; None where there are none within it."""
    nodes = sorted(program.body)
    cuts = sorted({c for c in program.graph.cuts if nodes and nodes[0] < c <= nodes[-1]})
    if not cuts:
        return None
    order = {n: k for k, n in enumerate(program.body)}
    places: dict[int, int] = {}
    made = list[Pass]()
    for c in cuts:
        first = len(places)
        new = sorted(_needed_later(program, c, places, most_again), key=order.__getitem__)
        made.append(Pass(_with_kept(program, new, places), first))
        places |= {n: first + k for k, n in enumerate(new)}
    made.append(Pass(_with_kept(program, program.outputs, places), len(places)))
    used = tuple(x for x in made if x.program.outputs)
    return Passes(len(places), used) if len(used) > 1 else None


def _needed_later(program: Program, begin: int, kept: dict[int, int], most_again: int) -> set[int]:
    """What nodes from `begin` on, and results, take of those before, unless it is kept already or is computed again."""
    computed, args = set(program.body), program.graph.args
    taken = {x for n in computed if n >= begin for x in args[n]} | set(program.outputs)
    return {x for x in taken & computed if x < begin and x not in kept and _is_long(program, x, kept, most_again)}


def _is_long(program: Program, node: int, kept: dict[int, int], most: int) -> bool:
    """Whether more than so many operations compute a number from the inputs and from what is kept."""
    ops, args = program.graph.ops, program.graph.args
    found, waiting = {node}, [node]
    while waiting and len(found) <= most:
        for x in args[waiting.pop()]:
            if x not in found and x not in kept and ops[x] not in LEAVES:
                found.add(x)
                waiting.append(x)
    return len(found) > most


def _with_kept(program: Program, outputs: list[int], kept: dict[int, int]) -> Program:
    """The program of these outputs, with what is kept as inputs."""
    graph = copy.copy(program.graph)
    graph.ops, graph.args = list(graph.ops), list(graph.args)
    for n, k in kept.items():
        graph.ops[n], graph.args[n] = "input", (program.n_inputs + k,)
    made = straight_line(graph, outputs, program.n_inputs + len(kept))
    order = {n: k for k, n in enumerate(program.body)}
    made.body.sort(key=order.__getitem__)
    return made
