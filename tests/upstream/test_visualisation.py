"""CBT's report programs take what `export --format cbt` and `report --visualisation` write.

Its formatters leave our files alone.
"""

from __future__ import annotations

import json
import math
import random
import re
import subprocess
from pathlib import Path
from typing import List, NamedTuple

import archive_builder as aa
import pytest
from cbt_trees import MERGED, TIME_SERIES, Trees

from cbt_plugins.checksums import end_run
from cbt_plugins.tools.__main__ import main

from .conftest import Cbt, run

pytestmark = pytest.mark.upstream


class Programs(NamedTuple):
    """The report programs of a tree."""

    tree: Path
    dialect: str
    suffix: str  # of its plots
    flat: bool = False  # it looks for visualisation/ in the archive's own folder only

    def archive(self, folder: Path, name: str) -> Path:
        """What the programs take for an archive, of files of this name below a folder."""
        return folder / "results" / "common-format" / name / name if self.flat and self.dialect == "main" else folder


#: era or commit: the last of `master`; the last before time series; the first with them, and its merge; what comes next
TREES = {
    "master": ("head", "png", True),
    "9b4a548": ("main", "svg", True),
    TIME_SERIES: ("main", "svg"),
    MERGED: ("main", "svg"),
    "newest": ("main", "svg"),
}


NESTED = pytest.mark.parametrize("programs", [TIME_SERIES, MERGED, "newest"], indirect=True)
IN_PLACE = pytest.mark.parametrize("programs", ["9b4a548", TIME_SERIES, MERGED, "newest"], indirect=True)


@pytest.fixture(params=TREES)
def programs(request: pytest.FixtureRequest, trees: Trees, cbt: Cbt) -> Programs:
    tree = trees[request.param]
    needs_pandas = (tree / "post_processing" / "parsers").is_dir()
    cbt.need("lxml", "matplotlib", "mdutils", *(["pandas"] if needs_pandas else []))
    return Programs(tree, *TREES[request.param])


def archived(cbt: Cbt, name: str, slower: float = 1.0) -> Path:
    """Curves of three points: 4 KiB at 300, 600, 1200 requests/s, half of that when aged; and of 64 KiB."""
    s3 = {"urls": ["http://192.0.2.5:7480"], "user": "cbt"}
    section = {"s3": s3, "workers": [2, 4, 8], "size": ["4KiB", "64KiB"]}
    path = cbt.tmp / name
    for config in aa.cbt_archive(path, section, cbt.tmp / "ceph.conf"):
        size = {"4KiB": 4096, "64KiB": 65536}[config["size"]]
        phases = ("measure-new", "measure-aged")
        latency = {"GET": 0.01 * slower, "PUT": 0.02 * slower}
        latency.update({f"measure-aged:{op}": 2 * seconds for op, seconds in latency.items()})
        load = aa.cheap(latency=latency, workers=config["workers"], size=size)
        run = aa.cbt_run(path, config, load, phases=phases, summary=False)
        (run / "complete").unlink()
        end_run(run, {"t": 1.0, "run_id": "k3j9"})
    return path


@pytest.fixture
def exported(cbt: Cbt, capsys: pytest.CaptureFixture[str]) -> Path:
    """The export of an archive."""
    assert main(["export", str(archived(cbt, "reef_18")), "--format", "cbt", "-o", str(cbt.tmp / "out")]) == 0
    capsys.readouterr()
    return cbt.tmp / "out"


def generate(cbt: Cbt, tree: Path, program: str, *options: str) -> str:
    """The Markdown that one of the tree's programs makes; they exit with 0 also where they refuse."""
    drawn = {"MPLBACKEND": "Agg", "MPLCONFIGDIR": str(cbt.tmp / "mpl")}
    environment = {**cbt.environment, **drawn, "PYTHONPATH": str(tree)}
    output = cbt.tmp / f"report-{len(list(cbt.tmp.glob('report-*')))}"
    argv = [str(cbt.python), "-W", "ignore", str(tree / "tools" / program), *options, f"--output_directory={output}"]
    done = run(argv, env=environment, cwd=str(cbt.tmp))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr, done.stdout + done.stderr
    text = next(output.glob("*.md")).read_text()
    drawn_files = {path.name for path in output.rglob("*.*g")}
    shown = {Path(name).name for name in re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)}
    assert shown and shown <= drawn_files, (shown, drawn_files)
    return text


def check_simple(programs: Programs, cbt: Cbt, archive: Path, title: str) -> None:
    text = generate(cbt, programs.tree, "generate_performance_report.py", f"--archive={archive}")
    assert f"Performance Report for {title}" in text
    small, large = [line for line in text.splitlines() if line.startswith("|[")]
    assert re.search(r"\|1200 IOps\|13\.3\|", small), small
    assert "67_33_randrw" in small if programs.dialect == "head" else "4K 67/33  Random Read/Write" in small
    assert re.search(r"\|79 MB/s\|13\.3\|", large), "from 64 KiB on it is MB/s"
    assert "workers" in text.split("Configuration yaml")[-1]


def test_the_report_has_our_numbers_and_curves(cbt: Cbt, programs: Programs, exported: Path) -> None:
    folder = exported / programs.dialect / "reef-18-measure-new"
    archive = programs.archive(folder, "reef-18-measure-new")
    check_simple(programs, cbt, archive, "reef-18-measure-new")
    plots = [path for path in folder.rglob(f"*.{programs.suffix}") if not path.is_symlink()]
    assert len(plots) == 2


def row_of(text: str) -> str:
    """The line of 4 KiB in a comparison."""
    return next(line for line in text.splitlines() if line.startswith("|[4K"))


def test_new_and_aged_are_compared(cbt: Cbt, programs: Programs, exported: Path) -> None:
    names = ("reef-18-measure-new", "reef-18-measure-aged")
    new, aged = (programs.archive(exported / programs.dialect / name, name) for name in names)
    options = [f"--baseline={new}", f"--archives={aged}"]
    text = generate(cbt, programs.tree, "generate_comparison_performance_report.py", *options)
    assert "reef-18-measure-new vs reef-18-measure-aged" in text
    if programs.flat:
        assert "|1200 IOps@13.3ms|600 IOps@26.7ms|-50%|" in row_of(text)
    else:
        assert row_of(text).endswith("|1200@13.3ms|600@26.7|-50%|"), row_of(text)
    assert len(re.findall(r"!\[", text)) == 2, "a plot for each size"


def time_series(cbt: Cbt, programs: Programs, archive: Path) -> List[str]:
    text = generate(cbt, programs.tree, "generate_timeseries_performance_report.py", f"--archive={archive}")
    assert len(re.findall(r"!\[", text)) == 6 * 3, "rate, bandwidth and latency of each point"
    return [line for line in text.splitlines() if line.startswith("|[")]


def check_time_series(rows: List[str]) -> None:
    """Two thirds of the requests take 10 ms, the others 20 ms: the maximum of each second is 20 ms."""
    small = [row.split(")", 1)[1] for row in rows if row.startswith("|[4K 67/33")]
    assert small == [f"|1|{depth}|{75 * depth} IOps@0.0s|20.0@0.0s|" for depth in (4, 8, 16)]
    large = [row.split(")", 1)[1] for row in rows if row.startswith("|[64K 67/33")]
    assert large[-1] == "|1|16|79 MB/s@0.0s|20.0@0.0s|"


@NESTED
def test_the_time_series_report_has_our_seconds(cbt: Cbt, programs: Programs, exported: Path) -> None:
    check_time_series(time_series(cbt, programs, exported / "main" / "reef-18-measure-new"))


@NESTED
def test_its_latencies_are_those_of_the_requests(cbt: Cbt, programs: Programs) -> None:
    """Against sorted requests: what the tree's program draws of p50, p95, p99 and the maximum of each second."""
    chance = random.Random(3)
    rows: List[str] = []
    latencies: List[List[float]] = []
    for second in range(12):
        latencies.append(sorted(chance.lognormvariate(2 + second / 6, 1) for _ in range(chance.randrange(100, 300))))
        rows += [
            aa.row("GET", second + (number + 1) / 400, ms / 1e3, size=4096, thread=number % 8)
            for number, ms in enumerate(latencies[-1])
        ]
    path = aa.run(cbt.tmp / "A", phases=["m"])
    job = aa.cbt_load("01-a", rows, sizes=[[4096, 4096, 1.0]], workers=8)
    aa.phase(path, 1, "m", [job], as_aggregates=True, engine="cbt-load", window=(0, 12))
    (cbt.tmp / "A" / "results" / "cbt_config.yaml").write_text("benchmarks: {}\n")
    assert main(["report", str(cbt.tmp / "A"), "--visualisation", "m"]) == 0
    recorder = cbt.tmp / "recorded"
    recorder.mkdir()
    (recorder / "sitecustomize.py").write_text(
        "import atexit, json, matplotlib.axes as axes\n"
        "lines, plot = {}, axes.Axes.plot\n"
        "def recorded(self, x, y, **options):\n"
        "    lines[options['label']] = [float(value) for value in y]\n"
        "    return plot(self, x, y, **options)\n"
        "axes.Axes.plot = recorded\n"
        f"atexit.register(lambda: open({str(recorder / 'lines.json')!r}, 'w').write(json.dumps(lines)))\n"
    )
    tree = f"{programs.tree}:{recorder}"
    program = str(programs.tree / "tools" / "generate_timeseries_performance_report.py")
    environment = {**cbt.environment, "MPLBACKEND": "Agg", "MPLCONFIGDIR": str(cbt.tmp / "mpl"), "PYTHONPATH": tree}
    argv = [str(cbt.python), "-W", "ignore", program, f"--archive={cbt.tmp / 'A'}", f"--output_directory={recorder}"]
    done = run(argv, env=environment, cwd=str(cbt.tmp))
    assert list(recorder.glob("*.md")), done.stdout + done.stderr
    lines = json.loads((recorder / "lines.json").read_text())
    for label, q in (("P50 Latency", 0.5), ("P95 Latency", 0.95), ("P99 Latency", 0.99), ("Max Latency", 1.0)):
        exact = [values[math.ceil(q * len(values)) - 1] for values in latencies]
        assert lines[label] == pytest.approx(exact, rel=0.0005), label


@IN_PLACE
def test_an_archive_of_ours_is_read_in_place(cbt: Cbt, programs: Programs) -> None:
    """Simple report, comparison and time series of archives as they are; the plots beside the files change no run."""
    reef, squid = archived(cbt, "reef_18"), archived(cbt, "squid_19", slower=2.0)
    for path in (reef, squid):
        assert main(["report", str(path), "--visualisation", "measure-new"]) == 0
    names = ("reef-18-measure-new", "squid-19-measure-new")
    titles = names if programs.flat else ("reef-18", "squid-19")
    base, other = (programs.archive(path, name) for path, name in zip((reef, squid), names))
    check_simple(programs, cbt, base, titles[0])
    text = generate(
        cbt, programs.tree, "generate_comparison_performance_report.py", f"--baseline={base}", f"--archives={other}"
    )
    assert " vs ".join(titles) in text
    assert re.search(r"\|1200( IOps)?@13\.3ms\|600( IOps)?@26\.7(ms)?\|-50%\|", row_of(text)), row_of(text)
    assert len(re.findall(r"!\[", text)) == 2
    if not programs.flat:
        check_time_series(time_series(cbt, programs, base))
    for path in (reef, squid):
        assert main(["verify", str(path)]) == 0


@NESTED
def test_results_of_cbts_own_elbencho_are_reported(cbt: Cbt, programs: Programs) -> None:
    """1, 2 and 4 threads with 4 requests each, without latencies: 16 at 400 requests/s, by Little's law 40 ms."""
    table = f"OPERATION   RESULT TYPE         FIRST DONE   LAST DONE\n{'=' * 11} {'=' * 16}    {'=' * 10}   {'=' * 9}\n"
    path = cbt.tmp / "elbencho"
    for threads in (1, 2, 4):
        cell = f"read_small/elbencho/read_4096/threads-{threads:03d}/iodepth-004"
        folder = path / "results" / "00000000" / "id-0c9d41ab" / "client1" / "osd_ra-00000000" / cell
        folder.mkdir(parents=True)
        command = f'COMMAND LINE: "elbencho" "--threads" "{threads}" "--block" "4k" "--iodepth" "4" "--size" "4k" \n\n'
        numbers = {"Elapsed time": "10.000s", "Total MiB": 4 * threads, "Objects total": 1000 * threads}
        lines = [f"{' ' * 11} {kind:<17}: {number:>11} {number:>11}\n" for kind, number in numbers.items()]
        text = "".join(lines).replace(" " * 11, "READ".ljust(11), 1)
        (folder / "result.csv").write_text(f"ISO DATE: 2026-09-22T14:23:41+0000\n{command}{table}{text}---\n")
    (path / "results" / "cbt_config.yaml").write_text("benchmarks: {elbencho: {}}\n")
    assert main(["report", str(path), "--visualisation", "read_small"]) == 0
    text = generate(cbt, programs.tree, "generate_performance_report.py", f"--archive={path}")
    (row,) = [line for line in text.splitlines() if line.startswith("|[")]
    assert row.startswith("|[4K  Sequential Read]") and "|1|400 IOps|40.0|" in row


def test_the_formatters_leave_our_files_alone(cbt: Cbt, programs: Programs) -> None:
    aa.cbt_run(cbt.tmp / "A", {"benchmark": "warp", "iteration": 0}, phases=("fill", "measure-new"))
    assert main(["report", str(cbt.tmp / "A")]) == 0
    assert len(list((cbt.tmp / "A").rglob("json_output.*"))) == 2
    program = (
        "import sys; from post_processing.formatter.common_output_formatter import CommonOutputFormatter\n"
        "made = CommonOutputFormatter(sys.argv[1])\n"
        "(getattr(made, 'process', None) or made.convert_all_files)(); print(made._all_test_run_ids)"
    )
    environment = {**cbt.environment, "PYTHONPATH": str(programs.tree)}
    argv = [str(cbt.python), "-W", "ignore", "-c", program, str(cbt.tmp / "A")]
    done = subprocess.run(argv, env=environment, cwd=cbt.tmp, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "set()", done.stdout
