"""What the manifest says of a node: the program that prints it, on this machine."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from cbt_plugins.run import preflight


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_what_a_node_is(shell: str, tmp_path: Path) -> None:
    daemon = tmp_path / "ceph-osd"
    daemon.symlink_to(os.path.realpath(sys.executable))
    line = [str(daemon), "-S", "-c", "print(1, flush=True); input()"]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None and running.stdout.readline()
        done = subprocess.run([shell, str(preflight.FACTS)], capture_output=True, text=True, check=True)
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
