"""The manifest of a recorded run: read with every field looked at, and compared with what a call would record."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from qddot.errors import SHOWN_CHARS, RecordingError, shown

FORMAT, VERSION = "qddot recording", 1
NAME = "manifest.json"
_MOST_BYTES = 256_000_000  # a million chunks
_MOST_AXES = 30  # of a batch: NumPy's arrays have 32 (64 since 2.0), and two are those of time and state
_SHA256 = re.compile(r"[0-9a-f]{64}")


def chunk_name(k: int) -> str:
    """The file of chunk k."""
    return f"chunk-{k:06d}.npz"


def read(folder: Path) -> dict[str, Any]:
    """The manifest of a folder; whatever is wrong with it is a RecordingError."""
    path = folder / NAME
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError(f"it is larger than {_MOST_BYTES:,} bytes")
        content = json.loads(path.read_bytes())
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError(f'it does not say "format": "{FORMAT}"')
        version = content.get("version")
        if isinstance(version, int) and version is not True and version != VERSION:
            raise RecordingError(f"{path}: it is of version {version}; this qddot reads version {VERSION}")
        _check(content)
    except RecordingError:
        raise
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from None
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, str(error)) from None
    return content


def _unreadable(path: Path, why: str) -> RecordingError:
    return RecordingError(f"{path}: it cannot be read: {why}; is this the folder of a recorded run?")


def _check(content: dict[str, Any]) -> None:
    for key, (fits, wanted) in _FIELDS.items():
        if key not in content and key not in _OPTIONAL:
            raise ValueError(f"it has no {key!r}")
        if not fits(content.get(key)):
            raise ValueError(f"its {key!r} is {shown(content[key])}, not {wanted}")
    for k, chunk in enumerate(content["chunks"]):
        fields = chunk if isinstance(chunk, dict) else {}
        if fields.get("file") != chunk_name(k):  # no other name: a manifest from elsewhere leads to no other file
            raise ValueError(f"the file of its chunk {k} is {shown(fields.get('file'))}, not {chunk_name(k)!r}")
        if not _is_count(fields.get("rows"), 2**62):
            raise ValueError(f"the rows of its chunk {k} are {shown(fields.get('rows'))}, not a number of zero or more")
        if not (isinstance(fields.get("sha256"), str) and _SHA256.fullmatch(fields["sha256"])):
            raise ValueError(f"the sha256 of its chunk {k} is {shown(fields.get('sha256'))}, not 64 hexadecimal digits")


def _is_count(x: Any, most: int) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and 0 <= x <= most


def _is_texts(x: Any) -> bool:
    return isinstance(x, list) and all(isinstance(y, str) for y in x)


def _is_source(x: Any) -> bool:
    return x is None or (isinstance(x, list) and len(x) == 2 and isinstance(x[0], str) and _is_texts(x[1]))


_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "version": (lambda x: x == VERSION and isinstance(x, int) and not isinstance(x, bool), f"{VERSION}"),
    "robot": (lambda x: x is None or isinstance(x, str), "null or a text"),
    "state0": (lambda x: isinstance(x, str | dict), "an object"),
    "info": (lambda x: isinstance(x, dict), "an object"),
    "batch_axes": (lambda x: _is_count(x, _MOST_AXES), f"a whole number up to {_MOST_AXES}"),
    "chunks": (lambda x: isinstance(x, list), "a list"),
    "arrays": (lambda x: x is None or _is_texts(x), "a list of names"),
    "source": (_is_source, "a path and a list of paths"),
}
_OPTIONAL = ("arrays", "source")


# ---- what differs ----------------------------------------------------------------------------------------------------


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """By name what another run differs in, with values where they are short."""
    unknown = [f"{name} (not noted by the qddot that it was begun with)" for name in new if name not in old]
    return [name + _detail(old[name], new[name]) for name in _other(old, new) if name in old and name in new] + unknown


def _other(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The names of what is not the same, as JSON has it: NaN is NaN."""
    texts = [{k: json.dumps(x, sort_keys=True) for k, x in side.items()} for side in (old, new)]
    return [k for k in {**old, **new} if texts[0].get(k) != texts[1].get(k)]


def _detail(old: Any, new: Any) -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        return f" ({'; '.join(_told(k, old, new) for k in _other(old, new))})"
    return ""


def _told(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    if key not in old or key not in new:
        return f"{key} is {'missing now' if key in old else 'new'}"
    was, now = json.dumps(old[key]), json.dumps(new[key])
    if max(len(was), len(now)) > SHOWN_CHARS or _SHA256.search(was + now):
        return f"another {key}{_detail(old[key], new[key])}"
    return f"{key} was {was} and is {now}"
