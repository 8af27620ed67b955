"""A service of which a run has keys and nothing else: the lab's gateways, from clients without Ceph's programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
import yaml
from cycles import IN_HOME, S3, Cycle, generators
from doc_examples import files_in
from running_lab import RunningLab
from waiting import wait_for

pytestmark = [pytest.mark.lab, pytest.mark.long]

CLIENTS = ("client1", "client2")
#: Ceph's programs and keys are gone until SHOW; `umount -l`: a program of the run may still be open
HIDE = """
set -e; mkdir -p /run/s3/upper /run/s3/work
mount -t overlay overlay -o lowerdir=/usr/bin,upperdir=/run/s3/upper,workdir=/run/s3/work /usr/bin
cd /usr/bin && rm -f ceph ceph-* rados radosgw radosgw-admin rbd && mount -t tmpfs tmpfs /etc/ceph
"""
SHOW = "umount -l /etc/ceph; umount -l /usr/bin; rm -rf /run/s3 /root/.aws"
CREDENTIALS = "[prod]\naws_access_key_id = {access_key}\naws_secret_access_key = {secret_key}\n"


class S3Cycle(Cycle):
    """A run that a client leads."""

    leader = CLIENTS[0]


@pytest.fixture
def outside(lab: RunningLab) -> Iterator[Dict[str, str]]:
    """The keys of the lab's user, which the leading client has as a profile; clients have nothing else of Ceph."""
    keys: Dict[str, str] = json.loads((lab.dir / "s3.json").read_text())
    write = "umask 077; mkdir -p /root/.aws; cat > /root/.aws/credentials"
    try:
        for client in CLIENTS:
            hidden = lab.exec(client, ["sh", "-c", HIDE])
            assert hidden.returncode == 0, hidden.stderr
            gone = lab.exec(client, ["sh", "-c", "command -v ceph radosgw-admin rados || ls -A /etc/ceph"])
            assert (gone.returncode, gone.stdout) == (0, ""), gone
        assert lab.exec(CLIENTS[0], ["sh", "-c", write], input=CREDENTIALS.format(**keys)).returncode == 0
        yield keys
    finally:
        for client in CLIENTS:
            lab.exec(client, ["sh", "-c", SHOW])


def cycle_of_the_page(lab: RunningLab, folder: Path) -> S3Cycle:
    """Return a run of the file of docs/SITES.md; only the service's URL, the login and the lengths are other ones."""
    config = yaml.safe_load(files_in("SITES.md")["S3 only"])
    config["cluster"]["user"] = "root"
    section = config["benchmarks"]["rgwtest"]
    section["s3"]["urls"] = S3["urls"]
    section.update(fill={"objects": 60}, measure={"duration": "5s"}, age={"duration": "5s"})
    cycle = S3Cycle(lab, folder)
    cycle.file.write_text(yaml.safe_dump(config, sort_keys=False))
    return cycle


def tool(cycle: Cycle, *words: str) -> Any:
    line = [cycle.lab.python, "-m", "cbt_plugins.tools", *words]
    return cycle.lab.exec(cycle.leader, ["sh", "-c", IN_HOME, str(cycle.lab.home), *line])


def buckets(lab: RunningLab) -> List[str]:
    return sorted(json.loads(lab.exec("node0", ["radosgw-admin", "bucket", "list"]).stdout))


def test_the_file_of_the_page_runs_to_its_report(lab: RunningLab, tmp_path: Path, outside: Dict[str, str]) -> None:
    before, cycle = buckets(lab), cycle_of_the_page(lab, tmp_path)
    live = tool(cycle, "plan", str(cycle.file), "--live")
    assert live.returncode == 0 and "is ready for a run" in live.stdout, live.stdout + live.stderr
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    reported = tool(cycle, "report", str(cycle.archive))
    assert reported.returncode == 0 and "[no-admin]" in reported.stdout, reported.stderr
    assert (cycle.folder / "report.html").exists()
    assert list(cycle.phases()) == ["fill", "measure-new", "age", "measure-aged"]
    assert {phase["status"] for phase in cycle.phases().values()} == {"ok"}
    summary = cycle.summary()
    assert [warning["code"] for warning in summary["warnings"]].count("no-admin") == 1
    nodes = summary["resources"]["phases"]["measure-new"]["nodes"]
    assert {row["node"] for row in nodes} == set(CLIENTS) and all(row["watched"] for row in nodes)
    assert buckets(lab) == before and cycle.left() == []
    files = [path for path in cycle.archive.rglob("*") if path.is_file()]
    assert files and not [path for path in files if outside["secret_key"].encode() in path.read_bytes()]


def test_a_run_that_is_killed_keeps_its_buckets_until_it_is_resumed(
    lab: RunningLab, tmp_path: Path, outside: Dict[str, str]
) -> None:
    before, cycle = buckets(lab), cycle_of_the_page(lab, tmp_path)
    assert cycle.broken_off(lambda: cycle.running_rows("age") > 20, "the aging") != 0
    wait_for(lambda: generators(lab) == [], "the generators to end", 60)
    own = set(buckets(lab)) - set(before)
    undone = cycle.undo("--data")
    assert undone.returncode == 0, undone.stderr
    assert len(own) == 2 and all(f"bucket {name} of this run was not removed" in undone.stderr for name in own)
    done = cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    assert (cycle.folder / "complete").exists() and buckets(lab) == before
