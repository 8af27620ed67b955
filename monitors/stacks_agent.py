"""Runs on a node: call stacks of its Ceph daemons, as perf samples them, as JSON lines on standard output.

Standard library only, Python 3.6. Its argument is {"hz", "seconds", "interval", "calls"}. Every `interval` seconds it
looks for `seconds`. Ends when standard input closes.
"""

# mypy: disallow-untyped-defs=False

import collections
import contextlib
import glob
import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
import time

DAEMONS = {"ceph-osd": "osd", "radosgw": "rgw", "ceph-mon": "mon", "ceph-mgr": "mgr", "ceph-mds": "mds"}
#: time on a processor, which virtual machines can sample too
EVENT = "cpu-clock"
#: of one look, in the monitor's own folder
FILE = "look.data"
#: frames of a stack, counted from its root, and stacks of a look; what has more is cut
DEEPEST, MOST = 100, 20000
#: "tp_osd_tp  8417/9924": name of the thread, process and thread
_HEAD = re.compile(r"^(\S.*?)\s+(\d+)/(\d+)\s*$")
#: "    7f8044086630 std::_Rb_tree_increment"
_FRAME = re.compile(r"^\s+[0-9a-f]+ (.+?)\s*$")


def daemons():
    """Return the process numbers of the node's daemons -> their class."""
    found = {}
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                name = os.path.basename(file.read().split(b"\0")[0].decode(errors="replace"))
        except OSError:
            continue  # it has ended
        if name in DAEMONS:
            found[int(path.split("/")[2])] = DAEMONS[name]
    return found


def folded(lines, kinds):
    """Return (samples, "class;thread;root;...;leaf" -> how many) of what `perf script` prints."""
    counts = collections.Counter()
    kind, thread, frames = None, None, []

    def close():
        if kind:
            known = [its for its in reversed(frames) if its != "[unknown]"][:DEEPEST] or ["[unknown]"]
            counts[";".join([kind, thread, *known])] += 1

    for line in lines:
        head = _HEAD.match(line)
        if head:
            kind, thread, frames = kinds.get(int(head.group(2))), head.group(1).replace(";", ":"), []
            continue
        frame = _FRAME.match(line)
        if frame:
            frames.append(frame.group(1).replace(";", ":"))
        elif not line.strip():
            close()
            kind = None
    close()
    return sum(counts.values()), dict(counts.most_common(MOST))


def look(kinds, options):
    """Return what one look found, as a record, with "error" where perf did not work; and whether it was the last.

    Of all processors, not of the daemons' threads: each thread would need 1/hz of CPU time before its first sample,
    which most of a gateway's hundreds never have in one look.
    """
    graph = ["-g"] if options["calls"] == "fp" else ["--call-graph", "dwarf,8192"]
    record = ["perf", "record", "-q", "-e", EVENT, "-F", str(options["hz"]), *graph, "-a", "-o", FILE]
    record += ["--", "sleep", str(options["seconds"])]
    begun = time.monotonic()
    try:
        recorder = subprocess.Popen(record, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        last = ended(recorder)
        lasted, said = time.monotonic() - begun, recorder.communicate()[1].decode(errors="replace").strip()
        show = ["perf", "script", "-i", FILE, "-F", "comm,pid,tid,ip,sym"]
        with subprocess.Popen(show, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as script:
            n, stacks = folded((text.decode(errors="replace") for text in script.stdout), kinds)
    except OSError as e:
        return {"error": "perf: " + (e.strerror or str(e))}, False
    finally:
        with contextlib.suppress(OSError):
            os.remove(FILE)
    if not n and said:
        return {"error": said.splitlines()[-1][:300]}, last
    return {"s": round(min(lasted, options["seconds"]), 3), "daemons": len(kinds), "n": n, "stacks": stacks}, last


def ended(recorder):
    """Wait for perf; return whether standard input has closed, which ends it at once."""
    while recorder.poll() is None:
        if select.select([0], [], [], 0.2)[0] and not os.read(0, 4096):
            recorder.send_signal(signal.SIGINT)
            recorder.wait()
            return True
    return False


def cpu():
    """Return the seconds of a processor that this process and those it has run have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(its.ru_utime + its.ru_stime for its in used)


def line(record):
    # one write: a kill leaves whole lines
    os.write(1, json.dumps(record, separators=(",", ":")).encode() + b"\n")


def main(options):
    line({"version": 1, "t": round(time.time(), 3), "node": os.uname()[1], "hz": options["hz"]})
    looks, last = 0, False
    while not last:
        t, begun, kinds = time.time(), time.monotonic(), daemons()
        found, last = look(kinds, options) if kinds else ({"error": "no Ceph daemon runs here"}, False)
        line(dict(found, t=round(t, 3)))
        looks += 1
        if not last:
            wait = max(0.0 if "n" in found else 1.0, begun + options["interval"] - time.monotonic())
            last = bool(select.select([0], [], [], wait)[0]) and not os.read(0, 4096)
    line({"t": round(time.time(), 3), "end": "told", "looks": looks, "cpu": round(cpu(), 3)})


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    main(json.loads(sys.argv[1]))
