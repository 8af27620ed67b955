"""What somebody else writes to add a benchmark and a monitor: the whole of it."""

from __future__ import annotations

import json
import logging
from contextlib import nullcontext
from pathlib import Path

from cbt_plugins.cbt_run import CbtRun, NotTrusted, RunFailed
from cbt_plugins.monitor import Monitor

logger = logging.getLogger("cbt_plugins.example")


class Example:
    """Writes what it was given.

    `fail: true` fails; `fail: key` raises a KeyError, as a faulty one would; `degraded: true` is complete, but not to
    be trusted.
    """

    def __init__(self, run: CbtRun) -> None:
        self.run_of_host = run
        if run.config.get("fail") == "constructor":
            raise KeyError("a fault of the constructor")

    def run(self) -> None:
        run = self.run_of_host
        with open(run.archive_dir / "calls", "a") as calls:
            calls.write("run\n")
        with run.monitors(run.archive_dir / "monitors") if run.config.get("watch") else nullcontext():
            if run.config.get("fail") == "key":
                raise KeyError("a fault of the run")
            if run.config.get("fail"):
                raise RunFailed("asked to fail")
            described = {
                "benchmark": run.benchmark,
                "config": dict(run.config),
                "iteration": run.iteration,
                "run_dir": run.run_dir,
                "clients": run.cluster["clients"],
                "is_teuthology": "is_teuthology" in run.cluster,
                "common": dict(run.common),
                "endpoints": dict(run.endpoints),
                "config_file": str(run.config_file),
                "checkout": run.checkout and run.checkout.describe,
            }
            (run.archive_dir / "summary.json").write_text(json.dumps(described))
        degraded = ["age"] if run.config.get("degraded") else []
        (run.archive_dir / "complete").write_text(json.dumps({"degraded": degraded}))
        if degraded:
            raise NotTrusted("complete, but not to be trusted: age")


class Witness(Monitor):
    """Writes a file on its node (this machine, in the tests), and notes if start and stop share an object."""

    started = False

    def start(self, directory: str) -> None:
        self.started = True
        self._write(directory, "started")
        self.note(f"start {','.join(self.nodes)}")

    def stop(self, directory: str) -> None:
        self._write(directory, "stopped")
        self.note(f"stop {'same' if self.started else 'another'}")

    def _write(self, directory: str, text: str) -> None:
        folder = Path(directory) / "witness"
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "raw", "a") as raw:
            raw.write(f"{text}\n")

    def note(self, text: str) -> None:
        with open(self.config["note"], "a") as note:
            note.write(f"{text}\n")


class Breaker(Witness):
    """Acts rather than watches: it begins after all others and ends before them."""

    INNERMOST = True

    def note(self, text: str) -> None:
        super().note(f"breaker: {text}")
