"""What a graph computes, computed in another graph of other inputs: calls of functions inlined."""

from __future__ import annotations

from collections.abc import Sequence

from qddot.compiler.ir.expr import Graph
from qddot.compiler.ir.program import straight_line


class Transplant:
    """Nodes of one graph made again in another one, each once. `inputs` are the nodes there that stand for inputs here;
    more may be appended when they are known.
    """

    def __init__(self, source: Graph, target: Graph, inputs: Sequence[int]) -> None:
        self.source, self.target, self.inputs = source, target, list(inputs)
        self._places: dict[int, int] = {}

    def __call__(self, nodes: list[int]) -> list[int]:
        """The nodes there of these nodes, and of what they are computed from."""
        source, target, places = self.source, self.target, self._places
        for symbol, link, section in straight_line(source, nodes, len(self.inputs)).sections():
            before = len(target)
            for node in section:
                if node not in places:
                    places[node] = target.make(source.ops[node], *map(self._place, source.args[node]))
            if len(target) > before:
                target.marks.append((len(target), symbol, link))
        return [self._place(node) for node in nodes]

    def _place(self, node: int) -> int:
        op = self.source.ops[node]
        if op == "input":
            return self.inputs[self.source.args[node][0]]
        if op == "const":
            return self.target.rounded(self.source.args[node][0], self.source.bounds[node])
        return self._places[node]
