"""Arrays by name in one .npz file: the same arrays give the same bytes, and what is read grows no larger than its file."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
NUMBERS = "fiubc"  # the kinds of NumPy's types that are kept
_MOST_HEADER = 10_000  # characters in front of an array's numbers


def packed(arrays: Mapping[str, Array]) -> bytes:
    """The bytes of an .npz file, not compressed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:  # as np.savez does, but for any names, and without the time of day
        for name, x in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, x, allow_pickle=False)
    return buffer.getvalue()


def unpacked(data: bytes) -> dict[str, Array]:
    """What `packed` has written; anything else is an error, before memory is taken for it."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = archive.infolist()
        if any(e.compress_type != zipfile.ZIP_STORED for e in entries) or sum(e.file_size for e in entries) > len(data):
            raise ValueError("its content is compressed")
        out = {e.filename.removesuffix(".npy"): _array(archive.read(e)) for e in entries}
    if len(out) != len(entries) or any(not e.filename.endswith(".npy") for e in entries):
        raise ValueError("it holds something else than arrays by name")
    return out


def _array(data: bytes) -> Array:
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
    shape, by_columns, dtype = read(file, max_header_size=_MOST_HEADER)
    if dtype.kind not in NUMBERS or prod(shape) * dtype.itemsize != len(data) - file.tell():
        raise ValueError(f"an array of {dtype} and shape {shape} is not what follows")
    numbers = np.frombuffer(data, dtype, offset=file.tell())
    return numbers.reshape(shape, order="F" if by_columns else "C").copy()
