"""A cluster of cephadm: its hosts are reached by ssh, and `cephadm shell` has Ceph's programs."""

from __future__ import annotations

import argparse
from typing import Optional

from cbt_plugins.cluster.transports.transport import Result
from cbt_plugins.config.cluster import CEPHADM

from .cluster_kind import Site, login_of


class CephadmSite(Site):
    """`--cephadm`: a host of the cluster where `cephadm shell` works, as on each host with the label _admin."""

    option, example = "--cephadm", "--cephadm NODE"
    head_text = "has cephadm; `cephadm shell` has ceph and radosgw-admin"

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        text = "for a cluster of cephadm: a host with the label _admin; `ceph` need not be installed on the host"
        parser.add_argument(cls.option, metavar="NODE", help=text)

    @classmethod
    def of_arguments(cls, args: argparse.Namespace) -> Optional[Site]:
        return None if args.cephadm is None else cls({**login_of(cls.option, args.cephadm), "ceph": CEPHADM})

    def advice(self, result: Result) -> str:
        return f"; name a host with the label _admin: {self.option} NODE"
