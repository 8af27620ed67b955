"""Errors of numbers say the limit as the user may write it; a wrong key of a sweep has one error."""

from __future__ import annotations

from pathlib import Path

import pytest
from config_files import CLUSTER, CYCLE, S3, WARP, errors_in, marked

from cbt_plugins.config.errors import ConfigError
from cbt_plugins.config.units import format_duration
from cbt_plugins.config.yaml_source import read


def fault(text: str) -> str:
    event = f"{{at: 0s, fault: {{label: a, nodes: [node1], {text}}}}}"
    return f"{CLUSTER}{WARP}    engine: cbt-load\n{CYCLE.replace('60s', f'10m, events: [{event}]')}"


RESILIENCE = f"{CLUSTER}benchmarks:\n  resilience:\n{S3}    failures: {{node down: {{kind: stop, osds: [1]}}}}\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (fault("kind: loss, options: {share: §60%}"), "share: must be at most 50%"),
        (fault("kind: loss, options: {share: §0%}"), "share: must be more than 0%"),
        (fault("kind: rate, options: {rate: §100kbit}"), "rate: must be at least 1Mbit"),
        (fault("kind: delay, options: {delay: §10s}"), "delay: must be at most 5s"),
        (RESILIENCE + "    repeat: §1.5\n", "repeat: must be a whole number, not a number with a decimal point"),
        (RESILIENCE + "    repeat: §1001\n", "repeat: must be at most 100"),
    ],
)
def test_a_limit_has_the_unit_of_the_key(tmp_path: Path, text: str, says: str) -> None:
    plain, (place,) = marked(text)
    (error,) = errors_in(tmp_path, plain)
    assert error.startswith(place) and error.endswith(f".{says}")


def test_nft_takes_no_interfaces(tmp_path: Path) -> None:
    plain, (place,) = marked(fault("kind: network, options: {method: nft, §interfaces: [eth0]}"))
    (error,) = errors_in(tmp_path, plain)
    assert error.startswith(place) and "interfaces: is for method: link; nft drops the packets of all" in error


def test_an_unknown_key_of_a_sweep_is_one_error_at_the_key(tmp_path: Path) -> None:
    plain, (place,) = marked(CLUSTER + WARP + CYCLE + "    §wrokers: [8, 16, 32]\n")
    assert errors_in(tmp_path, plain) == [f"{place}benchmarks.warp.wrokers: unknown key; did you mean 'workers'?"]
    plain, (place,) = marked(CLUSTER + WARP + CYCLE + "    workers: [8, §0]\n")
    assert errors_in(tmp_path, plain) == [f"{place}benchmarks.warp.workers[1]: must be at least 1"]


def test_a_duration_has_no_digits_of_an_inexact_sum() -> None:
    assert format_duration(8700.900000000001) == "2h25m0.9s"
    assert format_duration(1e-9) == "0.000000001s"


@pytest.mark.parametrize("since", ["2023-13-45", "2023-02-30", "2023-11-21 25:00:00"])
def test_a_date_that_does_not_exist_is_named(tmp_path: Path, since: str) -> None:
    file = tmp_path / "triage.yaml"
    file.write_text(f"since: {since}\n")
    with pytest.raises(ConfigError, match="1:8: not YAML: no such date or time; quote it when it is text"):
        read(file)
