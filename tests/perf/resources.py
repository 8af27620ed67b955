"""What the resources monitor's agent takes of a processor beside 24 OSDs and 2000 other processes: idle stand-ins,
but each OSD works a little, since the threads of one that does nothing are not read.

Needs root (a process namespace of its own) and a minute; SECONDS in the environment changes that.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

AGENT = Path(__file__).resolve().parents[2] / "monitors" / "resources_agent.py"
THREADS = """\
import threading, time
for _ in range(60): threading.Thread(target=time.sleep, args=(9999,), daemon=True).start()
while True:
    time.sleep(0.5)
    sum(range(10**5))
"""
INSIDE = """\
for i in $(seq 24); do ./ceph-osd -S -c "$THREADS" --id "$i" & done
for _ in $(seq 2000); do sleep 9999 & done
sleep 5
sleep "$1" | "$2" "$3" 1 >samples.jsonl
"""


def main() -> None:
    seconds = float(os.environ.get("SECONDS", 60))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "ceph-osd").symlink_to(os.path.realpath(sys.executable))
        apart = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child=KILL", "bash", "-c", INSIDE]
        line = [*apart, "bash", str(seconds), sys.executable, str(AGENT)]
        subprocess.run(line, cwd=folder, env={**os.environ, "THREADS": THREADS}, check=True)
        lines = [json.loads(line) for line in (Path(folder) / "samples.jsonl").read_text().splitlines()]
        size = (Path(folder) / "samples.jsonl").stat().st_size
    number = len(lines[1]["names"]["d"]) - 1
    its = next(i for i, about in lines[1]["names"]["d"].items() if about["class"] == "monitor")
    samples = [line for line in lines if "s" in line]
    ticks = sum(row[1] for line in samples for row in line["d"] if row[0] == int(its))
    lasted = samples[-1]["t"] - lines[0]["t"]
    print(f"{number} daemons, {lasted:.0f} s, {len(samples)} samples of {size / len(samples):.0f} bytes")
    print(f"processor: {lines[-1]['cpu']:.2f} s with the start of Python and the first look at all processes,")
    print(f"  {100 * ticks / lines[0]['hz'] / lasted:.2f} % of a core since the first sample")


if __name__ == "__main__":
    main()
