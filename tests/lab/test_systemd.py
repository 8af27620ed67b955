"""Faults on a node whose OSDs are units of a real systemd, and its timers as dead man's switches."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Set

import pytest
from faulty import Faulty, fault
from running_lab import RunningLab, lab_tool, need_systemd
from waiting import end_of, wait_for

from cbt_plugins.tools.lab import Lab, Topology
from cbt_plugins.tools.lab.namespaces import SHOW_GROUPS

pytestmark = pytest.mark.lab

NODE, OSDS, UNITS = "node3", (4, 5), ("ceph-osd@4.service", "ceph-osd@5.service")


class Units(Faulty):
    """`node` has a real systemd, and two OSDs."""

    def sh(self, text: str, node: str = NODE) -> str:
        """What a command prints, whatever it ends with."""
        return self.lab.exec(node, ["sh", "-c", text]).stdout.strip()

    def show(self, unit: str, *names: str) -> Dict[str, str]:
        """What systemd says of a unit."""
        lines = self.sh(f"systemctl show {' '.join('-p ' + name for name in names)} {unit}").splitlines()
        return dict(line.split("=", 1) for line in lines)

    def active(self) -> List[str]:
        return self.sh(f"systemctl is-active {' '.join(UNITS)}").split()

    def enabled(self) -> List[str]:
        return self.sh(f"systemctl is-enabled {' '.join(UNITS)}").split()

    def leftovers(self) -> str:
        """Units and files of ours on the node, and units that failed."""
        files = "cd /run/cbt-plugins; ls -d *.armed *.fired *.recover"
        return self.sh(
            f"systemctl list-units --all --no-legend 'cbt-plugins*'; systemctl --failed --no-legend; {files}"
        )

    @contextlib.contextmanager
    def broken(self, kind: str, target: str, **options: Any) -> Iterator[List[Dict[str, Any]]]:
        """A fault whose run has gone away; in the end it is undone from outside. Gives the run's records."""
        folder = self.folder()
        try:
            self.run(folder, f"injector.acquire(); injector.inject({fault('f', kind, target, **options)})")
            yield records(folder)
        finally:
            done = self.undo(folder)
        assert done.returncode == 0, done.stderr
        self.clean()


def records(folder: Path) -> List[Dict[str, Any]]:
    return [json.loads(line) for line in (folder / "undo.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def units(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Units]:
    need_systemd()
    base = tmp_path_factory.mktemp("systemd")
    made = Lab(tmp_path_factory.mktemp("lab"), say=lambda text: None)
    try:
        shape = Topology(osd_nodes=3, rgws=0, clients=0, out_interval=600, bind=(str(base),), systemd=(NODE,))
        made.up(shape, detach=False)
        yield Units(RunningLab(made, []), base)
    finally:
        made.down(wipe=True)


def test_units_are_found_and_stopped_and_started(units: Units) -> None:
    """The one that an operator has disabled is so afterwards."""
    units.sh(f"systemctl disable {UNITS[1]}")
    assert units.enabled() == ["enabled", "disabled"]
    with units.broken("stop", NODE) as said:
        former = next(record["step"]["former"] for record in said if record["event"] == "open")
        assert former["service_manager"] == "systemd" and former["units"] == list(UNITS)
        assert units.active() == ["inactive", "inactive"]
        assert units.enabled() == ["enabled", "disabled"]
    assert units.active() == ["active", "active"]
    assert units.enabled() == ["enabled", "disabled"]
    assert units.leftovers() == ""


def test_a_crash_lasts_until_it_is_undone(units: Units) -> None:
    """systemd, which would start the unit again by itself, is kept from it; what it has seen is a kill."""
    assert units.show(UNITS[0], "Restart") == {"Restart": "on-failure"}
    with units.broken("crash", "osd.4", service_manager="systemd"):
        seen = units.show(UNITS[0], "ActiveState", "SubState", "ExecMainStatus", "Job")
        assert seen["ExecMainStatus"] == "9"
        assert seen["ActiveState"] in ("failed", "inactive") and seen["SubState"] in ("failed", "dead")
        assert units.active()[1] == "active"
    assert units.active() == ["active", "active"] and units.osd(4)["up"] == 1
    assert units.leftovers() == ""


@pytest.mark.long  # test_faults_injector has what is said to systemd
def test_a_unit_that_may_not_start_any_more_is_started(units: Units) -> None:
    with units.broken("stop", "osd.4"):
        units.sh(f"while systemctl stop {UNITS[0]} && systemctl start {UNITS[0]}; do :; done")
        assert units.show(UNITS[0], "Result") == {"Result": "start-limit-hit"}
        assert units.active()[0] == "failed"
    assert units.active() == ["active", "active"]
    assert units.leftovers() == ""


@pytest.mark.long  # test_faults_injector has what is said to systemd
def test_what_is_named_must_be_so(units: Units) -> None:
    """A unit is not taken as a bare process: it would not be a unit afterwards."""
    said = units.run(
        units.folder(),
        "injector.acquire()\n"
        f"for made in ({fault('a', 'stop', 'osd.4', service_manager='process')}, "
        f"{fault('b', 'stop', 'osd.0', service_manager='systemd')}, "
        f"{fault('c', 'stop', 'osd.4', service_manager='cephadm')}):\n"
        "    try: injector.inject(made)\n"
        "    except FaultError as error: say(refused=str(error))\n"
        "injector.release()",
    )
    unit, bare, other = [line["refused"] for line in said if "refused" in line]
    assert f"osd.4 is run by {UNITS[0]} on {NODE}" in unit
    assert "osd.0 is not a unit of systemd on node1" in bare
    assert f"{UNITS[0]} on {NODE} is not a unit of cephadm" in other
    assert units.active() == ["active", "active"]


@pytest.mark.long  # test_faults_injector has what is said to systemd
def test_a_unit_that_does_not_run_is_not_the_way(units: Units) -> None:
    """CBT builds clusters of bare processes on nodes whose units are enabled."""
    bare = "ceph-osd -i 4 --setuser ceph --setgroup ceph --pid-file /run/ceph/osd.4.pid"
    units.sh(f"systemctl stop {UNITS[0]} && {bare}")
    try:
        wait_for(lambda: units.osd(4)["up"], "osd.4 up")
        units.clean()
        with units.broken("stop", "osd.4") as said:
            former = next(record["step"]["former"] for record in said if record["event"] == "open")
            assert former["service_manager"] == "process"
            assert "ceph-osd -i 4" not in units.sh("ps -e -o args")
        assert bare in units.sh("ps -e -o args") and units.active()[0] == "inactive"
    finally:
        pid = "$(cat /run/ceph/osd.4.pid)"
        units.sh(f"kill {pid}; while [ -e /proc/{pid} ]; do sleep 0.1; done; systemctl start {UNITS[0]}")
        units.clean()


@pytest.mark.long  # tests/crash has a dead man switch that fires
def test_a_timer_heals_although_nobody_asks(units: Units) -> None:
    """kill -9 for the run, and its node comes back at the time that was said."""
    folder = units.folder()
    cut = fault("n", "network", NODE, interfaces=["eth0"], deadline=20)
    running = units.start(folder, f"injector.acquire(); injector.inject({cut}); hold()")
    try:
        units.await_event(folder, running, "injected")
        armed = next(record for record in records(folder) if record["event"] == "armed")
        word, how, unit = armed["switch"].split()
        assert (word, how) == ("armed", "systemd") and units.sh(f"systemctl is-active {unit}.timer") == "active"
        holder = units.holder()
        units.lab.exec("node0", ["kill", "-9", str(holder["pid"])])
        end_of(running)
        wait_for(lambda: not units.osd(4)["up"], "osd.4 seen down")
        wait_for(lambda: units.osd(4)["up"] and units.osd(5)["up"], "both OSDs up again, by itself", 90.0)
        assert time.time() >= armed["fires"] - 1.0
    finally:
        if running.poll() is None:
            running.kill()
        running.communicate()
    done = units.undo(folder)
    assert done.returncode == 0, done.stderr
    assert units.leftovers() == ""
    units.clean()


@pytest.mark.long  # the test above has a timer
def test_a_timer_that_is_not_needed_is_taken_away(units: Units) -> None:
    """What the undo sees for that is the timer, not only the file that says there is one."""
    with units.broken("network", NODE, interfaces=["eth0"], deadline=900) as said:
        try:
            unit = next(record for record in said if record["event"] == "armed")["switch"].split()[2]
            assert units.sh(f"systemctl is-active {unit}.timer") == "active"
            checks = next(record["step"]["checks"] for record in said if record["event"] == "open")
            question = next(check["text"] for check in checks if "disarmed" in check["text"])
            named = f"/run/cbt-plugins/{unit[len('cbt-plugins-') :]}.armed"
            assert units.sh(f"mv {named} /run/away; {question}; mv /run/away {named}") == ""
        finally:
            units.lab.exec(NODE, ["ip", "link", "set", "eth0", "up"])  # by its console: nobody else could
    assert units.leftovers() == ""
    assert units.sh(question) == "disarmed"


@pytest.mark.long
def test_a_node_reboots(units: Units) -> None:
    """`systemctl reboot`: systemd ends the node; its units start with the next boot, because they are enabled."""
    units.sh(f"systemctl enable {' '.join(UNITS)}")
    before = units.lab.lab.spaces.first(NODE)
    folder = units.folder()
    made = fault("r", "reboot", NODE)
    running = units.start(
        folder, f"injector.acquire(); injector.inject({made}); say(left=injector.undo_all()); injector.release()"
    )
    try:
        wait_for(lambda: units.lab.lab.spaces.first(NODE) is None, "the node's end")
        assert units.lab.tool("boot", NODE).returncode == 0
        end_of(running, 240)
    finally:
        if running.poll() is None:
            running.kill()
        said = running.communicate()[0]
    assert running.returncode == 0 and '{"left": []}' in said, said
    assert units.lab.lab.spaces.first(NODE) not in (None, before)
    assert units.active() == ["active", "active"] and units.osd(4)["up"] == 1
    units.clean()


@pytest.mark.long  # of the lab itself: two more clusters
def test_its_control_groups_end_with_it(tmp_path: Path, units: Units) -> None:
    """Also those that kill -9 has left; and a neighbour's stay."""
    before = groups()
    made = Lab(tmp_path / "lab")
    up = ("up", "--dir", str(made.dir), "--osd-nodes", "1", "--osds-per-node", "1", "--no-rgw", "--clients", "0")
    try:
        assert lab_tool(*up, "--systemd", "node1").returncode == 0
        assert groups() > before
        made.spaces.kill("lab")
        assert groups() > before
        assert lab_tool("down", "--dir", str(made.dir)).returncode == 0
        assert groups() == before
        assert lab_tool("up", "--dir", str(made.dir)).returncode == 0
        assert groups() > before
    finally:
        made.down(wipe=True)
    assert groups() == before and units.active() == ["active", "active"]


def groups() -> Set[str]:
    """Labs' control groups on the machine."""
    script = f"{SHOW_GROUPS} && cd /sys/fs/cgroup && find cbt-lab-* -maxdepth 1 -type d"
    line = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    return set(subprocess.run(line, capture_output=True, text=True, timeout=60).stdout.split())
