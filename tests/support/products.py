"""Products with Jacobians by complex steps of the readable algorithms: first ones, and second ones on dual numbers."""

from typing import Any, NamedTuple

import numpy as np

from qddot.compiler.ir import interpreter
from qddot.dynamics import products, trace
from qddot.dynamics.catalogue import input_shapes, lookup
from qddot.mechanism import configurations, parameters
from qddot.mechanism.model import Model
from qddot.spatial.dual import Dual

STEP = 1e-20


class Point(NamedTuple):
    """A function of a model, and inputs by name at which it is differentiated."""

    model: Model
    function: str
    needs: dict[str, Any]
    free: tuple[str, ...]
    given: dict[str, np.ndarray]
    coordinates: str = "tangent"

    def value(self, given=None) -> np.ndarray:
        """The readable algorithm's result, on numbers of any kind."""
        found, _, algorithm = lookup(self.function, "auto")
        given = self.given if given is None else given
        chosen = parameters.parameters(self.model, self.free)
        model = parameters.substitute(self.model, chosen, [given[x] for x in self.free])
        return np.asarray(algorithm(model, *(given[x].copy() for x in found.inputs), **self.needs))

    def moved(self, tangents) -> dict[str, np.ndarray]:
        """The inputs a small imaginary step along tangents, configurations moved as robots are."""
        made = {x: y.astype(complex) for x, y in self.given.items()}
        for name, dx in tangents.items():
            made[name] = made[name] + 1j * STEP * dx if name != "q" or self.coordinates == "ambient" else made[name]
        if "q" in tangents:
            q = made["q"]
            by_twist = self.coordinates == "tangent"
            made["q"] = np.asarray(
                configurations.integrate(self.model, q, 1j * STEP * tangents["q"])
                if by_twist
                else configurations.normalize(self.model, q)
            )
        return made

    def rates(self, q, tangents) -> dict[str, np.ndarray]:
        """How inputs change along tangents."""
        change = products.ambient_rate if self.coordinates == "tangent" else products.on_sphere
        return {
            name: np.array(change(self.model, list(q), list(dx))) if name == "q" else dx for name, dx in tangents.items()
        }

    def first(self, tangents) -> np.ndarray:
        """The Jacobian times tangents."""
        return np.asarray(self.value(self.moved(tangents))).imag.astype(float) / STEP

    def second(self, tangents, others) -> np.ndarray:
        """How the Jacobian times tangents changes along others, the tangents being what they are."""
        moved = self.moved(others)
        slopes = self.rates(moved["q"], tangents)
        duals = {x: _dual(y, slopes[x]) if x in slopes else y.astype(object) for x, y in moved.items()}
        result = np.asarray(self.value(duals), dtype=object)
        slope = [x.slope if isinstance(x, Dual) else 0.0 for x in result.reshape(-1)]
        return np.array([np.imag(x) for x in slope], dtype=float).reshape(result.shape) / STEP

    def interpreted(self, sweeps, wrt, *others, method="auto", known_result=False):
        """The program of a product, interpreted."""
        product = products.Product(tuple(sweeps), tuple(wrt), self.coordinates, known_result)
        program = trace.traced(self.model, self.function, method, free=self.free, product=product, **self.needs)
        known = [self.value()] if known_result else []
        flat = np.concatenate([np.ravel(x) for x in (*self.given.values(), *known, *others)])
        return np.array(interpreter.run(program, flat.tolist()))

    def sizes(self, wrt) -> dict[str, tuple[int, ...]]:
        """The shapes of tangents."""
        product = products.Product(("jvp",), tuple(wrt), self.coordinates)
        return {x: product.tangent_shape(self.model, x, self.given[x].shape) for x in wrt}


def _dual(values, slopes):
    out = np.empty(values.shape, dtype=object)
    out.reshape(-1)[:] = [Dual(x, s) for x, s in zip(values.reshape(-1), np.reshape(slopes, -1), strict=True)]
    return out


def at_random(robot, function, needs=None, free=(), rng=0, coordinates="tangent") -> Point:
    """A function at random inputs, parameters as the model has them."""
    rng = np.random.default_rng(rng)
    model, found = robot.model, lookup(function, "auto")[0]
    given = {}
    for name, shape in zip(found.inputs, input_shapes(model, found), strict=True):
        given[name] = robot.random_state(rng)[0] if name == "q" else rng.standard_normal(shape)
    given |= {name: parameters.current(model, name) for name in free}
    return Point(model, function, dict(needs or {}), tuple(free), given, coordinates)
