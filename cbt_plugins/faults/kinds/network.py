"""Nodes cut off from the network: interfaces down, or all packets except those of ssh dropped."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Annotated, Any, Dict, List, Literal, Mapping, Optional, Sequence

from pydantic import Field, model_validator

from cbt_plugins.config.key_errors import FieldError, FieldErrors
from cbt_plugins.config.shell_values import Interface
from cbt_plugins.faults import node_shell, service_managers
from cbt_plugins.faults.cluster_facts import osd_names
from cbt_plugins.faults.dead_man_switch import DeadlineOptions, DeadManSwitch
from cbt_plugins.faults.kind import LISTED, LISTED_SCHEMA, Kind, ServiceOptions
from cbt_plugins.faults.node_shell import FOLDER
from cbt_plugins.faults.scene import Scene, Targets
from cbt_plugins.faults.step import Command, FaultError, Step

#: part of a route that a router has told, as it is shown: other in each look, and to be set without the unit
_EXPIRES, _SECONDS = re.compile(r" expires ([0-9]+)sec"), r" expires \1"

#: the device that the kernel shows above each port of Open vSwitch, whatever its bridge
_OPEN_VSWITCH = "ovs-system"


class Network(Kind):
    """Cuts nodes off from the network. A dead man's switch on each node ends the cut at the deadline.

    The switch only restores the network: OSDs that were marked out stay out until the undo. A cut that includes the
    run's own ssh lasts until the deadline.
    """

    takes = "node"
    changes_in_kubernetes = None

    class Options(DeadlineOptions, ServiceOptions):
        """The method of the cut, and its longest time."""

        method: Literal["link", "nft"] = Field(
            "link",
            description="`link`: interfaces are set down; `nft`: all packets except packets of ssh are dropped.",
        )
        interfaces: Annotated[List[Interface], LISTED, LISTED_SCHEMA] = Field(
            [], description="For `link`: the interfaces to take down."
        )
        ssh_port: Optional[int] = Field(
            None, ge=1, le=65535, description="For `nft`: port of ssh. Default: the port of the run's connection."
        )

        @model_validator(mode="after")
        def _complete(self) -> Network.Options:
            if self.method == "link" and not self.interfaces:
                raise ValueError("network needs the option interfaces: [names], or method: nft")
            if self.method == "nft" and self.interfaces:
                text = "is for method: link; nft drops the packets of all interfaces: remove one of the two options"
                raise FieldErrors([FieldError(("interfaces",), text, of_key=True)])
            return self

    options: Options

    def steps(self, scene: Scene, targets: Targets) -> List[Step]:
        return [self._step(scene, f"{scene.name}-{i}", node) for i, node in enumerate(targets.nodes, 1)]

    def _step(self, scene: Scene, name: str, node: str) -> Step:
        osds, options, limits = scene.on_node(node), self.options, scene.limits
        of_nodes = service_managers.find_services(scene, osd_names(osds), options.service_manager or "", on_node=True)
        osd_services = of_nodes.get(node, [])
        if options.method == "link":
            cut = link_cut(scene, node, options.interfaces)
        else:
            cut = nft_cut(scene, node, name, options.ssh_port or ssh_port(scene, node))
        timeout = options.deadline + 120.0 if cut.former["cuts_us_off"] else limits.back
        switch = DeadManSwitch(name, node, cut.recover, cut.recovered, options.deadline, timeout, limits)
        # The cut may end our connection to the node, so a process that outlives the connection makes the cut a moment
        # later. A cut that hangs is killed: it might take effect after its undo.
        bounded = f"timeout -k 5 {node_shell.ATTEMPT:g} sh -c {shlex.quote(cut.inject)}"
        moment = shlex.quote(f'sleep 0.3; [ -e "$0" ] || {bounded}')
        later = f'{FOLDER}; setsid sh -c {moment} "$d/{name}.recovered" </dev/null >/dev/null 2>&1 &'
        return Step(
            what=f"{cut.description} on {node}; {node} recovers by itself after {options.deadline:g} s",
            node=node,
            inject=(Command(node, later, limits.quick, root=True),),
            undo=(
                *switch.undo,
                *service_managers.start(scene, osd_services),
                *scene.mark_in(osds),
            ),
            checks=(
                *switch.checks,
                *((scene.osds_back(osds, max(timeout, limits.back)),) if osds else ()),
            ),
            took=(scene.osds_down(osds),) if osds else (),
            # without OSDs nothing shows that the cut has begun
            ended_early=switch.checks[:1] if osds and not cut.former["cuts_us_off"] else (),
            former={**cut.former, **scene.former(osds)},
            daemons=tuple(map(str, osd_names(osds))),
            arm=switch.arm,
            deadline=options.deadline,
            side_by_side=True,
        )


@dataclass(frozen=True)
class _Cut:
    description: str
    inject: str
    recover: str
    recovered: str  # prints "recovered" if the node has recovered
    former: Mapping[str, Any]  # cuts_us_off: the run cannot reach the node during the cut


def link_cut(scene: Scene, node: str, devices: Sequence[str]) -> _Cut:
    look = node_shell.script_text("interfaces", devices=" ".join(devices))
    answer = scene.ask(node, look, root=True)
    routes: List[List[str]] = []
    addresses: List[List[str]] = []
    states: Dict[str, str] = {}
    stacked: List[str] = []
    via = ""
    for line in answer.splitlines():
        word, _, fields = line.partition(" ")
        if word == "link":
            device, _, states_of = fields.partition(" ")
            states[device] = states_of
        elif word == "over":
            stacked.append(fields)
        elif word == "route":
            routes.append(fields.split(" ", 2))
        elif word == "addr":
            addresses.append(fields.split(" "))
        elif word == "via":
            via = fields
    for device in devices:
        if states.get(device) in ("missing", "down", None):
            raise FaultError(f"{node}: interface {device} is {states.get(device, 'not visible')}: nothing to cut")
    quoted = [shlex.quote(d) for d in devices]
    ups = [f"ip link set dev {d} up" for d in quoted]
    up_test = " && ".join(f'[ "$(($(cat /sys/class/net/{d}/flags) & 1))" = 1 ]' for d in quoted)
    wanted = [" ".join(("route", *row)) for row in routes] + [" ".join(("addr", *row)) for row in addresses]
    if wanted:
        up_test += f" && {_all_of(wanted, look)}"
    return _Cut(
        f"take down {', '.join(devices)}",
        "; ".join(f"ip link set dev {d} down" for d in quoted),
        # also after an interface that stays down, which the test sees; routes twice: one may need a later one
        f"{'; '.join(ups)}; {_replayed(routes, addresses) * 2}{up_test}",
        f"{up_test} && echo recovered",
        {
            "links": states,
            "routes": routes,
            "addresses": addresses,
            "cuts_us_off": not via or via in (*devices, *stacked) or _OPEN_VSWITCH in stacked,
        },
    )


def _replayed(routes: Sequence[Sequence[str]], addresses: Sequence[Sequence[str]]) -> str:
    """Return shell text that restores missing addresses and routes; routes to a gateway before routes through it."""
    lines = [f"ip -6 addr replace {address} dev {shlex.quote(device)}" for device, address in addresses]
    for family, device, route in sorted(routes, key=lambda row: " via " in f" {row[2]} "):
        lines.append(f"ip -{family} route replace {_EXPIRES.sub(_SECONDS, route)} dev {shlex.quote(device)}")
    return "".join(f"{line} 2>/dev/null || true; " for line in lines)


def _all_of(wanted: Sequence[str], look: str) -> str:
    """Return a shell condition: all lines are in the output of `look`. It prints the lines that are missing."""
    lines = shlex.join(_EXPIRES.sub("", line) for line in wanted)
    return (
        f"{{ now=$({look}\n); now=$(printf '%s\\n' \"$now\" | sed -E 's/{_EXPIRES.pattern}//'); "
        f"absent=$(printf '%s\\n' {lines} | grep -vxFe \"$now\"); "
        '[ -z "$absent" ] || { echo "not restored yet: $absent" >&2; false; }; }'
    )


def ssh_port(scene: Scene, node: str) -> int:
    """Return the ssh port of a node: as sshd on the node reports it, else as the YAML's sections have it."""
    seen = scene.ask(node, 'echo "${SSH_CONNECTION##* }"').strip()
    return int(seen) if seen.isdecimal() else scene.ceph.remote.port(node)


def refuse_unsupported(scene: Scene, node: str, trial: str, means: str) -> None:
    """Run shell text in an empty network namespace of a node. Raises FaultError if the node does not support it.

    `means`: programs and features of the kernel that the text needs.
    """
    answer = scene.ask(node, f"unshare -n sh -c {shlex.quote(trial)} 2>&1 && echo possible || true", root=True)
    if answer.split()[-1:] != ["possible"]:
        why = " ".join(answer.split("\n")[:1]) or "no reply"
        needs = f"the fault needs {means}, but the kernel or a program of the node does not support the fault"
        raise FaultError(f"{node}: {needs}, or `unshare -n` has no right (CAP_SYS_ADMIN): {why}")


def nft_cut(scene: Scene, node: str, name: str, port: int) -> _Cut:
    """Return the cut of a node by nft. Raises FaultError if the node does not support its rules."""
    table = "cbt_plugins_" + "".join(c if c.isalnum() else "_" for c in name)
    chain = "type filter hook {} priority -300; policy drop;"
    lines = (
        f"add table inet {table}",
        *(f"add chain inet {table} {hook} {{ {chain.format(hook)} }}" for hook in ("input", "output", "forward")),
        f"add rule inet {table} input iif lo accept",
        f"add rule inet {table} output oif lo accept",
        f"add rule inet {table} input tcp dport {port} accept",
        f"add rule inet {table} output tcp sport {port} accept",
        # without neighbour discovery there is no IPv6
        *(
            f"add rule inet {table} {hook} icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert }} accept"
            for hook in ("input", "output")
        ),
    )
    rules = "\\n".join(lines)  # one transaction: nft applies all lines or none
    inject = f"printf {shlex.quote(rules)} | nft -f -"
    refuse_unsupported(scene, node, inject, "nft")
    # where nft does not answer, nobody knows whether the table is there: that is not "recovered"
    tables = "t=$(nft list tables)"
    table_exists = f"printf '%s\\n' \"$t\" | grep -qx 'table inet {table}'"
    return _Cut(
        f"drop all packets except packets of ssh (port {port})",
        inject,
        f"{tables} && {{ ! {table_exists} || nft delete table inet {table}; }}",
        f"{tables} && {{ {table_exists} || echo recovered; }}",
        {"table": table, "cuts_us_off": False},
    )
