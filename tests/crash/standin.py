"""A cluster that is not there: `ceph`, `ssh`, `pdsh`, `systemctl`, `ip`, `radosgw-admin`, `collectl` as one program.

The program's name says what it plays. Its state is a folder (STANDIN): state.json, nodes/NAME/ for what a node has of
its own, and for each run (STANDIN_RUN) runs/NUMBER/calls.jsonl with its calls in order and runs/NUMBER/stat, what /proc
said of its process. A call that comes after its run was killed is that run's, also while the next one is at work. Nodes
are this machine; a few paths in the commands that they get become ones below their folder. STANDIN_AT="N:MODE" says
what happens at the run's call N (counted from 1); "PROGRAM WORDS:MODE", at each call of it with these words:

    fail   it fails, without effect                 hang   it never answers, without effect
    kill   the run is killed by SIGKILL, and what it had asked for comes to pass a moment later
    term   the run gets SIGTERM, and continues
    twice  the same, and SIGHUP at its next call
"""

import fcntl
import json
import os
import signal
import sys
import time

from standin_world import World

#: seconds that a command is under way still, when its run is dead already
LATE = 0.4
SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "twice": signal.SIGTERM}


# ---- the program ----


class Folder:
    """State on disk; one call at a time changes it."""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        self.lock = open(os.path.join(self.path, "lock"), "a")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        with open(os.path.join(self.path, "state.json")) as file:
            self.state = json.load(file)
        return World(self.state)

    def __exit__(self, kind, *_):
        if kind is None:
            write(self.path, "state.json", self.state)
        self.lock.close()

    def count(self, name, words):
        """Write the call down; which one it is."""
        with open(os.path.join(run_folder(self.path), "calls.jsonl"), "a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            number = sum(1 for _ in file) + 1
            call = {"n": number, "call": name, "words": words, "node": os.environ.get("STANDIN_NODE", "")}
            file.write(json.dumps(call) + "\n")
        return number


def write(folder, name, value):
    path = os.path.join(folder, name)
    with open(path + ".new", "w") as file:
        json.dump(value, file, indent=1, sort_keys=True)
    os.replace(path + ".new", path)


def run_folder(folder):
    return os.path.join(folder, "runs", os.environ["STANDIN_RUN"])


def hit_the_run(folder, number):
    """Signal the run, if its process is still the one that was written down."""
    with open(os.path.join(run_folder(folder), "stat")) as file:
        stat = file.read()
    pid = int(stat.split()[0])
    try:
        with open(f"/proc/{pid}/stat") as file:
            if started(file.read()) == started(stat):
                os.kill(pid, number)
    except OSError:
        pass  # it is gone already


def started(stat):
    return stat.rpartition(")")[2].split()[19]


def on_node(folder, node, command):
    """The command as it runs on a node: with the node's own folders."""
    home = os.path.join(folder.path, "nodes", node)
    for below in ("proc", "net/eth0"):
        os.makedirs(os.path.join(home, below), exist_ok=True)
    if not os.path.exists(os.path.join(home, "net/eth0/flags")):
        for name, text in (("flags", "0x1003\n"), ("operstate", "up\n")):
            with open(os.path.join(home, "net/eth0", name), "w") as file:
                file.write(text)
    changes = {"/run/cbt-plugins": "/run", "[ -w /run ]": "true", "/run/systemd": "/systemd", "/sys/class/net": "/net"}
    for old, new in changes.items():
        command = command.replace(old, new if new == "true" else home + new)
    command = command.replace("/proc/[0-9]*", home + "/proc/[0-9]*")
    environment = dict(os.environ, STANDIN_NODE=node, SSH_CONNECTION="10.0.0.1 1 10.0.0.2 22")
    return ["sh", "-c", command], environment


def reachable(folder, node):
    with folder as world:
        return world.state["links"].get(node, True)


def ssh(folder, words):
    while words and words[0].startswith("-"):
        words = words[2:] if words[0] in ("-p", "-l", "-i", "-F") else words[1:]
    node, command = words[0].split("@")[-1], " ".join(words[1:])
    if not reachable(folder, node):
        sys.stderr.write(f"ssh: connect to host {node} port 22: No route to host\n")
        return 255
    line, environment = on_node(folder, node, command)
    os.execvpe(line[0], line, environment)


def pdsh(folder, words):
    import subprocess  # only here: it takes half of the start of an interpreter

    nodes = words[words.index("-w") + 1].split(",")
    running = []
    for node in (n.split("@")[-1] for n in nodes):
        if not reachable(folder, node):
            sys.stderr.write(f"pdsh@here: {node}: ssh exited with exit code 255\n")
            continue
        line, environment = on_node(folder, node, words[-1].replace("%%", "%"))
        process = subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        running.append((node, process))
    for node, process in running:
        for text, to in zip(process.communicate(), (sys.stdout, sys.stderr)):
            to.write("".join(f"{node}: {row}\n" for row in text.decode().splitlines()))
    return 0


def ceph(folder, words):
    words = list(words)
    for option in ("-c", "-f", "--format", "--connect-timeout"):
        if option in words:
            at = words.index(option)
            del words[at : at + 2]
    status = 0
    # without words it reads commands, and answers each as it comes, as the real one does
    for line in [words] if words else map(str.split, iter(sys.stdin.readline, "")):
        with folder as world:
            out, err, status = world.ceph(line)
        sys.stdout.write(out)
        sys.stderr.write(err)
        sys.stdout.flush()
    return status


def ip(folder, words):
    node = os.environ["STANDIN_NODE"]
    if words[:2] == ["link", "set"]:
        up = words[-1] == "up"
        with folder as world:
            world.state["links"][node] = up
        home = os.path.join(folder.path, "nodes", node, "net", "eth0")
        with open(os.path.join(home, "flags"), "w") as file:
            file.write("0x1003\n" if up else "0x1002\n")
    return 0


def collectl(folder, words):
    # a shell's background makes its programs deaf to this; the real one listens again
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    time.sleep(3600)
    return 0


def other(name, folder, words):
    with folder as world:
        if name == "systemctl":
            out, err, status = world.systemctl(os.environ.get("STANDIN_NODE", ""), words)
        else:
            out, err, status = world.radosgw_admin([w for w in words if w != "-c"][1:] if "-c" in words else words)
    sys.stdout.write(out)
    sys.stderr.write(err)
    return status


def take_away(path):
    """Whether it was there."""
    try:
        os.remove(path)
    except FileNotFoundError:
        return False
    return True


def accident(folder, name, words):
    """Count a call; what STANDIN_AT has for it comes to pass, and is returned."""
    number = folder.count(name, words)
    at, _, mode = os.environ.get("STANDIN_AT", "0:").rpartition(":")
    program, _, part = at.partition(" ")
    again = mode == "twice" and take_away(os.path.join(run_folder(folder.path), "once"))
    if at != str(number) and not again and not (program == name and part and part in " ".join(words)):
        return ""
    if mode == "fail":
        sys.stderr.write(f"{name}: the stand-in fails\n")
    if mode == "hang":
        time.sleep(3600)
    if mode in SIGNALS:
        hit_the_run(folder.path, signal.SIGHUP if again else SIGNALS[mode])
        if mode == "twice" and not again:
            write(run_folder(folder.path), "once", True)
        time.sleep(LATE)
    return mode


def main():
    folder, name, words = Folder(os.environ["STANDIN"]), os.path.basename(sys.argv[0]), sys.argv[1:]
    if accident(folder, name, words) == "fail":
        return 1
    play = {"ssh": ssh, "pdsh": pdsh, "ceph": ceph, "ip": ip, "collectl": collectl}.get(name)
    return play(folder, words) if play else other(name, folder, words)
