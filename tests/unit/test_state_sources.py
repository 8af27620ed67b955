"""Where samplers ask for the state of the cluster: what they outlive."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar, List, Tuple

import pytest
from waiting import wait_for

from cbt_plugins.cluster import state_sampler_sources
from cbt_plugins.cluster.state_sampler_sources import CephCommand, Librados

#: bytes of a read, of a short reply
READ, SHORT = 4096, 1 << 19


def test_a_ceph_command_that_has_ended_does_not_end_the_agent() -> None:
    """Neither the question nor what is left of it in a buffer, although the agent dies of SIGPIPE elsewhere."""
    text = """if True:
        import signal
        from cbt_plugins.cluster.state_sampler_sources import CephCommand, NoReply
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        source = CephCommand("true", 1)
        source._open()
        source._process.wait()
        try:
            source.mon({"prefix": "status"})
        except NoReply as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("ceph has ended")


class CountedBytes(bytes):
    """Bytes that note how many bytes their operations copy; a bytearray takes bytes without a copy of what it has."""

    counts: ClassVar[List[int]] = []

    def _counted(self, result: bytes) -> CountedBytes:
        self.counts.append(len(result))
        return CountedBytes(result)

    def __add__(self, right: bytes) -> CountedBytes:  # type: ignore[override]
        return self._counted(bytes(self) + right)

    def __radd__(self, left: bytes) -> CountedBytes:
        return NotImplemented if isinstance(left, bytearray) else self._counted(left + bytes(self))

    def rstrip(self, characters: bytes | None = None, /) -> CountedBytes:  # type: ignore[override]
        return self._counted(super().rstrip(characters))

    def strip(self, characters: bytes | None = None, /) -> CountedBytes:  # type: ignore[override]
        return self._counted(super().strip(characters))


class CountedArray(bytearray):
    """A bytearray whose copies without white space are noted as those of CountedBytes."""

    def rstrip(self, characters: bytes | None = None, /) -> CountedArray:  # type: ignore[override]
        return self._counted(super().rstrip(characters))

    def strip(self, characters: bytes | None = None, /) -> CountedArray:  # type: ignore[override]
        return self._counted(super().strip(characters))

    @staticmethod
    def _counted(result: bytearray) -> CountedArray:
        CountedBytes.counts.append(len(result))
        return CountedArray(result)


def test_a_reply_of_twice_the_size_takes_twice_the_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The mgr of 10,000 OSDs replies with 270 MB, of which each read of a pipe gets 64 KB."""
    read = SimpleNamespace(**{**vars(os), "read": lambda file, most: CountedBytes(os.read(file, READ))})
    monkeypatch.setattr(state_sampler_sources, "os", read)
    monkeypatch.setattr(state_sampler_sources, "bytearray", CountedArray, raising=False)
    work = []
    for size in (SHORT, 2 * SHORT):
        reply = ["x" * 999] * (size // 1000)
        (tmp_path / "reply").write_text(f"\n{json.dumps(reply)}\n")
        (tmp_path / "ceph").write_text(f"read question; cat {tmp_path}/reply; read question\n")
        CountedBytes.counts.clear()
        source = CephCommand(f"sh {tmp_path}/ceph", 60)
        try:
            assert source.mgr({"prefix": "pg dump"}) == reply
        finally:
            source.close()
        work.append(sum(CountedBytes.counts))
    assert 1.8 < work[1] / work[0] < 2.2


def test_a_question_may_have_a_limit_of_its_own() -> None:
    """The reports of 10,000 OSDs take longer than all other replies."""
    source = CephCommand("sh -c 'while read -r line; do sleep 0.5; echo {}; done'", 0.1)
    try:
        with pytest.raises(state_sampler_sources.NoReply, match=r"pg dump osds: no reply for 0\.1 s"):
            source.mgr({"prefix": "pg dump", "dumpcontents": ["osds"]})
        assert source.mgr({"prefix": "pg dump", "dumpcontents": ["osds"]}, 60.0) == {}
        with pytest.raises(state_sampler_sources.NoReply, match=r"status: no reply for 0\.1 s"):
            source.mon({"prefix": "status"})
    finally:
        source.close()


class StandInRados:
    """A module `rados`: each client notes its limit, and a question to its mgr waits until `replies` is set."""

    class Error(Exception):
        pass

    def __init__(self) -> None:
        self.limits: List[str] = []
        self.replies = threading.Event()

    def Rados(self, conffile: str) -> StandInRados:
        return self

    def conf_set(self, option: str, value: str) -> None:
        self.limits += [value] if option == "rados_mon_op_timeout" else []

    def connect(self, timeout: int) -> None:
        assert timeout == 1

    def mgr_command(self, question: str, data: bytes) -> Tuple[int, bytes, str]:
        self.replies.wait(60)
        return 0, b"{}", ""


def test_librados_is_never_left_with_a_question_to_the_mgr(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would write the late reply where the question was, and end the agent."""
    rados = StandInRados()
    monkeypatch.setitem(sys.modules, "rados", rados)
    source = Librados("/etc/ceph/ceph.conf", 1.0)
    with pytest.raises(state_sampler_sources.NoReply, match=r"pg dump: no reply for 0\.1 s"):
        source.mgr({"prefix": "pg dump"}, 0.1)
    with pytest.raises(state_sampler_sources.NoReply, match="pg dump: no reply to the question before"):
        source.mgr({"prefix": "pg dump"})
    assert rados.limits == ["1", "0"], "of the client for monitors, and of the one for the mgr"
    rados.replies.set()

    def has_replied() -> bool:
        with contextlib.suppress(state_sampler_sources.NoReply):
            return bool(source.mgr({"prefix": "pg dump"}) == {})
        return False

    wait_for(has_replied, "the end of the first question")
