"""Inputs that the code takes as the rows that its caller has: which they are, and where they become columns of lanes.

Columns that are made before the code runs are stored and loaded again, and while they are made nothing is computed. For
parameters of which each state has its own, some ten a link, that is a fourth of the time of inverse dynamics.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from math import prod

from qddot.compiler.codegen.abi.gufunc import WIDE
from qddot.compiler.codegen.llvm.transpose import Shape
from qddot.compiler.ir.program import Program


@dataclass
class InputTile:
    """Four columns of an input that comes in rows of `row` numbers, from its number `start` on."""

    operand: int
    row: int
    start: int
    chunk: int  # the function that makes them: the first that uses one
    nodes: dict[int, int] = field(default_factory=dict)  # by column, those that are used
    later: set[int] = field(default_factory=set)  # those that other functions use as well


def wide_parameters(program: Program, inputs: list[Shape], parameters: int) -> dict[int, range]:
    """Which of so many last inputs are wide, and which numbers of all inputs they are.

    Not those with angles in them: sines and cosines of inputs are computed beforehand, from columns.
    """
    graph, ends = program.graph, list(accumulate(map(prod, inputs), initial=0))
    angles = {graph.args[graph.args[n][0]][0] for n in program.nodes() if graph.ops[n] in ("sin", "cos")}
    found = {i: range(ends[i], ends[i + 1]) for i in range(len(inputs) - parameters, len(inputs))}
    return {i: numbers for i, numbers in found.items() if len(numbers) > WIDE and not angles & set(numbers)}


def input_tiles(program: Program, rows: dict[int, range], chunks: list[list[int]]) -> dict[int, InputTile]:
    """The tile of each number of inputs that come in rows. An input's last tile begins where it is full."""
    graph = program.graph
    of = {at: (i, numbers) for i, numbers in rows.items() for at in numbers}
    tiles: dict[tuple[int, int], InputTile] = {}
    found: dict[int, InputTile] = {}
    for k, chunk in enumerate(chunks):
        wanted = [x for n in chunk for x in graph.args[n]] + (program.outputs if k == len(chunks) - 1 else [])
        wanted += [y for x in wanted if graph.ops[x] == "less" for y in graph.args[x]]  # comparisons are made again
        for x in wanted:
            if graph.ops[x] == "input" and graph.args[x][0] in of:
                i, numbers = of[graph.args[x][0]]
                at = graph.args[x][0] - numbers.start
                start = min(at // 4 * 4, len(numbers) - 4)
                found[x] = tile = tiles.setdefault((i, start), InputTile(i, len(numbers), start, k))
                tile.nodes[at - start] = x
                tile.later |= {x} if tile.chunk != k else set()
    return found
