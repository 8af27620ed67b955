"""A run with a fault is watched in browsers, while server and run are killed and the run is resumed. About 8 minutes:

    CBT_PLUGINS_LONG=1 ./run test tests/lab/test_watch_on_lab.py
"""

from __future__ import annotations

import http.client
import importlib.util
import json
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple
from urllib.parse import urlsplit

import pytest
from cluster_state import facts
from cycles import S3, Cycle
from running_lab import PROJECT, RunningLab
from test_osdfailure import events, stopped
from waiting import wait_for

from cbt_plugins.cbt import checkout

pytest.importorskip("jinja2")

from cbt_plugins.report.live_page import parts_of

pytestmark = [pytest.mark.lab, pytest.mark.long]

TOOLS = [sys.executable, "-m", "cbt_plugins.tools"]
SECTION = {"s3": S3, "engine": "cbt-load", "size": "4KiB", "workers": 4}
#: a PG may be recovering at its moment
FAULT = {"label": "gateway", "kind": "stop", "daemons": ["rgw.rgw1"], "accept": ["clean"]}
MIX = {"get": 60, "put": 40}
#: on a busy machine pages and events are late, and `one-gateway` has to be there when the run is killed
PHASES = [
    {"fill": {"objects": 200}},
    {"hybrid": {"duration": "40s", "mix": MIX}, "name": "both"},
    {
        "hybrid": {
            "duration": "150s",
            "mix": MIX,
            "events": [{"at": "5s", "fault": FAULT}, {"at": "120s", "undo": "gateway"}],
        },
        "name": "one-gateway",
    },
    {"hybrid": {"duration": "20s", "mix": MIX}, "name": "after"},
]
_VERSION = re.compile(r'<aside id="live" data-version="(\d+)">')
_DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


class Server:
    """`cbt-tools watch --serve` on the machine of the lab; it only reads the archive."""

    def __init__(self, archive: Path, log: Path) -> None:
        self._log = log
        with log.open("w") as file:
            self.process = subprocess.Popen(
                [*TOOLS, "watch", str(archive), "--serve", "0"], cwd=PROJECT, stdout=subprocess.DEVNULL, stderr=file
            )
        wait_for(lambda: self._url() or self.process.poll() is not None, "the address of the server")
        self.url = self._url()
        assert self.url, log.read_text()

    def _url(self) -> str:
        found = re.search(r"live: (http://\S+/)\n", self._log.read_text())
        return found[1] if found else ""

    def get(self) -> str:
        """The page."""
        with closing(self.connect()) as connection:
            connection.request("GET", "/")
            return connection.getresponse().read().decode()

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=60)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    close = kill


class Browser(threading.Thread):
    """What a browser has of the page of a run: the parts and the data, changed as live.js changes them."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.lines: Sequence[str] = ()
        #: version -> time, parts and data of the page then
        self.pages: Dict[int, Tuple[float, Dict[str, str], str]] = {}
        self.report = ""
        self._parts: Dict[str, str] = {}
        self._data: Any = None
        self.version = 0
        self.start()

    def run(self) -> None:
        while self._load():
            try:
                with closing(self.server.connect()) as connection:
                    connection.request("GET", f"/events?since={self.version}")
                    self._follow(connection.getresponse())
            except (OSError, http.client.HTTPException):
                return  # the server was killed

    def _load(self) -> bool:
        try:
            page = self.server.get()
        except (OSError, http.client.HTTPException):
            return False
        version, data = _VERSION.search(page), _DATA.search(page)
        assert data
        if version is None:
            self.report = page
            return False
        self._parts, self._data = parts_of(page), json.loads(data[1])
        self._keep(int(version[1]))
        return True

    def _keep(self, version: int) -> None:
        self.version = version
        self.pages[version] = time.time(), dict(self._parts), json.dumps(self._data)

    def _follow(self, answer: http.client.HTTPResponse) -> None:
        event: Dict[str, str] = {}
        for line in answer:
            key, _, value = line.decode().rstrip("\n").partition(": ")
            if key:
                event[key] = value
                continue
            kind, data = event.get("event"), json.loads(event.get("data", "null"))
            if kind == "whole":
                return
            if kind == "moment":
                self.lines = data["lines"]
            elif kind == "page":
                self._take(data)
                self._keep(int(event["id"]))
            event = {}

    def _take(self, update: Dict[str, Any]) -> None:
        known = {**self._parts, **update["changed"]}
        self._parts = {key: known[key] for key in update["order"]}
        for path, begin, values in update["data"]:
            place = self._data
            for key in path[:-1]:
                place = place[key]
            if begin is None:
                place[path[-1]] = values
            else:
                place[path[-1]][begin:] = values

    def says(self, *texts: str) -> bool:
        """Tell whether the lines on top have all texts."""
        shown = "\n".join(self.lines)
        return all(text in shown for text in texts)

    def first_page(self, part: str) -> Optional[Tuple[float, str]]:
        """Return when the first page with a part came, and the part in that page."""
        return next(((t, parts[part]) for t, parts, _ in list(self.pages.values()) if part in parts), None)

    @property
    def parts(self) -> Dict[str, str]:
        return list(self.pages.values())[-1][1]

    @property
    def marks(self) -> List[str]:
        """The titles of the marks in the charts."""
        return re.findall(r'"title": "([^"]*)"', list(self.pages.values())[-1][2])


@pytest.fixture
def cycle(lab: RunningLab, tmp_path: Path) -> Iterator[Cycle]:
    made = Cycle(lab, tmp_path, {"recovery": {}}, warp={**SECTION, "cycle": {"phases": PHASES}})
    yield made
    made.end()


def planned(cycle: Cycle) -> bool:
    return bool(list(cycle.archive.glob("results/*/id-*/plan.json")))


def sees_fault(browser: Browser) -> bool:
    """Tell whether line, sections and charts of the page have the fault."""
    return (
        browser.says("one-gateway: ", " obj/s ", "fault gateway (stop rgw.rgw1) since ")
        and "phase-one-gateway" in browser.parts
        and "fault" in browser.marks
    )


def await_version(browser: Browser, version: int) -> Tuple[Dict[str, str], str]:
    wait_for(lambda: version in browser.pages, f"version {version} of the page")
    return browser.pages[version][1:]


def say_delays(cycle: Cycle, browser: Browser) -> None:
    begins = {event["phase"]: event["at"] for event in events(cycle) if event["event"] == "load-go"}
    for phase, begin in begins.items():
        shown = browser.first_page(f"phase-{phase}")
        if shown:
            print(f"{phase}: in the page {shown[0] - begin:.1f} s after the begin of its load")


def test_browsers_see_a_fault_and_kills_lose_nothing(
    lab: RunningLab, cycle: Cycle, tmp_path: Path, before: Dict[str, Any]
) -> None:
    cycle.start()
    cycle.await_moment(lambda: planned(cycle), "the plan")
    with closing(Server(cycle.archive, tmp_path / "server.log")) as server:
        early = Browser(server)
        wait_for(lambda: early.pages, "the first page")
        assert "phase-both" not in early.parts  # it has come from the begin
        cycle.await_moment(lambda: early.says("both: ", " obj/s "), "the first measurement in the page")
        cycle.await_moment(lambda: "phase-both" in early.parts, "the charts of the first measurement")
        cycle.await_moment(lambda: sees_fault(early), "the fault in the page")
        late = Browser(server)
        cycle.await_moment(lambda: late.pages and sees_fault(late), "the fault in the page of who comes late")
        assert late.pages[late.version][1:] == await_version(early, late.version)
        assert any("warp" in part for part in late.parts.values())
        for phase in ("both", "one-gateway"):
            shown = early.first_page(f"phase-{phase}")
            assert shown and '<span class="role bad">running</span>' in shown[1], "not only after its end"
        say_delays(cycle, early)
        server.kill()
        early.join(60)
        assert not early.is_alive()
    assert stopped(cycle, "fault-injected") and cycle.process and cycle.process.poll() is None
    cycle.send(signal.SIGKILL)
    assert cycle.ended() != 0
    with closing(Server(cycle.archive, tmp_path / "server.log")) as server:
        third = Browser(server)
        wait_for(lambda: third.pages or third.report, "the page of the killed run")
        page = server.get()
        assert set(parts_of(page)) >= {"phase-fill", "phase-both", "phase-one-gateway"}
        assert "rgw.rgw1" in page
        cycle.start()
        wait_for(lambda: (cycle.process and cycle.process.poll() is not None) or resumed(server), "the resumed run")
        fourth = Browser(server)
        cycle.await_moment(lambda: fourth.pages and sees_fault(fourth), "the fault in the page of the resumed run")
        assert cycle.ended() == 0, cycle.log.read_text()[-3000:]
        wait_for(lambda: fourth.report, "the report in the browser")
        assert fourth.report == (cycle.folder / "report.html").read_text()
        late_end = Browser(server)
        wait_for(lambda: late_end.report, "the report for who comes after the end")
        assert late_end.report == fourth.report
    done = subprocess.run([*TOOLS, "report", str(cycle.folder)], cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (cycle.folder / "report.html").read_text() == fourth.report
    assert facts(lab) == before


def resumed(server: Server) -> bool:
    return _VERSION.search(server.get()) is not None


def answer(lab: RunningLab, port: int) -> str:
    """The page that the run's own node gets."""
    return lab.exec("node0", ["curl", "-s", "-m", "20", f"http://127.0.0.1:{port}/"]).stdout


@pytest.mark.parametrize("program", ["cbt_plugins", "cbt.py"])
def test_the_run_opens_the_page_and_says_where(lab: RunningLab, tmp_path: Path, program: str) -> None:
    """By the option, and by the profile under an unmodified cbt.py."""
    words, profiles, port = ["-m", "cbt_plugins", "--live"], None, 7878
    if program == "cbt.py":
        tree = checkout.find()
        if tree is None:
            pytest.skip(f"no CBT checkout: set CBT_HOME, or clone it into {checkout.cache_path()}")
        for module in ("lxml", "yaml"):
            if importlib.util.find_spec(module) is None:
                pytest.skip(f"CBT itself needs {module}, which this Python lacks")
        words, profiles, port = [str(tree / "cbt.py")], {"live": {"serve": "7879"}}, 7879
    phases = [{"fill": {"objects": 60}}, {"hybrid": {"duration": "25s", "mix": MIX}, "name": "both"}]
    cycle = Cycle(lab, tmp_path, profiles, warp={**SECTION, "cycle": {"phases": phases}})
    cycle.start(*words)
    cycle.await_moment(lambda: f"live: http://127.0.0.1:{port}/\n" in cycle.log.read_text(), "the address")
    cycle.await_moment(lambda: 'id="phase-both"' in answer(lab, port), "the running phase in the page")
    assert cycle.ended() == 0, cycle.log.read_text()[-3000:]
    wait_for(lambda: answer(lab, port) == "", "the end of the page", 60.0)
    assert "Traceback" not in cycle.log.read_text()
