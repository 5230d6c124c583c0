"""Equal stretches of straight-line code, which need to be there only once.

M⁻¹ times one column is the same code as M⁻¹ times the next: the same operations on each other, on other numbers. What
a section, one symbol of one link, takes from outside and leaves there is in memory anyway, so that one function with a
table of places serves all sections of its form. Long code then stays in the caches that instructions come from.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from qddot.compiler.ops import LEAVES
from qddot.compiler.program import Program

LEAST = 100  # operations of a section below which a call and its table cost more than they save
MANY = 40_000  # operations of a program below which its code fits beside its values into the second cache


@dataclass(frozen=True)
class Stretch:
    """Nodes that follow each other; those of the same `form` are the same code."""

    nodes: list[int]
    form: Hashable = None


def stretches(program: Program, code: Sequence[int], ready: set[int]) -> list[Stretch]:
    """The code in order, cut before and after each section that has others of its form."""
    if len(code) < MANY:
        return [Stretch(list(code))]
    ends = [end for end, _, _ in program.graph.marks]
    sections = [list(nodes) for _, nodes in groupby(code, lambda n: bisect_right(ends, n))]
    home = {n: k for k, nodes in enumerate(sections) for n in nodes}
    args = program.graph.args
    left = {x for n in code for x in args[n] if home.get(x, home[n]) != home[n]}
    results = Counter(program.outputs)
    forms = [form(program, s, ready, left, results) if len(s) >= LEAST else None for s in sections]
    count = Counter(forms)
    shared = [(s, f if f is not None and count[f] > 1 else None) for s, f in zip(sections, forms, strict=True)]
    return list(_joined(shared))


def _joined(sections: list[tuple[list[int], Hashable]]) -> Iterator[Stretch]:
    for (k, form), found in groupby(enumerate(sections), lambda x: (x[0] if x[1][1] is not None else -1, x[1][1])):
        yield Stretch([n for _, (nodes, _) in found for n in nodes], form if k >= 0 else None)


def form(program: Program, section: list[int], ready: set[int], left: set[int], results: Counter[int]) -> Hashable:
    """What two sections must have alike to be the same code: operations, what they take, what they leave and where."""
    graph, seen = program.graph, dict[int, Hashable]()
    code = []
    for k, n in enumerate(section):
        code.append((graph.ops[n], *(_taken(program, x, ready, seen) for x in graph.args[n]), n in left, results[n]))
        seen[n] = k
    return tuple(code)


def _taken(program: Program, x: int, ready: set[int], seen: dict[int, Hashable]) -> Hashable:
    """An operand: of the section itself, a number, or the how manieth from which kind of memory."""
    if x not in seen:
        op = program.graph.ops[x]
        kind = "waves" if x in ready else op if op in LEAVES else "passed"
        if op in ("const", "less"):  # a number, or made anew: the very same in all sections
            return op, program.graph.args[x]
        seen[x] = kind, len(seen)
    return seen[x]
