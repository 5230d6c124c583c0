"""Handlers for XLA's foreign function interface, as LLVM text: what JAX programs call, without C++ and without Python.

`@loop(frame)` runs kernels on the processor. The frame has one attribute, the key of a kernel, and buffers of shape (outer,
inner, one state's axes…): an operand has as many states as the result along each of the first two axes, or one that all
share. Their strides are handed to the inner loop that NumPy calls too (`abi.gufunc`), so that results have the same bits.
`@call(frame)` launches the same for a card (`abi.xla_grid`).

A handler is given nothing but the frame: the address of the table of kernels is in its code, which is made in each process.
XLA lets its threads flush subnormal numbers to zero; kernels run without that, as everywhere else.
"""

from __future__ import annotations

from qddot.compiler.codegen.abi.operands import NO_MEMORY_AT
from qddot.compiler.codegen.abi.xla_frame import FAILURES, handler, lines_of, load, message, shared_functions, store
from qddot.compiler.runtime import xla_layout as layout
from qddot.compiler.targets.target import Target

_WITH_PYTHON_AT = 5  # in the environment of a loop: a thread of XLA has no state of Python


def render(target: Target, table: int, environment_words: int) -> str:
    """The functions of the module, for a table of kernels at this address."""
    functions = [
        target.architecture.declarations,
        *shared_functions(table),
        message("no_memory", "qddot: no memory is left for the kernel's scratch space"),
        _batch(environment_words),
        _handler(target),
    ]
    return "\n".join(functions)


def _batch(environment_words: int) -> str:
    """Runs all states of operands whose memory and lengths are in %places; true if there was no memory for that."""
    return lines_of(
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
        *_each_row(),
    )


def _each_row() -> list[str]:
    """A call of the loop for each index of the outer axis."""
    return [
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
    ]


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


def _handler(target: Target) -> str:
    facts = target.architecture
    run = [
        *facts.keep_subnormals,
        "  %no.memory = call i1 @batch(ptr %words, ptr %places, i64 %outer, i64 %inner)",
        *facts.restore_subnormals,
        "  br i1 %no.memory, label %no_memory, label %done",
    ]
    return handler("loop", 0, run, {**FAILURES, "no_memory": layout.RESOURCE_EXHAUSTED})
