"""Formulations of one function side by side: operations, times, errors."""

from qddot.dynamics.compare import compare

__all__ = ["compare"]
