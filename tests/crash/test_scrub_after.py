"""A deep scrub and a look at the cluster after a run: with everything undone, whatever becomes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

import pytest
from test_cycle_at_each_call import PHASES, CycleOnStandIn, url

from cbt_plugins.results.recovery.cluster_samples import files_of, read_samples

__all__ = ["url"]


class Followed(CycleOnStandIn):
    """A cycle without scrubs that are made up for, and watched for a second more."""

    def config(self, url: str) -> Dict[str, Any]:
        file = super().config(url)
        file["benchmarks"]["osdfailure"]["settings"]["scrub"] = "deep-after"
        file["benchmarks"]["osdfailure"]["post_poll"] = "1s"
        return file

    def but_scrubs(self, changes: List[str]) -> List[str]:
        return [text for text in changes if not text.startswith("scrubbed: ")]

    def events(self) -> List[Dict[str, Any]]:
        return self.lines("events.jsonl")

    def order(self, *parts: str) -> List[int]:
        """Numbers of the first calls with these words."""
        lines = [" ".join(call["words"]) for call in self.calls() if call["call"] == "ceph"]
        return [next(n for n, line in enumerate(lines) if part in line) for part in parts]


@pytest.mark.long  # test_osdfailure has a run to its end, test_afterwards the parts
def test_scrubbed_and_watched_when_everything_is_undone(tmp_path: Path, url: str) -> None:
    world = Followed(tmp_path / "w", url)
    assert world.play(at=("ceph osd pool deep-scrub", "term")) == 130, world.said
    steps = world.order("osd set noscrub", "osd unset noscrub", "osd pool deep-scrub")
    assert steps == sorted(steps)
    assert world.settle() + world.but_scrubs(world.broken()) == []
    assert world.events()[-1]["event"] == "run-interrupted"
    assert [f.name[3:] for f in sorted(world.archive.glob("results/*/id-*/phases/*"))] == PHASES
    once = world.state()["scrubbed"]
    assert world.play() == 0, world.said
    (ended,) = (event for event in world.events() if event["event"] == "deep-scrub-end")
    assert ended["pgs"] == 8 and ended["left"] == []
    assert world.state()["scrubbed"] == {pool: once.get(pool, 0) + 1 for pool in ("log", "index")}
    names = [event["event"] for event in world.events()]
    assert names.index("deep-scrub-end") < names.index("post-poll-begin") < names.index("post-poll-end")
    (run,) = world.archive.glob("results/*/id-*")
    ended = next(event["t"] for event in world.events() if event["event"] == "deep-scrub-end")
    samples = [sample for sample in read_samples(files_of(run)).samples if sample.t > ended]
    assert samples and all(sample.clean for sample in samples)
    (watched,) = world.archive.glob("results/*/id-*/monitors/recovery.node0/recovery.jsonl")
    assert sum('"pgs"' in line for line in watched.read_text().splitlines()) >= 2  # one for each invocation
    assert world.settle() + world.but_scrubs(world.changes()) + world.not_whole() == []
