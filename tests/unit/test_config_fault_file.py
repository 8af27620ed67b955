"""A fault file: the same events and settings, for a benchmark that knows nothing of them."""

from __future__ import annotations

from pathlib import Path
from typing import Optional, Sequence

import pytest
from config_files import marked

from cbt_plugins.config.errors import ConfigError
from cbt_plugins.config.events import is_fault_file, load_fault_file
from cbt_plugins.config.file_check import load
from cbt_plugins.config.section_to_plan import plan_of
from cbt_plugins.config.yaml_source import YamlSource
from cbt_plugins.plan import Event, Fault, Settings

GOOD = """\
settings: {scrub: off, config: {mon: {mon_osd_down_out_interval: 60}}}
events:
  - {at: 0s, fault: {label: a, kind: stop, nodes: [node4]}}
  - {at: 1m, fault: {label: b, kind: out, osd_number: 1, accept: [clean]}}
  - {at: 1m, mark: both}
  - {at: 100d, undo: all}
"""


def test_events_and_settings(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(GOOD, encoding="utf-8")
    b = Fault("b", "out", choose=1, choose_of="osd", accept=("clean",))
    events = (
        Event(0.0, inject=Fault("a", "stop", ("node4",))),
        Event(60.0, inject=b),
        Event(60.0, mark="both"),
        Event(8640000.0, undo=("a", "b")),
    )
    settings = Settings(("noscrub", "nodeep-scrub"), (("mon", "mon_osd_down_out_interval", "60"),))
    assert load_fault_file(file) == (events, settings)
    assert load_fault_file(file, ["root@node4"]) == (events, settings)
    file.write_text("settings: {limits: {down: 2m}}\nevents: [{at: 0s, mark: x}]\n", encoding="utf-8")
    assert load_fault_file(file) == ((Event(0.0, mark="x"),), Settings(limits={"down": 120.0}))
    file.write_text("events: [{at: 0s, mark: x}]\n", encoding="utf-8")
    assert load_fault_file(file) == ((Event(0.0, mark="x"),), Settings())


@pytest.mark.parametrize(
    ("text", "osds", "message"),
    [
        (GOOD.replace("node4", "§node4"), ["node1"], "events[0].fault.nodes[0]: node4 is not among the cluster's osds"),
        (GOOD.replace("undo: all", "undo: §c"), None, "events[3].undo: no fault 'c' is in force then; in force are a,"),
        (GOOD.replace("100d", "§30s"), None, "events[3].at: 30s comes before 1m: events are in order of time"),
        (GOOD.replace("{scrub", "{flags: [noin], scrub").replace("0s, fault", "0s, §fault"), None, "events[0].fault:"),
        (GOOD.replace("settings:", "§setings:"), None, "setings: unknown key; did you mean 'settings'?"),
        (GOOD + "§settings: {}\n", None, "settings: duplicate key (first in line 1)"),
        ("§settings: {}\n", None, "events: this key is required"),
        ("events: §[]\n", None, "events: must not be empty"),
        ("§- 1\n", None, "must be a mapping (key: value), not a list"),
        ("events: §:\n  [\n", None, ""),
    ],
)
def test_errors_have_their_place(tmp_path: Path, text: str, osds: Optional[Sequence[str]], message: str) -> None:
    text, (place,) = marked(text)
    file = tmp_path / "f.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        load_fault_file(file, osds)
    first = str(refused.value).splitlines()[0].replace(f"{tmp_path}/", "")
    if message:
        assert first.startswith(place + message), first
    else:
        assert first.startswith("f.yaml:1:") and "not YAML" in first


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_fault_file("/nowhere/f.yaml")


def test_all_runs_have_the_file_that_was_checked(tmp_path: Path) -> None:
    faults = tmp_path / "faults.yaml"
    faults.write_text("events: [{at: 1s, fault: {label: a, kind: stop, osds: [0]}}, {at: 2s, undo: a}]\n")
    hybrid = f"{{hybrid: {{duration: 1m, events: {{file: {faults}}}}}}}"
    text = f"""\
cluster: {{user: root, head: m, clients: [c1], osds: [o], mons: [m], iterations: 3}}
benchmarks: {{warp: {{s3: {{urls: ['http://r'], user: u}}, cycle: {{phases: [{{fill: {{objects: 9}}}}, {hybrid}]}}}}}}
"""
    config = load(YamlSource(text.encode(), "f.yaml"))
    (checked, *_) = config.runs
    faults.write_text(faults.read_text().replace("[0]", "[0, 1, 2]"))
    assert plan_of("warp", checked.config, config.cluster, None) == checked.plan
    again = load(YamlSource(text.encode(), "f.yaml")).runs[0].plan
    assert again != checked.plan
    faults.unlink()
    assert plan_of("warp", checked.config, config.cluster, None) == again
    with pytest.raises(ConfigError, match="cannot be read"):
        load(YamlSource(text.encode(), "f.yaml"))


def test_which_files_are_meant() -> None:
    assert is_fault_file(YamlSource(GOOD.encode(), "f"))
    assert not is_fault_file(YamlSource(b"benchmarks: {}\nevents: []\n", "f"))
    assert not is_fault_file(YamlSource(b"cluster: {}\n", "f"))
    assert not is_fault_file(YamlSource(b"", "f"))
