"""A history as a site: what its pages say and link to, its index, and what people have decided."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from html import unescape
from pathlib import Path
from typing import Callable, List

import archive_builder
import fake_cycle
import pytest
from chromium import CHROMIUM, Browser
from waiting import wait_for

from cbt_plugins.checksums import end_run
from cbt_plugins.journal import write_whole
from cbt_plugins.report import history_site
from cbt_plugins.results import record_index
from cbt_plugins.results.summary_file import FILE, read_summary, summarize, write_summary
from cbt_plugins.tools.__main__ import main

DAY = 86400.0
_MIDDLE = """(() => {
  const box = document.querySelector(".u-over").getBoundingClientRect();
  return JSON.stringify([box.left + box.width / 2, box.top + box.height / 2]);
})()"""
EVIL = 'x"><img src=x onerror=alert(1)>'


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """14 sealed nights: GET is slower and the release another from the seventh on, the kernel another from the tenth.

    A release and a folder have evil names.
    """
    place = tmp_path_factory.mktemp("history")
    run = archive_builder.cbt_run(place / "template", {"benchmark": "warp", "iteration": 0}, summary=False)
    (run / "complete").unlink()
    end_run(run, {"t": 1.0, "run_id": "k3j9"})
    summary = summarize(run)
    (phase,) = summary["phases"]
    rate, begin = phase["ops"]["GET"]["obj_per_s"], phase["window"]["start"]
    for number in range(14):
        night = place / f"night{number:02d}{EVIL if number == 3 else ''}" / run.relative_to(place / "template")
        shutil.copytree(run, night)
        summary["environment"]["versions"]["ceph"] = "18.2.7 reef" if number < 7 else f"19.2.0 {EVIL}"
        summary["environment"]["versions"]["kernel"] = "6.1.0" if number < 10 else "6.12.0"
        phase["window"]["start"] = begin + number * DAY
        phase["ops"]["GET"]["obj_per_s"] = rate * (1 + 0.001 * (number % 3)) * (1.0 if number < 7 else 0.8)
        write_summary(summary, night / FILE)
        (night / "report.html").write_text("<title>a report</title>")
    shutil.rmtree(place / "template")
    return place


@pytest.fixture
def place(nights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for night in sorted(nights.iterdir()):
        shutil.copytree(night, tmp_path / night.name)
    return tmp_path


def history(place: Path, *options: str, folder: str = "site/") -> int:
    archives = sorted(path.name for path in place.glob("night*"))
    return main(["history", *archives, "--op", "GET", "-o", folder, *options])


def pages(place: Path) -> List[str]:
    return [path.read_text() for path in sorted((place / "site").glob("*.html"))]


def index(place: Path) -> Path:
    (file,) = (place / "cache").rglob("*.index")
    return file


def test_the_pages_say_what_changed_and_link_to_the_reports(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert history(place) == 0
    assert capsys.readouterr().out.startswith("1 open change, 1 worse. ")
    overview = (place / "site" / "index.html").read_text()
    assert overview.count("18.2.7 reef -&gt; 19.2.0") == 3 and "state: acknowledged" in overview
    (series,) = (place / "site").glob("measure-new-GET-obj_per_s-*.html")
    assert f'href="{series.name}"' in overview
    text = series.read_text()
    assert "release</td>" in text and "configuration</td>" in text and "kernel: 6.1.0 -&gt; 6.12.0" in text
    assert re.search(r"<b>\d[\d.,]* obj/s</b>, noise 0\.\d+ ?% from run to run", text)
    for page in pages(place):
        assert "<img" not in page
        links = [unescape(link) for link in re.findall(r'href="([^"]*)"', page)]
        links += re.findall(r'"(\./[^"]*report.html)"', page)
        assert links and all(re.fullmatch(r"\./\.\./[\w%./-]+/report\.html|[\w.-]+\.html", link) for link in links)
    runs = (place / "site" / "runs-1.html").read_text()
    assert len(re.findall(r'href="\./\.\./night', runs)) == 14


def test_only_new_archives_are_read_and_the_pages_are_those_of_all(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "night13").rename(place / "later")
    assert history(place) == 0 and "archives read: 13" in capsys.readouterr().out
    (place / "later").rename(place / "night13")
    assert history(place) == 0 and "archives read: 1\n" in capsys.readouterr().out
    by_index = pages(place)
    assert history(place, "--rebuild") == 0 and "archives read: 14" in capsys.readouterr().out
    assert pages(place) == by_index


def test_a_site_has_the_percentiles_of_failures_only_by_name_as_the_table_has(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in place.rglob(FILE):
        write_summary({**read_summary(file), "scorecard": fake_cycle.scorecard(1)}, file)
    of_p99 = ["--metric", "p99_ms"]
    with pytest.MonkeyPatch.context() as earlier:  # an index without these percentiles
        earlier.setattr(record_index, "FORMAT", 2)
        assert history(place, *of_p99) == 0
    capsys.readouterr()
    for options, series in (([], 1), (["--phase", "node down"], 1), (["--phase", "n*", "--phase", "*"], 2)):
        assert history(place, *of_p99, *options) == 0
        told = capsys.readouterr().out
        assert told.startswith(f"No open change in {series} series.")
        assert f"archives read: {0 if options else 14}" in told
        archives = sorted(path.name for path in place.glob("night*"))
        assert main(["history", *archives, "--op", "GET", "--format", "json", *of_p99, *options]) == 0
        (table,) = json.loads(capsys.readouterr().out)
        assert len(table["tracks"]) == series and None not in table["tracks"][-1]["values"]


def test_an_archive_that_changed_is_read_again(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert history(place) == 0
    (manifest,) = (place / "night00").rglob("manifest.json")
    manifest.write_text(manifest.read_text() + "\n")
    capsys.readouterr()
    assert history(place) == 4
    assert "archives read: 1\n" in capsys.readouterr().out
    assert pages(place)[-1].count("not usable") == 1


def test_an_index_that_is_damaged_or_open_to_others_or_of_another_version_is_made_anew(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert history(place) == 0
    right, text = pages(place), index(place).read_text()
    capsys.readouterr()

    def refused(why: str) -> None:
        assert history(place) == 0
        told = capsys.readouterr()
        assert why in told.err and "archives read: 14" in told.out
        assert pages(place) == right and index(place).stat().st_mode & 0o777 == 0o600

    for forged in (text.replace("18.2.7", "18.2.8"), text[:-200], "", "x\n"):
        index(place).write_text(forged)
        refused("damaged")
    index(place).chmod(0o666)
    refused("others may write it")
    os.link(index(place), place / "another name")
    refused("hard links")
    shutil.copy(index(place), place / "of another site")
    shutil.rmtree(place / "site")
    monkeypatch.setattr(record_index, "FORMAT", 0)
    refused("of another version")
    if os.geteuid() == 0:
        os.chown(index(place), 65534, 65534)
        refused("another user")


def test_an_index_without_ladders_that_missed_with_each_load_is_made_anew(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ladder = {"name": "find", "unit": "rate", "low": None, "high": 100.0, "objective": {}, "text": "", "steps": []}
    for file in place.rglob(FILE):
        write_summary({**read_summary(file), "ladders": [ladder]}, file)
    with pytest.MonkeyPatch.context() as earlier:
        earlier.setattr(record_index, "FORMAT", 6)
        assert history(place) == 0
    capsys.readouterr()
    assert history(place) == 0 and "archives read: 14" in capsys.readouterr().out
    assert "highest_per_s" in index(place).read_text()


def test_decisions_are_applied_and_move_with_the_change(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = "  - {series: %s, since: %s, state: %s, bug: 'https://x.example/?a=1&b=2', note: <b>}\n"
    file = place / "triage.yaml"
    for state in ("acknowledged", "expected", "hidden"):
        # two days after the seventh night; the second entry is about nothing
        both = (entry % (series, "2023-11-23", state) for series in ("GET.obj_*", "PUT.*"))
        file.write_text("changes:\n" + "".join(both))
        assert history(place) == 0
        assert capsys.readouterr().out.startswith("No open change in 2 series.")
        overview = (place / "site" / "index.html").read_text()
        assert "triage.yaml: about no change: PUT.*" in overview and "<b>" not in overview.split("<main>")[1]
        assert ('href="https://x.example/?a=1&amp;b=2"' in overview) is (state != "hidden")
    file.write_text("changes:\n" + entry % ("GET.obj_*", "2023-11-27", "hidden"))  # too far
    assert history(place) == 0
    assert capsys.readouterr().out.startswith("1 open change")


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/etc/passwd", path), os.mkdir])
def test_decisions_beside_the_archives_are_a_regular_file(
    place: Path, capsys: pytest.CaptureFixture[str], make: Callable[[Path], None]
) -> None:
    make(place / "triage.yaml")
    assert history(place) == 2 and not (place / "site").exists()
    assert "triage.yaml: is no regular file" in capsys.readouterr().err


def test_errors_of_decisions_have_their_place_and_nothing_is_written(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "triage.yaml").write_text(
        "changes:\n- {series: GET.p99ms, since: 2023-11-21, state: hiden}\n"
        "- {series: GET.*, since: soon, state: hidden, bug: 'javascript:alert(1)', more: 1}\n"
    )
    assert history(place) == 2 and not (place / "site").exists()
    told = capsys.readouterr().err
    for line in (
        "triage.yaml:2:12: changes[0].series: 'p99ms' is no metric; did you mean 'p99_ms'?",
        "triage.yaml:2:49: changes[0].state: must be acknowledged, expected or hidden; did you mean 'hidden'?",
        "triage.yaml:3:26: changes[1].since: must be a date or a time (UTC)",
        "triage.yaml:3:52: changes[1].bug: must be an address that begins with https:// or http://",
        "changes[1].more: unknown key",
    ):
        assert line in told


def test_other_files_stay_and_pages_that_are_gone_go(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "other").mkdir()
    (place / "other" / "mine").write_text("mine")
    assert history(place, folder="other") == 2 and "is not a site of a history" in capsys.readouterr().err
    assert [path.name for path in (place / "other").iterdir()] == ["mine"]
    assert history(place, "--op", "PUT") == 0
    assert list((place / "site").glob("measure-new-PUT-*"))
    assert history(place) == 0
    assert not list((place / "site").glob("measure-new-PUT-*"))


def test_a_site_that_was_cut_short_is_written_again(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As kill -9 leaves it: with some of the pages, and the draft of one."""
    site = place / "site"

    def write(path: Path, text: str) -> None:
        if path.name == "index.html":
            path.with_name(f".{path.name}.4711").write_text(text[:9])
            sys.exit(9)
        write_whole(path, text)

    with monkeypatch.context() as patch:
        patch.setattr(history_site, "write_whole", write)
        with pytest.raises(SystemExit):
            history(place, "--op", "PUT")
    cut_short = {path.name for path in site.glob("*.html")}
    assert cut_short and "index.html" not in cut_short
    assert history(place) == 0
    # the pages of PUT, which only the site that was cut short had, are gone
    assert not list(site.glob("measure-new-PUT-*")) and (site / "index.html").exists()
    for path in site.glob("*[!0-9]"):
        path.unlink()
    assert [path.name for path in site.iterdir()] == [".index.html.4711"]
    assert history(place) == 0, "a draft alone is no other folder"


@pytest.mark.skipif(not CHROMIUM, reason="NO CHROMIUM: nobody has clicked on a run")
def test_a_click_on_a_run_opens_its_report(place: Path) -> None:
    assert history(place) == 0
    (series,) = (place / "site").glob("measure-new-GET-obj_per_s-*.html")
    with Browser(place / "profile") as browser:
        browser.open(series.as_uri())
        assert browser.complaints() == [] and browser.requests() == [series.as_uri()]
        x, y = json.loads(browser.evaluate(_MIDDLE))

        def opened() -> bool:
            """Click unless the report is open: a plot that is still being drawn does not see the pointer."""
            if browser.evaluate("document.title") == "a report":
                return True
            for event in ("mouseMoved", "mousePressed", "mouseReleased"):
                browser.call("Input.dispatchMouseEvent", type=event, x=x, y=y, button="left", clickCount=1)
            return False

        wait_for(opened, "the report")
