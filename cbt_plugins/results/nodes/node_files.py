"""The files of nodes in `monitors` folders. Of a long run, the samples of only some nodes are in memory at a time.

Each process reads the file of one node, and returns its usage in all phases. Nodes that watched the same process are
read together; they are few: two names of one machine, or of one pod in turn.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from cbt_plugins.results.nodes import collectl
from cbt_plugins.results.nodes.node_samples import FOLDER, NodeSamples, read_node
from cbt_plugins.results.nodes.node_usage import NodeUsage, usages_of, without_samples
from cbt_plugins.results.nodes.phase_usage import PhaseUsage
from cbt_plugins.results.nodes.usage import Networks, process_of
from cbt_plugins.results.worker_processes import groups_of, mapping_of

#: of a file its node, without samples, and the usage in the phases: None and {} of a file without samples
UsageOfFile = Tuple[Optional[NodeSamples], Dict[int, NodeUsage]]


class NodeFile(NamedTuple):
    """The samples of a node in one `monitors` folder; those of collectl only if there are no others."""

    folder: Path
    name: str
    offset: float  # seconds: the node's clock minus the run's
    phases: Sequence[int]  # numbers of the phases of which it may have samples

    def read(self) -> Optional[NodeSamples]:
        """Return the samples; None when there are none."""
        return read_node(self._samples, self.name, self.offset) or (
            collectl.read_node(self._collectl, self.name, self.offset) if self._collectl.is_dir() else None
        )

    def paths(self) -> Iterator[Path]:
        """Yield the files."""
        yield from (self._samples, *self._collectl.glob("*"))

    @property
    def _samples(self) -> Path:
        # others' files are there too where nodes share a directory
        return self.folder / f"{FOLDER}{self.name}" / f"{self.name}.jsonl"

    @property
    def _collectl(self) -> Path:
        return self.folder / f"{collectl.FOLDER}{self.name}"


def node_files(folder: Path, offsets: Mapping[str, float], phases: Sequence[int] = ()) -> List[NodeFile]:
    """Return the files of a `monitors` folder, by node."""
    names = {path.name[len(prefix) :] for prefix in (FOLDER, collectl.FOLDER) for path in folder.glob(f"{prefix}*")}
    return [NodeFile(folder, name, offsets.get(name, 0.0), phases) for name in sorted(names)]


def read_nodes(folder: Path, offsets: Mapping[str, float]) -> List[NodeSamples]:
    """Return the samples of a `monitors` folder, by node, all of them in memory."""
    files = node_files(folder, offsets)
    with mapping_of((path for file in files for path in file.paths()), len(files)) as map_files:
        nodes = [node for node in map_files(NodeFile.read, files) if node]
    collectl.join_machines([node for node in nodes if node.source == "collectl"])
    return nodes


@dataclass(frozen=True)
class UsageReader:
    """Reads the usage of nodes in the windows of phases."""

    windows: Mapping[int, Tuple[float, float]]  # by the number of the phase
    roles: Mapping[str, Sequence[str]]
    networks: Networks
    #: seconds, by the number of the phase: the longest interval of its nodes; else that of the nodes read together
    intervals: Mapping[int, float] = field(default_factory=dict)

    def read(self, files: Sequence[NodeFile]) -> Tuple[List[Optional[NodeSamples]], Dict[int, PhaseUsage]]:
        """Return the node of each file, without samples, and the usage of all nodes in each phase."""
        # a node has a file of each invocation of the run
        groups = groups_of([{file.name} for file in files])
        nodes, phases = self._read_groups(files, groups)
        processes = [{process_of(daemon) for daemon in node.daemons} if node else set() for node in nodes]
        needed = groups_of([{file.name, *keys} for file, keys in zip(files, processes)])
        if needed != groups or not all(usage.has_equal_bins for usage in phases.values()):
            # seldom: nodes with a common process, or of different intervals
            intervals = {number: usage.interval for number, usage in phases.items() if usage.interval is not None}
            del phases
            nodes, phases = replace(self, intervals=intervals)._read_groups(files, needed)
        for folder in {file.folder for file in files}:
            of_folder = [node for file, node in zip(files, nodes) if node and file.folder == folder]
            collectl.join_machines([node for node in of_folder if node.source == "collectl"])
        return nodes, phases

    def _read_groups(
        self, files: Sequence[NodeFile], groups: Sequence[Sequence[int]]
    ) -> Tuple[List[Optional[NodeSamples]], Dict[int, PhaseUsage]]:
        phases = {number: PhaseUsage(window) for number, window in self.windows.items()}
        nodes: List[Optional[NodeSamples]] = []
        early: Dict[int, UsageOfFile] = {}  # of files behind one that is not read yet
        with mapping_of((path for file in files for path in file.paths()), len(groups)) as map_groups:
            results = map_groups(self.usages, [[files[number] for number in group] for group in groups])
            for group, usages_of_group in zip(groups, results):
                early.update(zip(group, usages_of_group))
                while len(nodes) in early:
                    node, usages = early.pop(len(nodes))
                    nodes.append(node)
                    for number, usage in usages.items():
                        phases[number].add(usage)
        return nodes, phases

    def usages(self, files: Sequence[NodeFile]) -> List[UsageOfFile]:
        """Return the usage of nodes whose samples are in memory together, by file."""
        nodes = [file.read() for file in files]
        results: List[UsageOfFile] = [(without_samples(node) if node else None, {}) for node in nodes]
        for number, window in self.windows.items():
            watched = [
                (node, light, usages)
                for file, node, (light, usages) in zip(files, nodes, results)
                if node and light and number in file.phases and node.processors.meets(*window)
            ]
            if watched:
                of_window = [node for node, _, _ in watched]
                interval = self.intervals.get(number) or max(node.interval for node in of_window)
                for usage, (_, light, usages) in zip(
                    usages_of(of_window, window, interval, self.roles, self.networks), watched
                ):
                    usages[number] = usage._replace(node=light.in_window(window))
        return results
