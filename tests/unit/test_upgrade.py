"""The event `upgrade:`: its words in a file, its order on a cluster, and what its archive says."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any, Dict, List, Tuple, cast

import archive_builder as made
import pytest

from cbt_plugins.cluster.ceph import Ceph, CephError
from cbt_plugins.cluster_conditions import of_own_faults
from cbt_plugins.config.events import load_fault_file
from cbt_plugins.config.fault_spans import event_text
from cbt_plugins.config.section_to_plan import plan_of
from cbt_plugins.faults import FaultError, Injector
from cbt_plugins.plan import NodeCommand, Upgrade
from cbt_plugins.polling import Clock
from cbt_plugins.report.sentence import of_run
from cbt_plugins.results.recovery.upgrade import blocks
from cbt_plugins.results.summary_numbers import numbers_of
from cbt_plugins.run.upgrade import Upgrader, version_change
from cbt_plugins.tools.__main__ import main

OLD, NEW = "ceph version 16.2.15 (618f) pacific (stable)", "ceph version 18.2.7 (6b0e) reef (stable)"
BY_COMMAND = Upgrade("u", "18.2", command="switch {daemon} {type} {id} ${x}")


class Cluster:
    """Stands for the injector and for `ceph`: one mon, mgr and RGW, and three OSDs on two nodes."""

    command = "ceph"

    def __init__(self) -> None:
        self.now = 0.0
        self.ran: List[NodeCommand] = []
        self.notes: List[Tuple[str, Any]] = []
        self.version = dict.fromkeys(("mon.a", "mgr.a", "osd.0", "osd.1", "osd.2", "rgw.g"), OLD)
        self.of_gateways = ("g1",)
        self.unclean_until, self.stopping, self.deaf = 0.0, False, ""

    def run(self, command: NodeCommand) -> None:
        self.ran.append(command)
        daemon = command.label.partition(" ")[2]
        if daemon in self.version and daemon != self.deaf:
            self.version[daemon] = NEW
            self.unclean_until = self.now + 20

    def json(self, question: str, timeout: float = 0) -> Any:
        words = question.split()
        if words[0] == "node":
            return {"mon": {"m1": ["a"]}, "mgr": {"m1": ["a"]}, "osd": {"n1.site": [0, 1], "n2": [2]}}
        if words[0] == "service":
            about = [(9, NEW if self.version["rgw.g"] == NEW else OLD), (3, OLD)]
            its = {
                f"{host}-{gid}": {"gid": gid, "metadata": self._metadata(text, id="g", hostname=host)}
                for host in self.of_gateways
                for gid, text in about
            }
            return {"services": {"rgw": {"daemons": {"summary": "", **its}}}}
        if words[0] == "versions":
            found: Dict[str, Dict[str, int]] = {"overall": {OLD: 99}}
            for name, text in self.version.items():
                kind = found.setdefault(name.split(".")[0], {})
                kind[text] = kind.get(text, 0) + 1
            return found
        if words[0] == "mon" and self.ran and self.now % 2:
            raise CephError("no reply")
        return self._metadata(self.version[f"{words[0]}.{words[2]}"])

    @staticmethod
    def _metadata(text: str, **more: str) -> Dict[str, str]:
        return {"ceph_version_short": text.split()[2], **more}

    def status(self) -> Any:
        return type("S", (), {"not_clean": int(self.now < self.unclean_until)})

    def note(self, event: str, **facts: Any) -> None:
        self.notes.append((event, facts))

    def upgrade(self, what: Upgrade, *nodes: str) -> None:
        self.upgrader(*nodes).run(what)

    def upgrader(self, *nodes: str) -> Upgrader:
        upgrader = Upgrader(cast(Injector, self), cast(Ceph, self), self.note, nodes or ("m1", "n1", "n2", "g1"))
        upgrader.clock = Clock(lambda: self.now, self._sleep)
        return upgrader

    def _sleep(self, seconds: float) -> None:
        self.now += seconds


def test_daemons_get_the_release_in_the_order_of_the_manual() -> None:
    cluster = Cluster()
    cluster.upgrade(BY_COMMAND)
    assert [(one.label, one.node) for one in cluster.ran] == [
        ("u mon.a", "m1"),
        ("u mgr.a", "m1"),
        ("u osd.0", "n1"),
        ("u osd.1", "n1"),
        ("u osd.2", "n2"),
        ("u rgw.g", "g1"),
        ("u require-osd-release reef", ""),
    ]
    assert cluster.ran[2].command == "switch osd.0 osd 0 ${x}"
    assert cluster.now >= 3 * (20 + 6)
    steps = [facts["versions"]["osd"] for event, facts in cluster.notes if event == "upgrade-step"]
    assert steps[2:5] == [{"16.2.15": 3}, {"18.2.7": 1, "16.2.15": 2}, {"18.2.7": 2, "16.2.15": 1}]
    assert [cluster.notes[0][0], cluster.notes[-1][0]] == ["upgrade-begin", "upgrade-end"]
    assert cluster.notes[-1][1]["versions"]["rgw"] == {"18.2.7": 1}
    with pytest.raises(FaultError, match=r"every daemon already has release 18\.2"):
        cluster.upgrade(BY_COMMAND)


def test_an_upgrade_goes_on_although_no_event_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk of the archive would leave a cluster of two releases."""

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    cluster = Cluster()
    monkeypatch.setattr(cluster, "note", full)
    cluster.upgrade(BY_COMMAND)
    assert set(cluster.version.values()) == {NEW}


def test_gateways_of_one_id_on_two_hosts_are_two() -> None:
    cluster = Cluster()
    cluster.of_gateways = ("g1", "g2")
    assert cluster.upgrader().versions()["rgw"] == {"16.2.15": 2}


def test_a_daemon_that_stays_old_ends_the_upgrade_with_its_name() -> None:
    cluster = Cluster()
    cluster.deaf = "osd.1"
    with pytest.raises(FaultError, match=r"osd\.1 is not at 18\.2: 16\.2\.15"):
        cluster.upgrade(BY_COMMAND)
    assert cluster.notes[-1][0] == "upgrade-end"
    assert [one.label for one in cluster.ran][-1] == "u osd.1"


def test_a_node_that_the_file_does_not_name_is_said_before_anything_is_done() -> None:
    cluster = Cluster()
    with pytest.raises(FaultError, match="`cluster:` does not name nodes of daemons: g1, n2"):
        cluster.upgrade(BY_COMMAND, "m1", "n1")
    assert cluster.ran == []


def test_a_run_that_stops_does_not_wait_for_the_next_daemon() -> None:
    cluster = Cluster()
    cluster.stopping = True
    with pytest.raises(FaultError, match="the run is stopping; the upgrade is not complete"):
        cluster.upgrade(BY_COMMAND)
    assert len(cluster.ran) < 4


class Orchestrated(Cluster):
    """One that upgrades a daemon each time it is asked how far it is."""

    error = ""

    def json(self, question: str, timeout: float = 0) -> Any:
        if question != "orch upgrade status":
            return super().json(question, timeout)
        old = [name for name, text in self.version.items() if text == OLD]
        if old and not self.error:
            self.version[old[0]] = NEW
        return {"in_progress": bool(old), "message": self.error}


def test_the_orchestrators_progress_is_seen_by_the_versions() -> None:
    cluster = Orchestrated()
    cluster.upgrade(Upgrade("u", "18.2", image="ceph:v18"))
    assert [one.command for one in cluster.ran] == ["ceph orch upgrade start --image ceph:v18"]
    steps = [facts["step"] for event, facts in cluster.notes if event == "upgrade-step"]
    assert steps[:4] == ["orchestrator begins", "1 of 1 mon at 18.2.7", "1 of 1 mgr at 18.2.7", "1 of 3 osd at 18.2.7"]
    cluster = Orchestrated()
    cluster.error = "Error: UPGRADE_FAILED_PULL: failed to pull"
    with pytest.raises(FaultError, match="did not finish in time: Error: UPGRADE_FAILED_PULL"):
        cluster.upgrade(Upgrade("u", "18.2", image="ceph:v18"))


def test_words_for_a_change_of_versions() -> None:
    assert version_change({"mon": {"9.2": 1}}, {"mon": {"9.2": 1, "18.2.7": 2}, "osd": {"9.2": 3}}) == (
        "2 of 3 mon at 18.2.7, 3 of 3 osd at 9.2"
    )


# -- in a file


def section(**keys: Any) -> Dict[str, Any]:
    return {"to": "18.2", "command": "x {daemon}", "irreversible": True, **keys}


def test_the_plan_says_that_there_is_no_way_back() -> None:
    events = [{"at": "1m", "upgrade": section()}]
    cycle = {"phases": [{"fill": {"objects": 1}}, {"hybrid": {"duration": "1h", "events": events}}]}
    keys = {"s3": {"urls": ["http://rgw1:7480"], "user": "cbt"}, "engine": "cbt-load", "cycle": cycle}
    (event,) = plan_of("warp", keys, {"clients": ["c1"]}, None).phases[1].events
    assert event.upgrade == Upgrade("upgrade", "18.2", "x {daemon}")
    assert event_text(event) == "1m: upgrade every daemon to 18.2, for each daemon: x {daemon}; no way back"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{to: '18.2', command: x}", "a store that a newer release has opened cannot go back"),
        ("{to: '18.2', irreversible: true}", "needs one of command, image"),
        ("{to: '18.2', command: x, image: y, irreversible: true}", "exclude each other"),
        ("{to: reef, command: x, irreversible: true}", "to"),
    ],
)
def test_what_an_upgrade_needs(tmp_path: Path, text: str, error: str) -> None:
    file = tmp_path / "faults.yaml"
    file.write_text(f"events:\n  - {{at: 0s, upgrade: {text}}}\n")
    with pytest.raises(Exception, match=error):
        load_fault_file(file)


def test_a_fault_file_has_no_upgrade(tmp_path: Path) -> None:
    file = tmp_path / "faults.yaml"
    file.write_text("events:\n  - {at: 0s, upgrade: {to: '18.2', command: x, irreversible: true}}\n")
    with pytest.raises(Exception, match=r"faults\.yaml:2:.*is for a phase, not for a fault file"):
        load_fault_file(file)


# -- in an archive


def archive(folder: Path, end: float = 8.0) -> Path:
    """A phase of 10 s: 2 workers at 100 GET/s each, but for a stall from 3 to 5 s; the upgrade is from 2 s to `end`."""
    directory = made.run(folder, phases=["hybrid"])
    rows = [
        *made.steady("GET", workers=2, seconds=2.99, latency=0.01, size=4096),
        *made.steady("GET", workers=2, seconds=5, latency=0.01, begin=5, size=4096),
    ]
    made.phase(directory, 1, "hybrid", [made.job("g", "GET", rows)], asked={"duration": 10.0, "mix": {}})
    old, half, new = ({"osd": its} for its in ({"16.2.15": 2}, {"16.2.15": 1, "18.2.7": 1}, {"18.2.7": 2}))
    lines = [
        (2.0, "upgrade-begin", {"to": "18.2", "versions": old}),
        (2.1, "upgrade-step", {"step": "osd.0 on n1", "versions": old}),
        (6.0, "upgrade-step", {"step": "osd.1 on n1", "versions": half}),
        (7.0, "upgrade-step", {"step": "require-osd-release reef", "versions": new}),
        (end, "upgrade-end", {"versions": new}),
    ]
    told = [{"t": made.T0 + t, "event": event, "label": "u", "phase": "hybrid", **more} for t, event, more in lines]
    (directory / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in told))
    assert of_own_faults(told) == [(made.T0 + 2.0, float("inf"))]
    return directory


def test_steps_and_mixtures_have_their_numbers(tmp_path: Path) -> None:
    summary = numbers_of(archive(tmp_path))
    (its,) = summary["upgrades"]
    assert (its["from"], its["to"], its["complete"], its["outlasted"]) == (["16.2.15"], "18.2", True, False)
    assert its["versions"] == {"before": {"osd": {"16.2.15": 2}}, "after": {"osd": {"18.2.7": 2}}}
    assert [(step["state"], step["seconds"], step["total"]["silent_seconds"]) for step in its["steps"]] == [
        ("osd.0 on n1", 4.0, 2),
        ("osd.1 on n1", 1.0, 0),
        ("require-osd-release reef", 1.0, 0),
    ]
    assert its["steps"][0]["total"]["obj_per_s_percent"] == pytest.approx(50, abs=1)
    assert [(mixture["state"], mixture["seconds"]) for mixture in its["mixtures"]] == [
        ("osd 16.2.15 + 18.2.7", 5.0),
        ("osd 18.2.7", 1.0),
    ]
    assert (its["before"]["seconds"], its["after"]["seconds"]) == (2.0, 2.0)
    assert [mark["title"] for mark in its["timeline"]["marks"]][1] == "osd.1 on n1"
    sentence = of_run(summary, {})[0]
    assert sentence.text.startswith("Upgrade from 16.2.15 to 18.2 in 6.0 s; 67 % of the throughput before; no request")
    assert "2 seconds without a success" in sentence.text
    assert any("osd 16.2.15 + 18.2.7" in str(block) for block in blocks(its))


def test_the_page_has_them_and_marks_them_on_the_time_line(tmp_path: Path) -> None:
    directory = archive(tmp_path)
    assert main(["report", str(tmp_path)]) == 0
    page = (directory / "report.html").read_text()
    assert '<section id="upgrade">' in page
    assert '<th scope="row" class="text">osd 16.2.15 + 18.2.7</th>' in page
    assert '"title":"osd.1 on n1"' in page.replace('": "', '":"')


def test_a_load_that_ends_first_is_a_warning(tmp_path: Path) -> None:
    summary = numbers_of(archive(tmp_path, end=30.0))
    assert "upgrade-outlasted" in {warning["code"] for warning in summary["warnings"]}
    assert summary["upgrades"][0]["after"] is None


def test_a_run_without_an_upgrade_says_nothing_of_one(tmp_path: Path) -> None:
    assert numbers_of(made.small(tmp_path))["upgrades"] == []
