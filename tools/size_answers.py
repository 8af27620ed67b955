"""Answers of `cbt-tools size`: the models of docs/MODELS.md with numbers, as data and as text."""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from cbt_plugins.ceph_df import Space
from cbt_plugins.config.units import about_link, about_rate, format_duration
from cbt_plugins.formatting import DECIMAL_UNITS, about_size, percent, signed_percent
from cbt_plugins.models import capacity as capacity_model
from cbt_plugins.models import closed_loop, pools
from cbt_plugins.models import network as network_model
from cbt_plugins.models.pools import Redundancy
from cbt_plugins.s3_operations import WRITES


@dataclass(frozen=True)
class Answer:
    """`data` in bytes, seconds and shares of 1; `lines` for people."""

    data: Dict[str, Any]
    lines: List[str]

    @classmethod
    def of(cls, data: Dict[str, Any], lines: Sequence[Tuple[str, str]]) -> Answer:
        """Return the data with (name, text) lines, whose texts are aligned."""
        width = max((len(name) for name, _ in lines), default=0)
        return cls(data, [f"{name:{width}}  {text}" for name, text in lines])


def both(number: float) -> str:
    """Return bytes in powers of two and of ten: 63498100 -> "60.6 MiB (63.5 MB)"."""
    for unit, factor in reversed(DECIMAL_UNITS.items()):
        if number >= factor:
            return f"{about_size(number)} ({number / factor:.4g} {unit})"
    return about_size(number)


def capacity(args: argparse.Namespace) -> Answer:
    """Compute how many objects fit, and the space that they take."""
    data: Dict[str, Any] = {}
    lines: List[Tuple[str, str]] = []
    available = _available(args, data, lines)
    sizes = args.sizes
    if args.cosbench:
        if not sizes:
            raise ValueError("--cosbench needs --sizes")
        sizes = capacity_model.as_cosbench_draws(sizes)
    if sizes:
        mean = data["mean_size"] = capacity_model.mean_size(sizes)
        drawn = f", COSBench's weights {', '.join(f'{weight:g}' for _, _, weight in sizes)}" if args.cosbench else ""
        lines.append(("mean size", f"{both(mean)}{drawn}"))
        if args.pool:
            raw = capacity_model.raw_mean(sizes, args.pool, args.min_alloc)
            data.update(raw_per_object=raw, raw_share=raw / mean if mean else None)
            least = args.pool.size / args.pool.k
            details = f"{raw / mean:.3g} x its size ({least:.3g} x without rounding up)" if mean else "though empty"
            lines.append(("on the disks", f"{both(raw)} per object: {details}"))
    if args.fill is not None:
        if available is None or not sizes or not data["mean_size"]:
            raise ValueError("--fill needs sizes (--sizes) and space (--raw and --pool, --available or --df)")
        each = capacity_model.objects_per_bucket(available, args.fill, data["mean_size"], args.buckets)
        objects = each * args.buckets
        data.update(fill=args.fill, objects_per_bucket=each, objects=objects)
        of = f"{percent(args.fill)} of the available space"
        lines.append(("objects", f"{each:,} in each of {args.buckets}, {objects:,} in total, fill {of}"))
        if "raw_per_object" in data and data.get("raw"):
            data["raw_used"] = objects * data["raw_per_object"] / data["raw"]
            lines.append(("", f"and take {percent(data['raw_used'])} of the raw space"))
    if args.per_day:
        data["per_second"] = capacity_model.per_second(args.per_day)
        lines.append(("a day", f"{args.per_day:,} objects are {about_rate(data['per_second'])}"))
    if not lines:
        raise ValueError("nothing to calculate; see --help")
    return Answer.of(data, lines)


def _available(args: argparse.Namespace, data: Dict[str, Any], lines: List[Tuple[str, str]]) -> Optional[float]:
    """Return the bytes that clients can write, and add them to the answer."""
    if sum(bool(value) for value in (args.df, args.raw, args.available)) > 1:
        raise ValueError("one of --df, --raw and --available is enough")
    if args.raw:
        if not args.pool:
            raise ValueError("--raw needs --pool: the redundancy of the pool")
        available = capacity_model.max_avail(args.raw, args.pool, args.full)
        data.update(raw=args.raw, usable=args.pool.usable, available=available)
        lines.append(("raw space", both(args.raw)))
        kept = f"{args.pool}: {percent(args.pool.usable)} usable, up to {percent(args.full)} full"
        lines.append(("available", f"{both(available)} ({kept})"))
        return available
    if args.df:
        space = _space(args.df)
        pool = space.data_pool(args.data_pool)
        data.update(raw=space.total, raw_used_before=space.used_share, available=pool.max_avail, pool=pool.name)
        lines.append(("raw space", f"{both(space.total)}, {percent(space.used_share)} used"))
        used = capacity_model.used_share(pool.stored, pool.max_avail) if pool.stored else 0.0
        text = f"{both(pool.max_avail)} in {pool.name}: {percent(used)} used, {pool.objects:,} objects"
        lines.append(("available", text))
        if args.pool:
            expected = capacity_model.max_avail(space.total, args.pool, args.full) - space.used * args.pool.usable
            data["of_expected"] = pool.max_avail / expected if expected > 0 else None
            share_text = percent(pool.max_avail / expected) if expected > 0 else "unknown part"
            text = f"of the raw space that is free below {percent(args.full)} / overhead of {args.pool}"
            lines.append(("", f"{share_text} {text}: less where some OSDs are fuller"))
        return float(pool.max_avail)
    if args.available:
        data["available"] = args.available
        lines.append(("available", both(args.available)))
        return float(args.available)
    return None


def _space(file: str) -> Space:
    text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    try:
        return Space.parse(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{file}: not an output of `ceph df -f json` ({type(error).__name__}: {error})") from error


def pgs(args: argparse.Namespace) -> Answer:
    """Compute the placement groups of each pool, as Ceph's PG calculator does."""
    wanted = [*(pools.rgw_pools(args.data) if args.data else []), *map(_pool, args.pool)]
    if not wanted:
        raise ValueError("no pools: give --data 4+2 for the pools of an RGW, or --pool NAME=PERCENT/REDUNDANCY")
    for pool in wanted:
        if pool.kept.size > args.osds:
            raise ValueError(f"{pool.name}: {pool.kept}: needs {pool.kept.size} OSDs, there are {args.osds}")
    table = pools.table(wanted, args.osds, args.target)
    members = pools.members_per_osd([(number, pool.kept.size) for pool, number in table], args.osds)
    total = sum(pool.percent for pool in wanted)
    width = max(len(pool.name) for pool in wanted)
    lines = [f"{pool.name:{width}}  {number:>6}  {pool.percent:5g} %  {pool.kept}" for pool, number in table]
    lines.append(f"{members:.0f} PG members on each of {args.osds} OSDs; the pools hold {total:g} % of the data")
    if members > pools.MAX_PER_OSD:
        lines.append(f"more than mon_max_pg_per_osd ({pools.MAX_PER_OSD} by default): Ceph would refuse these pools")
    data = {
        "osds": args.osds,
        "pools": [
            {"name": pool.name, "percent": pool.percent, "size": pool.kept.size, "pgs": number}
            for pool, number in table
        ],
        "members_per_osd": members,
    }
    return Answer(data, lines)


def _pool(text: str) -> pools.Pool:
    name, equal, value = text.partition("=")
    percent_, slash, kept = value.partition("/")
    if not (name and equal and slash and percent_.replace(".", "", 1).isdigit()):
        raise ValueError(f"--pool {text}: write NAME=PERCENT/REDUNDANCY, such as images=25/3")
    return pools.Pool(name, float(percent_), Redundancy.parse(kept))


def odds(args: argparse.Namespace) -> Answer:
    """Compute the share of the placement groups that is inactive while nodes are down."""
    pool: Redundancy = args.pool
    if args.down > args.nodes:
        raise ValueError(f"--down {args.down} is more than --nodes {args.nodes}")
    if pool.size > args.nodes:
        raise ValueError(f"{pool}: needs {pool.size} nodes, there are {args.nodes}")
    least = args.min_size or (pool.k + min(1, pool.m) if pool.k > 1 else pool.size - pool.size // 2)
    if least > pool.size:
        raise ValueError(f"min_size {least} is more than the {pool.size} members of a PG")
    domains = pools.failed_domains(args.down, args.nodes)
    lost = pools.members_lost(domains, pool.size)
    inactive = pools.inactive_share(domains, pool.size, least)
    lines = [(f"{percent(share)}", f"of the PGs lose {n} of {pool.size}") for n, share in enumerate(lost) if share]
    lines.append((percent(inactive), f"are inactive: fewer than min_size {least} are left"))
    return Answer.of({"min_size": least, "members_lost": lost, "inactive": inactive}, lines)


def network(args: argparse.Namespace) -> Answer:
    """Compute the highest throughput that the network interfaces allow."""
    of = network_model.layout(
        args.nodes,
        args.pool,
        clients=args.clients,
        gateways=args.gateways,
        osds_per_node=args.osds_per_node,
        apart=args.apart,
        cluster_network=args.cluster_nic is not None,
        fast_read=args.fast_read,
    )
    for own, speed, message in (
        (args.clients, args.client_nic, "--client-nic needs --clients: clients on separate nodes"),
        (args.gateways, args.gateway_nic, "--gateway-nic needs --gateways: gateways on separate nodes"),
    ):
        if speed and not own:
            raise ValueError(message)
    speeds = dict.fromkeys(of.osds, args.nic)
    for nodes, speed in ((of.clients, args.client_nic), (of.gateways, args.gateway_nic)):
        speeds.update({node: speed or args.nic for node in nodes if node not in of.osds})
    nics = network_model.Nics(speeds, args.cluster_nic)
    data: Dict[str, Any] = {"aggregate": args.nic * args.nodes}
    where = "on the OSDs' nodes" if args.clients is None else f"on {args.clients} separate nodes"
    lines = [("layout", f"{args.nodes} nodes with {about_link(args.nic)}, {of.pool}; clients {where}")]
    for op, measured in ((network_model.PUT, args.put), (network_model.GET, args.get)):
        ceiling = network_model.ceiling(of, op, nics)
        most = None if math.isinf(ceiling.bytes_per_s) else ceiling.bytes_per_s
        data[op.lower()] = {"transfers": ceiling.transfers, "bytes_per_s": most, "link": ceiling.link}
        if most is None or ceiling.link is None:
            lines.append((op, "nothing crosses an interface"))
            continue
        share = percent(most / (args.nic * args.nodes))
        lines.append((op, f"{ceiling.transfers:.3g} transfers of an object"))
        lines.append(("", f"at most {both(most)}/s, {share} of the OSD nodes' {both(args.nic * args.nodes)}/s"))
        lines.append(("", f"first bottleneck: what {ceiling.link[0]} {ceiling.link[1]} ({ceiling.link[2]} network)"))
        if measured:
            data[op.lower()]["measured"] = measured / most
            lines.append(("", f"{both(measured)}/s measured: {percent(measured / most)} of the ceiling"))
    if args.put and args.get:
        together, link = network_model.usage(of, {network_model.PUT: args.put, network_model.GET: args.get}, nics)
        data["together"] = together
        of_link = f"{percent(together)} of what {' '.join((link or ('', ''))[:2])}"
        lines.append(("both", f"at the same time they would use {of_link}"))
    return Answer.of(data, lines)


def workers(args: argparse.Namespace) -> Answer:
    """Apply Little's law: requests in flight, throughput, latency, and the workers that a latency allows."""
    data: Dict[str, Any] = {}
    lines: List[Tuple[str, str]] = []
    if args.op:
        in_flight = data["in_flight"] = closed_loop.in_flight(args.op)
        lines.append(("in flight", f"{in_flight:.2f} requests on average, which need as many workers in a closed loop"))
        if args.workers:
            off = data["deviation"] = closed_loop.deviation(in_flight, args.workers) or 0.0
            beyond = ": more than 5 % off" if abs(off) > 0.05 else ""
            lines.append(("workers", f"{args.workers} were used: a difference of {signed_percent(off)}{beyond}"))
    elif args.workers and args.latency:
        data["throughput"] = closed_loop.throughput(args.workers, args.latency)
        lines.append(("throughput", f"{about_rate(data['throughput'])}"))
    elif args.workers and args.rate:
        data["latency"] = closed_loop.mean_latency(args.workers, args.rate)
        lines.append(("latency", f"{1000 * data['latency']:.4g} ms on average"))
    if args.step or args.target:
        if not (args.step and args.target):
            raise ValueError(
                "a sweep needs several --step (such as 8@12ms) and --target, the highest acceptable "
                "latency"
            )
        sized = closed_loop.size_workers(args.step, args.target)
        data.update(size=sized.workers, next=sized.next, production=sized.production)
        if sized.workers is None:
            lines.append(("workers", f"already {sized.next:g} are too many: use fewer workers, or more hardware"))
        else:
            after = f"{sized.next:g} are too many" if sized.next else "the sweep has no higher step"
            lines.append(("workers", f"{sized.workers:g} at most; {after}"))
            lines.append(("production", f"{sized.production:g} (80 % of that)"))
    if not lines:
        raise ValueError("nothing to calculate; give --op, --workers with --latency or --rate, or --step with --target")
    return Answer.of(data, lines)


def mix(args: argparse.Namespace) -> Answer:
    """Compute how a mix changes the number of objects, and how full a range of keys gets."""
    put, delete = sum(args.mix.get(op, 0.0) for op in WRITES), args.mix.get("DELETE", 0.0)
    growth = capacity_model.growth(args.mix)
    data: Dict[str, Any] = {"growth_per_100": growth}
    lines = [("new keys", f"{growth:+g} objects per 100 requests, if DELETE removes existing objects")]
    if put + delete:
        end = data["steady_occupancy"] = capacity_model.steady_occupancy(put, delete)
        lines.append(("any keys", f"a range becomes {percent(end)} full, if PUT and DELETE take random keys of it"))
    if (args.rate or args.seconds) and not args.keys:
        raise ValueError("--rate and --for need a range of keys: --keys")
    if args.keys and put + delete:
        _time_course(args, data, lines, put, delete)
    return Answer.of(data, lines)


def _time_course(
    args: argparse.Namespace, data: Dict[str, Any], lines: List[Tuple[str, str]], put: float, delete: float
) -> None:
    end = data["steady_occupancy"]
    near = end + (0.01 if args.start > end else -0.01)
    needed = 0.0
    if abs(args.start - end) > 0.01:
        needed = capacity_model.requests_until(args.start, near, args.keys, put, delete)
    requests = data["requests_to_steady"] = needed / (put + delete) * 100
    text = f"{requests:,.0f} requests"
    if args.rate:
        data["seconds_to_steady"] = requests / args.rate
        text += f", {format_duration(round(requests / args.rate))} at {about_rate(args.rate)}"
    lines.append(("", f"from {percent(args.start)} full, the range is within 1 point of it after {text}"))
    if args.rate and args.seconds:
        number = args.rate * args.seconds / 100
        share = data["occupancy"] = capacity_model.occupancy(args.start, args.keys, number * put, number * delete)
        objects = data["objects"] = share * args.keys
        lines.append(("", f"after {format_duration(args.seconds)} it is {percent(share)} full: {objects:,.0f} objects"))


def scale(args: argparse.Namespace) -> Answer:
    """Compare the gain in throughput with the nodes that were added."""
    before, after = args.nodes
    efficiency = closed_loop.efficiency(args.gain, before, after)
    added = closed_loop.relative_change(before, after)
    expected = closed_loop.latency_change(args.gain)
    lines = [
        (
            "efficiency",
            f"{percent(efficiency)}: {signed_percent(args.gain, 'g')} throughput from {signed_percent(added)} nodes",
        ),
        ("latency", f"{signed_percent(expected)} in a closed loop with as many requests in flight (Little's law)"),
    ]
    data = {"efficiency": efficiency, "added": added, "latency_change": expected}
    if args.latency is not None:
        flying = (1 + args.gain) * (1 + args.latency) - 1
        data["in_flight_change"] = flying
        observed = signed_percent(args.latency, "g")
        lines.append(("", f"{observed} was observed: {signed_percent(flying)} requests in flight"))
    return Answer.of(data, lines)
