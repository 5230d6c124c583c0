"""The order of straight-line code: limb by limb where that keeps values at hand.

Within a section, one symbol of one link, operations stay in the order of the trace, in which neighbours do not wait for
each other. Sections move as a whole: each comes when the first output asks for it, after what it needs itself. So the
velocities of one leg are still there when its forces are computed, and those of the other legs are not yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from qddot.compiler.program import Program

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
