"""Makes the archives of the examples in docs/TOUR.md and docs/COMPARE.md: example_archives.py FOLDER.

`quincy` and `reef` have 5 runs each, with a GET that became slower; `night1` to `night12` one run each, with a PUT that
became slower after the seventh. The numbers are random by a fixed seed, and say nothing of Ceph.
"""

from __future__ import annotations

import sys
from pathlib import Path

from archive_builder import DAY, QUINCY, REEF, Cluster, Load, archive

#: `osd_op_queue` of the releases
OLD, NEW = {"osd_op_queue": "wpq"}, {"osd_op_queue": "mclock"}


def make(folder: Path) -> None:
    """Make all archives of the examples in a folder."""
    archive(folder / "quincy", Load(seconds=20), Cluster(QUINCY, OLD), runs=5, seed=1)
    archive(folder / "reef", Load({"GET": 0.023}, seconds=20), Cluster(REEF, NEW), runs=5, seed=2, begin=500)
    for night in range(1, 13):
        latency, ceph = ({"PUT": 0.044}, REEF) if night > 7 else ({}, QUINCY)
        load = Load(latency, seconds=20)
        archive(folder / f"night{night}", load, Cluster(ceph), seed=100 + night, begin=(night - 1) * DAY)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
