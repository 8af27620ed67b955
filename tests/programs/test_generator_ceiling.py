"""What the generators can do without a cluster: the real cbt-load against its null server, and what becomes of it."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict

import archive_builder as archives
import pytest
from run_context import context

from cbt_plugins.cluster.clock_offsets import Offset
from cbt_plugins.cluster.remote import Remote
from cbt_plugins.config.generator_classes import wants_ceiling
from cbt_plugins.load.load_session import Agents
from cbt_plugins.plan import S3, Bucket, Driver, Goal, Ladder, Phase, Plan
from cbt_plugins.programs import own_program
from cbt_plugins.results.summary_file import summarize
from cbt_plugins.run import generator_ceiling
from cbt_plugins.run.generator_ceiling import GeneratorCeilings
from cbt_plugins.run.preflight import Ready, programs_of
from cbt_plugins.run.run_archive import RunArchive

NODE = socket.gethostname()
PROGRAMS = {name: str(own_program(name)) for name in ("cbt-load", "cbt-rows")}
MIX = {"GET": 50.0, "PUT": 30.0, "DELETE": 20.0}
HYBRID = Phase("new", "hybrid", "measure", duration=400.0, mix=MIX, engine="cbt-load", ramp=10.0)
AGED = replace(HYBRID, name="aged", duration=500.0)
FILL = Phase("fill", "fill", "fill", goal=Goal(objects=10), engine="cbt-load")


def plan(*phases: Phase, workers: int = 4, urls: str = "http://nobody.invalid", **keys: Any) -> Plan:
    bucket = Bucket("b", ((4096, 4096, 1.0),))
    return Plan("warp", S3((urls,), user="u"), (bucket,), (Driver("01", NODE, ("b",), workers),), phases, **keys)


def test_it_is_for_long_measurements_or_where_it_is_asked_for() -> None:
    short = replace(HYBRID, duration=60.0)
    assert wants_ceiling(plan(FILL, HYBRID)) and not wants_ceiling(plan(FILL, short))
    assert wants_ceiling(plan(short, generator_ceiling=True))
    assert not wants_ceiling(plan(HYBRID, generator_ceiling=False))
    assert not wants_ceiling(plan(FILL, generator_ceiling=True))  # nothing is measured
    assert "cbt-load" in programs_of(plan(replace(HYBRID, engine="warp")))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(generator_ceiling, "TRIAL", 1.0)
    monkeypatch.setattr(generator_ceiling, "cache_dir", lambda: tmp_path / "cache")
    return tmp_path / "cache"


def measured(folder: Path, its: Plan, boot: str = "one") -> Dict[str, Any]:
    """Measure for a run in this folder, on this machine; return what its archive has then."""
    folder.mkdir()
    manifest = {"nodes": {NODE: {"boot": boot, "cores": "2"}}, "payload": {"cbt-load": "signed"}}
    ready = Ready(None, {NODE: Offset(0.0, 0.0)}, {NODE: PROGRAMS}, manifest)  # type: ignore[arg-type]
    remote = Remote.of_cluster({}, {})
    scratch = folder / "scratch"
    run = context(
        plan=its,
        remote=remote,
        archive=RunArchive(folder),
        journal=SimpleNamespace(all=lambda event: [{}]),
        cbt_run=SimpleNamespace(run_dir=str(scratch)),
    )
    with contextlib.closing(Agents(remote, [NODE], str(scratch / "load"))) as agents:
        GeneratorCeilings(run, ready, agents).measure()
    assert not any((scratch / "load").glob("*"))
    shutil.rmtree(scratch, ignore_errors=True)
    found: Dict[str, Any] = json.loads((folder / "generator.json").read_text())["phases"]
    return found


@pytest.mark.skipif(own_program("cbt-load") is None, reason="NO cbt-load (cbt-tools build makes it)")
def test_each_shape_is_measured_once(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured(tmp_path / "a", plan(FILL, HYBRID, AGED, urls="https://nobody.invalid"))
    assert found["new"]["nodes"] == found["aged"]["nodes"] and "fill" not in found
    assert found["new"]["nodes"][NODE]["requests_per_s"] > 50
    assert found["new"]["nodes"][NODE]["beside"] == []

    tried = []
    monkeypatch.setattr(GeneratorCeilings, "try_out", lambda self, trial, nodes: tried.append(trial) or {})
    again = measured(tmp_path / "b", plan(AGED, urls="https://somebody.invalid"))
    assert again["aged"]["nodes"] == found["aged"]["nodes"] and not tried
    for name, other in (
        ("workers", plan(HYBRID, workers=5)),
        ("mix", plan(replace(HYBRID, mix={"GET": 100.0}))),
        ("scheme", plan(HYBRID)),
    ):
        assert measured(tmp_path / name, other)["new"]["nodes"] == {}
        assert len(tried) == 1, name
        tried.clear()
    measured(tmp_path / "boot", plan(AGED, urls="https://nobody.invalid"), boot="two")
    assert len(tried) == 1
    assert tried[0].phase.ramp == 0.0 and tried[0].phase.duration == 1.0
    tried.clear()
    ladder = replace(HYBRID, ladder=Ladder("l", "workers", 1, 64, 3, {"GET/p99_ms": 5.0}))
    measured(tmp_path / "ladder", plan(ladder))
    assert tried[0].plan.drivers[0].workers == 64


def test_the_server_has_objects_of_the_size_that_is_expected() -> None:
    """cbt-load takes an answer of another length for a failure, and the server's objects have one size."""
    mixed = replace(plan(HYBRID), buckets=(Bucket("b", ((1000, 2000, 0.5), (9000, 9000, 0.5))),))
    (job,) = generator_ceiling.CeilingTrial.of(mixed, HYBRID, "signed").jobs([NODE], {NODE: iter([1])})
    size = int(job.argv[job.argv.index("--size") + 1])
    assert size == 5250 and job.spec and [space["sizes"] for space in job.spec["spaces"]] == [[[size, size, 1.0]]]


def test_a_failure_is_no_failure_of_the_run(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise generator_ceiling.LoadError("no reply")

    monkeypatch.setattr(GeneratorCeilings, "try_out", fail)
    with pytest.raises(FileNotFoundError):
        measured(tmp_path / "a", plan(HYBRID))


@pytest.mark.parametrize(("rate", "bound"), [(350.0, True), (400.0, False)])
def test_a_measurement_near_it_is_marked(tmp_path: Path, rate: float, bound: bool) -> None:
    """300 requests/s of client1 were measured."""
    run = archives.small(tmp_path)
    nodes = {"client1": {"requests_per_s": rate, "beside": ["client2"]}, "client3": {"requests_per_s": 1, "beside": []}}
    (run / "generator.json").write_text(json.dumps({"phases": {"new": {"nodes": nodes}}}))
    summary = summarize(run)
    (line,) = (phase["generator"] for phase in summary["phases"] if phase["name"] == "new")
    assert [its["node"] for its in line["nodes"]] == ["client1"]
    assert line["share"] == pytest.approx(300 / rate, rel=1e-3)
    found = [its for its in summary["warnings"] if its["code"] == "generator-bound"]
    assert bool(found) == bound
    if bound:
        assert found[0]["phase"] == "new" and "300 of 350 requests/s, together with client2 on one" in found[0]["text"]


NOTHING = '{"phases": {"new": {"nodes": {"a": {"requests_per_s": 0, "beside": []}}}}}'


@pytest.mark.parametrize("text", [NOTHING, "[1]", "{}"])
def test_a_damaged_file_is_said(tmp_path: Path, text: str) -> None:
    run = archives.small(tmp_path)
    (run / "generator.json").write_text(text)
    summary = summarize(run)
    assert "damaged-archive" in [its["code"] for its in summary["warnings"]]
    assert all(phase["generator"] is None for phase in summary["phases"])
