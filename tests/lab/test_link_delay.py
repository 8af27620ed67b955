"""The delay of a node's link, on a real cluster: it is there, data pass whole, and it ends."""

from __future__ import annotations

import sys
from typing import List, Sequence

import pytest
from running_lab import RunningLab
from waiting import wait_for

from cbt_plugins.tools.lab.link_delay import RELAY
from cbt_plugins.tools.lab.process import LabProcess, processes

pytestmark = pytest.mark.lab
#: arguments: node. Prints the least seconds that a new connection to its sshd takes: one round trip
CONNECT = """import socket, sys, time
times = []
for _ in range(10):
    begin = time.monotonic()
    socket.create_connection((sys.argv[1], 22), 60).close()
    times.append(time.monotonic() - begin)
print(min(times))
"""


def round_trip(lab: RunningLab, node: str) -> float:
    done = lab.exec("rgw1", [sys.executable, "-c", CONNECT, node])
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


def relays() -> List[LabProcess]:
    return [process for process in processes() if RELAY in process.command()]


def link(lab: RunningLab, node: str, *words: str) -> None:
    done = lab.tool("link", node, *words)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("words", "least"), [(("50ms",), 0.05), pytest.param(("0.05s", "--way", "both"), 0.1, marks=pytest.mark.long)]
)
def test_each_round_trip_takes_longer_until_the_delay_ends(
    lab: RunningLab, words: Sequence[str], least: float
) -> None:
    assert round_trip(lab, "client1") < 0.05
    link(lab, "client1", "--delay", *words)
    try:
        assert round_trip(lab, "client1") >= least and round_trip(lab, "client2") < 0.05
        script = "head -c 8000000 /dev/urandom > /tmp/a && rados -p rbd put a /tmp/a && rados -p rbd get a /tmp/b"
        assert lab.exec("client1", ["sh", "-ec", f"{script} && cmp /tmp/a /tmp/b && rados -p rbd rm a"]).returncode == 0
        link(lab, "client1", "down")
        assert lab.exec("rgw1", ["timeout", "2", "bash", "-c", "exec 3<>/dev/tcp/client1/22"]).returncode != 0
        link(lab, "client1", "up")
        wait_for(lambda: round_trip(lab, "client1") >= least, "the link")
        link(lab, "client1", "--delay", "1ms")  # takes the place of the first one
        assert round_trip(lab, "client1") < least and len(relays()) == 1
    finally:
        link(lab, "client1", "--delay", "0")
    assert relays() == [] and round_trip(lab, "client1") < 0.05
    assert lab.exec("lab", ["ip", "link", "show", "d-client1"]).returncode != 0
    link(lab, "client1", "--delay", "0")  # twice is once


def test_a_relay_that_died_and_a_node_that_crashed_leave_a_link_that_works_again(lab: RunningLab) -> None:
    link(lab, "client2", "--delay", "50ms")
    (relay,) = relays()
    relay.kill()
    link(lab, "client2", "--delay", "0")
    assert round_trip(lab, "client2") < 0.05
    link(lab, "client2", "--delay", "50ms")
    assert lab.tool("crash", "client2").returncode == 0
    wait_for(lambda: not relays(), "the end of the relay")
    assert lab.tool("link", "client2", "--delay", "50ms").returncode == 1
    assert lab.tool("boot", "client2").returncode == 0
    assert round_trip(lab, "client2") < 0.05
    link(lab, "client2", "--delay", "50ms")
    assert round_trip(lab, "client2") >= 0.05
    link(lab, "client2", "--delay", "0")
