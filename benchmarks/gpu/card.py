"""The card that kernels are measured on; and a rehearsal of one, on this processor, for runs without a card."""

import time
from collections.abc import Callable
from contextlib import suppress
from ctypes import byref, c_int
from typing import Any, NamedTuple

import numpy as np

import qddot
from benchmarks.gpu.cases import LARGE_BATCH, Case
from qddot.compiler.runtime.cuda import arrays, context, timing
from qddot.compiler.runtime.cuda.grid import from_json
from qddot.compiler.runtime.cuda.kernel import code_of
from qddot.compiler.runtime.cuda.kernel import kernel as kernel_of_code
from qddot.compiler.runtime.cuda.modules import GridCode
from qddot.compiler.runtime.kernel import Info
from qddot.errors import DeviceError

_CLOCK_KHZ, _L2_BYTES = 13, 38  # CUdevice_attribute
_LANES = {  # multiply-adds a cycle of a multiprocessor, in float32 and float64, by compute capability
    (7, 5): (64, 2),
    (8, 0): (64, 32),
    (8, 6): (128, 2),
    (8, 7): (128, 2),
    (8, 9): (128, 2),
    (9, 0): (128, 64),
    (10, 0): (128, 64),
    (12, 0): (128, 2),
}
_ROUND_SECONDS = 0.01  # of one round of measuring
_MOST_CALLS, _ROUNDS = 100, 5
_HOST_SECONDS = 60e-6  # that the host takes for one call, at most
_BLOCK_BYTES = 64 << 20  # of copies that keep the card busy while calls queue up


class Loaded(NamedTuple):
    """A kernel that is ready to be called."""

    call: Callable[..., Any]
    inputs: list[tuple[int, ...]]
    output: tuple[int, ...]
    seconds: float  # until it could be called
    cached: bool
    facts: dict[str, Any]


class Card:
    """The present card, by qddot's runtime."""

    def __init__(self) -> None:
        self.context, _ = context.find()
        self._blocks: tuple[Any, Any] | None = None
        self._nan: dict[str, Any] = {}
        self._copy_seconds = 0.0

    def describe(self) -> dict[str, Any]:
        """The card, its driver, and what bounds speed: copies within its memory, and its arithmetic."""
        device, own = self.context.device, self.context.driver
        version = c_int()
        own.cuDriverGetVersion(byref(version))
        clock = self._attribute(_CLOCK_KHZ)
        lanes = _LANES.get(device.capability, (0, 0))
        per_second = [1e3 * clock * device.processors * n for n in lanes]
        return {
            "card": device.name,
            "arch": device.arch,
            "processors": device.processors,
            "memory_bytes": device.memory_bytes,
            "l2_bytes": self._attribute(_L2_BYTES),
            "cuda": f"{version.value // 1000}.{version.value % 1000 // 10}",
            "clock_mhz": clock / 1e3,
            "multiply_adds_per_second": dict(zip(("float32", "float64"), per_second, strict=True)),
            "copy_bytes_per_second": timing.copy_bandwidth(),
        }

    def _attribute(self, number: int) -> int:
        """A fact about the card; 0 where the driver does not say."""
        with suppress(DeviceError):
            return self.context.driver.device_attribute(number, self.context.device.ordinal)
        return 0

    # ---- kernels

    def kernel(self, case: Case, robot: qddot.Robot) -> Loaded:
        """The kernel as a user gets it, from the cache if it is there."""
        begin = time.perf_counter()
        made = robot.kernel(case.function, dtype=case.dtype, packed=case.packed, target="cuda")
        code = code_of(made).suited(LARGE_BATCH, self.context)
        facts = code.facts(self.context)
        seconds = time.perf_counter() - begin
        cached = made.info.cached and code.cached
        return Loaded(made, list(made.inputs), made.output, seconds, cached, facts)

    def variant(self, case: Case, made: dict[str, Any], inputs: list[Any], output: Any) -> Loaded:
        """A kernel of PTX that `prepare` has left."""
        begin = time.perf_counter()
        code = GridCode([made["ptx"]], from_json(made["grid"]), case.function)
        info = Info(case.function, "variant", "unrolled", case.dtype, 1, {}, 0, len(made["ptx"]), 0.0, True)
        names = [f"x{k}" for k in range(len(inputs))]
        call = kernel_of_code(code, names, inputs, output, info, lambda: "")
        facts = code.facts(self.context)
        return Loaded(call, inputs, output, time.perf_counter() - begin, code.cached, facts)

    # ---- arrays

    def repeated(self, rows: np.ndarray, count: int, layout: str) -> Any:
        """An array of so many states, which are those of `rows` again and again."""
        n, own = rows.shape[1], rows[:count]
        if layout == "row":
            out = arrays.empty((count, n), rows.dtype, self.context)
            self._periodic(arrays.to_device(own, self.context), out.pointer, out.nbytes)
            return out
        out = arrays.empty((n, count), rows.dtype, self.context)
        columns = arrays.to_device(np.ascontiguousarray(own.T), self.context)
        for k in range(n):
            self._periodic(columns[k], out.pointer + k * count * rows.itemsize, count * rows.itemsize)
        return out.T

    def _periodic(self, source: Any, pointer: int, size: int) -> None:
        """Fills memory with the numbers of an array, again and again."""
        done = min(size, source.nbytes)
        with self.context as own:
            own.driver.cuMemcpyDtoDAsync_v2(pointer, source.pointer, done, 0)
            while done < size:
                step = min(done, size - done)
                own.driver.cuMemcpyDtoDAsync_v2(pointer + done, pointer, step, 0)
                done += step

    def empty(self, count: int, shape: tuple[int, ...], dtype: str, layout: str) -> Any:
        """An array for results, all NaN."""
        whole = (count, *shape) if layout == "row" else (*shape[::-1], count)
        out = arrays.empty(whole, dtype, self.context)
        if dtype not in self._nan:
            self._nan[dtype] = arrays.to_device(np.full(4096, np.nan, dtype), self.context)
        self._periodic(self._nan[dtype], out.pointer, out.nbytes)
        return out if layout == "row" else out.T

    def host(self, x: Any) -> np.ndarray:
        return x.copy_to_host()

    # ---- time

    def seconds(self, call: Callable[[], Any]) -> float:
        """Of one call on the card; calls are queued before the clock starts."""
        once = timing.device_time(call, calls=1, rounds=2)
        calls = max(3, min(_MOST_CALLS, int(_ROUND_SECONDS / max(once, 1e-9))))
        return timing.device_time(call, calls, _ROUNDS, ahead=lambda: self._busy(_HOST_SECONDS * calls))

    def host_seconds(self, call: Callable[[], Any], calls: int = 500) -> float:
        """Of one call on the host, if nobody waits for results; best of some rounds."""
        best = float("inf")
        for _ in range(_ROUNDS):
            begin = time.perf_counter()
            for _ in range(calls):
                call()
            best = min(best, (time.perf_counter() - begin) / calls)
            self.wait()
        return best

    def wait(self) -> None:
        with self.context as own:
            own.driver.cuCtxSynchronize()

    def _busy(self, seconds: float) -> None:
        """Keeps the card busy for so long, with copies."""
        if self._blocks is None:
            self._blocks = tuple(arrays.empty((_BLOCK_BYTES // 8,), "float64", self.context) for _ in range(2))
            self._copy_seconds = timing.device_time(lambda: self._copies(10)) / 10
        self._copies(1 + int(seconds / self._copy_seconds))

    def _copies(self, count: int) -> None:
        source, target = self._blocks
        with self.context as own:
            for _ in range(count):
                own.driver.cuMemcpyDtoDAsync_v2(target.pointer, source.pointer, _BLOCK_BYTES, 0)


class Rehearsal:
    """This processor in a card's place, with NumPy's arrays: for a look at a run before it has a card. No figures."""

    def describe(self) -> dict[str, Any]:
        source = np.ones(1 << 24)
        target = np.empty_like(source)
        seconds = self.seconds(lambda: np.copyto(target, source))
        return {
            "card": "rehearsal on the CPU",
            "arch": "cpu",
            "copy_bytes_per_second": 2 * source.nbytes / seconds,
            "multiply_adds_per_second": {"float32": 0.0, "float64": 0.0},
        }

    def kernel(self, case: Case, robot: qddot.Robot) -> Loaded:
        begin = time.perf_counter()
        made = robot.kernel(case.function, dtype=case.dtype, packed=case.packed)
        facts = {"threads": 0, "groups": 1, "rows": [{"registers": 0, "local_bytes": 0, "occupancy": 0.0}]}
        return Loaded(made, list(made.inputs), made.output, time.perf_counter() - begin, made.info.cached, facts)

    def variant(self, case: Case, made: dict[str, Any], inputs: list[Any], output: Any) -> Loaded:
        raise NotImplementedError("layouts are for cards; a rehearsal has none")

    def repeated(self, rows: np.ndarray, count: int, layout: str) -> Any:
        out = np.resize(rows, (count, rows.shape[1]))
        return out if layout == "row" else np.asfortranarray(out)

    def empty(self, count: int, shape: tuple[int, ...], dtype: str, layout: str) -> Any:
        return np.full((count, *shape), np.nan, dtype, order="C" if layout == "row" else "F")

    def host(self, x: Any) -> np.ndarray:
        return np.array(x)

    def seconds(self, call: Callable[[], Any]) -> float:
        return self.host_seconds(call, 3)

    def host_seconds(self, call: Callable[[], Any], calls: int = 500) -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - begin) / calls

    def wait(self) -> None:
        pass
