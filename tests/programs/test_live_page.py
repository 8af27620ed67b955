"""The page of a run that goes on: its parts, its events, and in a browser the same page as the report."""

from __future__ import annotations

import contextlib
import json
import math
import re
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
from archive_builder import COPIED
from chromium import CHROMIUM, Browser
from hypothesis import given, settings
from hypothesis import strategies as st
from live_watchers import Events, Program, ask, fail
from page_archive import both_engines
from waiting import wait_for

from cbt_plugins.results.live_run import LiveRun
from cbt_plugins.results.summary_file import summarize

pytest.importorskip("jinja2")

from cbt_plugins.report.live_page import LivePage, changes, parts_of
from cbt_plugins.report.live_server import LiveServer
from cbt_plugins.report.page import run_page
from cbt_plugins.tools.__main__ import main

#: the parts of the page that a browser has, without what scripts have drawn
_PARTS = """[...document.querySelectorAll("header, main > *")].map((part) => {
  const copy = part.cloneNode(true);
  copy.querySelectorAll("[data-chart]").forEach((place) => place.replaceChildren());
  return copy.outerHTML;
})"""
_DRAWN = """[...document.querySelectorAll("canvas")].filter((canvas) =>
  canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some((byte) => byte)).length"""


def test_events_go_on_where_a_connection_was_cut(server: LiveServer, page: LivePage, run: Path) -> None:
    first = page.version
    with closing(Events(server, first)) as events:
        assert events.next()["event"] == "moment"
        with (run / "events.jsonl").open("a") as file:
            file.write(json.dumps({"t": COPIED - 1, "event": "fault-undone", "label": "node-a", "kind": "stop"}) + "\n")
        page.run.sparing.next_at = 0.0
        page.look()
        update = events.next()
        while update["event"] == "moment":
            update = events.next()
    assert (update["event"], int(update["id"])) == ("page", page.version) and page.version == first + 1
    assert set(update["data"]["changed"]) <= set(update["data"]["order"])
    with closing(Events(server, 0, **{"Last-Event-ID": str(first)})) as again:
        assert again.next() == update  # what was missed comes again
    with closing(Events(server, first - 5)) as stranger:
        assert stranger.next()["event"] == "whole"  # of a server that was killed: no difference is known


def tell(run: Path, event: str, label: str, t: float) -> None:
    about = {"t": t, "event": event, "label": label, "kind": "stop", "targets": ["node2"]}
    with (run / "events.jsonl").open("a") as file:
        file.write(json.dumps(about) + "\n")


def test_a_fault_is_marked_before_a_page_has_it(server: LiveServer, page: LivePage, run: Path) -> None:
    with closing(Events(server, page.version)) as events:
        assert events.next()["data"]["marks"] == []  # the charts have the fault of node-a
        page.run.sparing.next_at = math.inf
        marks: List[Dict[str, Any]] = []
        for event, t, title in (
            ("fault-inject-begin", COPIED - 3, "fault"),
            ("fault-injected", COPIED - 2, None),
            ("fault-undo-begin", COPIED - 1, "undo"),
            ("fault-undone", COPIED, None),
            ("fault-inject-begin", math.inf, None),
            ("fault-inject-begin", math.nan, None),
            ("fault-inject-begin", 10**400, None),
        ):
            tell(run, event, "node-b", t)
            page.look()
            marks += [{"t": t, "title": title}] if title else []
            update = events.next()
            assert (update["event"], update["data"]["marks"], update["data"]["in_phase"]) == ("moment", marks, True)
    assert any("fault node-b (stop node2)" in line for line in update["data"]["lines"])


def test_faults_of_charts_are_not_marked_again(run: Path) -> None:
    """When a phase has no requests yet, the charts end with those of the phase before."""
    for path in run.glob("phases/*.running/aggregates/*"):
        path.write_bytes(b"")
    page = LivePage(LiveRun(run))
    page.look()
    assert [phase["name"] for phase in data_of(page.html)["phases"]] == ["no-failure"]
    moment = next(page.updates(page.version)).data
    assert not moment["in_phase"]
    assert [mark["title"] for mark in moment["marks"]] == ["fault"]
    later = data_of(page.html)["phases"][0]["window"]["end"]
    assert all(mark["t"] > later for mark in moment["marks"])


def data_of(html: str) -> Dict[str, Any]:
    """The data of the charts."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    data: Dict[str, Any] = json.loads(text)
    return data


def test_a_new_phase_is_in_the_page_with_its_first_requests(run: Path) -> None:
    former = cut(run)
    page = LivePage(LiveRun(run))
    page.look()
    assert "phase-one-down" not in parts_of(page.html)
    page.run.sparing.next_at = 0.0
    for path, content in former.items():
        if path.suffix == ".aggregates":
            path.write_bytes(content)
    page.look()
    assert "phase-one-down" in parts_of(page.html)
    version = page.version
    page.look()
    assert page.version == version


def test_each_section_of_the_page_is_a_part_of_its_own(tmp_path: Path) -> None:
    """Also where a run has several pairs of generators and several ladders: parts are replaced by their ids."""
    directory = both_engines(tmp_path)
    summary = summarize(directory)
    names = ("first", "second", "third")
    ladder: Dict[str, Any] = {"unit": "rate", "objective": {}, "low": None, "high": None, "text": "x", "steps": []}
    summary["ladders"] = [{**ladder, "name": name} for name in names]
    summary["engines"] = [{**summary["engines"][0], "note": name} for name in names]
    html = run_page(summary, directory)
    parts = parts_of(html)
    assert sum(part.startswith("<section") for part in parts.values()) == html.count("<section")
    assert all(f'href="#{key}"' in html and key in parts for key in ("engines", "ladders"))


@contextlib.contextmanager
def program(run: Path) -> Iterator[Program]:
    """A process of `cbt-tools watch --serve`, which ends by kill -9."""
    words = [sys.executable, "-m", "cbt_plugins.tools", "watch", str(run), "--serve", "0"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    with closing(process.stderr):
        try:
            address = process.stderr.readline()
            yield Program(process, int(address.strip(" /\n").rpartition(":")[2]))
        finally:
            process.kill()
            process.wait()


def test_a_killed_server_loses_nothing(run: Path) -> None:
    with program(run) as first:
        page = ask(first, "/")[2].decode()
        (version,) = re.findall(r'id="live" data-version="(\d+)"', page)
        with closing(Events(first, version)) as events:
            while events.next()["event"] != "moment":
                pass
            first.process.kill()
            assert first.process.wait() == -signal.SIGKILL
    with program(run) as second:
        again = ask(second, "/")[2].decode()
        assert parts_of(again) == parts_of(page) and "phase-one-down" in parts_of(page)
        assert data_of(again) == data_of(page)
        with closing(Events(second, version)) as events:
            assert events.next()["event"] == "whole"  # the browser loads the page again


def test_the_page_of_an_ended_run_is_the_report(
    server: LiveServer, page: LivePage, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "new EventSource" in page.html
    fail(run)
    page.look()
    main(["report", str(run)])
    assert ask(server, "/")[2] == (run / "report.html").read_bytes()
    assert "new EventSource" not in page.html


_VALUES = st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=6)
_DATA = st.fixed_dictionaries(
    {
        "phases": st.lists(st.fixed_dictionaries({"rate": _VALUES, "about": st.text(max_size=2)}), max_size=3),
        "tails": st.lists(st.fixed_dictionaries({"ms": _VALUES}), max_size=2),
    }
)


@settings(deadline=None, max_examples=60)
@given(_DATA, _DATA)
def test_the_changes_make_the_new_data_of_the_old(old: Any, new: Any) -> None:
    """As live.js applies them."""
    state = json.loads(json.dumps(old))
    for path, begin, values in json.loads(json.dumps(list(changes(old, new)))):
        place = state
        for key in path[:-1]:
            place = place[key]
        if begin is None:
            place[path[-1]] = values
        else:
            place[path[-1]][begin:] = values
    assert state == new


def cut(run: Path) -> Dict[Path, bytes]:
    """Take the running phase's files back to its first seconds; return what they were."""
    former: Dict[Path, bytes] = {}
    for path in [*run.glob("phases/*.running/aggregates/*"), run / "events.jsonl"]:
        former[path] = path.read_bytes()
        if path.suffix == ".jsonl":
            lines = former[path].splitlines(keepends=True)
            path.write_bytes(b"".join(line for line in lines if b"node-a" not in line))
        else:
            path.write_bytes(b"")
    return former


def is_report(browser: Browser) -> bool:
    try:
        return bool(browser.evaluate("!document.querySelector('#live') && document.readyState === 'complete'"))
    except AssertionError:  # the page is just going
        return False


@pytest.mark.skipif(not CHROMIUM, reason="NO CHROMIUM: nobody has looked whether the live page works")
def test_a_browser_follows_and_ends_with_the_report(run: Path, tmp_path: Path) -> None:
    former = cut(run)
    page = LivePage(LiveRun(run))
    page.look()
    with closing(LiveServer(page, "127.0.0.1", 0)) as server, Browser(tmp_path / "profile") as browser:
        browser.open(server.url)
        assert browser.evaluate("document.querySelectorAll('#phase-one-down').length") == 0
        for path, content in former.items():
            path.write_bytes(content)
        page.run.sparing.next_at = 0.0
        page.look()
        there = "document.querySelectorAll('#phase-one-down canvas').length"
        wait_for(lambda: browser.evaluate(there) > 0, "the charts of the running phase")
        assert browser.evaluate("document.querySelector('#live').innerText.includes('fault node-a (stop node4)')")
        followed: List[str] = browser.evaluate(_PARTS)
        assert browser.evaluate(_DRAWN) == browser.evaluate("document.querySelectorAll('canvas').length")
        assert browser.complaints() == []
        charts_of_phase = "[...document.querySelectorAll('#phase-one-down canvas, [data-chart=run] canvas')]"
        drawn = f"{charts_of_phase}.map((canvas) => canvas.toDataURL())"
        charts = browser.evaluate(drawn)
        tell(run, "fault-inject-begin", "node-b", COPIED - 1)
        page.run.sparing.next_at = math.inf
        page.look()
        said = "document.querySelector('#live').innerText.includes('fault node-b (stop node2)')"
        wait_for(lambda: browser.evaluate(said), "the second fault on top")
        wait_for(lambda: all(now != was for now, was in zip(browser.evaluate(drawn), charts)), "its mark in each chart")
        browser.open(server.url)  # who comes late sees the same
        assert browser.evaluate(_PARTS) == followed
        assert browser.complaints() == []
        fail(run)
        page.look()
        wait_for(lambda: is_report(browser), "the report")
        ended = browser.evaluate("document.documentElement.outerHTML")
        main(["report", str(run)])
        browser.open((run / "report.html").as_uri())
        assert browser.evaluate("document.documentElement.outerHTML") == ended
