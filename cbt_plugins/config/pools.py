"""`pools:` -- the pools that a run makes for itself, and those of others that it gives other options meanwhile."""

from __future__ import annotations

import re
from typing import Annotated, Any, Dict, List, Literal, Optional, Tuple

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from cbt_plugins import plan
from cbt_plugins.config.key_errors import FieldError, FieldErrors, Strict, exactly_one, only_one
from cbt_plugins.config.shell_values import CrushName, check_option_value
from cbt_plugins.models.pools import Redundancy

#: a pool of ours is cbtp-<run id>-<key>
_KEY = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_LONGEST = 40
#: one that exists
_NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.+-]*")
_KEPT = ("replicas", "ec", "existing")
#: what says where a pool's PGs are; `rule` says it in one word
_PLACES = ("root", "failure_domain", "device_class")
#: what can be said of a new pool only
_OF_NEW = ("profile", "rule", *_PLACES, "application")
#: of the erasure code's profile, by keys of ours or by `ec`
_OWN_OPTIONS = re.compile(r"k|m|crush-.*|ruleset-.*|directory")
_OPTION = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_EC_PATTERN = r"^\s*([eE][cC] ?)?[0-9]{1,2} ?\+ ?[0-9]{1,2}\s*$"


def _ec(value: Any) -> Tuple[int, int]:
    if not isinstance(value, str) or "+" not in value:
        raise ValueError("must be an erasure code such as 4+2")
    kept = Redundancy.parse(value)
    if kept.m < 1 or kept.size > 64:
        raise ValueError(f"{value.strip()}: an erasure code has 1 coding chunk or more, and at most 64 chunks in all")
    return kept.k, kept.m


def _profile(value: Any) -> Any:
    if not isinstance(value, dict) or not value:
        raise ValueError("must be a mapping such as {plugin: isa, technique: cauchy}")
    errors: List[FieldError] = []
    profile: Dict[str, str] = {}
    for name, option in value.items():
        if not isinstance(name, str) or not _OPTION.fullmatch(name):
            errors.append(FieldError((name,), f"not the name of an option: {name!r}", of_key=True))
        elif _OWN_OPTIONS.fullmatch(name):
            keys = "ec, root, failure_domain, device_class or rule"
            errors.append(FieldError((name,), f"is set by another key of the pool: {keys}", of_key=True))
        elif isinstance(option, bool) or not isinstance(option, (str, int)) or option == "":
            errors.append(FieldError((name,), "must be text or a whole number"))
        else:
            try:
                profile[name] = check_option_value(str(option))
            except ValueError as error:
                errors.append(FieldError((name,), str(error)))
    if errors:
        raise FieldErrors(errors)
    return profile


_Ec = Annotated[
    Tuple[int, int],
    BeforeValidator(_ec),
    WithJsonSchema({"type": "string", "pattern": _EC_PATTERN, "examples": ["4+2"], "title": "k+m"}),
]
_Profile = Annotated[
    Dict[str, str],
    BeforeValidator(_profile),
    WithJsonSchema(
        {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {"type": ["string", "integer"]},
            "examples": [{"plugin": "isa", "technique": "cauchy"}],
        }
    ),
]


class CompressionSection(Strict):
    """Compression by BlueStore."""

    mode: Literal["none", "passive", "aggressive", "force"] = Field(description="When BlueStore compresses.")
    algorithm: Optional[Literal["snappy", "zlib", "zstd", "lz4"]] = Field(
        None, description="Default: the algorithm of the OSDs."
    )


class PoolSection(Strict):
    """One pool: exactly one of replicas, ec, existing."""

    model_config = ConfigDict(json_schema_extra=exactly_one(_KEPT))

    replicas: Optional[Annotated[int, Field(ge=1, le=10)]] = Field(None, description="Copies of each object.")
    ec: Optional[_Ec] = Field(None, description="Erasure code, `k+m`.")
    existing: Optional[Literal[True]] = Field(
        None,
        description="Your consent: an existing pool, of whatever use, has these options during the run.",
    )
    pg_num: Optional[Annotated[int, Field(ge=1, le=65536)]] = Field(
        None, description="Number of PGs; the autoscaler is off."
    )
    target_ratio: Optional[Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False, strict=False)]] = Field(
        None, description="target_size_ratio, for the autoscaler."
    )
    bulk: Optional[bool] = Field(None, description="bulk, for the autoscaler.")
    compression: Optional[CompressionSection] = Field(None, description="Compression by BlueStore.")
    application: Optional[CrushName] = Field(
        None, description=f"Application of the pool. Default: `{plan.RunPool.application}`."
    )
    profile: Optional[_Profile] = Field(None, description="Profile of the erasure code: `{plugin: isa}`.")
    rule: Optional[CrushName] = Field(None, description="Existing CRUSH rule.")
    root: Optional[CrushName] = Field(None, description=f"Root of the pool's own CRUSH rule. Default: `{plan.ROOT}`.")
    failure_domain: Optional[CrushName] = Field(
        None, description=f"Failure domain of the pool's own CRUSH rule. Default: `{plan.FAILURE_DOMAIN}`."
    )
    device_class: Optional[CrushName] = Field(
        None, description="Device class of the pool's own CRUSH rule: `hdd`, `ssd`, ..."
    )

    @model_validator(mode="after")
    def _check_section(self) -> PoolSection:
        kept = only_one(self, _KEPT)
        given = [name for name, value in self if value is not None]
        errors = []
        if kept == "existing":
            text = "is for a pool that the run makes"
            errors = [FieldError((name,), text, of_key=True) for name in _OF_NEW if name in given]
            if len(given) == 1:
                errors.append(FieldError((), "existing: and nothing to change: leave the pool out"))
        if self.profile is not None and kept == "replicas":
            errors.append(FieldError(("profile",), "goes with ec", of_key=True))
        if self.rule is not None:
            text = "is set by rule already: keep one of the two keys"
            errors += [FieldError((name,), text, of_key=True) for name in _PLACES if name in given]
        if self.pg_num is not None:
            text = "is for the autoscaler, which pg_num switches off: keep one"
            errors += [FieldError((name,), text, of_key=True) for name in ("target_ratio", "bulk") if name in given]
        if errors:
            raise FieldErrors(errors)
        return self

    def to_plan(self, key: str) -> plan.RunPool:
        """Return the plan's pool."""
        compression = self.compression
        options: List[Tuple[str, str]] = [("compression_mode", compression.mode)] if compression else []
        if compression and compression.algorithm:
            options.append(("compression_algorithm", compression.algorithm))
        return plan.RunPool(
            key,
            existing=bool(self.existing),
            replicas=self.replicas,
            ec=self.ec,
            profile=tuple((self.profile or {}).items()),
            rule=self.rule or "",
            root=self.root or "",
            failure_domain=self.failure_domain or "",
            device_class=self.device_class or "",
            pg_num=self.pg_num,
            target_ratio=self.target_ratio,
            bulk=self.bulk,
            application=self.application or plan.RunPool.application,
            options=tuple(options),
        )


def _names(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    errors = []
    for key, pool in value.items():
        if not isinstance(key, str):
            continue
        if isinstance(pool, dict) and pool.get("existing"):
            if not _NAME.fullmatch(key):
                errors.append(FieldError((key,), f"not the name of a pool: {key!r}", of_key=True))
        elif not _KEY.fullmatch(key) or len(key) > _LONGEST:
            text = f"{key!r}: a name is made of up to {_LONGEST} of a-z, 0-9 and -: the pool is cbtp-<run id>-<name>"
            errors.append(FieldError((key,), text, of_key=True))
    if errors:
        raise FieldErrors(errors)
    return value


PoolsSection = Annotated[
    Dict[str, PoolSection],
    BeforeValidator(_names),
    Field(max_length=100),
]
