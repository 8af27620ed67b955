"""`campaign:` -- arms, which are this file with some keys changed, and when their comparison is decided."""

from __future__ import annotations

import copy
import fnmatch
import re
from typing import Annotated, Any, Callable, Dict, Iterator, List, Literal, Mapping, Optional

import yaml
from pydantic import Field, ValidationInfo, field_validator, model_validator

from cbt_plugins.config import plugins
from cbt_plugins.config.errors import ConfigError, ErrorAt, did_you_mean
from cbt_plugins.config.events import FAULT_FILES
from cbt_plugins.config.key_errors import FieldError, FieldErrors, Strict, validate
from cbt_plugins.config.repeated_cycle import RepeatedCycleSection
from cbt_plugins.config.shell_values import ShellCommand
from cbt_plugins.config.units import Duration, Percent, format_percent
from cbt_plugins.config.yaml_source import YamlSource
from cbt_plugins.metrics import ALPHA, MARGIN, METRICS

#: the section's name, which CBT does not read
KEY = "campaign"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
#: sections of the file that an arm may change
CHANGED = ("cluster", "benchmarks", "monitoring_profiles", "client_endpoints", "common")
#: blocks of a budget: 8 hours of blocks of 3 minutes
MOST_BLOCKS = 160
_Keys = Dict[str, Any]
_MERGED: Any = Field({}, description="Merged into the section of this name.")


def check_keys(keys: List[str]) -> List[str]:
    """Return patterns of key rows; raises FieldErrors for those that no decision can be about."""
    wrong = []
    for index, pattern in enumerate(keys):
        metric = pattern.rpartition(".")[2]
        if not fnmatch.filter(METRICS, metric):
            text = f"{metric!r} is no metric{did_you_mean(metric, METRICS) or '; write [PHASE.]OPERATION.METRIC'}"
            wrong.append(FieldError((index,), text))
    if wrong:
        raise FieldErrors(wrong)
    return keys


class ArmSection(Strict):
    """One side of the comparison: the file with these keys changed. A list replaces a list."""

    prepare: List[ShellCommand] = Field([], description="Shell commands before each cycle of the arm.")
    restart: Optional[ShellCommand] = Field(
        None, description="Shell command that restarts all daemons (`code_or_defaults`)."
    )
    cluster: _Keys = _MERGED
    benchmarks: _Keys = _MERGED
    monitoring_profiles: _Keys = _MERGED
    client_endpoints: _Keys = _MERGED
    common: _Keys = _MERGED


class CampaignSection(RepeatedCycleSection):
    """The same cycle on several arms, in turns, until the answer is sure. CBT ignores this section."""

    arms: Dict[str, ArmSection] = Field(min_length=2, description="Name -> what it changes in the file.")
    base: Optional[str] = Field(None, description="Arm that all other arms are compared with. Default: the first arm.")
    blocks: int = Field(20, ge=4, le=MOST_BLOCKS, description="The budget. Two arms: four cycles each, A B B A.")
    margin: Percent = Field(
        MARGIN,
        description="The smallest change that matters; a surely smaller change is equivalent. For success rates: "
        f"{format_percent(METRICS['success_rate'].margin)}. Bad seconds, gaps and counts of failures have their own, "
        "such as 1 s.",
    )
    alpha: Percent = Field(
        ALPHA,
        description="Chance of any false `better` or `worse` in the campaign.",
    )
    spending: Literal["pocock", "obrien-fleming"] = Field(
        "pocock", description="`pocock` ends early for large changes; `obrien-fleming` finds more small changes."
    )
    seed: int = Field(0, ge=0, description="Seed of the order of arms in blocks.")
    keys: List[Annotated[str, Field(min_length=1)]] = Field(
        [], description="Key rows, as in `compare --key`: `total.p99_ms`, `measure*.GET.obj_per_s`."
    )
    prepare: List[ShellCommand] = Field(
        [], description="Shell commands before each cycle; the commands of the arm follow."
    )
    prepare_limit: Duration = Field(
        3600.0, description="Time limit of each command."
    )
    code_or_defaults: bool = Field(
        False,
        description="Two arms become four: each release also with the defaults of Ceph's options of the other release.",
    )

    @field_validator("margin", "alpha")
    @classmethod
    def _sane(cls, share: float, info: ValidationInfo) -> float:
        most, meaning = {"margin": (0.5, "what counts as no change"), "alpha": (0.2, "the chance of a false verdict")}[
            info.field_name or ""
        ]
        if share > most:
            raise ValueError(f"must be at most {format_percent(most)}: it is {meaning}")
        return share

    @field_validator("arms")
    @classmethod
    def _names(cls, arms: Dict[str, ArmSection]) -> Dict[str, ArmSection]:
        text = "the name of an arm: letters, digits and . _ - only, 40 at most"
        wrong = [FieldError((name,), text, of_key=True) for name in arms if not _NAME.fullmatch(name)]
        if wrong:
            raise FieldErrors(wrong)
        return arms

    _check_keys = field_validator("keys")(check_keys)

    @model_validator(mode="after")
    def _check_section(self) -> CampaignSection:
        if self.base is not None and self.base not in self.arms:
            hint = did_you_mean(self.base, self.arms) or f"; the arms are {', '.join(self.arms)}"
            raise FieldErrors([FieldError(("base",), f"no arm of this name: {self.base!r}{hint}")])
        if self.code_or_defaults and len(self.arms) != 2:
            text = f"needs two arms, the old release and the new one; there are {len(self.arms)}"
            raise FieldErrors([FieldError(("code_or_defaults",), text)])
        return self

    @property
    def first(self) -> str:
        """The arm that the others are compared with."""
        return self.base or next(iter(self.arms))


def file_of(data: Mapping[str, Any], arm: ArmSection) -> Dict[str, Any]:
    """Return the file that CBT reads for an arm: the file's data with the arm's keys, without `campaign:`."""
    changes = {section: getattr(arm, section) for section in CHANGED if getattr(arm, section)}
    return _merged({key: value for key, value in data.items() if key != KEY}, changes)


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        merged[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def with_fault_files(data: Any) -> Any:
    """Return a file's data with events instead of `events: {file: PATH}`, as the check of the file has read them."""
    if isinstance(data, list):
        return [with_fault_files(value) for value in data]
    if not isinstance(data, dict):
        return data
    expanded = {key: with_fault_files(value) for key, value in data.items()}
    file = data["events"].get("file") if isinstance(data.get("events"), dict) else None
    if isinstance(file, str) and file in FAULT_FILES:
        expanded["events"] = copy.deepcopy(FAULT_FILES[file].data["events"])
    return expanded


def yaml_text(data: Mapping[str, Any]) -> str:
    """Return a file's data as YAML."""
    return str(yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True))


def section_of_campaign(source: YamlSource) -> Optional[CampaignSection]:
    """Return the section of a file; None where there is none, or a wrong one."""
    data = source.data.get(KEY) if isinstance(source.data, dict) else None
    return validate(CampaignSection, data)[0] if data is not None else None


def errors_of_campaign(source: YamlSource) -> Iterator[ErrorAt]:
    """Yield the errors in the section itself."""
    if KEY in source.data:
        data = source.data[KEY]
        if not isinstance(data, dict):
            yield source.error_at((KEY,), "must be a mapping (key: value)")
            return
        section, errors, *_ = validate(CampaignSection, data)
        for path, text, of_key in errors:
            yield source.error_at((KEY, *path), text, of_key)
        benchmarks = source.data.get("benchmarks")
        if section and section.code_or_defaults and isinstance(benchmarks, dict):
            foreign = [str(name) for name in benchmarks if name not in plugins.built_in(plugins.BENCHMARKS)]
            if foreign:
                text = f"sets options by the settings of benchmarks of cbt-plugins: {', '.join(foreign)} has none"
                yield source.error_at((KEY, "code_or_defaults"), text)


def errors_of_arms(source: YamlSource, load: Callable[[YamlSource], Any]) -> Iterator[ErrorAt]:
    """Yield the errors in the file of an arm, at the place of the arm's own key where it has one."""
    section = section_of_campaign(source)
    for name, arm in section.arms.items() if section else ():
        data = file_of(source.data, arm)
        try:
            load(YamlSource(yaml_text(data).encode(), source.file))
        except ConfigError as error:
            for arm_error in error.errors:
                yield source.error_at(
                    (KEY, "arms", name, *arm_error.path), f"in the file of this arm: {arm_error.text}"
                )
