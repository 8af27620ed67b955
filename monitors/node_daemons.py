"""The daemons of a node, and what /proc and their cgroups say of them: a part of the resources agent.

Standard library only, Python 3.6.
"""

# mypy: disallow-untyped-defs=False

import contextlib
import os
import resource
import time

from cbt_plugins.daemon_programs import TYPES, program_of

#: seconds between two searches for new processes, and between two searches among all
SEARCH, SEARCH_ALL = 10.0, 300.0
#: seconds in which each sample searches: at the beginning, and when a daemon has gone
SEARCH_OFTEN = 30.0
#: files of threads that stay open, of this share of those that a process may have
KEPT_FILES = 0.5

HZ = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")

# /proc/PID/stat, behind the name: positions in proc(5)'s list, less the three that begin it
STATE, UTIME, STIME, NUM_THREADS, START_TIME, RSS = 0, 11, 12, 17, 19, 21
#: states of a process that has ended
ENDED = (b"Z", b"X")
# /proc/PID/io as words: name, value, name, value, ...
READ_BYTES, WRITE_BYTES = 9, 11
# a cgroup's files of v2 and v1: its limit, its OOM kills, and in memory.stat what the kernel cannot take back
MEMORY_FILES = (
    ("memory.max", "memory.events", (b"anon", b"shmem")),
    ("memory.limit_in_bytes", "memory.oom_control", (b"total_rss", b"total_shmem")),
)
#: of v1: bytes from which on a limit is none, and the cgroups that do not count the OOM kills in those below
NO_LIMIT, V1_MEMORY = 1 << 60, "/sys/fs/cgroup/memory"

CLASSES = {
    **TYPES,
    "warp": "generator",
    "cbt-load": "generator",
    "cbt-rows": "generator",
    "hsbench": "generator",
    "fio": "generator",
    "rados": "generator",
}
_NAMES = ("-i", "--id", "-n", "--name")


def read(path):
    """Return a file's bytes, None where it cannot be read."""
    # not open(): it makes three more calls
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        data = chunk = os.read(fd, 1 << 16)
        while len(chunk) >= 1 << 11:
            chunk = os.read(fd, 1 << 16)
            data += chunk
        return data
    except OSError:
        return None
    finally:
        os.close(fd)


def text(path):
    return (read(path) or b"").decode(errors="replace").strip()


def inode_of(path):
    """Return the inode of a file or folder, None where there is none."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return None


def counters_of(path):
    """Return {name: value} of a file with a name and a value in each line."""
    words = (read(path) or b"").split()
    return dict(zip(words[::2], words[1::2]))


def fields(stat):
    """Return the fields after the name in a `stat` file; the name may have spaces and brackets."""
    return stat[stat.rindex(b")") + 2 :].split()


def recognize(name, words):
    """Return (class, id) of a process by its name and arguments, None for one that is not watched."""
    daemon_class = CLASSES.get(name)
    if daemon_class is None or (name == "rados" and "bench" not in words):
        return None
    if daemon_class == "generator":
        return daemon_class, name
    daemon_id = ""
    for i, word in enumerate(words):
        key, equals, value = word.partition("=")
        if key in _NAMES:
            value = value if equals else words[i + 1] if i + 1 < len(words) else ""
            # "osd.3", "client.rgw.a", "mon.a"
            daemon_id = value.split(".", 1)[-1] if key in ("-n", "--name") else value
    return daemon_class, daemon_id


class WatchedThread:
    """A thread of a daemon, and for how long it ran."""

    kept = 0  # files of all threads that are open: to open one costs five times as much as to read it

    def __init__(self, folder):
        self.name = ""
        self._folder, self._looks, self._ms = folder, 0, 0.0
        # to a thousandth of a ms; without it ticks, of which many threads lose many
        self._exact = os.path.exists(folder + "/schedstat")
        self._path = folder + ("/schedstat" if self._exact else "/stat")
        self._fd = None
        if WatchedThread.kept < KEPT_FILES * resource.getrlimit(resource.RLIMIT_NOFILE)[0]:
            with contextlib.suppress(OSError):
                self._fd = os.open(self._path, os.O_RDONLY)
                WatchedThread.kept += 1

    def ran(self):
        """Return the ms for which it ran since the last call. Raises OSError or ValueError when it has ended."""
        if self._looks < 2:  # a thread gets its name after it has begun
            self.name = text(self._folder + "/comm")
            self._looks += 1
        data = read(self._path) if self._fd is None else os.pread(self._fd, 4096, 0)
        if not data:
            raise ProcessLookupError
        if self._exact:
            now = int(data.split(None, 1)[0]) / 1e6
        else:
            words = fields(data)
            now = (int(words[UTIME]) + int(words[STIME])) * 1000.0 / HZ
        before, self._ms = self._ms, now
        return now - before

    def close(self):
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
            WatchedThread.kept -= 1


class WatchedProcess:
    """One daemon. Its files stay open: they mean this process also when its number is given to another one."""

    def __init__(self, pid, daemon_class, name, since):
        self.pid, self.daemon_class, self.id, self.since = pid, daemon_class, name, since
        self._stat = os.open("/proc/%d/stat" % pid, os.O_RDONLY)
        self._io = None
        with contextlib.suppress(OSError):
            self._io = os.open("/proc/%d/io" % pid, os.O_RDONLY)
        self.last = (0, 0, 0)
        self.threads = None  # as read last: {number: WatchedThread}
        self.ticks_then = 0  # of all threads at that time

    def counters(self):
        """Return (ticks, resident KiB, threads, bytes read, bytes written). Raises OSError when it is gone."""
        stat = fields(os.pread(self._stat, 4096, 0))
        if stat[STATE] in ENDED:
            raise ProcessLookupError
        done, written = 0, 0
        if self._io is not None:
            try:
                words = os.pread(self._io, 4096, 0).split()
                done, written = int(words[READ_BYTES]), int(words[WRITE_BYTES])
            except (OSError, IndexError):
                os.close(self._io)
                self._io = None
                done, written = self.last[1:]
        ticks = int(stat[UTIME]) + int(stat[STIME])
        return ticks, int(stat[RSS]) * PAGE >> 10, int(stat[NUM_THREADS]), done, written

    @property
    def io(self):
        return self._io is not None

    def look(self):
        """Return [(ms, name)] of the threads that ran since the look before; none the first time."""
        ticks, self.ticks_then = self.last[0] - self.ticks_then, self.last[0]
        before = self.threads
        if before is not None and not ticks:
            return []
        self.threads, ran = {}, []
        folder = "/proc/%d/task" % self.pid
        with contextlib.suppress(OSError):
            for number in os.listdir(folder):
                thread = (before and before.pop(number, None)) or WatchedThread("%s/%s" % (folder, number))
                try:
                    ms = thread.ran()
                except (OSError, ValueError):
                    thread.close()  # it has ended; another one with its number is found by the next look
                    continue
                self.threads[number] = thread
                if ms > 0 and before is not None:
                    ran.append((ms, thread.name))
        for thread in (before or {}).values():
            thread.close()
        return ran

    def close(self):
        for fd in (self._stat, self._io):
            if fd is not None:
                os.close(fd)
        for thread in (self.threads or {}).values():
            thread.close()


class Processes:
    """The daemons of the node: searched among all processes at first, then among new ones."""

    def __init__(self, me):
        self._me = me
        self._seen, self._young = set(), set()
        self._next = self._next_all = self._hurry = 0.0
        self.watched = {}  # index in the lines -> WatchedProcess
        self._index = 0
        self._begun = None  # when the first search was over, epoch seconds
        self._booted = time.time() - float(read("/proc/uptime").split()[0])

    def scan(self, now):
        """Return the new ones, {index: WatchedProcess}."""
        if self._begun is None:
            self._hurry = now + SEARCH_OFTEN  # a run has just begun
        elif now >= self._hurry and now < self._next:
            return {}
        entries = {entry for entry in os.listdir("/proc") if entry.isdigit()}
        if now >= self._next_all:
            look, self._next_all = entries, now + SEARCH_ALL
        else:
            # what was new at the last search may have become another program since
            look = (entries - self._seen) | (self._young & entries)
        self._young, self._seen = entries - self._seen if self._begun else set(), entries
        self._next = now + SEARCH
        mine = {process.pid: process.since for process in self.watched.values()}
        new_processes = {}
        for entry in look:
            process = self.process_of(int(entry), mine)
            if process is not None:
                self._index += 1
                new_processes[self._index - 1] = process
        self.watched.update(new_processes)
        self._begun = self._begun or time.time()
        return new_processes

    def process_of(self, pid, mine):
        """Return the daemon that a pid is; None for another program, and for one that `mine` has already."""
        process_name = text("/proc/%d/comm" % pid)
        name = program_of(process_name)
        if pid != self._me and name not in CLASSES:
            return None
        stat = read("/proc/%d/stat" % pid)
        if not stat or fields(stat)[STATE] in ENDED:
            return None
        ticks = int(fields(stat)[START_TIME])
        if mine.get(pid) == ticks:
            return None
        words = (read("/proc/%d/cmdline" % pid) or b"").decode(errors="replace").split("\0")
        identity = ("monitor", "resources") if pid == self._me else recognize(name, words[1:])
        if identity is None or (name != process_name and os.path.basename(words[0]) != name):
            return None
        try:
            process = WatchedProcess(pid, identity[0], identity[1], ticks)
            ticks_now, _, _, done, written = process.counters()
        except (OSError, ValueError):
            return None
        process.started = self._booted + ticks / HZ
        # all that a younger one ever did was done under watch; its start is known to 0.01 s
        if not self._begun or process.started < self._begun - 1.0:
            process.last = (ticks_now, done, written)
        else:
            process.threads = {}
        process.ticks_then = process.last[0]
        return process

    def gone(self, index, now):
        self.watched.pop(index).close()
        self._hurry = now + SEARCH_OFTEN


class Limits:
    """The CPU limits of cgroups (v1 and v2) that processes are in, their own and those above."""

    def __init__(self):
        self._files, self._last = {}, {}  # process index -> files; file -> (periods, throttled periods)

    def rises(self, processes):
        """Return [[process index, periods, periods in which it was throttled]] of those that a limit has stopped."""
        now, rows = {}, []
        for index, process in processes.items():
            if index not in self._files:
                self._files[index] = throttle_files(process.pid)
            for file in self._files[index]:
                if file not in now:
                    now[file] = self._periods(file)
            current = [now[f] for f in self._files[index] if now[f] and f in self._last]
            before = [self._last[f] for f in self._files[index] if now[f] and f in self._last]
            rises = [(b[1] - a[1], b[0] - a[0]) for a, b in zip(before, current)]
            throttled, periods = max(rises) if rises else (0, 0)
            if periods > 0:
                rows.append([index, periods, throttled])
        self._last = {file: counts for file, counts in now.items() if counts}
        self._files = {index: files for index, files in self._files.items() if index in processes}
        return rows

    @staticmethod
    def _periods(file):
        counters = counters_of(file)
        return (int(counters[b"nr_periods"]), int(counters[b"nr_throttled"])) if b"nr_throttled" in counters else None


class MemoryLimits:
    """The memory limits of cgroups (v1 and v2) that processes are in, their own and those above."""

    def __init__(self):
        self._folders, self._last = {}, {}  # process index -> folders; folder -> its inode and OOM kills

    def rows(self, processes):
        """Return [[process index, KiB of its limit, KiB in use, OOM kills in its cgroup since the call before]].

        Of several limits, it is the one that is used most, and 0 without a limit. Of no limit and no kill: no row. A
        process that has gone has a row if its cgroup, of v2 also one above, is still there: it has counted its kill.
        """
        now, rows, kills_by_folder = {}, [], {}
        ended = {index: self._folders.pop(index) for index in sorted(set(self._folders) - set(processes))}
        for index, process in processes.items():
            is_new = index not in self._folders
            if is_new:
                self._folders[index] = list(cgroups(process.pid, "memory"))
            levels = []
            for folder in self._folders[index]:
                if folder not in now:
                    now[folder] = self._read(folder)
                levels += [(folder, now[folder])] if now[folder] else []
            limits = [(used / max(limit, 1), limit, used) for _, (_, _, limit, used) in levels if limit is not None]
            _, limit, used = max(limits) if limits else (0.0, 0, 0)
            # kills before it was found are those of other processes
            kills = self._new_kills(*levels[0]) if levels and not is_new else 0
            if limits or kills:
                rows.append([index, limit >> 10, used >> 10, kills])
            if kills:
                kills_by_folder[levels[0][0]] = kills
        rows += self._rows_of_ended(ended, kills_by_folder)
        self._last = {folder: cgroup[:2] for folder, cgroup in now.items() if cgroup}
        return rows

    def _rows_of_ended(self, ended, kills_by_folder):
        """Return the rows of processes that have gone. `kills_by_folder`: the kills in cgroups of other processes.

        A cgroup above counts the kills of all cgroups below. A process has one of those that no cgroup below has.
        """
        rises, rows = [], []
        for index, folders in ended.items():
            for folder, kills in self._first_rise(folders):
                if folder == folders[0]:
                    kills_by_folder[folder] = kills
                    rows.append([index, 0, 0, kills])
                else:
                    rises.append((index, folder, kills))
        for index, folder, kills in sorted(rises, key=lambda rise: -len(rise[1])):
            below = sum(n for group, n in kills_by_folder.items() if (group + "/").startswith(folder + "/"))
            own = 1 if kills > below else 0
            kills_by_folder[folder] = kills_by_folder.get(folder, 0) + own
            rows.append([index, 0, 0, own])
        return rows

    def _first_rise(self, folders):
        """Return [(folder, its new OOM kills)] of the first of the cgroups that is still there; [] of none."""
        folders = [folder for folder in folders if folder in self._last]
        for folder in folders[:1] if folders and folders[0].startswith(V1_MEMORY) else folders:
            cgroup = self._read(folder)
            if cgroup and cgroup[0] == self._last[folder][0]:
                return [(folder, self._new_kills(folder, cgroup))]
        return []

    def _new_kills(self, folder, cgroup):
        inode, kills = cgroup[:2]
        inode_before, before = self._last.get(folder, (inode, kills))
        return kills - before if inode == inode_before else kills

    @staticmethod
    def _read(folder):
        """Return (inode, OOM kills, bytes of the limit or None, bytes in use); None of no cgroup with memory."""
        for limit_file, kills_file, used_names in MEMORY_FILES:
            word = read("%s/%s" % (folder, limit_file))
            if word:
                kills = int(counters_of("%s/%s" % (folder, kills_file)).get(b"oom_kill", 0))
                limit = None if word.strip() == b"max" or int(word) >= NO_LIMIT else int(word)
                # the kernel takes long to write it
                counters = {} if limit is None else counters_of(folder + "/memory.stat")
                return inode_of(folder), kills, limit, sum(int(counters.get(name, 0)) for name in used_names)
        return None


def throttle_files(pid):
    """Return the cpu.stat of each cgroup of a process that could have a limit."""
    files = [folder + "/cpu.stat" for folder in cgroups(pid, "cpu")]
    return [file for file in files if b"nr_throttled" in (read(file) or b"")]


def cgroups(pid, controller):
    """Yield the folders of the cgroups that could limit a process, its own first.

    The root that a pod or a container sees is its own cgroup, which may have a limit; that of a machine has none.
    """
    for line in text("/proc/%d/cgroup" % pid).splitlines():
        number, kinds, path = line.split(":", 2)
        parts = [part for part in path.split("/") if part]
        if (number != "0" and controller not in kinds.split(",")) or ".." in parts:
            continue
        top = "/sys/fs/cgroup/" + kinds
        for n in range(len(parts), -1, -1):
            yield "/".join([top.rstrip("/"), *parts[:n]])
