"""Whole nodes: when a reboot or a loss of power counts as undone, and what a cut leaves to be started."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any, Iterator, List, Mapping, Optional, Tuple

import pytest
from faults_world import ANYTHING, CLUSTER, Connections, Died, Time

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.remote import Result
from cbt_plugins.faults import ClusterAccess, FaultError, Injector, command_runner
from cbt_plugins.faults.kinds.reboot_power import BOOT, shown_secrets
from cbt_plugins.faults.node_shell import script_text
from cbt_plugins.faults.scene import ClusterLimits
from cbt_plugins.plan import Fault

LIMITS = ClusterLimits(down=60.0, boot=900.0, pause=5.0)


class Machine(Connections):
    """node1 has power and boots; what `off` and `on` say to its controller arrives here."""

    def __init__(self, time: Time) -> None:
        super().__init__()
        self.time, self.on, self.boots = time, True, 1
        self.goes: Optional[float] = None  # when its power goes off
        self.takes = 0.0  # seconds from the order to that
        self.answers = 0  # exit status of the order
        self.dies = False  # the run dies before the order
        self.said_here: List[str] = []

    def here(self, text: str, limit: float) -> Result:
        """What runs on the machine that leads the run."""
        order = "off" if "node1-off" in text else "on"
        if order == "off" and self.dies:
            raise Died
        self.said_here.append(order)
        if order == "off" and self.takes >= 0:
            self.goes = self.time.now + self.takes
        self._pass()
        if order == "on" and not self.on:
            self.on, self.boots = True, self.boots + 1
        return Result("", "", self.answers if order == "off" else 0)

    def boot(self) -> str:
        return f"boot-{self.boots} 24"

    def _pass(self) -> None:
        if self.goes is not None and self.time.now >= self.goes:
            self.goes, self.on = None, False
            self.state["osds"]["0"].update(up=0, unit="inactive")

    def play(self, node: str, text: str) -> Result:
        self._pass()
        if node == "node1" and not self.on:
            return Result("", "No route to host", 255)
        if text == BOOT or (text.startswith("c=") and shlex.split(text)[0] == f"c={BOOT};"):
            return Result(self.boot() + "\n", "", 0)
        return super().play(node, text)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(Time())
    monkeypatch.setattr(command_runner, "run_here", made.here)
    return made


@pytest.fixture
def injector(tmp_path: Path, machine: Machine) -> Iterator[Injector]:
    made = one(tmp_path, machine)
    made.acquire()
    yield made
    made.close()


def one(folder: Path, machine: Machine) -> Injector:
    remote: Any = machine
    access = ClusterAccess(remote, Ceph(remote, CLUSTER), CLUSTER, run_id="r1")
    return Injector(folder, access, limits=LIMITS, clock=machine.time.clock())


POWER = Fault("p", "power", ("node1",), options={"off": "x {node}-off", "on": "x {node}-on"}, accept=ANYTHING)


def test_a_node_that_is_still_going_off_is_not_back(machine: Machine, injector: Injector) -> None:
    """An order in good order takes its time: the node answers, its OSDs are up, and it goes."""
    machine.takes = 200.0
    injector.inject(POWER, wait=False)
    assert injector.undo_all() == []
    assert machine.goes is None and machine.on and machine.boots == 2
    assert machine.differences() == set()


def test_a_node_that_has_not_gone_for_so_long_stays(machine: Machine, injector: Injector) -> None:
    machine.takes = -1.0
    begun = machine.time.now
    injector.inject(POWER, wait=False)
    assert injector.undo_all() == []
    assert LIMITS.boot <= machine.time.now - begun <= LIMITS.boot + 2 * LIMITS.pause
    assert machine.boots == 1 and machine.said_here.count("on") > 10


def test_an_order_that_says_it_failed_may_have_been_carried_out(machine: Machine, injector: Injector) -> None:
    machine.takes, machine.answers = 20.0, 1
    with pytest.raises(FaultError, match="exit status 1"):
        injector.inject(POWER)
    assert injector.open_changes == [] and machine.goes is None and machine.on and machine.boots == 2


def test_an_order_that_failed_is_not_waited_for_as_one_that_did_not(machine: Machine, injector: Injector) -> None:
    machine.takes, machine.answers = -1.0, 1
    begun = machine.time.now
    with pytest.raises(FaultError, match="the steps so far are undone"):
        injector.inject(POWER)
    assert LIMITS.down <= machine.time.now - begun <= LIMITS.down + 2 * LIMITS.pause


def test_an_order_without_an_answer_is_waited_for(machine: Machine, injector: Injector) -> None:
    """It was given up: nobody knows what has become of it."""
    machine.takes, machine.answers = 300.0, 124
    with pytest.raises(FaultError, match="the steps so far are undone"):
        injector.inject(POWER)
    assert machine.goes is None and machine.on and machine.boots == 2


def test_what_was_never_begun_is_not_waited_for(tmp_path: Path, machine: Machine, injector: Injector) -> None:
    """The record is on disk, and the run died before it gave the order; without the word that it had begun."""
    machine.dies = True
    with pytest.raises(Died):
        injector.inject(POWER)
    injector.close()
    lines = (tmp_path / "undo.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["event"] == "begun"
    (tmp_path / "undo.jsonl").write_text("\n".join(lines[:-1]) + "\n")
    begun, again = machine.time.now, one(tmp_path, machine)
    assert again.undo_all() == []
    again.close()
    assert machine.time.now == begun


# ---- reboot: on this machine


def ordered(injector: Injector, machine: Machine, boot: str, command: str) -> Tuple[str, str, str]:
    """What a reboot's step says to the node: the order, the word that it is undone, the question."""
    machine.boot = lambda: boot  # type: ignore[method-assign]
    (step,) = injector.prepare(Fault("r", "reboot", ("node1",), options={"command": command}, accept=ANYTHING)).steps
    return step.inject[0].text, step.undo[0].text, step.checks[0].text


def said(folder: Path, text: str) -> str:
    text = text.replace("/run/cbt-plugins", str(folder / "d")).replace("[ -w /run ]", "true")
    return subprocess.run(["sh", "-c", text], capture_output=True, text=True, timeout=600, check=True).stdout


def wait_for(folder: Path, name: str, there: bool) -> None:
    """Until a file with this end is there, or none is."""
    script = f'until [ "$(ls {shlex.quote(str(folder))} | grep -c "{name}$")" = {int(there)} ]; do sleep 0.05; done'
    subprocess.run(["sh", "-c", script], timeout=600, check=True)


def test_a_reboot_is_over_in_another_boot(tmp_path: Path, machine: Machine, injector: Injector) -> None:
    now = said(tmp_path, BOOT).strip()
    order, undo, question = ordered(injector, machine, now, f"touch {tmp_path}/carried-out")
    said(tmp_path, order)
    wait_for(tmp_path, "carried-out", there=True)
    said(tmp_path, undo)
    assert said(tmp_path, question) == f"in boot {now}\n"  # carried out, and the node is about to go
    assert said(tmp_path, question.replace(now, "another 1")) == "settled\n"


def test_an_order_that_the_node_refuses_leaves_it_in_its_boot(
    tmp_path: Path, machine: Machine, injector: Injector
) -> None:
    now = said(tmp_path, BOOT).strip()
    order, _, question = ordered(injector, machine, now, f"touch {tmp_path}/refused; false")
    said(tmp_path, order)
    wait_for(tmp_path, "refused", there=True)
    wait_for(tmp_path / "d", "rebooting", there=False)
    assert said(tmp_path, question) == "settled\n"


def test_an_order_that_was_undone_before_it_was_carried_out_is_none(
    tmp_path: Path, machine: Machine, injector: Injector
) -> None:
    now = said(tmp_path, BOOT).strip()
    order, undo, question = ordered(injector, machine, now, f"touch {tmp_path}/carried-out")
    said(tmp_path, order + "; " + undo)
    wait_for(tmp_path / "d", "rebooting", there=False)
    assert said(tmp_path, question) == "settled\n"
    assert not (tmp_path / "carried-out").exists()


def test_a_node_that_never_reboots_is_given_up(machine: Machine, injector: Injector) -> None:
    """Its order was taken, and came to nothing: after the time that a boot may take, its boot counts no more."""
    (step,) = injector.prepare(Fault("r", "reboot", ("node1",), accept=ANYTHING)).steps
    assert step.counting(LIMITS.boot - 1, False) == step.checks
    assert step.counting(LIMITS.boot, False) == step.checks[1:]


def test_a_reboot_that_was_over_before_anybody_looked_took_effect(machine: Machine, injector: Injector) -> None:
    """Its OSDs are up again, and the map says in which epoch they went down."""
    machine.state["osds"]["0"]["down_at"] = 7
    (step,) = injector.prepare(Fault("r", "reboot", ("node1",), accept=ANYTHING)).steps
    (took,) = step.took
    found = []
    for more in ({}, {"up": 0}, {"down_at": 12}):
        machine.state["osds"]["0"].update(more)
        found.append(took.differs(machine.run(["node0"], took.text)["node0"].stdout))
    assert found == [*["osds.osd=0.down_at is 7, not anything but 7"] * 2, None]


# ---- power: what others see


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("ipmitool -H {node} -P ${SECRET} power off", True),
        ("ipmitool -H {node} -E power off", False),
        ("IPMI_PASSWORD=${SECRET} ipmitool -E power off", False),
        ('echo "user = a:$SECRET" | curl -K - https://bmc', False),
        ("sleep 1 && curl -u a:$SECRET https://bmc", True),
        ("x $SECRETS", False),
        ("x 'unclosed", False),
    ],
)
def test_a_secret_among_the_arguments_is_seen(command: str, shown: bool) -> None:
    assert shown_secrets([command], ["SECRET"]) == (["SECRET"] if shown else [])


def test_a_secret_that_others_can_read_is_warned_of(
    machine: Machine, injector: Injector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    options: Mapping[str, Any] = {"off": "x -P ${SECRET}", "on": "x", "secrets": ["SECRET"]}
    text = "\n".join(injector.prepare(Fault("p", "power", ("node1",), options=options, accept=ANYTHING)).lines())
    assert "warning: SECRET is in the arguments of a command" in text and "hunter2" not in text


# ---- network


def test_osds_that_ended_while_they_were_cut_off_are_started(machine: Machine, injector: Injector) -> None:
    """After the node has recovered and its switch disarmed; and they are marked in."""
    options = {"method": "nft", "deadline": 60}
    real = machine.play
    machine.play = (  # type: ignore[method-assign]
        lambda node, text: Result("possible", "", 0) if "echo possible" in text else real(node, text)
    )
    (step,) = injector.prepare(Fault("n", "network", ("node1",), options=options, accept=ANYTHING)).steps
    recover, disarm, start, mark_in = (command.text for command in step.undo)
    assert "nft delete table" in recover and ".armed" in disarm
    assert "systemctl start ceph-osd@0.service" in start and mark_in.endswith("osd in 0")


def test_a_switch_that_gives_up_does_not_say_that_it_has_fired(tmp_path: Path) -> None:
    count = tmp_path / "attempts"
    text = script_text("dead_man_fire", recovery=f"echo x >> {count}; false", attempt="60", pause="0")
    argv = ["sh", "-c", text, "sh", f"{tmp_path}/switch"]
    assert subprocess.run(argv, timeout=600).returncode == 1
    assert count.read_text().count("x") == 30 and not (tmp_path / "switch.fired").exists()
