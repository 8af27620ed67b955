"""Faults on OSDs that cephadm runs: its real orchestrator, on a real systemd, with no container.

Debian 12 has cephadm's manager module, but not the library that it needs. CBT_PLUGINS_CEPHADM names a folder with both:

    apt-get download cephadm ceph-mgr-cephadm && for d in *.deb; do dpkg-deb -x $d DIR; done
    pip install --target DIR/usr/share/ceph/mgr remoto jinja2
"""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Iterator

import pytest
from faulty import fault
from running_lab import RunningLab, need_systemd
from test_systemd import NODE, Units
from waiting import end_of, wait_for

from cbt_plugins.tools.lab import Lab, Topology

pytestmark = pytest.mark.lab

#: what cephadm asks of a container engine, where there are no containers
_ENGINE = """#!/bin/sh
case "$*" in
"version"*) echo 4.3.1 ;;
*"--entrypoint stat"*) echo "$(id -u ceph) $(id -g ceph)" ;;
*ceph-volume*inventory*) echo '[]' ;;
*ceph-volume*list*) echo '{}' ;;
"stats"* | "ps"*) ;;
*) exit 1 ;;
esac
"""
#: the unit that cephadm writes, and the clock that it insists on
_UNIT = """[Service]
LimitNOFILE=1048576
ExecStart=/bin/bash /var/lib/ceph/{fsid}/%i/unit.run
KillMode=mixed
Restart=on-failure
RestartSec=10s
TimeoutStopSec=120
StartLimitInterval=30min
StartLimitBurst=5
[Install]
WantedBy=multi-user.target
"""
_CLOCK = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
#: $1 fsid, $2 folder with the texts above; the OSDs go over to cephadm's units and folders
_ADOPT = """
set -e
mount -t tmpfs tmpfs /usr/local/sbin
install "$2/podman" /usr/local/sbin/podman
cp "$2/unit" "/etc/systemd/system/ceph-$1@.service"; cp "$2/clock" /etc/systemd/system/chrony.service
mkdir -p "/var/lib/ceph/$1"
for n in 4 5; do
  systemctl --quiet disable --now "ceph-osd@$n"
  f="/var/lib/ceph/$1/osd.$n"; mv "/var/lib/ceph/osd/ceph-$n" "$f"
  echo "exec /usr/bin/ceph-osd -f --cluster ceph --id $n --setuser ceph --setgroup ceph --osd-data $f" > "$f/unit.run"
  touch "$f/unit.configured" "$f/unit.created" "$f/config"; echo '{}' > "$f/unit.meta"
done
systemctl daemon-reload
systemctl --quiet enable --now chrony "ceph-$1@osd.4" "ceph-$1@osd.5"
"""


@pytest.fixture(scope="module")
def orchestrated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Units]:
    need_systemd()
    unpacked = Path(os.environ.get("CBT_PLUGINS_CEPHADM") or pytest.skip(str(__doc__)))
    absent = [f for f in ("usr/sbin/cephadm", "usr/share/ceph/mgr/remoto") if not (unpacked / f).exists()]
    if absent:
        pytest.skip(f"{unpacked}: {'; '.join(absent)}")
    base = tmp_path_factory.mktemp("cephadm")
    shutil.copytree("/usr/share/ceph/mgr", base / "mgr")
    shutil.copytree(unpacked / "usr/share/ceph/mgr", base / "mgr", dirs_exist_ok=True)
    shutil.copy(unpacked / "usr/sbin/cephadm", base / "cephadm")
    made = Lab(tmp_path_factory.mktemp("lab"), say=lambda text: None)
    try:
        shape = Topology(osd_nodes=3, rgws=0, clients=0, out_interval=600, bind=(str(base),), systemd=(NODE,))
        made.up(shape, detach=False)
        for name, text in (("podman", _ENGINE), ("unit", _UNIT.format(fsid=made.record.fsid)), ("clock", _CLOCK)):
            (base / name).write_text(text)
        units = Units(RunningLab(made, []), base)
        _manage(units, base)
        done = made.exec(NODE, ["sh", "-c", _ADOPT, "sh", made.record.fsid, str(base)])
        assert done.returncode == 0, done.stderr
        _add(units)
        units.clean()
        yield units
    finally:
        made.down(wipe=True)


def _manage(units: Units, base: Path) -> None:
    """The manager anew, with cephadm's module."""
    pid = "/run/ceph/mgr.node0.pid"
    units.sh(f"ceph config set mgr cephadm_path {base}/cephadm; kill $(cat {pid})", "node0")
    wait_for(lambda: not units.sh("pgrep -x ceph-mgr", "node0"), "the manager's end")
    units.sh(f"ceph-mgr -i node0 --mgr-module-path={base}/mgr --pid-file {pid}", "node0")

    def tried(command: str) -> bool:
        return units.lab.exec("node0", ["timeout", "20", "sh", "-c", f"ceph {command}"]).returncode == 0

    wait_for(lambda: tried("mgr module enable cephadm"), "cephadm's module")
    wait_for(lambda: tried("orch set backend cephadm"), "the orchestrator")
    assert tried("cephadm set-priv-key -i /root/.ssh/id_ed25519")
    assert tried("cephadm set-pub-key -i /root/.ssh/id_ed25519.pub")


def _add(units: Units) -> None:
    """The node is cephadm's, and its OSDs are known and configured: until then they lose their orders."""
    address = units.lab.nodes[NODE].address
    assert "Added host" in units.sh(f"ceph orch host add {NODE} {address} 2>&1", "node0")

    def configured() -> bool:
        events = [e for daemon in units.ceph("orch ps") for e in daemon.get("events", [])]
        return all(any(f"Reconfigured osd.{n} " in event for event in events) for n in (4, 5))

    wait_for(configured, "osd.4 and osd.5 configured by cephadm", 180.0)


def unit(units: Units, osd: int) -> str:
    return f"ceph-{units.lab.lab.record.fsid}@osd.{osd}.service"


def states(units: Units) -> str:
    return units.sh(f"systemctl is-active {unit(units, 4)} {unit(units, 5)}").replace("\n", " ")


def test_the_orchestrator_stops_and_starts(orchestrated: Units) -> None:
    with orchestrated.broken("stop", NODE) as said:
        former = next(record["step"]["former"] for record in said if record["event"] == "open")
        assert former["service_manager"] == "cephadm"
        assert former["units"] == [unit(orchestrated, 4), unit(orchestrated, 5)]
        assert states(orchestrated) == "inactive inactive"
        assert {d["status_desc"] for d in orchestrated.ceph("orch ps --refresh")} <= {"stopped", "running"}
    assert states(orchestrated) == "active active" and orchestrated.osd(5)["up"] == 1


def test_a_crash_lasts_although_the_unit_would_start_again(orchestrated: Units) -> None:
    with orchestrated.broken("crash", "osd.4"):
        seen = orchestrated.show(unit(orchestrated, 4), "ActiveState", "ExecMainStatus", "Restart")
        assert seen["ActiveState"] in ("failed", "inactive") and seen["Restart"] == "on-failure"
        assert seen["ExecMainStatus"] == "9"
    assert states(orchestrated) == "active active" and orchestrated.osd(4)["up"] == 1


def test_a_stop_on_order_does_not_come_after_its_undo(orchestrated: Units) -> None:
    """kill -9 when the orchestrator has its order and has done nothing yet: it pauses until the undo is at work."""
    folder = orchestrated.folder()
    marks = "ls /run/cbt-plugins/ | grep stopping"
    orders = "ceph log last 1000 info cephadm | grep -c 'Schedule .* daemon osd.4'"
    assert orchestrated.lab.exec("node0", ["ceph", "orch", "pause"]).returncode == 0
    before = int(orchestrated.sh(orders, "node0"))
    running = orchestrated.start(folder, f"injector.acquire(); injector.inject({fault('f', 'stop', 'osd.4')})")
    try:
        wait_for(lambda: int(orchestrated.sh(orders, "node0")) > before, "the order")
        holder = orchestrated.holder()
        orchestrated.lab.exec("node0", ["kill", "-9", str(holder["pid"])])
        end_of(running)
        before = int(orchestrated.sh(orders, "node0"))
        with ThreadPoolExecutor() as pool:
            try:
                undoing = pool.submit(orchestrated.undo, folder)
                wait_for(lambda: int(orchestrated.sh(orders, "node0")) > before, "the order of the undo")
            finally:
                orchestrated.lab.exec("node0", ["ceph", "orch", "resume"])
            done = undoing.result()
    finally:
        if running.poll() is None:
            running.kill()
        running.communicate()
    assert done.returncode == 0, done.stderr
    # whatever it was told is done when it has looked at the node once more
    seen = orchestrated.ceph("orch ps")[0]["last_refresh"]
    wait_for(lambda: orchestrated.ceph("orch ps --refresh")[0]["last_refresh"] > seen, "a look of the orchestrator")
    assert states(orchestrated) == "active active" and orchestrated.osd(4)["up"] == 1
    assert orchestrated.sh(marks, "node0") == ""
