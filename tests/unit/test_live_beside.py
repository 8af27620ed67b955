"""`--live` and the profile `live`: a page in a process of its own, which a run neither waits for nor fails with."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List

import pytest

from cbt_plugins.cbt import run_loop
from cbt_plugins.config.key_errors import values_of
from cbt_plugins.config.units import parse_listen
from cbt_plugins.monitors import live


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> List[Dict[str, Any]]:
    """Processes that were started instead of real ones."""
    processes: List[Dict[str, Any]] = []

    def start(line: List[str], **options: Any) -> SimpleNamespace:
        processes.append({"line": line, **options})
        return SimpleNamespace()

    monkeypatch.setattr(live.subprocess, "Popen", start)
    monkeypatch.setattr(live, "serving", [])
    return processes


def test_the_page_is_a_process_of_its_own(started: List[Dict[str, Any]], tmp_path: Path) -> None:
    live.open_page(tmp_path, {"recovery": {}})
    assert started == []
    live.open_page(tmp_path, {"live": None})
    live.open_page(tmp_path, {"live": {"serve": "0.0.0.0:80"}})
    words = [process["line"][process["line"].index("watch") :] for process in started]
    assert words[0] == ["watch", str(tmp_path), "--serve", "7878", "--until-end"]
    assert words[1][3] == "0.0.0.0:80"
    for process in started:
        assert process["start_new_session"] and process["stdout"] == process["stdin"] == subprocess.DEVNULL


def test_a_page_that_cannot_start_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(live.subprocess, "Popen", fail)
    live.open_page(tmp_path, {"live": {}})
    assert "no live page: Resource temporarily unavailable" in caplog.text


def test_the_option_adds_the_profile_and_is_no_part_of_the_run(tmp_path: Path) -> None:
    config: Dict[str, Any] = {"cluster": {"head": "n0"}, "benchmarks": {}}
    loop = run_loop.RunLoop(str(tmp_path), config, None, tmp_path / "a.yaml", live=True)
    assert loop.profiles["live"] == {} and "live" not in loop.saved["monitoring_profiles"]
    config["monitoring_profiles"] = {"live": {"serve": "81"}}
    loop = run_loop.RunLoop(str(tmp_path), config, None, tmp_path / "a.yaml", live=True)
    assert loop.profiles["live"] == {"serve": "81"}  # the file says where


@pytest.mark.parametrize("wrong", ["", "x", "host:", "1:2:x", "70000"])
def test_a_wrong_address_is_named(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"give \[HOST:\]PORT"):
        parse_listen(wrong)
    with pytest.raises(ValueError, match=r"give \[HOST:\]PORT"):
        live.LiveProfile(serve=wrong)


def test_a_port_may_be_a_number() -> None:
    values = [values_of(live.LiveProfile, "live", {"serve": serve}).serve for serve in (7878, "7878", "0.0.0.0:81")]
    assert values == ["7878", "7878", "0.0.0.0:81"]


@pytest.mark.parametrize(("serve", "text"), [(True, "must be text"), (-5, "give .HOST:.PORT"), (70000, "give .HOST")])
def test_a_number_that_is_no_port_is_refused(serve: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        values_of(live.LiveProfile, "live", {"serve": serve})
