"""Folders of recorded runs that are damaged or a stranger's: a RecordingError, and no memory for what is not there."""

import hashlib
import io
import json
import random
import shutil
import tracemalloc
import warnings
import zipfile
from collections import Counter

import numpy as np
import pytest

import qddot
from qddot.errors import RecordingError
from qddot.simulation.archive import packed, unpacked
from qddot.simulation.recorded import record_simulation
from qddot.simulation.run_folder import Recording

ODD = [
    None,
    True,
    -1,
    0,
    1,
    2**70,
    1.5,
    float("nan"),
    "",
    "x",
    "../../x",
    "chunk-000000.npz",
    [],
    [1],
    {},
    {"a": 1},
    "0" * 64,
]
# what a folder may be called that is in order, and not that of this run: an InputError
SAID = ("holds another run", "recorded of another robot", "a trajectory needs t, q and v")


def go(folder):
    robot = qddot.load("double_pendulum")
    return record_simulation(robot, folder, [1.0, 0.5], [0.0, 0.0], dt=1e-3, steps=30, chunk=10, progress=False)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    go(folder)
    return folder


def changed(x, rng):
    """A JSON value with something wrong in it."""
    if rng.random() < 0.5:
        return rng.choice(ODD)
    if isinstance(x, dict) and x:
        key, y = rng.choice(list(x)), dict(x)
        y[key] = changed(y[key], rng)
        return y if rng.random() < 0.7 else {k: v for k, v in x.items() if k != key}
    if isinstance(x, list) and x:
        k, y = rng.randrange(len(x)), list(x)
        y[k] = changed(y[k], rng)
        return rng.choice([y, y[:k], [*y, y[k]], y[::-1]])
    return rng.choice(ODD)


def broken_bytes(data, rng):
    out = bytearray(data)
    for _ in range(rng.randrange(1, 8)):
        out[rng.randrange(len(out))] = rng.randrange(256)
    return bytes(out[: rng.randrange(len(out))]) if rng.random() < 0.2 else bytes(out)


def broken_manifest(folder, rng):
    path = folder / "manifest.json"
    content = json.loads(path.read_bytes())
    for _ in range(rng.randrange(1, 4)):
        key = rng.choice(list(content))
        content[key] = changed(content[key], rng)
        if rng.random() < 0.2:
            del content[key]
    data = json.dumps(content).encode()
    path.write_bytes(data if rng.random() < 0.8 else broken_bytes(data, rng))


def other_array(x, rng):
    other = [
        x[..., :1] if x.ndim else x,
        x.astype(rng.choice([np.float32, np.int64, bool, complex])),
        x.reshape(-1),
        np.zeros(rng.choice([(0,), (3,), (2, 2, 2), ()])),
        x[:-1] if x.ndim else x + 1,
    ]
    return np.asarray(rng.choice(other), order="C")


def broken_chunk(folder, rng):
    """Another content whose hash is right."""
    k = rng.randrange(3)
    path = folder / f"chunk-{k:06d}.npz"
    data = path.read_bytes()
    if rng.random() < 0.5:
        arrays = unpacked(data)
        name = rng.choice(list(arrays))
        arrays[name] = other_array(arrays[name], rng)
        if rng.random() < 0.3:
            arrays[name + rng.choice(["", "x"])] = arrays.pop(name)
        data = packed(arrays)
    else:
        data = broken_bytes(data, rng)
    signed(folder, k, data)


def signed(folder, k, data):
    (folder / f"chunk-{k:06d}.npz").write_bytes(data)
    content = json.loads((folder / "manifest.json").read_bytes())
    content["chunks"][k]["sha256"] = hashlib.sha256(data).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(content))


def attack(whole, folder, seed, count):
    rng, seen = random.Random(seed), Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(count):
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(whole, folder)
            (broken_manifest if rng.random() < 0.5 else broken_chunk)(folder, rng)
            for call in (qddot.load_trajectory, go):
                try:
                    call(folder)
                    seen["fine"] += 1
                except RecordingError:
                    seen["refused"] += 1
                except qddot.InputError as error:
                    text = next((x for x in SAID if x in str(error)), str(error))
                    seen["another run" if text in SAID else text] += 1
    return seen


def test_damaged_folders(whole, tmp_path):
    seen = attack(whole, tmp_path / "run", 0, 100)
    assert set(seen) == {"fine", "refused", "another run"}
    assert seen["refused"] > 100


@pytest.mark.slow
def test_many_damaged_folders(whole, tmp_path):
    assert set(attack(whole, tmp_path / "run", 1, 5000)) == {"fine", "refused", "another run"}


@pytest.mark.parametrize(
    "missing", ["format", "version", "robot", "state0", "info", "batch_axes", "chunks", "file", "rows", "sha256"]
)
def test_manifests_without_a_field(whole, tmp_path, missing):
    shutil.copytree(whole, tmp_path / "run")
    path = tmp_path / "run" / "manifest.json"
    content = json.loads(path.read_bytes())
    content.pop(missing, None)
    for chunk in content.get("chunks", ()):
        chunk.pop(missing, None)
    path.write_text(json.dumps(content))
    for call in (qddot.load_trajectory, go):
        with pytest.raises(RecordingError, match=r"manifest\.json: it cannot be read: "):
            call(tmp_path / "run")


def bomb(shape, compressed):
    head, out = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f8", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED) as archive:
        archive.writestr("q.npy", head.getvalue() + bytes(100_000_000 if compressed else 80))
    return out.getvalue()


def overlapping():
    """Many entries that are all one and the same stored array."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("q0.npy", bytes(2_000_000))
        for k in range(1, 200):
            entry = zipfile.ZipInfo(f"q{k}.npy")
            for field in ("header_offset", "file_size", "compress_size", "CRC"):
                setattr(entry, field, getattr(archive.filelist[0], field))
            archive.filelist.append(entry)
    return out.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(lambda: bomb((10_000_000_000,), False), id="a header that promises 80 GB"),
        pytest.param(lambda: bomb((12_500_000,), True), id="100 MB that are compressed to 100 kB"),
        pytest.param(overlapping, id="400 MB of entries that overlap"),
        pytest.param(lambda: bomb((-1, 10**30), False), id="a shape that is none"),
    ],
)
def test_what_is_read_is_no_larger_than_its_file(whole, tmp_path, data):
    shutil.copytree(whole, tmp_path / "run")
    content = data()
    signed(tmp_path / "run", 1, content)
    tracemalloc.start()
    try:
        with pytest.raises(RecordingError, match=r"chunk-000001\.npz: it holds no arrays"):
            Recording(tmp_path / "run").arrays()
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 4 * len(content) + 10_000_000  # the file, copies of it, and what reading a small run takes
