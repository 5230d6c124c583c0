"""The benchmark against peers: who is compared, that a wrong result is caught, and how ratios are formed."""

import json
import os
import subprocess

import numpy as np
import pytest

import qddot
from benchmarks import cases, contest, native, peers, pinocchio_peer, qddot_side
from tests.support.peers import peer
from tests.support.real_robots import URDFS, WHY

peer("pinocchio")
if not URDFS:
    pytest.skip(WHY, allow_module_level=True)

NV = {
    "ur5": 6,
    "panda7": 7,
    "solo12-floating": 18,
    "anymal-floating": 18,
    "g1-fixed": 29,
    "g1-floating": 35,
    "talos-fixed": 32,
    "talos-floating": 38,
    "chain10": 10,
    "chain100": 100,
    "chain300": 300,
    "chain1000": 1000,
}
QDDOT = [qddot_side.ONE_LANE, qddot_side.LANES, qddot_side.THREADS, qddot_side.CALL]


def contestant(rounds=(), results=None, name="x", variant=""):
    return contest.Contestant(name, lambda count: results[:count], lambda: 0.01, 10, variant, list(rounds))


@pytest.mark.parametrize("name", cases.ROBOTS)
def test_both_engines_have_the_same_robot(name):
    case = cases.case(name, states=1)
    assert case.robot.nv == case.pinocchio.nv == NV[name]
    assert case.robot.mass == pytest.approx(sum(I.mass for I in list(case.pinocchio.inertias)[1:]), rel=1e-12)
    # what C++ is given: a line for the whole, then one a joint with parent, type and 28 numbers
    head, *joints = pinocchio_peer.describe(case).splitlines()
    assert head.split()[0] == str(len(joints)) == str(case.robot.model.n_links)
    assert {len(line.split()) for line in joints} == {2 + 28}


def test_a_workspace_of_32_gigabytes_is_not_made():
    """Python's `pin` would fill the memory of most machines; the run without a choice of robots does not come to it."""
    with pytest.raises(native.Unavailable, match="nv³"):
        pinocchio_peer.FromPython(pinocchio_peer.States(cases.case("chain1000", states=1)))
    assert "chain1000" not in peers.arguments([]).robots


@pytest.mark.slow
@pytest.mark.parametrize("robot", ["ur5", "solo12-floating"])
def test_a_whole_run(robot, tmp_path, capsys):
    file, before = tmp_path / "peers.json", os.environ.get("QDDOT_CACHE_DIR")
    peers.main(["--no-cpp", "--robots", robot, "--states", "9", "--rounds", "2", "--turn", "0", "--json", str(file)])
    printed, record = capsys.readouterr().out, json.loads(file.read_text())
    assert os.environ.get("QDDOT_CACHE_DIR") == before
    assert [row["function"] for row in record["rows"]] == list(cases.FUNCTIONS)
    for row in record["rows"]:
        assert f"| {robot} ({NV[robot]}) | {cases.FUNCTIONS[row['function']]} |" in printed
        matrices = row["function"] in ("crba", "minverse", "drnea", "daba")
        packed = [qddot_side.PACKED, qddot_side.PACKED_ONE] if matrices else []
        names = [c["name"] for c in row["contestants"]]
        assert [x for x in names if x.startswith("qddot")] == [*QDDOT[:-1], *packed, QDDOT[-1]]
        assert {x for x in names if not x.startswith("qddot")} == {"Pinocchio from Python"}
        assert row["kernel"]["compile_seconds"] > 0.0
        assert row["ratios"]["one call / pin"]["low"] <= row["ratios"]["one call / pin"]["high"]
        for c in row["contestants"]:
            assert len(c["rounds"]) == 2
            assert min(c["rounds"]) > 0.0
            assert 0.0 <= c["error"] <= cases.TOLERANCE


@pytest.mark.parametrize("wrong", [1.0 + 1e-6, np.nan], ids=["off", "nan"])
def test_a_wrong_result_is_caught(wrong):
    right = np.ones((2, 3))
    assert contest.check(contestant(results=right), right, 1e-9) == 0.0
    with pytest.raises(contest.Disagreement, match="off by"):
        contest.check(contestant(results=np.where(np.eye(2, 3), wrong, right)), right, 1e-9)


def test_a_result_of_another_shape_is_caught():
    with pytest.raises(contest.Disagreement, match=r"\(2, 1\)"):
        contest.check(contestant(results=np.ones((2, 1))), np.ones((2, 3)), 1e-9)


def test_ratios_are_formed_within_a_round():
    # the machine slows down by ten during the run; medians of the columns alone would mislead
    ours, theirs = contestant([1.0, 10.0, 10.0]), contestant([8.0, 8.0, 80.0])
    found = contest.ratio(ours, theirs)
    assert (found.median, found.low, found.high) == (8.0, 0.8, 8.0)
    assert contest.ratio(None, theirs) is None


def test_only_the_fastest_variant_counts():
    slow, fast = contestant([2.0, 2.0], variant="LOCAL"), contestant([1.0, 3.0, 1.0], variant="WORLD")
    other = contestant([0.1], name="y")
    assert contest.fastest([slow, fast, other], "x") is fast
    assert contest.fastest([slow, fast, other], "x", "y") is other
    assert contest.fastest([slow], "z") is None


def test_everybody_has_a_turn_in_every_round_and_the_first_changes():
    turns = []

    def runner(name, seconds):
        return contest.Contestant(name, lambda count: None, lambda: turns.append(name) or seconds, 10)

    runners = [runner("a", 0.25), runner("b", 1.0)]
    contest.race(runners, rounds=2, turn=0.5)
    assert turns == [*"ab", *"aaab", *"baaa"]  # once to see how long a pass takes, then three passes a turn, or a long one
    assert [r.rounds for r in runners] == [[0.025] * 2, [0.1] * 2]


@pytest.mark.parametrize(
    ("function", "limit", "reason"),
    [("inverse_dynamics", 0.0, "took longer than 0 s"), ("inverse_dynamic", 60.0, "inverse_dynamics")],
    ids=["slow", "unknown"],
)
def test_what_cannot_be_compiled_is_left_out_with_its_reason(function, limit, reason):
    with pytest.raises(native.Unavailable, match=reason):
        qddot_side.compile_in_child(qddot.load("pendulum").model, function, {}, limit)


@pytest.mark.parametrize("words", [["--robots", "ur6"], ["--functions", "rnea,abba"], ["--rounds", "0"]])
def test_unknown_words_are_refused(words, capsys):
    with pytest.raises(SystemExit):
        peers.arguments(words)
    assert "ur6" in (text := capsys.readouterr().err) or "abba" in text or "at least 1" in text


def test_rollouts_end_where_steps_by_hand_end():
    """The contestants of `benchmarks.rollouts` that need no compiler, against RK4 written out."""
    from benchmarks import rollouts

    case = cases.case("panda7", rollouts.SAMPLES)
    found = list(rollouts.ours(case))
    h, robot = rollouts.DT, case.robot
    q, v, tau = case.q[:3], case.v[:3], np.zeros((3, 7))
    for _ in range(rollouts.STEPS):
        a1 = robot.forward_dynamics(q, v, tau)
        v2, q2 = v + 0.5 * h * a1, q + 0.5 * h * v
        a2 = robot.forward_dynamics(q2, v2, tau)
        v3, q3 = v + 0.5 * h * a2, q + 0.5 * h * v2
        a3 = robot.forward_dynamics(q3, v3, tau)
        v4, q4 = v + h * a3, q + h * v3
        a4 = robot.forward_dynamics(q4, v4, tau)
        q, v = q + h / 6.0 * (v + 2.0 * (v2 + v3) + v4), v + h / 6.0 * (a1 + 2.0 * (a2 + a3) + a4)
    for c in found:
        assert contest.check(c, np.concatenate([q, v], axis=1), rollouts.TOLERANCE) < rollouts.TOLERANCE


def test_environments_are_compared_with_mujoco():
    """`benchmarks.gym_env` refuses to measure if states differ after a step."""
    peer("mujoco")
    peer("gymnasium")
    from benchmarks import gym_env

    found = gym_env.main(["--envs", "16", "--rounds", "1", "--no-gymnasium", "--threads", "1"])
    assert found.keys() == gym_env.ROBOTS.keys()
    assert all(x.keys() == {"qddot", "mujoco.rollout"} and min(x.values()) > 0.0 for x in found.values())


def test_the_bound_of_a_kernel_is_of_its_own_functions(monkeypatch):
    """Of straight-line functions of the wanted lanes, without calls and jumps; the model is asked once for each."""
    from benchmarks import throughput

    asked = []

    def said(command, **given):
        asked.append(given["input"])
        return subprocess.CompletedProcess(command, 0, "Instructions:      20\nTotal Cycles:      35\n", "")

    monkeypatch.setattr(throughput.subprocess, "run", said)
    functions = "".join(
        f"\n{name}:\n\tvmulpd a, b\n\tcall x\n\tret\n.Lfunc_end" for name in ("chunk4_0", "chunk4_1", "chunk1_0")
    )
    assert throughput.bound(functions, 4, "znver3", "llvm-mca") == (4, 7.0)
    assert asked == ["\tvmulpd a, b"] * 2
