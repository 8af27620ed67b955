"""Examines Ceph's processes on this node, through /proc, their admin sockets and their ports.

Standard library only (Python 3.6 and newer). A process is PID:START, with its start in clock ticks since the boot.

    ports PID:START                             "127.0.0.1:7480" for each TCP port on which it accepts connections
    answers HOST:PORT...                        "answers" when each takes a request
    silent PID:START...                         "silent" when no process replies, on its admin socket or its ports
    tell PID:START WORDS                        the reply to a command of the admin socket; exit 3: no process
    refused FILE SECONDS HOST:PORT...           write the time from which all refuse connections, in epoch seconds
    quorum FILE SECONDS PID:START EPOCH MON...  write the time from which this ceph-mon is in a quorum without the
                                                MONs, elected after EPOCH
    active MGR...                               "AT NOW": the time since when a ceph-mgr other than the MGRs is active,
                                                and the present time; reads `ceph mgr dump` from standard input
    servers MDS...                              those MDSs that the monitors hear of, or "none"; reads `ceph fs dump`
                                                from standard input
"""

import datetime
import json
import os
import socket
import struct
import sys
import time

#: seconds for a connection, and for a reply
TIMEOUT = 2.0
#: seconds between two looks
PAUSE = 0.02
#: maximum bytes of a reply
LARGEST = 16 << 20
#: exit status when the process has ended
ENDED = 3
_LISTENS = "0A"


def is_alive(process):
    """Tell whether a process runs, and is no later process with the same pid."""
    pid, _, started = process.partition(":")
    try:
        with open("/proc/%s/stat" % pid) as stat:
            fields = stat.read().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[19] == started and fields[0] != "Z"


def inodes(pid):
    """Return the inodes of a process's sockets."""
    links = set()
    for name in os.listdir("/proc/%s/fd" % pid):
        try:
            links.add(os.readlink("/proc/%s/fd/%s" % (pid, name)))
        except OSError:
            continue
    return {link[8:-1] for link in links if link.startswith("socket:[")}


def ports(process):
    """Yield (host, port) at which a process accepts connections."""
    pid = process.partition(":")[0]
    own, seen = inodes(pid), set()
    for table in ("tcp", "tcp6"):
        try:
            with open("/proc/%s/net/%s" % (pid, table)) as lines:
                rows = [line.split() for line in lines][1:]
        except OSError:
            continue
        for row in rows:
            if row[3] != _LISTENS or row[9] not in own:
                continue
            address, _, port = row[1].partition(":")
            for host in hosts(address):
                if (host, int(port, 16)) not in seen and connects(host, int(port, 16)) is None:
                    seen.add((host, int(port, 16)))
                    yield host, int(port, 16)
                    break


def hosts(address):
    """Return the addresses by which this node can reach an address of /proc/net/tcp."""
    raw = bytes.fromhex(address)
    raw = b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4))
    if any(raw):
        return [socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)]
    return ["127.0.0.1"] if len(raw) == 4 else ["::1", "127.0.0.1"]


def endpoint(text):
    """Return (host, port) of "127.0.0.1:7480"."""
    host, _, port = text.rpartition(":")
    return host, int(port)


def connects(host, port):
    """Try to connect; return None, or the error."""
    try:
        socket.create_connection((host, port), TIMEOUT).close()
    except OSError as error:
        return error
    return None


def takes_request(host, port):
    """Tell whether a server replies, or closes the connection, as a server with TLS does."""
    try:
        with socket.create_connection((host, port), TIMEOUT) as connection:
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            connection.recv(1)
    except ConnectionResetError:
        return True
    except OSError:
        return False
    return True


def admin_sockets(process):
    """Return the paths of a process's admin sockets, in the view of this node."""
    pid = process.partition(":")[0]
    own = inodes(pid)
    with open("/proc/%s/net/unix" % pid) as lines:
        rows = [line.split() for line in lines]
    names = {row[7] for row in rows if len(row) == 8 and row[6] in own and row[7].endswith(".asok")}
    # /var/run is a link to /run, which would lead out of a container
    names = {name[4:] if name.startswith("/var/run/") else name for name in names}
    return ["/proc/%s/root%s" % (pid, name) for name in sorted(names)]


def tell(process, words):
    """Return the reply to a command of the admin socket. Raises OSError when no reply comes in time."""
    paths = admin_sockets(process)
    if not paths:
        raise FileNotFoundError("no admin socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(TIMEOUT)
        # the path may be too long for an address
        folder = os.open(os.path.dirname(paths[0]), os.O_PATH)
        try:
            connection.connect("/proc/self/fd/%d/%s" % (folder, os.path.basename(paths[0])))
        finally:
            os.close(folder)
        connection.sendall(json.dumps({"prefix": words}).encode() + b"\0")
        (length,) = struct.unpack(">I", received(connection, 4))
        if length > LARGEST:
            raise OSError("a reply of %d bytes" % length)
        return received(connection, length).decode("utf-8", "replace")


def received(connection, length):
    """Receive `length` bytes. Raises OSError when the connection ends earlier."""
    data = b""
    while len(data) < length:
        part = connection.recv(min(65536, length - len(data)))
        if not part:
            raise OSError("the connection was closed")
        data += part
    return data


def is_silent(process):
    """Tell whether a process is silent on its admin socket or, if it has no admin socket, on its ports."""
    try:
        tell(process, "version")
    except FileNotFoundError:
        return not any(takes_request(*each) for each in ports(process))
    except OSError:
        return True
    return False


def is_refused(endpoints):
    """Tell whether connections to all endpoints are refused."""
    return all(isinstance(connects(*endpoint(text)), ConnectionRefusedError) for text in endpoints)


def is_in_quorum(process, epoch, without):
    """Tell whether a ceph-mon is in a quorum without some other ceph-mons, elected after an epoch."""
    try:
        status = json.loads(tell(process, "mon_status"))
    except (OSError, ValueError):
        return False
    members = {mon["name"] for mon in status["monmap"]["mons"] if mon["rank"] in status["quorum"]}
    new = int(status["election_epoch"]) > int(epoch)
    return new and status["state"] in ("leader", "peon") and bool(members) and not members & set(without)


def active_change(dump, without):
    """Return the time the active ceph-mgr became active, epoch seconds; None if it is in `without`, or not ready."""
    if dump["active_name"] in ("", *without) or not dump["available"]:
        return None
    return datetime.datetime.strptime(dump["active_change"], "%Y-%m-%dT%H:%M:%S.%f%z").timestamp()


def servers(dump, names):
    """Return the ceph-mdss among `names` that are in the file system map, active or standby, and are not laggy."""
    ranks = [info for each in dump["filesystems"] for info in each["mdsmap"]["info"].values()]
    heard = {info["name"] for info in ranks + dump["standbys"] if "laggy_since" not in info}
    return [name for name in names if name in heard]


def write_when(path, seconds, condition):
    """Wait for a condition and write the time, in epoch seconds, into a file; write nothing after `seconds`."""
    end = time.monotonic() + float(seconds)
    while not condition():
        if time.monotonic() >= end:
            return
        time.sleep(PAUSE)
    now = time.time()
    with open(path + ".new", "w") as file:
        file.write("%.6f" % now)
    os.rename(path + ".new", path)


def main(verb, *words):
    if verb == "ports":
        if is_alive(words[0]):
            print("\n".join("%s:%d" % each for each in ports(words[0])))
    elif verb == "answers":
        print("answers" if all(takes_request(*endpoint(text)) for text in words) else "")
    elif verb == "silent":
        print("silent" if all(is_silent(process) for process in words) else "")
    elif verb == "tell":
        if not is_alive(words[0]):
            sys.exit(ENDED)
        print(tell(words[0], words[1]))
    elif verb == "refused":
        write_when(words[0], words[1], lambda: is_refused(words[2:]))
    elif verb == "active":
        at = active_change(json.load(sys.stdin), words)
        print("" if at is None else "%.6f %.6f" % (at, time.time()))
    elif verb == "servers":
        print(" ".join(servers(json.load(sys.stdin), words)) or "none")
    elif verb == "quorum":
        write_when(words[0], words[1], lambda: is_in_quorum(words[2], words[3], words[4:]))


if __name__ == "__main__":
    main(*sys.argv[1:])
