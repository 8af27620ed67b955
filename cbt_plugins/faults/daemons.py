"""How a node's OSDs are run: units of systemd, daemons of cephadm, or bare processes as CBT and the lab start them.

It is looked at while they run, so what is started again is exactly what had been stopped.
"""

from __future__ import annotations

import base64
import re
import shlex
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.faults.step import FaultError

WAYS = ("systemd", "cephadm", "process")

#: prints "unit OSD NAME STATE" for units that systemd has loaded, and "process PID START FILES ARGV AROUND" for each
#: ceph-osd; ARGV and AROUND (user, group, folder, environment) in base64
PROBE = r"""
started() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
for n in OSDS; do
  for u in $(systemctl list-units --all --plain --no-legend "ceph-osd@$n.service" "ceph-*@osd.$n.service" 2>/dev/null |
             while read -r u load active _; do [ "$load" = loaded ] && echo "$u:$active"; done); do
    echo "unit $n ${u%:*} ${u##*:}"; done
done
for p in /proc/[0-9]*; do
  c=; { read -r c < "$p/comm"; } 2>/dev/null
  [ "$c" = ceph-osd ] || continue
  files=$(sed -n 's/^Max open files *\([0-9]*\).*/\1/p' "$p/limits" 2>/dev/null)
  around=$({ stat -c '%u %g' "$p"; readlink "$p/cwd"
             tr '\0' '\n' < "$p/environ" | grep -E '^(LD|TCMALLOC)_[A-Z0-9_]*='; } 2>/dev/null | base64 -w0)
  echo "process ${p#/proc/} $(started "${p#/proc/}") ${files:-0} $(base64 -w0 < "$p/cmdline" 2>/dev/null) $around"
done
true
"""


@dataclass(frozen=True)
class Process:
    """A daemon that runs: no other process can be mistaken for it."""

    pid: int
    started: int  # clock ticks since the node booted
    files: int  # its limit of open files, 0 unknown
    argv: Tuple[str, ...]
    user: int = 0
    group: int = 0
    folder: str = "/"
    environment: Tuple[str, ...] = ()  # NAME=VALUE, of what decides how a program is loaded


@dataclass(frozen=True)
class Daemon:
    """One OSD on its node."""

    osd: int
    node: str
    way: str  # one of WAYS
    unit: str = ""  # of systemd, also under cephadm
    process: Optional[Process] = None


def probe(osds: Sequence[int]) -> str:
    """The shell command that asks a node for these OSDs."""
    return PROBE.replace("OSDS", " ".join(map(str, sorted(osds))), 1)


def parse(node: str, osds: Sequence[int], answer: str, way: str = "") -> Dict[int, Daemon]:
    """How each OSD is run. `way` is what it must be; without, it is what is found.

    Raises FaultError for one that does not run, or whose way cannot be told.
    """
    units: Dict[int, List[str]] = {}
    idle: Dict[int, List[str]] = {}
    processes: Dict[int, List[Process]] = {}
    for line in answer.splitlines():
        words = line.split()
        if words[:1] == ["unit"] and len(words) == 4:
            runs = words[3] not in ("inactive", "failed")
            (units if runs else idle).setdefault(int(words[1]), []).append(words[2])
        elif words[:1] == ["process"] and len(words) == 6:
            found_one = _process(words[1:])
            osd = osd_of(found_one.argv)
            if osd is not None:
                processes.setdefault(osd, []).append(found_one)
    found = {}
    for osd in osds:
        if osd not in processes:  # a unit that does not run is the way of an OSD that does not run either
            units.setdefault(osd, []).extend(idle.get(osd, []))
        for what, several in (("units", units.get(osd, [])), ("processes", processes.get(osd, []))):
            if len(several) > 1:
                raise FaultError(f"{node} has {len(several)} {what} of osd.{osd}: which one is meant cannot be told")
        unit = next(iter(units.get(osd, [])), "")
        process = next(iter(processes.get(osd, [])), None)
        cephadm = bool(re.fullmatch(r"ceph-[0-9a-f-]{36}@osd\.\d+\.service", unit))
        if way == "process" and unit:
            raise FaultError(f"osd.{osd} is run by {unit} on {node}: as a bare process it would come back without it")
        if way == "cephadm" and unit and not cephadm:
            raise FaultError(f"osd.{osd}: {unit} on {node} is no unit of cephadm")
        which = way or ("cephadm" if cephadm else "systemd" if unit else "process")
        if which in ("systemd", "cephadm") and not unit:
            raise FaultError(f"osd.{osd} is no unit of systemd on {node}; daemons: process takes it as a bare process")
        if which == "process" and process is None:
            raise FaultError(f"{node} runs no ceph-osd for osd.{osd}, and systemd has no unit of it")
        found[osd] = Daemon(osd, node, which, unit, process)
    return found


def _process(words: Sequence[str]) -> Process:
    pid, begun, files, argv, around = words
    owner, folder, *environment = base64.b64decode(around).decode(errors="replace").rstrip("\n").split("\n")
    user, group = map(int, owner.split())
    line = base64.b64decode(argv).decode(errors="replace").rstrip("\0").split("\0")
    return Process(int(pid), int(begun), int(files), tuple(line), user, group, folder, tuple(environment))


def osd_of(argv: Sequence[str]) -> Optional[int]:
    """The OSD that a ceph-osd was started for: -i 3, --id=3, -n osd.3, --name osd.3."""
    for i, word in enumerate(argv[1:], 1):
        name, has, value = word.partition("=")
        if name in ("-i", "--id", "-n", "--name"):
            text = value if has else argv[i + 1] if i + 1 < len(argv) else ""
        elif re.fullmatch(r"-i\d+", word):
            text = word[2:]
        else:
            continue
        number = text[4:] if text.startswith("osd.") else text
        return int(number) if number.isdigit() else None
    return None


def stop(daemons: Sequence[Daemon]) -> str:
    """End daemons of one node in good order, and wait for their end. Not for cephadm's."""
    units = [d.unit for d in daemons if d.way != "process"]
    lines = [f"systemctl stop {' '.join(map(shlex.quote, units))}"] if units else []
    bare = [d.process for d in daemons if d.way == "process" and d.process]
    return "; ".join(lines + ([signal("TERM", bare)] if bare else []))


def kill(daemons: Sequence[Daemon]) -> str:
    """SIGKILL, by pid and start time; systemd is kept from starting them again (Restart=).

    Raises FaultError when a daemon's process is not visible.
    """
    for daemon in daemons:
        if daemon.process is None:
            raise FaultError(f"{daemon.node} runs no ceph-osd for osd.{daemon.osd}: nothing to kill")
    killed = signal("KILL", [d.process for d in daemons if d.process])
    held = stop([d for d in daemons if d.way != "process"])
    return f"{killed}; {held}" if held else killed


def signal(name: str, processes: Sequence[Process]) -> str:
    """Signal exactly these processes and wait until they are gone."""
    known = " ".join(f"{p.pid}:{p.started}" for p in processes)
    return (
        "started() { sed 's/.*) //' \"/proc/$1/stat\" 2>/dev/null | cut -d' ' -f20; }; "
        f"for p in {known}; do "
        f'[ "$(started "${{p%:*}}")" != "${{p#*:}}" ] || kill -{name} "${{p%:*}}"; done; '
        f'for p in {known}; do while [ "$(started "${{p%:*}}")" = "${{p#*:}}" ] && '
        '! grep -q "^State:[[:space:]]*Z" "/proc/${p%:*}/status" 2>/dev/null; do sleep 0.1; done; done'
    )


def start(daemons: Sequence[Daemon]) -> str:
    """Start daemons of one node again; those that run are left alone. Not for cephadm's."""
    units = " ".join(shlex.quote(d.unit) for d in daemons if d.way != "process")
    # a unit that ended too often is refused until its count is reset
    lines = [f"systemctl reset-failed {units} 2>/dev/null; systemctl start {units}"] if units else []
    lines += [_again(d.osd, d.process) for d in daemons if d.way == "process" and d.process]
    return "; ".join(lines)


def _again(osd: int, process: Process) -> str:
    line = " ".join(map(shlex.quote, ["env", *process.environment, *process.argv]))
    if process.user and not any(word.startswith("--setuser") for word in process.argv):
        line = f"setpriv --reuid={process.user} --regid={process.group} --init-groups {line}"
    if any(word in ("-f", "-d", "--foreground") for word in process.argv):
        line = f"setsid {line} </dev/null >/dev/null 2>&1 &"
    files = f"ulimit -n {process.files} 2>/dev/null; " if process.files else ""
    running = "|".join((f"-i {osd} ", f"-i{osd} ", f"--id[ =]{osd} ", rf"(-n|--name)[ =]osd\.{osd} "))
    return (
        "r=; for p in /proc/[0-9]*; do c=; { read -r c < $p/comm; } 2>/dev/null; "
        f'if [ "$c" = ceph-osd ] && tr "\\0" " " < $p/cmdline 2>/dev/null | grep -Eq -e {shlex.quote(running)}; '
        f'then r=1; fi; done; [ -n "$r" ] || ( cd {shlex.quote(process.folder)} 2>/dev/null || cd /; {files}{line} )'
    )


def by_node(daemons: Mapping[int, Daemon]) -> Dict[str, List[Daemon]]:
    """node -> its daemons."""
    nodes: Dict[str, List[Daemon]] = {}
    for daemon in daemons.values():
        nodes.setdefault(daemon.node, []).append(daemon)
    return nodes
