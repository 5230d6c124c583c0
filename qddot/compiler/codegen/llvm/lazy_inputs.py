"""Row-major inputs that are transposed lazily, at their first use.

Columns that are transposed before the code runs are stored and reloaded, and nothing is computed meanwhile. For parameters
of each state, about ten a link, that takes a quarter of the time of inverse dynamics.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from math import prod

from qddot.compiler.codegen.llvm.prefetch import NARROW_INPUT_MAX_NUMBERS
from qddot.compiler.ir.program import Program


@dataclass
class InputTile:
    """Four columns of an input whose rows have `row` numbers, from number `start` on."""

    operand: int
    row: int
    start: int
    function: int  # that transposes them: the first that uses one
    nodes: dict[int, int] = field(default_factory=dict)  # by column, those that are used
    later: set[int] = field(default_factory=set)  # those that other functions use as well


def wide_parameters(program: Program, inputs: list[tuple[int, ...]], parameters: int) -> dict[int, range]:
    """Which of the last inputs, so many parameters, are wide, and which numbers of all inputs they are.

    Not those with angles in them: sines and cosines of inputs are computed first, from columns.
    """
    graph, ends = program.graph, list(accumulate(map(prod, inputs), initial=0))
    angles = {graph.args[graph.args[n][0]][0] for n in program.body if graph.ops[n] in ("sin", "cos")}
    found = {i: range(ends[i], ends[i + 1]) for i in range(len(inputs) - parameters, len(inputs))}
    wide = {i: numbers for i, numbers in found.items() if len(numbers) > NARROW_INPUT_MAX_NUMBERS}
    return {i: numbers for i, numbers in wide.items() if not angles & set(numbers)}


def input_tiles(program: Program, rows: dict[int, range], functions: list[list[int]]) -> dict[int, InputTile]:
    """The tile of each number of inputs that come in rows. An input's last tile begins where it is full."""
    graph = program.graph
    of = {index: (i, numbers) for i, numbers in rows.items() for index in numbers}
    tiles: dict[tuple[int, int], InputTile] = {}
    found: dict[int, InputTile] = {}
    for k, nodes in enumerate(functions):
        used = [x for n in nodes for x in graph.args[n]] + (program.outputs if k == len(functions) - 1 else [])
        used += [y for x in used if graph.ops[x] == "less" for y in graph.args[x]]  # comparisons are repeated
        for x in used:
            if graph.ops[x] == "input" and graph.args[x][0] in of:
                i, numbers = of[graph.args[x][0]]
                index = graph.args[x][0] - numbers.start
                start = min(index // 4 * 4, len(numbers) - 4)
                found[x] = tile = tiles.setdefault((i, start), InputTile(i, len(numbers), start, k))
                tile.nodes[index - start] = x
                tile.later |= {x} if tile.function != k else set()
    return found
