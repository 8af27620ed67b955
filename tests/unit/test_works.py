"""Works: several mixes at once in a hybrid phase, from the YAML to the numbers of each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, List, cast

import archive_builder as made
import pytest
from config_files import CLUSTER, WARP, errors_in, marked

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.s3_keys import S3Keys
from cbt_plugins.config.acceptable import target_of
from cbt_plugins.config.file_check import load_file
from cbt_plugins.config.plan_preview import changes, forecast, warnings
from cbt_plugins.faults.rgw_settings import RgwSettings
from cbt_plugins.faults.scene import ClusterLimits
from cbt_plugins.formatting.formats.terminal import Terminal
from cbt_plugins.load.cbt_load import CbtLoadJobs
from cbt_plugins.load.generator import LoadJob, LoadStart, Memory
from cbt_plugins.plan import Plan
from cbt_plugins.report.result_text import blocks
from cbt_plugins.results.configuration import configuration
from cbt_plugins.results.run_record import result_warnings
from cbt_plugins.results.sql.summary_tables import TABLES
from cbt_plugins.results.sql.table_type import TableRun
from cbt_plugins.results.summary_file import summarize
from cbt_plugins.tools.__main__ import main

SECTION = """\
    engine: cbt-load
    across_buckets: true
    size: 4KiB
    buckets:
      small: {number: 2, objects: 200}
      large: {size: 1MiB}
    cycle:
      phases:
        - fill: {objects: 40}
        - hybrid:
            duration: 60s
            ramp: 3s
            works:
              readers: {workers: 4, mix: {get: 90, list: 10}, buckets: [small]}
              writers:
                workers: 2
                mix: {put: 60, delete: 40}
                buckets: [large]
                roles: {delete: [1]}
                rate: 20/s
                keys: {put: 's(N+1,2N)'}
"""
TEXT = CLUSTER + WARP + SECTION


def plan_in(tmp_path: Path, text: str = TEXT) -> Plan:
    file = tmp_path / "f.yaml"
    file.write_text(text)
    return load_file(file).runs[0].plan


def hybrid(tmp_path: Path) -> List[LoadJob]:
    plan = plan_in(tmp_path)
    names = {bucket.key: f"cbtp-1-{bucket.key}" for bucket in plan.buckets}
    return CbtLoadJobs(plan, names, "1").jobs(plan.phases[1], LoadStart(memory=Memory()))


def test_works_and_groups_of_buckets_in_the_plan(tmp_path: Path) -> None:
    plan = plan_in(tmp_path)
    assert [(b.key, b.sizes[0][0], b.objects) for b in plan.buckets] == [
        ("small-1", 4096, 200),
        ("small-2", 4096, 200),
        ("large", 1 << 20, None),
    ]
    phase = plan.phases[1]
    assert (phase.mix, phase.rate, phase.keys, phase.roles) == (None, None, {}, {})
    readers, writers = phase.works
    assert readers.roles == {"GET": ("small-1", "small-2"), "LIST": ("small-1", "small-2")}
    assert writers.roles == {"PUT": ("large",), "DELETE": ("small-1",)} and writers.rate == 20.0
    assert phase.shares == {"readers:GET": 90, "readers:LIST": 10, "writers:PUT": 60, "writers:DELETE": 40}
    known = forecast(plan)
    assert known.objects == 440 and "hybrid:writers: PUT stays within s(N+1,2N)" in " ".join(known.unknown_data)
    assert any(text.startswith("hybrid:writers: the rate is given") for text in warnings(plan, ["client1", "client2"]))


def test_each_driver_makes_all_works_in_one_process(tmp_path: Path) -> None:
    one, two = hybrid(tmp_path)
    assert one.spec and two.spec and "workers" not in one.spec and "ops" not in one.spec
    readers, writers = one.spec["works"]
    assert (readers["name"], readers["workers"], readers["rate"]) == ("readers", 4, 0.0)
    assert [(op["op"], op["share"], op["spaces"]) for op in writers["ops"]] == [
        ("PUT", 60.0, ["large"]),
        ("DELETE", 40.0, ["small-1"]),
    ]
    assert writers["rate"] == two.spec["works"][1]["rate"] == 10.0  # of all drivers together: 20
    assert (one.workers, one.rate_limit, one.op, one.spec["ramp"]) == (6, 10.0, "MIXED", 3.0)
    assert one.sizes == ((4096, 4096, pytest.approx(2 / 3)), (1 << 20, 1 << 20, pytest.approx(1 / 3)))


def test_a_fill_writes_what_each_group_asks_for(tmp_path: Path) -> None:
    plan = plan_in(tmp_path, TEXT.replace("objects: 200", "objects: 3").replace("objects: 40", "objects: 1"))
    names = {bucket.key: bucket.key for bucket in plan.buckets}
    jobs = CbtLoadJobs(plan, names, "1").jobs(plan.phases[0], LoadStart(memory=Memory()))
    found = [(job.spec["objects"], [s["objects"] for s in job.spec["spaces"]]) for job in jobs if job.spec]
    # a driver without a goal would never end
    assert found == [(1, [2, 2, 0]), (1, [1, 1, 0])]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("buckets: [small]", "buckets: [§smal]", "works.readers.buckets[0]: no bucket 'smal'"),
        ("buckets: [small]", "buckets: [1, §small]", "works.readers.buckets[1]: small is in the list twice"),
        ("roles: {delete: [1]}", "roles: {delete: [§4]}", "works.writers.roles.delete[0]: no bucket 4"),
        ("rate: 20/s", "§arivals: even", "works.writers.arivals: unknown key; did you mean 'arrivals'?"),
        ("rate: 20/s", "arrivals: §even", "works.writers.arrivals: is for an open loop"),
        ("workers: 2", "workers: §0", "works.writers.workers: must be at least 1"),
        ("put: 60, ", "put: 50, ", ""),
        ("readers:", "§Readers:", "works.Readers: 'Readers': a name is made of a-z, 0-9 and -"),
        ("keys: {put:", "keys: {§get:", "works.writers.keys.get: get has keys and no share of the mix"),
        ("ramp: 3s", "§mix: {get: 100}", "hybrid.mix: belongs into each of the works"),
        ("ramp: 3s", "engine: warp", "works: goes with engine: cbt-load"),
        ("across_buckets: true", "across_buckets: false", ""),
        ("number: 2", "§nunber: 2", "buckets.small.nunber: unknown key; did you mean 'number'?"),
        ("large: {", "§small-2: {", "buckets.small-2: 'small-2' has the name of a bucket of another group"),
        ("{objects: 40}", "{duration: 40s}", "warp.buckets.small.objects: needs a phase fill: {objects: ...}"),
    ],
)
def test_errors_have_a_place(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert TEXT.count(old) == 1
    text, places = marked(TEXT.replace(old, new))
    found = errors_in(tmp_path, text)
    assert found and all(place in "\n".join(found) for place in places) and said in "\n".join(found), found


def test_what_works_need_of_other_keys(tmp_path: Path) -> None:
    alone = TEXT.replace("across_buckets: true", "across_buckets: false")
    texts = "\n".join(errors_in(tmp_path, alone))
    assert "works.readers.buckets: every driver has one bucket: buckets need across_buckets: true" in texts
    texts = "\n".join(errors_in(tmp_path, TEXT.replace("ramp: 3s", "engine: warp")))
    assert "hybrid.works: goes with engine: cbt-load" in texts
    texts = "\n".join(errors_in(tmp_path, TEXT.replace("- fill: {objects: 40}", "- wait: {duration: 5s}")))
    assert "no objects to work on" in texts


def test_an_objective_of_an_operation_that_no_phase_has_is_an_error(tmp_path: Path) -> None:
    """Of works, an operation has the name of its work."""
    limits = "    objective: {§GET/p99_ms: 50, PUT/p99_ms: 9}\n    size: 4KiB\n"
    text, places = marked(TEXT.replace("    size: 4KiB\n", limits, 1))
    (error,) = errors_in(tmp_path, text)
    assert places[0] in error
    assert "no phase has the operation GET; the phases have PUT, readers:GET, readers:LIST, writers:" in error
    assert plan_in(tmp_path, text.replace("GET/p99", "readers:GET/p99")).objective["readers:GET/p99_ms"] == 50


def test_workers_of_all_works_are_limited_together(tmp_path: Path) -> None:
    text = re.sub(r"workers: \d+", "workers: 10000", TEXT.replace("engine:", "drivers: 60\n    engine:", 1))
    assert "requests in flight in one run, and 1000000 are the limit" in "\n".join(errors_in(tmp_path, text))


def test_buckets_of_other_users(tmp_path: Path) -> None:
    text = TEXT.replace("size: 1MiB}", "size: 1MiB, user: acme$bob}")
    plan = plan_in(tmp_path, text)
    assert plan.users == ("acme$bob",) and [b.user for b in plan.buckets] == ["", "", "acme$bob"]
    assert any("--bucket=acme/cbtp-<run id>-large" in its.undo for its in changes(plan, {}))
    names = {bucket.key: bucket.key for bucket in plan.buckets}
    (job, _) = CbtLoadJobs(plan, names, "1").jobs(plan.phases[1], LoadStart(memory=Memory()))
    assert job.spec and [space.get("keys") for space in job.spec["spaces"]] == [None, None, "2"]
    own = S3Keys("a", "s", "t").environment(others=[S3Keys("b-access", "b-secret")])
    assert (own["AWS_ACCESS_KEY_ID_2"], own["AWS_SECRET_ACCESS_KEY_2"]) == ("b-access", "b-secret")
    assert own["AWS_ACCESS_KEY_ID"] == "a"
    for old, new, said in (
        ("user: cbt", "access_key: '${A}', secret_key: '${B}'", "buckets.large.user: goes with s3: user"),
        ("engine: cbt-load", "admin: none\n    engine: cbt-load", "user of buckets"),
    ):
        found = "\n".join(errors_in(tmp_path, text.replace(old, new)))
        assert said in found, (new, found)
    by_warp = "    buckets: {a: {user: acme$bob}}\n    cycle: {phases: [{fill: {duration: 60s}}]}\n"
    assert "buckets: goes with engine: cbt-load" in "\n".join(errors_in(tmp_path, CLUSTER + WARP + by_warp))


POOLS = "    pools: {fast: {replicas: 2}, index: {replicas: 3}}\n"
PLACED = TEXT.replace("size: 1MiB}", "user: acme$bob, placement: {data: fast, index: index}}")
PLACED += POOLS + "    rgw: {make_user: true}\n"


def test_placement_of_another_user(tmp_path: Path) -> None:
    plan = plan_in(tmp_path, PLACED)
    assert plan.rgw.placements == {"acme$bob": {"data": "fast", "index": "index"}} and not plan.rgw.placement
    assert plan.rgw.restarts and any("cbtp-<run id>-1 on pools data fast" in its.what for its in changes(plan, {}))
    maker = RgwSettings(cast(Ceph, None), {}, ClusterLimits(), "r1", plan.rgw, ("cbt", *plan.users))
    assert [maker.target_of(user) for user in maker.users] == ["", "cbtp-r1-1"]
    for old, new, said in (
        ("data: fast", "data: fats", "buckets.large.placement.data: no pool 'fats'"),
        ("make_user: true", "threads: 9", "buckets.large.placement: is of a user that the run makes"),
        ("objects: 200", "user: acme$bob", "buckets.large.placement: all groups of user acme$bob must have the same"),
    ):
        assert said in "\n".join(errors_in(tmp_path, PLACED.replace(old, new))), new
    by_share = PLACED.replace("objects: 40", "max_avail: 1%").replace(", objects: 200", "")
    assert "buckets.large.placement: not with fill: {max_avail: ...}" in "\n".join(errors_in(tmp_path, by_share))


def test_the_preview_says_what_each_work_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "f.yaml").write_text(TEXT)
    assert main(["plan", str(tmp_path / "f.yaml")]) == 0
    text = capsys.readouterr().out
    assert "hybrid by cbt-load: works readers, writers" in text
    assert "writers: PUT 60, DELETE 40; 2 workers per driver; open loop: 20/s" in text


def test_an_operation_of_a_work_may_be_judged() -> None:
    assert target_of("hybrid/readers:GET/p99_ms")[:2] == ("hybrid", "readers:GET")
    assert target_of("readers:GET/p99_ms")[:2] == (None, "readers:GET")
    for wrong in ("readers:GTE/p99_ms", "readers:total/p99_ms"):
        with pytest.raises(ValueError, match="unknown operation"):
            target_of(wrong)


def summary_of(tmp_path: Path, **end: Any) -> Dict[str, Any]:
    """A closed loop of 2 workers, 200 GET/s, and an open one of 100 PUT/s by 4 workers, of which 2 are at work."""
    rows = made.steady("readers:GET", workers=2, seconds=14, latency=0.01, begin=-2, size=4096, first=0.005)
    rows += made.steady("writers:PUT", workers=2, seconds=14, latency=0.02, begin=-2, size=4096)
    works = [
        {"name": "readers", "workers": 2, "rate": 0.0, "arrivals": "poisson"},
        {"name": "writers", "workers": 4, "rate": 100.0, "arrivals": "even"},
    ]
    said = {"issued": {"readers:GET": 2800, "writers:PUT": 1400}, "works": [{"name": "writers"}], **end}
    job = made.cbt_load("h", rows, end=said, spec={"works": works}, workers=6, rate_limit=100.0)
    directory = made.run(tmp_path, phases=["new"])
    mix = {"readers:GET": 100, "writers:PUT": 100}
    about: Dict[str, Any] = {"engine": "cbt-load", "asked": {"duration": 10.0, "mix": mix}, "as_aggregates": True}
    made.phase(directory, 1, "new", [job], **about)
    return summarize(directory)


def test_numbers_of_each_work(tmp_path: Path) -> None:
    summary = summary_of(tmp_path)
    (phase,) = summary["phases"]
    assert summary["warnings"] == []
    assert {op: line["obj_per_s"] for op, line in phase["ops"].items()} == {"readers:GET": 200.0, "writers:PUT": 100.0}
    assert phase["total"]["obj_per_s"] == 300.0 and phase["loop"] == "open"
    assert phase["mix"]["measured"] == {"readers:GET": 100.0, "writers:PUT": 100.0}  # of each work
    rate = {key: phase["rate"][key] for key in ("asked", "issued", "deviation")}
    assert rate == {"asked": 100.0, "issued": 100.0, "deviation": 0.0}  # the closed loop has none
    little = {line["op"]: line["deviation"] for line in phase["littles_law"]["jobs"]}
    assert little == {"readers:MIXED": 0.0, "writers:MIXED": -0.5}
    # compare may judge the throughput of the closed loop
    assert [(its.code, its.op) for its in result_warnings(summary)] == [("rate-given", "writers:PUT")]
    assert "open loop in writers" in " ".join(Terminal().text(blocks(summary)).split())
    known = configuration(summary, None)
    assert known["phase.new.mix"] == "readers:GET:100 writers:PUT:100"


def test_each_work_has_a_line_of_littles_law(tmp_path: Path) -> None:
    """In the page; in SQL the phase has the requests of all loops."""
    pytest.importorskip("jinja2")
    from cbt_plugins.report.page import run_page

    summary = summary_of(tmp_path)
    (run,) = tmp_path.glob("results/*/*")
    table = run_page(summary, run).partition("Jobs: Little")[2].partition("</table>")[0].partition("<tbody>")[2]
    cells = [re.findall(r"<t[hd][^>]*>([^<]*)", row) for row in table.split("<tr>")[1:]]
    assert [row[:9] for row in cells] == [
        ["h", "client1", "readers:MIXED", "2", "2.000", "0.0 %", "2.000", "4,200", "0"],
        ["", "", "writers:MIXED", "4", "2.000", "paced", "2.000", "", ""],
    ]
    assert {len(row) for row in cells} == {12}
    (phases,) = (its for its in TABLES if its.name == "phases")
    (columns,) = phases.fill(TableRun(run, run.name, True))
    assert (list(columns["workers"]), list(columns["in_flight"])) == ([6], [4.0])


@pytest.mark.parametrize(
    ("end", "code", "text"),
    [
        ({"issued": {"readers:GET": 2800, "writers:PUT": 1200}}, "rate", "writers: 85.7 requests/s were issued, 100.0"),
        ({"works": [{"name": "writers", "latest_start": 3.0, "unstarted": 7}]}, "late-starts", "h, writers: a request"),
        ({"dry": {"readers:GET": 5}}, "ran-dry", "5 readers:GET were skipped because there was no object"),
    ],
)
def test_warnings_name_the_work(tmp_path: Path, end: Dict[str, Any], code: str, text: str) -> None:
    summary = summary_of(tmp_path, **end)
    (warning,) = (each for each in summary["warnings"] if each["code"] != "unfinished-request")
    assert (warning["code"], text in warning["text"]) == (code, True), warning
    left = 7 if code == "late-starts" else 0
    # 0.5 % of the requests of the work: p99.9 lacks them
    lacking = [each["metrics"] for each in summary["warnings"] if each["code"] == "unfinished-request"]
    assert lacking == ([["p999_ms"]] if left else [])
    assert summary["phases"][0]["rate"]["unstarted"] == round(left / (1400 + left), 6)
