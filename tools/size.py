"""Compute objects, PGs, workers and throughput limits from models."""

from __future__ import annotations

import argparse
from typing import Any, Callable, Dict, List, Tuple

from cbt_plugins.config import units
from cbt_plugins.exit_status import OK
from cbt_plugins.models.capacity import FULL, MIN_ALLOC, parse_cosbench
from cbt_plugins.models.pools import TARGET, Redundancy

from . import size_answers
from .command import CommandError, explain, help_text
from .format_option import JSON, TEXT, add_formats, add_renamed, print_results


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    whats = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    explain(parser, [_WHATS["network"][2], _WHATS["workers"][2]])
    for name, (answer, declare, example) in _WHATS.items():
        text = (answer.__doc__ or "").strip().splitlines()[0].rstrip(".")
        subparser = whats.add_parser(name, help=text, description=text)
        declare(subparser)
        explain(subparser, [example])
        add_formats(subparser, TEXT, JSON, text="json has bytes, seconds and shares 0..1 (default: text)")
        add_renamed(subparser, {"--json": "--format json"})
        subparser.set_defaults(answer=answer)


def run(args: argparse.Namespace) -> int:
    """Print the answer; return 2 if the numbers are impossible."""
    try:
        answer = args.answer(args)
    except (ValueError, OSError, ZeroDivisionError) as error:
        zero = isinstance(error, ZeroDivisionError)
        text = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        raise CommandError("division by zero: a number that must be above 0 is 0" if zero else text) from error
    data = {"version": 1, "what": args.what, **answer.data}
    print_results(args, {TEXT: lambda: "\n".join(answer.lines) + "\n", JSON: lambda: data})
    return OK


def _taking(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a type for argparse that shows the parser's own message."""

    def convert(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return convert


def _whole_number(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdigit() or int(text) < least:
            raise ValueError(f"{text!r} is not a whole number of {least} or more")
        return int(text)

    return parse


def _latency(text: str) -> float:
    """Return the seconds of "12ms" or "1.5s"."""
    if text.endswith("ms"):
        return units.parse_duration(text[:-2] + "s") / 1000
    return units.parse_duration(text)


def _bandwidth(text: str) -> int:
    """Return the bytes/s of "18.6GB/s"."""
    return units.parse_size(text[:-2] if text.endswith("/s") else text)


def _sizes(text: str) -> List[Tuple[int, int, float]]:
    """Return sizes with weights from "1KB:50,64KB-128KB:50", one size, or a histogram of COSBench."""
    if text.strip().startswith("h("):
        return parse_cosbench(text)
    sizes = []
    for part in text.split(","):
        size, _, weight = part.partition(":")
        ends = [units.parse_size(end) for end in size.split("-")]
        if len(ends) > 2 or ends[0] > ends[-1] or (weight and not _number(weight)):
            raise ValueError(f"{part.strip()!r}: write size:weight or smallest-largest:weight, as in 4KiB-64KiB:50")
        sizes.append((ends[0], ends[-1], float(weight or 1)))
    return sizes


def _number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


def _step(text: str) -> Tuple[float, float]:
    """Return (workers, latency) of "8@12ms"."""
    workers, at, latency = text.partition("@")
    if not at or not workers.isdigit() or not int(workers):
        raise ValueError(f"{text!r}: write workers@latency, as in 8@12ms")
    return float(workers), _latency(latency)


def _operation(text: str) -> Tuple[float, float]:
    """Return (requests/s, latency) of "25.79/s@616.61ms"."""
    rate, at, latency = text.partition("@")
    if not at:
        raise ValueError(f"{text!r}: write throughput@latency, as in 150/s@466ms")
    return units.parse_rate(rate), _latency(latency)


def _mix(text: str) -> Dict[str, float]:
    mix = {}
    for part in text.split(","):
        op, equal, percent = part.partition("=")
        if not equal or not op.strip().isalpha() or not _number(percent):
            raise ValueError(f"{part.strip()!r}: write operation=percent, as in get=60,put=40")
        mix[op.strip().upper()] = float(percent)
    if abs(sum(mix.values()) - 100) > 1e-6:
        raise ValueError(f"the sum of the mix is {sum(mix.values()):g}, not 100")
    return mix


def _change(text: str) -> float:
    """Return the change that "-29%" or "150%" means, as a share, which may be negative or above 1."""
    sign, unsigned = (-1, text[1:]) if text.startswith("-") else (1, text.lstrip("+"))
    if not unsigned.endswith("%") or not _number(unsigned[:-1].strip()):
        raise ValueError("not a percentage; write for example 55%")
    return sign * float(unsigned[:-1]) / 100


def _from_to(text: str) -> Tuple[int, int]:
    before, colon, after = text.partition(":")
    if not (colon and before.isdigit() and after.isdigit() and int(before) and int(after)):
        raise ValueError("write before:after, as in 3:5")
    return int(before), int(after)


_SIZE, _LINK, _SHARE = _taking(units.parse_size), _taking(units.parse_link), _taking(units.parse_percent)
_POOL, _RATE, _SECONDS = _taking(Redundancy.parse), _taking(units.parse_rate), _taking(_latency)
_MANY, _ANY = _taking(_whole_number(1)), _taking(_whole_number(0))


def _capacity(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--df", metavar="FILE", help="output of `ceph df -f json`; - reads stdin")
    parser.add_argument(
        "--data-pool", metavar="NAME", help="pool with the objects (default: the pool named *.buckets.data)"
    )
    parser.add_argument("--raw", type=_SIZE, help="raw space of all OSDs, such as 524TiB")
    parser.add_argument("--available", type=_SIZE, help="MAX AVAIL of the pool, instead of --raw or --df")
    parser.add_argument("--pool", type=_POOL, help="redundancy of the pool: 3 (copies) or 4+2 (erasure code)")
    full = help_text(f"full ratio of the OSDs (default: {units.format_percent(FULL)})")
    parser.add_argument("--full", type=_SHARE, default=FULL, help=full)
    parser.add_argument("--fill", type=_SHARE, help="share of the available space to fill")
    parser.add_argument(
        "--sizes", type=_taking(_sizes), help="object sizes: 1KB:50,64KB:50 or 4MiB or COSBench's h(1|1|50,...)KB"
    )
    parser.add_argument(
        "--cosbench", action="store_true", help="use the weights with which COSBench really draws these sizes"
    )
    parser.add_argument("--buckets", type=_MANY, default=1, help="number of buckets (default: %(default)s)")
    least = units.format_size(MIN_ALLOC)
    parser.add_argument(
        "--min-alloc", type=_SIZE, default=MIN_ALLOC, help=f"bluestore_min_alloc_size (default: {least})"
    )
    parser.add_argument("--per-day", type=_MANY, metavar="N", help="objects per day, to convert to requests per second")


def _pgs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--osds", type=_MANY, required=True, help="number of OSDs that the pools share")
    parser.add_argument("--data", type=_POOL, help="add the pools of an RGW; redundancy of its data pool: 3 or 4+2")
    parser.add_argument(
        "--pool", action="append", default=[], metavar="NAME=PERCENT/KEPT",
        help="a pool, such as images=25/3; repeatable",
    )
    parser.add_argument(
        "--target", type=_MANY, default=TARGET, help="PGs per OSD (default: %(default)s; 200 if the OSDs will double)"
    )


def _network(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=_MANY, required=True, help="number of nodes with OSDs")
    parser.add_argument("--pool", type=_POOL, required=True, help="3 (copies) or 4+2 (erasure code)")
    parser.add_argument("--nic", type=_LINK, required=True, help="speed of each node's interface, such as 25Gbit")
    parser.add_argument("--clients", type=_MANY, help="number of client nodes (default: clients run on the OSD nodes)")
    parser.add_argument("--client-nic", type=_LINK, help="speed of their interface (default: --nic)")
    parser.add_argument("--gateways", type=_ANY, help="number of gateway nodes, 0 for RBD (default: on the OSD nodes)")
    parser.add_argument("--gateway-nic", type=_LINK, help="speed of their interface (default: --nic)")
    parser.add_argument("--cluster-nic", type=_LINK, help="speed of a separate cluster network")
    parser.add_argument("--osds-per-node", type=_MANY, default=1, help="only with --apart osd")
    parser.add_argument("--apart", choices=("host", "osd"), default="host", help="failure domain of the pool")
    parser.add_argument("--fast-read", action="store_true", help="fast_read is set for the pool")
    parser.add_argument("--put", type=_taking(_bandwidth), help="measured throughput of PUTs, such as 18.6GB/s")
    parser.add_argument("--get", type=_taking(_bandwidth), help="measured throughput of GETs")


def _workers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--op", type=_taking(_operation), action="append",
        help="throughput@latency of an operation, such as 150/s@466ms; repeatable",
    )
    parser.add_argument("--workers", type=_MANY, help="workers of the closed loop")
    parser.add_argument("--latency", type=_SECONDS, help="mean latency of the requests; the answer is the throughput")
    parser.add_argument("--rate", type=_RATE, help="requests per second; the answer is the latency")
    parser.add_argument(
        "--step", type=_taking(_step), action="append",
        help="a step of a sweep: workers@latency, such as 8@12ms; repeatable",
    )
    parser.add_argument("--target", type=_SECONDS, help="highest acceptable mean latency")


def _mix_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mix", type=_taking(_mix), required=True, help="percent of the requests: get=60,list=10,put=16,delete=14"
    )
    parser.add_argument("--keys", type=_MANY, help="number of keys in the range that PUT and DELETE take at random")
    parser.add_argument(
        "--start", type=_SHARE, default=1.0, help="share of the keys that exist at first; all of them without it"
    )
    parser.add_argument("--rate", type=_RATE, help="requests a second, all operations together")
    parser.add_argument("--for", dest="seconds", type=_SECONDS, help="duration of the load, such as 1h")


def _scale(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=_taking(_from_to), required=True, help="nodes before:after, such as 3:5")
    parser.add_argument("--gain", type=_taking(_change), required=True, help="change of the throughput, such as 55%%")
    parser.add_argument("--latency", type=_taking(_change), help="observed change of the mean latency, as =-29%%")


def _odds(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=_MANY, required=True, help="number of nodes (or other failure domains)")
    parser.add_argument("--down", type=_MANY, required=True, help="number of nodes that are down at the same time")
    parser.add_argument("--pool", type=_POOL, required=True, help="3 (copies) or 4+2 (erasure code)")
    parser.add_argument("--min-size", type=_MANY, help="min_size of the pool (default: Ceph's)")


_Declare = Callable[[argparse.ArgumentParser], None]
#: WHAT -> function that answers, function that adds arguments, an example
_WHATS: Dict[str, Tuple[Callable[[argparse.Namespace], Any], _Declare, str]] = {
    "capacity": (
        size_answers.capacity,
        _capacity,
        "cbt-tools size capacity --raw 524TiB --pool 4+2 --fill 55% --sizes 4KiB-64KiB:50,4MiB:50",
    ),
    "pgs": (size_answers.pgs, _pgs, "cbt-tools size pgs --osds 192 --data 4+2"),
    "network": (size_answers.network, _network, "cbt-tools size network --nodes 10 --nic 100Gbit --pool 3"),
    "workers": (size_answers.workers, _workers, "cbt-tools size workers --workers 64 --latency 12ms"),
    "mix": (size_answers.mix, _mix_arguments, "cbt-tools size mix --mix get=60,list=10,put=16,delete=14 --keys 400000"),
    "scale": (size_answers.scale, _scale, "cbt-tools size scale --nodes 3:5 --gain 55%"),
    "odds": (size_answers.odds, _odds, "cbt-tools size odds --nodes 8 --down 2 --pool 4+2"),
}
