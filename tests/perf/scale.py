"""What grows with the cluster, the nodes and the length of a run, and how: the numbers of docs/SCALE.md.

    ./run bench scale            every measurement, one after another
    ./run bench scale NAME...    some of them: a module of tests/perf/at_scale each

Each prints a table: a row for each size, and below each column the exponent of its growth. Nothing but this machine is
needed: sizes are made by Ceph's own programs, and nodes by stand-ins. `--long` adds those that last longest, with up to
15 GB of disk (TMPDIR) and hours of CPU time.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path

from at_scale.costs import Extent


def main() -> int:
    folder = Path(__file__).parent / "at_scale"
    names = [path.stem for path in sorted(folder.glob("*.py")) if path.stem not in ("__init__", "costs")]
    parser = argparse.ArgumentParser(prog="./run bench scale", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}; default: all")
    parser.add_argument("--quick", action="store_const", dest="extent", const=Extent.QUICK, default=Extent.USUAL)
    parser.add_argument("--long", action="store_const", dest="extent", const=Extent.LONG)
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in names]
    if unknown:
        parser.error(f"no measurement {', '.join(unknown)}: there are {', '.join(names)}")
    for name in args.names or names:
        module = importlib.import_module(f"at_scale.{name}")
        print(f"\n{name}: {(module.__doc__ or '').splitlines()[0]}", flush=True)
        module.main(args.extent)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
