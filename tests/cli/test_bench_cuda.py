"""`qddot bench --target cuda`: what it says without a driver, and its table with this processor in a card's place."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

import qddot
from qddot.cli import bench, bench_cuda
from qddot.cli.main import main
from qddot.compiler.runtime.cuda.kernel import code_of
from qddot.errors import InputError


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_without_a_driver_it_says_so(flags, capsys, monkeypatch, tmp_path):
    from qddot.compiler.runtime.cuda import driver

    monkeypatch.setenv("QDDOT_CUDA_DRIVER", str(tmp_path / "none.so"))
    monkeypatch.setattr(driver, "_loaded", None)
    assert main(["bench", "--target", "cuda", "puma560", *flags]) == 2
    captured = capsys.readouterr()
    assert "target 'cuda' needs NVIDIA's driver" in captured.err
    assert "none.so" in captured.err
    assert "install the driver of the graphics card from NVIDIA, or take target='cpu'" in captured.err
    if flags:
        assert "NVIDIA's driver" in json.loads(captured.out)["error"]


def test_other_targets_are_refused(capsys):
    with pytest.raises(SystemExit):
        main(["bench", "--target", "tpu", "puma560"])
    assert "invalid choice: 'tpu'" in capsys.readouterr().err


class Host(np.ndarray):
    """An array of NumPy with what arrays on a card have."""

    def copy_to_host(self):
        return np.array(self)


@pytest.fixture
def card(monkeypatch):
    """This processor in a card's place. Kernels are those of the CPU; the clock says a microsecond."""
    device = SimpleNamespace(name="NVIDIA Test", arch="sm_90", memory_bytes=8 * 3000 * 24 * 8)
    given = []

    def of(x, context):
        given.append(x)
        return np.asarray(x).view(Host)

    def timed(call):
        call()
        return 1e-6

    facts = {"rows": [{"registers": 96, "local_bytes": 16}]}
    own = SimpleNamespace(threads_per_state=4)
    code = SimpleNamespace(facts=lambda context: facts, grid=own, seconds=0.25, cached=False)
    code.suited = lambda states, context: code
    made = qddot.Robot.kernel
    monkeypatch.setattr(bench_cuda, "find", lambda: (SimpleNamespace(device=device), False))
    monkeypatch.setattr(bench_cuda, "to_device", of)
    monkeypatch.setattr(bench_cuda, "empty", lambda shape, dtype, context: np.full(shape, np.nan, dtype).view(Host))
    monkeypatch.setattr(bench_cuda, "copy_bandwidth", lambda: 1e12)
    monkeypatch.setattr(bench_cuda, "device_time", timed)
    monkeypatch.setattr(bench_cuda, "_host_seconds", lambda call: (call(), 5e-6)[1])
    monkeypatch.setattr(bench_cuda, "code_of", lambda kernel: code)
    monkeypatch.setattr(qddot.Robot, "kernel", lambda self, name, dtype, target: made(self, name, dtype=dtype))
    return given


def test_the_table_of_a_card(card, capsys):
    assert main(["bench", "--target", "cuda", "puma560", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["card"] == {"name": "NVIDIA Test", "arch": "sm_90", "copy_bytes_per_second": 1e12}
    functions = [r["function"] for r in report["rows"]]
    assert functions == [f for f in bench.DEFAULT for _ in bench_cuda.DTYPES]
    first, second = report["rows"][:2]
    assert (first["function"], first["dtype"], second["dtype"]) == ("inverse_dynamics", "float32", "float64")
    assert (first["states"], second["states"]) == (6000, 3000), "an eighth of the card's memory"
    assert first["states_per_second"] == pytest.approx(6000 / 1e-6)
    assert first["copy_share"] == pytest.approx(6000 * 24 * 4 / 1e-6 / 1e12)
    assert (first["registers"], first["local_bytes"], first["threads_a_state"]) == (96, 16, 4)
    assert first["assemble_seconds"] == 0.25
    assert {x.dtype.name for x in card} == {"float32", "float64"}
    assert main(["bench", "--target", "cuda", "puma560"]) == 0
    printed = capsys.readouterr().out
    assert "PUMA" in printed.upper()
    assert "on NVIDIA Test, copies 1.00 TB/s" in printed
    assert "6,000,000,000" in printed
    assert "58%" in printed


def test_the_code_of_a_kernel_is_that_of_a_card():
    robot = qddot.load("pendulum")
    assert code_of(robot.kernel("mass_matrix", target="cuda")).grid.threads % 32 == 0
    with pytest.raises(InputError, match="not for a card; make it with target='cuda'"):
        code_of(robot.kernel("mass_matrix"))
