"""Write a YAML file for a running cluster."""

from __future__ import annotations

import argparse
import os
import shlex
import time
from pathlib import Path
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Type

from cbt_plugins.cluster.s3_keys import S3Keys
from cbt_plugins.config import aws_profile
from cbt_plugins.config.errors import ConfigError
from cbt_plugins.config.file_check import load
from cbt_plugins.config.yaml_source import YamlSource
from cbt_plugins.exit_status import FAILED
from cbt_plugins.inventory import check_node_name, head_of, nodes_of, split_names
from cbt_plugins.run.endpoints import is_untrusted

from .. import plan
from ..command import CommandError, Parser, explain, warn
from ..format_option import FILE_EXISTS, write_new
from .cephadm import CephadmSite
from .cluster_kind import Site, user_entry
from .discovery import Discovery, replies_of
from .entry import Entry
from .packages import PackagesSite
from .remarks import remarks_on_aws, remarks_on_gateways, remarks_on_health, remarks_on_nodes, remarks_on_zones
from .rook import RookSite
from .text import EDIT, cluster_entries, header_of, s3_entries, sections_of, text_of

#: kinds of clusters; each declares the options that name a cluster
SITES: Tuple[Type[Site], ...] = (PackagesSite, CephadmSite, RookSite)
#: the user that a run makes
_USER = "cbt-plugins"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    examples = (
        "cbt-tools init --head mon1 --clients client1,client2 -o my.yaml",
        "cbt-tools init --cephadm host1 --clients client1,client2 -o my.yaml",
        "cbt-tools init --context prod --clients worker4,worker5 -o my.yaml",
    )
    explain(parser, examples, {FAILED: "the cluster does not answer, or has no gateway; nothing was written"})
    does = "This verb asks the cluster, changes nothing on the cluster, and prints the plan of the new file."
    parser.description = f"{parser.description or ''}\n\n{does}"
    for site in SITES:
        site.add_arguments(parser)
    parser.add_argument(
        "--clients", metavar="NODE,...", action="append", default=[], help="machines that make the load"
    )
    keys = parser.add_mutually_exclusive_group()
    keys.add_argument("--user", metavar="NAME", help=f"an existing RGW user (default: the run makes the user {_USER})")
    keys.add_argument(
        "--profile", metavar="NAME", help="take the keys from this profile in ~/.aws/credentials on this machine"
    )
    authority = "PEM file on this machine with the certificate authority for https URLs"
    parser.add_argument("--ca-file", metavar="FILE", type=os.path.abspath, help=authority)
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, required=True, help="the new file to write")


def run(args: argparse.Namespace) -> int:
    """Write the file and print its plan; returns the exit status of the plan."""
    if os.path.lexists(args.output):
        raise CommandError(f"{args.output}: {FILE_EXISTS}")
    site = _site(args)
    clients = _clients(args.clients)
    site.cluster["clients"] = clients  # the names contain the users and ports
    aws = _Conventions.read(args.profile)
    cluster = Discovery.of(site)
    with replies_of(cluster.ceph.head):
        text, remarks = _file(args, site, cluster, clients, aws)
    try:
        load(YamlSource(text.encode(), str(args.output)))
    except ConfigError as error:
        raise CommandError(f"nothing was written: the file would have errors\n{error}") from None
    write_new(args.output, text)
    for remark in remarks:
        warn(remark)
    parser = Parser()
    plan.add_arguments(parser)
    status = plan.run(parser.parse_args([str(args.output)]))
    edits = [str(n) for n, line in enumerate(text.splitlines(), 1) if EDIT in line and not line.startswith("#")]
    edit = f"edit {'lines' if edits[1:] else 'line'} {', '.join(edits)} (marked {EDIT}), then: " if edits else ""
    print(f"\nwritten: {args.output}\nnext: {edit}cbt-tools plan {shlex.quote(str(args.output))} --live")
    return status


def _site(args: argparse.Namespace) -> Site:
    sites = [site for site in (kind.of_arguments(args) for kind in SITES) if site is not None]
    if len(sites) != 1:
        options = " or ".join(kind.example for kind in SITES)
        raise CommandError(f"{'several clusters are' if sites else 'no cluster is'} named: give {options}")
    return sites[0]


def _clients(values: Sequence[str]) -> List[str]:
    names = list(dict.fromkeys(split_names(list(values))))
    try:
        return [check_node_name(name) for name in names]
    except ValueError as error:
        raise CommandError(f"--clients: {error}") from None


class _Conventions(NamedTuple):
    """The keys, region and endpoint of AWS's conventions on this machine."""

    keys: Mapping[str, S3Keys]  # name of the keys in errors -> keys; {} without a profile
    region: Optional[str]  # None without a profile, where a run does not use it
    url: Optional[str]

    @classmethod
    def read(cls, profile: Optional[str]) -> _Conventions:
        """Read the profile and the environment. Raises CommandError."""
        try:
            keys = {f"profile {profile}": S3Keys(*aws_profile.keys_of(profile))} if profile else {}
            region = aws_profile.region_of(profile) if profile else None
            return cls(keys, region, aws_profile.endpoint_of(profile))
        except aws_profile.AwsError as error:
            raise CommandError(f"--profile: {error}") from None


def _file(
    args: argparse.Namespace, site: Site, cluster: Discovery, clients: Sequence[str], aws: _Conventions
) -> Tuple[str, List[str]]:
    """Return the text of the file, and the remarks on the cluster. Raises CommandError."""
    remote = cluster.ceph.remote
    named_keys = site.keys(cluster.ceph, args.user)
    endpoints = site.endpoints(cluster.own_gateways, args.ca_file)
    if not endpoints.urls:
        every = "; ".join(f"{g.id} of zone {g.zone}: {', '.join(g.frontends) or 'no port'}" for g in cluster.gateways)
        text = f"no gateway of radosgw-admin's zone {cluster.zone.name} has a port that other hosts can reach"
        if not cluster.own_gateways:
            text = f"all gateways are of other zones than radosgw-admin's zone {cluster.zone.name}"
        raise CommandError(f"{text}: {every}", FAILED)
    nodes = nodes_of({"head": site.cluster["head"], "clients": clients, **cluster.hosts})
    site.keep_nodes(nodes)
    unreached = list(remarks_on_nodes(cluster, remote, nodes))
    silent: Dict[str, str] = {node: remark for node, remark in unreached if node}
    askers = [node for node in nodes_of({"clients": clients}) if node not in silent] or [head_of(site.cluster)]
    errors = endpoints.errors(remote, askers, aws.keys)
    makes_user = not (args.user or args.profile)
    of_site = list(site.header())
    remarks = [
        *remarks_on_health(cluster),
        *(remark for _, remark in unreached),
        *remarks_on_gateways(cluster, endpoints),
        *remarks_on_aws(cluster, endpoints, aws.url),
        *remarks_on_zones(cluster, makes_user),
        *site.remarks(),
        *errors,
    ]
    if args.ca_file and not endpoints.ca_file:
        remarks.append("--ca-file is not used: most gateways have no port for https")
    untrusted: Optional[str] = None
    if not endpoints.ca_file and is_untrusted(errors):
        untrusted = endpoints.issuer(remote, askers[0])
    keys = named_keys or [user_entry(_USER)]
    if args.profile:
        keys = [Entry("profile", args.profile, "keys of ~/.aws/credentials on this machine")]
        keys += [Entry("region", aws.region, "of AWS_REGION, AWS_DEFAULT_REGION or the profile")] if aws.region else []
    command = shlex.join(["cbt-tools", "init", *_words(args)])
    header = header_of(cluster, command, time.strftime("%Y-%m-%d"), of_site, remarks)
    of_cluster = cluster_entries(cluster, site, clients, silent)
    s3 = s3_entries(endpoints, keys, untrusted)
    return text_of(header, sections_of(cluster, of_cluster, s3, len(clients), makes_user)), remarks


def _words(args: argparse.Namespace) -> List[str]:
    """Return the options of the command line."""
    words: List[str] = []
    for name, value in vars(args).items():
        if value and name != "verb" and isinstance(value, (str, list, Path)):
            text = ",".join(value) if isinstance(value, list) else str(value)
            words += [f"--{name.replace('_', '-')}", text]
    return words
