"""Archives of made samples of the monitors `perf_counters` and `backlog`, and the numbers of a phase from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Tuple

from cbt_plugins.results.archive import read_run
from cbt_plugins.results.nodes import perf_counters

T0 = 1_700_000_000.0


def archive(folder: Path, files: Dict[str, List[Dict[str, Any]]]) -> Path:
    for name, lines in files.items():
        path = folder / "monitors" / "01" / name
        path.parent.mkdir(parents=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "plan.json").write_text("{}")
    (folder / "manifest.json").write_text("{}")
    (folder / "complete").write_text("{}")
    return folder


def made_of(folder: Path, window: Tuple[float, float]) -> Dict[str, Any]:
    low, high = window
    phases = [{"name": "x", "window": {"start": T0 + low, "end": T0 + high}}]
    return perf_counters.counters_of_phases(read_run(folder), phases) or {"phases": {}}
