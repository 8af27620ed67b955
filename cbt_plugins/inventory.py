"""The nodes of a run: every form in which the `cluster:` section names them, and when two names are one host.

A node's name in this project is its host name or address alone; who logs in there, and through which port, only those
ask who open connections.
"""

from __future__ import annotations

import getpass
import ipaddress
import re
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple

#: keys of the `cluster:` section that name nodes; `watched`: nodes that only monitors need
ROLES = ("head", "clients", "osds", "mons", "rgws", "mgrs", "mdss", "mds", "watched")

_NAME = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_.-]*@)?[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?::[0-9]{1,5})?")
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
#: characters of a host name (DNS), and of a user's name (LOGIN_NAME_MAX of Linux)
_LONGEST_HOST, LONGEST_USER = 253, 255
_HIGHEST_PORT = 65535
#: characters of a wrong name in an error
_SHOWN = 60


class NodeName(NamedTuple):
    """`user@host:port` in its parts."""

    host: str
    user: Optional[str] = None
    port: Optional[str] = None

    @classmethod
    def parse(cls, text: str) -> NodeName:
        """Take a name apart, whatever it is."""
        user, _, address = text.strip().rpartition("@")
        host, _, port = address.partition(":") if address.count(":") < 2 else (address, "", "")
        return cls(host, user or None, port or None)


def check_node_name(value: Any) -> str:
    """Return the name of one node as it is written; raises ValueError for what CBT cannot reach."""
    if not isinstance(value, str):
        raise ValueError("must be a host name (quote it when it is a number)")
    if value.count(":") > 1:
        raise ValueError("CBT takes no IPv6 address here; use a host name")
    shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}..."
    if not _NAME.fullmatch(value):
        hint = ": write the name alone, without http:// and without a path" if "/" in value else ""
        raise ValueError(f"{shown!r} is not a host name{hint}")
    name = NodeName.parse(value)
    if not is_host(name.host):
        limits = f"at most {_LONGEST_HOST} characters, and 1 to 63 of them between two dots"
        raise ValueError(f"{shown!r} is not a host name: it has {limits}")
    if len(name.user or "") > LONGEST_USER:
        raise ValueError(f"{shown!r}: the name of a user has at most {LONGEST_USER} characters")
    if name.port and not 0 < int(name.port) <= _HIGHEST_PORT:
        raise ValueError(f"{shown!r}: a port is 1 to {_HIGHEST_PORT}")
    return value


def is_host(text: str) -> bool:
    """Return whether DNS allows this as the name of a host: lengths, and no label that begins with a dash."""
    return len(text) <= _LONGEST_HOST and all(map(_LABEL.fullmatch, text.split(".")))


def split_names(value: Any) -> Iterator[str]:
    """Yield the names in one value of the section: text, a list, or a mapping from them; "a,b" is two in each."""
    for entry in [value] if isinstance(value, str) else value or ():
        yield from (name.strip() for name in str(entry).split(",") if name.strip())


def names_of(cluster: Mapping[str, Any], *roles: str) -> Tuple[NodeName, ...]:
    """Return the nodes of these keys (all ROLES without one) with their users and ports, each host once."""
    names_by_host: Dict[str, NodeName] = {}
    for role in roles or ROLES:
        for text in split_names(cluster.get(role)):
            name = NodeName.parse(text)
            earlier = names_by_host.setdefault(name.host, name)
            names_by_host[name.host] = NodeName(name.host, earlier.user or name.user, earlier.port or name.port)
    return tuple(names_by_host.values())


def nodes_of(cluster: Mapping[str, Any], *roles: str) -> Tuple[str, ...]:
    """Return the host names of these keys (all ROLES without one), each once, in the order of the section."""
    return tuple(name.host for name in names_of(cluster, *roles))


def head_of(cluster: Mapping[str, Any]) -> str:
    """Return the node from which the cluster is asked, "" when the section has none."""
    return next(iter(nodes_of(cluster, "head")), "")


def host_of(name: str) -> str:
    """Return a node's name without the user and the port that it may have."""
    return NodeName.parse(name).host


def short_name(name: str) -> str:
    """Return the host name without its domain; an address as it is."""
    host = host_of(name)
    return host if is_address(host) else host.split(".")[0]


def own_user() -> Optional[str]:
    """Return the login name of this process; None in a container that has no name for its user ID."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


def is_address(host: str) -> bool:
    """Return whether this is an IP address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def same_host(first: str, second: str) -> bool:
    """Return whether two names, each with or without a user, a port and a domain, are those of one host.

    The YAML and Ceph may know one host by two domains (its networks), so only the first labels are compared; DNS knows
    no case.
    """
    return short_name(first).lower() == short_name(second).lower()


class HostTable:
    """Nodes by their names, for who looks up many: the table is made once, in time proportional to the nodes."""

    def __init__(self, nodes: Iterable[str]) -> None:
        self._hosts = set(map(host_of, nodes))
        self._by_short_name: Dict[str, List[str]] = {}
        for host in self._hosts:
            self._by_short_name.setdefault(short_name(host).lower(), []).append(host)

    def find(self, name: str) -> Optional[str]:
        """Return the node, without its user, that has this name; None when none or several may be meant."""
        host = host_of(name)
        if host in self._hosts:
            return host
        matches = self._by_short_name.get(short_name(host).lower(), [])  # by the rule of `same_host`
        return matches[0] if len(matches) == 1 else None


def find_host(name: str, nodes: Iterable[str]) -> Optional[str]:
    """Return `HostTable(nodes).find(name)`, for who looks up a single name."""
    return HostTable(nodes).find(name)
