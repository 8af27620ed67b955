"""Plots: written, the same every time, and what they show."""

from __future__ import annotations

import copy
import errno
import os
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any, Dict, List, Tuple

import archive_builder as made
import pytest
from archive_builder import Cluster, Load, archive, swept
from page_archive import add_failure, add_resources, without_windows

pytest.importorskip("matplotlib")

from cbt_plugins.report.plot_files import of_run, of_sweeps
from cbt_plugins.report.sweep import of_runs
from cbt_plugins.results.summary_file import summarize
from cbt_plugins.tools.__main__ import main

NAMES = ["throughput", "latency", "percentiles-get", "percentiles-put", "recovery", "cores", "aging"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Tuple[Dict[str, Any], List[Path]]:
    """The summary of a run, and its plots."""
    place = tmp_path_factory.mktemp("plain")
    summary = summarize(made.small(place / "a"))
    return summary, of_run(summary, place)


def test_a_plot_for_everything_that_a_run_has(plain: Tuple[Dict[str, Any], List[Path]], tmp_path: Path) -> None:
    summary = copy.deepcopy(plain[0])
    assert [path.name for path in plain[1] if path.suffix == ".svg"] == [
        f"{name}.svg" for name in NAMES if name not in ("recovery", "cores")
    ]
    add_failure(summary, "new")
    add_resources(summary, "new")
    found = of_run(summary, tmp_path)
    assert [path.name for path in found if path.suffix == ".png"] == [f"{name}.png" for name in NAMES]
    for path in found:
        if path.suffix == ".svg":
            assert ET.parse(path).getroot().tag.endswith("svg")
        else:
            assert path.read_bytes().startswith(b"\x89PNG")


def test_the_same_run_gives_the_same_bytes(plain: Tuple[Dict[str, Any], List[Path]], tmp_path: Path) -> None:
    summary, one = plain
    assert [path.read_bytes() for path in of_run(summary, tmp_path)] == [path.read_bytes() for path in one]


def test_a_run_with_nothing_has_no_plots(tmp_path: Path) -> None:
    assert of_run(summarize(made.run(tmp_path)), tmp_path) == []


def test_phases_without_a_window_are_in_no_plot(plain: Tuple[Dict[str, Any], List[Path]], tmp_path: Path) -> None:
    """The plots of a run are the same with a phase before and one after it that failed before their windows began."""
    summary = summarize(without_windows(tmp_path))
    for phase in summary["phases"][1:3]:
        # not 53 years after the others, which would be ticks without end
        phase["window"].update({key: phase["window"][key] - made.T0 + 1000 for key in ("start", "end")})
        for bins in (phase["series"], phase["series"]["percentiles"]):
            bins["start"] += 1000 - made.T0
    plots = of_run(summary, tmp_path)
    assert [path.read_bytes() for path in plots] == [path.read_bytes() for path in plain[1]]


def test_an_operation_that_one_measurement_lacks_has_no_rate(
    plain: Tuple[Dict[str, Any], List[Path]], tmp_path: Path
) -> None:
    summary = copy.deepcopy(plain[0])
    (line,) = (
        line for line in summary["new_vs_aged"]["lines"] if (line["op"], line["metric"]) == ("PUT", "obj_per_s")
    )
    line.update(aged=None, change=None)
    (path,) = (path for path in of_run(summary, tmp_path) if path.name == "aging.svg")
    texts = re.findall("<!-- (.*?) -->", path.read_text())
    assert "-" in texts and texts.count("0") == 1, "0 is only on the axis"


def test_sweeps_have_a_plot(tmp_path: Path) -> None:
    runs = [(path, summarize(path)) for path in swept(tmp_path / "a", (2, 8, 32))]
    assert [path.name for path in of_sweeps(of_runs(runs), tmp_path)] == ["sweep-1-load.svg", "sweep-1-load.png"]


def test_plots_by_name_are_all_that_is_written(tmp_path: Path) -> None:
    swept(tmp_path / "a", (2, 8))
    before = sorted((tmp_path / "a").rglob("*"))
    assert main(["report", str(tmp_path / "a"), "--plots", str(tmp_path / "f")]) == 0
    assert sorted((tmp_path / "a").rglob("*")) == before
    plots = {path.name for path in (tmp_path / "f").glob("*.svg")}
    assert plots >= {"00000000-id-00000002-throughput.svg", "sweep-1-load.svg"}


def test_each_iteration_of_a_configuration_has_plots_of_its_own(tmp_path: Path) -> None:
    archive(tmp_path / "a", Load(seconds=12), Cluster(), runs=2)
    assert main(["report", str(tmp_path / "a"), "--plots", str(tmp_path / "f")]) == 0
    plots = [path.name for path in sorted((tmp_path / "f").glob("*-throughput.svg"))]
    assert plots == [f"0000000{iteration}-id-1a2b3c4d-throughput.svg" for iteration in range(2)]


def test_without_matplotlib_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = made.small(tmp_path)
    monkeypatch.delitem(sys.modules, "cbt_plugins.report.plot_files")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["report", str(directory), "--plots", str(tmp_path / "f")]) == 2
    assert "matplotlib: pip install 'cbt-plugins[plots]'" in capsys.readouterr().err
    assert not (tmp_path / "f").exists()


def test_the_old_option_names_the_new_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["report", str(tmp_path), "--figures", "f"])
    assert ended.value.code == 2
    assert "use --plots DIR" in capsys.readouterr().err


def test_a_plot_that_the_disk_has_no_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def of_run(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # of a file that is open, so that it has no name

    monkeypatch.setattr("cbt_plugins.report.plot_files.of_run", of_run)
    assert main(["report", str(made.small(tmp_path / "a")), "--plots", str(tmp_path / "f")]) == 125
    assert capsys.readouterr().err == f"Error: cannot write {tmp_path}/f: No space left on device\n"
