"""`pr:` -- how the two sides of a pull request are built and deployed, and which change is a regression."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Dict, Iterator, List, Mapping, Optional

from pydantic import Field, field_validator, model_validator

from cbt_plugins.config.built_cycle import BuiltCycleSection
from cbt_plugins.config.campaign import KEY as CAMPAIGN
from cbt_plugins.config.campaign import check_keys
from cbt_plugins.config.errors import ErrorAt
from cbt_plugins.config.key_errors import FieldError, FieldErrors
from cbt_plugins.config.repeated_cycle import errors_of_section
from cbt_plugins.config.shell_values import ShellCommand
from cbt_plugins.config.units import Duration, Percent, format_percent, share_within
from cbt_plugins.config.yaml_source import YamlSource
from cbt_plugins.metrics import MARGIN

#: the section's name, which CBT does not read
KEY = "pr"
#: the arms of its campaign
BASE, HEAD = "base", "head"


class PullRequestSection(BuiltCycleSection):
    """A verdict for a pull request, or for two builds, containers or releases. CBT ignores it."""

    repo: Optional[str] = Field(
        None,
        min_length=1,
        description="A git repository, relative to this file: BASE and HEAD are its commits. Default: `deploy` knows "
        "what they are.",
    )
    deploy: ShellCommand = Field(
        description="Deploys $CBT_PLUGINS_REVISION (BASE or HEAD), or the commit in the current folder, or "
        "$CBT_PLUGINS_BUILD, with the same data each time."
    )
    cycle_limit: Duration = Field(3600.0, description="Time limit of each cycle.")
    clean: Optional[ShellCommand] = Field(
        None, description="Removes what `deploy` has started: before each deployment, and at the end."
    )
    limit: Annotated[Percent, share_within(0.002, 0.5)] = Field(
        MARGIN,
        description="A change for the worse that is surely smaller is no regression. Default: also the smaller margin "
        "of success rates.",
    )
    false_alarms: Annotated[Percent, share_within(0.001, 0.1)] = Field(
        0.01, description="Chance of a false regression."
    )
    keys: List[Annotated[str, Field(min_length=1)]] = Field(
        [], description="Key rows, as in `compare --key`. Default: throughput, p99, recovery."
    )
    seed: int = Field(0, ge=0, description="Seed of the order of base and head in blocks.")

    _check_keys = field_validator("keys")(check_keys)

    @model_validator(mode="after")
    def _needs_repo(self) -> PullRequestSection:
        if self.build and not self.repo:
            raise FieldErrors([FieldError(("build",), "needs `repo:`, the git repository whose commits are built")])
        return self

    @property
    def prepare(self) -> List[str]:
        """The commands before each cycle."""
        return [*([self.clean] if self.clean else []), self.deploy]

    def folder_of(self, file: Path) -> Optional[Path]:
        """Return the repository that the file means; None without one."""
        return (file.resolve().parent / os.path.expanduser(self.repo)).resolve() if self.repo else None


def campaign_of(data: Mapping[str, Any], section: PullRequestSection, blocks: int) -> Dict[str, Any]:
    """Return the CBT file of the campaign that decides: base and head in turns, in so many blocks at most.

    Its alpha is of better and worse, of which half is a false worse. O'Brien and Fleming's spending leaves most of it
    to the end: for a given number of blocks it finds smaller changes than Pocock's.
    """
    campaign = {
        "arms": {arm: {"prepare": section.prepare} for arm in (BASE, HEAD)},
        "blocks": blocks,
        "alpha": format_percent(2 * section.false_alarms),
        "spending": "obrien-fleming",
        "seed": section.seed,
        "keys": list(section.keys),
        "prepare_limit": f"{section.deploy_limit:.3f}s",
        "cycle_limit": f"{section.cycle_limit:.3f}s",
    }
    if "limit" in section.model_fields_set:  # else each metric has its own: success rates have a smaller one
        campaign["margin"] = format_percent(section.limit)
    campaign.update({key: value for key in ("program", "through") if (value := getattr(section, key))})
    return {**{key: value for key, value in data.items() if key not in (KEY, "bisect")}, CAMPAIGN: campaign}


def errors_of_pull_request(source: YamlSource) -> Iterator[ErrorAt]:
    """Return the errors in the section."""
    return errors_of_section(source, KEY, PullRequestSection)
