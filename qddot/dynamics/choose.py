"""The cheapest formulation of a function for one robot, by the operations of its trace."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from qddot.algorithms.sparse_factors import dof_above
from qddot.dynamics.catalogue import OF_WHOLE_LINKS, lookup
from qddot.dynamics.conditioning import is_ill_conditioned
from qddot.dynamics.function import Function
from qddot.dynamics.trace import rewriting, rolled, traced
from qddot.errors import KernelTooLargeError, NotRollableError
from qddot.mechanism.model import Model
from qddot.mechanism.simplify import has_parallel_axes, simplified

if TYPE_CHECKING:
    from qddot.compiler.ir.loop_program import Rolled
    from qddot.compiler.ir.program import Program

_MANY = 30_000  # instructions: where there are more, sums of angles save less than a hundredth and cost a second trace
_MOVES_Q = "differentiated"  # by itself, on dual numbers: frames taken at one instant, as sums of angles need, stay behind
_NO_HOPE = 2  # times the trace of another formulation: one that is longer will not be the cheapest
_LARGE = 1_000  # instructions of the first formulation from which others are traced only if they may win (decision 40)
_FAR = 1.25  # times the cost of another formulation: sums of angles shorten both, and do not make up for it
_LEAST_PER_PAIR = 8  # instructions for a pair of DoF, one carrying the other: an entry of M, of its factor, two in solving
_NEEDS_SUMS = frozenset({"newton_euler"})  # wins only where sums of angles shorten the first formulation as well


class Choice(NamedTuple):
    """A program, the same with products and sums fused, its formulation, whether sums of angles turn its links, and why."""

    program: Program
    line: Program
    method: str
    sums: bool
    why: str = ""

    @property
    def instructions(self) -> int:
        return len(self.line.body)

    @property
    def label(self) -> str:
        return f"{self.method} with sums of angles" if self.sums else self.method


def cheapest(model: Model, name: str, method: str, **needs: Any) -> Choice:
    """The program of a function by the requested formulation, or by the one of least `Program.cost`; sums of angles where
    they make it shorter.

    `auto` tries those of the function's formulations that win on some robot; `qddot compare` shows them all.
    """
    function = lookup(name, method)[0]
    first, *others = likely_methods(model, function, method) or (lookup(name, method)[1],)
    contest = _Contest(model, name, first, needs)
    for m in others:
        contest.enter(m, False)
    can_sum = needs.get("regroup", True) and not needs.get("free") and contest.first.instructions < _MANY
    if can_sum and sums_of_angles_help(model, function, first):
        for m in (first, *others):
            contest.enter(m, True)
    return contest.winner()


def sums_of_angles_help(model: Model, function: Function, method: str) -> bool:
    """Whether links of this robot may be turned by sums of angles in a formulation of a function."""
    if method in OF_WHOLE_LINKS or method == _MOVES_Q or rewriting(model, function) is not simplified:
        return False
    return has_parallel_axes(simplified(model))


class _Contest:
    """The formulations of a function that are traced for one robot."""

    def __init__(self, model: Model, name: str, first: str, needs: Mapping[str, Any]) -> None:
        self.model, self.name, self.needs = model, name, needs
        self.found: dict[tuple[str, bool], Choice] = {}
        self._trace(first, False)
        self.first = self.found[first, False]

    def enter(self, method: str, sums: bool) -> None:
        """Traces a formulation, if it may win."""
        if self._may_win(method, sums):
            with suppress(KernelTooLargeError):
                self._trace(method, sums, most=_NO_HOPE * len(self.first.program.graph))

    def _trace(self, method: str, sums: bool, most: int | None = None) -> None:
        from qddot.compiler.ir.fuse import fused

        program = traced(self.model, self.name, method, sums=sums, most=most, **self.needs)
        self.found[method, sums] = Choice(program, fused(program), method, sums)

    def _may_win(self, method: str, sums: bool) -> bool:
        """Of a small program all formulations may. A large one's is worth a trace only if it is not surely longer."""
        if sums and method == _MOVES_Q:
            return False
        if method == self.first.method or self.first.instructions < _LARGE:
            return True
        if not sums:
            return method not in _NEEDS_SUMS and self._least_instructions(method) < self.first.line.cost
        if method in _NEEDS_SUMS:
            shorter = self.found.get((self.first.method, True), self.first)
            return shorter.instructions < self.first.instructions
        plain = self.found.get((method, False))
        return plain is not None and plain.line.cost < _FAR * min(c.line.cost for c in self.found.values())

    def _least_instructions(self, method: str) -> float:
        """A low estimate, without a trace: factors of M as the tree has them, and a third for the bias."""
        if method != "composite_body_factored" or self.model.is_coupled or not self.name.startswith("forward_dynamics"):
            return 0
        above = dof_above(self.model)
        factors = sum(1 + len(above[i]) for carriers in above for i in carriers)
        return factors + _LEAST_PER_PAIR * sum(map(len, above)) + self.first.instructions / 3

    def winner(self) -> Choice:
        """The cheapest of the shortest of each formulation."""
        shortest: dict[str, Choice] = {}
        for c in sorted(self.found.values(), key=lambda c: c.instructions):
            shortest.setdefault(c.method, c)
        costs = ", ".join(f"{c.label} {c.line.cost} ({c.instructions} instructions)" for c in self.found.values())
        return min(shortest.values(), key=lambda c: c.line.cost)._replace(why=f"cost: {costs}")


def likely_methods(model: Model, function: Function, method: str) -> tuple[str, ...]:
    """The formulations that `auto` tries: none that loses digits on this robot."""
    found = function.auto if method == "auto" else ()
    if "composite_body_factored" in found and is_ill_conditioned(model):
        return tuple(m for m in found if m != "composite_body_factored") or ("articulated_body",)
    return found


def cheapest_rolled(model: Model, name: str, method: str, **needs: Any) -> tuple[Rolled, str]:
    """The same for rolled code; formulations that cannot be rolled are passed over, where none is left for all others."""
    function, own, _ = lookup(name, method)
    likely = likely_methods(model, function, method) or (own,)
    others = [m for m in function.methods if m not in likely] if method == "auto" else []
    found: list[tuple[Rolled, str]] = []
    error = NotRollableError("there is no formulation")
    for m in (*likely, *others):
        if found and m in others:
            break
        try:
            found.append((rolled(model, name, m, **needs), m))
        except NotRollableError as e:
            error = e
    if not found:
        raise error
    return min(found, key=lambda c: c[0].instructions())
