"""Handlers that XLA calls, called here with frames made by hand: no JAX is needed, and no card."""

import ctypes
import functools
import re
import sys
from importlib import util
from pathlib import Path

import numpy as np
import pytest

import qddot
from qddot.compiler.runtime import xla_ffi
from qddot.compiler.runtime import xla_layout as layout
from qddot.compiler.runtime.cuda import arrays as arrays_on_card
from qddot.compiler.runtime.cuda.grid import Grid
from qddot.errors import InputError
from tests.support import xla_frame
from tests.support.c_code import needs_compiler
from tests.support.fake_cuda import numbers, twice_plus

ROBOT = qddot.load("double_pendulum")


@functools.cache
def entered(function="forward_dynamics", **options):
    kernel = ROBOT.kernel(function, **options)
    return kernel, xla_ffi.enter(kernel, f"test {function} {options}")


def run(key, arrays, out, handler=None, **more):
    interface = xla_frame.Interface()
    returned = xla_frame.call(handler or xla_ffi.handlers().cpu, key, arrays, [out], interface, **more)
    assert (returned is None) == (not interface.errors)
    return interface.errors


# ---- on the processor


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "batches",
    [
        [(1, 37), (1, 37), (1, 37)],
        [(1, 1), (1, 16), (1, 1)],
        [(3, 9), (1, 9), (3, 1)],
        [(3, 1), (1, 1), (1, 9)],
        [(1, 1), (1, 1), (1, 1)],
    ],
)
def test_results_have_the_bits_of_numpys_kernel(dtype, batches):
    kernel, key = entered(dtype=dtype)
    arrays = [numbers(*b, 2, seed=k, dtype=dtype) for k, b in enumerate(batches)]
    out = np.full((*np.broadcast_shapes(*batches), 2), np.nan, dtype)
    assert run(key, arrays, out) == []
    np.testing.assert_array_equal(out, kernel(*arrays))


def test_results_of_several_axes():
    kernel, key = entered("forward_kinematics")
    q, out = numbers(1, 20, 2), np.empty((1, 20, 2, 4, 4))
    assert run(key, [q], out) == []
    np.testing.assert_array_equal(out, kernel(q))


@pytest.mark.parametrize("batch", [(0, 4), (2, 0)])
def test_no_states(batch):
    _, key = entered()
    assert run(key, [np.empty((*batch, 2))] * 3, np.empty((*batch, 2))) == []


def test_nan_stays_in_its_sample():
    kernel, key = entered()
    arrays = [numbers(1, 20, 2, seed=k) for k in range(3)]
    arrays[1][0, 7, 0] = np.nan
    out = np.empty((1, 20, 2))
    assert run(key, arrays, out) == []
    assert np.isnan(out[0, 7]).all()
    np.testing.assert_array_equal(np.delete(out, 7, axis=1), np.delete(kernel(*arrays), 7, axis=1))


def test_memory_beyond_the_result_is_left_alone():
    _, key = entered()
    whole = np.full(5 * 2 + 16, -1.0)
    out = whole[8:-8].reshape(1, 5, 2)
    assert run(key, [numbers(1, 5, 2)] * 3, out) == []
    assert (whole[:8] == -1).all()
    assert (whole[-8:] == -1).all()


@pytest.mark.parametrize(
    ("shapes", "dtype"),
    [
        ([(1, 4, 2), (1, 5, 2), (1, 5, 2), (1, 5, 2)], "float64"),
        ([(2, 5, 2), (1, 5, 2), (1, 5, 2), (3, 5, 2)], "float64"),
        ([(1, 5, 3), (1, 5, 2), (1, 5, 2), (1, 5, 2)], "float64"),
        ([(1, 5, 2), (1, 5, 2), (1, 5, 2), (1, 5, 3)], "float64"),
        ([(1, 5, 2), (1, 5, 2), (1, 5, 2), (1, 5, 2)], "float32"),
        ([(1, 5, 2), (1, 5, 2), (1, 5, 2), (1, 5, 2)], "int32"),
        ([(5,), (1, 5, 2), (1, 5, 2), (1, 5, 2)], "float64"),
        ([(1, 5, 2), (1, 5, 2), (1, 5, 2)], "float64"),
    ],
)
def test_operands_that_do_not_fit_are_an_error(shapes, dtype):
    _, key = entered()
    *inputs, last = shapes
    ((code, words),) = run(key, [np.zeros(s, dtype) for s in inputs], np.zeros(last, dtype))
    assert code == layout.INVALID_ARGUMENT
    assert "other types or shapes" in words


def test_a_kernel_that_the_process_has_not_made_is_an_error():
    ((code, words),) = run(12345, [numbers(1, 5, 2)] * 3, np.empty((1, 5, 2)))
    assert code == layout.NOT_FOUND
    assert "make the same qddot.jax.Dynamics here" in words


def spoiled(name, size):
    def change(frame):
        if name == "frame":
            frame.struct_size = size
        else:
            getattr(frame, name).struct_size = size

    return change


@pytest.mark.parametrize(("name", "size"), [("frame", 160), ("args", 48), ("rets", 32), ("attrs", 56)])
def test_structures_of_another_size_are_an_error(name, size):
    _, key = entered()
    ((code, words),) = run(key, [numbers(1, 5, 2)] * 3, np.empty((1, 5, 2)), change=spoiled(name, size))
    assert code == layout.INTERNAL
    assert "in a way that qddot does not know" in words


def test_more_attributes_than_the_key_are_an_error():
    def change(frame):
        frame.attrs.size = 2

    _, key = entered()
    ((code, _),) = run(key, [numbers(1, 5, 2)] * 3, np.empty((1, 5, 2)), change=change)
    assert code == layout.NOT_FOUND


def test_what_handlers_say_of_themselves():
    own = xla_ffi.handlers()
    for handler, traits in ((own.cpu, 0), (own.cuda, layout.COMMAND_BUFFER_COMPATIBLE)):
        found = xla_frame.asked(handler)
        assert (found.version.major, found.version.minor, found.traits) == (layout.MAJOR, layout.MINOR, traits)


def test_keys_that_meet_in_the_table(monkeypatch):
    """Kernels whose keys begin at the same place are all found."""
    kernel, _ = entered()
    keys = {f"{k}": 77 + k * layout.TABLE_PLACES for k in range(4)}
    monkeypatch.setattr(xla_ffi, "key_of", keys.__getitem__)
    for name, key in keys.items():
        assert xla_ffi.enter(kernel, name) == key
    arrays = [numbers(1, 5, 2, seed=k) for k in range(3)]
    for key in keys.values():
        out = np.empty((1, 5, 2))
        assert run(key, arrays, out) == []
        np.testing.assert_array_equal(out, kernel(*arrays))
    monkeypatch.setattr(xla_ffi, "key_of", lambda _: 77)
    with pytest.raises(InputError, match="two kernels have the same key 77"):
        xla_ffi.enter(kernel, "another")


def test_a_kernel_for_another_machine_is_refused():
    other = "cpu:generic" if "x86" in sys.modules["platform"].machine() else "cpu:x86-64-v3"
    with pytest.raises(InputError, match="cannot run on this machine"):
        xla_ffi.enter(ROBOT.kernel("mass_matrix", target=other), "elsewhere")


@pytest.mark.skipif("x86" not in sys.modules["platform"].machine(), reason="sets the mode of an x86 processor")
def test_threads_that_flush_subnormal_numbers_get_the_same_results():
    """As XLA's do; a product of subnormal size is kept all the same, and the mode of the thread too."""
    kernel, key = entered("gravity_force", free=("gravity",))
    arrays = [numbers(1, 9, 2), np.full((1, 1, 3), 1e-310)]
    out = np.zeros((1, 9, 2))
    expected = kernel(*arrays)
    assert (np.abs(expected) > 0).any()
    assert np.abs(expected).max() < np.finfo(float).tiny
    libm = ctypes.CDLL("libm.so.6")
    environment = (ctypes.c_uint32 * 8)()  # the last word is MXCSR
    libm.fegetenv(environment)
    before = environment[7]
    environment[7] = before | 0x8040
    # In one call of C each: Python's own floats would flush as well.
    libm.fesetenv(environment)
    try:
        errors = run(key, arrays, out)
        libm.fegetenv(environment)
        after = environment[7]
    finally:
        environment[7] = before
        libm.fesetenv(environment)
    assert errors == []
    assert after & 0x8040 == 0x8040
    np.testing.assert_array_equal(out, expected)


# ---- on a card, with a stand-in for the driver


def launch(key, arrays, results, **facts):
    """The errors of a call of the handler for cards, with arrays that lie on one; results are copied back."""
    interface = xla_frame.Interface(**facts)
    given, found = ([arrays_on_card.to_device(x) for x in xs] for xs in (arrays, results))
    returned = xla_frame.call(xla_ffi.handlers().cuda, key, given, found, interface)
    for x, y in zip(results, found, strict=True):
        x[...] = y.copy_to_host()
    assert (returned is None) == (not interface.errors)
    return interface.errors


def on_card(fake, grid=None, modules=1):
    kernel, _ = twice_plus(grid=grid, modules=modules)
    key = xla_ffi.enter(kernel, f"card {id(kernel)}")
    fake.log()
    return key


@needs_compiler
def test_a_launch_is_on_the_stream_of_the_program(fake):
    key = on_card(fake)
    q, v, out = numbers(1, 1000, 3), numbers(1, 1, 3, seed=1), np.zeros((1, 1000, 3))
    assert launch(key, [q, v], [out], stream=77) == []
    assert fake.launches() == ["launch rows grid 8 1 block 128 shared 0 stream 77 count 1000"]
    np.testing.assert_array_equal(out, 2 * q + v)
    assert fake.get("depth") == 0


@needs_compiler
def test_warps_that_share_states_get_more_blocks(fake):
    key = on_card(fake, Grid(128, warps_per_state=4))
    q, out = numbers(1, 1000, 3), np.zeros((1, 1000, 3))
    assert launch(key, [q, q], [out]) == []
    assert fake.launches() == ["launch rows grid 32 1 block 128 shared 0 stream 0 count 1000"]


@needs_compiler
def test_a_launch_for_each_row_and_module(fake):
    key = on_card(fake, modules=2)
    q, v, out = numbers(3, 1, 3), numbers(1, 40, 3, seed=1), np.zeros((3, 40, 3))
    assert launch(key, [q, v], [out]) == []
    assert len(fake.launches()) == 6
    np.testing.assert_array_equal(out, 2 * q + v)


@needs_compiler
def test_no_states_launch_nothing(fake):
    key = on_card(fake)
    out = np.zeros((1, 0, 3))
    assert launch(key, [out, out], [out]) == []
    assert fake.launches() == []


@needs_compiler
def test_scratch_memory_is_the_second_result(fake):
    kernel, _ = twice_plus(grid=Grid(64, groups=2, scratch_numbers=10))
    key = xla_ffi.enter(kernel, "scratch")
    size = xla_ffi.scratch_bytes(kernel, 100)
    assert size == 2 * 64 * 2 * 10 * 8
    scratch = np.full(size // 8, 7.0)
    q, out = numbers(1, 100, 3), np.zeros((1, 100, 3))
    fake.log()
    assert launch(key, [q, q], [out, scratch]) == []
    assert fake.launches() == ["launch rows grid 2 2 block 64 shared 0 stream 0 count 100"]
    np.testing.assert_array_equal(out, 3 * q)


@needs_compiler
def test_a_launch_on_the_second_card(fake):
    fake.set("devices", 2)
    key = on_card(fake)
    q, out = numbers(1, 10, 3), np.zeros((1, 10, 3))
    assert launch(key, [q, q], [out], ordinal=1) == []
    np.testing.assert_array_equal(out, 3 * q)


@needs_compiler
def test_errors_of_launches(fake):
    key = on_card(fake)
    q, out = numbers(1, 10, 3), np.zeros((1, 10, 3))
    ((_, words),) = launch(key, [q, q], [out], ordinal=5)
    assert "not loaded on the device" in words
    fake.fail("cuLaunchKernel", 719)
    ((_, words),) = launch(key, [q, q], [out])
    assert "refused to launch a kernel (error 719)" in words
    assert fake.get("depth") == 0
    ((_, words),) = launch(key, [q, q], [out], words=22)
    assert "install a newer version of JAX" in words


# ---- XLA's own header


def header():
    found = util.find_spec("jaxlib")
    if found is None or found.origin is None:
        pytest.skip("JAX is not installed, whose header this reads")
    return (Path(found.origin).parent / "include/xla/ffi/api/c_api.h").read_text()


SIZES = {"size_t": 8, "int64_t": 8, "int32_t": 4, "uint32_t": 4, "int": 4, "XLA_FFI_Handler_Traits": 4}


class Header:
    """Offsets of fields, as a C compiler lays them out on a machine of 64 bits."""

    def __init__(self, text):
        self.text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
        # Interface 0.4 has another name for the same.
        names = "XLA_FFI_Extension_Base", "XLA_FFI_InternalExtension"
        self.extension = next(x for x in names if f"struct {x} {{" in self.text)
        self.enums = set(
            re.findall(r"}\s*(XLA_FFI_\w+);", "".join(re.findall(r"typedef enum \{.*?\}\s*\w+;", self.text, re.S)))
        )

    def fields(self, name):
        body = re.search(rf"struct {name} {{(.*?)\n}}", self.text, re.S).group(1)
        return re.findall(r"(?:const\s+)?([\w ]+?(?:\s*\*+)?)\s*(?:\((\w+)\)|(\w+));", body)

    def size(self, kind):
        if kind.endswith("*") or kind == "_XLA_FFI_API_STRUCT_FIELD":
            return 8, 8
        kind = kind.removeprefix("struct ").strip()
        if kind in SIZES or kind in self.enums:
            n = SIZES.get(kind, 4)
            return n, n
        return self.offsets(kind)[1], 8

    def offsets(self, name):
        at, found = 0, {}
        for kind, function, field in self.fields(name):
            size, align = self.size(kind.strip())
            at = -(-at // align) * align
            found[function or field] = at
            at += size
        return found, -(-at // 8) * 8


def test_layouts_are_those_of_the_header_of_jax():
    """A JAX with other layouts fails here, and its programs fail with an error at the first call."""
    own = Header(header())
    for name, ours, others in (
        ("XLA_FFI_CallFrame", layout.FRAME, {}),
        ("XLA_FFI_Args", layout.LIST, {"items": "args"}),
        ("XLA_FFI_Rets", layout.LIST, {"items": "rets"}),
        ("XLA_FFI_Attrs", layout.ATTRIBUTES, {}),
        ("XLA_FFI_Buffer", layout.BUFFER, {}),
        ("XLA_FFI_Scalar", layout.SCALAR, {}),
        (own.extension, {k: v for k, v in layout.EXTENSION.items() if k != "metadata"}, {}),
        ("XLA_FFI_Metadata_Extension", {"metadata": layout.EXTENSION["metadata"]}, {}),
        ("XLA_FFI_Metadata", {k: layout.METADATA[k] for k in ("struct_size", "api_version", "traits")}, {}),
        ("XLA_FFI_Api", layout.API, {}),
        ("XLA_FFI_Error_Create_Args", layout.ERROR_CREATE, {}),
        ("XLA_FFI_Stream_Get_Args", layout.STREAM_GET, {}),
        ("XLA_FFI_DeviceOrdinal_Get_Args", layout.ORDINAL_GET, {}),
    ):
        found = own.offsets(name)[0]
        for field, at in ours.items():
            assert found[others.get(field, field)] == at, f"{name}.{field}"
    version = own.offsets("XLA_FFI_Api_Version")[0]
    start = layout.METADATA["api_version"]
    assert start + version["major_version"] == layout.METADATA["major"]
    assert start + version["minor_version"] == layout.METADATA["minor"]


def test_sizes_and_numbers_are_those_of_the_header_of_jax():
    text = header()
    own = Header(text)
    sizes = {"LIST": "XLA_FFI_Args", "ATTRIBUTES": "XLA_FFI_Attrs", "BUFFER": "XLA_FFI_Buffer"}
    for ours, name in sizes.items():
        assert own.offsets(name)[1] == layout.SIZES[ours]
    assert own.offsets("XLA_FFI_CallFrame")[0]["attrs"] + layout.SIZES["ATTRIBUTES"] == layout.SIZES["FRAME"]
    assert int(re.search(r"define XLA_FFI_API_MAJOR (\d+)", text).group(1)) == layout.MAJOR
    assert int(re.search(r"define XLA_FFI_API_MINOR (\d+)", text).group(1)) >= layout.MINOR
    for name, value in (
        ("XLA_FFI_Extension_Metadata", layout.METADATA_EXTENSION),
        ("XLA_FFI_DataType_F32", layout.DATA_TYPES["float32"]),
        ("XLA_FFI_DataType_F64", layout.DATA_TYPES["float64"]),
        ("XLA_FFI_Error_Code_INVALID_ARGUMENT", layout.INVALID_ARGUMENT),
        ("XLA_FFI_Error_Code_NOT_FOUND", layout.NOT_FOUND),
        ("XLA_FFI_Error_Code_RESOURCE_EXHAUSTED", layout.RESOURCE_EXHAUSTED),
        ("XLA_FFI_Error_Code_INTERNAL", layout.INTERNAL),
    ):
        assert int(re.search(rf"\b{name} = (\d+)", text).group(1)) == value, name
    assert "COMMAND_BUFFER_COMPATIBLE = 1u << 0" in text
