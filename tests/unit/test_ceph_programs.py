"""Where Ceph's programs are on the head, and the container of `cephadm shell` that is kept open for them."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Sequence

import pytest
from pydantic import ValidationError

from cbt_plugins.cluster.ceph import END_WITH_INPUT, Ceph, CephError
from cbt_plugins.cluster.ceph_programs import CephPrograms, readable
from cbt_plugins.cluster.remote import OpenInput, Remote
from cbt_plugins.cluster.shell_programs import script_command
from cbt_plugins.cluster.transports.transport import Result
from cbt_plugins.config.cluster import ClusterSection
from cbt_plugins.faults.node_shell import agent

#: the engine: one container at most, whose main process is in a file; what it was asked for is in another
_ENGINE = """#!/bin/sh
echo "$*" >> "$STATE/asked"
case $1 in
inspect) cat "$STATE/$4" 2>/dev/null || exit 125 ;;
ps) cat "$STATE/token" 2>/dev/null ;;
rename) echo 4711 > "$STATE/$3" ;;
rm) ;;
esac
"""
_CEPHADM = """#!/bin/sh
echo "$*" > "$STATE/options"
[ -z "$BROKEN" ] || { echo "Inferring fsid"; echo "$BROKEN"; exit 125; } >&2
echo "Using recent ceph image" >&2
for token; do :; done
echo "0123abcd -c loop $token" > "$STATE/token"
echo "$token is open"
sleep 0.2
"""
#: of what enters the container: its namespaces, then the program
_ENTER = '''#!/bin/sh
[ "$1 $2 $3 $4 $5" = "-t 4711 -m -p --" ] || exit 1
while [ "$1" != sh ]; do shift; done
shift 4; exec "$@"
'''


@pytest.fixture
def node(tmp_path: Path) -> Dict[str, str]:
    """The environment of a node with stand-ins of cephadm, its engine and nsenter."""
    folder = tmp_path / "bin"
    folder.mkdir()
    ceph = '#!/bin/sh\n[ $# != 0 ] || exec cat\necho "$*"; exit 22\n'
    for name, text in (("podman", _ENGINE), ("cephadm", _CEPHADM), ("nsenter", _ENTER), ("ceph", ceph)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "STATE": str(tmp_path)}


def run(node: Dict[str, str], command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    line = ["sh", "-c", command]
    return subprocess.run(line, env=node, capture_output=True, text=True, timeout=60, check=False, **options)


def asked(node: Dict[str, str]) -> List[str]:
    return [line.split()[0] for line in Path(node["STATE"], "asked").read_text().splitlines()]


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="sudo is no part of the stand-ins")


@needs_root
def test_one_container_for_all_programs(node: Dict[str, str]) -> None:
    programs = CephPrograms.of({"ceph": "cephadm"})
    first = run(node, f"{programs.ceph} osd out 'a  b'")
    assert (first.stdout, first.stderr, first.returncode) == ("osd out a  b\n", "", 22)
    assert asked(node) == ["inspect", "ps", "rename", "inspect"]
    assert run(node, f"{programs.ceph}", input="status\n").stdout == "status\n"
    assert asked(node)[4:] == ["inspect"]


@needs_root
def test_another_conf_has_another_container(node: Dict[str, str], tmp_path: Path) -> None:
    """And the fsid of that file, where cephadm writes a tab: of several clusters of a host cephadm chooses none."""
    second = tmp_path / "second.conf"
    second.write_text("[global]\n\tfsid = 0f0f-77\n")
    for conf in ("/etc/ceph/ceph.conf", str(second)):
        run(node, f"{CephPrograms.of({'ceph': 'cephadm', 'conf_file': conf}).ceph} fsid")
    names = {path.name for path in tmp_path.glob("cbt-plugins-shell*")}
    assert len(names) == 2
    assert f"--fsid 0f0f-77 -c {second} -- sh" in (tmp_path / "options").read_text()


@needs_root
def test_another_cluster_under_the_same_conf_has_another_container(node: Dict[str, str], tmp_path: Path) -> None:
    """The container of a cluster that was removed is still open for some minutes."""
    conf = tmp_path / "ceph.conf"
    for fsid in ("0f0f-77", "1e1e-88"):
        conf.write_text(f"[global]\nfsid = {fsid}\n")
        run(node, f"{CephPrograms.of({'ceph': 'cephadm', 'conf_file': str(conf)}).ceph} fsid")
        assert f"--fsid {fsid} -c {conf} -- sh" in (tmp_path / "options").read_text()
    assert len(list(tmp_path.glob("cbt-plugins-shell*"))) == 2


#: one of two engines: of the containers of the cluster it has the names in a file
_ONE_OF_TWO = """#!/bin/sh
me=${0##*/}
case $1 in
inspect) cat "$STATE/$me-$4" 2>/dev/null || exit 125 ;;
ps)
  case $* in *Names*) cat "$STATE/$me-names" 2>/dev/null; exit ;; esac
  case $me-$(cat "$STATE/options") in docker---docker* | podman-shell*) cat "$STATE/token" ;; esac ;;
rename) echo 4711 > "$STATE/$me-$3" ;;
esac
"""
_OURS, _THEIRS = "ceph-0f0f-77-mon-a", "ceph-1e1e-88-mon-a"


@needs_root
@pytest.mark.parametrize(
    ("podman", "docker", "engine"),
    [
        ("", _OURS, "docker"),
        (_THEIRS, f"other\n{_OURS}", "docker"),
        (_OURS, _THEIRS, "podman"),
        (_OURS, _OURS, "podman"),  # the package podman-docker
        ("", _THEIRS, "podman"),
        ("", f"old-{_OURS}", "podman"),
        ("", "", "podman"),
    ],
)
def test_of_two_engines_the_one_of_the_cluster_is_taken(
    node: Dict[str, str], tmp_path: Path, podman: str, docker: str, engine: str
) -> None:
    """Without a container of the cluster on the node, it is podman, as cephadm takes it."""
    conf = tmp_path / "ceph.conf"
    conf.write_text("[global]\nfsid = 0f0f-77\n")
    for name, containers in (("podman", podman), ("docker", docker)):
        (tmp_path / "bin" / name).write_text(_ONE_OF_TWO)
        (tmp_path / "bin" / name).chmod(0o755)
        (tmp_path / f"{name}-names").write_text(f"{containers}\n")
    command = f"{CephPrograms.of({'ceph': 'cephadm', 'conf_file': str(conf)}).ceph} fsid"
    first = run(node, command)
    assert (first.stdout, first.stderr, first.returncode) == ("fsid\n", "", 22)
    assert [path.name.split("-")[0] for path in tmp_path.glob("*-cbt-plugins-shell*")] == [engine]
    options = (tmp_path / "options").read_text()
    assert options.startswith("--docker shell --fsid" if engine == "docker" else "shell --fsid")
    (tmp_path / "options").unlink()
    assert run(node, command).stdout == "fsid\n" and not (tmp_path / "options").exists(), "it is open"


@needs_root
def test_docker_alone_needs_no_option(node: Dict[str, str], tmp_path: Path) -> None:
    """Then cephadm finds docker by itself."""
    (tmp_path / "bin" / "podman").rename(tmp_path / "bin" / "docker")
    for name in ("uname", "id", "sed", "head", "cksum", "cut", "date", "sh", "setsid", "cat", "sleep", "env"):
        (tmp_path / "bin" / name).symlink_to(f"/usr/bin/{name}")
    command = CephPrograms.of({"ceph": "cephadm"}).ceph.replace(":/usr/local/sbin:/usr/sbin:/sbin", "")
    assert run({**node, "PATH": f"{tmp_path}/bin"}, f"{command} fsid").stdout == "fsid\n"
    assert (tmp_path / "options").read_text().startswith("shell -- ")


@needs_root
@pytest.mark.parametrize(
    "line",
    [
        "Error: initializing source docker://quay.io/ceph/ceph:v18: pinging container registry quay.io: no such host",
        "ERROR: Cannot infer an fsid, one must be specified",
    ],
)
def test_a_shell_that_does_not_open_says_why(node: Dict[str, str], line: str) -> None:
    done = run({**node, "BROKEN": line}, f"{CephPrograms.of({'ceph': 'cephadm'}).ceph} fsid")
    assert (done.returncode, done.stdout) == (69, "")
    assert done.stderr == f"cephadm shell on {os.uname().nodename}: {line}\n"


@pytest.mark.parametrize(
    ("absent", "words"),
    [(("cephadm",), "cephadm is not installed on"), (("podman", "docker"), "neither podman nor docker is")],
)
def test_what_is_not_installed_is_named(node: Dict[str, str], tmp_path: Path, absent: List[str], words: str) -> None:
    lean = tmp_path / "lean"
    lean.mkdir()
    for name in {"uname", "id", "tr", "sed", "sh", "cephadm"} - {*absent}:
        (lean / name).symlink_to(f"{tmp_path}/bin/cephadm" if name == "cephadm" else f"/usr/bin/{name}")
    command = CephPrograms.of({"ceph": "cephadm"}).ceph.replace(":/usr/local/sbin:/usr/sbin:/sbin", "")
    done = run({**node, "PATH": str(lean)}, f"{command} fsid")
    assert done.returncode == 69 and words in done.stderr, done


def test_without_the_key_they_are_installed() -> None:
    programs = CephPrograms.of({"ceph_cmd": "sudo ceph", "conf_file": "/a b.conf"})
    assert programs.ceph == "sudo ceph -c '/a b.conf'" and programs.admin == "radosgw-admin -c '/a b.conf'"
    assert programs.ceph_there == programs.ceph and programs.prefix == ""


def test_a_command_is_shown_without_its_program() -> None:
    ceph = CephPrograms.of({"ceph": "cephadm"}).ceph
    assert readable(f"{ceph} osd out 3 && {ceph} osd in 3") == (
        "cephadm shell -- ceph osd out 3 && cephadm shell -- ceph osd in 3"
    )
    second = CephPrograms.of({"ceph": "cephadm", "conf_file": "/b.conf"}).ceph
    assert readable(f"{second} fsid") == "cephadm shell -c /b.conf ceph fsid"
    assert " 'cephadm shell -- ceph' " in readable(agent("create", ceph, "{}", program="replacement_agent"))


@needs_root
def test_work_of_hours_is_watched_in_the_container(node: Dict[str, str]) -> None:
    """A signal to what has entered it from outside may not reach the program."""
    lines: List[str] = []

    def keep(nodes: Sequence[str], line: str, **_: Any) -> Dict[str, Result]:
        lines.append(line)
        return dict.fromkeys(nodes, Result("", "", 0))

    cluster = {"head": "n1", "ceph": "cephadm", "radosgw-admin_cmd": "ceph"}
    remote: Any = SimpleNamespace(run=keep)
    Ceph(remote, cluster).remove_bucket("a  b", 5.0)
    assert lines[0].startswith(f"{CephPrograms.of(cluster).prefix}{script_command(END_WITH_INPUT)} ceph ")
    with contextlib.closing(OpenInput()) as open_input:
        done = run(node, lines[0], stdin=open_input)
    assert (done.stdout, done.returncode) == ("bucket rm --bucket=a  b --purge-objects --bypass-gc\n", 22)


def test_its_text_grows_little_when_it_is_quoted() -> None:
    """A step may have fifty commands, quoted four times, in one argument of 128 KiB."""
    text = " && ".join([f"{CephPrograms.of({'ceph': 'cephadm'}).ceph} osd out 3"] * 50)
    for _ in range(4):
        text = shlex.quote(text)
    assert len(text) < 128 << 10, len(text)


def test_a_program_that_is_not_there_has_a_remedy() -> None:
    ceph = Ceph(Remote.of_cluster({"head": "localhost"}, {}), {"head": "localhost", "ceph_cmd": "/nowhere/ceph"})
    for question in (lambda: ceph.json("versions"), ceph.status):
        with pytest.raises(CephError, match="write `ceph: cephadm` in `cluster:`"):
            question()


def test_the_key_excludes_others() -> None:
    section = {"user": "root", "head": "a", "clients": ["b"], "osds": ["c"], "mons": ["c"], "iterations": 1}
    assert ClusterSection(**section, ceph="cephadm").ceph == "cephadm"
    with pytest.raises(ValidationError, match="remove one of the two keys"):
        ClusterSection(**section, ceph="cephadm", ceph_cmd="sudo ceph")


def test_a_zone_may_be_named_beside_the_key() -> None:
    section = {"user": "root", "head": "a", "clients": ["b"], "osds": ["c"], "mons": ["c"], "iterations": 1}
    of_zone = "radosgw-admin --rgw-realm=r --rgw-zonegroup=g --rgw-zone=z"
    cluster = {"ceph": "cephadm", "radosgw-admin_cmd": of_zone}
    ClusterSection(**section, **cluster)
    assert readable(CephPrograms.of(cluster).admin) == f"cephadm shell -- {of_zone}"
    with pytest.raises(ValidationError, match="remove one of the two keys"):
        ClusterSection(**section, **{**cluster, "radosgw-admin_cmd": "sudo radosgw-admin --rgw-zone=z"})
    with pytest.raises(ValidationError, match="remove one of the two keys"):
        ClusterSection(**section, ceph="cephadm", ceph_cmd=of_zone)
