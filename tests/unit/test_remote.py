"""Commands on nodes: what can be proven without a second machine (tests/lab has pdsh and ssh)."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from cbt_plugins.cluster.clock import offsets
from cbt_plugins.cluster.remote import Remote, _by_node, _cut_status
from cbt_plugins.cluster.result import RemoteError
from cbt_plugins.cluster.transport import Transport

HERE = socket.gethostname()
REMOTE = Remote.from_host({}, {})


def test_output_errors_and_status_come_apart() -> None:
    result = REMOTE.run([HERE], "echo out; echo err >&2; exit 3", check=False)[HERE]
    assert (result.stdout, result.stderr, result.status) == ("out\n", "err\n", 3)


def test_a_failure_names_node_status_and_message() -> None:
    with pytest.raises(RemoteError, match=rf"failed on 1 of 1 nodes: {HERE}: exit status 4: no such thing"):
        REMOTE.run([HERE], "echo no such thing >&2; exit 4")


def test_a_command_that_hangs_is_ended_where_it_runs(tmp_path: Path) -> None:
    begun = time.monotonic()
    result = REMOTE.run([HERE], f"echo $$ > {tmp_path}/pid; sleep 1000", timeout=0.5, check=False)[HERE]
    assert result.status == 124
    assert time.monotonic() - begun < 15
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_files_go_and_come_back_byte_for_byte(tmp_path: Path) -> None:
    content = bytes(range(256)) * 1000
    REMOTE.put({HERE: {f"{tmp_path}/a/b": content, f"{tmp_path}/a/c/d": b""}})
    assert oct((tmp_path / "a" / "b").stat().st_mode & 0o777) == "0o600"
    REMOTE.fetch([HERE], f"{tmp_path}/a", tmp_path / "back")
    assert (tmp_path / "back" / HERE / "b").read_bytes() == content
    assert (tmp_path / "back" / HERE / "c" / "d").exists()


def test_a_folder_that_is_not_there_arrives_empty(tmp_path: Path) -> None:
    REMOTE.fetch([HERE], f"{tmp_path}/nothing", tmp_path / "back")
    assert list((tmp_path / "back" / HERE).iterdir()) == []


def test_what_pdsh_prints_is_taken_apart() -> None:
    """pdsh 2.34: "node: " before every line, and its own messages before the node's name."""
    text = "node1: a: b\nnode2:  two\nnode1: \npdsh@node0: node3: ssh exited with exit code 255\n"
    apart = _by_node(["node1", "node2", "node3"], text)
    assert apart["node1"] == "a: b\n\n"
    assert apart["node2"] == " two\n"
    assert "exit code 255" in apart["node3"]


def test_status_line_and_its_line_break_are_cut_off() -> None:
    assert _cut_status("hi\n\ntoken 3\n", "token") == ("hi\n", 3)
    assert _cut_status("no end\ntoken 0\n", "token") == ("no end", 0)
    assert _cut_status("killed", "token") == ("killed", 255)


def test_percent_signs_reach_the_node_and_not_pdsh() -> None:
    transport = Transport(user="root", pdsh="/usr/bin/pdsh", ssh_args=(), own_names=frozenset())
    line, _ = transport.pdsh_line(["a", "b"], "date +%h %n %u %%")
    assert line[-1] == "date +%%h %%n %%u %%%%"
    assert "root@a,root@b" in line


def test_cbt_settings_are_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PDSH_SSH_ARGS_APPEND", "-p 2222")
    common = {"pdsh_cmd": "no-such-pdsh", "pdsh_ssh_args": "-a -x -l%u %h"}
    transport = Transport.from_host({"user": "perf"}, common)
    assert transport.pdsh is None  # ssh is used where pdsh is missing
    line = transport.ssh("node1", "true")
    assert line[-2:] == ["perf@node1", "true"]
    assert line[-6:-2] == ["-a", "-x", "-p", "2222"]


def test_this_machine_needs_no_ssh_unless_another_user_is_asked_for() -> None:
    assert Transport.from_host({}, {}).is_local(HERE)
    assert not Transport.from_host({"user": "nobody-else"}, {}).is_local(HERE)


def test_lines_come_while_the_command_runs() -> None:
    stream = REMOTE.stream([HERE], "echo one; read x; echo got $x")
    try:
        lines = stream.lines(10.0)
        assert next(lines) == (HERE, "one")
        stream.send("two\n")
        assert next(lines) == (HERE, "got two")
        assert list(lines) == []
        assert not stream.open
    finally:
        stream.close()


def test_closing_a_stream_ends_its_command(tmp_path: Path) -> None:
    stream = REMOTE.stream([HERE], f"echo $$ > {tmp_path}/pid; echo up; sleep 1000")
    assert next(stream.lines(10.0))[1] == "up"
    stream.close()
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_our_own_clock_is_our_own_clock() -> None:
    offset = offsets(REMOTE, [HERE])[HERE]
    assert abs(offset.seconds) <= offset.error + 1e-3
