"""Our shell programs as commands for nodes, and folders there that nobody else can write."""

from __future__ import annotations

import errno
import shlex
import subprocess
from functools import cache
from pathlib import Path

from cbt_plugins import daemon_programs


@cache
def program_text(path: Path) -> str:
    """Return a shell program of ours without its comments; the functions take the place of `. ./ceph_processes.sh`."""
    lines = path.read_text(encoding="utf-8").splitlines()
    code = (line for line in lines if line.strip() and not line.lstrip().startswith("#"))
    return "".join(_ceph_processes() if line == ". ./ceph_processes.sh" else f"{line}\n" for line in code)


def _ceph_processes() -> str:
    """Return shell lines that define `daemon_program PID` and the functions of ceph_processes.sh."""
    renamed = "".join(
        f"    {begin}*) daemon_program={program}; grep -q {program} /proc/$1/cmdline || daemon_program= ;;\n"
        for begin, program in daemon_programs.RENAMED.items()
    )
    return (
        "daemon_program() {\n"
        '  daemon_program=; { read -r daemon_program < "/proc/$1/comm"; } 2>/dev/null\n'
        "  case $daemon_program in\n"
        f"    {'|'.join(daemon_programs.TYPES)}) ;;\n{renamed}"
        "    *) daemon_program= ;;\n"
        "  esac 2>/dev/null\n"
        "}\n" + program_text(Path(__file__).with_name("ceph_processes.sh"))
    )


#: defines the shell function `own_folder`
OWN_FOLDER = program_text(Path(__file__).with_name("own_folder.sh"))
#: its status for a folder that others could change, and for one that is missing
REFUSED, _MISSING = 77, 3


def make_own(*folders: str) -> str:
    """Return shell lines that make folders on a node; they end the shell where others could write or replace one."""
    return OWN_FOLDER + "".join(f"own_folder {shlex.quote(folder)} make || exit\n" for folder in folders)


def find_own(folder: str) -> str:
    """Return shell lines that end the shell: with status 0 where there is no such folder, else as `make_own` does."""
    return f"{OWN_FOLDER}own_folder {shlex.quote(folder)} look || exit $(($? == {_MISSING} ? 0 : $?))\n"


def own_here(
    folder: Path, action: str = "make", alternative: str = "set XDG_CACHE_HOME to a folder of your own"
) -> None:
    """Make a folder on this machine, or "look" at one; `alternative`: what else the user can do.

    Raises PermissionError where others could write or replace it.
    """
    remedy = f"forbid other users to write it (chmod go-w), or {alternative}"
    line = f"{OWN_FOLDER}own_folder {shlex.quote(str(folder.absolute()))} {action} {shlex.quote(remedy)}"
    done = subprocess.run(["sh", "-c", line], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        why = "leads to a folder that is missing" if done.returncode == _MISSING else "cannot be made"
        raise PermissionError(errno.EPERM, done.stderr.strip() or f"{folder} {why}")


def script_command(path: Path, *words: str) -> str:
    """Return the command that runs a shell program of ours on a node; `words` are its arguments."""
    text = program_text(path)
    text = f"#!/bin/sh\n{OWN_FOLDER if 'own_folder ' in text else ''}{text}"
    return " ".join(["sh", "-c", *map(shlex.quote, (text, path.name, *words))])


def subject_of(command: str) -> str:
    """Return the name of a command in errors: its first line that has one, or our script and its arguments."""
    if command.startswith("sh -c '#!"):
        return " ".join(shlex.split(command)[3:])[:120]
    lines = (line.strip() for line in command.replace(OWN_FOLDER, "").splitlines())
    return next((line for line in lines if line and not line.startswith(("#", "own_folder "))), command)[:120]
