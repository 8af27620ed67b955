"""Conventions of other programs on a real cluster: a profile of AWS's tools, and CBT's section `elbencho:`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Dict, Iterator

import pytest
from cycles import IN_HOME, S3, Cycle
from running_lab import RunningLab

from cbt_plugins.config.converters.elbencho import convert

pytestmark = [pytest.mark.lab, pytest.mark.long]

SECTION: Dict[str, Any] = {
    "objects": {"sizes": ["4KiB"]},
    "workers": 4,
    "fill": {"objects": 50},
    "measure": {"duration": "3s"},
    "age": {"duration": "3s"},
    "generator_ceiling": False,
}
CREDENTIALS = "[lab]\naws_access_key_id = {access_key}\naws_secret_access_key = {secret_key}\n"
CONFIG = """\
[profile lab]
services = lab
region = lab-1
[services lab]
s3 =
  endpoint_url = http://rgw2:7480
"""


def write(lab: RunningLab, name: str, text: str) -> None:
    """Write a file of node0's own `/root/.aws`."""
    script = f"umask 077; mkdir -p /root/.aws; cat > /root/.aws/{name}"
    assert lab.exec("node0", ["sh", "-c", script], input=text).returncode == 0


@pytest.fixture
def keys(lab: RunningLab) -> Iterator[Dict[str, str]]:
    """The keys of the lab's user, as profile `lab` with an endpoint for S3."""
    keys: Dict[str, str] = json.loads((lab.dir / "s3.json").read_text())
    write(lab, "credentials", CREDENTIALS.format(**keys))
    write(lab, "config", CONFIG)
    yield keys
    lab.exec("node0", ["rm", "-r", "/root/.aws"])


def test_a_run_with_the_keys_and_the_endpoint_of_a_profile(
    lab: RunningLab, keys: Dict[str, str], tmp_path: Path
) -> None:
    cycle = Cycle(lab, tmp_path, rgwtest={**SECTION, "s3": {"profile": "lab"}})
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    plan = json.loads((cycle.folder / "plan.json").read_text())
    assert (plan["s3"]["urls"], plan["s3"]["region"]) == (["http://rgw2:7480"], "lab-1")
    assert {phase["status"] for phase in cycle.phases().values()} == {"ok"}
    leaks = subprocess.run(["grep", "-rlF", keys["secret_key"], str(cycle.archive)], capture_output=True, text=True)
    assert leaks.returncode == 1, leaks.stdout


def test_keys_of_a_profile_that_are_wrong(lab: RunningLab, keys: Dict[str, str], tmp_path: Path) -> None:
    """`init` asks the gateways with the keys; a file that others can write is refused."""
    options = ("--head", "node0", "--clients", "client1", "--profile", "lab", "-o")
    words = [lab.python, "-m", "cbt_plugins.tools", "init", *options]

    def init(name: str) -> subprocess.CompletedProcess[str]:
        return lab.exec("node0", ["sh", "-c", IN_HOME, str(lab.home), *words, str(tmp_path / name)])

    right = init("right.yaml")
    assert (right.returncode, right.stderr) == (0, "")
    write(lab, "credentials", CREDENTIALS.format(**{**keys, "secret_key": "wrong"}))
    wrong = init("wrong.yaml")
    assert wrong.returncode == 0 and "the keys of profile lab are wrong: " in wrong.stderr
    lab.exec("node0", ["chmod", "o+w", "/root/.aws/credentials"])
    refused = init("open.yaml")
    assert refused.returncode == 2 and "others can write it" in refused.stderr
    assert not (tmp_path / "open.yaml").exists()


ELBENCHO = """\
cluster:
  {user: root, head: node0, clients: [client1, client2], osds: [node1, node2, node3, node4], mons: [node0],
   rgws: [rgw1, rgw2], iterations: 1, use_existing: True, clusterid: ceph, tmp_dir: /var/tmp/cbt}
benchmarks:
  elbencho:
    auth: {config: "access_key=A;secret_key=S;url=http://rgw1:7480,http://rgw2:7480;retry=2"}
    workloads:
      write: {s3_bucket: x, mode: write, mkdirs: True, threads: 2, iodepth: [1, 2], blocksize: [5m, 6m], size: 6m,
              num_objects: 3, duration: 3}
      read: {s3_bucket: x, mode: read, threads: 2, iodepth: 2, blocksize: 6m, size: 6m, num_objects: 3, duration: 3}
      small: {s3_bucket: y, mode: stat, threads: 1, iodepth: 1, size: 4k, num_objects: 20, duration: 3}
      names: {s3_bucket: y, mode: list, threads: 1, iodepth: 1, size: 4k, num_objects: 20, duration: 3}
"""


def test_a_section_of_elbencho_runs(lab: RunningLab, tmp_path: Path) -> None:
    (tmp_path / "cbt.yaml").write_text(ELBENCHO)
    text, _ = convert(tmp_path / "cbt.yaml")
    cycle = Cycle(lab, tmp_path)
    keys = "      access_key: ${AWS_ACCESS_KEY_ID}\n      secret_key: ${AWS_SECRET_ACCESS_KEY}\n"
    assert keys in text
    cycle.file.write_text(text.replace(keys, f"      user: {S3['user']}\n"))
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    phases = cycle.phases()
    names = [f"write-{kind}-{workers}" for kind in ("multipart", "put") for workers in (2, 4)]
    assert list(phases) == ["fill", *names, "read-get-4", "small-stat-1", "names-list-1"]
    assert {phase["status"] for phase in phases.values()} == {"ok"}
    operations = [list(phase["ops"]) for phase in cycle.summary()["phases"][1:]]
    assert operations == [[f"load:{op}"] for op in (*["MULTIPART"] * 2, *["PUT"] * 2, "GET", "STAT", "LIST")]
