"""The relay that delays the link of a node: frames wait, in one direction or in both, and arrive as they were sent."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Iterator, List

import pytest
from waiting import end_of

from cbt_plugins.tools.lab.link_delay import RELAY

#: of two nodes whose cables end in a third network, where the relay runs
NEAR, FAR = "10.9.0.1", "10.9.0.2"
#: arguments: address to listen at. Sends back all of one connection at a time
ECHO = """import socket, sys
server = socket.create_server((sys.argv[1], 4000))
print("ready", flush=True)
while True:
    peer, _ = server.accept()
    with peer:
        while True:
            data = peer.recv(1 << 20)
            if not data:
                break
            peer.sendall(data)
"""
#: arguments: address, bytes. Prints the least seconds of a round trip; the bytes come back as they were sent
ASK = """import os, socket, sys, threading, time
peer = socket.create_connection((sys.argv[1], 4000))
peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
times = []
for _ in range(5):
    begin = time.monotonic()
    peer.sendall(b"x")
    assert peer.recv(1) == b"x"
    times.append(time.monotonic() - begin)
data, back = os.urandom(int(sys.argv[2])), b""
sender = threading.Thread(target=peer.sendall, args=(data,))
sender.start()
while len(back) < len(data):
    back += peer.recv(1 << 20)
assert back == data
print(min(times))
"""


class Networks:
    """Two nodes and a switch, each with a network of its own: the cables of the nodes are `near` and `far` there."""

    def __init__(self, pids: List[int]) -> None:
        self._pids = pids

    def argv(self, place: int, *words: str) -> List[str]:
        return ["nsenter", "-t", str(self._pids[place]), "-n", *words]

    def run(self, place: int, *words: str) -> str:
        argv = self.argv(place, *words)
        return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, timeout=600).stdout

    def relay(self, out: str, back: str) -> subprocess.Popen[bytes]:
        argv = self.argv(2, sys.executable, "-E", "-S", RELAY, "near", "far", out, back)
        relay = subprocess.Popen(argv, stdout=subprocess.PIPE)
        assert relay.stdout is not None
        with relay.stdout:
            assert relay.stdout.readline() == b"ready\n"
        return relay

    def round_trip(self, size: int) -> float:
        with subprocess.Popen(self.argv(1, sys.executable, "-c", ECHO, FAR), stdout=subprocess.PIPE) as echo:
            try:
                assert echo.stdout is not None and echo.stdout.readline() == b"ready\n"
                return float(self.run(0, sys.executable, "-c", ASK, FAR, str(size)))
            finally:
                echo.kill()


@pytest.fixture
def networks() -> Iterator[Networks]:
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("needs root and ip (Debian: iproute2)")
    line = ["unshare", "-n", "sh", "-c", "ip link set lo up && echo ready && exec cat"]
    holders = [subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(3)]
    try:
        for holder in holders:
            assert holder.stdout is not None
            if holder.stdout.readline() != b"ready\n":
                pytest.skip("no namespaces here")
        made = Networks([holder.pid for holder in holders])
        for place, (name, address) in enumerate((("near", NEAR), ("far", FAR))):
            peer = ["type", "veth", "peer", "eth0", "netns", str(holders[place].pid)]
            made.run(2, "ip", "link", "add", name, "up", *peer)
            made.run(place, "sh", "-ec", f"ip addr add {address}/24 dev eth0; ip link set eth0 up")
        yield made
    finally:
        for holder in holders:
            assert holder.stdin is not None and holder.stdout is not None
            holder.stdin.close()
            holder.stdout.close()
            holder.wait()


@pytest.mark.parametrize(("out", "back", "least"), [("0.05", "0", 0.05), ("0", "0.05", 0.05), ("0.05", "0.04", 0.09)])
def test_each_round_trip_waits_and_no_byte_changes(networks: Networks, out: str, back: str, least: float) -> None:
    """Large segments pass whole, with the checksums that their sender has left to its interface."""
    relay = networks.relay(out, back)
    try:
        assert networks.round_trip(4 << 20) >= least
    finally:
        relay.kill()
        end_of(relay)


def test_a_relay_passes_on_after_a_pulled_cable_and_ends_with_it(networks: Networks) -> None:
    relay = networks.relay("0.001", "0")
    try:
        networks.run(2, "ip", "link", "set", "near", "down")
        networks.run(2, "ip", "link", "set", "near", "up")
        assert networks.round_trip(1000) >= 0.001
        networks.run(2, "ip", "link", "del", "near")
        assert end_of(relay) == 0
    finally:
        relay.kill()
        end_of(relay)
