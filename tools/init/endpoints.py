"""The URLs of a file: of the gateways, all with one scheme; and whether clients get an answer from each URL."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Iterator, List, Mapping, Optional, Sequence, Tuple
from urllib.parse import urlsplit

from cbt_plugins.cluster.ceph import CephError
from cbt_plugins.cluster.remote import Remote
from cbt_plugins.cluster.rgw_frontends import DEFAULT_PORTS, Gateway
from cbt_plugins.cluster.s3_keys import S3Keys
from cbt_plugins.inventory import same_host
from cbt_plugins.plan import S3
from cbt_plugins.run.endpoints import authority_of, errors_of_endpoints

from ..command import CommandError

#: seconds for the certificate of a gateway
_QUICK = 15.0


@dataclass(frozen=True)
class Endpoints:
    """The URLs to which the load goes."""

    scheme: str
    urls: Tuple[str, ...]
    left_out: Tuple[Gateway, ...]  # gateways without a port of this scheme
    also: Tuple[str, ...]  # URLs of the gateways by the other scheme
    ca_file: Optional[str] = None
    is_service: bool = False  # what spreads connections over the gateways is meant to be there

    @classmethod
    def of(cls, gateways: Sequence[Gateway], ca_file: Optional[str]) -> Endpoints:
        """Return the URLs of the scheme that most gateways have; a tie is http, but https if `--ca-file` is given."""
        schemes = ("https", "http") if ca_file else ("http", "https")
        scheme = max(schemes, key=lambda name: (sum(bool(g.urls(name)) for g in gateways), name == schemes[0]))
        (second,) = set(schemes) - {scheme}
        urls = tuple(gateway.urls(scheme)[0] for gateway in gateways if gateway.urls(scheme))
        left_out = tuple(gateway for gateway in gateways if not gateway.urls(scheme))
        also = tuple(url for gateway in gateways for url in gateway.urls(second)[:1])
        return cls(scheme, tuple(dict.fromkeys(urls)), left_out, also, ca_file if scheme == "https" else None)

    def errors(self, remote: Remote, nodes: Sequence[str], owned: Mapping[str, S3Keys]) -> List[str]:
        """Return the errors of nodes that ask the endpoints with these keys. Raises CommandError for `ca_file`."""
        s3 = S3(self.urls, ca_file=self.ca_file)
        try:
            authority = authority_of(s3)
        except CephError as error:
            raise CommandError(str(error).replace("s3.ca_file", "--ca-file")) from None
        return errors_of_endpoints(remote, nodes, s3, authority, owned)

    def issuer(self, remote: Remote, node: str) -> str:
        """Return the issuer of the first endpoint's certificate, by openssl on a node; "" if openssl fails."""
        place = urlsplit(self.urls[0])
        host = f"[{place.hostname}]" if ":" in (place.hostname or "") else place.hostname
        address = shlex.quote(f"{host}:{place.port or DEFAULT_PORTS['https']}")
        line = f"openssl s_client -connect {address} </dev/null 2>/dev/null | openssl x509 -noout -issuer"
        result = remote.run([node], line, timeout=_QUICK, check=False)[node]
        text = result.stdout.strip() if not result.status else ""
        return "".join(filter(str.isprintable, text.partition("=")[2].strip()))[:200]


def foreign_endpoints(endpoints: Sequence[str], gateways: Sequence[Gateway]) -> Iterator[str]:
    """Yield the endpoints of a zone that are not of a gateway: they are load balancers."""
    for endpoint in endpoints:
        try:
            place = urlsplit(endpoint if "://" in endpoint else f"http://{endpoint}")
            host, port = place.hostname or "", place.port or DEFAULT_PORTS.get(place.scheme, 0)
        except ValueError:
            host, port = "", 0
        if not any(_is_at(gateway, host, port) for gateway in gateways):
            yield endpoint


def _is_at(gateway: Gateway, host: str, port: int) -> bool:
    ports = {listener.port for listener in gateway.listeners}
    addresses = {gateway.address, *(listener.address for listener in gateway.listeners)} - {""}
    return port in ports and (host in addresses or same_host(host, gateway.host))
