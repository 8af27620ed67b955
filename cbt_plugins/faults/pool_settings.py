"""Pools of a run, as steps with undos: new pools with their own profile and CRUSH rule, or other options."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.cluster.ceph import Ceph, CephError
from cbt_plugins.faults.scene import ClusterLimits
from cbt_plugins.faults.step import Check, Command, FaultError, Place, Step
from cbt_plugins.plan import FAILURE_DOMAIN, ROOT, RunPool

#: prints the number of PGs of a pool, and the number of PGs that are not active+clean
COUNT_PGS = (
    "import json, sys; pgs = json.load(sys.stdin)['pg_stats']; "
    "states = [set(pg['state'].split('+')) for pg in pgs]; "
    "clean = [state for state in states if {'active', 'clean'} <= state and 'stale' not in state]; "
    "print(json.dumps({'pgs': len(pgs), 'not_clean': len(pgs) - len(clean)}))"
)
_ALLOW = "mon_allow_pool_delete"

#: a preparation of a run: its label, and the function that returns its step
Part = Tuple[str, Callable[[], Step]]
#: expected properties of a pool: place in the reply, value
_Want = Tuple[Place, Any]


class PoolMaker:
    """Makes the steps of a run's pools; changes nothing."""

    def __init__(self, ceph: Ceph, limits: ClusterLimits, run_id: str) -> None:
        self._ceph, self._limits, self._run_id = ceph, limits, run_id

    def parts(self, pools: Sequence[RunPool]) -> Iterator[Part]:
        """Yield the pools to make, in this order."""
        for pool in pools:
            label = f"{'existing ' if pool.existing else ''}pool {pool.key}"
            yield label, lambda pool=pool: self._changed(pool) if pool.existing else self._creation_step(pool)  # type: ignore[misc]

    def seen(self, pools: Sequence[RunPool]) -> Dict[str, Mapping[str, Any]]:
        """Return key of a pool -> its present properties on the cluster. Raises FaultError."""
        rows_by_name = {str(row["pool_name"]): row for row in self._ask("osd pool ls detail")}
        absent = [name for name in (pool.name(self._run_id) for pool in pools) if name not in rows_by_name]
        if absent:
            raise FaultError(f"the cluster has no pool {', '.join(absent)}")
        names = ("pool_id", "pool_name", "size", "min_size", "pg_num", "pg_autoscale_mode", "options")
        return {
            pool.key: {name: rows_by_name[pool.name(self._run_id)].get(name) for name in names}
            for pool in pools
        }

    def _removal(self, of: str) -> Tuple[Command, Check]:
        """Return the commands that remove a pool, and the check that `mon_allow_pool_delete` is as it was before."""
        entry = {"section": "mon", "name": _ALLOW, "mask": ""}
        dump = self._ask("config dump")
        row = next((r for r in dump if all(r.get(k, "") == v for k, v in entry.items())), None)
        was = str(row["value"]) if row else None
        ceph = self._ceph.command
        back = f"config rm mon {_ALLOW}" if was is None else f"config set mon {_ALLOW} {shlex.quote(was)}"
        # in one command: the permission is withdrawn even if the removal fails; monitors may learn of it a moment later
        text = (
            f"{ceph} config set mon {_ALLOW} true && {{ n=0; until {ceph} osd pool rm {of} {of} "
            "--yes-i-really-really-mean-it; do n=$((n + 1)); [ $n -lt 10 ] || break; sleep 0.5; done; "
            f"{ceph} {back}; [ $n -lt 10 ]; }}"
        )
        want = [((entry, "value"), None if was is None else {"like": was})]
        return Command(self._ceph.head, text, 4 * self._limits.quick), self._says("config dump", want)

    def _creation_step(self, pool: RunPool) -> Step:
        name = pool.name(self._run_id)
        if any(row["pool_name"] == name for row in self._ask("osd pool ls detail")):
            raise FaultError(f"pool {name} exists already, and this run did not make it")
        of, rules = shlex.quote(name), self._ask("osd crush rule ls")
        if pool.rule and pool.rule not in rules:
            raise FaultError(f"pools: {pool.key}: no CRUSH rule {pool.rule}; rules of the cluster: {', '.join(rules)}")
        removal, allowed = self._removal(of)
        do, undo = [], []
        checks = [self._says("osd pool ls detail", [(({"pool_name": name}, "pool_name"), None)]), allowed]
        rule = pool.rule
        if pool.ec:
            do.append(f"osd erasure-code-profile set {of} {shlex.join(_profile_of(pool))}")
            if not rule:
                rule = name
                do.append(f"osd crush rule create-erasure {of} {of}")
        elif not rule and (pool.root or pool.failure_domain or pool.device_class):
            rule = name
            where = [pool.root or ROOT, pool.failure_domain or FAILURE_DOMAIN, *filter(None, [pool.device_class])]
            do.append(f"osd crush rule create-replicated {of} {shlex.join(where)}")
        if rule == name:
            undo.append(f"osd crush rule rm {of}")
            checks.append(self._says("osd crush rule ls", [(({"=": name},), None)]))
        if pool.ec:
            undo.append(f"osd erasure-code-profile rm {of}")
            checks.append(self._says("osd erasure-code-profile ls", [(({"=": name},), None)]))
        do += list(self._creation(pool, of, rule))
        do += [f"osd pool set {of} {option} {shlex.quote(value)}" for option, value, _ in _options_of(pool)]
        do.append(f"osd pool application enable {of} {shlex.quote(pool.application)}")
        step = self._step(f"make pool {name} with {_kept(pool)}", do, undo, checks, self._took(pool, name, rule))
        return replace(step, undo=(removal, *step.undo))

    @staticmethod
    def _creation(pool: RunPool, of: str, rule: str) -> Iterator[str]:
        # the autoscaler makes 1 PG more; without a number Ceph refuses an osd_pool_default_pgp_num above 1
        number = pool.pg_num or 1
        kind = f"erasure {of}" if pool.ec else "replicated"
        mode = "off" if pool.pg_num else "on"
        placed = f" {shlex.quote(rule)}" if rule else ""
        yield f"osd pool create {of} {number} {number} {kind}{placed} --autoscale-mode={mode}"
        if pool.replicas:
            sure = " --yes-i-really-mean-it" if pool.replicas == 1 else ""
            yield f"osd pool set {of} size {pool.replicas}{sure}"
        if pool.ec and pool.application == "rbd":
            yield f"osd pool set {of} allow_ec_overwrites true"

    def _took(self, pool: RunPool, name: str, rule: str) -> List[Check]:
        """Return the checks that a pool has its properties, and that its PGs are active+clean."""
        entry = {"pool_name": name}
        want: List[_Want] = [((entry, *place), value) for _, _, (place, value) in _options_of(pool) if place]
        if pool.replicas or pool.ec:
            want.append(((entry, "size"), pool.replicas or sum(pool.ec or ())))
            want.append(((entry, "application_metadata", pool.application), {"not": ""}))
        if pool.ec:
            want.append(((entry, "erasure_code_profile"), name))
        if pool.pg_num:
            want += [((entry, "pg_num"), pool.pg_num), ((entry, "pg_placement_num"), pool.pg_num)]
        of = shlex.quote(name)
        checks = [self._says("osd pool ls detail", want, self._limits.back)]
        if rule:
            checks.append(self._says(f"osd pool get {of} crush_rule", [(("crush_rule",), rule)]))
        if pool.bulk is not None:
            checks.append(self._says(f"osd pool get {of} bulk", [(("bulk",), pool.bulk)]))
        if not pool.existing:  # PGs of a pool that the run has not made may move for days
            text = f"{self._ceph.command} pg ls-by-pool {of} -f json | python3 -I -c {shlex.quote(COUNT_PGS)}"
            ready = ((("pgs",), {"not": 0}), (("not_clean",), 0))
            checks.append(Check(self._ceph.head, text, ready, self._limits.back))
        return checks

    def _changed(self, pool: RunPool) -> Step:
        """Return the step that sets options of an existing pool; its undo sets the former values."""
        row = next((row for row in self._ask("osd pool ls detail") if row["pool_name"] == pool.key), None)
        if row is None:
            raise FaultError(f"pools: {pool.key}: `existing: true`, but the cluster has no pool of this name")
        of, entry = shlex.quote(pool.key), {"pool_name": pool.key}
        do: List[str] = []
        undo: List[str] = []
        back: List[_Want] = []
        former: Dict[str, Any] = {}
        for option, value, (place, _) in _options_of(pool):
            was = self._former(row, of, option, place)
            former[option] = was
            do.append(f"osd pool set {of} {option} {shlex.quote(value)}")
            undo.insert(0, f"osd pool set {of} {option} {_text(option, was)}")
            if place:
                back.append(((entry, *place), {"while_there": was}))
        checks = [self._says("osd pool ls detail", back, self._limits.back)]
        if "bulk" in former:
            want = (({"pool": pool.key}, "bulk"), {"while_there": former["bulk"]})
            checks.append(Check(self._ceph.head, self._bulk_if_there(of), (want,), self._limits.quick))
        return self._step(
            f"set {', '.join(former)} of pool {pool.key}", do, undo, checks, self._took(pool, pool.key, ""), former
        )

    def _bulk_if_there(self, of: str) -> str:
        """Return shell text that prints the `bulk` flag of a pool, as a list of one; [] if the pool does not exist."""
        ceph = self._ceph.command
        pool_exists = f"""printf '%s\\n' "$names" | grep -qxFe {of}"""
        print_bulk = f'bulk=$({ceph} osd pool get {of} bulk -f json) && echo "[$bulk]"'
        return f"names=$({ceph} osd pool ls) && if {pool_exists}; then {print_bulk}; else echo '[]'; fi"

    def _former(self, row: Mapping[str, Any], of: str, option: str, place: Place) -> Any:
        if option == "bulk":
            return self._ask(f"osd pool get {of} bulk")["bulk"]
        value: Any = row
        for part in place:
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def _ask(self, question: str) -> Any:
        try:
            return self._ceph.json(question, self._limits.quick)
        except CephError as error:
            raise FaultError(str(error)) from error

    def _says(self, question: str, want: Sequence[_Want], timeout: Optional[float] = None) -> Check:
        limit = self._limits.quick if timeout is None else timeout
        return Check(self._ceph.head, f"{self._ceph.command} {question} -f json", tuple(want), limit)

    def _step(
        self,
        summary: str,
        do: Sequence[str],
        undo: Sequence[str],
        checks: Sequence[Check],
        took: Sequence[Check] = (),
        former: Optional[Mapping[str, Any]] = None,
    ) -> Step:
        return Step(
            what=summary,
            node=self._ceph.head,
            inject=self._commands(do),
            undo=self._commands(undo),
            checks=tuple(checks),
            took=tuple(took),
            former=former or {},
        )

    def _commands(self, lines: Sequence[str]) -> Tuple[Command, ...]:
        """Return one command of several lines, which ends at the first line that fails."""
        text = " && ".join(f"{self._ceph.command} {line}" for line in lines)
        return (Command(self._ceph.head, text, len(lines) * self._limits.quick),) if lines else ()


def _profile_of(pool: RunPool) -> List[str]:
    k, m = pool.ec or (0, 0)
    where = {"root": pool.root, "failure-domain": pool.failure_domain, "device-class": pool.device_class}
    placed = [f"crush-{name}={value}" for name, value in where.items() if value]
    return [f"k={k}", f"m={m}", *placed, *(f"{name}={value}" for name, value in pool.profile)]


def _options_of(pool: RunPool) -> List[Tuple[str, str, _Want]]:
    """Return (option of `osd pool set`, value, (place in the pool's entry of `osd pool ls detail`, its value)).

    The place of `bulk` is (): it has a question of its own.
    """
    options: List[Tuple[str, str, _Want]] = []
    if pool.existing and pool.pg_num:
        options.append(("pg_autoscale_mode", "off", (("pg_autoscale_mode",), "off")))
        options.append(("pg_num", str(pool.pg_num), (("pg_num_target",), pool.pg_num)))
    if pool.target_ratio is not None:
        ratio = f"{pool.target_ratio:g}"
        options.append(("target_size_ratio", ratio, (("options", "target_size_ratio"), pool.target_ratio)))
    if pool.bulk is not None:
        options.append(("bulk", str(pool.bulk).lower(), ((), pool.bulk)))
    options += [(option, value, (("options", option), value)) for option, value in pool.options]
    return options


def _text(option: str, was: Any) -> str:
    """Return the text that sets a former value again; without a former value, the word that removes the option."""
    if was is None:
        return "0" if option == "target_size_ratio" else "unset"
    return str(was).lower() if isinstance(was, bool) else shlex.quote(str(was))


def _kept(pool: RunPool) -> str:
    return f"EC {pool.ec[0]}+{pool.ec[1]}" if pool.ec else f"{pool.replicas} replicas"
