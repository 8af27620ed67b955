"""Arithmetic that tells a change from noise, and says so when it cannot. Knows numbers only, no archives.

docs/STATISTICS.md has the rules, their false alarms and their power.
"""

from cbt_plugins.compare.statistics.change_point_search import alpha_of_budget, change_points
from cbt_plugins.compare.statistics.runs import compare_differences, compare_runs, estimate, pooled_scatter
from cbt_plugins.compare.statistics.series import compare_series, effective_size, estimate_series, series_warnings
from cbt_plugins.compare.statistics.verdict_chances import (
    Campaign,
    Chances,
    chances,
    gate_false_alarms,
    minimum_runs,
    smallest_p,
)
from cbt_plugins.compare.statistics.verdicts import (
    ChangePoint,
    Comparison,
    Estimate,
    Scatter,
    StatisticsWarning,
    Verdict,
    decide_verdicts,
    holm,
)
from cbt_plugins.metrics import Direction

__all__ = [
    "Campaign",
    "Chances",
    "ChangePoint",
    "Comparison",
    "Direction",
    "Estimate",
    "Scatter",
    "StatisticsWarning",
    "Verdict",
    "alpha_of_budget",
    "chances",
    "change_points",
    "compare_differences",
    "compare_runs",
    "compare_series",
    "decide_verdicts",
    "effective_size",
    "estimate",
    "estimate_series",
    "gate_false_alarms",
    "holm",
    "minimum_runs",
    "pooled_scatter",
    "series_warnings",
    "smallest_p",
]
