"""What a kind of cluster is: the class that each kind subclasses, and that `cbt-tools init` asks."""

from __future__ import annotations

import argparse
import getpass
from typing import Any, Dict, List, Optional

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.remote import Remote, RemoteError
from cbt_plugins.cluster.rgw_frontends import Gateway, gateways_of
from cbt_plugins.cluster.transports.transport import UNREACHABLE, Result
from cbt_plugins.faults.cluster_facts import DAEMON_QUESTIONS, Facts
from cbt_plugins.inventory import NodeName, check_name

from ..command import FAILED, CommandError

#: exit status of a shell for a program that is not there
_NO_PROGRAM = 127
#: seconds for a question that Ceph answers at once, or never
_QUICK = 30.0


class Site:
    """A cluster of one kind: which options name it, how `ceph` is asked, and where its gateways come from."""

    #: the option that names the head
    option: str
    #: what the file says of the head
    head_text = "has ceph and radosgw-admin"

    def __init__(self, cluster: Dict[str, Any]) -> None:
        #: keys of the file's `cluster:` that say how nodes, `ceph` and `radosgw-admin` are reached
        self.cluster = cluster

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        """Declare the options that name a cluster of this kind."""
        raise NotImplementedError

    @classmethod
    def of_arguments(cls, args: argparse.Namespace) -> Optional[Site]:
        """Return the cluster that the options name, None where they name none of this kind. Raises CommandError."""
        raise NotImplementedError

    def ceph(self) -> Ceph:
        """Return the cluster's Ceph, which has answered. Raises CommandError."""
        ceph = self._connection()
        result = self._reply(ceph, f"{ceph.command} --connect-timeout 20 fsid")
        if result.status:
            raise CommandError(f"ceph on {ceph.head}: {_reason(result)}{self.advice(result)}", FAILED)
        return ceph

    def advice(self, result: Result) -> str:
        """Return the remedy for a `ceph` or `radosgw-admin` that failed, as "; ...", or ""."""
        return ""

    def check_admin(self, ceph: Ceph) -> None:
        """Raise CommandError where `radosgw-admin` does not answer. Only for a cluster that has gateways."""
        result = self._reply(ceph, f"{ceph.admin} zone get >/dev/null")
        if result.status:
            raise CommandError(f"radosgw-admin on {ceph.head}: {_reason(result)}{self.advice(result)}", FAILED)

    def gateways(self, facts: Facts) -> List[Gateway]:
        """Return the gateways that run."""
        return gateways_of(facts.answers[DAEMON_QUESTIONS["rgw"]])

    def _connection(self) -> Ceph:
        return Ceph(Remote.from_host(self.cluster, {}), self.cluster)

    def _reply(self, ceph: Ceph, line: str) -> Result:
        try:
            result = ceph.run(line, _QUICK)
        except RemoteError as error:
            raise CommandError(str(error), FAILED) from None
        if result.status == UNREACHABLE:
            raise CommandError(f"head {ceph.head}: {' '.join(result.stderr.split())}", FAILED)
        return result


def _reason(result: Result) -> str:
    """Return why a command failed: its last line of text, or its exit status."""
    lines = [line.strip() for line in result.stderr.splitlines() if line.strip()]
    return lines[-1] if lines else f"exit status {result.status}"


def login_of(option: str, node: str) -> Dict[str, Any]:
    """Return the keys of `cluster:` that [USER@]HOST[:PORT] means; USER logs in on all nodes. Raises CommandError."""
    try:
        name = NodeName.parse(check_name(node))
    except ValueError as error:
        raise CommandError(f"{option}: {error}") from None
    return {"user": name.user or getpass.getuser(), "head": f"{name.host}:{name.port}" if name.port else name.host}


def lacks_program(result: Result) -> bool:
    """Return whether the shell did not find the program."""
    return result.status == _NO_PROGRAM
