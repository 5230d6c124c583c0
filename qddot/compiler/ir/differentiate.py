"""Derivatives of a trace, reverse and forward: nodes of the same graph, so that they can be differentiated in turn.

`vjp` is a row of weights of the outputs times the Jacobian: one sweep against the trace, at some two to three times its
operations, whatever the number of inputs. `jvp` is the Jacobian times a direction of the inputs, one sweep along the trace.
What is differentiated by are nodes, inputs or computed ones; they stand for themselves, and what they were computed from
does not count.

Of a `select` the derivative is that of the branch that was chosen, and what the other one computes for itself leaves no
trace, be it infinite or NaN. In the reverse sweep a branch is differentiated as if it were chosen, and what leaves it on
the way to the inputs is replaced by zero where it was not. A branch that is the number NaN marks states without a result:
it is passed as if it were not there, and NaN goes on by the values that slopes are made of.

Where there is no derivative there is no number: the slope of sqrt at zero is infinite, that of arctan2 at the origin NaN,
and so is zero times either, as IEEE arithmetic has it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from qddot.compiler.ir.expr import Expr, Graph
from qddot.compiler.ir.ops import COMPARISONS, LEAVES, OPS

Condition = tuple[int, int]  # a comparison, and which argument of a select it chooses, 1 or 2
_ALWAYS: frozenset[Condition] = frozenset()


def vjp(graph: Graph, outputs: Sequence[int], inputs: Sequence[int], cotangents: Sequence[int]) -> list[int]:
    """The nodes of the sum of cotangent · ∂output/∂input over all outputs, one for each of the inputs."""
    order, own = _between(graph, outputs, inputs), set(inputs)
    needed_if = _conditions(graph, order, {*outputs, *inputs})
    weights: dict[int, int] = {}
    for node, weight in zip(outputs, cotangents, strict=True):
        if node in needed_if:
            _add(graph, weights, node, weight)
    for node in _marked(graph, reversed(order), "adjoint"):
        if node in own or node not in weights or _is_number(graph, weights[node], 0.0):
            continue
        for x, chosen, share in _shares(graph, node, weights.pop(node), needed_if):
            for condition, branch in sorted((needed_if[node] | chosen) - needed_if[x]):
                share = _masked(graph, condition, branch, share)
            _add(graph, weights, x, share)
    return [weights[x] if x in weights else graph.const(0.0) for x in inputs]


def jvp(graph: Graph, outputs: Sequence[int], inputs: Sequence[int], tangents: Sequence[int]) -> list[int]:
    """The nodes of the sum of ∂output/∂input · tangent over all inputs, one for each of the outputs."""
    zero = graph.const(0.0)
    rates = {x: dx for x, dx in zip(inputs, tangents, strict=True) if dx != zero}
    own = set(inputs)
    for node in _marked(graph, _between(graph, outputs, list(rates)), "tangent"):
        if node not in own:
            rate = _rate(graph, node, rates)
            if rate != zero:
                rates[node] = rate
    return [rates.get(node, zero) for node in outputs]


def forward(graph: Graph, outputs: Sequence[int], inputs: Sequence[int]) -> list[list[int]]:
    """The nodes of ∂output/∂input: a row for each output, a column for each of the given inputs of the program."""
    one = graph.const(1.0)
    columns = [jvp(graph, outputs, [graph.leaf("input", k)], [one]) for k in inputs]
    return [list(row) for row in zip(*columns, strict=True)]


def reverse(graph: Graph, output: int, n_inputs: int) -> list[int]:
    """The nodes of the gradient of one output with respect to all inputs of the program."""
    return vjp(graph, [output], [graph.leaf("input", k) for k in range(n_inputs)], [graph.const(1.0)])


# ---- what is differentiated ------------------------------------------------------------------------------------------


def _between(graph: Graph, outputs: Sequence[int], inputs: Sequence[int]) -> list[int]:
    """The nodes that depend on inputs and that outputs depend on, these included, arguments before users."""
    ops, args, own = graph.ops, graph.args, set(inputs)
    needed: set[int] = set()
    waiting = list(outputs)
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            if node not in own and ops[node] not in LEAVES:
                waiting += args[node]
    moving: set[int] = set()
    for node in sorted(needed):
        op = ops[node]
        if node in own or (op not in LEAVES and op not in COMPARISONS and not moving.isdisjoint(_arguments(graph, node))):
            moving.add(node)
    return sorted(moving)


def _arguments(graph: Graph, node: int) -> tuple[int, ...]:
    """What a node has slopes by."""
    args = graph.args[node]
    return args[1:] if graph.ops[node] == "select" else args


def _conditions(graph: Graph, order: Sequence[int], ends: Iterable[int]) -> dict[int, frozenset[Condition]]:
    """The conditions under which all that comes of a node is chosen, for each node; those of `ends` always are."""
    found: dict[int, frozenset[Condition]] = {}
    always = set(ends)
    for node in reversed(order):
        own = found[node] = _ALWAYS if node in always else found.get(node, _ALWAYS)
        for k, x in enumerate(_arguments(graph, node), 1):
            here = own | _chosen_by(graph, node, k)
            found[x] = found[x] & here if x in found else here
    return {node: found[node] for node in order}


def _chosen_by(graph: Graph, node: int, k: int) -> frozenset[Condition]:
    """The condition of the k-th argument of a node: of a select that it is chosen."""
    if graph.ops[node] != "select" or _is_number(graph, graph.args[node][3 - k], math.nan):
        return _ALWAYS
    return frozenset({(graph.args[node][0], k)})


def _marked(graph: Graph, nodes: Iterable[int], kind: str) -> Iterator[int]:
    """The nodes, with marks in the graph: what is made for those of a section is a section as well, named after it."""
    graph.marks.append((len(graph), "rest", 0))
    sections = list(graph.marks)
    ends, k = [end for end, _, _ in sections], -1

    def end_of_section() -> None:
        if k >= 0 and len(graph) > graph.marks[-1][0]:
            _, symbol, link = sections[k]
            graph.marks.append((len(graph), symbol if symbol == "rest" else f"{symbol} {kind}", link))

    for node in nodes:
        if not (k >= 0 and (ends[k - 1] if k else 0) <= node < ends[k]):
            end_of_section()
            k = bisect_right(ends, node)
        yield node
    end_of_section()


# ---- slopes ----------------------------------------------------------------------------------------------------------


def _shares(
    graph: Graph, node: int, weight: int, wanted: dict[int, frozenset[Condition]]
) -> Iterator[tuple[int, frozenset[Condition], int]]:
    """What the arguments have of a node's weight: (argument, the condition that it is chosen by, share)."""
    op, args = graph.ops[node], graph.args[node]
    for k, x in enumerate(_arguments(graph, node), 1):
        if x in wanted:
            share = weight if op == "select" else _times_slope(graph, node, op, args, k - 1, weight)
            yield x, _chosen_by(graph, node, k), share


def _times_slope(graph: Graph, node: int, op: str, args: tuple[int, ...], k: int, factor: int) -> int:
    """A number times the derivative of a node with respect to its k-th argument."""
    if op == "add":
        return factor
    if op in ("sub", "neg"):
        return graph.unary("neg", factor) if op == "neg" or k else factor
    if op == "mul":
        return graph.binary("mul", factor, args[1 - k])
    if op == "div":  # by the reciprocal, which all quotients of one divisor share
        share = graph.binary("mul", factor, graph.binary("div", graph.const(1.0), args[1]))
        return graph.unary("neg", graph.binary("mul", share, node)) if k else share
    rule = OPS[op].slopes
    assert rule is not None, op
    slope = rule(*(Expr(graph, x) for x in (*args, node)))[k]
    return graph.binary("mul", factor, graph.node_of(slope))


def _rate(graph: Graph, node: int, rates: dict[int, int]) -> int:
    """How a node changes, where its arguments change at these rates."""
    op, args, zero = graph.ops[node], graph.args[node], graph.const(0.0)
    if op == "select":
        kept = [k for k in (1, 2) if not _is_number(graph, args[k], math.nan)]
        if len(kept) == 1:
            return rates.get(args[kept[0]], zero)
        return graph.make("select", args[0], rates.get(args[1], zero), rates.get(args[2], zero))
    if op == "div" and args[1] in rates:
        change = graph.binary("sub", rates.get(args[0], zero), graph.binary("mul", node, rates[args[1]]))
        return graph.binary("mul", change, graph.binary("div", graph.const(1.0), args[1]))
    total = zero
    for k, x in enumerate(args):
        if x in rates:
            total = graph.binary("add", total, _times_slope(graph, node, op, args, k, rates[x]))
    return total


def _masked(graph: Graph, condition: int, branch: int, weight: int) -> int:
    """The weight where a comparison chooses this branch, zero elsewhere."""
    zero = graph.const(0.0)
    return graph.make("select", condition, *((weight, zero) if branch == 1 else (zero, weight)))


def _add(graph: Graph, weights: dict[int, int], node: int, weight: int) -> None:
    weights[node] = graph.binary("add", weights[node], weight) if node in weights else weight


def _is_number(graph: Graph, node: int, number: float) -> bool:
    """Whether a node is this number, which may be NaN."""
    if graph.ops[node] != "const":
        return False
    value: Any = graph.args[node][0]
    return bool(value == number) or (math.isnan(number) and math.isnan(value))
