"""Long results with streaming stores by way of a buffer, for any lanes and type, as LLVM text.

The rows of a block follow each other in memory. Some numbers of all rows at a time are transposed into a buffer, where each
row lies at the same place in a cache line as in the result, and whole lines are written from there: bursts of a few lines
between transposes overlap with them. What is left of a row's last line waits for the next numbers of that row. A line with
the end of one row and the beginning of the next is put together from both; only the first and the last line of a whole
result may be partial.
"""

from __future__ import annotations

from dataclasses import dataclass

from qddot.compiler.codegen.llvm.emitter import number_bytes
from qddot.compiler.codegen.llvm.prefetch import LINE_BYTES

LINES_AT_ONCE = 8  # of each row, between transposes


@dataclass(frozen=True)
class Staging:
    """The buffer of a block of rows: a line for the end of the last block, the first lines of rows, parts of rows."""

    lanes: int
    numbers: int  # of a row
    T: str

    @property
    def row(self) -> int:
        """Bytes of a row."""
        return self.numbers * number_bytes(self.T)

    @property
    def part(self) -> int:
        """Numbers of a row that are transposed at once; the last part has up to twice as many."""
        return LINES_AT_ONCE * LINE_BYTES // number_bytes(self.T)

    @property
    def parts(self) -> int:
        return max(1, self.numbers // self.part)

    @property
    def shift(self) -> int:
        """Bytes by which a row is further in its cache line than the row before."""
        return self.row % LINE_BYTES

    @property
    def room(self) -> int:
        """Bytes for a part of a row, a power of two: none has a page boundary in it.

        A store across one waits until all streaming stores before it are done: a kernel took 2.7 times as long.
        """
        needed = LINE_BYTES + 2 * LINES_AT_ONCE * LINE_BYTES + (self.lanes - 1) * self.shift
        return 1 << (needed - 1).bit_length()

    @property
    def pitch(self) -> int:
        """Bytes from row to row of the buffer: as in the result but for whole lines."""
        return self.room + self.shift

    @property
    def bytes(self) -> int:
        """Of the buffer."""
        return LINE_BYTES * (self.lanes + 1) + (self.lanes + 1) * self.room

    @property
    def line(self) -> str:
        """The type of a cache line."""
        return f"<{LINE_BYTES // number_bytes(self.T)} x {self.T}>"

    def functions(self) -> str:
        """`@stream_block(to, columns, buffer, first)` writes a block; `@stream_end(end, buffer)` the end of the last."""
        block = "".join([self._parts(), self._rows(), self._shared_lines(), self._joined_lines(), self._keep_end()])
        return f"{block}\n{self._end()}"

    def _parts(self) -> str:
        """For each part of the rows: transposes it into the buffer."""
        size, last = number_bytes(self.T), self.numbers - self.part * (self.parts - 1)
        return f"""define internal void @stream_block(ptr %to, ptr %columns, ptr noalias %buffer, i1 %first) {{
entry:
  %to.i = ptrtoint ptr %to to i64
  %off = and i64 %to.i, {LINE_BYTES - 1}
  %stage.u = getelementptr i8, ptr %buffer, i64 {LINE_BYTES * (self.lanes + 1) + self.room - 1}
  %stage.i = ptrtoint ptr %stage.u to i64
  %stage.a = and i64 %stage.i, {-self.room}
  %stage = inttoptr i64 %stage.a to ptr
  %place = getelementptr i8, ptr %stage, i64 %off
  br label %part
part:
  %p = phi i64 [ 0, %entry ], [ %p1, %part.done ]
  %p1 = add i64 %p, 1
  %is.first = icmp eq i64 %p, 0
  %is.last = icmp eq i64 %p1, {self.parts}
  %count = select i1 %is.last, i64 {last}, i64 {self.part}
  %from = mul i64 %p, {self.part}
  call void @part0(ptr %place, i64 {self.pitch}, ptr %columns, i64 %from, i64 %count)
  %count.b = mul i64 %count, {size}
  %from.b = mul i64 %from, {size}
  br label %row
"""

    def _rows(self) -> str:
        """For each row: writes whole lines, but for a first one that has the end of the row before."""
        line = self.line
        return f"""row:
  %r = phi i64 [ 0, %part ], [ %r1, %row.done ]
  %r1 = add i64 %r, 1
  %r.to = mul i64 %r, {self.row}
  %to.r = add i64 %to.i, %r.to
  %off.r = and i64 %to.r, {LINE_BYTES - 1}
  %r.stage = mul i64 %r, {self.pitch}
  %r.at = add i64 %r.stage, %off
  %r.begin = sub i64 %r.at, %off.r
  %stage.r = getelementptr i8, ptr %stage, i64 %r.begin
  %to.line = sub i64 %to.r, %off.r
  %to.at = add i64 %to.line, %from.b
  %to.p = inttoptr i64 %to.at to ptr
  %end = add i64 %off.r, %count.b
  %whole = and i64 %end, {-LINE_BYTES}
  %is.shared = icmp ne i64 %off.r, 0
  %is.head = and i1 %is.first, %is.shared
  br i1 %is.head, label %head, label %begin
head:
  %head.o = mul i64 %r1, {LINE_BYTES}
  %head.p = getelementptr i8, ptr %buffer, i64 %head.o
  %head.x = load {line}, ptr %stage.r, align {LINE_BYTES}
  store {line} %head.x, ptr %head.p, align {LINE_BYTES}
  br label %begin
begin:
  %start = select i1 %is.head, i64 {LINE_BYTES}, i64 0
  %any = icmp ult i64 %start, %whole
  br i1 %any, label %line, label %rest
line:
  %i = phi i64 [ %start, %begin ], [ %i1, %line ]
  %i.from = getelementptr i8, ptr %stage.r, i64 %i
  %i.to = getelementptr i8, ptr %to.p, i64 %i
  %x = load {line}, ptr %i.from, align {LINE_BYTES}
  store {line} %x, ptr %i.to, align {LINE_BYTES}, !nontemporal !2
  %i1 = add i64 %i, {LINE_BYTES}
  %i.more = icmp ult i64 %i1, %whole
  br i1 %i.more, label %line, label %rest
rest:
  %rest.p = getelementptr i8, ptr %stage.r, i64 %whole
  %left = load {line}, ptr %rest.p, align {LINE_BYTES}
  store {line} %left, ptr %stage.r, align {LINE_BYTES}
  br label %row.done
row.done:
  %r.more = icmp ult i64 %r1, {self.lanes}
  br i1 %r.more, label %row, label %part.done
part.done:
  %p.more = icmp ult i64 %p1, {self.parts}
  br i1 %p.more, label %part, label %seams
"""

    def _shared_lines(self) -> str:
        """For each line with the end of a row and the beginning of the next: where both are."""
        return f"""seams:
  br label %seam
seam:
  %s = phi i64 [ 0, %seams ], [ %s1, %seam.done ]
  %s1 = add i64 %s, 1
  %s.to = mul i64 %s, {self.row}
  %to.s = add i64 %to.i, %s.to
  %off.s = and i64 %to.s, {LINE_BYTES - 1}
  %is.seam = icmp ne i64 %off.s, 0
  br i1 %is.seam, label %own, label %seam.done
own:
  %own.o = mul i64 %s1, {LINE_BYTES}
  %own.p = getelementptr i8, ptr %buffer, i64 %own.o
  %own.line = sub i64 %to.s, %off.s
  %own.to = inttoptr i64 %own.line to ptr
  %no.before = icmp eq i64 %s, 0
  %before = sub i64 %s, 1
  %before.to = mul i64 %before, {self.row}
  %before.i = add i64 %to.i, %before.to
  %before.off = and i64 %before.i, {LINE_BYTES - 1}
  %before.stage = mul i64 %before, {self.pitch}
  %before.at = add i64 %before.stage, %off
  %before.begin = sub i64 %before.at, %before.off
  %before.r = getelementptr i8, ptr %stage, i64 %before.begin
  %tail = select i1 %no.before, ptr %buffer, ptr %before.r
  %alone = and i1 %first, %no.before
  br i1 %alone, label %number, label %joined
"""

    def _joined_lines(self) -> str:
        """Puts both together and writes the line; of the very first line only the second part is ours."""
        size, line = number_bytes(self.T), self.line
        return f"""number:
  %k = phi i64 [ %off.s, %own ], [ %k1, %number ]
  %k.from = getelementptr i8, ptr %own.p, i64 %k
  %k.to = getelementptr i8, ptr %own.to, i64 %k
  %k.x = load {self.T}, ptr %k.from
  store {self.T} %k.x, ptr %k.to
  %k1 = add i64 %k, {size}
  %k.more = icmp ult i64 %k1, {LINE_BYTES}
  br i1 %k.more, label %number, label %seam.done
joined:
  %j = phi i64 [ 0, %own ], [ %j1, %joined ]
  %j.from = getelementptr i8, ptr %tail, i64 %j
  %j.to = getelementptr i8, ptr %own.p, i64 %j
  %j.x = load {self.T}, ptr %j.from
  store {self.T} %j.x, ptr %j.to
  %j1 = add i64 %j, {size}
  %j.more = icmp ult i64 %j1, %off.s
  br i1 %j.more, label %joined, label %write
write:
  %w.x = load {line}, ptr %own.p, align {LINE_BYTES}
  store {line} %w.x, ptr %own.to, align {LINE_BYTES}, !nontemporal !2
  br label %seam.done
seam.done:
  %s.more = icmp ult i64 %s1, {self.lanes}
  br i1 %s.more, label %seam, label %keep
"""

    def _keep_end(self) -> str:
        """The end of the last row waits for the next block."""
        line = self.line
        return f"""keep:
  %end.p = getelementptr i8, ptr %stage, i64 {(self.lanes - 1) * self.pitch}
  %end.to = add i64 %to.i, {(self.lanes - 1) * self.row}
  %end.off = and i64 %end.to, {LINE_BYTES - 1}
  %end.at = sub i64 %off, %end.off
  %end.q = getelementptr i8, ptr %end.p, i64 %end.at
  %end.x = load {line}, ptr %end.q, align {LINE_BYTES}
  store {line} %end.x, ptr %buffer, align {LINE_BYTES}
  ret void
}}
"""

    def _end(self) -> str:
        size = number_bytes(self.T)
        return f"""define internal void @stream_end(ptr %end, ptr noalias %buffer) {{
entry:
  %end.i = ptrtoint ptr %end to i64
  %off = and i64 %end.i, {LINE_BYTES - 1}
  %off.n = sub i64 0, %off
  %line = getelementptr i8, ptr %end, i64 %off.n
  %any = icmp ne i64 %off, 0
  br i1 %any, label %number, label %done
number:
  %k = phi i64 [ 0, %entry ], [ %k1, %number ]
  %from = getelementptr i8, ptr %buffer, i64 %k
  %to = getelementptr i8, ptr %line, i64 %k
  %x = load {self.T}, ptr %from
  store {self.T} %x, ptr %to
  %k1 = add i64 %k, {size}
  %more = icmp ult i64 %k1, %off
  br i1 %more, label %number, label %done
done:
  ret void
}}
"""
