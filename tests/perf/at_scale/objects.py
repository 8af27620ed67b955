"""What cbt-load needs for each object of a driver: it lists 10^5 to 10^8 of them on a server that keeps nothing.

Then it reads, writes and deletes them for SECONDS. `state` is the file from which it goes on after a kill; without the
file it lists again.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Dict, Iterator

import memory

from .costs import Curves, Extent, cbt_load, cpu_of

SIZES, LONG_SIZES = (100_000, 1_000_000, 10_000_000), (100_000_000,)
SECONDS = 10.0
BYTES = 4096


def main(extent: Extent) -> None:
    program = cbt_load()
    if program is None:
        return
    print(f"  memory of cbt-load, CPU seconds of its listing, its state file; requests in the {SECONDS:g} s after that")
    curves = Curves("objects", {"MB": ".1f", "list cpu s": ".2f", "state MB": ".2f", "requests": ",.0f"})
    for objects in extent.sizes(SIZES, LONG_SIZES):
        with tempfile.TemporaryDirectory() as scratch:
            curves.add(objects, **_costs(Path(scratch), str(program), objects))
    curves.end()


def _costs(folder: Path, program: str, objects: int) -> Dict[str, float]:
    with null_server(program, objects) as host:
        spec = {**memory.specification(host, SECONDS), "state_out": str(folder / "state")}
        for op in spec["ops"]:  # type: ignore[attr-defined]
            op["select"] = op["select"].replace(str(memory.KEYS), str(objects))
        (folder / "spec.json").write_text(json.dumps(spec))
        messages, secrets = (folder / "messages").open("w"), {**os.environ, **memory.SECRETS}
        line = [program, "run", str(folder / "spec.json")]
        load = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=messages, text=True, env=secrets)
        assert load.stdout
        load.stdout.readline()  # names of the columns
        load.stdout.readline()  # the first request after the listing
        listing = cpu_of(load.pid)
        requests, peak, looked = 0, 0.0, 0.0
        for _ in load.stdout:
            requests += 1
            if time.monotonic() > looked + 0.5:
                looked, peak = time.monotonic(), max(peak, memory.resident(load.pid))
        assert load.wait() == 0, (folder / "messages").read_text()[-2000:]
    state = (folder / "state").stat().st_size / 1e6 if (folder / "state").exists() else float("nan")
    return {"MB": peak, "list_cpu_s": listing, "state_MB": state, "requests": requests}


@contextlib.contextmanager
def null_server(program: str, objects: int) -> Iterator[str]:
    """Serve while the context is open, with so many objects in each listing; give HOST:PORT."""
    serve = [program, "null", "--listen", "127.0.0.1:0", "--size", str(BYTES), "--keys", str(objects)]
    server = subprocess.Popen(serve, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert server.stderr
    try:
        yield server.stderr.readline().rpartition("http://")[2].strip()
    finally:
        server.kill()
        server.wait()
