"""Two nodes of a Ray cluster, each in a network of its own: the cable between them is cut, and a node's raylet is killed.

The driver is on the first node. What the second one was at is computed again, and the bytes are those of a serial run.
"""

import contextlib
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from tests.support.study_faults import command_line, content, descendants, driver, finished, needs_proc, sweep

pytestmark = [pytest.mark.process, pytest.mark.slow, needs_proc]
PORT, FIRST, SECOND = 6399, "10.231.7.1", "10.231.7.2"
SHORT = {"batch": 2}  # 200 blocks of 20 ms: 2 s for two workers
# a node that does not answer counts as dead after a second or two, not after half a minute
IMPATIENT = {
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "300",
    "RAY_health_check_timeout_ms": "700",
    "RAY_health_check_failure_threshold": "2",
}


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True).returncode


class TwoNodes:
    """A Ray cluster of two nodes of one processor each, with a cable between them."""

    def __init__(self):
        tag = f"{os.getpid() % 10000}"
        self.names = [f"qddot-a{tag}", f"qddot-b{tag}"]
        self.ends = [f"qda{tag}", f"qdb{tag}"]
        self.folder = tempfile.mkdtemp(prefix="qd")  # Ray's sockets need a short path
        self.environment = {**os.environ, **IMPATIENT, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        self.nodes = [None, None]

    def connect(self):
        """The two networks; whether they could be made."""
        a, b = self.names
        failed = ip("netns", "add", a) or ip("netns", "add", b)
        failed = failed or ip("link", "add", self.ends[0], "netns", a, "type", "veth", "peer", self.ends[1], "netns", b)
        for name, end, own in zip(self.names, self.ends, (FIRST, SECOND), strict=True):
            failed = failed or ip("-n", name, "addr", "add", f"{own}/24", "dev", end)
            failed = failed or ip("-n", name, "link", "set", end, "up") or ip("-n", name, "link", "set", "lo", "up")
        return not failed

    def prefix(self, k):
        return ["ip", "netns", "exec", self.names[k]]

    def start(self, k):
        """A node; the first one is the head."""
        where = ["--head", f"--port={PORT}", "--include-dashboard=false"] if not k else [f"--address={FIRST}:{PORT}"]
        ray = str(Path(sys.executable).with_name("ray"))
        own = [f"--node-ip-address={(FIRST, SECOND)[k]}", "--num-cpus=1", "--disable-usage-stats", "--block"]
        own += [f"--temp-dir={self.folder}/r"] if not k else []
        with open(f"{self.folder}/log{k}", "ab") as log:
            self.nodes[k] = subprocess.Popen(
                [*self.prefix(k), ray, "start", *where, *own], env=self.environment, stdout=log, stderr=log
            )

    def make_whole(self):
        """Starts what does not run, and waits until Ray counts two nodes."""
        script = (
            f"import ray, time; ray.init('{FIRST}:{PORT}', configure_logging=False, log_to_driver=False)\n"
            "for _ in range(100):\n"
            "    if ray.cluster_resources().get('CPU', 0) == 2: break\n"
            "    time.sleep(0.1)\n"
            "else: raise SystemExit(1)\n"
        )
        for _ in range(20):
            for k in (0, 1):  # a node whose raylet was killed may take a while to end
                if self.nodes[k] is None or self.nodes[k].poll() is not None:
                    self.start(k)
            with contextlib.suppress(subprocess.TimeoutExpired):
                command = [*self.prefix(0), sys.executable, "-c", script]
                if not subprocess.run(command, env=self.environment, timeout=60, capture_output=True).returncode:
                    return
            time.sleep(0.5)
        raise AssertionError(Path(f"{self.folder}/log0").read_text())

    def cut(self, seconds):
        ip("-n", self.names[1], "link", "set", self.ends[1], "down")
        time.sleep(seconds)
        ip("-n", self.names[1], "link", "set", self.ends[1], "up")

    def kill_raylet(self):
        """Of the second node."""
        for pid in descendants(self.nodes[1].pid):
            if command_line(pid)[:1] and b"raylet" in command_line(pid)[0]:
                os.kill(pid, signal.SIGKILL)

    def end(self):
        for node in filter(None, self.nodes):
            below = descendants(node.pid)
            for pid in [node.pid, *below]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            node.wait()
        for name in self.names:
            ip("netns", "del", name)
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def two_nodes(needs_namespaces):
    pytest.importorskip("ray", reason="needs Ray: pip install 'qddot[ray]'")
    cluster = TwoNodes()
    try:
        if not cluster.connect():
            pytest.skip("networks of their own cannot be made here")
        yield cluster
    finally:
        cluster.end()


@pytest.mark.parametrize("repeats", [20])
@pytest.mark.parametrize("fault", ["cut", "raylet"])
def test_nodes_that_are_cut_off_or_die(fault, repeats, two_nodes, expected, tmp_path):
    chance, died = random.Random(7), 0
    for k in range(repeats):
        two_nodes.make_whole()
        # half of the cuts are so short that nobody notices, half so long that the node is given up
        harm = {"cut": lambda: two_nodes.cut(chance.choice([0.5, 6.0])), "raylet": two_nodes.kill_raylet}[fault]
        timer = threading.Timer(chance.uniform(3.0, 7.0), harm)
        options = {"engine": "ray", "chunk": 4, "timeout": 20.0, "address": f"{FIRST}:{PORT}"}
        process = driver(tmp_path / str(k), two_nodes.prefix(0), SHORT, two_nodes.environment, **options)
        timer.start()
        assert not finished(process)
        timer.join()
        assert content(sweep(tmp_path / str(k), **SHORT)) == expected
        time.sleep(1.0)
        died += two_nodes.nodes[1].poll() is not None
    assert died
