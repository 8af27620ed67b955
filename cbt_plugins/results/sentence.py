"""What a phase that is no measurement came to, in words."""

from __future__ import annotations

from typing import Any, Dict, Iterable, Mapping, Optional

from cbt_plugins.results.archive import Phase


def sentence(phase: Phase, line: Mapping[str, Any]) -> Optional[str]:
    """For phases of kind "verify" and "delete", over all of their requests; None for others."""
    if phase.kind == "verify":
        read = _all(line["ops"], ("GET", "STAT"))
        wrong = sum(int(job.driver_end.get("checksum_errors") or 0) for job in phase.jobs)
        said = f"{wrong} were not what had been written" if wrong else "all that were read are what had been written"
        return f"{read['requests']:,} objects read and compared: {said}; {read['errors']:,} could not be read"
    if phase.kind == "delete":
        deleted = _all(line["ops"], ("DELETE",))
        left = [space.get("live") for job in phase.jobs for space in job.driver_end.get("spaces") or ()]
        rest = f"; {sum(n or 0 for n in left):,} are left" if left else ""
        return f"{deleted['requests']:,} objects deleted, {deleted['errors']:,} could not be{rest}"
    return None


def _all(ops: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> Dict[str, int]:
    lines = [ops[op] for op in names if op in ops]
    return {
        "requests": sum(line["requests"] + line["outside"]["requests"] for line in lines),
        "errors": sum(line["errors"] + line["outside"]["errors"] for line in lines),
    }
