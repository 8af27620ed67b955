"""Conditions of a cluster under which a measurement is not what it seems: before a run, in its phases, in results."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Mapping, Sequence

import archive_builder as made
import pytest
from archive_builder import Load, archive
from faults_world import Connections
from run_context import context

from cbt_plugins.cluster.ceph import Status
from cbt_plugins.cluster.state_sampler_agent import DaemonChanges
from cbt_plugins.cluster_conditions import CLEAN, NAMES, condition_spans, found_in, of_own_faults
from cbt_plugins.compare.sides import sides
from cbt_plugins.compare.statistics.verdicts import Verdict
from cbt_plugins.compare.table import compare
from cbt_plugins.plan import S3, Goal, Phase, Plan, Settings
from cbt_plugins.polling import Clock
from cbt_plugins.results.archive import read_run
from cbt_plugins.results.recovery.cluster_samples import status_by_phase
from cbt_plugins.results.summary_file import summarize
from cbt_plugins.run import cluster_fitness, preflight
from cbt_plugins.warning_kinds import KINDS

DATA = Path(__file__).parents[1] / "data" / "ceph"
MOVING = {"pgs": {"active+clean": 20, "active+remapped+backfilling": 11}}
CLEAN_PGS = {"pgs": {"active+clean": 31}}


def load(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text())


def found(status: Mapping[str, Any]) -> Dict[str, str]:
    return found_in(Status.parse(status).sample(0.0))


def test_nodes_of_monitors_with_agents_need_python() -> None:
    cluster = {"head": "h", "clients": ["c"], "osds": ["o1", "o2"], "rgws": ["r"], "mons": ["m"]}
    host: Any = SimpleNamespace(cluster=cluster, common={}, profiles={})
    plan = SimpleNamespace(drivers=[SimpleNamespace(node="c")])
    run = context(cbt_run=host, plan=plan, ceph=SimpleNamespace(head="h"))
    versions = {"h": "3.6.8", "c": "3.13.1", "o1": "", "o2": "3.5.2", "r": "", "m": ""}
    facts = {node: {"python": version} for node, version in versions.items()}
    assert preflight.python_errors(run, facts) == []
    host.profiles = {"resources": {"nodes": ["osds"]}, "perf_counters": None, "collectl": {}}
    assert preflight.python_errors(run, facts) == [
        "o1: python3 is not installed, but resources, perf_counters need 3.6 or newer on this node",
        "o2: python3 is 3.5.2, but resources, perf_counters need 3.6 or newer on this node",
        "r: python3 is not installed, but perf_counters needs 3.6 or newer on this node",
    ]
    facts["c"]["python"] = ""
    host.profiles = {}
    error = "c: python3 is not installed, but the run needs 3.6 or newer on this node"
    assert preflight.python_errors(run, facts) == [error]


@pytest.mark.parametrize("release", ["pacific", "reef", "tentacle"])
def test_a_healthy_cluster_of_every_release_has_none(release: str) -> None:
    assert found(load(f"{release}-status")) == {}


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        *((f"{release}-slow-ops", {"slow-ops"}) for release in ("pacific", "reef", "tentacle")),
        *((f"{release}-osd-down", {"not-clean", "daemon-down"}) for release in ("pacific", "reef", "tentacle")),
        ("tentacle-scrubbing", {"scrubbing"}),
        ("pacific-near-full", {"near-full"}),
        ("pacific-recovering", {"not-clean", "recovering", "daemon-down"}),
    ],
)
def test_what_real_clusters_say(name: str, wanted: set) -> None:
    assert set(found(load(f"{name}-status"))) == wanted


@pytest.mark.parametrize("release", ["pacific", "reef", "tentacle"])
def test_osds_that_are_down_and_out_are_down(release: str) -> None:
    """Ceph says HEALTH_OK. Where it says OSD_DOWN, muted or not, its word counts."""
    status = load(f"{release}-status")
    osdmap = status["osdmap"].get("osdmap", status["osdmap"])
    osdmap.update(num_up_osds=osdmap["num_osds"] - 2, num_in_osds=osdmap["num_osds"] - 2)
    assert found(status) == {"daemon-down": f"2 of {osdmap['num_osds']} OSDs are down and out"}
    summary = {"message": "2 osds down", "count": 2}
    status["health"]["checks"]["OSD_DOWN"] = {"severity": "HEALTH_WARN", "summary": summary, "muted": True}
    assert found(status) == {}


def test_a_muted_check_and_an_error_of_no_other_kind() -> None:
    status = load("pacific-slow-ops-status")
    status["health"]["checks"]["SLOW_OPS"]["muted"] = True
    assert found(status) == {}
    summary = {"message": "1 pgs inconsistent", "count": 1}
    status["health"]["checks"]["PG_DAMAGED"] = {"severity": "HEALTH_ERR", "summary": summary, "muted": False}
    status["health"]["checks"]["OSDMAP_FLAGS"] = {"severity": "HEALTH_WARN", "summary": summary, "muted": False}
    assert found(status) == {"health-error": "PG_DAMAGED: 1 pgs inconsistent"}


@pytest.mark.parametrize("release", ["pacific", "reef"])
def test_a_restarted_gateway_is_another_instance(release: str) -> None:
    changes = DaemonChanges()
    before, after = load(f"{release}-rgw-before-status"), load(f"{release}-rgw-after-status")
    assert changes.follow(before) == [] == changes.follow(before)
    assert changes.follow(after) == ["rgw.rgw1 started"]
    gone = json.loads(json.dumps(after))
    daemons = gone["servicemap"]["services"]["rgw"]["daemons"]
    daemons.pop(next(key for key, its in daemons.items() if key != "summary" and its["metadata"]["id"] == "rgw2"))
    assert changes.follow(gone) == ["rgw.rgw2 ended"]
    assert changes.follow(after) == ["rgw.rgw2 started"]
    assert changes.follow({**after, "election_epoch": after["election_epoch"] + 2}) == ["mon election"]


def test_every_condition_is_a_kind_of_warning() -> None:
    assert set(NAMES) <= set(KINDS)
    assert {name for name in NAMES if not KINDS[name].forbids_verdict} == {"scrubbing", "slow-ops"}


def test_the_time_that_a_condition_covers() -> None:
    """A sample counts until the next one, and at most ten seconds; only the window counts."""
    states = [CLEAN_PGS, MOVING, {"pgs": {"peering": 2, "active+clean": 29}}, MOVING, CLEAN_PGS]
    samples = [{"t": 100.0 + 4 * i, **state} for i, state in enumerate(states)]
    by_name = {span.condition.name: span for span in condition_spans(samples, 106.0, 150.0)[0]}
    moving, peering = by_name["recovering"], by_name["not-clean"]
    assert (moving.first, moving.last, moving.seconds) == (106.0, 116.0, 6.0)
    assert (peering.first, peering.last, peering.seconds) == (108.0, 112.0, 4.0)
    assert peering.worst == "2 of 31 PGs: 2 peering"
    assert condition_spans(samples, 106.0, 150.0)[1] == 150.0 - 126.0


@pytest.mark.parametrize("kind", ["BLOCK", "DB", "WAL", ""])
def test_an_alert_that_stays_for_a_day_counts_when_it_is_new(kind: str) -> None:
    """The phase begins with the alert of an OSD, and another OSD has it in the third second."""
    code = f"{kind}_DEVICE_STALLED_READ_ALERT" if kind else "BLUESTORE_SLOW_OP_ALERT"
    texts = [f"{osds} OSD(s) experiencing it in BlueStore" for osds in (1, 1, 2, 1, 1)]
    samples: List[Dict[str, Any]] = [{"t": 100.0 + i, "says": {code: text}} for i, text in enumerate(texts)]
    samples[3] = {"t": 103.0}  # no reply
    (span,), _ = condition_spans(samples, 100.0, 110.0)
    assert (span.condition.name, span.first, span.worst) == ("slow-ops", 102.0, f"{code}: {texts[2]}")
    assert condition_spans(samples[:2], 100.0, 110.0)[0] == []
    (span,), _ = condition_spans([{"t": 100.0, "says": {}}, *samples[:2]][::2], 100.0, 110.0)
    assert (span.first, span.seconds) == (101.0, 9.0)
    assert found_in(samples[0]) == {}, "a run may begin on this cluster"


def test_what_the_faults_of_a_run_explain() -> None:
    def event(t: float, event: str, label: str = "a", **more: Any) -> Dict[str, Any]:
        return {"t": t, "event": event, "label": label, **more}

    settings = event(1, "fault-inject-begin", "settings", kind="settings")
    two = [settings, event(10, "fault-inject-begin", kind="stop"), event(20, "fault-inject-begin", "b", kind="stop")]
    assert of_own_faults([settings]) == []
    assert of_own_faults(two) == [(10.0, float("inf"))]
    one_left = [*two, event(30, "fault-undone"), event(40, CLEAN)]
    assert of_own_faults(one_left) == [(10.0, float("inf"))]
    over = [*one_left, event(50, "fault-undone", "b"), event(60, CLEAN)]
    assert of_own_faults(over) == [(10.0, 60.0)]
    assert of_own_faults([*over, event(70, "fault-inject-begin", kind="stop")])[1] == (70.0, float("inf"))


def hurt(tmp_path: Path, states: Mapping[str, Any], events: List[Dict[str, Any]], *accept: str) -> List[Dict[str, Any]]:
    """The warnings of a run of 40 s whose cluster was in a state for its second half."""
    run = made.run(tmp_path, phases=["new"])
    plan = json.loads((run / "plan.json").read_text())
    (run / "plan.json").write_text(json.dumps({**plan, "settings": {"accept": list(accept)}}))
    (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    get = made.steady("GET", workers=2, seconds=44, latency=0.01, begin=-2, size=4096)
    made.phase(run, 1, "new", [made.job("g", "GET", get)], window=(0, 40), states=lambda t: states if t >= 20 else {})
    # a fault that begins is looked for in samples of a recovery, which this run has not
    besides = ("few-samples", "no-recovery-samples", "not-watched", "closed-loop-failure")
    return [warning for warning in summarize(run)["warnings"] if warning["code"] not in besides]


def test_a_phase_on_a_cluster_that_moved_data_says_so(tmp_path: Path) -> None:
    (warning,) = hurt(tmp_path, MOVING, [])
    text = (
        "the cluster recovered or moved data for 20 of 40 s, from second 20 to 40 "
        "(11 of 31 PGs: 11 active+remapped+backfilling)"
    )
    assert warning == {"code": "recovering", "severity": "warning", "text": text, "phase": "new"}


def test_a_restarted_daemon_has_a_moment_and_no_span(tmp_path: Path) -> None:
    (warning,) = hurt(tmp_path, {"daemons": ["osd.3 up"]}, [])
    assert warning["text"] == f"a daemon ended or started from second 20 on ({', '.join(['osd.3 up'] * 10)})"


def test_what_own_faults_bring_with_them_is_no_warning(tmp_path: Path) -> None:
    fault = {"t": made.T0 + 15.0, "event": "fault-inject-begin", "label": "a", "kind": "stop"}
    scrubbed = {"pgs": {**MOVING["pgs"], "active+clean+scrubbing": 1}}
    assert [its["code"] for its in hurt(tmp_path / "a", scrubbed, [fault])] == ["scrubbing"]
    late = {**fault, "t": made.T0 + 30.0}
    assert [its["code"] for its in hurt(tmp_path / "b", MOVING, [late])] == ["recovering"]


def test_an_accepted_condition_forbids_nothing(tmp_path: Path) -> None:
    assert [its["code"] for its in hurt(tmp_path, MOVING, [], "recovering")] == ["accepted-condition"]


def test_a_state_that_is_not_known(tmp_path: Path) -> None:
    run = made.run(tmp_path, phases=["new"])
    get = made.steady("GET", workers=2, seconds=104, latency=0.1, begin=-2, size=4096)
    folder = made.phase(run, 1, "new", [made.job("g", "GET", get)], window=(0, 100))
    lines = (folder / "status.jsonl").read_text().splitlines(keepends=True)
    (folder / "status.jsonl").write_text("".join(lines[:10]))
    assert "the cluster's state is not known for 72 s of 100 s" in [w["text"] for w in summarize(run)["warnings"]]


def test_the_states_of_a_phase_are_in_the_samples_of_the_run(tmp_path: Path) -> None:
    """From its last begin to its end, on the run's clock; a file of its own is of an older archive."""
    run = made.run(tmp_path, phases=["new", "aged"])
    borders = [(0, "begin", "new"), (4, "begin", "new"), (11, "end", "new"), (13, "begin", "aged")]
    told = [{"t": made.T0 + t, "event": f"phase-{which}", "phase": phase} for t, which, phase in borders]
    (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in told))
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["clock_offsets"]["node0"]["seconds"] = 100.0
    (run / "manifest.json").write_text(json.dumps(manifest))
    get = made.steady("GET", workers=2, seconds=30, latency=0.1, begin=0, size=4096)
    for index, name, window in ((1, "new", (5, 10)), (2, "aged", (14, 24))):
        folder = made.phase(run, index, name, [made.job("g", "GET", get)], window=window)
        (folder / "status.jsonl").unlink()
    first = {"pgs": {"active+clean": 31}, "num_pgs": 31, "osds": 4, "down": [], "out": [], "degraded": [0, 9]}
    lines: List[Dict[str, Any]] = [{"t": made.T0 + 100.0 + t} for t in range(30)]
    lines[0].update(first)
    lines[6].update(MOVING, down=[3], map=[{"epoch": 2, "t": made.T0 + 105.5, "down": [3]}], daemons=["mon election"])
    (run / "monitors" / "recovery.node0").mkdir(parents=True)
    watched = run / "monitors" / "recovery.node0" / "recovery.jsonl"
    watched.write_text("".join(json.dumps(line) + "\n" for line in lines))
    status = status_by_phase(read_run(run))
    times = {name: [sample["t"] - made.T0 for sample in of] for name, of in status.items()}
    assert times == {"new": [*range(4, 11)], "aged": [*range(13, 24)], None: [0, 1, 2, 3, 11, 12, *range(24, 30)]}
    changed = {sample["t"] - made.T0: sample["daemons"] for sample in status["new"] if "daemons" in sample}
    assert changed == {6: ["osd.3 down", "mon election"]}
    assert [(its["clean"], its["osds_up"]) for its in status["new"][1:3]] == [(True, 4), (False, 3)]
    assert "recovering" in {warning["code"] for warning in summarize(run)["warnings"]}


def test_compare_forbids_a_verdict_on_rows_of_a_cluster_that_moved_data(tmp_path: Path) -> None:
    fast, slow = archive(tmp_path / "a", runs=4), archive(tmp_path / "b", Load(latency={"GET": 0.03}), runs=4, seed=2)

    def verdicts() -> List[Verdict]:
        made = compare(*sides([[fast]]), sides([[slow]]))
        return [row.verdict for row in made.rows if row.op == "GET" and row.metric == "obj_per_s"]

    assert verdicts() == [Verdict.WORSE]
    (status,) = slow.glob("results/00000002/*/phases/*/status.jsonl")
    lines = [json.loads(line) for line in status.read_text().splitlines()]
    status.write_text("".join(json.dumps({**line, **MOVING}) + "\n" for line in lines))
    assert verdicts() == [Verdict.INCONCLUSIVE]


# ---- before the run ----


@pytest.fixture(autouse=True)
def time_flies(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(cluster_fitness, "CLOCK", Clock(lambda: now[0], sleep))


class State(Connections):
    """A cluster with a state of its PGs, for so many looks; what preflight asks of it."""

    def __init__(self, looks: int = 1000, **pgs: int) -> None:
        super().__init__()
        self.looks, self.pgs = looks, {state.replace("_", "+"): n for state, n in pgs.items()}
        usual = self.world.ceph_status

        def status() -> Dict[str, Any]:
            self.looks -= 1
            found: Dict[str, Any] = usual()
            if self.looks >= 0 and self.pgs:
                found["pgmap"]["pgs_by_state"] = [{"state_name": s, "count": n} for s, n in self.pgs.items()]
            return found

        self.world.ceph_status = status

    def json_all(self, questions: Sequence[str]) -> List[Any]:
        return [json.loads(self.world.ceph(question.split())[0]) for question in questions]

    def status(self) -> Status:
        return Status.parse(*self.json_all(("status", "df")))


def refused(state: State, *phases: Phase, events: Any = (), begun: bool = False, **settings: Any) -> List[str]:
    plan = Plan("warp", S3(("http://rgw1:7480",)), (), (), phases, settings=Settings(**settings))
    log = SimpleNamespace(records=list(events))
    journal = SimpleNamespace(all=lambda _: [{}] if begun else [])
    return cluster_fitness.await_conditions(context(plan=plan, ceph=state, events=log, journal=journal))


def test_a_clean_cluster_is_taken() -> None:
    assert refused(State()) == []


def test_what_is_not_accepted_is_refused_with_what_to_do() -> None:
    scrubbed = {"active_clean": 30, "active_clean_scrubbing_deep": 2}
    (text,) = refused(State(**scrubbed))
    assert text == (
        "the cluster is not fit for a measurement: scrubbing: 2 of 32 PGs: 2 active+clean+scrubbing+deep: "
        "`settings: {scrub: off}` turns scrubbing off for the run, or `settings: {accept: [scrubbing]}`"
    )
    assert refused(State(**scrubbed), accept=("scrubbing",)) == []
    assert refused(State(**scrubbed), flags=("noscrub", "nodeep-scrub")) == []
    assert "not-clean" in refused(State(active_undersized=32), accept=("scrubbing",))[0]


def test_a_cluster_that_settles_in_time_is_taken() -> None:
    assert refused(State(looks=5, peering=4, active_clean=28)) == []
    assert refused(State(looks=100, peering=4, active_clean=28)) != []


def test_a_run_that_was_broken_off_may_find_what_its_own_faults_have_left() -> None:
    fault = {"t": 1.0, "event": "fault-inject-begin", "label": "a", "kind": "stop"}
    assert refused(State(active_undersized=32), events=[fault]) == []
    assert "scrubbing" in refused(State(active_clean_scrubbing=32), events=[fault])[0]


def test_near_full_is_what_the_osd_map_says() -> None:
    state = State()
    nodes = [{"id": n, "kb": 1000, "kb_used": 700 + 20 * n} for n in range(4)]
    state.world.ceph_osd_df = lambda: {"nodes": nodes, "stray": []}
    dump = state.world.ceph_osd_dump
    state.world.ceph_osd_dump = lambda: {**dump(), "nearfull_ratio": 0.75}
    (text,) = refused(state)
    assert "near-full: osd.3 is 76.0 % full, nearfull_ratio is 75 %" in text
    nodes[3]["kb_used"] = 700
    fill = Phase("fill", "fill", goal=Goal(raw=0.78))
    (text,) = refused(state, fill)
    assert "near-full: fill fills 78 % of the raw capacity, nearfull_ratio is 75 %" in text
    assert refused(state, fill, accept=("near-full",)) == []
    assert refused(state, fill, begun=True) == [], "the run itself may have filled it: its resume is not refused"
