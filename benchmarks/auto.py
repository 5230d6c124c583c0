"""Whether `method="auto"` takes what is fastest: `python -m benchmarks.auto`.

For twenty robots of example-robot-data, every formulation of a function that has at most 1.6 times the fewest instructions
is compiled and measured, in a batch on one thread, all in turns; the ratio is that of auto's median to the least one.
"""

import argparse
import statistics
import warnings

import qddot
from benchmarks.cases import FILES
from qddot.dynamics.compare import compare, measured

ROBOTS = {  # file: on a free joint or not
    "ur_description/urdf/ur5_robot.urdf": False,
    "panda_description/urdf/panda.urdf": False,
    "kinova_description/robots/kinova.urdf": False,
    "xarm_description/urdf/xarm7.urdf": False,
    "z1_description/urdf/z1.urdf": False,
    "so_arm_description/urdf/so101.urdf": False,
    "bravo7_description/urdf/bravo7_gripper.urdf": False,
    "talos_data/robots/talos_left_arm.urdf": False,
    "allegro_hand_description/urdf/allegro_left_hand.urdf": False,
    "baxter_description/urdf/baxter.urdf": False,
    "tiago_description/robots/tiago_no_hand.urdf": False,
    "double_pendulum_description/urdf/double_pendulum.urdf": False,
    "solo_description/robots/solo12.urdf": True,
    "anymal_b_simple_description/robots/anymal.urdf": True,
    "go2_description/urdf/go2.urdf": True,
    "hyq_description/robots/hyq_no_sensors.urdf": True,
    "bolt_description/robots/bolt.urdf": True,
    "simple_humanoid_description/urdf/simple_humanoid.urdf": True,
    "talos_data/robots/talos_reduced.urdf": True,
    "g1_description/urdf/g1_29dof_rev_1_0.urdf": False,
}
FUNCTIONS = ("inverse_dynamics", "bias_force", "mass_matrix", "forward_dynamics", "mass_matrix_inverse")
MOST, ROUNDS, BOUND = 1.6, 25, 1.15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--robots", help="only files whose name has one of these, with commas between them")
    wanted = parser.parse_args().robots
    files = [f for f in ROBOTS if wanted is None or any(w in f for w in wanted.split(","))]
    warnings.simplefilter("ignore", qddot.QddotWarning)
    print("| robot | function | auto takes | ns a state | fastest | ns a state | ratio |\n|---|---|---|---|---|---|---|")
    worst = []
    for file in files:
        robot = qddot.load(FILES / file, floating_base=ROBOTS[file], passive_forces=False)
        for function in FUNCTIONS:
            if robot.massless_joints and function in ("forward_dynamics", "mass_matrix_inverse"):
                continue
            rows = [r for r in compare(robot, function) if not r.refused]
            least = min(r.instructions for r in rows)
            near = [r.method for r in rows if r.instructions <= MOST * least or r.auto]
            times = measured(robot, function, near, ROUNDS)
            auto = next(r.method for r in rows if r.auto)
            best = min(times, key=times.get)
            ratio = times[auto] / times[best]
            worst.append(ratio)
            cells = (robot.name, function, auto, f"{times[auto]:.0f}", best, f"{times[best]:.0f}", f"{ratio:.2f}")
            print(f"| {' | '.join(cells)} |", flush=True)
    above = sum(r > BOUND for r in worst)
    print(f"\n{len(worst)} cases, median {statistics.median(worst):.3f}, worst {max(worst):.2f}; {above} above {BOUND}")


if __name__ == "__main__":
    main()
