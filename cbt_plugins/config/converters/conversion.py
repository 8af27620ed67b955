"""What all converters of other programs' workloads share: their error, the file that they make, and names in it."""

from __future__ import annotations

import re
from typing import Any, Mapping, Sequence, Tuple

import yaml

#: of a file whose workload says nothing of the cluster: key, value, what to write there
_CLUSTER: Sequence[Tuple[str, Any, str]] = (
    ("user", "root", ""),
    ("head", "admin1", ": node with ceph and radosgw-admin; cbt.py runs here"),
    ("clients", ["client1"], ""),
    ("osds", ["osd1", "osd2", "osd3"], ""),
    ("mons", ["osd1"], ""),
    ("rgws", ["osd1"], ""),
)
_FIXED = {"use_existing": True, "iterations": 1, "tmp_dir": "/var/tmp/cbt"}


class ConversionError(Exception):
    """A file that is no workload of its program, or has no meaning here; the text says why."""


def plain(text: Any) -> str:
    """Return a text on one line."""
    return " ".join(str(text).split())


def phase_name(text: str) -> str:
    """Return a text as the name of a phase, "" where nothing of it can be."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def file_text(
    program: str,
    name: str,
    remarks: Sequence[str],
    section: Mapping[str, Any],
    cluster: Mapping[str, Any] = {},
    hints: Mapping[str, str] = {},
) -> str:
    """Return the text of a file with a section `warp:`; `cluster` is what the workload says of the nodes.

    `hints`: key of the section, or of its `s3:` -> what to edit there.
    """
    head = f"Made by `cbt-tools import {program} {plain(name)}`. Edit what is marked EDIT, then: cbt-tools plan FILE"
    lines = [f"# {head}", "#", *(f"# {plain(remark)}." for remark in remarks), *(["#"] if remarks else []), "cluster:"]
    for key, value, hint in _CLUSTER:
        is_known = key in cluster
        line = f"  {key}: {_flow(cluster[key] if is_known else value)}"
        lines.append(line if is_known else f"{line:<48} # EDIT{hint}")
    roles = [key for key, _, _ in _CLUSTER]
    lines += [f"  {key}: {_flow(value)}" for key, value in {**_FIXED, **cluster}.items() if key not in roles]
    body = yaml.safe_dump({"benchmarks": {"warp": dict(section)}}, sort_keys=False, width=200, default_flow_style=None)
    for key, hint in hints.items():
        body = re.sub(rf"^( {{4,6}}{key}: .*)", rf"\1  # EDIT: {hint}", body, count=1, flags=re.MULTILINE)
    return "\n".join([*lines, "", "monitoring_profiles:", "  resources: {}", "", body])


def _flow(value: Any) -> str:
    return str(yaml.safe_dump([value], default_flow_style=True, width=1 << 20)).strip()[1:-1]
