"""`settings:` -- what is set on the cluster for the length of the run, and how long it may take."""

from __future__ import annotations

import re
from typing import Annotated, Any, Dict, List, Literal, Optional, Sequence, Tuple, Union

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator, model_validator

from cbt_plugins import cluster_conditions, plan
from cbt_plugins.config.key_errors import FieldError, FieldErrors, Strict, errors_of_words, file_default
from cbt_plugins.config.shell_values import check_option_value
from cbt_plugins.config.units import Duration, format_duration

#: whom `ceph config set` addresses: a section, perhaps a daemon, perhaps a mask
_WHO = re.compile(r"(global|mon|mgr|osd|mds|client)(\.[A-Za-z0-9._-]+)?(/(class|host|rack|root)[:=][A-Za-z0-9._-]+)?")
_OPTION = re.compile(r"[a-z][a-z0-9_]*(/[A-Za-z0-9_./-]+)?")
_SECRET = re.compile(r"password|passwd|secret|(^|_)token($|_)")
_SCRUB = ("noscrub", "nodeep-scrub")
#: options that a daemon reads when it starts, although `config help` says that they can be changed at runtime: Ceph
#: takes every number for one that can unless it is told otherwise
AT_START = frozenset(
    {"rgw_thread_pool_size", "rgw_num_rados_handles", "rgw_gc_max_objs", "rgw_cache_enabled", "ms_async_op_threads"}
)


def _switch(value: Any) -> bool:
    # YAML 1.1, which CBT reads, makes true and false of on and off; other programs leave them as they are
    if isinstance(value, str) and value in ("on", "off"):
        return value == "on"
    if not isinstance(value, bool):
        raise ValueError("must be on or off")
    return value


Switch = Annotated[bool, BeforeValidator(_switch), WithJsonSchema({"enum": ["on", "off", True, False]})]
_AFTER: Literal["deep-after"] = "deep-after"


def _scrub(value: Any) -> Union[bool, str]:
    try:
        return value if value == _AFTER else _switch(value)
    except ValueError:
        raise ValueError(f"must be on, off or {_AFTER}") from None


_Scrub = Annotated[
    Union[bool, Literal["deep-after"]],
    BeforeValidator(_scrub),
    WithJsonSchema({"enum": ["on", "off", _AFTER, True, False]}),
]


def _config(value: Any) -> Any:
    """Return {who: {option: value}}, values as text."""
    if not isinstance(value, dict):
        raise ValueError("must be a mapping such as {osd: {osd_max_backfills: 4}}")
    errors: List[FieldError] = []
    config: Dict[str, Dict[str, str]] = {}
    for who, options in value.items():
        if not isinstance(who, str) or not _WHO.fullmatch(who):
            targets = "global, mon, mgr, osd, mds, client, osd.3, osd/class:ssd"
            errors.append(
                FieldError((who,), f"unknown target {who!r} of `ceph config set`; use {targets}", of_key=True)
            )
        elif not isinstance(options, dict) or not options:
            errors.append(FieldError((who,), "must be a mapping: option -> value"))
        else:
            config[who] = {}
            for option, to in options.items():
                try:
                    config[who][option] = _value(option, to)
                except ValueError as error:
                    errors.append(FieldError((who, option), str(error)))
    if errors:
        raise FieldErrors(errors)
    return config


def _value(option: Any, value: Any) -> str:
    if not isinstance(option, str) or not _OPTION.fullmatch(option):
        raise ValueError(f"not an option name: {option!r}")
    if _SECRET.search(option):
        raise ValueError("no secret in the YAML: set it yourself")
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, (str, int, float)) or value == "":
        raise ValueError("must be text, a number, or true or false")
    return check_option_value(str(value))


_Config = Annotated[
    Dict[str, Dict[str, str]],
    BeforeValidator(_config),
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "minProperties": 1,
                "additionalProperties": {"type": ["string", "number", "boolean"]},
            },
            "examples": [{"osd": {"osd_max_backfills": 4}}],
        }
    ),
]


class LimitsSection(Strict):
    """How long the cluster may take before a fault, or its undo, counts as failed; none is scaled."""

    command: Duration = Field(30.0, description="An answer, or a change of the cluster's map.")
    daemons: Duration = Field(180.0, description="A command that stops or starts a node's daemons, or its power.")
    down: Duration = Field(60.0, description="Until OSDs are seen down.")
    back: Duration = Field(300.0, description="Until the OSDs are seen up and in.")
    boot: Duration = Field(900.0, description="Of a reboot with its OSDs, or a new OSD; at least `back`.")

    @model_validator(mode="after")
    def _check_section(self) -> LimitsSection:
        if "boot" in self.model_fields_set and self.boot < self.back:
            text = f"is shorter than back, {format_duration(self.back)}: the OSDs of a node come back after its start"
            raise FieldErrors([FieldError(("boot",), text)])
        return self

    def to_plan(self) -> Dict[str, float]:
        """Return the durations that are given, in seconds by name."""
        given = {name: seconds for name, seconds in self if name in self.model_fields_set}
        return {**given, "boot": max(self.boot, self.back)} if "back" in given and self.back > self.boot else given


class SettingsSection(Strict):
    """Set on the cluster before the first phase, and restored at the end, however the run ends."""

    scrub: Optional[_Scrub] = Field(
        None,
        description="`off`: flags noscrub, nodeep-scrub; `on`: as it is; "
        "`deep-after`: `off`, then deep-scrub RGW's log and index pools.",
    )
    balancer: Optional[Switch] = Field(None, description="The mgr's balancer.")
    autoscaler: Optional[Switch] = Field(
        None, description="pg_autoscale_mode of every pool. The undo of `on` restores pg_num too."
    )
    flags: List[str] = Field(
        [], description="Flags of the OSD map: `noout`, `norebalance`, ..."
    )
    config: _Config = Field({}, description="`{osd: {osd_max_backfills: 4}}`, as `ceph config set` takes it.")
    recovery: Optional[Literal["aggressive"]] = Field(
        None,
        description="`aggressive`: from the first fault on, recovery is as fast as the disks allow.",
    )
    accept: List[str] = Field(
        [],
        description="Conditions to begin with, which forbid no verdict: "
        + ", ".join(f"`{name}`" for name in cluster_conditions.NAMES)
        + ".",
    )
    limits: LimitsSection = file_default(
        LimitsSection.model_validate,
        {},
        description="When a fault or undo has failed; never scaled.",
    )

    @field_validator("flags", "accept")
    @classmethod
    def _check_words(cls, words: List[str], info: ValidationInfo) -> List[str]:
        allowed, text = {
            "flags": (plan.OSD_FLAGS, "not a flag that a run may set"),
            "accept": (cluster_conditions.NAMES, "unknown condition"),
        }[info.field_name or ""]
        errors = errors_of_words(words, allowed, text)
        if errors:
            raise FieldErrors(errors)
        return words

    @model_validator(mode="after")
    def _check_section(self) -> SettingsSection:
        scrub_flags = [flag for flag in _SCRUB if flag in self.flags and self.scrub is True]
        if scrub_flags:
            raise FieldErrors([FieldError(("scrub",), f"on, but flags has {', '.join(scrub_flags)}: keep one")])
        return self

    def hidden(self, accept: Sequence[str]) -> List[str]:
        """Return the reason why the cluster would not see a fault that accepts these rules: a flag that hides it."""
        flags = [flag for flag in self.flags if flag in plan.BLINDING_FLAGS]
        if not flags or "flags" in accept:
            return []
        return [f"settings: {', '.join(flags)} hides the fault from the cluster (accept: [flags] overrides)"]

    @property
    def deep_scrub(self) -> bool:
        """Whether one follows the run."""
        return self.scrub == _AFTER

    def to_plan(self, scrub: Optional[bool] = None) -> plan.Settings:
        """Return the plan's settings; `scrub` is what a file that does not say means."""
        scrub = scrub if self.scrub is None else self.scrub is True
        flags = (*(_SCRUB if scrub is False else ()), *self.flags)
        config: Tuple[Tuple[str, str, str], ...] = tuple(
            (who, option, value) for who, options in self.config.items() for option, value in options.items()
        )
        return plan.Settings(
            flags=tuple(dict.fromkeys(flags)),
            config=config,
            balancer=self.balancer,
            autoscaler=self.autoscaler,
            deep_scrub=self.deep_scrub,
            recovery=self.recovery or "",
            accept=tuple(dict.fromkeys(self.accept)),
            limits=self.limits.to_plan(),
        )
