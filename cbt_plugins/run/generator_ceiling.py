"""Ceilings of the load generators: their rates without a cluster, against an S3 server that stores nothing.

The server runs beside its generator, on the same node: its own work makes a ceiling a little too low, never too high.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import shlex
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Dict, Iterator, List, Mapping, Sequence
from urllib.parse import urlsplit

from cbt_plugins.cluster.remote import RemoteError
from cbt_plugins.cluster.s3_keys import S3Keys
from cbt_plugins.config.generator_classes import has_ceiling, wants_ceiling
from cbt_plugins.journal import read_json, write_json
from cbt_plugins.load.generator import CBT_LOAD, Counts, JobEnd, LoadJob, LoadStart, Memory, generator_of
from cbt_plugins.load.load_session import Agents, LoadError, LoadOrders, LoadSession
from cbt_plugins.load.worker_groups import WorkerGroup, by_share, fixed
from cbt_plugins.plan import Goal, Keys, Payload, Phase, Plan
from cbt_plugins.programs import NULL_SERVER, cache_dir, own_program
from cbt_plugins.run.context import CEILING, LOAD, RunContext
from cbt_plugins.run.preflight import Ready, paths_on_clients

log = logging.getLogger(__name__)

#: seconds of a trial, and of one of large objects
TRIAL, LARGE_TRIAL = 2.0, 5.0
_LARGE = 1 << 20
#: objects that the server says it has; DELETEs take any of them, again and again
_OBJECTS = 10_000
#: fewer requests for each worker are no rate
_LEAST = 2
#: entries of the file of what was measured before; the oldest go first
_MOST_KEPT = 500
#: stands for the address of a server until there is one
_NOBODY = "127.0.0.1:0"
#: processes of a driver at most: warp has one for each loop of a mix
_MOST_JOBS = 5
#: a number: prints so many ports of loopback that nobody has
_PORTS = (
    "import socket, sys; found = [socket.socket() for _ in range(int(sys.argv[1]))]; "
    "[one.bind(('127.0.0.1', 0)) for one in found]; print(*(one.getsockname()[1] for one in found))"
)


@dataclass(frozen=True)
class CeilingTrial:
    """The load of one or several phases, as it is made against the null server."""

    phase: Phase
    plan: Plan

    @classmethod
    def of(cls, plan: Plan, phase: Phase, payload: Payload) -> CeilingTrial:
        """Return the load of a phase without its rate and its events, for some seconds."""
        large = any(low >= _LARGE for bucket in plan.buckets for low, _, _ in bucket.sizes)
        seconds = LARGE_TRIAL if large else TRIAL
        trial_phase = replace(
            phase, name="ceiling", duration=seconds, ramp=0.0, warmup=0.0, events=(), keys={}, roles={}
        )
        trial_phase = replace(trial_phase, rate=None, rate_share=None, ladder=None)
        again = {"DELETE": Keys(f"u(1,{_OBJECTS})", absent=True)}  # the null server has them for ever
        works = (replace(each, rate=None, keys=again if "DELETE" in each.mix else {}) for each in phase.works)
        trial_phase = replace(trial_phase, works=tuple(works))
        if phase.kind == "fill":
            trial_phase = replace(trial_phase, duration=None, goal=Goal(duration=seconds))
        elif phase.kind == "delete":
            trial_phase = replace(trial_phase, kind="hybrid", mix={"DELETE": 100.0})
        if "keys" in generator_of(phase.engine).known_keys and (trial_phase.mix or {}).get("DELETE"):
            trial_phase = replace(trial_phase, keys=again)
        workers = int(phase.ladder.highest) if phase.ladder and phase.ladder.unit == "workers" else None
        buckets = None if phase.works else 1  # works differ by their buckets
        url = f"{urlsplit(plan.s3.urls[0]).scheme}://{_NOBODY}"
        s3 = replace(plan.s3, urls=(url,), payload=payload, lookup="path", verify_tls=False, ca_file=None)
        return cls(
            trial_phase,
            replace(
                plan,
                s3=replace(s3, host_select="weighed"),
                drivers=tuple(
                    replace(d, workers=workers or d.workers, buckets=d.buckets[:buckets]) for d in plan.drivers
                ),
                buckets=tuple(replace(bucket, existing=False, user="") for bucket in plan.buckets),
                cbt_load=replace(plan.cbt_load, verify=False, seed=1),  # what the server gives was written by nobody
                phases=(),
            ),
        )

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return (self.phase.goal.duration if self.phase.goal else self.phase.duration) or TRIAL

    def shape(self, nodes: Sequence[str]) -> Dict[str, Any]:
        """Return the properties that its rates depend on, as far as these nodes are concerned."""
        sizes = {bucket.key: bucket.sizes for bucket in self.plan.buckets}
        drivers = [d for d in self.plan.drivers if d.node in nodes]
        return {
            "phase": {**dataclasses.asdict(self.phase), "role": ""},
            "drivers": [[d.node, d.workers, [sizes[key] for key in d.buckets]] for d in drivers],
            "cbt_load": dataclasses.asdict(self.plan.cbt_load),
            "payload": [self.plan.s3.payload, self.plan.s3.sse],
            "url": self.plan.s3.urls[0],
        }

    def jobs(self, nodes: Sequence[str], ports: Mapping[str, Iterator[int]]) -> List[LoadJob]:
        """Return the jobs on these nodes, each beside a server of its own on one of the node's ports."""
        plan = replace(self.plan, drivers=tuple(d for d in self.plan.drivers if d.node in nodes))
        names = {bucket.key: f"null-{number}" for number, bucket in enumerate(plan.buckets)}
        # listed: the server says what there is
        start = LoadStart(worker_groups=self._groups(), memory=Memory(stale=True))
        generator = generator_of(self.phase.engine)(plan, names, "null")
        return [self._beside(job, ports) for job in generator.jobs(self.phase, start)]

    def _groups(self) -> Dict[str, List[WorkerGroup]]:
        mix, workers = self.phase.mix, self.phase.workers
        if self.phase.kind != "hybrid" or mix is None or not generator_of(self.phase.engine).worker_groups:
            return {}
        return {d.id: fixed(mix, workers) if workers else by_share(mix, d.workers) for d in self.plan.drivers}

    def _beside(self, job: LoadJob, ports: Mapping[str, Iterator[int]]) -> LoadJob:
        address = f"127.0.0.1:{next(ports[job.node])}"
        size = max(1, round(sum((low + high) / 2 * share for low, high, share in job.sizes)))
        server = [CBT_LOAD, "null", "--listen", address, "--keys", str(_OBJECTS), "--size", str(size)]
        server += ["--tls"] if self.plan.s3.urls[0].startswith("https:") else []
        argv = (word.replace(_NOBODY, address) for word in job.argv)
        url = self.plan.s3.urls[0].replace(_NOBODY, address)
        job = generator_of(self.phase.engine).beside_null_server(job, url, size)
        return replace(job, argv=(*server, "--", *argv))


@dataclass(frozen=True)
class _Kept:
    """What was measured before on this machine's clients: key -> {"at", "nodes"}."""

    path: Path

    def read(self) -> Dict[str, Any]:
        try:
            entries = read_json(self.path)
        except (OSError, ValueError):
            return {}
        return entries if isinstance(entries, dict) else {}

    def add(self, new: Mapping[str, Any]) -> None:
        every = {**self.read(), **new}
        kept = sorted(every, key=lambda key: -every[key]["at"])[:_MOST_KEPT]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.path, {key: every[key] for key in kept}, mode=0o600)


class GeneratorCeilings:
    """Measures, once for each node, binary and shape of load, and keeps that for later runs."""

    def __init__(self, run: RunContext, ready: Ready, agents: Agents) -> None:
        self._run, self._ready, self._agents = run, ready, agents
        facts = ready.manifest["nodes"]
        #: machine -> its clients: they share processors
        self._machines: Dict[str, List[str]] = {}
        for node in run.clients:
            self._machines.setdefault(facts[node].get("boot") or node, []).append(node)
        self._kept = _Kept(cache_dir() / "generator-ceilings.json")
        self._trials = 0

    def measure(self) -> None:
        """Write generator.json of the archive, unless it is there or nobody wants it. A failure is logged."""
        run = self._run
        if not wants_ceiling(run.plan) or run.archive.generator.exists():
            return
        try:
            phases = self._phases()
        except (LoadError, RemoteError, OSError) as error:
            log.warning("the ceilings of the load generators are unknown: %s", error)
            return
        write_json(run.archive.generator, {"phases": phases})

    def _phases(self) -> Dict[str, Any]:
        ceilings: Dict[str, Any] = {}
        done: Dict[str, Dict[str, Any]] = {}
        for phase in (phase for phase in self._run.plan.phases if has_ceiling(phase)):
            trial = CeilingTrial.of(self._run.plan, phase, self._ready.manifest["payload"][phase.engine])
            shape = json.dumps(trial.shape(self._run.clients), sort_keys=True)
            if shape not in done:
                done[shape] = self._nodes(trial)
                rates = ", ".join(f"{node} {ceiling['requests_per_s']:,.0f}/s" for node, ceiling in done[shape].items())
                log.info("ceiling of the generators in %s: %s", phase.name, rates or "not known")
            ceilings[phase.name] = {"seconds": trial.seconds, "nodes": done[shape]}
        return ceilings

    def _nodes(self, trial: CeilingTrial) -> Dict[str, Any]:
        kept, keys = self._kept.read(), {boot: self._key(trial, boot) for boot in self._machines}
        nodes = [node for boot, key in keys.items() if key not in kept for node in self._machines[boot]]
        ceilings = self.try_out(trial, nodes) if nodes else {}
        new = {
            key: {"at": time.time(), "nodes": {node: ceilings[node] for node in self._machines[boot]}}
            for boot, key in keys.items()
            if key not in kept and all(node in ceilings for node in self._machines[boot])
        }
        if new:
            self._kept.add(new)
        for key in keys.values():
            ceilings.update(kept[key]["nodes"] if key in kept else {})
        return {node: ceilings[node] for node in self._run.clients if node in ceilings}

    def _key(self, trial: CeilingTrial, boot: str) -> str:
        """Return the mark of a machine since its boot, of the programs on it, and of the load of its nodes."""
        manifest, nodes = self._ready.manifest, self._machines[boot]
        programs = {}
        on_clients = paths_on_clients(self._run.plan)
        for name in (NULL_SERVER, "cbt-rows", generator_of(trial.phase.engine).program):
            source = None if name in on_clients else own_program(name)
            programs[name] = hashlib.sha256(source.read_bytes()).hexdigest() if source else str(manifest.get(name))
        cores = [manifest["nodes"][node].get("cores") for node in nodes]
        text = json.dumps([boot, cores, programs, trial.shape(nodes)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def try_out(self, trial: CeilingTrial, nodes: Sequence[str]) -> Dict[str, Any]:
        """Run a trial on all of these nodes at once. Raises LoadError and RemoteError."""
        most = len(trial.plan.drivers) * _MOST_JOBS
        answers = self._run.remote.run(nodes, f"python3 -I -c {shlex.quote(_PORTS)} {most}")
        jobs = trial.jobs(
            nodes, {node: iter([int(n) for n in result.stdout.split()]) for node, result in answers.items()}
        )
        ends = self._ends(trial, jobs)
        ceilings = {}
        for node in nodes:
            job_ends = [ends[job.id] for job in jobs if job.node == node and job.id in ends]
            failed = [end.message for end in job_ends if end.died]
            counts = sum((count for end in job_ends for count in end.counts.values()), Counts())
            lasted = (counts.last or 0.0) - (counts.first or 0.0)
            workers = sum(job.workers for job in jobs if job.node == node)
            if failed or lasted <= 0 or counts.good < _LEAST * workers:
                why = failed[0] if failed else f"{counts.good} requests by {workers} workers"
                log.warning("%s: the ceiling of its load generator is unknown: %s", node, why)
                continue
            beside = [
                neighbour for boot in self._machines.values() if node in boot for neighbour in boot if neighbour != node
            ]
            ceilings[node] = {
                "requests_per_s": round(counts.good / lasted, 3),
                "mib_per_s": round(counts.size / lasted / 2**20, 3),
                "measured_at": round(time.time(), 3),
                "beside": beside,
            }
        return ceilings

    def _ends(self, trial: CeilingTrial, jobs: Sequence[LoadJob]) -> Dict[str, JobEnd]:
        self._trials += 1
        run, ready = self._run, self._ready
        name = f"{run.run_id}{CEILING}{len(run.journal.all('invocation'))}.{self._trials}"
        orders = LoadOrders(
            tuple(jobs),
            ready.programs,
            S3Keys("null", "null-secret").environment(sse=run.plan.s3.sse),
            ready.offsets,
            duration=trial.seconds + generator_of(trial.phase.engine).overlap,
            phase="ceiling",
        )
        session = LoadSession(self._agents, str(PurePosixPath(run.cbt_run.run_dir) / LOAD / name), orders)
        try:
            session.start()
            while not session.over:
                for _ in session.beats(0.5):
                    pass
                if session.go_at is None and session.all_ready:
                    session.go()
        except BaseException:
            session.break_off()
            raise
        with tempfile.TemporaryDirectory() as nowhere:
            session.collect(Path(nowhere))
        return session.ends()
