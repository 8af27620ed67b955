"""Runs on a node: what its daemons, disks and interfaces did, as JSON lines on standard output, see docs/RESOURCES.md.

Standard library only, Python 3.6; its monitor says what comes with it. Everything is from /proc and /sys. Ends when
standard input closes.
"""

# mypy: disallow-untyped-defs=False

import contextlib
import fcntl
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time

from cbt_plugins.monitors.node_daemons import HZ, Limits, MemoryLimits, Processes, counters_of, read, text

#: samples after which only every tenth is taken: somebody must read a day of them
FINE, COARSER = 7200, 10
#: seconds between two looks at threads, limits and memory; of a run of hours, each sample is one
LOOK = 5.0
#: cores from which on a process may have a thread that is at its limit
BUSY = 0.8
#: threads of a process in a line
THREADS = 3

# /proc/diskstats: the name, then counters; of these reads, sectors, ms, writes, sectors, ms, busy ms, weighted ms
DISK_NAME, DISK_COUNTERS = 2, (3, 5, 6, 7, 9, 10, 12, 13)
# /proc/net/dev behind the name: bytes, packets, drops received, then the same sent
NET_COUNTERS = (0, 1, 3, 8, 9, 11)
# /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal
CPU_TICKS = slice(1, 9)
# /proc/net/if_inet6 as words
INET6_ADDRESS, INET6_PREFIX, INET6_SCOPE, INET6_NAME = 0, 2, 3, 5
SCOPE_GLOBAL = "00"
# requests of ioctl(2), and where they leave an IPv4 address in a struct ifreq
SIOCGIFADDR, SIOCGIFNETMASK, IFREQ_SIZE, IFREQ_ADDRESS = 0x8915, 0x891B, 256, slice(20, 24)
IFNAME_LENGTH = 15

_NOT_DISKS = ("loop", "ram", "zram", "sr", "fd", "dm-")


def disk_of(number):
    """Return the names of the disks below a device number, through partitions and LVM."""
    path = os.path.realpath("/sys/dev/block/%d:%d" % (os.major(number), os.minor(number)))
    if not os.path.isdir(path):
        return []
    if os.path.exists(path + "/partition"):
        path = os.path.dirname(path)
    with contextlib.suppress(OSError):
        below = os.listdir(path + "/slaves")
        if below:
            disks = []
            for name in below:
                slave = text("/sys/class/block/%s/dev" % name).split(":")
                disks += disk_of(os.makedev(int(slave[0]), int(slave[1])))
            return sorted(set(disks))
    return [os.path.basename(path)]


def disks_of(process):
    """Return {"block", "block.db", "block.wal": disks} of an OSD, as far as this user may read it."""
    disks_by_part = {}
    for part in ("block", "block.db", "block.wal"):
        # the links of a container's folder point to devices that have the same names outside
        for root in ("/proc/%d/root" % process.pid, ""):
            with contextlib.suppress(OSError, ValueError):
                status = os.stat("%s/var/lib/ceph/osd/ceph-%s/%s" % (root, process.id, part))
                disks = disk_of(status.st_rdev or status.st_dev)
                if disks:
                    disks_by_part[part] = disks
                    break
    return disks_by_part


class Disks:
    """Counters of /proc/diskstats: whole disks only."""

    def __init__(self):
        self.index, self._kinds, self._last = {}, {}, {}

    def read(self):
        """Return (new ones, [[index, differences of DISK_COUNTERS...]])."""
        new, lines = {}, []
        for line in (read("/proc/diskstats") or b"").splitlines():
            words = line.split()
            name = words[DISK_NAME].decode()
            if name not in self._kinds:
                self._kinds[name] = not name.startswith(_NOT_DISKS) and os.path.isdir("/sys/block/" + name)
            if not self._kinds[name]:
                continue
            if name not in self.index:
                self.index[name] = len(self.index)
                about = {"name": name, "rotational": text("/sys/block/%s/queue/rotational" % name) == "1"}
                new[self.index[name]] = about
            lines += difference(self._last, self.index[name], [int(words[i]) for i in DISK_COUNTERS])
        return new, lines


class Interfaces:
    """Counters of /proc/net/dev: all interfaces but lo."""

    def __init__(self):
        self.index, self._last = {}, {}

    def read(self):
        """Return (new ones, [[index, differences of NET_COUNTERS...]])."""
        new, lines = {}, []
        for line in (read("/proc/net/dev") or b"").splitlines()[2:]:
            name, _, counters = line.decode().partition(":")
            name = name.strip()
            if name == "lo":
                continue
            if name not in self.index:
                self.index[name] = len(self.index)
                new[self.index[name]] = self._about(name)
            words = counters.split()
            lines += difference(self._last, self.index[name], [int(words[i]) for i in NET_COUNTERS])
        return new, lines

    def _about(self, name):
        about = {"name": name, "speed": None, "addresses": addresses(name)}
        speed = text("/sys/class/net/%s/speed" % name)
        if speed.isdigit() and 0 < int(speed) < 1 << 31:
            about["speed"] = int(speed)
        with contextlib.suppress(OSError):
            about["master"] = os.path.basename(os.readlink("/sys/class/net/%s/master" % name))
        return about


def difference(last, index, values):
    """Return [the line of what has changed since the last call], [] for nothing; restarted counters count from zero."""
    before, last[index] = last.get(index), values
    if before is None:
        return []
    line = [b - a if b >= a else b for a, b in zip(before, values)]
    return [[index, *line]] if any(line) else []


def addresses(name):
    """Return the IPv4 and IPv6 addresses of an interface as "address/prefix", without link-local ones."""
    addresses = []
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query_socket:
        word = struct.pack("%ds" % IFREQ_SIZE, name.encode()[:IFNAME_LENGTH])
        requests = (SIOCGIFADDR, SIOCGIFNETMASK)
        address, mask = (fcntl.ioctl(query_socket.fileno(), request, word)[IFREQ_ADDRESS] for request in requests)
        addresses.append("%s/%d" % (socket.inet_ntoa(address), bin(int.from_bytes(mask, "big")).count("1")))
    for line in (read("/proc/net/if_inet6") or b"").decode().splitlines():
        words = line.split()
        if words[INET6_NAME] == name and words[INET6_SCOPE] == SCOPE_GLOBAL:
            address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(words[INET6_ADDRESS]))
            addresses.append("%s/%d" % (address, int(words[INET6_PREFIX], 16)))
    return addresses


def cpu_ticks():
    """Return the ticks of all processors together, CPU_TICKS."""
    line = (read("/proc/stat") or b"").split(b"\n", 1)[0]
    return list(map(int, line.split()[CPU_TICKS]))


class NodeMemory:
    """What a node says of its load and memory."""

    def __init__(self):
        self._swapped = self._read()

    def line(self):
        """Return [load of a minute, KiB available, pages swapped in, out since the line before]."""
        before, self._swapped = self._swapped, self._read()
        load, memory = text("/proc/loadavg").split()[0], text("/proc/meminfo").split()
        available = int(memory[memory.index("MemAvailable:") + 1])
        return [float(load), available, *(b - a for a, b in zip(before, self._swapped))]

    @staticmethod
    def _read():
        counters = counters_of("/proc/vmstat")
        return [int(counters.get(name, 0)) for name in (b"pswpin", b"pswpout")]


def link(path):
    try:
        return os.readlink(path)
    except OSError:
        return None


class NodeSampler:
    """The lines of one connection; see docs/RESOURCES.md."""

    def __init__(self):
        self.samples = self._lines = 0
        self.processes = Processes(os.getpid())
        self._disks, self._interfaces = Disks(), Interfaces()
        self._cpu = cpu_ticks()
        self._last = None
        self._looked = None  # when the threads were read
        self._names = {}  # thread name -> its index in the lines
        self._limits, self._memory_limits, self._memory = Limits(), MemoryLimits(), NodeMemory()

    def line(self, record):
        record["i"] = self._lines
        self._lines += 1
        # one write: a kill leaves whole lines
        os.write(1, json.dumps(record, separators=(",", ":")).encode() + b"\n")

    def begin(self, interval):
        about = {
            "version": 2,
            "t": round(time.time(), 3),
            "node": os.uname()[1],
            "interval": interval,
            "cpus": os.sysconf("SC_NPROCESSORS_ONLN"),
            "hz": HZ,
            "boot": text("/proc/sys/kernel/random/boot_id"),
            "pidns": link("/proc/self/ns/pid"),
            "netns": link("/proc/self/ns/net"),
            "user": os.geteuid(),
        }
        self.line(about)
        self._take(None)

    def sample(self, due, last=False):
        """Write a line; `due` is the number of seconds that should have passed since the last one."""
        passed = time.monotonic() - self._last
        self._take(passed, [round(passed, 3), "the node was too busy"] if passed > max(3 * due, 2.0) else None, last)
        self.samples += 1

    def _take(self, passed, gap=None, last=False):
        now, t = time.monotonic(), time.time()
        self._last = now
        new_processes = self.processes.scan(now)
        disks, disk_lines = self._disks.read()
        interfaces, net_lines = self._interfaces.read()
        names = {}
        if new_processes:
            names["d"] = {index: self._about(process) for index, process in new_processes.items()}
        if disks:
            names["k"] = disks
        if interfaces:
            names["n"] = interfaces
        if names:
            self.line({"t": round(t, 3), "names": names})
        before, self._cpu = self._cpu, cpu_ticks()
        daemons, gone = self._daemons(now)
        looked, ran = self._threads(now, t) if last or self._looked is None or now >= self._looked + LOOK else (0.0, {})
        if passed is None:
            self._limits.rises(self.processes.watched)
            self._memory_limits.rows(self.processes.watched)
            return
        record = {"t": round(t, 3), "s": round(passed, 4), "c": [b - a for a, b in zip(before, self._cpu)]}
        record.update({"d": daemons, "k": disk_lines, "n": net_lines})
        oom_kills = counters_of("/proc/vmstat").get(b"oom_kill")
        if oom_kills:  # none before Linux 4.13
            record["o"] = int(oom_kills)
        if gone:
            record["gone"] = gone
        if gap:
            record["gap"] = gap
        if looked:
            record["look"], record["h"] = round(looked, 3), self._memory.line()
            record["q"] = self._limits.rises(self.processes.watched)
            record["m"] = self._memory_limits.rows(self.processes.watched)
            record["u"] = [[index, *row] for index, thread_times in ran.items() for row in self._by_name(thread_times)]
            busiest = {index: self.busiest_threads(thread_times, 1000 * looked) for index, thread_times in ran.items()}
            busiest = {index: threads for index, threads in busiest.items() if threads}
            if busiest:
                record["threads"] = busiest
        self.line(record)

    def _daemons(self, now):
        lines, gone = [], []
        for index, process in list(self.processes.watched.items()):
            try:
                ticks, rss, threads, done, written = process.counters()
            except (OSError, ValueError):
                gone.append(index)
                self.processes.gone(index, now)
                continue
            last, process.last = process.last, (ticks, done, written)
            # when it may not be read any more, and of threads that have ended, counters fall
            lines.append([index, max(0, ticks - last[0]), rss, threads, done - last[1], written - last[2]])
        return lines, gone

    def _threads(self, now, t):
        """Return (seconds since the look before, 0 of the first one, {daemon: [(ms, thread name)]})."""
        seconds, self._looked = now - self._looked if self._looked else 0.0, now
        ran = {
            index: process.look()
            for index, process in self.processes.watched.items()
            if process.daemon_class != "monitor"
        }
        new = {name: None for thread_times in ran.values() for _, name in thread_times if name not in self._names}
        for name in new:
            self._names[name] = len(self._names)
        if new:
            self.line({"t": round(t, 3), "names": {"t": {self._names[name]: {"name": name} for name in new}}})
        return seconds, {index: thread_times for index, thread_times in ran.items() if thread_times}

    def _by_name(self, ran):
        """Return [[name index, ms]], one for each name."""
        sums = {}
        for ms, name in ran:
            sums[self._names[name]] = sums.get(self._names[name], 0.0) + ms
        return [[index, round(ms, 1)] for index, ms in sums.items() if ms >= 0.05]

    @staticmethod
    def busiest_threads(ran, passed):
        """Return [[thread name, share of a core]] of `passed` ms; none where all together are not busy."""
        if sum(ms for ms, _ in ran) < BUSY * passed:
            return []
        return [[name, round(ms / passed, 3)] for ms, name in sorted(ran, reverse=True)[:THREADS]]

    @staticmethod
    def _about(process):
        about = {
            "class": process.daemon_class,
            "id": process.id,
            "pid": process.pid,
            "since": round(process.started, 2),
        }
        about["io"] = process.io
        if process.daemon_class == "osd":
            disks = disks_of(process)
            if disks:
                about["disks"] = disks
        return about


def main(interval):
    with contextlib.suppress(OSError, ValueError):  # files of threads stay open
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    sampler = NodeSampler()
    sampler.begin(interval)
    due = time.monotonic()
    while True:
        every = interval if sampler.samples < FINE else interval * COARSER
        due = max(due + every, time.monotonic() + every / 10)
        if select.select([0], [], [], due - time.monotonic())[0] and not os.read(0, 4096):
            break
        sampler.sample(every)
    sampler.sample(every, last=True)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    used = round(usage.ru_utime + usage.ru_stime, 3)
    sampler.line({"t": round(time.time(), 3), "end": "told", "samples": sampler.samples, "cpu": used})


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    main(float(sys.argv[1]))
