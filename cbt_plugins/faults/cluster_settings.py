"""Settings of a run: flags, configuration, balancer, autoscaler and fast recovery, set and undone as steps."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster_conditions import PG_NUM
from cbt_plugins.faults.cluster_facts import Facts, ask
from cbt_plugins.faults.scene import ClusterLimits
from cbt_plugins.faults.settings_in_force import needs_restart, not_in_force
from cbt_plugins.faults.step import Check, Command, FaultError, Place, Step, find
from cbt_plugins.plan import OSD_FLAGS, Settings

#: flag -> its name in `osd dump`, if they differ
_SHOWN = {"pause": ("pauserd", "pausewr")}

_QUESTIONS = ("osd dump", "config dump")
#: all options that the monitors know, by name
_OPTIONS = "config ls"
#: this question needs a manager, and a fault may have taken it
_OF_BALANCER = "balancer status"

#: recovery as fast as the disks allow, for the wpq scheduler: (option, value)
FAST_WPQ = (
    ("osd_max_backfills", "10"),
    ("osd_recovery_max_active", "15"),
)
#: prefix of all options that delay recovery. All are set to 0, also the options of each disk class, because
#: osd_recovery_sleep = 0 means "use these". 20.2 has four more: osd_recovery_sleep_degraded_hdd is 0.1 s
SLEEPS = "osd_recovery_sleep"
#: fast recovery for mClock, which sets the limits itself: without the override Ceph resets them; its sleeps are
#: always 0. The override is set first and undone last.
FAST_MCLOCK = (
    ("osd_mclock_override_recovery_settings", "true"),
    ("osd_mclock_profile", "high_recovery_ops"),
    ("osd_max_backfills", "10"),
    ("osd_recovery_max_active", "15"),
)


def everywhere(
    dump: Sequence[Mapping[str, Any]], section: str, wanted: Iterable[Tuple[str, str]]
) -> List[Tuple[str, str, str]]:
    """Return (who, option, value) for a section, and for each narrower section whose own value would win."""
    options = dict(wanted)
    whos = {(section, "")}
    for row in dump:
        if row["name"] in options and row["section"].split(".")[0] == section:
            whos.add((row["section"], row.get("mask", "")))
    return [(who + (f"/{mask}" if mask else ""), n, v) for n, v in options.items() for who, mask in sorted(whos)]


def _of_pool(name: str, field: str) -> Place:
    """Return the place of a field of a pool in the reply to `osd dump`."""
    return ("pools", {"pool_name": name}, field)


class SettingsMaker:
    """Makes the steps of settings; changes nothing."""

    def __init__(self, ceph: Ceph, limits: ClusterLimits) -> None:
        self._ceph, self._limits = ceph, limits

    def steps(self, settings: Settings) -> List[Step]:
        """Return the steps for the settings that are not in force yet. Raises FaultError."""
        unknown = [f for f in settings.flags if f not in OSD_FLAGS]
        if unknown:
            raise FaultError(f"unknown flag: {', '.join(unknown)}; known flags: {', '.join(OSD_FLAGS)}")
        if not (settings.flags or settings.config) and settings.balancer is None and settings.autoscaler is None:
            return []
        late = needs_restart(self._ceph, settings.config, self._limits.quick)
        if late:
            raise FaultError("settings: " + "; ".join(late))
        also = () if settings.balancer is None else (_OF_BALANCER,)
        facts = ask(self._ceph, (*_QUESTIONS, *also), self._limits.quick)
        steps = [
            self._flags(facts, settings.flags),
            self.configuration(facts.answers["config dump"], settings.config, "set configuration"),
            self._balancer(facts, settings.balancer),
            self._autoscaler(facts, settings.autoscaler),
        ]
        return [step for step in steps if step]

    def recovery(self, how: str) -> List[Step]:
        """Return the steps of `Settings.recovery`, for the scheduler that the OSDs run. Raises FaultError."""
        if not how:
            return []
        if how != "aggressive":
            raise FaultError(f"recovery: {how}: the value must be aggressive, or remove the key")
        facts = ask(self._ceph, (*_QUESTIONS, _OPTIONS), self._limits.quick)
        up = [o for o, entry in facts.osds.items() if entry["up"]]
        if not up:
            raise FaultError("no OSD is up: the scheduler of the OSDs is unknown")
        queue = self._show(up[0], "osd_op_queue")
        sleeps = ((name, "0") for name in sorted(facts.answers[_OPTIONS]) if name.startswith(SLEEPS))
        wanted = FAST_MCLOCK if queue == "mclock_scheduler" else (*FAST_WPQ, *sleeps)
        triples = everywhere(facts.answers["config dump"], "osd", wanted)
        step = self.configuration(facts.answers["config dump"], triples, f"set fast recovery ({queue})")
        return [step] if step else []

    def not_in_force(self, steps: Sequence[Step]) -> List[str]:
        """Return errors for the daemons that do not run with the configuration set by steps. Raises FaultError."""
        wanted = [
            ("/".join(part for part in (place[0]["section"], place[0]["mask"]) if part), place[0]["name"], want["like"])
            for step in steps
            for check in step.took
            for place, want in check.want
            if isinstance(place[0], Mapping) and "section" in place[0]
        ]
        return [str(wrong) for wrong in not_in_force(self._ceph, wanted, self._limits.quick)]

    def _show(self, osd: int, option: str) -> str:
        command = f"{self._ceph.command} config show osd.{osd} {option}"
        answer = self._ceph.run(command, self._limits.quick)
        if answer.status or not answer.stdout.strip():
            raise FaultError(f"ceph config show osd.{osd} {option}: {answer.stderr.strip()[-200:] or 'no reply'}")
        return answer.stdout.strip()

    def _flags(self, facts: Facts, wanted: Sequence[str]) -> Optional[Step]:
        absent = [f for f in wanted if not set(_SHOWN.get(f, (f,))) <= set(facts.flags)]
        if not absent:
            return None
        shown = [s for f in absent for s in _SHOWN.get(f, (f,))]
        places = [("flags_set", {"=": s}) for s in shown]
        return self._step(
            f"set {', '.join(absent)}",
            [f"osd set {f}" for f in absent],
            [f"osd unset {f}" for f in reversed(absent)],
            self._says("osd dump", [(p, True) for p in places]),
            self._says("osd dump", [(p, None) for p in places]),
            {"flags": list(facts.flags)},
        )

    def configuration(
        self, dump: Sequence[Mapping[str, Any]], wanted: Sequence[Tuple[str, str, str]], summary: str
    ) -> Optional[Step]:
        """Return the step that sets options, (who, option, value), by the reply to `config dump`; None for no options.
        """
        do, undo, set_to, was = [], [], [], []
        former: Dict[str, Optional[str]] = {}
        for who, option, value in wanted:
            section, _, mask = who.partition("/")
            entry = {"section": section, "name": option, "mask": mask}
            row = next((r for r in dump if all(r.get(k, "") == v for k, v in entry.items())), None)
            before = str(row["value"]) if row else None
            former[f"{who} {option}"] = before
            target = f"{shlex.quote(who)} {shlex.quote(option)}"
            do.append(f"config set {target} {shlex.quote(value)}")
            undo.append(f"config rm {target}" if before is None else f"config set {target} {shlex.quote(before)}")
            place = (entry, "value")
            was.append((place, before))
            set_to.append((place, {"like": value}))
        if not do:
            return None
        took, undone = self._says("config dump", set_to), self._says("config dump", was)
        return self._step(summary, do, list(reversed(undo)), took, undone, former)

    def _balancer(self, facts: Facts, wanted: Optional[bool]) -> Optional[Step]:
        if wanted is None:
            return None
        active = bool(facts.answers[_OF_BALANCER]["active"])
        if wanted == active:
            return None
        on, off = ("on", "off") if wanted else ("off", "on")
        # `balancer on` and `off` leave an option behind that was not set before
        entry = {"section": "mgr", "name": "mgr/balancer/active"}
        row = find(facts.answers["config dump"], (entry, "value"))
        step = self._step(
            f"switch the balancer {on}",
            [f"balancer {on}"],
            [f"balancer {off}", *(["config rm mgr mgr/balancer/active"] if row is None else [])],
            self._says("balancer status", [(("active",), wanted)]),
            self._says("balancer status", [(("active",), active)]),
            {"active": active, "mgr/balancer/active": row},
        )
        return replace(step, checks=(*step.checks, self._says("config dump", [((entry, "value"), row)])))

    def _autoscaler(self, facts: Facts, wanted: Optional[bool]) -> Optional[Step]:
        mode = "on" if wanted else "off"
        former = {p["pool_name"]: p["pg_autoscale_mode"] for p in facts.pools if p["pg_autoscale_mode"] != mode}
        if wanted is None or not former:
            return None
        undo = [f"osd pool set {shlex.quote(name)} pg_autoscale_mode {was}" for name, was in reversed(former.items())]
        back = [(_of_pool(name, "pg_autoscale_mode"), {"while_there": was}) for name, was in former.items()]
        if wanted:  # the autoscaler splits their PGs, and merges none where its mode is off again
            numbers = {p["pool_name"]: int(p[PG_NUM]) for p in facts.pools if p["pool_name"] in former}
            undo += [f"osd pool set {shlex.quote(name)} pg_num {number}" for name, number in numbers.items()]
            back += [(_of_pool(name, PG_NUM), {"while_there": number}) for name, number in numbers.items()]
        return self._step(
            f"set pg_autoscale_mode {mode} for {len(former)} pools",
            [f"osd pool set {shlex.quote(name)} pg_autoscale_mode {mode}" for name in former],
            undo,
            self._says("osd dump", [(_of_pool(name, "pg_autoscale_mode"), mode) for name in former]),
            self._says("osd dump", back),
            former,
        )

    def _step(
        self,
        summary: str,
        do: Sequence[str],
        undo: Sequence[str],
        took: Check,
        undone: Check,
        former: Mapping[str, Any],
    ) -> Step:
        head, ceph = self._ceph.head, self._ceph.command
        return Step(
            what=summary,
            node=head,
            inject=tuple(Command(head, f"{ceph} {line}", self._limits.quick) for line in do),
            undo=tuple(Command(head, f"{ceph} {line}", self._limits.quick) for line in undo),
            checks=(undone,),
            took=(took,),
            former=former,
        )

    def _says(self, question: str, want: Sequence[Any]) -> Check:
        return Check(self._ceph.head, f"{self._ceph.command} {question} -f json", tuple(want), self._limits.quick)
