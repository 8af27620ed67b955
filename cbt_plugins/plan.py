"""What a run will do, resolved in full: the only thing that `run/` reads.

All sizes are bytes, all durations seconds, all shares 0..1, all mixes percent by operation (upper case).
Everything is frozen and made of plain values, so that `dataclasses.asdict` is the archive's plan.json.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Dict, Iterable, List, Literal, Mapping, Optional, Tuple

#: (smallest, largest, share of the objects 0..1): an exact size where both are equal, else any size between them
Sizes = Tuple[Tuple[int, int, float], ...]
#: operation in upper case -> percent of the requests; sums to 100
Mix = Mapping[str, float]

#: the name of the short phase that a run puts before the first hybrid phase by warp; no other phase may have it
CALIBRATE = "calibrate"


def is_calibration(name: str, role: str) -> bool:
    """Return whether a phase finds out how workers are to be shared: nobody asked for its numbers."""
    return name == CALIBRATE and role == "none"


def is_measurement(name: str, role: str) -> bool:
    """Return whether a phase is one whose numbers are the result of a run."""
    return role == "measure" and not is_calibration(name, role)


def has_aged(phases: Iterable[Tuple[str, str]]) -> bool:
    """Return whether the last of these phases (name, role) met an aged cluster: a role or its name says so."""
    *earlier, last = phases
    return any(role == "age" for _, role in earlier) or "aged" in last[0].split("-")


def op_of_work(work: str, op: str) -> str:
    """Return the name of a work's operation in rows, numbers and tables: "readers:GET"; "GET" without a work."""
    return f"{work}:{op}" if work else op


def split_op(name: str) -> Tuple[str, str]:
    """Return the work, "" for none, and the operation of such a name."""
    work, _, op = name.rpartition(":")
    return work, op


#: flags of the OSD map that a run may set; others are the cluster's own
OSD_FLAGS = (
    *("noup", "nodown", "noout", "noin", "nobackfill", "norebalance", "norecover"),
    *("noscrub", "nodeep-scrub", "notieragent", "nosnaptrim"),
)
#: flags as `osd dump` shows them, under which the cluster would not see a fault, or would not take OSDs back
BLINDING_FLAGS = ("nodown", "noup", "noin", "pauserd", "pausewr")
#: what may forbid a fault, in the order of the messages: `faults.safety_rules_data` has them
SAFETY_RULES = (
    *("clean", "flags", "inactive", "domain", "data", "ok-to-stop", "safe-to-destroy", "quorum"),
    *("mgr", "mds", "head", "client", "rgw", "min-in", "capacity"),
)


HostSelect = Literal["weighed", "roundrobin", "one"]
Lookup = Literal["path", "dns"]
Payload = Literal["signed", "unsigned"]


@dataclass(frozen=True)
class S3:
    """Where the load goes and where its keys come from; the keys themselves are never part of a plan."""

    urls: Tuple[str, ...]
    user: Optional[str] = None  # keys from `radosgw-admin user info` on the head node
    access_key_source: Optional[str] = None  # "env:NAME", "file:/path" or "secret:[NAMESPACE/]NAME/KEY"
    secret_key_source: Optional[str] = None
    session_token_source: Optional[str] = None
    profile: Optional[str] = None  # keys from this section of the AWS credentials file here
    region: str = "us-east-1"
    host_select: HostSelect = "weighed"  # "one": each driver has one URL
    lookup: Lookup = "path"
    verify_tls: bool = True
    ca_file: Optional[str] = None  # PEM file on the machine that leads the run; without it the clients' own authorities
    payload: Payload = "signed"
    sse: str = ""  # "c": each request brings a key; "s3" or "kms:NAME": RGW has one

    def admin_name(self, bucket: str, user: str = "") -> str:
        """Return radosgw-admin's name of a bucket of this user, or of another: TENANT/BUCKET for TENANT$NAME."""
        tenant, sign, _ = (user or self.user or "").partition("$")
        return f"{tenant}/{bucket}" if sign else bucket


@dataclass(frozen=True)
class Bucket:
    """One bucket of the run. `key` is unique in the plan."""

    key: str  # e.g. "4KiB", or the existing bucket's own name
    sizes: Sizes
    existing: bool = False  # somebody else's data: read, and written only under a prefix of ours
    objects: Optional[int] = None  # that a fill by objects writes, instead of its goal
    user: str = ""  # whose it is, with keys from `radosgw-admin user info`; without: S3.user

    def name(self, run_id: str) -> str:
        """Return the bucket's name; a bucket of ours is named cbtp-<run id>-<key>."""
        return self.key if self.existing else bucket_name(run_id, self.key)


def bucket_name(run_id: str, key: str) -> str:
    """Return the name of one of our buckets, valid in S3: 3 to 63 of a-z, 0-9, . and -."""
    plain = "".join(c if c.isalnum() else "-" for c in key.lower())
    return f"cbtp-{run_id}-{plain}"[:63].rstrip("-")


@dataclass(frozen=True)
class Driver:
    """`workers` requests under way on one client node; each phase gives it some jobs."""

    id: str  # "01-4KiB"
    node: str
    buckets: Tuple[str, ...]  # Bucket.key; more than one with `engine: cbt-load` only
    workers: int

    @property
    def bucket(self) -> str:
        """The only one, or the first."""
        return self.buckets[0]


@dataclass(frozen=True)
class Goal:
    """When a fill is done: exactly one field is set."""

    duration: Optional[float] = None  # seconds
    objects: Optional[int] = None  # per bucket
    max_avail: Optional[float] = None  # share of the data pool's MAX AVAIL at the start of the fill
    raw: Optional[float] = None  # share of the raw capacity used (cluster-wide, absolute)


@dataclass(frozen=True)
class WarpOp:
    """One plain warp command under its own name."""

    op: str  # mixed get put stat delete list multipart versioned
    objects: Optional[int] = None  # warp's --objects
    args: Mapping[str, str] = field(default_factory=dict)  # further warp options without dashes

    @property
    def is_accounted(self) -> bool:
        """Whether its requests say how many objects the buckets have afterwards: those of versions and parts do not."""
        return self.op not in ("versioned", "multipart")


@dataclass(frozen=True)
class Keys:
    """Which objects an operation of cbt-load takes.

    `select` is "live" (any object that is there), "new" (the next number that no object has had), or a range of
    numbers as COSBench has it: "u(1,N)" any of them, "s(N+1,10N)" one after the other. N is what the fill wrote.
    """

    select: str
    absent: bool = False  # DELETE by u(): also of objects that are not there, as COSBench does


@dataclass(frozen=True)
class Work:
    """A mix with workers of its own, at the same time as the other works of its phase."""

    name: str  # unique in the phase, [a-z0-9-]
    workers: int  # of each driver
    mix: Mix
    rate: Optional[float] = None  # open loop: requests/s of all drivers together
    arrivals: str = "poisson"  # or "even"
    keys: Mapping[str, Keys] = field(default_factory=dict)  # as in Phase
    roles: Mapping[str, Tuple[str, ...]] = field(default_factory=dict)


#: daemons that faults may take
DAEMON_TYPES = ("osd", "mon", "mgr", "mds", "rgw")
#: what stands before the name of a CRUSH bucket among the targets of a fault
CRUSH = "crush:"


@dataclass(frozen=True)
class Fault:
    """A fault to inject, and to undo."""

    label: str  # unique in the plan
    kind: str  # an entry point of the group cbt_plugins.faults
    targets: Tuple[str, ...] = ()  # nodes, daemons such as "osd.3", or "crush:rack1"; empty: `choose` of them
    choose: int = 0  # so many healthy ones that no open fault has, by `seed`
    choose_of: str = ""  # "node", a type of daemons, or "crush:rack"; with nodes as targets: the daemons on them
    seed: int = 1
    options: Mapping[str, object] = field(default_factory=dict)  # of its kind
    accept: Tuple[str, ...] = ()  # safety rules that it may break
    min_in: float = 0.0  # share of all OSDs that must stay in; no `accept` changes that


@dataclass(frozen=True)
class NodeCommand:
    """A command of the user's on a node, and its undo."""

    label: str  # unique in the plan, among faults too
    command: str
    node: str = ""  # the head
    undo: str = ""  # nothing to undo
    timeout: float = 60.0  # seconds, of each of both
    root: bool = False


@dataclass(frozen=True)
class Upgrade:
    """Another release for every daemon, one after the other, while the load runs; there is no undo."""

    label: str
    to: str  # the version that each daemon must say: "18.2" or "18.2.7"
    command: str = ""  # for each daemon, on its node as root, with {daemon}, {type} and {id}; or
    image: str = ""  # `ceph orch upgrade start --image` of it
    timeout: float = 600.0  # seconds, of each daemon; of the whole with an image


@dataclass(frozen=True)
class Event:
    """What happens in a phase beside its load, in seconds after the load began."""

    at: float
    inject: Optional[Fault] = None
    run: Optional[NodeCommand] = None
    upgrade: Optional[Upgrade] = None
    undo: Tuple[str, ...] = ()  # labels of faults and commands of this or an earlier phase
    mark: str = ""  # name of the part of the phase that begins here, for the report
    after_clean: bool = False  # a fault that waits until the rule `clean` holds; what follows is later by as much
    at_most: Optional[float] = None  # seconds of that wait, after which the phase has failed; None: no limit
    optional: bool = False  # a fault that is skipped, with its undo, when it is refused


@dataclass(frozen=True)
class Settings:
    """What is set on the cluster for the length of the run, and restored at its end."""

    flags: Tuple[str, ...] = ()  # of the OSD map: noscrub, nodeep-scrub, noout, ...
    config: Tuple[Tuple[str, str, str], ...] = ()  # (who, option, value) of `ceph config set`
    balancer: Optional[bool] = None  # None: as it is
    autoscaler: Optional[bool] = None  # of every pool
    deep_scrub: bool = False  # of the log and index pools, when everything else is restored
    recovery: str = ""  # "aggressive": as fast as the disks give; in force from the first fault to the end
    accept: Tuple[str, ...] = ()  # names of `conditions` that the run may begin with
    #: seconds that the cluster may take, by the names of `limits:`; the others are those of faults.scene.ClusterLimits
    limits: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Ladder:
    """Phases whose load rises to the highest one that meets an objective: models.ladder_search has the rules."""

    name: str  # of all its phases, which have a number behind it
    unit: str  # of its loads: "rate", requests/s of all drivers, or "workers", of each driver
    lowest: float
    highest: float
    steps: int
    objective: Mapping[str, float]  # "GET/p99_ms" -> its limit, in the unit of the metric


#: of the CRUSH rule that a pool has of its own, where the file names no other
ROOT, FAILURE_DOMAIN = "default", "host"


@dataclass(frozen=True)
class RunPool:
    """A pool that the run makes, and removes at its end; or, `existing`, one that it gives other options meanwhile."""

    key: str  # unique in the plan; the name of an existing one
    existing: bool = False
    replicas: Optional[int] = None  # exactly one of these two, unless it exists
    ec: Optional[Tuple[int, int]] = None  # k, m
    profile: Tuple[Tuple[str, str], ...] = ()  # further options of the erasure code's profile
    rule: str = ""  # a CRUSH rule that is there; without it the pool has its own where one of these is given:
    root: str = ""
    failure_domain: str = ""
    device_class: str = ""
    pg_num: Optional[int] = None
    target_ratio: Optional[float] = None
    bulk: Optional[bool] = None
    application: str = "rgw"
    options: Tuple[Tuple[str, str], ...] = ()  # of `ceph osd pool set`: compression_mode, compression_algorithm

    def name(self, run_id: str) -> str:
        """Return the pool's name on the cluster: the name of a pool that the run makes can be nobody else's."""
        return self.key if self.existing else f"cbtp-{run_id}-{self.key}"


@dataclass(frozen=True)
class Gateways:
    """What the run gives RGW, until its end."""

    #: "data", "index", "extra" -> RunPool.key: where the buckets of the run's own user are; empty: as it is
    placement: Mapping[str, str] = field(default_factory=dict)
    index_shards: Optional[int] = None
    threads: Optional[int] = None
    #: the same of other users than S3.user
    placements: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    make_user: bool = False  # S3.user and those of buckets, where there are none

    @property
    def options(self) -> Mapping[str, str]:
        """Return the options of Ceph that are set; gateways read them when they start."""
        settings = {"rgw_thread_pool_size": self.threads, "rgw_override_bucket_index_max_shards": self.index_shards}
        return {name: str(value) for name, value in settings.items() if value is not None}

    @property
    def restarts(self) -> bool:
        """Whether gateways have to be restarted."""
        return bool(self.placement or self.placements or self.options)


def placement_id(run_id: str, number: int = 0) -> str:
    """Return the name of a run's placement target in the zone; those of `Gateways.placements` count from 1."""
    return f"cbtp-{run_id}-{number}" if number else f"cbtp-{run_id}"


@dataclass(frozen=True)
class Phase:
    """One step of the cycle; phases run one after the other."""

    name: str  # unique in the plan, [a-z0-9-]
    kind: str  # "fill" | "hybrid" | "warp" | "verify" | "delete" | "wait"
    role: str = "none"  # "fill" | "measure" | "age" | "none"
    duration: Optional[float] = None  # hybrid, warp, wait
    goal: Optional[Goal] = None  # fill
    mix: Optional[Mix] = None  # hybrid, warp mixed
    #: hybrid: fixed workers per operation and driver; None = calibrated once per run
    workers: Optional[Mapping[str, int]] = None
    engine: str = "warp"  # fill, hybrid, delete: or "cbt-load", "hsbench"; verify: always "cbt-load"
    rate: Optional[float] = None  # hybrid by cbt-load: open loop, requests/s of all drivers together ...
    rate_share: Optional[float] = None  # ... or this share of what the last closed loop before it made
    ladder: Optional[Ladder] = None  # ... or the next one of this ladder
    arrivals: str = Work.arrivals
    ramp: float = 0.0  # seconds in which the load grows to its full size; not measured
    warmup: float = 0.0  # seconds after that which are not measured either
    keys: Mapping[str, Keys] = field(default_factory=dict)  # by operation; without: live, and new for PUT
    roles: Mapping[str, Tuple[str, ...]] = field(default_factory=dict)  # operation -> Bucket.keys; without: all
    works: Tuple[Work, ...] = ()  # hybrid by cbt-load: several mixes at once, and then none of the phase's own
    warp: Optional[WarpOp] = None
    events: Tuple[Event, ...] = ()  # fill, hybrid, warp; wait: from its begin
    wait_clean: bool = False  # wait until all PGs are active+clean ...
    wait_gc: bool = False  # ... or until RGW has no garbage
    at_most: Optional[float] = None  # ... for at most this long
    stalled: Optional[float] = None  # ... and while something changes within this long
    drop_caches: bool = False  # of the OSD nodes, before a wait
    failure: str = ""  # what the scorecard calls the failure that it measures; phases of one name repeat it

    @property
    def shares(self) -> Mix:
        """Percent by operation as results have them: of the requests of the phase, or of each work."""
        own = dict(self.mix or {})
        return own or {op_of_work(work.name, op): share for work in self.works for op, share in work.mix.items()}

    @property
    def apart(self) -> Tuple[Phase, ...]:
        """Each work as a phase of its own, PHASE:WORK; a phase without works is the only one."""
        return tuple(
            replace(
                self,
                name=f"{self.name}:{work.name}",
                mix=work.mix,
                rate=work.rate,
                arrivals=work.arrivals,
                keys=work.keys,
                roles=work.roles,
                works=(),
            )
            for work in self.works
        ) or (self,)

    @property
    def is_calibration(self) -> bool:
        """Whether it only finds out how the workers are shared among the operations."""
        return is_calibration(self.name, self.role)

    @property
    def is_measurement(self) -> bool:
        """Whether its numbers are results of the run."""
        return is_measurement(self.name, self.role)


@dataclass(frozen=True)
class CbtLoad:
    """What cbt-load does in every phase."""

    deadline: float = 30.0  # seconds, of every request
    retries: int = 0
    list_keys: int = 1000  # at most so many keys in the answer to a LIST
    part_size: int = 16 << 20  # of a multipart PUT
    compressible: float = 0.0  # share of an object's bytes that compression takes away
    verify: bool = False  # every GET compares what it reads with what a PUT of the object wrote
    seed: int = 1
    grace: ClassVar[float] = 5.0  # seconds that requests under way have after the end of a phase


@dataclass(frozen=True)
class Plan:
    """One run: one permutation of a benchmark section in one iteration."""

    benchmark: str  # "warp" | "rgwtest" | "osdfailure"
    s3: S3
    buckets: Tuple[Bucket, ...]
    drivers: Tuple[Driver, ...]
    phases: Tuple[Phase, ...]
    full_guard: float = 0.80
    keep_data: bool = False
    scale: float = 1.0
    #: warp on the client nodes; None = the binary of this installation is copied there
    warp_path: Optional[str] = None
    read_objects: int = 1_000_000  # at most so many existing objects are listed for get and stat
    cbt_load: CbtLoad = CbtLoad()
    keep_rows: bool = False  # the request rows too, beside their aggregates
    generator_ceiling: Optional[bool] = None  # measure what the generators can do; None: where the run is long
    versioned: bool = False  # the buckets that the run makes keep all versions
    admin: bool = True  # False: neither ceph nor radosgw-admin is there
    settings: Settings = Settings()
    pools: Tuple[RunPool, ...] = ()
    rgw: Gateways = Gateways()
    post_poll: Optional[float] = None  # seconds for which the cluster is watched after everything
    objective: Mapping[str, float] = field(default_factory=dict)  # of seconds beside a failure: "GET/p99_ms" -> limit

    @cached_property
    def drivers_by_bucket(self) -> Mapping[str, List[Driver]]:
        """Bucket.key -> the drivers that use it, in their order."""
        drivers: Dict[str, List[Driver]] = {bucket.key: [] for bucket in self.buckets}
        for driver in self.drivers:
            for bucket in driver.buckets:
                drivers.setdefault(bucket, []).append(driver)
        return drivers

    @property
    def upgrades(self) -> Tuple[Upgrade, ...]:
        """The upgrades of the cluster during the run."""
        return tuple(event.upgrade for phase in self.phases for event in phase.events if event.upgrade)

    @property
    def users(self) -> Tuple[str, ...]:
        """The owners of buckets beside S3.user."""
        return tuple(dict.fromkeys(bucket.user for bucket in self.buckets if bucket.user))
