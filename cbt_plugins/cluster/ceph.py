"""Ceph as its commands on the head node show it: questions, and the few changes that a cycle makes."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Deque, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from cbt_plugins.ceph_df import PoolSpace, Space
from cbt_plugins.cluster.ceph_programs import CephPrograms
from cbt_plugins.cluster.kubernetes import Kubernetes
from cbt_plugins.cluster.remote import OpenInput, Remote, RemoteError
from cbt_plugins.cluster.s3_keys import S3Keys
from cbt_plugins.cluster.shell_programs import script_command, subject_of
from cbt_plugins.cluster.state_sampler_agent import state_of
from cbt_plugins.cluster.transports.transport import Result
from cbt_plugins.cluster_conditions import is_clean
from cbt_plugins.config.cluster import conf_file, nodes_in_pods
from cbt_plugins.inventory import head_of
from cbt_plugins.journal import write_whole

#: exit status of a command that was ended at its limit
TIMED_OUT = 124
#: exit status of a shell for a program that is not there
NOT_THERE = 127
#: seconds of a limit above which a command is work, and says nothing of how fast the cluster answers
LONG = 60.0
#: what describes a cluster well enough to read its results a year later: file name -> command
SNAPSHOT = {
    "status.json": "status",
    "versions.json": "versions",
    "config_dump.json": "config dump",
    "osd_tree.json": "osd tree",
    "osd_df.json": "osd df",
    "df.json": "df detail",
    "pools.json": "osd pool ls detail",
    "crush_rules.json": "osd crush rule dump",
    "osd_dump.json": "osd dump",
}


#: ends a command when its input ends
END_WITH_INPUT = Path(__file__).with_name("end_with_input.sh")
#: exit status of `radosgw-admin user info` for a user that does not exist
_NO_SUCH_USER = 22
#: what `radosgw-admin bucket stats` says of a bucket that does not exist: ERR_NO_SUCH_BUCKET, or ENOENT. Others say "No
#: such file or directory" too: ssh of its key, librados of an admin socket or of a keyring
_NO_SUCH_BUCKET = re.compile(r"^failure: \((2002|2)\)", re.MULTILINE)
#: printed before and after the reply of a `ceph` process of its own
_MARK, _STATUS = "cbt-plugins: next reply", "cbt-plugins: status"

#: options of Ceph whose value nobody should see: rgw_keystone_admin_password, mgr/dashboard/RGW_API_SECRET_KEY, key
_SECRET = re.compile(r"(?:^|[/_ -])(?:password|passwd|secret|token|keys?)$", re.IGNORECASE)
_MASKED = "***"


def _remedy(result: Optional[Result]) -> str:
    """Return the remedy for a program that is not on the head, as the end of an error; "" for other failures."""
    if result is None or result.status != NOT_THERE:
        return ""
    return "; install Ceph's programs on the head, or write `ceph: cephadm` in `cluster:` if they are in its containers"


def _masked(line: str) -> str:
    """Return a line of ceph.conf without the value of a secret."""
    name, equals, _ = line.partition("=")
    return f"{name}= {_MASKED}" if equals and _SECRET.search(name.strip()) else line


def _pool_of(name: object) -> str:
    """Return the pool of POOL or POOL:NAMESPACE."""
    return str(name).split(":")[0]


def newest_gateways(services: Mapping[str, Any]) -> Dict[str, Mapping[str, Any]]:
    """Return the gateways of `service dump` by instance: of those with one id on one host the newest.

    The instance before a restart is listed for a minute more, and answers nothing.
    """
    rows = services.get("services", {}).get("rgw", {}).get("daemons", {})
    gateways = {key: row for key, row in rows.items() if isinstance(row, dict) and row.get("metadata")}
    newest: Dict[Tuple[str, Any], str] = {}
    for key in sorted(gateways, key=lambda key: int(gateways[key].get("gid") or 0)):
        about = gateways[key]["metadata"]
        newest[about.get("id", key), about.get("hostname")] = key  # before Pacific the key is the id
    return {key: gateways[key] for key in newest.values()}


class CephError(Exception):
    """Ceph refused or could not be asked; the text is for the user."""


class CephTimeout(CephError):
    """There was no reply in time: PGs that the command needs may be inactive."""


@dataclass(frozen=True)
class Reply:
    """The output of one `ceph` command, errors included. `status` is None when the command did not end."""

    text: str
    status: Optional[int]

    @property
    def object(self) -> Optional[Mapping[str, Any]]:
        """Return the first JSON object in it, None when there is none."""
        for start in re.finditer(r"^\s*(?={)", self.text, re.MULTILINE):
            values = json_values(self.text[start.end() :])
            if values:
                return dict(values[0])
        return None

    @property
    def last(self) -> str:
        """Return the last line of the command's text, or its exit status."""
        ended = "the command did not end" if self.status is None else f"exit status {self.status}"
        return next((line.strip() for line in reversed(self.text.splitlines()) if line.strip()), ended)

    @classmethod
    def parse(cls, text: str) -> Reply:
        """Read what a shell printed of it: its output, and how it ended."""
        output, _, status = text.partition(_STATUS)
        return cls(output.strip(), int(status) if status.strip().isdigit() else None)


def json_values(text: str) -> List[Any]:
    """Return the JSON values that a text begins with."""
    decoder, at = json.JSONDecoder(), 0
    values: List[Any] = []
    while True:
        start = re.compile(r"\S").search(text, at)
        if start is None:
            return values
        try:
            value, at = decoder.raw_decode(text, start.start())
        except ValueError:
            return values
        values.append(value)


@dataclass(frozen=True)
class BucketStats:
    """A bucket's index: complete objects only, without multipart uploads that are not completed."""

    objects: int
    size: int  # bytes
    shards: Optional[int]
    marker: str  # the bucket instance; another one under the same name is another bucket
    placement: str = ""  # TARGET or TARGET/CLASS, where RGW puts its objects

    @classmethod
    def parse(cls, stats: Mapping[str, Any]) -> BucketStats:
        """Read what `radosgw-admin bucket stats` says of one."""
        main = stats.get("usage", {}).get("rgw.main", {})
        objects, size = (int(main.get(key, 0)) for key in ("num_objects", "size"))
        return cls(objects, size, stats.get("num_shards"), str(stats["id"]), str(stats.get("placement_rule", "")))


@dataclass(frozen=True)
class Status:
    """PG states, health and fullness at one instant, the same for every release."""

    health: str  # HEALTH_OK, HEALTH_WARN, HEALTH_ERR
    checks: Mapping[str, str]  # code -> severity
    pgs: Mapping[str, int]  # state name as Ceph prints it -> number of PGs
    num_pgs: int
    osds: int
    osds_up: int
    osds_in: int
    degraded: int  # object copies
    misplaced: int
    raw_used: Optional[float]  # 0..1 of all raw capacity; None when `ceph df` was not asked
    says: Mapping[str, str] = field(default_factory=dict)  # code -> Ceph's message, of checks that nobody has muted
    daemons: Sequence[str] = ()  # that ended or started since the sample before: "osd.3 down"
    settled: Optional[bool] = None  # PG states are newer than the last change of an OSD; None: nobody looked

    @property
    def not_clean(self) -> int:
        """PGs that are not active+clean; a scrub does not make a PG unclean."""
        return self.num_pgs - sum(n for state, n in self.pgs.items() if is_clean(state))

    def sample(self, at: float) -> Dict[str, Any]:
        """Return the reply in which `conditions` are found; `at` is epoch seconds on the run's clock."""
        names = ("pgs", "health", "checks", "says", "raw_used", "degraded", "misplaced", "osds", "osds_up", "osds_in")
        fields = {name: getattr(self, name) for name in names}
        if self.daemons:
            fields["daemons"] = list(self.daemons)
        return {"t": at, "clean": self.not_clean == 0, "not_clean": self.not_clean, **fields}

    @classmethod
    def parse(cls, status: Mapping[str, Any], df: Optional[Mapping[str, Any]] = None) -> Status:
        """Read `ceph status -f json` and `ceph df -f json`. Raises KeyError where it is something else."""
        return cls.of_state(state_of(status, df))

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Status:
        """Take what is needed of a whole state, as the agent's lines add up to it."""
        names = ("health", "checks", "says", "pgs", "num_pgs", "osds", "osds_up", "osds_in")
        degraded, misplaced = (int(state[counter][0]) for counter in ("degraded", "misplaced"))
        fields = {name: state[name] for name in names}
        changed = tuple(state.get("daemons") or ())
        fields.update((name, state.get(name)) for name in ("raw_used", "settled"))
        return cls(**fields, degraded=degraded, misplaced=misplaced, daemons=changed)


class CommandTimes:
    """How long the cluster's commands have taken, and so how long the next one may: the limit of each grows with them.

    A command that has hit its limit doubles that of the next one, up to `MOST`.
    """

    #: a command may take so many times as long as the slowest of so many before it; seconds that no limit goes beyond
    TIMES, REMEMBERED, MOST = 10.0, 10, 300.0

    def __init__(self) -> None:
        self._last: Deque[float] = deque(maxlen=self.REMEMBERED)

    def add(self, seconds: float, cut: bool) -> None:
        """Learn from a command that took so long; `cut`: it was ended at its limit."""
        self._last.append(2 * seconds / self.TIMES if cut else seconds)

    def limit(self, usual: float) -> float:
        """Return the seconds that a command may take which usually has this limit."""
        return max(usual, min(self.MOST, self.TIMES * max(self._last, default=0.0)))


class Ceph:
    """The cluster as seen from its head node."""

    def __init__(self, remote: Remote, cluster: Mapping[str, Any]) -> None:
        self.remote = remote
        self.head = head_of(cluster)
        self.times = CommandTimes()
        self.kubernetes = Kubernetes.of(cluster)
        self.in_pods = nodes_in_pods(cluster)
        self.programs = CephPrograms.of(cluster)
        self.conf_file = conf_file(cluster)
        self._ceph, self._admin = self.programs.ceph, self.programs.admin

    @property
    def command(self) -> str:
        """The `ceph` command with its configuration file, for a shell on the head node."""
        return self._ceph

    @property
    def admin(self) -> str:
        """The `radosgw-admin` command, likewise."""
        return self._admin

    def run(self, command: str, timeout: float, check: bool = False, may_wait: bool = False) -> Result:
        """Run a shell command on the head that asks or tells the cluster; a slow cluster has longer than `timeout`.

        `may_wait`: the command may wait for a lock, so its time says nothing about the cluster. Raises RemoteError when
        the head cannot be reached, and with `check` when the command fails.
        """
        limit, begun = self.times.limit(timeout), time.monotonic()
        results = self.remote.run([self.head], command, timeout=limit, check=False)
        result = results[self.head]
        if timeout <= LONG and not may_wait:
            cut = result.status == TIMED_OUT
            self.times.add(limit if cut else time.monotonic() - begun, cut)
        if check and result.status:
            raise RemoteError(subject_of(command), results)
        return result

    def _text(self, command: str, timeout: float) -> str:
        try:
            return self.run(command, timeout, check=True).stdout
        except RemoteError as error:
            raise self._error(error) from error

    def _error(self, error: RemoteError) -> CephError:
        result = error.results.get(self.head)
        kind = CephTimeout if result and result.status == TIMED_OUT else CephError
        return kind(f"{error}{_remedy(result)}")

    def _work(self, arguments: str, timeout: float, open_input: OpenInput, form: str = "%s") -> str:
        """Have `radosgw-admin` do what takes hours, until `open_input` is closed; return its output.

        `form` is the shell command around it. Raises CephError.
        """
        # where the program is: a signal from outside does not reach root in a container
        prefix, watcher = self.programs.prefix, script_command(END_WITH_INPUT)
        line = form % f"{prefix}{watcher} {self._admin.removeprefix(prefix)} {arguments}"
        results = self.remote.run([self.head], line, timeout=timeout, check=False, open_input=open_input)
        if results[self.head].status:
            raise self._error(RemoteError(subject_of(f"{self._admin} {arguments}"), results))
        return results[self.head].stdout

    def json(self, command: str, timeout: float = 60.0) -> Any:
        """Return the reply of `ceph COMMAND -f json`. Raises CephError."""
        line = f"{self._ceph} --connect-timeout 20 {command} -f json"
        return self._parsed(self._text(line, timeout), f"ceph {command}")

    def _parsed(self, text: str, command: str) -> Any:
        try:
            return json.loads(text)
        except ValueError as error:
            raise CephError(f"could not parse the reply of {command} on {self.head}: {text[:80]!r}") from error

    def piped(self, questions: Sequence[str], options: str = "") -> str:
        """Return a shell command that asks one `ceph` process all questions; the replies follow each other."""
        return f"printf '%s\\n' {' '.join(map(shlex.quote, questions))} | {self._ceph} {options} 2>/dev/null"

    def ask_all(
        self, questions: Sequence[str], timeout: float, alone: Sequence[str] = ()
    ) -> Tuple[List[Any], List[Reply]]:
        """Return the replies of several `ceph QUESTION -f json`, and of those that have a `ceph` process `alone`.

        One `ceph` process replies to many questions in the time of one; a wrapper that passes no input on is called
        once for each. What is asked alone may fail, or never come. Raises CephError when another reply is missing,
        RemoteError when the head cannot be reached.
        """
        each = "; ".join(f"{self._ceph} --connect-timeout 20 {q} -f json" for q in questions)  # it says what is wrong
        extra = "".join(f"; echo '{_MARK}'; {self._ceph} {q} -f json 2>&1; echo \"{_STATUS} $?\"" for q in alone)
        together = self.piped(questions, "--connect-timeout 20 -f json") if questions else "true"
        for command in (together, each):
            result = self.run(command + extra, timeout)
            first, *others = result.stdout.split(_MARK)
            answers = json_values(first)
            if len(answers) == len(questions):
                replies = [Reply.parse(text) for text in others]
                return answers, replies + [Reply("", None)] * (len(alone) - len(others))
        why = result.stderr.strip().splitlines()[-1:] or [f"exit status {result.status}"]
        counted = f"ceph on {self.head} gave {len(answers)} of {len(questions)} replies"
        raise CephError(f"{counted}: {why[0]}{_remedy(result)}")

    def json_all(self, questions: Sequence[str], timeout: float = 60.0) -> List[Any]:
        """Return the replies of several `ceph QUESTION -f json`. Raises CephError."""
        try:
            return self.ask_all(questions, timeout)[0]
        except RemoteError as error:
            raise CephError(str(error)) from error

    def status(self) -> Status:
        """Return PG states, health and fullness now. Raises CephError."""
        return Status.parse(*self.json_all(("status", "df")))

    def snapshot(self, folder: Path) -> None:
        """Write what describes the cluster into a folder: one JSON file per question, and the head's ceph.conf.

        Values of options that are passwords or keys are masked.
        """
        replies = dict(zip(SNAPSHOT, self.json_all(tuple(SNAPSHOT.values()), timeout=180.0)))
        options = replies["config_dump.json"]
        replies["config_dump.json"] = [
            {**row, "value": _MASKED} if _SECRET.search(row["name"]) else row for row in options
        ]
        replies["ec_profiles.json"] = replies["osd_dump.json"]["erasure_code_profiles"]
        for name, reply in replies.items():
            write_whole(folder / name, json.dumps(reply, indent=1) + "\n")
        lines = self._text(f"{self.programs.prefix}cat -- {shlex.quote(self.programs.conf)}", 30.0).splitlines()
        write_whole(folder / "ceph.conf", (f"{_masked(line)}\n" for line in lines))

    def pools(self) -> Mapping[str, PoolSpace]:
        """Return the pools in `ceph df` by name. Raises CephError."""
        return Space.parse(self.json("df detail")).pools

    def data_pool(self, placement: str) -> str:
        """Return the pool of the objects of a placement, TARGET or TARGET/CLASS of the zone. Raises CephError."""
        target, _, storage_class = placement.partition("/")
        for row in self.admin_json("zone get")["placement_pools"]:
            if row["key"] == target:
                classes = row["val"].get("storage_classes") or {}
                options = classes.get(storage_class) or classes.get("STANDARD") or row["val"]
                if options.get("data_pool"):
                    return _pool_of(options["data_pool"])
        raise CephError(f"the zone has no data pool for the placement {placement!r}")

    def data_pools(self) -> Set[str]:
        """Return the names of the zone's pools for objects; not all of them must exist. Raises CephError."""
        names: Set[str] = set()
        for placement in self.admin_json("zone get")["placement_pools"]:
            classes = (placement["val"].get("storage_classes") or {}).values()
            pools = (options.get("data_pool") for options in (placement["val"], *classes))
            names |= {_pool_of(pool) for pool in pools if pool}
        return names

    def log_and_index_pools(self) -> List[str]:
        """Return the default zone's pools of logs (garbage collection too) and bucket indexes. Raises CephError."""
        zone = self.admin_json("zone get")
        named = [zone["log_pool"], *(placement["val"]["index_pool"] for placement in zone["placement_pools"])]
        return list(dict.fromkeys(map(_pool_of, named)))

    def deep_scrub(self, pools: Sequence[str]) -> None:
        """Request a deep scrub of all PGs of these pools; it ends later. Raises CephError."""
        self._text(f"{self._ceph} --connect-timeout 20 osd pool deep-scrub {' '.join(map(shlex.quote, pools))}", 60.0)

    def deep_scrubs(self, pools: Sequence[str]) -> Dict[str, str]:
        """Return PG -> time of its last deep scrub, as Ceph prints it. Raises CephError."""
        scrub_times: Dict[str, str] = {}
        for pool in pools:
            stats = self.json(f"pg ls-by-pool {shlex.quote(pool)}")["pg_stats"]
            scrub_times.update((pg["pgid"], pg["last_deep_scrub_stamp"]) for pg in stats)
        return scrub_times

    def admin_json(self, command: str, timeout: float = 120.0) -> Any:
        """Return the reply of `radosgw-admin COMMAND`. Raises CephError."""
        return self._parsed(self._text(f"{self._admin} {command}", timeout), f"radosgw-admin {command}")

    def garbage(self, timeout: float, open_input: OpenInput) -> int:
        """Return the number of entries of RGW's garbage, also those that are not due. Raises CephError.

        It ends early, with an error, when `open_input` is closed, or with this process.
        """
        count = "awk '/\"tag\":/ { n++ } /^failed$/ { f = 1 } END { print f ? \"failed\" : n + 0 }'"
        form = f"{{ %s 2>/dev/null || echo failed; }} | {count}"
        output = self._work("gc list --include-all", timeout, open_input, form).strip()
        if not output.isdigit():
            raise CephError(f"radosgw-admin gc list failed on {self.head}")
        return int(output)

    def collect_garbage(self, timeout: float, open_input: OpenInput) -> None:
        """Have all garbage collected, also what is not due; return when that has ended. Raises CephError.

        It ends early when `open_input` is closed, or with this process.
        """
        self._work("gc process --include-all 2>&1", timeout, open_input)

    def rgw_user_keys(self, uid: str) -> S3Keys:
        """Return active S3 keys of an RGW user. Raises CephError when there is no such user or it has no such keys."""
        try:
            keys = self.admin_json(f"user info --uid={shlex.quote(uid)}")["keys"]
        except CephError as error:
            cause = error.__cause__
            if isinstance(cause, RemoteError) and cause.results[self.head].status != _NO_SUCH_USER:
                raise CephError(f"keys of RGW user {uid!r}: {error}") from error
            raise CephError(f"RGW user {uid!r} not found: radosgw-admin user info failed on {self.head}") from error
        for key in keys:  # those of subusers, who may have fewer rights, are among them
            if key.get("user", uid) == uid and key.get("active", True):
                return S3Keys(key["access_key"], key["secret_key"])
        command = f"radosgw-admin key create --uid={shlex.quote(uid)} --key-type=s3"
        raise CephError(f"RGW user {uid!r} has no active S3 keys of its own: run {command}")

    def bucket(self, name: str, timeout: float = 120.0) -> Optional[BucketStats]:
        """Return a bucket's statistics, None when there is no such bucket. Raises CephError for no clear reply."""
        result = self._bucket_stats(f"--bucket={shlex.quote(name)}", name, timeout)
        if result.status and _NO_SUCH_BUCKET.search(result.stderr):
            return None
        if result.status:
            raise CephError(f"bucket stats of {name}: " + " | ".join(result.stderr.strip().splitlines()[-2:]))
        return BucketStats.parse(self._parsed(result.stdout, f"bucket stats of {name}"))

    def buckets_of(self, user: str, timeout: float = 120.0) -> Dict[str, BucketStats]:
        """Return the statistics of a user's buckets by their names in S3: one question for all. Raises CephError."""
        result = self._bucket_stats(f"--uid={shlex.quote(user)}", f"all buckets of {user}", timeout)
        if result.status:
            raise CephError(f"bucket stats of {user}: " + " | ".join(result.stderr.strip().splitlines()[-2:]))
        every = self._parsed(result.stdout, f"bucket stats of {user}")
        return {entry["bucket"]: BucketStats.parse(entry) for entry in every if isinstance(entry, dict)}

    def _bucket_stats(self, which: str, subject: str, timeout: float) -> Result:
        try:
            result = self.run(f"{self._admin} bucket stats {which}", timeout)
        except RemoteError as error:
            raise CephError(str(error)) from error
        if result.status == TIMED_OUT:
            raise CephTimeout(f"bucket stats of {subject}: no reply within {timeout:g} s")
        return result

    def remove_bucket(self, name: str, timeout: float) -> None:
        """Remove a bucket with all its objects; the space is free at once (no garbage collection). Raises CephError.

        An interrupt, or the end of this process, ends it: the next removal goes on with what is left.
        """
        with contextlib.closing(OpenInput()) as open_input:
            self._work(f"bucket rm --bucket={shlex.quote(name)} --purge-objects --bypass-gc", timeout, open_input)
