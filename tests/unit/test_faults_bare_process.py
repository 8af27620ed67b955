"""A ceph-osd that no unit runs: what is found out about it, and how it comes back. A copy of sh plays it."""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Iterator, Optional

import pytest
from faults_scene import scene_of
from waiting import wait_for

from cbt_plugins.faults import service_managers
from cbt_plugins.faults.cluster_facts import DaemonName
from cbt_plugins.faults.service_managers import DaemonProcess, Service, launch, probe, services_from_probe
from cbt_plugins.faults.step import FaultError

OSD = DaemonName("osd", "98765")
LINE = ("./ceph-osd", "-c", "sleep 1000; true", "-f", "-i", OSD.id)


def asked() -> str:
    return subprocess.run(["sh", "-c", probe([OSD])], capture_output=True, text=True, timeout=600, check=True).stdout


def look() -> Optional[Service]:
    try:
        return services_from_probe("n", [OSD], asked())[OSD]
    except FaultError:
        return None


def wait() -> Service:
    found = wait_for(look)
    assert isinstance(found, Service)
    return found


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that everybody may enter."""
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o755)
        shutil.copy("/bin/sh", f"{made}/ceph-osd")
        yield Path(made)
        found = look()
        if found is not None and found.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(found.process.pid, signal.SIGKILL)


def test_it_comes_back_as_it_was(home: Path) -> None:
    """Arguments, folder, user, limit of open files, and what decides how it is loaded. A key is no such thing."""
    ceph = Path("/var/lib/ceph")
    user = ceph.stat().st_uid if ceph.exists() else 0
    somebody: Dict[str, Any] = {"user": user, "group": user} if os.geteuid() == 0 else {}
    first = subprocess.Popen(
        ["sh", "-c", 'ulimit -n 321; exec "$@"', "sh", *LINE],
        cwd=home,
        env={"LD_BIND_NOW": "1", "CEPH_ARGS": "--key=secret", "PATH": os.environ["PATH"]},
        start_new_session=True,
        **somebody,
    )
    before = wait()
    mine = next(words for words in map(str.split, asked().splitlines()) if words[2] == str(first.pid))
    assert "secret" not in "".join(base64.b64decode(word).decode() for word in mine[5:])
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert look() is None
    assert before.process is not None
    subprocess.run(["sh", "-c", launch(OSD, before.process)], timeout=600, check=True)
    after = wait()
    assert after.process is not None
    assert after.process.pid != before.process.pid
    assert replace(after.process, pid=0, started=0) == replace(before.process, pid=0, started=0)
    assert (after.process.folder, after.process.files) == (str(home), 321)
    assert after.process.environment == ("LD_BIND_NOW=1",)
    assert after.process.user == somebody.get("user", os.geteuid())


@pytest.mark.parametrize("do", [service_managers.start, service_managers.restart])
def test_one_that_cannot_start_keeps_no_other_down_and_fails_the_command(do: Any, tmp_path: Path) -> None:
    lines = [("/nonexistent/ceph-osd",), ("touch", f"{tmp_path}/started")]
    processes = [DaemonProcess(0, 0, 0, line) for line in lines]
    names = [OSD, DaemonName("osd", "98766")]
    services = [Service(name, "n", "process", "", process) for name, process in zip(names, processes)]
    (command,) = do(scene_of(), services)
    assert subprocess.run(["sh", "-c", command.text], check=False).returncode == 1
    assert (tmp_path / "started").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to start a process of another user")
@pytest.mark.parametrize("hidden", [False, True], ids=["plain", "not dumpable"])
def test_a_process_of_another_user_is_no_daemon(home: Path, hidden: bool) -> None:
    """Whoever gives a process the name of a daemon gets no command run as root; its folder in /proc can be root's."""
    undumpable = "ctypes.CDLL(None).prctl(4, 0, 0, 0, 0);" if hidden else ""
    name = "open('/proc/self/comm', 'w').write('ceph-osd')"
    text = f"import ctypes, os; {name}; {undumpable} print(flush=True); os.read(0, 1)"
    argv = [sys.executable, "-c", text, "-i", OSD.id]
    forged = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, user=65534, group=65534)
    with forged:
        assert forged.stdout is not None and forged.stdout.readline()
        assert str(forged.pid) not in asked().split()
        with pytest.raises(FaultError, match="does not run"):
            services_from_probe("n", [OSD], asked())
        forged.stdin.close()


@pytest.mark.parametrize(
    ("id", "unit"),
    [
        ("a", "ceph-radosgw@rgw.a.service"),
        ("foo", "ceph-radosgw@foo.service"),
        ("radosgw.gw1", "ceph-radosgw@radosgw.gw1.service"),
    ],
)
def test_a_gateway_that_a_unit_runs_is_no_bare_process(id: str, unit: str, tmp_path: Path) -> None:
    """A gateway may be any client of the cluster: the part of the unit's name after @ is its name without "client."."""
    systemctl = tmp_path / "systemctl"
    listed = f'case " $* " in *" {unit} "*) echo "{unit} loaded active running" ;; esac'
    systemctl.write_text(f"#!/bin/sh\n{listed}\n")
    systemctl.chmod(0o755)
    name = DaemonName("rgw", id)
    path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    reply = subprocess.run(["sh", "-c", probe([name])], env=path, capture_output=True, text=True, check=True).stdout
    service = services_from_probe("n", [name], reply)[name]
    assert (service.manager, service.unit) == ("systemd", unit)
