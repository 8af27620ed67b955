"""What cbt-load says about itself, and both engines beside each other."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any, Dict, List

import archive_builder as made
import pytest

from cbt_plugins.formatting import size_class
from cbt_plugins.journal import HEARTBEATS
from cbt_plugins.results.requests import over_time
from cbt_plugins.results.requests.time_series import TimeGrid
from cbt_plugins.results.run_record import result_warnings
from cbt_plugins.results.summary_file import dumps, summarize
from cbt_plugins.warning_kinds import KINDS

T0 = made.T0
ASKED = {"duration": 10.0, "mix": {"GET": 66.7, "PUT": 33.3}}


def load() -> List[str]:
    """Both operations of 4 workers for 14 s, of which 10 are measured: 200 GET/s and 100 PUT/s."""
    rows = made.steady("GET", workers=2, seconds=14, latency=0.01, begin=-2, size=4096, first=0.005)
    return rows + made.steady("PUT", workers=2, seconds=14, latency=0.02, begin=-2, size=4096)


def one(tmp_path: Path, job: Dict[str, Any], **more: Any) -> Dict[str, Any]:
    about = {"engine": "cbt-load", "asked": ASKED, "as_aggregates": True, **more}
    return made.summary_of_phase(tmp_path, [job], **about)


def warnings(summary: Dict[str, Any]) -> Dict[str, str]:
    return {warning["code"]: warning["text"] for warning in summary["warnings"]}


def test_a_good_run_has_no_warnings(tmp_path: Path) -> None:
    summary = one(tmp_path, made.cbt_load("h", load()))
    assert (summary["warnings"], summary["usable"]) == ([], True)
    phase = summary["phases"][0]
    assert phase["loop"] == "closed" and set(phase["rate"].values()) == {None}
    assert phase["mix"]["measured"] == {"GET": 66.667, "PUT": 33.333}
    assert (phase["littles_law"]["deviation"], phase["in_flight"]) == (0.0, {"start": 4, "end": 4})


def test_aggregates_and_rows_give_the_same_summary(tmp_path: Path) -> None:
    rows = load()
    rows += [made.row("PUT", 3 + i / 7, 0.3, error="http: 503 SlowDown", endpoint="http://x") for i in range(9)]
    rows.sort(key=lambda row: row.split("\t")[11])
    two = [one(tmp_path / str(way), made.cbt_load("h", rows, clock_offset=0.25), as_aggregates=way) for way in (0, 1)]
    assert dumps(two[0]) == dumps(two[1])
    assert two[0]["phases"][0]["ops"]["PUT"]["errors"] == 9


@pytest.mark.parametrize(
    ("end", "code", "text"),
    [
        ({"dry": {"DELETE": 7, "GET": 0}}, "ran-dry", "h: 7 DELETE were skipped because there was no object"),
        ({"checksum_errors": 2}, "checksum-errors", "2 objects read with other content than was written"),
        ({"spaces": [{"name": "4KiB", "unknown": 5}]}, "unknown-objects", "whether the cluster has 5 objects of 4KiB"),
        ({"spaces": [{"name": "4KiB", "lost": 2}]}, "lost-objects", "2 objects of 4KiB missing"),
    ],
)
def test_what_its_end_says(tmp_path: Path, end: Dict[str, Any], code: str, text: str) -> None:
    summary = one(tmp_path, made.cbt_load("h", load(), end=end))
    assert list(warnings(summary)) == [code]
    assert text in warnings(summary)[code]
    assert summary["usable"] == (code not in ("checksum-errors", "lost-objects"))


def test_the_drivers_warnings_are_known() -> None:
    source = Path(__file__).parents[2] / "tools/companion/internal/drive/events.go"
    codes = re.findall(r'warn\("([a-z-]+)"', source.read_text())
    assert codes
    assert set(codes) <= set(KINDS)


def test_wrong_data_that_only_the_rows_tell_of(tmp_path: Path) -> None:
    rows = [*load(), made.row("GET", 3, 0.1, error="checksum: 17 of 4096 bytes differ")]
    summary = one(tmp_path, made.cbt_load("h", rows))
    assert "1 object read with other content" in warnings(summary)["checksum-errors"]
    assert not summary["usable"]


def open_loop(
    tmp_path: Path, share: float, arrivals: str = "even", late: float = 0.0, ramp: float = 0.0
) -> Dict[str, Any]:
    """300/s asked; `share` of what that makes in 14 s is issued."""
    issued = {"GET": round(share * 2800), "PUT": round(share * 1400)}
    end = {"issued": issued, "latest_start": late, "ended": T0 + 12.0 + ramp / 2}
    job = made.cbt_load("h", load(), end=end, rate_limit=300.0, spec={"ramp": ramp})
    return one(tmp_path, job, asked={**ASKED, "rate": 300.0, "arrivals": arrivals})


def test_an_open_loop(tmp_path: Path) -> None:
    summary = open_loop(tmp_path, 1.0)
    assert summary["warnings"] == []
    phase = summary["phases"][0]
    assert phase["loop"] == "open"
    assert phase["rate"] == {"asked": 300.0, "issued": 300.0, "deviation": 0.0, "chance": 0.0, "unstarted": 0.0}
    assert phase["littles_law"]["jobs"][0]["paced"]
    (given,) = result_warnings(summary)  # a reader of the table sees `open`, a comparison has to be told
    assert (given.code, given.phase, given.op) == ("rate-given", phase["name"], None)
    assert "300 requests/s were asked for" in given.text


@pytest.mark.parametrize(
    ("share", "arrivals", "warned"),
    [
        (0.991, "even", False),
        (0.985, "even", True),
        (1.02, "even", True),
        (0.96, "poisson", False),
        (0.94, "poisson", True),
    ],
)
def test_the_rate_that_was_asked_for(tmp_path: Path, share: float, arrivals: str, warned: bool) -> None:
    # of 4200 requests that come by chance, three standard deviations are 4.6 %
    summary = open_loop(tmp_path, share, arrivals)
    assert ("rate" in warnings(summary)) == warned
    by_chance = 0.0 if arrivals == "even" else round((share * 4200) ** -0.5, 6)
    assert summary["phases"][0]["rate"]["chance"] == by_chance


def test_a_ramp_is_half_of_the_rate(tmp_path: Path) -> None:
    assert open_loop(tmp_path, 1.0, ramp=4.0)["phases"][0]["rate"]["issued"] == 300.0


def test_late_starts(tmp_path: Path) -> None:
    assert warnings(open_loop(tmp_path / "a", 1.0, late=0.9)) == {}
    assert "a request started 2.5 s late" in warnings(open_loop(tmp_path / "b", 1.0, late=2.5))["late-starts"]


def test_waiting_for_a_worker_is_no_fault_of_an_open_loop(tmp_path: Path) -> None:
    end = {"issued": {"GET": 4200}}
    assert one(tmp_path, made.cbt_load("h", load(), workers=1, rate_limit=300.0, end=end))["warnings"] == []


def test_the_mix_is_exact(tmp_path: Path) -> None:
    rows = [row for i in range(10) for row in load()]
    for share, expected in ((67.1, []), (67.4, ["mix"])):
        asked = {"duration": 10.0, "mix": {"GET": share, "PUT": 100 - share}}
        summary = one(tmp_path / str(share), made.cbt_load("h", rows, workers=40), asked=asked)
        assert list(warnings(summary)) == expected


def test_the_mix_is_that_of_all_requests_that_ended(tmp_path: Path) -> None:
    rows = [row.replace("\t\t2023", "\thttp: 500\t2023", 1) if "\tPUT\t" in row else row for row in load()]
    summary = one(tmp_path, made.cbt_load("h", rows))
    assert summary["phases"][0]["mix"]["measured"] == {"GET": 66.667, "PUT": 33.333}
    assert list(warnings(summary)) == ["errors", "no-samples"]


def test_requests_that_were_cut_off_are_no_failures(tmp_path: Path) -> None:
    rows = [*load(), *(made.row("GET", at, 0.5, error="cut: the run ended") for at in (9.5, 12.0, 12.0))]
    said = [{"code": "errors", "text": "h: 3 of 4203 requests failed", "job": "h"}]
    summary = one(tmp_path, made.cbt_load("h", rows), warnings=said)
    assert summary["warnings"] == []
    get = summary["phases"][0]["ops"]["GET"]
    assert (get["errors"], get["cut"], get["success_rate"], get["outside"]["cut"]) == (0, 3, 1.0, 2)
    assert sum(e["errors"] for e in summary["phases"][0]["endpoints"]) == 0


def test_objects_that_are_not_there(tmp_path: Path) -> None:
    for name, text in (("a", "http: 404 NoSuchKey"), ("b", "The specified key does not exist.")):
        rows = [*load(), *(made.row("GET", 3 + i, 0.1, error=text) for i in range(3))]
        summary = one(tmp_path / name, made.cbt_load("h", rows))
        assert warnings(summary)["missing-objects"] == "3 GET found no object where one was expected (404)"


def test_size_classes_of_a_driver(tmp_path: Path) -> None:
    rows = made.steady("GET", workers=2, seconds=14, latency=0.01, begin=-2, size=4096, first=0.005)
    rows += made.steady("GET", workers=2, seconds=14, latency=0.02, begin=-2, size=70_000, first=0.01)
    rows += [made.row("GET", 5, 0.1, error="http: 500"), made.row("STAT", 5, 0.1)]
    rows += made.steady("GET", workers=1, seconds=14, latency=0.02, begin=-2, size=1 << 20, first=0.01)
    rows += [made.row("GET", 5, 0.1, size=(1 << 20) + 1)]  # nobody has asked for this one
    sizes = [[4096, 4096, 0.5], [60_000, 80_000, 0.4], [1 << 20, 1 << 20, 0.1]]
    classes = one(tmp_path, made.cbt_load("h", rows, sizes=sizes))["phases"][0]["drivers"][0]["size_classes"]
    bounds = [(its["smallest"], its["largest"]) for its in classes]
    assert bounds == [(4096, 4096), (65536, 131071), (1 << 20, (1 << 21) - 1)]
    assert [size_class(*each) for each in bounds] == ["4 KiB", "64 KiB to 128 KiB", "1 MiB to 2 MiB"]
    classes.pop()
    small, large = (its["ops"]["GET"] for its in classes)
    assert (small["obj_per_s"], small["latency_ms"]["p99"], small["ttfb_ms"]["p50"]) == (200.0, 10.0, 5.0)
    assert (large["obj_per_s"], large["mib_per_s"]) == (100.0, round(100 * 70_000 / 2**20, 4))
    assert one(tmp_path / "b", made.cbt_load("h", load()))["phases"][0]["drivers"][0]["size_classes"] == []


def test_percentiles_by_the_minute_and_rates_by_the_second(tmp_path: Path) -> None:
    rows = made.steady("GET", workers=2, seconds=200, latency=0.1, begin=-20)
    begin = 40.0  # T0 is 20 s after a whole minute
    asked = {"duration": 120.0, "mix": {"GET": 100.0}}
    summary = one(tmp_path, made.cbt_load("h", rows, workers=2), window=(begin, begin + 120), block=60, asked=asked)
    assert summary["warnings"] == []
    series = summary["phases"][0]["series"]
    assert (series["step"], series["percentiles"]) == (1, {"start": T0 + 40, "step": 60})
    its = series["ops"]["GET"]
    assert (its["obj_per_s"], its["p99_ms"]) == ([20.0] * 120, [100.0, 100.0])


FILL: Dict[str, Any] = {"kind": "fill", "role": "fill", "asked": {"duration": None}, "block": 10}


def test_a_fill_has_the_time_that_it_took(tmp_path: Path) -> None:
    """From the begin of its first request, not from the end of that, as the run sees it."""
    rows = made.steady("PUT", workers=2, seconds=8, latency=0.1, begin=0.05, size=4096)
    job = made.cbt_load("f", rows, role="fill", workers=2)
    phase = one(tmp_path, job, window=(0.15, 8.05), **FILL)["phases"][0]
    assert (phase["ops"]["PUT"]["requests"], phase["ops"]["PUT"]["outside"]["requests"]) == (160, 0)
    assert (phase["window"]["seconds"], phase["ops"]["PUT"]["obj_per_s"]) == (8.0, 20.0)
    assert sum(phase["series"]["ops"]["PUT"]["obj_per_s"][1:-1]) == 140.0
    assert phase["in_flight"] is None


def test_a_short_fill_of_slow_requests_has_its_workers(tmp_path: Path) -> None:
    """Three requests of each worker: by the ends of rows the rate would be 50 % too high. One worker ends early."""
    rows = made.steady("PUT", workers=3, seconds=3, latency=1.0, begin=0.05, size=4096)
    rows.insert(3, made.row("PUT", 1.05, 1.0, size=4096, thread=3))
    summary = one(tmp_path, made.cbt_load("f", rows, role="fill", workers=4), window=(1.05, 3.05), **FILL)
    phase = summary["phases"][0]
    assert phase["ops"]["PUT"]["obj_per_s"] == round(10 / 3, 4)
    law = phase["littles_law"]
    assert (law["workers"], law["expected"], law["in_flight"], law["deviation"]) == (4, 3.3333, 3.3333, 0.0)
    assert "littles-law" not in warnings(summary)


def test_pauses_between_the_requests_of_a_fill_are_warned_of(tmp_path: Path) -> None:
    rows = made.steady("PUT", workers=2, seconds=8, latency=0.1, begin=0.05, size=4096)
    rows = [*rows[:60], *rows[100:]]
    text = warnings(one(tmp_path, made.cbt_load("f", rows, role="fill", workers=2), window=(0.15, 8.05), **FILL))
    assert "requests in flight, but 2 workers (" in text["littles-law"]
    assert text["littles-law"].endswith("a starved generator, lost requests, or a wrong clock")


def test_verify_and_delete_say_what_they_came_to(tmp_path: Path) -> None:
    rows = [*made.steady("GET", workers=4, seconds=9, latency=0.01), made.row("GET", 5, 0.1, error="timeout: 30 s")]
    more = {"role": "none", "asked": {"duration": None}, "window": (0.01, 9.0)}
    text = one(tmp_path / "v", made.cbt_load("v", rows, end={"checksum_errors": 3}), kind="verify", **more)
    assert text["phases"][0]["sentence"] == (
        "3,600 objects read and compared: 3 had other content than was written; 1 could not be read"
    )
    rows = [row.replace("GET", "DELETE") for row in rows]
    text = one(tmp_path / "d", made.cbt_load("d", rows), kind="delete", **more)
    assert text["phases"][0]["sentence"] == "3,600 objects deleted, 1 could not be; 9 are left"
    assert one(tmp_path / "m", made.cbt_load("h", load()))["phases"][0]["sentence"] is None


# --- both engines


def beside(tmp_path: Path, warp: Dict[str, Any], **job: Any) -> List[Any]:
    directory = made.run(tmp_path, phases=["ours", "theirs"])
    more: Dict[str, Any] = {"engine": "cbt-load", "asked": ASKED, "as_aggregates": True}
    made.phase(directory, 1, "ours", [made.cbt_load("h", load(), **job)], **more)
    slow = made.steady("GET", workers=2, seconds=14, latency=0.02, begin=-2, size=4096)
    slow += made.steady("PUT", workers=2, seconds=14, latency=0.02, begin=-2, size=4096)
    about = {"kind": "warp", "role": "none", "asked": ASKED, "engine": "warp"}
    made.phase(directory, 2, "theirs", [made.job("w", "MIXED", slow, workers=4)], **{**about, **warp})
    return summarize(directory)["engines"]


def test_both_engines_on_one_mix(tmp_path: Path) -> None:
    (entry,) = beside(tmp_path, {})
    assert (entry["cbt_load"], entry["warp"]) == ("ours", "theirs")
    assert "reads objects that it has just written itself" in entry["note"]
    line = {(its["op"], its["metric"]): its for its in entry["lines"]}
    assert line["GET", "obj_per_s"] == {
        "op": "GET", "metric": "obj_per_s", "unit": "obj/s", "cbt_load": 200.0, "warp": 100.0, "ratio": 2.0,
    }  # fmt: skip
    assert line["GET", "p99_ms"]["ratio"] == 0.5
    assert line["total", "obj_per_s"]["ratio"] == 1.5
    assert ("PUT", "mib_per_s") in line


def test_what_warp_says_is_compared_with_the_measurement_before_it(tmp_path: Path) -> None:
    """Not with aging, and not with aged data: warp has measured before both."""
    directory = made.run(tmp_path, phases=["new", "warp-mixed", "age", "aged"])
    rows = made.steady("GET", workers=2, seconds=14, latency=0.02, begin=-2, size=4096)
    roles = {"new": "measure", "warp-mixed": "none", "age": "age", "aged": "measure"}
    for index, (name, role) in enumerate(roles.items(), 1):
        warp = name == "warp-mixed"
        job = made.job("w", "MIXED", rows) if warp else made.cbt_load("h", load())
        about = {"kind": "warp" if warp else "hybrid", "engine": "warp" if warp else "cbt-load", "role": role}
        made.phase(directory, index, name, [job], as_aggregates=not warp, asked=ASKED, **about)
    assert [(its["cbt_load"], its["warp"]) for its in summarize(directory)["engines"]] == [("new", "warp-mixed")]


def test_phases_that_are_not_paired(tmp_path: Path) -> None:
    other = {"duration": 10.0, "mix": {"GET": 60.0, "PUT": 40.0}}
    assert beside(tmp_path / "mix", {"asked": other}) == []
    assert beside(tmp_path / "open", {}, rate_limit=300.0) == []
    assert beside(tmp_path / "get", {"asked": {"duration": 10.0, "mix": {}}}) == []
    (entry,) = beside(tmp_path / "hybrid", {"kind": "hybrid", "role": "measure"})
    assert "one process for each operation" in entry["note"]


def test_other_workers_are_said(tmp_path: Path) -> None:
    (entry,) = beside(tmp_path, {}, workers=5)
    assert entry["note"].endswith("cbt-load had 5 workers, warp 4")


# --- beats


def beat(t: float, **jobs: Dict[str, Any]) -> str:
    return json.dumps({"t": T0 + t, "node": "n", "jobs": jobs}) + "\n"


def test_requests_under_way(tmp_path: Path) -> None:
    path = tmp_path / HEARTBEATS
    path.write_text(
        beat(-5, a={"in_flight": 99, "oldest": 9})
        + beat(0.2, a={"in_flight": 3, "oldest": 0.5}, b={"in_flight": 4, "oldest": 2.5}, w={"ops": 1})
        + beat(0.9, a={"in_flight": 5}, b={})
        + beat(2.5, a={}, b={})
        + beat(0.5, a={"in_flight": "many"}, b={"oldest": [9]})
        + beat(0.5, a={"in_flight": 10**400}, b={"in_flight": 1, "oldest": math.nan})
        + beat(math.nan, a={"in_flight": 9, "oldest": 9})
        + "{torn"
    )
    drivers = {"a": "one", "b": "one", "w": "warp"}
    assert over_time.in_flight_over_time(path, TimeGrid.of(T0, T0 + 4, 1), drivers) == {
        "start": T0,
        "step": 1,
        "drivers": {"one": {"in_flight": [7, None, 0, None], "oldest_seconds": [2.5, None, 0.0, None]}},
    }


def test_without_such_beats_there_is_nothing(tmp_path: Path) -> None:
    grid = TimeGrid.of(T0, T0 + 4, 1)
    assert over_time.in_flight_over_time(tmp_path / "none", grid, {}) is None
    (tmp_path / "warp").write_text(beat(1, a={"ops": 1}))
    assert over_time.in_flight_over_time(tmp_path / "warp", grid, {"a": "one"}) is None


def test_a_stall_in_a_long_file_is_seen(tmp_path: Path) -> None:
    """40,000 s of four nodes; in one second a request is a minute old, in 200 others no beat comes."""
    path = tmp_path / HEARTBEATS
    with path.open("w") as out:
        for t in range(40_000):
            for i in range(4) if not 8000 <= t < 8200 else ():
                out.write(beat(t, **{f"j{i}": {"in_flight": i + 1, "oldest": 60 if (t, i) == (7001, 2) else 1}}))
    found = over_time.in_flight_over_time(path, TimeGrid.of(T0, T0 + 40_000, 1), {f"j{i}": f"d{i}" for i in range(4)})
    assert found is not None
    assert found["step"] == 40
    for i in range(4):
        its = found["drivers"][f"d{i}"]
        assert its["in_flight"] == [None if 200 <= n < 205 else i + 1 for n in range(1000)]
        hole = [None if 200 <= n < 205 else 1.0 for n in range(1000)]
        assert its["oldest_seconds"] == [60.0 if (n, i) == (175, 2) else value for n, value in enumerate(hole)]
