"""CBT's report generators take what `cbt-tools export --format cbt` writes; its formatters leave our files alone."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Tuple

import export_archives as ea
import pytest
from cbt_trees import Trees

from cbt_plugins.tools.__main__ import main

from .conftest import Cbt, run

pytestmark = pytest.mark.upstream

#: era -> dialect, suffix of its plots
GENERATORS = {"master": ("head", "png"), "2026": ("main", "svg"), "newest": ("main", "svg")}


@pytest.fixture(params=GENERATORS)
def generators(request: pytest.FixtureRequest, trees: Trees, cbt: Cbt) -> Tuple[Path, str, str]:
    cbt.need("lxml", "matplotlib", "mdutils")
    return (trees[request.param], *GENERATORS[request.param])


@pytest.fixture
def exported(cbt: Cbt, capsys: pytest.CaptureFixture[str]) -> Path:
    """Curves of three points: 4 KiB at 300, 600, 1200 requests/s, half of that when aged; and of 64 KiB."""
    s3 = {"urls": ["http://192.0.2.5:7480"], "user": "cbt"}
    section = {"s3": s3, "workers": [2, 4, 8], "size": ["4KiB", "64KiB"]}
    path = cbt.tmp / "reef_18"
    for config in ea.archive(path, section, cbt.tmp / "ceph.conf"):
        size = {"4KiB": 4096, "64KiB": 65536}[config["size"]]
        phases = ("measure-new", "measure-aged")
        ea.run(path, config, workers=config["workers"], size=size, aged=2.0, phases=phases, summary=False)
    assert main(["export", str(path), "--format", "cbt", "-o", str(cbt.tmp / "out")]) == 0
    capsys.readouterr()
    return cbt.tmp / "out"


def generate(cbt: Cbt, tree: Path, program: str, *options: str) -> str:
    """The Markdown that one of the tree's programs makes."""
    drawn = {"MPLBACKEND": "Agg", "MPLCONFIGDIR": str(cbt.tmp / "mpl")}
    environment = {**cbt.environment, **drawn, "PYTHONPATH": str(tree)}
    output = cbt.tmp / f"report-{len(list(cbt.tmp.glob('report-*')))}"
    argv = [str(cbt.python), "-W", "ignore", str(tree / "tools" / program), *options, f"--output_directory={output}"]
    done = run(argv, env=environment, cwd=str(cbt.tmp))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr, done.stdout + done.stderr
    return next(output.glob("*.md")).read_text()


def test_the_report_has_our_numbers_and_curves(cbt: Cbt, generators: Tuple[Path, str, str], exported: Path) -> None:
    tree, dialect, suffix = generators
    archive = exported / dialect / "reef-18-measure-new"
    text = generate(cbt, tree, "generate_performance_report.py", f"--archive={archive}")
    assert "Performance Report for reef-18-measure-new" in text
    small, large = [line for line in text.splitlines() if line.startswith("|[")]
    assert re.search(r"\|1200 IOps\|13\.3\|", small), small
    assert "67_33_randrw" in small if dialect == "head" else "4K 67/33  Random Read/Write" in small
    assert re.search(r"\|79 MB/s\|13\.3\|", large), "from 64 KiB on it is MB/s"
    assert sorted(path.suffix for path in (archive / "visualisation").iterdir()) == [".json"] * 2 + [f".{suffix}"] * 2
    assert "workers" in text.split("Configuration yaml")[-1]


def test_new_and_aged_are_compared(cbt: Cbt, generators: Tuple[Path, str, str], exported: Path) -> None:
    tree, dialect, _ = generators
    root = exported / dialect
    options = [f"--baseline={root / 'reef-18-measure-new'}", f"--archives={root / 'reef-18-measure-aged'}"]
    text = generate(cbt, tree, "generate_comparison_performance_report.py", *options)
    row = next(line for line in text.splitlines() if line.startswith("|[4K"))
    assert "|1200 IOps@13.3ms|600 IOps@26.7ms|-50%|" in row, row


def test_the_formatters_leave_our_files_alone(cbt: Cbt, generators: Tuple[Path, str, str]) -> None:
    tree, _, _ = generators
    ea.run(cbt.tmp / "A", {"benchmark": "warp", "iteration": 0}, phases=("fill", "measure-new"))
    assert main(["report", str(cbt.tmp / "A")]) == 0
    assert len(list((cbt.tmp / "A").rglob("json_output.*"))) == 2
    program = (
        "import sys; from post_processing.formatter.common_output_formatter import CommonOutputFormatter\n"
        "made = CommonOutputFormatter(sys.argv[1]); made.convert_all_files(); print(made._all_test_run_ids)"
    )
    environment = {**cbt.environment, "PYTHONPATH": str(tree)}
    argv = [str(cbt.python), "-W", "ignore", "-c", program, str(cbt.tmp / "A")]
    done = subprocess.run(argv, env=environment, cwd=cbt.tmp, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "set()", done.stdout
