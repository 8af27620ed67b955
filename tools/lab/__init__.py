"""Run a real multi-node Ceph cluster on this machine."""

from __future__ import annotations

import argparse
import math
import os
import re
import signal
import sys
from pathlib import Path
from typing import Callable, Dict, List, Optional

from cbt_plugins.config.units import format_duration, format_size, parse_duration, parse_size
from cbt_plugins.exit_status import FAILED, INTERRUPTED, OK, USAGE
from cbt_plugins.formatting import about_size
from cbt_plugins.polling import wait_until
from cbt_plugins.programs import cache_dir

from ..command import CommandError, explain
from ..format_option import JSON, TEXT, add_formats, add_renamed, print_results
from .cluster import Lab, as_text, status_of, to_stderr
from .foreground import attend
from .installed_releases import root_of
from .process import LabProcess
from .requirements import LabError, LabUsage
from .root_builder import RootBuilder
from .snapshots import Snapshots
from .topology import HEAD, Topology, parse_ec

__all__ = ["Lab", "LabError", "Topology", "add_arguments", "run"]


#: --way: (factor of the delay of packets that leave the node, of packets that arrive)
_WAYS = {"out": (1, 0), "in": (0, 1), "both": (1, 1)}
#: seconds
_LONGEST_DELAY = 10.0
_RUN = "start the lab, run a command in node0, and end the lab in any case; exits with the status of the command"
_ROOTS = "pacific, reef, tentacle: from Debian's mirror; any other name needs --image or --tree"
_DELAY = "delay of each packet, such as 50ms; 0 to 10s; 0 ends the delay"
_SWITCH = "restart a daemon with another release; may be run on this machine, or in the node of the daemon"
_STATUSES = {FAILED: "the lab failed, or does not run", INTERRUPTED: ""}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs of the lab."""
    explain(parser, ("cbt-tools lab up", "cbt-tools lab exec node0 -- ceph -s", "cbt-tools lab down"), _STATUSES)
    verbs = parser.add_subparsers(dest="lab_verb", required=True, metavar="up|down|run|exec|snapshot|restore|...")

    def verb(name: str, text: str, example_arguments: str = "") -> argparse.ArgumentParser:
        subparser = verbs.add_parser(name, help=text, description=text)
        explain(subparser, (f"cbt-tools lab {name}{example_arguments}",), _STATUSES)
        folder = cache_dir() / "lab"
        subparser.add_argument("--dir", type=Path, default=folder, help="folder of the lab (default: %(default)s)")
        return subparser

    up = verb("up", "start the cluster of --dir; make a new cluster if --dir has no cluster")
    _add_shape(up)
    up.add_argument(
        "--foreground", action="store_true", help="keep running; the lab ends when this command ends or is killed"
    )
    alone = verb("run", _RUN, " -- ceph -s")
    _add_shape(alone)
    alone.add_argument("--wipe", action="store_true", help="remove the cluster's files afterwards")
    alone.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    down = verb("down", "end the lab; the files of the lab stay")
    down.add_argument("--graceful", action="store_true", help="stop the daemons first")
    down.add_argument("--wipe", action="store_true", help="remove the files, too")
    _add_snapshots(verb)
    root = verb("root", "make the root folder of a release for `up --release`; the cache keeps the folder", " reef")
    root.add_argument("name", help=_ROOTS)
    source = root.add_mutually_exclusive_group()
    source.add_argument("--image", default="", help="from a container image on this machine")
    source.add_argument("--tree", type=Path, help="from a Ceph build tree (bin, lib) and a root of the same system")
    status = verb("status", "nodes, daemons, health, memory")
    add_formats(status, TEXT, JSON)
    add_renamed(status, {"--json": "--format json"})
    inside = verb("exec", "run a command in a node; exits with the status of the command", " node0 -- ceph -s")
    inside.add_argument("node")
    inside.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    for name, text in (
        ("stop-osds", "stop the OSDs of a node"),
        ("start-osds", "start the OSDs of a node"),
        ("crash", "power failure of a node"),
        ("boot", "start a crashed node with its daemons"),
    ):
        subparser = verb(name, text, " node4")
        subparser.add_argument("node")
        if name == "stop-osds":
            subparser.add_argument("--kill", action="store_true", help="SIGKILL instead of SIGTERM")
    switch = verb("switch", _SWITCH, " osd.3 --release reef")
    switch.add_argument("daemon", help="mon.node0, mgr.node0, osd.3, rgw.rgw1")
    _add_release(switch, bind=False)
    link = verb("link", "plug or pull the network cable of a node, delay its packets, or end the delay", " node3 down")
    link.add_argument("node")
    how = link.add_mutually_exclusive_group(required=True)
    how.add_argument("state", nargs="?", choices=("up", "down"))
    how.add_argument("--delay", type=_argument(_parse_delay), metavar="TIME", help=_DELAY)
    link.add_argument(
        "--way", choices=tuple(_WAYS), help="packets to delay: leaving the node (out, default), arriving (in), or both"
    )


def _add_snapshots(verb: Callable[..., argparse.ArgumentParser]) -> None:
    keeps = "keep the cluster under a name; a running cluster is stopped first, and started again afterwards"
    taken = verb("snapshot", keeps, " aged")
    taken.add_argument("name")
    restored = verb("restore", "restore the cluster of a snapshot, start this cluster and check its objects", " aged")
    restored.add_argument("name")
    _add_release(restored)
    listed = verb("snapshots", "list the snapshots, or remove one")
    listed.add_argument("--remove", metavar="NAME", help="remove this snapshot")
    add_formats(listed, TEXT, JSON)
    for subparser in (taken, restored, listed):
        subparser.add_argument(
            "--snapshots",
            type=Path,
            default=Snapshots.default(),
            metavar="DIR",
            help="folder of all snapshots (default: %(default)s)",
        )


def _add_release(parser: argparse.ArgumentParser, default: Optional[str] = None, bind: bool = True) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--root", type=os.path.abspath, default=default, help="root folder of another release")
    which.add_argument("--release", help="a release that is on this machine: reef, 18.2; see `lab root`")
    if bind:
        text = "folder of this machine that every node sees, too"
        parser.add_argument("--bind", type=os.path.abspath, action="append", default=[], metavar="DIR", help=text)


def _add_shape(parser: argparse.ArgumentParser) -> None:
    shape = Topology()

    def counted(name: str, text: str) -> None:
        default = getattr(shape, name)
        parser.add_argument(
            "--" + name.replace("_", "-"), type=int, default=default, help=f"{text} (default {default})"
        )

    counted("osd_nodes", "nodes with OSDs")
    counted("osds_per_node", "OSDs on each of these nodes")
    counted("rgws", "nodes with an RGW")
    parser.add_argument("--no-rgw", dest="rgws", action="store_const", const=0, help="the same as --rgws 0")
    counted("clients", "client nodes")
    counted("mons", "ceph-mons, on node0 and the nodes after it")
    counted("mgrs", "ceph-mgrs, on node0 and the nodes after it")
    counted("data_pgs", "placement groups of the bucket data pool")
    counted("out_interval", "seconds until a down OSD is marked out")
    parser.add_argument(
        "--ec", type=_argument(parse_ec), metavar="K+M", help="erasure coded bucket data, e.g. 2+1"
    )
    parser.add_argument(
        "--block",
        type=_argument(parse_size),
        default=shape.block,
        help=f"size of an OSD (sparse; default {format_size(shape.block)})",
    )
    parser.add_argument(
        "--osd-memory",
        type=_argument(parse_size),
        default=shape.osd_memory,
        help=f"osd_memory_target of each OSD; default {format_size(shape.osd_memory)}",
    )
    parser.add_argument(
        "--no-mux", dest="mux", action="store_false", help="open a new ssh connection for each command"
    )
    _add_release(parser, default="/")
    parser.add_argument(
        "--systemd",
        action="append",
        default=[],
        metavar="NODE",
        help="OSD node whose first process is a real systemd, which runs the OSDs as units; may be repeated",
    )


def _parse_delay(text: str) -> float:
    """Return the seconds of "50ms", "0.05s" or "0"; raises ValueError."""
    milliseconds = re.fullmatch(r"\s*(\d+(?:\.\d+)?) ?ms\s*", text)
    seconds = float(milliseconds[1]) / 1000 if milliseconds else parse_duration(text) if text.strip() != "0" else 0.0
    if not 0 <= seconds <= _LONGEST_DELAY:
        raise ValueError(f"{text}: must be at most {format_duration(_LONGEST_DELAY)}")
    return seconds


def _argument(parse: Callable[[str], object]) -> Callable[[str], object]:
    def parsed(text: str) -> object:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


def run(args: argparse.Namespace) -> int:
    """Run one verb of the lab and return its exit status."""
    lab = Lab(args.dir)
    verbs: Dict[str, Callable[[Lab, argparse.Namespace], int]] = {
        "up": _up,
        "run": _run,
        "down": _down,
        "status": _status,
        "exec": _exec,
        "root": _make_root,
        "snapshot": _snapshot,
        "restore": _restore,
        "snapshots": _list_snapshots,
    }
    try:
        if args.lab_verb in verbs:
            return verbs[args.lab_verb](lab, args)
        if args.lab_verb == "stop-osds":
            lab.stop_osds(args.node, signal.SIGKILL if args.kill else signal.SIGTERM)
        elif args.lab_verb == "switch":
            lab.switch(args.daemon, _root(args) or "/")
        elif args.lab_verb == "link":
            _link(lab, args)
        else:
            {"start-osds": lab.start_osds, "crash": lab.crash, "boot": lab.boot}[args.lab_verb](args.node)
    except LabError as error:
        raise CommandError(str(error), error.status) from None
    except OSError as error:
        raise CommandError(f"{args.dir}: {error}", FAILED) from None
    return OK


def topology_of(args: argparse.Namespace) -> Topology:
    names = (
        "osd_nodes",
        "osds_per_node",
        "rgws",
        "clients",
        "mons",
        "mgrs",
        "ec",
        "data_pgs",
        "block",
        "osd_memory",
        "out_interval",
        "mux",
    )
    given = {name: getattr(args, name) for name in names}
    return Topology(**given, root=_root(args), bind=tuple(args.bind), systemd=tuple(args.systemd))


def _root(args: argparse.Namespace) -> str:
    return root_of(args.release) if args.release else args.root or ""


def _make_root(lab: Lab, args: argparse.Namespace) -> int:
    print(RootBuilder(to_stderr).make(args.name, args.image, args.tree))
    return OK


def _snapshot(lab: Lab, args: argparse.Namespace) -> int:
    _terminate_in_order()
    snapshot = Snapshots(args.snapshots).take(lab, args.name)
    size, objects = about_size(snapshot.bytes), len(snapshot.sample.objects)
    print(f"{snapshot.folder}: Ceph {snapshot.release}, {size}, {objects} objects sampled")
    return OK


def _restore(lab: Lab, args: argparse.Namespace) -> int:
    _terminate_in_order()
    Snapshots(args.snapshots).restore(args.name, lab, _root(args), args.bind)
    return OK


def _list_snapshots(_: Lab, args: argparse.Namespace) -> int:
    snapshots = Snapshots(args.snapshots)
    if args.remove:
        snapshots.remove(args.remove)
        return OK
    all_snapshots = snapshots.all(to_stderr)
    rows = [(each.name, each.taken_at, str(each.release), about_size(each.bytes)) for each in all_snapshots]
    text = "".join(f"{name:24} {moment}  {release:18} {much:>10}\n" for name, moment, release, much in rows)
    print_results(
        args, {TEXT: lambda: text or "no snapshots\n", JSON: lambda: [snapshot.as_json() for snapshot in all_snapshots]}
    )
    return OK


def _link(lab: Lab, args: argparse.Namespace) -> None:
    if args.way and args.delay is None:
        raise LabUsage("--way needs --delay")
    if args.state:
        lab.link(args.node, args.state == "up")
    else:
        out, back = (factor * args.delay for factor in _WAYS[args.way or "out"])
        lab.delay_link(args.node, out, back)


def _start(lab: Lab, args: argparse.Namespace, detach: bool) -> LabProcess:
    topology = topology_of(args)
    lab.refuse_unseen(topology)
    _terminate_in_order()
    return lab.up(topology, detach)


def _up(lab: Lab, args: argparse.Namespace) -> int:
    started = _start(lab, args, detach=not args.foreground)
    if not args.foreground:
        return 0
    try:
        wait_until(lambda: not started.alive(), math.inf, 1.0)
    finally:
        lab.down(started=started)
    raise CommandError("the lab was ended by another command", FAILED)


def _run(lab: Lab, args: argparse.Namespace) -> int:
    command = command_after_dashes(args.command)
    if not command:
        raise CommandError("no command: lab run [options] -- COMMAND", USAGE)
    started = _start(lab, args, detach=False)
    try:
        return attend(lab.enter(HEAD, command), lab.environment())
    finally:
        lab.down(wipe=args.wipe, started=started)


def _down(lab: Lab, args: argparse.Namespace) -> int:
    was = lab.down(args.graceful, args.wipe)
    print("down" if was else f"not running: {lab.dir}", file=sys.stderr)
    return 0


def _status(lab: Lab, args: argparse.Namespace) -> int:
    status = status_of(lab)
    print_results(args, {TEXT: lambda: "\n".join(as_text(status)) + "\n", JSON: lambda: status})
    return 0 if status["running"] else 1


def _exec(lab: Lab, args: argparse.Namespace) -> int:
    return attend(lab.enter(args.node, command_after_dashes(args.command) or ["bash"]), lab.environment())


def command_after_dashes(words: List[str]) -> List[str]:
    return words[1:] if words[:1] == ["--"] else words


def _terminate_in_order() -> None:
    """Let SIGTERM and SIGHUP end the lab as Ctrl-C does; under nohup SIGHUP stays ignored."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)
