"""`leftovers.py COMMAND...`: run a command and fail when it leaves a process, a mount or a network behind.

Whatever the command starts becomes a child of this program when its own parent ends (PR_SET_CHILD_SUBREAPER),
also with a scrubbed environment, in a session or in namespaces of its own. So what is left is known exactly,
without looking at names, and other people's processes are never counted. A namespace lives by a process or by
a mount: both are seen.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, List, Set

PR_SET_CHILD_SUBREAPER = 36
SETTLE_SECONDS = 5.0  # a process that was just told to end may need a moment
NAMESPACES = ("net", "pid", "mnt", "uts", "ipc", "user")


def descendants() -> List[int]:
    """Return the living processes below this one."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                break
        except ChildProcessError:
            return []
    parent: Dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if fields[0] != "Z":
                parent[int(entry.name)] = int(fields[1])
    ours: Set[int] = {os.getpid()}
    while True:
        children = {pid for pid, above in parent.items() if above in ours} - ours
        if not children:
            return sorted(ours - {os.getpid()})
        ours |= children


def described(pid: int) -> str:
    """Return `PID COMMAND LINE (namespaces of its own: net, pid)`."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ").strip()
        links = {name: os.readlink(f"/proc/{pid}/ns/{name}") for name in NAMESPACES}
    except OSError:
        return f"process {pid} (ended meanwhile)"
    own = [name for name, link in links.items() if link != os.readlink(f"/proc/self/ns/{name}")]
    return f"process {pid} {words[:150]}" + (f" (namespaces of its own: {', '.join(own)})" if own else "")


def things() -> Set[str]:
    """Return the mounts, network interfaces and named network namespaces of this machine."""
    lines = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    mounts = {f"mount {folder} ({kind})" for _, folder, kind, *_ in lines}
    interfaces = {f"network interface {path.name}" for path in Path("/sys/class/net").glob("*")}
    return mounts | interfaces | {f"network namespace {path.name}" for path in Path("/run/netns").glob("*")}


def end_all() -> None:
    """SIGKILL what is still below this process."""
    while True:
        left = descendants()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not left:
            return
        time.sleep(0.05)


def completed(argv: List[str]) -> int:
    """Run a command to its end; its exit status, negative when a signal ended it.

    What became a child of this program meanwhile is reaped as soon as it ends: a PID namespace cannot end before.
    """
    child = subprocess.Popen(argv)
    while child.returncode is None:
        pid, status = os.wait()
        if pid == child.pid:
            child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode


def main(argv: List[str]) -> int:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    before = things()
    try:
        status = completed(argv)
        deadline = time.monotonic() + SETTLE_SECONDS
        while (left := descendants()) and time.monotonic() < deadline:
            time.sleep(0.05)
        leftovers = [described(pid) for pid in left]
    finally:
        end_all()
    leftovers += sorted(things() - before)
    for line in leftovers:
        print(f"left behind: {line}", file=sys.stderr)
    print("leftovers: " + (f"{len(leftovers)}" if leftovers else "none"), file=sys.stderr)
    return (status if status >= 0 else 128 - status) or int(bool(leftovers))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
