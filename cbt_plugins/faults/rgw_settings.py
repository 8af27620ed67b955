"""RGW for a run: options, a placement target, a user, and the restart of the gateways, as steps with undos."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

from cbt_plugins.cluster.ceph import Ceph, CephError
from cbt_plugins.faults import service_managers
from cbt_plugins.faults.cluster_facts import DAEMON_QUESTIONS, DaemonName, ask
from cbt_plugins.faults.cluster_settings import SettingsMaker, everywhere
from cbt_plugins.faults.pool_settings import Part
from cbt_plugins.faults.scene import ClusterLimits, Scene
from cbt_plugins.faults.service_managers import Service
from cbt_plugins.faults.step import Check, Command, FaultError, Step
from cbt_plugins.inventory import HostTable, nodes_of
from cbt_plugins.plan import Gateways, RunPool, placement_id

#: prints the options of running gateways, as the mgr knows them: {"a": {"gid": "4114", "rgw_thread_pool_size": "512"}}
_SHOWN = """\
import json, subprocess, sys
def ask(words):
    done = subprocess.run(sys.argv[1] + " " + words, shell=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return done.stdout.decode()
rows = json.loads(ask("service dump -f json"))["services"].get("rgw", {}).get("daemons", {})
newest = {}
for key, row in rows.items():
    if isinstance(row, dict):
        name = row["metadata"].get("id", key)
        newest[name] = max(newest.get(name, 0), int(row.get("gid") or 0))
names = [name for name in sys.argv[2].split() if name in newest]
shown = {name: {"gid": str(newest[name])} for name in names}
for name in names:
    for option in sys.argv[3].split():
        shown[name][option] = ask("config show rgw.%d %s" % (newest[name], option)).strip()
print(json.dumps(shown))
"""
#: seconds for one `ceph`, on top of the limit of a command
_EACH = 2.0
#: seconds for removing the objects of buckets, which may be many
_LONG = 4 * 3600.0


@dataclass(frozen=True)
class RgwSettings:
    """Makes the steps of `rgw:`; changes nothing. `cluster` is the section of the file."""

    ceph: Ceph
    cluster: Mapping[str, Any]
    limits: ClusterLimits
    run_id: str
    wanted: Gateways
    users: Tuple[str, ...]  # users of the run; the first one is the user of `s3:`

    def parts(self, pools: Sequence[RunPool]) -> Iterator[Part]:
        """Yield the parts in the order of their steps; an undo begins with the last part."""
        if self.wanted.restarts:
            for name in self._gateways:
                yield f"{name} as before", partial(self.restore_step, name)
        if self.wanted.options:
            yield "rgw options", self._options
        names = {pool.key: pool.name(self.run_id) for pool in pools}
        for user, placed in {"": self.wanted.placement, **self.wanted.placements}.items():
            if placed:
                kept = {role: names[key] for role, key in placed.items()}
                yield f"rgw placement {user}".rstrip(), partial(self._placement, self.target_of(user), kept)
        if self.wanted.restarts:
            for name in self._gateways:
                yield f"{name} restarted", partial(self.restart_step, name)
        for number, user in enumerate(self.users if self.wanted.make_user else ()):
            if self.target_of(user) or not self._has(user):
                yield f"rgw user{f' {user}' if number else ''}", partial(self._user, user)

    def seen(self) -> Dict[str, Any]:
        """Return option -> value of the running gateways. Raises FaultError."""
        return self.shown_options() if self.wanted.restarts else {}

    @cached_property
    def _gateways(self) -> List[DaemonName]:
        """Return the gateways on the nodes of the file. Raises FaultError if there are none."""
        facts = ask(self.ceph, ("osd dump", DAEMON_QUESTIONS["rgw"]), self.limits.quick)
        nodes = nodes_of(self.cluster, "rgws") or nodes_of(self.cluster)
        table = HostTable(nodes)
        gateways = [name for name, host in facts.daemons("rgw").items() if host and table.find(host)]
        if not gateways:
            raise FaultError(f"rgw: no gateway on {', '.join(nodes)}: name the nodes with gateways in cluster: rgws:")
        return gateways

    def services_of(self, name: DaemonName) -> Tuple[Scene, List[Service]]:
        """Return the scene of a gateway, and the services that run it. Raises FaultError."""
        facts = ask(self.ceph, ("osd dump", DAEMON_QUESTIONS["rgw"]), self.limits.quick)
        scene = Scene(self.ceph, facts, nodes_of(self.cluster), f"{self.run_id}-{name}", self.limits)
        (gateway_services,) = service_managers.find_services(scene, [name]).values()
        return scene, gateway_services

    def restore_step(self, name: DaemonName) -> Step:
        """Return the step whose undo restarts a gateway, after the undo of the options."""
        scene, gateway_services = self.services_of(name)
        was = self.shown_options([name]).get(name.id, {})
        want = [((name.id, option), {"like": was[option]}) for option in self.wanted.options if was.get(option)]
        return Step(
            what=f"restart {name} after the run",
            node=gateway_services[0].node,
            inject=(),
            undo=service_managers.restart(scene, gateway_services),
            checks=(*service_managers.up(scene, gateway_services), *([self._says([name], want)] if want else [])),
            former=was,
        )

    def _options(self) -> Step:
        dump = ask(self.ceph, ("osd dump", "config dump"), self.limits.quick).answers["config dump"]
        triples = everywhere(dump, "client", self.wanted.options.items())
        step = SettingsMaker(self.ceph, self.limits).configuration(dump, triples, "set options of RGW")
        if step is None:
            raise FaultError("rgw: no options to set")
        return step

    def restart_step(self, name: DaemonName) -> Step:
        """Return the step that restarts a gateway and checks that it runs with the options."""
        scene, gateway_services = self.services_of(name)
        before = self.shown_options([name]).get(name.id, {}).get("gid", "")
        want = [((name.id, "gid"), {"not": before})]
        want += [((name.id, option), {"like": value}) for option, value in self.wanted.options.items()]
        return Step(
            what=f"restart {name} on {gateway_services[0].node}",
            node=gateway_services[0].node,
            inject=service_managers.restart(scene, gateway_services),
            undo=service_managers.start(scene, gateway_services),
            checks=service_managers.up(scene, gateway_services),
            took=(*service_managers.up(scene, gateway_services), self._says([name], want)),
        )

    def target_of(self, user: str) -> str:
        """Return the placement target of a user's buckets, "" for the default of the zone."""
        if user in self.wanted.placements:
            return placement_id(self.run_id, 1 + list(self.wanted.placements).index(user))
        return placement_id(self.run_id) if self.wanted.placement else ""

    def _placement(self, id: str, kept: Mapping[str, str]) -> Step:
        zone, group = self._admin("zone get"), self._admin("zonegroup get")
        if len(group.get("zones", ())) > 1:
            raise FaultError(f"rgw: placement: zonegroup {group['name']} has several zones, but must have one")
        of = f"--placement-id={shlex.quote(id)}"
        of_zone, of_group = (shlex.quote(f"--rgw-{n}={v['name']}") for n, v in (("zone", zone), ("zonegroup", group)))
        pools = {"data": "data-pool", "index": "index-pool", "extra": "data-extra-pool"}
        named = " ".join(f"--{pools[role]}={shlex.quote(name)}" for role, name in kept.items())
        commit = ["period update --commit"] if zone.get("realm_id") or group.get("realm_id") else []
        add = [f"zonegroup placement add {of_group} {of}", f"zone placement add {of_zone} {of} {named}", *commit]
        # remains of deleted objects are removed before their pool; otherwise RGW would make the pool again
        drop = ["gc process --include-all"]
        drop += [f"zone placement rm {of_zone} {of}", f"zonegroup placement rm {of_group} {of}"]
        have = (("zone get", "placement_pools", "key"), ("zonegroup get", "placement_targets", "name"))
        places = [(question, (key, {name: id}, name)) for question, key, name in have]
        return Step(
            what=f"make placement target {id}: {', '.join(f'{role} {name}' for role, name in kept.items())}",
            node=self.ceph.head,
            inject=(self._command(add, " && "),),
            undo=(replace(self._command([*drop, *commit], "; "), timeout=_LONG),),
            checks=tuple(self._asks(question, [(place, None)]) for question, place in places),
            took=tuple(self._asks(question, [(place, id)]) for question, place in places),
        )

    def _user(self, user: str) -> Step:
        if self._has(user):
            text = "the user exists, but placement can be set only for users that this run makes: give another name"
            raise FaultError(f"rgw: user {user}: {text}")
        of, ours = f"--uid={shlex.quote(user)}", f"cbt-plugins run {self.run_id}"
        target = self.target_of(user)
        where = f" --placement-id={target}" if target else ""
        make = self._command([f"user create {of} --display-name={shlex.quote(ours)}{where}"], "")
        info, rm = (self._command([words], "").text for words in (f"user info {of}", f"user rm {of} --purge-data"))
        # somebody else may have made a user of this name before our command ran
        drop = f"{info} 2>/dev/null | grep -qF {shlex.quote(json.dumps(ours))} || exit 0; {rm}"
        entry = ({"=": user},)
        return Step(
            what=f"make user {user} with keys",
            node=self.ceph.head,
            inject=(replace(make, text=f"{make.text} >/dev/null"),),
            undo=(Command(self.ceph.head, drop, _LONG),),
            checks=(self._asks("metadata list user", [(entry, None)]),),
            took=(self._asks("metadata list user", [(entry, True)]),),
        )

    def _has(self, user: str) -> bool:
        return user in self._admin("metadata list user")

    def _admin(self, question: str) -> Any:
        try:
            return self.ceph.admin_json(question)
        except CephError as error:
            raise FaultError(str(error)) from error

    def _command(self, lines: Sequence[str], joint: str) -> Command:
        text = joint.join(f"{self.ceph.admin} {line}" for line in lines)
        return Command(self.ceph.head, text, len(lines) * self.limits.quick)

    def _asks(self, question: str, want: Sequence[Any]) -> Check:
        return Check(self.ceph.head, f"{self.ceph.admin} {question} 2>/dev/null", tuple(want), self.limits.quick)

    def shown_options(self, names: Sequence[DaemonName] = ()) -> Dict[str, Dict[str, str]]:
        """Return the options that gateways run with: id -> option -> value. Raises FaultError."""
        check = self._says(names or self._gateways, [])
        answer = self.ceph.run(check.text, self.limits.quick + self._asking(names or self._gateways))
        try:
            shown: Dict[str, Dict[str, str]] = json.loads(answer.stdout)
        except ValueError:
            why = answer.stderr.strip().splitlines()[-1:] or [f"exit status {answer.status}"]
            raise FaultError(f"could not read the options of the gateways, on {self.ceph.head}: {why[0]}") from None
        return shown

    def _asking(self, names: Sequence[DaemonName]) -> float:
        """Return the seconds for a `ceph` for each option of each gateway."""
        return _EACH * len(names) * len(self.wanted.options)

    def _says(self, names: Sequence[DaemonName], want: Sequence[Any]) -> Check:
        words = [self.ceph.command, " ".join(name.id for name in names), " ".join(self.wanted.options)]
        text = f"python3 -I -c {shlex.quote(_SHOWN)} {shlex.join(words)}"
        return Check(self.ceph.head, text, tuple(want), self.limits.back + self._asking(names))
