"""Faults of a file that show before anything runs: the checks that both hosts make first."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Mapping

import yaml

from cbt_plugins.cbt import layout
from cbt_plugins.config import registry

#: exit status for a fault in the file or the command line
FAULTS_STATUS = 2


def faults_of(path: Path) -> List[str]:
    """What is wrong, one text per fault; also what CBT would take for "nothing to do" and a success."""
    try:
        with open(path) as file:
            config = yaml.safe_load(file)
    except OSError as error:
        return [f"{path}: {error.strerror}"]
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        return [f"{path}: {error}"]
    if not isinstance(config, dict):
        return [f"{path}: not a CBT file: sections `cluster:` and `benchmarks:` are missing"]
    faults = [
        f"{path}: `{name}:` is missing or empty"
        for name in ("cluster", "benchmarks")
        if not isinstance(config.get(name), dict) or not config[name]
    ]
    return faults or _own_faults(path, config) or _nothing_to_run(path, config)


def _own_faults(path: Path, config: Mapping[str, Any]) -> List[str]:
    profiles = config.get("monitoring_profiles")
    ours = set(config["benchmarks"]) & set(registry.built_in(registry.BENCHMARKS))
    ours |= set(profiles if isinstance(profiles, dict) else ()) & set(registry.built_in(registry.MONITORS))
    if not ours:
        return []  # a file without a section or a profile of ours is none of our business
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
        return [f"{path}: cluster.iterations: {iterations}: nothing would run (CBT's default is 0)"]
    faults = []
    for name, section in sorted(config["benchmarks"].items()):
        if not isinstance(section, dict):
            faults.append(f"{path}: benchmarks.{name}: must be a mapping; write {{}} for the defaults")
        elif not any(True for _ in layout.permutations(section)):
            faults.append(f"{path}: benchmarks.{name}: an empty list: nothing would run")
    return faults
