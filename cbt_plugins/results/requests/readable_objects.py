"""How many of the objects that there are a phase's reads could find.

warp's reads, and cbt-load's of objects that it has not written itself, know what a LIST gave them: the first
`read_objects` of a bucket by name. Objects of a later phase may come before those of an earlier one.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple

from cbt_plugins.results.archive import ArchivedJob
from cbt_plugins.results.requests.job_aggregates import JobAggregates
from cbt_plugins.results.requests.rates_and_latencies import PhaseAggregates

#: the prefix of what warp's reads may find in a bucket of the run's own
_KEPT = "keep/"
#: the end of the name of a space of cbt-load that is listed
_LISTED = ", listed"


class Readable:
    """Follows the phases of a run in their order: `of` each phase, with what those before it have written."""

    def __init__(self, limit: Optional[int]) -> None:
        """Take the plan's read_objects as `limit`."""
        self._limit = limit
        self._written: Dict[str, Dict[str, int]] = {}  # bucket -> prefix -> objects

    def of(self, aggregates: PhaseAggregates) -> List[Dict[str, Any]]:
        """Return a line for each bucket whose objects were listed: {"bucket", "objects", "listed", "share", "unread"}.

        `unread` are phases of which no object was listed. Where reads take all objects there is no line.
        """
        buckets = dict.fromkeys(bucket for job in aggregates.phase.jobs for bucket in _lists(job))
        before = {str(count.get("bucket")): int(count.get("before") or 0) for count in aggregates.phase.accounting}
        lines = [self._line(bucket, before.get(bucket, 0), self._limit) for bucket in buckets if self._limit]
        self._add(aggregates)
        return [line for line in lines if line["objects"]]

    def _add(self, aggregates: PhaseAggregates) -> None:
        for job in aggregates.phase.jobs:
            put = aggregates.jobs.get(job.id, JobAggregates()).ops.get("PUT")
            if put and job.prefix.startswith(_KEPT):
                of = self._written.setdefault(job.bucket, {})
                of[job.prefix] = of.get(job.prefix, 0) + put.latency.n + put.ok_outside

    def _line(self, bucket: str, before: int, limit: int) -> Dict[str, Any]:
        """Return the first `limit` names of a bucket; `before` counts all objects of a foreign one."""
        written = self._written.get(bucket) or {"": before}
        total, left = sum(written.values()), limit
        counts: Dict[str, Tuple[int, int]] = {}  # phase -> its objects, and those that were listed
        for prefix, number in sorted(written.items(), key=lambda item: f"{item[0]}/"):
            listed, label = min(left, number), prefix.rsplit("/", 1)[-1]
            objects_before, listed_before = counts.get(label, (0, 0))
            counts[label] = objects_before + number, listed_before + listed
            left -= listed
        listed = min(limit, total)
        unread = [
            label for label, (number, listed_objects) in counts.items() if label and number and not listed_objects
        ]
        share = round(listed / total, 6) if total else None
        return {"bucket": bucket, "objects": total, "listed": listed, "share": share, "unread": unread}


def _lists(job: ArchivedJob) -> List[str]:
    """Return the buckets of which a job lists the objects that it reads."""
    if job.role in ("read", "stat"):
        return [job.bucket]
    spaces: List[Mapping[str, Any]] = list(job.driver_end.get("spaces") or ())
    return [str(space.get("bucket")) for space in spaces if str(space.get("name")).endswith(_LISTED)]
