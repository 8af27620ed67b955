"""One permutation of a section -> the plan that the engine runs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

import pytest
from pydantic import Field

from cbt_plugins.config import section_to_plan as sections
from cbt_plugins.config.errors import ConfigError
from cbt_plugins.config.file_check import load_file
from cbt_plugins.config.key_errors import Strict
from cbt_plugins.config.section_to_plan import plan_of
from cbt_plugins.config.sweep import sweep
from cbt_plugins.plan import CALIBRATE, Bucket, Driver, Goal, Phase, Plan, WarpOp

S3 = {"urls": ["http://rgw1:7480", "http://rgw2:7480/"], "user": "cbt"}
MIX = {"GET": 45.0, "PUT": 35.0, "STAT": 15.0, "DELETE": 5.0}
#: what CBT adds to every permutation, and what its base class reads
FROM_CBT: Dict[str, Any] = {
    "benchmark": "x",
    "iteration": 0,
    "acceptable": {},
    "log_bw": "4096",
    "log_lat": True,
}


def plan(benchmark: str, clients: Sequence[str] = ("c1", "c2"), **keys: Any) -> Plan:
    """Without the calibration, which has a test of its own."""
    made = plan_of(benchmark, {**FROM_CBT, "s3": S3, **keys}, {"clients": list(clients)}, None)
    return dataclasses.replace(made, phases=tuple(p for p in made.phases if p.name != CALIBRATE))


def warp(phases: List[Dict[str, Any]], **keys: Any) -> Plan:
    return plan("warp", cycle={"phases": phases}, **keys)


def test_rgwtest_is_the_published_cycle() -> None:
    made = plan("rgwtest", clients=["c1", "c2", "c3", "c4", "c5"])
    assert [bucket.key for bucket in made.buckets] == ["1KiB", "4KiB", "8KiB", "64KiB", "256KiB"]
    assert made.drivers == tuple(
        Driver(f"0{i}-{bucket.key}", f"c{i}", (bucket.key,), 8) for i, bucket in enumerate(made.buckets, 1)
    )
    assert made.phases == (
        Phase("fill", "fill", "fill", goal=Goal(duration=4 * 3600.0), engine="cbt-load"),
        Phase("measure-new", "hybrid", "measure", duration=3600.0, mix=MIX, engine="cbt-load"),
        Phase("age", "hybrid", "age", duration=24 * 3600.0, mix=MIX, engine="cbt-load"),
        Phase("measure-aged", "hybrid", "measure", duration=3600.0, mix=MIX, engine="cbt-load"),
    )
    assert made.s3.urls == ("http://rgw1:7480", "http://rgw2:7480")
    assert (made.full_guard, made.keep_data, made.scale) == (0.8, False, 1.0)


def test_steps_between_phases_while_no_fault_is_in_force() -> None:
    steps = {"gc": "1h", "drop_caches": True, "settle": "5m"}
    made = plan("rgwtest", between=steps, scale=0.1, warp_mixed="10m")
    names = [phase.name for phase in made.phases]
    loads = ("fill", "measure-new", "warp-mixed", "age")
    assert names == [*(name for load in loads for name in (load, f"{load}-gc", f"{load}-settle")), "measure-aged"]
    assert made.phases[1] == Phase("fill-gc", "wait", wait_gc=True, at_most=3600.0)
    assert made.phases[2] == Phase("fill-settle", "wait", duration=30.0, drop_caches=True)
    made = plan("osdfailure", ["c1"], between={"settle": "1m"})
    assert [phase.name for phase in made.phases if phase.kind == "wait"] == [
        *("fill-settle", "no-failure-settle", "wait-clean")
    ]
    classic = plan("osdfailure", ["c1"], between={"drop_caches": True}, shape="classic")
    assert [phase.name for phase in classic.phases][:7] == [
        *("fill", "fill-settle", "control", "control-settle", "control-clean", "control-clean-settle", "device")
    ]
    with pytest.raises(ConfigError, match="needs gc, drop_caches or settle"):
        plan("rgwtest", between={})


@pytest.mark.parametrize(
    ("objects", "hours"), [({"set": "small"}, 24), ({"set": "generic"}, 12), ({"sizes": ["4KiB"]}, 12)]
)
def test_aging_is_as_long_as_the_set_was_aged(objects: Dict[str, Any], hours: float) -> None:
    assert plan("rgwtest", objects=objects).phases[2].duration == hours * 3600


def test_generic_objects() -> None:
    made = plan("rgwtest", objects={"set": "generic"})
    assert [bucket.sizes for bucket in made.buckets] == [((mib << 20, mib << 20, 1.0),) for mib in (1, 4, 8, 64, 256)]


def test_drivers_go_round_the_client_nodes() -> None:
    made = plan("rgwtest", objects={"sizes": ["4KiB", "1MB"]}, drivers_per_size=3)
    assert [(d.id, d.node) for d in made.drivers] == [
        ("01-4KiB", "c1"),
        ("02-4KiB", "c2"),
        ("03-4KiB", "c1"),
        ("04-1MB", "c2"),
        ("05-1MB", "c1"),
        ("06-1MB", "c2"),
    ]


def test_scale_multiplies_durations_and_objects_and_leaves_percentages() -> None:
    phases: List[Dict[str, Any]] = [
        {"fill": {"objects": 2000}},
        {"fill": {"objects": 10}},
        {"fill": {"raw": "25%"}},
        {"hybrid": {"duration": "1h"}},
        {"hybrid": {"duration": "30s"}},
        {"warp": {"op": "get", "duration": "10m", "objects": 5000}},
        {"wait": {"clean": True, "at_most": "10m"}},
        {"wait": {"duration": "1000s"}},
    ]
    made = warp(phases, scale=0.01)
    assert [phase.goal for phase in made.phases[:3]] == [Goal(objects=20), Goal(objects=1), Goal(raw=0.25)]
    assert [phase.duration for phase in made.phases[3:]] == [36.0, 1.0, 6.0, None, 10.0]
    assert made.phases[5].warp == WarpOp("get", objects=50)
    assert made.phases[6].at_most == 600.0
    assert warp(phases, scale=2).phases[3].duration == 7200.0
    decimal = warp([{"fill": {"objects": 100}}, {"hybrid": {"duration": "2m"}}], scale=0.03)
    assert decimal.phases[1].duration == 3.6, "not 3.5999999999999996"


def test_warp_names_and_roles_of_phases() -> None:
    made = warp(
        [
            {"fill": {"objects": 5}},
            {"hybrid": {"duration": "1m"}, "name": "hybrid-2", "role": "age"},
            {"hybrid": {"duration": "1m"}},
            {"hybrid": {"duration": "1m"}},
            {"warp": {"op": "put", "duration": "1m"}},
            {"wait": {"duration": "5s"}},
        ]
    )
    assert [(p.name, p.kind, p.role) for p in made.phases] == [
        ("fill", "fill", "fill"),
        ("hybrid-2", "hybrid", "age"),
        ("hybrid", "hybrid", "measure"),
        ("hybrid-3", "hybrid", "measure"),
        ("warp", "warp", "none"),
        ("wait", "wait", "none"),
    ]


def test_hybrid_mix_and_fixed_workers() -> None:
    hybrid = {"duration": "60s", "mix": {"get": 50, "put": 50}, "workers": {"get": 3, "put": 12}}
    phase = warp([{"fill": {"objects": 5}}, {"hybrid": hybrid}]).phases[1]
    assert phase.mix == {"GET": 50.0, "PUT": 50.0}
    assert phase.workers == {"GET": 3, "PUT": 12}


def test_warp_options_of_a_plain_command() -> None:
    phase = warp(
        [{"warp": {"op": "get", "duration": "1m", "args": {"range-size": 5, "disable-multipart": True}}}]
    ).phases[0]
    assert phase.warp == WarpOp("get", args={"range-size": "5", "disable-multipart": ""})
    assert phase.mix is None
    mixed = warp([{"warp": {"op": "mixed", "duration": "1m"}}]).phases[0]
    assert mixed.mix == MIX


@pytest.mark.parametrize(
    ("keys", "buckets", "drivers"),
    [
        ({}, [Bucket("4KiB", ((4096, 4096, 1.0),))], ["01-4KiB c1", "02-4KiB c2"]),
        ({"size": "1MiB", "drivers": 1}, [Bucket("1MiB", ((1 << 20, 1 << 20, 1.0),))], ["01-1MiB c1"]),
        (
            {"size": {"4KiB": "25%", "1MB": "75%"}, "buckets": 3},
            [Bucket(f"sizes-{i}", ((4096, 4096, 0.25), (1000000, 1000000, 0.75))) for i in (1, 2, 3)],
            ["01-sizes-1 c1", "02-sizes-2 c2", "03-sizes-3 c1"],
        ),
        (
            {"buckets": {"names": ["mine"], "existing": True}, "keep_data": True},
            [Bucket("mine", ((4096, 4096, 1.0),), existing=True)],
            ["01-mine c1", "02-mine c2"],
        ),
    ],
)
def test_buckets_and_drivers(keys: Dict[str, Any], buckets: List[Bucket], drivers: List[str]) -> None:
    made = warp([{"warp": {"op": "put", "duration": "1m"}}], **keys)
    assert list(made.buckets) == buckets
    assert [f"{driver.id} {driver.node}" for driver in made.drivers] == drivers


def test_hybrid_on_existing_buckets_needs_no_fill() -> None:
    reads = {"duration": "1m", "mix": {"get": 70, "stat": 30}}
    made = warp([{"hybrid": reads}], buckets={"names": ["mine"], "existing": True})
    assert made.phases[0].kind == "hybrid"


def test_what_is_written_beside_existing_data_stays_and_must_be_accepted() -> None:
    existing = {"buckets": {"names": ["mine"], "existing": True}}
    with pytest.raises(ConfigError, match="accept that with keep_data: true"):
        warp([{"fill": {"objects": 5}}], **existing)
    with pytest.raises(ConfigError, match="nothing to delete: a run deletes only objects that it wrote"):
        warp([{"hybrid": {"duration": "1m"}}], keep_data=True, **existing)
    made = warp([{"fill": {"objects": 5}}, {"hybrid": {"duration": "1m"}}], keep_data=True, **existing)
    assert [p.kind for p in made.phases] == ["fill", "hybrid"]


def test_s3_from_client_endpoints() -> None:
    endpoints = {"rgw": {"driver": "s3", "urls": ["http://a:1"], "user": "them", "secret_key": "ignored"}}
    made = plan_of("rgwtest", {"s3": {"endpoints": "rgw"}}, {"clients": ["c"]}, endpoints)
    assert (made.s3.urls, made.s3.user) == (("http://a:1",), "them")
    assert "ignored" not in repr(made)


def test_a_plan_is_plain_data() -> None:
    made = plan("rgwtest")
    assert json.loads(json.dumps(dataclasses.asdict(made)))["phases"][0]["goal"]["duration"] == 14400.0


def test_errors_without_a_file_have_paths() -> None:
    with pytest.raises(ConfigError) as refused:
        plan("rgwtest", workers=0, mix={"get": 50})
    assert str(refused.value).splitlines() == [
        "benchmarks.rgwtest.workers: must be at least 1",
        "benchmarks.rgwtest.mix: the sum of the mix is 50, not 100",
    ]
    with pytest.raises(ConfigError, match=r"cluster\.clients"):
        plan_of("rgwtest", {"s3": S3}, {}, None)
    with pytest.raises(ConfigError, match="no benchmark 'nothing'"):
        plan("nothing")


def test_permutations_are_those_of_cbt() -> None:
    section = {"b": [1, 2], "x": {"l": [3]}, "a": ["p", "q"], "acceptable": [5]}
    fixed = {"x": {"l": [3]}, "acceptable": [5]}
    assert [config for _, config in sweep(section)] == [
        {**fixed, "b": b, "a": a} for b in (1, 2) for a in ("p", "q")
    ]


def test_another_distribution_brings_its_own_section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(Strict):
        loops: int = Field(ge=1)

        def to_plan(self, clients: Sequence[str], endpoints: Any) -> Plan:
            return dataclasses.replace(plan("rgwtest"), benchmark="mine", read_objects=self.loops)

    class MyBenchmark:
        Section = Mine

    package = tmp_path / "mine-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Name: mine\nVersion: 1\n", encoding="utf-8")
    (package / "entry_points.txt").write_text(
        "[cbt_plugins.benchmarks]\nmine = mine_benchmark:Mine\n", encoding="utf-8"
    )
    (tmp_path / "mine_benchmark.py").write_text("Mine = None\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    import mine_benchmark

    monkeypatch.setattr(mine_benchmark, "Mine", MyBenchmark)
    assert sections.section_of("mine") is not None
    file = tmp_path / "f.yaml"
    text = "cluster: {user: u, head: h, clients: [c], osds: [o], mons: [m], iterations: 1}\n"
    text += "benchmarks:\n  mine: {loops: 0}\n"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"f\.yaml:3:17: benchmarks\.mine\.loops: must be at least 1"):
        load_file(file)
    file.write_text(text.replace("0", "[3, 4]"), encoding="utf-8")
    found: Tuple[int, ...] = tuple(run.plan.read_objects for run in load_file(file).runs)
    assert found == (3, 4)


def test_one_calibration_before_the_first_hybrid_phase_whose_workers_are_open() -> None:
    section = {**FROM_CBT, "s3": S3, "measure": {"duration": "24s"}, "engine": "warp"}
    made = plan_of("rgwtest", section, {"clients": ["c1"]}, None)
    assert [p.name for p in made.phases] == ["fill", CALIBRATE, "measure-new", "age", "measure-aged"]
    assert (made.phases[1].duration, made.phases[1].mix, made.phases[1].role) == (6.0, MIX, "none")
    fixed = {"duration": "1m", "workers": {"get": 1, "put": 2, "stat": 1, "delete": 1}}
    phases = {"phases": [{"fill": {"objects": 5}}, {"hybrid": fixed}]}
    made = plan_of("warp", {**FROM_CBT, "s3": S3, "cycle": phases}, {"clients": ["c1"]}, None)
    assert [p.name for p in made.phases] == ["fill", "hybrid"]
    phases = {"phases": [{"fill": {"objects": 5}}, {"hybrid": fixed, "name": CALIBRATE}]}
    with pytest.raises(ConfigError, match="is the calibration phase"):
        plan_of("warp", {**FROM_CBT, "s3": S3, "cycle": phases}, {"clients": ["c1"]}, None)


def test_a_benchmark_that_cannot_be_imported_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "broken-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Name: broken\nVersion: 1\n", encoding="utf-8")
    entry = "[cbt_plugins.benchmarks]\nbroken = broken_benchmark:Broken\n"
    (package / "entry_points.txt").write_text(entry, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "f.yaml"
    file.write_text("cluster: {iterations: 1}\nbenchmarks: {broken: {}}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"benchmarks\.broken: cannot import broken_benchmark:Broken: ModuleNotFound"):
        load_file(file)
