"""A dead man's switch: a node heals itself after a while, although nobody asks it to.

It is armed on the node before a fault that may cut us off, as a timer of systemd where systemd runs, else as a process
of its own; it is known by pid and start time, and disarmed only after the regular undo.
"""

from __future__ import annotations

import re
import shlex
from typing import Optional

from cbt_plugins.faults.fence import FOLDER

#: seconds after which an attempt to heal is given up, and made once more: nobody else could
ATTEMPT = 10.0

_STARTED = "started() { sed 's/.*) //' \"/proc/$1/stat\" 2>/dev/null | cut -d' ' -f20; }; "


def arm(name: str, heal: str, seconds: float) -> str:
    """Shell text that leaves `heal` to run in so many seconds; says "armed systemd UNIT" or "armed process PID START".

    `heal` is tried several times; it must be harmless when nothing is broken.
    """
    # what hangs is ended as a group of its own; `disarm` ends the group that waits for it
    attempt = f"timeout -k 5 {ATTEMPT:g} sh -c {shlex.quote(heal)} & p=$!; wait $p && p= || {{ p=; false; }}"
    script = (
        f"p=; trap '${{p:+kill $p}}; exit' TERM; n=0; until {{ {attempt}; }}; do "
        'n=$((n+1)); [ $n -lt 30 ] || break; sleep 2; done; date +%s.%N > "$1.fired"'
    )
    unit = f"cbt-plugins-{name}"
    return (
        f'{_STARTED}{FOLDER}; f="$d/{name}"; printf %s {shlex.quote(script)} > "$f.heal"; rm -f "$f.fired"; '
        "if [ -d /run/systemd/system ]; then "
        f"systemd-run --quiet --unit={unit} --on-active={seconds:g} --timer-property=AccuracySec=1s "
        f'/bin/sh "$f.heal" "$f" && echo "systemd {unit}" > "$f.armed"; '
        "else "
        f'setsid sh -c \'sleep "$1"; exec sh "$2.heal" "$2"\' sh {seconds:g} "$f" </dev/null >/dev/null 2>&1 & '
        # only the leader of its own group can be ended as a whole
        'p=$!; g=; n=0; until [ "$g" = $p ] || [ $n -ge 100 ]; do n=$((n+1)); sleep 0.02; '
        "g=$(sed 's/.*) //' /proc/$p/stat 2>/dev/null | cut -d' ' -f3); done; "
        's=$(started $p); [ "$g" = $p ] && [ -n "$s" ] && echo "process $p $s" > "$f.armed"; fi; '
        'read -r a < "$f.armed" && echo "armed $a"'
    )


def disarm(name: str) -> str:
    """Shell text that takes the switch away; `fired` reads what it prints. Nothing to do is no error."""
    return (
        f'{_STARTED}{FOLDER}; f="$d/{name}"; [ ! -e "$f.fired" ] || echo "fired $(cat "$f.fired") $(date +%s.%N)"; '
        'if read -r how a b 2>/dev/null < "$f.armed"; then '
        # a service that is just healing is left to its end; the timer alone is stopped
        'if [ "$how" = systemd ]; then systemctl stop "$a.timer" 2>/dev/null; '
        'elif [ "$(started "$a")" = "$b" ]; then kill -TERM "-$a"; fi; fi; '
        'rm -f "$f.armed" "$f.heal" "$f.fired"; true'
    )


def fired(said: str) -> Optional[float]:
    """Seconds before `disarm` at which the switch had healed the node, by the node's own clock; None: it had not."""
    found = re.search(r"^fired (\d+\.\d+) (\d+\.\d+)$", said, re.MULTILINE)
    return max(0.0, float(found[2]) - float(found[1])) if found else None


def is_disarmed(name: str) -> str:
    """Shell text that prints "disarmed" when nothing is left of the switch."""
    timer = f"systemctl is-active --quiet cbt-plugins-{name}.timer 2>/dev/null"
    return f'{FOLDER}; [ -e "$d/{name}.armed" ] || {timer} || echo disarmed'
