"""A plan on the present cluster: whether safety rules refuse a fault; the commands of faults and settings."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass, replace
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple, Union

from cbt_plugins.cluster.ceph import Ceph, CephError, Status
from cbt_plugins.cluster.remote import Remote
from cbt_plugins.cluster.s3_keys import S3Keys
from cbt_plugins.cluster_conditions import found_in
from cbt_plugins.config import plugins
from cbt_plugins.config.errors import ConfigError
from cbt_plugins.config.fault_spans import fault_spans
from cbt_plugins.config.file_check import Config
from cbt_plugins.config.generator_classes import generators_of
from cbt_plugins.config.yaml_source import YamlSource
from cbt_plugins.faults import FaultError, preview
from cbt_plugins.faults.cluster_access import limits_of
from cbt_plugins.faults.cluster_facts import ask
from cbt_plugins.faults.cluster_lock import QUESTION, claims_in, explain
from cbt_plugins.faults.cluster_settings import SettingsMaker
from cbt_plugins.faults.node_shell import programs
from cbt_plugins.formatting import percent, several
from cbt_plugins.inventory import nodes_of
from cbt_plugins.plan import Plan, Settings
from cbt_plugins.run.cluster_fitness import accepted_of, condition_errors
from cbt_plugins.run.endpoints import authority_of, errors_of_endpoints
from cbt_plugins.run.fill_goal import reached_before, room_warnings
from cbt_plugins.run.s3_key_sources import keys_of_users, owners_of, s3_keys, token_errors

from .command import CommandError

#: seconds for a question that a node answers at once
_QUICK = 10.0
#: nodes that a warning names
_SHOWN = 5
#: text and exit status of `ceph` for an unknown option
_UNKNOWN, _UNKNOWN_STATUS = "ENOENT", 2


@dataclass(frozen=True)
class LiveAnswers:
    """Answers for people, and the reasons why a run would stop early."""

    lines: Tuple[str, ...]
    refused: Tuple[str, ...]
    #: errors of nodes, endpoints and keys, and conditions of the cluster
    errors: Tuple[str, ...] = ()
    #: pools that the run will make: no fault was judged by their placement
    new_pools: Tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        """A summary in a few words."""
        reasons = several(len(self.refused), "reason")
        refused = f"{reasons} to refuse it" if self.refused else "no fault would be refused"
        if self.new_pools:
            pools = f"pool{'s' if len(self.new_pools) > 1 else ''} {', '.join(self.new_pools)}"
            refused += f" because of the present pools; not judged: {pools}, which the run makes"
        errors = several(len(self.errors), "error")
        return f"{errors} of nodes, endpoints, keys or the cluster; {refused}" if self.errors else refused


def look(config: Config, source: YamlSource) -> LiveAnswers:
    """Ask nodes, endpoints and the cluster, about each plan that differs in faults or settings.

    Changes nothing. Raises CommandError when the cluster does not reply, and ConfigError for an option that Ceph does
    not know.
    """
    distinct: Dict[str, Tuple[int, Plan]] = {}
    for number, run in enumerate(config.runs, 1):
        distinct.setdefault(repr((run.plan.settings, run.plan.pools, fault_spans(run.plan))), (number, run.plan))
    ceph = Ceph(Remote.of_cluster(config.cluster, config.common), config.cluster)
    errors = _errors_of_nodes(ceph, config)
    is_head_silent = any(text.startswith(f"{ceph.head}: ") for text in errors)
    errors += () if is_head_silent else _errors_of_cluster(ceph, config)
    live_lines = [f"  not ready: {text}" for text in errors]
    has_no_faults = not any(fault_spans(plan) or plan.settings != Settings() for _, plan in distinct.values())
    if has_no_faults and not errors:
        ready = "the cluster, and every node, endpoint and key, is ready for a run"
        live_lines.append(f"  {ready}; the file has no faults and no settings")
    checks = (_warnings_of_fills, _warnings_of_monitors) if not errors else ()
    live_lines += [f"  warning: {text}" for check in checks for text in check(ceph, config)]
    if has_no_faults or is_head_silent:  # only the cluster can judge faults
        return LiveAnswers((_title(ceph), *live_lines), (), errors)
    _refuse_unknown(ceph, config, source)
    lines: List[str] = []
    refused: List[str] = []
    for number, plan in distinct.values():
        lines += [f"  Run {number}"] if len(distinct) > 1 else []
        try:
            lines += _settings(ceph, plan.settings)
            lines += _faults(ceph, config.cluster, plan, refused)
        except FaultError as error:
            refused.append(str(error))
    with_faults = [plan for _, plan in distinct.values() if fault_spans(plan)]
    new_pools = dict.fromkeys(pool.key for plan in with_faults for pool in plan.pools if not pool.existing)
    live = LiveAnswers((), tuple(dict.fromkeys(refused)), errors, tuple(new_pools))
    reasons = [*live_lines, *(f"  refused: {text}" for text in live.refused)]
    return replace(live, lines=(f"{_title(ceph)}: {live.headline}", *reasons, *with_programs_once(lines)))


def _errors_of_nodes(ceph: Ceph, config: Config) -> Tuple[str, ...]:
    """Return the errors of nodes, endpoints and keys."""
    remote, plans = ceph.remote, [run.plan for run in config.runs]
    clients = nodes_of(config.cluster, "clients")
    nodes = nodes_of(config.cluster) if any(plan.admin for plan in plans) else clients
    answers = remote.run(nodes, "true", timeout=_QUICK, check=False)
    silent = {node: answer for node, answer in answers.items() if answer.status}
    errors = [f"{node}: {' '.join(answer.stderr.split()) or 'no reply'}" for node, answer in silent.items()]
    reached = [node for node in clients if node not in silent]
    for plan in {repr((p.s3, p.users, p.rgw.make_user, sorted(generators_of(p)))): p for p in plans}.values():
        errors += _errors_of_s3(ceph, plan, reached, ceph.head not in silent)
    return tuple(dict.fromkeys(errors))


def _errors_of_s3(ceph: Ceph, plan: Plan, clients: Sequence[str], head: bool) -> List[str]:
    """Return the errors of a plan's endpoints and keys, as seen from these clients."""
    errors: List[str] = []
    owned: Mapping[str, S3Keys] = {}
    authority = b""
    try:
        authority = authority_of(plan.s3)
        # a run makes the user with its keys; without the head, keys of an existing user are unknown
        if not plan.rgw.make_user and (head or not (plan.s3.user or plan.users)):
            keys = s3_keys(plan.s3, ceph)
            owned = owners_of(plan, keys, keys_of_users(plan, ceph))
            errors += token_errors(plan, keys)
    except CephError as error:
        errors.append(str(error))
    return [*errors, *(errors_of_endpoints(ceph.remote, clients, plan.s3, authority, owned) if clients else ())]


def _errors_of_cluster(ceph: Ceph, config: Config) -> Tuple[str, ...]:
    """Return errors: runs that hold the cluster, and conditions under which a run of the file would not begin.

    Raises CommandError when the cluster does not reply.
    """
    settings = [run.plan.settings for run in config.runs if run.plan.admin]
    if not settings:
        return ()
    try:
        status, df, claims = ceph.json_all(("status", "df", QUESTION), _QUICK)
        conditions = found_in(Status.parse(status, df).sample(time.time()))
    except (CephError, KeyError) as error:
        raise _no_reply(config, error) from None
    holders = [explain(holder) for holder in claims_in(claims).values() if holder]
    # conditions that all runs of the file accept
    accepted = set.intersection(*map(accepted_of, settings))
    return (*holders, *condition_errors(conditions, accepted), *_errors_of_fills(ceph, config))


def _errors_of_fills(ceph: Ceph, config: Config) -> List[str]:
    """Return an error for each fill by `raw` whose share is already used."""
    plans = [run.plan for run in config.runs if run.plan.admin]
    phases = {repr((phase.name, phase.goal)): phase for plan in plans for phase in plan.phases}
    try:
        return reached_before(ceph, list(phases.values()))
    except CephError as error:
        return [str(error)]


def _warnings_of_fills(ceph: Ceph, config: Config) -> Sequence[str]:
    """Return a warning for each fill that even empty data pools could not hold."""
    return list(dict.fromkeys(room_warnings(ceph, [run.plan for run in config.runs if run.plan.admin])))


def _warnings_of_monitors(ceph: Ceph, config: Config) -> Sequence[str]:
    """Return a warning for each program of a monitor that some of its nodes do not have."""
    warnings = []
    for name, profile in (config.data.get("monitoring_profiles") or {}).items():
        kind = plugins.load(plugins.MONITORS, name) if name in plugins.references(plugins.MONITORS) else None
        for program in getattr(kind, "PROGRAMS", ()):
            nodes = kind(profile, config.cluster, config.common).nodes if kind else ()
            answers = ceph.remote.run(nodes, f"command -v {shlex.quote(program)}", timeout=_QUICK, check=False)
            without = [node for node, answer in answers.items() if answer.status]
            if without:
                text = f"monitoring_profiles: {name}: {program} is not installed on"
                warnings.append(f"{text} {', '.join(without[:_SHOWN])}{' ...' if len(without) > _SHOWN else ''}")
    return warnings


def _title(ceph: Ceph) -> str:
    return f"The cluster now, asked on {ceph.head}"


def _refuse_unknown(ceph: Ceph, config: Config, source: YamlSource) -> None:
    """Raise ConfigError for options that Ceph does not know, CommandError when the cluster does not reply."""
    plan = config.runs[0].plan
    questions = {option: f"config help {option}" for run in config.runs for _, option, _ in run.plan.settings.config}
    # options of mgr modules are not in its help
    questions = {option: question for option, question in questions.items() if "/" not in option}
    try:
        facts = ask(ceph, ("mgr stat",), limits_of(plan.settings).quick + len(questions), list(questions.values()))
    except FaultError as error:
        raise _no_reply(config, error) from None
    replies = {option: facts.answers[question] for option, question in questions.items()}
    unknown = {o for o, reply in replies.items() if reply.status == _UNKNOWN_STATUS and _UNKNOWN in reply.text}
    errors = [
        source.error_at(_place(source, run.benchmark, who, option), "the cluster knows no such option", of_key=True)
        for run in config.runs
        for who, option, _ in run.plan.settings.config
        if option in unknown
    ]
    if errors:
        raise ConfigError(errors)


def _place(source: YamlSource, benchmark: str, who: str, option: str) -> Tuple[Union[str, int], ...]:
    """Return the position of an option in the file; of the section if the file does not set it."""
    section: Any = source.data["benchmarks"][benchmark].get("settings") or {}
    for index, settings in enumerate(section) if isinstance(section, list) else [(None, section)]:
        if option in settings.get("config", {}).get(who, {}):
            element = () if index is None else (index,)
            return ("benchmarks", benchmark, "settings", *element, "config", who, option)
    return ("benchmarks", benchmark)


def _no_reply(config: Config, error: Exception) -> CommandError:
    return CommandError(f"{config.file}: --live cannot ask the cluster: {error}{_hint(config)}")


def _hint(config: Config) -> str:
    """Return advice for a file with nodes of a lab, whose names only nodes of the lab can resolve."""
    from .lab.topology import HEAD, Topology

    if not set(nodes_of(config.cluster)) <= set(Topology().nodes):
        return ""
    return f"; in a lab: cbt-tools lab exec {HEAD} -- cbt-tools plan --live {shlex.quote(config.file)}"


def with_programs_once(lines: Sequence[str]) -> Iterator[str]:
    """Yield commands with programs shortened to names, and at the end the program of each name."""
    # the longest first: a program can hold another one
    texts = dict(sorted(programs().items(), key=lambda program: -len(program[1])))
    used: Dict[str, str] = {}
    for line in lines:
        for name, text in texts.items():
            for form in (f"\n{text}", f"\n{shlex.quote(text)[1:-1]}"):
                if form in line:
                    used[name] = text
                    line = line.replace(form, f" ({name})")
        yield line.replace("\n", "\n" + " " * 14)
    for name, text in used.items():
        yield f"  ({name}) stands for:"
        yield "    " + text.replace("\n", "\n    ")


def _settings(ceph: Ceph, settings: Settings) -> Iterator[str]:
    maker = SettingsMaker(ceph, limits_of(settings))
    for step in (*maker.steps(settings), *maker.recovery(settings.recovery)):
        yield f"  settings: {step.what}"
        yield from (f"    set     {command}" for command in step.inject)
        yield from (f"    undo    {command}" for command in step.undo)


def _faults(ceph: Ceph, cluster: Mapping[str, Any], plan: Plan, refused: List[str]) -> Iterator[str]:
    """Yield the judgement of each fault beside the faults in force at its time, as if nothing recovered."""
    planned = fault_spans(plan)
    if not planned:
        return
    questions = [(span.fault, [fault.label for fault in span.beside]) for span in planned]
    previews = preview(ceph, cluster, questions, limits_of(plan.settings), plan.settings.flags)
    for (fault, result), (_, beside), span in zip(previews, questions, planned):
        if isinstance(result, FaultError):
            text = str(result)
            text = text if text.startswith(f"{fault.label}:") else f"{fault.label}: {text}"
            if span.optional:
                yield f"  skipped: {text}"
            else:
                refused.append(text)
            continue
        first, *others = result.lines()
        yield f"  {first}" + (f", while {', '.join(beside)} is in force" if beside else "")
        yield f"    inactive PGs: {percent(result.assessment.numbers.get('inactive_share', 0.0))} of all PGs"
        yield from (f"  {line}" for line in others)
        reasons = [f"{fault.label}: refused by rule {finding}" for finding in result.refused]
        yield from (f"    would be skipped: {text}" for text in reasons if span.optional)
        refused += [] if span.optional else reasons
