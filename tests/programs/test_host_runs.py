"""Permutations, ids, the count of runs, and the errors that show before anything runs."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Dict

import pytest
import yaml

from cbt_plugins import journal
from cbt_plugins.cbt import archive_layout, checkout
from cbt_plugins.cbt.archive_layout import errors_of
from cbt_plugins.cbt.execution import EXECUTED, EXISTING, FAILED, Ledger, cause_of, execute_unless_complete
from cbt_plugins.cbt.run_loop import RunLoop
from cbt_plugins.cbt_run import CbtRun, RunFailed
from cbt_plugins.config import plugins
from cbt_plugins.journal import Journal, json_lines


def test_only_top_level_lists_multiply_and_the_last_one_is_fastest() -> None:
    section = {"a": [1, 2], "nested": {"list": [1, 2]}, "acceptable": [9], "b": ["x", "y"]}
    assert [(run["a"], run["b"]) for run in archive_layout.permutations(section)] == [
        (1, "x"),
        (1, "y"),
        (2, "x"),
        (2, "y"),
    ]
    assert all(
        run["nested"] == {"list": [1, 2]} and run["acceptable"] == [9] for run in archive_layout.permutations(section)
    )


def test_runs_come_by_iteration_then_by_name() -> None:
    runs = archive_layout.planned({"b": {"k": [1, 2]}, "a": {}}, 2)
    assert [(run.iteration, run.benchmark, run.config.get("k")) for run in runs] == [
        (0, "a", None),
        (0, "b", 1),
        (0, "b", 2),
        (1, "a", None),
        (1, "b", 1),
        (1, "b", 2),
    ]


def test_an_id_recorded_from_cbt() -> None:
    """CBT 9d6480f, example: {size: 4, nested: {b: 1, a: [1, 2]}}, iteration 0."""
    config = {"nested": {"b": 1, "a": [1, 2]}, "size": 4, "benchmark": "example", "iteration": 0}
    assert archive_layout.archive_dir(Path("A"), config) == Path("A/results/00000000/id-e7ff2d13")
    assert archive_layout.archive_dir(Path("A"), {**config, "acceptable": {}}).name == "id-e7ff2d13"
    assert archive_layout.archive_dir(Path("A"), {**config, "iteration": 1}) == Path("A/results/00000001/id-d3c1780e")
    assert archive_layout.run_id({**config, "nested": {"a": [1, 2], "b": 1}}) != "e7ff2d13", "nested order counts"


def test_the_scratch_directory_is_the_runs_alone() -> None:
    """The same file may run with two archives at once: CBT's id of a run is not enough."""
    found = archive_layout.run_dir("/tmp/cbt/", "warp", Path("A/results/00000001/id-00ff00ff"), "0123abcd")
    assert found == "/tmp/cbt/00000001/warp-0123abcd"


def test_a_run_that_is_resumed_keeps_its_identity(tmp_path: Path) -> None:
    assert archive_layout.begun_or_new(tmp_path) != archive_layout.begun_or_new(tmp_path)
    with contextlib.closing(Journal(tmp_path / "journal.jsonl")) as journal:
        journal.write("run", run_id="0123abcd")
    assert archive_layout.begun_or_new(tmp_path) == "0123abcd"


def test_a_ledger_is_fulfilled_when_every_run_has_a_result() -> None:
    runs = list(archive_layout.planned({"x": {"k": [1, 2, 3]}}, 1))
    ledger = Ledger(runs)
    assert not ledger.fulfilled
    ledger.set(runs[0], EXECUTED)
    ledger.set(runs[1], EXISTING)
    assert not ledger.fulfilled
    assert ledger.lines() == [
        "1 of 3 planned runs executed, 1 skipped (their results exist), 1 not executed",
        "not executed: x, iteration 0 (k=3)",
    ]
    ledger.set(runs[2], FAILED, "no disk")
    assert not ledger.fulfilled
    assert ledger.lines()[1:] == ["failed: x, iteration 0 (k=3): no disk"]
    ledger.set(runs[2], EXECUTED)
    assert ledger.fulfilled


def test_equal_permutations_are_one_run() -> None:
    runs = list(archive_layout.planned({"x": {"k": [1, 1]}}, 1))
    ledger = Ledger(runs)
    ledger.set(runs[0], EXECUTED)
    assert ledger.fulfilled


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- 1",
        "a: [",
        "benchmarks: {radosbench: {}}",
        "cluster: {head: a, clients: -x, tmp_dr: /x}\nbenchmarks: {radosbench: , x: {k: []}}",
        "a: &a [*a]\ncluster: {}\nbenchmarks: {radosbench: {}}",
        "a: !!int x\ncluster: {}\nbenchmarks: {radosbench: {}}",
    ],
)
def test_a_file_of_cbts_own_benchmarks_only_is_cbts_own_affair(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    assert errors_of(path) == []
    assert errors_of(tmp_path / "none.yaml") == []


def host_run(directory: Path) -> CbtRun:
    directory.mkdir(parents=True, exist_ok=True)
    return CbtRun(
        "x", {"k": 1, "benchmark": "x", "iteration": 0}, 0, directory, "/tmp/x", {}, {}, {}, None, None, None
    )  # type: ignore[arg-type]


class Counting:
    runs = 0

    def __init__(self, run: CbtRun) -> None:
        self.host_run = run

    def run(self) -> None:
        type(self).runs += 1


def test_a_run_with_the_marker_is_not_run_again(tmp_path: Path) -> None:
    Counting.runs = 0
    execute_unless_complete(host_run(tmp_path / "0" / "id-1"), lambda: Counting)
    assert Counting.runs == 1
    assert yaml.safe_load((tmp_path / "0" / "id-1" / "benchmark_config.yaml").read_text()) == {
        "cluster": {"k": 1, "benchmark": "x", "iteration": 0}
    }
    marker = tmp_path / "0" / "id-1" / "complete"
    for text in ("", "{}", '{"degraded": []}'):
        marker.write_text(text)
        execute_unless_complete(host_run(tmp_path / "0" / "id-1"), lambda: Counting)
    marker.write_text('{"degraded": ["age"]}')
    with pytest.raises(RunFailed, match="not to be trusted: age"):
        execute_unless_complete(host_run(tmp_path / "0" / "id-1"), lambda: Counting)
    assert Counting.runs == 1


def test_a_complete_run_of_another_plan_is_no_result(tmp_path: Path) -> None:
    """The id of a run knows nothing of nodes and endpoints."""

    class Other(Counting):
        def check_complete(self) -> None:
            raise RunFailed("belongs to a run with another plan")

    folder = tmp_path / "0" / "id-1"
    run = host_run(folder)
    (folder / "complete").touch()
    with pytest.raises(RunFailed, match="another plan"):
        execute_unless_complete(run, lambda: Other)


def test_the_cause_of_a_failure_is_said_once_at_the_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Counting):
        def run(self) -> None:
            raise RunFailed("no bucket")

    with pytest.raises(RunFailed):
        execute_unless_complete(host_run(tmp_path / "0" / "id-1"), lambda: Failing)
    assert "no bucket" not in caplog.text

    (run,) = archive_layout.planned({"x": {}}, 1)
    ledger = Ledger([run])
    ledger.set(run, FAILED, cause_of(RunFailed("a: no bucket\nb: no disk")))
    assert ledger.lines()[1:] == ["failed: x, iteration 0\n  a: no bucket\n  b: no disk"]


def test_a_full_disk_under_late_files_of_a_complete_run_is_named(tmp_path: Path) -> None:
    class Late(Counting):
        def check_complete(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    folder = tmp_path / "0" / "id-1"
    run = host_run(folder)
    (folder / "complete").touch()
    with pytest.raises(RunFailed, match=r"no space is left on the disk at .*: free some"):
        execute_unless_complete(run, lambda: Late)


@pytest.mark.parametrize("where", ["", "/some/where/else"])
def test_a_full_disk_is_named_with_the_path(tmp_path: Path, where: str) -> None:
    class Filling(Counting):
        def run(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device", *([where] if where else []))

    directory = tmp_path / "0" / "id-1"
    expected = rf"^{where or directory}: no space is left on the disk at /.*: free some, then run the same command"
    with pytest.raises(RunFailed, match=expected):
        execute_unless_complete(host_run(directory), lambda: Filling)


def test_what_needs_room_is_done_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    errors = [OSError(errno.EDQUOT, "Disk quota exceeded"), OSError(errno.ENOSPC, "No space left on device")]

    def write() -> str:
        if errors:
            raise errors.pop()
        return "written"

    monkeypatch.setattr(journal, "ROOM_EVERY", 0.01)
    assert journal.insist_on_room(tmp_path, write) == "written"
    assert "free some within 60 min; nothing is lost yet" in caplog.text
    errors[:] = [OSError(errno.EACCES, "Permission denied")]
    with pytest.raises(PermissionError):
        journal.insist_on_room(tmp_path, write)
    monkeypatch.setattr(journal, "ROOM_LIMIT", 0.0)
    errors[:] = [OSError(errno.ENOSPC, "No space left on device")]
    with pytest.raises(OSError, match="No space"):
        journal.insist_on_room(tmp_path, write)


def test_a_line_that_a_full_disk_has_torn_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with contextlib.closing(Journal(tmp_path / "j.jsonl")) as journal:
        journal.write("one")
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            with pytest.raises(OSError, match="No space"):
                journal.write("two")
        journal.write("three")
        assert [line["event"] for line in journal.records] == ["one", "three"]
    assert [line["event"] for line in json_lines(tmp_path / "j.jsonl")] == ["one", "three"]


def test_a_thread_that_outlives_its_run_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = threading.Event()
    monkeypatch.setattr("cbt_plugins.cbt.execution.THREAD_TIMEOUT", 0.01)

    class Leaving(Counting):
        def run(self) -> None:
            threading.Thread(target=end.wait, name="forgotten").start()

    with caplog.at_level(logging.ERROR):
        execute_unless_complete(host_run(tmp_path / "0" / "id-1"), lambda: Leaving)
    end.set()
    assert "forgotten" in caplog.text


def test_checkouts_are_found_and_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CBT_HOME", raising=False)
    assert checkout.find() is None
    for place in (tmp_path / "cache" / "cbt-plugins" / "cbt", tmp_path / "home"):
        place.mkdir(parents=True)
        for mark in checkout.MARKS:
            (place / mark).touch()
    assert checkout.find() == tmp_path / "cache" / "cbt-plugins" / "cbt"
    monkeypatch.setenv("CBT_HOME", str(tmp_path / "home"))
    assert checkout.find() == tmp_path / "home"
    assert checkout.describe(tmp_path / "home").describe == str(tmp_path / "home")
    monkeypatch.setenv("CBT_HOME", str(tmp_path))
    with pytest.raises(ValueError, match="is not a CBT checkout"):
        checkout.find()


def test_the_hook_is_installed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from cbt_plugins import autoload

    monkeypatch.setattr(sys, "meta_path", [finder for finder in sys.meta_path if not hasattr(finder, "of_cbt_plugins")])
    monkeypatch.setenv("CBT_PLUGINS", "off")
    autoload.install()
    assert autoload.Finder not in sys.meta_path
    monkeypatch.delenv("CBT_PLUGINS")
    autoload.install()
    autoload.install()
    assert sys.meta_path.count(autoload.Finder) == 1  # type: ignore[comparison-overlap]


@pytest.mark.parametrize("error", ["SystemError('of another version')", "ImportError('no pydantic')"])
def test_a_broken_installation_leaves_cbt_as_it_is(tmp_path: Path, error: str) -> None:
    """pydantic raises SystemError where its core is of another version, which is no ImportError."""
    for mark in checkout.MARKS:
        (tmp_path / mark).write_text("initialize = None\n")
    (tmp_path / "broken" / "pydantic").mkdir(parents=True)
    (tmp_path / "broken" / "pydantic" / "__init__.py").write_text(f"raise {error}\n")
    code = f"import sys; sys.path[:0] = {[str(tmp_path / 'broken'), str(tmp_path)]!r}\n"
    code += "from cbt_plugins import autoload; autoload.install(); import settings; print(settings.initialize)"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "None\n")
    assert done.stderr.startswith("cbt-plugins is not active: ")


@pytest.mark.parametrize("other", ["arch/", "moved"])
def test_an_archive_is_that_of_its_file_wherever_it_is(
    tmp_path: Path, other: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def warned(archive: str, config: Dict[str, Any]) -> bool:
        caplog.clear()
        assert RunLoop(archive, config, None, tmp_path / "f.yaml").run() == 0
        return "was started with another file" in caplog.text

    monkeypatch.chdir(tmp_path)
    config = {"cluster": {"iterations": 1, "clients": ["c"]}, "benchmarks": {}}
    assert not warned("arch", config)
    shutil.copytree("arch", "moved")
    assert not warned(other, config)
    assert warned(other, {**config, "cluster": {"iterations": 1, "clients": ["d"]}})


def test_all_runs_have_the_file_that_was_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever prepares the next invocation saves half a file, or moves it, while runs go on."""
    file, texts = tmp_path / "f.yaml", []

    class Edits:
        def __init__(self, run: CbtRun) -> None:
            texts.append(run.config_text)

        def run(self) -> None:
            file.write_text("bench: [1,") if texts[1:] else file.unlink()

    monkeypatch.setattr(plugins, "loaders", lambda group: {"warp": lambda: Edits})
    file.write_text("s3: {secret_key: hunter2}  # mine\n")
    config = {"cluster": {"iterations": 3, "head": "h"}, "benchmarks": {"warp": {}}}
    assert RunLoop(str(tmp_path / "A"), config, None, file).run() == 0
    assert texts == ["s3: {secret_key: '***'}  # mine\n"] * 3


def test_ours_are_known_without_an_installation() -> None:
    known: Dict[str, Any] = plugins.loaders(plugins.BENCHMARKS)
    assert {"warp", "rgwtest"} <= set(known)
