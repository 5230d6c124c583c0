"""In which column of lanes each number of a result is computed."""

from __future__ import annotations

from dataclasses import dataclass

from qddot.compiler.codegen.llvm.streamed_output import Ring
from qddot.compiler.ir.packed_output import SHORT_RESULT_MAX_NUMBERS
from qddot.compiler.ir.program import Program


@dataclass(frozen=True)
class OutputColumns:
    """The columns of a result of `size` numbers: one each in order, `shared` by equal numbers, or a `ring` of them."""

    size: int
    shared: tuple[int, ...] | None = None  # the column of each number
    zero: int | None = None  # the column of zeros among the shared ones
    ring: Ring | None = None

    @property
    def count(self) -> int:
        """How many columns there are."""
        if self.ring is not None:
            return self.ring.columns
        return self.size if self.shared is None else 1 + max(self.shared)

    def column(self, k: int) -> int:
        """Where the k-th number is."""
        if self.ring is not None:
            return self.ring.column(k)
        return k if self.shared is None else self.shared[k]


def shared_columns(program: Program) -> OutputColumns:
    """Equal numbers of a long result, such as zeros and symmetric entries, share a column; a short result has one each."""
    outputs, graph = program.outputs, program.graph
    if len(outputs) <= SHORT_RESULT_MAX_NUMBERS:
        return OutputColumns(len(outputs))
    column: dict[int, int] = {}
    shared = tuple(column.setdefault(n, len(column)) for n in outputs)
    zeros = [shared[k] for k, n in enumerate(outputs) if graph.ops[n] == "const" and graph.args[n][0] == 0.0]
    return OutputColumns(len(outputs), shared, zeros[0] if zeros else None)
