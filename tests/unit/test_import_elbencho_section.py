"""`cbt-tools import elbencho`: CBT's section as a file of ours, whose plan is what the section says."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, Tuple

import pytest
import yaml

from cbt_plugins.config.converters.elbencho import convert
from cbt_plugins.config.errors import ConfigError
from cbt_plugins.config.file_check import Config, load
from cbt_plugins.config.yaml_source import YamlSource
from cbt_plugins.tools.__main__ import main

#: in the form of docs/workloads/elbencho-s3.md of CBT's pull request 359
FILE = """\
cluster:
  user: 'cbt'
  head: 'mon1'
  clients: ['client1', 'client2']
  osds: ['osd1', 'osd2', 'osd3']
  rgws: ['osd1', 'osd2']
  osds_per_node: 1
  conf_file: '/etc/ceph/ceph.conf'
  iterations: 2
  use_existing: True
  clusterid: 'ceph'
  tmp_dir: '/tmp/cbt'
benchmarks:
  elbencho:
    cmd_path: '/usr/local/bin/elbencho'
    auth:
      config: access_key=AKEY;secret_key=SKEY;url=http://10.0.0.5:8000;retry=9
    workloads:
      write_small:
        s3_bucket: 'cbt-benchmark'
        mode: 'write'
        mkdirs: True
        threads: [1, 4]
        iodepth: [1, 4]
        blocksize: ['64m']
        size: '10m'
        num_objects: 100
        duration: 30
      read_small:
        s3_bucket: 'cbt-benchmark'
        mode: 'read'
        threads: 4
        iodepth: 2
        blocksize: '64m'
        size: '10m'
        num_objects: 100
        duration: 30
"""


def converted(tmp_path: Path, text: str) -> Tuple[Config, str]:
    path = tmp_path / "cbt.yaml"
    path.write_text(text)
    made, notes = convert(path)
    assert all(f"# Not carried over: {note}." in made for note in notes)
    return load(YamlSource(made.encode(), "made.yaml")), "\n".join(notes)


def test_writes_and_reads(tmp_path: Path) -> None:
    config, notes = converted(tmp_path, FILE)
    assert config.cluster["clients"] == ["client1", "client2"] and config.cluster["iterations"] == 2
    assert config.cluster["mons"] == ["osd1"]  # of which the section says nothing
    assert "osds_per_node" not in config.cluster
    plan = config.runs[0].plan
    assert plan.s3.urls == ("http://10.0.0.5:8000",) and plan.s3.access_key_source == "env:AWS_ACCESS_KEY_ID"
    assert plan.cbt_load.retries == 9 and [bucket.sizes[0][0] for bucket in plan.buckets] == [10 << 20]
    fill, *phases = plan.phases
    assert fill.goal and fill.goal.objects == 400
    described = [(p.name, p.duration, p.works[0].workers, dict(p.works[0].mix)) for p in phases]
    assert described == [
        ("write-small-put-1", 30.0, 1, {"PUT": 100}),
        ("write-small-put-4", 30.0, 4, {"PUT": 100}),
        ("write-small-put-16", 30.0, 16, {"PUT": 100}),
        ("read-small-get-8", 30.0, 8, {"GET": 100}),
    ]
    assert phases[0].works[0].keys["PUT"].select == "s(1,N)"
    assert "threads and iodepth of write-small as two" in notes


def test_no_key_is_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "cbt.yaml", tmp_path / "my.yaml"
    source.write_text(FILE.replace("retry=9", "retry=9\n      s3_session_token: TOKEN"))
    assert main(["import", "elbencho", str(source), "-o", str(target)]) == 0
    err = capsys.readouterr().err
    assert f"Warning: not converted: the keys in {source}:17, which are secrets: set AWS_ACCESS_KEY_ID" in err
    assert "the session token, which is a secret" in err
    for secret in ("AKEY", "SKEY", "TOKEN"):
        assert secret not in target.read_text().replace("AWS_SESSION_TOKEN", "") + err.replace("AWS_SESSION_TOKEN", "")
    s3 = yaml.safe_load(target.read_text())["benchmarks"]["warp"]["s3"]
    assert s3["session_token"] == "${AWS_SESSION_TOKEN}"
    assert main(["import", "elbencho", str(source), "-o", str(target)]) == 2  # nothing is overwritten


def test_parts_are_a_sweep(tmp_path: Path) -> None:
    config, notes = converted(tmp_path, FILE.replace("['64m']", "['5m', '8m', '64m']").replace("'64m'\n", "5m\n"))
    assert [run.plan.cbt_load.part_size for run in config.runs] == [5 << 20, 8 << 20] * 2
    names = [phase.name for phase in config.runs[0].plan.phases]
    assert "write-small-multipart-16" in names and "write-small-put-16" in names
    assert config.runs[0].plan.phases[1].works[0].mix == {"MULTIPART": 100}
    assert "each size of parts makes a run" in notes and "reads of read-small in parts" in notes


@pytest.mark.parametrize(("size", "mix"), [("10m", {"MULTIPART": 100}), ("4m", {"PUT": 100})])
def test_parts_that_s3_refuses_become_larger(tmp_path: Path, size: str, mix: Dict[str, int]) -> None:
    """elbencho's own default is 4k."""
    text = FILE.replace("        blocksize: ['64m']\n", "").replace("size: '10m'", f"size: {size}")
    config, notes = converted(tmp_path, text)
    assert {run.plan.cbt_load.part_size for run in config.runs} == ({5 << 20} if size == "10m" else {16 << 20})
    assert config.runs[0].plan.phases[1].works[0].mix == mix
    becomes = "parts of 5MiB" if size == "10m" else "whole objects"
    assert f"writes of write-small in parts below 5MiB, which S3 refuses: {becomes}" in notes


def test_buckets_of_several_sizes(tmp_path: Path) -> None:
    text = FILE.replace("mode: 'read'", "mode: readwrite")
    text = text.replace("iodepth: 2\n", "total_iodepth: 6\n        num_buckets: 3\n")
    bounded = "size: '10m'\n        num_objects: 100\n        duration: 30\n"
    text = text.replace(bounded, "size: 1.5k\n        num_dirs: 2\n", 1)
    config, notes = converted(tmp_path, text)
    plan = config.runs[0].plan
    assert [(bucket.key, bucket.sizes[0][0], bucket.objects) for bucket in plan.buckets] == [
        ("b1", 1536, 8),
        *((f"b2-{number}", 10 << 20, 400) for number in (1, 2, 3)),
    ]
    put, get = plan.phases[-2:]
    assert (put.name, get.name) == ("read-small-put-24", "read-small-get-24")
    assert put.works[0].roles == {"PUT": ("b2-1", "b2-2", "b2-3")}
    assert plan.phases[1].duration == 300.0 and "the end of write_small by its number of objects" in notes


@pytest.mark.parametrize(
    ("old", "new", "note"),
    [
        ("mkdirs: True", "hosts: c1,c2", "hosts of write_small: the clients of `cluster:` make the load"),
        ("mode: 'read'", "mode: list", "mode list of read_small which CBT skips"),
        ("url=http://10.0.0.5:8000;", "", "the endpoint: auth.config has no url"),
        ("mkdirs: True", "num_buckets: 4", "num_buckets of write_small: it goes with total_iodepth only"),
        ("  elbencho:\n", "  fio: {}\n  elbencho:\n", "benchmark fio"),
    ],
)
def test_what_is_left_behind_is_named(tmp_path: Path, old: str, new: str, note: str) -> None:
    assert old in FILE
    assert note in converted(tmp_path, FILE.replace(old, new))[1]


def test_keys_of_the_section_hold_for_all_workloads(tmp_path: Path) -> None:
    text = FILE.replace("    workloads:\n", "    s3_region: eu-1\n    num_dirs: 3\n    workloads:\n")
    plan = converted(tmp_path, text)[0].runs[0].plan
    assert plan.s3.region == "eu-1" and plan.phases[0].goal and plan.phases[0].goal.objects == 1200


@pytest.mark.parametrize(
    ("old", "new", "errors"),
    [
        ("mode: 'write'", "mode: wirte", ["21:15: benchmarks.elbencho.workloads.write_small.mode: must be write, "]),
        ("        size: '10m'\n", "", ["write_small: needs size", "read_small: needs size"]),
        ("threads: 4", "threads: [4, x]", ["cbt.yaml:32:18: ", "read_small.threads: must be a whole number of 1 "]),
        ("threads: 4", "threads: 0", ["read_small.threads: must be a whole number of 1 or more"]),
        ("iodepth: 2", "iodepth: 2\n        total_iodepth: 4", ["total_iodepth: excludes iodepth: keep one"]),
        ("blocksize: '64m'", "blocksize: 64MiB", ["read_small.blocksize: must be a size as elbencho has it, such"]),
        ("size: '10m'\n", "size: [1m, 2m]\n", ["write_small.size: must be a size", "read_small.size: must be a size"]),
        ("mkdirs:", "mkdir:", ["write_small.mkdir: unknown key; did you mean 'mkdirs'?"]),
        ("cmd_path:", "cmdpath:", ["benchmarks.elbencho.cmdpath: unknown key; did you mean 'cmd_path'?"]),
        ("        mkdirs: True\n", "        s3_region: [a]\n", ["write_small.s3_region: must be one value"]),
        ("      read_small:\n", "      read_small: 5\n      third:\n", ["workloads.read_small: must be a mapping"]),
        ("  elbencho:", "  elbenco:", ["no workloads of elbencho: needs benchmarks"]),
        ("    workloads:", "    workload:", ["no workloads of elbencho"]),
        ("benchmarks:", "[", ["not YAML"]),
    ],
)
def test_errors_name_line_and_key(tmp_path: Path, old: str, new: str, errors: List[str]) -> None:
    assert old in FILE
    path = tmp_path / "cbt.yaml"
    path.write_text(FILE.replace(old, new))
    with pytest.raises(ConfigError) as raised:
        convert(path)
    for error in errors:
        assert error in str(raised.value), raised.value
    assert f"{path}:" in str(raised.value) and "SKEY" not in str(raised.value)


def test_workloads_with_several_regions(tmp_path: Path) -> None:
    path = tmp_path / "cbt.yaml"
    text = FILE.replace("mkdirs: True", "s3_region: a")
    path.write_text(text.replace("threads: 4\n", "threads: 4\n        s3_region: b\n"))
    with pytest.raises(ConfigError, match=r"several s3_region \(a, b\): keep one"):
        convert(path)
