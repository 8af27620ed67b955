"""Ratios of the cores that daemons used: RGW:OSD, requests a second for each core, cores for each GB/s."""

from __future__ import annotations

from fractions import Fraction
from typing import AbstractSet, Any, Collection, Dict, Iterable, Mapping

from cbt_plugins.plan import split_op
from cbt_plugins.results.nodes.usage import rounded
from cbt_plugins.s3_operations import OPERATIONS

_CLASSES = ("osd", "rgw")


def core_ratios(
    classes: Mapping[str, Mapping[str, Any]], partial: AbstractSet[str], load: Mapping[str, Any]
) -> Dict[str, Any]:
    """Return the ratios of a phase, null where a part is not known.

    `classes`: {class: {"cores", ...}}; of the classes of `partial` there are no sums; `load` as in
    resources.of_window. Cores are those of OSDs and RGWs together; a load over S3 uses both.
    """
    lacks_class = bool(partial & set(_CLASSES)) or (is_over_s3(load["ops"]) and bool(unwatched_class(classes)))
    summed_classes = () if lacks_class else _CLASSES
    cores = sum(classes[daemon_class]["cores"] for daemon_class in summed_classes if daemon_class in classes)
    gigabytes = load["bytes_per_s"] / 1e9
    ratio = classes["rgw"]["cores"] / classes["osd"]["cores"] if _has_both(classes) else None
    return {
        "rgw_osd_ratio": rounded(ratio),
        "rgw_osd_fraction": small_fraction(ratio) if ratio else None,
        "ops_per_core": rounded(load["per_s"] / cores) if cores and load["made"] else None,
        "cores_per_gb_s": rounded(cores / gigabytes) if cores and gigabytes else None,
    }


def is_over_s3(ops: Iterable[str]) -> bool:
    """Return whether a load has operations of S3: OSDs and RGWs do its work."""
    return any(split_op(op)[1] in OPERATIONS for op in ops)


def unwatched_class(classes: Collection[str]) -> str:
    """Return "osd" or "rgw" where only the other of these classes was seen; "" where both were, or none."""
    unseen = [daemon_class for daemon_class in _CLASSES if daemon_class not in classes]
    return unseen[0] if len(unseen) == 1 else ""


def small_fraction(ratio: float) -> str:
    """Return the nearest fraction with a denominator of one digit: 1.21 -> "6/5"; 1/n of a smaller ratio."""
    fraction = Fraction(ratio).limit_denominator(9) or Fraction(1, round(1 / ratio))
    return f"{fraction.numerator}/{fraction.denominator}"


def _has_both(classes: Mapping[str, Mapping[str, Any]]) -> bool:
    return "rgw" in classes and "osd" in classes and classes["osd"]["cores"] > 0 and classes["rgw"]["cores"] > 0
