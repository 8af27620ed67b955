"""`objective:` -- limits by metric that a step of a ladder, or each second of a failure, is judged by."""

from __future__ import annotations

from typing import Annotated, Any, Dict, List

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from cbt_plugins.config.acceptable import target_of
from cbt_plugins.config.key_errors import FieldError, FieldErrors
from cbt_plugins.config.units import parse_percent
from cbt_plugins.metrics import ACCEPTABLE

#: limits of a second beside a failure, where the file has no objective: p99 / p99 of the baseline, and the share of
#: requests that succeed
DEFAULT_P99_FACTOR, DEFAULT_SUCCESS_RATE = 3.0, 0.999
#: what a single second has for certain
_OF_SECONDS = ("p99_ms", "success_rate")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _objective(value: Any) -> Any:
    """Return limits by metric: numbers in its unit, or a percentage for a share."""
    if not isinstance(value, dict) or not value:
        raise ValueError("must name a metric and its limit, as {GET/p99_ms: 50, success_rate: 99.9%}")
    errors: List[FieldError] = []
    limits: Dict[str, float] = {}
    for key, limit in value.items():
        try:
            target = target_of(str(key))
            if target.phase is not None:
                raise ValueError("must be metric or operation/metric: it is about every step or second")
        except ValueError as error:
            errors.append(FieldError((key,), str(error), of_key=True))
            continue
        if isinstance(limit, str) and ACCEPTABLE[target.metric].unit == "":
            limits[str(key)] = parse_percent(limit)
        elif ACCEPTABLE[target.metric].unit == "" and _is_number(limit) and 1 < limit <= 100:
            errors.append(FieldError((key,), f"{limit:g}: percent? write {limit:g}%"))
        elif not _is_number(limit) or not 0 < limit < (1e9 if ACCEPTABLE[target.metric].unit else 1.000001):
            unit = ACCEPTABLE[target.metric].unit or "0 to 1, or a percentage"
            errors.append(FieldError((key,), f"must be a number more than 0 ({unit})"))
        else:
            limits[str(key)] = float(limit)
    if errors:
        raise FieldErrors(errors)
    return limits


def _of_seconds(limits: Dict[str, float]) -> Dict[str, float]:
    errors = [
        FieldError((key,), f"a second is judged by {' and '.join(_OF_SECONDS)} only", of_key=True)
        for key in limits
        if target_of(key).metric not in _OF_SECONDS
    ]
    if errors:
        raise FieldErrors(errors)
    return limits


#: of each step of a ladder
Objective = Annotated[
    Dict[str, float],
    BeforeValidator(_objective),
    WithJsonSchema({"type": "object", "minProperties": 1, "additionalProperties": {"type": ["number", "string"]}}),
]
#: of each second beside a failure
SecondsObjective = Annotated[Objective, AfterValidator(_of_seconds)]
