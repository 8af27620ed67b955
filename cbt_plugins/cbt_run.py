"""The run that CBT, a checkout or the built-in run loop, gives to a benchmark, and how such a run fails."""

from __future__ import annotations

import secrets
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Mapping, Optional


class RunFailed(Exception):
    """A run that did not give a whole result; its text is for the user. The exit status becomes 1."""


class NotTrusted(RunFailed):
    """A run that is complete, but not to be trusted: no repetition mends it, so the next runs are made."""


@dataclass(frozen=True)
class Checkout:
    """A CBT source tree."""

    path: Path
    commit: Optional[str]  # full git hash, None when it is not a git tree
    describe: str  # for people: "9d6480f 2025-05-16", or the path


@dataclass(frozen=True)
class CbtRun:
    """One run: one permutation of a benchmark section in one iteration."""

    benchmark: str  # "warp", "rgwtest", ...
    config: Mapping[str, Any]  # the permutation as CBT made it: the section's keys + benchmark + iteration
    iteration: int
    archive_dir: Path  # <archive>/results/%08d/id-<8 hex>; exists
    run_dir: str  # scratch directory on the nodes, this run's alone: <tmp_dir>/%08d/<benchmark>-<run_id>
    cluster: Mapping[str, Any]  # the `cluster:` section
    common: Mapping[str, Any]  # the `common:` section (pdsh_cmd, pdsh_ssh_args, ...), {} when absent
    endpoints: Mapping[str, Any]  # the `client_endpoints:` section, {} when absent
    config_file: Optional[Path]  # the YAML file, where it is known
    checkout: Optional[Checkout]  # None in the built-in loop
    #: monitors(local_dir, *without, acting=None, reconnects=None): the profiles of `monitoring_profiles:` but for these
    #: run while the context is open, and their files are under local_dir when it has closed (also after an exception);
    #: acting: True for those only that act on the cluster, False for those only that watch it; reconnects: True for
    #: those only whose agents begin again on a node that was restarted, False for all others
    monitors: Callable[..., AbstractContextManager[None]] = field(repr=False)
    profiles: Mapping[str, Any] = field(default_factory=dict)  # the `monitoring_profiles:` section
    #: of this archive and no other, though it may hold the same run; kept when the run is resumed
    run_id: str = field(default_factory=lambda: secrets.token_hex(4))
    config_text: Optional[str] = None  # of config_file, as it was when its first run began, with secrets masked


@dataclass
class CurrentRun:
    """The run that cbt.py has under way in this process, for monitors that act on it."""

    archive_dir: Path
    failure: Optional[str] = None  # why it has no result although it comes to its end


#: set while a run is under way in a CBT checkout
current: Optional[CurrentRun] = None
