"""Vector environments: Gymnasium's own vectorisation of single environments as the reference, and properties."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import qddot

gymnasium = pytest.importorskip("gymnasium")
if not hasattr(gymnasium.vector, "AutoresetMode"):
    pytest.skip("Gymnasium is older than 1.1", allow_module_level=True)

from qddot.gym import VectorEnv, traced  # noqa: E402

DT, SUBSTEPS, MOST = 0.01, 3, 7


@pytest.fixture(scope="module")
def robot():
    return qddot.load("double_pendulum")


def reward(q, v, u):
    return -(q[..., 0] ** 2) - 0.1 * v[..., 1] ** 2 - 0.01 * u[..., 0] ** 2


def ended(q, v):
    return np.abs(q[..., 1]) > 0.06


def seen(q, v):
    return np.stack([np.sin(q[..., 0]), np.cos(q[..., 1]), v[..., 0], v[..., 1]], axis=-1)


def start(rng, n):
    x = rng.uniform(-0.05, 0.05, (n, 4))
    return x[:, :2], x[:, 2:]


ACTIONS = {"hinge1": (-3.0, 3.0), "hinge2": (-1.0, 2.0)}


def made(robot, n=5, **options):
    given = {"dt": DT, "substeps": SUBSTEPS, "reward": reward, "terminated": ended, "observation": seen, "reset": start}
    given |= {"actions": dict(zip(robot.joint_names, ACTIONS.values(), strict=True)), "max_episode_steps": MOST}
    return VectorEnv(robot, n, **given | options)


class Single(gymnasium.Env):
    """One environment in plain Python: the same robot by `simulate`, the starts those that a vector environment drew."""

    def __init__(self, robot, starts, single):
        self.robot, self.starts = robot, iter(starts)
        self.action_space, self.observation_space = single.single_action_space, single.single_observation_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.q, self.v = next(self.starts)
        self.age = 0
        return seen(self.q, self.v), {}

    def step(self, u):
        controls = np.broadcast_to(u, (SUBSTEPS, 2))
        options = {"dt": DT, "steps": SUBSTEPS, "integrator": "semi_implicit_euler", "limits": "ignore"}
        run = self.robot.simulate(self.q, self.v, controls, **options)
        self.q, self.v, self.age = run.q[-1], run.v[-1], self.age + 1
        return seen(self.q, self.v), reward(self.q, self.v, u), bool(ended(self.q, self.v)), self.age >= MOST, {}


@pytest.mark.parametrize("compiled", [False, True], ids=["numpy", "traced"])
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_it_does_what_gymnasium_does_with_single_environments(robot, mode, compiled):
    """Observations, rewards, ends and resets, bit for bit, through several episodes of each environment."""
    drawn = [[] for _ in range(5)]

    def noted(rng, n):
        q, v = start(rng, n)
        for k, x, y in zip(np.flatnonzero(resetting), q, v, strict=True):
            drawn[k].append((x, y))
        return q, v

    resetting = np.ones(5, bool)
    functions = {"reward": reward, "terminated": ended, "observation": seen}
    if compiled:
        functions = {name: traced(f) for name, f in functions.items()}
    env = made(robot, autoreset=mode, reset=noted, **functions)
    drawn[:] = [[] for _ in range(5)]
    seen_here = [env.reset(seed=3)]
    env.action_space.seed(4)
    actions = [env.action_space.sample() for _ in range(30)]
    done = np.zeros(5, bool)
    for u in actions:
        resetting[:] = done
        if mode == "same_step":
            resetting[:] = _ends(robot, env, u)
        seen_here.append(env.step(u))
        done = seen_here[-1][2] | seen_here[-1][3]
    reference = gymnasium.vector.SyncVectorEnv(
        [lambda k=k: Single(robot, drawn[k], env) for k in range(5)], autoreset_mode=env.metadata["autoreset_mode"]
    )
    wanted = [reference.reset(), *(reference.step(u) for u in actions)]
    assert sum(np.sum(x[2]) for x in wanted[1:]) > 3
    assert sum(np.sum(x[3]) for x in wanted[1:]) > 3
    exact = np.testing.assert_array_equal if not compiled else almost  # sin, cos and sums of NumPy's have other last bits
    for mine, its in zip(seen_here, wanted, strict=True):
        for x, y in zip(mine[:-1], its[:-1], strict=True):
            exact(x, y)
        assert mine[-1].keys() == its[-1].keys() - {"final_info", "_final_info"}
        if "final_obs" in mine[-1]:
            rows = mine[-1]["_final_obs"]
            np.testing.assert_array_equal(rows, its[-1]["_final_obs"])
            exact(mine[-1]["final_obs"][rows], np.stack(its[-1]["final_obs"][rows]))


def almost(x, y):
    np.testing.assert_allclose(x, y, rtol=1e-13, atol=1e-15)


def _ends(robot, env, u):
    """Which episodes end in the next step."""
    controls = np.broadcast_to(
        np.clip(u, env.single_action_space.low, env.single_action_space.high)[:, None], (5, SUBSTEPS, 2)
    )
    options = {"dt": DT, "steps": SUBSTEPS, "integrator": "semi_implicit_euler", "limits": "ignore"}
    run = robot.simulate(env.q, env.v, controls, **options)
    return ended(run.q[:, -1], run.v[:, -1]) | (env._age + 1 >= MOST)


def test_resets_by_hand(robot):
    env = made(robot, autoreset="disabled", terminated=lambda q, v: np.zeros(len(q)), max_episode_steps=2)
    with pytest.raises(qddot.InputError, match="comes after reset"):
        env.step(np.zeros((5, 2)))
    with pytest.raises(qddot.InputError, match="comes after reset"):
        env.reset(options={"reset_mask": np.ones(5, bool)})
    env.reset(seed=0)
    for _ in range(2):
        *_, truncations, _ = env.step(np.zeros((5, 2)))
    assert truncations.all()
    with pytest.raises(qddot.InputError, match="reset_mask"):
        env.step(np.zeros((5, 2)))
    before = env.q
    mask = np.array([True, False, True, True, False])
    env.reset(options={"reset_mask": mask})
    assert ((env.q != before).any(axis=-1) == mask).all()
    for wrong in (np.zeros(5, bool), np.ones(4, bool), np.ones(5), [1, 0, 1, 0, 1]):
        with pytest.raises(qddot.InputError, match="reset_mask must be"):
            env.reset(options={"reset_mask": wrong})


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 9), mode=st.sampled_from(["next_step", "same_step"]))
def test_properties(seed, n, mode):
    """Of any run: seeds repeat it, spaces contain it, nothing that is returned is changed later or shared."""
    robot = qddot.load("double_pendulum")
    env, again = made(robot, n, autoreset=mode), made(robot, n, autoreset=mode)
    first, second = env.reset(seed=seed), again.reset(seed=seed)
    np.testing.assert_array_equal(first[0], second[0])
    env.action_space.seed(seed % 2**31)
    kept = []
    for _ in range(12):
        u = env.action_space.sample()
        one, other = env.step(u), again.step(u)
        for x, y in zip(one[:4], other[:4], strict=True):
            np.testing.assert_array_equal(x, y)
        observations, rewards, terminations, truncations, _ = one
        assert env.observation_space.contains(observations)
        assert rewards.shape == terminations.shape == truncations.shape == (n,)
        assert (rewards.dtype, terminations.dtype, truncations.dtype) == (np.float64, bool, bool)
        kept.append((one[:4], [x.copy() for x in one[:4]]))
        env.q[...] = np.nan  # copies
    for x, y in (pair for mine, copies in kept for pair in zip(mine, copies, strict=True)):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_types_and_spaces(robot, dtype):
    env = made(robot, dtype=dtype, observation_limits=(-9.0, [1.0, 1.0, 9.0, 9.0]))
    observations, _ = env.reset(seed=0)
    assert observations.dtype == env.single_observation_space.dtype == env.single_action_space.dtype == dtype
    assert env.q.dtype == dtype
    np.testing.assert_array_equal(env.single_action_space.low, np.array([-3.0, -1.0], dtype))
    np.testing.assert_array_equal(env.single_observation_space.high, np.array([1.0, 1.0, 9.0, 9.0], dtype))
    assert env.observation_space.shape == (5, 4)
    mixed = made(robot, observation_dtype=np.float32, observation=lambda q, v: q)
    assert mixed.reset()[0].dtype == np.float32
    assert mixed.q.dtype == np.float64


def test_effort_limits_are_the_actions():
    builder = qddot.Builder("arm").link("a", 1.0, com=(0.1, 0.0, 0.0), inertia=np.eye(3))
    robot = builder.joint("j", "world", "a", qddot.joints.Revolute("z"), effort_limit=4.0).robot()
    env = VectorEnv(robot, 2, dt=1e-3, reward=lambda q, v, u: u[:, 0])
    assert (env.single_action_space.low, env.single_action_space.high) == (-4.0, 4.0)
    with pytest.raises(qddot.InputError, match="has no limit; give actions="):
        VectorEnv(qddot.load("double_pendulum"), 2, dt=1e-3, reward=reward)


def test_a_law_of_control_takes_the_actions(robot):
    """A servo: the action is where the joints are to be; it runs inside of the compiled step."""
    env = made(
        robot,
        control=lambda t, q, v, u: 200.0 * (u - q) - 20.0 * v,
        actions=(np.full(2, -0.5), 0.5),
        terminated=lambda q, v: np.zeros(len(q), bool),
        max_episode_steps=None,
        substeps=10,
    )
    env.reset(seed=1)
    goal = np.tile([0.3, -0.2], (5, 1))
    for _ in range(60):
        env.step(goal)
    assert np.abs(env.v).max() < 1e-2
    assert np.abs(env.q - goal).max() < 0.2  # a servo without integral action gives way to gravity


def test_actions_are_clipped(robot):
    env, other = made(robot), made(robot)
    env.reset(seed=0)
    other.reset(seed=0)
    env.step(np.full((5, 2), 1e9))
    other.step(np.broadcast_to([3.0, 2.0], (5, 2)))
    np.testing.assert_array_equal(env.q, other.q)


def test_masses_of_each_environment(robot):
    name = f"{robot.link_names[1]}.mass"
    env = made(robot, free={name: np.linspace(0.5, 2.0, 5)}, reset=lambda rng, n: (np.full(2, 0.05), np.zeros(2)))
    env.reset()
    env.step(np.ones((5, 2)))
    assert len({x.tobytes() for x in env.v}) == 5
    light = robot.with_parameters({name: 0.5})
    run = light.simulate(np.full(2, 0.05), np.zeros(2), np.ones((3, 2)), dt=DT, steps=3, integrator="semi_implicit_euler")
    np.testing.assert_allclose(env.q[0], run.q[-1], rtol=1e-12)


def test_an_environment_that_diverges_ends_and_spoils_no_other(robot):
    def far(rng, n):
        q, v = np.zeros((n, 2)), np.zeros((n, 2))
        v[0] = 1e200 if n == 5 else 0.0
        return q, v

    calm = {"terminated": lambda q, v: np.zeros(len(q), bool), "max_episode_steps": None, "observation": lambda q, v: v}
    env = made(robot, reward=lambda q, v, u: np.ones(len(q)), reset=far, **calm)
    env.reset()
    with pytest.warns(qddot.QddotWarning, match="1 of 5 environments are not finite") as caught:
        observations, rewards, terminations, _, infos = env.step(np.ones((5, 2)))
    assert caught[0].filename == __file__
    assert terminations.tolist() == infos["diverged"].tolist() == [True, False, False, False, False]
    assert np.isfinite(observations).all()
    assert np.isfinite(rewards[1:]).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        observations, *_, infos = env.step(np.ones((5, 2)))
    assert not infos
    assert np.abs(observations[0]).max() == 0.0  # a new episode


def test_wrappers_of_gymnasium(robot):
    env = gymnasium.wrappers.vector.RecordEpisodeStatistics(made(robot, autoreset="next_step"))
    env = gymnasium.wrappers.vector.NormalizeObservation(gymnasium.wrappers.vector.ClipReward(env, -1.0, 1.0))
    env.reset(seed=0)
    lengths = []
    for _ in range(20):
        *_, infos = env.step(env.action_space.sample())
        if "episode" in infos:
            lengths += infos["episode"]["l"][infos["_episode"]].tolist()
    assert 0 < max(lengths) <= MOST


def test_tensors_as_actions(robot):
    torch = pytest.importorskip("torch")
    env, other = made(robot), made(robot)
    env.reset(seed=0)
    other.reset(seed=0)
    np.testing.assert_array_equal(env.step(torch.ones(5, 2))[0], other.step(np.ones((5, 2)))[0])


@pytest.mark.parametrize("threads", [1, 2])
def test_many_environments_have_the_bits_of_few(robot, threads):
    before = qddot.get_num_threads()
    qddot.set_num_threads(threads)
    try:
        q = np.random.default_rng(0).uniform(-0.05, 0.05, (3000, 2))
        many = made(robot, 3000, reset=lambda rng, n: (q[:n], q[:n]))
        few = made(robot, 7, reset=lambda rng, n: (q[:n], q[:n]))
        many.reset()
        few.reset()
        for _ in range(3):
            many.step(np.ones((3000, 2)))
            few.step(np.ones((7, 2)))
        np.testing.assert_array_equal(many.q[:7], few.q)
    finally:
        qddot.set_num_threads(before)


def test_a_robot_that_is_not_compiled(robot):
    plain, env = made(qddot.Robot(robot.model, compiled=False), 2), made(robot, 2)
    for x in (plain, env):
        x.reset(seed=5)
        x.step(np.ones((2, 2)))
    np.testing.assert_allclose(plain.q, env.q, rtol=1e-12)


def test_a_robot_with_loops():
    robot = qddot.load("fivebar")
    q = robot.close_loops(robot.neutral())[0]
    options = {"actions": dict.fromkeys(robot.actuated_joints, (-1.0, 1.0)), "reward": lambda q, v, u: -v[:, 0]}
    with pytest.raises(qddot.InputError, match="has loops; give reset="):
        VectorEnv(robot, 4, dt=1e-3, **options)
    env = VectorEnv(robot, 4, dt=1e-3, reset=lambda rng, n: (np.tile(q, (n, 1)), np.zeros((n, robot.nv))), **options)
    env.reset()
    for _ in range(5):
        env.step(np.ones(env.action_space.shape))
    assert np.abs(robot.constraint_residual(env.q)).max() < 1e-6
    assert np.abs(env.v).max() > 0.0


WRONG = {
    "dtt": (0.01, TypeError, "did you mean"),
    "substeps": (0, qddot.InputError, "substeps"),
    "max_episode_steps": (0.5, qddot.InputError, "max_episode_steps"),
    "autoreset": ("never", qddot.InputError, "next_step"),
    "actions": ({"hinge1": (1.0, -1.0)}, qddot.QddotError, "hinge1|low < high"),
    "integrator": ("ab4", qddot.InputError, "remembers earlier steps"),
    "reset": (lambda rng, n: (np.zeros((n, 3)), np.zeros((n, 2))), qddot.InputError, "shape"),
    "observation": (lambda q, v: q[0], qddot.InputError, r"observation gives an array of shape \(2,\)"),
    "dt": (-1.0, qddot.InputError, "dt"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(robot, name):
    value, error, text = WRONG[name]
    with pytest.raises(error, match=text):
        made(robot, **{name: value})


def test_wrong_functions_and_actions(robot):
    for options, text in (
        ({"reward": lambda q, v, u: q}, r"reward gives an array of shape \(5, 2\)"),
        ({"terminated": lambda q, v: np.zeros(4)}, "terminated gives an array"),
        ({"reward": lambda q, v, u: np.array(["a"] * 5)}, "reward gives <U1"),
    ):
        env = made(robot, **options)
        env.reset()
        with pytest.raises(qddot.InputError, match=text):
            env.step(np.zeros((5, 2)))
    env = made(robot)
    env.reset()
    for wrong in (np.zeros((4, 2)), np.zeros(2), np.full((5, 2), "a"), np.full((5, 2), np.nan)):
        with pytest.raises(qddot.InputError, match="action"):
            env.step(wrong)
    with pytest.raises(qddot.InputError, match=r"gives an array of shape \(2,\); it must be \(\)"):
        made(robot, reward=traced(lambda q, v, u: q))
    with pytest.raises(qddot.InputError, match=r"robot\.show"):
        env.render()
    with pytest.raises(qddot.InputError, match="one generator"):
        env.reset(seed=[1, 2, 3, 4, 5])


def test_without_gymnasium_the_error_names_the_extra():
    code = """
import sys
sys.modules["gymnasium"] = None
import qddot
assert "qddot.gym" not in sys.modules
print(qddot.gym.traced)
try:
    qddot.gym.VectorEnv
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'qddot[gym]'" in done.stdout, done.stderr
