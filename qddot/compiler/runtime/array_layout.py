"""Offsets in CPython's and NumPy's structures that generated code reads: part of their binary interfaces, and probed."""

DATA, AXES, DIMENSIONS, DESCR, FLAGS = 16, 24, 32, 56, 64  # in PyArrayObject
USABLE = 0x1 | 0x100  # flags: contiguous in C order, aligned
BYTES = 32  # where the content of a bytes object begins
WRITEABLE = 0x400  # another flag
TUPLE_LENGTH, TUPLE_ITEMS = 16, 24  # in PyTupleObject
