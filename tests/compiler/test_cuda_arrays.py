"""Arrays on a card, with a stand-in for the driver: qddot's own, and those of PyTorch, CuPy, JAX and others."""

import gc
import sys

import numpy as np
import pytest

from qddot.compiler.runtime.cuda import arrays, context, dlpack
from qddot.errors import InputError
from tests.support import fake_cuda
from tests.support.c_code import needs_compiler
from tests.support.fake_cuda import Capsuled, Foreign, numbers, on_device, twice_plus

pytestmark = needs_compiler


# ---- arrays of qddot's own


def test_arrays_index_and_reshape(fake):
    x = numbers(4, 5, 6)
    d = on_device(x)
    for key in (1, -1, np.s_[1:3], np.s_[2, 1:], np.s_[::-1, ::2], np.s_[3, 4, 5], np.s_[...,], np.s_[2, ...], np.s_[4:]):
        np.testing.assert_array_equal(d[key], x[key], err_msg=str(key))
    for key in (np.s_[..., 1], np.s_[1, ..., 2:], np.s_[..., 1, :, :], np.s_[1:, 2, ..., ::2]):
        np.testing.assert_array_equal(d[key], x[key], err_msg=str(key))
    np.testing.assert_array_equal(d.reshape(20, -1), x.reshape(20, 6))
    np.testing.assert_array_equal(d.reshape((-1,)), x.ravel())
    assert (len(d), d.ndim, d.size, d.nbytes) == (4, 3, 120, 960)
    assert repr(d[0]) == "<DeviceArray (5, 6) float64 on device 0>"
    np.testing.assert_array_equal(d[:, ::2].copy(), x[:, ::2])
    assert np.asarray(d, np.float32).dtype == np.float32
    for wrong in (4, (0, 0, 0, 0)):
        with pytest.raises(IndexError):
            d[wrong]
    with pytest.raises(InputError, match="no index"):
        d[None]
    with pytest.raises(InputError, match=r"\(4, 5, 6\) cannot be reshaped to \(7, -1\)"):
        d.reshape(7, -1)
    with pytest.raises(InputError, match="not contiguous"):
        d[:, 1:].reshape(-1)
    with pytest.raises(InputError, match="int64"):
        arrays.empty((3,), int)


def test_views_hold_the_memory(fake):
    first = arrays.empty((1000,))
    pointer, part = first.pointer, first[10:]
    del first
    assert arrays.empty((1000,)).pointer != pointer
    del part
    assert context.find()[0].pool.kept_bytes() == 16384


def test_arrays_have_the_interface(fake):
    d = on_device(numbers(4, 3))
    interface = d.__cuda_array_interface__
    assert interface == {
        "version": 3,
        "shape": (4, 3),
        "typestr": "<f8",
        "data": (d.pointer, False),
        "strides": None,
        "stream": 1,
    }
    assert d[:, ::2].__cuda_array_interface__["strides"] == (24, 16)
    fake.log()
    del d
    gc.collect()
    assert fake.log() == ["synchronize", "free"]  # not kept: others may have used it on any stream


def test_dlpack_capsules_go_round(fake):
    x = numbers(4, 3)
    d = on_device(x)
    assert d.__dlpack_device__() == (2, 0)
    for version, name in ((None, '"dltensor"'), ((1, 0), '"dltensor')):
        capsule = d[1:, ::2].__dlpack__(max_version=version)
        assert name in repr(capsule)
        found = dlpack.content(capsule)
        assert found == (d.pointer + 24, (3, 2), (3, 2), np.dtype(float), 0, False)
    pointer = d.pointer
    del d
    gc.collect()
    assert arrays.empty((4, 3)).pointer != pointer  # the capsule has it
    fake.log()
    del capsule
    gc.collect()
    assert fake.log() == ["synchronize", "free"]  # its consumer may have used it on any stream


def test_dlpack_keywords(fake):
    before = fake.get("bytes")
    x = numbers(4, 3)
    d = on_device(x)
    fake.log()
    assert dlpack.content(d.__dlpack__(stream=1)).pointer == d.pointer
    assert fake.log() == []
    d.__dlpack__(stream=9)
    assert fake.log() == ["stream 9 waits for 0"]
    assert dlpack.content(d.__dlpack__(copy=True)).pointer != d.pointer
    assert dlpack.content(d.__dlpack__(dl_device=(2, 0), copy=False)).pointer == d.pointer
    with pytest.raises(BufferError):
        d.__dlpack__(dl_device=(2, 1))
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(d)  # NumPy takes no memory of a card
    del d
    gc.collect()
    assert fake.get("bytes") == before  # refused capsules hold nothing


# ---- arrays of others


def test_foreign_arrays(fake):
    k, _ = twice_plus()
    q, v = numbers(10, 3), numbers(3, seed=1)
    result = k(Foreign(on_device(q)), Foreign(on_device(v), stream=None))
    assert isinstance(result, arrays.DeviceArray)
    np.testing.assert_array_equal(result, 2 * q + v)
    fake.log()
    d = on_device(q)
    k(Foreign(d, stream=33), d)
    log = [line for line in fake.log() if line.startswith(("stream", "launch"))]
    assert [line.split(" count")[0] for line in log] == [
        "stream 0 waits for 33",
        "launch rows grid 1 1 block 128 shared 0 stream 0",
        "stream 33 waits for 0",
    ]


def test_foreign_capsules(fake):
    k, _ = twice_plus()
    q = numbers(10, 3)
    x = Capsuled(on_device(q))
    fake.log()
    np.testing.assert_array_equal(k(x, x), 3 * q)
    assert x.streams == [1, 1]
    assert "wait stream 0" in fake.log()  # before the capsules go


def test_tensors(fake, monkeypatch):
    torch = fake_cuda.torch(stream=77)
    monkeypatch.setitem(sys.modules, "torch", torch)
    k, _ = twice_plus()
    q, v = numbers(10, 3), numbers(10, 3, seed=1)
    tq, tv = torch.Tensor(on_device(q)), torch.Tensor(on_device(v))
    fake.log()
    result = k(tq, tv)
    assert type(result) is torch.Tensor
    np.testing.assert_array_equal(result, 2 * q + v)
    assert [line.split(" count")[0] for line in fake.launches()] == ["launch rows grid 1 1 block 128 shared 0 stream 77"]
    out = torch.Tensor(arrays.empty((10, 3)))
    assert k(tq, tv, out=out) is out
    np.testing.assert_array_equal(out, 2 * q + v)
    with pytest.raises(InputError, match=r"q holds torch\.float16.*give q\.to\(torch\.float64\)"):
        k(torch.Tensor(on_device(q), torch.float16), tv)
    host = torch.Tensor(q, is_cuda=False)
    result = k(host, host)
    assert type(result) is torch.Tensor
    assert not result.is_cuda
    np.testing.assert_array_equal(result, 3 * q)
    leaf = torch.Tensor(on_device(q))
    leaf.requires_grad = True
    with pytest.raises(InputError, match=r"q keeps gradients.*robot\.torch\(\)"):
        k(leaf, tv)
    fake.log()
    np.testing.assert_array_equal(k(tq, on_device(v)), 2 * q + v)
    waits = [line for line in fake.log() if " waits for " in line]
    assert waits == [
        "stream 77 waits for 0",
        "stream 0 waits for 77",
    ]  # what is qddot's is in order with the default stream
    np.testing.assert_array_equal(k(tq, [1, 2, 3]), 2 * q + [1, 2, 3])


def test_cupy_arrays(fake, monkeypatch):
    cupy = fake_cuda.cupy(stream=55)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    k, _ = twice_plus()
    q = numbers(10, 3)
    x = cupy.ndarray(on_device(q))
    fake.log()
    result = k(x, x)
    assert type(result) is cupy.ndarray
    np.testing.assert_array_equal(result.array, 3 * q)
    assert "stream 55" in fake.launches()[0]


def test_jax_arrays(fake, monkeypatch):
    jax = fake_cuda.jax()
    monkeypatch.setitem(sys.modules, "jax", jax)
    k, _ = twice_plus()
    q = numbers(10, 3)
    x = jax.Array(on_device(q))
    result = k(x, x)
    assert type(result) is jax.Array
    np.testing.assert_array_equal(result.array, 3 * q)
    assert x.waited == 2
    assert "wait stream 0" in fake.log()
    with pytest.raises(InputError, match="out is read-only"):
        k(x, x, out=result)
    with pytest.raises(InputError, match="q is being traced by JAX"):
        k(jax.core.Tracer(on_device(q)), x)
