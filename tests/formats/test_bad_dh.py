"""DH tables that cannot be: each error names the place, the element, the value and what to do."""

import time

import numpy as np
import pytest

from qddot.errors import FileError, ModelError
from qddot.formats import dh

ROWS = {
    "misspelt key": ({"alhpa": 0}, ["row 1", "'alhpa'", "did you mean 'alpha'"]),
    "misspelt kind": ({"kind": "revolut"}, ["'revolut'", "'revolute'"]),
    "nan": ({"a": float("nan")}, ["link1", "a is nan", "finite"]),
    "infinite": ({"d": float("inf")}, ["d is inf", "finite"]),
    "underscore": ({"a": "1_0"}, ["'1_0'", "decimal"]),
    "hex": ({"a": "0x10"}, ["'0x10'", "decimal"]),
    "bool": ({"mass": True}, ["mass is True", "decimal"]),
    "none": ({"theta": None}, ["theta is None", "90deg"]),
    "angle text": ({"theta": "half"}, ["'half'", "90deg"]),
    "over zero": ({"theta": "pi/0"}, ["'pi/0'", "90deg"]),
    "degrees in metres": ({"a": "90deg"}, ["'90deg'", "decimal"]),
    "infinite limit": ({"upper": "inf"}, ["'inf'", "radians"]),
    "infinite speed": ({"velocity_limit": "inf"}, ["'inf'", "leave a limit out"]),
    "short com": ({"com": [1, 2]}, ["com is [1, 2]", "3 numbers"]),
    "ragged inertia": ({"inertia": [[1, 2], [3]]}, ["inertia", "6 or 9 numbers"]),
    "text inertia": ({"inertia": "sphere"}, ["'sphere'", "6 or 9 numbers"]),
    "skew inertia": ({"mass": 1, "inertia": [[1, 1, 0], [0, 1, 0], [0, 0, 1]]}, ["link1", "symmetric"]),
    "negative mass": ({"mass": -1}, ["row 1", "mass is -1", "zero or more"]),
    "swapped limits": ({"lower": 1, "upper": -1}, ["joint1", "swap"]),
    "negative damping": ({"damping": -1}, ["damping", "zero or more"]),
    "empty name": ({"name": ""}, ["name is ''"]),
    "no mapping": ([0, 0, 0, 0], ["row 1", "list", "mapping"]),
    "huge": ({"a": 10**400}, ["a is 1000", "finite"]),
    "taken name": ({"name": "world"}, ["'world'", "rename"]),
}


@pytest.mark.parametrize("case", ROWS)
def test_bad_rows(case):
    row, expected = ROWS[case]
    with pytest.raises(ModelError) as caught:
        dh.from_rows([row]).model()
    for part in expected:
        assert part in str(caught.value)


def test_no_rows_and_unknown_convention():
    with pytest.raises(ModelError, match="no rows"):
        dh.from_rows([])
    with pytest.raises(ModelError, match="did you mean 'modified'"):
        dh.from_rows([{}], convention="modifed")


def test_two_links_of_one_name():
    with pytest.raises(ModelError, match=r"row 2: link 'a': the name is used twice \(first at row 1\)"):
        dh.from_rows([{"name": "a"}, {"name": "a"}])


HEAD = "alpha,a,theta,d,mass\n"
LINK = "[[link]]\nmass = 1\n"
FILES = {
    "empty.csv": ("", ["no rows", "one row a joint"]),
    "header.csv": (HEAD, ["no rows"]),
    "number.csv": (HEAD + "0,0,0,0,1\n0,1_0,0,0,1\n", [":3:", "a is '1_0'", "decimal"]),
    "nan.csv": (HEAD + "0,nan,0,0,1\n", [":2:", "'nan'"]),
    "inf.csv": (HEAD + "\n\n0,0,0,-inf,1\n", [":4:", "'-inf'"]),
    "hex.csv": (HEAD + "0,0x1,0,0,1\n", [":2:", "'0x1'"]),
    "arabic.csv": (HEAD + "0,١,0,0,1\n", [":2:", "'١'"]),
    "angle.csv": (HEAD + "tau,0,0,0,1\n", [":2:", "'tau'", "pi"]),
    "column.csv": ("alpha,a,theta,d,mas\n0,0,0,0,1\n", [":1:", "'mas'", "did you mean 'mass'"]),
    "twice.csv": ("a,a\n0,0\n", [":1:", "'a' stands twice"]),
    "nodh.csv": ("mass,name\n1,x\n", [":1:", "no DH parameter"]),
    "cells.csv": (HEAD + "0,0,0,0\n", [":2:", "4 cells", "5"]),
    "semicolon.csv": ("alpha;a;theta;d\n0;0;0;0\n", [":1:", "unknown column"]),
    "quote.csv": (HEAD + '0,"0,0,0,1\n', [":2:", "commas"]),
    "mass.csv": (HEAD + "0,0,0,0,-2\n", [":2:", "mass is -2", "zero or more"]),
    "kind.csv": ("a,kind\n0,ball\n", [":2:", "'ball'", "revolute"]),
    "convention.csv": ("# convention: modfied\n" + HEAD, [":1:", "'modfied'", "'modified'"]),
    "gravity.csv": ("# gravity: 0 0\n" + HEAD, [":1:", "gravity", "three numbers"]),
    "binary.csv": (b"\x89PNG\r\n\x1a\n\x00\xff", ["UTF-8"]),
    "nul.csv": (b"a,d\n\x00,1\n", [":2:"]),
    "digits.csv": ("a\n" + "1" * 100_000 + "x\n", [":2:", "decimal"]),
    "spaces.csv": ("theta\n1" + " " * 100_000 + "x\n", [":2:", "radians"]),
    "preamble.csv": ("# name: a" + " " * 900_000 + "b\n" + HEAD, [":1:", "100 characters"]),
    "name.csv": ("a,name\n0," + "n" * 100_000 + "\n", [":2:", "100 characters"]),
    "kinds.csv": ("a,kind\n0," + "n" * 100_000 + "\n", [":2:", "unknown kind"]),
    "columns.csv": ("a" * 100_000 + "\n", [":1:", "unknown column"]),
    "field.csv": ("a\n" + "1" * 900_000 + "\n", [":2:", "field larger"]),
    "big.csv": (b"a\n" + b"0\n" * 1_000_000, ["larger than"]),
    "rows.csv": ("a\n" + "0\n" * 10_001, ["10001 rows", "10000"]),
    "empty.toml": ("", ["no rows"]),
    "syntax.toml": ("[robot]\nname = \n", [":2:", "syntax"]),
    "table.toml": ("[robt]\n" + LINK, [":1:", "'robt'", "'robot'"]),
    "key.toml": (LINK + LINK + "thta = 0\n", [":3:", "'thta'", "'theta'"]),
    "value.toml": (LINK + "\n" + LINK + 'a = "wide"\n', [":4:", "a is 'wide'", "decimal"]),
    "nan.toml": (LINK + "a = nan\n", [":3:", "'nan'", "finite"]),
    "inf.toml": (LINK + "upper = +inf\n", [":3:", "'+inf'"]),
    "under.toml": (LINK + "a = 1_0\n", [":3:", "'1_0'"]),
    "hex.toml": (LINK + "a = 0x10\n", [":3:", "'0x10'"]),
    "type.toml": (LINK + "com = 3\n", [":1:", "com is 3", "3 numbers"]),
    "date.toml": (LINK + "a = 1979-05-27\n", [":1:", "decimal"]),
    "robot.toml": ("robot = 3\n" + LINK, [":1:", "[robot]"]),
    "single.toml": ("[link]\nmass = 1\n", [":1:", "[[link]]"]),
    "unknown.toml": ('[robot]\nnam = "x"\n' + LINK, [":2:", "'nam'", "'name'"]),
    "convention.toml": ('[robot]\nconvention = "dh"\n' + LINK, [":2:", "'dh'", "modified"]),
    "gravity.toml": ("[robot]\ngravity = [0, 0]\n" + LINK, [":2:", "three numbers"]),
    "deep.toml": ("a = " + "[" * 200_000, ["nested"]),
    "dotted.toml": ("a." * 200_000 + "a = 1\n", [":1:", "many dots"]),
    "hidden.toml": ('x = [{"\\"".' + "a." * 200_000 + 'a = 1}] # "\n', [":1:", "many dots"]),
    "lines.toml": ('[robot]\nname = """a\nb"""\n' + LINK, [":2:", "one line"]),
    "long.toml": (LINK + "a = " + "9" * 10_000 + "\n", ["too long"]),
    "quotes.toml": ("a = " + '\\"' * 400_000, [":1:"]),
    "word.toml": ("a" * 900_000 + "\n", [":1:"]),
    "binary.toml": (b"\x00\x01\xfe", ["UTF-8"]),
}


@pytest.mark.parametrize("name", FILES)
def test_bad_files(tmp_path, name):
    content, expected = FILES[name]
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    start = time.perf_counter()
    with pytest.raises(FileError) as caught:
        dh.read(file)
    assert time.perf_counter() - start < 2.0  # no input may hang the reader
    text = str(caught.value)
    assert name in text
    assert len(text) < 1000
    for part in expected:
        assert part in text


@pytest.mark.parametrize("path", ["missing.csv", "", "table.txt"])
def test_no_such_table(tmp_path, path):
    with pytest.raises(FileError, match=r"(?i)no such file|suffix"):
        dh.read(tmp_path / path)


def test_numbers_of_numpy_pass():
    assert dh.from_rows([{"a": np.float64(1.0), "mass": np.int64(2)}]).model().inertia[1].m == 2.0
