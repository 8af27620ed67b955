"""How fast the network lets clients read and write: copies of an object between nodes, and the link that is full first.

A request moves whole copies of its object, or parts of copies, from node to node:

    PUT   client -> gateway -> primary OSD -> the other members of the PG
    GET   the other members -> primary OSD -> gateway -> client

RBD has no gateway. What stays on a node crosses no link. docs/MODELS.md derives the formulas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from cbt_plugins.models.pools import Redundancy

PUT, GET = "PUT", "GET"
SENDS, RECEIVES = "sends", "receives"
PUBLIC, CLUSTER = "public", "cluster"

#: (node, SENDS or RECEIVES, PUBLIC or CLUSTER): one direction of one interface
Link = Tuple[str, str, str]
#: node -> its part of the whole; parts are made to sum to 1
Weights = Mapping[str, float]


@dataclass(frozen=True)
class Layout:
    """What runs where. The same name in two places is the same node, with one interface for both.

    A request comes from any client, goes through any gateway and to any OSD, each in proportion to its weight. Members
    of a PG are on different nodes (`apart` "host"), or on any different OSDs ("osd"). The formulas are exact, but for
    unequal nodes with `apart` "host": there, traffic between OSDs is shared out by their number.
    """

    osds: Mapping[str, int]  # node -> number of OSDs
    clients: Weights
    gateways: Weights  # empty: clients speak to OSDs themselves (RBD)
    pool: Redundancy
    apart: str = "host"
    cluster_network: bool = False  # OSDs speak to each other over interfaces of their own
    fast_read: bool = False  # a GET from an erasure code reads all chunks, and takes the first k

    def __post_init__(self) -> None:
        if not self.osds or not self.clients or min(self.osds.values()) < 1:
            raise ValueError("a layout needs clients, and nodes with OSDs")
        places, unit = (len(self.osds), "node") if self.apart == "host" else (sum(self.osds.values()), "OSD")
        if places < self.pool.size:
            verb = "is" if places == 1 else "are"
            raise ValueError(f"{self.pool}: needs {self.pool.size} {unit}s, there {verb} {places}")


@dataclass(frozen=True)
class Nics:
    """Bytes/s of one direction of an interface: one number for all nodes, or by node."""

    public: Union[float, Mapping[str, float]]
    cluster: Union[float, Mapping[str, float], None] = None  # None: as fast as `public`

    def of(self, node: str, network: str) -> float:
        """Return the speed of a node's interface in this network. Raises KeyError where it is not known."""
        speeds = self.public if network == PUBLIC or self.cluster is None else self.cluster
        return speeds[node] if isinstance(speeds, Mapping) else speeds


@dataclass(frozen=True)
class Ceiling:
    """The most that clients can get, and what stops them."""

    bytes_per_s: float  # of objects, all clients together; inf when nothing crosses a link
    transfers: float  # copies of an object that go from node to node
    link: Optional[Link]  # the link that is full


def layout(
    nodes: int,
    pool: Redundancy,
    *,
    clients: Optional[int] = None,
    gateways: Optional[int] = None,
    osds_per_node: int = 1,
    **options: Any,
) -> Layout:
    """Return a layout of equal nodes: `nodes` with OSDs; clients and gateways on so many nodes of their own.

    None: they run on the nodes of the OSDs, on each as many. `gateways` 0: there are none. `options`: the last fields
    of Layout, from `apart` on.
    """
    names = [f"osd{i + 1}" for i in range(nodes)]
    return Layout(
        dict.fromkeys(names, osds_per_node),
        _own("client", clients, names),
        {} if gateways == 0 else _own("gateway", gateways, names),
        pool,
        **options,
    )


def _own(role: str, number: Optional[int], shared: Sequence[str]) -> Dict[str, float]:
    return dict.fromkeys(shared if number is None else [f"{role}{i + 1}" for i in range(number)], 1.0)


def between_osds(pool: Redundancy, op: str, fast_read: bool = False) -> float:
    """Return the copies of an object that the primary exchanges with the other members of its PG.

    PUT: k+m-1 members get 1/k each, which is R-1 for R copies. GET: k-1 others give 1/k each, 0 for copies.
    """
    others = pool.size - 1 if op == PUT or (fast_read and pool.k > 1) else pool.k - 1
    return others / pool.k


def loads(layout: Layout, op: str) -> Dict[Link, float]:
    """Return the mean copies of an object that cross each link, for one PUT or GET."""
    osds = _parts(layout.osds)
    stations: List[Weights] = [_parts(layout.clients), *([_parts(layout.gateways)] if layout.gateways else []), osds]
    if op == GET:
        stations.reverse()
    copies_of_link: Dict[Link, float] = {}
    for source, target in zip(stations, stations[1:]):
        for node, part in source.items():
            _add(copies_of_link, (node, SENDS, PUBLIC), part * (1 - target.get(node, 0.0)))
        for node, part in target.items():
            _add(copies_of_link, (node, RECEIVES, PUBLIC), part * (1 - source.get(node, 0.0)))
    network = CLUSTER if layout.cluster_network else PUBLIC
    amount = between_osds(layout.pool, op, layout.fast_read)
    total = sum(layout.osds.values())
    for node, part in osds.items():
        # an OSD is as often the primary that sends as one of the members that receive, or the other way round
        elsewhere = 1.0 if layout.apart == "host" else (total - layout.osds[node]) / max(1, total - 1)
        for way in (SENDS, RECEIVES):
            _add(copies_of_link, (node, way, network), part * amount * elsewhere)
    return copies_of_link


def transfers(layout: Layout, op: str) -> float:
    """Return the mean copies of an object that go from one node to another (E in docs/MODELS.md)."""
    return sum(load for (_, way, _), load in loads(layout, op).items() if way == SENDS)


def distribution(layout: Layout, op: str) -> Dict[float, float]:
    """Return number of transfers -> probability; exchange between OSDs counts by its mean, exact for `apart` "host"."""
    osds, clients = _parts(layout.osds), _parts(layout.clients)
    gateways = _parts(layout.gateways)
    both = {(False, False): 1.0}
    if gateways:
        near = sum(part * clients.get(node, 0.0) for node, part in gateways.items())
        far = sum(part * osds.get(node, 0.0) for node, part in gateways.items())
        same = sum(part * clients.get(node, 0.0) * osds.get(node, 0.0) for node, part in gateways.items())
        both = {(True, True): same, (True, False): near - same, (False, True): far - same}
        both[False, False] = 1 - sum(both.values())
    else:
        both = {(True, False): sum(part * osds.get(node, 0.0) for node, part in clients.items())}
        both[False, False] = 1 - both[True, False]
    hops = 2 if gateways else 1
    osd_transfers = transfers(layout, op) - hops + sum(chance * sum(local) for local, chance in both.items())
    probabilities: Dict[float, float] = {}
    for local, chance in both.items():
        if chance > 1e-12:
            number = round(hops - sum(local) + osd_transfers, 9)
            probabilities[number] = probabilities.get(number, 0.0) + chance
    return dict(sorted(probabilities.items()))


def usage(layout: Layout, rates: Mapping[str, float], nics: Nics) -> Tuple[float, Optional[Link]]:
    """Return the share of the fullest link (0..1, above where the model is wrong), and which one it is.

    `rates`: bytes/s of objects by PUT and GET, all clients together.
    """
    sums: Dict[Link, float] = {}
    for op, rate in rates.items():
        for link, load in loads(layout, op).items():
            _add(sums, link, rate * load)
    used = {link: rate / nics.of(link[0], link[2]) for link, rate in sums.items() if rate > 0}
    if not used:
        return 0.0, None
    fullest = max(used, key=lambda link: used[link])
    return used[fullest], fullest


def ceiling(layout: Layout, op: str, nics: Nics) -> Ceiling:
    """Return the most bytes/s that PUTs or GETs alone can reach."""
    share, link = usage(layout, {op: 1.0}, nics)
    return Ceiling(1 / share if share else math.inf, transfers(layout, op), link)


def _parts(weights: Mapping[str, float]) -> Dict[str, float]:
    total = sum(weights.values())
    return {node: weight / total for node, weight in weights.items()}


def _add(sums: Dict[Link, float], link: Link, load: float) -> None:
    sums[link] = sums.get(link, 0.0) + load
