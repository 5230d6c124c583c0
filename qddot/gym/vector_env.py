"""N robots on one machine as one vector environment of Gymnasium.

A step of all environments is one call of a compiled loop; rewards, ends of episodes and observations are functions of
arrays of all environments. There are no processes and no copies of the robot.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, Unpack

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, DTypeLike, NDArray

from qddot.compiler.runtime.array_kinds import on_host
from qddot.dynamics.input_checks import count, real_numbers
from qddot.dynamics.request import dtype_name
from qddot.errors import InputError, QddotWarning, outside, shown, unexpected
from qddot.gym.functions import Compiled, Function, Traced, numbers
from qddot.robot import Robot
from qddot.simulation.arguments import RolloutOptions
from qddot.simulation.held_steps import HeldSteps
from qddot.simulation.limits import Stops
from qddot.simulation.rollout import Rollout
from qddot.simulation.system import Law

Array = NDArray[Any]
_NOISE = 0.05  # m, rad and their rates: of the default start about the neutral configuration


class EnvOptions(TypedDict, total=False):
    """The options of `VectorEnv`; those below the line are of simulations."""

    substeps: int
    terminated: Function | Traced
    observation: Function | Traced
    observation_dtype: DTypeLike
    observation_limits: tuple[ArrayLike, ArrayLike]
    reset: Callable[[np.random.Generator, int], tuple[ArrayLike, ArrayLike]]
    max_episode_steps: int | None
    autoreset: str
    actions: Mapping[str, tuple[float, float]] | tuple[ArrayLike, ArrayLike] | None
    control: Law | None
    # ----
    integrator: str
    forces: Law | Sequence[Law]
    free: Mapping[str, ArrayLike] | None
    constraints: str
    gains: tuple[float, float] | None
    dtype: DTypeLike
    limits: str | Stops | Sequence[str | Stops]


_OF_SIMULATIONS = [name for name in EnvOptions.__annotations__ if name in RolloutOptions.__annotations__]


class VectorEnv(gymnasium.vector.VectorEnv[Array, Array, Array]):
    """`num_envs` environments of one robot, stepped together by compiled code (docs/tutorials/vector_env.md).

    - `dt`, `substeps=1`: an environment's step is `substeps` steps of `dt` with the action held.
    - `reward`: a function of (q, v, action) after the step. `terminated`: of (q, v), whether an episode has ended;
      `max_episode_steps`: after how many steps it is truncated. `observation`: of (q, v), by default both side by side.
      They get arrays of all environments, (num_envs, nq) and so on; a function in `qddot.gym.traced` gets those of
      one, and is compiled.
    - `reset`: a function of a random generator and a number of environments, which gives q and v of so many;
      by default the neutral configuration with a little noise.
    - `actions`: {joint: (low, high)}, joint forces; by default those of the actuated joints within their effort limits.
      With a law of `control`, a function of (t, q, v, action) for joint forces, the limits (low, high) of what it takes; t
      is the time within a step. Actions beyond the limits are clipped.
    - `autoreset`: "next_step", "same_step" or "disabled", as Gymnasium defines them; with the last, `reset` takes
      `options={"reset_mask": …}`.
    - `observation_limits`, `observation_dtype`: of the space of observations; by default infinite, and `dtype`.
    - `integrator="semi_implicit_euler"`, `forces`, `free` (one value an environment), `constraints`, `gains`, `limits` and
      `dtype`: as in `Robot.simulate`.

    An environment whose state is not finite after a step ends there, in the state before it; `infos["diverged"]`
    says which.
    """

    def __init__(
        self, robot: Robot, num_envs: int, *, dt: float, reward: Function | Traced, **options: Unpack[EnvOptions]
    ) -> None:
        for name in options:
            if name not in EnvOptions.__annotations__:
                raise unexpected("VectorEnv", name, ("dt", "reward", *EnvOptions.__annotations__))
        self.robot, self.num_envs = robot, count(num_envs, "num_envs")
        model, self.substeps = robot.model, count(options.get("substeps", 1), "substeps")
        most = options.get("max_episode_steps")
        self.max_episode_steps = np.inf if most is None else count(most, "max_episode_steps")
        mode = options.get("autoreset", "next_step")
        if not isinstance(mode, str) or mode.upper() not in AutoresetMode.__members__:
            raise InputError(f"autoreset={shown(mode)} is not known; take 'next_step', 'same_step' or 'disabled'")
        self._mode = AutoresetMode[mode.upper()]
        self.metadata = {"autoreset_mode": self._mode, "render_modes": [], "render_fps": 1.0 / (dt * self.substeps)}
        law, low, high = _controls(robot, options)
        own: Any = {name: options[name] for name in _OF_SIMULATIONS if name in options}  # type: ignore[literal-required]
        own = {"integrator": "semi_implicit_euler", **own, "inputs": np.zeros((1, len(low)))}
        self._steps = HeldSteps(Rollout(robot, law, dt=dt, **own), self.num_envs, self.substeps)
        self._dtype = self._steps.state.dtype
        self._low, self._high = low.astype(self._dtype), high.astype(self._dtype)
        sizes = [model.nq, model.nv]
        self._reward = _function("reward", reward, [*sizes, len(low)], ())
        ends = options.get("terminated")
        self._terminated = None if ends is None else _function("terminated", ends, sizes, ())
        seen = options.get("observation")
        self._observation = None if seen is None else _function("observation", seen, sizes, None)
        self._start = options.get("reset") or self._near_neutral
        self._near: tuple[Array, Array, Array] | None = None  # the neutral configuration, and limits
        self._age, self._done = np.zeros(self.num_envs, int), np.zeros(self.num_envs, bool)
        self._is_reset = self._has_warned = False
        self._spaces(options)

    def _spaces(self, options: EnvOptions) -> None:
        """Of actions by their limits, of observations by what they look like."""
        self.single_action_space = gymnasium.spaces.Box(self._low, self._high, dtype=self._dtype.type)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._observation_dtype = np.dtype(dtype_name(options.get("observation_dtype", self._dtype)))
        self._steps.put(np.arange(self.num_envs), *self._started(np.random.default_rng(0), self.num_envs))
        shape = self._observed().shape[1:]
        low, high = (
            np.broadcast_to(np.asarray(x, self._observation_dtype), shape)
            for x in options.get("observation_limits", (-np.inf, np.inf))
        )
        self.single_observation_space = gymnasium.spaces.Box(low, high, dtype=self._observation_dtype.type)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)

    def __repr__(self) -> str:
        return f"<VectorEnv of {self.num_envs} {self.robot.name!r}: steps of {self.substeps} × {self._steps.dt:g} s>"

    @property
    def q(self) -> Array:
        """The configurations of all environments, (num_envs, nq)."""
        return self._steps.q.copy()

    @property
    def v(self) -> Array:
        """The velocities of all environments, (num_envs, nv)."""
        return self._steps.v.copy()

    # ---- episodes

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """New episodes in all environments, or in those of `options["reset_mask"]`."""
        if seed is not None and not isinstance(seed, int | np.integer):
            raise InputError(f"seed={shown(seed)} is no whole number; all environments draw from one generator")
        super().reset(seed=seed)
        mask = np.ones(self.num_envs, bool)
        if options is not None and "reset_mask" in options:
            mask = np.asarray(options["reset_mask"])
            if mask.dtype != bool or mask.shape != (self.num_envs,) or not mask.any():
                raise InputError(f"reset_mask must be an array of {self.num_envs} bools, some of them True")
            self._require_reset(mask)
        self._begin(mask)
        self._is_reset = True
        return self._observed(), {}

    def step(self, actions: ArrayLike) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """All environments one step further with these actions, (num_envs, n)."""
        self._require_reset(None)
        again = self._done if self._mode is AutoresetMode.NEXT_STEP else np.zeros(self.num_envs, bool)
        if self._mode is AutoresetMode.DISABLED and self._done.any():
            raise InputError(
                f"the episodes of {np.count_nonzero(self._done)} environments have ended, and autoreset is 'disabled'; "
                f"call reset(options={{'reset_mask': terminations | truncations}}) first"
            )
        u, before = self._checked(actions), self._steps.state.copy()
        self._steps.inputs[...] = u
        self._steps.advance()
        diverged = self._kept_finite(before, ~again)
        self._age += 1
        if again.any():
            self._begin(again)
        q, v = self.q, self.v  # copies: what users' functions write does not get into the states
        rewards = numbers("reward", self._reward(q, v, u), (), self.num_envs).astype(float)
        terminations = diverged.copy()
        if self._terminated is not None:
            terminations |= numbers("terminated", self._terminated(q, v), (), self.num_envs) > 0.5
        truncations = self._age >= self.max_episode_steps
        rewards[again], terminations[again], truncations[again] = 0.0, False, False
        self._done = terminations | truncations
        infos: dict[str, Any] = {"diverged": diverged, "_diverged": diverged.copy()} if diverged.any() else {}
        observations = self._observed()
        if self._mode is AutoresetMode.SAME_STEP and self._done.any():
            infos |= {"final_obs": observations, "_final_obs": self._done.copy()}
            self._begin(self._done)
            observations = self._observed()
        return observations, rewards, terminations, truncations, infos

    def render(self) -> None:
        """There are no pictures here; `robot.show()` has some."""
        raise InputError("environments are not drawn; env.robot.show(env.q[0]) shows one in the browser")

    def _require_reset(self, mask: Array | None) -> None:
        if not self._is_reset:
            what = "step" if mask is None else "a reset of some environments"
            raise InputError(f"{what} comes after reset() of all environments")

    def _begin(self, mask: Array) -> None:
        """New episodes in some environments."""
        rows = np.flatnonzero(mask)
        self._steps.put(rows, *self._started(self.np_random, len(rows)))
        self._age[rows], self._done = 0, self._done & ~mask

    def _started(self, rng: np.random.Generator, n: int) -> tuple[Array, Array]:
        model = self.robot.model
        try:
            q, v = self._start(rng, n)
        except (TypeError, ValueError) as error:
            raise InputError(f"reset(rng, {n}) must give q and v of {n} environments: {error}") from error
        q, v = real_numbers(q, "q of reset"), real_numbers(v, "v of reset")
        for x, size, name in ((q, model.nq, "q"), (v, model.nv, "v")):
            if x.shape not in ((n, size), (size,)) or not np.isfinite(x).all():
                raise InputError(
                    f"reset(rng, {n}) gives {name} of shape {x.shape}; it must be ({n}, {size}), and finite: the starts "
                    f"of so many environments"
                )
        return q, v

    def _near_neutral(self, rng: np.random.Generator, n: int) -> tuple[Array, Array]:
        robot = self.robot
        if robot.model.is_constrained:
            raise InputError(f"robot {robot.name!r} has loops; give reset=, a function that gives starts with closed loops")
        if self._near is None:
            self._near = robot.neutral(), robot.lower, robot.upper
        q, v = rng.uniform(-_NOISE, _NOISE, (2, n, robot.nv))
        return np.clip(robot.integrate(self._near[0], q), *self._near[1:]), v

    def _kept_finite(self, before: Array, counts: Array) -> Array:
        """Which environments have left the numbers; their states are those before the step."""
        state = self._steps.state
        with np.errstate(all="ignore"):
            if np.isfinite(state.sum()):  # nearly always, and much faster to see
                return np.zeros(self.num_envs, bool)
        lost = np.asarray(~np.isfinite(state).all(axis=-1))
        state[lost] = before[lost]
        lost &= counts
        if lost.any() and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"{np.count_nonzero(lost)} of {self.num_envs} environments are not finite after a step: their episodes end "
                f"(infos['diverged']); take a shorter dt with more substeps, or smaller actions",
                QddotWarning,
                stacklevel=outside(),
            )
        return lost

    def _observed(self) -> Array:
        if self._observation is None:
            return self._steps.state.astype(self._observation_dtype)
        found = numbers("observation", self._observation(self.q, self.v), None, self.num_envs)
        return np.array(found, self._observation_dtype)

    def _checked(self, actions: ArrayLike) -> Array:
        """Actions within their limits."""
        array = np.asarray(on_host(actions, "actions"))
        if array.shape != (self.num_envs, len(self._low)) or array.dtype.kind not in "fiub":
            raise InputError(
                f"actions are of shape {array.shape} and type {array.dtype}; they must be real numbers of shape "
                f"({self.num_envs}, {len(self._low)})"
            )
        clipped = np.clip(array.astype(self._dtype, copy=False), self._low, self._high)
        if not np.isfinite(clipped.sum()):
            row = int(np.argmin(np.isfinite(clipped).all(axis=-1)))
            raise InputError(f"the action of environment {row} is {array[row]}; actions must be finite")
        return np.asarray(clipped)


def _function(role: str, f: Function | Traced, sizes: Sequence[int], shape: tuple[int, ...] | None) -> Function:
    if isinstance(f, Traced):
        return Compiled(role, f.function, sizes, shape)
    if not callable(f):
        raise InputError(f"{role}={shown(f)} is no function of ({', '.join(('q', 'v', 'action')[: len(sizes)])})")
    return f


def _controls(robot: Robot, options: EnvOptions) -> tuple[Law, Array, Array]:
    """The law of joint forces by actions, and the limits of these."""
    law, given = options.get("control"), options.get("actions")
    if law is not None:
        if not isinstance(given, tuple) or len(given) != 2:
            raise InputError("control= takes actions=(low, high) too: the limits of what the law is given")
        low, high = np.broadcast_arrays(*(np.atleast_1d(real_numbers(x, "actions")) for x in given))
        return law, *_ordered(low, high, [f"action {k}" for k in range(low.size)])
    if given is None:
        places = robot.model.dof_indices(robot.actuated_joints)
        effort = robot.effort_limit[list(places)]
        low, high = -effort, effort
    elif isinstance(given, Mapping):
        places = tuple(k for name in given for k in robot.model.dof_indices([name]))
        pairs = np.array([pair for name, pair in given.items() for _ in robot.model.dof_indices([name])], float)
        if not places or pairs.shape != (len(places), 2):
            raise InputError("actions= must be {joint: (low, high)}, with one joint at least")
        low, high = pairs.T
    else:
        raise InputError("actions= must be {joint: (low, high)}; limits (low, high) are those of a law, control=")
    names = [f"the force of degree of freedom {k} of v" for k in places]
    if not np.isfinite([low, high]).all():
        k = int(np.argmax(~(np.isfinite(low) & np.isfinite(high))))
        raise InputError(f"{names[k]} has no limit; give actions={{joint: (low, high)}}")
    nv = robot.nv

    def forces(t: Any, q: Array, v: Array, u: Array) -> Array:
        tau = np.zeros(nv, dtype=object)
        for k, place in enumerate(places):
            tau[place] = u[k]
        return tau

    return forces, *_ordered(low, high, names)


def _ordered(low: Array, high: Array, names: Sequence[str]) -> tuple[Array, Array]:
    if low.ndim != 1 or not np.isfinite([low, high]).all() or not np.all(low < high):
        what = ", ".join(names)
        raise InputError(f"the limits of actions are {low} and {high}; they must be finite, low < high, for {what}")
    return low.astype(float), high.astype(float)
