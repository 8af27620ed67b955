"""What the manifest says of a node: the program that prints it, on this machine."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from cbt_plugins.faults.cluster_facts import DaemonName
from cbt_plugins.faults.service_managers import probe
from cbt_plugins.run import preflight


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_what_a_node_is(shell: str, tmp_path: Path) -> None:
    daemon = tmp_path / "ceph-osd"
    daemon.symlink_to(os.path.realpath(sys.executable))
    line = [str(daemon), "-S", "-c", "print(1, flush=True); input()"]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None and running.stdout.readline()
        done = subprocess.run([shell, "-c", preflight.FACTS], capture_output=True, text=True, check=True)
        running.kill()
    assert done.stderr == ""
    facts = dict(row.split(" ", 1) for row in done.stdout.splitlines())
    assert facts["kernel"] == os.uname().release and facts["python"].startswith("3.")
    assert int(facts["cores"]) == len(os.sched_getaffinity(0)) and int(facts["memory_kib"]) > 0
    for key in ("vm.swappiness", "net.core.default_qdisc", "net.ipv4.tcp_rmem", "net.ipv4.ip_local_port_range"):
        file = Path("/proc/sys", key.replace(".", "/"))
        assert not file.exists() or facts[f"sysctl.{key}"] == " ".join(file.read_text().split())
    assert "sysctl.vm.swappiness" in facts
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert f"ulimit.osd.nofile {soft}/{hard}" in done.stdout.splitlines()  # labs beside have limits of their own


@pytest.mark.parametrize(("command_name", "is_daemon"), [("radosgw", True), ("other", False)])
def test_the_gateway_that_has_the_name_of_a_thread(command_name: str, is_daemon: bool, tmp_path: Path) -> None:
    """radosgw 18.2 is called notif-worker0; a process of this name that is another program does not count."""
    program = tmp_path / command_name
    program.symlink_to(os.path.realpath(sys.executable))
    rename = "import ctypes; ctypes.CDLL(None).prctl(15, b'notif-worker0', 0, 0, 0); print(1, flush=True); input()"
    line = [str(program), "-S", "-c", rename, "-n", "client.rgw.renamed"]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None and running.stdout.readline()
        text = probe([DaemonName("rgw", "renamed")])
        done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=True)
        running.kill()
    lines = [words for words in map(str.split, done.stdout.splitlines()) if words[2] == str(running.pid)]
    assert [words[:2] for words in lines] == ([["process", "radosgw"]] if is_daemon else [])
