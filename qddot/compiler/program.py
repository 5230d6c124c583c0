"""A program: what a graph's nodes are computed for, in which order, and where loops run.

A body is a list of steps. A step is a node to compute, a `Store` of a node's value into a buffer, or a `Loop` over a body
of its own. Straight-line code is one long body; rolled code is a few loops whose nodes load from tables and buffers. The
interpreter defines what a program computes; renderers are compared with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from qddot.compiler.expr import Graph
from qddot.compiler.ops import LEAVES, OPS


class Store(NamedTuple):
    """buffer[place] = value; place and value are nodes."""

    buffer: int
    place: int
    value: int


class Loop(NamedTuple):
    """Runs the body for counter = start, start + step, … before stop; `counter` is its node."""

    counter: int
    start: int
    stop: int
    step: int
    body: list[Step]


Step = int | Store | Loop


@dataclass
class Program:
    """Inputs to outputs: `outputs` are nodes, computed by the body or leaves of the graph."""

    graph: Graph
    n_inputs: int
    outputs: list[int]
    body: list[Step] = field(default_factory=list)
    buffers: list[int] = field(default_factory=list)  # their sizes
    tables: list[list[float]] = field(default_factory=list)

    def nodes(self) -> list[int]:
        """The nodes that straight-line code computes, in order."""
        return [step for step in self.body if isinstance(step, int)]

    def sections(self) -> Iterator[tuple[str, int, list[int]]]:
        """Straight-line code in the stretches that each compute one symbol of one link: (symbol, link, nodes).

        What comes after the last mark is the "rest" of link 0.
        """
        marks = iter([*self.graph.marks, (len(self.graph), "rest", 0)])
        end, symbol, link = next(marks)
        found: list[int] = []
        for node in self.nodes():
            if node >= end:
                if found:
                    yield symbol, link, found
                while node >= end:
                    end, symbol, link = next(marks)
                found = []
            found.append(node)
        if found:
            yield symbol, link, found

    def count(self) -> dict[str, int]:
        """Operations by kind: mul, add, div, sqrt, sincos, arctan2, other. A fused one counts as both of its parts."""
        total: Counter[str] = Counter(dict.fromkeys(("mul", "add", "div", "sqrt", "sincos"), 0))
        for node in self.nodes():
            total.update(OPS[self.graph.ops[node]].counts)
        return dict(total)


def straight_line(graph: Graph, outputs: list[int], n_inputs: int) -> Program:
    """The program that computes the outputs in the order of the trace and nothing else."""
    needed = bytearray(len(graph))
    stack = list(outputs)
    while stack:
        node = stack.pop()
        if not needed[node]:
            needed[node] = 1
            if graph.ops[node] not in LEAVES:
                stack.extend(graph.args[node])
    body: list[Step] = [k for k in range(len(graph)) if needed[k] and graph.ops[k] not in LEAVES]
    return Program(graph, n_inputs, outputs, body)
