"""A RunContext and an PlanRunner of stand-ins, for tests of parts of a run."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from cbt_plugins.cbt_run import CbtRun
from cbt_plugins.plan import S3, Plan
from cbt_plugins.run.context import RunContext
from cbt_plugins.run.plan_runner import PlanRunner


def context(**parts: Any) -> RunContext:
    """Return a context of the parts that a test gives; all others are None, and journal and events write nothing."""
    unwritten = SimpleNamespace(write=lambda event, **facts: None, all=lambda event: [], damaged=[])
    journals = {"journal": unwritten, "events": unwritten}
    empty = {**dict.fromkeys(RunContext.__dataclass_fields__), "ladder_steps": {}}
    given = {**empty, "run_id": "r1", **journals, **parts}
    return RunContext(**cast(Any, given))


def runner_of(folder: Path) -> PlanRunner:
    """A runner of a plan without phases, whose run is in this folder."""
    host = CbtRun(
        benchmark="warp",
        config={},
        iteration=0,
        archive_dir=folder,
        run_dir="/nowhere",
        cluster={"head": "node0"},
        common={},
        endpoints={},
        config_file=None,
        checkout=None,
        monitors=lambda folder: cast(Any, contextlib.nullcontext()),
    )
    return PlanRunner(host, Plan("warp", S3(urls=("http://a",)), (), (), ()))
