"""Replacement of an OSD that cephadm runs: destroyed, then created again by the orchestrator on its volumes.

`ceph orch osd rm --replace` is not used: also with --force, it marks the OSD out and waits until `ceph osd
safe-to-destroy` allows the end of the OSD. A dead disk gives no time for that.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

from cbt_plugins.faults import service_managers
from cbt_plugins.faults.cluster_facts import names, osd_names
from cbt_plugins.faults.node_shell import agent, script_text
from cbt_plugins.faults.scene import Scene
from cbt_plugins.faults.service_managers import Service
from cbt_plugins.faults.step import Command, FaultError

_AGENT = "replacement_agent"
#: a part of an OSD -> its name in the order to the orchestrator
_DEVICES = {"block": "data_devices", "db": "db_devices", "wal": "wal_devices"}
#: label of hosts that get no daemons from the orchestrator
_NO_SCHEDULE = "_no_schedule"
#: text that needs no quotes in the order to the orchestrator
_PLAIN = re.compile(r"[A-Za-z0-9+_.-]*")


def undo_commands(
    scene: Scene, service: Service, services_of_node: Sequence[Service]
) -> Tuple[Tuple[Command, ...], Dict[str, Any]]:
    """Return the commands that create the destroyed OSD of a service again, and the facts for the journal.

    `services_of_node`: all services on its node that the fault hits. Raises FaultError for an OSD that the
    orchestrator would not create again, on its volumes, under its number.
    """
    node = service.node
    if len(services_of_node) > 1:
        hit = names(each.name for each in services_of_node)
        text = "the orchestrator mixes up the numbers of several destroyed OSDs: replace one OSD of a host at a time"
        raise FaultError(f"{node}: {hit}: {text}")
    osd = int(service.name.id)
    _refuse_removal(scene, osd)
    host, service_id = _place(scene, osd)
    bucket = _crush_host(scene, osd, host)
    folder = f"/var/lib/ceph/{scene.facts.fsid}/{service.name}"
    volumes = _volumes(scene, node, osd, folder)
    plan = {
        "osd": osd,
        "host": host,
        "bucket": bucket,
        "devices": [(_DEVICES[part], f"/dev/{volume}") for part, volume in volumes.items()],
        "service": service_id,
        "weight": scene.facts.tree[osd].get("crush_weight", 0),
        "location": _location(scene, osd),
        "device_class": scene.facts.tree[osd].get("device_class", ""),
    }
    words = (scene.ceph.command, json.dumps(plan))
    remove, create = (agent(verb, *words, program=_AGENT) for verb in ("remove", "create"))
    (start,) = service_managers.start(scene, [service])
    uuid = scene.facts.osds[osd]["uuid"]
    clear = script_text("clear_volumes", folder=folder, osd_fsid=uuid, volumes=" ".join(volumes.values()))
    commands = (
        Command(scene.head, remove, scene.limits.slow),
        Command(node, f"( {clear}\n)", scene.limits.slow, root=True),
        Command(scene.head, create, scene.limits.boot),
        # nothing may have been destroyed, or the new daemon may have ended before its first start
        replace(start, text=f"[ ! -e {folder} ] || {{ {start.text}; }}"),
    )
    return commands, {"volumes": volumes, "host": host, "service": service_id}


def _orchestrator_rows(scene: Scene, question: str) -> List[Mapping[str, Any]]:
    """Return the rows of a reply of the orchestrator, which is a sentence if there are none."""
    reply = scene.ask(scene.head, f"{scene.ceph.command} orch {question} --format json").strip()
    return list(json.loads(reply)) if reply.startswith("[") else []


def _refuse_removal(scene: Scene, osd: int) -> None:
    if any(int(row["osd_id"]) == osd for row in _orchestrator_rows(scene, "osd rm status")):
        raise FaultError(f"osd.{osd} is being removed by the orchestrator: see `ceph orch osd rm status`")


def _place(scene: Scene, osd: int) -> Tuple[str, str]:
    """Return the host of an OSD, and the ID of its service ("" for none), as the orchestrator calls them."""
    rows = _orchestrator_rows(scene, f"ps --daemon_type osd --daemon_id {osd}")
    row = next((row for row in rows if str(row["daemon_id"]) == str(osd)), None)
    if row is None:
        raise FaultError(f"the orchestrator does not know osd.{osd}: see `ceph orch ps --daemon_type osd`")
    host, service_id = str(row["hostname"]), str(row.get("service_name") or "osd").partition(".")[2]
    for text in (host, service_id):
        if not _PLAIN.fullmatch(text):
            raise FaultError(f"osd.{osd}: the name {text!r} cannot be given to `ceph orch daemon add osd`")
    _refuse_host(scene, osd, host)
    return host, service_id


def _refuse_host(scene: Scene, osd: int, host: str) -> None:
    """Raise FaultError for a host on which the orchestrator creates no OSDs; it would drop the order silently."""
    row = next((row for row in _orchestrator_rows(scene, "host ls") if row["hostname"] == host), {})
    reasons = [f"the label {label}" for label in row.get("labels", ()) if label == _NO_SCHEDULE]
    reasons += [f"the status {row['status'].lower()}"] if row.get("status") else []
    if reasons:
        text = "the orchestrator creates no OSDs there: see `ceph orch host ls`"
        raise FaultError(f"osd.{osd} cannot be replaced: its host {host} has {' and '.join(reasons)}, and {text}")


def _crush_host(scene: Scene, osd: int, host: str) -> str:
    """Return the bucket of an OSD. Raises FaultError if the orchestrator would not find the number of the OSD there."""
    facts = scene.facts
    buckets = [node for node in facts.tree.values() if node["type"] == "host" and osd in node.get("children", ())]
    bucket = str(buckets[0]["name"]) if buckets else ""
    if bucket != host.partition(".")[0]:
        text = f"is in the CRUSH bucket {bucket!r}, but the orchestrator looks for its number in {host!r}"
        raise FaultError(f"osd.{osd} {text}: the OSD would get another number")
    siblings = [o for o in buckets[0]["children"] if o != osd and "destroyed" in facts.osds[o].get("state", ())]
    if siblings:
        text = f"{bucket} has destroyed OSDs already, whose numbers the orchestrator would use"
        raise FaultError(f"osd.{osd} cannot be replaced: {text}: {names(osd_names(siblings))}")
    return bucket


def _location(scene: Scene, osd: int) -> List[str]:
    """Return the CRUSH location of an OSD, such as ["host=node1", "root=default"]."""

    def above(item: int) -> Iterator[str]:
        for node in scene.facts.tree.values():
            if item in node.get("children", ()):
                yield f"{node['type']}={node['name']}"
                yield from above(int(node["id"]))

    return list(above(osd))


def _volumes(scene: Scene, node: str, osd: int, folder: str) -> Dict[str, str]:
    """Return part of an OSD ("block", "db", "wal") -> VG/LV. Raises FaultError for an OSD of another shape."""
    where, uuid = f"{node}: osd.{osd}", scene.facts.osds[osd]["uuid"]
    listing = f"[ -d {folder} ] && lvs --reportformat json -o vg_name,lv_name,lv_tags || echo none"
    reply = scene.ask(node, listing, root=True).strip()
    if reply.endswith("none"):  # lvs may fail after it has listed volumes
        raise FaultError(f"{where} has no folder {folder}, or lvs fails on {node}")
    volumes: Dict[str, str] = {}
    block: Dict[str, str] = {}
    for row in json.loads(reply)["report"][0]["lv"]:
        tags = dict(tag.partition("=")[::2] for tag in row["lv_tags"].split(","))
        if tags.get("ceph.osd_fsid") == uuid and tags.get("ceph.osd_id") == str(osd):
            volumes[tags.get("ceph.type", "")] = f"{row['vg_name']}/{row['lv_name']}"
            block = tags if tags.get("ceph.type") == "block" else block
    if not block or not set(volumes) <= set(_DEVICES):
        text = "the orchestrator creates only OSDs on LVM again under their numbers"
        raise FaultError(f"{where} has no logical volume with its data; {text}")
    devices = {part: block.get(f"ceph.{part}_device", "") for part in _DEVICES if part not in volumes}
    elsewhere = [device for device in devices.values() if device]
    if elsewhere:
        raise FaultError(f"{where} uses {', '.join(elsewhere)}, which is not on LVM: it cannot be replaced")
    if block.get("ceph.encrypted", "0") == "1":
        raise FaultError(f"{where} is encrypted: encrypted OSDs of cephadm cannot be replaced")
    return volumes
