"""What a plan takes, what it changes and how that is undone, and what is worth knowing before it runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.config.acceptable import target_of
from cbt_plugins.config.aws_profile import has_token
from cbt_plugins.config.fault_spans import event_text, fault_spans, span_warnings, targets_text
from cbt_plugins.config.generator_classes import generator, generators_of, wants_ceiling
from cbt_plugins.config.mix import range_of
from cbt_plugins.config.units import format_duration
from cbt_plugins.formatting import about_size, percent
from cbt_plugins.metrics import ACCEPTABLE, TOTAL
from cbt_plugins.models.capacity import growth, mean_size, steady_occupancy
from cbt_plugins.plan import Gateways, Keys, Phase, Plan, RunPool, Settings, placement_id
from cbt_plugins.programs import NULL_SERVER
from cbt_plugins.s3_operations import WRITES

#: buckets that are named one by one
_MOST_NAMED = 5


@dataclass(frozen=True)
class Forecast:
    """Time and data of one run; `unknown_*` name what only the cluster can tell."""

    seconds: float  # sum of the phases whose duration is given
    unknown_time: Tuple[str, ...]
    objects: Optional[int]  # written by the fills; None when no fill counts objects
    bytes: Optional[float]  # the same, before replication or erasure coding; the mean, when sizes are mixed
    unknown_data: Tuple[str, ...]


def forecast(plan: Plan) -> Forecast:
    """Return the time and the data that the plan takes."""
    objects, size, counted = 0, 0.0, False
    unknown_time: Dict[str, List[str]] = {}  # what ends phases -> their names
    unknown_data: List[str] = []
    for phase in plan.phases:
        if phase.kind == "fill" and phase.goal and phase.goal.objects:
            counted = True
            written_objects, written_bytes = fill_size(plan, phase)
            objects, size = objects + written_objects, size + written_bytes
        if phase.kind == "fill" and not (phase.goal and phase.goal.duration):
            unknown_time.setdefault(f"until {until_text(plan, phase)}", []).append(phase.name)
        if phase.kind in ("verify", "delete") or phase.wait_clean or phase.wait_gc:
            unknown_time.setdefault(goal_text(phase), []).append(phase.name)
        unknown_data += _unknown_data(plan, phase)
    seconds = sum(_seconds(phase) for phase in plan.phases) + (plan.post_poll or 0.0)
    return Forecast(
        seconds,
        tuple(f"{', '.join(names)}: {text}" for text, names in unknown_time.items()),
        objects if counted else None,
        size if counted else None,
        tuple(unknown_data),
    )


def fill_size(plan: Plan, phase: Phase) -> Tuple[int, float]:
    """Return the objects that a fill writes, and their bytes; 0 for a fill whose goal is not a number of objects."""
    goal = phase.goal.objects if phase.goal else None
    if not goal:
        return 0, 0.0
    written = generator(phase.engine).objects_written
    numbers = [written(plan, bucket.key, bucket.objects or goal) for bucket in plan.buckets]
    return sum(numbers), sum(number * mean_size(bucket.sizes) for number, bucket in zip(numbers, plan.buckets))


def until_text(plan: Plan, phase: Phase) -> str:
    """Return the end of a phase of the plan: "20s", "2000 objects per bucket", "2000 objects per bucket, small 500"."""
    text = goal_text(phase)
    if phase.goal and phase.goal.objects:
        groups = Counter(bucket.objects or phase.goal.objects for bucket in plan.buckets)
        if len(groups) == 1:
            return f"{next(iter(groups))} objects per bucket"
        own = [f"{b.key} {b.objects}" for b in plan.buckets if b.objects and b.objects != phase.goal.objects]
        shown = own if len(own) <= _MOST_NAMED else [*own[: _MOST_NAMED - 1], f"{len(own) - _MOST_NAMED + 1} more"]
        return ", ".join([text, *shown])
    return text


def goal_text(phase: Phase) -> str:
    """Return the condition that ends the phase: "20s", "2000 objects per bucket", "all PGs are active+clean"."""
    if phase.goal is not None:
        goal = phase.goal
        if goal.objects is not None:
            return f"{goal.objects} objects per bucket"
        if goal.max_avail is not None:
            return f"{percent(goal.max_avail, 'g')} of MAX AVAIL"
        if goal.raw is not None:
            return f"{percent(goal.raw, 'g')} of the raw capacity is used"
        return format_duration(goal.duration or 0.0)
    if phase.kind in ("verify", "delete"):
        return f"every object is {'read' if phase.kind == 'verify' else 'deleted'}"
    if phase.wait_clean or phase.wait_gc:
        limit = f", at most {format_duration(phase.at_most)}" if phase.at_most else ""
        limit += f", or {format_duration(phase.stalled)} without progress" if phase.stalled else ""
        return f"{'all PGs are active+clean' if phase.wait_clean else 'RGW has no garbage'}{limit}"
    parts = [(phase.ramp, " ramp"), (phase.warmup, " warm-up"), (phase.duration or 0.0, "")]
    text = " + ".join(f"{format_duration(seconds)}{suffix}" for seconds, suffix in parts if seconds or not suffix)
    once = all(
        part.keys.get(op, Keys("")).select[:2] == "r(" for part in phase.apart for op in part.mix or {"": 0}
    )
    return f"every key once, at most {text}" if once else text


def _seconds(phase: Phase) -> float:
    duration = (phase.goal.duration if phase.goal else phase.duration) or 0.0
    return phase.ramp + phase.warmup + duration


def _unknown_data(plan: Plan, phase: Phase) -> Iterator[str]:
    if phase.kind == "fill" and phase.goal and phase.goal.objects is None:
        yield (
            f"{phase.name} writes {'for' if phase.goal.duration else 'until'} {goal_text(phase)}"
        )
    elif phase.kind == "hybrid" and not generator(phase.engine).ops:
        yield f"{phase.name}: {phase.engine} takes no mix: the number of its writes is unknown"
    elif phase.kind == "hybrid":
        for part in phase.apart:
            yield from _growth(part)
    elif phase.kind == "delete":
        yield f"{phase.name} leaves nothing"
    elif phase.kind != "wait":
        yield from generator(phase.engine).data_of(plan, phase)


def _growth(phase: Phase) -> Iterator[str]:
    """Yield the growth of the number of objects in a hybrid phase."""
    mix, keys = phase.mix or {}, phase.keys
    written = [op for op in WRITES if op in mix]
    bounded = [op for op in written if op in keys and range_of(keys[op].select)]
    for op in bounded:
        yield f"{phase.name}: {op} stays within {keys[op].select}{_occupancy(phase, op)}; N is what the fill wrote"
    if written and written == bounded:
        return
    absent = "DELETE" in keys and keys["DELETE"].absent
    left_out = (*bounded, *(["DELETE"] if absent else []))
    added = growth({op: percent for op, percent in mix.items() if op not in left_out})
    if added > 0:
        requests = (phase.rate or 0.0) * _seconds(phase)
        number = f"about {requests * added / 100:.0f} objects, " if requests else ""
        yield f"{phase.name} adds {number}{added:g} objects per 100 requests"
    elif added < 0:
        yield f"{phase.name} takes away {-added:g} objects per 100 requests, while there are any"


def _occupancy(phase: Phase, op: str) -> str:
    """Return the share of a range that has objects at last if PUT and DELETE choose blindly, as COSBench does."""
    mix, keys, roles = phase.mix or {}, phase.keys, phase.roles
    delete, select = keys.get("DELETE"), keys[op].select
    if not (delete and delete.absent and delete.select == select and roles.get("DELETE") == roles.get(op)):
        return ""
    written = sum(mix[each] for each in WRITES if each in keys and keys[each].select == select)
    return f", which tends to be {percent(steady_occupancy(written, mix['DELETE']))} full"


def data_text(plan: Plan) -> Tuple[str, ...]:
    """Return the data that the run stores, one line each."""
    prediction = forecast(plan)
    lines = []
    if prediction.objects is not None and prediction.bytes is not None:
        mixed = any(len(bucket.sizes) > 1 or bucket.sizes[0][0] < bucket.sizes[0][1] for bucket in plan.buckets)
        lines.append(
            f"{prediction.objects} objects, {'about ' if mixed else ''}{about_size(prediction.bytes)} by the fill "
            "(on the disks: x replicas or (k+m)/k, and at least an allocation unit each)"
        )
    return (*lines, *prediction.unknown_data)


_MINUTE = 60.0
#: bytes: rgw_max_put_size where nobody has set it, and S3's own limit
_LARGEST_PUT = 5 << 30
#: seconds of load that may make more objects than are listed
_LONG = 10 * _MINUTE
#: seconds for which a session token is valid if nobody asks for more
_TOKEN_LASTS = 60 * _MINUTE


@dataclass(frozen=True)
class PlannedChange:
    """Something that a run changes, and how that is undone."""

    what: str
    undo: str


def changes(plan: Plan, cluster: Mapping[str, object]) -> Tuple[PlannedChange, ...]:
    """Return everything that the run changes on the cluster and its nodes, with the undo of each."""
    return tuple(_changes(plan, cluster))


def warnings(plan: Plan, clients: Sequence[str]) -> Tuple[str, ...]:
    """Return facts that are no errors and still worth knowing before hours are spent."""
    return tuple(dict.fromkeys(_warnings_of_plan(plan, clients)))


def _changes(plan: Plan, cluster: Mapping[str, object]) -> Iterator[PlannedChange]:
    nodes = ", ".join(dict.fromkeys(driver.node for driver in plan.drivers))
    admin = cluster.get("radosgw-admin_cmd") or "radosgw-admin"
    for bucket in plan.buckets:
        name = bucket.key if bucket.existing else f"cbtp-<run id>-{bucket.key.lower()}"
        if bucket.existing and plan.keep_data:
            text = f"existing bucket {name}: objects under the prefix cbtp-<run id>/, all others stay as they are"
            yield PlannedChange(text, "kept (keep_data); yours to remove")
        elif not bucket.existing:
            command = f"{admin} bucket rm --bucket={plan.s3.admin_name(name, bucket.user)} --purge-objects"
            if not plan.admin:
                command = "all its objects and the bucket are deleted through S3"
            undo = (
                f"kept (keep_data); yours to remove: {command}" if plan.keep_data else f"{command} at the end"
            )
            versions = ", keeps all versions" if plan.versioned else ""
            yield PlannedChange(f"bucket {name}: created and filled{versions}", undo)
    where = cluster.get("tmp_dir") or "/tmp/cbt.<pid>"
    programs = {each.program: each.path_on_clients(plan) for each in generators_of(plan).values()}
    content = [
        *(program for program in sorted(programs, reverse=True) if not programs[program]),
        *([NULL_SERVER] if wants_ceiling(plan) and NULL_SERVER not in programs else []),
        "cbt-rows",
        "aggregates",
        *(["rows"] if plan.keep_rows else []),
    ]
    yield PlannedChange(f"nodes {nodes}: scratch directory under {where} ({', '.join(content)})", "removed at the end")
    dropped = [phase.name for phase in plan.phases if phase.drop_caches]
    if dropped:
        yield PlannedChange(f"OSD nodes: page caches dropped, in {', '.join(dropped)}", "nothing to undo")
    collected = [phase.name for phase in plan.phases if phase.wait_gc]
    if collected:
        yield PlannedChange(f"garbage of RGW, everybody's: collected, in {', '.join(collected)}", "nothing to undo")
    yield from _pools(plan)
    yield from _gateways(plan)
    yield from _set(plan.settings)
    for span in fault_spans(plan):
        fault = span.fault
        text = f"fault {fault.label}: {fault.kind} {targets_text(fault)}"
        undo = f"at {format_duration(round(span.undone[1], 3))} of {span.undone[0]}, or " if span.undone else ""
        yield PlannedChange(
            f"{text}, at {format_duration(round(span.at, 3))} of {span.phase}", f"{undo}at any end of the run{_KILLED}"
        )
    for phase in plan.phases:
        for event in phase.events:
            if event.run:
                text = f"{event_text(event)} ({phase.name})"
                undo = f"{event.run.undo}, at any end of the run{_KILLED}" if event.run.undo else "nothing to undo"
                yield PlannedChange(text, undo)
            if event.upgrade:
                yield PlannedChange(f"{event_text(event)} ({phase.name})", "none: the cluster stays at the new release")
    if plan.admin:
        key = "config-key cbt-plugins/run/... on the cluster: names the run that has the cluster"
        is_kept = plan.pools or any(rgw_words(plan.rgw))
        yield PlannedChange(key, f"removed {_KEPT}" if is_kept else f"removed at the end{_KILLED}")


_KILLED = "; after a kill -9 by `cbt-tools undo ARCHIVE`"
#: a run that is broken off needs its data when it is resumed
_KEPT = "at the end of the whole run; after a run that is broken off by `cbt-tools undo ARCHIVE`"


def _pools(plan: Plan) -> Iterator[PlannedChange]:
    for pool in plan.pools:
        name, about = pool.name("<run id>"), ", ".join(pool_words(pool))
        if pool.existing:
            yield PlannedChange(f"existing pool {name}: {about}", f"the value before, {_KEPT}")
        else:
            yield PlannedChange(f"pool {name}: made: {about}", f"removed with its data, {_KEPT}")
    if any(not pool.existing for pool in plan.pools):
        text = "configuration: mon mon_allow_pool_delete = true, while these are removed"
        yield PlannedChange(text, "the value before")


def _gateways(plan: Plan) -> Iterator[PlannedChange]:
    rgw = plan.rgw
    for name, value in rgw.options.items():
        yield PlannedChange(f"configuration: client {name} = {value}", f"the value before, {_KEPT}")
    if rgw.placement:
        where = ", ".join(f"{role} {key}" for role, key in rgw.placement.items())
        yield PlannedChange(f"zone: placement target {placement_id('<run id>')} on pools {where}", f"removed {_KEPT}")
    for number, (owner, placed) in enumerate(rgw.placements.items(), 1):
        where = f"{', '.join(f'{role} {key}' for role, key in placed.items())}, for {owner}"
        target = placement_id("<run id>", number)
        yield PlannedChange(f"zone: placement target {target} on pools {where}", f"removed {_KEPT}")
    if rgw.restarts:
        yield PlannedChange("gateways: restarted, one after the other", f"restarted again {_KEPT}")
    if rgw.make_user:
        condition = "" if rgw.placement else ", unless it is there"
        for user in (plan.s3.user, *plan.users):
            yield PlannedChange(f"RGW user {user}: made{condition}", f"removed with its buckets, {_KEPT}")


def rgw_words(rgw: Gateways) -> Iterator[str]:
    """Yield the settings of RGW: "placement data data, index index", "threads 512"."""
    if rgw.placement:
        yield "placement " + ", ".join(f"{role} {key}" for role, key in rgw.placement.items())
    for user, placed in rgw.placements.items():
        yield f"placement of {user} {', '.join(f'{role} {key}' for role, key in placed.items())}"
    yield from (f"{name} {value}" for name, value in rgw.options.items())
    if rgw.make_user:
        yield "its own user"


def pool_words(pool: RunPool) -> Iterator[str]:
    """Yield the properties of a pool: "EC 4+2", "pg_num 4096", "failure_domain host"."""
    if pool.ec:
        yield f"EC {pool.ec[0]}+{pool.ec[1]}"
    if pool.replicas:
        yield f"{pool.replicas} replica{'s' if pool.replicas > 1 else ''}"
    for name in ("pg_num", "target_ratio", "bulk", "rule", "root", "failure_domain", "device_class"):
        value = getattr(pool, name)
        if value not in (None, ""):
            yield f"{name} {str(value).lower() if isinstance(value, bool) else value}"
    yield from (f"{name} {value}" for name, value in (*pool.profile, *pool.options))
    if not pool.existing:
        yield f"application {pool.application}"


def _set(settings: Settings) -> Iterator[PlannedChange]:
    if settings.flags:
        flags = ", ".join(settings.flags)
        yield PlannedChange(f"flags of the OSD map: {flags}", f"those that were not set before are unset{_KILLED}")
    former = f"the value before{_KILLED}"
    for who, option, value in settings.config:
        yield PlannedChange(f"configuration: {who} {option} = {value}", former)
    if settings.balancer is not None:
        yield PlannedChange(f"balancer: {'on' if settings.balancer else 'off'}", former)
    if settings.autoscaler is not None:
        restored = f"the value before, and the pg_num before{_KILLED}" if settings.autoscaler else former
        yield PlannedChange(f"pg_autoscale_mode of every pool: {'on' if settings.autoscaler else 'off'}", restored)
    if settings.deep_scrub:
        yield PlannedChange("deep scrub of the log and index pools when all else is restored", "nothing to undo")
    if settings.recovery:
        options = "osd_max_backfills, osd_recovery_* and osd_mclock_*, as the scheduler of the OSDs needs"
        yield PlannedChange(f"{settings.recovery} recovery from the first fault on: {options}", former)


def unchanged(plans: Sequence[Plan]) -> str:
    """Return the things that none of the plans changes, in words: "pool, user, flag"."""
    flags = any(plan.settings.flags for plan in plans)
    options = any(plan.settings.config or plan.settings.recovery or plan.rgw.restarts for plan in plans)
    options |= any(not pool.existing for plan in plans for pool in plan.pools)
    switches = any(plan.settings.balancer is not None for plan in plans)
    autoscaler = any(plan.settings.autoscaler is not None for plan in plans)
    restarted = any(plan.rgw.restarts for plan in plans)
    injected = any(event.inject or event.upgrade for plan in plans for phase in plan.phases for event in phase.events)
    words = [
        "other pool" if any(plan.pools for plan in plans) else "pool" if not autoscaler else "",
        "other user" if any(plan.rgw.make_user for plan in plans) else "user",
        "other flag" if flags else "flag",
        "other setting" if options or switches else "setting",
        "other daemon or node" if injected else "other daemon" if restarted else "daemon",
    ]
    *first, last = filter(None, words)
    return f"{', '.join(first)} or {last}"


def _warnings_of_plan(plan: Plan, clients: Sequence[str]) -> Iterator[str]:
    for phase in plan.phases:
        measured = phase.goal.duration if phase.goal else phase.duration
        if phase.is_measurement and measured is not None and measured < _MINUTE:
            yield f"{phase.name} measures for {format_duration(measured)}: too short to be repeatable"
    for load_generator in generators_of(plan).values():
        yield from load_generator.warnings(plan)
    yield from _rates(plan)
    yield from _unread(plan)
    loose = [pool.key for pool in plan.pools if not (pool.existing or pool.pg_num)]
    if loose:
        why = "the autoscaler may split their PGs while phases run"
        if plan.settings.autoscaler is False:
            why = "autoscaler: off leaves them at the number of PGs that new pools have by default"
        yield f"pools {', '.join(loose)}: {why}: give pg_num"
    if plan.settings.autoscaler:
        yield "autoscaler: on: PGs of every pool may split while phases run; the undo of pg_num moves data again"
    drivers = Counter(driver.node for driver in plan.drivers)
    idle = [node for node in clients if not drivers[node]]
    if idle:
        yield f"{', '.join(idle)}: no driver runs on these nodes ({len(plan.drivers)} for {len(clients)} nodes)"
    elif len(set(drivers.values())) > 1:
        counts = ", ".join(f"{node} {number}" for node, number in drivers.items())
        yield f"the client nodes have unequal loads (drivers: {counts})"
    large = [b.key for b in plan.buckets if not b.existing and max(high for _, high, _ in b.sizes) > _LARGEST_PUT]
    if large and any(_puts_whole(phase) for phase in plan.phases):
        text = f"RGW takes a PUT of at most {about_size(_LARGEST_PUT)} (rgw_max_put_size): use multipart"
        yield f"{', '.join(large)}: {text}"
    yield from span_warnings(plan)
    yield from _short_ladders(plan)
    yield from _short_tokens(plan)
    if plan.keep_rows:
        yield "keep_rows: a row of every request stays on the nodes until a phase ends, and in the archive"
    if plan.keep_data:
        yield "keep_data: the buckets of every run stay, and fill the cluster run by run"


def _short_tokens(plan: Plan) -> Iterator[str]:
    """Yield a warning if the session token of the keys may expire before the run ends."""
    s3, seconds = plan.s3, forecast(plan).seconds
    if seconds <= _TOKEN_LASTS:
        return
    if s3.session_token_source or (s3.profile and has_token(s3.profile)):
        again = "no later token is read from the environment: use file: or profile:, and renew it there"
        if not (s3.session_token_source or "").startswith("env:"):
            again = "renew it at its source, which is read again before each phase with load"
        yield f"s3: the cycle takes {format_duration(seconds)}, and its session token may expire before: {again}"


def _puts_whole(phase: Phase) -> bool:
    puts = phase.kind == "fill" or (phase.kind == "hybrid" and any("PUT" in (p.mix or {}) for p in phase.apart))
    return puts and bool(generator(phase.engine).puts_whole)


def _short_ladders(plan: Plan) -> Iterator[str]:
    """Yield a warning for each percentile for which the first step of a ladder makes too few requests."""
    for phase in {p.ladder.name: p for p in plan.phases if p.ladder and p.ladder.unit == "rate"}.values():
        assert phase.ladder is not None
        for key in phase.ladder.objective:
            target = target_of(key)
            needs = ACCEPTABLE[target.metric].needs
            share = (phase.mix or {}).get(target.op, 0.0) if target.op != TOTAL else 100.0
            requests = phase.ladder.lowest * (phase.duration or 0.0) * share / 100
            if needs > 2 and requests < 1.5 * needs:
                text = f"{key} needs {needs} requests, and the first step makes about {requests:.0f}"
                yield f"{phase.ladder.name}: {text}: make steps longer (scale is {plan.scale:g}), or lowest higher"


def _unread(plan: Plan) -> Iterator[str]:
    """Yield a warning if reads may not find all objects, where they find objects by listing."""
    listed = [phase for phase in plan.phases if phase.kind in ("fill", "hybrid") and generator(phase.engine).listed]
    fills = [phase.goal for phase in listed if phase.goal]
    existing = any(bucket.existing for bucket in plan.buckets)
    reads = any(phase.kind == "hybrid" and generator(phase.engine).lists for phase in plan.phases)
    if not (fills or existing) or not reads:
        return
    filled = sum(goal.objects or 0 for goal in fills)
    lasts = sum(map(_seconds, listed))
    if filled > plan.read_objects:
        yield (
            f"a bucket gets {filled} objects and read_objects is {plan.read_objects}: "
            "get and stat will know only some of them"
        )
    elif existing or lasts > _LONG or any(not (goal.objects or goal.duration) for goal in fills):
        yield (
            f"get and stat know the first {plan.read_objects} objects of a bucket by name (read_objects), perhaps none "
            "of the fill: the report says which share"
        )


def _by_rate(phase: Phase) -> bool:
    return phase.ladder is not None and phase.ladder.unit == "rate"


def _rates(plan: Plan) -> Iterator[str]:
    """Yield the measurements whose rate is given."""
    loads = [part for phase in plan.phases if phase.kind == "hybrid" for part in phase.apart]
    given = [load.name for load in loads if load.rate or load.rate_share or _by_rate(load)]
    if given:
        yield f"{', '.join(given)}: the rate is given: compare latencies; throughput is never better nor equivalent"
