"""A load generator of another distribution: one class and one entry point; and whose words the agent takes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Iterator

import pytest
from config_files import CLUSTER, WARP

from cbt_plugins.config.errors import ConfigError
from cbt_plugins.config.file_check import load_file
from cbt_plugins.load.generator import LoadStart, generator_of
from cbt_plugins.load.generator_process import GeneratorProcess
from cbt_plugins.run.preflight import programs_of

TINY = """
from cbt_plugins.load.generator import Generator
from cbt_plugins.load.generator import LoadJob


class Tiny(Generator):
    program = "tiny-s3"
    version = "-V"

    def jobs(self, phase, start):
        return [
            LoadJob(
                id=f"{driver.id}-tiny", driver=driver.id, node=driver.node, op="PUT", role=phase.kind,
                bucket=self._names[driver.bucket], prefix="", sizes=self._buckets[driver.bucket].sizes,
                workers=driver.workers, urls=self._plan.s3.urls,
                argv=("{tiny-s3}", "put", self._names[driver.bucket], "{duration}"),
            )
            for driver in self._plan.drivers
        ]
"""


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    site = tmp_path / "site"
    package = site / "tiny-1.dist-info"
    package.mkdir(parents=True)
    (site / "tiny_generator.py").write_text(TINY)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[cbt_plugins.generators]\ntiny = tiny_generator:Tiny\n")
    monkeypatch.syspath_prepend(str(site))
    yield
    sys.modules.pop("tiny_generator", None)


PHASE = "    cycle: {phases: [{fill: {duration: 5s, engine: tiny}}]}\n"


def test_engine_finds_it_by_name(tiny: None, tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(CLUSTER + WARP + PHASE)
    (run,) = load_file(tmp_path / "f.yaml").runs
    phase = run.plan.phases[0]
    assert (phase.engine, programs_of(run.plan)) == ("tiny", {"cbt-rows": "version", "tiny-s3": "-V"})
    names = {bucket.key: f"cbtp-1-{bucket.key}" for bucket in run.plan.buckets}
    made = generator_of(phase.engine)(run.plan, names, "1").jobs(phase, LoadStart())
    assert [job.id for job in made] == [f"{driver.id}-tiny" for driver in run.plan.drivers]
    assert made[0].argv == ("{tiny-s3}", "put", names[run.plan.drivers[0].bucket], "{duration}")


def test_without_its_distribution_the_name_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(CLUSTER + WARP + PHASE)
    with pytest.raises(ConfigError, match="must be warp or cbt-load"):
        load_file(tmp_path / "f.yaml")


@pytest.mark.parametrize(("start", "taken"), [("self", True), ("go", False), ("early", False)])
def test_only_generators_that_have_events_are_believed(tmp_path: Path, start: str, taken: bool) -> None:
    """What warp says of a failed request has the server's text, lines and all."""
    process = object.__new__(GeneratorProcess)
    process.order = {"start": start}
    process.end_event, process.message, process.stderr_size = None, b"", 0
    with open(tmp_path / "stderr", "wb") as process.stderr:
        process.read_line(b'{"event": "end", "warnings": []}')
    assert (process.end_event is not None) == taken
    assert ((tmp_path / "stderr").read_bytes() != b"") != taken
