"""The small lab of trust.py and monitors.py: the command, and the cluster of their YAML."""

from __future__ import annotations

import sys
from typing import Any, Dict, List

TOOLS = [sys.executable, "-m", "cbt_plugins.tools"]
#: of `lab up` and `lab run`
SHAPE = ["--osd-nodes", "2", "--clients", "1"]


def cluster(rgws: List[str]) -> Dict[str, Any]:
    """Return the `cluster` of a lab of SHAPE with these gateways."""
    return {
        "user": "root",
        "head": "node0",
        "clients": ["client1"],
        "osds": ["node1", "node2"],
        "mons": ["node0"],
        "rgws": rgws,
        "use_existing": True,
        "iterations": 1,
        "conf_file": "/etc/ceph/ceph.conf",
        "tmp_dir": "/var/tmp/cbt",
    }
