"""The functions of a task: some rows of a frame's twist. A part of the catalogue.

They divide by a matrix of these rows and are NaN where it is singular, so that what is true of all other functions in all
states is not true of them.
"""

from __future__ import annotations

from qddot.algorithms import operational_space as of
from qddot.dynamics.adapters import of_task
from qddot.dynamics.function import Function
from qddot.mechanism.array_axes import Axes
from qddot.mechanism.simplify import regrouped

_NEEDS = ("frame", "rows")
_FACTORED = ("composite_body_factored",)

TASK_FUNCTIONS: dict[str, Function] = {
    "operational_space_inertia": Function(
        ("q",),
        Axes(6, 6),
        {
            "force_propagation": of_task(of.inertia_by_propagation),
            "articulated_body": of_task(of.inertia, of.task_by_inverse),
            "composite_body_factored": of_task(of.inertia, of.task_by_factors),
        },
        _NEEDS,
        ("composite_body_factored", "force_propagation"),
        regrouped,
        of_rows=(0, 1),
    ),
    "operational_space_bias_force": Function(
        ("q", "v"),
        Axes(6),
        {"articulated_body": of_task(of.bias), "composite_body_factored": of_task(of.bias_by_factors)},
        _NEEDS,
        _FACTORED,
        regrouped,
        of_rows=(0,),
    ),
    "dynamically_consistent_inverse": Function(
        ("q",),
        Axes("v", 6),
        {
            "articulated_body": of_task(of.consistent_inverse, of.task_by_inverse),
            "composite_body_factored": of_task(of.consistent_inverse, of.task_by_factors),
        },
        _NEEDS,
        _FACTORED,
        regrouped,
        of_rows=(1,),
    ),
    "null_space_projector": Function(
        ("q",),
        Axes("v", "v"),
        {
            "articulated_body": of_task(of.null_space_projector, of.task_by_inverse),
            "composite_body_factored": of_task(of.null_space_projector, of.task_by_factors),
        },
        _NEEDS,
        _FACTORED,
        regrouped,
    ),
}
