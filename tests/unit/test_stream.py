"""Streams of nodes: long lines, and texts for many nodes."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import List

import pytest

from cbt_plugins.cluster import stream
from cbt_plugins.cluster.stream import Stream
from cbt_plugins.load.generator_process import Lines

#: bytes of a line; a pipe gives at most 64 KiB of it at once
LONG = 4 << 20


class Chunk(bytes):
    """Bytes from a pipe that count the bytes that are copied to put them behind others."""

    copied = 0

    def __radd__(self, before: bytes) -> bytes:
        Chunk.copied += len(before)
        return bytes(before) + bytes(self)


def stream_of(**shell_by_node: str) -> Stream:
    lines = {node: ["sh", "-c", shell] for node, shell in shell_by_node.items()}
    return Stream(lines, dict.fromkeys(lines, lambda text: text))


def test_the_pieces_of_a_long_order_are_joined_once() -> None:
    """An order that arrives in thousands of pieces must not be copied with each of them."""
    taken: List[bytes] = []
    lines = Lines(taken.append)
    Chunk.copied = 0
    for data in (b"first\nsec", b"o", b"nd\n\nthi", b"rd"):
        lines.feed(Chunk(data))
    assert (taken, Chunk.copied) == ([b"first", b"second", b""], 0)
    lines.end()
    assert taken[-1] == b"third"


def test_the_pieces_of_a_long_line_of_a_node_are_joined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read, Chunk.copied = os.read, 0
    with contextlib.closing(stream_of(a=f"head -c {LONG} /dev/zero | tr '\\0' x; echo; printf 'no end'")) as nodes:
        monkeypatch.setattr(stream.os, "read", lambda fd, size: Chunk(read(fd, size)))
        taken = list(nodes.lines(60.0))
    assert [(node, text[:7], len(text)) for node, text in taken] == [("a", "xxxxxxx", LONG), ("a", "no end", 6)]
    assert Chunk.copied == 0


def test_a_node_gets_its_text_before_a_slower_node_has_taken_all(tmp_path: Path) -> None:
    done = tmp_path / "done"
    slow = f"for i in $(seq 300); do [ -e {done} ] && exec wc -c; sleep 0.1; done; echo too late"
    with contextlib.closing(stream_of(slow=slow, fast=f"head -c 6; touch {done}")) as nodes:
        nodes.send_each([("slow", "x" * LONG), ("fast", "short\n")])
        nodes.processes[0].stdin.close()  # type: ignore[union-attr]
        assert dict(nodes.lines(60.0)) == {"slow": str(LONG), "fast": "short"}


def test_a_node_that_reads_nothing_more_costs_no_other_node_its_text() -> None:
    with contextlib.closing(stream_of(gone="exec 0<&-; sleep 60", b="read x; echo $x")) as nodes:
        nodes.send("x" * LONG, "gone")
        nodes.send("text\n")
        assert next(nodes.lines(60.0)) == ("b", "text")


def test_a_node_that_takes_no_input_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose agent is stopped, while its sshd answers; a slow one is waited for."""
    monkeypatch.setattr(stream, "INPUT_LIMIT", 1.0)
    slow = "for i in $(seq 8); do head -c 65536 >/dev/null; sleep 0.3; done; wc -c"
    with contextlib.closing(stream_of(stopped="kill -STOP $$", slow=slow, b="read x; echo $x")) as nodes:
        nodes.send_each([("stopped", "x" * LONG), ("slow", "x" * LONG), ("b", "text\n")])
        assert nodes.lost[:1] == ["stopped"] and "slow" not in nodes.lost
        assert nodes.messages == ["stopped took no input for 1 s"]
        nodes.processes[1].stdin.close()  # type: ignore[union-attr]
        assert sorted(node for node, _ in nodes.lines(60.0)) == ["b", "slow"]
