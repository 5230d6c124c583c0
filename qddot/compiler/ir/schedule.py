"""The schedule of straight-line code: branch by branch of a tree where that shortens live ranges.

Within a section, which computes one symbol of one link, operations stay in the order of the trace, where neighbours are
independent. Sections move as a whole: each is scheduled when the first output needs it, after the sections that it needs
itself. So the velocities of one leg are still in registers when its forces are computed, and no other leg's are yet.

Sections with mostly the same operands are interleaved in pairs, such as M⁻¹ times one column and the next: a shared
operand is loaded once for two operations. A processor with two FMA ports has about one 512-bit load per cycle.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any

from qddot.compiler.ir.program import Program

PAIRED_SECTION_MIN_OPS = 30  # of a section that is interleaved with another one; also how far its operations move
REORDER_MAX_COST_RATIO = 0.99  # to the trace's order: its independent neighbours are worth more than the last percent


def best_order(program: Program, shape: tuple[int, ...] = ()) -> Program:
    """The program in the order of least `cost`: as traced, or on demand of the outputs.

    Outputs are demanded in order, as traced, or, of square matrices, from the last row and column inward: all of one branch
    with what it shares with the trunk, before the next.
    """
    outputs = list(dict.fromkeys(program.outputs))
    orders = [outputs, sorted(outputs)]
    if len(shape) > 1 and shape[-1] == shape[-2]:
        orders.append(list(dict.fromkeys(_inward(program.outputs, shape[-1]))))
    best = min(_on_demand(program, orders), key=lambda p: p.cost)
    return best if best.cost < REORDER_MAX_COST_RATIO * program.cost else program


def _inward(outputs: list[int], n: int) -> list[int]:
    """Entries of matrices of n rows, the outermost last row or column first."""

    def place(k: int) -> tuple[int, int]:
        row, column = k % (n * n) // n, k % n
        return -max(row, column), -min(row, column)

    return [outputs[k] for k in sorted(range(len(outputs)), key=place)]


def _on_demand(program: Program, orders: Iterable[Iterable[int]]) -> Iterator[Program]:
    """For each order of the outputs the program with each section where the first of them needs it."""
    args, sections = program.graph.args, [nodes for _, _, nodes in program.sections()]
    home = {n: k for k, nodes in enumerate(sections) for n in nodes}
    needs = [sorted({home[x] for n in s for x in args[n] if x in home} - {k}) for k, s in enumerate(sections)]
    for outputs in orders:
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
        yield replace(program, body=body)


def side_by_side(program: Program) -> Program:
    """The same program with neighbouring long sections of mostly the same operands interleaved."""
    args, ends = program.graph.args, [end for end, _, _ in program.graph.marks]
    body: list[int] = []
    held: list[int] = []  # the previous section
    for _, nodes in groupby(program.body, lambda n: bisect_right(ends, n)):
        section = list(nodes)
        if (
            min(len(held), len(section)) >= PAIRED_SECTION_MIN_OPS
            and _alike(program, held, section)
            and _apart(args, held, section)
        ):
            body += _merged(program, held, section)
            held = []
        else:
            body += held
            held = section
    return replace(program, body=[*body, *held])


def _apart(args: list[tuple[Any, ...]], first: list[int], second: list[int]) -> bool:
    """Whether the second section does not depend on the first."""
    return set(first).isdisjoint(x for n in second for x in args[n])


def _uses(program: Program, section: list[int]) -> dict[int, list[int]]:
    """The operands from outside of a section, and where in it each is used."""
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
    """Both sections, each in its own order; operations with the same operand are neighbours, unless that is too far on."""
    uses, at = _uses(program, first), 0
    beside: dict[int, list[int]] = {}  # operations of the second section, by the index in the first that they follow
    for n in second:
        uses_ahead = [k for x in program.graph.args[n] for k in uses.get(x, ()) if at <= k < at + PAIRED_SECTION_MIN_OPS]
        at = min(uses_ahead, default=at)
        beside.setdefault(at, []).append(n)
    return [m for k, n in enumerate(first) for m in (n, *beside.get(k, ()))]
