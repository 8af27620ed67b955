"""CBT's key `acceptable`: the numbers of a run that its compare.py judges, and the statements it judges them by."""

from __future__ import annotations

from typing import Any, Callable, Collection, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from cbt_plugins.config.errors import did_you_mean
from cbt_plugins.config.key_errors import FieldError
from cbt_plugins.metrics import ACCEPTABLE, TOTAL
from cbt_plugins.plan import split_op
from cbt_plugins.s3_operations import OPERATIONS

#: CBT's fifth name
_CYCLES = "cpu_cycles_per_op"
OPS = (*OPERATIONS, TOTAL)

#: (result, baseline) -> whether that is accepted
Check = Callable[[float, float], bool]
_STATEMENTS = "CBT knows (less), (greater), (near 0.05) and (or A B)"


class Target(NamedTuple):
    """What a key of `acceptable` is about: [phase/][operation/]metric."""

    phase: Optional[str]  # None: every measurement
    op: str
    metric: str


def target_of(key: str) -> Target:
    """Read "p99_ms", "GET/p99_ms", "measure-aged/p99_ms" or "measure-aged/GET/p99_ms". Raises ValueError."""
    *places, metric = key.split("/")
    if metric == _CYCLES:
        raise ValueError("not measured; use ops_per_core, the operations per core")
    if metric not in ACCEPTABLE:
        hint = did_you_mean(metric, ACCEPTABLE) or f"; known here: {', '.join(ACCEPTABLE)}"
        raise ValueError(f"unknown metric {metric!r}{hint}")
    op = TOTAL
    if places and (places[-1] in OPS or ":" in places[-1] or len(places) > 1):
        op = places.pop()
        work, of_work = split_op(op)
        if of_work not in OPS or (work and of_work == TOTAL):
            raise ValueError(f"unknown operation {op!r}; known here: {', '.join(OPS)}")
    if len(places) > 1 or "" in places:
        raise ValueError("must be metric, operation/metric, phase/metric or phase/operation/metric")
    if op != TOTAL and ACCEPTABLE[metric].total_only:
        raise ValueError(f"{metric} exists for all operations together only")
    return Target(places[0] if places else None, op, metric)


def parse(statement: str) -> Check:
    """Return a statement as CBT's interpreter reads it. Raises ValueError for one that would mislead or break it."""
    check, tokens_left = _parse(statement.replace("(", " ( ").replace(")", " ) ").split())
    if tokens_left:
        raise ValueError(f"unexpected {tokens_left[0]!r} after the end of the statement; {_STATEMENTS}")
    return check


def _parse(tokens: Sequence[str]) -> Tuple[Check, Sequence[str]]:
    if not tokens:
        raise ValueError(f"incomplete statement; {_STATEMENTS}")
    if tokens[0] != "(":
        raise ValueError(f"expected a statement in parentheses, not {tokens[0]!r}; {_STATEMENTS}")
    name, tokens_left = (tokens[1], tokens[2:]) if len(tokens) > 1 else ("", ())
    checks: List[Check] = []
    if name == "near":
        if not tokens_left or tokens_left[0] in "()":
            raise ValueError("near needs a number: (near 0.05) is 5 % around the baseline")
        checks, tokens_left = [_near(tokens_left[0])], tokens_left[1:]
    elif name == "or":
        for _ in range(2):
            check, tokens_left = _parse(tokens_left)
            checks.append(check)
    elif name in ("less", "greater"):
        checks = [_less if name == "less" else _greater]
    else:
        raise ValueError(f"unknown function {name!r}; {_STATEMENTS}")
    if not tokens_left:
        raise ValueError(f"incomplete statement; {_STATEMENTS}")
    if tokens_left[0] != ")":
        takes = {"near": "one number", "or": "two statements"}.get(name, "nothing")
        raise ValueError(f"{name} takes {takes}, found {tokens_left[0]!r} too; {_STATEMENTS}")
    return (lambda result, baseline: any(check(result, baseline) for check in checks)), tokens_left[1:]


def _less(result: float, baseline: float) -> bool:
    return result < baseline


def _greater(result: float, baseline: float) -> bool:
    return result > baseline


def _near(text: str) -> Check:
    try:
        share = float(text)
    except ValueError:
        raise ValueError(f"near needs a number, not {text!r}: (near 0.05) is 5 % around the baseline") from None
    if not 0 <= share <= 1:
        raise ValueError(f"near needs a share from 0 to 1, not {text}: (near 0.05) is 5 % around the baseline")
    return lambda result, baseline: (
        abs(result - baseline) / baseline <= share if baseline else result == baseline
    )


def errors(acceptable: Any, phases: Collection[str]) -> Iterator[FieldError]:
    """Yield every error, with paths from the section down. `phases`: all that the section runs; () when not known."""
    if not isinstance(acceptable, dict):
        text = "must be a mapping: metric -> statement, such as {bandwidth: '(or (greater) (near 0.05))'}"
        yield FieldError(("acceptable",), text)
        return
    for key, statement in acceptable.items():
        path = ("acceptable", key)
        try:
            target = target_of(key if isinstance(key, str) else str(key))
            if phases and target.phase is not None and target.phase not in phases:
                hint = did_you_mean(target.phase, phases) or f"; phases here: {', '.join(phases)}"
                yield FieldError(path, f"there is no phase {target.phase!r}{hint}", of_key=True)
        except ValueError as error:
            yield FieldError(path, str(error), of_key=True)
        try:
            if not isinstance(statement, str):
                raise ValueError(f"must be a statement as text; {_STATEMENTS}")
            parse(statement)
        except ValueError as error:
            yield FieldError(path, str(error))
