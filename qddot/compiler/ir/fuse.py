"""Multiply-adds are fused in the IR and not by a backend, so that all backends round alike.

A product whose only uses are sums is fused into them. Signs go into the fused operation: -(a - b) becomes b - a where the
difference is computed, which shortens the live range.
"""

from __future__ import annotations

from collections import Counter

from qddot.compiler.ir.expr import Graph
from qddot.compiler.ir.ops import LEAVES
from qddot.compiler.ir.program import Program, straight_line


def fused(program: Program) -> Program:
    """The same straight-line program with products fused into sums."""
    old, nodes = program.graph, program.body
    chosen = _choices(program)
    inside = set(chosen.values())
    turned = _turned(program)
    new, place = Graph(), {}

    def moved(node: int) -> int:
        if old.ops[node] in LEAVES and node not in place:
            place[node] = new.leaf(old.ops[node], *old.args[node])
        return place[node]

    def put(op: str, *args: int) -> int:
        return new.leaf(op, *args)

    marks = iter(old.marks)
    mark = next(marks, None)
    for node in nodes:
        while mark is not None and node >= mark[0]:
            new.marks.append((len(new), *mark[1:]))
            mark = next(marks, None)
        op, args = old.ops[node], old.args[node]
        if node in inside:
            continue
        product = chosen.get(node)
        if product is not None:
            a, b = (moved(x) for x in old.args[product])
            rest = moved(args[1] if args[0] == product else args[0])
            kind = "fma" if op == "add" else ("fms" if args[0] == product else "fnma")
            place[node] = put(kind, a, b, rest)
        elif op == "neg" and args[0] in turned:
            place[node] = place[args[0]]
        else:
            place[node] = put(op, *(moved(x) for x in args))
        if node in turned:
            place[node] = _negated(new, place[node])
    if mark is not None:
        new.marks.append((len(new), *mark[1:]))
    outputs = [moved(x) for x in program.outputs]
    return straight_line(new, outputs, program.n_inputs)


def _negated(graph: Graph, node: int) -> int:
    """The node with the other sign, where that is another operation of the same cost; a sign in front elsewhere."""
    op, args = graph.ops[node], graph.args[node]
    if op == "sub":
        return graph.leaf("sub", args[1], args[0])
    opposite = {"fma": "fnms", "fnms": "fma", "fms": "fnma", "fnma": "fms"}.get(op)
    return graph.leaf("neg", node) if opposite is None else graph.leaf(opposite, *args)


def _turned(program: Program) -> set[int]:
    """What is used by a sign alone."""
    graph, nodes = program.graph, program.body
    uses = Counter(x for node in nodes for x in graph.args[node]) + Counter(program.outputs)
    signed = {graph.args[node][0] for node in nodes if graph.ops[node] == "neg"}
    return {x for x in signed if uses[x] == 1 and graph.ops[x] not in LEAVES}


def _choices(program: Program) -> dict[int, int]:
    """For each sum the product that it takes in. A product goes only if every one of its uses takes it in."""
    graph, outputs = program.graph, set(program.outputs)
    users: dict[int, list[int]] = {}
    for node in program.body:
        for x in graph.args[node]:
            if graph.ops[x] == "mul":
                users.setdefault(x, []).append(node)
    chosen: dict[int, int] = {}
    for product, sums in sorted(users.items(), key=lambda item: len(item[1])):
        if product in outputs or len(set(sums)) < len(sums):
            continue
        if all(graph.ops[s] in ("add", "sub") and s not in chosen for s in sums):
            chosen.update(dict.fromkeys(sums, product))
    return chosen
