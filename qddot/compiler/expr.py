"""Tracing: a Graph of interned nodes, and Expr, the scalar that records what is done to it.

Algorithms written on scalars run unchanged on Expr and leave their arithmetic in the graph. A node is an operation and
the numbers of its arguments; equal nodes are one node; rules simplify as nodes are made. Numbers that agree to thirteen
digits are one number, and a difference that is rounding of its terms is zero, so that the size of a kernel depends on
the shape of a robot and not on the last bits of its parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.compiler.ops import COMMUTATIVE, OPS
from qddot.compiler.rules import SIMPLIFY
from qddot.errors import KernelTooLargeError
from qddot.scalars import Unknown

_RESIDUE = 1e-13  # of its terms: a sum below this is rounding
_DIGITS = 13
MOST_NODES = 1_500_000  # some 600 MB
_NUMBERS = frozenset({"const", "column"})
_ON_COLUMNS: dict[str, Any] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "neg": np.negative,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
}


class Graph:
    """Nodes by number, arguments before users; at most so many."""

    def __init__(self, most: int = MOST_NODES) -> None:
        self.most = most
        self.ops: list[str] = []
        self.args: list[tuple[Any, ...]] = []
        self.marks: list[
            tuple[int, str, int]
        ] = []  # nodes made before the mark and after the last belong to (symbol, link)
        self.columns: list[NDArray[Any]] = []
        self._index: dict[tuple[Any, ...], int] = {}
        self._constants: dict[float, int] = {}

    def __len__(self) -> int:
        return len(self.ops)

    def const(self, value: float) -> int:
        """The node of a number."""
        value = float(value) + 0.0  # and no negative zero
        found = self._constants.get(value)
        if found is None:
            found = self._node("const", (value,), ("const", float(f"{value:.{_DIGITS - 1}e}")))
            self._constants[value] = found
        return found

    def column(self, values: NDArray[Any]) -> int:
        """The node of a number that differs from row to row of rolled code; a plain number where it does not."""
        largest = float(np.max(np.abs(values)))
        if np.ptp(values) <= _RESIDUE * largest:
            return self.const(float(values[0]))
        key = ("column", values.tobytes())
        if key not in self._index:
            self.columns.append(values)
        return self._node("column", (len(self.columns) - 1,), key)

    def _node(self, op: str, args: tuple[Any, ...], key: tuple[Any, ...]) -> int:
        found = self._index.get(key)
        if found is None:
            if len(self.ops) >= self.most:
                raise KernelTooLargeError(f"the trace has more than {self.most:,} operations")
            found = self._index[key] = len(self.ops)
            self.ops.append(op)
            self.args.append(args)
        return found

    def make(self, op: str, *args: int) -> int:
        """The node of an operation, simplified."""
        ops = self.ops
        known = ops[args[-1]] in _NUMBERS and all(ops[a] in _NUMBERS for a in args)
        if known and (op in _ON_COLUMNS or all(ops[a] == "const" for a in args)):
            return self._folded(op, args)
        if op in COMMUTATIVE:
            a, b = args
            if ops[a] == "const" or (a > b and ops[b] != "const"):
                args = (b, a)
        simplify = SIMPLIFY.get(op)
        if simplify is not None:
            simpler = simplify(self, *args)
            if simpler is not None:
                return int(simpler)
        if op == "select" and ops[args[0]] == "const":
            return args[1] if self.args[args[0]][0] else args[2]
        return self._node(op, args, (op, *args))

    def _folded(self, op: str, args: tuple[int, ...]) -> int:
        if any(self.ops[a] == "column" for a in args):
            return self._folded_columns(op, args)
        values = [self.args[a][0] for a in args]
        result = OPS[op].value(*values)
        if op in ("add", "sub") and abs(result) < _RESIDUE * max(abs(values[0]), abs(values[1])):
            result = 0.0
        return self.const(float(result))

    def _folded_columns(self, op: str, args: tuple[int, ...]) -> int:
        values = [self.columns[self.args[a][0]] if self.ops[a] == "column" else self.args[a][0] for a in args]
        result = _ON_COLUMNS[op](*values)
        if op in ("add", "sub"):
            result = np.where(np.abs(result) < _RESIDUE * np.maximum(np.abs(values[0]), np.abs(values[1])), 0.0, result)
        return self.column(result)

    def leaf(self, op: str, *args: Any) -> int:
        """An input, or a node that is not to be simplified."""
        return self._node(op, args, (op, *args))

    def effect(self, op: str, *args: Any) -> int:
        """A node that is its own even if its arguments are another's: memory may hold another value each time."""
        self.ops.append(op)
        self.args.append(args)
        return len(self.ops) - 1

    def inputs(self, count: int, first: int = 0) -> NDArray[Any]:
        """Expr of the inputs first, first + 1, …"""
        out = np.empty(count, dtype=object)
        for k in range(count):
            out[k] = Expr(self, self.leaf("input", first + k))
        return out

    def node_of(self, x: Any) -> int:
        """The node of an Expr of this graph, or of a plain number."""
        if isinstance(x, Expr):
            if x.graph is not self:
                raise TypeError("an Expr of another trace came in: a trace must not keep values between runs")
            return x.node
        return self.const(x)


class Expr(Unknown):
    """A scalar that is not known yet."""

    __slots__ = ("graph", "node")

    def __init__(self, graph: Graph, node: int) -> None:
        self.graph, self.node = graph, node

    def _with(self, op: str, *others: Any, swap: bool = False) -> Any:
        graph, nodes = self.graph, [] if swap else [self.node]
        for x in others:
            if isinstance(x, _SCALARS):
                nodes.append(graph.node_of(x))
            else:
                return NotImplemented
        if swap:
            nodes.append(self.node)
        return Expr(graph, graph.make(op, *nodes))

    def __add__(self, x: Any) -> Any:
        return self._with("add", x)

    __radd__ = __add__

    def __sub__(self, x: Any) -> Any:
        return self._with("sub", x)

    def __rsub__(self, x: Any) -> Any:
        return self._with("sub", x, swap=True)

    def __mul__(self, x: Any) -> Any:
        return self._with("mul", x)

    __rmul__ = __mul__

    def __truediv__(self, x: Any) -> Any:
        return self._with("div", x)

    def __rtruediv__(self, x: Any) -> Any:
        return self._with("div", x, swap=True)

    def __pow__(self, n: int) -> Any:
        if not isinstance(n, int) or n < 0:
            raise TypeError(f"a traced value can be raised to whole powers of zero or more, not to {n!r}")
        out: Any = 1.0
        for _ in range(n):
            out = out * self
        return out

    def __neg__(self) -> Any:
        return self._with("neg")

    def __lt__(self, x: Any) -> Any:
        return self._with("less", x)

    def __gt__(self, x: Any) -> Any:
        return self._with("less", x, swap=True)

    def sin(self) -> Any:
        return self._with("sin")

    def cos(self) -> Any:
        return self._with("cos")

    def sqrt(self) -> Any:
        return self._with("sqrt")

    def arctan2(self, x: Any) -> Any:
        """The angle of the point (x, self); either may be a plain number."""
        graph = self.graph if isinstance(self, Expr) else x.graph
        return Expr(graph, graph.make("arctan2", graph.node_of(self), graph.node_of(x)))

    def where(self, then: Any, otherwise: Any) -> Any:
        """What `scalars.where` calls on the result of a comparison."""
        return self._with("select", then, otherwise)

    def mark(self, symbol: str, link: int) -> None:
        """Everything traced since the last mark computes this symbol of this link."""
        self.graph.marks.append((len(self.graph), symbol, link))

    def __hash__(self) -> int:
        return hash((id(self.graph), self.node))

    def __repr__(self) -> str:
        return f"<Expr {self.node}: {self.graph.ops[self.node]}>"


_SCALARS = (Expr, float, int, np.floating, np.integer)


def trace(function: Any, sizes: Sequence[int], most: int = MOST_NODES) -> tuple[Graph, list[int], tuple[int, ...]]:
    """Runs a function on unknown vectors of the given sizes: the graph, the nodes of its result, and its shape."""
    graph = Graph(most)
    vectors, first = [], 0
    for n in sizes:
        vectors.append(graph.inputs(n, first))
        first += n
    result = np.asarray(function(*vectors), dtype=object)
    return graph, [graph.node_of(x) for x in result.reshape(-1)], result.shape
