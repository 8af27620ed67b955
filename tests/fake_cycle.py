"""A stand-in for `python -m cbt_plugins -a ARCHIVE FILE`: an archive with the numbers that a test asks for.

FAKE_ARCHIVE is the archive that it copies, FAKE_EFFECTS (JSON) by how much the rates of an arm differ, FAKE_NOISE how
much they scatter from trial to trial, FAKE_WARNING the code of a warning that each summary gets, FAKE_RECOVERY (JSON)
the seconds until the failure of the archive was over, by arm.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from pathlib import Path
from typing import Any, Dict, Optional

#: the program of a campaign; it starts fast
PROGRAM = f"{sys.executable} -S -E {__file__}"
#: warnings of runs that are not usable
INVALID = ("lost-objects",)


def template(folder: Path) -> Path:
    """Make the archive that the stand-in copies."""
    import archive_builder

    from cbt_plugins.results.archive import find_runs
    from cbt_plugins.results.summary_file import summarize, write_summary

    made = archive_builder.archive(folder, archive_builder.Load(seconds=12))
    run = find_runs(made)[0]
    write_summary(summarize(run), run / "summary.json")
    shutil.rmtree(run / "phases")
    return made


def scale(summary: Dict[str, Any], factor: float) -> None:
    """Make a summary that of a cluster that is faster by a factor."""
    for phase in summary["phases"]:
        for line in [*phase["ops"].values(), phase["total"]]:
            line.update({key: line[key] * factor for key in ("obj_per_s", "mib_per_s")})
            times = line["latency_ms"]
            times.update({key: value / factor for key, value in times.items() if key != "n" and value is not None})


def archive(made: Path, path: Path, factor: float, code: str = "", recovery: Optional[float] = None) -> None:
    """Copy an archive as that of a cluster that is faster by a factor, with a warning of this code.

    `recovery`: seconds until its failure was over.
    """
    shutil.copytree(made, path)
    for place in path.glob("results/*/id-*/summary.json"):
        summary = json.loads(place.read_text())
        scale(summary, factor)
        summary["run"]["run_id"] = path.name
        if recovery is not None:
            summary["failure"]["milestones"]["episodes"][0]["milestones"][0]["seconds"] = recovery / factor
        if code:
            severity = "invalid" if code in INVALID else "warning"
            summary["warnings"].append({"code": code, "severity": severity, "text": "said by the stand-in"})
            summary["usable"] = code not in INVALID
        place.write_text(json.dumps(summary))


def scorecard(bad_seconds: int) -> Dict[str, Any]:
    """Return the scorecard of one failure, for a summary."""
    total: Dict[str, Any] = {"requests": 900, "errors": 0, "waited": 0, "bad_seconds": bad_seconds, "obj_per_s": 9.0}
    total.update(longest_gap=0.1, p50_ms=9.0, p99_ms=90.0, p999_ms=None, p99_ratio=1.0, obj_per_s_percent=99.0)
    score = {"phase": "node-down-1", "labels": ["node-down-1"], "begin": 0.0, "seconds": 80.0, "total": total}
    score.update(ops={"GET": total}, gateways=[], gateway_gap=None, unstarted=0)
    score.update(back={"seconds": 0.0, "between": None, "reason": None})
    score.update(cluster={"touched": True, "recovery_s": 20.0, "moved_mib": 5.0})
    return {"failures": [{"name": "node down", "kind": "stop", "planned": 1, "scores": [score], "refused": []}]}


def factor_of(arm: str, name: str) -> float:
    """Return the level of a trial: the effect of its arm, and noise that its name and FAKE_SEED decide."""
    noise = random.Random(f"{os.environ.get('FAKE_SEED', '')}{name}").gauss(0, float(os.environ["FAKE_NOISE"]))
    return float(json.loads(os.environ["FAKE_EFFECTS"]).get(arm, 1.0)) * (1 + noise)


def main() -> None:
    arm, name = os.environ["CBT_PLUGINS_ARM"], os.environ["CBT_PLUGINS_TRIAL"]
    code = os.environ.get("FAKE_WARNING", "")
    recovery = json.loads(os.environ.get("FAKE_RECOVERY", "{}")).get(arm)
    archive(Path(os.environ["FAKE_ARCHIVE"]), Path(sys.argv[2]), factor_of(arm, name), code, recovery)


if __name__ == "__main__":
    main()
