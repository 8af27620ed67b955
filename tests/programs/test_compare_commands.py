"""compare, gate and history on archives, the whole way: what is printed and the exit status."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import List

import archive_builder
import pytest
from archive_builder import Load

from cbt_plugins.results.summary_file import summarize, write_summary
from cbt_plugins.tools.__main__ import main

MAKE = archive_builder.archive
SLOW = {"GET": 0.025}  # 25 % slower


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sides of five short runs: base, the same again, one with a planted regression; and single ones."""
    place = tmp_path_factory.mktemp("archives")
    MAKE(place / "base", Load(seconds=10), runs=5, seed=1)
    MAKE(place / "again", Load(seconds=10), runs=5, seed=2, begin=500)
    MAKE(place / "slow", Load(seconds=10, latency=SLOW), runs=5, seed=3, begin=500)
    MAKE(place / "one", seed=4)
    MAKE(place / "two", seed=5, begin=500)
    MAKE(place / "late", Load(latency=SLOW), seed=6)
    for run in place.glob("*/results/*/*"):  # as after each run; the others are read from their files each time
        write_summary(summarize(run), run / "summary.json")
    shutil.copytree(place / "base", place / "copy")
    MAKE(place / "nights", runs=4, seed=10)
    MAKE(place / "other", Load(seconds=10, size=65536), seed=7)
    MAKE(place / "damaged", Load(seconds=10), runs=2, seed=8)
    for path in (place / "damaged").glob("results/00000001/*/phases/*/rows/*"):
        path.unlink()
    MAKE(place / "broken-off", Load(seconds=10), seed=9)
    for path in (place / "broken-off").glob("results/*/*/complete"):
        path.unlink()
    return place


@pytest.fixture(autouse=True)
def there(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


LIMITS = ["--limit", "GET.obj_per_s=10%", "--limit", "PUT.obj_per_s=10%"]


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["base", "slow"], 1, "regression (exit status 1): 1 ok, 1 regression"),
        (["one", "late"], 3, "inconclusive: one-run"),
        (["one", "late", "--scatter", "1%"], 1, "regression (exit status 1)"),
        (["one", "late", "--scatter", "obj_per_s=1%"], 1, "regression (exit status 1)"),
        (["one", "late", "--scatter", "objs=1%"], 2, "--scatter objs=1%: unknown metric objs"),
        (["one", "late", "--history", "base"], 3, "inconclusive: one-run"),  # shorter runs: another configuration
        (["one", "late", "--history", "nights"], 1, "regression (exit status 1)"),
        (["base", "again"], 0, "ok (exit status 0): 2 ok"),
        (["one", "two"], 3, "inconclusive (exit status 3): 2 inconclusive"),
        (["one", "two", "--scatter", "1%"], 0, "ok (exit status 0): 2 ok"),
        (["slow", "base"], 0, "ok (exit status 0)"),  # better
        (["--base", "one", "--new", "two", "late"], 3, "inconclusive (exit status 3)"),
        (["--base", "base", "--new", "again", "--new", "slow"], 1, "1 regression"),
        (["base", "damaged"], 4, "unusable (exit status 4)"),
        (["base", "broken-off"], 4, "unusable (exit status 4)"),
        (["base", "nowhere"], 2, "nowhere: no such file or directory"),
        (["base", "other"], 2, "objects.sizes: 4096 in the base, 65536 in the other"),
        (["base"], 2, "is only one side"),
        (["base", "--new", "slow"], 2, "either BASE NEW"),
        (["base", "base"], 2, "both sides are the same runs (base): there is nothing to check"),
        (["--base", "base", "base/results/00000000", "--new", "slow"], 2, "is given twice"),
        (["base", "copy"], 2, "both sides are the same runs (base): there is nothing to check"),
        (["--base", "base", "copy/results/00000000", "--new", "slow"], 2, "id-1a2b3c4d has the same run"),
        (["--base", "base", "--new", "slow", "copy/results/00000000"], 2, "id-1a2b3c4d is on both sides"),
        (["one", "late", "--history", "one", "late"], 3, "inconclusive: one-run"),  # no run repeats another one
        (["--base", "base", "--new", "slow", "base/results/00000000"], 2, "id-1a2b3c4d is on both sides"),
        (["--pairs", "base", "again/results/00000000"], 2, "5 and 1"),
        (["--scale", "5:3", "base", "slow"], 2, "--scale 5:3"),
        (["--scale", "3:5", "base", "slow"], 2, "cluster.osd_nodes 4:4"),
        (["--alpha", "2", "base", "slow"], 2, "--alpha 2"),
    ],
)
def test_the_status_of_a_gate(words: List[str], status: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gate", *words, *LIMITS]) == status
    told = capsys.readouterr()
    assert said in told.out + told.err
    assert "Traceback" not in told.err


def test_a_gate_knows_of_repeated_runs_how_many_requests_they_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of these runs it keeps few numbers; the phase is no measurement, so that no warning tells it."""
    few = Load({"GET": 0.2}, ops=("GET",), workers=1, seconds=10)
    sides = []
    for seed, flag in enumerate(("--base", "--new")):
        many, rare = tmp_path / f"many{seed}", tmp_path / f"few{seed}"
        MAKE(many, Load(ops=("GET",), seconds=10), runs=2, seed=seed, begin=seed * 500)
        MAKE(rare, few, runs=2, seed=seed + 10, begin=seed * 500)
        sides += [flag, str(many), str(rare)]
    for file in tmp_path.rglob("phase.json"):
        file.write_text(json.dumps({**json.loads(file.read_text()), "role": "none"}))
    assert main(["gate", *sides, "--limit", "GET.p99_ms<=1000"]) == 0
    assert main(["gate", *sides, "--limit", "GET.p50_ms<=100"]) == 1
    assert "ok (exit status 0): 1 ok" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("history", "status", "said"),
    [
        (["nights/results/00000000", "nights/results/00000001"], 3, "--history has 2 usable runs of this"),
        (["base"], 3, "--history has 0 usable runs of this configuration"),
        (["one"], 3, "--history has 0 usable runs of this configuration, with equal options and versions, beside the"),
        (["nights", "broken-off"], 4, "1 run of --history not used, because incomplete, unusable or unreadable: "),
    ],
)
def test_runs_of_the_history_that_are_too_few_or_not_used_are_named(
    history: List[str], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, wanted in ((["gate", *LIMITS], status), (["compare"], status if status == 4 else 0)):
        assert main([*words, "one", "late", "--history", *history]) == wanted
        told = " ".join(capsys.readouterr().out.split())
        assert said in told and ("3 are needed" in told) == (status == 3)


def test_copies_of_the_result_of_another_program_are_one_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    original = Path(__file__).parents[1] / "data" / "imported" / "fio" / "v3.1.json"
    copies = [str(shutil.copy(original, tmp_path / f"{number}.json")) for number in range(6)]
    other = tmp_path / "other.json"
    other.write_text(original.read_text().replace('"99.000000": 87', '"99.000000": 88'))
    for words, said in (
        (["--base", *copies[:3], "--new", *copies[3:]], f"{copies[1]} is given twice: {copies[0]} has the same run"),
        (["--base", copies[0], str(other), "--new", copies[1]], f"{copies[0]} is on both sides"),
        (copies[:2], "both sides are the same runs"),
    ):
        assert main(["gate", *words, "--limit", "read.p99_ms=10%"]) == 2
        assert said in capsys.readouterr().err
    assert main(["gate", copies[0], str(other), "--limit", "read.p99_ms=10%"]) == 3


def test_a_gate_without_limits_and_with_wrong_ones(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["gate", "one", "two"]) == 2
    assert "no limit" in capsys.readouterr().err
    limits = tmp_path / "limits.yaml"
    limits.write_text("limits:\n  GET.p98_ms: 10%\n")
    assert main(["gate", "one", "two", "--limits", str(limits)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "Error: 1 error; nothing was compared"
    assert said[1].startswith(f"{limits}:2:3: limits.GET.p98_ms: ")
    limits.write_text("limits:\n  GET.obj_per_s: 10%\n")
    known = ["--scatter", "1%"]
    assert main(["gate", "one", "late", "--limits", str(limits), "--format", "json", *known]) == 1
    assert json.loads(capsys.readouterr().out)["outcome"] == "regression"
    assert main(["gate", "one", "late", "--limits", str(limits), "--limit", "GET.obj_per_s=50%", *known]) == 0


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["base", "slow"], 0, "  worse"),
        (["base", "other"], 2, "cannot compare base with other\n  objects.sizes: 4096 in the base, 65536 in"),
        (["base", "damaged"], 4, "not-usable (new damaged/results/00000001/id-1a2b3c4d"),
        (["base", "nowhere"], 2, "nowhere"),
        (["base", "slow", "--metric", "p98_ms"], 2, "--metric p98_ms: unknown metric; the metrics are obj_per_s"),
        (["base", "slow", "--phase", "nothing"], 2, "the phases are measure"),
        (["base", "slow", "--op", "nothing"], 2, "no row matches; the phases are measure; the operations are GET"),
        (["base", "slow", "--alpha", "0.1", "--confidence", "95%"], 2, "give one of them"),
        (["base", "slow", "--confidence", "90%"], 0, "better and worse need p < 0.1"),
        (["base", "slow", "--releases", "--op", "GET"], 2, "rows of its own"),
        (["base", "slow", "--margin", "30%"], 0, "surely within ±30 %"),
        (["base", "slow", "--margin", "5"], 2, "--margin 5: give a share"),
        (["base", "slow", "--key", "nosuch"], 2, "--key nosuch: no row matches"),
        (["base", "slow", "--key", "total.p99_ms", "--key", "PUTT.p99_ms"], 2, "--key PUTT.p99_ms: no row matches"),
        (["base", "slow", "--pairs"], 0, "5 pairs"),
        (["base", "slow", "--releases"], 0, "read   measure  MiB/s"),
        (["base"], 2, "or two of its 5 runs, such as base/results/00000000/id-1a2b3c4d base/results/00000001/id"),
        (["one"], 2, "one is only one side: give another archive to compare it with\n"),
        (["nowhere"], 2, "nowhere: no such file or directory"),
        (["--base", "one", "two", "--new", "late"], 0, "base: one and 1 more, 2 runs in one, two"),
    ],
)
def test_the_status_of_a_comparison(
    words: List[str], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *words]) == status
    told = capsys.readouterr()
    assert said in told.out + told.err


def test_an_archive_compared_with_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """As everybody tries first: nothing differs, and the note says why that is no finding."""
    for archive, verdict in (("base", "equivalent"), ("one", "inconclusive")):
        assert main(["compare", archive, archive, "--format", "json"]) == 0
        (section,) = json.loads(capsys.readouterr().out)["sections"]
        assert {row["verdict"] for row in section["rows"]} <= {verdict, "inconclusive"} and section["rows"]
        assert {row["change"] for row in section["rows"]} == {0} and section["differences"] == []
        assert [its["text"] for its in section["warnings"] if its["code"] == "same-runs"] == [
            "both sides are the same runs: nothing can differ"
        ]
        assert verdict in {row["verdict"] for row in section["rows"]}
        assert "not-interleaved" not in {its["code"] for its in section["warnings"]}
    for words in (["base", "base"], ["base", "copy"], ["base", "copy", "--releases"], ["base", "slow", "copy"]):
        assert main(["compare", *words]) == 0
        told = capsys.readouterr().out
        assert " are the same runs: nothing can differ. The verdicts below say nothing." in " ".join(told.split())[:160]
    assert main(["compare", "base", "copy", "--format", "html"]) == 0
    page = capsys.readouterr().out
    assert "are the same runs: nothing can differ" in page and "<h2>nothing could be compared</h2>" in page


@pytest.mark.parametrize("form", ["text", "md", "csv", "json"])
def test_formats_are_the_same_every_time(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    for more in ([], ["--releases"]):
        told = []
        for _ in range(2):
            assert main(["compare", "base", "slow", "--format", form, *more]) == 0
            told.append(capsys.readouterr().out)
        assert told[0] == told[1] and told[0]


def test_nothing_is_written_into_an_archive(place: Path) -> None:
    before = sorted(place.rglob("*"))
    assert main(["compare", "one", "late"]) == 0
    assert main(["history", "one", "late"]) == 0
    assert sorted(place.rglob("*")) == before


def test_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "one", "late", "--format", "html", "-o", str(tmp_path / "page.html")]) == 0
    assert "measure" in (tmp_path / "page.html").read_text()
    assert main(["compare", "one", "late", "--format", "html", "-o", str(tmp_path / "page.html" / "page.html")]) == 2


def test_history(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "base", "slow"]) == 0  # taken in turn: up and down
    assert "10 runs, " in capsys.readouterr().out
    assert main(["history", "base", "slow", "--format", "csv", "--metric", "obj_per_s", "--op", "GET"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "time,case,source,release,measure/GET/obj_per_s" and len(lines) == 11
    assert main(["history", "base", "damaged"]) == 4
    assert main(["history", "nowhere"]) == 2
    assert main(["history", "base", "base"]) == 2
    assert main(["history", "base", "--alpha", "x"]) == 2


@pytest.mark.parametrize("words", [[], ["-o", "site/"]])
def test_a_history_without_a_row_is_an_error(
    words: List[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base = str(Path("base").resolve())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert main(["history", base, "--op", "FOO", *words]) == 2
    text = "nothing to compare: no row matches; the phases are measure; the operations are GET"
    assert text in capsys.readouterr().err
    assert not Path("site").exists()


def test_a_missing_program_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """These nights have rows of requests, and no aggregates."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for words, status in ((["nights"], 4), (["nights", "-o", f"{tmp_path}/site/"], 4), (["base", "nights"], 4)):
        assert main(["history", *words]) == status
        assert capsys.readouterr().err == "Error: cbt-rows is not built: run `cbt-tools build cbt-rows`\n"


def test_results_of_other_programs(capsys: pytest.CaptureFixture[str]) -> None:
    data = Path(__file__).parents[1] / "data" / "imported" / "fio"
    found = sorted(data.rglob("*.json"))
    assert found
    assert main(["compare", str(found[0]), "one"]) == 2
    assert "results of: fio in the base, cbt-plugins in the other" in capsys.readouterr().err


def test_without_scipy_it_says_what_to_install() -> None:
    """In a process of its own: modules that are imported anew there are nobody else's."""
    code = "import sys; sys.modules['scipy'] = None; from cbt_plugins.tools.__main__ import main; "
    words = [["compare", "one", "two"], ["gate", "one", "two", *LIMITS], ["history", "one"]]
    command = [sys.executable, "-c", f"{code}print([main(words) for words in {words!r}])"]
    told = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=True)
    assert told.stdout == "[2, 2, 2]\n"
    assert told.stderr == 3 * "Error: missing Python package scipy: pip install 'cbt-plugins[report]'\n"
