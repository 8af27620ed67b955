"""The keys of `campaign:`, `bisect:` and `pr:` that say how the cycle of a file runs again and again."""

from __future__ import annotations

from typing import Optional

from pydantic import Field

from cbt_plugins.config.shell_values import ShellCommand
from cbt_plugins.config.units import Duration
from cbt_plugins.config.validate import Strict


class RepeatedCycleSection(Strict):
    """The program of each cycle, and its time limit."""

    cycle_limit: Optional[Duration] = Field(None, description="Time limit of each cycle. Default: no limit.")
    program: Optional[ShellCommand] = Field(
        None, description="Program that runs a cycle: `/opt/cbt/cbt.py`. Default: `python -m cbt_plugins`."
    )
    through: Optional[ShellCommand] = Field(
        None, description="Command that runs a command on the head: `cbt-tools lab exec node0 --`."
    )


class BuiltCycleSection(RepeatedCycleSection):
    """Each cycle measures a commit, which is built and deployed before it."""

    build: Optional[ShellCommand] = Field(
        None, description="Builds the commit in the current folder into $CBT_PLUGINS_BUILD."
    )
    build_limit: Duration = Field(4 * 3600.0, description="Time limit of each command.")
    deploy: ShellCommand = Field(description="Deploys the commit in the current folder, or $CBT_PLUGINS_BUILD.")
    deploy_limit: Duration = Field(3600.0, description="Time limit of each command.")
