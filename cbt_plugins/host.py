"""What a benchmark of ours gets from its host: the same for a CBT checkout and for the built-in run loop."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Mapping, Optional


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
    config: Mapping[
        str, Any
    ]  # the permutation as the host made it: the section's keys + benchmark + iteration
    iteration: int
    archive_dir: Path  # <archive>/results/%08d/id-<8 hex>; exists
    run_dir: str  # scratch directory on the nodes, this run's alone: <tmp_dir>/%08d/<benchmark>-<8 hex>
    cluster: Mapping[str, Any]  # the `cluster:` section
    common: Mapping[str, Any]  # the `common:` section (pdsh_cmd, pdsh_ssh_args, ...), {} when absent
    endpoints: Mapping[str, Any]  # the `client_endpoints:` section, {} when absent
    config_file: Optional[Path]  # the YAML file, where the host knows it
    checkout: Optional[Checkout]  # None in the built-in loop
    #: monitors(local_dir, *wanted): the profiles of `monitoring_profiles:`, and those wanted beside them, run while the
    #: context is open, and their files are under local_dir when it has closed (also after an exception)
    monitors: Callable[..., AbstractContextManager[None]] = field(repr=False)
