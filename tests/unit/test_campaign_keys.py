"""Warnings of the plan of a campaign: keys that no row has, and failures under a rate that is a percentage."""

from __future__ import annotations

import re
from pathlib import Path
from typing import List, Optional

import pytest
from config_files import CLUSTER, CYCLE, S3, WARP

from cbt_plugins.campaigns.key_warnings import key_warnings
from cbt_plugins.campaigns.output import plan_blocks, plan_data
from cbt_plugins.campaigns.schedule import Schedule, schedule_of
from cbt_plugins.config.file_check import load_file
from cbt_plugins.formatting.formats.terminal import Terminal

ROOT = Path(__file__).parents[2]

FAILURES = (
    f"{CLUSTER}benchmarks:\n  resilience:\n{S3}    failures: {{node down: {{kind: stop, osds: [1]}}}}\n    rate: RATE\n"
)
UNEQUAL = (
    "resilience.rate: 50% gives each cycle another load, and the keys are of failures: give a number of requests, such "
    "as 400/s"
)


def schedule(folder: Path, text: str, keys: Optional[List[str]]) -> Schedule:
    file = folder / "my.yaml"
    lines = "".join(f"    - '{key}'\n" for key in keys or ())
    file.write_text(f"{text}campaign:\n  arms: {{old: {{}}, new: {{}}}}\n" + (f"  keys:\n{lines}" if keys else ""))
    return schedule_of(load_file(file), folder / "campaign")


@pytest.mark.parametrize(
    ("rate", "keys", "warned"),
    [
        ("50%", ["node down.GET.bad_s"], True),
        ("50%", ["recovery_s"], True),
        ("50%", None, True),
        ("50%", ["no-failure.GET.p99_ms"], False),
        ("400/s", ["node down.GET.bad_s"], False),
    ],
)
def test_failures_need_a_rate_in_requests(tmp_path: Path, rate: str, keys: Optional[List[str]], warned: bool) -> None:
    planned = schedule(tmp_path, FAILURES.replace("RATE", rate), keys)
    assert key_warnings(planned) == ([UNEQUAL] if warned else [])
    assert plan_data(planned)["warnings"] == key_warnings(planned)
    assert (UNEQUAL[:50] in Terminal().text(plan_blocks(planned, {}))) == warned


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("nod down.GET.bad_s", "'nod down'; did you mean 'node down'?"),
        ("node-down.GET.bad_s", "'node-down'; did you mean 'node down'?"),
        ("rack*.GET.bad_s", "'rack*'; the plan has node down"),
        ("nofailure.GET.p99_ms", "'nofailure'; did you mean 'no-failure'?"),
        ("node*.GET.bad_s", ""),
        ("*.GET.bad_s", ""),
        ("GET.bad_s", ""),
        ("no-failure.GET.p99_ms", ""),
        ("node down.GET.p99_ms", ""),
        ("node-down.GET.p99_ms", ""),
    ],
)
def test_a_key_names_a_phase_or_a_failure(tmp_path: Path, key: str, hint: str) -> None:
    warnings = key_warnings(schedule(tmp_path, FAILURES.replace("RATE", "400/s"), [key]))
    assert warnings == ([f"keys: {key}: no phase or failure of the plan is named {hint}"] if hint else [])


@pytest.mark.parametrize(
    ("key", "warning"),
    [
        ("node down.recovery_s", "'node down' is no operation; write node down.cluster.recovery_s"),
        ("node down.gateway_gap_s", "'node down' is no operation; write node down.total.gateway_gap_s"),
        ("nodedwn.recovery_s", "'nodedwn' is no operation"),
        ("GTE.p99_ms", "'GTE' is no operation"),
        ("cluster.recovery_s", ""),
        ("G*.p99_ms", ""),
        ("reads:GET.p99_ms", ""),
        ("total.bad_s", ""),
        ("osd.cores", ""),
        ("*.p99_ms", ""),
    ],
)
def test_a_key_of_two_parts_names_an_operation(tmp_path: Path, key: str, warning: str) -> None:
    warnings = key_warnings(schedule(tmp_path, FAILURES.replace("RATE", "400/s"), [key]))
    assert warnings == ([f"keys: {key}: {warning}"] if warning else [])


def test_the_keys_of_the_documents_example_name_rows(tmp_path: Path) -> None:
    example = re.search(r"  keys: \[(node down\.GET.*)\]", (ROOT / "docs" / "CAMPAIGN.md").read_text())
    assert example
    assert key_warnings(schedule(tmp_path, FAILURES.replace("RATE", "400/s"), example[1].split(", "))) == []


def test_a_key_may_name_a_part_of_a_phase_or_the_failure_of_a_fault(tmp_path: Path) -> None:
    fault = "{at: 1m, fault: {label: kill, kind: stop, osds: [1]}}"
    text = f"{CLUSTER}{WARP}    engine: cbt-load\n{CYCLE.replace('60s', f'10m, events: [{fault}]')}"
    of_failure = ("kill failure.GET.bad_s", "k?ll failure.GET.bad_s", "*return.GET.bad_s")
    for key in (*of_failure, "hybrid part.GET.p99_ms", "fill.PUT.obj_per_s"):
        assert key_warnings(schedule(tmp_path, text, [key])) == []


@pytest.mark.parametrize(("key", "warned"), [("rates.total.highest_per_s", False), ("rats.total.highest_per_s", True)])
def test_a_key_may_name_a_ladder(tmp_path: Path, key: str, warned: bool) -> None:
    ladder = "{rate: {lowest: 50/s, highest: 5000/s}, objective: {p99_ms: 50}, mix: {get: 100}, duration: 1m}"
    phases = f"    cycle: {{phases: [{{fill: {{objects: 1000}}}}, {{ladder: {ladder}, name: rates}}]}}\n"
    text = f"{CLUSTER}{WARP}    engine: cbt-load\n{phases}"
    assert len(key_warnings(schedule(tmp_path, text, [key]))) == warned


@pytest.mark.parametrize("ours", ["benchmarks:\n", FAILURES.removeprefix(CLUSTER).replace("RATE", "400/s")])
def test_rows_of_other_benchmarks_have_names_that_no_plan_has(tmp_path: Path, ours: str) -> None:
    text = f"{CLUSTER}{ours}  radosbench: {{op_size: [4194304], time: 30, pool_profile: rados}}\n"
    assert key_warnings(schedule(tmp_path, text, ["write.write.obj_per_s"])) == []
