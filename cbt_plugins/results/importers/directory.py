"""Files of a directory, or one file -> records: who wrote each of them, and which belong together."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from cbt_plugins.results.importers import (
    beside,
    cbt,
    cosbench,
    fio,
    fio_logs,
    hsbench,
    radosbench,
    warp_json,
    warp_rows,
)
from cbt_plugins.results.importers.part import Parsed, Part
from cbt_plugins.results.importers.together import measurements
from cbt_plugins.results.record import Record, ResultWarning
from cbt_plugins.results.source import Source, Unreadable

#: bytes from the begin of a file that say what it is
_HEAD = 1 << 14
#: kinds whose files are the clients of one run
_CLIENTS = {"hsbench": hsbench.claims, "fio": fio.claims, "radosbench": radosbench.claims}
_OTHERS = {"cosbench": cosbench.claims, "warp": warp_json.claims, "rows": warp_rows.claims}
#: output.NUMBER.HOST, json_output.NUMBER.HOST, output.NUMBER.csv.HOST, as CBT collects them
_OUTPUT = re.compile(r"^(?:json_)?output\.(?P<number>\d+)(?:\.(?:csv|json))?(?:\.prefill)?(?P<host>\..+)?$")
#: what else lies in a run's directory, and may be large
_NOT = re.compile(
    r"_(bw|iops|lat|clat|slat|hist)(\.\d+)?\.log|^(collectl|perf|ceph-|historic|visualisation)|\.(png|svg|html|yaml|conf)$"
)


def kind_of(path: Path) -> Optional[str]:
    """Which program wrote a file: a key of the readers, or None."""
    try:
        chunk = next(iter(Source(path).chunks()), b"")
    except Unreadable:
        return None
    head = chunk[:_HEAD].decode("utf-8", "replace")
    return next((kind for kind, claims in {**_CLIENTS, **_OTHERS}.items() if claims(head)), None)


def of_file(path: Path) -> List[Record]:
    """The records of one file. Raises Unreadable."""
    kind = kind_of(path)
    if kind in _CLIENTS:
        return _records(path, path.name, [(path, kind)], {}, [])
    if kind == "cosbench":
        return cosbench.read(path)
    if kind == "warp":
        return warp_json.read(path)
    if kind == "rows":
        return [warp_rows.read([path])]
    raise Unreadable(f"{path}: no result of a program that is known here")


def of_directory(path: Path, name: Optional[str] = None) -> List[Record]:
    """What a run left in a directory; its files of one program are the clients of one run. Raises Unreadable."""
    kinds: Dict[str, List[Path]] = {}
    for file in sorted(path.rglob("*")):
        if file.is_file() and not _NOT.search(file.name):
            kind = kind_of(file)
            if kind:
                kinds.setdefault(kind, []).append(file)
    config = cbt.configuration(path)
    made: List[Record] = []
    for kind in _CLIENTS:
        files = list(_preferred(kinds.get(kind, ())))
        if files:
            made += _records(path, name or path.name, [(file, kind) for file in files], config, cbt.clients(path))
    if kinds.get("rows"):
        made.append(warp_rows.read(kinds["rows"]))
    for file in kinds.get("warp", ()):
        made += warp_json.read(file)
    tables = kinds.get("cosbench", ())
    for file in [file for file in tables if file.name == cosbench.MATRIX] or tables:
        if file.name != cosbench.HISTORY:
            made += cosbench.read(file)
    if not made:
        raise Unreadable(f"{path}: no result of a program that is known here")
    return made


def _preferred(files: Sequence[Path]) -> Iterator[Path]:
    """Of two files that say the same the one that says more: hsbench's JSON, the JSON that CBT has cut out for fio, the
    text that it has cut up for rados bench.
    """
    same: Dict[Tuple[Path, str], List[Path]] = {}
    for file in files:
        found = _OUTPUT.match(file.name)
        stem = f"{found['number']}{found['host'] or ''}" if found else file.name
        if not found and file.suffix in (".csv", ".json"):
            stem = file.stem
        same.setdefault((file.parent, stem), []).append(file)
    for its in same.values():
        yield max(its, key=_says)


def _says(file: Path) -> Tuple[bool, bool, str]:
    text = file.name.startswith("output.") and not re.search(r"\.(csv|json)(\.|$)", file.name)
    whole = file.stat().st_size > 0
    # rados bench: what CBT makes of the text has no series; fio: the text has the JSON in it
    return whole, text or ".json" in file.name, file.name


def _records(
    source: Path, name: str, files: Sequence[Tuple[Path, str]], config: Dict[str, object], hosts: Sequence[str]
) -> List[Record]:
    base = source if source.is_dir() else source.parent
    parsed: List[Parsed] = []
    warnings: List[ResultWarning] = []
    for file, kind in files:
        try:
            parsed.append(_parse(file, kind, base, config, bool(hosts) or _OUTPUT.match(file.name) is not None))
        except Unreadable as e:
            warnings.append(ResultWarning("unreadable", f"{file.relative_to(base)}: {e}"))
    if not parsed:
        raise Unreadable(f"{source}: {warnings[0].text}")
    seen = {host for host in hosts for file, _ in files if file.name.endswith(f".{host}")}
    if hosts and seen:
        missing = sorted(set(hosts) - seen)
        if missing:
            warnings.append(
                ResultWarning(
                    "missing-client", f"no result of {', '.join(missing)}: the numbers are those of the others"
                )
            )
    whole = not warnings
    for its in parsed:
        warnings += [warning for warning in dict.fromkeys(its.warnings) if warning not in warnings]
    faults = beside.of_run(source) if source.is_dir() else None
    if faults is not None:
        whole = whole and faults.whole
        warnings += faults.warnings
        config = {**config, beside.KEY: faults.events}
    begun = faults.begun if faults else None
    loops: Dict[int, List[Part]] = {}
    for its in parsed:
        for loop, parts in its.loops.items():
            loops.setdefault(loop, []).extend(parts)
    made = []
    for loop, parts in loops.items():
        lines, of_numbers, usable = measurements(parts)
        if parsed[0].kind == "hsbench" and len(parsed) > 1:
            text = f"hsbench writes no times: its {len(parsed)} processes are taken to have begun together"
            of_numbers.insert(0, ResultWarning("no-clock", text))
        if parsed[0].kind == "hsbench":  # its seconds count from its begin
            lines = [replace(line, start=_sum(line.start, begun)) for line in lines]
        if faults is not None:
            lines += faults.measurements(lines)
        made.append(
            Record(
                source=str(source),
                name=f"{name} loop {loop + 1}" if len(loops) > 1 else name,
                kind=parsed[0].kind,
                config=_config(parsed, config, parts),
                measurements=tuple(lines),
                usable=whole and usable and all(its.usable for its in parsed),
                failure=faults.recovery if faults else None,
                warnings=(*warnings, *of_numbers),
                started=min((its.started for its in parsed if its.started is not None), default=begun),
            )
        )
    return made


def _sum(*values: Optional[float]) -> Optional[float]:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _parse(file: Path, kind: str, base: Path, config: Dict[str, object], collected: bool) -> Parsed:
    where = file.parent.relative_to(base).as_posix()
    found = _OUTPUT.match(file.name)
    client = f"{found['number']}{found['host'] or ''}" if found else file.stem
    text = file.read_text(encoding="utf-8", errors="replace")
    if kind == "hsbench":
        threads = config.get("load.threads")
        return hsbench.parse(text, client, threads if isinstance(threads, int) else None)
    if kind == "radosbench":
        return radosbench.parse(text, client, where if where != "." else None)
    host = (found["host"] or "") if found else ""
    made = fio.parse(text, client, fio_logs.beside(file, text, host), by_name=not collected)
    if where != ".":  # CBT's workloads: a directory each
        made.loops = {loop: [replace(part, phase=where) for part in parts] for loop, parts in made.loops.items()}
    return made


def _config(parsed: Sequence[Parsed], config: Dict[str, object], parts: Sequence[Part]) -> Dict[str, object]:
    """What all files agree in; what CBT has written down is said for all of them."""
    first = parsed[0].config
    found = {key: value for key, value in first.items() if all(its.config.get(key) == value for its in parsed)}
    found = {**{key: value for key, value in config.items() if key not in found}, **found}
    if "benchmark" in config:
        found["benchmark"] = config["benchmark"]
    phases = list(dict.fromkeys(part.phase for part in parts))
    # fio's jobs have their number behind a colon
    clients = [{part.client.split(":")[0] for part in parts if part.phase == phase} for phase in phases]
    found["load.processes"] = max(map(len, clients), default=0)
    found["phases"] = " ".join(phases)
    return {key: found[key] for key in sorted(found) if found[key] is not None}
