"""Files of the archive that get what connections to nodes bring."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cbt_plugins.monitors.agent_connections import Output


def test_a_torn_line_ends_before_the_next_connection(tmp_path: Path) -> None:
    file = tmp_path / "node1.jsonl"
    file.write_bytes(b"torn by a kill")
    output = Output(str(file))
    for data in (b"first\nsec", b"ond\nthi"):
        output.append(data)
    output.begin_line()
    output.append(b"fourth\n")
    output.begin_line()
    output.append(b"fifth\n")
    assert file.read_bytes() == b"torn by a kill\nfirst\nsecond\nthi\nfourth\nfifth\n" and not output.dropped


def test_only_a_regular_file_is_written(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A link could lead to any file, and a FIFO would wait for a reader."""
    (tmp_path / "link").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "fifo"):
        output = Output(str(tmp_path / name))
        output.append(b"line\n")
        assert output.dropped == 5
    assert not (tmp_path / "target").exists()
    link, fifo = capfd.readouterr().err.splitlines()
    assert "link: Too many levels of symbolic links: " in link and "fifo: Illegal seek: " in fifo


def test_the_file_is_opened_once(tmp_path: Path) -> None:
    """Each open of a file on a slow disk would hold up all connections."""
    output = Output(str(tmp_path / "node1.jsonl"))
    output.append(b"first\n")
    (tmp_path / "node1.jsonl").rename(tmp_path / "moved")
    output.append(b"second\n")
    assert (tmp_path / "moved").read_bytes() == b"first\nsecond\n"
