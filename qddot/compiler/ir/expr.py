"""Tracing: a Graph of interned nodes, and Expr, the scalar that records what is done to it.

Algorithms written on scalars run unchanged on Expr and leave their arithmetic in the graph. A node is an operation and
the numbers of its arguments; equal nodes are one node; rules simplify as nodes are made.

Arithmetic on numbers is done once, in the trace. Each number has a bound on its rounding error, which the trace adds up as
it goes along (running error analysis). Numbers that the bounds do not tell apart are one number, and a number that they do
not tell from zero is zero, so that the size of a kernel depends on the shape of a robot and not on the last bits of its
parameters; and no more is dropped than the same operations would have rounded away at run time (docs/decisions/0008).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qddot.compiler.ir.ops import COMMUTATIVE, OPS
from qddot.compiler.ir.rules import Simplify, simplification
from qddot.errors import KernelTooLargeError
from qddot.scalars import Unknown

UNIT = 2.0**-52  # of a number that comes in: one unit in its last place is taken for rounding
_SEARCH_RADIUS = 2.0**-40  # relative: how near to a number an equal one is looked for
MAX_NODES = 1_500_000  # some 600 MB
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


class _Simplifications(dict[tuple[str, ...], Simplify | None]):
    """What is done to an operation before it becomes a node, by the operation and those of its arguments."""

    def __missing__(self, key: tuple[str, ...]) -> Simplify | None:
        op, *kinds = key
        if all(kind in _NUMBERS for kind in kinds) and (op in _ON_COLUMNS or "column" not in kinds):
            of_two = op in ("add", "sub", "mul") and "column" not in kinds
            self[key] = (_folding_of_two if of_two else _folding)(op)
        elif op == "select" and kinds[0] == "const":
            self[key] = lambda graph, a0, a1, a2: a1 if graph.args[a0][0] else a2
        else:
            self[key] = simplification(op, kinds)
        return self[key]


def _folding(op: str) -> Simplify:
    return lambda graph, *args: graph.folded(op, args)


def _folding_of_two(op: str) -> Simplify:
    """The same for sums and products of numbers, of which there are many, without lists."""
    value = OPS[op].value

    def fold(graph: Graph, a: int, b: int) -> int:
        x, y, x_bound, y_bound = graph.args[a][0], graph.args[b][0], graph.bounds[a], graph.bounds[b]
        result = value(x, y)
        comes_in = abs(x) * y_bound + abs(y) * x_bound if op == "mul" else x_bound + y_bound
        bound = comes_in + 0.5 * UNIT * abs(result)
        if abs(result) <= bound < math.inf:
            return graph.const(0.0)
        return graph.rounded(result, bound) if bound < math.inf else graph.folded(op, (a, b))

    return fold


_SIMPLIFY = _Simplifications()


class Graph:
    """Nodes by number, arguments before users; at most `max_nodes`."""

    def __init__(self, max_nodes: int = MAX_NODES) -> None:
        self.max_nodes = max_nodes
        self.ops: list[str] = []
        self.args: list[tuple[Any, ...]] = []
        self.marks: list[
            tuple[int, str, int]
        ] = []  # nodes made before the mark and after the last belong to (symbol, link)
        self.cuts: list[int] = []  # a long program may be cut before these nodes
        self.columns: list[NDArray[Any]] = []
        self._index: dict[str, dict[Any, int]] = defaultdict(dict)  # nodes by operation and arguments
        self._given: dict[float, int] = {}  # numbers that came in, not computed ones
        self._constants: dict[float, int] = {}
        self._near: dict[tuple[int, int], list[int]] = {}  # numbers by exponent and leading digits
        self.bounds: dict[int, Any] = {}  # of the rounding errors of numbers and columns

    def __len__(self) -> int:
        return len(self.ops)

    def const(self, value: Any) -> int:
        """The node of a number, or of one that the bounds on their rounding do not tell from it."""
        found = self._given.get(value)
        if found is None:
            plain = float(value) + 0.0  # and no negative zero
            found = self._given[value] = self.rounded(plain, UNIT * abs(plain))
        return found

    def rounded(self, value: float, bound: float) -> int:
        """The same for a number with a bound on its rounding error."""
        found = self._constants.get(value)
        if found is None:
            found = self._constants[value] = self._same(value, bound)
        if bound < self.bounds[found]:  # rather too little is taken for rounding than too much
            self.bounds[found] = bound
        return found

    def _same(self, value: float, bound: float) -> int:
        if not math.isfinite(value) or value == 0.0:
            node = self._node("const", (value,), (value,))
            self.bounds.setdefault(node, 0.0)
            return node
        for near in (value, value * (1.0 - _SEARCH_RADIUS), value * (1.0 + _SEARCH_RADIUS)):
            for node in self._near.get(_leading(near), ()):
                if abs(self.args[node][0] - value) <= self.bounds[node] + bound:
                    return node
        node = self._node("const", (value,), (value,))
        self.bounds[node] = bound
        self._near.setdefault(_leading(value), []).append(node)
        return node

    def column(self, values: NDArray[Any], bounds: NDArray[Any] | None = None) -> int:
        """The node of a number that differs from row to row of a loop program; a plain number where it does not."""
        bounds = UNIT * np.abs(values) if bounds is None else bounds
        if np.all(np.abs(values - values[0]) <= bounds + bounds[0]):
            return self.rounded(float(values[0]) + 0.0, float(np.min(bounds)))
        key = values.tobytes()
        if key not in self._index["column"]:
            self.columns.append(values)
        node = self._node("column", (len(self.columns) - 1,), key)
        self.bounds[node] = np.minimum(bounds, self.bounds.get(node, bounds))
        return node

    def _node(self, op: str, args: tuple[Any, ...], key: Any) -> int:
        nodes = self._index[op]
        found = nodes.get(key)
        if found is None:
            if len(self.ops) >= self.max_nodes:
                raise KernelTooLargeError(f"the trace has more than {self.max_nodes:,} operations")
            found = nodes[key] = len(self.ops)
            self.ops.append(op)
            self.args.append(args)
        return found

    def make(self, op: str, *args: int) -> int:
        """The node of an operation, simplified."""
        if len(args) == 2:
            return self.binary(op, *args)
        simplify = _SIMPLIFY[op, *(self.ops[a] for a in args)]
        simpler = None if simplify is None else simplify(self, *args)
        return self._node(op, args, args) if simpler is None else int(simpler)

    def unary(self, op: str, a: int) -> int:
        """The same for an operation of one argument."""
        simplify = _SIMPLIFY[op, self.ops[a]]
        simpler = None if simplify is None else simplify(self, a)
        return self._node(op, (a,), (a,)) if simpler is None else int(simpler)

    def binary(self, op: str, a: int, b: int) -> int:
        """The same for an operation of two arguments; nearly all are."""
        kind, other = self.ops[a], self.ops[b]
        if op in COMMUTATIVE and other != "const" and (kind == "const" or a > b):
            a, b, kind, other = b, a, other, kind
        simplify = _SIMPLIFY[op, kind, other]
        if simplify is not None:
            simpler = simplify(self, a, b)
            if simpler is not None:
                return simpler
        args = a, b
        found = self._index[op].get(args)
        return self._node(op, args, args) if found is None else found

    def folded(self, op: str, args: tuple[int, ...]) -> int:
        """The number or column that an operation gives on numbers and columns."""
        in_columns = any(self.ops[a] == "column" for a in args)
        values = [self.columns[self.args[a][0]] if self.ops[a] == "column" else self.args[a][0] for a in args]
        result = _ON_COLUMNS[op](*values) if in_columns else float(OPS[op].value(*values))
        bound = _bound(op, values, [self.bounds[a] for a in args], result)
        if in_columns:
            return self.column(np.where(np.abs(result) <= bound, 0.0, result), bound)
        is_rounding = abs(result) <= bound < math.inf
        return self.rounded(0.0 if is_rounding else result + 0.0, bound if math.isfinite(bound) else 0.0)

    def leaf(self, op: str, *args: Any) -> int:
        """An input, or a node that is not to be simplified."""
        return self._node(op, args, args)

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

    def vectors(self, sizes: Sequence[int]) -> list[Any]:
        """Unknown vectors of these sizes, whose entries are the inputs one after another."""
        out, first = [], 0
        for n in sizes:
            out.append(self.inputs(n, first))
            first += n
        return out

    def nodes_of(self, result: Any) -> list[int]:
        """The nodes of an array's entries, row by row."""
        return [self.node_of(x) for x in np.asarray(result, dtype=object).reshape(-1)]

    def node_of(self, x: Any) -> int:
        """The node of an Expr of this graph, or of a plain number."""
        if isinstance(x, Expr):
            if x.graph is not self:
                raise TypeError("an Expr of another trace came in: a trace must not keep values between runs")
            return x.node
        return self.const(x)


def _leading(value: float) -> tuple[int, int]:
    """The leading digits of a number: what those near to it share, or have next to its own."""
    if math.isinf(value):  # beside the largest number
        return 1025, 0
    mantissa, exponent = math.frexp(value)
    return exponent, math.floor(mantissa / _SEARCH_RADIUS)


def _bound(op: str, values: Sequence[Any], bounds: Sequence[Any], result: Any) -> Any:
    """What an operation on numbers leaves uncertain: what comes in, to first order, and its own rounding."""
    match op:
        case "neg":
            return bounds[0]
        case "add" | "sub" | "arctan2":
            comes_in = bounds[0] + bounds[1]
        case "mul":
            comes_in = abs(values[0]) * bounds[1] + abs(values[1]) * bounds[0]
        case "div":
            comes_in = (bounds[0] + abs(result) * bounds[1]) / np.maximum(abs(values[1]), math.ulp(0.0))
        case "sqrt":
            comes_in = bounds[0] / np.maximum(result, math.ulp(0.0))
        case "sin" | "cos" | "tanh" | "arctan":
            comes_in = bounds[0] + 0.5 * UNIT
        case "exp":
            comes_in = abs(result) * (bounds[0] + 0.5 * UNIT)
        case "log":
            comes_in = bounds[0] / np.maximum(abs(values[0]), math.ulp(0.0)) + 0.5 * UNIT
        case _:  # a comparison or a choice
            return max(bounds) if op == "select" else 0.0
    return comes_in + 0.5 * UNIT * abs(result)


def _operator(op: str, swap: bool = False) -> Callable[[Any, Any], Any]:
    """A method of Expr for an operation of two arguments."""

    def method(self: Expr, x: Any) -> Any:
        graph = self.graph
        if isinstance(x, Expr) and x.graph is graph:
            node = x.node
        elif isinstance(x, _NUMBER_TYPES):
            node = graph.const(x)
        elif isinstance(x, Expr):
            node = graph.node_of(x)
        else:
            return NotImplemented
        return Expr(graph, graph.binary(op, node, self.node) if swap else graph.binary(op, self.node, node))

    return method


class Expr(Unknown):
    """A scalar that is not known yet."""

    __slots__ = ("graph", "node")

    def __init__(self, graph: Graph, node: int) -> None:
        self.graph, self.node = graph, node

    def _with(self, op: str, *others: Any) -> Any:
        graph, nodes = self.graph, [self.node]
        for x in others:
            if not isinstance(x, _SCALARS):
                return NotImplemented
            nodes.append(graph.node_of(x))
        return Expr(graph, graph.make(op, *nodes))

    __add__ = __radd__ = _operator("add")
    __sub__, __rsub__ = _operator("sub"), _operator("sub", swap=True)
    __mul__ = __rmul__ = _operator("mul")
    __truediv__, __rtruediv__ = _operator("div"), _operator("div", swap=True)
    __lt__, __gt__ = _operator("less"), _operator("less", swap=True)
    __le__, __ge__ = _operator("less_equal"), _operator("less_equal", swap=True)

    def __neg__(self) -> Any:
        return Expr(self.graph, self.graph.unary("neg", self.node))

    def sin(self) -> Any:
        return self._with("sin")

    def cos(self) -> Any:
        return self._with("cos")

    def sqrt(self) -> Any:
        return self._with("sqrt")

    def exp(self) -> Any:
        return self._with("exp")

    def log(self) -> Any:
        return self._with("log")

    def tanh(self) -> Any:
        return self._with("tanh")

    def arctan(self) -> Any:
        return self._with("arctan")

    def arctan2(self, x: Any) -> Any:
        """The angle of the point (x, self); either may be a plain number."""
        graph = self.graph if isinstance(self, Expr) else x.graph
        return Expr(graph, graph.make("arctan2", graph.node_of(self), graph.node_of(x)))

    def where(self, then: Any, otherwise: Any) -> Any:
        """What `scalars.where` calls on the result of a comparison."""
        return self._with("select", then, otherwise)

    @property
    def known(self) -> float | None:
        """Its value, if it is a number after all."""
        return self.graph.args[self.node][0] if self.graph.ops[self.node] == "const" else None

    def mark(self, symbol: str, link: int) -> None:
        """Everything traced since the last mark computes this symbol of this link."""
        self.graph.marks.append((len(self.graph), symbol, link))

    def cut(self) -> None:
        """A long program may be cut between what was traced so far and the rest."""
        self.graph.cuts.append(len(self.graph))

    def __hash__(self) -> int:
        return hash((id(self.graph), self.node))

    def __repr__(self) -> str:
        return f"<Expr {self.node}: {self.graph.ops[self.node]}>"


_NUMBER_TYPES = (float, int, np.floating, np.integer)
_SCALARS = (Expr, *_NUMBER_TYPES)


def trace(function: Any, sizes: Sequence[int], max_nodes: int = MAX_NODES) -> tuple[Graph, list[int], tuple[int, ...]]:
    """Runs a function on unknown vectors of the given sizes: the graph, the nodes of its result, and its shape."""
    graph = Graph(max_nodes)
    result = np.asarray(function(*graph.vectors(sizes)), dtype=object)
    return graph, graph.nodes_of(result), result.shape
