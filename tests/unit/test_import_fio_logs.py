"""Logs of fio whose times or values are not the usual ones: recorded logs, changed as the options change them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import List, Optional, Tuple

import pytest

from cbt_plugins.results.record_reader import read_imported
from cbt_plugins.results.run_record import Measurement, RunRecord

DATA = Path(__file__).parent.parent / "data" / "imported" / "fio"
NAME = "windowed.json"
BEGIN_MS = 1795277035736 - 6001


def moved(folder: Path, by: int, clat: Optional[int] = None) -> RunRecord:
    """Return the record of two jobs whose logs have other times; `clat` moves those of the latencies."""
    shutil.copy(DATA / NAME, folder)
    for path in DATA.glob("w_*.log"):
        rows: List[Tuple[str, str, str]] = [line.partition(",") for line in path.read_text().splitlines()]
        shift = by if clat is None or "clat" not in path.name else clat
        (folder / path.name).write_text("".join(f"{int(ms) + shift},{values}\n" for ms, _, values in rows))
    (record,) = read_imported(folder / NAME)
    return record


def line_of(record: RunRecord, metric: str) -> Measurement:
    (line,) = [line for line in record.measurements if line.metric == metric]
    return line


def test_times_of_the_calendar(tmp_path: Path) -> None:
    """log_unix_epoch=1."""
    usual = moved(tmp_path, 0)
    assert line_of(usual, "mean_ms").series
    assert moved(tmp_path, BEGIN_MS).measurements == usual.measurements
    assert moved(tmp_path, BEGIN_MS, clat=0).measurements == usual.measurements


@pytest.mark.parametrize("by", [BEGIN_MS - 86_400_000, BEGIN_MS + 86_400_000, 300_000])
@pytest.mark.parametrize("clat", [0, None])
def test_times_of_another_clock_are_no_series(tmp_path: Path, by: int, clat: Optional[int]) -> None:
    """log_alternate_epoch=1, or the log of another run."""
    record = moved(tmp_path, by, clat)
    texts = [warning.text for warning in record.warnings if warning.code == "no-series"]
    assert len(texts) == 2 and "_iops.1.log: its times are not within" in texts[0]
    rate = line_of(record, "obj_per_s")
    assert record.usable and rate.series is None and rate.value == pytest.approx(4000, rel=0.01)


@pytest.mark.parametrize(("option", "mean", "rate"), [("max", 0, 1), ("1", 0, 1), ("avg", 1, 1), ("both", 0, 0)])
def test_maxima_of_windows_are_no_series_of_means(tmp_path: Path, option: str, mean: int, rate: int) -> None:
    moved(tmp_path, 0)
    text = (tmp_path / NAME).read_text()
    (tmp_path / NAME).write_text(text.replace('"log_avg_msec"', f'"log_window_value": "{option}", "log_avg_msec"'))
    (record,) = read_imported(tmp_path / NAME)
    series = [line_of(record, metric).series for metric in ("mean_ms", "obj_per_s")]
    assert [bool(values) for values in series] == [bool(mean), bool(rate)]
