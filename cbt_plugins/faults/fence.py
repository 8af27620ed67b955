"""No change after its undo: on each node a step's commands run one at a time, and none begins once it was undone.

A run may be killed while its command is on the way to a node, or at work there. The undo then waits for the command's
end, and leaves a mark that stops one which has not begun yet.
"""

from __future__ import annotations

import shlex

#: state of ours on a node until it boots; another place for a user who may not write there
FOLDER = 'd=/run/cbt-plugins; [ -w /run ] || d="/tmp/cbt-plugins-$(id -u)"; mkdir -p "$d" && chmod 700 "$d"'
#: exit status of a command that came too late
TOO_LATE = 75


def sudo(text: str) -> str:
    """The same as root, through sudo where we are not."""
    return f'c={shlex.quote(text)}; [ "$(id -u)" = 0 ] && exec sh -c "$c" || exec sudo -n sh -c "$c"'


def inject(name: str, text: str, wait: float) -> str:
    """A step's command, unless its undo has begun. `name` is unique to the step and its run."""
    guarded = f'[ ! -e "$0" ] || exit {TOO_LATE}; {text}'
    return f'{FOLDER} && exec flock -o -w {wait:g} "$d/lock" sh -c {shlex.quote(guarded)} "$d/{name}.undone"'


def undo(name: str, text: str, wait: float, mark: bool) -> str:
    """A step's undo, after its command. `mark`: the command is not known to have come to its end.

    A lock that is not to be had is no reason to leave things as they are.
    """
    left = f': > "$d/{name}.undone"; ' if mark else ""
    locked = f'flock -o -w {wait:g} -E 74 "$d/lock" sh -c "$t"; s=$?; [ $s != 74 ] || exec sh -c "$t"; exit $s'
    return f"t={shlex.quote(text)}; {FOLDER}; {left}{locked}"
