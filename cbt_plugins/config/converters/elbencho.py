"""CBT's section `elbencho:` as a file of ours, and what of it could not be carried over.

The section is that of CBT's pull request 359 (`auth` and `workloads`). Each workload runs once for each combination of
its lists `blocksize`, `threads` and `iodepth`; a client has threads x iodepth requests in flight. `blocksize` is the
size of a part: a larger object is written in parts. k, m, g and t are powers of 1024.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from cbt_plugins.config.converters.conversion import file_text, phase_name
from cbt_plugins.config.errors import ConfigError, ErrorAt, did_you_mean
from cbt_plugins.config.generator_classes import engine_with
from cbt_plugins.config.units import format_duration, format_size
from cbt_plugins.config.yaml_source import YamlSource, read
from cbt_plugins.inventory import ROLES
from cbt_plugins.s3_operations import SMALLEST_PART

_SECTION = ("benchmarks", "elbencho")
#: mode -> operations, one after the other
_MODES: Mapping[str, Sequence[str]] = {
    "write": ("put",),
    "read": ("get",),
    "readwrite": ("put", "get"),
    "stat": ("stat",),
    "list": ("list",),
}
#: modes that CBT itself skips, and for which parts mean nothing
_SKIPPED = ("stat", "list")
#: keys that may be lists, other numbers, and text
_LISTS = ("threads", "iodepth", "total_iodepth", "blocksize")
_NUMBERS = ("num_objects", "num_dirs", "num_buckets", "duration")
_TEXTS = ("mode", "s3_bucket", "size", "s3_region")
_NOWHERE = {
    "hosts": "the clients of `cluster:` make the load",
    "s3nompcheck": "cbt-load has no such check",
    "pre_workload_script": "write it as `run` of `events:`",
}
#: what the run does anyway: it makes and removes its own buckets
_ANYWAY = ("mkdirs", "deldirs")
_KEYS = (*_LISTS, *_NUMBERS, *_TEXTS, *_NOWHERE, *_ANYWAY)
#: of the section, beside those that hold for all its workloads
_OWN = ("cmd_path", "auth", "workloads", *_KEYS)
#: CBT's and elbencho's own
_DEFAULTS = {"threads": 1, "iodepth": 16, "blocksize": "4k", "num_objects": 1, "num_dirs": 1, "num_buckets": 1}
#: keys of `cluster:` that are carried over
_CLUSTER = (*ROLES, "user", "iterations", "conf_file", "tmp_dir", "ceph_cmd", "radosgw-admin_cmd")
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)([kmgt]?)", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}

#: name of a bucket, size of its objects, number of such buckets
_Group = Tuple[str, int, int]


@dataclass
class _SectionReport:
    """Errors of the section with their places, and what is not carried over."""

    source: YamlSource
    errors: List[ErrorAt] = field(default_factory=list)
    notes: Dict[str, None] = field(default_factory=dict)

    def error(self, path: Tuple[Any, ...], text: str, of_key: bool = False) -> None:
        self.errors.append(self.source.error_at((*_SECTION, *path), text, of_key))

    def note(self, text: str) -> None:
        self.notes.setdefault(text)


@dataclass(frozen=True)
class _Workload:
    """A workload without errors."""

    name: str
    mode: str
    group: _Group
    objects: int  # that a client writes into each bucket
    parts: Tuple[int, ...]
    threads: Tuple[int, ...]
    depths: Tuple[int, ...]
    duration: str

    @property
    def written_parts(self) -> List[int]:
        """Sizes of the parts in which it writes objects: S3 takes none below SMALLEST_PART."""
        sizes = {max(part, SMALLEST_PART) for part in self.parts if "put" in _MODES[self.mode]}
        return sorted(size for size in sizes if size < self.group[1])


def convert(path: Path) -> Tuple[str, List[str]]:
    """Return the text of a file of ours, and what could not be carried over. Raises ConfigError."""
    source = read(path)
    findings = _SectionReport(source)
    data = source.data if isinstance(source.data, dict) else {}
    benchmarks = data["benchmarks"] if isinstance(data.get("benchmarks"), dict) else {}
    section = benchmarks.get("elbencho")
    if not isinstance(section, dict) or not isinstance(section.get("workloads"), dict) or not section["workloads"]:
        text = "no workloads of elbencho: needs benchmarks: {elbencho: {auth: ..., workloads: {NAME: ...}}}"
        raise ConfigError([source.error_at(_SECTION, text)])
    for key in section:
        if key not in _OWN:
            findings.error((key,), f"unknown key{did_you_mean(str(key), _OWN)}", of_key=True)
    workloads = [_workload(findings, section, name) for name in section["workloads"]]
    s3 = _s3(findings, section)
    if findings.errors:
        raise ConfigError(findings.errors)
    for name in benchmarks:
        if name != "elbencho":
            findings.note(f"benchmark {name}")
    converted = {"s3": s3, **_load(findings, section, [workload for workload in workloads if workload])}
    cluster = data["cluster"] if isinstance(data.get("cluster"), dict) else {}
    nodes = {key: cluster[key] for key in _CLUSTER if key in cluster}
    remarks = [f"Not carried over: {note}" for note in findings.notes]
    return file_text("elbencho", path.name, remarks, converted, nodes), list(findings.notes)


def _workload(findings: _SectionReport, section: Mapping[str, Any], name: Any) -> Optional[_Workload]:
    """Return a workload, None for one with errors."""
    params, place = section["workloads"][name], ("workloads", name)
    if not isinstance(params, dict):
        findings.error(place, "must be a mapping (key: value)")
        return None
    before = len(findings.errors)
    given = {**{key: value for key, value in section.items() if key in _KEYS}, **params}
    values = {**_DEFAULTS, **{key: value for key, value in given.items() if value is not None}}
    places = {key: (*place, key) if key in params else (key,) for key in given}
    for key in params:
        if key not in _KEYS:
            findings.error((*place, key), f"unknown key{did_you_mean(str(key), _KEYS)}", of_key=True)
    for key in ("mode", "s3_bucket", "size"):
        if key not in values:
            findings.error(place, f"needs {key}", of_key=True)
    if "mode" in values and values["mode"] not in list(_MODES):
        text = f"must be {', '.join(_MODES)}{did_you_mean(str(values['mode']), _MODES)}"
        findings.error(places["mode"], text)
    if "iodepth" in given and "total_iodepth" in given:
        findings.error(places["total_iodepth"], "excludes iodepth: keep one", of_key=True)
    read_values = {
        key: _read(findings, places.get(key, place), key, value) for key, value in values.items() if key in _KEYS
    }
    if len(findings.errors) > before:
        return None
    _note_of(findings, name, values)
    depths = read_values["total_iodepth" if "total_iodepth" in values else "iodepth"]
    buckets = read_values["num_buckets"][0] if "total_iodepth" in values else 1
    objects = read_values["num_objects"][0] * read_values["num_dirs"][0] * max(read_values["threads"])
    size, mode = read_values["size"][0], str(values["mode"])
    return _Workload(
        name=phase_name(str(name)) or "workload",
        mode=mode,
        group=(str(values["s3_bucket"]), size, buckets),
        objects=objects,
        parts=(size,) if mode in _SKIPPED else tuple(read_values["blocksize"]),
        threads=tuple(read_values["threads"]),
        depths=tuple(depths),
        duration=format_duration(float(read_values["duration"][0])) if "duration" in values else "5m",
    )


def _note_of(findings: _SectionReport, name: Any, values: Mapping[str, Any]) -> None:
    """Note what of a workload without errors is not carried over."""
    for key, text in _NOWHERE.items():
        if values.get(key):
            findings.note(f"{key} of {name}: {text}")
    if values["mode"] in _SKIPPED:
        findings.note(f"mode {values['mode']} of {name} which CBT skips: here it is a phase")
    if values["num_buckets"] != 1 and "total_iodepth" not in values:
        findings.note(f"num_buckets of {name}: it goes with total_iodepth only")
    if "duration" not in values:
        findings.note(f"the end of {name} by its number of objects: it lasts 5 minutes here (EDIT)")


def _read(findings: _SectionReport, place: Tuple[Any, ...], key: str, value: Any) -> List[int]:
    """Return the numbers or sizes of a key, [] of one with text; adds an error for what is neither."""
    elements = value if isinstance(value, list) and key in _LISTS else [value]
    if key in ("size", "blocksize"):
        numbers, kind = list(map(_size, elements)), "a size as elbencho has it, such as 4k, 16m or 1g"
    elif key in (*_LISTS, *_NUMBERS):
        numbers, kind = list(map(_number, elements)), "a whole number of 1 or more"
    else:
        numbers, kind = [int(not isinstance(value, (list, dict)))], "one value"
    if not numbers or min(numbers) < 1:
        findings.error(place, f"must be {kind}" + (", or a list of them" if key in _LISTS else ""))
    return numbers


def _number(value: Any) -> int:
    return int(str(value)) if re.fullmatch("[0-9]{1,12}", str(value)) else 0


def _size(value: Any) -> int:
    match = _SIZE.fullmatch(str(value).strip())
    return int(float(match[1]) * _UNITS[match[2].lower()]) if match else 0


def _options_of(section: Mapping[str, Any]) -> Dict[str, str]:
    """Return the `a=1;b=2` of `auth: config:`."""
    auth = section.get("auth")
    parts = str(auth.get("config") or "").split(";") if isinstance(auth, dict) else []
    pairs = [part.partition("=") for part in parts]
    return {key.strip(): value.strip() for key, sign, value in pairs if sign}


def _s3(findings: _SectionReport, section: Mapping[str, Any]) -> Dict[str, Any]:
    """Return our `s3:`. Of a key no more is read than that there is one."""
    options, auth = _options_of(section), section.get("auth")
    urls = [url.rstrip("/") for url in options.get("url", "").split(",") if url]
    if not urls or not all(re.fullmatch(r"https?://[^/@\s]+", url) for url in urls):
        findings.note("the endpoint: auth.config has no url=http://HOST:PORT (EDIT s3.urls)")
        urls = ["http://osd1:8080"]
    s3: Dict[str, Any] = {"urls": urls, "access_key": "${AWS_ACCESS_KEY_ID}", "secret_key": "${AWS_SECRET_ACCESS_KEY}"}
    if "access_key" in options or "secret_key" in options:
        line, _ = findings.source.place((*_SECTION, "auth", "config"))
        variables = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        findings.note(f"the keys in {findings.source.file}:{line}, which are secrets: set {variables}")
    if isinstance(auth, dict) and auth.get("s3_session_token"):
        s3["session_token"] = "${AWS_SESSION_TOKEN}"
        findings.note("the session token, which is a secret: set AWS_SESSION_TOKEN")
    workloads = [params for params in section["workloads"].values() if isinstance(params, dict)]
    regions = dict.fromkeys(str(values["s3_region"]) for values in (*workloads, section) if values.get("s3_region"))
    if len(regions) > 1:
        findings.error(("workloads",), f"the workloads have several s3_region ({', '.join(regions)}): keep one")
    return {**s3, **({"region": next(iter(regions))} if regions else {})}


def _load(findings: _SectionReport, section: Mapping[str, Any], workloads: Sequence[_Workload]) -> Dict[str, Any]:
    """Return the keys of our section beside `s3:`."""
    objects: Dict[_Group, int] = {}
    for workload in workloads:
        objects[workload.group] = max(objects.get(workload.group, 0), workload.objects)
    names = {group: f"b{number}" for number, group in enumerate(objects, 1)}
    phases: List[Dict[str, Any]] = [{"fill": {"objects": max(objects.values())}}]
    for workload in workloads:
        phases += _phases(findings, workload, names[workload.group] if len(names) > 1 else "")
    _number_names(phases)
    buckets = ", ".join(sorted({bucket for bucket, _, _ in objects}))
    findings.note(f"bucket {buckets}: the run makes buckets of its own")
    findings.note("writes that make the objects: a fill makes them here, and the writes overwrite them")
    retries = _options_of(section).get("retry", "")
    options: Dict[str, Any] = {"retries": int(retries)} if re.fullmatch("[0-9]{1,4}", retries) else {}
    parts = sorted({part for workload in workloads for part in workload.written_parts})
    sweep = [{**options, "part_size": format_size(part)} for part in parts] or [options]
    if len(sweep) > 1:
        findings.note("phases without parts run once: each size of parts makes a run, which has all phases")
    converted: Dict[str, Any] = {"engine": engine_with("exact_mix")}
    converted.update({"cbt_load": sweep if len(sweep) > 1 else sweep[0]} if sweep[0] else {})
    if len(names) == 1:
        ((_, size, number),) = names
        converted.update(size=format_size(size), **({"buckets": number, "across_buckets": True} if number > 1 else {}))
    else:
        groups = {name: {"size": format_size(group[1]), "objects": objects[group]} for group, name in names.items()}
        numbers = {name: {"number": group[2]} for group, name in names.items() if group[2] > 1}
        converted["across_buckets"] = True
        converted["buckets"] = {name: {**of_group, **numbers.get(name, {})} for name, of_group in groups.items()}
    return {**converted, "cycle": {"phases": phases}}


def _phases(findings: _SectionReport, workload: _Workload, group: str) -> Iterator[Dict[str, Any]]:
    """Yield a phase for each of a workload's runs; runs with other sizes of parts are one, which the sweep repeats."""
    kinds: Dict[str, None] = {}
    for op, part in itertools.product(_MODES[workload.mode], workload.parts):
        in_parts = part < workload.group[1]
        kinds["multipart" if op == "put" and max(part, SMALLEST_PART) in workload.written_parts else op] = None
        if op == "get" and in_parts:
            findings.note(f"reads of {workload.name} in parts: a GET reads a whole object")
        if op == "put" and in_parts and part < SMALLEST_PART:
            size = format_size(SMALLEST_PART)
            becomes = f"parts of {size}" if workload.group[1] > SMALLEST_PART else "whole objects"
            findings.note(f"writes of {workload.name} in parts below {size}, which S3 refuses: {becomes}")
    loads = dict.fromkeys(threads * depth for threads, depth in itertools.product(workload.threads, workload.depths))
    if len(loads) < len(workload.threads) * len(workload.depths):
        findings.note(f"threads and iodepth of {workload.name} as two: their product is the requests in flight")
    for kind, workers in itertools.product(kinds, loads):
        work: Dict[str, Any] = {"workers": workers, "mix": {kind: 100}}
        work.update({"keys": {kind: "s(1,N)"}} if kind != "list" else {})
        work.update({"buckets": [group]} if group else {})
        phase = {"duration": workload.duration, "works": {"load": work}}
        yield {"hybrid": phase, "name": f"{workload.name}-{kind}-{workers}"}


def _number_names(phases: Sequence[Dict[str, Any]]) -> None:
    """Give phases of one name a number: names of workloads may differ in characters that no phase has."""
    names = set()
    for number, phase in enumerate(phases):
        if phase.get("name") in names:
            phase["name"] = f"{phase['name']}-{number}"
        names.add(phase.get("name"))
