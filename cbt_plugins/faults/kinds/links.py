"""Faults of links between nodes: packets dropped, lost, limited in rate, or delayed. Packets of ssh always pass."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, replace
from typing import Annotated, Any, Callable, Dict, Iterator, List, Literal, Mapping, Optional, Sequence, Set, Tuple

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from cbt_plugins.config.errors import did_you_mean
from cbt_plugins.config.fault import NODES
from cbt_plugins.config.key_errors import FieldError, FieldErrors
from cbt_plugins.config.units import about_link
from cbt_plugins.faults import service_managers
from cbt_plugins.faults.blast_radius import BlastRadius
from cbt_plugins.faults.cluster_facts import osd_names
from cbt_plugins.faults.dead_man_switch import DeadlineOptions, DeadManSwitch
from cbt_plugins.faults.kind import LISTED, LISTED_SCHEMA, Kind, LinkSpeed, Seconds, ServiceOptions, Share
from cbt_plugins.faults.kinds.network import refuse_unsupported, ssh_port
from cbt_plugins.faults.node_shell import script_text, sudo
from cbt_plugins.faults.scene import Scene, Targets
from cbt_plugins.faults.step import Check, Command, FaultError, Step
from cbt_plugins.formatting import percent
from cbt_plugins.inventory import HostTable, check_node_name, host_of, is_address
from cbt_plugins.plan import DAEMON_TYPES

#: from these values on, a disturbed node counts as down. Share of lost packets: heartbeats may not arrive in time
_OUTAGE_LOSS = 0.1
#: seconds: a mon has 2 s from the begin of the renewal of its lease until its end, and a peer may be delayed as well
_OUTAGE_DELAY = 1.0
#: bytes/s, below: heartbeats of an OSD take up to 13 kB/s, and 100 OSDs of a node would fill the link
_OUTAGE_RATE = 1_250_000.0
#: queue of a slow link: seconds of traffic, and the fewest bytes: two packets with offloads
_QUEUE, _SHORTEST_QUEUE = 0.2, 131072
#: for HTB, whose default holds a single packet with offloads already
_BURST = f"burst {_SHORTEST_QUEUE} cburst {_SHORTEST_QUEUE}"
#: Mbit/s assumed for an interface of unknown speed; bytes of a packet; the smallest limit of packets for netem
_SPEED, _PACKET, _PACKETS = 10000.0, 1500, 1000
#: lowest rate in bytes/s; a slower link could not carry the heartbeats of a node
_SLOWEST = 125_000.0
#: longest delay in seconds: half of the default grace of heartbeats
_LONGEST = 5.0
#: seconds: below, a round trip does not show the delay
_MEASURABLE = 0.001
#: number of nodes that must report an OSD before monitors mark it down, by Ceph's default
_REPORTERS = 2
#: a class of HTB that limits nothing
_UNLIMITED = "rate 100gbit quantum 60000"
#: most nodes that a text lists by name
_NAMED = 3
#: for each direction: the word of `nft` for the far end, and the name of the counter
_ENDS: Mapping[str, Tuple[str, str]] = {"in": ("saddr", "arriving"), "out": ("daddr", "leaving")}
#: action for packets that leave: they go to our class of HTB
_CLASSED = "counter name {counter} meta priority set cb:1"


def _addressed(name: str) -> str:
    check_node_name(name)
    return name


Direction = Literal["both", "in", "out"]
#: of `direction`, where it is an option
DIRECTION: Any = Field(
    "both", description="`in`: packets that arrive at the targets; `out`: packets that leave the targets; or `both`."
)


class LinkOptions(DeadlineOptions, ServiceOptions):
    """Options of all faults of links."""

    peers: Annotated[List[Annotated[str, AfterValidator(_addressed)]], LISTED, LISTED_SCHEMA] = Field(
        [],
        description="Nodes at the far ends of the links; nothing is changed on them. Default: all nodes of `cluster:` "
        "except the targets.",
    )
    ssh_port: Optional[int] = Field(
        None,
        ge=1,
        le=65535,
        description="Port of ssh; packets of ssh pass. Default: the port of the run's connections.",
    )

    @field_validator("peers")
    @classmethod
    def _nodes_of_cluster(cls, peers: List[str], info: ValidationInfo) -> List[str]:
        nodes = [host_of(node) for node in (info.context or {}).get(NODES) or ()]
        table = HostTable(nodes)
        errors = []
        for index, peer in enumerate(peers):
            if nodes and table.find(peer) is None:
                hint = did_you_mean(peer, nodes) or f"; there are {', '.join(nodes)}"
                errors.append(FieldError((index,), f"{peer} is not a node of cluster:{hint}"))
        if errors:
            raise FieldErrors(errors)
        return peers


@dataclass(frozen=True)
class Disturbance:
    """The change to packets: for each direction the end of an nft rule, and the HTB class for packets that leave."""

    text: str
    rules: Mapping[str, str]
    htb: str = ""
    leaf: str = ""  # qdisc of the class
    is_outage: bool = False  # so strong that the safety rules count the targets as down
    delay: float = 0.0  # seconds, of each round trip
    rate: float = 0.0  # bytes/s of each direction; 0: unlimited

    @property
    def means(self) -> str:
        """Programs that do it, for people."""
        return f"nft, htb and {self.leaf.split()[0]}" if self.leaf else "nft"


@dataclass(frozen=True)
class LinkEnds:
    """One node, and the far ends of its links."""

    node: str
    peers: Sequence[str]
    addresses: Sequence[str]  # of the peers
    ports: Sequence[int]  # of ssh

    def __str__(self) -> str:
        far = ", ".join(self.peers) if len(self.peers) <= _NAMED else f"{len(self.peers)} nodes"
        return f"between {self.node} and {far}"


class Links(Kind):
    """Disturbs packets between the targets and other nodes; changes only the targets."""

    takes = "node"
    serves_on = True
    daemon_types = DAEMON_TYPES
    changes_in_kubernetes = None
    options: Any

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._without_ping: List[str] = []  # nodes, known when the steps are

    def warnings(self) -> Iterator[str]:
        if self._without_ping:
            text = "no peer answers ping, or ping is missing: the run cannot measure the delay, and only checks that"
            yield f"{', '.join(self._without_ping)}: {text} packets have passed the queue of netem"

    def errors(self, targets: Sequence[str]) -> Iterator[Tuple[str, str]]:
        table = HostTable(targets)
        both = [name for name in self.options.peers if table.find(name)]
        if both:
            yield "options", f"peers: {', '.join(both)}: also targets: name only nodes at the far ends of the links"

    def blast_radius(self, scene: Scene, targets: Targets) -> BlastRadius:
        if self.disturbance(_SPEED).is_outage:
            return super().blast_radius(scene, targets)
        return BlastRadius(disturbed=targets.nodes)

    def disturbance(self, speed: float) -> Disturbance:
        """Return the disturbance. `speed`: speed of the interface in Mbit/s."""
        raise NotImplementedError

    def seen_down(self, scene: Scene, targets: Targets) -> Sequence[int]:
        """Return the OSDs that the cluster will see go down."""
        return ()

    def steps(self, scene: Scene, targets: Targets) -> List[Step]:
        service_managers.find_services(scene, (), self.options.service_manager or "", on_node=True)
        peers = peers_of(scene, targets, self.options.peers)
        addresses = _addresses(scene, [*targets.nodes, *peers])
        far_ports = {scene.ceph.remote.port(peer) for peer in peers}
        steps = []
        self._without_ping = []
        for number, node in enumerate(targets.nodes, 1):
            ports = {self.options.ssh_port} if self.options.ssh_port else {ssh_port(scene, node), *far_ports}
            far = sorted({address for peer in peers for address in addresses[peer]} - addresses[node])
            steps.append(self._step(scene, f"{scene.name}-{number}", LinkEnds(node, peers, far, sorted(ports))))
        # the first step is undone last: OSDs are back only when all links are
        return [self._with_osds(scene, targets, steps[0]), *steps[1:]]

    def _step(self, scene: Scene, name: str, ends: LinkEnds) -> Step:
        node, limits, deadline = ends.node, scene.limits, self.options.deadline
        table = "cbt_plugins_" + "".join(c if c.isalnum() else "_" for c in name)
        leaf = self.disturbance(_SPEED).leaf
        look = script_text("links", action="look", table=table, peers=" ".join(ends.addresses), leaf=leaf)
        answer = scene.ask(node, look, root=True)
        speeds = dict(line.split()[1:3] for line in _padded(answer))
        if not speeds:
            raise FaultError(f"{node}: no interface leads to {', '.join(ends.peers)}")
        done = self.disturbance(max(map(_speed, speeds.values())))
        useless = [name for name, mbit in speeds.items() if mbit.isdecimal() and 0 < int(mbit) <= done.rate / 125_000]
        if useless:
            text = f"{about_link(done.rate)} would limit nothing on {', '.join(useless)}, which is not faster"
            raise FaultError(f"{node}: rate: {text}")
        shape = {"htb": done.htb, "leaf": done.leaf, "rules": "\n".join(nft_rules(table, ends, done))}
        trial = script_text("links", action="try", table=table, **shape)
        refuse_unsupported(scene, node, trial, done.means)
        own = {"table": table, "devices": " ".join(speeds) if done.leaf else ""}
        recover, recovered = (script_text("links", action=action, **own) for action in ("unset", "unset_seen"))
        switch = DeadManSwitch(name, node, recover, recovered, deadline, limits.back, limits)
        inject = switch.unless_fired + script_text("links", action="set", **own, **shape)
        took = self._effect(scene, node, {**own, "leaf": done.leaf}, done, answer)
        no_table = script_text("links", action="unset_seen", table=table)
        return Step(
            what=f"{done.text} {ends}, by {done.means}; {node} recovers by itself after {deadline:g} s",
            node=node,
            inject=(Command(node, inject, limits.quick, root=True),),
            undo=switch.undo,
            checks=switch.checks,
            took=took,
            ended_early=(Check(node, no_table, (((), "recovered"),), limits.quick, root=True),),
            former={"means": done.means, "interfaces": list(speeds), "peers": list(ends.addresses)},
            arm=switch.arm,
            deadline=deadline,
            side_by_side=True,
        )

    def _effect(
        self, scene: Scene, node: str, own: Mapping[str, str], done: Disturbance, look: str
    ) -> Tuple[Check, ...]:
        """Return the check of the effect, and the check that reads its numbers. `look`: the reply to that action."""
        directions = " ".join(_ENDS[direction][1] for direction in done.rules)
        needs = "a load above the rate" if done.rate else ""
        values: Dict[str, object] = {**own, "directions": directions, "needs": needs}
        trip = next((line.split()[1:] for line in look.splitlines() if line.startswith("ping ")), [])
        if trip:
            least = round(done.delay * 1e6) if done.delay >= _MEASURABLE else 0
            values.update(ping=trip[0], before=trip[1], delay=least)
        elif done.delay:
            self._without_ping.append(node)
        effect, reading = (script_text("links", action=action, **values) for action in ("effect", "reading"))
        limits = scene.limits
        return (
            Check(node, effect, (((), "in effect"),), limits.down, root=True),
            Check(node, reading, ((("links",), {"not": ""}),), limits.quick, root=True, reading="links"),
        )

    def _with_osds(self, scene: Scene, targets: Targets, step: Step) -> Step:
        """Return the step, with an undo that also starts OSDs that have ended and waits for OSDs that went down."""
        taken, down = self.blast_radius(scene, targets), self.seen_down(scene, targets)
        of_nodes = (osd for node in targets.nodes for osd in scene.on_node(node))
        osds = [o for o in sorted({*of_nodes, *taken.osds}) if scene.facts.osds[o]["up"]]
        services_by_node = service_managers.find_services(scene, osd_names(osds), self.options.service_manager or "")
        services = {int(service.name.id): service for of_node in services_by_node.values() for service in of_node}
        groups: Dict[Tuple[str, str], List[int]] = {}
        for osd, service in services.items():
            groups.setdefault((service.node, service.manager), []).append(osd)

        def start(numbers: Sequence[int]) -> Sequence[Command]:
            return service_managers.start(scene, [services[osd] for osd in numbers])

        starts = [command for group in groups.values() for command in _in_parts("up", group, start)]
        marks = [command for group in groups.values() for command in _in_parts("in", group, scene.mark_in)]
        return replace(
            step,
            undo=(*step.undo, *starts, *marks),
            checks=(*step.checks, *((scene.osds_back(osds),) if osds else ())),
            took=(*step.took, *((scene.osds_went_down(down),) if down else ())),
            former={**step.former, **scene.former(osds)},
            daemons=() if self.serves_on else tuple(map(str, osd_names(o for o in osds if o in taken.osds))),
            silent=not set(taken.osds) <= set(down),
            side_by_side=False,
        )


def _in_parts(
    value: str, osds: Sequence[int], restore: Callable[[Sequence[int]], Sequence[Command]]
) -> Iterator[Command]:
    """Yield the commands that restore a value of OSDs, with a part for each OSD: another fault may have the OSD."""
    for command in restore(osds):
        parts = tuple(((osd, value), alone.text) for osd in osds for alone in restore([osd]))
        yield replace(command, parts=parts)


def peers_of(scene: Scene, targets: Targets, named: Sequence[str]) -> List[str]:
    """Return the nodes at the far ends, by their names in `cluster:`: `peers`, or all nodes that are no targets."""
    table = HostTable(scene.nodes)
    unknown = [name for name in named if table.find(name) is None]
    if unknown:
        raise FaultError(f"peers: {', '.join(unknown)} not in `cluster:`, which has {', '.join(scene.nodes)}")
    nodes = [table.find(name) or name for name in named or scene.nodes]
    peers = [node for node in dict.fromkeys(nodes) if node not in targets.nodes]
    if not peers or (named and len(peers) < len(set(nodes))):
        raise FaultError("peers: all nodes of `cluster:` are targets: no node is left for the far ends of the links")
    return peers


def _addresses(scene: Scene, nodes: Sequence[str]) -> Dict[str, Set[str]]:
    """Return the addresses of nodes."""
    results = scene.ceph.remote.run(nodes, sudo(script_text("addresses")), timeout=scene.limits.quick, check=False)
    addresses = {node: set(filter(is_address, result.stdout.split())) for node, result in results.items()}
    silent = [node for node in nodes if not addresses.get(node)]
    if silent:
        raise FaultError(f"{', '.join(silent)}: no reply, or no address: the links to these nodes are unknown")
    return addresses


def _padded(answer: str) -> Iterator[str]:
    return (f"{line} 0" for line in answer.splitlines() if line.startswith("dev "))


def _speed(text: str) -> float:
    return float(text) if text.isdecimal() and int(text) else _SPEED


def nft_rules(table: str, ends: LinkEnds, done: Disturbance) -> Iterator[str]:
    """Yield the lines for nft, which applies all lines or none."""
    yield f"add table inet {table}"
    ports = ", ".join(map(str, ends.ports))
    for direction, action in done.rules.items():
        end, counter = _ENDS[direction]
        chain = f"inet {table} {counter}"
        hook = "input" if direction == "in" else "output"
        yield f"add counter {chain}"
        yield f"add chain {chain} {{ type filter hook {hook} priority -300; }}"
        yield from (f"add rule {chain} tcp {port} {{ {ports} }} accept" for port in ("sport", "dport"))
        # without neighbour discovery there is no IPv6
        yield f"add rule {chain} icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert }} accept"
        for family, colon in (("ip", False), ("ip6", True)):
            addresses = [address for address in ends.addresses if (":" in address) == colon]
            if addresses:
                match = f"{family} {end} {{ {', '.join(addresses)} }}"
                yield f"add rule {chain} {match} {action.format(counter=counter)}"


def _both(direction: str, arriving: str, leaving: str) -> Dict[str, str]:
    return {name: rule for name, rule in (("in", arriving), ("out", leaving)) if direction in ("both", name)}


class Partition(Links):
    """Drops all packets between two groups of nodes, in one direction or in both directions.

    A side goes down if monitors get enough reports about this side from OSDs of the far side, or if this side loses the
    quorum. If neither side goes down, requests between the sides hang, and the safety rules count both sides as down.
    """

    serves_on = False

    class Options(LinkOptions):
        """The nodes of the other side, and the direction."""

        direction: Direction = DIRECTION

    def disturbance(self, speed: float) -> Disturbance:
        drop = "counter name {counter} drop"
        return Disturbance("drop all packets", _both(self.options.direction, drop, drop))

    def blast_radius(self, scene: Scene, targets: Targets) -> BlastRadius:
        """Return the side that goes down; both if each side has enough OSDs for monitors to believe its reports.

        Heartbeats need both directions, so a cut of one direction is enough. The safety rules count a side that goes
        down as lost nodes, with the monitors on them.
        """
        sides = self._sides(scene, targets)
        gone = [side for side in sides if side.down or not side.has_quorum]
        if not gone:  # requests between the two sides hang
            gone = [side for side in sides if not side.osds] or sides
        nodes, others = tuple(n for side in gone for n in side.nodes), [t for t in DAEMON_TYPES if t != "osd"]
        daemons = (name for node in nodes for name in scene.daemons_on(node, others))
        return BlastRadius((*osd_names(o for side in gone for o in side.osds), *daemons), nodes)

    def seen_down(self, scene: Scene, targets: Targets) -> Sequence[int]:
        return [osd for side in self._sides(scene, targets) if side.down for osd in side.osds]

    def _sides(self, scene: Scene, targets: Targets) -> List[_Side]:
        groups = (targets.nodes, tuple(peers_of(scene, targets, self.options.peers)))
        hosts = list(scene.facts.daemons("mon").values())
        monitor = next(iter(scene.facts.daemons("mon")))
        option = "mon_osd_min_down_reporters"
        answer = scene.ask(scene.head, f"{scene.ceph.command} config show {shlex.quote(str(monitor))} {option}").strip()
        enough = int(answer) if answer.isdecimal() else _REPORTERS
        sides = []
        for own, far in (groups, groups[::-1]):
            osds_by_node = {node: [o for o in scene.on_node(node) if scene.facts.osds[o]["up"]] for node in own}
            # nodes in neither group reach both sides
            table = HostTable(far)
            reached = sum(table.find(host) is None for host in hosts)
            reporting = sum(bool(osds) for osds in osds_by_node.values())
            osds = tuple(osd for osds in osds_by_node.values() for osd in osds)
            sides.append(_Side(own, osds, reached > len(hosts) // 2, reporting >= enough))
        first, second = sides
        return [replace(first, down=second.reports), replace(second, down=first.reports)]


@dataclass(frozen=True)
class _Side:
    nodes: Tuple[str, ...]
    osds: Tuple[int, ...]  # that are up
    has_quorum: bool
    believed: bool  # whether it has enough nodes with OSDs for monitors to believe their reports
    down: bool = False  # its OSDs will be marked down

    @property
    def reports(self) -> bool:
        """Whether reports of this side about the far side reach the monitors, and are believed."""
        return self.has_quorum and self.believed


class Loss(Links):
    """Drops a random share of the packets. From 10 % on, the safety rules count the targets as down.

    With offloads the kernel treats up to 64 KiB as one packet, and drops the complete packet.
    """

    class Options(LinkOptions):
        """The share of lost packets."""

        share: Share = Field(0.02, gt=0, le=0.5, description="Share of the packets that is lost; up to 50%.")
        direction: Direction = DIRECTION

    def disturbance(self, speed: float) -> Disturbance:
        options = self.options
        some = f"numgen random mod 1000000 < {round(options.share * 1_000_000)} "
        rules = _both(options.direction, some + "counter name {counter} drop", some + _CLASSED)
        # A packet that nft drops on its way out is an error for the sender. In a blackhole class it is lost silently.
        shape = (_UNLIMITED, "blackhole") if "out" in rules else ("", "")
        text, is_outage = f"lose {percent(options.share, 'g')} of the packets", options.share >= _OUTAGE_LOSS
        return Disturbance(text, rules, *shape, is_outage)


class SlowLinks(Links):
    """Limits the rate of links: outgoing packets wait in a short queue, incoming packets above the rate are dropped.

    The fault needs a load above the rate: if no packet was held or dropped within a minute, the fault counts as without
    effect. Below 10 Mbit/s, the safety rules count the targets as down.
    """

    class Options(LinkOptions):
        """The rate of the links."""

        rate: LinkSpeed = Field(12.5e6, ge=_SLOWEST, description="Rate of each direction; at least 1Mbit.")
        direction: Direction = DIRECTION

    def disturbance(self, speed: float) -> Disturbance:
        rate = round(self.options.rate)
        queue = max(round(rate * _QUEUE), _SHORTEST_QUEUE)
        over = f"limit rate over {rate} bytes/second burst {queue} bytes counter name {{counter}} drop"
        rules = _both(self.options.direction, over, _CLASSED)
        shape = (f"rate {rate}bps {_BURST} quantum 60000", f"bfifo limit {queue}") if "out" in rules else ("", "")
        text, is_outage = f"limit packets to {about_link(rate)} in each direction", self.options.rate < _OUTAGE_RATE
        return Disturbance(text, rules, *shape, is_outage, rate=rate)


class Delay(Links):
    """Delays the packets that leave the targets, so that each round trip takes longer by `delay`.

    From 1 s on, the safety rules count the targets as down.

    `delay`, `loss` and `rate` are refused on an interface whose root qdisc is not the kernel's default, because this
    qdisc would be lost. The features of the kernel are tried in an empty network namespace of the node; a fault that
    the kernel does not support is refused, also by `plan --live`.
    """

    class Options(LinkOptions):
        """The delay of packets."""

        delay: Seconds = Field(0.05, gt=0, le=_LONGEST, description="Time added to each round trip; up to 5s.")

    def warnings(self) -> Iterator[str]:
        yield from super().warnings()
        if self.options.delay < _MEASURABLE:
            yield "a delay below 1 ms: the run only checks that packets have passed the queue of netem"

    def disturbance(self, speed: float) -> Disturbance:
        seconds = self.options.delay
        packets = max(_PACKETS, math.ceil(speed * 1e6 / 8 * seconds / _PACKET))
        leaf = f"netem delay {seconds * 1e6:.0f}us limit {packets}"
        text, rules = f"delay outgoing packets by {seconds:g} s", _both("out", "", _CLASSED)
        return Disturbance(text, rules, _UNLIMITED, leaf, seconds >= _OUTAGE_DELAY, delay=seconds)
