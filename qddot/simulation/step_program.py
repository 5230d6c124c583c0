"""One time step as programs: straight-line code, or code that calls the derivative of a large robot once for each stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from qddot.compiler.runtime.kernel import Shape
from qddot.dynamics.pipeline import finished, program_of

if TYPE_CHECKING:  # code generation is loaded when something is to be compiled
    from qddot.compiler.codegen.abi.time_stepping import Step
    from qddot.compiler.ir.expr import Graph
    from qddot.compiler.ir.program import Program

Run = Callable[..., Any]


class Calls:
    """The functions that a step calls while it is traced: each is traced once, and its results are inputs of the step."""

    def __init__(self, what: str, graph: Graph, n_inputs: int, shared: Sequence[int], system: Callable[..., Any]) -> None:
        self.what, self.graph, self.n_inputs = what, graph, n_inputs
        self.shared, self.system = list(shared), system  # sizes of held inputs and parameters; a system made of them
        self.functions: dict[Run, tuple[int, Program, Shape]] = {}
        self.made: list[tuple[int, list[int]]] = []  # function and argument nodes

    def __call__(self, function: Run, *args: Any) -> Any:
        """What function(system, *args) will give."""
        arrays = [np.asarray(x, dtype=object) for x in args]
        if function not in self.functions:
            self.functions[function] = self._traced(function, [a.shape for a in arrays])
        number, program, shape = self.functions[function]
        self.made.append((number, [self.graph.node_of(x) for a in arrays for x in a.reshape(-1)]))
        first, count = self.n_inputs, len(program.outputs)
        self.n_inputs += count
        return self.graph.inputs(count, first).reshape(shape)

    def _traced(self, function: Run, shapes: Sequence[Shape]) -> tuple[int, Program, Shape]:
        found: list[Shape] = []

        def run(*vectors: Any) -> Any:
            given = [x.reshape(s) if s else x[0] for x, s in zip(vectors, shapes, strict=False)]
            result = np.asarray(function(self.system(vectors[0][0].graph, *vectors[len(shapes) :]), *given), dtype=object)
            found.append(result.shape)
            return result.reshape(-1)

        program = program_of(self.what, run, [*(prod(s) for s in shapes), *self.shared])
        return len(self.functions), program, found[0]


def step_of(what: str, run: Run, sizes: Sequence[int], system: Callable[..., Any]) -> Step:
    """A step whose calls are functions of their own: run(calls, state, clock, held, *parameters) gives the next state."""
    from qddot.compiler.codegen.abi.time_stepping import Call, Step
    from qddot.compiler.ir.expr import Graph

    graph = Graph()
    calls = Calls(what, graph, sum(sizes), sizes[2:], system)
    outputs = graph.nodes_of(run(calls, *graph.vectors(sizes)))
    n = calls.n_inputs
    arguments = tuple(Call(f, finished(what, graph, nodes, n)) for f, nodes in calls.made)
    functions = sorted(calls.functions.values(), key=lambda x: x[0])
    return Step(finished(what, graph, outputs, n), arguments, tuple(p for _, p, _ in functions))
