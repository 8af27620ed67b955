"""COSbench's own two tables of a workload, as its controller's page shows them."""

from __future__ import annotations

from typing import List, Optional, Sequence

from cbt_plugins.results.importers.cosbench import PERCENTILES, Line

_COUNT, _BYTES = ("ops", "kops", "mops", "gops"), ("B", "KB", "MB", "GB", "TB", "PB")
_RATE = ("B/S", "KB/S", "MB/S", "GB/S")


def tables(lines: Sequence[Line]) -> str:
    """General Report and ResTime (RT) Details of one workload, tab separated; units are decimal, as COSbench's are."""
    several = len({line.stage for line in lines}) > 1
    head = ["Op-Type", "Op-Count", "Byte-Count", "Avg-ResTime", "Avg-ProcTime", "Throughput", "Bandwidth", "Succ-Ratio"]
    general: List[List[str]] = [head]
    times: List[List[str]] = [["Op-Type", *(f"{q}%-RT" for q in PERCENTILES)]]
    for line in lines:
        name = f"{line.stage}: {line.op}" if several else line.op
        general.append(
            [
                name,
                _scaled(line.count, _COUNT),
                _scaled(line.bytes, _BYTES),
                _ms(line.res_ms),
                _ms(line.proc_ms),
                f"{_plain(line.throughput)} op/s",
                _scaled(line.bandwidth, _RATE),
                "N/A" if line.success is None else f"{_plain(100 * line.success)}%",
            ]
        )
        times.append([name, *(_bound(line.percentiles[q]) for q in PERCENTILES)])
    return (
        "\n".join(["General Report", *map("\t".join, general), "ResTime (RT) Details", *map("\t".join, times)]) + "\n"
    )


def _scaled(value: float, units: Sequence[str]) -> str:
    step = 0
    while value >= 1000 and step + 1 < len(units):
        value, step = value / 1000, step + 1
    return f"{_plain(value)} {units[step]}"


def _plain(value: float) -> str:
    """At most two digits behind the point."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _ms(value: Optional[float]) -> str:
    return "N/A" if value is None else f"{_plain(value)} ms"


def _bound(value: Optional[float]) -> str:
    return "N/A" if value is None else f"< {value:,.0f} ms"
