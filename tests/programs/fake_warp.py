"""A stand-in for warp in the unit tests of the agent: prints rows as warp does, and misbehaves on request.

fake_warp.py [--rows N] [--every SECONDS] [--error-every N] [--exit STATUS] [--hang] [--deaf] [--chatter]
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--every", type=float, default=0.01)
    parser.add_argument("--error-every", type=int, default=0)
    parser.add_argument("--exit", type=int, default=0)
    parser.add_argument("--hang", action="store_true")
    parser.add_argument("--deaf", action="store_true")
    parser.add_argument("--chatter", action="store_true")
    parser.add_argument("--op", default="PUT")
    parser.add_argument("--duration", default="30s")
    args = parser.parse_args()
    if args.deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end = time.monotonic() + float(args.duration.rstrip("s"))
    n = 0
    while time.monotonic() < end and (not args.rows or n < args.rows):
        error = '"bad ""thing"""' if args.error_every and n % args.error_every == 0 else ""
        columns = [n, 0, args.op, "", 1, 4096, "http://rgw1:7480", f"keep/{n}", error, "2026-11-21T09:06:28.059836645Z"]
        print(*columns, "", "2026-11-21T09:06:28.096048237Z", 36211601, 0, sep="\t", flush=True)
        if args.chatter:
            print("x" * 10000, file=sys.stderr)
        n += 1
        time.sleep(args.every)
    if os.environ.get("FAKE_WARP_SECRET_TO"):
        with open(os.environ["FAKE_WARP_SECRET_TO"], "w") as file:
            file.write(os.environ["WARP_SECRET_KEY"])
    while args.hang:
        time.sleep(1)
    return args.exit


if __name__ == "__main__":
    sys.exit(main())
