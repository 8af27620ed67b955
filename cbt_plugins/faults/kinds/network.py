"""A node's network is cut: interfaces down, or everything dropped but ssh."""

from __future__ import annotations

import shlex
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from cbt_plugins.faults import deadman
from cbt_plugins.faults.fence import FOLDER
from cbt_plugins.faults.harm import Harm
from cbt_plugins.faults.kinds.daemon import checked_way, started
from cbt_plugins.faults.scene import Kind, Scene, Targets
from cbt_plugins.faults.step import Check, Command, FaultError, Step

#: seconds: what a deadline may be
SHORTEST, LONGEST = 5.0, 7 * 86400.0
#: what a node says of an interface: its state, whether we come through it, its routes and lasting IPv6 addresses,
#: which do not survive `ip link set down`
_LOOK = r"""
for i in DEVICES; do
  echo "link $i $(cat "/sys/class/net/$i/operstate" 2>/dev/null || echo missing)"
  for f in 4 6; do
    ip -$f route show table all dev "$i" 2>/dev/null | grep -v 'proto kernel\|^local\|^broadcast\|^multicast' |
      while read -r r; do echo "route $f $i $r"; done; done
  ip -6 -o addr show dev "$i" scope global 2>/dev/null | grep -v dynamic |
    while read -r _ _ _ a _; do echo "addr $i $a"; done
done
us=${SSH_CONNECTION%% *}
[ -z "$us" ] || echo "via $(ip -o route get "$us" 2>/dev/null | sed -n 's/.* dev \([^ ]*\).*/\1/p')"
true
"""


class Network(Kind):
    """options: interfaces (method link), method "link" or "nft", deadline in seconds, ssh_port that nft leaves open,
    daemons (how OSDs are run: one that is cut off for long may end by itself)."""

    unit = "node"
    options: Mapping[str, Any] = {"interfaces": (), "method": "link", "deadline": 900.0, "ssh_port": 22, "daemons": ""}

    def harm(self, targets: Targets, options: Mapping[str, Any]) -> Harm:
        return Harm(osds=targets.osds, nodes=targets.nodes)

    def steps(self, scene: Scene, targets: Targets, options: Mapping[str, Any]) -> List[Step]:
        method = str(options["method"])
        if method not in ("link", "nft"):
            raise FaultError(f"method: {method}: link (interfaces down) or nft (packets dropped, ssh excepted)")
        deadline = float(options["deadline"])
        if not SHORTEST <= deadline <= LONGEST:
            raise FaultError(f"deadline: {deadline:g} s: after so long the node heals itself; 5 s to 7 days")
        return [
            self._step(scene, f"{scene.name}-{i}", node, method, deadline, options)
            for i, node in enumerate(targets.nodes, 1)
        ]

    def _step(
        self, scene: Scene, name: str, node: str, method: str, deadline: float, options: Mapping[str, Any]
    ) -> Step:
        osds = scene.on_node(node)
        daemons = scene.daemons(osds, checked_way(options)).get(node, [])
        if method == "link":
            given = options["interfaces"]
            devices = [given] if isinstance(given, str) else [str(d) for d in given]
            what, cut, heal, healthy, former = _link(scene, node, devices)
        else:
            what, cut, heal, healthy, former = _nft(scene, node, name, int(options["ssh_port"]))
        # The cut may end the connection that it came by: it is made by a process that outlives it, a moment later.
        # One that hangs is ended: it might come to pass after its undo.
        bounded = f"timeout -k 5 {deadman.ATTEMPT:g} sh -c {shlex.quote(cut)}"
        moment = shlex.quote(f'sleep 0.3; [ -e "$0" ] || {bounded}')
        later = f'{FOLDER}; setsid sh -c {moment} "$d/{name}.healed" </dev/null >/dev/null 2>&1 &'
        back = f'{FOLDER}; : > "$d/{name}.healed"; {heal}'
        patience = deadline + 120.0 if former["cuts_us_off"] else scene.limits.back
        return Step(
            what=f"{what} on {node}; it heals itself after {deadline:g} s",
            node=node,
            inject=(Command(node, later, scene.limits.quick, root=True),),
            undo=(
                Command(node, back, scene.limits.quick, root=True),
                Command(node, deadman.disarm(name), scene.limits.quick, root=True),
                *(started(scene, node, daemons) if daemons else ()),
                *scene.mark_in(osds),
            ),
            checks=(
                Check(node, healthy, (((), "whole"),), patience, root=True),
                Check(node, deadman.is_disarmed(name), (((), "disarmed"),), patience, root=True),
                *((scene.back(osds, max(patience, scene.limits.back)),) if osds else ()),
            ),
            took=(scene.gone(osds),) if osds else (),
            former={**former, **scene.former(osds)},
            osds=osds,
            arm=Command(node, deadman.arm(name, back, deadline), scene.limits.quick, root=True),
            deadline=deadline,
        )


_WAYS = ("input", "output")
_Cut = Tuple[str, str, str, str, Dict[str, Any]]


def _link(scene: Scene, node: str, devices: Sequence[str]) -> _Cut:
    if not devices:
        raise FaultError("network by method link needs interfaces: [names]; method: nft needs none")
    answer = scene.ask(node, _LOOK.replace("DEVICES", " ".join(map(shlex.quote, devices)), 1), root=True)
    routes: List[List[str]] = []
    addresses: List[List[str]] = []
    states: Dict[str, str] = {}
    via = ""
    for line in answer.splitlines():
        word, _, rest = line.partition(" ")
        if word == "link":
            device, _, states_of = rest.partition(" ")
            states[device] = states_of
        elif word == "route":
            routes.append(rest.split(" ", 2))
        elif word == "addr":
            addresses.append(rest.split(" "))
        elif word == "via":
            via = rest
    for device in devices:
        if states.get(device) in ("missing", "down", None):
            raise FaultError(f"{node}: interface {device} is {states.get(device, 'not to be seen')}: nothing to cut")
    quoted = [shlex.quote(d) for d in devices]
    ups = [f"ip link set dev {d} up" for d in quoted]
    lost = [f"ip -6 addr replace {a} dev {shlex.quote(d)}" for d, a in addresses]
    lost += [f"ip -{family} route replace {route} dev {shlex.quote(d)}" for family, d, route in routes]
    up = " && ".join(f'[ "$(($(cat /sys/class/net/{d}/flags) & 1))" = 1 ]' for d in quoted)
    return (
        f"take down {', '.join(devices)}",
        "; ".join(f"ip link set dev {d} down" for d in quoted),
        # what is up counts; a route that is there already is no failure
        f"{' && '.join(ups)} && {{ {''.join(f'{line} || true; ' for line in lost)}true; }}",
        f"{up} && echo whole",
        {"links": states, "routes": routes, "addresses": addresses, "cuts_us_off": not via or via in devices},
    )


def _nft(scene: Scene, node: str, name: str, port: int) -> _Cut:
    scene.ask(node, "command -v nft >/dev/null || { echo nft is missing >&2; exit 1; }", root=True)
    table = "cbt_plugins_" + "".join(c if c.isalnum() else "_" for c in name)
    chain = "type filter hook {} priority -300; policy drop;"
    lines = (
        f"add table inet {table}",
        *(f"add chain inet {table} {hook} {{ {chain.format(hook)} }}" for hook in ("input", "output", "forward")),
        f"add rule inet {table} input iif lo accept",
        f"add rule inet {table} output oif lo accept",
        f"add rule inet {table} input tcp dport {port} accept",
        f"add rule inet {table} output tcp sport {port} accept",
        # without it no neighbour is found by IPv6
        *(
            f"add rule inet {table} {hook} icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert }} accept"
            for hook in _WAYS
        ),
    )
    rules = "\\n".join(lines)  # one transaction: all of it or nothing
    there = f"nft list table inet {table} >/dev/null 2>&1"
    return (
        f"drop all packets but those of ssh (port {port})",
        f"printf {shlex.quote(rules)} | nft -f -",
        f"! {there} || nft delete table inet {table}",
        f"{there} || echo whole",
        {"table": table, "cuts_us_off": False},
    )
