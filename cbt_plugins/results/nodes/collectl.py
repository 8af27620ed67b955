"""collectl's plot files (-P) of one node: processors, disks and interfaces, as counters. It knows no daemons here."""

from __future__ import annotations

import contextlib
import gzip
import io
import re
import zlib
from calendar import timegm
from math import isfinite
from pathlib import Path
from time import strptime
from typing import Callable, Collection, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from cbt_plugins.inventory import short_name
from cbt_plugins.journal import read_bytes
from cbt_plugins.results.nodes.node_samples import DiskSamples, InterfaceSamples, NodeSamples

FOLDER = "collectl."

#: a plot file, and its host: "node2-20261121.cpu.gz"
_PLOT_FILE = re.compile(r"(.+?)(?:-\d{8}(?:-\d{6})?)?\.(?:cpu|dsk|net|tab)(?:\.gz)?")
#: hosts that a warning names
_SHOWN = 5
#: a column of a detail file: "[DSK:sda]RKBytes"
_COLUMN = re.compile(r"\[(\w+):([^\]]*)\](.*)")
_KIB = 1024.0
#: unpacked bytes beyond which a file is none of collectl's
_MOST = 1 << 30
_PIECE = 1 << 20
#: seconds by which collectl's idea of when a machine was booted differs between its nodes
_NEAR = 1.0
_HOUR = 3600.0
#: intervals, and at least seconds, without a line that make a gap: times may be whole seconds, and a busy node is late
_LATE, _LEAST_GAP = 2.5, 4.0
_NUMBER = re.compile(r"-?\d+(\.\d+)?$")

#: one table: its header's facts, the columns and a row of texts for each sample
Table = Tuple[Mapping[str, str], Sequence[str], List[List[str]]]


def read_node(folder: Path, name: str, offset: float = 0.0) -> Optional[NodeSamples]:
    """Return the samples of all plot files in `folder`, None without any. `offset` is node's minus run's clock.

    The files have times in whole seconds, so that all is up to one second off, and rates as whole numbers. Of the files
    of several hosts, whose nodes share a directory, only those of this node are read.
    """
    node, files = NodeSamples(name, "collectl", 0.0), _plot_files(folder)
    if len(files) > 1:
        hosts = _hosts_named(name, files)
        if len(hosts) != 1:
            text = f"files of several hosts ({', '.join(sorted(files)[:_SHOWN])}), and which is {name} is unknown"
            node.damage = (f"{'/'.join(folder.parts[-2:])}: {text}: left out",)
            return node
        files = {host: files[host] for host in hosts}
    for facts, columns, rows in _tables(path for paths in files.values() for path in paths):
        timed = [(moment, row) for row in rows if (moment := _moment(columns, row)) is not None]
        if not timed:
            continue
        node_times, rows = np.array([moment for moment, _ in timed]), [row for _, row in timed]
        interval = _interval(facts, node_times)
        if columns[0] != "UTC":
            node_times, clock = _of_one_zone(node_times, interval)
            node_times, rows, node.clock = node_times - _east(facts), rows[: len(node_times)], node.clock or clock
        times = node_times - offset
        node.interval = max(node.interval, interval)
        node.cpus = int(facts.get("NumCPUs") or node.cpus)
        # of the time without lines, nothing is known
        borders = [0, *(np.nonzero(np.diff(times) > max(_LEAST_GAP, _LATE * interval))[0] + 1), len(times)]
        for first, end in zip(borders, borders[1:]):
            values = _Values(columns, rows[first:end], np.full(end - first, interval), times[first:end])
            for read in (_processors, _disks, _interfaces):
                read(node, values)
        for net, speed in re.findall(r"(\S+?):(\d+)", facts.get("NetNames", "")):
            if net in node.interfaces:
                node.interfaces[net].speed = int(speed)
        node.booted, node.kind = float(facts.get("Booted", 0)), f"{facts.get('Memory', '')} {facts.get('Kernel', '')}"
    node.boot = node.network = name
    return node if node.processors.meets(-np.inf, np.inf) or node.disks or node.interfaces else None


class _Values:
    """A table by column, each value for the time up to its line."""

    def __init__(self, columns: Sequence[str], rows: List[List[str]], seconds: np.ndarray, times: np.ndarray) -> None:
        self.seconds, self.times = seconds, times
        self._rows, self._places = rows, {column: i for i, column in enumerate(columns)}
        self.columns = columns

    def of(self, column: str) -> np.ndarray:
        """Return a column, zeros when there is none."""
        place = self._places.get(column)
        if place is None:
            return np.zeros(len(self._rows))
        return np.array([float(row[place]) if _NUMBER.match(row[place]) else 0.0 for row in self._rows])

    def things(self, kind: str) -> Dict[str, Callable[[str], np.ndarray]]:
        """Return name -> what gives a column of it; of "DSK", "NET" or "CPU"."""
        readers: Dict[str, Callable[[str], np.ndarray]] = {}
        for column in self.columns:
            parts = _COLUMN.match(column)
            # totals are "[CPU]Sys%": no name
            if parts and parts.group(1) == kind:
                prefix = f"[{kind}:{parts.group(2)}]"
                readers.setdefault(parts.group(2), lambda name, prefix=prefix: self.of(prefix + name))  # type: ignore[misc]
        return readers

    def begin(self) -> float:
        return float(self.times[0] - self.seconds[0])


_BUSY = ("User%", "Nice%", "Sys%", "Irq%", "Soft%", "Steal%")


def _processors(node: NodeSamples, values: _Values) -> None:
    """Add the percents of each processor; where there are only totals, of all of them."""
    each = values.things("CPU")
    if each:
        busy = np.sum([read_column(column) for read_column in each.values() for column in _BUSY], axis=0)
        wait = np.sum([read_column("Wait%") for read_column in each.values()], axis=0)
        node.cpus = node.cpus or len(each)
    elif "[CPU]Sys%" in values.columns and not node.processors.meets(values.begin(), values.times[-1]):
        busy = node.cpus * np.sum([values.of(f"[CPU]{column}") for column in _BUSY], axis=0)
        wait = node.cpus * values.of("[CPU]Wait%")
    else:
        return
    rises = np.column_stack((busy, wait)) / 100 * values.seconds[:, None]
    node.processors.add(values.begin(), values.times, rises)


def _disks(node: NodeSamples, values: _Values) -> None:
    for name, of in values.things("DSK").items():
        reads, writes, util = of("Reads"), of("Writes"), of("Util")
        rates = (
            reads,
            of("RKBytes") * _KIB,
            reads * of("WaitR"),
            writes,
            of("WKBytes") * _KIB,
            writes * of("WaitW"),
            util / 100 * 1000,
            of("QueLen") * 1000,
        )
        disk = node.disks.setdefault(name, DiskSamples(name))
        disk.used.add(values.begin(), values.times, np.column_stack(rates) * values.seconds[:, None])


def _interfaces(node: NodeSamples, values: _Values) -> None:
    for name, of in values.things("NET").items():
        if name == "lo":
            continue
        rates = (of("RxKB") * _KIB, of("RxPkt"), of("RxDrp"), of("TxKB") * _KIB, of("TxPkt"), of("TxDrp"))
        net = node.interfaces.setdefault(name, InterfaceSamples(name))
        net.used.add(values.begin(), values.times, np.column_stack(rates) * values.seconds[:, None])


def join_machines(nodes: Sequence[NodeSamples]) -> None:
    """Let nodes of one machine say so: booted at one moment, with the same memory and kernel."""
    for i, node in enumerate(nodes):
        for earlier_node in nodes[:i]:
            if node.kind and node.kind == earlier_node.kind and abs(node.booted - earlier_node.booted) < _NEAR:
                node.boot = earlier_node.boot


def _plot_files(folder: Path) -> Dict[str, List[Path]]:
    """Return the plot files by host; a folder that machines share has files of several hosts."""
    files: Dict[str, List[Path]] = {}
    for path in folder.glob("[!.]*"):
        parts = _PLOT_FILE.fullmatch(path.name)
        if parts:
            files.setdefault(parts.group(1), []).append(path)
    return files


def _hosts_named(name: str, hosts: Collection[str]) -> List[str]:
    """Return the hosts with the name of a node, or those whose names differ from it only in their domains."""
    exact = [host for host in hosts if host.lower() == name.lower()]
    return exact or [host for host in hosts if short_name(host).lower() == short_name(name).lower()]


def _tables(files: Iterable[Path]) -> Iterator[Table]:
    """Yield all tables, one for each start of collectl; details first, as totals are used only without them."""
    for path in sorted(files, key=lambda path: (".tab" in path.name, path.name)):
        facts: Dict[str, str] = {}
        columns: List[str] = []
        rows: List[List[str]] = []
        separator = " "
        for line in _lines(path):
            if line.startswith("#"):
                if rows:
                    yield facts, columns, rows
                    facts, rows = {}, []
                if line.startswith(("#Date", "#UTC")):
                    separator = re.sub(r"^#(Date|UTC)", "", line)[:1]
                    columns = line[1:].split(separator)
                else:
                    facts.update(re.findall(r"(\w+): +(\S+)", line))
                    if "NetNames:" in line:
                        facts["NetNames"] = line.partition("NetNames:")[2]
            elif len(cells := line.split(separator)) == len(columns):
                rows.append(cells)  # a kill may have torn the last one
        if rows:
            yield facts, columns, rows


def _lines(path: Path) -> List[str]:
    try:
        data = read_bytes(path)
    except OSError:  # refused, or lost: it costs what it says, and SHA256SUMS names it
        return []
    if path.suffix == ".gz":
        data = _unpacked(data)
    lines = data.decode(errors="replace").split("\n")
    return [line.rstrip("\r") for line in lines[:-1]]


def _unpacked(data: bytes) -> bytes:
    """Return the text of all members of a gzip file, up to the first error: collectl appends one at a new start."""
    pieces: List[bytes] = []
    size = 0
    with contextlib.suppress(EOFError, zlib.error, gzip.BadGzipFile), gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        while size < _MOST and (piece := file.read1(min(_PIECE, _MOST - size))):
            pieces.append(piece)
            size += len(piece)
    return b"".join(pieces)


def _interval(facts: Mapping[str, str], times: np.ndarray) -> float:
    configured_interval = float(facts.get("Interval", "0").partition(":")[0] or 0)
    return configured_interval or (float(np.median(np.diff(times))) if len(times) > 1 else 1.0)


def _of_one_zone(local_times: np.ndarray, interval: float) -> Tuple[np.ndarray, Optional[str]]:
    """Return local times of lines in the zone of the first one, and why there are no more.

    Local time jumps back by an hour, and forward by one at a full hour. What follows another jump is left out.
    """
    times, steps = local_times.copy(), np.diff(local_times)
    off = max(interval, 2.0)
    for i in np.nonzero((steps < -off) | (np.abs(steps - interval - _HOUR) <= off))[0]:
        if abs(steps[i] - interval + _HOUR) <= off:
            times[i + 1 :] += _HOUR
        elif steps[i] > 0 and local_times[i] % _HOUR >= _HOUR - interval - off:
            times[i + 1 :] -= _HOUR
        else:
            text = f"its local time jumps by {steps[i]:+.0f} s, and the file has no zone behind that"
            return times[: i + 1], f"{text}: the rest of the file is left out"
    return times, None


def _east(facts: Mapping[str, str]) -> float:
    """Return the seconds that local time is ahead of UTC where the file begins."""
    zone = facts.get("TZ", "+0000")
    return (int(zone[1:3]) * _HOUR + int(zone[3:5]) * 60) * (-1 if zone[0] == "-" else 1)


def _moment(columns: Sequence[str], row: Sequence[str]) -> Optional[float]:
    """Return the epoch seconds of a line; of local time taken for UTC. None for a damaged line."""
    try:
        if columns[0] == "UTC":
            moment = float(row[0])
            return moment if isfinite(moment) else None
        seconds, _, part = row[1].partition(".")
        return timegm(strptime(f"{row[0]} {seconds}", "%Y%m%d %H:%M:%S")) + float(f"0.{part or 0}")
    except (ValueError, IndexError):
        return None
