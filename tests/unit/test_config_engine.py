"""`engine: cbt-load`: what the YAML says of cbt-load, what becomes of it in the plan, and every fault at its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Sequence

import pytest
from config_files import CLUSTER, CYCLE, RGWTEST, WARP, errors_in, marked

from cbt_plugins.config import plugins
from cbt_plugins.config.errors import ConfigError
from cbt_plugins.config.file_check import load_file
from cbt_plugins.config.section_to_plan import plan_of
from cbt_plugins.plan import CALIBRATE, CbtLoad, Keys, Phase, Plan, WarpOp

S3 = {"urls": ["http://rgw1:7480"], "user": "cbt"}
MIX = {"GET": 45.0, "PUT": 35.0, "STAT": 15.0, "DELETE": 5.0}
FILL: Dict[str, Any] = {"fill": {"objects": 100}}
ANY = {"get": 40, "list": 10, "put": 20, "multipart": 10, "delete": 20}


def warp(phases: List[Dict[str, Any]], clients: Sequence[str] = ("c1", "c2"), **keys: Any) -> Plan:
    section = {"s3": S3, "cycle": {"phases": phases}, **keys}
    return plan_of("warp", section, {"clients": list(clients)}, None)


def cbt_load(phases: List[Dict[str, Any]], **keys: Any) -> Plan:
    return warp(phases, engine="cbt-load", **keys)


def rgwtest(**keys: Any) -> Plan:
    return plan_of("rgwtest", {"s3": S3, **keys}, {"clients": ["c1"]}, None)


def test_the_engine_that_nobody_asked_for() -> None:
    """The cycles of the studies measure what exists; phases of one's own are warp's, as their benchmark is called."""
    for plan, engine in ((warp([FILL, {"hybrid": {"duration": "1m"}}]), "warp"), (rgwtest(), "cbt-load")):
        assert {phase.engine for phase in plan.phases} == {engine}
        assert (plan.cbt_load, plan.keep_rows) == (CbtLoad(), False)


def test_the_engine_of_the_benchmark_and_of_a_phase() -> None:
    phases = [FILL, {"fill": {"objects": 5, "engine": "cbt-load"}}, {"hybrid": {"duration": "1m"}}]
    assert [(p.name, p.engine) for p in warp(phases).phases] == [
        ("fill", "warp"),
        ("fill-2", "cbt-load"),
        (CALIBRATE, "warp"),
        ("hybrid", "warp"),
    ]
    phases = [
        {"fill": {"objects": 5, "engine": "warp"}},
        FILL,
        {"hybrid": {"duration": "1m"}},
        {"hybrid": {"duration": "1m", "engine": "warp"}},
        {"warp": {"op": "get", "duration": "1m"}},
        {"wait": {"duration": "5s"}},
        {"verify": {}},
        {"delete": {}},
    ]
    assert [(p.name, p.kind, p.role, p.engine) for p in cbt_load(phases).phases if p.kind != "wait"] == [
        ("fill", "fill", "fill", "warp"),
        ("fill-2", "fill", "fill", "cbt-load"),
        ("hybrid", "hybrid", "measure", "cbt-load"),
        (CALIBRATE, "hybrid", "none", "warp"),  # only for the phase that warp makes
        ("hybrid-2", "hybrid", "measure", "warp"),
        ("warp", "warp", "none", "warp"),
        ("verify", "verify", "none", "cbt-load"),
        ("delete", "delete", "none", "cbt-load"),
    ]


def test_no_calibration_without_a_hybrid_load_by_warp() -> None:
    assert [phase.name for phase in rgwtest(engine="cbt-load").phases] == ["fill", "measure-new", "age", "measure-aged"]


def test_how_cbt_load_works() -> None:
    keys = {
        "deadline": "1m",
        "retries": 3,
        "list_keys": 10,
        "part_size": "8MiB",
        "compressible": "25%",
        "verify": True,
        "seed": 7,
    }
    expected = CbtLoad(60.0, 3, 10, 8 << 20, 0.25, True, 7)
    cycle = rgwtest(engine="cbt-load", cbt_load=keys, keep_rows=True)
    assert (cycle.cbt_load, cycle.keep_rows) == (expected, True)
    made = cbt_load([FILL], cbt_load=keys, keep_rows=True, scale=0.01)
    assert (made.cbt_load, made.keep_rows) == (expected, True)
    assert cbt_load([FILL], cbt_load={"compressible": "0%"}).cbt_load == CbtLoad()


def test_everything_that_a_hybrid_phase_may_say() -> None:
    phase: Dict[str, Any] = {
        "duration": "1h",
        "mix": ANY,
        "rate": "5M/day",
        "arrivals": "even",
        "ramp": "10m",
        "warmup": "20m",
        "keys": {"put": "u( 1, 2N )", "delete": {"select": "u(1,2N)", "absent": True}},
        "roles": {"put": [1, "64KiB-2"], "list": [3]},
    }
    (_, made) = cbt_load([FILL, {"hybrid": phase}], size="64KiB", buckets=3, across_buckets=True, scale=0.1).phases
    assert made == Phase(
        "hybrid",
        "hybrid",
        "measure",
        duration=360.0,
        mix={"GET": 40.0, "PUT": 20.0, "DELETE": 20.0, "LIST": 10.0, "MULTIPART": 10.0},
        engine="cbt-load",
        rate=5_000_000 / 86400,  # rates are not scaled
        arrivals="even",
        ramp=60.0,
        warmup=120.0,
        keys={"PUT": Keys("u(1,2N)"), "DELETE": Keys("u(1,2N)", absent=True)},
        roles={"PUT": ("64KiB-1", "64KiB-2"), "LIST": ("64KiB-3",)},
    )


@pytest.mark.parametrize(
    ("rate", "per_second"),
    [
        (500, 500.0),
        (0.5, 0.5),
        ("500/s", 500.0),
        ("30000/h", 30000 / 3600),
        ("1.5k / min", 25.0),
        ("864000/d", 10.0),
        ("864000/day", 10.0),
    ],
)
def test_rates(rate: Any, per_second: float) -> None:
    made = cbt_load([FILL, {"hybrid": {"duration": "1m", "rate": rate}}]).phases[1]
    assert (made.rate, made.rate_share, made.arrivals) == (per_second, None, "poisson")


def test_a_share_of_the_last_closed_loop() -> None:
    phases: List[Dict[str, Any]] = [FILL, {"hybrid": {"duration": "1m"}}, {"hybrid": {"duration": "1m", "rate": "50%"}}]
    assert (cbt_load(phases).phases[2].rate, cbt_load(phases).phases[2].rate_share) == (None, 0.5)
    phases[1]["hybrid"]["rate"] = 5
    with pytest.raises(ConfigError, match=r"phases\[2\]\.hybrid\.rate: a percentage of a closed loop"):
        cbt_load(phases)


def test_drivers_that_work_across_all_buckets() -> None:
    made = cbt_load([FILL], buckets=3, across_buckets=True)
    assert [(d.id, d.node, d.buckets) for d in made.drivers] == [
        ("01-4KiB", "c1", ("4KiB-1", "4KiB-2", "4KiB-3")),
        ("02-4KiB", "c2", ("4KiB-1", "4KiB-2", "4KiB-3")),
    ]
    assert len(cbt_load([FILL], buckets=3, across_buckets=True, drivers=1).drivers) == 1
    existing = {"names": ["mine", "theirs"], "existing": True}
    reads = {"hybrid": {"duration": "1m", "mix": {"get": 100}, "roles": {"get": ["theirs"]}}}
    made = cbt_load([reads], buckets=existing, across_buckets=True)
    assert made.drivers[0].buckets == ("mine", "theirs")
    assert made.phases[0].roles == {"GET": ("theirs",)}


def test_what_is_there_decides_what_a_phase_can_do() -> None:
    reads = {"hybrid": {"duration": "1m", "mix": {"get": 80, "put": 20}}}
    assert cbt_load([{"fill": {"objects": 5, "engine": "warp"}}, reads]).phases[1].engine == "cbt-load"
    existing = {"names": ["mine"], "existing": True}
    made = cbt_load([FILL, reads, {"verify": {}}, {"delete": {}}, reads], buckets=existing, keep_data=True)
    assert [phase.kind for phase in made.phases] == ["fill", "hybrid", "verify", "delete", "hybrid"]
    with pytest.raises(ConfigError, match=r"phases\[2\]\.hybrid: no objects to work on"):
        cbt_load([FILL, {"delete": {}}, reads])
    assert cbt_load([FILL, {"delete": {}}, FILL, reads])


def test_warp_mixed_beside_the_cycle() -> None:
    made = rgwtest(engine="cbt-load", warp_mixed="10m", scale=0.1)
    assert [phase.name for phase in made.phases] == ["fill", "measure-new", "warp-mixed", "age", "measure-aged"]
    assert made.phases[2] == Phase("warp-mixed", "warp", duration=60.0, mix=MIX, warp=WarpOp("mixed", objects=250))
    few = rgwtest(engine="cbt-load", warp_mixed="10m", scale=0.001, workers=8).phases[2]
    assert few.warp == WarpOp("mixed", objects=80)  # warp needs more than one for each worker
    assert "warp-mixed" in [phase.name for phase in rgwtest(engine="warp", warp_mixed="1m").phases]
    assert rgwtest(warp_mixed=False) == rgwtest()


def test_the_cycle_of_rgwtest_by_cbt_load() -> None:
    made = rgwtest(engine="cbt-load", mix={"get": 60, "list": 10, "put": 10, "delete": 20})
    assert {phase.engine for phase in made.phases} == {"cbt-load"}
    assert made.phases[2].mix == {"GET": 60.0, "PUT": 10.0, "DELETE": 20.0, "LIST": 10.0}


def test_a_sweep_over_engines_may_say_how_cbt_load_works(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    section = "    engine: [warp, cbt-load]\n    cbt_load: {seed: 3}\n"
    file.write_text(CLUSTER + WARP + section + CYCLE, encoding="utf-8")
    assert [run.plan.phases[0].engine for run in load_file(file).runs] == ["warp", "cbt-load"]


def _cycle(*phases: str) -> str:
    return "    cycle: {phases: [" + ", ".join(phases) + "]}\n"


def _cbt_load(text: str, *before: str) -> str:
    return "    engine: cbt-load\n" + _cycle("{fill: {objects: 5}}", *before, "{hybrid: {duration: 60s, " + text + "}}")


def _warp(text: str) -> str:
    return _cycle("{fill: {objects: 5}}", "{hybrid: {duration: 60s, " + text + "}}")


ONLY_CBT_LOAD = "goes with engine: cbt-load, and the engine of this phase is warp"
PHASE = "benchmarks.warp.cycle.phases[1].hybrid"
KNOWN = f"benchmarks.warp.engine: must be {' or '.join(plugins.references(plugins.GENERATORS))}"
FAULTS = [
    ("    engine: §cbt-laod\n" + CYCLE, KNOWN + "; did you mean 'cbt-load'?"),
    ("    engine: §hybrid\n" + CYCLE, KNOWN + "; it is called 'cbt-load' now"),
    ("    §hybrid: {seed: 3}\n" + CYCLE, "benchmarks.warp.hybrid: unknown key; it is called 'cbt_load' now"),
    ("    keep_rows: §yes please\n" + CYCLE, "benchmarks.warp.keep_rows: must be true or false, not text"),
    ("    §cbt_load: {seed: 3}\n" + CYCLE, "benchmarks.warp.cbt_load: is for engine: cbt-load, and no phase here has"),
    (
        "    engine: cbt-load\n    cbt_load: {§verfy: true}\n" + CYCLE,
        "benchmarks.warp.cbt_load.verfy: unknown key; did you mean 'verify'?",
    ),
    ("    engine: cbt-load\n    cbt_load: {deadline: §30}\n" + CYCLE, "benchmarks.warp.cbt_load.deadline: 30: s"),
    ("    engine: cbt-load\n    cbt_load: {retries: §-1}\n" + CYCLE, "benchmarks.warp.cbt_load.retries: must be"),
    ("    engine: cbt-load\n    cbt_load: {list_keys: §1001}\n" + CYCLE, "benchmarks.warp.cbt_load.list_keys: must be"),
    ("    engine: cbt-load\n    cbt_load: {part_size: §4MiB}\n" + CYCLE, "benchmarks.warp.cbt_load.part_size: S3"),
    ("    engine: cbt-load\n    cbt_load: {compressible: §20}\n" + CYCLE, "benchmarks.warp.cbt_load.compressible: 20"),
    ("    engine: cbt-load\n    cbt_load: {seed: §-1}\n" + CYCLE, "benchmarks.warp.cbt_load.seed: must be"),
    (_cycle("{fill: {objects: 5, engine: §wrap}}"), "benchmarks.warp.cycle.phases[0].fill.engine: must be warp or cbt"),
    (_warp("§rate: 5"), f"{PHASE}.rate: {ONLY_CBT_LOAD}"),
    (_warp("§ramp: 5s"), f"{PHASE}.ramp: {ONLY_CBT_LOAD}"),
    (_warp("§warmup: 5s"), f"{PHASE}.warmup: {ONLY_CBT_LOAD}"),
    (_warp("§keys: {get: live}"), f"{PHASE}.keys: {ONLY_CBT_LOAD}"),
    (_warp("§roles: {get: [1]}"), f"{PHASE}.roles: {ONLY_CBT_LOAD}"),
    (_warp("mix: {get: 50, list: §50}"), f"{PHASE}.mix.list: warp cannot mix list with other operations: use engine"),
    (_warp("mix: {get: 50, multipart: §50}"), f"{PHASE}.mix.multipart: warp cannot mix multipart with other"),
    (_warp("mix: {get: 50, put: 20, delete: §30}"), f"{PHASE}.mix.delete: delete (30) is more than put (20)"),
    (
        "    engine: cbt-load\n"
        + _cycle("{fill: {objects: 5, engine: warp}}", "{hybrid: {duration: 60s, engine: warp, §rate: 5}}"),
        f"{PHASE}.rate: {ONLY_CBT_LOAD}",
    ),
    (_cbt_load("mix: {get: 100}, §workers: {get: 5}"), f"{PHASE}.workers: is for engine: warp; cbt-load keeps the mix"),
    (_cbt_load("rate: §0"), f"{PHASE}.rate: must be more than 0 requests"),
    (_cbt_load("rate: §0%"), f"{PHASE}.rate: must be more than 0%"),
    (_cbt_load("rate: §150%"), f"{PHASE}.rate: 150% is more than 100%"),
    (_cbt_load("rate: §fast"), f"{PHASE}.rate: not a rate; write for example 500/s, 30000/h or 5M/day"),
    (_cbt_load("rate: §'500'"), f"{PHASE}.rate: not a rate; write for example 500/s"),
    (_cbt_load("rate: §5m/day"), f"{PHASE}.rate: unknown multiple 'm'; did you mean '5M/day'?"),
    (_cbt_load("rate: §5x/day"), f"{PHASE}.rate: unknown multiple 'x'; use k, M or G"),
    (_cbt_load("rate: §5/sec"), f"{PHASE}.rate: unknown unit of time 'sec'; did you mean '5/s'?"),
    (_cbt_load("rate: §5M/days"), f"{PHASE}.rate: unknown unit of time 'days'; did you mean '5M/day'?"),
    (_cbt_load("rate: §5/week"), f"{PHASE}.rate: unknown unit of time 'week'; use s, min, h or day"),
    (_cbt_load("rate: §50%"), f"{PHASE}.rate: a percentage of a closed loop: put a hybrid phase without rate"),
    (_cbt_load("arrivals: §even"), f"{PHASE}.arrivals: is for an open loop, and without rate: the loop is closed"),
    (_cbt_load("rate: 5, arrivals: §poison"), f"{PHASE}.arrivals: must be poisson or even; did you mean 'poisson'?"),
    (_cbt_load("warmup: §30"), f"{PHASE}.warmup: 30: seconds? write 30s"),
    (_cbt_load("mix: {get: 100}, keys: {§put: new}"), f"{PHASE}.keys.put: put has keys and no share of the mix"),
    (_cbt_load("§roles: {get: [1]}"), f"{PHASE}.roles: every driver has one bucket: roles of buckets need across_bu"),
    ("    buckets: 2\n    §across_bucket: true\n" + CYCLE, "benchmarks.warp.across_bucket: unknown key; did you mean"),
    (
        "    across_buckets: true\n" + _cycle("{§fill: {objects: 5}}"),
        "benchmarks.warp.cycle.phases[0].fill: warp works on one bucket; across_buckets: true needs engine: cbt-load",
    ),
    (
        "    across_buckets: true\n    engine: cbt-load\n" + _cycle("{§warp: {op: get, duration: 5s}}"),
        "benchmarks.warp.cycle.phases[0].warp: warp works on one bucket; across_buckets: true needs engine: cbt-load",
    ),
    (
        "    buckets: 2\n    across_buckets: true\n" + _cbt_load("roles: {get: [1, §3]}"),
        f"{PHASE}.roles.get[1]: no bucket 3; the buckets are 1 to 2",
    ),
    (
        "    buckets: 2\n    across_buckets: true\n" + _cbt_load("roles: {get: [1, §4KB-2]}"),
        f"{PHASE}.roles.get[1]: no bucket '4KB-2'; did you mean '4KiB-2'?",
    ),
    (
        "    buckets: 2\n    across_buckets: true\n" + _cbt_load("roles: {get: [1, §4KiB-1]}"),
        f"{PHASE}.roles.get[1]: 4KiB-1 is in the list twice",
    ),
    (
        "    buckets: 2\n    across_buckets: true\n" + _cbt_load("roles: {get: §[]}"),
        f"{PHASE}.roles.get: must not be empty",
    ),
    (
        "    buckets: 2\n    across_buckets: true\n" + _cbt_load("roles: {get: [§true]}"),
        f"{PHASE}.roles.get[0]: must be the number of a bucket, from 1, or its name",
    ),
    (
        "    buckets: 2\n    across_buckets: true\n" + _cbt_load("mix: {get: 100}, roles: {§put: [1]}"),
        f"{PHASE}.roles.put: put has buckets and no share of the mix",
    ),
    (
        "    engine: cbt-load\n" + _cycle("{§verify: {}}"),
        "benchmarks.warp.cycle.phases[0].verify: compares what a fill with engine: cbt-load wrote: put such",
    ),
    (
        _cycle("{fill: {objects: 5}}", "{§delete: {}}"),
        "benchmarks.warp.cycle.phases[1].delete: deletes what a fill with engine: cbt-load wrote: put such",
    ),
    (
        _cycle("{fill: {objects: 5, engine: cbt-load}}", "{delete: {}}", "{§verify: {}}"),
        "benchmarks.warp.cycle.phases[2].verify: compares what a fill with engine: cbt-load wrote",
    ),
    (
        _cycle("{fill: {objects: 5, engine: cbt-load}}", "{§hybrid: {duration: 60s}}"),
        f"{PHASE}: nothing to read: warp finds only objects that warp wrote; fill with engine: warp",
    ),
    (
        _cycle("{fill: {objects: 5}}", "{§hybrid: {duration: 60s, engine: cbt-load}}"),
        f"{PHASE}: nothing to delete: cbt-load deletes only objects that cbt-load wrote; fill with engine: cbt-load",
    ),
    (
        _cycle(
            "{fill: {objects: 5}}",
            "{hybrid: {duration: 60s, engine: cbt-load, mix: {get: 100}, keys: {get: §'u(1,N)'}}}",
        ),
        f"{PHASE}.keys.get: u(1,N) counts objects of a fill with engine: cbt-load; put such",
    ),
    (
        _cycle("{warp: {op: mixed, duration: 60s, mix: {get: 50, list: §50}}}"),
        "benchmarks.warp.cycle.phases[0].warp.mix.list: warp mixed cannot mix list with other operations",
    ),
]


@pytest.mark.parametrize(("section", "message"), FAULTS)
def test_errors_around_the_engine(tmp_path: Path, section: str, message: str) -> None:
    text, (place,) = marked(CLUSTER + WARP + section)
    found = errors_in(tmp_path, text)
    assert len(found) == 1
    assert found[0].startswith(place + message), found


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("    engine: warp\n    §cbt_load: {}\n", "benchmarks.rgwtest.cbt_load: is for engine: cbt-load, and no phase"),
        ("    engine: warp\n    mix: {get: 50, list: §50}\n", "benchmarks.rgwtest.mix.list: warp cannot mix list with"),
        (
            "    engine: cbt-load\n    mix: {get: 50, list: 50}\n    warp_mixed: §10m\n",
            "benchmarks.rgwtest.warp_mixed: warp mixed cannot mix list with other operations",
        ),
        (
            "    engine: cbt-load\n    mix: {get: 50, put: 20, delete: 30}\n    warp_mixed: §10m\n",
            "benchmarks.rgwtest.warp_mixed: delete (30) is more than put (20)",
        ),
        ("    warp_mixed: §10\n", "benchmarks.rgwtest.warp_mixed: 10: seconds? write 10s"),
    ],
)
def test_errors_around_the_engine_of_rgwtest(tmp_path: Path, section: str, message: str) -> None:
    text, (place,) = marked(CLUSTER + RGWTEST + section)
    (found,) = errors_in(tmp_path, text)
    assert found.startswith(place + message)


def test_everything_that_warp_cannot_do_is_said_at_once(tmp_path: Path) -> None:
    text, places = marked(CLUSTER + WARP + _warp("§rate: 5, §ramp: 5s, mix: {get: 80, list: §10, multipart: §10}"))
    assert [error.split(" ")[0] + " " for error in errors_in(tmp_path, text)] == places


def test_an_engine_that_is_an_error_itself_brings_no_others(tmp_path: Path) -> None:
    text, (place,) = marked(CLUSTER + WARP + _cbt_load("rate: 5").replace("engine: c", "engine: §x"))
    (found,) = errors_in(tmp_path, text)
    assert found.startswith(f"{place}benchmarks.warp.engine: must be warp or cbt-load")
