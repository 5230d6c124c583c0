"""Derivatives of a traced program, forward and reverse, from the slopes in the table of operations.

Both add nodes to the graph that they differentiate; common subexpressions are shared. The forward sweep gives the
derivatives of all outputs with respect to one input at a time, the reverse sweep those of one output with respect to all.
"""

from __future__ import annotations

from typing import Any

from qddot.compiler.ir.expr import Expr, Graph
from qddot.compiler.ir.ops import LEAVES, OPS
from qddot.compiler.ir.program import straight_line


def forward(graph: Graph, outputs: list[int], inputs: list[int]) -> list[list[int]]:
    """The nodes of ∂output/∂input: a row for each output, a column for each of the given inputs."""
    order = straight_line(graph, outputs, 0).body
    columns = []
    for k in inputs:
        slopes: dict[int, Any] = {graph.leaf("input", k): 1.0}
        for node in order:
            moved = [x for x in graph.args[node] if x in slopes]
            if moved:
                total = sum_of(s * slopes[x] for x, s in _slopes(graph, node) if x in slopes)
                if not _is_zero(total):
                    slopes[node] = total
        columns.append([graph.node_of(slopes.get(node, 0.0)) for node in outputs])
    return [list(row) for row in zip(*columns, strict=True)]


def reverse(graph: Graph, output: int, n_inputs: int) -> list[int]:
    """The nodes of the gradient of one output with respect to all inputs."""
    order = straight_line(graph, [output], 0).body
    weights: dict[int, Any] = {output: 1.0}
    for node in reversed(order):
        weight = weights.get(node)
        if weight is None:
            continue
        for x, s in _slopes(graph, node):
            if graph.ops[x] != "const":
                term = s * weight
                weights[x] = weights[x] + term if x in weights else term
    return [graph.node_of(weights.get(graph.leaf("input", k), 0.0)) for k in range(n_inputs)]


def _slopes(graph: Graph, node: int) -> list[tuple[int, Any]]:
    """(argument, ∂node/∂argument) as scalars of the graph."""
    op, args = graph.ops[node], graph.args[node]
    rule = OPS[op].slopes
    if op in LEAVES or rule is None:
        return []
    values = [Expr(graph, x) for x in (*args, node)]
    return [(x, s) for x, s in zip(args, rule(*values), strict=True) if not _is_zero(s)]


def _is_zero(x: Any) -> bool:
    if isinstance(x, Expr):
        return x.graph.ops[x.node] == "const" and x.graph.args[x.node][0] == 0.0
    return bool(x == 0.0)


def sum_of(terms: Any) -> Any:
    total: Any = 0.0
    for term in terms:
        total = term if _is_zero(total) else total + term
    return total
