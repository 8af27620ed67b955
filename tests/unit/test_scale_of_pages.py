"""The page of a run with many phases: its lines have fewer points, so that it does not grow with each phase."""

from __future__ import annotations

from typing import Any, Dict

from cbt_plugins.report.chart_data import LEAST_POINTS, POINTS, POINTS_OF_ALL, chart_data, phase_charts


def summary_of(phases: int, seconds: int = 2500) -> Dict[str, Any]:
    values: Any = [1.0] * seconds
    its = {"obj_per_s": values, "mib_per_s": None, "mean_ms": values, "errors": [0] * seconds}
    its.update(p50_ms=values, p99_ms=values, max_ms=values)
    series = {"start": 0, "step": 1, "percentiles": {"start": 0, "step": 1}, "ops": {"GET": its}}
    series["pgs"] = {"t": [], "not_clean": [], "total": []}
    window = {"start": 0.0, "end": float(seconds), "seconds": float(seconds)}
    phase = {"role": "none", "under_way": None, "window": window, "series": series, "ops": {}}
    counts = dict.fromkeys(("degraded", "misplaced", "objects_per_s"), values)
    windows = [{"state": "degraded", "labels": [], "from": 0, "to": 9}]
    timeline = {"start": 0, "step": 1, "windows": windows, "marks": [], "bad": [], "cluster": counts}
    names = [f"age{number}" for number in range(phases)]
    failure = {"timelines": dict.fromkeys(names, timeline), "impact": {"phases": []}}
    return {"phases": [{**phase, "name": name} for name in names], "failure": failure}


def test_all_phases_together_have_so_many_points() -> None:
    for phases, points in ((1, POINTS), (10, POINTS), (40, POINTS_OF_ALL // 40), (101, LEAST_POINTS)):
        shown = chart_data(summary_of(phases))["phases"]
        assert len(shown) == phases
        for phase in shown:
            assert points / 2 < len(phase["ops"]["GET"]["rate"]) <= points
            assert points / 2 < len(phase["failure"]["degraded"]) <= points


def test_a_caption_says_how_many_seconds_a_point_covers() -> None:
    """Of one phase of 2,500 s, and of phases of 1,500 s, of which a single one has a point for each second."""
    for phases, seconds, covered in ((1, 1500, ""), (1, 2500, "; points of 2 s"), (20, 1500, "; points of 2 s")):
        phase = chart_data(summary_of(phases, seconds))["phases"][0]
        captions = [chart["caption"] for chart in phase_charts(phase)]
        assert [f"Throughput, obj/s{covered}", f"Latency, ms: p99 (line) and mean (dots){covered}"] == captions[:2]
        assert f"Objects recovered per second{covered}" in captions
