"""The generators of one phase, on all client nodes at once, from the run's side."""

from __future__ import annotations

import base64
import json
import logging
import math
import shlex
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.cluster.clock_offsets import Offset
from cbt_plugins.cluster.remote import Remote, RemoteError
from cbt_plugins.cluster.shell_programs import REFUSED, find_own, make_own
from cbt_plugins.cluster.stream import NodeProgram, Stream
from cbt_plugins.journal import sync_folder
from cbt_plugins.load import generator_process
from cbt_plugins.load.client_agent import REDUCE_TIMEOUT
from cbt_plugins.load.generator import FOLDER, ROWS, Counts, JobEnd, LoadJob, parse_counts
from cbt_plugins.polling import insist

log = logging.getLogger(__name__)

#: seconds between the word and the start: every node must have got it
GO_AHEAD = 0.4
#: seconds for listing the objects that are there, or for writing those that a plain warp wants
PREPARE_LIMIT = 3600.0
#: seconds for removing a phase's folder on the nodes
REMOVE_LIMIT = 300.0
#: seconds without a word after which a node is given up: its load needs no network to us, and TCP tries for 15 minutes
NODE_SILENCE = 600.0
#: what clients run; standard library only
AGENT, PARTS = Path(__file__).with_name("client_agent.py"), (generator_process,)
#: what a session leaves on a node and in a phase's folder
KINDS = ("aggregates", "rows", "state", "stderr")


class LoadError(Exception):
    """The load could not be started, or a node of it was lost; the text is for the user."""


@dataclass(frozen=True)
class Beat:
    """What one node says once a second; times are the node's clock."""

    node: str
    at: float
    states: Mapping[str, str]  # job -> waiting | prepare | running | done
    last_row: Mapping[str, float]
    counts: Mapping[str, Mapping[str, Counts]]  # job -> operation -> counts since the start ...
    counted_at: Mapping[str, float]  # ... until then
    exits: Mapping[str, Optional[int]]  # exit status, or minus the signal; None while it runs, and when we ended it
    driver: Mapping[str, Mapping[str, Any]]  # what a cbt-load says of itself: in_flight, oldest, hosts, dry, queued
    errors: Mapping[str, str] = field(default_factory=dict)  # job -> the text of its first request that failed
    lost: Mapping[str, str] = field(default_factory=dict)  # job -> why its rows are lost from now on
    aggregates: Mapping[str, bytes] = field(default_factory=dict)  # job -> what its file has more than at the last beat


@dataclass(frozen=True)
class LoadOrders:
    """What a phase's load consists of."""

    jobs: Tuple[LoadJob, ...]
    programs: Mapping[str, Mapping[str, str]]  # node -> program -> its path there: the generators, and cbt-rows
    environment: Mapping[str, str]
    offsets: Mapping[str, Offset]
    duration: float = 0.0  # 0: the jobs end by themselves or are stopped
    phase: str = ""
    block: int = 1  # seconds: the resolution of the aggregates
    keep_rows: bool = False  # the rows stay beside the aggregates


class Agents:
    """The agents of a run's clients: they stay up from phase to phase, over one connection each, until `close`."""

    def __init__(self, remote: Remote, nodes: Sequence[str], folder: str) -> None:
        """Take the nodes; `folder` is the same path on every node, and the folders of sessions are made in it."""
        self.remote = remote
        self._nodes = list(nodes)
        self._folder = folder
        self._stream: Optional[Stream] = None

    def stream(self) -> Stream:
        """Return the connections, made anew when one of them was lost."""
        if self._stream is None or self._stream.lost:
            self.close()
            agent = NodeProgram(AGENT, PARTS)
            line = f"{make_own(self._folder)}exec python3 {shlex.join(agent.words())}"
            self._stream = self.remote.stream(self._nodes, line, silence=NODE_SILENCE)
            self._stream.send(agent.text)
        return self._stream

    def close(self) -> None:
        """Close the connections: each agent ends its generators and itself within seconds."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


class LoadSession:
    """One phase's load: `start`, `beats` until `over`, `collect`; `stop` at any time."""

    def __init__(self, agents: Agents, folder: str, orders: LoadOrders) -> None:
        """Take the orders; `folder` is the same path on every node and belongs to this session alone."""
        self._agents = agents
        self._folder = folder
        self._orders = orders
        self.jobs = orders.jobs
        self.nodes = list(dict.fromkeys(j.node for j in orders.jobs))
        self._started = 0.0
        self._stream: Optional[Stream] = None
        self._heard: Dict[str, float] = {}
        self.ready: List[str] = []
        self.ended: Dict[str, Dict[str, Any]] = {}
        self.go_at: Optional[float] = None  # run's clock
        self.go_clock: Optional[float] = None  # the same by time.monotonic(): a clock that is set moves nothing

    def start(self) -> None:
        """Give every node its orders; the early jobs begin."""
        self._stream = self._agents.stream()
        self._stream.send_each(self._load_orders())
        self._started = time.monotonic()
        self._heard = {n: self._started for n in self.nodes}

    def _load_orders(self) -> Iterator[Tuple[str, str]]:
        """Yield each node with the line that orders its load."""
        for node in self.nodes:
            mine = [j for j in self.jobs if j.node == node]
            load = {
                "folder": self._folder,
                "jobs": [{**job.order(), "argv": self._argv(job), "reduce": self._reduce(job)} for job in mine],
                "files": {name: base64.b64encode(text).decode() for job in mine for name, text in self._files(job)},
                "environment": dict(self._orders.environment),
                "duration": self._orders.duration,
                "prepare_limit": PREPARE_LIMIT,
            }
            yield node, json.dumps({"load": load}) + "\n"

    def _order(self, node: str, **order: Any) -> None:
        if self._stream is not None:
            self._stream.send(json.dumps(order) + "\n", node)

    def _files(self, job: LoadJob) -> Iterator[Tuple[str, bytes]]:
        """Yield the files that a job finds in the folder spec/."""
        if job.spec is not None:
            spec = {name: self._placed(job, value) for name, value in job.spec.items()}
            yield f"{job.id}.json", json.dumps(spec).encode()
        if job.script is not None:
            yield f"{job.id}.py", job.script.read_bytes()
        if job.state is not None:
            yield f"{job.id}.state", job.state.read_bytes()

    def _path(self, *names: str) -> str:
        return str(PurePosixPath(self._folder, *names))

    def _placed(self, job: LoadJob, value: Any) -> Any:
        return value.replace(FOLDER, self._folder) if isinstance(value, str) else value

    def _argv(self, job: LoadJob) -> List[str]:
        programs = {f"{{{name}}}": path for name, path in self._orders.programs[job.node].items()}
        return [programs.get(a, self._placed(job, a)) for a in job.argv]

    def _reduce(self, job: LoadJob) -> List[str]:
        """Return the command line of the cbt-rows that takes the job's rows."""
        argv = [self._orders.programs[job.node][ROWS.strip("{}")], "reduce", "--job", job.id, "--driver", job.driver]
        argv += ["--node", job.node, "--phase", self._orders.phase, "--block", str(self._orders.block), "--beat"]
        argv.append(f"--offset={self._orders.offsets[job.node].seconds!r}")
        argv += ["-o", self._path("aggregates", f"{job.id}.aggregates")]
        if self._orders.keep_rows:
            argv += ["--keep", self._path("rows", f"{job.id}.csv.zst")]
        return [*argv, "-"]

    def go(self) -> float:
        """Start all timed jobs at one instant of the run's clock, and return it; all nodes are ready.

        A whole second where jobs begin at it: there the window begins. Others take a time to their first request.
        """
        now, clock = time.time(), time.monotonic()
        at = now + GO_AHEAD
        self.go_at = math.ceil(at) if any(job.start == "self" for job in self.jobs) else at
        self.go_clock = clock + self.go_at - now
        for node in self.nodes:
            self._order(node, go=self.go_at + self._orders.offsets[node].seconds)
        return self.go_at

    @property
    def latest_end(self) -> Optional[float]:
        """Return the time.monotonic() by which all must have ended; None for a phase without an end of its own."""
        if self.go_clock is None or not self._orders.duration:
            return None
        preparation = PREPARE_LIMIT if any(j.prepares for j in self.jobs) else max(j.lead for j in self.jobs)
        grace = max(j.grace for j in self.jobs)
        return self.go_clock + preparation + self._orders.duration + grace + generator_process.TERM_TIMEOUT + 20.0

    @property
    def over(self) -> bool:
        """True when every node has said its last word."""
        return not self.running

    @property
    def running(self) -> List[str]:
        """The nodes that have not said their last word."""
        return [node for node in self.nodes if node not in self.ended]

    def beats(self, timeout: float) -> Iterator[Beat]:
        """Yield the beats of the nodes, for up to `timeout` seconds. Raises LoadError when a node was lost."""
        assert self._stream is not None
        lost = self._stream.lost  # what they have said is read below
        for node, line in self._stream.lines(timeout):
            message = _message_of(line)
            self._heard[node] = time.monotonic()
            if "failed" in message:
                raise LoadError(f"{node}: {message['failed']}")
            if message.get("ready"):
                self.ready.append(node)
                if self.all_ready:
                    return  # each moment until the go is one in which the cluster has nothing to do
            if "end" in message:
                self.ended[node] = message["end"]["jobs"]
                if self.over:
                    return
            if "jobs" in message:
                yield _beat(node, message)
        lost = [n for n in lost if n not in self.ended]
        if lost:
            seconds = time.monotonic() - min(self._heard[node] for node in lost)
            why = " | ".join(self._stream.messages[-3:]) or f"no message for {seconds:.0f} s"
            raise LoadError(f"lost the connection to {', '.join(lost)}: {why}")
        if self.go_at is None and time.monotonic() - self._started > PREPARE_LIMIT:
            why = f"the objects were not listed within {PREPARE_LIMIT:.0f} s"
            raise LoadError(f"{why}: {', '.join(self.unready)} not ready")
        silent = self.silent(NODE_SILENCE)
        if silent:
            raise LoadError(f"no message from {', '.join(silent)} for {NODE_SILENCE:.0f} s")

    def silent(self, limit: float) -> Dict[str, float]:
        """Return the nodes that have more to say and have said nothing for `limit` seconds, with their seconds."""
        now = time.monotonic()
        since = {n: now - heard for n, heard in self._heard.items() if n not in self.ended}
        return {n: seconds for n, seconds in since.items() if seconds > limit}

    @property
    def all_ready(self) -> bool:
        """True when the early jobs of all nodes have begun their work."""
        return not self.unready

    @property
    def unready(self) -> List[str]:
        """The nodes whose early jobs have not begun their work."""
        return sorted({j.node for j in self.jobs if j.start != "go"} - set(self.ready))

    def stop(self) -> None:
        """Ask all nodes to end their generators now; their last words still come."""
        for node in self.nodes:
            self._order(node, stop=True)

    def break_off(self) -> None:
        """Close the connections: every agent ends its generators and itself within seconds."""
        self._stream = None
        self._agents.close()

    def ends(self) -> Dict[str, JobEnd]:
        """Return the end of each job: {job id: JobEnd}; jobs of nodes that were lost are missing."""
        return {job: JobEnd.parse(report) for reports in self.ended.values() for job, report in reports.items()}

    def collect(self, into: Path) -> None:
        """Bring what all nodes have into aggregates/, rows/, state/ and stderr/ of a folder, and remove it there."""
        if self._stream is None or not self.over:
            collect(self._agents.remote, self.nodes, self._folder, into)
            return
        # each agent's last word comes when all its files are closed
        _bring(self._agents.remote, self.nodes, self._folder, into, is_there=True)
        left = set(self.nodes)
        for node in self.nodes:
            self._order(node, remove=self._folder)
        until = time.monotonic() + REMOVE_LIMIT
        while left.difference(self._stream.lost) and time.monotonic() < until:
            for node, line in self._stream.lines(1.0):
                left -= {node} if "removed" in _message_of(line) else set()
                if not left:
                    return
        # agents that waited too long while large files came have ended; what was fetched is here
        _remove(self._agents.remote, sorted(left), self._folder)


#: seconds in which an agent ends that was told to: its generators, and the cbt-rows that take their last rows
AGENT_LIMIT = generator_process.TERM_TIMEOUT + REDUCE_TIMEOUT
#: shell text, in the folder of a session on a node: wait until its agent has ended, and kill it after AGENT_LIMIT
END_AGENT = (
    # own pids with their start times: never another process that got the number
    "[ -f pids ] || exit 0; touch stop; "
    # a zombie has ended, and waits for whoever started it
    "now() { sed -n 's/.*) \\([^Z] \\)/\\1/p' /proc/$1/stat 2>/dev/null | cut -d' ' -f20; }; "
    'left() { while read pid born; do [ "$(now $pid)" != "$born" ] || echo $pid; done < pids; }; '
    f"for i in $(seq {AGENT_LIMIT * 5:.0f}); do "
    '[ -n "$(left)" ] || exit 0; sleep 0.2; done; kill -9 $(left); sleep 0.5'
)
#: seconds for END_AGENT
END_LIMIT = AGENT_LIMIT + 60.0


def collect(remote: Remote, nodes: Sequence[str], folder: str, into: Path) -> None:
    """Bring what a session (perhaps of a dead run) left on the nodes into the folders of KINDS; then remove it there.

    Waits for an agent that is still there to end: it does so by itself when the run is gone.
    """
    remote.run(nodes, f"{find_own(folder)}cd {shlex.quote(folder)} || exit; {END_AGENT}", timeout=END_LIMIT)
    _bring(remote, nodes, folder, into)
    _remove(remote, nodes, folder)


def _remove(remote: Remote, nodes: Sequence[str], folder: str) -> None:
    """Remove what was fetched; a node that does not do it keeps it, and the log says so."""
    try:
        remote.run(nodes, f"{find_own(folder)}rm -rf -- {shlex.quote(folder)}", timeout=REMOVE_LIMIT)
    except RemoteError as error:
        log.warning("%s was fetched, but could not be removed from nodes: %s", folder, error)


def _bring(remote: Remote, nodes: Sequence[str], folder: str, into: Path, is_there: bool = False) -> None:
    """Fetch the folders of KINDS, each file of one node; again when a connection was lost. Raises RemoteError.

    `is_there`: each node has files. Raises LoadError where one has none any more, or its folder is refused.
    """
    scratch, seen = into / "fetched", set()

    def fetch() -> None:
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            remote.fetch(nodes, folder, scratch)
        except RemoteError as error:
            if any(result.status == REFUSED for result in error.results.values()):  # it will be refused again
                raise LoadError(str(error)) from error
            raise

    try:
        insist(fetch, RemoteError)
    except OSError:  # a full disk: others need the room more than a half
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    for kind in KINDS:
        (into / kind).mkdir(parents=True, exist_ok=True)
    gone = [node for node in nodes if is_there and not any(path.is_file() for path in (scratch / node).rglob("*"))]
    if gone:
        raise LoadError(f"{', '.join(gone)}: {folder} is gone: was the node started again, with tmp_dir in memory?")
    for node in nodes:
        for kind in KINDS:
            for file in sorted((scratch / node / kind).glob("*")):
                if (kind, file.name) in seen:  # each job is of one node
                    text = f"{kind}/{file.name} came from another node already: the file stays on this node"
                    raise LoadError(f"{node}: {text}")
                seen.add((kind, file.name))
                shutil.move(str(file), str(into / kind / file.name))
    for kind in KINDS:
        sync_folder(into / kind)
    shutil.rmtree(scratch)


def _message_of(line: str) -> Dict[str, Any]:
    """Return the message of an agent in a line; {} for a shell's greeting."""
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def _beat(node: str, message: Mapping[str, Any]) -> Beat:
    jobs = message["jobs"]
    return Beat(
        node=node,
        at=message["t"],
        states={j: job["state"] for j, job in jobs.items()},
        last_row={j: job["last_row"] for j, job in jobs.items()},
        counts={j: parse_counts(job["counts"]) for j, job in jobs.items()},
        counted_at={j: job["counted_at"] for j, job in jobs.items()},
        exits={j: job["exit"] for j, job in jobs.items()},
        driver={j: job["driver"] for j, job in jobs.items() if job["driver"]},
        errors={j: job["error"] for j, job in jobs.items() if job["error"]},
        lost={j: job["lost"] for j, job in jobs.items() if job["lost"]},
        aggregates={j: base64.b64decode(text) for j, text in message["aggregates"].items() if j in jobs},
    )
