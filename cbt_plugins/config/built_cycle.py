"""The keys of `bisect:` and `pr:` that say how a commit is built and deployed before its cycle."""

from __future__ import annotations

from typing import Optional

from pydantic import Field

from cbt_plugins.config.repeated_cycle import RepeatedCycleSection
from cbt_plugins.config.shell_values import ShellCommand
from cbt_plugins.config.units import Duration


class BuiltCycleSection(RepeatedCycleSection):
    """Each cycle measures a commit, which is built and deployed before it."""

    build: Optional[ShellCommand] = Field(
        None, description="Builds the commit in the current folder into $CBT_PLUGINS_BUILD."
    )
    build_limit: Duration = Field(4 * 3600.0, description="Time limit of each command.")
    deploy: ShellCommand = Field(description="Deploys the commit in the current folder, or $CBT_PLUGINS_BUILD.")
    deploy_limit: Duration = Field(3600.0, description="Time limit of each command.")
