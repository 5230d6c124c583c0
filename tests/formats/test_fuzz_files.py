"""A few hundred mutated files of each format; `python -m tests.fuzz_files` makes as many as one likes."""

import pytest

from tests.fuzz_files import FORMATS, run, seeds, try_file
from tests.support.peers import peer


@pytest.mark.parametrize("kind", FORMATS)
def test_mutated_files_are_read_or_refused(kind, tmp_path):
    if kind == "mjcf":
        peer("mujoco")
    outcomes, failures = run(kind, 200)
    assert not failures, failures[0]
    assert outcomes["read"] > 20  # neither is everything refused,
    assert outcomes["FileError"] > 20  # nor everything read


@pytest.mark.filterwarnings("ignore::qddot.QddotWarning")
@pytest.mark.parametrize("kind", FORMATS)
def test_files_are_good_before_they_are_mutated(kind, tmp_path):
    for ending, data in seeds(kind, tmp_path):
        (tmp_path / f"robot{ending}").write_bytes(data)
        assert try_file(tmp_path / f"robot{ending}") == "read"
