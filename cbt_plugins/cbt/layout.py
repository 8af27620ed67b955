"""Which runs a file asks for, and where in the archive each of them goes: CBT's own rules."""

from __future__ import annotations

import copy
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping

import yaml

from cbt_plugins.config.source import permutations as sweep
from cbt_plugins.journal import write_whole


@dataclass(frozen=True)
class Planned:
    """One run that the file asks for."""

    benchmark: str
    iteration: int
    config: Mapping[str, Any]  # one permutation + benchmark + iteration; `acceptable` is still in it

    @property
    def fingerprint(self) -> str:
        """Equal for equal runs, whatever values the file holds (CBT has no id for a date, for example)."""
        return repr(
            sorted((str(key), repr(value)) for key, value in self.config.items() if key != "acceptable")
        )


def permutations(section: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
    """Every combination of the section's top-level lists (but `acceptable`), the last list fastest."""
    for taken, config in sweep(section):
        # The order inside nested mappings is part of the id and stays as written. One copy of all together:
        # what an anchor shares is shared in the copy too, and shows in benchmark_config.yaml.
        fixed = copy.deepcopy({key: value for key, value in config.items() if key not in taken})
        yield {**fixed, **{key: config[key] for key in taken}}


def planned(benchmarks: Mapping[str, Any], iterations: int) -> Iterator[Planned]:
    """All runs in the order in which CBT runs them: iterations, then sections by name, then permutations."""
    for iteration in range(iterations):
        for benchmark, section in sorted(benchmarks.items()):
            for config in permutations(section or {}):
                config.update(benchmark=benchmark, iteration=iteration)
                yield Planned(benchmark, iteration, config)


def run_id(config: Mapping[str, Any]) -> str:
    """8 hex digits. Raises TypeError for what JSON cannot hold (a YAML date) and for keys of mixed types."""
    hashable = json.dumps(sorted((key, value) for key, value in config.items() if key != "acceptable"))
    return hashlib.sha1(hashable.encode()).hexdigest()[:8]


def archive_dir(archive: Path, config: Mapping[str, Any]) -> Path:
    return archive / "results" / f"{config['iteration']:0>8}" / f"id-{run_id(config)}"


def run_dir(tmp_dir: str, benchmark: str, archive_dir: Path) -> str:
    """Scratch directory on the nodes, the run's alone (CBT's own is shared by all permutations)."""
    identity = archive_dir.name[len("id-") :]
    return f"{tmp_dir.rstrip('/')}/{archive_dir.parent.name}/{benchmark}-{identity}"


def write_once(path: Path, content: Mapping[str, Any]) -> bool:
    """Write YAML as CBT does, unless the file is there: a resumed archive keeps what it was started with."""
    if path.exists():
        return False
    write_whole(path, yaml.dump(dict(content), default_flow_style=False))
    return True
