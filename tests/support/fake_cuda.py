"""The stand-in for NVIDIA's driver as a library, kernels for it, and stand-ins for frameworks whose arrays they take."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import subprocess
import types
from pathlib import Path

import numpy as np

from qddot.compiler.runtime.cuda import arrays
from qddot.compiler.runtime.cuda.grid import Grid
from qddot.compiler.runtime.cuda.kernel import kernel
from qddot.compiler.runtime.cuda.modules import GridCode
from qddot.compiler.runtime.kernel import Info
from tests.support.c_code import COMPILERS

Device = collections.namedtuple("Device", "type index")  # of a tensor
SOURCE = Path(__file__).with_suffix(".c")


def built(folder):
    """The path of the library."""
    out = folder / "fake_cuda.so"
    command = [COMPILERS[0], "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", str(SOURCE), "-o", str(out)]
    done = subprocess.run([*command, "-lpthread"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:2000]
    return out


class Fake:
    """What tests set and ask of the library."""

    def __init__(self, path):
        self.path, self._library = path, ctypes.CDLL(str(path))
        self._library.fake_log.restype = ctypes.c_char_p
        self._library.fake_get.restype = ctypes.c_long
        self._library.fake_set.argtypes = [ctypes.c_char_p, ctypes.c_long]

    def reset(self):
        self._library.fake_reset()

    def fail(self, name, code, skip=0):
        """The next call of a function returns this code."""
        self._library.fake_fail(name.encode(), code, skip)

    def set(self, what, value):
        self._library.fake_set(what.encode(), value)

    def get(self, what):
        return self._library.fake_get(what.encode())

    def log(self):
        """What was done since the last look."""
        lines = self._library.fake_log().decode().splitlines()
        self._library.fake_clear_log()
        return lines

    def launches(self):
        return [line for line in self.log() if line.startswith("launch")]


def ptx(shape=(3,), inputs=2, dtype="float64", scratch=0, note=""):
    """What the stand-in takes for the text of a module: 2 * first input + the others."""
    numbers = " ".join(map(str, (len(shape), *shape, inputs, scratch)))
    return f"// fake {dtype[5:].replace('32', 'f').replace('64', 'd')} {numbers}\n{note}\n"


def info(dtype="float64", function="twice_plus"):
    return Info(function, "test", "unrolled", dtype, 1, {}, 1, 1, 0.0, False)


def twice_plus(shape=(3,), dtype="float64", grid=None, note="", modules=1, small=None, large=None):
    """A kernel of q, v; and its code. `small` and `large` are the grids of other code for small and large batches."""
    grid = grid or Grid(128, has_strided=True)
    texts = [ptx(shape, 2, dtype, grid.scratch_numbers, f"{note} {k}") for k in range(modules)]
    other = small and GridCode([ptx(shape, 2, dtype, small.scratch_numbers, f"{note} small")], small, "twice_plus")
    count = len(large.modules) if large else 0
    more = large and GridCode([ptx(shape, 2, dtype, 1, f"{note} large {k}") for k in range(count)], large, "twice_plus")
    code = GridCode(texts, grid, "twice_plus", other, more)
    return kernel(code, ("q", "v"), (shape, shape), shape, info(dtype), lambda: ""), code


def numbers(*shape, seed=0, dtype="float64"):
    """An array of this shape on the host."""
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def on_device(x, dtype="float64"):
    return arrays.to_device(np.asarray(x, dtype))


class Foreign:
    """An array on the device that nobody knows, with `__cuda_array_interface__`."""

    def __init__(self, array, **facts):
        self.array, self.facts = array, facts

    @property
    def __cuda_array_interface__(self):
        return self.array.__cuda_array_interface__ | self.facts


class Capsuled:
    """An array on the device that has DLPack only."""

    def __init__(self, array):
        self.array, self.streams = array, []

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options):
        self.streams.append(options.get("stream"))
        return self.array.__dlpack__(**options)


def torch(stream):
    """A module with tensors, some of which lie on the device."""
    module = types.ModuleType("torch")
    module.float32, module.float64, module.float16 = "torch.float32", "torch.float64", "torch.float16"

    class Tensor:
        requires_grad, layout = False, "torch.strided"

        def __init__(self, array, dtype=None, is_cuda=True):
            self.array, self.is_cuda, self.shape = array, is_cuda, array.shape
            self.device = Device("cuda" if is_cuda else "cpu", 0)
            self.dtype = dtype or f"torch.{array.dtype}"

        def __array__(self, dtype=None, copy=None):
            return np.array(self.array, dtype)

        def __getitem__(self, index):
            return Tensor(self.array[index])

        def detach(self):
            return self

        def resolve_neg(self):
            return self

        def numpy(self):
            return self.array

        def data_ptr(self):
            return self.array.pointer

        def stride(self):
            return self.array.strides

        def get_device(self):
            return self.array.device

        def is_neg(self):
            return False

        def is_contiguous(self):
            return arrays.is_contiguous(self.array.shape, self.array.strides)

    def empty(shape, dtype, device):
        assert device == ("cuda", 0)
        return Tensor(arrays.empty(shape, dtype.removeprefix("torch.")))

    wrapped = types.SimpleNamespace(is_functorch_wrapped_tensor=lambda x: False)
    module._C = types.SimpleNamespace(_functorch=wrapped)
    dual = types.SimpleNamespace(unpack_dual=lambda x: types.SimpleNamespace(tangent=None))
    module.autograd = types.SimpleNamespace(forward_ad=dual)
    module.is_grad_enabled = lambda: True
    module.from_numpy = lambda x: Tensor(x, is_cuda=False)
    module.empty_like = lambda x: Tensor(arrays.empty(x.shape, x.array.dtype))
    module.Tensor, module.empty, module.device = Tensor, empty, lambda kind, ordinal: (kind, ordinal)
    module.cuda = types.SimpleNamespace(current_stream=lambda device: types.SimpleNamespace(cuda_stream=stream))
    return module


def cupy(stream):
    """A module with arrays on the device."""
    module = types.ModuleType("cupy")

    class ndarray:
        def __init__(self, array, dtype=None):
            array = array if dtype is None else arrays.empty(array, dtype)
            self.array, self.shape, self.dtype = array, array.shape, array.dtype
            self.strides = tuple(s * array.dtype.itemsize for s in array.strides)
            self.data = types.SimpleNamespace(ptr=array.pointer, device_id=array.device)

        def __getitem__(self, index):
            return ndarray(self.array[index])

    module.ndarray, module.empty = ndarray, lambda shape, dtype: ndarray(arrays.empty(shape, dtype))
    module.cuda = types.SimpleNamespace(
        get_current_stream=lambda device=-1: types.SimpleNamespace(ptr=stream),
        runtime=types.SimpleNamespace(getDevice=lambda: 0),
        Device=lambda ordinal: contextlib.nullcontext(),
    )
    return module


def jax():
    """A module with constant arrays on the device, or tracers."""
    module = types.ModuleType("jax")

    class Array(Capsuled):
        waited, shape = 0, property(lambda self: self.array.shape)
        dtype = property(lambda self: self.array.dtype)
        devices = staticmethod(lambda: [types.SimpleNamespace(platform="gpu")])

        def block_until_ready(self):
            self.waited += 1
            return self

        def __getitem__(self, index):
            return Array(self.array[index])

    class Tracer(Array):
        pass

    module.Array, module.core = Array, types.SimpleNamespace(Tracer=Tracer)
    module.dlpack = types.SimpleNamespace(from_dlpack=lambda x: Array(x))
    return module
