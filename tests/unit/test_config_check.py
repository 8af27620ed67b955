"""Every fault of a file, at its place, in words that say what to do; § marks where the fault must point."""

from __future__ import annotations

from pathlib import Path
from typing import Tuple

import pytest
from config_files import CLUSTER, CYCLE, RGWTEST, S3, WARP, errors_in, marked

from cbt_plugins.config.events import is_fault_file, load_fault_file
from cbt_plugins.config.file_check import load_file
from cbt_plugins.config.yaml_source import read


def test_a_good_file_have_no_errors(tmp_path: Path) -> None:
    assert errors_in(tmp_path, CLUSTER + RGWTEST) == []
    assert errors_in(tmp_path, CLUSTER + WARP + CYCLE) == []


READ = "    cycle: {phases: [{hybrid: {duration: 60s, mix: {get: 100}}}]}\n"
RGWTEST_FAULTS = [
    ("    §wrokers: 8\n", "benchmarks.rgwtest.wrokers: unknown key; did you mean 'workers'?"),
    ("    workers: §0\n", "benchmarks.rgwtest.workers: must be at least 1"),
    ("    workers: §true\n", "benchmarks.rgwtest.workers: must be a whole number, not true or false"),
    ("    §workers:\n", "benchmarks.rgwtest.workers: empty value"),
    ("    workers: [8, §x]\n", "benchmarks.rgwtest.workers[1]: must be a whole number, not text"),
    ("    workers: [8, 4, §8]\n", "benchmarks.rgwtest.workers[2]: is in the list twice: two equal runs"),
    ("    workers: §[]\n", "benchmarks.rgwtest.workers: empty list: CBT would silently make no run"),
    (
        "    objects: {sizes: [4KiB, §4K]}\n",
        "benchmarks.rgwtest.objects.sizes[1]: 4K: 4KiB (4096 bytes) or 4KB (4000",
    ),
    (
        "    objects: {sizes: [4KiB, §4096B]}\n",
        "benchmarks.rgwtest.objects.sizes[1]: 4KiB is in the list twice",
    ),
    (
        "    objects: {set: §smal}\n",
        "benchmarks.rgwtest.objects.set: must be small or generic; did you mean 'small'?",
    ),
    (
        "    objects: §{set: small, sizes: [1KiB]}\n",
        "benchmarks.rgwtest.objects: set and sizes exclude each other",
    ),
    ("    mix: §{get: 45, put: 35, stat: 15}\n", "benchmarks.rgwtest.mix: the sum of the mix is 95, not 100"),
    (
        "    engine: warp\n    mix: {get: 50, put: 20, delete: §30}\n",
        "benchmarks.rgwtest.mix.delete: delete (30) is more than put (20)",
    ),
    ("    mix: {get: §-5, put: 105}\n", "benchmarks.rgwtest.mix.get: must be between 0 and 100"),
    ("    mix: {get: 90, put: 10, §lst: 0}\n", "benchmarks.rgwtest.mix.lst: unknown key"),
    ("    fill: §{}\n", "benchmarks.rgwtest.fill: needs one of duration, objects, max_avail, raw"),
    (
        "    fill: §{duration: 4h, objects: 5}\n",
        "benchmarks.rgwtest.fill: duration and objects exclude each other",
    ),
    ("    fill: {objects: §1.5}\n", "benchmarks.rgwtest.fill.objects: must be a whole number, not a number"),
    ("    fill: {objects: §0}\n", "benchmarks.rgwtest.fill.objects: must be at least 1"),
    ("    fill: {max_avail: §30}\n", "benchmarks.rgwtest.fill.max_avail: 30: percent? write 30%"),
    ("    fill: {raw: §85%}\n", "benchmarks.rgwtest.fill.raw: must be below full_guard"),
    ("    fill: {raw: §80%}\n", "benchmarks.rgwtest.fill.raw: must be below full_guard (80%), which stops every"),
    ("    mix: {get: 99.96, put: §0.04}\n", "benchmarks.rgwtest.mix.put: cbt-load keeps shares to 0.1 %: round 0.04"),
    ("    workers: §010\n", "to YAML this is the octal number 8: write it without the leading 0"),
    ("    settings: {scrub: §on, flags: [noscrub]}\n", "benchmarks.rgwtest.settings.scrub: on, but flags has noscrub"),
    (
        "    pools: {§data: {replicas: 3, pg_num: 8}}\n",
        "benchmarks.rgwtest.pools.data: no bucket would be placed on this pool: name it under rgw: {placement: ...}",
    ),
    (
        "    pools: {rbd: {replicas: 3, §pg_num: 8, application: rbd}}\n    settings: {autoscaler: on}\n",
        "benchmarks.rgwtest.pools.rbd.pg_num: settings: {autoscaler: on} would change this pool too",
    ),
    (
        "    rgw: {threads: 512}\n    settings: {config: §{client: {rgw_thread_pool_size: 64}}}\n",
        "benchmarks.rgwtest.settings.config: rgw_thread_pool_size is set by rgw: already: keep one of the two keys",
    ),
    ("    measure: {duration: §60}\n", "benchmarks.rgwtest.measure.duration: 60: seconds? write 60s"),
    ("    measure: {duration: §0s}\n", "benchmarks.rgwtest.measure.duration: must be more than 0s"),
    ("    cbt_load: {deadline: §0.0005s}\n", "benchmarks.rgwtest.cbt_load.deadline: must be at least 0.001s"),
    ("    measure: {duration: §-1h}\n", "benchmarks.rgwtest.measure.duration: a duration cannot be negative"),
    ("    measure: §1h\n", "benchmarks.rgwtest.measure: must be a mapping (key: value), not text"),
    ("    measure: §{}\n", "benchmarks.rgwtest.measure.duration: this key is required"),
    ("    scale: §0\n", "benchmarks.rgwtest.scale: must be more than 0"),
    ("    scale: §.inf\n", "benchmarks.rgwtest.scale: must be a finite number"),
    ("    workers: §1000000\n", "benchmarks.rgwtest.workers: must be at most 10000"),
    ("    scale: §1%\n", "benchmarks.rgwtest.scale: must be a number such as 0.01"),
    ("    §phases: [{fill: {objects: 5}}]\n", "benchmarks.rgwtest.phases: the phases of rgwtest are fixed"),
    ("    §workloads: {a: {}}\n", "benchmarks.rgwtest.workloads: newer CBT versions take this key"),
    ("    §iteration: 3\n", "benchmarks.rgwtest.iteration: CBT sets this key itself"),
    ("    §osd_ra: [4096]\n", "benchmarks.rgwtest.osd_ra: nothing here sets read-ahead; set it on the nodes"),
    ("    valgrind: {a: §2023-01-01}\n", "benchmarks.rgwtest.valgrind.a: YAML reads this as a date"),
    ("    §7: x\n", "benchmarks.rgwtest[7]: the key 7 is not text: quote it"),
    (
        "    workers: 8\n    §workers: 9\n",
        "benchmarks.rgwtest.workers: duplicate key (first in line 11)",
    ),
    ("    warp_path: §warp\n", "benchmarks.rgwtest.warp_path: must be an absolute path"),
]
WARP_FAULTS = [
    ("    size: §4M\n" + CYCLE, "benchmarks.warp.size: 4M: 4MiB (4194304 bytes) or 4MB (4000000 bytes)?"),
    (
        "    size: [4KiB, §{4KiB: 60%}]\n" + CYCLE,
        "benchmarks.warp.size[1]: the sum of the shares is 60%, not 100%",
    ),
    ("    size: {4KiB: §50, 1MiB: 50%}\n" + CYCLE, "benchmarks.warp.size.4KiB: 50: percent? write 50%"),
    ("    size: {4KiB: 50%, §4096B: 50%}\n" + CYCLE, "benchmarks.warp.size.4096B: 4KiB is in the list twice"),
    ("    size: {4KiB: 50%, §4KiB: 50%}\n" + CYCLE, "benchmarks.warp.size.4KiB: duplicate key"),
    ("    buckets: §0\n" + CYCLE, "benchmarks.warp.buckets: must be at least 1"),
    (
        "    buckets: §{names: [a-b-c]}\n" + CYCLE,
        "benchmarks.warp.buckets: names are for buckets that exist already",
    ),
    (
        "    buckets: {names: [§x y], existing: true}\n" + CYCLE,
        "benchmarks.warp.buckets.names[0]: not a bucket name: 'x y'",
    ),
    (
        "    buckets: {§nmes: [abc], existing: true}\n" + CYCLE,
        "benchmarks.warp.buckets.nmes: unknown key; did you mean 'na",
    ),
    ("    buckets: 3\n    drivers: §2\n" + CYCLE, "benchmarks.warp.drivers: 2 cannot serve 3 buckets"),
    (
        "    engine: cbt-load\n    size: §{4KiB: 99.96%, 1MiB: 0.04%}\n" + CYCLE,
        "benchmarks.warp.size: cbt-load keeps shares to 0.1 %: round 0.04%",
    ),
    (
        "    engine: cbt-load\n    §versioned: true\n    buckets: {names: [abc], existing: true}\n" + READ,
        "benchmarks.warp.versioned: only for buckets that the run makes, and these exist already: remove the key",
    ),
    (
        "    rgw: {§index_shards: 11}\n    buckets: {names: [abc], existing: true}\n" + READ,
        "benchmarks.warp.rgw.index_shards: only for buckets that the run makes",
    ),
    (
        "    size: §[4KiB, 1MiB]\n    buckets: {a: {size: 8KiB}}\n" + CYCLE,
        "benchmarks.warp.size: makes no difference here: two elements of this list give the same run",
    ),
    (
        "    cycle: {phases: [{fill: {objects: 5}}, {hybrid: {duration: 9s, events: [{at: 1s, mark: §\"a\\nb\"}]}}]}\n",
        "benchmarks.warp.cycle.phases[1].hybrid.events[0].mark: must be text of one line",
    ),
    ("    cycle: §{}\n", "benchmarks.warp.cycle.phases: this key is required"),
    ("    cycle: {phases: §[]}\n", "benchmarks.warp.cycle.phases: must not be empty"),
    (
        "    cycle: {phases: [{§hybrid: {duration: 60s}}]}\n",
        "benchmarks.warp.cycle.phases[0].hybrid: no objects to work on",
    ),
    (
        "    cycle: {phases: [§{name: x}]}\n",
        "benchmarks.warp.cycle.phases[0]: needs one of fill, hybrid, ladder, warp, verify, delete, wait",
    ),
    (
        "    cycle: {phases: [{§fil: {}}]}\n",
        "benchmarks.warp.cycle.phases[0].fil: unknown key; did you mean 'fill'?",
    ),
    (
        "    cycle: {phases: [{wait: §{clean: true}}]}\n",
        "benchmarks.warp.cycle.phases[0].wait: clean needs at_most",
    ),
    (
        "    cycle: {phases: [{wait: {clean: §false, at_most: 1m}}]}\n",
        "benchmarks.warp.cycle.phases[0].wait.clean: must be true",
    ),
    (
        "    cycle: {phases: [{fill: {objects: 5}, name: §Fill it}]}\n",
        "benchmarks.warp.cycle.phases[0].name: 'Fill it': a name is made of a-z, 0-9 and -",
    ),
    (
        "    cycle: {phases: [{fill: {objects: 5}, name: a}, {wait: {duration: 5s}, name: §a}]}\n",
        "benchmarks.warp.cycle.phases[1].name: 'a' is the name of an earlier phase already",
    ),
    (
        "    cycle: {phases: [{fill: {objects: 5}}, {hybrid: {duration: 60s, "
        "workers: §{get: 1, put: 2, stat: 1}}}]}\n",
        "benchmarks.warp.cycle.phases[1].hybrid.workers: delete is in the mix (5) and has no workers",
    ),
    (
        "    cycle: {phases: [{fill: {objects: 5}}, {hybrid: {duration: 60s, mix: {get: 100}, "
        "workers: {get: 1, §put: 2}}}]}\n",
        "benchmarks.warp.cycle.phases[1].hybrid.workers.put: put has workers and no share of the mix",
    ),
    (
        "    cycle: {phases: [{warp: {op: get, duration: 60s, mix: §{get: 100}}}]}\n",
        "benchmarks.warp.cycle.phases[0].warp.mix: warp get has one operation only",
    ),
    (
        "    cycle: {phases: [{warp: {op: mixd, duration: 60s}}]}\n".replace("mixd", "§mixd"),
        "benchmarks.warp.cycle.phases[0].warp.op: must be mixed or get or put or stat or delete or list "
        "or multipart or versioned; did you mean 'mixed'?",
    ),
    (
        "    cycle: {phases: [{warp: {op: mixed, duration: 60s, objects: §8}}]}\n",
        "benchmarks.warp.cycle.phases[0].warp.objects: 8 objects for 8 workers",
    ),
    (
        "    cycle: {phases: [{warp: {op: get, duration: 60s, args: {§bucket: x}}}]}\n",
        "benchmarks.warp.cycle.phases[0].warp.args.bucket: warp's --bucket is set by the plan",
    ),
    ("    use_endpoints: §3\n" + CYCLE, "benchmarks.warp.use_endpoints: s3 has 1"),
    (
        "    §phases: [{fill: {objects: 5}}]\n" + CYCLE,
        "benchmarks.warp.phases: CBT makes each element of a list here a run",
    ),
    (
        "    cycle: §[{fill: {objects: 5}}]\n",
        "benchmarks.warp.cycle: CBT makes each element a run of its own",
    ),
]


@pytest.mark.parametrize(("section", "message"), RGWTEST_FAULTS)
def test_errors_of_rgwtest(tmp_path: Path, section: str, message: str) -> None:
    text, (place,) = marked(CLUSTER + RGWTEST + section)
    found = errors_in(tmp_path, text)
    assert any(fault.startswith(place + message) for fault in found), found


@pytest.mark.parametrize(("section", "message"), WARP_FAULTS)
def test_errors_of_warp(tmp_path: Path, section: str, message: str) -> None:
    text, (place,) = marked(CLUSTER + WARP + section)
    found = errors_in(tmp_path, text)
    assert any(fault.startswith(place + message) for fault in found), found


@pytest.mark.parametrize(
    ("s3", "message"),
    [
        ("§{urls: ['http://a']}", "needs user: (keys from radosgw-admin), profile: (or AWS_PROFILE), or access_key: "),
        ("§{user: cbt}", "needs urls: [http://rgw1:7480, ...] or endpoints: NAME"),
        ("{urls: §[], user: cbt}", "must not be empty"),
        ("{urls: ['http://a', §'http://a/'], user: cbt}", "this endpoint is in the list twice"),
        ("{urls: ['http://a', 'http://b', §'http://A:80'], user: cbt}", "this endpoint is in the list twice"),
        ("{urls: ['http://10.0.0.1:7480'], user: cbt, lookup: §dns}", "a URL has an IP address: use names, or path"),
        ("{endpoints: §twice, user: cbt}", "client_endpoints.twice: an endpoint is in the list twice"),
        ("{urls: §['http://a', 'https://b'], user: cbt}", "http and https cannot be mixed"),
        ("{urls: [§'rgw1:7480'], user: cbt}", "must be http://host[:port]"),
        ("{urls: [§'http://a/bucket'], user: cbt}", "must be http://host[:port]"),
        ("{urls: [§'http://a:99999'], user: cbt}", "must be http://host[:port]"),
        ("{urls: [§'http://key@a'], user: cbt}", "no user or key in a URL"),
        (
            "{endpoints: §hsbnch, user: cbt}",
            "no section 'hsbnch' under client_endpoints; did you mean 'hsbench'?",
        ),
        ("{endpoints: §nourls, user: cbt}", "client_endpoints.nourls has no list of urls"),
        ("{endpoints: §mixed, user: cbt}", "client_endpoints.mixed: http and https cannot be mixed"),
        ("{endpoints: hsbench, user: cbt, §sse: c}", "c goes with https URLs: every request brings the key"),
        ("{endpoints: hsbench, user: cbt, §ca_file: /ca.pem}", "goes with https URLs"),
        (
            "{endpoints: hsbench, urls: ['http://a'], user: cbt}".replace("endp", "§endp"),
            "either urls or endpoints",
        ),
        (
            "{urls: ['http://a'], §access_key: '${A}'}",
            "secret_key is missing: access_key needs it",
        ),
        (
            "{urls: ['http://a'], §user: u, access_key: '${A}', secret_key: '${B}'}",
            "either user or access_key",
        ),
        (
            "{urls: ['http://a'], user: u, host_select: §robin}",
            "must be weighed or roundrobin or one; did you mean 'roundr",
        ),
        ("{urls: ['http://a'], user: u, §ca_file: /ca.pem}", "goes with https URLs"),
        ("{urls: ['http://a'], user: u, §profile: p}", "one of user, profile, access_key + secret_key"),
        ("{urls: ['http://a'], profile: §'-x'}", "the name of a profile: letters"),
        ("{urls: ['http://a'], user: u, §session_token: '${T}'}", "goes with access_key and secret_key"),
        ("{urls: ['http://a'], access_key: '${A}', secret_key: '${B}', session_token: §abc}", "no secret in the YAML"),
        (
            "{urls: ['https://a'], access_key: '${A}', secret_key: '${B}', session_token: '${T}', §sse: c}",
            "c makes its key of the secret key, which changes with a session token: use keys without a token",
        ),
        ("{urls: ['https://a'], user: u, verify_tls: false, §ca_file: /ca.pem}", "checks no certificate"),
        ("{urls: ['http://a'], access_key: '${A}', secret_key: §'file:key'}", "file: needs an absolute path"),
    ],
)
def test_errors_of_s3(tmp_path: Path, s3: str, message: str) -> None:
    endpoints = (
        "client_endpoints:\n  hsbench: {urls: ['http://rgw:80'], driver: s3}\n  nourls: {driver: s3}\n"
        "  mixed: {urls: ['http://a', 'https://b']}\n  twice: {urls: ['http://a', 'http://a:80']}\n"
    )
    text, (place,) = marked(f"{CLUSTER}{endpoints}benchmarks:\n  rgwtest:\n    s3: {s3}\n")
    (found,) = errors_in(tmp_path, text)
    assert found.startswith(f"{place}benchmarks.rgwtest.s3")
    assert message in found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("  iterations: 1\n", ""), "cluster.iterations: this key is required: CBT's default is 0"),
        (("iterations: 1", "iterations: §0"), "cluster.iterations: 0 iterations run nothing at all"),
        (
            ("iterations: 1", "iterations: 1\n  use_existing: §false"),
            "cluster.use_existing: use_existing: false makes CBT",
        ),
        (
            ("iterations: 1", "iterations: 1\n  rebuild_every_test: §true"),
            "cluster.rebuild_every_test: these benchmarks",
        ),
        (("head: node0", "head: §[node0]"), "cluster.head: must be one host name, not a list"),
        (("[client1, client2]", "§client1"), "cluster.clients: must be a list, not text"),
        (("[client1, client2]", "§[]"), "cluster.clients: must not be empty"),
        (("[client1, client2]", "[client1, §client1]"), "cluster.clients[1]: client1 is in the list twice"),
        (("[client1, client2]", "[§'fe80::1']"), "cluster.clients[0]: CBT takes no IPv6 address here"),
        (("  user: root\n", ""), "cluster.user: this key is required"),
        (("  osds: [node1]\n", ""), "cluster.osds: this key is required"),
        (("iterations: 1", "iterations: 1\n  tmp_dir: §tmp"), "cluster.tmp_dir: must be an absolute path"),
    ],
)
def test_errors_of_the_cluster(tmp_path: Path, change: Tuple[str, str], message: str) -> None:
    text, places = marked((CLUSTER + RGWTEST).replace(*change))
    (found,) = errors_in(tmp_path, text)
    assert found.startswith("".join(places) or "f.yaml:2:3: ")
    assert message in found


def test_mappings_of_nodes_and_other_keys_of_cbt_are_fine(tmp_path: Path) -> None:
    cluster = CLUSTER.replace(
        "mons: [node0]", "mons: {node0: {a: '1.2.3.4:6789'}}\n  rgws: {rgw1: }\n  pool_profiles: {}"
    )
    assert errors_in(tmp_path, cluster + RGWTEST) == []


def test_all_errors_come_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text, places = marked(
        CLUSTER.replace("node0\n", "§[x]\n", 1)
        + "benchmarks:\n  rgwtest:\n    s3: {urls: [§7], user: cbt}\n    objects: {sizes: [§4K, §1]}\n"
        "    mix: §{get: 1}\n    §wrokers: 3\n    measure: {duration: §1}\n"
    )
    found = errors_in(tmp_path, text)
    assert [fault[: len(place)] for fault, place in zip(found, places)] == places
    assert len(found) == len(places)


def test_an_error_of_a_sweep_is_told_once_and_at_its_element(tmp_path: Path) -> None:
    sweep = "    size: [4KiB, §64K, 1MiB]\n    workers: [1, 2, §0]\n    scale: [1, 0.5]\n"
    text, places = marked(CLUSTER + WARP + sweep + CYCLE)
    found = errors_in(tmp_path, text)
    assert [fault.split(" ")[0] + " " for fault in found] == places


def test_an_empty_list_of_a_required_key_is_one_error(tmp_path: Path) -> None:
    (found,) = errors_in(tmp_path, CLUSTER + WARP + "    cycle: []\n")
    assert "empty list" in found


def test_a_sweep_too_large_is_refused_before_it_is_counted_out(tmp_path: Path) -> None:
    sweep = "".join(f"    {key}: {list(range(1, 101))}\n" for key in ("workers", "drivers", "read_objects"))
    (found,) = errors_in(tmp_path, CLUSTER + WARP + sweep + CYCLE)
    assert "multiply to 1000000, and" in found


def test_a_misspelt_benchmark_and_an_empty_monitor_profile(tmp_path: Path) -> None:
    text, places = marked(CLUSTER + "monitoring_profiles:\n  §collectl:\n" + RGWTEST + "  §wrap: {}\n")
    found = errors_in(tmp_path, text)
    assert [fault.split(" ", 1)[0] + " " for fault in found] == places
    assert "collectl: {}" in found[0]
    assert "did you mean 'warp'?" in found[1]


def test_a_fault_file_of_a_name_that_no_file_can_have(tmp_path: Path) -> None:
    profile = 'monitoring_profiles: {faults: {file: "a\\0b"}}\n'
    found = errors_in(tmp_path, CLUSTER + profile + RGWTEST)
    assert any("cannot be read: embedded null byte" in error for error in found), found


def test_a_fault_file_beside_osds_that_are_no_names(tmp_path: Path) -> None:
    (tmp_path / "faults.yaml").write_text("events: [{at: 1s, mark: a}]\n", encoding="utf-8")
    profile = f"monitoring_profiles: {{faults: {{file: {tmp_path}/faults.yaml}}}}\n"
    (found,) = errors_in(tmp_path, CLUSTER.replace("[node1]", "5") + profile + "benchmarks: {radosbench: {a: 1}}\n")
    assert "cluster.osds: must be a host name, a list of them" in found


def test_files_without_a_section_of_ours_are_none_of_our_business(tmp_path: Path) -> None:
    assert errors_in(tmp_path, "cluster: {}\nbenchmarks:\n  radosbench: {a: 1, a: 2}\n  fio:\n") == []


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("clients: 'a,b'\n  osds: {root@n1: {}}\n  mons: [n1, 10.0.0.1]", ""),
        ("clients: 'a,§b c'", "cluster.clients: 'b c' is not a host name"),
        ("osds: [n1, §7]", "cluster.osds[1]: must be a host name (quote it when it is a number)"),
        ("mons: §5", "cluster.mons: must be a host name, a list of them, or a mapping from them"),
        ("mons: {§a/b: {}}", "cluster.mons.a/b: 'a/b' is not a host name"),
        ("head: CEPH1.lab\n  osds: §[n1, root@ceph1.lab]", "cluster.osds: ceph1.lab and CEPH1.lab are one host: write"),
    ],
)
def test_nodes_beside_benchmarks_of_cbt_and_a_profile_of_ours(tmp_path: Path, nodes: str, message: str) -> None:
    text, _ = marked(
        f"cluster:\n  iterations: 1\n  {nodes}\nbenchmarks:\n  radosbench: {{}}\n"
        "monitoring_profiles: {recovery: {}}\n"
    )
    found = errors_in(tmp_path, text)
    assert len(found) == bool(message)
    assert all(message in one for one in found)


def test_a_host_is_written_in_one_way(tmp_path: Path) -> None:
    (found,) = errors_in(tmp_path, CLUSTER.replace("clients: [", "clients: [NODE1, ") + RGWTEST)
    assert "are one host: write it in one way" in found


def test_other_benchmarks_beside_ours_are_left_alone(tmp_path: Path) -> None:
    assert errors_in(tmp_path, CLUSTER + RGWTEST + "  radosbench: {a: 1, a: 2, op_size: [1]}\n") == []


def test_keys_that_cbt_reads_in_every_section_are_accepted(tmp_path: Path) -> None:
    keys = "    acceptable: {bandwidth: (greater)}\n    valgrind: null\n    log_iops: false\n"
    assert errors_in(tmp_path, CLUSTER + RGWTEST + keys) == []


def test_runs_come_in_the_order_of_cbt(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    sections = WARP + "    workers: [1, 2]\n    size: [4KiB, 8KiB]\n" + CYCLE + "  rgwtest:\n" + S3
    file.write_text(CLUSTER.replace("iterations: 1", "iterations: 2") + sections, encoding="utf-8")
    warp = [{"workers": w, "size": s} for w in (1, 2) for s in ("4KiB", "8KiB")]
    runs = load_file(file).runs
    assert [(run.iteration, run.benchmark, dict(run.varied)) for run in runs] == [
        (i, name, varied) for i in (0, 1) for name, varied in [("rgwtest", {}), *(("warp", v) for v in warp)]
    ]
    assert runs[1].config["benchmark"] == "warp"
    assert runs[-1].config["iteration"] == 1


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[2] / "benchmark_configs").glob("*.yaml")), ids=lambda p: p.name
)
def test_shipped_files_have_no_errors(path: Path) -> None:
    if is_fault_file(read(path)):
        assert load_fault_file(path)[0]
        return
    config = load_file(path)
    assert config.runs or config.others


@pytest.mark.parametrize("benchmark", ["hsbench: {}", "warp: {s3: {urls: ['http://a'], user: u}, size: 4KiB}"])
def test_the_file_of_errors_is_checked_before_any_load(tmp_path: Path, benchmark: str) -> None:
    """Beside CBT's own benchmarks too: there the profile is all that is ours."""
    (tmp_path / "faults.yaml").write_text("events:\n- {at: 1s, fault: {label: a, kind: stpo, nodes: [node9]}}\n")
    profiles = f"monitoring_profiles: {{faults: {{file: {tmp_path}/faults.yaml}}, recovery: {{intervall: 2}}}}\n"
    found = errors_in(tmp_path, f"{CLUSTER}{profiles}benchmarks: {{{benchmark}}}\n")
    assert [text for text in found if "did you mean 'stop'?" in text and "faults.yaml:2:" in text]
    assert [text for text in found if "node9 is not among the cluster's osds" in text]
    assert [text for text in found if "recovery.intervall: unknown key" in text]


def test_a_fault_file_beside_a_cycle_is_refused_with_the_place_for_it(tmp_path: Path) -> None:
    """Its times would begin anew in each phase: the node would go down in the fill."""
    (tmp_path / "faults.yaml").write_text("events: [{at: 1s, mark: a}]\n", encoding="utf-8")
    profiles = f"monitoring_profiles: {{faults: {{file: {tmp_path}/faults.yaml}}}}\n"
    (found,) = errors_in(tmp_path, CLUSTER + profiles + RGWTEST)
    refused = "monitoring_profiles.faults: the times of the fault file would begin again in each phase of the cycle"
    assert refused in found
    assert "events: {file: PATH}" in found


def test_a_fault_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    profiles = f"monitoring_profiles: {{faults: {{file: {tmp_path}/none.yaml}}}}\n"
    (found,) = errors_in(tmp_path, f"{CLUSTER}{profiles}benchmarks: {{hsbench: {{}}}}\n")
    assert "none.yaml: cannot be read" in found
