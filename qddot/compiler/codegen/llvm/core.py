"""The code of one block of states, which every ABI calls."""

from __future__ import annotations

from dataclasses import dataclass

from qddot.compiler.codegen.llvm.emitter import Emitter
from qddot.compiler.codegen.llvm.output_columns import OutputColumns


@dataclass(frozen=True)
class Core:
    """`@core{name}(in, out, work, env)` on columns of lanes, and the functions that it calls."""

    emitter: Emitter
    functions: tuple[str, ...]
    scratch: int  # numbers of a lane
    outputs: OutputColumns
    sincos_lanes: int = 1  # of the sine and cosine that it calls besides that of its own width
