"""The code of a kernel for a grid: assembled for the cards that it runs on, and loaded once in each context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import byref, c_int
from typing import Any, NamedTuple

from qddot.compiler.runtime.cuda import assemble
from qddot.compiler.runtime.cuda.context import Context, find
from qddot.compiler.runtime.cuda.driver import usable
from qddot.compiler.runtime.cuda.grid import ROWS, SMALL_BATCH_MAX_STATES, STRIDED, WARP, Grid
from qddot.compiler.runtime.forks import guarded_lock
from qddot.errors import DeviceError, InputError

# CUfunction_attribute
_MAX_THREADS, _STATIC_SHARED, _LOCAL, _REGISTERS, _DYNAMIC_SHARED_LIMIT = 0, 1, 3, 4, 8
_SHARED_WITHOUT_OPT_IN = 48 << 10


class Function(NamedTuple):
    """A function in a module, and what the driver says about it."""

    handle: int
    registers: int  # of a thread
    local_bytes: int  # of a thread: spilled registers
    shared_bytes: int  # of a block, static and dynamic
    max_threads: int  # of a block
    blocks: int  # at a time on a multiprocessor


class Loaded:
    """The modules of a kernel in one context. They go when the kernel has gone, at the next call that loads some."""

    def __init__(self, cubins: Sequence[bytes], grid: Grid, context: Context, may_wait: bool = True) -> None:
        """The context is current."""
        own = context.driver
        self.context, self._modules = context, list[int]()
        if may_wait:  # a stream that is being captured must not be waited for
            _unload(context)
        for cubin in cubins:
            self._modules.append(own.handle(own.cuModuleLoadData, cubin))
        self.rows = [_function(context, m, ROWS, grid.of_module(k)) for k, m in enumerate(self._modules)]
        self.strided = [_function(context, m, STRIDED, grid) for m in self._modules] if grid.has_strided else []

    def __del__(self, usable: Any = usable) -> None:
        # Unloading waits for the card: not within the garbage collector.
        if usable(self.context.driver):
            self.context.unwanted.extend(self._modules)


def _unload(context: Context) -> None:
    """Unloads the modules of kernels that are gone."""
    if not context.unwanted:
        return
    context.driver.cuCtxSynchronize()
    while context.unwanted:
        context.driver.cuModuleUnload(context.unwanted.pop())


def _function(context: Context, module: int, name: str, grid: Grid) -> Function:
    own = context.driver
    handle = own.handle(own.cuModuleGetFunction, module, name.encode())
    if grid.shared_bytes + own.function_attribute(_STATIC_SHARED, handle) > _SHARED_WITHOUT_OPT_IN:
        own.cuFuncSetAttribute(handle, _DYNAMIC_SHARED_LIMIT, grid.shared_bytes)
    blocks = c_int()
    own.cuOccupancyMaxActiveBlocksPerMultiprocessor(byref(blocks), handle, grid.threads, grid.shared_bytes)
    registers, local, static, most = (
        own.function_attribute(a, handle) for a in (_REGISTERS, _LOCAL, _STATIC_SHARED, _MAX_THREADS)
    )
    return Function(handle, registers, local, static + grid.shared_bytes, most, blocks.value)


class GridCode:
    """PTX modules of one kernel, and facts about them.

    `small_batches` is other code for the same, for few states, or what makes it when it is first needed; `large_batches` is
    for many states, and takes scratch memory.
    """

    def __init__(
        self,
        texts: Sequence[str],
        grid: Grid,
        function: str,
        small_batches: GridCode | Callable[[], GridCode | None] | None = None,
        large_batches: GridCode | None = None,
    ) -> None:
        self.texts, self.grid, self.function = tuple(texts), grid.checked(), function
        self._small, self.large_batches = small_batches, large_batches
        self.seconds = 0.0  # that assembling took
        self.cached = True  # all machine code came from the cache
        self._loaded: dict[int, Loaded] = {}
        self._lock = guarded_lock()

    @property
    def small_batches(self) -> GridCode | None:
        """The code for few states, if there is some."""
        if callable(self._small):
            with self._lock:
                if callable(self._small):
                    self._small = self._small()
        return self._small

    def suited(self, states: int, context: Context, has_scratch: bool = True) -> GridCode:
        """The code for a batch of contiguous rows: that for small or large ones, if there is such code that can run."""
        small, most = self.small_batches if states <= SMALL_BATCH_MAX_STATES else None, context.device.shared_bytes
        if small is not None and small.grid.shared_bytes <= most:
            return small
        large = self.large_batches
        return large if large is not None and has_scratch and large.grid.shared_bytes <= most else self

    def loaded(self, context: Context, may_wait: bool = True) -> Loaded:
        """The modules in a context, which is current."""
        found = self._loaded.get(context.handle)
        if found is None or found.context is not context:
            with self._lock:
                found = self._loaded.get(context.handle)
                if found is None or found.context is not context:
                    found = self._loaded[context.handle] = self._load(context, may_wait)
        return found

    def _load(self, context: Context, may_wait: bool) -> Loaded:
        limit = context.device.shared_bytes
        if self.grid.shared_bytes > limit:
            raise InputError(
                f"{self.function}: a block takes {self.grid.shared_bytes:,} bytes of shared memory, and "
                f"{context.device.name} has {limit:,}; take target='cpu', or another card"
            )
        made = assemble.assemble(self.texts, context, self.function)
        try:
            loaded = Loaded(made.cubins, self.grid, context, may_wait)
        except DeviceError as error:
            if not made.cached:
                raise DeviceError(f"{self.function}: {error}", error.code) from None
            assemble.forget(self.texts, context)  # of another driver with the same version, perhaps
            made = assemble.assemble(self.texts, context, self.function)
            loaded = Loaded(made.cubins, self.grid, context, may_wait)
        self.seconds += made.seconds
        self.cached = self.cached and made.cached
        for function in (*loaded.rows, *loaded.strided):
            if not 0 < self.grid.threads <= function.max_threads or function.blocks < 1:
                raise InputError(
                    f"{self.function}: blocks of {self.grid.threads} threads do not fit on {context.device.name} "
                    f"({function.registers} registers a thread, {function.shared_bytes:,} bytes of shared memory)"
                )
        return loaded

    def facts(self, context: Context | None = None) -> dict[str, Any]:
        """About the machine code, for `info`: registers, local memory, shared memory, occupancy of each function.

        Where large batches have code of their own, it is that.
        """
        if self.large_batches is not None:
            return self.large_batches.facts(context)
        context = find()[0] if context is None else context
        with context:
            loaded = self.loaded(context)
        device = context.device
        out: dict[str, Any] = {"device": device.name, "arch": device.arch, "threads": self.grid.threads}
        out |= {"groups": self.grid.threads_per_state, "modules": len(self.texts)}
        for name, functions in ((ROWS, loaded.rows), (STRIDED, loaded.strided)):
            if functions:
                out[name] = [self._facts(f, device.threads_per_processor) for f in functions]
        return out

    def _facts(self, f: Function, most_threads: int) -> dict[str, Any]:
        facts: dict[str, Any] = f._asdict()
        del facts["handle"]
        facts["occupancy"] = round(f.blocks * self.grid.threads / most_threads, 3)
        facts["warps"] = f.blocks * self.grid.threads // WARP
        return facts
