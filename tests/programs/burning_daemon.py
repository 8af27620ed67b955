"""A process that a monitor takes for an OSD, and that uses a processor; what monitors see of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, Tuple

from waiting import wait_for

ID = str(os.getpid())  # the monitor sees all processes here, those of other tests too
# Uses one processor for so many seconds of its time, says when, and stays.
BURN = """\
import sys, time
begin = time.time()
while time.process_time() < float(sys.argv[1]):
    pass
print(begin, time.time(), time.process_time(), flush=True)
sys.stdin.read()
"""


class Daemon:
    """A process that is called ceph-osd, and uses a processor for some seconds."""

    def __init__(self, folder: Path, id: str, seconds: float) -> None:
        program = folder / "ceph-osd"
        if not program.exists():
            program.symlink_to(os.path.realpath(sys.executable))
        self.process = subprocess.Popen(
            [str(program), "-S", "-c", BURN, str(seconds), "--id", id],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def hold(self) -> None:
        """Let it use no processor until `go`. A process that has stopped is the program, and not yet to become it."""
        self.process.send_signal(signal.SIGSTOP)
        stat = Path(f"/proc/{self.process.pid}/stat")
        wait_for(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "the process to stop")

    def go(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def burnt(self) -> Tuple[float, float, float]:
        """When it began and ended, and its processor's time by its own clock."""
        assert self.process.stdout is not None
        begin, end, used = map(float, self.process.stdout.readline().split())
        return begin, end, used

    def total(self) -> float:
        """All processor time that it has used, its start included, as the kernel says."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def closed(processes: Any) -> Iterator[None]:
    """Close the files of all daemons that are found: labs beside these tests have a thousand threads."""
    try:
        yield
    finally:
        for process in processes.watched.values():
            process.close()
