"""The base class of monitors."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping, Optional, Sequence

from cbt_plugins.inventory import nodes_of


class Monitor:
    """A watcher of nodes: what each entry point of the group "cbt_plugins.monitors" subclasses.

    `config` is the profile's mapping under `monitoring_profiles:`; its `nodes` are keys of the `cluster:` section. A
    monitor starts subprocesses, no Python thread (CBT's recovery test waits until its process has one thread), and
    ends them by their recorded pids. On the nodes it writes into a folder of its own, DIRECTORY/<its name>, where its
    pid files are: `lifecycle.stop_by_pid_files` ends what is recorded there.
    """

    DEFAULT_NODES: Sequence[str] = ("clients", "osds", "mons", "rgws")
    #: programs without which it sees nothing on a node
    PROGRAMS: Sequence[str] = ()
    #: started after all others and stopped before them: for what acts on the cluster instead of watching it
    INNERMOST: bool = False
    #: tries again to reach nodes that are silent, at the start and later
    RECONNECTS: bool = False
    #: why the load is not what it should be, known after `start` or `stop`: the run then fails where we lead it
    failure: Optional[str] = None
    #: where its files go on this machine, known before `start` where we lead the run
    archive_folder: Optional[Path] = None

    def __init__(self, config: Mapping[str, Any], cluster: Mapping[str, Any], common: Mapping[str, Any]) -> None:
        self.config = config
        self.cluster = cluster
        self.common = common
        roles = config.get("nodes", self.DEFAULT_NODES)
        self.nodes = list(nodes_of(cluster, *([roles] if isinstance(roles, str) else roles)))

    def start(self, directory: str) -> None:
        """Begin to watch; whatever is written goes under `directory` on the nodes."""
        raise NotImplementedError

    def stop(self, directory: str) -> None:
        """End what `start(directory)` began, on the same object."""
        raise NotImplementedError
