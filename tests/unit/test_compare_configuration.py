"""Every field of a plan that matters is a key of the configuration; what does not matter is listed, with the reason."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Dict, Iterator, Tuple

import archive_builder
import pytest
from archive_builder import Load

from cbt_plugins import plan
from cbt_plugins.compare.configuration_differences import is_essential
from cbt_plugins.plan import Bucket, Driver, Event, Fault, Keys, NodeCommand, Phase, RunPool, Upgrade, WarpOp, Work
from cbt_plugins.results.configuration import configuration
from cbt_plugins.results.summary_file import summarize

STOP = Fault("a", "network", ("node4", "node5"), options={"deadline": 60.0})
EVENTS = (
    Event(1.0, inject=STOP),
    Event(2.0, run=NodeCommand("b", "fstrim /", undo="true")),
    Event(3.0, upgrade=Upgrade("c", "18.2.7", image="quay.io/ceph/ceph:v18.2.7")),
    Event(4.0, inject=Fault("d", "out", choose=1, choose_of="osd")),
    Event(5.0, undo=("a",)),
)
MEASURE = Phase(
    *("measure", "hybrid", "measure", 30.0),
    workers={"GET": 2, "PUT": 2},
    goal=plan.Goal(duration=60.0),
    warp=WarpOp("get"),
    keys={"GET": Keys("live")},
    roles={"GET": ("4KiB",)},
    works=(Work("readers", 4, {"GET": 100.0}, 50.0, keys={"GET": Keys("live")}, roles={"GET": ("4KiB",)}),),
    ladder=None,
    events=EVENTS,
)
PLAN = plan.Plan(
    "warp",
    plan.S3(("http://rgw1:7480",)),
    (Bucket("4KiB", ((4096, 4096, 1.0),)),),
    (Driver("01", "client1", ("4KiB",), 4),),
    (MEASURE, Phase("pause", "wait", duration=60.0)),
    pools=(RunPool("fast", ec=(4, 2)),),
    rgw=plan.Gateways({"data": "fast"}, placements={"other": {"data": "fast"}}),
)
LADDER = {"name": "x", "unit": "rate", "lowest": 1.0, "highest": 9.0, "steps": 4, "objective": {"GET/p99_ms": 50.0}}
IN, RUN, UPGRADE = (f"phases.0.events.{i}.{name}." for i, name in enumerate(("inject", "run", "upgrade")))
MEASURED = "phase.measure."

#: field -> where it is in plan.json, another value, and the key that is another then
KEYS: Dict[str, Tuple[str, Any, str]] = {
    "S3.urls": ("s3.urls", ["https://rgw1"], "load.s3.scheme"),
    "S3.host_select": ("s3.host_select", "one", "load.s3.host_select"),
    "S3.lookup": ("s3.lookup", "dns", "load.s3.lookup"),
    "S3.payload": ("s3.payload", "unsigned", "load.s3.payload"),
    "S3.sse": ("s3.sse", "kms:my-key", "load.s3.sse"),
    "Bucket.existing": ("buckets.0.existing", True, "objects.existing"),
    "Bucket.objects": ("buckets.0.objects", 1000, "objects.written"),
    "Bucket.user": ("buckets", [{"user": "a"}, {"user": "b"}], "objects.users"),
    "Driver.buckets": ("drivers.0.buckets", ["a", "b"], "load.buckets_of_driver"),
    "Goal.duration": ("phases.0.goal.duration", 61.0, MEASURED + "goal"),
    "Goal.objects": ("phases.0.goal.objects", 1, MEASURED + "goal"),
    "Goal.max_avail": ("phases.0.goal.max_avail", 0.5, MEASURED + "goal"),
    "Goal.raw": ("phases.0.goal.raw", 0.5, MEASURED + "goal"),
    "WarpOp.op": ("phases.0.warp.op", "put", MEASURED + "warp"),
    "WarpOp.objects": ("phases.0.warp.objects", 9, MEASURED + "warp"),
    "WarpOp.args": ("phases.0.warp.args", {"range": "true"}, MEASURED + "warp"),
    "Keys.select": ("phases.0.keys.GET.select", "new", MEASURED + "keys"),
    "Keys.absent": ("phases.0.works.0.keys.GET.absent", True, MEASURED + "keys"),
    "Work.name": ("phases.0.works.0.name", "others", MEASURED + "works"),
    "Work.workers": ("phases.0.works.0.workers", 5, MEASURED + "works"),
    "Work.rate": ("phases.0.works.0.rate", 51.0, MEASURED + "works"),
    "Work.arrivals": ("phases.0.works.0.arrivals", "even", MEASURED + "works"),
    "Work.keys": ("phases.0.works.0.keys", {}, MEASURED + "keys"),
    "Work.roles": ("phases.0.works.0.roles", {}, MEASURED + "buckets"),
    "Fault.kind": (IN + "kind", "reboot", MEASURED + "events"),
    "Fault.targets": (IN + "targets", ["osd.4", "osd.5"], MEASURED + "events"),
    "Fault.choose": ("phases.0.events.3.inject.choose", 2, MEASURED + "events"),
    "Fault.choose_of": ("phases.0.events.3.inject.choose_of", "rgw", MEASURED + "events"),
    "Fault.options": (IN + "options", {"deadline": 61.0}, MEASURED + "events"),
    "NodeCommand.command": (RUN + "command", "fstrim /var", MEASURED + "events"),
    "NodeCommand.undo": (RUN + "undo", "false", MEASURED + "events"),
    "Upgrade.to": (UPGRADE + "to", "19.2", "upgrade.measure"),
    "Upgrade.command": ("phases.0.events.2.upgrade", {"to": "18.2.7", "command": "apt"}, "upgrade.measure"),
    "Upgrade.image": (UPGRADE + "image", "quay.io/ceph/ceph:v18.2.8", "upgrade.measure"),
    "Event.at": ("phases.0.events.0.at", 9.0, MEASURED + "events"),
    "Event.inject": ("phases.0.events.0.inject", None, MEASURED + "events"),
    "Event.after_clean": ("phases.0.events.0.after_clean", True, MEASURED + "events"),
    "Event.optional": ("phases.0.events.0.optional", True, MEASURED + "events"),
    "Event.run": ("phases.0.events.1.run", None, MEASURED + "events"),
    "Event.upgrade": ("phases.0.events.2.upgrade", None, MEASURED + "events"),
    "Event.undo": ("phases.0.events.4.undo", ["a", "b"], MEASURED + "events"),
    "Settings.flags": ("settings.flags", ["noscrub"], "settings.flags"),
    "Settings.config": ("settings.config", [["osd", "osd_op_queue", "wpq"]], "settings.osd.osd_op_queue"),
    "Settings.balancer": ("settings.balancer", False, "settings.balancer"),
    "Settings.autoscaler": ("settings.autoscaler", True, "settings.autoscaler"),
    "Settings.recovery": ("settings.recovery", "aggressive", "settings.recovery"),
    "Settings.accept": ("settings.accept", ["scrubbing"], "settings.accept"),
    "Ladder.unit": ("phases.0.ladder", {**LADDER, "unit": "workers"}, MEASURED + "ladder"),
    "Ladder.lowest": ("phases.0.ladder", {**LADDER, "lowest": 2.0}, MEASURED + "ladder"),
    "Ladder.highest": ("phases.0.ladder", {**LADDER, "highest": 8.0}, MEASURED + "ladder"),
    "Ladder.steps": ("phases.0.ladder", {**LADDER, "steps": 5}, MEASURED + "steps"),
    "Ladder.objective": ("phases.0.ladder", {**LADDER, "objective": {"GET/p99_ms": 51.0}}, MEASURED + "ladder"),
    "RunPool.profile": ("pools.0.profile", [["technique", "cauchy_good"]], "pool.data.profile"),
    "Gateways.placement": ("rgw.placement", {}, "rgw.placement"),
    "Gateways.index_shards": ("rgw.index_shards", 11, "rgw.index_shards"),
    "Gateways.threads": ("rgw.threads", 512, "rgw.threads"),
    "Gateways.placements": ("rgw.placements", {}, "rgw.placement_of_others"),
    "Phase.name": ("phases.1.name", "other", "phases"),
    "Phase.duration": ("phases.1.duration", 61.0, "phase.pause.seconds"),
    "Phase.goal": ("phases.0.goal", None, MEASURED + "goal"),
    "Phase.workers": ("phases.0.workers", None, MEASURED + "workers_by_op"),
    "Phase.rate_share": ("phases.0.rate_share", 0.5, MEASURED + "rate_share"),
    "Phase.ladder": ("phases.0.ladder", LADDER, MEASURED + "ladder"),
    "Phase.arrivals": ("phases.0.arrivals", "even", MEASURED + "arrivals"),
    "Phase.ramp": ("phases.0.ramp", 5.0, MEASURED + "ramp"),
    "Phase.warmup": ("phases.0.warmup", 5.0, MEASURED + "warmup"),
    "Phase.keys": ("phases.0.keys", {}, MEASURED + "keys"),
    "Phase.roles": ("phases.0.roles", {}, MEASURED + "buckets"),
    "Phase.works": ("phases.0.works", [], MEASURED + "works"),
    "Phase.warp": ("phases.0.warp", None, MEASURED + "warp"),
    "Phase.events": ("phases.1.events", [{"at": 1.0, "undo": ["a"]}], "phase.pause.events"),
    "Phase.wait_clean": ("phases.1.wait_clean", True, "phase.pause.wait"),
    "Phase.wait_gc": ("phases.1.wait_gc", True, "phase.pause.wait"),
    "Phase.drop_caches": ("phases.1.drop_caches", True, "phase.pause.wait"),
    **{
        f"CbtLoad.{name}": (f"cbt_load.{name}", 77, "seed" if name == "seed" else f"load.cbt_load.{name}")
        for name in (its.name for its in dataclasses.fields(plan.CbtLoad))
    },
    "Plan.buckets": ("buckets", [{}, {}], "objects.buckets"),
    "Plan.objective": ("objective", {"GET/p99_ms": 50.0}, "objective"),
    "Plan.phases": ("phases", [{"name": "measure"}], "phases"),
    "Plan.read_objects": ("read_objects", 10, "load.read_objects"),
    "Plan.versioned": ("versioned", True, "objects.versioned"),
    "Plan.settings": ("settings", None, "settings.flags"),
    "Plan.rgw": ("rgw", None, "rgw.placement"),
    "Plan.pools": ("pools", [], "pool.data.profile"),
    "Plan.cbt_load": ("cbt_load", {}, "load.cbt_load.deadline"),
    "Plan.s3": ("s3", None, "load.s3.payload"),
}
_SEEN = "by what the cluster says that the pools are: pool.*, pg.*"
#: field -> the key that is made of the summary
OF_SUMMARY = {
    **{"Plan.benchmark": "benchmark", "Plan.scale": "scale", "Plan.drivers": "load.drivers"},
    **{"Bucket.sizes": "objects.sizes", "Driver.workers": MEASURED + "workers", "Driver.node": "cluster.clients"},
    **{f"Phase.{name}": MEASURED + name for name in ("kind", "role", "engine")},
    **{"Phase.mix": MEASURED + "mix", "Work.mix": MEASURED + "mix", "Phase.rate": MEASURED + "rate"},
}
#: field -> why it says nothing
IRRELEVANT = {
    **dict.fromkeys(("S3.user", "S3.profile", "S3.region"), "who asks, and not what"),
    **{f"S3.{its}_source": "where a secret is" for its in ("access_key", "secret_key", "session_token")},
    **dict.fromkeys(("S3.verify_tls", "S3.ca_file"), "whose certificate is believed; the scheme is a key"),
    **dict.fromkeys(("Bucket.key", "Driver.id", "Ladder.name", "RunPool.key"), "a name, told where it is used"),
    "Phase.failure": "a name in the scorecard",
    **dict.fromkeys(("Fault.label", "NodeCommand.label", "Upgrade.label", "Event.mark"), "a name in reports"),
    **dict.fromkeys(("Fault.seed", "NodeCommand.node", "NodeCommand.root"), "where, of nodes that are alike"),
    **dict.fromkeys(("Fault.accept", "NodeCommand.timeout", "Upgrade.timeout", "Settings.limits"), "when to give up"),
    "Event.at_most": "when to give up, which fails the phase",
    "Fault.min_in": "when to skip a fault; what was skipped is an event",
    **dict.fromkeys(("Phase.at_most", "Phase.stalled", "Plan.full_guard"), "when to give up, which is a warning"),
    "Settings.deep_scrub": "after the last phase",
    **{f"RunPool.{its}": _SEEN for its in ("existing", "replicas", "ec", "rule", "root", "failure_domain")},
    **{f"RunPool.{its}": _SEEN for its in ("device_class", "pg_num", "target_ratio", "bulk", "options")},
    "RunPool.application": "a name for ceph df",
    "Gateways.make_user": "who asks, and not what",
    **dict.fromkeys(("Plan.keep_data", "Plan.post_poll", "Plan.generator_ceiling"), "before or after all phases"),
    "Plan.warp_path": "its version is a key",
    "Plan.keep_rows": "aggregates are made of the rows in any case",
    "Plan.admin": "said by the warning no-admin",
}


def fields() -> Iterator[str]:
    for its in vars(plan).values():
        if dataclasses.is_dataclass(its) and isinstance(its, type):
            yield from (f"{its.__name__}.{one.name}" for one in dataclasses.fields(its))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("configuration")
    archive_builder.archive(folder, Load(seconds=2, mix={"GET": 50.0, "PUT": 50.0}), phases=("measure", "pause"))
    (found,) = folder.glob("results/*/*")
    return found


@pytest.fixture(scope="module")
def summary(run: Path) -> Dict[str, Any]:
    made = summarize(run)
    measure, pause = made["phases"]
    made["run"]["benchmark"], measure["rate"]["asked"] = "warp", 100.0
    measure.update(engine="warp", kind="hybrid")
    pause.update(kind="wait", drivers=[])
    return made


def configured(summary: Dict[str, Any], run: Path, data: Any) -> Dict[str, Any]:
    (run / "plan.json").write_text(json.dumps(data))
    return configuration(summary, run)


def planned(path: str = "", value: Any = None) -> Any:
    """Return plan.json, with another value at a place."""
    data = json.loads(json.dumps(dataclasses.asdict(PLAN)))
    data["phases"][1]["engine"] = "cbt-load"  # so that the section of cbt-load counts
    *way, last = path.split(".") if path else [""]
    place: Any = data
    for step in way:
        place = place[int(step) if step.isdigit() else step]
    if path:
        place[int(last) if last.isdigit() else last] = value
    return data


def test_every_field_of_a_plan_is_a_key_or_has_a_reason() -> None:
    known = [*KEYS, *OF_SUMMARY, *IRRELEVANT]
    assert sorted(known) == sorted(set(known))
    assert set(fields()) == set(known)


@pytest.mark.parametrize("name", KEYS)
def test_another_plan_has_another_configuration(summary: Dict[str, Any], run: Path, name: str) -> None:
    path, value, key = KEYS[name]
    base = planned()
    if name.startswith("Ladder."):
        base["phases"][0]["ladder"] = LADDER
    one, other = (configured(summary, run, data) for data in (base, planned(path, value)))
    assert one.get(key) != other.get(key)


def test_what_a_summary_says_is_a_key(summary: Dict[str, Any], run: Path) -> None:
    summary = {**summary, "environment": {**summary["environment"], "scale": 1.0}}
    assert set(OF_SUMMARY.values()) <= set(configured(summary, run, {**planned(), "phases": []}))


def test_what_refuses_a_comparison_and_what_is_listed(summary: Dict[str, Any], run: Path) -> None:
    """The load refuses it, also what is broken and when; what the cluster is set to is what one compares."""
    listed = {key for _, _, key in KEYS.values() if not is_essential(key)}
    assert {key.split(".")[0] for key in listed} == {"settings", "rgw", "upgrade", "seed"}
    config = configured(summary, run, planned())
    assert config["phase.measure.events"].split() == [
        "1s:network*2(deadline=60.0)",
        config["phase.measure.events"].split()[1],
        "3s:upgrade",
        "4s:out*1:osd",
        "5s:undo*1",
    ]
    assert config["objects.written"] == "by goal (1)" and config["load.s3.sse"] == "none"
    assert config["rgw.placement"] == "data:fast" and config["settings.balancer"] == "as it is"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (IN + "targets", ["node1", "node2.example.com"]),
        (IN + "options", {"deadline": 60.0, "password": "hunter2", "service_manager": "systemd"}),
        (IN + "label", "another"),
        (RUN + "node", "node3"),
        ("s3.secret_key_source", "env:OTHER"),
    ],
)
def test_names_and_secrets_make_no_difference(summary: Dict[str, Any], run: Path, path: str, value: Any) -> None:
    one, other = (configured(summary, run, data) for data in (planned(), planned(path, value)))
    assert one == other and "hunter2" not in json.dumps(other)


def test_names_in_the_options_of_a_fault_make_no_difference(summary: Dict[str, Any], run: Path) -> None:
    texts = []
    for name, off in (("node4", "ipmitool -H bmc-node4 off"), ("node7", "ipmitool -H bmc-node7 off"), ("node4", "x")):
        data = planned(IN + "targets", [name])
        data["phases"][0]["events"][0]["inject"]["options"] = {"off": off}
        texts.append(configured(summary, run, data)["phase.measure.events"])
    assert texts[0] == texts[1] != texts[2] and "node" not in texts[0]


def test_an_option_of_a_fault_that_says_the_default_makes_no_difference(summary: Dict[str, Any], run: Path) -> None:
    def text(kind: str, **options: Any) -> Any:
        data = planned(IN + "kind", kind)
        data["phases"][0]["events"][0]["inject"]["options"] = options
        return configured(summary, run, data)["phase.measure.events"].split()[0]

    written = {"method": "link", "deadline": 900.0, "ssh_port": None}
    assert text("network", interfaces=["eth0"], **written) == text("network", interfaces=["eth0"])
    assert text("network", interfaces=["eth0"], deadline=60.0) != text("network", interfaces=["eth0"])
    assert text("reboot", command="systemctl reboot") == text("reboot") != text("reboot", command="reboot -f")
    assert text("of-a-plug-in-that-is-gone", size=1) == "1s:of-a-plug-in-that-is-gone*2(size=1)"


def test_a_failure_whose_load_was_made_longer_is_comparable(summary: Dict[str, Any], run: Path) -> None:
    """The load begins earlier where a cluster takes long to check a fault; what it does to clients is the same."""
    longer = json.loads(json.dumps(summary))
    longer["phases"][0]["asked_seconds"] += 20
    before, after = (configured(made, run, planned("phases.0.failure", "node down")) for made in (summary, longer))
    assert before == after and before[MEASURED + "seconds"] == PLAN.phases[0].duration
    assert configured(longer, run, planned())[MEASURED + "seconds"] == longer["phases"][0]["asked_seconds"]


def test_an_older_plan_without_a_field_is_still_comparable(summary: Dict[str, Any], run: Path) -> None:
    """What a field is when it is not there: as it was before, or not known."""

    def without(data: Any, name: str) -> Any:
        if isinstance(data, list):
            return [without(its, name) for its in data]
        return {key: without(its, name) for key, its in data.items() if key != name} if isinstance(data, dict) else data

    whole = planned("phases.0.events", [])
    for its in (phase for phase in whole["phases"]):
        its.update(keys={}, roles={}, works=[], warp=None)
    now = configured(summary, run, whole)
    required = {"name", "kind", "benchmark", "phases", "s3", "buckets", "drivers", "key", "ec", "cbt_load", "settings"}
    for name in {its.split(".")[1] for its in fields()} - required:
        old = configured(summary, run, without(whole, name))
        apart = {key for key in set(old) & set(now) if old[key] != now[key] and is_essential(key)}
        assert not apart, (name, apart)
