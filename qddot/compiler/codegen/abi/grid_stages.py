"""Long programs in two kernels, launched one after another: the results that others follow from, then those.

A product of cotangents with the Jacobian of forward dynamics is such a program: its gradient with respect to tau is M⁻¹
times the cotangent, and all others follow from it. One thread would keep values of both halves, and spill; here the second
kernel reads what the first one wrote into the caller's array, and computes again what else they have in common.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

from qddot.compiler.ir.program import Program, straight_line

_REPEATED_MAX_RATIO = 1.2  # of the operations of both stages to those of the whole program
_STAGE_MAX_RATIO = 0.7  # of those of the longer stage: with more there is little to gain


class Stages(NamedTuple):
    """The program of so many results from number `start` on, and the whole one, which has them as its last inputs."""

    start: int
    numbers: int
    first: Program
    second: Program


def stages(program: Program) -> Stages | None:
    """The longest stretch of results that others follow from, if both stages have little in common beside it."""
    start, count = _stretch(program)
    if not count:
        return None
    own, used = program.outputs[start : start + count], _used(program)
    graph = copy.copy(program.graph)
    graph.ops, graph.args = list(graph.ops), list(graph.args)
    for k, n in enumerate(own):
        if n not in used:
            (negative,) = graph.args[n]
            graph.ops[negative], graph.args[negative] = "neg", (n,)
        graph.ops[n], graph.args[n] = "input", (program.n_inputs + k,)
    order = {n: k for k, n in enumerate(program.body)}
    first = straight_line(program.graph, own, program.n_inputs)
    second = straight_line(graph, program.outputs, program.n_inputs + count)
    for part in (first, second):
        part.body.sort(key=order.__getitem__)
    size, own_sizes = len(program.body), (len(first.body), len(second.body))
    if sum(own_sizes) > _REPEATED_MAX_RATIO * size or max(own_sizes) > _STAGE_MAX_RATIO * size:
        return None
    return Stages(start, count, first, second)


def _stretch(program: Program) -> tuple[int, int]:
    """The longest stretch of results that are used for something else, or their negatives are; no two are the same."""
    graph, used = program.graph, _used(program)
    best, start, seen = (0, 0), 0, set[int]()
    for k, n in enumerate([*program.outputs, -1]):
        source = graph.args[n][0] if n >= 0 and n not in used and graph.ops[n] == "neg" else n
        if source not in used or source in seen:
            best = max(best, (k - start, -start))
            start, seen = k + (source not in used), set()
        seen.add(source)
    return -best[1], best[0]


def _used(program: Program) -> set[int]:
    """What is computed for something else than a result or the negative that is one."""
    graph, results = program.graph, set(program.outputs)
    users = [n for n in program.body if not (graph.ops[n] == "neg" and n in results)]
    return {x for n in users for x in graph.args[n]} & set(program.body)
