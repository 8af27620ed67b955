"""Load generators: one class, one file, one entry point in the group `cbt_plugins.generators`; `engine:` names it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Dict, List, Mapping, Optional, Sequence, Type

from cbt_plugins.config import registry
from cbt_plugins.load.jobs import LoadJob
from cbt_plugins.load.worker_groups import WorkerGroup
from cbt_plugins.plan import Phase, Plan


@dataclass(frozen=True)
class Memory:
    """What is known of the objects that the drivers have made before a phase."""

    states: Mapping[str, Path] = field(default_factory=dict)  # driver -> its last state file
    stale: bool = False  # an attempt was broken off since: list what is there


@dataclass(frozen=True)
class LoadStart:
    """What a phase with load starts from: what earlier phases of the run found out and left."""

    worker_groups: Mapping[str, Sequence[WorkerGroup]] = field(default_factory=dict)  # warp hybrid: by driver
    memory: Memory = field(default_factory=Memory)  # cbt-load: which objects there are
    rate: Optional[float] = None  # cbt-load: requests/s of an open loop


class Generator(ABC):
    """Makes the jobs of a plan's phases: which processes there are on the clients, and when each of them starts.

    A job's argv is run on its client. "{PROGRAM}" stands there for the path of `program`, "{folder}" for the folder of
    the phase, "{duration}" for the seconds that are left. A job writes a request row for each request to its standard
    output (docs/AGGREGATES.md), and gets the S3 keys from `environment`.
    """

    #: what is copied to the clients: a program that `cbt-tools build` made, or one on PATH
    program: ClassVar[str]
    #: argument with which it prints its version
    version: ClassVar[str] = "--version"

    def __init__(self, plan: Plan, names: Mapping[str, str], run_id: str) -> None:
        """`names` maps Bucket.key to the name of the real bucket."""
        self._plan = plan
        self._names = names
        self._run_id = run_id
        self._buckets = {b.key: b for b in plan.buckets}

    @abstractmethod
    def jobs(self, phase: Phase, start: LoadStart) -> List[LoadJob]:
        """Return the generator processes of a phase."""


def generator_of(engine: str) -> Type[Generator]:
    """Return the class that `engine:` names."""
    found: Type[Generator] = registry.load(registry.GENERATORS, engine)
    return found


def environment(access_key: str, secret_key: str) -> Dict[str, str]:
    """Return the variables from which the generators read their S3 keys: they are nowhere else."""
    return {
        "WARP_ACCESS_KEY": access_key,
        "WARP_SECRET_KEY": secret_key,
        "AWS_ACCESS_KEY_ID": access_key,
        "AWS_SECRET_ACCESS_KEY": secret_key,
    }
