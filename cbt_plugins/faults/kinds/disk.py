"""Faults of disks of OSDs: slow disks, and read errors."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated, Any, Dict, List, Optional, Tuple

from pydantic import Field

from cbt_plugins.faults import service_managers
from cbt_plugins.faults.kind import Bytes, Kind, KindOptions, ServiceOptions, Share
from cbt_plugins.faults.node_shell import FOLDER, script_text
from cbt_plugins.faults.scene import Scene, Targets
from cbt_plugins.faults.service_managers import Service
from cbt_plugins.faults.step import Check, Command, FaultError, Step, find

#: with a slower disk nobody could tell whether the OSD is alive
_FEWEST, _SLOWEST = 5, 100_000
#: limit of each where none is given
_IOPS = 50
_MEANS = {"v1": "blkio.throttle of a new control group", "v2": "io.max of the unit"}


class SlowDisk(Kind):
    """Limits the requests or bytes per second of an OSD's disk. The safety rules count the OSD as down, because it may
    go down.

    The fault is refused if the OSD has no control group for its disk (needs `IOAccounting=yes` in the unit).
    """

    takes = "daemon"
    changes_in_kubernetes = None
    serves_on = True

    class Options(KindOptions):
        """Limits of the disk; each holds for reads, and for writes."""

        iops: Optional[Annotated[int, Field(ge=_FEWEST)]] = Field(
            None,
            description=f"Reads per second, and writes per second; {_FEWEST} or more. "
            f"Default: {_IOPS} if `rate` is not set.",
        )
        rate: Optional[Annotated[Bytes, Field(ge=_SLOWEST)]] = Field(
            None, description="Bytes read per second, and bytes written per second; 100kB or more."
        )

        @property
        def limits(self) -> Dict[str, int]:
            """Limits by the names of slow_disk.sh; 0 is none."""
            iops = self.iops or (0 if self.rate else _IOPS)
            return {"iops": iops, "bps": int(self.rate or 0)}

    options: Options

    def steps(self, scene: Scene, targets: Targets) -> List[Step]:
        metadata = {int(entry["id"]): entry for entry in scene.facts.answers["osd metadata"]}
        steps: List[Step] = []
        for of_node in service_managers.find_services(scene, targets.daemons, on_node=True).values():
            for service in of_node:
                entry = metadata[int(service.name.id)]
                disks = str(entry.get("bluestore_bdev_devices") or entry.get("devices") or "").replace(",", " ")
                if not disks:
                    raise FaultError(f"{service.name} does not report its disk")
                steps.append(self._step(scene, f"{scene.name}-{len(steps) + 1}", service, disks))
        return steps

    def _step(self, scene: Scene, name: str, service: Service, disks: str) -> Step:
        node, osd, limits = service.node, int(service.name.id), self.options.limits
        if service.process is None:
            raise FaultError(f"{node}: no process of {service.name} found: nothing to slow down")
        process = service.process.identity
        own = {"name": f"cbt-plugins-{name}", "process": process, "unit": service.unit, **limits}
        answer = scene.ask(node, script_text("slow_disk", action="look", disks=disks, **own), root=True)
        seen: Dict[str, List[str]] = {}
        for line in answer.splitlines():
            word, _, text = line.partition(" ")
            seen.setdefault(word, []).append(text)
        former = "\n".join(seen.pop("former", ()))
        how, group, join, numbers, microseconds = (
            seen[word][0] for word in ("how", "group", "join", "numbers", "microseconds")
        )
        values = {**own, "how": how, "group": group, "join": join, "numbers": numbers, "former": former}
        set_it, unset, unset_seen, effect = (
            script_text("slow_disk", action=action, **values) for action in ("set", "unset", "unset_seen", "effect")
        )
        quick = scene.limits.quick
        return Step(
            what=f"limit {disks.replace(' ', ', ')} to {self._text()} for {service.name} on {node}, by {_MEANS[how]}",
            node=node,
            inject=(Command(node, set_it, quick, root=True),),
            undo=(
                Command(node, unset, quick, root=True),
                *service_managers.start(scene, [service]),
                *scene.mark_in([osd]),
            ),
            checks=(Check(node, unset_seen, (((), "recovered"),), quick, root=True), scene.osds_back([osd])),
            took=(Check(node, effect, (((), "in effect"),), quick, root=True),),
            ended_early=(Check(node, unset_seen, (((), "recovered"),), quick, root=True),),
            former={"read_us": int(microseconds), "io.max": former, **scene.former([osd])},
            silent=True,
        )

    def _text(self) -> str:
        limits = self.options.limits
        texts = {"iops": "{} requests a second", "bps": "{} bytes a second"}
        return " and ".join(texts[name].format(value) for name, value in limits.items() if value)


#: option of BlueStore: with the value x, one read in int(100 x) fails
_READ_ERRORS = "bluestore_debug_random_read_err"


class ReadErrors(Kind):
    """Lets reads of an OSD fail, by BlueStore's error injection. The cluster repairs each read from other copies.

    The fault needs a load with reads: without a repair within a minute the fault counts as without effect. Before Ceph
    20 the undo restarts the OSD once: Ceph's health warns of repaired reads, and only a restart sets their number to 0.
    """

    takes = "daemon"
    serves_on = True
    changes_in_kubernetes = "deployment"

    class Options(ServiceOptions):
        """The share of reads that fail."""

        share: Share = Field(0.01, ge=0.0001, le=0.5, description="Share of the reads that fail; 0.01% to 50%.")

    options: Options

    def steps(self, scene: Scene, targets: Targets) -> List[Step]:
        services_by_node = service_managers.find_services(scene, targets.daemons, self.options.service_manager or "")
        return [self._step(scene, service) for of_node in services_by_node.values() for service in of_node]

    def _step(self, scene: Scene, service: Service) -> Step:
        osd, limits = int(service.name.id), scene.limits
        look = f"tell osd.{osd} config get {_READ_ERRORS}"
        former = _value(scene, look)
        if float(former):
            raise FaultError(f"osd.{osd}: {_READ_ERRORS} is {former} already")
        repaired = ("osd_stats", {"osd": osd}, "num_shards_repaired")
        dump = json.loads(scene.ask(scene.head, f"{scene.ceph.command} pg dump osds -f json 2>/dev/null"))
        repairs = find(dump, repaired)
        every = round(1 / self.options.share)
        # the half keeps the product from being rounded down to the number before
        value = f"{(every + 0.5) / 100:.6f}"
        forget, left = self._forget(scene, service, repairs)
        return Step(
            what=f"let one in {every} reads of osd.{osd} fail, by {_READ_ERRORS}",
            node=scene.head,
            inject=(scene.set(f"tell osd.{osd} config set {_READ_ERRORS} {value}"),),
            undo=(
                scene.unset(f"tell osd.{osd} config unset {_READ_ERRORS}"),
                *forget,
                *scene.mark_in([osd]),
            ),
            checks=(
                scene.says(look, [((_READ_ERRORS,), former)], limits.back),
                scene.osds_back([osd]),
                scene.says("pg dump osds", [(repaired, left)], limits.back),
            ),
            took=(
                scene.says(look, [((_READ_ERRORS,), value)], limits.quick),
                scene.says("pg dump osds", [(repaired, {"not": repairs})], limits.down),
            ),
            ended_early=(scene.says(look, [((_READ_ERRORS,), former)], limits.quick),),
            former={_READ_ERRORS: former, "repaired": repairs, **scene.former([osd])},
            silent=True,
        )

    @staticmethod
    def _forget(scene: Scene, service: Service, repairs: int) -> Tuple[Tuple[Command, ...], int]:
        """Return the commands that clear the OSD's count of repairs, of which the cluster's health warns, and the count
        that they leave.

        Before Tentacle only a restart clears it, to 0; the OSD is restarted once, however often the undo runs.
        """
        tell = f"{scene.ceph.command} tell {service.name}"
        if "clear_shards_repaired" in scene.ask(scene.head, f"{tell} help"):
            clear = scene.unset(f"tell {service.name} clear_shards_repaired {repairs}")
            return (*service_managers.start(scene, [service]), clear), repairs
        mark = f'"$d/{scene.name}-{service.name}.restarted"'
        restarts = service_managers.restart(scene, [service])
        once = "( {0}; [ -e {1} ] ) || {{ ( {2}\n) && ( {0}; : > {1} ); }}"
        return tuple(replace(c, text=once.format(FOLDER, mark, c.text)) for c in restarts), 0


def _value(scene: Scene, look: str) -> Any:
    return json.loads(scene.ask(scene.head, f"{scene.ceph.command} {look} -f json"))[_READ_ERRORS]
