"""One time step as programs: straight-line code, or code that calls the derivative of a large robot once for each stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from qddot.compiler.runtime.kernel import Shape
from qddot.dynamics.pipeline import program_of, unknowns

if TYPE_CHECKING:  # code generation is loaded when something is to be compiled
    from qddot.compiler.ir.expr import Graph
    from qddot.compiler.ir.program import Program
    from qddot.compiler.ir.step_program import Step

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
        sizes = [*(prod(s) for s in shapes), *self.shared]
        graph, vectors = unknowns(sizes)
        given = [x.reshape(s) if s else x[0] for x, s in zip(vectors, shapes, strict=False)]
        result = np.asarray(function(self.system(graph, *vectors[len(shapes) :]), *given), dtype=object)
        return len(self.functions), program_of(self.what, graph, graph.nodes_of(result), sum(sizes)), result.shape

    def step(self, result: Any) -> Step:
        """The step that gives this result, and calls the functions."""
        from qddot.compiler.ir.step_program import Call, Step

        n = self.n_inputs
        arguments = tuple(Call(f, program_of(self.what, self.graph, nodes, n)) for f, nodes in self.made)
        functions = sorted(self.functions.values(), key=lambda x: x[0])
        own = program_of(self.what, self.graph, self.graph.nodes_of(result), n)
        return Step(own, arguments, tuple(p for _, p, _ in functions))
