"""Files from strangers: what can go wrong before a reader sees the first byte."""

from __future__ import annotations

import gzip
import io
import os
import stat
import zlib

from qddot.errors import FileError, ModelError, message


def read_bytes(file: str, limit: int) -> bytes:
    """The content of a regular file of at most so many bytes, which a file that ends in .gz has before and after."""

    def refuse(problem: str, fix: str) -> FileError:
        return FileError(message(repr(file) if "\0" in file else file, "file", problem, fix))

    try:
        mode = os.stat(file).st_mode
        if stat.S_ISDIR(mode):
            raise refuse("it is a folder", "give the file in it")
        if not stat.S_ISREG(mode):  # a pipe may never answer, and a device never end
            raise refuse("it is no regular file", "write it to a file first")
        with open(file, "rb") as f:
            data = f.read(limit + 1)
    except FileNotFoundError:
        raise refuse("there is no such file", "check the path") from None
    except PermissionError:
        raise refuse("it may not be read", "give yourself permission to read it") from None
    except OSError as e:
        raise refuse(f"it cannot be read: {e.strerror}", "check the path") from None
    except FileError:
        raise
    except ValueError:
        raise refuse("there is no such file: its name has a zero byte", "check the path") from None
    refuse_if_larger(data, limit, file)
    if plain_name(file) == file:
        return data
    try:
        content = gzip.GzipFile(fileobj=io.BytesIO(data)).read(limit + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as e:
        raise refuse(f"it cannot be uncompressed: {e}", "compress it again with gzip, or leave out the .gz") from None
    refuse_if_larger(content, limit, file)
    return content


def plain_name(file: str) -> str:
    """A file's name without the .gz of one that is compressed."""
    return file[:-3] if file.lower().endswith(".gz") else file


def of_file(error: ModelError, file: str) -> FileError:
    """The same error as one of a file, whose name it has: what is wrong with a mechanism is wrong with its file."""
    text = str(error)
    return FileError(text if file in text else f"{file}: {text}")


def refuse_if_larger(data: bytes, limit: int, file: str) -> None:
    if len(data) > limit:
        size = f"{limit // 2**20} MB" if limit >= 2**20 else f"{limit:,} bytes"
        fix = "give a model without embedded data"
        raise FileError(message(file, "file", f"it is larger than {size}", fix))
