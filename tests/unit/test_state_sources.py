"""Where samplers ask for the state of the cluster: what they outlive."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar, List

import pytest

from cbt_plugins.cluster import state_sampler_sources
from cbt_plugins.cluster.state_sampler_sources import CephCommand

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
