"""The interpreter: the definition of what a program computes, on plain floats, one state at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qddot.compiler.ir.ops import OPS
from qddot.compiler.ir.program import Program


def run(program: Program, inputs: Sequence[float]) -> list[float]:
    """The outputs for one set of inputs."""
    graph = program.graph
    values: dict[int, Any] = {}

    def value(node: int) -> Any:
        op, args = graph.ops[node], graph.args[node]
        if op == "const":
            return args[0]
        if op == "input":
            return float(inputs[args[0]])
        return values[node]

    for node in program.body:
        values[node] = OPS[graph.ops[node]].value(*(value(x) for x in graph.args[node]))
    return [float(value(node)) for node in program.outputs]
