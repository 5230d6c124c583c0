"""Multiply-adds are fused in the IR and not by a backend, so that all backends round alike.

A product whose only uses are sums is fused into them. Signs go into the fused operation: -(a - b) becomes b - a where the
difference is computed, which shortens the live range.

Pivots that can vanish are compared with their floors beside the division by them, and not before it (`_guarded`).
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import chain

from qddot.compiler.ir.expr import Graph
from qddot.compiler.ir.ops import LEAVES
from qddot.compiler.ir.program import Program, straight_line

_SUMS = frozenset({"add", "sub"})
_SIGNALS = _SUMS | {"mul", "div"}  # these set the flag for invalid operations where an operand is a signalling NaN


def fused(program: Program) -> Program:
    """The same straight-line program with products fused into sums."""
    old, ops, all_args = program.graph, program.graph.ops, program.graph.args
    chosen, turned = _choices(program), _turned(program)
    guarded = _guarded(program)
    inside = {*chosen.values(), *(all_args[node][1] for node in guarded)}
    new, place = Graph(), dict[int, int]()

    def moved(node: int) -> int:
        if node not in place and ops[node] in LEAVES:
            place[node] = new.leaf(ops[node], *all_args[node])
        return place[node]

    marks, cuts = iter(old.marks), iter(old.cuts)
    mark, cut = next(marks, None), next(cuts, None)
    for node in program.body:
        while cut is not None and node >= cut:
            new.cuts.append(len(new))
            cut = next(cuts, None)
        while mark is not None and node >= mark[0]:
            new.marks.append((len(new), *mark[1:]))
            mark = next(marks, None)
        op, args = ops[node], all_args[node]
        if node in inside:
            continue
        if node in chosen:
            product = chosen[node]
            a, b = map(moved, all_args[product])
            rest = moved(args[1] if args[0] == product else args[0])
            kind = "fma" if op == "add" else ("fms" if args[0] == product else "fnma")
            here = new.leaf(kind, a, b, rest)
        elif op == "neg" and args[0] in turned:
            here = place[args[0]]
        elif node in guarded:
            condition, divisor, nan = map(moved, all_args[args[1]])
            here = new.leaf("select", condition, new.leaf("div", moved(args[0]), divisor), nan)
        else:
            here = new.leaf(op, *map(moved, args))
        place[node] = _negated(new, here) if node in turned else here
    if mark is not None:
        new.marks.append((len(new), *mark[1:]))
    outputs = [new.leaf("add", moved(x), new.const(0.0)) if x in guarded else moved(x) for x in program.outputs]
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
    ops, args, nodes = program.graph.ops, program.graph.args, program.body
    signed = {args[node][0] for node in nodes if ops[node] == "neg"}
    uses = Counter(chain(chain.from_iterable(map(args.__getitem__, nodes)), program.outputs))
    return {x for x in signed if uses[x] == 1 and ops[x] not in LEAVES}


def _choices(program: Program) -> dict[int, int]:
    """For each sum the product that it takes in. A product goes only if every one of its uses takes it in."""
    ops, args, outputs = program.graph.ops, program.graph.args, set(program.outputs)
    users: dict[int, list[int]] = {}
    for node in program.body:
        for x in args[node]:
            if ops[x] == "mul":
                users.setdefault(x, []).append(node)
    chosen: dict[int, int] = {}
    for product, sums in sorted(users.items(), key=lambda item: len(item[1])):
        if product in outputs or len(set(sums)) < len(sums):
            continue
        if all(ops[s] in _SUMS and s not in chosen for s in sums):
            chosen.update(dict.fromkeys(sums, product))
    return chosen


def _guarded(program: Program) -> set[int]:
    """Divisions by numbers that are NaN unless a condition holds: x / (c ? y : NaN) becomes c ? x / y : NaN, so that the
    comparison is made beside the division and not before it.

    That NaN is signalling (docs/decisions/0004). Its uses have to be arithmetic, which tells of it and makes it a quiet
    one; as an output it has zero added.
    """
    ops, args = program.graph.ops, program.graph.args

    def is_nan_otherwise(x: int) -> bool:
        other = args[x][2] if ops[x] == "select" else x
        return ops[other] == "const" and math.isnan(args[other][0])

    found = {node for node in program.body if ops[node] == "div" and is_nan_otherwise(args[node][1])}
    if not found:
        return found
    users: dict[int, list[int]] = {x: [] for node in found for x in (node, args[node][1])}
    for node in program.body:
        for x in args[node]:
            if x in users:
                users[x].append(node)

    def may_change(node: int) -> bool:
        divisor = args[node][1]
        is_its_own = users[divisor] == [node] and divisor not in program.outputs
        return is_its_own and all(ops[user] in _SIGNALS for user in users[node])

    return set(filter(may_change, found))
