"""Orders to cephadm, to a stand-in that treats them as the real one was seen to (16.2.15)."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import List, Sequence

import pytest
from waiting import wait_for

from cbt_plugins.faults.cluster_facts import DaemonName, osd_names
from cbt_plugins.faults.service_managers import orchestrate

#: an order is carried out at the third look that follows; a start is dropped while a stop waits
_CEPH = """#!/bin/sh
cd {folder}
read -r up order looks forgets slow < state
case "$1 $2" in
  "osd dump")
    looks=$((looks + 1))
    if [ "$order" != - ] && [ $looks -ge 3 ] && [ $slow = 0 ]; then
      case $order in start) up=1;; *) up=0;; esac; order=-; fi
    [ $up = 1 ] && echo "osd.3 up   in  weight 1 up_from 5" || echo "osd.3 down in  weight 1 up_from 5" ;;
  "orch daemon")
    [ "$4" = osd.3 ] || exit 22
    echo "$3" >> given
    if [ $forgets -gt 0 ]; then forgets=$((forgets - 1)); elif [ "$order" != stop ]; then order=$3 looks=0; fi
    echo "Scheduled to $3 $4" ;;
esac
echo "$up $order $looks $forgets $slow" > new && mv new state
"""


class Ordered:
    """A cluster of osd.3."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.ceph = folder / "d", folder / "ceph"
        self._state, self._given = folder / "state", folder / "given"
        self.ceph.write_text(_CEPH.format(folder=folder))
        self.ceph.chmod(0o755)
        self._given.touch()
        self.set()

    def set(self, up: int = 1, order: str = "-", looks: int = 0, forgets: int = 0, slow: int = 0) -> None:
        self._state.write_text(f"{up} {order} {looks} {forgets} {slow}\n")

    @property
    def up(self) -> bool:
        return self._state.read_text().split()[0] == "1"

    @property
    def order(self) -> str:
        return self._state.read_text().split()[1]

    @property
    def given(self) -> List[str]:
        return self._given.read_text().split()

    def line(self, action: str, daemons: Sequence[DaemonName]) -> List[str]:
        text = orchestrate(action, str(self.ceph), "f", daemons, 0.01)
        return ["sh", "-c", text.replace("/run/cbt-plugins", str(self._folder)).replace("[ -w /run ]", "true")]

    def run(self, action: str, *daemons: DaemonName) -> subprocess.CompletedProcess[str]:
        line = self.line(action, daemons)
        return subprocess.run(line, check=False, capture_output=True, text=True, timeout=600)

    @property
    def settled(self) -> bool:
        return self.run("settled", *osd_names([3])).stdout == "settled\n"

    def stop(self, *osds: int) -> int:
        return self.run("stop", *osd_names(osds or [3])).returncode

    def stop_is_killed(self) -> None:
        """Once its order is given."""
        process = subprocess.Popen(self.line("stop", osd_names([3])), start_new_session=True)
        while self.order != "stop":
            assert process.poll() is None
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def start(self, *osds: int) -> int:
        return self.run("start", *osd_names(osds or [3])).returncode


@pytest.fixture
def ordered(tmp_path: Path) -> Ordered:
    return Ordered(tmp_path)


def test_an_order_is_waited_for(ordered: Ordered) -> None:
    assert ordered.stop() == 0 and not ordered.up
    assert ordered.start() == 0 and ordered.up
    assert ordered.given == ["stop", "start"]


def test_a_stop_that_was_cut_short_does_not_come_after_its_undo(ordered: Ordered) -> None:
    """The OSD is still up when the undo comes, and its start would be dropped."""
    ordered.set(slow=1)
    ordered.stop_is_killed()
    assert ordered.up and ordered.order == "stop"
    assert not ordered.settled
    ordered.set(order="stop")
    assert ordered.start() == 0
    assert ordered.up and ordered.order == "-" and ordered.settled


def test_an_order_that_got_lost_is_given_again(ordered: Ordered) -> None:
    ordered.set(up=0, forgets=1)
    assert ordered.start() == 0 and ordered.given == ["start", "start"]


def test_one_that_is_refused_is_not_waited_for(ordered: Ordered) -> None:
    assert ordered.stop(77) == 22
    assert ordered.start(77, 3) == 22 and ordered.up


def test_what_is_no_osd_is_asked_of_the_orchestrator(ordered: Ordered) -> None:
    says = 'case "$*" in *"--daemon_type rgw --daemon_id a "*) echo \'[{"status_desc": "running"}]\';; esac; true'
    ordered.ceph.write_text(f"#!/bin/sh\n{says}\n")
    names = (DaemonName("rgw", "a"), DaemonName("rgw", "b"))
    for daemons, number in [(names, 1), (names[1:], 0)]:
        assert ordered.run("count", *daemons).stdout == f"{number}\n"


def test_a_look_asks_only_the_host_of_the_daemons(ordered: Ordered) -> None:
    """`--refresh` without a host makes every host of the cluster list its daemons."""
    ordered.ceph.write_text('#!/bin/sh\necho "$*" >> "${0%/*}/questions"\necho \'[{"status_desc": "running"}]\'\n')
    text = orchestrate("count", str(ordered.ceph), "f", [DaemonName("rgw", "a")], 0.01, "host1")
    assert subprocess.run(["sh", "-c", text], capture_output=True, text=True, timeout=60).stdout == "1\n"
    (question,) = (ordered.ceph.parent / "questions").read_text().splitlines()
    assert question == "orch ps host1 --daemon_type rgw --daemon_id a --refresh --format json"


def test_a_daemon_whose_unit_has_failed_is_stopped(ordered: Ordered) -> None:
    """One that does not end in time is killed: cephadm calls it "error", and a stop must not wait for ever."""
    ordered.ceph.write_text('#!/bin/sh\necho \'[{"status_desc": "error"}]\'\n')
    assert ordered.run("stop", DaemonName("rgw", "a")).returncode == 0 and ordered.settled


def test_a_count_without_a_reply_is_an_error(ordered: Ordered) -> None:
    ordered.ceph.write_text("#!/bin/sh\nexit 1\n")
    for daemon in (DaemonName("rgw", "a"), *osd_names([3])):
        done = ordered.run("count", daemon)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", "ceph does not reply\n")


def test_one_that_does_not_come_up_keeps_no_other_down(ordered: Ordered) -> None:
    """osd.3 never starts; the first order to osd.5 got lost, and is given again all the same."""
    folder = ordered.ceph.parent
    ordered.ceph.write_text(
        f"""#!/bin/sh
cd {folder}
case "$1 $2" in
  "osd dump") echo "osd.3 down in"; [ -e five ] && echo "osd.5 up in" || echo "osd.5 down in" ;;
  "orch daemon") echo "$4" >> given; [ "$(grep -c osd.5 given)" -lt 2 ] || touch five ;;
esac
"""
    )
    process = subprocess.Popen(ordered.line("start", osd_names([3, 5])), start_new_session=True)
    wait_for(lambda: (folder / "five").exists())
    assert process.poll() is None  # it goes on with osd.3 until its limit
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
