"""One trial: the commands that prepare the cluster, one cycle into an archive of its own, and the record of that.

    folder/prepare-1.log ... cycle.log    what the commands printed
    folder/archive/                       the archive of the cycle
    folder/trial.json                     the mark: written last, so a trial is there whole or not at all
    folder/undone.json                    of a trial that did not succeed: the cluster is as before it (undo.log)

A trial that was killed has no mark. The next call ends what is left of it, moves its folder to `.partial-N`, undoes
what its cycle has left on the cluster, and makes it again. A cycle runs as a process: whatever it needs of CBT stays
out of this one.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Dict, Iterator, List, Mapping, Optional, Tuple

from cbt_plugins import signals
from cbt_plugins.journal import read_json, read_text, sync_folder, write_json
from cbt_plugins.polling import Clock, wait_until
from cbt_plugins.results.archive import find_runs
from cbt_plugins.results.record_index import unchanged_records
from cbt_plugins.results.result_file import NoRun, Unreadable
from cbt_plugins.results.run_record import RunRecord

MARK, UNDONE, GROUP, ARCHIVE = "trial.json", "undone.json", "group", "archive"
#: steps of a trial, and names of their logs
CYCLE, UNDO = "cycle", "undo"
VERSION = 1
#: in the environment of every command
ARM, NAME, FOLDER = "CBT_PLUGINS_ARM", "CBT_PLUGINS_TRIAL", "CBT_PLUGINS_TRIAL_FOLDER"
ARCHIVE_NAME, FILE = "CBT_PLUGINS_ARCHIVE", "CBT_PLUGINS_FILE"
#: in the environment of every command of a campaign
CAMPAIGN = "CBT_PLUGINS_CAMPAIGN"
#: what git sets for the programs that it starts, as in `git bisect run` or a hook: it names the user's repository
_OF_GIT = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")
#: the program that runs a CBT file
PROGRAM = f"{shlex.quote(sys.executable)} -m cbt_plugins"
#: exit status of `cbt-tools undo` for a cluster that was recreated since: no change of the trial exists any more
_ANOTHER_CLUSTER = 5
#: most characters of a command's last line in a reason
_LAST_LINE = 500
#: $1 is the file for the group's number, which is there before the command begins
_SHELL = 'echo $$ >"$1" && eval "$0"'
#: the same for an undo, which a full disk does not prevent
_SHELL_OF_UNDO = 'echo $$ >"$1" 2>/dev/null; eval "$0"'
#: the work for which a signal waits while a command is started
_STARTING = "a command is just starting and will then be ended"
#: seconds from SIGTERM to SIGKILL: a cycle recovers the faults that it injected
_UNDO_GRACE, _END_GRACE, _POLL = 900.0, 10.0, 0.1


@dataclass(frozen=True)
class Cycle:
    """What a trial does: shell commands that prepare, and the CBT file."""

    arm: str  # the name of an arm, or a commit
    file: Path
    prepare: Tuple[str, ...] = ()
    program: str = PROGRAM  # or cbt.py; a shell word list; "" runs no cycle: the trial ends with its preparation
    through: str = ""  # what takes a command to the head node: "cbt-tools lab exec node0 --"
    limit: float = 3600.0  # seconds for each command of `prepare`
    cycle_limit: Optional[float] = None  # seconds for the cycle
    environment: Mapping[str, str] = field(default_factory=dict)

    def command(self, archive: Path) -> str:
        """Return the shell command that runs the cycle."""
        words = f"{self.program} -a {shlex.quote(str(archive))} {shlex.quote(str(self.file))}"
        return f"{self.through} {words}".strip()

    def undo_command(self, archive: Path) -> str:
        """Return the shell command that removes everything a cycle has left on the cluster."""
        program = self.program if self.program.endswith(" -m cbt_plugins") else PROGRAM
        return f"{self.through} {program}.tools undo --data {shlex.quote(str(archive))}".strip()


@dataclass(frozen=True)
class Trial:
    """A trial that has ended. `reason` is None where all went well; then there are records."""

    folder: Path
    arm: str
    step: str  # the one that ended it: "prepare-2", "cycle"
    status: Optional[int]  # its exit status; None: it was over its time limit
    reason: Optional[str]
    began: float  # epoch seconds
    prepared: float  # seconds that the preparation took
    measured: float  # seconds that the cycle took
    records: Tuple[RunRecord, ...] = ()
    is_corrupt: bool = False  # objects were lost, or had another content than was written

    @property
    def archive(self) -> Path:
        return self.folder / ARCHIVE

    @property
    def values(self) -> Dict[Tuple[str, str, str], float]:
        """Return the numbers of the first run: (phase, operation, metric) -> value; {} of a trial that failed."""
        runs = (record.measurements for record in self.records[:1])
        return {m.key: m.value for measurements in runs for m in measurements if m.value is not None}


def finished(folder: Path) -> Optional[Trial]:
    """Return the trial of a folder with its records; None where it was never made, or was killed."""
    try:
        mark = read_json(folder / MARK)
        trial = Trial(folder, **{key: value for key, value in mark.items() if key != "version"})
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    if trial.step != CYCLE:
        return trial
    # a cycle that is not to be trusted has a reason, and records all the same
    return replace(trial, is_corrupt=_with_records(trial).is_corrupt) if trial.reason else _with_records(trial)


def _facts(trial: Trial) -> Dict[str, Any]:
    return {key: value for key, value in vars(trial).items() if key not in ("folder", "records", "is_corrupt")}


def run_trial(cycle: Cycle, folder: Path, again: bool = False) -> Trial:
    """Make a trial, or return the one that is there; with `again` one that failed is put aside and made again.

    A command that fails, or that takes longer than its limit, ends the trial: `reason` says it. A signal goes to the
    command first, and raises KeyboardInterrupt here when that has ended; the trial has no mark then. Raises OSError.
    However a trial ends without a result, what its cycle has left on the cluster is undone; what cannot be undone is
    tried again before and after the preparation of the next attempt, which fails where it still cannot.
    """
    earlier = finished(folder)
    if earlier and not (again and earlier.reason):
        return earlier
    put_aside(folder, "failed" if earlier else "partial")
    folder.mkdir(parents=True)
    sync_folder(folder.parent)
    undo_left(cycle, folder)
    try:
        trial = _run_cycle(cycle, folder.resolve())
    except KeyboardInterrupt:
        failure = undo_left(cycle, folder)
        if failure:
            logging.getLogger(__name__).error("%s: changes are still open: %s", folder.name, failure)
        raise
    failure = undo_left(cycle, folder) if trial.reason else None
    if failure and trial.step != UNDO:
        trial = replace(trial, reason=f"{trial.reason}; and changes are still open: {failure}")
    write_json(folder / MARK, {"version": VERSION, **_facts(trial)})
    return finished(folder) or trial


def undo_left(cycle: Cycle, folder: Path) -> Optional[str]:
    """Undo what attempts at trials have left on the cluster; return why that failed, None where all is undone.

    Signals wait for its end; only the third one aborts it.
    """
    with signals.deferred():
        return _undo_left(cycle, folder)


def _undo_left(cycle: Cycle, folder: Path) -> Optional[str]:
    failures = []
    # also those of other trials, which a kill has left: no cycle begins on a cluster that they have changed
    for attempt in (folder, *sorted(path for path in folder.parent.glob("*") if _PUT_ASIDE.search(path.name))):
        archive = attempt.resolve() / ARCHIVE
        if not archive.is_dir() or (attempt / UNDONE).exists() or not _has_run(archive):
            continue
        line, log = cycle.undo_command(archive), attempt / f"{UNDO}.log"
        end = run_command(line, log, {**cycle.environment, FOLDER: str(archive.parent)}, cycle.limit)
        if end.status not in (0, _ANOTHER_CLUSTER):
            failures.append(f"{UNDO} ({line}) {end.how} (see {log})")
            continue
        with contextlib.suppress(OSError):  # on a full disk it is undone again later
            write_json(attempt / UNDONE, {"version": VERSION, "t": time.time(), "status": end.status})
    return failures[0] if failures else None


def _has_run(archive: Path) -> bool:
    """Tell whether an archive has a run, or may have one: without a run, nothing has changed the cluster.

    The profile `faults` has a folder of its own beside the runs of CBT's benchmarks.
    """
    try:
        return (archive / "faults").is_dir() or bool(find_runs(archive))
    except NoRun:
        return False
    except Unreadable:
        return True


#: ends the name of an attempt at a trial that gave no result
_PUT_ASIDE = re.compile(r"\.(partial|failed)-[0-9]+$")


def put_aside(folder: Path, suffix: str = "partial") -> Optional[Path]:
    """End what is left of a trial's processes and move its folder to `.SUFFIX-N`; return where to."""
    if not folder.exists():
        return None
    _end_orphans(folder.resolve())
    number = 1
    while (target := folder.with_name(f"{folder.name}.{suffix}-{number}")).exists():
        number += 1
    folder.rename(target)
    sync_folder(folder.parent)
    return target


def _run_cycle(cycle: Cycle, folder: Path) -> Trial:
    began = time.time()
    archive = folder / ARCHIVE
    steps: List[Tuple[str, str, Optional[float]]]
    steps = [(f"prepare-{i}", line, cycle.limit) for i, line in enumerate(cycle.prepare, 1)]
    own = {ARM: cycle.arm, NAME: folder.name, FOLDER: str(folder), ARCHIVE_NAME: str(archive), FILE: str(cycle.file)}
    prepared, measured = 0.0, 0.0
    steps += [(CYCLE, cycle.command(archive), cycle.cycle_limit)] if cycle.program else []
    if not steps:
        raise ValueError(f"{cycle.arm}: nothing to do: the arm has no command and no cycle")
    for step, line, limit in steps:
        # a cluster that was down may be up after the preparation, and may be another one
        failure = undo_left(cycle, folder) if step == CYCLE else None
        if failure:
            text = f"{failure}: an earlier attempt left changes on the cluster"
            return Trial(folder, cycle.arm, UNDO, None, text, began, prepared, measured)
        log = folder / f"{step}.log"
        done = run_command(line, log, {**cycle.environment, **own}, limit)
        prepared, measured = (prepared, done.seconds) if step == CYCLE else (prepared + done.seconds, 0.0)
        if done.status != 0:
            break
    reason = None if done.status == 0 else f"{step} ({line}) {done.how} (see {log})"
    return Trial(folder, cycle.arm, step, done.status, reason, began, prepared, measured)


#: warnings about the data of a cluster, which a repetition does not mend
_CORRUPT = ("checksum-errors", "lost-objects")


def _with_records(trial: Trial) -> Trial:
    """Return the trial with what its archive says; with a reason where that is no result."""
    try:
        records = unchanged_records(trial.archive)
    except Unreadable as e:
        return replace(trial, reason=f"the archive of the trial cannot be read: {e}")
    bad = next((record for record in records if not record.usable), None)
    if bad is None:
        return replace(trial, records=records)
    texts = "; ".join(dict.fromkeys(warning.text for warning in bad.warnings)) or "the run is incomplete"
    is_corrupt = any(warning.code in _CORRUPT for record in records for warning in record.warnings)
    return replace(trial, reason=f"{bad.source}: not usable: {texts}", is_corrupt=is_corrupt)


@dataclass(frozen=True)
class CommandEnd:
    """How a shell command ended."""

    status: Optional[int]  # None: it was over its limit
    seconds: float
    how: str  # "ended with status 1: the last line that it printed"


def environment() -> Dict[str, str]:
    """Return the environment without what git sets for its own programs."""
    return {key: value for key, value in os.environ.items() if key not in _OF_GIT}


def run_command(line: str, log: Path, own: Mapping[str, str], limit: Optional[float]) -> CommandEnd:
    """Run a shell command with its output in a file; beyond its limit, or after a signal, it is ended first.

    `own` is added to the environment, and needs FOLDER, the folder of the log: by that `put_aside` knows its processes.
    """
    path = f"{os.environ.get('PATH', os.defpath)}:{os.path.dirname(sys.executable)}"
    began = time.monotonic()
    status = _run(line, log, {**environment(), "PATH": path, **own}, limit)
    how = f"took longer than its limit of {limit:g} s" if status is None else f"ended with {_status(status)}"
    with contextlib.suppress(OSError):
        last = read_text(log).rstrip().rpartition("\n")[2].strip()
        if last:
            how += f": {last if len(last) <= _LAST_LINE else last[:_LAST_LINE] + ' ...'}"
    return CommandEnd(status, time.monotonic() - began, how)


def _status(status: int) -> str:
    return f"status {status}" if status >= 0 else signal.Signals(-status).name


def _run(line: str, log: Path, environment: Mapping[str, str], limit: Optional[float]) -> Optional[int]:
    """Run a shell command and return its exit status; None when it was ended by its limit."""
    grace = _UNDO_GRACE if log.stem in (CYCLE, UNDO) else _END_GRACE
    with signals.handled(), _output(log) as output:
        process: Optional[subprocess.Popen[bytes]] = None
        try:
            with signals.deferred(_STARTING):  # a signal inside Popen would leave its child alone
                process = _start(line, log, environment, output)
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            _end_command(process, grace)
            return None
        except BaseException:
            _end_command(process, grace)
            raise


def _start(line: str, log: Path, environment: Mapping[str, str], output: BinaryIO) -> subprocess.Popen[bytes]:
    """Start a shell command in a session of its own: a Ctrl-C of the terminal reaches it once, through us."""
    return subprocess.Popen(
        ["/bin/sh", "-c", _SHELL_OF_UNDO if log.stem == UNDO else _SHELL, line, str(log.parent / GROUP)],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=dict(environment),
        start_new_session=True,
    )


def _end_command(process: Optional[subprocess.Popen[bytes]], grace: float) -> None:
    """End a command that is our child: its group is surely ours until we wait for it, whatever its environment."""
    if process is not None:
        _end(process.pid, None, grace)
        with contextlib.suppress(subprocess.TimeoutExpired):  # the kernel does not end it: it is in state D
            process.wait(_END_GRACE)


def _output(log: Path) -> BinaryIO:
    """Open the log of a command; for an undo nothing, where the disk has no room."""
    try:
        return open(log, "ab")
    except OSError:
        if log.stem != UNDO:
            raise
        return open(os.devnull, "ab")


def _end(group: int, folder: Optional[Path], grace: float) -> None:
    """End a command: SIGTERM, again for each further signal to us, and SIGKILL after `grace` seconds."""
    _signal_until_gone(group, folder, signal.SIGTERM, grace)
    _signal_until_gone(group, folder, signal.SIGKILL, _END_GRACE)


def _signal_until_gone(group: int, folder: Optional[Path], number: int, limit: float) -> None:
    """Send a signal to a command, and again for each signal to us, until no process of it is left or for `limit` s."""
    again = True

    def are_gone() -> bool:
        if not any(_members(group, folder)):
            return True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if again:
                os.killpg(group, number)
        return False

    def pause(seconds: float) -> None:
        nonlocal again
        try:
            with signals.interruptible():
                time.sleep(seconds)
            again = False
        except KeyboardInterrupt:
            again = True

    wait_until(are_gone, limit, _POLL, clock=Clock(sleep=pause))


def _end_orphans(folder: Path) -> None:
    """End the command of a trial whose own process was killed; daemons with a session of their own stay."""
    with contextlib.suppress(OSError, ValueError):
        _end(int((folder / GROUP).read_text()), folder, _UNDO_GRACE)


def _members(group: int, folder: Optional[Path]) -> Iterator[int]:
    """Yield the processes of a group; with a folder, those that have this trial in their environment.

    The number of a group whose first process is gone may be somebody else's now.
    """
    for entry, group_of_entry in living_processes():
        if group_of_entry == group and (folder is None or trial_folder_of(entry) == str(folder)):
            yield int(entry.name)


def living_processes() -> Iterator[Tuple[Path, int]]:
    """Yield the folder in /proc and the process group of each process that has not ended."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
            if fields[0] != b"Z":
                yield entry, int(fields[2])


def trial_folder_of(entry: Path) -> str:
    """Return the folder of the trial in the environment of a process, by its folder in /proc; "" for none."""
    name = f"{FOLDER}=".encode()
    with contextlib.suppress(OSError):
        for word in (entry / "environ").read_bytes().split(b"\0"):
            if word.startswith(name):
                return os.fsdecode(word[len(name) :])
    return ""
