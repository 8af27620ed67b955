"""`python -m cbt_plugins` and `cbt-tools undo` with short times, as a program: what the sweep of whole cycles kills."""

from __future__ import annotations

import sys

import scenario

import cbt_plugins.faults.injector as injecting
import cbt_plugins.load.load_session as session
import cbt_plugins.run.plan_runner as engine
import cbt_plugins.run.wait_phase as waiting
from cbt_plugins.cbt import run_loop
from cbt_plugins.tools import __main__ as tools


def main() -> int:
    """The arguments are the built-in loop's, or "undo ARCHIVE"."""
    scenario.shorten()
    injecting.ClusterLimits = lambda: scenario.LIMITS  # type: ignore[assignment,misc]
    waiting.STABLE_IN_WAIT = 1.0
    waiting.SCRUB_EVERY = 0.5
    session.GO_AHEAD = 0.3
    # what a report looks like is nothing that a kill could change; it takes as long as all the rest
    engine.summarize = lambda folder: None
    return tools.main(sys.argv[1:]) if sys.argv[1] == "undo" else run_loop.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
