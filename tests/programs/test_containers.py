"""The transports `docker` and `podman`, with the real programs and containers."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Iterator

import pytest
from containers import DockerEngine, Engine, PodmanEngine
from waiting import wait_for

from cbt_plugins.cluster.clock_offsets import offsets
from cbt_plugins.cluster.remote import Remote, RemoteError

NODE, GOING = "cbt-node-a", "cbt-node-b"


@pytest.fixture(scope="module", params=[PodmanEngine, DockerEngine], ids=lambda made: made.program)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    made = request.param(tmp_path_factory.mktemp("engine"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in made.environment.items():
            patch.setenv(name, value)
        try:
            made.run(NODE)
            yield made
        finally:
            made.close()


@pytest.fixture
def remote(engine: Engine) -> Remote:
    section = {"user": "root", "osds": [NODE, f"nobody@{GOING}"], "transport": engine.program}
    return Remote.of_cluster(section, {})


def test_output_errors_and_status_come_apart(remote: Remote) -> None:
    for status in (0, 1, 3, 125, 126, 127, 137):
        result = remote.run([NODE], f"echo out; echo err >&2; exit {status}", check=False)[NODE]
        assert (result.stdout, result.stderr, result.status) == ("out\n", "err\n", status)
    assert remote.run([NODE], "exit 255", check=False)[NODE].status == 255
    absent = remote.run([NODE], "no-such-program", check=False)[NODE]
    assert absent.status == 127 and absent.stderr.endswith("not found\n")
    assert remote.run([NODE], "printf half >&2; kill -9 $$", check=False)[NODE].stderr.startswith("half")
    assert remote.run([NODE], "tty; id -un", check=False)[NODE].stdout == "not a tty\nroot\n"
    assert remote.run([NODE], "sleep 1000", timeout=0.5, check=False)[NODE].status == 124


def test_files_go_and_come_back_without_tar(remote: Remote, tmp_path: Path) -> None:
    assert remote.run([NODE], "command -v tar", check=False)[NODE].status
    content = bytes(range(256)) * (1 << 16)
    remote.put({NODE: {"/var/tmp/cbt/a/b": content, "/var/tmp/cbt/a/c/d": b""}})
    remote.put({NODE: {"/var/tmp/cbt/a/c/d": b"#!/bin/sh\necho runs\n"}}, mode=0o700)
    listed = remote.run([NODE], "stat -c '%a %U' /var/tmp/cbt/a/b /var/tmp/cbt/a/c/d; /var/tmp/cbt/a/c/d")[NODE].stdout
    assert listed == "600 root\n700 root\nruns\n"
    remote.run([NODE], "cd /var/tmp/cbt/a; mkdir empty; ln -s /etc/passwd link; mkfifo pipe")
    remote.fetch([NODE], "/var/tmp/cbt/a", tmp_path)
    files = sorted(str(path.relative_to(tmp_path / NODE)) for path in (tmp_path / NODE).rglob("*"))
    assert files == ["b", "c", "c/d", "empty"]
    assert (tmp_path / NODE / "b").read_bytes() == content
    remote.fetch([NODE], "/var/tmp/cbt/nothing", tmp_path / "back")
    assert list((tmp_path / "back" / NODE).iterdir()) == []
    with pytest.raises(RemoteError, match="writing files failed on 1 of 1 nodes: "):
        remote.put({NODE: {"/proc/cbt/file": b""}})


def test_input_and_streams(remote: Remote) -> None:
    size = 1 << 24
    counted = remote.feed([NODE], "cat | wc -c; echo done >&2", bytes(size), 60.0)[NODE]
    assert (counted.stdout, counted.stderr, counted.status) == (f"{size}\n", "done\n", 0)
    stream = remote.stream([NODE], "echo one; read x; echo got $x; echo why >&2; exit 3")
    try:
        lines = stream.lines(30.0)
        assert next(lines) == (NODE, "one")
        stream.send("two\n")
        assert list(lines) == [(NODE, "got two")] and stream.messages == ["why"]
    finally:
        stream.close()
    assert abs(offsets(remote, [NODE])[NODE].seconds) < 1.0


def test_a_closed_stream_ends_what_reads_it(remote: Remote) -> None:
    stream = remote.stream([NODE], "echo up; cat >/dev/null; touch /tmp/ended")
    assert next(stream.lines(30.0))[1] == "up"
    stream.close()
    wait_for(lambda: remote.run([NODE], "[ -e /tmp/ended ]", check=False)[NODE].status == 0, "the end of cat", 30.0)


@pytest.mark.parametrize("way", ["kill", "rm"])
def test_a_container_that_goes_away_is_a_lost_connection(engine: Engine, remote: Remote, way: str) -> None:
    engine.run(GOING)
    assert remote.run([GOING], "id -un")[GOING].stdout == "nobody\n"
    ready = threading.Event()

    def end() -> None:
        wait_for(lambda: engine.call("exec", GOING, "test", "-e", "/tmp/up").returncode == 0, "the command", 30.0)
        ready.set()
        engine.call(*(["kill"] if way == "kill" else ["rm", "-f"]), GOING)

    ending = threading.Thread(target=end)
    ending.start()
    try:
        lost = remote.run([GOING], "touch /tmp/up; sleep 1000", check=False)[GOING]
    finally:
        ending.join()
    assert ready.is_set() and lost.status == 255
    after = remote.run([GOING], "true", check=False)[GOING]
    assert after.status == 255
    assert after.stderr.endswith(f"; try: {engine.program} exec -i --user nobody {GOING} true\n")
    assert "running" in after.stderr if way == "kill" else "o such container" in after.stderr
    engine.call("rm", "-f", GOING)


def test_a_user_that_the_container_does_not_have(engine: Engine) -> None:
    remote = Remote.of_cluster({"user": "no-such-user", "osds": [NODE], "transport": engine.program}, {})
    result = remote.run([NODE], "true", check=False)[NODE]
    assert result.status == 255 and f"try: {engine.program} exec -i --user no-such-user {NODE} true" in result.stderr
