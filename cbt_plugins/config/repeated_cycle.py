"""The keys of `campaign:`, `bisect:` and `pr:` that say how the cycle of a file runs again and again."""

from __future__ import annotations

from typing import Any, Iterator, Optional, Type

from pydantic import Field

from cbt_plugins.config.errors import ErrorAt
from cbt_plugins.config.key_errors import Strict, validate
from cbt_plugins.config.shell_values import ShellCommand
from cbt_plugins.config.units import Duration
from cbt_plugins.config.yaml_source import YamlSource


class RepeatedCycleSection(Strict):
    """The program of each cycle, and its time limit."""

    cycle_limit: Optional[Duration] = Field(None, description="Time limit of each cycle. Default: no limit.")
    program: Optional[ShellCommand] = Field(
        None, description="Program that runs a cycle: `/opt/cbt/cbt.py`. Default: `python -m cbt_plugins`."
    )
    through: Optional[ShellCommand] = Field(
        None, description="Command that runs a command on the head: `cbt-tools lab exec node0 --`."
    )


def errors_of_section(source: YamlSource, key: str, section: Type[RepeatedCycleSection]) -> Iterator[ErrorAt]:
    """Yield the errors in a section of the file, if it has one."""
    if key not in source.data:
        return
    data: Any = source.data[key]
    if not isinstance(data, dict):
        yield source.error_at((key,), "must be a mapping (key: value)")
        return
    for path, text, of_key in validate(section, data)[1]:
        yield source.error_at((key, *path), text, of_key)
