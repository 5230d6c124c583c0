"""Handlers for XLA's foreign function interface, as LLVM text: what JAX programs call, without C++ and without Python.

`@loop(frame)` runs kernels on the processor. The frame has one attribute, the key of a kernel, and buffers of shape (outer,
inner, one state's axes…): an operand has as many states as the result along each of the first two axes, or one that all
share. Their strides are handed to the inner loop that NumPy calls too (`abi.gufunc`), so that results have the same bits.
`@call(frame)` launches the same for a card (`abi.xla_grid`).

A handler is given nothing but the frame: the address of the table of kernels is in its code, which is made in each process.
XLA lets its threads flush subnormal numbers to zero; kernels run without that, as everywhere else.
"""

from __future__ import annotations

from collections.abc import Mapping

from qddot.compiler.codegen.abi.operands import NO_MEMORY_AT
from qddot.compiler.runtime import xla_layout as layout
from qddot.compiler.targets.target import Target

_WITH_PYTHON_AT = 5  # in the environment of a loop: a thread of XLA has no state of Python
_MESSAGES = {
    "other_layout": "qddot: this version of XLA hands arguments to foreign functions in a way that qddot does not know; "
    "install a version of JAX that docs/jax.md names",
    "unknown": "qddot: this program calls a kernel that this process has not made. It was compiled or exported by another "
    "process: make the same qddot.jax.Dynamics here and call the same functions once before it runs",
    "operands": "qddot: the operands of a kernel have other types or shapes than it was made for",
    "no_memory": "qddot: no memory is left for the kernel's scratch space",
}


def render(target: Target, table: int, environment_words: int) -> str:
    """The functions of the module, for a table of kernels at this address."""
    functions = [
        target.architecture.declarations,
        *(message(name, words) for name, words in _MESSAGES.items()),
        metadata_function(),
        _fail(),
        _other_layout(),
        _find(table),
        _place(),
        _batch(environment_words),
        _handler(target),
    ]
    return "\n".join(functions)


def load(name: str, kind: str, base: str, offset: int) -> list[str]:
    """Lines that load %name from so many bytes after a pointer."""
    return [f"  %{name}.p = getelementptr i8, ptr {base}, i64 {offset}", f"  %{name} = load {kind}, ptr %{name}.p"]


def message(name: str, words: str) -> str:
    """The words of an error, as a constant."""
    data = words.encode() + b"\0"
    return f'@text.{name} = internal constant [{len(data)} x i8] c"{words}\\00"'


def metadata_function() -> str:
    """Whether XLA only asks what a handler is; then it is told."""
    frame, ext, own = layout.FRAME, layout.EXTENSION, layout.METADATA
    return _lines(
        "define internal i1 @metadata(ptr %frame, i32 %traits) {",
        *load("ext", "ptr", "%frame", frame["extension_start"]),
        "  %no.ext = icmp eq ptr %ext, null",
        "  br i1 %no.ext, label %no, label %look",
        "look:",
        *load("type", "i32", "%ext", ext["type"]),
        f"  %asks = icmp eq i32 %type, {layout.METADATA_EXTENSION}",
        "  br i1 %asks, label %yes, label %no",
        "yes:",
        *load("m", "ptr", "%ext", ext["metadata"]),
        *store("i32", str(layout.MAJOR), "%m", own["major"], "major"),
        *store("i32", str(layout.MINOR), "%m", own["minor"], "minor"),
        *store("i32", "%traits", "%m", own["traits"], "traits"),
        "  ret i1 true",
        "no:",
        "  ret i1 false",
        "}",
    )


def store(kind: str, value: str, base: str, offset: int, name: str) -> list[str]:
    """Lines that store a value so many bytes after a pointer."""
    return [f"  %{name}.to = getelementptr i8, ptr {base}, i64 {offset}", f"  store {kind} {value}, ptr %{name}.to"]


def _fail() -> str:
    """An error of XLA's; it copies the words."""
    frame, own, size = layout.FRAME, layout.ERROR_CREATE, layout.SIZES["ERROR_CREATE"]
    return _lines(
        "define internal ptr @fail(ptr %frame, ptr %words, i32 %code) {",
        *load("api", "ptr", "%frame", frame["api"]),
        *load("create", "ptr", "%api", layout.API["XLA_FFI_Error_Create"]),
        "  %own = alloca [32 x i8], align 8",
        *store("i64", str(size), "%own", own["struct_size"], "size"),
        *store("ptr", "null", "%own", own["extension_start"], "ext"),
        *store("ptr", "%words", "%own", own["message"], "message"),
        *store("i32", "%code", "%own", own["errc"], "errc"),
        "  %error = call ptr %create(ptr %own)",
        "  ret ptr %error",
        "}",
    )


def _other_layout() -> str:
    """Whether a structure is not as it was when this was written. What stands within others cannot grow."""
    frame, lines, bad = layout.FRAME, list[str](), "false"
    for name, size, compare in (
        ("args", layout.SIZES["LIST"], "ne"),
        ("rets", layout.SIZES["LIST"], "ne"),
        ("attrs", layout.SIZES["ATTRIBUTES"], "ne"),
        ("struct_size", layout.SIZES["FRAME"], "ult"),
    ):
        lines += load(name, "i64", "%frame", frame[name])
        lines += [f"  %{name}.bad = icmp {compare} i64 %{name}, {size}", f"  %{name}.or = or i1 {bad}, %{name}.bad"]
        bad = f"%{name}.or"
    return _lines("define internal i1 @other_layout(ptr %frame) {", *lines, f"  ret i1 {bad}", "}")


def _find(table: int) -> str:
    """The words of the kernel that the only attribute names; null if there is none such."""
    attrs = layout.FRAME["attrs"]
    return _lines(
        "define internal ptr @find(ptr %frame) {",
        "entry:",
        *load("count", "i64", "%frame", attrs + layout.ATTRIBUTES["size"]),
        "  %one = icmp eq i64 %count, 1",
        "  br i1 %one, label %read, label %none",
        "read:",
        *load("attrs", "ptr", "%frame", attrs + layout.ATTRIBUTES["attrs"]),
        "  %scalar = load ptr, ptr %attrs",
        *load("value", "ptr", "%scalar", layout.SCALAR["value"]),
        "  %key = load i64, ptr %value",
        "  br label %look",
        "look:",
        "  %i = phi i64 [ %key, %read ], [ %next, %other ]",
        f"  %place = and i64 %i, {layout.TABLE_PLACES - 1}",
        "  %offset = shl i64 %place, 4",
        f"  %at = getelementptr i8, ptr inttoptr (i64 {table} to ptr), i64 %offset",
        "  %known = load atomic i64, ptr %at acquire, align 8",
        "  %is.free = icmp eq i64 %known, 0",
        "  br i1 %is.free, label %none, label %compare",
        "compare:",
        "  %same = icmp eq i64 %known, %key",
        "  br i1 %same, label %found, label %other",
        "other:",
        "  %next = add i64 %i, 1",
        "  br label %look",
        "found:",
        *load("words", "ptr", "%at", 8),
        "  ret ptr %words",
        "none:",
        "  ret ptr null",
        "}",
    )


def _place() -> str:
    """Reads a buffer into three words: its memory, and its lengths along the first two axes. False if it does not fit."""
    own = layout.BUFFER
    return _lines(
        "define internal i1 @place(ptr %words, ptr %buffer, i64 %numbers, ptr %to) {",
        "entry:",
        *load("size", "i64", "%buffer", own["struct_size"]),
        *load("dtype", "i32", "%buffer", own["dtype"]),
        *load("rank", "i64", "%buffer", own["rank"]),
        *load("wanted", "i64", "%words", 8 * layout.DTYPE),
        "  %wanted.32 = trunc i64 %wanted to i32",
        "  %ok.dtype = icmp eq i32 %dtype, %wanted.32",
        "  %ok.rank = icmp sge i64 %rank, 2",
        f"  %ok.size = icmp uge i64 %size, {layout.SIZES['BUFFER']}",
        "  %ok.both = and i1 %ok.dtype, %ok.rank",
        "  %ok = and i1 %ok.both, %ok.size",
        "  br i1 %ok, label %read, label %bad",
        "read:",
        *load("data", "ptr", "%buffer", own["data"]),
        *load("dims", "ptr", "%buffer", own["dims"]),
        "  %outer = load i64, ptr %dims",
        *load("inner", "i64", "%dims", 8),
        "  store ptr %data, ptr %to",
        *store("i64", "%outer", "%to", 8, "outer"),
        *store("i64", "%inner", "%to", 16, "inner"),
        "  br label %axis",
        "axis:",
        "  %k = phi i64 [ 2, %read ], [ %k1, %more ]",
        "  %n = phi i64 [ 1, %read ], [ %n1, %more ]",
        "  %any = icmp slt i64 %k, %rank",
        "  br i1 %any, label %more, label %end",
        "more:",
        "  %length.p = getelementptr i64, ptr %dims, i64 %k",
        "  %length = load i64, ptr %length.p",
        "  %n1 = mul i64 %n, %length",
        "  %k1 = add i64 %k, 1",
        "  br label %axis",
        "end:",
        "  %same = icmp eq i64 %n, %numbers",
        "  ret i1 %same",
        "bad:",
        "  ret i1 false",
        "}",
    )


def operand_lines(count: str) -> list[str]:
    """Lines of a handler that read all operands into %places, and check how they broadcast; the result is the last.

    Afterwards %outer and %inner are the lengths of the result. They go to %operands on an error, and end in %placed.
    """
    frame = layout.FRAME
    return [
        *load("n.args", "i64", "%frame", frame["args"] + layout.LIST["size"]),
        *load("n.rets", "i64", "%frame", frame["rets"] + layout.LIST["size"]),
        *load("args", "ptr", "%frame", frame["args"] + layout.LIST["items"]),
        *load("rets", "ptr", "%frame", frame["rets"] + layout.LIST["items"]),
        f"  %inputs = sub i64 {count}, 1",
        "  %ok.args = icmp eq i64 %n.args, %inputs",
        "  %ok.rets = icmp sge i64 %n.rets, 1",
        "  %ok.counts = and i1 %ok.args, %ok.rets",
        f"  %places.words = mul i64 {count}, 3",
        "  %places = alloca i64, i64 %places.words",
        "  br i1 %ok.counts, label %sizes, label %operands",
        "sizes:",
        "  %result = load ptr, ptr %rets",
        f"  %numbers.p = getelementptr i64, ptr %words, i64 {layout.NUMBERS}",
        "  %result.numbers.p = getelementptr i64, ptr %numbers.p, i64 %inputs",
        "  %result.numbers = load i64, ptr %result.numbers.p",
        "  %result.at = mul i64 %inputs, 3",
        "  %result.place = getelementptr i64, ptr %places, i64 %result.at",
        "  %ok.result = call i1 @place(ptr %words, ptr %result, i64 %result.numbers, ptr %result.place)",
        "  br i1 %ok.result, label %lengths, label %operands",
        "lengths:",
        *load("outer", "i64", "%result.place", 8),
        *load("inner", "i64", "%result.place", 16),
        "  br label %input",
        "input:",
        "  %a = phi i64 [ 0, %lengths ], [ %a1, %input.fits ]",
        "  %a.any = icmp slt i64 %a, %inputs",
        "  br i1 %a.any, label %input.read, label %placed",
        "input.read:",
        "  %a.buffer.p = getelementptr ptr, ptr %args, i64 %a",
        "  %a.buffer = load ptr, ptr %a.buffer.p",
        "  %a.numbers.p = getelementptr i64, ptr %numbers.p, i64 %a",
        "  %a.numbers = load i64, ptr %a.numbers.p",
        "  %a.at = mul i64 %a, 3",
        "  %a.place = getelementptr i64, ptr %places, i64 %a.at",
        "  %a.ok = call i1 @place(ptr %words, ptr %a.buffer, i64 %a.numbers, ptr %a.place)",
        "  br i1 %a.ok, label %input.broadcasts, label %operands",
        "input.broadcasts:",
        *load("a.outer", "i64", "%a.place", 8),
        *load("a.inner", "i64", "%a.place", 16),
        "  %a.outer.all = icmp eq i64 %a.outer, %outer",
        "  %a.outer.one = icmp eq i64 %a.outer, 1",
        "  %a.outer.ok = or i1 %a.outer.all, %a.outer.one",
        "  %a.inner.all = icmp eq i64 %a.inner, %inner",
        "  %a.inner.one = icmp eq i64 %a.inner, 1",
        "  %a.inner.ok = or i1 %a.inner.all, %a.inner.one",
        "  %a.fits = and i1 %a.outer.ok, %a.inner.ok",
        "  br i1 %a.fits, label %input.fits, label %operands",
        "input.fits:",
        "  %a1 = add i64 %a, 1",
        "  br label %input",
    ]


def _batch(environment_words: int) -> str:
    """Runs all states of operands whose memory and lengths are in %places; true if there was no memory for that."""
    return _lines(
        "define internal i1 @batch(ptr %words, ptr %places, i64 %outer, i64 %inner) {",
        "entry:",
        *load("function", "ptr", "%words", 8 * layout.FUNCTION),
        *load("count", "i64", "%words", 8 * layout.COUNT),
        *load("item", "i64", "%words", 8 * layout.ITEM_BYTES),
        *load("strides", "i64", "%words", 8 * layout.STRIDES),
        f"  %numbers.p = getelementptr i64, ptr %words, i64 {layout.NUMBERS}",
        "  %first.stride = getelementptr i64, ptr %numbers.p, i64 %count",
        "  %all = add i64 %count, %strides",
        "  %steps = alloca i64, i64 %all",
        "  %jumps = alloca i64, i64 %count",
        "  %pointers = alloca ptr, i64 %count",
        "  %dimensions = alloca i64",
        "  store i64 %inner, ptr %dimensions",
        *_own_environment(environment_words),
        "  br label %operand",
        "operand:",
        "  %k = phi i64 [ 0, %entry ], [ %k1, %operand ]",
        "  %at = mul i64 %k, 3",
        "  %place = getelementptr i64, ptr %places, i64 %at",
        *load("k.outer", "i64", "%place", 8),
        *load("k.inner", "i64", "%place", 16),
        "  %n.p = getelementptr i64, ptr %numbers.p, i64 %k",
        "  %n = load i64, ptr %n.p",
        "  %row = mul i64 %n, %item",
        "  %k1 = add i64 %k, 1",
        "  %more = icmp slt i64 %k1, %count",
        "  %shared = icmp eq i64 %k.inner, 1",
        "  %shared.input = and i1 %shared, %more",  # the result's rows follow each other even if there is one
        "  %step = select i1 %shared.input, i64 0, i64 %row",
        "  %rows = mul i64 %k.inner, %row",
        "  %once = icmp eq i64 %k.outer, 1",
        "  %jump = select i1 %once, i64 0, i64 %rows",
        "  %step.to = getelementptr i64, ptr %steps, i64 %k",
        "  store i64 %step, ptr %step.to",
        "  %jump.to = getelementptr i64, ptr %jumps, i64 %k",
        "  store i64 %jump, ptr %jump.to",
        "  %data = load ptr, ptr %place",
        "  %pointer.to = getelementptr ptr, ptr %pointers, i64 %k",
        "  store ptr %data, ptr %pointer.to",
        "  br i1 %more, label %operand, label %strides.begin",
        *_strides_of_states(),
        "begin:",
        "  %some.outer = icmp sgt i64 %outer, 0",
        "  %some.inner = icmp sgt i64 %inner, 0",
        "  %some = and i1 %some.outer, %some.inner",
        "  br i1 %some, label %call, label %end",
        "call:",
        "  %o = phi i64 [ 0, %begin ], [ %o1, %on ]",
        "  call void %function(ptr %pointers, ptr %dimensions, ptr %steps, ptr %env)",
        "  %o1 = add i64 %o, 1",
        "  %o.more = icmp slt i64 %o1, %outer",
        "  br i1 %o.more, label %next, label %end",
        "next:",
        "  %p = phi i64 [ 0, %call ], [ %p1, %next ]",
        "  %p.to = getelementptr ptr, ptr %pointers, i64 %p",
        "  %p.now = load ptr, ptr %p.to",
        "  %p.jump.p = getelementptr i64, ptr %jumps, i64 %p",
        "  %p.jump = load i64, ptr %p.jump.p",
        "  %p.next = getelementptr i8, ptr %p.now, i64 %p.jump",
        "  store ptr %p.next, ptr %p.to",
        "  %p1 = add i64 %p, 1",
        "  %p.more = icmp slt i64 %p1, %count",
        "  br i1 %p.more, label %next, label %on",
        "on:",
        "  br label %call",
        "end:",
        *load("failed", "i64", "%env", 8 * NO_MEMORY_AT),
        "  %is.failed = icmp ne i64 %failed, 0",
        "  ret i1 %is.failed",
        "}",
    )


def _own_environment(words: int) -> list[str]:
    """A copy of the kernels' environment for this call: what a loop reports there is of this call alone."""
    lines = load("common", "ptr", "%words", 8 * layout.ENVIRONMENT)
    lines.append(f"  %env = alloca [{words} x i64], align 8")
    for k in range(words):
        value = "0"
        if k not in (_WITH_PYTHON_AT, NO_MEMORY_AT):
            lines += load(f"common{k}", "i64", "%common", 8 * k)
            value = f"%common{k}"
        lines += store("i64", value, "%env", 8 * k, f"env{k}")
    return lines


def _strides_of_states() -> list[str]:
    """Copies the strides of all operands' own axes behind the steps from state to state."""
    return [
        "strides.begin:",
        "  %own = getelementptr i64, ptr %steps, i64 %count",
        "  %any.stride = icmp sgt i64 %strides, 0",
        "  br i1 %any.stride, label %stride, label %begin",
        "stride:",
        "  %s = phi i64 [ 0, %strides.begin ], [ %s1, %stride ]",
        "  %s.from = getelementptr i64, ptr %first.stride, i64 %s",
        "  %s.value = load i64, ptr %s.from",
        "  %s.to = getelementptr i64, ptr %own, i64 %s",
        "  store i64 %s.value, ptr %s.to",
        "  %s1 = add i64 %s, 1",
        "  %s.more = icmp slt i64 %s1, %strides",
        "  br i1 %s.more, label %stride, label %begin",
    ]


def handler(name: str, traits: int, run: list[str], failures: Mapping[str, int]) -> str:
    """A handler that ends in %done, or in one of the failures, whose codes these are. %words are those of the kernel."""
    return _lines(
        f"define ptr @{name}(ptr %frame) {{",
        "entry:",
        f"  %asks = call i1 @metadata(ptr %frame, i32 {traits})",
        "  br i1 %asks, label %done, label %check",
        "check:",
        "  %other = call i1 @other_layout(ptr %frame)",
        "  br i1 %other, label %other_layout, label %find",
        "find:",
        "  %words = call ptr @find(ptr %frame)",
        "  %is.unknown = icmp eq ptr %words, null",
        "  br i1 %is.unknown, label %unknown, label %known",
        "known:",
        *load("count", "i64", "%words", 8 * layout.COUNT),
        *operand_lines("%count"),
        "placed:",
        *run,
        "done:",
        "  ret ptr null",
        *(
            line
            for label, code in failures.items()
            for line in (
                f"{label}:",
                f"  %{label}.error = call ptr @fail(ptr %frame, ptr @text.{label}, i32 {code})",
                f"  ret ptr %{label}.error",
            )
        ),
        "}",
    )


FAILURES = {
    "other_layout": layout.INTERNAL,
    "unknown": layout.NOT_FOUND,
    "operands": layout.INVALID_ARGUMENT,
}


def _handler(target: Target) -> str:
    facts = target.architecture
    run = [
        *facts.keep_subnormals,
        "  %no.memory = call i1 @batch(ptr %words, ptr %places, i64 %outer, i64 %inner)",
        *facts.restore_subnormals,
        "  br i1 %no.memory, label %no_memory, label %done",
    ]
    return handler("loop", 0, run, {**FAILURES, "no_memory": layout.RESOURCE_EXHAUSTED})


def _lines(*lines: str) -> str:
    return "\n".join([*lines, ""])
