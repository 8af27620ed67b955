"""The runs that a file asks for, and where in the archive each of them goes, by CBT's own rules; errors of the file."""

from __future__ import annotations

import copy
import hashlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Sequence

import yaml

from cbt_plugins.config import registry
from cbt_plugins.config.source import sweep
from cbt_plugins.journal import write_whole

#: exit status for an error in the file or the command line
USAGE = 2


@dataclass(frozen=True)
class RequestedRun:
    """One run that the file asks for."""

    benchmark: str
    iteration: int
    config: Mapping[str, Any]  # one permutation + benchmark + iteration; `acceptable` is still in it

    @property
    def fingerprint(self) -> str:
        """Text that is equal for equal runs, whatever values the file holds (CBT has no id for a date, for example)."""
        return repr(sorted((str(key), repr(value)) for key, value in self.config.items() if key != "acceptable"))


def permutations(section: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
    """Yield every combination of the section's top-level lists (but `acceptable`), the last list fastest."""
    for taken, config in sweep(section):
        # The order inside nested mappings is part of the id and stays as written. One copy of all together:
        # what an anchor shares is shared in the copy too, and shows in benchmark_config.yaml.
        fixed = copy.deepcopy({key: value for key, value in config.items() if key not in taken})
        yield {**fixed, **{key: config[key] for key in taken}}


def planned(benchmarks: Mapping[str, Any], iterations: int) -> Iterator[RequestedRun]:
    """Yield all runs in the order in which CBT runs them: iterations, then sections by name, then permutations."""
    for iteration in range(iterations):
        for benchmark, section in sorted(benchmarks.items()):
            for config in permutations(section or {}):
                config.update(benchmark=benchmark, iteration=iteration)
                yield RequestedRun(benchmark, iteration, config)


def run_id(config: Mapping[str, Any]) -> str:
    """Return 8 hex digits. Raises TypeError for what JSON cannot hold (a YAML date) and for keys of mixed types."""
    hashable = json.dumps(sorted((key, value) for key, value in config.items() if key != "acceptable"))
    return hashlib.sha1(hashable.encode()).hexdigest()[:8]


def archive_dir(archive: Path, config: Mapping[str, Any]) -> Path:
    """Return the directory of a run in the archive."""
    return archive / "results" / f"{config['iteration']:0>8}" / f"id-{run_id(config)}"


def run_dir(tmp_dir: str, benchmark: str, archive_dir: Path) -> str:
    """Return the scratch directory on the nodes, the run's alone (CBT's own is shared by all permutations)."""
    identity = archive_dir.name[len("id-") :]
    return f"{tmp_dir.rstrip('/')}/{archive_dir.parent.name}/{benchmark}-{identity}"


def write_once(path: Path, content: Mapping[str, Any]) -> bool:
    """Write YAML as CBT does, unless the file is there: a resumed archive keeps what it was started with."""
    if path.exists():
        return False
    write_whole(path, yaml.dump(dict(content), default_flow_style=False))
    return True


def refuse(errors: Sequence[str]) -> int:
    """Print the errors of a file or a command line; returns the exit status."""
    count = f"{len(errors)} errors" if len(errors) > 1 else "1 error"
    print(f"Error: {count}; nothing was run", *errors, sep="\n", file=sys.stderr)
    return USAGE


def errors_of(path: Path) -> List[str]:
    """Return the errors of a file that show before anything runs; also what CBT takes for "nothing to do"."""
    try:
        with open(path) as file:
            config = yaml.safe_load(file)
    except OSError as error:
        return [f"{path}: {error.strerror}"]
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        return [f"{path}: {error}"]
    if not isinstance(config, dict):
        return [f"{path}: not a CBT file: needs the sections `cluster:` and `benchmarks:`"]
    errors = [
        f"{path}: `{name}:` is missing or empty"
        for name in ("cluster", "benchmarks")
        if not isinstance(config.get(name), dict) or not config[name]
    ]
    return errors or _own_errors(path, config) or _nothing_to_run(path, config)


def _own_errors(path: Path, config: Mapping[str, Any]) -> List[str]:
    profiles = config.get("monitoring_profiles")
    ours = set(config["benchmarks"]) & set(registry.built_in(registry.BENCHMARKS))
    ours |= set(profiles if isinstance(profiles, dict) else ()) & set(registry.built_in(registry.MONITORS))
    if not ours:
        return []  # a file without a section or a profile of ours
    from cbt_plugins.config.check import check_file
    from cbt_plugins.config.errors import ConfigError

    try:
        check_file(path)
    except ConfigError as error:
        return str(error).splitlines()
    return []


def _nothing_to_run(path: Path, config: Mapping[str, Any]) -> List[str]:
    iterations = config["cluster"].get("iterations", 0)
    if not isinstance(iterations, int) or iterations < 1:
        return [f"{path}: cluster.iterations: {iterations}: nothing to run (CBT's default is 0); set it to 1 or more"]
    errors = []
    for name, section in sorted(config["benchmarks"].items()):
        if not isinstance(section, dict):
            errors.append(f"{path}: benchmarks.{name}: must be a mapping; write {{}} for the defaults")
        elif not any(True for _ in permutations(section)):
            errors.append(f"{path}: benchmarks.{name}: empty list, nothing to run: fill it or remove the key")
    return errors
