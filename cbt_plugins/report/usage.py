"""Processors, disks and networks of a phase as plain text."""

from __future__ import annotations

import textwrap
from typing import Any, Iterator, List, Mapping

from cbt_plugins.report.numbers import NONE, count, plain

_NAMES = {"osd": "OSD", "rgw": "RGW", "mon": "mon", "mgr": "mgr", "mds": "MDS", "generator": "load generator"}


def rows(used: Mapping[str, Any]) -> List[List[str]]:
    """A table of the classes of daemons, its header first; [] when none was watched."""
    head = ["", "number", "cores", "peak", "RSS MiB", "read MiB/s", "write MiB/s"]
    its = [
        [
            _NAMES.get(name, name),
            count(line["daemons"]),
            plain(line["cores"]),
            plain(line["peak"]),
            *(plain(line[key]) for key in ("rss_mib", "read_mib_s", "write_mib_s")),
        ]
        for name, line in used["classes"].items()
    ]
    return [head, *its] if its else []


def sentences(used: Mapping[str, Any], width: int) -> Iterator[str]:
    """What it comes to, and what held the phase back."""
    parts = []
    if used["rgw_osd_ratio"] is not None:
        parts.append(f"RGW:OSD {plain(used['rgw_osd_ratio'])} ({used['rgw_osd_fraction']})")
    if used["ops_per_core"] is not None:
        parts.append(f"{plain(used['ops_per_core'])} requests/s per core of RGW and OSD")
    if used["cores_per_gb_s"] is not None:
        parts.append(f"{plain(used['cores_per_gb_s'])} cores per GB/s")
    if parts:
        yield f"   {', '.join(parts)}"
    its = used["bottleneck"]
    text = f"bottleneck: {its['what']}. {'; '.join(its['evidence']) or NONE}"
    yield from textwrap.wrap(text, width, initial_indent="   ", subsequent_indent="   ")
