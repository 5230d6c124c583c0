"""A program: what a graph's nodes are computed for, and in which order. Straight-line code; `loop_program` has loops.

The interpreter defines what a program computes; renderers are compared with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import compress

from qddot.compiler.ir.expr import Graph
from qddot.compiler.ir.ops import LEAVES, OPS

REUSE_MAX_OPS = 100  # reuse distance up to which a value is expected in a register


@dataclass
class Program:
    """Inputs to outputs: `outputs` are nodes, computed by the body or leaves of the graph."""

    graph: Graph
    n_inputs: int
    outputs: list[int]
    body: list[int]  # the nodes that are computed, in order

    def sections(self) -> Iterator[tuple[str, int, list[int]]]:
        """Sections, each of which computes one symbol of one link: (symbol, link, nodes).

        The code after the last mark is the "rest" of link 0.
        """
        marks = iter([*self.graph.marks, (len(self.graph), "rest", 0)])
        end, symbol, link = next(marks)
        found: list[int] = []
        for node in self.body:
            if node >= end:
                if found:
                    yield symbol, link, found
                while node >= end:
                    end, symbol, link = next(marks)
                found = []
            found.append(node)
        if found:
            yield symbol, link, found

    @cached_property
    def cost(self) -> int:
        """Instructions, and 2 × operands whose reuse distance exceeds `REUSE_MAX_OPS`, which are expected to be reloaded.

        An estimate of the time per state, for choosing between programs (docs/decisions/0027).
        """
        last, reloads, args = {n: k for k, n in enumerate(self.body)}, 0, self.graph.args
        for k, node in enumerate(self.body):
            for x in args[node]:
                if x in last:
                    if k - last[x] > REUSE_MAX_OPS:
                        reloads += 1
                    last[x] = k
        return len(self.body) + 2 * reloads

    def count(self) -> dict[str, int]:
        """Operations by kind: mul, add, div, sqrt, sincos, arctan2, other. A fused one counts as both of its parts."""
        total = dict.fromkeys(("mul", "add", "div", "sqrt", "sincos"), 0)
        for op, n in Counter(map(self.graph.ops.__getitem__, self.body)).items():
            for kind in OPS[op].counts:
                total[kind] = total.get(kind, 0) + n
        return total


def straight_line(graph: Graph, outputs: list[int], n_inputs: int) -> Program:
    """The program that computes the outputs in the order of the trace and nothing else."""
    needed = bytearray(len(graph))
    ops, args, stack = graph.ops, graph.args, list(outputs)
    while stack:
        node = stack.pop()
        if not needed[node]:
            needed[node] = 1
            if ops[node] not in LEAVES:
                stack += args[node]
    body = [k for k in compress(range(len(graph)), needed) if ops[k] not in LEAVES]
    return Program(graph, n_inputs, outputs, body)
