"""Orders to cephadm, to a stand-in that treats them as the real one was seen to (16.2.15)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Dict, Tuple

import pytest

from cbt_plugins.faults.facts import osd_names
from cbt_plugins.faults.services import orchestrate

#: an order is carried out at the third look that follows; a start is dropped while a stop waits
_CEPH = """#!/usr/bin/env python3
import json, sys
path, words = {path!r}, sys.argv[1:]
state = json.load(open(path))
if words[:2] == ["osd", "dump"]:
    state["looks"] += 1
    if state["order"] and state["looks"] >= 3 and not state["slow"]:
        state.update(up=state["order"] == "start", order="")
    print("osd.3", "up  " if state["up"] else "down", "in  weight 1 up_from 5")
elif words[:2] == ["orch", "daemon"]:
    if words[3] != "osd.3":
        sys.exit(22)
    state["given"].append(words[2])
    if state["forgets"]:
        state["forgets"] -= 1
    elif state["order"] != "stop":
        state.update(order=words[2], looks=0)
    print("Scheduled to", words[2], words[3])
json.dump(state, open(path, "w"))
"""


class Ordered:
    """A cluster of osd.3."""

    def __init__(self, folder: Path) -> None:
        self._state, self._folder, self._ceph = folder / "state", folder / "d", folder / "ceph"
        self._ceph.write_text(_CEPH.format(path=str(self._state)))
        self._ceph.chmod(0o755)
        self.set(up=True, order="", looks=0, given=[], forgets=0, slow=False)

    def set(self, **facts: Any) -> None:
        former = json.loads(self._state.read_text()) if self._state.exists() else {}
        self._state.write_text(json.dumps({**former, **facts}))

    @property
    def state(self) -> Dict[str, Any]:
        return dict(json.loads(self._state.read_text()))

    def _run(self, text: str, limit: float = 60.0) -> subprocess.CompletedProcess[str]:
        text = text.replace("/run/cbt-plugins", str(self._folder)).replace("[ -w /run ]", "true")
        line = ["timeout", str(limit), "sh", "-c", text]
        return subprocess.run(line, check=False, capture_output=True, text=True)

    def _order(self, action: str, osds: Tuple[int, ...] = (3,), limit: float = 60.0) -> Any:
        return self._run(orchestrate(action, str(self._ceph), "f", osd_names(osds), 0.01), limit)

    @property
    def settled(self) -> bool:
        return bool(self._order("settled").stdout == "settled\n")

    def stop(self, *osds: int, limit: float = 60.0) -> int:
        return int(self._order("stop", osds or (3,), limit).returncode)

    def start(self, *osds: int) -> int:
        return int(self._order("start", osds or (3,)).returncode)


@pytest.fixture
def ordered(tmp_path: Path) -> Ordered:
    return Ordered(tmp_path)


def test_an_order_is_waited_for(ordered: Ordered) -> None:
    assert ordered.stop() == 0 and not ordered.state["up"]
    assert ordered.start() == 0 and ordered.state["up"]
    assert ordered.state["given"] == ["stop", "start"]


def test_a_stop_that_was_cut_short_does_not_come_after_its_undo(ordered: Ordered) -> None:
    """The OSD is still up when the undo comes, and its start would be dropped."""
    ordered.set(slow=True)
    assert ordered.stop(limit=2.0) == 124 and ordered.state["up"] and ordered.state["order"] == "stop"
    assert not ordered.settled
    ordered.set(slow=False, looks=0)
    assert ordered.start() == 0
    assert ordered.state["up"] and ordered.state["order"] == "" and ordered.settled


def test_an_order_that_got_lost_is_given_again(ordered: Ordered) -> None:
    ordered.set(up=False, forgets=1)
    assert ordered.start() == 0 and ordered.state["given"] == ["start", "start"]


def test_one_that_is_refused_is_not_waited_for(ordered: Ordered) -> None:
    assert ordered.stop(77) == 22
    assert ordered.start(77, 3) == 22 and ordered.state["up"]
