"""The order of straight-line code: limb by limb where that keeps values at hand.

Within a section, one symbol of one link, operations stay in the order of the trace, in which neighbours do not wait for
each other. Sections move as a whole: each comes when the first output asks for it, after what it needs itself. So the
velocities of one leg are still there when its forces are computed, and those of the other legs are not yet.

Sections that take mostly the same are computed side by side, two at a time, such as M⁻¹ times one column and the next:
what both take is loaded once for two operations. A processor that computes with two registers full of numbers in a cycle
loads little more than one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from typing import Any

from qddot.compiler.ir.program import Program

LONG = 30  # operations of a section that is worth a place beside another one
WORTH = 0.99  # of the cost of the trace: neighbours that do not wait for each other are worth more than the last percent


def best_order(program: Program, shape: tuple[int, ...] = ()) -> Program:
    """The program in the order of least `cost`: as traced, or on demand of the outputs.

    They are asked for as they stand, as they are computed, or, of square matrices, from the last row and column inward: all
    of one limb, with what it shares with the body, before the next.
    """
    outputs = list(dict.fromkeys(program.outputs))
    orders = [outputs, sorted(outputs)]
    if len(shape) > 1 and shape[-1] == shape[-2]:
        orders.append(list(dict.fromkeys(_inward(program.outputs, shape[-1]))))
    best = min((_on_demand(program, order) for order in orders), key=Program.cost)
    return best if best.cost() < WORTH * program.cost() else program


def _inward(outputs: list[int], n: int) -> list[int]:
    """Entries of matrices of n rows, the outermost last row or column first."""

    def place(k: int) -> tuple[int, int]:
        row, column = k % (n * n) // n, k % n
        return -max(row, column), -min(row, column)

    return [outputs[k] for k in sorted(range(len(outputs)), key=place)]


def _on_demand(program: Program, outputs: Iterable[int]) -> Program:
    """Each section when the first of the outputs asks for it."""
    args, sections = program.graph.args, [nodes for _, _, nodes in program.sections()]
    home = {n: k for k, nodes in enumerate(sections) for n in nodes}
    needs = [sorted({home[x] for n in s for x in args[n] if x in home} - {k}) for k, s in enumerate(sections)]
    seen: set[int] = set()
    body: list[int] = []
    for output in outputs:
        waiting = [home[output]] if output in home else []
        while waiting:
            k = waiting[-1]
            if k in seen:
                waiting.pop()
                continue
            missing = [j for j in needs[k] if j not in seen]
            if missing:
                waiting.append(missing[0])
            else:
                seen.add(waiting.pop())
                body += sections[k]
    return replace(program, body=body)


def side_by_side(program: Program) -> Program:
    """The same program with long sections that follow each other and take mostly the same in pairs."""
    args, ends = program.graph.args, [end for end, _, _ in program.graph.marks]
    body: list[int] = []
    held: list[int] = []  # a section that waits for the next one
    for _, nodes in groupby(program.body, lambda n: bisect_right(ends, n)):
        section = list(nodes)
        if min(len(held), len(section)) >= LONG and _alike(program, held, section) and _apart(args, held, section):
            body += _merged(program, held, section)
            held = []
        else:
            body += held
            held = section
    return replace(program, body=[*body, *held])


def _apart(args: list[tuple[Any, ...]], first: list[int], second: list[int]) -> bool:
    """Whether the second section takes nothing of the first."""
    return set(first).isdisjoint(x for n in second for x in args[n])


def _uses(program: Program, section: list[int]) -> dict[int, list[int]]:
    """By what a section takes from outside, where in it that is used."""
    graph, own = program.graph, set(section)
    uses: dict[int, list[int]] = {}
    for k, n in enumerate(section):
        for x in graph.args[n]:
            if x not in own and graph.ops[x] != "const":
                uses.setdefault(x, []).append(k)
    return uses


def _alike(program: Program, first: list[int], second: list[int]) -> bool:
    a, b = (_uses(program, section).keys() for section in (first, second))
    return 2 * len(a & b) > max(len(a), len(b))


def _merged(program: Program, first: list[int], second: list[int]) -> list[int]:
    """Both sections, each in its own order; what takes the same stands together, if that is not too far ahead."""
    uses, at = _uses(program, first), 0
    beside: dict[int, list[int]] = {}  # by the place of an operation in the first section, those of the second
    for n in second:
        ahead = [k for x in program.graph.args[n] for k in uses.get(x, ()) if at <= k < at + LONG]
        at = min(ahead, default=at)
        beside.setdefault(at, []).append(n)
    return [m for k, n in enumerate(first) for m in (n, *beside.get(k, ()))]
