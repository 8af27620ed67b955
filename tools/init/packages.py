"""A cluster with Ceph from the distribution's packages; its nodes are reached by ssh."""

from __future__ import annotations

import argparse
from typing import Any, Dict, Optional

from cbt_plugins.cluster.ceph import Ceph
from cbt_plugins.cluster.transports.transport import Result

from .cluster_kind import Site, lacks_program, login_of


class PackagesSite(Site):
    """`--head`: a node with `ceph`, `radosgw-admin` and an admin keyring."""

    option, example = "--head", "--head NODE"

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        text = "HOST or USER@HOST[:PORT] with `ceph` and `radosgw-admin`; USER (default: you) is the login on all nodes"
        parser.add_argument(cls.option, metavar="NODE", help=text)

    @classmethod
    def of_arguments(cls, args: argparse.Namespace) -> Optional[Site]:
        return None if args.head is None else cls(login_of(cls.option, args.head))

    def ceph(self) -> Ceph:
        """Return the cluster's Ceph; with sudo if the user cannot use `ceph` without it."""
        plain = self._connection()
        if self._reply(plain, f"{plain.command} --connect-timeout 20 fsid").status:
            by_sudo: Dict[str, Any] = {"ceph_cmd": "sudo -n ceph", "radosgw-admin_cmd": "sudo -n radosgw-admin"}
            with_sudo = type(self)({**self.cluster, **by_sudo})._connection()
            if not self._reply(with_sudo, f"{with_sudo.command} --connect-timeout 20 fsid").status:
                self.cluster.update(by_sudo)
        return super().ceph()

    def advice(self, result: Result) -> str:
        head, user = self.cluster["head"], self.cluster["user"]
        if lacks_program(result):
            text = f"; install the program on {head} (package ceph-common; radosgw)"
            text = f"{text}, or name a node that has the program: --head NODE"
            return f"{text}; for a cluster of cephadm: --cephadm {head}"
        return f"; {user} on {head} needs /etc/ceph/ceph.conf and a keyring of client.admin, or sudo without a password"
