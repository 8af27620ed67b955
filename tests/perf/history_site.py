"""What a site of many nights costs: made from nothing, with one more night, and anew; time and memory.

Usage: ./run bench history_site [NIGHTS], 3000 unless it says so
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from inputs.nights import Nights

from cbt_plugins.results.summary_file import FILE


def look(nights: Nights, folder: Path, *options: str) -> str:
    """Make the site; returns time, processor time, and the largest process."""
    line = [sys.executable, "-m", "cbt_plugins.tools", "history", *nights.archives(), "-o", "site/", *options]
    begun = time.perf_counter()
    with (folder / "output").open("w") as output:
        process = subprocess.Popen(
            line, cwd=folder, env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}, stdout=output
        )
        _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"exit status {status}")
    took, processor = time.perf_counter() - begun, used.ru_utime + used.ru_stime
    cost = f"{took:6.1f} s, processor {processor:5.1f} s, {used.ru_maxrss / 1024:4.0f} MB"
    return f"{cost}: {(folder / 'output').read_text().strip()}"


def main() -> int:
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        nights = Nights(folder)
        nights.add(number)
        run = next((folder / "night-0000").glob("results/*/id-*"))
        files = [path for path in run.rglob("*") if path.is_file()]
        print(f"{number} nights; each {len(files)} files, {FILE} {(run / FILE).stat().st_size / 1e3:.0f} kB")
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
