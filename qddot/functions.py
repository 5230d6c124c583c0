"""The functions of a robot and their formulations, by name."""

from qddot.dynamics.catalogue import FUNCTIONS, lookup

__all__ = ["FUNCTIONS", "lookup"]
