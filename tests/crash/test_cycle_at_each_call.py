"""A cycle of `osdfailure:` is killed at its external calls, undone or begun again, and ends as if nothing had been."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
import standin
import yaml
from interpreters import venv_with
from standin_cluster import HERE, Accident, StandIn, part_of

from cbt_plugins.checksums import check_sums
from cbt_plugins.cluster_conditions import CLEANUP
from cbt_plugins.programs import own_program
from cbt_plugins.results.archive import read_run
from cbt_plugins.results.recovery.cluster_samples import status_by_phase
from cbt_plugins.run.buckets import REMOVED

PHASES = ["fill", "no-failure", "one-down", "recover", "wait-clean"]
#: calls 7, 147 ...: what is tried where CRASH_PART does not say otherwise
SAMPLE = "7/140"
#: somebody else's
EXISTING = {"precious": 5}


class Gateway(BaseHTTPRequestHandler):
    """Answers as S3 does, which is all that is asked of it."""

    def do_GET(self) -> None:
        body = b"<ListAllMyBucketsResult/>"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Gateway) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


class CycleOnStandIn(StandIn):
    """The cycle, with its file, its programs and its archive; `python` leads it."""

    python = sys.executable

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder)
        standin.write(str(folder), "state.json", {**self.before, "buckets": dict(EXISTING)})
        self.before = self.state()
        programs = folder / "cache" / "cbt-plugins" / "bin"
        programs.mkdir(parents=True)
        rows = own_program("cbt-rows")
        if rows is None:
            pytest.skip("cbt-rows is missing: `cbt-tools build` makes it")
        shutil.copy(rows, programs)
        interpreter = os.path.realpath(sys.executable)
        (programs / "cbt-load").write_text(
            f"#!{interpreter} -IS\nimport sys\nsys.path.insert(0, {str(HERE)!r})\nimport standin_cbt_load\n"
            "sys.exit(standin_cbt_load.main())\n"
        )
        (folder / "ceph.conf").write_text("[global]\n")
        self.file = folder / "cycle.yaml"
        self.file.write_text(yaml.safe_dump(self.config(url), sort_keys=False))

    def config(self, url: str) -> Dict[str, Any]:
        failure = {
            "s3": {"urls": [url], "user": "cbt"},
            "engine": "cbt-load",
            "objects": {"sizes": ["4KiB"]},
            "workers": 2,
            "fill": {"objects": 10},
            "phase": {"duration": "2s"},
            "down_nodes": 1,
            "fault": {"kind": "stop", "nodes": ["node1"]},
            "settings": {"scrub": False, "config": {"mon": {"mon_osd_down_out_interval": 8}}, "recovery": "aggressive"},
            "wait": {"at_most": "2m", "stalled": "1m"},
        }
        cluster = {
            "user": "root",
            "head": "node0",
            "clients": ["client1"],
            "osds": ["node1", "node2", "node3", "node4"],
            "mons": ["node0"],
            "use_existing": True,
            "iterations": 1,
            "conf_file": str(self.folder / "ceph.conf"),
            "tmp_dir": str(self.folder / "tmp"),
        }
        profiles = {"recovery": {"librados": False}, "collectl": {"nodes": ["head"]}}
        return {"cluster": cluster, "monitoring_profiles": profiles, "benchmarks": {"osdfailure": failure}}

    def play(self, what: str = "run", at: Accident = None) -> int:
        """The run, or "undo"; its exit status."""
        words = ["undo", str(self.archive)] if what == "undo" else ["-a", str(self.archive), str(self.file)]
        line = [self.python, str(HERE / "short_cycle.py"), *words]
        done = self.run(line, at, {"XDG_CACHE_HOME": str(self.folder / "cache")})
        self.said = done.stderr[-1500:]
        return done.returncode

    def lines(self, name: str) -> List[Dict[str, Any]]:
        """Of a journal of the run; [] when it has none."""
        found = list(self.archive.glob(f"results/*/id-*/{name}"))
        texts = found[0].read_text().split("\n")[:-1] if found else []
        return [json.loads(text) for text in texts]

    def strange(self) -> List[str]:
        """Buckets that are missing, or that the run does not know to be its own."""
        claimed = {line["bucket"] for line in self.lines("journal.jsonl") if line["event"] == "bucket"}
        now = self.state()["buckets"]
        bad = [f"bucket {name} has come from nowhere" for name in now if name not in EXISTING and name not in claimed]
        return bad + [f"bucket {name}: {now.get(name)}" for name, n in EXISTING.items() if now.get(name) != n]

    def broken(self) -> List[str]:
        """What is wrong with the cluster, buckets of the run apart: it keeps these to go on with."""
        return [text for text in self.changes() if not text.startswith("buckets: ")] + self.strange()

    def not_whole(self) -> List[str]:
        """What is wrong with the archive of a run that has ended well."""
        bad = [] if list(self.archive.glob("results/*/id-*/complete")) else ["not complete"]
        folders = sorted(self.archive.glob("results/*/id-*/phases/*"))
        whole = [f for f in folders if f.suffix == ""]
        names = [f.name[3:] for f in whole]
        bad += [f"phases {names}"] if names != PHASES else []
        bad += [f"left: {f.name}" for f in folders if f.suffix == ".running"]
        for folder in whole:
            record = json.loads((folder / "phase.json").read_text())
            window = record["window"]
            if record["status"] != "ok" or any(not count["ok"] for count in record.get("accounting", ())):
                bad.append(f"{folder.name}: {record['status']} {record['accounting']} {record['warnings']}")
            if record["name"] in PHASES[1:4] and window["end"] - window["start"] != 2.0:
                bad.append(f"{folder.name}: {window}")
        # the phase itself may be shorter than the time from one sample to the next; the node is down until after it
        status = status_by_phase(read_run(whole[0].parents[1]))
        samples = [sample for name in ("one-down", "recover") for sample in status[name]]
        bad += [] if any(sample["osds_up"] == 3 for sample in samples) else ["no OSD was seen down"]
        # what recovers from then on is not the cluster's work
        cleanup = min(line["t"] for line in self.lines("events.jsonl") if line["event"] == CLEANUP)
        removed = [line["t"] for line in self.lines("journal.jsonl") if line["event"] == REMOVED]
        bad += [] if removed and cleanup < min(removed) else [f"no event before the removal of buckets: {removed}"]
        sums = check_sums(whole[0].parents[1], rows=True)
        bad += [] if sums.sealed and not sums.changed else [f"SHA256SUMS: {dict(sums.changed) or sums.note}"]
        return bad


def between(world: CycleOnStandIn) -> List[str]:
    """What is wrong after an accident that was undone."""
    return world.settle() + world.broken()


def at_the_end(world: CycleOnStandIn) -> List[str]:
    """What is wrong after the run has been begun again, and has ended."""
    left = [f"left on a node: {path}" for path in (world.folder / "tmp").rglob("*") if path.is_file()]
    return world.settle() + left + world.changes() + world.not_whole()


@pytest.mark.long
def test_a_cycle_on_the_oldest_python(tmp_path: Path, url: str) -> None:
    world = CycleOnStandIn(tmp_path / "w", url)
    world.python = str(venv_with("3.9", tmp_path / "venv", ["PyYAML", "pydantic"]))
    assert world.play() == 0, world.said
    assert at_the_end(world) == []


@pytest.mark.long  # the tests around it have each kind of end once
def test_killed_again_and_again(tmp_path: Path, url: str) -> None:
    """While a node is stopped, in the undo that the next start begins with, and while its bucket is removed."""
    world = CycleOnStandIn(tmp_path / "w", url)
    assert world.play(at=("systemctl stop", "kill")) == -9
    assert world.play(at=("systemctl start", "kill")) == -9
    # nothing comes before the undo, what there is to be brought in from the nodes neither
    assert [f.name for f in world.archive.glob("results/*/id-*/phases/*-one-down*")] == ["03-one-down.running"]
    assert world.play("undo") == 0, world.said
    assert between(world) == []
    assert world.play(at=("radosgw-admin bucket rm", "kill")) == -9
    assert world.strange() == []
    assert world.play() == 0, world.said
    assert at_the_end(world) == []
    (partial,) = world.archive.glob("results/*/id-*/phases/03-one-down.partial-1")
    assert list(partial.glob("aggregates/*"))
    assert list(world.archive.glob("results/*/id-*/monitors/recovery.node0/recovery.jsonl"))


class Prepared(CycleOnStandIn):
    """The cycle, with pools, a placement target and a user of its own: their removal is the loss of its buckets."""

    def config(self, url: str) -> Dict[str, Any]:
        file = super().config(url)
        file["cluster"]["rgws"] = ["rgw1"]
        failure = file["benchmarks"]["osdfailure"]
        failure["s3"]["user"] = "bench"
        failure["pools"] = {"own": {"ec": "2+1", "pg_num": 4}, "index": {"replicas": 3, "pg_num": 4}}
        placement = {"data": "own", "index": "index", "extra": "index"}
        failure["rgw"] = {"make_user": True, "placement": placement}
        return file

    def phases(self, event: str) -> List[str]:
        return [line["phase"] for line in self.lines("journal.jsonl") if line["event"] == event]

    @property
    def has_made(self) -> List[str]:
        now = self.state()
        made = [pool["pool_name"] for pool in now["pools"]] + [*now["users"], *now["zone"], *now["zonegroup"]]
        return sorted(name.split("-")[-1] for name in made if name.startswith("cbtp-") or name == "bench")

    def broken(self) -> List[str]:
        """What is wrong with the cluster while the run is broken off: what it has made stays from its first phase on.

        After its last one it may be gone, or go.
        """
        if not self.phases("phase-begun"):
            return super().broken()
        of_run = ("pools", "autoscale", "rules", "profiles", "users", "zone", "zonegroup", "keys")
        bad = [text for text in super().broken() if text.partition(":")[0] not in of_run]
        whole = len(self.phases("phase-done")) == len(PHASES)
        return bad if whole or len(self.has_made) == 5 else [*bad, f"of what was made there is {self.has_made}"]

    def repeated(self) -> List[str]:
        """Phases that began after they had ended."""
        lines = [(line["event"], line["phase"]) for line in self.lines("journal.jsonl") if "phase" in line]
        done = [lines.index(("phase-done", phase)) for phase in self.phases("phase-done")]
        return [f"{its[1]} was repeated" for at in done for its in lines[at:] if its == ("phase-begun", lines[at][1])]


@pytest.mark.long  # tests/unit/test_kept has every moment and way, without programs
@pytest.mark.parametrize("moment", ["radosgw-admin user create", "cbt-load run"])
def test_what_was_made_stays_from_the_first_phase_on(moment: str, tmp_path: Path, url: str) -> None:
    """Before it nothing is left of a run that is broken off. It is made, and filled, once more or once."""
    world = Prepared(tmp_path / "w", url)
    assert world.play(at=(moment, "term")) == 130, world.said
    assert bool(world.has_made) is (moment == "cbt-load run")
    assert world.settle() + world.broken() == []
    assert world.play() == 0, world.said
    assert at_the_end(world) + world.repeated() == []


@pytest.mark.long
def test_killed_while_its_pool_is_removed(tmp_path: Path, url: str) -> None:
    """All phases are done: the next start removes what is left, and the run is whole."""
    world = Prepared(tmp_path / "w", url)
    assert world.play(at=("ceph osd erasure-code-profile rm", "kill")) == -9
    assert world.play() == 0, world.said
    assert at_the_end(world) == []
    (manifest,) = world.archive.glob("results/*/id-*/manifest.json")
    assert json.loads(manifest.read_text())["pools"]["own"]["pg_num"] == 4


@pytest.mark.parametrize("mode", ["term", pytest.param("twice", marks=pytest.mark.long)])
def test_ended_while_a_node_is_stopped(mode: str, tmp_path: Path, url: str) -> None:
    """By one signal, and by a second one while that is cleared up: the run itself puts everything back."""
    world = CycleOnStandIn(tmp_path / "w", url)
    assert world.play(at=("systemctl stop", mode)) == 130
    assert world.settle() + world.broken() == []


@pytest.mark.long  # the test above has two signals, the one before it what is brought in from the nodes
def test_ended_again_while_rows_come_home(tmp_path: Path, url: str) -> None:
    """The second signal is not kept waiting; the next start brings in what is on the nodes still."""
    world = CycleOnStandIn(tmp_path / "w", url)
    assert world.play(at=("ssh exec tar -c -f - .", "term")) == 130
    assert world.settle() + world.broken() == []
    (partial,) = world.archive.glob("results/*/id-*/phases/01-fill*")
    assert partial.name == "01-fill.partial-1" and not list(partial.glob("aggregates/*"))
    assert world.play() == 0, world.said
    assert list(partial.glob("aggregates/*"))
    assert at_the_end(world) == []


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory, url: str) -> int:
    """K, the calls of a cycle to which nothing happens."""
    whole = Prepared(tmp_path_factory.mktemp("whole") / "w", url)
    assert whole.play() == 0, whole.said
    assert at_the_end(whole) == []
    return len(whole.calls())


def accident(world: Prepared, number: int, mode: str) -> List[str]:
    """Try one; what is wrong afterwards. Every other time the next start has to undo it.

    What a run has made is removed by `cbt-tools undo`: without it a run with whole phases does not go on.
    """
    broken = world.play(at=(number, mode))
    if broken == 0 and len(world.calls()) < number:
        return []  # it asked less often this time
    bad = [f"the run was not killed: {broken}"] if mode == "kill" and broken != -9 else []
    bad += [f"left by the run: {text}" for text in world.broken() if mode != "kill"]
    if number // 2 % 2:
        if world.play("undo"):
            bad.append(f"not undone: {world.said}")
        bad += world.settle() + world.changes()
        if 0 < len(world.phases("phase-done")) < len(PHASES):
            refused = world.play() == 1 and "start again with another archive directory" in world.said
            return bad + world.changes() + ([] if refused else [f"goes on without its pools: {world.said}"])
    if world.play():
        bad.append(f"does not go on: {world.said}")
    return bad + at_the_end(world) + world.repeated()


@pytest.mark.crash
@pytest.mark.long
@pytest.mark.parametrize("mode", ["kill", "term", "twice", "fail"])
def test_sweep_of_a_cycle(mode: str, tmp_path: Path, url: str, calls: int) -> None:
    """A sample of the K calls: nothing is broken, no bucket is lost, no half phase is taken for a whole one.

    CRASH_PART=1/1 sweeps K of K, in many hours.
    """
    tried = part_of(calls, SAMPLE)
    found = {n: accident(Prepared(tmp_path / f"{mode}-{n}", url), n, mode) for n in tried}
    bad = [f"call {number}: {wrong}" for number, wrong in found.items() if wrong]
    assert not bad, f"{len(bad)} of {len(tried)} calls of {calls}: " + "\n".join(bad)
