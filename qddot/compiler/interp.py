"""The interpreter: the definition of what a program computes, on plain floats, one state at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qddot.compiler.ops import OPS
from qddot.compiler.program import Loop, Program, Step, Store


def run(program: Program, inputs: Sequence[float]) -> list[float]:
    """The outputs for one set of inputs."""
    graph = program.graph
    values: dict[int, Any] = {}
    buffers = [[0.0] * size for size in program.buffers]

    def value(node: int) -> Any:
        op, args = graph.ops[node], graph.args[node]
        if op == "const":
            return args[0]
        if op == "input":
            return float(inputs[args[0]])
        return values[node]

    def compute(node: int) -> Any:
        op, args = graph.ops[node], graph.args[node]
        if op == "table":
            return program.tables[args[0]][int(value(args[1]))]
        if op == "load":
            return buffers[args[0]][int(value(args[1]))]
        return OPS[op].value(*(value(x) for x in args))

    def execute(body: Sequence[Step]) -> None:
        for step in body:
            if isinstance(step, Loop):
                for i in range(step.start, step.stop, step.step):
                    values[step.counter] = i
                    execute(step.body)
            elif isinstance(step, Store):
                buffers[step.buffer][int(value(step.place))] = value(step.value)
            else:
                values[step] = compute(step)

    execute(program.body)
    return [float(value(node)) for node in program.outputs]
