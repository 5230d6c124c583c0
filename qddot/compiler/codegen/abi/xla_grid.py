"""The handler that launches kernels on a card, on the stream that XLA gives it, as LLVM text.

`@call(frame)` takes the same frame as `@loop` (`abi.xla_ffi`). It calls NVIDIA's driver through pointers among the words of
the kernel, in the context of the device that XLA runs the program on: no Python, and nothing is waited for. There is one
launch for each index of the outer axis and each module of the kernel. A second result, if there is one, is scratch memory.
A call does the same launches every time, so XLA may record it in a CUDA graph.
"""

from __future__ import annotations

from qddot.compiler.codegen.abi.xla_frame import FAILURES, handler, load, message, store
from qddot.compiler.runtime import xla_layout as layout

_MESSAGES = {
    "device": "qddot: this kernel is not loaded on the device that runs the program; make it again after all devices are "
    "visible",
    "driver": "qddot: NVIDIA's driver refused to launch a kernel (error 000); its documentation lists CUresult",
    "old": "qddot: this version of XLA does not say on which device a program runs; install a newer version of JAX",
}
_DIGITS_AT = _MESSAGES["driver"].index("000")


def render() -> str:
    """The functions of the handler, beside those of `xla_ffi.render`."""
    texts = [message(name, words) for name, words in _MESSAGES.items()]
    codes = {**FAILURES, "device": layout.NOT_FOUND, "old": layout.INTERNAL}
    traits = layout.COMMAND_BUFFER_COMPATIBLE
    return "\n".join([*texts, _refused(), _launches(), handler("call", traits, _run(), codes)])


def _run() -> list[str]:
    """Where XLA runs the program, then the launches."""
    frame, api = layout.FRAME, layout.API
    return [
        *load("api", "ptr", "%frame", frame["api"]),
        *load("ctx", "ptr", "%frame", frame["ctx"]),
        *load("api.size", "i64", "%api", api["struct_size"]),
        f"  %is.new = icmp uge i64 %api.size, {api['XLA_FFI_DeviceOrdinal_Get'] + 8}",
        "  br i1 %is.new, label %ask, label %old",
        "ask:",
        *_question("stream", "XLA_FFI_Stream_Get", "STREAM_GET", layout.STREAM_GET["stream"], "ptr"),
        *_question("ordinal", "XLA_FFI_DeviceOrdinal_Get", "ORDINAL_GET", layout.ORDINAL_GET["device_ordinal"], "i32"),
        "  %scratch.more = icmp sgt i64 %n.rets, 1",
        "  br i1 %scratch.more, label %scratch.given, label %device.find",
        "scratch.given:",
        *load("scratch.buffer", "ptr", "%rets", 8),
        *load("scratch.data", "ptr", "%scratch.buffer", layout.BUFFER["data"]),
        "  br label %device.find",
        "device.find:",
        "  %scratch = phi ptr [ null, %ordinal.known ], [ %scratch.data, %scratch.given ]",
        *load("card", "ptr", "%words", 8 * layout.CARD),
        *load("devices", "i64", "%card", 8 * layout.DEVICES),
        *load("modules", "i64", "%card", 8 * layout.MODULES),
        "  %at = sext i32 %ordinal to i64",
        "  %is.known = icmp ult i64 %at, %devices",
        "  br i1 %is.known, label %device.look, label %device",
        "device.look:",
        f"  %device.words = add i64 %modules, {layout.DEVICE_HANDLES}",
        "  %device.offset = mul i64 %at, %device.words",
        f"  %device.first = getelementptr i64, ptr %card, i64 {layout.FIRST_DEVICE}",
        "  %device.at = getelementptr i64, ptr %device.first, i64 %device.offset",
        "  %context = load ptr, ptr %device.at",
        "  %is.loaded = icmp ne ptr %context, null",
        "  br i1 %is.loaded, label %launch, label %device",
        "launch:",
        "  %code = call i32 @launches(ptr %words, ptr %places, i64 %outer, i64 %inner, ptr %device.at, ptr %stream, "
        "ptr %scratch)",
        "  %is.launched = icmp eq i32 %code, 0",
        "  br i1 %is.launched, label %done, label %driver",
        "driver:",
        "  %driver.error = call ptr @refused(ptr %frame, i32 %code)",
        "  ret ptr %driver.error",
    ]


def _question(name: str, function: str, structure: str, answer_at: int, kind: str) -> list[str]:
    """Asks XLA for something of this call; ends in %{name}.known."""
    return [
        f"  %{name}.own = alloca [32 x i8], align 8",
        *store("i64", str(layout.SIZES[structure]), f"%{name}.own", 0, f"{name}.size"),
        *store("ptr", "null", f"%{name}.own", 8, f"{name}.ext"),
        *store("ptr", "%ctx", f"%{name}.own", 16, f"{name}.ctx"),
        *load(f"{name}.ask", "ptr", "%api", layout.API[function]),
        f"  %{name}.error = call ptr %{name}.ask(ptr %{name}.own)",
        f"  %{name}.ok = icmp eq ptr %{name}.error, null",
        f"  br i1 %{name}.ok, label %{name}.known, label %{name}.failed",
        f"{name}.failed:",
        f"  ret ptr %{name}.error",
        f"{name}.known:",
        *load(name, kind, f"%{name}.own", answer_at),
    ]


def _refused() -> str:
    """An error with the driver's number in it."""
    size = len(_MESSAGES["driver"].encode()) + 1
    lines = [
        "define internal ptr @refused(ptr %frame, i32 %code) {",
        f"  %words = alloca [{size} x i8]",
        f"  call void @llvm.memcpy.inline.p0.p0.i64(ptr %words, ptr @text.driver, i64 {size}, i1 false)",
    ]
    for k, power in enumerate((100, 10, 1)):
        lines += [
            f"  %q{k} = udiv i32 %code, {power}",
            f"  %d{k} = urem i32 %q{k}, 10",
            f"  %c{k} = add i32 %d{k}, 48",
            f"  %b{k} = trunc i32 %c{k} to i8",
            *store("i8", f"%b{k}", "%words", _DIGITS_AT + k, f"digit{k}"),
        ]
    declaration = "declare void @llvm.memcpy.inline.p0.p0.i64(ptr, ptr, i64, i1)"
    call = f"  %error = call ptr @fail(ptr %frame, ptr %words, i32 {layout.INTERNAL})"
    return "\n".join([declaration, *lines, call, "  ret ptr %error", "}", ""])


def _launches() -> str:
    """All launches, in the device's context; the driver's code of the first that failed, or 0."""
    w, d = layout, "%device"
    return "\n".join(
        [
            "define internal i32 @launches(ptr %words, ptr %places, i64 %outer, i64 %inner, ptr %device, ptr %stream, "
            "ptr %scratch) {",
            "entry:",
            *load("launch", "ptr", "%words", 8 * w.FUNCTION),
            *load("count", "i64", "%words", 8 * w.COUNT),
            *load("item", "i64", "%words", 8 * w.ITEM_BYTES),
            *load("strides", "i64", "%words", 8 * w.STRIDES),
            *load("card", "ptr", "%words", 8 * w.CARD),
            *load("push", "ptr", "%card", 8 * w.PUSH),
            *load("pop", "ptr", "%card", 8 * w.POP),
            *load("threads", "i64", "%card", 8 * w.THREADS),
            *load("states", "i64", "%card", 8 * w.STATES),
            *load("groups", "i64", "%card", 8 * w.GROUPS),
            *load("shared", "i64", "%card", 8 * w.SHARED_BYTES),
            *load("modules", "i64", "%card", 8 * w.MODULES),
            *load("context", "ptr", d, 8 * w.DEVICE_CONTEXT),
            *load("most", "i64", d, 8 * w.DEVICE_BLOCKS),
            f"  %numbers.p = getelementptr i64, ptr %words, i64 {w.NUMBERS}",
            "  %first.stride = getelementptr i64, ptr %numbers.p, i64 %count",
            "  %some.outer = icmp sgt i64 %outer, 0",
            "  %some.inner = icmp sgt i64 %inner, 0",
            "  %some = and i1 %some.outer, %some.inner",
            "  br i1 %some, label %enter, label %nothing",
            "nothing:",
            "  ret i32 0",
            "enter:",
            "  %pushed = call i32 %push(ptr %context)",
            "  %ok.push = icmp eq i32 %pushed, 0",
            "  br i1 %ok.push, label %begin, label %no.context",
            "no.context:",
            "  ret i32 %pushed",
            *_parameters(),
            *_each_launch(),
        ]
    )


def _parameters() -> list[str]:
    """The values of a launch's parameters: the states; each operand's memory, step and strides; scratch memory."""
    return [
        "begin:",
        "  %less = sub i64 %states, 1",
        "  %rounded = add i64 %inner, %less",
        "  %wanted = udiv i64 %rounded, %states",
        "  %fewer = icmp ult i64 %wanted, %most",
        "  %blocks = select i1 %fewer, i64 %wanted, i64 %most",
        "  %twice = mul i64 %count, 2",
        "  %of.operands = add i64 %twice, %strides",
        "  %last = add i64 %of.operands, 1",
        "  %all = add i64 %of.operands, 2",
        "  %values = alloca i64, i64 %all",
        "  %addresses = alloca ptr, i64 %all",
        "  %jumps = alloca i64, i64 %count",
        "  %pointers = alloca i64, i64 %count",
        "  store i64 %inner, ptr %values",
        "  %scratch.i = ptrtoint ptr %scratch to i64",
        "  %scratch.to = getelementptr i64, ptr %values, i64 %last",
        "  store i64 %scratch.i, ptr %scratch.to",
        "  br label %address",
        "address:",
        "  %i = phi i64 [ 0, %begin ], [ %i1, %address ]",
        "  %value.at = getelementptr i64, ptr %values, i64 %i",
        "  %address.to = getelementptr ptr, ptr %addresses, i64 %i",
        "  store ptr %value.at, ptr %address.to",
        "  %i1 = add i64 %i, 1",
        "  %i.more = icmp slt i64 %i1, %all",
        "  br i1 %i.more, label %address, label %operand",
        "operand:",
        "  %k = phi i64 [ 0, %address ], [ %k1, %operand.done ]",
        "  %to = phi i64 [ 1, %address ], [ %to.next, %operand.done ]",
        "  %stride.at = phi i64 [ 0, %address ], [ %stride.end, %operand.done ]",
        "  %at = mul i64 %k, 3",
        "  %place = getelementptr i64, ptr %places, i64 %at",
        *_operand(),
    ]


def _operand() -> list[str]:
    """One operand's values."""
    return [
        *load("data", "i64", "%place", 0),
        *load("k.outer", "i64", "%place", 8),
        *load("k.inner", "i64", "%place", 16),
        "  %n.p = getelementptr i64, ptr %numbers.p, i64 %k",
        "  %n = load i64, ptr %n.p",
        "  %k1 = add i64 %k, 1",
        "  %more = icmp slt i64 %k1, %count",
        "  %shared.states = icmp eq i64 %k.inner, 1",
        "  %shared.input = and i1 %shared.states, %more",
        "  %step = select i1 %shared.input, i64 0, i64 %n",
        "  %rows = mul i64 %k.inner, %n",
        "  %bytes = mul i64 %rows, %item",
        "  %once = icmp eq i64 %k.outer, 1",
        "  %jump = select i1 %once, i64 0, i64 %bytes",
        "  %jump.to = getelementptr i64, ptr %jumps, i64 %k",
        "  store i64 %jump, ptr %jump.to",
        "  %pointer.to = getelementptr i64, ptr %pointers, i64 %k",
        "  store i64 %to, ptr %pointer.to",
        "  %data.to = getelementptr i64, ptr %values, i64 %to",
        "  store i64 %data, ptr %data.to",
        "  %to.step = add i64 %to, 1",
        "  %step.to = getelementptr i64, ptr %values, i64 %to.step",
        "  store i64 %step, ptr %step.to",
        "  %to.first = add i64 %to, 2",
        "  %axes.p = getelementptr i64, ptr %first.stride, i64 %strides",
        "  %axes.at = getelementptr i64, ptr %axes.p, i64 %k",
        "  %axes = load i64, ptr %axes.at",
        "  %stride.end = add i64 %stride.at, %axes",
        "  br label %stride",
        "stride:",
        "  %s = phi i64 [ %stride.at, %operand ], [ %s1, %stride.copy ]",
        "  %to.next = phi i64 [ %to.first, %operand ], [ %to.on, %stride.copy ]",
        "  %s.any = icmp slt i64 %s, %stride.end",
        "  br i1 %s.any, label %stride.copy, label %operand.done",
        "stride.copy:",
        "  %s.from = getelementptr i64, ptr %first.stride, i64 %s",
        "  %s.value = load i64, ptr %s.from",
        "  %s.to = getelementptr i64, ptr %values, i64 %to.next",
        "  store i64 %s.value, ptr %s.to",
        "  %s1 = add i64 %s, 1",
        "  %to.on = add i64 %to.next, 1",
        "  br label %stride",
        "operand.done:",
        "  br i1 %more, label %operand, label %row",
    ]


def _each_launch() -> list[str]:
    """One for each index of the outer axis and each module."""
    return [
        "row:",
        "  %o = phi i64 [ 0, %operand.done ], [ %o1, %next.done ]",
        "  br label %module",
        "module:",
        "  %m = phi i64 [ 0, %row ], [ %m1, %launched ]",
        f"  %handle.first = getelementptr i64, ptr %device, i64 {layout.DEVICE_HANDLES}",
        "  %handle.at = getelementptr ptr, ptr %handle.first, i64 %m",
        "  %handle = load ptr, ptr %handle.at",
        *(f"  %{x}.32 = trunc i64 %{x} to i32" for x in ("blocks", "groups", "threads", "shared")),
        "  %code = call i32 %launch(ptr %handle, i32 %blocks.32, i32 %groups.32, i32 1, i32 %threads.32, i32 1, i32 1, "
        "i32 %shared.32, ptr %stream, ptr %addresses, ptr null)",
        "  %ok = icmp eq i32 %code, 0",
        "  br i1 %ok, label %launched, label %leave",
        "launched:",
        "  %m1 = add i64 %m, 1",
        "  %m.more = icmp slt i64 %m1, %modules",
        "  br i1 %m.more, label %module, label %next",
        "next:",
        "  %p = phi i64 [ 0, %launched ], [ %p1, %next ]",
        "  %p.at = getelementptr i64, ptr %pointers, i64 %p",
        "  %p.place = load i64, ptr %p.at",
        "  %p.value.at = getelementptr i64, ptr %values, i64 %p.place",
        "  %p.value = load i64, ptr %p.value.at",
        "  %p.jump.at = getelementptr i64, ptr %jumps, i64 %p",
        "  %p.jump = load i64, ptr %p.jump.at",
        "  %p.moved = add i64 %p.value, %p.jump",
        "  store i64 %p.moved, ptr %p.value.at",
        "  %p1 = add i64 %p, 1",
        "  %p.more = icmp slt i64 %p1, %count",
        "  br i1 %p.more, label %next, label %next.done",
        "next.done:",
        "  %o1 = add i64 %o, 1",
        "  %o.more = icmp slt i64 %o1, %outer",
        "  br i1 %o.more, label %row, label %leave",
        "leave:",
        "  %result = phi i32 [ %code, %module ], [ 0, %next.done ]",
        "  %popped = alloca ptr",
        "  %pop.code = call i32 %pop(ptr %popped)",
        "  ret i32 %result",
        "}",
        "",
    ]
