"""From a table of comparisons to its verdicts: Holm's correction over all rows, and equivalence within a margin."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, Hashable, List, Mapping, Sequence, Tuple, TypeVar, Union

from cbt_plugins.compare.statistics.values import Comparison, StatisticsWarning, Verdict
from cbt_plugins.metrics import Direction

Key = TypeVar("Key", bound=Hashable)
_HELPED = "in a table of {} rows so few runs can be judged only if logarithms of runs are about normally distributed"


def holm(p_values: Sequence[float]) -> List[float]:
    """Adjusted p-values (Holm, 1979), each to be compared with alpha: that is the chance of any false one, then."""
    adjusted, highest = [1.0] * len(p_values), 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def judge(
    comparisons: Mapping[Key, Comparison],
    directions: Mapping[Key, Direction],
    margin: Union[float, Mapping[Key, float]],
    alpha: float = 0.05,
    least: float = 0.0,
) -> Dict[Key, Comparison]:
    """The comparisons with their verdicts, in the same order.

    `margin`: the relative change (0.03: 3 %) within which things are the same. `least`: a smaller change is neither
    better nor worse, however sure it is. ValueError when the comparisons' confidence is not 1 - alpha, or a margin is
    not above 0.
    """
    rows = [key for key, comparison in comparisons.items() if comparison.p is not None]
    helped = {key for key in rows if comparisons[key].second is not None and comparisons[key].floor * len(rows) > alpha}
    p_values = [_helped(comparisons[key], alpha) if key in helped else comparisons[key].p or 0.0 for key in rows]
    adjusted = dict(zip(rows, holm(p_values)))
    judged = {}
    for key, comparison in comparisons.items():
        width = margin[key] if isinstance(margin, Mapping) else margin
        if width <= 0:
            raise ValueError(f"a margin of {width}")
        if abs(1 - comparison.base.confidence - alpha) > 1e-9:
            raise ValueError(f"intervals at {comparison.base.confidence:g} for verdicts at {1 - alpha:g}")
        verdict, warnings = _verdict(comparison, directions[key], width, least, adjusted.get(key, 1.0) < alpha)
        if key in helped and verdict in (Verdict.BETTER, Verdict.WORSE):
            warnings.append(StatisticsWarning("assumes-normal", _HELPED.format(len(rows))))
        judged[key] = replace(
            comparison,
            verdict=verdict,
            warnings=(*comparison.warnings, *warnings),
            adjusted=adjusted.get(key),
            margin=width,
        )
    return judged


def _helped(comparison: Comparison, alpha: float) -> float:
    """The p of few runs in a table so long that the exact test could not give one as small as it would need.

    It is that of the t test on the same runs, if the exact test alone says yes.
    """
    exact, second = comparison.p, comparison.second
    assert exact is not None and second is not None
    return second if exact < alpha else max(exact, second)


def _verdict(
    comparison: Comparison, direction: Direction, margin: float, least: float, significant: bool
) -> Tuple[Verdict, List[StatisticsWarning]]:
    change, low, high = comparison.change, comparison.change_low, comparison.change_high
    differs = significant and low is not None and high is not None and (low > 0 or high < 0)
    if comparison.within is not None and comparison.within < margin:
        text = f"there is a difference, and it is within {margin:.3g}"
        return Verdict.EQUIVALENT, [StatisticsWarning("small-difference", text)] if differs else []
    if not differs or change is None:
        return Verdict.INCONCLUSIVE, []
    if direction is Direction.NONE:
        return Verdict.INCONCLUSIVE, [
            StatisticsWarning("no-direction", "there is a difference, and neither way is the better one")
        ]
    if abs(change) < least:
        return Verdict.INCONCLUSIVE, [
            StatisticsWarning("below-least", f"there is a difference, and it is below {least:.3g}")
        ]
    return (Verdict.BETTER if (change > 0) == (direction is Direction.HIGHER) else Verdict.WORSE), []
