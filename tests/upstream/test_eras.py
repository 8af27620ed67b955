"""An unmodified cbt.py of each era, with this project and a third party's plug-in installed beside it."""

from __future__ import annotations

import re
import shutil
import socket
from pathlib import Path
from typing import Any, Tuple

import pytest
from cbt_trees import Trees

from .conftest import Cbt, Outcome, run

pytestmark = pytest.mark.upstream

SWEEP = {"example": {"size": [4, 8], "nested": {"b": 1, "a": [1, 2]}}}


def test_every_planned_run_is_executed_once(cbt: Cbt, tree: Path) -> None:
    config = cbt.config(SWEEP)
    first = cbt.cbt(tree, config)
    assert first.status == 0, first.output
    assert first.calls() == [1, 1, 1, 1]
    assert "4 of 4 planned runs executed" in first.output
    assert sorted((one["iteration"], one["config"]["size"]) for one in first.summaries()) == [
        (0, 4),
        (0, 8),
        (1, 4),
        (1, 8),
    ]
    assert len({one["run_dir"] for one in first.summaries()}) == 4
    assert not any(one["is_teuthology"] for one in first.summaries())

    second = cbt.cbt(tree, config)
    assert second.status == 0, second.output
    assert second.calls() == [1, 1, 1, 1]
    assert second.output.count("already complete") == 4
    assert "0 of 4 planned runs executed, 4 skipped (their results exist)" in second.output
    log = second.archive / "cbt.log"
    assert tree.name != "newest" or "4 skipped" in log.read_text()


def test_the_host_is_described_to_the_benchmark(cbt: Cbt, tree: Path) -> None:
    config = cbt.config(SWEEP, iterations=1)
    one = cbt.cbt(tree, config).summaries()[0]
    assert one["clients"] == ["192.0.2.2", "192.0.2.3"]
    assert one["config_file"] == str(config)
    assert one["checkout"] == str(tree)  # an export is no git tree
    assert one["endpoints"]["s3"]["urls"] == ["http://192.0.2.5:7480"]
    assert one["run_dir"].startswith("/tmp/cbt-of-a-test/00000000/example-")


def test_no_command_reaches_a_node_for_a_benchmark_of_ours(cbt: Cbt, tree: Path) -> None:
    """The base class's run() removes directories everywhere and writes into each OSD's /sys."""
    outcome = cbt.cbt(tree, cbt.config(SWEEP))
    assert outcome.status == 0, outcome.output
    assert not cbt.stub_log.exists(), cbt.stub_log.read_text()


@pytest.mark.parametrize("fault", [True, "key", "constructor"])
def test_a_failing_run_gives_status_1_and_is_counted(cbt: Cbt, tree: Path, fault: object) -> None:
    outcome = cbt.cbt(tree, cbt.config({"example": {"fail": [fault], "size": [4, 8]}}, iterations=1))
    assert outcome.status == 1, outcome.output
    assert (
        "0 of 2 planned runs executed, 1 failed, 1 not executed (nothing runs after a failure)"
        in outcome.output
    )
    assert not any((path / "complete").exists() for path in outcome.runs())
    if fault is True:
        assert outcome.output.count("asked to fail") == 1
        assert "Traceback" not in outcome.output


def test_runs_are_made_after_one_that_is_not_to_be_trusted(cbt: Cbt, tree: Path) -> None:
    """Nothing mends it: the same command does not run it again."""
    config = cbt.config({"example": {"degraded": [True, False]}}, iterations=2)
    for counts in ("2 of 4 planned runs executed, 2 failed", "0 of 4 planned runs executed, 2 skipped"):
        outcome = cbt.cbt(tree, config)
        assert outcome.status == 1, outcome.output
        assert counts in outcome.output and "not executed" not in outcome.output
        assert "not to be trusted: age" in outcome.output and "Traceback" not in outcome.output
        assert outcome.calls() == [1, 1, 1, 1]


def test_a_failed_run_is_repeated_and_a_complete_one_is_not(cbt: Cbt, tree: Path) -> None:
    config = cbt.config(SWEEP, iterations=1)
    outcome = cbt.cbt(tree, config)
    (outcome.runs()[0] / "complete").unlink()
    assert cbt.cbt(tree, config).status == 0
    assert sorted(outcome.calls()) == [1, 2]


def test_faults_of_the_file_end_with_status_2_before_anything_is_touched(cbt: Cbt, tree: Path) -> None:
    config = cbt.config({"warp": {"s3": {"urls": ["http://192.0.2.5"]}, "sise": "4K"}, **SWEEP})
    outcome = cbt.cbt(tree, config)
    assert outcome.status == 2, outcome.output
    assert "sise" in outcome.output
    assert "Traceback" not in outcome.output
    assert not outcome.archive.exists()
    assert not cbt.stub_log.exists()


@pytest.mark.parametrize(
    ("benchmarks", "cluster", "said"),
    [
        (SWEEP, {"iterations": 0}, "nothing to run"),
        ({"example": {"size": []}}, {}, "empty list"),
    ],
)
def test_a_file_that_would_run_nothing_is_a_fault(
    cbt: Cbt, tree: Path, benchmarks: dict, cluster: dict, said: str
) -> None:
    outcome = cbt.cbt(tree, cbt.config(benchmarks, **cluster))
    assert outcome.status == 2, outcome.output
    assert said in outcome.output


def test_an_unknown_benchmark_is_named(cbt: Cbt, tree: Path) -> None:
    outcome = cbt.cbt(tree, cbt.config({"exampel": {"size": 4}}))
    assert outcome.status == 1, outcome.output
    assert "benchmarks: exampel" in outcome.output
    assert "did you mean example?" in outcome.output


def test_cbts_own_benchmarks_run_too_and_their_results_are_kept(cbt: Cbt, tree: Path) -> None:
    """Since mid 2024 upstream skips hsbench and others silently, with status 0."""
    theirs = {"size": ["4K", "8K"], "client_endpoints": "s3", "duration": 1, "report_interval": 1}
    config = cbt.config({**SWEEP, "hsbench": theirs})
    first = cbt.cbt(tree, config)
    assert first.status == 0, first.output
    (warning,) = (line for line in first.output.splitlines() if "does not read this key" in line)
    assert warning.endswith("did you mean 'report_intervals'?") and "benchmarks.hsbench.report_interval" in warning
    assert "8 of 8 planned runs executed" in first.output
    load = [line for line in cbt.stub_log.read_text().splitlines() if "/usr/local/bin/hsbench" in line]
    assert len(load) == 4
    assert not (first.archive / "results" / ".unfinished").exists()

    cbt.stub_log.unlink()
    second = cbt.cbt(tree, config)
    assert second.status == 0, second.output
    assert "0 of 8 planned runs executed, 8 skipped (their results exist)" in second.output
    assert "/usr/local/bin/hsbench" not in (cbt.stub_log.read_text() if cbt.stub_log.exists() else "")


def test_half_a_run_of_cbts_own_is_no_result(cbt: Cbt, tree: Path) -> None:
    """CBT takes the directory for the result, whatever is in it."""
    config = cbt.config({**SWEEP, "hsbench": {"size": "4K", "client_endpoints": "s3", "duration": 1}}, iterations=1)
    rpdcp = cbt.tmp / "stubs" / "rpdcp"
    works = rpdcp.read_text()
    rpdcp.write_text("#!/bin/sh\nexit 1\n")
    first = cbt.cbt(tree, config)
    assert first.status == 1, first.output
    assert len(first.runs()) == 3, "the directory is there"

    rpdcp.write_text(works)
    second = cbt.cbt(tree, config)
    assert second.status == 0, second.output
    assert "1 of 3 planned runs executed, 2 skipped (their results exist)" in second.output


def test_a_run_of_cbts_own_without_a_result_file_has_failed(cbt: Cbt, tree: Path) -> None:
    """Without its load generator on the clients, a benchmark leaves what the cluster and the monitors said, and the
    files of getput's keys and of a recovery test.
    """
    config = cbt.config({**SWEEP, "hsbench": {"size": "4K", "client_endpoints": "s3", "duration": 1}}, iterations=1)
    rpdcp = cbt.tmp / "stubs" / "rpdcp"
    works = rpdcp.read_text()
    rpdcp.write_text(
        "#!/bin/sh\nfor last; do :; done\ncd $last && mkdir -p collectl.192.0.2.2 && touch output.0.csv.192.0.2.2\n"
        "echo state > historic_ops.out.192.0.2.4 && echo 1 > collectl.192.0.2.2/raw\n"
        "echo export > gw00.cred.192.0.2.2\n"
        "for log in recovery recovery_stats recovery_backfill_stats; do echo out > $log.log.192.0.2.3; done\n"
    )
    for counts in ("2 of 3 planned runs executed, 1 failed", "0 of 3 planned runs executed, 2 skipped"):
        outcome = cbt.cbt(tree, config)
        assert outcome.status == 1, outcome.output
        assert counts in outcome.output and "left no result file in" in outcome.output
    shutil.rmtree(outcome.archive / "results" / ".unfinished")  # as an archive of before
    assert "1 failed" in cbt.cbt(tree, config).output
    rpdcp.write_text(works)
    assert "1 of 3 planned runs executed, 2 skipped" in cbt.cbt(tree, config).output
    assert not (outcome.archive / "results" / ".unfinished").exists()
    assert "0 of 3 planned runs executed, 3 skipped" in cbt.cbt(tree, config).output


def test_compare_goes_through_a_pair_of_archives(cbt: Cbt, tree: Path) -> None:
    config = cbt.config(
        {"example": {"size": [4, 8], "acceptable": {"bandwidth": "(or (greater) (near 0.05))"}}}
    )
    for archive in ("one", "two"):
        assert cbt.cbt(tree, config, archive).status == 0
    outcome = cbt.compare(tree, "one", "two")
    assert outcome.status == 0, outcome.output
    assert outcome.output.count("see the reports of") == 4
    assert "Traceback" not in outcome.output


def test_another_file_for_the_same_archive_is_said(cbt: Cbt, tree: Path) -> None:
    assert cbt.cbt(tree, cbt.config(SWEEP, iterations=1)).status == 0
    outcome = cbt.cbt(tree, cbt.config({"example": {"size": 16}}, iterations=1))
    assert outcome.status == 0
    assert "this archive was started with another file" in outcome.output


def test_the_hook_can_be_switched_off(cbt: Cbt, tree: Path) -> None:
    cbt.environment["CBT_PLUGINS"] = "off"
    outcome = cbt.cbt(tree, cbt.config(SWEEP))
    assert outcome.status == 1
    assert "NoneType" in outcome.output


def watched(cbt: Cbt, tree: Path, **section: object) -> tuple[Outcome, Path]:
    """A run on this machine alone, under CBT's own collectl (a stand-in) and a third party's monitor."""
    (cbt.tmp / "stubs" / "collectl").write_text(
        '#!/bin/sh\nwhile [ "$1" != -f ]; do shift; done\necho sample > $2/raw\n'
    )
    (cbt.tmp / "stubs" / "pdsh").write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
    # CBT does not wait for the start of collectl: a benchmark of a moment can be over before it.
    (cbt.tmp / "stubs" / "pkill").write_text(
        f'#!/bin/sh\ncase "$*" in *collectl) ;; *) exit ;; esac\n'
        f"for moment in $(seq 6000); do grep -rqs sample {cbt.tmp}/node && exit; sleep 0.01; done\n"
    )
    note = cbt.tmp / "note"
    here = socket.gethostname()
    config = cbt.config(
        {"example": {"watch": True, **section}},
        profiles={"witness": {"nodes": ["clients"], "note": str(note)}},
        iterations=1,
        head=here,
        clients=[here],
        osds=[here],
        mons=[here],
        tmp_dir=str(cbt.tmp / "node"),
    )
    return cbt.cbt(tree, config), note


def test_the_files_of_the_monitors_arrive(cbt: Cbt, tree: Path) -> None:
    outcome, note = watched(cbt, tree)
    assert outcome.status == 0, outcome.output
    files = outcome.runs()[0] / "monitors"
    assert (files / f"collectl.{socket.gethostname()}" / "raw").read_text() == "sample\n"
    assert (files / f"witness.{socket.gethostname()}" / "raw").read_text() == "started\nstopped\n"
    assert note.read_text().split() == ["start", socket.gethostname(), "stop", "same"]
    assert not list((cbt.tmp / "node").rglob("raw")), "nothing stays on the node"


def test_monitors_stop_when_the_run_fails(cbt: Cbt, tree: Path) -> None:
    outcome, note = watched(cbt, tree, fail="key")
    assert outcome.status == 1, outcome.output
    assert note.read_text().split()[-2:] == ["stop", "same"]
    assert (outcome.runs()[0] / "monitors" / f"collectl.{socket.gethostname()}" / "raw").exists()


def test_an_unknown_profile_is_named(cbt: Cbt, tree: Path) -> None:
    config = cbt.config({"example": {"watch": True}}, profiles={"unheard": {}})
    outcome = cbt.cbt(tree, config)
    assert outcome.status == 1
    assert "unheard" in outcome.output.split("Error: ")[-1].splitlines()[0]


@pytest.mark.parametrize("tree", ["newest"], indirect=True)
def test_progress_bars_know_how_long_our_runs_take(cbt: Cbt, tree: Path) -> None:
    """A run that is complete takes no time; a benchmark without a plan is not counted."""
    s3 = {"urls": ["http://192.0.2.5:7480"], "user": "cbt"}
    hybrid = {"hybrid": {"duration": "10s", "mix": {"get": 60, "put": 40}}}
    cycle = {"phases": [{"fill": {"duration": "30s"}}, hybrid, {"wait": {"duration": "20s"}}]}
    sections = {"warp": {"s3": s3, "workers": [2, 4], "cycle": cycle}, "example": {"size": 4}}
    config = cbt.config(sections, iterations=1, user="cbt")
    first = cbt.cbt(tree, config)
    assert "estimated: 130 s" in (first.archive / "cbt.log").read_text(), first.output
    runs = {path.name for path in first.runs() if not (path / "summary.json").exists()}
    (first.archive / "results" / "00000000" / runs.pop() / "complete").write_text("{}")
    second = cbt.cbt(tree, config)
    assert "estimated: 65 s" in (second.archive / "cbt.log").read_text(), second.output


@pytest.mark.parametrize("tree", ["newest"], indirect=True)
def test_the_registry_of_monitors_has_our_profiles(cbt: Cbt, tree: Path) -> None:
    program = (
        "import settings; settings.cluster = {'clients': ['192.0.2.2'], 'osds': [], 'mons': [], 'rgws': []}\n"
        "from monitoring.monitoring_factory import MonitoringFactory as factory\n"
        "from monitoring.monitoring import Monitoring\n"
        "monitor = factory._REGISTRY['witness']({'nodes': ['clients']})\n"
        "print(isinstance(monitor, Monitoring), monitor.PROFILE, 'resources' in factory._REGISTRY)"
    )
    argv = [str(cbt.python), "-W", "ignore", "-c", program]
    done = run(argv, env={**cbt.environment, "PYTHONPATH": str(tree)}, cwd=str(cbt.tmp))
    assert done.stdout == "True witness True\n", done.stdout + done.stderr


OF_CBT = {"hsbench": {"size": ["4K", "8K"], "client_endpoints": "s3", "duration": 1}}


def same_without_us(cbt: Cbt, tree: Path, config: Path, status: int) -> Tuple[Any, ...]:
    """Call it twice without us and twice with us; what the first call left."""
    cbt.environment["PYTHONHASHSEED"] = "0"  # CBT names its nodes in the order of a set
    kept = []
    for switch in ("off", "on"):
        cbt.environment["CBT_PLUGINS"] = switch
        first, second = cbt.cbt(tree, config), cbt.cbt(tree, config)
        kept.append((first.status, second.status, *left_by(cbt, first, second)))
    theirs, ours = kept
    assert ours == theirs
    assert theirs[0] == status, theirs
    return theirs


def left_by(cbt: Cbt, *outcomes: Outcome) -> Tuple[Any, ...]:
    """Output, archive and commands of calls on one archive, which is taken away for the next."""
    output = re.sub(r"\d\d:\d\d:\d\d|cbt\.\d+", "", "".join(outcome.output for outcome in outcomes))
    output = re.sub(r'  File ".*/cbt_plugins/.*\n.*\n', "", output)  # our frame in a traceback
    archive = outcomes[0].archive
    files = {str(path): path.read_bytes() if path.is_file() else b"" for path in sorted(archive.rglob("*"))}
    files.pop(str(archive / "cbt.log"), None)  # the output, with its times
    shutil.rmtree(archive, ignore_errors=True)
    commands = cbt.stub_log.read_text().splitlines() if cbt.stub_log.exists() else []
    cbt.stub_log.unlink(missing_ok=True)
    return output, files, sorted(commands)  # those that CBT does not wait for come in any order


def test_a_file_without_our_sections_runs_as_without_us(cbt: Cbt, tree: Path) -> None:
    _, _, _, files, commands = same_without_us(cbt, tree, cbt.config(OF_CBT, is_teuthology=True), 0)
    assert any("/usr/local/bin/hsbench" in line for line in commands)
    assert any("results/00000001/id-" in name for name in files)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("cluster: {iterations: 0, head: a, conf_file: /dev/null}\nbenchmarks: {hsbench: {}}", 0),
        ("cluster: {iterations: 1, head: a, conf_file: /dev/null}\nbenchmarks: {no-such: {}}", 1),
        ("cluster: {iterations: 1\nbenchmarks: {hsbench: {}}", 1),
    ],
)
@pytest.mark.parametrize("tree", ["master"], indirect=True)
def test_errors_of_a_file_without_our_sections_are_those_of_cbt(cbt: Cbt, tree: Path, text: str, status: int) -> None:
    config = cbt.tmp / "config.yaml"
    config.write_text(text)
    same_without_us(cbt, tree, config, status)


def test_a_tree_that_we_do_not_fit_is_said_to_those_who_need_us_only(cbt: Cbt, trees: Trees) -> None:
    tree = cbt.tmp / "strange"
    shutil.copytree(trees["master"], tree)
    factory = tree / "benchmarkfactory.py"
    factory.write_text(factory.read_text().replace("def get_all(", "def get_every(") + "\nnames = []\n")
    main = tree / "cbt.py"
    main.write_text(main.read_text().replace("benchmarkfactory.get_all", "benchmarkfactory.get_every"))
    same_without_us(cbt, tree, cbt.config(OF_CBT), 0)
    outcome = cbt.cbt(tree, cbt.config(SWEEP))
    assert outcome.status == 2, outcome.output
    assert f"{factory}: cbt-plugins does not fit this CBT tree" in outcome.output
