"""The examples of docs/EXTENDING.md: installed as another distribution, checked and used as ours are."""

from __future__ import annotations

import re
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, Dict

import pytest
from config_files import CLUSTER, RGWTEST, WARP
from faults_world import ANYTHING, Connections, injector
from waiting import wait_for

from cbt_plugins.cluster.remote import Remote, RemoteError
from cbt_plugins.config import plugins
from cbt_plugins.config.errors import ConfigError
from cbt_plugins.config.events import load_fault_file
from cbt_plugins.config.file_check import load_file
from cbt_plugins.load.generator import LoadStart, generator_of
from cbt_plugins.monitors.lifecycle import watch
from cbt_plugins.plan import Fault
from cbt_plugins.results.record_reader import records_of
from cbt_plugins.tools.__main__ import main

PAGE = (Path(__file__).parents[2] / "docs" / "EXTENDING.md").read_text(encoding="utf-8")
MODULES: Dict[str, str] = {
    re.match(r'"""(\w+)\.py: ', text).group(1): text  # type: ignore[union-attr]
    for text in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
}


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    information = site / "examples-1.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: examples\nVersion: 1\n")
    (toml,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    entries = re.sub(r'\[project\.entry-points\."(.*?)"\]', r"[\1]", toml).replace('"', "")
    (information / "entry_points.txt").write_text(entries)
    for name, text in MODULES.items():
        (site / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(site))


def test_no_example_is_longer_than_forty_lines() -> None:
    assert {name: len(text.splitlines()) for name, text in MODULES.items() if len(text.splitlines()) > 40} == {}


def test_the_benchmark_is_checked_and_planned(tmp_path: Path) -> None:
    section = "benchmarks:\n  readaged:\n    s3: {urls: ['http://rgw1:80'], user: cbt}\n    read: 5m\n"
    file = tmp_path / "file.yaml"
    file.write_text(CLUSTER + section)
    (run,) = load_file(file).runs
    assert [phase.name for phase in run.plan.phases][-1] == "read"
    file.write_text(CLUSTER + section.replace("read: 5m", "read: 5"))
    with pytest.raises(Exception, match=r"readaged\.read"):
        load_file(file)


def test_the_generator_is_found_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(CLUSTER + WARP + "    cycle: {phases: [{fill: {duration: 5s, engine: tiny}}]}\n")
    (run,) = load_file(file).runs
    names = {bucket.key: "bucket" for bucket in run.plan.buckets}
    made = generator_of("tiny")(run.plan, names, "1").jobs(run.plan.phases[0], LoadStart())
    assert [job.argv for job in made] == [("{tiny-s3}", "put", "bucket", "{duration}")] * len(run.plan.drivers)
    assert main(["plan", str(file)]) == 0
    assert "(tiny-s3, cbt-rows, aggregates)" in capsys.readouterr().out, "what is copied to the clients"


def test_the_plan_of_the_generator_says_what_its_class_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its class knows no mix, lists nothing and works on one bucket."""
    file = tmp_path / "file.yaml"
    cycle = "    engine: tiny\n    cycle: {phases: [{fill: {duration: 2m}}, {hybrid: {duration: 2h}}]}\n"
    file.write_text(CLUSTER + WARP + cycle)
    assert main(["plan", str(file)]) == 0
    said = capsys.readouterr().out
    assert "hybrid by tiny, with its own operations instead of a mix" in said and "PUT by tiny" in said
    assert "hybrid: tiny takes no mix: the number of its writes is unknown" in said
    assert not re.search(r"GET 45|per 100 requests|LIMITED|read_objects|calibrate", said)
    for keys, message in [
        ("mix: {get: 100}", "hybrid.mix: tiny takes no mix: leave it out"),
        ("rate: 5", "hybrid.rate: goes with engine: cbt-load, and the engine of this phase is tiny"),
        ("workers: {get: 1, put: 1, stat: 1, delete: 1}", "hybrid.workers: is for engine: warp; tiny has the driver's"),
    ]:
        file.write_text(CLUSTER + WARP + cycle.replace("duration: 2h", f"duration: 2h, {keys}"))
        with pytest.raises(ConfigError, match=re.escape(message)):
            load_file(file)
    file.write_text(CLUSTER + WARP + cycle + "    across_buckets: true\n")
    with pytest.raises(ConfigError, match="tiny works on one bucket"):
        load_file(file)


def test_the_fault_is_checked_injected_and_undone(tmp_path: Path) -> None:
    file = tmp_path / "faults.yaml"
    file.write_text("events:\n  - {at: 0s, fault: {label: a, kind: reweight, osds: [1], options: {weight: 2}}}\n")
    with pytest.raises(ConfigError, match=r"events\[0\]\.fault\.options\.weight: must be less than 1"):
        load_fault_file(file)
    world = Connections()
    weights = [osd["weight"] for osd in world.world.ceph_osd_dump()["osds"]]
    with closing(injector(tmp_path, world)) as made:
        made.acquire()
        fault = Fault("a", "reweight", ("osd.1",), options={"weight": 0.25}, accept=ANYTHING)
        made.inject(fault)
        during = [osd["weight"] for osd in world.world.ceph_osd_dump()["osds"]]
        assert made.undo_all() == []
    assert [(now, then) for now, then in zip(during, weights) if now != then] == [(0.25, 1)]
    assert [osd["weight"] for osd in world.world.ceph_osd_dump()["osds"]] == weights


def test_the_importer_reads_its_file(tmp_path: Path) -> None:
    file = tmp_path / "result.txt"
    file.write_text("tally 300 10\n")
    (record,) = records_of(file)
    assert {its.metric: its.value for its in record.measurements}["obj_per_s"] == 30.0


def test_the_transport_reaches_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "systemd-run"
    program.write_text(
        '#!/bin/sh\n[ "$*" = "-q --pipe --wait -M $5 sh -c $8" ] || exit 125\n'
        '[ "$5" = gone ] && { echo "Failed to start transient service unit: No such machine" >&2; exit 1; }\n'
        'MACHINE=$5 exec sh -c "$8"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    nodes = [f"client{number}" for number in range(1, 6)]
    remote = Remote.of_cluster({"clients": nodes, "transport": "nspawn"}, {})
    results = remote.run(nodes, "echo $MACHINE; exit 3", check=False)
    assert {node: (its.stdout, its.status) for node, its in results.items()} == {n: (f"{n}\n", 3) for n in nodes}
    remote.put({nodes[0]: {f"{tmp_path}/in/file": b"content"}})
    remote.fetch(nodes[:1], f"{tmp_path}/in", tmp_path / "back")
    assert (tmp_path / "back" / nodes[0] / "file").read_bytes() == b"content"
    with closing(remote.stream(nodes, "read line; echo $MACHINE $line")) as stream:
        stream.send("end\n")
        assert sorted(stream.lines(60.0)) == [(node, f"{node} end") for node in nodes]
    hint = "No such machine; try: systemd-run -q --pipe --wait -M gone true"
    with pytest.raises(RemoteError, match=hint):
        remote.run(["gone"], "true")
    assert remote.lost_statuses("client1") == [] and not remote.has_own_clock("client1")
    file = tmp_path / "file.yaml"
    file.write_text(f"{CLUSTER}  transport: {{client1: nspawn}}\n{RGWTEST}")
    assert load_file(file).cluster["transport"] == {"client1": "nspawn"}


def test_the_monitor_runs_on_this_machine_and_ends(tmp_path: Path) -> None:
    cluster: Dict[str, Any] = {"user": "root", "head": "localhost", "clients": ["localhost"]}
    local = tmp_path / "local"
    make = plugins.load(plugins.MONITORS, "uptime")
    with watch(lambda: [make({}, cluster, {})], cluster, {}, str(tmp_path / "run"), local):
        wait_for(lambda: list(tmp_path.glob("run/*/uptime/loadavg")), "samples")
    (samples,) = local.glob("uptime.*/loadavg")
    assert len(samples.read_text().split()) >= 5
