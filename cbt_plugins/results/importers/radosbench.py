"""`rados bench`: what it prints, its --format=json, and the JSON that CBT makes of the end of its text.

By its source and by recorded runs of 16.2: MB/s are MiB/s; a line "hints = 1" comes before everything, the JSON too; a
line a second with the requests finished since the begin; no percentiles, no clock (but with --show-time), and no count
of failed requests: it ends at the first one.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Mapping, Optional, Tuple

import numpy as np

from cbt_plugins.results.importers.client_parts import Parsed, Part, Steps
from cbt_plugins.results.importers.importer import ClientFile, ClientImporter
from cbt_plugins.results.result_file import Unreadable
from cbt_plugins.results.run_record import ResultWarning

#: what the end of the text calls them -> what --format=json does
_TOTALS = {
    "Total time run": "total_time_run",
    "Total writes made": "total_writes_made",
    "Total reads made": "total_reads_made",
    "Write size": "write_size",
    "Read size": "read_size",
    "Object size": "object_size",
    "Average Latency(s)": "average_latency",
    "Max latency(s)": "max_latency",
    # until Hammer
    "Average Latency": "average_latency",
    "Max latency": "max_latency",
}
_HINTS = re.compile(r"\s*(hints = \d+\s*)?(?=\{)")
_MAINTAINING = re.compile(r"Maintaining (\d+) concurrent (\w+) of (\d+) bytes")
#: before a line with --show-time
_TIME = re.compile(r"^\d{4}-\d\d-\d\d[T ]\S+ +")
#: sec, cur ops, started, finished, avg MB/s, cur MB/s, last lat, avg lat
_LINE = re.compile(r"^(\d+) +(\d+) +(\d+) +(\d+) +\S+ +\S+ +\S+ +\S+ *$")


class RadosBench(ClientImporter):
    """`rados bench`, alone or run by CBT."""

    kind = "radosbench"
    folders_are_phases = True

    def claims(self, head: str) -> bool:
        text = bool(_MAINTAINING.search(head)) or ("Cur ops" in head and "last lat" in head)
        return text or bool(_HINTS.match(head) and '"datas"' in head) or '"Total time run"' in head

    def parse(self, file: ClientFile) -> Parsed:
        return parse(file.text, file.client, file.folder)


def parse(text: str, client: str, phase: Optional[str] = None) -> Parsed:
    """Return one process's output; `phase` names what it did, else its own mode. Raises Unreadable."""
    plain = _HINTS.sub("", text)
    totals, finished, about = _json(plain) if plain.lstrip().startswith("{") else _text(plain)
    parsed = Parsed("radosbench", config={"benchmark": "radosbench", "engine": "rados bench"})
    writes = "total_writes_made" in totals
    try:
        seconds = float(totals["total_time_run"])
        requests = int(totals["total_writes_made" if writes else "total_reads_made"])
        size = int(totals.get("write_size") or totals.get("read_size") or totals["object_size"])
    except KeyError as e:
        raise Unreadable(f"no result of rados bench: {e.args[0]} is missing: it did not come to its end") from e
    except ValueError as e:
        raise Unreadable(f"no result of rados bench: {e}") from e
    parsed.config["load.op_size"] = size
    if about:
        parsed.config["load.queue_depth"] = int(about[0])
    op = "write" if writes else "read"
    steps = _steps(finished)
    part = Part(
        phase=phase or op,
        op=op,
        client=client,
        seconds=seconds,
        requests=requests,
        failed=None,
        bytes=requests * size,
        steps=steps.completed(requests, seconds, None) if steps else None,
        mean_ms=_ms(totals.get("average_latency"), requests),
        max_ms=_ms(totals.get("max_latency"), requests),
    )
    parsed.loops[0] = [part]
    if "error during benchmark" in text:
        parsed.usable = False
        parsed.warnings.append(
            ResultWarning("job-failed", f"{part.phase}: rados bench of {client} ended with an error")
        )
    return parsed


def _ms(seconds: Any, requests: int) -> Optional[float]:
    return float(seconds) * 1000 if seconds is not None and requests else None


Output = Tuple[Mapping[str, Any], List[Tuple[int, int]], Optional[Tuple[str, ...]]]


def _text(text: str) -> Output:
    totals: Dict[str, str] = {}
    finished: List[Tuple[int, int]] = []
    for line in text.splitlines():
        line = _TIME.sub("", line).strip()
        match = _LINE.match(line)
        key, colon, value = line.partition(":")
        if match:
            finished.append((int(match[1]), int(match[4])))
        elif colon and key.strip() in _TOTALS:
            if _TOTALS[key.strip()] in totals:
                raise Unreadable("the output of several runs of rados bench: give each its own file")
            totals[_TOTALS[key.strip()]] = value.strip()
    about = _MAINTAINING.search(text)
    return totals, finished, about.groups() if about else None


def _json(text: str) -> Output:
    try:
        data, _ = json.JSONDecoder().raw_decode(text.lstrip())
    except ValueError as e:
        raise Unreadable(f"no JSON of rados bench: {e}") from e
    totals = {_TOTALS.get(key, key): value for key, value in data.items()}
    finished = [(int(second["sec"]), int(second["finished"])) for second in data.get("datas") or ()]
    about = (str(data["concurrent_ios"]),) if data.get("concurrent_ios") else None
    return totals, finished, about


def _steps(finished: List[Tuple[int, int]]) -> Optional[Steps]:
    rising = {0: 0, **dict(finished)}
    if len(rising) < 2:
        return None
    edges = np.array(sorted(rising), float)
    return Steps(edges, np.diff([rising[int(edge)] for edge in edges]).astype(float))
