"""The configuration of a run as flat keys: of its summary and, where there is one, of its directory in the archive."""

from __future__ import annotations

import configparser
import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.config.fault import without_defaults
from cbt_plugins.inventory import nodes_of
from cbt_plugins.journal import read_json, read_text
from cbt_plugins.plan import CRUSH, DAEMON_TYPES, is_calibration, op_of_work
from cbt_plugins.results.engines_of_archives import has_worker_groups, is_cbt_load

Pairs = Iterator[Tuple[str, Any]]

#: of ceph.conf: what names one cluster, and says nothing about how fast it is
_NAMES = ("fsid", "mon_host", "mon_initial_members", "keyring", "log_file")
_ROLES = (("buckets.data", "data"), ("buckets.index", "index"))
#: options whose values are secret or private: tables are pasted into posts
_SECRET = re.compile(r"(password|passwd|secret|token|(^|[_/ -])key)$")
#: options of faults that are secret, or say how the same is done
_HOW = re.compile(r"password|passwd|secret|token|key$|^(service_manager|consent|ssh_port)$")


def configuration(summary: Mapping[str, Any], run: Optional[Path]) -> Dict[str, Any]:
    """Return all known keys of RunRecord.config; `run` is the run's directory, if there is one."""
    plan = _mapping(run, "plan.json")
    values = dict(_of_summary(summary, plan))
    for pairs in (_of_plan(plan), _of_nodes(run), _of_cluster(run)):
        values.update(pairs)
    return {key: values[key] for key in sorted(values) if values[key] is not None}


def _of_summary(summary: Mapping[str, Any], plan: Mapping[str, Any]) -> Pairs:
    yield "benchmark", summary["run"]["benchmark"]
    loaded = [phase for phase in summary["phases"] if phase["drivers"]]
    planned = {phase["name"]: phase for phase in plan.get("phases") or ()}
    yield "phases", " ".join(planned or [phase["name"] for phase in summary["phases"]])
    drivers: Dict[str, Mapping[str, Any]] = {d["driver"]: d for phase in loaded for d in phase["drivers"]}
    yield "engine", "+".join(sorted({phase["engine"] for phase in loaded})) or None
    yield "objects.sizes", " ".join(sorted({sizes(driver["sizes"]) for driver in drivers.values()})) or None
    yield "load.drivers", len(drivers) or None
    yield "cluster.clients", len({driver["node"] for driver in drivers.values()}) or None
    yield "cluster.endpoints", len(summary["environment"]["endpoints"]) or None
    calibrated = any(is_calibration(phase["name"], phase["role"]) for phase in summary["phases"])
    for phase in summary["phases"]:
        planned_phase = planned.get(phase["name"], {})
        for key, value in _of_phase(phase, planned_phase):
            yield f"phase.{phase['name']}.{key}", value
        if calibrated and has_worker_groups(phase) and not planned_phase.get("workers"):
            driver_workers = [driver["workers"] for driver in plan.get("drivers") or ()]
            yield f"phase.{phase['name']}.workers", sum(driver_workers) or None  # what was made of them is in loops
        if has_worker_groups(phase):
            # by calibration: another in every run
            yield f"loops.{phase['name']}", mix_text(dict(_workers(phase["jobs"])))
    for name, text in summary["environment"]["versions"].items():
        yield f"version.{name}", text
    yield "scale", summary["environment"]["scale"]
    if plan.get("objective") or summary["failure"]:
        yield "objective", _limits(plan.get("objective") or {}) or "of the baseline"


def _of_phase(phase: Mapping[str, Any], planned: Mapping[str, Any]) -> Pairs:
    yield "kind", phase["kind"]
    yield "role", phase["role"]
    if planned:  # without a plan it is not known; with one, nothing is something
        yield "events", " ".join(_events(planned.get("events") or ())) or "none"
    if phase["kind"] == "wait" and planned:
        waits = {"wait_clean": "clean", "wait_gc": "gc", "drop_caches": "drop-caches"}
        yield "wait", " ".join(word for key, word in waits.items() if planned.get(key)) or "none"
        yield "seconds", planned.get("duration")
    if not phase["drivers"]:
        return
    yield "engine", phase["engine"]
    yield "loop", phase["loop"]
    ladder = planned.get("ladder")
    if ladder:  # each run finds its own loads
        yield "ladder", f"{ladder['unit']} {ladder['lowest']:g}-{ladder['highest']:g} {_limits(ladder['objective'])}"
        yield "steps", ladder.get("steps")
    else:
        yield "workers", sum(driver["workers"] for driver in phase["drivers"])
    yield "mix", mix_text(phase["mix"]["asked"])
    # the load before a failure lasts longer where the cluster checks a fault slowly
    yield "seconds", planned.get("duration") if planned.get("failure") else phase["asked_seconds"]
    if planned.get("rate_share") is not None:  # of what the run itself has made
        yield "rate_share", planned["rate_share"]
    elif not ladder:
        yield "rate", phase["rate"]["asked"]
    goal = {name: value for name, value in (planned.get("goal") or {}).items() if value is not None}
    yield "goal", " ".join(f"{name}:{value:g}" for name, value in goal.items()) or None
    if planned:
        works = planned.get("works") or ()
        parts = ({**planned, "name": ""}, *works)
        yield "works", " ".join(_work(work) for work in works) or None
        yield (
            "keys",
            _by_op(parts, "keys", lambda keys: f"{keys.get('select')}{',absent' if keys.get('absent') else ''}"),
        )
        yield "buckets", _by_op(parts, "roles", ",".join)
        yield "warp", _warp(planned.get("warp") or {}) or None
        for name in ("ramp", "warmup", "arrivals"):
            yield name, planned.get(name)
        if has_worker_groups(phase) and "workers" in planned:
            yield "workers_by_op", mix_text(planned["workers"]) or "calibrated"


def _limits(objective: Mapping[str, float]) -> str:
    """Return the limits of an objective: "GET/p99_ms:50 success_rate:0.999"."""
    return " ".join(f"{key}:{limit:g}" for key, limit in objective.items())


def _by_op(parts: Sequence[Mapping[str, Any]], name: str, text: Callable[[Any], str]) -> str:
    """Return a property of the operations of a phase and of its works: "GET:u(1,N) readers:GET:live"."""
    value_of_op = {
        op_of_work(part["name"], op.upper()): value for part in parts for op, value in (part.get(name) or {}).items()
    }
    return " ".join(f"{op}:{text(value)}" for op, value in sorted(value_of_op.items())) or "any"


def _work(work: Mapping[str, Any]) -> str:
    """Return "readers:8" or "writers:4,100/s": the workers of each driver, and the rate of an open loop."""
    even = ",even" if work.get("arrivals") == "even" else ""
    rate = f",{work['rate']:g}/s{even}" if work.get("rate") else ""
    return f"{work['name']}:{work['workers']}{rate}"


def _warp(command: Mapping[str, Any]) -> str:
    """Return a plain command of warp: "get objects=1000 range=true"."""
    args = {"objects": command.get("objects"), **(command.get("args") or {})}
    shown_args = {name: value for name, value in sorted(args.items()) if value is not None and not _SECRET.search(name)}
    return " ".join([command.get("op") or "", *(f"{name}={value}" for name, value in shown_args.items())])


def _events(events: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the events of a phase, without the names of nodes: "0s:stop*1", "0s:out*1:osd", "5s:run:1a2b3c4d"."""
    for event in events:
        at = f"{event['at']:g}s"
        if event.get("inject"):
            conditions = {"after-clean": event.get("after_clean"), "optional": event.get("optional")}
            words = "".join(f"{word}:" for word, is_set in conditions.items() if is_set)
            yield f"{at}:{words}{_fault(event['inject'])}"
        if event.get("run"):
            yield f"{at}:run:{_digest(event['run'].get('command'), event['run'].get('undo') or '')}"
        if event.get("upgrade"):
            yield f"{at}:upgrade"
        if event.get("undo"):
            yield f"{at}:undo*{len(event['undo'])}"


def _fault(fault: Mapping[str, Any]) -> str:
    """Return a kind, how many of what, and its options but defaults: "network*1(deadline=60.0,method=nft)"."""
    targets = fault.get("targets") or ()
    of = {_type_of(target) for target in targets} or {fault.get("choose_of") or "node"}
    options = sorted(without_defaults(fault["kind"], fault.get("options") or {}).items())
    given = [f"{name}={_option(value, targets)}" for name, value in options if not _HOW.search(name)]
    type_suffix = "".join(f":{target_type}" for target_type in sorted(of - {"node"}))
    how = f"({','.join(given)})" if given else ""
    return f"{fault['kind']}*{len(targets) or fault.get('choose') or 1}{type_suffix}{how}"


def _type_of(target: str) -> str:
    """Return "osd" of osd.3, "crush" of a bucket, and "node" of a name of a node."""
    if target.startswith(CRUSH):
        return "crush"
    kind, _, name = target.partition(".")
    return kind if kind in DAEMON_TYPES and name else "node"


def _option(value: Any, targets: Sequence[str]) -> str:
    """Return the value of an option; of a command, or of what names a target, a digest without these names."""
    shown = "+".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    without_targets = re.sub("|".join(map(re.escape, targets)), "", shown) if targets else shown
    return _digest(without_targets) if without_targets != shown or re.search(r"\s", shown) else shown


def _digest(*texts: Any) -> str:
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:8]


def _workers(jobs: Sequence[Mapping[str, Any]]) -> Iterator[Tuple[str, int]]:
    total: Counter[str] = Counter()
    for job in jobs:
        total[job["op"]] += job["workers"]
    yield from sorted(total.items())


def mix_text(shares: Optional[Mapping[str, float]]) -> Optional[str]:
    """Return a mix as text: "DELETE:5 GET:45 PUT:35 STAT:15"."""
    return " ".join(f"{op}:{share:g}" for op, share in sorted(shares.items())) if shares else None


def sizes(of: Iterable[Sequence[float]]) -> str:
    """Return one driver's (smallest, largest, share) as "4096", "1024-65536" or "4096:50,65536:50" (percent)."""
    texts = [(f"{low:g}" if low == high else f"{low:g}-{high:g}", share) for low, high, share in of]
    return texts[0][0] if len(texts) == 1 else ",".join(f"{text}:{100 * share:g}" for text, share in texts)


def _of_plan(plan: Mapping[str, Any]) -> Pairs:
    yield from _of_buckets(plan)
    yield from _of_gateways(plan)
    for phase in plan.get("phases") or ():
        for upgrade in (event["upgrade"] for event in phase.get("events") or () if event.get("upgrade")):
            how = upgrade.get("image") or upgrade.get("command") or ""
            yield f"upgrade.{phase['name']}", f"to {upgrade.get('to')} by {_digest(how)}"
    s3 = plan.get("s3") or {}
    if "sse" in s3:  # without the name of a key
        yield "load.s3.sse", str(s3["sse"]).partition(":")[0] or "none"
    for name in ("payload", "host_select", "lookup"):
        yield f"load.s3.{name}", s3.get(name)
    yield "load.s3.scheme", "+".join(sorted({str(url).split(":", 1)[0] for url in s3.get("urls") or ()})) or None
    cbt_load = plan.get("cbt_load") or {}
    if any(is_cbt_load(phase.get("engine") or "") for phase in plan.get("phases") or ()):
        for name, value in cbt_load.items():
            yield ("seed" if name == "seed" else f"load.cbt_load.{name}"), value
    settings = plan.get("settings")
    if settings is None:
        return
    yield "settings.flags", " ".join(settings.get("flags") or ()) or "none"
    yield "settings.recovery", settings.get("recovery") or "none"
    yield "settings.accept", " ".join(settings.get("accept") or ()) or "none"
    for name in ("balancer", "autoscaler"):
        if name in settings:
            yield f"settings.{name}", {None: "as it is", True: "on", False: "off"}[settings[name]]
    for who, option, value in settings.get("config") or ():
        yield f"settings.{who}.{option}", value


def _of_buckets(plan: Mapping[str, Any]) -> Pairs:
    buckets, drivers = plan.get("buckets") or (), plan.get("drivers") or ()
    yield "objects.versioned", plan.get("versioned")
    yield "load.read_objects", plan.get("read_objects")
    if buckets:
        yield "objects.buckets", len(buckets)
        yield "objects.users", len({bucket.get("user") or "" for bucket in buckets})
        if all("existing" in bucket for bucket in buckets):
            yield "objects.existing", sum(bucket["existing"] for bucket in buckets)
        if all("objects" in bucket for bucket in buckets):
            counts = Counter(str(bucket["objects"] or "by goal") for bucket in buckets)
            yield "objects.written", ", ".join(f"{value} ({n})" for value, n in sorted(counts.items()))
    if drivers and all("buckets" in driver for driver in drivers):
        yield "load.buckets_of_driver", " ".join(map(str, sorted({len(driver["buckets"]) for driver in drivers})))


def _of_gateways(plan: Mapping[str, Any]) -> Pairs:
    rgw = plan.get("rgw") or {}
    placed = rgw.get("placement") or {}
    if "placement" in rgw:
        yield "rgw.placement", _placed(placed) or "as it is"
        others = (rgw.get("placements") or {}).values()
        yield "rgw.placement_of_others", " | ".join(sorted(map(_placed, others))) or "as it is"
    for name in ("index_shards", "threads"):
        yield f"rgw.{name}", rgw.get(name)
    roles = {key: role for role, key in reversed(list(placed.items()))}
    for pool in plan.get("pools") or ():
        if pool.get("ec"):
            profile = " ".join(f"{name}={value}" for name, value in sorted(pool.get("profile") or ()))
            yield f"pool.{roles.get(pool['key'], pool['key'])}.profile", profile or "none"


def _placed(placement: Mapping[str, str]) -> str:
    return " ".join(f"{role}:{key}" for role, key in sorted(placement.items()))


def _of_nodes(run: Optional[Path]) -> Pairs:
    manifest = _mapping(run, "manifest.json")
    facts = [node_facts for node_facts in (manifest.get("nodes") or {}).values() if isinstance(node_facts, dict)]
    tuned = sorted({name for node_facts in facts for name in node_facts if name.startswith(("sysctl.", "ulimit."))})
    for name in ("kernel", "os", "arch", "cores", "memory_kib", "tuned", "governor", "hugepages", *tuned):
        seen = Counter(str(node_facts[name]) for node_facts in facts if node_facts.get(name))
        yield f"host.{name}", ", ".join(f"{value} ({n})" for value, n in sorted(seen.items())) or None
    for engine, payload in (manifest.get("payload") or {}).items():  # what the releases took, not what was asked
        yield f"payload.{engine}", payload
    cluster = _mapping(run, "cluster.json").get("cluster") or {}
    if cluster.get("rgws"):
        yield "cluster.rgws", len(nodes_of(cluster, "rgws"))


def _of_cluster(run: Optional[Path]) -> Pairs:
    """Yield the keys of the snapshot that was made before the first phase."""
    before = run / "cluster" / "before" if run else None
    profiles = _mapping(before, "ec_profiles.json")
    own = {pool.get("pool_name"): key for key, pool in (_mapping(run, "manifest.json").get("pools") or {}).items()}
    placed = (_mapping(run, "plan.json").get("rgw") or {}).get("placement") or {}
    roles_of = {key: role for role, key in reversed(list(placed.items()))}
    own = {name: roles_of.get(key, key) for name, key in own.items()}
    roles = [(end, role) for end, role in _ROLES if role not in own.values()]
    rules = {rule.get("rule_id"): rule for rule in _list(before, "crush_rules.json")}
    for pool in _list(before, "pools.json"):
        name = str(pool.get("pool_name"))
        role = own.get(name) or next((role for end, role in roles if name.endswith(end)), None)
        if role:
            yield from _of_pool(role, pool, profiles)
            yield from _of_rule(role, rules.get(pool.get("crush_rule")) or {})
    nodes: List[Mapping[str, Any]] = _mapping(before, "osd_tree.json").get("nodes") or []
    osds = [node for node in nodes if node.get("type") == "osd" and _serves(node)]
    if osds:
        ids = {node["id"] for node in osds}
        hosts = [node for node in nodes if node.get("type") == "host" and ids & set(node.get("children") or ())]
        yield "cluster.osds", len(osds)
        yield "cluster.osd_nodes", len(hosts)
        classes = Counter(str(node.get("device_class") or "none") for node in osds)
        yield "osd.classes", " ".join(f"{name}:{n}" for name, n in sorted(classes.items()))
    yield "osd.flags", " ".join(sorted(_mapping(before, "osd_dump.json").get("flags_set") or ())) or None
    health = _mapping(before, "status.json").get("health") or {}
    yield "health.before", " ".join([str(health["status"]), *sorted(health.get("checks") or ())]) if health else None
    options = _json(before, "config_dump.json")
    if options is not None:
        yield "ceph.snapshot", True  # so that an option that is not there is known not to be set
    for option in options or ():
        section = "/".join(text for text in (option.get("section"), option.get("mask")) if text)
        if not _SECRET.search(str(option.get("name"))):
            yield f"ceph.{section}.{option.get('name')}", option.get("value")
    yield from _of_conf(before)


def _serves(osd: Mapping[str, Any]) -> bool:
    """Return whether an OSD of the tree is up and in."""
    return osd.get("status", "up") == "up" and float(osd.get("reweight", 1.0)) > 0


def _of_pool(role: str, pool: Mapping[str, Any], profiles: Mapping[str, Any]) -> Pairs:
    profile = profiles.get(pool.get("erasure_code_profile") or "") or {}
    yield f"pool.{role}.type", "erasure" if profile or pool.get("type") == 3 else "replicated"
    yield f"pool.{role}.size", pool.get("size")
    for name in ("k", "m"):
        yield f"pool.{role}.{name}", int(profile[name]) if name in profile else None
    for name in ("pg_num", "pg_autoscale_mode", "min_size"):
        yield f"pg.{role}.{name}", pool.get(name)
    options = pool.get("options") or {}
    for name in ("compression_mode", "compression_algorithm"):
        yield f"pool.{role}.{name}", options.get(name, "none" if name.endswith("mode") else None)
    yield f"pg.{role}.target_size_ratio", options.get("target_size_ratio")
    yield f"pg.{role}.bulk", "bulk" in str(pool.get("flags_names") or "").split(",")
    yield f"pg.{role}.plugin", profile.get("plugin")


def _of_rule(role: str, rule: Mapping[str, Any]) -> Pairs:
    """Yield the places of a pool's PGs: the name of the rule says nothing, because each run has a rule of its own."""
    steps = rule.get("steps") or []
    taken = [str(step.get("item_name")) for step in steps if step.get("op") == "take"]
    root, _, device = (taken or [""])[0].partition("~")
    yield f"pool.{role}.root", root or None
    yield f"pool.{role}.device_class", device or ("any" if root else None)
    domains = [str(step.get("type")) for step in steps if str(step.get("op")).startswith("choose")]
    yield f"pool.{role}.failure_domain", "+".join(domains) or None


def _of_conf(before: Optional[Path]) -> Pairs:
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    try:
        parser.read_string(read_text(before / "ceph.conf") if before else "")
    except (OSError, configparser.Error):
        return
    for section in parser.sections():
        for option, value in parser.items(section):
            name = option.replace(" ", "_")
            if name not in _NAMES and not _SECRET.search(name):
                yield f"conf.{section}.{name}", value


def _mapping(directory: Optional[Path], name: str) -> Dict[str, Any]:
    document = _json(directory, name)
    return document if isinstance(document, dict) else {}


def _list(directory: Optional[Path], name: str) -> List[Any]:
    document = _json(directory, name)
    return document if isinstance(document, list) else []


def _json(directory: Optional[Path], name: str) -> Any:
    """Read a file; None for one that is missing or damaged: the summary's warnings have said so."""
    try:
        return read_json(directory / name) if directory else None
    except (OSError, ValueError):
        return None
