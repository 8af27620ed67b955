"""Report and SQL of runs of 9 to 72 hours with failures, and compare, gate and history of up to 500 runs.

A run has five drivers, a phase for each 1.8 hours, a mark each hour, a sample of the cluster each second, and failures
as recorded in tests/data/recovery. The runs that are compared are those of tests/archive_builder.py.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

from inputs import long_runs
from inputs.clusters import RECORDED
from inputs.long_runs import FIVE, T0, Clients
from report import question

from cbt_plugins import checksums
from cbt_plugins.plan import Phase
from cbt_plugins.report.page import run_page
from cbt_plugins.results.summary_file import summarize
from cbt_plugins.run.phase_window import block_seconds, heartbeat_seconds
from cbt_plugins.run.reporting import EARLY_READS

from .costs import Cost, Curves, Extent, cost_of

sys.path.append(str(Path(__file__).parents[2]))

from archive_builder import Load
from archive_builder import archive as write_runs

TOOLS = "cbt_plugins.tools"
HOURS = (9.0, 24.0, 72.0)
RUNS = (50, 150, 500)
PAGES = (10, 20, 40)
#: seconds of a phase; of a failure and of its return, as recorded
PHASE, RECORDED_SECONDS = 6480, 120
FAILURES_PER_HOUR = 100 / 72

#: of an archive: an event or a sample
Line = Dict[str, Any]


def write_run(archive: Path, hours: float) -> Path:
    """Write the archive of a run of so many hours, which has ended; return the directory of the run."""
    run = write_files(archive, hours)
    end_run(run, 3600 * hours)
    return run


def end_run(run: Path, seconds: float) -> None:
    """Seal the files of a run of so many seconds as the run itself does at its end."""
    checksums.end_run(run, {"t": T0 + seconds, "run_id": "scale001", "degraded": []})


def write_files(
    archive: Path,
    hours: float,
    of_cluster: Callable[[Line], Line] = lambda line: line,
    phase: int = PHASE,
    clients: Clients = FIVE,
) -> Path:
    """Write all files of such a run but its end, with phases of so many seconds, by these clients.

    `of_cluster` returns a recorded sample as another cluster has it.
    """
    run = archive / "results" / "00000000" / "id-00000001"
    names = [f"age{number:02}" for number in range(round(hours * 3600 / phase))]
    run.mkdir(parents=True)
    (run / "manifest.json").write_text("{}")
    (run / "plan.json").write_text(json.dumps({"benchmark": "warp", "phases": [{"name": name} for name in names]}))
    block, _ = resolution_of(phase)
    frames = long_runs.frames_of(block)
    for index, name in enumerate(names, 1):
        folder, end = run / "phases" / f"{index:02}-{name}", T0 + index * phase
        write_load(folder, (end - phase, end), frames, clients)
    length = len(names) * phase
    failures = max(1, round(hours * FAILURES_PER_HOUR))
    first = min(600, phase // 2)
    begins = [T0 + first + number * (length - first) // failures for number in range(failures)]
    events = [event for number, t in enumerate(begins) for event in _events(t, f"failure-{number}")]
    events += [{"t": T0 + 3600 * n, "event": "mark", "name": f"hour {n}"} for n in range(int(hours))]
    _write_lines(run / "events.jsonl", sorted(events, key=lambda event: float(event["t"])))
    folder = run / "monitors" / "recovery.node0"
    folder.mkdir(parents=True)
    _write_lines(folder / "recovery.jsonl", map(of_cluster, _samples(begins, T0 + length)))
    return run


def resolution_of(seconds: int) -> Tuple[int, int]:
    """Return the seconds of a block of aggregates, and between two heartbeats, in a phase of so many seconds."""
    phase = Phase("age", "hybrid", duration=float(seconds))
    return block_seconds(phase), heartbeat_seconds(phase)


def write_load(folder: Path, window: Tuple[int, int], frames: Sequence[long_runs.Tables], clients: Clients) -> None:
    """Write the aggregates and heartbeats of a phase with the resolution that a run gives them."""
    begin, end = window
    block, beat = resolution_of(end - begin)
    long_runs.write_phase(folder, folder.name.partition("-")[2], window, block, frames, clients)
    long_runs.write_heartbeats(folder, range(begin, end, beat), clients)


def _recorded(name: str) -> List[Dict[str, Any]]:
    lines = (RECORDED.parent / "recovery" / name).read_text().splitlines()
    return [json.loads(line) for line in lines]


def _events(t: float, label: str) -> Iterator[Dict[str, Any]]:
    first = _recorded("one.jsonl")[0]["t"]
    for line in _recorded("one-events.jsonl"):
        yield {**line, "label": label, "t": line["t"] - first + t}


def _samples(begins: List[int], end: int) -> Iterator[Dict[str, Any]]:
    """Yield a line each second, and the recorded failure at its times."""
    head, *failure = (line for line in _recorded("one.jsonl") if "end" not in line)
    yield {**head, "t": T0}
    yield {**failure[0], "t": T0 + 0.5}
    t = T0 + 1
    for begin in [*begins, end]:
        yield from ({"t": second} for second in range(t, begin))
        if begin < end:
            yield from (_moved(line, begin - head["t"]) for line in failure)
        t = begin + RECORDED_SECONDS


def _moved(line: Dict[str, Any], seconds: float) -> Dict[str, Any]:
    maps = [{**change, "t": change["t"] + seconds} for change in line.get("map", ())]
    return {**line, "t": line["t"] + seconds, **({"map": maps} if maps else {})}


def _write_lines(path: Path, lines: Any) -> None:
    with path.open("w") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def main(extent: Extent) -> None:
    print("  seconds of CPU time and MB of a command's own process; MB of files; `workers`: the processes in which a")
    print("  command reads the aggregates, `worker`: the largest of them; `wall`: seconds until the report ends")
    print("  `early`: what reads phases while the run goes on; `report`: the first one, by the run itself at its end")
    print("  `again`: the next report, which takes the numbers of the first one; `elsewhere`: one that reads all")
    formats = {"phases": ".0f", "failures": ".0f", "early s": ".1f", "early MB": ".0f", "early file": ".0f"}
    formats.update({"report s": ".1f", "wall s": ".1f", "report MB": ".0f"})
    formats.update({"again s": ".1f", "again wall s": ".1f", "again MB": ".0f"})
    formats.update({"elsewhere s": ".1f", "workers s": ".1f", "elsewhere wall s": ".1f", "elsewhere MB": ".0f"})
    formats.update({"worker MB": ".0f", "summary file": ".2f", "page file": ".2f"})
    curves = Curves("hours", {**formats, "sql s": ".1f", "sql workers s": ".1f", "sql MB": ".0f"})
    for hours in extent.sizes(HOURS):
        with tempfile.TemporaryDirectory() as scratch:
            curves.add(hours, **_of_a_run(Path(scratch), hours))
    curves.end()
    _pages(extent)
    columns = {f"{verb} {unit}": form for verb in ("compare", "history", "sql") for unit, form in
               {"s": ".1f", "MB": ".0f"}.items()}  # fmt: skip
    print("  many runs: seconds of CPU time with those of the workers")
    curves = Curves("runs", columns)
    for runs in extent.sizes(RUNS):
        with tempfile.TemporaryDirectory() as scratch:
            curves.add(runs, **_of_many(Path(scratch), runs))
    curves.end()


def _pages(extent: Extent) -> None:
    """Measure the page of a run whose phase is repeated: its summary would take long to make."""
    curves = Curves("phases", {"summary file": ".2f", "page file": ".2f"})
    with tempfile.TemporaryDirectory() as scratch:
        run = write_run(Path(scratch) / "archive", PHASE / 3600)
        summary = summarize(run)
        (phase,), timelines = summary["phases"], summary["failure"]["timelines"]
        for number in extent.sizes(PAGES):
            summary["phases"] = [{**phase, "name": f"age{n:03}"} for n in range(number)]
            timelines.update({repeated["name"]: timelines[phase["name"]] for repeated in summary["phases"]})
            size = len(json.dumps(summary, separators=(",", ":"))) / 1e6
            curves.add(number, summary_file=size, page_file=len(run_page(summary, run)) / 1e6)
    curves.end()


def _of_a_run(folder: Path, hours: float) -> Dict[str, float]:
    run = write_run(folder / "archive", hours)
    here, there = ({**os.environ, "XDG_CACHE_HOME": str(folder / name)} for name in ("here", "there"))
    early = _checked(cost_of(EARLY_READS, str(run), *_names(run), env=here))
    report, again, elsewhere = (
        _checked(cost_of(TOOLS, "report", str(folder / "archive"), env=env)) for env in (here, here, there)
    )
    sql = _checked(cost_of(TOOLS, "sql", str(folder / "archive"), question()))
    summary = json.loads((run / "summary.json").read_text()) if (run / "summary.json").exists() else {}
    episodes = len(summary.get("failure", {}).get("milestones", {}).get("episodes", ()))
    pages = list(folder.rglob("report.html"))
    sizes = {"summary_file": sum(p.stat().st_size for p in folder.rglob("summary.json")) / 1e6}
    sizes["page_file"] = sum(p.stat().st_size for p in pages) / 1e6
    costs = {"report_s": report.cpu, "wall_s": report.wall, "report_MB": report.mb}
    costs.update(early_s=early.cpu, early_MB=early.mb)
    costs["early_file"] = sum(path.stat().st_size for path in (folder / "here").rglob("reads/*")) / 1e6
    costs.update(elsewhere_s=elsewhere.cpu, workers_s=elsewhere.children, elsewhere_wall_s=elsewhere.wall)
    costs.update(elsewhere_MB=elsewhere.mb, worker_MB=elsewhere.children_mb)
    costs.update(again_s=again.cpu, again_wall_s=again.wall, again_MB=again.mb)
    costs.update(sql_s=sql.cpu, sql_workers_s=sql.children, sql_MB=sql.mb)
    return {"phases": len(list((run / "phases").iterdir())), "failures": episodes / 2, **sizes, **costs}


def _names(run: Path) -> List[str]:
    return [phase["name"] for phase in json.loads((run / "plan.json").read_text())["phases"]]


def _of_many(folder: Path, runs: int) -> Dict[str, float]:
    """Compare the first half of many runs with the second half; take all runs for one history and one question."""
    sides = [folder / "a", folder / "b"]
    for seed, side in enumerate(sides):
        write_runs(side, Load(seconds=10), runs=runs // 2, seed=seed)
        _checked(cost_of(TOOLS, "report", str(side)))  # makes the summaries
    costs: Dict[str, float] = {}
    of_both = tuple(map(str, sides))
    of_all = (str(_joined(folder / "all", sides)), question())
    for name, words in {"compare": of_both, "history": of_both, "sql": of_all}.items():
        cost = cost_of(TOOLS, name, *words)
        assert cost.status in (0, 1, 3), cost.output[-2000:]
        costs.update({f"{name}_s": cost.cpu + cost.children, f"{name}_MB": cost.mb})
    return costs


def _joined(archive: Path, sides: Sequence[Path]) -> Path:
    """Make the archive that has the runs of all sides: `sql` takes one archive. The files get second names."""
    for side in sides:
        for iteration in (side / "results").iterdir():
            place = archive / "results" / f"{side.name}{iteration.name}"
            shutil.copytree(iteration, place, copy_function=os.link)
    return archive


def _checked(cost: Cost) -> Cost:
    assert cost.status == 0, cost.output[-2000:]
    return cost
