"""Silences of endpoints that are chance, and the least one that is not: phases of Poisson arrivals."""

from __future__ import annotations

from itertools import cycle, product
from pathlib import Path
from typing import Dict, List, Mapping, Sequence, Tuple

import numpy as np
import pytest

from cbt_plugins.results.archive import ArchivedJob, ArchivedPhase
from cbt_plugins.results.requests.endpoint_stalls import EndpointStall, stalls
from cbt_plugins.results.requests.job_aggregates import EndpointAggregates, JobAggregates
from cbt_plugins.results.requests.rates_and_latencies import PhaseAggregates
from cbt_plugins.results.requests.time_series import MOST_ENDPOINTS, TimeGrid, Timeline

RATES = (0.5, 1.7, 3.4)  # requests/s of an endpoint
SECONDS = (60, 600, 7200)
ENDPOINTS = (2, 4, 8)


def of_answers(answers: Mapping[str, np.ndarray], jobs: Sequence[Tuple[str, ...]], block: int = 1) -> PhaseAggregates:
    """The aggregates of a phase: answers of each endpoint and block, and the endpoints of each job."""
    seconds = len(next(iter(answers.values()))) * block
    made = [
        ArchivedJob(
            id=str(number), driver=str(number), node="n", op="GET", workers=8, rate_limit=0.0, rows=None,
            clock_offset=0.0, ended=seconds + 1.0, urls=urls, began=0.0,
        )
        for number, urls in enumerate(jobs)
    ]  # fmt: skip
    phase = ArchivedPhase(
        path=Path("/"), index=1, name="p", kind="hybrid", role="measure", status="ok", window=(0.0, float(seconds)),
        duration=float(seconds), mix={}, load={}, engine="cbt-load", block=block, jobs=tuple(made), accounting=(),
        warnings=(),
    )  # fmt: skip
    grid = TimeGrid.of(0.0, float(seconds), block)
    timeline = Timeline(grid)
    for name, counts in answers.items():
        if counts.any() and len(timeline.endpoints) < MOST_ENDPOINTS:
            timeline.endpoints[name] = counts
    of_jobs = {}
    for job in made:
        counts = {(url, "GET"): EndpointAggregates(n=int(answers[url].sum())) for url in job.urls}
        of_jobs[job.id] = JobAggregates(endpoints={key: of for key, of in counts.items() if of.n})
    return PhaseAggregates(phase, grid, of_jobs, timeline)


def poisson(chance: np.random.Generator, endpoints: int, rate: float, blocks: int) -> Dict[str, np.ndarray]:
    return {f"http://rgw{e}": chance.poisson(rate, blocks) for e in range(endpoints)}


@pytest.mark.parametrize("own", [False, True], ids=["all-endpoints", "one-endpoint-a-job"])
def test_chance_alone_gives_no_alarm(own: bool) -> None:
    """The limit leaves e^-10 alarms a window: none in 500."""
    chance = np.random.default_rng(20261124)
    alarms: List[EndpointStall] = []
    for _, (rate, seconds, endpoints) in zip(range(513), cycle(product(RATES, SECONDS, ENDPOINTS))):
        answers = poisson(chance, endpoints, rate, seconds)
        jobs = [(name,) for name in answers] if own else [tuple(answers)]
        alarms += stalls(of_answers(answers, jobs))
    assert alarms == []


@pytest.mark.parametrize(("rate", "least"), [(1.7, 0.6), (3.4, 0.99), (300.0, 1.0)])
@pytest.mark.parametrize("own", [False, True], ids=["all-endpoints", "one-endpoint-a-job"])
def test_a_silence_of_twenty_of_28_seconds(own: bool, rate: float, least: float) -> None:
    """At 1.7 requests/s it is what the limit lets through; from 3 requests/s on it is named always."""
    chance = np.random.default_rng(28)
    named = 0
    for _ in range(200):
        answers = poisson(chance, 2, rate, 28)
        answers["http://rgw1"][5:25] = 0
        jobs = [(name,) for name in answers] if own else [tuple(answers)]
        for stall in stalls(of_answers(answers, jobs)):
            assert stall.endpoint == "http://rgw1"
            named += stall.longest is not None and stall.longest.seconds >= 20
    assert named >= least * 200


@pytest.mark.parametrize("endpoints", [2, 8, 40])
def test_the_limit_grows_with_the_window_and_the_endpoints(endpoints: int) -> None:
    """At one request a second: n of them at random times leave a part p free at (1 - p)^n."""

    def least(seconds: int) -> int:
        for silent in range(3, seconds):
            answers = {f"http://rgw{e}": np.full(seconds, 1) for e in range(endpoints)}
            answers["http://rgw1"][2 : 2 + silent] = 0
            if stalls(of_answers(answers, [tuple(answers)])):
                return silent
        return seconds

    for seconds in (60, 600):
        lengths = np.arange(3, seconds)
        missed = -(seconds - lengths) * np.log(1 - lengths / seconds)
        assert least(seconds) == lengths[missed >= 10 + np.log(seconds * endpoints)][0]


def test_an_endpoint_that_never_answers_at_a_low_rate() -> None:
    answers = {"http://rgw0": np.full(28, 2), "http://rgw1": np.zeros(28, np.int64)}
    for jobs in ([tuple(answers)], [("http://rgw0",), ("http://rgw1",)]):
        (stall,) = stalls(of_answers(answers, jobs))
        assert stall.endpoint == "http://rgw1" and stall.silent == 28.0
    assert stalls(of_answers(answers, [("http://rgw0",), ("http://rgw0",)])) == [], "no job may choose it"
    assert stalls(of_answers(answers, [("http://rgw1",)])) == [], "no other endpoint shows that it could answer"


def test_an_endpoint_that_falls_silent_at_once() -> None:
    """Its few answers say little of its usual rate: it should have had half of its share at least."""
    answers = {"http://rgw0": np.full(60, 3), "http://rgw1": np.zeros(60, np.int64)}
    answers["http://rgw1"][0] = 1
    (stall,) = stalls(of_answers(answers, [tuple(answers)]))
    assert stall.longest is not None and stall.longest.seconds == 59.0


def test_blocks_of_a_minute_show_the_silences_that_fill_one() -> None:
    """As in phases of more than 2 h."""
    answers = {"http://rgw0": np.full(180, 6000), "http://rgw1": np.full(180, 6000)}
    answers["http://rgw1"][10:12] //= 3  # 80 s, 40 of each block
    assert stalls(of_answers(answers, [tuple(answers)], 60)) == []
    answers["http://rgw1"][20] = 0
    (stall,) = stalls(of_answers(answers, [tuple(answers)], 60))
    assert stall.longest is not None and stall.longest[:2] == (60.0, 1200.0)


def test_more_addresses_than_gateways_are_not_judged() -> None:
    """The series has the first ones only: what is left out is not silent."""
    answers = {f"http://bucket{n}.rgw": np.full(60, 2) for n in range(MOST_ENDPOINTS + 1)}
    assert stalls(of_answers(answers, [tuple(answers)])) == []
