"""Memory of a context that is kept for the next use: on the device, and page-locked on the host.

A block that is given back may still be used by work on its stream. On the default stream a block is taken again without
more ado, since all work there is in order. Otherwise an event, recorded when it was given back, is waited for by the next
stream, or must have happened. At most QDDOT_CUDA_POOL_MB megabytes are kept of each kind (512 unless said; 0: none).

The driver's own stream-ordered allocator (cuMemAllocAsync) is not used: not every device has it, it gives memory back to
the system at each synchronisation unless the default pool, which belongs to all in the process, is set otherwise, and
freeing needs the stream, which may be gone when an array goes.
"""

from __future__ import annotations

import os
from contextlib import suppress
from ctypes import byref, c_size_t, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any

from qddot.compiler.runtime.cuda.driver import NOT_READY, OUT_OF_MEMORY, usable
from qddot.compiler.runtime.forks import guarded_lock
from qddot.errors import DeviceError, InputError

if TYPE_CHECKING:
    from qddot.compiler.runtime.cuda.context import Context

_MAX_KEPT_BYTES = 512 << 20
_MAX_WASTE = 1.25  # a block may be larger than what it is taken for by this factor
_GRAIN = 512  # bytes that sizes are multiples of
_LARGE_GRAIN = 1 << 20  # where they are large


class Block:
    """A piece of memory, and the stream that used it last."""

    __slots__ = ("address", "event", "size", "stream")

    def __init__(self, address: int, size: int) -> None:
        self.address, self.size = address, size
        self.stream = self.event = 0


class Pool:
    """Blocks of one kind in one context. `take` needs the context to be current; `give` does not."""

    def __init__(self, context: Context, host: bool) -> None:
        self._context, self._host = context, host
        self._free: list[Block] = []  # the one that was given back last is the last
        self._kept = 0  # bytes of them
        self._most_kept = most_kept_bytes()
        self._lock = guarded_lock()  # reentrant: the garbage collector may give back while another block is taken

    def take_last(self, size: int) -> Block | None:
        """The block that was given back last, if it fits work on the default stream of the device: for results of calls
        in a row. Asks nothing of the driver, and needs no context.
        """
        with self._lock:
            if self._free:
                block = self._free[-1]
                if block.size == _rounded(size) and not block.stream and not self._host:
                    self._kept -= block.size
                    return self._free.pop()
        return None

    def take(self, size: int, stream: int) -> Block:
        """A block of at least this size for work on a stream. On the host, the processor may write to it at once."""
        size = _rounded(size)
        with self._lock:
            # Those of the same stream first: blocks do not wander from one to another, for which others then lack.
            for same in (True, False):
                for k in range(len(self._free) - 1, -1, -1):
                    block = self._free[k]
                    fits = size <= block.size <= _MAX_WASTE * size
                    if fits and (block.stream == stream) is same and self._is_ready(block, stream):
                        del self._free[k]
                        self._kept -= block.size
                        block.stream = stream
                        return block
        return self._new(size, stream)

    def give(self, block: Block, stream: int) -> None:
        """A block that work on this stream may still use."""
        own = self._context.driver
        if not usable(own):
            return
        block.stream = stream
        with suppress(DeviceError):  # after a fault of a kernel the memory is lost
            if stream or self._host:
                with self._context:
                    if not block.event:
                        block.event = self._context.event()
                    own.cuEventRecord(block.event, stream)
            with self._lock:
                self._free.append(block)
                self._kept += block.size
                unwanted = []
                while self._kept > self._most_kept:
                    unwanted.append(self._free.pop(0))
                    self._kept -= unwanted[-1].size
            if unwanted:
                with self._context:
                    self._release(unwanted)

    def discard(self, block: Block) -> None:
        """Frees a block that work on streams we do not know may still use."""
        if usable(self._context.driver):
            with suppress(DeviceError), self._context:
                self._release([block])

    def trim(self) -> int:
        """Frees all that is kept; returns the bytes."""
        with self._lock:
            unwanted, self._free[:], self._kept = list(self._free), [], 0
        if unwanted:
            with self._context:
                self._release(unwanted)
        return sum(x.size for x in unwanted)

    def kept_bytes(self) -> int:
        """Of blocks that nobody uses."""
        return self._kept

    def _is_ready(self, block: Block, stream: int) -> bool:
        own = self._context.driver
        if not self._host and block.stream == stream:
            if stream:  # a stream of the past may have had the same handle
                own.cuStreamWaitEvent(stream, block.event, 0)
            return True
        if not block.event or (block.stream == 0 and not self._host):
            return False  # what it last waited for is not known
        try:
            own.cuEventQuery(block.event)
        except DeviceError as error:
            if error.code == NOT_READY:
                return False
            raise
        return True

    def _new(self, size: int, stream: int) -> Block:
        self._most_kept = most_kept_bytes()  # read here: what is kept grows by new blocks only
        for attempt in range(2):
            try:
                block = Block(self._allocated(size), size)
            except DeviceError as error:
                if error.code != OUT_OF_MEMORY:
                    raise
                if attempt == 0 and self._context.pool.trim() + self._context.staging.trim():
                    continue
                raise MemoryError(self._shortage(size)) from None
            block.stream = stream
            return block
        raise AssertionError

    def _allocated(self, size: int) -> int:
        own = self._context.driver
        if self._host:
            return own.number(own.cuMemHostAlloc, size, 0, kind=c_void_p)
        return own.number(own.cuMemAlloc_v2, size, kind=c_uint64)

    def _shortage(self, size: int) -> str:
        if self._host:
            return f"the system gives no page-locked memory of {size / 1e6:,.1f} MB; free some, or call with fewer states"
        free, total = c_size_t(), c_size_t()
        self._context.driver.cuMemGetInfo_v2(byref(free), byref(total))
        return (
            f"{size / 1e6:,.1f} MB of device memory are needed, and {free.value / 1e6:,.1f} of {total.value / 1e6:,.1f} MB "
            f"are free on {self._context.device.name}; call with fewer states at a time, or free other arrays"
        )

    def _release(self, blocks: list[Block]) -> None:
        """The context is current."""
        own: Any = self._context.driver
        own.cuCtxSynchronize()
        for block in blocks:
            if self._host:
                own.cuMemFreeHost(block.address)
            else:
                own.cuMemFree_v2(block.address)
            if block.event:
                own.cuEventDestroy_v2(block.event)


def _rounded(size: int) -> int:
    """What is allocated for this many bytes."""
    grain = _LARGE_GRAIN if size >= 8 * _LARGE_GRAIN else _GRAIN
    return max(1, -(-size // grain)) * grain


def device_pool(context: Context) -> Pool:
    """Of memory on the device."""
    return Pool(context, host=False)


def host_pool(context: Context) -> Pool:
    """Of page-locked memory on the host."""
    return Pool(context, host=True)


def most_kept_bytes() -> int:
    """What a pool may keep: QDDOT_CUDA_POOL_MB."""
    text = os.environ.get("QDDOT_CUDA_POOL_MB")
    if text is None:
        return _MAX_KEPT_BYTES
    if not text.isdecimal():
        raise InputError(f"QDDOT_CUDA_POOL_MB={text!r} is not known; give a whole number of megabytes, or 0")
    return int(text) << 20
