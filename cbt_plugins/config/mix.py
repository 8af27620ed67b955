"""Which operations a phase does (`mix:`), on which objects (`keys:`) and in which buckets (`roles:`)."""

from __future__ import annotations

import re
from typing import Annotated, Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator, model_validator

from cbt_plugins import plan
from cbt_plugins.config.errors import Path, did_you_mean
from cbt_plugins.config.fill_keys import MOST_OBJECTS
from cbt_plugins.config.key_errors import FieldError, FieldErrors, Strict


def _mix_part(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("must be a number: percent of the requests, without %")
    if not 0 <= value <= 100:
        raise ValueError("must be between 0 and 100 (percent of the requests)")
    return float(value)


_MixPart = Annotated[
    float, BeforeValidator(_mix_part), WithJsonSchema({"type": "number", "minimum": 0, "maximum": 100})
]


class MixSection(Strict):
    """Percent of the requests by operation; the sum is 100."""

    get: _MixPart = Field(0, description="Whole objects.")
    put: _MixPart = Field(0, description="Whole objects.")
    stat: _MixPart = Field(0, description="HEAD requests.")
    delete: _MixPart = Field(0, description="DELETE requests; with warp never more than put.")
    list: _MixPart = Field(0, description="cbt-load, hsbench. LIST requests on a bucket.")
    multipart: _MixPart = Field(0, description="cbt-load. Objects that are written in parts.")

    @model_validator(mode="after")
    def _check_section(self) -> MixSection:
        total = sum(value for _, value in self)
        if abs(total - 100) > 1e-6:
            raise ValueError(f"the sum of the mix is {total:g}, not 100")
        return self

    @property
    def writes(self) -> bool:
        """Whether it makes objects."""
        return bool(self.put or self.multipart)

    def to_plan(self) -> Dict[str, float]:
        """Return percent by upper-case operation, without those that never happen."""
        return {name.upper(): value for name, value in self if value}


#: the mix of the Reef study
DEFAULT_MIX_TEXT: Dict[str, Any] = {"get": 45, "put": 35, "stat": 15, "delete": 5}
DEFAULT_MIX = MixSection.model_validate(DEFAULT_MIX_TEXT)


_WORDS = ("live", "new")
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
        raise ValueError(f"{value!r} is incomplete: between braces a comma ends a value; quote it: 'u(1,2N)'")
    if not re.fullmatch(_PATTERN, text):
        folded = text[:1].lower() + text[1:].replace("n", "N")
        hint = f"; did you mean {folded!r}?" if re.fullmatch(_PATTERN, folded) else did_you_mean(text, _WORDS)
        raise ValueError(f"not a choice of keys: {value!r}{hint or '; ' + _FORMS}")
    key_range = range_of(text)
    if key_range:
        (times, plus), (to_times, to_plus) = key_range.first, key_range.last
        if not times and plus < 1:
            raise ValueError("the numbers of objects begin with 1")
        if max(plus, to_plus) > MOST_OBJECTS:
            raise ValueError(f"the numbers of objects end with {MOST_OBJECTS}")
        # k grows faster than any i: which of 5 and N is larger is known when the fill is over
        if to_times < times or (to_times == times and to_plus < plus):
            raise ValueError(f"{text}: the range ends before it begins")
    return text


def _keys(value: Any) -> plan.Keys:
    if not isinstance(value, dict):
        return plan.Keys(_select(value))
    errors = []
    for key in value:
        if key not in ("select", "absent"):
            hint = did_you_mean(str(key), ("select", "absent")) or "; known here: select, absent"
            errors.append(FieldError((key,), f"unknown key{hint}", of_key=True))
    select, absent = "", value.get("absent", False)
    try:
        select = _select(value["select"])
    except KeyError:
        errors.append(FieldError(("select",), "this key is required"))
    except ValueError as error:
        errors.append(FieldError(("select",), str(error)))
    if not isinstance(absent, bool):
        errors.append(FieldError(("absent",), "must be true or false"))
    if errors:
        raise FieldErrors(errors)
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

    get: Optional[_Keys] = Field(None, description="Of a range, numbers that exist. Default: `live`.")
    put: Optional[_Keys] = Field(None, description="Makes or overwrites the numbers of a range. Default: `new`.")
    stat: Optional[_Keys] = Field(None, description="As get.")
    delete: Optional[_Keys] = Field(
        None, description="As get; `{select: u(1,2N), absent: true}` also takes what does not exist."
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
            raise FieldErrors([FieldError(("absent",), f"is for delete only, not for {name}", of_key=True)])
        if keys.absent and not keys.select.startswith("u("):
            text = f"goes with a range u(a,b) only, not with {keys.select}"
            raise FieldErrors([FieldError(("absent",), text, of_key=True)])
        return keys

    def to_plan(self) -> Dict[str, plan.Keys]:
        """Return the keys by upper-case operation."""
        return {name.upper(): keys for name, keys in self if keys is not None}


def _bucket(value: Any) -> Union[int, str]:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError("must be the number of a bucket, from 1, or its name")
    return value


Buckets = Annotated[
    List[
        Annotated[
            Union[int, str],
            BeforeValidator(_bucket),
            WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "minLength": 1}]}),
        ]
    ],
    Field(min_length=1, description="Buckets of the operation."),
]


class RolesSection(Strict):
    """The buckets, by number from 1 or by name, that an operation works on; all without its key."""

    get: Optional[Buckets] = None
    put: Optional[Buckets] = None
    stat: Optional[Buckets] = None
    delete: Optional[Buckets] = None
    list: Optional[Buckets] = None
    multipart: Optional[Buckets] = None

    def errors(self, names: Sequence[str]) -> List[FieldError]:
        """Return the places that speak of buckets which are not among `names`."""
        return [error for op, chosen in self for error in errors_of_buckets((op,), chosen or (), names)]

    def to_plan(self, names: Sequence[str]) -> Dict[str, Tuple[str, ...]]:
        """Return names of buckets by upper-case operation."""
        return {
            op.upper(): tuple(n for bucket in chosen for n in named(bucket, names)) for op, chosen in self if chosen
        }


def errors_of_buckets(path: Path, chosen: Sequence[Union[int, str]], names: Sequence[str]) -> List[FieldError]:
    """Return an error for each bucket of the list at `path` that is not among `names`, or is there twice."""
    errors = []
    taken: List[str] = []
    for index, bucket in enumerate(chosen):
        try:
            buckets = named(bucket, names)
            if set(buckets) & set(taken):
                raise ValueError(f"{bucket} is in the list twice")
            taken += buckets
        except ValueError as error:
            errors.append(FieldError((*path, index), str(error)))
    return errors


def named(bucket: Union[int, str], names: Sequence[str]) -> Tuple[str, ...]:
    """Return the buckets that a number from 1, a name, or the name of a group (`a` of a-1, a-2) stands for.

    Raises ValueError.
    """
    if isinstance(bucket, int):
        if not 1 <= bucket <= len(names):
            numbers = f"the buckets are 1 to {len(names)}" if len(names) > 1 else "the only bucket is 1"
            raise ValueError(f"no bucket {bucket}; {numbers}")
        return (names[bucket - 1],)
    group = re.compile(rf"{re.escape(bucket)}-[0-9]+")
    buckets = (bucket,) if bucket in names else tuple(name for name in names if group.fullmatch(name))
    if not buckets:
        hint = did_you_mean(bucket, names) or f"; there are: {', '.join(names)}"
        raise ValueError(f"no bucket {bucket!r}{hint}")
    return buckets
