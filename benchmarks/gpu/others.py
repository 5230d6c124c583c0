"""Arrays of other packages, and the JAX library frax on its own Panda and G1, where they are installed."""

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # others need memory as well


def arrays_of_frameworks(card: Any) -> dict[str, Callable[[np.ndarray], Any]]:
    """What makes an array of a framework on the card from one of NumPy; imports when it is called."""

    def torch(x: np.ndarray) -> Any:
        import torch

        return torch.from_numpy(x).cuda()

    def cupy(x: np.ndarray) -> Any:
        import cupy

        return cupy.asarray(x)

    def jax(x: np.ndarray) -> Any:
        import jax

        if jax.default_backend() == "cpu":
            raise RuntimeError("this JAX is for the CPU")
        return jax.device_put(x)

    return {"qddot": lambda x: card.repeated(x, len(x), "row"), "torch": torch, "cupy": cupy, "jax": jax}


FRAX_ROBOTS = {"panda7": ("frax.robots.franka_panda", "load_panda"), "g1-floating": ("frax.robots.unitree_g1", "load_g1")}
FRAX_GRADIENT = "forward_dynamics_gradient"
FRAX_FUNCTIONS = ("inverse_dynamics", "forward_dynamics", "mass_matrix", FRAX_GRADIENT)


def frax_rows(robot: str, function: str, batches: list[int], send: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """States a second of frax by jit(vmap(…)) in float32."""
    import importlib.metadata

    import jax

    if jax.default_backend() == "cpu":
        raise RuntimeError("this JAX is for the CPU")
    compiled, given_of = frax_function(robot, function)
    for batch in batches:
        try:
            given = [jax.device_put(x) for x in given_of(batch)]
            jax.block_until_ready(compiled(*given))
            seconds = min(_seconds(compiled, given) for _ in range(5))
            send({"batch": batch, "seconds": seconds, "states_per_second": batch / seconds})
        except Exception as error:  # of memory, perhaps
            send({"batch": batch, "error": f"{type(error).__name__}: {error}"})
    return {"version": importlib.metadata.version("frax")}


def frax_function(robot: str, function: str) -> tuple[Callable[..., Any], Callable[[int], list[np.ndarray]]]:
    """The compiled function of a batch, and what gives its arguments.

    G1 has a base with a quaternion from frax 0.1 on, so one coordinate more than velocities; six joints before. The
    gradient is that of the sum of all accelerations, with respect to q, v and the torques, in reverse mode.
    """
    import importlib

    import jax
    import jax.numpy as jnp

    module, loader = FRAX_ROBOTS[robot]
    own = getattr(importlib.import_module(module), loader)()
    nv = own.nv if hasattr(own, "nv") else own.num_joints
    nq = getattr(own, "nq", nv)
    gravity = jnp.array([0.0, 0.0, 9.81, 0.0, 0.0, 0.0])
    made = {
        "inverse_dynamics": lambda q, v, x: own.rnea(q, v, x, gravity, None),
        "forward_dynamics": lambda q, v, x: own.forward_dynamics(q, v, x, None),
        "mass_matrix": lambda q: own.mass_matrix(q),
        FRAX_GRADIENT: jax.grad(lambda q, v, x: own.forward_dynamics(q, v, x, None).sum(), argnums=(0, 1, 2)),
    }[function]
    rng = np.random.default_rng(0)

    def given(batch: int) -> list[np.ndarray]:
        q = rng.uniform(-1, 1, (batch, nq)).astype(np.float32)
        if nq > nv:
            q[:, 3:7] /= np.linalg.norm(q[:, 3:7], axis=1, keepdims=True)
        others = [rng.uniform(-1, 1, (batch, nv)).astype(np.float32) for _ in range(2)]
        return [q] if function == "mass_matrix" else [q, *others]

    return jax.jit(jax.vmap(made)), given


def _seconds(compiled: Callable[..., Any], given: list[Any], calls: int = 10) -> float:
    import jax

    begin = time.perf_counter()
    for _ in range(calls):
        found = compiled(*given)
    jax.block_until_ready(found)
    return (time.perf_counter() - begin) / calls
