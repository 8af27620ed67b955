"""What a comparison reads: records, one for each run, whatever program made it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, List, Mapping, Optional, Tuple

#: between the name of a phase and that of a state of the cluster in it: "one-down / degraded"
STATE = " / "


@dataclass(frozen=True)
class ResultWarning:
    """A limit to the trust in a run's numbers: a code for programs, one sentence for a person."""

    code: str
    text: str


@dataclass(frozen=True)
class Measurement:
    """One number of one run."""

    phase: str  # "measure-new"; of others: hsbench's mode, fio's job, COSbench's work stage
    op: str  # "GET" "PUT" "STAT" "DELETE" "LIST" "MULTIPART", "read" "write", a class of daemons ("osd"), or TOTAL
    metric: str  # key of metrics.METRICS; the value has that metric's unit
    value: Optional[float]  # of the whole run
    #: the same through the run, one value every `step` seconds, nan where there is none; its mean is the run's value.
    #: None where parts of a run say nothing about the whole (percentiles)
    series: Optional[Tuple[float, ...]] = None
    n: Optional[int] = None  # requests behind it
    step: int = 1
    start: Optional[float] = None  # epoch seconds of the series' begin, where they are known


@dataclass(frozen=True)
class Record:
    """One run: one iteration of one configuration.

    `config` has plain values (text, number, bool, None) under dotted keys. Those that are equal to or begin with one of
    these decide whether two runs can be compared at all; all others are listed where they differ:

        benchmark               what was run: "rgwtest", "hsbench", "fio", "radosbench", ...
        engine                  the load generator
        phases                  their names in order
        objects.*               objects.sizes ("4096 65536"), objects.buckets, objects.count
        load.*                  load.workers (all together), load.drivers, load.op_size, load.queue_depth ...
        phase.NAME.*            role ("fill", "measure", "age"), kind, seconds, mix ("GET:45 PUT:35"), rate, workers
        pool.ROLE.*             type ("replicated", "erasure"), size, k, m; ROLE is data, index, or a pool's name
        cluster.*               osds, osd_nodes, rgws, endpoints, clients: numbers

    A key that only one of two records has is "not known" in the other: listed, and no reason to refuse. Common others:
    version.ceph, version.warp, version.cbt_plugins, host.kernel, ceph.SECTION.OPTION.
    """

    source: str  # path, as the user gave it or below that
    name: str  # directory of the run ("00000000/id-1a2b3c4d"), or the file's name
    kind: str  # "cbt-plugins" | "hsbench" | "fio" | "radosbench" | "cosbench" | "warp"
    config: Mapping[str, Any]
    measurements: Tuple[Measurement, ...]
    usable: bool  # False: its numbers are not those of a whole run; the warnings say why
    warnings: Tuple[ResultWarning, ...]
    label: Optional[str] = None  # the release it measured: "18.2.7 reef"
    started: Optional[float] = None  # epoch seconds
    #: of another program's run beside a file of faults: what analysis.recovery.milestones found
    failure: Optional[Mapping[str, Any]] = None


def records_of(path: Path) -> List[Record]:
    """Every run of an archive, of a run's directory, of a summary.json, or of a result of another program.

    In the order of their names. A run without a summary, or with an old one, is read anew; nothing is written.
    Raises analysis.source.Unreadable where there is nothing to read.
    """
    from cbt_plugins.results.records import (
        read,  # it needs numpy, and the readers of other programs' results need the classes above
    )

    return read(path)
