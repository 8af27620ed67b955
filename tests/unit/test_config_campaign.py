"""`campaign:` in a CBT file: checked like every other section, and the files of its arms too."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

import pytest
import yaml
from config_files import CLUSTER, CYCLE, WARP, errors_in, marked

from cbt_plugins.config.campaign import ArmSection, file_of
from cbt_plugins.config.file_check import load_file
from cbt_plugins.config.key_errors import validate
from cbt_plugins.config.pull_request import PullRequestSection, campaign_of

BASE = CLUSTER + WARP + CYCLE + "    workers: 8\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("campaign: §5\n", "must be a mapping"),
        ("campaign:\n  arms: §{a: {}}\n", "must have at least 2 elements"),
        ("campaign:\n  arms: {a: {}, b: {}}\n  §marjin: 3%\n", "did you mean 'margin'?"),
        ("campaign:\n  arms: {a: {}, b: {}}\n  margin: §3\n", "write 3%"),
        ("campaign:\n  arms: {a: {}, b: {}}\n  alpha: §95%\n", "at most 20%: it is the chance of a false verdict"),
        ("campaign:\n  arms: {a: {}, b: {}}\n  margin: §60%\n", "must be at most 50%: it is what counts as no change"),
        ("campaign:\n  arms: {a: {}, §'b/c': {}}\n", "the name of an arm"),
        (f"campaign:\n  arms: {{a: {{}}, {'b' * 40}: {{}}, §{'c' * 41}: {{}}}}\n", "the name of an arm"),
        ("campaign:\n  arms: {old: {}, new: {}}\n  base: §odl\n", "no arm of this name: 'odl'; did you mean 'old'?"),
        ("campaign:\n  arms: {a: {}, b: {}}\n  blocks: §3\n", "at least 4"),
        ("campaign:\n  arms: {a: {}, b: {§prepar: [x]}}\n", "did you mean 'prepare'?"),
        ("campaign:\n  arms: {a: {}, b: {}, c: {}}\n  code_or_defaults: §true\n", "needs two arms"),
        ("campaign:\n  arms:\n    a: {}\n    b: {benchmarks: {warp: {workers: §-1}}}\n", "of this arm: must be"),
        ("campaign:\n  arms:\n    a: {}\n    b: {benchmarks: {warp: {§wrkers: 9}}}\n", "mean 'workers'?"),
        ("campaign:\n  arms:\n    a: {}\n    b: §{cluster: {head: [x]}}\n", "one host name"),
        ("campaign:\n  arms: {a: {}, b: {}}\n  keys:\n    - total.obj_per_s\n    - §GET.p99ms\n", "mean 'p99_ms'?"),
        ("campaign:\n  arms: {a: {}, b: {}}\n  prepare:\n    - §curl -u me:pass http://x\n", "password in the text"),
        ("campaign:\n  arms:\n    a: {}\n    b: {restart: §ipmitool -P pass}\n", "password in the text"),
        ("campaign:\n  arms:\n    a: {}\n    b: {restart: §fence_drac5 -l me -p pass}\n", "password in the text"),
        ("campaign:\n  arms:\n    a: {}\n    b: {restart: §ipmi-power -p pass --off}\n", "password in the text"),
        ("campaign:\n  arms:\n    a: {}\n    b: {restart: §redfish --PASSWORD pass}\n", "password in the text"),
        ("§campain:\n  arms: {a: {}, b: {}}\n", "did you mean 'campaign'?"),
    ],
)  # fmt: skip
def test_an_error_is_at_its_place(tmp_path: Path, text: str, said: str) -> None:
    plain, places = marked(BASE + text)
    found = errors_in(tmp_path, plain)
    assert len(found) == 1 and said in found[0], found
    # the value of a mapping's key is found by its key's line at least
    assert found[0].split(":")[1] == places[0].split(":")[1], found


@pytest.mark.parametrize(
    "command",
    ["mkdir -p build", "cp -p a b", "patch -p1 < x", "ssh -p 22 bmc off", "ipmitool -p 623 -P $BMC off; mkdir -p x"],
)
def test_a_path_or_a_port_is_no_password(tmp_path: Path, command: str) -> None:
    text = f"{BASE}campaign:\n  arms: {{a: {{}}, b: {{}}}}\n  prepare:\n    - '{command}'\n"
    assert errors_in(tmp_path, text) == []


def test_defaults_are_swapped_only_where_they_can_be_set(tmp_path: Path) -> None:
    """A benchmark of CBT has no `settings:`: its arms would be equal."""
    swapped = "campaign:\n  arms: {a: {}, b: {}}\n  code_or_defaults: true\n"
    assert errors_in(tmp_path, BASE + swapped) == []
    (error,) = errors_in(tmp_path, CLUSTER + "benchmarks:\n  radosbench: {time: 10}\n" + swapped)
    assert "campaign.code_or_defaults: sets options by the settings of benchmarks of cbt-plugins: radosbench" in error


def test_the_file_without_its_campaign_is_the_same_run(tmp_path: Path) -> None:
    (tmp_path / "plain.yaml").write_text(BASE)
    (tmp_path / "both.yaml").write_text(BASE + "campaign: {arms: {a: {}, b: {}}}\n")
    plain, both = (load_file(tmp_path / name) for name in ("plain.yaml", "both.yaml"))
    assert plain.runs == both.runs and plain.campaign is None and both.campaign is not None
    assert both.campaign.first == "a"


def test_an_arm_changes_single_keys_and_whole_lists() -> None:
    data: Dict[str, Any] = yaml.safe_load(BASE + "campaign: {arms: {a: {}, b: {}}}\n")
    arm = ArmSection(cluster={"clients": ["client9"]}, benchmarks={"warp": {"s3": {"user": "other"}}})
    made = file_of(data, arm)
    assert made["cluster"] == {**data["cluster"], "clients": ["client9"]}
    assert made["benchmarks"]["warp"]["s3"] == {"urls": ["http://rgw1:7480"], "user": "other"}
    assert made["benchmarks"]["warp"]["workers"] == 8 and "campaign" not in made


@pytest.mark.parametrize(("limit", "margin"), [({}, None), ({"limit": "5%"}, "5%"), ({"limit": "2%"}, "2%")])
def test_a_pull_request_has_one_margin_for_all_metrics_only_if_it_says_so(limit: Dict[str, str], margin: Any) -> None:
    """Without a limit, 3 % of failed requests are no small change."""
    section, errors = validate(PullRequestSection, {"deploy": "true", **limit})
    assert section is not None and not errors
    assert campaign_of({}, section, 8)["campaign"].get("margin") == margin
