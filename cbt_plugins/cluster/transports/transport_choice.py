"""Which transport a node has: the one that `cluster: transport:` names, else the best of ours that reaches it."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

from cbt_plugins.cluster.transports.transport import UNREACHABLE, Transport
from cbt_plugins.config import plugins
from cbt_plugins.inventory import host_of


class TransportChoice:
    """The transport of each node, chosen once. Names come from files: only those of plug-ins lead to a class."""

    def __init__(self, cluster: Mapping[str, Any], common: Mapping[str, Any]) -> None:
        self._sections = (cluster, common)
        named = cluster.get("transport")
        by_node = named if isinstance(named, Mapping) else {}
        self._named = {host_of(str(node)): str(name) for node, name in by_node.items()}
        self._name_of_all = str(named) if named and not by_node else ""
        self._transports: Dict[str, Transport] = {}
        self._names: Dict[str, str] = {}

    def __getitem__(self, node: str) -> Transport:
        return self._transport(self.name_of(node))

    def name_of(self, node: str) -> str:
        """Return the name of the transport of a node."""
        if node not in self._names:
            self._names[node] = self._choose(node)
        return self._names[node]

    def _choose(self, node: str) -> str:
        name = self._named.get(node, self._name_of_all)
        if name and self._is_usable(name, node):
            return name
        candidates = [ours for ours in plugins.built_in(plugins.TRANSPORTS) if self._transport(ours).reaches(node)]
        return max(candidates, key=lambda ours: self._transport(ours).preference)

    def _is_usable(self, name: str, node: str) -> bool:
        """Return whether the transport that is named for a node can be used.

        A transport with a `preference` (local, pdsh, ssh) must reach the node: a journal that names it may be read on
        another machine, where `local` would be that machine, and where pdsh may be missing. All others are used.
        """
        transport = self._transport(name)
        return not transport.preference or transport.reaches(node)

    def _transport(self, name: str) -> Transport:
        if name not in self._transports:
            self._transports[name] = self._load(name)
        return self._transports[name]

    def _load(self, name: str) -> Transport:
        names = plugins.names(plugins.TRANSPORTS)
        if name not in names:
            return NoTransport(f"no transport {name!r} is installed; installed are {', '.join(names)}")
        try:
            transport: Transport = plugins.load(plugins.TRANSPORTS, name)(*self._sections)
        except Exception as error:  # whatever the module of another distribution raises
            return NoTransport(f"transport {name!r} cannot be used: {type(error).__name__}: {error}")
        return transport


class NoTransport(Transport):
    """Stands for one that is named and cannot be used: each command fails, and says why."""

    def __init__(self, why: str) -> None:
        super().__init__({}, {})
        self._why = why

    def command(self, node: str, shell: str, silence: float) -> List[str]:
        return ["/bin/sh", "-c", f'echo "$0" >&2; exit {UNREACHABLE}', self._why]

    def login(self, node: str) -> str:
        return ""

    def lost(self, status: int, messages: str) -> bool:
        return True
