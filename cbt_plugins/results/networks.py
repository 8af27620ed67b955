"""Which of Ceph's networks an interface is in: `public_network` and `cluster_network` of the archived configuration."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple, Union

Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]


@dataclass(frozen=True)
class Networks:
    """Empty where the configuration does not say."""

    public: Tuple[Network, ...] = ()
    cluster: Tuple[Network, ...] = ()

    @classmethod
    def of(cls, run: Path) -> Networks:
        """From cluster/before of a run; ceph.conf wins over the monitors' database, as it does in Ceph."""
        folder = run / "cluster" / "before"
        said: Dict[str, str] = {}
        try:
            for option in json.loads((folder / "config_dump.json").read_text(encoding="utf-8")):
                if option.get("section") in ("global", "osd"):
                    said[str(option["name"])] = str(option["value"])
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            pass
        try:
            conf = (folder / "ceph.conf").read_text(encoding="utf-8", errors="replace")
        except OSError:
            conf = ""
        for name in ("public", "cluster"):
            found = re.search(rf"^\s*{name}[_ ]network\s*=\s*(.+?)\s*$", conf, re.MULTILINE)
            if found:
                said[f"{name}_network"] = found.group(1)
        return cls(*(cls.parse(said.get(f"{name}_network", "")) for name in ("public", "cluster")))

    @staticmethod
    def parse(text: str) -> Tuple[Network, ...]:
        """Networks between commas or blanks; what is none is left out."""
        found: List[Network] = []
        for word in re.split(r"[,\s;]+", text):
            with contextlib.suppress(ValueError):
                found.append(ipaddress.ip_network(word, strict=False))
        return tuple(found)

    def side(self, addresses: Sequence[str], roles: Sequence[str]) -> Optional[str]:
        """ "client" or "cluster": what mostly goes through an interface with these addresses on such a node.

        A node with clients or RGWs talks to clients; a node of OSDs replicates through the cluster network, which is
        the public one where there is no other. None: neither.
        """
        if "client" in roles or "rgw" in roles:
            return "client"
        if "osd" not in roles:
            return None
        own = bool(self.cluster) and set(self.cluster) != set(self.public)
        if own and _in(addresses, self.public) and not _in(addresses, self.cluster):
            return "client"
        return "cluster"


def _in(addresses: Sequence[str], networks: Sequence[Network]) -> bool:
    its = [ipaddress.ip_interface(address).ip for address in addresses]
    return any(ip in network for ip in its for network in networks)
