"""The shipped JSON Schema and the reference page: up to date, valid, and of one mind with our own checks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Dict, Optional, Set, Tuple

import jsonschema
import pydantic
import pytest
import yaml

from cbt_plugins.benchmarks.hybrid_keys import HybridSection
from cbt_plugins.benchmarks.osdfailure import ClassicFaultsSection, NodesDownSection
from cbt_plugins.config import schema
from cbt_plugins.config.cluster import ClusterSection
from cbt_plugins.config.errors import ConfigError
from cbt_plugins.config.events import EventSection, FaultFileSection
from cbt_plugins.config.fault import FaultSection
from cbt_plugins.config.file_check import load_file
from cbt_plugins.config.generator_classes import generator
from cbt_plugins.config.plugins import BENCHMARKS, GENERATORS, built_in
from cbt_plugins.config.section_to_plan import our_sections
from cbt_plugins.config.settings import SettingsSection
from cbt_plugins.load.cbt_load import CbtLoadJobs

ROOT = Path(__file__).parents[2]
#: pydantic words a few things differently from release to release
CURRENT = tuple(int(part) for part in pydantic.VERSION.split(".")[:2]) >= (2, 10)


@pytest.fixture(scope="module")
def validator() -> Any:
    shipped = json.loads(schema.FILE.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(shipped)
    return jsonschema.Draft202012Validator(shipped)


@pytest.mark.skipif(not CURRENT, reason="the shipped files are made with a newer pydantic")
def test_the_shipped_schema_is_what_the_models_say() -> None:
    assert schema.FILE.read_text(encoding="utf-8") == schema.text(), (
        "run python -m cbt_plugins.config.schema --write"
    )


def test_the_schema_takes_the_generator_of_another_distribution(
    validator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shipped file is made where only ours are installed, and read where others may be; `plan` knows them."""
    package = tmp_path / "other-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Name: other\nVersion: 1\n", encoding="utf-8")
    (package / "entry_points.txt").write_text("[cbt_plugins.generators]\nelbencho = x:X\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    if CURRENT:
        assert schema.text() == schema.FILE.read_text(encoding="utf-8")
    data = quickstart()
    data["benchmarks"]["warp"] = {"s3": {"urls": ["http://a"], "user": "u"}, "cycle": CYCLE, "engine": "elbencho"}
    assert validator.is_valid(data)


@pytest.mark.skipif(not CURRENT, reason="the shipped files are made with a newer pydantic")
def test_the_reference_page_is_what_the_models_say() -> None:
    page = schema.PAGE.read_text(encoding="utf-8")
    assert page == schema.reference(), "run python -m cbt_plugins.config.schema --write"


def test_cbt_load_itself_has_the_same_defaults() -> None:
    assert schema.COMPANION.read_text(encoding="utf-8") == schema.go_defaults(), (
        "run python -m cbt_plugins.config.schema --write"
    )


def test_the_reference_has_every_key_with_its_meaning() -> None:
    tables = schema.tables()
    models = list(our_sections(BENCHMARKS).values())
    parts = [EventSection, FaultSection, SettingsSection, NodesDownSection, ClassicFaultsSection, FaultFileSection]
    for model in [*models, ClusterSection, *parts]:
        for key, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{key} has no description"
            bold = "**" if field.is_required() else ""
            assert f"| {bold}`{field.alias or key}`{bold} |" in tables
    assert "|  |  |" not in tables


def engines_that_take(key: str) -> Set[str]:
    """Return the engines whose classes declare the ability that a key needs; set() for a key of every engine."""
    engines = set()
    for engine in built_in(GENERATORS):
        of = generator(engine)
        of_key = {"workers": of.worker_groups, "across_buckets": of.across, "user": "users" in of.features}
        if of_key.get(key, key in (*of.known_keys, *of.ops, *of.features)):
            engines.add(engine)
    return engines


def test_a_description_names_the_engines_whose_classes_take_the_key() -> None:
    """The words before the first full stop name conditions: engines, or another key such as `across_buckets`."""
    named = {}
    models = schema.build()["$defs"]
    for model, text in models.items():
        for key, node in text.get("properties", {}).items():
            conditions = set(node.get("description", "").partition(". ")[0].split(", "))
            engines = conditions & set(built_in(GENERATORS))
            if engines or (model == HybridSection.__name__ and key in CbtLoadJobs.known_keys):
                named[f"{model}.{key}"] = (engines, engines_that_take(key))
    assert len(named) > 10
    assert {key: engines for key, engines in named.items() if engines[0] != engines[1]} == {}


def test_the_reference_says_each_row_once_and_links_to_it_elsewhere() -> None:
    lines = schema.tables().splitlines()
    rows = [line for line in lines if line.startswith("| `")]
    assert len(set(rows)) == len(rows)
    headings = {re.sub(r"[^\w -]", "", line[3:].lower()).replace(" ", "-") for line in lines if line.startswith("## ")}
    linked = {anchor for line in lines for anchor in re.findall(r"\]\(#([^)]+)\)", line)}
    assert linked and linked <= headings


@pytest.mark.parametrize(
    "path", sorted((ROOT / "benchmark_configs").glob("*.yaml")), ids=lambda path: path.name
)
def test_shipped_files_satisfy_the_schema(validator: Any, path: Path) -> None:
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    chosen = validator if "benchmarks" in data else of_fault_files(validator)
    assert [error.message for error in chosen.iter_errors(data)] == []


def of_fault_files(validator: Any) -> Any:
    return validator.evolve(schema={"$defs": validator.schema["$defs"], "$ref": "#/$defs/FaultFileSection"})


def quickstart() -> Dict[str, Any]:
    data: Dict[str, Any] = yaml.safe_load(
        (ROOT / "benchmark_configs" / "quickstart.yaml").read_text(encoding="utf-8")
    )
    return data


FILL = {"fill": {"objects": 5, "engine": "cbt-load"}}
CYCLE = {"phases": [{"fill": {"objects": 5}}, {"hybrid": {"duration": "60s"}, "name": "x"}]}


STOP = {"label": "x", "kind": "stop"}
ROLLING = {"at": "5s", "lasts": "5s", "rolling": {"over": "osd_nodes", "wait": "clean"}, "fault": STOP}


def with_event(event: Dict[str, Any]) -> Dict[str, Any]:
    return {"hybrid": {"duration": "60s", "events": [event]}}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("benchmarks", "rgwtest", "wrokers"), 8),
        (("benchmarks", "rgwtest", "workers"), 0),
        (("benchmarks", "rgwtest", "workers"), None),
        (("benchmarks", "rgwtest", "workers"), []),
        (("benchmarks", "rgwtest", "objects"), {"sizes": ["4K"]}),
        (("benchmarks", "rgwtest", "objects"), {"set": "small", "sizes": ["4KiB"]}),
        (("benchmarks", "rgwtest", "fill"), {"duration": 60}),
        (("benchmarks", "rgwtest", "fill"), {"duration": "4h", "objects": 5}),
        (("benchmarks", "rgwtest", "full_guard"), 0.8),
        (("benchmarks", "rgwtest", "phases"), []),
        (("benchmarks", "rgwtest", "s3", "secret_key"), "literal"),
        (("benchmarks", "rgwtest", "s3", "urls"), ["rgw1:80"]),
        (("benchmarks", "rgwtest", "s3"), None),
        (("benchmarks", "warp", "size"), "4M"),
        (("benchmarks", "warp", "size"), {"4KiB": 50}),
        (("benchmarks", "warp", "buckets"), {"names": ["abc"]}),
        (("benchmarks", "warp", "size"), "4KiB-"),
        (("benchmarks", "warp", "size"), {"4KiB-8K": "100%"}),
        (("benchmarks", "warp", "cbt_load"), {"verfy": True}),
        (("benchmarks", "rgwtest", "cbt_load"), {"part_size": 5}),
        (("benchmarks", "rgwtest", "warp_mixed"), 600),
        (("benchmarks", "warp", "cycle"), {"phases": [FILL, {"verify": {"duration": "5s"}}]}),
        (("benchmarks", "warp", "cycle"), {"phases": [FILL, {"delete": {}, "verify": {}}]}),
        (("benchmarks", "warp", "cycle"), {"phases": [FILL, {"hybrid": {"duration": "5s", "rate": "5/week"}}]}),
        (("benchmarks", "warp", "cycle"), {"phases": [FILL, {"hybrid": {"duration": "5s", "arrivals": "odd"}}]}),
        (("benchmarks", "warp", "cycle"), {"phases": [FILL, {"hybrid": {"duration": "5s", "keys": {"get": "u(1)"}}}]}),
        (("benchmarks", "warp", "cycle"), {"phases": [FILL, {"hybrid": {"duration": "5s", "roles": {"get": [0]}}}]}),
        (("benchmarks", "warp", "cycle"), {"phases": []}),
        (("benchmarks", "warp", "cycle"), {"phases": [{"fill": {"objects": 5}, "wait": {"duration": "1s"}}]}),
        (("benchmarks", "warp", "cycle"), {"phases": [FILL, with_event({"at": "5s"})]}),
        (("benchmarks", "warp", "cycle"), {"phases": [FILL, with_event({"at": 5, "mark": "x"})]}),
        (("benchmarks", "warp", "cycle"), {"phases": [FILL, with_event({"at": "5s", "mark": "x", "undo": "y"})]}),
        (("benchmarks", "warp", "cycle"), {"phases": [FILL, with_event({"at": "5s", "undo": []})]}),
        (("benchmarks", "warp", "cycle"), {"phases": [FILL, with_event({"at": "5s", "fault": {"kind": "stop"}})]}),
        (("benchmarks", "warp", "cycle"), {"phases": [FILL, with_event({**ROLLING, "fault": {**STOP, "osds": [1]}})]}),
        (("benchmarks", "warp", "cycle"), {"phases": [FILL, with_event({**ROLLING, "rolling": {"over": "all"}})]}),
        (("benchmarks", "warp", "cycle"), {"phases": [FILL, with_event({"at": "5s", "fault": STOP})]}),
        (("benchmarks", "warp", "settings"), {"scrub": "maybe"}),
        (("benchmarks", "warp", "settings"), {"config": {"osd": {"a": []}}}),
        (("benchmarks", "rgwtest", "settings"), {"recovery": "fast"}),
        (("cluster", "use_existing"), False),
        (("cluster", "iterations"), 0),
        (("cluster", "iterations"), None),
        (("cluster", "clients"), "client1"),
        (("monitoring_profiles", "collectl"), None),
        (("monitoring_profiles", "recovery"), {"interval": "1s"}),
        (("monitoring_profiles", "recovery"), {"intervall": 1}),
        (("monitoring_profiles", "faults"), {}),
        (("monitoring_profiles", "faults"), {"file": ["x"]}),
        (("benchmarks", "warp", "cycle"), {"phases": [FILL, {"hybrid": {"duration": "5s", "events": {"path": "x"}}}]}),
    ],
)
def test_schema_and_check_refuse_the_same(
    validator: Any, tmp_path: Path, path: Tuple[str, ...], value: Optional[Any]
) -> None:
    data = quickstart()
    data["benchmarks"]["warp"] = {
        "s3": {"urls": ["http://a"], "user": "u"},
        "size": ["4KiB", "1MB"],
        "cycle": CYCLE,
    }
    assert validator.is_valid(data)
    inner = data
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    assert not validator.is_valid(data)
    file = tmp_path / "f.yaml"
    file.write_text(yaml.safe_dump(data), encoding="utf-8")
    with pytest.raises(ConfigError):
        load_file(file)


def test_the_schema_takes_what_cbt_load_takes(validator: Any, tmp_path: Path) -> None:
    phase = {
        "duration": "1h",
        "ramp": "10s",
        "warmup": "1m",
        "rate": "5M/day",
        "arrivals": "even",
        "mix": {"get": 50, "list": 10, "put": 10, "multipart": 10, "delete": 20},
        "keys": {"put": "s(N+1, 10N)", "delete": {"select": "u(1,2N)", "absent": True}, "get": "live"},
        "roles": {"get": [1, "4KiB-8KiB-2"]},
    }
    rates = [{"hybrid": {"duration": "1m", "rate": rate}} for rate in (5, 0.5, "50%", "5/s", "1.5k / min")]
    data = quickstart()
    data["benchmarks"]["warp"] = {
        "s3": {"urls": ["http://a"], "user": "u"},
        "engine": "cbt-load",
        "cbt_load": [{"compressible": "0%", "part_size": "8MiB"}, {}],
        "keep_rows": True,
        "size": ["4KiB-8KiB"],
        "buckets": 2,
        "across_buckets": True,
        "cycle": {"phases": [FILL, {"hybrid": {"duration": "1m"}}, *rates, {"hybrid": phase}, {"verify": {}}]},
    }
    assert [error.message for error in validator.iter_errors(data)] == []
    file = tmp_path / "f.yaml"
    file.write_text(yaml.safe_dump(data), encoding="utf-8")
    load_file(file)


def test_the_schema_takes_events_settings_and_osdfailure(validator: Any, tmp_path: Path) -> None:
    fault = {"label": "a", "kind": "network", "osd_nodes": 1, "options": {"method": "nft"}, "accept": ["clean"]}
    events = [{"at": "0s", "fault": fault}, {"at": "5s", "undo": ["a"]}, {"at": "5s", "mark": "x"}]
    rolling = {"phases": [FILL, {"wait": {"duration": "9m", "events": [ROLLING]}}]}
    file = tmp_path / "faults.yaml"
    file.write_text(yaml.safe_dump({"events": [{"at": "0s", "mark": "x"}]}))
    config = {"osd": {"a": 0.5, "b": True, "c": "x"}}
    settings = {"scrub": False, "balancer": "on", "config": config, "flags": ["noout"]}
    data = quickstart()
    data["benchmarks"] = {
        "warp": {
            "s3": {"urls": ["http://a"], "user": "u"},
            "settings": settings,
            "cycle": {
                "phases": [
                    FILL,
                    {"wait": {"duration": "9s", "events": events}},
                    {"wait": {"duration": "9s", "events": {"file": str(file)}}},
                ]
            },
        },
        "osdfailure": {
            "s3": {"urls": ["http://a"], "user": "u"},
            "down_nodes": [1, 2],
            "fault": {"nodes": ["node1", "node2"]},
            "wait": {"stalled": "1h"},
        },
    }
    data["benchmarks"]["warp"]["cycle"] = [data["benchmarks"]["warp"]["cycle"], rolling]
    data["monitoring_profiles"] = {"recovery": {"interval": 0.5, "librados": False}, "faults": {"file": str(file)}}
    assert [error.message for error in validator.iter_errors(data)] == []
    file = tmp_path / "f.yaml"
    del data["monitoring_profiles"]["faults"]  # which is for CBT's own benchmarks
    file.write_text(yaml.safe_dump(data), encoding="utf-8")
    load_file(file)
    assert of_fault_files(validator).is_valid({"events": events, "settings": settings})
    assert not of_fault_files(validator).is_valid({"settings": settings})


def test_other_sections_stay_open(validator: Any) -> None:
    data = quickstart()
    data["benchmarks"]["radosbench"] = {"anything": [1, 2]}
    data["benchmarks"]["rgwtest"].update({"acceptable": {"GET/p99_ms": "(less)"}, "log_lat": [True]})
    data["common"] = {"pdsh_cmd": "pdsh"}
    data["cluster"]["pool_profiles"] = {}
    assert validator.is_valid(data)


def test_every_default_may_be_written(validator: Any) -> None:
    """People copy a row of the reference page into their file."""
    refused = [
        f"{name}.{key}: {node['default']!r}"
        for name, model in validator.schema["$defs"].items()
        for key, node in model.get("properties", {}).items()
        if "default" in node
        and not validator.evolve(schema={"$defs": validator.schema["$defs"], **node}).is_valid(node["default"])
    ]
    assert not refused
