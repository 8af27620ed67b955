"""The network model against every possible placement, counted one by one, and against the study's own arithmetic."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from fractions import Fraction
from typing import Dict, Iterator, List, Sequence, Tuple

import pytest

from cbt_plugins.models.network import (
    CLUSTER,
    GET,
    PUBLIC,
    PUT,
    RECEIVES,
    SENDS,
    Ceiling,
    Layout,
    Link,
    Nics,
    between_osds,
    ceiling,
    distribution,
    layout,
    loads,
    transfers,
    usage,
)
from cbt_plugins.models.pools import Redundancy, copies

EC22, EC42, THREE = Redundancy(2, 2), Redundancy(4, 2), copies(3)


def placements(of: Layout) -> Iterator[Tuple[str, str, List[str]]]:
    """Every client, gateway (or none) and ordered choice of a PG's OSDs, each as likely as any other."""
    osds = [(node, i) for node, number in of.osds.items() for i in range(number)]
    for members in itertools.permutations(osds, of.pool.size):
        nodes = [node for node, _ in members]
        if of.apart == "host" and len(set(nodes)) < len(nodes):
            continue
        for client in of.clients:
            for gateway in of.gateways or [""]:
                yield client, gateway, nodes


Move = Tuple[str, str, Fraction]


def moves(of: Layout, op: str, client: str, gateway: str, members: Sequence[str]) -> Iterator[Move]:
    """(from, to, part of an object) of one request; also those that stay on a node."""
    way = [client, gateway, members[0]] if gateway else [client, members[0]]
    one, chunk = Fraction(1), Fraction(1, of.pool.k)
    if op == PUT:
        yield from ((a, b, one) for a, b in zip(way, way[1:]))
        yield from ((members[0], other, chunk) for other in members[1:])
    else:
        others = members[1:] if of.fast_read and of.pool.k > 1 else members[1 : of.pool.k]
        yield from ((other, members[0], chunk) for other in others)
        yield from ((b, a, one) for a, b in zip(way, way[1:]))


def counted(of: Layout, op: str) -> Tuple[Dict[Link, Fraction], Dict[Fraction, Fraction]]:
    """Load of each link, and how often each number of transfers comes: by trying all."""
    sums: Dict[Link, Fraction] = Counter()  # type: ignore[assignment]
    numbers: Dict[Fraction, int] = Counter()
    total = 0
    for client, gateway, members in placements(of):
        total += 1
        crossed = Fraction(0)
        hops = 2 if of.gateways else 1
        its = list(moves(of, op, client, gateway, members))
        public = its[:hops] if op == PUT else its[len(its) - hops :]
        for move in its:
            source, target, part = move
            if source != target:
                network = CLUSTER if of.cluster_network and not any(move is one for one in public) else PUBLIC
                sums[source, SENDS, network] += part
                sums[target, RECEIVES, network] += part
                crossed += part
        numbers[crossed] += 1
    return {link: load / total for link, load in sums.items()}, {n: Fraction(c, total) for n, c in numbers.items()}


LAYOUTS = {
    "all on three nodes": layout(3, THREE),
    "all on five nodes": layout(5, THREE),
    "two copies": layout(4, copies(2)),
    "one copy": layout(4, copies(1)),
    "one node": layout(1, copies(1)),
    "erasure code": layout(5, EC22),
    "erasure code, own clients": layout(4, EC22, clients=3),
    "fast read": layout(5, EC22, fast_read=True),
    "own gateways": layout(4, THREE, clients=2, gateways=3),
    "gateways with the clients": Layout(dict.fromkeys("abc", 1), {"x": 1, "y": 1}, {"x": 1, "y": 1}, THREE),
    "gateways on two of four": Layout(dict.fromkeys("abcd", 1), {"x": 1}, {"a": 1, "b": 1}, THREE),
    "RBD, own clients": layout(4, THREE, clients=2, gateways=0),
    "RBD, all on the nodes": layout(4, THREE, gateways=0),
    "members on any OSD": layout(2, THREE, osds_per_node=3, apart="osd"),
    "members on any OSD, one node": layout(1, THREE, osds_per_node=4, apart="osd"),
    "erasure code on any OSD": layout(3, EC22, osds_per_node=2, apart="osd", clients=1),
    "unequal nodes, any OSD": Layout({"a": 3, "b": 2, "c": 1}, {"a": 1, "x": 1}, {"b": 1, "c": 1}, THREE, "osd"),
    "unequal nodes, erasure code": Layout({"a": 3, "b": 2, "c": 1}, {"x": 1}, {"a": 1}, EC22, "osd"),
    "one gateway beside OSDs and all clients": Layout(dict.fromkeys("abc", 1), {"a": 1}, {"a": 1, "x": 1}, THREE),
    "cluster network": layout(4, THREE, osds_per_node=2, cluster_network=True),
    "cluster network, erasure code": layout(4, EC22, gateways=2, cluster_network=True),
}


@pytest.mark.parametrize("op", [PUT, GET])
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_link_as_counted(name: str, op: str) -> None:
    of = LAYOUTS[name]
    by_link, by_number = counted(of, op)
    made = loads(of, op)
    for link in {*by_link, *made}:
        # primaries follow the number of OSDs, so with unequal nodes placements are as likely as one another too
        assert made.get(link, 0.0) == pytest.approx(float(by_link.get(link, 0)), abs=1e-12), link
    assert transfers(of, op) == pytest.approx(float(sum(n * chance for n, chance in by_number.items())))
    if of.apart == "host":
        assert distribution(of, op) == pytest.approx({float(n): float(chance) for n, chance in by_number.items()})


@pytest.mark.parametrize("n", [3, 5, 8, 10, 100])
@pytest.mark.parametrize("pool", [THREE, copies(2), EC42, EC22])
def test_the_general_formulas(n: int, pool: Redundancy) -> None:
    if n < pool.size:
        return
    near = (n - 1) / n
    assert transfers(layout(n, pool), PUT) == pytest.approx(2 * near + (pool.size - 1) / pool.k)
    assert transfers(layout(n, pool), GET) == pytest.approx(2 * near + (pool.k - 1) / pool.k)
    assert transfers(layout(n, pool, clients=4), PUT) == pytest.approx(1 + near + (pool.size - 1) / pool.k)
    assert transfers(layout(n, pool, clients=4, gateways=0), GET) == pytest.approx(1 + (pool.k - 1) / pool.k)
    assert transfers(layout(n, pool, gateways=0), PUT) == pytest.approx(near + (pool.size - 1) / pool.k)


def test_what_the_reef_study_prints() -> None:
    of = layout(10, THREE)
    assert distribution(of, PUT) == pytest.approx({2: 0.01, 3: 0.18, 4: 0.81})
    assert distribution(of, GET) == pytest.approx({0: 0.01, 1: 0.18, 2: 0.81})
    nics = Nics(100e9 / 8)
    assert ceiling(of, PUT, nics).bytes_per_s == pytest.approx(125e9 / 3.8)
    assert ceiling(of, GET, nics).bytes_per_s == pytest.approx(125e9 / 1.8)
    rbd = layout(10, THREE, clients=10, gateways=0)
    assert distribution(rbd, PUT) == {3.0: 1.0}
    assert ceiling(rbd, PUT, nics).bytes_per_s == pytest.approx(125e9 / 3)


def test_large_clusters_by_chance() -> None:
    """EC 8+3 on 20 nodes of 12 OSDs, failure domain osd: too many placements to try all."""
    chance = random.Random(7)
    pool, nodes, each = Redundancy(8, 3), 20, 12
    of = layout(nodes, pool, osds_per_node=each, apart="osd", clients=5)
    tries, crossed = 20_000, 0.0
    for _ in range(tries):
        gateway = chance.randrange(nodes)
        members = [osd // each for osd in chance.sample(range(nodes * each), pool.size)]
        crossed += 1 + (gateway != members[0]) + sum(other != members[0] for other in members[1:]) / pool.k
    assert transfers(of, PUT) == pytest.approx(crossed / tries, abs=0.01)


def test_a_slow_client_network_is_the_limit() -> None:
    of = layout(10, THREE, clients=2)
    found = ceiling(of, GET, Nics(dict.fromkeys(of.osds, 12.5e9) | dict.fromkeys(of.clients, 1.25e9)))
    assert found == Ceiling(2.5e9, pytest.approx(1.9), ("client1", RECEIVES, PUBLIC))


def test_a_cluster_network_of_its_own() -> None:
    of = layout(10, THREE, clients=100, cluster_network=True)
    narrow = ceiling(of, PUT, Nics(12.5e9, 1.25e9))
    assert narrow.bytes_per_s == pytest.approx(12.5e9 / 2)  # each copy leaves its primary twice
    assert narrow.link is not None and narrow.link[2] == CLUSTER
    assert ceiling(of, PUT, Nics(12.5e9)).bytes_per_s == pytest.approx(125e9 / 2)
    assert ceiling(of, GET, Nics(12.5e9, 1.25e9)).bytes_per_s == pytest.approx(125e9 / 1.9)


def test_nothing_crosses_a_link_on_one_node() -> None:
    of = layout(1, copies(1))
    assert ceiling(of, PUT, Nics(1.0)) == Ceiling(math.inf, 0.0, None)
    assert usage(of, {PUT: 5.0}, Nics(1.0)) == (0.0, None)


def test_reads_and_writes_share_links() -> None:
    """With all on the same nodes both are in each direction of each link."""
    of, nics = layout(10, THREE), Nics(1.0)
    share, link = usage(of, {PUT: 1.0, GET: 1.0}, nics)
    assert share == pytest.approx((3.8 + 1.8) / 10)
    assert link is not None
    # clients of their own send what they write and receive what they read: these do not add up
    apart = layout(10, THREE, clients=1)
    share, link = usage(apart, {PUT: 0.5, GET: 0.5}, Nics(1.0))
    assert (share, link) == (pytest.approx(0.5), ("client1", SENDS, PUBLIC))


def test_between_osds() -> None:
    assert [between_osds(pool, PUT) for pool in (copies(1), THREE, EC42)] == [0, 2, 1.25]
    assert [between_osds(pool, GET) for pool in (copies(1), THREE, EC42)] == [0, 0, 0.75]
    assert [between_osds(pool, GET, fast_read=True) for pool in (THREE, EC42)] == [0, 1.25]


@pytest.mark.parametrize(
    ("of", "text"),
    [
        (lambda: layout(5, EC42), "EC 4.2: needs 6 nodes, there are 5"),
        (lambda: layout(1, THREE), "3 copies: needs 3 nodes, there is 1"),
        (lambda: layout(1, EC42, osds_per_node=5, apart="osd"), "EC 4.2: needs 6 OSDs, there are 5"),
        (lambda: layout(0, THREE), "a layout needs clients, and nodes with OSDs"),
        (lambda: layout(3, THREE, clients=0), "a layout needs clients, and nodes with OSDs"),
    ],
)
def test_what_cannot_be(of: object, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        of()  # type: ignore[operator]


def test_pools_in_words() -> None:
    for text, pool in [("3", THREE), ("1", copies(1)), ("4+2", EC42), ("EC 4+2", EC42), ("ec4 + 2", EC42)]:
        assert Redundancy.parse(text) == pool
    assert Redundancy.parse(str(THREE)) == THREE
    assert [str(pool) for pool in (THREE, EC42, copies(1))] == ["3 copies", "EC 4+2", "1 copy"]
    assert (THREE.usable, EC42.usable, EC42.size) == (1 / 3, 4 / 6, 6)
    for wrong in ("", "0", "4+", "1+2", "three"):
        with pytest.raises(ValueError, match=r"pool|erasure code"):
            Redundancy.parse(wrong)
