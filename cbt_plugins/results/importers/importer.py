"""The base classes of importers: what reads the results of one program.

An importer is one class in one file, listed in `setup.cfg` under `cbt_plugins.importers`. It says which files are
its program's (`claims`) and makes run records of those of one run (`read`). A program whose clients write a file each
derives from ClientImporter and parses one file; how clients become a run is the same for all of them.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from cbt_plugins.results.importers.cbt import FAULTS_KEY, RunFaults
from cbt_plugins.results.importers.client_parts import Parsed, Part, measurements
from cbt_plugins.results.result_file import Unreadable, read_unpacked, reading, unpacked_name
from cbt_plugins.results.run_record import UNREADABLE, Measurement, ResultWarning, RunRecord

#: output.NUMBER.HOST, json_output.NUMBER.HOST, output.NUMBER.csv.HOST, as CBT collects them
_OUTPUT = re.compile(r"^(?:json_)?output\.(?P<number>\d+)(?:\.(?:csv|json))?(?:\.prefill)?(?P<host>\..+)?$")


@dataclass(frozen=True)
class ResultFiles:
    """The files of one run by one program, and what CBT wrote about the run."""

    source: Path  # a file, or the run's directory
    name: str  # of the record
    files: Tuple[Path, ...]
    config: Mapping[str, Any] = field(default_factory=dict)  # keys of RunRecord.config
    hosts: Sequence[str] = ()  # the clients that should have left results
    faults: Optional[RunFaults] = None

    @property
    def folder(self) -> Path:
        """The directory that all files are below."""
        return self.source if self.source.is_dir() else self.source.parent


class Importer(ABC):
    """The results of one program."""

    #: name of the plug-in, and RunRecord.kind
    kind: str

    @abstractmethod
    def claims(self, head: str) -> bool:
        """Return whether a file that begins like this is of this program; at most one importer may say so."""

    @abstractmethod
    def read(self, results: ResultFiles) -> List[RunRecord]:
        """Return the records of files that this importer has claimed. Raises Unreadable."""

    def queue_depth(self, record: RunRecord) -> Optional[int]:
        """Return the number of requests that a record of this importer had in flight; None if it is not known."""
        return None

    def extra_text(self, source: Path) -> str:
        """Return the text that `cbt-tools report` prints below the tables of a source; "" for nothing."""
        return ""


@dataclass(frozen=True)
class ClientFile:
    """The file of one client."""

    path: Path
    text: str
    client: str  # what tells it from the others of the run
    host: str  # ".HOST" at the end of its name, or ""
    folder: Optional[str]  # below the run's directory: a workload of CBT
    collected: bool  # by CBT
    config: Mapping[str, Any]


class ClientImporter(Importer):
    """A program that runs on each client by itself, and leaves a file for each."""

    #: False: times in its files count from its start, which no file names
    has_clock = True
    #: True: files in different folders are of different phases, not of different clients
    folders_are_phases = False

    @abstractmethod
    def parse(self, file: ClientFile) -> Parsed:
        """Return the results in one file. Raises Unreadable."""

    def read(self, results: ResultFiles) -> List[RunRecord]:
        parsed: List[Parsed] = []
        warnings: List[ResultWarning] = []
        files = list(_preferred(results.files)) if results.source.is_dir() else results.files
        clients = self._clients_of_files(files, results.folder)
        short_names = {client: _short_name(path) for path, client in clients.items()}
        for path, client in clients.items():
            try:
                with reading(path):
                    parsed.append(self.parse(_client_file(path, client, results)))
            except Unreadable as e:
                why = str(e).removeprefix(f"{path}: ")
                warnings.append(ResultWarning(UNREADABLE, f"{path.relative_to(results.folder)}: {why}"))
        if not parsed:
            text = warnings[0].text
            if not results.source.is_dir():
                text = text.removeprefix(f"{results.source.name}: ")
            raise Unreadable(f"{results.source}: {text}")
        seen = {host for host in results.hosts if any(_is_of(host, path, results.folder) for path in files)}
        missing = sorted(set(results.hosts) - seen) if seen else []
        if missing:
            text = f"no result of {', '.join(missing)}: the numbers are of the other clients"
            warnings.append(ResultWarning("missing-client", text))
        usable = not warnings and all(client_result.usable for client_result in parsed)
        for client_result in parsed:
            warnings += [warning for warning in dict.fromkeys(client_result.warnings) if warning not in warnings]
        if results.faults is not None:
            usable = usable and results.faults.as_planned
            warnings += results.faults.warnings
        return list(self._records(results, parsed, warnings, usable, short_names))

    def _clients_of_files(self, files: Sequence[Path], folder: Path) -> Dict[Path, str]:
        """Return the client of each file, by the shortest form of name that tells all of them apart."""
        names: Dict[Path, str] = {}
        for name_of in (_short_name, unpacked_name, lambda path: path.relative_to(folder).as_posix()):
            names = {path: name_of(path) for path in files}
            places = {(path.parent if self.folders_are_phases else None, name) for path, name in names.items()}
            if len(places) == len(files):
                break
        return names

    def _records(
        self,
        results: ResultFiles,
        parsed: Sequence[Parsed],
        warnings: Sequence[ResultWarning],
        usable: bool,
        short_names: Mapping[str, str],
    ) -> Iterator[RunRecord]:
        """Yield a record for each loop of a program that repeats everything."""
        faults = results.faults
        begun = faults.begun if faults else None
        loops: Dict[int, List[Part]] = {}
        for client_result in parsed:
            for loop, parts in client_result.loops.items():
                loops.setdefault(loop, []).extend(parts)
        host_of = _hosts([part for parts in loops.values() for part in parts], short_names)
        hosts = {loop: [replace(part, client=host_of[part.client]) for part in parts] for loop, parts in loops.items()}
        for loop, parts in loops.items():
            lines, part_warnings, complete = measurements(parts)
            lines = [_finite(line) for line in lines]
            lost = list(_lost_clients(hosts[loop], hosts.values()))
            part_warnings += lost
            if not self.has_clock:
                lines = [replace(line, start=_sum(line.start, begun)) for line in lines]
            if not self.has_clock and len(parsed) > 1:
                text = f"{self.kind} writes no times: its {len(parsed)} processes are assumed to have started at once"
                part_warnings.insert(0, ResultWarning("no-clock", text))
            if faults is not None:
                lines += faults.measurements(lines)
            yield RunRecord(
                source=str(results.source),
                name=f"{results.name} loop {loop + 1}" if len(loops) > 1 else results.name,
                kind=self.kind,
                config=_config(results, parsed, parts),
                measurements=tuple(lines),
                usable=usable and complete and not lost,
                failure=faults.recovery if faults else None,
                warnings=(*warnings, *part_warnings),
                started=min(
                    (client_result.started for client_result in parsed if client_result.started is not None),
                    default=begun,
                ),
            )


def _is_of(host: str, path: Path, folder: Path) -> bool:
    """Return whether a file that CBT has collected is of this host: by its name, or by a folder above it."""
    return unpacked_name(path).endswith(f".{host}") or host in path.parent.relative_to(folder).parts


def _finite(line: Measurement) -> Measurement:
    """Return the measurement, without its value where that is NaN or infinite."""
    if line.value is None or math.isfinite(line.value):
        return line
    return replace(line, value=None, series=None, bin=0.0)


def _hosts(parts: Sequence[Part], short_names: Mapping[str, str]) -> Dict[str, str]:
    """Return client -> short name if all files of that name have different phases, such as put/a and get/a."""
    phases: Dict[str, List[str]] = {}
    for client, phase in sorted({(part.client, part.phase) for part in parts}):
        phases.setdefault(short_names.get(client, client), []).append(phase)
    hosts = {}
    for client in {part.client for part in parts}:
        short_name = short_names.get(client, client)
        of_name = phases[short_name]
        hosts[client] = short_name if len(set(of_name)) == len(of_name) else client
    return hosts


def _lost_clients(parts: Sequence[Part], loops: Iterable[Sequence[Part]]) -> Iterator[ResultWarning]:
    """Yield a warning for each phase of a loop without a client that is in another phase, or loop, beside its clients.
    """
    clients_of_phases = [clients for loop_parts in loops for clients in _clients(loop_parts).values()]
    for phase, clients in _clients([part for part in parts if not part.prepares]).items():
        lost = {client for group in clients_of_phases if group & clients for client in group} - clients
        if lost:
            text = f"{phase}: no result of {', '.join(sorted(lost))}: the numbers are of the other clients"
            yield ResultWarning("missing-client", text)


def _clients(parts: Sequence[Part]) -> Dict[str, Set[str]]:
    """Return the clients of each phase."""
    clients: Dict[str, Set[str]] = {}
    for part in parts:
        clients.setdefault(part.phase, set()).add(part.client)
    return clients


def _sum(*values: Optional[float]) -> Optional[float]:
    terms = [value for value in values if value is not None]
    return sum(terms) if len(terms) == len(values) else None


def _short_name(path: Path) -> str:
    plain = unpacked_name(path)
    match = _OUTPUT.match(plain)
    return f"{match['number']}{match['host'] or ''}" if match else Path(plain).stem


def _client_file(path: Path, client: str, results: ResultFiles) -> ClientFile:
    name = _OUTPUT.match(unpacked_name(path))
    folder = path.parent.relative_to(results.folder).as_posix()
    return ClientFile(
        path=path,
        text=read_unpacked(path),
        client=client,
        host=(name["host"] or "") if name else "",
        folder=folder if folder != "." else None,
        collected=bool(results.hosts) or name is not None,
        config=results.config,
    )


def _preferred(files: Sequence[Path]) -> Iterator[Path]:
    """Yield of files with the same results the one that says most: hsbench's and elbencho's JSON, else their table; the
    JSON that CBT has cut out for fio, the text that it has cut up for rados bench.
    """
    same: Dict[Tuple[Path, str], List[Path]] = {}
    for file in files:
        plain = Path(unpacked_name(file))
        match = _OUTPUT.match(plain.name)
        stem = f"{match['number']}{match['host'] or ''}" if match else plain.name
        if not match and plain.suffix in (".csv", ".json", ".txt"):
            stem = plain.stem
        same.setdefault((file.parent, stem), []).append(file)
    for copies in same.values():
        yield max(copies, key=_says)


def _says(file: Path) -> Tuple[bool, bool, bool, bool]:
    text = file.name.startswith("output.") and not re.search(r"\.(csv|json)(\.|$)", file.name)
    # rados bench: what CBT makes of the text has no series; fio: the text has the JSON in it
    best = text or ".json" in file.name
    return file.stat().st_size > 0, best, not unpacked_name(file).endswith(".txt"), unpacked_name(file) == file.name


def _config(results: ResultFiles, parsed: Sequence[Parsed], parts: Sequence[Part]) -> Dict[str, Any]:
    """Return the values in which all files agree, and those that CBT has written for all of them."""
    written = dict(results.config)
    if results.faults is not None:
        written[FAULTS_KEY] = results.faults.events
    first = parsed[0].config
    agreed = {
        key: value
        for key, value in first.items()
        if all(client_result.config.get(key) == value for client_result in parsed)
    }
    config = {**{key: value for key, value in written.items() if key not in agreed}, **agreed}
    if "benchmark" in written:
        config["benchmark"] = written["benchmark"]
    clients_of_phase = _clients(parts)
    config["load.processes"] = max(map(len, clients_of_phase.values()), default=0)
    config["phases"] = " ".join(clients_of_phase)
    return {key: config[key] for key in sorted(config) if config[key] is not None}
