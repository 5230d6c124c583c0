"""NVIDIA's driver through ctypes: loaded when it is first used, and every return code becomes an error with its name.

Only functions of the driver's stable interface since CUDA 11 are used, by the names that the library exports (`_v2` where
the header renames them). QDDOT_CUDA_DRIVER names another library file.
"""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any

from qddot.compiler.runtime.forks import guarded_lock
from qddot.errors import DeviceError, InputError

OUT_OF_MEMORY, NOT_INITIALIZED, NO_DEVICE, UNSUPPORTED_PTX, NOT_READY = 2, 3, 100, 222, 600
# After these a context is of no use any more: faults of a kernel on the device.
_LOST = {700, 702, 710, *range(714, 720)}

_MIN_VERSION = 11000  # of CUDA: 1000 × major + 10 × minor
_DEVICEPTR = c_uint64

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (c_void_p,),
    "cuDeviceGetCount": (c_void_p,),
    "cuDeviceGet": (c_void_p, c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetAttribute": (c_void_p, c_int, c_int),
    "cuDeviceTotalMem_v2": (c_void_p, c_int),
    "cuDevicePrimaryCtxRetain": (c_void_p, c_int),
    "cuCtxGetCurrent": (c_void_p,),
    "cuCtxGetDevice": (c_void_p,),
    "cuCtxPushCurrent_v2": (c_void_p,),
    "cuCtxPopCurrent_v2": (c_void_p,),
    "cuCtxSynchronize": (),
    "cuMemGetInfo_v2": (c_void_p, c_void_p),
    "cuMemAlloc_v2": (c_void_p, c_size_t),
    "cuMemFree_v2": (_DEVICEPTR,),
    "cuMemHostAlloc": (c_void_p, c_size_t, c_uint),
    "cuMemFreeHost": (c_void_p,),
    "cuMemcpyHtoD_v2": (_DEVICEPTR, c_void_p, c_size_t),
    "cuMemcpyDtoH_v2": (c_void_p, _DEVICEPTR, c_size_t),
    "cuMemcpyHtoDAsync_v2": (_DEVICEPTR, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoHAsync_v2": (c_void_p, _DEVICEPTR, c_size_t, c_void_p),
    "cuMemcpyDtoDAsync_v2": (_DEVICEPTR, _DEVICEPTR, c_size_t, c_void_p),
    "cuMemcpy2DAsync_v2": (c_void_p, c_void_p),
    "cuPointerGetAttribute": (c_void_p, c_int, _DEVICEPTR),
    "cuStreamCreate": (c_void_p, c_uint),
    "cuStreamSynchronize": (c_void_p,),
    "cuStreamWaitEvent": (c_void_p, c_void_p, c_uint),
    "cuStreamIsCapturing": (c_void_p, c_void_p),
    "cuEventCreate": (c_void_p, c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventQuery": (c_void_p,),
    "cuEventSynchronize": (c_void_p,),
    "cuEventElapsedTime": (c_void_p, c_void_p, c_void_p),
    "cuEventDestroy_v2": (c_void_p,),
    "cuLinkCreate_v2": (c_uint, c_void_p, c_void_p, c_void_p),
    "cuLinkAddData_v2": (c_void_p, c_int, c_void_p, c_size_t, c_char_p, c_uint, c_void_p, c_void_p),
    "cuLinkComplete": (c_void_p, c_void_p, c_void_p),
    "cuLinkDestroy": (c_void_p,),
    "cuModuleLoadData": (c_void_p, c_char_p),
    "cuModuleUnload": (c_void_p,),
    "cuModuleGetFunction": (c_void_p, c_void_p, c_char_p),
    "cuFuncGetAttribute": (c_void_p, c_int, c_void_p),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (c_void_p, c_void_p, c_int, c_size_t),
    "cuLaunchKernel": (c_void_p, *[c_uint] * 7, c_void_p, c_void_p, c_void_p),
}

_ADVICE = "install the driver of the graphics card from NVIDIA, or take target='cpu'"


class Driver:
    """The driver's functions, by their exported names. One that fails raises `DeviceError`, which has the `code`."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, name: str) -> None:
        self.forked = False  # this process is a child of the one that loaded it
        try:
            # On 64-bit Windows both conventions of calling are one.
            library = ctypes.CDLL(name)
        except OSError as error:
            raise InputError(
                f"target 'cuda' needs NVIDIA's driver, and {name} cannot be loaded ({error}); {_ADVICE}"
            ) from None
        try:
            for title, kinds in _SIGNATURES.items():
                function = getattr(library, title)
                function.argtypes, function.restype, function.errcheck = kinds, c_int, self._checked
                setattr(self, title, function)
            self._describe = library.cuGetErrorName, library.cuGetErrorString
            # Without conversions of arguments and without a check, both of which Python pays for in every call: arguments
            # are objects of ctypes, and the caller looks at the return code (`failure`).
            self.launch: Any = library["cuLaunchKernel"]
            self.get_current: Any = library["cuCtxGetCurrent"]
            self.push: Any = library["cuCtxPushCurrent_v2"]
            self.pop: Any = library["cuCtxPopCurrent_v2"]
        except AttributeError as error:
            raise InputError(f"NVIDIA's driver {name} is too old ({error}): {_ADVICE}") from None
        for describe in self._describe:
            describe.argtypes, describe.restype = (c_int, c_void_p), c_int
        self._initialise()

    def _initialise(self) -> None:
        try:
            self.cuInit(0)
        except DeviceError as error:
            if error.code == NO_DEVICE:
                raise InputError("target 'cuda': NVIDIA's driver finds no card here; take target='cpu'") from None
            if error.code == NOT_INITIALIZED:
                raise InputError(_FORKED) from None
            raise InputError(f"target 'cuda': NVIDIA's driver does not start: {error}; {_ADVICE}") from None
        version = c_int()
        self.cuDriverGetVersion(byref(version))
        self.version = version.value
        if self.version < _MIN_VERSION:
            shown = f"{self.version // 1000}.{self.version % 1000 // 10}"
            raise InputError(f"target 'cuda': NVIDIA's driver is for CUDA {shown}, and 11.0 is needed: {_ADVICE}")

    def _checked(self, result: int, function: Any, arguments: tuple[Any, ...]) -> int:
        if result:
            raise self.failure(result, function)
        return result

    def failure(self, code: int, function: Any) -> DeviceError:
        """The error of a function that returned this code."""
        return DeviceError(f"{function.__name__}: {self.described(code)}", code)

    def described(self, code: int) -> str:
        """A return code by its name and the driver's words for it."""
        texts = []
        for describe in self._describe:
            text = c_char_p()
            known = describe(code, byref(text)) == 0 and text.value is not None
            texts.append((text.value or b"").decode(errors="replace") if known else f"error {code}")
        lost = "; the card's state is lost for this process: start it again" if code in _LOST else ""
        return f"{texts[0]} ({texts[1]}){lost}"

    # ---- questions with one number as their answer

    def number(self, function: Any, *args: Any, kind: Any = c_int) -> int:
        """What a function writes to its first argument."""
        value = kind()
        function(byref(value), *args)
        return int(value.value or 0)

    def handle(self, function: Any, *args: Any) -> int:
        """A pointer that a function writes to its first argument; 0 for null."""
        return self.number(function, *args, kind=c_void_p)

    def device_attribute(self, attribute: int, device: int) -> int:
        """A fact about a device."""
        return self.number(self.cuDeviceGetAttribute, attribute, device)

    def function_attribute(self, attribute: int, function: int) -> int:
        """A fact about a function in a module."""
        return self.number(self.cuFuncGetAttribute, attribute, function)

    def elapsed_ms(self, begin: int, end: int) -> float:
        """Between two events that have happened."""
        value = c_float()
        self.cuEventElapsedTime(byref(value), begin, end)
        return float(value.value)


_FORKED = (
    "CUDA was used before this process was forked, and does not work in the child; start processes with "
    "multiprocessing.get_context('spawn'), or use the card in the child only"
)
_lock = guarded_lock()
_loaded: Driver | None = None


def driver() -> Driver:
    """The driver, loaded at the first use."""
    global _loaded
    found = _loaded
    if found is None:
        with _lock:
            if _loaded is None:
                _loaded = Driver(_library())
            found = _loaded
    if found.forked:
        raise InputError(_FORKED)
    return found


def _after_in_child() -> None:
    if _loaded is not None:
        _loaded.forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_in_child)


def usable(own: Driver, is_finalizing: Any = sys.is_finalizing) -> bool:
    """Whether memory and modules may still be freed: not in a forked child, nor when the interpreter ends.

    The function is its own, because modules are empty when the last objects go.
    """
    return not is_finalizing() and not own.forked


def _library() -> str:
    named = os.environ.get("QDDOT_CUDA_DRIVER")
    return named or ("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
