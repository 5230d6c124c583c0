"""Layouts that generated handlers for XLA read (`codegen.abi.xla_ffi`).

Offsets are in bytes, of the structures in XLA's `xla/ffi/api/c_api.h`, interface 0.1 and later: newer ones append to them.
A test compares them with the header of the JAX that is installed.
"""

from __future__ import annotations

MAJOR, MINOR = 0, 1  # of the interface

FRAME = {"struct_size": 0, "extension_start": 8, "api": 16, "ctx": 24, "stage": 32, "args": 40, "rets": 80, "attrs": 120}
LIST = {"struct_size": 0, "size": 16, "types": 24, "items": 32}  # arguments and results
ATTRIBUTES = {"struct_size": 0, "size": 16, "types": 24, "names": 32, "attrs": 40}
BUFFER = {"struct_size": 0, "dtype": 16, "data": 24, "rank": 32, "dims": 40}
SCALAR = {"dtype": 0, "value": 8}
EXTENSION = {"struct_size": 0, "type": 8, "next": 16, "metadata": 24}
METADATA = {"struct_size": 0, "api_version": 8, "major": 24, "minor": 28, "traits": 32}
API = {"struct_size": 0, "XLA_FFI_Error_Create": 48, "XLA_FFI_Stream_Get": 80, "XLA_FFI_DeviceOrdinal_Get": 184}
ERROR_CREATE = {"struct_size": 0, "extension_start": 8, "message": 16, "errc": 24}
STREAM_GET = {"struct_size": 0, "extension_start": 8, "ctx": 16, "stream": 24}
ORDINAL_GET = {"struct_size": 0, "extension_start": 8, "ctx": 16, "device_ordinal": 24}
SIZES = {  # that structures have at least
    "FRAME": 168,
    "LIST": 40,
    "ATTRIBUTES": 48,
    "BUFFER": 48,
    "API": 56,
    "ERROR_CREATE": 28,
    "STREAM_GET": 32,
    "ORDINAL_GET": 28,
}
METADATA_EXTENSION = 1  # a type of extensions
COMMAND_BUFFER_COMPATIBLE = 1  # a trait: a call always launches the same work, and may be recorded in a CUDA graph
DATA_TYPES = {"float32": 11, "float64": 12}
INVALID_ARGUMENT, NOT_FOUND, RESOURCE_EXHAUSTED, INTERNAL = 3, 5, 8, 13  # codes of errors

# Words of 64 bits of what a process knows about a kernel. Then the numbers of one state of each operand, the result last;
# then the strides of their own axes: in bytes, as NumPy's loops have them, or in numbers for a card; then, for a card, how
# many axes each operand has.
FUNCTION, ENVIRONMENT, COUNT, DTYPE, ITEM_BYTES, STRIDES, CARD, NUMBERS = range(8)

# Words about a kernel on cards; then those of each device, by its ordinal: of one that has not the kernel they are zero.
PUSH, POP, THREADS, STATES, GROUPS, SHARED_BYTES, MODULES, DEVICES, FIRST_DEVICE = range(9)
DEVICE_CONTEXT, DEVICE_BLOCKS, DEVICE_HANDLES = range(3)  # the last: a function of each module

# The table of kernels: pairs of a key and the address of such words; a free place has the key 0.
TABLE_PLACES = 1 << 16
