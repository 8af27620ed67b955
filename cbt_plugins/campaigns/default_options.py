"""Code or defaults? Which defaults of Ceph's options differ between two releases, and the two arms that swap them.

    FOLDER/options/NAME/{mon,mgr,osd,client}.json   what a daemon of each kind says it runs with, on the arm's cluster
    FOLDER/options/options.json                     what differs, and what is left out, with the reason

Only an option whose value is the default on both sides is swapped: what the cluster sets itself stays. An option that a
daemon reads when it starts needs the arm's `restart:`; it is set before, and the run sees it in force.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, Optional, Sequence, Tuple

from cbt_plugins.campaigns.trial import Cycle, finished, run_trial
from cbt_plugins.config.settings import AT_START
from cbt_plugins.journal import json_lines, read_json, read_text, write_json, write_whole

SCRIPT = Path(__file__).with_name("default_options.sh")
FOLDER, FILE, VERSION = "options", "options.json", 1
#: a line of options
_MOST_NAMED = 30
KINDS = ("mon", "mgr", "osd", "client")
#: flags of options that count only when something is made anew
_MADE_FLAGS = frozenset({"create", "cluster_create", "no_mon_update", "mkfs"})
#: the same, although `config help` has no such flag
_MADE_OPTIONS = ("bluestore_rocksdb_cfs",)
#: names, paths and addresses of this very daemon; not what a release decides
_OWN = ("_dir", "_path", "_file", "_socket", "_addr", "host", "fsid", "keyring", "_data", "_image", "_plugins")
#: whose options are named so, where `config help` names no service; of all daemons else
_SERVICES = {"mon_": "mon", "mgr_": "mgr", "mds_": "mds", "rgw_": "rgw"}
_SERVICES.update(dict.fromkeys(("osd_", "bluestore_", "bluefs_", "bdev_", "rocksdb_"), "osd"))
#: what options of a type take: a release that has made a whole number of a fraction refuses 0.000000
_WHOLE_NUMBER = re.compile(r"[-+]?\d+[A-Za-z]*")
_FORMS = {
    **dict.fromkeys(("int", "uint", "size", "secs", "millisecs"), _WHOLE_NUMBER),
    "float": re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE),
    "bool": re.compile(r"true|false|[-+]?\d+", re.IGNORECASE),
}

Table = Mapping[str, Mapping[str, str]]  # option -> {"value", "source"}
Help = Mapping[str, Mapping[str, Any]]  # option -> what `ceph config help` says
Settings = Dict[str, Dict[str, str]]  # who -> option -> value


@dataclass(frozen=True)
class Swapped:
    """The defaults that differ: of each release, those that the other's options are set to, by when they count."""

    running: Mapping[str, Settings]  # code -> the other release's defaults, set while daemons run
    at_start: Mapping[str, Settings]  # the same for those that are read when a daemon starts
    left_out: Mapping[str, Tuple[str, ...]]  # reason -> options


def differing(tables: Sequence[Mapping[str, Table]], helps: Sequence[Help], names: Sequence[str]) -> Swapped:
    """Return the options that differ between two releases: their tables by kind of daemon, their help, their names."""
    running: Dict[str, Settings] = {name: {} for name in names}
    at_start: Dict[str, Settings] = {name: {} for name in names}
    left: Dict[str, Dict[str, None]] = {}
    for kind in KINDS:
        old, new = (by_kind.get(kind, {}) for by_kind in tables)
        for name, has, lacks in [(names[0], old, new), (names[1], new, old)] if old and new else ():
            for option in has.keys() - lacks.keys():
                left.setdefault(f"only {name} has the option", {})[option] = None
        for option in sorted(old.keys() & new.keys()):
            values = old[option]["value"], new[option]["value"]
            abouts = [by_option.get(option, {}) for by_option in helps]
            if values[0] == values[1] or not _concerns(option, kind, abouts):
                continue
            reason = _reason(option, (old[option], new[option]), abouts)
            if reason:
                left.setdefault(reason, {})[option] = None
                continue
            late = option in AT_START or not all(about.get("can_update_at_runtime", True) for about in abouts)
            for code, value in zip(names, reversed(values)):
                (at_start if late else running)[code].setdefault(kind, {})[option] = value
    return Swapped(running, at_start, {reason: tuple(sorted(options)) for reason, options in left.items()})


def _concerns(option: str, kind: str, abouts: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a daemon of a kind uses an option: each has all options, and tells or takes few of the others'."""
    services = {service for about in abouts for service in about.get("services") or ()}
    services |= {of for prefix, of in _SERVICES.items() if not services and option.startswith(prefix)}
    return not services or ("rgw" if kind == "client" else kind) in services


def _reason(option: str, rows: Sequence[Mapping[str, str]], abouts: Sequence[Mapping[str, Any]]) -> str:
    """Return the reason why an option is left out; "" where it is not. Old and new: its row and its help."""
    if any(row.get("source") != "default" for row in rows):
        return "the cluster sets the option itself"
    if option.endswith(_OWN):
        return "it is a name, a path, an address, or depends on the installation"
    if option in _MADE_OPTIONS or _MADE_FLAGS & set(abouts[1].get("flags") or ()):
        return "the option has an effect only when something is created"
    if not all(row["value"] for row in rows):
        return "one default is empty, which cannot be set"
    if not _taken(rows[0]["value"], abouts[1]):
        return "the newer release does not take the older default"
    if not _taken(rows[1]["value"], abouts[0]):
        return "the older release does not take the newer default"
    return ""


def _taken(value: str, about: Mapping[str, Any]) -> bool:
    """Return whether a release takes a value: its type and limits in `ceph config help` ("" is no limit)."""
    enum, form = about.get("enum_values"), _FORMS.get(about.get("type", ""))
    if enum:
        return value in enum
    if form and not form.fullmatch(value):
        return False
    low, high = (about.get(key, "") for key in ("min", "max"))
    try:
        return (low == "" or float(low) <= float(value)) and (high == "" or float(value) <= float(high))
    except ValueError:  # no number, such as 4K
        return True


def tables_of(folder: Path) -> Dict[str, Table]:
    """Return the tables that default_options.sh has written. Raises OSError, ValueError."""
    tables: Dict[str, Table] = {}
    for kind in KINDS:
        path = folder / f"{kind}.json"
        if path.exists():
            tables[kind] = {row["name"]: row for row in read_json(path) if row.get("source") and "/" not in row["name"]}
    return tables


@dataclass(frozen=True)
class OptionReader:
    """Reads the options of the two arms' releases, once in a campaign."""

    folder: Path  # FOLDER/options
    cycles: Mapping[str, Cycle]  # of the old and of the new arm
    ceph: str  # the command

    def read(self) -> Swapped:
        """Prepare each arm, read its tables, and write what differs. Raises OSError, ValueError with what failed."""
        earlier = stored(self.folder)
        if earlier:
            return earlier
        script = self.folder / SCRIPT.name
        write_whole(script, read_text(SCRIPT))
        names = list(self.cycles)
        before = finished(self.folder / f"{names[1]}-tables")  # by an earlier process: another release may run by now
        for name in names:
            self._run(name, "tables", self.cycles[name].prepare)
        tables = [tables_of(self.folder / name) for name in names]
        first, second = ({o: row["value"] for t in by_kind.values() for o, row in t.items()} for by_kind in tables)
        differ = sorted(o for o in first.keys() & second.keys() if first[o] != second[o])
        for name in names:
            write_whole(self.folder / name / "names", "".join(f"{option}\n" for option in differ))
        again = self.cycles[names[1]].prepare if before and not before.reason else ()
        self._run(names[1], "help", again)  # else of the cluster that runs now
        self._run(names[0], "help", self.cycles[names[0]].prepare)
        helps = [
            {row["name"]: row for row in json_lines(self.folder / name / "help.jsonl") if "name" in row}
            for name in names
        ]
        swapped = differing(tables, helps, names)
        write_json(self.folder / FILE, {"version": VERSION, **vars(swapped)})
        return swapped

    def _run(self, name: str, action: str, prepare: Sequence[str]) -> None:
        cycle, target = self.cycles[name], self.folder.resolve() / name
        line = set_line(cycle.through, self.folder / SCRIPT.name, action, target, self.ceph)
        probe = replace(cycle, prepare=(*prepare, line), program="")
        trial = run_trial(probe, self.folder / f"{name}-{action}", again=True)
        if trial.reason:
            raise ValueError(f"the options of {name} could not be read: {trial.reason}")


def set_line(through: str, script: Path, action: str, folder: Path, ceph: str) -> str:
    """Return the shell command that runs default_options.sh on the head node."""
    return f"{through} sh {shlex.quote(str(script.resolve()))} {action} {shlex.quote(str(folder))} {ceph}".strip()


def stored(folder: Path) -> Optional[Swapped]:
    """Return the options that were read before; None without the file."""
    try:
        data = read_json(folder / FILE)
        return Swapped(data["running"], data["at_start"], {k: tuple(v) for k, v in data["left_out"].items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def option_lines(settings: Settings, values: bool = True) -> str:
    """Return settings as lines of WHO OPTION VALUE, or without the value."""
    return "".join(
        f"{who} {option}{f' {value}' if values else ''}\n"
        for who, options in settings.items()
        for option, value in options.items()
    )


def merged_options(*settings: Settings) -> Settings:
    """Return settings of which later ones win."""
    union: Settings = {}
    for layer in settings:
        for who, options in layer.items():
            union.setdefault(who, {}).update(options)
    return union


def describe_swap(swapped: Swapped, restarts: bool) -> Iterator[str]:
    """Yield a line for each option that is swapped, and for those that are not."""
    for code, settings in swapped.running.items():
        late = swapped.at_start[code]
        options = sorted(
            {o for layer in (settings, *([late] if restarts else [])) for who in layer.values() for o in who}
        )
        text = ", ".join(options) or "no option differs"
        yield f"{code} gets the other release's defaults of {len(options)} options: {text}"
    if not restarts:
        late_ones = sorted({o for layer in swapped.at_start.values() for who in layer.values() for o in who})
        if late_ones:
            reason = "daemons read these options only at their start (give each arm `restart:`)"
            yield f"left out, {reason}: {', '.join(late_ones)}"
    for reason, names in swapped.left_out.items():
        many = f"{len(names)} options, named in {FOLDER}/{FILE}"
        yield f"left out, {reason}: {', '.join(names) if len(names) <= _MOST_NAMED else many}"
