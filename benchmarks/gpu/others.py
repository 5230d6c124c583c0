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
FRAX_FUNCTIONS = ("inverse_dynamics", "forward_dynamics", "mass_matrix")


def frax_rows(robot: str, function: str, batches: list[int], send: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """States a second of frax by jit(vmap(…)) in float32; its G1 has six joints in place of the free one."""
    import importlib

    import jax
    import jax.numpy as jnp

    if jax.default_backend() == "cpu":
        raise RuntimeError("this JAX is for the CPU")
    module, loader = FRAX_ROBOTS[robot]
    own = getattr(importlib.import_module(module), loader)()
    gravity = jnp.array([0.0, 0.0, 9.81, 0.0, 0.0, 0.0])
    made = {
        "inverse_dynamics": lambda q, v, x: own.rnea(q, v, x, gravity, None),
        "forward_dynamics": lambda q, v, x: own.forward_dynamics(q, v, x, None),
        "mass_matrix": lambda q: own.mass_matrix(q),
    }[function]
    compiled = jax.jit(jax.vmap(made))
    rng = np.random.default_rng(0)
    for batch in batches:
        try:
            count = 1 if function == "mass_matrix" else 3
            given = [jax.device_put(rng.uniform(-1, 1, (batch, own.num_joints)).astype(np.float32)) for _ in range(count)]
            compiled(*given).block_until_ready()
            seconds = min(_seconds(compiled, given) for _ in range(5))
            send({"batch": batch, "seconds": seconds, "states_per_second": batch / seconds})
        except Exception as error:  # of memory, perhaps
            send({"batch": batch, "error": f"{type(error).__name__}: {error}"})
    import frax

    return {"version": getattr(frax, "__version__", "")}


def _seconds(compiled: Callable[..., Any], given: list[Any], calls: int = 10) -> float:
    begin = time.perf_counter()
    for _ in range(calls):
        found = compiled(*given)
    found.block_until_ready()
    return (time.perf_counter() - begin) / calls
