"""`cbt-tools size network`, `workers`, `mix` and `scale`."""

from __future__ import annotations

import argparse
import math
from typing import Any, Dict, List, Tuple

from cbt_plugins.config.units import about_link, about_rate, format_duration
from cbt_plugins.models import aging, little
from cbt_plugins.models import network as models
from cbt_plugins.models import scale as scaling

from .size_answer import Answer, answer, both, percent


def network(args: argparse.Namespace) -> Answer:
    """the most that clients can read and write, by the interfaces' speed"""
    of = models.layout(
        args.nodes,
        args.pool,
        clients=args.clients,
        gateways=args.gateways,
        osds_per_node=args.osds_per_node,
        apart=args.apart,
        cluster_network=args.cluster_nic is not None,
        fast_read=args.fast_read,
    )
    for own, speed, what in (
        (args.clients, args.client_nic, "--client-nic is about nodes of their own: --clients"),
        (args.gateways, args.gateway_nic, "--gateway-nic is about nodes of their own: --gateways"),
    ):
        if speed and not own:
            raise ValueError(what)
    speeds = dict.fromkeys(of.osds, args.nic)
    for nodes, speed in ((of.clients, args.client_nic), (of.gateways, args.gateway_nic)):
        speeds.update({node: speed or args.nic for node in nodes if node not in of.osds})
    nics = models.Nics(speeds, args.cluster_nic)
    data: Dict[str, Any] = {"aggregate": args.nic * args.nodes}
    where = "on the OSDs' nodes" if args.clients is None else f"on {args.clients} nodes of their own"
    told = [("layout", f"{args.nodes} nodes with {about_link(args.nic)}, {of.pool}; clients {where}")]
    for op, measured in ((models.PUT, args.put), (models.GET, args.get)):
        found = models.ceiling(of, op, nics)
        most = None if math.isinf(found.bytes_per_s) else found.bytes_per_s
        data[op.lower()] = {"transfers": found.transfers, "bytes_per_s": most, "link": found.link}
        if most is None or found.link is None:
            told.append((op, "nothing crosses an interface"))
            continue
        share = percent(most / (args.nic * args.nodes))
        told.append((op, f"{found.transfers:.3g} transfers of an object"))
        told.append(("", f"at most {both(most)}/s, {share} of the OSD nodes' {both(args.nic * args.nodes)}/s"))
        told.append(("", f"full first: what {found.link[0]} {found.link[1]} ({found.link[2]} network)"))
        if measured:
            data[op.lower()]["measured"] = measured / most
            told.append(("", f"{both(measured)}/s measured: {percent(measured / most)} of that"))
    if args.put and args.get:
        together, link = models.usage(of, {models.PUT: args.put, models.GET: args.get}, nics)
        data["together"] = together
        told.append(("both", f"at once they would use {percent(together)} of what {' '.join((link or ('', ''))[:2])}"))
    return answer(data, told)


def workers(args: argparse.Namespace) -> Answer:
    """Little's law: requests in flight, throughput, latency, and the workers that a latency allows"""
    data: Dict[str, Any] = {}
    told: List[Tuple[str, str]] = []
    if args.op:
        found = data["in_flight"] = little.in_flight(args.op)
        told.append(("in flight", f"{found:.2f} requests in the mean: that many workers of a closed loop"))
        if args.workers:
            off = data["deviation"] = little.deviation(found, args.workers) or 0.0
            beyond = ": more than 5 % off" if abs(off) > 0.05 else ""
            told.append(("workers", f"{args.workers} were there, which is {100 * off:+.1f} %{beyond}"))
    elif args.workers and args.latency:
        data["throughput"] = little.throughput(args.workers, args.latency)
        told.append(("throughput", f"{about_rate(data['throughput'])}"))
    elif args.workers and args.rate:
        data["latency"] = little.latency(args.workers, args.rate)
        told.append(("latency", f"{1000 * data['latency']:.4g} ms in the mean"))
    if args.step or args.target:
        if not (args.step and args.target):
            raise ValueError("a sweep needs its steps (--step 8@12ms, again) and --target, the highest latency")
        sized = little.size_workers(args.step, args.target)
        data.update(size=sized.workers, next=sized.next, production=sized.production)
        if sized.workers is None:
            told.append(("workers", f"{sized.next:g} are too many already: fewer, or more hardware"))
        else:
            after = f"{sized.next:g} are too many" if sized.next else "the sweep has no step beyond"
            told.append(("workers", f"{sized.workers:g} at most; {after}"))
            told.append(("production", f"{sized.production:g} (80 % of that)"))
    if not told:
        raise ValueError("nothing to calculate; give --op, --workers with --latency or --rate, or --step with --target")
    return answer(data, told)


def mix(args: argparse.Namespace) -> Answer:
    """how the number of objects changes under a mix, and how full a range of keys gets"""
    put, delete = args.mix.get("PUT", 0.0) + args.mix.get("MULTIPART", 0.0), args.mix.get("DELETE", 0.0)
    growth = aging.growth(args.mix)
    data: Dict[str, Any] = {"growth_per_100": growth}
    told = [("new keys", f"{growth:+g} objects per 100 requests, where DELETE takes objects that are there")]
    if put + delete:
        end = data["steady_occupancy"] = aging.steady_occupancy(put, delete)
        told.append(("any keys", f"a range tends to be {percent(end)} full, where PUT and DELETE do not look"))
    if (args.rate or args.seconds) and not args.keys:
        raise ValueError("--rate and --for are about a range of keys: --keys")
    if args.keys and put + delete:
        _time_course(args, data, told, put, delete)
    return answer(data, told)


def _time_course(
    args: argparse.Namespace, data: Dict[str, Any], told: List[Tuple[str, str]], put: float, delete: float
) -> None:
    end = data["steady_occupancy"]
    near = end + (0.01 if args.start > end else -0.01)
    needed = 0.0 if abs(args.start - end) <= 0.01 else aging.requests_until(args.start, near, args.keys, put, delete)
    requests = data["requests_to_steady"] = needed / (put + delete) * 100
    text = f"{requests:,.0f} requests"
    if args.rate:
        data["seconds_to_steady"] = requests / args.rate
        text += f", {format_duration(round(requests / args.rate))} at {about_rate(args.rate)}"
    told.append(("", f"from {percent(args.start)} it is within 1 point of that after {text}"))
    if args.rate and args.seconds:
        number = args.rate * args.seconds / 100
        share = data["occupancy"] = aging.occupancy(args.start, args.keys, number * put, number * delete)
        objects = data["objects"] = share * args.keys
        told.append(("", f"after {format_duration(args.seconds)} it is {percent(share)} full: {objects:,.0f} objects"))


def scale(args: argparse.Namespace) -> Answer:
    """what more nodes gave, against what they could have given"""
    before, after = args.nodes
    found = scaling.efficiency(args.gain, before, after)
    added = scaling.change(before, after)
    expected = little.latency_change(args.gain)
    told = [
        ("efficiency", f"{percent(found)}: {100 * args.gain:+g} % of throughput from {100 * added:+.1f} % of nodes"),
        ("latency", f"{100 * expected:+.1f} % in a closed loop with as many requests in flight (Little's law)"),
    ]
    data = {"efficiency": found, "added": added, "latency_change": expected}
    if args.latency is not None:
        flying = (1 + args.gain) * (1 + args.latency) - 1
        data["in_flight_change"] = flying
        told.append(("", f"{100 * args.latency:+g} % was seen: {100 * flying:+.1f} % of requests in flight"))
    return answer(data, told)
