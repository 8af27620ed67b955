"""Shell text for nodes: the .sh programs of this room, commands that never run after their undo, dead man's switch.

On each node the commands of a step run one at a time, and no command begins after its undo. A run may be killed while
its command is on the way to a node, or running on it. The undo then waits for the end of a running command, and leaves
a mark that stops a command which has not begun yet.

A dead man's switch lets a node recover by itself after a deadline, without any command from outside. It is armed on the
node before a fault that may cut us off, and disarmed only after the regular undo. It is known by pid and start time.
"""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Dict, Optional

from cbt_plugins.cluster.shell_programs import program_text
from cbt_plugins.faults.step import FaultError

#: folder of our state on a node until it boots: below /run, or below /tmp for a user who may not write there. The name
#: is short, since a user may have to type it. Both parents belong to root, and other users cannot replace the folder.
FOLDER = (
    'd=/run/cbt-plugins; [ -w /run ] || d="/tmp/cbt-plugins-$(id -u)"; mkdir -m 700 "$d" 2>/dev/null; '
    '[ "$(LC_ALL=C stat -c "%u %a %F" "$d")" = "$(id -u) 700 directory" ] '
    '|| { echo "the folder $d must belong to this user and have mode 700: remove the folder as root" >&2; exit 77; }'
)
#: exit status of a command whose undo ran first
TOO_LATE = 75
#: seconds after which a dead man's switch stops an attempt and tries again
ATTEMPT = 10.0
#: seconds between two attempts
PAUSE = 2.0


def _checked(name: str) -> str:
    """Return a checked file name for nodes; it may come from an archive. Raises FaultError for shell characters."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
        raise FaultError(f"{name!r} is not the name of a step")
    return name


def _text(program_name: str) -> str:
    return program_text(Path(__file__).parent / f"{program_name}.sh").rstrip("\n")


def programs() -> Dict[str, str]:
    """Return the .sh programs of this room by file name, as nodes get them."""
    return {path.name: _text(path.stem) for path in sorted(Path(__file__).parent.glob("*.sh"))}


def script_text(program_name: str, **values: object) -> str:
    """Return the text of a .sh program of this room with its variables set."""
    return "; ".join(f"{name}={shlex.quote(str(value))}" for name, value in values.items()) + "\n" + _text(program_name)


def in_folder(program_name: str, **values: object) -> str:
    """Return the text of a .sh program that keeps files in `FOLDER`, as a subshell."""
    return f"( {FOLDER}; {script_text(program_name, **values)}\n)"


@cache
def agent_text(program: str = "process_agent") -> str:
    """Return the text of a Python program of this room without comments and docstrings, which journals do not need."""
    tree = ast.parse((Path(__file__).parent / f"{program}.py").read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return "\n".join(line for line in ast.unparse(tree).splitlines() if line)


def agent(verb: str, *words: str, program: str = "process_agent") -> str:
    """Return shell text that runs a Python program of this room with a verb and arguments."""
    return shlex.join(["python3", "-I", "-c", agent_text(program), verb, *words])


def sudo(text: str) -> str:
    """Return the command as root: through sudo where the user is not root."""
    return f'c={shlex.quote(text)}; [ "$(id -u)" = 0 ] && exec sh -c "$c" || exec sudo -n sh -c "$c"'


def fenced_inject(name: str, text: str, wait: float) -> str:
    """Return a step's command, which fails if its undo has begun. `name` is unique to the step and its run."""
    guarded = f'[ ! -e "$0" ] || exit {TOO_LATE}; {text}'
    return f'{FOLDER} && exec flock -o -w {wait:g} "$d/lock" sh -c {shlex.quote(guarded)} "$d/{_checked(name)}.undone"'


def fenced_undo(name: str, text: str, wait: float, mark: bool) -> str:
    """Return a step's undo, which waits for the end of the step's command. `mark`: the command may still be running.

    After `wait` seconds the undo runs without the lock. It does so at once if the folder is not ours: no command of
    ours begins on such a node.
    """
    left = f': > "$d/{_checked(name)}.undone"; ' if mark else ""
    locked = f'flock -o -w {wait:g} -E 74 "$d/lock" sh -c "$t"; s=$?; [ $s != 74 ] || exec sh -c "$t"; exit $s'
    return f't={shlex.quote(text)}; ( {FOLDER}; ) || exec sh -c "$t"; {FOLDER}; {left}{locked}'


def arm_text(name: str, recovery: str, seconds: float) -> str:
    """Return shell text that runs `recovery` after some seconds; it prints "armed systemd UNIT" or "armed process ...".

    `recovery` is tried several times; without a fault in force it must change nothing.
    """
    program = script_text("dead_man_fire", recovery=recovery, attempt=f"{ATTEMPT:g}", pause=f"{PAUSE:g}")
    return in_folder("dead_man_arm", action="arm", name=name, program=program, seconds=f"{seconds:g}")


def disarm(name: str) -> str:
    """Return shell text that disarms the switch; `fired` parses its output."""
    return in_folder("dead_man_arm", action="disarm", name=name)


def fired(output: str) -> Optional[float]:
    """Return the seconds between the firing of the switch and `disarm`, by the node's clock; None: it has not fired."""
    match = re.search(r"^fired (\d+\.\d+) (\d+\.\d+)$", output, re.MULTILINE)
    return max(0.0, float(match[2]) - float(match[1])) if match else None


def is_disarmed(name: str) -> str:
    """Return shell text that prints "disarmed" when no part of the switch is left."""
    timer = f"systemctl is-active --quiet cbt-plugins-{name}.timer 2>/dev/null"
    return f'{FOLDER}; [ -e "$d/{name}.armed" ] || {timer} || echo disarmed'
