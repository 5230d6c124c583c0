"""What the handler for XLA reads of a kernel on cards (`codegen.abi.xla_grid`).

Those are the driver's functions, and the kernel's own on each device, where it is loaded for that.
"""

from __future__ import annotations

import ctypes
from typing import Any

from qddot.compiler.runtime import xla_layout as layout
from qddot.compiler.runtime.cuda import context as contexts
from qddot.compiler.runtime.cuda.driver import driver
from qddot.compiler.runtime.cuda.kernel import code_of
from qddot.compiler.runtime.cuda.plan import MAX_BLOCKS, scratch_of
from qddot.compiler.runtime.kernel import Kernel


def card_words(kernel: Kernel) -> Any:
    """The words, which point to nothing that goes before the kernel."""
    own, code, size = driver(), code_of(kernel), _itemsize(kernel)
    grid, devices = code.grid, {d.ordinal: d for d in contexts.devices()}
    head = {
        layout.PUSH: _address(own.cuCtxPushCurrent_v2),
        layout.POP: _address(own.cuCtxPopCurrent_v2),
        layout.THREADS: grid.threads,
        layout.STATES: grid.states,
        layout.GROUPS: grid.groups,
        layout.SHARED_BYTES: grid.shared_bytes,
        layout.MODULES: len(code.texts),
        layout.DEVICES: max(devices, default=-1) + 1,
    }
    words = [head[k] for k in range(layout.FIRST_DEVICE)]
    for ordinal in range(head[layout.DEVICES]):
        if ordinal not in devices:
            words += [0] * (layout.DEVICE_HANDLES + len(code.texts))
            continue
        context = contexts.find(ordinal)[0]
        with context:
            functions = code.loaded(context).rows
        blocks = scratch_of(code, context, functions, MAX_BLOCKS, size)[1]
        words += [context.handle, blocks, *(f.handle for f in functions)]
    return (ctypes.c_uint64 * len(words))(*words)


def launch_address() -> int:
    """Of the driver's function that launches a kernel."""
    return _address(driver().cuLaunchKernel)


def scratch_bytes(kernel: Kernel, states: int) -> int:
    """What a launch for so many states takes at most, on any of the devices."""
    code, most = code_of(kernel), 0
    blocks = -(-states // code.grid.states)
    if code.grid.scratch_numbers:
        for device in contexts.devices():
            context = contexts.find(device.ordinal)[0]
            with context:
                functions = code.loaded(context).rows
            most = max(most, scratch_of(code, context, functions, blocks, _itemsize(kernel))[0])
    return most


def _itemsize(kernel: Kernel) -> int:
    return 4 if kernel.info.dtype == "float32" else 8


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0
