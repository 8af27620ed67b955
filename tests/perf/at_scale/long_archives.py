"""`compare`, `history` and `sql` of 5 to 60 runs of 72 hours, or 180 with `--long`, which need 13 GB of disk (TMPDIR).

All have the files of one run of archives.py, as further names of the same files, and each has a summary with times and
numbers of its own.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any, Dict, List

import numpy as np

from cbt_plugins.checksums import sum_of_sums
from cbt_plugins.results.summary_file import FILE, dumps, read_summary

from .archives import TOOLS, write_run
from .costs import Curves, Extent, cost_of

SIZES, LONG_SIZES = (5, 20, 60), (180,)
HOURS, DAY = 72.0, 86_400.0
#: reads the summaries; a percentile of each gateway reads all aggregates, and takes 0.7 GB for a run of 72 hours
QUESTION = "SELECT run, phase, op, p99_ms FROM ops"
#: scatter from run to run
SCATTER = 0.02
#: parts of a summary that all runs have in common: nearly all of its bytes
_COMMON = re.compile(r'"@(\d+)@"')


class LongArchives:
    """Archives of one run, each with its own summary. All are iterations of one archive, which `sql` takes."""

    def __init__(self, folder: Path, hours: float = HOURS) -> None:
        self.path = folder / "all"
        self._run = write_run(folder / "first", hours)
        report = cost_of(TOOLS, "report", str(folder / "first"))
        assert report.status == 0, report.output[-2000:]
        self._summary = read_summary(self._run / FILE)
        self._common: List[str] = []
        for phase in self._summary["phases"]:
            phase["series"] = self._put_aside(phase["series"])
        self._summary["failure"]["timelines"] = self._put_aside(self._summary["failure"]["timelines"])
        for name in (FILE, "report.html"):
            (self._run / name).unlink()
        self._sums = sum_of_sums(self._run)
        self._chance = np.random.default_rng(1)
        self.archives: List[Path] = []

    def _put_aside(self, value: Any) -> str:
        self._common.append(dumps(value))
        return f"@{len(self._common) - 1}@"

    def grow(self, size: int) -> None:
        """Make archives until there are so many."""
        while len(self.archives) < size:
            archive = self.path / "results" / f"{len(self.archives):08}"
            run = archive / self._run.name
            shutil.copytree(self._run, run, copy_function=os.link)
            (run / FILE).write_text(self._text_of(len(self.archives)))
            if not self.archives:
                read_summary(run / FILE)  # one that is refused would be made anew from the other files
            self.archives.append(archive)

    def _text_of(self, number: int) -> str:
        """Return the text of a summary of its own, sealed as `write_summary` does it."""
        summary = copy.deepcopy(self._summary)
        summary["run"]["run_id"] = f"scale{number:03}"
        for phase in summary["phases"]:
            for border in ("start", "end"):
                phase["window"][border] += number * DAY
            for line in [*phase["ops"].values(), phase["total"]]:
                line["obj_per_s"] *= 1 + SCATTER * self._chance.normal()
                line["latency_ms"]["p99"] *= 1 + SCATTER * self._chance.normal()
        parts = _COMMON.split(dumps(summary))
        parts[1::2] = [self._common[int(place)] for place in parts[1::2]]
        text = "".join(parts) + "\n"
        seal = {"files": self._sums, "summary": hashlib.sha256(text.encode()).hexdigest()}
        return text.replace("{\n", f'{{\n "seal": {json.dumps(seal)},\n', 1)


def main(extent: Extent) -> None:
    print("  seconds of CPU time and MB of the largest process; `compare`: the first half with the other half;")
    print("  `history` makes a site, `again` makes it once more, with its index; `sql`: p99 of the operations of all")
    print("  runs; MB of a summary")
    formats: Dict[str, str] = {"summary file": ".1f"}
    for verb in ("compare", "history", "again", "sql"):
        formats.update({f"{verb} s": ".1f", f"{verb} MB": ".0f"})
    curves = Curves("runs", formats)
    with tempfile.TemporaryDirectory() as scratch:
        archives = LongArchives(Path(scratch))
        for size in extent.sizes(SIZES, LONG_SIZES):
            archives.grow(size)
            curves.add(size, **_costs(Path(scratch) / f"cache{size}", archives))
    curves.end()


def _costs(cache: Path, archives: LongArchives) -> Dict[str, float]:
    size = next(archives.archives[0].rglob(FILE)).stat().st_size / 1e6
    costs = {"summary_file": size}
    names = [str(archive) for archive in archives.archives]
    half = len(names) // 2
    verbs = {"compare": ["compare", "--base", *names[:half], "--new", *names[half:]]}
    cache.mkdir(mode=0o700)
    verbs.update({key: ["history", *names, "-o", f"{cache / 'site'}/"] for key in ("history", "again")})
    verbs["sql"] = ["sql", str(archives.path), QUESTION]
    for name, words in verbs.items():
        cost = cost_of(TOOLS, *words, env={**os.environ, "XDG_CACHE_HOME": str(cache)})
        assert cost.status in (0, 1, 3), cost.output[-2000:]
        costs.update({f"{name}_s": cost.cpu + cost.children, f"{name}_MB": max(cost.mb, cost.children_mb)})
    return costs
