"""The scratch memory of a batch loop, as LLVM text: on the stack, or on the heap for the time of a call."""

from __future__ import annotations

STACK_MAX_BYTES = 65536  # of scratch memory on the stack; more is allocated on the heap

_ALIGN = 64


def padded(n: int) -> int:
    """Bytes up to the next cache line."""
    return -(-n // _ALIGN) * _ALIGN


def scratch_memory(sizes: dict[str, int]) -> tuple[list[str], list[str]]:
    """Lines that allocate each name with so many bytes, aligned to 64, and go to %entry, and lines that free them.

    If the heap is exhausted, the loop does nothing but set MemoryError in its own thread, like C functions of Python do: it
    takes the GIL for that, which NumPy may have released. The caller of the ufunc gets the error, and nobody else.
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
