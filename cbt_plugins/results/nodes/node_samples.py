"""Samples of the `resources` monitor on one node, as counters on the run's clock."""

from __future__ import annotations

import json
import math
from array import array
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from cbt_plugins.archive_files import open_regular
from cbt_plugins.journal import lines_of
from cbt_plugins.results.clock_steps import NEVER_SET, ClockState, clock_text
from cbt_plugins.results.nodes.thread_groups import GROUPS, Looks
from cbt_plugins.results.numbered_lines import NUMBER, LineOrder, with_following

Edges = Union[Sequence[float], np.ndarray]


class Counter:
    """Some counters of one thing, in pieces: a rise belongs evenly to the time between its two readings.

    Nothing is known before a piece, after it and between two of them: there it counts as no rise.
    """

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._pieces: List[Tuple[np.ndarray, np.ndarray]] = []

    def add(self, begin: float, times: np.ndarray, rises: np.ndarray) -> None:
        """Add a piece that begins at `begin`: rises (n, columns), each up to its time (n), in order."""
        if len(times):
            at = np.maximum.accumulate(np.concatenate(([min(begin, times[0])], times)))
            self._pieces.append((at, np.vstack((np.zeros(self._columns), np.cumsum(rises, axis=0)))))

    @property
    def first(self) -> float:
        """When the newest piece begins."""
        return float(self._pieces[-1][0][0])

    def rises(self, edges: Edges) -> np.ndarray:
        """Return the rises of the counters between each two edges: (len(edges) - 1, columns)."""
        rises = np.zeros((len(edges) - 1, self._columns))
        for at, levels in self._pieces:
            if at[-1] > edges[0] and at[0] < edges[-1]:
                columns = [np.interp(edges, at, levels[:, i]) for i in range(self._columns)]
                rises += np.diff(np.column_stack(columns), axis=0)
        return rises

    def rise(self, begin: float, end: float) -> np.ndarray:
        """Return the rises of the counters from `begin` to `end`: (columns)."""
        rises: np.ndarray = self.rises((begin, end))[0]
        return rises

    def watched_seconds(self, edges: Edges) -> np.ndarray:
        """Return the seconds between each two edges of which something is known."""
        seconds = np.zeros(len(edges) - 1)
        for at, _ in self._pieces:
            seconds += np.diff(np.clip(edges, at[0], at[-1]))
        return seconds

    def meets(self, begin: float, end: float) -> bool:
        """Return whether anything is known between them."""
        return bool(self.watched_seconds((begin, end))[0] > 0)


FOLDER = "resources."

# History of the format. A reader accepts every version up to its own.
#   1  (a development version) the first one
#   2  looks at all threads: "look", "u", names "t"; where "m" and "o" are, memory limits and OOM kills
VERSION = 2


class MemoryLook(NamedTuple):
    """The memory of the cgroup of a daemon, or of one above that is nearer to its limit."""

    t: float
    limit: int  # KiB; 0 without a limit
    used: int  # KiB that the kernel cannot take back
    kills: int  # OOM kills in the cgroup of the daemon since the look before


class MachineKills(NamedTuple):
    """The OOM kills of a machine since its boot, which were the same from the first to the last of some samples."""

    first: float
    last: float
    boot: str
    kills: int


class MachineOfNode(NamedTuple):
    """The machine of a node for the time of a connection: a pod may move to another one."""

    first: float
    last: float
    cpus: int
    boot: str
    network: str


@dataclass
class DaemonSamples:
    """One process of Ceph or of a load generator."""

    daemon_class: str  # "osd", "rgw", "mon", "mgr", "mds", "generator"
    id: str
    pid: int
    io: bool  # its counters of bytes could be read
    disks: Mapping[str, Sequence[str]] = field(default_factory=dict)  # of an OSD: "block", "block.db", "block.wal"
    namespace: str = ""  # of its pid: in each pod of a deployment, the daemon has the same pid
    since: float = 0.0  # its start, on the run's clock
    used: Counter = field(default_factory=lambda: Counter(3))  # seconds of a processor, bytes read, bytes written
    at: np.ndarray = field(default_factory=lambda: np.zeros(0))
    rss: np.ndarray = field(default_factory=lambda: np.zeros(0))  # KiB
    threads: np.ndarray = field(default_factory=lambda: np.zeros(0))
    busiest: List[Tuple[float, str, float]] = field(default_factory=list)  # time, thread, share of a core
    throttled: List[Tuple[float, int, int]] = field(default_factory=list)  # time, periods, those of a wait
    memory: List[MemoryLook] = field(default_factory=list)
    groups: Counter = field(default_factory=lambda: Counter(len(GROUPS)))  # seconds of a processor


@dataclass
class DiskSamples:
    """A disk, not a partition. Counters: reads, bytes, ms, writes, bytes, ms, busy ms, weighted ms."""

    name: str
    rotational: Optional[bool] = None
    used: Counter = field(default_factory=lambda: Counter(8))


@dataclass
class InterfaceSamples:
    """Counters: bytes in, packets in, drops in, bytes out, packets out, drops out."""

    name: str
    speed: Optional[int] = None  # Mbit/s
    addresses: Sequence[str] = ()  # "10.0.0.1/24"
    master: Optional[str] = None
    used: Counter = field(default_factory=lambda: Counter(6))


#: seconds that a process may take to end after an OOM kill: its memory is freed first
_KILL_SECONDS = 2.0
#: seconds from the last sample of a process to the next count of kills: another monitor may have to begin in a new pod
_NEXT_COUNT = 20.0
#: after 7200 samples an agent samples, and counts kills, so many times less often
_COARSER = 10


@dataclass
class NodeSamples:
    """The samples of one node."""

    name: str
    source: str = "resources"  # or "collectl"
    interval: float = 1.0
    cpus: int = 0
    boot: str = ""  # the same on all nodes of one machine
    booted: float = 0.0  # of collectl only, which does not know `boot`: epoch seconds, and what else tells a machine
    kind: str = ""
    network: str = ""
    processors: Counter = field(default_factory=lambda: Counter(2))  # seconds of processors: busy, waiting for a disk
    monitor: Counter = field(default_factory=lambda: Counter(1))  # seconds that the monitor itself used
    daemons: List[DaemonSamples] = field(default_factory=list)
    disks: Dict[str, DiskSamples] = field(default_factory=dict)
    interfaces: Dict[str, InterfaceSamples] = field(default_factory=dict)
    clock: Optional[str] = None  # how its clock jumped, and what that does to the samples
    clock_steps: List[float] = field(default_factory=list)  # seconds by which its clock was set
    clock_state: ClockState = NEVER_SET
    gaps: List[Dict[str, Any]] = field(default_factory=list)  # {"t": its end, "seconds", "why"}
    host: List[Tuple[float, float, float, float]] = field(default_factory=list)  # time, load, KiB free, bytes swapped
    looks: List[Tuple[float, float]] = field(default_factory=list)  # at the threads: time, seconds since the one before
    oom_kills: List[MachineKills] = field(default_factory=list)  # in order; [] in files of before
    damage: Tuple[str, ...] = ()  # what was wrong with lines, which are left out
    machines: List[MachineOfNode] = field(default_factory=list)

    def in_window(self, window: Tuple[float, float]) -> NodeSamples:
        """Return the node with the machine on which it was for the longest time of a window."""
        seconds: Dict[Tuple[int, str, str], float] = {}
        for first, last, *about in self.machines:
            machine: Any = tuple(about)
            seconds[machine] = seconds.get(machine, 0.0) + max(0.0, min(last, window[1]) - max(first, window[0]))
        if len(seconds) < 2:
            return self
        cpus, boot, network = max(seconds, key=seconds.__getitem__)
        return replace(self, cpus=cpus, boot=boot, network=network)

    def has_kill_at(self, end: float) -> bool:
        """Return whether the machine counted an OOM kill when a process ended, whose last sample was at `end`.

        A count long after the end, for example of a pod that a fault has stopped, has kills of other processes.
        """
        next_count = max(_NEXT_COUNT, _COARSER * self.interval + _KILL_SECONDS)
        return any(
            before.boot == after.boot and before.kills < after.kills
            for before, after in zip(self.oom_kills, self.oom_kills[1:])
            if before.last <= end and -next_count <= end - after.first <= _KILL_SECONDS
        )


def read_node(path: Path, name: str, offset: float = 0.0) -> Optional[NodeSamples]:
    """Return the samples of a monitor's file; None when it has none. `offset` is the node's clock minus the run's."""
    node = NodeSamples(name)
    lines: Optional[_Lines] = None
    order = LineOrder()
    try:
        with open_regular(path) as file:
            for line, following in with_following(map(_mapping, lines_of(file))):
                if not order.takes(line, following):
                    continue
                try:
                    if "version" in line:
                        if lines is not None:
                            lines.add_to(node, offset)
                        lines = None
                        lines = _Lines(line, node.clock_state) if line["version"] <= VERSION else None
                    elif lines is not None:
                        step = lines.step_of(line)
                        if order.gap or lines.moves_by(step):
                            lines.add_to(node, offset)
                            lines = lines.again(step)
                        lines.take(line)
                except (TypeError, ValueError, LookupError, AttributeError, OverflowError):
                    order.bad += 1  # it costs that line
    except OSError:
        return None
    if lines is not None:
        lines.add_to(node, offset)
    node.damage = tuple(order.note(path))
    if node.clock_steps:
        node.clock = clock_text(node.clock_steps)
    return node if node.processors.meets(-np.inf, np.inf) else None


#: begins the first line of a connection
_HEADER = b'{"version":'
_UNKNOWN: Mapping[str, Any] = {"version": math.inf}


def _mapping(text: bytes) -> Mapping[str, Any]:
    """Read a line; of a torn line (kill, full disk, crash) the header of a connection behind it, if any."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        begin = text.rfind(_HEADER)
        if begin < 0:
            return {}
        return _UNKNOWN if begin == 0 else _mapping(text[begin:])
    return line if isinstance(line, dict) else {}


#: columns of a line's rows, by kind: daemons, disks and interfaces; the first says which of `names` it is
_COLUMNS = {
    "d": ("index", "ticks", "rss_kib", "threads", "read_bytes", "written_bytes"),
    "k": ("index", "reads", "read", "read_ms", "writes", "written", "write_ms", "busy_ms", "weighted_ms"),
    "n": ("index", "rx_bytes", "rx_packets", "rx_drops", "tx_bytes", "tx_packets", "tx_drops"),
    "u": ("index", "name", "ms"),
}
#: seconds by which the clock and the seconds of a sample may differ; a longer interval may be as much
_CLOCK_STEP = 2.0
_INDEX, _TICKS, _RSS, _THREADS, _READ, _WRITTEN = range(6)
#: /proc/diskstats counts sectors
_SECTOR = 512
_DISK_UNITS = (1, _SECTOR, 1, 1, _SECTOR, 1, 1, 1)
#: of memory, bytes; what is counted in them is a sign, and no measure
_PAGE = 4096
#: ticks of the processors, as in /proc/stat
_CPU = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
#: what a daemon could not have had
_BUSY = [_CPU.index(name) for name in ("user", "nice", "system", "irq", "softirq", "steal")]
_WAITING = _CPU.index("iowait")


class _Lines:
    """The lines of one connection, as columns: those of a day are many."""

    def __init__(self, about: Mapping[str, Any], clock: ClockState = NEVER_SET) -> None:
        self._about = about
        self._clock = clock
        self._clock_steps = array("d")
        self._next: Optional[int] = None  # the number of the line behind the newest one
        self._previous: Optional[float] = None  # time of the newest sample; None where lines behind it are missing
        float(about["interval"]), int(about["cpus"]), float(about["hz"])
        self._names: Dict[str, Dict[str, Any]] = {"d": {}, "k": {}, "n": {}, "t": {}}
        self._times, self._ticks = array("d"), array("d")
        self._begin: Optional[float] = None
        self._values = {kind: array("d") for kind in _COLUMNS}
        self._numbers = {kind: array("l") for kind in _COLUMNS}  # of rows in each sample
        self._gaps: List[Dict[str, Any]] = []
        self._threads: List[Tuple[float, str, str, float]] = []
        self._host: List[Tuple[float, float, float, float]] = []
        self._throttled: Dict[str, List[Tuple[float, int, int]]] = {}
        self._memory: Dict[str, List[MemoryLook]] = {}
        self._kills: List[Tuple[float, float, int]] = []  # first and last time, OOM kills of the machine
        self._looks: List[Tuple[int, float]] = []  # number of the sample, seconds since the look before

    def again(self, step: float = 0.0) -> _Lines:
        """Return a reader of the lines behind lost ones of the same connection, or behind a step of its clock: the
        growth in between is unknown.
        """
        after = _Lines(self._about, self._clock.after(step))
        after._names = self._names
        after._clock_steps.extend([step] if step else [])
        return after

    def moves_by(self, step: float) -> bool:
        """Return whether the lines behind a step of the clock are not timed as if it had not been set."""
        return self._clock.jump(step) != 0.0

    def step_of(self, line: Mapping[str, Any]) -> float:
        """Return the seconds by which the clock was set before a line that follows the newest one; 0.0 if it was not.

        A node that was paused looks as if its clock was set forward: of that time nothing is known.
        """
        if self._previous is None or "s" not in line or line.get(NUMBER) is None or line[NUMBER] != self._next:
            return 0.0
        step = float(line["t"]) - self._clock.shift - self._previous - float(line["s"])
        return step if abs(step) > max(_CLOCK_STEP, float(self._about["interval"])) else 0.0

    def take(self, line: Mapping[str, Any]) -> None:
        """Add a line. Raises TypeError, ValueError, LookupError or AttributeError for a damaged one, of which nothing
        is added.
        """
        number, step = line.get(NUMBER), self.step_of(line)
        named = (line.get("names") or {}).items()
        names = [(self._names[kind], _names_of(kind, of_kind, self._clock.shift)) for kind, of_kind in named]
        if "s" in line:
            self._take_sample(line, step)
        for names_of_kind, new in names:
            names_of_kind.update(new)
        self._next = number + 1 if isinstance(number, int) else None

    def _take_sample(self, line: Mapping[str, Any], step: float) -> None:
        clock = self._clock.after(step)
        t, seconds, ticks = float(line["t"]) - clock.shift, float(line["s"]), array("d", line["c"])
        if len(ticks) != len(_CPU) or not math.isfinite(t + seconds):
            raise ValueError("not the processors of a node")
        values: Dict[str, Tuple[array[float], int]] = {}
        for kind, columns in _COLUMNS.items():
            rows = line.get(kind) or ()
            cells = array("d", chain.from_iterable(rows))
            values[kind] = (cells, len(rows)) if len(cells) == len(columns) * len(rows) else (array("d"), 0)
        looks = [(len(self._times), float(line["look"]))] if "look" in line else []
        host = []
        if "h" in line:
            load, available, *swapped = line["h"]
            host.append((t, float(load), float(available), float(_PAGE * sum(swapped))))
        throttled = [(str(index), (t, int(periods), int(waited))) for index, periods, waited in line.get("q") or ()]
        memory = [(str(index), MemoryLook(t, *map(int, numbers))) for index, *numbers in line.get("m") or ()]
        kills = int(line["o"]) if "o" in line else None
        gaps = [{"t": t, "seconds": float(line["gap"][0]), "why": str(line["gap"][1])}] if "gap" in line else []
        busiest = [
            (t, str(index), str(shares[0][0]), float(shares[0][1]))
            for index, shares in (line.get("threads") or {}).items()
            if shares
        ]
        # only now: of a damaged line nothing counts
        self._previous = t
        if step:
            self._clock = clock
            self._clock_steps.append(step)
        self._begin = t - seconds if self._begin is None else self._begin
        self._times.append(t)
        self._ticks.extend(ticks)
        for kind, (cells, number) in values.items():
            self._values[kind].extend(cells)
            self._numbers[kind].append(number)
        for index, limited in throttled:
            self._throttled.setdefault(index, []).append(limited)
        for index, look in memory:
            self._memory.setdefault(index, []).append(look)
        if kills is not None:
            same = bool(self._kills) and self._kills[-1][2] == kills
            self._kills.append((self._kills.pop()[0] if same else t, t, kills))
        self._looks += looks
        self._host += host
        self._gaps += gaps
        self._threads += busiest

    def add_to(self, node: NodeSamples, offset: float) -> None:
        about, names = self._about, self._names
        node.interval = max(float(about["interval"]), node.interval if node.boot else 0.0)
        node.cpus, node.boot = int(about["cpus"]), str(about.get("boot") or node.name)
        node.network = f"{node.boot} {about.get('netns') or node.name}"
        node.clock_steps += self._clock_steps
        node.clock_state = self._clock
        node.gaps += [{**gap, "t": gap["t"] - offset} for gap in self._gaps]
        if self._begin is None:
            return
        edges = np.concatenate(([self._begin], self._times)) - offset
        node.machines.append(MachineOfNode(edges[0], edges[-1], node.cpus, node.boot, node.network))
        ticks = np.array(self._ticks).reshape(len(self._times), -1) / float(about["hz"])
        node.host += [(t - offset, load, left, swapped) for t, load, left, swapped in self._host]
        node.oom_kills += [MachineKills(a - offset, b - offset, node.boot, kills) for a, b, kills in self._kills]
        node.looks += [(self._times[number] - offset, seconds) for number, seconds in self._looks]
        busy = ticks[:, _BUSY].sum(axis=1)
        node.processors.add(edges[0], edges[1:], np.column_stack((busy, ticks[:, _WAITING])))
        threads = self._rows("u")
        for index, (at, rows) in self._rows("d").items():
            daemon = self._daemon(node, index, (edges, at, rows), offset)
            if daemon is not None and self._looks and daemon.daemon_class != "generator":
                used = rows[:, _TICKS] / float(about["hz"])
                shares = self._looked(threads.get(index)).shares(daemon.daemon_class, at, used)
                daemon.groups.add(daemon.used.first, edges[at + 1], shares * used[:, None])
        for index, (at, rows) in self._rows("k").items():
            disk = names["k"].get(index)
            if disk:
                disk_samples = node.disks.setdefault(disk["name"], DiskSamples(disk["name"], disk.get("rotational")))
                _spread(disk_samples.used, edges, at, rows[:, 1:] * _DISK_UNITS)
        for index, (at, rows) in self._rows("n").items():
            net = names["n"].get(index)
            if net:
                interface = InterfaceSamples(
                    net["name"], net.get("speed"), net.get("addresses") or (), net.get("master")
                )
                _spread(node.interfaces.setdefault(interface.name, interface).used, edges, at, rows[:, 1:])

    def _rows(self, kind: str) -> Dict[str, Tuple[np.ndarray, np.ndarray]]:
        """Return {index: (numbers of the samples, their rows)} of one kind."""
        rows = np.array(self._values[kind]).reshape(-1, len(_COLUMNS[kind]))
        at = np.repeat(np.arange(len(self._times)), np.array(self._numbers[kind], int))
        rows_of_index = {}
        for index in np.unique(rows[:, _INDEX]):
            row_numbers = np.flatnonzero(rows[:, _INDEX] == index)
            rows_of_index[str(int(index))] = (at[row_numbers], rows[row_numbers])
        return rows_of_index

    def _looked(self, rows: Optional[Tuple[np.ndarray, np.ndarray]]) -> Looks:
        """Return the looks at one daemon, from its rows and the numbers of their samples."""
        looks = np.array([number for number, _ in self._looks], int)
        at, thread_rows = rows if rows else (np.zeros(0, int), np.zeros((0, 3)))
        names = {int(index): str(thread.get("name")) for index, thread in self._names["t"].items()}
        return Looks(looks, np.searchsorted(looks, at), thread_rows[:, 1], thread_rows[:, 2] / 1000, names)

    def _daemon(
        self, node: NodeSamples, index: str, table: Tuple[np.ndarray, np.ndarray, np.ndarray], offset: float
    ) -> Optional[DaemonSamples]:
        """Add a daemon to its node; None for none. `table`: edges of all samples, numbers of its own, their rows."""
        about = self._names["d"].get(index)
        if not about:
            return None
        edges, at, rows = table
        used = rows[:, [_TICKS, _READ, _WRITTEN]] / (float(self._about["hz"]), 1, 1)
        times = edges[at + 1]
        # what it used before it was found is told with the first sample after
        begin, since = edges[at[0]], float(about["since"]) - offset
        if edges[0] < since < begin:
            begin = since
        if about["class"] == "monitor":
            node.monitor.add(begin, times, used[:, :1])
            return None
        daemon = DaemonSamples(
            about["class"],
            str(about["id"]),
            int(about["pid"]),
            bool(about["io"]),
            about.get("disks") or {},
            f"{node.boot} {self._about.get('pidns') or node.name}",
            since,
        )
        daemon.used.add(begin, times, used)
        daemon.at, daemon.rss, daemon.threads = times, rows[:, _RSS], rows[:, _THREADS]
        daemon.throttled = [(t - offset, of, waited) for t, of, waited in self._throttled.get(index, ())]
        daemon.memory = [look._replace(t=look.t - offset) for look in self._memory.get(index, ())]
        daemon.busiest = [
            (t - offset, name, share) for t, daemon_index, name, share in self._threads if daemon_index == index
        ]
        node.daemons.append(daemon)
        return daemon


def _names_of(kind: str, names: Mapping[str, Any], clock_shift: float) -> Dict[str, Dict[str, Any]]:
    """Return the meaning of the indices in lines. Raises LookupError, TypeError, ValueError or AttributeError."""
    for about in names.values():
        if kind == "d":
            str(about["class"]), str(about["id"]), int(about["pid"]), bool(about["io"])
            dict(about.get("disks") or {})
        else:
            str(about["name"])
    if kind != "d":
        return dict(names)
    return {index: {**about, "since": float(about["since"]) - clock_shift} for index, about in names.items()}


def _spread(counter: Counter, edges: np.ndarray, at: np.ndarray, rises: np.ndarray) -> None:
    """Add rises of some samples; in the others nothing rose."""
    every = np.zeros((len(edges) - 1, rises.shape[1]))
    every[at] = rises
    counter.add(edges[0], edges[1:], every)
