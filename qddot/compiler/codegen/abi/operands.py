"""The array arguments of a batch loop, as LLVM text: states and blocks between arrays and the scratch columns.

In the loop, %a{i} is the memory of argument i, %s{i} the bytes from state to state, %c{i}_{j} those along its axis j.
Scratch memory is on the stack, or on the heap for the time of a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod

from qddot.compiler.codegen.llvm.emitter import number_bytes
from qddot.compiler.codegen.llvm.prefetch import BLOCK_PREFETCH_MAX_BYTES, LINE_BYTES

STACK_MAX_BYTES = 65536  # of scratch memory on the stack; more is allocated on the heap

NO_MEMORY_AT = 10  # in %env: set by a loop that found no memory

_ALIGN = 64


def padded(n: int) -> int:
    """Bytes up to the next cache line."""
    return -(-n // _ALIGN) * _ALIGN


def scratch_memory(sizes: dict[str, int]) -> tuple[list[str], list[str]]:
    """Lines that allocate each name with so many bytes, aligned to 64, and go to %entry, and lines that free them.

    If the heap is exhausted, the loop does nothing but say so in its environment and set MemoryError in its own thread,
    like C functions of Python do: it takes the GIL for that, which NumPy may have released. The caller of the ufunc gets
    the error, and nobody else. Threads that are not Python's have an environment of their own, without those functions.
    """
    parts, offset = list[str](), 0
    for name, size in sizes.items():
        parts.append(f"  %{name} = getelementptr i8, ptr %scratch, i64 {offset}")
        offset += padded(size)
    parts.append("  br label %entry")
    total = max(_ALIGN, offset)
    if total <= STACK_MAX_BYTES:
        return [f"  %scratch = alloca [{total} x i8], align {_ALIGN}", *parts], []
    allocate = [
        *_library_function("take", 3),
        f"  %raw = call ptr %take(i64 {total + _ALIGN})",
        "  %none = icmp eq ptr %raw, null",
        "  br i1 %none, label %fail, label %taken",
        "fail:",
        f"  %failed.p = getelementptr i64, ptr %env, i64 {NO_MEMORY_AT}",
        "  store i64 1, ptr %failed.p",
        *_library_function("with_python", 5),
        "  %is.python = icmp ne ptr %with_python, null",
        "  br i1 %is.python, label %raise.it, label %finish",
        "raise.it:",
        *(line for k, x in enumerate(("ensure", "raise", "release")) for line in _library_function(x, 5 + k)),
        "  %gil = call i32 %ensure()",
        "  %null = call ptr %raise()",
        "  call void %release(i32 %gil)",
        "  br label %finish",
        "taken:",
        "  %raw.i = ptrtoint ptr %raw to i64",
        f"  %up = add i64 %raw.i, {_ALIGN - 1}",
        f"  %aligned = and i64 %up, {-_ALIGN}",
        "  %scratch = inttoptr i64 %aligned to ptr",
        *parts,
    ]
    return allocate, [*_library_function("free", 4), "  call void %free(ptr %raw)"]


def _library_function(name: str, index: int) -> list[str]:
    """Lines that read a function out of %env (`llvm_compile.library_functions`)."""
    return [f"  %{name}.p = getelementptr ptr, ptr %env, i64 {index}", f"  %{name} = load ptr, ptr %{name}.p"]


Shape = tuple[int, ...]


@dataclass(frozen=True)
class Operand:
    """Argument `index` of the loop: number `number` of the inputs or of the outputs."""

    index: int
    number: int
    shape: Shape
    column: int  # its first one in the scratch memory
    is_input: bool
    T: str

    @property
    def size(self) -> int:
        """Numbers of one state."""
        return prod(self.shape)

    @property
    def strides(self) -> list[str]:
        """The names of its strides."""
        return [f"%c{self.index}_{j}" for j in range(len(self.shape))]

    @property
    def scratch(self) -> str:
        """The memory of its columns."""
        return "%in" if self.is_input else "%out"

    @property
    def contiguous(self) -> list[str]:
        """Names of flags: whether strides are those of contiguous entries."""
        return [f"{c}.ok" for c, d in zip(self.strides, self.shape, strict=True) if d > 1]

    def load(self, first_stride: int) -> list[str]:
        """Reads memory and strides from the tables that NumPy gives."""
        i = self.index
        lines = [
            f"  %a{i}.p = getelementptr ptr, ptr %args, i64 {i}",
            f"  %a{i} = load ptr, ptr %a{i}.p",
            f"  %s{i}.p = getelementptr i64, ptr %steps, i64 {i}",
            f"  %s{i} = load i64, ptr %s{i}.p",
        ]
        for j, c in enumerate(self.strides):
            lines.append(f"  {c}.p = getelementptr i64, ptr %steps, i64 {first_stride + j}")
            lines.append(f"  {c} = load i64, ptr {c}.p")
            if self.shape[j] > 1:
                lines.append(f"  {c}.ok = icmp eq i64 {c}, {number_bytes(self.T) * prod(self.shape[j + 1 :])}")
        return lines

    def copy_lane(self, function: str, width: int, state: tuple[str, str], plain: bool = False) -> list[str]:
        """Moves state `base + lane` between the array and a lane of the columns; `plain`: its entries are contiguous."""
        base, lane = state
        tag, size = f"{self.index}_{width}_{lane.strip('%')}{'_p' if plain else ''}", number_bytes(self.T)
        strides = "" if plain else "".join(f", i64 {c}" for c in self.strides)
        return [
            f"  %at{tag} = add i64 {base}, {lane}",
            f"  %off{tag} = mul i64 %at{tag}, %s{self.index}",
            f"  %row{tag} = getelementptr i8, ptr %a{self.index}, i64 %off{tag}",
            f"  %lane{tag} = mul i64 {lane}, {size}",
            f"  %first{tag} = add i64 %lane{tag}, {self.column * size * width}",
            f"  %col{tag} = getelementptr i8, ptr {self.scratch}, i64 %first{tag}",
            f"  call void @{function}(ptr %row{tag}, ptr %col{tag}, i64 {size * width}{strides})",
        ]

    def row_pointer(self) -> list[str]:
        """%pr{i}, the row of state %t."""
        i = self.index
        return [f"  %po{i} = mul i64 %t, %s{i}", f"  %pr{i} = getelementptr i8, ptr %a{i}, i64 %po{i}"]

    def copy_row(self) -> list[str]:
        """Moves a contiguous row from %pr{i} to the scratch memory of one lane, or back."""
        row, column = f"%pr{self.index}", f"%pc{self.index}"
        source, target = (row, column) if self.is_input else (column, row)
        return [
            f"  {column} = getelementptr i8, ptr {self.scratch}, i64 {self.column * number_bytes(self.T)}",
            f"  call void @copy(ptr {target}, ptr {source}, i64 {self.size})",
        ]

    def transpose_block(self, lanes: int, prefetch: bool) -> list[str]:
        """Transposes the contiguous rows of a block in registers, and prefetches those of the next block."""
        i, t, kind = self.index, "r" if self.is_input else "w", "columns" if self.is_input else "rows"
        lines = [
            f"  %{t}.f{i} = mul i64 %first, %s{i}",
            f"  %{t}.r{i} = getelementptr i8, ptr %a{i}, i64 %{t}.f{i}",
            f"  %{t}.c{i} = getelementptr i8, ptr {self.scratch}, i64 {self.column * number_bytes(self.T) * lanes}",
            f"  call void @{kind}{self.number}(ptr %{t}.r{i}, i64 %s{i}, ptr %{t}.c{i})",
        ]
        if prefetch:
            lines += [
                f"  %{t}.l{i} = mul i64 %s{i}, {lanes}",
                f"  %{t}.n{i} = getelementptr i8, ptr %{t}.r{i}, i64 %{t}.l{i}",
                f"  call void @prefetch_{kind}(ptr %{t}.n{i}, i64 %{t}.l{i})",
            ]
        return lines


def operands(inputs: Sequence[Shape], output: Shape, T: str) -> tuple[list[Operand], Operand]:
    """The arguments of a loop: inputs, then the output."""
    first = accumulate(map(prod, inputs), initial=0)
    made = [Operand(k, k, s, c, True, T) for k, (s, c) in enumerate(zip(inputs, first, strict=False))]
    return made, Operand(len(inputs), 0, output, 0, False, T)


def each_lane(t: str, lanes: int, move: list[str], before: str) -> list[str]:
    """`move` for every lane %{t}.lane of a block, one after another; ends at %{t}.moved."""
    return [
        f"  br label %{t}.one",
        f"{t}.one:",
        f"  %{t}.lane = phi i64 [ 0, %{before} ], [ %{t}.lane1, %{t}.one ]",
        *move,
        f"  %{t}.lane1 = add i64 %{t}.lane, 1",
        f"  %{t}.lanes = icmp ult i64 %{t}.lane1, {lanes}",
        f"  br i1 %{t}.lanes, label %{t}.one, label %{t}.moved",
    ]


def move_block(t: str, lanes: int, contiguous: str, fast: list[str], lane: list[str]) -> list[str]:
    """Moves a block: `fast`, if there is such code, where rows are contiguous; lane by lane elsewhere."""
    return [
        f"  br i1 {contiguous if fast else 'false'}, label %{t}.fast, label %{t}.slow",
        f"{t}.fast:",
        *fast,
        f"  br label %{t}.moved",
        f"{t}.slow:",
        *each_lane(t, lanes, lane, f"{t}.slow"),
        f"{t}.moved:",
    ]


def prefetch_function(kind: str, write: int) -> str:
    """Prefetches so many bytes, at most 16 kB of them, and none where steps from state to state are negative or zero."""
    return f"""define internal void @prefetch_{kind}(ptr %at, i64 %bytes) {{
entry:
  %small = call i64 @llvm.smin.i64(i64 %bytes, i64 {BLOCK_PREFETCH_MAX_BYTES})
  %any = icmp sgt i64 %small, 0
  br i1 %any, label %line, label %done
line:
  %i = phi i64 [ 0, %entry ], [ %next, %line ]
  %p = getelementptr i8, ptr %at, i64 %i
  call void @llvm.prefetch.p0(ptr %p, i32 {write}, i32 3, i32 1)
  %next = add i64 %i, {LINE_BYTES}
  %more = icmp slt i64 %next, %small
  br i1 %more, label %line, label %done
done:
  ret void
}}
"""


def copy_contiguous_function(T: str) -> str:
    """Copies contiguous numbers, four at a time. (LLVM's own memcpy may become a call of the C library.)"""
    return f"""define internal void @copy(ptr %to, ptr %from, i64 %n) {{
entry:
  %fours = and i64 %n, -4
  %any4 = icmp ugt i64 %fours, 0
  br i1 %any4, label %four, label %rest
four:
  %i = phi i64 [ 0, %entry ], [ %i4, %four ]
  %f4 = getelementptr {T}, ptr %from, i64 %i
  %t4 = getelementptr {T}, ptr %to, i64 %i
  %v4 = load <4 x {T}>, ptr %f4, align 1
  store <4 x {T}> %v4, ptr %t4, align 1
  %i4 = add i64 %i, 4
  %more4 = icmp ult i64 %i4, %fours
  br i1 %more4, label %four, label %rest
rest:
  %any = icmp ult i64 %fours, %n
  br i1 %any, label %one, label %done
one:
  %j = phi i64 [ %fours, %rest ], [ %j1, %one ]
  %f1 = getelementptr {T}, ptr %from, i64 %j
  %t1 = getelementptr {T}, ptr %to, i64 %j
  %v1 = load {T}, ptr %f1, align 1
  store {T} %v1, ptr %t1, align 1
  %j1 = add i64 %j, 1
  %more1 = icmp ult i64 %j1, %n
  br i1 %more1, label %one, label %done
done:
  ret void
}}
"""
