"""Which cache lines are prefetched, and how far ahead."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from qddot.compiler.codegen.llvm.emitter import number_bytes

LINE_BYTES = 64
NARROW_INPUT_MAX_NUMBERS = 16  # of an input whose next block is prefetched at once; wider ones would stall, and interleave
WHOLE_OUTPUT_MAX_NUMBERS = 64  # of a result whose next block is prefetched at once; longer ones prefetch as they write
L1_PREFETCH_MAX_LINES = 256  # prefetched into L1; more go into L2, so as not to evict what is in use
ROW_PREFETCH_BYTES = 128  # that the prefetch of a long row is ahead of its stores
BLOCK_PREFETCH_MAX_BYTES = 16384  # of a block that is prefetched at once


def interleaved_lines(inputs: Sequence[tuple[int, ...]], lanes: int, T: str) -> list[int]:
    """Cache lines of each input that are prefetched between the operations of the previous block: all of wide inputs."""
    block = [prod(s) * lanes * number_bytes(T) for s in inputs]
    wide = [lanes > 1 and prod(s) > NARROW_INPUT_MAX_NUMBERS for s in inputs]
    return [-(-n // LINE_BYTES) if w else 0 for n, w in zip(block, wide, strict=True)]
