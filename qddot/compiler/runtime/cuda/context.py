"""Contexts of the driver: the caller's where there is one, else the primary context, which PyTorch, CuPy and JAX share.

A context is made current for a call and then taken off again, so that the caller finds its thread as it was. Primary
contexts are kept until the process ends. A context of the caller's own must outlive the kernels that ran in it.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_size_t, c_void_p
from typing import Any, NamedTuple

from qddot.compiler.runtime.cuda.driver import Driver, driver
from qddot.compiler.runtime.cuda.memory import Pool, device_pool, host_pool
from qddot.compiler.runtime.forks import guarded_lock
from qddot.errors import InputError

MIN_CAPABILITY = (7, 5)  # Turing
DEFAULT_STREAM = 0  # the legacy default stream of a context; others wait for it unless they are made not to

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING
# CUdevice_attribute
_PROCESSORS, _MAJOR, _MINOR, _BLOCK_SHARED, _THREADS_PER_PROCESSOR = 16, 75, 76, 97, 39


class Device(NamedTuple):
    """Facts about a card."""

    ordinal: int
    name: str
    capability: tuple[int, int]
    processors: int  # streaming multiprocessors
    threads_per_processor: int
    shared_bytes: int  # most shared memory of a block, where a kernel opts in
    memory_bytes: int

    @property
    def arch(self) -> str:
        """As the assembler names it."""
        return f"sm_{self.capability[0]}{self.capability[1]}"


class Context:
    """A context, current within `with`. Its pools keep memory of the device, and page-locked memory of the host."""

    def __init__(self, own: Driver, handle: int, device: Device) -> None:
        self.driver, self.handle, self.device = own, handle, device
        self.lock = guarded_lock()
        self.pool: Pool = device_pool(self)
        self.staging: Pool = host_pool(self)
        self.unwanted: list[int] = []  # modules whose kernels are gone
        self._streams: list[int] = []
        self._pushed, self._popped_at = c_void_p(handle), byref(c_void_p())  # nobody reads what is popped

    def __enter__(self) -> Context:
        if code := self.driver.push(self._pushed):
            raise self.driver.failure(code, self.driver.push)
        return self

    def __exit__(self, *exception: object) -> None:
        if code := self.driver.pop(self._popped_at):
            raise self.driver.failure(code, self.driver.pop)

    def streams(self) -> list[int]:
        """Two streams of qddot's own, which do not wait for others; the context is current."""
        with self.lock:
            while len(self._streams) < 2:
                self._streams.append(self.driver.handle(self.driver.cuStreamCreate, _NON_BLOCKING))
            return self._streams

    def free_bytes(self) -> int:
        """Device memory that can be had, that of the pool included; the context is current."""
        free, total = c_size_t(), c_size_t()
        self.driver.cuMemGetInfo_v2(byref(free), byref(total))
        return free.value + self.pool.kept_bytes()

    def event(self, timing: bool = False) -> int:
        """A new event; the context is current."""
        return self.driver.handle(self.driver.cuEventCreate, 0 if timing else _NO_TIMING)

    def order(self, first: int, second: int) -> None:
        """What is put on the second stream from now on waits for all that is on the first; the context is current."""
        event = self.event()
        try:
            self.driver.cuEventRecord(event, first)
            self.driver.cuStreamWaitEvent(second, event, 0)
        finally:
            self.driver.cuEventDestroy_v2(event)  # freed by the driver once it has happened

    def is_capturing(self, stream: int) -> bool:
        """Whether work on a stream is recorded into a CUDA graph rather than done; the context is current."""
        status = c_int()
        self.driver.cuStreamIsCapturing(stream, byref(status))
        return status.value != 0


class _Known:
    """The contexts of one driver."""

    def __init__(self, own: Driver) -> None:
        self.driver = own
        self.devices: dict[int, Device] = {}
        self.by_handle: dict[int, Context] = {}
        self.primary: dict[int, Context] = {}


_lock = guarded_lock()
_known: _Known | None = None


def _contexts() -> _Known:
    global _known
    own, known = driver(), _known
    if known is None or known.driver is not own:
        with _lock:
            if _known is None or _known.driver is not own:
                _known = _Known(own)
            known = _known
    return known


def current_handle() -> int:
    """The context that is current on this thread; 0: none."""
    own = driver()
    value = c_void_p()
    own.cuCtxGetCurrent(byref(value))
    return value.value or 0


def find(ordinal: int | None = None) -> tuple[Context, bool]:
    """The context for a device, and whether it is current: the current one if it is of that device, else the primary one.

    No device: the current one's, else the first.
    """
    known, handle = _contexts(), current_handle()
    if handle:
        found = known.by_handle.get(handle) or _register(known, handle)
        if ordinal is None or ordinal == found.device.ordinal:
            return found, True
    return known.primary.get(ordinal or 0) or _primary(known, ordinal or 0), False


def _register(known: _Known, handle: int) -> Context:
    """The current context, which is new to us."""
    with _lock:
        own = known.driver
        device = _device(known, own.number(own.cuCtxGetDevice))
        return known.by_handle.setdefault(handle, Context(own, handle, device))


def _primary(known: _Known, ordinal: int) -> Context:
    with _lock:
        if ordinal not in known.primary:
            own = known.driver
            count = own.number(own.cuDeviceGetCount)
            if not 0 <= ordinal < count:
                raise InputError(f"target 'cuda': there is no device {ordinal}; the driver finds {count}")
            device = _device(known, ordinal)  # before the context, which takes memory: it may be too old
            handle = own.handle(own.cuDevicePrimaryCtxRetain, _cu_device(own, ordinal))
            known.primary[ordinal] = known.by_handle.setdefault(handle, Context(own, handle, device))
        return known.primary[ordinal]


def _cu_device(own: Driver, ordinal: int) -> int:
    return own.number(own.cuDeviceGet, ordinal)


def _device(known: _Known, ordinal: int) -> Device:
    """Facts about a device. The driver's handle of one is its ordinal."""
    if ordinal not in known.devices:
        own = known.driver
        handle = _cu_device(own, ordinal)

        def fact(attribute: int) -> int:
            return own.device_attribute(attribute, handle)

        text = ctypes.create_string_buffer(256)
        own.cuDeviceGetName(text, len(text), handle)
        name, capability = text.value.decode(errors="replace"), (fact(_MAJOR), fact(_MINOR))
        if capability < MIN_CAPABILITY:
            has, needs = (".".join(map(str, x)) for x in (capability, MIN_CAPABILITY))
            raise InputError(
                f"target 'cuda': {name} has compute capability {has}; kernels need {needs} (Turing) or newer; "
                "take another card (CUDA_VISIBLE_DEVICES), or target='cpu'"
            )
        memory = own.number(own.cuDeviceTotalMem_v2, handle, kind=c_size_t)
        facts = fact(_PROCESSORS), fact(_THREADS_PER_PROCESSOR), fact(_BLOCK_SHARED), memory
        known.devices[ordinal] = Device(ordinal, name, capability, *facts)
    return known.devices[ordinal]


def devices() -> list[Device]:
    """All cards that kernels can run on."""
    known = _contexts()
    found: list[Any] = []
    for ordinal in range(known.driver.number(known.driver.cuDeviceGetCount)):
        try:
            found.append(_device(known, ordinal))
        except InputError:  # too old
            continue
    return found


def obstacle() -> str | None:
    """Why kernels cannot run on a card here; None where they can."""
    try:
        find()
    except InputError as error:
        return str(error)
    return None
