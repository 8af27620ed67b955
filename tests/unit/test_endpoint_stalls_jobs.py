"""Endpoints that stall, and jobs that may not choose them, end early or do large objects: archives of small phases."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import archive_builder as made
import pytest
from aggregates_writer import instant

from cbt_plugins.results.summary_file import summarize

URLS = ["http://rgw1:7480", "http://rgw2:7480"]
T0 = made.T0
#: 4 workers on an endpoint, 50 ms a request
WORKERS, LATENCY = 4, 0.05


def loop(endpoint: int, begin: float, end: float, latency: float = LATENCY, **more: Any) -> List[str]:
    """Requests of four workers without a pause from `begin` to `end`."""
    ends = [begin + (i + 1) * latency for i in range(round((end - begin) / latency))]
    more["endpoint"] = URLS[endpoint - 1]
    return [made.row("GET", at, latency, thread=w, **more) for at in ends for w in range(WORKERS)]


def job(id: str, rows: Sequence[str], *urls: int, engine: str = "cbt-load", **more: Any) -> Dict[str, Any]:
    """A job that may choose these endpoints and works to the end of the window, unless said otherwise."""
    about = {"workers": WORKERS * len(urls), "urls": [URLS[u - 1] for u in urls], "driver": id, "ended": T0 + 40.0}
    about.update(more)
    rows = sorted(rows, key=lambda row: row.split("\t")[11])
    return made.cbt_load(id, rows, **about) if engine == "cbt-load" else made.job(id, "GET", rows, **about)


def warned(tmp_path: Path, jobs: List[Dict[str, Any]], duration: Optional[float] = 28.0, **more: Any) -> List[str]:
    """The texts of the warnings about endpoints."""
    directory = made.run(tmp_path, phases=["new"])
    asked = {"duration": duration, "mix": {"GET": 100.0}}
    about = {"engine": "cbt-load", "asked": asked, "as_aggregates": True, "window": (0.0, 28.0), **more}
    made.phase(directory, 1, "new", jobs, **about)
    return [its["text"] for its in summarize(directory)["warnings"] if its["code"] == "stalled-endpoint"]


@pytest.mark.parametrize("engine", ["cbt-load", "warp"])
@pytest.mark.parametrize("own", [False, True], ids=["all-endpoints", "one-endpoint-a-job"])
def test_an_endpoint_that_never_answers(tmp_path: Path, own: bool, engine: str) -> None:
    """In no row at all: of what a job may choose its record in phase.json says."""
    rows = loop(2, -2, 30)
    jobs = [job("a", rows, 1, 2, engine=engine)]
    if own:
        jobs = [job("a", [], 1, engine=engine, first_row=None), job("b", rows, 2, engine=engine)]
    (text,) = warned(tmp_path, jobs, engine=engine)
    assert text.startswith("http://rgw1:7480 answered nothing in 28 of 28 seconds while others did; ")
    assert ("it answered 0 % of its share of the requests" in text) != own


def test_an_endpoint_that_refuses_all_requests(tmp_path: Path) -> None:
    """Errors are no answers."""
    refused = [made.row("GET", at, 0.001, endpoint=URLS[0], error="refused: connect") for at in range(28)]
    (text,) = warned(tmp_path, [job("a", loop(2, -2, 30) + refused, 1, 2)])
    assert "rgw1:7480 answered nothing in 28 of 28 seconds" in text


def test_a_frozen_endpoint_of_one_job_whose_first_answer_comes_late(tmp_path: Path) -> None:
    """The run sees the first request when it ends, 24 s after the job began."""
    held = [made.row("GET", 24.5, 24.5, thread=w, endpoint=URLS[0]) for w in range(WORKERS)]
    late = job("a", held + loop(1, 24.5, 30), 1, first_row=T0 + 24.5)
    (text,) = warned(tmp_path, [late, job("b", loop(2, -2, 30), 2)])
    assert text.startswith("http://rgw1:7480 answered nothing in 24 of 28 seconds while others did;")


@pytest.mark.parametrize("engine", ["cbt-load", "warp"])
def test_an_endpoint_of_one_job_stalls(tmp_path: Path, engine: str) -> None:
    held = [made.row("GET", 24, 20, thread=w, endpoint=URLS[0]) for w in range(WORKERS)]
    rows = loop(1, -2, 4) + held + loop(1, 24, 30)
    (text,) = warned(tmp_path, [job("a", rows, 1, engine=engine), job("b", loop(2, -2, 30), 2, engine=engine)])
    assert text.startswith("http://rgw1:7480 answered nothing in 19 of 28 seconds while others did;")
    assert "of its share" not in text, "no job chose among endpoints"


@pytest.mark.parametrize("engine", ["cbt-load", "warp"])
def test_one_endpoint_for_each_job_is_no_stall(tmp_path: Path, engine: str) -> None:
    """`host_select: one`: another rate at each endpoint, and one endpoint of the plan that no job has."""
    jobs = [job("a", loop(1, -2, 30, 0.5), 1, engine=engine), job("b", loop(2, -2, 30), 2, engine=engine)]
    assert warned(tmp_path / "two", jobs, engine=engine) == []
    assert warned(tmp_path / "one", jobs[1:], engine=engine) == []


def test_a_job_that_ends_first_is_no_stall(tmp_path: Path) -> None:
    jobs = [job("a", loop(1, 0, 10), 1, ended=T0 + 11.0), job("b", loop(2, 0, 28), 2)]
    assert warned(tmp_path / "takes-all", jobs, duration=None) == []
    assert warned(tmp_path / "died", jobs) == []
    # its process had a way to go after its last request
    jobs[0]["ended"] = T0 + 20.0
    assert warned(tmp_path / "slow-end", jobs) == []


def test_a_job_that_prepares_for_long_is_no_stall(tmp_path: Path) -> None:
    """warp starts, lists, and sends its first request when the other job is on its way for 9 s."""
    late = job("a", loop(1, 9, 28), 1, engine="warp", started=T0 - 1.0, first_row=T0 + 9.05)
    assert warned(tmp_path, [late, job("b", loop(2, 0, 28), 2, engine="warp")], duration=None, engine="warp") == []


def test_the_last_requests_of_a_job_are_few(tmp_path: Path) -> None:
    """A fill ends with its last objects, large ones of one worker at the other endpoint."""
    tail = [made.row("GET", 14 + 3.5 * i, 3.5, endpoint=URLS[1], size=1 << 30) for i in range(1, 5)]
    assert warned(tmp_path, [job("a", loop(1, 0, 14) + loop(2, 0, 14) + tail, 1, 2)], duration=None) == []


def test_two_late_requests_are_chance(tmp_path: Path) -> None:
    """The last one ends the job's time: that it came late in this time says nothing."""
    late = [made.row("GET", 20.001, 0.1, thread=w, endpoint=URLS[0]) for w in range(2)]
    assert warned(tmp_path, [job("a", late, 1), job("b", loop(2, 0, 28), 2)], duration=None) == []


def test_a_silence_ends_with_the_job(tmp_path: Path) -> None:
    held = [made.row("GET", 19.9, 15.9, thread=w, endpoint=URLS[0], error="timeout: x") for w in range(WORKERS)]
    jobs = [job("a", loop(1, 0, 4) + held, 1, ended=T0 + 20.0), job("b", loop(2, 0, 28), 2)]
    (text,) = warned(tmp_path, jobs)
    assert "the longest time is 15 s, from second 5 on" in text


def test_a_job_that_is_started_again_is_no_stall(tmp_path: Path) -> None:
    """Nobody knows when it worked: warp's DELETE lists its objects again."""
    rows = loop(1, -2, 5) + loop(1, 20, 30)
    jobs = [job("a", rows, 1, engine="warp", restarts=1), job("b", loop(2, -2, 30), 2, engine="warp")]
    assert warned(tmp_path, jobs, engine="warp") == []


def test_a_load_that_grows_is_no_stall(tmp_path: Path) -> None:
    """The least busy endpoint is chosen: few requests go to one for a time, until there are more workers."""
    first = [made.row("GET", 2.0 * i, 2.0, endpoint=URLS[1]) for i in range(1, 5)]
    rows = first + loop(1, 8, 28) + loop(2, 8, 28)
    assert warned(tmp_path, [job("a", rows, 1, 2, spec={"ramp": 10.0})], duration=None) == []


def test_workers_in_large_objects_are_no_stall(tmp_path: Path) -> None:
    """All workers of an endpoint are in large objects, most of 6 s, while small ones go on at the other one."""
    rows: List[str] = []
    for endpoint, times in ((1, ((0, 6.0), (8, 16.0))), (2, ((3, 6.0), (11, 6.0), (19, 6.0)))):
        for begin, seconds in times:
            end = begin + seconds
            rows += loop(endpoint, begin, end, seconds, size=1 << 30) + loop(endpoint, end, end + 2, size=4096)
    assert warned(tmp_path / "usual", [job("a", rows, 1, 2)]) == []
    # but when most large objects take 250 ms, 6 s are a stall
    rows += loop(1, 26, 28, 0.25, size=1 << 30) + loop(2, 0, 3, 0.25, size=1 << 30)
    assert len(warned(tmp_path / "rare", [job("a", rows, 1, 2)])) == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_one_worker_shows_nothing_of_the_other_endpoint(tmp_path: Path, workers: int) -> None:
    """When the cluster stalls, only its endpoint has a long request; two workers are at both endpoints."""
    rows = loop(1, 0, 8) + loop(2, 0, 8) + loop(1, 18, 28) + loop(2, 18, 28)
    rows += [made.row("GET", 18, 10, thread=w, endpoint=URLS[0]) for w in range(workers)]
    texts = warned(tmp_path, [job("a", rows, 1, 2, workers=workers)])
    assert len(texts) == workers - 1
    assert all("answered nothing in 9 of 28 seconds and its requests held the workers;" in text for text in texts)


def test_a_phase_with_one_endpoint(tmp_path: Path) -> None:
    assert warned(tmp_path, [job("a", loop(1, 0, 4) + loop(1, 24, 28), 1)]) == []


def test_an_archive_of_an_older_version(tmp_path: Path) -> None:
    """Without the jobs' URLs, what is in the rows counts."""
    held = [made.row("GET", 24, 20, thread=w, endpoint=URLS[0]) for w in range(WORKERS)]
    rows = loop(1, -2, 4) + held + loop(1, 24, 30) + loop(2, -2, 30)
    older = job("a", rows, 1, 2)
    for key in ("urls", "first_row", "started", "ended", "driver_end"):
        del older[key]
    (text,) = warned(tmp_path, [older])
    assert "rgw1:7480 answered nothing in 19 of 28 seconds" in text
    empty = {**job("b", [], 1), "urls": None, "first_row": None}
    assert warned(tmp_path / "empty", [empty, job("a", loop(2, -2, 30), 2)]) == []


def test_names_of_endpoints_in_rows_that_are_no_urls(tmp_path: Path) -> None:
    """A job's rows name addresses; that its URLs are in no row says nothing."""
    rows = [row.replace(URLS[1], "http://10.0.0.2:7480") for row in loop(2, -2, 30)]
    assert warned(tmp_path, [job("a", rows, 1, 2)]) == []


def test_phases_over_two_hours_show_silences_that_fill_a_block(tmp_path: Path) -> None:
    """Blocks of 60 s: 50 s without an answer lie in two of them, 130 s fill one."""
    rows = [r for e in (1, 2) for at in range(1, 600, 5) for r in loop(e, at, at + 0.1)]
    for begin, end, many in ((130, 180, 0), (125, 255, 1)):
        kept = [r for r in rows if URLS[0] not in r or not begin <= (instant(r.split("\t")[11]) / 10**9 - T0) <= end]
        load = job("a", kept, 1, 2, ended=T0 + 700.0)
        texts = warned(tmp_path / str(end), [load], 600.0, window=(0.0, 600.0), block=60)
        assert len(texts) == many, (begin, end, texts)
