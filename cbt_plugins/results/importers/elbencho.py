"""elbencho's results: --csvfile (a table with a line for each phase), --jsonfile (a document for each phase) and
--resfile (text), which CBT's own benchmark of elbencho has.

By its manual, its source and recorded runs of 3.0: a file is appended to, so a phase that comes again is another loop;
"first" is what was done when the first thread ended, "last" is everything; an entry is a file or an object, an IO is a
block of it; with --rwmixpct the columns without a prefix are the writes; latencies are in us; times are ms, rounded
down; "MiB" is rounded down in the table and is bytes in JSON, where 3.0-29 names no block size. The first failed
request ends a run, and leaves no line. Its histogram has bins that are a fifth wide: no percentile is made of it.

A run of CBT's benchmark is a sweep: WORKLOAD/elbencho/MODE_BYTES/threads-N/[total_iodepth-N/]iodepth-N/result.csv below
a folder for each client. Each cell of the sweep is a record of its own.
"""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from cbt_plugins.results.importers import elbencho_text
from cbt_plugins.results.importers.client_parts import Parsed, Part
from cbt_plugins.results.importers.importer import ClientFile, ClientImporter, ResultFiles
from cbt_plugins.results.result_file import Unreadable
from cbt_plugins.results.run_record import ResultWarning, RunRecord

#: its name of a phase -> of the operation; others keep theirs
_OPS = {"WRITE": "write", "READ": "read", "RMFILES": "delete", "RMOBJECTS": "delete", "STAT": "stat", "HEADOBJ": "stat"}
#: make or remove what is around the objects, and are not measured
_PREPARES = ("MKDIRS", "MKBUCKETS", "RMDIRS", "RMBUCKETS", "SYNC", "DROPCACHE")
_CONFIG = ("hosts", "threads", "file size", "block size", "version")
#: of the time of the slowest thread: below it the threads did not all run for most of the time
_MOST = 0.95

_Row = Mapping[str, Optional[str]]
#: the path of a result below the folder of a client: workload, and the cell of the sweep
_CELL = re.compile(
    r"(?:^|/)(?P<cell>(?P<workload>[^/]+)/elbencho/[^/]+/threads-\d+/(?:total_iodepth-\d+/)?iodepth-\d+)$"
)


class Elbencho(ClientImporter):
    """elbencho, alone or with its services on several hosts."""

    kind = "elbencho"

    def claims(self, head: str) -> bool:
        table = head.startswith(("ISO date,label,path type,", "ISO date,path type,"))
        text = head.startswith((elbencho_text.DATE, elbencho_text.HEAD)) and elbencho_text.HEAD in head
        return table or text or ('"phase_type"' in head and '"last_done"' in head)

    def read(self, results: ResultFiles) -> List[RunRecord]:
        cells: Dict[str, List[Path]] = {}
        for path in results.files:
            match = _cell(path.parent.relative_to(results.folder).as_posix())
            cells.setdefault(match["cell"] if match else "", []).append(path)
        return [
            record
            for cell, files in sorted(cells.items())
            for record in super(Elbencho, self).read(
                replace(results, name=" ".join(filter(None, (results.name, cell))), files=tuple(files))
            )
        ]

    def queue_depth(self, record: RunRecord) -> Optional[int]:
        threads, depth = record.config.get("load.threads"), record.config.get("load.queue_depth")
        if not threads or not depth or record.config.get("load.hosts_file"):
            return None
        hosts, processes = (int(record.config.get(f"load.{key}") or 1) for key in ("hosts", "processes"))
        return int(threads) * int(depth) * hosts * processes

    def parse(self, file: ClientFile) -> Parsed:
        if file.text.startswith((elbencho_text.DATE, elbencho_text.HEAD)):
            rows, torn = elbencho_text.rows_of(file.text)
        else:
            rows = list(_documents(file.text) if file.text.lstrip().startswith("{") else _table(file.text))
            torn = bool(rows) and None in rows[-1].values() and file.text.startswith("ISO date")
        rows = [row for row in (rows[:-1] if torn else rows) if row["operation"] not in _PREPARES]
        if not rows:
            raise Unreadable("elbencho ran no phase")
        parsed = Parsed("elbencho", config={"benchmark": "elbencho", "engine": "elbencho"})
        parsed.config.update(_config(rows[0]))
        match = _cell(file.folder or "")
        if match:
            parsed.config["load.workload"] = match["workload"]
        if torn:
            parsed.usable = False
            parsed.warnings.append(ResultWarning("torn-output", f"{file.client}: its last line has no end"))
        seen: Dict[str, int] = {}
        for row in rows:
            phase = " ".join(filter(None, (row.get("label"), (row["operation"] or "").lower())))
            loop = seen[phase] = seen.get(phase, -1) + 1
            parsed.loops.setdefault(loop, []).extend(_parts(row, phase, file.client))
            first, last = _number(row, "time ms [first]"), _number(row, "time ms [last]")
            if first is not None and last and first < _MOST * last:
                text = f"{phase}: its threads ran together for {first / 1000:.3g} of {last / 1000:.3g} s"
                text += "; rates are of the whole phase"
                parsed.warnings.append(ResultWarning("common-window", text))
        parsed.started = min((start for start in map(_start, rows) if start is not None), default=None)
        parsed.warnings.append(ResultWarning("no-series", "elbencho writes no series: drift within a run is unknown"))
        return parsed


def _cell(folder: str) -> Optional[re.Match[str]]:
    return _CELL.search(folder)


def _table(text: str) -> Iterator[_Row]:
    for row in csv.DictReader(io.StringIO(text)):
        if row.get("operation") and row["operation"] != "operation":  # appended to with a head of its own
            yield row


def _documents(text: str) -> Iterator[_Row]:
    """Yield each document, under the names that the table has."""
    decoder, at = json.JSONDecoder(), 0
    while text[at:].strip():
        try:
            document, length = decoder.raw_decode(text[at:].lstrip())
            at += len(text[at:]) - len(text[at:].lstrip()) + length
            yield _row(document)
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise Unreadable(f"no JSON of elbencho: {e}") from e


def _row(document: Mapping[str, Any]) -> _Row:
    config, first, last = document.get("config") or {}, document["first_done"], document["last_done"]
    row: Dict[str, Optional[str]] = {
        "label": document.get("label"),
        "operation": document["phase_type"],
        "ISO date": document.get("iso_start_date"),
        "time ms [first]": first["elapsed_time_ms"],
        "time ms [last]": last["elapsed_time_ms"],
        "IO depth": config.get("io_depth"),
        **{key: config.get(key.replace(" ", "_")) for key in _CONFIG},
        "version": config.get("version") or document.get("version"),
    }
    for prefix, read in (("", last), ("rwmix read ", last.get("rwmix_read") or {})):
        row.update({f"{prefix}entries [last]": read.get("entries"), f"{prefix}IOPS [last]": read.get("iops")})
        row.update({f"{prefix}bytes": read.get("bytes"), f"{prefix}bytes/s": read.get("bytes/s")})
    for name, key in (("Ent", "entries"), ("IO", "IO")):
        latency = (last.get("latency") or {}).get(key) or {}
        for prefix, latencies in (("", latency), ("rwmix read ", latency.get("rwmix_read") or {})):
            row.update({f"{prefix}{name} lat us [{which}]": latencies.get(f"{which}_us") for which in ("avg", "max")})
    return row


def _number(row: _Row, key: str) -> Optional[float]:
    text = row.get(key)
    try:
        return None if text in (None, "") else float(text or 0)
    except ValueError:
        raise Unreadable(f"no number: {key} {text!r}") from None


def _start(row: _Row) -> Optional[float]:
    """Return the begin of a phase, epoch seconds; None where the file does not give the time zone."""
    try:
        return datetime.strptime(row["ISO date"] or "", "%Y-%m-%dT%H:%M:%S.%f%z").timestamp()
    except (KeyError, ValueError):
        return None  # in text, the time is that of the command and not of the phase


def _parts(row: _Row, phase: str, client: str) -> Iterator[Part]:
    name = row["operation"] or ""
    for prefix, op in (("", _OPS.get(name, name.lower())), ("rwmix read ", "read")):
        size, rounded = _bytes(row, prefix)
        seconds, rounded_s = _seconds(row, prefix)
        requests, unit, off = _requests(row, prefix, size, seconds)
        if requests is None:
            continue
        mean, high = (_number(row, f"{prefix}{unit} lat us [{which}]") for which in ("avg", "max"))
        if row.get("rwmix read IOPS [last]") and "rwmix read IO lat us [avg]" not in row:
            mean = high = None  # before 2.0-9 those of writes have the reads in them
        yield Part(
            phase=phase,
            op="write" if prefix == "" and name.startswith("RWMIX") else op,
            client=client,
            seconds=seconds,
            requests=requests,
            failed=None,
            bytes=None if size is None else int(size),
            start=_start(row),
            mean_ms=None if mean is None else mean / 1000,
            max_ms=None if high is None else high / 1000,
            rounded_ms=(_number(row, elbencho_text.WIDTH) or 1.0) / 1000,
            rounded_s=rounded_s + seconds * off / max(requests, 1),
            rounded_bytes=rounded,
        )


def _seconds(row: _Row, prefix: str) -> Tuple[float, float]:
    """Return the duration of a phase, and the width of its possible range: JSON's bytes/s are finer than its ms."""
    size, rate = _number(row, f"{prefix}bytes"), _number(row, f"{prefix}bytes/s")
    if size and rate:
        return size / rate, 0.0
    elapsed_ms = _number(row, "time ms [last]")
    width = 1000 if row.get(elbencho_text.WHOLE_SECONDS) else 1
    return (0.0, 0.0) if elapsed_ms is None else ((elapsed_ms + width / 2) / 1000, width / 1000)


def _bytes(row: _Row, prefix: str) -> Tuple[Optional[float], float]:
    """Return the bytes that were moved, and the width of their possible range: the table has MiB, rounded down."""
    size, mib = _number(row, f"{prefix}bytes"), _number(row, f"{prefix}MiB [last]")
    if size is not None or mib is None:
        return size, 0.0
    file_bytes = (_number(row, f"{prefix}entries [last]") or 0) * (_number(row, "file size") or 0)
    if mib <= file_bytes / 2**20 < mib + 1:
        return file_bytes, 0.0
    return mib * 2**20, 2.0**21


def _requests(row: _Row, prefix: str, size: Optional[float], seconds: float) -> Tuple[Optional[int], str, float]:
    """Return the number of entries, or of blocks where it counts no entries, the word for them, and the width of the
    possible range: rates are rounded down.
    """
    entries, block = _number(row, f"{prefix}entries [last]"), _number(row, "block size")
    if entries is not None:
        return int(entries), "Ent", 0.0
    if row.get(f"{prefix}bytes") and block:
        return round((size or 0) / block), "IO", 0.0
    rate = _number(row, f"{prefix}IOPS [last]")
    return (None, "IO", 0.0) if rate is None else (round((rate + 0.5) * seconds), "IO", seconds)


def _config(row: _Row) -> Iterator[Tuple[str, Any]]:
    names: List[Tuple[str, str]] = [("file size", "load.size"), ("block size", "load.op_size"), ("hosts", "load.hosts")]
    for key, name in [*names, ("threads", "load.threads"), ("IO depth", "load.queue_depth")]:
        number = _number(row, key)
        if number is not None:
            yield name, int(number)
    if row.get(elbencho_text.HOSTS_FILE):
        yield "load.hosts_file", row[elbencho_text.HOSTS_FILE]
    if row.get("version"):
        yield "version.elbencho", row["version"]
