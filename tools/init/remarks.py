"""Remarks on a cluster for the user: each remark is a warning of this verb and a comment in the file."""

from __future__ import annotations

from typing import Iterator, Mapping, Optional, Sequence, Tuple

from cbt_plugins.cluster.remote import Remote
from cbt_plugins.inventory import find_host
from cbt_plugins.run.cluster_fitness import condition_errors

from .discovery import Discovery
from .endpoints import Endpoints, foreign_endpoints

#: seconds for a node to answer
_QUICK = 10.0
#: orchestrator's daemons that are load balancers; begin of the name of a service of such daemons that is not for RGW
_BALANCERS, _OF_NFS = ("haproxy", "keepalived"), "ingress.nfs."


def remarks_on_health(cluster: Discovery) -> Iterator[str]:
    """Yield the conditions that would disturb a measurement now."""
    conditions = cluster.conditions
    yield from condition_errors(conditions, set())
    texts = " ".join(conditions.values())
    for code, text in cluster.status.says.items():
        if code not in texts:
            yield f"the cluster is {cluster.status.health}: {code}: {text}"


def remarks_on_gateways(cluster: Discovery, endpoints: Endpoints) -> Iterator[str]:
    """Yield remarks on load balancers in front of gateways, and on gateways that are not in the file."""
    balancers = list(foreign_endpoints(cluster.zone.endpoints, cluster.gateways))
    rows = [row for row in cluster.orchestrated if not str(row.get("service_name")).startswith(_OF_NFS)]
    hosts = sorted({str(row.get("hostname")) for row in rows if row.get("daemon_type") in _BALANCERS})
    if hosts:
        balancers.append(f"haproxy on {', '.join(hosts)}")
    if balancers and not endpoints.is_service:
        text = f"a load balancer is in front of the gateways: {', '.join(balancers)}"
        yield f"{text}; the file has the URLs of the gateways, to measure RGW without the load balancer"
    for gateway in endpoints.left_out:
        if gateway.is_hidden:
            why = "can be reached only from its own host, where a proxy is in front of the gateway"
        else:
            why = f"has no port for {endpoints.scheme}" if gateway.listeners else "names no port"
        frontends = "; ".join(gateway.frontends)
        yield f"gateway {gateway.id} on {gateway.host} {why}: this gateway is not in urls ({frontends})"


def remarks_on_aws(cluster: Discovery, endpoints: Endpoints, url: Optional[str]) -> Iterator[str]:
    """Yield the URL of AWS's conventions if no gateway has it. `url`: as `aws_profile.endpoint_of` returns it."""
    in_file = url is None or url.rstrip("/") in (*endpoints.urls, *endpoints.also)
    for endpoint in () if in_file else foreign_endpoints([str(url)], cluster.gateways):
        place = endpoint.rpartition("@")[2]  # without a password
        text = f"{place} of AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or endpoint_url is no gateway of this cluster"
        yield f"{text}; the file has the URLs of the gateways, to measure RGW without what may be in front of them"


def remarks_on_zones(cluster: Discovery, makes_user: bool) -> Iterator[str]:
    """Yield remarks on several realms, zonegroups or zones, and on a zone that is not the master."""
    zone = cluster.zone
    for kind, names in (("realms", zone.realms), ("zonegroups", zone.zonegroups), ("zones", zone.zones)):
        if len(names) > 1:
            text = f"{len(names)} {kind}: {', '.join(sorted(names))}"
            yield f"{text}; the file uses {zone.zonegroup}/{zone.name}; other zones may replicate objects of this zone"
    if not zone.is_master:
        master = f"zone {zone.master}" if zone.master and zone.master != zone.name else "a zone of another zonegroup"
        user = ": only the master makes users, so name an existing user (--user)" if makes_user else ""
        yield f"zone {zone.name} is not the master zone, which is {master}{user}"
    foreign = sorted({gateway.zone for gateway in cluster.gateways} - {zone.name, ""})
    if foreign:
        yield f"not in the file: gateways of other zones: {', '.join(foreign)}"


def remarks_on_nodes(cluster: Discovery, remote: Remote, nodes: Sequence[str]) -> Iterator[Tuple[str, str]]:
    """Yield (node, remark) for unreachable nodes; and ("", remark) for daemons whose host has no host name."""
    answers = remote.run(nodes, "true", timeout=_QUICK, check=False)
    addresses = _addresses(cluster)
    for node, answer in answers.items():
        if answer.status:
            host = find_host(node, list(addresses))
            hint = f"; Ceph reports the address {addresses[host]}" if host and addresses[host] else ""
            yield node, f"{node} cannot be reached: {' '.join(answer.stderr.split()) or 'no reply'}{hint}"
    for text in cluster.unnamed:
        yield "", f"{text}, which is not a host name, so the file does not name that host"


def _addresses(cluster: Discovery) -> Mapping[str, str]:
    """Return host -> address of a daemon on it, "" if unknown."""
    answers = cluster.facts.answers
    rows = [*answers["osd metadata"], *answers["mon metadata"], *answers["mgr metadata"]]
    addresses = {
        str(row.get("hostname")): _address(str(row.get("front_addr") or row.get("addrs") or row.get("addr") or ""))
        for row in rows
    }
    return {**addresses, **{gateway.host: gateway.address for gateway in cluster.gateways if gateway.address}}


def _address(text: str) -> str:
    """Return "10.0.0.1" from "[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0]", "2001:db8::1" from "[2001:db8::1]:6801/1"."""
    first = text.strip("[]").split(",")[0].rpartition(":")[0]
    return (first.partition(":")[2] if first.startswith(("v1:", "v2:")) else first).strip("[]")
