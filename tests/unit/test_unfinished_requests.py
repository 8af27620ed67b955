"""Requests that were due in the window and ended after it or never: what a summary and a gate say of the rest."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Dict, List, Sequence

import archive_builder as made
import pytest

pytest.importorskip("scipy")

from cbt_plugins.compare.gate import GateLimits, gate, of_texts
from cbt_plugins.compare.sides import Side, sides
from cbt_plugins.compare.table import Rules, compare
from cbt_plugins.results.summary_file import summarize
from cbt_plugins.warning_kinds import hides_worse

CUT = "cut: the run ended"
#: when the requests of an open loop of 100/s are due: the window is from 0 to 20
DUE = [i / 100 - 1 for i in range(2100)]
LATENCIES = ("p50_ms", "p90_ms", "p99_ms", "p999_ms")


def row(due: float, end: float, *, error: str = "", thread: int = 0) -> str:
    return made.row("GET", end, end - due, size=0 if error else 4096, error=error, thread=thread)


CALM = [row(due, due + 0.01) for due in DUE]
#: nothing is answered from 16 s on; from 22 s on all is
LATE = [row(due, due + 0.01 if due < 16 else 22 + (due - 16) / 100) for due in DUE]
#: each 20th request is never answered
HANGING = [row(due, due + 0.01 if i % 20 else 30, error="" if i % 20 else CUT) for i, due in enumerate(DUE)]


def archive(path: Path, rows: Sequence[str], *, rate: int = 100, workers: int = 3000) -> Path:
    run = made.run(path, phases=["m"])
    end = {"began": made.T0 - 1.0, "ended": made.T0 + 20.0}
    job = made.cbt_load("h", rows, workers=workers, rate_limit=rate, end=end)
    asked = {"duration": 20.0, "mix": {"GET": 100}, **({"rate": rate, "arrivals": "even"} if rate else {})}
    made.phase(run, 1, "m", [job], window=(0, 20), engine="cbt-load", asked=asked)
    return made.renamed(run, path.name)


def unfinished(path: Path, rows: Sequence[str], **load: Any) -> Dict[str, Any]:
    summary = summarize(archive(path, rows, **load))
    warnings = [warning for warning in summary["warnings"] if warning["code"] == "unfinished-request"]
    assert len(warnings) < 2
    return warnings[0] if warnings else {}


def closed_loop(hanging: int, since: float, end: float, error: str = "") -> List[str]:
    """64 workers of 10 ms; some of them are in one request from `since` on."""
    rows = []
    for worker in range(64):
        last = since if worker < hanging else 21.0
        rows += [row(t / 100, t / 100 + 0.01, thread=worker) for t in range(-100, round(100 * last))]
        rows += [row(last, end, thread=worker, error=error)] if worker < hanging else []
    return rows


def test_an_open_loop_whose_requests_all_end_in_time_has_no_warning(tmp_path: Path) -> None:
    assert unfinished(tmp_path / "a", CALM) == {}


@pytest.mark.parametrize("seconds", [0.3, 2.0])
def test_the_usual_requests_in_flight_at_the_end_of_a_load_that_began_with_the_window(
    tmp_path: Path, seconds: float
) -> None:
    rows = [row(i / 200, i / 200 + seconds) for i in range(200 * 21)]
    assert unfinished(tmp_path / "a", rows, rate=200) == {}


@pytest.mark.parametrize("refused", [0.0, 0.15])
def test_first_requests_of_a_steady_load_are_short_ones(tmp_path: Path, refused: float) -> None:
    """Nine of ten take 20 ms, and one takes 3 s to 5 s; those to a dead gateway fail at once."""
    chance = random.Random(5)
    rows = []
    for i in range(500 * 21):
        seconds = 0.02 if chance.random() < 0.9 else chance.uniform(3, 5)
        rows.append(row(i / 500, i / 500 + seconds))
    for i in range(round(500 * refused * 21)):
        due = i / 500 / refused
        rows.append(row(due, due + 0.005, error="503"))
    assert unfinished(tmp_path / "a", rows, rate=round(500 * (1 + refused))) == {}


def test_requests_that_a_load_lacks_which_began_with_the_window(tmp_path: Path) -> None:
    warning = unfinished(tmp_path / "a", LATE[100:])
    assert {"p99_ms", "p999_ms"} <= set(warning["metrics"])


@pytest.mark.parametrize("begin", [-10, 0])
@pytest.mark.parametrize(("served", "quantiles"), [(95, 2), (60, 3), (40, 4), (20, 4)])
def test_the_queue_of_an_overload_is_not_usual(tmp_path: Path, begin: int, served: int, quantiles: int) -> None:
    """100/s are due; the mean latency has the time in the queue."""
    rows, end = [], float(begin)
    for due in (begin + i / 100 for i in range(100 * (20 - begin))):
        end = max(end, due) + 1 / served
        rows.append(row(due, end))
    warning = unfinished(tmp_path / "a", rows)
    assert [key for key in LATENCIES if key in warning["metrics"]] == list(LATENCIES[-quantiles:])


def test_requests_that_end_after_the_window_are_lacking_in_its_percentiles(tmp_path: Path) -> None:
    warning = unfinished(tmp_path / "a", LATE)
    assert warning["metrics"] == ["mean_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms", "ttfb_p99_ms", "p99_ratio"]
    # 400 of 2000, without what chance explains; the first of them was due 4 s before the end
    due = "17 % of the GET that were due in the window ended after it, or never"
    assert warning["text"].startswith(f"{due}; a request of 3.0 s or more was in flight at the end")


@pytest.mark.parametrize("cut_at", [30, 20.5])
def test_requests_that_are_never_answered_are_told_with_the_success_rate(tmp_path: Path, cut_at: float) -> None:
    rows = [text if CUT not in text else row(due, cut_at, error=CUT) for due, text in zip(DUE, HANGING)]
    run = archive(tmp_path / "a", rows)
    summary = summarize(run)
    get = summary["phases"][0]["ops"]["GET"]
    assert (get["requests"], get["errors"], get["cut"], get["outside"]["cut"]) == (1900, 0, 105, 105)
    (warning,) = (each for each in summary["warnings"] if each["code"] == "unfinished-request")
    assert {"p99_ms", "p999_ms", "max_ms", "success_rate"} <= set(warning["metrics"])
    assert not {"p50_ms", "p90_ms"} & set(warning["metrics"])


def test_one_slow_success_hides_no_requests_that_were_never_answered(tmp_path: Path) -> None:
    warning = unfinished(tmp_path / "a", [*HANGING, row(-40, 5)])
    assert {"p99_ms", "success_rate"} <= set(warning["metrics"]) and "max_ms" not in warning["metrics"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rate", [0, 100])
@pytest.mark.parametrize("begin", [-10.0, 0.0])
def test_chance_at_the_ends_of_a_window_makes_no_percentile_doubtful(
    tmp_path: Path, seed: int, rate: int, begin: float
) -> None:
    """Requests of some 0.5 s, by a Poisson process, and by 50 workers."""
    chance, rows = random.Random(seed), []
    for worker in range(1 if rate else 50):
        t = begin
        while t < 21:
            took = chance.lognormvariate(-0.8, 0.5)
            rows.append(row(t, t + took, thread=worker))
            t += chance.expovariate(rate) if rate else took
    warning = unfinished(tmp_path / "a", rows, rate=rate, workers=rate or 50)
    assert set(warning.get("metrics", ())) <= {"max_ms"}


@pytest.mark.parametrize(("end", "error"), [(50.0, CUT), (22.0, "")])
def test_workers_that_hang_in_a_closed_loop_are_told(tmp_path: Path, end: float, error: str) -> None:
    """3 of 64 workers wait for the last 15 of 20 s: 3.5 % of the time is in no latency."""
    warning = unfinished(tmp_path / "a", closed_loop(3, 5.0, end, error), rate=0, workers=64)
    expected = {"p99_ms", "p999_ms", "ttfb_p99_ms", "p99_ratio", "max_ms", *(["success_rate"] if error else [])}
    assert set(warning["metrics"]) == expected
    assert unfinished(tmp_path / "b", closed_loop(0, 5.0, end), rate=0, workers=64) == {}


def test_an_error_after_the_window_is_no_success_of_it(tmp_path: Path) -> None:
    warning = unfinished(tmp_path / "a", closed_loop(1, 15.0, 25.0, "timeout: 10 s"), rate=0, workers=64)
    assert {"max_ms", "success_rate"} <= set(warning["metrics"])


def test_a_gate_passes_no_numbers_that_lack_requests(tmp_path: Path) -> None:
    limits = GateLimits(tuple(of_texts(["GET.p50_ms<=50ms", "GET.p99_ms<=50ms", "GET.success_rate>=100%"])))
    outcomes = {}
    runs = {name: archive(tmp_path / name, rows) for name, rows in (("calm", CALM), ("late", LATE), ("hang", HANGING))}
    for name, run in runs.items():
        base, new = sides([[runs["calm"]], [run]])
        rulings = gate(base, [new], limits, Rules()).rulings
        outcomes[name] = {ruling.row.rpartition("/")[2]: ruling.outcome.word for ruling in rulings}
    assert set(outcomes["calm"].values()) == {"ok"}
    assert outcomes["late"] == {"p50_ms": "ok", "p99_ms": "inconclusive", "success_rate": "ok"}
    assert outcomes["hang"] == {"p50_ms": "ok", "p99_ms": "inconclusive", "success_rate": "inconclusive"}


def test_a_base_that_lacks_requests_makes_no_other_side_worse(tmp_path: Path) -> None:
    """The other side is slower than what the base shows, and much faster than the base was."""
    slower = [row(due, due + 0.03) for due in DUE]
    base, new = sides([[archive(tmp_path / name, rows)] for name, rows in (("late", LATE), ("slower", slower))])
    rules = Rules(scatter={"p99_ms": 0.001})

    def verdict(first: Side, second: Side) -> str:
        rows = compare(first, [second], rules=rules).sections[0].rows
        return next(line.verdict.value for line in rows if (line.op, line.metric) == ("GET", "p99_ms"))

    assert verdict(base, new) == verdict(new, base) == "inconclusive"
    calm = sides([[archive(tmp_path / "calm", CALM)]])[0]
    assert verdict(calm, new) == "worse"


@pytest.mark.parametrize(("limits", "lower", "hidden"), [
    (("unfinished-request",), False, (True, False)),
    (("unfinished-request",), True, (True, False)),
    (("paced",), True, (True, False)),
    (("paced",), False, (False, False)),
])  # fmt: skip
def test_what_hides_that_a_side_is_worse(limits: Sequence[str], lower: bool, hidden: Sequence[bool]) -> None:
    assert (hides_worse(limits, (), lower), hides_worse((), limits, lower)) == hidden


@pytest.mark.parametrize("refused", [0, 1])
def test_an_overload_whose_slow_requests_time_out_is_no_steady_load(tmp_path: Path, refused: int) -> None:
    """100/s are due from the begin of the window, 60/s are served, also those that the client has given up after 3 s.
    Another 100/s to each dead gateway fail at once.
    """
    rows, end = [], 0.0
    for due in (i / 100 for i in range(100 * 20)):
        end = max(end, due) + 1 / 60
        rows.append(row(due, min(end, due + 3.0), error="timeout" if end > due + 3.0 else ""))
        rows += [row(due, due + 0.005, error="503")] * refused
    assert "p99_ms" in unfinished(tmp_path / "a", rows, rate=100 * (1 + refused))["metrics"]


@pytest.mark.parametrize("begin", [0, 100])
@pytest.mark.parametrize("seconds", [0.01, 3.0])
def test_an_operation_without_a_success_has_no_usual_latency(tmp_path: Path, begin: int, seconds: float) -> None:
    assert unfinished(tmp_path / "a", [row(due, due + seconds, error="404") for due in DUE[begin:]]) == {}
