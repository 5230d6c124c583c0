"""How the results of a block get from columns of lanes into the caller's memory: one plan for each way.

| plan          | columns            | a block is written                                                        |
|---------------|--------------------|---------------------------------------------------------------------------|
| Whole         | one for a number   | transposed in registers, or lane by lane                                  |
| SharedColumns | equal numbers share| by a table of columns, tile by tile                                       |
| Streamed      | equal numbers share| the same, with streaming stores if the whole result is long               |
| Staged        | as the first two   | likewise, by way of a buffer: for any lanes and type                      |
| Tiled         | a ring             | by the core itself, tile by tile, between its operations                  |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qddot.compiler.codegen.abi.operands import Operand, each_lane, move_block
from qddot.compiler.codegen.llvm.emitter import Emitter, number_bytes
from qddot.compiler.codegen.llvm.memory_plan import OutputColumns
from qddot.compiler.codegen.llvm.prefetch import WHOLE_OUTPUT_MAX_NUMBERS
from qddot.compiler.codegen.llvm.staged_output import Staging
from qddot.compiler.codegen.llvm.streamed_output import BEGIN_ROWS, CONTEXT_BYTES, END_ROWS, Ring, streamed_rows_function
from qddot.compiler.codegen.llvm.transpose import (
    copy_function,
    has_transposes,
    part_of_rows_function,
    shared_rows_function,
    transpose_function,
)
from qddot.compiler.ir.packed_output import SHORT_RESULT_MAX_NUMBERS

STREAMING_MIN_BYTES_AT = 9  # in %env: the bytes of a whole result from which on it is written with streaming stores


@dataclass(frozen=True)
class Whole:
    """A column for each number."""

    operand: Operand
    emitter: Emitter
    columns: OutputColumns

    context: ClassVar[tuple[str, ...]] = ()  # lines that allocate what the core needs for writing
    arguments: ClassVar[str] = ""  # of the core, for that

    @property
    def lanes(self) -> int:
        """States of a block."""
        return self.emitter.lanes

    @property
    def row_bytes(self) -> int:
        """Of scratch memory for rows."""
        return 0

    @property
    def transposes(self) -> bool:
        """Whether blocks are transposed in registers."""
        return has_transposes(self.lanes)

    def functions(self, scalar: bool) -> list[str]:
        """What `write` and the others call; without a scalar core the last block is written by a function too."""
        text = [copy_function("write0", self.operand.shape, self.operand.T, into_rows=True), *self._block_functions()]
        return text if scalar else [*text, *self._plain_functions()]

    def _block_functions(self) -> list[str]:
        return [transpose_function("rows0", self.operand.size, True, self.emitter)] if self.transposes else []

    def _plain_functions(self) -> list[str]:
        shape, T = self.operand.shape, self.operand.T
        return [copy_function("write_plain0", shape, T, into_rows=True, columns=self.columns.shared, plain=True)]

    def head(self, contiguous: str) -> list[str]:
        """Decisions before anything is computed."""
        return []

    def begin(self) -> list[str]:
        """Before the first block."""
        return []

    def before_block(self) -> list[str]:
        """Before the core is called for a block."""
        return []

    def write(self, contiguous: str) -> list[str]:
        """After the core; ends at %w.moved."""
        return move_block("w", self.lanes, contiguous, self._fast(), self._lane(("%first", "%w.lane")))

    def _fast(self) -> list[str]:
        """The block whose rows are contiguous."""
        if not self.transposes:
            return []
        return self.operand.transpose_block(self.lanes, prefetch=self.operand.size <= WHOLE_OUTPUT_MAX_NUMBERS)

    def _lane(self, state: tuple[str, str], plain: bool = False) -> list[str]:
        """One state out of a block."""
        return self.operand.copy_lane("write_plain0" if plain else "write0", self.lanes, state, plain)

    def end(self) -> list[str]:
        """After the last full block."""
        return []

    def begin_last(self) -> tuple[str, ...]:
        """Before the core is called for a block that its last state fills up."""
        return ()

    def end_last(self) -> tuple[str, ...]:
        """After that."""
        return ()

    def write_last(self, plain: bool) -> list[str]:
        """Lane %y.lane of that block, which is state %y.state."""
        return self._lane(("%y.base", "%y.lane"), plain)

    def finish(self) -> tuple[str, ...]:
        """At the very end."""
        return ()


@dataclass(frozen=True)
class SharedColumns(Whole):
    """Equal numbers share a column."""

    @property
    def shared(self) -> tuple[int, ...]:
        """The column of each number."""
        assert self.columns.shared is not None
        return self.columns.shared

    def _block_functions(self) -> list[str]:
        shape, T = self.operand.shape, self.operand.T
        text = [copy_function("write_lanes0", shape, T, into_rows=True, columns=self.shared)]
        return [*text, shared_rows_function("rows0", self.columns, self.emitter)] if self.transposes else text

    def _lane(self, state: tuple[str, str], plain: bool = False) -> list[str]:
        shared = "_lanes" if self.columns.count < self.operand.size else ""
        return self.operand.copy_lane(f"write{'_plain' if plain else shared}0", self.lanes, state, plain)


class _Streams:
    """What plans with streaming stores decide: %follow, whether rows follow each other; %stream, whether they are long."""

    operand: Operand
    emitter: Emitter

    @property
    def row(self) -> int:
        """Bytes of a state's result."""
        return number_bytes(self.operand.T) * self.operand.size

    def head(self, contiguous: str) -> list[str]:
        i, row = self.operand.index, self.row
        return [
            f"  %stream.p = getelementptr i64, ptr %env, i64 {STREAMING_MIN_BYTES_AT}",
            "  %stream.min = load i64, ptr %stream.p",
            f"  %stream.all = mul i64 %n, {row}",
            "  %stream.n = icmp ugt i64 %stream.all, %stream.min",
            f"  %stream.s = icmp eq i64 %s{i}, {row}",
            f"  %follow = and i1 %stream.s, {contiguous}",
            "  %stream = and i1 %stream.n, %follow",
        ]

    def finish(self) -> tuple[str, ...]:
        return self.emitter.target.architecture.streaming_fence


@dataclass(frozen=True)
class Streamed(_Streams, SharedColumns):
    """Equal numbers share a column; long results are written with streaming stores."""

    def _block_functions(self) -> list[str]:
        return [*super()._block_functions(), streamed_rows_function("stream0", self.shared, self.columns.zero)]

    def _fast(self) -> list[str]:
        i = self.operand.index
        return [
            "  br i1 %stream, label %w.stream, label %w.usual",
            "w.stream:",
            f"  %w.sf = mul i64 %first, %s{i}",
            f"  %w.sr = getelementptr i8, ptr %a{i}, i64 %w.sf",
            "  call void @stream0(ptr %w.sr, ptr %out)",
            "  br label %w.moved",
            "w.usual:",
            *super()._fast(),
        ]


class _Stages(_Streams):
    """Blocks go through a buffer, %rows."""

    columns: OutputColumns

    @property
    def staging(self) -> Staging:
        """The buffer."""
        return Staging(self.emitter.lanes, self.operand.size, self.operand.T)

    @property
    def row_bytes(self) -> int:
        return self.staging.bytes

    def _block_functions(self) -> list[str]:
        functions: list[str] = super()._block_functions()  # type: ignore[misc]
        return [*functions, part_of_rows_function("part0", self.columns, self.emitter), self.staging.functions()]

    def _fast(self) -> list[str]:
        i = self.operand.index
        usual: list[str] = super()._fast()  # type: ignore[misc]
        return [
            "  br i1 %stream, label %w.stream, label %w.usual",
            "w.stream:",
            f"  %w.sf = mul i64 %first, %s{i}",
            f"  %w.to = getelementptr i8, ptr %a{i}, i64 %w.sf",
            "  %w.first = icmp eq i64 %b, 0",
            "  call void @stream_block(ptr %w.to, ptr %out, ptr %rows, i1 %w.first)",
            "  br label %w.moved",
            "w.usual:",
            *usual,
        ]

    def end(self) -> list[str]:
        i = self.operand.index
        return [
            "  br i1 %stream, label %s.end, label %s.done",
            "s.end:",
            f"  %s.bytes = mul i64 %whole, %s{i}",
            f"  %s.to = getelementptr i8, ptr %a{i}, i64 %s.bytes",
            "  call void @stream_end(ptr %s.to, ptr %rows)",
            "  br label %s.done",
            "s.done:",
        ]


@dataclass(frozen=True)
class StagedWhole(_Stages, Whole):
    """A column for each number; long results go through a buffer."""


@dataclass(frozen=True)
class StagedSharedColumns(_Stages, SharedColumns):
    """Equal numbers share a column; long results go through a buffer."""


@dataclass(frozen=True)
class Tiled(_Streams, Whole):
    """The core writes tile by tile: into rows that follow each other, or else into %rows, whence they are copied."""

    context: ClassVar[tuple[str, ...]] = (f"  %context = alloca [{CONTEXT_BYTES} x i8], align 64",)
    arguments: ClassVar[str] = ", ptr %context"

    @property
    def ring(self) -> Ring:
        """Its columns."""
        assert self.columns.ring is not None
        return self.columns.ring

    @property
    def row_bytes(self) -> int:
        return self.ring.size * number_bytes(self.operand.T) * self.lanes

    def _block_functions(self) -> list[str]:
        return [self.ring.functions()]

    def _plain_functions(self) -> list[str]:
        return []

    def begin(self) -> list[str]:
        begin = f"  call void @begin_tiles(ptr %context, ptr %a{self.operand.index}, i1 %stream)"
        return ["  br i1 %follow, label %tiles, label %no_tiles", "tiles:", begin, "  br label %no_tiles", "no_tiles:"]

    def before_block(self) -> list[str]:
        go = ["  br label %go", "go:"]
        return ["  br i1 %follow, label %go, label %apart", "apart:", *BEGIN_ROWS, *go]

    def write(self, contiguous: str) -> list[str]:
        move = ["  %w.state = add i64 %first, %w.lane", *self._copy_row("w", "%w.state", plain=False)]
        return [
            "  br i1 %follow, label %w.follow, label %w.apart",
            "w.follow:",
            END_ROWS[0],
            "  br label %w.moved",
            "w.apart:",
            *END_ROWS,
            *each_lane("w", self.lanes, move, "w.apart"),
            "w.moved:",
        ]

    def _copy_row(self, t: str, state: str, plain: bool) -> list[str]:
        """Row %t.lane of %rows to a state, whose entries are contiguous or not."""
        p, i, n = f"%{t}.{'p' if plain else 'q'}", self.operand.index, self.ring.size
        strides = "".join(f", i64 {c}" for c in self.operand.strides)
        copy = f"@copy(ptr {p}.to, ptr {p}.from, i64 {n})"
        return [
            f"  {p}.off = mul i64 {state}, %s{i}",
            f"  {p}.to = getelementptr i8, ptr %a{i}, i64 {p}.off",
            f"  {p}.row = mul i64 %{t}.lane, {8 * n}",
            f"  {p}.from = getelementptr i8, ptr %rows, i64 {p}.row",
            f"  call void {copy if plain else f'@write0(ptr {p}.to, ptr {p}.from, i64 8{strides})'}",
        ]

    def end(self) -> list[str]:
        return ["  br i1 %follow, label %ends, label %no_ends", "ends:", END_ROWS[1], "  br label %no_ends", "no_ends:"]

    def begin_last(self) -> tuple[str, ...]:
        return BEGIN_ROWS

    def end_last(self) -> tuple[str, ...]:
        return END_ROWS

    def write_last(self, plain: bool) -> list[str]:
        return self._copy_row("y", "%y.state", plain)


OutputPlan = Whole


def output_plan(operand: Operand, emitter: Emitter, columns: OutputColumns, streams: bool) -> OutputPlan:
    """The plan for the columns of a core; `streams`: whether the target has streaming stores for its vectors."""
    if columns.ring is not None:
        return Tiled(operand, emitter, columns)
    if columns.shared is not None and streams:
        return Streamed(operand, emitter, columns)
    if columns.size > SHORT_RESULT_MAX_NUMBERS and has_transposes(emitter.lanes):
        return (StagedWhole if columns.shared is None else StagedSharedColumns)(operand, emitter, columns)
    return (Whole if columns.shared is None else SharedColumns)(operand, emitter, columns)
