"""Load generators and their jobs: one class, one file, one entry point in the group `cbt_plugins.generators`."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Dict, FrozenSet, Iterable, List, Mapping, Optional, Protocol, Sequence, Tuple, Type

from cbt_plugins.config import generator_classes
from cbt_plugins.config.key_errors import FieldError
from cbt_plugins.config.mix import KeysSection, MixSection
from cbt_plugins.load.worker_groups import WorkerGroup
from cbt_plugins.plan import Driver, Phase, Plan, Sizes

#: placeholders in command lines: the session's folder on the node, and programs there
FOLDER, WARP, CBT_LOAD, ROWS = "{folder}", "{warp}", "{cbt-load}", "{cbt-rows}"
#: seconds, longer than any phase: the duration of a generator that the run stops, since a program wants one
FOREVER = 30 * 86400.0


@dataclass(frozen=True)
class LoadJob:
    """One generator process of one driver."""

    id: str
    driver: str
    node: str
    op: str  # GET PUT STAT DELETE, or MIXED when its rows have several
    role: str  # fill | read | stat | put-keep | put-drop | delete | warp | cbt-load
    bucket: str  # the only one, or the first
    prefix: str
    sizes: Sizes
    workers: int
    urls: Tuple[str, ...]
    argv: Tuple[str, ...]  # "{duration}" stands for the seconds that are left when it starts
    #: "early": starts first, lists objects, and ends when the others have; "go": at the common instant; "self": starts
    #: first, says when it is ready and waits for the common instant itself
    start: str = "go"
    lead: float = 0.0  # seconds from its start to its first request
    grace: float = 0.0  # seconds after its end in which it may still be there
    rate_limit: float = 0.0  # requests a second, 0 = as fast as it goes
    respawn: bool = False  # it may run out of objects and is then started again
    prepares: bool = False  # it writes objects of its own before it measures
    prepared: int = 0  # that many of them without a row
    spec: Optional[Mapping[str, Any]] = None  # cbt-load's orders
    script: Optional[Path] = None  # a Python program of ours that its argv runs: {folder}/spec/ID.py
    state: Optional[Path] = None  # what it knew of its objects after the phase before; here, not on the node

    def order(self) -> Dict[str, Any]:
        """Return the order for the agent."""
        return {
            "id": self.id,
            "argv": list(self.argv),
            "start": self.start,
            "respawn": self.respawn,
            "prepares": self.prepares,
            "measures": None if self.op == "MIXED" else self.op,
            "lead": self.lead,
            "grace": self.grace,
        }

    def record(self) -> Dict[str, Any]:
        """Return the job as the archive keeps it."""
        kept = dataclasses.asdict(self)
        for internal in ("start", "respawn", "prepares", "lead", "grace", "state", "script"):
            kept.pop(internal)
        return kept


@dataclass(frozen=True)
class Counts:
    """Requests of one operation so far."""

    good: int = 0
    failed: int = 0
    size: int = 0  # bytes of the good ones
    busy_ns: int = 0  # sum of the durations of the good ones
    first: Optional[float] = None  # epoch seconds on the node
    last: Optional[float] = None

    def __add__(self, other: Counts) -> Counts:
        firsts = [t for t in (self.first, other.first) if t is not None]
        lasts = [t for t in (self.last, other.last) if t is not None]
        return Counts(
            self.good + other.good,
            self.failed + other.failed,
            self.size + other.size,
            self.busy_ns + other.busy_ns,
            min(firsts, default=None),
            max(lasts, default=None),
        )


@dataclass(frozen=True)
class JobEnd:
    """How a generator ended, in its node's clock."""

    counts: Dict[str, Counts]
    exit: Optional[int] = None
    signal: Optional[int] = None
    cut: bool = False  # ended by us before its own time: up to `workers` requests have no row
    started: Optional[float] = None
    first_row: Optional[float] = None
    last_row: Optional[float] = None
    ended: Optional[float] = None
    passes: int = 0
    message: str = ""  # the end of what it said on standard error
    driver_end: Optional[Mapping[str, Any]] = None  # the last word of a generator that has one
    reducer: Optional[str] = None  # why its aggregates are not whole

    @property
    def died(self) -> bool:
        """Whether it ended by itself, with an error."""
        return not self.cut and (self.signal is not None or self.exit not in (0, None))

    @classmethod
    def parse(cls, report: Dict[str, Any]) -> JobEnd:
        """Read the agent's report."""
        names = {f.name for f in dataclasses.fields(cls)}
        values = {k: v for k, v in report.items() if k in names}
        return cls(**{**values, "counts": parse_counts(report["counts"])})


def parse_counts(counts: Dict[str, Sequence[Any]]) -> Dict[str, Counts]:
    """Read the counts of a heartbeat or of a report: operation -> Counts."""
    return {op: Counts(*values) for op, values in counts.items()}


@dataclass(frozen=True)
class Memory:
    """What is known of the objects that the drivers have made before a phase."""

    states: Mapping[str, Path] = field(default_factory=dict)  # driver -> its last state file
    stale: bool = False  # an attempt was broken off since: list what is there
    #: drivers that left no state in a phase, which may have deleted objects, and have not listed their objects since
    outdated: FrozenSet[str] = frozenset()


@dataclass(frozen=True)
class LoadStart:
    """What a phase with load starts from: what earlier phases of the run found out and left."""

    worker_groups: Mapping[str, Sequence[WorkerGroup]] = field(default_factory=dict)  # warp hybrid: by driver
    memory: Memory = field(default_factory=Memory)  # cbt-load: which objects there are
    rate: Optional[float] = None  # cbt-load: requests/s of an open loop
    workers: Optional[int] = None  # cbt-load: of each driver, instead of the plan's


class MixedLoad(Protocol):
    """A mix of a section, and the keys of its operations: a hybrid phase, or a work of one."""

    @property
    def mix(self) -> MixSection: ...

    @property
    def keys(self) -> Optional[KeysSection]: ...


class Generator(ABC):
    """Makes the jobs of a plan's phases: which processes there are on the clients, and when each of them starts.

    A job's argv is run on its client. "{PROGRAM}" stands there for the path of `program`, "{folder}" for the folder of
    the phase, "{duration}" for the seconds that are left. A job writes a request row for each request, or sums of many,
    to its standard output (docs/AGGREGATES.md), and gets the S3 keys from `environment`.
    """

    #: what is copied to the clients: a program that `cbt-tools build` made, or one on PATH
    program: ClassVar[str]
    #: argument with which it prints its version
    version: ClassVar[str] = "--version"
    #: seconds within which the jobs of a phase begin, one after the other; 0: at one instant
    overlap: ClassVar[float] = 0.0
    #: all jobs begin their work at the instant of the go: they have `start="self"`
    begins_at_go: ClassVar[bool] = False
    #: kinds of phases that it has
    kinds: ClassVar[Tuple[str, ...]] = ("fill", "hybrid")
    #: operations that it does in the shares of a mix; (): it takes no mix, its hybrid phases do what it likes
    ops: ClassVar[Tuple[str, ...]] = ()
    #: it keeps the shares of a mix exactly, at full load
    exact_mix: ClassVar[bool] = False
    #: a hybrid phase is one closed loop per operation: LoadStart has only their worker_groups, by a calibration
    worker_groups: ClassVar[bool] = False
    #: keys of a hybrid phase that it knows, beside those of every generator
    known_keys: ClassVar[Tuple[str, ...]] = ()
    #: parts of a plan that it follows: sse, versioned, users (of buckets), objects (of a group of buckets)
    features: ClassVar[Tuple[str, ...]] = ()
    #: it sends the token of a session, of AWS_SESSION_TOKEN
    sends_tokens: ClassVar[bool] = True
    #: the key of a benchmark's section that says how it works
    section_key: ClassVar[str] = ""
    #: a driver works on all of its buckets
    across: ClassVar[bool] = False
    #: its reads find, by listing, objects that it has not written: those of existing buckets, and those below keep/
    lists: ClassVar[bool] = False
    #: its fills write below keep/
    listed: ClassVar[bool] = False
    #: it never sends a PUT in parts
    puts_whole: ClassVar[bool] = False
    #: end of the names of files, DRIVER and this, that its jobs leave in {folder}/state/ and find in `Memory`
    state: ClassVar[str] = ".state"
    #: what to do where the program is missing
    remedy: ClassVar[str] = "run `cbt-tools build`"

    def __init__(self, plan: Plan, names: Mapping[str, str], run_id: str) -> None:
        """Take a plan; `names` maps Bucket.key to the name of the real bucket."""
        self._plan = plan
        self._names = names
        self._run_id = run_id
        self._buckets = {b.key: b for b in plan.buckets}

    @classmethod
    def own_phase_text(cls, phase: Phase) -> str:
        """Return the words for a phase of a kind that only this generator has; "" for all other phases."""
        return ""

    def urls_of(self, driver: Driver) -> Tuple[str, ...]:
        """Return the endpoints of a driver: all, or with `host_select: one` one of them.

        The drivers of a node go round the endpoints, and the first ones of the nodes, too: one driver on each node
        makes pairs, as many as there are endpoints a mesh.
        """
        urls = self._plan.s3.urls
        if self._plan.s3.host_select != "one":
            return urls
        return (urls[self._places[driver.id] % len(urls)],)

    @cached_property
    def _places(self) -> Dict[str, int]:
        """Driver.id -> number of its node, and of the drivers before it on this node."""
        places: Dict[str, int] = {}
        nodes: Dict[str, int] = {}  # number of each node
        drivers: Counter[str] = Counter()  # so far on each node
        for driver in self._plan.drivers:
            places[driver.id] = nodes.setdefault(driver.node, len(nodes)) + drivers[driver.node]
            drivers[driver.node] += 1
        return places

    @classmethod
    def payload(cls, plan: Plan, versions: Mapping[str, Any]) -> str:
        """Return "signed" or "unsigned": what the plan says, unless the cluster's releases refuse it.

        `versions` is what `ceph versions` says.
        """
        return plan.s3.payload

    @classmethod
    def path_on_clients(cls, plan: Plan) -> Optional[str]:
        """Return the path of the program where the clients have it already; None: the run copies it there."""
        return None

    @classmethod
    def bucket_keys(cls, stem: str, number: int) -> List[str]:
        """Return the keys of so many buckets that the run makes; `stem` says what is in them."""
        return [stem] if number == 1 else [f"{stem}-{i + 1}" for i in range(number)]

    @classmethod
    def refused(cls, plan: Plan) -> Iterable[FieldError]:
        """Return an error for each feature of a plan that it lacks.

        Paths are those of the section; ("phases", NAME, ...) is a phase's.
        """
        return ()

    @classmethod
    def errors_of_mix(cls, mix: MixSection, program: str = "") -> List[FieldError]:
        """Return an error for each part of a mix that `program`, or else the engine, cannot do; paths are the mix's."""
        return []

    @classmethod
    def errors_without_fill(cls, load: MixedLoad, fills: Sequence[str], existing: bool) -> Iterable[FieldError]:
        """Return the errors of a load that comes before any fill by this engine, with paths relative to the load.

        `fills` are the engines of the fills before it; `existing`: its buckets have objects of somebody else.
        """
        return ()

    @classmethod
    def objects_written(cls, plan: Plan, bucket: str, objects: int) -> int:
        """Return the number of objects that a fill of `objects` writes into a bucket (key of the plan)."""
        return objects

    @classmethod
    def data_of(cls, plan: Plan, phase: Phase) -> Iterable[str]:
        """Return, for `plan`, the data that a phase of a kind of its own writes."""
        return ()

    @classmethod
    def warnings(cls, plan: Plan) -> Iterable[str]:
        """Return, for `plan`, warnings of the phases that it makes."""
        return ()

    @classmethod
    def has_ceiling(cls, phase: Phase) -> bool:
        """Return whether a server that keeps nothing can answer a phase, also about objects that nobody has written."""
        return False

    @classmethod
    def beside_null_server(cls, job: LoadJob, url: str, size: int) -> LoadJob:
        """Return a job of a phase that has a ceiling, for the server at `url`, whose objects all have `size` bytes."""
        return job

    @abstractmethod
    def jobs(self, phase: Phase, start: LoadStart) -> List[LoadJob]:
        """Return the generator processes of a phase."""


def generator_of(engine: str) -> Type[Generator]:
    """Return the class that `engine:` names."""
    generator: Type[Generator] = generator_classes.generator(engine)
    return generator
