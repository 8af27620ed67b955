"""What nodes run for faults on daemons: pauses, admin sockets, ports, and haproxy. A small server plays the daemon."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import pytest
from faults_scene import scene_of
from waiting import wait_for

from cbt_plugins.faults import haproxy_agent, process_agent
from cbt_plugins.faults.cluster_facts import DaemonName
from cbt_plugins.faults.daemon_effects import EFFECTS, seen_gone
from cbt_plugins.faults.node_shell import agent_text, script_text
from cbt_plugins.faults.service_managers import Service

#: listens at a port and at an admin socket, with a second thread, and replies to all
DAEMON = """
import json, socket, struct, sys, threading, time
def serve(server, answer):
    while True:
        connection = server.accept()[0]
        connection.recv(1000)
        connection.sendall(answer)
        connection.close()
tcp = socket.socket(); tcp.bind(("0.0.0.0", 0)); tcp.listen(5)
unix = socket.socket(socket.AF_UNIX); unix.bind(sys.argv[1]); unix.listen(5)
reply = sys.argv[2].encode()
threading.Thread(target=serve, args=(unix, struct.pack(">I", len(reply)) + reply), daemon=True).start()
print(tcp.getsockname()[1], flush=True)
serve(tcp, b"HTTP/1.0 200 OK\\r\\n\\r\\n")
"""
STATUS = {
    "state": "leader",
    "election_epoch": 12,
    "quorum": [1, 2],
    "monmap": {"mons": [{"rank": 0, "name": "a"}, {"rank": 1, "name": "b"}, {"rank": 2, "name": "c"}]},
}


class Played:
    """The process that plays a daemon."""

    def __init__(self, folder: Path, reply: Dict[str, Any]) -> None:
        argv = [sys.executable, "-c", DAEMON, f"{folder}/ceph-x.asok", json.dumps(reply)]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.endpoint = f"127.0.0.1:{int(self.process.stdout.readline())}"
        started = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[19]
        self.identity = f"{self.process.pid}:{started}"

    def states(self) -> List[str]:
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/stat")
        return [task.read_text().rpartition(")")[2].split()[0] for task in tasks]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Played]:
    played = Played(tmp_path, STATUS)
    yield played
    played.end()


def pause_program(folder: Path, action: str, *processes: str) -> subprocess.CompletedProcess[str]:
    values = {"action": action, "d": str(folder), "name": "r1-1", "processes": " ".join(processes)}
    text = script_text("pause", **values, agent=agent_text())
    return subprocess.run(["sh", "-c", text], capture_output=True, text=True, timeout=600, check=False)


def test_a_pause_is_of_all_threads_and_is_seen(daemon: Played, tmp_path: Path) -> None:
    assert pause_program(tmp_path, "state", daemon.identity).stdout == "recovered\n"
    done = pause_program(tmp_path, "pause", daemon.identity)
    assert done.returncode == 0, done.stderr
    assert set(daemon.states()) == {"T"} and len(daemon.states()) == 2
    assert float((tmp_path / "r1-1.paused").read_text()) > 0
    assert pause_program(tmp_path, "state", daemon.identity).stdout == ""
    for _ in range(2):
        assert pause_program(tmp_path, "resume", daemon.identity).returncode == 0
    wait_for(lambda: pause_program(tmp_path, "state", daemon.identity).stdout == "recovered\n", "its threads to run")
    assert process_agent.takes_request(*process_agent.endpoint(daemon.endpoint))


def test_no_other_process_of_that_number_is_paused(daemon: Played, tmp_path: Path) -> None:
    pid, _, started = daemon.identity.partition(":")
    another = f"{pid}:{int(started) + 1}"
    done = pause_program(tmp_path, "pause", daemon.identity, another)
    assert done.returncode == 3 and "has ended since" in done.stderr
    assert "T" not in daemon.states() and not (tmp_path / "r1-1.paused").exists()
    os.kill(daemon.process.pid, signal.SIGSTOP)
    wait_for(lambda: set(daemon.states()) == {"T"}, "the stop")
    assert pause_program(tmp_path, "state", another).stdout == "recovered\n"
    pause_program(tmp_path, "resume", another)
    assert set(daemon.states()) == {"T"}


def test_the_admin_socket_of_a_container_is_in_its_own_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its /var/run may be a link to /run, which from outside is that of this machine."""
    row = "0000000017932cb5: 00000002 00000000 00010000 0001 01 4322556 /var/run/ceph/ceph-mon.a.asok\n"
    monkeypatch.setattr(process_agent, "open", lambda path: io.StringIO(row), raising=False)
    monkeypatch.setattr(process_agent, "inodes", lambda pid: {"4322556"})
    assert process_agent.admin_sockets("7:77") == ["/proc/7/root/run/ceph/ceph-mon.a.asok"]


def test_a_process_whose_socket_is_not_there_is_asked_at_its_ports(
    daemon: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_agent, "admin_sockets", lambda process: ["/nowhere/ceph-x.asok"])
    assert not process_agent.is_silent(daemon.identity)


def test_a_process_that_replies_is_not_silent(daemon: Played) -> None:
    assert daemon.endpoint in [f"{host}:{port}" for host, port in process_agent.ports(daemon.identity)]
    assert not process_agent.is_silent(daemon.identity)
    assert json.loads(process_agent.tell(daemon.identity, "mon_status")) == STATUS
    os.kill(daemon.process.pid, signal.SIGSTOP)
    state = Path(f"/proc/{daemon.process.pid}/stat")
    wait_for(lambda: state.read_text().rpartition(")")[2].split()[0] == "T", "its stop")
    assert process_agent.is_silent(daemon.identity)
    assert not process_agent.takes_request(*process_agent.endpoint(daemon.endpoint))


def test_a_port_refuses_when_its_process_has_ended(daemon: Played, tmp_path: Path) -> None:
    seen = tmp_path / "f.refused"
    watching = threading.Thread(target=process_agent.main, args=("refused", str(seen), "60", daemon.endpoint))
    watching.start()
    assert not process_agent.is_refused([daemon.endpoint]) and not seen.exists()
    daemon.end()
    watching.join()
    assert process_agent.is_refused([daemon.endpoint]) and float(seen.read_text()) > 0


@pytest.mark.parametrize(
    ("epoch", "without", "there"), [(10, ["a"], True), (12, ["a"], False), (10, ["b"], False), (10, ["a", "c"], False)]
)
def test_a_quorum_is_a_later_one_without_those(daemon: Played, epoch: int, without: List[str], there: bool) -> None:
    assert process_agent.is_in_quorum(daemon.identity, str(epoch), without) is there


@pytest.mark.parametrize("change", [{"state": "electing"}, {"quorum": []}, {"state": "probing", "quorum": []}])
def test_an_election_is_no_quorum(tmp_path: Path, change: Dict[str, Any]) -> None:
    played = Played(tmp_path, {**STATUS, **change})
    try:
        assert not process_agent.is_in_quorum(played.identity, "1", ["a"])
    finally:
        played.end()


def test_the_active_manager_is_another_one_and_ready() -> None:
    dump = {"active_name": "b", "available": True, "active_change": "2026-11-25T10:08:54.135716+0000"}
    assert process_agent.active_change(dump, ["a"]) == pytest.approx(1795601334.135716)
    assert process_agent.active_change(dump, ["b"]) is None
    assert process_agent.active_change({**dump, "available": False}, ["a"]) is None
    assert process_agent.active_change({**dump, "active_name": ""}, ["a"]) is None


# ---- haproxy

#: of haproxy 2.6.12, `show servers state`, but for a drained server `d`
SERVERS = """\
1
# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight \
srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state \
bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port srv_check_addr srv_agent_addr \
srv_agent_port
3 s3 1 a 10.0.0.1 2 0 1 1 3 1 0 2 0 0 0 0 - 7480 - 0 0 - - 0
3 s3 2 b 10.0.0.2 0 0 1 1 4 8 2 0 6 0 0 0 - 7480 - 0 0 - - 0
3 s3 3 c 10.0.0.3 0 5 1 1 4 1 0 0 8 0 0 0 - 7480 - 0 0 - - 0
3 s3 4 d 10.0.0.4 2 8 1 1 3 1 0 2 0 0 0 0 - 7480 - 0 0 - - 0

"""
STAT = "# pxname,svname,qcur,qmax,scur,status,\ns3,FRONTEND,,,9,OPEN,\ns3,a,0,0,{},DRAIN,\ns3,b,0,0,4,DOWN,\n\n"


@pytest.fixture
def haproxy(tmp_path: Path) -> Iterator[Callable[[List[int]], List[str]]]:
    """Its admin socket; the function gives it the requests under way, look by look, and returns what it is told."""
    path, told = tmp_path / "admin.sock", []
    requests: List[int] = []
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen(5)

    def serve() -> None:
        while True:
            connection = server.accept()[0]
            with connection:
                command = connection.recv(1000).decode().strip()
                told.append(command)
                reply = "\n"
                if command == "show servers state":
                    reply = SERVERS
                elif command == "show stat":
                    reply = STAT.format(requests.pop(0) if requests else 0)
                elif "/e " in command:
                    reply = "No such server.\n\n"
                elif command == "end":
                    return
                connection.sendall(reply.encode())

    thread = threading.Thread(target=serve)
    thread.start()
    yield lambda numbers: requests.extend(numbers) or told  # type: ignore[func-returns-value]
    haproxy_agent.ask(str(path), "end")
    thread.join()
    server.close()


def test_servers_are_found_by_address(
    haproxy: Callable[[List[int]], List[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = f"{tmp_path}/admin.sock"
    haproxy_agent.main("find", path, *(f"10.0.0.{n}:7480" for n in (1, 2, 3, 4, 5)), "10.0.0.1:80")
    assert capsys.readouterr().out == "s3/a ready\ns3/b down\ns3/c maint\ns3/d drain\n"
    for servers, state in ((["s3/a"], "ready"), (["s3/a", "s3/b"], "mixed"), (["s3/x"], "absent")):
        haproxy_agent.main("state", path, *servers)
        assert capsys.readouterr().out == f"{state}\n"


def test_a_drain_ends_with_the_requests_under_way(haproxy: Callable[[List[int]], List[str]], tmp_path: Path) -> None:
    told = haproxy([2, 1])
    haproxy_agent.main("drain", f"{tmp_path}/admin.sock", "600", "s3/a")
    assert told == ["set server s3/a state drain", "show stat", "show stat", "show stat"]
    haproxy_agent.main("ready", f"{tmp_path}/admin.sock", "s3/a")
    assert told[-1] == "set server s3/a state ready"
    with pytest.raises(haproxy_agent.BalancerError, match=r"set server s3/e state ready: No such server\."):
        haproxy_agent.main("ready", f"{tmp_path}/admin.sock", "s3/e")


def test_a_drain_does_not_wait_for_ever(haproxy: Callable[[List[int]], List[str]], tmp_path: Path) -> None:
    told = haproxy([1] * 1000)
    haproxy_agent.main("drain", f"{tmp_path}/admin.sock", "0", "s3/a")
    assert told == ["set server s3/a state drain", "show stat"]


def test_a_server_that_the_monitors_do_not_hear_of_is_none() -> None:
    """Without a standby, a rank keeps the name of its ceph-mds, which is then laggy."""
    ranks = {"gid_4": {"name": "a"}, "gid_5": {"name": "b", "laggy_since": "2026-11-29T07:00:00.000000+0000"}}
    dump = {"standbys": [{"name": "c"}], "filesystems": [{"mdsmap": {"info": ranks}}]}
    assert process_agent.servers(dump, ["a", "b", "c", "d"]) == ["a", "c"]
    assert process_agent.servers(dump, ["b", "d"]) == []
    back = {**dump, "standbys": [{"name": "b"}]}  # a new process, beside what the monitors remember of the former one
    assert process_agent.servers(back, ["b"]) == ["b"]


def test_an_mds_is_down_when_the_file_system_map_shows_it() -> None:
    scene = scene_of()
    services = [Service(DaemonName("mds", id), "node1", "systemd") for id in "ab"]
    (down,), (back,) = seen_gone(scene, services), EFFECTS["mds"].checks_back(scene, services)
    assert down.text == back.text and down.text.startswith("ceph fs dump -f json | ")
    program = down.text.partition(" | ")[2]
    for standbys, differs in (("ab", (True, False)), ("a", (True, True)), ("", (False, True)), (None, (True, True))):
        dump = {"standbys": [{"name": id} for id in standbys or ()], "filesystems": []}
        reply = "" if standbys is None else json.dumps(dump)
        done = subprocess.run(["sh", "-c", program], input=reply, capture_output=True, text=True, check=False)
        assert tuple(check.differs(done.stdout) is not None for check in (down, back)) == differs, standbys
