"""How often a statement of `acceptable:` rejects a run that is equal, by the noise of one run's seconds."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, Mapping, Optional

from cbt_plugins.config.acceptable import Check
from cbt_plugins.metrics import ACCEPTABLE, TOTAL

#: quantiles of the normal distribution that stand for it
_STEPS = 1000


def false_alarms(phase: Mapping[str, Any], op: str, metric: str, check: Check) -> Optional[float]:
    """Share, 0..1, of comparisons of two runs that differ by chance only which `check` rejects.

    `phase` is that of a summary. Both runs' means are taken as normal, with the standard error of this one's: that of
    its effective number of seconds. What differs from run to run is not in it. None: not a rate, too few seconds, or
    no numpy and scipy.
    """
    key = ACCEPTABLE[metric].series
    series = [its[key] for name, its in phase["series"]["ops"].items() if key and op in (name, TOTAL) and its[key]]
    if not series:
        return None
    try:
        import numpy as np

        from cbt_plugins.compare.statistics import estimate_series
    except ImportError:
        return None
    seconds = np.sum(series, axis=0)
    level = estimate_series(seconds)
    if level.high is None or level.value <= 0:
        return None
    normal = NormalDist()
    error = float(seconds.std(ddof=1)) / math.sqrt(level.n)
    changes = (math.sqrt(2) * error * normal.inv_cdf((i + 0.5) / _STEPS) for i in range(_STEPS))
    return sum(not check(level.value + change, level.value) for change in changes) / _STEPS
