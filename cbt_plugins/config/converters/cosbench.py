"""A COSBench workload (XML) as a file of ours, and what of it could not be carried over.

The forms are those of COSBench's user guide 0.4: a workload has storage and a workflow; stages run one after the other,
the works of a stage side by side, and a work has operations with ratios. `c(n)` is a constant, `u(a,b)`, `s(a,b)` and
`r(a,b)` are ranges, `h(low|high|weight,...)` is a histogram. KB is 1000 bytes.
"""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from cbt_plugins.config.converters.conversion import ConversionError, file_text, phase_name, plain
from cbt_plugins.config.generator_classes import engine_with
from cbt_plugins.config.section_values import MANY
from cbt_plugins.config.units import format_duration
from cbt_plugins.formatting import size

#: bytes of a workload; real ones have a few thousand
_LARGEST = 1 << 20
_OPERATIONS = {"read": "get", "write": "put", "delete": "delete", "list": "list", "filewrite": "put"}
_LENGTHS = ("runtime", "totalTime", "totalOps", "totalBytes")
#: of an element: the attributes that are read, or that change no load
_ATTRIBUTES = {
    "workload": ("name", "description", "config"),
    "workflow": ("config",),
    "workstage": ("name", "closuredelay", "config"),
    "work": (*_LENGTHS, "name", "type", "workers", "interval", "rampup", "config"),
    "operation": ("type", "ratio", "id", "config"),
}
#: the same of `config=`; a note on the keys of a user stands for all of them
_NAMES = ("cprefix", "csuffix", "oprefix", "osuffix")
_SECRETS = ("accesskey", "secretkey", "username", "password", "token")
_KEYS = (*_NAMES, *_SECRETS, "containers", "objects", "sizes", "hashCheck", "createContainer", "deleteContainer")
_STORAGE_KEYS = (*_SECRETS, "endpoint", "timeout")
#: keys that a note tells to edit -> text of the note, and what to edit there
_HINTS = {
    "urls": ("(EDIT s3.urls)", "gateways"),
    "user": ("s3.user names an RGW user", "an existing RGW user"),
    "workers": ("workers of all drivers together", "divide by the clients"),
}
#: values that COSBench takes where nothing is said
_DEFAULTS = {"division": "none", "rampdown": "0", "afr": "200000", "chunked": "false", "content": "random"}
_STORAGE_DEFAULTS = {"path_style_access": "true"}  # as here
_RANGE = re.compile(r"([cursh])\((.*)\)([KMGT]?B)?")


@dataclass
class _Container:
    """One bucket."""

    size: Any = None  # our `size:`
    objects: int = 0  # that prepare writes
    spans: List[Tuple[int, int]] = field(default_factory=list, compare=False)  # first and last of each prepare

    def section(self) -> Dict[str, Any]:
        """Return the keys of a group of such buckets."""
        return {**({"size": self.size} if self.size else {}), **({"objects": self.objects} if self.objects else {})}


@dataclass
class _Draft:
    """The section `warp:` so far, and what it cannot say."""

    section: Dict[str, Any] = field(default_factory=dict)
    phases: List[Dict[str, Any]] = field(default_factory=list)
    notes: List[str] = field(default_factory=list)
    objects: int = 0  # that the fill writes into each bucket, at most
    buckets: int = 1
    containers: Dict[int, _Container] = field(default_factory=dict)
    workers: int = 1  # of the section
    filled: bool = False  # a fill is there, and no cleanup after it

    def container(self, number: int) -> _Container:
        return self.containers.setdefault(number, _Container())

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def convert(path: Path) -> Tuple[str, List[str]]:
    """Return the text of a file of ours, and what could not be carried over. Raises ConversionError; OSError."""
    root = _read(path)
    draft = _Draft()
    works = list(_works(root))
    for _, work, config in works:
        if _kind(work) in ("init", "prepare"):
            _fill_of(draft, work, config)
    kinds = {_kind(work) for _, work, _ in works}
    if not kinds & {"prepare", "normal"}:
        raise ConversionError(f"{path}: the workload has no work that makes load")
    _note_gaps(draft)
    for _, work, config in works:
        if _kind(work) == "normal":
            _written(draft, work, config)
    if any(_workers(work) > 1 for _, work, _ in works if _kind(work) in ("prepare", "normal")):
        draft.note("workers of all drivers together: here each client has as many (EDIT: divide by the clients)")
    draft.workers = max([_workers(work) for _, work, _ in works if _kind(work) == "prepare"] or [0]) or max(
        _workers(work) for _, work, _ in works
    )
    _storage(draft, root)
    _note_unread(draft, root)
    if "prepare" not in kinds:
        _fill_by_another(draft, works)
    _buckets(draft)
    for stage in root.iterfind("workflow/workstage"):
        _stage(draft, stage, [(work, config) for of, work, config in works if of is stage])
    section = {**draft.section, "workers": draft.workers, "cycle": {"phases": draft.phases}}
    name = root.get("name")
    remarks = [*([f"The workload is called {name}"] if name else []), *(f"Not carried over: {n}" for n in draft.notes)]
    hints = {key: hint for key, (note, hint) in _HINTS.items() if any(note in text for text in draft.notes)}
    return file_text("cosbench", path.name, remarks, section, hints=hints), draft.notes


def _read(path: Path) -> ET.Element:
    with open(path, "rb") as file:
        text = file.read(_LARGEST + 1)
    if len(text) > _LARGEST:
        raise ConversionError(f"{path}: larger than {size(_LARGEST)}: no workload is")
    if b"<!" in text.replace(b"<!--", b""):  # a DOCTYPE may define entities that grow without end
        raise ConversionError(f"{path}: a workload has no DOCTYPE and no CDATA")
    try:
        root = ET.fromstring(text)
    except ET.ParseError as error:
        raise ConversionError(f"{path}:{error.position[0]}: no XML: {error}") from None
    if root.tag != "workload" or root.find("workflow") is None:
        raise ConversionError(f"{path}: no COSBench workload: needs <workload> with a <workflow>")
    return root


def _options(*elements: Optional[ET.Element]) -> Dict[str, str]:
    """Return `config="a=1;b=2"` of these elements, the last one's values first."""
    options: Dict[str, str] = {}
    for element in elements:
        for part in (element.get("config") or "").split(";") if element is not None else ():
            key, sign, value = part.partition("=")
            if sign:
                options[key.strip()] = value.strip()
    return options


def _works(root: ET.Element) -> Iterator[_Work]:
    """Yield all works in their order."""
    for stage in root.iterfind("workflow/workstage"):
        for work in stage.iterfind("work"):
            yield stage, work, _options(root, root.find("workflow"), stage, work)


#: stage, work, what of `config` holds for the work
_Work = Tuple[ET.Element, ET.Element, Dict[str, str]]


def _kind(work: ET.Element) -> str:
    return work.get("type") or "normal"


def _span(text: str, key: str) -> Tuple[str, int, int]:
    """Return (form, first, last) of c(5), u(1,5), s(1,5) or r(1,5). Raises ConversionError."""
    match = _RANGE.fullmatch(text.replace(" ", ""))
    if match is None or match[1] == "h":
        raise ConversionError(f"{key}={text}: must be c(n), u(a,b), s(a,b) or r(a,b)")
    numbers = match[2].split(",")
    try:
        first, last = int(numbers[0]), int(numbers[-1])
    except ValueError:
        raise ConversionError(f"{key}={text}: must be whole numbers") from None
    return match[1], first, last


def _sizes(text: str) -> Any:
    """Return our `size:` of c(64)KB, u(1,8)MB or h(1|1|50,64|64|50)KB. Raises ConversionError."""
    match = _RANGE.fullmatch(text.replace(" ", ""))
    if match is None:
        raise ConversionError(f"sizes={text}: must be c(n), u(a,b) or h(low|high|weight,...), and a unit")
    unit = match[3] or "B"
    if match[1] != "h":
        numbers = match[2].split(",")
        return f"{numbers[0]}{unit}" if len(set(numbers)) == 1 else f"{numbers[0]}{unit}-{numbers[-1]}{unit}"
    try:
        parts = [tuple(map(int, part.split("|"))) for part in match[2].split(",")]
        total = sum(weight for _, _, weight in parts)
        return {
            (f"{low}{unit}" if low == high else f"{low}{unit}-{high}{unit}"): f"{100 * weight / total:.10g}%"
            for low, high, weight in parts
        }
    except (ValueError, ZeroDivisionError):
        raise ConversionError(f"sizes={text}: must be h(low|high|weight,...)") from None


def _workers(work: ET.Element) -> int:
    text = work.get("workers") or ""
    return max(1, int(text)) if text.isdigit() else 1


def _fill_of(draft: _Draft, work: ET.Element, config: Mapping[str, str]) -> None:
    """Take the buckets of `init`, and what `prepare` writes."""
    numbers = _numbers(draft, config)
    if _kind(work) != "prepare":
        return
    for number in numbers:
        container, sizes = draft.container(number), _sizes(config["sizes"]) if "sizes" in config else None
        if sizes and container.size not in (None, sizes):
            draft.note(f"sizes={config['sizes']} of prepare: a bucket has one set of sizes here (EDIT size)")
        container.size = container.size or sizes
        if "objects" in config:
            _, first, last = _span(config["objects"], "objects")
            container.spans.append((first, last))
            container.objects = max(container.objects, last)
            draft.objects = max(draft.objects, container.objects)


def _note_gaps(draft: _Draft) -> None:
    """Note the prepared objects before which others are missing: a fill here writes all from 1 on."""
    for container in draft.containers.values():
        reach = 0
        for first, last in sorted(container.spans):
            if first > reach + 1:
                draft.note(f"objects={first} to {last} of prepare: the fill writes 1 to {last} (EDIT fill.objects)")
            reach = max(reach, last)


def _numbers(draft: _Draft, config: Mapping[str, str]) -> range:
    """Return the containers that a work or an operation names; all of them have a place in the draft."""
    if "containers" not in config:
        return range(1, draft.buckets + 1)
    _, first, last = _span(config["containers"], "containers")
    if not 0 < first <= last <= MANY:
        raise ConversionError(f"containers={config['containers']}: must be from 1 to {MANY}")
    draft.buckets = max(draft.buckets, last)
    return range(first, last + 1)


def _written(draft: _Draft, work: ET.Element, config: Mapping[str, str]) -> None:
    """Take the sizes that a work writes into containers that no prepare fills; others keep theirs."""
    for operation in work.iterfind("operation"):
        own = {**config, **_options(operation)}
        if _OPERATIONS.get(operation.get("type") or "") != "put":
            continue
        for number in _numbers(draft, own):
            container, size = draft.container(number), _sizes(own["sizes"]) if "sizes" in own else None
            if container.size is None:
                container.size = size
            elif size not in (None, container.size):
                draft.note(f"sizes={own['sizes']} of {operation.get('type')}: a bucket has one set of sizes here")


def _buckets(draft: _Draft) -> None:
    """Say which buckets there are: as many of one kind, or groups of neighbours that are alike."""
    every = [draft.containers.get(number, _Container()) for number in range(1, draft.buckets + 1)]
    prepared = any(each.objects for each in every)
    if prepared and not all(each.objects for each in every):
        draft.note("containers that begin empty: the fill writes one object into each of them")
        every = [each if each.objects else replace(each, objects=1) for each in every]
    draft.containers = dict(enumerate(every, 1))
    if draft.buckets > 1:
        draft.section["across_buckets"] = True
    groups = [list(members) for _, members in itertools.groupby(every)]
    if len(groups) == 1:
        if every[0].size:
            draft.section["size"] = every[0].size
        if draft.buckets > 1:
            draft.section["buckets"] = draft.buckets
        return
    draft.section["buckets"] = {f"part{i}": {"number": len(of), **of[0].section()} for i, of in enumerate(groups, 1)}


def _fill_by_another(draft: _Draft, works: List[_Work]) -> None:
    """Put the fill first that another workload has made: a run of ours works on objects of its own."""
    for _, work, config in works:
        for operation in work.iterfind("operation"):
            own = {**config, **_options(operation)}
            if operation.get("type") in ("read", "list") and "objects" in own:
                draft.objects = max(draft.objects, _span(own["objects"], "objects")[2])
            _numbers(draft, own)
    draft.objects, draft.filled = draft.objects or 1000, True
    draft.phases.append({"fill": {"objects": draft.objects}})
    draft.note("the fill, which another workload makes: here it is the first phase (EDIT fill.objects and size)")


def _storage(draft: _Draft, root: ET.Element) -> None:
    storages = list(root.iter("storage"))
    kind, config = (storages[0].get("type"), _options(storages[0])) if storages else (None, {})
    endpoint = config.get("endpoint", "").rstrip("/")
    usable = re.fullmatch(r"https?://[^/@\s]+", endpoint) is not None
    draft.section["s3"] = {"urls": [endpoint if usable else "http://osd1:8080"], "user": "cbt"}
    if not usable:
        draft.note(f"the endpoint of storage {kind or 'unknown'} (EDIT s3.urls)")
    if kind not in ("s3", None):
        draft.note(f"storage {kind}: the load here is S3")
    for key, value in config.items():
        if value and key not in _STORAGE_KEYS and value.lower() != _STORAGE_DEFAULTS.get(key):
            draft.note(f"{key} of the storage")
    if any(storage.attrib != storages[0].attrib for storage in storages):
        draft.note("storages of stages and works: all use the first")
    draft.note("the keys: s3.user names an RGW user, whose keys radosgw-admin gives (EDIT)")
    draft.section["engine"] = engine_with("exact_mix")
    options: Dict[str, Any] = {}
    if config.get("timeout", "").isdigit() and int(config["timeout"]) >= 1000:
        options["deadline"] = format_duration(int(config["timeout"]) / 1000)
    if any("hashCheck=true" in (each.get("config") or "").replace("True", "true") for each in root.iter()):
        options["verify"] = True
    if options:
        draft.section["cbt_load"] = options


def _note_unread(draft: _Draft, root: ET.Element) -> None:
    """Note each attribute and each key of `config=` that nothing here reads."""
    names: Dict[str, Set[str]] = {key: set() for key in _NAMES}
    for element in root.iter():
        if element.tag not in _ATTRIBUTES:
            continue
        keys = _options(element)
        for key in names.keys() & keys.keys():
            names[key].add(keys[key])
        unread = {key: value for key, value in element.attrib.items() if key not in _ATTRIBUTES[element.tag]}
        unread.update((key, value) for key, value in keys.items() if key not in _KEYS)
        defaults = _DEFAULTS
        if element.tag == "work" and _kind(element) != "normal":  # COSBench gives it no time, and its own division
            defaults = {**_DEFAULTS, "afr": "0"}
            unread = {key: value for key, value in unread.items() if key not in ("division", "rampdown")}
        label = plain(element.get("name") or element.get("type") or "")
        for key, value in unread.items():
            if value.lower() != defaults.get(key):
                draft.note(f"{key}={plain(value)} of {element.tag} {label}".rstrip())
    for key, values in names.items():
        if len(values) > 1:
            draft.note(f"{key}={', '.join(map(plain, sorted(values)))}: all operations work on the same objects here")


def _stage(draft: _Draft, stage: ET.Element, works: Sequence[Tuple[ET.Element, Dict[str, str]]]) -> None:
    """Add the phases of a stage: its works are at once in COSBench, and here where they make a mix."""
    name = phase_name(stage.get("name") or "")
    kinds = [_kind(work) for work, _ in works]
    for kind in dict.fromkeys(kinds):
        if kind == "dispose":
            draft.note("dispose: the end of the run removes its buckets")
        elif kind not in ("init", "delay", "prepare", "cleanup", "normal"):
            draft.note(f"work {name or kind} of type {kind}")
    if len({kind for kind in kinds if kind in ("prepare", "normal", "cleanup")}) > 1:
        draft.note(f"the works of {stage.get('name')} ran side by side: here one kind after the other")
    if "prepare" in kinds and not draft.filled:  # one fill writes what all of them do
        draft.filled = True
        draft.phases.append({"fill": {"objects": draft.objects or 1}})
    _hybrid(draft, name, [(work, config) for work, config in works if _kind(work) == "normal"])
    if "cleanup" in kinds and draft.filled:
        draft.filled = False
        draft.phases.append({"delete": {}})
    delay = stage.get("closuredelay") or ""
    if delay.isdigit() and int(delay):
        draft.phases.append({"wait": {"duration": format_duration(float(delay))}})


def _hybrid(draft: _Draft, stage: str, normal: Sequence[Tuple[ET.Element, Dict[str, str]]]) -> None:
    """Add the phase of a stage's mixes; several, or one with workers of its own, are works."""
    works: Dict[str, Dict[str, Any]] = {}
    runtimes, rampups = set(), set()
    for work, config in normal:
        name = phase_name(work.get("name") or "") or stage or "work"
        mixed = _mixed(draft, work, config, name)
        if not mixed:
            continue
        unique = name if name not in works else f"{name}-{len(works) + 1}"
        works[unique] = {"workers": _workers(work), **mixed}
        runtime = work.get("runtime") or work.get("totalTime") or ""
        runtimes.add(_seconds(runtime))
        rampups.add(_seconds(work.get("rampup") or "") if _seconds(runtime) else 0)
        if not _seconds(runtime):
            draft.note(f"the end of {name} by a number of operations or bytes: it lasts 5 minutes here (EDIT)")
        elif any(_seconds(work.get(key) or "") for key in ("totalOps", "totalBytes")):
            draft.note(f"the end of {name} by a number of operations or bytes: it ends by its time here")
    if not works:
        return
    if len(runtimes) > 1:
        draft.note(f"works of {stage} end at different times: here with the last of them")
    if len(rampups) > 1:
        draft.note(f"works of {stage} have different times of rampup: here all have the longest")
    phase: Dict[str, Any] = {"duration": format_duration(float(max(runtimes))) if max(runtimes) else "5m"}
    if max(rampups):  # of all workers; it is not measured, and not a part of the runtime
        phase["warmup"] = format_duration(float(max(rampups)))
    (first, only), *further_works = works.items()
    if further_works or only["workers"] != draft.workers:
        phase["works"] = works
    else:
        phase.update((key, value) for key, value in only.items() if key != "workers")
    name = stage if further_works and stage else first
    named = [earlier_phase.get("name") for earlier_phase in draft.phases]
    draft.phases.append({"hybrid": phase, "name": name if name not in named else f"{name}-{len(draft.phases) + 1}"})


def _seconds(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _mixed(draft: _Draft, work: ET.Element, config: Mapping[str, str], name: str) -> Dict[str, Any]:
    """Return mix, keys and roles of a work; {} for one that does nothing."""
    mix: Dict[str, float] = {}
    keys: Dict[str, Any] = {}
    roles: Dict[str, List[int]] = {}
    for operation in work.iterfind("operation"):
        kind, own = operation.get("type") or "", {**config, **_options(operation)}
        op, ratio = _OPERATIONS.get(kind), _ratio(operation)
        if op is None or not ratio:
            if ratio:
                draft.note(f"operation {kind} of {name}")
            continue
        if op in mix:
            draft.note(f"the second {kind} of {name}: both are one operation here")
        mix[op] = mix.get(op, 0) + ratio
        if draft.buckets > 1:
            roles[op] = list(_numbers(draft, own))
        if "objects" in own and op != "list":
            keys[op] = _keys(draft, op, own)
    total = sum(mix.values())
    shares = {op: float(f"{100 * ratio / total:.10g}") for op, ratio in mix.items()}
    given = {op: select for op, select in keys.items() if select is not None}
    everywhere = list(range(1, draft.buckets + 1))
    section: Dict[str, Any] = {
        "mix": {op: int(share) if share == int(share) else share for op, share in shares.items()}
    }
    section.update({"keys": given} if given else {})
    section.update({"roles": roles} if any(numbers != everywhere for numbers in roles.values()) else {})
    return section if mix else {}


def _ratio(operation: ET.Element) -> float:
    text = operation.get("ratio") or "100"
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 100:
        raise ConversionError(f"ratio={text}: must be a number from 0 to 100")
    return ratio


def _keys(draft: _Draft, op: str, config: Mapping[str, str]) -> Optional[Any]:
    """Return the objects that an operation takes, counted by what the fill wrote; None: those that are there."""
    text = config["objects"]
    form, first, last = _span(text, "objects")
    filled = {draft.containers[number].objects or draft.objects for number in _numbers(draft, config)}
    if filled == {0} or form == "c" or len(filled) > 1:
        draft.note(f"objects={text} of {op}: any object that is there")
        return "new" if op == "put" else None
    (objects,) = filled
    bounds = _bound(first, objects), _bound(last, objects)
    if any(bound not in ("1", "N", "N+1") and not re.fullmatch(r"\d+N(\+1)?", bound) for bound in bounds):
        draft.note(f"objects={text} of {op}: each client has its own N here (EDIT keys: divide by the clients)")
    select = f"{'u' if form == 'u' else 's'}({bounds[0]},{bounds[1]})"
    return {"select": select, "absent": True} if op == "delete" and select.startswith("u") else select


def _bound(number: int, objects: int) -> str:
    """Return a number of an object as 5, N, 2N or N+1, N being what the fill wrote: it is there for each driver."""
    times, offset = divmod(number, objects)
    if not times or objects == 1:
        return str(number)
    return f"{times if times > 1 else ''}N" + (f"+{offset}" if offset else "")
