"""The README's chart and tables are what `python -m benchmarks.chart` makes of the recorded figures."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

import benchmarks
from benchmarks import chart

ROOT = Path(benchmarks.__file__).parents[1]
FILES = sorted(chart.RECORDED.glob("*.json"))


def test_the_picture_is_drawn_from_the_recorded_figures(tmp_path):
    chart.main(["-o", str(tmp_path / "chart.svg")])
    drawn = (tmp_path / "chart.svg").read_text(encoding="utf-8")
    assert drawn == (ROOT / "docs/pictures/performance.svg").read_text(encoding="utf-8")
    ElementTree.fromstring(drawn)  # well-formed


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_the_tables_of_the_readme_are_the_recorded_figures(path):
    assert chart.table(chart.read(path)) in (ROOT / "README.md").read_text(encoding="utf-8")


def test_a_run_without_peers_is_refused(tmp_path):
    row = {"robot": "ur5", "function": "rnea", "nv": 6, "ratios": {"lanes / C++": None, "one call / pin": {"median": 6.0}}}
    file = tmp_path / "peers.json"
    file.write_text(json.dumps({"machine": {"cpu": "any", "simd": "avx2"}, "states": 9, "rows": [row]}))
    with pytest.raises(SystemExit, match="--no-cpp"):
        chart.read(file)
