"""Files of the archive that get what connections to nodes bring."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

from cbt_plugins import journal
from cbt_plugins.monitors import agent_connections
from cbt_plugins.monitors.agent_connections import Connection, Output, keep_open

COUNTS_ITS_INPUT = "import sys; print(len(sys.stdin.read()))"


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


@pytest.mark.parametrize("written", [0, 3, 6])
def test_after_a_drop_the_next_line_begins_at_its_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    """On a disk without room a write may take a part."""
    output, write = Output(str(tmp_path / "node1.jsonl")), os.write
    output.append(b"first\nsec")
    with monkeypatch.context() as full:
        full.setattr(agent_connections.os, "write", lambda file, data: write(file, data[:written]))
        output.append(b"ond\nthird")
    for data in (b"more of the third", b" line", b"\n", b"fourth\nfi", b"fth\n"):
        output.append(data)
    lines = (tmp_path / "node1.jsonl").read_bytes().split(b"\n")
    assert lines == [b"first", *(b"sec" + b"ond\nth"[:written]).split(b"\n"), b"fourth", b"fifth", b""]
    assert output.dropped == len(b"ond\nthirdmore of the third line\n") - written


def test_a_file_that_has_reached_its_limit_takes_no_smaller_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(agent_connections, "LARGEST_FILE", 1 << 20)
    output, line = Output(str(tmp_path / "node1.jsonl")), b"x" * 40_000 + b"\n"
    for _ in range(30):
        output.append(line)
    size = (tmp_path / "node1.jsonl").stat().st_size
    output.append(b"a small line\n")
    assert (tmp_path / "node1.jsonl").stat().st_size == size <= 1 << 20
    assert output.dropped == 30 * len(line) + len(b"a small line\n") - size > 0
    (warning,) = capfd.readouterr().err.splitlines()
    assert warning.endswith("node1.jsonl: has 1 MiB: what comes from the node is dropped")


def test_a_line_without_end_costs_no_other_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A reader would refuse the file."""
    monkeypatch.setattr(agent_connections, "LONGEST_LINE", 1 << 20)
    monkeypatch.setattr(journal, "LONGEST_LINE", 2 << 20)
    output, file = Output(str(tmp_path / "node1.jsonl")), tmp_path / "node1.jsonl"
    for data in (b'{"n": 1}\n', *[b"x" * (1 << 16)] * 40, b'x\n{"n": 2}', b"\n", *[b'{"n": 3}\n' * 7000] * 20):
        output.append(data)
    numbers = [line["n"] for line in journal.each_json_line(file)]
    assert numbers == [1, 2, *[3] * 140_000]
    assert 0 < output.dropped < 40 << 16
    (warning,) = capfd.readouterr().err.splitlines()
    assert warning.endswith("node1.jsonl: has a line of 1 MiB: what comes from the node is dropped")


def test_a_run_that_ends_at_once_sends_the_whole_program_first(tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in ("node1.jsonl", "output.txt")]
    node = {"command": [sys.executable, "-c", COUNTS_ITS_INPUT], "lost": [], "files": files}
    wanted = {"name": "example", "program": "x" * 300_000, "output": "", "nodes": {"node1": node}}
    command = [sys.executable, "-IS", agent_connections.__file__]
    done = subprocess.run(command, input=json.dumps(wanted) + "\n", capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"lost": {"node1": 0}, "failed": {}, "dropped": {}}
    assert (tmp_path / "node1.jsonl").read_text() == "300000\n"


def test_only_so_many_connections_are_in_their_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each login takes CPU time here: a thousand at once would take longer than each of them may."""
    monkeypatch.setattr(agent_connections, "AT_ONCE", 3)
    opened: List[str] = []

    class Login(Connection):
        def __init__(self, node: str) -> None:
            self.node = node
            super().__init__({"command": ["sleep", "60"], "lost": []}, b"", selectors.DefaultSelector())

        def keep(self, now: float, may_open: bool) -> None:
            if may_open and not self.open:
                opened.append(self.node)
            super().keep(now, may_open)

    nodes = {f"node{n}": Login(f"node{n}") for n in range(8)}
    try:
        for now, size in ((1.0, 3), (2.0, 3), (1.0 + agent_connections.LOGIN, 6)):
            keep_open(nodes, now, {"name": "example", "output": "", "nodes": {}}, {})
            assert opened == [f"node{n}" for n in range(size)]
    finally:
        for connection in nodes.values():
            connection.end()
