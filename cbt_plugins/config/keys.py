"""`keys:` -- which objects an operation of cbt-load takes, in COSBench's words: u(1,N), s(N+1,10N), r(1,N)."""

from __future__ import annotations

import re
from typing import Annotated, Any, Dict, NamedTuple, Optional, Tuple

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator

from cbt_plugins import plan
from cbt_plugins.config.errors import did_you_mean
from cbt_plugins.config.validate import Problem, Problems, Strict

_WORDS = ("live", "new")
#: cbt-load keeps a bit for each number
_LARGEST = 1 << 36
_BOUND_PATTERN = r"(?:[0-9]{1,11}|(?:[1-9][0-9]{0,8})?N(?:\+[0-9]{1,11})?)"
_PATTERN = rf"(?:live|new|[usr]\( *{_BOUND_PATTERN} *, *{_BOUND_PATTERN} *\))"
_BOUND = re.compile(r"(?:([0-9]*)N)?\+?([0-9]*)")
_FORMS = (
    "write live, new, u(1,N) (any of them), s(N+1,10N) (one after the other) or r(1,N) (each once); "
    "a bound is a number, N, 2N, N+1 or 2N+1"
)


class Range(NamedTuple):
    """Numbers of objects from `first` to `last`, each a pair (k, i) that stands for k*N+i."""

    way: str  # "u", "s" or "r"
    first: Tuple[int, int]
    last: Tuple[int, int]


def range_of(select: str) -> Optional[Range]:
    """Return the range that `u(1,N)` and its like say; None for live and new."""
    if select in _WORDS:
        return None
    first, _, last = select[2:-1].partition(",")
    return Range(select[0], _bound(first), _bound(last))


def _bound(text: str) -> Tuple[int, int]:
    match = _BOUND.fullmatch(text)
    assert match is not None
    times, plus = match.groups()
    return (0 if times is None else int(times or 1)), int(plus or 0)


def _select(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(_FORMS)
    text = value.replace(" ", "")
    if "(" in text and not text.endswith(")"):
        # {put: u(1,2N)}: YAML ends the value at the comma
        raise ValueError(f"{value!r} breaks off: between braces a comma ends a value; quote it: 'u(1,2N)'")
    if not re.fullmatch(_PATTERN, text):
        folded = text[:1].lower() + text[1:].replace("n", "N")
        hint = f"; did you mean {folded!r}?" if re.fullmatch(_PATTERN, folded) else did_you_mean(text, _WORDS)
        raise ValueError(f"{value!r} is no choice of keys{hint or '; ' + _FORMS}")
    found = range_of(text)
    if found:
        (times, plus), (to_times, to_plus) = found.first, found.last
        if not times and plus < 1:
            raise ValueError("the numbers of objects begin with 1")
        if max(plus, to_plus) > _LARGEST:
            raise ValueError(f"the numbers of objects end with {_LARGEST}")
        # k grows faster than any i: which of 5 and N is larger is known when the fill is over
        if to_times < times or (to_times == times and to_plus < plus):
            raise ValueError(f"{text}: the range ends before it begins")
    return text


def _keys(value: Any) -> plan.Keys:
    if not isinstance(value, dict):
        return plan.Keys(_select(value))
    problems = []
    for key in value:
        if key not in ("select", "absent"):
            hint = did_you_mean(str(key), ("select", "absent")) or "; known here: select, absent"
            problems.append(Problem((key,), f"unknown key{hint}", of_key=True))
    select, absent = "", value.get("absent", False)
    try:
        select = _select(value["select"])
    except KeyError:
        problems.append(Problem(("select",), "this key is required"))
    except ValueError as error:
        problems.append(Problem(("select",), str(error)))
    if not isinstance(absent, bool):
        problems.append(Problem(("absent",), "must be true or false"))
    if problems:
        raise Problems(problems)
    return plan.Keys(select, absent)


_TEXT = {"type": "string", "pattern": f"^{_PATTERN}$"}
_Keys = Annotated[
    plan.Keys,
    BeforeValidator(_keys),
    WithJsonSchema(
        {
            "anyOf": [
                _TEXT,
                {
                    "type": "object",
                    "required": ["select"],
                    "properties": {"select": _TEXT, "absent": {"type": "boolean"}},
                    "additionalProperties": False,
                },
            ],
            "examples": ["live", "u(1,N)", {"select": "u(1,2N)", "absent": True}],
        }
    ),
]


class KeysSection(Strict):
    """Which objects an operation takes: `live`, `new`, or a range such as `u(1,2N)`; N is what the fill wrote."""

    get: Optional[_Keys] = Field(None, description="Of a range: those that exist. Without this key `live`.")
    put: Optional[_Keys] = Field(None, description="Of a range: makes or overwrites. Without this key `new`.")
    stat: Optional[_Keys] = Field(None, description="As get.")
    delete: Optional[_Keys] = Field(
        None, description="As get; `{select: u(1,2N), absent: true}` also takes what does not exist, as COSBench does."
    )
    multipart: Optional[_Keys] = Field(None, description="As put.")

    @field_validator("get", "put", "stat", "delete", "multipart")
    @classmethod
    def _makes_sense(cls, keys: Optional[plan.Keys], info: ValidationInfo) -> Optional[plan.Keys]:
        if keys is None:
            return keys
        name = info.field_name
        if keys.select == "new" and name not in ("put", "multipart"):
            raise ValueError(f"only put and multipart make new objects; {name} takes live, or a range such as u(1,N)")
        if keys.select == "live" and name in ("put", "multipart"):
            raise ValueError(f"{name} takes new, or a range such as u(1,N), whose objects it makes or overwrites")
        if keys.absent and name != "delete":
            raise Problems([Problem(("absent",), f"is for delete only, not for {name}", of_key=True)])
        if keys.absent and not keys.select.startswith("u("):
            text = f"goes with a range u(a,b) only, not with {keys.select}"
            raise Problems([Problem(("absent",), text, of_key=True)])
        return keys

    def to_plan(self) -> Dict[str, plan.Keys]:
        """Return the keys by upper-case operation."""
        return {name.upper(): keys for name, keys in self if keys is not None}
