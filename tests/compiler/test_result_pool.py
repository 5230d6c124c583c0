"""Memory of results that are gone: it is used again, never while anybody sees it, and not too much of it is kept."""

import gc
import threading

import numpy as np
import pytest

import qddot
from qddot.compiler.runtime import result_pool

F64 = np.dtype(float)
LARGE = (result_pool.MIN_BYTES // 8, 2)


@pytest.fixture(autouse=True)
def pool(monkeypatch):
    """An empty pool."""
    gc.collect()
    kept = list(result_pool._free)
    result_pool._free.clear()
    yield result_pool._free
    result_pool._free[:] = kept


def address(a):
    return a.__array_interface__["data"][0]


def test_memory_is_used_again(pool):
    a = result_pool.empty(LARGE, F64)
    first = address(a)
    assert a.shape == LARGE
    assert a.flags.writeable
    assert a.flags.c_contiguous
    del a
    assert len(pool) == 1
    assert address(result_pool.empty(LARGE, F64)) == first


def test_not_while_a_view_is_left(pool):
    a = result_pool.empty(LARGE, F64)
    a[...] = 3.0
    view = a[1:5].T
    del a
    assert not pool
    other = result_pool.empty(LARGE, F64)
    other[...] = 4.0
    assert (view == 3.0).all()
    del view
    assert len(pool) == 1


def test_no_more_than_the_bound_is_kept(pool, monkeypatch):
    monkeypatch.setenv("QDDOT_RESULT_POOL_MB", "70")
    arrays = [result_pool.empty(LARGE, F64) for _ in range(4)]
    assert arrays[0].nbytes == 32 << 20
    arrays.clear()
    assert sum(x.nbytes for x in pool) == 64 << 20
    monkeypatch.setenv("QDDOT_RESULT_POOL_MB", "0")
    a = result_pool.empty(LARGE, F64)
    assert a.flags.owndata
    monkeypatch.setenv("QDDOT_RESULT_POOL_MB", "many")
    with pytest.raises(qddot.InputError, match="QDDOT_RESULT_POOL_MB='many' is not known"):
        result_pool.empty(LARGE, F64)


def test_small_results_and_other_sizes_have_their_own_memory(pool):
    assert result_pool.empty((100, 6), F64).flags.owndata
    a = result_pool.empty(LARGE, F64)
    del a
    b = result_pool.empty((2 * LARGE[0], 2), F64)  # too large for it
    assert len(pool) == 1
    c = result_pool.empty((LARGE[0] // 2, 2), F64)  # would waste half of it
    assert len(pool) == 1
    assert b.nbytes == 4 * c.nbytes


def test_kernels_use_it(pool):
    robot = qddot.load("puma560")
    kernel = robot.kernel("inverse_dynamics")
    n = result_pool.MIN_BYTES // (8 * 6) + 1
    q = np.random.default_rng(0).standard_normal((n, 6))
    expected = kernel.ufunc(q, q, q)
    first = kernel(q, q, q)
    assert np.array_equal(first, expected)
    where = address(first)
    del first
    again = kernel(q, q[0], q)
    assert address(again) == where
    assert np.array_equal(again, kernel.ufunc(q, q[0], q))
    two = kernel(q[:1], q, q)  # the first input is the short one
    assert np.array_equal(two, kernel.ufunc(q[:1], q, q))


def test_many_threads(pool):
    wrong = []

    def work(k):
        for _ in range(30):
            a = result_pool.empty(LARGE, F64)
            a[::1000] = k
            wrong.extend([] if (a[::1000] == k).all() else [k])

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong
