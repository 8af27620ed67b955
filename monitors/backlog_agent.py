"""Runs on a node with Ceph's admin keyring: what RGW still has to do, as JSON lines on standard output.

Standard library only, Python 3.6. Its argument is {"admin": the radosgw-admin command, "interval"}. Ends when standard
input closes.
"""

# mypy: disallow-untyped-defs=False

import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
import time

from cbt_plugins.monitors.numbered_output import write_line

#: an answer of more than two minutes is given up
LIMITED = "timeout --foreground -k 1 120 "
#: shares of a processor and of the time that questions may take: a full garbage list is long
CPU_SHARE, SHARE = 0.01, 0.2
#: lists can have millions of lines: they are counted as they come; "late" where `timeout` had to end what makes them
_COUNT = """awk '
/"tag":/ { n++ }
/^\\[?]$/ { end = 1 }
{ late = /^status (124|137)$/ }
END { if (late) print "late"; else if (end) print n + 0 }'"""
#: `sync status` has a part for metadata and for each zone that this one copies from
_PARTS = re.compile(r"metadata sync|source: ")
#: "data is behind on 2 shards", "3 shards are recovering": what failed there is tried again
_BEHIND = re.compile(r"behind (?:on )?(\d+) shards?|(\d+) shards? (?:are )?(?:behind|recovering)")
#: a shard may be in both lists
_SHARDS = re.compile(r"(?:behind|recovering) shards: \[([\d,]+)\]")


def run(line):
    """Return the output of a command, as far as it comes in time."""
    # in the agent's own process group: whoever ends that ends all
    process = subprocess.Popen(["/bin/sh", "-c", line], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    return process.communicate()[0].decode(errors="replace")


def cpu():
    """Return the seconds of a processor that this process and those it has run have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def parsed(text):
    try:
        return json.loads(text)
    except ValueError:
        return None


def behind(text):
    """Return the number of shards of this zone that are behind others by `sync status`, None when it does not say."""
    total = None
    for part in _PARTS.split(text):
        counts = [int(a or b) for a, b in _BEHIND.findall(part)]
        shards = {number for shard_list in _SHARDS.findall(part) for number in shard_list.split(",")}
        if counts:
            total = (total or 0) + max(len(shards), *counts)
        elif "caught up" in part:
            total = total or 0
    return total


def sample(admin, sync):
    """Return the result of one look; "gc" is None where its list took too long."""
    record, admin = {}, LIMITED + admin
    entries = run("{ " + admin + " gc list --include-all 2>/dev/null; echo status $?; } | " + _COUNT).strip()
    if entries.isdigit() or entries == "late":
        record["gc"] = int(entries) if entries.isdigit() else None
    queue = parsed(run(admin + " reshard list 2>/dev/null"))
    if isinstance(queue, list):
        record["reshard"] = sorted({str(entry.get("bucket_name")) for entry in queue})
    if sync:
        shards = behind(run(admin + " sync status 2>/dev/null"))
        if shards is not None:
            record["sync"] = shards
    return record


def main(admin, interval):
    group = parsed(run(LIMITED + admin + " zonegroup get 2>/dev/null")) or {}
    sync = len(group.get("zones") or ()) > 1
    write_line({"version": 1, "t": round(time.time(), 3), "node": os.uname()[1], "interval": interval, "sync": sync})
    samples, last = 0, False
    while True:
        t, begun, used = time.time(), time.monotonic(), cpu()
        record = sample(admin, sync)
        took = time.monotonic() - begun
        write_line(dict(record, t=round(t, 3), s=round(took, 3)))
        samples += 1
        if last:
            break
        wait = max(interval, took / SHARE, (cpu() - used) / CPU_SHARE) - took
        last = bool(select.select([0], [], [], wait)[0]) and not os.read(0, 4096)
    write_line({"t": round(time.time(), 3), "end": "told", "samples": samples, "cpu": round(cpu(), 3)})


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    main(**json.loads(sys.argv[1]))
