"""The languages that functions are exported in, by name. A new one is a printer and a row."""

from __future__ import annotations

from qddot.compiler.codegen.c99 import C99
from qddot.compiler.codegen.printer import Language
from qddot.errors import InputError

LANGUAGES: dict[str, Language] = {"c99": C99}


def language(name: str) -> Language:
    """The language of a name."""
    if name not in LANGUAGES:
        raise InputError(f"language {name!r} is not known; take one of {', '.join(LANGUAGES)}")
    return LANGUAGES[name]
