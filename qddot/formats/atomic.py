"""Files written in one step: a reader, or a crash, sees the old file or the new one, never a part."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from qddot.errors import FileError, message


@contextmanager
def replacing(path: Path, ending: str = ".tmp") -> Iterator[Path]:
    """A new name in the same folder to write to. What stands there takes the place of `path` at the end of the block.

    After an error the old file is left as it was and the new one is removed.
    """
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}{ending}")
    try:
        yield unfinished
        os.replace(unfinished, path)
    except BaseException:
        with suppress(OSError):  # nor can it be removed where nothing can be written
            unfinished.unlink()
        raise


def write_bytes(path: Path, data: bytes) -> None:
    """Writes a robot's file in one step, or raises a FileError."""
    try:
        with replacing(path) as unfinished:
            unfinished.write_bytes(data)
    except (OSError, ValueError) as error:  # of a zero byte in its name
        problem = f"it cannot be written: {getattr(error, 'strerror', None) or error}"
        raise FileError(message(str(path), "file", problem, "check the folder and its permissions")) from None
