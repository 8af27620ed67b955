"""Files of monitors that a fetch brings into the archive, and leaves on a node where another machine may write them."""

from __future__ import annotations

import os
import shutil
import socket
import time
from pathlib import Path

import pytest

from cbt_plugins.cluster.remote import Remote
from cbt_plugins.monitors import lifecycle

HERE = socket.gethostname()
REMOTE = Remote.of_cluster({}, {})


@pytest.mark.parametrize(("machine", "stays"), [("", False), (" another-machine", True)])
def test_the_record_of_another_machine_outlives_a_fetch(tmp_path: Path, machine: str, stays: bool) -> None:
    """Machines share the folder, and one is silent: its record is what ends its monitor later."""
    record = tmp_path / "monitors-1" / "collectl" / "a.pid"
    record.parent.mkdir(parents=True)
    record.write_text(f"1 2{machine}\n")
    (record.parent / "samples").write_text("x")  # of this machine before it was started anew
    os.utime(record.parent / "samples", (time.time() - 7200,) * 2)
    (record.parent / "written").write_text("x")  # by the other one, maybe
    lifecycle.fetch_files(REMOTE, [HERE], str(record.parent.parent), tmp_path / "archive", None)
    assert record.exists() == stays == record.parent.parent.exists()
    assert (tmp_path / "archive" / f"collectl.{HERE}" / "samples").exists() and not (record.parent / "samples").exists()
    assert (tmp_path / "archive" / f"collectl.{HERE}" / "written").exists()
    assert (record.parent / "written").exists() == stays
    if stays:  # each resume finds the record again
        (record.parent / "written").unlink()
        assert lifecycle.fetch_files(REMOTE, [HERE], str(record.parent.parent), tmp_path / "resumed", None) == []
        assert not any((tmp_path / "resumed").iterdir()) and record.exists()


def test_what_stays_for_another_machine_is_archived_once(tmp_path: Path) -> None:
    """The machine is silent, or it was this one before it was started anew; each resume has a folder of its own."""
    samples = tmp_path / "monitors-1" / "collectl" / "samples"
    samples.parent.mkdir(parents=True)
    (samples.parent / "a.pid").write_text("1 2 another-machine\n")
    for number, text in enumerate(["x", "x", "xy", "xyz"], 1):
        samples.write_text(text)
        if text == "xyz":  # the machine answers, and its monitor was ended
            (samples.parent / "a.pid").unlink()
        folder = tmp_path / "archive" / f"{number:02d}"
        lifecycle.fetch_files(REMOTE, [HERE], str(samples.parent.parent), folder, None)
        (archived,) = (tmp_path / "archive").rglob("samples")
        assert archived.read_text() == text and samples.exists() == (text != "xyz")
    assert [path.name for path in (tmp_path / "archive").glob("*/*")] == [f"collectl.{HERE}"]


def test_a_copy_that_has_a_sum_does_not_change(tmp_path: Path) -> None:
    """The run has ended, and a node was not reached until later."""
    samples = tmp_path / "monitors-1" / "collectl" / "samples"
    samples.parent.mkdir(parents=True)
    (samples.parent / "a.pid").write_text("1 2 another-machine\n")
    monitors = tmp_path / "run" / "monitors"
    for number, text in enumerate(["x", "x", "xy"], 1):
        samples.write_text(text)
        lifecycle.fetch_files(REMOTE, [HERE], str(samples.parent.parent), monitors / f"{number:02d}", None)
        (tmp_path / "run" / "SHA256SUMS").touch()
    assert [(monitors / path).read_text() for path in sorted(monitors.rglob("samples"))] == ["x", "xy"]


def test_what_only_looks_like_an_earlier_file_has_a_place_of_its_own(tmp_path: Path) -> None:
    """Each phase has such a folder on the nodes, and the file of a phase begins like those before it, or is empty."""
    folder = tmp_path / "monitors-1" / "own"
    for number, (text, record) in enumerate([("", ""), ("x", ""), ("xy", ""), ("z", "1 2 other"), ("y", "")], 1):
        folder.mkdir(parents=True)
        (folder / "samples").write_text(text)
        if record:
            (folder / "a.pid").write_text(record)
        archive = tmp_path / "archive" / f"{number:02d}"
        assert lifecycle.fetch_files(REMOTE, [HERE], str(folder.parent), archive, None) == [archive / f"own.{HERE}"]
        assert (archive / f"own.{HERE}" / "samples").read_text() == text
        shutil.rmtree(folder.parent, ignore_errors=True)
