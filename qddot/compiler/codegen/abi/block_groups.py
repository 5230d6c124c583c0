"""Several blocks of lanes at a time: each function of a program runs over a few blocks before the next one does.

The blocks do not depend on each other, so that the end of one and the beginning of the next are computed side by side; and
code that is longer than the first-level instruction cache is fetched once for all of them (decision 49). The loop over
blocks reads the inputs of a group, computes it, and writes its results.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

GROUP_MIN_OPS = 300  # of a program
LONG_PROGRAM_OPS = 4000  # from which on code is longer than the first-level instruction cache, also with 64-byte vectors
# Operations for each number of the result, by the registers of the processor: with fewer, writing it takes the time.
GROUP_MIN_OPS_PER_NUMBER, GROUP_MIN_OPS_PER_NUMBER_LONG = {16: 4, 32: 40}, 4
# Bytes that the columns and scratch memory of so many blocks may take in the first-level and in the second-level cache, by
# the registers of the processor; chosen by times on a Zen 5 with AVX2 and AVX-512.
GROUP_MAX_BYTES = {4: {16: 64 << 10, 32: 36 << 10}, 2: {16: 512 << 10, 32: 512 << 10}}
_PAGE, _APART = 4096, 320  # steps near multiples of a page would have loads wait for stores of another block


class Group(NamedTuple):
    """How many blocks, and the bytes from one to the next of their inputs, results and scratch memory."""

    blocks: int
    inputs: int
    output: int
    work: int


def group_of(operations: int, numbers: int, registers: int, sizes: tuple[int, int, int]) -> Group:
    """For a program with so many results, and the bytes that a block's inputs, results and scratch memory take."""
    is_long = operations >= LONG_PROGRAM_OPS
    a_number = GROUP_MIN_OPS_PER_NUMBER_LONG if is_long else GROUP_MIN_OPS_PER_NUMBER[registers]
    is_worth_it = operations >= max(GROUP_MIN_OPS, a_number * numbers)
    steps = [n + 2 * _APART if (n + _APART) % _PAGE < 2 * _APART else n for n in sizes]
    fitting = (n for n, most in GROUP_MAX_BYTES.items() if n * sum(steps) <= most[registers])
    return Group(next(fitting, 1) if is_worth_it else 1, *steps)


def group_loop(
    group: Group, lanes: int, read: list[str], core: list[str], write: list[str], wide: dict[int, str]
) -> list[str]:
    """The body of the loop over blocks, from %b on, up to %g.end.

    `read` moves inputs of block %b, state %first, to %in, and ends at %r.moved; `write` moves results from %out, and ends
    at %w.moved; `core` computes one block. `wide` has the inputs whose next rows a core prefetches, with their strides.
    """
    return [
        "  %g.left = sub i64 %full, %b",
        f"  %g.count = call i64 @llvm.smin.i64(i64 %g.left, i64 {group.blocks})",
        "  br label %g.read",
        "g.read:",
        "  %g.r = phi i64 [ 0, %block ], [ %g.r1, %r.moved ]",
        *_of_block("r", "%g.r", lanes, group),
        *renamed(read, {"in": "r.in", "first": "r.first"}),
        "  %g.r1 = add i64 %g.r, 1",
        "  %g.r.more = icmp ult i64 %g.r1, %g.count",
        "  br i1 %g.r.more, label %g.read, label %g.compute",
        "g.compute:",
        f"  %g.is_whole = icmp eq i64 %g.count, {group.blocks}",
        "  br i1 %g.is_whole, label %g.whole, label %g.single",
        "g.whole:",
        *_whole(group, lanes, wide),
        "  br label %g.write",
        "g.single:",
        "  %g.c = phi i64 [ 0, %g.compute ], [ %g.c1, %g.computed ]",
        *_of_block("c", "%g.c", lanes, group),
        *renamed(core, {"in": "c.in", "out": "c.out", "work": "c.work", "b.next": "c.next"}),
        "  br label %g.computed",
        "g.computed:",
        "  %g.c1 = add i64 %g.c, 1",
        "  %g.c.more = icmp ult i64 %g.c1, %g.count",
        "  br i1 %g.c.more, label %g.single, label %g.write",
        "g.write:",
        "  %g.w = phi i64 [ 0, %g.whole ], [ 0, %g.computed ], [ %g.w1, %w.moved ]",
        *_of_block("w", "%g.w", lanes, group),
        *renamed(write, {"out": "w.out", "first": "w.first_state", "b": "w.b"}),
        "  %g.w1 = add i64 %g.w, 1",
        "  %g.w.more = icmp ult i64 %g.w1, %g.count",
        "  br i1 %g.w.more, label %g.write, label %g.end",
        "g.end:",
    ]


def _of_block(t: str, number: str, lanes: int, group: Group) -> list[str]:
    """The memory of a block of the group, and its place in the batch."""
    first = "first_state" if t == "w" else "first"
    return [
        f"  %{t}.b = add i64 %b, {number}",
        f"  %{t}.next = add i64 %{t}.b, 1",
        f"  %{t}.{first} = mul i64 %{t}.b, {lanes}",
        *(
            line
            for name, step in (("in", group.inputs), ("out", group.output), ("work", group.work))
            for line in (
                f"  %{t}.{name}.o = mul i64 {number}, {step}",
                f"  %{t}.{name} = getelementptr i8, ptr %{name}, i64 %{t}.{name}.o",
            )
        ),
    ]


def _whole(group: Group, lanes: int, wide: dict[int, str]) -> list[str]:
    """The call for a whole group: the rows that it prefetches are those of the next one."""
    lines, more = [f"  %g.next = add i64 %b, {group.blocks}"], ""
    for i, stride in wide.items():
        lines += [
            f"  %g.step{i} = mul i64 {stride}, {lanes}",
            f"  %g.o{i} = mul i64 %g.next, %g.step{i}",
            f"  %g.rows{i} = getelementptr i8, ptr %a{i}, i64 %g.o{i}",
            f"  %g.none{i} = icmp eq i64 %g.step{i}, 0",
            f"  %g.next_block{i} = select i1 %g.none{i}, ptr %in, ptr %g.rows{i}",
        ]
        more += f", ptr %g.next_block{i}, i64 %g.step{i}"
    memory = f"ptr %in, i64 {group.inputs}, ptr %out, i64 {group.output}, ptr %work, i64 {group.work}"
    return [*lines, f"  call void @core{lanes}x{group.blocks}({memory}, ptr %env{more})"]


def renamed(lines: Iterable[str], names: dict[str, str]) -> list[str]:
    """Lines for one block as lines for one of a group."""
    pattern = re.compile(rf"%({'|'.join(map(re.escape, names))})(?![\w.])")
    return [pattern.sub(lambda found: f"%{names[found[1]]}", line) for line in lines]
