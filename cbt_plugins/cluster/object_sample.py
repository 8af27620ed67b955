"""A seeded sample of a cluster's objects: its hashes tell whether another cluster holds the same bytes."""

from __future__ import annotations

import json
import random
import re
import shlex
from dataclasses import asdict, dataclass
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

#: runs a bash script where `ceph` and `rados` work and returns what it printed; its errors are the caller's
Shell = Callable[[str], str]
FORMAT = 1
OBJECTS, PER_PG = 16, 2
#: names of one placement group that are looked at
_LISTED = 2000
#: ... and the function that prints them; it ends the script if `rados ls` fails by itself, not because sed has enough
_LIST = (
    f"list() {{ echo \"=$1\"; rados --pgid \"$1\" ls | sed 's/^/./; {_LISTED}q9'; "
    'case "${PIPESTATUS[*]}" in "0 0" | *" 9") ;; *) echo "rados --pgid $1 ls failed" >&2; exit 1 ;; esac; }; '
)
_MISSING = "missing"
#: a function that prints the hash of an object; it ends the script if the object is there and cannot be read
_GET = (
    'one() { sum=$(rados -p "$1" get "$2" - 2>/dev/null | sha256sum) && echo "${sum%% *}" && return; '
    'error=$(rados -p "$1" get "$2" - 2>&1 >/dev/null); '
    f'case "$error" in *"error getting $1/$2: (2) No such file or directory"*) echo {_MISSING} ;; '
    '*) echo "rados -p $1 get $2 failed: $error" >&2; exit 1 ;; esac; }; '
)
#: placement groups that are listed at most: those of a nearly empty cluster would take minutes
_LISTED_GROUPS = 256
#: objects that a daemon changes without a client's request: RGW's own, all but what buckets hold, and the mgr's
_OWN = re.compile(r"\.mgr|device_health_metrics|\.rgw\.root|.*\.rgw\.(?!buckets\.(?:data|non-ec)).*")
#: names that need no care in a script; a tab would be a locator, which `rados get` does not take from the name
_PLAIN = re.compile(r"[!-~ ]+")
#: RGW's tails of S3 objects: those of deleted ones are there until its garbage collection
_COLLECTED = re.compile("__shadow_|__multipart_")


@dataclass(frozen=True)
class SampledObject:
    """A RADOS object and the SHA-256 of its data."""

    pool: str
    name: str
    sha256: str


@dataclass(frozen=True)
class ObjectSample:
    """Objects of one cluster, chosen by a seed."""

    fsid: str
    seed: int
    objects: Tuple[SampledObject, ...]

    @classmethod
    def take(cls, shell: Shell, seed: int = 0, count: int = OBJECTS) -> ObjectSample:
        """Choose up to `count` objects of the pools with clients' data and read them.

        An object that was listed and is not there any more is left out. What cannot be read is an error of `shell`.
        """
        fsid, pools = shell("ceph fsid && ceph osd pool ls detail -f json 2>/dev/null").strip().split("\n", 1)
        chance = random.Random(seed)
        groups = _placement_groups(json.loads(pools), chance)[:_LISTED_GROUPS]
        chosen: List[Tuple[str, str]] = []
        while groups and len(chosen) < count:
            at_once = max(1, count // PER_PG)
            some, groups = groups[:at_once], groups[at_once:]
            chosen += _chosen(shell, some, chance)
        names = chosen[:count]
        hashes = _read(shell, names)
        digests = [(name, digest) for name, digest in zip(names, hashes) if digest != _MISSING]
        return cls(fsid, seed, tuple(SampledObject(*name, digest) for name, digest in digests))

    def differences(self, shell: Shell) -> List[str]:
        """Return the differences between cluster and sample, a line each; [] when fsid and objects are the same."""
        fsid = shell("ceph fsid").strip()
        if fsid != self.fsid:
            return [f"fsid {fsid}, expected {self.fsid}"]
        hashes = _read(shell, [(sampled.pool, sampled.name) for sampled in self.objects])
        return [
            f"object {sampled.name} of pool {sampled.pool}: {'missing' if digest == _MISSING else 'other content'}"
            for sampled, digest in zip(self.objects, hashes)
            if digest != sampled.sha256
        ]

    def as_json(self) -> Dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> ObjectSample:
        """Read what `as_json` wrote. Raises ValueError, KeyError or TypeError for anything else."""
        if document["format"] != FORMAT:
            raise ValueError(f"sample of format {document['format']}, this version reads {FORMAT}")
        objects = tuple(SampledObject(**entry) for entry in document["objects"])
        return cls(document["fsid"], document["seed"], objects)


def _placement_groups(pools: Sequence[Mapping[str, Any]], chance: random.Random) -> List[Tuple[str, str]]:
    """Return (pool, placement group) in a random order in which each pool has its turn."""
    turns: List[Tuple[int, str, str]] = []
    for pool in pools:
        if not _OWN.fullmatch(pool["pool_name"]):
            groups = [f"{pool['pool_id']}.{group:x}" for group in range(pool["pg_num"])]
            chance.shuffle(groups)
            turns += [(turn, pool["pool_name"], group) for turn, group in enumerate(groups)]
    return [(name, group) for _, name, group in sorted(turns, key=lambda turn: turn[0])]


def _chosen(shell: Shell, groups: Sequence[Tuple[str, str]], chance: random.Random) -> List[Tuple[str, str]]:
    """Return some objects of each of these placement groups."""
    lists = "".join(f"list {group}; " for _, group in groups)
    listed: Dict[str, List[str]] = {}
    for line in shell(f"{_LIST}{lists}").splitlines():
        if line.startswith("="):
            names = listed.setdefault(line[1:], [])
        elif _PLAIN.fullmatch(line) and not _COLLECTED.search(line):
            names.append(line[1:])
    chosen: List[Tuple[str, str]] = []
    for pool, group in groups:
        object_names = sorted(listed.get(group, ()))
        chosen += [(pool, name) for name in chance.sample(object_names, min(PER_PG, len(object_names)))]
    return chosen


def _read(shell: Shell, names: Sequence[Tuple[str, str]]) -> List[str]:
    lines = "".join(f"one {shlex.quote(pool)} {shlex.quote(name)}; " for pool, name in names)
    hashes = shell(f"set -o pipefail; {_GET}{lines}").split()
    if len(hashes) != len(names):
        raise ValueError(f"{len(names)} objects were read and {len(hashes)} hashes printed")
    return hashes
