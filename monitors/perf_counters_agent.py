"""Runs on a node: what its OSDs and gateways say of themselves, as JSON lines, see docs/RESOURCES.md.

Standard library only, Python 3.6. It asks their admin sockets, which need root and no key. A line with "limit" says
where it sees less. Ends when standard input closes.
"""

# mypy: disallow-untyped-defs=False

import contextlib
import glob
import json
import os
import re
import resource
import select
import signal
import socket
import struct
import sys
import time

from cbt_plugins.monitors.numbered_output import write_limit, write_line

#: samples after which only every tenth is taken: somebody must read a day of them
FINE, COARSER = 360, 10
#: seconds between two questions for the allocator's score: it looks at all free extents of a disk, and writes wait
SCORE = 1800.0
#: seconds for an answer, and bytes of one
TIMEOUT, LARGEST = 5.0, 16 << 20

FOLDERS = ("/var/run/ceph", "/var/run/ceph/*/")
SOCKETS = ("/var/run/ceph/*.asok", "/var/run/ceph/*/*.asok")
_OSD = re.compile(r"ceph-osd\.(\d+)\.asok$")
#: behind a gateway's name Ceph puts $pid.$cctid
_CLIENT = re.compile(r"ceph-client\.(.+?)(?:\.\d+\.\d+)?\.asok$")
#: name in the lines -> where `perf dump` has it: (section, counters of which a release has one)
OF_OSDS = {
    "op_latency": ("osd", "op_latency"),
    "op_r_latency": ("osd", "op_r_latency"),
    "op_w_latency": ("osd", "op_w_latency"),
    "subop_latency": ("osd", "subop_latency"),
    "queue_latency": ("osd", "op_before_dequeue_op_lat"),
    "kv_flush_latency": ("bluestore", "kv_flush_lat"),
    "kv_commit_latency": ("bluestore", "kv_commit_lat"),
    "kv_sync_latency": ("bluestore", "kv_sync_lat"),
    "commit_latency": ("bluestore", "txc_commit_lat", "commit_lat"),
    "read_latency": ("bluestore", "read_lat"),
    "deferred_writes": ("bluestore", "issued_deferred_writes", "deferred_write_ops"),
    "onode_hits": ("bluestore", "onode_hits"),
    "onode_misses": ("bluestore", "onode_misses"),
    "allocated_bytes": ("bluestore", "allocated", "bluestore_allocated"),
    "stored_bytes": ("bluestore", "stored", "bluestore_stored"),
    "fragmentation_micros": ("bluestore", "fragmentation_micros", "bluestore_fragmentation_micros"),
    "db_total_bytes": ("bluefs", "db_total_bytes"),
    "db_used_bytes": ("bluefs", "db_used_bytes"),
    "slow_total_bytes": ("bluefs", "slow_total_bytes"),
    "slow_used_bytes": ("bluefs", "slow_used_bytes"),
    "compactions": ("rocksdb", "compact"),
    "compact_queue": ("rocksdb", "compact_queue_len"),
    "write_delay": ("rocksdb", "rocksdb_write_delay_time"),
    "cache_bytes": ("bluestore-pricache", "cache_bytes"),
    "cache_target_bytes": ("bluestore-pricache", "target_bytes"),
}
OF_GATEWAYS = {
    "requests": ("rgw", "req"),
    "failed_requests": ("rgw", "failed_req"),
    "queue": ("rgw", "qlen"),
    "active": ("rgw", "qactive"),
    "cache_hits": ("rgw", "cache_hit"),
    "cache_misses": ("rgw", "cache_miss"),
    "gc_retired": ("rgw", "gc_retire_object"),
    "rados_ops_active": ("objecter", "op_active"),
}
#: of each zone that a gateway copies from
OF_ZONES = {"sync_fetch_errors": "fetch_errors", "sync_poll_errors": "poll_errors", "sync_fetched": "fetch_bytes"}
SYNC = "data-sync-from-"
POOLS = ("bluestore_cache_onode", "bluestore_cache_data", "bluestore_cache_other", "osd_pglog", "buffer_anon", "bluefs")


def ask(path, prefix):
    """Return a daemon's reply, None for none."""
    with contextlib.suppress(OSError, ValueError, struct.error), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(TIMEOUT)
        connection.connect(path)
        connection.sendall(json.dumps({"prefix": prefix, "format": "json"}).encode() + b"\0")
        (left,) = struct.unpack(">I", connection.recv(4, socket.MSG_WAITALL))
        parts = []
        while 0 < left <= LARGEST:
            parts.append(connection.recv(min(left, 1 << 20)))
            if not parts[-1]:
                return None
            left -= len(parts[-1])
        return json.loads(b"".join(parts).decode())
    return None


def number(value):
    """Return a counter, or [number, seconds] of a latency."""
    return [value["avgcount"], round(value["sum"], 6)] if isinstance(value, dict) else value


def chosen(dump, table):
    values = {}
    for name, (section, *counters) in table.items():
        section_counters = dump.get(section) or {}
        for counter in counters:
            if counter in section_counters:
                values[name] = number(section_counters[counter])
                break
    return values


def sockets():
    """Return {daemon: paths}: "osd.3", "client.rgw.a"; a stopped daemon's socket may be left there."""
    paths_by_daemon = {}
    for path in sorted(path for pattern in SOCKETS for path in glob.glob(pattern)):
        osd, client = _OSD.search(path), _CLIENT.search(path)
        if osd or client:
            paths_by_daemon.setdefault("osd." + osd.group(1) if osd else "client." + client.group(1), []).append(path)
    return paths_by_daemon


def closed():
    """Return the first folder or socket that this user may not use; None where there is none."""
    for folder in sorted(folder.rstrip("/") for pattern in FOLDERS for folder in glob.glob(pattern)):
        if not os.access(folder, os.R_OK | os.X_OK):
            return folder
    return next((path for paths in sockets().values() for path in paths if not os.access(path, os.W_OK)), None)


def mark_of_sockets():
    """Return a text that is the same for all agents that see the same sockets."""
    boot = folder = ""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    with contextlib.suppress(OSError):
        status = os.stat(FOLDERS[0])
        folder = f"{status.st_dev}:{status.st_ino}"
    return boot + " " + folder


def sample_osd(path, score):
    dump = ask(path, "perf dump")
    if not dump:
        return None
    counters = chosen(dump, OF_OSDS)
    pools = ((ask(path, "dump_mempools") or {}).get("mempool") or {}).get("by_pool") or {}
    counters.update(("mempool_" + name + "_bytes", pools[name]["bytes"]) for name in POOLS if name in pools)
    if score:
        rating = ask(path, "bluestore allocator score block")
        if rating and "fragmentation_rating" in rating:
            counters["allocator_score"] = round(rating["fragmentation_rating"], 9)
    return counters


def sample_gateway(path):
    dump = ask(path, "perf dump")
    if not dump or "rgw" not in dump:
        return None  # another client of Ceph
    counters = chosen(dump, OF_GATEWAYS)
    zones = [zone for section, zone in dump.items() if section.startswith(SYNC)]
    for name, counter in OF_ZONES.items():
        values = [number(zone[counter]) for zone in zones if counter in zone]
        if values:
            counters[name] = sum(value[1] if isinstance(value, list) else value for value in values)
    return counters


def sample(score, shared):
    """Return {daemon: counters}; `shared` keeps the names that several daemons have, and what to say of it."""
    counters_by_daemon = {}
    for daemon, paths in sockets().items():
        counters_by_path = {
            path: sample_osd(path, score) if daemon.startswith("osd.") else sample_gateway(path) for path in paths
        }
        counters_by_path = {path: counters for path, counters in counters_by_path.items() if counters}
        if len(counters_by_path) > 1:
            shared[daemon] = f"several daemons are called {daemon}: each is named with its process"
        for path, counters in counters_by_path.items():
            name = os.path.basename(path)[len("ceph-") : -len(".asok")] if daemon in shared else daemon
            counters_by_daemon[name] = counters
    return counters_by_daemon


def main(interval):
    about = {"node": os.uname()[1], "machine": mark_of_sockets(), "interval": interval}
    write_line({"version": 1, "t": round(time.time(), 3), **about})
    samples, scored, previous, last, shared, reported, written = 0, None, None, False, {}, 0, set()
    path = closed()
    if path:
        write_limit(path + " may not be asked: this needs root")
    while True:
        begun = time.monotonic()
        score = last or scored is None or begun >= scored + SCORE
        record = {"t": round(time.time(), 3), "d": sample(score, shared)}
        if previous is not None:
            record["s"] = round(begun - previous, 3)  # seconds that have passed: a clock may be set
        previous = begun
        scored = begun if score else scored
        write_line(record)
        for daemon, text in list(shared.items())[reported:]:
            if daemon in written:  # its name has changed
                write_limit(text)
        reported = len(shared)
        written.update(record["d"])
        samples += 1
        if last:
            break
        every = interval if samples < FINE else interval * COARSER
        wait = max(0.1, begun + every - time.monotonic())
        last = bool(select.select([0], [], [], wait)[0]) and not os.read(0, 4096)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    used = round(usage.ru_utime + usage.ru_stime, 3)
    write_line({"t": round(time.time(), 3), "end": "told", "samples": samples, "cpu": used})


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    main(float(sys.argv[1]))
