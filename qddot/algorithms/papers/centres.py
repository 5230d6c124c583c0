"""Centres of mass, for formulations that are written at them: Saha 1999, and the derivation of Lin 1991."""

from __future__ import annotations

from qddot.errors import FormulationError
from qddot.mechanism.model import Model
from qddot.scalars import Scalar
from qddot.spatial import Inertia, about_centre
from qddot.spatial.rotation import Vec


def centre(model: Model, i: int, G: Inertia) -> tuple[Vec, Inertia]:
    """The centre of mass of link i, whose inertia is G, and its inertia about it; of a link without mass, its origin.

    A first moment without mass is what regrouping leaves of a link, and has no such point.
    """
    if _is_zero(G.m) and not all(map(_is_zero, G.h)):
        raise FormulationError(
            f"link {model.link_names[i]!r} of robot {model.name!r} has a first moment and no mass, so it has no centre of "
            "mass; take the model as it was before it was regrouped"
        )
    c, (m, _, I) = about_centre(G)
    return c, Inertia(m, (0.0, 0.0, 0.0), I)


def _is_zero(x: Scalar) -> bool:
    return isinstance(x, float) and x == 0.0
