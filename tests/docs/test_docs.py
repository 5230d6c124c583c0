"""The pages that teach run as they are printed."""

import re

import pytest

from tests.support.paths import ROOT
from tests.support.peers import peer

DOCS = ROOT / "docs"
TESTED_ELSEWHERE = ("parameters", "results", "simulation")  # with more to say about what they give
NOT_RUN = ("viewer",)  # opens a browser
NEEDS = {
    "whole_body": "daqp",
    "quadruped": "daqp",
    "from_pinocchio": "pinocchio",
    "from_mujoco": "mujoco",
    "vector_env": "gymnasium",
    "torch": "torch",
    "torch_identification": "torch",
    "jax": "jax",
    "jax_mpc": "jax",
}
PAGES = [
    page
    for page in [*sorted(DOCS.glob("*.md")), *sorted((DOCS / "tutorials").glob("*.md"))]
    if page.stem not in (*TESTED_ELSEWHERE, *NOT_RUN) and "```python" in page.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_page(page, tmp_path, monkeypatch, request):
    needed = peer(NEEDS[page.stem]) if page.stem in NEEDS else None
    if NEEDS.get(page.stem) == "jax":  # pages begin in single precision, as JAX does, and turn x64 on
        request.addfinalizer(lambda before=needed.config.jax_enable_x64: needed.config.update("jax_enable_x64", before))
        needed.config.update("jax_enable_x64", False)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    namespace: dict = {}
    for block in blocks:
        exec(compile(block, page.name, "exec"), namespace)


def test_every_page_is_in_the_table_of_contents():
    index = (DOCS / "index.md").read_text()
    for page in [*DOCS.glob("*.md"), *DOCS.glob("tutorials/*.md")]:
        name = page.relative_to(DOCS).with_suffix("").as_posix()
        assert name == "index" or f"\n{name}\n" in index, name


PROSE = [*DOCS.rglob("*.md"), *ROOT.glob("*.md")]


@pytest.mark.parametrize("page", PROSE, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_tests_that_a_page_names_are_there(page):
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"\btests/[\w/]+\.py", text):
        assert (ROOT / name).is_file(), f"{page.name} names {name}"
    for file, test in re.findall(r"\b(tests/[\w/]+\.py)::(test_\w+)", text):
        assert f"\ndef {test}(" in (ROOT / file).read_text(encoding="utf-8"), f"{page.name} names {file}::{test}"
