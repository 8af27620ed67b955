"""The built-in loop gives what a CBT tree gives: ids, directories, files, order and exit status."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Dict, List

import pytest
import yaml
from cbt_trees import ERAS

from .conftest import Cbt, Outcome

pytestmark = pytest.mark.upstream

CASES: Dict[str, Dict[str, Any]] = {
    "sweep": {"example": {"size": [4, 8], "workers": [1, 2, 3], "text": "ä", "share": 0.1, "none": None}},
    "nested": {"example": {"z": {"b": 1, "a": [1, {"y": 2, "x": [3]}]}, "a": {"9": "nine", "1": "one"}}},
    "list of mappings": {"example": {"cycle": [{"phases": [{"b": 1}, {"a": 2}]}, {"phases": []}]}},
    "acceptable": {"example": {"acceptable": {"bandwidth": "(greater)"}, "size": [4, 8], "empty": {}}},
    "strange scalars": {
        "example": {"yes": True, "octal": "010", "long": 12345678901234567890, "e": 1e-7, "l": [[1, 2]]}
    },
    "anchors": yaml.safe_load("example: {one: &x {k: [1, 2]}, two: *x}"),
}


def files(outcome: Outcome) -> Dict[str, str]:
    """Path -> content, of what CBT itself would write."""
    found = {}
    for path in sorted(outcome.archive.rglob("*.yaml")):
        text = path.read_text().replace(str(outcome.archive), "ARCHIVE")
        found[str(path.relative_to(outcome.archive))] = text
    return found


def order(outcome: Outcome) -> List[str]:
    return [
        line.split()[-1].split("results/")[1] for line in outcome.output.splitlines() if "results in" in line
    ]


# every case on one tree; on the others what tells one rule from another
@pytest.mark.parametrize(
    ("tree", "case"),
    [(era, case) for era in ERAS for case in CASES if era == "master" or case in ("sweep", "nested")],
    indirect=["tree"],
)
def test_ids_directories_and_files_are_those_of_the_tree(cbt: Cbt, tree: Path, case: str) -> None:
    config = cbt.config(CASES[case], use_existing=True, user="nobody")
    theirs, ours = cbt.cbt(tree, config, "theirs"), cbt.loop(config, "ours")
    assert theirs.status == ours.status == 0, theirs.output + ours.output
    assert files(ours) == files(theirs)
    assert order(ours) == order(theirs)
    assert len(order(ours)) == len(ours.runs())


def test_an_archive_can_change_hosts(cbt: Cbt, tree: Path) -> None:
    config = cbt.config(CASES["sweep"])
    assert cbt.loop(config).status == 0
    outcome = cbt.cbt(tree, config)
    assert outcome.status == 0
    assert set(outcome.calls()) == {1}


def test_status_and_count_of_a_failing_run(cbt: Cbt) -> None:
    outcome = cbt.loop(cbt.config({"example": {"fail": [False, True], "size": [4, 8]}}, iterations=1))
    assert outcome.status == 1, outcome.output
    assert (
        "2 of 4 planned runs executed, 1 failed, 1 not executed (nothing runs after a failure)"
        in outcome.output
    )
    assert "asked to fail" in outcome.output
    assert "Traceback" not in outcome.output


def test_runs_are_made_after_one_that_is_not_to_be_trusted(cbt: Cbt) -> None:
    """Nothing mends it: the same command does not run it again."""
    config = cbt.config({"example": {"degraded": [True, False]}}, iterations=2)
    for counts in ("2 of 4 planned runs executed, 2 failed", "0 of 4 planned runs executed, 2 skipped"):
        outcome = cbt.loop(config)
        assert outcome.status == 1, outcome.output
        assert counts in outcome.output and "not executed" not in outcome.output
        assert "not to be trusted: age" in outcome.output and "Traceback" not in outcome.output
        assert outcome.calls() == [1, 1, 1, 1]


def test_faults_of_the_file(cbt: Cbt) -> None:
    outcome = cbt.loop(cbt.config({"warp": {"s3": {"urls": ["http://192.0.2.5"]}, "sise": "4K"}}))
    assert outcome.status == 2
    assert "sise" in outcome.output
    assert not outcome.archive.exists()


def test_a_benchmark_of_cbts_own_needs_a_checkout(cbt: Cbt) -> None:
    outcome = cbt.loop(cbt.config({"fio": {"size": 4}, "example": {"size": 4}}))
    assert outcome.status == 2
    assert "benchmarks: fio" in outcome.output
    assert "CBT_HOME" in outcome.output
    assert str(cbt.tmp / "cache" / "cbt-plugins" / "cbt") in outcome.output
    assert not outcome.archive.exists()


def test_a_wrong_cbt_home_is_said(cbt: Cbt) -> None:
    cbt.environment["CBT_HOME"] = str(cbt.tmp)
    outcome = cbt.loop(cbt.config({"fio": {"size": 4}}))
    assert outcome.status == 2
    assert f"CBT_HOME={cbt.tmp} is not a CBT checkout" in outcome.output


@pytest.mark.parametrize("place", ["home", "cache"])
def test_a_checkout_runs_what_is_its_own(cbt: Cbt, tree: Path, place: str) -> None:
    if place == "home":
        cbt.environment["CBT_HOME"] = str(tree)
    else:
        shutil.copytree(tree, cbt.tmp / "cache" / "cbt-plugins" / "cbt")
    theirs = {"hsbench": {"size": ["4K", "8K"], "client_endpoints": "s3", "duration": 1}}
    ours = {"example": {"size": [4, 8]}} if place == "home" else {}
    outcome = cbt.loop(cbt.config({**theirs, **ours}))
    assert outcome.status == 0, outcome.output
    assert "hsbench: CBT's own; running" in outcome.output
    count = 4 * len({**theirs, **ours})
    assert f"{count} of {count} planned runs executed" in outcome.output


def test_ours_alone_need_no_checkout_even_where_one_is(cbt: Cbt, tree: Path) -> None:
    cbt.environment["CBT_HOME"] = str(tree)
    outcome = cbt.loop(cbt.config({"example": {"size": [4, 8]}}))
    assert outcome.status == 0, outcome.output
    assert "running" not in outcome.output
    assert outcome.summaries()[0]["checkout"] is None
