"""The leading process of a phase with 10, 100 and 1000 drivers, five on each client: orders, beats, aggregates.

An `ssh` in PATH stands for clients: it takes the orders and says each second what an agent of DRIVERS drivers says that
make the five operations of a mix at 1000 requests a second each, with KB of aggregates. The session, the connections
and what follows them are the real ones.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, cast

from cbt_plugins.cluster.clock_offsets import Offset
from cbt_plugins.cluster.fan_out import Pending
from cbt_plugins.cluster.remote import Remote
from cbt_plugins.load.generator import LoadJob
from cbt_plugins.load.load_session import Agents, Beat, LoadOrders, LoadSession
from cbt_plugins.plan import S3, Phase, Plan
from cbt_plugins.run.load_observer import LoadObserver
from cbt_plugins.run.phase_outcome import PhaseOutcome

from .costs import Curves, Extent

sys.path.append(str(Path(__file__).parents[2]))

from run_context import context

SIZES = (10, 100, 1000)
DRIVERS = 5
#: seconds of load
SECONDS = 20.0
#: bytes of aggregates that a driver of 1000 requests a second leaves each second
AGGREGATES = 3600
_CLIENT = f"""\
#!{sys.executable} -SE
import base64, json, os, select, sys, time
text = base64.b64encode(bytes({AGGREGATES})).decode()
jobs, begin, end, counted = [], None, None, 0
def say(**message):
    os.write(1, json.dumps(message, separators=(",", ":")).encode() + b"\\n")
def beat(t):
    n = int(t - begin) if begin else 0
    counts = {{op: [200 * n, 0, 819200 * n, 10**9 * n, begin, t] for op in ("GET", "PUT", "STAT", "DELETE", "LIST")}}
    driver = {{"in_flight": 15, "oldest": 0.05, "hosts": {{"http://rgw%d:7480" % i: {{"up": True}} for i in (1, 2)}}}}
    about = {{"state": "running", "last_row": t, "counts": counts, "counted_at": t, "exit": None, "driver": driver}}
    return {{job: dict(about, error="", lost="") for job in jobs}}
due, rest = time.time() + 1, b""
while True:
    if select.select([0], [], [], max(0.0, min(due, end or due) - time.time()))[0]:
        data = os.read(0, 1 << 20)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\\n")
        for line in lines:
            try:
                order = json.loads(line)
            except ValueError:
                continue  # the text of the agent
            if "load" in order:
                jobs = [job["id"] for job in order["load"]["jobs"]]
                say(t=time.time(), ready=True)
            elif "go" in order:
                begin, end = order["go"], order["go"] + SECONDS
    now = time.time()
    if now < due and not (end and now >= end):
        continue
    due = max(due + 1, now) if now >= due else due
    if end and now >= end:
        last = {{"exit": 0, "signal": None, "cut": False, "passes": 1}}
        say(t=now, end={{"jobs": {{job: dict(last, counts=about["counts"]) for job, about in beat(now).items()}}}})
        end = None
        jobs = []
    elif jobs:
        say(t=now, jobs=beat(now), aggregates={{job: text for job in jobs}} if begin else {{}})
"""


def main(extent: Extent) -> None:
    logging.disable(logging.WARNING)
    print(f"  {SECONDS:.0f} s of load; CPU seconds of the leading process for orders, milliseconds for a driver's beat")
    print("  `cores`: for one beat of each driver a second, of which a busy machine sees fewer")
    print("  `between`: seconds from the end of the load to the begin of the next phase's load")
    formats = {"clients": ".0f", "orders s": ".2f", "between s": ".1f", "beats": ",.0f", "beat ms": ".3f"}
    formats.update({"cores": ".3f", "MB": ".0f"})
    curves = Curves("drivers", {**formats, "files": ".0f"})
    for size in extent.sizes(SIZES):
        with _stand_in() as folder:
            curves.add(size, **_costs(folder, size))
    curves.end()


@contextlib.contextmanager
def _stand_in() -> Iterator[Path]:
    before = os.environ["PATH"]
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "ssh").write_text(_CLIENT.replace("SECONDS", str(SECONDS)))
        (Path(name) / "ssh").chmod(0o755)
        os.environ["PATH"] = f"{name}:{before}"
        try:
            yield Path(name)
        finally:
            os.environ["PATH"] = before


def _costs(folder: Path, drivers: int) -> Dict[str, float]:
    clients = [f"client{number}" for number in range(max(1, drivers // DRIVERS))]
    jobs = tuple(_job(number, clients[number % len(clients)]) for number in range(drivers))
    remote = Remote.of_cluster({"user": "root", "clients": clients, "transport": "ssh"}, {})
    offsets = {client: Offset(0.0, 0.0) for client in clients}
    programs = {client: {"cbt-load": "/bin/cbt-load", "cbt-rows": "/bin/cbt-rows"} for client in clients}
    orders = LoadOrders(jobs, programs, {}, offsets, SECONDS, "age")
    with contextlib.closing(Agents(remote, clients, "/scratch")) as agents:
        session = LoadSession(agents, "/scratch/age", orders)
        begun = time.process_time()
        session.start()
        costs = {"clients": float(len(clients)), "orders_s": time.process_time() - begun}
        with contextlib.closing(_observer(folder, session, offsets)) as observer:
            costs.update(_follow(observer, session, drivers))
        following = LoadSession(agents, "/scratch/next", orders)
        following.start()
        shutil.rmtree(folder / "phase")
        with contextlib.closing(_observer(folder, following, offsets)) as observer:
            costs["between_s"] = _begun(observer, following) - (session.go_at or 0.0) - SECONDS
    shutil.rmtree(folder / "phase")
    return costs


def _follow(observer: LoadObserver, session: LoadSession, drivers: int) -> Dict[str, float]:
    """Follow the load to its end; return what a beat of a driver costs."""
    beats: List[int] = []
    take = observer.take

    def counting(beat: Beat) -> None:
        take(beat)
        beats.append(len(beat.aggregates))

    observer.take = counting  # type: ignore[method-assign]
    go_at = _begun(observer, session)
    while time.time() < go_at:
        observer.look()
    cpu, before, files = time.process_time(), sum(beats), 0
    while not session.over:
        observer.look()
        observer.show()
        files = max(files, len(os.listdir("/proc/self/fd")))
    number = sum(beats) - before
    used = (time.process_time() - cpu) / max(number, 1)
    written = sum(path.stat().st_size for path in (observer.folder / "aggregates").iterdir())
    assert written == sum(beats) * AGGREGATES, "aggregates were lost"
    status = Path("/proc/self/status").read_text()
    resident = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))
    costs = {"beats": float(number), "beat_ms": 1000 * used, "cores": used * drivers, "files": float(files)}
    return {**costs, "MB": resident / 1024}


def _begun(observer: LoadObserver, session: LoadSession) -> float:
    """Wait until all clients are ready; return when their load begins."""
    while session.go_at is None:
        observer.look()
        observer.begin_due()
    return session.go_at


def _observer(folder: Path, session: LoadSession, offsets: Dict[str, Offset]) -> LoadObserver:
    (folder / "phase").mkdir()
    plan = Plan("warp", S3(urls=("http://rgw1:7480",)), (), (), (Phase("age", "hybrid", duration=SECONDS),))
    watch: Any = SimpleNamespace(poll=lambda: (), latest=None)
    schedule: Any = SimpleNamespace(failure=None, begun=True, prepare=lambda: None)
    before: Pending[Dict[str, int]] = Pending(dict)
    outcome = PhaseOutcome(1, plan.phases[0])
    parts: List[Any] = [session, watch, schedule, folder / "phase", before]
    return LoadObserver(context(plan=plan), offsets, outcome, *cast(Any, parts))


def _job(number: int, client: str) -> LoadJob:
    spec = {"version": 1, "hosts": [f"http://rgw{gateway}:7480" for gateway in range(1, 9)], "workers": 15}
    name = f"{number:04}"
    about: Dict[str, Any] = {"op": "MIXED", "role": "cbt-load", "bucket": f"bucket{name}", "prefix": f"{name}/"}
    about.update(sizes=((4096, 4096, 1.0),), workers=15, urls=("http://rgw1:7480",), start="self", spec=spec)
    return LoadJob(name, name, client, argv=("{cbt-load}", "run", "{folder}/spec"), **about)
