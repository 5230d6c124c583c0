"""Studies: many simulations, or calls of a function, over a space of robots, states and parameters, on any machines."""

from qddot.study.distributions import Choice, LogUniform, Normal, Uniform
from qddot.study.outcome import Failure
from qddot.study.results import Results
from qddot.study.space import Grid
from qddot.study.study import Study

__all__ = ["Choice", "Failure", "Grid", "LogUniform", "Normal", "Results", "Study", "Uniform"]
