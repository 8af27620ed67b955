"""The builder of archives with known numbers: rows, jobs, phases, runs, and the whole archives that tests ask for."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import shutil
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

import aggregates_writer
import yaml

from cbt_plugins.cbt import archive_layout
from cbt_plugins.results.summary_file import FILE, summarize, write_summary

COLUMNS = "idx thread op client_id n_objects bytes endpoint file error start first_byte end duration_ns cat"
HEADER = COLUMNS.replace(" ", "\t") + "\n"
DATA = Path(__file__).parent / "data"
T0 = 1_700_000_000  # 2023-11-14T22:13:20Z
NS = 10**9


def instant(ns: int) -> str:
    """RFC 3339 as Go prints it: no zeros at the end of the fraction."""
    seconds, fraction = divmod(ns, NS)
    return _second(seconds) + (f".{fraction:09d}".rstrip("0") if fraction else "") + "Z"


@cache
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")


def row(
    op: str, end: float, seconds: float, *, first: Optional[float] = None, idx: int = 0, **fields: Any
) -> str:
    """A row that ends `end` s after T0 and took `seconds`, with its first byte after `first` s; exact to the ns.

    `fields` are those of a Request: size, endpoint, error, thread, objects.
    """
    request = aggregates_writer.Request(op, T0 * NS + round(end * NS), round(seconds * NS), **fields)
    start = request.end - request.duration
    first_byte = "" if first is None else instant(start + round(first * NS))
    error = request.error
    if any(c in error for c in '"\t\n'):
        error = '"' + error.replace('"', '""') + '"'
    cells = [idx, request.thread, op, "", request.objects, request.size, request.endpoint, "keep/x/1.rnd", error]
    return "\t".join(map(str, [*cells, instant(start), first_byte, instant(request.end), request.duration, 0])) + "\n"


def steady(
    op: str,
    *,
    workers: int,
    seconds: float,
    latency: float,
    begin: float = 0.0,
    size: int = 0,
    first: Optional[float] = None,
) -> List[str]:
    """A closed loop without pauses: each worker ends a request every `latency` s; rows in the order of their
    ends.
    """
    return list(_steady(op, workers, seconds, latency, begin, size=size, first=first))


@lru_cache(maxsize=64)
def _steady(
    op: str, workers: int, seconds: float, latency: float, begin: float, **more: Any
) -> Tuple[str, ...]:
    """The same rows are asked for by many tests."""
    return tuple(
        row(op, begin + (i + 1) * latency, latency, thread=w, endpoint=f"http://rgw{w % 2 + 1}:7480", **more)
        for i in range(round(seconds / latency))
        for w in range(workers)
    )


def job(id: str, op: str, rows: Iterable[str], **more: Any) -> Dict[str, Any]:
    """An entry of phase.json's jobs with its rows beside it, under "_rows"."""
    text = list(rows)
    about = {
        "id": id,
        "driver": "01-4KiB",
        "node": "client1",
        "op": op,
        "role": "read",
        "bucket": "cbtp-1-4kib",
        "prefix": "keep",
        "sizes": [[4096, 4096, 1.0]],
        "workers": 2,
        "rate_limit": 0,
        "urls": ["http://rgw1:7480"],
        "argv": ["warp"],
        "rows": f"rows/{id}.csv.gz",
        "clock_offset": 0.0,
        "started": T0 - 3.0,
        "first_row": T0 * 1.0,
        "ended": T0 + 12.0,
        "exit": 0,
        "signal": None,
        "cut": False,
        "restarts": 0,
        "rows_total": len(text),
        "errors_total": 0,
        "prepared": 0,
    }
    return {**about, **more, "_rows": text}


def phase(
    directory: Path,
    index: int,
    name: str,
    jobs: Sequence[Dict[str, Any]],
    *,
    window: Sequence[float] = (0, 10),
    as_aggregates: bool = False,
    states: Optional[Callable[[int], Dict[str, Any]]] = None,
    **more: Any,
) -> Path:
    """Write one phase directory; `window` in s after T0. With aggregates in the place of rows when `as_aggregates`.

    `states`: what a sample of the cluster says so many seconds after T0; without, it is healthy.
    """
    made = directory / "phases" / f"{index:02d}-{name}"
    (made / "rows").mkdir(parents=True)
    for its in jobs:
        if as_aggregates:
            its.update(rows=None, aggregates=f"aggregates/{its['id']}.aggregates")
            content = aggregates_writer.of_rows(tuple(its["_rows"]), its["clock_offset"], more.get("block", 1))
            (made / "aggregates").mkdir(exist_ok=True)
            (made / its["aggregates"]).write_bytes(content)
            continue
        with gzip.GzipFile(made / its["rows"], "wb", compresslevel=1, mtime=0) as out:
            out.write((HEADER + "".join(its["_rows"])).encode())
    data = {
        "version": 2,
        "index": index,
        "name": name,
        "kind": "hybrid",
        "role": "measure",
        "status": "ok",
        "window": {"start": T0 + window[0], "end": T0 + window[1]},
        "asked": {"duration": float(window[1] - window[0]), "mix": {}},
        "jobs": [{key: value for key, value in its.items() if key != "_rows"} for its in jobs],
        "accounting": [],
        "warnings": [],
    }
    with (made / "status.jsonl").open("w") as out:
        for t in range(int(window[0]), int(window[1]), 2):
            sample = {"t": T0 + t, "pgs": {"active+clean": 31}, **(states(t) if states else {})}
            out.write(json.dumps({"clean": False, "health": "HEALTH_OK", "raw_used": 0.1, **sample}) + "\n")
    (made / "phase.json").write_text(json.dumps({**data, **more}))
    return made


def run(archive: Path, *, complete: bool = True, phases: Sequence[str] = ()) -> Path:
    """A run directory without phases; `phases` are the names that its plan has."""
    directory = archive / "results" / "00000000" / "id-1a2b3c4d"
    (directory / "cluster" / "before").mkdir(parents=True)
    plan = {"benchmark": "warp", "s3": {"urls": ["http://rgw1:7480", "http://rgw2:7480"]}, "scale": 1.0}
    reef = "ceph version 18.2.7 (6b0e988052ec84cf2d4a54ff9bbbc5e720b621ad) reef (stable)"
    manifest = {
        "version": 2,
        "run_id": "k3j9",
        "ceph": {"osd": {reef: 4}, "rgw": {reef: 2}, "overall": {reef: 6}},
        "warp": "1.3.1",
        "cbt": {"path": "/opt/cbt", "commit": "9d6480f0", "describe": "9d6480f 2025-05-16"},
        "cbt_plugins": "0.1.0",
        "nodes": {"node0": {"kernel": "6.1.0-44-amd64"}, "client1": {"kernel": "6.1.0-44-amd64"}},
        "clock_offsets": {
            "node0": {"seconds": 0.0, "error": 0.0},
            "client1": {"seconds": 0.0002, "error": 0.0001},
        },
    }
    (directory / "plan.json").write_text(json.dumps({**plan, "phases": [{"name": name} for name in phases]}))
    (directory / "manifest.json").write_text(json.dumps(manifest))
    (directory / "benchmark_config.yaml").write_text("cluster:\n  benchmark: warp\n  iteration: 0\n")
    (directory / "cluster" / "before" / "ceph.conf").write_text("[global]\nfsid = </script><b>&\n")
    (directory / "cluster" / "before" / "pools.json").write_text(
        '[{"pool_name": "default.rgw.buckets.data", "size": 3}]'
    )
    (directory / "events.jsonl").write_text('{"t": 1700000000.0, "event": "phase", "name": "fill"}\n')
    if complete:
        (directory / "complete").write_text('{"t": 1700000100.0, "run_id": "k3j9"}')
    return directory


def cbt_load(id: str, rows: Iterable[str], *, end: Optional[Dict[str, Any]] = None, **more: Any) -> Dict[str, Any]:
    """A job of cbt-load; `end` is what its end event says beside that all is well."""
    text = list(rows)
    space = {"name": "4KiB", "bucket": "b", "n": 9, "live": 9, "created": 9, "removed": 0, "unknown": 0, "used": 9}
    said: Dict[str, Any] = {"event": "end", "reason": "duration", "began": T0 - 2.0, "ended": T0 + 12.0}
    said.update(spaces=[space], dry={}, retries=0, checksum_errors=0, latest_start=0.0, issued={"GET": len(text)})
    return job(id, "MIXED", text, **{"role": "cbt-load", "workers": 4, "driver_end": {**said, **(end or {})}, **more})


@dataclass(frozen=True)
class Load:
    """A closed loop of each operation in a phase, by `workers` each: GET in 20 ms and PUT in 40 ms, unless it says so.

    `latency` (s) is by operation, or by "phase:operation". With `noise` each request takes its own time, else all the
    same.
    """

    latency: Mapping[str, float] = field(default_factory=dict)
    ops: Sequence[str] = ("GET", "PUT")
    workers: int = 2
    size: int = 4096
    seconds: float = 30
    noise: float = 0.3
    mix: Mapping[str, float] = field(default_factory=dict)  # that was asked for

    def write(
        self, directory: Path, index: int, name: str, begin: float, chance: Optional[random.Random] = None, **more: Any
    ) -> Path:
        """Write the phase that begins so many seconds after T0; `chance` is that of the noise.

        `level` is by what all latencies are multiplied, `driver` the begin of the ids of the jobs; all else of `more`
        is of `phase`.
        """
        level, mix, driver = more.pop("level", 1.0), more.pop("mix", self.mix), more.pop("driver", "01")
        end = begin + self.seconds
        jobs = []
        for op in self.ops:
            usual = {"GET": 0.02, "PUT": 0.04, **self.latency}
            took = usual.get(f"{name}:{op}", usual.get(op, usual["PUT"])) * level
            if chance:
                rows = self._rows(op, took, (begin, end), chance)
            else:
                rows = steady(
                    op, workers=self.workers, seconds=self.seconds + 4, latency=took, begin=begin - 2, size=self.size
                )
            about = {"sizes": [[self.size, self.size, 1.0]], "workers": self.workers, "driver": driver}
            jobs.append(job(f"{driver}-{op.lower()}", op, rows, ended=T0 + end + 2.0, **about))
        asked = {"duration": float(self.seconds), "mix": dict(mix)}
        return phase(directory, index, name, jobs, window=(begin, end), asked=asked, **more)

    def _rows(self, op: str, latency: float, window: Sequence[float], chance: random.Random) -> List[str]:
        """Rows of a closed loop whose requests take `latency` s on average."""
        rows = []
        for worker in range(self.workers):
            t = window[0] - 1.0
            while t < window[1] + 1:
                took = latency * chance.lognormvariate(-self.noise * self.noise / 2, self.noise)
                t += took
                rows.append((t, row(op, t, took, size=self.size, thread=worker)))
        return [text for _, text in sorted(rows)]


def small(archive: Path, *, complete: bool = True) -> Path:
    """Two measurements of 10 s: GET 2 x 100/s of 10 ms and PUT 2 x 50/s of 20 ms, then GET twice as slow."""
    directory = run(archive, complete=complete, phases=["new", "aged"])
    for index, name, begin, slow in ((1, "new", 0, 1), (2, "aged", 100, 2)):
        get = steady(
            "GET", workers=2, seconds=14, latency=0.01 * slow, begin=begin - 2, size=4096, first=0.005 * slow
        )
        put = steady("PUT", workers=2, seconds=14, latency=0.02, begin=begin - 2, size=4096)
        jobs = [job("01-4KiB-get", "GET", get), job("01-4KiB-put", "PUT", put)]
        asked = {"duration": 10.0, "mix": {"GET": 67, "PUT": 33}}
        phase(directory, index, name, jobs, window=(begin, begin + 10), asked=asked)
    return directory


def renamed(directory: Path, run_id: str) -> Path:
    """Give a run another id: two archives with one are copies."""
    manifest = json.loads((directory / "manifest.json").read_text())
    (directory / "manifest.json").write_text(json.dumps({**manifest, "run_id": run_id}))
    return directory


def codes(summary: Mapping[str, Any]) -> List[str]:
    """Return the codes of the warnings of a summary."""
    return sorted({warning["code"] for warning in summary["warnings"]})


def summary_of_phase(folder: Path, jobs: List[Dict[str, Any]], **more: Any) -> Dict[str, Any]:
    """Return the summary of a whole run with one phase of these jobs."""
    directory = run(folder, phases=["new"])
    phase(directory, 1, "new", jobs, **more)
    return summarize(directory)


# ---- archives of several runs, with seeded noise, for comparison


HASH = "618f440892089921c3e944a991122ddc44e60516"
QUINCY, REEF = "17.2.6 quincy", "18.2.7 reef"
DAY = 86400
#: the levels of runs scatter by so much
_SCATTER = 0.01
OSD_NODES = 4
NORMAL = Load()


@dataclass(frozen=True)
class Cluster:
    """What the run says of its cluster."""

    ceph: str = REEF
    config: Mapping[str, str] = field(default_factory=dict)
    pool: Mapping[str, Any] = field(default_factory=lambda: {"size": 3, "type": 1})


def archive(
    path: Path,
    load: Load = NORMAL,
    cluster: Cluster = Cluster(),
    *,
    runs: int = 1,
    phases: Sequence[str] = ("measure",),
    seed: int = 1,
    begin: int = 0,
) -> Path:
    """`runs` iterations of a load, one a day; each has a level of its own."""
    chance = random.Random(seed)
    for i in range(runs):
        draft = run(path / "draft", phases=phases)
        directory = path / "results" / f"{i:08d}" / draft.name
        directory.parent.mkdir(parents=True)
        draft.rename(directory)
        shutil.rmtree(path / "draft")
        _surroundings(directory, cluster)
        level = chance.lognormvariate(0, _SCATTER)
        for index, name in enumerate(phases, 1):
            load.write(directory, index, name, begin + i * DAY + index * 1000, chance, level=level)
    return path


def _surroundings(run: Path, cluster: Cluster) -> None:
    number, name = cluster.ceph.split()
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["run_id"] = hashlib.sha256(str(run).encode()).hexdigest()[:8]
    manifest["ceph"] = {"overall": {f"ceph version {number} ({HASH}) {name} (stable)": 6}}
    (run / "manifest.json").write_text(json.dumps(manifest))
    before = run / "cluster" / "before"
    write = {
        "pools.json": [{"pool_name": "default.rgw.buckets.data", "pg_num": 32, **cluster.pool}],
        "ec_profiles.json": {"ec": {"k": "4", "m": "2", "plugin": "isa"}},
        "config_dump.json": [{"section": "osd", "name": key, "value": value} for key, value in cluster.config.items()],
        "osd_tree.json": {"nodes": list(_tree())},
    }
    for file, data in write.items():
        (before / file).write_text(json.dumps(data))
    conf = ("[global]", "fsid = 1", "rgw_thread_pool_size = 64", "rgw keystone admin password = x")
    (before / "ceph.conf").write_text("\n".join(conf) + "\n")


def _tree() -> List[Dict[str, Any]]:
    nodes: List[Dict[str, Any]] = []
    for i in range(OSD_NODES):
        nodes.append({"id": -2 - i, "type": "host", "name": f"node{i}", "children": [2 * i, 2 * i + 1]})
        nodes += [{"id": 2 * i + k, "type": "osd", "device_class": "hdd"} for k in (0, 1)]
    return nodes


# ---- archives of CBT, with cheap runs


CBT_CLUSTER: Dict[str, Any] = {
    "head": "192.0.2.1",
    "clients": ["192.0.2.2"],
    "osds": ["192.0.2.4"],
    "mons": {"192.0.2.1": {"a": "192.0.2.1:6789"}},
    "iterations": 1,
    "osds_per_node": 1,
    "tmp_dir": "/tmp/cbt-of-a-test",
}
#: GET in 10 ms and PUT in 20 ms by as many workers give this mix
MIX = {"GET": 67.0, "PUT": 33.0}


def cbt_archive(path: Path, section: Mapping[str, Any], conf_file: Path, **cluster: Any) -> List[Dict[str, Any]]:
    """Write what CBT keeps of a file with one section `warp`; returns the configurations of its runs, in order."""
    content = {
        "cluster": {**CBT_CLUSTER, "conf_file": str(conf_file), "archive_dir": str(path), **cluster},
        "benchmarks": {"warp": dict(section)},
        "monitoring_profiles": {"collectl": {}},
    }
    conf_file.touch()
    archive_layout.write_once(path / "results" / "cbt_config.yaml", content)
    runs = archive_layout.planned(content["benchmarks"], content["cluster"]["iterations"])
    return [{key: value for key, value in run.config.items() if key != "acceptable"} for run in runs]


#: GET in 10 ms and PUT, like all else, in 20 ms
CBT_LOAD = Load({"GET": 0.01, "PUT": 0.02}, seconds=10, noise=0)


def cheap(**fields: Any) -> Load:
    """The load of cheap runs, with other fields."""
    return replace(CBT_LOAD, **fields)


def cbt_run(
    path: Path,
    config: Mapping[str, Any],
    load: Load = CBT_LOAD,
    *,
    start: float = 0.0,
    phases: Sequence[str] = ("measure-new",),
    complete: bool = True,
    summary: bool = True,
) -> Path:
    """One run at the directory that CBT gives it; the first of its phases begins 100 s after `start`."""
    draft = run(path / "draft", complete=complete, phases=phases)
    about = {"mix": MIX if len(load.ops) > 1 else {}, "driver": f"01-{load.size}", "as_aggregates": True}
    for index, name in enumerate(phases, 1):
        load.write(draft, index, name, start + 100.0 * index, **about)
    (draft / "benchmark_config.yaml").write_text(yaml.safe_dump({"cluster": dict(config)}))
    directory = archive_layout.archive_dir(path, config)
    directory.parent.mkdir(parents=True, exist_ok=True)
    draft.rename(directory)
    shutil.rmtree(path / "draft")
    if summary:
        write_summary(summarize(directory), directory / FILE)
    return directory


#: the service of `swept` has so many workers of its own, and takes so many seconds for a request
SERVERS, TOOK = 8, 0.008


def swept(archive: Path, loads: Sequence[int] = (1, 2, 4, 8, 16, 32)) -> List[Path]:
    """A run for each number of workers, on a service that 8 of them saturate: beyond, they wait for each other."""
    found = []
    for workers in loads:
        latency = TOOK * max(1, workers / SERVERS)
        rows = steady("GET", workers=workers, seconds=5, latency=latency, begin=-1, size=4096)
        directory = run(archive, phases=["load"])
        one = cbt_load("h", rows, workers=workers)
        about: Dict[str, Any] = {"engine": "cbt-load", "asked": {"duration": 3.0, "mix": {"GET": 100}}}
        phase(directory, 1, "load", [one], window=(0, 3), as_aggregates=True, **about)
        found.append(directory.rename(directory.with_name(f"id-{workers:08x}")))
    return found


# ---- recorded


#: the recorded archive of a run that goes on
HALF = DATA / "live" / "half"
#: when it was copied
COPIED = 1795614195.0
