"""Files in and out: one file a format, which registers itself; text into Builder calls, no mathematics."""

from qddot.formats.registry import ReadOptions, no_floating_base, read, write

__all__ = ["ReadOptions", "no_floating_base", "read", "write"]
