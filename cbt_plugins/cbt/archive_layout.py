"""The runs that a file asks for, and where in the archive each of them goes, by CBT's own rules; errors of the file."""

from __future__ import annotations

import copy
import hashlib
import json
import re
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Sequence

import yaml

from cbt_plugins import exit_status
from cbt_plugins.config import plugins
from cbt_plugins.config.errors import ConfigError
from cbt_plugins.config.file_check import load
from cbt_plugins.config.sweep import sweep
from cbt_plugins.config.top_level import is_ours
from cbt_plugins.config.yaml_loader import MOST_BYTES
from cbt_plugins.config.yaml_source import read
from cbt_plugins.formatting.screen import printable
from cbt_plugins.journal import json_lines, write_whole


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


def begun_or_new(archive_dir: Path) -> str:
    """Return the id of the run that a directory of the archive holds, a new one where none has begun."""
    begun = (line.get("run_id") for line in json_lines(archive_dir / "journal.jsonl") if line.get("event") == "run")
    return next((str(identity) for identity in begun if identity), secrets.token_hex(4))


def run_dir(tmp_dir: str, benchmark: str, archive_dir: Path, identity: str) -> str:
    """Return the scratch directory on the nodes, the run's alone (CBT's own is shared by all permutations).

    The same file may run with another archive at the same time: `identity` is not CBT's id, which both have.
    """
    return f"{tmp_dir.rstrip('/')}/{archive_dir.parent.name}/{benchmark}-{identity}"


def write_once(path: Path, content: Mapping[str, Any]) -> bool:
    """Write YAML as CBT does, unless the file is there: a resumed archive keeps what it was started with."""
    if path.exists():
        return False
    write_whole(path, yaml.dump(dict(content), default_flow_style=False))
    return True


def saved_file(path: Path) -> Any:
    """Return the sections of the file that an archive was started with; None when that cannot be read."""
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return None


def refuse(errors: Sequence[str]) -> int:
    """Print the errors of a file or a command line; returns the exit status."""
    count = f"{len(errors)} errors" if len(errors) > 1 else "1 error"
    print(f"Error: {count}; nothing was run", *map(printable, errors), sep="\n", file=sys.stderr)
    return exit_status.USAGE


def has_ours(path: Path) -> bool:
    """Return whether a file names a benchmark or a monitor of a plug-in, or, with YAML errors, seems to."""
    try:
        return is_ours(read(path))
    except ConfigError:
        return _names_ours(path)


def errors_of(path: Path) -> List[str]:
    """Return the errors of a file that cbt.py is about to read, none of one without a benchmark or monitor of ours."""
    source = None
    try:
        source = read(path)
        if is_ours(source):
            load(source)
    except ConfigError as error:
        if source or _names_ours(path):
            return str(error).splitlines()
    return []


def _names_ours(path: Path) -> bool:
    """Return whether a file that cannot be read as YAML has a key of the name of a benchmark or monitor of ours."""
    try:
        with open(path, "rb") as file:
            text = file.read(MOST_BYTES).decode("utf-8", "replace").replace("\0", "")  # UTF-16 too, as it happens
    except OSError:
        return False
    names = [*plugins.names(plugins.BENCHMARKS), *plugins.names(plugins.MONITORS)]
    return re.search(rf"\b({'|'.join(map(re.escape, names))})['\"]?\s*:", text) is not None
