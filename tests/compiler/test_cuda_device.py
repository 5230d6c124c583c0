"""The runtime of kernels on a real card, with its driver and the frameworks that are installed; skipped without a card.

What is launched with which arguments is in `test_cuda_runtime.py`, which needs no card.
"""

import gc
import subprocess
import sys
import time

import numpy as np
import pytest

import qddot
from qddot.compiler.runtime.cuda import arrays, context, host_arrays, plan
from qddot.compiler.runtime.cuda.grid import Grid
from qddot.compiler.runtime.cuda.kernel import kernel
from qddot.compiler.runtime.cuda.modules import GridCode
from qddot.compiler.runtime.cuda.timing import device_time
from qddot.errors import InputError
from tests.support import grid_kernel
from tests.support.fake_cuda import info, numbers, on_device
from tests.support.paths import ROOT

MOST_CALL_SECONDS = 50e-6  # several times what a call from Python takes on a quiet machine

_obstacle = context.obstacle()
pytestmark = pytest.mark.skipif(_obstacle is not None, reason=str(_obstacle))


def twice_plus(dtype="float64", scratch=False, **facts):
    """The kernel 2 * q + v of three numbers a state."""
    grid = Grid(64, has_strided=True, **facts)
    text = grid_kernel.ptx(3, {"float64": "double", "float32": "float"}[dtype], scratch)
    code = GridCode([text], grid, "twice_plus")
    return kernel(code, ("q", "v"), ((3,), (3,)), (3,), info(dtype), lambda: ""), code


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("batch", [(), (1,), (31,), (1000,), (5, 7), (1 << 20,), (0,)])
def test_results_are_numpys(dtype, batch):
    k, _ = twice_plus(dtype)
    q, v = numbers(*batch, 3, dtype=dtype), numbers(*batch, 3, seed=1, dtype=dtype)
    want = 2 * q + v  # the same two roundings
    np.testing.assert_array_equal(k(on_device(q, dtype), on_device(v, dtype)), want)
    np.testing.assert_array_equal(k(q, v), want)


def test_reciprocals_are_rounded_as_division_is():
    """All single-precision significands, the borders of where the short way holds, and what lies beyond them."""
    b = qddot.Builder("slide")
    b.link("cart", mass=1.0)
    b.joint("x", "world", "cart", qddot.joints.Prismatic("x"))
    robot, few = b.robot(), np.random.default_rng(0)
    ones = np.arange(0x3F800000, 0x40000000, dtype=np.uint32).view(np.float32)
    last = np.arange(1, 1 << 12) * 2.0**-52
    ends = np.ldexp(ones[::4099], few.choice([-126, -110, -101, -100, -99, 0, 99, 100, 101, 120, 126], len(ones[::4099])))
    for dtype, masses in (
        ("float32", np.concatenate([ones, ends.astype(np.float32)])),
        ("float64", few.uniform(1.0, 2.0, 1 << 22)),
        ("float64", np.ldexp(np.concatenate([1.0 + last, 2.0 - last]), few.integers(-100, 100, 2 * len(last)))),
        ("float64", np.ldexp(2.0 - 2.0**-52, np.arange(-101, 101))),  # all ones: the hardest to round
        ("float64", np.ldexp(few.uniform(1.0, 2.0, 1 << 16), few.integers(-1020, 1020, 1 << 16))),
    ):
        kernel = robot.kernel("mass_matrix_inverse", target="cuda", dtype=dtype, free=("cart.mass",))
        found = kernel(on_device(np.zeros((len(masses), 1)), dtype), on_device(masses.astype(dtype), dtype))
        np.testing.assert_array_equal(np.asarray(found).ravel(), 1.0 / masses.astype(dtype))


def test_batches_broadcast_and_stride():
    k, _ = twice_plus()
    q, v = numbers(40, 1, 3), numbers(50, 3, seed=1)
    np.testing.assert_array_equal(k(on_device(q), on_device(v)), 2 * q + v)
    wide = numbers(1000, 6)
    d = on_device(wide)
    for cut in (np.s_[:, ::2], np.s_[::-1, 3:], np.s_[::3, 5:2:-1]):
        np.testing.assert_array_equal(k(d[cut], d[cut]), 3 * wide[cut])


def test_out_may_overlap():
    k, _ = twice_plus()
    q = numbers(100_000, 3)
    d = on_device(q)
    k(d[1:], d[1:], out=d[:-1])
    np.testing.assert_array_equal(d[:-1], 3 * q[1:])


def test_host_arrays_in_chunks(monkeypatch):
    monkeypatch.setattr(host_arrays, "CHUNK_BYTES", 1 << 20)
    k, _ = twice_plus()
    q, v = numbers(300_000, 3), numbers(300_000, 3, seed=1)
    for _ in range(3):
        np.testing.assert_array_equal(k(q, v), 2 * q + v)
    np.testing.assert_array_equal(k(on_device(q), [1.0, 2.0, 3.0]), 2 * q + [1, 2, 3])


def test_scratch_and_shared_memory(monkeypatch):
    k, _ = twice_plus(scratch=True, scratch_numbers=1, shared_bytes=60_000)
    q = on_device(numbers(100_000, 3))
    np.testing.assert_array_equal(k(q, q), 3 * q.copy_to_host())
    monkeypatch.setattr(plan, "MOST_SCRATCH_BYTES", 10 * 64 * 8)
    k, _ = twice_plus(scratch=True, scratch_numbers=1)
    np.testing.assert_array_equal(k(q, q), 3 * q.copy_to_host())


def test_facts_and_the_assemblers_messages():
    _, code = twice_plus()
    (rows,) = code.facts()["rows"]
    assert 8 <= rows["registers"] <= 255
    assert rows["local_bytes"] == 0
    assert rows["max_threads"] >= 64
    assert 0 < rows["occupancy"] <= 1
    bad = GridCode([grid_kernel.ptx().replace("add.rn.f64", "add.wrong.f64")], Grid(64), "broken")
    with pytest.raises(InputError, match=r"broken: the assembler for .* says cuLink\w+: CUDA_ERROR_INVALID_PTX"):
        bad.facts()


def test_machine_code_is_cached_and_unloaded(monkeypatch, tmp_path):
    monkeypatch.setenv("QDDOT_CACHE_DIR", str(tmp_path))
    q = on_device(numbers(10, 3))
    for cached in (False, True, True):
        k, code = twice_plus()
        k(q, q)
        assert code.cached is cached
        del k, code
        gc.collect()


def test_no_device_memory():
    k, _ = twice_plus()
    one = on_device(numbers(3))
    states = context.find()[0].device.memory_bytes // 24
    row = one.__cuda_array_interface__ | {"shape": (states, 3), "strides": (0, 8)}

    class Repeated:
        __cuda_array_interface__ = row

    with pytest.raises(MemoryError, match=r"twice_plus: .* MB of device memory are needed"):
        k(Repeated(), one)
    np.testing.assert_array_equal(k(one, one), 3 * one.copy_to_host())


def test_memory_is_not_lost():
    k, _ = twice_plus()
    q = on_device(numbers(1 << 20, 3))
    free = []
    for _ in range(50):
        k(q, q)
        free.append(context.find()[0].pool.kept_bytes())
    assert len(set(free[5:])) == 1


def test_time_of_a_call():
    k, _ = twice_plus()
    q = on_device(numbers(256, 3))
    seconds = device_time(lambda: k(q, q), calls=200)
    begin = time.perf_counter()
    for _ in range(2000):
        k(q, q)
    host = (time.perf_counter() - begin) / 2000
    q.copy_to_host()
    print(f"a call with 256 states: {1e6 * host:.1f} µs on the host, {1e6 * seconds:.1f} µs between two on the device")
    assert 0 < seconds < MOST_CALL_SECONDS
    assert host < MOST_CALL_SECONDS


def test_a_forked_child_is_told():
    code = """
import os, numpy as np
from tests.compiler.test_cuda_device import twice_plus, on_device
k, _ = twice_plus()
d = on_device(np.ones(3))
if os.fork() == 0:
    try:
        k(d, d)
    except ValueError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
print(k(d, d).copy_to_host())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "CUDA was used before this process was forked" in done.stdout
    assert done.stdout.endswith("[3. 3. 3.]\n")


# ---- frameworks


def test_torch():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch finds no card")
    k, _ = twice_plus("float32")
    q = torch.randn(100_000, 3, device="cuda", requires_grad=True)
    with pytest.raises(InputError, match=r"q keeps gradients.*robot\.torch\(\)"):
        k(q, torch.randn(3, device="cuda"))
    q = q.detach()
    v = torch.randn(3, device="cuda")
    result = k(q, v)
    assert isinstance(result, torch.Tensor)
    assert result.is_cuda
    assert torch.equal(result, 2 * q + v)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        x = torch.randn(1 << 20, 3, device="cuda")
        for _ in range(10):
            x = k(x, x) / 3 - x + k(x, x) / 3
        side.synchronize()
        assert torch.equal(k(x, x), 2 * x + x)
        columns = torch.randn(3, 1000, device="cuda").T
        assert torch.equal(k(columns, columns), 2 * columns + columns)
    with pytest.raises(InputError, match=r"v holds .*float64.*v\.to\(torch\.float32\)"):
        k(q, v.double())
    own = k(arrays.to_device(np.ones((4, 3), "float32")), arrays.to_device(np.ones(3, "float32")))
    for taken in (torch.from_dlpack(own), torch.as_tensor(own, device="cuda")):
        assert taken.data_ptr() == own.pointer
        assert bool((taken == 3).all())


def test_a_torch_graph():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch finds no card")
    k, _ = twice_plus("float32")
    x, out = torch.ones(1000, 3, device="cuda"), torch.zeros(1000, 3, device="cuda")
    k(x, x, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        k(x, x, out=out)
    x.fill_(2)
    graph.replay()
    assert bool((out == 6).all())


def test_torch_and_contexts_of_new_threads():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch finds no card")
    import threading

    k, _ = twice_plus("float32")
    x, found = torch.ones(1000, 3, device="cuda"), []
    torch.cuda.synchronize()
    threads = [threading.Thread(target=lambda: found.append(k(x, x).sum().item())) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [9000.0] * 8


def test_cupy():
    cupy = pytest.importorskip("cupy")
    k, _ = twice_plus()
    q = cupy.random.standard_normal((100_000, 3))
    result = k(q, q[0])
    assert isinstance(result, cupy.ndarray)
    assert bool((result == 2 * q + q[0]).all())
    with cupy.cuda.Stream(non_blocking=True):
        x = cupy.random.standard_normal((1 << 20, 3))
        assert bool((k(x[::-1], x) == 2 * x[::-1] + x).all())
    own = on_device(numbers(5, 3))
    for taken in (cupy.asarray(own), cupy.from_dlpack(own)):
        assert taken.data.ptr == own.pointer


def test_jax():
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX finds no card")
    k, _ = twice_plus("float32")
    q = jax.random.normal(jax.random.key(0), (100_000, 3))
    for _ in range(5):
        result = k(q, q[0])
        assert isinstance(result, jax.Array)
        assert bool((result == 2 * q + q[0]).all())
        q = result - q - q[0]
    with pytest.raises(InputError, match="out is read-only"):
        k(q, q, out=result)
    with pytest.raises(InputError, match="traced by JAX"):
        jax.jit(k)(q, q)


def test_numba():
    cuda = pytest.importorskip("numba.cuda")
    if not cuda.is_available():
        pytest.skip("Numba finds no card")
    k, _ = twice_plus()
    q = numbers(1000, 3)
    result = k(cuda.to_device(q), cuda.to_device(q))
    np.testing.assert_array_equal(result, 3 * q)
    np.testing.assert_array_equal(cuda.as_cuda_array(result).copy_to_host(), 3 * q)
