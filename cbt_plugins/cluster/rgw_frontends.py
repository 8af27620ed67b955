"""The gateways of `service dump`: the zone of each, and the URLs at which its frontends listen."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Dict, Iterator, List, Mapping, Tuple

from cbt_plugins.cluster.ceph import newest_gateways

#: key of a frontend's configuration -> scheme; the port of an endpoint without one is that of the scheme
_PORTS = {"port": "http", "ssl_port": "https"}
_ENDPOINTS = {"endpoint": "http", "ssl_endpoint": "https"}
DEFAULT_PORTS = {"http": 80, "https": 443}
_PORT = re.compile("[0-9]{1,5}")


@dataclass(frozen=True)
class Listener:
    """One port of a gateway; `address` is "" where it listens on all addresses of its host."""

    scheme: str
    address: str
    port: int

    def url(self, host: str) -> str:
        """Return the URL by which others reach the gateway on this host."""
        name = self.address or host
        return f"{self.scheme}://{f'[{name}]' if ':' in name else name}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether only its own host reaches it: a proxy there stands in front of it."""
        return bool(self.address) and ip_address(self.address).is_loopback


@dataclass(frozen=True)
class Gateway:
    """An RGW that runs, as it has registered itself."""

    id: str
    host: str
    zone: str
    address: str  # from which it talks to the cluster, "" where it is not known
    frontends: Tuple[str, ...]  # as configured: "beast port=7480 ssl_port=7443 ssl_certificate=/etc/ceph/rgw.pem"
    zonegroup: str = ""
    realm: str = ""

    @property
    def listeners(self) -> List[Listener]:
        """The ports that other hosts reach, each once."""
        every = [listener for frontend in self.frontends for listener in listeners_of(frontend)]
        return [listener for listener in dict.fromkeys(every) if not listener.is_local]

    @property
    def is_hidden(self) -> bool:
        """Whether it listens for its own host only."""
        return not self.listeners and any(True for frontend in self.frontends for _ in listeners_of(frontend))

    def urls(self, scheme: str) -> List[str]:
        """Return the URLs of a gateway, of "http" or "https"."""
        return [listener.url(self.host) for listener in self.listeners if listener.scheme == scheme]


def gateways_of(services: Mapping[str, Any]) -> List[Gateway]:
    """Return the gateways of `service dump`, in the order of their hosts."""
    rows: Dict[str, Mapping[str, Any]] = newest_gateways(services)
    gateways = [_gateway(key, row) for key, row in rows.items()]
    return sorted(gateways, key=lambda gateway: (gateway.host, gateway.id))


def _gateway(key: str, row: Mapping[str, Any]) -> Gateway:
    about = {str(name): str(value) for name, value in row["metadata"].items()}
    numbered = sorted(name for name in about if name.startswith("frontend_config#"))
    address = str(row.get("addr", "")).rpartition(":")[0].strip("[]")
    return Gateway(
        id=about.get("id", key),
        host=about.get("hostname", ""),
        zone=about.get("zone_name", ""),
        address=_specific(address),
        frontends=tuple(about[name] for name in numbered),
        zonegroup=about.get("zonegroup_name", ""),
        realm=about.get("realm_name", ""),
    )


def listeners_of(frontend: str) -> Iterator[Listener]:
    """Yield the ports of "beast port=80 ssl_endpoint=10.0.0.5:443"; civetweb joins them as in "port=80+443s"."""
    for word in frontend.split()[1:]:
        key, _, values = word.partition("=")
        for value in values.split("+") if key in (*_PORTS, *_ENDPOINTS) else ():
            is_tls = value.endswith("s")
            scheme = "https" if is_tls else {**_PORTS, **_ENDPOINTS}[key]
            address, port = _split(value.rstrip("s"), key in _PORTS)
            number = port or str(DEFAULT_PORTS[scheme])
            if _PORT.fullmatch(number) and 0 < int(number) < 1 << 16:
                yield Listener(scheme, _specific(address), int(number))


def _split(value: str, is_port: bool) -> Tuple[str, str]:
    """Return the address and the port of 80, 10.0.0.5:80, 10.0.0.5, [::]:80 or ::1."""
    if value.startswith("["):
        address, _, port = value[1:].partition("]")
        return address, port.lstrip(":")
    if value.count(":") > 1:
        return value, ""
    if ":" not in value and not is_port:
        return value, ""
    address, _, port = value.rpartition(":")
    return address, port


def _specific(address: str) -> str:
    """Return an address, "" for one that stands for all of a host and for text that is none."""
    try:
        return "" if ip_address(address).is_unspecified else address
    except ValueError:
        return ""
