"""What a site of many nights costs: made from nothing, with one more night, and anew; time and memory.

The sum of resident memory counts pages that processes share once for each process.

Usage: ./run bench history_site [NIGHTS], 3000 unless it says so
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import List

from inputs.nights import Nights

from cbt_plugins.results.summary_file import FILE


class Residents:
    """Samples the resident memory of a process and of its children in a thread of its own, ten times a second."""

    def __init__(self, pid: int) -> None:
        self.most = 0.0  # MB, the sum over all of them
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()

    def _sample(self) -> None:
        while not self._ended.wait(0.1):
            self.most = max(self.most, resident_of_tree(self._pid))

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


def resident_of_tree(pid: int) -> float:
    """Return MB; 0 when the process has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = [int(child) for path in Path(f"/proc/{pid}/task").iterdir() for child in children_of(path)]
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6 + sum(map(resident_of_tree, children))


def children_of(task: Path) -> List[str]:
    return (task / "children").read_text().split()


def look(nights: Nights, folder: Path, *options: str) -> str:
    """Make the site; returns time, processor time, the largest process, and the sum of the processes."""
    line = [sys.executable, "-m", "cbt_plugins.tools", "history", *nights.archives(), "-o", "site/", *options]
    begun = time.perf_counter()
    with (folder / "output").open("w") as output:
        process = subprocess.Popen(
            line, cwd=folder, env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}, stdout=output
        )
        residents = Residents(process.pid)
        _, status, used = os.wait4(process.pid, 0)
        residents.end()
    if status:
        sys.exit(f"exit status {status}")
    took, processor = time.perf_counter() - begun, used.ru_utime + used.ru_stime
    memory = f"largest process {used.ru_maxrss * 1024 / 1e6:4.0f} MB, all together {residents.most:4.0f} MB"
    cost = f"{took:6.1f} s, processor {processor:5.1f} s, {memory}"
    return f"{cost}: {(folder / 'output').read_text().strip()}"


def main() -> int:
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        nights = Nights(folder)
        nights.add(number)
        run = next((folder / "night-0000").glob("results/*/id-*"))
        files = [path for path in run.rglob("*") if path.is_file()]
        bytes_of_night = sum(path.stat().st_size for path in files)
        print(f"{number} nights; each {len(files)} files of {bytes_of_night / 1e3:.0f} kB together,", end=" ")
        print(f"{FILE} {(run / FILE).stat().st_size / 1e3:.0f} kB")
        print(f"from nothing    {look(nights, folder)}", flush=True)
        nights.add(1)
        print(f"one more night  {look(nights, folder)}", flush=True)
        print(f"no more night   {look(nights, folder)}", flush=True)
        size = sum(path.stat().st_size for path in (folder / "site").iterdir())
        index = sum(path.stat().st_size for path in (folder / "cache").rglob("*.index"))
        print(f"site {size / 1e6:.1f} MB, index {index / 1e6:.1f} MB")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
