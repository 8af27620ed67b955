"""Every way out of a run that has made pools, users and buckets of its own, on a real cluster: it is resumed.

The cycles with a client that is lost run on every release that is there; all in about a quarter of an hour:

    CBT_PLUGINS_LONG=1 python -m pytest tests/lab/test_kept_on_lab.py
"""

from __future__ import annotations

import contextlib
import json
import signal
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import pytest
import yaml
from cycles import S3, Cycle, buckets_of, objects
from running_lab import RunningLab
from test_ends import small_disk  # noqa: F401 -- a fixture
from test_prepared import state

pytestmark = [pytest.mark.lab, pytest.mark.long]

PLACEMENT = {"data": "data", "index": "index", "extra": "index"}
SECTION: Dict[str, Any] = {
    "s3": {**S3, "user": "bench"},
    "engine": "cbt-load",
    "workers": 2,
    "versioned": True,
    "pools": {
        "data": {"ec": "2+1", "pg_num": 8},
        "index": {"replicas": 3, "pg_num": 4},
        "default.rgw.log": {"existing": True, "compression": {"mode": "passive"}},
    },
    "rgw": {"placement": PLACEMENT, "make_user": True},
    "buckets": {"small": {}, "of-tenant": {"user": "acme$works", "placement": PLACEMENT}},
    "settings": {"flags": ["noscrub"]},
    "cycle": {
        "phases": [
            {"fill": {"objects": 40}},
            {"hybrid": {"duration": "8s"}},
            {"wait": {"duration": "8s"}},
            {"hybrid": {"duration": "8s", "mix": {"get": 100}}, "name": "read"},
        ]
    },
}
PHASES = ["fill", "hybrid", "wait", "read"]
USERS = {"bench", "acme$works"}


def section(**keys: Any) -> Dict[str, Any]:
    return {"warp": {**SECTION, **keys}}


class Kept:
    """A run on a lab, broken off in some way, and what it has made."""

    def __init__(self, lab: RunningLab, folder: Path, **keys: Any) -> None:
        self.lab, self.before = lab, state(lab)
        self.cycle = Cycle(lab, folder, **section(**keys))

    def there(self, phase: str) -> bool:
        """Whether a phase is under way, and has made some requests."""
        if phase == "wait":
            return bool(list(self.cycle.archive.glob("results/*/id-*/phases/*-wait.running")))
        return self.cycle.running_rows(phase) > 5

    def assert_kept(self) -> None:
        now = state(self.lab)
        own = {name.rpartition("-")[2] for name in now["pools"] if name not in self.before["pools"]}
        assert own == {"data", "index"} and set(now["user list"]) - set(self.before["user list"]) == USERS
        assert now["pools"]["default.rgw.log"]["compression_mode"] == "passive"
        assert now["lock"]
        filled = {bucket: objects(self.lab, bucket) for bucket in buckets_of(self.cycle)}
        assert len(filled) == 2 and all((number or 0) >= 40 for number in filled.values()), filled

    def assert_gone(self) -> None:
        assert state(self.lab) == self.before and buckets_of(self.cycle) == []

    def assert_goes_on(self) -> None:
        done = self.cycle.run()
        assert done.returncode == 0, done.stderr[-3000:]
        assert list(self.cycle.phases()) == PHASES
        ended: List[str] = []
        for line in (self.cycle.folder / "events.jsonl").read_text().splitlines():
            event = json.loads(line)
            assert event["event"] != "phase-begin" or event["phase"] not in ended, f"{event['phase']} is repeated"
            ended += [event["phase"]] if event["event"] == "phase-end" else []
        for phase in self.cycle.phases().values():
            assert phase["status"] == "ok" and all(count["ok"] for count in phase["accounting"]), phase
        self.assert_gone()


def by_signals(*numbers: int) -> Callable[[Kept], None]:
    """The way of signals that come at once: to the load, its undo, and the undo of all."""

    def way(kept: Kept) -> None:
        for number in numbers:
            with contextlib.suppress(ProcessLookupError):
                kept.cycle.send(number)

    return way


def crash(kept: Kept) -> None:
    """The way of a client whose power fails."""
    assert kept.lab.tool("crash", "client1").returncode == 0


def kill_the_load(kept: Kept) -> None:
    """The way of a generator that ends on one client."""
    assert kept.lab.exec("client1", ["pkill", "-KILL", "-x", "cbt-load"]).returncode == 0


@pytest.fixture
def healed(lab: RunningLab) -> Iterator[None]:
    yield
    for name in ("client1", "client2"):
        if lab.lab.spaces.first(name) is None:
            lab.lab.boot(name)
        lab.lab.link(name, up=True)


@pytest.mark.parametrize(
    ("phase", "way", "status"),
    [
        ("hybrid", by_signals(signal.SIGTERM), 130),
        ("hybrid", by_signals(signal.SIGTERM, signal.SIGINT), 130),
        ("read", by_signals(signal.SIGTERM, signal.SIGINT, signal.SIGHUP), 130),
        ("wait", by_signals(signal.SIGINT), 130),
        ("hybrid", by_signals(signal.SIGKILL), -9),
        ("read", kill_the_load, 1),
        ("hybrid", crash, 1),
    ],
    ids=["signal", "two", "three", "in-a-wait", "kill", "generator", "client"],
)
def test_what_a_run_has_made_stays(
    lab: RunningLab, tmp_path: Path, healed: None, phase: str, way: Callable[[Kept], None], status: int
) -> None:
    kept = Kept(lab, tmp_path)
    kept.cycle.start()
    kept.cycle.await_moment(lambda: kept.there(phase), f"the phase {phase}")
    way(kept)
    assert kept.cycle.ended() == status, kept.cycle.log.read_text()[-3000:]
    kept.assert_kept()
    if way is crash:
        lab.lab.boot("client1")
    kept.assert_goes_on()


def test_what_a_run_has_made_stays_when_the_head_is_lost(lab: RunningLab, tmp_path: Path, healed: None) -> None:
    kept = Kept(lab, tmp_path)
    file = yaml.safe_load(kept.cycle.file.read_text())
    file["cluster"].update(head="client2", clients=["client1"])
    kept.cycle.file.write_text(yaml.safe_dump(file))
    kept.cycle.start()
    kept.cycle.await_moment(lambda: kept.there("hybrid"), "the phase hybrid")
    lab.lab.link("client2", up=False)
    assert kept.cycle.ended() == 1, kept.cycle.log.read_text()[-3000:]
    assert "not undone: settings" in kept.cycle.log.read_text()
    kept.assert_kept()
    lab.lab.link("client2", up=True)
    kept.assert_goes_on()


def test_what_a_run_has_made_stays_when_the_disk_is_full(
    lab: RunningLab, tmp_path: Path, small_disk: Path  # noqa: F811
) -> None:
    kept = Kept(lab, tmp_path)
    kept.cycle.archive = small_disk / "archive"
    running = f"ls {kept.cycle.archive}/results/*/id-*/phases/*-hybrid.running/heartbeat.jsonl"
    kept.cycle.start()
    kept.cycle.await_moment(lambda: lab.exec("node0", ["sh", "-c", running]).returncode == 0, "the phase hybrid")
    lab.exec("node0", ["dd", "if=/dev/zero", f"of={small_disk}/filler", "bs=4k"])
    # the run waits for room, up to an hour; its user gives up
    kept.cycle.await_moment(lambda: "free some within" in kept.cycle.log.read_text(), "the wait for room")
    kept.cycle.send(signal.SIGTERM)
    assert kept.cycle.ended() == 1, kept.cycle.log.read_text()[-3000:]
    own = [name for name in state(lab)["pools"] if name not in kept.before["pools"]]
    assert len(own) == 2, own
    lab.exec("node0", ["rm", f"{small_disk}/filler"])
    done = kept.cycle.run()
    assert done.returncode == 0, done.stderr[-3000:]
    assert state(lab) == kept.before


def test_a_set_up_that_is_broken_off_leaves_nothing_and_is_made_again(lab: RunningLab, tmp_path: Path) -> None:
    kept = Kept(lab, tmp_path)
    journal = lambda: "".join(path.read_text() for path in kept.cycle.archive.rglob("undo.jsonl"))  # noqa: E731
    status = kept.cycle.broken_off(lambda: "rgw.rgw1 restarted" in journal(), "a restart", signal.SIGTERM)
    assert status == 130 and state(lab) == kept.before
    kept.assert_goes_on()


@pytest.mark.parametrize("keys", [{}, {"keep_data": True}], ids=["", "keep-data"])
def test_what_a_run_has_made_is_removed_when_the_user_says_so(
    lab: RunningLab, tmp_path: Path, keys: Dict[str, Any]
) -> None:
    spare = {"spare": {"replicas": 2, "pg_num": 4, "application": "spare"}}
    its = {**keys, "pools": spare, "rgw": {}, "buckets": {"small": {}}, "s3": S3} if keys else {}
    kept = Kept(lab, tmp_path, **its)
    status = kept.cycle.broken_off(lambda: kept.there("read"), "the phase read", signal.SIGTERM)
    assert status == 130 and state(lab) != kept.before
    undone = kept.cycle.undo()
    assert undone.returncode == 0, undone.stderr
    assert state(lab) == kept.before
    made = "pool spare" if keys else "pool data, pool index"
    assert f"removed, with all data in it: {made}" in undone.stdout, undone.stdout
    again = kept.cycle.run()
    assert again.returncode == 1 and "start again with another archive directory" in again.stderr, again.stderr
    assert state(lab) == kept.before
    left = kept.cycle.undo("--data")
    assert left.returncode == 0 and buckets_of(kept.cycle) == [], left.stderr


def test_on_every_release(of_release: RunningLab, tmp_path: Path) -> None:
    kept = Kept(of_release, tmp_path)
    kept.cycle.start()
    kept.cycle.await_moment(lambda: kept.there("hybrid"), "the phase hybrid")
    kill_the_load(kept)
    assert kept.cycle.ended() == 1, kept.cycle.log.read_text()[-3000:]
    kept.assert_kept()
    kept.assert_goes_on()
