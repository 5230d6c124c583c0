"""Kernels on a card, with a stand-in for the driver: what is launched, with which arguments, on which stream, and what
users read where an argument is wrong. `test_cuda_device.py` has what needs a card.
"""

import threading

import numpy as np
import pytest

from qddot.compiler.runtime.cuda import arrays, host_arrays, layout, plan
from qddot.compiler.runtime.cuda import context as contexts
from qddot.compiler.runtime.cuda.grid import Grid, ModuleFacts
from qddot.compiler.runtime.cuda.kernel import kernel
from qddot.compiler.runtime.cuda.modules import GridCode
from qddot.compiler.runtime.cuda.timing import device_time
from qddot.errors import InputError
from tests.support import fake_cuda
from tests.support.c_code import needs_compiler
from tests.support.fake_cuda import Foreign, numbers, on_device, twice_plus

pytestmark = needs_compiler


# ---- the launch contract


def test_rows_are_launched_with_a_thread_a_state(fake):
    k, _ = twice_plus()
    q, v = numbers(1000, 3), numbers(1000, 3, seed=1)
    result = k(on_device(q), on_device(v))
    assert isinstance(result, arrays.DeviceArray)
    assert fake.launches() == ["launch rows grid 8 1 block 128 shared 0 stream 0 count 1000"]
    np.testing.assert_array_equal(result.copy_to_host(), 2 * q + v)


def test_grid_facts_shape_the_launch(fake):
    grid = Grid(64, shared_bytes=60000, groups=8)
    k, _ = twice_plus(grid=grid)
    q = numbers(100, 3)
    np.testing.assert_array_equal(k(on_device(q), on_device(q)), 3 * q)
    log = fake.log()
    assert "shared limit 60000" in log
    assert "launch rows grid 2 8 block 64 shared 60000 stream 0 count 100" in log


def test_little_shared_memory_needs_no_opt_in(fake):
    k, _ = twice_plus(grid=Grid(64, shared_bytes=40000))
    k(on_device(numbers(3)), on_device(numbers(3)))
    assert not [line for line in fake.log() if line.startswith("shared limit")]


def test_more_shared_memory_than_the_card_has(fake):
    k, _ = twice_plus(grid=Grid(64, shared_bytes=240000))
    with pytest.raises(InputError, match=r"twice_plus: a block takes 240,000 bytes .* Fake card 0 has 232,448"):
        k(on_device(numbers(3)), on_device(numbers(3)))


def test_small_batches_have_code_of_their_own(fake):
    small = Grid(256, shared_bytes=60000, warps_per_state=8)
    k, _ = twice_plus(grid=Grid(64, has_strided=True), small=small)
    for states, launched in ((40, "grid 2 1 block 256"), (4096, "grid 128 1 block 256"), (4097, "grid 65 1 block 64")):
        q = numbers(states, 3)
        np.testing.assert_array_equal(k(on_device(q), on_device(q)), 3 * q)
        (launch,) = fake.launches()
        assert launch.startswith(f"launch rows {launched}"), states
    q = numbers(3, 40)
    columns = Foreign(on_device(q), shape=(40, 3), strides=(8, 320))
    np.testing.assert_array_equal(k(columns, columns), 3 * q.T)
    assert fake.launches()[0].startswith("launch strided grid 1 1 block 64")


def test_cards_with_little_shared_memory_take_the_code_for_large_batches(fake):
    k, _ = twice_plus(grid=Grid(64), small=Grid(256, shared_bytes=240000, warps_per_state=8))
    q = numbers(40, 3)
    np.testing.assert_array_equal(k(on_device(q), on_device(q)), 3 * q)
    assert fake.launches()[0].startswith("launch rows grid 1 1 block 64")


def test_scratch_memory_fits_in_its_budget(fake, monkeypatch):
    k, _ = twice_plus(grid=Grid(64, groups=2, scratch_numbers=10))
    q = numbers(1000, 3)
    d = on_device(q)
    np.testing.assert_array_equal(k(d, d), 3 * q)
    assert "launch rows grid 16 2 block 64 shared 0 stream 0 count 1000" in fake.log()
    monkeypatch.setattr(plan, "MOST_SCRATCH_BYTES", 3 * 64 * 2 * 10 * 8)
    k, _ = twice_plus(grid=Grid(64, groups=2, scratch_numbers=10))
    k(d, d)
    assert "launch rows grid 3 2 block 64 shared 0 stream 0 count 1000" in fake.log()
    monkeypatch.setattr(plan, "MOST_SCRATCH_BYTES", 1)  # a block at least
    k, _ = twice_plus(grid=Grid(64, groups=2, scratch_numbers=10))
    k(d, d)
    assert "launch rows grid 1 2 block 64 shared 0 stream 0 count 1000" in fake.log()


def test_scratch_memory_is_not_for_graphs(fake):
    k, _ = twice_plus(grid=Grid(64, scratch_numbers=10))
    d = on_device(numbers(3))
    fake.set("capturing", 1)
    with pytest.raises(InputError, match=r"twice_plus: this kernel takes scratch memory.*CUDA graph"):
        k(d, d)


def test_several_modules_are_launched_one_after_another(fake):
    k, code = twice_plus(modules=3)
    d = on_device(numbers(3))
    k(d, d)
    assert len(fake.launches()) == 3
    assert code.facts()["modules"] == 3


PASSES = Grid(64, groups=3, kept_numbers=10, modules=(ModuleFacts(1, 100), ModuleFacts(3, 60000)))


def test_large_batches_have_passes_of_their_own(fake):
    small = Grid(256, warps_per_state=8)
    k, code = twice_plus(grid=Grid(64, has_strided=True), small=small, large=PASSES)
    q = numbers(5000, 3)
    np.testing.assert_array_equal(k(on_device(q), on_device(q)), 3 * q)
    log = fake.log()
    first, second = (line for line in log if line.startswith("launch"))
    assert first.startswith("launch rows grid 79 1 block 64 shared 100 stream 0 count 5000")
    assert second.startswith("launch rows grid 79 3 block 64 shared 60000 stream 0 count 5000")
    assert "shared limit 60000" in log
    q = numbers(3, 5000)
    columns = Foreign(on_device(q), shape=(5000, 3), strides=(8, 40000))
    np.testing.assert_array_equal(k(columns, columns), 3 * q.T)
    assert fake.launches()[0].startswith("launch strided grid 79 1 block 64")
    k(on_device(numbers(40, 3)), on_device(numbers(40, 3)))
    assert fake.launches()[0].startswith("launch rows grid 2 1 block 256")
    assert code.facts()["modules"] == len(code.facts()["rows"]) == 2


def test_what_passes_keep_fits_in_its_budget(fake, monkeypatch):
    monkeypatch.setattr(plan, "MOST_KEPT_BYTES", 3 * 32 * 10 * 8 + 100)  # 96 states
    for batch in ((200,), (2, 100), (96,), (7,)):
        k, _ = twice_plus(grid=Grid(64), large=PASSES)
        q, v = numbers(*batch, 3), numbers(*batch, 3, seed=1)
        gaps = np.full((*batch, 2, 3), 7.0)
        gaps[..., 0, :] = q
        rows = Foreign(on_device(gaps), shape=q.shape, strides=gaps[..., 0, :].strides)
        np.testing.assert_array_equal(k(rows, on_device(v)), 2 * q + v)
        states = int(np.prod(batch))
        counts = [int(line.split("count ")[1].split()[0]) for line in fake.launches()]
        assert counts[::2] == counts[1::2] == [96] * (states // 96) + [states % 96] * (states % 96 > 0)


def test_graphs_take_code_without_scratch_memory(fake):
    k, _ = twice_plus(grid=Grid(128), large=PASSES)
    q = numbers(5000, 3)
    d = on_device(q)
    np.testing.assert_array_equal(k(d, d), 3 * q)
    assert len(fake.launches()) == 2
    fake.set("capturing", 1)
    contexts.find()[0].unwanted.append(0)  # a module of a kernel that is gone: unloading it would wait for the card
    k(d, d)
    assert contexts.find()[0].unwanted.pop() == 0
    (launch,) = fake.launches()
    assert launch.startswith("launch rows grid 40 1 block 128 shared 0 stream 0 count 5000")


def test_cards_with_little_shared_memory_have_no_passes(fake):
    k, _ = twice_plus(grid=Grid(64), large=PASSES._replace(shared_bytes=240000))
    d = on_device(numbers(5000, 3))
    k(d, d)
    assert len(fake.launches()) == 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_types_and_shapes(fake, dtype, shape):
    k, _ = twice_plus(shape, dtype)
    q, v = numbers(5, *shape, dtype=dtype), numbers(5, *shape, seed=1, dtype=dtype)
    result = k(on_device(q, dtype), on_device(v, dtype))
    assert (result.dtype, result.shape) == (np.dtype(dtype), q.shape)
    np.testing.assert_array_equal(result, (2 * q.astype(float) + v).astype(dtype))


# ---- batches


BATCHES = [
    ((), ()),
    ((4,), ()),
    ((), (4,)),
    ((1,), (4,)),
    ((4, 1), (1, 5)),
    ((2, 3, 4), (4,)),
    ((2, 1, 4), (3, 1)),
    ((0, 3), (3,)),
    ((0,), ()),
]


@pytest.mark.parametrize(("first", "second"), BATCHES)
def test_batch_axes_broadcast(fake, first, second):
    k, _ = twice_plus()
    q, v = numbers(*first, 3), numbers(*second, 3, seed=1)
    result = k(on_device(q), on_device(v))
    assert result.shape == (2 * q + v).shape
    np.testing.assert_array_equal(result, 2 * q + v)
    np.testing.assert_array_equal(k(q, v), 2 * q + v)  # arrays on the host


def test_batch_axes_are_merged_where_they_can_be(fake):
    k, _ = twice_plus()
    q = on_device(numbers(4, 5, 6, 3))
    k(q, q)
    assert len(fake.launches()) == 1
    k(q, on_device(numbers(6, 3)))
    assert [line.split()[-1] for line in fake.launches()] == ["20"] * 6  # the longest axis is the one that is launched


def test_layout_of_batches():
    assert layout.batch((4, 5), [(15, 3), (0, 0)]) == (20, (3, 0), ())
    assert layout.batch((4, 5), [(15, 3), (1, 0)]) == (5, (3, 0), ((4, (15, 1)),))
    assert list(layout.batch((2, 5), [(-20, 3), (1, 0)]).offsets()) == [(0, 0), (-20, 1)]
    assert layout.batch((1, 1), [(7, 7)]) == (1, (0,), ())
    assert list(layout.batch((3, 0), [(7, 7)]).offsets()) == []


SLICES = [np.s_[::2], np.s_[::-1], np.s_[5:, ::-1], np.s_[:, 1:4], np.s_[:, ::2], np.s_[3:3]]


@pytest.mark.parametrize("cut", SLICES, ids=str)
def test_strides_are_taken_as_they_are(fake, cut):
    q = numbers(10, 6)
    want, view = 3 * q[cut], on_device(q)[cut]
    np.testing.assert_array_equal(view, q[cut])
    k, _ = twice_plus(view.shape[1:])
    fake.log()
    np.testing.assert_array_equal(k(view, view), want)
    contiguous = q[cut].strides[1] == 8 or not want.size
    assert all(line.split()[1] == ("rows" if contiguous else "strided") for line in fake.launches())


def test_columns_are_taken_as_they_are(fake):
    q = numbers(3, 50)  # 50 states, each a column
    columns = on_device(q)
    transposed = Foreign(columns, shape=(50, 3), strides=(8, 400))
    k, _ = twice_plus()
    fake.log()
    np.testing.assert_array_equal(k(transposed, transposed), 3 * q.T)
    assert fake.launches() == ["launch strided grid 1 1 block 128 shared 0 stream 0 count 50"]


def test_shapes_that_are_equal_may_have_other_strides(fake):
    k, _ = twice_plus()
    wide = numbers(10, 6)
    d = on_device(wide)
    for cut in (np.s_[:, :3], np.s_[:, ::2], np.s_[::-1, 3:]):
        np.testing.assert_array_equal(k(d[cut], d[cut]), 3 * wide[cut])


def test_kernels_without_strides_say_so(fake):
    k, _ = twice_plus(grid=Grid(128))
    q = on_device(numbers(10, 6))
    with pytest.raises(InputError, match=r"twice_plus: the numbers of one state of v are not contiguous.*copy v first"):
        k(q[:, 3:], q[:, ::2])


# ---- results in given memory


def test_out_is_written(fake):
    k, _ = twice_plus()
    q = numbers(40, 3)
    d, out = on_device(q), arrays.empty((40, 3))
    assert k(d, d, out=out) is out
    np.testing.assert_array_equal(out, 3 * q)
    rows = arrays.empty((40, 6))
    k(d, d, out=(rows[:, ::2],))
    np.testing.assert_array_equal(rows[:, ::2], 3 * q)


@pytest.mark.parametrize("cut", [np.s_[:40], np.s_[5:45], np.s_[44:4:-1]], ids=str)
def test_out_may_overlap_inputs(fake, cut):
    k, _ = twice_plus()
    q = numbers(60, 3)
    d = on_device(q)
    k(d[cut], d[10:50], out=d[:40])
    np.testing.assert_array_equal(d[:40], 2 * q[cut] + q[10:50])
    assert [line for line in fake.log() if line.startswith("DtoD")]


def test_out_that_does_not_overlap_is_not_copied(fake):
    k, _ = twice_plus()
    d = on_device(numbers(60, 3))
    k(d[:30], d[:30], out=d[30:])
    assert not [line for line in fake.log() if line.startswith("DtoD")]


@pytest.mark.parametrize(
    ("out", "says"),
    [
        (lambda: arrays.empty((4, 4)), r"out has shape \(4, 4\); it must be \(4, 3\)"),
        (lambda: arrays.empty((4, 3), "float32"), r"out holds float32, and this kernel computes in float64"),
        (lambda: Foreign(arrays.empty((4, 3)), data=(arrays.empty((4, 3)).pointer, True)), "out is read-only"),
        (lambda: Foreign(arrays.empty((4, 3)), strides=(0, 8)), "entries of out share memory"),
        (lambda: np.empty((4, 3)), "out lies on the host, and q on the device"),
    ],
)
def test_out_that_cannot_be(fake, out, says):
    k, _ = twice_plus()
    d = on_device(numbers(4, 3))
    with pytest.raises(InputError, match=f"twice_plus: {says}"):
        k(d, d, out=out())


# ---- arrays on the host


def test_host_arrays_come_back_to_the_host(fake):
    k, _ = twice_plus()
    q, v = numbers(100, 3), numbers(3, seed=1)
    result = k(q, v)
    assert type(result) is np.ndarray
    np.testing.assert_array_equal(result, 2 * q + v)
    np.testing.assert_array_equal(k(q.tolist(), [1, 2, 3]), 2 * q + [1, 2, 3])
    out = np.full((100, 3), np.nan)
    assert k(q, v, out=out) is out
    np.testing.assert_array_equal(out, 2 * q + v)
    in_place = q.copy()
    k(in_place, in_place[::-1], out=in_place)
    np.testing.assert_array_equal(in_place, 2 * q + q[::-1])


def test_host_arrays_go_in_chunks_on_two_streams(fake, monkeypatch):
    monkeypatch.setattr(host_arrays, "CHUNK_BYTES", 64 * 3 * 8 * 3)
    k, _ = twice_plus()
    q, v = numbers(1000, 3), numbers(1000, 3, seed=1)
    np.testing.assert_array_equal(k(q, v), 2 * q + v)
    launches = fake.launches()
    counts = [int(line.split()[-1]) for line in launches]
    assert counts == [64] * 15 + [40]
    assert len({line.split("stream")[1].split()[0] for line in launches}) == 2
    strange = np.asfortranarray(numbers(1000, 3))[::-1]
    np.testing.assert_array_equal(k(strange, v), 2 * strange + v)
    in_place = q.copy()
    k(in_place, in_place[::-1], out=in_place)
    np.testing.assert_array_equal(in_place, 2 * q + q[::-1])


def test_host_arrays_are_cast_as_on_the_cpu(fake):
    k, _ = twice_plus(dtype="float32")
    q = numbers(10, 3)
    result = k(q, np.arange(3))
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, (2 * q.astype("float32").astype(float) + np.arange(3)).astype("float32"))


def test_shared_numbers_on_the_host_go_along_with_arrays_on_the_device(fake):
    k, _ = twice_plus()
    q = numbers(10, 3)
    np.testing.assert_array_equal(k(on_device(q), [1.0, 2.0, 3.0]), 2 * q + [1, 2, 3])
    with pytest.raises(InputError, match=r"twice_plus: q is a batch on the host.*copy q to the device first"):
        k(q, on_device(q))


# ---- errors in terms of the arguments


@pytest.mark.parametrize("place", [np.asarray, on_device])
@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        (((4,), (3,)), r"q has shape \(4,\); its last axes must be \(3\)"),
        (((5, 3), (4, 3)), r"the batch axes of q \(5, 3\), v \(4, 3\) do not fit together"),
        (((3,),), "takes q, v; 1 arrays were given"),
    ],
)
def test_shapes_that_do_not_fit(fake, place, shapes, says):
    k, _ = twice_plus()
    with pytest.raises(InputError, match=f"twice_plus:? {says}"):
        k(*(place(numbers(*s)) for s in shapes))


def test_other_mistakes(fake):
    k, _ = twice_plus()
    d = on_device(numbers(4, 3))
    with pytest.raises(InputError, match="where= is no option of a kernel"):
        k(d, d, where=True)
    with pytest.raises(InputError, match=r"twice_plus: v holds float32.*give v\.astype\('float64'\)"):
        k(d, on_device(numbers(4, 3), "float32"))
    with pytest.raises(InputError, match="twice_plus: q has a mask"):
        k(Foreign(d, mask=d), d)
    with pytest.raises(InputError, match="twice_plus: v names stream 0"):
        k(d, Foreign(d, stream=0))
    with pytest.raises(InputError, match="twice_plus: q is not aligned"):
        k(Foreign(d, data=(d.pointer + 4, False), shape=(3, 3)), d)
    with pytest.raises(InputError, match=r"twice_plus: v has strides of \(24, 4\) bytes"):
        k(d, Foreign(d, strides=(24, 4)))
    with pytest.raises(InputError, match="twice_plus: q of type Foreign cannot be read: cuPointerGetAttribute"):
        k(Foreign(d, data=(64, False)), d)
    with pytest.raises(InputError, match="twice_plus: v must hold real numbers"):
        k([1, 2, 3], [1j, 2, 3])


# ---- threads, time, order


def test_threads_share_a_kernel(fake):
    k, _ = twice_plus()
    wrong = []

    def work(seed):
        for n in range(30):
            q = numbers(20 + n % 3, 3, seed=seed)
            d = on_device(q)
            if not np.array_equal(k(d, d), 3 * q) or not np.array_equal(k(q, q), 3 * q):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(s,)) for s in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_events_are_not_lost(fake):
    k, _ = twice_plus(grid=Grid(64, scratch_numbers=1, has_strided=True))
    d = on_device(numbers(10, 3))
    x = Foreign(d, stream=33)
    for _ in range(3):
        k(x, d)
        k(numbers(10, 3), numbers(3))
    before = fake.get("events")
    for _ in range(20):
        k(x, d)
        k(numbers(10, 3), numbers(3))
    assert fake.get("events") == before


def test_time_on_the_device(fake):
    k, _ = twice_plus()
    d = on_device(numbers(3))
    assert device_time(lambda: k(d, d), calls=4) == pytest.approx(5e-4)
    assert fake.get("depth") == 0


def test_kernels_are_made_without_a_card(fake, monkeypatch, tmp_path):
    monkeypatch.setenv("QDDOT_CUDA_DRIVER", str(tmp_path / "none.so"))
    code = GridCode([fake_cuda.ptx()], Grid(32), "f")
    made = kernel(code, ("q", "v"), ((3,), (3,)), (3,), fake_cuda.info(), lambda: "why")
    assert made.explain() == "why"
    assert "unrolled" in repr(made)
