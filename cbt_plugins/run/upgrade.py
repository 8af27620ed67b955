"""The event `upgrade:`: another release for every daemon, one after the other, while the load runs."""

from __future__ import annotations

import logging
import math
import re
import shlex
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from cbt_plugins.cluster.ceph import Ceph, CephError, newest_gateways
from cbt_plugins.cluster_conditions import UPGRADE_BEGIN, UPGRADE_END, UPGRADE_STEP
from cbt_plugins.faults import FaultError, Injector
from cbt_plugins.inventory import HostTable
from cbt_plugins.journal import tell
from cbt_plugins.plan import NodeCommand, Upgrade
from cbt_plugins.polling import Clock, wait_until

log = logging.getLogger(__name__)

#: the order of Ceph's manual
TYPES = ("mon", "mgr", "osd", "rgw")
#: seconds for which all PGs must be active+clean after an OSD came back: their states lag behind its return
SETTLED = 6.0
#: seconds from one question to the next
PAUSE, PAUSE_OF_ORCHESTRATOR = 0.5, 3.0
#: seconds for which the orchestrator may say that no upgrade is in progress, before that is an error
_STARTING = 30.0
_VERSION = re.compile(r"ceph version (\d+(?:\.\d+)*)\S* \([^)]*\) (\w+)")

#: type of daemon -> version -> number of them
Versions = Dict[str, Dict[str, int]]


class Daemon(NamedTuple):
    """A daemon as the cluster knows it."""

    type: str
    id: str
    host: str

    @property
    def name(self) -> str:
        return f"{self.type}.{self.id}"

    def filled(self, command: str) -> str:
        """Return the command for this daemon; other braces are the shell's."""
        parts = {"{daemon}": self.name, "{type}": self.type, "{id}": self.id}
        return re.sub("|".join(map(re.escape, parts)), lambda match: parts[match[0]], command)


class Upgrader:
    """Upgrades the cluster of one run. `note` writes into the event log; `nodes` are those of `cluster:`."""

    clock = Clock()

    def __init__(self, injector: Injector, ceph: Ceph, note: Callable[..., None], nodes: Sequence[str]) -> None:
        self._injector, self._ceph, self._note, self._nodes = injector, ceph, note, nodes

    def run(self, upgrade: Upgrade) -> None:
        """Upgrade every daemon. Raises FaultError; what has the new release by then keeps it."""
        try:
            daemons = list(self._daemons())
            before = self.versions()
            if not any(not fits(version, upgrade.to) for counts in before.values() for version in counts):
                raise FaultError(
                    f"{upgrade.label}: every daemon already has release {upgrade.to}: restore the "
                    f"old release first"
                )
            tell(self._note, UPGRADE_BEGIN, label=upgrade.label, to=upgrade.to, versions=before)
            try:
                self._by_image(upgrade) if upgrade.image else self._by_command(upgrade, daemons)
            finally:
                tell(self._note, UPGRADE_END, label=upgrade.label, versions=self._versions_if_told())
        except CephError as error:
            raise FaultError(f"{upgrade.label}: {error}") from error

    def _by_command(self, upgrade: Upgrade, daemons: Sequence[Daemon]) -> None:
        table = HostTable(self._nodes)
        nodes = {daemon: table.find(daemon.host) for daemon in daemons}
        unknown = sorted({daemon.host for daemon, node in nodes.items() if node is None})
        if unknown:
            raise FaultError(
                f"{upgrade.label}: `cluster:` does not name nodes of daemons: {', '.join(unknown)}"
            )
        for daemon in daemons:
            if fits(self._version_of(daemon) or "", upgrade.to):
                continue
            self._step(upgrade, f"{daemon.name} on {nodes[daemon]}")
            text = daemon.filled(upgrade.command)
            label = f"{upgrade.label} {daemon.name}"
            self._injector.run(NodeCommand(label, text, nodes[daemon] or "", "", upgrade.timeout, root=True))
            self._await(upgrade, daemon)
        self._require(upgrade)

    def _require(self, upgrade: Upgrade) -> None:
        """Let the OSDs use what the new release has."""
        names = {match[2] for text in self._ceph.json("versions").get("osd", {}) if (match := _VERSION.search(text))}
        if len(names) == 1:
            text = f"require-osd-release {names.pop()}"
            self._step(upgrade, text)
            self._injector.run(NodeCommand(f"{upgrade.label} {text}", f"{self._ceph.command} osd {text}"))

    def _await(self, upgrade: Upgrade, daemon: Daemon) -> None:
        """Wait until a daemon says the new version and, after an OSD's return, all PGs stay active+clean."""
        clean_since: Optional[float] = None
        reply: Any = "no reply"

        def is_upgraded() -> bool:
            nonlocal clean_since, reply
            try:
                reply = self._version_of(daemon)
                if not fits(reply or "", upgrade.to):
                    return False
                clean = daemon.type != "osd" or self._ceph.status().not_clean == 0
            except CephError as error:  # a monitor that restarts does not answer
                reply = str(error)
                return False
            clean_since = (clean_since or self.clock.now()) if clean else None
            settled = SETTLED if daemon.type == "osd" else 0.0
            return clean_since is not None and self.clock.now() - clean_since >= settled

        def too_late(_: bool) -> FaultError:
            clean_text = ", or its PGs did not become active+clean" if fits(str(reply), upgrade.to) else ""
            return FaultError(f"{upgrade.label}: {daemon.name} is not at {upgrade.to}: {reply}{clean_text}")

        wait_until(is_upgraded, upgrade.timeout, PAUSE, too_late, clock=self._pauses)

    def _by_image(self, upgrade: Upgrade) -> None:
        """Let the orchestrator do it; a step begins whenever the number of daemons of a version has changed."""
        begin = self.clock.now()
        last = self.versions()
        self._step(upgrade, "orchestrator begins")
        start = f"{self._ceph.command} orch upgrade start --image {shlex.quote(upgrade.image)}"
        self._injector.run(NodeCommand(upgrade.label, start))

        def is_finished() -> bool:
            nonlocal last
            try:
                now, status = self.versions(), self._ceph.json("orch upgrade status")
            except CephError as error:
                now, status = last, {"in_progress": True, "message": str(error)}
            if now != last:
                self._step(upgrade, version_change(last, now), now)
                last = now
            passed, working = self.clock.now() - begin, bool(status.get("in_progress"))
            if not working and all(fits(version, upgrade.to) for counts in now.values() for version in counts):
                return True
            message = str(status.get("message") or "")
            stuck = status.get("is_paused") or message.startswith("Error") or (not working and passed > _STARTING)
            if stuck or passed > upgrade.timeout:
                raise FaultError(f"{upgrade.label}: the orchestrator did not finish in time: {message or status}")
            return False

        self._pause(PAUSE_OF_ORCHESTRATOR)
        wait_until(is_finished, math.inf, PAUSE_OF_ORCHESTRATOR, clock=self._pauses)

    def _step(self, upgrade: Upgrade, text: str, versions: Optional[Versions] = None) -> None:
        current_versions = versions if versions is not None else self._versions_if_told()
        log.info("%s: %s", upgrade.label, text)
        tell(self._note, UPGRADE_STEP, label=upgrade.label, step=text, versions=current_versions)

    @property
    def _pauses(self) -> Clock:
        return Clock(self.clock.now, self._pause)

    def _pause(self, seconds: float) -> None:
        if self._injector.stopping:
            raise FaultError("the run is stopping; the upgrade is not complete")
        self.clock.sleep(seconds)

    def _daemons(self) -> Iterator[Daemon]:
        by_type = self._ceph.json("node ls")
        for kind in TYPES[:3]:
            for host, ids in by_type.get(kind, {}).items():
                yield from (Daemon(kind, str(daemon_id), host) for daemon_id in ids)
        yield from (Daemon("rgw", daemon_id, host) for daemon_id, host in sorted(self._gateways()))

    def _gateways(self) -> Dict[Tuple[str, str], Mapping[str, Any]]:
        """Return the metadata of each RGW by its id and host."""
        newest = newest_gateways(self._ceph.json("service dump"))
        about = ((key, row["metadata"]) for key, row in newest.items())
        return {(metadata.get("id", key), metadata.get("hostname", "")): metadata for key, metadata in about}

    def _version_of(self, daemon: Daemon) -> Optional[str]:
        if daemon.type == "rgw":
            about = self._gateways().get((daemon.id, daemon.host), {})
        else:
            about = self._ceph.json(f"{daemon.type} metadata {shlex.quote(daemon.id)}", timeout=20.0)
        return about.get("ceph_version_short")

    def versions(self) -> Versions:
        """Return the number of daemons of each type and version."""
        versions: Versions = {}
        for kind, texts in self._ceph.json("versions", timeout=20.0).items():
            if kind not in ("overall", "rgw"):
                for text, number in texts.items():
                    version = _VERSION.search(text)
                    _count(versions, kind, version[1] if version else text, number)
        for about in self._gateways().values():
            _count(versions, "rgw", about.get("ceph_version_short", "unknown"), 1)
        return versions

    def _versions_if_told(self) -> Optional[Versions]:
        try:
            return self.versions()
        except CephError:
            return None


def fits(version: str, wanted: str) -> bool:
    """Return whether a version is the one that was asked for: 18.2.7 is 18.2."""
    return f"{version}.".startswith(f"{wanted}.")


def version_change(before: Versions, after: Versions) -> str:
    """Return the daemons that have another version, in words: "1 of 3 mon"."""
    parts: List[str] = []
    for kind, counts in after.items():
        if counts != before.get(kind):
            new = max(counts, key=lambda version: tuple(map(int, re.findall(r"\d+", version))))
            parts.append(f"{counts[new]} of {sum(counts.values())} {kind} at {new}")
    return ", ".join(parts) or "no daemon"


def _count(versions: Versions, kind: str, version: str, number: int) -> None:
    counts = versions.setdefault(kind, {})
    counts[version] = counts.get(version, 0) + number
