"""What grows with the cluster, the nodes and the length of a run, and how: the numbers of docs/SCALE.md.

    ./run bench scale            every measurement, one after another
    ./run bench scale NAME...    some of them: a module of tests/perf/at_scale each

Each prints a table: a row for each size, and below each column the exponent of its growth. Nothing but this machine is
needed: sizes are made by Ceph's own programs, and nodes by stand-ins.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path


def main() -> int:
    folder = Path(__file__).parent / "at_scale"
    names = [path.stem for path in sorted(folder.glob("*.py")) if path.stem not in ("__init__", "costs")]
    wanted = sys.argv[1:] or names
    unknown = [name for name in wanted if name not in names]
    if unknown:
        print(f"no measurement {', '.join(unknown)}: there are {', '.join(names)}")
        return 2
    for name in wanted:
        module = importlib.import_module(f"at_scale.{name}")
        print(f"\n{name}: {(module.__doc__ or '').splitlines()[0]}", flush=True)
        module.main()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
