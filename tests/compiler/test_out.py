"""`out=` and other options of kernels: with threads and without, the same results and the same errors.

Kernels of a small arm are called as if each of their operations took long, so that a few rows are divided among threads.
"""

import threading
import time
import warnings
from itertools import pairwise

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import qddot
from qddot.compiler.runtime import llvm_compile, thread_pool, threads
from qddot.compiler.runtime.threads import in_parallel

N = 6
ROWS = 40


@pytest.fixture(scope="module")
def arm():
    return qddot.load("puma560")


@pytest.fixture(scope="module")
def kernels(arm):
    """Kernels whose batches are divided from two rows on; what lanes, tiles and streams do is not changed by it."""
    made = [
        arm.kernel("inverse_dynamics"),
        arm.kernel("bias_force"),
        arm.kernel("mass_matrix"),
        arm.kernel("mass_matrix", packed=True),
        arm.kernel("inverse_dynamics_derivatives"),
        arm.kernel("kinetic_energy"),
    ]
    for kernel in made:
        kernel._batches.operations, kernel._batches.one_thread = 10**6, 1
    return made


@pytest.fixture(params=[1, 4], ids=["one thread", "four threads"])
def count(request):
    before = qddot.get_num_threads()
    qddot.set_num_threads(request.param)
    yield request.param
    qddot.set_num_threads(before)


@pytest.fixture
def four_threads():
    before = qddot.get_num_threads()
    qddot.set_num_threads(4)
    yield
    qddot.set_num_threads(before)


def on_one_thread(kernel, *arrays):
    """The result by NumPy's ufunc, of copies that have nothing to do with each other."""
    return kernel.ufunc(*(np.array(x) for x in arrays))


# ---- overlaps ----------------------------------------------------------------------------------------------------------

OVERLAPS = {
    "itself": lambda x: (x[:ROWS], x[:ROWS]),
    "backwards": lambda x: (x[:ROWS], x[:ROWS][::-1]),
    "one row later": lambda x: (x[:ROWS], x[1 : ROWS + 1]),
    "one row before": lambda x: (x[1 : ROWS + 1], x[:ROWS]),
    "half of it later": lambda x: (x[:ROWS], x[ROWS // 2 : ROWS // 2 + ROWS]),
    "every other row": lambda x: (x[: 2 * ROWS : 2], x[:ROWS]),
    "backwards by two": lambda x: (x[:ROWS], x[2 * ROWS - 1 :: -2][:ROWS]),
    "one number later": lambda x: (
        x.reshape(-1)[: ROWS * N].reshape(ROWS, N),
        x.reshape(-1)[1 : 1 + ROWS * N].reshape(ROWS, N),
    ),
    "columns backwards": lambda x: (x[:ROWS], x[:ROWS, ::-1]),
    "transposed": lambda x: (x.reshape(-1)[: N * N].reshape(N, N), x.reshape(-1)[: N * N].reshape(N, N).T),
    "nothing in common": lambda x: (x[:ROWS], x[ROWS : 2 * ROWS]),
    "side by side": lambda x: (x.reshape(-1, 2 * N)[:, :N], x.reshape(-1, 2 * N)[:, N:]),
}


@pytest.mark.parametrize("views", OVERLAPS.values(), ids=OVERLAPS)
def test_out_that_overlaps_an_input(kernels, count, views):
    kernel, rng = kernels[0], np.random.default_rng(0)
    memory = rng.standard_normal((4 * ROWS, N))
    q, out = views(memory)
    v, a = rng.standard_normal((2, *q.shape))
    expected, before = on_one_thread(kernel, q, v, a), memory.copy()
    assert kernel(q, v, a, out=out) is out
    assert np.array_equal(out, expected)
    untouched = np.ones(memory.shape, bool)
    views(untouched)[1][...] = False
    assert np.array_equal(memory[untouched], before[untouched])


def random_view(rng, memory, shape):
    """An array of this shape somewhere in a memory: order of axes, gaps and directions at random."""
    while True:
        strides, reach = [0] * len(shape), 1
        for k in rng.permutation(len(shape)):
            strides[k] = reach * int(rng.choice((1, 1, 1, 2))) + int(rng.choice((0, 0, 0, 1)))
            reach += strides[k] * (shape[k] - 1)
        if reach <= memory.size:
            break
    at = int(rng.integers(0, memory.size - reach + 1))
    view = as_strided(memory[at:], shape, [8 * s for s in strides])
    for k in range(len(shape)):
        if rng.integers(3) == 0:
            view = np.flip(view, axis=k)
    return view


def test_random_views_of_one_memory(kernels, four_threads):
    """Inputs and out anywhere in one memory, three numbers of batch axes, some inputs broadcast."""
    rng, overlapping = np.random.default_rng(5), 0
    for trial in range(600):
        kernel = kernels[trial % len(kernels)]
        batch = [(ROWS,), (5, 8), (3, 2, 7)][rng.integers(3)]
        memory = rng.standard_normal(int(rng.uniform(1.5, 4) * ROWS * max(N, np.prod(kernel.output, dtype=int))))
        inputs = []
        for shape in kernel.inputs:
            own = [1 if rng.integers(4) == 0 else n for n in batch]
            own = own[rng.integers(0, len(own) + 1) :] if rng.integers(4) == 0 else own
            inputs.append(random_view(rng, memory, (*own, *shape)))
        batch = np.broadcast_shapes(*(x.shape[: x.ndim - len(s)] for x, s in zip(inputs, kernel.inputs, strict=True)))
        out = random_view(rng, memory, (*batch, *kernel.output))
        overlapping += any(np.may_share_memory(out, x) for x in inputs)
        expected, before = on_one_thread(kernel, *inputs), memory.copy()
        with np.errstate(all="ignore"):
            result = kernel._batches(*inputs, out=out)
        assert result is out, trial
        assert np.array_equal(out, expected), f"trial {trial}: {kernel}"
        out[...] = 0.0
        places = np.flatnonzero(memory != before)
        memory[...] = before
        out[...] = np.nan
        assert np.isnan(memory[places]).all(), f"trial {trial}: something else was written"
    assert overlapping > 200


def test_single_precision_alike(arm, count):
    kernel = arm.kernel("inverse_dynamics", dtype="float32")
    kernel._batches.operations, kernel._batches.one_thread = 10**6, 1
    rng = np.random.default_rng(1)
    memory = rng.standard_normal((2 * ROWS, N)).astype(np.float32)
    v, a = rng.standard_normal((2, ROWS, N))
    expected = kernel.ufunc(memory[:ROWS].copy(), v.astype(np.float32), a.astype(np.float32))
    wide = np.zeros((ROWS, N))
    assert kernel(memory[:ROWS], v, a, out=wide) is wide
    assert np.array_equal(wide, expected)
    out = memory[:ROWS][::-1]
    kernel(memory[:ROWS], v, a, out=out)
    assert np.array_equal(out, expected)


def test_other_number_types_alike(kernels, count):
    kernel, rng = kernels[0], np.random.default_rng(2)
    x = rng.standard_normal((3, ROWS, N))
    expected = on_one_thread(kernel, *x)
    for dtype in (np.float32, np.float64, np.longdouble, np.dtype(">f8")):
        out = np.zeros((ROWS, N), dtype)
        assert kernel(*x, out=out) is out
        assert np.array_equal(out, expected.astype(dtype))
    whole = rng.integers(-3, 3, (ROWS, N))
    assert np.array_equal(kernel(whole, x[1], x[2]), on_one_thread(kernel, whole.astype(float), x[1], x[2]))
    unaligned = np.zeros(8 * ROWS * N + 1, np.uint8)[1:].view(float).reshape(ROWS, N)
    kernel(*x, out=unaligned)
    assert np.array_equal(unaligned, expected)


def test_subclasses_alike(kernels):
    """NumPy asks subclasses what to do with ufuncs, so they get the whole call."""
    kernel, rng = kernels[0], np.random.default_rng(3)
    q, v, a = rng.standard_normal((3, ROWS, N))
    expected, asked = on_one_thread(kernel, q, v, a), []

    class Own(np.ndarray):
        def __array_ufunc__(self, ufunc, method, *inputs, **options):
            asked.append(len(inputs[0]))
            return getattr(ufunc, method)(*(np.asarray(x) for x in inputs), **options)

    before = qddot.get_num_threads()
    try:
        for threads_ in (1, 4):
            qddot.set_num_threads(threads_)
            assert np.array_equal(kernel(q, v.view(Own), a), expected)
    finally:
        qddot.set_num_threads(before)
    assert asked == [ROWS, ROWS]


# ---- what is refused ---------------------------------------------------------------------------------------------------


def read_only(shape):
    out = np.zeros(shape)
    out.flags.writeable = False
    return out


REFUSED = {
    "too many rows": (lambda: np.zeros((ROWS + 1, N)), r"out has shape \(41, 6\); it must be \(40, 6\)"),
    "too few rows": (lambda: np.zeros((ROWS - 1, N)), r"out has shape \(39, 6\)"),
    "more axes": (lambda: np.zeros((3, ROWS, N)), r"out has shape \(3, 40, 6\)"),
    "fewer axes": (lambda: np.zeros(N), r"out has shape \(6,\)"),
    "longer rows": (lambda: np.zeros((ROWS, N + 1)), r"out has shape \(40, 7\)"),
    "one row for all": (lambda: as_strided(np.zeros(N), (ROWS, N), (0, 8)), "entries of out share memory"),
    "one number for all": (lambda: as_strided(np.zeros(1), (ROWS, N), (0, 0)), "entries of out share memory"),
    "sliding windows": (lambda: as_strided(np.zeros(ROWS + N), (ROWS, N), (8, 8)), "entries of out share memory"),
    "rows that overlap": (lambda: as_strided(np.zeros(ROWS * N), (ROWS, N), (40, 8)), "entries of out share memory"),
    "broadcast": (lambda: np.broadcast_to(np.zeros(N), (ROWS, N)), "out is read-only"),
    "read-only": (lambda: read_only((ROWS, N)), "out is read-only"),
    "whole numbers": (lambda: np.zeros((ROWS, N), int), "out holds int64; it must hold floating-point numbers"),
    "truth values": (lambda: np.zeros((ROWS, N), bool), "out holds bool"),
    "complex numbers": (lambda: np.zeros((ROWS, N), complex), "out holds complex128"),
    "objects": (lambda: np.zeros((ROWS, N), object), "out holds object"),
    "text": (lambda: np.zeros((ROWS, N), "U8"), "out holds <U8"),
    "a list": (lambda: np.zeros((ROWS, N)).tolist(), "out is of type list; it must be a NumPy array"),
    "a tuple of two": (lambda: (np.zeros((ROWS, N)),) * 2, "out is of type tuple"),
    "an empty tuple": (lambda: (), "out is of type tuple"),
    "a number": (lambda: 0.0, "out is of type float"),
}


@pytest.mark.parametrize(("out", "says"), REFUSED.values(), ids=REFUSED)
def test_an_out_that_is_refused(kernels, count, out, says):
    x = np.random.default_rng(4).standard_normal((3, ROWS, N))
    with pytest.raises(qddot.InputError, match=f"inverse_dynamics: {says}"):
        kernels[0](*x, out=out())


def test_an_out_that_broadcasts_is_refused(kernels, count):
    """NumPy would repeat the one result in every row, or take out's shape for the inputs'."""
    q = np.zeros((1, N))
    for out in (np.zeros((ROWS, N)), np.zeros((2, 1, N))):
        with pytest.raises(qddot.InputError, match="out has shape"):
            kernels[0](q, q, q, out=out)
    with pytest.raises(qddot.InputError, match="out has shape"):
        kernels[0](q[0], np.zeros((ROWS, N)), q[0], out=np.zeros(N))


def test_out_as_a_tuple(kernels, count):
    x, out = np.random.default_rng(4).standard_normal((3, ROWS, N)), np.zeros((ROWS, N))
    assert kernels[0](*x, out=(out,)) is out
    assert np.array_equal(out, on_one_thread(kernels[0], *x))
    assert np.array_equal(kernels[0](*x, out=(None,)), out)


OPTIONS = {
    "where": np.ones((ROWS, 1), bool),
    "dtype": np.float32,
    "casting": "unsafe",
    "order": "F",
    "subok": False,
    "axes": [(0,), (0,), (0,), (0,)],
    "axis": 0,
    "keepdims": True,
    "signature": "ddd->d",
    "output": None,
    "q": 0.0,
}


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("rows", [None, 1, ROWS])
def test_options_of_ufuncs_are_refused(kernels, count, option, rows):
    x = np.zeros((3, *(() if rows is None else (rows,)), N))
    with pytest.raises(qddot.InputError, match=rf"takes q, v, a in this order, and out=; {option}= is no option"):
        kernels[0](*x, **{option: OPTIONS[option]})


def test_out_has_to_be_named(kernels, count):
    x = np.zeros((4, ROWS, N))
    with pytest.raises(qddot.InputError, match="takes q, v, a; 4 arrays were given"):
        kernels[0](*x)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_numbers_that_are_not_real(arm, count, dtype):
    kernel = arm.kernel("inverse_dynamics", dtype=dtype)
    q = np.zeros((ROWS, N))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for wrong in (q.astype(complex), q.astype(object), q.astype("U8"), q.astype("M8[s]")):
            with pytest.raises(qddot.InputError, match="v must hold real numbers"):
                kernel(q, wrong, q)


# ---- out of memory -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large():
    """A kernel with more scratch memory than fits the stack, whatever the number of lanes."""
    return qddot.chain(1000, rng=0).kernel("inverse_dynamics", form="rolled")


@pytest.fixture
def no_memory():
    """Makes the heap empty, and returns what it was: compiled code that returns null, since it may run without the GIL."""
    nothing = llvm_compile.Code(llvm_compile.compile_object("define ptr @loop(i64 %size) {\n  ret ptr null\n}\n"))
    environment, heap = llvm_compile.library_functions(), llvm_compile.library_functions()[3]
    environment[3] = nothing.address
    yield heap
    environment[3] = heap


def test_no_memory_is_an_error_of_its_own_call(large, no_memory, count):
    large._batches.one_thread = 1
    q = np.zeros((ROWS, 1000))
    for call in (large, large._batches):
        for x in (q, q[:1], q[0], q[:, None]):
            with pytest.raises(MemoryError, match="no memory is left for the kernel's scratch space"):
                call(x, x, x)
    with pytest.raises(MemoryError):  # nor can it be missed without qddot's own code around it
        large.ufunc(q, q, q)
    llvm_compile.library_functions()[3] = no_memory
    assert np.isfinite(large(q, q, q)).all()


def test_a_call_that_succeeds_does_not_hide_another_that_failed(large, kernels, no_memory):
    """Two threads, many times: every call that had no memory raises, and no other does."""
    q, small, wrong = np.zeros((9, 1000)), np.zeros((9, N)), []
    stop = threading.Event()

    def succeeds():
        while not stop.is_set():
            try:
                kernels[1]._batches(small, small)
            except MemoryError:
                wrong.append("another call's error")

    helpers = [threading.Thread(target=succeeds) for _ in range(3)]
    for helper in helpers:
        helper.start()
    for _ in range(2000):
        try:
            large(q, q, q)
            wrong.append("no error")
        except MemoryError:
            pass
    stop.set()
    for helper in helpers:
        helper.join()
    assert wrong == []


# ---- work divided among threads ----------------------------------------------------------------------------------------


def test_every_part_is_done_once(four_threads):
    for parts in (1, 2, 3, 9, 50):
        done, edges = [], list(range(0, 10 * parts + 1, 10))
        in_parallel(lambda a, b, done=done: done.append((a, b)), edges)
        assert sorted(done) == list(pairwise(edges))


@pytest.mark.parametrize("where", ["first", "last", "all"])
def test_after_an_error_nothing_goes_on(four_threads, where):
    running, begun = [], []

    def part(low, high):
        begun.append(low)
        running.append(low)
        time.sleep(0.01 * (low % 3))
        running.remove(low)
        if where == "all" or (low == 0) == (where == "first"):
            raise ZeroDivisionError(low)

    for _ in range(10):
        begun.clear()
        with pytest.raises(ZeroDivisionError):
            in_parallel(part, range(12))
        assert running == []
        so_far = len(begun)
        time.sleep(0.02)
        assert len(begun) == so_far


def test_without_any_more_threads(kernels, four_threads, monkeypatch):
    """A system that gives no thread: the caller does all of it, and what a thread was still to do is not done twice."""
    submitted = []

    class Refuses:
        def submit(self, work):
            submitted.append(work)
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "_pool", Refuses)
    monkeypatch.setattr(thread_pool, "available", lambda: False)
    x = np.random.default_rng(0).standard_normal((3, ROWS, N))
    result = kernels[0](*x)
    assert np.array_equal(result, on_one_thread(kernels[0], *x))
    assert len(submitted) == 1
    result[...] = 7.0
    submitted[0]()  # it was put into the queue all the same
    assert (result == 7.0).all()


def test_threads_that_are_busy_are_not_waited_for(kernels, four_threads):
    """Two callers at once, each with all threads: both are done, with their own results."""
    kernel, rng = kernels[0], np.random.default_rng(6)
    states = [rng.standard_normal((3, ROWS, N)) for _ in range(6)]
    expected, wrong = [on_one_thread(kernel, *x) for x in states], []

    def work(k):
        for _ in range(100):
            if not np.array_equal(kernel(*states[k]), expected[k]):
                wrong.append(k)

    callers = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert wrong == []
