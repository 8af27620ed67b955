"""Arithmetic that tells a change from noise, and says so when it cannot. Knows numbers only, no archives.

docs/statistics.md has the rules, their false alarms and their power.
"""

from typing import Dict, Hashable, List, Mapping, Sequence, Tuple, TypeVar, Union

import numpy as np

from .values import Caution, ChangePoint, Comparison, Direction, Estimate, Shift, Verdict

Key = TypeVar("Key", bound=Hashable)


def estimate(values: Sequence[float], confidence: float = 0.95) -> Estimate:
    raise NotImplementedError


def compare_runs(
    base: Sequence[float], new: Sequence[float], paired: bool = False, confidence: float = 0.95
) -> Comparison:
    raise NotImplementedError


def estimate_series(values: np.ndarray, confidence: float = 0.95) -> Estimate:
    raise NotImplementedError


def compare_series(base: np.ndarray, new: np.ndarray, confidence: float = 0.95) -> Comparison:
    raise NotImplementedError


def judge(
    comparisons: Mapping[Key, Comparison],
    directions: Mapping[Key, Direction],
    margin: Union[float, Mapping[Key, float]],
    alpha: float = 0.05,
    least: float = 0.0,
) -> Dict[Key, Comparison]:
    raise NotImplementedError


def steady(values: np.ndarray) -> Tuple[Caution, ...]:
    raise NotImplementedError


def effective_size(values: np.ndarray) -> float:
    raise NotImplementedError


def change_points(values: Sequence[float], alpha: float = 0.05, seed: int = 0) -> List[ChangePoint]:
    raise NotImplementedError


__all__ = [
    "Caution",
    "ChangePoint",
    "Comparison",
    "Direction",
    "Estimate",
    "Shift",
    "Verdict",
    "change_points",
    "compare_runs",
    "compare_series",
    "effective_size",
    "estimate",
    "estimate_series",
    "judge",
    "steady",
]
