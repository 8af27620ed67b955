"""One OSD: out of the cluster's data placement, or its data destroyed and made again under the same number."""

from __future__ import annotations

import json
import shlex
import uuid
from typing import Any, Dict, List, Mapping, Tuple

from cbt_plugins.faults.daemons import Daemon
from cbt_plugins.faults.harm import Harm
from cbt_plugins.faults.kinds.daemon import checked_way, names, started, stopped
from cbt_plugins.faults.scene import Kind, Scene, Targets
from cbt_plugins.faults.step import Check, Command, FaultError, Step


class Out(Kind):
    """OSDs are marked out: they stay up and give their data to others."""

    unit = "osd"

    def harm(self, targets: Targets, options: Mapping[str, Any]) -> Harm:
        return Harm(osds=targets.osds, out=True)

    def steps(self, scene: Scene, targets: Targets, options: Mapping[str, Any]) -> List[Step]:
        osds = [o for o in targets.osds if scene.facts.osds[o]["in"]]
        if len(osds) < len(targets.osds):
            raise FaultError(f"{names([o for o in targets.osds if o not in osds])} are out already")
        numbers = " ".join(map(str, osds))
        want = [(("osds", {"osd": o}, "in"), 0) for o in osds]
        return [
            Step(
                what=f"mark {names(osds)} out",
                node=scene.head,
                inject=(scene.set(f"osd out {numbers}"),),
                undo=scene.mark_in(osds),
                checks=(_in_again(scene, osds),),
                took=(scene.says("osd dump", want, scene.limits.quick),),
                former=scene.former(osds),
                osds=tuple(osds),
            )
        ]


class Replace(Kind):
    """An OSD's data is destroyed, as with a dead disk; the undo makes an empty OSD with the same number."""

    unit = "osd"
    options: Mapping[str, Any] = {"daemons": "", "consent": ""}

    def harm(self, targets: Targets, options: Mapping[str, Any]) -> Harm:
        return Harm(osds=targets.osds, destroyed=True)

    def steps(self, scene: Scene, targets: Targets, options: Mapping[str, Any]) -> List[Step]:
        wanted = f"{names(targets.osds)} will be destroyed"
        if options.get("consent") != wanted:
            raise FaultError(f"replace destroys data; it needs the option consent: {wanted!r}, word for word")
        steps = []
        for node, daemons in scene.daemons(targets.osds, checked_way(options)).items():
            for daemon in daemons:
                if daemon.way == "cephadm":
                    raise FaultError(_NOT_BY_CEPHADM.format(osd=daemon.osd, node=node))
                make = {"systemd": _volume, "process": _folder}[daemon.way]
                inject, undo, former = make(scene, node, daemon)
                osd = daemon.osd
                steps.append(
                    Step(
                        what=f"destroy osd.{osd} on {node}; the undo makes it anew, empty, with the same number",
                        node=node,
                        inject=inject,
                        undo=(*undo, *scene.mark_in([osd])),
                        checks=(scene.back([osd], scene.limits.boot),),
                        took=(scene.gone([osd]),),
                        former={**scene.former([osd]), **former, "daemons": daemon.way},
                        osds=(osd,),
                    )
                )
        return steps


#: cephadm destroys when it finds the time, and makes an OSD again when a specification says so: no undo can promise it
_NOT_BY_CEPHADM = (
    "osd.{osd} on {node} is run by cephadm, which destroys and makes OSDs at times of its own: replace could not put "
    "it back. kind: stop is the same failure with the data kept. By hand: `ceph orch osd rm {osd} --replace --zap`, "
    "`ceph orch osd rm status` until it is gone; the service's specification makes it again, or "
    "`ceph orch daemon add osd {node}:DEVICE`"
)
_Way = Tuple[Tuple[Command, ...], Tuple[Command, ...], Dict[str, Any]]


def _destroy(scene: Scene, osd: int) -> Command:
    return scene.set(f"osd destroy {osd} --yes-i-really-mean-it")


def _if_destroyed(scene: Scene, osd: int, text: str) -> str:
    """A part of the undo that must not run when the fault did not come so far."""
    destroyed = f"{scene.ceph.command} osd tree destroyed -f json"
    return f"if {destroyed} | grep -Eq '\"id\": ?{osd},'; then {text}; fi"


def _folder(scene: Scene, node: str, daemon: Daemon) -> _Way:
    """A bare process: a new store in the same folder, with the key that the node has for it."""
    osd, new = daemon.osd, str(uuid.uuid4())
    argv = list(daemon.process.argv) if daemon.process else ["ceph-osd"]
    conf = next((["-c", argv[i + 1]] for i, w in enumerate(argv[:-1]) if w in ("-c", "--conf")), [])
    program = " ".join(map(shlex.quote, [argv[0], *conf, "-i", str(osd)]))
    asked = f"{program} --show-config-value osd_data && {program} --show-config-value keyring"
    lines = scene.ask(node, asked, root=True).split("\n")
    data, keyring = lines[0].strip(), lines[1].split(",")[0].strip()
    if not data.startswith("/") or data == "/":
        raise FaultError(f"{node}: osd.{osd} has no folder of its own ({data!r})")
    # the answer holds the key as well, which goes nowhere
    rights = json.loads(scene.ask(scene.head, f"{scene.ceph.command} auth get osd.{osd} -f json"))[0]["caps"]
    caps = " ".join(f"{who} {shlex.quote(what)}" for who, what in rights.items())
    q, k = shlex.quote(data), shlex.quote(keyring)
    make = (
        f'set -e; [ "$(cat {q}/fsid 2>/dev/null)" = {new} ] || find {q} -mindepth 1 -delete; mkdir -p {q}; '
        f"[ -e {k} ] && ceph-authtool {k} -n osd.{osd} -p >/dev/null 2>&1 || "
        f"ceph-authtool --create-keyring {k} --gen-key -n osd.{osd} >/dev/null; "
        f"{program} --no-mon-config --mkfs --osd-uuid {new} >/dev/null 2>&1; "
        f"{scene.ceph.command} auth rm osd.{osd} >/dev/null 2>&1 || true; "
        # a keyring that has rights besides the key, and one that has none
        f"{scene.ceph.command} auth add osd.{osd} -i {k}; {scene.ceph.command} auth caps osd.{osd} {caps}; "
        # last: from here on it no longer counts as destroyed, and all of the above may have to be done twice
        f"{scene.ceph.command} osd new {new} {osd} >/dev/null"
    )
    undo = (
        Command(node, _if_destroyed(scene, osd, f"( {make} )"), scene.limits.slow, root=True),
        *started(scene, node, [daemon]),
    )
    inject = (*stopped(scene, node, [daemon]), _destroy(scene, osd))
    return inject, undo, {"osd_data": data, "keyring": keyring, "new_uuid": new}


def _volume(scene: Scene, node: str, daemon: Daemon) -> _Way:
    """A unit of systemd: ceph-volume wipes the same volumes and makes an OSD of them."""
    osd = daemon.osd
    listed = json.loads(scene.ask(node, f"ceph-volume lvm list {osd} --format json", root=True) or "{}")
    volumes = {v["type"]: v for v in listed.get(str(osd), [])}
    if "block" not in volumes:
        raise FaultError(f"{node}: ceph-volume knows no block device of osd.{osd}; only OSDs on LVM can be replaced")
    parts = {kind: v["lv_path"] for kind, v in volumes.items()}
    dmcrypt = str(volumes["block"].get("tags", {}).get("ceph.encrypted", "0")) == "1"
    create = f"ceph-volume lvm create --osd-id {osd} --data {shlex.quote(parts['block'])}"
    for kind, path in parts.items():
        create += f" --block.{kind} {shlex.quote(path)}" if kind in ("db", "wal") else ""
    zap = f"ceph-volume lvm zap {' '.join(map(shlex.quote, parts.values()))}"
    make = f"systemctl stop {shlex.quote(daemon.unit)}; {zap} && {create}{' --dmcrypt' if dmcrypt else ''}"
    undo = (
        Command(node, _if_destroyed(scene, osd, f"( {make} )"), scene.limits.boot, root=True),
        *started(scene, node, [daemon]),
    )
    return (*stopped(scene, node, [daemon]), _destroy(scene, osd)), undo, {"volumes": parts, "dmcrypt": dmcrypt}


def _in_again(scene: Scene, osds: List[int]) -> Check:
    places = (("in", "in"), ("weight", "weight"))
    want = [(("osds", {"osd": o}, name), scene.facts.osds[o][key]) for o in osds for name, key in places]
    return scene.says("osd dump", want, scene.limits.quick)
