"""Labs of measurements: the command, a lab for the time of one, and the small one of trust.py and monitors.py."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence, Tuple

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


@contextmanager
def lab_with_archives(name: str, shape: Sequence[str]) -> Iterator[Tuple[Path, Path]]:
    """Run a lab; yield the folder of the archives, which its nodes see, and that of the lab.

    The archives are kept if their folder is given in ARCHIVES.
    """
    kept = os.environ.get("ARCHIVES")
    folder = Path(kept or tempfile.mkdtemp(dir=os.environ.get("TMPDIR", "/var/tmp"), prefix=f"{name}-")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    lab = folder / "lab"
    try:
        subprocess.run([*TOOLS, "lab", "up", "--dir", str(lab), "--bind", str(folder), *shape], check=True)
        yield folder, lab
    finally:
        subprocess.run([*TOOLS, "lab", "down", "--wipe", "--dir", str(lab)], check=False, capture_output=True)
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)
