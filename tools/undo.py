"""Undo the changes that a run has left on the cluster."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
import textwrap
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from cbt_plugins.archive_files import confine
from cbt_plugins.cluster.remote import RemoteError
from cbt_plugins.cluster_conditions import PREPARED
from cbt_plugins.exit_status import ANOTHER_CLUSTER, FAILED, OK
from cbt_plugins.faults import (
    FaultError,
    Injector,
    StillOpen,
    cluster_access,
    cluster_lock,
    undo_seal,
)
from cbt_plugins.faults.cluster_access import AnotherCluster
from cbt_plugins.faults.step import UndoRecord
from cbt_plugins.faults.undo import questions_before_undo
from cbt_plugins.faults.undo_journal import (
    FILE,
    given_up_in,
    holds_data,
    lines_of_others,
    open_steps_in,
    read_lines,
    still_open,
)
from cbt_plugins.formatting.screen import printable
from cbt_plugins.inventory import nodes_of
from cbt_plugins.journal import JournalError, JournalInUse, archive_refusal, journal_lines, read_text
from cbt_plugins.monitors.lifecycle import stop_left
from cbt_plugins.run.bucket_removal import buckets_in, describe_buckets, remove_buckets
from cbt_plugins.run.run_archive import RunArchive
from cbt_plugins.run.scratch import abandoned_folders, remove_abandoned
from cbt_plugins.run.undo_events import EventsOfUndo

from .command import CommandError, explain, say, warn
from .runs_to_undo import find_runs_to_undo

UNDONE, OPEN = OK, FAILED

CANNOT_CONTINUE = "a run that has finished a phase cannot continue then"
#: sentences of the help and of docs/FAULTS.md
WITH_DATA = (
    "Even without --data, undo removes the pools, placement targets and users that the run made, with all data in "
    f"them: {CANNOT_CONTINUE}."
)
_WHY_IT_STAYS = "a resumed run fetches rows and monitor files from it; `cbt-tools undo --data` removes it"
SCRATCH = (
    "Without --data, the scratch folders of a broken-off run stay on the nodes: a resumed run fetches rows and monitor "
    "files from them."
)

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    examples = ("cbt-tools undo archive --dry-run", "cbt-tools undo archive")
    open_text = (
        "a change is or may be still open; with --dry-run also: the cluster may be locked for the run; with --dry-run "
        "--data also: data of the run is still there"
    )
    statuses = {FAILED: open_text, ANOTHER_CLUSTER: ""}
    explain(parser, examples, statuses)
    paragraphs = [textwrap.fill(text, 78) for text in (WITH_DATA, SCRATCH)]
    parser.description = "\n\n".join([parser.description or "", *paragraphs])
    archive_help = (
        "an archive (all of its runs), the directory of one run or of `inject`, or the folder of a campaign, bisect or "
        "pr (all of its trials)"
    )
    parser.add_argument("archive", type=Path, help=archive_help)
    parser.add_argument(
        "--dry-run", action="store_true", help="print the open changes and their undo commands; change nothing"
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="undo although a process on another machine holds the cluster for this run; use it only if "
        "that process is dead",
    )
    parser.add_argument(
        "--trust",
        action="store_true",
        help="undo although another user or another machine wrote the archive, or the cluster was recreated: commands "
        "of the archive run on this machine and, as root, on its nodes; read them with --dry-run first",
    )
    parser.add_argument(
        "--data",
        action="store_true",
        help="also remove the buckets that the run made, with all objects, and its scratch folders on the nodes, after "
        "fetching the monitor files in them; the run cannot be resumed afterwards",
    )
    parser.add_argument(
        "--give-up",
        metavar="LABEL",
        help="try once more, then close the changes with this label that are still open; for changes that cannot be "
        "undone, such as a change of an OSD that has been purged since",
    )


def run(args: argparse.Namespace) -> int:
    """Return 0: no change is open; 1: a change may be open; 2: no such archive or label; 5: another cluster."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    if not args.archive.is_dir():
        exists = args.archive.exists()
        raise CommandError(f"{args.archive}: {'no directory' if exists else 'no such file or directory'}")
    confine(args.archive)
    run_folders, unknown = find_runs_to_undo(args.archive)
    for why in unknown:
        say("Error", why, OPEN)
    # the newest run first: the last change is undone first
    folders = sorted(run_folders, key=lambda f: os.lstat(f / FILE).st_mtime, reverse=True)
    if args.give_up is not None and not any(_is_open(folder, args.give_up) for folder in folders):
        raise CommandError(f"{args.archive}: no open change has the label {args.give_up!r}")
    kubeconfigs, statuses = os.environ.get("KUBECONFIG"), []
    for folder in folders:
        statuses.append(_dry(folder, args.data) if args.dry_run else _undo(folder, args))
        os.environ.pop("KUBECONFIG", None)  # of this folder's run
        if kubeconfigs is not None:
            os.environ["KUBECONFIG"] = kubeconfigs
    if not folders and not unknown:
        print(f"{args.archive}: no run of this archive has changed a cluster")
    return OPEN if unknown or OPEN in statuses else max(statuses, default=UNDONE)


def _is_open(folder: Path, label: str) -> bool:
    try:
        return any(entry.label == label for entry in open_steps_in(folder))
    except (OSError, FaultError):  # _undo reports it
        return False


def _lines(folder: Path) -> Tuple[List[Dict[str, Any]], str]:
    """Return the result of `read_lines`. Raises FaultError."""
    try:
        return read_lines(folder)
    except OSError as error:
        raise FaultError(f"{FILE} {error.strerror}: its open changes are unknown") from error


def _dry(folder: Path, data: bool) -> int:
    refusal = archive_refusal(folder)
    if refusal:
        return say("Error", refusal, OPEN)
    try:
        lines, unknown = _lines(folder)
        left = still_open(lines)
    except FaultError as error:
        return say("Error", f"{folder}: {error}", OPEN)
    if left or not unknown:
        print(f"{folder}: {len(left)} open" if left else f"{folder}: no change is open")
    if unknown:
        say("Error", unknown, OPEN)
    with_data = [entry.label for entry in left if _goes_with_data(entry)]
    if with_data:
        print(f"  undo removes, with all data in it: {', '.join(with_data)}; {CANNOT_CONTINUE}")
    removals = _removals(folder) if data else []
    for text in removals:
        print(f"  undo --data removes {printable(text)}")
    for entry in reversed(left):
        _print(entry)
    is_locked = cluster_lock.may_be_locked(lines) and not RunArchive(folder).complete.exists()
    if is_locked:
        print(f"{folder}: the cluster may still be locked for this run: undo unlocks it")
    _say_given_up(lines)
    _say_origin(folder, lines)
    return OPEN if left or unknown or removals or is_locked else UNDONE


def _removals(folder: Path) -> List[str]:
    """Return the buckets and scratch folders that --data would remove, as far as the cluster and the nodes answer."""
    try:
        access_of_run = cluster_access.read(folder)
    except FaultError:  # another user wrote how to reach the cluster, so it is not contacted
        return _removals_of_others(folder)
    nodes = list(nodes_of(access_of_run.cluster))
    try:
        buckets = list(describe_buckets(folder, access_of_run))
        folders = abandoned_folders(folder, access_of_run, data=True)
        present = {scratch: scratch.nodes_with(access_of_run.remote, nodes) for scratch in folders}
    except (FaultError, RemoteError, OSError) as error:
        log.warning("%s: %s: buckets or scratch folders of the run are not listed", folder, error)
        return []
    return [*buckets, *(f"{scratch} on {', '.join(names)}" for scratch, names in present.items() if names)]


def _removals_of_others(folder: Path) -> List[str]:
    with contextlib.suppress(OSError):
        lines = journal_lines(RunArchive(folder).journal)
        run_ids = [str(line.get("run_id")) for line in lines if line["event"] == "run"]
        return [f"bucket {bucket.admin_name}" for run_id in run_ids[:1] for bucket in buckets_in(lines, run_id)]
    return []


def _say_origin(folder: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Print the reason why an undo would be refused; and how it would reach the nodes, and whose monitors it would end.
    """
    try:
        run_id = cluster_access.read(folder).run_id
        if not lines_of_others(lines, run_id, sealed=True):
            return
        why = undo_seal.refusal(folder / FILE)
    except FaultError as error:
        why = str(error)
    print(f"  {why}")
    with contextlib.suppress(OSError):
        text = " ".join(read_text(folder / cluster_access.FILE).split())
        print(f"  {cluster_access.FILE}: {printable(text)}")
    with contextlib.suppress(OSError):
        for run_dir in dict.fromkeys(line["run_dir"] for line in _invocations(folder)):
            print(f"  undo --trust ends the monitors in {printable(run_dir)} on the nodes")


def _undo(folder: Path, args: argparse.Namespace) -> int:
    force, give_up = args.force, args.give_up
    refusal = archive_refusal(folder)
    if refusal:
        return say("Error", refusal, OPEN)
    try:
        access_of_run = cluster_access.read(folder, args.trust)
        events = EventsOfUndo(RunArchive(folder), access_of_run.trusted)
        injector = Injector(folder, access_of_run, events.write)
    except AnotherCluster as error:
        return say("Error", f"{folder}: {error}", ANOTHER_CLUSTER)
    except (FaultError, JournalError, OSError) as error:  # OSError: the archive is read-only
        return _say_refused(folder, error)
    try:
        holder = injector.lock.living()
        is_alive = holder and cluster_lock.gone(holder) is False
        if holder and (is_alive or not force):
            wait, force_here = ": nothing is undone until that process has ended", "; or on this machine with --force"
            advice = wait if is_alive else force_here
            return say("Error", f"{folder}: {cluster_lock.explain(holder)}{advice}", OPEN)
        number, with_data = len(injector.open_changes), [e.label for e in injector.open_changes if _goes_with_data(e)]
        if with_data:
            again = "start again with another archive directory"
            warn(f"{folder}: removing, with all data in it: {', '.join(with_data)}; {CANNOT_CONTINUE}: {again}")
        reasons: List[str] = []
        if args.data:
            reasons = _remove_buckets(injector, folder, access_of_run, give_up)
        still: Sequence[StillOpen] = injector.undo_all(prepared=True)
        _end_monitors(folder, access_of_run)
        if give_up is not None:
            number -= _give_up(injector, folder, give_up)
            still = [entry for entry in still if entry.label != give_up]
        for entry in still:
            _explain(entry)
        for text in reasons:
            say("Error", f"{folder}: not removed: {text}", OPEN)
        if still:
            return OPEN
        if number or not injector.unknown_changes:
            print(f"{folder}: {number} undone" if number else f"{folder}: no change is open")
        _say_removed(folder, [label for label in with_data if label != give_up])
        _say_given_up(injector.records)
        if injector.unknown_changes:
            return say("Error", injector.unknown_changes, OPEN)
        _leave_or_remove(folder, access_of_run, remove=args.data and not reasons)
        injector.release(force)
        return OPEN if reasons else UNDONE
    except (FaultError, JournalError, OSError) as error:  # all changes may be undone, but the cluster still locked
        return say("Error", f"{folder}: {error}", OPEN)
    finally:
        injector.close()
        events.close()


def _remove_buckets(injector: Injector, folder: Path, run: cluster_access.ClusterAccess, given_up: str) -> List[str]:
    """Remove the buckets of a run on a cluster without its faults; return why buckets stay."""
    left = [entry.label for entry in injector.undo_all() if entry.label != given_up]
    if left:
        return [f"buckets of the run: changes are open: {', '.join(dict.fromkeys(left))}"]
    return [why for why in remove_buckets(folder, run) if why]


def _goes_with_data(entry: UndoRecord) -> bool:
    return entry.kind == PREPARED and holds_data(entry.label)


def _say_removed(folder: Path, labels: Sequence[str]) -> None:
    if labels:
        print(f"{folder}: removed, with all data in it: {', '.join(labels)}")


def _say_refused(folder: Path, error: Exception) -> int:
    try:
        lines, unknown = read_lines(folder)
        number = len(still_open(lines))
    except (OSError, FaultError):
        return say("Error", f"{folder}: {_text(error)}: its open changes are unknown", OPEN)
    say("Error", f"{folder}: {_text(error)}" + (f" ({number} open)" if number else ""), OPEN)
    if unknown:
        say("Error", unknown, OPEN)
    return OPEN if number or unknown or isinstance(error, JournalInUse) else UNDONE


def _text(error: Exception) -> str:
    cause = error.__cause__ if isinstance(error, JournalError) else error
    if isinstance(cause, OSError) and cause.filename:
        return f"{Path(os.fsdecode(cause.filename)).name}: {cause.strerror}"
    return str(error)


def _give_up(injector: Injector, folder: Path, label: str) -> int:
    given = injector.give_up(label)
    for entry in given:
        print(f"{folder}: given up, although their undo was not seen:")
        _print(entry)
    return len(given)


def _say_given_up(lines: Sequence[Mapping[str, Any]]) -> None:
    for line in given_up_in(lines):
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(line["t"]))
        print(f"  {line['label']}: {line['what']}: given up {when}")


def _print(entry: UndoRecord) -> None:
    print(f"  {entry.label}: {entry.step.what}{' (with all data in it)' if _goes_with_data(entry) else ''}")
    for command in entry.step.undo:
        print(f"    undo    {command}")
    for question in questions_before_undo(entry):
        print(f"    asks    {question}")
    for check in entry.step.checks:
        print(f"    undone  {check}")


def _end_monitors(folder: Path, run: cluster_access.ClusterAccess) -> None:
    """End monitors that outlive a killed run, such as collectl; a resumed run fetches their files."""
    try:
        begun = _invocations(folder)
    except OSError as error:
        log.warning("%s: %s: monitors of the run may still be running", error.filename, error.strerror)
        return
    sealed = [line["run_dir"] for line in begun if run.trusted or undo_seal.is_marked(line, run.run_id)]
    if len(sealed) < len(begun):
        log.warning("%s: folders of monitors that another user wrote there are not touched", folder)
    for run_dir in dict.fromkeys(sealed):
        stop_left(run.remote, nodes_of(run.cluster), run_dir)


def _invocations(folder: Path) -> List[Dict[str, Any]]:
    """Return the lines of the processes of a run, whoever wrote them. Raises OSError."""
    lines = journal_lines(RunArchive(folder).journal)
    return [line for line in lines if line["event"] == "invocation" and isinstance(line.get("run_dir"), str)]


def _leave_or_remove(folder: Path, run: cluster_access.ClusterAccess, remove: bool) -> None:
    """Remove the scratch folders of a run that will not be resumed, or print where they stay. No undo needs this."""
    nodes = list(nodes_of(run.cluster))
    try:
        for scratch in abandoned_folders(folder, run, data=remove):
            present = scratch.nodes_with(run.remote, nodes)
            if not present:
                continue
            if not remove:
                print(f"{folder}: {scratch} stays on {', '.join(present)}: {_WHY_IT_STAYS}")
                continue
            print(f"{folder}: removing {scratch} on {', '.join(present)}", flush=True)
            remove_abandoned(folder, run, scratch)
            left = scratch.nodes_with(run.remote, nodes)
            if left:
                log.warning("%s: %s stays on %s", folder, scratch, ", ".join(left))
    except (FaultError, RemoteError, OSError) as error:
        log.warning("%s: scratch folders of the run may stay on nodes: %s", folder, error)


def _explain(entry: StillOpen) -> None:
    say("Error", f"still open: {entry}", OPEN)
    print("  by hand:", file=sys.stderr)
    for command in entry.commands:
        print(f"    {command}", file=sys.stderr)
