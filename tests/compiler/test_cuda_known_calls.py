"""Calls like one before, with a stand-in for the driver: the short way gives what the long one gives, or is not taken."""

import sys
import threading

import numpy as np
import pytest

from qddot.compiler.runtime.cuda import arrays, context
from qddot.compiler.runtime.cuda.grid import Grid
from qddot.compiler.runtime.cuda.kernel import Calls
from qddot.errors import DeviceError, InputError
from tests.support import fake_cuda
from tests.support.c_code import needs_compiler
from tests.support.fake_cuda import Foreign, numbers, on_device, twice_plus

pytestmark = needs_compiler


@pytest.fixture
def looks(monkeypatch):
    """How many calls went the long way."""
    seen = []
    original = Calls._looked_at

    def counted(self, *args):
        seen.append(1)
        return original(self, *args)

    monkeypatch.setattr(Calls, "_looked_at", counted)
    return seen


@pytest.fixture(params=["qddot", "torch", "cupy"])
def framework(request, fake, monkeypatch):
    """Makes arrays of a framework, and its stream."""
    if request.param == "qddot":
        return on_device, 0, lambda x: x
    module = getattr(fake_cuda, request.param)(stream=77)
    monkeypatch.setitem(sys.modules, request.param, module)
    kind = module.Tensor if request.param == "torch" else module.ndarray
    return (lambda x: kind(on_device(x))), 77, lambda x: x.array


def test_the_second_call_takes_the_short_way(fake, framework, looks):
    make, stream, inside = framework
    k, _ = twice_plus()
    q, v = numbers(40, 3), numbers(3, seed=1)
    dq, dv, out = make(q), make(v), make(np.zeros((40, 3)))
    for n in range(4):
        result = k(dq, dv)
        assert type(result) is type(dq)
        np.testing.assert_array_equal(inside(result), 2 * q + v)
        assert k(dq, dv, out=out) is out
        np.testing.assert_array_equal(inside(out), 2 * q + v)
        assert len(looks) == 2, n
        assert all(f"stream {stream} count 40" in line for line in fake.launches())
    other = make(q[::-1].copy())  # elsewhere
    np.testing.assert_array_equal(inside(k(other, dv)), 2 * q[::-1] + v)
    assert len(looks) == 2
    assert fake.get("depth") == 0


def test_other_shapes_strides_and_types_are_looked_at(fake, looks):
    k, _ = twice_plus()
    wide = numbers(10, 6)
    d = on_device(wide)
    single = on_device(numbers(10, 3), "float32")
    for _ in range(2):
        for cut in (np.s_[:, :3], np.s_[:, ::2], np.s_[::-1, 3:], np.s_[:0, :3], np.s_[2:3, :3]):
            np.testing.assert_array_equal(k(d[cut], d[cut]), 3 * wide[cut])
            out = arrays.empty((20, 3))[::2][: len(wide[cut])]
            k(d[cut], d[cut], out=out)
            np.testing.assert_array_equal(out, 3 * wide[cut])
        with pytest.raises(InputError, match="v holds float32"):
            k(d[:, :3], single)
        with pytest.raises(InputError, match="out holds float32"):
            k(d[:, :3], d[:, :3], out=single)
        with pytest.raises(InputError, match="where= is no option"):
            k(d[:, :3], d[:, :3], where=True)
        with pytest.raises(InputError, match="1 arrays were given"):
            k(d[:, :3], out=d[:, :3])  # as many arrays as the kernel takes
        with pytest.raises(InputError, match="out has shape"):
            k(d[:, :3], d[:, :3], out=d[:4, :3])
    assert len(looks) == 10 + 2 * 5


def test_out_that_comes_to_overlap_is_noticed(fake, looks):
    k, _ = twice_plus()
    q = numbers(60, 3)
    for first, last in ((30, 0), (0, 30), (30, 1), (29, 0), (0, 0), (59, 29)):  # the first is apart, and known then
        d = on_device(q)
        rows = 30 if first != 59 else 1
        k(d[first : first + rows], d[first : first + rows], out=d[last : last + rows])
        np.testing.assert_array_equal(d[last : last + rows], 3 * q[first : first + rows])
    assert len(looks) == 5  # two of six are known: those apart, and of a shape that was seen


def test_arrays_that_are_not_aligned_are_noticed(fake, looks):
    k, _ = twice_plus()
    d = on_device(numbers(4, 3))
    k(d, d)
    bad = arrays.DeviceArray(d._lease, d.pointer + 4, (4, 3), (3, 1), d.dtype)
    with pytest.raises(InputError, match="twice_plus: q is not aligned"):
        k(bad, d)


def test_another_context_is_noticed(fake, looks):
    k, _ = twice_plus()
    d = on_device(numbers(4, 3))
    for _ in range(2):
        k(d, d)
        with context.find(0)[0]:
            np.testing.assert_array_equal(k(d, d), 3 * d.copy_to_host())
        with context.find(1)[0]:  # of another card
            np.testing.assert_array_equal(k(d, d), 3 * d.copy_to_host())
    assert len(looks) >= 3
    assert fake.get("depth") == 0


def test_arrays_of_several_kinds_are_looked_at(fake, monkeypatch, looks):
    torch = fake_cuda.torch(stream=77)
    monkeypatch.setitem(sys.modules, "torch", torch)
    k, _ = twice_plus()
    q = numbers(10, 3)
    d, t = on_device(q), torch.Tensor(on_device(q))
    for _ in range(2):
        for a, b in ((d, t), (t, d), (d, Foreign(d)), (Foreign(d), d), (t, q[0]), (d, q[0])):
            want = 2 * q + (q[0] if b is not d and isinstance(b, np.ndarray) else q)
            np.testing.assert_array_equal(np.asarray(k(a, b)), want)
    assert len(looks) == 12
    k(t, t)
    k(t, t)
    assert len(looks) == 13
    neg = torch.Tensor(on_device(q))
    neg.is_neg, neg.resolve_neg = lambda: True, lambda: torch.Tensor(on_device(-q))
    for _ in range(2):
        np.testing.assert_array_equal(k(neg, t), -2 * q + q)
        with pytest.raises(InputError, match=r"out is a view that PyTorch negates.*out\.resolve_neg\(\)"):
            k(t, t, out=neg)


def test_errors_of_the_driver_name_the_function(fake):
    k, _ = twice_plus()
    d = on_device(numbers(4, 3))
    k(d, d)
    fake.fail("cuLaunchKernel", 700)
    with pytest.raises(DeviceError, match=r"twice_plus: cuLaunchKernel: CUDA_ERROR_ILLEGAL_ADDRESS .* start it again"):
        k(d, d)
    np.testing.assert_array_equal(k(d, d), 3 * d.copy_to_host())
    assert fake.get("depth") == 0
    kept = k(d, d)  # the one block that the pool had
    fake.set("limit", 1)
    with pytest.raises(MemoryError, match="twice_plus: "):
        k(d, d)
    del kept
    k(d, d)


def test_kernels_with_scratch_memory_are_looked_at(fake, looks):
    k, _ = twice_plus(grid=Grid(64, scratch_numbers=10))
    d = on_device(numbers(4, 3))
    for _ in range(3):
        np.testing.assert_array_equal(k(d, d), 3 * d.copy_to_host())
    assert len(looks) == 3


def test_threads_take_the_short_way_together(fake, looks):
    k, _ = twice_plus()
    wrong = []

    def work(seed):
        q = numbers(50, 3, seed=seed)
        d, out = on_device(q), arrays.empty((50, 3))
        for _ in range(200):
            k(d, d, out=out)
            if not np.array_equal(out, 3 * q) or not np.array_equal(k(d, d), 3 * q):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(s,)) for s in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert len(looks) <= 8
