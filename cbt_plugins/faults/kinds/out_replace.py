"""Faults of OSDs: marked out, or destroyed and created again under the same number."""

from __future__ import annotations

import json
import shlex
import uuid
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from pydantic import Field

from cbt_plugins.faults import osd_replacement, service_managers
from cbt_plugins.faults.blast_radius import BlastRadius
from cbt_plugins.faults.cluster_facts import names, osd_names
from cbt_plugins.faults.kind import Kind, ServiceOptions
from cbt_plugins.faults.scene import Scene, Targets
from cbt_plugins.faults.service_managers import Service
from cbt_plugins.faults.step import Check, Command, FaultError, NoAnswer, Step


class Out(Kind):
    """Marks OSDs out: they stay up, and their data moves to other OSDs."""

    takes = "daemon"
    stays_up = True

    def blast_radius(self, scene: Scene, targets: Targets) -> BlastRadius:
        return BlastRadius(targets.daemons, out=True)

    def steps(self, scene: Scene, targets: Targets) -> List[Step]:
        osds = [o for o in targets.osds if scene.facts.osds[o]["in"]]
        if len(osds) < len(targets.osds):
            raise FaultError(f"{names(osd_names(o for o in targets.osds if o not in osds))}: out already")
        numbers = " ".join(map(str, osds))
        want = [(("osds", {"osd": o}, "in"), 0) for o in osds]
        return [
            Step(
                what=f"mark {names(targets.daemons)} out",
                node=scene.head,
                inject=(scene.set(f"osd out {numbers}"),),
                undo=scene.mark_in(osds),
                checks=(_in_again(scene, osds),),
                took=(scene.says("osd dump", want, scene.limits.quick),),
                former=scene.former(osds),
                daemons=tuple(map(str, targets.daemons)),
            )
        ]


class Replace(Kind):
    """Destroys the data of an OSD, like a dead disk; the undo creates an empty OSD with the same number.

    The fault needs `accept: [safe-to-destroy]` unless other OSDs have copies of all data of the OSD. Refused are
    OSDs of ceph-volume with a part that is not on LVM, and OSDs of cephadm that are encrypted or not on LVM. On
    cephadm the fault takes one OSD of a host at a time; without cephadm, `ceph` must work as root on the OSD's node.
    """

    takes = "daemon"
    changes_in_kubernetes = None

    class Options(ServiceOptions):
        """The consent to destroy data."""

        consent: str = Field("", description="Write `osd.3 will be destroyed`, word for word.")

    options: Options

    def errors(self, targets: Sequence[str]) -> Iterator[Tuple[str, str]]:
        wanted = f"{', '.join(targets)} will be destroyed"
        if not targets:
            yield "targets", "replace destroys data: name the OSDs with osds: [3]"
        elif self.options.consent != wanted:
            yield "options", f"replace destroys data: give the option consent: {wanted!r}, word for word"

    def blast_radius(self, scene: Scene, targets: Targets) -> BlastRadius:
        return BlastRadius(targets.daemons, destroyed=True)

    def steps(self, scene: Scene, targets: Targets) -> List[Step]:
        manager = self.options.service_manager or ""
        services_by_node = service_managers.find_services(scene, targets.daemons, manager, on_node=True)
        return [
            _replacement(scene, service, services_of_node)
            for services_of_node in services_by_node.values()
            for service in services_of_node
        ]


def _replacement(scene: Scene, service: Service, services_of_node: Sequence[Service]) -> Step:
    """Return the step that destroys the OSD of a service. `services_of_node`: all services that the fault hits."""
    osd, node = int(service.name.id), service.node
    if service.manager == "cephadm":
        undo, former = osd_replacement.undo_commands(scene, service, services_of_node)
        inject: Tuple[Command, ...] = (*service_managers.stop(scene, [service]), _destroy(scene, osd))
    else:
        make = {"systemd": volume_commands, "process": _folder}[service.manager]
        inject, undo, former = make(scene, node, service)
    return Step(
        what=f"destroy osd.{osd} on {node}; the undo creates an empty OSD with the same number",
        node=node,
        inject=inject,
        undo=(*undo, *scene.mark_in([osd])),
        checks=(
            scene.osds_back([osd], scene.limits.boot),
            *service_managers.MANAGERS[service.manager].settled(scene, [service]),
        ),
        took=(scene.osds_down([osd]),),
        former={**scene.former([osd]), **former, "service_manager": service.manager},
        daemons=(str(service.name),),
    )


_Commands = Tuple[Tuple[Command, ...], Tuple[Command, ...], Dict[str, Any]]


def _destroy(scene: Scene, osd: int) -> Command:
    return scene.set(f"osd destroy {osd} --yes-i-really-mean-it")


def _if_destroyed(scene: Scene, node: str, osd: int, text: str) -> str:
    """Return commands of the undo that run only if the OSD was destroyed, and fail if the cluster does not say so.

    Raises NoAnswer if `ceph` does not work as root on the node, perhaps only for the moment.
    """
    question = f"{scene.ceph.command} osd tree destroyed -f json"
    try:
        scene.ask(node, question, root=True)
    except NoAnswer as error:
        raise NoAnswer(f"{error}: to create osd.{osd} again, root needs `ceph` and its keyring there") from error
    return f"d=$({question}) && if printf '%s' \"$d\" | grep -Eq '\"id\": ?{osd},'; then {text}; fi"


def _folder(scene: Scene, node: str, service: Service) -> _Commands:
    """Return the commands that create the OSD of a bare process again: a new store in the same folder, with its key."""
    osd, new = int(service.name.id), str(uuid.uuid4())
    argv = list(service.process.argv) if service.process else ["ceph-osd"]
    conf = next((["-c", argv[i + 1]] for i, w in enumerate(argv[:-1]) if w in ("-c", "--conf")), [])
    program = " ".join(map(shlex.quote, [argv[0], *conf, "-i", str(osd)]))
    query = f"{program} --show-config-value osd_data && {program} --show-config-value keyring"
    lines = scene.ask(node, query, root=True).split("\n")
    data, keyring = lines[0].strip(), lines[1].split(",")[0].strip()
    if not data.startswith("/") or data == "/":
        raise FaultError(f"{node}: osd.{osd} has no data folder ({data!r})")
    # the reply also contains the key, which is not kept
    rights = json.loads(scene.ask(scene.head, f"{scene.ceph.command} auth get osd.{osd} -f json"))[0]["caps"]
    caps = " ".join(f"{who} {shlex.quote(capability)}" for who, capability in rights.items())
    q, k = shlex.quote(data), shlex.quote(keyring)
    make = (
        f'set -e; [ "$(cat {q}/fsid 2>/dev/null)" = {new} ] || find {q} -mindepth 1 -delete; mkdir -p {q}; '
        f"[ -e {k} ] && ceph-authtool {k} -n osd.{osd} -p >/dev/null 2>&1 || "
        f"ceph-authtool --create-keyring {k} --gen-key -n osd.{osd} >/dev/null; "
        f"{program} --no-mon-config --mkfs --osd-uuid {new} >/dev/null 2>&1; "
        f"{scene.ceph.command} auth rm osd.{osd} >/dev/null 2>&1 || true; "
        # for a keyring with capabilities besides the key, and for a keyring without
        f"{scene.ceph.command} auth add osd.{osd} -i {k}; {scene.ceph.command} auth caps osd.{osd} {caps}; "
        # last: after this the OSD does not count as destroyed; all commands above may have to run twice
        f"{scene.ceph.command} osd new {new} {osd} >/dev/null"
    )
    undo = (
        Command(node, _if_destroyed(scene, node, osd, f"( {make} )"), scene.limits.slow, root=True),
        *service_managers.start(scene, [service]),
    )
    inject = (*service_managers.stop(scene, [service]), _destroy(scene, osd))
    return inject, undo, {"osd_data": data, "keyring": keyring, "new_uuid": new}


def volume_commands(scene: Scene, node: str, service: Service) -> _Commands:
    """Return the commands that create the OSD of a systemd unit again: ceph-volume wipes and reuses the volumes."""
    osd = int(service.name.id)
    listed = json.loads(scene.ask(node, f"ceph-volume lvm list {osd} --format json", root=True) or "{}")
    # an OSD of this number, purged or of another cluster, may have volumes too; a partition has no such tag
    fsid = scene.facts.osds[osd]["uuid"]
    volumes = {v["type"]: v for v in listed.get(str(osd), []) if v["tags"].get("ceph.osd_fsid", fsid) == fsid}
    if "block" not in volumes:
        raise FaultError(
            f"{node}: ceph-volume knows no block device of osd.{osd} ({fsid}); only OSDs on LVM can be replaced"
        )
    partitions = [str(v.get("path")) for v in volumes.values() if "lv_name" not in v]
    if partitions:  # ceph-volume tells the path that a partition had when the OSD was made
        raise FaultError(f"{node}: osd.{osd} uses {', '.join(partitions)}, which is not on LVM: it cannot be replaced")
    # by their names: without udev the link /dev/VG/LV leads to /dev/mapper, which ceph-volume does not zap
    parts = {kind: f"{v['vg_name']}/{v['lv_name']}" for kind, v in volumes.items()}
    tags = volumes["block"].get("tags", {})
    dmcrypt = str(tags.get("ceph.encrypted", "0")) == "1"
    create = f"ceph-volume lvm create --osd-id {osd} --data {shlex.quote(parts['block'])}"
    for kind, path in parts.items():
        create += f" --block.{kind} {shlex.quote(path)}" if kind in ("db", "wal") else ""
    zap = f"ceph-volume lvm zap {' '.join(map(shlex.quote, parts.values()))}"
    create += " --dmcrypt" if dmcrypt else ""
    # where it fails, ceph-volume has removed the OSD from the cluster, or has left it half made: destroyed once more,
    # the next attempt begins as this one has
    again = f"{scene.ceph.command} osd new {uuid.uuid4()} {osd}; {_destroy(scene, osd).text}"
    # of the destroyed OSD: it would fail at each boot
    former = shlex.quote(f"ceph-volume@lvm-{osd}-{tags.get('ceph.osd_fsid', '')}")
    stop = f"systemctl stop {shlex.quote(service.unit)}; systemctl --quiet disable {former}"
    make = f"{stop}; {zap} && {{ {create} || {{ {again}; false; }}; }}"
    undo = (
        Command(node, _if_destroyed(scene, node, osd, f"( {make} )"), scene.limits.boot, root=True),
        *service_managers.start(scene, [service]),
    )
    return (
        (*service_managers.stop(scene, [service]), _destroy(scene, osd)),
        undo,
        {"volumes": parts, "dmcrypt": dmcrypt},
    )


def _in_again(scene: Scene, osds: List[int]) -> Check:
    places = (("in", "in"), ("weight", "weight"))
    want = [(("osds", {"osd": o}, name), scene.facts.osds[o][key]) for o in osds for name, key in places]
    return scene.says("osd dump", want, scene.limits.quick)
