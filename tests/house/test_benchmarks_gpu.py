"""The benchmark of kernels on a card, without a card: a rehearsal, its table of targets, the search, the chart."""

import json
import os
import sys
import time
from xml.etree import ElementTree

import numpy as np
import pytest

import benchmarks.gpu.__main__ as command
import qddot
from benchmarks.gpu import cases, chart, children, measure, prepare, report, roofline, targets, tune
from benchmarks.gpu.card import Rehearsal
from benchmarks.gpu.cases import Case
from benchmarks.gpu.run import Options, Run

MACHINE = {
    "card": "NVIDIA H200",
    "arch": "sm_90",
    "copy_bytes_per_second": 4e12,
    "multiply_adds_per_second": {"float32": 3e13, "float64": 1.5e13},
}


def row(robot="panda7", function="inverse_dynamics", dtype="float32", layout="row", batch=1 << 20, rate=30e9, **more):
    """A row of a run."""
    own = roofline.of(MACHINE, dtype, 28, 400, 1.0 / rate)
    names = dict(
        zip(("robot", "function", "dtype", "layout", "batch"), (robot, function, dtype, layout, batch), strict=True)
    )
    measured = {"seconds": batch / rate, "states_per_second": rate, "error": 1e-7, "bits_equal": True, "agrees": True}
    return names | measured | own | more


def data(*rows, calls=()):
    return {"date": "2026-11-20", "machine": MACHINE, "rows": list(rows), "calls": list(calls), "frax": [], "kernels": []}


def verdict(found, what):
    (own,) = [v for v in targets.verdicts(found) if v.what == what]
    return own


# ---- words of the command


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--robots", "pando7"], "'pando7' is not known; take some of panda7"),
        (["--functions", "rnea"], "'rnea' is not known; take some of inverse_dynamics"),
        (["--batches", "0"], "whole numbers from 1 on"),
        (["--prepare-only"], "needs --folder"),
        (["--tune", "--rehearse"], "--tune needs a card"),
        (["--workers", "0"], "above zero"),
    ],
)
def test_unknown_words_are_refused(words, said, capsys):
    with pytest.raises(SystemExit):
        command.arguments(words)
    assert said in capsys.readouterr().err


def test_words_are_taken():
    options = command.arguments(["--robots", "panda7,g1-floating", "--dtypes", "float64", "--batches", "256,4096"])
    assert options.robots == ["panda7", "g1-floating"]
    assert (options.dtypes, options.batches, options.seconds) == (["float64"], [256, 4096], 540.0)


def test_without_a_driver_the_run_says_so(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("QDDOT_CUDA_DRIVER", str(tmp_path / "none.so"))
    assert command.main(["--robots", "puma560", "--seconds", "20"]) == 2
    assert "needs NVIDIA's driver, and" in capsys.readouterr().out


# ---- robots and cases


def test_robots_are_saved_for_another_machine(tmp_path, capsys):
    assert command.main(["--robots", "puma560,quadruped", "--save-robots", str(tmp_path / "robots")]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "robots" / f"{n}.json") for n in ("puma560", "quadruped")]
    for name in ("puma560", "quadruped"):
        assert cases.load(name, tmp_path / "robots").model.digest == qddot.load(name).model.digest
    renamed = qddot.load("pendulum")
    renamed.save(tmp_path / "robots" / "panda7.json")
    assert cases.load("panda7", tmp_path / "robots").model.digest == renamed.model.digest, "the folder comes first"


def test_embedded_robots_stand_in_where_there_are_no_files(monkeypatch, tmp_path):
    monkeypatch.setattr(cases.cases, "FILES", tmp_path)
    assert cases.available(list(cases.ROBOTS), None) == list(cases.EMBEDDED)
    qddot.load("pendulum").save(tmp_path / "panda7.json")
    assert cases.available(list(cases.ROBOTS), tmp_path) == ["panda7"]


def test_states_are_numbers_of_single_precision():
    for x in cases.states(qddot.load("quadruped"), "inverse_dynamics", 5):
        assert x.dtype == np.float64
        np.testing.assert_array_equal(x, x.astype(np.float32))
    assert len(cases.states(qddot.load("puma560"), "mass_matrix", 5)) == 1


def test_large_results_have_smaller_batches():
    assert cases.batches(cases.BATCHES, 400) == list(cases.BATCHES)
    assert cases.batches(cases.BATCHES, 401) == [256, 4096, 65_536, 1 << 18]
    assert cases.batches((256, 512), 1000) == [256, 512]


def test_small_kernels_come_first():
    found = cases.all_cases(list(cases.ROBOTS), list(cases.FUNCTIONS), list(cases.DTYPES))
    assert found[0] == Case("panda7", "inverse_dynamics", "float32")
    assert len(set(found)) == 40
    assert {c.function for c in found[-4:]} == {"forward_dynamics_derivatives"}


# ---- a rehearsal


def test_a_rehearsal_measures_every_case(tmp_path, capsys):
    file = tmp_path / "run.json"
    words = ["--rehearse", "--robots", "puma560", "--functions", "inverse_dynamics,mass_matrix", "--workers", "2"]
    assert command.main([*words, "--batches", "256,8192", "--seconds", "120", "--json", str(file)]) == 0
    printed, found = capsys.readouterr().out, json.loads(file.read_text(encoding="utf-8"))
    assert not [e for e in found["errors"] if "frax" not in e["what"]]
    assert len(found["kernels"]) == 4
    assert len(found["rows"]) == 16  # 2 functions, 2 types, 2 layouts, 2 batches
    for r in found["rows"]:
        assert r["bits_equal"], r
        assert r["agrees"]
        assert r["error"] == 0.0 if r["dtype"] == "float64" else 0.0 < r["error"] < 1e-5
        inputs, results = (18, 6) if r["function"] == "inverse_dynamics" else (6, 16)
        assert r["bytes"] == np.dtype(r["dtype"]).itemsize * (inputs + results)
    assert found["rehearsal"] is True
    assert "arrays of qddot" in printed
    assert "this is rehearsal on the CPU" in printed
    with pytest.raises(SystemExit, match="nothing to draw"):
        chart.svg(found)


def test_what_is_prepared_once_is_found_again(tmp_path, capsys):
    words = ["--prepare-only", "--robots", "puma560", "--functions", "mass_matrix", "--workers", "1", "--dtypes", "float32"]
    for cached in (False, True):
        assert command.main([*words, "--folder", str(tmp_path), "--json", str(tmp_path / "out.json")]) == 0
        (kernel,) = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["kernels"]
        assert kernel["ptx_cached"] is cached
        assert kernel["ptx_bytes"] > 1000
    with np.load(prepare.reference_path(tmp_path, "puma560", "mass_matrix")) as file:
        assert file["float64"].shape == (cases.STATES, kernel["numbers"])


@pytest.fixture
def rehearsal(tmp_path):
    """What measures, with the expectations of one case."""
    case = Case("puma560", "inverse_dynamics", "float32")
    cases.save_robots(tmp_path / "robots", [case.robot])
    prepare.reference(tmp_path, case.robot, case.function)
    return case, measure.Measure(tmp_path, Rehearsal())


@pytest.mark.parametrize("layout", cases.LAYOUTS)
@pytest.mark.parametrize("batch", [100, 12_288])
def test_wrong_numbers_are_seen(rehearsal, layout, batch):
    case, own = rehearsal
    loaded = own.card.kernel(case, own._robot(case.robot))
    out = own.card.empty(batch, loaded.output, case.dtype, layout)
    untouched = own._agreement(case, out, layout, batch)
    assert (untouched["error"], untouched["bits_equal"], untouched["agrees"]) == (np.inf, False, False)
    loaded.call(*own._arguments(case, layout, batch), out=out)
    assert own._agreement(case, out, layout, batch)["bits_equal"]
    out[batch - 1, 3] = np.nextafter(out[batch - 1, 3], np.float32(np.inf))
    last = own._agreement(case, out, layout, batch)
    assert (last["bits_equal"], last["agrees"]) == (False, True)
    out[batch - 1, 3] += np.float32(1e-2)
    assert not own._agreement(case, out, layout, batch)["agrees"]


def test_one_case_that_fails_does_not_end_the_run(tmp_path, monkeypatch, capsys):
    """What takes too long to compile, and what the process with the card says no to."""
    shown = []
    options = Options(tmp_path, ["puma560"], ["mass_matrix"], ["float32", "float64"], ["row"], [256], 60.0, 2, 0.01, True)
    run = Run(options, tmp_path / "out.json", time.monotonic(), shown.append)
    assert command.figures(run) == 0
    found = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert [e["error"] for e in found["errors"][:2]] == ["took longer than 0 s"] * 2
    assert found["rows"] == []
    assert any("not measured" in line for line in shown)


SERVER = """
import json, os, sys, time
for line in sys.stdin:
    word = json.loads(line)["do"]
    print("a library says something", flush=True)
    print(json.dumps({"row": {"word": word}}), flush=True)
    if word == "hang":
        time.sleep(60)
    if word == "crash":
        os._exit(7)
    print(json.dumps({"done": {"error": "lost", "code": 700} if word == "lost" else {"pid": os.getpid()}}), flush=True)
"""


def test_the_process_with_the_card_is_started_again(tmp_path):
    own = children.Measurer(tmp_path)
    own.command = [sys.executable, "-c", SERVER]
    rows = []
    try:
        first = own.ask({"do": "one"}, 30.0)["pid"]
        assert own.ask({"do": "two"}, 30.0)["pid"] == first != os.getpid()
        assert "ended with 7" in own.ask({"do": "crash"}, 30.0, rows.append)["error"]
        assert own.ask({"do": "three"}, 30.0)["pid"] != first
        begin = time.monotonic()
        assert own.ask({"do": "hang"}, 1.0, rows.append) == {"error": "no answer within 1 s"}
        assert own.ask({"do": "hang"}, 30.0, rows.append, total=2.0)["error"].startswith("no answer within")
        assert time.monotonic() - begin < 15.0
        assert own.ask({"do": "lost"}, 30.0)["error"] == "lost"
        assert "pid" in own.ask({"do": "four"}, 30.0)
    finally:
        own.close()
    assert own.starts == 5
    assert rows == [{"word": x} for x in ("crash", "hang", "hang")], "rows before the end are kept"


# ---- roofline and targets


def test_the_roofline_is_the_higher_of_two_bounds():
    moved = roofline.of(MACHINE, "float32", 28, 400, 3.5e-11)
    assert moved["bytes"] == 112
    assert moved["copy_share"] == pytest.approx(0.8)  # 112 bytes at 4e12 a second are 2.8e-11 s
    assert (moved["bound"], moved["share"]) == ("memory", pytest.approx(0.8))
    computed = roofline.of(MACHINE, "float64", 28, 4000, 5e-10)
    assert (computed["bound"], computed["share"]) == ("arithmetic", pytest.approx(4000 / 1.5e13 / 5e-10))
    assert computed["roofline_states_per_second"] == pytest.approx(1.5e13 / 4000)


def test_targets_are_met_missed_or_not_measured():
    what = "panda7 inverse_dynamics, 1e9/s"
    assert verdict(data(), what).met is None
    assert verdict(data(row(rate=28e9)), what).met is True
    assert verdict(data(row(rate=27.9e9)), what).met is False
    assert verdict(data(row(rate=90e9, layout="column")), what).met is None, "rows are aimed at"
    assert verdict(data(row(rate=90e9, batch=4096)), what).met is None, "large batches are aimed at"
    wrong = verdict(data(row(rate=90e9, agrees=False)), what)
    assert (wrong.met, wrong.found) == (False, "90.00, wrong results")
    failed = {k: x for k, x in row(error="driver").items() if k != "seconds"}
    assert verdict(data(failed), what).met is None


def test_small_batches_and_calls():
    what = "talos-fixed forward_dynamics, batch 256, ns"
    own = {"robot": "talos-fixed", "function": "forward_dynamics", "batch": 256}
    assert verdict(data(row(**own, rate=1e9 / 87.0)), what).met is True
    assert verdict(data(row(**own, rate=1e9 / 89.0)), what).met is False
    call = {"arrays": "torch", "out": False, "seconds": 11e-6}
    assert verdict(data(calls=[call]), "one call from Python, torch, µs").met is True
    assert verdict(data(calls=[call | {"seconds": 13e-6}]), "one call from Python, torch, µs").met is False
    assert verdict(data(calls=[{"arrays": "torch", "error": "none"}]), "one call from Python, torch, µs").met is None


def test_double_precision_has_half_the_rate_and_the_bits():
    single, double = row(rate=30e9), row(dtype="float64", rate=15e9)
    share, bits = "panda7 inverse_dynamics, float64 over float32", "panda7 inverse_dynamics, float64: bits of the CPU"
    assert verdict(data(single, double), share).met is True
    assert verdict(data(single, row(dtype="float64", rate=14e9)), share).met is False
    slow = [row(rate=1e9), row(dtype="float64", rate=0.1e9)]
    assert not [v for v in targets.verdicts(data(*slow)) if v.what == share], "not bound by memory"
    assert verdict(data(single, double), bits).met is True
    assert verdict(data(double, row(dtype="float64", layout="column", bits_equal=False)), bits).found == "1 of 2 rows"


def test_targets_of_rollouts_wait_for_rows():
    found = data() | {"rollouts": [{"robot": "panda7", "integrator": "rk4", "steps_per_second": 5.5e9, "seconds": 1.0}]}
    assert verdict(data(), "panda7 rk4 steps, 1e9/s").met is None
    assert verdict(found, "panda7 rk4 steps, 1e9/s").met is True


def test_the_tables_of_a_run():
    found = data(row(), row(robot="puma560"))
    text = report.targets(found)
    assert "Targets: 1 pass, 0 FAIL" in text
    assert "| panda7 inverse_dynamics, 1e9/s | ≥ 28 | 30.00 | pass |" in text
    assert found["targets"][0]["met"] is True
    assert "are of an H200" not in text
    assert "this is NVIDIA L4" in report.targets(found | {"machine": MACHINE | {"card": "NVIDIA L4"}})
    table = report.table(found)
    assert "| panda7 | inverse dynamics | 1,048,576 | 30.0000 | 35.714 | 0.5100 (59×) | – |" in table
    assert "| puma560 | inverse dynamics | 1,048,576 | 30.0000 | 35.714 | – | – |" in table


def test_the_figures_of_grid_are_those_of_the_targets():
    """But for Panda's forward dynamics, of which the target is the slower way."""
    known = targets.grid_figures()
    assert len({robot for robot, _, _ in known}) == 3
    for robot, own in targets.SMALL.items():
        for function, most in own.items():
            assert 0.94 * most < known[robot, function, 256] <= 1.005 * most, (robot, function)


# ---- the search


def test_the_first_round_is_the_likeliest_first():
    assert [x["groups"] for x in tune.first_round(250)] == [1]
    small = tune.first_round(2221)
    assert {x["function_max_ops"] for x in small} == {8000}, "one function is enough"
    assert small[0] | {"strided": True} == tune.default({"strided": True})
    large = tune.first_round(17_500)
    assert (large[0]["groups"], large[0]["function_max_ops"]) == (4, 8000)
    assert {x["groups"] for x in large} == set(tune.GROUPS)
    assert {x["function_max_ops"] for x in large} == set(tune.FUNCTION_OPS)
    assert len(large) == len({tuple(x.items()) for x in large})


def test_the_search_goes_on_from_the_best():
    kernel = tune.Kernel(Case("panda7", "mass_matrix", "float32"), 2000, 120)
    seconds = {"groups": {1: 3.0, 2: 1.0, 4: 2.0, 6: 4.0}, "max_registers": {0: 0.0, 128: -0.5}, "threads": {64: -0.1}}
    tried = []
    while (options := kernel.take()) is not None:
        tried.append(options)
        wrong = options["groups"] == 6
        cost = 10.0 + sum(own.get(options[k], 0.0) for k, own in seconds.items())
        kernel.open -= 1
        small = {"batch": 256, "seconds": 1.0, "agrees": True}
        rows = [small, {"batch": 10, "seconds": 0.0 if wrong else cost, "agrees": not wrong}]
        kernel.found.append({"options": options, "rows": rows})
    best = kernel.best["options"]
    assert (best["groups"], best["max_registers"], best["threads"]) == (2, 128, 64), "wrong results are not the best"
    assert kernel.is_done
    assert len(tried) == len({tuple(x.items()) for x in tried})
    assert tried[-1]["tile_buffers"] in tune.TILES


def test_a_round_waits_for_all_of_the_one_before():
    kernel = tune.Kernel(Case("panda7", "mass_matrix", "float32"), 250, 28)
    assert kernel.take() == tune.default()
    assert kernel.take() is None
    assert not kernel.is_done
    kernel.open -= 1
    assert kernel.take() is None, "nothing right was found"
    assert kernel.is_done


def test_a_layout_is_compiled_to_a_file(tmp_path):
    case, options = Case("quadruped", "forward_dynamics", "float32"), tune.default({"groups": 2, "max_registers": 96})
    cases.save_robots(tmp_path / "robots", [case.robot])
    found = prepare.variant(tmp_path, case, options, on_card=False)
    made = json.loads(prepare.variant_path(tmp_path, case, options).read_text(encoding="utf-8"))
    assert made["grid"]["groups"] == 2
    assert ".maxnreg 96" in made["ptx"]
    assert found["instructions"] > 500
    assert prepare.done(tmp_path, {"do": "trace", "case": case})["instructions"] == found["instructions"]


def test_the_table_of_a_search():
    facts = {"rows": [{"registers": 96, "local_bytes": 8, "occupancy": 0.5}], "threads": 128, "groups": 2}
    base = {"robot": "panda7", "function": "mass_matrix", "dtype": "float32", "instructions": 2000, "compile_seconds": 1.0}

    def variant(rate, small, **options):
        rows = [row(batch=256, rate=small), row(rate=rate)]
        return base | {"options": tune.default(options), "rows": rows, "facts": facts, "assemble_seconds": 0.5}

    wrong = variant(99e9, 99e9, groups=8)
    wrong["rows"][1]["agrees"] = False
    found = {"variants": [variant(20e9, 9e6, groups=2), variant(30e9, 8e6), wrong, base | {"error": "no"}]}
    lines = tune.table(found).splitlines()
    assert lines[1] == "panda7 M packed float32: 2,000 operations"
    assert lines[5] == "| defaults | 30.0000 | 125.0 | 96 | 8 | 0.50 | 1.5 | fastest |"
    assert lines[6] == "| groups=2 | 20.0000 | 111.1 | 96 | 8 | 0.50 | 1.5 | fastest of a small batch |"
    assert len(lines) == 7
    assert "WRONG RESULTS" in tune.variant_line(wrong)


# ---- the chart


def test_the_chart_is_drawn_from_figures(tmp_path):
    rows = [row(batch=b, rate=r) for b, r in ((256, 1e7), (65_536, 2e10), (1 << 20, 3e10))]
    rows += [row(robot="g1-floating", function="forward_dynamics", rate=2e9), row(dtype="float64"), row(agrees=False)]
    file, out = tmp_path / "gpu.json", tmp_path / "gpu.svg"
    file.write_text(json.dumps(data(*rows)), encoding="utf-8")
    chart.main([str(file), "-o", str(out)])
    drawn = out.read_text(encoding="utf-8")
    ElementTree.fromstring(drawn)  # well-formed
    assert "NVIDIA H200, float32, 2026-11-20" in drawn
    assert "Panda, 7" in drawn
    assert "G1, floating, 35" in drawn
    assert "Talos" not in drawn
    assert "2²⁰" in drawn
    curve = f'stroke="{chart.COLOURS["inverse_dynamics"]}" stroke-width="2"'
    assert drawn.count(curve) == 1
    (line,) = [x for x in drawn.splitlines() if curve in x]
    heights = [float(point.split()[1]) for point in line.split('d="M')[1].split('"')[0].split("L")]
    assert heights == sorted(heights, reverse=True), "faster is higher"
    assert len(heights) == 3, "float64 and wrong results are left out"


def test_nothing_is_drawn_without_figures(tmp_path, monkeypatch):
    monkeypatch.setattr(chart, "RECORDED", tmp_path)
    with pytest.raises(SystemExit, match="there are no figures"):
        chart.main(["-o", str(tmp_path / "gpu.svg")])
    assert not (tmp_path / "gpu.svg").exists()


def test_the_picture_in_the_docs_is_drawn_from_the_recorded_figures(tmp_path):
    picture = chart.RECORDED.parents[2] / "docs" / "pictures" / "gpu.svg"
    assert picture.exists() == (chart.recorded() is not None)
    if picture.exists():
        chart.main(["-o", str(tmp_path / "gpu.svg")])
        assert (tmp_path / "gpu.svg").read_text(encoding="utf-8") == picture.read_text(encoding="utf-8")
