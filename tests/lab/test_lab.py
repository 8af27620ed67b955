"""The lab itself, on a real cluster: what it promises to those who use it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Dict, Iterator, List, Set

import pytest
from running_lab import PROJECT, RunningLab, lab_tool, need_machine
from waiting import end_of, wait_for

from cbt_plugins.tools.lab import Lab, LabError, Topology
from cbt_plugins.tools.lab.daemons import Daemons
from cbt_plugins.tools.lab.process import LabProcess, by_namespace, processes

pytestmark = pytest.mark.lab
TINY = ("--osd-nodes", "1", "--osds-per-node", "1", "--no-rgw", "--clients", "0")
SPACES = ("net", "uts", "pid", "mnt", "ipc")


def ceph(lab: RunningLab, *words: str) -> dict[str, object]:
    done = lab.exec("node0", ["ceph", "-f", "json", *words])
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def await_up(lab: RunningLab, osds: int) -> None:
    """OSDs up as the cluster counts them."""

    def counted() -> bool:
        return dict(ceph(lab, "status")["osdmap"])["num_up_osds"] == osds  # type: ignore[call-overload]

    wait_for(counted, f"{osds} OSDs up", 60)


# -- nodes ------------------------------------------------------------------------------------------


def test_pdsh_reaches_every_node_under_its_own_name(lab: RunningLab) -> None:
    done = lab.exec(
        "node0", ["pdsh", "-R", "ssh", "-w", "node[1-4],rgw[1-2],client[1-2]", "hostname; hostname -f"]
    )
    names = [name for name in lab.nodes if name != "node0"]
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == sorted(f"{name}: {name}" for name in names for _ in range(2))
    assert done.stderr == ""


def test_ssh_is_pdshs_way_without_being_asked(lab: RunningLab) -> None:
    assert (
        lab.exec("node0", ["pdsh", "-w", "node2", "pdsh -w node3 hostname"]).stdout == "node2: node3: node3\n"
    )


def test_ssh_connections_are_shared(lab: RunningLab) -> None:
    port = ["ssh", "client1", "echo $SSH_CONNECTION"]
    first, second = (lab.exec("node0", port).stdout for _ in range(2))
    assert first == second != ""


def test_every_node_has_namespaces_of_its_own(lab: RunningLab) -> None:
    script = f"for s in {' '.join(SPACES)}; do readlink /proc/self/ns/$s; done"
    seen = [line for name in lab.nodes for line in lab.exec(name, ["sh", "-c", script]).stdout.split()]
    machine = [os.readlink(f"/proc/self/ns/{space}") for space in SPACES]
    assert len(seen) == len(lab.nodes) * len(SPACES)
    assert len({*seen, *machine}) == len(seen) + len(machine)


def test_killall_reaches_one_node_only(lab: RunningLab) -> None:
    first, second = (
        subprocess.Popen(lab.lab.enter(node, ["sleep", "4242"]), env=lab.lab.environment())
        for node in ("node1", "node2")
    )
    try:
        for node in ("node1", "node2"):
            wait_for(lambda n=node: not lab.exec(n, ["pgrep", "-x", "sleep"]).returncode, "sleep", 20)  # type: ignore[misc]
        assert lab.exec("node0", ["pdsh", "-w", "node1", "sudo killall -9 sleep"]).returncode == 0
        assert end_of(first) != 0
        assert lab.exec("node2", ["pgrep", "-x", "sleep"]).stdout.strip()
        assert second.poll() is None
    finally:
        lab.exec("node2", ["killall", "-9", "sleep"])
        end_of(second)


def test_folders_for_temporary_files_belong_to_one_node(lab: RunningLab) -> None:
    for folder in ("/tmp", "/var/tmp", "/run", "/dev/shm", "/root"):
        assert lab.exec("node1", ["touch", f"{folder}/mark"]).returncode == 0
        assert lab.exec("node1", ["test", "-e", f"{folder}/mark"]).returncode == 0
        assert lab.exec("node2", ["test", "-e", f"{folder}/mark"]).returncode == 1


def test_bound_folders_project_and_python_are_seen_by_every_node(lab: RunningLab, tmp_path: Path) -> None:
    (tmp_path / "given").write_text("hello")
    done = lab.exec("client1", ["cat", str(tmp_path / "given")])
    assert done.stdout == "hello"
    done = lab.exec("client1", [sys.executable, "-c", "import cbt_plugins; print('here')"], cwd=str(PROJECT))
    assert done.stdout == "here\n", done.stderr


def test_exit_status_and_streams_pass_through(lab: RunningLab) -> None:
    done = lab.tool("exec", "node3", "--", "sh", "-c", "cat; echo err >&2; exit 7", input="in")
    assert (done.returncode, done.stdout, done.stderr) == (7, "in", "err\n")
    assert lab.tool("exec", "node9", "--", "true").returncode == 2


def test_node_programs_can_be_interrupted(lab: RunningLab) -> None:
    """An ignored SIGINT or SIGPIPE would be inherited: CBT ends collectl with SIGINT."""
    script = "grep SigIgn /proc/self/status"
    for argv in (["sh", "-c", script], ["ssh", "node1", script]):
        assert lab.exec("node0", argv).stdout.split() == ["SigIgn:", "0" * 16]
    assert lab.tool("exec", "node0", "--", "sh", "-c", script).stdout.split() == ["SigIgn:", "0" * 16]


# -- cluster ----------------------------------------------------------------------------------------


def test_osds_stand_under_their_hosts(lab: RunningLab) -> None:
    tree = ceph(lab, "osd", "tree")["nodes"]
    hosts = {node["name"]: sorted(node["children"]) for node in tree if node["type"] == "host"}  # type: ignore[attr-defined]
    assert hosts == {f"node{i}": [2 * i - 2, 2 * i - 1] for i in (1, 2, 3, 4)}


def test_rgws_run_with_nagle_off(lab: RunningLab) -> None:
    script = "ceph --admin-daemon /run/ceph/*rgw2*.asok config get rgw_frontends"
    assert "tcp_nodelay=1" in lab.exec("rgw2", ["sh", "-c", script]).stdout


def test_replicated_pool_takes_data(lab: RunningLab) -> None:
    script = "rados -p rbd put thing /etc/hosts && rados -p rbd get thing - && rados -p rbd rm thing"
    assert "10.77.0.10 node0" in lab.exec("client1", ["sh", "-c", script]).stdout


def test_keys_of_the_s3_user_are_in_one_private_file_only(lab: RunningLab) -> None:
    user = json.loads((lab.dir / "s3.json").read_text())
    info = json.loads(lab.exec("node0", ["radosgw-admin", "user", "info", "--uid=cbt"]).stdout)
    assert {key: info["keys"][0][key] for key in ("access_key", "secret_key")} == {
        key: user[key] for key in ("access_key", "secret_key")
    }
    assert user["urls"] == ["http://rgw1:7480", "http://rgw2:7480"]
    assert (lab.dir / "s3.json").stat().st_mode & 0o077 == 0
    said = "\n".join(lab.log)
    for path in lab.dir.rglob("*"):
        if path.is_file() and path.name not in ("s3.json", "block") and path.stat().st_size < 1 << 24:
            said += path.read_text(errors="replace")
    assert user["secret_key"] not in said


def test_status_is_true_for_people_and_programs(lab: RunningLab) -> None:
    found = json.loads(lab.tool("status", "--format", "json").stdout)
    assert found["running"]
    assert sorted(found["nodes"]["node0"]["daemons"]) == ["mgr", "mon", "sshd"]
    assert sorted(found["nodes"]["node4"]["daemons"]) == ["osd.6", "osd.7", "sshd"]
    pid = found["nodes"]["node4"]["daemons"]["osd.6"]
    assert Path(f"/proc/{pid}/comm").read_text().strip() == "ceph-osd"
    assert 10 << 20 < found["nodes"]["node4"]["memory"] < 4 << 30
    text = lab.tool("status").stdout
    assert re.search(r"HEALTH_\w+.*; 8 of 8 OSDs up; PGs: .*active\+clean", text)
    assert re.search(r"^rgw1 +10\.77\.1\.1 .*rgw:\d+", text, re.MULTILINE)


def test_a_running_lab_is_not_started_twice(lab: RunningLab) -> None:
    done = lab.tool("up")
    assert (done.returncode, done.stderr) == (1, f"Error: already running: {lab.dir}\n")


# -- accidents --------------------------------------------------------------------------------------


def reachable(lab: RunningLab, node: str) -> bool:
    """A new TCP connection, past ssh's shared one."""
    script = f"timeout 1 bash -c 'exec 3<>/dev/tcp/{node}/22' 2>/dev/null"
    return lab.exec("client2", ["sh", "-c", script]).returncode == 0


def test_link_down_and_up(lab: RunningLab) -> None:
    assert reachable(lab, "client1")
    assert lab.tool("link", "client1", "down").returncode == 0
    assert not reachable(lab, "client1")
    assert reachable(lab, "rgw1")
    assert lab.tool("link", "client1", "up").returncode == 0
    wait_for(lambda: reachable(lab, "client1"), "client1", 20)


def test_stopped_osds_start_again(lab: RunningLab) -> None:
    await_up(lab, 8)
    assert lab.tool("stop-osds", "node4", "--kill").returncode == 0
    await_up(lab, 6)
    assert lab.tool("start-osds", "node4").returncode == 0
    await_up(lab, 8)
    assert lab.tool("stop-osds", "client1").returncode == 2


def test_crashed_node_leaves_nothing_and_boots_again(lab: RunningLab) -> None:
    await_up(lab, 8)
    first = lab.lab.spaces.first("node3")
    assert first
    inside = by_namespace()[first.namespace]
    assert len(inside) >= 4
    assert lab.tool("crash", "node3").returncode == 0
    assert not any(process.alive() for process in inside)
    assert lab.tool("crash", "node3").returncode == 1
    assert lab.tool("boot", "node3").returncode == 0
    await_up(lab, 8)
    wait_for(lambda: reachable(lab, "node3"), "node3", 20)
    assert lab.tool("boot", "node3").stderr == "Error: already running: node3\n"


def test_daemons_are_not_known_by_their_pids(lab: RunningLab) -> None:
    """A pid comes again in a new namespace: 16.2 took the new OSD for the old one, and PGs stayed in peering."""
    await_up(lab, 8)
    dump = json.loads(lab.exec("node0", ["ceph", "osd", "dump", "-f", "json"]).stdout)
    nonces = {its["public_addr"].rsplit("/", 1)[1] for its in dump["osds"]}
    pids = {pid for node in lab.nodes for pid in lab.exec(node, ["pidof", "ceph-osd"]).stdout.split()}
    assert len(nonces) == 8 and pids and not nonces & pids


def test_crashed_rgw_and_head_boot_with_their_daemons(lab: RunningLab) -> None:
    for node, daemons in (("rgw1", ["rgw", "sshd"]), ("node0", ["mgr", "mon", "sshd"])):
        assert lab.tool("crash", node).returncode == 0
        assert lab.tool("boot", node).returncode == 0
        assert sorted(Daemons(lab.lab.spaces).running()[node]) == daemons
    await_up(lab, 8)


# -- beginning and end ------------------------------------------------------------------------------


def traces(first: LabProcess) -> Set[str]:
    """Every namespace of every process in a lab."""
    found: Set[str] = set()
    for process in processes():
        depth = [line for line in status_lines(process.pid) if line.startswith("NSpid")]
        if depth and len(depth[0].split()) > 2 and descends(process.pid, first.pid):
            for space in SPACES:
                with contextlib.suppress(OSError):
                    found.add(os.readlink(f"/proc/{process.pid}/ns/{space}"))
    return found - {os.readlink(f"/proc/self/ns/{space}") for space in SPACES}


def status_lines(pid: int) -> List[str]:
    try:
        return Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return []


def descends(pid: int, ancestor: int) -> bool:
    while pid > 1 and pid != ancestor:
        parents = [int(line.split()[1]) for line in status_lines(pid) if line.startswith("PPid:")]
        pid = parents[0] if parents else 0
    return pid == ancestor


def used(namespaces: Set[str]) -> Set[str]:
    """Those of `namespaces` that some process is still in, or that are mounted somewhere."""
    in_use = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for space in SPACES:
            with contextlib.suppress(OSError):  # a process that ends meanwhile
                in_use.add(os.readlink(f"/proc/{pid}/ns/{space}"))
    return namespaces & in_use


def links() -> Set[str]:
    lines = subprocess.run(
        ["ip", "-br", "link"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return {line.split()[0] for line in lines}


@pytest.fixture(scope="module")
def tiny_folder() -> Iterator[Path]:
    """A folder for one small cluster that several tests start again."""
    need_machine()
    folder = Path(tempfile.mkdtemp(prefix="lab-", dir="/var/tmp"))
    yield folder
    Lab(folder, say=lambda line: None).down(wipe=True)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("victim", [pytest.param("first process", marks=pytest.mark.long), "starter"])
def test_a_killed_lab_leaves_no_process_interface_mount_or_namespace(tiny_folder: Path, victim: str) -> None:
    before = links()
    argv = [
        sys.executable,
        "-m",
        "cbt_plugins.tools",
        "lab",
        "up",
        "--dir",
        str(tiny_folder),
        *TINY,
        "--foreground",
    ]
    with subprocess.Popen(argv, cwd=PROJECT, stderr=subprocess.PIPE, text=True) as starter:
        assert starter.stderr
        said: List[str] = []
        for line in starter.stderr:
            said.append(line)
            if "] up: " in line:
                break
        lab = Lab(tiny_folder)
        first = lab.spaces.first("lab")
        assert first, said
        namespaces = traces(first)
        assert len(namespaces) >= 3 * len(SPACES)
        inside = [
            process for found in by_namespace().items() if found[0] in namespaces for process in found[1]
        ]
        assert len(inside) > 8
        assert "\n".join(said).count("HEALTH_OK")
        if victim == "starter":
            starter.kill()
        else:
            os.kill(first.pid, signal.SIGKILL)
        wait_for(lambda: not first.alive(), "end of the lab", 20)
        end_of(starter)
    assert not any(process.alive() for process in inside)
    assert used(namespaces) == set()
    assert str(tiny_folder) not in Path("/proc/mounts").read_text()
    assert links() == before
    assert not lab.running


def test_a_failure_on_the_way_up_takes_everything_down(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tiny_folder, say=lambda line: None)
    found: List[LabProcess] = []

    def fail(self: Daemons, nodes: object) -> None:
        first = lab.spaces.first("lab")
        assert first
        found.extend([first, *(node for name in lab.nodes if (node := lab.spaces.first(name)))])
        raise LabError("the mgr fails")

    monkeypatch.setattr(Daemons, "start_mgrs", fail)
    with pytest.raises(LabError, match="mgr fails"):
        lab.up(Topology(1, 1, 0, 0))
    assert len(found) == 3
    assert not any(process.alive() for process in found)
    assert not lab.running


@pytest.mark.long  # the test above has a killed lab
def test_a_lab_that_another_process_has_ended_leaves_no_socket(tiny_folder: Path) -> None:
    def sockets() -> int:
        links = (os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink())
        return sum(link.startswith("socket:") for link in links)

    lab, before = Lab(tiny_folder, say=lambda line: None), sockets()
    for wipe in (False, True):
        lab.up(Topology(1, 1, 0, 0), detach=False)
        assert sockets() > before
        assert Lab(tiny_folder, say=lambda line: None).down(wipe=wipe)
        assert not lab.down()
        assert sockets() == before


def test_a_killed_up_leaves_nothing_half_built(tiny_folder: Path) -> None:
    argv = [sys.executable, "-m", "cbt_plugins.tools", "lab", "up", "--dir", str(tiny_folder)]
    with subprocess.Popen(argv, cwd=PROJECT, stderr=subprocess.DEVNULL) as starter:
        lab = Lab(tiny_folder)
        wait_for(
            lambda: lab.spaces.first("node1") if (tiny_folder / "lab.json").exists() else None, "node1", 30
        )
        first = lab.spaces.first("lab")
        starter.kill()
        assert first
        wait_for(lambda: not first.alive(), "end of the lab", 20)
    assert not lab.running


def test_what_an_interrupted_command_undoes_it_undoes_on_a_lab_that_is_up(tiny_folder: Path) -> None:
    undo = "ceph osd unset noout && echo undone; exit 9"
    script = f"trap '{undo}' INT; ceph osd set noout; echo ready; while :; do sleep 0.1; done"
    argv = [sys.executable, "-m", "cbt_plugins.tools", "lab", "run", "--dir", str(tiny_folder), *TINY]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*argv, "--", "sh", "-c", script], cwd=PROJECT, stdout=pipe, text=True, start_new_session=True
    ) as lab:
        assert lab.stdout
        assert lab.stdout.readline() == "ready\n"
        os.killpg(lab.pid, signal.SIGINT)
        assert lab.communicate(timeout=120)[0] == "undone\n"
        assert lab.returncode == 9
    assert not Lab(tiny_folder).running


def test_run_passes_the_status_on_and_shows_no_secret_to_ps(tmp_path: Path) -> None:
    """A new cluster with an erasure coded pool, from `run` to the end, watched as `ps` sees it."""
    need_machine()
    shown: Set[str] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.03):
            shown.update(" ".join(process.command()) for process in processes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        script = (
            "ceph osd pool ls detail; head -c 20000 /dev/urandom >a; p=default.rgw.buckets.data;"
            "rados -p $p put x a; rados -p $p get x b; cmp a b &&"
            f"cat {tmp_path}/lab/s3.json /etc/ceph/keyring; exit 5"
        )
        shape = ("--osd-nodes", "3", "--osds-per-node", "1", "--rgws", "1", "--clients", "0", "--ec", "2+1")
        where = ("--dir", str(tmp_path / "lab"))
        done = lab_tool("run", *where, *shape, "--wipe", "--", "sh", "-c", f"cd /tmp; {script}")
    finally:
        over.set()
        watcher.join()
    assert done.returncode == 5, done.stderr
    assert re.search(r"'default.rgw.buckets.data' erasure profile lab-ec size 3 min_size 2", done.stdout)
    secrets = re.findall(r'secret_key": "(\w{20,})"', done.stdout) + re.findall(
        r"key = (\S{30,})", done.stdout
    )
    assert len(secrets) == 1 + 3 + 3 + 1
    assert any("radosgw-admin user create" in line for line in shown)
    assert not [line for line in shown for secret in secrets if secret in line]
    assert not (tmp_path / "lab").exists()


def test_without_root_the_cluster_runs_and_what_is_missing_is_said() -> None:
    need_machine()
    folder = Path(tempfile.mkdtemp(prefix="lab-nobody-", dir="/var/tmp"))
    try:
        os.chown(folder, 65534, 65534)
        nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
        environment: Dict[str, str] = {
            "HOME": str(folder),
            "PATH": os.environ["PATH"],
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        python = [*nobody, "/usr/bin/python3", "-m", "cbt_plugins.tools", "lab"]
        if subprocess.run([*python, "--help"], cwd=PROJECT, env=environment, capture_output=True).returncode:
            pytest.skip("nobody cannot read the project or has no /usr/bin/python3")
        argv = [
            *python,
            "run",
            "--dir",
            str(folder / "lab"),
            *TINY,
            "--wipe",
            "--",
            "sh",
            "-c",
            "ceph health; id -u; hostname",
        ]
        done = subprocess.run(argv, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=900)
        if "user namespaces are refused" in done.stderr:
            pytest.skip(done.stderr.strip())
        assert (done.returncode, done.stdout.split()) == (0, ["HEALTH_OK", "0", "node0"]), done.stderr
        assert "not root: the nodes are in a user namespace. Missing: sshd" in done.stderr
    finally:
        shutil.rmtree(folder, ignore_errors=True)
