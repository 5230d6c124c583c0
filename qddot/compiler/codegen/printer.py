"""Straight-line programs as text that people can read: what all export languages share.

A value with one use is written where it is used; everything else has a name. Results that are no larger than an input are
stored last, so that they may overwrite it; larger ones are stored as they come, which takes less of the stack. A language
(`languages.LANGUAGES`) is a printer, which says how each statement is written, and a row that says what surrounds them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from qddot.compiler.ir import elementary
from qddot.compiler.ir.ops import COMPARISONS
from qddot.compiler.ir.program import Program

WIDTH = 110  # columns of a line
_NESTED = 66  # characters up to which an expression is written inside another
CONDITION, SUM, PRODUCT, SIGN, ATOM = range(5)  # how tightly an expression binds
_INFIX = {"add": ("+", SUM), "sub": ("-", SUM), "mul": ("*", PRODUCT), "div": ("/", PRODUCT)}
_FUSED_SIGNS = {"fma": (False, False), "fms": (False, True), "fnma": (True, False), "fnms": (True, True)}

Text = tuple[str, int]  # an expression and how tightly it binds
Array = tuple[str, int]  # the name and the length of an argument


def _symbol_and_link(symbol: str, link: int) -> str:
    return f"{symbol} {link}"


@dataclass(frozen=True)
class Function:
    """A function of arrays to be printed, which writes one array or several."""

    program: Program
    name: str
    inputs: Sequence[Array]
    outputs: Sequence[Array]
    dtype: str = "float64"
    own_sincos: bool = True  # the kernels' own sine, cosine, exp, log, tanh and arctan, or the language's
    fma: bool = True  # whether sine and cosine use fma; whether the program does is its maker's choice
    inline: bool = False  # for languages that can have it in every file that uses it
    label: Callable[[str, int], str] = _symbol_and_link  # the comment above the code of a symbol of a link
    prefix: str = ""  # of the names of helper functions, which functions of one file share; "" for the function's name

    @property
    def stores_early(self) -> bool:
        """Whether results are stored before all inputs are read: the two must not overlap then."""
        return sum(n for _, n in self.outputs) > max((n for _, n in self.inputs), default=0)


class Language(NamedTuple):
    """What a file in a language is around its statements: a row of `languages.LANGUAGES`."""

    name: str  # as people call it
    ending: str  # of its files
    comment: Callable[[Sequence[str]], str]  # lines that begin a file
    escaped: Callable[[str], str]  # text that stays inside of a comment
    notes: Callable[[Function], list[str]]  # what the comment says to those who compile it
    file: Callable[[Function, str], str]  # all of it; the text is the comment
    header: Callable[[Function], str]  # the file beside it that declares the function; "" where there is none
    reserved: re.Pattern[str]  # names that a function cannot have
    is_c: bool = False  # whether a C compiler can say how much stack and code it takes


class Printer(ABC):
    """The statements of one function as they grow. Lines carry their own indentation."""

    def __init__(self, function: Function) -> None:
        for argument, _ in function.inputs:  # no digit at the end: `sin_x10` is the sine of x[10]
            if not re.fullmatch(r"[a-zA-Z]\w*[a-zA-Z]|[a-zA-Z]", argument) or argument.startswith(("sin_", "cos_")):
                raise ValueError(f"{argument!r} could be taken for a name of the code's own")
        for argument, _ in function.outputs:
            if not re.fullmatch(r"[a-zA-Z]\w*", argument) or re.match(r"(sin|cos)_|t\d+$", argument):
                raise ValueError(f"{argument!r} could be taken for a name of the code's own")
        self.function, self.program, self.graph = function, function.program, function.program.graph
        self.lines: list[str] = []
        self.angles: set[int] = set()  # those whose sine and cosine are there by our own code
        self._named: dict[int, Text] = {}
        self._waiting: dict[int, Text] = {}  # values that may still be written inside another
        self._count = 0
        self._places = [self.element(name, k) for name, n in function.inputs for k in range(n)]
        self._stores = [self.element(name, k) for name, n in function.outputs for k in range(n)]
        uses = Counter(x for n in self.program.body for x in self.graph.args[n])
        self._uses = uses + Counter(self.program.outputs)
        self._results: dict[int, list[int]] = {}
        for k, n in enumerate(self.program.outputs):
            self._results.setdefault(n, []).append(k)

    # ---- what a language says

    @abstractmethod
    def comment(self, text: str) -> str:
        """A line that is a comment."""

    @abstractmethod
    def constant(self, name: str, text: str) -> str:
        """A line that gives a value a name."""

    @abstractmethod
    def store(self, place: str, text: str) -> str:
        """A line that stores a result."""

    @abstractmethod
    def sincos(self, x: str, sine: str, cosine: str) -> list[str]:
        """Lines that give names to the sine and the cosine of an angle, by the kernels' own code."""

    @abstractmethod
    def number(self, x: float) -> str:
        """A constant that is this number to the last bit."""

    @abstractmethod
    def call(self, name: str, arguments: Sequence[str]) -> Text:
        """A call of sin, cos, sqrt, arctan2, exp, log, tanh, arctan or fma."""

    @abstractmethod
    def select(self, condition: str, then: Text, otherwise: Text) -> Text:
        """`then` where a condition, x < y or x <= y, holds."""

    def element(self, array: str, k: int) -> str:
        """A number of an argument."""
        return f"{array}[{k}]"

    def unused(self, name: str) -> list[str]:
        """Lines about an argument that nothing is read of."""
        return []

    # ---- the body

    def print(self) -> list[str]:
        """All lines of the body."""
        said, early = "", self.function.stores_early
        self.lines += [line for name in self._idle() for line in self.unused(name)]
        for symbol, link, nodes in self.program.sections():
            comment = self.function.label(symbol, link)
            if comment != said:
                self.lines += ([""] if self.lines else []) + [self.comment(comment)]
                said = comment
            for n in nodes:
                self._compute(n)
            for n in list(self._waiting):
                self._name(n)
        last = [n for n in self._results if not early or self.graph.ops[n] in ("const", "input")]
        if not early:
            for n in last:
                if self.graph.ops[n] == "input":  # which the first result may overwrite
                    self._statement(n, self._value(n)[0])
        if last and said != "results":
            self.lines += ["", self.comment("results")]
        self.lines += [
            self._stored(k, self._value(n)[0]) for k, n in sorted((k, n) for n in last for k in self._results[n])
        ]
        return self.lines

    def _idle(self) -> list[str]:
        """The arguments that nothing is read of."""
        used = {self.graph.args[n][0] for n in self._uses if self.graph.ops[n] == "input"}
        inputs = self.function.inputs
        ends = list(accumulate(n for _, n in inputs))
        return [name for (name, n), end in zip(inputs, ends, strict=True) if used.isdisjoint(range(end - n, end))]

    def _stored(self, k: int, text: str) -> str:
        return self.store(self._stores[k], text)

    def _compute(self, n: int) -> None:
        op, args = self.graph.ops[n], self.graph.args[n]
        if op in ("sin", "cos"):
            self._angle(n, op, args[0])
        elif op in COMPARISONS:
            if n in self.program.outputs:
                raise ValueError("a comparison is no number that a function could give")
            for x in args:
                self._name(x)  # it is written out wherever it decides
        else:
            text = self._operation(op, args)
            while len(text[0]) > _NESTED and (inside := [x for x in args if x in self._waiting]):
                self._name(max(inside, key=lambda x: len(self._waiting[x][0])))
                text = self._operation(op, args)
            for x in args:
                self._waiting.pop(x, None)
            self._waiting[n] = text
            if self._uses[n] > 1:
                self._name(n)

    def _value(self, n: int) -> Text:
        op, args = self.graph.ops[n], self.graph.args[n]
        if n in self._named:
            return self._named[n]
        if op == "const":
            text = self.number(args[0])
            return text, SIGN if text.startswith("-") else ATOM
        if op == "input":
            return self._places[args[0]], ATOM
        return self._waiting[n]

    def _name(self, n: int) -> None:
        """Ends the waiting of a value: it gets a name, or is stored if that is its only use."""
        if n in self._waiting:
            self._statement(n, self._waiting.pop(n)[0])

    def _statement(self, n: int, text: str) -> None:
        places = self._results.get(n, []) if self.function.stores_early else []
        if places and self._uses[n] == 1:
            self.lines.append(self._stored(places[0], text))
            return
        name = f"t{self._count}"
        self._count += 1
        self._named[n] = name, ATOM
        self.lines.append(self.constant(name, text))
        self.lines += [self._stored(k, name) for k in places]

    def _angle(self, n: int, op: str, angle: int) -> None:
        """Own code gives the sine and cosine of an angle together, where the first of them is wanted."""
        self._name(angle)
        x = self._value(angle)[0]
        short = re.sub(r"\W", "", x)
        name = f"{op}_{short}"
        self._named[n] = name, ATOM
        if not self.function.own_sincos:
            self.lines.append(self.constant(name, self.call(op, [x])[0]))
        elif angle not in self.angles:
            self.angles.add(angle)
            self.lines += self.sincos(x, f"sin_{short}", f"cos_{short}")
        if self.function.stores_early:
            self.lines += [self._stored(k, name) for k in self._results.get(n, ())]

    def _operation(self, op: str, args: tuple[int, ...]) -> Text:
        if op in _INFIX:
            sign, level = _INFIX[op]
            x, y = self._value(args[0]), self._value(args[1])
            return f"{at_level(x, level)} {sign} {at_level(y, level + 1)}", level
        if op == "neg":
            return "-" + at_level(self._value(args[0]), ATOM), SIGN
        if op in _FUSED_SIGNS:
            minus_a, minus_c = _FUSED_SIGNS[op]
            a, b, c = self._signed(args[0], minus_a), self._signed(args[1], False), self._signed(args[2], minus_c)
            return self.call("fma", [a, b, c])
        if op in ("sqrt", "arctan2", *elementary.FUNCTIONS):
            return self.call(op, [self._value(k)[0] for k in args])
        if op == "select":
            sign = "<" if self.graph.ops[args[0]] == "less" else "<="
            low, high = (self._value(k)[0] for k in self.graph.args[args[0]])
            return self.select(f"{low} {sign} {high}", self._value(args[1]), self._value(args[2]))
        raise ValueError(f"straight-line code cannot have the operation {op!r}")

    def _signed(self, n: int, minus: bool) -> str:
        if minus and self.graph.ops[n] == "const":
            return self.number(-self.graph.args[n][0])
        return "-" + at_level(self._value(n), ATOM) if minus else at_level(self._value(n), SUM)


def at_level(text: Text, level: int) -> str:
    """An expression where one that binds this tightly can stand, in parentheses if it must be."""
    return text[0] if text[1] >= level else f"({text[0]})"
