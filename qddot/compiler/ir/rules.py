"""The algebra that simplifies expressions as they are built: one rule a row, pattern -> replacement, with a condition.

Patterns are Python expressions. `c` and `d` stand for numbers, other names for anything; `{…}` is computed when the rule
applies. A sum or product matches in either order, a number standing last. `later(x, y)` says that x was made after y: it
gives differences one direction, so that x - y and y - x are one node and a sign. The rows of an operation are tried from
the top, and their replacements are simplified in turn.

Numbers that are added one after the other are added first, unless the second is so small that the sum would round it away:
where x takes the large one back, the small one is the result. `c` and `d` of such sums are not negative.

Zero times anything is zero: a kernel that uses these rules does not pass NaN and infinity on through a product that the
model makes vanish. Kernels say so, and report inputs that are not finite.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple, cast


class Rule(NamedTuple):
    """A row of the table."""

    pattern: str
    replacement: str
    condition: str = ""


RULES: tuple[Rule, ...] = (
    Rule("x + 0", "x"),
    Rule("x + -y", "x - y"),
    Rule("x + c", "x - {-c}", "c < 0"),
    Rule("(x + c) + d", "x + {c + d}", "c <= 4096 * d"),
    Rule("(x - c) + d", "x + {d - c}", "c <= 4096 * d"),
    Rule("(c - x) + d", "{c + d} - x", "c <= 4096 * d"),
    Rule("(x - y) + y", "x"),
    Rule("x * c + x * d", "x * {c + d}"),
    Rule("x - 0", "x"),
    Rule("0 - x", "-x"),
    Rule("x - x", "0"),
    Rule("x - -y", "x + y"),
    Rule("-x - y", "-(x + y)"),
    Rule("x - c", "x + {-c}", "c < 0"),
    Rule("c - x", "-(x + {-c})", "c < 0"),
    Rule("(x + c) - d", "x + {c - d}", "c <= 4096 * d"),
    Rule("(x - c) - d", "x - {c + d}", "c <= 4096 * d"),
    Rule("(x + y) - x", "y"),
    Rule("x - (x - y)", "y"),
    Rule("x * c - x * d", "x * {c - d}"),
    Rule("x - y", "-(y - x)", "later(x, y)"),
    Rule("x * 0", "0"),
    Rule("x * 1", "x"),
    Rule("x * -1", "-x"),
    Rule("x * c", "-(x * {-c})", "c < 0"),
    Rule("(x * c) * d", "x * {c * d}"),
    Rule("-x * y", "-(x * y)"),
    Rule("x * (1 / x)", "1"),
    Rule("0 / x", "0"),
    Rule("x / c", "x * {1 / c}", "c != 0"),
    Rule("-x / y", "-(x / y)"),
    Rule("x / -y", "-(x / y)"),
    Rule("(x * c) / y", "c * (x / y)"),
    Rule("- -x", "x"),
    Rule("sin(-x)", "-sin(x)"),
    Rule("cos(-x)", "cos(x)"),
    Rule("sqrt(x) * sqrt(x)", "x"),
    Rule("select(b, x, x)", "x"),
)

_OPERATORS = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}
_NUMBERS = ("c", "d")

Simplify = Callable[..., Any]


def operation(node: ast.expr) -> tuple[str, list[ast.expr]]:
    """The IR operation of a pattern's node, and its arguments."""
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)], [node.left, node.right]
    if isinstance(node, ast.UnaryOp):
        return "neg", [node.operand]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id, node.args
    raise ValueError(f"a rule may not hold {ast.unparse(node)}")


class _Writer:
    """Turns one rule into the Python lines that apply it: `return` of the replacement's node if the pattern fits.

    `kinds` are the operations of the arguments a0, a1, …: what they say about a match is settled here.
    """

    def __init__(self, rule: Rule, kinds: Sequence[str]) -> None:
        self.rule = rule
        self.kinds = {f"a{k}": kind for k, kind in enumerate(kinds)}
        self.tests: list[str] = []
        self.bound: dict[str, str] = {}
        self.fits = True

    def has_kind(self, place: str, op: str) -> None:
        """The node at `place` has to be this operation."""
        if place not in self.kinds:
            self.tests.append(f"ops[{place}] == {op!r}")
        elif self.kinds[place] != op:
            self.fits = False

    def match(self, node: ast.expr, place: str, op_known: bool = False) -> None:
        """Collects the tests that the node at `place` (an id) has to pass."""
        number = _literal(node)
        if number is not None:
            self.has_kind(place, "const")
            self.tests.append(f"args[{place}][0] == {number!r}")
        elif isinstance(node, ast.Name):
            if node.id in self.bound:
                self.tests.append(f"{place} == {self.bound[node.id]}")
            self.bound.setdefault(node.id, place)
            if node.id in _NUMBERS:
                self.has_kind(place, "const")
        else:
            op, arguments = operation(node)
            if not op_known:
                self.has_kind(place, op)
            for k, argument in enumerate(arguments):
                self.match(argument, f"args[{place}][{k}]" if not op_known else f"a{k}")

    def build(self, node: ast.expr) -> str:
        """The Python expression that makes the replacement."""
        number = _literal(node)
        if number is not None:
            return f"graph.const({number!r})"
        if isinstance(node, ast.Name):
            return self.bound[node.id]
        if isinstance(node, ast.Set):  # over numbers only, so it folds
            return self.build(node.elts[0])
        op, arguments = operation(node)
        make = "unary" if len(arguments) == 1 else "binary"
        return f"graph.{make}({op!r}, {', '.join(self.build(a) for a in arguments)})"

    def value(self, node: ast.expr) -> str:
        """A condition on the values of `c` and `d`, or on the age of nodes."""
        text = ast.unparse(node)
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        if "later" in names:
            x, y = (self.bound[n] for n in ("x", "y"))
            self.fits = self.fits and "const" not in (self.kinds[x], self.kinds[y])
            return f"{x} > {y}"
        for name in names:
            text = _replace_name(text, name, f"args[{self.bound[name]}][0]")
        return text

    def lines(self) -> list[str]:
        """Empty if the pattern does not fit such arguments."""
        self.match(_parsed(self.rule.pattern), "", op_known=True)
        if self.fits and self.rule.condition:
            self.tests.append(self.value(_parsed(self.rule.condition)))
        if not self.fits:
            return []
        made = self.build(_parsed(self.rule.replacement))
        return [f"    if {' and '.join(self.tests) or 'True'}:  # {self.rule.pattern}", f"        return {made}"]


@cache
def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _literal(node: ast.expr) -> float | None:
    if isinstance(node, ast.Constant):
        return float(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant):
        return -float(node.operand.value)  # type: ignore[arg-type]
    return None


def _replace_name(text: str, name: str, by: str) -> str:
    return re.sub(rf"\b{name}\b", by, text)


def _swapped(rule: Rule) -> list[Rule]:
    """A sum or product of two patterns matches in either order."""
    node = _parsed(rule.pattern)
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult)):
        return [rule]
    if _literal(node.right) is not None or (isinstance(node.right, ast.Name) and node.right.id in _NUMBERS):
        return [rule]
    left, right = ast.unparse(node.left), ast.unparse(node.right)
    sign = "+" if isinstance(node.op, ast.Add) else "*"
    return [rule, rule._replace(pattern=f"({right}) {sign} ({left})")]


@cache
def _rules_of(op: str) -> tuple[Rule, ...]:
    """The rows of an operation, in order."""
    return tuple(swapped for rule in RULES if operation(_parsed(rule.pattern))[0] == op for swapped in _swapped(rule))


def simplification(op: str, kinds: Sequence[str]) -> Simplify | None:
    """The function `simplify(graph, a0, a1, …)` for an operation on arguments that are such operations: the node that the
    first fitting rule gives, or None. None instead of a function where no rule can fit.
    """
    lines = [line for rule in _rules_of(op) for line in _Writer(rule, kinds).lines()]
    if not lines:
        return None
    head = f"def simplify(graph, {', '.join(f'a{k}' for k in range(len(kinds)))}):"
    namespace: dict[str, Any] = {}
    exec("\n".join([head, "    ops, args = graph.ops, graph.args", *lines, "    return None"]), namespace)
    return cast(Simplify, namespace["simplify"])
