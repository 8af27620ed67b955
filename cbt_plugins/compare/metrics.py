"""Every metric that is compared: its unit, which way is better, how it is called and in which order it stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict

from cbt_plugins.compare.statistics.values import Direction


@dataclass(frozen=True)
class Metric:
    """What a key of Measurement.metric means."""

    unit: str  # "" for a share or a ratio
    direction: Direction
    title: str  # in front of the unit, in a column of a table
    order: int
    #: a verdict on it is given without being asked for; more rows in a table make each of them harder to decide
    main: bool = False


def _metrics() -> Dict[str, Metric]:
    higher, lower, none = Direction.HIGHER, Direction.LOWER, Direction.NONE
    lines = (
        # rates of what ended well in the window
        ("obj_per_s", "obj/s", higher, "throughput", True),
        ("mib_per_s", "MiB/s", higher, "bandwidth", False),
        ("success_rate", "", higher, "success rate", True),  # only where a request failed
        # latencies of what ended well
        ("mean_ms", "ms", lower, "mean", False),
        ("p50_ms", "ms", lower, "p50", False),
        ("p90_ms", "ms", lower, "p90", False),
        ("p95_ms", "ms", lower, "p95", False),
        ("p99_ms", "ms", lower, "p99", True),
        ("p999_ms", "ms", lower, "p99.9", False),
        ("max_ms", "ms", lower, "max", False),
        ("ttfb_p50_ms", "ms", lower, "first byte p50", False),
        ("ttfb_p99_ms", "ms", lower, "first byte p99", False),
        ("longest_gap_s", "s", lower, "longest gap", False),
        ("seconds", "s", none, "length", False),
        # a failure and what followed
        ("recovery_s", "s", lower, "to active+clean", True),
        ("no_degraded_s", "s", lower, "to no object degraded", False),
        ("recovery_obj_per_s", "obj/s", higher, "recovered", False),
        ("recovery_mib_per_s", "MiB/s", higher, "recovered", False),
        # what it took
        ("cores", "cores", lower, "CPU", False),
        ("rss_mib", "MiB", lower, "memory", False),
        ("ops_per_core", "ops/s", higher, "per core", True),
        ("cores_per_gb_s", "cores", lower, "per GB/s", False),
        ("rgw_osd_ratio", "", none, "RGW:OSD cores", False),
    )
    return {
        key: Metric(unit, direction, title, order, main)
        for order, (key, unit, direction, title, main) in enumerate(lines)
    }


METRICS: Dict[str, Metric] = _metrics()
