"""How full the cluster is at the borders of phases: noted by a run, asked for in SQL."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Sequence, cast

import archive_builder as made
import pytest
from run_context import context

from cbt_plugins.ceph_df import PoolSpace
from cbt_plugins.cluster.ceph import CephError
from cbt_plugins.journal import Journal
from cbt_plugins.plan import S3, Bucket, Goal, Phase, Plan
from cbt_plugins.run.fill_goal import reaching, share_text
from cbt_plugins.run.phase_outcome import PhaseOutcome
from cbt_plugins.run.phase_runner import PhaseRunner
from cbt_plugins.run.run_archive import RunArchive
from cbt_plugins.run.sampler_clock import SamplerClock
from cbt_plugins.tools.__main__ import main
from cbt_plugins.warning_kinds import Severity, severity_of


def df(stored: int) -> Dict[str, Any]:
    """3 copies in a cluster of 1 GB."""
    stats = {
        "stored": stored,
        "bytes_used": 3 * stored,
        "max_avail": (10**9 - 3 * stored) // 3,
        "objects": stored // 10,
    }
    total = {"total_bytes": 10**9, "total_used_raw_bytes": 3 * stored}
    return {"stats": total, "pools": [{"name": "data", "id": 1, "stats": stats}]}


class Cluster:
    """Answers as long as it can."""

    def __init__(self) -> None:
        self.stored = 0
        self.dead = False

    def ask(self, questions: Sequence[str], timeout: float) -> List[Any]:
        if self.dead:
            raise CephError(f"ceph {questions[0]}: no answer")
        answers = {"df detail": df(self.stored), "osd df": {"nodes": [{"id": 0, "kb_used": self.stored}]}}
        return [answers[question] for question in questions]


@pytest.fixture
def phasing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PhaseRunner:
    """Phases that write a million bytes each."""
    archive = RunArchive(tmp_path / "results" / "00000000" / "id-1")
    phases = (Phase("one", "wait"), Phase("two", "wait"))
    cluster = Cluster()

    def attempt(index: int, phase: Phase) -> PhaseOutcome:
        archive.running(index, phase.name).mkdir(parents=True)
        cluster.stored += 10**6
        outcome = PhaseOutcome(index, phase, window=(made.T0, made.T0 + 1))
        outcome.note_capacity(cast(Any, cluster), archive.running(index, phase.name))
        return outcome

    archive.folder.mkdir(parents=True)
    journal, events = Journal(archive.journal), Journal(archive.events)
    injector = SimpleNamespace(open_changes=[])
    plan = cast(Any, SimpleNamespace(phases=phases))
    run = context(plan=plan, ceph=cluster, archive=archive, journal=journal, events=events, injector=injector)
    nothing = cast(Any, None)
    watchers = cast(Any, SimpleNamespace(start=lambda anew: None))
    its = PhaseRunner(run, nothing, nothing, watchers, nothing, SamplerClock(run, None))
    monkeypatch.setattr(its, "attempt", attempt)
    return its


def run(phasing: PhaseRunner) -> List[Path]:
    """The folders of its phases."""
    for index, phase in enumerate(phasing.context.plan.phases, 1):
        assert phasing.run_unless_finished(index, phase)
    phasing.context.journal.close()
    phasing.context.events.close()
    run = phasing.context
    return [run.archive.phase(index, phase.name) for index, phase in enumerate(run.plan.phases, 1)]


def test_every_border_has_one(phasing: PhaseRunner, capsys: pytest.CaptureFixture[str]) -> None:
    before = phasing.context.archive.cluster("before")
    before.mkdir(parents=True)
    (before / "df.json").write_text(json.dumps(df(5 * 10**5)))
    told = [json.loads((folder / "capacity.json").read_text()) for folder in run(phasing)]
    assert [its["osd_df"]["nodes"][0]["kb_used"] for its in told] == [10**6, 2 * 10**6]
    query = "SELECT phase, pool, objects, stored, used, raw_used FROM capacity ORDER BY stored"
    capsys.readouterr()
    assert main(["sql", str(phasing.context.archive.folder), query, "--format", "json"]) == 4  # it has no end
    rows = json.loads(capsys.readouterr().out)
    assert [list(row.values()) for row in rows] == [
        [None, "data", 5 * 10**4, 5 * 10**5, 15 * 10**5, 0.0015],
        ["one", "data", 10**5, 10**6, 3 * 10**6, 0.003],
        ["two", "data", 2 * 10**5, 2 * 10**6, 6 * 10**6, 0.006],
    ]


def test_a_cluster_that_does_not_answer_costs_no_phase(phasing: PhaseRunner) -> None:
    cast(Any, phasing.context.ceph).dead = True
    for folder in run(phasing):
        record = json.loads((folder / "phase.json").read_text())
        assert record["status"] == "ok" and [w["code"] for w in record["warnings"]] == ["no-capacity"]
        assert not (folder / "capacity.json").exists()


@pytest.mark.parametrize(
    ("goal", "text"),
    [
        (Goal(raw=0.05), "5.7 % of the raw capacity was used at its end; raw: 5%"),
        (Goal(max_avail=0.01), "2.1 % of MAX AVAIL of data was written at its end; max_avail: 1%"),
        (Goal(objects=5), ""),
    ],
)
def test_a_fill_by_share_says_how_far_it_came(goal: Goal, text: str, tmp_path: Path) -> None:
    class Full:
        def ask(self, questions: Sequence[str], timeout: float) -> List[Any]:
            reply = df(21 * 10**6)
            reply["stats"]["total_used_raw_ratio"] = 0.057
            return [reply, {"nodes": []}]

    space = PoolSpace("data", 10**7, 3 * 10**7, 520 * 10**6, 1)
    stats = SimpleNamespace(placement="fast")
    ceph = SimpleNamespace(pools=lambda: {"data": space}, bucket=lambda _: stats, data_pool=lambda _: "data")
    outcome = PhaseOutcome(1, Phase("fill", "fill", goal=goal))
    plan = Plan("warp", S3(urls=("http://a",)), (Bucket("b", ()),), (), ())
    reached = reaching(context(plan=plan, ceph=ceph), goal, outcome.extra)
    assert reached is None or not reached(cast(Any, SimpleNamespace(latest=None)))
    outcome.note_capacity(cast(Any, Full()), tmp_path)
    assert outcome.warnings == ([{"code": "fill-share", "text": text}] if text else [])
    assert severity_of("fill-share") is Severity.INFO
    assert share_text(goal, {}, {}) == ""
