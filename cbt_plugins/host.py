"""What plug-ins have of their host, a CBT checkout or the built-in run loop: the run, Monitor, and built programs."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, List, Mapping, Optional, Sequence

from cbt_plugins.inventory import nodes_of


class RunFailed(Exception):
    """A run that did not give a whole result; its text is for the user. The exit status becomes 1."""


@dataclass(frozen=True)
class Checkout:
    """A CBT source tree."""

    path: Path
    commit: Optional[str]  # full git hash, None when it is not a git tree
    describe: str  # for people: "9d6480f 2025-05-16", or the path


@dataclass(frozen=True)
class HostRun:
    """One run: one permutation of a benchmark section in one iteration."""

    benchmark: str  # "warp", "rgwtest", ...
    config: Mapping[str, Any]  # the permutation as the host made it: the section's keys + benchmark + iteration
    iteration: int
    archive_dir: Path  # <archive>/results/%08d/id-<8 hex>; exists
    run_dir: str  # scratch directory on the nodes, this run's alone: <tmp_dir>/%08d/<benchmark>-<run_id>
    cluster: Mapping[str, Any]  # the `cluster:` section
    common: Mapping[str, Any]  # the `common:` section (pdsh_cmd, pdsh_ssh_args, ...), {} when absent
    endpoints: Mapping[str, Any]  # the `client_endpoints:` section, {} when absent
    config_file: Optional[Path]  # the YAML file, where the host knows it
    checkout: Optional[Checkout]  # None in the built-in loop
    #: monitors(local_dir, *without, acting=None): the profiles of `monitoring_profiles:` but for these run while the
    #: context is open, and their files are under local_dir when it has closed (also after an exception);
    #: acting: True for those only that act on the cluster, False for those only that watch it
    monitors: Callable[..., AbstractContextManager[None]] = field(repr=False)
    profiles: Mapping[str, Any] = field(default_factory=dict)  # the `monitoring_profiles:` section
    #: of this archive and no other, though it may hold the same run; kept when the run is resumed
    run_id: str = field(default_factory=lambda: secrets.token_hex(4))


@dataclass
class CurrentRun:
    """The run that cbt.py has under way in this process, for monitors that act on it."""

    archive_dir: Path
    failure: Optional[str] = None  # why it has no result although it comes to its end


#: set by the host while a run is under way in a CBT checkout
current: Optional[CurrentRun] = None


class Monitor:
    """A watcher of nodes: what each entry point of the group "cbt_plugins.monitors" subclasses.

    `config` is the profile's mapping under `monitoring_profiles:`; its `nodes` are keys of the `cluster:` section. A
    monitor starts subprocesses, no Python thread (CBT's recovery test waits until its process has one thread), and
    ends them by their recorded pids. On the nodes it writes into a folder of its own, DIRECTORY/<its name>, where its
    pid files are: `lifecycle.stop_by_pid_files` ends what is recorded there.
    """

    DEFAULT_NODES: Sequence[str] = ("clients", "osds", "mons", "rgws")
    #: started after all others and stopped before them: for what acts on the cluster instead of watching it
    INNERMOST: bool = False
    #: tries again to reach nodes that are silent, at the start and later
    RECONNECTS: bool = False
    #: why the load is not what it should be, known after `start` or `stop`: the run then fails where we lead it
    failure: Optional[str] = None

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


def cache_dir() -> Path:
    """Return the folder of all that set-up makes outside the checkout."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cbt-plugins"


def own_tool(*words: str) -> List[str]:
    """Return the command line of `cbt-tools WORDS` with this Python; it imports nothing from the current folder."""
    text = "import runpy; runpy.run_module('cbt_plugins.tools', run_name='__main__')"
    return [sys.executable, "-c", f"import sys; sys.path[:] = [path for path in sys.path if path]; {text}", *words]


def own_program(name: str) -> Optional[Path]:
    """Return where warp, cbt-load or cbt-rows is: of `cbt-tools build`, else on PATH; None when it is missing."""
    built = cache_dir() / "bin" / name
    path = str(built) if built.exists() else shutil.which(name)
    return Path(path) if path else None
