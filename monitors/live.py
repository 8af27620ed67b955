"""The `live` profile: the report's page of the run while it goes on (`cbt-tools watch --serve`).

The page is served by a process of its own, which reads the archive: the run neither waits for it nor fails with it.
"""

from __future__ import annotations

import logging
import subprocess
from pathlib import Path
from typing import Annotated, Any, List, Mapping

from pydantic import BeforeValidator, Field, WithJsonSchema

from cbt_plugins.config.key_errors import Strict
from cbt_plugins.config.units import parse_listen
from cbt_plugins.monitor import Monitor
from cbt_plugins.programs import own_environment, own_tool

log = logging.getLogger(__name__)

#: processes that serve: they end by themselves, after the run
serving: List[subprocess.Popen[bytes]] = []


def _listen(value: Any) -> Any:
    """Return the text of an address; the port alone may be a number."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if isinstance(text, str):
        parse_listen(text)
    return text


_Listen = Annotated[str, BeforeValidator(_listen), WithJsonSchema({"type": ["string", "integer"]})]


class LiveProfile(Strict):
    """The page of the run while it goes on, in a browser; for benchmarks of cbt-plugins."""

    serve: _Listen = Field(
        "7878", description="`[HOST:]PORT`. Without HOST only this machine reaches it; with another, by a token."
    )


class LivePageOfRun(Monitor):
    """The page of a run, which the run opens before its first phase (`open_page`). The key is that of `LiveProfile`."""

    Section = LiveProfile

    def __init__(self, config: Mapping[str, Any], cluster: Mapping[str, Any], common: Mapping[str, Any]) -> None:
        super().__init__({**config, "nodes": "head"}, cluster, common)  # it runs nothing on a node

    def start(self, directory: str) -> None:
        """Do nothing."""

    def stop(self, directory: str) -> None:
        """Do nothing: the page ends with the run, which is later."""


def open_page(run: Path, profiles: Mapping[str, Any]) -> None:
    """Let a process of its own serve the page of a run, where its file has this profile.

    The process says on our standard error where the page is, or why there is none, and ends with the run.
    """
    if "live" not in profiles:
        return
    serve = LiveProfile.model_validate(profiles["live"] or {}).serve
    line = own_tool("watch", str(run), "--serve", serve, "--until-end")
    try:
        process = subprocess.Popen(
            line,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=own_environment(),
            start_new_session=True,
        )
    except OSError as error:
        log.warning("no live page: %s", error.strerror or error)
        return
    serving.append(process)
