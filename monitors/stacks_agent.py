"""Runs on a node: call stacks of its Ceph daemons, as perf samples them, as JSON lines on standard output.

Standard library only, Python 3.6. Its argument is {"hz", "seconds", "interval", "calls"}. Every `interval` seconds it
looks for `seconds`. A line with "limit" says where it does less. Ends when standard input closes.
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
import tempfile
import time

from cbt_plugins.daemon_programs import TYPES
from cbt_plugins.monitors.numbered_output import output_size, write_limit, write_line

#: time on a processor, which virtual machines can sample too
EVENT = "cpu-clock"
#: looks after which they are so many times rarer: somebody must read a day of them
FINE, COARSER = 360, 10
#: frames of a stack, counted from its root, and stacks of a look; what has more is cut
DEEPEST, MOST = 100, 20000
#: stands for the stacks of a class that are cut: their samples count
CUT = "[cut]"
#: bytes that perf may write in a look, of the stacks of a line, and of this file
LARGEST_LOOK, LARGEST_LINE, LARGEST_FILE = 256 << 20, 4 << 20, 512 << 20
#: bytes of the stack that perf copies with a sample; of a whole sample by how it finds callers
COPIED = 8192
SAMPLE = {"fp": 1200, "dwarf": COPIED + 1200}
#: "tp_osd_tp  8417/9924": name of the thread, process and thread
_HEAD = re.compile(r"^(\S.*?)\s+(\d+)/(\d+)\s*$")
#: "    7f8044086630 std::_Rb_tree_increment"
_FRAME = re.compile(r"^\s+([0-9a-f]+) (.+?)\s*$")
#: name of a function without a symbol
UNNAMED = "[unknown]"
#: lowest address of the kernel
KERNEL = 1 << 63
#: share of a class's samples, in functions without a symbol, from which on flame graphs show little of the class
NO_SYMBOLS = 0.5


def daemons():
    """Return the process numbers of the node's daemons -> their class."""
    class_by_pid = {}
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                name = os.path.basename(file.read().split(b"\0")[0].decode(errors="replace"))
        except OSError:
            continue  # it has ended
        if name in TYPES:
            class_by_pid[int(path.split("/")[2])] = TYPES[name]
    return class_by_pid


def mark_of_processes():
    """Return a text that is the same for all agents that see the same processes; "" where it is not known."""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    return ""


def folded(lines, kinds):
    """Return (samples, "class;thread;root;...;leaf" -> how many, {class: (unnamed, all)}) of what `perf script` prints.

    unnamed, all: samples in a function of the program without a symbol, and in any function. The innermost function is
    always right; the callers of a program without frame pointers may be no functions at all.
    """
    counts, unnamed, all_of_program = collections.Counter(), collections.Counter(), collections.Counter()
    kind, thread, frames = None, None, []

    def close():
        if kind:
            named_frames = [frame for _, frame in reversed(frames) if frame != UNNAMED][:DEEPEST] or [UNNAMED]
            counts[";".join([kind, thread, *named_frames])] += 1
            innermost = next((frame for address, frame in frames if address < KERNEL), None)
            all_of_program[kind] += innermost is not None
            unnamed[kind] += innermost == UNNAMED

    for line in lines:
        head = _HEAD.match(line)
        if head:
            kind, thread, frames = kinds.get(int(head.group(2))), head.group(1).replace(";", ":"), []
            continue
        frame = _FRAME.match(line)
        if frame:
            frames.append((int(frame.group(1), 16), frame.group(2).replace(";", ":")))
        elif not line.strip():
            close()
            kind = None
    close()
    kept, size = collections.Counter(), 0
    for rank, (stack, n) in enumerate(counts.most_common()):
        size += len(stack.encode())
        # what follows is rarer
        kept[stack if rank < MOST and size <= LARGEST_LINE else f"{stack.split(';')[0]};{CUT}"] += n
    return sum(counts.values()), dict(kept), {kind: (unnamed[kind], all_of_program[kind]) for kind in all_of_program}


def texts_without_symbols(symbols):
    """Return class -> text of the classes whose programs lack symbols; `symbols`: {class: (unnamed, all)} of a look."""
    return {
        kind: f"{kind}: no symbols: {unnamed} of {n} samples are in functions without a name, which flame graphs lack"
        for kind, (unnamed, n) in symbols.items()
        if unnamed > NO_SYMBOLS * n
    }


def text_of_cut(stacks, n):
    """Return the text that samples of a look have no stack; "" where all have one."""
    cut = sum(samples for stack, samples in stacks.items() if stack.endswith(f";{CUT}"))
    return f"stacks of a look are too long: {cut} of {n} samples have no functions in flame graphs" if cut else ""


def length(options, cpus):
    """Return the seconds of a look: fewer than asked for where perf would write too much."""
    return min(options["seconds"], round(LARGEST_LOOK / (options["hz"] * cpus * SAMPLE[options["calls"]]), 3))


def look(kinds, options):
    """Return the result of one look as a record, with "error" where perf did not work; and whether it was the last.

    Of all processors, not of the daemons' threads: each thread would need 1/hz of CPU time before its first sample,
    which most of a gateway's hundreds never have in one look.
    """
    graph = ["-g"] if options["calls"] == "fp" else ["--call-graph", f"dwarf,{COPIED}"]
    try:
        # without a name: no other agent has it in its way, and nothing is left of it after a kill
        with tempfile.TemporaryFile(dir=".") as data:
            path, fds = f"/proc/self/fd/{data.fileno()}", [data.fileno()]
            record = ["perf", "record", "-q", "-e", EVENT, "-F", str(options["hz"]), *graph, "-a", "-o", path]
            record += ["--", "sleep", str(options["seconds"])]
            begun = time.monotonic()
            recorder = subprocess.Popen(record, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, pass_fds=fds)
            last = ended(recorder)
            lasted, messages = time.monotonic() - begun, recorder.communicate()[1].decode(errors="replace").strip()
            show = ["perf", "script", "-i", path, "-F", "comm,pid,tid,ip,sym"]
            with subprocess.Popen(
                show, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, pass_fds=fds
            ) as script:
                n, stacks, symbols = folded((text.decode(errors="replace") for text in script.stdout), kinds)
    except OSError as e:
        return {"error": "perf: " + (e.strerror or str(e))}, False
    if not n and messages:
        return {"error": messages.splitlines()[-1][:300]}, last
    return {
        "s": round(min(lasted, options["seconds"]), 3),
        "daemons": len(kinds),
        "n": n,
        "stacks": stacks,
        "symbols": symbols,
    }, last


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
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def main(options):
    about = {"node": os.uname()[1], "machine": mark_of_processes(), "hz": options["hz"]}
    write_line(dict(about, version=1, t=round(time.time(), 3)))
    seconds = length(options, os.cpu_count() or 1)
    if seconds < options["seconds"]:
        write_limit(f"looks of {seconds:g} s instead of {options['seconds']:g}: perf would write too much")
        options = dict(options, seconds=seconds)
    looks, last, without_symbols, has_cut = 0, False, set(), False
    while not last:
        if output_size() >= LARGEST_FILE:
            write_limit(f"no look any more: its file has {LARGEST_FILE >> 20} MiB")
            while os.read(0, 4096):
                pass
            break
        t, begun, kinds = time.time(), time.monotonic(), daemons()
        record, last = look(kinds, options) if kinds else ({"error": "no Ceph daemon runs here"}, False)
        for kind, text in texts_without_symbols(record.pop("symbols", {})).items():
            if kind not in without_symbols:
                without_symbols.add(kind)
                write_limit(text)
        cut_text = text_of_cut(record.get("stacks", {}), record.get("n", 0))
        if cut_text and not has_cut:
            has_cut = True
            write_limit(cut_text)
        write_line(dict(record, t=round(t, 3)))
        looks += 1
        if not last:
            rarer = COARSER * max(options["interval"], seconds)
            due = begun + (options["interval"] if looks < FINE else rarer)
            wait = max(0.0 if "n" in record else 1.0, due - time.monotonic())
            last = bool(select.select([0], [], [], wait)[0]) and not os.read(0, 4096)
    write_line({"t": round(time.time(), 3), "end": "told", "looks": looks, "cpu": round(cpu(), 3)})


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    main(json.loads(sys.argv[1]))
