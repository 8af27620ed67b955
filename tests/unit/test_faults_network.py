"""A node's network that is cut and comes back, in a network namespace."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Callable, Iterator, List, Optional

import pytest
from faults_world import CLUSTER, MADE, Connections, injector

from cbt_plugins.cluster.remote import Result
from cbt_plugins.cluster.transports.transport_choice import TransportChoice
from cbt_plugins.faults import FaultError
from cbt_plugins.faults.kinds.network import link_cut, nft_cut
from cbt_plugins.plan import Fault

Node = Callable[[str], subprocess.CompletedProcess[str]]

class Asked:
    """Stands where `Scene` does for one node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def ask(self, node: str, text: str, root: bool = False) -> str:
        return self._node(text).stdout


@pytest.fixture
def node() -> Iterator[Node]:
    """A shell on a node with a network, and a /sys, of its own."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    line = ["unshare", "-n", "-m", "sh", "-c", "mount -t sysfs s /sys && echo ready && exec cat"]
    holder = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdin is not None and holder.stdout is not None
    try:
        if holder.stdout.readline() != b"ready\n":
            pytest.skip("no namespaces here")
        enter = ["nsenter", "-t", str(holder.pid), "-n", "-m", "sh", "-c"]
        yield lambda text: subprocess.run([*enter, text], capture_output=True, text=True, timeout=600, check=False)
    finally:
        holder.stdin.close()
        holder.stdout.close()
        holder.wait()


def test_a_cut_interface_comes_back_with_all_its_routes(node: Node) -> None:
    """Also with a route to its gateway that no address brings, and one through another route, as clouds have them."""
    made = node(
        "set -e; ip link set lo up; ip link add eth9 type veth peer name p; ip link set eth9 up; ip link set p up\n"
        "sysctl -qw net.ipv6.conf.eth9.accept_dad=0; ip addr add 10.128.0.7/32 dev eth9\n"
        "ip route add 10.128.0.1 dev eth9 scope link; ip route add default via 10.128.0.1 dev eth9\n"
        "ip route add 10.99.0.0/16 via 10.128.0.1 dev eth9 metric 7 table 55\n"
        "ip -6 addr add fd00::7/64 dev eth9; ip -6 route add fd01::/64 via fd00::1 dev eth9 expires 1000"
    )
    assert made.returncode == 0, made.stderr
    show = "ip -4 route show table all; ip -6 route show table all | grep ^fd01 | cut -d' ' -f1-5"
    before = node(show).stdout
    assert before.count("10.128.0.1") == 3 and "fd01::/64 via fd00::1 dev eth9" in before
    cut = link_cut(Asked(node), "n", ["eth9"])  # type: ignore[arg-type]
    assert node(cut.recovered).stdout == "recovered\n"
    node(cut.inject)
    assert node(show).stdout != before and node(cut.recovered).stdout == ""
    assert node(cut.recover).returncode == 0
    assert node(show).stdout == before
    for lost in ("ip route del default", "ip -6 addr del fd00::7/64 dev eth9", "ip -6 route del fd01::/64"):
        node(lost)
        assert node(cut.recovered).stdout == "", lost
        assert node(cut.recover).returncode == 0
        assert node(cut.recovered).stdout == "recovered\n"
    assert node(show).stdout == before


@pytest.mark.parametrize("kernel", ["vlan id 100", "macvlan"])
def test_a_vlan_comes_back_with_the_interface_below_it(kernel: str, node: Node, tmp_path: Path) -> None:
    """The kernel sets it down too, and up again without its routes and its IPv6 addresses.

    Where the kernel has no VLANs another stacked device stands for one, with the changes that the kernel would make.
    """
    (tmp_path / "uevent").write_text("DEVTYPE=vlan\nINTERFACE=eth9.100\n")
    made = node(
        "set -e; ip link add eth9 type veth peer name p; ip link set eth9 up; ip link set p up\n"
        f"ip link add link eth9 name eth9.100 type {kernel}; ip link set eth9.100 up\n"
        f"mount --bind {tmp_path}/uevent /sys/class/net/eth9.100/uevent\n"
        "sysctl -qw net.ipv6.conf.eth9/100.accept_dad=0; ip addr add 10.1.0.1/24 dev eth9.100\n"
        "ip route add default via 10.1.0.2 dev eth9.100; ip route add 10.2.0.0/16 via 10.1.0.3 dev eth9.100\n"
        "ip -6 addr add fd00::7/64 dev eth9.100; ip -6 route add fd01::/64 via fd00::1 dev eth9.100"
    )
    if "Unknown device type" in made.stderr:
        pytest.skip("a kernel without VLANs")
    assert made.returncode == 0, made.stderr
    show = "ip -4 route show; ip -6 route show | grep fd0"
    before = node(show).stdout
    assert before.count("eth9.100") == 5
    cut = link_cut(Asked(node), "n", ["eth9"])  # type: ignore[arg-type]
    node(f"{cut.inject}; {'ip link set eth9.100 down' if kernel == 'macvlan' else ''}")
    assert node(show).stdout == "" and node(cut.recovered).stdout == ""
    node("ip link set eth9 up; ip link set eth9.100 up" if kernel == "macvlan" else "")
    assert node(show).stdout != before and node(cut.recovered).stdout == ""
    assert node(cut.recover).returncode == 0
    assert (node(show).stdout, node(cut.recovered).stdout) == (before, "recovered\n")


@pytest.mark.parametrize(
    ("devices", "cuts_us_off"),
    [(["eth9"], True), (["br9"], True), (["eth8"], False), (["eth8", "eth9"], True), (["eth7"], True)],
)
def test_a_cut_below_the_device_of_our_own_connection_ends_it(
    node: Node, devices: List[str], cuts_us_off: bool
) -> None:
    """Then the undo waits until the deadline."""
    made = node(
        "set -e; for n in 7 8 9; do ip link add eth$n type veth peer name p$n; ip link set eth$n up; done\n"
        "ip link add bond9 type bridge; ip link set eth9 master bond9; ip link set bond9 up\n"
        "ip link add link bond9 name v9 type macvlan; ip link add br9 type bridge; ip link set v9 master br9\n"
        "ip link set v9 up; ip link set br9 up; ip link set p9 up; ip link set p8 up; ip link set p7 up\n"
        "ip link add ovs-system type bridge; ip link set eth7 master ovs-system\n"
        "ip addr add 10.1.0.1/24 dev br9"
    )
    assert made.returncode == 0, made.stderr
    scene: Any = Asked(lambda text: node(f"SSH_CONNECTION='10.1.0.9 5 10.1.0.1 22'\n{text}"))
    assert link_cut(scene, "n", devices).former["cuts_us_off"] is cuts_us_off


def test_an_interface_that_stays_down_keeps_no_other_from_recovering(node: Node) -> None:
    node(
        "for n in 8 9; do ip link add eth$n type veth peer name p$n; ip link set eth$n up; ip link set p$n up\n"
        "ip addr add 10.$n.0.1/24 dev eth$n; ip route add 10.9$n.0.0/16 via 10.$n.0.2 dev eth$n; done"
    )
    cut = link_cut(Asked(node), "n", ["eth8", "eth9"])  # type: ignore[arg-type]
    node(cut.inject)
    fails = "ip() { [ \"$*\" != 'link set dev eth8 up' ] && command ip \"$@\"; }\n"
    assert node(fails + cut.recover).returncode != 0 and node(cut.recovered).stdout == ""
    assert "10.99.0.0/16 via 10.9.0.2" in node("ip route show dev eth9").stdout
    assert node(cut.recover).returncode == 0 and node(cut.recovered).stdout == "recovered\n"


def test_an_interface_that_lacks_a_route_has_not_recovered(node: Node) -> None:
    node(
        "ip link add eth9 type veth peer name p; ip link set eth9 up; ip link set p up\n"
        "ip addr add 10.1.0.1/24 dev eth9; ip route add 10.2.0.0/16 via 10.1.0.2 dev eth9"
    )
    cut = link_cut(Asked(node), "n", ["eth9"])  # type: ignore[arg-type]
    node(f"{cut.inject}; ip addr flush dev eth9")
    done = node(cut.recover)
    assert done.returncode != 0 and "10.2.0.0/16 via 10.1.0.2" in done.stderr
    assert node(cut.recovered).stdout == ""


@pytest.mark.skipif(not shutil.which("nft"), reason="needs nft")
def test_dropped_packets_leave_ssh(node: Node) -> None:
    """In a network of its own: the table is made in one piece, taken away, and taken away once more."""
    scene: Any = Asked(node)
    made = nft_cut(scene, "n", "r-n-0-1", 22)
    cut, recover, recovered = made.inject, made.recover, made.recovered
    show = "nft list ruleset"
    text = "; ".join((recovered, cut, show, recovered, recover, recover, recovered))
    said = node(f"set -e; {text}")
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.startswith("recovered\ntable inet") and said.stdout.endswith("}\nrecovered\n")
    assert "tcp dport 22 accept" in said.stdout and said.stdout.count("policy drop") == 3
    fails = "nft() { return 1; }\n"
    assert node(fails + recover).returncode != 0 and node(fails + recovered).stdout == ""


def test_a_node_without_these_rules_is_refused(node: Node, tmp_path: Path) -> None:
    """The rules are tried in an empty network namespace."""
    (tmp_path / "nft").write_text("#!/bin/sh\necho 'Error: Could not process rule: Not supported' >&2\nexit 1\n")
    (tmp_path / "nft").chmod(0o755)
    scene: Any = Asked(lambda text: node(f"PATH={tmp_path}:$PATH\n{text}"))
    with pytest.raises(FaultError, match=r"n: the fault needs nft, but the kernel .*: Error: Could not process rule"):
        nft_cut(scene, "n", "r-n-0-1", 22)


@pytest.mark.parametrize(
    ("node", "args", "says", "option", "port"),
    [
        ("node1", "", "", None, 22),
        ("node1:2222", "-p 2200", "", None, 2222),
        ("node1", "-p 2200", "", None, 2200),
        ("node1", "-oPort=2200 -p2201", "", None, 2200),
        ("node1:2222", "", "10.0.0.9 50000 10.0.0.1 4022", None, 4022),  # what its sshd sees behind a forwarded port
        ("node1:2222", "", "10.0.0.9 50000 10.0.0.1 4022", 23, 23),
    ],
)
def test_packets_of_our_own_ssh_pass(
    node: str, args: str, says: str, option: Optional[int], port: int, tmp_path: Path
) -> None:
    world = Connections()
    world.transports = TransportChoice({**CLUSTER, "osds": [node]}, {"pdsh_ssh_args": args})
    play = world.play

    def shell(name: str, text: str) -> Result:
        if "SSH_CONNECTION" in text:
            environment = {"SSH_CONNECTION": says} if says else {}
            said = subprocess.run(["sh", "-c", text], env=environment, capture_output=True, text=True, check=True)
            return Result(said.stdout, "", 0)
        return Result("possible", "", 0) if "echo possible" in text else play(name, text)

    world.play = shell  # type: ignore[method-assign]
    one = injector(tmp_path, world, cluster={**CLUSTER, "osds": [node, "node2", "node3", "node4"]})
    options = {"method": "nft", **({"ssh_port": option} if option else {})}
    (step,) = one.prepare(Fault("n", "network", ("node1",), options=options)).steps
    assert step.ended_early == step.checks[:1]
    assert re.findall(r"[ds]port (\d+) accept", step.inject[0].text) == [str(port)] * 2
    MADE.pop().close()
