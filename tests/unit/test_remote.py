"""Commands on nodes: what can be proven without a second machine (tests/lab has pdsh and ssh)."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator, List

import pytest
from own_sshd import own_sshd, sshd_program
from waiting import wait_for

from cbt_plugins.cluster import remote
from cbt_plugins.cluster.ceph import END_WITH_INPUT
from cbt_plugins.cluster.clock_offsets import offsets
from cbt_plugins.cluster.remote import OpenInput, Remote, RemoteError
from cbt_plugins.cluster.shell_programs import script_command, subject_of
from cbt_plugins.cluster.transports import transport
from cbt_plugins.cluster.transports.pdsh import Pdsh, cut_status, distinguishable_nodes, lines_by_node
from cbt_plugins.cluster.transports.transport import Transport
from cbt_plugins.monitors import lifecycle

HERE = socket.gethostname()
REMOTE = Remote.of_cluster({}, {})


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


class WithHelper(Transport):
    """Starts a command line that hangs, and one beside it that holds its pipes: so is ssh with a ProxyJump."""

    connect_limit = 2.0

    def __init__(self, helper: str) -> None:
        super().__init__({}, {})
        self.helper = helper

    def command(self, node: str, shell: str, silence: float) -> List[str]:
        return ["sh", "-c", f"echo before >&2; {self.helper} & exec sleep 60"]

    def login(self, node: str) -> str:
        return ""


@pytest.mark.parametrize("session", ["", "setsid"])
def test_a_connection_that_hangs_is_ended_with_its_helper(
    session: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A helper in another session lives on, and nobody waits for it."""
    monkeypatch.setattr(transport, "LAST_OUTPUT", 0.1)
    helper = f"{session} sh -c 'echo $$ > {tmp_path}/pid; sleep 60; : > {tmp_path}/ended'"
    nodes: Any = {"n1": WithHelper(helper)}
    result = Remote(nodes).run(["n1"], "true", timeout=0.1, check=False)["n1"]
    assert (result.stdout, result.stderr, result.status) == ("", "before\n\nno reply in time", 255)
    assert not (tmp_path / "ended").exists()
    if session:
        os.killpg(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_a_command_may_take_a_month() -> None:
    # 43 million objects of a bucket are removed within so long
    assert REMOTE.run([HERE], "echo removed", timeout=3600.0 + 43e6 / 20)[HERE].stdout == "removed\n"


#: of a run: removes a bucket, collects or counts garbage, or fetches a folder
RUN = """\
import socket, sys, time
from pathlib import Path
from cbt_plugins import signals
from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.remote import Remote
from cbt_plugins.monitors import lifecycle
from cbt_plugins.run import wait_phase

wait_phase.COUNT_EVERY, wait_phase.SPARED = 0.1, 0.0
work, folder, arguments = sys.argv[1:]
cluster = {"head": "n1" if arguments else "localhost", "radosgw-admin_cmd": f"A=1 {folder}/radosgw-admin"}
remote = Remote.of_cluster({**cluster, "transport": "ssh"} if arguments else cluster, {"pdsh_ssh_args": arguments})
ceph = Ceph(remote, cluster)
with signals.handled():
    if work == "nodes":
        lifecycle.fetch_files(remote, ["localhost", socket.gethostname()], f"{folder}/rows", Path(folder, "back"), None)
    elif work == "fetch":
        remote.fetch([cluster["head"]], f"{folder}/rows", Path(folder, "back"))
    elif work == "bucket":
        ceph.remove_bucket("b", 3600.0)
    else:
        garbage = wait_phase.Garbage(ceph, 3600.0)
        garbage.start()
        try:
            sys.stdin.read()
        finally:
            garbage.give_up()
            print(garbage.collecting, garbage.error)
"""
#: a script around a program of hours that says its pid, in a group of its own: of the work "count" it is the second
#: `gc list`
HOURS = """\
#!/bin/sh
case "{work} $*" in
"count "*list*) mkdir {folder}/first 2>/dev/null && echo '"tag": 1' && exit ;;
*list*) echo '"tag": 1'; exit ;;
"count "*) exec sleep 1000 ;;
esac
timeout 1000 sh -c 'echo $$ > {folder}/pid.new; mv {folder}/pid.new {folder}/pid; exec sleep 1000'
exit
"""


@pytest.fixture(params=["local", "ssh"])
def ssh_arguments(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Options of ssh that reach a real sshd of this machine; "" for the shell of this machine."""
    if request.param == "local":
        yield ""
        return
    program = sshd_program()
    if program is None:
        pytest.skip("no sshd")
    with own_sshd(tmp_path, program) as (options, _):
        yield shlex.join([*options, "-oHostname=127.0.0.1"])


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("work", ["bucket", "garbage", "count"])
def test_work_of_hours_ends_with_the_run(tmp_path: Path, ssh_arguments: str, work: str, end: signal.Signals) -> None:
    """It would load the cluster beside the next measurement."""
    (tmp_path / "radosgw-admin").write_text(HOURS.format(folder=tmp_path, work=work))
    (tmp_path / "radosgw-admin").chmod(0o755)
    line = [sys.executable, "-c", RUN, work, str(tmp_path), ssh_arguments]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_for((tmp_path / "pid").exists, "the begin of the work")
        pid = int((tmp_path / "pid").read_text())
        process.send_signal(end)
        out, err = process.communicate(timeout=60)
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the end of the work")
    if work != "bucket" and end == signal.SIGINT:
        assert (out, b"trying again" in err) == (b"False None\n", False)


def test_work_that_ends_by_itself_has_its_output_and_status() -> None:
    with contextlib.closing(OpenInput()) as open_input:
        line = script_command(END_WITH_INPUT, "sh", "-c", "cat; echo out; echo err >&2; exit 3")
        result = REMOTE.run([HERE], line, check=False, open_input=open_input)[HERE]
    assert (result.stdout, result.stderr, result.status) == ("out\n", "err\n", 3)


@pytest.mark.parametrize("work", ["fetch", "nodes"])
def test_a_copy_ends_with_an_interrupt(tmp_path: Path, work: str) -> None:
    """What is sent comes to no end: the receiver would write into the archive for as long."""
    (tmp_path / "rows").mkdir(mode=0o700)
    (tmp_path / "tar").write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid$1-$$\nexec sleep 1000\n")
    (tmp_path / "tar").chmod(0o755)
    line = [sys.executable, "-c", RUN, work, str(tmp_path), ""]
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with subprocess.Popen(line, stderr=subprocess.PIPE, env=environment) as process:
        wait_for(lambda: len(list(tmp_path.glob("pid-*"))) == (4 if work == "nodes" else 2), "the begin of the copy")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    pids = [int(path.name.rpartition("-")[2]) for path in tmp_path.glob("pid-*")]
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the end of the copy")
    assert err.rstrip().splitlines()[-1].startswith(b"KeyboardInterrupt") and not list(tmp_path.glob("back/.fetch-*"))


def test_files_go_and_come_back_byte_for_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = bytes(range(256)) * 1000
    REMOTE.put({HERE: {f"{tmp_path}/a/b": content, f"{tmp_path}/a/c/d": b""}})
    assert oct((tmp_path / "a" / "b").stat().st_mode & 0o777) == "0o600"
    synced: List[Path] = []
    monkeypatch.setattr(remote, "sync_files", synced.append)
    REMOTE.fetch([HERE], f"{tmp_path}/a", tmp_path / "back")
    assert synced == [tmp_path / "back" / HERE], "another node may be fetched into the same folder"
    assert (tmp_path / "back" / HERE / "b").read_bytes() == content
    assert (tmp_path / "back" / HERE / "c" / "d").exists()


def test_a_copy_from_which_nothing_more_comes_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "LOOK", 0.05)
    process = subprocess.Popen(["sleep", "1000"])
    sizes = iter([1, 2, 3])
    folder: Any = SimpleNamespace(rglob=lambda pattern: [tmp_path] * next(sizes, 3))
    assert remote.end_of_copy(process, folder, 0.2) == b"no more data came for 0.2 s"
    assert process.returncode == -9 and next(sizes, None) is None


def test_a_folder_that_is_not_there_arrives_empty(tmp_path: Path) -> None:
    REMOTE.fetch([HERE], f"{tmp_path}/nothing", tmp_path / "back")
    assert list((tmp_path / "back" / HERE).iterdir()) == []


def test_a_folder_that_is_refused_or_cannot_be_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no empty one: what was not fetched would be removed."""
    folder = tmp_path / "open" / "a"
    folder.mkdir(parents=True)
    (folder / "rows").write_text("1")
    folder.parent.chmod(0o777)
    with pytest.raises(RemoteError, match=r"open .*others could replace"):
        REMOTE.fetch([HERE], str(folder), tmp_path / "back")
    folder.parent.chmod(0o700)
    tar = tmp_path / "tar"
    fails = '[ "$1" = -c ] && [ "$2" = -f ] && { echo "tar: ./rows: Input/output error" >&2; exit 2; }'
    tar.write_text(f'#!/bin/sh\n{fails}\nexec {shutil.which("tar")} "$@"\n')
    tar.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(RemoteError, match="Input/output error"):
        REMOTE.fetch([HERE], str(folder), tmp_path / "back")


def test_what_pdsh_prints_is_taken_apart() -> None:
    """pdsh 2.34: "node: " before every line, and its own messages before the node's name."""
    text = "node1: a: b\nnode2:  two\nnode1: \npdsh@node0: node3: ssh exited with exit code 255\n"
    apart = lines_by_node(["node1", "node2", "node3"], text)
    assert apart["node1"] == "a: b\n\n"
    assert apart["node2"] == " two\n"
    assert "exit code 255" in apart["node3"]
    # characters at which Python ends a line, and pdsh does not
    strange = "node1: a\x0cnode2: b\u2028node2: c\x85node2: d\n"
    assert lines_by_node(["node1", "node2"], strange)["node2"] == ""


@pytest.fixture
def pdsh(tmp_path: Path) -> Remote:
    """The real pdsh, with a shell on this machine instead of each ssh."""
    if not shutil.which("pdsh"):
        pytest.skip("needs pdsh")
    program = tmp_path / "pdsh"
    # pdsh -R ssh -f N -w NODES COMMAND; what exec runs is not expanded by a shell again, as ssh's command is
    program.write_text('#!/bin/sh\nexec pdsh -R exec "$3" "$4" "$5" "$6" sh -c "$7"\n')
    program.chmod(0o755)
    return Remote.of_cluster({"osds": ["root@d.lab.example.com"]}, {"pdsh_cmd": str(program)})


@pytest.mark.parametrize(
    "nodes",
    [
        ["a.lab.example.com", "b.lab.example.com"],  # pdsh takes a common domain off its labels
        ["a.lab.example.com", "b.other.example.org"],
        ["a", "b.lab.example.com"],
        ["a", "d.lab.example.com"],
        ["c.lab.example.com", "d.lab.example.com"],
        ["10.0.0.1", "10.0.0.2"],
        ["10.0.0.1", "11.0.0.1"],
        ["Node1.Lab.example.com", "node2.lab.example.com"],
        ["node1", "node2"],
    ],
)
def test_pdsh_with_names_of_every_form(pdsh: Remote, nodes: List[str]) -> None:
    results = pdsh.run(nodes, "echo out; echo; echo err: 5% >&2; exit 3", check=False)
    assert list(results) == nodes
    for result in results.values():
        assert (result.stdout, result.stderr.splitlines()[0], result.status) == ("out\n\n", "err: 5%", 3)


@pytest.mark.parametrize(
    ("nodes", "apart"),
    [
        (["a.lab", "a", "b", "c"], ["b", "c"]),  # pdsh calls both `a`
        (["a.lab", "a.other", "b"], ["a.lab", "a.other", "b"]),
        (["a.lab", "A.lab"], ["a.lab", "A.lab"]),
        (["a"], []),
    ],
)
def test_pdsh_reaches_what_its_labels_tell_apart(nodes: List[str], apart: List[str]) -> None:
    assert distinguishable_nodes(nodes) == apart


def test_an_ipv6_address_takes_ssh() -> None:
    remote = Remote.of_cluster({"user": "u"}, {"pdsh_cmd": "sh"})
    assert [remote.transport_name(node) for node in ("fe80::1", "10.0.0.1")] == ["ssh", "pdsh"]
    assert remote.command("fe80::1", "true")[-2:] == ["u@fe80::1", "true"]


@pytest.mark.parametrize("nodes", [["one.invalid"], ["one.invalid", "two.invalid"]])
def test_a_node_out_of_reach_is_told_once_with_what_to_try(nodes: List[str]) -> None:
    remote = Remote.of_cluster({"user": "perf", "osds": ["two.invalid"]}, {})
    with pytest.raises(RemoteError) as raised:
        remote.run(nodes, "hostname")
    said = str(raised.value)
    count = len(nodes)
    assert said.startswith(f"hostname failed on {count} of {count} nodes: one.invalid: exit status 255: ssh: ")
    assert said.count("one.invalid: exit status") == said.count("; try: ssh perf@one.invalid true") == 1
    assert "pdsh@" not in said


def test_messages_of_pdsh_itself_reach_nodes_with_a_domain() -> None:
    text = "pdsh@here: b: ssh exited with exit code 255\n"
    assert "255" in lines_by_node(["a.lab.example.com", "b.lab.example.com"], text)["b.lab.example.com"]


def test_a_port_of_its_own_takes_ssh() -> None:
    remote = Remote.of_cluster({"user": "u", "osds": ["ceph@a:2222", "b"]}, {"pdsh_cmd": "sh"})
    assert remote.command("a", "true")[-4:] == ["2222", "--", "ceph@a", "true"]
    assert remote.command("b", "true")[-2:] == ["u@b", "true"]
    assert [remote.transport_name(node) for node in ("a", "b")] == ["ssh", "pdsh"]


@pytest.mark.parametrize("of_all", ["-p 22", "-oPort=22", "-o Port=22"])
def test_a_port_of_its_own_wins_over_that_of_all(of_all: str) -> None:
    remote = Remote.of_cluster({"osds": ["a:2222", "b"]}, {"pdsh_cmd": "no-such-pdsh", "pdsh_ssh_args": of_all})
    for line in (remote.command("a", "true"), remote.login("a").split()):
        place = line.index("-p")  # ssh takes the first one: `ssh -G -p 2222 -p 22 host`
        assert line[place + 1] == "2222" and place < line.index(of_all.split()[0], place + 1)
    assert (remote.port("a"), remote.port("b")) == (2222, 22) and "2222" not in remote.command("b", "true")


@pytest.mark.parametrize(
    ("command", "subject"),
    [
        ("\n# a comment\n  mkdir /x\nls", "mkdir /x"),
        ("true", "true"),
        (script_command(lifecycle.STOP, "/a b", "c"), "stop_by_pid.sh /a b c"),
    ],
)
def test_errors_name_the_command_and_the_node(command: str, subject: str) -> None:
    assert subject_of(command) == subject
    with pytest.raises(RemoteError, match=rf"^echo no; false failed on 1 of 1 nodes: {HERE}: exit status 1: no me"):
        REMOTE.run([HERE], "\necho no; false")


def test_status_line_and_its_line_break_are_cut_off() -> None:
    assert cut_status("hi\n\ntoken 3\n", "token") == ("hi\n", 3)
    assert cut_status("no end\ntoken 0\n", "token") == ("no end", 0)
    assert cut_status("killed", "token") == ("killed", 255)
    assert cut_status("x\ntoken 3\nwritten by a process that runs on\n", "token") == ("x", 3)
    assert cut_status("token 3x", "token") == ("", 255)


def test_percent_signs_reach_the_node_and_not_pdsh() -> None:
    line, _ = Pdsh({"user": "root"}, {"pdsh_cmd": "sh"}).line(["a", "b"], "date +%h %n %u %%")
    assert line[-1] == "date +%%h %%n %%u %%%%"
    assert "root@a,root@b" in line


@pytest.mark.parametrize("said", ["Cannot write: No space left on device", "Wrote only 1536 of 10240 bytes"])
def test_a_full_disk_here_is_no_error_of_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "rows").write_text("1")
    tar = tmp_path / "tar"
    text = f'case $LC_ALL in C) echo "tar: ./rows: {said}";; *) echo "tar: ./rows: Auf dem Gerät ist kein Platz";; esac'
    unpacks = f'[ "$1" = -x ] && {{ cat >/dev/null; {text} >&2; exit 2; }}'
    tar.write_text(f'#!/bin/sh\n{unpacks}\nexec {shutil.which("tar")} "$@"\n')
    tar.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    with pytest.raises(OSError, match="No space left on device"):
        REMOTE.fetch([HERE], f"{tmp_path}/a", tmp_path / "back")


@pytest.mark.parametrize("arguments", ["-a -x -l%u %h", "-a -x -l %u %h", "-a -xl%u %h", "-a -xl %u"])
def test_cbt_settings_are_honoured(monkeypatch: pytest.MonkeyPatch, arguments: str) -> None:
    monkeypatch.setenv("PDSH_SSH_ARGS_APPEND", "-p 2222")
    common = {"pdsh_cmd": "no-such-pdsh", "pdsh_ssh_args": arguments}
    remote = Remote.of_cluster({"user": "perf"}, common)
    assert remote.transport_name("node1") == "ssh"  # it is used where pdsh is missing
    line = remote.command("node1", "true")
    assert line[-2:] == ["perf@node1", "true"]
    assert line[-7:-2] == ["-a", "-x", "-p", "2222", "--"]


def test_a_network_may_be_silent_for_as_long_as_a_connection_has_patience() -> None:
    command = REMOTE.command
    alive = [word for word in command("node1", "true") + command("node1", "true", 600.0) if "Alive" in word]
    each = "-oServerAliveInterval=15"
    assert alive == [each, "-oServerAliveCountMax=4", each, "-oServerAliveCountMax=40"]


def test_this_machine_needs_no_ssh_unless_another_user_is_asked_for() -> None:
    assert REMOTE.transport_name(HERE) == "local"
    assert Remote.of_cluster({"user": "nobody-else"}, {}).transport_name(HERE) != "local"


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


def test_a_close_that_was_interrupted_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a second Ctrl-C, while it waits for a command that does not end at once."""
    stream = REMOTE.stream([HERE], "trap '' TERM; echo up; while :; do sleep 0.1; done")
    assert next(stream.lines(10.0))[1] == "up"
    wait, process = subprocess.Popen.wait, stream.processes[0]

    def interrupted(*_: object) -> int:
        monkeypatch.setattr(subprocess.Popen, "wait", wait)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        stream.close()
    assert process.poll() is None
    stream.close(timeout=0.0)
    assert process.returncode == -signal.SIGKILL
    stream.close()


def test_our_own_clock_is_our_own_clock() -> None:
    offset = offsets(REMOTE, [HERE])[HERE]
    assert abs(offset.seconds) <= offset.error + 1e-3


def test_a_clock_near_1970_is_a_clock() -> None:
    """A node without a battery for its clock starts there: its offset is what the run must name."""

    class Node1970(Transport):
        def command(self, node: str, shell: str, silence: float) -> List[str]:
            return ["sh", "-c", shell.replace("time.time()", "time.monotonic() % 9 - 5")]

        def login(self, node: str) -> str:
            return ""

    nodes: Any = {"n1": Node1970({}, {})}
    assert abs(offsets(Remote(nodes), ["n1"], timeout=10.0)["n1"].seconds + time.time()) < 20.0


@pytest.mark.parametrize("answers", [True, False])
def test_a_login_that_prints_costs_no_clock(answers: bool) -> None:
    """Only lines that are a time count, and without one the error says what is wrong."""

    class Printing(Transport):
        def command(self, node: str, shell: str, silence: float) -> List[str]:
            return ["sh", "-c", f"printf '42\\n1.5e9\\n1764562332.5\\n'; {shell if answers else 'exit 1'}"]

        def login(self, node: str) -> str:
            return ""

    nodes: Any = {"n1": Printing({}, {})}
    if answers:
        assert abs(offsets(Remote(nodes), ["n1"])["n1"].seconds) < 1.0
    else:
        with pytest.raises(RemoteError, match="its login prints '42': logins without a terminal must print nothing"):
            offsets(Remote(nodes), ["n1"])
