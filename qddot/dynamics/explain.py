"""Where a kernel's operations come from, by link and symbol."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from qddot.dynamics.trace import rolled, traced
from qddot.errors import printable
from qddot.mechanism.model import Model

if TYPE_CHECKING:
    from qddot.compiler.ir.loop_program import Segment


def explain(model: Model, name: str, method: str = "auto", **needs: Any) -> str:
    """Where a kernel's operations come from: how many compute which symbol of which link, in the order of the code."""
    from qddot.compiler.ir.ops import OPS

    program = traced(model, name, method, **needs)
    rows: dict[str, Counter[str]] = {}
    for symbol, link, nodes in program.sections():
        row = rows.setdefault(f"{model.link_names[link]}  {symbol}", Counter())
        for node in nodes:
            row.update(OPS[program.graph.ops[node]].counts)
    return _table("link and symbol", rows, program.count())


def explain_rolled(model: Model, name: str, method: str = "auto", **needs: Any) -> str:
    """The same for rolled code: the operations of each loop for one link of each kind, and those of all links together."""
    from qddot.compiler.ir.loop_program import AncestorWalk

    program = rolled(model, name, method, **needs)
    rows: dict[str, Counter[str]] = {}

    def tell(loop: str, members: Sequence[int], segment: Segment) -> None:
        first, more = program.names[members[0]], f" and {len(members) - 1} more" if len(members) > 1 else ""
        rows[f"{loop}  {first}{more}"] = Counter(segment.program.count())

    of_kind = [[i for i in range(1, len(program.kind)) if program.kind[i] == k] for k in range(max(program.kind) + 1)]
    for k, step in enumerate(program.loops, 1):
        if isinstance(step, AncestorWalk):
            for n, segment in enumerate(step.starts):
                tell(f"loop {k} columns", [i for i, kind in zip(step.rows, step.kinds, strict=True) if kind == n], segment)
        way = "through" if isinstance(step, AncestorWalk) else "inward" if step.backward else "outward"
        for links, segment in zip(of_kind, step.segments, strict=True):
            tell(f"loop {k} {way}", links, segment)
    return _table("loop and links", rows, program.count(), "total of all links")


def _table(head: str, rows: Mapping[str, Counter[str]], total: Mapping[str, int], last: str = "total") -> str:
    columns = [c for c in total if total[c]]
    rows = {printable(label): row for label, row in rows.items()}
    width = max([len(head), len(last), *map(len, rows)])
    lines = [f"{head:<{width}} " + "".join(f"{c:>9}" for c in columns)]
    for label, row in rows.items():
        if row:
            lines.append(f"{label:<{width}} " + "".join(f"{row[c] or '':>9}" for c in columns))
    return "\n".join([*lines, f"{last:<{width}} " + "".join(f"{total[c]:>9}" for c in columns)])
