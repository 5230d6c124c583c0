"""Constant tables as LLVM text."""

from __future__ import annotations


def table(name: str, rows: list[list[int]]) -> str:
    """A constant array of rows of whole numbers."""
    width = len(rows[0])
    text = ", ".join(f"[{width} x i32] [{', '.join(f'i32 {x}' for x in row)}]" for row in rows)
    return f"@{name}.table = internal constant [{len(rows)} x [{width} x i32]] [{text}]\n"
