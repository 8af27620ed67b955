"""Run monitors while a context is open, whatever happens in it, and bring their files into the archive."""

from __future__ import annotations

import filecmp
import itertools
import logging
import os
import shlex
import shutil
import tempfile
from collections import Counter
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set

from cbt_plugins import checksums
from cbt_plugins.cbt_run import RunFailed
from cbt_plugins.cluster.ceph import TIMED_OUT
from cbt_plugins.cluster.fan_out import ask_at_once
from cbt_plugins.cluster.remote import Copies, Remote, RemoteError
from cbt_plugins.cluster.shell_programs import find_own, make_own, script_command
from cbt_plugins.cluster.transports.transport import UNREACHABLE, Result
from cbt_plugins.inventory import host_of, nodes_of, split_names
from cbt_plugins.journal import insist_on_room, read_json, sync_folder, write_json
from cbt_plugins.monitor import Monitor
from cbt_plugins.polling import insist

logger = logging.getLogger(__name__)

#: beside the monitors' files: {monitor: nodes that it was to watch}
NODES = "nodes.json"
#: there too: {folder on the nodes: nodes} of files that could not be fetched
LEFT = "left.json"
#: there too, while files are fetched, and after a kill
SCRATCH = ".fetch-"
STOP = Path(__file__).parent / "stop_by_pid.sh"
#: exit status on a node where a monitor of a killed run did not end
_NOT_ENDED = 78
#: shell text: of a folder with the record of another machine's process, that record stays, for the end of that process
#: (stop_by_pid.sh), and so do files of the last hour, which it may still write
_KEEP_RECORDS = """\
here=$(cat /proc/sys/kernel/random/boot_id)-$(sed 's/.*) //' /proc/1/stat 2>/dev/null | cut -d' ' -f20)
for file in %s/*.pid %s/*/*.pid; do
  [ -f "$file" ] && read -r _ _ machine <"$file" && [ "${machine:-$here}" != "$here" ] &&
    { find %s -type f ! -name '*.pid' -mmin +60 -exec rm -f -- {} +; exit; }
done
"""
_numbers = itertools.count(1)
#: run_dir -> contexts that are open: monitors that run there are not those of a killed run
_open_contexts: Counter[str] = Counter()


def stop_by_pid_files(remote: Remote, nodes: Sequence[str], folder: str) -> None:
    """End the process groups whose leaders are recorded in FOLDER/*.pid on the nodes; what does not end is logged."""
    _stop(remote, nodes, f"{script_command(STOP)} {shlex.quote(folder)}")


def stop_left(remote: Remote, nodes: Sequence[str], run_dir: str) -> None:
    """End the monitors that a killed run has left in its folder on the nodes."""
    _stop(remote, nodes, _end_left(run_dir))


def _end_left(run_dir: str) -> str:
    folders = f"{shlex.quote(run_dir)}/monitors-*"
    return f"{script_command(STOP)} {folders} {folders}/*"


def _stop(remote: Remote, nodes: Sequence[str], command: str) -> None:
    results = remote.run(nodes, command, 90, check=False)
    _log_not_ended({node: result for node, result in results.items() if result.status})


def _log_not_ended(results: Mapping[str, Result]) -> None:
    for node, result in results.items():
        logger.error("%s: %s", node, result.stderr.strip() or "could not stop the monitors")


@contextmanager
def watch(
    make: Callable[[], Iterable[Any]],
    cluster: Mapping[str, Any],
    common: Mapping[str, Any],
    run_dir: str,
    local_dir: Path,
) -> Iterator[None]:
    """Run the monitors that `make` gives (CBT's or ours: start, stop, nodes) while the context is open.

    Each object is kept from start to stop: CBT's module-level start() and stop() make new ones each time,
    which then know nothing of the processes that they should end. Files arrive as local_dir/<name>.<node>,
    CBT's own way. Raises RunFailed for a monitor that has a `failure`: before the context is entered, or after it.
    """
    monitors = sorted(make(), key=_acts)
    if not monitors:
        yield
        return
    remote = Remote.of_cluster(cluster, common)
    nodes = _nodes_of_monitors(monitors, cluster)
    # never used before, so that nothing has to be removed first: two names may be one machine, or share a directory
    directory = f"{run_dir}/monitors-{os.getpid()}-{next(_numbers)}"
    answering = _make_folder(remote, nodes, run_dir, directory)
    for monitor in monitors:
        if isinstance(monitor, Monitor) and not monitor.RECONNECTS:
            monitor.nodes = [node for node in monitor.nodes if node in answering]
    started: List[Any] = []
    _note_nodes(monitors, local_dir)
    _open_contexts[run_dir] += 1
    try:
        for monitor in monitors:
            started.append(monitor)
            monitor.archive_folder = local_dir
            monitor.start(directory)
            _raise_failure([monitor])  # a load of hours would be for nothing
        yield
    finally:
        _open_contexts[run_dir] -= 1
        for monitor in reversed(select_monitors(started, None, reconnects=False)):
            _stop_monitor(monitor, directory)
        agents = select_monitors(started, None, reconnects=True)
        if agents:  # a silent node costs its timeout once, and not once for each monitor
            ask_at_once(*(partial(_stop_monitor, monitor, directory) for monitor in agents))
        insist_on_room(local_dir, partial(fetch_files, remote, nodes, directory, local_dir, cluster.get("user")))
    _raise_failure(monitors)


def _stop_monitor(monitor: Any, directory: str) -> None:
    try:
        monitor.stop(directory)
    except Exception:
        logger.exception("monitor %s: an error while it was stopped", type(monitor).__name__)


def select_monitors(
    monitors: Iterable[Any], acting: Optional[bool], reconnects: Optional[bool] = None
) -> List[Any]:
    """Return the monitors that act on the cluster (True), the monitors that only watch it (False), or all (None).

    Of these, `reconnects` keeps the monitors that begin again on a node that was restarted (True), or do not (False).
    """
    return [
        monitor
        for monitor in monitors
        if acting in (None, _acts(monitor)) and reconnects in (None, _reconnects(monitor))
    ]


def _acts(monitor: Any) -> bool:
    return bool(getattr(monitor, "INNERMOST", False))


def _reconnects(monitor: Any) -> bool:
    return bool(getattr(monitor, "RECONNECTS", False))


def _raise_failure(monitors: Iterable[Any]) -> None:
    failures = [monitor.failure for monitor in monitors if getattr(monitor, "failure", None)]
    if failures:
        raise RunFailed("; ".join(failures))


def bring_left(
    cluster: Mapping[str, Any],
    common: Mapping[str, Any],
    nodes: Sequence[str],
    run_dir: str,
    local_dir: Path,
    keep: Callable[[Sequence[Path]], None] = lambda paths: None,
) -> None:
    """End the monitors that a killed run has left on the nodes, and bring their files into the archive.

    `keep` gets the paths of each folder before it is removed on its nodes.
    """
    remote = Remote.of_cluster(cluster, common)
    stop_left(remote, nodes, run_dir)
    look = f"{find_own(run_dir)}cd {shlex.quote(run_dir)} && ls -d monitors-* 2>/dev/null || true"
    left: Dict[str, List[str]] = {}
    for node, result in remote.run(nodes, look, 60, check=False).items():
        if result.status:
            logger.error("%s: monitor files may stay in %s there: %s", node, run_dir, result.stderr.strip())
        for name in result.stdout.split():
            left.setdefault(name, []).append(node)
    _remove_scratch(local_dir.parent)
    for name, left_nodes in left.items():
        fetch_files(remote, left_nodes, f"{run_dir}/{name}", local_dir, cluster.get("user"), keep)


def bring_noted(
    cluster: Mapping[str, Any],
    common: Mapping[str, Any],
    name: str,
    local_dir: Path,
    keep: Callable[[Sequence[Path]], None],
) -> List[Path]:
    """Fetch what stayed on nodes at the end of a run, and return the paths. `name` is that of its run_dir.

    `keep` gets the paths of each folder before it is removed on its nodes; where `keep` fails, it stays noted.
    """
    remote = Remote.of_cluster(cluster, common)
    paths: List[Path] = []
    notes, cluster_nodes = sorted(local_dir.glob(f"*/{LEFT}")), set(nodes_of(cluster))
    if notes:
        _remove_scratch(local_dir)
    for note in notes:
        for folder, nodes in _left(note).items():
            parts = PurePosixPath(folder).parts
            # anybody may have written it, and what was fetched is removed there
            of_run = parts[-2:-1] == (name,) and parts[-1].startswith("monitors-") and ".." not in parts
            if of_run and cluster_nodes.issuperset(nodes):
                paths += fetch_files(remote, nodes, folder, note.parent, cluster.get("user"), keep)
    return paths


def _remove_scratch(local_dir: Path) -> None:
    """Remove what a kill has left of a fetch; `local_dir` has a folder for each phase."""
    for scratch in local_dir.glob(f"*/{SCRATCH}*"):
        shutil.rmtree(scratch, ignore_errors=True)


def _left(note: Path) -> Dict[str, List[str]]:
    try:
        left = read_json(note)
    except (OSError, ValueError):
        return {}
    items = left.items() if isinstance(left, dict) else ()
    return {folder: list(map(str, nodes)) for folder, nodes in items if isinstance(nodes, list)}


def _note_left(note: Path, folder: str, nodes: Sequence[str]) -> None:
    left = {**_left(note), folder: list(nodes)}
    left = {folder: nodes for folder, nodes in left.items() if nodes}
    if left:
        write_json(note, left)
    else:
        note.unlink(missing_ok=True)


def _make_folder(remote: Remote, nodes: Sequence[str], run_dir: str, directory: str) -> List[str]:
    """Make a folder on the nodes, and return the nodes that answer: one that a fault has cut off must not end the run.

    Monitors that a killed run has left in `run_dir` are ended there first. Raises RemoteError. All by one command,
    because a connection to each of a thousand nodes takes a minute of CPU time here.
    """
    end_left = "" if _open_contexts[run_dir] else f"{_end_left(run_dir)} || left={_NOT_ENDED}\n"
    command = f"{end_left}{make_own(directory)}exit $left"
    results = remote.run(nodes, command, 90, check=False)
    silent = [node for node, result in results.items() if result.status in (UNREACHABLE, TIMED_OUT)]
    if silent:
        text = "no reply from %s: monitors with agents begin there when it answers, others do not"
        logger.warning(text, ", ".join(silent))
    answering = [node for node in results if node not in silent]
    not_ended = {node: result for node, result in results.items() if result.status == _NOT_ENDED}
    _log_not_ended(not_ended)
    others = {node: results[node] for node in answering if node not in not_ended}
    if any(result.status for result in others.values()):
        raise RemoteError(f"making {directory}", others)
    return answering


def _note_nodes(monitors: Iterable[Any], local_dir: Path) -> None:
    """Write down which nodes each monitor with agents has to watch, so that results see which nodes lack samples."""
    noted = {}
    for monitor in monitors:
        if _reconnects(monitor):
            name = getattr(monitor, "PROFILE", None) or getattr(monitor, "NAME", type(monitor).__name__)
            noted[name] = _own_nodes(monitor) or []
    if noted:
        write_json(local_dir / NODES, noted)


def _own_nodes(monitor: Any) -> Optional[List[str]]:
    """Return the hosts of a monitor, which CBT's newer one has as `_nodes`; None for one that names none."""
    own = getattr(monitor, "nodes", None) or getattr(monitor, "_nodes", None)
    return None if own is None else list(map(host_of, split_names(own)))


def _nodes_of_monitors(monitors: Iterable[Any], cluster: Mapping[str, Any]) -> List[str]:
    everywhere = list(nodes_of(cluster))
    wanted: Set[str] = set()
    for monitor in monitors:
        own = _own_nodes(monitor)
        if own is None:
            return everywhere
        wanted.update(own)
    # a key of the user's own may name nodes that no other key has
    return [node for node in dict.fromkeys([*everywhere, *sorted(wanted)]) if node in wanted]


def fetch_files(
    remote: Remote,
    nodes: Sequence[str],
    directory: str,
    local_dir: Path,
    user: Optional[str],
    keep: Callable[[Sequence[Path]], None] = lambda paths: None,
) -> List[Path]:
    """Bring `directory` of each node into the archive and remove it there; an unreachable node is logged, not fatal.

    Nodes are asked at once: one that does not answer holds up no other. Files of a node go into local_dir, or where it
    has such files there already, into local_dir.2 and so on. Returns their paths, after `keep` got them. What stays is
    noted for `bring_noted`.
    """
    paths: List[Path] = []
    left, fetched = [], []
    local_dir.mkdir(parents=True, exist_ok=True)
    quoted = shlex.quote(directory)
    # CBT's perf and blktrace run through sudo: their files are root's, and the user who fetches may not read them
    chown = f"sudo -n chown -R -- {shlex.quote(user)} {quoted} 2>/dev/null; " if user and user != "root" else ""

    copies = Copies()

    def bring(node: str, scratch: Path) -> Optional[RemoteError]:
        def ask() -> None:
            if chown:
                remote.run([node], f"{find_own(directory)}{chown}true", 60)
            remote.fetch([node], directory, scratch, copies=copies)

        try:
            insist(ask, RemoteError, pause=copies.stopped.wait)
        except RemoteError as error:
            return error
        return None

    with _scratch_folder(local_dir) as scratch:
        try:
            errors = ask_at_once(*(partial(bring, node, scratch) for node in nodes)) if nodes else []
        except BaseException:  # as an interrupt, which only this thread gets
            copies.stop()
            raise
        for node, error in zip(nodes, errors):
            if error is not None:
                logger.error("monitor files of %s stay in %s there: %s", node, directory, error)
                left.append(node)
                continue
            paths += _move_into(local_dir, node, Path(scratch, node))
            fetched.append(node)
    for folder in {path.parent for path in paths}:
        sync_folder(folder)
    if paths:
        keep(paths)
    _note_left(local_dir / LEFT, directory, left)
    # not before: two names may be one machine, and what fails for want of room is done again
    remote.run(fetched, f"{find_own(directory)}{_KEEP_RECORDS % ((quoted,) * 3)}rm -rf -- {quoted}", 60, check=False)
    return paths


def _move_into(local_dir: Path, node: str, came: Path) -> List[Path]:
    """Move what came from a node to its place in the archive; return the paths there."""
    grown = list(_move_over_copies(local_dir, node, came))
    entries = [entry for entry in sorted(came.iterdir()) if not _has_only_records(entry)]
    files = {f"{entry.name}.{node}": entry for entry in entries}
    folder = _place_for(files, local_dir)
    for name, file in files.items():
        if not os.path.lexists(folder / name):
            shutil.move(str(file), str(folder / name))
    return [*grown, *(folder / name for name in files)]


def _move_over_copies(local_dir: Path, node: str, came: Path) -> Iterator[Path]:
    """Move files over the copies that an earlier fetch has archived, which they begin with; yield the paths there.

    Beside the record of another machine, which may still write them, files stay on a node (_KEEP_RECORDS): each resume
    would archive them again. The record was archived with the copies.
    """
    records = (record for name in (f"*.pid.{node}", f"*.{node}/*.pid") for record in local_dir.parent.glob(f"*/{name}"))
    folders = sorted({local_dir.parent / record.relative_to(local_dir.parent).parts[0] for record in records})
    if not folders:
        return
    is_sealed = os.path.lexists(local_dir.parents[1] / checksums.FILE)  # copies have sums, which do not change
    for file in [path for path in came.rglob("*") if path.is_file() and path.suffix != ".pid"]:
        entry, *inner = file.relative_to(came).parts
        copies = (Path(folder, f"{entry}.{node}", *inner) for folder in folders)
        copy = next((copy for copy in copies if copy.is_file() and _begins_with(file, copy)), None)
        if copy is not None and not (is_sealed and file.stat().st_size > copy.stat().st_size):
            os.replace(file, copy)
            yield copy


def _begins_with(file: Path, copy: Path) -> bool:
    """Return whether a file has the content of a copy, which is not empty, and maybe more."""
    with open(file, "rb") as content, open(copy, "rb") as begin:
        chunks = iter(partial(begin.read, 1 << 20), b"")
        return copy.stat().st_size > 0 and all(chunk == content.read(len(chunk)) for chunk in chunks)


@contextmanager
def _scratch_folder(local_dir: Path) -> Iterator[Path]:
    """Make a folder that is removed at the end; an error of that replaces no interrupt."""
    scratch = tempfile.mkdtemp(dir=local_dir, prefix=SCRATCH)
    try:
        yield Path(scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _place_for(files: Mapping[str, Path], folder: Path) -> Path:
    """Return the first of FOLDER, FOLDER.2, FOLDER.3 and so on that has none of these names, but for the same files.

    The same ones are there when a run was killed before they were removed on their node. The folder is made.
    """
    for number in itertools.count(1):
        candidate = folder if number == 1 else folder.with_name(f"{folder.name}.{number}")
        if all(_same(file, candidate / name) for name, file in files.items() if os.path.lexists(candidate / name)):
            candidate.mkdir(exist_ok=True)
            return candidate
    raise AssertionError


def _has_only_records(path: Path) -> bool:
    """Return whether a folder is empty, as after samples came by a connection, or has only records of processes.

    Such records stay on the node (_KEEP_RECORDS): each resume would archive them again.
    """
    return path.is_dir() and all(entry.suffix == ".pid" for entry in path.iterdir())


def _same(first: Path, second: Path) -> bool:
    if first.is_dir() and second.is_dir():
        names = os.listdir(first)
        return sorted(names) == sorted(os.listdir(second)) and all(_same(first / name, second / name) for name in names)
    return first.is_file() and second.is_file() and filecmp.cmp(first, second, shallow=False)


def build(
    profiles: Mapping[str, Any],
    table: Mapping[str, Callable[[], Any]],
    cluster: Mapping[str, Any],
    common: Mapping[str, Any],
) -> List[Monitor]:
    """Return our monitors for `monitoring_profiles:`, in CBT's order. Raises ValueError for an unknown name."""
    monitors = []
    for name, config in sorted(profiles.items()):
        if name not in table:
            raise ValueError(f"monitoring_profiles: {name}: unknown profile; known: {', '.join(sorted(table))}")
        monitors.append(table[name]()(config or {}, cluster, common))
    return monitors
