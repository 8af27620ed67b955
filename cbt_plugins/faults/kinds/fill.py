"""Full OSDs: by lower ratios in the OSD map, without writing data."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Literal, Mapping, Set, Tuple

from pydantic import Field

from cbt_plugins.faults.blast_radius import BlastRadius
from cbt_plugins.faults.cluster_facts import names, osd_names
from cbt_plugins.faults.kind import Kind, KindOptions
from cbt_plugins.faults.scene import Scene, Targets
from cbt_plugins.faults.step import FaultError, Step, UndoRecord
from cbt_plugins.formatting import percent

#: from the lowest to the highest; a cluster warns of ratios in another order
_LEVELS = ("nearfull", "backfillfull", "full")
#: the ratio, as a share of the use of the emptiest target; the lowest use from which a ratio can be made
_BELOW, _LEAST = 0.9, 0.001
#: for each ratio that a step has lowered: the health checks of full OSDs that this explains
_EXPLAINED: Mapping[str, Tuple[str, ...]] = {
    "backfillfull_ratio": ("OSD_BACKFILLFULL",),
    "full_ratio": ("OSD_FULL", "POOL_FULL"),
}


class Fill(Kind):
    """Lowers the ratios of the OSD map until the targets count as full. OSDs with as much data count as full, too.

    The safety rules treat `full` as an outage of these OSDs.
    """

    takes = "daemon"
    serves_on = True

    class Options(KindOptions):
        """The level that the OSDs reach."""

        level: Literal["nearfull", "backfillfull", "full"] = Field(
            "nearfull",
            description="`nearfull`: a warning; `backfillfull`: no backfill to the OSDs; `full`: no client writes to "
            "pools with data on the OSDs.",
        )

    options: Options

    def blast_radius(self, scene: Scene, targets: Targets) -> BlastRadius:
        """Return the OSDs that would count as full, so that pools on them take no writes."""
        return BlastRadius(osd_names(self._hit(scene, targets)) if self.options.level == "full" else ())

    @staticmethod
    def _ratio(scene: Scene, targets: Targets) -> float:
        least = min(_used(scene)[osd] for osd in targets.osds)
        if least < _LEAST:
            text = f"the emptiest OSD is {percent(least, '.3f')} full: too little for a ratio"
            raise FaultError(f"{names(targets.daemons)}: {text}")
        return round(_BELOW * least, 6)

    def _hit(self, scene: Scene, targets: Targets) -> List[int]:
        ratio = self._ratio(scene, targets)
        return [osd for osd, used in sorted(_used(scene).items()) if used >= ratio]

    def steps(self, scene: Scene, targets: Targets) -> List[Step]:
        ratio, level = self._ratio(scene, targets), self.options.level
        lowered = _LEVELS[: _LEVELS.index(level) + 1]
        dump = scene.facts.answers["osd dump"]
        counted = [osd for osd, entry in sorted(scene.facts.osds.items()) if set(_LEVELS) & set(entry.get("state", ()))]
        if counted:  # by another fault, whose ratios would then be taken for those of the cluster
            raise FaultError(f"{names(osd_names(counted))}: full, backfillfull or nearfull already")
        former = {name: float(f"{dump[f'{name}_ratio']:.6g}") for name in lowered}
        if min(former.values()) <= ratio:
            raise FaultError(f"{names(targets.daemons)}: a ratio of the cluster is already {ratio:g} or lower")
        hit = self._hit(scene, targets)
        check, states = f"OSD_{level.upper()}", [("osds", {"osd": osd}, "state", {"=": level}) for osd in hit]
        limits = scene.limits
        # the load may fill an OSD that is nearly full until it counts as full without the fault
        near = {osd for osd, used in _used(scene).items() if used >= _BELOW * former[level]}
        cleared: Any = [(place, None) for osd, place in zip(hit, states) if osd not in near]
        return [
            Step(
                what=f"let {names(osd_names(hit))} count as {level}, by ratios of {ratio:g}",
                node=scene.head,
                inject=(scene.set(*(f"osd set-{name}-ratio {ratio:g}" for name in lowered)),),
                undo=(scene.unset(*(f"osd set-{name}-ratio {former[name]:g}" for name in reversed(lowered))),),
                checks=(
                    scene.says("osd dump", [*_ratios(former), *cleared], limits.down),
                    *(() if near else (scene.says("health", [(("checks", check), None)], limits.down),)),
                ),
                took=(
                    scene.says(
                        "osd dump",
                        [*_ratios(dict.fromkeys(lowered, ratio)), *((place, True) for place in states)],
                        limits.down,
                    ),
                    scene.says("health", [(("checks", check, "severity"), {"not": ""})], limits.down),
                ),
                ended_early=(scene.says("osd dump", _ratios(former), limits.quick),),
                former={f"{name}_ratio": value for name, value in former.items()},
                silent=level == "full",
            )
        ]


def explained_checks(records: Iterable[UndoRecord]) -> Set[str]:
    """Return the health checks that open steps explain: OSDs count as full, although there is room on them."""
    ratios = (name for record in records for name in record.step.former)
    return {check for ratio in ratios for check in _EXPLAINED.get(ratio, ())}


def _used(scene: Scene) -> Dict[int, float]:
    """Return the used share of each OSD that is up."""
    rows = {int(row["id"]): row for row in scene.facts.answers["osd df"]["nodes"]}
    return {
        osd: row["kb_used"] / row["kb"]
        for osd, row in rows.items()
        if row["kb"] and osd in scene.facts.osds and scene.facts.osds[osd]["up"]
    }


def _ratios(values: Dict[str, float]) -> List[Any]:
    return [((f"{name}_ratio",), value) for name, value in values.items()]
