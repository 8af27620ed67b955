"""Base class of the kinds of clusters that `cbt-tools init` knows."""

from __future__ import annotations

import argparse
import re
from typing import Any, ClassVar, Dict, Iterator, List, Mapping, Optional, Sequence

from cbt_plugins.cluster.ceph import Ceph, CephError
from cbt_plugins.cluster.remote import Remote, RemoteError
from cbt_plugins.cluster.rgw_frontends import Gateway, gateways_of
from cbt_plugins.cluster.transports.transport import UNREACHABLE, Result
from cbt_plugins.exit_status import FAILED
from cbt_plugins.faults.cluster_facts import DAEMON_QUESTIONS, Facts
from cbt_plugins.inventory import NodeName, check_node_name, own_user

from ..command import CommandError
from .endpoints import Endpoints
from .entry import Entry

#: exit status of a shell for a missing program, and the line of sudo
_NO_PROGRAM = 127
_SUDO_LACKS = re.compile(r"^sudo: .*: command not found$", re.M)
#: timeout in seconds of a question that Ceph answers at once or never
_QUICK = 30.0
#: advice about a `radosgw-admin` that fails where `ceph` works
_NO_ZONE = (
    "; `ceph` works there, so radosgw-admin may have no default realm or zone: radosgw-admin realm default "
    "--rgw-realm=NAME; radosgw-admin zone default --rgw-zone=NAME"
)


class Site:
    """A cluster of one kind: its options, its `ceph` command, and the source of its gateways."""

    #: the option that names the head
    option: str
    #: that option as an error asks for it
    example: str
    #: comment of the head in the file
    head_text = "has ceph and radosgw-admin"
    #: comments of the user, and of clients that the file must name
    user_text = "login on all nodes"
    clients_text = "the machines that make the load: they need python3, and ssh logins without a password"
    #: key of `cluster` -> comment in the file
    comments: ClassVar[Mapping[str, str]] = {}

    def __init__(self, cluster: Dict[str, Any]) -> None:
        #: keys of `cluster:` for the access to nodes, `ceph` and `radosgw-admin`
        self.cluster = cluster

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        """Declare the options that name a cluster of this kind."""
        raise NotImplementedError

    @classmethod
    def of_arguments(cls, args: argparse.Namespace) -> Optional[Site]:
        """Return the cluster that the options name, None if they name no cluster of this kind. Raises CommandError."""
        raise NotImplementedError

    def ceph(self) -> Ceph:
        """Return the cluster's Ceph after an answer from it. Raises CommandError."""
        ceph = self._connection()
        result = self._reply(ceph, f"{ceph.command} --connect-timeout 20 fsid")
        if result.status:
            raise CommandError(f"ceph on {ceph.head}: {_reason(result)}{self.advice(result)}", FAILED)
        return ceph

    def advice(self, result: Result) -> str:
        """Return advice about a failed `ceph` or `radosgw-admin`, as "; ...", or ""."""
        return ""

    def of_zone(self, ceph: Ceph, gateways: Sequence[Gateway]) -> Ceph:
        """Return the cluster's Ceph, whose `radosgw-admin` works on the zone of the file. Raises CephError."""
        return ceph

    def check_admin(self, ceph: Ceph) -> None:
        """Raise CommandError if `radosgw-admin` does not answer. The cluster must have gateways."""
        result = self._reply(ceph, f"{ceph.admin} zone get >/dev/null")
        if result.status:
            advice = self.advice(result) if lacks_program(result) else _NO_ZONE
            raise CommandError(f"radosgw-admin on {ceph.head}: {_reason(result)}{advice}", FAILED)

    def gateways(self, facts: Facts) -> List[Gateway]:
        """Return the running gateways."""
        return gateways_of(facts.answers[DAEMON_QUESTIONS["rgw"]])

    def endpoints(self, gateways: Sequence[Gateway], ca_file: Optional[str]) -> Endpoints:
        """Return the endpoints of the load. Raises CommandError."""
        return Endpoints.of(gateways, ca_file)

    def keep_nodes(self, nodes: Sequence[str]) -> None:
        """Remove what `cluster` says of other nodes than these, which are all nodes of the file."""

    def keys(self, ceph: Ceph, user: Optional[str]) -> Optional[List[Entry]]:
        """Return the lines that name the keys of a user that exists, None without one. Raises CommandError."""
        if user is None:
            return None
        try:
            ceph.rgw_user_keys(user)
        except CephError as error:
            raise CommandError(f"--user: {error}", FAILED) from None
        return [user_entry(user)]

    def header(self) -> Iterator[str]:
        """Yield comments for the begin of the file."""
        return iter(())

    def remarks(self) -> Sequence[str]:
        """Return the warnings of this kind of cluster; complete after `endpoints` and `header`."""
        return ()

    def _connection(self) -> Ceph:
        return Ceph(Remote.of_cluster(self.cluster, {}), self.cluster)

    def _reply(self, ceph: Ceph, line: str) -> Result:
        try:
            result = ceph.run(line, _QUICK)
        except RemoteError as error:
            raise CommandError(str(error), FAILED) from None
        if result.status == UNREACHABLE:
            raise CommandError(f"head {ceph.head}: {' '.join(result.stderr.split())}", FAILED)
        return result


def _reason(result: Result) -> str:
    """Return the reason why a command failed: its last line of text, or its exit status."""
    lines = [line.strip() for line in result.stderr.splitlines() if line.strip()]
    return lines[-1] if lines else f"exit status {result.status}"


def user_entry(name: str) -> Entry:
    """Return the line that names a user of RGW."""
    return Entry("user", name, "the run reads the keys of this user with radosgw-admin")


def login_of(option: str, node: str) -> Dict[str, Any]:
    """Return the keys of `cluster:` for [USER@]HOST[:PORT]; USER logs in on all nodes. Raises CommandError."""
    try:
        name = NodeName.parse(check_node_name(node))
    except ValueError as error:
        raise CommandError(f"{option}: {error}") from None
    user = name.user or own_user()
    if user is None:
        raise CommandError(f"{option}: name the user: USER@{node}")
    return {"user": user, "head": f"{name.host}:{name.port}" if name.port else name.host}


def lacks_program(result: Result) -> bool:
    """Tell whether the program is missing, by the exit status of the shell, or the text of sudo."""
    return result.status == _NO_PROGRAM or bool(_SUDO_LACKS.search(result.stderr))
