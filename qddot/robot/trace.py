"""`robot.trace`: an algorithm run once, with everything that it computes kept by symbol and link."""

from __future__ import annotations

from typing import Any

import numpy as np

from qddot.dynamics import request
from qddot.dynamics.catalogue import lookup
from qddot.dynamics.named_forces import link_forces
from qddot.dynamics.reporting_model import reporting
from qddot.errors import InputError, one_name, unknown
from qddot.robot.algorithm_trace import Trace, finished
from qddot.robot.base import RobotBase

TRACED = ("inverse_dynamics", "forward_dynamics", "mass_matrix")


class TraceMethods(RobotBase):
    """A part of `Robot`: algorithms step by step."""

    def trace(self, function: str, *inputs: Any, method: str = "auto", expressed_in: str = "frame") -> Trace:
        """Runs an algorithm at one state and keeps every intermediate by its paper's symbol and by link.

        `function` is "inverse_dynamics" (with q, v, a, and f_ext if there is one), "forward_dynamics" (q, v, tau, f_ext) or
        "mass_matrix" (q). It is the readable algorithm itself that runs: the recursive Newton-Euler, articulated body or
        composite body algorithm, or the formulation that `method` names. Forces may be named, as for
        `inverse_dynamics`. `trace.V["link3"]` is a value; printing it gives a table, `show()` the viewer (docs/trace.md).
        """
        if one_name(function, "function") not in TRACED:
            raise unknown("trace of", function, TRACED, "a robot")
        if self.model.is_constrained and function != "mass_matrix":
            raise request.ignores_loops(self.model, function)
        inputs = inputs[:3] if len(inputs) == 4 and inputs[3] is None else inputs
        named = f"{function}_with_forces" if function != "mass_matrix" and len(inputs) == 4 else function
        if named != function:
            inputs = (*inputs[:3], link_forces(self.engine, inputs[0], inputs[3], expressed_in))
        found, formulation, algorithm = lookup(named, method)
        arrays = self.engine.checks.all(function, found.inputs, inputs)
        for name, x in zip(found.inputs, arrays, strict=True):
            if x.ndim != (2 if name == "f_ext" else 1):
                raise InputError(f"a trace is of one state, and {name} has shape {x.shape}: give one sample of the batch")
            if x.dtype.kind != "f":
                raise InputError(f"a trace is of real numbers, and {name} holds {x.dtype}")
        model = reporting(self.engine.solvability.guarded)
        given = dict(zip(found.inputs, arrays, strict=True))
        for name in ("v", "a", "tau"):
            for i, _ in model.outward() if name in given else ():
                model.report.write(name, i, model.velocities(given[name])[i])
        if function == "forward_dynamics":
            self.engine.solvability.require_mass()
        try:
            with np.errstate(all="ignore"):
                result = np.asarray(algorithm(model, *arrays))
        except ZeroDivisionError:
            result = np.full(self.nv, np.nan)
        if function == "forward_dynamics" and not np.isfinite(result).all():
            self.engine.solvability.explain_lost(1, function, arrays, result)
        return finished(self, (function, formulation), algorithm, given, model.report, result)
