"""The recovery monitor beside a stand-in `ceph`: what it writes, how it survives, and that it ends."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Mapping, Sequence, cast

import pytest
from waiting import wait_for
from watched import lines, running

from cbt_plugins.cluster import state_sampler_agent
from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.cluster_watch import ClusterWatch
from cbt_plugins.cluster.remote import Remote
from cbt_plugins.cluster.stream import Stream
from cbt_plugins.cluster_conditions import LASTS
from cbt_plugins.config import plugins
from cbt_plugins.config.key_errors import validate
from cbt_plugins.config.section_to_plan import section_of
from cbt_plugins.journal import LineWriter
from cbt_plugins.monitors import lifecycle
from cbt_plugins.monitors.recovery import Recovery, cluster_watch
from cbt_plugins.results.recovery.cluster_samples import FILE, read_samples
from cbt_plugins.results.recovery.milestones import milestones

HERE = socket.gethostname()
# One answer a line for what it reads; FOLDER/silent makes it say nothing, FOLDER/ending end instead, FOLDER/epoch is
# the newest map, and the monitors have none up to FOLDER/trimmed.
CEPH = """\
#!{python} -u
import json, os, sys, time
folder = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(folder, "pids"), "a") as file:
    file.write(str(os.getpid()) + "\\n")
asked = " ".join(sys.argv[sys.argv.index("json") + 1 :]) if "json" in sys.argv else ""
for line in [asked] if asked else sys.stdin:
    words = line.split()
    if os.path.exists(os.path.join(folder, "silent")):
        continue
    if os.path.exists(os.path.join(folder, "ending")):
        break
    epoch, trimmed = (int(open(os.path.join(folder, name)).read()) for name in ("epoch", "trimmed"))
    if words[:2] == ["osd", "dump"] and int(words[2]) <= trimmed:
        print("Error ENOENT: there is no map for epoch " + words[2], file=sys.stderr, flush=True)
        continue
    up = [1, 1, 0 if epoch > 1 else 1]
    def dump(number):
        osds = [{{"osd": i, "up": up[i] if number > 1 else 1, "in": 1, "up_from": 1}} for i in range(3)]
        return {{"epoch": number, "modified": "2026-11-21T13:56:05.650577+0000", "osds": osds}}
    status = {{
        "health": {{"status": "HEALTH_OK", "checks": {{}}}},
        "osdmap": {{"epoch": epoch, "num_osds": 3, "num_up_osds": sum(up), "num_in_osds": 3, "osd_up_since": epoch}},
        "pgmap": {{"pgs_by_state": [{{"state_name": "active+clean", "count": 4}}], "num_pgs": 4, "num_objects": 7}},
    }}
    stat = {{"num_%s_recovered" % what: 5 for what in ("objects", "bytes", "keys")}}
    answers = {{
        "status": status,
        "osd": {{"nodes": [0]}} if words[1:] == ["df"] else dump(int(words[2])) if words[0] == "osd" else None,
        "mgr": {{"active_name": "x"}},
        "config": 0.2,
        "df": {{"stats": {{"total_used_raw_ratio": 0.25}}}},
        "pg": {{"pg_map": {{"pg_stats_sum": {{"stat_sum": stat}}}}}},
    }}
    if words[:3] == ["pg", "dump", "osds"]:
        number = (1 << 32) + int(time.time() * 10) % (1 << 32)
        answers["pg"] = {{"osd_stats": [{{"osd": i, "seq": number}} for i in range(3)]}}
    print("\\n" + json.dumps(answers[words[0]]), flush=True)
"""
STATUS = {
    "health": {"status": "HEALTH_OK", "checks": {}},
    "osdmap": {"epoch": 1, "num_osds": 3, "num_up_osds": 3, "num_in_osds": 3},
    "pgmap": {"pgs_by_state": [{"state_name": "active+clean", "count": 4}], "num_pgs": 4},
}


@pytest.fixture
def ceph(tmp_path: Path) -> Path:
    """Folder of the stand-in."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "epoch").write_text("1")
    (folder / "trimmed").write_text("0")
    (folder / "ceph").write_text(CEPH.format(python=sys.executable))
    (folder / "ceph").chmod(0o755)
    return folder


def cluster(ceph: Path) -> Dict[str, Any]:
    return {"head": HERE, "clients": [HERE], "osds": [HERE], "mons": [HERE], "ceph_cmd": str(ceph / "ceph")}


def pids_of(ceph: Path) -> List[int]:
    return [int(pid) for pid in (ceph / "pids").read_text().split()]


def monitor(ceph: Path) -> Recovery:
    return Recovery({"interval": 0.1, "librados": False}, cluster(ceph), {})


def test_it_runs_as_a_profile_and_leaves_nothing(ceph: Path, tmp_path: Path) -> None:
    run_dir, local = tmp_path / "a node", tmp_path / "local"
    with lifecycle.watch(lambda: [monitor(ceph)], cluster(ceph), {}, str(run_dir), local):
        file = wait_for(lambda: next(iter(run_dir.glob(f"*/recovery/{FILE}")), None))
        wait_for(lambda: len(lines(file)) > 3)
        (pid_file,) = run_dir.glob("*/recovery/recovery.pid")
        pid = int(pid_file.read_text().split()[0])
        (ceph / "epoch").write_text("3")
        wait_for(lambda: any("map" in line for line in lines(file)))
    assert not running(pid) and not any(map(running, pids_of(ceph)))
    assert list(run_dir.iterdir()) == []
    assert sorted(p.name for p in (local / f"recovery.{HERE}").iterdir()) == ["output.txt", FILE]
    assert (local / f"recovery.{HERE}" / "output.txt").read_text() == ""
    written = lines(local / f"recovery.{HERE}" / FILE)
    assert written[0]["via"] == "ceph" and written[0]["mgr_stats_period"] == 0.2
    assert written[-1]["end"] == "told" and written[-1]["samples"] > 3
    changed = next(line for line in written if "map" in line)
    assert changed["map"] == [{"epoch": 2, "t": 1795269365.651, "down": [2]}]  # 3 changed nothing more
    assert changed["down"] == [2] and "pgs" not in changed
    assert "pgs" not in written[2]  # the same as before
    (samples,) = [read_samples([local / f"recovery.{HERE}" / FILE])]
    assert samples.samples[-1].clean and samples.samples[-1].osds_up == 2


def test_it_ends_when_the_one_who_asked_is_gone(ceph: Path, tmp_path: Path) -> None:
    its = monitor(ceph)
    its.start(str(tmp_path / "node"))
    file = tmp_path / "node" / "recovery" / FILE
    wait_for(lambda: len(lines(file)) > 2)
    pid = int((tmp_path / "node" / "recovery" / "recovery.pid").read_text().split()[0])
    assert its.connections_process is not None
    its.connections_process.kill()  # as a crash of the machine that leads the run would
    its.connections_process.wait()
    wait_for(lambda: not running(pid) and not any(map(running, pids_of(ceph))))
    its.stop(str(tmp_path / "node"))


def test_the_next_run_ends_what_has_lost_its_owner(ceph: Path, tmp_path: Path) -> None:
    left = tmp_path / "node" / "monitors-99-1"
    its = monitor(ceph)
    its.start(str(left))
    wait_for(lambda: lines(left / "recovery" / FILE))
    pid = int((left / "recovery" / "recovery.pid").read_text().split()[0])
    with lifecycle.watch(lambda: [monitor(ceph)], cluster(ceph), {}, str(tmp_path / "node"), tmp_path / "local"):
        assert not running(pid)
    its.stop(str(left))


def test_a_lost_connection_is_told_and_made_anew(ceph: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    its = monitor(ceph)
    its.start(str(tmp_path / "node"))
    wait_for(lambda: lines(tmp_path / "node" / "recovery" / FILE))
    os.kill(int((tmp_path / "node" / "recovery" / "recovery.pid").read_text().split()[0]), signal.SIGKILL)
    wait_for(lambda: sum("version" in line for line in lines(tmp_path / "node" / "recovery" / FILE)) == 2)
    its.stop(str(tmp_path / "node"))
    assert f"recovery: lost connections to {HERE} (1 times)" in caplog.text


def test_one_that_does_not_answer_is_asked_again_and_the_gap_is_recorded(ceph: Path, tmp_path: Path) -> None:
    settings = {"interval": 0.1, "ceph": str(ceph / "ceph"), "conf": "x", "recovery": True, "timeout": 1.0}
    argv = [sys.executable, state_sampler_agent.__file__, json.dumps([settings])]
    with open(tmp_path / FILE, "w") as file:
        agent = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=file)
    try:
        wait_for(lambda: len(lines(tmp_path / FILE)) > 2)
        (ceph / "silent").touch()
        wait_for(lambda: len(pids_of(ceph)) >= 3)  # it was opened again, twice
        (ceph / "silent").unlink()
        wait_for(lambda: any("gap" in line for line in lines(tmp_path / FILE)))
    finally:
        assert agent.stdin is not None
        agent.stdin.close()
        assert agent.wait(600) == 0
    (gap,) = [line["gap"] for line in lines(tmp_path / FILE) if "gap" in line]
    assert gap[0] >= 2.0 and gap[1] == "status: no reply for 1 s"
    assert not any(map(running, pids_of(ceph)))


def run_agent(ceph: Path, path: Path, until: Any, **settings: Any) -> List[Dict[str, Any]]:
    """Its lines when it has been ended, which is as soon as `until` says so of those so far."""
    settings = {"interval": 0.1, "ceph": str(ceph / "ceph"), "conf": "x", **settings}
    environment = {**os.environ, "PYTHONPATH": str(ceph)}
    line = [sys.executable, state_sampler_agent.__file__, json.dumps([settings])]
    with open(path, "w") as file, subprocess.Popen(line, stdin=subprocess.PIPE, stdout=file, env=environment) as agent:
        wait_for(lambda: until(lines(path)))
        agent.communicate(timeout=600)
    return lines(path)


@pytest.mark.parametrize(
    ("rados", "why"),
    [
        ("raise ImportError('no bindings')", "ImportError: no bindings"),
        ("class Error(Exception): pass\ndef Rados(conffile): raise Error('no conf')", "Error: no conf"),
    ],
)
def test_a_fallback_from_librados_is_an_event_and_a_warning(ceph: Path, tmp_path: Path, rados: str, why: str) -> None:
    (ceph / "rados.py").write_text(rados)
    written = run_agent(ceph, tmp_path / FILE, lambda its: len(its) > 3, librados=True)
    assert written[0]["via"] == "ceph"
    assert (written[1]["event"], written[1]["from"], written[1]["why"]) == ("fallback", "librados", why)
    samples = read_samples([tmp_path / FILE])
    assert 1 < len(samples.samples) <= written[-1]["samples"]  # those without a change are left out
    (warning,) = milestones(samples, [])["warnings"]
    assert why in warning["text"]


def test_librados_gets_whole_seconds(ceph: Path, tmp_path: Path) -> None:
    """From 18.2 on connect() refuses a float, which was a silent fallback."""
    (ceph / "rados.py").write_text(
        "import json\nclass Error(Exception): pass\nclass Rados:\n"
        "    def __init__(self, conffile): self.options = {}\n"
        "    def conf_set(self, name, value): self.options[name] = value\n"
        "    def connect(self, timeout):\n        if type(timeout) is not int: raise TypeError(timeout)\n"
        "    def mon_command(self, question, _):\n"
        "        status = json.loads(question)['prefix'] == 'status'\n"
        f"        return 0, json.dumps({STATUS!r} if status else {{}}).encode(), ''\n"
    )
    written = run_agent(ceph, tmp_path / FILE, lambda its: len(its) > 3, librados=True, timeout=5.0)
    assert written[0]["via"] == "librados" and "event" not in written[1]
    assert written[1]["pgs"] == {"active+clean": 4}


def test_a_wrapper_that_passes_no_input_on_is_asked_by_a_process_each(ceph: Path, tmp_path: Path) -> None:
    (ceph / "ceph").rename(ceph / "real")
    (ceph / "ceph").write_text(
        f'#!/bin/sh\n[ "$1 $2 $3" = "-f json status" ] || exec sleep 60\necho status | {ceph}/real\n'
    )
    (ceph / "ceph").chmod(0o755)
    written = run_agent(ceph, tmp_path / FILE, lambda its: len(its) > 2, timeout=0.1)
    assert written[1]["health"] == "HEALTH_OK"


def test_an_agent_without_any_answer_starts_anew_as_often_as_it_takes(ceph: Path, tmp_path: Path) -> None:
    path, ending = tmp_path / FILE, ceph / "ending"
    before: List[int] = []  # how often it had begun when its answers ended

    def until(written: List[Dict[str, Any]]) -> bool:
        headers = [number for number, line in enumerate(written) if "version" in line]
        # the first state after a start has all of it, later ones what changed
        answered = any("pgs" in line for line in written[max(headers, default=0) :])
        if not before and answered:
            ending.touch()
            before.append(len(headers))
        elif before and len(headers) >= before[0] + 2:
            ending.unlink(missing_ok=True)
            return answered
        return False

    written = run_agent(ceph, path, until, restart_after=0.3)
    assert written[-1]["end"] == "told" and sum("version" in line for line in written) >= before[0] + 2


def watch_of(ceph: Path, folder: Path, offset: float = 0.0) -> ClusterWatch:
    its = Ceph(Remote.of_cluster(cluster(ceph), {}), cluster(ceph))
    watch = cluster_watch(its, cluster(ceph), {"interval": 0.1, "librados": False}, folder)
    watch.offset = offset
    return watch


def test_the_watch_adds_the_changes_up(ceph: Path, tmp_path: Path) -> None:
    with watch_of(ceph, tmp_path, offset=5.0) as watch, watch.feed() as feed:
        first, *_ = wait_for(lambda: list(feed.poll(0.1)))
        (ceph / "epoch").write_text("3")
        wait_for(lambda: [status for _, status in feed.poll(0.1) if status.osds_up == 2])
        with watch.feed() as late:  # another reader: from now on, and at once what is known
            assert late.latest is not None and late.latest.osds_up == 2
            wait_for(lambda: list(late.poll(0.1)))
    assert abs(first[0] + 5.0 - time.time()) < 60 and first[1].osds_up == 3
    assert watch.latest is not None and watch.latest.pgs == {"active+clean": 4} and watch.latest.raw_used == 0.25
    wait_for(lambda: not any(map(running, pids_of(ceph))))


def test_other_questions_go_over_the_same_connection(ceph: Path, tmp_path: Path) -> None:
    with watch_of(ceph, tmp_path) as watch:
        wait_for(lambda: watch.latest)
        processes = len(pids_of(ceph))
        first, second = watch.ask(("df detail", "osd df"), 30.0)
        assert first == {"stats": {"total_used_raw_ratio": 0.25}} and second["nodes"]
        assert len(pids_of(ceph)) == processes
    watch.ceph = cast(Any, SimpleNamespace(json_all=lambda commands, timeout: list(commands)))
    assert watch.ask(("df detail",), 30.0) == ["df detail"]  # by a command, when nobody watches
    assert not any("ask" in line for line in lines(watch.file))


def test_a_map_that_is_not_told_costs_no_sample() -> None:
    class Source:
        def mon(self, question: Dict[str, Any]) -> Any:
            if question["prefix"] != "status":
                raise state_sampler_agent.NoReply("busy")
            return {**STATUS, "osdmap": {**STATUS["osdmap"], "osd_up_since": 1}}

    sampler = state_sampler_agent.StateSampler(Source(), 5.0, {"recovery": True}, None)
    state, changes, _ = sampler.sample()
    assert state["pgs"] == {"active+clean": 4} and state["settled"] is False and changes == []


def test_samples_without_a_change_are_left_out_but_for_the_last_one_before_a_change(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    """The milestones are as exact as the samples; the file is as long as that of a sample each second."""
    output = state_sampler_agent.StateLines()
    for number in range(12):
        output.sample({"t": number / 4, "pgs": "b" if number >= 7 else "a"}, [], [], None)
    output.flush()
    written = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert [line["t"] for line in written] == [0.0, 0.75, 1.0, 1.5, 1.75, 2.5, 2.75]
    assert [line["t"] for line in written if "pgs" in line] == [0.0, 1.75] and output.samples == 12


def test_what_happened_while_nobody_watched_is_in_the_maps(ceph: Path, tmp_path: Path) -> None:
    """A run that is resumed goes on in its file: the OSD that went down meanwhile has its time, the samples a gap."""
    with watch_of(ceph, tmp_path) as watch:
        wait_for(lambda: watch.latest)
    before = [{**line, "t": line["t"] - 100} for line in lines(watch.file)]
    watch.file.write_text("".join(json.dumps(line) + "\n" for line in before) + '{"t": 1795269')  # torn by a kill
    (ceph / "epoch").write_text("3")
    with watch_of(ceph, tmp_path) as watch:
        wait_for(lambda: watch.latest)
    found = read_samples([watch.file])
    assert watch.file.parent.name == f"recovery.{HERE}"
    assert [change.down for change in found.changes] == [(2,)]
    assert [gap["why"] for gap in found.gaps] == ["the connection was made anew"]
    assert found.samples[0].osds_up == 3 and found.samples[-1].osds_up == 2


def test_a_resumed_run_whose_last_map_is_trimmed_goes_on_with_those_there_are(ceph: Path, tmp_path: Path) -> None:
    """The monitors keep some 500 maps: what the OSDs did before those is unknown, what they do now is not."""
    with watch_of(ceph, tmp_path) as watch:
        wait_for(lambda: watch.latest)
    before = [{**line, "t": line["t"] - 100} for line in lines(watch.file)]
    watch.file.write_text("".join(json.dumps(line) + "\n" for line in before))
    (ceph / "epoch").write_text("3")
    (ceph / "trimmed").write_text("1")
    with watch_of(ceph, tmp_path) as watch:
        wait_for(lambda: any("gap" in line for line in lines(watch.file)))
        wait_for(lambda: [line for line in lines(watch.file) if line.get("settled") and line["t"] > before[-1]["t"]])
    found = read_samples([watch.file])
    assert [gap["why"] for gap in found.gaps] == ["OSD maps up to 1 are trimmed"]
    assert found.changes == [] and found.samples[-1].osds_up == 2 and found.samples[-1].state["down"] == [2]


def test_a_new_agent_knows_nothing_of_the_osds_that_the_one_before_knew(tmp_path: Path) -> None:
    first = {"t": 10.0, "osds": 3, "osds_up": 2, "osds_in": 3, "pgs": {"active+clean": 4}, "num_pgs": 4}
    first.update({"down": [2], "out": [], "recovered": [1, 1, 1], "settled": True})
    second = {"t": 90.0, "osds_up": 3, "osds_in": 2, "settled": False}
    text = [{"version": 1, "t": 9.0}, first, {"version": 1, "t": 89.0}, second]
    (tmp_path / FILE).write_text("".join(json.dumps(line) + "\n" for line in text))
    before, after = read_samples([tmp_path / FILE]).samples
    assert (before.osds_up, before.osds_in) == (2, 3)
    assert (after.osds_up, after.osds_in) == (3, 2)  # as the status counts them
    assert not {"down", "out", "recovered"} & set(after.state)


def test_a_lost_connection_of_the_watch_is_made_anew(
    ceph: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with watch_of(ceph, tmp_path) as watch:
        wait_for(lambda: len(lines(watch.file)) > 2)
        first = pids_of(ceph)[0]
        os.kill(int(Path(f"/proc/{first}/stat").read_text().rsplit(")", 1)[1].split()[1]), signal.SIGKILL)
        wait_for(lambda: sum("version" in line for line in lines(watch.file)) == 2)
    assert f"no samples of the cluster from {HERE}" in caplog.text


def test_a_head_that_is_away_is_one_warning(
    ceph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be away for hours, and ssh ends its lines with a carriage return."""
    opened: List[int] = []

    def refused(self: Remote, nodes: Sequence[str], *_: Any) -> Stream:
        opened.append(1)
        line = ["sh", "-c", "printf 'No route to host\\r\\n' >&2; exit 255"]
        return Stream({nodes[0]: line}, {nodes[0]: lambda text: text})

    monkeypatch.setattr(Remote, "stream", refused)
    with watch_of(ceph, tmp_path):
        wait_for(lambda: len(opened) > 2)
    assert [its.getMessage() for its in caplog.records if "no samples" in its.getMessage()] == [
        f"no samples of the cluster from {HERE}: No route to host; connecting again"
    ]


def test_a_full_disk_of_the_archive_does_not_end_the_watch(
    ceph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full, write = [True], LineWriter.write

    def write_if_there_is_space(self: LineWriter, line: Mapping[str, Any]) -> None:
        if full and "t" in line and "version" not in line:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, line)

    with watch_of(ceph, tmp_path) as watch:
        wait_for(lambda: watch.latest)
        monkeypatch.setattr(LineWriter, "write", write_if_there_is_space)
        wait_for(lambda: "No space left on device" in caplog.text)
        full.clear()
        before = len(lines(watch.file))
        wait_for(lambda: sum("pgs" in line for line in lines(watch.file)[before:]))
    assert read_samples([watch.file]).samples[-1].clean
    wait_for(lambda: not any(map(running, pids_of(ceph))))


@pytest.mark.parametrize(
    ("profile", "text"),
    [
        ({"intervall": 1}, "unknown key; did you mean"),
        ({"interval": 0}, "at least 0.1"),
        ({"interval": LASTS}, "at most 5"),  # one that is late would leave a time of which no sample tells
        ({"interval": "1s"}, "must be a number"),
        ({"librados": 1}, "true or false"),
    ],
)
def test_faults_of_the_profile(ceph: Path, profile: Dict[str, Any], text: str) -> None:
    assert text in validate(Recovery.Section, profile)[1][0].text
    with pytest.raises(ValueError, match="monitoring_profiles: recovery: "):
        Recovery(profile, cluster(ceph), {})


def test_it_is_built_in() -> None:
    assert plugins.loaders(plugins.MONITORS)["recovery"]() is Recovery
    assert section_of("collectl", plugins.MONITORS) is None
