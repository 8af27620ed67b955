"""The bottleneck of a phase, with the numbers that show it. Pure: from a phase of summary["resources"] and its load."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence

from cbt_plugins.formatting import percent, several

GENERATOR, CLIENT_NETWORK, CLUSTER_NETWORK = "generator", "client network", "cluster network"
MEDIA, RGW_CPU, OSD_CPU = "media", "RGW CPU", "OSD CPU"
NONE, UNKNOWN = "none", "unknown"

#: share of a machine's processors that are busy: waiting for one of them is a good part of every request then
CPU = 0.85
#: share of a core that one thread uses: it can do no more, whatever else is idle
THREAD = 0.9
#: share of an interface's speed, in one direction: headers and acknowledgements take some of the rest
LINK = 0.85
#: share of the time in which a disk had something to do
DISK = 0.9
#: requests under way, on average, below which a busy flash disk may still have had time for more
FLASH_QUEUE = 4.0
#: share of what the generator can do against a server that does nothing
CEILING = 0.8
#: share of the window that must be known of a node to say that it had no bottleneck
WATCHED = 0.8

Line = Mapping[str, Any]


def bottleneck(line: Line, load: Line) -> Dict[str, Any]:
    """Return {"what", "evidence": [text...]}; `line` is a phase of summary["resources"], without its bottleneck.

    `load`: {"made": whether there was any, "ceiling": `generator` of the phase in the summary, or None}. The first of
    the rules that finds something names it: what is nearer to the client hides what is behind it. The findings of the
    others follow as evidence.
    """
    if not load.get("made", True):
        return {"what": NONE, "evidence": ["nothing was asked of the cluster"]}
    findings = {name: list(rule(line, load)) for name, rule in _RULES.items()}
    named = [name for name, texts in findings.items() if texts]
    if named:
        first, *others = named
        also = [f"also {name}: {text}" for name in others for text in findings[name][:1]]
        return {"what": first, "evidence": [*findings[first], *also]}
    missing = list(_missing(line))
    if missing:
        return {"what": UNKNOWN, "evidence": [*missing, *_highest(line)]}
    return {"what": NONE, "evidence": _highest(line) or ["nothing was busy"]}


def at_ceiling(generator: Optional[Line]) -> Optional[str]:
    """Return that a generator was near what it can do without a cluster; None below. `generator`: the summary's."""
    if not generator or generator["share"] <= CEILING:
        return None
    first = generator["nodes"][0]
    beside = f", together with {', '.join(first['beside'])} on one machine" if first["beside"] else ""
    rates = f"{first['requests_per_s']:,.0f} of {first['ceiling_per_s']:,.0f} requests/s"
    share = f"{percent(first['share'], '.0f')} of what its generator can do without a cluster"
    return f"{first['node']}: {share}: {rates}{beside}"


def _generator(line: Line, load: Line) -> Iterator[str]:
    text = at_ceiling(load.get("ceiling"))
    if text:
        yield text
    yield from _busy_daemons(line, "generator", "client")


def _network(side: str) -> Callable[[Line, Line], Iterator[str]]:
    def rule(line: Line, load: Line) -> Iterator[str]:
        full = [net for net in line["interfaces"] if net["side"] == side and (net["util"] or 0) > LINK]
        for net in sorted(full, key=lambda net: -float(net["util"])):
            way = "received" if net["rx_mib_s"] >= net["tx_mib_s"] else "sent"
            yield (
                f"{net['node']}: {net['name']} {way} {max(net['rx_mib_s'], net['tx_mib_s']):.0f} MiB/s, "
                f"{percent(net['util'], '.0f')} of its {net['speed_mbit'] / 1000:g} Gbit/s"
            )

    return rule


def _media(line: Line, load: Line) -> Iterator[str]:
    osds_known = any(disk["osds"] for disk in line["devices"])
    nodes = {node["node"] for node in line["nodes"] if "osd" in node["roles"]}
    for disk in sorted(line["devices"], key=lambda disk: -float(disk["util"])):
        has_osds = disk["osds"] if osds_known else disk["node"] in nodes
        # flash does many things at once: busy is not full
        deep = disk["rotational"] is not False or (disk["queue"] or 0) >= FLASH_QUEUE
        if has_osds and disk["util"] > DISK and deep:
            yield f"{disk['node']}: {_whose(disk)} was busy {percent(disk['util'], '.0f')} of the time{_waits(disk)}"


def _whose(disk: Line) -> str:
    osds = sorted({osd for part_osds in disk["osds"].values() for osd in part_osds}, key=lambda osd: (len(osd), osd))
    if not osds:
        return f"{disk['device']} (its OSD is unknown)"
    some = ", ".join(f"osd.{osd}" for osd in osds[:4]) + (" ..." if len(osds) > 4 else "")
    return f"{disk['device']} of {some}"


def _waits(disk: Line) -> str:
    parts = [f"{disk[f'{way}_ms']:.1f} ms a {way}" for way in ("read", "write") if disk.get(f"{way}_ms")]
    return f", {disk['queue']:.1f} requests under way, {', '.join(parts)}" if parts else ""


def _rgw_cpu(line: Line, load: Line) -> Iterator[str]:
    yield from _busy_daemons(line, "rgw", "rgw")


def _osd_cpu(line: Line, load: Line) -> Iterator[str]:
    yield from _busy_daemons(line, "osd", "osd")


def _busy_daemons(line: Line, daemon_class: str, role: str) -> Iterator[str]:
    """Yield the machines without processors to spare that mostly do this, and the threads that cannot do more."""
    for machine in _busy_machines(line):
        # without the monitor of daemons, what the nodes are for
        if machine.user == daemon_class or (
            machine.user is None and all(_only(node) == role for node in machine.nodes)
        ):
            yield machine.text
    threads = [
        d for d in line["daemons"] if d["class"] == daemon_class and (d.get("thread") or {}).get("share", 0) > THREAD
    ]
    for daemon in sorted(threads, key=lambda daemon: -float(daemon["thread"]["share"])):
        thread = daemon["thread"]
        yield (
            f"{daemon['node']}: thread {thread['name']} of {_NAMES[daemon_class]} {daemon['id']} "
            f"used {percent(thread['share'], '.0f')} of a processor"
        )


_OTHERS = "other programs"
_NAMES = {"generator": "the load generator", "rgw": "RGW", "osd": "OSD", "mon": "mon", "mgr": "mgr", "mds": "MDS"}


class _Machine(NamedTuple):
    """A machine without processors to spare."""

    nodes: Sequence[Line]
    user: Optional[str]  # the class, or _OTHERS, that uses most of them; None when no daemon was watched
    text: str


def _busy_machines(line: Line) -> Iterator[_Machine]:
    machines: Dict[str, List[Line]] = {}
    for node in line["nodes"]:
        machines.setdefault(node["machine"], []).append(node)
    for name, nodes in machines.items():
        busy, cpus = nodes[0]["busy"], nodes[0]["cpus"]
        if busy is None or busy <= CPU:
            continue
        cores: Dict[str, float] = {}
        for node in nodes:
            for user, used in node["cores"].items():
                cores[user] = cores.get(user, 0.0) + used
        if cores:
            cores[_OTHERS] = max(0.0, busy * cpus - sum(cores.values()))
        by = sorted(cores, key=lambda user: -cores[user])
        some = ", ".join(node["node"] for node in nodes[:4]) + (" ..." if len(nodes) > 4 else "")
        who = name if len(nodes) == 1 else f"{some} ({len(nodes)} nodes, one machine)"
        parts = [f"{cores[user]:.2f} cores by {_NAMES.get(user, user)}" for user in by if cores[user] >= 0.01]
        parts.insert(0, f"{percent(busy, '.0f')} of {cpus} processors busy")
        text = f"{who}: {', '.join(parts)}"
        yield _Machine(nodes, by[0] if by else None, text)


def _only(node: Line) -> Optional[str]:
    """Return the role of a node that has only one."""
    roles = [role for role in node["roles"] if role in ("client", "osd", "rgw")]
    return roles[0] if len(roles) == 1 else None


#: in this order
_RULES: Mapping[str, Callable[[Line, Line], Iterator[str]]] = {
    GENERATOR: _generator,
    CLIENT_NETWORK: _network("client"),
    CLUSTER_NETWORK: _network("cluster"),
    MEDIA: _media,
    RGW_CPU: _rgw_cpu,
    OSD_CPU: _osd_cpu,
}


def _missing(line: Line) -> Iterator[str]:
    """Yield the missing measurements, without which "no bottleneck" cannot be concluded."""
    for machine in _busy_machines(line):
        user_text = (
            "the programs that use them are unknown"
            if machine.user is None
            else f"mostly by {_NAMES.get(machine.user, machine.user)}"
        )
        yield f"{machine.text}: {user_text}"
    for role, name in (("client", "client"), ("rgw", "RGW"), ("osd", "OSD")):
        nodes = [node for node in line["nodes"] if role in node["roles"]]
        if not nodes:
            yield f"no {name} node was watched"
            continue
        short = [node["node"] for node in nodes if node["watched"] < WATCHED]
        if short:
            yield f"{', '.join(short)}: watched for less than {percent(WATCHED, '.0f')} of the time"
    if line.get("missing"):
        yield f"{', '.join(line['missing'])}: not watched"
    if line.get("unwatched"):
        yield f"{several(line['unwatched'], 'OSD')}: not watched"
    if line.get("unwatched_gateways"):
        yield f"{several(line['unwatched_gateways'], 'RGW')}: not watched"
    unknown = sorted({net["node"] for net in line["interfaces"] if net["side"] and not net["speed_mbit"]})
    if unknown:
        yield f"the speed of the network is not known: {', '.join(unknown)}"


def _highest(line: Line) -> List[str]:
    """Return the resource of each kind that came nearest to its limit."""
    texts = []
    busy = [node for node in line["nodes"] if node["busy"] is not None]
    if busy:
        node = max(busy, key=lambda node: float(node["busy"]))
        load = f"{percent(node['busy'], '.0f')} (limit {percent(CPU, '.0f')})"
        texts.append(f"busiest processors: {node['node']} {load}")
    nets = [net for net in line["interfaces"] if net["util"] is not None]
    if nets:
        net = max(nets, key=lambda net: float(net["util"]))
        load = f"{percent(net['util'], '.0f')} (limit {percent(LINK, '.0f')})"
        texts.append(f"busiest link: {net['node']} {net['name']} {load}")
    disks: Sequence[Line] = [disk for disk in line["devices"] if disk["osds"]]
    if disks:
        disk = max(disks, key=lambda disk: float(disk["util"]))
        texts.append(
            f"busiest disk: {disk['node']} {_whose(disk)} {percent(disk['util'], '.0f')} (limit {percent(DISK, '.0f')})"
        )
    return texts
