"""Takes servers out of a haproxy on this node, and puts them back, through haproxy's admin socket.

Standard library only (Python 3.6 and newer). A server is BACKEND/SERVER.

    find SOCKET HOST:PORT...          "BACKEND/SERVER STATE" of each server with one of these addresses
    drain SOCKET SECONDS SERVER...    stop new requests; wait for requests in flight, for at most SECONDS
    ready SOCKET SERVER...            allow new requests
    state SOCKET SERVER...            the common state: "ready", "down", "drain" or "maint"; "mixed" if they differ
"""

import csv
import socket
import sys
import time

#: seconds for a reply
TIMEOUT = 5.0
#: seconds between two looks
PAUSE = 0.1
#: maximum bytes of a reply
LARGEST = 16 << 20
#: bits of the administrative state, and the operational state of a running server
_MAINTENANCE, _DRAIN, _RUNS = 0x01 | 0x02 | 0x04 | 0x20, 0x08 | 0x10, "2"


class BalancerError(Exception):
    """haproxy refused; the text is for the user."""


def ask(path, command):
    """Return the reply to a command. Raises OSError, BalancerError."""
    reply = b""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(TIMEOUT)
        connection.connect(path)
        connection.sendall(command.encode() + b"\n")
        while True:
            part = connection.recv(65536)
            if not part or len(reply) > LARGEST:
                return reply.decode("utf-8", "replace").strip()
            reply += part


def servers(path):
    """Return "BACKEND/SERVER" -> its row of `show servers state`."""
    lines = ask(path, "show servers state").splitlines()
    header = next((line for line in lines if line.startswith("# be_id")), "")
    if not header:
        raise BalancerError("could not parse `show servers state`: %s" % " ".join(lines)[:200])
    rows = [dict(zip(header.split()[1:], line.split())) for line in lines if line[:1].isdigit() and " " in line]
    return {"%s/%s" % (row["be_name"], row["srv_name"]): row for row in rows}


def server_state(row):
    """Return the state of a server."""
    bits = int(row["srv_admin_state"])
    if bits & _MAINTENANCE:
        return "maint"
    if bits & _DRAIN:
        return "drain"
    return "ready" if row["srv_op_state"] == _RUNS else "down"


def sessions(path, names):
    """Return the number of requests in flight on servers."""
    rows = csv.DictReader(ask(path, "show stat").lstrip("# ").splitlines())
    return sum(int(row["scur"] or 0) for row in rows if "%s/%s" % (row["pxname"], row["svname"]) in names)


def order(path, names, state):
    """Set the state of servers."""
    for name in names:
        reply = ask(path, "set server %s state %s" % (name, state))
        if reply:
            raise BalancerError("set server %s state %s: %s" % (name, state, reply.splitlines()[0]))


def main(verb, path, *words):
    if verb == "find":
        for name, row in sorted(servers(path).items()):
            if "%s:%s" % (row["srv_addr"], row["srv_port"]) in words:
                print(name, server_state(row))
    elif verb == "drain":
        end = time.monotonic() + float(words[0])
        order(path, words[1:], "drain")
        while sessions(path, words[1:]) and time.monotonic() < end:
            time.sleep(PAUSE)
    elif verb == "ready":
        order(path, words, "ready")
    elif verb == "state":
        rows = servers(path)
        states = {server_state(rows[name]) if name in rows else "absent" for name in words}
        print(states.pop() if len(states) == 1 else "mixed")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (BalancerError, OSError) as error:
        sys.exit("haproxy: %s" % error)
