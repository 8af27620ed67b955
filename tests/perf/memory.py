"""Whether memory grows with the run: cbt-load into cbt-rows, as on a client, on a server that keeps nothing.

Prints requests so far and the resident memory of both. A day at 500 requests/s is 43 million.
Usage: ./run bench memory [MINUTES [SAMPLES]]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Dict

from cbt_plugins.programs import own_program

SIZE, WORKERS, KEYS = 4096, 16, 1_000_000
SHARES = {"GET": 60, "LIST": 1, "PUT": 20, "DELETE": 14, "STAT": 5}
SECRETS = {"AWS_ACCESS_KEY_ID": "benchmark", "AWS_SECRET_ACCESS_KEY": "benchmarkbenchmark"}


def resident(pid: int) -> float:
    """MiB; 0 when the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def specification(host: str, seconds: float) -> Dict[str, object]:
    """Reads, writes and deletes over the same keys: the set of objects stays as large as it is."""
    ops = [
        {"op": op, "share": share, "select": f"u(1,{KEYS})" if op in ("PUT", "DELETE") else "live", "spaces": ["all"]}
        for op, share in SHARES.items()
    ]
    space = {"name": "all", "bucket": "benchmark", "prefix": "memory/", "sizes": [[SIZE, SIZE, 1.0]], "rebuild": True}
    return {"version": 1, "hosts": [f"http://{host}"], "workers": WORKERS, "duration": seconds, "spaces": [space],
            "ops": ops}  # fmt: skip


def main() -> int:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    samples = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    cbt_load, rows = own_program("cbt-load"), own_program("cbt-rows")
    if cbt_load is None or rows is None:
        print("cbt-load or cbt-rows is missing: see `cbt-tools build`")
        return 1
    with tempfile.TemporaryDirectory() as scratch:
        serve = [cbt_load, "null", "--listen", "127.0.0.1:0", "--size", str(SIZE), "--keys", str(KEYS)]
        server = subprocess.Popen(serve, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert server.stderr
        try:
            host = server.stderr.readline().rpartition("http://")[2].strip()
            spec, aggregates = Path(scratch) / "spec.json", Path(scratch) / "aggregates"
            spec.write_text(json.dumps(specification(host, 60 * minutes)))
            load = subprocess.Popen([cbt_load, "run", spec], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                    env={**os.environ, **SECRETS})  # fmt: skip
            reduce = subprocess.Popen([rows, "reduce", "--beat", "-o", aggregates, "-"], stdin=load.stdout,
                                      stdout=subprocess.PIPE, text=True)  # fmt: skip
            assert load.stdout and reduce.stdout
            load.stdout.close()
            beat: Dict[str, int] = {}

            def listen() -> None:
                for line in reduce.stdout or ():
                    beat.update(json.loads(line))

            threading.Thread(target=listen, daemon=True).start()
            head = f"{'minutes':>8}{'requests':>14}{'cbt-load MiB':>16}{'cbt-rows MiB':>14}{'aggregates MB':>12}"
            print(head, flush=True)
            begun = time.monotonic()
            for number in range(1, samples + 1):
                time.sleep(max(0.0, begun + 60 * minutes * (number - 0.1) / samples - time.monotonic()))
                size = aggregates.stat().st_size / 1e6 if aggregates.exists() else 0.0
                print(f"{(time.monotonic() - begun) / 60:8.1f}{beat.get('rows', 0):14,}{resident(load.pid):16.1f}"
                      f"{resident(reduce.pid):14.1f}{size:12.2f}", flush=True)  # fmt: skip
            return load.wait() or reduce.wait()
        finally:
            server.kill()
            server.wait()


if __name__ == "__main__":
    sys.exit(main())
