from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Callable, Dict, List

import pytest

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.object_sample import ObjectSample
from cbt_plugins.cluster.remote import Remote, Result
from cbt_plugins.tools.__main__ import main

POOLS = [
    {"pool_id": 1, "pool_name": "rbd", "pg_num": 4},
    {"pool_id": 2, "pool_name": "default.rgw.log", "pg_num": 4},
    {"pool_id": 3, "pool_name": "site.rgw.buckets.data", "pg_num": 32},
    {"pool_id": 4, "pool_name": "device_health_metrics", "pg_num": 1},
]
#: stand-ins that work on a folder: POOL_ID.PG/NAME
CEPH = '[ "$1" = fsid ] && echo F-1 || { echo; cat "$ROOT/pools"; }'
RADOS = """
[ ! -e "$ROOT/no-socket" ] || echo "-1 AdminSocket::bind_and_listen: failed: (2) No such file or directory" >&2
case "$1" in
--pgid) echo "$2" >> "$ROOT/asked"; [ ! -e "$ROOT/fails" ] || exit 2; [ ! -e "$ROOT/pgs/$2" ] || ls "$ROOT/pgs/$2" ;;
-p) [ ! -e "$ROOT/unreadable" ] || { echo "error getting $2/$4: (5) Input/output error" >&2; exit 1; }
    cat "$ROOT"/pgs/*/"$4" 2>/dev/null || { echo "error getting $2/$4: (2) No such file or directory" >&2; exit 1; } ;;
esac
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    (tmp_path / "pools").write_text(json.dumps(POOLS) + "\n")
    objects: Dict[str, str] = {"1.0": "a", "1.3": "b", "3.1f": "c", "3.2": "it's d", "2.1": "log", "4.0": "device"}
    objects["3.5"] = "b1__shadow_x.1"
    for group, name in objects.items():
        (tmp_path / "pgs" / group).mkdir(parents=True)
        (tmp_path / "pgs" / group / name).write_text(f"data of {name}")
    (tmp_path / "bin").mkdir()
    for program, text in (("ceph", CEPH), ("rados", RADOS)):
        (tmp_path / "bin" / program).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / program).chmod(0o755)
    return tmp_path


def shell_on(folder: Path) -> Callable[[str], str]:
    def shell(script: str) -> str:
        environment = {"ROOT": str(folder), "PATH": f"{folder}/bin:/usr/bin:/bin"}
        return subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True).stdout

    return shell


def test_clients_objects_are_found_and_others_left_out(cluster: Path) -> None:
    sample = ObjectSample.take(shell_on(cluster))
    found = {(one.pool, one.name): one.sha256 for one in sample.objects}
    data = "site.rgw.buckets.data"
    assert set(found) == {("rbd", "a"), ("rbd", "b"), (data, "c"), (data, "it's d")}
    assert found["rbd", "a"] == hashlib.sha256(b"data of a").hexdigest()
    assert sample.fsid == "F-1"
    assert ObjectSample.of_json(json.loads(json.dumps(sample.as_json()))) == sample


def test_the_seed_chooses(cluster: Path) -> None:
    (cluster / "pgs" / "1.1").mkdir()
    for number in range(40):
        (cluster / "pgs" / "1.1" / f"n{number}").write_text("")
    names = [tuple(one.name for one in ObjectSample.take(shell_on(cluster), seed).objects) for seed in (1, 1, 2)]
    assert names[0] == names[1] != names[2]
    assert sum(name.startswith("n") for name in names[0]) == 2


def test_a_sample_may_have_a_single_object(cluster: Path) -> None:
    asked = []

    def shell(script: str) -> str:
        asked.append(script)
        assert len(asked) < 100, "the same question again"
        return shell_on(cluster)(script)

    assert len(ObjectSample.take(shell, count=1).objects) == 1


def test_changed_missing_and_foreign_are_told_apart(cluster: Path) -> None:
    sample = ObjectSample.take(shell_on(cluster))
    assert sample.differences(shell_on(cluster)) == []
    (cluster / "pgs/1.0/a").write_text("other")
    (cluster / "pgs/3.2/it's d").unlink()
    assert sorted(sample.differences(shell_on(cluster))) == [
        "object a of pool rbd: other content",
        "object it's d of pool site.rgw.buckets.data: missing",
    ]
    (cluster / "bin/ceph").write_text("#!/bin/sh\necho F-2\n")
    assert sample.differences(shell_on(cluster)) == ["fsid F-2, expected F-1"]


def test_a_sample_of_another_format_is_refused(cluster: Path) -> None:
    document = {**ObjectSample.take(shell_on(cluster)).as_json(), "format": 9}
    with pytest.raises(ValueError, match="format 9"):
        ObjectSample.of_json(document)


# -- the verb


@pytest.fixture
def file(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A CBT file whose head runs the stand-ins on this machine."""
    def run(self: Remote, nodes: List[str], command: str, timeout: float, check: bool) -> object:
        assert (nodes, check) == (["mon1"], False)
        environment = {"ROOT": str(cluster), "PATH": f"{cluster}/bin:/usr/bin:/bin"}
        done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True)
        return {"mon1": Result(done.stdout, done.stderr, done.returncode)}

    monkeypatch.setattr(Remote, "run", run)
    monkeypatch.setattr(Ceph, "head", "mon1", raising=False)
    path = cluster / "my.yaml"
    path.write_text("cluster: {user: root, head: mon1, conf_file: '/etc/it is/ceph.conf'}\n")
    first = '\n[ "$1 $2" = "-c /etc/it is/ceph.conf" ] || exit 9; shift 2\n'
    for program in (cluster / "bin").iterdir():
        program.write_text(program.read_text().replace("\n", first, 1))
    return path


def test_a_sample_is_recorded_and_checked(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sample = file.with_name("aged.json")
    assert main(["snapshot", "record", str(file), str(sample)]) == 0
    assert len(json.loads(sample.read_text())["objects"]) == 4
    assert main(["snapshot", "check", str(file), str(sample)]) == 0
    assert "fsid and 4 objects are the same as in" in capsys.readouterr().out
    (file.parent / "pgs/1.0/a").write_text("other")
    assert main(["snapshot", "check", str(file), str(sample)]) == 1
    assert "differs from the recorded sample: object a of pool rbd: other content" in capsys.readouterr().err


def test_a_list_of_objects_that_fails_is_an_error(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that is longer than what is looked at is none, although `rados` ends by SIGPIPE."""
    (file.parent / "pgs" / "1.1").mkdir()
    for number in range(2500):
        (file.parent / "pgs" / "1.1" / f"object{number:040}").touch()
    assert main(["snapshot", "record", str(file), str(file.with_name("aged.json"))]) == 0
    (file.parent / "fails").touch()
    assert main(["snapshot", "record", str(file), str(file.with_name("other.json"))]) == 1
    assert "rados --pgid" in capsys.readouterr().err and not file.with_name("other.json").exists()


def test_objects_that_cannot_be_read_are_an_error(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sample, unreadable = file.with_name("aged.json"), file.parent / "unreadable"
    unreadable.touch()
    assert main(["snapshot", "record", str(file), str(sample)]) == 1
    assert "failed: error getting" in capsys.readouterr().err and not sample.exists()
    unreadable.unlink()
    assert main(["snapshot", "record", str(file), str(sample)]) == 0
    unreadable.touch()
    assert main(["snapshot", "check", str(file), str(sample)]) == 1
    said = capsys.readouterr().err
    assert "(5) Input/output error" in said and "missing" not in said
    (file.parent / "no-socket").touch()
    assert main(["snapshot", "check", str(file), str(sample)]) == 1
    said = capsys.readouterr().err
    assert "(5) Input/output error" in said and "missing" not in said
    unreadable.unlink()
    (file.parent / "pgs/1.0/a").unlink()
    assert main(["snapshot", "check", str(file), str(sample)]) == 1
    assert "object a of pool rbd: missing" in "".join(capsys.readouterr())


def test_an_object_that_is_removed_after_the_list_is_left_out(cluster: Path) -> None:
    def shell(script: str) -> str:
        answer = shell_on(cluster)(script)
        if "--pgid" in script:
            (cluster / "pgs/1.0/a").unlink(missing_ok=True)
        return answer

    assert {one.name for one in ObjectSample.take(shell).objects} == {"b", "c", "it's d"}


def test_a_cluster_without_objects_is_compared_as_one(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in file.parent.glob("pgs/*/*"):
        path.unlink()
    sample = file.with_name("aged.json")
    assert main(["snapshot", "record", str(file), str(sample)]) == 0
    assert "Warning: no pool with data of clients has an object" in capsys.readouterr().err
    assert main(["snapshot", "check", str(file), str(sample)]) == 0
    assert "no object was compared" in capsys.readouterr().out
    (file.parent / "pgs" / "1.0" / "a").touch()
    assert main(["snapshot", "check", str(file), str(sample)]) == 1
    captured = capsys.readouterr()
    assert "the sample has no object, the cluster has a in pool rbd" in captured.err and captured.out == ""
    (file.parent / "fails").touch()
    assert main(["snapshot", "check", str(file), str(sample)]) == 1
    assert "rados --pgid" in capsys.readouterr().err
    sample.write_text(json.dumps(ObjectSample("F-2", 0, ()).as_json()))
    assert main(["snapshot", "check", str(file), str(sample)]) == 1
    assert "fsid F-1, expected F-2" in capsys.readouterr().err


def test_errors_in_the_files_are_said(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = file.with_name("broken.json")
    broken.write_text("{")
    assert main(["snapshot", "check", str(file), str(broken)]) == 2
    assert main(["snapshot", "check", str(broken), str(broken)]) == 2
    assert "cannot read a `cluster:` section" in capsys.readouterr().err
