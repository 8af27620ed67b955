"""`cbt-tools plan`: what will run and what it changes, and nothing touched."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, List

import pytest

from cbt_plugins.tools.__main__ import main

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "benchmark_configs"
SMALL = """\
cluster: {user: root, head: node0, clients: [c1, c2, c3], osds: [o], mons: [m], iterations: 2}
benchmarks:
  warp:
    s3: {urls: ['http://rgw1:7480'], access_key: '${A}', secret_key: 'file:/root/k'}
    size: {4KiB: 50%, 1MiB: 50%}
    buckets: 2
    workers: [2, 16]
    cycle:
      phases:
        - fill: {objects: 1000}
        - fill: {max_avail: 30%}
        - hybrid: {duration: 30s}
        - warp: {op: mixed, duration: 5m, objects: 2500}
        - wait: {clean: true, at_most: 10m}
"""


@pytest.fixture(autouse=True)
def _nothing_is_contacted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("plan must not touch anything")

    monkeypatch.setenv("PATH", "")
    sends = [(socket.socket, name) for name in ("connect", "connect_ex", "sendto")]
    for module, name in [*sends, (socket, "getaddrinfo"), (subprocess, "Popen"), (os, "system")]:
        monkeypatch.setattr(module, name, refuse)


def plan(capsys: pytest.CaptureFixture[str], *args: Any) -> str:
    assert main(["plan", *map(str, args)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def write(tmp_path: Path, text: str) -> Path:
    (tmp_path / "f.yaml").write_text(text, encoding="utf-8")
    return tmp_path / "f.yaml"


def squeezed(text: str) -> List[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_the_quick_start_reads_like_this(capsys: pytest.CaptureFixture[str]) -> None:
    lines = squeezed(plan(capsys, CONFIGS / "quickstart.yaml"))
    assert lines[0].endswith("1 run (1 iteration of 1 configuration), 5 phases, 1m30s")
    for line in [
        "Run 1 of 1: rgwtest",
        "02-64KiB client2 64KiB 64 KiB 8",
        "2 measure-new 20s measure hybrid by cbt-load: GET 45, PUT 35, STAT 15, DELETE 5",
        "3 warp-mixed 15s none warp mixed: GET 45, PUT 35, STAT 15, DELETE 5",
        "warp-mixed: warp uploads 600 objects of its own first",
        "bucket cbtp-<run id>-4kib: created and filled",
        "undo: kept (keep_data); yours to remove: radosgw-admin bucket rm --bucket=cbtp-<run id>-4kib --purge-objects",
        "nodes client1, client2: scratch directory under /var/tmp/cbt (warp, cbt-load, cbt-rows, aggregates)",
        "nothing else is changed: no pool, user, flag, setting or daemon",
        "measure-new measures for 20s: too short to be repeatable",
    ]:
        assert line in lines


def test_the_published_durations(capsys: pytest.CaptureFixture[str]) -> None:
    assert "configuration), 5 phases, 1d6h10m\n" in plan(capsys, CONFIGS / "rgwtest-small.yaml")
    assert "configuration), 5 phases, 18h10m\n" in plan(capsys, CONFIGS / "rgwtest-generic.yaml")
    assert "configuration), 5 phases, 2d2h + unknown" in plan(capsys, CONFIGS / "sdc-rgwtest.yaml")


def test_sizes_objects_and_what_only_the_cluster_knows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = squeezed(plan(capsys, write(tmp_path, SMALL)))
    assert lines[0].endswith(
        "4 runs (2 iterations of 2 configurations), 24 phases, 3.92 GiB by fills, 22m30s + unknown: fill: until 1000 "
        "objects per bucket; fill-2: until 30 % of MAX AVAIL; wait: all PGs are active+clean, at most 10m"
    )
    for line in [
        "Run 2 of 4: warp, workers=16; like run 1, except:",
        "Runs 3 to 4: the same runs again, 2 iterations in total",
        "S3 http://rgw1:7480 (keys from env:A; weighed)",
        "03-sizes-1 c3 sizes-1 4 KiB 50 %, 1 MiB 50 % 2",
        # 2 buckets x 1000 objects x (4 KiB + 1 MiB) / 2
        "data 2000 objects, about 1004 MiB by the fill (on the disks: x replicas or (k+m)/k, and at least an "
        "allocation unit each)",
        "fill-2 writes until 30 % of MAX AVAIL",
        "hybrid adds 30 objects per 100 requests",
        "warp: warp uploads 7500 objects of its own first",
        "hybrid: 2 workers per driver; this mix needs at least 5, so 5 are used",
    ]:
        assert line in lines, line
    second = lines[lines.index("Run 2 of 4: warp, workers=16; like run 1, except:") :]
    assert not any(line.startswith("S3 ") for line in second)


def test_a_later_run_names_what_it_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Values that begin alike are told apart by their numbers."""
    fault = "{at: 1s, fault: {label: a, kind: stop, osds: [1]}}"
    last = (f"{{hybrid: {{duration: 1m, events: [{fault}]}}}}", "{hybrid: {duration: 1m}}")
    cycles = ", ".join(f"{{phases: [{{fill: {{objects: 1000}}}}, {phase}]}}" for phase in last)
    text = f"{SMALL[: SMALL.index('    workers')]}    cycle: [{cycles}]\n    settings: [{{flags: [noout]}}, {{}}]\n"
    runs = [part.splitlines() for part in plan(capsys, write(tmp_path, text)).split("\n\n") if part.startswith("Run ")]
    lacked = [[line.split()[0] for line in run if line.endswith(" none")] for run in runs]
    assert lacked == [[], ["settings"], ["faults"], ["faults", "settings"]]
    assert ["(value 2 of 2), settings" in run[0] for run in runs] == [False, False, True, True]


HYBRID = """\
cluster: {user: root, head: node0, clients: [c1, c2], osds: [o], mons: [m], iterations: 1}
benchmarks:
  warp:
    s3: {urls: ['http://rgw1:7480'], user: cbt}
    engine: cbt-load
    size: {1KiB-2KiB: 25%, 2KiB-4KiB: 75%}
    workers: 1
    buckets: 2
    across_buckets: true
    cycle:
      phases:
        - fill: {objects: 1000}
        - hybrid: {duration: 10m, mix: {get: 50, put: 10, multipart: 10, delete: 30}}
        - hybrid:
            duration: 50m
            ramp: 10s
            warmup: 50s
            rate: 500/s
            mix: {get: 60, list: 10, put: 16, delete: 14}
            roles: {put: [1], delete: [1]}
        - hybrid:
            duration: 1h
            rate: 50%
            arrivals: even
            mix: {get: 60, list: 10, put: 16, delete: 14}
            keys: {put: 'u(1,2N)', delete: {select: 'u(1,2N)', absent: true}}
        - hybrid: {duration: 1h, mix: {put: 10, delete: 90}, keys: {put: 's(N+1,10N)', delete: 's(1,10N)'}}
          name: bounded
        - hybrid: {duration: 1h, mix: {delete: 100}, keys: {delete: 'r(1,N)'}}
        - verify: {}
        - delete: {}
"""


def test_what_cbt_load_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = squeezed(plan(capsys, write(tmp_path, HYBRID)))
    unknown = "verify: every object is read; delete: every object is deleted"
    assert lines[0].endswith(f"4h1m + unknown: fill: until 1000 objects per bucket; {unknown}")
    for line in [
        "02-sizes c2 sizes-1, sizes-2 1 KiB to 2 KiB 25 %, 2 KiB to 4 KiB 75 % 1",
        "1 fill 1000 objects per bucket fill PUT by cbt-load",
        "2 hybrid 10m measure hybrid by cbt-load: GET 50, PUT 10, DELETE 30, MULTIPART 10",
        "3 hybrid-2 10s ramp + 50s warm-up + 50m measure hybrid by cbt-load: GET 60, PUT 16, DELETE 14, LIST 10",
        "open loop: 500/s of all drivers together, Poisson arrivals",
        "buckets: PUT sizes-1; DELETE sizes-1",
        "open loop: 50 % of the rate of the last closed loop, evenly",
        "keys: PUT u(1,2N), DELETE u(1,2N) also absent objects",
        "6 hybrid-4 every key once, at most 1h measure hybrid by cbt-load: DELETE 100",
        "7 verify every object is read none GET and compare by cbt-load",
        "8 delete every object is deleted none DELETE by cbt-load",
        "hybrid takes away 10 objects per 100 requests, while there are any",
        "hybrid-2 adds about 30600 objects, 2 objects per 100 requests",  # 500/s for 51m
        "hybrid-3: PUT stays within u(1,2N), which tends to be 53.3 % full; N is what the fill wrote",
        "bounded: PUT stays within s(N+1,10N); N is what the fill wrote",
        "delete leaves nothing",
        "nodes c1, c2: scratch directory under /tmp/cbt.<pid> (cbt-load, cbt-rows, aggregates)",
    ]:
        assert line in lines, line
    grown = [f"{name} {what}" for name in ("hybrid-3", "bounded") for what in ("adds", "takes")]
    assert not any(text in line for line in lines for text in grown)
    # one worker is enough for any mix, and phases are long
    (given,) = lines[lines.index("Warnings") + 1 :]
    assert given.endswith("the rate is given: compare latencies; throughput is never better nor equivalent")


def test_which_programs_and_rows_are_on_the_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = HYBRID.replace("fill: {objects: 1000}", "fill: {objects: 1000, engine: warp}\n        - fill: {objects: 5}")
    both = both.replace("across_buckets: true", "keep_rows: true").replace("roles: {put: [1], delete: [1]}", "")
    text = plan(capsys, write(tmp_path, both))
    assert "(warp, cbt-load, cbt-rows, aggregates, rows)" in text
    assert "keep_rows: a row of every request stays" in text
    assert "read_objects" not in text
    own_warp = both.replace("keep_rows: true", "warp_path: /usr/bin/warp\n    read_objects: 9")
    text = plan(capsys, write(tmp_path, own_warp))
    assert "(cbt-load, cbt-rows, aggregates)" in text
    # cbt-load lists what warp wrote, and knows what it wrote itself
    assert "a bucket gets 1000 objects and read_objects is 9" in text
    text = plan(capsys, write(tmp_path, HYBRID.replace("workers: 1", "read_objects: 9")))
    assert "read_objects" not in text


def test_many_drivers_and_buckets_are_not_all_shown(capsys: pytest.CaptureFixture[str]) -> None:
    text = plan(capsys, CONFIGS / "hsbench-mesh.yaml")
    assert "4MiB-1, 4MiB-2 ... 4MiB-512 (512)" in text and "... 188 more" in text and "500 more buckets" in text
    assert len(text.splitlines()) < 120


def test_existing_buckets_and_kept_data_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    existing = "buckets: {names: [mine], existing: true}\n    keep_data: true"
    text = SMALL.replace("buckets: 2", existing).replace("[2, 16]", "8")
    lines = squeezed(plan(capsys, write(tmp_path, text)))
    assert "existing bucket mine: objects under the prefix cbtp-<run id>/, all others stay as they are" in lines
    assert "undo: kept (keep_data); yours to remove" in lines
    assert not any("bucket rm" in line for line in lines)
    kept = squeezed(plan(capsys, write(tmp_path, SMALL.replace("buckets: 2", "keep_data: true"))))
    undo = "radosgw-admin bucket rm --bucket=cbtp-<run id>-sizes --purge-objects"
    assert f"undo: kept (keep_data); yours to remove: {undo}" in kept


def test_without_ceph_commands_with_versions_and_several_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = SMALL.partition("    size:")[0] + (
        "    engine: cbt-load\n    admin: none\n    versioned: true\n    across_buckets: true\n"
        "    buckets: {small: {size: 4KiB}, large: {size: 8GiB, objects: 2}}\n"
        "    cycle: {phases: [{fill: {objects: 1000}}]}\n"
    )
    lines = squeezed(plan(capsys, write(tmp_path, text)))
    for line in [
        "01-sizes c1 small, large 4 KiB; 8 GiB 8",
        # each of the three drivers writes one object at least
        "data 1003 objects, 24 GiB by the fill (on the disks: x replicas or (k+m)/k, and at least an allocation "
        "unit each)",
        "guard none: without Ceph commands nobody sees how full it is",
        "bucket cbtp-<run id>-small: created and filled, keeps all versions",
        "undo: all its objects and the bucket are deleted through S3 at the end",
        "large: RGW takes a PUT of at most 5 GiB (rgw_max_put_size): use multipart",
    ]:
        assert line in lines, "\n".join(lines)
    assert not any("config-key" in line or "radosgw-admin" in line for line in lines)


def test_idle_and_unequal_clients_are_pointed_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = plan(capsys, write(tmp_path, SMALL.replace("buckets: 2", "drivers: 1")))
    assert "c2, c3: no driver runs on these nodes (1 for 3 nodes)" in one
    four = plan(capsys, write(tmp_path, SMALL.replace("buckets: 2", "drivers: 4")))
    assert "the client nodes have unequal loads (drivers: c1 2, c2 1, c3 1)" in four


def test_what_holds_a_load_is_said_before_it_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = plan(capsys, write(tmp_path, SMALL))
    assert "hybrid: LIMITED: the calibration or rps-limit limits the rates of warp; a limited phase" in text
    assert "LIMITED" not in plan(capsys, CONFIGS / "quickstart.yaml")
    rates = plan(capsys, CONFIGS / "openloop.yaml")
    assert "the rate is given: compare latencies; throughput is never better nor equivalent" in rates
    fixed = SMALL.replace("30s}", "30s, workers: {get: 2, put: 2, stat: 1, delete: 1}}")
    assert "LIMITED" not in plan(capsys, write(tmp_path, fixed))
    limiter = fixed.replace("- warp: {", "- warp: {args: {rps-limit: 5}, ")
    assert "warp: LIMITED" in plan(capsys, write(tmp_path, limiter))


def test_what_reads_may_not_find_is_said_before_it_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = "get and stat know the first 1000000 objects of a bucket by name"
    assert known in plan(capsys, write(tmp_path, SMALL))  # a fill by share
    short = SMALL.replace("        - fill: {max_avail: 30%}\n", "").replace("duration: 5m", "duration: 5s")
    assert "get and stat" not in plan(capsys, write(tmp_path, short))
    assert known in plan(capsys, write(tmp_path, short.replace("objects: 1000}", "duration: 11m}")))
    others = short.replace("buckets: 2", "buckets: {names: [mine], existing: true}\n    keep_data: true")
    assert known in plan(capsys, write(tmp_path, others))
    assert "get and stat" not in plan(capsys, CONFIGS / "rgwtest-small.yaml")
    assert "get and stat will know only some" in plan(capsys, write(tmp_path, short.replace("1000}", "1000001}")))


def test_monitors_and_who_asked_for_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = "  monitors on the nodes from before the first phase to after the last: "
    undone = "\n    undo: stopped at the end of each run\n"
    for profiles, monitors in (
        ("", "collectl (CBT always runs it)"),
        ("monitoring_profiles: {resources: {}}\n", "resources, collectl (CBT always runs it)"),
        ("monitoring_profiles: {resources: {}, collectl: {}}\n", "collectl, resources"),
    ):
        assert f"{said}{monitors}{undone}" in plan(capsys, write(tmp_path, profiles + SMALL))


def test_json_has_the_plans_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(plan(capsys, CONFIGS / "quickstart.yaml", "--format", "json"))
    (run,) = document["runs"]
    assert run["plan"]["phases"][3]["duration"] == 20.0
    assert run["forecast"]["seconds"] == 90.0
    assert run["changes"][0]["undo"].startswith("kept (keep_data)")
    assert document["monitors"] == ["collectl", "resources"]


def test_all_errors_go_to_stderr_and_the_status_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, SMALL.replace("buckets: 2", "bukets: 2").replace("30s", "30"))
    assert main(["plan", str(file)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.splitlines() == [
        "Error: 2 errors; nothing was run",
        f"{file}:6:5: benchmarks.warp.bukets: unknown key; did you mean 'buckets'?",
        f"{file}:12:30: benchmarks.warp.cycle.phases[2].hybrid.duration: 30: seconds? write 30s",
    ]


def test_a_file_without_a_benchmark_of_ours_has_no_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "cluster: {}\nbenchmarks: {radosbench: {}}\n"
    assert main(["plan", str(write(tmp_path, text))]) == 2
    assert capsys.readouterr().err.endswith("this file has no benchmark of cbt-plugins\n")
    faults = tmp_path / "faults.yaml"
    faults.write_text("events: [{at: 0s, fault: {label: a, kind: stop, osds: [1]}}]\n")
    text = "cluster: {user: u, head: n0, clients: [n1], osds: [n2], mons: [n0], iterations: 1}\n"
    text += f"benchmarks: {{radosbench: {{}}}}\nmonitoring_profiles: {{faults: {{file: {faults}}}}}\n"
    file = write(tmp_path, text)
    assert main(["plan", str(file)]) == 2
    command = f"cbt-tools inject --dry-run --cluster {file} --archive FOLDER {faults}"
    assert f"no benchmark of cbt-plugins; `{command}` shows the faults" in capsys.readouterr().err


def test_it_loads_neither_cbt_nor_analysis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # this one needs a process of its own: others of the suite load what they like
    code = (
        "import sys; from cbt_plugins.tools.__main__ import main; "
        f"assert main(['plan', {str(CONFIGS / 'quickstart.yaml')!r}]) == 0; "
        "print('loaded', sorted({'settings', 'benchmarkfactory', 'cbt_plugins.run.plan_runner'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=CONFIGS.parent, check=True)
    assert done.stdout.splitlines()[-1] == "loaded []"


FAILURES = """\
cluster: {user: root, head: node0, clients: [c1], osds: [o1, o2, o3, o4, o5, o6, o7, o8], mons: [m], iterations: 1}
benchmarks:
  warp:
    s3: {urls: ['http://rgw1:7480'], user: cbt}
    engine: cbt-load
    settings:
      flags: [noscrub]
      config: {osd: {osd_max_backfills: 4}}
      balancer: off
      autoscaler: on
      recovery: aggressive
    cycle:
      phases:
        - fill: {objects: 1000}
        - hybrid:
            duration: 2h
            events:
              - {at: 0s, fault: {label: a, kind: stop, nodes: [o1]}}
              - {at: 5m, mark: recovery}
              - {at: 10m, undo: a}
              - {at: 30m, fault: {label: b, kind: stop, osd_nodes: 2, seed: 7, accept: [domain, inactive]}}
              - {at: 40m, fault: {label: c, kind: stop, osd_number: 1}}
              - {at: 50m, fault: {label: d, kind: network, nodes: [o2], options: {interfaces: [e0], deadline: 20m}}}
        - wait: {clean: true, at_most: 1h, stalled: 5m, events: [{at: 30s, undo: [b, d]}]}
"""


def test_events_with_their_times_and_how_each_is_undone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = squeezed(plan(capsys, write(tmp_path, FAILURES)))
    killed = "after a kill -9 by `cbt-tools undo ARCHIVE`"
    for line in [
        "0s: fault a: stop o1",
        "5m: recovery begins",
        "10m: undo a",
        "30m: fault b: stop 2 nodes, chosen with seed 7; may break domain, inactive",
        "3 wait all PGs are active+clean, at most 1h, or 5m without progress none wait",
        "30s: undo b, d",
        "faults a: from 0s of hybrid to 10m of hybrid (10m)",
        "b: from 30m of hybrid to 30s of wait (1h30m30s)",
        "c: from 40m of hybrid to the end of the run",
        "fault a: stop o1, at 0s of hybrid",
        f"undo: at 10m of hybrid, or at any end of the run; {killed}",
        "fault c: stop 1 OSD, chosen with seed 1, at 40m of hybrid",
        f"undo: at any end of the run; {killed}",
        "config-key cbt-plugins/run/... on the cluster: names the run that has the cluster",
    ]:
        assert line in lines, line


def test_how_many_groups_would_serve_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = plan(capsys, write(tmp_path, FAILURES))
    # a has been undone by then: b's two and d's one, beside c's OSD
    assert "3 of 8 OSD nodes, and 1 single OSD down at once (b, d); inactive PGs" in text
    two = FAILURES.replace("{at: 50m, fault: {label: d", "{at: 51m, mark: x}\n              #").replace("[b, d]", "b")
    text = plan(capsys, write(tmp_path, two))
    assert "2 of 8 OSD nodes, and 1 single OSD down at once (b); inactive PGs" in text
    assert "53.6 % of a pool with EC 4+2, min_size 5" in text
    assert "10.7 % of a pool with 3 copies, min_size 2" in text
    assert "unknown here: pools, failure domains, OSDs of each node, monitors, space; --live asks the cluster" in text
    pools = "{mine: {ec: 2+1, pg_num: 8}, by-osd: {replicas: 3, pg_num: 8, failure_domain: osd}}"
    rgw = "{placement: {data: mine, index: by-osd, extra: by-osd}}"
    own = two.replace("      autoscaler: on\n", "")
    own = own.replace("    engine:", f"    pools: {pools}\n    rgw: {rgw}\n    engine:")
    own = plan(capsys, write(tmp_path, own))
    assert "10.7 % of a pool with EC 2+1, min_size 2 (mine); unknown for by-osd, with its own placement\n" in own
    assert "EC 4+2" not in own
    alone = two.replace("osd_nodes: 2", "osd_number: 2").replace("nodes: [o1]", "osds: [1]")
    assert "\n           3 single OSDs down at once\n" in plan(capsys, write(tmp_path, alone))
    out = alone.replace("kind: stop", "kind: out")  # they serve on
    gateways = alone.replace("osd_number: 2, seed: 7", "daemon_type: rgw, nodes: [g1]")
    gateways = gateways.replace("osds: [1]", "daemons: [mgr.a]")
    gateways = gateways.replace("osd_number: 1", "daemon_number: 1, daemon_type: rgw")
    for text in (out, gateways):
        assert "down at once" not in plan(capsys, write(tmp_path, text))


def test_flags_that_hold_data_where_a_fault_has_put_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "Ceph may not move the data of a fault back, so PGs may not become active+clean"
    assert text not in plan(capsys, write(tmp_path, FAILURES))
    held = FAILURES.replace("flags: [noscrub]", "flags: [norebalance, noscrub, norecover]")
    assert f"  norebalance, norecover: {text}, and wait may not end\n" in plan(capsys, write(tmp_path, held))
    phases = held.partition("        - hybrid:")[0]
    cycle = f"{phases}        - hybrid: {{duration: 1h, events: [{{at: 0s, fault: {{label: a, "
    for fault, warns in [
        ("kind: stop, daemon_number: 1, daemon_type: rgw", False),
        ("kind: stop, daemon_type: rgw, nodes: [rgw1]", False),
        ("kind: stop, daemons: [mgr.a]", False),
        ("kind: stop, osds: [1]", True),
        ("kind: stop, crush_type: host", True),
        ("kind: out, osd_number: 1", True),
    ]:
        assert (text in plan(capsys, write(tmp_path, f"{cycle}{fault}}}}}]}}\n"))) == warns, fault


def test_settings_and_that_nothing_else_is_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = squeezed(plan(capsys, write(tmp_path, FAILURES)))
    switches = "balancer off; autoscaler on; recovery aggressive from the first fault"
    for line in [
        f"settings flags noscrub; osd osd_max_backfills=4; {switches}",
        "flags of the OSD map: noscrub",
        "configuration: osd osd_max_backfills = 4",
        "balancer: off",
        "pg_autoscale_mode of every pool: on",
        "undo: the value before, and the pg_num before; after a kill -9 by `cbt-tools undo ARCHIVE`",
        "nothing else is changed: no user, other flag, other setting or other daemon or node",
    ]:
        assert line in lines, line
    flags = FAILURES.replace("config: {osd: {osd_max_backfills: 4}}", "").replace("balancer: off", "")
    flags = flags.replace("autoscaler: on", "").replace("recovery: aggressive", "")
    text = plan(capsys, write(tmp_path, flags))
    assert "nothing else is changed: no pool, user, other flag, setting or other daemon or node" in text
    quiet = flags.replace("flags: [noscrub]", "balancer: on")
    assert "no pool, user, flag, other setting or other daemon" in plan(capsys, write(tmp_path, quiet))


def test_what_is_worth_knowing_of_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = plan(capsys, write(tmp_path, FAILURES))
    for line in [
        "a: lasts 10m, and OSDs are marked out after 10m unless mon_osd_down_out_interval says otherwise",
        "c: not undone by an event: in force until the end of the run",
        "c: refused by rule clean if PGs still recover from b then; accept: [clean] overrides",
        "d: recovers by itself after 20m, before its undo (1h10m30s): raise deadline",
    ]:
        assert line in text, line
    interval = FAILURES.replace("{osd: {osd_max_backfills: 4}}", "{mon: {mon_osd_down_out_interval: 60}}")
    interval = interval.replace("deadline: 20m", "deadline: 2h")
    interval = interval.replace("osd_number: 1", "osd_number: 1, accept: [clean]")
    text = plan(capsys, write(tmp_path, interval))
    assert "marked out after" not in text and "recovers by itself" not in text
    assert "d: refused by rule clean if PGs still recover from b, c" in text and "c: refused by" not in text
    noout = plan(capsys, write(tmp_path, FAILURES.replace("[noscrub]", "[noout]")))
    assert "noout: no OSD is marked out, so what a fault takes away is not recovered" in noout
    assert "marked out after" not in noout
    later = FAILURES.replace("stalled: 5m, events:", "stalled: 5m}\n        - hybrid: {duration: 1h, events:")
    text = plan(capsys, write(tmp_path, later))
    assert "d: recovers by itself after 20m, and the time of its undo is not known: check options" in text
    cut = "kind: network, nodes: [o2], options: {interfaces: [e0], deadline: 20m}"
    off = "kind: power, nodes: [o2], options: {'off': 'x -P ${SECRET} off', 'on': 'x -E on'}"
    assert "d: SECRET is in the arguments of a command" in plan(capsys, write(tmp_path, FAILURES.replace(cut, off)))
    assert "stands in a command" not in text
    nobody = SMALL.replace("    workers:", "    settings: {recovery: aggressive}\n    workers:")
    assert "is in force from the first fault on, and the cycle has no fault" in plan(capsys, write(tmp_path, nobody))


def test_the_cycles_with_failures(capsys: pytest.CaptureFixture[str]) -> None:
    reef = plan(capsys, CONFIGS / "osdfailure-two-nodes.yaml")
    assert "configuration), 7 phases, 12h10m + unknown: wait-clean: all PGs are active+clean, at most 4d4h" in reef
    assert "2 of 8 OSD nodes down at once (node-a, node-b)" in reef and "rule clean" not in reef
    classic = plan(capsys, CONFIGS / "osdfailure-classic.yaml")
    assert "configuration), 10 phases, 69.3 TiB by fills, 4h1m30s + unknown" in classic  # 3 x (80 minutes + 30 s)
    assert "configuration), 6 phases, 2m40s + unknown" in plan(capsys, CONFIGS / "osdfailure-quick.yaml")


def test_a_file_of_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = CONFIGS / "faults-one-node.yaml"
    lines = squeezed(plan(capsys, file))
    assert lines[0].endswith("faults beside a benchmark; times count from the start of the benchmark")
    assert "settings flags noscrub, nodeep-scrub; mon mon_osd_down_out_interval=60; balancer off" in lines
    assert "2m: fault node-a: stop 1 node, chosen with seed 7" in lines
    document = json.loads(plan(capsys, file, "--format", "json"))
    assert document["events"][2]["inject"]["choose_of"] == "node"
    assert document["settings"]["balancer"] is False
    assert main(["plan", "--live", str(file)]) == 2
    assert "a fault file does not name its cluster" in capsys.readouterr().err
    assert main(["plan", str(write(tmp_path, "events: [{at: 5, mark: x}]\n"))]) == 2
    assert "f.yaml:1:15: events[0].at: 5: seconds? write 5s" in capsys.readouterr().err
