"""Deep scrubs after a run: asked for in YAML, given up where they get nowhere."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, Sequence, Tuple, cast

import pytest
from run_context import context

from cbt_plugins.cluster.ceph import CephError, Status
from cbt_plugins.config.events import load_fault_file as load
from cbt_plugins.config.key_errors import validate
from cbt_plugins.config.settings import SettingsSection
from cbt_plugins.config.yaml_source import ConfigError
from cbt_plugins.plan import S3, Plan, Settings
from cbt_plugins.run import wait_phase
from cbt_plugins.run.run_archive import RunArchive

STATUS = Status("HEALTH_OK", {}, {"active+clean": 4}, 4, 3, 3, 3, 0, 0, 0.1)


def settings(scrub: Any) -> Tuple[Any, List[str]]:
    model, problems = validate(SettingsSection, {"scrub": scrub})
    return model, [problem.text for problem in problems]


def test_a_scrub_that_follows_is_kept_off_before() -> None:
    model, _ = settings("deep-after")
    made = model.to_plan(scrub=None)
    assert made.deep_scrub and made.flags == ("noscrub", "nodeep-scrub")
    assert not settings("off")[0].to_plan().deep_scrub
    assert settings("on")[0].to_plan(scrub=False).flags == ()
    assert settings("later")[1] == ["must be on, off or deep-after"]


def test_a_file_of_faults_has_no_end_that_one_could_follow(tmp_path: Path) -> None:
    path = tmp_path / "faults.yaml"
    path.write_text("settings: {scrub: deep-after}\nevents: [{at: 0s, mark: x}]\n")
    with pytest.raises(ConfigError, match="follows a run of a benchmark of ours: say off"):
        load(path)


class Cluster:
    """Four PGs, of which some are scrubbed a look after they should be; host and status watch too."""

    run_dir = "/nowhere"

    def __init__(self, scrubbed: Sequence[str], answers: bool = True) -> None:
        self.scrubbed, self.answers = scrubbed, answers
        self.asked: List[str] = []
        self.looks = 0

    def log_and_index_pools(self) -> List[str]:
        return ["log", "index"]

    def deep_scrub(self, pools: Sequence[str]) -> None:
        if not self.answers:
            raise CephError("no answer")
        self.asked += pools

    def deep_scrubs(self, pools: Sequence[str]) -> Dict[str, str]:
        self.looks += bool(self.asked)
        done = self.scrubbed[: self.looks]
        return {pg: "new" if pg in done else "old" for pg in ("1.0", "1.1", "2.0", "2.1")}

    @contextlib.contextmanager
    def monitors(self, folder: Path, *without: str, acting: bool = False) -> Iterator[None]:
        yield

    @contextlib.contextmanager
    def feed(self) -> Iterator[Cluster]:
        yield self

    def poll(self, timeout: float) -> Iterator[Tuple[float, Status]]:
        yield 1.0, STATUS


def follow(
    folder: Path, monkeypatch: pytest.MonkeyPatch, cluster: Cluster, plan: Plan
) -> List[Tuple[str, Dict[str, Any]]]:
    monkeypatch.setattr(wait_phase, "SCRUB_EVERY", 0.001)
    monkeypatch.setattr(wait_phase, "SCRUB_STALLED", 0.05)
    events: List[Tuple[str, Dict[str, Any]]] = []
    its = cast(Any, cluster)
    note = SimpleNamespace(write=lambda name, **facts: events.append((name, facts)))
    run = context(plan=plan, cbt_run=its, ceph=its, watch=its, archive=RunArchive(folder), events=note)
    wait_phase.after_phases(run)
    return events


def plan_of(**more: Any) -> Plan:
    return Plan("warp", S3(urls=("http://a",)), (), (), (), **more)


DEEP = Settings(deep_scrub=True)


def test_all_pgs_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(["1.0", "1.1", "2.0", "2.1"])
    events = follow(tmp_path / "a", monkeypatch, cluster, plan_of(settings=DEEP))
    assert cluster.asked == ["log", "index"] and cluster.looks == 4
    assert events == [
        ("deep-scrub-begin", {"pools": ["log", "index"], "pgs": 4}),
        ("deep-scrub-end", {"pgs": 4, "left": []}),
    ]


def test_an_answer_that_does_not_come_ends_no_scrub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Cluster):
        lost = 2

        def deep_scrubs(self, pools: Sequence[str]) -> Dict[str, str]:
            if self.looks == 2 and self.lost:
                self.lost -= 1
                raise CephError("no reply")
            return super().deep_scrubs(pools)

    cluster = Slow(["1.0", "1.1", "2.0", "2.1"])
    events = follow(tmp_path / "a", monkeypatch, cluster, plan_of(settings=DEEP))
    assert cluster.lost == 0 and events[-1] == ("deep-scrub-end", {"pgs": 4, "left": []})


def test_what_gets_nowhere_is_given_up_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = follow(tmp_path / "a", monkeypatch, Cluster(["1.0", "1.1"]), plan_of(settings=DEEP))
    assert events[-1] == ("deep-scrub-end", {"pgs": 2, "left": ["2.0", "2.1"]})


def test_a_cluster_that_does_not_answer_is_watched_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = follow(tmp_path / "a", monkeypatch, Cluster([], False), plan_of(settings=DEEP, post_poll=0.01))
    assert [name for name, _ in events] == [
        "deep-scrub-begin",
        "deep-scrub-failed",
        "post-poll-begin",
        "post-poll-end",
    ]


def test_nothing_is_asked_for_nothing_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert follow(tmp_path / "a", monkeypatch, Cluster([]), plan_of()) == []
    assert not (tmp_path / "a").exists()
