"""The fast path for one state, as LLVM text: a METH_FASTCALL function that Python calls directly.

A ufunc spends most of a microsecond on dispatch. `@call` takes exactly what a control loop gives it: contiguous arrays of
one state in the kernel's own type. Anything else, and any result that is not finite, goes to the general function that it
was given, or gives None. It holds the GIL: it takes about a microsecond.

It reads NumPy's array structure, which is part of NumPy's binary interface (`runtime.fastcall` probes it).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from qddot.compiler.codegen.abi.operands import STACK_MAX_BYTES, Shape
from qddot.compiler.codegen.llvm.emitter import number_bytes
from qddot.compiler.runtime.array_layout import (
    AXES,
    BYTES,
    DATA,
    DESCR,
    DIMENSIONS,
    FLAGS,
    TUPLE_ITEMS,
    TUPLE_LENGTH,
    USABLE,
    WRITEABLE,
)

FASTCALL_MAX_NUMBERS = 2048  # in and out: the overhead of a call does not matter for more
_TYPE_NUMBER = {"double": 12, "float": 11}


def has_call(inputs: Sequence[Shape], output: Shape, work: int, size: int) -> bool:
    """Whether a kernel gets the function: results that are arrays, scratch that fits on the stack."""
    numbers = sum(prod(s) for s in inputs) + prod(output)
    return bool(output) and prod(output) > 0 and numbers <= FASTCALL_MAX_NUMBERS and work * size <= STACK_MAX_BYTES


def render(inputs: Sequence[Shape], output: Shape, work: int, T: str) -> str:
    """`@call(self, args, nargs, names)`, a METH_FASTCALL function; `self` is a bytes object, see `_environment`."""
    n_in, n_out, n = sum(prod(s) for s in inputs), prod(output), len(inputs)
    lines = [
        "entry:",
        f"  %own = alloca [{n_out} x {T}], align 64",
        f"  %in = alloca [{max(n_in, 1)} x {T}], align 64",
        f"  %work = alloca [{max(work, 1)} x {T}], align 64",
        f"  %dims = alloca [{len(output)} x i64], align 8",
    ]
    for k, name in enumerate(("type", "descr", "new", "none", "take", "drop", "library", "hand", "word", "general")):
        lines.append(f"  %{name}.p = getelementptr i8, ptr %self, i64 {BYTES + 8 * k}")
        lines.append(f"  %{name} = load ptr, ptr %{name}.p")
    lines += [
        f"  %count = icmp eq i64 %nargs, {n}",
        "  %fresh = icmp eq ptr %names, null",
        "  br i1 %count, label %names.look, label %other",
        "names.look:",
        "  br i1 %fresh, label %check0, label %named",
        *_only_name("%word"),
    ]
    at = 0
    for i, shape in enumerate(inputs):
        lines += _check(i, shape)
        lines += copy_input(i, prod(shape), at, T)
        lines.append(f"  br label %check{i + 1}" if i + 1 < n else "  br i1 %fresh, label %make, label %out.given")
        at += prod(shape)
    # the value of a keyword follows the arguments; it may overlap them, and is written when the result is known to be good
    lines += ["out.given:", f"  br label %check{n}", *_check(n, output, USABLE | WRITEABLE), "  br label %compute", "make:"]
    lines += [
        *_make(output, T),
        "compute:",
        f"  %data = phi ptr [ %data.new, %made ], [ %own, %copy{n} ]",
        f"  %result = phi ptr [ %array, %made ], [ %a{n}, %copy{n} ]",
        f"  %result.data = phi ptr [ %data.new, %made ], [ %data{n}, %copy{n} ]",
        "  call void @core1(ptr %in, ptr %data, ptr %work, ptr %library)",
    ]
    lines += [*_all_finite(n_out, T), *_return(n_out)]
    return "define ptr @call(ptr %self, ptr %args, i64 %nargs, ptr %names) {\n" + "\n".join(lines) + "\n}\n"


def _make(output: Shape, T: str) -> list[str]:
    """A new array, whose memory is %data.new; ends at %made."""
    lines = list[str]()
    for k, d in enumerate(output):
        lines += [f"  %dim{k} = getelementptr i64, ptr %dims, i64 {k}", f"  store i64 {d}, ptr %dim{k}"]
    return [
        *lines,
        f"  %array = call ptr %new(ptr %type, i32 {len(output)}, ptr %dims, i32 {_TYPE_NUMBER[T]}, ptr null, ptr null, "
        "i32 0, i32 0, ptr null)",
        "  %failed = icmp eq ptr %array, null",
        "  br i1 %failed, label %nothing, label %made",
        "nothing:",
        "  ret ptr null",
        "made:",
        f"  %data.p = getelementptr i8, ptr %array, i64 {DATA}",
        "  %data.new = load ptr, ptr %data.p",
        "  br label %compute",
    ]


def _return(n_out: int) -> list[str]:
    """From %good: the new array, or the given one with the result in it. From %bad: what the general function gives."""
    return [
        "good:",
        "  br i1 %fresh, label %return.new, label %return.out",
        "return.new:",
        "  ret ptr %result",
        "return.out:",
        f"  call void @copy(ptr %result.data, ptr %own, i64 {n_out})",
        "  call void %take(ptr %result)",
        "  ret ptr %result",
        "bad:",
        "  br i1 %fresh, label %drop.new, label %other",
        "drop.new:",
        "  call void %drop(ptr %result)",
        "  br label %other",
        "other:",
        "  %alone = icmp eq ptr %general, null",
        "  br i1 %alone, label %nobody, label %somebody",
        "nobody:",
        "  call void %take(ptr %none)",
        "  ret ptr %none",
        "somebody:",
        "  %answer = call ptr %hand(ptr %general, ptr %args, i64 %nargs, ptr %names)",
        "  ret ptr %answer",
    ]


def _only_name(name: str) -> list[str]:
    """Goes to %check0 if the names of keywords, a tuple, are this one alone."""
    return [
        "named:",
        f"  %names.n.p = getelementptr i8, ptr %names, i64 {TUPLE_LENGTH}",
        "  %names.n = load i64, ptr %names.n.p",
        "  %names.one = icmp eq i64 %names.n, 1",
        "  br i1 %names.one, label %named.one, label %other",
        "named.one:",
        f"  %names.0.p = getelementptr i8, ptr %names, i64 {TUPLE_ITEMS}",
        "  %names.0 = load ptr, ptr %names.0.p",
        f"  %names.right = icmp eq ptr %names.0, {name}",
        "  br i1 %names.right, label %check0, label %other",
    ]


def _check(i: int, shape: Shape, flags: int = USABLE) -> list[str]:
    """Whether argument i is an array of this shape and the right type; `%data{i}` is its content."""
    lines = [
        f"check{i}:",
        f"  %a{i}.p = getelementptr ptr, ptr %args, i64 {i}",
        f"  %a{i} = load ptr, ptr %a{i}.p",
        f"  %type{i}.p = getelementptr i8, ptr %a{i}, i64 8",
        f"  %type{i} = load ptr, ptr %type{i}.p",
        f"  %is{i} = icmp eq ptr %type{i}, %type",
        f"  br i1 %is{i}, label %array{i}, label %other",
        f"array{i}:",
    ]
    tests = []
    for name, kind, offset in (("nd", "i32", AXES), ("dtype", "ptr", DESCR), ("flags", "i32", FLAGS)):
        lines.append(f"  %{name}{i}.p = getelementptr i8, ptr %a{i}, i64 {offset}")
        lines.append(f"  %{name}{i} = load {kind}, ptr %{name}{i}.p")
    lines += [
        f"  %t0_{i} = icmp eq i32 %nd{i}, {len(shape)}",
        f"  %t1_{i} = icmp eq ptr %dtype{i}, %descr",
        f"  %use{i} = and i32 %flags{i}, {flags}",
        f"  %t2_{i} = icmp eq i32 %use{i}, {flags}",
        f"  %t3_{i} = and i1 %t0_{i}, %t1_{i}",
        f"  %t4_{i} = and i1 %t3_{i}, %t2_{i}",
        f"  br i1 %t4_{i}, label %shape{i}, label %other",
        f"shape{i}:",
        f"  %s{i}.p = getelementptr i8, ptr %a{i}, i64 {DIMENSIONS}",
        f"  %s{i} = load ptr, ptr %s{i}.p",
    ]
    for k, d in enumerate(shape):
        lines.append(f"  %s{i}_{k}.p = getelementptr i64, ptr %s{i}, i64 {k}")
        lines.append(f"  %s{i}_{k} = load i64, ptr %s{i}_{k}.p")
        lines.append(f"  %d{i}_{k} = icmp eq i64 %s{i}_{k}, {d}")
        tests.append(f"%d{i}_{k}")
    fits = "true"
    for k, test in enumerate(tests):
        lines.append(f"  %f{i}_{k} = and i1 {fits}, {test}")
        fits = f"%f{i}_{k}"
    return [
        *lines,
        f"  br i1 {fits}, label %copy{i}, label %other",
        f"copy{i}:",
        f"  %data{i}.p = getelementptr i8, ptr %a{i}, i64 {DATA}",
        f"  %data{i} = load ptr, ptr %data{i}.p",
    ]


def copy_input(i: int, count: int, at: int, T: str) -> list[str]:
    """The content of argument i, %data{i}, behind what is already in %in, four numbers at a time."""
    lines, size, k = list[str](), number_bytes(T), 0
    while k < count:
        V, step = (f"<4 x {T}>", 4) if count - k >= 4 else (T, 1)
        lines += [
            f"  %c{i}_{k}.p = getelementptr {T}, ptr %data{i}, i64 {k}",
            f"  %c{i}_{k} = load {V}, ptr %c{i}_{k}.p, align {size}",
            f"  %i{i}_{k}.p = getelementptr {T}, ptr %in, i64 {at + k}",
            f"  store {V} %c{i}_{k}, ptr %i{i}_{k}.p, align {size}",
        ]
        k += step
    return lines


def _all_finite(count: int, T: str) -> list[str]:
    """Goes to %good if all of the result is finite, to %bad otherwise: x · 0 is NaN where x is not finite."""
    width, size = (8 if count >= 8 else 1), number_bytes(T)
    V, bits = (f"<8 x {T}>", "<8 x i1>") if width == 8 else (T, "i1")
    zero, none = ("zeroinitializer", "zeroinitializer") if width == 8 else ("0.0", "false")
    last = count - width
    lines = [
        "  br label %look",
        "look:",
        "  %k = phi i64 [ 0, %compute ], [ %k2, %look ]",
        f"  %seen = phi {bits} [ {none}, %compute ], [ %seen1, %look ]",
        f"  %x.p = getelementptr {T}, ptr %data, i64 %k",
        f"  %x = load {V}, ptr %x.p, align {size}",
        f"  %zero = fmul {V} %x, {zero}",
        f"  %nan = fcmp uno {V} %zero, %zero",
        f"  %seen1 = or {bits} %seen, %nan",
        f"  %k1 = add i64 %k, {width}",
        f"  %over = icmp ugt i64 %k1, {last}",
        f"  %k2 = select i1 %over, i64 {last}, i64 %k1",  # the last ones overlap those before
        f"  %done = icmp eq i64 %k, {last}",
        "  br i1 %done, label %looked, label %look",
        "looked:",
    ]
    if width == 8:
        lines.append("  %any = call i1 @llvm.vector.reduce.or.v8i1(<8 x i1> %seen1)")
    else:
        lines.append("  %any = or i1 %seen1, false")
    return [*lines, "  br i1 %any, label %bad, label %good"]
