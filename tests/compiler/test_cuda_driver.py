"""The driver of a card, with a stand-in for it: contexts, machine code and its cache, memory, and what fails there."""

import gc
import os
import subprocess
import sys

import numpy as np
import pytest

from qddot.compiler.runtime.cuda import arrays, assemble, context, driver, memory
from qddot.compiler.runtime.cuda.grid import Grid, from_json
from qddot.errors import DeviceError, InputError
from tests.support.c_code import needs_compiler
from tests.support.fake_cuda import numbers, on_device, twice_plus
from tests.support.paths import ROOT

pytestmark = needs_compiler


# ---- devices and contexts


def test_the_callers_context_stays(fake):
    k, _ = twice_plus()
    own = driver.driver()
    q = numbers(4, 3)
    k(q, q)
    d = on_device(q)
    k(d, d)
    assert fake.get("depth") == 0
    with context.find(1)[0]:
        there = on_device(q)
        assert there.device == 1
        np.testing.assert_array_equal(k(there, there), 3 * q)
        assert k(d, d).device == 0  # arrays decide
        assert fake.get("depth") == 1
        with pytest.raises(InputError, match="twice_plus: v lies on device 0, and other arguments on device 1"):
            k(there, d)
    assert own is driver.driver()
    assert [line for line in fake.log() if line.startswith("retain")] == ["retain 0", "retain 1"]


def test_cards_that_are_too_old(fake):
    fake.set("capability", 70)
    with pytest.raises(InputError, match=r"Fake card 0 has compute capability 7\.0; kernels need 7\.5"):
        arrays.empty((3,))
    assert "7.0" in context.obstacle()


def test_facts_about_cards(fake):
    assert context.obstacle() is None
    first, second = context.devices()
    assert first == (0, "Fake card 0", (9, 0), 132, 2048, 232448, 1 << 30)
    assert (second.ordinal, first.arch) == (1, "sm_90")


def test_without_a_driver(fake, monkeypatch, tmp_path):
    monkeypatch.setenv("QDDOT_CUDA_DRIVER", str(tmp_path / "none.so"))
    k, _ = twice_plus()
    with pytest.raises(InputError, match=r"twice_plus: target 'cuda' needs NVIDIA's driver.*none\.so.*target='cpu'"):
        k(numbers(3), numbers(3))


def test_without_a_card(fake):
    fake.fail("cuInit", 100)
    k, _ = twice_plus()
    with pytest.raises(InputError, match="NVIDIA's driver finds no card here; take target='cpu'"):
        k(numbers(3), numbers(3))
    np.testing.assert_array_equal(k([1, 1, 1], [0, 0, 0]), [2, 2, 2])  # it is there by now


def test_what_the_driver_says_is_in_the_error(fake):
    k, _ = twice_plus()
    d = on_device(numbers(3))
    fake.fail("cuLaunchKernel", 700)
    with pytest.raises(
        DeviceError, match=r"twice_plus: cuLaunchKernel: CUDA_ERROR_ILLEGAL_ADDRESS .*start it again"
    ) as raised:
        k(d, d)
    assert raised.value.code == 700
    fake.fail("cuLaunchKernel", 1234)
    with pytest.raises(DeviceError, match="error 1234"):
        k(d, d)
    np.testing.assert_array_equal(k(d, d), 3 * d.copy_to_host())


def in_a_process(code):
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_is_told(fake):
    out = in_a_process(
        """
import os, numpy as np
from tests.support.fake_cuda import Fake, twice_plus, on_device
fake = Fake(os.environ["QDDOT_CUDA_DRIVER"])
os.environ["QDDOT_CUDA_POOL_MB"] = "0"
k, _ = twice_plus()
d = on_device(np.ones(3))
r = k(d, d)
if os.fork() == 0:
    try:
        try:
            k(d, d)
        except ValueError as error:
            assert "before this process was forked" in str(error)
        else:
            os._exit(3)
        k(np.ones(3), np.ones(3))
    except ValueError as error:
        print(error, flush=True)
    fake.log()
    del d, r, k  # nothing of the parent's is freed here
    print(fake.log(), flush=True)
    os._exit(0)
os.wait()
print(k(np.ones(3), np.ones(3)))
"""
    )
    assert "twice_plus: CUDA was used before this process was forked" in out
    assert out.endswith("\n[]\n[3. 3. 3.]\n")


def test_an_interpreter_that_ends_frees_nothing(fake):
    code = (
        "import numpy as np; from tests.support.fake_cuda import *; k, _ = twice_plus(); d = on_device(np.ones(3)); k(d, d)"
    )
    assert in_a_process(code) == ""


# ---- assembling and loading


def test_machine_code_is_in_the_cache(fake):
    d = on_device(numbers(3))
    first, code = twice_plus(note="a")
    first(d, d)
    assert "assemble twice_plus" in fake.log()
    assert not code.cached
    second, code = twice_plus(note="a")
    second(d, d)
    assert "assemble twice_plus" not in fake.log()
    assert code.cached
    other, _ = twice_plus(note="b")
    other(d, d)
    assert "assemble twice_plus" in fake.log()


def test_machine_code_belongs_to_a_card_and_a_driver(fake, monkeypatch):
    own = context.find()[0]
    key = assemble.cache_key("text", own)
    monkeypatch.setattr(own, "device", own.device._replace(capability=(8, 0)))
    other = assemble.cache_key("text", own)
    monkeypatch.setattr(own.driver, "version", 13000)
    assert len({key, other, assemble.cache_key("text", own)}) == 3


def test_machine_code_that_the_driver_does_not_load_is_assembled_again(fake):
    d = on_device(numbers(3))
    first, _ = twice_plus(note="a")
    first(d, d)
    fake.log()
    second, _ = twice_plus(note="a")
    fake.fail("cuModuleLoadData", 200)
    np.testing.assert_array_equal(second(d, d), 3 * d.copy_to_host())
    assert "assemble twice_plus" in fake.log()
    third, _ = twice_plus(note="new")
    fake.fail("cuModuleLoadData", 200)
    with pytest.raises(DeviceError, match="twice_plus: cuModuleLoadData"):
        third(d, d)


def test_the_assemblers_messages_are_in_the_error(fake):
    k, _ = twice_plus(note="error")
    with pytest.raises(InputError, match=r"twice_plus: the assembler for Fake card 0 \(sm_90\) says") as raised:
        k(numbers(3), numbers(3))
    lines = str(raised.value).splitlines()
    assert lines[1] == "ptxas fatal: line 1 of many"
    assert lines[-1] == "line 8"


def test_old_drivers_are_told_from_bad_texts(fake):
    k, _ = twice_plus()
    fake.fail("cuLinkAddData_v2", 222)
    with pytest.raises(InputError, match="update the driver"):
        k(numbers(3), numbers(3))


def test_facts_about_machine_code(fake):
    _, code = twice_plus(grid=Grid(128, shared_bytes=1000, has_strided=True))
    facts = code.facts()
    assert facts["device"] == "Fake card 0"
    one = {"registers": 40, "local_bytes": 8, "shared_bytes": 1016, "max_threads": 1024, "blocks": 8}
    assert facts["rows"] == facts["strided"] == [one | {"occupancy": 0.5, "warps": 32}]


def test_modules_go_with_their_kernels(fake):
    d = on_device(numbers(3))
    before = fake.get("modules")
    k, code = twice_plus()
    k(d, d)
    with context.find(1)[0]:
        there = on_device(numbers(3))
        k(there, there)
    assert fake.get("modules") == before + 2
    del k, code
    gc.collect()
    assert fake.get("modules") == before + 2  # nothing waits for the card in the garbage collector
    k, _ = twice_plus()
    k(d, d)
    assert fake.get("modules") == before + 2
    with context.find(1)[0]:
        k(there, there)
    assert fake.get("modules") == before + 2


def test_grid_facts_are_checked():
    grid = Grid(64, 100, 2, 3, True)
    assert from_json(grid.as_json()) == grid
    for wrong in (
        {"threads": 48},
        {"threads": 2048},
        {"threads": 0},
        {"groups": 0},
        {"shared_bytes": -1},
        {"threads": "64"},
    ):
        with pytest.raises(ValueError, match=r"must be|holds"):
            from_json({**grid.as_json(), **wrong})
    with pytest.raises(TypeError):
        from_json({"blocks": 3})


# ---- memory


def test_memory_is_used_again(fake):
    before = fake.get("bytes")
    first = arrays.empty((1000,)).pointer
    assert arrays.empty((1000,)).pointer == first
    pool = context.find()[0].pool
    assert pool.kept_bytes() == 8192
    assert fake.get("bytes") == before + 8192
    assert pool.trim() == 8192
    assert fake.get("bytes") == before


def test_the_pool_is_bounded(fake, monkeypatch):
    before = fake.get("bytes")
    monkeypatch.setenv("QDDOT_CUDA_POOL_MB", "1")
    many = [arrays.empty((1 << 15,)) for _ in range(8)]  # 256 KB each
    del many
    assert context.find()[0].pool.kept_bytes() == 1 << 20
    assert fake.get("bytes") == before + (1 << 20)
    monkeypatch.setenv("QDDOT_CUDA_POOL_MB", "0")
    arrays.empty((10,))
    assert fake.get("bytes") == before
    monkeypatch.setenv("QDDOT_CUDA_POOL_MB", "few")
    with pytest.raises(InputError, match="QDDOT_CUDA_POOL_MB='few' is not known"):
        memory.most_kept_bytes()


def test_memory_of_other_streams_is_waited_for(fake):
    with context.find()[0] as own:
        block = own.pool.take(1000, 7)
        own.pool.give(block, 7)
        fake.log()
        assert own.pool.take(1000, 7) is block
        assert fake.log() == ["stream 7 waits for 7"]
        own.pool.give(block, 7)
        fake.set("pending", 1)
        other = own.pool.take(1000, 8)
        assert other is not block
        fake.set("pending", 0)
        assert own.pool.take(1000, 8) is block  # its work is done
        own.pool.give(other, 8)
        assert own.pool.take(1000, 0) is other  # its event has happened
        own.pool.give(other, 0)
        assert own.pool.take(1000, 8) is not other  # no event tells when the default stream is through
        assert own.pool.take(1000, 0) is other


def test_memory_for_copies_is_not_written_while_it_is_read(fake):
    with context.find()[0] as own:
        block = own.staging.take(1000, 7)
        own.staging.give(block, 7)
        fake.set("pending", 1)
        assert own.staging.take(1000, 7) is not block
        fake.set("pending", 0)
        assert own.staging.take(1000, 7) is block


def test_no_device_memory(fake):
    k, _ = twice_plus()
    d = on_device(numbers(1000, 3))
    kept = arrays.empty((5000,))
    fake.set("limit", fake.get("bytes") + 1000)
    with pytest.raises(
        MemoryError, match=r"twice_plus: 0\.0 MB of device memory are needed, and 1\.0 of 2\.0 MB are free on Fake"
    ):
        k(d, d)
    del kept  # the pool keeps it: it is freed rather than nothing found
    k(d, d)
    assert "free" in fake.log()
