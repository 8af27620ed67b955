"""Nights of archives: complete and sealed, with two measurements of four operations.

The files of a night are those of one run; its summary has the numbers of that night: noise of 2 %, a release a month,
and a step of 5 to 15 % in one of ten series.
"""

from __future__ import annotations

import copy
import shutil
import sys
from pathlib import Path
from typing import Any, Dict, List

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

import archive_builder

from cbt_plugins.checksums import end_run
from cbt_plugins.results.summary_file import FILE, summarize, write_summary

DAY, RELEASE_NIGHTS = 86400.0, 30
PHASES, OPS = ("measure-new", "measure-aged"), ("GET", "PUT", "STAT", "DELETE")


class Nights:
    """A folder of nights, one after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0
        config = {"benchmark": "warp", "iteration": 0}
        self._run = archive_builder.cbt_run(folder / "template", config, archive_builder.cheap(ops=OPS), phases=PHASES)
        (self._run / "complete").unlink()
        end_run(self._run, {"t": 1.0, "run_id": "k3j9"})
        self._summary = summarize(self._run)
        self._chance = np.random.default_rng(1)
        self._levels: Dict[str, float] = {}

    def add(self, count: int) -> None:
        for _ in range(count):
            run = self._folder / f"night-{self._made:04d}" / self._run.relative_to(self._folder / "template")
            shutil.copytree(self._run, run)
            write_summary(self._of_night(), run / FILE)
            (run / "report.html").write_text("<!DOCTYPE html>")
            self._made += 1

    def _of_night(self) -> Dict[str, Any]:
        summary = copy.deepcopy(self._summary)
        release = self._made // RELEASE_NIGHTS
        summary["environment"]["versions"]["ceph"] = f"19.2.{release} squid"
        for phase in summary["phases"]:
            phase["window"]["start"] += self._made * DAY
            for op, line in [*phase["ops"].items(), ("total", phase["total"])]:
                key = f"{phase['name']} {op}"
                if self._made % RELEASE_NIGHTS == 0 and self._chance.random() < 0.1:
                    self._levels[key] = self._levels.get(key, 1.0) * self._chance.choice([0.85, 0.95, 1.05, 1.15])
                line["obj_per_s"] *= self._levels.get(key, 1.0) * (1 + 0.02 * self._chance.normal())
                line["latency_ms"]["p99"] *= 1 + 0.02 * self._chance.normal()
        return summary

    def archives(self) -> List[str]:
        return sorted(path.name for path in self._folder.glob("night-*"))
