"""The monitor `stacks` and `cbt-tools flame`: recorded and real output of perf, numbers per request, differences."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, Optional

import pytest
from archive_builder import T0, small

from cbt_plugins.monitors import stacks_agent
from cbt_plugins.report.flames import blocks, tree
from cbt_plugins.results.result_file import Unreadable
from cbt_plugins.results.stacks import profile_of
from cbt_plugins.tools.__main__ import main

#: `perf script -F comm,pid,tid,ip,sym` of perf 6.1.187, after `perf record -e cpu-clock -F 99 -g -p ...` of 16.2.15's
#: OSDs and gateways under a mixed load
RECORDED = Path(__file__).parent.parent / "data" / "stacks" / "perf-script-6.1.187.txt"
AGENT = Path(stacks_agent.__file__)
OPTIONS = {"hz": 199, "seconds": 1.0, "interval": 0.0, "calls": "fp"}


def test_recorded_stacks_are_counted_from_the_root() -> None:
    n, stacks, _ = stacks_agent.folded(RECORDED.read_text().splitlines(True), {8417: "osd", 8436: "osd"})
    assert n == sum(stacks.values()) and 0 < n <= 25
    assert stacks["osd;tp_osd_tp;std::_Rb_tree_increment"] >= 1
    sync = next(its for its in stacks if its.endswith("blk_mq_flush_plug_list;blk_mq_dispatch_list"))
    assert sync.startswith("osd;bstore_kv_sync;fdatasync;entry_SYSCALL_64_after_hwframe;do_syscall_64")
    assert not any("[unknown]" in its.split(";")[2:-1] for its in stacks)


def test_processes_that_are_no_daemons_are_left_out() -> None:
    assert stacks_agent.folded(RECORDED.read_text().splitlines(True), {}) == (0, {}, {})


def test_programs_without_symbols_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The innermost function counts: the callers of a program without frame pointers have often no name."""
    n, _, symbols = stacks_agent.folded(RECORDED.read_text().splitlines(True), {8417: "osd", 8436: "rgw"})
    assert set(symbols) == {"osd", "rgw"} and sum(of_class for _, of_class in symbols.values()) == n
    assert {unnamed for unnamed, _ in symbols.values()} == {0} and not stacks_agent.texts_without_symbols(symbols)
    unnamed = "a  7/8\n  ffffffff81000000 do_syscall_64\n  55d0 [unknown]\n  55d1 main\n\n"
    named, kernel = unnamed.replace("55d0 [unknown]", "7f00 fsync"), "a  7/8\n  ffffffff81000000 do_exit\n\n"
    of_classes = {
        "osd": stacks_agent.folded(f"{unnamed * 2}{named}{kernel * 9}".splitlines(True), {7: "osd"})[2]["osd"],
        "rgw": stacks_agent.folded(f"{unnamed}{named}".splitlines(True), {7: "rgw"})[2]["rgw"],
    }
    assert of_classes == {"osd": (2, 3), "rgw": (1, 2)}
    written = written_after(monkeypatch, {"n": 1, "symbols": of_classes})
    text = "osd: no symbols: 2 of 3 samples are in functions without a name, which flame graphs lack"
    assert [line["limit"] for line in written if "limit" in line] == [text]
    assert not any("symbols" in line for line in written)


def written_after(monkeypatch: pytest.MonkeyPatch, look: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Return the lines of an agent that has looked twice and seen this."""
    written: List[Dict[str, Any]] = []
    looks = iter([(look, False), (look, True)])
    monkeypatch.setattr(stacks_agent, "daemons", lambda: {1: "osd"})
    monkeypatch.setattr(stacks_agent, "look", lambda kinds, options: next(looks))
    monkeypatch.setattr(stacks_agent, "select", SimpleNamespace(select=lambda *_: ([], [], [])))
    monkeypatch.setattr(stacks_agent, "write_line", written.append)
    monkeypatch.setattr(stacks_agent, "write_limit", lambda text: written.append({"limit": text}))
    stacks_agent.main(OPTIONS)
    return written


def said(*words: str) -> List[Dict[str, Any]]:
    """What the agent prints until its input closes."""
    text = subprocess.run(words, input=b"", stdout=subprocess.PIPE, check=True).stdout
    return [json.loads(line) for line in text.splitlines()]


def test_a_node_without_daemons_or_perf_says_so(tmp_path: Path) -> None:
    bare = f"import os, sys; os.environ['PATH'] = ''; os.chdir({str(tmp_path)!r})"
    bare += f"; sys.path[:0] = [{str(AGENT.parent)!r}]; import stacks_agent as its"
    call = f"{bare}; its.daemons = lambda: {{1: 'osd'}}; its.main({OPTIONS!r})"
    lines = said(sys.executable, "-c", call)
    assert lines[1]["error"] == "perf: No such file or directory" and lines[-1]["looks"] == 1


def test_a_look_and_its_line_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert stacks_agent.length(OPTIONS, 64) == 1.0
    dwarf = {"hz": 999, "seconds": 60.0, "interval": 0.0, "calls": "dwarf"}
    assert 0 < stacks_agent.length(dwarf, 64) * 999 * 64 * 8192 < stacks_agent.LARGEST_LOOK
    n, stacks, _ = stacks_agent.folded(RECORDED.read_text().splitlines(True), {8417: "osd", 8436: "rgw"})
    assert not stacks_agent.text_of_cut(stacks, n)
    for name, most in (("LARGEST_LINE", sum(map(len, stacks)) // 2), ("MOST", 2)):
        with monkeypatch.context() as patch:
            patch.setattr(stacks_agent, name, most)
            n_less, less, _ = stacks_agent.folded(RECORDED.read_text().splitlines(True), {8417: "osd", 8436: "rgw"})
        assert n_less == n and len(less) < len(stacks)
        for kind in ("osd", "rgw"):  # CPU times of a class are those of all its samples
            of_class = [sum(n for stack, n in its.items() if stack.startswith(kind)) for its in (less, stacks)]
            assert of_class[0] == of_class[1] > 0
        cut = sum(n for stack, n in less.items() if stack in ("osd;[cut]", "rgw;[cut]"))
        text = f"stacks of a look are too long: {cut} of {n} samples have no functions in flame graphs"
        assert cut and stacks_agent.text_of_cut(less, n) == text


def test_cut_stacks_are_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written = written_after(monkeypatch, {"n": 3, "stacks": {"osd;a;b": 1, "osd;[cut]": 2}})
    text = "stacks of a look are too long: 2 of 3 samples have no functions in flame graphs"
    assert [line["limit"] for line in written if "limit" in line] == [text]


def test_looks_become_rarer(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: List[float] = []

    def select(*its: Any) -> Any:
        waited.append(its[3])
        return [0] if len(waited) == 4 else [], [], []

    monkeypatch.setattr(stacks_agent, "select", SimpleNamespace(select=select))
    monkeypatch.setattr(stacks_agent, "FINE", 2)
    monkeypatch.setattr(stacks_agent, "daemons", lambda: {1: "osd"})
    monkeypatch.setattr(stacks_agent, "look", lambda kinds, options: ({"n": 1}, False))
    monkeypatch.setattr(stacks_agent, "write_line", lambda record: None)
    monkeypatch.setattr(stacks_agent.os, "read", lambda *its: b"")
    stacks_agent.main({**OPTIONS, "interval": 100.0})
    assert [round(its, -1) for its in waited] == [100, 1000, 1000, 1000]


def test_a_full_file_gets_no_look_any_more(tmp_path: Path) -> None:
    call = f"import sys; sys.path[:0] = [{str(AGENT.parent)!r}]; import stacks_agent as its"
    call += f"; its.LARGEST_FILE = 1 << 20; its.daemons = lambda: 1 / 0; its.main({OPTIONS!r})"
    with (tmp_path / "node1.jsonl").open("a+") as file:
        file.write("\n" * (1 << 20))
        file.flush()
        subprocess.run([sys.executable, "-c", call], input=b"", stdout=file, check=True)
    _, full, end = (json.loads(line) for line in (tmp_path / "node1.jsonl").read_text().strip().splitlines())
    assert full["limit"] == "no look any more: its file has 1 MiB" and end["looks"] == 0


def test_lines_to_a_connection_have_the_same_limit() -> None:
    """A pipe has no size: the agent counts its bytes."""
    call = f"import sys; sys.path[:0] = [{str(AGENT.parent)!r}]; import stacks_agent as its; its.LARGEST_FILE = 1200"
    call += "; its.daemons = lambda: {1: 'osd'}; its.look = lambda *_: ({'n': 1, 'stacks': {'a' * 400: 1}}, False)"
    call += f"; its.main({OPTIONS!r})"
    words = [sys.executable, "-c", call]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
        assert agent.stdout is not None and agent.stdin is not None
        lines = [json.loads(agent.stdout.readline()) for _ in range(5)]  # a header, three looks, the limit
        agent.stdin.close()
    assert lines[3]["n"] == 1 and lines[4]["limit"] == "no look any more: its file has 0 MiB"


#: a program that makes its machine code, a jump to itself, when it runs: the code has no symbol
MADE = """
import ctypes, mmap
code = mmap.mmap(-1, 4096, prot=7)
code.write(b"\\xeb\\xfe")
ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
"""


@pytest.fixture(params=["while True: pass", MADE], ids=["with symbols", "without symbols"])
def loop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[bool]:
    """A busy process that is called as an MDS, of which labs have none; whether its program has symbols."""
    if request.param == MADE and platform.machine() != "x86_64":
        pytest.skip("the machine code is for x86_64")
    binary = tmp_path / "ceph-mds"
    shutil.copy(os.path.realpath(sys.executable), binary)
    process = subprocess.Popen([str(binary), "-S", "-c", request.param], env={"PYTHONHOME": sys.base_prefix})
    yield request.param != MADE
    process.kill()
    process.wait()


def test_perf_sees_a_busy_daemon(loop: bool, tmp_path: Path) -> None:
    perf = shutil.which("perf")
    trial = [str(perf), "record", "-q", "-a", "-e", "cpu-clock", "-o", str(tmp_path / "trial.data"), "true"]
    if not perf or subprocess.run(trial, capture_output=True).returncode:
        pytest.skip("perf does not work here: install linux-perf, and run as root")
    words = [sys.executable, str(AGENT), json.dumps(OPTIONS)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path) as agent:
        assert agent.stdout is not None and agent.stdin is not None
        lines = [json.loads(agent.stdout.readline())]
        while "n" not in lines[-1]:  # the look, behind what is said of its classes
            lines.append(json.loads(agent.stdout.readline()))
        time.sleep(0.5)  # in the next look: the file of perf has no name
        assert {path.name for path in tmp_path.iterdir()} <= {"ceph-mds", "trial.data"}
        agent.stdin.close()
        lines += [json.loads(line) for line in agent.stdout]
    limits = [line["limit"] for line in lines if line.get("limit", "").startswith("mds: ")]
    assert [text.split(": ")[1] for text in limits] == ([] if loop else ["no symbols"])
    lines = [line for line in lines if "limit" not in line]
    assert lines[1]["n"] > 20 and lines[1]["s"] == 1.0
    assert any(stack.startswith("mds;ceph-mds;") for stack in lines[1]["stacks"])
    assert lines[-1]["end"] == "told"


def archive(path: Path, *looks: Dict[str, Any]) -> Path:
    """An archive with 300 requests a second in its first phase, and looks of one node."""
    run = small(path)
    file = run / "monitors" / "01" / "stacks.node1" / "node1.jsonl"
    file.parent.mkdir(parents=True)
    head = {"version": 1, "t": T0, "node": "node1", "hz": 50}
    file.write_text("".join(f"{json.dumps(its)}\n" for its in (head, *looks)))
    return path


def look(t: float, stacks: Dict[str, int]) -> Dict[str, Any]:
    return {"t": T0 + t, "s": 4.0, "daemons": 2, "n": sum(stacks.values()), "stacks": stacks}


QUEUE, SYNC = "osd;tp_osd_tp;run;work", "osd;bstore_kv_sync;sync"


def test_cpu_time_per_request(tmp_path: Path) -> None:
    looks = look(1, {QUEUE: 60}), look(5, {QUEUE: 60, SYNC: 120}), look(8, {QUEUE: 999})
    profile = profile_of([archive(tmp_path, *looks)])
    # 120 samples of 50 a second in 8 s: 0.3 processors for 300 requests a second; the last look ends after the phase
    assert (profile.phase, profile.runs, profile.samples) == ("new", 1, 240)
    assert profile.cpu_ms == pytest.approx(
        {("osd", "op-queue", "tp_osd_tp", "run", "work"): 1.0, ("osd", "rocksdb", "bstore_kv_sync", "sync"): 1.0}
    )


@pytest.mark.parametrize("machine", ["boot pid:[1]", "boot pid:[2]", None])
def test_a_machine_with_two_names_counts_once(tmp_path: Path, machine: Optional[str]) -> None:
    """The second node is the same machine; another pod of it, with its own processes; of an earlier agent."""
    alone = profile_of([archive(tmp_path / "alone", look(1, {QUEUE: 60}))])
    path = archive(tmp_path / "both", look(1, {QUEUE: 60}))
    (file,) = path.rglob("stacks.node1/node1.jsonl")
    head, *lines = file.read_text().splitlines(True)
    for name, mark in (("node1", "boot pid:[1]"), ("node2", machine)):
        of_node = file.parent.with_name(f"stacks.{name}") / f"{name}.jsonl"
        of_node.parent.mkdir(exist_ok=True)
        of_node.write_text("".join([json.dumps({**json.loads(head), "machine": mark}) + "\n", *lines]))
    profile = profile_of([path])
    is_same = machine == "boot pid:[1]"
    assert profile.total == pytest.approx(alone.total * (1 if is_same else 2))
    assert profile.notes == (("node2: the same machine as node1: its stacks count once",) if is_same else ())


def test_agents_of_one_machine_name_it_alike() -> None:
    marks = [said(sys.executable, str(AGENT), json.dumps(OPTIONS))[0]["machine"] for _ in range(2)]
    assert marks[0] == marks[1] and " pid:[" in marks[0]


def test_samples_of_cut_stacks_count(tmp_path: Path) -> None:
    profile = profile_of([archive(tmp_path / "new", look(1, {QUEUE: 60, "osd;[cut]": 60}))])
    assert profile.total == pytest.approx(120 / 50 / 4 / 300 * 1000) and not profile.notes
    assert profile.cpu_ms["osd", "other", "[cut]"] == pytest.approx(profile.total / 2)
    # an earlier monitor left them out
    old = profile_of([archive(tmp_path / "old", {**look(1, {QUEUE: 60}), "n": 120})])
    assert old.notes == ("node1: the monitor left out rare stacks: CPU times are too low",)


def test_a_file_that_is_not_yet_fetched_does_not_count(tmp_path: Path) -> None:
    """A file that comes from a node has a name with a dot until it is whole."""
    path = archive(tmp_path, look(1, {QUEUE: 60}))
    (file,) = path.rglob("stacks.node1/node1.jsonl")
    file.with_name(".node1.jsonl").write_text(file.read_text())
    assert profile_of([path]).samples == 60


def test_the_difference_of_two_archives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = archive(tmp_path / "old", look(1, {QUEUE: 600, SYNC: 100}))
    new = archive(tmp_path / "new", look(1, {QUEUE: 900, SYNC: 110}))
    head, grid, _ = blocks(profile_of([new]), profile_of([old]))
    assert "11.67 ms of CPU per request before, 16.83 ms now" in str(head)
    assert grid.rows[0][:5] == ("work", "osd:op-queue", "10.00", "15.00", "+5.000")  # type: ignore[union-attr]
    root = tree([profile_of([its]).cpu_ms for its in (old, new)])
    assert root["v"] == pytest.approx([11.67, 16.83]) and [its["n"] for its in root["c"]] == ["osd"]
    assert main(["flame", str(new), "--format", "folded"]) == 0
    assert "osd;op-queue;tp_osd_tp;run;work 15000\n" in capsys.readouterr().out
    page = tmp_path / "page.html"
    assert main(["flame", str(new), "--against", str(old), "-o", str(page)]) == 0
    assert "red uses more" in page.read_text()


def test_a_file_is_read_line_by_line_and_its_limits_are_said(tmp_path: Path) -> None:
    path = archive(tmp_path, {"t": T0, "limit": "looks of 2 s instead of 5: perf would write too much"})
    (file,) = path.rglob("stacks.node1/node1.jsonl")
    many = json.dumps(look(1, {f"{QUEUE};{'x' * 1000};{number}": 1 for number in range(200)}))
    with file.open("a") as out:
        out.writelines(f"{many}\n" for _ in range(200))
    profile_of([path])  # whatever is made once
    tracemalloc.start()
    profile = profile_of([path])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert profile.samples == 200 * 200 and peak < file.stat().st_size / 10
    assert profile.notes == ("node1: looks of 2 s instead of 5: perf would write too much",)


def test_each_run_counts_once(tmp_path: Path) -> None:
    without = small(tmp_path / "without").parent.parent.parent
    profile = profile_of([without, archive(tmp_path / "with", look(1, {QUEUE: 60}))])
    assert (profile.runs, profile.samples) == (1, 60)


def test_unusable_runs_are_left_out_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = archive(tmp_path / "whole", look(1, {QUEUE: 60}))
    broken = archive(tmp_path / "broken", look(1, {QUEUE: 600}))
    (end,) = broken.rglob("complete")
    end.unlink()
    assert main(["flame", str(whole), str(broken), "--format", "text"]) == 4
    said = capsys.readouterr()
    shown = " ".join(said.out.split())
    assert "60 samples in 1 run;" in shown and "left out: the run was interrupted" in shown
    assert f"Warning: {end.parent}: left out: the run was interrupted" in said.err
    assert main(["flame", str(whole), "--against", str(whole), str(broken)]) == 4
    assert main(["flame", str(broken)]) == 4
    assert "no call stacks" in capsys.readouterr().err


def test_unreadable_runs_and_archives_are_left_out_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = archive(tmp_path / "one", look(1, {QUEUE: 60}))
    (manifest,) = archive(tmp_path / "folder" / "below", look(1, {QUEUE: 600})).rglob("manifest.json")
    manifest.write_text('{"version": 1}')  # of another format
    for other in (tmp_path / "folder", tmp_path / "folder" / "below"):
        assert main(["flame", str(other), str(one), "--format", "folded"]) == 4
        said = capsys.readouterr()
        assert said.out.startswith("osd;op-queue;") and str(other) in said.err
    assert main(["flame", str(one), str(tmp_path / "none")]) == 2


def test_folded_stacks_have_no_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    its = str(archive(tmp_path, look(1, {QUEUE: 60})))
    assert main(["flame", its, "--against", its, "--format", "folded"]) == 2
    assert "--format folded cannot show a difference: remove --against" in capsys.readouterr().err


def test_why_there_are_no_stacks(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="no monitor `stacks`"):
        profile_of([small(tmp_path / "without").parent.parent.parent])
    with pytest.raises(Unreadable, match="node1: perf: No such file"):
        profile_of([archive(tmp_path / "failed", {"t": T0 + 1, "error": "perf: No such file or directory"})])
    with pytest.raises(Unreadable, match="no phase odd: there is new, aged"):
        profile_of([archive(tmp_path / "odd", look(1, {QUEUE: 1}))], "odd")
