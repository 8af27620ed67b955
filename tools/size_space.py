"""`cbt-tools size capacity`, `pgs` and `odds`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from cbt_plugins.cluster.space import Space
from cbt_plugins.config.units import about_rate
from cbt_plugins.models import availability, pgcalc
from cbt_plugins.models import capacity as models
from cbt_plugins.models.redundancy import Redundancy

from .size_answer import Answer, answer, both, percent


def capacity(args: argparse.Namespace) -> Answer:
    """how many objects fill a cluster, and what they take"""
    data: Dict[str, Any] = {}
    told: List[Tuple[str, str]] = []
    available = _available(args, data, told)
    sizes = args.sizes
    if args.cosbench:
        if not sizes:
            raise ValueError("--cosbench is about --sizes")
        sizes = models.as_cosbench_draws(sizes)
    if sizes:
        mean = data["mean_size"] = models.mean_size(sizes)
        drawn = f" as COSBench draws: {', '.join(f'{weight:g}' for _, _, weight in sizes)}" if args.cosbench else ""
        told.append(("mean size", f"{both(mean)}{drawn}"))
        if args.pool:
            raw = models.raw_mean(sizes, args.pool, args.min_alloc)
            data.update(raw_per_object=raw, raw_share=raw / mean if mean else None)
            least = args.pool.size / args.pool.k
            more = f"{raw / mean:.3g} x its size, {least:.3g} x without rounding up" if mean else "though empty"
            told.append(("on the disks", f"{both(raw)} an object: {more}"))
    if args.fill is not None:
        if available is None or not sizes or not data["mean_size"]:
            raise ValueError("--fill needs sizes (--sizes) and space (--raw and --pool, --available or --df)")
        each = models.number_of_objects(available, args.fill, data["mean_size"], args.buckets)
        objects = each * args.buckets
        data.update(fill=args.fill, objects_per_bucket=each, objects=objects)
        of = f"{percent(args.fill)} of what is available"
        told.append(("objects", f"{each:,} in each of {args.buckets}, {objects:,} in all, are {of}"))
        if "raw_per_object" in data and data.get("raw"):
            data["raw_used"] = objects * data["raw_per_object"] / data["raw"]
            told.append(("", f"and take {percent(data['raw_used'])} of the raw space"))
    if args.per_day:
        data["per_second"] = models.per_second(args.per_day)
        told.append(("a day", f"{args.per_day:,} objects are {about_rate(data['per_second'])}"))
    if not told:
        raise ValueError("nothing to calculate; see --help")
    return answer(data, told)


def _available(args: argparse.Namespace, data: Dict[str, Any], told: List[Tuple[str, str]]) -> Optional[float]:
    """Say what clients can write, and return it."""
    if sum(bool(value) for value in (args.df, args.raw, args.available)) > 1:
        raise ValueError("one of --df, --raw and --available is enough")
    if args.raw:
        if not args.pool:
            raise ValueError("--raw needs --pool: how it keeps data")
        available = models.max_avail(args.raw, args.pool, args.full)
        data.update(raw=args.raw, usable=args.pool.usable, available=available)
        told.append(("raw space", both(args.raw)))
        kept = f"{args.pool}: {percent(args.pool.usable)} usable, up to {percent(args.full)} full"
        told.append(("available", f"{both(available)} ({kept})"))
        return available
    if args.df:
        space = _space(args.df)
        pool = space.data_pool(args.data_pool)
        data.update(raw=space.total, raw_used_before=space.used_share, available=pool.max_avail, pool=pool.name)
        told.append(("raw space", f"{both(space.total)}, {percent(space.used_share)} used"))
        used = models.percent_used(pool.stored, pool.max_avail) if pool.stored else 0.0
        text = f"{both(pool.max_avail)} in {pool.name}: {percent(used)} used, {pool.objects:,} objects"
        told.append(("available", text))
        if args.pool:
            expected = models.max_avail(space.total - space.used, args.pool, args.full)
            data["of_expected"] = pool.max_avail / expected
            told.append(("", f"{percent(pool.max_avail / expected)} of what {args.pool} leaves of the free raw space"))
        return float(pool.max_avail)
    if args.available:
        data["available"] = args.available
        told.append(("available", both(args.available)))
        return float(args.available)
    return None


def _space(file: str) -> Space:
    text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    try:
        return Space.parse(json.loads(text))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file}: not what `ceph df -f json` prints ({type(error).__name__}: {error})") from error


def pgs(args: argparse.Namespace) -> Answer:
    """placement groups of each pool, as Ceph's PG calculator has them"""
    pools = [*(pgcalc.rgw_pools(args.data) if args.data else []), *map(_pool, args.pool)]
    if not pools:
        raise ValueError("which pools? --data 4+2 for those of an RGW, or --pool NAME=PERCENT/KEPT")
    table = pgcalc.table(pools, args.osds, args.target)
    members = pgcalc.members_per_osd([(number, pool.kept.size) for pool, number in table], args.osds)
    total = sum(pool.percent for pool in pools)
    width = max(len(pool.name) for pool in pools)
    lines = [f"{pool.name:{width}}  {number:>6}  {pool.percent:5g} %  {pool.kept}" for pool, number in table]
    lines.append(f"{members:.0f} PG members on each of {args.osds} OSDs, and {total:g} % of the data is accounted for")
    if members > pgcalc.MAX_PER_OSD:
        lines.append(f"more than mon_max_pg_per_osd ({pgcalc.MAX_PER_OSD} unless set): Ceph would refuse them")
    data = {
        "osds": args.osds,
        "pools": [
            {"name": pool.name, "percent": pool.percent, "size": pool.kept.size, "pgs": number}
            for pool, number in table
        ],
        "members_per_osd": members,
    }
    return Answer(data, lines)


def _pool(text: str) -> pgcalc.Pool:
    name, equal, rest = text.partition("=")
    percent_, slash, kept = rest.partition("/")
    if not (name and equal and slash and percent_.replace(".", "", 1).isdigit()):
        raise ValueError(f"--pool {text}: write NAME=PERCENT/KEPT, as in images=25/3")
    return pgcalc.Pool(name, float(percent_), Redundancy.parse(kept))


def odds(args: argparse.Namespace) -> Answer:
    """placement groups that serve no client while nodes are down"""
    pool: Redundancy = args.pool
    if args.down > args.nodes:
        raise ValueError(f"{args.down} of {args.nodes} cannot be down")
    if pool.size > args.nodes:
        raise ValueError(f"{pool}: needs {pool.size} nodes, there are {args.nodes}")
    least = args.min_size or (pool.k + min(1, pool.m) if pool.k > 1 else pool.size - pool.size // 2)
    if least > pool.size:
        raise ValueError(f"min_size {least} is more than the {pool.size} members of a PG")
    domains = availability.whole(args.down, args.nodes)
    lost = availability.members_lost(domains, pool.size)
    inactive = availability.inactive_share(domains, pool.size, least)
    told = [(f"{percent(share)}", f"of the PGs lose {n} of {pool.size}") for n, share in enumerate(lost) if share]
    told.append((percent(inactive), f"serve no client: fewer than min_size {least} are left"))
    return answer({"min_size": least, "members_lost": lost, "inactive": inactive}, told)
