"""The tables of failures of cbt-tools sql: losses, loss_endpoints and scorecard say what summary.json says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Mapping, Tuple

import pytest
import sql_archive

from cbt_plugins.results.summary_file import FILE, summarize, write_summary
from cbt_plugins.tools.__main__ import main

PERCENTILES = ("p50_ms", "p99_ms", "p999_ms")
WHY = "no CRUSH bucket of the type rack"


def _failure(name: str, label: str) -> Dict[str, Any]:
    inject = {"at": 5, "inject": {"label": label, "kind": "stop"}}
    return {"name": name, "failure": label.replace("node4", "node"), "events": [inject, {"at": 8, "undo": [label]}]}


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Tuple[Path, Dict[str, Any]]:
    """An archive with a scorecard: `hurt` measures `node down`, and `rack down` was refused; and its summary."""
    archive = tmp_path_factory.mktemp("failures")
    run = sql_archive.sql_run(archive)
    plan = json.loads((run / "plan.json").read_text())
    plan["phases"] = [{"name": "new"}, _failure("hurt", "node4 down"), _failure("refused", "rack down")]
    (run / "plan.json").write_text(json.dumps({**plan, "objective": {"GET/p99_ms": 50}}))
    with (run / "events.jsonl").open("a") as file:
        skipped = {"t": sql_archive.T0 + 300, "event": "fault-skipped", "label": "rack down", "kind": "stop"}
        file.write(json.dumps({**skipped, "why": f"rack down: {WHY}"}) + "\n")
    summary = summarize(run)
    write_summary(summary, run / FILE)
    return archive, dict(summary)


def rows(archive: Path, query: str, capsys: pytest.CaptureFixture[str]) -> List[Dict[str, Any]]:
    assert main(["sql", str(archive), query, "--format", "json"]) == 0
    answer: List[Dict[str, Any]] = json.loads(capsys.readouterr().out)
    return answer


def lines_of(losses: Mapping[str, Any]) -> List[Tuple[str, Mapping[str, Any]]]:
    return [*losses["ops"].items(), ("total", losses["total"])]


def numbers(losses: Mapping[str, Any], op: str, line: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the values of the columns that `losses` and `scorecard` share."""
    same = ("availability", "requests", "waited", "bad_seconds", *PERCENTILES, "p99_ratio", "obj_per_s")
    of_all = {"gateway_gap_s": losses["gateway_gap"], "back_s": losses["back"]["seconds"]}
    of_all["unstarted"] = losses["unstarted"]
    return {
        "began": losses["begin"],
        "seconds": losses["seconds"],
        "op": op,
        **{name: line[name] for name in same},
        "failed": line["errors"],
        "longest_gap_s": line["longest_gap"],
        "throughput_share": None if line["obj_per_s_percent"] is None else line["obj_per_s_percent"] / 100,
        **{name: value if op == "total" else None for name, value in of_all.items()},
    }


SAME = (
    f"epoch(began) AS began, seconds, op, availability, requests, waited, bad_seconds, {', '.join(PERCENTILES)}, "
    "p99_ratio, obj_per_s, failed, longest_gap_s, throughput_share, gateway_gap_s, back_s, unstarted"
)


def test_losses_of_each_failure_and_return(
    archived: Tuple[Path, Dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    archive, summary = archived
    impact = summary["failure"]["impact"]
    expected = [
        {
            "name": losses["name"],
            "kind": losses["kind"],
            "objective_ms": impact["objective"][op]["p99_ms"],
            "first_failed_s": (losses["failed_span"] or {}).get("first") if op == "total" else None,
            "last_failed_s": (losses["failed_span"] or {}).get("last") if op == "total" else None,
            **numbers(losses, op, line),
        }
        for losses in impact["episodes"]
        for op, line in lines_of(losses)
    ]
    query = f"SELECT name, kind, objective_ms, first_failed_s, last_failed_s, {SAME} FROM losses"
    assert rows(archive, query, capsys) == expected
    total = next(row for row in expected if row["op"] == "total")
    assert (total["first_failed_s"], total["failed"]) == (2.0, 1)
    assert total["availability"] == pytest.approx(0.997722, abs=5e-7)


def test_failures_of_attempts_that_were_broken_off_are_marked(
    archived: Tuple[Path, Dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = json.loads(json.dumps(archived[1]))
    failed, back = summary["failure"]["milestones"]["episodes"]
    failed["aborted"], back["again"] = "02-hurt.partial-1", 3.5
    write_summary(summary, sql_archive.sql_run(tmp_path) / FILE)
    found = rows(tmp_path, "SELECT DISTINCT kind, aborted, again FROM episodes ORDER BY kind", capsys)
    assert found == [
        {"kind": "failure", "aborted": "02-hurt.partial-1", "again": None},
        {"kind": "return", "aborted": None, "again": 3.5},
    ]
    results = "SELECT DISTINCT kind FROM episodes WHERE aborted IS NULL AND (kind = 'return' OR again IS NULL)"
    assert rows(tmp_path, results, capsys) == [{"kind": "return"}]


def test_endpoints_of_each_failure_and_return(
    archived: Tuple[Path, Dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    archive, summary = archived
    expected = [
        [losses["name"], losses["kind"], losses["begin"], load["endpoint"], load["per_s"], load["share"],
         load["base_per_s"], load["base_share"], gateway["longest_gap"]]
        for losses in summary["failure"]["impact"]["episodes"]
        for load, gateway in zip(losses["endpoints"], losses["gateways"])
    ]  # fmt: skip
    query = "SELECT name, kind, epoch(began) AS began, * EXCLUDE (run, name, kind, began) FROM loss_endpoints"
    assert [list(row.values()) for row in rows(archive, query, capsys)] == expected
    assert [row[3:6] for row in expected[:2]] == [
        ["http://rgw1:7480", 88.0, 0.60274],
        ["http://rgw2:7480", 58.0, 0.39726],
    ]


def test_endpoints_of_an_archive_that_has_only_their_gaps(
    archived: Tuple[Path, Dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Summaries before the keys `endpoints` and `failed_span`; one gateway was silent for 3 s."""
    _, summary = archived
    run = sql_archive.sql_run(tmp_path)
    (line, *_) = json.loads(json.dumps(summary["failure"]["impact"]["episodes"]))
    del line["endpoints"], line["failed_span"]
    line["gateways"][1]["longest_gap"] = 3.0
    impact = {**summary["failure"]["impact"], "episodes": [line]}
    write_summary({**summary, "failure": {**summary["failure"], "impact": impact}}, run / FILE)
    query = "SELECT endpoint, requests_per_s, base_share, longest_gap_s FROM loss_endpoints"
    nothing = {"requests_per_s": None, "base_share": None}
    assert rows(tmp_path, query, capsys) == [
        {"endpoint": "http://rgw1:7480", **nothing, "longest_gap_s": 0.0},
        {"endpoint": "http://rgw2:7480", **nothing, "longest_gap_s": 3.0},
    ]
    assert {row["first_failed_s"] for row in rows(tmp_path, "SELECT first_failed_s FROM losses", capsys)} == {None}


def test_scorecard_of_each_repetition_and_refusal(
    archived: Tuple[Path, Dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    archive, summary = archived
    node, rack = summary["scorecard"]["failures"]
    (score,) = node["scores"]
    about = {"name": "node down", "phase": "hurt", "refused": None}
    cluster = {name: score["cluster"][name] for name in ("recovery_s", "moved_mib")}
    expected = [{**about, **cluster, **numbers(score, op, line)} for op, line in lines_of(score)]
    refused = dict.fromkeys(expected[0], None)
    expected.append({**refused, "name": "rack down", "phase": "refused", "refused": WHY})
    query = f"SELECT name, phase, refused, recovery_s, moved_mib, {SAME} FROM scorecard"
    assert rows(archive, query, capsys) == expected
    assert rack["scores"] == [] and score["seconds"] == 5.0


def test_new_columns_do_not_move_older_ones(
    archived: Tuple[Path, Dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Readers of rows without names take columns by their places."""
    archive, _ = archived
    losses, scorecard = (list(rows(archive, f"SELECT * FROM {table}", capsys)[0]) for table in ("losses", "scorecard"))
    places = {name: losses.index(name) - losses.index("name") for name in ("requests", "bad_seconds", "back_s")}
    assert places == {"requests": 5, "bad_seconds": 6, "back_s": 19}
    first = scorecard.index("name")
    expected = ["name", "phase", "refused", "recovery_s", "moved_mib", "availability", "began"]
    assert scorecard[first : first + 7] == expected and scorecard[-1] == "back_s"
