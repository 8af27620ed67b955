"""How nodes are reached: which transport a node has, what each says of itself, and a hundred nodes without pdsh."""

from __future__ import annotations

import ast
import json
import os
import socket
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, cast

import pytest
from config_files import CLUSTER, RGWTEST, errors_in

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.clock_offsets import offsets
from cbt_plugins.cluster.remote import Remote, RemoteError
from cbt_plugins.cluster.transports.ssh import Ssh
from cbt_plugins.cluster.transports.transport_choice import TransportChoice
from cbt_plugins.cluster_conditions import COMMAND
from cbt_plugins.config import plugins
from cbt_plugins.config.file_check import load_file
from cbt_plugins.faults import ClusterAccess, FaultError, cluster_access, undo_seal
from cbt_plugins.faults.step import Check, Command, Step
from cbt_plugins.faults.undo_journal import UndoJournal
from cbt_plugins.tools.__main__ import main

HERE = socket.gethostname()
INSTALLED = f"installed are {', '.join(plugins.names(plugins.TRANSPORTS))}"
NO_PDSH = {"pdsh_cmd": "no-such-pdsh"}
PROJECT = Path(__file__).resolve().parents[2]
HUNDRED = [f"node{number}" for number in range(100)]


def test_no_transport_is_known_by_name_outside_its_own_file() -> None:
    """The lab has an sshd of its own, what is `local` may be something else, and kubectl is a program besides."""
    rooms = [PROJECT / name for name in ("cbt_plugins", "monitors", "tools")]
    apart = [PROJECT / "cbt_plugins" / "cluster" / "transports", PROJECT / "tools" / "lab"]
    apart.append(PROJECT / "cbt_plugins" / "cluster" / "kubernetes.py")
    names = {*plugins.built_in(plugins.TRANSPORTS)} - {"local"}
    naming = [
        path.name
        for room in rooms
        for path in room.rglob("*.py")
        if not {*apart} & {path, *path.parents}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Constant) and node.value in names)
        or (isinstance(node, ast.ImportFrom) and str(node.module).rpartition(".")[2] in (*names, "local"))
    ]
    assert naming == []


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an `ssh` that runs the command here; of nodes that are files there it ends with what they say."""
    folder = tmp_path / "ssh"
    folder.mkdir()
    program = folder / "ssh"
    program.write_text(
        '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\n'
        f'[ -e "{folder}/$2" ] && {{ echo "ssh: $2: lost" >&2; exit $(cat "{folder}/$2"); }}\n'
        'NODE=$2 exec sh -c "$3"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return folder


def test_a_hundred_nodes_are_reached_without_pdsh(ssh: Path, tmp_path: Path) -> None:
    (ssh / "node7").write_text("255")
    (ssh / "node8").write_text("3")
    remote = Remote.of_cluster({"osds": HUNDRED}, NO_PDSH)
    results = remote.run(HUNDRED, "echo $NODE", check=False)
    assert list(results) == HUNDRED
    silent = {node: result for node, result in results.items() if result.status}
    assert {node: result.status for node, result in silent.items()} == {"node7": 255, "node8": 3}
    assert silent["node7"].stderr == "ssh: node7: lost; try: ssh node7 true\n"
    assert all(result.stdout == f"{node}\n" for node, result in results.items() if not result.status)

    reached = [node for node in HUNDRED if node not in silent]
    files = {node: {f"{tmp_path}/disks/{node}/file": node.encode()} for node in reached}
    remote.put(files)
    assert {path.read_text() for path in tmp_path.glob("disks/*/file")} == set(reached)
    remote.fetch(reached, f"{tmp_path}/disks", tmp_path / "back")
    assert len(list((tmp_path / "back").glob("*/*/file"))) == len(reached) ** 2
    with pytest.raises(RemoteError, match="node7: exit status 255: ssh: node7: lost; try: ssh node7 true"):
        remote.put({"node7": {f"{tmp_path}/file": b""}})
    stream = remote.stream(reached, "echo $NODE; read line; echo $line")
    try:
        stream.send("end\n")
        lines = sorted(stream.lines(60.0))
    finally:
        stream.close()
    assert lines == sorted((node, line) for node in reached for line in (node, "end"))
    assert len(offsets(remote, reached[:3])) == 3


def test_no_node_waits_until_another_has_ended(ssh: Path, tmp_path: Path) -> None:
    """Each gets its input, and gives its output, at once: both are more than a pipe holds."""
    remote = Remote.of_cluster({}, NO_PDSH)
    nodes, much = HUNDRED[:3], 1 << 20
    shell = f"head -c {much} /dev/zero; touch %s/$NODE; until [ $(ls %s | wc -l) = 3 ]; do sleep 0.02; done"
    fed, run = tmp_path / "fed", tmp_path / "run"
    for folder in (fed, run):
        folder.mkdir()
    for results in (
        remote.feed(nodes, f"cat >{tmp_path}/$NODE; {shell % (fed, fed)}", bytes(much), 60.0),
        remote.run(nodes, shell % (run, run), 60.0, check=False),
    ):
        assert [(len(result.stdout), result.status) for result in results.values()] == [(much, 0)] * 3


@pytest.mark.parametrize(
    ("cluster", "names"),
    [
        ({}, ["local", "pdsh", "pdsh", "ssh"]),
        ({"user": "nobody-else"}, ["pdsh", "pdsh", "pdsh", "ssh"]),
        ({"transport": "ssh"}, ["ssh", "ssh", "ssh", "ssh"]),
        ({"transport": {"a": "ssh"}}, ["local", "ssh", "pdsh", "ssh"]),
        ({"transport": {"root@a:22": "ssh"}}, ["local", "ssh", "pdsh", "ssh"]),
        ({"transport": {HERE: "pdsh", "a": "local"}}, ["pdsh", "pdsh", "pdsh", "ssh"]),  # `a` is another machine
        ({"transport": "pdsh"}, ["pdsh", "pdsh", "pdsh", "ssh"]),  # pdsh takes no port of one node
        ({"transport": {"a": "cephadm"}}, ["local", "cephadm", "pdsh", "ssh"]),
    ],
)
def test_each_node_has_the_transport_that_is_named_else_the_best_that_fits(
    cluster: Dict[str, Any], names: List[str]
) -> None:
    section = {"osds": [HERE, "a", "b", "c:2222"], **cluster}
    table = TransportChoice(section, {"pdsh_cmd": "sh"})
    assert [table.name_of(node) for node in (HERE, "a", "b", "c")] == names


def test_what_is_not_installed_is_named_and_runs_nothing(ssh: Path, tmp_path: Path) -> None:
    for word in (f"touch {tmp_path}/x", "../ssh", "cbt_plugins.cluster.transports.ssh:Ssh"):
        remote = Remote.of_cluster({"transport": {"a": word}}, NO_PDSH)
        with pytest.raises(RemoteError) as raised:
            remote.run(["a", "b"], f"echo $NODE >>{tmp_path}/ran")
        text = f"a: exit status 255: no transport {word!r} is installed; {INSTALLED}"
        assert text in str(raised.value)
    assert (tmp_path / "ran").read_text() == "b\nb\nb\n" and not (tmp_path / "x").exists()
    stream = Remote.of_cluster({"transport": "nspawn"}, {}).stream(["a"], f"touch {tmp_path}/x")
    assert list(stream.lines(60.0)) == [] and "no transport 'nspawn' is installed" in stream.messages[0]
    stream.close()


def test_a_transport_that_fails_to_load_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    references = {**plugins.references(plugins.TRANSPORTS), "broken": "json:NoSuchClass"}
    monkeypatch.setattr(plugins, "references", lambda group: references)
    result = Remote.of_cluster({"transport": "broken"}, {}).run(["a"], "true", check=False)["a"]
    assert result.stderr.startswith("transport 'broken' cannot be used: AttributeError: ") and result.status == 255


def test_a_status_of_255_is_the_commands_own_without_a_connection(ssh: Path) -> None:
    remote = Remote.of_cluster({}, NO_PDSH)
    assert (remote.lost_statuses(HERE), remote.lost_statuses("a")) == ([], [255])
    assert remote.run([HERE], "echo no >&2; exit 255", check=False)[HERE].stderr == "no\n"
    assert (remote.login(HERE), remote.login("a")) == ("", "ssh a")
    assert (remote.has_own_clock(HERE), remote.has_own_clock("a")) == (False, True)


class Refusing(Ssh):
    """As `kubectl exec`: the status of a lost connection is 1, as that of many commands."""

    def lost(self, status: int, messages: str) -> bool:
        return status == 1 and messages.startswith("ssh: ")


def test_messages_tell_a_lost_connection_from_a_command_that_failed(ssh: Path, tmp_path: Path) -> None:
    (ssh / "a").write_text("1")
    transport = Refusing({}, {})
    remote = Remote(cast(Any, {"a": transport, "b": transport}))
    results = remote.run(["a", "b"], "echo no >&2; exit 1", check=False)
    assert {node: result.status for node, result in results.items()} == {"a": 255, "b": 1}
    with pytest.raises(RemoteError, match="a: exit status 255: ssh: a: lost"):
        remote.fetch(["a"], str(tmp_path), tmp_path / "back")  # of tar, 1 is no error


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("nspawn", f"cluster.transport: no transport 'nspawn' is installed; {INSTALLED}"),
        ("shh", f"{INSTALLED}; did you mean 'ssh'?"),
        ({"client1": "nspawn"}, "cluster.transport.client1: no transport 'nspawn' is installed"),
        ({"nobody": "ssh"}, "cluster.transport.nobody: the section has no node 'nobody'"),
        (["ssh"], "cluster.transport: no transport ['ssh'] is installed"),
    ],
)
def test_names_of_transports_are_checked(tmp_path: Path, value: Any, error: str) -> None:
    assert error in "\n".join(errors_in(tmp_path, f"{CLUSTER}  transport: {json.dumps(value)}\n{RGWTEST}"))


def test_a_file_names_transports_of_nodes(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(f"{CLUSTER}  transport: {{client1: ssh}}\n{RGWTEST}")
    assert load_file(file).cluster["transport"] == {"client1": "ssh"}


def access_of(cluster: Dict[str, Any], common: Dict[str, Any]) -> ClusterAccess:
    remote = Remote.of_cluster(cluster, common)
    return ClusterAccess(remote, Ceph(remote, cluster), cluster, common, "r1", admin=False)


def test_cluster_json_names_the_transport_of_each_node(tmp_path: Path) -> None:
    cluster = {"user": None, "head": HERE, "osds": ["a", "root@b:2222"], "transport": {"a": "nspawn"}}
    cluster_access.write(tmp_path, access_of(cluster, NO_PDSH))
    document = json.loads((tmp_path / cluster_access.FILE).read_text())
    assert document["cluster"]["transport"] == {HERE: "local", "a": "nspawn", "b": "ssh"}
    again = cluster_access.read(tmp_path)
    assert [again.remote.transport_name(node) for node in (HERE, "a", "b")] == ["local", "nspawn", "ssh"]
    assert "no transport 'nspawn' is installed" in again.remote.run(["a"], "true", check=False)["a"].stderr


def test_local_of_another_machine_is_not_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive on a shared disk: its undo runs on a machine that is none of the nodes."""
    cluster_access.write(tmp_path, access_of({"head": HERE}, NO_PDSH))
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    assert cluster_access.read(tmp_path).remote.command(HERE, "true")[0] == "ssh"


def test_a_cluster_json_without_transports_is_read_and_stays_as_it_is(tmp_path: Path) -> None:
    cluster = {"head": HERE, "osds": ["a"]}
    cluster_access.write(tmp_path, access_of(cluster, NO_PDSH))
    document = json.loads((tmp_path / cluster_access.FILE).read_text())
    del document["cluster"]["transport"], document["seal"]
    (tmp_path / cluster_access.FILE).write_text(json.dumps({**document, "seal": undo_seal.of(document)}))
    before = (tmp_path / cluster_access.FILE).read_bytes()
    earlier = cluster_access.read(tmp_path)
    assert [earlier.remote.transport_name(node) for node in (HERE, "a")] == ["local", "ssh"]
    cluster_access.ensure(tmp_path, earlier, cluster_access.ClusterLimits())
    assert (tmp_path / cluster_access.FILE).read_bytes() == before


def test_a_program_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    section = {"clients": ["a"], "transport": "kubectl", "kubernetes": {"context": "test"}}
    result = Remote.of_cluster(section, {}).run(["a"], "true", check=False)["a"]
    assert result.status == 255 and result.stderr.startswith("kubectl: not found: install it on this machine; try: ")
    (tmp_path / "kubectl").touch(0o644)
    result = Remote.of_cluster(section, {}).run(["a"], "true", check=False)["a"]
    assert result.status == 255 and result.stderr.startswith("kubectl: Permission denied; try: ")


@pytest.mark.parametrize(("of_run", "of_undo"), [("a:sub/b", "other"), ("", "other"), ("a", "")])
def test_cluster_json_names_the_kubeconfigs_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_run: str, of_undo: str
) -> None:
    """Another folder, or another KUBECONFIG, may have another cluster in a context of the same name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", of_run)
    cluster = {"head": "t", "transport": "kubectl", "kubernetes": {"context": "test", "kubeconfig": "sub/kc.json"}}
    cluster_access.write(tmp_path, access_of(cluster, NO_PDSH))
    monkeypatch.chdir("/")
    monkeypatch.setenv("KUBECONFIG", of_undo)
    again = cluster_access.read(tmp_path)
    absolute = [f"{tmp_path}/{name}" for name in filter(None, of_run.split(":"))]
    assert os.environ.get("KUBECONFIG", "") == ":".join(absolute)
    assert again.ceph.kubernetes and f"--kubeconfig={tmp_path}/sub/kc.json" in again.ceph.kubernetes.words()
    assert cluster["kubernetes"]["kubeconfig"] == "sub/kc.json"  # type: ignore[index]


@pytest.mark.parametrize(("changed", "kubeconfig"), [("", "other"), ("", "unreachable"), ("other", "run")])
def test_a_run_on_another_cluster_leaves_cluster_json_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str, kubeconfig: str
) -> None:
    """The undo needs the context and the kubeconfigs in it."""
    answers = "case $KUBECONFIG$* in *other*) echo 1$fsid;; *unreachable*) exit 1;; *) echo 2$fsid;; esac"
    (tmp_path / "kubectl").write_text(f"#!/bin/sh\nfsid=1111111-2222-3333-4444-555555555555\n{answers}\n")
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    limits = cluster_access.ClusterLimits()

    def resume(context: str, kubeconfig: str) -> None:
        monkeypatch.setenv("KUBECONFIG", f"/{kubeconfig}")
        cluster = {"head": "t", "transport": "kubectl", "kubernetes": {"context": context}}
        cluster_access.ensure(tmp_path, replace(access_of(cluster, NO_PDSH), admin=True), limits)

    resume("test", "run")
    before = (tmp_path / cluster_access.FILE).read_bytes()
    with pytest.raises(FaultError, match=r"belongs to cluster 2.*/run\).* uses cluster .*: use another archive"):
        resume(changed or "test", kubeconfig)
    assert (tmp_path / cluster_access.FILE).read_bytes() == before
    resume("test", "run-by-new-file")
    assert cluster_access.read(tmp_path) and os.environ["KUBECONFIG"] == "/run-by-new-file"


def test_the_kubeconfigs_of_a_run_are_not_those_of_the_next_undo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/of-run")
    cluster = {"head": "t", "transport": "kubectl", "kubernetes": {"context": "test"}}
    cluster_access.write(tmp_path, access_of(cluster, NO_PDSH))
    UndoJournal(tmp_path).close()
    monkeypatch.setenv("KUBECONFIG", "/of-user")
    seen: List[str] = []
    read = cluster_access.read

    def spy(*args: Any, **options: Any) -> ClusterAccess:
        access = read(*args, **options)
        seen.append(os.environ["KUBECONFIG"])
        return access

    monkeypatch.setattr(cluster_access, "read", spy)
    assert main(["undo", str(tmp_path)]) == 0
    assert (seen[:1], os.environ["KUBECONFIG"]) == (["/of-run"], "/of-user")


def test_an_undo_names_the_transport_that_is_not_installed_and_undoes_the_others(
    ssh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder, flags = tmp_path / "run", {node: tmp_path / f"broken-{node}" for node in ("a", "b")}
    folder.mkdir()
    cluster_access.write(folder, access_of({"head": HERE, "osds": ["a", "b"], "transport": {"a": "nspawn"}}, NO_PDSH))
    with closing(UndoJournal(folder)) as journal:
        journal.identify("r1", True)
        for node, flag in flags.items():
            flag.touch()
            undo = (Command(node, f"rm {flag}"),)
            checks = (Check(node, f"[ -e {flag} ] || echo gone", (((), "gone"),), timeout=0.0),)
            journal.write_step(f"fault of {node}", COMMAND, Step("break it", node, (), undo, checks))
    assert main(["undo", str(folder)]) == 1
    why = "still open: fault of a: break it: a: exit status 255: no transport 'nspawn' is installed"
    assert why in capsys.readouterr().err
    assert [node for node, flag in flags.items() if flag.exists()] == ["a"]

    sealed = (folder / cluster_access.FILE).read_text()
    (folder / cluster_access.FILE).write_text(sealed.replace("nspawn", "ssh"))
    assert main(["undo", str(folder)]) == 1 and flags["a"].exists()
    assert "not written by this user on this machine" in capsys.readouterr().err

    (folder / cluster_access.FILE).write_text(sealed)
    references = {**plugins.references(plugins.TRANSPORTS), "nspawn": "cbt_plugins.cluster.transports.ssh:Ssh"}
    monkeypatch.setattr(plugins, "references", lambda group: references)
    assert main(["undo", str(folder)]) == 0 and not flags["a"].exists()
