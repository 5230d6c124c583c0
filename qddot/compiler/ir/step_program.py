"""One step of a simulation as programs: what the loop over time runs.

This module does not import programs, so that calling compiled steps does not load the tracer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from qddot.compiler.ir.program import Program


class Call(NamedTuple):
    """A function by its number, and the program of its arguments, from a step's inputs and the results of calls before."""

    function: int
    arguments: Program


class Step(NamedTuple):
    """A step as a program, and the functions that it calls on the way, each of them code that is there once.

    The inputs of `last` and of arguments are the step's own and then the results of all calls, one after the other. A
    function has its arguments as inputs, and then the step's held inputs and parameters.
    """

    last: Program
    calls: tuple[Call, ...] = ()
    functions: tuple[Program, ...] = ()

    def instructions(self) -> int:
        """Operations of a step."""
        inside = sum(len(self.functions[c.function].body) + len(c.arguments.body) for c in self.calls)
        return len(self.last.body) + inside

    def programs(self) -> list[Program]:
        """All of them."""
        return [*self.functions, *(c.arguments for c in self.calls), self.last]


class Layout(NamedTuple):
    """How many numbers a sample has of each kind, how many samples lie in lanes, scratch bytes, the type of the numbers."""

    n_state: int
    n_held: int
    n_parameters: int
    n_recorded: int
    lanes: int
    scratch: int = 0
    dtype: str = "float64"
    backwards: bool = False  # in time: each step has the number before that of the last one
    held_parts: tuple[int, ...] = ()  # where held inputs are several arrays, the numbers of each

    @property
    def n_inputs(self) -> int:
        """State, t and dt, held inputs, parameters: the inputs of the program, in this order."""
        return self.n_state + 2 + self.n_held + self.n_parameters
