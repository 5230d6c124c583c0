"""Which test has which marker: by folder and file, here, and by a decorator where a single test is another kind."""

from __future__ import annotations


def of(item):
    return []
