"""The functions that a step calls while it is traced: each is traced once, and its results are inputs of the step.

What comes of it is a step whose functions are code of their own, there once for all calls, or one program in which they are
inlined, so that what several of them compute is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qddot.compiler.runtime.kernel import Shape
from qddot.dynamics.pipeline import program_of, unknowns

if TYPE_CHECKING:  # code generation is loaded when something is to be compiled
    from qddot.compiler.ir.expr import Graph
    from qddot.compiler.ir.program import Program
    from qddot.compiler.ir.step_program import Step

Array = NDArray[Any]
Run = Callable[..., Any]


class Traced(NamedTuple):
    """A function by its number: its graph, the nodes of its result, how many inputs it has, and the result's shape."""

    number: int
    graph: Graph
    nodes: list[int]
    n_inputs: int
    shape: Shape


class Made(NamedTuple):
    """A call: the function and its arguments, and its results, which are inputs of the graph of the step."""

    function: Run
    arguments: tuple[Array, ...]
    result: Array


class Calls:
    """Calls in the order in which they are made. `shared` are the sizes of held inputs and parameters, the last inputs of
    the step, which `system` makes a system of.
    """

    def __init__(self, what: str, graph: Graph, n_inputs: int, shared: Sequence[int], system: Callable[..., Any]) -> None:
        self.what, self.graph, self.n_own, self.n_inputs = what, graph, n_inputs, n_inputs
        self.shared, self.system = list(shared), system
        self.functions: dict[Run, Traced] = {}
        self.made: list[Made] = []

    def __call__(self, function: Run, *args: Any) -> Any:
        """What function(system, *args) will give."""
        arrays = [np.asarray(x, dtype=object) for x in args]
        if function not in self.functions:
            self.functions[function] = self._traced(function, [a.shape for a in arrays])
        found, first = self.functions[function], self.n_inputs
        self.n_inputs += len(found.nodes)
        result = self.graph.inputs(len(found.nodes), first)
        self.made.append(Made(function, tuple(arrays), result))
        return result.reshape(found.shape)

    def _traced(self, function: Run, shapes: Sequence[Shape]) -> Traced:
        sizes = [*(prod(s) for s in shapes), *self.shared]
        graph, vectors = unknowns(sizes)
        given = [x.reshape(s) if s else x[0] for x, s in zip(vectors, shapes, strict=False)]
        result = np.asarray(function(self.system(graph, *vectors[len(shapes) :]), *given), dtype=object)
        return Traced(len(self.functions), graph, graph.nodes_of(result), sum(sizes), result.shape)

    def step(self, result: Any) -> Step:
        """The step that gives this result, and calls the functions."""
        from qddot.compiler.ir.step_program import Call, Step

        n, called = self.n_inputs, [(self.functions[c.function].number, self._argument_nodes(c)) for c in self.made]
        arguments = tuple(Call(f, program_of(self.what, self.graph, nodes, n)) for f, nodes in called)
        functions = tuple(program_of(self.what, f.graph, f.nodes, f.n_inputs) for f in self.functions.values())
        return Step(program_of(self.what, self.graph, self.graph.nodes_of(result), n), arguments, functions)

    def inlined(self, result: Any) -> Program:
        """The same in one program."""
        from qddot.compiler.ir.expr import Graph
        from qddot.compiler.ir.transplant import Transplant

        graph = Graph()
        own = [graph.leaf("input", k) for k in range(self.n_own)]
        shared = own[self.n_own - sum(self.shared) :]
        outer = Transplant(self.graph, graph, own)
        for call in self.made:
            function = self.functions[call.function]
            given = [*outer(self._argument_nodes(call)), *shared]
            outer.inputs += Transplant(function.graph, graph, given)(function.nodes)
        return program_of(self.what, graph, outer(self.graph.nodes_of(result)), self.n_own)

    def _argument_nodes(self, call: Made) -> list[int]:
        return [self.graph.node_of(x) for a in call.arguments for x in a.reshape(-1)]
