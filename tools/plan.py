"""Show what a YAML file will do, without running it."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple
from urllib.parse import urlsplit

from cbt_plugins.cbt import checkout
from cbt_plugins.cbt.unread_keys import unread_keys
from cbt_plugins.cluster.fan_out import FILES_PER_CONNECTION, allow_files
from cbt_plugins.config.bounds import total_of
from cbt_plugins.config.errors import ConfigError
from cbt_plugins.config.events import is_fault_file, load_fault_file
from cbt_plugins.config.fault_spans import estimated_effects, event_text, fault_spans, span_text
from cbt_plugins.config.file_check import Config, PlannedRun, load
from cbt_plugins.config.generator_classes import generator
from cbt_plugins.config.plan_preview import (
    changes,
    data_text,
    forecast,
    pool_words,
    rgw_words,
    unchanged,
    until_text,
    warnings,
)
from cbt_plugins.config.units import about_rate, format_duration, written_ranges
from cbt_plugins.config.yaml_source import YamlSource, read
from cbt_plugins.exit_status import FAILED, OK, USAGE
from cbt_plugins.formatting import about_size, percent, several, size_range
from cbt_plugins.formatting.formats.terminal import table_lines
from cbt_plugins.inventory import HostTable, head_of, nodes_of
from cbt_plugins.models.ladder_search import load_text, objective_text
from cbt_plugins.plan import Bucket, Keys, Phase, Plan, Settings

from .command import CommandError, explain, say, warn
from .format_option import JSON, TEXT, add_formats, add_renamed, print_results, table_width
from .plan_live import LiveAnswers, look

#: up to this number all drivers, and all buckets, are shown
_MANY = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    statuses = {
        FAILED: "a node, an endpoint or a key is not ready, or a fault would be refused",
        USAGE: "an error in the file, or --live cannot ask the cluster",
    }
    explain(parser, ("cbt-tools plan my.yaml", "cbt-tools plan my.yaml --live"), statuses)
    parser.add_argument("file", help="YAML file of CBT, or a fault file")
    parser.add_argument(
        "--live",
        action="store_true",
        help="also ask nodes, endpoints and the cluster, and change nothing: show missing replies, wrong keys, the "
        "blast radius of each fault, and the commands of faults and settings (not of pools, placement, users and "
        "gateways)",
    )
    add_formats(parser, TEXT, JSON)
    add_renamed(parser, {"--json": "--format json"})


def run(args: argparse.Namespace) -> int:
    """Print the plan, and the errors of the file on stderr; return the exit status."""
    try:
        source = read(Path(args.file))
        if is_fault_file(source):
            return _fault_file(source, args)
        config = load(source)
        live = look(config, source) if args.live and config.runs else None
    except ConfigError as e:  # each line begins with file:line:column
        raise CommandError(f"{_count(len(e.errors), 'error')}; nothing was run\n{e}") from None
    unread = _unread_by_cbt(source)
    if not config.runs:
        for text in unread:
            warn(text)
        text = "benchmarks: this file has no benchmark of cbt-plugins"
        raise CommandError(f"{args.file}: {text}{_faults_beside(config)}")
    lines = [*_lines(config, live, unread, table_width(args)), *(["", *live.lines] if live else [])]
    document = {**_document(config), "unread_by_cbt": unread, **({"live": asdict(live)} if live else {})}
    print_results(args, {TEXT: lambda: "\n".join(lines) + "\n", JSON: lambda: document})
    errors = (*live.errors, *live.refused) if live else ()
    for text in errors:
        say("Error", text, FAILED)
    return FAILED if errors else OK


def _faults_beside(config: Config) -> str:
    """Return the command that shows the faults of the profile `faults`, as the end of an error; "" without it."""
    profiles = config.data.get("monitoring_profiles")
    profile = profiles.get("faults") if isinstance(profiles, dict) else None
    if not isinstance(profile, dict) or "file" not in profile:
        return ""
    command = f"cbt-tools inject --dry-run --cluster {config.file} --archive FOLDER {profile['file']}"
    return f"; `{command}` shows the faults of its profile `faults`"


def _unread_by_cbt(source: YamlSource) -> List[str]:
    """Return the unknown keys; in CBT's own sections only if there is a checkout of CBT."""
    try:
        tree = checkout.find()
    except ValueError:  # CBT_HOME is not a checkout, which does not matter here
        tree = None
    return list(map(str, unread_keys(source, tree)))


def _fault_file(source: YamlSource, args: argparse.Namespace) -> int:
    """Print the plan of a fault file, which does not name its cluster."""
    if args.live:
        raise CommandError(
            f"{args.file}: a fault file does not name its cluster: remove --live, or use `cbt-tools "
            f"inject --dry-run`"
        )
    events, settings = load_fault_file(source)
    lines = [
        f"{args.file}: faults beside a benchmark; times count from the start of the benchmark",
        *([f"  settings {_settings(settings)}"] if settings != Settings() else []),
        *(f"  {event_text(event)}" for event in events),
        "at the end of the benchmark all faults are undone, and settings are restored",
    ]
    document = {"version": 1, "file": args.file, "events": [*map(asdict, events)], "settings": asdict(settings)}
    print_results(args, {TEXT: lambda: "\n".join(lines) + "\n", JSON: lambda: document})
    return OK


def _document(config: Config) -> Dict[str, Any]:
    clients = nodes_of(config.cluster, "clients")
    return {
        "version": 1,
        "file": config.file,
        "runs": [
            {
                "benchmark": run.benchmark,
                "iteration": run.iteration,
                "varied": dict(run.varied),
                "plan": asdict(run.plan),
                "forecast": asdict(forecast(run.plan)),
                "changes": [asdict(change) for change in changes(run.plan, config.cluster)],
                "warnings": warnings(run.plan, clients),
            }
            for run in config.runs
        ],
        "monitors": config.monitors,
        "other_benchmarks": config.others,
    }


def _lines(config: Config, live: Optional[LiveAnswers], unread: Sequence[str], columns: Optional[int]) -> Iterator[str]:
    cluster, runs = config.cluster, config.runs
    iterations = cluster["iterations"]
    yield (
        f"{config.file}: {_count(len(runs), 'run')} ({_count(iterations, 'iteration')} of "
        f"{_count(len(runs) // iterations, 'configuration')}), {_total(runs, iterations)}"
    )
    if config.campaign:
        arms = ", ".join(config.campaign.arms)
        yield f"campaign with arms {arms}: this plan is without the keys of arms; see `cbt-tools campaign plan`"
    if config.others:
        yield f"not in this plan, but also run: CBT's own benchmarks: {', '.join(config.others)}"
    yield ""
    yield f"head: {head_of(cluster)}, login {cluster['user']}; clients: {', '.join(nodes_of(cluster, 'clients'))}"
    yield (
        f"this command has asked the cluster and changed nothing: {live.headline}; details at the end"
        if live
        else "this command has read files only; no node has been contacted"
    )
    configurations = len(runs) // iterations
    first: Dict[str, Tuple[int, Dict[str, str]]] = {}
    for number, run in enumerate(runs[:configurations], 1):
        varied = "".join(f", {text}" for text in _varied(run, runs[:configurations]))
        parts = {name: "\n".join(lines) for name, lines in _parts(run.plan, cluster, columns)}
        model, model_parts = first.setdefault(run.benchmark, (number, {}))
        yield ""
        yield f"Run {number} of {len(runs)}: {run.benchmark}{varied}" + (
            f"; like run {model}, except:" if model_parts else ""
        )
        yield from (text or f"  {name:8} none" for name, text in parts.items() if model_parts.get(name, "") != text)
        model_parts.update({name: text for name, text in parts.items() if name not in model_parts})
    if iterations > 1:
        yield ""
        yield f"Runs {configurations + 1} to {len(runs)}: the same runs again, {iterations} iterations in total"
    yield ""
    yield "Changes, and how each is undone"
    all_changes = list(
        dict.fromkeys((change.what, change.undo) for run in runs for change in changes(run.plan, cluster))
    )
    buckets = [change for change in all_changes if change[0].startswith("bucket ")]
    for change in all_changes:
        if change in buckets[_MANY:]:
            if change is buckets[-1]:
                yield f"  {len(buckets) - _MANY} more buckets in the same way"
            continue
        yield f"  {change[0]}"
        yield f"    undo: {change[1]}"
    by_file = [name for name in config.monitors if name in (config.data.get("monitoring_profiles") or ())]
    by_cbt = [f"{name} (CBT always runs it)" for name in config.monitors if name not in by_file]
    yield f"  monitors on the nodes from before the first phase to after the last: {', '.join([*by_file, *by_cbt])}"
    yield "    undo: stopped at the end of each run"
    yield f"  nothing else is changed: no {unchanged([run.plan for run in runs])}"
    warned = dict.fromkeys(text for run in runs for text in warnings(run.plan, nodes_of(cluster, "clients")))
    warned.update(dict.fromkeys((*_gateways_without_role(config), *_too_few_files(config), *unread)))
    if warned:
        yield ""
        yield "Warnings"
        yield from (f"  {text}" for text in warned)


def _too_few_files(config: Config) -> Iterator[str]:
    """Yield a warning if this machine allows fewer open files than the connections to all nodes need."""
    nodes, allowed = len(nodes_of(config.cluster)), allow_files()
    if nodes * FILES_PER_CONNECTION > allowed:
        files = nodes * FILES_PER_CONNECTION
        needed = f"connections to {nodes} nodes need {files:,} open files here, but the limit is {allowed:,}"
        yield f"{needed}: raise it (`ulimit -Hn`, or LimitNOFILE= of the service)"


def _gateways_without_role(config: Config) -> Iterator[str]:
    """Yield a warning if URLs are on nodes of the cluster, but the file names no gateways."""
    if config.cluster.get("rgws"):
        return
    table = HostTable(nodes_of(config.cluster))
    hosts = dict.fromkeys(urlsplit(url).hostname or "" for run in config.runs for url in run.plan.s3.urls)
    gateways = dict.fromkeys(node for node in map(table.find, hosts) if node)
    if gateways:
        role = f"cluster: {{rgws: [{', '.join(gateways)}]}}"
        yield f"the URLs of s3 are on nodes of the cluster: name these nodes as gateways: {role}"


def _parts(plan: Plan, cluster: Mapping[str, Any], columns: Optional[int]) -> Iterator[Tuple[str, List[str]]]:
    source = f"profile {plan.s3.profile}" if plan.s3.profile else plan.s3.access_key_source
    keys = f"user {', '.join((plan.s3.user, *plan.users))}" if plan.s3.user else f"keys from {source}"
    yield "S3", [f"  S3       {', '.join(plan.s3.urls)} ({keys}; {plan.s3.host_select})"]
    buckets = {bucket.key: bucket for bucket in plan.buckets}
    rows: List[Sequence[str]] = [("  drivers", "node", "bucket", "object size", "workers")]
    shown = plan.drivers if len(plan.drivers) <= _MANY else (*plan.drivers[: _MANY - 1], plan.drivers[-1])
    for driver in shown:
        if driver is shown[-1] and len(shown) < len(plan.drivers):
            rows.append((f"    ... {len(plan.drivers) - len(shown)} more", "", "", "", ""))
        bucket = buckets[driver.bucket]
        sizes = "; ".join(dict.fromkeys(_sizes(buckets[key]) for key in driver.buckets))
        name = _names(driver.buckets) + (" (existing)" if bucket.existing else "")
        rows.append((f"    {driver.id}", driver.node, name, sizes, str(driver.workers)))
    yield "drivers", list(table_lines(rows, len(rows[0]), columns))
    rows = [("  phases", "until", "role", "what")]
    for index, phase in enumerate(plan.phases, 1):
        rows.append((f"    {index} {phase.name}", until_text(plan, phase), phase.role, _operation_text(phase)))
        rows += [("", "", "", f"  {text}") for text in (*_how(phase), *map(event_text, phase.events))]
    yield "phases", list(table_lines(rows, len(rows[0]), columns))
    faults = [*map(span_text, fault_spans(plan)), *estimated_effects(plan, cluster)]
    yield "faults", [f"  {'' if i else 'faults':8} {line}" for i, line in enumerate(faults)]
    pools = [f"{pool.key}: {', '.join(pool_words(pool))}" for pool in plan.pools]
    yield "pools", [f"  {'' if i else 'pools':8} {line}" for i, line in enumerate(pools)]
    words = "; ".join(rgw_words(plan.rgw))
    yield "rgw", [f"  rgw      {words}"] if words else []
    yield "settings", [f"  settings {_settings(plan.settings)}"] if plan.settings != Settings() else []
    prediction = forecast(plan)
    yield "time", [f"  time     {_time(prediction.seconds, prediction.unknown_time)}"]
    yield "data", [f"  {'' if i else 'data':8} {line}" for i, line in enumerate(data_text(plan))]
    guard = f"each phase stops when {percent(plan.full_guard, 'g')} of the raw capacity is used"
    yield "guard", [f"  guard    {guard if plan.admin else 'none: without Ceph commands nobody sees how full it is'}"]


def _sizes(bucket: Bucket) -> str:
    """Return the sizes of a bucket's objects: "4 KiB", or "4 KiB 50 %, 1 MiB 50 %"."""
    return ", ".join(
        size_range(*ends) + (f" {percent(share, 'g')}" if len(bucket.sizes) > 1 else "")
        for ends, (_, _, share) in zip(written_ranges(bucket.sizes), bucket.sizes)
    )


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _MANY else f"{names[0]}, {names[1]} ... {names[-1]} ({len(names)})"


def _operation_text(phase: Phase) -> str:
    mix = ", ".join(f"{op} {share:g}" for op, share in (phase.mix or {}).items())
    own_text = generator(phase.engine).own_phase_text(phase)
    if own_text:
        return own_text + (f": {mix}" if mix else "")
    by = f" by {phase.engine}" if phase.engine != Phase.engine and phase.kind != "wait" else ""
    if phase.kind == "hybrid" and not generator(phase.engine).ops:
        return f"hybrid{by}, with its own operations instead of a mix"
    if phase.kind == "hybrid":
        counts = ", ".join(f"{op} {number}" for op, number in (phase.workers or {}).items())
        if phase.works:
            return f"hybrid{by}: works {', '.join(work.name for work in phase.works)}"
        return f"hybrid{by}: {mix}" + (f" (workers: {counts})" if counts else "")
    return {"fill": "PUT", "verify": "GET and compare", "delete": "DELETE", "wait": "wait"}[phase.kind] + by


def _how(phase: Phase) -> Iterator[str]:
    """Yield the options of cbt-load beyond the mix."""
    for work, part in zip(phase.works, phase.apart):
        mix = ", ".join(f"{op} {share:g}" for op, share in work.mix.items())
        yield "; ".join((f"{work.name}: {mix}", f"{several(work.workers, 'worker')} per driver", *_how(part)))
    arrivals = {"poisson": "Poisson arrivals", "even": "evenly"}[phase.arrivals]
    if phase.rate is not None:
        yield f"open loop: {about_rate(phase.rate)} of all drivers together, {arrivals}"
    if phase.rate_share is not None:
        yield f"open loop: {percent(phase.rate_share, 'g')} of the rate of the last closed loop, {arrivals}"
    if phase.ladder is not None:
        ladder, arrives = phase.ladder, f", {arrivals}" if phase.ladder.unit == "rate" else ""
        lowest, highest = load_text(ladder, ladder.lowest), load_text(ladder, ladder.highest)
        reach = f", from {lowest} to {highest}{arrives}: {objective_text(ladder)}"
        yield f"next load of {ladder.name}{reach if phase.name.endswith('-step-1') else ''}"
    if phase.keys:
        yield "keys: " + ", ".join(f"{op} {_keys(keys)}" for op, keys in phase.keys.items())
    if phase.roles:
        yield "buckets: " + "; ".join(f"{op} {', '.join(names)}" for op, names in phase.roles.items())


def _settings(settings: Settings) -> str:
    switches = {"balancer": settings.balancer, "autoscaler": settings.autoscaler}
    parts = [
        *([f"flags {', '.join(settings.flags)}"] if settings.flags else []),
        *(f"{who} {option}={value}" for who, option, value in settings.config),
        *(f"{name} {'on' if value else 'off'}" for name, value in switches.items() if value is not None),
        *([f"recovery {settings.recovery} from the first fault"] if settings.recovery else []),
    ]
    return "; ".join(parts)


def _keys(keys: Keys) -> str:
    return keys.select + (" also absent objects" if keys.absent else "")


def _total(runs: Sequence[PlannedRun], iterations: int) -> str:
    total = total_of([run.plan for run in runs[: len(runs) // iterations]], iterations)
    written = f", {about_size(total.bytes)} by fills" if total.bytes else ""
    return f"{_count(total.phases, 'phase')}{written}, {_time(total.seconds, total.unknown_time)}"


def _time(seconds: float, unknown: Any) -> str:
    parts: List[str] = [format_duration(seconds)] if seconds else []
    if unknown:
        parts.append(f"unknown: {'; '.join(unknown)}")
    return " + ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _varied(run: PlannedRun, runs: Sequence[PlannedRun]) -> Iterator[str]:
    """Yield the swept keys of a run; with the number of the value where the beginnings of long values are the same."""
    for key, value in run.varied.items():
        texts = dict.fromkeys(_text(peer.varied[key]) for peer in runs if peer.benchmark == run.benchmark)
        ambiguous = [text for text in texts if _short(text) == _short(_text(value))]
        number = f" (value {[*texts].index(_text(value)) + 1} of {len(texts)})" if len(ambiguous) > 1 else ""
        yield f"{key}={_short(_text(value))}{number}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
