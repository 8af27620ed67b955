"""Inject the faults of a fault file beside any load, and undo them."""

from __future__ import annotations

import argparse
import contextlib
import logging
import math
import os
import secrets
import select
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence

import yaml

from cbt_plugins import signals
from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.remote import Remote
from cbt_plugins.config.errors import ConfigError
from cbt_plugins.config.events import load_fault_file
from cbt_plugins.config.fault_spans import event_text
from cbt_plugins.config.yaml_source import read
from cbt_plugins.exit_status import FAILED, INTERRUPTED, OK
from cbt_plugins.faults import ClusterAccess, FaultError, Injector, Prepared
from cbt_plugins.formatting import several
from cbt_plugins.inventory import nodes_of
from cbt_plugins.journal import Journal, JournalError
from cbt_plugins.plan import Event, Settings
from cbt_plugins.polling import Clock, wait_until
from cbt_plugins.run.event_schedule import EventSchedule

from .command import CommandError, explain, say

#: printed with `--tied` when the settings are in force and the clock of the events starts
BEGUN = "begun"
#: further events of events.jsonl: the run of these faults, and the end of the injection
BESIDE, ENDED = "beside", "ended"

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    example = "cbt-tools inject faults.yaml --cluster my.yaml --archive faults"
    failed = "a fault was refused, or an error occurred, or a change is not undone"
    explain(parser, (f"{example} --dry-run", example), {FAILED: failed, INTERRUPTED: ""})
    parser.add_argument("file", type=Path, help="fault file: YAML with `events:` and `settings:` (docs/FAULTS.md)")
    parser.add_argument("--cluster", type=Path, required=True, help="a CBT YAML file, for its `cluster:` section")
    parser.add_argument("--archive", type=Path, required=True, help="folder for undo.jsonl and events.jsonl")
    parser.add_argument(
        "--tied",
        action="store_true",
        help="for a program that starts this one: print the start time, end when standard input is closed",
    )
    parser.add_argument("--beside", metavar="ITERATION/ID", help="the run in the archive that the faults accompany")
    parser.add_argument(
        "--dry-run", action="store_true",
        help="print the commands of each fault and the safety rules that refuse it; change nothing",
    )


def run(args: argparse.Namespace) -> int:
    """Return 0: all was injected and undone; 1: an error occurred, or a change is open; 2: an error in a file."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    try:
        source = read(args.file)
        document: Dict[str, Any] = yaml.safe_load(args.cluster.read_text(encoding="utf-8")) or {}
        cluster, common = document["cluster"], document.get("common") or {}
        events, settings = load_fault_file(source, over=nodes_of(cluster, "osds"))
    except ConfigError as error:
        raise CommandError(f"{several(len(error.errors), 'error')}; nothing was injected\n{error}") from error
    except (OSError, KeyError, yaml.YAMLError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise CommandError(f"{args.cluster}: cannot read a `cluster:` section: {why}") from error
    try:
        with contextlib.ExitStack() as stack:
            folder = args.archive
            if args.dry_run:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            folder.mkdir(parents=True, exist_ok=True)
            return _run(args, folder, events, settings, cluster, common)
    except (FaultError, JournalError) as error:
        raise CommandError(str(error), FAILED) from error


def _run(
    args: argparse.Namespace,
    folder: Path,
    events: Sequence[Event],
    settings: Settings,
    cluster: Mapping[str, Any],
    common: Mapping[str, Any],
) -> int:
    remote = Remote.of_cluster(cluster, common)
    with contextlib.closing(Journal(folder / "events.jsonl")) as note:
        access = ClusterAccess(remote, Ceph(remote, cluster), cluster, common, f"inject-{secrets.token_hex(4)}")
        injector = Injector(folder, access, note.write, settings)
        with contextlib.closing(injector):
            if args.dry_run:
                return _dry(injector, events)
            schedule = EventSchedule(events, injector, note.write, "inject")
            return _inject(injector, schedule, note, args)


def _dry(injector: Injector, events: Sequence[Event]) -> int:
    """Print the judgement of each fault beside the faults that are in force at its time, as if nothing recovered."""
    status = OK
    in_force: Dict[str, Prepared] = {}
    for event in sorted(events, key=lambda event: event.at):
        if event.inject is not None:
            beside = f", while {', '.join(in_force)} is in force" if in_force else ""
            print(f"at {event.at:g} s{beside}")
            try:
                prepared = injector.prepare(event.inject, tuple(in_force.values()))
            except FaultError as error:
                print(f"{event.inject.label}: cannot be injected: {error}")
                status = FAILED
                continue
            in_force[event.inject.label] = prepared
            print("\n".join(prepared.lines()))
            status = FAILED if prepared.refused else status
        for label in event.undo:
            in_force.pop(label, None)
        if event.run is not None:
            print(event_text(event))
    return status


def _inject(injector: Injector, schedule: EventSchedule, note: Journal, args: argparse.Namespace) -> int:
    failure = None
    if args.beside:
        note.write(BESIDE, run=args.beside)
    with signals.handled():
        try:
            injector.undo_earlier()
            with injector.holding():
                failure = _follow(injector, schedule, note, args.tied)
        except (FaultError, JournalError) as error:
            failure = str(error)
        except KeyboardInterrupt:
            log.info("stopped by a signal")
        schedule.close()
        if failure is None and schedule.unmade:
            failure = f"stopped before these faults: {', '.join(schedule.unmade)}"
    left = ", ".join(dict.fromkeys(record.label for record in injector.open_changes))
    why = [failure] if failure else [f"not undone: {left}"] if left else []
    note.write(ENDED, why=why)
    for text in why:
        say("Error", text, FAILED)
    return FAILED if why else OK


def _follow(injector: Injector, schedule: EventSchedule, note: Journal, tied: bool) -> Optional[str]:
    """Run all events, or the events before the end of the input; return errors."""
    injector.apply()
    schedule.prepare()
    begun = time.time()
    schedule.begin(begun)
    # the times of events count from here
    note.write(BEGUN, at=round(begun, 3))
    if tied:
        print(BEGUN, flush=True)

    def is_over() -> bool:
        if schedule.failure is not None or not tied:
            return schedule.failure is not None or not schedule.left
        return bool(select.select([0], [], [], 0)[0]) and not os.read(0, 4096)

    # the end of the input ends the pause
    wait_until(is_over, math.inf, 0.2, clock=Clock(sleep=lambda seconds: select.select([0][:tied], [], [], seconds)))
    return schedule.failure
