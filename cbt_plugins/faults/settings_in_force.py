"""Settings in force: the values that daemons report, and the options that daemons read only when they start.

`ceph config set` changes the values in the monitors. A ceph.conf on a node wins over them, a section may match no
daemon, and some options take effect at the next start. `ceph config show DAEMON OPTION` shows the value that a daemon
has reported; since 16.2 for gateways too, by the number of the instance: rgw.4114.
"""

from __future__ import annotations

import json
import shlex
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.config.settings import AT_START
from cbt_plugins.faults.cluster_facts import DAEMON_QUESTIONS, Facts, ask
from cbt_plugins.faults.step import FaultError, agrees
from cbt_plugins.formatting import first_texts

#: (who, option, value) of `ceph config set`
Setting = Tuple[str, str, str]

#: questions that find the daemons of a section
_QUESTIONS = ("osd dump", "osd tree", "osd metadata", "quorum_status", "mgr stat", DAEMON_QUESTIONS["rgw"])
#: seconds for one daemon's answer, on top of the limit of a command
_EACH = 0.2
#: most questions in one command: Linux takes 128 KiB as an argument, and if one reply fails each needs a `ceph`
_LOT = 300


class Wrong(NamedTuple):
    """Daemons that do not run with the value that was set, but all with one other value; "": they report none."""

    daemons: Tuple[str, ...]
    option: str
    value: str
    runs_with: str

    def __str__(self) -> str:
        return f"{first_texts(self.daemons, 3)}: {self.option} is {self.runs_with or 'unknown'}, not {self.value}"


def not_in_force(ceph: Ceph, settings: Sequence[Setting], timeout: float) -> List[Wrong]:
    """Return the settings that daemons do not run with; OSDs and gateways that are down do not count.

    Options of mgr modules are skipped: no daemon reports them. Raises FaultError when the cluster does not answer.
    """
    daemon_settings = [setting for setting in settings if "/" not in setting[1]]
    if not daemon_settings:
        return []
    facts = ask(ceph, _QUESTIONS, timeout)
    wanted: Dict[Tuple[str, str], str] = {}
    for who, option, value in sorted(daemon_settings, key=lambda setting: _rank(setting[0])):
        for daemon in daemons_of(facts, who):
            wanted[daemon, option] = value  # the setting for fewer daemons wins
    shown = shown_values(ceph, list(wanted), timeout)
    names = {key: f"rgw.{row['metadata'].get('id', key)}" for key, row in facts.gateways.items()}
    wrong: Dict[Tuple[str, str, str], List[str]] = {}
    for ((daemon, option), value), runs_with in zip(wanted.items(), shown):
        if not runs_with or not agrees(runs_with, value):
            name = names.get(daemon[4:], daemon) if daemon.startswith("rgw.") else daemon
            wrong.setdefault((option, value, runs_with), []).append(name)
    return [Wrong(tuple(daemons), *about) for about, daemons in wrong.items()]


def needs_restart(ceph: Ceph, settings: Sequence[Setting], timeout: float) -> List[str]:
    """Return the errors of settings that take effect only at a start of the daemons, and are not in force yet."""
    names = dict.fromkeys(option for _, option, _ in settings if "/" not in option)
    help_by_option = {name: _help(ceph, name, timeout) for name in names}
    at_start = {
        n for n, about in help_by_option.items() if n in AT_START or not about.get("can_update_at_runtime", True)
    }
    late = [setting for setting in settings if setting[1] in at_start]
    return [
        f"{wrong}: daemons read this option only at their start: set the option and restart the daemons before the run"
        for wrong in not_in_force(ceph, late, timeout)
    ]


def _help(ceph: Ceph, option: str, timeout: float) -> Mapping[str, Any]:
    answer = ceph.run(f"{ceph.command} config help {shlex.quote(option)} -f json 2>/dev/null", timeout)
    try:
        reply = json.loads(answer.stdout)
    except ValueError:
        return {}  # `config set` will report the error
    return reply if isinstance(reply, dict) else {}


def _rank(who: str) -> int:
    section, _, mask = who.partition("/")
    return 0 if section == "global" else 2 * section.count(".") + bool(mask) + 1


def daemons_of(facts: Facts, who: str) -> Iterator[str]:
    """Yield the daemons that are up and to which settings for `who` apply, by their names for `config show`."""
    section, _, mask = who.partition("/")
    kind, _, name = section.partition(".")
    if kind in ("osd", "global"):
        chosen = _masked(facts, mask) if mask else set(facts.osds)
        yield from (f"osd.{n}" for n, osd in facts.osds.items() if osd["up"] and n in chosen and name in ("", str(n)))
    if mask:
        return
    if kind in ("mon", "global"):
        yield from (f"mon.{n}" for n in facts.answers["quorum_status"]["quorum_names"] if name in ("", n))
    if kind in ("mgr", "global"):
        active = facts.answers["mgr stat"].get("active_name")
        yield from (f"mgr.{n}" for n in (active,) if n and name in ("", n))
    if kind in ("client", "global"):
        own = name[4:] if name.startswith("rgw.") else name
        for key, row in facts.gateways.items():
            id = str(row["metadata"].get("id", key))
            # the name of an entity is client.rgw.ID or client.ID; the service map has the ID alone
            if name in ("", "rgw") or own == id or id.startswith(f"{own}."):
                yield f"rgw.{key}"


def _masked(facts: Facts, mask: str) -> Sequence[int]:
    kind, _, name = mask.replace("=", ":").partition(":")
    if kind == "class":
        return [n for n, node in facts.tree.items() if n >= 0 and node.get("device_class") == name]
    if kind == "host" and name in facts.hosts:
        return facts.hosts[name]
    return [osd for n, node in facts.tree.items() if node["name"] == name for osd in facts.below(n)]


def shown_values(ceph: Ceph, pairs: Sequence[Tuple[str, str]], timeout: float) -> List[str]:
    """Return each daemon's value of its option, "" if there is none."""
    questions = [f"config show {daemon} {option}" for daemon, option in pairs]
    lots = (questions[first : first + _LOT] for first in range(0, len(questions), _LOT))
    return [reply for lot in lots for reply in _replies(ceph, lot, timeout)]


def _replies(ceph: Ceph, questions: Sequence[str], timeout: float) -> List[str]:
    limit = timeout + _EACH * len(questions)
    answer = ceph.run(ceph.piped(questions), limit)
    replies = [line.strip() for line in answer.stdout.splitlines() if line.strip()]
    if len(replies) == len(questions):
        return replies
    # a daemon is unknown, or the `ceph` command does not pass standard input on: ask one by one
    each = "; ".join(f"echo \"{_MARK} $({ceph.command} {question} 2>/dev/null | head -1)\"" for question in questions)
    answer = ceph.run(each, timeout + 5 * _EACH * len(questions))
    replies = [line[len(_MARK) :].strip() for line in answer.stdout.splitlines() if line.startswith(_MARK)]
    if len(replies) != len(questions):
        why = answer.stderr.strip().splitlines()[-1:] or [f"exit status {answer.status}"]
        raise FaultError(f"ceph config show on {ceph.head}: {len(replies)} of {len(questions)} replies: {why[0]}")
    return replies


_MARK = "cbt-plugins:"
