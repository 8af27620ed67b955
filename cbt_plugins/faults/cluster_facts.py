"""State of the cluster at one instant: daemons and their hosts, CRUSH placement of pools, states of PGs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import (
    Any,
    Collection,
    Dict,
    FrozenSet,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from cbt_plugins.cluster.ceph import Ceph, CephError, newest_gateways
from cbt_plugins.faults.step import NoAnswer

#: type of daemon -> the question that lists these daemons
DAEMON_QUESTIONS: Mapping[str, str] = {"mds": "mds metadata", "rgw": "service dump"}
#: questions for every fault; the names are the keys of a recorded answer
QUESTIONS = (
    "osd dump",
    "osd tree",
    "osd crush rule dump",
    "pg dump pgs_brief",
    "osd df",
    "quorum_status",
    "mon metadata",
    "mgr metadata",
    "mgr stat",
    "osd metadata",
    "config get mon mon_osd_min_in_ratio",
    "config dump",
    *DAEMON_QUESTIONS.values(),
)


class DaemonName(NamedTuple):
    """A daemon as Ceph names it: osd.3, rgw.a, mon.b."""

    type: str
    id: str

    def __str__(self) -> str:
        return f"{self.type}.{self.id}"

    @classmethod
    def parse(cls, text: str) -> DaemonName:
        """Return the daemon of "osd.3"."""
        return cls(*text.split(".", 1)) if "." in text else cls(text, "")


def osd_names(osds: Iterable[int]) -> Tuple[DaemonName, ...]:
    """Return the OSDs with these numbers."""
    return tuple(DaemonName("osd", str(osd)) for osd in osds)


def names(daemons: Iterable[DaemonName]) -> str:
    """Return "osd.1, osd.2"."""
    return ", ".join(map(str, daemons))


@dataclass(frozen=True)
class Facts:
    """The replies of Ceph, by question."""

    answers: Mapping[str, Any]

    @cached_property
    def osds(self) -> Dict[int, Mapping[str, Any]]:
        """Return number -> entry of `osd dump`."""
        return {int(o["osd"]): o for o in self.answers["osd dump"]["osds"]}

    @property
    def pools(self) -> List[Mapping[str, Any]]:
        """Return the pools of `osd dump`."""
        return list(self.answers["osd dump"]["pools"])

    @property
    def fsid(self) -> str:
        """Return the ID of the cluster."""
        return str(self.answers["osd dump"].get("fsid") or "")

    @property
    def flags(self) -> List[str]:
        """Return the flags of the OSD map."""
        return list(self.answers["osd dump"]["flags_set"])

    def upmaps(self, osds: Collection[int]) -> Dict[str, List[List[int]]]:
        """Return PG -> the pairs [from, to] of its upmap entry, for the entries with one of these OSDs."""
        pairs = upmaps_in(self.answers["osd dump"])
        return {pg: moves for pg, moves in pairs.items() if any(osd in move for move in moves for osd in osds)}

    @cached_property
    def tree(self) -> Dict[int, Mapping[str, Any]]:
        """Return CRUSH id -> node of `osd tree`."""
        return {int(n["id"]): n for n in self.answers["osd tree"]["nodes"]}

    @cached_property
    def pgs(self) -> List[Mapping[str, Any]]:
        """Return the PGs: pgid, state, acting. Raises NoAnswer while the manager does not know all of them."""
        answer = self.answers["pg dump pgs_brief"]
        about = answer if isinstance(answer, dict) else {"pg_stats": answer}  # a bare list before Nautilus
        pgs, all_pgs = list(about["pg_stats"]), sum(int(pool["pg_num"]) for pool in self.pools)
        if len(pgs) < all_pgs or not about.get("pg_ready", True):
            text = f"ceph pg dump shows {len(pgs)} of {all_pgs} PGs, so no fault can be checked"
            raise NoAnswer(f"{text}: the manager has just started, or a pool is changing; try again in a minute")
        return pgs

    @cached_property
    def hosts(self) -> Dict[str, List[int]]:
        """Return host name -> OSDs: the host that the OSDs report, else their host in the CRUSH tree."""
        hostnames = {int(m["id"]): str(m.get("hostname") or "") for m in self.answers.get("osd metadata") or []}
        hosts: Dict[str, List[int]] = {}
        for node in self.tree.values():
            if node["type"] == "host":
                for osd in node.get("children", []):
                    hosts.setdefault(hostnames.get(osd) or node["name"], []).append(osd)
        return {host: sorted(osds) for host, osds in sorted(hosts.items())}

    @cached_property
    def gateways(self) -> Dict[str, Mapping[str, Any]]:
        """Return the rows of the gateways by instance."""
        return newest_gateways(self.answers[DAEMON_QUESTIONS["rgw"]])

    @cached_property
    def _daemons(self) -> Dict[str, Mapping[DaemonName, str]]:
        return {}

    def gateways_on_hosts(self) -> Dict[str, Set[DaemonName]]:
        """Return host -> its gateways. Several gateways can share a name: `daemons` has only one of their hosts."""
        names_on_hosts: Dict[str, Set[DaemonName]] = {}
        for key, row in self.gateways.items():
            about = row["metadata"]  # before Pacific the key is the id
            name = DaemonName("rgw", str(about.get("id", key)))
            names_on_hosts.setdefault(str(about.get("hostname") or ""), set()).add(name)
        return names_on_hosts

    def daemons(self, type: str) -> Mapping[DaemonName, str]:
        """Return daemon -> host for a type of daemon; a type in `DAEMON_QUESTIONS` needs the reply to its question."""
        if type not in self._daemons:
            self._daemons[type] = self._daemons_of(type)
        return self._daemons[type]

    def _daemons_of(self, type: str) -> Mapping[DaemonName, str]:
        if type == "osd":
            return {name: host for host, osds in self.hosts.items() for name in osd_names(osds)}
        if type == "rgw":
            host_by_gateway = {name: host for host, names in self.gateways_on_hosts().items() for name in names}
            return {name: host_by_gateway[name] for name in sorted(host_by_gateway)}
        metadata_by_id = {str(data["name"]): data for data in self.answers[f"{type} metadata"]}
        return {DaemonName(type, id): str(metadata_by_id[id].get("hostname") or "") for id in sorted(metadata_by_id)}

    def is_up(self, name: DaemonName) -> bool:
        """Tell whether a daemon is up. Daemons other than OSDs are always up: the cluster lists only running ones."""
        return bool(self.osds[int(name.id)]["up"]) if name.type == "osd" else True

    def weight(self, osd: int) -> float:
        """Return the reweight of an OSD, 0..1: 0 for an OSD that is out or does not exist."""
        return float(self.osds[osd]["weight"]) if osd in self.osds else 0.0

    def monitors_go_by(self, option: str, default: str) -> str:
        """Return an option of the monitors by `config dump`, which does not show values of a ceph.conf."""
        rows = self.answers["config dump"]
        values = {r["section"]: str(r["value"]) for r in rows if r["name"] == option and not r.get("mask")}
        return values.get("mon", values.get("global", default))

    def below(self, item: int) -> List[int]:
        """Return all OSDs under an item of the CRUSH tree."""
        if item >= 0:
            return [item]
        return [osd for child in self.tree[item].get("children", []) for osd in self.below(child)]


def upmaps_in(osd_dump: Mapping[str, Any]) -> Dict[str, List[List[int]]]:
    """Return PG -> the pairs [from, to] of its entry in `pg_upmap_items`."""
    items = osd_dump.get("pg_upmap_items", ())
    return {str(item["pgid"]): [[move["from"], move["to"]] for move in item["mappings"]] for item in items}


def ask(ceph: Ceph, questions: Sequence[str] = QUESTIONS, timeout: float = 30.0, alone: Sequence[str] = ()) -> Facts:
    """Ask all questions in one command; replies to the `alone` are `Reply`. Raises NoAnswer for a missing reply."""
    try:
        answers, replies = ceph.ask_all(questions, timeout, alone)
    except CephError as error:
        raise NoAnswer(str(error)) from error
    return Facts({**dict(zip(questions, answers)), **dict(zip(alone, replies))})


# ---- CRUSH placement of pools ----


class Area(NamedTuple):
    """A CRUSH bucket whose data stays below it when OSDs are out, with the failure domains in it."""

    name: str
    members: FrozenSet[int]  # OSDs of the rule's device class
    kind: str  # type of the failure domains; "": unknown
    domains: Mapping[str, List[int]]
    chosen: int  # failure domains for each PG
    is_part: bool  # the CRUSH rule has chosen it, and has chosen others too


def areas(facts: Facts, pool: Mapping[str, Any]) -> Iterator[Area]:
    """Yield the areas of a pool: the buckets that its CRUSH rule takes, or those of its last but one choose step.

    CRUSH chooses a bucket such as a datacenter by weights only, so that step chooses the same ones when OSDs are out,
    even all OSDs of a bucket. Only a step that comes to OSDs chooses again. Rules that choose again in all steps
    (`choosemsr`) have no parts.
    """
    steps = _steps(facts, pool)
    kind, domains = domain_members(facts, pool)
    *outer, last = [s for s in steps if s["op"].startswith("choose")] or [{}]
    has_parts = bool(outer) and not any("msr" in s["op"] for s in steps)
    taken = [s for s in steps if s["op"] == "take"]
    for step in taken:
        root, device = _root(facts, step)
        if root is None:
            continue
        of_class = f", class {device}" if device else ""
        if not has_parts or len(taken) != 1:
            members = frozenset(_of_class(facts, root, device))
            yield Area(f"{facts.tree[root]['name']}{of_class}", members, kind, domains, pool["size"], False)
            continue
        chosen = int(last["num"]) if last["num"] > 0 else int(pool["size"] + last["num"])
        for item in _of_type(facts, root, outer[-1]["type"]):
            name, inside = f"{outer[-1]['type']} {facts.tree[item]['name']}", _of_type(facts, item, last["type"])
            below = {str(facts.tree[i]["name"]): _of_class(facts, i, device) for i in inside}
            members = frozenset(_of_class(facts, item, device))
            yield Area(name + of_class, members, str(last["type"]), below, chosen, True)


def _steps(facts: Facts, pool: Mapping[str, Any]) -> List[Mapping[str, Any]]:
    rules = facts.answers["osd crush rule dump"]
    return [step for rule in rules if rule["rule_id"] == pool["crush_rule"] for step in rule["steps"]]


def _root(facts: Facts, take: Mapping[str, Any]) -> Tuple[Optional[int], str]:
    name, _, device = str(take["item_name"]).partition("~")  # "default~ssd": one class of devices
    return next((i for i, n in facts.tree.items() if n["name"] == name), None), device


def _of_class(facts: Facts, item: int, device: str) -> List[int]:
    """Return the OSDs of a device class below a CRUSH item; all of them for ""."""
    return [osd for osd in facts.below(item) if not device or facts.tree[osd].get("device_class") == device]


def domains(
    facts: Facts, gone: Collection[int], taken_now: Collection[int], out: Collection[int] = ()
) -> Iterator[Tuple[Mapping[str, Any], str, Dict[str, float]]]:
    """Yield each pool with the type of its failure domains and the lost share of each domain.

    OSDs that are out, or will be (`out`), do not count, except OSDs of `taken_now`. Pools without known domains are
    skipped: only their PGs can tell.
    """
    osds = facts.osds
    for pool in facts.pools:
        kind, members_by_domain = domain_members(facts, pool)
        shares = {}
        for name, below in members_by_domain.items():
            members = [o for o in below if o in osds and ((facts.weight(o) > 0 and o not in out) or o in taken_now)]
            if members:
                shares[name] = sum(o in gone for o in members) / len(members)
        if shares:
            yield pool, kind, shares


def domain_members(facts: Facts, pool: Mapping[str, Any]) -> Tuple[str, Dict[str, List[int]]]:
    """Return the type of a pool's failure domains, and for each domain its OSDs of the pool's device class.

    None if the pool's CRUSH rule has more than one choose step.
    """
    steps = _steps(facts, pool)
    choices = [s for s in steps if s["op"].startswith("choose")]
    taken = [s for s in steps if s["op"] == "take"]
    if len(choices) != 1 or len(taken) != 1:
        return "", {}
    root, device = _root(facts, taken[0])
    items = _of_type(facts, root, choices[0]["type"]) if root is not None else []
    return str(choices[0]["type"]), {str(facts.tree[i]["name"]): _of_class(facts, i, device) for i in items}


def _of_type(facts: Facts, item: int, kind: str) -> List[int]:
    node = facts.tree[item]
    if node["type"] == kind:
        return [item]
    return [descendant for child in node.get("children", []) for descendant in _of_type(facts, child, kind)]


def needed(facts: Facts, pool: Mapping[str, Any]) -> int:
    """Return the fewest PG members from which a pool's data can be read: one copy, or k chunks."""
    profiles = facts.answers["osd dump"].get("erasure_code_profiles", {})
    return int(profiles.get(pool.get("erasure_code_profile") or "", {}).get("k", 1)) if pool["type"] == 3 else 1


def shape_of(facts: Facts, pool: Mapping[str, Any]) -> str:
    """Return "EC 4+2" or "3 copies"."""
    k = needed(facts, pool)
    return f"EC {k}+{pool['size'] - k}" if pool["type"] == 3 else f"{pool['size']} copies"


# ---- states of PGs ----

#: PG states that last for seconds after OSDs went down or came up
_TRANSIENT = frozenset({"creating", "peering", "activating", "stale", "unknown"})


def transient(states: Mapping[str, int]) -> int:
    """Return the number of PGs in a transient state. `states`: state -> PGs."""
    return sum(n for state, n in states.items() if _TRANSIENT.intersection(state.split("+")))


def unclean_states(states: Mapping[str, int], beside_faults: bool) -> Dict[str, int]:
    """Return state -> PGs for the states that the rule `clean` refuses.

    PGs that are active+clean pass, scrubbing or not. `beside_faults` of this run, PGs pass too that only lack the
    OSDs of these faults: active, and undersized or degraded.
    """
    return {state: n for state, n in states.items() if n and not _passes(state, beside_faults)}


def _passes(state: str, beside_faults: bool) -> bool:
    words = set(state.split("+")) - {"scrubbing", "deep", "snaptrim", "snaptrim_wait"}
    lacking = beside_faults and "active" in words and words <= {"active", "clean", "undersized", "degraded"}
    return lacking or words == {"active", "clean"}


def down_otherwise(facts: Facts, held: Collection[int]) -> List[int]:
    """Return the OSDs that are down, but not by this run. Needs only the reply to `osd dump`."""
    return sorted(n for n, o in facts.osds.items() if not o["up"] and n not in held)
